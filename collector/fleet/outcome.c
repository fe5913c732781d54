/* SPDX-License-Identifier: Apache-2.0 */
/* What can be said of the whole fleet when no verdict is open: nobody is slow, or it is not known.
 */
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "fleet/internal.h"

/* Windows after which a judgement is old. */
#define JUDGED_LATELY 6

/* Why the group's newest judgement clears nobody; false when it does. */
static bool unclear(const struct ltn_fleet *f, const struct ltn_fleet_group *g, char *out,
                    size_t size)
{
    enum ltn_straggler_state state = g->status.state;
    const char *why = g->status.note;
    if (g->scored_ns == 0)
        why = "no window was judged yet";
    else if (f->now_ns > g->judged_ns + JUDGED_LATELY * f->opts.window_ns)
        why = "no window was judged lately";
    else if (state == LTN_GROUP_SCORED || state == LTN_GROUP_JOB_WIDE)
        return false;
    else if (state == LTN_GROUP_WARM_UP)
        why = "the first windows of a group are not judged";
    else if (state == LTN_GROUP_ALONE)
        why = "fewer than two ranks can be compared";
    else if (why[0] == '\0')
        why = ltn_straggler_state_name(state);
    (void)snprintf(out, size, "job %.100s: %s", g->job->key, why);
    return true;
}

static void look_at_rank(const struct ltn_fleet *f, const struct ltn_fleet_proc *p,
                         struct ltn_fleet_outcome *o)
{
    char why[sizeof(o->reason)];
    if (!p->is_rank || p->replaced || p->job == NULL || !ltn_fleet_rank_alive(f, p))
        return;
    if (p->group == NULL)
        (void)snprintf(why, sizeof(why), "job %.100s: the peers of some ranks are not known yet",
                       p->job->key);
    else if (!unclear(f, p->group, why, sizeof(why))) {
        o->judged++;
        return;
    }
    if (o->unjudged++ == 0 || strcmp(why, o->reason) < 0) /* the same one every time */
        (void)ltn_copy_str(o->reason, sizeof(o->reason), why);
}

void ltn_fleet_outcome(const struct ltn_fleet *f, struct ltn_fleet_outcome *ret)
{
    size_t pos = 0;
    *ret = (struct ltn_fleet_outcome){.state = "no_straggler"};
    for (const struct ltn_fleet_proc *p; (p = ltn_map_next(&f->procs, &pos)) != NULL;)
        look_at_rank(f, p, ret);
    if (f->open.len > 0)
        ret->state = "straggler";
    else if (ret->judged == 0)
        ret->state = "cannot_tell";
    else if (ret->unjudged > 0)
        ret->state = "partial";
    if (ret->judged == 0 && ret->unjudged == 0)
        (void)ltn_copy_str(ret->reason, sizeof(ret->reason), "no rank sends windows");
}
