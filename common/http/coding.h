/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Content codings: inflating request bodies into a quota, gzipping replies. An inflater keeps its
 * zlib and zstd state between bodies; one thread at a time. Used inside the room.
 */
#ifndef LTN_HTTP_CODING_H
#define LTN_HTTP_CODING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/attr.h"
#include "base/buf.h"

enum ltn_coding {
    LTN_CODING_IDENTITY,
    LTN_CODING_GZIP,
    LTN_CODING_ZSTD,
    LTN_CODING_UNKNOWN,
};

/* From a Content-Encoding or grpc-encoding value; NULL and "" are identity. One coding only. */
enum ltn_coding ltn_coding_parse(const char *s);

struct ltn_inflater;

/* NULL when memory is out. zstd frames that want a larger window than 2^zstd_window_log are
 * refused. Free with ltn_inflater_free (NULL-safe). */
struct ltn_inflater *ltn_inflater_new(uint32_t zstd_window_log) ltn_must_check;
void ltn_inflater_free(struct ltn_inflater *z);

struct ltn_inflate_limits {
    uint32_t max_ratio; /* output to the input eaten for it, judged above 1 MiB of output; 0: not
                           judged */
    /* Asked before the output grows by n bytes of memory; false refuses. NULL: no question. */
    bool (*reserve)(void *arg, size_t n);
    void *arg;
};

/* Inflates n bytes, all members or frames of them, into the empty buffer out, whose ceiling is the
 * quota. 0; LTN_ERR_MALFORMED (broken, cut short or followed by garbage); LTN_ERR_TOO_LARGE (quota
 * or ratio); LTN_ERR_BUSY (reserve refused); -ENOMEM. */
int ltn_inflate(struct ltn_inflater *z, enum ltn_coding coding, const uint8_t *p, size_t n,
                const struct ltn_inflate_limits *limits, struct ltn_buf *out) ltn_must_check;

/* Appends the gzip form of n bytes. 0, -ENOMEM or of the buffer. */
int ltn_gzip(const void *p, size_t n, struct ltn_buf *out) ltn_must_check;

/* Appends the zstd form of n bytes. 0, -ENOMEM or of the buffer. */
int ltn_zstd(const void *p, size_t n, struct ltn_buf *out) ltn_must_check;

/* The same in pieces. NULL when out of memory; free with ltn_gzipper_free (NULL-safe). */
struct ltn_gzipper;
struct ltn_gzipper *ltn_gzipper_new(void) ltn_must_check;
void ltn_gzipper_free(struct ltn_gzipper *z);
/* Appends what n more bytes yield, maybe nothing; end: they are the last. 0, -ENOMEM or of the
 * buffer. */
int ltn_gzipper_add(struct ltn_gzipper *z, const void *p, size_t n, bool end,
                    struct ltn_buf *out) ltn_must_check;

/* True when an Accept-Encoding value admits gzip. NULL: no. */
bool ltn_accepts_gzip(const char *accept_encoding);

#endif /* LTN_HTTP_CODING_H */
