/* SPDX-License-Identifier: Apache-2.0 */
#include "http/head.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/err.h"

#define FIELD_OVERHEAD 32 /* as HPACK counts a field */

struct ltn_head *ltn_head_new(size_t max_bytes, uint32_t max_count)
{
    struct ltn_head *h = calloc(1, sizeof(*h));
    if (h == NULL) {
        return NULL;
    }
    /* The arena's ceiling is only a second line: bytes and count are judged first. */
    ltn_arena_init(&h->arena, LTN_ARENA_QUICK_BYTES,
                   max_bytes * 4 + 16 * (size_t)LTN_ARENA_QUICK_BYTES);
    h->max_bytes = max_bytes;
    h->max_count = max_count;
    return h;
}

void ltn_head_free(struct ltn_head *h)
{
    if (h == NULL) {
        return;
    }
    ltn_arena_done(&h->arena);
    free(h);
}

void ltn_head_reset(struct ltn_head *h)
{
    ltn_arena_reset(&h->arena);
    *h = (struct ltn_head){.arena = h->arena, .max_bytes = h->max_bytes, .max_count = h->max_count};
}

static int account(struct ltn_head *h, size_t n)
{
    h->bytes += n + FIELD_OVERHEAD;
    h->count++;
    if (h->bytes > h->max_bytes || h->count > h->max_count) {
        h->too_large = true;
        return LTN_ERR_TOO_LARGE;
    }
    return 0;
}

int ltn_head_add(struct ltn_head *h, const char *name, size_t name_len, const char *value,
                 size_t value_len)
{
    int rc = account(h, name_len + value_len);
    if (rc != 0) {
        return rc;
    }
    struct ltn_head_field *f = ltn_arena_alloc(&h->arena, sizeof(*f));
    char *n = ltn_arena_strndup(&h->arena, name, name_len);
    char *v = ltn_arena_strndup(&h->arena, value, value_len);
    if (f == NULL || n == NULL || v == NULL) {
        return -ENOMEM;
    }
    for (char *p = n; *p != '\0'; p++) {
        if (*p >= 'A' && *p <= 'Z') {
            *p = (char)(*p - 'A' + 'a');
        }
    }
    *f = (struct ltn_head_field){.name = n, .value = v};
    if (h->last == NULL) {
        h->first = f;
    } else {
        h->last->next = f;
    }
    h->last = f;
    return 0;
}

const char *ltn_head_text(struct ltn_head *h, const char *s, size_t n)
{
    if (account(h, n) != 0) {
        return NULL;
    }
    return ltn_arena_strndup(&h->arena, s, n);
}

const char *ltn_head_get(const struct ltn_head *h, const char *name)
{
    for (const struct ltn_head_field *f = h->first; f != NULL; f = f->next) {
        if (strcmp(f->name, name) == 0) {
            return f->value;
        }
    }
    return NULL;
}

size_t ltn_head_memory(const struct ltn_head *h)
{
    return sizeof(*h) + h->arena.used_bytes;
}

bool ltn_parse_length(const char *s, size_t n, uint64_t *ret)
{
    if (n == 0 || n > 19) {
        return false;
    }
    uint64_t value = 0;
    for (size_t i = 0; i < n; i++) {
        if (s[i] < '0' || s[i] > '9') {
            return false;
        }
        value = value * 10 + (uint64_t)(s[i] - '0');
    }
    *ret = value;
    return true;
}

bool ltn_list_has(const char *list, const char *token)
{
    size_t token_len = strlen(token);
    const char *p = list;
    while (*p != '\0') {
        p += strspn(p, " \t,");
        size_t n = strcspn(p, ",");
        size_t end = n;
        const char *semi = memchr(p, ';', n);
        if (semi != NULL) {
            end = (size_t)(semi - p);
        }
        while (end > 0 && (p[end - 1] == ' ' || p[end - 1] == '\t')) {
            end--;
        }
        if (end == token_len && strncasecmp(p, token, token_len) == 0) {
            return true;
        }
        p += n;
    }
    return false;
}

bool ltn_is_token(const char *s, size_t n)
{
    static const char others[] = "!#$%&'*+-.^_`|~";
    if (n == 0) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        char c = s[i];
        bool alnum = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (!alnum && (c == '\0' || strchr(others, c) == NULL)) {
            return false;
        }
    }
    return true;
}

bool ltn_is_field_value(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        if ((c < 0x20 && c != '\t') || c == 0x7f) {
            return false;
        }
    }
    return true;
}
