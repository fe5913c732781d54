/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Robust statistics of finite doubles: no NaN or infinity may be passed (ltn_drop_nonfinite removes
 * them). Pure functions, thread-safe.
 */
#ifndef LTN_STATS_ROBUST_H
#define LTN_STATS_ROBUST_H

#include <stddef.h>

#include "base/attr.h"

/* MAD x this estimates the standard deviation of normal data: 1 / Phi^-1(3/4). Rousseeuw and Croux,
 * "Alternatives to the median absolute deviation", JASA 88 (1993). */
#define LTN_MAD_TO_SIGMA 1.482602218505602

/* Moves the finite items to the front, in order; returns how many. */
size_t ltn_drop_nonfinite(double *x, size_t n);

/* Ascending, in place. */
void ltn_sort_f64(double *x, size_t n);

/* Median of sorted items: the middle one, or the mean of the middle two. NaN when n is 0. */
double ltn_median_sorted(const double *sorted, size_t n);

/* Median; reorders x in O(n) on average. NaN when n is 0. */
double ltn_median(double *x, size_t n);

/* Quantile q in [0, 1] of sorted items, linear between neighbours (type 7 of Hyndman and Fan,
 * "Sample quantiles in statistical packages", The American Statistician 50 (1996)). NaN when n is
 * 0. */
double ltn_quantile_sorted(const double *sorted, size_t n, double q);

/* Median of |x[i] - center|, not scaled; scratch holds n items. NaN when n is 0. */
double ltn_mad(const double *x, size_t n, double center, double *scratch);

/* Median of sorted items without the one at position i (i < n), in O(1). NaN when n < 2. */
double ltn_loo_median_sorted(const double *sorted, size_t n, size_t i);

/* MAD of sorted items without the one at position i around the median of those others, in
 * O(log n): the deviations left and right of the centre are two sorted runs. NaN when n < 2. */
double ltn_loo_mad_sorted(const double *sorted, size_t n, size_t i);

/* Line through (x[i], y[i]) by Theil and Sen: the median of the slopes of all pairs of distinct x,
 * then the median of y - slope x. Sen, "Estimates of the regression coefficient based on Kendall's
 * tau", JASA 63 (1968). Work and memory are n^2/2: scratch holds n (n - 1) / 2 items, at least n.
 * -EINVAL when no two x differ. */
int ltn_theil_sen(const double *x, const double *y, size_t n, double *scratch, double *ret_slope,
                  double *ret_intercept) ltn_must_check;

#endif /* LTN_STATS_ROBUST_H */
