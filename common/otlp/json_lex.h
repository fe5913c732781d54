/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tokens of JSON text (RFC 8259) over borrowed bytes, for the OTLP/JSON reader: nothing is copied
 * or allocated, nothing recurses, no byte at or beyond end is read. Inner to this folder.
 *
 * Text may hold any byte from 0x20 on; whether it is UTF-8 is looked at where it is used, as with
 * protobuf. All functions return 0 or LTN_ERR_MALFORMED (skip also LTN_ERR_DEPTH) and move the
 * cursor only on success.
 */
#ifndef LTN_OTLP_JSON_LEX_H
#define LTN_OTLP_JSON_LEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/attr.h"

struct ltn_jlex {
    const uint8_t *p;
    const uint8_t *end;
};

/* A string without its quotes; escaped: it holds escapes, all of them well formed. */
struct ltn_jlex_str {
    const uint8_t *p;
    size_t n;
    bool escaped;
};

/* A number: (-1)^negative * digits * 10^exp10. With cut, digits that did not fit were dropped from
 * the end and at least one of them was not 0. */
struct ltn_jlex_num {
    const uint8_t *p; /* the token */
    size_t n;
    uint64_t digits;
    int64_t exp10;
    bool negative;
    bool cut;
};

/* Longest number taken: more digits than any double needs. */
#define LTN_JLEX_NUMBER_MAX 1024

/* Next byte that is no white space; 0 at the end (0 never stands in JSON outside strings). */
static inline uint8_t ltn_jlex_peek(struct ltn_jlex *l)
{
    while (l->p < l->end) {
        uint8_t c = *l->p;
        if (c > 0x20) {
            return c;
        }
        if (c != ' ' && c != '\n' && c != '\r' && c != '\t') {
            return 0;
        }
        l->p++;
    }
    return 0;
}

/* The string that starts at the quote under the cursor. */
int ltn_jlex_string(struct ltn_jlex *l, struct ltn_jlex_str *ret) ltn_must_check;

/* The number under the cursor; what follows it is the caller's to judge. */
int ltn_jlex_number(struct ltn_jlex *l, struct ltn_jlex_num *ret) ltn_must_check;

/* "null", "true" or "false", the whole word. */
int ltn_jlex_word(struct ltn_jlex *l, const char *word) ltn_must_check;

/* One value of any form, checked for syntax; depth_left more levels may be entered (at most 128).
 */
int ltn_jlex_skip(struct ltn_jlex *l, uint32_t depth_left) ltn_must_check;

/* Writes the text of s to dst, which has room for s->n bytes, and returns its length. A surrogate
 * without its partner becomes the three bytes of its code point, which are not valid UTF-8. */
size_t ltn_jlex_unescape(const struct ltn_jlex_str *s, uint8_t *dst);

/* Base64 of either alphabet, with or without padding, and pairs of hex digits of either case; in
 * place. False when malformed. */
bool ltn_jlex_base64(uint8_t *text, size_t *n);
bool ltn_jlex_hex(uint8_t *text, size_t *n);

/* The number as a double (correctly rounded), or as an integer with its sign apart. False when it
 * is beyond the range, or no integer. */
bool ltn_jlex_f64(const struct ltn_jlex_num *num, double *ret);
bool ltn_jlex_int(const struct ltn_jlex_num *num, uint64_t *ret_magnitude);

#endif /* LTN_OTLP_JSON_LEX_H */
