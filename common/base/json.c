/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/text.h"

void ltn_json_init(struct ltn_json *j, struct ltn_buf *out)
{
    *j = (struct ltn_json){.out = out};
}

/* Writes the comma that separates a value from the one before it, where one is due. */
static void before_value(struct ltn_json *j)
{
    if (j->after_key) {
        j->after_key = false;
        return;
    }
    if (j->depth == 0) {
        return;
    }
    bool *has_member = &j->has_member[(j->depth - 1) % LTN_JSON_MAX_DEPTH];
    if (*has_member) {
        (void)ltn_buf_putc(j->out, ',');
    }
    *has_member = true;
}

static void open_level(struct ltn_json *j, char bracket)
{
    before_value(j);
    (void)ltn_buf_putc(j->out, bracket);
    if (j->depth >= LTN_JSON_MAX_DEPTH && j->out->error == 0) {
        j->out->error = LTN_ERR_DEPTH;
    }
    j->has_member[j->depth % LTN_JSON_MAX_DEPTH] = false;
    j->depth++;
}

static void close_level(struct ltn_json *j, char bracket)
{
    j->depth--;
    (void)ltn_buf_putc(j->out, bracket);
}

void ltn_json_open_object(struct ltn_json *j)
{
    open_level(j, '{');
}

void ltn_json_close_object(struct ltn_json *j)
{
    close_level(j, '}');
}

void ltn_json_open_array(struct ltn_json *j)
{
    open_level(j, '[');
}

void ltn_json_close_array(struct ltn_json *j)
{
    close_level(j, ']');
}

static void put_escaped(struct ltn_buf *out, const char *s, size_t n)
{
    (void)ltn_buf_putc(out, '"');
    for (size_t i = 0; i < n;) {
        unsigned char c = (unsigned char)s[i];
        size_t len = 1;
        if (c == '"' || c == '\\') {
            const char esc[2] = {'\\', (char)c};
            (void)ltn_buf_append(out, esc, sizeof(esc));
        } else if (c == '\n') {
            (void)ltn_buf_puts(out, "\\n");
        } else if (c == '\t') {
            (void)ltn_buf_puts(out, "\\t");
        } else if (c < 0x20 || c == 0x7f) {
            (void)ltn_buf_printf(out, "\\u%04x", c);
        } else {
            len = ltn_utf8_len(s + i, n - i);
            if (len == 0) {
                (void)ltn_buf_puts(out, "\xef\xbf\xbd");
                len = 1;
            } else {
                (void)ltn_buf_append(out, s + i, len);
            }
        }
        i += len;
    }
    (void)ltn_buf_putc(out, '"');
}

void ltn_json_key(struct ltn_json *j, const char *key)
{
    before_value(j);
    put_escaped(j->out, key, strlen(key));
    (void)ltn_buf_putc(j->out, ':');
    j->after_key = true;
}

void ltn_json_strn(struct ltn_json *j, const char *s, size_t n)
{
    before_value(j);
    put_escaped(j->out, s, n);
}

void ltn_json_str(struct ltn_json *j, const char *s)
{
    if (s == NULL) {
        ltn_json_null(j);
        return;
    }
    ltn_json_strn(j, s, strlen(s));
}

void ltn_json_i64(struct ltn_json *j, int64_t v)
{
    before_value(j);
    (void)ltn_buf_printf(j->out, "%" PRId64, v);
}

void ltn_json_u64(struct ltn_json *j, uint64_t v)
{
    before_value(j);
    (void)ltn_buf_printf(j->out, "%" PRIu64, v);
}

void ltn_json_f64(struct ltn_json *j, double v)
{
    if (!isfinite(v)) {
        ltn_json_null(j);
        return;
    }
    before_value(j);
    /* The shorter form where it reads back as the same number, else all 17 digits. */
    char text[40];
    (void)snprintf(text, sizeof(text), "%.12g", v);
    double back = 0;
    if (!ltn_parse_f64(text, &back) || back < v || back > v) {
        (void)snprintf(text, sizeof(text), "%.17g", v);
    }
    (void)ltn_buf_puts(j->out, text);
}

void ltn_json_bool(struct ltn_json *j, bool v)
{
    before_value(j);
    (void)ltn_buf_puts(j->out, v ? "true" : "false");
}

void ltn_json_null(struct ltn_json *j)
{
    before_value(j);
    (void)ltn_buf_puts(j->out, "null");
}

void ltn_json_kv_str(struct ltn_json *j, const char *key, const char *s)
{
    ltn_json_key(j, key);
    ltn_json_str(j, s);
}

void ltn_json_kv_i64(struct ltn_json *j, const char *key, int64_t v)
{
    ltn_json_key(j, key);
    ltn_json_i64(j, v);
}

void ltn_json_kv_u64(struct ltn_json *j, const char *key, uint64_t v)
{
    ltn_json_key(j, key);
    ltn_json_u64(j, v);
}

void ltn_json_kv_f64(struct ltn_json *j, const char *key, double v)
{
    ltn_json_key(j, key);
    ltn_json_f64(j, v);
}

void ltn_json_kv_bool(struct ltn_json *j, const char *key, bool v)
{
    ltn_json_key(j, key);
    ltn_json_bool(j, v);
}

void ltn_json_kv_time(struct ltn_json *j, const char *key, const char *key_ns, uint64_t unix_ns)
{
    char text[LTN_RFC3339_BYTES];
    ltn_format_rfc3339(unix_ns, text);
    ltn_json_kv_str(j, key, unix_ns != 0 ? text : NULL);
    ltn_json_key(j, key_ns);
    if (unix_ns != 0) {
        ltn_json_u64(j, unix_ns);
    } else {
        ltn_json_null(j);
    }
}

void ltn_json_raw(struct ltn_json *j, const char *text, size_t n)
{
    before_value(j);
    (void)ltn_buf_append(j->out, text, n);
}
