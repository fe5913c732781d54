/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

void ltn_buf_init(struct ltn_buf *b, size_t max_bytes)
{
    /* One byte is kept for the terminator, and sizes must not overflow on the way up. */
    *b = (struct ltn_buf){.max_bytes = max_bytes < SIZE_MAX / 4 ? max_bytes : SIZE_MAX / 4};
}

void ltn_buf_done(struct ltn_buf *b)
{
    if (b == NULL) {
        return;
    }
    free(b->data);
    *b = (struct ltn_buf){.max_bytes = b->max_bytes};
}

void ltn_buf_reset(struct ltn_buf *b)
{
    b->len = 0;
    b->error = 0;
    if (b->data != NULL) {
        b->data[0] = '\0';
    }
}

static int fail(struct ltn_buf *b, int rc)
{
    if (b->error == 0) {
        b->error = rc;
    }
    return rc;
}

static int make_room(struct ltn_buf *b, size_t n)
{
    if (b->error != 0) {
        return b->error;
    }
    if (n > b->max_bytes || b->len > b->max_bytes - n) {
        return fail(b, LTN_ERR_TOO_LARGE);
    }
    size_t need = b->len + n + 1;
    if (need <= b->size) {
        return 0;
    }
    size_t size = b->size + b->size / 2;
    size = size > need ? size : need;
    size = size > 64 ? size : 64;
    if (size > b->max_bytes + 1) {
        size = b->max_bytes + 1;
    }
    char *data = realloc(b->data, size);
    if (data == NULL) {
        return fail(b, -ENOMEM);
    }
    b->data = data;
    b->size = size;
    b->data[b->len] = '\0'; /* holds also between a reserve and its commit */
    return 0;
}

int ltn_buf_append(struct ltn_buf *b, const void *p, size_t n)
{
    int rc = make_room(b, n);
    if (rc < 0) {
        return rc;
    }
    if (n > 0) {
        memcpy(b->data + b->len, p, n);
    }
    b->len += n;
    b->data[b->len] = '\0';
    return 0;
}

int ltn_buf_puts(struct ltn_buf *b, const char *s)
{
    return ltn_buf_append(b, s, strlen(s));
}

int ltn_buf_putc(struct ltn_buf *b, char c)
{
    return ltn_buf_append(b, &c, 1);
}

int ltn_buf_vprintf(struct ltn_buf *b, const char *fmt, va_list ap)
{
    va_list again;
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    int rc = n < 0 ? fail(b, -EINVAL) : make_room(b, (size_t)n);
    if (rc == 0) {
        (void)vsnprintf(b->data + b->len, (size_t)n + 1, fmt, again);
        b->len += (size_t)n;
    }
    va_end(again);
    return rc;
}

int ltn_buf_printf(struct ltn_buf *b, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int rc = ltn_buf_vprintf(b, fmt, ap);
    va_end(ap);
    return rc;
}

void *ltn_buf_reserve(struct ltn_buf *b, size_t n)
{
    return make_room(b, n) < 0 ? NULL : b->data + b->len;
}

void ltn_buf_commit(struct ltn_buf *b, size_t n)
{
    b->len += n;
    b->data[b->len] = '\0';
}

void ltn_buf_consume(struct ltn_buf *b, size_t n)
{
    if (n == 0) {
        return;
    }
    memmove(b->data, b->data + n, b->len - n + 1);
    b->len -= n;
}

int ltn_buf_error(const struct ltn_buf *b)
{
    return b->error;
}

const char *ltn_buf_str(const struct ltn_buf *b)
{
    return b->data != NULL ? b->data : "";
}

char *ltn_buf_steal(struct ltn_buf *b, size_t *ret_len)
{
    char *data = b->data;
    *ret_len = b->len;
    *b = (struct ltn_buf){.max_bytes = b->max_bytes};
    return data;
}
