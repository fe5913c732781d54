/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HTTP/1.1 server session without I/O: strict parser and reply writer. One request at a time; a
 * pipelined one is left in the caller's buffer until the reply to the one before. Refused: bare LF,
 * obs-fold, blanks before the colon, more than one Content-Length, Content-Length together with
 * Transfer-Encoding, transfer codings other than one "chunked", a missing or repeated Host.
 */
#ifndef LTN_HTTP_H1_H
#define LTN_HTTP_H1_H

#include "http/session.h"

struct ltn_h1;

struct ltn_h1_conf {
    size_t max_header_bytes;
    uint32_t max_header_count;
};

struct ltn_h1 *ltn_h1_new(const struct ltn_h1_conf *conf, const struct ltn_session_sink *sink,
                          void *arg) ltn_must_check;
/* closed is reported for a request in flight. NULL-safe. */
void ltn_h1_free(struct ltn_h1 *s);

/* Eats bytes; *ret_used says how many (the rest is to be fed again after the reply). 0, or
 * LTN_ERR_MALFORMED / LTN_ERR_TOO_LARGE / LTN_ERR_UNSUPPORTED / -ENOMEM: the error reply is queued,
 * nothing more is eaten and the connection is to be closed after the output. */
int ltn_h1_feed(struct ltn_h1 *s, const uint8_t *p, size_t n, size_t *ret_used) ltn_must_check;

/* Queues the reply to the present request, possibly before its body is complete. When the rest of
 * the body is small it is discarded, else the connection closes. 0, LTN_ERR_CLOSED without a
 * request, -ENOMEM (the connection closes). Takes the body in any case. */
int ltn_h1_reply(struct ltn_h1 *s, struct ltn_session_reply *reply) ltn_must_check;

/* Copies up to room bytes of output; returns how many, 0 when there are none. */
size_t ltn_h1_pull(struct ltn_h1 *s, uint8_t *dst, size_t room);

bool ltn_h1_has_output(const struct ltn_h1 *s);
bool ltn_h1_closing(const struct ltn_h1 *s); /* close once the output is gone */
bool ltn_h1_blocked(const struct ltn_h1 *s); /* waits for a reply: do not read on */
bool ltn_h1_in_head(const struct ltn_h1 *s); /* part of a head has come */
bool ltn_h1_idle(const struct ltn_h1 *s);    /* between requests, nothing begun */
void ltn_h1_set_closing(struct ltn_h1 *s);   /* close after the next reply */
/* Answers the present state with an error status (408 for a timeout) and closes. */
void ltn_h1_fail(struct ltn_h1 *s, int status);

#endif /* LTN_HTTP_H1_H */
