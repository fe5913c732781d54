/* SPDX-License-Identifier: Apache-2.0 */
#include "otlp/write_int.h"

#include "base/text.h"
#include "otlp/pb_write.h"

/* Closing a level widens its length by 4 bytes at most (2^35 bytes); there are at most 4 levels. */
#define CLOSE_MARGIN_BYTES 16

void ltn_otlp_take_back(struct ltn_buf *b, size_t len)
{
    b->len = len;
    b->error = 0;
    if (b->data != NULL) {
        b->data[len] = '\0';
    }
}

int ltn_otlp_settle(struct ltn_buf *b, size_t start)
{
    int rc = ltn_buf_error(b);
    /* The margin is allocated now, so that closing can neither run out of room nor of memory. */
    if (rc == 0 && ltn_buf_reserve(b, CLOSE_MARGIN_BYTES) == NULL) {
        rc = ltn_buf_error(b);
    }
    if (rc < 0) {
        ltn_otlp_take_back(b, start);
    }
    return rc;
}

void ltn_otlp_level_open(struct ltn_buf *b, struct ltn_otlp_level *level, uint32_t number)
{
    level->start = b->len;
    level->mark = ltn_pb_open(b, number);
    level->members = 0;
    level->open = true;
}

void ltn_otlp_levels_close(struct ltn_buf *b, struct ltn_otlp_level *levels, size_t first, size_t n)
{
    for (size_t i = n; i-- > first;) {
        struct ltn_otlp_level *level = &levels[i];
        if (!level->open || ltn_buf_error(b) != 0) {
            level->open = false;
            continue;
        }
        if (level->members == 0) {
            ltn_otlp_take_back(b, level->start);
        } else {
            ltn_pb_close(b, level->mark);
            if (i > 0) {
                levels[i - 1].members = 1;
            }
        }
        level->open = false;
    }
}

void ltn_otlp_put_text(struct ltn_buf *b, uint32_t number, struct ltn_otlp_str s)
{
    size_t start = b->len;
    ltn_pb_put_bytes_field(b, number, s.p, s.n);
    if (s.n == 0 || ltn_buf_error(b) != 0 || b->len < start + s.n || ltn_utf8_valid(s.p, s.n)) {
        return;
    }
    char *text = b->data + b->len - s.n;
    for (size_t i = 0; i < s.n;) {
        size_t len = ltn_utf8_len(text + i, s.n - i);
        if (len == 0) {
            text[i] = '?';
            len = 1;
        }
        i += len;
    }
}

void ltn_otlp_put_text_opt(struct ltn_buf *b, uint32_t number, struct ltn_otlp_str s)
{
    if (s.n > 0) {
        ltn_otlp_put_text(b, number, s);
    }
}

void ltn_otlp_put_value(struct ltn_buf *b, uint32_t number, const struct ltn_otlp_value *v)
{
    size_t mark = ltn_pb_open(b, number);
    switch (v->type) {
    case LTN_OTLP_STRING:
        ltn_otlp_put_text(b, 1, v->str);
        break;
    case LTN_OTLP_BOOL:
        ltn_pb_put_u64_field(b, 2, v->b ? 1 : 0);
        break;
    case LTN_OTLP_INT:
        ltn_pb_put_u64_field(b, 3, (uint64_t)v->i);
        break;
    case LTN_OTLP_DOUBLE:
        ltn_pb_put_f64_field(b, 4, v->d);
        break;
    case LTN_OTLP_ARRAY:
        ltn_pb_put_bytes_field(b, 5, v->str.p, v->str.n);
        break;
    case LTN_OTLP_KVLIST:
        ltn_pb_put_bytes_field(b, 6, v->str.p, v->str.n);
        break;
    case LTN_OTLP_BYTES:
        ltn_pb_put_bytes_field(b, 7, v->str.p, v->str.n);
        break;
    case LTN_OTLP_NONE:
        break;
    }
    ltn_pb_close(b, mark);
}

void ltn_otlp_put_attrs(struct ltn_buf *b, uint32_t number, struct ltn_otlp_attrs attrs)
{
    for (size_t i = 0; i < attrs.n; i++) {
        size_t mark = ltn_pb_open(b, number);
        ltn_otlp_put_text(b, 1, attrs.items[i].key);
        ltn_otlp_put_value(b, 2, &attrs.items[i].value);
        ltn_pb_close(b, mark);
    }
}

void ltn_otlp_put_resource(struct ltn_buf *b, struct ltn_otlp_attrs attrs)
{
    size_t mark = ltn_pb_open(b, 1);
    ltn_otlp_put_attrs(b, 1, attrs);
    ltn_pb_close(b, mark);
}

void ltn_otlp_put_scope(struct ltn_buf *b, const char *name, const char *version)
{
    size_t mark = ltn_pb_open(b, 1);
    ltn_otlp_put_text_opt(b, 1, ltn_otlp_str(name));
    ltn_otlp_put_text_opt(b, 2, ltn_otlp_str(version));
    ltn_pb_close(b, mark);
}
