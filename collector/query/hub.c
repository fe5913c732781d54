/* SPDX-License-Identifier: Apache-2.0 */
/* The attached agents: who they are, their clocks, their verdicts, and their end. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "access/scope.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/text.h"
#include "query/internal.h"

#define MAX_STREAMS      20000
#define MAX_QUERIES      4
#define MAX_QUERY_BYTES  ((size_t)64 << 20)
#define MAX_BYTES        ((size_t)192 << 20)
#define SILENCE_NS       (45 * LTN_NS_PER_S)
#define PING_NS          (10 * LTN_NS_PER_S)
#define HELLO_NS         (10 * LTN_NS_PER_S) /* a stream must say who it is */
#define BUSY_TICK_NS     (50 * LTN_NS_PER_MS)
#define IDLE_TICK_NS     LTN_NS_PER_S
#define MESSAGE_NS       (50 * LTN_NS_PER_MS) /* 20 unasked messages a second ... */
#define MESSAGE_BURST_NS (10 * LTN_NS_PER_S)  /* ... after a burst of 200 */
#define MAX_STRIKES      256                  /* pages that nobody asked for */
#define STRIKES_FORGIVEN 8                    /* per tick */
#define MAX_CLOCK_NS     (86400 * LTN_NS_PER_S)

enum {
    ABORTED = 10,
    FORBIDDEN = 7,
    INVALID_ARGUMENT = 3,
    DEADLINE = 4,
    EXHAUSTED = 8,
    UNAVAILABLE = 14
};

/* ---- life of an agent ---- */

/* The stream is over, from whichever side. */
static void agent_gone(struct agent *a)
{
    struct ltn_query_hub *h = a->hub;
    if (a->node[0] != '\0' && ltn_map_get_str(&h->by_node, a->node) == a)
        (void)ltn_map_del(&h->by_node, a->node, strlen(a->node));
    if (a->prev != NULL)
        a->prev->next = a->next;
    else
        h->agents = a->next;
    if (a->next != NULL)
        a->next->prev = a->prev;
    h->agents_n--;
    ltn_fanout_gone(a);
    free(a);
}

static void agent_end(struct agent *a, int status, const char *message)
{
    ltn_http_stream_end(a->stream, status, message);
    agent_gone(a);
}

bool ltn_agent_send(struct agent *a, struct ltn_buf *b)
{
    int rc = ltn_buf_error(b);
    if (rc == 0)
        rc = ltn_http_stream_send(a->stream, ltn_buf_str(b), b->len);
    ltn_buf_done(b);
    if (rc != 0)
        a->heard_ns = 0; /* the tick ends it: callers may be walking the agents */
    return rc == 0;
}

static int on_open(void *arg, struct ltn_http_request *stream, void **ret_ctx)
{
    struct ltn_query_hub *h = arg;
    if (h->draining || h->agents_n >= h->opts.max_streams) {
        h->stats.attaches_refused++;
        return LTN_ERR_BUSY;
    }
    struct agent *a = calloc(1, sizeof(*a));
    if (a == NULL) {
        h->stats.attaches_refused++;
        return LTN_ERR_BUSY;
    }
    a->hub = h;
    a->stream = stream;
    a->opened_ns = ltn_now_mono_ns();
    a->heard_ns = a->opened_ns;
    a->next = h->agents;
    if (h->agents != NULL)
        h->agents->prev = a;
    h->agents = a;
    h->agents_n++;
    *ret_ctx = a;
    return 0;
}

static void on_closed(void *ctx)
{
    agent_gone(ctx);
}

/* ---- verdicts ---- */

static bool send_verdict(struct agent *a, const struct ltn_straggler_verdict *v)
{
    char id[sizeof(v->job) + sizeof(v->key) + 32];
    struct ltn_buf b;
    (void)snprintf(id, sizeof(id), "%.100s/%s/%llu", v->job, v->key,
                   (unsigned long long)v->opened_at_ns);
    const struct ltn_control_verdict m = {
        .id = ltn_control_str(id),
        .job = ltn_control_str(v->job),
        .cause = ltn_control_str(v->cause),
        .rank = v->rank >= 0 ? (uint32_t)v->rank : 0,
        .state = v->closed_at_ns == 0 ? LTN_CONTROL_STATE_OPEN : LTN_CONTROL_STATE_CLEAR,
        .since_unix_ns = v->since_ns,
        .effect = v->effect_pct / 100,
        .explained_share = v->explained_share,
    };
    ltn_buf_init(&b, LTN_CONTROL_MESSAGE_BYTES);
    ltn_control_put_verdict(&b, &m);
    return ltn_agent_send(a, &b);
}

void ltn_query_hub_verdict(struct ltn_query_hub *h, const struct ltn_straggler_verdict *v)
{
    struct agent *a = ltn_map_get_str(&h->by_node, v->node);
    if (a != NULL && send_verdict(a, v))
        h->stats.verdicts_sent++;
    else
        h->stats.verdicts_unsent++;
}

/* What is open when the agent comes. */
static void send_open_verdicts(struct agent *a)
{
    struct ltn_query_hub *h = a->hub;
    size_t pos = 0;
    for (const struct ltn_fleet_verdict *o; (o = ltn_map_next(&h->fleet->open, &pos)) != NULL;)
        if (strcmp(o->v.node, a->node) == 0)
            ltn_query_hub_verdict(h, &o->v);
}

/* ---- messages ---- */

static bool take_token(struct agent *a, uint64_t now_ns)
{
    uint64_t floor_ns = now_ns > MESSAGE_BURST_NS ? now_ns - MESSAGE_BURST_NS : 0;
    a->tokens_ns = a->tokens_ns > floor_ns ? a->tokens_ns : floor_ns;
    if (a->tokens_ns + MESSAGE_NS > now_ns)
        return false;
    a->tokens_ns += MESSAGE_NS;
    return true;
}

static void hostile(struct agent *a, const char *why)
{
    a->hub->stats.hostile++;
    agent_end(a, INVALID_ARGUMENT, why);
}

/* A token of one cluster is good for that cluster's nodes only. */
static bool may_speak_for(const struct agent *a, const struct ltn_control_hello *m,
                          const char *node)
{
    const char *only = ltn_scope_cluster(a->stream);
    const struct ltn_fleet_node *known = ltn_map_get_str(&a->hub->fleet->nodes, node);
    char named[LTN_NAME_BYTES];
    ltn_text_clean(named, sizeof(named), m->cluster.p, m->cluster.n);
    return ltn_scope_allows(only, named) &&
           (known == NULL || ltn_scope_allows(only, known->cluster));
}

static void on_hello(struct agent *a, const struct ltn_control_hello *m)
{
    struct ltn_query_hub *h = a->hub;
    struct ltn_buf b;
    if (a->node[0] != '\0') {
        hostile(a, "a second hello");
        return;
    }
    char node[LTN_NAME_BYTES];
    ltn_text_clean(node, sizeof(node), m->node.p, m->node.n);
    if (node[0] == '\0' || m->node.n >= sizeof(node)) {
        hostile(a, "no name, or one that is too long");
        return;
    }
    if (!may_speak_for(a, m, node)) {
        h->stats.attaches_refused++;
        agent_end(a, FORBIDDEN, "the token is for another cluster");
        return;
    }
    struct agent *old = ltn_map_get_str(&h->by_node, node);
    if (old != NULL) {
        h->stats.replaced++;
        agent_end(old, ABORTED, "a newer stream of this node came");
    }
    if (ltn_map_put_str(&h->by_node, node, a) != 0) {
        h->stats.attaches_refused++;
        agent_end(a, EXHAUSTED, "too many nodes");
        return;
    }
    (void)ltn_copy_str(a->node, sizeof(a->node), node);
    ltn_text_clean(a->instance, sizeof(a->instance), m->instance.p, m->instance.n);
    a->attached_unix_ns = ltn_now_unix_ns();
    h->stats.attaches++;
    const struct ltn_control_welcome w = {.collector = ltn_control_str("lanterne-collector"),
                                          .version = ltn_control_str(LTN_VERSION),
                                          .clock_interval_ns = h->opts.ping_interval_ns};
    ltn_buf_init(&b, LTN_CONTROL_MESSAGE_BYTES);
    ltn_control_put_welcome(&b, &w);
    if (ltn_agent_send(a, &b))
        send_open_verdicts(a);
}

static void on_ping(struct agent *a, const struct ltn_control_ping *m, uint64_t arrived_unix_ns)
{
    struct ltn_buf b;
    int64_t offset = m->last_offset_ns;
    bool sane = offset < (int64_t)MAX_CLOCK_NS && offset > -(int64_t)MAX_CLOCK_NS &&
                m->last_round_trip_ns < MAX_CLOCK_NS;
    if (m->last_round_trip_ns != 0 && sane) {
        a->has_clock = true;
        a->clock_offset_ns = -offset; /* the agent measures the collector */
        a->clock_uncertainty_ns = m->last_round_trip_ns / 2 + 1;
    }
    a->hub->stats.pings++;
    const struct ltn_control_pong pong = {.sequence = m->sequence,
                                          .t1_unix_ns = m->t1_unix_ns,
                                          .t2_unix_ns = arrived_unix_ns,
                                          .t3_unix_ns = ltn_now_unix_ns()};
    ltn_buf_init(&b, LTN_CONTROL_MESSAGE_BYTES);
    ltn_control_put_pong(&b, &pong);
    (void)ltn_agent_send(a, &b);
}

static void on_message(void *ctx, const uint8_t *p, size_t n)
{
    struct agent *a = ctx;
    struct ltn_control_message m;
    uint64_t arrived_unix_ns = ltn_now_unix_ns();
    uint64_t now_ns = ltn_now_mono_ns();
    if (ltn_control_read_agent(p, n, &m) != 0) {
        a->hub->stats.malformed++;
        hostile(a, "a message cannot be read");
        return;
    }
    a->heard_ns = a->heard_ns != 0 ? now_ns : 0;
    bool asked = m.kind == LTN_CONTROL_QUERY_PAGE || m.kind == LTN_CONTROL_QUERY_END;
    if (!asked && !take_token(a, now_ns)) {
        hostile(a, "too many messages");
        return;
    }
    if (a->node[0] == '\0' && m.kind != LTN_CONTROL_HELLO) {
        hostile(a, "hello comes first");
        return;
    }
    switch (m.kind) {
    case LTN_CONTROL_HELLO:
        on_hello(a, &m.hello);
        break;
    case LTN_CONTROL_CLOCK_PING:
        on_ping(a, &m.ping, arrived_unix_ns);
        break;
    case LTN_CONTROL_QUERY_PAGE:
        ltn_fanout_page(a, &m.page);
        break;
    case LTN_CONTROL_QUERY_END:
        ltn_fanout_end(a, &m.end);
        break;
    case LTN_CONTROL_VERDICT_ACK:
        a->hub->stats.verdict_acks++;
        break;
    default:
        break;
    }
    if (asked && a->strikes > MAX_STRIKES)
        hostile(a, "pages that nobody asked for");
}

static const struct ltn_http_stream_ops stream_ops = {
    .open = on_open, .message = on_message, .closed = on_closed};

/* ---- time ---- */

static void on_tick(void *arg);

static void arm_tick(struct ltn_query_hub *h)
{
    uint64_t due_ns = ltn_now_mono_ns() + (h->running_n > 0 ? BUSY_TICK_NS : IDLE_TICK_NS);
    (void)!ltn_loop_timer_at(h->loop, &h->tick, due_ns, on_tick, h);
}

void ltn_hub_tick_soon(struct ltn_query_hub *h)
{
    arm_tick(h);
}

static void judge(struct agent *a, uint64_t now_ns)
{
    struct ltn_query_hub *h = a->hub;
    a->strikes -= a->strikes < STRIKES_FORGIVEN ? a->strikes : STRIKES_FORGIVEN;
    if (a->heard_ns == 0) {
        h->stats.stuck++;
        agent_end(a, UNAVAILABLE, "what is sent is not taken");
    } else if (now_ns > a->heard_ns + h->opts.silence_ns ||
               (a->node[0] == '\0' && now_ns > a->opened_ns + HELLO_NS)) {
        h->stats.silent++;
        agent_end(a, DEADLINE, "silent for too long");
    }
}

static void on_tick(void *arg)
{
    struct ltn_query_hub *h = arg;
    uint64_t now_ns = ltn_now_mono_ns();
    ltn_fanout_tick(h, now_ns);
    for (struct agent *a = h->agents, *next; a != NULL; a = next) {
        next = a->next;
        judge(a, now_ns);
    }
    arm_tick(h);
}

/* ---- the hub ---- */

static void fill_defaults(struct ltn_query_opts *o)
{
    o->max_streams = o->max_streams != 0 ? o->max_streams : MAX_STREAMS;
    o->max_queries = o->max_queries != 0 ? o->max_queries : MAX_QUERIES;
    if (o->max_queries > LTN_QUERY_MAX_RUNNING)
        o->max_queries = LTN_QUERY_MAX_RUNNING;
    o->max_query_bytes = o->max_query_bytes != 0 ? o->max_query_bytes : MAX_QUERY_BYTES;
    o->max_bytes = o->max_bytes != 0 ? o->max_bytes : MAX_BYTES;
    o->silence_ns = o->silence_ns != 0 ? o->silence_ns : SILENCE_NS;
    o->ping_interval_ns = o->ping_interval_ns != 0 ? o->ping_interval_ns : PING_NS;
}

struct ltn_query_hub *ltn_query_hub_new(struct ltn_loop *loop, const struct ltn_fleet *fleet,
                                        const struct ltn_query_opts *opts)
{
    struct ltn_query_hub *h = calloc(1, sizeof(*h));
    uint64_t random = 0;
    if (h == NULL)
        return NULL;
    h->loop = loop;
    h->fleet = fleet;
    h->opts = opts != NULL ? *opts : (struct ltn_query_opts){0};
    fill_defaults(&h->opts);
    h->last = &h->first;
    pthread_mutex_init(&h->lock, NULL);
    pthread_cond_init(&h->change, NULL);
    ltn_map_init(&h->by_node, h->opts.max_streams);
    /* An agent of an earlier run must not answer questions of this one. */
    (void)!getrandom(&random, sizeof(random), GRND_NONBLOCK);
    h->first_id = h->next_id = random >> 16 | 1;
    if (ltn_reducer_start(h) != 0) {
        ltn_query_hub_free(h);
        return NULL;
    }
    arm_tick(h);
    return h;
}

int ltn_query_hub_route(struct ltn_query_hub *h, struct ltn_http_server *server)
{
    const struct ltn_http_route r = {.path = LTN_CONTROL_METHOD,
                                     .flags = LTN_ROUTE_GRPC,
                                     .max_body_bytes = LTN_CONTROL_MESSAGE_BYTES,
                                     .arg = h,
                                     .stream = &stream_ops};
    return ltn_http_server_route(server, &r);
}

void ltn_query_hub_drain(struct ltn_query_hub *h)
{
    h->draining = true;
    while (h->agents != NULL) {
        struct ltn_buf b;
        ltn_buf_init(&b, LTN_CONTROL_MESSAGE_BYTES);
        ltn_control_put_drain(&b, LTN_NS_PER_S);
        (void)ltn_agent_send(h->agents, &b);
        agent_end(h->agents, UNAVAILABLE, "the collector is shutting down");
    }
}

void ltn_query_hub_stop(struct ltn_query_hub *h)
{
    if (h == NULL)
        return;
    h->draining = true;
    ltn_loop_timer_stop(h->loop, &h->tick);
    ltn_reducer_stop(h);
    ltn_fanout_stop(h);
}

void ltn_query_hub_free(struct ltn_query_hub *h)
{
    if (h == NULL)
        return;
    ltn_reducer_stop(h);
    ltn_map_done(&h->by_node, NULL);
    pthread_cond_destroy(&h->change);
    pthread_mutex_destroy(&h->lock);
    free(h);
}

bool ltn_query_hub_node(const struct ltn_query_hub *h, const char *node, struct ltn_query_node *ret)
{
    const struct agent *a = ltn_map_get_str(&h->by_node, node);
    *ret = (struct ltn_query_node){0};
    if (a == NULL)
        return false;
    *ret = (struct ltn_query_node){.attached = true,
                                   .has_clock = a->has_clock,
                                   .clock_offset_ns = a->clock_offset_ns,
                                   .clock_uncertainty_ns = a->clock_uncertainty_ns,
                                   .attached_unix_ns = a->attached_unix_ns};
    return true;
}

void ltn_query_hub_stats(const struct ltn_query_hub *h, struct ltn_query_stats *ret)
{
    *ret = h->stats;
    ret->streams = h->agents_n;
    ret->running = h->running_n;
    ret->held_bytes = h->held_bytes;
}
