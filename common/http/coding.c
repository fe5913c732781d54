/* SPDX-License-Identifier: Apache-2.0 */
#include "http/coding.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "base/err.h"

#define ZSTD_LEVEL       1
#define GZIP_WINDOW_BITS (15 + 16)
#define GZIP_STEP_BYTES  16384
#define FIRST_STEP_BYTES 4096
#define MAX_STEP_BYTES   (1024 * 1024)
#define RATIO_FROM_BYTES (1024 * 1024)

struct ltn_inflater {
    z_stream gz;
    bool gz_ready;
    ZSTD_DCtx *zstd;
};

enum ltn_coding ltn_coding_parse(const char *s)
{
    if (s == NULL || s[0] == '\0' || strcasecmp(s, "identity") == 0) {
        return LTN_CODING_IDENTITY;
    }
    if (strcasecmp(s, "gzip") == 0 || strcasecmp(s, "x-gzip") == 0) {
        return LTN_CODING_GZIP;
    }
    return strcasecmp(s, "zstd") == 0 ? LTN_CODING_ZSTD : LTN_CODING_UNKNOWN;
}

struct ltn_inflater *ltn_inflater_new(uint32_t zstd_window_log)
{
    struct ltn_inflater *z = calloc(1, sizeof(*z));
    if (z == NULL) {
        return NULL;
    }
    z->zstd = ZSTD_createDCtx();
    if (z->zstd == NULL || inflateInit2(&z->gz, GZIP_WINDOW_BITS) != Z_OK) {
        ltn_inflater_free(z);
        return NULL;
    }
    z->gz_ready = true;
    size_t rc = ZSTD_DCtx_setParameter(z->zstd, ZSTD_d_windowLogMax, (int)zstd_window_log);
    if (ZSTD_isError(rc)) {
        ltn_inflater_free(z);
        return NULL;
    }
    return z;
}

void ltn_inflater_free(struct ltn_inflater *z)
{
    if (z == NULL) {
        return;
    }
    if (z->gz_ready) {
        (void)inflateEnd(&z->gz);
    }
    (void)ZSTD_freeDCtx(z->zstd);
    free(z);
}

/* Room for more output: grows in doubling steps and asks for the memory first. used: input eaten
 * so far, so that a bomb is known long before its end. */
static int make_room(const struct ltn_inflate_limits *limits, size_t used, struct ltn_buf *out,
                     size_t *ret_room)
{
    if (limits->max_ratio != 0 && out->len > RATIO_FROM_BYTES &&
        out->len / limits->max_ratio > used) {
        return LTN_ERR_TOO_LARGE;
    }
    if (out->len == out->max_bytes) {
        return LTN_ERR_TOO_LARGE;
    }
    size_t step = out->len < FIRST_STEP_BYTES ? FIRST_STEP_BYTES : out->len;
    step = step < MAX_STEP_BYTES ? step : MAX_STEP_BYTES;
    size_t left = out->max_bytes - out->len;
    step = step < left ? step : left;
    if (limits->reserve != NULL && !limits->reserve(limits->arg, step)) {
        return LTN_ERR_BUSY;
    }
    *ret_room = step;
    return ltn_buf_reserve(out, step) != NULL ? 0 : -ENOMEM;
}

/* One more byte decides between "exactly at the quota" and "beyond it". */
static int finish_gzip_at_quota(z_stream *gz)
{
    uint8_t extra;
    gz->next_out = &extra;
    gz->avail_out = 1;
    int rc = inflate(gz, Z_NO_FLUSH);
    if (gz->avail_out == 0) {
        return LTN_ERR_TOO_LARGE;
    }
    return rc == Z_STREAM_END ? 0 : LTN_ERR_MALFORMED;
}

/* One member of a body of n bytes; gz->next_in moves behind it. */
static int gunzip_member(z_stream *gz, size_t n, const struct ltn_inflate_limits *limits,
                         struct ltn_buf *out)
{
    for (;;) {
        size_t room;
        if (out->len == out->max_bytes) {
            return finish_gzip_at_quota(gz);
        }
        int rc = make_room(limits, n - gz->avail_in, out, &room);
        if (rc != 0) {
            return rc;
        }
        gz->next_out = (Bytef *)out->data + out->len;
        gz->avail_out = (uInt)room;
        int z = inflate(gz, Z_NO_FLUSH);
        size_t made = room - gz->avail_out;
        ltn_buf_commit(out, made);
        if (z == Z_STREAM_END) {
            return 0;
        }
        if (z == Z_MEM_ERROR) {
            return -ENOMEM;
        }
        if (z != Z_OK || (gz->avail_in == 0 && gz->avail_out > 0)) {
            return LTN_ERR_MALFORMED; /* broken, or cut short */
        }
    }
}

static int gunzip(struct ltn_inflater *z, const uint8_t *p, size_t n,
                  const struct ltn_inflate_limits *limits, struct ltn_buf *out)
{
    if (n > UINT_MAX) {
        return LTN_ERR_TOO_LARGE;
    }
    z->gz.next_in = (Bytef *)(uintptr_t)p;
    z->gz.avail_in = (uInt)n;
    do {
        if (inflateReset(&z->gz) != Z_OK) {
            return LTN_ERR_INTERNAL;
        }
        int rc = gunzip_member(&z->gz, n, limits, out);
        if (rc != 0) {
            return rc;
        }
    } while (z->gz.avail_in > 0);
    return 0;
}

static int unzstd(struct ltn_inflater *z, const uint8_t *p, size_t n,
                  const struct ltn_inflate_limits *limits, struct ltn_buf *out)
{
    ZSTD_inBuffer in = {p, n, 0};
    size_t hint = 1;
    (void)ZSTD_DCtx_reset(z->zstd, ZSTD_reset_session_only);
    for (;;) {
        size_t room;
        uint8_t extra;
        bool full = out->len == out->max_bytes;
        int rc = full ? 0 : make_room(limits, in.pos, out, &room);
        if (rc != 0) {
            return rc;
        }
        ZSTD_outBuffer o = {full ? (void *)&extra : out->data + out->len, full ? 1 : room, 0};
        hint = ZSTD_decompressStream(z->zstd, &o, &in);
        if (ZSTD_isError(hint)) {
            return ZSTD_getErrorCode(hint) == ZSTD_error_frameParameter_windowTooLarge
                       ? LTN_ERR_TOO_LARGE
                       : LTN_ERR_MALFORMED;
        }
        if (full && o.pos > 0) {
            return LTN_ERR_TOO_LARGE;
        }
        if (!full) {
            ltn_buf_commit(out, o.pos);
        }
        if (in.pos == in.size && (hint == 0 || o.pos < o.size)) {
            break; /* all read, all flushed */
        }
    }
    return hint == 0 ? 0 : LTN_ERR_MALFORMED;
}

int ltn_inflate(struct ltn_inflater *z, enum ltn_coding coding, const uint8_t *p, size_t n,
                const struct ltn_inflate_limits *limits, struct ltn_buf *out)
{
    if (n == 0) {
        return LTN_ERR_MALFORMED;
    }
    switch (coding) {
    case LTN_CODING_GZIP:
        return gunzip(z, p, n, limits, out);
    case LTN_CODING_ZSTD:
        return unzstd(z, p, n, limits, out);
    default:
        return LTN_ERR_UNSUPPORTED;
    }
}

int ltn_gzip(const void *p, size_t n, struct ltn_buf *out)
{
    z_stream gz = {0};
    if (n > UINT_MAX || deflateInit2(&gz, Z_BEST_SPEED, Z_DEFLATED, GZIP_WINDOW_BITS, 8,
                                     Z_DEFAULT_STRATEGY) != Z_OK) {
        return -ENOMEM;
    }
    size_t bound = deflateBound(&gz, n);
    uint8_t *dst = ltn_buf_reserve(out, bound);
    int rc = dst == NULL ? ltn_buf_error(out) : 0;
    if (rc == 0) {
        gz.next_in = (Bytef *)(uintptr_t)p;
        gz.avail_in = (uInt)n;
        gz.next_out = dst;
        gz.avail_out = (uInt)bound;
        rc = deflate(&gz, Z_FINISH) == Z_STREAM_END ? 0 : LTN_ERR_INTERNAL;
    }
    if (rc == 0) {
        ltn_buf_commit(out, gz.total_out);
    }
    (void)deflateEnd(&gz);
    return rc;
}

int ltn_zstd(const void *p, size_t n, struct ltn_buf *out)
{
    size_t bound = ZSTD_compressBound(n);
    uint8_t *dst = ltn_buf_reserve(out, bound);
    if (dst == NULL) {
        return ltn_buf_error(out);
    }
    size_t made = ZSTD_compress(dst, bound, p, n, ZSTD_LEVEL);
    if (ZSTD_isError(made)) {
        return -ENOMEM;
    }
    ltn_buf_commit(out, made);
    return 0;
}

struct ltn_gzipper {
    z_stream gz;
};

struct ltn_gzipper *ltn_gzipper_new(void)
{
    struct ltn_gzipper *z = calloc(1, sizeof(*z));
    if (z != NULL && deflateInit2(&z->gz, Z_BEST_SPEED, Z_DEFLATED, GZIP_WINDOW_BITS, 8,
                                  Z_DEFAULT_STRATEGY) != Z_OK) {
        free(z);
        z = NULL;
    }
    return z;
}

void ltn_gzipper_free(struct ltn_gzipper *z)
{
    if (z != NULL) {
        (void)deflateEnd(&z->gz);
        free(z);
    }
}

int ltn_gzipper_add(struct ltn_gzipper *z, const void *p, size_t n, bool end, struct ltn_buf *out)
{
    int rc = Z_OK;
    if (n > UINT_MAX) {
        return LTN_ERR_TOO_LARGE;
    }
    z->gz.next_in = (Bytef *)(uintptr_t)p;
    z->gz.avail_in = (uInt)n;
    do {
        uint8_t *dst = ltn_buf_reserve(out, GZIP_STEP_BYTES);
        if (dst == NULL) {
            return ltn_buf_error(out);
        }
        z->gz.next_out = dst;
        z->gz.avail_out = GZIP_STEP_BYTES;
        rc = deflate(&z->gz, end ? Z_FINISH : Z_NO_FLUSH);
        ltn_buf_commit(out, GZIP_STEP_BYTES - z->gz.avail_out);
    } while (rc == Z_OK && z->gz.avail_out == 0);
    /* Z_BUF_ERROR: nothing more to do now. */
    bool fine = end ? rc == Z_STREAM_END : rc == Z_OK || rc == Z_BUF_ERROR;
    return fine ? 0 : LTN_ERR_INTERNAL;
}

/* The quality of one list element is zero: "gzip;q=0", "gzip; q=0.000". */
static bool refused(const char *params, size_t n)
{
    const char *q = memmem(params, n, "q=", 2);
    if (q == NULL) {
        return false;
    }
    for (q += 2; q < params + n && *q != ',' && *q != ' '; q++) {
        if (*q >= '1' && *q <= '9') {
            return false;
        }
    }
    return true;
}

bool ltn_accepts_gzip(const char *accept_encoding)
{
    const char *p = accept_encoding;
    if (p == NULL) {
        return false;
    }
    while (*p != '\0') {
        p += strspn(p, " \t,");
        size_t n = strcspn(p, ",");
        size_t name = strcspn(p, ",; \t");
        if ((name == 4 && strncasecmp(p, "gzip", 4) == 0) || (name == 1 && *p == '*')) {
            return !refused(p + name, n - name);
        }
        p += n;
    }
    return false;
}
