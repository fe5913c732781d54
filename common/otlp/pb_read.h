/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reader of the protobuf wire format over borrowed bytes: no copies, no allocation, no recursion.
 * The depth that is left is part of the cursor, so that it cannot be forgotten. A cursor belongs to
 * one thread; the bytes must outlive it and everything read through it.
 *
 * Refused as LTN_ERR_MALFORMED: varints of more than 10 bytes (bits above 64 fall away, as in
 * Google's library), field number 0 or
 * above 2^29-1, wire types 6 and 7, groups that do not end, and lengths beyond the end. Groups,
 * which no message here has, are skipped; they nest no deeper than messages may.
 */
#ifndef LTN_OTLP_PB_READ_H
#define LTN_OTLP_PB_READ_H

#include <endian.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/attr.h"
#include "base/err.h"

enum ltn_pb_type {
    LTN_PB_VARINT = 0,
    LTN_PB_I64 = 1,
    LTN_PB_LEN = 2,
    LTN_PB_I32 = 5,
};

/* Default nesting limit, the outermost message counting as the first level. */
#define LTN_PB_DEPTH_DEFAULT 32

struct ltn_pb_cur {
    const uint8_t *p;
    const uint8_t *end;
    uint32_t depth_left; /* how many messages may still be entered below this one */
};

/* number and type stand apart on purpose: side by side, compilers test both with one wide load of
 * what was stored in two halves, which stalls the processor. */
struct ltn_pb_field {
    uint32_t number;
    uint64_t value;      /* the number (VARINT, I64, I32), or the length in bytes (LEN) */
    const uint8_t *data; /* LEN: the content, borrowed; else NULL */
    uint32_t type;       /* enum ltn_pb_type */
};

/* Starts at the outermost message of n bytes, with max_depth levels (at least 1) in all. data may
 * be NULL when n is 0. */
void ltn_pb_init(struct ltn_pb_cur *c, const void *data, size_t n, uint32_t max_depth);

/* A repeated number field, packed or not: appends the values of f to out, which holds *n of max
 * items, as raw 64-bit patterns. elem is the wire type of one element. LTN_ERR_MALFORMED when a
 * packed length is no multiple of the element size or f has neither form; LTN_ERR_COUNT when out is
 * full (*n is then max). */
int ltn_pb_repeated(const struct ltn_pb_field *f, enum ltn_pb_type elem, uint64_t *out, size_t max,
                    size_t *n) ltn_must_check;

/* Meaning of a 64-bit pattern. */
static inline double ltn_pb_f64(uint64_t bits)
{
    double d;
    memcpy(&d, &bits, sizeof(d));
    return d;
}

static inline int32_t ltn_pb_sint32(uint64_t v)
{
    uint32_t u = (uint32_t)v;
    return (int32_t)((u >> 1) ^ (0u - (u & 1u)));
}

/* The reader's inner functions are inline because a decoder does little else; this also lets the
 * position stay in a register. */
/* The general case of ltn_pb_take: NULL when malformed. */
const uint8_t *ltn_pb_take_slow(const uint8_t *p, const uint8_t *end, uint64_t *ret) ltn_must_check;

/* One varint at p, not beyond end. The position behind it, or NULL when it is malformed. */
static inline ltn_must_check const uint8_t *ltn_pb_take(const uint8_t *p, const uint8_t *end,
                                                        uint64_t *ret)
{
    if (p < end && *p < 0x80) {
        *ret = *p;
        return p + 1;
    }
    /* Two bytes are common too: field numbers above 15, texts of 128 bytes and more. */
    if (end - p >= 2 && p[1] < 0x80) {
        *ret = (uint64_t)(p[0] & 0x7f) | (uint64_t)p[1] << 7;
        return p + 2;
    }
    uint64_t value = 0;
    p = ltn_pb_take_slow(p, end, &value);
    *ret = value;
    return p;
}

/* The rare case of ltn_pb_next, apart so that the common one stays small: skips the groups at p and
 * reads the field behind them. *ret_p is the position behind it, p on error. */
int ltn_pb_next_past_groups(const uint8_t *p, const uint8_t *end, uint32_t depth_left,
                            struct ltn_pb_field *ret_f, const uint8_t **ret_p) ltn_must_check;

/* Reads the next field into *ret_f. 1 a field, 0 the end, LTN_ERR_MALFORMED (the cursor then stays
 * where it is and *ret_f has no meaning). Always inline: left to itself the compiler makes one
 * function of it in each reader, which costs them a third of their speed. */
static inline __attribute__((always_inline)) ltn_must_check int
ltn_pb_next(struct ltn_pb_cur *c, struct ltn_pb_field *ret_f)
{
    const uint8_t *p = c->p;
    const uint8_t *end = c->end;
    uint64_t tag, value;
    if (p == end) {
        return 0;
    }
    p = ltn_pb_take(p, end, &tag);
    if (p == NULL || tag > UINT32_MAX || tag < 8) {
        return LTN_ERR_MALFORMED;
    }
    /* Straight into *ret_f: a copy of a struct that was just written in pieces stalls the
     * processor. */
    ret_f->number = (uint32_t)tag >> 3;
    ret_f->type = (uint32_t)tag & 7;
    ret_f->data = NULL;
    switch (tag & 7) {
    case LTN_PB_LEN:
        p = ltn_pb_take(p, end, &value);
        if (p == NULL || value > (size_t)(end - p)) {
            return LTN_ERR_MALFORMED;
        }
        ret_f->data = p;
        p += value;
        break;
    case LTN_PB_VARINT:
        p = ltn_pb_take(p, end, &value);
        if (p == NULL) {
            return LTN_ERR_MALFORMED;
        }
        break;
    case LTN_PB_I64:
        if (end - p < 8) {
            return LTN_ERR_MALFORMED;
        }
        memcpy(&value, p, 8);
        value = le64toh(value);
        p += 8;
        break;
    case LTN_PB_I32: {
        uint32_t fixed32;
        if (end - p < 4) {
            return LTN_ERR_MALFORMED;
        }
        memcpy(&fixed32, p, 4);
        value = le32toh(fixed32);
        p += 4;
        break;
    }
    default: {
        const uint8_t *behind;
        int rc = ltn_pb_next_past_groups(c->p, end, c->depth_left, ret_f, &behind);
        c->p = behind;
        return rc;
    }
    }
    ret_f->value = value;
    c->p = p;
    return 1;
}

/* Starts at the message in a LEN field of c. LTN_ERR_DEPTH when no level is left, LTN_ERR_MALFORMED
 * when the field is not LEN. */
static inline ltn_must_check int
ltn_pb_enter(const struct ltn_pb_cur *c, const struct ltn_pb_field *f, struct ltn_pb_cur *ret_sub)
{
    if (f->type != LTN_PB_LEN) {
        return LTN_ERR_MALFORMED;
    }
    if (c->depth_left == 0) {
        return LTN_ERR_DEPTH;
    }
    ret_sub->p = f->data;
    ret_sub->end = f->data + f->value;
    ret_sub->depth_left = c->depth_left - 1;
    return 0;
}

#endif /* LTN_OTLP_PB_READ_H */
