/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hash map from byte strings to pointers: open addressing, keys copied, hash seeded at random per
 * map (keys may come from the network), mandatory ceiling on entries. Values are the caller's. One
 * thread at a time.
 */
#ifndef LTN_BASE_MAP_H
#define LTN_BASE_MAP_H

#include <stddef.h>
#include <stdint.h>

#include "base/attr.h"

struct ltn_map_slot;

struct ltn_map {
    struct ltn_map_slot *slots;
    size_t slot_count; /* power of two, or 0 */
    size_t len;
    size_t max_entries;
    uint64_t seed;
};

/* Prepares an empty map. Allocates nothing. */
void ltn_map_init(struct ltn_map *m, size_t max_entries);

/* Frees keys and slots; each value is passed to free_value first unless that is NULL. m == NULL is
 * ignored. */
void ltn_map_done(struct ltn_map *m, void (*free_value)(void *));

/* Value under the key, or NULL. */
void *ltn_map_get(const struct ltn_map *m, const void *key, size_t key_len);

/* Sets the value under the key (value must not be NULL). 0, LTN_ERR_COUNT at the ceiling, -ENOMEM.
 * Replacing a value always succeeds. */
int ltn_map_put(struct ltn_map *m, const void *key, size_t key_len, void *value) ltn_must_check;

/* Removes the key and returns its value, or NULL when absent. */
void *ltn_map_del(struct ltn_map *m, const void *key, size_t key_len);

/* Walks all values: start with *pos = 0; NULL at the end. The map must not change between calls,
 * except by ltn_map_del of the key just returned followed by starting again. */
void *ltn_map_next(const struct ltn_map *m, size_t *pos);

/* The same with string or 64-bit keys. */
void *ltn_map_get_str(const struct ltn_map *m, const char *key);
int ltn_map_put_str(struct ltn_map *m, const char *key, void *value) ltn_must_check;
void *ltn_map_get_u64(const struct ltn_map *m, uint64_t key);
int ltn_map_put_u64(struct ltn_map *m, uint64_t key, void *value) ltn_must_check;
void *ltn_map_del_u64(struct ltn_map *m, uint64_t key);

#endif /* LTN_BASE_MAP_H */
