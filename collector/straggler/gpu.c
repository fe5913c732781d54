/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A slow GPU makes all hosts wait alike, so self time does not show it. What shows is its clock
 * below its peers' with a throttle reason set, while the job's step got longer. Memory-bound work
 * feels a clock less than in proportion: the prediction is an upper bound, and says so.
 */
#include "straggler/internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "stats/robust.h"

/* Below this share of the step's growth the clock is not what slows the job. */
#define MIN_SHARE_TO_OPEN 0.5

/* Place of a value that is in the sorted array. */
static size_t place_of(const double *sorted, size_t n, double v)
{
    size_t low = 0, high = n;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (sorted[mid] < v)
            low = mid + 1;
        else
            high = mid;
    }
    return low < n ? low : n - 1;
}

void ltn_gpu_round(struct ltn_round *r)
{
    double *sorted = r->s->scratch;
    size_t k = 0;
    for (size_t i = 0; i < r->n; i++)
        if (r->cases[i].in->gpu_clock > 0)
            sorted[k++] = r->cases[i].in->gpu_clock;
    ltn_sort_f64(sorted, k);
    for (size_t i = 0; i < r->n; i++) {
        struct ltn_case *c = &r->cases[i];
        c->throttled = false;
        c->peer_clock = -1;
        if (!(c->in->gpu_clock > 0) || k < 2)
            continue;
        c->peer_clock = ltn_loo_median_sorted(sorted, k, place_of(sorted, k, c->in->gpu_clock));
        c->throttled = (c->in->gpu_throttle & LTN_THROTTLE_BITS) != 0 &&
                       c->in->gpu_clock <= c->peer_clock * (1.0 - r->s->opts.min_effect);
    }
}

static double baseline_median(const double ring[LTN_BASELINE_WINDOWS], size_t n)
{
    double v[LTN_BASELINE_WINDOWS];
    memcpy(v, ring, n * sizeof(*v));
    return ltn_median(v, n);
}

static const char *reason_text(uint64_t bits)
{
    if (bits & 0x40)
        return "hardware thermal slowdown";
    if (bits & 0x20)
        return "software thermal slowdown";
    if (bits & 0x80)
        return "power brake";
    if (bits & 0x8)
        return "hardware slowdown";
    return "software power cap";
}

struct clock_means {
    double own, peers, step_ns;
    uint64_t bits;
    double n;
};

static struct clock_means recent_means(const struct ltn_mate *m)
{
    struct clock_means k = {0, 0, 0, 0, 0};
    for (size_t i = 0; i < m->recent_n; i++) {
        const struct ltn_sample *s = &m->recent[i];
        if (!s->throttled)
            continue;
        k.own += s->clock;
        k.peers += s->peer_clock;
        k.step_ns += s->step_ns;
        k.bits |= s->throttle_bits & LTN_THROTTLE_BITS;
        k.n++;
    }
    if (k.n > 0) {
        k.own /= k.n;
        k.peers /= k.n;
        k.step_ns /= k.n;
    }
    return k;
}

static void describe(struct ltn_straggler_verdict *v, const struct clock_means *k, double growth,
                     double share)
{
    int n = snprintf(v->cause_detail, sizeof(v->cause_detail),
                     "GPU clock at %.0f %% of its limit, peers at %.0f %% (%s)", 100 * k->own,
                     100 * k->peers, reason_text(k->bits));
    if (n < 0 || (size_t)n >= sizeof(v->cause_detail))
        return;
    char *rest = v->cause_detail + n;
    size_t room = sizeof(v->cause_detail) - (size_t)n;
    if (share < 0)
        (void)snprintf(rest, room,
                       "; no earlier step time of this job to compare with, so how much of the "
                       "step it costs is predicted only");
    else
        (void)snprintf(rest, room,
                       "; the step grew by %.0f %% of its baseline, and the clock ratio times the "
                       "baseline's time on the device predicts %.0f %% of that growth",
                       100 * growth, 100 * share);
}

bool ltn_gpu_verdict(const struct ltn_round *r, const struct ltn_case *c,
                     struct ltn_straggler_verdict *v)
{
    const struct ltn_straggler_opts *o = &r->s->opts;
    if (ltn_mate_count(c->mate, ltn_sample_throttled) < LTN_NEEDED)
        return false;
    struct clock_means k = recent_means(c->mate);
    double slowdown = k.peers / k.own - 1.0;
    double growth = 0, share = -1, lost_ns;
    if (r->g->base_n >= LTN_BASELINE_MIN) {
        double step = baseline_median(r->g->base_step_ns, r->g->base_n);
        double device = baseline_median(r->g->base_device_ns, r->g->base_n);
        growth = k.step_ns / step - 1.0;
        if (growth < o->min_step_growth)
            return false;
        double raw = slowdown * device / (k.step_ns - step);
        share = fmin(1.0, raw);
        if (raw < MIN_SHARE_TO_OPEN)
            return false;
        lost_ns = share * (k.step_ns - step);
    } else {
        double device = c->in->peer_wait_ns + c->in->part_ns[LTN_PART_DEVICE];
        lost_ns = device * (1.0 - 1.0 / (1.0 + slowdown));
    }
    v->method = LTN_METHOD_GPU_CLOCK;
    v->tier = "nvml";
    v->effect_pct = 100 * slowdown;
    v->gpu_clock = k.own;
    v->peer_gpu_clock = k.peers;
    v->explained_share = share;
    v->impact_share = fmax(0, fmin(1, lost_ns / k.step_ns));
    ltn_copy_str(v->cause, sizeof(v->cause),
                 share >= 0 && share < o->min_named_share ? "unattributed" : "gpu_clock");
    describe(v, &k, growth, share);
    return true;
}

void ltn_gpu_learn(struct ltn_round *r)
{
    double *steps = r->s->scratch;
    double *device = r->s->scratch + r->n;
    for (size_t i = 0; i < r->n; i++) {
        const struct ltn_case *c = &r->cases[i];
        if (c->slow || c->throttled || c->mate->open)
            return;
        steps[i] = c->in->step_ns;
        device[i] = c->in->peer_wait_ns + c->in->part_ns[LTN_PART_DEVICE];
    }
    struct ltn_group *g = r->g;
    g->base_step_ns[g->base_at] = ltn_median(steps, r->n);
    g->base_device_ns[g->base_at] = ltn_median(device, r->n);
    g->base_at = (g->base_at + 1) % LTN_BASELINE_WINDOWS;
    if (g->base_n < LTN_BASELINE_WINDOWS)
        g->base_n++;
}
