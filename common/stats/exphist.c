/* SPDX-License-Identifier: Apache-2.0 */
#include "stats/exphist.h"

#include <errno.h>
#include <math.h>
#include <string.h>

/* log2 of the largest and of the smallest positive double. */
#define DOUBLE_MAX_LOG2 1024
#define DOUBLE_MIN_LOG2 (-1074)

static int clamp_scale(int scale)
{
    if (scale < LTN_EXPHIST_SCALE_MIN) {
        return LTN_EXPHIST_SCALE_MIN;
    }
    return scale > LTN_EXPHIST_SCALE_MAX ? LTN_EXPHIST_SCALE_MAX : scale;
}

/* Counts come from the network too: they stop at the top instead of wrapping. */
static void add(uint64_t *to, uint64_t n)
{
    if (__builtin_add_overflow(*to, n, to)) {
        *to = UINT64_MAX;
    }
}

void ltn_exphist_init(struct ltn_exphist *h, uint64_t *storage, uint32_t cap, int scale)
{
    *h = (struct ltn_exphist){.counts = storage, .cap = cap};
    ltn_exphist_reset(h, scale);
}

void ltn_exphist_reset(struct ltn_exphist *h, int scale)
{
    *h = (struct ltn_exphist){.counts = h->counts,
                              .cap = h->cap,
                              .scale = clamp_scale(scale),
                              .min = HUGE_VAL,
                              .max = -HUGE_VAL};
}

int32_t ltn_exphist_index(double v, int scale)
{
    int exponent;
    double mantissa = frexp(v, &exponent); /* v = mantissa 2^exponent, mantissa in [0.5, 1) */
    bool power = mantissa == 0.5;
    if (scale <= 0) {
        /* Upper bounds belong to the bucket below, so powers of two go one down. */
        return (exponent - 1 - (power ? 1 : 0)) >> -scale;
    }
    int32_t per_octave = (int32_t)1 << scale;
    if (power) {
        return (exponent - 1) * per_octave - 1;
    }
    int32_t within = (int32_t)ceil(log2(mantissa) * per_octave) - 1;
    if (within < -per_octave) {
        within = -per_octave; /* rounding next to the lower end of the octave */
    } else if (within > -1) {
        within = -1;
    }
    return exponent * per_octave + within;
}

double ltn_exphist_bound(int32_t index, int scale)
{
    return exp2(ldexp((double)index, -scale));
}

double ltn_exphist_error(int scale)
{
    double base = exp2(ldexp(1.0, -scale));
    return isinf(base) ? 1.0 : (base - 1) / (base + 1);
}

bool ltn_exphist_run_ok(int32_t scale, int32_t offset, size_t n)
{
    if (scale < LTN_EXPHIST_SCALE_MIN || scale > LTN_EXPHIST_SCALE_MAX) {
        return false;
    }
    if (n == 0) {
        return true;
    }
    if (n > INT32_MAX || (int64_t)offset + (int64_t)n - 1 > INT32_MAX) {
        return false;
    }
    /* The first bucket must reach up to the smallest double, the last begin below the largest. */
    double first_upper = ldexp((double)offset + 1, -scale);
    double last_lower = ldexp((double)offset + (double)n - 1, -scale);
    return first_upper >= DOUBLE_MIN_LOG2 && last_lower < DOUBLE_MAX_LOG2;
}

void ltn_exphist_downscale(struct ltn_exphist *h, int steps)
{
    if (steps > h->scale - LTN_EXPHIST_SCALE_MIN) {
        steps = h->scale - LTN_EXPHIST_SCALE_MIN;
    }
    if (steps <= 0) {
        return;
    }
    h->scale -= steps;
    if (h->n == 0) {
        return;
    }
    int32_t offset = h->offset >> steps;
    uint32_t n = (uint32_t)(((h->offset + (int32_t)h->n - 1) >> steps) - offset) + 1;
    uint32_t to = 0;
    for (uint32_t i = 0; i < h->n; i++) {
        /* Where bucket i goes lies at or before i, so reading stays ahead of writing. */
        uint32_t target = (uint32_t)(((h->offset + (int32_t)i) >> steps) - offset);
        uint64_t count = h->counts[i];
        if (i == 0 || target != to) {
            h->counts[target] = 0;
            to = target;
        }
        add(&h->counts[to], count);
    }
    h->offset = offset;
    h->n = n;
}

/* Makes bucket `index` of scale `scale` (not below that of h) exist and returns its place. */
static uint64_t *bucket(struct ltn_exphist *h, int32_t index, int scale)
{
    index >>= scale - h->scale;
    if (h->n == 0) {
        h->offset = index;
        h->n = 1;
        h->counts[0] = 0;
        return &h->counts[0];
    }
    int64_t low, high;
    for (;;) {
        int64_t last = (int64_t)h->offset + h->n - 1;
        low = index < h->offset ? index : h->offset;
        high = index > last ? index : last;
        if (high - low < h->cap || h->scale == LTN_EXPHIST_SCALE_MIN) {
            break;
        }
        ltn_exphist_downscale(h, 1);
        index >>= 1;
    }
    if (high - low >= h->cap) {
        return NULL; /* cannot be with a capacity of 3 or more at the lowest scale */
    }
    uint32_t n = (uint32_t)(high - low + 1);
    uint32_t shift = (uint32_t)(h->offset - low);
    if (shift > 0) {
        memmove(h->counts + shift, h->counts, h->n * sizeof(*h->counts));
        memset(h->counts, 0, shift * sizeof(*h->counts));
    }
    if (n > h->n + shift) {
        memset(h->counts + h->n + shift, 0, (n - h->n - shift) * sizeof(*h->counts));
    }
    h->offset = (int32_t)low;
    h->n = n;
    return &h->counts[index - low];
}

static void add_bucket(struct ltn_exphist *h, int32_t index, int scale, uint64_t n)
{
    uint64_t *place = bucket(h, index, scale);
    if (place != NULL) {
        add(place, n);
        add(&h->count, n);
    }
}

int ltn_exphist_record(struct ltn_exphist *h, double v, uint64_t times)
{
    if (!isfinite(v) || v < 0) {
        return -EINVAL;
    }
    if (times == 0) {
        return 0;
    }
    if (v <= h->zero_threshold) {
        add(&h->zero_count, times);
        add(&h->count, times);
    } else {
        add_bucket(h, ltn_exphist_index(v, h->scale), h->scale, times);
    }
    ltn_exphist_note(h, v * (double)times, v, v);
    return 0;
}

int ltn_exphist_add_run(struct ltn_exphist *h, const struct ltn_exphist_run *run)
{
    if (!ltn_exphist_run_ok(run->scale, run->offset, run->n)) {
        return -EINVAL;
    }
    size_t first = 0, last = run->n;
    while (first < run->n && run->counts[first] == 0) {
        first++;
    }
    while (last > first && run->counts[last - 1] == 0) {
        last--;
    }
    if (first == last) {
        return 0;
    }
    if (h->scale > run->scale) {
        ltn_exphist_downscale(h, h->scale - run->scale);
    }
    /* Touching the far end first settles the scale before anything is counted. */
    (void)bucket(h, run->offset + (int32_t)(last - 1), run->scale);
    for (size_t i = first; i < last; i++) {
        if (run->counts[i] != 0) {
            add_bucket(h, run->offset + (int32_t)i, run->scale, run->counts[i]);
        }
    }
    ltn_exphist_add_zeros(h, 0, h->zero_threshold);
    return 0;
}

void ltn_exphist_add_zeros(struct ltn_exphist *h, uint64_t n, double threshold)
{
    add(&h->zero_count, n);
    add(&h->count, n);
    if (threshold > h->zero_threshold) {
        h->zero_threshold = threshold;
    }
    uint32_t fold = 0;
    while (fold < h->n && h->zero_threshold > 0 &&
           ltn_exphist_bound(h->offset + (int32_t)fold, h->scale) < h->zero_threshold) {
        double upper = ltn_exphist_bound(h->offset + (int32_t)fold + 1, h->scale);
        if (h->counts[fold] != 0 && upper > h->zero_threshold && isfinite(upper)) {
            h->zero_threshold = upper;
        }
        add(&h->zero_count, h->counts[fold]);
        fold++;
    }
    if (fold > 0) {
        memmove(h->counts, h->counts + fold, (h->n - fold) * sizeof(*h->counts));
        h->offset += (int32_t)fold;
        h->n -= fold;
    }
}

void ltn_exphist_note(struct ltn_exphist *h, double sum, double min, double max)
{
    h->sum += sum;
    h->min = fmin(h->min, min);
    h->max = fmax(h->max, max);
}

void ltn_exphist_merge(struct ltn_exphist *dst, const struct ltn_exphist *src)
{
    const struct ltn_exphist_run run = {src->counts, src->n, src->scale, src->offset};
    if (src->count == 0) {
        return;
    }
    /* A histogram of this kind is always in range. */
    (void)!ltn_exphist_add_run(dst, &run);
    ltn_exphist_add_zeros(dst, src->zero_count, src->zero_threshold);
    ltn_exphist_note(dst, src->sum, src->min, src->max);
}

static double clamp_to_seen(const struct ltn_exphist *h, double v)
{
    if (h->min > h->max) {
        return v;
    }
    return v < h->min ? h->min : v > h->max ? h->max : v;
}

/* The value in bucket `index` from which no value of the bucket is relatively far. */
static double bucket_value(int32_t index, int scale)
{
    double low = ltn_exphist_bound(index, scale);
    double base = exp2(ldexp(1.0, -scale));
    return isinf(base) ? low * 2 : low * (2 * base / (1 + base));
}

/* 1-based rank of quantile q among count values. */
static uint64_t rank_of(double q, uint64_t count)
{
    double rank = ceil((q > 0 ? q : 0) * (double)count);
    if (!(rank > 1)) {
        return 1;
    }
    return rank >= (double)count ? count : (uint64_t)rank;
}

double ltn_exphist_quantile(const struct ltn_exphist *h, double q)
{
    if (h->count == 0) {
        return (double)NAN;
    }
    if (h->min <= h->max && !(q > 0)) {
        return h->min;
    }
    if (h->min <= h->max && q >= 1) {
        return h->max;
    }
    uint64_t rank = rank_of(q, h->count);
    uint64_t seen = h->zero_count;
    if (rank <= seen) {
        return clamp_to_seen(h, 0);
    }
    for (uint32_t i = 0; i < h->n; i++) {
        add(&seen, h->counts[i]);
        if (rank <= seen) {
            return clamp_to_seen(h, bucket_value(h->offset + (int32_t)i, h->scale));
        }
    }
    return h->max;
}

double ltn_exphist_count_above(const struct ltn_exphist *h, double v)
{
    double above = 0;
    if (v < 0) {
        return (double)h->count;
    }
    if (v == 0) {
        return (double)(h->count - h->zero_count);
    }
    double position = ldexp(log2(v), h->scale); /* on the axis of bucket indexes */
    for (uint32_t i = 0; i < h->n; i++) {
        double low = (double)h->offset + i;
        double share = position <= low ? 1.0 : position >= low + 1 ? 0.0 : low + 1 - position;
        above += share * (double)h->counts[i];
    }
    return above;
}

uint32_t ltn_khist_index(uint64_t v)
{
    if (v < 16) {
        return (uint32_t)v;
    }
    unsigned l = 63 - (unsigned)__builtin_clzll(v);
    return ((l - 3) << 4) + (uint32_t)((v >> (l - 4)) & 15);
}

uint64_t ltn_khist_low(uint32_t index)
{
    if (index < 16) {
        return index;
    }
    return (uint64_t)(16 + (index & 15)) << ((index >> 4) - 1);
}

uint64_t ltn_khist_high(uint32_t index)
{
    if (index < 16) {
        return index;
    }
    return ltn_khist_low(index) + ((uint64_t)1 << ((index >> 4) - 1)) - 1;
}

static double middle_ns(uint32_t index)
{
    return ((double)ltn_khist_low(index) + (double)ltn_khist_high(index)) / 2;
}

/* One bucket of a kernel histogram; returns its share of the sum in ns. */
static double add_kernel_bucket(struct ltn_exphist *h, uint32_t index, uint64_t n)
{
    const double ns = 1e-9;
    double middle = middle_ns(index);
    double v = middle * ns;
    if (v <= h->zero_threshold) {
        add(&h->zero_count, n);
        add(&h->count, n);
    } else {
        add_bucket(h, ltn_exphist_index(v, h->scale), h->scale, n);
    }
    ltn_exphist_note(h, 0, (double)ltn_khist_low(index) * ns, (double)ltn_khist_high(index) * ns);
    return middle * (double)n;
}

void ltn_exphist_add_kernel(struct ltn_exphist *h, const uint64_t *counts, size_t n,
                            uint64_t sum_ns)
{
    double estimate = 0;
    for (uint32_t i = 0; i < n && i < LTN_KHIST_BUCKETS; i++) {
        estimate += counts[i] != 0 ? add_kernel_bucket(h, i, counts[i]) : 0;
    }
    h->sum += (sum_ns != 0 ? (double)sum_ns : estimate) * 1e-9;
}

void ltn_exphist_add_kernel32(struct ltn_exphist *h, const uint32_t *counts, size_t n,
                              uint64_t sum_ns)
{
    double estimate = 0;
    for (uint32_t i = 0; i < n && i < LTN_KHIST_BUCKETS; i++) {
        estimate += counts[i] != 0 ? add_kernel_bucket(h, i, counts[i]) : 0;
    }
    h->sum += (sum_ns != 0 ? (double)sum_ns : estimate) * 1e-9;
}

double ltn_khist_quantile_ns(const uint64_t *counts, size_t n, double q)
{
    uint64_t total = 0;
    uint64_t seen = 0;
    size_t used = n < LTN_KHIST_BUCKETS ? n : LTN_KHIST_BUCKETS;
    for (size_t i = 0; i < used; i++) {
        add(&total, counts[i]);
    }
    uint64_t rank = rank_of(q, total);
    for (uint32_t i = 0; total > 0 && i < used; i++) {
        add(&seen, counts[i]);
        if (rank <= seen) {
            return middle_ns(i);
        }
    }
    return 0;
}
