/* SPDX-License-Identifier: Apache-2.0 */
/* Requests into updates: what is read, merged, cleaned, refused. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmocka_all.h"

#include "base/err.h"
#include "ingest/decode.h"
#include "otlp/logs_write.h"
#include "otlp/metrics_write.h"
#include "prom/hist_state.h"

#define END_NS 1700000010000000000ULL

static struct ltn_buf body;
static struct ltn_series *series; /* of the test at work */
static struct ltn_otlp_metrics_writer w;

static void begin(void)
{
    ltn_buf_init(&body, 1 << 20);
    ltn_otlp_metrics_begin(&w, &body);
}

static void resource(const struct ltn_otlp_attr *more, size_t n)
{
    struct ltn_otlp_attr a[24] = {ltn_otlp_attr_str("service.name", "lanterne-agent"),
                                  ltn_otlp_attr_str("service.instance.id", "i-1"),
                                  ltn_otlp_attr_str("host.name", "node\x01-1"),
                                  ltn_otlp_attr_int("lanterne.window.sequence", 7)};
    if (n > 0)
        memcpy(a + 4, more, n * sizeof(*more));
    assert_int_equal(ltn_otlp_metrics_resource(&w, (struct ltn_otlp_attrs){a, 4 + n}), 0);
    assert_int_equal(ltn_otlp_metrics_scope(&w, "lanterne", "1"), 0);
}

static void process(void)
{
    const struct ltn_otlp_attr a[] = {
        ltn_otlp_attr_int("process.pid", 42), ltn_otlp_attr_int("process.creation.time", 99),
        ltn_otlp_attr_str("process.command", "python3"), ltn_otlp_attr_str("lanterne.job", "j"),
        ltn_otlp_attr_int("lanterne.rank", 3)};
    resource(a, LTN_ARRAY_SIZE(a));
}

static void number(const char *name, enum ltn_otlp_kind kind, double v, const char *key,
                   const char *value)
{
    struct ltn_otlp_metric m = {.name = ltn_otlp_str(name),
                                .kind = kind,
                                .temporality = LTN_OTLP_CUMULATIVE,
                                .monotonic = kind == LTN_OTLP_SUM};
    struct ltn_otlp_attr a = ltn_otlp_attr_str(key, value);
    struct ltn_otlp_number p = {.point = {.attrs = {&a, key[0] != '\0' ? 1 : 0},
                                          .start_ns = END_NS - 10,
                                          .time_ns = END_NS},
                                .type = LTN_OTLP_DOUBLE,
                                .d = v};
    assert_int_equal(ltn_otlp_metrics_metric(&w, &m), 0);
    assert_int_equal(ltn_otlp_metrics_number(&w, &p), 0);
}

static void op_number(const char *name, double v)
{
    struct ltn_otlp_metric m = {.name = ltn_otlp_str(name),
                                .kind = LTN_OTLP_SUM,
                                .temporality = LTN_OTLP_CUMULATIVE,
                                .monotonic = true};
    struct ltn_otlp_attr a[] = {ltn_otlp_attr_str("lanterne.source", "cuda"),
                                ltn_otlp_attr_str("lanterne.op", "cudaMalloc")};
    struct ltn_otlp_number p = {
        .point = {.attrs = {a, 2}, .time_ns = END_NS}, .type = LTN_OTLP_DOUBLE, .d = v};
    assert_int_equal(ltn_otlp_metrics_metric(&w, &m), 0);
    assert_int_equal(ltn_otlp_metrics_number(&w, &p), 0);
}

static struct ltn_decode_result decode(void)
{
    struct ltn_decoder *d = ltn_decoder_new(series);
    struct ltn_decode_result r;
    assert_int_equal(ltn_otlp_metrics_end(&w), 0);
    assert_int_equal(ltn_decode_metrics(d, body.data, body.len, END_NS + 5, &r), 0);
    ltn_decoder_free(d);
    ltn_buf_done(&body);
    return r;
}

static char *render(void)
{
    struct ltn_buf b;
    struct ltn_prom p;
    ltn_buf_init(&b, 1 << 24);
    ltn_prom_begin(&p, &b, LTN_PROM_TEXT);
    ltn_series_write(series, &p);
    ltn_prom_end(&p);
    return ltn_buf_steal(&b, &(size_t){0});
}

static void shows(const char *line)
{
    char *text = render();
    assert_non_null(text);
    if (strstr(text, line) == NULL)
        fail_msg("no %s in\n%s", line, text);
    free(text);
}

static int setup(void **state)
{
    (void)state;
    series = ltn_series_new(NULL);
    return series != NULL ? ltn_hist_attach(series, 0) : -1;
}

static int teardown(void **state)
{
    (void)state;
    ltn_series_free(series);
    return 0;
}

static void steps_and_their_parts(void **state)
{
    (void)state;
    begin();
    process();
    number("lanterne.step.count", LTN_OTLP_SUM, 120, "", "");
    number("lanterne.step.duration", LTN_OTLP_GAUGE, 0.11, "", "");
    number("lanterne.step.self_time", LTN_OTLP_GAUGE, 0.05, "", "");
    number("lanterne.step.peer_wait", LTN_OTLP_GAUGE, 0.06, "", "");
    number("lanterne.step.coverage", LTN_OTLP_GAUGE, 0.9, "", "");
    number("lanterne.step.split", LTN_OTLP_GAUGE, 0.04, "lanterne.state", "on_cpu");
    number("lanterne.step.split", LTN_OTLP_GAUGE, 0.01, "lanterne.state", "disk");
    number("lanterne.step.split", LTN_OTLP_GAUGE, 9, "lanterne.state", "no such part");
    number("lanterne.step.split", LTN_OTLP_GAUGE, (double)NAN, "lanterne.state", "read");
    for (int i = 1; i <= 6; i++) {
        char comm[4] = {(char)('a' + i), '\x1b', 'x', 0};
        number("lanterne.preemptor.time", LTN_OTLP_GAUGE, 0.001 * (i % 4 + i),
               "lanterne.preemptor.comm", comm);
    }
    op_number("gpu.cuda.operation.count", 1000);
    op_number("gpu.cuda.operation.errors", 2);
    process(); /* the same resource once more: one process all the same */
    op_number("gpu.cuda.operation.io", 4096);
    struct ltn_decode_result r = decode();
    struct ltn_update *u = r.update;
    assert_int_equal(u->resource_count, 1);
    assert_int_equal(r.samples, 0); /* nothing of a process becomes a series */
    const struct ltn_update_resource *p = u->resources;
    assert_string_equal(p->node, "node?-1");
    assert_true(p->is_process && p->has_sequence);
    assert_int_equal(p->pid, 42);
    assert_int_equal(p->rank, 3);
    assert_int_equal(p->world_size, -1);
    assert_int_equal(p->end_ns, END_NS);
    assert_int_equal(p->start_ns, END_NS - 10);
    assert_true(p->steps.present);
    assert_int_equal(p->steps.steps_total, 120);
    assert_true(fabs(p->steps.self_ns - 50e6) < 1);
    assert_true(fabs(p->steps.part_ns[LTN_PART_ON_CPU] - 40e6) < 1);
    assert_true(fabs(p->steps.part_ns[LTN_PART_DISK] - 10e6) < 1);
    assert_true(p->steps.part_ns[LTN_PART_READ] == 0);
    /* The four longest, longest first: 6+2, 5+1, 3+3, 2+2. */
    assert_true(fabs(p->steps.preemptors[0].waited_ns - 8e6) < 1);
    assert_string_equal(p->steps.preemptors[0].comm, "g?x");
    assert_true(p->steps.preemptors[3].waited_ns >= 4e6 - 1);
    assert_string_equal(p->ops->op, "cudaMalloc");
    assert_null(p->ops->next);
    assert_int_equal(p->ops->calls, 1000);
    assert_int_equal(p->ops->errors, 2);
    assert_int_equal(p->ops->bytes, 4096);
    ltn_update_free(u);
}

static void implausible_times_are_rejected_and_counted(void **state)
{
    static const double bad[] = {(double)INFINITY, 1e308, 3601, -0.001, (double)NAN};
    static const char *const names[] = {"lanterne.step.duration", "lanterne.step.self_time",
                                        "lanterne.step.peer_wait"};
    (void)state;
    for (size_t i = 0; i < LTN_ARRAY_SIZE(bad); i++) {
        for (size_t k = 0; k < LTN_ARRAY_SIZE(names); k++) {
            begin();
            process();
            number("lanterne.step.coverage", LTN_OTLP_GAUGE, 1e300, "", "");
            for (size_t m = 0; m < LTN_ARRAY_SIZE(names); m++)
                number(names[m], LTN_OTLP_GAUGE, m == k ? bad[i] : 0.05, "", "");
            struct ltn_decode_result r = decode();
            assert_int_equal(r.rejected, 1);
            assert_non_null(r.message);
            const struct ltn_update_rank *s = &r.update->resources->steps;
            assert_int_equal(s->present, k == 2);
            assert_true(s->step_ns <= 50e6 && s->self_ns <= 50e6 && s->peer_wait_ns <= 50e6);
            assert_true(s->coverage <= 1);
            ltn_update_free(r.update);
        }
    }
}

static void a_window_without_self_time_is_no_rank_window(void **state)
{
    (void)state;
    begin();
    process();
    number("lanterne.step.duration", LTN_OTLP_GAUGE, 0.11, "", "");
    number("lanterne.step.self_time", LTN_OTLP_GAUGE, -0.05, "", "");
    struct ltn_decode_result r = decode();
    assert_false(r.update->resources->steps.present);
    ltn_update_free(r.update);
}

static void nodes_gpus_and_series(void **state)
{
    (void)state;
    begin();
    resource(NULL, 0);
    number("lanterne.gpu.clock.frequency", LTN_OTLP_GAUGE, 1.2e9, "hw.id", "GPU-1");
    number("lanterne.gpu.clock.limit", LTN_OTLP_GAUGE, 2e9, "hw.id", "GPU-1");
    number("lanterne.gpu.clock.reasons", LTN_OTLP_GAUGE, 64, "hw.id", "GPU-1");
    number("lanterne.agent.drops", LTN_OTLP_SUM, 5, "lanterne.reason", "ring_full");
    for (int i = 0; i < 40; i++) {
        char uuid[8] = {'G', (char)('A' + i % 26), (char)('0' + i / 26), 0};
        number("hw.power", LTN_OTLP_GAUGE, i, "hw.id", uuid);
    }
    struct ltn_decode_result r = decode();
    const struct ltn_update_resource *n = r.update->resources;
    size_t gpus = 0;
    const struct ltn_update_gpu *first = NULL;
    for (const struct ltn_update_gpu *g = n->gpus; g != NULL; g = g->next, gpus++)
        if (strcmp(g->uuid, "GPU-1") == 0)
            first = g;
    assert_int_equal(gpus, 16); /* ceiling */
    assert_non_null(first);
    assert_true(first->clock_hz == 1.2e9 && first->clock_max_hz == 2e9);
    assert_int_equal(first->clock_reasons, 64);
    assert_true(first->utilization < 0);
    assert_string_equal(n->health.drops->reason, "ring_full");
    assert_int_equal(n->health.drops->count, 5);
    assert_int_equal(r.samples, 44);
    shows("lanterne_gpu_clock_frequency{instance=\"node?-1\",job=\"lanterne-agent\","
          "node=\"node?-1\",hw_id=\"GPU-1\"} 1200000000\n");
    ltn_update_free(r.update);
}

static void broken_requests_leave_nothing(void **state)
{
    (void)state;
    begin();
    process();
    op_number("gpu.cuda.operation.count", 1000);
    assert_int_equal(ltn_otlp_metrics_end(&w), 0);
    struct ltn_decoder *d = ltn_decoder_new(series);
    struct ltn_decode_result r;
    size_t bad = 0;
    for (size_t cut = 1; cut < body.len; cut++) {
        int rc = ltn_decode_metrics(d, body.data, cut, END_NS, &r);
        if (rc != 0) {
            assert_null(r.update);
            bad++;
        }
        ltn_update_free(r.update);
    }
    assert_true(bad > body.len / 2);
    /* Every single byte changed: an error or an update, never worse. */
    for (size_t i = 0; i < body.len; i++) {
        char old = body.data[i];
        body.data[i] = (char)(old ^ 0x55);
        if (ltn_decode_metrics(d, body.data, body.len, END_NS, &r) != 0)
            assert_null(r.update);
        ltn_update_free(r.update);
        body.data[i] = old;
    }
    ltn_decoder_free(d);
    ltn_buf_done(&body);
}

static void incidents(void **state)
{
    struct ltn_otlp_logs_writer l;
    struct ltn_decode_result r;
    struct ltn_buf b;
    struct ltn_otlp_attr res[] = {ltn_otlp_attr_str("service.name", "lanterne-agent"),
                                  ltn_otlp_attr_str("host.name", "n1")};
    struct ltn_otlp_attr a[] = {ltn_otlp_attr_str("lanterne.incident.id", "i-1"),
                                ltn_otlp_attr_str("lanterne.incident.state", "open"),
                                ltn_otlp_attr_double("lanterne.incident.explained_share", 7)};
    struct ltn_otlp_log log = {
        .time_ns = 5, .event_name = ltn_otlp_str("lanterne.incident"), .attrs = {a, 3}};
    (void)state;
    log.body = (struct ltn_otlp_value){.type = LTN_OTLP_STRING, .str = ltn_otlp_str("title")};
    ltn_buf_init(&b, 1 << 16);
    ltn_otlp_logs_begin(&l, &b);
    assert_int_equal(ltn_otlp_logs_resource(&l, (struct ltn_otlp_attrs){res, 2}), 0);
    assert_int_equal(ltn_otlp_logs_scope(&l, "s", NULL), 0);
    assert_int_equal(ltn_otlp_logs_record(&l, &log), 0);
    log.event_name = ltn_otlp_str("something else");
    assert_int_equal(ltn_otlp_logs_record(&l, &log), 0);
    log.event_name = ltn_otlp_str("lanterne.incident");
    log.attrs.n = 0;
    assert_int_equal(ltn_otlp_logs_record(&l, &log), 0);
    assert_int_equal(ltn_otlp_logs_end(&l), 0);
    struct ltn_decoder *d = ltn_decoder_new(series);
    assert_int_equal(ltn_decode_logs(d, b.data, b.len, 9, &r), 0);
    assert_int_equal(r.accepted, 2);
    assert_int_equal(r.rejected, 1);
    assert_non_null(r.message);
    assert_int_equal(r.update->log_count, 1); /* anybody's record */
    assert_string_equal(r.update->logs->body, "title");
    assert_string_equal(r.update->logs->event, "something else");
    assert_int_equal(r.update->incident_count, 1);
    assert_string_equal(r.update->incidents->title, "title");
    assert_true(r.update->incidents->explained_share == 1);
    ltn_update_free(r.update);
    ltn_decoder_free(d);
    ltn_buf_done(&b);
}

static void spans_are_counted(void **state)
{
    static const unsigned char two[] = {0x0a, 8, 0x12, 6, 0x12, 1, 0x0a, 0x12, 1, 0x0a};
    uint64_t n = 9;
    (void)state;
    assert_int_equal(ltn_decode_count_spans(NULL, 0, &n), 0);
    assert_int_equal(n, 0);
    assert_int_equal(ltn_decode_count_spans(two, sizeof(two), &n), 0);
    assert_int_equal(n, 2);
    assert_int_equal(ltn_decode_count_spans(two, sizeof(two) - 1, &n), LTN_ERR_MALFORMED);
}

/* ---- any client ---- */

static void client(const char *name)
{
    const struct ltn_otlp_attr a[] = {ltn_otlp_attr_str("service.name", name),
                                      ltn_otlp_attr_str("service.instance.id", "i"),
                                      ltn_otlp_attr_str("zone", "z")};
    assert_int_equal(ltn_otlp_metrics_resource(&w, (struct ltn_otlp_attrs){a, 3}), 0);
    assert_int_equal(ltn_otlp_metrics_scope(&w, "lib", "1"), 0);
}

struct given {
    const char *first, *second; /* attributes a and b, in the order of the letters */
    double value;
    uint64_t start_ns, time_ns;
    uint32_t flags;
    bool swapped;
};

static void metric(enum ltn_otlp_kind kind, enum ltn_otlp_temporality temporality)
{
    const struct ltn_otlp_metric m = {.name =
                                          ltn_otlp_str(kind == LTN_OTLP_SUM ? "calls" : "level"),
                                      .kind = kind,
                                      .temporality = temporality,
                                      .monotonic = kind == LTN_OTLP_SUM};
    assert_int_equal(ltn_otlp_metrics_metric(&w, &m), 0);
}

static void given(const struct given *g)
{
    struct ltn_otlp_attr a[2] = {ltn_otlp_attr_str("a", g->first),
                                 ltn_otlp_attr_str("b", g->second)};
    if (g->swapped) {
        struct ltn_otlp_attr first = a[0];
        a[0] = a[1];
        a[1] = first;
    }
    const struct ltn_otlp_number p = {.point = {.attrs = {a, 2},
                                                .start_ns = g->start_ns,
                                                .time_ns = g->time_ns,
                                                .flags = g->flags},
                                      .type = LTN_OTLP_DOUBLE,
                                      .d = g->value};
    assert_int_equal(ltn_otlp_metrics_number(&w, &p), 0);
}

static struct ltn_decode_result taken(void)
{
    struct ltn_decode_result r = decode();
    ltn_update_free(r.update);
    return r;
}

static void attributes_in_any_order_are_one_series(void **state)
{
    struct ltn_series_stats st;
    (void)state;
    for (uint64_t t = 1; t <= 6; t++) {
        begin();
        client("s");
        metric(LTN_OTLP_GAUGE, 0);
        given(&(struct given){"1", "2", (double)t, 0, t, 0, t % 2 == 0});
        given(&(struct given){"2", "1", -(double)t, 0, t, 0, t % 2 == 0});
        struct ltn_decode_result r = taken();
        assert_int_equal(r.accepted, 2);
        assert_int_equal(r.samples, 3); /* and target_info */
    }
    ltn_series_stats(series, &st);
    assert_int_equal(st.series, 3);
    assert_int_equal(st.new_keys, 5); /* labels were made no more often */
    shows("level{instance=\"i\",job=\"s\",otel_scope_name=\"lib\",otel_scope_version=\"1\",a=\"1\","
          "b=\"2\"} 6\n");
    shows("level{instance=\"i\",job=\"s\",otel_scope_name=\"lib\",otel_scope_version=\"1\",a=\"2\","
          "b=\"1\"} -6\n");
    shows("target_info{instance=\"i\",job=\"s\",zone=\"z\"} 1\n");
}

/* The same bytes of attributes under another resource, scope, metric or kind are other series. */
static void keys_know_where_they_stand(void **state)
{
    struct ltn_series_stats st;
    (void)state;
    for (int round = 0; round < 2; round++) {
        begin();
        client("s");
        metric(LTN_OTLP_GAUGE, 0);
        given(&(struct given){"1", "2", 1, 0, 1, 0, false});
        metric(LTN_OTLP_SUM, LTN_OTLP_CUMULATIVE);
        given(&(struct given){"1", "2", 2, 0, 1, 0, false});
        client("other");
        metric(LTN_OTLP_GAUGE, 0);
        given(&(struct given){"1", "2", 3, 0, 1, 0, false});
        assert_int_equal(ltn_otlp_metrics_scope(&w, "lib2", "1"), 0);
        metric(LTN_OTLP_GAUGE, 0);
        given(&(struct given){"1", "2", 4, 0, 1, 0, false});
        (void)taken();
    }
    ltn_series_stats(series, &st);
    assert_int_equal(st.series, 4 + 2);
    shows("level{instance=\"i\",job=\"s\",otel_scope_name=\"lib\",otel_scope_version=\"1\",a=\"1\","
          "b=\"2\"} 1\n");
    shows("calls_total{instance=\"i\",job=\"s\",otel_scope_name=\"lib\",otel_scope_version=\"1\",a="
          "\"1\",b=\"2\"} 2\n");
    shows("level{instance=\"i\",job=\"other\",otel_scope_name=\"lib\",otel_scope_version=\"1\",a="
          "\"1\",b=\"2\"} 3\n");
    shows("level{instance=\"i\",job=\"other\",otel_scope_name=\"lib2\",otel_scope_version=\"1\",a="
          "\"1\",b=\"2\"} 4\n");
}

static void what_cannot_be_taken_is_rejected_by_the_point(void **state)
{
    (void)state;
    for (int round = 0; round < 2; round++) { /* also when the series is known */
        uint64_t t = (uint64_t)round * 10;
        begin();
        client("s");
        metric(LTN_OTLP_SUM, LTN_OTLP_CUMULATIVE);
        given(&(struct given){"1", "2", 1, 0, t + 1, 0, false});
        given(&(struct given){"1", "2", (double)NAN, 0, t + 2, 0, false});
        given(&(struct given){"1", "3", (double)NAN, 0, t + 2, 0, false});
        metric(LTN_OTLP_SUM, LTN_OTLP_TEMPORALITY_UNSPECIFIED);
        given(&(struct given){"1", "2", 9, 0, t + 3, 0, false});
        given(&(struct given){"4", "2", 9, 0, t + 3, 0, false});
        struct ltn_decode_result r = taken();
        assert_int_equal(r.accepted, 1);
        assert_int_equal(r.rejected, 4);
        assert_non_null(r.message);
    }
    shows("calls_total{instance=\"i\",job=\"s\",otel_scope_name=\"lib\",otel_scope_version=\"1\",a="
          "\"1\",b=\"2\"} 1\n");
    char *text = render();
    assert_null(strstr(text, "NaN"));
    free(text);
}

static void deltas_add_up_once(void **state)
{
    (void)state;
    for (int round = 0; round < 2; round++) {
        begin();
        client("s");
        metric(LTN_OTLP_SUM, LTN_OTLP_DELTA);
        given(&(struct given){"1", "2", 5, 10, 20, 0, false});
        given(&(struct given){"1", "2", 7, 20, 30, 0, round == 1});
        (void)taken();
    }
    shows("calls_total{instance=\"i\",job=\"s\",otel_scope_name=\"lib\",otel_scope_version=\"1\",a="
          "\"1\",b=\"2\"} 12\n");
}

static void no_recorded_value_ends_a_series(void **state)
{
    (void)state;
    for (int round = 0; round < 2; round++) {
        begin();
        client("s");
        metric(LTN_OTLP_GAUGE, 0);
        given(&(struct given){"1", "2", 5, 0, 20 + (uint64_t)round, (uint32_t)round, false});
        struct ltn_decode_result r = taken();
        assert_int_equal(r.accepted, 1);
    }
    char *text = render();
    assert_null(strstr(text, "level"));
    free(text);
}

static const double bounds[] = {0.1, 1};

static void histogram(enum ltn_otlp_temporality temporality, uint64_t start_ns, uint64_t time_ns,
                      const uint64_t counts[3], uint32_t flags)
{
    struct ltn_otlp_attr a = ltn_otlp_attr_str("a", "1");
    const struct ltn_otlp_metric m = {.name = ltn_otlp_str("wait"),
                                      .unit = ltn_otlp_str("s"),
                                      .kind = LTN_OTLP_HISTOGRAM,
                                      .temporality = temporality};
    const struct ltn_otlp_histogram p = {
        .point = {.attrs = {&a, 1}, .start_ns = start_ns, .time_ns = time_ns, .flags = flags},
        .count = counts[0] + counts[1] + counts[2],
        .sum = 2.5,
        .has_sum = true,
        .bucket_counts = counts,
        .bounds = bounds,
        .bucket_n = 3,
        .bound_n = 2};
    assert_int_equal(ltn_otlp_metrics_metric(&w, &m), 0);
    assert_int_equal(ltn_otlp_metrics_histogram(&w, &p), 0);
}

static void histograms_are_series(void **state)
{
    (void)state;
    static const uint64_t counts[] = {1, 2, 3};
    struct ltn_hist_stats st;
    for (int round = 0; round < 2; round++) { /* the second is a retry */
        begin();
        client("s");
        histogram(LTN_OTLP_DELTA, 10, 20, counts, 0);
        histogram(LTN_OTLP_DELTA, 20, 30, counts, 0);
        struct ltn_decode_result r = taken();
        assert_int_equal(r.accepted, 2);
        assert_int_equal(r.rejected, 0);
        assert_int_equal(r.unexposed, 0);
    }
    shows("# TYPE wait_seconds histogram\n");
    shows(",a=\"1\",le=\"0.1\"} 2\n");
    shows(",a=\"1\",le=\"1.0\"} 6\n");
    shows(",a=\"1\",le=\"+Inf\"} 12\n");
    shows("wait_seconds_sum{instance=\"i\",job=\"s\",otel_scope_name=\"lib\","
          "otel_scope_version=\"1\",a=\"1\"} 5\n");
    ltn_hist_stats(series, &st);
    assert_int_equal(st.taken, 2);
    assert_int_equal(st.late, 2);
    begin();
    client("s");
    histogram(LTN_OTLP_TEMPORALITY_UNSPECIFIED, 0, 40, counts, 0);
    struct ltn_decode_result r = taken();
    assert_int_equal(r.rejected, 1);
    begin();
    client("s");
    histogram(LTN_OTLP_CUMULATIVE, 0, 50, counts, LTN_OTLP_NO_RECORDED_VALUE);
    r = taken();
    assert_int_equal(r.accepted, 1);
    char *text = render();
    assert_null(strstr(text, "wait"));
    free(text);
}

/* Another family may not be called like a sample of this one. */
static void families_keep_the_names_of_their_samples(void **state)
{
    (void)state;
    static const uint64_t counts[] = {1, 2, 3};
    static const char *const taken_names[] = {"wait.seconds.count", "wait.seconds.bucket",
                                              "wait.seconds", "wait.seconds.created"};
    begin();
    client("s");
    histogram(LTN_OTLP_CUMULATIVE, 10, 20, counts, 0);
    (void)taken();
    begin();
    client("s");
    for (size_t i = 0; i < LTN_ARRAY_SIZE(taken_names); i++)
        number(taken_names[i], LTN_OTLP_GAUGE, 1, "", "");
    number("wait.seconds.max", LTN_OTLP_GAUGE, 1, "", "");
    struct ltn_decode_result r = taken();
    assert_int_equal(r.accepted, 1);
    assert_int_equal(r.rejected, 4);
    shows("wait_seconds_max{");
}

static void histograms_have_so_much_memory(void **state)
{
    (void)state;
    static const uint64_t counts[] = {1, 2, 3};
    struct ltn_series *small = ltn_series_new(NULL);
    struct ltn_hist_stats st;
    ltn_series_ref ref;
    assert_int_equal(ltn_hist_attach(small, 4096), 0);
    for (uint64_t i = 0; i < 1000; i++) {
        char labels[32];
        (void)snprintf(labels, sizeof(labels), "i=\"%u\"", (unsigned)i);
        const struct ltn_series_desc d = {
            .family = "h", .type = LTN_PROM_HISTOGRAM, .labels = labels, .state = true};
        const struct ltn_hist_point p = {
            .time_ns = 1, .count = 6, .bounds = bounds, .counts = counts, .bound_n = 2};
        ltn_series_lock(small);
        assert_int_equal(ltn_series_resolve(small, &d, (struct ltn_series_key){0, 0}, 1, &ref), 0);
        ltn_series_unlock(small);
        assert_int_equal(ltn_hist_take(small, ref, "h", &p, 1, 1), 0);
    }
    ltn_hist_stats(small, &st);
    assert_true(st.bytes <= 4096 && st.taken > 5);
    assert_int_equal(st.taken + st.no_room, 1000);
    ltn_series_free(small);
}

/* Beyond the ceiling one histogram stands for the others: the sum of deltas. */
static void histograms_overflow(void **state)
{
    (void)state;
    static const uint64_t counts[] = {1, 2, 3};
    const struct ltn_series_opts opts = {.max_per_family = 2};
    struct ltn_series_stats st;
    ltn_series_free(series);
    series = ltn_series_new(&opts);
    assert_int_equal(ltn_hist_attach(series, 0), 0);
    for (int i = 0; i < 5; i++) {
        char name[8];
        (void)snprintf(name, sizeof(name), "s%d", i);
        begin();
        client(name);
        histogram(LTN_OTLP_DELTA, 10, 20, counts, 0);
        struct ltn_decode_result r = taken();
        assert_int_equal(r.accepted, 1);
        assert_int_equal(r.rejected, 0);
    }
    ltn_series_stats(series, &st);
    assert_true(st.overflowed >= 3); /* and of target_info */
    shows("wait_seconds_count{otel_metric_overflow=\"true\"} 18\n");
    shows("wait_seconds_bucket{otel_metric_overflow=\"true\",le=\"0.1\"} 3\n");
    shows("job=\"s1\",otel_scope_name=\"lib\",otel_scope_version=\"1\",a=\"1\",le=\"0.1\"} 1\n");
}

/* One resource may describe itself anew; of one job and instance there is one target_info. */
static void one_target_info(void **state)
{
    (void)state;
    for (int round = 0; round < 2; round++) {
        const struct ltn_otlp_attr a[] = {ltn_otlp_attr_str("service.name", "s"),
                                          ltn_otlp_attr_str("service.instance.id", "i"),
                                          ltn_otlp_attr_str("v", round == 0 ? "old" : "new")};
        begin();
        assert_int_equal(ltn_otlp_metrics_resource(&w, (struct ltn_otlp_attrs){a, 3}), 0);
        assert_int_equal(ltn_otlp_metrics_scope(&w, "lib", "1"), 0);
        metric(LTN_OTLP_GAUGE, 0);
        given(&(struct given){"1", "2", 1, 0, (uint64_t)round, 0, false});
        (void)taken();
    }
    char *text = render();
    const char *first = strstr(text, "\ntarget_info{");
    assert_non_null(first);
    assert_null(strstr(first + 1, "\ntarget_info{"));
    assert_non_null(strstr(text, "target_info{instance=\"i\",job=\"s\",v=\"new\"} 1\n"));
    free(text);
}

static void a_broken_request_changes_no_series(void **state)
{
    (void)state;
    for (uint64_t t = 1; t <= 2; t++) {
        begin();
        client("s");
        metric(LTN_OTLP_GAUGE, 0);
        given(&(struct given){"1", "2", (double)t, 0, t, 0, false});
        if (t == 1)
            (void)taken();
    }
    struct ltn_decoder *d = ltn_decoder_new(series);
    struct ltn_decode_result r;
    assert_int_equal(ltn_otlp_metrics_end(&w), 0);
    assert_int_equal(ltn_buf_puts(&body, "\x0a\x7f"), 0); /* a resource group that is cut short */
    assert_int_equal(ltn_decode_metrics(d, body.data, body.len, END_NS, &r), LTN_ERR_MALFORMED);
    assert_null(r.update);
    ltn_decoder_free(d);
    ltn_buf_done(&body);
    shows("a=\"1\",b=\"2\"} 1\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(steps_and_their_parts, setup, teardown),
        cmocka_unit_test_setup_teardown(implausible_times_are_rejected_and_counted, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_window_without_self_time_is_no_rank_window, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(nodes_gpus_and_series, setup, teardown),
        cmocka_unit_test_setup_teardown(broken_requests_leave_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(incidents, setup, teardown),
        cmocka_unit_test_setup_teardown(spans_are_counted, setup, teardown),
        cmocka_unit_test_setup_teardown(attributes_in_any_order_are_one_series, setup, teardown),
        cmocka_unit_test_setup_teardown(histograms_are_series, setup, teardown),
        cmocka_unit_test_setup_teardown(families_keep_the_names_of_their_samples, setup, teardown),
        cmocka_unit_test_setup_teardown(histograms_have_so_much_memory, setup, teardown),
        cmocka_unit_test_setup_teardown(histograms_overflow, setup, teardown),
        cmocka_unit_test_setup_teardown(one_target_info, setup, teardown),
        cmocka_unit_test_setup_teardown(keys_know_where_they_stand, setup, teardown),
        cmocka_unit_test_setup_teardown(what_cannot_be_taken_is_rejected_by_the_point, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(deltas_add_up_once, setup, teardown),
        cmocka_unit_test_setup_teardown(no_recorded_value_ends_a_series, setup, teardown),
        cmocka_unit_test_setup_teardown(a_broken_request_changes_no_series, setup, teardown),
    };
    return LTN_RUN_TESTS(tests);
}
