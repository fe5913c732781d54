/* SPDX-License-Identifier: Apache-2.0 */
#include "base/map.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <xxhash.h>

#include "base/clock.h"
#include "base/err.h"

struct ltn_map_slot {
    void *value; /* NULL = free */
    void *key;
    size_t key_len;
    uint64_t hash;
};

void ltn_map_init(struct ltn_map *m, size_t max_entries)
{
    uint64_t seed = 0;
    if (getrandom(&seed, sizeof(seed), GRND_NONBLOCK) != (ssize_t)sizeof(seed)) {
        seed = ltn_now_mono_ns() ^ (uint64_t)(uintptr_t)m;
    }
    *m = (struct ltn_map){.max_entries = max_entries, .seed = seed};
}

void ltn_map_done(struct ltn_map *m, void (*free_value)(void *))
{
    if (m == NULL) {
        return;
    }
    for (size_t i = 0; i < m->slot_count; i++) {
        if (m->slots[i].value != NULL) {
            if (free_value != NULL) {
                free_value(m->slots[i].value);
            }
            free(m->slots[i].key);
        }
    }
    free(m->slots);
    m->slots = NULL;
    m->slot_count = 0;
    m->len = 0;
}

static uint64_t hash_of(const struct ltn_map *m, const void *key, size_t key_len)
{
    return XXH3_64bits_withSeed(key, key_len, m->seed);
}

/* Slot that holds the key, or the free slot where it would go. */
static size_t locate(const struct ltn_map *m, const void *key, size_t key_len, uint64_t hash)
{
    size_t mask = m->slot_count - 1;
    size_t i = hash & mask;
    while (m->slots[i].value != NULL) {
        const struct ltn_map_slot *s = &m->slots[i];
        if (s->hash == hash && s->key_len == key_len && memcmp(s->key, key, key_len) == 0) {
            break;
        }
        i = (i + 1) & mask;
    }
    return i;
}

void *ltn_map_get(const struct ltn_map *m, const void *key, size_t key_len)
{
    if (m->len == 0) {
        return NULL;
    }
    return m->slots[locate(m, key, key_len, hash_of(m, key, key_len))].value;
}

static int grow(struct ltn_map *m)
{
    size_t count = m->slot_count == 0 ? 16 : m->slot_count * 2;
    struct ltn_map_slot *slots = calloc(count, sizeof(*slots));
    if (slots == NULL) {
        return -ENOMEM;
    }
    for (size_t i = 0; i < m->slot_count; i++) {
        if (m->slots[i].value == NULL) {
            continue;
        }
        size_t at = m->slots[i].hash & (count - 1);
        while (slots[at].value != NULL) {
            at = (at + 1) & (count - 1);
        }
        slots[at] = m->slots[i];
    }
    free(m->slots);
    m->slots = slots;
    m->slot_count = count;
    return 0;
}

int ltn_map_put(struct ltn_map *m, const void *key, size_t key_len, void *value)
{
    uint64_t hash = hash_of(m, key, key_len);
    if (m->len > 0) {
        struct ltn_map_slot *old = &m->slots[locate(m, key, key_len, hash)];
        if (old->value != NULL) {
            old->value = value;
            return 0;
        }
    }
    if (m->len >= m->max_entries) {
        return LTN_ERR_COUNT;
    }
    if (m->slot_count == 0 || m->len + 1 > m->slot_count / 4 * 3) {
        int rc = grow(m);
        if (rc < 0) {
            return rc;
        }
    }
    void *copy = malloc(key_len == 0 ? 1 : key_len);
    if (copy == NULL) {
        return -ENOMEM;
    }
    memcpy(copy, key, key_len);
    m->slots[locate(m, key, key_len, hash)] =
        (struct ltn_map_slot){.value = value, .key = copy, .key_len = key_len, .hash = hash};
    m->len++;
    return 0;
}

/* Closes the gap at i so that no probe sequence is broken (Knuth, vol. 3, 6.4, algorithm R). */
static void close_gap(struct ltn_map *m, size_t gap)
{
    size_t mask = m->slot_count - 1;
    size_t i = gap;
    for (;;) {
        i = (i + 1) & mask;
        if (m->slots[i].value == NULL) {
            break;
        }
        size_t home = m->slots[i].hash & mask;
        bool stays = gap <= i ? (home > gap && home <= i) : (home > gap || home <= i);
        if (!stays) {
            m->slots[gap] = m->slots[i];
            gap = i;
        }
    }
    m->slots[gap] = (struct ltn_map_slot){0};
}

void *ltn_map_del(struct ltn_map *m, const void *key, size_t key_len)
{
    if (m->len == 0) {
        return NULL;
    }
    size_t i = locate(m, key, key_len, hash_of(m, key, key_len));
    void *value = m->slots[i].value;
    if (value != NULL) {
        free(m->slots[i].key);
        close_gap(m, i);
        m->len--;
    }
    return value;
}

void *ltn_map_next(const struct ltn_map *m, size_t *pos)
{
    while (*pos < m->slot_count) {
        void *value = m->slots[(*pos)++].value;
        if (value != NULL) {
            return value;
        }
    }
    return NULL;
}

void *ltn_map_get_str(const struct ltn_map *m, const char *key)
{
    return ltn_map_get(m, key, strlen(key));
}

int ltn_map_put_str(struct ltn_map *m, const char *key, void *value)
{
    return ltn_map_put(m, key, strlen(key), value);
}

void *ltn_map_get_u64(const struct ltn_map *m, uint64_t key)
{
    return ltn_map_get(m, &key, sizeof(key));
}

int ltn_map_put_u64(struct ltn_map *m, uint64_t key, void *value)
{
    return ltn_map_put(m, &key, sizeof(key), value);
}

void *ltn_map_del_u64(struct ltn_map *m, uint64_t key)
{
    return ltn_map_del(m, &key, sizeof(key));
}
