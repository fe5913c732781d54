/* SPDX-License-Identifier: Apache-2.0 */
#include "otlp/model.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "base/text.h"

/* Longest decimal number looked at. */
#define NUMBER_MAX_BYTES 64

const struct ltn_otlp_attr *ltn_otlp_find(struct ltn_otlp_attrs attrs, const char *key)
{
    for (size_t i = 0; i < attrs.n; i++) {
        if (ltn_otlp_str_eq(attrs.items[i].key, key)) {
            return &attrs.items[i];
        }
    }
    return NULL;
}

/* Copies a string view for the number parsers; false when it is too long or holds a NUL. */
static bool number_text(struct ltn_otlp_str s, char dst[NUMBER_MAX_BYTES])
{
    if (s.n == 0 || s.n >= NUMBER_MAX_BYTES || memchr(s.p, '\0', s.n) != NULL) {
        return false;
    }
    memcpy(dst, s.p, s.n);
    dst[s.n] = '\0';
    return true;
}

bool ltn_otlp_get_str(struct ltn_otlp_attrs attrs, const char *key, struct ltn_otlp_str *ret)
{
    const struct ltn_otlp_attr *a = ltn_otlp_find(attrs, key);
    if (a == NULL || a->value.type != LTN_OTLP_STRING) {
        return false;
    }
    *ret = a->value.str;
    return true;
}

bool ltn_otlp_get_i64(struct ltn_otlp_attrs attrs, const char *key, int64_t *ret)
{
    const struct ltn_otlp_attr *a = ltn_otlp_find(attrs, key);
    char text[NUMBER_MAX_BYTES];
    if (a == NULL) {
        return false;
    }
    switch (a->value.type) {
    case LTN_OTLP_INT:
        *ret = a->value.i;
        return true;
    case LTN_OTLP_BOOL:
        *ret = a->value.b ? 1 : 0;
        return true;
    case LTN_OTLP_DOUBLE:
        /* The comparison also refuses NaN; 2^63 itself does not fit. */
        if (!(a->value.d >= -0x1p63 && a->value.d < 0x1p63) || trunc(a->value.d) != a->value.d) {
            return false;
        }
        *ret = (int64_t)a->value.d;
        return true;
    case LTN_OTLP_STRING:
        return number_text(a->value.str, text) && ltn_parse_i64(text, ret);
    default:
        return false;
    }
}

bool ltn_otlp_get_f64(struct ltn_otlp_attrs attrs, const char *key, double *ret)
{
    const struct ltn_otlp_attr *a = ltn_otlp_find(attrs, key);
    char text[NUMBER_MAX_BYTES];
    if (a == NULL) {
        return false;
    }
    switch (a->value.type) {
    case LTN_OTLP_INT:
        *ret = (double)a->value.i;
        return true;
    case LTN_OTLP_DOUBLE:
        *ret = a->value.d;
        return true;
    case LTN_OTLP_STRING:
        return number_text(a->value.str, text) && ltn_parse_f64(text, ret);
    default:
        return false;
    }
}

bool ltn_otlp_get_bool(struct ltn_otlp_attrs attrs, const char *key, bool *ret)
{
    const struct ltn_otlp_attr *a = ltn_otlp_find(attrs, key);
    if (a == NULL) {
        return false;
    }
    if (a->value.type == LTN_OTLP_BOOL) {
        *ret = a->value.b;
        return true;
    }
    bool yes = a->value.type == LTN_OTLP_STRING && ltn_otlp_str_eq(a->value.str, "true");
    bool no = a->value.type == LTN_OTLP_STRING && ltn_otlp_str_eq(a->value.str, "false");
    if (yes || no) {
        *ret = yes;
    }
    return yes || no;
}

char *ltn_otlp_value_text(const struct ltn_otlp_value *v, char *dst, size_t size)
{
    char text[NUMBER_MAX_BYTES] = "";
    if (size == 0) {
        return dst;
    }
    switch (v->type) {
    case LTN_OTLP_STRING:
        ltn_text_clean(dst, size, v->str.p, v->str.n);
        return dst;
    case LTN_OTLP_BOOL:
        (void)snprintf(text, sizeof(text), "%s", v->b ? "true" : "false");
        break;
    case LTN_OTLP_INT:
        (void)snprintf(text, sizeof(text), "%" PRId64, v->i);
        break;
    case LTN_OTLP_DOUBLE:
        (void)snprintf(text, sizeof(text), "%.15g", v->d);
        break;
    case LTN_OTLP_ARRAY:
        (void)snprintf(text, sizeof(text), "[…]");
        break;
    case LTN_OTLP_KVLIST:
    case LTN_OTLP_BYTES:
        (void)snprintf(text, sizeof(text), "{…}");
        break;
    case LTN_OTLP_NONE:
        break;
    }
    ltn_text_clean(dst, size, text, strlen(text));
    return dst;
}
