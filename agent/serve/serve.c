/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/serve.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>

#include "base/chan.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "conf/conf.h"
#include "http/server.h"
#include "http/tls.h"
#include "io/loop.h"
#include "serve/guard.h"
#include "serve/reports.h"
#include "serve/rows.h"
#include "serve/when.h"

#define TOKEN_BYTES      1024
#define NODE_BYTES       256
#define QUEUE_ITEMS      16
#define BUDGET_BYTES     ((size_t)16 << 20)
#define BODY_BYTES       ((size_t)128 << 10)
#define ANSWER_BYTES     ((size_t)64 << 20)
#define MAX_TIMEOUT_MS   10000
#define MAX_LIMIT        1000000
#define DEFAULT_LIMIT    10000
#define MAX_CONNECTIONS  64
#define REPORT_LIMIT_MAX 100000

/* A request on its way to a worker. */
struct job {
    struct ltn_http_request *req;
    ltn_report_fn report; /* NULL: a statement */
    struct ltn_report_ctx ctx;
};

struct worker {
    struct ltn_serve *serve;
    struct ltn_chan *jobs;
    pthread_t thread;
    bool started;
};

struct ltn_serve {
    char listen[256];
    char token[TOKEN_BYTES]; /* "" without one */
    char db_path[PATH_MAX];
    char node[NODE_BYTES];
    bool loopback;
    struct ltn_loop *loop;
    struct ltn_http_budget *budget;
    struct ltn_http_server *server;
    struct ltn_tls_server *tls; /* NULL: cleartext */
    struct ltn_timer tls_look;
    struct worker reports;
    struct worker statements;
    pthread_t thread;
    bool started;
    _Atomic bool stopping;
};

/* ---- answers ---- */

static void reply_json(struct ltn_http_request *req, int status, struct ltn_buf *b)
{
    if (ltn_buf_error(b) != 0) {
        ltn_http_reply_error(req, ltn_buf_error(b), "answer too large: ask for less", 0);
        ltn_buf_done(b);
        return;
    }
    (void)ltn_buf_putc(b, '\n');
    size_t n = 0;
    char *body = ltn_buf_steal(b, &n);
    static const struct ltn_http_field fields[] = {{"cache-control", "no-store"},
                                                   {"x-content-type-options", "nosniff"}};
    ltn_http_reply(req, &(struct ltn_http_response){.status = status,
                                                    .content_type = "application/json",
                                                    .body = body,
                                                    .body_len = n,
                                                    .take_body = true,
                                                    .fields = fields,
                                                    .field_count = LTN_ARRAY_SIZE(fields)});
    ltn_buf_done(b);
}

static void begin(struct ltn_buf *b, struct ltn_json *j)
{
    ltn_buf_init(b, ANSWER_BYTES);
    ltn_json_init(j, b);
    ltn_json_open_object(j);
}

static void finish(struct ltn_http_request *req, struct ltn_buf *b, struct ltn_json *j)
{
    ltn_json_close_object(j);
    reply_json(req, 200, b);
}

/* ---- worker threads ---- */

static void do_report(const struct job *job, struct ltn_record_reader *r)
{
    struct ltn_errinfo info = {0};
    struct ltn_buf b;
    struct ltn_json j;
    begin(&b, &j);
    int rc = job->report(r, &job->ctx, &j, &info);
    if (rc < 0) {
        ltn_buf_done(&b);
        ltn_http_reply_error(job->req, rc, info.msg, 0);
        return;
    }
    finish(job->req, &b, &j);
}

struct statement {
    json_t *root;
    const char *sql; /* lies in root */
    struct ltn_db_limits limits;
};

/* A member that may be absent: 1 .. max. */
static bool take_number(const json_t *root, const char *key, json_int_t max, uint64_t *ret)
{
    const json_t *v = json_object_get(root, key);
    if (v == NULL || json_is_null(v)) {
        return true;
    }
    if (!json_is_integer(v) || json_integer_value(v) < 1 || json_integer_value(v) > max) {
        return false;
    }
    *ret = (uint64_t)json_integer_value(v);
    return true;
}

static int parse_statement(const struct ltn_http_request *req, struct statement *st,
                           struct ltn_errinfo *info)
{
    size_t n = 0;
    uint64_t limit = DEFAULT_LIMIT;
    uint64_t timeout_ms = 5000;
    const uint8_t *body = ltn_http_body(req, &n);
    json_error_t error;
    *st = (struct statement){0};
    st->root = json_loadb(n > 0 ? (const char *)body : "", n, JSON_REJECT_DUPLICATES, &error);
    if (st->root == NULL) {
        return ltn_errinfo_set(info, LTN_ERR_MALFORMED, "the body is no JSON: %.160s", error.text);
    }
    st->sql = json_string_value(json_object_get(st->root, "sql"));
    if (st->sql == NULL) {
        return ltn_errinfo_set(info, LTN_ERR_MALFORMED, "the body needs a text member \"sql\"");
    }
    if (!take_number(st->root, "limit", MAX_LIMIT, &limit)) {
        return ltn_errinfo_set(info, LTN_ERR_MALFORMED, "limit: 1 to %d", MAX_LIMIT);
    }
    if (!take_number(st->root, "timeout_ms", MAX_TIMEOUT_MS, &timeout_ms)) {
        return ltn_errinfo_set(info, LTN_ERR_MALFORMED, "timeout_ms: 1 to %d", MAX_TIMEOUT_MS);
    }
    st->limits = (struct ltn_db_limits){
        .timeout_ns = timeout_ms * LTN_NS_PER_MS, .max_rows = limit, .max_bytes = ANSWER_BYTES / 4};
    return 0;
}

static void do_statement(const struct job *job, struct ltn_record_reader *r)
{
    struct statement st;
    struct ltn_errinfo info = {0};
    struct ltn_rows rows;
    ltn_rows_init(&rows, ANSWER_BYTES);
    int rc = parse_statement(job->req, &st, &info);
    if (rc == 0) {
        rc = ltn_rows_query(&rows, ltn_record_reader_db(r), st.sql, &st.limits, &info);
    }
    if (rc < 0) {
        ltn_http_reply_error(job->req, rc, info.msg, 0);
    } else {
        char node[NODE_BYTES];
        struct ltn_buf b;
        struct ltn_json j;
        ltn_report_node(r, node, sizeof(node));
        begin(&b, &j);
        ltn_json_kv_str(&j, "node", job->ctx.node[0] != '\0' ? job->ctx.node : node);
        ltn_rows_json(&rows, &j);
        finish(job->req, &b, &j);
    }
    ltn_rows_done(&rows);
    json_decref(st.root);
}

/* Ready when the record can be read; when it cannot, do_job answers. */
static int report_ready(struct ltn_record_reader *r, const struct ltn_report_ctx *c,
                        struct ltn_json *j, struct ltn_errinfo *info)
{
    (void)r;
    (void)c;
    (void)info;
    ltn_json_kv_bool(j, "ready", true);
    ltn_json_key(j, "reasons");
    ltn_json_open_array(j);
    ltn_json_close_array(j);
    return 0;
}

static void reply_not_ready(struct ltn_http_request *req, const char *reason)
{
    struct ltn_buf b;
    struct ltn_json j;
    begin(&b, &j);
    ltn_json_kv_bool(&j, "ready", false);
    ltn_json_key(&j, "reasons");
    ltn_json_open_array(&j);
    ltn_json_str(&j, reason);
    ltn_json_close_array(&j);
    ltn_json_close_object(&j);
    reply_json(req, 503, &b);
}

static void do_job(struct ltn_serve *s, struct job *job)
{
    struct ltn_record_reader *r = NULL;
    struct ltn_errinfo info = {0};
    if (ltn_http_gone(job->req) || atomic_load(&s->stopping)) {
        ltn_http_reply_error(job->req, LTN_ERR_CLOSED, NULL, 0);
        free(job);
        return;
    }
    /* Opened anew each time: the file may have been replaced since. */
    int rc = ltn_record_reader_open(s->db_path, &r, &info);
    /* The path of the database is nobody's business beyond this machine. */
    const char *why = s->loopback ? info.msg : "the record cannot be read";
    if (rc < 0 && job->report == report_ready) {
        reply_not_ready(job->req, why);
    } else if (rc < 0) {
        ltn_http_reply_error(job->req, rc == LTN_ERR_NOT_FOUND ? LTN_ERR_UNAVAILABLE : rc, why, 0);
    } else if (job->report != NULL) {
        do_report(job, r);
    } else {
        do_statement(job, r);
    }
    ltn_record_reader_close(r);
    free(job);
}

static void *work(void *arg)
{
    struct worker *w = arg;
    struct job *job;
    for (;;) {
        job = ltn_chan_recv_wait(w->jobs, -1);
        if (job != NULL) {
            do_job(w->serve, job);
        } else if (atomic_load(&w->serve->stopping)) {
            return NULL;
        }
    }
}

/* ---- loop thread ---- */

static void hand_over(struct worker *w, struct ltn_http_request *req, ltn_report_fn report,
                      const struct ltn_report_ctx *ctx)
{
    struct job *job = malloc(sizeof(*job));
    if (job == NULL) {
        ltn_http_reply_error(req, -ENOMEM, NULL, 0);
        return;
    }
    *job = (struct job){.req = req, .report = report, .ctx = *ctx};
    int rc = ltn_chan_send(w->jobs, job, 1);
    if (rc < 0) {
        free(job);
        ltn_http_reply_error(req, rc, "too many requests wait; try again", 0);
    }
}

static void on_report(struct ltn_serve *s, struct ltn_http_request *req, ltn_report_fn report)
{
    char text[64];
    struct ltn_report_ctx ctx = {.node = s->node};
    bool given = strstr(ltn_http_query(req), "since=") != NULL;
    if (ltn_http_query_get(req, "since", text, sizeof(text))
            ? !ltn_parse_when(text, ltn_now_unix_ns(), &ctx.since_ns)
            : given) {
        ltn_http_reply_error(req, LTN_ERR_MALFORMED,
                             "since: a duration such as 5m, Unix time in ns, or RFC 3339", 0);
        return;
    }
    if (ltn_http_query_get(req, "limit", text, sizeof(text)) &&
        (!ltn_parse_u64(text, &ctx.limit) || ctx.limit == 0 || ctx.limit > REPORT_LIMIT_MAX)) {
        ltn_http_reply_error(req, LTN_ERR_MALFORMED, "limit: 1 to 100000", 0);
        return;
    }
    hand_over(&s->reports, req, report, &ctx);
}

#define REPORT_HANDLER(name)                                                                       \
    static void on_##name(void *arg, struct ltn_http_request *req)                                 \
    {                                                                                              \
        on_report(arg, req, ltn_report_##name);                                                    \
    }
REPORT_HANDLER(overview)
REPORT_HANDLER(ops)
REPORT_HANDLER(incidents)
REPORT_HANDLER(snapshots)
REPORT_HANDLER(collectives)

static void on_query(void *arg, struct ltn_http_request *req)
{
    struct ltn_serve *s = arg;
    const struct ltn_report_ctx ctx = {.node = s->node};
    hand_over(&s->statements, req, NULL, &ctx);
}

static void on_capabilities(void *arg, struct ltn_http_request *req)
{
    struct ltn_buf b;
    struct ltn_json j;
    (void)arg;
    begin(&b, &j);
    ltn_report_capabilities(&j);
    finish(req, &b, &j);
}

/* Answered on the loop thread: a queue would spoil the measurement. */
static void on_time(void *arg, struct ltn_http_request *req)
{
    struct ltn_buf b;
    struct ltn_json j;
    (void)arg;
    begin(&b, &j);
    ltn_json_kv_time(&j, "now", "now_ns", ltn_now_unix_ns());
    finish(req, &b, &j);
}

static void on_healthz(void *arg, struct ltn_http_request *req)
{
    (void)arg;
    ltn_http_reply_text(req, 200, "ok\n");
}

static void on_readyz(void *arg, struct ltn_http_request *req)
{
    on_report(arg, req, report_ready);
}

static const char page[] =
    "<!doctype html><meta charset=utf-8><title>lanterne</title><h1>lanterne</h1><p>The API of this "
    "node: <a href=/api/v1/overview>overview</a>, <a href=/api/v1/ops?since=5m>ops</a>, <a "
    "href=/api/v1/incidents>incidents</a>, <a href=/api/v1/snapshots?since=5m>snapshots</a>, <a "
    "href=/api/v1/collectives>collectives</a>, <a href=/api/v1/capabilities>capabilities</a>.\n";

static void on_page(void *arg, struct ltn_http_request *req)
{
    (void)arg;
    ltn_http_reply_bytes(req, 200, "text/html; charset=utf-8", page, sizeof(page) - 1);
}

/* A page of somebody else that a browser on this machine shows must not reach the record: neither
 * across origins nor under a foreign name that resolves to loopback. */
static int authorize(void *arg, const struct ltn_http_request *req, uint64_t *ret_tag)
{
    const struct ltn_serve *s = arg;
    const char *host = ltn_http_header(req, "host");
    const char *origin = ltn_http_header(req, "origin");
    (void)ret_tag;
    if (s->token[0] != '\0') {
        if (!ltn_http_bearer_is(req, s->token)) {
            return LTN_ERR_UNAUTHENTICATED;
        }
        if (origin != NULL && (host == NULL || !ltn_guard_origin_is_host(origin, host))) {
            return LTN_ERR_FORBIDDEN;
        }
        return 0;
    }
    if (host == NULL ? ltn_http_version(req) < 20 : !ltn_guard_host_is_local(host)) {
        return LTN_ERR_FORBIDDEN;
    }
    return origin == NULL || ltn_guard_origin_is_local(origin) ? 0 : LTN_ERR_FORBIDDEN;
}

static int add_routes(struct ltn_serve *s)
{
    static const struct {
        const char *path;
        unsigned flags;
        void (*handle)(void *arg, struct ltn_http_request *req);
    } routes[] = {
        {"/api/v1/overview", 0, on_overview},
        {"/api/v1/ops", 0, on_ops},
        {"/api/v1/chains", 0, on_incidents},
        {"/api/v1/incidents", 0, on_incidents},
        {"/api/v1/snapshots", 0, on_snapshots},
        {"/api/v1/collectives", 0, on_collectives},
        {"/api/v1/capabilities", 0, on_capabilities},
        {"/api/v1/time", 0, on_time},
        {"/healthz", LTN_ROUTE_NO_AUTH, on_healthz},
        {"/readyz", LTN_ROUTE_NO_AUTH, on_readyz},
        {"/", 0, on_page},
    };
    int rc = 0;
    for (size_t i = 0; i < LTN_ARRAY_SIZE(routes) && rc == 0; i++) {
        const struct ltn_http_route r = {.methods = LTN_HTTP_GET,
                                         .path = routes[i].path,
                                         .flags = routes[i].flags | LTN_ROUTE_GZIP,
                                         .handle = routes[i].handle,
                                         .arg = s};
        rc = ltn_http_server_route(s->server, &r);
    }
    if (rc == 0) {
        const struct ltn_http_route r = {.methods = LTN_HTTP_POST,
                                         .path = "/api/v1/query",
                                         .content_types = "application/json",
                                         .max_body_bytes = BODY_BYTES,
                                         .handle = on_query,
                                         .arg = s};
        rc = ltn_http_server_route(s->server, &r);
    }
    return rc;
}

static void *run_loop(void *arg)
{
    struct ltn_serve *s = arg;
    int rc = ltn_loop_run(s->loop);
    if (rc < 0) {
        ltn_log_error("the local API ended: %s", ltn_err_str(rc));
    }
    return NULL;
}

/* ---- TLS ---- */

#define TLS_LOOK_NS (5 * LTN_NS_PER_S)

static void look_at_certificate(void *arg)
{
    struct ltn_serve *s = arg;
    struct ltn_errinfo info = {0};
    int rc = ltn_tls_server_poll(s->tls, &info);
    if (rc < 0) {
        ltn_log_warn("local API: the certificate is not taken over, the old one stays: %s",
                     info.msg);
    }
    rc = ltn_loop_timer_at(s->loop, &s->tls_look, ltn_now_mono_ns() + TLS_LOOK_NS,
                           look_at_certificate, s);
    if (rc != 0) {
        ltn_log_warn("local API: a new certificate will not be seen: %s", ltn_err_str(rc));
    }
}

static int make_tls(struct ltn_serve *s, const struct ltn_serve_opts *o, struct ltn_http_conf *c,
                    struct ltn_errinfo *info)
{
    bool cert = o->cert_file != NULL && o->cert_file[0] != '\0';
    bool key = o->key_file != NULL && o->key_file[0] != '\0';
    if (cert != key) {
        return ltn_errinfo_set(info, LTN_ERR_CONFIG,
                               "--api-cert-file and --api-key-file belong together");
    }
    if (!cert) {
        return 0;
    }
    const struct ltn_tls_server_conf tc = {.cert_file = o->cert_file, .key_file = o->key_file};
    int rc = ltn_tls_server_new(&tc, &s->tls, info);
    c->tls = s->tls;
    c->tls_required = true;
    return rc == 0 ? 0 : LTN_ERR_CONFIG;
}

/* ---- life ---- */

static int copy_opts(struct ltn_serve *s, const struct ltn_serve_opts *o, struct ltn_errinfo *info)
{
    if (!ltn_copy_str(s->listen, sizeof(s->listen), o->listen) ||
        !ltn_copy_str(s->db_path, sizeof(s->db_path), o->db_path) ||
        !ltn_copy_str(s->node, sizeof(s->node), o->node != NULL ? o->node : "")) {
        return ltn_errinfo_set(info, LTN_ERR_CONFIG, "--listen, --db or --node: too long");
    }
    s->loopback = ltn_guard_is_loopback(s->listen);
    if (o->token_file != NULL && o->token_file[0] != '\0') {
        int rc = ltn_conf_read_secret(o->token_file, s->token, sizeof(s->token), info);
        return rc < 0 ? LTN_ERR_CONFIG : 0;
    }
    if (!s->loopback) {
        return ltn_errinfo_set(info, LTN_ERR_CONFIG,
                               "--listen %s can be reached from other machines: give "
                               "--api-token-file FILE, or listen on 127.0.0.1",
                               s->listen);
    }
    return 0;
}

static int make_server(struct ltn_serve *s, const struct ltn_serve_opts *o,
                       struct ltn_errinfo *info)
{
    struct ltn_http_conf c;
    ltn_http_conf_default(&c);
    int rc = make_tls(s, o, &c, info);
    if (rc != 0) {
        return rc;
    }
    c.max_connections = MAX_CONNECTIONS;
    c.max_connections_per_ip = MAX_CONNECTIONS;
    c.max_body_bytes = BODY_BYTES;
    c.max_response_bytes = ANSWER_BYTES;
    c.authorize = authorize;
    c.authorize_arg = s;
    s->loop = ltn_loop_new();
    s->budget = ltn_http_budget_new(BUDGET_BYTES);
    s->server = s->loop != NULL ? ltn_http_server_new(s->loop, &c, s->budget) : NULL;
    s->reports.jobs = ltn_chan_new(QUEUE_ITEMS, QUEUE_ITEMS);
    s->statements.jobs = ltn_chan_new(QUEUE_ITEMS, QUEUE_ITEMS);
    if (s->server == NULL || s->budget == NULL || s->reports.jobs == NULL ||
        s->statements.jobs == NULL || add_routes(s) != 0) {
        return ltn_errinfo_set(info, -ENOMEM, "out of memory or descriptors");
    }
    if (s->tls != NULL) {
        look_at_certificate(s); /* and again, from the loop */
    }
    return ltn_http_server_listen(s->server, s->listen, info);
}

static int start_worker(struct ltn_serve *s, struct worker *w)
{
    w->serve = s;
    int rc = -pthread_create(&w->thread, NULL, work, w);
    w->started = rc == 0;
    return rc;
}

int ltn_serve_start(const struct ltn_serve_opts *opts, struct ltn_serve **ret,
                    struct ltn_errinfo *info)
{
    struct ltn_serve *s = calloc(1, sizeof(*s));
    if (s == NULL) {
        return ltn_errinfo_set(info, -ENOMEM, "out of memory");
    }
    int rc = copy_opts(s, opts, info);
    if (rc == 0) {
        rc = make_server(s, opts, info);
    }
    if (rc == 0) {
        rc = start_worker(s, &s->reports);
        rc = rc == 0 ? start_worker(s, &s->statements) : rc;
        rc = rc == 0 ? -pthread_create(&s->thread, NULL, run_loop, s) : rc;
        s->started = rc == 0;
        if (rc < 0) {
            (void)ltn_errinfo_set(info, rc, "cannot start a thread: %s", ltn_err_str(rc));
        }
    }
    if (rc < 0) {
        ltn_serve_stop(s);
        return rc;
    }
    *ret = s;
    return 0;
}

static void stop_worker(struct worker *w)
{
    if (w->started) {
        atomic_store(&w->serve->stopping, true);
        ltn_chan_close(w->jobs);
        (void)pthread_join(w->thread, NULL);
    }
}

void ltn_serve_stop(struct ltn_serve *s)
{
    if (s == NULL) {
        return;
    }
    if (s->started) {
        ltn_loop_stop(s->loop);
        (void)pthread_join(s->thread, NULL);
    }
    /* Answers of the workers go to a server that still exists, whose loop runs no more. */
    stop_worker(&s->reports);
    stop_worker(&s->statements);
    ltn_http_server_free(s->server);
    ltn_tls_server_free(s->tls);
    ltn_loop_free(s->loop);
    ltn_http_budget_free(s->budget);
    ltn_chan_free(s->reports.jobs, free);
    ltn_chan_free(s->statements.jobs, free);
    explicit_bzero(s->token, sizeof(s->token));
    free(s);
}

uint16_t ltn_serve_port(const struct ltn_serve *s)
{
    return ltn_http_server_port(s->server, 0);
}
