/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Places of ranks. A rank is one process at a time: after a restart the newer process has the place
 * and the older one, which may be remembered for a while, is out of every group.
 */
#include "fleet/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* On one node the start says which is newer; across nodes, whose clocks differ, what we heard of
 * later. */
static bool newer(const struct ltn_fleet_proc *a, const struct ltn_fleet_proc *b)
{
    uint64_t apart =
        a->start_ns > b->start_ns ? a->start_ns - b->start_ns : b->start_ns - a->start_ns;
    if (a->node == b->node && apart >= LTN_FLEET_SAME_START_NS)
        return a->start_ns > b->start_ns;
    if (a->first_seen_ns != b->first_seen_ns)
        return a->first_seen_ns > b->first_seen_ns;
    return a->start_ns != b->start_ns ? a->start_ns > b->start_ns : a->pid > b->pid;
}

/* The rank of a job is one place, that of a communicator one in each group. Jobs of one key that
 * run beside each other are told apart by their size, when it is given. */
static void place_key(const struct ltn_fleet_proc *p, const char *group, char *out, size_t size)
{
    if (p->rank_given)
        (void)snprintf(out, size, "%d/%d", p->rank, p->world_size);
    else
        (void)snprintf(out, size, "%s\x1f%s", group, p->key);
}

void ltn_fleet_place_leave(struct ltn_fleet_proc *p)
{
    if (p->place != NULL && p->job != NULL && ltn_map_get_str(&p->job->places, p->place) == p)
        (void)ltn_map_del(&p->job->places, p->place, strlen(p->place));
    free(p->place);
    p->place = NULL;
}

static void replace(struct ltn_fleet *f, struct ltn_fleet_proc *p)
{
    /* What was said of it ends with it. */
    if (p->group != NULL)
        ltn_straggler_forget(f->straggler, p->job->key, p->group->name, p->key, f->now_ns,
                             ltn_fleet_on_verdict, f);
    ltn_fleet_group_leave(f, p);
    ltn_fleet_place_leave(p);
    if (!p->replaced)
        f->counters.ranks_replaced++;
    p->replaced = true;
}

bool ltn_fleet_place_take(struct ltn_fleet *f, struct ltn_fleet_proc *p, const char *group)
{
    char key[LTN_FLEET_KEY_BYTES];
    place_key(p, group, key, sizeof(key));
    struct ltn_fleet_proc *other = ltn_map_get_str(&p->job->places, key);
    if (other == p)
        return true;
    if (other != NULL && ltn_fleet_rank_alive(f, other) && !newer(p, other)) {
        replace(f, p);
        return false;
    }
    if (other != NULL)
        replace(f, other);
    ltn_fleet_place_leave(p);
    p->place = strdup(key);
    if (p->place == NULL || ltn_map_put_str(&p->job->places, key, p) != 0) {
        free(p->place);
        p->place = NULL;
        return false;
    }
    p->replaced = false;
    return true;
}
