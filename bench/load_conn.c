/* SPDX-License-Identifier: Apache-2.0 */
#include "load_conn.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <nghttp2/nghttp2.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <unistd.h>

#define FRAME_HEAD       9
#define OUT_BYTES        ((size_t)1 << 20)
#define OUT_LOW          ((size_t)192 << 10) /* no further request begins above */
#define IN_BYTES         ((size_t)128 << 10)
#define HEAD_BYTES       1024
#define DEFAULT_WINDOW   65535
#define OWN_WINDOW       (1 << 30)
#define MAX_HEADERS      12
#define FIRST_DYNAMIC    62
#define REPLY_KEEP_BYTES 64

#define GRPC_UNAVAILABLE 14
#define GRPC_EXHAUSTED   8

struct stream {
    struct load_reply r;
    uint32_t id; /* 0: free */
    int64_t window;
    int http_status;
    int grpc_status; /* -1: not said */
    uint8_t body[REPLY_KEEP_BYTES];
    size_t body_len;
    /* what is still to be sent */
    const struct load_body *left; /* NULL: nothing */
    bool held;                    /* by its window; else in the connection's queue */
    size_t at, patch;
    uint64_t time_ns, round;
    TAILQ_ENTRY(stream) entry;
};

struct load_conn {
    const struct load_target *t;
    const struct load_set *set;
    void (*on_reply)(void *arg, const struct load_reply *r);
    void *arg;
    int fd;
    SSL *ssl;     /* NULL: cleartext */
    bool blocked; /* the socket takes no more now */
    bool going;   /* the peer said goodbye */
    uint8_t *out;
    size_t out_len, out_pos;
    uint8_t *in;
    size_t in_len;
    uint64_t sent;
    uint32_t in_flight;
    /* HTTP/2 */
    nghttp2_hd_inflater *inflater;
    int64_t window;
    int64_t stream_window;
    uint32_t max_streams;
    uint32_t next_id;
    struct stream *streams;
    uint32_t mask;
    uint8_t heads[2][HEAD_BYTES]; /* of the first request, of all others */
    size_t head_len[2];
    uint8_t block[16384]; /* header block of a reply under way */
    size_t block_len;
    bool block_end;
    TAILQ_HEAD(, stream) sending; /* one after the other; the windows of others are shut */
};

/* ---- header blocks ---- */

static size_t put_literal(uint8_t *p, unsigned static_index, const char *name, const char *value)
{
    size_t n = 0, value_n = strlen(value);
    if (value_n > 126)
        load_fail("header too long");
    p[n++] = (uint8_t)(0x40 | static_index);
    if (static_index == 0) {
        p[n++] = (uint8_t)strlen(name);
        memcpy(p + n, name, strlen(name));
        n += strlen(name);
    }
    p[n++] = (uint8_t)value_n;
    memcpy(p + n, value, value_n);
    return n + value_n;
}

static const char *coding_name(enum load_coding c)
{
    return c == LOAD_GZIP ? "gzip" : "zstd";
}

/* The first request puts all its fields into the peer's table, the others point at them. */
static void make_heads(struct load_conn *c)
{
    const struct load_target *t = c->t;
    char authority[64], bearer[120];
    struct {
        unsigned index;
        const char *name, *value;
    } h[MAX_HEADERS];
    size_t n = 0;
    (void)snprintf(authority, sizeof(authority), "%s:%u", t->host, t->port);
    h[n].index = 4, h[n].name = ":path", h[n++].value = t->path;
    h[n].index = 1, h[n].name = ":authority", h[n++].value = authority;
    h[n].index = 31, h[n].name = "content-type";
    h[n++].value = t->grpc   ? "application/grpc"
                   : t->json ? "application/json"
                             : "application/x-protobuf";
    h[n].index = 58, h[n].name = "user-agent", h[n++].value = "lanterne-bench/1";
    if (t->grpc) {
        h[n].index = 0, h[n].name = "te", h[n++].value = "trailers";
        h[n].index = 0, h[n].name = "grpc-timeout", h[n++].value = "10S";
    }
    if (t->coding != LOAD_IDENTITY) {
        h[n].index = t->grpc ? 0 : 26, h[n].name = "grpc-encoding";
        h[n++].value = coding_name(t->coding);
    }
    if (t->token != NULL) {
        (void)snprintf(bearer, sizeof(bearer), "Bearer %s", t->token);
        h[n].index = 23, h[n].name = "authorization", h[n++].value = bearer;
    }
    for (int k = 0; k < 2; k++) { /* :method POST and :scheme stand in the static table */
        c->heads[k][0] = 0x83;
        c->heads[k][1] = t->tls ? 0x87 : 0x86;
        c->head_len[k] = 2;
    }
    for (size_t i = 0; i < n; i++) {
        c->head_len[0] +=
            put_literal(c->heads[0] + c->head_len[0], h[i].index, h[i].name, h[i].value);
        c->heads[1][c->head_len[1]++] = (uint8_t)(0x80 | (FIRST_DYNAMIC + (n - 1 - i)));
    }
}

/* ---- output ---- */

static uint8_t *out_room(struct load_conn *c, size_t n)
{
    if (c->out_len + n > OUT_BYTES) {
        memmove(c->out, c->out + c->out_pos, c->out_len - c->out_pos);
        c->out_len -= c->out_pos;
        c->out_pos = 0;
    }
    return c->out_len + n <= OUT_BYTES ? c->out + c->out_len : NULL;
}

static void put_frame_head(uint8_t *p, size_t n, uint8_t type, uint8_t flags, uint32_t id)
{
    p[0] = (uint8_t)(n >> 16);
    p[1] = (uint8_t)(n >> 8);
    p[2] = (uint8_t)n;
    p[3] = type;
    p[4] = flags;
    id = htonl(id);
    memcpy(p + 5, &id, sizeof(id));
}

static void put_frame(struct load_conn *c, uint8_t type, uint8_t flags, uint32_t id,
                      const void *payload, size_t n)
{
    uint8_t *p = out_room(c, FRAME_HEAD + n);
    if (p == NULL)
        load_fail("output buffer full");
    put_frame_head(p, n, type, flags, id);
    if (n > 0)
        memcpy(p + FRAME_HEAD, payload, n);
    c->out_len += FRAME_HEAD + n;
}

/* The stream has nothing more to send. */
static void sent_all(struct load_conn *c, struct stream *s)
{
    if (s->left != NULL && !s->held)
        TAILQ_REMOVE(&c->sending, s, entry);
    s->left = NULL;
}

enum put { PUT, PUT_HELD, PUT_FULL };

/* One frame of the stream's body. */
static enum put put_piece(struct load_conn *c, struct stream *s)
{
    const struct load_body *b = s->left;
    int64_t room = s->window < LOAD_FRAME_BYTES ? s->window : LOAD_FRAME_BYTES;
    size_t end = room > 0 ? load_body_piece(c->set, b, s->at, (size_t)room, s->patch) : s->at;
    size_t n = end - s->at;
    if (n == 0)
        return PUT_HELD;
    uint8_t *p = (int64_t)n <= c->window ? out_room(c, FRAME_HEAD + n) : NULL;
    if (p == NULL)
        return PUT_FULL;
    put_frame_head(p, n, NGHTTP2_DATA, end == b->len ? NGHTTP2_FLAG_END_STREAM : 0, s->id);
    memcpy(p + FRAME_HEAD, b->data + s->at, n);
    load_body_patch(c->set, b, p + FRAME_HEAD, s->at, end, &s->patch, s->time_ns, s->round);
    c->out_len += FRAME_HEAD + n;
    c->window -= (int64_t)n;
    s->window -= (int64_t)n;
    s->at = end;
    return PUT;
}

/* Writes frames of the requests under way while windows and buffer let it. */
static void put_bodies(struct load_conn *c)
{
    struct stream *s;
    while ((s = TAILQ_FIRST(&c->sending)) != NULL) {
        switch (put_piece(c, s)) {
        case PUT:
            if (s->at == s->left->len)
                sent_all(c, s);
            break;
        case PUT_HELD:
            TAILQ_REMOVE(&c->sending, s, entry);
            s->held = true;
            break;
        case PUT_FULL:
            return;
        }
    }
}

/* The stream's window has grown. */
static void widen(struct load_conn *c, struct stream *s, int64_t by)
{
    s->window += by;
    if (s->held && s->left != NULL && s->window > 0) {
        s->held = false;
        TAILQ_INSERT_TAIL(&c->sending, s, entry);
    }
}

static struct stream *stream_of(struct load_conn *c, uint32_t id)
{
    struct stream *s = &c->streams[(id / 2) & c->mask];
    return s->id == id && id != 0 ? s : NULL;
}

bool load_conn_ready(const struct load_conn *c)
{
    if (c->fd < 0 || c->going || c->out_len - c->out_pos > OUT_LOW || !TAILQ_EMPTY(&c->sending))
        return false;
    if (!c->t->http2)
        return c->in_flight == 0;
    return c->in_flight < c->max_streams && c->streams[(c->next_id / 2) & c->mask].id == 0;
}

static void begin_http1(struct load_conn *c, const struct load_body *b, uint64_t time_ns,
                        uint64_t round)
{
    char head[512];
    const struct load_target *t = c->t;
    size_t patch = 0;
    int n =
        snprintf(head, sizeof(head),
                 "POST %s HTTP/1.1\r\nHost: %s:%u\r\nUser-Agent: lanterne-bench/1\r\n"
                 "Content-Type: %s\r\nContent-Length: %zu\r\n%s%s%s\r\n",
                 t->path, t->host, t->port, t->json ? "application/json" : "application/x-protobuf",
                 b->len, t->coding != LOAD_IDENTITY ? "Content-Encoding: " : "",
                 t->coding != LOAD_IDENTITY ? coding_name(t->coding) : "",
                 t->coding != LOAD_IDENTITY ? "\r\n" : "");
    uint8_t *p = out_room(c, (size_t)n + b->len);
    if (p == NULL)
        load_fail("request too large for HTTP/1.1 here");
    memcpy(p, head, (size_t)n);
    memcpy(p + n, b->data, b->len);
    load_body_patch(c->set, b, p + n, 0, b->len, &patch, time_ns, round);
    c->out_len += (size_t)n + b->len;
}

void load_conn_begin(struct load_conn *c, const struct load_body *b, uint64_t time_ns,
                     uint64_t round, uint64_t due_ns)
{
    uint32_t id = c->t->http2 ? c->next_id : 1;
    struct stream *s = &c->streams[(id / 2) & c->mask];
    *s = (struct stream){.id = id, .window = c->stream_window, .grpc_status = -1};
    s->r = (struct load_reply){.due_ns = due_ns, .points = b->points};
    c->in_flight++;
    if (!c->t->http2) {
        begin_http1(c, b, time_ns, round);
        return;
    }
    int k = id == 1 ? 0 : 1;
    put_frame(c, NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS, id, c->heads[k], c->head_len[k]);
    c->next_id += 2;
    s->left = b;
    s->time_ns = time_ns;
    s->round = round;
    TAILQ_INSERT_TAIL(&c->sending, s, entry);
    put_bodies(c);
}

/* Bytes sent, -EAGAIN, or another negative number when the connection is gone. */
static ssize_t send_some(struct load_conn *c, const uint8_t *p, size_t n)
{
    if (c->ssl == NULL) {
        ssize_t sent = send(c->fd, p, n, MSG_NOSIGNAL);
        return sent < 0 ? -errno : sent;
    }
    int sent = SSL_write(c->ssl, p, (int)n);
    if (sent > 0)
        return sent;
    int e = SSL_get_error(c->ssl, sent);
    return e == SSL_ERROR_WANT_WRITE || e == SSL_ERROR_WANT_READ ? -EAGAIN : -EPIPE;
}

/* The same for reading; 0 at the end. */
static ssize_t read_some(struct load_conn *c, uint8_t *p, size_t n)
{
    if (c->ssl == NULL) {
        ssize_t got = recv(c->fd, p, n, 0);
        return got < 0 ? -errno : got;
    }
    int got = SSL_read(c->ssl, p, (int)n);
    if (got > 0)
        return got;
    int e = SSL_get_error(c->ssl, got);
    if (e == SSL_ERROR_WANT_WRITE || e == SSL_ERROR_WANT_READ)
        return -EAGAIN;
    return e == SSL_ERROR_ZERO_RETURN ? 0 : -EPIPE;
}

bool load_conn_flush(struct load_conn *c)
{
    put_bodies(c);
    c->blocked = false;
    while (c->fd >= 0 && c->out_pos < c->out_len) {
        ssize_t n = send_some(c, c->out + c->out_pos, c->out_len - c->out_pos);
        if (n == -EAGAIN) {
            c->blocked = true;
            return true;
        }
        if (n <= 0)
            return false;
        c->out_pos += (size_t)n;
        c->sent += (uint64_t)n;
    }
    c->out_pos = c->out_len = 0;
    return c->fd >= 0;
}

bool load_conn_wants_write(const struct load_conn *c)
{
    return c->blocked;
}

uint32_t load_conn_in_flight(const struct load_conn *c)
{
    return c->in_flight;
}

uint64_t load_conn_sent_bytes(const struct load_conn *c)
{
    return c->sent;
}

int load_conn_fd(const struct load_conn *c)
{
    return c->fd;
}

/* ---- replies ---- */

static bool varint(const uint8_t **p, const uint8_t *end, uint64_t *ret)
{
    uint64_t v = 0;
    for (unsigned shift = 0; *p < end && shift < 64; shift += 7) {
        uint8_t b = *(*p)++;
        v |= (uint64_t)(b & 0x7f) << shift;
        if ((b & 0x80) == 0) {
            *ret = v;
            return true;
        }
    }
    return false;
}

/* Field 1 of field 1 of an answer: partial_success.rejected_data_points. */
static uint64_t rejected_points(const uint8_t *p, size_t n)
{
    const uint8_t *end = p + n;
    uint64_t inner = 0, v = 0;
    if (n < 2 || *p++ != 0x0a || !varint(&p, end, &inner) || p >= end || *p++ != 0x08)
        return 0;
    return varint(&p, end, &v) ? v : 0;
}

static void judge(struct load_conn *c, struct stream *s)
{
    struct load_reply *r = &s->r;
    r->status = s->http_status;
    if (c->t->grpc && s->http_status == 200) {
        r->status = s->grpc_status;
        r->ok = s->grpc_status == 0;
        r->retry = s->grpc_status == GRPC_UNAVAILABLE || s->grpc_status == GRPC_EXHAUSTED;
    } else {
        r->ok = s->http_status == 200;
        r->retry = s->http_status == 429 || (s->http_status >= 502 && s->http_status <= 504);
    }
    size_t prefix = c->t->grpc ? 5 : 0;
    if (r->ok && !c->t->json && s->body_len > prefix)
        r->rejected = rejected_points(s->body + prefix, s->body_len - prefix);
    sent_all(c, s);
    s->id = 0;
    c->in_flight--;
    c->on_reply(c->arg, r);
}

/* The reply is whole. Where not all was sent, the rest is taken back, as other clients do. */
static void end_of(struct load_conn *c, struct stream *s)
{
    static const uint8_t no_error[4];
    if (s->left != NULL)
        put_frame(c, NGHTTP2_RST_STREAM, 0, s->id, no_error, sizeof(no_error));
    judge(c, s);
}

static void one_header(struct stream *s, const uint8_t *name, size_t n, const uint8_t *value,
                       size_t value_n)
{
    static const char *const hints[] = {"retry-after", "grpc-retry-pushback-ms",
                                        "grpc-status-details-bin", "google.rpc.retryinfo-bin"};
    char text[16] = "";
    memcpy(text, value, value_n < sizeof(text) ? value_n : sizeof(text) - 1);
    if (n == 7 && memcmp(name, ":status", 7) == 0)
        s->http_status = (int)strtol(text, NULL, 10);
    else if (n == 11 && memcmp(name, "grpc-status", 11) == 0)
        s->grpc_status = (int)strtol(text, NULL, 10);
    for (size_t i = 0; i < sizeof(hints) / sizeof(*hints); i++)
        if (n == strlen(hints[i]) && memcmp(name, hints[i], n) == 0)
            s->r.hint = true;
}

static bool inflate_block(struct load_conn *c, struct stream *s)
{
    uint8_t *p = c->block;
    size_t left = c->block_len;
    for (;;) {
        nghttp2_nv nv;
        int flags = 0;
        ssize_t n = nghttp2_hd_inflate_hd2(c->inflater, &nv, &flags, p, left, 1);
        if (n < 0)
            return false;
        p += n;
        left -= (size_t)n;
        if ((flags & NGHTTP2_HD_INFLATE_EMIT) != 0 && s != NULL)
            one_header(s, nv.name, nv.namelen, nv.value, nv.valuelen);
        if ((flags & NGHTTP2_HD_INFLATE_FINAL) != 0)
            break;
        if ((flags & NGHTTP2_HD_INFLATE_EMIT) == 0 && left == 0)
            return false;
    }
    (void)nghttp2_hd_inflate_end_headers(c->inflater);
    c->block_len = 0;
    return true;
}

static bool on_headers(struct load_conn *c, uint8_t type, uint8_t flags, uint32_t id,
                       const uint8_t *p, size_t n)
{
    if (type == NGHTTP2_HEADERS) {
        c->block_end = (flags & NGHTTP2_FLAG_END_STREAM) != 0;
        if ((flags & NGHTTP2_FLAG_PADDED) != 0)
            return false;
        if ((flags & NGHTTP2_FLAG_PRIORITY) != 0) {
            if (n < 5)
                return false;
            p += 5;
            n -= 5;
        }
    }
    if (c->block_len + n > sizeof(c->block))
        return false;
    memcpy(c->block + c->block_len, p, n);
    c->block_len += n;
    if ((flags & NGHTTP2_FLAG_END_HEADERS) == 0)
        return true;
    struct stream *s = stream_of(c, id);
    if (!inflate_block(c, s))
        return false;
    if (s != NULL && c->block_end)
        end_of(c, s);
    return true;
}

static uint32_t read_u32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof(v));
    return ntohl(v);
}

static void on_settings(struct load_conn *c, const uint8_t *p, size_t n)
{
    for (; n >= 6; p += 6, n -= 6) {
        unsigned key = (unsigned)p[0] << 8 | p[1];
        uint32_t v = read_u32(p + 2);
        if (key == NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE) {
            for (uint32_t i = 0; i <= c->mask; i++)
                widen(c, &c->streams[i], (int64_t)v - c->stream_window);
            c->stream_window = v;
        } else if (key == NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS) {
            c->max_streams = v < c->t->streams ? v : c->t->streams;
        }
    }
    put_frame(c, NGHTTP2_SETTINGS, NGHTTP2_FLAG_ACK, 0, NULL, 0);
}

static void on_window(struct load_conn *c, uint32_t id, const uint8_t *p)
{
    struct stream *s = stream_of(c, id);
    if (id == 0)
        c->window += read_u32(p) & 0x7fffffff;
    else if (s != NULL)
        widen(c, s, read_u32(p) & 0x7fffffff);
}

/* A stream that ended without an answer. */
static void on_reset(struct load_conn *c, uint32_t id, uint32_t code)
{
    struct stream *s = stream_of(c, id);
    if (s == NULL)
        return; /* behind an answer that came early */
    s->http_status = code == NGHTTP2_REFUSED_STREAM ? 503 : 0;
    judge(c, s);
}

static bool on_frame(struct load_conn *c, uint8_t type, uint8_t flags, uint32_t id,
                     const uint8_t *p, size_t n)
{
    struct stream *s;
    switch (type) {
    case NGHTTP2_HEADERS:
    case NGHTTP2_CONTINUATION:
        return on_headers(c, type, flags, id, p, n);
    case NGHTTP2_DATA:
        s = stream_of(c, id);
        if (s == NULL)
            return true;
        for (size_t i = 0; i < n && s->body_len < sizeof(s->body); i++)
            s->body[s->body_len++] = p[i];
        if ((flags & NGHTTP2_FLAG_END_STREAM) != 0)
            end_of(c, s);
        return true;
    case NGHTTP2_SETTINGS:
        if ((flags & NGHTTP2_FLAG_ACK) == 0)
            on_settings(c, p, n);
        return true;
    case NGHTTP2_WINDOW_UPDATE:
        if (n == 4)
            on_window(c, id, p);
        return n == 4;
    case NGHTTP2_PING:
        if ((flags & NGHTTP2_FLAG_ACK) == 0)
            put_frame(c, NGHTTP2_PING, NGHTTP2_FLAG_ACK, 0, p, n);
        return true;
    case NGHTTP2_RST_STREAM:
        if (n == 4)
            on_reset(c, id, read_u32(p));
        return n == 4;
    case NGHTTP2_GOAWAY:
        c->going = true;
        return true;
    default:
        return true;
    }
}

static bool parse_http2(struct load_conn *c)
{
    size_t at = 0;
    while (c->in_len - at >= FRAME_HEAD) {
        const uint8_t *p = c->in + at;
        size_t n = (size_t)p[0] << 16 | (size_t)p[1] << 8 | p[2];
        if (n > LOAD_FRAME_BYTES)
            return false;
        if (c->in_len - at < FRAME_HEAD + n)
            break;
        if (!on_frame(c, p[3], p[4], read_u32(p + 5) & 0x7fffffff, p + FRAME_HEAD, n))
            return false;
        at += FRAME_HEAD + n;
    }
    memmove(c->in, c->in + at, c->in_len - at);
    c->in_len -= at;
    return true;
}

/* One reply at a time; its head ends with an empty line and says how long the body is. */
static bool parse_http1(struct load_conn *c)
{
    c->in[c->in_len] = '\0';
    char *text = (char *)c->in, *end = strstr(text, "\r\n\r\n");
    struct stream *s = &c->streams[0];
    if (end == NULL)
        return c->in_len < IN_BYTES - 1;
    if (strncmp(text, "HTTP/1.1 ", 9) != 0 || s->id == 0)
        return false;
    size_t body = 0, head = (size_t)(end - text) + 4;
    for (char *line = strstr(text, "\r\n"); line != NULL && line < end;
         line = strstr(line + 2, "\r\n")) {
        if (strncasecmp(line + 2, "content-length:", 15) == 0)
            body = strtoul(line + 17, NULL, 10);
        else if (strncasecmp(line + 2, "retry-after:", 12) == 0)
            s->r.hint = true;
    }
    if (head + body > IN_BYTES - 1)
        return false;
    if (c->in_len < head + body)
        return true;
    s->http_status = (int)strtol(text + 9, NULL, 10);
    s->body_len = body < sizeof(s->body) ? body : sizeof(s->body);
    memcpy(s->body, c->in + head, s->body_len);
    memmove(c->in, c->in + head + body, c->in_len - head - body);
    c->in_len -= head + body;
    judge(c, s);
    return true;
}

bool load_conn_read(struct load_conn *c)
{
    for (;;) {
        size_t room = IN_BYTES - 1 - c->in_len;
        ssize_t n = read_some(c, c->in + c->in_len, room);
        if (n <= 0)
            return n == -EAGAIN;
        c->in_len += (size_t)n;
        if (!(c->t->http2 ? parse_http2(c) : parse_http1(c)))
            return false;
        if (c->t->http2 && c->ssl == NULL && (size_t)n < room)
            return true; /* HTTP/1 servers close behind an answer: look for that too */
    }
}

/* ---- beginning and end ---- */

static int dial(const struct load_target *t)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(t->port)};
    int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    if (inet_pton(AF_INET, t->host, &a.sin_addr) != 1 ||
        connect(fd, (struct sockaddr *)&a, sizeof(a)) != 0) {
        close(fd);
        return -1;
    }
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    return fd;
}

static bool start_tls(struct load_conn *c)
{
    static const uint8_t h2[] = "\x02h2", http1[] = "\x08http/1.1";
    static SSL_CTX *ctx;
    if (ctx == NULL)
        ctx = SSL_CTX_new(TLS_client_method());
    c->ssl = ctx != NULL ? SSL_new(ctx) : NULL;
    if (c->ssl == NULL)
        load_fail("out of memory");
    (void)SSL_set_mode(c->ssl, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    if (c->t->http2)
        (void)SSL_set_alpn_protos(c->ssl, h2, sizeof(h2) - 1);
    else
        (void)SSL_set_alpn_protos(c->ssl, http1, sizeof(http1) - 1);
    return SSL_set_fd(c->ssl, c->fd) == 1 && SSL_connect(c->ssl) == 1;
}

static void start_http2(struct load_conn *c)
{
    static const uint8_t settings[] = {0, NGHTTP2_SETTINGS_ENABLE_PUSH, 0, 0, 0, 0};
    uint32_t more = htonl(OWN_WINDOW);
    memcpy(c->out, NGHTTP2_CLIENT_MAGIC, NGHTTP2_CLIENT_MAGIC_LEN);
    c->out_len = NGHTTP2_CLIENT_MAGIC_LEN;
    put_frame(c, NGHTTP2_SETTINGS, 0, 0, settings, sizeof(settings));
    put_frame(c, NGHTTP2_WINDOW_UPDATE, 0, 0, &more, sizeof(more));
    make_heads(c);
}

struct load_conn *load_conn_new(const struct load_target *t, const struct load_set *set,
                                void (*on_reply)(void *arg, const struct load_reply *r), void *arg)
{
    struct load_conn *c = calloc(1, sizeof(*c));
    if (c == NULL)
        load_fail("out of memory");
    c->t = t;
    c->set = set;
    c->on_reply = on_reply;
    c->arg = arg;
    c->out = malloc(OUT_BYTES);
    c->in = malloc(IN_BYTES);
    c->mask = 1;
    while (c->mask < 2 * t->streams)
        c->mask = 2 * c->mask + 1;
    c->streams = calloc(c->mask + 1, sizeof(*c->streams));
    if (c->out == NULL || c->in == NULL || c->streams == NULL ||
        nghttp2_hd_inflate_new(&c->inflater) != 0)
        load_fail("out of memory");
    TAILQ_INIT(&c->sending);
    c->window = c->stream_window = DEFAULT_WINDOW;
    c->max_streams = t->streams;
    c->next_id = 1;
    c->fd = dial(t);
    if (c->fd < 0 || (t->tls && !start_tls(c))) {
        load_conn_free(c);
        return NULL;
    }
    int flags = fcntl(c->fd, F_GETFL);
    (void)fcntl(c->fd, F_SETFL, flags | O_NONBLOCK);
    if (t->http2)
        start_http2(c);
    return c;
}

void load_conn_free(struct load_conn *c)
{
    if (c == NULL)
        return;
    SSL_free(c->ssl);
    if (c->fd >= 0)
        close(c->fd);
    nghttp2_hd_inflate_del(c->inflater);
    free(c->streams);
    free(c->in);
    free(c->out);
    free(c);
}
