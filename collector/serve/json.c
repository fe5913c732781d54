/* SPDX-License-Identifier: Apache-2.0 */
/* The fleet as JSON objects. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "serve/internal.h"

/* ---- order ---- */

void **ltn_serve_sorted(const struct ltn_map *m, int (*cmp)(const void *, const void *),
                        size_t *ret_n)
{
    size_t n = 0, pos = 0;
    *ret_n = 0;
    void **v = m->len > 0 ? calloc(m->len, sizeof(*v)) : NULL;
    if (v == NULL)
        return NULL;
    for (void *o; (o = ltn_map_next(m, &pos)) != NULL && n < m->len;)
        v[n++] = o;
    qsort(v, n, sizeof(*v), cmp);
    *ret_n = n;
    return v;
}

int ltn_serve_by_node_name(const void *a, const void *b)
{
    const struct ltn_fleet_node *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

int ltn_serve_by_job_key(const void *a, const void *b)
{
    const struct ltn_fleet_job *const *x = a, *const *y = b;
    return strcmp((*x)->key, (*y)->key);
}

int ltn_serve_by_rank(const void *a, const void *b)
{
    const struct ltn_fleet_proc *const *x = a, *const *y = b;
    if ((*x)->rank != (*y)->rank)
        return (*x)->rank < (*y)->rank ? -1 : 1;
    return (*x)->start_ns < (*y)->start_ns ? -1 : (*x)->start_ns > (*y)->start_ns;
}

/* ---- small things ---- */

static void kv_known(struct ltn_json *j, const char *key, double v)
{
    ltn_json_key(j, key);
    if (v >= 0)
        ltn_json_f64(j, v);
    else
        ltn_json_null(j);
}

static void kv_rank(struct ltn_json *j, const char *key, int32_t v)
{
    ltn_json_key(j, key);
    if (v >= 0)
        ltn_json_i64(j, v);
    else
        ltn_json_null(j);
}

static void kv_text(struct ltn_json *j, const char *key, const char *v)
{
    ltn_json_kv_str(j, key, v != NULL && v[0] != '\0' ? v : NULL);
}

static void kv_ns(struct ltn_json *j, const char *key, double ns)
{
    ltn_json_key(j, key);
    if (ns > 0 && ns < 9e18)
        ltn_json_u64(j, (uint64_t)llround(ns));
    else
        ltn_json_null(j);
}

/* ---- verdicts ---- */

static void put_verdict(struct ltn_json *j, const struct ltn_straggler_verdict *v)
{
    ltn_json_open_object(j);
    ltn_json_kv_str(j, "job", v->job);
    ltn_json_kv_str(j, "node", v->node);
    kv_rank(j, "rank", v->rank);
    ltn_json_kv_str(j, "rank_key", v->key);
    ltn_json_kv_str(j, "peer_group", v->group);
    ltn_json_kv_str(j, "state", v->closed_at_ns == 0 ? "open" : "closed");
    ltn_json_kv_str(j, "method", ltn_straggler_method_name(v->method));
    ltn_json_kv_str(j, "tier", v->tier);
    ltn_json_kv_f64(j, "effect_pct", v->effect_pct);
    ltn_json_kv_u64(j, "peers", v->peers);
    kv_ns(j, "peer_median_ns", v->peer_median_ns);
    kv_ns(j, "self_time_ns", v->self_time_ns);
    kv_known(j, "gpu_clock_ratio", v->gpu_clock);
    kv_known(j, "peer_gpu_clock_ratio", v->peer_gpu_clock);
    ltn_json_kv_str(j, "cause", v->cause);
    ltn_json_kv_str(j, "cause_detail", v->cause_detail);
    kv_known(j, "explained_share", v->explained_share);
    ltn_json_kv_f64(j, "impact_share", v->impact_share);
    ltn_json_kv_f64(j, "gpu_hours_lost", v->gpu_hours_lost);
    ltn_json_kv_u64(j, "windows", v->windows);
    ltn_json_kv_time(j, "since", "since_ns", v->since_ns);
    ltn_json_kv_time(j, "opened_at", "opened_at_ns", v->opened_at_ns);
    ltn_json_kv_time(j, "updated_at", "updated_at_ns", v->updated_at_ns);
    ltn_json_kv_time(j, "closed_at", "closed_at_ns", v->closed_at_ns);
    kv_text(j, "close_reason", v->close_reason);
    ltn_json_close_object(j);
}

static int by_cost(const void *a, const void *b)
{
    const struct ltn_fleet_verdict *const *x = a, *const *y = b;
    if ((*x)->v.impact_share != (*y)->v.impact_share)
        return (*x)->v.impact_share > (*y)->v.impact_share ? -1 : 1;
    int c = strcmp((*x)->v.job, (*y)->v.job);
    return c != 0 ? c : strcmp((*x)->v.key, (*y)->v.key);
}

void ltn_serve_stragglers(struct ltn_json *j, const struct ltn_serve *s, uint64_t since_ns)
{
    size_t n = 0;
    void **open = ltn_serve_sorted(&s->fleet->open, by_cost, &n);
    ltn_json_key(j, "stragglers");
    ltn_json_open_array(j);
    for (size_t i = 0; i < n; i++)
        put_verdict(j, &((const struct ltn_fleet_verdict *)open[i])->v);
    free(open);
    for (size_t i = 0;; i++) {
        const struct ltn_fleet_verdict *o = ltn_fleet_closed(s->fleet, i);
        if (o == NULL)
            break;
        if (o->v.closed_at_ns >= since_ns)
            put_verdict(j, &o->v);
    }
    ltn_json_close_array(j);
}

/* ---- incidents ---- */

static int newest_first(const void *a, const void *b)
{
    const struct ltn_fleet_incident *const *x = a, *const *y = b;
    if ((*x)->last_change_ns != (*y)->last_change_ns)
        return (*x)->last_change_ns > (*y)->last_change_ns ? -1 : 1;
    return strcmp((*x)->id, (*y)->id);
}

static void put_incident(struct ltn_json *j, const struct ltn_fleet_incident *i)
{
    ltn_json_open_object(j);
    ltn_json_kv_str(j, "id", i->id);
    ltn_json_kv_str(j, "node", i->node);
    kv_text(j, "job", i->job);
    kv_rank(j, "rank", i->rank);
    ltn_json_kv_u64(j, "pid", i->pid);
    kv_text(j, "kind", i->kind);
    kv_text(j, "severity", i->severity);
    ltn_json_kv_i64(j, "severity_number", i->severity_number);
    ltn_json_kv_str(j, "state", i->closed_at_ns == 0 ? "open" : "closed");
    kv_text(j, "title", i->title);
    kv_text(j, "cause", i->cause);
    kv_known(j, "explained_share", i->explained_share);
    ltn_json_kv_u64(j, "count", i->count);
    kv_text(j, "evidence_json", i->evidence); /* text of an agent, not parsed here */
    ltn_json_kv_time(j, "opened_at", "opened_at_ns", i->opened_at_ns);
    ltn_json_kv_time(j, "last_change_at", "last_change_at_ns", i->last_change_ns);
    ltn_json_kv_time(j, "closed_at", "closed_at_ns", i->closed_at_ns);
    ltn_json_close_object(j);
}

void ltn_serve_incidents(struct ltn_json *j, const struct ltn_serve *s,
                         const struct ltn_incident_query *q)
{
    size_t n = 0, shown = 0;
    void **all = ltn_serve_sorted(&s->fleet->incidents, newest_first, &n);
    bool truncated = false;
    ltn_json_key(j, "incidents");
    ltn_json_open_array(j);
    for (size_t k = 0; k < n; k++) {
        const struct ltn_fleet_incident *i = all[k];
        if ((i->closed_at_ns != 0 && i->last_change_ns < q->since_ns) ||
            (q->node != NULL && strcmp(q->node, i->node) != 0) ||
            (q->severity != NULL && strcasecmp(q->severity, i->severity) != 0))
            continue;
        truncated = shown == q->limit;
        if (truncated)
            break;
        put_incident(j, i);
        shown++;
    }
    ltn_json_close_array(j);
    ltn_json_kv_bool(j, "truncated", truncated);
    free(all);
}

/* ---- nodes ---- */

static void put_gpu(struct ltn_json *j, const struct ltn_fleet_gpu *g)
{
    ltn_json_open_object(j);
    ltn_json_kv_str(j, "uuid", g->uuid);
    kv_text(j, "model", g->model);
    kv_known(j, "utilization", g->utilization);
    kv_known(j, "memory_used_bytes", g->memory_used);
    kv_known(j, "memory_total_bytes", g->memory_total);
    kv_known(j, "power_w", g->power_w);
    kv_known(j, "temperature_c", g->temperature_c);
    kv_known(j, "sm_clock_hz", g->clock_hz);
    kv_known(j, "sm_clock_max_hz", g->clock_max_hz);
    ltn_json_key(j, "throttle_reasons");
    if (g->has_reasons)
        ltn_json_u64(j, g->clock_reasons);
    else
        ltn_json_null(j);
    kv_known(j, "pcie_width", g->pcie_width);
    kv_known(j, "pcie_width_max", g->pcie_width_max);
    kv_known(j, "pcie_generation", g->pcie_generation);
    kv_known(j, "pcie_generation_max", g->pcie_generation_max);
    kv_known(j, "ecc_uncorrected", g->errors_uncorrected);
    ltn_json_close_object(j);
}

static void put_health(struct ltn_json *j, const struct ltn_fleet_node *n)
{
    const struct ltn_update_health *h = &n->health;
    ltn_json_key(j, "agent");
    ltn_json_open_object(j);
    kv_text(j, "version", n->version);
    kv_text(j, "instance", n->instance);
    ltn_json_kv_u64(j, "window_sequence", n->sequence);
    ltn_json_kv_u64(j, "windows_missing", n->gaps);
    kv_ns(j, "window_ns", (double)n->agent_window_ns);
    ltn_json_kv_bool(j, "window_differs", n->length_differs);
    ltn_json_kv_u64(j, "calls_seen", h->calls);
    ltn_json_kv_u64(j, "records_emitted", h->records_emitted);
    ltn_json_kv_u64(j, "records_read", h->records_read);
    ltn_json_kv_u64(j, "traced_processes", h->processes);
    ltn_json_kv_u64(j, "probes", h->probes);
    ltn_json_kv_u64(j, "map_bytes", h->map_bytes);
    ltn_json_kv_u64(j, "rss_bytes", h->rss_bytes);
    ltn_json_kv_f64(j, "cpu_seconds", h->cpu_seconds);
    ltn_json_key(j, "drops");
    ltn_json_open_object(j);
    for (size_t i = 0; i < n->drop_count; i++)
        ltn_json_kv_u64(j, n->drops[i].reason, n->drops[i].count);
    ltn_json_close_object(j);
    ltn_json_close_object(j);
}

static void put_process(struct ltn_json *j, const struct ltn_fleet_proc *p)
{
    ltn_json_open_object(j);
    ltn_json_kv_u64(j, "pid", p->pid);
    ltn_json_kv_str(j, "comm", p->comm);
    ltn_json_kv_str(j, "job", p->job != NULL ? p->job->key : NULL);
    kv_rank(j, "rank", p->rank);
    kv_text(j, "gpu_uuid", p->gpu_uuid);
    ltn_json_kv_bool(j, "replaced", p->replaced);
    ltn_json_kv_time(j, "started_at", "started_at_ns", p->start_ns);
    ltn_json_kv_time(j, "last_seen", "last_seen_ns", p->last_seen_ns);
    ltn_json_close_object(j);
}

/* Measured over the node's control stream, else what its time stamps allow to say. */
static void put_clock(struct ltn_json *j, const struct ltn_serve *s, const struct ltn_fleet_node *n)
{
    struct ltn_query_node known;
    bool attached = ltn_query_hub_node(s->hub, n->name, &known);
    bool measured = attached && known.has_clock;
    ltn_json_kv_bool(j, "attached", attached);
    ltn_json_kv_time(j, "attached_at", "attached_at_ns", known.attached_unix_ns);
    ltn_json_kv_i64(j, "clock_offset_ns", measured ? known.clock_offset_ns : n->clock_offset_ns);
    ltn_json_kv_u64(j, "clock_offset_uncertainty_ns",
                    measured ? known.clock_uncertainty_ns : 3 * s->fleet->opts.window_ns);
    ltn_json_kv_bool(j, "clock_offset_measured", measured);
}

void ltn_serve_node(struct ltn_json *j, const struct ltn_serve *s, const struct ltn_fleet_node *n,
                    bool full, uint64_t now_ns)
{
    ltn_json_open_object(j);
    ltn_json_kv_str(j, "node", n->name);
    kv_text(j, "cluster", n->cluster);
    ltn_json_kv_bool(j, "up", ltn_fleet_node_up(s->fleet, n, now_ns));
    ltn_json_kv_time(j, "first_seen", "first_seen_ns", n->first_seen_ns);
    ltn_json_kv_time(j, "last_seen", "last_seen_ns", n->last_seen_ns);
    ltn_json_kv_u64(j, "processes_count", n->process_count);
    ltn_json_kv_u64(j, "gpus_count", n->gpu_count);
    ltn_json_kv_u64(j, "incidents_count", n->incidents);
    put_clock(j, s, n);
    put_health(j, n);
    ltn_json_key(j, "gpus");
    ltn_json_open_array(j);
    for (size_t i = 0; i < n->gpu_count; i++)
        put_gpu(j, &n->gpus[i]);
    ltn_json_close_array(j);
    if (full) {
        size_t pos = 0;
        ltn_json_key(j, "processes");
        ltn_json_open_array(j);
        for (const struct ltn_fleet_proc *p; (p = ltn_map_next(&s->fleet->procs, &pos)) != NULL;)
            if (p->node == n)
                put_process(j, p);
        ltn_json_close_array(j);
    }
    ltn_json_close_object(j);
}

/* ---- jobs ---- */

static void put_past(struct ltn_json *j, const struct ltn_fleet_proc *p, size_t windows)
{
    ltn_json_key(j, "windows");
    ltn_json_open_array(j);
    for (size_t i = windows < LTN_FLEET_HISTORY ? windows : LTN_FLEET_HISTORY; i-- > 0;) {
        const struct ltn_fleet_past *w = ltn_fleet_past(p, i);
        if (w == NULL)
            continue;
        ltn_json_open_object(j);
        ltn_json_kv_time(j, "end", "end_ns", w->end_ns);
        ltn_json_kv_u64(j, "slot", w->slot);
        kv_ns(j, "step_time_ns", (double)w->step_ns);
        kv_ns(j, "self_time_ns", (double)w->self_ns);
        kv_known(j, "self_time_ratio", w->ratio > 0 ? (double)w->ratio : -1);
        ltn_json_kv_f64(j, "coverage", (double)w->coverage);
        ltn_json_close_object(j);
    }
    ltn_json_close_array(j);
}

static void put_split(struct ltn_json *j, const struct ltn_straggler_member *m)
{
    ltn_json_key(j, "split_ns");
    ltn_json_open_object(j);
    for (size_t p = 0; p < LTN_PARTS; p++)
        if (m->part_ns[p] > 0)
            kv_ns(j, ltn_part_name((enum ltn_part)p), m->part_ns[p]);
    ltn_json_close_object(j);
}

static void put_rank(struct ltn_json *j, const struct ltn_serve *s, const struct ltn_fleet_proc *p,
                     size_t windows)
{
    const struct ltn_fleet_window *w = ltn_fleet_newest(p);
    const struct ltn_fleet_verdict *v = ltn_fleet_proc_verdict(s->fleet, p);
    ltn_json_open_object(j);
    kv_rank(j, "rank", p->rank);
    ltn_json_kv_str(j, "rank_key", p->key);
    ltn_json_kv_str(j, "node", p->node->name);
    ltn_json_kv_u64(j, "pid", p->pid);
    kv_text(j, "gpu_uuid", p->gpu_uuid);
    kv_rank(j, "local_rank", p->local_rank);
    kv_rank(j, "role", p->role);
    ltn_json_kv_str(j, "peer_group", p->group != NULL ? p->group->name : NULL);
    ltn_json_kv_u64(j, "steps_total", p->steps_total);
    if (w != NULL) {
        kv_ns(j, "step_time_ns", w->member.step_ns);
        kv_ns(j, "self_time_ns", w->member.self_ns);
        kv_ns(j, "peer_wait_ns", w->member.peer_wait_ns);
        double ratio = -1;
        for (size_t i = 0; i < 3 && ratio <= 0; i++) {
            const struct ltn_fleet_past *past = ltn_fleet_past(p, i);
            ratio = past != NULL ? (double)past->ratio : 0;
        }
        kv_known(j, "self_time_ratio", ratio > 0 ? ratio : -1);
        ltn_json_kv_f64(j, "coverage", w->member.coverage);
        kv_known(j, "gpu_clock_ratio", w->member.gpu_clock);
        ltn_json_kv_u64(j, "gpu_throttle_reasons", w->member.gpu_throttle);
        put_split(j, &w->member);
    }
    ltn_json_key(j, "verdict");
    if (v != NULL)
        put_verdict(j, &v->v);
    else
        ltn_json_null(j);
    put_past(j, p, windows);
    ltn_json_close_object(j);
}

static void put_group(struct ltn_json *j, const struct ltn_fleet_group *g)
{
    ltn_json_open_object(j);
    ltn_json_kv_str(j, "name", g->name);
    kv_rank(j, "role", g->role);
    ltn_json_kv_i64(j, "size", g->size);
    ltn_json_kv_u64(j, "members", g->n);
    ltn_json_kv_u64(j, "judged", g->status.used);
    ltn_json_kv_u64(j, "low_coverage", g->status.low_coverage);
    ltn_json_kv_str(j, "state", ltn_straggler_state_name(g->status.state));
    kv_text(j, "note", g->status.note);
    ltn_json_kv_f64(j, "effect_pct", g->status.effect_pct);
    kv_ns(j, "step_time_ns", g->step_ns);
    kv_ns(j, "self_time_median_ns", g->self_median_ns);
    ltn_json_kv_time(j, "judged_at", "judged_at_ns", g->scored_ns);
    ltn_json_close_object(j);
}

static size_t job_open(const struct ltn_serve *s, const struct ltn_fleet_job *job)
{
    size_t n = 0, pos = 0;
    for (const struct ltn_fleet_verdict *o; (o = ltn_map_next(&s->fleet->open, &pos)) != NULL;)
        n += strcmp(o->v.job, job->key) == 0 ? 1 : 0;
    return n;
}

void ltn_serve_job(struct ltn_json *j, const struct ltn_serve *s, const struct ltn_fleet_job *job,
                   const struct ltn_job_query *q, uint64_t now_ns)
{
    double step_ns = 0;
    size_t pos = 0, replaced = 0, ranks = ltn_fleet_job_ranks(job, &replaced);
    for (const struct ltn_fleet_group *g; (g = ltn_map_next(&job->groups, &pos)) != NULL;)
        step_ns = g->step_ns > step_ns ? g->step_ns : step_ns;
    ltn_json_open_object(j);
    ltn_json_kv_str(j, "job", job->key);
    ltn_json_kv_bool(j, "running", now_ns < job->last_seen_ns + 3 * s->fleet->opts.window_ns);
    kv_rank(j, "world_size", job->world_size > 0 ? job->world_size : -1);
    ltn_json_kv_u64(j, "ranks_count", ranks);
    ltn_json_kv_u64(j, "ranks_replaced", replaced);
    kv_known(j, "coverage", job->world_size > 0 ? (double)ranks / (double)job->world_size : -1);
    kv_ns(j, "step_time_ns", step_ns);
    ltn_json_kv_u64(j, "stragglers_open", job_open(s, job));
    ltn_json_kv_f64(j, "gpu_hours_lost", job->gpu_hours_lost);
    ltn_json_kv_time(j, "first_seen", "first_seen_ns", job->first_seen_ns);
    ltn_json_kv_time(j, "last_seen", "last_seen_ns", job->last_seen_ns);
    ltn_json_key(j, "groups");
    ltn_json_open_array(j);
    pos = 0;
    for (const struct ltn_fleet_group *g; (g = ltn_map_next(&job->groups, &pos)) != NULL;)
        put_group(j, g);
    ltn_json_close_array(j);
    if (q->ranks) {
        size_t n = 0;
        void **procs = ltn_serve_sorted(&job->procs, ltn_serve_by_rank, &n);
        ltn_json_key(j, "ranks");
        ltn_json_open_array(j);
        for (size_t i = 0; i < n; i++) {
            const struct ltn_fleet_proc *p = procs[i];
            if (!p->replaced && (q->rank_key == NULL || strcmp(q->rank_key, p->key) == 0))
                put_rank(j, s, p, q->windows);
        }
        ltn_json_close_array(j);
        free(procs);
    }
    ltn_json_close_object(j);
}

/* ---- overview ---- */

static const struct ltn_fleet_incident *worst_incident(const struct ltn_serve *s)
{
    const struct ltn_fleet_incident *worst = NULL;
    size_t pos = 0;
    for (const struct ltn_fleet_incident *i;
         (i = ltn_map_next(&s->fleet->incidents, &pos)) != NULL;) {
        if (i->closed_at_ns != 0)
            continue;
        if (worst == NULL || i->severity_number > worst->severity_number ||
            (i->severity_number == worst->severity_number &&
             i->last_change_ns > worst->last_change_ns))
            worst = i;
    }
    return worst;
}

void ltn_serve_overview(struct ltn_json *j, const struct ltn_serve *s, uint64_t now_ns)
{
    size_t up = 0, gpus = 0, ranks = 0, open_incidents = 0, pos = 0;
    double lost = 0;
    for (const struct ltn_fleet_node *n; (n = ltn_map_next(&s->fleet->nodes, &pos)) != NULL;) {
        up += ltn_fleet_node_up(s->fleet, n, now_ns) ? 1 : 0;
        gpus += n->gpu_count;
    }
    pos = 0;
    for (const struct ltn_fleet_job *o; (o = ltn_map_next(&s->fleet->jobs, &pos)) != NULL;) {
        ranks += ltn_fleet_job_ranks(o, NULL);
        lost += o->gpu_hours_lost;
    }
    pos = 0;
    for (const struct ltn_fleet_incident *i;
         (i = ltn_map_next(&s->fleet->incidents, &pos)) != NULL;)
        open_incidents += i->closed_at_ns == 0 ? 1 : 0;
    const struct ltn_fleet_incident *worst = worst_incident(s);
    char reasons[LTN_READY_REASONS][192];
    size_t bad = ltn_serve_not_ready(s, reasons);
    ltn_json_kv_str(j, "version", LTN_VERSION);
    ltn_json_kv_time(j, "started_at", "started_at_ns", s->started_ns);
    ltn_json_kv_time(j, "now", "now_ns", now_ns);
    ltn_json_kv_u64(j, "window_ns", s->fleet->opts.window_ns);
    ltn_json_kv_bool(j, "ready", bad == 0);
    ltn_json_key(j, "not_ready");
    ltn_json_open_array(j);
    for (size_t i = 0; i < bad; i++)
        ltn_json_str(j, reasons[i]);
    ltn_json_close_array(j);
    ltn_json_kv_u64(j, "nodes", s->fleet->nodes.len);
    ltn_json_kv_u64(j, "nodes_up", up);
    ltn_json_kv_u64(j, "gpus", gpus);
    ltn_json_kv_u64(j, "processes", s->fleet->procs.len);
    ltn_json_kv_u64(j, "jobs", s->fleet->jobs.len);
    ltn_json_kv_u64(j, "ranks", ranks);
    ltn_json_kv_u64(j, "stragglers_open", s->fleet->open.len);
    struct ltn_fleet_outcome outcome;
    ltn_fleet_outcome(s->fleet, &outcome);
    ltn_json_kv_str(j, "verdict_state", outcome.state);
    kv_text(j, "verdict_reason", outcome.reason);
    ltn_json_kv_u64(j, "ranks_judged", outcome.judged);
    ltn_json_kv_u64(j, "incidents_open", open_incidents);
    ltn_json_kv_f64(j, "gpu_hours_lost", lost);
    ltn_json_key(j, "worst_incident");
    if (worst != NULL)
        put_incident(j, worst);
    else
        ltn_json_null(j);
}

/* ---- single objects for others in this folder ---- */

void ltn_serve_verdict(struct ltn_json *j, const struct ltn_straggler_verdict *v)
{
    put_verdict(j, v);
}

void ltn_serve_incident(struct ltn_json *j, const struct ltn_fleet_incident *i)
{
    put_incident(j, i);
}
