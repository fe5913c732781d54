/* SPDX-License-Identifier: Apache-2.0 */
#include "stats/robust.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

size_t ltn_drop_nonfinite(double *x, size_t n)
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        if (isfinite(x[i])) {
            x[kept++] = x[i];
        }
    }
    return kept;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

void ltn_sort_f64(double *x, size_t n)
{
    if (n > 1) {
        qsort(x, n, sizeof(*x), compare);
    }
}

/* Mean that cannot overflow. */
static double mean2(double a, double b)
{
    return a / 2 + b / 2;
}

double ltn_median_sorted(const double *sorted, size_t n)
{
    if (n == 0) {
        return (double)NAN;
    }
    return n % 2 == 1 ? sorted[n / 2] : mean2(sorted[n / 2 - 1], sorted[n / 2]);
}

static void swap(double *a, double *b)
{
    double t = *a;
    *a = *b;
    *b = t;
}

/* Puts the k-th smallest at x[k], smaller ones before it. Hoare, "Algorithm 65: Find", CACM 4
 * (1961), with the median of three as the pivot; after too many unlucky rounds it sorts. */
static double nth(double *x, size_t n, size_t k)
{
    size_t low = 0, high = n - 1;
    for (unsigned rounds = 0; low < high; rounds++) {
        if (rounds > 64) {
            ltn_sort_f64(x + low, high - low + 1);
            break;
        }
        size_t mid = low + (high - low) / 2;
        if (x[mid] < x[low]) {
            swap(&x[mid], &x[low]);
        }
        if (x[high] < x[low]) {
            swap(&x[high], &x[low]);
        }
        if (x[high] < x[mid]) {
            swap(&x[high], &x[mid]);
        }
        double pivot = x[mid];
        size_t i = low, j = high;
        while (i <= j) {
            while (x[i] < pivot) {
                i++;
            }
            while (x[j] > pivot) {
                j--;
            }
            if (i <= j) {
                swap(&x[i], &x[j]);
                i++;
                if (j == 0) {
                    break;
                }
                j--;
            }
        }
        if (k <= j) {
            high = j;
        } else if (k >= i) {
            low = i;
        } else {
            break;
        }
    }
    return x[k];
}

double ltn_median(double *x, size_t n)
{
    if (n == 0) {
        return (double)NAN;
    }
    double upper = nth(x, n, n / 2);
    if (n % 2 == 1) {
        return upper;
    }
    double lower = x[0];
    for (size_t i = 1; i < n / 2; i++) {
        lower = x[i] > lower ? x[i] : lower;
    }
    return mean2(lower, upper);
}

double ltn_quantile_sorted(const double *sorted, size_t n, double q)
{
    if (n == 0) {
        return (double)NAN;
    }
    double position = (q > 0 ? q < 1 ? q : 1 : 0) * (double)(n - 1);
    size_t i = (size_t)position;
    if (i + 1 >= n) {
        return sorted[n - 1];
    }
    double part = position - (double)i;
    return sorted[i] * (1 - part) + sorted[i + 1] * part;
}

double ltn_mad(const double *x, size_t n, double center, double *scratch)
{
    for (size_t i = 0; i < n; i++) {
        scratch[i] = fabs(x[i] - center);
    }
    return ltn_median(scratch, n);
}

/* The k-th item once the one at position skip is taken out. */
static double without(const double *sorted, size_t skip, size_t k)
{
    return sorted[k < skip ? k : k + 1];
}

double ltn_loo_median_sorted(const double *sorted, size_t n, size_t i)
{
    if (n < 2 || i >= n) {
        return (double)NAN;
    }
    size_t rest = n - 1;
    double upper = without(sorted, i, rest / 2);
    return rest % 2 == 1 ? upper : mean2(without(sorted, i, rest / 2 - 1), upper);
}

/* Sorted items without one, cut at a centre: deviations to the left, read backwards from `left`,
 * and to the right, read forwards, both ascend. */
struct deviations {
    const double *sorted;
    size_t skip;
    size_t left;  /* how many items are on the left */
    size_t right; /* how many on the right */
    double center;
};

static double left_dev(const struct deviations *d, size_t k)
{
    return d->center - without(d->sorted, d->skip, d->left - 1 - k);
}

static double right_dev(const struct deviations *d, size_t k)
{
    return without(d->sorted, d->skip, d->left + k) - d->center;
}

/* The k-th smallest deviation (k from 0): finds by bisection how many of the k+1 smallest come from
 * the left. */
static double kth_deviation(const struct deviations *d, size_t k)
{
    size_t want = k + 1;
    size_t low = want > d->right ? want - d->right : 0;
    size_t high = want < d->left ? want : d->left;
    while (low < high) {
        size_t from_left = low + (high - low) / 2;
        size_t from_right = want - from_left;
        /* from_right >= 1 because from_left < high <= want. */
        if (left_dev(d, from_left) < right_dev(d, from_right - 1)) {
            low = from_left + 1;
        } else {
            high = from_left;
        }
    }
    double a = low > 0 ? left_dev(d, low - 1) : 0;
    double b = want > low ? right_dev(d, want - low - 1) : 0;
    return a > b ? a : b;
}

double ltn_loo_mad_sorted(const double *sorted, size_t n, size_t i)
{
    if (n < 2 || i >= n) {
        return (double)NAN;
    }
    size_t rest = n - 1;
    struct deviations d = {.sorted = sorted,
                           .skip = i,
                           .left = rest / 2,
                           .right = rest - rest / 2,
                           .center = ltn_loo_median_sorted(sorted, n, i)};
    double upper = kth_deviation(&d, rest / 2);
    return rest % 2 == 1 ? upper : mean2(kth_deviation(&d, rest / 2 - 1), upper);
}

int ltn_theil_sen(const double *x, const double *y, size_t n, double *scratch, double *ret_slope,
                  double *ret_intercept)
{
    size_t pairs = 0;
    for (size_t i = 0; i + 1 < n; i++) {
        for (size_t j = i + 1; j < n; j++) {
            if (x[i] != x[j]) {
                scratch[pairs++] = (y[j] - y[i]) / (x[j] - x[i]);
            }
        }
    }
    if (pairs == 0) {
        return -EINVAL;
    }
    double slope = ltn_median(scratch, pairs);
    for (size_t i = 0; i < n; i++) {
        scratch[i] = y[i] - slope * x[i];
    }
    *ret_slope = slope;
    *ret_intercept = ltn_median(scratch, n);
    return 0;
}
