/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The whole server on one connection: the choice of protocol, admission, bodies, handlers that
 * answer at once, later, after the peer has gone or not in time, streams, the end. The first byte
 * chooses how the input is cut and what the handlers do. Whatever comes, in the end no request, no
 * connection and no byte of the budget is left.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "http/server-internals.h"

#define MAX_HELD   256
#define MAX_BODY   20000
#define MODE_H2    1U /* the preface is put in front */
#define MODE_CUT   2U
#define MODE_LATE  4U  /* handlers answer behind the input */
#define MODE_GONE  8U  /* handlers answer when the peer has gone */
#define MODE_DRAIN 16U /* the server is told to end first */
#define MODE_DEAF  32U /* the peer reads nothing */
#define MODE_ERROR 64U
#define MODE_AUTH  128U

struct rig {
    struct ltn_loop *loop;
    struct ltn_http_budget *budget;
    struct ltn_http_server *server;
    unsigned mode;
    struct ltn_http_request *held[MAX_HELD];
    size_t count;
    int streams;
};

static struct rig rig;

static void answer(struct ltn_http_request *req)
{
    size_t n;
    const uint8_t *body = ltn_http_body(req, &n);
    if (n > MAX_BODY || (n > 0 && body == NULL)) {
        abort();
    }
    if ((rig.mode & MODE_ERROR) != 0) {
        static const int codes[] = {LTN_ERR_MALFORMED, LTN_ERR_BUSY, LTN_ERR_QUOTA,
                                    LTN_ERR_TIMEOUT};
        ltn_http_reply_error(req, codes[n % LTN_ARRAY_SIZE(codes)], NULL, 0);
    } else if (ltn_http_is_grpc(req)) {
        ltn_grpc_reply(req, &(struct ltn_grpc_response){.body = body, .body_len = n});
    } else {
        ltn_http_reply_bytes(req, 200, ltn_http_content_type(req), body, n);
    }
}

static void on_request(void *arg, struct ltn_http_request *req)
{
    (void)arg;
    if ((rig.mode & (MODE_LATE | MODE_GONE)) != 0 && rig.count < MAX_HELD) {
        rig.held[rig.count++] = req;
    } else {
        answer(req);
    }
}

static void answer_held(void)
{
    for (size_t i = 0; i < rig.count; i++) {
        answer(rig.held[i]);
    }
    rig.count = 0;
}

static int on_open(void *arg, struct ltn_http_request *stream, void **ret_ctx)
{
    (void)arg;
    *ret_ctx = stream;
    rig.streams++;
    return 0;
}

static void on_message(void *ctx, const uint8_t *p, size_t n)
{
    if (n > 0 && p[0] == 'e') {
        rig.streams--;
        ltn_http_stream_end(ctx, 0, "enough");
        return;
    }
    int rc = ltn_http_stream_send(ctx, p, n);
    (void)rc; /* refused when the peer does not read */
}

static void on_stream_closed(void *ctx)
{
    (void)ctx;
    rig.streams--;
}

static int authorize(void *arg, const struct ltn_http_request *req, uint64_t *ret_tag)
{
    (void)arg;
    *ret_tag = 1;
    return (rig.mode & MODE_AUTH) == 0 || ltn_http_bearer_is(req, "t") ? 0
                                                                       : LTN_ERR_UNAUTHENTICATED;
}

static void drained(void *arg)
{
    (void)arg;
}

static void start(void)
{
    static const struct ltn_http_stream_ops ops = {
        .open = on_open, .message = on_message, .closed = on_stream_closed};
    const struct ltn_http_route routes[] = {
        {.methods = LTN_HTTP_POST,
         .path = "/v1/m",
         .flags = LTN_ROUTE_STATUS_BODY,
         .content_types = "application/x-protobuf,application/json",
         .handle = on_request},
        {.methods = LTN_HTTP_GET | LTN_HTTP_POST,
         .path = "/",
         .flags = LTN_ROUTE_PREFIX | LTN_ROUTE_GZIP,
         .handle = on_request},
        {.path = "/a.B/C", .flags = LTN_ROUTE_GRPC, .handle = on_request},
        {.path = "/a.B/S", .flags = LTN_ROUTE_GRPC, .stream = &ops},
    };
    struct ltn_http_conf conf;
    ltn_http_conf_default(&conf);
    conf.max_body_bytes = MAX_BODY;
    conf.max_header_bytes = 2048;
    conf.max_response_bytes = 10000;
    conf.connection_budget_bytes = 60000;
    conf.h2_max_streams = 16;
    conf.h2_stream_window_bytes = 65535;
    conf.h2_connection_window_bytes = 65535;
    conf.h2_reset_burst = 20;
    conf.h2_nuisance_burst = 100;
    conf.h2_fault_burst = 20;
    conf.tenant_bytes_per_s = 1000000;
    conf.authorize = authorize;
    rig.server = ltn_http_server_new(rig.loop, &conf, rig.budget);
    if (rig.server == NULL) {
        abort();
    }
    for (size_t i = 0; i < LTN_ARRAY_SIZE(routes); i++) {
        if (ltn_http_server_route(rig.server, &routes[i]) != 0) {
            abort();
        }
    }
}

static void step(int fd)
{
    char sink[4096];
    if (ltn_loop_step(rig.loop, 0) != 0) {
        abort();
    }
    while ((rig.mode & MODE_DEAF) == 0 && recv(fd, sink, sizeof(sink), MSG_DONTWAIT) > 0) {
    }
}

static void talk(int fd, const uint8_t *p, size_t n)
{
    static const char hello[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0";
    if ((rig.mode & MODE_H2) != 0) {
        (void)send(fd, hello, sizeof(hello), MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    size_t piece = (rig.mode & MODE_CUT) != 0 ? 7 : 4096;
    for (size_t pos = 0; pos < n; pos += piece) {
        size_t part = n - pos < piece ? n - pos : piece;
        if (send(fd, p + pos, part, MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)part) {
            break;
        }
        step(fd);
    }
    step(fd);
    if ((rig.mode & MODE_DRAIN) != 0) {
        ltn_http_server_drain(rig.server, LTN_NS_PER_S, drained, NULL);
        step(fd);
    }
    if ((rig.mode & MODE_LATE) != 0) {
        answer_held();
        step(fd);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    int pair[2];
    struct sockaddr_storage from = {.ss_family = AF_INET};
    if (n == 0 || n > 100000) {
        return 0;
    }
    if (rig.loop == NULL) {
        rig.loop = ltn_loop_new();
        rig.budget = ltn_http_budget_new(1000000);
    }
    rig.mode = p[0];
    start();
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) != 0) {
        abort();
    }
    ltn_conn_accepted(rig.server, pair[0], &from);
    talk(pair[1], p + 1, n - 1);
    (void)close(pair[1]);
    for (int i = 0; i < 4; i++) {
        if (ltn_loop_step(rig.loop, 0) != 0) {
            abort();
        }
    }
    answer_held();
    struct ltn_http_stats stats;
    ltn_http_server_stats(rig.server, &stats);
    if (stats.connections > 1 || stats.in_flight != 0) {
        abort();
    }
    ltn_http_server_free(rig.server);
    for (int i = 0; i < 2; i++) {
        if (ltn_loop_step(rig.loop, 0) != 0) {
            abort();
        }
    }
    if (ltn_http_budget_used(rig.budget) != 0 || rig.streams != 0) {
        abort();
    }
    return 0;
}
