/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Load generator for OTLP receivers: sends export requests as fast as they are answered (closed
 * loop) or at a given rate whether they are or not (open loop), and prints one line of JSON: what
 * was acknowledged, refused and left unanswered, how long answers took, and what generator and
 * server took of the CPU meanwhile. Used by bench/ingest; --help lists the flags.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "load_body.h"
#include "load_conn.h"

#define NS_PER_S      1000000000u
#define MAX_CONNS     1024
#define MAX_LATENCIES ((size_t)1 << 24)
#define DRAIN_NS      (15ull * NS_PER_S)
#define STEP_NS       (100ull * 1000000u) /* longest sleep */
#define MAX_REOPENS   10000
#define HOPELESS      50 /* failures without a success */

static const char usage[] =
    "usage: ingest_load --port N [flags]\n"
    "  --http1 | --http2 | --grpc   protocol (gRPC)\n"
    "  --json                       OTLP/JSON bodies (HTTP only)\n"
    "  --gzip | --zstd              compressed bodies, each made beforehand and sent once\n"
    "  --tls                        TLS; the certificate is not checked\n"
    "  --agent                      windows of an agent of 8 ranks instead of plain series\n"
    "  --points N                   in a request (240)\n"
    "  --series N                   in all (100000)\n"
    "  --rounds N                   new values of each series that are made, at most sent (0: "
    "any)\n"
    "  --connections N              (4)\n"
    "  --streams N                  requests at a time on one connection (16)\n"
    "  --rate N                     requests per second (0: closed loop)\n"
    "  --patience MS                open loop: a request that cannot be sent for so long is given "
    "up\n"
    "                               (1000)\n"
    "  --warmup S                   seconds, or one round if that takes longer (1)\n"
    "  --seconds S                  measured (5)\n"
    "  --pid N                      server whose CPU time is read\n"
    "  --token TEXT                 bearer token\n";

struct options {
    struct load_target target;
    struct load_set_conf set;
    uint32_t connections;
    uint64_t rounds;
    double rate;
    uint64_t patience_ns;
    uint64_t warmup_ns;
    uint64_t seconds_ns;
    long pid;
};

struct tally {
    uint64_t sent, acknowledged, points, rejected;
    uint64_t refused, hinted, failed, given_up, unanswered;
    uint64_t wire_bytes;
    int status; /* of the last failure */
};

struct load {
    struct options o;
    struct load_set set;
    struct load_conn *conns[MAX_CONNS];
    uint64_t closed_bytes; /* sent by connections that are gone */
    uint32_t next_conn;
    uint32_t reopened;
    int epoll;
    uint64_t next;   /* body */
    uint64_t due_ns; /* open loop: of the next request */
    struct tally t;
    uint64_t *latencies;
    size_t latency_count;
    bool measuring;
};

/* ---- clocks and processor time ---- */

static uint64_t clock_ns(clockid_t id)
{
    struct timespec t;
    (void)clock_gettime(id, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

static uint64_t now_ns(void)
{
    return clock_ns(CLOCK_MONOTONIC);
}

static double own_cpu_s(void)
{
    return (double)clock_ns(CLOCK_PROCESS_CPUTIME_ID) / 1e9;
}

/* User and system time of the server's threads; 0 without a pid. */
static double server_cpu_s(long pid)
{
    char path[64], text[1024];
    unsigned long long user = 0, system = 0;
    (void)snprintf(path, sizeof(path), "/proc/%ld/stat", pid);
    FILE *f = pid > 0 ? fopen(path, "re") : NULL;
    if (f == NULL)
        return 0;
    size_t n = fread(text, 1, sizeof(text) - 1, f);
    (void)fclose(f);
    text[n] = '\0';
    char *p = strrchr(text, ')');
    for (int field = 2; p != NULL && field < 14; field++) {
        p = strchr(p + 1, ' ');
    }
    if (p != NULL) {
        user = strtoull(p, &p, 10);
        system = strtoull(p, NULL, 10);
    }
    return (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
}

/* ---- sending ---- */

static void on_reply(void *arg, const struct load_reply *r)
{
    struct load *l = arg;
    if (r->ok) {
        l->t.acknowledged++;
        l->t.points += r->points - (r->rejected < r->points ? r->rejected : r->points);
        l->t.rejected += r->rejected;
        if (l->measuring && l->latency_count < MAX_LATENCIES)
            l->latencies[l->latency_count++] = now_ns() - r->due_ns;
    } else if (r->retry) {
        l->t.refused++;
        l->t.hinted += r->hint ? 1 : 0;
    } else {
        l->t.failed++;
        l->t.status = r->status;
    }
}

static bool open_conn(struct load *l, uint32_t i)
{
    struct epoll_event e = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.u32 = i};
    l->conns[i] = load_conn_new(&l->o.target, &l->set, on_reply, l);
    return l->conns[i] != NULL &&
           epoll_ctl(l->epoll, EPOLL_CTL_ADD, load_conn_fd(l->conns[i]), &e) == 0;
}

/* A connection that the server ended: what was under way on it stays unanswered. */
static void reopen(struct load *l, uint32_t i)
{
    l->t.unanswered += load_conn_in_flight(l->conns[i]);
    l->closed_bytes += load_conn_sent_bytes(l->conns[i]);
    load_conn_free(l->conns[i]);
    if (++l->reopened > MAX_REOPENS || !open_conn(l, i))
        load_fail("the server closes its connections");
}

static uint64_t body_limit(const struct load *l)
{
    if (l->set.once)
        return l->set.count;
    return l->o.rounds != 0 ? l->o.rounds * l->set.per_round : UINT64_MAX;
}

static void begin_on(struct load *l, struct load_conn *c, uint64_t due_ns)
{
    uint64_t n = l->next++;
    load_conn_begin(c, &l->set.bodies[n % l->set.count], clock_ns(CLOCK_REALTIME),
                    n / l->set.per_round, due_ns);
    l->t.sent++;
}

/* The next connection in turn that can take a request, or NULL. */
static struct load_conn *pick(struct load *l)
{
    for (uint32_t i = 0; i < l->o.connections; i++) {
        struct load_conn *c = l->conns[l->next_conn];
        l->next_conn = (l->next_conn + 1) % l->o.connections;
        if (load_conn_ready(c))
            return c;
    }
    return NULL;
}

/* Begins what is due. Returns when the next is, UINT64_MAX when that depends on replies. */
static uint64_t begin_due(struct load *l)
{
    struct load_conn *c;
    uint64_t step_ns = l->o.rate > 0 ? (uint64_t)(NS_PER_S / l->o.rate) : 0;
    while (l->next < body_limit(l)) {
        uint64_t now = now_ns();
        if (step_ns > 0 && l->due_ns > now)
            return l->due_ns;
        if (step_ns > 0 && now - l->due_ns > l->o.patience_ns) {
            l->t.given_up++;
            l->due_ns += step_ns;
            continue;
        }
        c = pick(l);
        if (c == NULL)
            return UINT64_MAX;
        begin_on(l, c, step_ns > 0 ? l->due_ns : now);
        l->due_ns += step_ns;
    }
    return UINT64_MAX;
}

static void flush_all(struct load *l)
{
    for (uint32_t i = 0; i < l->o.connections; i++)
        if (!load_conn_wants_write(l->conns[i]) && !load_conn_flush(l->conns[i]))
            reopen(l, i);
}

static void take_events(struct load *l, uint64_t until_ns)
{
    struct epoll_event events[64];
    uint64_t now = now_ns(), wait = until_ns > now ? until_ns - now : 0;
    wait = wait < STEP_NS ? wait : STEP_NS;
    struct timespec t = {(time_t)(wait / NS_PER_S), (long)(wait % NS_PER_S)};
    int n = epoll_pwait2(l->epoll, events, 64, &t, NULL);
    for (int k = 0; k < n; k++) {
        uint32_t i = events[k].data.u32;
        bool fine = true;
        if ((events[k].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0)
            fine = load_conn_read(l->conns[i]);
        if (fine)
            fine = (events[k].events & EPOLLRDHUP) == 0 && load_conn_flush(l->conns[i]);
        if (!fine)
            reopen(l, i);
    }
}

static uint64_t in_flight(const struct load *l)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < l->o.connections; i++)
        n += load_conn_in_flight(l->conns[i]);
    return n;
}

/* One turn: begin, send, take answers; waits no longer than until_ns. */
static void turn(struct load *l, uint64_t until_ns)
{
    uint64_t next_ns = begin_due(l);
    flush_all(l);
    take_events(l, next_ns < until_ns ? next_ns : until_ns);
}

static bool hopeless(const struct load *l)
{
    return l->t.acknowledged == 0 && l->t.failed >= HOPELESS;
}

static bool used_up(const struct load *l)
{
    return l->next >= body_limit(l) && in_flight(l) == 0;
}

static uint64_t sent_bytes(const struct load *l)
{
    uint64_t n = l->closed_bytes;
    for (uint32_t i = 0; i < l->o.connections; i++)
        n += load_conn_sent_bytes(l->conns[i]);
    return n;
}

/* ---- the run ---- */

struct measured {
    struct tally t; /* in the measured time */
    double seconds, own_cpu, server_cpu;
};

static struct tally minus(struct tally a, const struct tally *b)
{
    a.sent -= b->sent;
    a.acknowledged -= b->acknowledged;
    a.points -= b->points;
    a.rejected -= b->rejected;
    a.refused -= b->refused;
    a.hinted -= b->hinted;
    a.failed -= b->failed;
    a.given_up -= b->given_up;
    a.wire_bytes -= b->wire_bytes;
    return a;
}

static void warm_up(struct load *l)
{
    double rate = l->o.rate;
    uint64_t until = now_ns() + l->o.warmup_ns;
    if (l->o.warmup_ns == 0)
        return;
    l->o.rate = 0; /* all series become known as fast as the server takes them */
    while ((now_ns() < until || l->t.acknowledged < l->set.per_round) && !used_up(l) &&
           !hopeless(l))
        turn(l, until > now_ns() ? until : now_ns() + STEP_NS);
    if (rate > 0) { /* begin the open loop with nothing under way */
        uint64_t limit = now_ns() + DRAIN_NS, next = l->next;
        while (in_flight(l) > 0 && now_ns() < limit) {
            flush_all(l);
            take_events(l, limit);
        }
        l->next = next;
    }
    l->o.rate = rate;
}

static void run(struct load *l, struct measured *ret)
{
    warm_up(l);
    l->t.wire_bytes = sent_bytes(l);
    struct tally before = l->t;
    double own = own_cpu_s(), server = server_cpu_s(l->o.pid);
    uint64_t began = now_ns(), until = began + l->o.seconds_ns;
    l->due_ns = began;
    l->measuring = true;
    while (now_ns() < until && !used_up(l) && !hopeless(l))
        turn(l, until);
    l->t.wire_bytes = sent_bytes(l);
    ret->t = minus(l->t, &before);
    ret->seconds = (double)(now_ns() - began) / 1e9;
    ret->own_cpu = own_cpu_s() - own;
    ret->server_cpu = server_cpu_s(l->o.pid) - server;
    /* What is under way is still waited for, so that both sides can be compared. */
    uint64_t limit = now_ns() + DRAIN_NS;
    while (in_flight(l) > 0 && now_ns() < limit) {
        flush_all(l);
        take_events(l, limit);
    }
    l->t.unanswered += in_flight(l);
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static double percentile_ms(const struct load *l, double share)
{
    if (l->latency_count == 0)
        return 0;
    size_t i = (size_t)(share * (double)(l->latency_count - 1));
    return (double)l->latencies[i] / 1e6;
}

static void print(struct load *l, const struct measured *m)
{
    qsort(l->latencies, l->latency_count, sizeof(*l->latencies), by_value);
    (void)printf("{\"seconds\": %.3f, \"requests\": %" PRIu64 ", \"points\": %" PRIu64
                 ", \"refused\": %" PRIu64 ", \"hinted\": %" PRIu64 ", \"failed\": %" PRIu64
                 ", \"given_up\": %" PRIu64 ", \"sent\": %" PRIu64 ", \"status\": %d, ",
                 m->seconds, m->t.acknowledged, m->t.points, m->t.refused, m->t.hinted, m->t.failed,
                 m->t.given_up, m->t.sent, l->t.status);
    (void)printf("\"own_cpu\": %.3f, \"server_cpu\": %.3f, \"wire_bytes\": %" PRIu64
                 ", \"p50_ms\": %.3f, \"p90_ms\": %.3f, \"p99_ms\": %.3f, \"max_ms\": %.3f, ",
                 m->own_cpu, m->server_cpu, m->t.wire_bytes, percentile_ms(l, 0.5),
                 percentile_ms(l, 0.9), percentile_ms(l, 0.99), percentile_ms(l, 1));
    (void)printf("\"points_a_request\": %.2f, \"plain_bytes\": %.1f, \"body_bytes\": %.1f, "
                 "\"series\": %" PRIu64 ", \"rounds_made\": %zu, \"used_up\": %s, ",
                 (double)l->set.series / (double)l->set.per_round, l->set.plain_bytes,
                 l->set.wire_bytes, l->set.series, l->set.count / l->set.per_round,
                 used_up(l) ? "true" : "false");
    (void)printf("\"all_acknowledged\": %" PRIu64 ", \"all_points\": %" PRIu64
                 ", \"all_rejected\": %" PRIu64 ", \"all_refused\": %" PRIu64
                 ", \"all_failed\": %" PRIu64 ", \"unanswered\": %" PRIu64 ", \"reopened\": %u}\n",
                 l->t.acknowledged, l->t.points, l->t.rejected, l->t.refused, l->t.failed,
                 l->t.unanswered, l->reopened);
}

/* ---- options ---- */

enum {
    OPT_HTTP1 = 256,
    OPT_HTTP2,
    OPT_GRPC,
    OPT_JSON,
    OPT_GZIP,
    OPT_ZSTD,
    OPT_AGENT,
    OPT_TLS,
    OPT_POINTS,
    OPT_SERIES,
    OPT_ROUNDS,
    OPT_CONNECTIONS,
    OPT_STREAMS,
    OPT_RATE,
    OPT_PATIENCE,
    OPT_WARMUP,
    OPT_SECONDS,
    OPT_PID,
    OPT_TOKEN,
    OPT_PORT,
    OPT_HELP
};

static const struct option flags[] = {
    {"http1", no_argument, NULL, OPT_HTTP1},
    {"http2", no_argument, NULL, OPT_HTTP2},
    {"grpc", no_argument, NULL, OPT_GRPC},
    {"json", no_argument, NULL, OPT_JSON},
    {"gzip", no_argument, NULL, OPT_GZIP},
    {"zstd", no_argument, NULL, OPT_ZSTD},
    {"tls", no_argument, NULL, OPT_TLS},
    {"agent", no_argument, NULL, OPT_AGENT},
    {"points", required_argument, NULL, OPT_POINTS},
    {"series", required_argument, NULL, OPT_SERIES},
    {"rounds", required_argument, NULL, OPT_ROUNDS},
    {"connections", required_argument, NULL, OPT_CONNECTIONS},
    {"streams", required_argument, NULL, OPT_STREAMS},
    {"rate", required_argument, NULL, OPT_RATE},
    {"patience", required_argument, NULL, OPT_PATIENCE},
    {"warmup", required_argument, NULL, OPT_WARMUP},
    {"seconds", required_argument, NULL, OPT_SECONDS},
    {"pid", required_argument, NULL, OPT_PID},
    {"token", required_argument, NULL, OPT_TOKEN},
    {"port", required_argument, NULL, OPT_PORT},
    {"help", no_argument, NULL, OPT_HELP},
    {NULL, 0, NULL, 0},
};

static double number(const char *text, double max)
{
    char *end;
    double v = strtod(text, &end);
    if (end == text || *end != '\0' || !(v >= 0) || v > max) {
        (void)fprintf(stderr, "ingest_load: \"%s\" is no number up to %.0f\n", text, max);
        exit(2);
    }
    return v;
}

static void one_flag(struct options *o, int flag, const char *arg)
{
    switch (flag) {
    case OPT_HTTP1:
    case OPT_HTTP2:
        o->target.http2 = flag == OPT_HTTP2;
        o->target.grpc = false;
        break;
    case OPT_GRPC:
        o->target.http2 = o->target.grpc = true;
        break;
    case OPT_JSON:
        o->target.json = true;
        break;
    case OPT_GZIP:
        o->target.coding = LOAD_GZIP;
        break;
    case OPT_ZSTD:
        o->target.coding = LOAD_ZSTD;
        break;
    case OPT_TLS:
        o->target.tls = true;
        break;
    case OPT_AGENT:
        o->set.shape = LOAD_AGENT;
        break;
    case OPT_TOKEN:
        o->target.token = arg;
        break;
    case OPT_HELP:
        (void)fputs(usage, stdout);
        exit(0);
    default:
        (void)fputs(usage, stderr);
        exit(2);
    }
}

static void one_value(struct options *o, int flag, const char *arg)
{
    switch (flag) {
    case OPT_POINTS:
        o->set.points = (uint32_t)number(arg, 20000);
        break;
    case OPT_SERIES:
        o->set.series = (uint32_t)number(arg, 1e8);
        break;
    case OPT_ROUNDS:
        o->rounds = (uint64_t)number(arg, 1e9);
        break;
    case OPT_CONNECTIONS:
        o->connections = (uint32_t)number(arg, MAX_CONNS);
        break;
    case OPT_STREAMS:
        o->target.streams = (uint32_t)number(arg, 100000);
        break;
    case OPT_RATE:
        o->rate = number(arg, 1e8);
        break;
    case OPT_PATIENCE:
        o->patience_ns = (uint64_t)(number(arg, 1e6) * 1e6);
        break;
    case OPT_WARMUP:
        o->warmup_ns = (uint64_t)(number(arg, 1e5) * 1e9);
        break;
    case OPT_SECONDS:
        o->seconds_ns = (uint64_t)(number(arg, 1e6) * 1e9);
        break;
    case OPT_PID:
        o->pid = (long)number(arg, 1e9);
        break;
    case OPT_PORT:
        o->target.port = (uint16_t)number(arg, 65535);
        break;
    default:
        one_flag(o, flag, arg);
        break;
    }
}

static void parse(struct options *o, int argc, char **argv)
{
    int flag;
    *o = (struct options){
        .target = {.host = "127.0.0.1", .http2 = true, .grpc = true, .streams = 16},
        .set = {.points = 240, .series = 100000},
        .connections = 4,
        .patience_ns = NS_PER_S,
        .warmup_ns = NS_PER_S,
        .seconds_ns = 5ull * NS_PER_S,
    };
    while ((flag = getopt_long(argc, argv, "", flags, NULL)) != -1)
        one_value(o, flag, optarg);
    if (o->target.port == 0 || optind != argc || o->connections == 0 || o->target.streams == 0 ||
        (o->target.json && (o->target.grpc || o->set.shape == LOAD_AGENT))) {
        (void)fputs(usage, stderr);
        exit(2);
    }
    o->target.path = o->target.grpc
                         ? "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"
                         : "/v1/metrics";
    o->set.coding = o->target.coding;
    o->set.json = o->target.json;
    o->set.grpc = o->target.grpc;
    o->set.rounds = (uint32_t)(o->rounds != 0 ? o->rounds : 20);
}

int main(int argc, char **argv)
{
    static struct load l;
    struct measured m;
    parse(&l.o, argc, argv);
    load_set_init(&l.set, &l.o.set);
    l.latencies = malloc(MAX_LATENCIES * sizeof(*l.latencies));
    l.epoll = epoll_create1(EPOLL_CLOEXEC);
    if (l.latencies == NULL || l.epoll < 0)
        load_fail("out of memory");
    for (uint32_t i = 0; i < l.o.connections; i++)
        if (!open_conn(&l, i))
            load_fail("cannot connect");
    run(&l, &m);
    print(&l, &m);
    for (uint32_t i = 0; i < l.o.connections; i++)
        load_conn_free(l.conns[i]);
    load_set_done(&l.set);
    free(l.latencies);
    return 0;
}
