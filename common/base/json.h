/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streaming JSON writer into an ltn_buf: commas, escaping and number forms are its business,
 * structure is the caller's. Strings that are not valid UTF-8 get U+FFFD for each bad byte, so the
 * output is always valid. One thread at a time.
 */
#ifndef LTN_BASE_JSON_H
#define LTN_BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

/* Deepest nesting; going deeper sets LTN_ERR_DEPTH in the buffer. */
#define LTN_JSON_MAX_DEPTH 32

struct ltn_json {
    struct ltn_buf *out; /* borrowed */
    unsigned depth;
    bool has_member[LTN_JSON_MAX_DEPTH];
    bool after_key;
};

/* Starts writing at the end of out, which is borrowed. Failures stick in out (ltn_buf_error). */
void ltn_json_init(struct ltn_json *j, struct ltn_buf *out);

void ltn_json_open_object(struct ltn_json *j);
void ltn_json_close_object(struct ltn_json *j);
void ltn_json_open_array(struct ltn_json *j);
void ltn_json_close_array(struct ltn_json *j);

/* Key of the next value inside an object. */
void ltn_json_key(struct ltn_json *j, const char *key);

/* Values; a NULL string and a number that is not finite are written as null. */
void ltn_json_str(struct ltn_json *j, const char *s);
void ltn_json_strn(struct ltn_json *j, const char *s, size_t n);
void ltn_json_i64(struct ltn_json *j, int64_t v);
void ltn_json_u64(struct ltn_json *j, uint64_t v);
void ltn_json_f64(struct ltn_json *j, double v);
void ltn_json_bool(struct ltn_json *j, bool v);
void ltn_json_null(struct ltn_json *j);

/* A value that is JSON text already; the caller vouches for its validity. */
void ltn_json_raw(struct ltn_json *j, const char *text, size_t n);

/* Key and value in one call. */
void ltn_json_kv_str(struct ltn_json *j, const char *key, const char *s);
void ltn_json_kv_i64(struct ltn_json *j, const char *key, int64_t v);
void ltn_json_kv_u64(struct ltn_json *j, const char *key, uint64_t v);
void ltn_json_kv_f64(struct ltn_json *j, const char *key, double v);
void ltn_json_kv_bool(struct ltn_json *j, const char *key, bool v);

/* RFC 3339 text under key and the same moment as an integer under key_ns; null for 0. */
void ltn_json_kv_time(struct ltn_json *j, const char *key, const char *key_ns, uint64_t unix_ns);

#endif /* LTN_BASE_JSON_H */
