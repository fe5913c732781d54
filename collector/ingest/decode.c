/* SPDX-License-Identifier: Apache-2.0 */
#include "ingest/decode.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/text.h"
#include "ingest/internal.h"
#include "otlp/logs_read.h"
#include "otlp/metrics_read.h"
#include "otlp/pb_read.h"

#define ARENA_CHUNK_BYTES 65536
/* Room for staged points kept from one request to the next. */
#define SAMPLES_KEPT 16384u

static const struct ltn_otlp_limits limits = {
    .max_depth = 32,
    .max_records = 1000000,
    .max_groups = 200000,
    .max_attrs = LTN_OTLP_ATTRS_USUAL,
    .max_buckets = LTN_OTLP_BUCKETS_USUAL,
};

static const char *const wire_names[LTN_WIRE_METRICS] = {
#define LTN_WIRE_NAME(name, text) [LTN_WIRE_##name] = (text),
    LTN_WIRE_TABLE(LTN_WIRE_NAME)
#undef LTN_WIRE_NAME
};

static const struct ltn_otlp_str no_metric;

static ltn_otlp_numbers_raw_fn on_numbers_raw;

struct ltn_decoder *ltn_decoder_new(struct ltn_series *series)
{
    struct ltn_decoder *d = calloc(1, sizeof(*d));
    if (d == NULL)
        return NULL;
    d->reader = ltn_otlp_reader_new(&limits);
    d->hist_counts = calloc(LTN_EXPHIST_FULL_BUCKETS, sizeof(*d->hist_counts));
    d->series = series;
    ltn_buf_init(&d->labels, LTN_LABELS_MAX_BYTES);
    ltn_buf_init(&d->target, LTN_LABELS_MAX_BYTES);
    ltn_buf_init(&d->scope, LTN_LABELS_MAX_BYTES);
    ltn_map_init(&d->resources, LTN_MAX_RESOURCES);
    ltn_buf_init(&d->json, LTN_JSON_MAX_BYTES);
    if (d->reader == NULL || d->hist_counts == NULL) {
        ltn_decoder_free(d);
        return NULL;
    }
    ltn_otlp_metrics_raw(d->reader, on_numbers_raw);
    return d;
}

void ltn_decoder_free(struct ltn_decoder *d)
{
    if (d == NULL)
        return;
    ltn_otlp_reader_free(d->reader);
    free(d->hist_counts);
    free(d->samples);
    ltn_map_done(&d->resources, NULL);
    ltn_buf_done(&d->labels);
    ltn_buf_done(&d->target);
    ltn_buf_done(&d->scope);
    ltn_buf_done(&d->json);
    free(d);
}

void ltn_update_free(struct ltn_update *u)
{
    if (u == NULL)
        return;
    ltn_arena_done(&u->arena);
    free(u);
}

static enum ltn_wire_metric find_metric(struct ltn_otlp_str name)
{
    for (size_t i = 1; i < LTN_WIRE_METRICS; i++)
        if (ltn_otlp_str_eq(name, wire_names[i]))
            return (enum ltn_wire_metric)i;
    return LTN_WIRE_OTHER;
}

static int begin_point(struct ltn_decoder *d, const struct ltn_otlp_group *g,
                       const struct ltn_otlp_metric *m)
{
    int rc = ltn_decode_resource(d, g);
    if (rc != 0)
        return rc;
    bool same = d->have_scope && d->have_metric && d->metric_index == m->metric_index;
    ltn_decode_begin_metric(d, g, m);
    if (!same)
        d->metric = d->resource != NULL ? find_metric(m->name) : LTN_WIRE_OTHER;
    return 0;
}

static int on_numbers_raw(void *ctx, const struct ltn_otlp_group *g,
                          const struct ltn_otlp_metric *m, const struct ltn_otlp_number *p,
                          size_t n)
{
    struct ltn_decoder *d = ctx;
    int rc = begin_point(d, g, m);
    if (rc != 0 || d->resource != NULL) /* an agent's say more than their values */
        return rc;
    return ltn_decode_numbers_raw(d, m, p, n);
}

static int on_number(void *ctx, const struct ltn_otlp_group *g, const struct ltn_otlp_metric *m,
                     const struct ltn_otlp_number *p)
{
    struct ltn_decoder *d = ctx;
    bool expose = true;
    int rc = begin_point(d, g, m);
    if (rc == 0 && d->resource != NULL)
        rc = ltn_decode_agent_number(d, m, p, &expose);
    return rc == 0 && expose ? ltn_decode_number(d, g, m, p) : rc;
}

static int on_histogram(void *ctx, const struct ltn_otlp_group *g, const struct ltn_otlp_metric *m,
                        const struct ltn_otlp_histogram *p)
{
    struct ltn_decoder *d = ctx;
    int rc = begin_point(d, g, m);
    return rc == 0 ? ltn_decode_histogram(d, g, m, p) : rc;
}

static int on_exp_histogram(void *ctx, const struct ltn_otlp_group *g,
                            const struct ltn_otlp_metric *m, const struct ltn_otlp_exp_histogram *p)
{
    struct ltn_decoder *d = ctx;
    int rc = begin_point(d, g, m);
    bool known = d->metric == LTN_WIRE_CUDA_DURATION || d->metric == LTN_WIRE_NCCL_DURATION;
    if (rc == 0 && known && d->resource != NULL && d->resource->is_process)
        return ltn_decode_agent_histogram(d, p);
    return rc == 0 ? ltn_decode_exp_histogram(d, g, m, p) : rc;
}

static int on_summary(void *ctx, const struct ltn_otlp_group *g, const struct ltn_otlp_metric *m,
                      const struct ltn_otlp_summary *p)
{
    struct ltn_decoder *d = ctx;
    int rc = begin_point(d, g, m);
    return rc == 0 ? ltn_decode_summary(d, g, m, p) : rc;
}

/* ---- incidents ---- */

static int copy_incident(struct ltn_decoder *d, const struct ltn_otlp_log *log,
                         struct ltn_update_incident *i)
{
    struct ltn_otlp_attrs a = log->attrs;
    struct ltn_otlp_str body = {NULL, 0};
    int64_t opened = 0, count = 0;
    if (log->body.type == LTN_OTLP_STRING)
        body = log->body.str;
    i->id = ltn_decode_attr_text(d, a, "lanterne.incident.id", 64);
    i->kind = ltn_decode_attr_text(d, a, "lanterne.incident.kind", 48);
    i->state = ltn_decode_attr_text(d, a, "lanterne.incident.state", 16);
    i->cause = ltn_decode_attr_text(d, a, "lanterne.incident.cause", 48);
    i->evidence = ltn_decode_attr_text(d, a, "lanterne.incident.evidence", 16384);
    i->title = ltn_decode_text(d, body, 256);
    i->severity = ltn_decode_text(d, log->severity_text, 16);
    if (i->id == NULL || i->kind == NULL || i->state == NULL || i->cause == NULL ||
        i->evidence == NULL || i->title == NULL || i->severity == NULL)
        return LTN_ERR_TOO_LARGE;
    if (ltn_otlp_get_i64(a, "lanterne.incident.opened_at", &opened) && opened > 0)
        i->opened_at_ns = (uint64_t)opened;
    if (ltn_otlp_get_i64(a, "lanterne.incident.count", &count) && count > 0)
        i->count = (uint64_t)count;
    i->explained_share = -1;
    double share;
    if (ltn_otlp_get_f64(a, "lanterne.incident.explained_share", &share) && isfinite(share))
        i->explained_share = fmin(1, fmax(0, share));
    i->severity_number = log->severity;
    i->time_ns = log->time_ns != 0 ? log->time_ns : log->observed_ns;
    if (i->time_ns == 0)
        i->time_ns = d->u->received_ns;
    return 0;
}

static int on_log(void *ctx, const struct ltn_otlp_group *g, const struct ltn_otlp_log *log)
{
    struct ltn_decoder *d = ctx;
    int rc = ltn_decode_resource(d, g);
    if (rc != 0)
        return rc;
    if (!ltn_otlp_str_eq(log->event_name, "lanterne.incident") || d->resource == NULL)
        return ltn_decode_log(d, g, log);
    struct ltn_update_incident *i = ltn_arena_calloc(&d->u->arena, 1, sizeof(*i));
    if (i == NULL)
        return LTN_ERR_TOO_LARGE;
    rc = copy_incident(d, log, i);
    if (rc != 0)
        return rc;
    if (i->id[0] == '\0') {
        ltn_decode_reject(d, no_metric, "incident without lanterne.incident.id");
        return 0;
    }
    i->node = d->resource->node;
    i->job = d->resource->job;
    i->rank = d->resource->rank;
    i->pid = d->resource->pid;
    i->next = d->u->incidents;
    d->u->incidents = i;
    d->u->incident_count++;
    return 0;
}

/* ---- requests ---- */

/* One is told, the first. */
static void note_rejection(struct ltn_decode_result *ret, struct ltn_otlp_str metric,
                           const char *why)
{
    if (ret->message == NULL) {
        ret->message = why;
        ltn_text_clean(ret->metric, sizeof(ret->metric), metric.p, metric.n);
    }
}

void ltn_decode_reject(struct ltn_decoder *d, struct ltn_otlp_str metric, const char *why)
{
    d->result->rejected++;
    note_rejection(d->result, metric, why);
}

static int begin(struct ltn_decoder *d, uint64_t received_ns, struct ltn_decode_result *ret)
{
    *ret = (struct ltn_decode_result){.update = calloc(1, sizeof(*ret->update))};
    if (ret->update == NULL)
        return -ENOMEM;
    ltn_arena_init(&ret->update->arena, ARENA_CHUNK_BYTES, LTN_UPDATE_MAX_BYTES);
    ret->update->received_ns = received_ns;
    d->u = ret->update;
    d->result = ret;
    d->now_ns = ltn_now_mono_ns();
    d->have_resource = d->have_scope = d->have_metric = false;
    d->sample_n = 0;
    d->hists = NULL;
    return 0;
}

static int finish(struct ltn_decoder *d, int rc, const struct ltn_otlp_counts *counts)
{
    struct ltn_decode_result *ret = d->result;
    ltn_decode_unlock(d);
    if (d->resources.len > 0) {
        ltn_map_done(&d->resources, NULL);
        ltn_map_init(&d->resources, LTN_MAX_RESOURCES);
    }
    if (rc == 0)
        rc = ltn_series_take(d->series, d->samples, d->sample_n, d->now_ns);
    size_t hists = 0;
    if (rc == 0)
        rc = ltn_decode_take_hists(d, &hists);
    ret->samples = rc == 0 ? d->sample_n + hists : 0;
    if (d->sample_room > SAMPLES_KEPT) {
        free(d->samples);
        d->samples = NULL;
        d->sample_room = 0;
    }
    if (rc != 0) {
        ltn_update_free(ret->update);
        *ret = (struct ltn_decode_result){.update = NULL};
        return rc;
    }
    for (size_t i = 0; i < LTN_OTLP_REJECT_KINDS; i++)
        if (counts->by_reason[i] > 0)
            note_rejection(ret, counts->metric, ltn_otlp_reject_str((enum ltn_otlp_reject)i));
    ret->accepted = counts->records - ret->rejected;
    ret->rejected += counts->rejected;
    return 0;
}

int ltn_decode_metrics(struct ltn_decoder *d, const void *body, size_t n, uint64_t received_ns,
                       struct ltn_decode_result *ret)
{
    static const struct ltn_otlp_metrics_sink shape = {NULL, on_number, on_histogram,
                                                       on_exp_histogram, on_summary};
    struct ltn_otlp_metrics_sink sink = shape;
    struct ltn_otlp_counts counts = {0};
    int rc = begin(d, received_ns, ret);
    if (rc != 0)
        return rc;
    sink.ctx = d;
    return finish(d, ltn_otlp_metrics_read(d->reader, body, n, &sink, &counts), &counts);
}

int ltn_decode_logs(struct ltn_decoder *d, const void *body, size_t n, uint64_t received_ns,
                    struct ltn_decode_result *ret)
{
    struct ltn_otlp_logs_sink sink = {d, on_log};
    struct ltn_otlp_counts counts = {0};
    int rc = begin(d, received_ns, ret);
    if (rc != 0)
        return rc;
    return finish(d, ltn_otlp_logs_read(d->reader, body, n, &sink, &counts), &counts);
}

/* Level 0 the request, 1 ResourceSpans, 2 ScopeSpans; the field below, and spans at the end. */
static const uint32_t span_path[] = {1, 2, 2};

int ltn_decode_count_spans(const void *body, size_t n, uint64_t *ret_spans)
{
    struct ltn_pb_cur at[3];
    size_t level = 0;
    uint64_t spans = 0;
    ltn_pb_init(&at[0], body, n, LTN_PB_DEPTH_DEFAULT);
    for (;;) {
        struct ltn_pb_field f;
        if (at[level].p == at[level].end) {
            if (level-- == 0)
                break;
            continue;
        }
        int rc = ltn_pb_next(&at[level], &f);
        if (rc < 0)
            return rc;
        if (f.number != span_path[level] || f.type != LTN_PB_LEN)
            continue;
        if (level == 2) {
            spans++;
            continue;
        }
        rc = ltn_pb_enter(&at[level], &f, &at[level + 1]);
        if (rc < 0)
            return rc;
        level++;
    }
    *ret_spans = spans;
    return 0;
}
