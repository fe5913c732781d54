/* SPDX-License-Identifier: Apache-2.0 */
/* The two ways to a series: by key, and by what it is. Open addressing, hashes keyed at random. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "prom/series_int.h"

#define ROOM_MIN 1024u
/* Keys beyond that many per series are of clients that never say the same in the same way. */
#define RAW_PER_SERIES 2u

static uint32_t place(uint32_t hash, uint32_t room)
{
    return (uint32_t)(((uint64_t)hash * room) >> 32);
}

static uint32_t grown(uint32_t room)
{
    return room < ROOM_MIN ? ROOM_MIN : room + room / 2;
}

/* ---- hashes ---- */

uint64_t ltn_series_context(const struct ltn_series *s, uint64_t context, const void *p, size_t n)
{
    return XXH3_64bits_withSeed(p, n, context ^ s->seed);
}

struct ltn_series_key ltn_series_key(const struct ltn_series *s, uint64_t context, const void *p,
                                     size_t n)
{
    XXH128_hash_t h = XXH3_128bits_withSeed(p, n, context ^ s->seed);
    return (struct ltn_series_key){h.low64, (uint32_t)h.high64 | 1};
}

uint32_t ltn_series_hash(const struct ltn_series *s, uint32_t group, const char *labels)
{
    return (uint32_t)XXH3_64bits_withSeed(labels, strlen(labels), s->seed + group);
}

/* ---- by group and labels ---- */

ltn_series_ref ltn_series_index_get(const struct ltn_series *s, uint32_t hash, uint32_t group,
                                    const char *labels)
{
    if (s->index_count == 0)
        return 0;
    uint32_t i = place(hash, s->index_room);
    for (; s->index[i] != 0; i = i + 1 == s->index_room ? 0 : i + 1) {
        const struct slot *o = ltn_slot(s, s->index[i]);
        if (o->hash == hash && o->group == group && strcmp(o->labels, labels) == 0)
            return s->index[i];
    }
    return 0;
}

static void index_insert(const struct ltn_series *s, ltn_series_ref *index, uint32_t room,
                         ltn_series_ref ref)
{
    uint32_t i = place(ltn_slot(s, ref)->hash, room);
    while (index[i] != 0)
        i = i + 1 == room ? 0 : i + 1;
    index[i] = ref;
}

int ltn_series_index_put(struct ltn_series *s, ltn_series_ref ref)
{
    if (s->index_count + 1 > s->index_room / 4 * 3) {
        uint32_t room = grown(s->index_room);
        ltn_series_ref *index = calloc(room, sizeof(*index));
        if (index == NULL)
            return -ENOMEM;
        for (uint32_t i = 0; i < s->index_room; i++)
            if (s->index[i] != 0)
                index_insert(s, index, room, s->index[i]);
        free(s->index);
        s->index = index;
        s->index_room = room;
    }
    index_insert(s, s->index, s->index_room, ref);
    s->index_count++;
    return 0;
}

/* Closes the gap behind it so that no probe sequence is broken (Knuth, vol. 3, 6.4, algorithm R).
 */
void ltn_series_index_del(struct ltn_series *s, ltn_series_ref ref)
{
    uint32_t room = s->index_room;
    if (s->index_count == 0)
        return;
    uint32_t gap = place(ltn_slot(s, ref)->hash, room);
    while (s->index[gap] != ref) {
        if (s->index[gap] == 0)
            return;
        gap = gap + 1 == room ? 0 : gap + 1;
    }
    for (uint32_t i = gap;;) {
        i = i + 1 == room ? 0 : i + 1;
        if (s->index[i] == 0)
            break;
        uint32_t home = place(ltn_slot(s, s->index[i])->hash, room);
        bool stays = gap <= i ? (home > gap && home <= i) : (home > gap || home <= i);
        if (stays)
            continue;
        s->index[gap] = s->index[i];
        gap = i;
    }
    s->index[gap] = 0;
    s->index_count--;
}

/* ---- by key ---- */

static uint32_t raw_place(struct ltn_series_key key, uint32_t room)
{
    return place((uint32_t)(key.a >> 32), room);
}

void ltn_series_prefetch(const struct ltn_series *s, struct ltn_series_key key)
{
    if (s->raw_count > 0)
        __builtin_prefetch(&s->raw[raw_place(key, s->raw_room)]);
}

ltn_series_ref ltn_series_find(struct ltn_series *s, struct ltn_series_key key)
{
    if (s->raw_count == 0)
        return 0;
    uint32_t i = raw_place(key, s->raw_room);
    for (;; i = i + 1 == s->raw_room ? 0 : i + 1) {
        const struct raw_entry *e = &s->raw[i];
        if (e->ref == 0)
            return 0;
        if (e->a == key.a && e->b == key.b)
            break;
    }
    /* While series are going, keys may still lead to them. */
    bool gone = s->unswept && (ltn_slot(s, s->raw[i].ref)->flags & SLOT_USED) == 0;
    return gone ? 0 : s->raw[i].ref;
}

/* The entry of that key, or the free one where it would go. */
static struct raw_entry *raw_locate(struct raw_entry *raw, uint32_t room, struct ltn_series_key key)
{
    uint32_t i = raw_place(key, room);
    while (raw[i].ref != 0 && (raw[i].a != key.a || raw[i].b != key.b))
        i = i + 1 == room ? 0 : i + 1;
    return &raw[i];
}

/* Into a table of that room, only what still leads to a series. */
static int raw_rebuild(struct ltn_series *s, uint32_t room)
{
    struct raw_entry *raw = calloc(room, sizeof(*raw));
    uint32_t count = 0;
    if (raw == NULL)
        return -ENOMEM;
    for (uint32_t i = 0; i < s->raw_room; i++) {
        const struct raw_entry *e = &s->raw[i];
        if (e->ref == 0 || (s->unswept && (ltn_slot(s, e->ref)->flags & SLOT_USED) == 0))
            continue;
        *raw_locate(raw, room, (struct ltn_series_key){e->a, e->b}) = *e;
        count++;
    }
    free(s->raw);
    s->raw = raw;
    s->raw_room = room;
    s->raw_count = count;
    return 0;
}

static void raw_clear(struct ltn_series *s)
{
    memset(s->raw, 0, s->raw_room * sizeof(*s->raw));
    s->raw_count = 0;
}

void ltn_series_raw_put(struct ltn_series *s, struct ltn_series_key key, ltn_series_ref ref)
{
    if (key.a == 0 && key.b == 0)
        return;
    if (s->raw_count >= RAW_PER_SERIES * s->opts.max_series + ROOM_MIN)
        raw_clear(s);
    /* Without memory the next point of its kind needs labels again. */
    if (s->raw_count + 1 > s->raw_room / 4 * 3 && raw_rebuild(s, grown(s->raw_room)) != 0)
        return;
    struct raw_entry *e = raw_locate(s->raw, s->raw_room, key);
    s->raw_count += e->ref == 0 ? 1 : 0;
    *e = (struct raw_entry){key.a, key.b, ref};
}

/* Closes the gap, as in ltn_series_index_del. */
static void raw_del(struct ltn_series *s, uint32_t gap)
{
    uint32_t room = s->raw_room;
    for (uint32_t i = gap;;) {
        i = i + 1 == room ? 0 : i + 1;
        const struct raw_entry *e = &s->raw[i];
        if (e->ref == 0)
            break;
        uint32_t home = raw_place((struct ltn_series_key){e->a, e->b}, room);
        bool stays = gap <= i ? (home > gap && home <= i) : (home > gap || home <= i);
        if (stays)
            continue;
        s->raw[gap] = *e;
        gap = i;
    }
    s->raw[gap] = (struct raw_entry){0, 0, 0};
    s->raw_count--;
}

bool ltn_series_raw_sweep(struct ltn_series *s, uint32_t *at, uint32_t max)
{
    for (uint32_t n = 0; *at < s->raw_room && n < max; n++) {
        ltn_series_ref ref = s->raw[*at].ref;
        uint32_t flags = ref != 0 ? ltn_slot(s, ref)->flags : SLOT_USED;
        /* An overflow series' too: there may be room for one of its own now. */
        if ((flags & SLOT_USED) == 0 || (flags & SLOT_OVERFLOW) != 0)
            raw_del(s, *at); /* and look at what came in its place */
        else
            (*at)++;
    }
    return *at < s->raw_room;
}
