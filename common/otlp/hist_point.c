/* SPDX-License-Identifier: Apache-2.0 */
#include "otlp/hist_point.h"

#include <errno.h>
#include <float.h>
#include <math.h>

void ltn_otlp_from_exphist(const struct ltn_exphist *h, struct ltn_otlp_exp_histogram *p)
{
    struct ltn_otlp_point point = p->point;
    bool any = h->count > 0;
    *p = (struct ltn_otlp_exp_histogram){
        .point = point,
        .count = h->count,
        .sum = h->sum,
        .min = any ? h->min : 0,
        .max = any ? h->max : 0,
        .has_sum = true,
        .has_min = any,
        .has_max = any,
        .scale = h->scale,
        .zero_count = h->zero_count,
        .zero_threshold = h->zero_threshold,
        .positive = {.offset = h->n > 0 ? h->offset : 0, .counts = h->counts, .n = h->n},
    };
}

/* The lowest and highest values the point can hold, from min and max or from its buckets. */
static void range(const struct ltn_otlp_exp_histogram *p, double *ret_min, double *ret_max)
{
    const struct ltn_otlp_buckets *k = &p->positive;
    size_t first = 0, last = k->n;
    while (first < k->n && k->counts[first] == 0) {
        first++;
    }
    while (last > first && k->counts[last - 1] == 0) {
        last--;
    }
    double low = 0, high = p->zero_threshold;
    if (last > first) {
        low = p->zero_count > 0 ? 0 : ltn_exphist_bound(k->offset + (int32_t)first, p->scale);
        high = fmin(ltn_exphist_bound(k->offset + (int32_t)last, p->scale), DBL_MAX);
    }
    *ret_min = p->has_min && isfinite(p->min) && p->min >= 0 ? p->min : low;
    *ret_max = p->has_max && isfinite(p->max) && p->max >= *ret_min ? p->max : high;
}

int ltn_otlp_into_exphist(const struct ltn_otlp_exp_histogram *p, struct ltn_exphist *h)
{
    const struct ltn_exphist_run run = {p->positive.counts, p->positive.n, p->scale,
                                        p->positive.offset};
    for (size_t i = 0; i < p->negative.n; i++) {
        if (p->negative.counts[i] != 0) {
            return -EINVAL;
        }
    }
    if (!isfinite(p->zero_threshold) || p->zero_threshold < 0) {
        return -EINVAL;
    }
    uint64_t before = h->count;
    int rc = ltn_exphist_add_run(h, &run);
    if (rc < 0) {
        return rc;
    }
    ltn_exphist_add_zeros(h, p->zero_count, p->zero_threshold);
    if (h->count > before) {
        double min, max;
        range(p, &min, &max);
        ltn_exphist_note(h, p->has_sum && isfinite(p->sum) ? p->sum : 0, min, max);
    }
    return 0;
}
