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

#include "base/attr.h"
#include "otlp/hist_point.h"
#include "stats/exphist.h"

static uint64_t rng_state = 7;

static uint64_t next_u64(void)
{
    uint64_t z = (rng_state += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
}

/* Between 100 ns and 100 s, evenly on a logarithmic axis. */
static uint64_t random_duration_ns(void)
{
    double u = (double)(next_u64() >> 11) * 0x1p-53;
    return (uint64_t)(100 * pow(1e9, u));
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void test_index(void **state)
{
    (void)state;
    /* Bounds belong to the bucket below them. */
    assert_int_equal(ltn_exphist_index(1.0, 0), -1);
    assert_int_equal(ltn_exphist_index(1.0000001, 0), 0);
    assert_int_equal(ltn_exphist_index(2.0, 0), 0);
    assert_int_equal(ltn_exphist_index(4.0, 0), 1);
    assert_int_equal(ltn_exphist_index(0.5, 0), -2);
    assert_int_equal(ltn_exphist_index(4.0, 3), 15);
    assert_int_equal(ltn_exphist_index(1.0, 20), -1);
    assert_int_equal(ltn_exphist_index(16.0, -2), 0);
    assert_int_equal(ltn_exphist_index(16.1, -2), 1);
    assert_int_equal(ltn_exphist_index(1.0, -2), -1);
    assert_int_equal(ltn_exphist_index(0x1p-1074, 0), -1075);
    assert_int_equal(ltn_exphist_index(DBL_MAX, -10), 0);
    for (int scale = -10; scale <= 20; scale++) {
        for (int i = 0; i < 2000; i++) {
            double v =
                ldexp(0.5 + (double)(next_u64() >> 12) * 0x1p-53, (int)(next_u64() % 120) - 60);
            int32_t index = ltn_exphist_index(v, scale);
            double slack = 1e-12;
            assert_true(ltn_exphist_bound(index, scale) <= v * (1 + slack));
            assert_true(v <= ltn_exphist_bound(index + 1, scale) * (1 + slack));
            /* Coarser scales contain finer ones. */
            if (scale > -10 && scale <= 8) {
                assert_int_equal(ltn_exphist_index(v, scale - 1), index >> 1);
            }
        }
    }
}

static void test_record_and_quantile(void **state)
{
    (void)state;
    enum { N = 20000 };
    static uint64_t raw[N];
    static uint64_t storage[LTN_EXPHIST_FULL_BUCKETS];
    static const uint32_t caps[] = {LTN_EXPHIST_FULL_BUCKETS, LTN_EXPHIST_SDK_BUCKETS, 20, 4};
    for (size_t c = 0; c < LTN_ARRAY_SIZE(caps); c++) {
        struct ltn_exphist h;
        ltn_exphist_init(&h, storage, caps[c], LTN_EXPHIST_SCALE_MAX);
        for (int i = 0; i < N; i++) {
            raw[i] = random_duration_ns();
            assert_int_equal(ltn_exphist_record(&h, (double)raw[i], 1), 0);
        }
        qsort(raw, N, sizeof(raw[0]), by_value);
        assert_int_equal(h.count, N);
        assert_true(h.n <= caps[c]);
        double bound = ltn_exphist_error(h.scale) + 1e-9;
        for (int p = 0; p <= 1000; p++) {
            double q = p / 1000.0;
            size_t rank = p == 0 ? 1 : (size_t)ceil(q * N);
            double truth = (double)raw[rank - 1];
            double got = ltn_exphist_quantile(&h, q);
            assert_true(fabs(got - truth) <= bound * truth);
        }
    }
}

static void test_refused(void **state)
{
    (void)state;
    uint64_t storage[4];
    struct ltn_exphist h;
    ltn_exphist_init(&h, storage, 4, 99);
    assert_int_equal(h.scale, LTN_EXPHIST_SCALE_MAX);
    assert_true(isnan(ltn_exphist_quantile(&h, 0.5)));
    assert_int_equal(ltn_exphist_record(&h, -1, 1), -EINVAL);
    assert_int_equal(ltn_exphist_record(&h, (double)NAN, 1), -EINVAL);
    assert_int_equal(ltn_exphist_record(&h, (double)INFINITY, 1), -EINVAL);
    assert_int_equal(h.count, 0);
    /* The whole range of double in four buckets. */
    assert_int_equal(ltn_exphist_record(&h, 0, 3), 0);
    assert_int_equal(ltn_exphist_record(&h, 0x1p-1074, 1), 0);
    assert_int_equal(ltn_exphist_record(&h, DBL_MAX, 1), 0);
    assert_int_equal(ltn_exphist_record(&h, 1, 1), 0);
    assert_int_equal(h.count, 6);
    assert_int_equal(h.zero_count, 3);
    assert_true(ltn_exphist_quantile(&h, 0.5) == 0);
    assert_true(ltn_exphist_quantile(&h, 1) == DBL_MAX);
    uint64_t sum = h.zero_count;
    for (uint32_t i = 0; i < h.n; i++) {
        sum += h.counts[i];
    }
    assert_int_equal(sum, 6);
}

/* A merge gives the histogram of all values, in whichever order. */
static void test_merge(void **state)
{
    (void)state;
    for (int round = 0; round < 50; round++) {
        static uint64_t sa[160], sb[160], sab[160], sba[160], sall[160];
        struct ltn_exphist a, b, ab, ba, all;
        ltn_exphist_init(&a, sa, 160, 20);
        ltn_exphist_init(&b, sb, 160, 12);
        ltn_exphist_init(&ab, sab, 160, 20);
        ltn_exphist_init(&ba, sba, 160, 20);
        ltn_exphist_init(&all, sall, 160, 12);
        for (int i = 0; i < 500; i++) {
            double v = i % 50 == 0 ? 0 : (double)random_duration_ns() * 1e-9;
            struct ltn_exphist *one = next_u64() % 2 == 0 ? &a : &b;
            if (round % 3 == 0 && one == &b && v > 0) {
                v = v * 0.001 + 1; /* a narrow one into a wide one */
            }
            assert_int_equal(ltn_exphist_record(one, v, 1), 0);
            assert_int_equal(ltn_exphist_record(&all, v, 1), 0);
        }
        ltn_exphist_merge(&ab, &a);
        ltn_exphist_merge(&ab, &b);
        ltn_exphist_merge(&ba, &b);
        ltn_exphist_merge(&ba, &a);
        const struct ltn_exphist *made[] = {&ab, &ba};
        for (int k = 0; k < 2; k++) {
            const struct ltn_exphist *m = made[k];
            assert_int_equal(m->count, all.count);
            assert_int_equal(m->zero_count, all.zero_count);
            assert_true(m->min == all.min && m->max == all.max);
            assert_true(fabs(m->sum - all.sum) < 1e-6);
            assert_int_equal(m->scale, all.scale);
            assert_int_equal(m->offset, all.offset);
            assert_int_equal(m->n, all.n);
            assert_memory_equal(m->counts, all.counts, all.n * sizeof(uint64_t));
        }
    }
}

static void test_downscale(void **state)
{
    (void)state;
    uint64_t storage[64];
    struct ltn_exphist h;
    for (int steps = 1; steps <= 6; steps++) {
        ltn_exphist_init(&h, storage, 64, 3);
        for (int i = -20; i < 30; i++) {
            const uint64_t one = (uint64_t)(i + 21);
            const struct ltn_exphist_run run = {&one, 1, 3, i};
            assert_int_equal(ltn_exphist_add_run(&h, &run), 0);
        }
        ltn_exphist_downscale(&h, steps);
        assert_int_equal(h.scale, 3 - steps);
        assert_int_equal(h.offset, -20 >> steps);
        uint64_t want[64] = {0};
        for (int i = -20; i < 30; i++) {
            want[(i >> steps) - (-20 >> steps)] += (uint64_t)(i + 21);
        }
        assert_int_equal(h.n, (29 >> steps) - (-20 >> steps) + 1);
        assert_memory_equal(h.counts, want, h.n * sizeof(uint64_t));
    }
}

static void test_khist_index(void **state)
{
    (void)state;
    for (uint64_t v = 0; v < 16; v++) {
        assert_int_equal(ltn_khist_index(v), v);
    }
    assert_int_equal(ltn_khist_index(16), 16);
    assert_int_equal(ltn_khist_index(31), 31);
    assert_int_equal(ltn_khist_index(32), 32);
    assert_int_equal(ltn_khist_index(33), 32);
    assert_int_equal(ltn_khist_index(UINT64_MAX), LTN_KHIST_BUCKETS - 1);
    for (uint32_t i = 0; i < LTN_KHIST_BUCKETS; i++) {
        assert_int_equal(ltn_khist_index(ltn_khist_low(i)), i);
        assert_int_equal(ltn_khist_index(ltn_khist_high(i)), i);
        if (i > 0) {
            assert_true(ltn_khist_low(i) == ltn_khist_high(i - 1) + 1);
        }
    }
    assert_true(ltn_khist_high(LTN_KHIST_BUCKETS - 1) == UINT64_MAX);
}

/* From the kernel's buckets to seconds: the promised bound, and no value lost. */
static void test_kernel(void **state)
{
    (void)state;
    enum { N = 50000 };
    static uint64_t raw[N], khist[LTN_KHIST_BUCKETS], storage[LTN_EXPHIST_FULL_BUCKETS],
        storage32[LTN_EXPHIST_FULL_BUCKETS];
    static uint32_t khist32[LTN_KHIST_BUCKETS];
    struct ltn_exphist h, h32;
    uint64_t sum = 0;
    for (int i = 0; i < N; i++) {
        raw[i] = i < 100 ? (uint64_t)i % 40 : random_duration_ns();
        sum += raw[i];
        khist[ltn_khist_index(raw[i])]++;
        khist32[ltn_khist_index(raw[i])]++;
    }
    qsort(raw, N, sizeof(raw[0]), by_value);
    ltn_exphist_init(&h, storage, LTN_EXPHIST_FULL_BUCKETS, LTN_EXPHIST_KERNEL_SCALE);
    ltn_exphist_init(&h32, storage32, LTN_EXPHIST_FULL_BUCKETS, LTN_EXPHIST_KERNEL_SCALE);
    ltn_exphist_add_kernel(&h, khist, LTN_KHIST_BUCKETS, sum);
    ltn_exphist_add_kernel32(&h32, khist32, LTN_KHIST_BUCKETS, 0);
    assert_int_equal(h.scale, LTN_EXPHIST_KERNEL_SCALE);
    assert_int_equal(h.count, N);
    assert_true(fabs(h.sum - (double)sum * 1e-9) < 1e-6);
    assert_true(fabs(h32.sum - h.sum) < 0.03125 * h.sum);
    assert_int_equal(h32.n, h.n);
    assert_memory_equal(h.counts, h32.counts, h.n * sizeof(uint64_t));
    for (int p = 1; p <= 1000; p++) {
        double q = p / 1000.0;
        double truth = (double)raw[(size_t)ceil(q * N) - 1];
        assert_true(fabs(ltn_exphist_quantile(&h, q) * 1e9 - truth) <= 0.0625 * truth + 1e-9);
        assert_true(fabs(ltn_khist_quantile_ns(khist, LTN_KHIST_BUCKETS, q) - truth) <=
                    0.03125 * truth + 1e-9);
    }
    /* Every bucket at once still fits without losing the scale. */
    for (uint32_t i = 0; i < LTN_KHIST_BUCKETS; i++) {
        khist[i] = 1;
    }
    ltn_exphist_reset(&h, LTN_EXPHIST_KERNEL_SCALE);
    ltn_exphist_add_kernel(&h, khist, LTN_KHIST_BUCKETS, 0);
    assert_int_equal(h.scale, LTN_EXPHIST_KERNEL_SCALE);
    assert_int_equal(h.count, LTN_KHIST_BUCKETS);
    assert_int_equal(h.zero_count, 1);
    assert_true(ltn_khist_quantile_ns(khist, 0, 0.5) == 0);
}

static void test_zero_threshold(void **state)
{
    (void)state;
    uint64_t storage[32];
    struct ltn_exphist h;
    ltn_exphist_init(&h, storage, 32, 0);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(ltn_exphist_record(&h, ldexp(1.5, i), 1), 0); /* buckets 0..7 */
    }
    ltn_exphist_add_zeros(&h, 2, 5.0); /* cuts (4, 8] */
    assert_true(h.zero_threshold == 8.0);
    assert_int_equal(h.zero_count, 2 + 3);
    assert_int_equal(h.count, 10);
    assert_int_equal(h.offset, 3);
    assert_int_equal(h.n, 5);
    assert_int_equal(ltn_exphist_record(&h, 8.0, 1), 0);
    assert_int_equal(h.zero_count, 6);
    assert_true(ltn_exphist_count_above(&h, 8.0) == 5);
    assert_true(ltn_exphist_count_above(&h, 16.0) == 4);
    assert_true(fabs(ltn_exphist_count_above(&h, ldexp(sqrt(2), 4)) - 3.5) < 1e-9);
}

static void test_points(void **state)
{
    (void)state;
    uint64_t storage[160], other[160];
    struct ltn_exphist h, back;
    struct ltn_otlp_exp_histogram p = {.point = {.time_ns = 5}};
    ltn_exphist_init(&h, storage, 160, 4);
    ltn_exphist_init(&back, other, 160, 20);
    ltn_otlp_from_exphist(&h, &p);
    assert_false(p.has_min);
    assert_int_equal(ltn_otlp_into_exphist(&p, &back), 0);
    assert_int_equal(back.count, 0);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(ltn_exphist_record(&h, i * 0.01, 2), 0);
    }
    ltn_otlp_from_exphist(&h, &p);
    assert_int_equal(p.point.time_ns, 5);
    assert_int_equal(p.count, 200);
    assert_true(p.has_min && p.min == 0 && p.has_max && p.max == 0.99);
    assert_int_equal(ltn_otlp_into_exphist(&p, &back), 0);
    assert_int_equal(back.count, 200);
    assert_int_equal(back.scale, h.scale);
    assert_int_equal(back.n, h.n);
    assert_memory_equal(back.counts, h.counts, h.n * sizeof(uint64_t));
    /* Without min and max they come from the buckets. */
    p.has_min = p.has_max = false;
    ltn_exphist_reset(&back, 20);
    assert_int_equal(ltn_otlp_into_exphist(&p, &back), 0);
    assert_true(back.min == 0 && back.max >= 0.99 && back.max < 1.04);
    /* What does not fit is refused and changes nothing. */
    static const uint64_t ones[] = {0, 1};
    p.negative = (struct ltn_otlp_buckets){.counts = ones, .n = 2};
    assert_int_equal(ltn_otlp_into_exphist(&p, &back), -EINVAL);
    p.negative.n = 1;
    p.positive.offset = INT32_MAX;
    assert_int_equal(ltn_otlp_into_exphist(&p, &back), -EINVAL);
    p.positive.offset = 0;
    p.zero_threshold = (double)NAN;
    assert_int_equal(ltn_otlp_into_exphist(&p, &back), -EINVAL);
    assert_int_equal(back.count, 200);
}

/* Counts from outside stop at the top. */
static void test_saturation(void **state)
{
    (void)state;
    uint64_t storage[8];
    struct ltn_exphist h;
    const uint64_t huge[] = {UINT64_MAX, UINT64_MAX};
    const struct ltn_exphist_run run = {huge, 2, 0, 0};
    ltn_exphist_init(&h, storage, 8, 0);
    assert_int_equal(ltn_exphist_add_run(&h, &run), 0);
    assert_int_equal(ltn_exphist_add_run(&h, &run), 0);
    assert_true(h.count == UINT64_MAX);
    ltn_exphist_downscale(&h, 1);
    assert_true(h.counts[0] == UINT64_MAX);
    assert_true(isfinite(ltn_exphist_quantile(&h, 0.5)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_index),     cmocka_unit_test(test_record_and_quantile),
        cmocka_unit_test(test_refused),   cmocka_unit_test(test_merge),
        cmocka_unit_test(test_downscale), cmocka_unit_test(test_khist_index),
        cmocka_unit_test(test_kernel),    cmocka_unit_test(test_zero_threshold),
        cmocka_unit_test(test_points),    cmocka_unit_test(test_saturation),
    };
    return cmocka_run_group_tests_name("stats_exphist", tests, NULL, NULL);
}
