/* SPDX-License-Identifier: Apache-2.0 */
#include "base/arena.h"

#include <stdalign.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct ltn_arena_chunk {
    struct ltn_arena_chunk *next;
    size_t size; /* usable bytes in data */
    size_t used;
    alignas(max_align_t) unsigned char data[];
};

void ltn_arena_init(struct ltn_arena *a, size_t chunk_bytes, size_t cap_bytes)
{
    *a = (struct ltn_arena){.chunk_bytes = chunk_bytes < 256 ? 256 : chunk_bytes,
                            .cap_bytes = cap_bytes};
}

static void free_chunks(struct ltn_arena_chunk *c)
{
    while (c != NULL) {
        struct ltn_arena_chunk *next = c->next;
        free(c);
        c = next;
    }
}

void ltn_arena_done(struct ltn_arena *a)
{
    if (a == NULL) {
        return;
    }
    free_chunks(a->head);
    a->head = NULL;
    a->used_bytes = 0;
}

void ltn_arena_reset(struct ltn_arena *a)
{
    if (a->head == NULL) {
        return;
    }
    free_chunks(a->head->next);
    a->head->next = NULL;
    a->head->used = 0;
    a->used_bytes = sizeof(*a->head) + a->head->size;
}

static struct ltn_arena_chunk *grow(struct ltn_arena *a, size_t need)
{
    size_t size = need > a->chunk_bytes ? need : a->chunk_bytes;
    if (size > SIZE_MAX - sizeof(struct ltn_arena_chunk)) {
        return NULL;
    }
    size_t total = size + sizeof(struct ltn_arena_chunk);
    if (total > a->cap_bytes || a->used_bytes > a->cap_bytes - total) {
        return NULL;
    }
    struct ltn_arena_chunk *c = malloc(total);
    if (c == NULL) {
        return NULL;
    }
    c->next = a->head;
    c->size = size;
    c->used = 0;
    a->head = c;
    a->used_bytes += total;
    return c;
}

void *ltn_arena_alloc(struct ltn_arena *a, size_t n)
{
    const size_t align = alignof(max_align_t);
    if (n > SIZE_MAX - align) {
        return NULL;
    }
    n = n == 0 ? align : (n + align - 1) & ~(align - 1);
    struct ltn_arena_chunk *c = a->head;
    if (c == NULL || c->size - c->used < n) {
        c = grow(a, n);
        if (c == NULL) {
            return NULL;
        }
    }
    void *p = c->data + c->used;
    c->used += n;
    return p;
}

void *ltn_arena_calloc(struct ltn_arena *a, size_t count, size_t size)
{
    size_t n;
    if (__builtin_mul_overflow(count, size, &n)) {
        return NULL;
    }
    void *p = ltn_arena_alloc(a, n);
    if (p != NULL) {
        memset(p, 0, n);
    }
    return p;
}

char *ltn_arena_strndup(struct ltn_arena *a, const char *s, size_t n)
{
    if (n == SIZE_MAX) {
        return NULL;
    }
    char *p = ltn_arena_alloc(a, n + 1);
    if (p == NULL) {
        return NULL;
    }
    if (n > 0) {
        memcpy(p, s, n);
    }
    p[n] = '\0';
    return p;
}
