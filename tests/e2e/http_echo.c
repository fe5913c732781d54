/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Test server for the end-to-end tests of common/http: echoes, answers late from another thread,
 * answers wrongly on purpose. Prints "port N" when it listens and its counters on SIGUSR1 and at
 * the end. Limits are set with key=value arguments.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/chan.h"
#include "base/clock.h"
#include "base/text.h"
#include "http/server.h"
#include "http/tls.h"
#include "io/loop.h"

#define BIG_BYTES (4UL * 1024 * 1024)

struct app {
    struct ltn_loop *loop;
    struct ltn_http_server *server;
    struct ltn_chan *late;
    const char *token;
    uint64_t late_ns;
    uint32_t busy; /* protected routes have no rest */
    pthread_t worker;
    atomic_bool stop;
    char *big;
    struct ltn_tls_server_conf tls; /* cert_file NULL: cleartext only */
    const char *allow[1];
};

static void on_echo(void *arg, struct ltn_http_request *req)
{
    size_t n;
    const uint8_t *body = ltn_http_body(req, &n);
    const char *type = ltn_http_content_type(req);
    char version[4];
    (void)arg;
    (void)snprintf(version, sizeof(version), "%d", ltn_http_version(req) % 100);
    const struct ltn_http_field fields[] = {
        {"x-version", version},
        {"x-query", ltn_http_query(req)},
        {"x-rest", ltn_http_path_rest(req)},
        {"x-peer", ltn_http_peer(req)},
        {"x-identity", ltn_http_identity(req)},
    };
    const struct ltn_http_response resp = {
        .status = 200,
        .content_type = type[0] != '\0' ? type : "application/octet-stream",
        .body = (void *)(uintptr_t)body,
        .body_len = n,
        .fields = fields,
        .field_count = LTN_ARRAY_SIZE(fields),
    };
    ltn_http_reply(req, &resp);
}

static void on_size(void *arg, struct ltn_http_request *req)
{
    size_t n;
    char text[32];
    (void)arg;
    (void)ltn_http_body(req, &n);
    (void)snprintf(text, sizeof(text), "%zu\n", n);
    ltn_http_reply_text(req, 200, text);
}

static void on_big(void *arg, struct ltn_http_request *req)
{
    struct app *app = arg;
    ltn_http_reply_bytes(req, 200, "application/octet-stream", app->big, BIG_BYTES);
}

/* A body in pieces: /pieces?n=COUNT[&fail=AT], each of 10,000 bytes of a digit. */
struct pieces {
    uint64_t n, fail, at;
};

static int next_piece(void *arg, struct ltn_buf *out)
{
    struct pieces *p = arg;
    if (p->at == p->fail) {
        return LTN_ERR_INTERNAL;
    }
    if (p->at == p->n) {
        return 0;
    }
    void *dst = ltn_buf_reserve(out, 10000);
    if (dst == NULL) {
        return ltn_buf_error(out);
    }
    memset(dst, '0' + (int)(p->at++ % 10), 10000);
    ltn_buf_commit(out, 10000);
    return 1;
}

static void on_pieces(void *arg, struct ltn_http_request *req)
{
    struct pieces *p = calloc(1, sizeof(*p));
    char text[32];
    (void)arg;
    if (p == NULL) {
        ltn_http_reply_error(req, -ENOMEM, NULL, 0);
        return;
    }
    p->fail = UINT64_MAX;
    if (ltn_http_query_get(req, "n", text, sizeof(text))) {
        (void)ltn_parse_u64(text, &p->n);
    }
    if (ltn_http_query_get(req, "fail", text, sizeof(text))) {
        (void)ltn_parse_u64(text, &p->fail);
    }
    const struct ltn_http_source source = {next_piece, free, p};
    const struct ltn_http_response resp = {
        .status = 200, .content_type = "text/plain", .source = &source};
    ltn_http_reply(req, &resp);
}

static void on_busy(void *arg, struct ltn_http_request *req)
{
    (void)arg;
    ltn_http_reply_error(req, LTN_ERR_BUSY, "caf\xc3\xa9 100% full", 2500);
}

static void on_bad(void *arg, struct ltn_http_request *req)
{
    (void)arg;
    ltn_http_reply_error(req, LTN_ERR_MALFORMED, "bad data", 0);
}

static const struct {
    const char *name;
    int rc;
} answers[] = {
#define ANSWER(name, value, grpc, http, retry, text) {#name, value},
    LTN_ERR_TABLE(ANSWER)
#undef ANSWER
        {"OK", 0},
};

/* Refuses with the row that the header x-answer names. */
static void on_fail(void *arg, struct ltn_http_request *req)
{
    const char *name = ltn_http_header(req, "x-answer");
    (void)arg;
    for (size_t i = 0; name != NULL && i < LTN_ARRAY_SIZE(answers); i++) {
        if (strcmp(answers[i].name, name) == 0) {
            ltn_http_reply_error(req, answers[i].rc, NULL, 0);
            return;
        }
    }
    ltn_http_reply_error(req, LTN_ERR_INTERNAL, "no such answer", 0);
}

/* The names of all rows, so that a test cannot miss one. */
static int print_answers(void)
{
    for (size_t i = 0; i + 1 < LTN_ARRAY_SIZE(answers); i++) {
        (void)printf("%s\n", answers[i].name);
    }
    return 0;
}

static void on_late(void *arg, struct ltn_http_request *req)
{
    struct app *app = arg;
    if (ltn_chan_send(app->late, req, 1) != 0) {
        ltn_http_reply_error(req, LTN_ERR_BUSY, NULL, 0);
    }
}

static uint64_t rested_ns(void *arg, const char *peer, unsigned *ret_lane)
{
    const struct app *app = arg;
    (void)peer;
    *ret_lane = 7;
    return app->busy != 0 ? 0 : UINT64_MAX;
}

static void on_grpc_echo(void *arg, struct ltn_http_request *req)
{
    size_t n;
    const uint8_t *body = ltn_http_body(req, &n);
    const struct ltn_http_field field = {"x-threshold", "42"};
    const struct ltn_grpc_response resp = {
        .body = body, .body_len = n, .fields = &field, .field_count = 1};
    (void)arg;
    ltn_grpc_reply(req, &resp);
}

/* Answers when the time has come, as a writer does after its commit. */
static void *worker_main(void *arg)
{
    struct app *app = arg;
    for (;;) {
        struct ltn_http_request *req = ltn_chan_recv_wait(app->late, 1000);
        if (req == NULL) {
            if (atomic_load(&app->stop)) {
                return NULL;
            }
            continue;
        }
        (void)usleep((useconds_t)(app->late_ns / LTN_NS_PER_US));
        if (ltn_http_is_grpc(req)) {
            on_grpc_echo(NULL, req);
        } else {
            ltn_http_reply_text(req, 200, "late\n");
        }
    }
}

static int authorize(void *arg, const struct ltn_http_request *req, uint64_t *ret_tag)
{
    const struct app *app = arg;
    *ret_tag = 7;
    return ltn_http_bearer_is(req, app->token) ? 0 : LTN_ERR_UNAUTHENTICATED;
}

static void print_stats(struct app *app)
{
    struct ltn_http_stats st;
    ltn_http_server_stats(app->server, &st);
#define PRINT(name, help) (void)printf(#name " %llu\n", (unsigned long long)st.name);
    LTN_HTTP_COUNTERS(PRINT)
#undef PRINT
    (void)printf("connections %llu\nin_flight %llu\nbody_bytes %llu\nend\n",
                 (unsigned long long)st.connections, (unsigned long long)st.in_flight,
                 (unsigned long long)st.body_bytes);
    (void)fflush(stdout);
}

static void on_drained(void *arg)
{
    struct app *app = arg;
    ltn_loop_stop(app->loop);
}

static void on_signal(void *arg, int signo)
{
    struct app *app = arg;
    if (signo == SIGUSR1) {
        print_stats(app);
    } else if (signo == SIGUSR2) {
        app->busy = 0;
    } else {
        ltn_http_server_drain(app->server, 5 * LTN_NS_PER_S, on_drained, app);
    }
}

static int add_routes(struct app *app)
{
    const struct ltn_http_route routes[] = {
        {.methods = LTN_HTTP_GET | LTN_HTTP_POST, .path = "/echo", .handle = on_echo},
        {.methods = LTN_HTTP_GET,
         .path = "/tree/",
         .flags = LTN_ROUTE_PREFIX | LTN_ROUTE_GZIP,
         .handle = on_echo},
        {.methods = LTN_HTTP_POST, .path = "/size", .handle = on_size},
        {.methods = LTN_HTTP_GET, .path = "/big", .flags = LTN_ROUTE_GZIP, .handle = on_big},
        {.methods = LTN_HTTP_GET, .path = "/pieces", .flags = LTN_ROUTE_GZIP, .handle = on_pieces},
        {.methods = LTN_HTTP_GET | LTN_HTTP_POST, .path = "/late", .handle = on_late},
        {.methods = LTN_HTTP_POST,
         .path = "/v1/fail",
         .flags = LTN_ROUTE_STATUS_BODY,
         .handle = on_fail},
        {.methods = LTN_HTTP_POST, .path = "/fail", .handle = on_fail},
        {.path = "/test.Echo/Fail", .flags = LTN_ROUTE_GRPC, .handle = on_fail},
        {.methods = LTN_HTTP_GET,
         .path = "/healthz",
         .flags = LTN_ROUTE_NO_AUTH,
         .handle = on_echo},
        {.methods = LTN_HTTP_GET | LTN_HTTP_POST, .path = "/busy", .handle = on_busy},
        {.methods = LTN_HTTP_POST,
         .path = "/v1/metrics",
         .flags = LTN_ROUTE_STATUS_BODY,
         .content_types = "application/x-protobuf,application/json",
         .handle = on_echo},
        {.methods = LTN_HTTP_POST,
         .path = "/v1/bad",
         .flags = LTN_ROUTE_STATUS_BODY,
         .handle = on_bad},
        {.path = "/test.Echo/Unary", .flags = LTN_ROUTE_GRPC, .handle = on_grpc_echo},
        {.path = "/test.Echo/Late", .flags = LTN_ROUTE_GRPC, .handle = on_late},
        {.path = "/test.Echo/Protected",
         .flags = LTN_ROUTE_GRPC,
         .handle = on_late,
         .rested_ns = rested_ns},
        {.methods = LTN_HTTP_POST, .path = "/protected", .handle = on_late, .rested_ns = rested_ns},
        {.path = "/test.Echo/Busy", .flags = LTN_ROUTE_GRPC, .handle = on_busy},
        {.path = "/test.Echo/Bad", .flags = LTN_ROUTE_GRPC, .handle = on_bad},
        {.path = "/test.Echo/Small",
         .flags = LTN_ROUTE_GRPC,
         .max_body_bytes = 1000,
         .handle = on_grpc_echo},
    };
    for (size_t i = 0; i < LTN_ARRAY_SIZE(routes); i++) {
        struct ltn_http_route r = routes[i];
        r.arg = app;
        int rc = ltn_http_server_route(app->server, &r);
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

static bool set_option(struct ltn_http_conf *conf, struct app *app, size_t *budget, const char *key,
                       const char *value)
{
    uint64_t v;
    const struct {
        const char *key;
        const char **text;
    } texts[] = {{"cert", &app->tls.cert_file},
                 {"key", &app->tls.key_file},
                 {"client_ca", &app->tls.client_ca_file},
                 {"allow", &app->allow[0]}};
    for (size_t i = 0; i < LTN_ARRAY_SIZE(texts); i++) {
        if (strcmp(key, texts[i].key) == 0) {
            *texts[i].text = value;
            return true;
        }
    }
    if (strcmp(key, "token") == 0) {
        app->token = value;
        conf->authorize = authorize;
        conf->authorize_arg = app;
        return true;
    }
    if (!ltn_parse_u64(value, &v)) {
        return false;
    }
    const struct {
        const char *key;
        uint64_t *ns;
        size_t *size;
        uint32_t *u32;
    } options[] = {
        {"first_byte_ms", &conf->first_byte_timeout_ns, NULL, NULL},
        {"headers_ms", &conf->headers_timeout_ns, NULL, NULL},
        {"idle_ms", &conf->idle_timeout_ns, NULL, NULL},
        {"request_ms", &conf->request_timeout_ns, NULL, NULL},
        {"grace_ms", &conf->body_grace_ns, NULL, NULL},
        {"write_ms", &conf->write_timeout_ns, NULL, NULL},
        {"age_ms", &conf->max_connection_age_ns, NULL, NULL},
        {"late_ms", &app->late_ns, NULL, NULL},
        {"handshake_ms", &conf->handshake_timeout_ns, NULL, NULL},
        {"handshake_burst", NULL, NULL, &conf->handshake_burst},
        {"handshake_per_s", NULL, NULL, &conf->handshake_per_s},
        {"max_body", NULL, &conf->max_body_bytes, NULL},
        {"conn_budget", NULL, &conf->connection_budget_bytes, NULL},
        {"budget", NULL, budget, NULL},
        {"protected", NULL, &conf->protected_bytes, NULL},
        {"refusals", NULL, NULL, &conf->refusals_per_s},
        {"burst_ms", &conf->burst_ns, NULL, NULL},
        {"busy", NULL, NULL, &app->busy},
        {"tenant_requests", NULL, &conf->tenant_requests_per_s, NULL},
        {"tenant_bytes", NULL, &conf->tenant_bytes_per_s, NULL},
        {"max_response", NULL, &conf->max_response_bytes, NULL},
        {"connections", NULL, NULL, &conf->max_connections},
        {"per_ip", NULL, NULL, &conf->max_connections_per_ip},
        {"streams", NULL, NULL, &conf->h2_max_streams},
        {"ping_ms", &conf->h2_ping_interval_ns, NULL, NULL},
        {"ratio", NULL, NULL, &conf->max_inflate_ratio},
    };
    for (size_t i = 0; i < LTN_ARRAY_SIZE(options); i++) {
        if (strcmp(key, options[i].key) != 0) {
            continue;
        }
        if (options[i].ns != NULL) {
            *options[i].ns = v * LTN_NS_PER_MS;
        } else if (options[i].size != NULL) {
            *options[i].size = (size_t)v;
        } else {
            *options[i].u32 = (uint32_t)v;
        }
        return true;
    }
    return false;
}

static bool parse_arguments(int argc, char **argv, struct ltn_http_conf *conf, struct app *app,
                            size_t *budget)
{
    for (int i = 1; i < argc; i++) {
        char *eq = strchr(argv[i], '=');
        if (eq == NULL) {
            return false;
        }
        *eq = '\0';
        if (!set_option(conf, app, budget, argv[i], eq + 1)) {
            (void)fprintf(stderr, "unknown option %s\n", argv[i]);
            return false;
        }
    }
    return true;
}

int main(int argc, char **argv)
{
    struct app app = {.late_ns = 50 * LTN_NS_PER_MS};
    struct ltn_http_conf conf;
    struct ltn_errinfo info = {0};
    size_t budget_bytes = 256UL * 1024 * 1024;
    sigset_t set;
    if (argc == 2 && strcmp(argv[1], "answers") == 0) {
        return print_answers();
    }
    ltn_http_conf_default(&conf);
    conf.server_name = "http_echo";
    if (!parse_arguments(argc, argv, &conf, &app, &budget_bytes)) {
        return 2;
    }
    app.loop = ltn_loop_new();
    struct ltn_http_budget *budget = ltn_http_budget_new(budget_bytes);
    app.late = ltn_chan_new(1024, 1024);
    app.big = calloc(1, BIG_BYTES);
    if (app.loop == NULL || budget == NULL || app.late == NULL || app.big == NULL) {
        return 1;
    }
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGINT);
    (void)sigaddset(&set, SIGUSR1);
    (void)sigaddset(&set, SIGUSR2);
    if (app.tls.cert_file != NULL) {
        app.tls.require_client_cert = app.tls.client_ca_file != NULL;
        app.tls.allow = app.allow;
        app.tls.allow_count = app.allow[0] != NULL ? 1 : 0;
        if (ltn_tls_server_new(&app.tls, &conf.tls, &info) != 0) {
            (void)fprintf(stderr, "cannot start: %s\n", info.msg);
            return 1;
        }
    }
    app.server = ltn_http_server_new(app.loop, &conf, budget);
    if (app.server == NULL || ltn_loop_signals(app.loop, &set, on_signal, &app) != 0 ||
        add_routes(&app) != 0 || ltn_http_server_listen(app.server, "127.0.0.1:0", &info) != 0 ||
        pthread_create(&app.worker, NULL, worker_main, &app) != 0) {
        (void)fprintf(stderr, "cannot start: %s\n", info.msg);
        return 1;
    }
    (void)printf("port %u\n", ltn_http_server_port(app.server, 0));
    (void)fflush(stdout);
    int rc = ltn_loop_run(app.loop);
    print_stats(&app);
    atomic_store(&app.stop, true);
    ltn_chan_close(app.late);
    (void)pthread_join(app.worker, NULL);
    ltn_http_server_free(app.server);
    ltn_tls_server_free(conf.tls);
    ltn_loop_free(app.loop);
    ltn_chan_free(app.late, NULL);
    ltn_http_budget_free(budget);
    free(app.big);
    return rc == 0 ? 0 : 1;
}
