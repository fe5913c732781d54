/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a request between the session and the handler: admission, body, decoding, reply. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "http/server-internals.h"

static void request_unlink(struct ltn_http_request *rq)
{
    struct conn *c = rq->conn;
    if (rq->prev != NULL) {
        rq->prev->next = rq->next;
    } else {
        c->requests = rq->next;
    }
    if (rq->next != NULL) {
        rq->next->prev = rq->prev;
    }
    rq->prev = NULL;
    rq->next = NULL;
}

void ltn_exchange_detach(struct ltn_http_request *rq)
{
    struct conn *c = rq->conn;
    ltn_loop_timer_stop(c->server->loop, &rq->deadline_timer);
    ltn_overload_forget(rq);
    request_unlink(rq);
    c->held_bytes -= rq->held_bytes;
    if (rq->state == RQ_HANDLER) {
        c->in_handlers--;
        ltn_count_sub(&c->server->counters.in_flight, 1);
    }
    rq->conn = NULL;
}

/* Answers on the spot, from within the loop; rq is gone afterwards. */
static void answer(struct ltn_http_request *rq, const struct ltn_answer *a)
{
    struct core *core = rq->core;
    ltn_request_enter(core);
    ltn_answer(rq, a);
    ltn_request_leave();
}

static void answer_error(struct ltn_http_request *rq, int rc, const char *message)
{
    const struct ltn_answer a = {.rc = rc, .message = message};
    answer(rq, &a);
}

/* In HTTP's form, also to what looks like gRPC. */
static void answer_http(struct ltn_http_request *rq, int rc, const char *message, const char *value)
{
    const struct ltn_answer a = {.rc = rc, .message = message, .value = value, .plain_http = true};
    answer(rq, &a);
}

static void count_refusal(struct ltn_http_server *s, int rc)
{
    switch (rc) {
    case LTN_ERR_TOO_LARGE:
        LTN_COUNT(s, refused_body);
        break;
    case LTN_ERR_BUSY:
    case -ENOMEM:
        LTN_COUNT(s, refused_budget);
        break;
    case LTN_ERR_QUOTA:
        LTN_COUNT(s, refused_rate);
        break;
    case LTN_ERR_UNAUTHENTICATED:
    case LTN_ERR_FORBIDDEN:
    case LTN_ERR_CERTIFICATE:
    case LTN_ERR_SCOPE:
        LTN_COUNT(s, refused_auth);
        break;
    default:
        LTN_COUNT(s, refused_malformed);
        break;
    }
}

static void refuse(struct ltn_http_request *rq, int rc, const char *message)
{
    count_refusal(rq->conn->server, rc);
    answer_error(rq, rc, message);
}

/* ---- admission ---- */

static void copy_media_type(char *dst, size_t size, const char *value)
{
    size_t n = value != NULL ? strcspn(value, "; \t") : 0;
    n = n < size - 1 ? n : size - 1;
    for (size_t i = 0; i < n; i++) {
        char c = value[i];
        dst[i] = c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
    }
    dst[n] = '\0';
}

static bool split_target(struct ltn_http_request *rq)
{
    const char *target = rq->head->target;
    if (target == NULL || (target[0] != '/' && strcmp(target, "*") != 0)) {
        return false;
    }
    size_t n = strcspn(target, "?#");
    rq->path = strndup(target, n);
    rq->query = target[n] == '?' ? target + n + 1 : "";
    rq->rest = "";
    return rq->path != NULL;
}

static struct ltn_http_request *request_new(struct conn *c, int32_t id, struct ltn_head *head)
{
    struct ltn_http_request *rq = calloc(1, sizeof(*rq));
    if (rq == NULL) {
        return NULL;
    }
    struct ltn_http_server *s = c->server;
    rq->core = s->core;
    atomic_fetch_add(&s->core->refs, 1);
    rq->conn = c;
    rq->stream = id;
    rq->head = head;
    rq->query = "";
    rq->rest = "";
    memcpy(rq->peer, c->peer, sizeof(rq->peer));
    rq->started_ns = ltn_loop_now_ns(s->loop);
    rq->rate_ns = rq->started_ns;
    rq->max_body_bytes = s->conf.max_body_bytes;
    rq->next = c->requests;
    if (c->requests != NULL) {
        c->requests->prev = rq;
    }
    c->requests = rq;
    return rq;
}

/* Whom a request counts for: the tag that authorize set, else the address. */
struct tenant {
    uint64_t tag;
    uint8_t ip[16];
};

static struct tenant tenant_of(const struct ltn_http_request *rq)
{
    struct tenant t = {.tag = rq->tag};
    if (rq->tag == 0) {
        memcpy(t.ip, rq->conn->ip, sizeof(t.ip));
    }
    return t;
}

/* False: answered. */
static bool admit_rate(struct ltn_http_request *rq)
{
    struct ltn_http_server *s = rq->conn->server;
    uint32_t wait_ms;
    if (s->rate == NULL || (rq->route->r.flags & LTN_ROUTE_NO_AUTH) != 0) {
        return true;
    }
    const struct tenant t = tenant_of(rq);
    if (ltn_rate_admit(s->rate, &t, sizeof(t), ltn_loop_now_ns(s->loop), &wait_ms)) {
        return true;
    }
    const struct ltn_answer a = {.rc = LTN_ERR_QUOTA, .retry_after_ms = wait_ms};
    count_refusal(s, LTN_ERR_QUOTA);
    answer(rq, &a);
    return false;
}

static void charge_rate(struct ltn_http_request *rq, size_t n)
{
    struct ltn_http_server *s = rq->conn->server;
    if (s->rate != NULL && (rq->route->r.flags & LTN_ROUTE_NO_AUTH) == 0) {
        const struct tenant t = tenant_of(rq);
        ltn_rate_charge(s->rate, &t, sizeof(t), n, ltn_loop_now_ns(s->loop));
    }
}

/* The route and what to say when there is none. False: answered. */
static bool admit_route(struct ltn_http_request *rq)
{
    struct ltn_http_server *s = rq->conn->server;
    const struct route *other = NULL;
    char allow[64];
    enum route_match m = ltn_router_find(&s->router, rq->path, rq->method, rq->grpc, &rq->route,
                                         allow, sizeof(allow));
    bool open = m == ROUTE_FOUND && (rq->route->r.flags & LTN_ROUTE_NO_AUTH) != 0;
    rq->status_body = m == ROUTE_FOUND ? (rq->route->r.flags & LTN_ROUTE_STATUS_BODY) != 0
                                       : strstr(rq->content_type, "protobuf") != NULL;
    rq->may_gzip = m == ROUTE_FOUND && (rq->route->r.flags & LTN_ROUTE_GZIP) != 0;
    if (s->conf.authorize != NULL && !open) {
        int rc = s->conf.authorize(s->conf.authorize_arg, rq, &rq->tag);
        if (rc != 0) {
            refuse(rq, rc, NULL);
            return false;
        }
    }
    if (m == ROUTE_FOUND) {
        return true;
    }
    if (m == ROUTE_NO_METHOD) {
        LTN_COUNT(s, refused_route);
        answer_http(rq, LTN_ERR_METHOD, NULL, allow);
    } else if (!rq->grpc && ltn_router_find(&s->router, rq->path, rq->method, true, &other, allow,
                                            sizeof(allow)) == ROUTE_FOUND) {
        LTN_COUNT(s, refused_type);
        answer_http(rq, LTN_ERR_TYPE, "this path speaks gRPC only", "application/grpc");
    } else {
        LTN_COUNT(s, refused_route);
        answer_error(rq, LTN_ERR_NO_SERVICE, NULL);
    }
    return false;
}

/* Content type and coding. False: answered. */
static bool admit_type(struct ltn_http_request *rq, bool body)
{
    struct ltn_http_server *s = rq->conn->server;
    if (rq->grpc && strcmp(rq->head->method, "POST") != 0) {
        LTN_COUNT(s, refused_route);
        answer_http(rq, LTN_ERR_METHOD, NULL, "POST");
        return false;
    }
    if (!rq->grpc && !ltn_route_accepts(rq->route, rq->content_type)) {
        LTN_COUNT(s, refused_type);
        answer_http(rq, LTN_ERR_TYPE, NULL, rq->route->content_types);
        return false;
    }
    rq->coding =
        ltn_coding_parse(ltn_head_get(rq->head, rq->grpc ? "grpc-encoding" : "content-encoding"));
    if (rq->coding != LTN_CODING_UNKNOWN || (!body && !rq->grpc)) {
        return true;
    }
    LTN_COUNT(s, refused_type);
    answer_error(rq, LTN_ERR_CODING, rq->grpc ? "compression not supported" : NULL);
    return false;
}

static void on_deadline(void *arg);

/* Sizes, deadline, memory. False: answered. */
static bool admit_size(struct ltn_http_request *rq)
{
    struct ltn_http_server *s = rq->conn->server;
    const char *timeout = rq->grpc ? ltn_head_get(rq->head, "grpc-timeout") : NULL;
    uint64_t timeout_ns;
    if (rq->route->r.max_body_bytes != 0) {
        rq->max_body_bytes = rq->route->r.max_body_bytes;
    }
    ltn_buf_init(&rq->body, rq->max_body_bytes);
    ltn_grpc_frame_init(&rq->frame, rq->max_body_bytes);
    size_t extra = rq->grpc ? LTN_GRPC_PREFIX_BYTES : 0;
    if (rq->head->has_length && rq->head->content_length > rq->max_body_bytes + extra) {
        refuse(rq, LTN_ERR_TOO_LARGE, "request body too large");
        return false;
    }
    if (timeout != NULL) {
        if (!ltn_grpc_timeout_parse(timeout, &timeout_ns)) {
            LTN_COUNT(s, refused_malformed);
            answer_error(rq, LTN_ERR_FRAMING, "bad grpc-timeout");
            return false;
        }
        rq->deadline_ns = ltn_loop_now_ns(s->loop) + timeout_ns;
        if (ltn_loop_timer_at(s->loop, &rq->deadline_timer, rq->deadline_ns, on_deadline, rq) !=
            0) {
            refuse(rq, -ENOMEM, NULL);
            return false;
        }
    }
    if (!ltn_request_reserve(rq, sizeof(*rq) + ltn_head_memory(rq->head))) {
        refuse(rq, LTN_ERR_BUSY, "memory budget used up, try again");
        return false;
    }
    return true;
}

/* Not answerable at all: ends the stream. */
static void drop_stream(struct conn *c, int32_t id, uint32_t code)
{
    if (c->h2 != NULL) {
        ltn_h2_reset(c->h2, id, code);
    } else {
        ltn_h1_fail(c->h1, 503);
    }
}

static void head_came(struct conn *c)
{
    c->head_ns = 0;
    c->active_ns = ltn_loop_now_ns(c->server->loop);
    LTN_COUNT(c->server, requests);
}

static bool turns_away(void *arg, int32_t id, const struct ltn_head *head)
{
    bool away = ltn_overload_turns_away(arg, id, head);
    if (away) {
        head_came(arg);
    }
    return away;
}

static void *on_head(void *arg, int32_t id, struct ltn_head *head, bool body)
{
    struct conn *c = arg;
    struct ltn_http_server *s = c->server;
    head_came(c);
    if (c->in_handlers >= s->conf.h2_max_streams) {
        /* Streams taken back still count while their work goes on. */
        LTN_COUNT(s, refused_streams);
        ltn_head_free(head);
        drop_stream(c, id, LTN_H2_REFUSED_STREAM);
        return NULL;
    }
    if (head->method == NULL) {
        head->method = "";
    }
    struct ltn_http_request *rq = request_new(c, id, head);
    if (rq == NULL) {
        ltn_head_free(head);
        drop_stream(c, id, LTN_H2_REFUSED_STREAM);
        return NULL;
    }
    rq->method = ltn_method_bit(head->method, &rq->is_head);
    copy_media_type(rq->content_type, sizeof(rq->content_type), ltn_head_get(head, "content-type"));
    if (head->too_large) {
        LTN_COUNT(s, refused_head);
        answer_http(rq, LTN_ERR_HEAD, NULL, NULL);
        return NULL;
    }
    if (!split_target(rq)) {
        LTN_COUNT(s, refused_malformed);
        answer_http(rq, LTN_ERR_MALFORMED, "malformed request target", NULL);
        return NULL;
    }
    rq->grpc = head->version == 20 && ltn_grpc_is_type(rq->content_type);
    if (rq->grpc) {
        LTN_COUNT(s, requests_grpc);
    }
    if (!admit_route(rq) || !admit_rate(rq) || !admit_type(rq, body) || !admit_size(rq)) {
        return NULL;
    }
    if ((rq->route->r.flags & LTN_ROUTE_PREFIX) != 0) {
        rq->rest = rq->path + rq->route->path_len;
    }
    if (rq->route->r.stream != NULL && !ltn_stream_begin(rq)) {
        return NULL;
    }
    return ltn_overload_head(rq) ? rq : NULL;
}

/* ---- body ---- */

/* The message itself and nothing behind it. 0 or an error code. */
static int feed_frame(struct ltn_http_request *rq, const uint8_t *p, size_t n)
{
    size_t used = 0;
    if (n == 0) {
        return 0;
    }
    if (rq->frame_complete) {
        return LTN_ERR_MALFORMED; /* a second message in a unary call */
    }
    int rc = ltn_grpc_frame_feed(&rq->frame, p, n, &used);
    if (rc < 0) {
        return rc;
    }
    rq->frame_complete = rc == 1;
    return used < n ? LTN_ERR_MALFORMED : 0;
}

static int keep_body(struct ltn_http_request *rq, const uint8_t *p, size_t n)
{
    struct conn *c = rq->conn;
    size_t room = c->server->conf.connection_budget_bytes;
    if (c->held_bytes + n > room && c->in_handlers == 0) {
        return LTN_ERR_BUSY; /* no reply will make room: only half bodies are held */
    }
    size_t have = rq->grpc ? rq->frame.message.len : rq->body.len;
    if (!rq->grpc && n > rq->max_body_bytes - have) {
        return LTN_ERR_TOO_LARGE;
    }
    if (!ltn_request_reserve(rq, n)) {
        return LTN_ERR_BUSY;
    }
    return rq->grpc ? feed_frame(rq, p, n) : ltn_buf_append(&rq->body, p, n);
}

static void give_credit(struct conn *c, struct ltn_http_request *rq, size_t n)
{
    if (c->h2 == NULL) {
        return;
    }
    bool full = c->held_bytes > c->server->conf.connection_budget_bytes;
    if (full) {
        if (c->withheld_credit == 0) {
            LTN_COUNT(c->server, backpressure);
        }
        c->withheld_credit += n;
    }
    if (!rq->waits) {
        ltn_h2_credit(c->h2, rq->stream, n, !full);
        return;
    }
    rq->withheld_credit += n;
    if (!full) {
        ltn_h2_credit_connection(c->h2, n);
    }
}

static void refuse_body(struct ltn_http_request *rq, int rc)
{
    struct ltn_http_server *s = rq->conn->server;
    if (rq->grpc && rc == LTN_ERR_MALFORMED) {
        LTN_COUNT(s, refused_malformed);
        answer_error(rq, rq->frame_complete ? LTN_ERR_MESSAGES : LTN_ERR_FRAMING, NULL);
        return;
    }
    refuse(rq, rc, NULL);
}

static void on_data(void *arg, void *request, const uint8_t *p, size_t n)
{
    struct conn *c = arg;
    struct ltn_http_request *rq = request;
    rq->wire_bytes += n;
    ltn_count_add(&c->server->counters.request_body_bytes, n);
    charge_rate(rq, n);
    if (rq->state == RQ_STREAM) {
        ltn_stream_data(rq, p, n);
        return;
    }
    int rc = keep_body(rq, p, n);
    if (rc != 0) {
        refuse_body(rq, rc);
        if (c->h2 != NULL) {
            ltn_h2_credit_connection(c->h2, n);
        }
        return;
    }
    ltn_overload_body(rq, false);
    give_credit(c, rq, n);
}

static bool reserve_inflated(void *arg, size_t n)
{
    return ltn_request_reserve(arg, n);
}

/* Replaces the body by its inflated form. */
static int inflate_body(struct ltn_http_request *rq, struct ltn_buf *wire)
{
    struct ltn_http_server *s = rq->conn->server;
    struct ltn_buf out;
    const struct ltn_inflate_limits limits = {
        .max_ratio = s->conf.max_inflate_ratio,
        .reserve = reserve_inflated,
        .arg = rq,
    };
    ltn_buf_init(&out, rq->max_body_bytes);
    int rc = ltn_inflate(s->inflater, rq->coding, (const uint8_t *)ltn_buf_str(wire), wire->len,
                         &limits, &out);
    ltn_count_add(&s->counters.request_inflated_bytes, out.len);
    if (rc != 0) {
        ltn_buf_done(&out);
        return rc;
    }
    ltn_buf_done(wire);
    ltn_buf_done(&rq->body);
    rq->body = out;
    return 0;
}

/* Makes rq->body what the handler is to see. 0 or an error code. */
static int decode_body(struct ltn_http_request *rq)
{
    bool later = (rq->route->r.flags & LTN_ROUTE_CODED) != 0;
    if (!rq->grpc) {
        rq->coded = later && rq->coding != LTN_CODING_IDENTITY && rq->body.len > 0;
        if (rq->coding == LTN_CODING_IDENTITY || rq->body.len == 0 || later) {
            return 0;
        }
        struct ltn_buf wire = rq->body;
        ltn_buf_init(&rq->body, rq->max_body_bytes);
        int rc = inflate_body(rq, &wire);
        ltn_buf_done(&wire);
        return rc;
    }
    rq->coded = later && rq->frame.compressed;
    if (rq->frame.compressed && !later) {
        return inflate_body(rq, &rq->frame.message);
    }
    ltn_buf_done(&rq->body);
    rq->body = rq->frame.message;
    ltn_buf_init(&rq->frame.message, rq->max_body_bytes);
    return 0;
}

static void on_end(void *arg, void *request)
{
    struct conn *c = arg;
    struct ltn_http_request *rq = request;
    struct ltn_http_server *s = c->server;
    if (rq->state == RQ_STREAM) {
        ltn_stream_end(rq);
        return;
    }
    if (rq->waits) {
        rq->whole = true;
        return;
    }
    if (rq->grpc && !rq->frame_complete) {
        LTN_COUNT(s, refused_malformed);
        answer_error(rq, LTN_ERR_FRAMING,
                     ltn_grpc_frame_partial(&rq->frame) ? "message cut short" : "no message");
        return;
    }
    if (rq->grpc && rq->frame.compressed && rq->coding == LTN_CODING_IDENTITY) {
        LTN_COUNT(s, refused_malformed);
        answer_error(rq, LTN_ERR_FRAMING, "compressed message without grpc-encoding");
        return;
    }
    int rc = decode_body(rq);
    if (rc != 0) {
        refuse(rq, rc, rc == LTN_ERR_MALFORMED ? "body cannot be decompressed" : NULL);
        return;
    }
    ltn_overload_body(rq, true);
    rq->state = RQ_HANDLER;
    c->in_handlers++;
    ltn_count_add(&s->counters.in_flight, 1);
    struct core *core = rq->core;
    ltn_request_enter(core);
    rq->route->r.handle(rq->route->r.arg, rq);
    ltn_request_leave();
}

void ltn_exchange_go_on(struct ltn_http_request *rq)
{
    struct conn *c = rq->conn;
    if (rq->whole) {
        on_end(c, rq);
        return;
    }
    rq->started_ns = rq->rate_ns = ltn_loop_now_ns(c->server->loop); /* the wait was ours */
    rq->rate_bytes = rq->wire_bytes;
    if (c->h2 != NULL) {
        ltn_h2_go_on(c->h2, rq->stream, rq->withheld_credit);
        ltn_server_conn_dirty(c);
    }
}

static void on_closed(void *arg, void *request)
{
    struct conn *c = arg;
    struct ltn_http_request *rq = request;
    LTN_COUNT(c->server, streams_reset);
    c->active_ns = ltn_loop_now_ns(c->server->loop);
    if (rq->state == RQ_STREAM) {
        ltn_stream_gone(rq);
        return;
    }
    if (rq->state == RQ_HANDLER) {
        ltn_loop_timer_stop(c->server->loop, &rq->deadline_timer);
        rq->closed = true;
        atomic_store(&rq->gone, true);
        return;
    }
    ltn_exchange_detach(rq);
    ltn_request_free(rq);
    ltn_conn_relieved(c);
}

const struct ltn_session_sink ltn_exchange_sink = {
    .head = on_head,
    .data = on_data,
    .end = on_end,
    .closed = on_closed,
    .turns_away = turns_away,
};

/* ---- reply ---- */

static void add_standard_fields(struct ltn_http_server *s, struct reply *rp)
{
    if (rp->r.field_count < LTN_ARRAY_SIZE(rp->fields)) {
        rp->fields[rp->r.field_count++] = (struct ltn_http_field){"date", ltn_server_date(s)};
    }
    if (s->conf.server_name != NULL && rp->r.field_count < LTN_ARRAY_SIZE(rp->fields)) {
        rp->fields[rp->r.field_count++] = (struct ltn_http_field){"server", s->conf.server_name};
    }
}

static void send_reply(struct conn *c, struct ltn_http_request *rq)
{
    struct reply *rp = &rq->reply;
    struct ltn_http_server *s = c->server;
    if (rp->too_large) {
        LTN_COUNT(s, replies_too_large);
    }
    if (rp->failed) {
        LTN_COUNT(s, replies_dropped);
        drop_stream(c, rq->stream, LTN_H2_INTERNAL_ERROR);
        return;
    }
    add_standard_fields(s, rp);
    rp->r.close = rp->r.close || s->draining || c->aging;
    int rc = c->h2 != NULL ? ltn_h2_reply(c->h2, rq->stream, &rp->r) : ltn_h1_reply(c->h1, &rp->r);
    if (rc == 0) {
        LTN_COUNT(s, replies);
    } else {
        LTN_COUNT(s, replies_dropped);
    }
}

void ltn_exchange_replied(struct ltn_http_request *rq)
{
    struct conn *c = rq->conn;
    struct ltn_http_server *s = rq->core->server;
    if (c == NULL) {
        if (s != NULL) {
            LTN_COUNT(s, replies_dropped);
        }
        ltn_request_free(rq);
        return;
    }
    ltn_exchange_detach(rq);
    if (rq->closed) {
        LTN_COUNT(s, replies_dropped);
    } else {
        send_reply(c, rq);
    }
    c->active_ns = ltn_loop_now_ns(s->loop);
    ltn_request_free(rq);
    ltn_conn_relieved(c);
    ltn_server_conn_dirty(c); /* nothing while the connection is inside a call of ours */
}

/* The client's deadline: it gets its answer, the handler's will be dropped. */
static void on_deadline(void *arg)
{
    struct ltn_http_request *rq = arg;
    struct conn *c = rq->conn;
    LTN_COUNT(c->server, grpc_deadlines);
    if (rq->state == RQ_BODY) {
        answer_error(rq, LTN_ERR_TIMEOUT, NULL);
        return;
    }
    if (rq->state == RQ_STREAM) {
        ltn_stream_deadline(rq);
        return;
    }
    char status[12];
    (void)snprintf(status, sizeof(status), "%d", ltn_err_grpc(LTN_ERR_TIMEOUT));
    const struct ltn_http_field fields[] = {
        {"content-type", "application/grpc"},
        {"grpc-status", status},
        {"grpc-message", ltn_err_str(LTN_ERR_TIMEOUT)},
    };
    struct ltn_session_reply r = {
        .status = 200,
        .fields = fields,
        .field_count = LTN_ARRAY_SIZE(fields),
        .no_length = true,
    };
    if (ltn_h2_reply(c->h2, rq->stream, &r) == 0) {
        LTN_COUNT(c->server, replies);
    }
    rq->closed = true;
    atomic_store(&rq->gone, true);
    ltn_conn_work(c);
}

void ltn_exchange_timeout(struct ltn_http_request *rq)
{
    rq->reply.r.close = true; /* HTTP/1: nobody waits for the rest */
    answer_error(rq, LTN_ERR_SLOW, "request body came too slowly");
}

void ltn_exchange_forget(struct conn *c)
{
    while (c->requests != NULL) {
        struct ltn_http_request *rq = c->requests;
        bool with_handler = rq->state == RQ_HANDLER;
        if (rq->state == RQ_STREAM) {
            ltn_stream_gone(rq);
            continue;
        }
        ltn_exchange_detach(rq);
        if (with_handler) {
            atomic_store(&rq->gone, true);
        } else {
            ltn_request_free(rq);
        }
    }
}
