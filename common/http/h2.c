/* SPDX-License-Identifier: Apache-2.0 */
#include "http/h2-internals.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/err.h"

#define FIELD_OVERHEAD     32
#define MAX_PADDING        256U
#define MAX_CONTINUATIONS  8
#define MAX_SETTINGS       32
#define MAX_OUTBOUND_ACK   200
#define HEADER_TABLE_BYTES 4096
#define TINY_DATA_BYTES    64U
#define HEADS_AT_ONCE      7 /* as many pieces of a size as allocators have at hand */
#define HEADER_EXCESS      8 /* times the limit, then the stream is cut without an answer */
#define TOO_MANY_PINGS     "too_many_pings" /* the word gRPC clients look for */
#define REFUND_PER_REPLY   32
#define REFUND_PER_DATA    4
#define SPARE_HEAD_BYTES   4096
#define PROGRESS_PER_REPLY 1024
#define STREAM_QUEUE_BYTES ((size_t)64 << 20) /* callers give a tighter bound */
#define ANSWERED_GRACE_NS  (500 * LTN_NS_PER_MS)

static const uint8_t drain_ping[8] = {'l', 't', 'n', 'd', 'r', 'a', 'i', 'n'};

static void flood(struct ltn_h2 *s)
{
    if (!s->flooded && !s->freeing) {
        s->flooded = true;
        (void)nghttp2_session_terminate_session(s->ng, NGHTTP2_ENHANCE_YOUR_CALM);
    }
}

static void nuisance(struct ltn_h2 *s)
{
    if (!ltn_bucket_take(&s->nuisance, 1, s->now_ns)) {
        flood(s);
    }
}

static void fault(struct ltn_h2 *s)
{
    if (!ltn_bucket_take(&s->faults, 1, s->now_ns)) {
        flood(s);
    }
}

static void reply_done(struct ltn_h2 *s, struct ltn_h2_stream *st)
{
    free(st->body);
    ltn_source_free(st->source);
    st->source = NULL;
    st->body = NULL;
    st->body_len = 0;
    if (st->replied) {
        st->replied = false;
        s->unsent_count--;
        s->progress += PROGRESS_PER_REPLY;
    }
}

/* ---- spares ---- */

static void keep_head(struct ltn_h2_spares *p, struct ltn_head *h)
{
    if (h == NULL || p->head != NULL || ltn_head_memory(h) > SPARE_HEAD_BYTES) {
        ltn_head_free(h);
        return;
    }
    ltn_head_reset(h);
    p->head = h;
}

static struct ltn_head *take_head(const struct ltn_h2_conf *conf)
{
    struct ltn_head *h = conf->spares->head;
    conf->spares->head = NULL;
    /* Four further entries: the pseudo header fields. */
    return h != NULL ? h : ltn_head_new(conf->max_header_bytes, conf->max_header_count + 4);
}

static void keep_stream(struct ltn_h2_spares *p, struct ltn_h2_stream *st)
{
    if (p->stream_count == LTN_H2_SPARE_STREAMS) {
        free(st);
        return;
    }
    st->next = p->streams;
    p->streams = st;
    p->stream_count++;
}

static struct ltn_h2_stream *take_stream(struct ltn_h2_spares *p)
{
    struct ltn_h2_stream *st = p->streams;
    if (st == NULL) {
        return calloc(1, sizeof(*st));
    }
    p->streams = st->next;
    p->stream_count--;
    *st = (struct ltn_h2_stream){0};
    return st;
}

void ltn_h2_spares_done(struct ltn_h2_spares *p)
{
    while (p->streams != NULL) {
        free(take_stream(p));
    }
    ltn_head_free(p->head);
    p->head = NULL;
}

/* ---- streams ---- */

static void stream_free(struct ltn_h2 *s, struct ltn_h2_stream *st)
{
    reply_done(s, st);
    s->answered_count -= st->answered_ns != 0 ? 1 : 0;
    if (st->prev != NULL) {
        st->prev->next = st->next;
    } else {
        s->streams = st->next;
    }
    if (st->next != NULL) {
        st->next->prev = st->prev;
    }
    s->stream_count--;
    ltn_arena_done(&st->trailer_arena);
    ltn_buf_done(&st->queue);
    keep_head(s->conf.spares, st->head);
    keep_stream(s->conf.spares, st);
}

static int on_begin_headers(nghttp2_session *ng, const nghttp2_frame *frame, void *user)
{
    struct ltn_h2 *s = user;
    s->in_head = true;
    if (frame->headers.cat != NGHTTP2_HCAT_REQUEST) {
        return 0;
    }
    struct ltn_h2_stream *st = take_stream(s->conf.spares);
    if (st == NULL) {
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    }
    st->head = take_head(&s->conf);
    if (st->head == NULL) {
        free(st);
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    }
    ltn_arena_init(&st->trailer_arena, LTN_ARENA_QUICK_BYTES, 16384);
    ltn_buf_init(&st->queue, STREAM_QUEUE_BYTES);
    st->id = frame->hd.stream_id;
    st->head->version = 20;
    st->next = s->streams;
    if (s->streams != NULL) {
        s->streams->prev = st;
    }
    s->streams = st;
    s->stream_count++;
    (void)nghttp2_session_set_stream_user_data(ng, st->id, st);
    return 0;
}

static bool is(const uint8_t *p, size_t n, const char *what)
{
    return n == strlen(what) && memcmp(p, what, n) == 0;
}

static int add_pseudo(struct ltn_head *h, const uint8_t *name, size_t n, const char *value,
                      size_t value_len)
{
    const char *text = ltn_head_text(h, value, value_len);
    if (text == NULL) {
        return h->too_large ? LTN_ERR_TOO_LARGE : -ENOMEM;
    }
    if (is(name, n, ":method")) {
        h->method = text;
    } else if (is(name, n, ":path")) {
        h->target = text;
    } else if (is(name, n, ":authority")) {
        h->authority = text;
    } else if (is(name, n, ":scheme")) {
        h->scheme = text;
    }
    return 0;
}

static int on_header(nghttp2_session *ng, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
                     void *user)
{
    struct ltn_h2 *s = user;
    struct ltn_h2_stream *st = ltn_h2_stream_of(s, frame->hd.stream_id);
    (void)ng;
    (void)flags;
    if (st == NULL) {
        return 0;
    }
    if (st->head == NULL) { /* trailers: nghttp2 judged them, nobody needs them */
        st->trailer_bytes += name_len + value_len + FIELD_OVERHEAD;
        return st->trailer_bytes > s->conf.max_header_bytes ? NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE
                                                            : 0;
    }
    struct ltn_head *h = st->head;
    int rc;
    if (name_len > 0 && name[0] == ':') {
        rc = add_pseudo(h, name, name_len, (const char *)value, value_len);
    } else {
        rc = ltn_head_add(h, (const char *)name, name_len, (const char *)value, value_len);
        if (rc == 0 && is(name, name_len, "content-length")) {
            h->has_length = ltn_parse_length((const char *)value, value_len, &h->content_length);
        }
    }
    if (rc == -ENOMEM || h->bytes > h->max_bytes * HEADER_EXCESS) {
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    }
    return 0; /* too_large stands in the head and is answered when it is complete */
}

static void head_complete(struct ltn_h2 *s, struct ltn_h2_stream *st, bool end)
{
    struct ltn_head *h = st->head;
    int32_t id = st->id;
    const char *expect = ltn_head_get(h, "expect");
    bool waits = !end && expect != NULL && strcasecmp(expect, "100-continue") == 0;
    st->head = NULL;
    st->head_seen = true;
    if (h->authority == NULL) {
        h->authority = ltn_head_get(h, "host");
    }
    if (s->sink.turns_away != NULL && s->sink.turns_away(s->arg, id, h)) {
        keep_head(s->conf.spares, h);
        return;
    }
    void *request = s->sink.head(s->arg, id, h, !end);
    st = ltn_h2_stream_of(s, id);
    if (st != NULL) {
        st->request = request;
        if (s->held_known && request != NULL && !end && !st->waits) {
            ltn_h2_let_body_in(s, id);
        }
        st->expects = waits && request != NULL && !st->done;
        if (st->expects && !st->waits) {
            ltn_h2_say_continue(s, id);
        }
    }
}

static void stream_end(struct ltn_h2 *s, int32_t id)
{
    struct ltn_h2_stream *st = ltn_h2_stream_of(s, id);
    if (st != NULL && st->request != NULL) {
        s->sink.end(s->arg, st->request);
    }
}

static void on_headers_frame(struct ltn_h2 *s, const nghttp2_frame *frame)
{
    struct ltn_h2_stream *st = ltn_h2_stream_of(s, frame->hd.stream_id);
    bool end = (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
    if (st != NULL && st->head != NULL) {
        head_complete(s, st, end);
    } else if (!end) {
        nuisance(s);
    }
    if (end) {
        stream_end(s, frame->hd.stream_id);
    }
}

static void on_data_frame(struct ltn_h2 *s, const nghttp2_frame *frame)
{
    if ((frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0) {
        stream_end(s, frame->hd.stream_id);
    }
}

/* Keepalive enforcement as gRPC has it: pings have their time, unless something is answered. */
static void judge_ping(struct ltn_h2 *s)
{
    nuisance(s);
    bool early = s->pinged_ns != 0 && s->now_ns - s->pinged_ns < s->conf.ping_interval_ns;
    s->pinged_ns = s->now_ns;
    if (early && s->strikes++ >= s->conf.ping_strikes && !s->flooded) {
        (void)nghttp2_submit_goaway(
            s->ng, NGHTTP2_FLAG_NONE, nghttp2_session_get_last_proc_stream_id(s->ng),
            NGHTTP2_ENHANCE_YOUR_CALM, (const uint8_t *)TOO_MANY_PINGS, sizeof(TOO_MANY_PINGS) - 1);
        flood(s);
    }
}

/* Taking back what is being worked on is what floods are made of. What was answered early, and that
 * answer sent, may be taken back: clients that had not sent all do so. */
static void judge_reset(struct ltn_h2 *s, int32_t id)
{
    const struct ltn_h2_stream *st = ltn_h2_stream_of(s, id);
    if (st == NULL || (st->done && !st->live && !st->replied)) {
        nuisance(s);
    } else if (!ltn_bucket_take(&s->resets, 1, s->now_ns)) {
        flood(s);
    }
}

static int on_frame_recv(nghttp2_session *ng, const nghttp2_frame *frame, void *user)
{
    struct ltn_h2 *s = user;
    (void)ng;
    s->in_head = false;
    switch (frame->hd.type) {
    case NGHTTP2_HEADERS:
        on_headers_frame(s, frame);
        break;
    case NGHTTP2_DATA:
        on_data_frame(s, frame);
        break;
    case NGHTTP2_RST_STREAM:
        judge_reset(s, frame->hd.stream_id);
        break;
    case NGHTTP2_PING:
        if ((frame->hd.flags & NGHTTP2_FLAG_ACK) == 0) {
            judge_ping(s);
        } else if (memcmp(frame->ping.opaque_data, drain_ping, sizeof(drain_ping)) == 0) {
            ltn_h2_drain_final(s);
        }
        break;
    case NGHTTP2_SETTINGS:
        if ((frame->hd.flags & NGHTTP2_FLAG_ACK) == 0) {
            nuisance(s);
        } else {
            ltn_h2_settings_known(s);
        }
        break;
    default: /* PRIORITY, WINDOW_UPDATE, GOAWAY */
        nuisance(s);
        break;
    }
    return 0;
}

static int on_data_chunk(nghttp2_session *ng, uint8_t flags, int32_t id, const uint8_t *p, size_t n,
                         void *user)
{
    struct ltn_h2 *s = user;
    struct ltn_h2_stream *st = ltn_h2_stream_of(s, id);
    (void)flags;
    if (st != NULL && st->request != NULL) {
        s->sink.data(s->arg, st->request, p, n);
    } else {
        /* Discarded; without credit for the stream, so that the rest stays where it is. */
        (void)nghttp2_session_consume_connection(ng, n);
    }
    return 0;
}

static int on_stream_close(nghttp2_session *ng, int32_t id, uint32_t code, void *user)
{
    struct ltn_h2 *s = user;
    struct ltn_h2_stream *st = ltn_h2_stream_of(s, id);
    (void)code;
    if (st == NULL) {
        return 0;
    }
    (void)nghttp2_session_set_stream_user_data(ng, id, NULL);
    void *request = st->request;
    if (st->head != NULL) {
        s->in_head = false; /* cut off inside its header block */
    }
    stream_free(s, st);
    if (request != NULL) {
        s->sink.closed(s->arg, request);
    }
    return 0;
}

static int on_invalid_frame(nghttp2_session *ng, const nghttp2_frame *frame, int error, void *user)
{
    (void)ng;
    (void)frame;
    (void)error;
    struct ltn_h2 *s = user;
    s->in_head = false;
    fault(s);
    return 0;
}

static int on_frame_send(nghttp2_session *ng, const nghttp2_frame *frame, void *user)
{
    struct ltn_h2 *s = user;
    switch (frame->hd.type) {
    case NGHTTP2_GOAWAY:
        s->failed = s->failed || (frame->goaway.error_code != NGHTTP2_NO_ERROR && !s->cut);
        return 0;
    case NGHTTP2_RST_STREAM:
        if (frame->rst_stream.error_code != NGHTTP2_NO_ERROR &&
            frame->rst_stream.error_code != NGHTTP2_CANCEL) {
            fault(s);
        }
        return 0;
    case NGHTTP2_HEADERS:
        ltn_bucket_refund(&s->nuisance, REFUND_PER_REPLY);
        break;
    case NGHTTP2_DATA:
        if (frame->hd.length > 0) {
            ltn_bucket_refund(&s->nuisance, REFUND_PER_DATA);
        }
        break;
    default:
        return 0;
    }
    s->strikes = 0;
    s->pinged_ns = 0;
    if ((frame->hd.flags & NGHTTP2_FLAG_END_STREAM) == 0) {
        return 0;
    }
    int32_t id = frame->hd.stream_id;
    struct ltn_h2_stream *st = ltn_h2_stream_of(s, id);
    if (st != NULL) {
        reply_done(s, st);
    }
    /* Answered before the request was whole: the peer need not send the rest. Some HTTP clients
     * lose the answer when the reset comes right behind it, so it waits a little. */
    if (nghttp2_session_get_stream_remote_close(ng, id) == 0) {
        if (st == NULL || st->reset_at_once) {
            (void)nghttp2_submit_rst_stream(ng, NGHTTP2_FLAG_NONE, id, NGHTTP2_NO_ERROR);
        } else {
            st->answered_ns = s->now_ns;
            s->answered_count++;
        }
    }
    return 0;
}

static int make_session(struct ltn_h2 *s)
{
    nghttp2_session_callbacks *cb = NULL;
    nghttp2_option *opt = NULL;
    int rc = -ENOMEM;
    if (nghttp2_session_callbacks_new(&cb) != 0 || nghttp2_option_new(&opt) != 0) {
        goto out;
    }
    nghttp2_session_callbacks_set_on_begin_headers_callback(cb, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(cb, on_header);
    nghttp2_session_callbacks_set_on_frame_recv_callback(cb, on_frame_recv);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, on_data_chunk);
    nghttp2_session_callbacks_set_on_stream_close_callback(cb, on_stream_close);
    nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(cb, on_invalid_frame);
    nghttp2_session_callbacks_set_on_frame_send_callback(cb, on_frame_send);
    nghttp2_option_set_no_auto_window_update(opt, 1);
    nghttp2_option_set_no_closed_streams(opt, 1);
    nghttp2_option_set_max_settings(opt, MAX_SETTINGS);
    nghttp2_option_set_max_outbound_ack(opt, MAX_OUTBOUND_ACK);
    /* Resets are judged here (judge_reset). The library would count those of answered streams, too,
     * and a client takes back every request that is refused before it was sent whole. */
    nghttp2_option_set_stream_reset_rate_limit(opt, UINT64_MAX, UINT64_MAX);
    nghttp2_option_set_max_continuations(opt, MAX_CONTINUATIONS);
    if (nghttp2_session_server_new2(&s->ng, cb, s, opt) == 0) {
        rc = 0;
    }
out:
    nghttp2_session_callbacks_del(cb);
    nghttp2_option_del(opt);
    return rc;
}

static int announce(struct ltn_h2 *s)
{
    nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, s->conf.max_streams},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, s->conf.stream_window_bytes},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, (uint32_t)s->conf.max_header_bytes},
        {NGHTTP2_SETTINGS_HEADER_TABLE_SIZE, HEADER_TABLE_BYTES},
    };
    if (nghttp2_submit_settings(s->ng, NGHTTP2_FLAG_NONE, settings, LTN_ARRAY_SIZE(settings)) !=
        0) {
        return -ENOMEM;
    }
    if (nghttp2_session_set_local_window_size(s->ng, NGHTTP2_FLAG_NONE, 0,
                                              (int32_t)s->conf.connection_window_bytes) != 0) {
        return -ENOMEM;
    }
    return 0;
}

struct ltn_h2 *ltn_h2_new(const struct ltn_h2_conf *conf, const struct ltn_session_sink *sink,
                          void *arg)
{
    struct ltn_h2 *s = calloc(1, sizeof(*s));
    if (s == NULL) {
        return NULL;
    }
    s->conf = *conf;
    s->sink = *sink;
    s->arg = arg;
    s->scan_skip = NGHTTP2_CLIENT_MAGIC_LEN;
    ltn_bucket_init(&s->resets, conf->reset_burst, conf->reset_per_s);
    ltn_bucket_init(&s->nuisance, conf->nuisance_burst, conf->nuisance_per_s);
    ltn_bucket_init(&s->faults, conf->fault_burst, conf->fault_per_s);
    if (make_session(s) != 0 || announce(s) != 0) {
        ltn_h2_free(s);
        return NULL;
    }
    return s;
}

void ltn_h2_free(struct ltn_h2 *s)
{
    if (s == NULL) {
        return;
    }
    s->freeing = true;
    while (s->streams != NULL) {
        struct ltn_h2_stream *st = s->streams;
        void *request = st->request;
        (void)nghttp2_session_set_stream_user_data(s->ng, st->id, NULL);
        stream_free(s, st);
        if (request != NULL) {
            s->sink.closed(s->arg, request);
        }
    }
    nghttp2_session_del(s->ng);
    free(s);
}

/* The library skips frames of unknown types and data made of padding without a word, so the frame
 * headers are also read here. */
static void judge_header(struct ltn_h2 *s)
{
    const uint8_t *h = s->scan;
    uint32_t length = (uint32_t)h[0] << 16 | (uint32_t)h[1] << 8 | (uint32_t)h[2];
    s->scan_skip = length;
    s->scan_len = 0;
    s->heads += h[3] == NGHTTP2_HEADERS ? 1 : 0;
    if (h[3] > NGHTTP2_CONTINUATION) {
        nuisance(s);
    } else if (h[3] == NGHTTP2_DATA && (h[4] & NGHTTP2_FLAG_END_STREAM) == 0 &&
               length < ((h[4] & NGHTTP2_FLAG_PADDED) != 0 ? MAX_PADDING : 0) + TINY_DATA_BYTES) {
        nuisance(s);
    }
}

/* Returns how many bytes are to be taken in now: no further than a few heads go. */
static size_t scan_frames(struct ltn_h2 *s, const uint8_t *p, size_t n)
{
    const uint8_t *begin = p;
    s->heads = 0;
    while (n > 0 && !s->flooded) {
        size_t part;
        if (s->heads == HEADS_AT_ONCE && s->scan_skip == 0 && s->scan_len == 0) {
            return (size_t)(p - begin);
        }
        if (s->scan_skip > 0) {
            part = n < s->scan_skip ? n : s->scan_skip;
            s->scan_skip -= part;
        } else {
            part = LTN_H2_FRAME_HEADER_BYTES - s->scan_len;
            part = part < n ? part : n;
            memcpy(s->scan + s->scan_len, p, part);
            s->scan_len += part;
            if (s->scan_len == LTN_H2_FRAME_HEADER_BYTES) {
                judge_header(s);
            }
        }
        p += part;
        n -= part;
    }
    return (size_t)(p - begin) + n;
}

int ltn_h2_feed(struct ltn_h2 *s, const uint8_t *p, size_t n, uint64_t now_ns, size_t *ret_used)
{
    s->now_ns = now_ns;
    *ret_used = scan_frames(s, p, n);
    ssize_t used = nghttp2_session_mem_recv(s->ng, p, *ret_used);
    if (used >= 0) {
        return 0;
    }
    if (used == NGHTTP2_ERR_NOMEM) {
        return -ENOMEM;
    }
    s->failed = true;
    if (used == NGHTTP2_ERR_FLOODED) {
        s->flooded = true;
        (void)nghttp2_session_terminate_session(s->ng, NGHTTP2_ENHANCE_YOUR_CALM);
    } else {
        (void)nghttp2_session_terminate_session(s->ng, NGHTTP2_PROTOCOL_ERROR);
    }
    return LTN_ERR_MALFORMED;
}

void ltn_h2_credit(struct ltn_h2 *s, int32_t id, size_t n, bool connection)
{
    (void)nghttp2_session_consume_stream(s->ng, id, n);
    if (connection) {
        ltn_h2_credit_connection(s, n);
    }
}

void ltn_h2_credit_connection(struct ltn_h2 *s, size_t n)
{
    (void)nghttp2_session_consume_connection(s->ng, n);
}

void ltn_h2_reset(struct ltn_h2 *s, int32_t id, uint32_t code)
{
    struct ltn_h2_stream *st = ltn_h2_stream_of(s, id);
    if (st != NULL) {
        st->request = NULL;
    }
    (void)nghttp2_submit_rst_stream(s->ng, NGHTTP2_FLAG_NONE, id, code);
}

void ltn_h2_tick(struct ltn_h2 *s, uint64_t now_ns)
{
    s->now_ns = now_ns;
    ltn_h2_hold_tick(s);
    if (s->answered_count == 0) {
        return;
    }
    for (struct ltn_h2_stream *st = s->streams; st != NULL; st = st->next) {
        if (st->answered_ns != 0 && now_ns - st->answered_ns > ANSWERED_GRACE_NS) {
            (void)nghttp2_submit_rst_stream(s->ng, NGHTTP2_FLAG_NONE, st->id, NGHTTP2_NO_ERROR);
        }
    }
}

size_t ltn_h2_pull(struct ltn_h2 *s, uint8_t *dst, size_t room)
{
    size_t done = 0;
    while (done < room) {
        if (s->pending_len == 0) {
            ssize_t n = nghttp2_session_mem_send(s->ng, &s->pending);
            if (n <= 0) {
                break; /* nothing to send, or out of memory: the write timeout ends it */
            }
            s->pending_len = (size_t)n;
        }
        size_t part = s->pending_len < room - done ? s->pending_len : room - done;
        memcpy(dst + done, s->pending, part);
        s->pending += part;
        s->pending_len -= part;
        done += part;
    }
    return done;
}

void ltn_h2_drain(struct ltn_h2 *s)
{
    if (s->drain_sent) {
        return;
    }
    s->drain_sent = true;
    (void)nghttp2_submit_shutdown_notice(s->ng);
    (void)nghttp2_submit_ping(s->ng, NGHTTP2_FLAG_NONE, drain_ping);
}

void ltn_h2_drain_final(struct ltn_h2 *s)
{
    if (s->drain_final || !s->drain_sent) {
        return;
    }
    s->drain_final = true;
    int32_t last = nghttp2_session_get_last_proc_stream_id(s->ng);
    (void)nghttp2_submit_goaway(s->ng, NGHTTP2_FLAG_NONE, last, NGHTTP2_NO_ERROR, NULL, 0);
}

void ltn_h2_terminate(struct ltn_h2 *s, uint32_t code)
{
    s->cut = true;
    (void)nghttp2_session_terminate_session(s->ng, code);
}

bool ltn_h2_done(const struct ltn_h2 *s)
{
    if (s->pending_len > 0 || nghttp2_session_want_write(s->ng) != 0) {
        return false;
    }
    return nghttp2_session_want_read(s->ng) == 0 || (s->drain_final && s->stream_count == 0);
}

bool ltn_h2_in_head(const struct ltn_h2 *s)
{
    return s->in_head;
}

bool ltn_h2_flooded(const struct ltn_h2 *s)
{
    return s->flooded;
}

bool ltn_h2_failed(const struct ltn_h2 *s)
{
    return s->failed && !s->flooded;
}

size_t ltn_h2_streams(const struct ltn_h2 *s)
{
    return s->stream_count;
}

size_t ltn_h2_unsent(const struct ltn_h2 *s)
{
    return s->unsent_count;
}

uint64_t ltn_h2_progress(const struct ltn_h2 *s)
{
    return s->progress;
}
