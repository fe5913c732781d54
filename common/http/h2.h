/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HTTP/2 server session without I/O, on nghttp2: bytes and the time go in, requests and bytes come
 * out. Flow-control credit is returned only by ltn_h2_credit(). What a peer may do without getting
 * anywhere (cancel streams, PING, SETTINGS, empty frames, faults) is bounded; beyond it the session
 * ends with GOAWAY(ENHANCE_YOUR_CALM).
 */
#ifndef LTN_HTTP_H2_H
#define LTN_HTTP_H2_H

#include "http/session.h"

struct ltn_h2;
struct ltn_h2_stream;

/* None where a sanitizer looks for the use of old ones. */
#ifdef __SANITIZE_ADDRESS__
#define LTN_H2_SPARE_STREAMS 0
#else
#define LTN_H2_SPARE_STREAMS 256
#endif

/* Memory of streams that ended, for the next ones: where thousands are refused in a second most of
 * the price would be the allocator's. Zeroed at first; outlives the sessions that share it. */
struct ltn_h2_spares {
    struct ltn_h2_stream *streams;
    unsigned stream_count;
    struct ltn_head *head;
};
void ltn_h2_spares_done(struct ltn_h2_spares *p);

struct ltn_h2_conf {
    struct ltn_h2_spares *spares; /* not NULL */
    size_t max_header_bytes;
    uint32_t max_header_count;
    uint32_t max_streams;
    uint32_t stream_window_bytes;
    uint32_t connection_window_bytes;
    uint32_t reset_burst, reset_per_s;
    uint32_t nuisance_burst, nuisance_per_s;
    uint32_t fault_burst, fault_per_s;
    uint64_t ping_interval_ns; /* PINGs closer together, without an answer sent in between, are
                                  strikes; 0: not judged */
    uint32_t ping_strikes;     /* allowed; beyond: GOAWAY(ENHANCE_YOUR_CALM, "too_many_pings") */
};

/* HTTP/2 error codes that callers of ltn_h2_reset() use. */
enum {
    LTN_H2_NO_ERROR = 0,
    LTN_H2_INTERNAL_ERROR = 2,
    LTN_H2_REFUSED_STREAM = 7,
    LTN_H2_CANCEL = 8,
    LTN_H2_ENHANCE_YOUR_CALM = 11,
};

struct ltn_h2 *ltn_h2_new(const struct ltn_h2_conf *conf, const struct ltn_session_sink *sink,
                          void *arg) ltn_must_check;
/* closed is reported for each open request. NULL-safe. */
void ltn_h2_free(struct ltn_h2 *s);

/* Takes n bytes in, or less: behind the heads of a few requests it is time to pull what they were
 * answered, so that the memory for it serves the next. 0; LTN_ERR_MALFORMED: the peer broke the
 * protocol beyond the stream, output holds the GOAWAY and the rest need not be fed; -ENOMEM. */
int ltn_h2_feed(struct ltn_h2 *s, const uint8_t *p, size_t n, uint64_t now_ns,
                size_t *ret_used) ltn_must_check;

/* Gives n bytes of credit back for the stream and, when connection, for the connection. */
void ltn_h2_credit(struct ltn_h2 *s, int32_t id, size_t n, bool connection);
/* Connection credit alone, for bytes held back or of streams that ended. */
void ltn_h2_credit_connection(struct ltn_h2 *s, size_t n);

/* Has the peer send no more than the beginning of a body unasked, for a second from now, so that
 * refusing costs little. Streams that do not wait are asked for the rest at once. */
void ltn_h2_hold_bodies(struct ltn_h2 *s);
/* A stream whose body shall wait, called while its head is reported; and go on, with the credit
 * that was withheld. */
void ltn_h2_wait(struct ltn_h2 *s, int32_t id);
void ltn_h2_go_on(struct ltn_h2 *s, int32_t id, size_t withheld);

/* Queues the reply; a body still coming in is discarded and cut off with RST_STREAM(NO_ERROR): at
 * once for gRPC, by a later tick for others. Takes the body in any case. 0, LTN_ERR_CLOSED when the
 * stream is gone, -ENOMEM. */
int ltn_h2_reply(struct ltn_h2 *s, int32_t id, struct ltn_session_reply *reply) ltn_must_check;

/* Begins a reply of many messages: sends the head, keeps the request's side open. fields are
 * copied. 0, LTN_ERR_CLOSED, -ENOMEM, LTN_ERR_INTERNAL. */
int ltn_h2_stream_begin(struct ltn_h2 *s, int32_t id, const struct ltn_http_field *fields,
                        size_t n) ltn_must_check;
/* Queues a message of a prefix and n bytes for such a stream; max_waiting bounds what waits. 0,
 * LTN_ERR_BUSY, LTN_ERR_CLOSED, -ENOMEM. */
int ltn_h2_stream_send(struct ltn_h2 *s, int32_t id, const uint8_t *prefix, size_t prefix_n,
                       const void *p, size_t n, size_t max_waiting) ltn_must_check;
size_t ltn_h2_stream_waiting(struct ltn_h2 *s, int32_t id);
/* Ends it with trailers behind what waits; the request is no longer reported. */
void ltn_h2_stream_end(struct ltn_h2 *s, int32_t id, const struct ltn_http_field *trailers,
                       size_t n);

/* Ends a stream with an error code. */
void ltn_h2_reset(struct ltn_h2 *s, int32_t id, uint32_t code);

/* Tells the time and cuts off bodies that nobody needs any more. To be called now and then. */
void ltn_h2_tick(struct ltn_h2 *s, uint64_t now_ns);

/* Copies up to room bytes of output; returns how many, 0 when there are none now. */
size_t ltn_h2_pull(struct ltn_h2 *s, uint8_t *dst, size_t room);

/* Graceful end: the notice (GOAWAY without limit, with a PING to learn of the round trip); the
 * final GOAWAY follows by itself when the PING comes back, or by ltn_h2_drain_final(). */
void ltn_h2_drain(struct ltn_h2 *s);
void ltn_h2_drain_final(struct ltn_h2 *s);

/* Ends the session at once with GOAWAY(code). */
void ltn_h2_terminate(struct ltn_h2 *s, uint32_t code);

bool ltn_h2_done(const struct ltn_h2 *s);         /* neither input nor output is expected */
bool ltn_h2_in_head(const struct ltn_h2 *s);      /* a header block has begun and not ended */
bool ltn_h2_flooded(const struct ltn_h2 *s);      /* ended for a flood */
bool ltn_h2_failed(const struct ltn_h2 *s);       /* ended for breaking the protocol */
size_t ltn_h2_streams(const struct ltn_h2 *s);    /* open streams */
size_t ltn_h2_unsent(const struct ltn_h2 *s);     /* streams with a reply not yet sent whole */
uint64_t ltn_h2_progress(const struct ltn_h2 *s); /* grows with body bytes and replies sent */

#endif /* LTN_HTTP_H2_H */
