/* SPDX-License-Identifier: Apache-2.0 */
/* What the encoder writes, read back with the collector's reader and compared with
 * docs/internals/wire.md. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/err.h"
#include "base/map.h"
#include "otlp/logs_read.h"
#include "otlp/metrics_read.h"
#include "push/encode.h"
#include "record_sample.h"

#define MAX_POINTS 4096

struct seen {
    char key[192]; /* pid|metric|attribute values */
    double value;  /* sums of histograms */
    uint64_t start_ns;
    uint64_t time_ns;
    uint64_t count;
    double max;
    int32_t scale;
    char unit[24];
    enum ltn_otlp_kind kind;
    bool monotonic;
};

struct sight {
    struct seen points[MAX_POINTS];
    size_t n;
    unsigned requests;
    unsigned resources;
    size_t largest;
    uint64_t hash; /* of all bytes */
    struct ltn_otlp_reader *reader;
    char sequence[32];
};

static struct sight sight;

static void note_resource(const struct ltn_otlp_group *g)
{
    struct ltn_otlp_str s;
    int64_t sequence = 0;
    assert_true(ltn_otlp_get_str(g->resource, "service.name", &s));
    assert_true(ltn_otlp_str_eq(s, "lanterne-agent"));
    assert_true(ltn_otlp_get_str(g->resource, "service.instance.id", &s));
    assert_int_equal(s.n, 36);
    assert_true(ltn_otlp_get_str(g->resource, "host.name", &s));
    assert_true(ltn_otlp_str_eq(s, "node-a"));
    assert_true(ltn_otlp_get_str(g->resource, "lanterne.cluster", &s));
    assert_true(ltn_otlp_get_i64(g->resource, "lanterne.window.sequence", &sequence));
    assert_int_equal(sequence, 7);
    assert_true(ltn_otlp_str_eq(g->scope_name, "lanterne"));
    int64_t pid;
    if (ltn_otlp_get_i64(g->resource, "process.pid", &pid)) {
        int64_t v = 0;
        assert_true(ltn_otlp_get_i64(g->resource, "process.creation.time", &v));
        assert_true((uint64_t)v == SAMPLE_START);
        assert_true(ltn_otlp_get_str(g->resource, "process.command", &s));
        assert_true(ltn_otlp_str_eq(s, "python?[31m"));
        assert_true(ltn_otlp_get_str(g->resource, "lanterne.job", &s));
        assert_true(ltn_otlp_str_eq(s, "train"));
        assert_true(ltn_otlp_get_i64(g->resource, "lanterne.rank", &v) && v == pid - SAMPLE_PID);
        assert_true(ltn_otlp_get_i64(g->resource, "lanterne.world_size", &v) && v == SAMPLE_PROCS);
        assert_true(ltn_otlp_get_i64(g->resource, "lanterne.local_rank", &v));
        assert_true(ltn_otlp_get_str(g->resource, "hw.id", &s));
        assert_true(ltn_otlp_str_eq(s, "GPU-1"));
    }
}

static struct seen *note(const struct ltn_otlp_group *g, const struct ltn_otlp_metric *m,
                         const struct ltn_otlp_point *p)
{
    assert_true(sight.n < MAX_POINTS);
    struct seen *s = &sight.points[sight.n++];
    int64_t pid = 0;
    note_resource(g);
    (void)ltn_otlp_get_i64(g->resource, "process.pid", &pid);
    size_t n =
        (size_t)snprintf(s->key, sizeof(s->key), "%d|%.*s", (int)pid, (int)m->name.n, m->name.p);
    for (size_t i = 0; i < p->attrs.n; i++) {
        char text[64];
        n += (size_t)snprintf(s->key + n, sizeof(s->key) - n, "|%s",
                              ltn_otlp_value_text(&p->attrs.items[i].value, text, sizeof(text)));
    }
    (void)snprintf(s->unit, sizeof(s->unit), "%.*s", (int)m->unit.n, m->unit.p);
    s->start_ns = p->start_ns;
    s->time_ns = p->time_ns;
    s->kind = m->kind;
    s->monotonic = m->monotonic;
    if (m->kind != LTN_OTLP_GAUGE) {
        assert_int_equal(m->temporality, LTN_OTLP_CUMULATIVE);
    }
    return s;
}

static int on_number(void *ctx, const struct ltn_otlp_group *g, const struct ltn_otlp_metric *m,
                     const struct ltn_otlp_number *p)
{
    (void)ctx;
    note(g, m, &p->point)->value = ltn_otlp_number_f64(p);
    return 0;
}

static int on_exp(void *ctx, const struct ltn_otlp_group *g, const struct ltn_otlp_metric *m,
                  const struct ltn_otlp_exp_histogram *p)
{
    (void)ctx;
    struct seen *s = note(g, m, &p->point);
    s->value = p->sum;
    s->count = p->count;
    s->scale = p->scale;
    s->max = p->has_max ? p->max : -1;
    return 0;
}

static int emit(void *ctx, enum ltn_record_signal signal, const void *bytes, size_t n)
{
    struct ltn_otlp_metrics_sink sink = {.on_number = on_number, .on_exp_histogram = on_exp};
    struct ltn_otlp_counts counts;
    (void)ctx;
    assert_int_equal(signal, LTN_RECORD_METRICS);
    assert_int_equal(ltn_otlp_metrics_read(sight.reader, bytes, n, &sink, &counts), 0);
    assert_int_equal(counts.rejected, 0);
    assert_true(counts.records > 0);
    sight.requests++;
    sight.largest = n > sight.largest ? n : sight.largest;
    for (size_t i = 0; i < n; i++) {
        sight.hash = sight.hash * 31 + ((const uint8_t *)bytes)[i];
    }
    return 0;
}

static const struct seen *find(const char *key)
{
    const struct seen *found = NULL;
    for (size_t i = 0; i < sight.n; i++) {
        if (strcmp(sight.points[i].key, key) == 0) {
            if (found != NULL) {
                fail_msg("%s is there twice", key);
            }
            found = &sight.points[i];
        }
    }
    if (found == NULL) {
        fail_msg("%s is missing", key);
    }
    return found;
}

static void look(struct ltn_push_encoder *e, unsigned n)
{
    struct ltn_window *w = sample_window(n);
    struct ltn_otlp_reader *reader = sight.reader;
    sight = (struct sight){.reader = reader};
    assert_int_equal(ltn_push_encode_window(e, w, 7, emit, NULL), 0);
    ltn_window_free(w);
}

static struct ltn_push_encoder *make(size_t max)
{
    struct ltn_push_encoder *e = NULL;
    assert_int_equal(ltn_push_encoder_new(&(struct ltn_push_encoder_conf){.node = "node-a",
                                                                          .cluster = "c",
                                                                          .started_ns = 5,
                                                                          .max_request_bytes = max},
                                          &e),
                     0);
    return e;
}

static void expect(const char *key, double value, const char *unit, enum ltn_otlp_kind kind,
                   uint64_t start_ns)
{
    const struct seen *s = find(key);
    double d = s->value - value;
    if (d < -1e-9 || d > 1e-9 || strcmp(s->unit, unit) != 0 || s->kind != kind ||
        s->start_ns != start_ns || s->monotonic != (kind == LTN_OTLP_SUM)) {
        fail_msg("%s: value %g unit %s kind %d start %llu", key, s->value, s->unit, s->kind,
                 (unsigned long long)s->start_ns);
    }
}

static void every_metric_is_as_described(void **state)
{
    (void)state;
    struct ltn_push_encoder *e = make(0);
    const uint64_t first = SAMPLE_T0_NS + 3 * SAMPLE_STEP_NS;
    look(e, 3);
    assert_int_equal(sight.requests, 1);
    const enum ltn_otlp_kind sum = LTN_OTLP_SUM;
    const enum ltn_otlp_kind gauge = LTN_OTLP_GAUGE;
    expect("1000|gpu.cuda.operation.count|cuda|cudaLaunchKernel", 400, "{call}", sum, first);
    expect("1001|gpu.cuda.operation.errors|cuda|cudaStreamSynchronize", 4, "{call}", sum, first);
    expect("1000|gpu.cuda.operation.io|cuda|cudaLaunchKernel", 16384, "By", sum, first);
    expect("1000|gpu.cuda.operation.replayed|cuda|cudaLaunchKernel", 28, "{call}", sum, first);
    expect("1000|gpu.nccl.operation.count|nccl|ncclAllReduce", 400, "{call}", sum, first);
    expect("1000|gpu.cuda.operation.duration|cuda|cudaLaunchKernel", 0.2, "s",
           LTN_OTLP_EXP_HISTOGRAM, first);
    const struct seen *h = find("1000|gpu.nccl.operation.duration|nccl|ncclAllReduce");
    assert_int_equal(h->count, 400);
    assert_true(h->scale >= 4);
    assert_true(h->max > 0.0119 && h->max < 0.0121);
    assert_true(h->time_ns == first + SAMPLE_STEP_NS);
    expect("1001|gpu.nccl.communicator.sequence|fedcba9876543210|1|2", 240, "{operation}", sum,
           first);
    expect("1001|gpu.nccl.communicator.io|fedcba9876543210|1|2", 4096, "By", sum, first);
    expect("1000|lanterne.step.count", 80, "{step}", sum, first);
    expect("1000|lanterne.step.duration", 0.5, "s", gauge, first);
    expect("1000|lanterne.step.self_time", 0.4, "s", gauge, first);
    expect("1000|lanterne.step.peer_wait", 0.1, "s", gauge, first);
    expect("1000|lanterne.step.split|run_queue", 0.1, "s", gauge, first);
    expect("1000|lanterne.step.split|other", 0, "s", gauge, first);
    expect("1000|lanterne.step.faults|major", 0.5, "{fault}", gauge, first);
    expect("1000|lanterne.step.coverage", 0.99, "1", gauge, first);
    expect("1000|lanterne.step.collectives", 3, "{operation}", gauge, first);
    expect("1000|lanterne.preemptor.time|logrotate|77|42", 0.09, "s", gauge, first);
    expect("0|hw.gpu.utilization|GPU-1|H100", 0.5, "1", gauge, first);
    expect("0|hw.gpu.memory.limit|GPU-1", 8e10, "By", gauge, first);
    expect("0|hw.temperature|GPU-1|gpu", 60, "Cel", gauge, first);
    expect("0|hw.errors|GPU-1|gpu|uncorrected", 0, "{error}", sum, 5);
    expect("0|lanterne.gpu.clock.reasons|GPU-1", 4, "1", gauge, first);
    expect("0|lanterne.gpu.pcie.width.limit|GPU-1", 16, "{lane}", gauge, first);
    expect("0|lanterne.agent.calls", 2400, "{call}", sum, 5);
    expect("0|lanterne.agent.records|emitted", 0, "{record}", sum, 5);
    expect("0|lanterne.agent.drops|ring_calls", 3, "{record}", sum, 5);
    expect("0|lanterne.agent.drops|stacks", 7, "{record}", sum, 5);
    expect("0|lanterne.agent.files|attached", 3, "{file}", gauge, first);
    expect("0|lanterne.agent.files|unattached", 1, "{file}", gauge, first);
    expect("0|lanterne.agent.processes.hidden", 2, "{process}", gauge, first);
    expect("0|lanterne.agent.processes.silent", 4, "{process}", gauge, first);
    expect("0|lanterne.agent.silences", 5, "{process}", sum, 5);
    expect("0|lanterne.agent.attach.delay", 0.006, "s", gauge, first);
    expect("0|process.cpu.time", 0.25, "s", sum, 5);
    expect("0|system.cpu.utilization", 0.5, "1", gauge, first);
    expect("0|system.cpu.load_average.1m", 3.5, "{thread}", gauge, first);
    expect("0|system.memory.limit", 1000, "By", gauge, first);
    expect("0|system.linux.memory.available", 250, "By", gauge, first);
    expect("0|system.memory.utilization|used", 0.75, "1", gauge, first);
    expect("0|system.paging.usage|used", 10, "By", gauge, first);
    expect("0|system.paging.usage|free", 90, "By", gauge, first);
    expect("0|lanterne.system.pressure|cpu", 0.25, "1", gauge, first);
    expect("0|system.disk.io|nvme0n1|read", 32768, "By", sum, 5);
    expect("0|system.disk.operations|nvme0n1|read", 8, "{operation}", sum, 5);
    expect("0|system.disk.operation_time|nvme0n1|read", 2400e-9, "s", sum, 5);
    expect("0|lanterne.traced.file.opens|opened", 6, "{open}", sum, 5);
    expect("0|lanterne.traced.file.opens|missing", 3, "{open}", sum, 5);
    expect("0|lanterne.traced.file.opens|failed", 1, "{open}", sum, 5);
    expect("0|lanterne.traced.process.events|exit", 1, "{event}", sum, 5);
    expect("0|lanterne.system.tcp.retransmits", 5, "{segment}", sum, 5);
    expect("0|lanterne.agent.detail", LTN_DETAIL_NO_HOST, "1", gauge, first);
    expect("0|lanterne.agent.thinning", 100, "1", gauge, first);
    expect("0|lanterne.agent.records.thinned", 9000, "{record}", sum, 5);
    expect("0|lanterne.agent.probe.share", 0.015, "1", gauge, first);
    expect("0|lanterne.agent.probe.duration", 950e-9, "s", gauge, first);
    for (size_t i = 0; i < sight.n; i++) {
        /* Never a path or an address, and of what the host does never a process. */
        assert_null(strstr(sight.points[i].key, "/data"));
        assert_null(strstr(sight.points[i].key, "192.0.2.7"));
        /* What could not be read is not sent. */
        assert_string_not_equal(sight.points[i].key, "0|lanterne.system.pressure|memory");
        assert_null(strstr(sight.points[i].key, "hw.power"));
        assert_null(strstr(sight.points[i].key, "pcie.generation"));
        assert_null(strstr(sight.points[i].key, "agent.cpu.share"));
    }
    ltn_push_encoder_free(e);
}

static void start_times_stay_and_encoding_repeats(void **state)
{
    (void)state;
    struct ltn_push_encoder *e = make(0);
    look(e, 0);
    look(e, 1);
    uint64_t hash = sight.hash;
    expect("1000|gpu.cuda.operation.count|cuda|cudaLaunchKernel", 200, "{call}", LTN_OTLP_SUM,
           SAMPLE_T0_NS);
    expect("1000|lanterne.step.duration", 0.5, "s", LTN_OTLP_GAUGE, SAMPLE_T0_NS + SAMPLE_STEP_NS);
    look(e, 1);
    assert_true(hash == sight.hash);
    ltn_push_encoder_free(e);
}

static void large_windows_are_split(void **state)
{
    (void)state;
    struct ltn_push_encoder *whole = make(0);
    struct ltn_push_encoder *parts = make(1500);
    look(whole, 0);
    struct seen *all = malloc(sizeof(sight.points));
    size_t n = sight.n;
    assert_non_null(all);
    memcpy(all, sight.points, sizeof(sight.points));
    look(parts, 0);
    assert_true(sight.requests > 5);
    assert_true(sight.largest <= 1500);
    assert_int_equal(sight.n, n);
    for (size_t i = 0; i < n; i++) {
        expect(all[i].key, all[i].value, all[i].unit, all[i].kind, all[i].start_ns);
    }
    assert_int_equal(ltn_push_points_dropped(parts), 0);
    free(all);
    ltn_push_encoder_free(whole);
    ltn_push_encoder_free(parts);
}

static void steps_are_sent_only_when_there_were_some(void **state)
{
    (void)state;
    struct ltn_push_encoder *e = make(0);
    struct ltn_window *w = sample_window(0);
    struct ltn_proc_window *p = (struct ltn_proc_window *)(uintptr_t)w->procs;
    p[0].rank_window.steps = 0;
    p[1].is_rank = false;
    struct ltn_otlp_reader *reader = sight.reader;
    sight = (struct sight){.reader = reader};
    assert_int_equal(ltn_push_encode_window(e, w, 7, emit, NULL), 0);
    for (size_t i = 0; i < sight.n; i++) {
        assert_null(strstr(sight.points[i].key, "lanterne.step"));
        assert_null(strstr(sight.points[i].key, "preemptor"));
    }
    ltn_window_free(w);
    ltn_push_encoder_free(e);
}

static int on_log(void *ctx, const struct ltn_otlp_group *g, const struct ltn_otlp_log *l)
{
    struct ltn_otlp_str s;
    int64_t v = 0;
    double d = 0;
    assert_true(ltn_otlp_str_eq(l->event_name, "lanterne.incident"));
    assert_int_equal(l->severity, LTN_OTLP_ERROR);
    assert_true(ltn_otlp_str_eq(l->body.str, "slow"));
    assert_true(ltn_otlp_get_str(l->attrs, "lanterne.incident.id", &s));
    assert_true(ltn_otlp_str_eq(s, "i-1"));
    assert_true(ltn_otlp_get_f64(l->attrs, "lanterne.incident.explained_share", &d) && d > 0.92);
    assert_true(ltn_otlp_get_i64(l->attrs, "lanterne.incident.opened_at", &v) && v == 1);
    assert_true(ltn_otlp_get_i64(g->resource, "process.pid", &v) && v == 9);
    ++*(int *)ctx;
    return 0;
}

static int emit_log(void *ctx, enum ltn_record_signal signal, const void *bytes, size_t n)
{
    struct ltn_otlp_logs_sink sink = {.ctx = ctx, .on_log = on_log};
    struct ltn_otlp_counts counts;
    assert_int_equal(signal, LTN_RECORD_LOGS);
    return ltn_otlp_logs_read(sight.reader, bytes, n, &sink, &counts);
}

static void incidents_become_log_records(void **state)
{
    (void)state;
    struct ltn_push_encoder *e = make(0);
    int n = 0;
    struct ltn_record_incident i = {.id = "i-1",
                                    .time_ns = 2,
                                    .opened_ns = 1,
                                    .state = "open",
                                    .kind = "k",
                                    .severity = "HIGH",
                                    .title = "slow",
                                    .cause = "",
                                    .explained_share = 0.93,
                                    .count = 1,
                                    .pid = 9,
                                    .proc_start_ns = 3,
                                    .evidence = "{}"};
    assert_int_equal(ltn_push_encode_incident(e, &i, emit_log, &n), 0);
    assert_int_equal(n, 1);
    ltn_push_encoder_free(e);
}

static int setup(void **state)
{
    (void)state;
    sight.reader = ltn_otlp_reader_new(NULL);
    return sight.reader != NULL ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    ltn_otlp_reader_free(sight.reader);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_metric_is_as_described),
        cmocka_unit_test(start_times_stay_and_encoding_repeats),
        cmocka_unit_test(large_windows_are_split),
        cmocka_unit_test(steps_are_sent_only_when_there_were_some),
        cmocka_unit_test(incidents_become_log_records),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
