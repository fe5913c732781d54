/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the aggregate thread keeps of each traced process between windows: who it is, and the last
 * reading of its kernel counters. One thread.
 */
#ifndef LTN_CAPTURE_PROCS_H
#define LTN_CAPTURE_PROCS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/attr.h"
#include "base/map.h"
#include "bpf/event.h"
#include "capture/steps.h"
#include "capture/window.h"
#include "discover/proc.h"
#include "discover/rank.h"
#include "probe/ops.h"

/* Last reading of an op, and what it added since the one before. */
struct ltn_proc_op {
    struct ltn_op_stats last; /* hist unused: hist_total holds it, modulo 2^32 */
    uint64_t hist_total[LTN_HIST_BUCKETS];
    uint32_t hist[LTN_HIST_BUCKETS]; /* of the running window */
    struct ltn_op_stats delta;       /* of the running window; hist unused */
    bool touched;
};

/* Growing array of the last readings of one kind: threads, communicators, preemptors. */
struct ltn_proc_thread {
    uint32_t tid;
    bool seen; /* in the running window's reading; those that are not are let go at its end */
    struct ltn_thread_stats before;
    struct ltn_thread_stats now;
};
struct ltn_proc_comm {
    struct ltn_comm_key key;
    bool seen;
    struct ltn_comm_state before;
    struct ltn_comm_state now;
};
struct ltn_proc_preemptor {
    struct ltn_preemptor_key key;
    bool seen;
    struct ltn_preemptor_stats before;
    struct ltn_preemptor_stats now;
};

/* Ceilings per process; what is over is counted in ltn_procs.refused. */
#define LTN_PROC_THREADS    1024
#define LTN_PROC_COMMS      512
#define LTN_PROC_PREEMPTORS 512

struct ltn_cap_proc {
    uint32_t tgid;
    struct ltn_proc id;
    struct ltn_rank_identity rank;
    uint64_t first_seen_ns; /* Unix time */
    bool identified;
    bool ended;
    bool oom;
    struct ltn_stuck_call stuck[LTN_STUCK_CALLS];
    size_t stuck_count;
    unsigned windows; /* ends of windows it has been through, up to LTN_PROC_PATIENCE */
    double steps_total;
    struct ltn_proc_op *ops[LTN_OP_COUNT];
    struct ltn_proc_thread *threads;
    size_t thread_count;
    struct ltn_proc_comm *comms;
    size_t comm_count;
    struct ltn_proc_preemptor *preemptors;
    size_t preemptor_count;
    struct ltn_steps steps;
};

/* The counters of a process may be read before the record that says who it is, and /proc may not
 * show it any more. It then waits for the next window. */
#define LTN_PROC_PATIENCE 1
static inline bool ltn_procs_is_known(const struct ltn_cap_proc *p)
{
    return p->identified || p->windows >= LTN_PROC_PATIENCE;
}

struct ltn_procs {
    struct ltn_map by_tgid;
    const char *node; /* name of this machine, borrowed; "" = not known */
    uint64_t refused; /* entries that a ceiling or memory kept out */
};

/* Table for at most max processes of the machine node (borrowed). Allocates nothing. */
void ltn_procs_init(struct ltn_procs *t, size_t max, const char *node);
void ltn_procs_done(struct ltn_procs *t);

/* The process, made and identified from /proc when it is new. NULL when a ceiling or memory refuses
 * it. */
struct ltn_cap_proc *ltn_procs_get(struct ltn_procs *t, uint32_t tgid);

/* The process if it is known. */
struct ltn_cap_proc *ltn_procs_find(const struct ltn_procs *t, uint32_t tgid);

/* Reads identity again (after an exec). */
void ltn_procs_identify(const struct ltn_procs *t, struct ltn_cap_proc *p);

/* What the kernel says of a process: its start where /proc no longer shows it, and its name at the
 * moment of the record. A record of another life of the same pid changes nothing. */
void ltn_procs_told(struct ltn_cap_proc *p, const struct ltn_event_process *e);

/* Forgets a process and frees what was kept of it. */
void ltn_procs_drop(struct ltn_procs *t, uint32_t tgid);

/* Walk: start with *pos = 0; NULL at the end. */
struct ltn_cap_proc *ltn_procs_next(const struct ltn_procs *t, size_t *pos);

/* Take over a reading of the kernel's counters for the running window. */
void ltn_procs_read_op(struct ltn_procs *t, const struct ltn_op_key *key,
                       const struct ltn_op_stats *now);
void ltn_procs_read_thread(struct ltn_procs *t, const struct ltn_thread_stats *now);
void ltn_procs_read_comm(struct ltn_procs *t, const struct ltn_comm_key *key,
                         const struct ltn_comm_state *now);
void ltn_procs_read_preemptor(struct ltn_procs *t, const struct ltn_preemptor_key *key,
                              const struct ltn_preemptor_stats *now);
void ltn_procs_read_stuck(struct ltn_procs *t, uint32_t tid, const struct ltn_in_flight *now);

/* Ends the window: the present readings become the old ones; what the kernel no longer has is let
 * go. */
void ltn_procs_turn(struct ltn_procs *t);

#endif /* LTN_CAPTURE_PROCS_H */
