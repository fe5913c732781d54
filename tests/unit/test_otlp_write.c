/* SPDX-License-Identifier: Apache-2.0 */
/* What the writers produce, as protobuf-c understands it. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "opentelemetry/proto/collector/logs/v1/logs_service.pb-c.h"
#include "opentelemetry/proto/collector/metrics/v1/metrics_service.pb-c.h"

#include "base/err.h"
#include "otlp/logs_write.h"
#include "otlp/metrics_write.h"

typedef Opentelemetry__Proto__Collector__Metrics__V1__ExportMetricsServiceRequest metrics_request;
typedef Opentelemetry__Proto__Collector__Logs__V1__ExportLogsServiceRequest logs_request;

static metrics_request *unpack_metrics(const struct ltn_buf *b)
{
    return opentelemetry__proto__collector__metrics__v1__export_metrics_service_request__unpack(
        NULL, b->len, (const uint8_t *)b->data);
}

static void free_metrics(metrics_request *r)
{
    opentelemetry__proto__collector__metrics__v1__export_metrics_service_request__free_unpacked(
        r, NULL);
}

#define ATTRS(...)                                                                                 \
    ((struct ltn_otlp_attrs){(const struct ltn_otlp_attr[]){__VA_ARGS__},                          \
                             sizeof((const struct ltn_otlp_attr[]){__VA_ARGS__}) /                 \
                                 sizeof(struct ltn_otlp_attr)})

static struct ltn_otlp_metric metric(const char *name, enum ltn_otlp_kind kind)
{
    return (struct ltn_otlp_metric){.name = ltn_otlp_str(name),
                                    .unit = ltn_otlp_str("s"),
                                    .description = ltn_otlp_str("text"),
                                    .kind = kind,
                                    .temporality = LTN_OTLP_CUMULATIVE,
                                    .monotonic = kind == LTN_OTLP_SUM};
}

static void write_all_kinds(struct ltn_buf *b)
{
    static const uint64_t counts[] = {1, 0, 300};
    static const uint64_t explicit_counts[] = {4, 5};
    static const double bounds[] = {0.25};
    struct ltn_otlp_metrics_writer w;
    struct ltn_otlp_point at = {
        .attrs = ATTRS(ltn_otlp_attr_str("op", "sync"), ltn_otlp_attr_int("rank", -3)),
        .start_ns = 100,
        .time_ns = 200,
        .flags = 0};
    struct ltn_otlp_number n = {.point = at, .type = LTN_OTLP_INT, .i = -5};
    struct ltn_otlp_exp_histogram e = {.point = at,
                                       .count = 303,
                                       .sum = 1.5,
                                       .has_sum = true,
                                       .min = 0,
                                       .has_min = true,
                                       .scale = -1,
                                       .zero_count = 2,
                                       .zero_threshold = 1e-9,
                                       .positive = {.offset = -7, .counts = counts, .n = 3}};
    struct ltn_otlp_histogram h = {.point = at,
                                   .count = 9,
                                   .max = 2.0,
                                   .has_max = true,
                                   .bucket_counts = explicit_counts,
                                   .bucket_n = 2,
                                   .bounds = bounds,
                                   .bound_n = 1};
    struct ltn_otlp_metric gauge = metric("g", LTN_OTLP_GAUGE);
    struct ltn_otlp_metric sum = metric("s", LTN_OTLP_SUM);
    struct ltn_otlp_metric exp = metric("e", LTN_OTLP_EXP_HISTOGRAM);
    struct ltn_otlp_metric hist = metric("h", LTN_OTLP_HISTOGRAM);
    ltn_otlp_metrics_begin(&w, b);
    assert_int_equal(ltn_otlp_metrics_resource(&w, ATTRS(ltn_otlp_attr_str("host.name", "n1"),
                                                         ltn_otlp_attr_bool("up", true),
                                                         ltn_otlp_attr_double("x", 0.5))),
                     0);
    assert_int_equal(ltn_otlp_metrics_scope(&w, "lanterne", "0.1"), 0);
    assert_int_equal(ltn_otlp_metrics_metric(&w, &gauge), 0);
    assert_int_equal(ltn_otlp_metrics_number(&w, &n), 0);
    n.type = LTN_OTLP_DOUBLE;
    n.d = 2.5;
    n.point.flags = LTN_OTLP_NO_RECORDED_VALUE;
    assert_int_equal(ltn_otlp_metrics_number(&w, &n), 0);
    assert_int_equal(ltn_otlp_metrics_exp_histogram(&w, &e), -EINVAL);
    assert_int_equal(ltn_otlp_metrics_metric(&w, &sum), 0);
    assert_int_equal(ltn_otlp_metrics_number(&w, &n), 0);
    assert_int_equal(ltn_otlp_metrics_metric(&w, &exp), 0);
    assert_int_equal(ltn_otlp_metrics_exp_histogram(&w, &e), 0);
    assert_int_equal(ltn_otlp_metrics_number(&w, &n), -EINVAL);
    assert_int_equal(ltn_otlp_metrics_scope(&w, "second", NULL), 0);
    assert_int_equal(ltn_otlp_metrics_metric(&w, &hist), 0);
    assert_int_equal(ltn_otlp_metrics_histogram(&w, &h), 0);
    assert_int_equal(ltn_otlp_metrics_end(&w), 0);
    assert_int_equal(w.points, 5);
}

static void check_exp(const Opentelemetry__Proto__Metrics__V1__Metric *m)
{
    assert_string_equal(m->name, "e");
    assert_int_equal(m->exponential_histogram->aggregation_temporality, 2);
    Opentelemetry__Proto__Metrics__V1__ExponentialHistogramDataPoint *p =
        m->exponential_histogram->data_points[0];
    assert_int_equal(p->count, 303);
    assert_true(p->sum == 1.5 && p->sum_opt_case != 0);
    assert_true(p->min_opt_case != 0 && p->min == 0);
    assert_true(p->max_opt_case == 0);
    assert_int_equal(p->scale, -1);
    assert_int_equal(p->zero_count, 2);
    assert_true(p->zero_threshold == 1e-9);
    assert_int_equal(p->positive->offset, -7);
    assert_int_equal(p->positive->n_bucket_counts, 3);
    assert_int_equal(p->positive->bucket_counts[2], 300);
    assert_null(p->negative);
    assert_int_equal(p->n_attributes, 2);
}

static void test_metrics(void **state)
{
    (void)state;
    struct ltn_buf b;
    ltn_buf_init(&b, 1 << 20);
    write_all_kinds(&b);
    metrics_request *r = unpack_metrics(&b);
    assert_non_null(r);
    assert_int_equal(r->n_resource_metrics, 1);
    Opentelemetry__Proto__Metrics__V1__ResourceMetrics *rm = r->resource_metrics[0];
    assert_int_equal(rm->resource->n_attributes, 3);
    assert_string_equal(rm->resource->attributes[0]->key, "host.name");
    assert_string_equal(rm->resource->attributes[0]->value->string_value, "n1");
    assert_true(rm->resource->attributes[1]->value->bool_value);
    assert_true(rm->resource->attributes[2]->value->double_value == 0.5);
    assert_int_equal(rm->n_scope_metrics, 2);
    Opentelemetry__Proto__Metrics__V1__ScopeMetrics *sm = rm->scope_metrics[0];
    assert_string_equal(sm->scope->name, "lanterne");
    assert_string_equal(sm->scope->version, "0.1");
    assert_int_equal(sm->n_metrics, 3);
    assert_string_equal(sm->metrics[0]->unit, "s");
    assert_string_equal(sm->metrics[0]->description, "text");
    Opentelemetry__Proto__Metrics__V1__Gauge *g = sm->metrics[0]->gauge;
    assert_int_equal(g->n_data_points, 2);
    assert_int_equal(g->data_points[0]->as_int, -5);
    assert_int_equal(g->data_points[0]->start_time_unix_nano, 100);
    assert_int_equal(g->data_points[0]->time_unix_nano, 200);
    assert_int_equal(g->data_points[0]->attributes[1]->value->int_value, -3);
    assert_true(g->data_points[1]->as_double == 2.5);
    assert_int_equal(g->data_points[1]->flags, 1);
    assert_true(sm->metrics[1]->sum->is_monotonic);
    assert_int_equal(sm->metrics[1]->sum->aggregation_temporality, 2);
    check_exp(sm->metrics[2]);
    sm = rm->scope_metrics[1];
    assert_string_equal(sm->scope->name, "second");
    Opentelemetry__Proto__Metrics__V1__HistogramDataPoint *h =
        sm->metrics[0]->histogram->data_points[0];
    assert_int_equal(h->n_bucket_counts, 2);
    assert_int_equal(h->bucket_counts[1], 5);
    assert_true(h->explicit_bounds[0] == 0.25);
    assert_true(h->sum_opt_case == 0 && h->max_opt_case != 0 && h->max == 2.0);
    free_metrics(r);
    ltn_buf_done(&b);
}

/* Packing what protobuf-c understood gives the same number of bytes: nothing written is longer than
 * it must be. */
static void test_metrics_shortest(void **state)
{
    (void)state;
    struct ltn_buf b;
    ltn_buf_init(&b, 1 << 20);
    write_all_kinds(&b);
    metrics_request *r = unpack_metrics(&b);
    assert_non_null(r);
    assert_int_equal(
        opentelemetry__proto__collector__metrics__v1__export_metrics_service_request__get_packed_size(
            r),
        b.len);
    free_metrics(r);
    ltn_buf_done(&b);
}

static size_t count_points(const struct ltn_buf *b)
{
    size_t n = 0;
    metrics_request *r = unpack_metrics(b);
    assert_non_null(r);
    for (size_t i = 0; i < r->n_resource_metrics; i++) {
        for (size_t j = 0; j < r->resource_metrics[i]->n_scope_metrics; j++) {
            Opentelemetry__Proto__Metrics__V1__ScopeMetrics *s =
                r->resource_metrics[i]->scope_metrics[j];
            assert_true(s->n_metrics > 0);
            for (size_t k = 0; k < s->n_metrics; k++) {
                assert_true(s->metrics[k]->gauge->n_data_points > 0);
                n += s->metrics[k]->gauge->n_data_points;
            }
        }
    }
    free_metrics(r);
    return n;
}

/* At every possible ceiling the batch stays whole: it parses, has just the points that were
 * accepted, and nothing empty. */
static void test_metrics_ceiling(void **state)
{
    (void)state;
    struct ltn_otlp_number n = {
        .point = {.attrs = ATTRS(ltn_otlp_attr_str("k", "value")), .time_ns = 1},
        .type = LTN_OTLP_INT,
        .i = 1};
    struct ltn_otlp_metric m = metric("metric", LTN_OTLP_GAUGE);
    uint64_t most = 0;
    for (size_t max = 0; max < 700; max++) {
        struct ltn_buf b;
        struct ltn_otlp_metrics_writer w;
        ltn_buf_init(&b, max);
        ltn_otlp_metrics_begin(&w, &b);
        int rc = 0;
        for (int i = 0; i < 12 && rc == 0; i++) {
            if (i % 4 == 0) {
                rc = ltn_otlp_metrics_resource(&w, ATTRS(ltn_otlp_attr_str("host", "name")));
                rc = rc < 0 ? rc : ltn_otlp_metrics_scope(&w, "scope", "1");
            }
            if (rc == 0 && i % 2 == 0) {
                rc = ltn_otlp_metrics_metric(&w, &m);
            }
            rc = rc < 0 ? rc : ltn_otlp_metrics_number(&w, &n);
        }
        assert_true(rc == 0 || rc == LTN_ERR_TOO_LARGE);
        assert_int_equal(ltn_otlp_metrics_end(&w), 0);
        assert_true(b.len <= max);
        assert_int_equal(count_points(&b), w.points);
        assert_true(w.points >= most);
        most = w.points;
        if (w.points == 0) {
            assert_int_equal(b.len, 0);
        }
        ltn_buf_done(&b);
    }
    assert_int_equal(most, 12);
}

/* Where all four open levels pass 127 bytes, and 16383, at once: closing them needs the most room
 * while the least is left. */
static void test_metrics_ceiling_wide(void **state)
{
    (void)state;
    static const size_t around[] = {100, 330, 16300, 16620};
    struct ltn_otlp_number n = {.point = {.time_ns = 1}, .type = LTN_OTLP_INT, .i = 1};
    struct ltn_otlp_metric m = metric("m", LTN_OTLP_GAUGE);
    for (size_t k = 0; k < LTN_ARRAY_SIZE(around); k += 2) {
        for (size_t max = around[k]; max < around[k + 1]; max++) {
            struct ltn_buf b;
            struct ltn_otlp_metrics_writer w;
            ltn_buf_init(&b, max);
            ltn_otlp_metrics_begin(&w, &b);
            assert_int_equal(ltn_otlp_metrics_resource(&w, (struct ltn_otlp_attrs){NULL, 0}), 0);
            assert_int_equal(ltn_otlp_metrics_scope(&w, NULL, NULL), 0);
            assert_int_equal(ltn_otlp_metrics_metric(&w, &m), 0);
            while (ltn_otlp_metrics_number(&w, &n) == 0) {
            }
            assert_int_equal(ltn_otlp_metrics_end(&w), 0);
            assert_true(b.len <= max && b.len + 64 > max);
            assert_int_equal(count_points(&b), w.points);
            ltn_buf_done(&b);
        }
    }
}

static void test_metrics_misuse(void **state)
{
    (void)state;
    struct ltn_buf b;
    struct ltn_otlp_metrics_writer w;
    struct ltn_otlp_number n = {.type = LTN_OTLP_INT};
    struct ltn_otlp_metric m = metric("m", LTN_OTLP_GAUGE);
    ltn_buf_init(&b, 1000);
    ltn_otlp_metrics_begin(&w, &b);
    assert_int_equal(ltn_otlp_metrics_scope(&w, "s", NULL), -EINVAL);
    assert_int_equal(ltn_otlp_metrics_metric(&w, &m), -EINVAL);
    assert_int_equal(ltn_otlp_metrics_number(&w, &n), -EINVAL);
    assert_int_equal(ltn_otlp_metrics_resource(&w, (struct ltn_otlp_attrs){NULL, 0}), 0);
    assert_int_equal(ltn_otlp_metrics_scope(&w, NULL, NULL), 0);
    m.kind = LTN_OTLP_SUMMARY;
    assert_int_equal(ltn_otlp_metrics_metric(&w, &m), -EINVAL);
    m.kind = LTN_OTLP_GAUGE;
    m.name = ltn_otlp_str("");
    assert_int_equal(ltn_otlp_metrics_metric(&w, &m), -EINVAL);
    assert_int_equal(ltn_otlp_metrics_end(&w), 0);
    assert_int_equal(b.len, 0);
    ltn_buf_done(&b);
}

static void test_logs(void **state)
{
    (void)state;
    struct ltn_buf b;
    struct ltn_otlp_logs_writer w;
    struct ltn_otlp_log log = {
        .time_ns = 10,
        .observed_ns = 11,
        .severity = LTN_OTLP_WARN,
        .flags = 1,
        .severity_text = ltn_otlp_str("WARN"),
        .event_name = ltn_otlp_str("lanterne.incident"),
        .trace_id = {"0123456789abcdef", 16},
        .body = {.type = LTN_OTLP_STRING, .str = ltn_otlp_str("slow sync")},
        .attrs = ATTRS(ltn_otlp_attr_str("comm", "tr\xff"
                                                 "in\xc3\xa9"),
                       ltn_otlp_attr_int("big", INT64_MIN), ltn_otlp_attr_double("d", -0.0),
                       ltn_otlp_attr_bool("b", false)),
    };
    ltn_buf_init(&b, 1 << 16);
    ltn_otlp_logs_begin(&w, &b);
    assert_int_equal(ltn_otlp_logs_record(&w, &log), -EINVAL);
    assert_int_equal(ltn_otlp_logs_resource(&w, ATTRS(ltn_otlp_attr_str("a", "b"))), 0);
    assert_int_equal(ltn_otlp_logs_scope(&w, "incidents", NULL), 0);
    assert_int_equal(ltn_otlp_logs_record(&w, &log), 0);
    assert_int_equal(ltn_otlp_logs_end(&w), 0);
    logs_request *r =
        opentelemetry__proto__collector__logs__v1__export_logs_service_request__unpack(
            NULL, b.len, (const uint8_t *)b.data);
    assert_non_null(r);
    Opentelemetry__Proto__Logs__V1__LogRecord *l =
        r->resource_logs[0]->scope_logs[0]->log_records[0];
    assert_string_equal(r->resource_logs[0]->scope_logs[0]->scope->name, "incidents");
    assert_int_equal(l->time_unix_nano, 10);
    assert_int_equal(l->observed_time_unix_nano, 11);
    assert_int_equal(l->severity_number, 13);
    assert_int_equal(l->flags, 1);
    assert_string_equal(l->severity_text, "WARN");
    assert_string_equal(l->event_name, "lanterne.incident");
    assert_int_equal(l->trace_id.len, 16);
    assert_int_equal(l->span_id.len, 0);
    assert_string_equal(l->body->string_value, "slow sync");
    assert_int_equal(l->n_attributes, 4);
    /* What is not UTF-8 is replaced byte by byte, what is stays. */
    assert_string_equal(l->attributes[0]->value->string_value, "tr?in\xc3\xa9");
    assert_true(l->attributes[1]->value->int_value == INT64_MIN);
    assert_int_equal(l->attributes[3]->value->value_case,
                     OPENTELEMETRY__PROTO__COMMON__V1__ANY_VALUE__VALUE_BOOL_VALUE);
    opentelemetry__proto__collector__logs__v1__export_logs_service_request__free_unpacked(r, NULL);
    ltn_buf_done(&b);
}

static void test_logs_ceiling(void **state)
{
    (void)state;
    struct ltn_otlp_log log = {.body = {.type = LTN_OTLP_STRING, .str = ltn_otlp_str("text")}};
    for (size_t max = 0; max < 200; max++) {
        struct ltn_buf b;
        struct ltn_otlp_logs_writer w;
        ltn_buf_init(&b, max);
        ltn_otlp_logs_begin(&w, &b);
        int rc = ltn_otlp_logs_resource(&w, ATTRS(ltn_otlp_attr_str("a", "b")));
        rc = rc < 0 ? rc : ltn_otlp_logs_scope(&w, "s", NULL);
        while (rc == 0) {
            rc = ltn_otlp_logs_record(&w, &log);
        }
        assert_int_equal(rc, LTN_ERR_TOO_LARGE);
        assert_int_equal(ltn_otlp_logs_end(&w), 0);
        logs_request *r =
            opentelemetry__proto__collector__logs__v1__export_logs_service_request__unpack(
                NULL, b.len, (const uint8_t *)b.data);
        assert_non_null(r);
        assert_int_equal(r->n_resource_logs, w.records > 0 ? 1 : 0);
        if (w.records > 0) {
            assert_int_equal(r->resource_logs[0]->scope_logs[0]->n_log_records, w.records);
        }
        opentelemetry__proto__collector__logs__v1__export_logs_service_request__free_unpacked(r,
                                                                                              NULL);
        ltn_buf_done(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_metrics),
        cmocka_unit_test(test_metrics_shortest),
        cmocka_unit_test(test_metrics_ceiling),
        cmocka_unit_test(test_metrics_misuse),
        cmocka_unit_test(test_metrics_ceiling_wide),
        cmocka_unit_test(test_logs),
        cmocka_unit_test(test_logs_ceiling),
    };
    return cmocka_run_group_tests_name("otlp_write", tests, NULL, NULL);
}
