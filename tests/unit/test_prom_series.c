/* SPDX-License-Identifier: Apache-2.0 */
/* Series of clients: ceilings, overflow, expiry, conflicts. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/attr.h"
#include "base/err.h"
#include "prom/series.h"

static int set(struct ltn_series *s, const char *family, enum ltn_prom_type type,
               const char *labels, double v, uint64_t t)
{
    struct ltn_series_point p = {
        .family = family, .type = type, .labels = labels, .value = v, .time_ns = t};
    return ltn_series_set(s, &p, t);
}

static char *render(const struct ltn_series *s)
{
    struct ltn_buf b;
    struct ltn_prom p;
    ltn_buf_init(&b, 1 << 20);
    ltn_prom_begin(&p, &b, LTN_PROM_TEXT);
    ltn_series_write(s, &p);
    ltn_prom_end(&p);
    char *text = strdup(ltn_buf_str(&b));
    ltn_buf_done(&b);
    return text;
}

static void keeps_the_newest_value(void **state)
{
    (void)state;
    struct ltn_series *s = ltn_series_new(NULL);
    assert_int_equal(set(s, "x", LTN_PROM_GAUGE, "a=\"1\"", 1, 100), 0);
    assert_int_equal(set(s, "x", LTN_PROM_GAUGE, "a=\"1\"", 3, 300), 0);
    assert_int_equal(set(s, "x", LTN_PROM_GAUGE, "a=\"1\"", 2, 200), 0); /* late */
    char *text = render(s);
    assert_string_equal(text, "# TYPE x gauge\nx{a=\"1\"} 3\n");
    free(text);
    ltn_series_free(s);
}

static void adds_deltas_once(void **state)
{
    (void)state;
    struct ltn_series *s = ltn_series_new(NULL);
    struct ltn_series_point p = {.family = "d_total",
                                 .type = LTN_PROM_COUNTER,
                                 .labels = "",
                                 .value = 5,
                                 .time_ns = 10,
                                 .delta = true};
    assert_int_equal(ltn_series_set(s, &p, 10), 0);
    assert_int_equal(ltn_series_set(s, &p, 10), 0); /* delivered twice */
    p.time_ns = 20;
    assert_int_equal(ltn_series_set(s, &p, 20), 0);
    char *text = render(s);
    assert_string_equal(text, "# TYPE d_total counter\nd_total 10\n");
    free(text);
    ltn_series_free(s);
}

static void overflows_into_one_series(void **state)
{
    (void)state;
    struct ltn_series_opts o = {.max_per_family = 10};
    struct ltn_series *s = ltn_series_new(&o);
    for (int i = 0; i < 1000; i++) {
        char labels[32];
        (void)snprintf(labels, sizeof(labels), "i=\"%d\"", i);
        assert_int_equal(set(s, "many_total", LTN_PROM_COUNTER, labels, 1000 - i, 1), 0);
    }
    struct ltn_series_stats st;
    ltn_series_stats(s, &st);
    assert_int_equal(st.series, 11);
    assert_int_equal(st.overflowed, 990);
    char *text = render(s);
    assert_non_null(strstr(text, "many_total{otel_metric_overflow=\"true\"} 990\n")); /* highest */
    free(text);
    ltn_series_free(s);
}

static void refuses_conflicts_and_too_many_families(void **state)
{
    (void)state;
    struct ltn_series_opts o = {.max_families = 3};
    struct ltn_series *s = ltn_series_new(&o);
    assert_int_equal(ltn_series_reserve(s, "own"), 0);
    assert_int_equal(set(s, "own", LTN_PROM_GAUGE, "", 1, 1), -EINVAL);
    assert_int_equal(set(s, "a", LTN_PROM_GAUGE, "", 1, 1), 0);
    assert_int_equal(set(s, "a", LTN_PROM_COUNTER, "", 1, 1), -EINVAL);
    assert_int_equal(set(s, "b", LTN_PROM_GAUGE, "", 1, 1), 0);
    assert_int_equal(set(s, "c", LTN_PROM_GAUGE, "", 1, 1), LTN_ERR_COUNT);
    struct ltn_series_stats st;
    ltn_series_stats(s, &st);
    assert_int_equal(st.type_conflicts, 2);
    assert_int_equal(st.refused, 1);
    ltn_series_free(s);
}

static void forgets_what_is_not_set_any_more(void **state)
{
    (void)state;
    struct ltn_series_opts o = {.expire_ns = 300};
    struct ltn_series *s = ltn_series_new(&o);
    for (int i = 0; i < 1500; i++) {
        char labels[32];
        (void)snprintf(labels, sizeof(labels), "i=\"%d\"", i);
        assert_int_equal(set(s, "old", LTN_PROM_GAUGE, labels, i, 100), 0);
    }
    assert_int_equal(set(s, "new", LTN_PROM_GAUGE, "", 1, 500), 0);
    ltn_series_expire(s, 600);
    struct ltn_series_stats st;
    ltn_series_stats(s, &st);
    assert_int_equal(st.series, 1);
    assert_int_equal(st.families, 1);
    char *text = render(s);
    assert_string_equal(text, "# TYPE new gauge\nnew 1\n");
    free(text);
    ltn_series_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeps_the_newest_value),
        cmocka_unit_test(adds_deltas_once),
        cmocka_unit_test(overflows_into_one_series),
        cmocka_unit_test(refuses_conflicts_and_too_many_families),
        cmocka_unit_test(forgets_what_is_not_set_any_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
