/* SPDX-License-Identifier: Apache-2.0 */
/* grpc.health.v1: Check, List and Watch, of the server as a whole and of each registered service.
 */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "http/server-internals.h"

#define MAX_REQUEST_BYTES 4096
#define MAX_LIST_BYTES    (16 * 1024)
#define MAX_WATCHES       1000 /* nobody had to show a token for them */

enum health_status { HEALTH_SERVING = 1, HEALTH_NOT_SERVING = 2, HEALTH_SERVICE_UNKNOWN = 3 };

/* A Watch call. */
struct ltn_health_watch {
    struct ltn_health_watch *prev, *next;
    struct ltn_http_server *server;
    struct ltn_http_request *stream;
    bool asked; /* the request has come */
    bool known;
    enum health_status told;
};

/* Service of a registered method, without its method; false for plain routes. */
static bool service_of(const struct route *r, const char **ret_name, size_t *ret_n)
{
    const char *end = strrchr(r->path, '/');
    if ((r->r.flags & LTN_ROUTE_GRPC) == 0 || end == r->path) {
        return false;
    }
    *ret_name = r->path + 1;
    *ret_n = (size_t)(end - r->path) - 1;
    return true;
}

/* "" stands for the server. */
static bool knows_service(const struct ltn_http_server *s, const uint8_t *name, size_t n)
{
    for (size_t i = 0; i < s->router.count; i++) {
        const char *have;
        size_t have_n;
        if (service_of(&s->router.routes[i], &have, &have_n) && have_n == n &&
            memcmp(have, name, n) == 0) {
            return true;
        }
    }
    return n == 0;
}

static bool asks_known_service(const struct ltn_http_server *s, const uint8_t *p, size_t n)
{
    const uint8_t *name = (const uint8_t *)"";
    size_t name_len = 0;
    (void)ltn_pb_find_bytes(p, n, 1, &name, &name_len); /* HealthCheckRequest {1 service} */
    return knows_service(s, name, name_len);
}

static enum health_status status_now(const struct ltn_http_server *s)
{
    return atomic_load(&s->serving) ? HEALTH_SERVING : HEALTH_NOT_SERVING;
}

static void on_check(void *arg, struct ltn_http_request *req)
{
    const struct ltn_http_server *s = arg;
    size_t len;
    const uint8_t *body = ltn_http_body(req, &len);
    if (!asks_known_service(s, body, len)) {
        ltn_http_reply_error(req, LTN_ERR_NOT_FOUND, "unknown service", 0);
        return;
    }
    const uint8_t answer[2] = {0x08, (uint8_t)status_now(s)}; /* HealthCheckResponse {1 status} */
    const struct ltn_grpc_response resp = {.body = answer, .body_len = sizeof(answer)};
    ltn_grpc_reply(req, &resp);
}

/* One entry of HealthListResponse {1 statuses: map<string, HealthCheckResponse>}. */
static void put_entry(struct ltn_buf *b, const char *name, size_t n, enum health_status status)
{
    const char head[] = {0x0a, (char)(n + 6), 0x0a, (char)n};
    const char value[] = {0x12, 2, 0x08, (char)status};
    if (n > 100) {
        return; /* lengths of one byte each */
    }
    (void)ltn_buf_append(b, head, sizeof(head));
    (void)ltn_buf_append(b, name, n);
    (void)ltn_buf_append(b, value, sizeof(value));
}

static bool listed_before(const struct ltn_http_server *s, size_t index, const char *name, size_t n)
{
    for (size_t i = 0; i < index; i++) {
        const char *other;
        size_t other_n;
        if (service_of(&s->router.routes[i], &other, &other_n) && other_n == n &&
            memcmp(other, name, n) == 0) {
            return true;
        }
    }
    return false;
}

static void on_list(void *arg, struct ltn_http_request *req)
{
    const struct ltn_http_server *s = arg;
    struct ltn_buf b;
    ltn_buf_init(&b, MAX_LIST_BYTES);
    put_entry(&b, "", 0, status_now(s));
    for (size_t i = 0; i < s->router.count; i++) {
        const char *name;
        size_t n;
        if (service_of(&s->router.routes[i], &name, &n) && !listed_before(s, i, name, n)) {
            put_entry(&b, name, n, status_now(s));
        }
    }
    const struct ltn_grpc_response resp = {.body = b.data, .body_len = b.len};
    if (ltn_buf_error(&b) == 0) {
        ltn_grpc_reply(req, &resp);
    } else {
        ltn_http_reply_error(req, LTN_ERR_RESPONSE, NULL, 0);
    }
    ltn_buf_done(&b);
}

/* ---- Watch ---- */

static void tell(struct ltn_health_watch *w)
{
    enum health_status now = w->known ? status_now(w->server) : HEALTH_SERVICE_UNKNOWN;
    if (!w->asked || now == w->told) {
        return;
    }
    const uint8_t answer[2] = {0x08, (uint8_t)now};
    if (ltn_http_stream_send(w->stream, answer, sizeof(answer)) == 0) {
        w->told = now;
    }
}

static void unlink_watch(struct ltn_health_watch *w)
{
    if (w->prev != NULL) {
        w->prev->next = w->next;
    } else {
        w->server->watches = w->next;
    }
    if (w->next != NULL) {
        w->next->prev = w->prev;
    }
    w->server->watch_count--;
    free(w);
}

static void end_watch(struct ltn_health_watch *w, int rc, const char *message)
{
    struct ltn_http_request *stream = w->stream;
    unlink_watch(w);
    ltn_http_stream_end(stream, ltn_err_grpc(rc), message);
}

static int on_watch_open(void *arg, struct ltn_http_request *stream, void **ret_ctx)
{
    struct ltn_http_server *s = arg;
    struct ltn_health_watch *w = s->watch_count < MAX_WATCHES ? calloc(1, sizeof(*w)) : NULL;
    if (w == NULL) {
        return LTN_ERR_BUSY;
    }
    s->watch_count++;
    w->server = s;
    w->stream = stream;
    w->next = s->watches;
    if (s->watches != NULL) {
        s->watches->prev = w;
    }
    s->watches = w;
    *ret_ctx = w;
    return 0;
}

static void on_watch_message(void *ctx, const uint8_t *p, size_t n)
{
    struct ltn_health_watch *w = ctx;
    if (w->asked) {
        end_watch(w, LTN_ERR_MESSAGES, NULL);
        return;
    }
    w->asked = true;
    w->known = asks_known_service(w->server, p, n);
    tell(w);
}

static void on_watch_ended(void *ctx)
{
    struct ltn_health_watch *w = ctx;
    if (!w->asked) {
        end_watch(w, LTN_ERR_FRAMING, "no message");
    }
}

static void on_watch_closed(void *ctx)
{
    unlink_watch(ctx);
}

void ltn_health_tick(struct ltn_http_server *s)
{
    struct ltn_health_watch *next;
    for (struct ltn_health_watch *w = s->watches; w != NULL; w = next) {
        next = w->next;
        tell(w);
    }
}

void ltn_health_drain(struct ltn_http_server *s)
{
    ltn_health_tick(s);
    while (s->watches != NULL) {
        end_watch(s->watches, LTN_ERR_CLOSED, "shutting down");
    }
}

int ltn_health_routes(struct ltn_http_server *s)
{
    static const struct ltn_http_stream_ops watch = {
        .open = on_watch_open,
        .message = on_watch_message,
        .closed = on_watch_closed,
        .ended = on_watch_ended,
    };
    const struct ltn_http_route routes[] = {
        {.path = "/grpc.health.v1.Health/Check", .handle = on_check},
        {.path = "/grpc.health.v1.Health/List", .handle = on_list},
        {.path = "/grpc.health.v1.Health/Watch", .stream = &watch},
    };
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < LTN_ARRAY_SIZE(routes); i++) {
        struct ltn_http_route r = routes[i];
        r.flags = LTN_ROUTE_GRPC | LTN_ROUTE_NO_AUTH;
        r.max_body_bytes = MAX_REQUEST_BYTES;
        r.arg = s;
        rc = ltn_router_add(&s->router, &r);
    }
    return rc;
}
