/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bump allocator for things that die together (one request, one batch). It has a mandatory ceiling:
 * reaching it makes the allocation fail, and the caller drops the batch and counts it. One thread
 * at a time.
 */
#ifndef LTN_BASE_ARENA_H
#define LTN_BASE_ARENA_H

#include <stddef.h>

#include "base/attr.h"

/* A chunk that, with what arena and malloc add, malloc's cache of each thread still keeps: for
 * arenas that come and go with every request. */
#define LTN_ARENA_QUICK_BYTES 976

struct ltn_arena_chunk;

struct ltn_arena {
    struct ltn_arena_chunk *head;
    size_t chunk_bytes;
    size_t cap_bytes;
    size_t used_bytes; /* bytes held in chunks, headers included */
};

/* Prepares an empty arena that grows by chunk_bytes (at least 256) up to cap_bytes. Allocates
 * nothing; cannot fail. */
void ltn_arena_init(struct ltn_arena *a, size_t chunk_bytes, size_t cap_bytes);

/* Frees every chunk. The arena may be initialised again. NULL is ignored. */
void ltn_arena_done(struct ltn_arena *a);

/* Forgets every allocation but keeps the newest chunk for reuse. Pointers into the arena become
 * invalid. */
void ltn_arena_reset(struct ltn_arena *a);

/* Returns n bytes aligned for any type, not cleared, owned by the arena; NULL at the ceiling or
 * when memory is out. */
void *ltn_arena_alloc(struct ltn_arena *a, size_t n) ltn_must_check;

/* The same for count x size bytes, cleared; NULL also when the product overflows. */
void *ltn_arena_calloc(struct ltn_arena *a, size_t count, size_t size) ltn_must_check;

/* Copies n bytes of s and adds a NUL; NULL as above. */
char *ltn_arena_strndup(struct ltn_arena *a, const char *s, size_t n) ltn_must_check;

#endif /* LTN_BASE_ARENA_H */
