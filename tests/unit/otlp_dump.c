/* SPDX-License-Identifier: Apache-2.0 */
#include "otlp_dump.h"

#include <inttypes.h>
#include <string.h>

#include "opentelemetry/proto/collector/logs/v1/logs_service.pb-c.h"
#include "opentelemetry/proto/collector/metrics/v1/metrics_service.pb-c.h"

#include "base/text.h"
#include "otlp/logs_read.h"
#include "otlp/metrics_read.h"

#define COMMON(x)   Opentelemetry__Proto__Common__V1__##x
#define METRICS(x)  Opentelemetry__Proto__Metrics__V1__##x
#define LOGS(x)     Opentelemetry__Proto__Logs__V1__##x
#define RESOURCE(x) Opentelemetry__Proto__Resource__V1__##x

/* Text is marked when it is not UTF-8, as our views mark it. */
static void put_str(struct ltn_buf *o, const char *p, size_t n, bool bad)
{
    (void)ltn_buf_printf(o, "%zu'", n);
    (void)ltn_buf_append(o, p, n);
    (void)ltn_buf_puts(o, bad ? "'!" : "'");
}

static void put_text(struct ltn_buf *o, const char *s)
{
    put_str(o, s, strlen(s), !ltn_utf8_valid(s, strlen(s)));
}

static void put_plain(struct ltn_buf *o, struct ltn_otlp_str s)
{
    put_str(o, s.p, s.n, !ltn_utf8_valid(s.p, s.n));
}

static void oracle_kv(struct ltn_buf *o, const COMMON(KeyValue) * kv);

/* Recursion is as deep as the generator nests. */
static void oracle_value(struct ltn_buf *o, const COMMON(AnyValue) * v)
{
    if (v == NULL) {
        (void)ltn_buf_puts(o, "none");
        return;
    }
    switch ((int)v->value_case) {
    case 1:
        put_text(o, v->string_value);
        break;
    case 2:
        (void)ltn_buf_puts(o, v->bool_value ? "true" : "false");
        break;
    case 3:
        (void)ltn_buf_printf(o, "%" PRId64, v->int_value);
        break;
    case 4:
        (void)ltn_buf_printf(o, "%a", v->double_value);
        break;
    case 5:
        (void)ltn_buf_puts(o, "[");
        for (size_t i = 0; i < v->array_value->n_values; i++) {
            oracle_value(o, v->array_value->values[i]);
            (void)ltn_buf_puts(o, ",");
        }
        (void)ltn_buf_puts(o, "]");
        break;
    case 6:
        (void)ltn_buf_puts(o, "{");
        for (size_t i = 0; i < v->kvlist_value->n_values; i++) {
            oracle_kv(o, v->kvlist_value->values[i]);
        }
        (void)ltn_buf_puts(o, "}");
        break;
    case 7:
        (void)ltn_buf_puts(o, "bytes ");
        put_str(o, (const char *)v->bytes_value.data, v->bytes_value.len, false);
        break;
    default:
        (void)ltn_buf_puts(o, "none");
        break;
    }
}

static void oracle_kv(struct ltn_buf *o, const COMMON(KeyValue) * kv)
{
    (void)ltn_buf_puts(o, " ");
    put_text(o, kv->key);
    (void)ltn_buf_puts(o, "=");
    oracle_value(o, kv->value);
}

static void oracle_attrs(struct ltn_buf *o, COMMON(KeyValue) *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        oracle_kv(o, list[i]);
    }
}

/* Our reader leaves nested values undecoded: protobuf-c unpacks the view. */
static void our_value(struct ltn_buf *o, const struct ltn_otlp_value *v)
{
    COMMON(AnyValue) any = OPENTELEMETRY__PROTO__COMMON__V1__ANY_VALUE__INIT;
    const uint8_t *raw = (const uint8_t *)v->str.p;
    switch (v->type) {
    case LTN_OTLP_STRING:
        put_str(o, v->str.p, v->str.n, v->bad_utf8);
        break;
    case LTN_OTLP_BOOL:
        (void)ltn_buf_puts(o, v->b ? "true" : "false");
        break;
    case LTN_OTLP_INT:
        (void)ltn_buf_printf(o, "%" PRId64, v->i);
        break;
    case LTN_OTLP_DOUBLE:
        (void)ltn_buf_printf(o, "%a", v->d);
        break;
    case LTN_OTLP_ARRAY:
        any.value_case = OPENTELEMETRY__PROTO__COMMON__V1__ANY_VALUE__VALUE_ARRAY_VALUE;
        any.array_value =
            opentelemetry__proto__common__v1__array_value__unpack(NULL, v->str.n, raw);
        if (any.array_value != NULL) {
            oracle_value(o, &any);
        }
        opentelemetry__proto__common__v1__array_value__free_unpacked(any.array_value, NULL);
        break;
    case LTN_OTLP_KVLIST:
        any.value_case = OPENTELEMETRY__PROTO__COMMON__V1__ANY_VALUE__VALUE_KVLIST_VALUE;
        any.kvlist_value =
            opentelemetry__proto__common__v1__key_value_list__unpack(NULL, v->str.n, raw);
        if (any.kvlist_value != NULL) {
            oracle_value(o, &any);
        }
        opentelemetry__proto__common__v1__key_value_list__free_unpacked(any.kvlist_value, NULL);
        break;
    case LTN_OTLP_BYTES:
        (void)ltn_buf_puts(o, "bytes ");
        put_str(o, v->str.p, v->str.n, false);
        break;
    case LTN_OTLP_NONE:
        (void)ltn_buf_puts(o, "none");
        break;
    }
}

static void our_attrs(struct ltn_buf *o, struct ltn_otlp_attrs attrs)
{
    for (size_t i = 0; i < attrs.n; i++) {
        const struct ltn_otlp_attr *a = &attrs.items[i];
        (void)ltn_buf_puts(o, " ");
        put_str(o, a->key.p, a->key.n, a->key_bad_utf8);
        (void)ltn_buf_puts(o, "=");
        our_value(o, &a->value);
    }
}

static void our_group(struct ltn_buf *o, const struct ltn_otlp_group *g)
{
    (void)ltn_buf_puts(o, "R");
    put_plain(o, g->resource_schema_url);
    our_attrs(o, g->resource);
    (void)ltn_buf_puts(o, " S");
    put_plain(o, g->scope_schema_url);
    put_plain(o, g->scope_name);
    put_plain(o, g->scope_version);
    our_attrs(o, g->scope_attrs);
}

static void oracle_group(struct ltn_buf *o, const char *resource_url, const RESOURCE(Resource) * r,
                         const char *scope_url, const COMMON(InstrumentationScope) * s)
{
    (void)ltn_buf_puts(o, "R");
    put_text(o, resource_url);
    if (r != NULL) {
        oracle_attrs(o, r->attributes, r->n_attributes);
    }
    (void)ltn_buf_puts(o, " S");
    put_text(o, scope_url);
    put_text(o, s != NULL ? s->name : "");
    put_text(o, s != NULL ? s->version : "");
    if (s != NULL) {
        oracle_attrs(o, s->attributes, s->n_attributes);
    }
}

static void our_metric(struct ltn_buf *o, const struct ltn_otlp_group *g,
                       const struct ltn_otlp_metric *m, const struct ltn_otlp_point *p)
{
    our_group(o, g);
    (void)ltn_buf_printf(o, "\n M");
    put_plain(o, m->name);
    put_plain(o, m->unit);
    put_plain(o, m->description);
    (void)ltn_buf_printf(o, "%d %d %d|%" PRIu64 " %" PRIu64 " %u|", (int)m->kind,
                         (int)m->temporality, m->monotonic, p->start_ns, p->time_ns, p->flags);
    our_attrs(o, p->attrs);
}

static int our_number(void *ctx, const struct ltn_otlp_group *g, const struct ltn_otlp_metric *m,
                      const struct ltn_otlp_number *p)
{
    struct ltn_buf *o = ctx;
    our_metric(o, g, m, &p->point);
    if (p->type == LTN_OTLP_INT) {
        (void)ltn_buf_printf(o, " int %" PRId64, p->i);
    } else if (p->type == LTN_OTLP_DOUBLE) {
        (void)ltn_buf_printf(o, " double %a", p->d);
    }
    return ltn_buf_puts(o, "\n");
}

static void put_optional(struct ltn_buf *o, bool has, double v)
{
    (void)ltn_buf_printf(o, has ? " %a" : " -", has ? v : 0);
}

static int our_histogram(void *ctx, const struct ltn_otlp_group *g, const struct ltn_otlp_metric *m,
                         const struct ltn_otlp_histogram *p)
{
    struct ltn_buf *o = ctx;
    our_metric(o, g, m, &p->point);
    (void)ltn_buf_printf(o, " hist %" PRIu64, p->count);
    put_optional(o, p->has_sum, p->sum);
    put_optional(o, p->has_min, p->min);
    put_optional(o, p->has_max, p->max);
    for (size_t i = 0; i < p->bucket_n; i++) {
        (void)ltn_buf_printf(o, " %" PRIu64, p->bucket_counts[i]);
    }
    for (size_t i = 0; i < p->bound_n; i++) {
        (void)ltn_buf_printf(o, " %a", p->bounds[i]);
    }
    return ltn_buf_puts(o, "\n");
}

static void put_buckets(struct ltn_buf *o, int32_t offset, const uint64_t *counts, size_t n)
{
    (void)ltn_buf_printf(o, " %d(", offset);
    for (size_t i = 0; i < n; i++) {
        (void)ltn_buf_printf(o, " %" PRIu64, counts[i]);
    }
    (void)ltn_buf_puts(o, ")");
}

static int our_exp(void *ctx, const struct ltn_otlp_group *g, const struct ltn_otlp_metric *m,
                   const struct ltn_otlp_exp_histogram *p)
{
    struct ltn_buf *o = ctx;
    our_metric(o, g, m, &p->point);
    (void)ltn_buf_printf(o, " exp %" PRIu64 " %d %" PRIu64 " %a", p->count, p->scale, p->zero_count,
                         p->zero_threshold);
    put_optional(o, p->has_sum, p->sum);
    put_optional(o, p->has_min, p->min);
    put_optional(o, p->has_max, p->max);
    put_buckets(o, p->positive.offset, p->positive.counts, p->positive.n);
    put_buckets(o, p->negative.offset, p->negative.counts, p->negative.n);
    return ltn_buf_puts(o, "\n");
}

static int our_log(void *ctx, const struct ltn_otlp_group *g, const struct ltn_otlp_log *l)
{
    struct ltn_buf *o = ctx;
    our_group(o, g);
    (void)ltn_buf_printf(o, "\n L%" PRIu64 " %" PRIu64 " %d %u %zu %zu ", l->time_ns,
                         l->observed_ns, l->severity, l->flags, l->trace_id.n, l->span_id.n);
    put_plain(o, l->severity_text);
    put_plain(o, l->event_name);
    our_value(o, &l->body);
    our_attrs(o, l->attrs);
    return ltn_buf_puts(o, "\n");
}

int otlp_dump_ours(struct ltn_otlp_reader *r, bool logs, const struct ltn_buf *in,
                   struct ltn_buf *out)
{
    const struct ltn_otlp_metrics_sink metrics = {out, our_number, our_histogram, our_exp, NULL};
    const struct ltn_otlp_logs_sink log_sink = {out, our_log};
    struct ltn_otlp_counts counts;
    return logs ? ltn_otlp_logs_read(r, in->data, in->len, &log_sink, &counts)
                : ltn_otlp_metrics_read(r, in->data, in->len, &metrics, &counts);
}

/* Where a metric stands, for the functions that print its points. */
struct place {
    struct ltn_buf *o;
    const METRICS(ResourceMetrics) * rm;
    const METRICS(ScopeMetrics) * sm;
    const METRICS(Metric) * m;
    int kind, temporality, monotonic;
};

static void oracle_metric(const struct place *at, uint64_t start, uint64_t time, uint32_t flags,
                          COMMON(KeyValue) *const *attrs, size_t n_attrs)
{
    oracle_group(at->o, at->rm->schema_url, at->rm->resource, at->sm->schema_url, at->sm->scope);
    (void)ltn_buf_printf(at->o, "\n M");
    put_text(at->o, at->m->name);
    put_text(at->o, at->m->unit);
    put_text(at->o, at->m->description);
    (void)ltn_buf_printf(at->o, "%d %d %d|%" PRIu64 " %" PRIu64 " %u|", at->kind, at->temporality,
                         at->monotonic, start, time, flags);
    oracle_attrs(at->o, attrs, n_attrs);
}

static void oracle_numbers(const struct place *at, METRICS(NumberDataPoint) *const *points,
                           size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const METRICS(NumberDataPoint) *p = points[i];
        oracle_metric(at, p->start_time_unix_nano, p->time_unix_nano, p->flags, p->attributes,
                      p->n_attributes);
        if (p->value_case == OPENTELEMETRY__PROTO__METRICS__V1__NUMBER_DATA_POINT__VALUE_AS_INT) {
            (void)ltn_buf_printf(at->o, " int %" PRId64, p->as_int);
        } else if (p->value_case ==
                   OPENTELEMETRY__PROTO__METRICS__V1__NUMBER_DATA_POINT__VALUE_AS_DOUBLE) {
            (void)ltn_buf_printf(at->o, " double %a", p->as_double);
        }
        (void)ltn_buf_puts(at->o, "\n");
    }
}

static void oracle_histograms(const struct place *at, const METRICS(Histogram) * h)
{
    for (size_t i = 0; i < h->n_data_points; i++) {
        const METRICS(HistogramDataPoint) *p = h->data_points[i];
        oracle_metric(at, p->start_time_unix_nano, p->time_unix_nano, p->flags, p->attributes,
                      p->n_attributes);
        (void)ltn_buf_printf(at->o, " hist %" PRIu64, p->count);
        put_optional(at->o, p->sum_opt_case != 0, p->sum);
        put_optional(at->o, p->min_opt_case != 0, p->min);
        put_optional(at->o, p->max_opt_case != 0, p->max);
        for (size_t k = 0; k < p->n_bucket_counts; k++) {
            (void)ltn_buf_printf(at->o, " %" PRIu64, p->bucket_counts[k]);
        }
        for (size_t k = 0; k < p->n_explicit_bounds; k++) {
            (void)ltn_buf_printf(at->o, " %a", p->explicit_bounds[k]);
        }
        (void)ltn_buf_puts(at->o, "\n");
    }
}

static void oracle_exps(const struct place *at, const METRICS(ExponentialHistogram) * h)
{
    for (size_t i = 0; i < h->n_data_points; i++) {
        const METRICS(ExponentialHistogramDataPoint) *p = h->data_points[i];
        oracle_metric(at, p->start_time_unix_nano, p->time_unix_nano, p->flags, p->attributes,
                      p->n_attributes);
        (void)ltn_buf_printf(at->o, " exp %" PRIu64 " %d %" PRIu64 " %a", p->count, p->scale,
                             p->zero_count, p->zero_threshold);
        put_optional(at->o, p->sum_opt_case != 0, p->sum);
        put_optional(at->o, p->min_opt_case != 0, p->min);
        put_optional(at->o, p->max_opt_case != 0, p->max);
        const METRICS(ExponentialHistogramDataPoint__Buckets) *
            sides[] = {p->positive, p->negative};
        for (int k = 0; k < 2; k++) {
            put_buckets(at->o, sides[k] != NULL ? sides[k]->offset : 0,
                        sides[k] != NULL ? sides[k]->bucket_counts : NULL,
                        sides[k] != NULL ? sides[k]->n_bucket_counts : 0);
        }
        (void)ltn_buf_puts(at->o, "\n");
    }
}

static void oracle_points(struct place *at)
{
    const METRICS(Metric) *m = at->m;
    at->temporality = at->monotonic = 0;
    if (m->name[0] == '\0') {
        return; /* our reader rejects these points */
    }
    switch ((int)m->data_case) {
    case 5:
        at->kind = LTN_OTLP_GAUGE;
        oracle_numbers(at, m->gauge->data_points, m->gauge->n_data_points);
        break;
    case 7:
        at->kind = LTN_OTLP_SUM;
        at->temporality = (int)m->sum->aggregation_temporality;
        at->monotonic = m->sum->is_monotonic;
        oracle_numbers(at, m->sum->data_points, m->sum->n_data_points);
        break;
    case 9:
        at->kind = LTN_OTLP_HISTOGRAM;
        at->temporality = (int)m->histogram->aggregation_temporality;
        oracle_histograms(at, m->histogram);
        break;
    case 10:
        at->kind = LTN_OTLP_EXP_HISTOGRAM;
        at->temporality = (int)m->exponential_histogram->aggregation_temporality;
        oracle_exps(at, m->exponential_histogram);
        break;
    default:
        break;
    }
}

static bool oracle_metrics(const struct ltn_buf *in, struct ltn_buf *out)
{
    Opentelemetry__Proto__Collector__Metrics__V1__ExportMetricsServiceRequest *r =
        opentelemetry__proto__collector__metrics__v1__export_metrics_service_request__unpack(
            NULL, in->len, (const uint8_t *)ltn_buf_str(in));
    if (r == NULL) {
        return false;
    }
    struct place at = {.o = out};
    for (size_t i = 0; i < r->n_resource_metrics; i++) {
        at.rm = r->resource_metrics[i];
        for (size_t j = 0; j < at.rm->n_scope_metrics; j++) {
            at.sm = at.rm->scope_metrics[j];
            for (size_t k = 0; k < at.sm->n_metrics; k++) {
                at.m = at.sm->metrics[k];
                oracle_points(&at);
            }
        }
    }
    opentelemetry__proto__collector__metrics__v1__export_metrics_service_request__free_unpacked(
        r, NULL);
    return true;
}

static void oracle_log(struct ltn_buf *o, const LOGS(LogRecord) * l)
{
    (void)ltn_buf_printf(o, "\n L%" PRIu64 " %" PRIu64 " %d %u %zu %zu ", l->time_unix_nano,
                         l->observed_time_unix_nano, (int)l->severity_number, l->flags,
                         l->trace_id.len == 16 ? l->trace_id.len : 0,
                         l->span_id.len == 8 ? l->span_id.len : 0);
    put_text(o, l->severity_text);
    put_text(o, l->event_name);
    oracle_value(o, l->body);
    oracle_attrs(o, l->attributes, l->n_attributes);
    (void)ltn_buf_puts(o, "\n");
}

static bool oracle_logs(const struct ltn_buf *in, struct ltn_buf *out)
{
    Opentelemetry__Proto__Collector__Logs__V1__ExportLogsServiceRequest *r =
        opentelemetry__proto__collector__logs__v1__export_logs_service_request__unpack(
            NULL, in->len, (const uint8_t *)ltn_buf_str(in));
    if (r == NULL) {
        return false;
    }
    for (size_t i = 0; i < r->n_resource_logs; i++) {
        const LOGS(ResourceLogs) *rl = r->resource_logs[i];
        for (size_t j = 0; j < rl->n_scope_logs; j++) {
            const LOGS(ScopeLogs) *sl = rl->scope_logs[j];
            for (size_t k = 0; k < sl->n_log_records; k++) {
                oracle_group(out, rl->schema_url, rl->resource, sl->schema_url, sl->scope);
                oracle_log(out, sl->log_records[k]);
            }
        }
    }
    opentelemetry__proto__collector__logs__v1__export_logs_service_request__free_unpacked(r, NULL);
    return true;
}

bool otlp_dump_oracle(bool logs, const struct ltn_buf *in, struct ltn_buf *out)
{
    return logs ? oracle_logs(in, out) : oracle_metrics(in, out);
}
