/* SPDX-License-Identifier: Apache-2.0 */
/* What handlers see: the request's accessors and the reply calls. Any thread that owns it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/err.h"
#include "base/text.h"
#include "http/server-internals.h"

#define MAX_MESSAGE_BYTES 1024 /* of an error, as sent */
#define REPLY_ARENA_BYTES (64 * 1024)
#define MAX_DETAILS_BYTES 8192
#define GZIP_FROM_BYTES   512

/* The core whose handler runs on this thread: replies made inside it need no journey. */
static _Thread_local struct core *handler_core;
static _Thread_local struct ltn_task *handler_done;

void ltn_request_enter(struct core *c)
{
    handler_core = c;
}

void ltn_request_leave(void)
{
    handler_core = NULL;
    while (handler_done != NULL) {
        struct ltn_task *t = handler_done;
        handler_done = t->next;
        t->fn(t);
    }
}

bool ltn_request_reserve(struct ltn_http_request *rq, size_t n)
{
    if (!ltn_budget_take(rq->core->budget, n)) {
        return false;
    }
    rq->held_bytes += n;
    if (rq->conn != NULL) {
        rq->conn->held_bytes += n;
    }
    return true;
}

void ltn_request_give_back(struct ltn_http_request *rq, size_t n)
{
    ltn_budget_give(rq->core->budget, n);
    rq->held_bytes -= n;
    if (rq->conn != NULL) {
        rq->conn->held_bytes -= n;
    }
}

void ltn_request_free(struct ltn_http_request *rq)
{
    if (rq->core->server != NULL) {
        ltn_overload_over(rq);
    }
    ltn_budget_give(rq->core->budget, rq->held_bytes + rq->late_bytes);
    ltn_head_free(rq->head);
    free(rq->path);
    ltn_buf_done(&rq->body);
    ltn_grpc_frame_done(&rq->frame);
    ltn_arena_done(&rq->reply.arena);
    free(rq->reply.r.body);
    ltn_source_free(rq->reply.r.source);
    ltn_core_unref(rq->core);
    free(rq);
}

const char *ltn_http_method(const struct ltn_http_request *req)
{
    return req->head->method;
}

const char *ltn_http_path(const struct ltn_http_request *req)
{
    return req->path;
}

const char *ltn_http_query(const struct ltn_http_request *req)
{
    return req->query;
}

const char *ltn_http_path_rest(const struct ltn_http_request *req)
{
    return req->rest;
}

const char *ltn_http_header(const struct ltn_http_request *req, const char *name)
{
    if (strcmp(name, "host") == 0) {
        return req->head->authority;
    }
    return ltn_head_get(req->head, name);
}

const char *ltn_http_content_type(const struct ltn_http_request *req)
{
    return req->content_type;
}

const char *ltn_http_peer(const struct ltn_http_request *req)
{
    return req->peer;
}

const uint8_t *ltn_http_body(const struct ltn_http_request *req, size_t *ret_len)
{
    *ret_len = req->body.len;
    return (const uint8_t *)ltn_buf_str(&req->body);
}

bool ltn_http_is_coded(const struct ltn_http_request *req)
{
    return req->coded;
}

static bool reserve_late(void *arg, size_t n)
{
    struct ltn_http_request *rq = arg;
    if (!ltn_budget_take(rq->core->budget, n))
        return false;
    rq->late_bytes += n;
    return true;
}

int ltn_http_inflate(struct ltn_http_request *req, struct ltn_inflater **inflater)
{
    struct ltn_buf out;
    const struct ltn_inflate_limits limits = {
        .max_ratio = req->core->max_inflate_ratio, .reserve = reserve_late, .arg = req};
    if (!req->coded) {
        return 0;
    }
    if (*inflater == NULL) {
        *inflater = ltn_inflater_new(req->core->zstd_window_log_max);
    }
    if (*inflater == NULL) {
        return -ENOMEM;
    }
    ltn_buf_init(&out, req->max_body_bytes);
    int rc = ltn_inflate(*inflater, req->coding, (const uint8_t *)ltn_buf_str(&req->body),
                         req->body.len, &limits, &out);
    atomic_fetch_add(&req->core->inflated_bytes, out.len);
    if (rc != 0) {
        ltn_buf_done(&out);
        return rc;
    }
    ltn_buf_done(&req->body);
    req->body = out;
    req->coded = false;
    return 0;
}

void ltn_http_inflater_free(struct ltn_inflater *inflater)
{
    ltn_inflater_free(inflater);
}

bool ltn_http_is_grpc(const struct ltn_http_request *req)
{
    return req->grpc;
}

int ltn_http_version(const struct ltn_http_request *req)
{
    return req->head->version;
}

uint64_t ltn_http_tag(const struct ltn_http_request *req)
{
    return req->tag;
}

uint64_t ltn_http_deadline_ns(const struct ltn_http_request *req)
{
    return req->deadline_ns;
}

bool ltn_http_gone(const struct ltn_http_request *req)
{
    return atomic_load(&req->gone);
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    char lower = (char)(c | 0x20);
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

static bool decode(const char *src, size_t n, bool plus, char *out, size_t size)
{
    size_t len = 0;
    for (size_t i = 0; i < n; i++) {
        char c = src[i];
        if (c == '%') {
            if (n - i < 3 || hex_value(src[i + 1]) < 0 || hex_value(src[i + 2]) < 0) {
                return false;
            }
            c = (char)(hex_value(src[i + 1]) * 16 + hex_value(src[i + 2]));
            i += 2;
        } else if (c == '+' && plus) {
            c = ' ';
        }
        if (c == '\0' || len + 1 >= size) {
            return false;
        }
        out[len++] = c;
    }
    if (size == 0) {
        return false;
    }
    out[len] = '\0';
    return true;
}

bool ltn_http_url_decode(const char *src, size_t n, char *out, size_t size)
{
    return decode(src, n, false, out, size);
}

bool ltn_http_query_get(const struct ltn_http_request *req, const char *name, char *out,
                        size_t size)
{
    size_t name_len = strlen(name);
    const char *p = req->query;
    while (*p != '\0') {
        size_t n = strcspn(p, "&");
        const char *eq = memchr(p, '=', n);
        size_t key_len = eq != NULL ? (size_t)(eq - p) : n;
        if (key_len == name_len && memcmp(p, name, name_len) == 0) {
            return eq == NULL ? decode("", 0, true, out, size)
                              : decode(eq + 1, n - key_len - 1, true, out, size);
        }
        p += n;
        p += *p == '&' ? 1 : 0;
    }
    return false;
}

bool ltn_http_bearer_is(const struct ltn_http_request *req, const char *token)
{
    const char *value = ltn_head_get(req->head, "authorization");
    if (value == NULL || strncasecmp(value, "bearer ", 7) != 0) {
        return false;
    }
    value += 7 + strspn(value + 7, " ");
    size_t given = strlen(value);
    size_t wanted = strlen(token);
    /* Every byte given is looked at, whatever the others were. */
    unsigned char diff = given == wanted && wanted > 0 ? 0 : 1;
    for (size_t i = 0; i < given; i++) {
        diff |= (unsigned char)(value[i] ^ token[wanted > 0 ? i % wanted : 0]);
    }
    return diff == 0;
}

/* ---- replies ---- */

static void add_field(struct ltn_http_request *rq, const char *name, const char *value)
{
    struct reply *rp = &rq->reply;
    if (rp->r.field_count == LTN_ARRAY_SIZE(rp->fields)) {
        return;
    }
    char *n = ltn_arena_strndup(&rp->arena, name, strlen(name));
    char *v = ltn_arena_strndup(&rp->arena, value, strlen(value));
    if (n == NULL || v == NULL) {
        rp->failed = true;
        return;
    }
    /* What a handler passes on may come from outside: it must not split the head. */
    if (!ltn_is_token(n, strlen(n)) || !ltn_is_field_value(v, strlen(v))) {
        return;
    }
    rp->fields[rp->r.field_count++] = (struct ltn_http_field){n, v};
}

static void add_trailer(struct ltn_http_request *rq, const char *name, const char *value)
{
    struct reply *rp = &rq->reply;
    char *v = ltn_arena_strndup(&rp->arena, value, strlen(value));
    if (v == NULL || rp->r.trailer_count == LTN_ARRAY_SIZE(rp->trailers)) {
        rp->failed = true;
        return;
    }
    rp->trailers[rp->r.trailer_count++] = (struct ltn_http_field){name, v};
}

static void begin(struct ltn_http_request *rq, int status)
{
    ltn_arena_init(&rq->reply.arena, LTN_ARENA_QUICK_BYTES, REPLY_ARENA_BYTES);
    rq->reply.r.status = status;
    rq->reply.r.fields = rq->reply.fields;
    rq->reply.r.trailers = rq->reply.trailers;
}

static void replied_task(struct ltn_task *t)
{
    struct ltn_http_request *rq =
        (struct ltn_http_request *)((char *)t - offsetof(struct ltn_http_request, task));
    ltn_exchange_replied(rq);
}

/* Sends the finished reply on its way; rq is no longer ours. */
static void finish(struct ltn_http_request *rq)
{
    struct core *c = rq->core;
    rq->task.fn = replied_task;
    if (handler_core == c) {
        rq->task.next = handler_done;
        handler_done = &rq->task;
        return;
    }
    pthread_mutex_lock(&c->lock);
    bool posted = c->loop != NULL;
    if (posted) {
        /* Our own reference: the loop may free the request, and with it the core. */
        atomic_fetch_add(&c->refs, 1);
        ltn_loop_post(c->loop, &rq->task);
    }
    pthread_mutex_unlock(&c->lock);
    if (posted) {
        ltn_core_unref(c);
    } else {
        ltn_request_free(rq);
    }
}

static void set_body(struct ltn_http_request *rq, void *body, size_t n, bool take)
{
    struct reply *rp = &rq->reply;
    if (take) {
        rp->r.body = body;
        rp->r.body_len = n;
    } else if (n > 0) {
        rp->r.body = malloc(n);
        if (rp->r.body == NULL) {
            rp->failed = true;
        } else {
            memcpy(rp->r.body, body, n);
            rp->r.body_len = n;
        }
    }
}

static void maybe_gzip(struct ltn_http_request *rq)
{
    struct reply *rp = &rq->reply;
    if (!rq->may_gzip || rq->method != LTN_HTTP_GET) {
        return;
    }
    add_field(rq, "vary", "accept-encoding");
    if (rp->r.body_len < GZIP_FROM_BYTES ||
        !ltn_accepts_gzip(ltn_head_get(rq->head, "accept-encoding"))) {
        return;
    }
    struct ltn_buf out;
    ltn_buf_init(&out, rp->r.body_len + rp->r.body_len / 256 + 4096);
    if (ltn_gzip(rp->r.body, rp->r.body_len, &out) == 0) {
        free(rp->r.body);
        rp->r.body = ltn_buf_steal(&out, &rp->r.body_len);
        add_field(rq, "content-encoding", "gzip");
    }
    ltn_buf_done(&out);
}

static void add_retry_after(struct ltn_http_request *rq, int status, uint32_t seconds)
{
    char text[16];
    if (seconds == 0 && (status == 429 || status == 503)) {
        seconds = rq->core->retry_after_s;
    }
    if (seconds != 0) {
        (void)snprintf(text, sizeof(text), "%u", seconds);
        add_field(rq, "retry-after", text);
    }
}

/* A body in pieces: gzipped on its way when it may be, for its length is not known. */
static void set_source(struct ltn_http_request *rq, const struct ltn_http_source *source)
{
    bool may = rq->may_gzip;
    bool gzip = may && ltn_accepts_gzip(ltn_head_get(rq->head, "accept-encoding"));
    if (may) {
        add_field(rq, "vary", "accept-encoding");
    }
    if (gzip) {
        add_field(rq, "content-encoding", "gzip");
    }
    rq->reply.r.source = ltn_source_new(source, gzip);
    rq->reply.failed = rq->reply.r.source == NULL;
}

void ltn_http_reply(struct ltn_http_request *req, const struct ltn_http_response *resp)
{
    if (resp->body_len > req->core->max_response_bytes && !req->reply.too_large) {
        if (resp->take_body) {
            free(resp->body);
        }
        /* The peer gets an error instead of half an answer; the loop counts it. */
        req->reply.too_large = true;
        ltn_http_reply_error(req, LTN_ERR_RESPONSE, NULL, 0);
        return;
    }
    begin(req, resp->status);
    set_body(req, resp->body, resp->body_len, resp->take_body);
    if (resp->content_type != NULL) {
        add_field(req, "content-type", resp->content_type);
    }
    for (size_t i = 0; i < resp->field_count; i++) {
        add_field(req, resp->fields[i].name, resp->fields[i].value);
    }
    add_retry_after(req, resp->status, resp->retry_after_s);
    if (resp->source != NULL) {
        set_source(req, resp->source);
    } else {
        maybe_gzip(req);
    }
    req->reply.r.head_only = req->is_head;
    finish(req);
}

void ltn_http_reply_bytes(struct ltn_http_request *req, int status, const char *content_type,
                          const void *body, size_t body_len)
{
    const struct ltn_http_response resp = {
        .status = status,
        .content_type = content_type,
        .body = (void *)(uintptr_t)body,
        .body_len = body_len,
    };
    ltn_http_reply(req, &resp);
}

void ltn_http_reply_text(struct ltn_http_request *req, int status, const char *text)
{
    ltn_http_reply_bytes(req, status, "text/plain; charset=utf-8", text, strlen(text));
}

static void add_hint(struct ltn_http_request *rq, int status, const char *message,
                     uint32_t retry_ms)
{
    struct ltn_buf details, retry;
    ltn_buf_init(&details, MAX_DETAILS_BYTES);
    ltn_buf_init(&retry, MAX_DETAILS_BYTES);
    if (ltn_grpc_hint(&details, &retry, status, message, retry_ms) == 0) {
        add_trailer(rq, "grpc-status-details-bin", ltn_buf_str(&details));
        add_trailer(rq, "google.rpc.retryinfo-bin", ltn_buf_str(&retry));
    } else {
        rq->reply.failed = true;
    }
    ltn_buf_done(&details);
    ltn_buf_done(&retry);
}

static void add_bad_request(struct ltn_http_request *rq, int status, const char *message,
                            const char *field)
{
    struct ltn_buf bytes, text;
    ltn_buf_init(&bytes, MAX_DETAILS_BYTES);
    ltn_buf_init(&text, MAX_DETAILS_BYTES);
    if (ltn_rpc_status_bad_request(&bytes, status, message, field) == 0 &&
        ltn_base64_encode(&text, (const uint8_t *)ltn_buf_str(&bytes), bytes.len) == 0) {
        add_trailer(rq, "grpc-status-details-bin", ltn_buf_str(&text));
    } else {
        rq->reply.failed = true;
    }
    ltn_buf_done(&bytes);
    ltn_buf_done(&text);
}

/* Errors go out as one block of headers (Trailers-Only): some clients look nowhere else. */
static void trailers_to_head(struct reply *rp)
{
    for (size_t i = 0; i < rp->r.trailer_count && rp->r.field_count < LTN_ARRAY_SIZE(rp->fields);
         i++) {
        rp->fields[rp->r.field_count++] = rp->trailers[i];
    }
    rp->r.trailer_count = 0;
}

static void set_grpc_body(struct ltn_http_request *rq, const struct ltn_grpc_response *resp)
{
    struct reply *rp = &rq->reply;
    uint8_t *framed = malloc(LTN_GRPC_PREFIX_BYTES + resp->body_len);
    if (framed == NULL) {
        rp->failed = true;
        return;
    }
    ltn_grpc_prefix(framed, false, (uint32_t)resp->body_len);
    if (resp->body_len > 0) {
        memcpy(framed + LTN_GRPC_PREFIX_BYTES, resp->body, resp->body_len);
    }
    rp->r.body = framed;
    rp->r.body_len = LTN_GRPC_PREFIX_BYTES + resp->body_len;
}

static void add_grpc_message(struct ltn_http_request *rq, const char *message)
{
    struct ltn_buf text;
    ltn_buf_init(&text, MAX_MESSAGE_BYTES + 1);
    if (ltn_grpc_message_encode(&text, message, MAX_MESSAGE_BYTES) == 0) {
        add_trailer(rq, "grpc-message", ltn_buf_str(&text));
    }
    ltn_buf_done(&text);
}

void ltn_grpc_reply(struct ltn_http_request *req, const struct ltn_grpc_response *resp)
{
    char number[12];
    char cut[MAX_MESSAGE_BYTES];
    int status = resp->status;
    const char *message = resp->message != NULL ? resp->message : "";
    begin(req, 200);
    req->reply.r.no_length = true;
    if (status == LTN_GRPC_OK && resp->body_len > req->core->max_response_bytes) {
        req->reply.too_large = true;
        status = ltn_err_grpc(LTN_ERR_RESPONSE);
        message = ltn_err_str(LTN_ERR_RESPONSE);
    }
    ltn_text_clean(cut, sizeof(cut), message, strlen(message));
    (void)snprintf(number, sizeof(number), "%d", status);
    add_field(req, "content-type", "application/grpc");
    for (size_t i = 0; i < resp->field_count; i++) {
        add_field(req, resp->fields[i].name, resp->fields[i].value);
    }
    add_trailer(req, "grpc-status", number);
    if (cut[0] != '\0') {
        add_grpc_message(req, cut);
    }
    if (status == LTN_GRPC_OK) {
        set_grpc_body(req, resp);
    } else {
        if (resp->retry_after_ms != 0) {
            add_hint(req, status, cut, resp->retry_after_ms);
        } else if (resp->bad_request != NULL) {
            add_bad_request(req, status, cut, resp->bad_request);
        }
        trailers_to_head(&req->reply);
    }
    finish(req);
}
