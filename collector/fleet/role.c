/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Roles inside a job. Ranks that do the same part of the work have communicators of the same sizes
 * and issue about the same number of operations per step on each. A rank joins the first role it
 * fits and leaves it only after a lasting misfit, so that noise does not tear groups apart.
 */
#include "fleet/internal.h"

#include <math.h>
#include <string.h>

#define ROLE_MIN_STEPS 4
#define ROLE_MISSES    5

/* Two rates are the same within a quarter, or within 0.6 operations. */
static bool same_rate(double a, double b)
{
    return fabs(a - b) <= fmax(0.6, 0.25 * fmax(a, b));
}

static void add_rate(struct ltn_fleet_role *r, int32_t size, double per_step)
{
    size_t at = 0;
    while (at < r->n && r->size[at] > size)
        at++;
    if (at < r->n && r->size[at] == size) {
        r->per_step[at] += per_step;
        return;
    }
    if (r->n == LTN_FLEET_ROLE_SIZE)
        return;
    memmove(&r->size[at + 1], &r->size[at], (r->n - at) * sizeof(r->size[0]));
    memmove(&r->per_step[at + 1], &r->per_step[at], (r->n - at) * sizeof(r->per_step[0]));
    r->size[at] = size;
    r->per_step[at] = per_step;
    r->n++;
}

static bool fits(const struct ltn_fleet_role *a, const struct ltn_fleet_role *b)
{
    if (a->n != b->n)
        return false;
    for (size_t i = 0; i < a->n; i++)
        if (a->size[i] != b->size[i] || !same_rate(a->per_step[i], b->per_step[i]))
            return false;
    return true;
}

static int join(struct ltn_fleet_job *job, const struct ltn_fleet_role *role)
{
    for (size_t i = 0; i < job->role_count; i++)
        if (fits(&job->roles[i], role))
            return (int)i;
    if (job->role_count == LTN_FLEET_ROLES)
        return -1;
    job->roles[job->role_count] = *role;
    return (int)job->role_count++;
}

/* The role of ranks whose communicators are known, if there is just one; else -1. */
static int only_known_role(const struct ltn_fleet_job *job)
{
    int only = -1;
    for (size_t i = 0; i < job->role_count; i++) {
        if (job->roles[i].n == 0)
            continue;
        if (only >= 0)
            return -1;
        only = (int)i;
    }
    return only;
}

int ltn_fleet_role_of(struct ltn_fleet_proc *p)
{
    struct ltn_fleet_role seen = {.n = 0};
    uint64_t steps = p->steps_total - p->first_steps;
    if (p->comm_count > 0 && steps < ROLE_MIN_STEPS)
        return p->role;
    for (size_t i = 0; i < p->comm_count; i++) {
        const struct ltn_fleet_comm *c = &p->comms[i];
        double per_step = (double)(c->sequence - c->first_sequence) / (double)steps;
        if (per_step >= 0.5) /* used in the steps, not only to set the job up */
            add_rate(&seen, c->size, per_step);
    }
    /* An agent that came after the communicators were made knows nothing of them: its ranks are
     * taken for what the others are. */
    if (p->comm_count == 0 && only_known_role(p->job) >= 0)
        return only_known_role(p->job);
    if (p->role >= 0 && fits(&p->job->roles[p->role], &seen)) {
        p->role_misses = 0;
        return p->role;
    }
    if (p->role >= 0 && ++p->role_misses < ROLE_MISSES)
        return p->role;
    p->role_misses = 0;
    return join(p->job, &seen);
}
