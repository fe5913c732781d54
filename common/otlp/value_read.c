/* SPDX-License-Identifier: Apache-2.0 */
/* Attributes and values from the wire. */
#include <string.h>

#include "base/err.h"
#include "base/text.h"
#include "otlp/read_int.h"

bool ltn_otlp_text_ok(const uint8_t *p, size_t n)
{
    uint64_t high = 0;
    size_t i = 0;
    for (; n - i >= 8; i += 8) {
        uint64_t word;
        memcpy(&word, p + i, 8);
        high |= word;
    }
    for (; i < n; i++) {
        high |= p[i];
    }
    return (high & 0x8080808080808080ULL) == 0 || ltn_utf8_valid((const char *)p, n);
}

/* Messages that make up a nested value. */
enum nested { ANY_VALUE, ARRAY_VALUE, KVLIST_VALUE, KEY_VALUE };

struct nested_frame {
    struct ltn_pb_cur cur;
    enum nested kind;
};

/* Which message a LEN field of a nested message holds; false when it is none that matters here. */
static bool nested_child(enum nested kind, uint32_t number, enum nested *ret)
{
    switch (kind) {
    case ANY_VALUE:
        *ret = number == 5 ? ARRAY_VALUE : KVLIST_VALUE;
        return number == 5 || number == 6;
    case ARRAY_VALUE:
        *ret = ANY_VALUE;
        return number == 1;
    case KVLIST_VALUE:
        *ret = KEY_VALUE;
        return number == 1;
    case KEY_VALUE:
        *ret = ANY_VALUE;
        return number == 2;
    }
    return false;
}

static bool is_strindex(enum nested kind, const struct ltn_pb_field *f)
{
    return f->type == LTN_PB_VARINT &&
           ((kind == ANY_VALUE && f->number == 8) ||
            (kind == KEY_VALUE && f->number == 3 && (uint32_t)f->value != 0));
}

/* Walks a nested value to its leaves to see that it is well formed and not too deep. The stack
 * cannot overflow: a cursor enters fewer than LTN_OTLP_DEPTH_CEILING messages. */
static int check_nested(struct ltn_pb_cur top, enum nested kind, bool *strindex)
{
    struct nested_frame stack[LTN_OTLP_DEPTH_CEILING];
    size_t depth = 0;
    stack[0] = (struct nested_frame){top, kind};
    for (;;) {
        struct nested_frame *frame = &stack[depth];
        struct ltn_pb_field f;
        enum nested child;
        int rc = ltn_pb_next(&frame->cur, &f);
        if (rc < 0) {
            return rc;
        }
        if (rc == 0) {
            if (depth == 0) {
                return 0;
            }
            depth--;
            continue;
        }
        if (is_strindex(frame->kind, &f)) {
            *strindex = true;
        }
        if (f.type != LTN_PB_LEN || !nested_child(frame->kind, f.number, &child)) {
            continue;
        }
        if (depth + 1 == LTN_ARRAY_SIZE(stack)) {
            return LTN_ERR_DEPTH;
        }
        rc = ltn_pb_enter(&frame->cur, &f, &stack[depth + 1].cur);
        if (rc < 0) {
            return rc;
        }
        stack[++depth].kind = child;
    }
}

static int read_nested(const struct ltn_pb_cur *c, const struct ltn_pb_field *f,
                       struct ltn_otlp_value *v, bool *strindex)
{
    struct ltn_pb_cur sub;
    bool array = f->number == 5;
    int rc = ltn_pb_enter(c, f, &sub);
    if (rc < 0) {
        return rc;
    }
    *v = (struct ltn_otlp_value){.type = array ? LTN_OTLP_ARRAY : LTN_OTLP_KVLIST,
                                 .str = ltn_otlp_field_str(f)};
    return check_nested(sub, array ? ARRAY_VALUE : KVLIST_VALUE, strindex);
}

int ltn_otlp_value_read(struct ltn_pb_cur *c, struct ltn_otlp_value *v, bool *strindex)
{
    struct ltn_pb_field f;
    int rc;
    while ((rc = ltn_pb_next(c, &f)) > 0) {
        /* Field and wire type together; a known number in a wrong type counts as unknown. */
        switch (f.number << 3 | f.type) {
        case 1 << 3 | LTN_PB_LEN:
            *v = (struct ltn_otlp_value){.type = LTN_OTLP_STRING};
            v->str = ltn_otlp_field_text(&f, &v->bad_utf8);
            break;
        case 2 << 3 | LTN_PB_VARINT:
            *v = (struct ltn_otlp_value){.type = LTN_OTLP_BOOL, .b = f.value != 0};
            break;
        case 3 << 3 | LTN_PB_VARINT:
            *v = (struct ltn_otlp_value){.type = LTN_OTLP_INT, .i = (int64_t)f.value};
            break;
        case 4 << 3 | LTN_PB_I64:
            *v = (struct ltn_otlp_value){.type = LTN_OTLP_DOUBLE, .d = ltn_pb_f64(f.value)};
            break;
        case 5 << 3 | LTN_PB_LEN:
        case 6 << 3 | LTN_PB_LEN:
            rc = read_nested(c, &f, v, strindex);
            if (rc < 0) {
                return rc;
            }
            break;
        case 7 << 3 | LTN_PB_LEN:
            *v = (struct ltn_otlp_value){.type = LTN_OTLP_BYTES, .str = ltn_otlp_field_str(&f)};
            break;
        case 8 << 3 | LTN_PB_VARINT:
            *strindex = true;
            break;
        default:
            break;
        }
    }
    return rc;
}

int ltn_otlp_attr_read(const struct ltn_pb_cur *c, const struct ltn_pb_field *f,
                       struct ltn_otlp_attr_set *set)
{
    struct ltn_pb_cur kv;
    struct ltn_pb_field part;
    bool strindex = false;
    int rc = ltn_pb_enter(c, f, &kv);
    if (rc < 0) {
        return rc;
    }
    if (set->n == set->max) {
        set->reject = LTN_OTLP_REJECT_ATTRS;
        return 0;
    }
    struct ltn_otlp_attr *a = &set->items[set->n++];
    *a = (struct ltn_otlp_attr){.key = {"", 0}};
    while ((rc = ltn_pb_next(&kv, &part)) > 0) {
        if (part.type == LTN_PB_LEN && part.number == 1) {
            a->key_bad_utf8 = false;
            a->key = ltn_otlp_field_text(&part, &a->key_bad_utf8);
        } else if (part.type == LTN_PB_LEN && part.number == 2) {
            struct ltn_pb_cur value;
            rc = ltn_pb_enter(&kv, &part, &value);
            if (rc < 0 || (rc = ltn_otlp_value_read(&value, &a->value, &strindex)) < 0) {
                return rc;
            }
        } else if (part.type == LTN_PB_VARINT && part.number == 3) {
            strindex = strindex || (uint32_t)part.value != 0;
        }
    }
    if (strindex && set->reject < 0) {
        set->reject = LTN_OTLP_REJECT_STRINDEX;
    }
    return rc;
}
