/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of collector/fleet share. */
#ifndef LTN_FLEET_INTERNAL_H
#define LTN_FLEET_INTERNAL_H

#include "fleet/fleet.h"

#define LTN_FLEET_KEY_BYTES (3 * LTN_NAME_BYTES + 64)

/* Grace after the end of a window, in tenths of windows, before it is judged incomplete. */
#define LTN_FLEET_GRACE_TENTHS 15

/* Silence, in windows, after which a rank is no longer expected, a group is forgotten, a process or
 * job leaves the registry. */
#define LTN_FLEET_RANK_GONE  12
#define LTN_FLEET_GROUP_GONE 60
#define LTN_FLEET_PROC_GONE  90
#define LTN_FLEET_JOB_GONE   360

/* "a\x1fb" into out; returns its length. */
size_t ltn_fleet_key2(char *out, size_t size, const char *a, const char *b);
/* Likewise with three. */
size_t ltn_fleet_key3(char *out, size_t size, const char *a, const char *b, const char *c);

/* Start times of one process come out of two clocks and may differ by so much. */
#define LTN_FLEET_SAME_START_NS LTN_NS_PER_S

/* place.c: one process per rank. Takes the place of p's rank in its job or, when the rank is that
 * of a communicator, in the group of that name. An older process that has it is replaced and leaves
 * its group. False when a newer one has it: p is replaced. */
bool ltn_fleet_place_take(struct ltn_fleet *f, struct ltn_fleet_proc *p, const char *group);
void ltn_fleet_place_leave(struct ltn_fleet_proc *p);

/* group.c: takes the rank window that came with res in (or counts why not). */
void ltn_fleet_rank_window(struct ltn_fleet *f, struct ltn_fleet_proc *p,
                           const struct ltn_update_resource *res);
/* Judges every window of the group that is complete or over its grace. */
void ltn_fleet_group_run(struct ltn_fleet *f, struct ltn_fleet_group *g);
void ltn_fleet_group_leave(struct ltn_fleet *f, struct ltn_fleet_proc *p);
/* Forgets the group, closing its verdicts, and frees it. */
void ltn_fleet_group_drop(struct ltn_fleet *f, struct ltn_fleet_group *g);

/* True while windows of the rank are expected. */
bool ltn_fleet_rank_alive(const struct ltn_fleet *f, const struct ltn_fleet_proc *p);

/* Tells processes that follow each other in one place apart; never 0. */
uint64_t ltn_fleet_incarnation(const struct ltn_fleet_proc *p);

/* role.c: role of a process in its job from what its communicators did per step; -1 not yet. */
int ltn_fleet_role_of(struct ltn_fleet_proc *p);

/* verdict.c */
void ltn_fleet_on_verdict(void *ctx, enum ltn_straggler_change change, bool notable,
                          const struct ltn_straggler_verdict *v);

#endif /* LTN_FLEET_INTERNAL_H */
