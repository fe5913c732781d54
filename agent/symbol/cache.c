/* SPDX-License-Identifier: Apache-2.0 */
#include "symbol/cache.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/map.h"

#define MAX_STACKS 65536

struct ltn_stack_cache {
    pthread_mutex_t lock; /* guards the rest */
    struct ltn_map by_id;
    size_t bytes;
    size_t max_bytes;
};

static void unref(void *s)
{
    ltn_stack_unref(s);
}

struct ltn_stack_cache *ltn_stack_cache_new(size_t max_bytes)
{
    struct ltn_stack_cache *c = calloc(1, sizeof(*c));
    if (c != NULL) {
        (void)pthread_mutex_init(&c->lock, NULL);
        ltn_map_init(&c->by_id, MAX_STACKS);
        c->max_bytes = max_bytes;
    }
    return c;
}

void ltn_stack_cache_free(struct ltn_stack_cache *c)
{
    if (c == NULL) {
        return;
    }
    ltn_map_done(&c->by_id, unref);
    (void)pthread_mutex_destroy(&c->lock);
    free(c);
}

void ltn_stack_cache_put(struct ltn_stack_cache *c, const struct ltn_stack *s)
{
    size_t bytes = ltn_stack_bytes(s);
    (void)pthread_mutex_lock(&c->lock);
    if (c->bytes + bytes > c->max_bytes || c->by_id.len >= MAX_STACKS) {
        ltn_map_done(&c->by_id, unref);
        ltn_map_init(&c->by_id, MAX_STACKS);
        c->bytes = 0;
    }
    if (bytes <= c->max_bytes && ltn_map_get_u64(&c->by_id, s->stack_id) == NULL) {
        /* The map's values are not const; nobody writes through them. */
        void *kept = (void *)(uintptr_t)ltn_stack_ref(s);
        if (ltn_map_put_u64(&c->by_id, s->stack_id, kept) == 0) {
            c->bytes += bytes;
        } else {
            ltn_stack_unref(s);
        }
    }
    (void)pthread_mutex_unlock(&c->lock);
}

const struct ltn_stack *ltn_stack_cache_get(struct ltn_stack_cache *c, uint64_t stack_id)
{
    (void)pthread_mutex_lock(&c->lock);
    const struct ltn_stack *s = ltn_stack_ref(ltn_map_get_u64(&c->by_id, stack_id));
    (void)pthread_mutex_unlock(&c->lock);
    return s;
}
