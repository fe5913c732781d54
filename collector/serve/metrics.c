/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The exposition: the fleet, the ops, the collector itself, then what clients sent. Labels name
 * nodes, jobs, ranks, ops and causes; never a process id, step or stack. A family holds at most
 * MAX_SAMPLES samples; what does not fit is counted in one with the label
 * otel_metric_overflow="true".
 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "prom/accept.h"
#include "prom/hist_state.h"
#include "serve/internal.h"

#define MAX_SAMPLES 100000

/* name, type, unit, help */
#define OWN_FAMILIES(X)                                                                            \
    X(lanterne_node_up, GAUGE, "", "1 while the node was heard of within three windows.")          \
    X(lanterne_node_last_seen_seconds, GAUGE, "seconds", "Seconds since the node's last push.")    \
    X(lanterne_node_windows_missing_total, COUNTER, "",                                            \
      "Windows of the node that never came, by their sequence.")                                   \
    X(lanterne_rank_self_time_ratio, GAUGE, "",                                                    \
      "Self time of a rank over the median of its peers, newest judged window.")                   \
    X(lanterne_rank_self_time_seconds, GAUGE, "seconds",                                           \
      "Step minus time blocked on peers, newest window.")                                          \
    X(lanterne_rank_peer_wait_seconds, GAUGE, "seconds",                                           \
      "Time of a step blocked on peers, newest window.")                                           \
    X(lanterne_rank_step_seconds, GAUGE, "seconds", "Step time, newest window.")                   \
    X(lanterne_straggler, GAUGE, "", "1 while a verdict is open.")                                 \
    X(lanterne_straggler_effect_ratio, GAUGE, "",                                                  \
      "How much slower than its reference a straggler is (0.5: by half).")                         \
    X(lanterne_job_gpu_hours_lost_total, COUNTER, "",                                              \
      "GPU hours that peers spent waiting for stragglers.")                                        \
    X(lanterne_job_ranks, GAUGE, "", "Ranks of a job that send windows.")                          \
    X(lanterne_incidents_total, COUNTER, "", "Incidents opened, by severity, kind and node.")      \
    X(gpu_cuda_operation_count_total, COUNTER, "", "Calls of traced CUDA functions.")              \
    X(gpu_cuda_operation_errors_total, COUNTER, "", "Calls that failed.")                          \
    X(gpu_cuda_operation_io_bytes_total, COUNTER, "bytes", "Bytes moved or allocated.")            \
    X(gpu_cuda_operation_duration_seconds, HISTOGRAM, "seconds", "Time in the call.")              \
    X(gpu_nccl_operation_count_total, COUNTER, "", "Calls of traced NCCL functions.")              \
    X(gpu_nccl_operation_errors_total, COUNTER, "", "Calls that failed.")                          \
    X(gpu_nccl_operation_io_bytes_total, COUNTER, "bytes", "Bytes of the calls.")                  \
    X(gpu_nccl_operation_duration_seconds, HISTOGRAM, "seconds", "Time in the call.")              \
    X(lanterne_collector_info, GAUGE, "", "1, with the version.")                                  \
    X(lanterne_collector_start_time_seconds, GAUGE, "seconds", "Start, Unix time.")                \
    X(lanterne_collector_points_received_total, COUNTER, "", "Data points accepted.")              \
    X(lanterne_collector_logs_received_total, COUNTER, "", "Log records accepted.")                \
    X(lanterne_collector_rejected_total, COUNTER, "", "Requests and points refused, by reason.")   \
    X(lanterne_collector_requests_total, COUNTER, "", "Export requests, by outcome.")              \
    X(lanterne_collector_decode_seconds_total, COUNTER, "seconds", "Time spent decoding.")         \
    X(lanterne_collector_queue_bytes, GAUGE, "bytes", "Decoded requests waiting for the commit.")  \
    X(lanterne_collector_queue_items, GAUGE, "", "Requests waiting for the commit.")               \
    X(lanterne_collector_store_commits_total, COUNTER, "", "Transactions committed.")              \
    X(lanterne_collector_store_failures_total, COUNTER, "", "Transactions that failed.")           \
    X(lanterne_collector_store_commit_seconds_total, COUNTER, "seconds", "Time in transactions.")  \
    X(lanterne_collector_store_bytes, GAUGE, "bytes", "Database and its log on disk.")             \
    X(lanterne_collector_store_writable, GAUGE, "", "0 while the database cannot be written.")     \
    X(lanterne_collector_logs_total, COUNTER, "", "Log records, by what became of them.")          \
    X(lanterne_collector_log_bytes, GAUGE, "bytes", "Log records that are kept.")                  \
    X(lanterne_collector_fleet_total, COUNTER, "", "Windows and groups, by what became of them.")  \
    X(lanterne_collector_alerts, GAUGE, "", "Alerts in the table, by state.")                      \
    X(lanterne_collector_alerts_lost_total, COUNTER, "",                                           \
      "Alerts that could not be kept until everybody had them, by reason.")                        \
    X(lanterne_collector_alert_requests_total, COUNTER, "",                                        \
      "Requests to alert targets, by target and outcome.")                                         \
    X(lanterne_collector_alert_target_up, GAUGE, "", "0 when the last request to it failed.")      \
    X(lanterne_collector_alerts_waiting, GAUGE, "",                                                \
      "Alerts whose newest state a target does not have yet.")                                     \
    X(lanterne_collector_series, GAUGE, "", "Series of clients exposed here.")                     \
    X(lanterne_collector_series_families, GAUGE, "", "Families of clients, and reserved ones.")    \
    X(lanterne_collector_series_bytes, GAUGE, "bytes", "Memory of series, about.")                 \
    X(lanterne_collector_series_refused_total, COUNTER, "", "Points not exposed, by reason.")      \
    X(lanterne_collector_series_points_total, COUNTER, "",                                         \
      "Points of series, by what became of them.")                                                 \
    X(lanterne_collector_scrapes_total, COUNTER, "", "Answers to /metrics, by outcome.")           \
    X(lanterne_collector_scrapes_running, GAUGE, "", "Answers to /metrics being made now.")        \
    X(lanterne_collector_scrape_seconds_total, COUNTER, "seconds",                                 \
      "Time spent making answers to /metrics.")                                                    \
    X(lanterne_collector_scrape_bytes_total, COUNTER, "bytes",                                     \
      "Answers to /metrics before compression.")                                                   \
    X(lanterne_node_clock_offset_seconds, GAUGE, "seconds",                                        \
      "Clock of the node minus the collector's, measured over its control stream.")                \
    X(lanterne_collector_control_streams, GAUGE, "", "Control streams of agents open now.")        \
    X(lanterne_collector_control_total, COUNTER, "",                                               \
      "Events on control streams and of questions to the nodes, by kind.")                         \
    X(lanterne_collector_queries_running, GAUGE, "", "Questions to the nodes running now.")        \
    X(lanterne_collector_query_bytes, GAUGE, "bytes", "Rows held for questions now.")              \
    X(lanterne_collector_http_total, COUNTER, "", "HTTP events, by server and kind.")              \
    X(lanterne_collector_http_connections, GAUGE, "", "Connections open now.")                     \
    X(lanterne_collector_access_reloads_total, COUNTER, "",                                        \
      "Times that tokens or certificates were read again, by outcome.")                            \
    X(lanterne_collector_access_tokens, GAUGE, "", "Tokens in force.")                             \
    X(lanterne_collector_certificate_expiry_timestamp_seconds, GAUGE, "seconds",                   \
      "When the collector's certificate ends, Unix time.")

enum own {
#define OWN_ENUM(name, type, unit, help) OWN_##name,
    OWN_FAMILIES(OWN_ENUM)
#undef OWN_ENUM
        OWN_COUNT
};

static const struct {
    const char *name;
    enum ltn_prom_type type;
    const char *unit, *help;
} own[OWN_COUNT] = {
#define OWN_ROW(name, type, unit, help) {#name, LTN_PROM_##type, unit, help},
    OWN_FAMILIES(OWN_ROW)
#undef OWN_ROW
};

int ltn_serve_reserve(struct ltn_series *series)
{
    for (size_t i = 0; i < OWN_COUNT; i++) {
        int rc = ltn_series_reserve(series, own[i].name, own[i].type);
        if (rc != 0)
            return rc;
    }
    return 0;
}

struct expo {
    struct ltn_prom p;
    struct ltn_serve *s;
    uint64_t now_ns;
    size_t left;     /* samples the open family may still have */
    size_t overflow; /* samples that did not fit */
    /* of a part that is made in several pieces */
    int step;
    size_t at;            /* in nodes */
    struct ltn_buf nodes; /* names of the nodes at the begin, each with its end */
};

/* Bytes of a piece, about. */
#define PIECE_BYTES ((size_t)48 * 1024)

/* What did not fit into the open family. */
static void close_family(struct expo *e)
{
    if (e->overflow > 0) {
        struct ltn_prom_label l = {"otel_metric_overflow", "true"};
        ltn_prom_sample(&e->p, &l, 1, (double)e->overflow);
    }
    e->overflow = 0;
}

static void family(struct expo *e, enum own f)
{
    close_family(e);
    e->left = MAX_SAMPLES;
    ltn_prom_family(&e->p, own[f].name, own[f].type, own[f].unit, own[f].help);
}

static bool room(struct expo *e)
{
    if (e->left == 0) {
        e->overflow++;
        return false;
    }
    e->left--;
    return true;
}

static void sample(struct expo *e, const struct ltn_prom_label *l, size_t n, double v)
{
    if (room(e))
        ltn_prom_sample(&e->p, l, n, v);
}

static void one(struct expo *e, enum own f, double v)
{
    family(e, f);
    sample(e, NULL, 0, v);
}

/* ---- nodes ---- */

static void put_nodes(struct expo *e)
{
    static const enum own families[] = {OWN_lanterne_node_up, OWN_lanterne_node_last_seen_seconds,
                                        OWN_lanterne_node_windows_missing_total};
    for (size_t k = 0; k < LTN_ARRAY_SIZE(families); k++) {
        size_t pos = 0;
        family(e, families[k]);
        for (const struct ltn_fleet_node *n;
             (n = ltn_map_next(&e->s->fleet->nodes, &pos)) != NULL;) {
            struct ltn_prom_label l[] = {{"node", n->name}, {"cluster", n->cluster}};
            double age =
                e->now_ns > n->last_seen_ns ? (double)(e->now_ns - n->last_seen_ns) / 1e9 : 0;
            double v = k == 0 ? ltn_fleet_node_up(e->s->fleet, n, e->now_ns)
                              : (k == 1 ? age : (double)n->gaps);
            sample(e, l, n->cluster[0] != '\0' ? 2 : 1, v);
        }
    }
}

/* ---- ranks and jobs ---- */

static double rank_value(enum own f, const struct ltn_fleet_proc *p,
                         const struct ltn_fleet_window *w)
{
    if (f == OWN_lanterne_rank_self_time_seconds)
        return w->member.self_ns / 1e9;
    if (f == OWN_lanterne_rank_peer_wait_seconds)
        return w->member.peer_wait_ns / 1e9;
    if (f == OWN_lanterne_rank_step_seconds)
        return w->member.step_ns / 1e9;
    for (size_t i = 0; i < 3; i++) {
        const struct ltn_fleet_past *past = ltn_fleet_past(p, i);
        if (past != NULL && past->ratio > 0)
            return (double)past->ratio;
    }
    return 0;
}

/* A rank is exposed while it is the one in its place and was heard of lately. */
static bool shown(const struct expo *e, const struct ltn_fleet_proc *p)
{
    return p->group != NULL && p->rank >= 0 &&
           e->now_ns < p->last_window_ns + 3 * e->s->fleet->opts.window_ns;
}

/* Of several objects with the same labels the newest is exposed; the others are counted. */
struct picks {
    struct ltn_map newest; /* labels -> object */
};

static size_t pick_key(char *out, size_t size, const struct ltn_prom_label *l, size_t n)
{
    size_t len = 0;
    for (size_t i = 0; i < n; i++) {
        size_t k = strnlen(l[i].value, size);
        if (len + k + 1 >= size)
            break;
        memcpy(out + len, l[i].value, k);
        len += k;
        out[len++] = '\x1f';
    }
    return len;
}

/* What has these labels so far, NULL for nothing. */
static const void *picked(const struct picks *p, const struct ltn_prom_label *l, size_t n)
{
    char key[1024];
    size_t len = pick_key(key, sizeof(key), l, n);
    return ltn_map_get(&p->newest, key, len);
}

static void pick(struct picks *p, const struct ltn_prom_label *l, size_t n, const void *o)
{
    char key[1024];
    size_t len = pick_key(key, sizeof(key), l, n);
    union {
        const void *in;
        void *out;
    } v = {o};
    (void)!ltn_map_put(&p->newest, key, len, v.out); /* without memory nothing is exposed of it */
}

#define RANK_LABELS(p)                                                                             \
    {                                                                                              \
        {"job", (p)->job->key}, {"node", (p)->node->name},                                         \
        {                                                                                          \
            "rank", (p)->key                                                                       \
        }                                                                                          \
    }
#define VERDICT_LABELS(o)                                                                          \
    {                                                                                              \
        {"cause", (o)->v.cause}, {"job", (o)->v.job}, {"node", (o)->v.node},                       \
        {                                                                                          \
            "rank", (o)->v.key                                                                     \
        }                                                                                          \
    }

static void pick_ranks(struct expo *e, struct picks *picks)
{
    size_t pos = 0;
    ltn_map_init(&picks->newest, e->s->fleet->opts.max_processes);
    for (const struct ltn_fleet_proc *p; (p = ltn_map_next(&e->s->fleet->procs, &pos)) != NULL;) {
        if (!shown(e, p))
            continue;
        struct ltn_prom_label l[] = RANK_LABELS(p);
        const struct ltn_fleet_proc *other = picked(picks, l, 3);
        e->s->fleet->counters.samples_duplicate += other != NULL && e->step == 0 ? 1 : 0;
        if (other == NULL || p->last_window_ns >= other->last_window_ns)
            pick(picks, l, 3, p);
    }
}

static void pick_verdicts(struct expo *e, struct picks *picks)
{
    size_t pos = 0;
    ltn_map_init(&picks->newest, e->s->fleet->opts.max_processes);
    for (const struct ltn_fleet_verdict *o; (o = ltn_map_next(&e->s->fleet->open, &pos)) != NULL;) {
        struct ltn_prom_label l[] = VERDICT_LABELS(o);
        const struct ltn_fleet_verdict *other = picked(picks, l, 4);
        e->s->fleet->counters.samples_duplicate += other != NULL ? 1 : 0;
        if (other == NULL || o->v.updated_at_ns >= other->v.updated_at_ns)
            pick(picks, l, 4, o);
    }
}

/* One family a piece. */
static bool put_ranks(struct expo *e)
{
    static const enum own families[] = {
        OWN_lanterne_rank_self_time_ratio, OWN_lanterne_rank_self_time_seconds,
        OWN_lanterne_rank_peer_wait_seconds, OWN_lanterne_rank_step_seconds};
    const enum own f = families[e->step];
    struct picks picks;
    size_t pos = 0;
    pick_ranks(e, &picks);
    family(e, f);
    for (const struct ltn_fleet_proc *p; (p = ltn_map_next(&picks.newest, &pos)) != NULL;) {
        const struct ltn_fleet_window *w = ltn_fleet_newest(p);
        double v = w != NULL ? rank_value(f, p, w) : 0;
        if (w == NULL || (e->step == 0 && v <= 0))
            continue;
        struct ltn_prom_label l[] = RANK_LABELS(p);
        sample(e, l, 3, v);
    }
    ltn_map_done(&picks.newest, NULL);
    return ++e->step < (int)LTN_ARRAY_SIZE(families);
}

static void put_verdicts(struct expo *e)
{
    struct picks picks;
    pick_verdicts(e, &picks);
    for (int k = 0; k < 2; k++) {
        size_t pos = 0;
        family(e, k == 0 ? OWN_lanterne_straggler : OWN_lanterne_straggler_effect_ratio);
        for (const struct ltn_fleet_verdict *o; (o = ltn_map_next(&picks.newest, &pos)) != NULL;) {
            struct ltn_prom_label l[] = VERDICT_LABELS(o);
            sample(e, l, 4, k == 0 ? 1 : o->v.effect_pct / 100);
        }
    }
    ltn_map_done(&picks.newest, NULL);
}

static void put_jobs(struct expo *e)
{
    for (int k = 0; k < 2; k++) {
        size_t pos = 0;
        family(e, k == 0 ? OWN_lanterne_job_gpu_hours_lost_total : OWN_lanterne_job_ranks);
        for (const struct ltn_fleet_job *o; (o = ltn_map_next(&e->s->fleet->jobs, &pos)) != NULL;) {
            struct ltn_prom_label l[] = {{"job", o->key}};
            size_t ranks = 0, at = 0;
            for (const struct ltn_fleet_proc *p; (p = ltn_map_next(&o->procs, &at)) != NULL;)
                ranks += shown(e, p) ? 1 : 0;
            sample(e, l, 1, k == 0 ? o->gpu_hours_lost : (double)ranks);
        }
    }
}

static void put_incidents(struct expo *e)
{
    size_t pos = 0;
    family(e, OWN_lanterne_incidents_total);
    for (const struct ltn_fleet_incident_total *t;
         (t = ltn_map_next(&e->s->fleet->incident_totals, &pos)) != NULL;) {
        struct ltn_prom_label l[] = {
            {"kind", t->kind}, {"node", t->node}, {"severity", t->severity}};
        sample(e, l, 3, (double)t->count);
    }
}

/* ---- ops ---- */

enum op_value { OP_COUNT, OP_ERRORS, OP_IO, OP_DURATION };

static void put_op(struct expo *e, const struct ltn_fleet_node *n, const struct ltn_fleet_op *o,
                   enum op_value what)
{
    struct ltn_prom_label l[] = {{"node", n->name}, {"op", o->op}, {"source", o->source}};
    if (what == OP_DURATION) {
        if (o->has_duration && room(e))
            ltn_prom_histogram(&e->p, l, 3,
                               &(struct ltn_prom_buckets){ltn_duration_bounds, o->buckets,
                                                          LTN_DURATION_BOUNDS, o->duration_s});
        return;
    }
    uint64_t v = what == OP_COUNT ? o->calls : (what == OP_ERRORS ? o->errors : o->bytes);
    if (what != OP_IO || v > 0)
        sample(e, l, 3, (double)v);
}

/* As many nodes a piece as fit; by name, for nodes may come and go between pieces. */
static bool put_ops(struct expo *e, bool nccl)
{
    const enum own first =
        nccl ? OWN_gpu_nccl_operation_count_total : OWN_gpu_cuda_operation_count_total;
    if (e->at == 0)
        family(e, (enum own)((int)first + e->step));
    while (e->at < e->nodes.len && e->p.out->len < PIECE_BYTES) {
        const char *name = e->nodes.data + e->at;
        const struct ltn_fleet_node *n = ltn_map_get_str(&e->s->fleet->nodes, name);
        size_t pos = 0;
        e->at += strlen(name) + 1;
        for (const struct ltn_fleet_op *o; n != NULL && (o = ltn_map_next(&n->ops, &pos)) != NULL;)
            if ((strcmp(o->source, "nccl") == 0) == nccl)
                put_op(e, n, o, (enum op_value)e->step);
    }
    if (e->at < e->nodes.len)
        return true;
    e->at = 0;
    return ++e->step <= OP_DURATION;
}

static bool put_cuda_ops(struct expo *e)
{
    return put_ops(e, false);
}

static bool put_nccl_ops(struct expo *e)
{
    return put_ops(e, true);
}

/* ---- the collector itself ---- */

static void labelled(struct expo *e, const char *name, const char *value, uint64_t v)
{
    struct ltn_prom_label l = {name, value};
    sample(e, &l, 1, (double)v);
}

static void put_ingest(struct expo *e)
{
    struct ltn_ingest_stats in;
    ltn_serve_ingest_stats(e->s, &in);
    one(e, OWN_lanterne_collector_points_received_total, (double)in.points_received);
    one(e, OWN_lanterne_collector_logs_received_total, (double)in.logs_received);
    family(e, OWN_lanterne_collector_rejected_total);
    labelled(e, "reason", "malformed", in.rejected_malformed);
    labelled(e, "reason", "points", in.rejected_points);
    labelled(e, "reason", "busy", in.rejected_busy);
    labelled(e, "reason", "disk", in.rejected_disk);
    labelled(e, "reason", "draining", in.rejected_draining);
    labelled(e, "reason", "traces", in.spans_refused);
    family(e, OWN_lanterne_collector_requests_total);
    labelled(e, "outcome", "received", in.requests);
    labelled(e, "outcome", "acknowledged", in.acknowledged);
    one(e, OWN_lanterne_collector_decode_seconds_total, in.decode_seconds);
}

static void put_store(struct expo *e)
{
    struct ltn_store_stats st;
    ltn_store_stats(e->s->store, &st);
    one(e, OWN_lanterne_collector_queue_bytes, (double)st.queue_bytes);
    one(e, OWN_lanterne_collector_queue_items, (double)st.queue_items);
    one(e, OWN_lanterne_collector_store_commits_total, (double)st.commits);
    one(e, OWN_lanterne_collector_store_failures_total, (double)st.failed_commits);
    one(e, OWN_lanterne_collector_store_commit_seconds_total, st.commit_seconds);
    one(e, OWN_lanterne_collector_store_bytes, (double)st.file_bytes);
    one(e, OWN_lanterne_collector_store_writable, st.writable ? 1 : 0);
    family(e, OWN_lanterne_collector_logs_total);
    labelled(e, "kind", "stored", st.logs_stored);
    labelled(e, "kind", "repeated", st.logs_repeated);
    labelled(e, "kind", "pruned_age", st.logs_pruned_age);
    labelled(e, "kind", "pruned_bytes", st.logs_pruned_bytes);
    one(e, OWN_lanterne_collector_log_bytes, (double)st.log_bytes);
}

static void put_fleet(struct expo *e)
{
    const struct ltn_fleet_counters *c = &e->s->fleet->counters;
    family(e, OWN_lanterne_collector_fleet_total);
#define FLEET_SAMPLE(name, help) labelled(e, "kind", #name, c->name);
    LTN_FLEET_COUNTERS(FLEET_SAMPLE)
#undef FLEET_SAMPLE
}

static void put_series(struct expo *e)
{
    struct ltn_series_stats st;
    struct ltn_hist_stats hist;
    ltn_series_stats(e->s->series, &st);
    ltn_hist_stats(e->s->series, &hist);
    one(e, OWN_lanterne_collector_series, (double)st.series);
    one(e, OWN_lanterne_collector_series_families, (double)st.families);
    one(e, OWN_lanterne_collector_series_bytes, (double)(st.bytes + hist.bytes));
    family(e, OWN_lanterne_collector_series_refused_total);
    labelled(e, "reason", "overflow", st.overflowed);
    labelled(e, "reason", "no_room", st.refused + hist.no_room);
    labelled(e, "reason", "type_conflict", st.type_conflicts);
    labelled(e, "reason", "kind", ltn_ingest_stats(e->s->ingest)->points_unexposed);
    labelled(e, "reason", "late", st.late + hist.late);
    labelled(e, "reason", "buckets", hist.refused);
    family(e, OWN_lanterne_collector_series_points_total);
    labelled(e, "kind", "taken", st.points);
    labelled(e, "kind", "histogram", hist.taken);
    labelled(e, "kind", "new_key", st.new_keys);
    labelled(e, "kind", "ended", st.ended);
    labelled(e, "kind", "delta_gap", st.delta_gaps + hist.gaps);
    labelled(e, "kind", "delta_overlap", st.delta_overlaps + hist.overlaps);
    labelled(e, "kind", "restored", st.restored);
    labelled(e, "kind", "damaged", st.damaged);
    labelled(e, "kind", "unknown", st.unknown);
}

static void put_scrapes(struct expo *e)
{
    const struct ltn_scrape_stats *st = &e->s->scrapes;
    family(e, OWN_lanterne_collector_scrapes_total);
    labelled(e, "outcome", "complete", st->complete);
    labelled(e, "outcome", "cut", st->cut);
    labelled(e, "outcome", "refused", st->refused);
    one(e, OWN_lanterne_collector_scrapes_running, (double)st->active);
    one(e, OWN_lanterne_collector_scrape_seconds_total, st->seconds);
    one(e, OWN_lanterne_collector_scrape_bytes_total, (double)st->bytes);
}

static void put_alerts(struct expo *e)
{
    struct ltn_alerts_stats st;
    ltn_alerts_stats(e->s->alerts, &st);
    family(e, OWN_lanterne_collector_alerts);
    labelled(e, "state", "firing", st.firing);
    labelled(e, "state", "resolved", st.resolved);
    family(e, OWN_lanterne_collector_alerts_lost_total);
    labelled(e, "reason", "refused", st.refused);
    labelled(e, "reason", "evicted", st.evicted);
    labelled(e, "reason", "expired", st.expired);
    family(e, OWN_lanterne_collector_alert_requests_total);
    for (size_t i = 0; i < st.target_count; i++) {
        const struct ltn_alert_target_stats *t = &st.targets[i];
        const uint64_t values[] = {t->accepted, t->rejected, t->retried};
        static const char *const outcomes[] = {"accepted", "rejected", "retried"};
        for (size_t k = 0; k < LTN_ARRAY_SIZE(values); k++) {
            struct ltn_prom_label l[] = {{"outcome", outcomes[k]}, {"target", t->name}};
            sample(e, l, 2, (double)values[k]);
        }
    }
    family(e, OWN_lanterne_collector_alert_target_up);
    for (size_t i = 0; i < st.target_count; i++)
        labelled(e, "target", st.targets[i].name, st.targets[i].up ? 1 : 0);
    family(e, OWN_lanterne_collector_alerts_waiting);
    for (size_t i = 0; i < st.target_count; i++)
        labelled(e, "target", st.targets[i].name, st.targets[i].waiting);
}

static void put_control(struct expo *e)
{
    struct ltn_query_stats st;
    size_t pos = 0;
    ltn_query_hub_stats(e->s->hub, &st);
    family(e, OWN_lanterne_node_clock_offset_seconds);
    for (const struct ltn_fleet_node *n; (n = ltn_map_next(&e->s->fleet->nodes, &pos)) != NULL;) {
        struct ltn_query_node known;
        struct ltn_prom_label l = {"node", n->name};
        if (ltn_query_hub_node(e->s->hub, n->name, &known) && known.has_clock)
            sample(e, &l, 1, (double)known.clock_offset_ns / 1e9);
    }
    one(e, OWN_lanterne_collector_control_streams, (double)st.streams);
    family(e, OWN_lanterne_collector_control_total);
#define CONTROL_SAMPLE(name, help) labelled(e, "kind", #name, st.name);
    LTN_QUERY_COUNTERS(CONTROL_SAMPLE)
#undef CONTROL_SAMPLE
    one(e, OWN_lanterne_collector_queries_running, (double)st.running);
    one(e, OWN_lanterne_collector_query_bytes, (double)st.held_bytes);
}

static void put_http(struct expo *e)
{
    struct ltn_http_stats st[2];
    static const char *const servers[] = {"otlp", "api"};
    ltn_http_server_stats(e->s->otlp_server, &st[0]);
    ltn_http_server_stats(e->s->api_server, &st[1]);
    family(e, OWN_lanterne_collector_http_total);
    for (size_t i = 0; i < 2; i++) {
#define HTTP_SAMPLE(name, help)                                                                    \
    sample(e, (struct ltn_prom_label[]){{"kind", #name}, {"server", servers[i]}}, 2,               \
           (double)st[i].name);
        LTN_HTTP_COUNTERS(HTTP_SAMPLE)
#undef HTTP_SAMPLE
    }
    family(e, OWN_lanterne_collector_http_connections);
    for (size_t i = 0; i < 2; i++)
        labelled(e, "server", servers[i], st[i].connections);
}

static void put_access(struct expo *e)
{
    struct ltn_access_stats st;
    if (e->s->access == NULL)
        return;
    ltn_access_stats(e->s->access, &st);
    family(e, OWN_lanterne_collector_access_reloads_total);
    labelled(e, "outcome", "taken", st.reloads);
    labelled(e, "outcome", "failed", st.reload_failures);
    one(e, OWN_lanterne_collector_access_tokens, (double)st.tokens);
    if (st.cert_expires_s != 0)
        one(e, OWN_lanterne_collector_certificate_expiry_timestamp_seconds,
            (double)st.cert_expires_s);
}

static void put_self(struct expo *e)
{
    struct ltn_prom_label version = {"version", LTN_VERSION};
    family(e, OWN_lanterne_collector_info);
    sample(e, &version, 1, 1);
    one(e, OWN_lanterne_collector_start_time_seconds, (double)e->s->started_ns / 1e9);
}

/* ---- answers ---- */

/* The answer in parts: each a piece, or as many as it takes. */
static const struct {
    void (*whole)(struct expo *e);
    bool (*some)(struct expo *e); /* true while there is more */
} parts[] = {
    {put_nodes, NULL},     {NULL, put_ranks},    {put_verdicts, NULL}, {put_jobs, NULL},
    {put_incidents, NULL}, {NULL, put_cuda_ops}, {NULL, put_nccl_ops}, {put_self, NULL},
    {put_ingest, NULL},    {put_store, NULL},    {put_fleet, NULL},    {put_series, NULL},
    {put_scrapes, NULL},   {put_alerts, NULL},   {put_control, NULL},  {put_http, NULL},
    {put_access, NULL},
};

/* Scrapes at once, and time for one: while one goes on, no series expires. */
#define MAX_SCRAPES   16
#define SCRAPE_MAX_NS (60 * LTN_NS_PER_S)

/* Series written in one go, with their table locked. */
#define SLICE_SERIES 16u

/* Names of all nodes. */
#define NODES_MAX_BYTES ((size_t)64 << 20)

struct scrape {
    struct expo e;
    uint64_t began_ns;
    size_t part;
    bool complete;
    struct ltn_series_cursor cursor;
};

static int write_piece(struct scrape *o, struct ltn_buf *out)
{
    o->e.p.out = out;
    if (o->part < LTN_ARRAY_SIZE(parts)) {
        if (parts[o->part].some != NULL && parts[o->part].some(&o->e))
            return 1;
        if (parts[o->part].whole != NULL)
            parts[o->part].whole(&o->e);
        close_family(&o->e);
        o->e.step = 0;
        if (++o->part == LTN_ARRAY_SIZE(parts))
            ltn_series_walk(o->e.s->series, &o->cursor);
        return 1;
    }
    bool more = true;
    while (more && out->len < PIECE_BYTES)
        more = ltn_series_walk_next(&o->cursor, &o->e.p, SLICE_SERIES);
    if (more)
        return 1;
    ltn_prom_end(&o->e.p);
    o->complete = true;
    return 0;
}

static int next_piece(void *arg, struct ltn_buf *out)
{
    struct scrape *o = arg;
    struct ltn_scrape_stats *st = &o->e.s->scrapes;
    uint64_t began_ns = ltn_now_mono_ns();
    if (began_ns - o->began_ns > SCRAPE_MAX_NS)
        return LTN_ERR_TIMEOUT;
    int rc = write_piece(o, out);
    st->seconds += (double)(ltn_now_mono_ns() - began_ns) / 1e9;
    st->bytes += out->len;
    return rc;
}

static void scrape_done(void *arg)
{
    struct scrape *o = arg;
    struct ltn_scrape_stats *st = &o->e.s->scrapes;
    ltn_series_walk_end(&o->cursor);
    st->active--;
    st->complete += o->complete ? 1 : 0;
    st->cut += o->complete ? 0 : 1;
    ltn_buf_done(&o->e.nodes);
    free(o);
}

/* NULL when there are too many, or no memory. */
static struct scrape *new_scrape(struct ltn_serve *s, enum ltn_prom_format format)
{
    struct scrape *o = s->scrapes.active < MAX_SCRAPES ? calloc(1, sizeof(*o)) : NULL;
    size_t pos = 0;
    if (o == NULL)
        return NULL;
    o->e.s = s;
    o->e.now_ns = ltn_now_unix_ns();
    o->began_ns = ltn_now_mono_ns();
    ltn_prom_begin(&o->e.p, NULL, format);
    ltn_buf_init(&o->e.nodes, NODES_MAX_BYTES);
    for (const struct ltn_fleet_node *n; (n = ltn_map_next(&s->fleet->nodes, &pos)) != NULL;)
        (void)ltn_buf_append(&o->e.nodes, n->name, strlen(n->name) + 1);
    if (ltn_buf_error(&o->e.nodes) != 0) {
        ltn_buf_done(&o->e.nodes);
        free(o);
        return NULL;
    }
    s->scrapes.active++;
    return o;
}

void ltn_serve_on_metrics(void *arg, struct ltn_http_request *req)
{
    static const struct ltn_http_field vary[] = {{"vary", "accept"}};
    struct ltn_serve *s = arg;
    struct ltn_prom_choice choice;
    ltn_prom_choose(ltn_http_header(req, "accept"), &choice);
    struct scrape *o = new_scrape(s, choice.format);
    if (o == NULL) {
        s->scrapes.refused++;
        ltn_http_reply_error(req, LTN_ERR_BUSY, "too many scrapes at once", 1000);
        return;
    }
    const struct ltn_http_source source = {next_piece, scrape_done, o};
    ltn_http_reply(req, &(struct ltn_http_response){.status = 200,
                                                    .content_type = choice.content_type,
                                                    .source = &source,
                                                    .fields = vary,
                                                    .field_count = 1});
}
