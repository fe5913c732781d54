/* SPDX-License-Identifier: Apache-2.0 */
/* Text: strict number, duration and size parsing; UTF-8; cleaning of names that come from traced
 * programs. Thread-safe. */
#ifndef LTN_BASE_TEXT_H
#define LTN_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of the UTF-8 sequence at s (n bytes left): 1..4, or 0 when it is not valid (overlong,
 * surrogate, cut). RFC 3629. */
size_t ltn_utf8_len(const char *s, size_t n);
bool ltn_utf8_valid(const char *s, size_t n);

/* Whole string to number; false for empty text, trailing characters and overflow; *ret is set only
 * on success. */
bool ltn_parse_u64(const char *s, uint64_t *ret);
bool ltn_parse_i64(const char *s, int64_t *ret);
bool ltn_parse_f64(const char *s, double *ret); /* decimal and finite: no "inf", "nan", "0x1p3" */

/* "90s", "5m", "1h30m", "2d", "1w", "250ms"; a bare number is seconds. False when malformed or
 * above 292 years. */
bool ltn_parse_duration_ns(const char *s, uint64_t *ret_ns);

/* "4096", "500k", "500m", "10g" (powers of 1024, optional "b" or "ib"). */
bool ltn_parse_size_bytes(const char *s, uint64_t *ret_bytes);

/* Copies src into dst (size bytes, terminated): control characters and invalid UTF-8 become '?',
 * long text is cut. */
void ltn_text_clean(char *dst, size_t size, const char *src, size_t src_len);

/* Copies a string and terminates it; returns false when it had to be cut. */
bool ltn_copy_str(char *dst, size_t size, const char *src);

/* Edit distance of two short strings (at most 64 bytes each are looked at), for "did you mean".
 * Levenshtein 1966. */
unsigned ltn_edit_distance(const char *a, const char *b);

#endif /* LTN_BASE_TEXT_H */
