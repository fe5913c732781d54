/* SPDX-License-Identifier: Apache-2.0 */
#include "otlp/value_json.h"

#include <math.h>

#include "base/err.h"
#include "otlp/read_int.h"

/* A container that is being written. */
struct open_value {
    struct ltn_pb_cur cur;
    bool object;
};

struct writer {
    struct ltn_json *j;
    size_t max_text;
    uint32_t *cut;
    struct open_value open[LTN_JSON_MAX_DEPTH];
    size_t depth;
};

size_t ltn_otlp_text_fit(const char *s, size_t n, size_t max)
{
    if (n <= max)
        return n;
    /* Back to the beginning of a character; at most three bytes of one can stand before max. */
    size_t at = max;
    while (at > 0 && max - at < 3 && ((unsigned char)s[at] & 0xc0) == 0x80)
        at--;
    return ((unsigned char)s[at] & 0xc0) == 0x80 ? max : at;
}

static void put_base64(struct ltn_json *j, const uint8_t *p, size_t n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    ltn_json_raw(j, "\"", 1);
    for (size_t i = 0; i < n; i += 3) {
        uint32_t v = (uint32_t)p[i] << 16;
        v |= i + 1 < n ? (uint32_t)p[i + 1] << 8 : 0;
        v |= i + 2 < n ? p[i + 2] : 0;
        char four[4] = {digits[v >> 18], digits[v >> 12 & 63],
                        i + 1 < n ? digits[v >> 6 & 63] : '=', i + 2 < n ? digits[v & 63] : '='};
        (void)ltn_buf_append(j->out, four, sizeof(four));
    }
    (void)ltn_buf_putc(j->out, '"');
}

static void put_double(struct ltn_json *j, double d)
{
    if (isfinite(d))
        ltn_json_f64(j, d);
    else
        ltn_json_str(j, isnan(d) ? "NaN" : d > 0 ? "Infinity" : "-Infinity");
}

static void put_text(struct writer *w, const struct ltn_otlp_value *v)
{
    size_t n = ltn_otlp_text_fit(v->str.p, v->str.n, w->max_text);
    *w->cut += n < v->str.n ? 1 : 0;
    ltn_json_strn(w->j, n > 0 ? v->str.p : "", n);
}

/* A value without members at once; of one with members the beginning. */
static int put_value(struct writer *w, const struct ltn_otlp_value *v)
{
    switch (v->type) {
    case LTN_OTLP_STRING:
        put_text(w, v);
        return 0;
    case LTN_OTLP_BOOL:
        ltn_json_bool(w->j, v->b);
        return 0;
    case LTN_OTLP_INT:
        ltn_json_i64(w->j, v->i);
        return 0;
    case LTN_OTLP_DOUBLE:
        put_double(w->j, v->d);
        return 0;
    case LTN_OTLP_BYTES:
        *w->cut += v->str.n > w->max_text ? 1 : 0;
        put_base64(w->j, (const uint8_t *)v->str.p,
                   v->str.n < w->max_text ? v->str.n : w->max_text);
        return 0;
    case LTN_OTLP_ARRAY:
    case LTN_OTLP_KVLIST:
        if (w->depth == LTN_ARRAY_SIZE(w->open))
            return LTN_ERR_DEPTH;
        struct open_value *o = &w->open[w->depth++];
        o->object = v->type == LTN_OTLP_KVLIST;
        ltn_pb_init(&o->cur, v->str.p, v->str.n, LTN_OTLP_DEPTH_CEILING);
        if (o->object)
            ltn_json_open_object(w->j);
        else
            ltn_json_open_array(w->j);
        return 0;
    case LTN_OTLP_NONE:
    default:
        ltn_json_null(w->j);
        return 0;
    }
}

static void close_value(struct writer *w)
{
    if (w->open[--w->depth].object)
        ltn_json_close_object(w->j);
    else
        ltn_json_close_array(w->j);
}

/* Keys are short by nature; what is not is cut as texts are. */
static void put_key(struct writer *w, struct ltn_otlp_str key)
{
    char text[256];
    size_t n = ltn_otlp_text_fit(key.p, key.n, sizeof(text) - 1);
    *w->cut += n < key.n ? 1 : 0;
    for (size_t i = 0; i < n; i++)
        text[i] = key.p[i] != '\0' ? key.p[i] : '?';
    text[n] = '\0';
    ltn_json_key(w->j, text);
}

/* The next member of the innermost container. */
static int put_member(struct writer *w, const struct ltn_pb_field *f)
{
    struct open_value *o = &w->open[w->depth - 1];
    struct ltn_otlp_attr a = {.key = {"", 0}};
    struct ltn_pb_cur sub;
    bool strindex = false;
    if (o->object) {
        struct ltn_otlp_attr_set one = {&a, 0, 1, -1};
        int rc = ltn_otlp_attr_read(&o->cur, f, &one);
        if (rc < 0)
            return rc;
        put_key(w, a.key);
        return put_value(w, &a.value);
    }
    int rc = ltn_pb_enter(&o->cur, f, &sub);
    if (rc == 0)
        rc = ltn_otlp_value_read(&sub, &a.value, &strindex);
    return rc < 0 ? rc : put_value(w, &a.value);
}

int ltn_otlp_value_json(struct ltn_json *j, const struct ltn_otlp_value *v, size_t max_text_bytes,
                        uint32_t *cut)
{
    struct writer w = {.j = j, .max_text = max_text_bytes, .cut = cut};
    int rc = put_value(&w, v);
    while (rc == 0 && w.depth > 0) {
        struct ltn_pb_field f;
        rc = ltn_pb_next(&w.open[w.depth - 1].cur, &f);
        if (rc == 0) {
            close_value(&w);
        } else if (rc > 0) {
            rc = 0;
            if (f.number == 1 && f.type == LTN_PB_LEN)
                rc = put_member(&w, &f);
        }
    }
    return rc;
}
