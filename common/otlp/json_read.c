/* SPDX-License-Identifier: Apache-2.0 */
#include "otlp/json_read.h"

#include <endian.h>
#include <math.h>
#include <string.h>

#include "base/err.h"
#include "otlp/json_lex.h"
#include "otlp/json_schema.h"
#include "otlp/pb_read.h"
#include "otlp/pb_write.h"

#define DEPTH_MAX 128

/* Tag and length or number. */
#define HEAD_MAX_BYTES 16

/* Longest text that is looked at as a number or a member's name with escapes in it. */
#define SHORT_TEXT_BYTES 64

/* What a message's length may be with four bytes of it. */
#define LARGE_MAX_BYTES ((size_t)1 << 28)

/* An object, or an array of them. */
struct frame {
    const struct ltn_json_message *message;
    const struct ltn_json_field *list; /* of an array; else NULL */
    size_t mark;                       /* of an object: where its content begins */
    uint8_t next;                      /* of an object: the field that likely comes now */
    bool begun;                        /* a member or element has been read */
};

struct walk {
    struct ltn_jlex lex;
    struct ltn_buf *out;
    struct ltn_otlp_json_info *info;
    uint32_t depth, max_depth;
    struct frame stack[DEPTH_MAX];
};

/* ---- output ---- */

/* Room for n more bytes, or NULL; the common case without a call. */
static inline uint8_t *room(struct ltn_buf *b, size_t n)
{
    if (b->size > n && b->size - n > b->len) {
        return (uint8_t *)b->data + b->len;
    }
    return ltn_buf_reserve(b, n);
}

static inline uint8_t *put_varint(uint8_t *p, uint64_t v)
{
    while (v >= 0x80) {
        *p++ = (uint8_t)(v | 0x80);
        v >>= 7;
    }
    *p++ = (uint8_t)v;
    return p;
}

/* Field numbers here are below 16. */
static inline uint8_t *put_tag(uint8_t *p, uint32_t number, enum ltn_pb_type type)
{
    *p++ = (uint8_t)(number << 3 | (uint32_t)type);
    return p;
}

static inline void put_done(struct ltn_buf *b, const uint8_t *p)
{
    b->len = (size_t)(p - (const uint8_t *)b->data);
}

static int buf_error(const struct ltn_buf *b)
{
    return ltn_buf_error(b) != 0 ? ltn_buf_error(b) : LTN_ERR_INTERNAL;
}

static int open_message(struct ltn_buf *b, uint32_t number, bool large, size_t *ret_mark)
{
    uint8_t *p = room(b, HEAD_MAX_BYTES);
    if (p == NULL) {
        return buf_error(b);
    }
    p = put_tag(p, number, LTN_PB_LEN) + (large ? 4 : 1);
    put_done(b, p);
    *ret_mark = b->len;
    return 0;
}

/* Fills in the length that was left open before mark. */
static int close_message(struct ltn_buf *b, size_t mark, bool large)
{
    size_t n = b->len - mark;
    if (large) {
        uint8_t *p = (uint8_t *)b->data + mark - 4;
        if (n >= LARGE_MAX_BYTES) {
            return LTN_ERR_TOO_LARGE;
        }
        p[0] = (uint8_t)(n | 0x80);
        p[1] = (uint8_t)(n >> 7 | 0x80);
        p[2] = (uint8_t)(n >> 14 | 0x80);
        p[3] = (uint8_t)(n >> 21);
        return 0;
    }
    if (n >= 0x80) {
        size_t extra = ltn_pb_varint_bytes(n) - 1;
        if (room(b, extra) == NULL) {
            return buf_error(b);
        }
        memmove(b->data + mark + extra, b->data + mark, n);
        b->len += extra;
    }
    (void)put_varint((uint8_t *)b->data + mark - 1, n);
    return 0;
}

/* ---- scalars ---- */

/* Text with escapes, or bytes: written out, then brought into form where it stands. */
static int put_decoded(struct walk *w, const struct ltn_json_field *f, const struct ltn_jlex_str *s)
{
    size_t mark;
    int rc = open_message(w->out, f->number, false, &mark);
    uint8_t *p = rc == 0 ? room(w->out, s->n) : NULL;
    if (p == NULL) {
        return rc < 0 ? rc : buf_error(w->out);
    }
    size_t n = ltn_jlex_unescape(s, p);
    if ((f->form == LTN_JSON_HEX && !ltn_jlex_hex(p, &n)) ||
        (f->form == LTN_JSON_BASE64 && !ltn_jlex_base64(p, &n))) {
        return LTN_ERR_MALFORMED;
    }
    w->out->len += n;
    return close_message(w->out, mark, false);
}

static int put_string(struct walk *w, const struct ltn_json_field *f)
{
    struct ltn_jlex_str s;
    int rc = ltn_jlex_string(&w->lex, &s);
    if (rc < 0) {
        return rc;
    }
    if (s.escaped || f->form != LTN_JSON_TEXT) {
        return put_decoded(w, f, &s);
    }
    uint8_t *p = room(w->out, s.n + HEAD_MAX_BYTES);
    if (p == NULL) {
        return buf_error(w->out);
    }
    p = put_varint(put_tag(p, f->number, LTN_PB_LEN), s.n);
    memcpy(p, s.p, s.n);
    put_done(w->out, p + s.n);
    return 0;
}

/* A number that stands in quotes; with escapes in it, it is written to plain, where *ret then
 * points. *special is what one of the three words means, else 0. */
static int quoted_number(struct walk *w, uint8_t plain[SHORT_TEXT_BYTES], struct ltn_jlex_num *ret,
                         double *special)
{
    struct ltn_jlex_str s;
    int rc = ltn_jlex_string(&w->lex, &s);
    if (rc < 0) {
        return rc;
    }
    struct ltn_jlex inner = {s.p, s.p + s.n};
    if (s.escaped) {
        if (s.n > SHORT_TEXT_BYTES) {
            return LTN_ERR_MALFORMED;
        }
        inner.p = plain;
        inner.end = plain + ltn_jlex_unescape(&s, plain);
    }
    struct ltn_otlp_str text = {(const char *)inner.p, (size_t)(inner.end - inner.p)};
    if (special != NULL) {
        *special = ltn_otlp_str_eq(text, "NaN")         ? (double)NAN
                   : ltn_otlp_str_eq(text, "Infinity")  ? (double)INFINITY
                   : ltn_otlp_str_eq(text, "-Infinity") ? -(double)INFINITY
                                                        : 0;
        if (isnan(*special) || isinf(*special)) {
            return 0;
        }
    }
    rc = ltn_jlex_number(&inner, ret);
    if (rc < 0 || inner.p != inner.end) {
        return LTN_ERR_MALFORMED;
    }
    return 0;
}

static int take_double(struct walk *w, uint64_t *ret_bits)
{
    struct ltn_jlex_num num;
    uint8_t plain[SHORT_TEXT_BYTES];
    double v = 0;
    int rc;
    if (w->lex.p < w->lex.end && *w->lex.p == '"') {
        rc = quoted_number(w, plain, &num, &v);
    } else {
        rc = ltn_jlex_number(&w->lex, &num);
    }
    if (rc < 0) {
        return rc;
    }
    if (v == 0 && !ltn_jlex_f64(&num, &v)) {
        return LTN_ERR_MALFORMED;
    }
    memcpy(ret_bits, &v, sizeof(*ret_bits));
    return 0;
}

/* An integer as two's complement in 64 bits, checked against the range of its form. */
static int take_integer(struct walk *w, enum ltn_json_form form, uint64_t *ret)
{
    static const struct {
        uint64_t above, below; /* largest, and the magnitude of the smallest */
    } ranges[] = {
        [LTN_JSON_INT64] = {INT64_MAX, 1ULL << 63},    [LTN_JSON_UINT64] = {UINT64_MAX, 0},
        [LTN_JSON_INT32] = {INT32_MAX, 1ULL << 31},    [LTN_JSON_ENUM] = {INT32_MAX, 1ULL << 31},
        [LTN_JSON_UINT32] = {UINT32_MAX, 0},           [LTN_JSON_SINT32] = {INT32_MAX, 1ULL << 31},
        [LTN_JSON_FIXED64] = {UINT64_MAX, 0},          [LTN_JSON_FIXED32] = {UINT32_MAX, 0},
        [LTN_JSON_SFIXED64] = {INT64_MAX, 1ULL << 63},
    };
    struct ltn_jlex_num num;
    uint8_t plain[SHORT_TEXT_BYTES];
    uint64_t v;
    int rc;
    if (w->lex.p < w->lex.end && *w->lex.p == '"' && form != LTN_JSON_ENUM) {
        rc = quoted_number(w, plain, &num, NULL);
    } else {
        rc = ltn_jlex_number(&w->lex, &num);
    }
    if (rc < 0) {
        return rc;
    }
    if (!ltn_jlex_int(&num, &v) || v > (num.negative ? ranges[form].below : ranges[form].above)) {
        return LTN_ERR_MALFORMED;
    }
    *ret = num.negative ? 0 - v : v;
    return 0;
}

static int take_bool(struct walk *w, uint64_t *ret)
{
    bool yes = w->lex.p < w->lex.end && *w->lex.p == 't';
    *ret = yes ? 1 : 0;
    return ltn_jlex_word(&w->lex, yes ? "true" : "false");
}

static int take_number(struct walk *w, enum ltn_json_form form, uint64_t *ret)
{
    if (form == LTN_JSON_DOUBLE) {
        return take_double(w, ret);
    }
    return form == LTN_JSON_BOOL ? take_bool(w, ret) : take_integer(w, form, ret);
}

static uint8_t *put_fixed64(uint8_t *p, uint64_t v)
{
    v = htole64(v);
    memcpy(p, &v, sizeof(v));
    return p + sizeof(v);
}

static int put_number(struct walk *w, const struct ltn_json_field *f)
{
    uint64_t v;
    int rc = take_number(w, (enum ltn_json_form)f->form, &v);
    uint8_t *p = rc == 0 ? room(w->out, HEAD_MAX_BYTES) : NULL;
    if (p == NULL) {
        return rc < 0 ? rc : buf_error(w->out);
    }
    switch ((enum ltn_json_form)f->form) {
    case LTN_JSON_FIXED64:
    case LTN_JSON_SFIXED64:
    case LTN_JSON_DOUBLE:
        p = put_fixed64(put_tag(p, f->number, LTN_PB_I64), v);
        break;
    case LTN_JSON_FIXED32: {
        uint32_t fixed32 = htole32((uint32_t)v);
        p = put_tag(p, f->number, LTN_PB_I32);
        memcpy(p, &fixed32, sizeof(fixed32));
        p += sizeof(fixed32);
        break;
    }
    case LTN_JSON_SINT32:
        v = (uint32_t)(v << 1) ^ (uint32_t)((int64_t)v < 0 ? UINT32_MAX : 0);
        p = put_varint(put_tag(p, f->number, LTN_PB_VARINT), v);
        break;
    default:
        p = put_varint(put_tag(p, f->number, LTN_PB_VARINT), v);
        break;
    }
    put_done(w->out, p);
    return 0;
}

/* An array of numbers as one packed field; FIXED64, DOUBLE and UINT64. */
static int put_numbers(struct walk *w, const struct ltn_json_field *f)
{
    size_t mark;
    int rc = open_message(w->out, f->number, false, &mark);
    if (rc < 0) {
        return rc;
    }
    if (w->depth == w->max_depth) {
        return LTN_ERR_DEPTH;
    }
    w->lex.p++;
    if (ltn_jlex_peek(&w->lex) == ']') {
        w->lex.p++;
        return close_message(w->out, mark, false);
    }
    for (;;) {
        uint64_t v;
        uint8_t c = ltn_jlex_peek(&w->lex);
        rc = c != 0 ? take_number(w, (enum ltn_json_form)f->form, &v) : LTN_ERR_MALFORMED;
        uint8_t *p = rc == 0 ? room(w->out, HEAD_MAX_BYTES) : NULL;
        if (p == NULL) {
            return rc < 0 ? rc : buf_error(w->out);
        }
        put_done(w->out, f->form == LTN_JSON_UINT64 ? put_varint(p, v) : put_fixed64(p, v));
        c = ltn_jlex_peek(&w->lex);
        if (c != ',' && c != ']') {
            return LTN_ERR_MALFORMED;
        }
        w->lex.p++;
        if (c == ']') {
            return close_message(w->out, mark, false);
        }
    }
}

/* ---- structure ---- */

/* The field of that name. Names mostly come in the order of the table, so the search begins where
 * the last one was found. */
static const struct ltn_json_field *find(struct frame *top, const uint8_t *name, size_t n)
{
    const struct ltn_json_message *m = top->message;
    uint8_t at = top->next;
    for (uint8_t left = m->n; left > 0; left--) {
        if (at >= m->n) {
            at = 0;
        }
        const struct ltn_json_field *f = &m->fields[at++];
        if (f->name_len == n && memcmp(f->name, name, n) == 0) {
            top->next = at;
            return f;
        }
    }
    return NULL;
}

/* A member's name and colon. *ret_f is NULL when the name is unknown. */
static int take_name(struct walk *w, struct frame *top, const struct ltn_json_field **ret_f)
{
    struct ltn_jlex_str s;
    uint8_t plain[SHORT_TEXT_BYTES];
    int rc = ltn_jlex_string(&w->lex, &s);
    if (rc < 0 || ltn_jlex_peek(&w->lex) != ':') {
        return LTN_ERR_MALFORMED;
    }
    w->lex.p++;
    const uint8_t *name = s.p;
    size_t n = s.n;
    if (s.escaped && s.n <= sizeof(plain)) {
        n = ltn_jlex_unescape(&s, plain);
        name = plain;
    }
    *ret_f = find(top, name, n);
    if (*ret_f == NULL && w->info->unknown++ == 0) {
        w->info->unknown_name = (struct ltn_otlp_str){(const char *)s.p, s.n};
    }
    return 0;
}

static int push_object(struct walk *w, const struct ltn_json_field *f)
{
    size_t mark;
    int rc;
    if (w->depth == w->max_depth) {
        return LTN_ERR_DEPTH;
    }
    rc = open_message(w->out, f->number, f->message->large, &mark);
    if (rc < 0) {
        return rc;
    }
    w->lex.p++;
    w->stack[w->depth++] = (struct frame){.message = f->message, .mark = mark};
    return 0;
}

static int push_list(struct walk *w, const struct ltn_json_field *f)
{
    if (w->depth == w->max_depth) {
        return LTN_ERR_DEPTH;
    }
    w->lex.p++;
    w->stack[w->depth++] = (struct frame){.message = f->message, .list = f};
    return 0;
}

/* The value of a member: scalars are read here, the others begin a frame. */
static int begin_value(struct walk *w, const struct ltn_json_field *f)
{
    uint8_t c = ltn_jlex_peek(&w->lex);
    if (f == NULL) {
        return ltn_jlex_skip(&w->lex, w->max_depth - w->depth);
    }
    if (c == 'n') {
        return ltn_jlex_word(&w->lex, "null");
    }
    if (f->repeated) {
        if (c != '[') {
            return LTN_ERR_MALFORMED;
        }
        return f->form == LTN_JSON_MESSAGE ? push_list(w, f) : put_numbers(w, f);
    }
    switch ((enum ltn_json_form)f->form) {
    case LTN_JSON_MESSAGE:
        return c == '{' ? push_object(w, f) : LTN_ERR_MALFORMED;
    case LTN_JSON_TEXT:
    case LTN_JSON_BASE64:
    case LTN_JSON_HEX:
        return put_string(w, f);
    default:
        return put_number(w, f);
    }
}

/* The comma before the next member or element. 1 when the container ends instead. */
static int next_in(struct walk *w, struct frame *top)
{
    uint8_t end = top->list != NULL ? ']' : '}';
    uint8_t c = ltn_jlex_peek(&w->lex);
    if (c == end) {
        w->lex.p++;
        return 1;
    }
    if (top->begun) {
        if (c != ',') {
            return LTN_ERR_MALFORMED;
        }
        w->lex.p++;
        c = ltn_jlex_peek(&w->lex);
    }
    top->begun = true;
    return c == (top->list != NULL ? '{' : '"') ? 0 : LTN_ERR_MALFORMED;
}

/* One member or element, or the end of what is innermost. */
static int step(struct walk *w)
{
    struct frame *top = &w->stack[w->depth - 1];
    const struct ltn_json_field *f;
    int rc = next_in(w, top);
    if (rc > 0) {
        w->depth--;
        return top->list != NULL || w->depth == 0
                   ? 0
                   : close_message(w->out, top->mark, top->message->large);
    }
    if (rc < 0) {
        return rc;
    }
    if (top->list != NULL) {
        return push_object(w, top->list);
    }
    rc = take_name(w, top, &f);
    return rc < 0 ? rc : begin_value(w, f);
}

static int walk(struct walk *w, const struct ltn_json_message *request)
{
    uint8_t c = ltn_jlex_peek(&w->lex);
    int rc = 0;
    if (c == 0 && w->lex.p == w->lex.end) {
        return 0;
    }
    if (c != '{') {
        return LTN_ERR_MALFORMED;
    }
    w->lex.p++;
    w->stack[w->depth++] = (struct frame){.message = request};
    while (rc == 0 && w->depth > 0) {
        rc = step(w);
    }
    if (rc < 0) {
        return rc;
    }
    (void)ltn_jlex_peek(&w->lex);
    return w->lex.p == w->lex.end ? 0 : LTN_ERR_MALFORMED;
}

int ltn_otlp_json_read(enum ltn_otlp_signal signal, const void *data, size_t n, uint32_t max_depth,
                       struct ltn_buf *out, struct ltn_otlp_json_info *ret_info)
{
    static const uint8_t nothing[1];
    const uint8_t *p = data != NULL ? data : nothing;
    struct walk w;
    *ret_info = (struct ltn_otlp_json_info){.unknown_name = {"", 0}};
    w.lex = (struct ltn_jlex){p, p + (data != NULL ? n : 0)};
    w.out = out;
    w.info = ret_info;
    w.depth = 0;
    w.max_depth = max_depth < DEPTH_MAX / 2 ? 2 * max_depth : DEPTH_MAX;
    if (w.lex.end - p >= 3 && memcmp(p, "\xef\xbb\xbf", 3) == 0) {
        w.lex.p += 3;
    }
    /* Usually enough, so that the buffer need not grow on the way. */
    if (room(out, n < out->max_bytes / 2 ? n / 2 + HEAD_MAX_BYTES : HEAD_MAX_BYTES) == NULL) {
        return buf_error(out);
    }
    int rc = walk(&w, ltn_json_request(signal));
    ret_info->error_at = (size_t)(w.lex.p - p);
    ltn_buf_commit(out, 0);
    return rc;
}
