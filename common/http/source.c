/* SPDX-License-Identifier: Apache-2.0 */
#include "http/source.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "http/coding.h"

/* Ceiling of one piece: a producer that gives more is at fault. */
#define MAX_PIECE_BYTES ((size_t)64 << 20)

struct ltn_source {
    struct ltn_http_source from;
    struct ltn_gzipper *gzip; /* NULL: as it is */
    struct ltn_buf raw;       /* a piece before it is compressed */
    struct ltn_buf piece;
    size_t pos; /* of it read */
    bool ended;
    int error;
};

struct ltn_source *ltn_source_new(const struct ltn_http_source *from, bool gzip)
{
    struct ltn_source *s = calloc(1, sizeof(*s));
    struct ltn_gzipper *z = gzip ? ltn_gzipper_new() : NULL;
    if (s == NULL || (gzip && z == NULL)) {
        free(s);
        ltn_gzipper_free(z);
        from->done(from->arg);
        return NULL;
    }
    s->from = *from;
    s->gzip = z;
    ltn_buf_init(&s->raw, MAX_PIECE_BYTES);
    ltn_buf_init(&s->piece, MAX_PIECE_BYTES);
    return s;
}

void ltn_source_free(struct ltn_source *s)
{
    if (s == NULL) {
        return;
    }
    s->from.done(s->from.arg);
    ltn_gzipper_free(s->gzip);
    ltn_buf_done(&s->raw);
    ltn_buf_done(&s->piece);
    free(s);
}

static int next_piece(struct ltn_source *s)
{
    struct ltn_buf *to = s->gzip != NULL ? &s->raw : &s->piece;
    ltn_buf_reset(&s->piece);
    ltn_buf_reset(to);
    s->pos = 0;
    int rc = s->from.next(s->from.arg, to);
    if (rc < 0 || ltn_buf_error(to) != 0) {
        return rc < 0 ? rc : ltn_buf_error(to);
    }
    s->ended = rc == 0;
    return s->gzip != NULL ? ltn_gzipper_add(s->gzip, ltn_buf_str(to), to->len, s->ended, &s->piece)
                           : 0;
}

ssize_t ltn_source_read(struct ltn_source *s, uint8_t *dst, size_t room)
{
    while (s->error == 0 && s->pos == s->piece.len && !s->ended) {
        s->error = next_piece(s);
    }
    if (s->error != 0) {
        return s->error;
    }
    size_t n = s->piece.len - s->pos;
    n = n < room ? n : room;
    if (n > 0) {
        memcpy(dst, s->piece.data + s->pos, n);
        s->pos += n;
    }
    return (ssize_t)n;
}
