/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of the HTTP/2 session only (h2.c, h2_hold.c, h2_reply.c). */
#ifndef LTN_HTTP_H2_INTERNALS_H
#define LTN_HTTP_H2_INTERNALS_H

#include <nghttp2/nghttp2.h>

#include "base/arena.h"
#include "base/buf.h"
#include "http/bucket.h"
#include "http/h2.h"

#define LTN_H2_FRAME_HEADER_BYTES 9

struct ltn_h2_stream {
    struct ltn_h2_stream *prev;
    struct ltn_h2_stream *next;
    int32_t id;
    struct ltn_head *head; /* until it is complete */
    bool head_seen;        /* complete: further header blocks are trailers */
    bool done;             /* a reply was given */
    bool replied;          /* and is not yet sent whole */
    size_t trailer_bytes;  /* of the request, as HPACK counts */
    bool waits;            /* for leave to send its body */
    bool expects;          /* to be told "100-continue" with it */
    bool reset_at_once;    /* when the reply is out before the request is whole */
    uint64_t answered_ns;  /* reply sent, the peer still sends; 0: not so */
    void *request;
    /* the reply's body and trailers while they go out */
    uint8_t *body;
    size_t body_len;
    size_t body_pos;
    struct ltn_source *source; /* instead of body */
    struct ltn_arena trailer_arena;
    nghttp2_nv *trailers;
    size_t trailer_count;
    /* a reply of many messages */
    bool live;
    bool ending; /* trailers behind what waits */
    struct ltn_buf queue;
};

struct ltn_h2 {
    nghttp2_session *ng;
    struct ltn_h2_conf conf;
    struct ltn_session_sink sink;
    void *arg;
    uint64_t now_ns;
    struct ltn_h2_stream *streams;
    size_t stream_count;
    size_t unsent_count;
    size_t answered_count;
    uint64_t progress;
    bool in_head;
    bool flooded;
    bool failed; /* the peer broke the protocol */
    bool cut;    /* the owner ended it */
    bool drain_sent;
    bool drain_final;
    bool freeing;
    bool holding;    /* the peer was told of the small window */
    bool held_known; /* and said that it knows */
    uint64_t hold_until_ns;
    struct ltn_bucket resets;
    struct ltn_bucket nuisance;
    struct ltn_bucket faults;
    uint64_t pinged_ns; /* last PING; 0: none since something was answered */
    uint32_t strikes;
    uint8_t scan[LTN_H2_FRAME_HEADER_BYTES];
    size_t scan_len;
    unsigned heads;         /* in what is taken in now */
    size_t scan_skip;       /* payload, at first the preface, still to pass */
    const uint8_t *pending; /* from nghttp2, not yet copied out */
    size_t pending_len;
};

static inline struct ltn_h2_stream *ltn_h2_stream_of(struct ltn_h2 *s, int32_t id)
{
    return nghttp2_session_get_stream_user_data(s->ng, id);
}

/* ---- h2_hold.c ---- */

/* Opens the window of a stream whose body is wanted, where it began shut. */
void ltn_h2_let_body_in(struct ltn_h2 *s, int32_t id);
/* The client waits to be told that its body is wanted. */
void ltn_h2_say_continue(struct ltn_h2 *s, int32_t id);
/* The peer knows the settings sent last, or before. */
void ltn_h2_settings_known(struct ltn_h2 *s);
/* Time to hold no longer? */
void ltn_h2_hold_tick(struct ltn_h2 *s);

#endif /* LTN_HTTP_H2_INTERNALS_H */
