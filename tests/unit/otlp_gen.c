/* SPDX-License-Identifier: Apache-2.0 */
#include "otlp_gen.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "opentelemetry/proto/collector/logs/v1/logs_service.pb-c.h"
#include "opentelemetry/proto/collector/metrics/v1/metrics_service.pb-c.h"

#include "base/arena.h"
#include "otlp/pb_read.h"
#include "otlp/pb_write.h"

/* Short names for the generated types. */
#define COMMON(x)   Opentelemetry__Proto__Common__V1__##x
#define METRICS(x)  Opentelemetry__Proto__Metrics__V1__##x
#define LOGS(x)     Opentelemetry__Proto__Logs__V1__##x
#define RESOURCE(x) Opentelemetry__Proto__Resource__V1__##x

static uint64_t next_u64(struct otlp_rng *r)
{
    uint64_t z = (r->state += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
}

uint64_t otlp_rng_below(struct otlp_rng *r, uint64_t n)
{
    return next_u64(r) % n;
}

static bool chance(struct otlp_rng *r, unsigned percent)
{
    return otlp_rng_below(r, 100) < percent;
}

/* Memory of one message: aborts when out, as a test may. */
static void *take(struct ltn_arena *a, size_t count, size_t size)
{
    void *p = ltn_arena_calloc(a, count > 0 ? count : 1, size);
    if (p == NULL) {
        abort();
    }
    return p;
}

/* Allocates a message of a generated type and initialises it. */
#define NEW(arena, type, init)                                                                     \
    ({                                                                                             \
        type *new_message = take(arena, 1, sizeof(type));                                          \
        init(new_message);                                                                         \
        new_message;                                                                               \
    })

static char *text(struct otlp_rng *r, struct ltn_arena *a)
{
    static const char *const words[] = {"",          "a",        "cuda.sync",
                                        "h\xc3\xa9", "node-17",  "rank",
                                        "bad\xff",   "\xe2\x82", "longer text for a field"};
    char number[32];
    const char *word = words[otlp_rng_below(r, LTN_ARRAY_SIZE(words))];
    (void)snprintf(number, sizeof(number), "%u", (unsigned)otlp_rng_below(r, 50));
    size_t n = strlen(word) + strlen(number) + 1;
    char *s = take(a, n, 1);
    (void)snprintf(s, n, "%s%s", word, chance(r, 50) ? number : "");
    return s;
}

static uint64_t number(struct otlp_rng *r)
{
    return next_u64(r) >> otlp_rng_below(r, 64);
}

static double real(struct otlp_rng *r)
{
    static const double some[] = {0.0, -0.0, 1.0, -2.5, 1e-300, 1e300};
    return chance(r, 50) ? some[otlp_rng_below(r, LTN_ARRAY_SIZE(some))] : (double)number(r) / 1024;
}

static COMMON(KeyValue) * key_value(struct otlp_rng *r, struct ltn_arena *a, unsigned depth);

static COMMON(AnyValue) * any_value(struct otlp_rng *r, struct ltn_arena *a, unsigned depth)
{
    COMMON(AnyValue) *v =
        NEW(a, COMMON(AnyValue), opentelemetry__proto__common__v1__any_value__init);
    v->value_case = (COMMON(AnyValue__ValueCase))otlp_rng_below(r, depth > 0 ? 8 : 5);
    size_t n = otlp_rng_below(r, 3);
    switch ((int)v->value_case) {
    case 1:
        v->string_value = text(r, a);
        break;
    case 2:
        v->bool_value = chance(r, 50);
        break;
    case 3:
        v->int_value = (int64_t)number(r);
        break;
    case 4:
        v->double_value = real(r);
        break;
    case 5:
        v->array_value =
            NEW(a, COMMON(ArrayValue), opentelemetry__proto__common__v1__array_value__init);
        v->array_value->n_values = n;
        v->array_value->values = take(a, n, sizeof(void *));
        for (size_t i = 0; i < n; i++) {
            v->array_value->values[i] = any_value(r, a, depth - 1);
        }
        break;
    case 6:
        v->kvlist_value =
            NEW(a, COMMON(KeyValueList), opentelemetry__proto__common__v1__key_value_list__init);
        v->kvlist_value->n_values = n;
        v->kvlist_value->values = take(a, n, sizeof(void *));
        for (size_t i = 0; i < n; i++) {
            v->kvlist_value->values[i] = key_value(r, a, depth - 1);
        }
        break;
    case 7:
        v->bytes_value.data = (uint8_t *)text(r, a);
        v->bytes_value.len = strlen((char *)v->bytes_value.data);
        break;
    default:
        break;
    }
    return v;
}

static COMMON(KeyValue) * key_value(struct otlp_rng *r, struct ltn_arena *a, unsigned depth)
{
    COMMON(KeyValue) *kv =
        NEW(a, COMMON(KeyValue), opentelemetry__proto__common__v1__key_value__init);
    kv->key = text(r, a);
    if (chance(r, 95)) {
        kv->value = any_value(r, a, depth);
    }
    return kv;
}

static COMMON(KeyValue) * *attributes(struct otlp_rng *r, struct ltn_arena *a, size_t *n)
{
    *n = otlp_rng_below(r, 5);
    COMMON(KeyValue) **list = take(a, *n, sizeof(void *));
    for (size_t i = 0; i < *n; i++) {
        list[i] = key_value(r, a, 2);
    }
    return list;
}

static RESOURCE(Resource) * resource(struct otlp_rng *r, struct ltn_arena *a)
{
    RESOURCE(Resource) *m =
        NEW(a, RESOURCE(Resource), opentelemetry__proto__resource__v1__resource__init);
    m->attributes = attributes(r, a, &m->n_attributes);
    m->dropped_attributes_count = (uint32_t)otlp_rng_below(r, 3);
    return m;
}

static COMMON(InstrumentationScope) * scope(struct otlp_rng *r, struct ltn_arena *a)
{
    COMMON(InstrumentationScope) *m =
        NEW(a, COMMON(InstrumentationScope),
            opentelemetry__proto__common__v1__instrumentation_scope__init);
    m->name = text(r, a);
    m->version = text(r, a);
    m->attributes = attributes(r, a, &m->n_attributes);
    return m;
}

static METRICS(NumberDataPoint) * number_point(struct otlp_rng *r, struct ltn_arena *a)
{
    METRICS(NumberDataPoint) *p = NEW(a, METRICS(NumberDataPoint),
                                      opentelemetry__proto__metrics__v1__number_data_point__init);
    p->attributes = attributes(r, a, &p->n_attributes);
    p->start_time_unix_nano = number(r);
    p->time_unix_nano = number(r);
    p->flags = (uint32_t)otlp_rng_below(r, 3);
    switch (otlp_rng_below(r, 3)) {
    case 0:
        p->value_case = OPENTELEMETRY__PROTO__METRICS__V1__NUMBER_DATA_POINT__VALUE_AS_DOUBLE;
        p->as_double = real(r);
        break;
    case 1:
        p->value_case = OPENTELEMETRY__PROTO__METRICS__V1__NUMBER_DATA_POINT__VALUE_AS_INT;
        p->as_int = (int64_t)number(r);
        break;
    default:
        break;
    }
    return p;
}

static METRICS(HistogramDataPoint) * histogram_point(struct otlp_rng *r, struct ltn_arena *a)
{
    METRICS(HistogramDataPoint) *p =
        NEW(a, METRICS(HistogramDataPoint),
            opentelemetry__proto__metrics__v1__histogram_data_point__init);
    p->attributes = attributes(r, a, &p->n_attributes);
    p->time_unix_nano = number(r);
    p->count = number(r);
    p->sum_opt_case = chance(r, 50) ? 5 : 0;
    p->sum = real(r);
    p->min_opt_case = chance(r, 50) ? 11 : 0;
    p->min = real(r);
    p->max_opt_case = chance(r, 50) ? 12 : 0;
    p->max = real(r);
    p->n_explicit_bounds = otlp_rng_below(r, 6);
    p->n_bucket_counts = p->n_explicit_bounds + 1;
    p->bucket_counts = take(a, p->n_bucket_counts, sizeof(uint64_t));
    p->explicit_bounds = take(a, p->n_explicit_bounds, sizeof(double));
    for (size_t i = 0; i < p->n_bucket_counts; i++) {
        p->bucket_counts[i] = number(r);
    }
    for (size_t i = 0; i < p->n_explicit_bounds; i++) {
        p->explicit_bounds[i] = (double)i * 1.5 - 2;
    }
    return p;
}

typedef METRICS(ExponentialHistogramDataPoint__Buckets) buckets_message;

static buckets_message *buckets(struct otlp_rng *r, struct ltn_arena *a)
{
    buckets_message *b =
        NEW(a, buckets_message,
            opentelemetry__proto__metrics__v1__exponential_histogram_data_point__buckets__init);
    b->offset = (int32_t)otlp_rng_below(r, 20) - 10;
    b->n_bucket_counts = otlp_rng_below(r, 12);
    b->bucket_counts = take(a, b->n_bucket_counts, sizeof(uint64_t));
    for (size_t i = 0; i < b->n_bucket_counts; i++) {
        b->bucket_counts[i] = number(r);
    }
    return b;
}

static METRICS(ExponentialHistogramDataPoint) * exp_point(struct otlp_rng *r, struct ltn_arena *a)
{
    METRICS(ExponentialHistogramDataPoint) *p =
        NEW(a, METRICS(ExponentialHistogramDataPoint),
            opentelemetry__proto__metrics__v1__exponential_histogram_data_point__init);
    p->attributes = attributes(r, a, &p->n_attributes);
    p->start_time_unix_nano = number(r);
    p->time_unix_nano = number(r);
    p->count = number(r);
    p->sum_opt_case = chance(r, 50) ? 5 : 0;
    p->sum = real(r);
    p->min_opt_case = chance(r, 50) ? 12 : 0;
    p->min = real(r);
    p->max_opt_case = chance(r, 50) ? 13 : 0;
    p->max = real(r);
    p->scale = (int32_t)otlp_rng_below(r, 16) - 5;
    p->zero_count = number(r);
    p->zero_threshold = chance(r, 30) ? 0.5 : 0;
    p->positive = chance(r, 80) ? buckets(r, a) : NULL;
    p->negative = chance(r, 20) ? buckets(r, a) : NULL;
    return p;
}

/* n points made by `point` into the data_points of *data. */
#define FILL(data, point)                                                                          \
    do {                                                                                           \
        (data)->n_data_points = otlp_rng_below(r, 4);                                              \
        (data)->data_points = take(a, (data)->n_data_points, sizeof(void *));                      \
        for (size_t fill_i = 0; fill_i < (data)->n_data_points; fill_i++) {                        \
            (data)->data_points[fill_i] = point(r, a);                                             \
        }                                                                                          \
    } while (0)

static METRICS(Metric) * metric(struct otlp_rng *r, struct ltn_arena *a)
{
    METRICS(Metric) *m = NEW(a, METRICS(Metric), opentelemetry__proto__metrics__v1__metric__init);
    METRICS(AggregationTemporality) t = (METRICS(AggregationTemporality))otlp_rng_below(r, 3);
    m->name = text(r, a);
    m->unit = text(r, a);
    m->description = text(r, a);
    switch (otlp_rng_below(r, 5)) {
    case 0:
        m->data_case = OPENTELEMETRY__PROTO__METRICS__V1__METRIC__DATA_GAUGE;
        m->gauge = NEW(a, METRICS(Gauge), opentelemetry__proto__metrics__v1__gauge__init);
        FILL(m->gauge, number_point);
        break;
    case 1:
        m->data_case = OPENTELEMETRY__PROTO__METRICS__V1__METRIC__DATA_SUM;
        m->sum = NEW(a, METRICS(Sum), opentelemetry__proto__metrics__v1__sum__init);
        m->sum->aggregation_temporality = t;
        m->sum->is_monotonic = chance(r, 50);
        FILL(m->sum, number_point);
        break;
    case 2:
        m->data_case = OPENTELEMETRY__PROTO__METRICS__V1__METRIC__DATA_HISTOGRAM;
        m->histogram =
            NEW(a, METRICS(Histogram), opentelemetry__proto__metrics__v1__histogram__init);
        m->histogram->aggregation_temporality = t;
        FILL(m->histogram, histogram_point);
        break;
    case 3:
        m->data_case = OPENTELEMETRY__PROTO__METRICS__V1__METRIC__DATA_EXPONENTIAL_HISTOGRAM;
        m->exponential_histogram =
            NEW(a, METRICS(ExponentialHistogram),
                opentelemetry__proto__metrics__v1__exponential_histogram__init);
        m->exponential_histogram->aggregation_temporality = t;
        FILL(m->exponential_histogram, exp_point);
        break;
    default:
        break;
    }
    return m;
}

void otlp_gen_metrics(struct otlp_rng *r, struct ltn_buf *out)
{
    Opentelemetry__Proto__Collector__Metrics__V1__ExportMetricsServiceRequest request;
    struct ltn_arena arena, *a = &arena;
    ltn_arena_init(a, 1 << 16, 1 << 26);
    opentelemetry__proto__collector__metrics__v1__export_metrics_service_request__init(&request);
    request.n_resource_metrics = otlp_rng_below(r, 4);
    request.resource_metrics = take(a, request.n_resource_metrics, sizeof(void *));
    for (size_t i = 0; i < request.n_resource_metrics; i++) {
        METRICS(ResourceMetrics) *rm = NEW(
            a, METRICS(ResourceMetrics), opentelemetry__proto__metrics__v1__resource_metrics__init);
        request.resource_metrics[i] = rm;
        rm->resource = chance(r, 90) ? resource(r, a) : NULL;
        rm->schema_url = text(r, a);
        rm->n_scope_metrics = otlp_rng_below(r, 4);
        rm->scope_metrics = take(a, rm->n_scope_metrics, sizeof(void *));
        for (size_t j = 0; j < rm->n_scope_metrics; j++) {
            METRICS(ScopeMetrics) *sm = NEW(a, METRICS(ScopeMetrics),
                                            opentelemetry__proto__metrics__v1__scope_metrics__init);
            rm->scope_metrics[j] = sm;
            sm->scope = chance(r, 90) ? scope(r, a) : NULL;
            sm->schema_url = text(r, a);
            sm->n_metrics = otlp_rng_below(r, 4);
            sm->metrics = take(a, sm->n_metrics, sizeof(void *));
            for (size_t k = 0; k < sm->n_metrics; k++) {
                sm->metrics[k] = metric(r, a);
            }
        }
    }
    size_t n = protobuf_c_message_get_packed_size(&request.base);
    uint8_t *at = ltn_buf_reserve(out, n);
    if (at == NULL) {
        abort();
    }
    ltn_buf_commit(out, protobuf_c_message_pack(&request.base, at));
    ltn_arena_done(a);
}

static LOGS(LogRecord) * log_record(struct otlp_rng *r, struct ltn_arena *a)
{
    LOGS(LogRecord) *l = NEW(a, LOGS(LogRecord), opentelemetry__proto__logs__v1__log_record__init);
    l->time_unix_nano = number(r);
    l->observed_time_unix_nano = number(r);
    l->severity_number = (LOGS(SeverityNumber))otlp_rng_below(r, 25);
    l->severity_text = text(r, a);
    l->event_name = text(r, a);
    l->flags = (uint32_t)number(r);
    l->body = chance(r, 80) ? any_value(r, a, 3) : NULL;
    l->attributes = attributes(r, a, &l->n_attributes);
    l->trace_id.len = chance(r, 50) ? 16 : otlp_rng_below(r, 20);
    l->trace_id.data = take(a, l->trace_id.len, 1);
    l->span_id.len = chance(r, 50) ? 8 : otlp_rng_below(r, 20);
    l->span_id.data = take(a, l->span_id.len, 1);
    return l;
}

void otlp_gen_logs(struct otlp_rng *r, struct ltn_buf *out)
{
    Opentelemetry__Proto__Collector__Logs__V1__ExportLogsServiceRequest request;
    struct ltn_arena arena, *a = &arena;
    ltn_arena_init(a, 1 << 16, 1 << 26);
    opentelemetry__proto__collector__logs__v1__export_logs_service_request__init(&request);
    request.n_resource_logs = otlp_rng_below(r, 4);
    request.resource_logs = take(a, request.n_resource_logs, sizeof(void *));
    for (size_t i = 0; i < request.n_resource_logs; i++) {
        LOGS(ResourceLogs) *rl =
            NEW(a, LOGS(ResourceLogs), opentelemetry__proto__logs__v1__resource_logs__init);
        request.resource_logs[i] = rl;
        rl->resource = chance(r, 90) ? resource(r, a) : NULL;
        rl->n_scope_logs = otlp_rng_below(r, 4);
        rl->scope_logs = take(a, rl->n_scope_logs, sizeof(void *));
        for (size_t j = 0; j < rl->n_scope_logs; j++) {
            LOGS(ScopeLogs) *sl =
                NEW(a, LOGS(ScopeLogs), opentelemetry__proto__logs__v1__scope_logs__init);
            rl->scope_logs[j] = sl;
            sl->scope = chance(r, 90) ? scope(r, a) : NULL;
            sl->n_log_records = otlp_rng_below(r, 4);
            sl->log_records = take(a, sl->n_log_records, sizeof(void *));
            for (size_t k = 0; k < sl->n_log_records; k++) {
                sl->log_records[k] = log_record(r, a);
            }
        }
    }
    size_t n = protobuf_c_message_get_packed_size(&request.base);
    uint8_t *at = ltn_buf_reserve(out, n);
    if (at == NULL) {
        abort();
    }
    ltn_buf_commit(out, protobuf_c_message_pack(&request.base, at));
    ltn_arena_done(a);
}

/* Which fields of which message are messages, and what may be done with them. */
enum message {
    M_NONE,
    M_METRICS_REQUEST,
    M_RESOURCE_METRICS,
    M_SCOPE_METRICS,
    M_METRIC,
    M_NUMBERS,
    M_HISTOGRAMS,
    M_EXPS,
    M_NUMBER,
    M_HISTOGRAM,
    M_EXP,
    M_BUCKETS,
    M_LOGS_REQUEST,
    M_RESOURCE_LOGS,
    M_SCOPE_LOGS,
    M_LOG,
    M_RESOURCE,
    M_SCOPE,
    M_KEY_VALUE,
    M_ANY_VALUE,
    M_ARRAY,
    M_KVLIST,
};

struct field_info {
    enum message in;
    uint32_t number;
    enum message is;
    bool merges; /* singular and outside a oneof: may come in pieces */
};

static const struct field_info schema[] = {
    {M_METRICS_REQUEST, 1, M_RESOURCE_METRICS, false},
    {M_RESOURCE_METRICS, 1, M_RESOURCE, true},
    {M_RESOURCE_METRICS, 2, M_SCOPE_METRICS, false},
    {M_SCOPE_METRICS, 1, M_SCOPE, true},
    {M_SCOPE_METRICS, 2, M_METRIC, false},
    {M_METRIC, 5, M_NUMBERS, false},
    {M_METRIC, 7, M_NUMBERS, false},
    {M_METRIC, 9, M_HISTOGRAMS, false},
    {M_METRIC, 10, M_EXPS, false},
    {M_NUMBERS, 1, M_NUMBER, false},
    {M_HISTOGRAMS, 1, M_HISTOGRAM, false},
    {M_EXPS, 1, M_EXP, false},
    {M_NUMBER, 7, M_KEY_VALUE, false},
    {M_HISTOGRAM, 9, M_KEY_VALUE, false},
    {M_EXP, 1, M_KEY_VALUE, false},
    {M_EXP, 8, M_BUCKETS, true},
    {M_EXP, 9, M_BUCKETS, true},
    {M_LOGS_REQUEST, 1, M_RESOURCE_LOGS, false},
    {M_RESOURCE_LOGS, 1, M_RESOURCE, true},
    {M_RESOURCE_LOGS, 2, M_SCOPE_LOGS, false},
    {M_SCOPE_LOGS, 1, M_SCOPE, true},
    {M_SCOPE_LOGS, 2, M_LOG, false},
    {M_LOG, 5, M_ANY_VALUE, false},
    {M_LOG, 6, M_KEY_VALUE, false},
    {M_RESOURCE, 1, M_KEY_VALUE, false},
    {M_SCOPE, 3, M_KEY_VALUE, false},
    {M_KEY_VALUE, 2, M_ANY_VALUE, false},
    {M_ANY_VALUE, 5, M_ARRAY, false},
    {M_ANY_VALUE, 6, M_KVLIST, false},
    {M_ARRAY, 1, M_ANY_VALUE, false},
    {M_KVLIST, 1, M_KEY_VALUE, false},
};

static const struct field_info *info_of(enum message in, uint32_t number_in_message)
{
    for (size_t i = 0; i < LTN_ARRAY_SIZE(schema); i++) {
        if (schema[i].in == in && schema[i].number == number_in_message) {
            return &schema[i];
        }
    }
    return NULL;
}

/* A varint, sometimes longer than needed. */
static void put_varint(struct otlp_rng *r, struct ltn_buf *b, uint64_t v, size_t max_bytes)
{
    size_t n = ltn_pb_varint_bytes(v);
    size_t pad = chance(r, 5) && n < max_bytes ? 1 : 0;
    size_t start = b->len;
    ltn_pb_put_varint(b, v);
    if (pad > 0 && b->len > start) {
        b->data[b->len - 1] = (char)(b->data[b->len - 1] | (char)0x80);
        (void)ltn_buf_putc(b, 0);
    }
}

static void put_tag(struct otlp_rng *r, struct ltn_buf *b, uint32_t number_of, uint32_t type)
{
    put_varint(r, b, (uint64_t)number_of << 3 | type, 5);
}

static void put_len_field(struct otlp_rng *r, struct ltn_buf *b, uint32_t number_of, const void *p,
                          size_t n)
{
    put_tag(r, b, number_of, LTN_PB_LEN);
    put_varint(r, b, n, 4);
    (void)ltn_buf_append(b, p, n);
}

static void put_number_field(struct otlp_rng *r, struct ltn_buf *b, const struct ltn_pb_field *f)
{
    put_tag(r, b, f->number, f->type);
    if (f->type == LTN_PB_VARINT) {
        put_varint(r, b, f->value, 9);
    } else {
        uint64_t v = f->value;
        (void)ltn_buf_append(b, &v, f->type == LTN_PB_I64 ? 8 : 4);
    }
}

static void put_unknown(struct otlp_rng *r, struct ltn_buf *b)
{
    static const uint32_t types[] = {LTN_PB_VARINT, LTN_PB_I64, LTN_PB_LEN, LTN_PB_I32};
    struct ltn_pb_field f = {.number = 100 + (uint32_t)otlp_rng_below(r, 5000),
                             .type = types[otlp_rng_below(r, 4)],
                             .value = number(r)};
    if (f.type == LTN_PB_LEN) {
        put_len_field(r, b, f.number, "\xff\xff\xff\x0a\x0b", otlp_rng_below(r, 6));
    } else {
        put_number_field(r, b, &f);
    }
}

#define FIELDS_MAX 256

static void rearrange(struct otlp_rng *r, enum message kind, const void *data, size_t n,
                      struct ltn_buf *out);

/* A packed run of numbers that may also stand one by one. */
static bool is_packed(enum message kind, uint32_t number_of, enum ltn_pb_type *ret_elem)
{
    *ret_elem = kind == M_BUCKETS ? LTN_PB_VARINT : LTN_PB_I64;
    return (kind == M_BUCKETS && number_of == 2) ||
           (kind == M_HISTOGRAM && (number_of == 6 || number_of == 7));
}

static void put_packed(struct otlp_rng *r, struct ltn_buf *out, const struct ltn_pb_field *f,
                       enum ltn_pb_type elem)
{
    uint64_t values[64];
    size_t n = 0;
    if (ltn_pb_repeated(f, elem, values, LTN_ARRAY_SIZE(values), &n) < 0) {
        abort();
    }
    if (chance(r, 50)) {
        put_len_field(r, out, f->number, f->data, (size_t)f->value);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        struct ltn_pb_field one = {.number = f->number, .type = elem, .value = values[i]};
        put_number_field(r, out, &one);
    }
}

/* A message that may merge, in two pieces. protobuf-c forgets plain numbers of the first piece
 * where the second lacks them (other implementations keep them), so those go into both. */
static void put_pieces(struct otlp_rng *r, const struct field_info *info,
                       const struct ltn_pb_field *f, struct ltn_buf *out)
{
    struct ltn_buf piece;
    struct ltn_pb_cur c;
    struct ltn_pb_field part;
    size_t n_fields = 0;
    size_t cut = otlp_rng_below(r, 4);
    const uint8_t *middle = f->data;
    ltn_buf_init(&piece, 1 << 24);
    ltn_pb_init(&c, f->data, (size_t)f->value, 40);
    struct ltn_pb_field plain = {.number = 0};
    while (n_fields < cut && ltn_pb_next(&c, &part) > 0) {
        plain = part.type == LTN_PB_VARINT ? part : plain;
        n_fields++;
        middle = c.p;
    }
    rearrange(r, info->is, f->data, (size_t)(middle - f->data), &piece);
    put_len_field(r, out, f->number, piece.data, piece.len);
    ltn_buf_reset(&piece);
    if (plain.number != 0) {
        put_number_field(r, &piece, &plain);
    }
    rearrange(r, info->is, middle, (size_t)(f->data + f->value - middle), &piece);
    put_len_field(r, out, f->number, piece.data, piece.len);
    ltn_buf_done(&piece);
}

static void put_field(struct otlp_rng *r, enum message kind, const struct ltn_pb_field *f,
                      struct ltn_buf *out)
{
    const struct field_info *info = info_of(kind, f->number);
    enum ltn_pb_type elem;
    if (f->type != LTN_PB_LEN) {
        if (chance(r, 10)) { /* an older value that the last one overrides */
            struct ltn_pb_field old = *f;
            old.value = f->type == LTN_PB_I32 ? 7 : f->value / 2;
            put_number_field(r, out, &old);
        }
        put_number_field(r, out, f);
    } else if (is_packed(kind, f->number, &elem)) {
        put_packed(r, out, f, elem);
    } else if (info != NULL && info->merges && chance(r, 40)) {
        put_pieces(r, info, f, out);
    } else if (info != NULL) {
        struct ltn_buf sub;
        ltn_buf_init(&sub, 1 << 24);
        rearrange(r, info->is, f->data, (size_t)f->value, &sub);
        put_len_field(r, out, f->number, sub.data, sub.len);
        ltn_buf_done(&sub);
    } else {
        put_len_field(r, out, f->number, f->data, (size_t)f->value);
    }
}

/* The fields of one message in another order. */
static void rearrange(struct otlp_rng *r, enum message kind, const void *data, size_t n,
                      struct ltn_buf *out)
{
    struct ltn_pb_field fields[FIELDS_MAX];
    struct ltn_pb_cur c;
    size_t count = 0;
    ltn_pb_init(&c, data, n, 40);
    while (count < FIELDS_MAX && ltn_pb_next(&c, &fields[count]) > 0) {
        count++;
    }
    if (count == FIELDS_MAX) {
        abort();
    }
    for (size_t i = count; i > 1; i--) {
        size_t j = otlp_rng_below(r, i);
        struct ltn_pb_field t = fields[i - 1];
        fields[i - 1] = fields[j];
        fields[j] = t;
    }
    for (size_t i = 0; i < count; i++) {
        if (chance(r, 10)) {
            put_unknown(r, out);
        }
        put_field(r, kind, &fields[i], out);
    }
    if (chance(r, 5)) {
        put_unknown(r, out);
    }
}

void otlp_gen_rearrange(struct otlp_rng *r, bool logs, const struct ltn_buf *in,
                        struct ltn_buf *out)
{
    rearrange(r, logs ? M_LOGS_REQUEST : M_METRICS_REQUEST, in->data, in->len, out);
}
