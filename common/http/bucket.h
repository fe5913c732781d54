/* SPDX-License-Identifier: Apache-2.0 */
/* Token bucket: allows a burst and then a rate. Time is a parameter. Used inside the room. */
#ifndef LTN_HTTP_BUCKET_H
#define LTN_HTTP_BUCKET_H

#include <stdbool.h>
#include <stdint.h>

#include "base/attr.h"

struct ltn_bucket {
    uint64_t level_milli; /* tokens left, in thousandths */
    uint64_t burst_milli;
    uint64_t per_s;
    uint64_t last_ns;
};

static inline void ltn_bucket_init(struct ltn_bucket *b, uint32_t burst, uint32_t per_s)
{
    b->burst_milli = (uint64_t)burst * 1000;
    b->level_milli = b->burst_milli;
    b->per_s = per_s;
    b->last_ns = 0;
}

static inline void ltn_bucket_refund(struct ltn_bucket *b, uint32_t tokens)
{
    b->level_milli += (uint64_t)tokens * 1000;
    if (b->level_milli > b->burst_milli) {
        b->level_milli = b->burst_milli;
    }
}

/* Takes tokens; false when there are not enough left. */
static inline bool ltn_bucket_take(struct ltn_bucket *b, uint32_t tokens, uint64_t now_ns)
{
    if (b->last_ns == 0 || now_ns < b->last_ns) {
        b->last_ns = now_ns;
    }
    uint64_t ms = (now_ns - b->last_ns) / LTN_NS_PER_MS;
    if (ms > 0) {
        /* per_s tokens a second are per_s thousandths a millisecond. An hour fills any bucket. */
        uint64_t capped_ms = ms < 3600000 ? ms : 3600000;
        b->level_milli += capped_ms * b->per_s;
        if (b->level_milli > b->burst_milli) {
            b->level_milli = b->burst_milli;
        }
        b->last_ns += ms * LTN_NS_PER_MS;
    }
    uint64_t need = (uint64_t)tokens * 1000;
    if (b->level_milli < need) {
        return false;
    }
    b->level_milli -= need;
    return true;
}

#endif /* LTN_HTTP_BUCKET_H */
