/* SPDX-License-Identifier: Apache-2.0 */
#include "http/load.h"

#define HOLD_NS        (LTN_LOAD_HOLD_MS * LTN_NS_PER_MS)
#define WINDOW_NS      (LTN_LOAD_WINDOW_MS * LTN_NS_PER_MS)
#define STALE_MS       (2 * LTN_LOAD_WINDOW_MS) /* a window that long had no requests of late */
#define REFUSALS_AHEAD 50                       /* a second's over so many */
#define AVERAGE_OF     16                       /* bodies */

/* ---- one lane ---- */

static uint32_t at_least(uint64_t n)
{
    return n > LTN_LOAD_LEAST ? (uint32_t)(n < UINT32_MAX ? n : UINT32_MAX) : LTN_LOAD_LEAST;
}

/* What was answered in the window says what the limit is, unless there was time left: then it
 * grows, and comes back slowly, for peers that are far away are always late with their bodies. */
static uint32_t next_limit(const struct ltn_load *l)
{
    if (l->rested) {
        uint64_t more = (uint64_t)l->limit + l->limit / 2, used = (uint64_t)l->most * 2;
        return at_least(more < used ? more : used);
    }
    uint32_t less = l->limit - l->limit / 8;
    return less > l->queue ? less : l->queue;
}

static void next_window(struct ltn_load *l, uint64_t now_ns, uint64_t behind_ns)
{
    uint64_t elapsed_ms = (now_ns - l->window_ns) / LTN_NS_PER_MS;
    uint64_t queue_ms = l->overloaded ? LTN_LOAD_QUEUE_MS : LTN_LOAD_BURST_QUEUE_MS;
    bool clear = l->waiting == 0 && (l->refused == 0 || elapsed_ms > STALE_MS);
    l->queue = at_least((uint64_t)l->answered * queue_ms / elapsed_ms);
    l->overloaded = l->overloaded && !clear;
    l->holds = l->holds && !(behind_ns <= HOLD_NS && clear);
    l->limit = next_limit(l);
    l->window_ns = now_ns;
    l->answered = l->refused = 0;
    l->most = l->in_progress;
    l->rested = false;
}

void ltn_load_look(struct ltn_load *l, uint64_t now_ns, uint64_t rested_ns)
{
    uint64_t behind_ns = now_ns > rested_ns ? now_ns - rested_ns : 0;
    l->rested = l->rested || rested_ns >= l->window_ns;
    if (now_ns - l->window_ns >= WINDOW_NS) {
        next_window(l, now_ns, behind_ns);
    }
    if (!l->holds && behind_ns > (l->in_progress < LTN_LOAD_MANY ? HOLD_NS : HOLD_NS / 10)) {
        l->holds = true;
        l->limit = at_least(l->most > l->queue ? l->most : l->queue);
    }
    if (l->waiting == 0) {
        l->clear_ns = now_ns;
    } else if (now_ns - l->clear_ns >= l->burst_ns) {
        l->overloaded = true;
    }
}

bool ltn_load_has_room(const struct ltn_load *l)
{
    return !l->holds || l->in_progress < LTN_LOAD_LEAST || l->in_progress < l->limit;
}

void ltn_load_let_in(struct ltn_load *l)
{
    l->in_progress++;
    l->most = l->in_progress > l->most ? l->in_progress : l->most;
}

void ltn_load_over(struct ltn_load *l, bool answered)
{
    l->in_progress--;
    l->answered += answered ? 1 : 0;
}

/* ---- all lanes ---- */

void ltn_load_total_init(struct ltn_load_total *t, size_t max_bytes, uint32_t refusals_per_s)
{
    *t = (struct ltn_load_total){.max_bytes = max_bytes};
    ltn_bucket_init(&t->refusals, refusals_per_s / REFUSALS_AHEAD + 1, refusals_per_s);
}

bool ltn_load_total_has_room(const struct ltn_load_total *t)
{
    return t->max_bytes == 0 || t->in_progress < LTN_LOAD_LEAST ||
           (t->bytes < t->max_bytes &&
            t->body_bytes + LTN_LOAD_OWN_BYTES <= t->max_bytes - t->bytes);
}

void ltn_load_total_body(struct ltn_load_total *t, size_t bytes)
{
    bytes = bytes < LTN_LOAD_LARGE_BYTES ? bytes : LTN_LOAD_LARGE_BYTES;
    t->body_bytes = t->body_bytes - t->body_bytes / AVERAGE_OF + bytes / AVERAGE_OF;
}

bool ltn_load_total_may_refuse(struct ltn_load_total *t, uint64_t now_ns)
{
    return ltn_bucket_take(&t->refusals, 1, now_ns);
}
