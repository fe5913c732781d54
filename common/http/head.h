/* SPDX-License-Identifier: Apache-2.0 */
/* Head of a request or response: start line and fields, with limits. Used inside the room. */
#ifndef LTN_HTTP_HEAD_H
#define LTN_HTTP_HEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/attr.h"

struct ltn_head_field {
    struct ltn_head_field *next;
    const char *name; /* lower case, NUL-terminated */
    const char *value;
};

struct ltn_head {
    struct ltn_arena arena;
    const char *method;
    const char *target;    /* path with query */
    const char *authority; /* Host or :authority; NULL when none */
    const char *scheme;
    int version; /* 10, 11, 20 */
    int status;  /* responses */
    struct ltn_head_field *first;
    struct ltn_head_field *last;
    size_t bytes; /* sum of name + value + 32, kept or not */
    uint32_t count;
    size_t max_bytes;
    uint32_t max_count;
    bool too_large;  /* a limit was passed; further fields are counted, not kept */
    bool has_length; /* content_length is set */
    uint64_t content_length;
};

/* An empty head with limits; NULL when memory is out. Free with ltn_head_free (NULL-safe). */
struct ltn_head *ltn_head_new(size_t max_bytes, uint32_t max_count) ltn_must_check;
void ltn_head_free(struct ltn_head *h);
/* Empty again, with the same limits, for the next one. */
void ltn_head_reset(struct ltn_head *h);

/* Adds a field; the name is turned to lower case, both are copied. 0; LTN_ERR_TOO_LARGE when a
 * limit is passed (too_large is set); -ENOMEM. Validity of the characters is the caller's. */
int ltn_head_add(struct ltn_head *h, const char *name, size_t name_len, const char *value,
                 size_t value_len) ltn_must_check;

/* Copies a text into the head's memory and counts it; NULL at the limit. */
const char *ltn_head_text(struct ltn_head *h, const char *s, size_t n) ltn_must_check;

/* Value of the first such field; NULL when absent. name in lower case. */
const char *ltn_head_get(const struct ltn_head *h, const char *name);

/* Memory held by the head. */
size_t ltn_head_memory(const struct ltn_head *h);

/* Digits only, at most 19 of them, to a number. False otherwise. */
bool ltn_parse_length(const char *s, size_t n, uint64_t *ret);

/* True when the comma-separated list holds the token, in any case. */
bool ltn_list_has(const char *list, const char *token);

/* RFC 9110 token characters. */
bool ltn_is_token(const char *s, size_t n);

/* A field value: no control characters but tab, no surrounding blanks are judged. */
bool ltn_is_field_value(const char *s, size_t n);

#endif /* LTN_HTTP_HEAD_H */
