/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A reply's body that is made while it is sent, gzipped on its way where the client wants that. At
 * most one piece of it is held. Used inside the room.
 */
#ifndef LTN_HTTP_SOURCE_H
#define LTN_HTTP_SOURCE_H

#include <sys/types.h>

#include "http/server.h"

struct ltn_source;

/* Takes over what s says. NULL when out of memory: s->done was called then. */
struct ltn_source *ltn_source_new(const struct ltn_http_source *s, bool gzip) ltn_must_check;

/* Up to room bytes of the body; 0 at its end; LTN_ERR_* when it cannot go on. */
ssize_t ltn_source_read(struct ltn_source *s, uint8_t *dst, size_t room) ltn_must_check;

/* Also before the end. NULL is ignored. */
void ltn_source_free(struct ltn_source *s);

#endif /* LTN_HTTP_SOURCE_H */
