/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Record, outbox and push against a gRPC receiver in another process that is absent, refuses,
 * hangs, is killed and comes back: every window arrives at least once, cumulative values end equal,
 * nobody waits for it, and the outbox is empty in the end.
 */
#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "otlp/metrics_read.h"
#include "push/encode.h"
#include "push/push.h"
#include "record/record.h"
#include "record_sample.h"
#include "drop_tree.h"
#include "run_program.h"

#ifndef LTN_TEST_SOURCE_DIR
#error "LTN_TEST_SOURCE_DIR must name this folder"
#endif

#define MAX_WINDOWS 256

static char dir[32];

struct server {
    pid_t pid;
    int port;
    FILE *in;  /* to it */
    FILE *out; /* from it */
};

struct pipeline {
    struct ltn_push_encoder *encoder;
    struct ltn_record *record;
    struct ltn_push *push;
    unsigned windows;
};

/* ---- the receiver ---- */

static void server_start(struct server *s, const char *kind, int port)
{
    int to[2];
    int from[2];
    char port_text[16];
    char file[64];
    (void)snprintf(port_text, sizeof(port_text), "%d", port);
    (void)snprintf(file, sizeof(file), "%s/received", dir);
    assert_int_equal(pipe(to), 0);
    assert_int_equal(pipe(from), 0);
    s->pid = fork();
    if (s->pid == 0) {
        (void)dup2(to[0], STDIN_FILENO);
        (void)dup2(from[1], STDOUT_FILENO);
        (void)close(to[1]);
        (void)close(from[0]);
        (void)execl("/usr/bin/python3", "python3", LTN_TEST_SOURCE_DIR "/push_server.py", kind,
                    port_text, file, (char *)NULL);
        _exit(127);
    }
    (void)close(to[0]);
    (void)close(from[1]);
    s->in = fdopen(to[1], "w");
    s->out = fdopen(from[0], "r");
    char line[64] = "";
    if (fgets(line, sizeof(line), s->out) == NULL || strncmp(line, "ready ", 6) != 0) {
        fail_msg("the receiver did not start: %s", line);
    }
    s->port = (int)strtol(line + 6, NULL, 10);
}

static void server_mode(struct server *s, const char *mode)
{
    char line[64];
    assert_true(fprintf(s->in, "%s\n", mode) > 0 && fflush(s->in) == 0);
    assert_non_null(fgets(line, sizeof(line), s->out));
}

static void server_kill(struct server *s)
{
    assert_int_equal(kill(s->pid, SIGKILL), 0);
    assert_int_equal(waitpid(s->pid, NULL, 0), s->pid);
    (void)fclose(s->in);
    (void)fclose(s->out);
}

/* ---- the agent's half ---- */

static const char *token_file = "";
static uint64_t timeout_ns = 300 * LTN_NS_PER_MS;

static void pipeline_start_at(struct pipeline *p, const char *endpoint, const char *name)
{
    struct ltn_errinfo info = {0};
    char path[64];
    (void)snprintf(path, sizeof(path), "%s/%s.db", dir, name);
    assert_int_equal(
        ltn_push_encoder_new(&(struct ltn_push_encoder_conf){.node = "n"}, &p->encoder), 0);
    struct ltn_record_encoder encoder = ltn_push_record_encoder(p->encoder);
    struct ltn_record_opts o = {.path = path, .node = "n", .commit_ms = 5, .encoder = &encoder};
    assert_int_equal(ltn_record_open(&o, &p->record, &info), 0);
    assert_int_equal(ltn_record_start(p->record), 0);
    struct ltn_push_conf c;
    ltn_push_conf_init(&c);
    assert_int_equal(ltn_push_conf_env(&c, environ, &info), 0);
    assert_int_equal(ltn_push_conf_endpoint(&c, endpoint, &info), 0);
    (void)snprintf(c.token_file, sizeof(c.token_file), "%s", token_file);
    c.metrics.timeout_ns = timeout_ns;
    c.first_backoff_ns = 20 * LTN_NS_PER_MS;
    c.longest_backoff_ns = 100 * LTN_NS_PER_MS;
    c.backfill_per_s = 1000;
    int rc = ltn_push_open(&c, p->record, &p->push, &info);
    if (rc != 0) {
        fail_msg("push: %d %s", rc, info.msg);
    }
    assert_int_equal(ltn_push_start(p->push), 0);
}

static void pipeline_start(struct pipeline *p, int port, const char *name)
{
    char endpoint[64];
    (void)snprintf(endpoint, sizeof(endpoint), "127.0.0.1:%d", port);
    pipeline_start_at(p, endpoint, name);
}

static void pipeline_stop(struct pipeline *p)
{
    ltn_push_close(p->push);
    ltn_record_close(p->record);
    ltn_push_encoder_free(p->encoder);
}

/* Sending a window must not wait for anybody. */
static void send_windows(struct pipeline *p, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        assert_int_equal(ltn_record_send_window(p->record, sample_window(p->windows)), 0);
        p->windows++;
    }
}

typedef bool (*condition)(struct pipeline *p, uint64_t n);

static bool retried(struct pipeline *p, uint64_t n)
{
    struct ltn_push_stats s;
    ltn_push_stats(p->push, &s);
    return s.retries >= n;
}

static bool sent(struct pipeline *p, uint64_t n)
{
    struct ltn_push_stats s;
    ltn_push_stats(p->push, &s);
    return s.sent + s.refused >= n;
}

static bool drained(struct pipeline *p, uint64_t n)
{
    struct ltn_record_stats s;
    ltn_record_stats(p->record, &s);
    return s.windows.waiting == 0 && s.outbox_rows == n;
}

static void wait_until(condition c, struct pipeline *p, uint64_t n, const char *what)
{
    uint64_t deadline = ltn_now_mono_ns() + 60 * LTN_NS_PER_S;
    while (!c(p, n)) {
        if (ltn_now_mono_ns() > deadline) {
            fail_msg("waited in vain: %s", what);
        }
        (void)nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    }
}

static uint64_t retries(struct pipeline *p)
{
    struct ltn_push_stats s;
    ltn_push_stats(p->push, &s);
    return s.retries;
}

/* ---- what arrived ---- */

struct arrived {
    unsigned times[MAX_WINDOWS + 1];
    uint64_t newest_ns;
    double launches;
    uint64_t samples;
};

static int on_number(void *ctx, const struct ltn_otlp_group *g, const struct ltn_otlp_metric *m,
                     const struct ltn_otlp_number *p)
{
    struct arrived *a = ctx;
    int64_t sequence = 0;
    int64_t pid = 0;
    struct ltn_otlp_str op;
    if (ltn_otlp_str_eq(m->name, "lanterne.agent.calls")) {
        assert_true(ltn_otlp_get_i64(g->resource, "lanterne.window.sequence", &sequence));
        assert_in_range(sequence, 1, MAX_WINDOWS);
        a->times[sequence]++;
    }
    if (ltn_otlp_str_eq(m->name, "gpu.cuda.operation.count") &&
        ltn_otlp_get_i64(g->resource, "process.pid", &pid) && pid == SAMPLE_PID &&
        ltn_otlp_get_str(p->point.attrs, "lanterne.op", &op) &&
        ltn_otlp_str_eq(op, "cudaLaunchKernel") && p->point.time_ns > a->newest_ns) {
        a->newest_ns = p->point.time_ns;
        a->launches = ltn_otlp_number_f64(p);
    }
    return 0;
}

static int on_exp(void *ctx, const struct ltn_otlp_group *g, const struct ltn_otlp_metric *m,
                  const struct ltn_otlp_exp_histogram *p)
{
    struct arrived *a = ctx;
    (void)g;
    (void)m;
    a->samples = p->count > a->samples ? p->count : a->samples;
    return 0;
}

static void read_arrived(struct arrived *a)
{
    char file[64];
    struct ltn_buf b;
    struct ltn_otlp_reader *reader = ltn_otlp_reader_new(NULL);
    struct ltn_otlp_metrics_sink sink = {
        .ctx = a, .on_number = on_number, .on_exp_histogram = on_exp};
    assert_non_null(reader);
    ltn_buf_init(&b, 64U << 20);
    (void)snprintf(file, sizeof(file), "%s/received", dir);
    assert_int_equal(ltn_file_read(file, &b), 0);
    *a = (struct arrived){0};
    for (size_t at = 0; at + 4 <= b.len;) {
        const uint8_t *u = (const uint8_t *)b.data + at;
        size_t n = (size_t)u[0] << 24 | (size_t)u[1] << 16 | (size_t)u[2] << 8 | u[3];
        if (at + 4 + n > b.len) {
            break; /* the receiver was killed in mid-write, and did not acknowledge it */
        }
        struct ltn_otlp_counts counts;
        assert_int_equal(ltn_otlp_metrics_read(reader, u + 4, n, &sink, &counts), 0);
        at += 4 + n;
    }
    ltn_buf_done(&b);
    ltn_otlp_reader_free(reader);
}

/* ---- tests ---- */

static void every_window_arrives(void **state)
{
    (void)state;
    struct server s = {0};
    struct pipeline p = {0};
    struct arrived a;
    server_start(&s, "grpc", 0);
    int port = s.port;
    server_kill(&s);
    pipeline_start(&p, port, "outage");
    /* Nobody there. */
    send_windows(&p, 5);
    wait_until(retried, &p, 2, "attempts without a receiver");
    /* It comes up, but refuses. */
    server_start(&s, "grpc", port);
    server_mode(&s, "unavailable");
    send_windows(&p, 5);
    wait_until(retried, &p, retries(&p) + 3, "refused attempts");
    /* It takes a while. */
    server_mode(&s, "ok");
    wait_until(sent, &p, 3, "first deliveries");
    server_mode(&s, "slow");
    send_windows(&p, 5);
    wait_until(retried, &p, retries(&p) + 2, "attempts that time out");
    /* It dies in the middle of deliveries. */
    server_mode(&s, "ok");
    send_windows(&p, 20);
    wait_until(sent, &p, 6, "more deliveries");
    server_kill(&s);
    send_windows(&p, 20);
    wait_until(retried, &p, retries(&p) + 2, "attempts after its death");
    server_start(&s, "grpc", port);
    send_windows(&p, 1);
    wait_until(drained, &p, 0, "an empty outbox");
    struct ltn_push_stats stats;
    ltn_push_stats(p.push, &stats);
    assert_int_equal(stats.refused, 0);
    assert_int_equal(stats.backoff_ns, 0);
    assert_true(stats.backfilled > 0);
    assert_string_equal(stats.verdict, "straggler;job=train;rank=1;cause=cpu");
    read_arrived(&a);
    for (unsigned i = 1; i <= p.windows; i++) {
        if (a.times[i] == 0) {
            fail_msg("window %u is missing", i);
        }
    }
    assert_true(a.launches > (double)SAMPLE_CALLS * p.windows - 0.5 &&
                a.launches < (double)SAMPLE_CALLS * p.windows + 0.5);
    assert_int_equal(a.samples, (uint64_t)SAMPLE_CALLS * p.windows);
    pipeline_stop(&p);
    server_kill(&s);
}

static void what_is_refused_for_good_goes(void **state)
{
    (void)state;
    struct server s = {0};
    struct pipeline p = {0};
    struct ltn_push_stats stats;
    server_start(&s, "grpc", 0);
    server_mode(&s, "invalid");
    pipeline_start(&p, s.port, "refused");
    send_windows(&p, 4);
    wait_until(sent, &p, 4, "refusals");
    wait_until(drained, &p, 0, "an empty outbox");
    ltn_push_stats(p.push, &stats);
    assert_int_equal(stats.refused, 4);
    assert_int_equal(stats.sent, 0);
    assert_string_equal(stats.last_error, "not like this");
    pipeline_stop(&p);
    server_kill(&s);
}

/* What a receiver does not take of a request is counted and said, and not sent again. */
static void partial_success_is_final(void **state)
{
    (void)state;
    static const char *const protocols[] = {"grpc", "http"};
    (void)setenv("no_proxy", "127.0.0.1", 1);
    for (size_t i = 0; i < LTN_ARRAY_SIZE(protocols); i++) {
        struct server s = {0};
        struct pipeline p = {0};
        struct ltn_push_stats stats;
        struct arrived a;
        char endpoint[64];
        server_start(&s, protocols[i], 0);
        server_mode(&s, "partial");
        (void)snprintf(endpoint, sizeof(endpoint), "http://127.0.0.1:%d%s", s.port,
                       i == 0 ? "" : "/base");
        if (i == 1) {
            (void)setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf", 1);
        }
        pipeline_start_at(&p, endpoint, protocols[i]);
        send_windows(&p, 2);
        wait_until(sent, &p, 2, "deliveries");
        wait_until(drained, &p, 0, "an empty outbox");
        ltn_push_stats(p.push, &stats);
        assert_int_equal(stats.sent, 2);
        assert_int_equal(stats.rejected_points, 6);
        assert_string_equal(stats.last_rejection, "too old");
        assert_int_equal(stats.retries + stats.refused, 0);
        pipeline_stop(&p);
        read_arrived(&a);
        assert_true(a.times[1] == 1 + i && a.times[2] == 1 + i); /* one file for both */
        server_kill(&s);
        (void)unsetenv("OTEL_EXPORTER_OTLP_PROTOCOL");
    }
}

static void the_outbox_outlives_the_agent(void **state)
{
    (void)state;
    struct server s = {0};
    struct pipeline p = {0};
    struct pipeline again = {0};
    struct arrived a;
    server_start(&s, "grpc", 0);
    int port = s.port;
    server_kill(&s);
    pipeline_start(&p, port, "restart");
    send_windows(&p, 8);
    wait_until(retried, &p, 1, "an attempt");
    pipeline_stop(&p);
    server_start(&s, "grpc", port);
    pipeline_start(&again, port, "restart");
    wait_until(sent, &again, 8, "the backlog of the last run");
    wait_until(drained, &again, 0, "an empty outbox");
    read_arrived(&a);
    for (unsigned i = 1; i <= 8; i++) {
        assert_true(a.times[i] > 0);
    }
    pipeline_stop(&again);
    server_kill(&s);
}

/* The last windows before an orderly end leave in the flush. */
static void stop_flushes(void **state)
{
    (void)state;
    struct server s = {0};
    struct pipeline p = {0};
    struct arrived a;
    server_start(&s, "grpc", 0);
    pipeline_start(&p, s.port, "flush");
    send_windows(&p, 30);
    struct ltn_record_stats r;
    do {
        ltn_record_stats(p.record, &r);
    } while (r.windows.waiting > 0);
    pipeline_stop(&p);
    read_arrived(&a);
    for (unsigned i = 1; i <= 30; i++) {
        assert_true(a.times[i] > 0);
    }
    server_kill(&s);
}

static void write_token(const char *path, const char *token)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(token, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

/* Wrong credentials say nothing about the data: it waits, and the new token is picked up. */
static void check_token(const char *kind, const char *scheme, const char *base)
{
    struct server s = {0};
    struct pipeline p = {0};
    struct ltn_push_stats stats;
    char endpoint[64];
    char path[64];
    (void)snprintf(path, sizeof(path), "%s/token", dir);
    write_token(path, "wrong\n");
    token_file = path;
    server_start(&s, kind, 0);
    server_mode(&s, "token");
    (void)snprintf(endpoint, sizeof(endpoint), "%s127.0.0.1:%d%s", scheme, s.port, base);
    pipeline_start_at(&p, endpoint, "token");
    token_file = "";
    send_windows(&p, 3);
    wait_until(retried, &p, 2, "attempts with the wrong token");
    ltn_push_stats(p.push, &stats);
    assert_int_equal(stats.sent, 0);
    write_token(path, "s3cret\n");
    wait_until(drained, &p, 0, "an empty outbox");
    wait_until(sent, &p, 3, "deliveries");
    ltn_push_stats(p.push, &stats);
    assert_int_equal(stats.refused, 0);
    pipeline_stop(&p);
    server_kill(&s);
}

static void a_new_token_is_picked_up(void **state)
{
    (void)state;
    check_token("grpc", "", "");
}

static void the_same_over_http(void **state)
{
    (void)state;
    (void)setenv("no_proxy", "127.0.0.1", 1);
    struct server s = {0};
    struct pipeline p = {0};
    struct arrived a;
    struct ltn_push_stats stats;
    char endpoint[64];
    server_start(&s, "http", 0);
    (void)snprintf(endpoint, sizeof(endpoint), "http://127.0.0.1:%d/base/", s.port);
    (void)setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf", 1);
    pipeline_start_at(&p, endpoint, "http");
    send_windows(&p, 3);
    wait_until(drained, &p, 0, "an empty outbox");
    wait_until(sent, &p, 3, "deliveries");
    /* Retry-After is at least obeyed. */
    server_mode(&s, "unavailable");
    send_windows(&p, 1);
    wait_until(retried, &p, 1, "a refused attempt");
    ltn_push_stats(p.push, &stats);
    assert_true(stats.backoff_ns >= 7 * LTN_NS_PER_S);
    pipeline_stop(&p);
    read_arrived(&a);
    for (unsigned i = 1; i <= 3; i++) {
        assert_int_equal(a.times[i], 1);
    }
    server_kill(&s);
    check_token("http", "http://", "/base");
    (void)unsetenv("OTEL_EXPORTER_OTLP_PROTOCOL");
}

/* A peer that takes the request and never answers: stop does not wait for the call's own time. */
static void check_stop(const char *scheme, const char *name)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(at);
    struct pipeline p = {0};
    char endpoint[64];
    char byte;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
    assert_int_equal(listen(fd, 8), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &len), 0);
    (void)snprintf(endpoint, sizeof(endpoint), "%s127.0.0.1:%d", scheme, ntohs(at.sin_port));
    timeout_ns = 100 * LTN_NS_PER_S;
    pipeline_start_at(&p, endpoint, name);
    send_windows(&p, 1);
    int peer = accept(fd, NULL, NULL);
    assert_int_equal(read(peer, &byte, 1), 1);
    uint64_t began_ns = ltn_now_mono_ns();
    ltn_push_stop(p.push);
    assert_true(ltn_now_mono_ns() - began_ns < 50 * LTN_NS_PER_S);
    pipeline_stop(&p);
    timeout_ns = 300 * LTN_NS_PER_MS;
    (void)close(peer);
    (void)close(fd);
}

static void a_silent_peer_does_not_hold_up_the_stop(void **state)
{
    (void)state;
    check_stop("", "silent");
    (void)setenv("no_proxy", "127.0.0.1", 1);
    (void)setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf", 1);
    check_stop("http://", "silent2");
    (void)unsetenv("OTEL_EXPORTER_OTLP_PROTOCOL");
}

static int make_dir(void **state)
{
    (void)state;
    (void)snprintf(dir, sizeof(dir), "/tmp/ltn-push-XXXXXX");
    return mkdtemp(dir) != NULL ? 0 : -1;
}

static int drop_dir(void **state)
{
    (void)state;
    return ltn_drop_tree(dir);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, make_dir, drop_dir)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_window_arrives),
        TEST(what_is_refused_for_good_goes),
        TEST(partial_success_is_final),
        TEST(the_outbox_outlives_the_agent),
        TEST(stop_flushes),
        TEST(a_new_token_is_picked_up),
        TEST(the_same_over_http),
        TEST(a_silent_peer_does_not_hold_up_the_stop),
    };
    (void)signal(SIGPIPE, SIG_IGN);
    if (ltn_run_python("import grpc") != 0) {
        print_message("SKIPPED: needs /usr/bin/python3 with grpcio\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
