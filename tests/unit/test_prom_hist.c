/* SPDX-License-Identifier: Apache-2.0 */
/* Histogram states: what points become, and the classic histograms written of them. */
#include "cmocka_all.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/attr.h"
#include "prom/hist_state.h"

static enum ltn_hist_fate fate;

static void set(struct ltn_hist *h, const struct ltn_hist_point *p)
{
    assert_int_equal(ltn_hist_set(h, p, false, &fate), 0);
}

/* The histogram in a format, as text of one family "x". */
static const char *text_in(const struct ltn_hist *h, enum ltn_prom_format f,
                           enum ltn_prom_type type)
{
    static char text[1 << 16];
    struct ltn_buf b;
    struct ltn_prom p;
    struct ltn_hist_grid g;
    ltn_hist_grid_begin(&g);
    ltn_hist_grid_add(&g, h);
    ltn_hist_grid_end(&g);
    ltn_buf_init(&b, sizeof(text) - 1);
    ltn_prom_begin(&p, &b, f);
    ltn_prom_family(&p, "x", type, NULL, NULL);
    size_t head = b.len;
    ltn_hist_write(h, &g, "", &p);
    assert_int_equal(ltn_buf_error(&b), 0);
    (void)snprintf(text, sizeof(text), "%s", ltn_buf_str(&b) + head);
    ltn_buf_done(&b);
    return text;
}

static const char *text_of(const struct ltn_hist *h)
{
    return text_in(h, LTN_PROM_TEXT, LTN_PROM_HISTOGRAM);
}

static const double two_bounds[] = {0.5, 2};

static struct ltn_hist_point explicit_point(const uint64_t counts[3], uint64_t start, uint64_t time,
                                            bool delta)
{
    return (struct ltn_hist_point){.kind = LTN_HIST_EXPLICIT,
                                   .delta = delta,
                                   .start_ns = start,
                                   .time_ns = time,
                                   .count = counts[0] + counts[1] + counts[2],
                                   .sum = (double)counts[2],
                                   .has_sum = true,
                                   .bounds = two_bounds,
                                   .counts = counts,
                                   .bound_n = 2};
}

static void explicit_counts_become_cumulative(void **state)
{
    (void)state;
    struct ltn_hist *h = ltn_hist_new();
    struct ltn_hist_point p = explicit_point((const uint64_t[]){1, 2, 4}, 1, 10, false);
    set(h, &p);
    const char *want = "x_bucket{le=\"0.5\"} 1\nx_bucket{le=\"2.0\"} 3\nx_bucket{le=\"+Inf\"} 7\n"
                       "x_sum 4\nx_count 7\n";
    assert_string_equal(text_of(h), want);
    /* Older: ignored. Newer: replaced, also by less (a restart). */
    struct ltn_hist_point old = explicit_point((const uint64_t[]){0, 0, 0}, 1, 9, false);
    set(h, &old);
    assert_int_equal(fate, LTN_HIST_OLD);
    assert_string_equal(text_of(h), want);
    struct ltn_hist_point less = explicit_point((const uint64_t[]){1, 0, 0}, 10, 11, false);
    set(h, &less);
    assert_non_null(strstr(text_of(h), "x_count 1\n"));
    ltn_hist_free(h);
}

static void deltas_add_up_once(void **state)
{
    (void)state;
    struct ltn_hist *h = ltn_hist_new();
    const uint64_t counts[] = {1, 2, 4};
    struct ltn_hist_point p = explicit_point(counts, 10, 20, true);
    set(h, &p);
    p.start_ns = 20;
    p.time_ns = 30;
    set(h, &p);
    assert_int_equal(fate, LTN_HIST_TAKEN);
    set(h, &p); /* delivered twice */
    assert_int_equal(fate, LTN_HIST_OLD);
    p.start_ns = 5;
    p.time_ns = 40;
    set(h, &p); /* from before it began */
    assert_int_equal(fate, LTN_HIST_OLD);
    assert_non_null(strstr(text_of(h), "x_bucket{le=\"2.0\"} 6\nx_bucket{le=\"+Inf\"} 14\n"));
    p.start_ns = 30;
    p.time_ns = 45;
    set(h, &p);
    p.start_ns = 50; /* behind a gap: anew */
    p.time_ns = 60;
    set(h, &p);
    assert_int_equal(fate, LTN_HIST_GAP);
    assert_non_null(strstr(text_of(h), "x_count 7\n"));
    p.start_ns = 55; /* overlaps */
    p.time_ns = 70;
    set(h, &p);
    assert_int_equal(fate, LTN_HIST_OVERLAP);
    p.start_ns = 0; /* unknown */
    p.time_ns = 80;
    set(h, &p);
    assert_non_null(strstr(text_of(h), "x_sum 12\nx_count 21\n"));
    /* Other bounds cannot be added. */
    static const double others[] = {1, 2};
    p.bounds = others;
    p.time_ns = 90;
    set(h, &p);
    assert_string_equal(text_of(h), "x_bucket{le=\"1.0\"} 1\nx_bucket{le=\"2.0\"} 3\n"
                                    "x_bucket{le=\"+Inf\"} 7\nx_sum 4\nx_count 7\n");
    ltn_hist_free(h);
}

static void odd_explicit_shapes(void **state)
{
    (void)state;
    struct ltn_hist *h = ltn_hist_new();
    struct ltn_hist_point bare = {
        .kind = LTN_HIST_EXPLICIT, .count = 5, .time_ns = 1, .has_sum = true, .sum = 2.5};
    set(h, &bare);
    assert_string_equal(text_of(h), "x_bucket{le=\"+Inf\"} 5\nx_sum 2.5\nx_count 5\n");
    /* One bucket without bounds, and a count that is more (NaN was recorded). */
    struct ltn_hist_point one = bare;
    one.counts = (const uint64_t[]){3};
    one.time_ns = 2;
    set(h, &one);
    assert_non_null(strstr(text_of(h), "le=\"+Inf\"} 5\n"));
    /* A bound at infinity is no bucket of its own; a count that is less than its buckets. */
    const double inf[] = {1, (double)INFINITY};
    const uint64_t counts[] = {1, 2, 4};
    struct ltn_hist_point p = explicit_point(counts, 1, 3, false);
    p.bounds = inf;
    p.count = 0;
    p.has_sum = false;
    set(h, &p);
    assert_string_equal(text_of(h), "x_bucket{le=\"1.0\"} 1\nx_bucket{le=\"+Inf\"} 7\nx_count 7\n");
    /* Counts at the top stay there. */
    const uint64_t many[] = {UINT64_MAX, UINT64_MAX, 1};
    p = explicit_point(many, 1, 4, false);
    set(h, &p);
    assert_non_null(strstr(text_of(h), "x_bucket{le=\"+Inf\"} 18446744073709551615\n"));
    double bounds[LTN_HIST_BOUNDS_MAX + 1];
    for (size_t i = 0; i < LTN_ARRAY_SIZE(bounds); i++)
        bounds[i] = (double)i;
    static uint64_t zeros[LTN_HIST_BOUNDS_MAX + 2];
    p.bounds = bounds;
    p.counts = zeros;
    p.bound_n = LTN_ARRAY_SIZE(bounds);
    p.time_ns = 5;
    set(h, &p);
    assert_int_equal(fate, LTN_HIST_REFUSED);
    ltn_hist_free(h);
}

static void openmetrics_forbids_some_sums(void **state)
{
    (void)state;
    struct ltn_hist *h = ltn_hist_new();
    struct ltn_hist_point p = explicit_point((const uint64_t[]){1, 2, 4}, 1, 10, false);
    set(h, &p);
    assert_non_null(strstr(text_in(h, LTN_PROM_OPENMETRICS, LTN_PROM_HISTOGRAM), "x_sum 4\n"));
    const double sums[] = {-1, (double)NAN};
    for (size_t i = 0; i < 2; i++) {
        p.sum = sums[i];
        set(h, &p);
        assert_null(strstr(text_in(h, LTN_PROM_OPENMETRICS, LTN_PROM_HISTOGRAM), "x_sum"));
        assert_null(strstr(text_in(h, LTN_PROM_OPENMETRICS, LTN_PROM_HISTOGRAM), "x_count"));
        assert_non_null(strstr(text_of(h), "x_count 7\n"));
    }
    p.sum = 1;
    p.bounds = (const double[]){-2, 2};
    set(h, &p);
    assert_null(strstr(text_in(h, LTN_PROM_OPENMETRICS, LTN_PROM_HISTOGRAM), "x_sum"));
    assert_non_null(strstr(text_of(h), "x_sum 1\n"));
    ltn_hist_free(h);
}

/* ---- exponential ---- */

static struct ltn_hist_point exp_point(int32_t scale, int32_t offset, const uint64_t *counts,
                                       size_t n, uint64_t time)
{
    struct ltn_hist_point p = {.kind = LTN_HIST_EXPONENTIAL,
                               .time_ns = time,
                               .scale = scale,
                               .has_sum = true,
                               .positive = {counts, n, offset}};
    for (size_t i = 0; i < n; i++)
        p.count += counts[i];
    return p;
}

/* Cumulative count at a bound in the text; -1 when there is none. */
static double at(const char *text, const char *le)
{
    char key[64];
    (void)snprintf(key, sizeof(key), "x_bucket{le=\"%s\"} ", le);
    const char *found = strstr(text, key);
    return found == NULL ? -1 : strtod(found + strlen(key), NULL);
}

static void exponential_all_four_parts(void **state)
{
    (void)state;
    struct ltn_hist *h = ltn_hist_new();
    const uint64_t positive[] = {3, 0, 5}, negative[] = {7, 11};
    struct ltn_hist_point p = exp_point(0, 1, positive, 3, 1); /* (2,4] (4,8] (8,16] */
    p.negative = (struct ltn_hist_run){negative, 2, 0};        /* [-2,-1) [-4,-2) */
    p.zero_count = 2;
    p.zero_threshold = 0.02;
    p.count += 20;
    set(h, &p);
    const char *t = text_of(h);
    assert_string_equal(t, "x_bucket{le=\"-4.0\"} 0\n"
                           "x_bucket{le=\"-2.0\"} 11\n"
                           "x_bucket{le=\"-1.0\"} 18\n"
                           "x_bucket{le=\"-0.02\"} 18\n"
                           "x_bucket{le=\"0.02\"} 20\n"
                           "x_bucket{le=\"2.0\"} 20\n"
                           "x_bucket{le=\"4.0\"} 23\n"
                           "x_bucket{le=\"8.0\"} 23\n"
                           "x_bucket{le=\"16.0\"} 28\n"
                           "x_bucket{le=\"+Inf\"} 28\n"
                           "x_sum 0\nx_count 28\n");
    p.zero_threshold = 0;
    p.time_ns = 2;
    set(h, &p);
    t = text_of(h);
    assert_true(at(t, "-1.0") > 17.5 && at(t, "-1.0") < 18.5);
    assert_true(at(t, "0.0") > 19.5 && at(t, "0.0") < 20.5);
    ltn_hist_free(h);
}

static void exponential_extremes(void **state)
{
    (void)state;
    struct ltn_hist *h = ltn_hist_new();
    static uint64_t wide[16384];
    for (size_t i = 0; i < LTN_ARRAY_SIZE(wide); i++)
        wide[i] = 1;
    /* Wider than what is kept: the scale gives way, nothing is lost. */
    struct ltn_hist_point p = exp_point(20, -8000, wide, LTN_ARRAY_SIZE(wide), 1);
    set(h, &p);
    assert_non_null(strstr(text_of(h), "x_bucket{le=\"+Inf\"} 16384\n"));
    assert_true(ltn_hist_bytes(h) < 4096);
    /* Scale 20 at its ends: 2^-1074 and 2^1024. */
    p = exp_point(20, INT32_MAX - 1, wide, 1, 2); /* 2^2047.99: no double */
    set(h, &p);
    assert_int_equal(fate, LTN_HIST_REFUSED);
    p = exp_point(20, (1 << 30) - 1, wide, 1, 3); /* up to 2^1024 */
    set(h, &p);
    assert_int_equal(fate, LTN_HIST_TAKEN);
    assert_non_null(strstr(text_of(h), "x_bucket{le=\"+Inf\"} 1\n"));
    p = exp_point(-10, -2, wide, 3, 4); /* everything */
    set(h, &p);
    const char *t = text_of(h);
    assert_non_null(strstr(t, "x_bucket{le=\"1.0\"} 2\n"));
    assert_non_null(strstr(t, "x_bucket{le=\"+Inf\"} 3\n"));
    p = exp_point(21, 0, wide, 1, 5);
    set(h, &p);
    assert_int_equal(fate, LTN_HIST_REFUSED);
    p = exp_point(0, INT32_MAX, wide, 5, 6); /* overflows */
    set(h, &p);
    assert_int_equal(fate, LTN_HIST_REFUSED);
    ltn_hist_free(h);
}

static void exponential_deltas_merge_at_the_coarser_scale(void **state)
{
    (void)state;
    struct ltn_hist *h = ltn_hist_new();
    const uint64_t fine[] = {1, 2, 3, 4}; /* scale 1, from 2^0: two octaves */
    const uint64_t coarse[] = {10, 20};   /* scale 0, from 2^0 */
    struct ltn_hist_point p = exp_point(1, 0, fine, 4, 10);
    p.delta = true;
    p.zero_threshold = 0;
    p.zero_count = 1;
    set(h, &p);
    p = exp_point(0, 0, coarse, 2, 20);
    p.delta = true;
    p.zero_threshold = 1.5; /* cuts (1,2]: that bucket becomes zeros */
    set(h, &p);
    const char *t = text_of(h);
    assert_true(at(t, "2.0") > 13.5 && at(t, "2.0") < 14.5); /* 1 + 1+2 + 10 */
    assert_true(at(t, "4.0") > 40.5 && at(t, "4.0") < 41.5);
    assert_true(at(t, "1.0") < 0);
    ltn_hist_free(h);
}

/* Two histograms of one family have the same bounds, so that sums over them are right. */
static void a_family_shares_its_bounds(void **state)
{
    (void)state;
    struct ltn_hist *a = ltn_hist_new(), *b = ltn_hist_new();
    const uint64_t ones[] = {1, 1, 1, 1, 1, 1, 1, 1};
    struct ltn_hist_point p = exp_point(3, 0, ones, 8, 1); /* (1,2] */
    set(a, &p);
    p = exp_point(0, 5, ones, 2, 1); /* (32,128] */
    set(b, &p);
    struct ltn_hist_grid g;
    ltn_hist_grid_begin(&g);
    ltn_hist_grid_add(&g, a);
    ltn_hist_grid_add(&g, b);
    ltn_hist_grid_end(&g);
    assert_int_equal(g.scale, 0);
    assert_int_equal(g.n, 8); /* 1, 2, 4 … 128 */
    struct ltn_buf out;
    struct ltn_prom w;
    ltn_buf_init(&out, 1 << 16);
    ltn_prom_begin(&w, &out, LTN_PROM_TEXT);
    ltn_prom_family(&w, "x", LTN_PROM_HISTOGRAM, NULL, NULL);
    ltn_hist_write(a, &g, "s=\"a\"", &w);
    ltn_hist_write(b, &g, "s=\"b\"", &w);
    const char *t = ltn_buf_str(&out);
    assert_non_null(strstr(t, "x_bucket{s=\"a\",le=\"2.0\"} 8\n"));
    assert_non_null(strstr(t, "x_bucket{s=\"a\",le=\"128.0\"} 8\n"));
    assert_non_null(strstr(t, "x_bucket{s=\"b\",le=\"32.0\"} 0\n"));
    assert_non_null(strstr(t, "x_bucket{s=\"b\",le=\"64.0\"} 1\n"));
    ltn_buf_done(&out);
    ltn_hist_free(a);
    ltn_hist_free(b);
}

/* ---- summaries, exemplars, keeping ---- */

static void summaries_are_sorted_and_unique(void **state)
{
    (void)state;
    struct ltn_hist *h = ltn_hist_new();
    const struct ltn_prom_quantile q[] = {{0.99, 9}, {0.5, -1}, {0, 0.25}, {0.99, 10}};
    struct ltn_hist_point p = {.kind = LTN_HIST_SUMMARY,
                               .time_ns = 1,
                               .count = 4,
                               .sum = 12.5,
                               .has_sum = true,
                               .quantiles = q,
                               .quantile_n = 4};
    set(h, &p);
    assert_string_equal(text_in(h, LTN_PROM_TEXT, LTN_PROM_SUMMARY),
                        "x{quantile=\"0.0\"} 0.25\nx{quantile=\"0.5\"} -1\n"
                        "x{quantile=\"0.99\"} 10\nx_sum 12.5\nx_count 4\n");
    assert_null(strstr(text_in(h, LTN_PROM_OPENMETRICS, LTN_PROM_SUMMARY), "-1"));
    assert_string_equal(text_of(h), ""); /* a family of histograms: not there */
    ltn_hist_free(h);
}

static void exemplars_stand_at_their_bucket(void **state)
{
    (void)state;
    struct ltn_hist *h = ltn_hist_new();
    struct ltn_prom_exemplar e[] = {{0.25, 1500000000, "trace_id=\"a\""},
                                    {0.3, 2500000000, "trace_id=\"b\""},
                                    {9, 0, ""},
                                    {(double)NAN, 9, "trace_id=\"c\""}};
    struct ltn_hist_point p = explicit_point((const uint64_t[]){1, 2, 4}, 1, 10, false);
    p.exemplars = e;
    p.exemplar_n = 4;
    set(h, &p);
    assert_string_equal(text_in(h, LTN_PROM_OPENMETRICS, LTN_PROM_HISTOGRAM),
                        "x_bucket{le=\"0.5\"} 1 # {trace_id=\"b\"} 0.3 2.500\n"
                        "x_bucket{le=\"2.0\"} 3\n"
                        "x_bucket{le=\"+Inf\"} 7 # {} 9\n"
                        "x_sum 4\nx_count 7\n");
    assert_null(strchr(text_of(h), '#'));
    for (int i = 0; i < 1000; i++) { /* never more than a few */
        e[0] = (struct ltn_prom_exemplar){i % 3 == 0 ? 0.1 : i, (uint64_t)i, "k=\"v\""};
        p.exemplar_n = 1;
        p.time_ns++;
        set(h, &p);
    }
    assert_true(ltn_hist_bytes(h) < 1024);
    ltn_hist_free(h);
}

static void states_outlive_the_process(void **state)
{
    (void)state;
    struct ltn_hist *h[3];
    const uint64_t counts[] = {1, 0, 4}, run[] = {5, 0, 0, 0, 0, 6};
    const struct ltn_prom_quantile q[] = {{0.5, 1}, {0.9, 2}};
    struct ltn_hist_point p = explicit_point(counts, 10, 20, true);
    for (size_t i = 0; i < 3; i++)
        h[i] = ltn_hist_new();
    set(h[0], &p);
    p = exp_point(3, -40, run, 6, 20);
    p.negative = p.positive;
    p.zero_count = 3;
    p.zero_threshold = 1e-9;
    set(h[1], &p);
    p = (struct ltn_hist_point){
        .kind = LTN_HIST_SUMMARY, .count = 9, .sum = 8, .quantiles = q, .quantile_n = 2};
    set(h[2], &p);
    for (size_t i = 0; i < 3; i++) {
        enum ltn_prom_type type = i == 2 ? LTN_PROM_SUMMARY : LTN_PROM_HISTOGRAM;
        struct ltn_buf b, copy;
        ltn_buf_init(&b, 1 << 16);
        ltn_buf_init(&copy, 1 << 16);
        assert_int_equal(ltn_hist_save(h[i], &b), 0);
        struct ltn_hist *back = ltn_hist_load(b.data, b.len);
        assert_non_null(back);
        char *want = strdup(text_in(h[i], LTN_PROM_TEXT, type));
        assert_string_equal(text_in(back, LTN_PROM_TEXT, type), want);
        assert_true(ltn_hist_time_ns(back) == ltn_hist_time_ns(h[i]));
        free(want);
        ltn_hist_free(back);
        for (size_t n = 0; n < b.len; n++) /* torn */
            assert_null(ltn_hist_load(b.data, n));
        for (size_t n = 0; n < b.len * 8; n++) { /* a flipped bit: refused or harmless */
            b.data[n / 8] = (char)(b.data[n / 8] ^ (1 << n % 8));
            back = ltn_hist_load(b.data, b.len);
            if (back != NULL)
                (void)text_in(back, LTN_PROM_TEXT, type);
            ltn_hist_free(back);
            b.data[n / 8] = (char)(b.data[n / 8] ^ (1 << n % 8));
        }
        ltn_buf_done(&b);
        ltn_buf_done(&copy);
        ltn_hist_free(h[i]);
    }
}

/* A delta after the restart adds to what was kept. */
static void kept_deltas_go_on(void **state)
{
    (void)state;
    struct ltn_hist *h = ltn_hist_new();
    struct ltn_buf b;
    const uint64_t counts[] = {1, 2, 4};
    struct ltn_hist_point p = explicit_point(counts, 10, 20, true);
    set(h, &p);
    ltn_buf_init(&b, 1 << 16);
    assert_int_equal(ltn_hist_save(h, &b), 0);
    struct ltn_hist *back = ltn_hist_load(b.data, b.len);
    assert_non_null(back);
    set(back, &p); /* sent again */
    assert_int_equal(fate, LTN_HIST_OLD);
    p.start_ns = 20;
    p.time_ns = 30;
    set(back, &p);
    assert_int_equal(ltn_hist_count(back), 14);
    ltn_buf_done(&b);
    ltn_hist_free(h);
    ltn_hist_free(back);
}

static void mixed_points_keep_the_most(void **state)
{
    (void)state;
    struct ltn_hist *h = ltn_hist_new();
    struct ltn_hist_point p = explicit_point((const uint64_t[]){1, 2, 4}, 1, 10, false);
    assert_int_equal(ltn_hist_set(h, &p, true, &fate), 0);
    struct ltn_hist_point less = explicit_point((const uint64_t[]){1, 1, 1}, 1, 20, false);
    assert_int_equal(ltn_hist_set(h, &less, true, &fate), 0);
    assert_int_equal(ltn_hist_count(h), 7);
    less.delta = true;
    less.time_ns = 5;
    assert_int_equal(ltn_hist_set(h, &less, true, &fate), 0);
    assert_int_equal(ltn_hist_count(h), 10);
    ltn_hist_free(h);
}

/* ---- states in a table, under threads ---- */

#define THREAD_SERIES 40
#define THREAD_ROUNDS 300

static void *takes(void *arg)
{
    struct ltn_series *s = arg;
    const uint64_t counts[] = {1, 0, 2};
    for (uint64_t round = 1; round <= THREAD_ROUNDS; round++) {
        for (unsigned i = 0; i < THREAD_SERIES; i++) {
            char labels[16];
            ltn_series_ref ref = 0;
            (void)snprintf(labels, sizeof(labels), "i=\"%u\"", i);
            const struct ltn_series_desc d = {
                .family = "x", .type = LTN_PROM_HISTOGRAM, .labels = labels, .state = true};
            /* Their range grows all the time, and with it the bounds of the family. */
            struct ltn_hist_point p =
                exp_point((int)(i % 5), (int)round % 50 - (int)i, counts, 3, round);
            p.delta = true;
            ltn_series_lock(s);
            if (ltn_series_resolve(s, &d, (struct ltn_series_key){0, 0}, round, &ref) != 0)
                abort();
            ltn_series_unlock(s);
            if (ltn_hist_take(s, ref, "x", &p, round, round) != 0)
                abort();
        }
    }
    return NULL;
}

static void read_and_taken_at_once(void **state)
{
    (void)state;
    struct ltn_series *s = ltn_series_new(NULL);
    struct ltn_buf b, blob;
    struct ltn_prom p;
    struct ltn_hist_stats st;
    pthread_t t;
    assert_int_equal(ltn_hist_attach(s, 0), 0);
    assert_int_equal(pthread_create(&t, NULL, takes, s), 0);
    ltn_buf_init(&b, 1 << 24);
    ltn_buf_init(&blob, 1 << 24);
    do {
        ltn_buf_reset(&b);
        ltn_prom_begin(&p, &b, LTN_PROM_TEXT);
        ltn_series_write(s, &p);
        assert_int_equal(ltn_buf_error(&b), 0);
        ltn_series_save_begin(s, true);
        for (bool more = true; more; ltn_buf_reset(&blob))
            more = ltn_series_save_next(s, &blob, 1 << 16);
        ltn_series_save_end(s, true);
        ltn_hist_stats(s, &st);
    } while (st.taken < THREAD_SERIES * THREAD_ROUNDS);
    assert_int_equal(pthread_join(t, NULL), 0);
    ltn_buf_reset(&b);
    ltn_prom_begin(&p, &b, LTN_PROM_TEXT);
    ltn_series_write(s, &p);
    for (unsigned i = 0; i < THREAD_SERIES; i++) {
        char line[64];
        (void)snprintf(line, sizeof(line), "x_count{i=\"%u\"} %u\n", i, 3 * THREAD_ROUNDS);
        assert_non_null(strstr(ltn_buf_str(&b), line));
    }
    ltn_buf_done(&b);
    ltn_buf_done(&blob);
    ltn_series_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(explicit_counts_become_cumulative),
        cmocka_unit_test(deltas_add_up_once),
        cmocka_unit_test(odd_explicit_shapes),
        cmocka_unit_test(openmetrics_forbids_some_sums),
        cmocka_unit_test(exponential_all_four_parts),
        cmocka_unit_test(exponential_extremes),
        cmocka_unit_test(exponential_deltas_merge_at_the_coarser_scale),
        cmocka_unit_test(a_family_shares_its_bounds),
        cmocka_unit_test(summaries_are_sorted_and_unique),
        cmocka_unit_test(exemplars_stand_at_their_bucket),
        cmocka_unit_test(states_outlive_the_process),
        cmocka_unit_test(kept_deltas_go_on),
        cmocka_unit_test(mixed_points_keep_the_most),
        cmocka_unit_test(read_and_taken_at_once),
    };
    return LTN_RUN_TESTS(tests);
}
