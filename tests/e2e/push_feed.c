/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent's exporter alone: a record whose outbox gets one request of metrics and one of logs for
 * each number that is asked for, and the push thread with what OTEL_EXPORTER_OTLP_* says.
 *
 * push_feed DB: reads lines "feed N" (numbers go on from the last), "stats", "end" from standard
 * input; answers each with one line.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "otlp/logs_write.h"
#include "otlp/metrics_write.h"
#include "push/push.h"
#include "record/record.h"

struct feed {
    uint64_t number; /* record thread */
    struct ltn_record *record;
    struct ltn_push *push;
};

static int metrics(uint64_t n, ltn_record_emit_fn emit, void *emit_ctx)
{
    struct ltn_buf b;
    struct ltn_otlp_metrics_writer w;
    const struct ltn_otlp_attr service = ltn_otlp_attr_str("service.name", "feed");
    const struct ltn_otlp_metric m = {
        .name = ltn_otlp_str("feed"), .unit = ltn_otlp_str("1"), .kind = LTN_OTLP_GAUGE};
    const struct ltn_otlp_number p = {
        .point = {.time_ns = ltn_now_unix_ns()}, .type = LTN_OTLP_INT, .i = (int64_t)n};
    ltn_buf_init(&b, 1 << 16);
    ltn_otlp_metrics_begin(&w, &b);
    int rc = ltn_otlp_metrics_resource(&w, (struct ltn_otlp_attrs){&service, 1});
    rc = rc == 0 ? ltn_otlp_metrics_scope(&w, "feed", "1") : rc;
    rc = rc == 0 ? ltn_otlp_metrics_metric(&w, &m) : rc;
    rc = rc == 0 ? ltn_otlp_metrics_number(&w, &p) : rc;
    rc = rc == 0 ? ltn_otlp_metrics_end(&w) : rc;
    rc = rc == 0 ? emit(emit_ctx, LTN_RECORD_METRICS, b.data, b.len) : rc;
    ltn_buf_done(&b);
    return rc;
}

static int logs(uint64_t n, ltn_record_emit_fn emit, void *emit_ctx)
{
    struct ltn_buf b;
    struct ltn_otlp_logs_writer w;
    char body[32];
    const struct ltn_otlp_attr service = ltn_otlp_attr_str("service.name", "feed");
    (void)snprintf(body, sizeof(body), "%llu", (unsigned long long)n);
    const struct ltn_otlp_log log = {
        .time_ns = ltn_now_unix_ns(),
        .body = {.type = LTN_OTLP_STRING, .str = ltn_otlp_str(body)},
    };
    ltn_buf_init(&b, 1 << 16);
    ltn_otlp_logs_begin(&w, &b);
    int rc = ltn_otlp_logs_resource(&w, (struct ltn_otlp_attrs){&service, 1});
    rc = rc == 0 ? ltn_otlp_logs_scope(&w, "feed", "1") : rc;
    rc = rc == 0 ? ltn_otlp_logs_record(&w, &log) : rc;
    rc = rc == 0 ? ltn_otlp_logs_end(&w) : rc;
    rc = rc == 0 ? emit(emit_ctx, LTN_RECORD_LOGS, b.data, b.len) : rc;
    ltn_buf_done(&b);
    return rc;
}

static int on_incident(void *ctx, const struct ltn_record_incident *i, ltn_record_emit_fn emit,
                       void *emit_ctx)
{
    (void)ctx;
    int rc = metrics(i->count, emit, emit_ctx);
    return rc == 0 ? logs(i->count, emit, emit_ctx) : rc;
}

static int feed(struct feed *f, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        char id[32];
        f->number++;
        (void)snprintf(id, sizeof(id), "i-%llu", (unsigned long long)f->number);
        const struct ltn_record_incident o = {.id = id,
                                              .time_ns = ltn_now_unix_ns(),
                                              .opened_ns = 1,
                                              .state = "open",
                                              .kind = "feed",
                                              .severity = "LOW",
                                              .title = "feed",
                                              .cause = "",
                                              .explained_share = -1,
                                              .count = f->number,
                                              .evidence = "{}"};
        int rc = ltn_record_send_incident(f->record, &o);
        if (rc != 0)
            return rc;
    }
    return 0;
}

static void stats(const struct feed *f)
{
    struct ltn_push_stats p;
    struct ltn_record_stats r;
    ltn_push_stats(f->push, &p);
    ltn_record_stats(f->record, &r);
    for (char *c = p.last_error; *c != '\0'; c++)
        if (*c == '"' || *c == '\\')
            *c = '\'';
    (void)printf("{\"sent\":%llu,\"refused\":%llu,\"retries\":%llu,\"rejected\":%llu,"
                 "\"rows\":%llu,\"waiting\":%llu,\"backoff_ns\":%llu,\"last_error\":\"%s\"}\n",
                 (unsigned long long)p.sent, (unsigned long long)p.refused,
                 (unsigned long long)p.retries, (unsigned long long)p.rejected_points,
                 (unsigned long long)r.outbox_rows, (unsigned long long)r.incidents.waiting,
                 (unsigned long long)p.backoff_ns, p.last_error);
}

static int start(struct feed *f, const char *db, struct ltn_errinfo *info)
{
    const struct ltn_record_encoder encoder = {.ctx = f, .incident = on_incident};
    const struct ltn_record_opts o = {
        .path = db, .node = "feed", .commit_ms = 5, .encoder = &encoder};
    struct ltn_push_conf c;
    int rc = ltn_record_open(&o, &f->record, info);
    rc = rc == 0 ? ltn_record_start(f->record) : rc;
    ltn_push_conf_init(&c);
    rc = rc == 0 ? ltn_push_conf_env(&c, environ, info) : rc;
    c.first_backoff_ns = 50 * LTN_NS_PER_MS;
    c.longest_backoff_ns = 200 * LTN_NS_PER_MS;
    c.backfill_per_s = 1000;
    rc = rc == 0 ? ltn_push_open(&c, f->record, &f->push, info) : rc;
    return rc == 0 ? ltn_push_start(f->push) : rc;
}

int main(int argc, char **argv)
{
    struct feed f = {0};
    struct ltn_errinfo info = {0, ""};
    char line[64];
    int rc = argc == 2 ? start(&f, argv[1], &info) : -1;
    if (rc != 0) {
        (void)fprintf(stderr, "cannot start: %s\n", info.msg);
        return 2;
    }
    (void)printf("ready\n");
    (void)fflush(stdout);
    while (fgets(line, sizeof(line), stdin) != NULL && strcmp(line, "end\n") != 0) {
        uint64_t n = 0;
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, "feed ", 5) == 0 && ltn_parse_u64(line + 5, &n))
            (void)printf("%d\n", feed(&f, n));
        else
            stats(&f);
        (void)fflush(stdout);
    }
    ltn_push_close(f.push);
    ltn_record_close(f.record);
    return 0;
}
