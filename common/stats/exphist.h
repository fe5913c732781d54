/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Base-2 exponential histogram of non-negative numbers, the model of OpenTelemetry: at scale s the
 * bucket i counts values in (base^i, base^(i+1)] with base = 2^(2^-s); zeros are counted apart. Two
 * histograms merge without loss beyond the coarser of their scales: lowering the scale by one joins
 * neighbours exactly (index >> 1).
 *
 * The buckets are in an array that the caller provides. When a value does not fit the scale is
 * lowered until it does. One thread at a time.
 *
 * Error of a quantile, relative to a true sample value of that rank, is at most
 * ltn_exphist_error(scale) = (base-1)/(base+1): 2.17 % at scale 4, 4.33 % at 3, 8.6 % at 2. From a
 * kernel histogram (ltn_exphist_add_kernel) add 3.125 % for its own buckets (half of the widest,
 * 1/16 of its lowest value): 5.4 % at scale 4 and above, so the promise of 6.25 % holds whenever
 * the scale is still 4 or more. LTN_EXPHIST_FULL_BUCKETS buckets always keep it there.
 */
#ifndef LTN_STATS_EXPHIST_H
#define LTN_STATS_EXPHIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/attr.h"

#define LTN_EXPHIST_SCALE_MIN (-10)
#define LTN_EXPHIST_SCALE_MAX 20

/* Bucket capacity of OpenTelemetry SDKs: plenty for one call site. */
#define LTN_EXPHIST_SDK_BUCKETS 160

/* Scale for durations of kernel histograms, and the capacity that holds every 64-bit duration at
 * that scale. */
#define LTN_EXPHIST_KERNEL_SCALE 4
#define LTN_EXPHIST_FULL_BUCKETS 1040

/* Buckets of a kernel histogram that covers 64 bits. */
#define LTN_KHIST_BUCKETS 976

struct ltn_exphist {
    uint64_t *counts; /* borrowed storage of cap items; counts[i] is bucket offset + i */
    uint32_t cap;     /* at least 4 */
    uint32_t n;       /* buckets in use, 0 when there is none */
    int32_t offset;   /* index of counts[0] */
    int32_t scale;    /* the current one, only ever lowered */
    uint64_t count;   /* values, zeros included */
    uint64_t zero_count;
    double zero_threshold; /* values up to it count as zero */
    double sum;
    double min, max; /* valid when count > 0 */
};

/* Prepares an empty histogram over storage[cap] (cap >= 4, borrowed as long as h is used) that
 * starts at scale (clamped to its range). */
void ltn_exphist_init(struct ltn_exphist *h, uint64_t *storage, uint32_t cap, int scale);

/* Empties it again and sets the scale anew. */
void ltn_exphist_reset(struct ltn_exphist *h, int scale);

/* Counts v times times. -EINVAL for negative, infinite and NaN values: nothing is counted. */
int ltn_exphist_record(struct ltn_exphist *h, double v, uint64_t times);

/* Adds src to dst. Cannot fail; lowers the scale of dst as needed. */
void ltn_exphist_merge(struct ltn_exphist *dst, const struct ltn_exphist *src);

/* A dense run of buckets as it came from elsewhere. */
struct ltn_exphist_run {
    const uint64_t *counts;
    size_t n;
    int32_t scale;
    int32_t offset;
};

/* True when scale is in range, the indexes do not overflow and no bucket lies outside the range of
 * double. */
bool ltn_exphist_run_ok(int32_t scale, int32_t offset, size_t n);

/* Adds only buckets to h: count grows by their sum; sum, min and max are the caller's business (see
 * ltn_exphist_note). -EINVAL unless ltn_exphist_run_ok. */
int ltn_exphist_add_run(struct ltn_exphist *h, const struct ltn_exphist_run *run) ltn_must_check;

/* Counts n values of at most threshold (finite, not negative) as zeros. A threshold above that of h
 * becomes the new one: buckets below it turn into zeros, and it is raised to the upper bound of a
 * bucket that it cuts. min and max are the caller's business. */
void ltn_exphist_add_zeros(struct ltn_exphist *h, uint64_t n, double threshold);

/* Adds a sum and widens min and max. For values that are counted already; on the first of them min
 * and max are set. */
void ltn_exphist_note(struct ltn_exphist *h, double sum, double min, double max);

/* Lowers the scale by that many steps (0 or less does nothing). */
void ltn_exphist_downscale(struct ltn_exphist *h, int steps);

/* Quantile q in [0, 1] (clamped); NaN when empty. q 0 gives min, 1 gives max. Within a bucket the
 * value that minimises the relative error is given, clamped to [min, max]. */
double ltn_exphist_quantile(const struct ltn_exphist *h, double q);

/* How many values are above v, exact at bucket bounds, else with the bucket of v split in
 * proportion on a logarithmic axis. */
double ltn_exphist_count_above(const struct ltn_exphist *h, double v);

/* Bucket index of a finite v > 0 at a scale, and base^index: the lower bound (not included) of that
 * bucket and the upper (included) of the one before. */
int32_t ltn_exphist_index(double v, int scale);
double ltn_exphist_bound(int32_t index, int scale);

/* Worst relative error of ltn_exphist_quantile at a scale. */
double ltn_exphist_error(int scale);

/* The kernel's log-linear histogram of ns: v < 16 -> v, else with l = ilog2(v),
 * ((l-3) << 4) + ((v >> (l-4)) & 15). Index of v, and the lowest and highest v of an index. */
uint32_t ltn_khist_index(uint64_t v);
uint64_t ltn_khist_low(uint32_t index);
uint64_t ltn_khist_high(uint32_t index);

/* Adds a kernel histogram of durations in ns to h in seconds; n <= LTN_KHIST_BUCKETS, the rest is
 * ignored. sum_ns is the exact sum if the kernel kept one, else 0 (then estimated from the buckets,
 * within 3.2 %). min and max widen to the bounds of the outermost buckets. */
void ltn_exphist_add_kernel(struct ltn_exphist *h, const uint64_t *counts, size_t n,
                            uint64_t sum_ns);
void ltn_exphist_add_kernel32(struct ltn_exphist *h, const uint32_t *counts, size_t n,
                              uint64_t sum_ns);

/* Quantile in ns straight from a kernel histogram: the middle of its bucket, error at most 3.2 %;
 * 0 when empty. */
double ltn_khist_quantile_ns(const uint64_t *counts, size_t n, double q);

#endif /* LTN_STATS_EXPHIST_H */
