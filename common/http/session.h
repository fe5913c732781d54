/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the two protocol sessions (h1.h, h2.h) have in common: events out of the bytes, replies into
 * bytes. Sessions do no I/O and read no clock. Used inside the room.
 */
#ifndef LTN_HTTP_SESSION_H
#define LTN_HTTP_SESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "http/head.h"
#include "http/server.h"
#include "http/source.h"

/* Where a session reports. All calls come from within a feed, pull or free of the session. */
struct ltn_session_sink {
    /* A request's head is complete; the sink takes it. body: some may follow. Returns the pointer
     * that names the request from now on, or NULL: the session then discards the body, and the
     * sink must have replied or reset by id. */
    void *(*head)(void *arg, int32_t id, struct ltn_head *head, bool body);
    /* Bytes of the body. */
    void (*data)(void *arg, void *request, const uint8_t *p, size_t n);
    /* The body is complete (also when there was none). */
    void (*end)(void *arg, void *request);
    /* The stream has ended, after its reply was sent or without one. The pointer is dead for the
     * session. */
    void (*closed)(void *arg, void *request);
    /* HTTP/2, before head; NULL: none. True: the sink replied by id, head does not follow, and the
     * session discards the body. */
    bool (*turns_away)(void *arg, int32_t id, const struct ltn_head *head);
};

/* A reply ready to be sent. */
struct ltn_session_reply {
    int status;
    const struct ltn_http_field *fields; /* copied by the session */
    size_t field_count;
    void *body; /* taken: from malloc, may be NULL */
    size_t body_len;
    const struct ltn_http_field *trailers; /* HTTP/2 only; copied */
    size_t trailer_count;
    struct ltn_source *source; /* instead of body; taken; NULL: none */
    bool lasting;              /* fields outlive the session: not copied */
    bool head_only;            /* content-length of the body, but not the body */
    bool no_length;            /* gRPC: no content-length */
    bool close;                /* HTTP/1: close afterwards */
};

#endif /* LTN_HTTP_SESSION_H */
