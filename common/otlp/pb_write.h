/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writer of the protobuf wire format into a ltn_buf. Errors stick in the buffer: append at will and
 * look at ltn_buf_error() once. Lengths of nested messages are patched in when the message is
 * closed and always take their shortest form. One thread per buffer.
 *
 * The _field functions always write; proto3 leaves zero values out, which is up to the caller.
 */
#ifndef LTN_OTLP_PB_WRITE_H
#define LTN_OTLP_PB_WRITE_H

#include <stddef.h>
#include <stdint.h>

#include "base/attr.h"
#include "base/buf.h"

/* Bytes of v as a varint: 1..10. */
size_t ltn_pb_varint_bytes(uint64_t v);

/* A bare varint, for packed content. */
void ltn_pb_put_varint(struct ltn_buf *b, uint64_t v);

void ltn_pb_put_u64_field(struct ltn_buf *b, uint32_t number, uint64_t v);
void ltn_pb_put_sint_field(struct ltn_buf *b, uint32_t number, int64_t v); /* zigzag */
void ltn_pb_put_i64_field(struct ltn_buf *b, uint32_t number, uint64_t v); /* fixed64, sfixed64 */
void ltn_pb_put_f64_field(struct ltn_buf *b, uint32_t number, double v);
void ltn_pb_put_i32_field(struct ltn_buf *b, uint32_t number, uint32_t v); /* fixed32, float */
void ltn_pb_put_bytes_field(struct ltn_buf *b, uint32_t number, const void *p, size_t n);
void ltn_pb_put_str_field(struct ltn_buf *b, uint32_t number, const char *s);

/* Packed varints: one LEN field, its length computed first. Nothing when n is 0. */
void ltn_pb_put_packed_u64(struct ltn_buf *b, uint32_t number, const uint64_t *v, size_t n);

/* Opens a nested message and returns its mark for ltn_pb_close. Messages close in reverse order. On
 * a buffer in error both do nothing. */
size_t ltn_pb_open(struct ltn_buf *b, uint32_t number);
void ltn_pb_close(struct ltn_buf *b, size_t mark);

#endif /* LTN_OTLP_PB_WRITE_H */
