/* SPDX-License-Identifier: Apache-2.0 */
#include "otlp/json_lex.h"

#include <endian.h>
#include <string.h>

#include "base/err.h"

#define ONES      0x0101010101010101ULL
#define HIGH_BITS 0x8080808080808080ULL

/* Marks the high bit of each byte that is zero; above the first such byte marks may be wrong. */
static uint64_t zero_bytes(uint64_t v)
{
    return (v - ONES) & ~v & HIGH_BITS;
}

/* First quote, backslash or control character from p on, or end. */
static const uint8_t *plain_end(const uint8_t *p, const uint8_t *end)
{
    while (end - p >= 8) {
        uint64_t v;
        memcpy(&v, p, 8);
        v = le64toh(v);
        uint64_t hit = zero_bytes(v ^ (ONES * '"')) | zero_bytes(v ^ (ONES * '\\')) |
                       ((v - ONES * 0x20) & ~v & HIGH_BITS);
        if (hit != 0) {
            return p + (__builtin_ctzll(hit) >> 3);
        }
        p += 8;
    }
    while (p < end && *p != '"' && *p != '\\' && *p >= 0x20) {
        p++;
    }
    return p;
}

static int hex_digit(uint8_t c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Bytes of the escape whose backslash stands at p; 0 when malformed. */
static size_t escape_bytes(const uint8_t *p, const uint8_t *end)
{
    if (end - p < 2) {
        return 0;
    }
    if (p[1] != 'u') {
        return p[1] != 0 && strchr("\"\\/bfnrt", p[1]) != NULL ? 2 : 0;
    }
    if (end - p < 6) {
        return 0;
    }
    for (size_t i = 2; i < 6; i++) {
        if (hex_digit(p[i]) < 0) {
            return 0;
        }
    }
    return 6;
}

int ltn_jlex_string(struct ltn_jlex *l, struct ltn_jlex_str *ret)
{
    const uint8_t *p = l->p;
    bool escaped = false;
    if (p == l->end || *p != '"') {
        return LTN_ERR_MALFORMED;
    }
    p++;
    for (;;) {
        p = plain_end(p, l->end);
        if (p == l->end || *p < 0x20) {
            return LTN_ERR_MALFORMED;
        }
        if (*p == '"') {
            break;
        }
        size_t n = escape_bytes(p, l->end);
        if (n == 0) {
            return LTN_ERR_MALFORMED;
        }
        escaped = true;
        p += n;
    }
    *ret = (struct ltn_jlex_str){l->p + 1, (size_t)(p - l->p) - 1, escaped};
    l->p = p + 1;
    return 0;
}

int ltn_jlex_word(struct ltn_jlex *l, const char *word)
{
    size_t n = strlen(word);
    if ((size_t)(l->end - l->p) < n || memcmp(l->p, word, n) != 0) {
        return LTN_ERR_MALFORMED;
    }
    l->p += n;
    return 0;
}

static int skip_scalar(struct ltn_jlex *l, uint8_t first)
{
    struct ltn_jlex_str s;
    struct ltn_jlex_num num;
    switch (first) {
    case '"':
        return ltn_jlex_string(l, &s);
    case 'n':
        return ltn_jlex_word(l, "null");
    case 't':
        return ltn_jlex_word(l, "true");
    case 'f':
        return ltn_jlex_word(l, "false");
    default:
        return ltn_jlex_number(l, &num);
    }
}

/* A key with its colon. */
static int skip_key(struct ltn_jlex *l)
{
    struct ltn_jlex_str key;
    (void)ltn_jlex_peek(l);
    int rc = ltn_jlex_string(l, &key);
    if (rc < 0 || ltn_jlex_peek(l) != ':') {
        return LTN_ERR_MALFORMED;
    }
    l->p++;
    return 0;
}

#define SKIP_DEPTH_MAX 128

/* Containers that are open: one bit each, set for objects. */
struct skip {
    uint64_t bits[SKIP_DEPTH_MAX / 64];
    uint32_t depth;
};

static bool skip_in_object(const struct skip *s)
{
    uint32_t i = s->depth - 1;
    return (s->bits[i / 64] >> (i % 64) & 1) != 0;
}

static void skip_push(struct skip *s, bool object)
{
    uint32_t i = s->depth++;
    uint64_t bit = 1ULL << (i % 64);
    s->bits[i / 64] = object ? s->bits[i / 64] | bit : s->bits[i / 64] & ~bit;
}

/* Behind a value: closes what ends here. 1 when everything is closed, 0 when another value follows
 * (its key is taken), or an error. */
static int skip_after(struct ltn_jlex *l, struct skip *s)
{
    while (s->depth > 0) {
        uint8_t c = ltn_jlex_peek(l);
        bool object = skip_in_object(s);
        if (c == 0) {
            return LTN_ERR_MALFORMED;
        }
        l->p++;
        if (c == ',') {
            return object ? skip_key(l) : 0;
        }
        if (c != (object ? '}' : ']')) {
            return LTN_ERR_MALFORMED;
        }
        s->depth--;
    }
    return 1;
}

int ltn_jlex_skip(struct ltn_jlex *l, uint32_t depth_left)
{
    struct skip s = {.depth = 0};
    struct ltn_jlex at = *l;
    int rc;
    if (depth_left > SKIP_DEPTH_MAX) {
        depth_left = SKIP_DEPTH_MAX;
    }
    do {
        uint8_t c = ltn_jlex_peek(&at);
        if (c != '{' && c != '[') {
            rc = skip_scalar(&at, c);
        } else if (s.depth == depth_left) {
            rc = LTN_ERR_DEPTH;
        } else {
            at.p++;
            if (ltn_jlex_peek(&at) == (c == '{' ? '}' : ']')) {
                at.p++;
                rc = 0;
            } else {
                skip_push(&s, c == '{');
                rc = c == '{' ? skip_key(&at) : 0;
                if (rc == 0) {
                    continue;
                }
            }
        }
        rc = rc < 0 ? rc : skip_after(&at, &s);
    } while (rc == 0);
    if (rc < 0) {
        return rc;
    }
    *l = at;
    return 0;
}

static uint32_t hex4(const uint8_t *p)
{
    uint32_t v = 0;
    for (size_t i = 0; i < 4; i++) {
        v = v << 4 | (uint32_t)hex_digit(p[i]);
    }
    return v;
}

static size_t put_utf8(uint8_t *dst, uint32_t c)
{
    if (c < 0x80) {
        dst[0] = (uint8_t)c;
        return 1;
    }
    if (c < 0x800) {
        dst[0] = (uint8_t)(0xc0 | c >> 6);
        dst[1] = (uint8_t)(0x80 | (c & 0x3f));
        return 2;
    }
    if (c < 0x10000) {
        dst[0] = (uint8_t)(0xe0 | c >> 12);
        dst[1] = (uint8_t)(0x80 | (c >> 6 & 0x3f));
        dst[2] = (uint8_t)(0x80 | (c & 0x3f));
        return 3;
    }
    dst[0] = (uint8_t)(0xf0 | c >> 18);
    dst[1] = (uint8_t)(0x80 | (c >> 12 & 0x3f));
    dst[2] = (uint8_t)(0x80 | (c >> 6 & 0x3f));
    dst[3] = (uint8_t)(0x80 | (c & 0x3f));
    return 4;
}

/* A \u escape at p, with its partner when there is one; moves *p behind it. */
static uint32_t take_unicode(const uint8_t **p, const uint8_t *end)
{
    uint32_t c = hex4(*p + 2);
    *p += 6;
    if (c >= 0xd800 && c < 0xdc00 && end - *p >= 6 && (*p)[0] == '\\' && (*p)[1] == 'u') {
        uint32_t low = hex4(*p + 2);
        if (low >= 0xdc00 && low < 0xe000) {
            *p += 6;
            return 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
        }
    }
    return c;
}

static uint8_t short_escape(uint8_t c)
{
    switch (c) {
    case 'b':
        return '\b';
    case 'f':
        return '\f';
    case 'n':
        return '\n';
    case 'r':
        return '\r';
    case 't':
        return '\t';
    default:
        return c;
    }
}

size_t ltn_jlex_unescape(const struct ltn_jlex_str *s, uint8_t *dst)
{
    const uint8_t *p = s->p;
    const uint8_t *end = p + s->n;
    uint8_t *out = dst;
    if (!s->escaped) {
        if (s->n > 0) {
            memcpy(dst, s->p, s->n);
        }
        return s->n;
    }
    while (p < end) {
        const uint8_t *stop = memchr(p, '\\', (size_t)(end - p));
        size_t n = (size_t)((stop != NULL ? stop : end) - p);
        memcpy(out, p, n);
        out += n;
        p += n;
        if (p == end) {
            break;
        }
        if (p[1] == 'u') {
            out += put_utf8(out, take_unicode(&p, end));
        } else {
            *out++ = short_escape(p[1]);
            p += 2;
        }
    }
    return (size_t)(out - dst);
}

static int base64_digit(uint8_t c)
{
    if (c >= 'A' && c <= 'Z') {
        return c - 'A';
    }
    if (c >= 'a' && c <= 'z') {
        return c - 'a' + 26;
    }
    if (c >= '0' && c <= '9') {
        return c - '0' + 52;
    }
    if (c == '+' || c == '-') {
        return 62;
    }
    return c == '/' || c == '_' ? 63 : -1;
}

bool ltn_jlex_base64(uint8_t *text, size_t *n)
{
    size_t len = *n;
    size_t out = 0;
    uint32_t bits = 0;
    if (len % 4 == 0 && len > 0 && text[len - 1] == '=') {
        len -= text[len - 2] == '=' ? 2 : 1;
    }
    if (len % 4 == 1) {
        return false;
    }
    for (size_t i = 0; i < len; i++) {
        int d = base64_digit(text[i]);
        if (d < 0) {
            return false;
        }
        bits = bits << 6 | (uint32_t)d;
        if (i % 4 != 0) {
            text[out++] = (uint8_t)(bits >> (6 - 2 * (i % 4)));
        }
    }
    *n = out;
    return true;
}

bool ltn_jlex_hex(uint8_t *text, size_t *n)
{
    if (*n % 2 != 0) {
        return false;
    }
    for (size_t i = 0; i < *n; i += 2) {
        int high = hex_digit(text[i]);
        int low = hex_digit(text[i + 1]);
        if (high < 0 || low < 0) {
            return false;
        }
        text[i / 2] = (uint8_t)(high << 4 | low);
    }
    *n /= 2;
    return true;
}
