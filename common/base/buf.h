/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Growing byte buffer with a mandatory ceiling. Errors stick: after the first failed append every
 * later one fails too, so a writer may append many times and look at ltn_buf_error() once. The
 * content is always followed by a NUL that does not count. One thread at a time.
 */
#ifndef LTN_BASE_BUF_H
#define LTN_BASE_BUF_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "base/attr.h"

struct ltn_buf {
    char *data; /* NULL while empty */
    size_t len;
    size_t size;
    size_t max_bytes;
    int error;
};

/* Prepares an empty buffer that may hold max_bytes (SIZE_MAX / 4 at most). Allocates nothing. */
void ltn_buf_init(struct ltn_buf *b, size_t max_bytes);

/* Frees the content. NULL is ignored. */
void ltn_buf_done(struct ltn_buf *b);

/* Empties the buffer and clears its error; keeps the memory. */
void ltn_buf_reset(struct ltn_buf *b);

/* Appends n bytes. 0, LTN_ERR_TOO_LARGE at the ceiling, -ENOMEM; the buffer is unchanged on
 * failure. */
int ltn_buf_append(struct ltn_buf *b, const void *p, size_t n);

/* Appends a NUL-terminated string, one byte, or formatted text; errors as ltn_buf_append. */
int ltn_buf_puts(struct ltn_buf *b, const char *s);
int ltn_buf_putc(struct ltn_buf *b, char c);
int ltn_buf_printf(struct ltn_buf *b, const char *fmt, ...) ltn_printf(2, 3);
int ltn_buf_vprintf(struct ltn_buf *b, const char *fmt, va_list ap) ltn_printf(2, 0);

/* Makes room for n more bytes and returns where they go, to be filled and confirmed with
 * ltn_buf_commit; NULL on failure. */
void *ltn_buf_reserve(struct ltn_buf *b, size_t n) ltn_must_check;
void ltn_buf_commit(struct ltn_buf *b, size_t n);

/* Removes the first n bytes (n <= len). */
void ltn_buf_consume(struct ltn_buf *b, size_t n);

/* First error since init or reset; 0 when none. */
int ltn_buf_error(const struct ltn_buf *b);

/* The content as a C string, "" when empty; owned by the buffer. */
const char *ltn_buf_str(const struct ltn_buf *b);

/* Hands the content over: the caller frees it with free(). The buffer is empty and without error
 * afterwards. NULL when nothing was ever put in. */
char *ltn_buf_steal(struct ltn_buf *b, size_t *ret_len);

#endif /* LTN_BASE_BUF_H */
