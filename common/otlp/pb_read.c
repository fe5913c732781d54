/* SPDX-License-Identifier: Apache-2.0 */
#include "otlp/pb_read.h"

#include <stdbool.h>

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
        v |= (uint64_t)(byte & 0x7f) << (7 * i); /* bits above 64 fall away */
        if (byte < 0x80) {
            *ret = v;
            return p;
        }
    }
    return NULL;
}

#define GROUP_BEGIN     3
#define GROUP_END       4
#define GROUP_DEPTH_MAX 64

/* Behind the content of a field of that wire type; NULL when malformed. */
static const uint8_t *skip_content(const uint8_t *p, const uint8_t *end, uint32_t type)
{
    uint64_t n = type == LTN_PB_I64 ? 8 : 4;
    switch (type) {
    case LTN_PB_VARINT:
        return ltn_pb_take(p, end, &n);
    case LTN_PB_LEN:
        p = ltn_pb_take(p, end, &n);
        break;
    case LTN_PB_I64:
    case LTN_PB_I32:
        break;
    default:
        return NULL;
    }
    return p != NULL && n <= (size_t)(end - p) ? p + n : NULL;
}

/* The group whose first tag was read up to p: the position behind its end, or NULL when it is
 * malformed, has no end, or nests deeper than depth_left. */
static const uint8_t *skip_group(const uint8_t *p, const uint8_t *end, uint64_t tag,
                                 uint32_t depth_left)
{
    uint32_t open[GROUP_DEPTH_MAX];
    uint32_t depth = 0;
    if (depth_left > GROUP_DEPTH_MAX) {
        depth_left = GROUP_DEPTH_MAX;
    }
    for (;;) {
        uint32_t number = (uint32_t)tag >> 3;
        uint32_t type = (uint32_t)tag & 7;
        if (type == GROUP_BEGIN && depth < depth_left) {
            open[depth++] = number;
        } else if (type == GROUP_END && depth > 0 && open[depth - 1] == number) {
            depth--;
        } else {
            p = depth > 0 ? skip_content(p, end, type) : NULL;
        }
        if (p == NULL || depth == 0) {
            return p;
        }
        p = ltn_pb_take(p, end, &tag);
        if (p == NULL || tag > UINT32_MAX || tag < 8) {
            return NULL;
        }
    }
}

int ltn_pb_next_past_groups(const uint8_t *p, const uint8_t *end, uint32_t depth_left,
                            struct ltn_pb_field *ret_f, const uint8_t **ret_p)
{
    struct ltn_pb_cur c = {p, end, depth_left};
    bool skipped = false;
    *ret_p = p;
    for (;;) {
        uint64_t tag = 0;
        p = c.p != end ? ltn_pb_take(c.p, end, &tag) : c.p;
        if (p == NULL || tag > UINT32_MAX || (tag != 0 && tag < 8)) {
            return LTN_ERR_MALFORMED;
        }
        if ((tag & 7) != GROUP_BEGIN) {
            break;
        }
        c.p = skip_group(p, end, tag, depth_left);
        if (c.p == NULL) {
            return LTN_ERR_MALFORMED;
        }
        skipped = true;
    }
    if (!skipped) {
        return LTN_ERR_MALFORMED; /* another tag that begins no field */
    }
    /* No group follows, so this does not come here again but to be refused. */
    int rc = ltn_pb_next(&c, ret_f);
    if (rc >= 0) {
        *ret_p = c.p;
    }
    return rc;
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
