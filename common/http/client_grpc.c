/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <nghttp2/nghttp2.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/text.h"
#include "http/client-internals.h"
#include "http/coding.h"

#define DEFAULT_CONNECT_NS     (5 * LTN_NS_PER_S)
#define DEFAULT_RESPONSE_BYTES (4UL * 1024 * 1024)
#define WINDOW_BYTES           (1024 * 1024)

/* ---- making and freeing ---- */

static int split_target(struct ltn_grpc_client *c, const char *target)
{
    const char *colon = strrchr(target, ':');
    uint64_t port;
    if (colon == NULL || !ltn_parse_u64(colon + 1, &port) || port == 0 || port > UINT16_MAX) {
        return -EINVAL;
    }
    size_t n = (size_t)(colon - target);
    if (n >= 2 && target[0] == '[' && target[n - 1] == ']') {
        target++;
        n -= 2;
    } else if (n == 0 || memchr(target, ':', n) != NULL) {
        return -EINVAL;
    }
    (void)snprintf(c->port, sizeof(c->port), "%u", (unsigned)port);
    c->host = strndup(target, n);
    return c->host != NULL ? 0 : -ENOMEM;
}

static bool copy_conf(struct ltn_grpc_client *c, const struct ltn_grpc_client_conf *conf)
{
    c->authority = strdup(conf->authority != NULL ? conf->authority : conf->target);
    c->user_agent = strdup(conf->user_agent != NULL ? conf->user_agent : "lanterne/" LTN_VERSION);
    if (conf->bearer_token != NULL) {
        if (asprintf(&c->authorization, "Bearer %s", conf->bearer_token) < 0) {
            c->authorization = NULL;
            return false;
        }
    }
    c->tls_name = strdup(conf->server_name != NULL ? conf->server_name : c->host);
    return c->authority != NULL && c->user_agent != NULL && c->tls_name != NULL;
}

int ltn_grpc_client_new(const struct ltn_grpc_client_conf *conf,
                        struct ltn_grpc_client **ret_client)
{
    struct ltn_grpc_client *c = calloc(1, sizeof(*c));
    if (c == NULL) {
        return -ENOMEM;
    }
    c->fd = -1;
    c->zstd = conf->zstd;
    c->gzip = conf->gzip && !conf->zstd;
    c->max_age_ns = conf->max_age_ns;
    c->connect_timeout_ns =
        conf->connect_timeout_ns != 0 ? conf->connect_timeout_ns : DEFAULT_CONNECT_NS;
    size_t max = conf->max_response_bytes != 0 ? conf->max_response_bytes : DEFAULT_RESPONSE_BYTES;
    ltn_grpc_frame_init(&c->frame, max);
    ltn_buf_init(&c->zipped, UINT32_MAX);
    ltn_buf_init(&c->message, MAX_HEADER_BYTES);
    c->tls = conf->tls;
    int rc = split_target(c, conf->target);
    if (rc == 0 && !copy_conf(c, conf)) {
        rc = -ENOMEM;
    }
    if (rc != 0) {
        ltn_grpc_client_free(c);
        return rc;
    }
    *ret_client = c;
    return 0;
}

void ltn_grpc_client_disconnect(struct ltn_grpc_client *c)
{
    nghttp2_session_del(c->ng);
    c->ng = NULL;
    ltn_client_end_tls(c);
    if (c->fd >= 0) {
        close(c->fd);
        c->fd = -1;
    }
    c->goaway = false;
    c->broken = false;
    c->pending_len = 0;
}

void ltn_grpc_client_free(struct ltn_grpc_client *c)
{
    if (c == NULL) {
        return;
    }
    ltn_grpc_client_disconnect(c);
    ltn_head_free(c->fields);
    ltn_grpc_frame_done(&c->frame);
    ltn_buf_done(&c->zipped);
    ltn_buf_done(&c->message);
    free(c->host);
    free(c->tls_name);
    free(c->authority);
    free(c->user_agent);
    free(c->authorization);
    free(c);
}

/* ---- session callbacks ---- */

static int on_header(nghttp2_session *ng, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
                     void *user)
{
    struct ltn_grpc_client *c = user;
    (void)ng;
    (void)flags;
    if (frame->hd.stream_id != c->stream || c->fields == NULL) {
        return 0;
    }
    int rc = ltn_head_add(c->fields, (const char *)name, name_len, (const char *)value, value_len);
    return rc == 0 ? 0 : NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
}

static int on_data_chunk(nghttp2_session *ng, uint8_t flags, int32_t id, const uint8_t *p, size_t n,
                         void *user)
{
    struct ltn_grpc_client *c = user;
    (void)flags;
    if (id != c->stream || c->body_rc != 0) {
        return 0;
    }
    if (c->live != NULL) {
        ltn_client_stream_data(c->live, p, n);
        return 0;
    }
    size_t used = 0;
    if (c->message_complete) {
        c->body_rc = n > 0 ? LTN_ERR_MALFORMED : 0;
    } else {
        int rc = ltn_grpc_frame_feed(&c->frame, p, n, &used);
        c->message_complete = rc == 1;
        c->body_rc = rc < 0 ? rc : used < n ? LTN_ERR_MALFORMED : 0;
    }
    if (c->body_rc != 0) {
        (void)nghttp2_submit_rst_stream(ng, NGHTTP2_FLAG_NONE, id, NGHTTP2_CANCEL);
    }
    return 0;
}

static int on_stream_close(nghttp2_session *ng, int32_t id, uint32_t code, void *user)
{
    struct ltn_grpc_client *c = user;
    (void)ng;
    if (id == c->stream) {
        c->closed = true;
        c->close_code = code;
    }
    return 0;
}

static int on_frame_recv(nghttp2_session *ng, const nghttp2_frame *frame, void *user)
{
    struct ltn_grpc_client *c = user;
    (void)ng;
    if (frame->hd.type == NGHTTP2_GOAWAY) {
        c->goaway = true;
    }
    return 0;
}

static int on_frame_send(nghttp2_session *ng, const nghttp2_frame *frame, void *user)
{
    struct ltn_grpc_client *c = user;
    (void)ng;
    if (frame->hd.type == NGHTTP2_HEADERS && frame->hd.stream_id == c->stream) {
        c->head_sent = true;
    }
    return 0;
}

static ssize_t read_request(nghttp2_session *ng, int32_t id, uint8_t *dst, size_t room,
                            uint32_t *flags, nghttp2_data_source *source, void *user)
{
    struct ltn_grpc_client *c = user;
    size_t done = 0;
    (void)ng;
    (void)id;
    (void)source;
    while (done < room && c->prefix_pos < LTN_GRPC_PREFIX_BYTES) {
        dst[done++] = c->prefix[c->prefix_pos++];
    }
    size_t part = c->body_len - c->body_pos;
    part = part < room - done ? part : room - done;
    if (part > 0) {
        memcpy(dst + done, c->body + c->body_pos, part);
        c->body_pos += part;
        done += part;
    }
    if (c->prefix_pos == LTN_GRPC_PREFIX_BYTES && c->body_pos == c->body_len) {
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    }
    return (ssize_t)done;
}

static int open_session(struct ltn_grpc_client *c)
{
    nghttp2_session_callbacks *cb = NULL;
    if (nghttp2_session_callbacks_new(&cb) != 0) {
        return -ENOMEM;
    }
    nghttp2_session_callbacks_set_on_header_callback(cb, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, on_data_chunk);
    nghttp2_session_callbacks_set_on_stream_close_callback(cb, on_stream_close);
    nghttp2_session_callbacks_set_on_frame_recv_callback(cb, on_frame_recv);
    nghttp2_session_callbacks_set_on_frame_send_callback(cb, on_frame_send);
    int rc = nghttp2_session_client_new(&c->ng, cb, c);
    nghttp2_session_callbacks_del(cb);
    if (rc != 0) {
        return -ENOMEM;
    }
    const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_ENABLE_PUSH, 0},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, WINDOW_BYTES},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, MAX_HEADER_BYTES},
    };
    rc = nghttp2_submit_settings(c->ng, NGHTTP2_FLAG_NONE, settings, LTN_ARRAY_SIZE(settings));
    return rc == 0 ? 0 : -ENOMEM;
}

/* ---- connecting ---- */

#define CUT_LOOK_MS 100

static int left_ms(uint64_t deadline_ns)
{
    uint64_t now_ns = ltn_now_mono_ns();
    if (now_ns >= deadline_ns) {
        return 0;
    }
    uint64_t ms = (deadline_ns - now_ns + LTN_NS_PER_MS - 1) / LTN_NS_PER_MS;
    return ms < 3600000 ? (int)ms : 3600000;
}

/* Waits for events until the deadline or the call's cut. 1, 0 on timeout. */
int ltn_client_wait(const struct ltn_grpc_client *c, int fd, short events, uint64_t deadline_ns)
{
    for (;;) {
        struct pollfd p = {.fd = fd, .events = events};
        uint64_t cut_ns = c->cut_ns != NULL ? atomic_load(c->cut_ns) : 0;
        int ms = left_ms(cut_ns != 0 && cut_ns < deadline_ns ? cut_ns : deadline_ns);
        bool last = c->cut_ns == NULL || ms <= CUT_LOOK_MS;
        int n = poll(&p, 1, last ? ms : CUT_LOOK_MS);
        if (n > 0) {
            return 1;
        }
        if ((n == 0 && last) || (n < 0 && errno != EINTR)) {
            return 0;
        }
    }
}

static int connect_one(const struct ltn_grpc_client *c, const struct addrinfo *ai,
                       uint64_t deadline_ns, int *ret_fd)
{
    int on = 1;
    int error = 0;
    socklen_t len = sizeof(error);
    int fd = socket(ai->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return -errno;
    }
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (connect(fd, ai->ai_addr, ai->ai_addrlen) != 0) {
        if (errno != EINPROGRESS) {
            error = errno;
        } else if (ltn_client_wait(c, fd, POLLOUT, deadline_ns) == 0) {
            error = ETIMEDOUT;
        } else if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) != 0) {
            error = errno;
        }
    }
    if (error != 0) {
        close(fd);
        return -error;
    }
    *ret_fd = fd;
    return 0;
}

int ltn_client_connect(struct ltn_grpc_client *c, uint64_t deadline_ns)
{
    uint64_t now_ns = ltn_now_mono_ns();
    uint64_t limit_ns = now_ns + c->connect_timeout_ns;
    struct addrinfo *list = NULL;
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    limit_ns = limit_ns < deadline_ns ? limit_ns : deadline_ns;
    int gai = getaddrinfo(c->host, c->port, &hints, &list);
    if (gai != 0) {
        (void)snprintf(c->reason, sizeof(c->reason), "cannot resolve %s: %s", c->host,
                       gai_strerror(gai));
        return LTN_ERR_UNAVAILABLE;
    }
    size_t left = 0;
    for (const struct addrinfo *ai = list; ai != NULL; ai = ai->ai_next) {
        left++;
    }
    int rc = -EADDRNOTAVAIL;
    for (const struct addrinfo *ai = list; ai != NULL && rc != 0; ai = ai->ai_next) {
        /* One address that swallows packets must not use up the time of the others. */
        now_ns = ltn_now_mono_ns();
        uint64_t share_ns = limit_ns > now_ns ? (limit_ns - now_ns) / left : 0;
        rc = connect_one(c, ai, now_ns + share_ns, &c->fd);
        left--;
    }
    freeaddrinfo(list);
    if (rc != 0) {
        (void)snprintf(c->reason, sizeof(c->reason), "cannot connect to %s port %s: %s", c->host,
                       c->port, ltn_err_str(rc));
        return ltn_now_mono_ns() >= deadline_ns ? LTN_ERR_TIMEOUT : LTN_ERR_UNAVAILABLE;
    }
    rc = ltn_client_handshake(c, limit_ns);
    if (rc != 0) {
        c->broken = true;
        return ltn_now_mono_ns() >= deadline_ns ? LTN_ERR_TIMEOUT : rc;
    }
    c->connected_ns = ltn_now_mono_ns();
    return open_session(c);
}

/* ---- moving bytes ---- */

void ltn_client_fail(struct ltn_grpc_client *c, const char *what, int error)
{
    c->broken = true;
    (void)snprintf(c->reason, sizeof(c->reason), "%s%s%s", what, error != 0 ? ": " : "",
                   error != 0 ? ltn_err_str(-error) : "");
}

/* Sends what the socket takes; true when more waits for it. */
bool ltn_client_send(struct ltn_grpc_client *c)
{
    while (!c->broken) {
        if (c->pending_len == 0) {
            ssize_t n = nghttp2_session_mem_send(c->ng, &c->pending);
            if (n < 0) {
                ltn_client_fail(c, nghttp2_strerror((int)n), 0);
                return false;
            }
            if (n == 0) {
                return false;
            }
            c->pending_len = (size_t)n;
        }
        ssize_t sent = ltn_client_write(c, c->pending, c->pending_len);
        if (sent == -EAGAIN) {
            return true;
        }
        if (sent < 0) {
            ltn_client_lost(c, "connection lost while sending", sent);
            return false;
        }
        c->pending += sent;
        c->pending_len -= (size_t)sent;
    }
    return false;
}

/* Reads and digests what is there. */
void ltn_client_receive(struct ltn_grpc_client *c)
{
    while (!c->broken) {
        ssize_t n = ltn_client_recv(c, c->scratch, sizeof(c->scratch));
        if (n == -EAGAIN) {
            return;
        }
        if (n < 0) {
            ltn_client_lost(c, "connection lost", n);
            return;
        }
        if (n == 0) {
            ltn_client_fail(c, "connection closed by the peer", 0);
            return;
        }
        c->heard = true;
        ssize_t used = nghttp2_session_mem_recv(c->ng, c->scratch, (size_t)n);
        if (used < 0) {
            ltn_client_fail(c, nghttp2_strerror((int)used), 0);
            return;
        }
        if (n < (ssize_t)sizeof(c->scratch)) {
            return;
        }
    }
}

/* True when the connection may carry another call. */
bool ltn_client_usable(struct ltn_grpc_client *c)
{
    if (c->fd < 0) {
        return false;
    }
    if (c->max_age_ns != 0 && ltn_now_mono_ns() - c->connected_ns > c->max_age_ns) {
        return false;
    }
    ltn_client_receive(c); /* a GOAWAY or an end that came since the last call */
    if (!c->broken) {
        (void)ltn_client_send(c);
    }
    return !c->broken && !c->goaway && nghttp2_session_check_request_allowed(c->ng) != 0;
}

/* ---- the call ---- */

nghttp2_nv ltn_client_nv(const char *name, const char *value)
{
    return (nghttp2_nv){
        .name = (uint8_t *)(uintptr_t)name,
        .value = (uint8_t *)(uintptr_t)value,
        .namelen = strlen(name),
        .valuelen = strlen(value),
        .flags = NGHTTP2_NV_FLAG_NONE,
    };
}

int ltn_client_reset(struct ltn_grpc_client *c)
{
    ltn_head_free(c->fields);
    c->fields = ltn_head_new(MAX_HEADER_BYTES, MAX_HEADERS);
    ltn_grpc_frame_reset(&c->frame);
    c->stream = -1;
    c->closed = false;
    c->close_code = 0;
    c->head_sent = false;
    c->heard = false;
    c->message_complete = false;
    c->body_rc = 0;
    c->prefix_pos = 0;
    c->body_pos = 0;
    return c->fields != NULL ? 0 : -ENOMEM;
}

static int submit(struct ltn_grpc_client *c, const struct ltn_grpc_call *call, uint64_t deadline_ns)
{
    nghttp2_nv nv[12 + MAX_METADATA];
    size_t n = 0;
    char timeout[16];
    uint64_t now_ns = ltn_now_mono_ns();
    if (now_ns >= deadline_ns) {
        return LTN_ERR_TIMEOUT;
    }
    ltn_grpc_timeout_format(deadline_ns - now_ns, timeout);
    nv[n++] = ltn_client_nv(":method", "POST");
    nv[n++] = ltn_client_nv(":scheme", c->tls != NULL ? "https" : "http");
    nv[n++] = ltn_client_nv(":path", call->path);
    nv[n++] = ltn_client_nv(":authority", c->authority);
    nv[n++] = ltn_client_nv("te", "trailers");
    nv[n++] = ltn_client_nv("content-type", "application/grpc");
    nv[n++] = ltn_client_nv("user-agent", c->user_agent);
    nv[n++] = ltn_client_nv("grpc-timeout", timeout);
    if (c->gzip || c->zstd) {
        nv[n++] = ltn_client_nv("grpc-encoding", c->zstd ? "zstd" : "gzip");
    }
    if (c->authorization != NULL) {
        nv[n++] = ltn_client_nv("authorization", c->authorization);
        nv[n - 1].flags = NGHTTP2_NV_FLAG_NO_INDEX;
    }
    for (size_t i = 0; i < call->metadata_count && i < MAX_METADATA; i++) {
        nv[n++] = ltn_client_nv(call->metadata[i].name, call->metadata[i].value);
    }
    const nghttp2_data_provider provider = {.read_callback = read_request};
    c->stream = nghttp2_submit_request(c->ng, NULL, nv, n, &provider, NULL);
    return c->stream >= 0 ? 0 : LTN_ERR_UNAVAILABLE;
}

/* Runs the loop of one call until its stream has closed. 0, LTN_ERR_TIMEOUT, LTN_ERR_UNAVAILABLE.
 */
static int run(struct ltn_grpc_client *c, uint64_t deadline_ns)
{
    while (!c->closed) {
        bool more = ltn_client_send(c);
        if (c->broken || c->closed) {
            break;
        }
        if (nghttp2_session_want_read(c->ng) == 0 && nghttp2_session_want_write(c->ng) == 0) {
            ltn_client_fail(c, "connection ended by the peer", 0);
            break;
        }
        short events = (short)(POLLIN | (more ? POLLOUT : 0));
        if (ltn_client_wait(c, c->fd, events, deadline_ns) == 0) {
            return LTN_ERR_TIMEOUT;
        }
        ltn_client_receive(c);
    }
    if (c->closed) {
        return 0;
    }
    return LTN_ERR_UNAVAILABLE;
}

static int prepare_body(struct ltn_grpc_client *c, const struct ltn_grpc_call *call)
{
    c->body = call->body;
    c->body_len = call->body_len;
    bool zip = c->gzip || c->zstd;
    if (zip) {
        ltn_buf_reset(&c->zipped);
        int rc = c->zstd ? ltn_zstd(call->body, call->body_len, &c->zipped)
                         : ltn_gzip(call->body, call->body_len, &c->zipped);
        if (rc != 0) {
            return rc;
        }
        c->body = (const uint8_t *)c->zipped.data;
        c->body_len = c->zipped.len;
    }
    if (c->body_len > UINT32_MAX) {
        return LTN_ERR_TOO_LARGE;
    }
    ltn_grpc_prefix(c->prefix, zip, (uint32_t)c->body_len);
    return 0;
}

static int status_rc(int status, bool retry)
{
    switch (status) {
    case 0:
        return 0;
    case 3:
        return LTN_ERR_MALFORMED;
    case 4:
        return LTN_ERR_TIMEOUT;
    case 5:
        return LTN_ERR_NOT_FOUND;
    case 7:
        return LTN_ERR_FORBIDDEN;
    case 8:
        return retry ? LTN_ERR_QUOTA : LTN_ERR_TOO_LARGE;
    case 12:
        return LTN_ERR_UNSUPPORTED;
    case 14:
        return LTN_ERR_UNAVAILABLE;
    case 16:
        return LTN_ERR_UNAUTHENTICATED;
    default:
        return LTN_ERR_INTERNAL;
    }
}

/* gRPC status of an answer that carries none, by its HTTP status. */
static int status_of_http(int http)
{
    switch (http) {
    case 400:
        return LTN_GRPC_INTERNAL;
    case 401:
        return LTN_GRPC_UNAUTHENTICATED;
    case 403:
        return LTN_GRPC_PERMISSION_DENIED;
    case 404:
        return LTN_GRPC_UNIMPLEMENTED;
    case 413:
        return LTN_GRPC_RESOURCE_EXHAUSTED;
    case 429:
    case 502:
    case 503:
    case 504:
        return LTN_GRPC_UNAVAILABLE;
    default:
        return LTN_GRPC_UNKNOWN;
    }
}

static bool code_retryable(int status, bool has_hint)
{
    switch (status) {
    case 1:
    case 4:
    case 10:
    case 11:
    case 14:
    case 15:
        return true;
    case 8:
        return has_hint;
    default:
        return false;
    }
}

/* The server's wish, from whichever of the two trailers it sent. */
static bool retry_hint(const struct ltn_grpc_client *c, uint64_t *ret_ns)
{
    static const char *const names[] = {"grpc-status-details-bin", "google.rpc.retryinfo-bin"};
    for (size_t i = 0; i < LTN_ARRAY_SIZE(names); i++) {
        const char *text = ltn_head_get(c->fields, names[i]);
        struct ltn_buf bytes;
        bool found = false;
        if (text == NULL) {
            continue;
        }
        ltn_buf_init(&bytes, MAX_HEADER_BYTES);
        if (ltn_base64_decode(&bytes, text, strlen(text)) == 0) {
            const uint8_t *p = (const uint8_t *)ltn_buf_str(&bytes);
            found = i == 0 ? ltn_rpc_status_retry_parse(p, bytes.len, ret_ns)
                           : ltn_rpc_retry_info_parse(p, bytes.len, ret_ns);
        }
        ltn_buf_done(&bytes);
        if (found) {
            return true;
        }
    }
    return false;
}

static int local_failure(struct ltn_grpc_client *c, int rc, struct ltn_grpc_result *ret)
{
    ret->status = ltn_err_grpc(rc);
    ret->message = c->reason[0] != '\0' ? c->reason : ltn_err_str(rc);
    ret->retry = ltn_err_retryable(rc);
    ret->sent = c->head_sent;
    return rc;
}

/* The stream was cut off before a status came. */
static int cut_off(struct ltn_grpc_client *c, struct ltn_grpc_result *ret)
{
    (void)snprintf(c->reason, sizeof(c->reason), "call cut off by the peer: %s",
                   nghttp2_http2_strerror(c->close_code));
    int rc = local_failure(c, LTN_ERR_UNAVAILABLE, ret);
    ret->sent = c->head_sent && c->close_code != NGHTTP2_REFUSED_STREAM;
    return rc;
}

static int read_answer(struct ltn_grpc_client *c, struct ltn_grpc_result *ret)
{
    const char *http = ltn_head_get(c->fields, ":status");
    const char *status = ltn_head_get(c->fields, "grpc-status");
    const char *message = ltn_head_get(c->fields, "grpc-message");
    uint64_t value = 0;
    ret->sent = true;
    if (c->body_rc != 0) {
        c->reason[0] = '\0';
        return local_failure(c, c->body_rc, ret);
    }
    if (status == NULL && (http == NULL || c->close_code != NGHTTP2_NO_ERROR)) {
        return cut_off(c, ret);
    }
    if (status != NULL) {
        ret->status = ltn_parse_u64(status, &value) && value <= 16 ? (int)value : LTN_GRPC_UNKNOWN;
    } else {
        ret->status = status_of_http(ltn_parse_u64(http, &value) && value < 1000 ? (int)value : 0);
        (void)snprintf(c->reason, sizeof(c->reason), "no grpc-status; HTTP status %s", http);
        ret->message = c->reason;
    }
    if (message != NULL) {
        ltn_buf_reset(&c->message);
        (void)ltn_grpc_message_decode(&c->message, message);
        ret->message = ltn_buf_str(&c->message);
    }
    bool hint = retry_hint(c, &ret->retry_after_ns);
    ret->retry = code_retryable(ret->status, hint);
    if (ret->status != 0) {
        return status_rc(ret->status, ret->retry);
    }
    if (!c->message_complete || c->frame.compressed) {
        (void)snprintf(c->reason, sizeof(c->reason), "%s",
                       c->message_complete ? "compressed response not asked for"
                                           : "response without a message");
        return local_failure(c, LTN_ERR_MALFORMED, ret);
    }
    ret->body = (const uint8_t *)ltn_buf_str(&c->frame.message);
    ret->body_len = c->frame.message.len;
    return 0;
}

/* One attempt. *ret_again: it failed before a handler could see it, on a connection kept from an
 * earlier call. */
static int attempt(struct ltn_grpc_client *c, const struct ltn_grpc_call *call,
                   uint64_t deadline_ns, struct ltn_grpc_result *ret, bool *ret_again)
{
    bool reused = ltn_client_usable(c);
    *ret_again = false;
    *ret = (struct ltn_grpc_result){.message = ""};
    int rc = ltn_client_reset(c);
    c->reason[0] = '\0';
    if (rc == 0 && !reused) {
        ltn_grpc_client_disconnect(c);
        rc = ltn_client_connect(c, deadline_ns);
    }
    if (rc == 0) {
        rc = submit(c, call, deadline_ns);
    }
    if (rc == 0) {
        rc = run(c, deadline_ns);
    }
    if (rc == 0) {
        rc = read_answer(c, ret);
        *ret_again = reused && rc == LTN_ERR_UNAVAILABLE && !ret->sent;
    } else {
        /* On a kept connection that breaks without a word, the peer had closed it before. */
        *ret_again = reused && rc == LTN_ERR_UNAVAILABLE && !c->heard;
        rc = local_failure(c, rc, ret);
    }
    if (rc == LTN_ERR_TIMEOUT && c->ng != NULL && !c->closed && c->stream > 0 && c->heard) {
        /* The peer is alive, only slow: take the call back and keep the connection. */
        (void)nghttp2_submit_rst_stream(c->ng, NGHTTP2_FLAG_NONE, c->stream, NGHTTP2_CANCEL);
        (void)ltn_client_send(c);
    } else if (c->ng != NULL && !c->closed) {
        c->broken = true;
    }
    c->stream = -1;
    if (c->broken || c->goaway) {
        ltn_grpc_client_disconnect(c);
    }
    return rc;
}

int ltn_grpc_client_call(struct ltn_grpc_client *c, const struct ltn_grpc_call *call,
                         struct ltn_grpc_result *ret)
{
    uint64_t deadline_ns = ltn_now_mono_ns() + call->timeout_ns;
    *ret = (struct ltn_grpc_result){.message = ""};
    int rc = prepare_body(c, call);
    c->cut_ns = call->cut_ns;
    c->reason[0] = '\0';
    c->head_sent = false;
    if (rc != 0) {
        return local_failure(c, rc, ret);
    }
    bool again = false;
    rc = attempt(c, call, deadline_ns, ret, &again);
    if (again) {
        ltn_grpc_client_disconnect(c);
        rc = attempt(c, call, deadline_ns, ret, &again);
    }
    return rc;
}

const char *ltn_grpc_client_metadata(const struct ltn_grpc_client *c, const char *name)
{
    return c->fields != NULL ? ltn_head_get(c->fields, name) : NULL;
}
