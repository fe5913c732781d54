/* SPDX-License-Identifier: Apache-2.0 */
/* A bidirectional stream on a gRPC client. One thread. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "http/client-internals.h"

#define DEFAULT_BYTES ((size_t)1 << 20)

struct ltn_grpc_stream {
    struct ltn_grpc_client *client;
    void (*message)(void *arg, const uint8_t *p, size_t n);
    void *arg;
    struct ltn_grpc_frame frame;
    struct ltn_buf out;
    size_t max_out_bytes;
};

void ltn_client_stream_data(struct ltn_grpc_stream *s, const uint8_t *p, size_t n)
{
    struct ltn_grpc_client *c = s->client;
    while (n > 0) {
        size_t used = 0;
        int rc = ltn_grpc_frame_feed(&s->frame, p, n, &used);
        p += used;
        n -= used;
        if (rc == 1 && s->frame.compressed) {
            rc = LTN_ERR_MALFORMED; /* not asked for */
        }
        if (rc < 0) {
            c->body_rc = rc;
            (void)nghttp2_submit_rst_stream(c->ng, NGHTTP2_FLAG_NONE, c->stream, NGHTTP2_CANCEL);
            return;
        }
        if (rc == 1) {
            s->message(s->arg, (const uint8_t *)ltn_buf_str(&s->frame.message),
                       s->frame.message.len);
            ltn_grpc_frame_reset(&s->frame);
        }
    }
}

static ssize_t read_out(nghttp2_session *ng, int32_t id, uint8_t *dst, size_t room, uint32_t *flags,
                        nghttp2_data_source *source, void *user)
{
    struct ltn_grpc_stream *s = source->ptr;
    size_t part = s->out.len < room ? s->out.len : room;
    (void)ng;
    (void)id;
    (void)user;
    (void)flags; /* the stream ends with its connection */
    if (part == 0) {
        return NGHTTP2_ERR_DEFERRED;
    }
    memcpy(dst, s->out.data, part);
    ltn_buf_consume(&s->out, part);
    return (ssize_t)part;
}

static int submit(struct ltn_grpc_stream *s, const struct ltn_grpc_stream_conf *conf)
{
    struct ltn_grpc_client *c = s->client;
    nghttp2_nv nv[8 + MAX_METADATA];
    size_t n = 0;
    nv[n++] = ltn_client_nv(":method", "POST");
    nv[n++] = ltn_client_nv(":scheme", c->tls != NULL ? "https" : "http");
    nv[n++] = ltn_client_nv(":path", conf->path);
    nv[n++] = ltn_client_nv(":authority", c->authority);
    nv[n++] = ltn_client_nv("te", "trailers");
    nv[n++] = ltn_client_nv("content-type", "application/grpc");
    nv[n++] = ltn_client_nv("user-agent", c->user_agent);
    if (c->authorization != NULL) {
        nv[n++] = ltn_client_nv("authorization", c->authorization);
        nv[n - 1].flags = NGHTTP2_NV_FLAG_NO_INDEX;
    }
    for (size_t i = 0; i < conf->metadata_count && i < MAX_METADATA; i++) {
        nv[n++] = ltn_client_nv(conf->metadata[i].name, conf->metadata[i].value);
    }
    const nghttp2_data_provider provider = {.source.ptr = s, .read_callback = read_out};
    c->stream = nghttp2_submit_request(c->ng, NULL, nv, n, &provider, NULL);
    return c->stream >= 0 ? 0 : LTN_ERR_UNAVAILABLE;
}

/* Sends until the head is on its way. */
static int send_head(struct ltn_grpc_client *c, uint64_t deadline_ns)
{
    while (!c->head_sent) {
        bool more = ltn_client_send(c);
        if (c->broken) {
            return LTN_ERR_UNAVAILABLE;
        }
        if (more && ltn_client_wait(c, c->fd, POLLOUT, deadline_ns) == 0) {
            return LTN_ERR_TIMEOUT;
        }
        if (!more && !c->head_sent) {
            return LTN_ERR_UNAVAILABLE;
        }
    }
    return 0;
}

int ltn_grpc_stream_open(struct ltn_grpc_client *c, const struct ltn_grpc_stream_conf *conf,
                         struct ltn_grpc_stream **ret_stream, struct ltn_errinfo *info)
{
    uint64_t deadline_ns = ltn_now_mono_ns() + conf->timeout_ns;
    struct ltn_grpc_stream *s = calloc(1, sizeof(*s));
    if (s == NULL) {
        return ltn_errinfo_set(info, -ENOMEM, "out of memory");
    }
    s->client = c;
    s->message = conf->message;
    s->arg = conf->arg;
    s->max_out_bytes = conf->max_out_bytes != 0 ? conf->max_out_bytes : DEFAULT_BYTES;
    ltn_grpc_frame_init(&s->frame, conf->max_in_bytes != 0 ? conf->max_in_bytes : DEFAULT_BYTES);
    ltn_buf_init(&s->out, s->max_out_bytes + LTN_GRPC_PREFIX_BYTES);
    ltn_grpc_client_disconnect(c);
    c->cut_ns = conf->cut_ns;
    c->reason[0] = '\0';
    int rc = ltn_client_reset(c);
    if (rc == 0) {
        rc = ltn_client_connect(c, deadline_ns);
    }
    if (rc == 0) {
        c->live = s;
        rc = submit(s, conf);
    }
    if (rc == 0) {
        rc = send_head(c, deadline_ns);
    }
    if (rc != 0) {
        (void)ltn_errinfo_set(info, rc, "%s", c->reason[0] != '\0' ? c->reason : ltn_err_str(rc));
        ltn_grpc_stream_close(s);
        return rc;
    }
    *ret_stream = s;
    return 0;
}

int ltn_grpc_stream_send(struct ltn_grpc_stream *s, const void *p, size_t n)
{
    struct ltn_grpc_client *c = s->client;
    uint8_t prefix[LTN_GRPC_PREFIX_BYTES];
    if (c->closed || c->broken) {
        return LTN_ERR_CLOSED;
    }
    size_t whole = n + sizeof(prefix);
    if (n > s->max_out_bytes || s->out.len + whole > s->out.max_bytes) {
        return LTN_ERR_BUSY;
    }
    if (ltn_buf_reserve(&s->out, whole) == NULL) {
        return -ENOMEM;
    }
    ltn_grpc_prefix(prefix, false, (uint32_t)n);
    int rc = ltn_buf_append(&s->out, prefix, sizeof(prefix));
    if (rc == 0 && n > 0) {
        rc = ltn_buf_append(&s->out, p, n);
    }
    (void)nghttp2_session_resume_data(c->ng, c->stream);
    return rc;
}

size_t ltn_grpc_stream_waiting(const struct ltn_grpc_stream *s)
{
    return s->out.len + s->client->pending_len;
}

int ltn_grpc_stream_run(struct ltn_grpc_stream *s, int wake_fd, int timeout_ms)
{
    struct ltn_grpc_client *c = s->client;
    bool more = !c->broken && ltn_client_send(c);
    if (!c->broken && !c->closed) {
        struct pollfd p[] = {
            {.fd = c->fd, .events = (short)(POLLIN | (more ? POLLOUT : 0))},
            {.fd = wake_fd, .events = POLLIN},
        };
        int n = poll(p, wake_fd >= 0 ? 2 : 1, timeout_ms);
        if (n > 0 && p[0].revents != 0) {
            ltn_client_receive(c);
        }
        if (!c->broken) {
            (void)ltn_client_send(c);
        }
    }
    if (!c->broken && !c->closed && nghttp2_session_want_read(c->ng) == 0 &&
        nghttp2_session_want_write(c->ng) == 0) {
        ltn_client_fail(c, "connection ended by the peer", 0);
    }
    return c->broken || c->closed ? LTN_ERR_CLOSED : 0;
}

bool ltn_grpc_stream_leaving(const struct ltn_grpc_stream *s)
{
    return s->client->goaway;
}

void ltn_grpc_stream_result(struct ltn_grpc_stream *s, struct ltn_grpc_result *ret)
{
    struct ltn_grpc_client *c = s->client;
    const char *status = ltn_head_get(c->fields, "grpc-status");
    const char *message = ltn_head_get(c->fields, "grpc-message");
    const char *http = ltn_head_get(c->fields, ":status");
    uint64_t value = 0;
    *ret = (struct ltn_grpc_result){.status = LTN_GRPC_UNAVAILABLE, .retry = true, .sent = true};
    if (c->body_rc != 0) {
        ret->status = ltn_err_grpc(c->body_rc);
        ret->message = ltn_err_str(c->body_rc);
        return;
    }
    if (status != NULL) {
        ret->status = ltn_parse_u64(status, &value) && value <= 16 ? (int)value : LTN_GRPC_UNKNOWN;
        ltn_buf_reset(&c->message);
        (void)ltn_grpc_message_decode(&c->message, message != NULL ? message : "");
        ret->message = ltn_buf_str(&c->message);
        return;
    }
    if (http != NULL && strcmp(http, "200") != 0) {
        (void)snprintf(c->reason, sizeof(c->reason), "HTTP status %.16s", http);
        ret->status = strcmp(http, "401") == 0   ? LTN_GRPC_UNAUTHENTICATED
                      : strcmp(http, "404") == 0 ? LTN_GRPC_UNIMPLEMENTED
                                                 : LTN_GRPC_UNKNOWN;
    } else if (c->closed && c->reason[0] == '\0') {
        (void)snprintf(c->reason, sizeof(c->reason), "stream cut off by the peer: %s",
                       nghttp2_http2_strerror(c->close_code));
    }
    ret->message = c->reason[0] != '\0' ? c->reason : "the stream is open";
}

void ltn_grpc_stream_close(struct ltn_grpc_stream *s)
{
    if (s == NULL) {
        return;
    }
    struct ltn_grpc_client *c = s->client;
    if (c->ng != NULL && !c->closed && !c->broken && c->stream > 0) {
        (void)nghttp2_submit_rst_stream(c->ng, NGHTTP2_FLAG_NONE, c->stream, NGHTTP2_CANCEL);
        (void)ltn_client_send(c);
    }
    c->live = NULL;
    c->stream = -1;
    ltn_grpc_client_disconnect(c);
    ltn_grpc_frame_done(&s->frame);
    ltn_buf_done(&s->out);
    free(s);
}
