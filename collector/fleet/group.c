/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the windows of single ranks to windows of groups. Agents end their windows at slightly
 * different moments: a window belongs to the slot its end rounds to. A slot is judged when all
 * expected members are in it, or when its grace is over.
 */
#include "fleet/internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "stats/robust.h"

/* Slots judged in one go, so that a long silence costs no long loop. */
#define MAX_SLOTS_AT_ONCE 256

/* ---- which group ---- */

/* The largest communicator in use; *ret_tied when there are several of that size. */
static const struct ltn_fleet_comm *largest_comm(const struct ltn_fleet_proc *p, bool *ret_tied)
{
    const struct ltn_fleet_comm *best = NULL;
    double steps = (double)(p->steps_total - p->first_steps);
    *ret_tied = false;
    for (size_t i = 0; i < p->comm_count; i++) {
        const struct ltn_fleet_comm *c = &p->comms[i];
        if ((double)(c->sequence - c->first_sequence) < 0.5 * steps)
            continue;
        if (best != NULL && c->size == best->size)
            *ret_tied = true;
        if (best == NULL || c->size > best->size) {
            best = c;
            *ret_tied = false;
        }
    }
    return best;
}

static struct ltn_fleet_group *get_group(struct ltn_fleet_job *job, const char *name)
{
    struct ltn_fleet_group *g = ltn_map_get_str(&job->groups, name);
    if (g != NULL)
        return g;
    g = calloc(1, sizeof(*g));
    if (g == NULL || ltn_map_put_str(&job->groups, name, g) != 0) {
        free(g);
        return NULL;
    }
    g->job = job;
    (void)ltn_copy_str(g->name, sizeof(g->name), name);
    return g;
}

void ltn_fleet_group_leave(struct ltn_fleet *f, struct ltn_fleet_proc *p)
{
    struct ltn_fleet_group *g = p->group;
    (void)f;
    if (g == NULL)
        return;
    for (size_t i = 0; i < g->n; i++) {
        if (g->members[i] != p)
            continue;
        g->members[i] = g->members[--g->n];
        break;
    }
    p->group = NULL;
}

static bool group_join(struct ltn_fleet_group *g, struct ltn_fleet_proc *p)
{
    if (g->n == g->cap) {
        size_t cap = g->cap == 0 ? 8 : 2 * g->cap;
        struct ltn_fleet_proc **m = reallocarray(g->members, cap, sizeof(*m));
        if (m == NULL)
            return false;
        g->members = m;
        g->cap = cap;
    }
    g->members[g->n++] = p;
    p->group = g;
    return true;
}

/* The group of a communicator that spans the whole world of this process, when there is just one in
 * its role. */
static struct ltn_fleet_group *world_group(const struct ltn_fleet_proc *p)
{
    struct ltn_fleet_group *only = NULL;
    struct ltn_fleet_group *g;
    size_t pos = 0;
    while ((g = ltn_map_next(&p->job->groups, &pos)) != NULL) {
        if (g->comm_id == 0 || g->size != p->world_size || g->role != p->role || g->n == 0)
            continue;
        if (only != NULL)
            return NULL;
        only = g;
    }
    return only;
}

/* Puts the process where it belongs now. False when that is not known yet. */
static bool place(struct ltn_fleet *f, struct ltn_fleet_proc *p)
{
    char name[LTN_STRAGGLER_JOB_BYTES];
    bool tied = false;
    if (p->rank_given && !ltn_fleet_place_take(f, p, ""))
        return false; /* at once: its role may take some windows */
    p->role = ltn_fleet_role_of(p);
    if (p->role < 0)
        return false;
    const struct ltn_fleet_comm *c = largest_comm(p, &tied);
    int32_t size = c != NULL ? c->size : p->world_size;
    uint64_t comm_id = c != NULL && !tied ? c->id : 0;
    if (p->comm_count == 0 && world_group(p) != NULL)
        comm_id = world_group(p)->comm_id;
    if (comm_id != 0)
        (void)snprintf(name, sizeof(name), "comm-%016llx/role-%d", (unsigned long long)comm_id,
                       p->role);
    else
        (void)snprintf(name, sizeof(name), "size-%d/role-%d", size, p->role);
    if (!p->rank_given && !ltn_fleet_place_take(f, p, name))
        return false;
    if (p->group != NULL && strcmp(p->group->name, name) == 0)
        return true;
    ltn_fleet_group_leave(f, p);
    struct ltn_fleet_group *g = get_group(p->job, name);
    if (g == NULL || !group_join(g, p))
        return false;
    g->comm_id = comm_id;
    g->size = size;
    g->role = p->role;
    return true;
}

void ltn_fleet_group_drop(struct ltn_fleet *f, struct ltn_fleet_group *g)
{
    for (size_t i = 0; i < g->n; i++)
        g->members[i]->group = NULL;
    ltn_straggler_forget(f->straggler, g->job->key, g->name, NULL, f->now_ns, ltn_fleet_on_verdict,
                         f);
    (void)ltn_map_del(&g->job->groups, g->name, strlen(g->name));
    free(g->members);
    free(g);
}

/* ---- which slot ---- */

/* The clock of a node that is off by windows is corrected by what its pushes show. */
static uint64_t slot_of(const struct ltn_fleet *f, struct ltn_fleet_proc *p,
                        const struct ltn_update_resource *res)
{
    double w = (double)f->opts.window_ns;
    double at = ((double)res->end_ns - (double)p->node->clock_offset_ns) / w;
    /* Whatever a node says, none of its windows ends in our future. */
    double now = (double)f->now_ns / w;
    if (at > now + 2)
        at = now;
    uint64_t rounded = (uint64_t)llround(fmax(1, at));
    if (p->last_slot != 0 && res->has_sequence && res->sequence > p->slot_sequence) {
        /* The sequence says how many windows lie between; it wins while the clock agrees. */
        uint64_t counted = p->last_slot + (res->sequence - p->slot_sequence);
        if (fabs((double)counted - at) <= 0.75)
            return counted;
    }
    return rounded;
}

uint64_t ltn_fleet_incarnation(const struct ltn_fleet_proc *p)
{
    uint64_t v = p->start_ns ^ ((uint64_t)p->pid << 32);
    return v != 0 ? v : 1;
}

static void fill_member(const struct ltn_fleet_proc *p, const struct ltn_update_rank *r,
                        struct ltn_straggler_member *m)
{
    memset(m, 0, sizeof(*m));
    memcpy(m->key, p->key, sizeof(m->key));
    (void)ltn_copy_str(m->node, sizeof(m->node), p->node->name);
    m->rank = p->rank;
    m->incarnation = ltn_fleet_incarnation(p);
    m->step_ns = r->step_ns;
    m->self_ns = r->self_ns;
    m->peer_wait_ns = r->peer_wait_ns;
    memcpy(m->part_ns, r->part_ns, sizeof(m->part_ns));
    memcpy(m->preemptors, r->preemptors, sizeof(m->preemptors));
    m->coverage = r->coverage;
    m->gpu_clock = m->gpu_busy = -1;
    const struct ltn_fleet_gpu *gpu = NULL;
    for (size_t i = 0; i < p->node->gpu_count; i++)
        if (p->gpu_uuid[0] != '\0' ? strcmp(p->node->gpus[i].uuid, p->gpu_uuid) == 0
                                   : p->node->gpu_count == 1)
            gpu = &p->node->gpus[i];
    if (gpu == NULL || !(gpu->clock_hz > 0) || !(gpu->clock_max_hz > 0))
        return;
    m->gpu_clock = gpu->clock_hz / gpu->clock_max_hz;
    m->gpu_busy = gpu->utilization;
    m->gpu_throttle = gpu->has_reasons ? gpu->clock_reasons : 0;
}

static struct ltn_fleet_window *window_at(struct ltn_fleet_proc *p, uint64_t slot)
{
    for (size_t i = 0; i < LTN_FLEET_WINDOWS; i++)
        if (p->windows[i].slot == slot)
            return &p->windows[i];
    return NULL;
}

void ltn_fleet_rank_window(struct ltn_fleet *f, struct ltn_fleet_proc *p,
                           const struct ltn_update_resource *res)
{
    uint64_t slot = slot_of(f, p, res);
    if (window_at(p, slot) != NULL) {
        f->counters.windows_duplicate++;
        return;
    }
    f->counters.windows++;
    p->is_rank = true;
    p->last_window_ns = f->now_ns;
    struct ltn_fleet_window *w = &p->windows[p->window_at];
    p->window_at = (p->window_at + 1) % LTN_FLEET_WINDOWS;
    memset(w, 0, sizeof(*w));
    w->slot = slot;
    w->received_ns = f->now_ns;
    fill_member(p, &res->steps, &w->member);
    p->past[p->past_at] = (struct ltn_fleet_past){.slot = slot,
                                                  .end_ns = res->end_ns,
                                                  .step_ns = (float)res->steps.step_ns,
                                                  .self_ns = (float)res->steps.self_ns,
                                                  .coverage = (float)res->steps.coverage};
    p->past_at = (p->past_at + 1) % LTN_FLEET_HISTORY;
    if (slot > p->last_slot) {
        p->last_slot = slot;
        p->slot_sequence = res->sequence;
    }
    if (p->job == NULL || !place(f, p))
        return;
    struct ltn_fleet_group *g = p->group;
    /* The first to come need not be the first in time: until something was judged the group begins
     * where its earliest window is. */
    if (g->next_slot == 0 || (g->scored_ns == 0 && slot < g->next_slot))
        g->next_slot = slot;
    if (slot < g->next_slot)
        f->counters.windows_late++;
    else
        ltn_fleet_group_run(f, g);
}

/* ---- judging ---- */

bool ltn_fleet_rank_alive(const struct ltn_fleet *f, const struct ltn_fleet_proc *p)
{
    return f->now_ns < p->last_window_ns + LTN_FLEET_RANK_GONE * f->opts.window_ns;
}

/* Ranks that should be there: all of the communicator when it has one role, else those that live.
 */
static size_t expected(const struct ltn_fleet *f, const struct ltn_fleet_group *g)
{
    size_t live = 0, roles = 0, pos = 0;
    for (size_t i = 0; i < g->n; i++)
        live += ltn_fleet_rank_alive(f, g->members[i]) ? 1 : 0;
    for (const struct ltn_fleet_group *o; (o = ltn_map_next(&g->job->groups, &pos)) != NULL;)
        roles += o->comm_id == g->comm_id && o->size == g->size && o->n > 0 ? 1 : 0;
    if (roles == 1 && g->size > 0 && (size_t)g->size > live)
        return (size_t)g->size;
    return live;
}

struct present {
    struct ltn_straggler_member *members;
    struct ltn_fleet_past **past;
    size_t n;
};

static struct ltn_fleet_past *past_of(struct ltn_fleet_proc *p, uint64_t slot)
{
    for (size_t i = 0; i < LTN_FLEET_HISTORY; i++)
        if (p->past[i].slot == slot)
            return &p->past[i];
    return NULL;
}

/* Members with a window in the slot; of two with one key the newer process. */
static void gather(struct ltn_fleet_group *g, uint64_t slot, struct present *p)
{
    p->n = 0;
    for (size_t i = 0; i < g->n; i++) {
        struct ltn_fleet_window *w = window_at(g->members[i], slot);
        if (w == NULL)
            continue;
        size_t at = 0;
        while (at < p->n && (p->n > 1024 || strcmp(p->members[at].key, w->member.key) != 0))
            at++;
        if (at < p->n && p->members[at].incarnation > w->member.incarnation)
            continue;
        p->members[at] = w->member;
        p->past[at] = past_of(g->members[i], slot);
        if (at == p->n)
            p->n++;
    }
}

static double median_of(struct ltn_fleet *f, const struct present *p, bool self)
{
    for (size_t i = 0; i < p->n; i++)
        f->scratch[i] = self ? p->members[i].self_ns : p->members[i].step_ns;
    return ltn_median(f->scratch, ltn_drop_nonfinite(f->scratch, p->n));
}

/* Own self time over the median of the others'. */
static void note_ratios(struct ltn_fleet *f, struct present *p)
{
    if (p->n < 2)
        return;
    double *sorted = f->scratch;
    for (size_t i = 0; i < p->n; i++)
        sorted[i] = p->members[i].self_ns;
    size_t n = ltn_drop_nonfinite(sorted, p->n);
    ltn_sort_f64(sorted, n);
    for (size_t i = 0; i < p->n && n == p->n; i++) {
        size_t low = 0, high = n;
        while (low < high) {
            size_t mid = low + (high - low) / 2;
            if (sorted[mid] < p->members[i].self_ns)
                low = mid + 1;
            else
                high = mid;
        }
        double peers = ltn_loo_median_sorted(sorted, n, low < n ? low : n - 1);
        if (p->past[i] != NULL && peers > 0)
            p->past[i]->ratio = (float)(p->members[i].self_ns / peers);
    }
}

static void judge(struct ltn_fleet *f, struct ltn_fleet_group *g, uint64_t slot, size_t want,
                  struct present *p)
{
    gather(g, slot, p);
    if (p->n == 0)
        return; /* no step ended anywhere: nothing to say */
    struct ltn_straggler_window w = {
        .job = g->job->key,
        .group = g->name,
        .end_ns = slot * f->opts.window_ns,
        .length_ns = f->opts.window_ns,
        .expected = want,
        .job_gpus = g->job->world_size > 0 ? (size_t)g->job->world_size : want,
        .members = p->members,
        .n = p->n,
    };
    g->scored_ns = w.end_ns;
    g->judged_ns = f->now_ns;
    g->step_ns = median_of(f, p, false);
    g->self_median_ns = median_of(f, p, true);
    note_ratios(f, p);
    int rc = ltn_straggler_feed(f->straggler, &w, ltn_fleet_on_verdict, f, &g->status);
    if (rc != 0)
        f->counters.refused_groups++;
    else if (g->status.state == LTN_GROUP_SCORED || g->status.state >= LTN_GROUP_CANNOT_TELL)
        f->counters.groups_scored++;
    else
        f->counters.groups_abstained++;
}

static bool make_room(struct ltn_fleet *f, size_t n)
{
    if (n <= f->scratch_n)
        return true;
    double *p = reallocarray(f->scratch, n, sizeof(*p));
    if (p == NULL)
        return false;
    f->scratch = p;
    f->scratch_n = n;
    return true;
}

struct arrival {
    size_t present;
    uint64_t first_ns; /* when the first member's window came */
};

static struct arrival arrivals(struct ltn_fleet_group *g, uint64_t slot)
{
    struct arrival a = {0, UINT64_MAX};
    for (size_t i = 0; i < g->n; i++) {
        const struct ltn_fleet_window *w = window_at(g->members[i], slot);
        if (w == NULL)
            continue;
        a.present++;
        a.first_ns = w->received_ns < a.first_ns ? w->received_ns : a.first_ns;
    }
    return a;
}

/* Complete, or its grace is over. The grace counts from the end of the window, or from its first
 * arrival when that is later: after an outage everybody sends old windows. */
static bool slot_due(const struct ltn_fleet *f, struct ltn_fleet_group *g, uint64_t slot,
                     size_t want)
{
    uint64_t grace_ns = f->opts.window_ns * LTN_FLEET_GRACE_TENTHS / 10;
    uint64_t end_ns = slot * f->opts.window_ns;
    struct arrival a = arrivals(g, slot);
    if (a.present == 0)
        return f->now_ns >= end_ns + grace_ns;
    if (a.present >= want)
        return true;
    return f->now_ns >= (a.first_ns > end_ns ? a.first_ns : end_ns) + grace_ns;
}

/* Newest slot that half of the living members have reached: one node that is ahead must not put its
 * group's windows out of reach. Needs scratch for all members; 0 without any. */
static uint64_t common_slot(struct ltn_fleet *f, const struct ltn_fleet_group *g)
{
    size_t n = 0;
    for (size_t i = 0; i < g->n; i++)
        if (ltn_fleet_rank_alive(f, g->members[i]))
            f->scratch[n++] = (double)g->members[i]->last_slot;
    if (n == 0)
        return 0;
    ltn_sort_f64(f->scratch, n);
    return (uint64_t)f->scratch[(n - 1) / 2];
}

void ltn_fleet_group_run(struct ltn_fleet *f, struct ltn_fleet_group *g)
{
    if (g->n == 0 || g->next_slot == 0 || !make_room(f, g->n))
        return;
    size_t want = expected(f, g);
    uint64_t newest = 0;
    for (size_t i = 0; i < g->n; i++)
        newest = g->members[i]->last_slot > newest ? g->members[i]->last_slot : newest;
    struct present p = {.members = calloc(g->n, sizeof(*p.members)),
                        .past = calloc(g->n, sizeof(*p.past))};
    uint64_t common = common_slot(f, g);
    if (common >= g->next_slot + LTN_FLEET_WINDOWS)
        g->next_slot = common - LTN_FLEET_WINDOWS + 1; /* older ones are in no ring any more */
    for (int k = 0; p.members != NULL && p.past != NULL && k < MAX_SLOTS_AT_ONCE; k++) {
        if (g->next_slot > newest || !slot_due(f, g, g->next_slot, want))
            break;
        judge(f, g, g->next_slot, want, &p);
        g->next_slot++;
    }
    free(p.members);
    free(p.past);
}
