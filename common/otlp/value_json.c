/* SPDX-License-Identifier: Apache-2.0 */
#include "otlp/value_json.h"

#include "base/err.h"
#include "base/json.h"
#include "otlp/read_int.h"

/* An ArrayValue or KeyValueList on its way out. */
struct frame {
    struct ltn_pb_cur cur;
    bool list; /* of keys and values */
};

static void put_base64(struct ltn_json *j, struct ltn_otlp_str s)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    struct ltn_buf b;
    ltn_buf_init(&b, (size_t)1 << 20);
    for (size_t i = 0; i < s.n && ltn_buf_error(&b) == 0; i += 3) {
        uint32_t v = 0;
        size_t n = s.n - i < 3 ? s.n - i : 3;
        for (size_t k = 0; k < 3; k++) {
            v = v << 8 | (k < n ? (unsigned char)s.p[i + k] : 0);
        }
        for (size_t k = 0; k < 4; k++) {
            (void)ltn_buf_putc(&b, k <= n ? digits[v >> (18 - 6 * k) & 63] : '=');
        }
    }
    ltn_json_strn(j, ltn_buf_str(&b), b.len);
    ltn_buf_done(&b);
}

/* Writes a value that holds no others. */
static void put_plain(struct ltn_json *j, const struct ltn_otlp_value *v)
{
    switch (v->type) {
    case LTN_OTLP_STRING:
        ltn_json_strn(j, v->str.p != NULL ? v->str.p : "", v->str.n);
        break;
    case LTN_OTLP_BOOL:
        ltn_json_bool(j, v->b);
        break;
    case LTN_OTLP_INT:
        ltn_json_i64(j, v->i);
        break;
    case LTN_OTLP_DOUBLE:
        ltn_json_f64(j, v->d);
        break;
    case LTN_OTLP_BYTES:
        put_base64(j, v->str);
        break;
    default:
        ltn_json_null(j);
    }
}

/* The value of one element of the frame, its key written before. 0 or the reader's error. */
static int next_value(struct ltn_json *j, const struct frame *f, const struct ltn_pb_field *field,
                      struct ltn_otlp_value *v)
{
    struct ltn_pb_cur sub, value;
    struct ltn_pb_field part;
    struct ltn_otlp_str key = {"", 0};
    bool strindex = false;
    int rc = ltn_pb_enter(&f->cur, field, &sub);
    *v = (struct ltn_otlp_value){.type = LTN_OTLP_NONE};
    if (rc < 0 || !f->list) {
        return rc < 0 ? rc : ltn_otlp_value_read(&sub, v, &strindex);
    }
    while ((rc = ltn_pb_next(&sub, &part)) > 0) {
        if (part.type != LTN_PB_LEN) {
            continue;
        }
        if (part.number == 1) {
            key = ltn_otlp_field_str(&part);
        } else if (part.number == 2) {
            rc = ltn_pb_enter(&sub, &part, &value);
            if (rc < 0 || (rc = ltn_otlp_value_read(&value, v, &strindex)) < 0) {
                return rc;
            }
        }
    }
    ltn_json_strn(j, key.p != NULL ? key.p : "", key.n);
    (void)ltn_buf_putc(j->out, ':');
    j->after_key = true;
    return rc;
}

static void open_frame(struct ltn_json *j, struct frame *f, const struct ltn_otlp_value *v)
{
    f->list = v->type == LTN_OTLP_KVLIST;
    if (f->list) {
        ltn_json_open_object(j);
    } else {
        ltn_json_open_array(j);
    }
}

static int put_nested(struct ltn_json *j, const struct ltn_otlp_value *top)
{
    struct frame stack[LTN_OTLP_DEPTH_CEILING];
    size_t depth = 0;
    ltn_pb_init(&stack[0].cur, top->str.p, top->str.n, LTN_OTLP_DEPTH_CEILING);
    open_frame(j, &stack[0], top);
    for (;;) {
        struct frame *f = &stack[depth];
        struct ltn_otlp_value v;
        struct ltn_pb_field field;
        int rc = ltn_pb_next(&f->cur, &field);
        if (rc > 0 && (field.number != 1 || field.type != LTN_PB_LEN)) {
            continue;
        }
        rc = rc > 0 ? next_value(j, f, &field, &v) < 0 ? LTN_ERR_MALFORMED : 1 : rc;
        if (rc < 0 || ltn_buf_error(j->out) != 0) {
            return rc < 0 ? rc : ltn_buf_error(j->out);
        }
        if (rc == 0) {
            if (f->list) {
                ltn_json_close_object(j);
            } else {
                ltn_json_close_array(j);
            }
            if (depth-- == 0) {
                return 0;
            }
        } else if (v.type != LTN_OTLP_ARRAY && v.type != LTN_OTLP_KVLIST) {
            put_plain(j, &v);
        } else if (depth + 1 == LTN_ARRAY_SIZE(stack) || f->cur.depth_left < 2) {
            return LTN_ERR_DEPTH;
        } else {
            ltn_pb_init(&stack[depth + 1].cur, v.str.p, v.str.n, f->cur.depth_left - 2);
            open_frame(j, &stack[++depth], &v);
        }
    }
}

int ltn_otlp_value_json(const struct ltn_otlp_value *v, struct ltn_buf *out)
{
    struct ltn_json j;
    ltn_json_init(&j, out);
    if (v->type == LTN_OTLP_ARRAY || v->type == LTN_OTLP_KVLIST) {
        int rc = put_nested(&j, v);
        return rc != 0 ? rc : ltn_buf_error(out);
    }
    put_plain(&j, v);
    return ltn_buf_error(out);
}
