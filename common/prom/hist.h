/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state of one histogram or summary of a client: the newest cumulative point, or the sum of the
 * delta points, and how it is written as a classic histogram. Memory is bounded whatever comes.
 * One thread at a time.
 */
#ifndef LTN_PROM_HIST_H
#define LTN_PROM_HIST_H

#include <stdbool.h>
#include <stdint.h>

#include "base/attr.h"
#include "prom/expo.h"

/* Bounds that one explicit histogram may have, quantiles of a summary, buckets of an exponential
 * histogram kept on each side of zero (its scale is lowered until they do), exemplars. */
#define LTN_HIST_BOUNDS_MAX    512
#define LTN_HIST_QUANTILES_MAX 64
#define LTN_HIST_BUCKETS       160
#define LTN_HIST_EXEMPLARS     8

enum ltn_hist_kind { LTN_HIST_EXPLICIT = 0, LTN_HIST_EXPONENTIAL, LTN_HIST_SUMMARY };

/* counts[i] of (base^(offset+i), base^(offset+i+1)], base = 2^(2^-scale) */
struct ltn_hist_run {
    const uint64_t *counts;
    size_t n;
    int32_t offset;
};

/* One point. Everything is borrowed for the call. */
struct ltn_hist_point {
    enum ltn_hist_kind kind;
    bool delta;
    uint64_t start_ns, time_ns; /* 0: unknown */
    uint64_t count;
    double sum;
    bool has_sum;
    /* explicit */
    const double *bounds;   /* ascending, no NaN */
    const uint64_t *counts; /* bound_n + 1, or NULL when only count is known */
    size_t bound_n;
    /* exponential */
    int32_t scale;
    uint64_t zero_count;
    double zero_threshold;
    struct ltn_hist_run positive, negative;
    /* summary, in any order */
    const struct ltn_prom_quantile *quantiles;
    size_t quantile_n;
    const struct ltn_prom_exemplar *exemplars;
    size_t exemplar_n;
};

struct ltn_hist;

/* An empty one. NULL when out of memory. */
struct ltn_hist *ltn_hist_new(void) ltn_must_check;
void ltn_hist_free(struct ltn_hist *h);

/* What became of a point. */
enum ltn_hist_fate {
    LTN_HIST_TAKEN = 0,
    LTN_HIST_OLD,     /* ignored: late, or delivered before */
    LTN_HIST_GAP,     /* taken; a delta behind a gap, with which the sum begins anew */
    LTN_HIST_OVERLAP, /* taken, though its time overlaps what is there: a second writer? */
    LTN_HIST_REFUSED, /* ignored: too many bounds, an impossible scale or run */
    LTN_HIST_NO_ROOM, /* ignored: for want of memory (of ltn_hist_take only) */
};

/* Takes a point in. A cumulative one replaces what is there unless it is older. A delta one is
 * added; one that ends no later than the last, or begins before the first, is ignored; behind a
 * gap, and with other bounds than before, the sum begins anew. mixed: points of many series come
 * here (the overflow series): deltas are added whatever their times, of cumulative ones the highest
 * count stays. *ret_fate is set on success. 0 or -ENOMEM (unchanged then). */
int ltn_hist_set(struct ltn_hist *h, const struct ltn_hist_point *p, bool mixed,
                 enum ltn_hist_fate *ret_fate) ltn_must_check;

/* Time of the newest point, and the count. */
uint64_t ltn_hist_time_ns(const struct ltn_hist *h);
uint64_t ltn_hist_count(const struct ltn_hist *h);
/* Bytes on the heap, about; and those that a histogram of this point alone would have. */
size_t ltn_hist_bytes(const struct ltn_hist *h);
size_t ltn_hist_point_bytes(const struct ltn_hist_point *p);

/* ---- the bounds of a family of exponential histograms ---- */

/* Bounds of all histograms of a family together, so that sums over them are right: edges of their
 * own buckets at the coarsest of their scales, coarser still until they are few. */
#define LTN_HIST_EDGES 48

struct ltn_hist_grid {
    /* what the histograms need */
    int32_t scale;
    bool zero; /* a bound at zero is needed */
    double zero_threshold;
    bool any[2];          /* buckets of positive (0), negative (1) numbers */
    int32_t lo[2], hi[2]; /* edges at scale: from base^lo to base^hi */
    /* ltn_hist_grid_end */
    size_t n;
    double bounds[LTN_HIST_EDGES + 4];
    int32_t index[LTN_HIST_EDGES + 4]; /* of the edge */
    int8_t side[LTN_HIST_EDGES + 4];   /* 1 positive, -1 negative, 0 zero */
};

void ltn_hist_grid_begin(struct ltn_hist_grid *g);
void ltn_hist_grid_add(struct ltn_hist_grid *g, const struct ltn_hist *h);
void ltn_hist_grid_end(struct ltn_hist_grid *g);

/* Writes h as samples of the open family of p, a histogram or a summary. g is for exponential ones
 * and has seen h. Nothing is written for one of the other type. */
void ltn_hist_write(const struct ltn_hist *h, const struct ltn_hist_grid *g, const char *labels,
                    struct ltn_prom *p);

/* ---- keeping ---- */

/* Appends all but the exemplars as bytes, and reads it back: NULL when they are no such thing or
 * memory is out. */
int ltn_hist_save(const struct ltn_hist *h, struct ltn_buf *out) ltn_must_check;
struct ltn_hist *ltn_hist_load(const void *data, size_t n) ltn_must_check;

#endif /* LTN_PROM_HIST_H */
