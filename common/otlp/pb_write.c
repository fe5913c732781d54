/* SPDX-License-Identifier: Apache-2.0 */
#include "otlp/pb_write.h"

#include <endian.h>
#include <string.h>

#include "otlp/pb_read.h"

/* Tag and one number: 5 + 10 bytes at most. */
#define HEAD_MAX_BYTES 16

size_t ltn_pb_varint_bytes(uint64_t v)
{
    size_t n = 1;
    while (v >= 0x80) {
        v >>= 7;
        n++;
    }
    return n;
}

static size_t encode_varint(uint8_t *dst, uint64_t v)
{
    size_t n = 0;
    while (v >= 0x80) {
        dst[n++] = (uint8_t)(v | 0x80);
        v >>= 7;
    }
    dst[n++] = (uint8_t)v;
    return n;
}

static size_t encode_tag(uint8_t *dst, uint32_t number, enum ltn_pb_type type)
{
    return encode_varint(dst, (uint64_t)number << 3 | (uint64_t)type);
}

/* All appends go through here: their result is kept by the buffer. */
static void put(struct ltn_buf *b, const void *p, size_t n)
{
    (void)ltn_buf_append(b, p, n);
}

void ltn_pb_put_varint(struct ltn_buf *b, uint64_t v)
{
    uint8_t head[HEAD_MAX_BYTES];
    put(b, head, encode_varint(head, v));
}

void ltn_pb_put_u64_field(struct ltn_buf *b, uint32_t number, uint64_t v)
{
    uint8_t head[HEAD_MAX_BYTES];
    size_t n = encode_tag(head, number, LTN_PB_VARINT);
    put(b, head, n + encode_varint(head + n, v));
}

void ltn_pb_put_sint_field(struct ltn_buf *b, uint32_t number, int64_t v)
{
    ltn_pb_put_u64_field(b, number, ((uint64_t)v << 1) ^ (v < 0 ? UINT64_MAX : 0));
}

void ltn_pb_put_i64_field(struct ltn_buf *b, uint32_t number, uint64_t v)
{
    uint8_t head[HEAD_MAX_BYTES];
    size_t n = encode_tag(head, number, LTN_PB_I64);
    v = htole64(v);
    memcpy(head + n, &v, 8);
    put(b, head, n + 8);
}

void ltn_pb_put_f64_field(struct ltn_buf *b, uint32_t number, double v)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof(bits));
    ltn_pb_put_i64_field(b, number, bits);
}

void ltn_pb_put_i32_field(struct ltn_buf *b, uint32_t number, uint32_t v)
{
    uint8_t head[HEAD_MAX_BYTES];
    size_t n = encode_tag(head, number, LTN_PB_I32);
    v = htole32(v);
    memcpy(head + n, &v, 4);
    put(b, head, n + 4);
}

static void put_len(struct ltn_buf *b, uint32_t number, uint64_t len)
{
    uint8_t head[HEAD_MAX_BYTES];
    size_t n = encode_tag(head, number, LTN_PB_LEN);
    put(b, head, n + encode_varint(head + n, len));
}

void ltn_pb_put_bytes_field(struct ltn_buf *b, uint32_t number, const void *p, size_t n)
{
    put_len(b, number, n);
    put(b, p, n);
}

void ltn_pb_put_str_field(struct ltn_buf *b, uint32_t number, const char *s)
{
    ltn_pb_put_bytes_field(b, number, s, strlen(s));
}

void ltn_pb_put_packed_u64(struct ltn_buf *b, uint32_t number, const uint64_t *v, size_t n)
{
    size_t len = 0;
    for (size_t i = 0; i < n; i++) {
        len += ltn_pb_varint_bytes(v[i]);
    }
    if (n == 0) {
        return;
    }
    put_len(b, number, len);
    uint8_t *dst = ltn_buf_reserve(b, len);
    if (dst == NULL) {
        return;
    }
    for (size_t i = 0; i < n; i++) {
        dst += encode_varint(dst, v[i]);
    }
    ltn_buf_commit(b, len);
}

size_t ltn_pb_open(struct ltn_buf *b, uint32_t number)
{
    put_len(b, number, 0);
    return b->len;
}

void ltn_pb_close(struct ltn_buf *b, size_t mark)
{
    if (ltn_buf_error(b) != 0 || mark == 0 || mark > b->len) {
        return;
    }
    size_t body = b->len - mark;
    size_t extra = ltn_pb_varint_bytes(body) - 1;
    if (extra > 0) {
        if (ltn_buf_reserve(b, extra) == NULL) {
            return;
        }
        memmove(b->data + mark + extra, b->data + mark, body);
        ltn_buf_commit(b, extra);
    }
    (void)encode_varint((uint8_t *)b->data + mark - 1, body);
}
