/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allocations and frees that are slow or many against the process's own history, and whether they
 * come at a period. An allocation that waited for a CPU is not the allocator's fault.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "causal/internal.h"
#include "stats/robust.h"

#define SPIKE_FACTOR   10
#define SPIKE_MIN_NS   LTN_NS_PER_MS
#define SPIKE_SHARE    0.01 /* of the window, together */
#define SPIKES_AT_ONCE 3
#define SPIKE_WINDOWS  3 /* windows with spikes among the last eight */
#define HISTORY_MIN    16
#define BURST_FACTOR   8
#define BURST_SHARE    0.05
#define QUIET          4
#define PERIOD_SPIKES  5
#define PERIOD_SPREAD  0.15
#define PERIOD_APART   (50 * LTN_NS_PER_MS) /* closer ones are one spike */

enum { ALLOCS, FREES };

static int compare(const void *a, const void *b)
{
    uint64_t x;
    uint64_t y;
    memcpy(&x, a, sizeof(x));
    memcpy(&y, b, sizeof(y));
    return (x > y) - (x < y);
}

static uint64_t usual_ns(const struct alloc_track *t)
{
    uint64_t sorted[ALLOC_HISTORY];
    size_t n = t->seen < ALLOC_HISTORY ? (size_t)t->seen : ALLOC_HISTORY;
    if (n == 0) {
        return 0;
    }
    memcpy(sorted, t->history_ns, n * sizeof(*sorted));
    qsort(sorted, n, sizeof(*sorted), compare);
    return sorted[n / 2];
}

static void note_spike(struct causal_proc *p, struct alloc_track *t, const struct ltn_call *call)
{
    t->spikes++;
    t->spike_ns += call->duration_ns;
    t->queued_ns += call->run_queue_ns;
    t->blocked_ns += call->blocked_ns;
    if (call->duration_ns > t->worst_ns) {
        t->worst_ns = call->duration_ns;
        t->worst_op = call->op;
    }
    uint64_t last = p->spike_n > 0 ? p->spike_times[(p->spike_n - 1) % SPIKE_TIMES] : 0;
    if (p->spike_n == 0 || call->time_ns > last + PERIOD_APART) {
        p->spike_times[p->spike_n++ % SPIKE_TIMES] = call->time_ns;
        if (p->spike_n >= 2 * SPIKE_TIMES) {
            p->spike_n -= SPIKE_TIMES;
        }
    }
}

void ltn_causal_note_alloc(struct causal_proc *p, const struct ltn_op *op,
                           const struct ltn_call *call)
{
    if (op->op_class != LTN_CLASS_ALLOC && op->op_class != LTN_CLASS_FREE) {
        return;
    }
    struct alloc_track *t = &p->alloc[op->op_class == LTN_CLASS_ALLOC ? ALLOCS : FREES];
    t->calls += call->weight;
    t->total_ns += call->duration_ns * call->weight;
    if (t->seen >= HISTORY_MIN && call->duration_ns >= SPIKE_MIN_NS &&
        call->duration_ns >= SPIKE_FACTOR * usual_ns(t)) {
        note_spike(p, t, call);
        /* Not among the usual, unless it is by now: the history moves on slowly. */
        if ((p->spike_n & 3) != 0) {
            return;
        }
    }
    t->history_ns[t->seen++ % ALLOC_HISTORY] = call->duration_ns;
}

/* Seconds between spikes when they come regularly, else 0. */
static double period_s(const struct causal_proc *p)
{
    double gaps[SPIKE_TIMES];
    double scratch[SPIKE_TIMES];
    size_t n = p->spike_n < SPIKE_TIMES ? p->spike_n : SPIKE_TIMES;
    if (n < PERIOD_SPIKES) {
        return 0.0;
    }
    for (size_t i = 1; i < n; i++) {
        size_t at = p->spike_n - n + i;
        gaps[i - 1] =
            (double)(p->spike_times[at % SPIKE_TIMES] - p->spike_times[(at - 1) % SPIKE_TIMES]) /
            1e9;
    }
    double copy[SPIKE_TIMES];
    memcpy(copy, gaps, sizeof(copy));
    double m = ltn_median(copy, n - 1);
    double mad = ltn_mad(gaps, n - 1, m, scratch);
    double worst = 0.0;
    for (size_t i = 0; i < n - 1; i++) {
        worst = fmax(worst, fabs(gaps[i] - m));
    }
    return m > 0.0 && mad < PERIOD_SPREAD * m && worst < 2 * PERIOD_SPREAD * m ? m : 0.0;
}

static bool is_burst(const struct alloc_track *t, double window_ns)
{
    double x[BASELINE_WINDOWS];
    if (t->count_n < BASELINE_MIN || (double)t->total_ns < BURST_SHARE * window_ns) {
        return false;
    }
    size_t n = t->count_n < BASELINE_WINDOWS ? t->count_n : BASELINE_WINDOWS;
    memcpy(x, t->counts, n * sizeof(*x));
    double usual = ltn_median(x, n);
    return (double)t->calls >= BURST_FACTOR * (usual < 1.0 ? 1.0 : usual);
}

static void found(struct ltn_causal *c, struct causal_proc *p, const struct alloc_track *t,
                  int which, bool burst, const struct ltn_window *w)
{
    char title[LTN_CAUSAL_TITLE_BYTES];
    char who[WHO_BYTES];
    char took[DURATION_BYTES];
    char usual[DURATION_BYTES];
    char every[48] = "";
    double period = burst ? 0.0 : period_s(p);
    double time = burst ? (double)t->total_ns : (double)t->spike_ns;
    double share = time > 0.0 ? 1.0 - (double)t->queued_ns / time : 0.0;
    double lost = time / (double)(w->end_ns - w->start_ns);
    bool waits = which == FREES && (double)t->blocked_ns >= LTN_CAUSAL_EXPLAINED * time;
    if (period > 0.0) {
        (void)snprintf(every, sizeof(every), ", about every %.1f s", period);
    }
    ltn_causal_who(who, p);
    ltn_causal_duration(usual, (double)usual_ns(t));
    if (burst) {
        (void)snprintf(title, sizeof(title), "%s: %lu %s in a window took %s", who, t->calls,
                       which == ALLOCS ? "allocations" : "frees", ltn_causal_duration(took, time));
    } else {
        (void)snprintf(title, sizeof(title),
                       "%s: %s took %s, %s usual; %u such calls in a window%s", who,
                       ltn_causal_op_name(t->worst_op),
                       ltn_causal_duration(took, (double)t->worst_ns), usual, t->spikes, every);
    }
    struct ltn_buf evidence;
    struct ltn_json j;
    ltn_buf_init(&evidence, EVIDENCE_BYTES);
    ltn_json_init(&j, &evidence);
    ltn_json_open_object(&j);
    ltn_json_kv_time(&j, "window_end", "window_end_ns", w->end_ns);
    ltn_json_kv_u64(&j, "calls", t->calls);
    ltn_json_kv_u64(&j, "calls_ns", t->total_ns);
    ltn_json_kv_u64(&j, "slow_calls", t->spikes);
    ltn_json_kv_u64(&j, "slow_calls_ns", t->spike_ns);
    ltn_json_kv_u64(&j, "slow_run_queue_ns", t->queued_ns);
    ltn_json_kv_u64(&j, "slow_blocked_ns", t->blocked_ns);
    ltn_json_kv_u64(&j, "worst_ns", t->worst_ns);
    ltn_json_kv_u64(&j, "usual_ns", usual_ns(t));
    if (period > 0.0) {
        ltn_json_kv_u64(&j, "period_ns", (uint64_t)(period * 1e9));
    }
    ltn_json_close_object(&j);
    const struct finding f = {
        .kind = LTN_CAUSAL_ALLOC,
        .severity = lost >= 0.3   ? LTN_CAUSAL_HIGH
                    : lost >= 0.1 ? LTN_CAUSAL_MEDIUM
                                  : LTN_CAUSAL_LOW,
        .title = title,
        .cause = share < LTN_CAUSAL_EXPLAINED ? ""
                 : burst                      ? "burst of allocator calls"
                 : waits                      ? "free that waits for the device"
                                              : "allocator calls into the driver",
        .share = share,
        .count = 1,
        .quiet = QUIET,
        .detail = (uint64_t)which,
        .evidence = &evidence,
    };
    ltn_inc_found(c, p, w->end_ns, &f);
    ltn_buf_done(&evidence);
}

static void turn(struct alloc_track *t)
{
    t->counts[t->count_n++ % BASELINE_WINDOWS] = (double)t->calls;
    if (t->count_n >= 2 * BASELINE_WINDOWS) {
        t->count_n -= BASELINE_WINDOWS;
    }
    t->spikes = 0;
    t->spike_ns = 0;
    t->queued_ns = 0;
    t->blocked_ns = 0;
    t->worst_ns = 0;
    t->calls = 0;
    t->total_ns = 0;
}

void ltn_causal_alloc(struct ltn_causal *c, struct causal_proc *p, const struct ltn_window *w)
{
    double window_ns = (double)(w->end_ns - w->start_ns);
    for (int i = 0; i < 2; i++) {
        struct alloc_track *t = &p->alloc[i];
        t->spike_windows = (t->spike_windows << 1 | (t->spikes > 0 ? 1U : 0U)) & 0xff;
        bool again = __builtin_popcount(t->spike_windows) >= SPIKE_WINDOWS;
        bool queued = 2 * t->queued_ns > t->spike_ns;
        bool spikes = t->spikes > 0 && !queued &&
                      (again || (t->spikes >= SPIKES_AT_ONCE &&
                                 (double)t->spike_ns >= SPIKE_SHARE * window_ns));
        bool burst = !spikes && is_burst(t, window_ns) && !queued;
        if (spikes || burst) {
            found(c, p, t, i, burst, w);
        }
        turn(t);
    }
}
