/* SPDX-License-Identifier: Apache-2.0 */
/* The state behind hist.h, for the files that hold it, write it and keep it. */
#ifndef LTN_PROM_HIST_INT_H
#define LTN_PROM_HIST_INT_H

#include "prom/hist.h"

struct ltn_hist_exemplar {
    double value;
    uint64_t time_ns;
    char *labels;
};

/* data by kind: explicit n[0] bounds, then n[0] + 1 counts (not cumulative); exponential n[0]
 * positive counts, then n[1] negative ones; summary n[0] pairs of quantile and value. */
struct ltn_hist {
    uint64_t *data;
    uint64_t count;
    double sum;
    uint64_t start_ns, time_ns;
    uint64_t zero_count;
    double zero_threshold;
    int32_t scale;
    int32_t offset[2];
    uint32_t n[2];
    uint8_t kind; /* enum ltn_hist_kind */
    bool used;    /* a point was taken */
    bool has_sum;
    bool bare; /* explicit without buckets */
    uint8_t exemplar_n;
    struct ltn_hist_exemplar *exemplars; /* NULL: none; else room for LTN_HIST_EXEMPLARS */
};

static inline size_t ltn_hist_words(const struct ltn_hist *h)
{
    if (h->data == NULL)
        return 0;
    return h->kind == LTN_HIST_EXPONENTIAL ? (size_t)h->n[0] + h->n[1] + 1
                                           : 2 * (size_t)h->n[0] + 1;
}

static inline const double *ltn_hist_bounds(const struct ltn_hist *h)
{
    return (const double *)(const void *)h->data;
}

/* Counts of the positive (0) or negative (1) side; NULL when there are none. */
static inline const uint64_t *ltn_hist_side(const struct ltn_hist *h, size_t side)
{
    return h->data == NULL ? NULL : h->data + (side == 0 ? 0 : h->n[0]);
}

#endif /* LTN_PROM_HIST_INT_H */
