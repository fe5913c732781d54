/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a bidirectional gRPC stream between the session and its owner. Loop thread. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/text.h"
#include "http/server-internals.h"

#define MAX_MESSAGE_BYTES 512         /* grpc-message, as sent */
#define KEEP_FRAME_BYTES  (16 * 1024) /* buffer kept between messages */

/* Off the connection and freed; the owner knows already. */
static void drop(struct ltn_http_request *rq)
{
    struct conn *c = rq->conn;
    LTN_COUNT(c->server, streams_ended);
    c->active_ns = ltn_loop_now_ns(c->server->loop);
    ltn_exchange_detach(rq);
    ltn_request_free(rq);
    ltn_conn_relieved(c);
}

static void tell_closed(struct ltn_http_request *rq)
{
    if (!rq->stream_over) {
        rq->stream_over = true;
        rq->route->r.stream->closed(rq->stream_ctx);
    }
}

static void send_trailers(struct ltn_http_request *rq, int status, const char *message)
{
    char number[12];
    char cut[MAX_MESSAGE_BYTES];
    struct ltn_buf text;
    size_t n = 0;
    struct ltn_http_field trailers[2];
    (void)snprintf(number, sizeof(number), "%d", status);
    trailers[n++] = (struct ltn_http_field){"grpc-status", number};
    ltn_buf_init(&text, MAX_MESSAGE_BYTES + 1);
    if (message != NULL && message[0] != '\0') {
        ltn_text_clean(cut, sizeof(cut), message, strlen(message));
        if (ltn_grpc_message_encode(&text, cut, MAX_MESSAGE_BYTES) == 0) {
            trailers[n++] = (struct ltn_http_field){"grpc-message", ltn_buf_str(&text)};
        }
    }
    ltn_h2_stream_end(rq->conn->h2, rq->stream, trailers, n);
    ltn_buf_done(&text);
    ltn_server_conn_dirty(rq->conn);
}

/* Ends the stream on this side's account: the owner is told, then the peer. */
static void finish(struct ltn_http_request *rq, int status, const char *message)
{
    tell_closed(rq);
    send_trailers(rq, status, message);
    if (!rq->dispatching) {
        drop(rq);
    }
}

bool ltn_stream_begin(struct ltn_http_request *rq)
{
    struct conn *c = rq->conn;
    struct ltn_http_server *s = c->server;
    const struct ltn_http_stream_ops *ops = rq->route->r.stream;
    const struct ltn_http_field fields[] = {
        {"content-type", "application/grpc"},
        {"date", ltn_server_date(s)},
    };
    LTN_COUNT(s, streams_opened);
    rq->state = RQ_STREAM;
    int rc = ltn_h2_stream_begin(c->h2, rq->stream, fields, LTN_ARRAY_SIZE(fields));
    if (rc != 0) {
        ltn_h2_reset(c->h2, rq->stream, LTN_H2_INTERNAL_ERROR);
        drop(rq);
        return false;
    }
    rq->dispatching = true;
    rc = ops->open(rq->route->r.arg, rq, &rq->stream_ctx);
    rq->dispatching = false;
    if (rc != 0) {
        rq->stream_over = true;
        send_trailers(rq, ltn_err_grpc(rc), ltn_err_str(rc));
    }
    if (rq->stream_over) {
        drop(rq);
        return false;
    }
    return true;
}

/* Accounts for the message being put together. False: the budget is used up. */
static bool account(struct ltn_http_request *rq)
{
    size_t now = rq->frame.message.size;
    if (now > rq->frame_held && !ltn_request_reserve(rq, now - rq->frame_held)) {
        return false;
    }
    if (now < rq->frame_held) {
        ltn_request_give_back(rq, rq->frame_held - now);
    }
    rq->frame_held = now;
    return true;
}

static void next_frame(struct ltn_http_request *rq)
{
    if (rq->frame.message.size > KEEP_FRAME_BYTES) {
        size_t max = rq->frame.message.max_bytes;
        ltn_grpc_frame_done(&rq->frame);
        ltn_grpc_frame_init(&rq->frame, max);
    } else {
        ltn_grpc_frame_reset(&rq->frame);
    }
}

/* Ends it with what the answer matrix says of rc; message NULL: the code's text. */
static void finish_error(struct ltn_http_request *rq, int rc, const char *message)
{
    finish(rq, ltn_err_grpc(rc), message != NULL ? message : ltn_err_str(rc));
}

static void fault(struct ltn_http_request *rq, int rc, const char *message)
{
    LTN_COUNT(rq->conn->server, stream_faults);
    finish_error(rq, rc, message);
}

/* One step through the bytes; returns how many were used, 0 when the stream ended. */
static size_t take(struct ltn_http_request *rq, const uint8_t *p, size_t n)
{
    size_t used = 0;
    int rc = ltn_grpc_frame_feed(&rq->frame, p, n, &used);
    if (rc < 0) {
        fault(rq, rc == LTN_ERR_MALFORMED ? LTN_ERR_FRAMING : rc, NULL);
        return 0;
    }
    if (!account(rq)) {
        LTN_COUNT(rq->conn->server, refused_budget);
        finish_error(rq, LTN_ERR_BUSY, "memory budget used up, try again");
        return 0;
    }
    if (rc == 0) {
        return used;
    }
    if (rq->frame.compressed) {
        fault(rq, LTN_ERR_CODING, "compressed messages are not taken on this stream");
        return 0;
    }
    LTN_COUNT(rq->conn->server, stream_messages);
    rq->route->r.stream->message(rq->stream_ctx, (const uint8_t *)ltn_buf_str(&rq->frame.message),
                                 rq->frame.message.len);
    if (rq->stream_over) {
        return 0;
    }
    next_frame(rq);
    (void)account(rq);
    return used;
}

void ltn_stream_data(struct ltn_http_request *rq, const uint8_t *p, size_t n)
{
    struct conn *c = rq->conn;
    int32_t id = rq->stream;
    size_t left = n;
    rq->dispatching = true;
    while (left > 0 && !rq->stream_over) {
        size_t used = take(rq, p, left);
        p += used;
        left -= used;
    }
    rq->dispatching = false;
    if (rq->stream_over) {
        drop(rq);
        ltn_h2_credit_connection(c->h2, n);
    } else {
        ltn_h2_credit(c->h2, id, n, true);
    }
}

void ltn_stream_end(struct ltn_http_request *rq)
{
    if (ltn_grpc_frame_partial(&rq->frame)) {
        fault(rq, LTN_ERR_FRAMING, "message cut short");
    } else if (rq->route->r.stream->ended != NULL) {
        rq->dispatching = true;
        rq->route->r.stream->ended(rq->stream_ctx);
        rq->dispatching = false;
        if (rq->stream_over) {
            drop(rq);
        }
    } else {
        finish(rq, LTN_GRPC_OK, NULL);
    }
}

void ltn_stream_deadline(struct ltn_http_request *rq)
{
    finish_error(rq, LTN_ERR_TIMEOUT, NULL);
}

void ltn_stream_gone(struct ltn_http_request *rq)
{
    tell_closed(rq);
    drop(rq);
}

int ltn_http_stream_send(struct ltn_http_request *stream, const void *p, size_t n)
{
    uint8_t prefix[LTN_GRPC_PREFIX_BYTES];
    if (stream->stream_over || stream->conn == NULL) {
        return LTN_ERR_CLOSED;
    }
    if (n > UINT32_MAX) {
        return LTN_ERR_TOO_LARGE;
    }
    ltn_grpc_prefix(prefix, false, (uint32_t)n);
    int rc = ltn_h2_stream_send(stream->conn->h2, stream->stream, prefix, sizeof(prefix), p, n,
                                LTN_HTTP_STREAM_QUEUE_BYTES);
    if (rc == 0) {
        LTN_COUNT(stream->conn->server, stream_messages_sent);
        ltn_server_conn_dirty(stream->conn);
    }
    return rc;
}

size_t ltn_http_stream_waiting(const struct ltn_http_request *stream)
{
    return stream->stream_over ? 0 : ltn_h2_stream_waiting(stream->conn->h2, stream->stream);
}

void ltn_http_stream_end(struct ltn_http_request *stream, int status, const char *message)
{
    if (stream->stream_over) {
        return;
    }
    stream->stream_over = true;
    send_trailers(stream, status, message);
    if (!stream->dispatching) {
        drop(stream);
    }
}
