/* SPDX-License-Identifier: Apache-2.0 */
/* Verdicts and incidents as the fleet keeps them for readers. */
#include "fleet/internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/text.h"

static struct ltn_fleet_verdict *open_slot(struct ltn_fleet *f,
                                           const struct ltn_straggler_verdict *v)
{
    char key[LTN_FLEET_KEY_BYTES];
    size_t len = ltn_fleet_key3(key, sizeof(key), v->job, v->group, v->key);
    struct ltn_fleet_verdict *o = ltn_map_get(&f->open, key, len);
    if (o != NULL)
        return o;
    o = calloc(1, sizeof(*o));
    if (o != NULL && ltn_map_put(&f->open, key, len, o) != 0) {
        free(o);
        return NULL;
    }
    return o;
}

static void keep_closed(struct ltn_fleet *f, const struct ltn_straggler_verdict *v)
{
    if (f->opts.max_verdicts == 0)
        return;
    f->closed[f->closed_at].v = *v;
    f->closed_at = (f->closed_at + 1) % f->opts.max_verdicts;
    if (f->closed_n < f->opts.max_verdicts)
        f->closed_n++;
}

void ltn_fleet_on_verdict(void *ctx, enum ltn_straggler_change change, bool notable,
                          const struct ltn_straggler_verdict *v)
{
    struct ltn_fleet *f = ctx;
    struct ltn_fleet_verdict *o = open_slot(f, v);
    if (o != NULL) {
        struct ltn_fleet_job *job = ltn_map_get_str(&f->jobs, v->job);
        if (change == LTN_VERDICT_OPENED)
            o->counted_hours = 0;
        if (job != NULL && v->gpu_hours_lost > o->counted_hours)
            job->gpu_hours_lost += v->gpu_hours_lost - o->counted_hours;
        o->counted_hours = v->gpu_hours_lost;
        o->v = *v;
        o->heard_ns = f->now_ns;
    }
    if (change == LTN_VERDICT_CLOSED) {
        char key[LTN_FLEET_KEY_BYTES];
        size_t len = ltn_fleet_key3(key, sizeof(key), v->job, v->group, v->key);
        free(ltn_map_del(&f->open, key, len));
        keep_closed(f, v);
    }
    if (f->sink.on_verdict != NULL)
        f->sink.on_verdict(f->sink.ctx, change, notable, v);
}

int ltn_fleet_restore_verdict(struct ltn_fleet *f, const struct ltn_straggler_verdict *v,
                              uint64_t now_ns)
{
    if (v->closed_at_ns != 0) {
        keep_closed(f, v);
        return 0;
    }
    int rc = ltn_straggler_restore(f->straggler, v);
    if (rc != 0)
        return rc;
    struct ltn_fleet_verdict *o = open_slot(f, v);
    if (o == NULL)
        return -ENOMEM;
    o->v = *v;
    o->counted_hours = v->gpu_hours_lost;
    o->heard_ns = now_ns;
    return 0;
}

const struct ltn_fleet_verdict *ltn_fleet_closed(const struct ltn_fleet *f, size_t i)
{
    if (i >= f->closed_n)
        return NULL;
    return &f->closed[(f->closed_at + f->opts.max_verdicts - 1 - i) % f->opts.max_verdicts];
}

const struct ltn_fleet_verdict *ltn_fleet_proc_verdict(const struct ltn_fleet *f,
                                                       const struct ltn_fleet_proc *p)
{
    char key[LTN_FLEET_KEY_BYTES];
    if (p->job == NULL || p->group == NULL || p->replaced)
        return NULL;
    size_t len = ltn_fleet_key3(key, sizeof(key), p->job->key, p->group->name, p->key);
    const struct ltn_fleet_verdict *o = ltn_map_get(&f->open, key, len);
    if (o == NULL || strcmp(o->v.node, p->node->name) != 0)
        return NULL;
    /* 0: of an earlier run, which did not keep it */
    return o->v.incarnation == 0 || o->v.incarnation == ltn_fleet_incarnation(p) ? o : NULL;
}

const struct ltn_fleet_verdict *ltn_fleet_node_verdict(const struct ltn_fleet *f, const char *node)
{
    size_t pos = 0;
    for (const struct ltn_fleet_verdict *o; (o = ltn_map_next(&f->open, &pos)) != NULL;)
        if (strcmp(o->v.node, node) == 0)
            return o;
    return NULL;
}

/* ---- incidents ---- */

static void count_incident(struct ltn_fleet *f, const struct ltn_update_incident *i)
{
    char key[LTN_FLEET_KEY_BYTES];
    int n = snprintf(key, sizeof(key), "%s\x1f%s\x1f%s", i->severity, i->kind, i->node);
    if (n <= 0 || (size_t)n >= sizeof(key))
        return;
    struct ltn_fleet_incident_total *total = ltn_map_get_str(&f->incident_totals, key);
    if (total == NULL) {
        total = calloc(1, sizeof(*total));
        if (total == NULL || ltn_map_put_str(&f->incident_totals, key, total) != 0) {
            free(total);
            return;
        }
        (void)ltn_copy_str(total->severity, sizeof(total->severity), i->severity);
        (void)ltn_copy_str(total->kind, sizeof(total->kind), i->kind);
        (void)ltn_copy_str(total->node, sizeof(total->node), i->node);
    }
    total->count++;
}

/* Makes room by dropping the incident that changed longest ago, closed ones first. */
static void drop_oldest(struct ltn_fleet *f)
{
    struct ltn_fleet_incident *oldest = NULL;
    size_t pos = 0;
    for (struct ltn_fleet_incident *i; (i = ltn_map_next(&f->incidents, &pos)) != NULL;) {
        bool closed = i->closed_at_ns != 0, oldest_closed = oldest && oldest->closed_at_ns != 0;
        if (oldest == NULL || (closed && !oldest_closed) ||
            (closed == oldest_closed && i->last_change_ns < oldest->last_change_ns))
            oldest = i;
    }
    if (oldest == NULL)
        return;
    char key[LTN_FLEET_KEY_BYTES];
    size_t len = ltn_fleet_key2(key, sizeof(key), oldest->node, oldest->id);
    (void)ltn_map_del(&f->incidents, key, len);
    free(oldest->evidence);
    free(oldest);
}

static struct ltn_fleet_incident *incident_slot(struct ltn_fleet *f,
                                                const struct ltn_update_incident *i, bool *ret_new)
{
    char key[LTN_FLEET_KEY_BYTES];
    size_t len = ltn_fleet_key2(key, sizeof(key), i->node, i->id);
    struct ltn_fleet_incident *o = ltn_map_get(&f->incidents, key, len);
    *ret_new = o == NULL;
    if (o != NULL)
        return o;
    if (f->incidents.len >= f->opts.max_incidents)
        drop_oldest(f);
    o = calloc(1, sizeof(*o));
    if (o != NULL && ltn_map_put(&f->incidents, key, len, o) != 0) {
        free(o);
        return NULL;
    }
    return o;
}

void ltn_fleet_take_incident(struct ltn_fleet *f, const struct ltn_update_incident *i)
{
    bool is_new = false;
    if (i->id[0] == '\0')
        return;
    struct ltn_fleet_incident *o = incident_slot(f, i, &is_new);
    if (o == NULL || (!is_new && i->time_ns < o->last_change_ns))
        return; /* an older change that came late */
    if (is_new) {
        struct ltn_fleet_node *node = ltn_map_get_str(&f->nodes, i->node);
        count_incident(f, i);
        if (node != NULL)
            node->incidents++;
    }
    (void)ltn_copy_str(o->node, sizeof(o->node), i->node);
    (void)ltn_copy_str(o->id, sizeof(o->id), i->id);
    (void)ltn_copy_str(o->kind, sizeof(o->kind), i->kind);
    (void)ltn_copy_str(o->state, sizeof(o->state), i->state);
    (void)ltn_copy_str(o->severity, sizeof(o->severity), i->severity);
    (void)ltn_copy_str(o->cause, sizeof(o->cause), i->cause);
    (void)ltn_copy_str(o->job, sizeof(o->job), i->job);
    (void)ltn_copy_str(o->title, sizeof(o->title), i->title);
    if (i->evidence[0] != '\0') {
        free(o->evidence);
        o->evidence = strdup(i->evidence);
    }
    o->rank = i->rank;
    o->severity_number = i->severity_number;
    o->pid = i->pid;
    o->opened_at_ns = i->opened_at_ns != 0 ? i->opened_at_ns : i->time_ns;
    o->last_change_ns = i->time_ns;
    o->closed_at_ns = strcmp(i->state, "closed") == 0 ? i->time_ns : 0;
    o->count = i->count;
    o->explained_share = i->explained_share;
}
