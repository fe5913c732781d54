/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Overload: keeps the work in progress short, so that what is let in is answered soon, and tells a
 * burst from more than can be done. What had no rest for LTN_LOAD_HOLD_MS, or for less with many in
 * progress, is given no more than these, soon what it answers in LTN_LOAD_BURST_QUEUE_MS (Little's
 * law), and more as long as it finds time to rest; the others wait at their heads. When some wait
 * without a break for longer than a burst may last, it is overloaded: it is given less, and the
 * others are refused, until neither happens any more. Judged for each lane, a queue that is worked
 * off by itself; bytes and refusals, which have a price, too, are judged for all together. Time is
 * a parameter. One thread. Used inside the room.
 *
 * After K. Nichols, V. Jacobson, "Controlling Queue Delay", ACM Queue 10(5), 2012 (a standing queue
 * is what to act on, not a long one), and B. Maurer, "Fail at Scale", ACM Queue 13(8), 2015.
 */
#ifndef LTN_HTTP_LOAD_H
#define LTN_HTTP_LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "http/bucket.h"

#define LTN_LOAD_HOLD_MS        100  /* of work without a rest are let in whole */
#define LTN_LOAD_MANY           1000 /* requests in progress are many, after a tenth of that time */
#define LTN_LOAD_BURST_MS       2000 /* of waiting are a burst, which is worked off */
#define LTN_LOAD_BURST_QUEUE_MS 20   /* of work are let in at a time in a burst */
#define LTN_LOAD_QUEUE_MS       3    /* and under overload: bodies stay in the caches */
#define LTN_LOAD_WINDOW_MS      100  /* between two looks at the limit */
#define LTN_LOAD_LEAST          32   /* requests that are let in whatever the load */
#define LTN_LOAD_OWN_BYTES      4096 /* that a request counts beside its body */
#define LTN_LOAD_LARGE_BYTES    65536

/* ---- one lane; zeroed at first, but for burst_ns ---- */

struct ltn_load {
    uint64_t burst_ns;    /* set by the owner: how long some may wait without a break */
    uint64_t window_ns;   /* when the present window began */
    uint64_t clear_ns;    /* when last nobody waited */
    uint32_t in_progress; /* requests let in and not yet over */
    uint32_t most;        /* of these, in the window */
    uint32_t waiting;     /* at their heads, for room */
    uint32_t answered;    /* in the window */
    uint32_t refused;     /* in the window */
    uint32_t queue;       /* the work to be let in, after the last window */
    uint32_t limit;       /* on in_progress while it holds */
    bool rested;          /* in the window */
    bool holds;           /* the limit is in force */
    bool overloaded;      /* and what is beyond it may be refused */
};

/* Looks at the time; rested_ns: when the lane last had nothing to do. */
void ltn_load_look(struct ltn_load *l, uint64_t now_ns, uint64_t rested_ns);

/* Whether one more request may be let in. */
bool ltn_load_has_room(const struct ltn_load *l);

/* One more is let in. */
void ltn_load_let_in(struct ltn_load *l);

/* The end of one that was let in; answered: by what serves it. */
void ltn_load_over(struct ltn_load *l, bool answered);

/* ---- all lanes ---- */

struct ltn_load_total {
    uint32_t in_progress;
    size_t bytes;      /* what these take, or are soon expected to */
    size_t max_bytes;  /* 0: any */
    size_t body_bytes; /* of one body, on average; large ones count as LTN_LOAD_LARGE_BYTES */
    struct ltn_bucket refusals;
};

/* max_bytes: of bodies that may be in progress; 0: any. refusals_per_s: at most, with a burst of 20
 * ms. */
void ltn_load_total_init(struct ltn_load_total *t, size_t max_bytes, uint32_t refusals_per_s);

/* Whether there are bytes for one more. */
bool ltn_load_total_has_room(const struct ltn_load_total *t);

/* The body of one that was let in is whole. */
void ltn_load_total_body(struct ltn_load_total *t, size_t bytes);

/* Whether one may be refused now. */
bool ltn_load_total_may_refuse(struct ltn_load_total *t, uint64_t now_ns);

#endif /* LTN_HTTP_LOAD_H */
