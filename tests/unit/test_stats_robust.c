/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "stats/robust.h"

/* splitmix64: the same numbers every run. */
static uint64_t rng_state = 42;

static uint64_t next_u64(void)
{
    uint64_t z = (rng_state += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
}

static void assert_same(double a, double b)
{
    if (!(fabs(a - b) <= 1e-12 * (1 + fabs(b)))) {
        fail_msg("%.17g is not %.17g", a, b);
    }
}

/* The definition, for comparison. */
static double plain_median(const double *x, size_t n)
{
    double copy[256];
    memcpy(copy, x, n * sizeof(*x));
    ltn_sort_f64(copy, n);
    return n % 2 == 1 ? copy[n / 2] : (copy[n / 2 - 1] + copy[n / 2]) / 2;
}

static double plain_mad(const double *x, size_t n)
{
    double dev[256];
    double center = plain_median(x, n);
    for (size_t i = 0; i < n; i++) {
        dev[i] = fabs(x[i] - center);
    }
    return plain_median(dev, n);
}

static void test_small(void **state)
{
    (void)state;
    double x[] = {5, 1, 4};
    double scratch[3];
    assert_true(isnan(ltn_median(x, 0)));
    assert_true(isnan(ltn_median_sorted(x, 0)));
    assert_true(isnan(ltn_mad(x, 0, 0, scratch)));
    assert_true(isnan(ltn_loo_median_sorted(x, 1, 0)));
    assert_true(isnan(ltn_loo_mad_sorted(x, 1, 0)));
    assert_same(ltn_median(x, 3), 4);
    assert_same(ltn_mad(x, 3, 4, scratch), 1);
    double pair[] = {DBL_MAX, DBL_MAX};
    assert_true(isfinite(ltn_median(pair, 2)));
    double mixed[] = {1, (double)NAN, 2, (double)INFINITY, 3, -(double)INFINITY};
    assert_int_equal(ltn_drop_nonfinite(mixed, 6), 3);
    assert_same(mixed[2], 3);
    double q[] = {1, 2, 3, 4};
    assert_same(ltn_quantile_sorted(q, 4, 0), 1);
    assert_same(ltn_quantile_sorted(q, 4, 1), 4);
    assert_same(ltn_quantile_sorted(q, 4, 0.5), 2.5);
    assert_same(ltn_quantile_sorted(q, 4, 0.25), 1.75);
    assert_same(ltn_quantile_sorted(q, 1, 0.7), 1);
}

/* Against the definition, with and without ties. */
static void test_against_definition(void **state)
{
    (void)state;
    for (int round = 0; round < 400; round++) {
        double x[64], work[64], others[64], scratch[64];
        size_t n = 2 + next_u64() % 62;
        for (size_t i = 0; i < n; i++) {
            x[i] = round % 2 == 0 ? (double)(next_u64() % 7) : (double)(next_u64() % 100000) / 7;
        }
        memcpy(work, x, sizeof(x));
        assert_same(ltn_median(work, n), plain_median(x, n));
        assert_same(ltn_mad(x, n, plain_median(x, n), scratch), plain_mad(x, n));
        ltn_sort_f64(x, n);
        for (size_t i = 0; i < n; i++) {
            memcpy(others, x, i * sizeof(*x));
            memcpy(others + i, x + i + 1, (n - i - 1) * sizeof(*x));
            assert_same(ltn_loo_median_sorted(x, n, i), plain_median(others, n - 1));
            assert_same(ltn_loo_mad_sorted(x, n, i), plain_mad(others, n - 1));
        }
    }
}

/* Orders that are hard on quickselect. */
static void test_select_orders(void **state)
{
    (void)state;
    enum { N = 2001 };
    static double x[N];
    for (int kind = 0; kind < 4; kind++) {
        for (int i = 0; i < N; i++) {
            x[i] = kind == 0 ? i : kind == 1 ? N - 1 - i : kind == 2 ? 1 : abs(i - N / 2);
        }
        double want = kind <= 1 ? N / 2 : kind == 2 ? 1 : N / 4;
        assert_same(ltn_median(x, N), want);
    }
}

/* With 29 % of the points spoiled the slope stays. */
static void test_theil_sen(void **state)
{
    (void)state;
    enum { N = 50 };
    static double x[N], y[N], scratch[N * (N - 1) / 2];
    double slope = 0, intercept = 0;
    for (int i = 0; i < N; i++) {
        x[i] = i / 3; /* ties in x */
        y[i] = 2.5 * x[i] - 7;
    }
    for (int i = 0; i < 12; i++) {
        y[i * 4] += (double)(next_u64() % 1000);
    }
    assert_int_equal(ltn_theil_sen(x, y, N, scratch, &slope, &intercept), 0);
    assert_same(slope, 2.5);
    assert_same(intercept, -7);
    double same[] = {3, 3, 3};
    assert_int_equal(ltn_theil_sen(same, y, 3, scratch, &slope, &intercept), -EINVAL);
    assert_int_equal(ltn_theil_sen(x, y, 1, scratch, &slope, &intercept), -EINVAL);
    assert_int_equal(ltn_theil_sen(x, y, 0, scratch, &slope, &intercept), -EINVAL);
    assert_same(slope, 2.5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small),
        cmocka_unit_test(test_against_definition),
        cmocka_unit_test(test_select_orders),
        cmocka_unit_test(test_theil_sen),
    };
    return cmocka_run_group_tests_name("stats_robust", tests, NULL, NULL);
}
