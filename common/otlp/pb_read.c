/* SPDX-License-Identifier: Apache-2.0 */
#include "otlp/pb_read.h"

#define VARINT_MAX_BYTES 10

void ltn_pb_init(struct ltn_pb_cur *c, const void *data, size_t n, uint32_t max_depth)
{
    static const uint8_t nothing[1];
    c->p = data != NULL ? data : nothing;
    c->end = c->p + (data != NULL ? n : 0);
    c->depth_left = max_depth > 0 ? max_depth - 1 : 0;
}

const uint8_t *ltn_pb_take_slow(const uint8_t *p, const uint8_t *end, uint64_t *ret)
{
    uint64_t v = 0;
    for (unsigned i = 0; i < VARINT_MAX_BYTES && p < end; i++) {
        uint8_t byte = *p++;
        if (i == VARINT_MAX_BYTES - 1 && byte > 1) {
            break;
        }
        v |= (uint64_t)(byte & 0x7f) << (7 * i);
        if (byte < 0x80) {
            *ret = v;
            return p;
        }
    }
    return NULL;
}

/* One element of a packed run; NULL when malformed. */
static const uint8_t *take(const uint8_t *p, const uint8_t *end, enum ltn_pb_type elem,
                           uint64_t *ret)
{
    uint32_t fixed32;
    if (elem == LTN_PB_VARINT) {
        return ltn_pb_take(p, end, ret);
    }
    if (elem == LTN_PB_I64) {
        memcpy(ret, p, 8);
        *ret = le64toh(*ret);
        return p + 8;
    }
    memcpy(&fixed32, p, 4);
    *ret = le32toh(fixed32);
    return p + 4;
}

int ltn_pb_repeated(const struct ltn_pb_field *f, enum ltn_pb_type elem, uint64_t *out, size_t max,
                    size_t *n)
{
    if (f->type == elem && elem != LTN_PB_LEN) {
        if (*n >= max) {
            return LTN_ERR_COUNT;
        }
        out[(*n)++] = f->value;
        return 0;
    }
    size_t elem_bytes = elem == LTN_PB_I64 ? 8 : elem == LTN_PB_I32 ? 4 : 1;
    if (f->type != LTN_PB_LEN || elem == LTN_PB_LEN || f->value % elem_bytes != 0) {
        return LTN_ERR_MALFORMED;
    }
    const uint8_t *p = f->data;
    const uint8_t *end = p + f->value;
    while (p < end) {
        uint64_t v;
        p = take(p, end, elem, &v);
        if (p == NULL) {
            return LTN_ERR_MALFORMED;
        }
        if (*n >= max) {
            return LTN_ERR_COUNT;
        }
        out[(*n)++] = v;
    }
    return 0;
}
