/* SPDX-License-Identifier: Apache-2.0 */
/* Series of clients: values, delta sums, ceilings, overflow, expiry, keys, saving. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/attr.h"
#include "base/clock.h"
#include "base/err.h"
#include "prom/series.h"

static int set(struct ltn_series *s, const char *family, enum ltn_prom_type type,
               const char *labels, double v, uint64_t t)
{
    struct ltn_series_point p = {.desc = {.family = family, .type = type, .labels = labels},
                                 .value = v,
                                 .time_ns = t,
                                 .flags = type == LTN_PROM_COUNTER ? LTN_SERIES_MONOTONIC : 0};
    return ltn_series_set(s, &p, t * LTN_NS_PER_S);
}

static int delta(struct ltn_series *s, const char *labels, double v, uint64_t start, uint64_t t)
{
    struct ltn_series_point p = {
        .desc = {.family = "d_total", .type = LTN_PROM_COUNTER, .labels = labels},
        .value = v,
        .time_ns = t,
        .start_ns = start,
        .flags = LTN_SERIES_DELTA | LTN_SERIES_MONOTONIC};
    return ltn_series_set(s, &p, LTN_NS_PER_S);
}

static char *render(struct ltn_series *s)
{
    struct ltn_buf b;
    struct ltn_prom p;
    ltn_buf_init(&b, 1 << 24);
    ltn_prom_begin(&p, &b, LTN_PROM_TEXT);
    ltn_series_write(s, &p);
    ltn_prom_end(&p);
    char *text = strdup(ltn_buf_str(&b));
    ltn_buf_done(&b);
    return text;
}

static void shows(struct ltn_series *s, const char *wanted)
{
    char *text = render(s);
    assert_string_equal(text, wanted);
    free(text);
}

static struct ltn_series_stats stats(struct ltn_series *s)
{
    struct ltn_series_stats st;
    ltn_series_stats(s, &st);
    return st;
}

static void keeps_the_newest_value(void **state)
{
    (void)state;
    struct ltn_series *s = ltn_series_new(NULL);
    assert_int_equal(set(s, "x", LTN_PROM_GAUGE, "a=\"1\"", 1, 100), 0);
    assert_int_equal(set(s, "x", LTN_PROM_GAUGE, "a=\"1\"", 3, 300), 0);
    assert_int_equal(set(s, "x", LTN_PROM_GAUGE, "a=\"1\"", 2, 200), 0); /* late */
    assert_int_equal(set(s, "x", LTN_PROM_GAUGE, "a=\"1\"", 9, 300), 0); /* repeated */
    shows(s, "# TYPE x gauge\nx{a=\"1\"} 3\n");
    assert_int_equal(stats(s).late, 2);
    assert_int_equal(set(s, "x", LTN_PROM_GAUGE, "a=\"1\"", 4, 0), 0); /* without a time */
    shows(s, "# TYPE x gauge\nx{a=\"1\"} 4\n");
    ltn_series_free(s);
}

static void adds_deltas_once(void **state)
{
    (void)state;
    struct ltn_series *s = ltn_series_new(NULL);
    assert_int_equal(delta(s, "", 5, 0, 10), 0);
    assert_int_equal(delta(s, "", 5, 0, 10), 0); /* delivered twice */
    assert_int_equal(delta(s, "", 5, 10, 20), 0);
    shows(s, "# TYPE d_total counter\nd_total 10\n");
    assert_int_equal(delta(s, "", 7, 0, 30), 0); /* does not say where it begins */
    shows(s, "# TYPE d_total counter\nd_total 17\n");
    assert_int_equal(delta(s, "", 100, 5, 15), 0); /* earlier */
    shows(s, "# TYPE d_total counter\nd_total 17\n");
    assert_int_equal(delta(s, "", 1, 25, 40), 0); /* overlaps */
    shows(s, "# TYPE d_total counter\nd_total 18\n");
    assert_int_equal(delta(s, "", 2, 50, 60), 0); /* behind a gap: begins anew */
    shows(s, "# TYPE d_total counter\nd_total 2\n");
    struct ltn_series_stats st = stats(s);
    assert_int_equal(st.delta_gaps, 1);
    assert_int_equal(st.delta_overlaps, 1);
    assert_int_equal(st.late, 2);
    ltn_series_free(s);
}

static void ends_a_series(void **state)
{
    (void)state;
    struct ltn_series *s = ltn_series_new(NULL);
    struct ltn_series_sample end = {.time_ns = 20, .flags = LTN_SERIES_END};
    const struct ltn_series_desc d = {.family = "d_total", .type = LTN_PROM_COUNTER};
    assert_int_equal(delta(s, "", 5, 0, 10), 0);
    ltn_series_lock(s);
    assert_int_equal(ltn_series_resolve(s, &d, (struct ltn_series_key){0, 0}, 1, &end.ref), 0);
    ltn_series_unlock(s);
    assert_int_equal(ltn_series_take(s, &end, 1, 1), 0);
    shows(s, "");
    assert_int_equal(stats(s).ended, 1);
    assert_int_equal(delta(s, "", 3, 20, 30), 0); /* comes back: begins anew */
    shows(s, "# TYPE d_total counter\nd_total 3\n");
    end.time_ns = 40;
    assert_int_equal(ltn_series_take(s, &end, 1, LTN_NS_PER_S), 0);
    ltn_series_expire(s, LTN_NS_PER_S);
    assert_int_equal(stats(s).series, 0);
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
    assert_int_equal(stats(s).series, 11);
    assert_int_equal(stats(s).overflowed, 990);
    char *text = render(s);
    assert_non_null(strstr(text, "many_total{otel_metric_overflow=\"true\"} 990\n")); /* highest */
    free(text);
    /* With the others gone there is room for its own again. */
    assert_int_equal(set(s, "many_total", LTN_PROM_COUNTER, "i=\"11\"", 5, 500), 0);
    ltn_series_expire(s, 600 * LTN_NS_PER_S);
    assert_int_equal(stats(s).series, 1);
    assert_int_equal(set(s, "many_total", LTN_PROM_COUNTER, "i=\"11\"", 6, 601), 0);
    text = render(s);
    assert_non_null(strstr(text, "many_total{i=\"11\"} 6\n"));
    free(text);
    ltn_series_free(s);
}

static void refuses_conflicts_and_too_many_families(void **state)
{
    (void)state;
    struct ltn_series_opts o = {.max_families = 3};
    struct ltn_series *s = ltn_series_new(&o);
    assert_int_equal(ltn_series_reserve(s, "own", LTN_PROM_GAUGE), 0);
    assert_int_equal(set(s, "own", LTN_PROM_GAUGE, "", 1, 1), -EINVAL);
    assert_int_equal(set(s, "a", LTN_PROM_GAUGE, "", 1, 1), 0);
    assert_int_equal(set(s, "a", LTN_PROM_COUNTER, "", 1, 1), -EINVAL);
    assert_int_equal(set(s, "b", LTN_PROM_GAUGE, "", 1, 1), 0);
    assert_int_equal(set(s, "c", LTN_PROM_GAUGE, "", 1, 1), LTN_ERR_COUNT);
    assert_int_equal(stats(s).type_conflicts, 2);
    assert_int_equal(stats(s).refused, 1);
    ltn_series_free(s);
}

static void forgets_what_is_not_set_any_more(void **state)
{
    (void)state;
    struct ltn_series_opts o = {.expire_ns = 300 * LTN_NS_PER_S};
    struct ltn_series *s = ltn_series_new(&o);
    for (int i = 0; i < 5000; i++) {
        char labels[32];
        (void)snprintf(labels, sizeof(labels), "i=\"%d\"", i);
        assert_int_equal(
            set(s, i % 2 == 0 ? "even" : "odd", LTN_PROM_GAUGE, labels, i, i % 2 == 0 ? 100 : 400),
            0);
    }
    ltn_series_expire(s, 600 * LTN_NS_PER_S);
    assert_int_equal(stats(s).families, 1);
    char *text = render(s);
    assert_null(strstr(text, "even"));
    free(text);
    ltn_series_expire(s, 1000 * LTN_NS_PER_S);
    assert_int_equal(stats(s).families, 0);
    assert_int_equal(stats(s).series, 0);
    ltn_series_free(s);
}

static int at(struct ltn_series *s, double v, uint64_t time_s, uint64_t now_s)
{
    const struct ltn_series_point p = {
        .desc = {.family = "x", .type = LTN_PROM_GAUGE, .labels = "a=\"1\""},
        .value = v,
        .time_ns = time_s * LTN_NS_PER_S};
    return ltn_series_set(s, &p, now_s * LTN_NS_PER_S);
}

static void a_clock_that_was_ahead_is_outlived(void **state)
{
    (void)state;
    const struct ltn_series_opts o = {.expire_ns = 300 * LTN_NS_PER_S};
    struct ltn_series *s = ltn_series_new(&o);
    assert_int_equal(at(s, 7, 100000, 10), 0);
    for (uint64_t now = 20; now <= 300; now += 20)
        assert_int_equal(at(s, 1, 1000 + now, now), 0); /* older: changes nothing, keeps nothing */
    shows(s, "# TYPE x gauge\nx{a=\"1\"} 7\n");
    ltn_series_expire(s, 311 * LTN_NS_PER_S);
    assert_int_equal(at(s, 2, 1320, 320), 0);
    shows(s, "# TYPE x gauge\nx{a=\"1\"} 2\n");
    assert_int_equal(at(s, 3, 1320, 600), 0); /* repeated: not set, but seen */
    ltn_series_expire(s, 640 * LTN_NS_PER_S);
    shows(s, "# TYPE x gauge\nx{a=\"1\"} 2\n");
    ltn_series_free(s);
}

static void nothing_expires_under_a_walk(void **state)
{
    (void)state;
    struct ltn_series *s = ltn_series_new(NULL);
    struct ltn_series_cursor c;
    struct ltn_buf b;
    struct ltn_prom p;
    for (int i = 0; i < 100; i++) {
        char labels[32];
        (void)snprintf(labels, sizeof(labels), "i=\"%d\"", i);
        assert_int_equal(set(s, i < 50 ? "a" : "b", LTN_PROM_GAUGE, labels, 1, 1), 0);
    }
    ltn_buf_init(&b, 1 << 20);
    ltn_prom_begin(&p, &b, LTN_PROM_TEXT);
    ltn_series_walk(s, &c);
    assert_true(ltn_series_walk_next(&c, &p, 10));
    ltn_series_expire(s, 1000 * LTN_NS_PER_S);
    assert_int_equal(stats(s).series, 100);
    assert_int_equal(set(s, "c", LTN_PROM_GAUGE, "new=\"1\"", 1, 1000), 0);
    while (ltn_series_walk_next(&c, &p, 7))
        continue;
    ltn_series_walk_end(&c);
    size_t lines = 0;
    for (const char *at = ltn_buf_str(&b); (at = strchr(at, '\n')) != NULL; at++)
        lines++;
    assert_true(lines == 100 + 2 || lines == 101 + 3);
    ltn_buf_done(&b);
    ltn_series_expire(s, 1000 * LTN_NS_PER_S);
    assert_int_equal(stats(s).series, 1);
    ltn_series_free(s);
}

static ltn_series_ref resolve(struct ltn_series *s, const char *labels, const char *bytes)
{
    const struct ltn_series_desc d = {
        .family = "k", .type = LTN_PROM_GAUGE, .scope_labels = "job=\"j\"", .labels = labels};
    ltn_series_ref ref = 0;
    struct ltn_series_key key = ltn_series_key(s, 7, bytes, strlen(bytes));
    ltn_series_lock(s);
    assert_int_equal(ltn_series_find(s, key), 0);
    assert_int_equal(ltn_series_resolve(s, &d, key, 1, &ref), 0);
    assert_int_equal(ltn_series_find(s, key), ref);
    ltn_series_unlock(s);
    return ref;
}

static void keys_of_the_same_labels_lead_to_one_series(void **state)
{
    (void)state;
    struct ltn_series_opts o = {.max_per_family = 100000};
    struct ltn_series *s = ltn_series_new(&o);
    ltn_series_ref one = resolve(s, "a=\"1\",b=\"2\"", "a1b2");
    assert_int_equal(resolve(s, "a=\"1\",b=\"2\"", "b2a1"), one);
    assert_int_not_equal(resolve(s, "a=\"1\",b=\"3\"", "a1b3"), one);
    for (int i = 0; i < 20000; i++) {
        char labels[32], bytes[32];
        (void)snprintf(labels, sizeof(labels), "i=\"%d\"", i % 10000);
        (void)snprintf(bytes, sizeof(bytes), "%d", i);
        struct ltn_series_sample v = {
            .value = i, .time_ns = (uint64_t)i + 1, .ref = resolve(s, labels, bytes)};
        assert_int_equal(ltn_series_take(s, &v, 1, 1), 0);
    }
    assert_int_equal(stats(s).series, 10002);
    char *text = render(s);
    assert_non_null(strstr(text, "k{job=\"j\",i=\"9999\"} 19999\n"));
    assert_non_null(strstr(text, "k{job=\"j\",i=\"0\"} 10000\n"));
    free(text);
    /* A key of a series that went leads nowhere, also when its place is taken. */
    struct ltn_series_key key = ltn_series_key(s, 7, "a1b2", 4);
    ltn_series_expire(s, 1000 * LTN_NS_PER_S);
    assert_int_equal(set(s, "other", LTN_PROM_GAUGE, "", 1, 1000), 0);
    ltn_series_lock(s);
    assert_int_equal(ltn_series_find(s, key), 0);
    ltn_series_unlock(s);
    ltn_series_free(s);
}

static void keys_of_what_expired_are_gone_the_others_stay(void **state)
{
    (void)state;
    struct ltn_series_opts o = {.max_per_family = 100000};
    struct ltn_series *s = ltn_series_new(&o);
    enum { MANY = 20000 };
    for (int pass = 1; pass <= 3; pass++) {
        for (int i = 0; i < MANY; i++) {
            char text[32];
            (void)snprintf(text, sizeof(text), "i=\"%d\"", i);
            struct ltn_series_key key = ltn_series_key(s, 7, text, strlen(text));
            const struct ltn_series_desc d = {
                .family = "k", .type = LTN_PROM_GAUGE, .labels = text};
            bool live = pass == 1 || i % (pass + 1) == 0;
            ltn_series_ref ref = 0;
            ltn_series_lock(s);
            if (live)
                assert_int_equal(
                    ltn_series_resolve(s, &d, key, (uint64_t)pass * 1000 * LTN_NS_PER_S, &ref), 0);
            ltn_series_unlock(s);
        }
        ltn_series_expire(s, (uint64_t)pass * 1000 * LTN_NS_PER_S + 1);
        size_t found = 0, wanted = 0;
        for (int i = 0; i < MANY; i++) {
            char text[32];
            (void)snprintf(text, sizeof(text), "i=\"%d\"", i);
            bool live = pass == 1 || i % (pass + 1) == 0;
            ltn_series_lock(s);
            bool there = ltn_series_find(s, ltn_series_key(s, 7, text, strlen(text))) != 0;
            ltn_series_unlock(s);
            assert_int_equal(there, live);
            found += there ? 1 : 0;
            wanted += live ? 1 : 0;
        }
        assert_int_equal(found, wanted);
        assert_int_equal(stats(s).series, wanted);
    }
    ltn_series_free(s);
}

static void keys_are_bounded(void **state)
{
    (void)state;
    struct ltn_series_opts o = {.max_series = 10};
    struct ltn_series *s = ltn_series_new(&o);
    for (int i = 0; i < 100000; i++) { /* a client that says the same in ever new ways */
        char bytes[32];
        (void)snprintf(bytes, sizeof(bytes), "%d", i);
        (void)resolve(s, "a=\"1\"", bytes);
    }
    assert_int_equal(stats(s).series, 1);
    assert_true(stats(s).bytes < (size_t)1 << 20);
    ltn_series_free(s);
}

/* ---- saving ---- */

struct blobs {
    char *data[4096];
    size_t len[4096], n;
};

static void keep(struct blobs *k, struct ltn_buf *b)
{
    assert_int_equal(ltn_buf_error(b), 0);
    assert_true(k->n < LTN_ARRAY_SIZE(k->data));
    k->data[k->n] = ltn_buf_steal(b, &k->len[k->n]);
    k->n++;
}

static void save(struct ltn_series *s, struct blobs *k, bool everything, size_t max)
{
    struct ltn_buf b;
    ltn_buf_init(&b, (size_t)1 << 26);
    ltn_series_save_begin(s, everything);
    while (ltn_series_save_next(s, &b, max))
        keep(k, &b);
    ltn_series_save_end(s, true);
    ltn_buf_done(&b);
}

static struct ltn_series *load(const struct blobs *k)
{
    struct ltn_series *s = ltn_series_new(NULL);
    uint64_t now = ltn_now_mono_ns();
    for (size_t i = 0; i < k->n; i++)
        assert_int_equal(ltn_series_load(s, k->data[i], k->len[i], now), 0);
    assert_int_equal(ltn_series_load_end(s, now), 0);
    return s;
}

static void drop(struct blobs *k)
{
    for (size_t i = 0; i < k->n; i++)
        free(k->data[i]);
    k->n = 0;
}

static int compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The exposition with its lines sorted: the order of series is nobody's promise. */
static char *sorted(struct ltn_series *s)
{
    char *text = render(s), *out = calloc(1, strlen(text) + 2);
    size_t n = 0, max = 16384;
    char **lines = calloc(max, sizeof(char *));
    for (char *at = text, *end; *at != '\0' && n < max; at = end + 1) {
        end = strchr(at, '\n');
        *end = '\0';
        lines[n++] = at;
    }
    qsort(lines, n, sizeof(*lines), compare);
    size_t len = 0;
    for (size_t i = 0; i < n; i++) {
        size_t k = strlen(lines[i]);
        memcpy(out + len, lines[i], k);
        len += k;
        out[len++] = '\n';
    }
    free(lines);
    free(text);
    return out;
}

static void same(struct ltn_series *a, struct ltn_series *b)
{
    char *x = sorted(a), *y = sorted(b);
    assert_string_equal(x, y);
    free(x);
    free(y);
}

static void point(struct ltn_series *s, unsigned i, double v, uint64_t t)
{
    char labels[32], family[16], scope[32];
    (void)snprintf(labels, sizeof(labels), "i=\"%u\"", i);
    (void)snprintf(family, sizeof(family), "f%u_total", i % 7);
    (void)snprintf(scope, sizeof(scope), "job=\"%u\"", i % 5);
    struct ltn_series_point p = {.desc = {.family = family,
                                          .type = LTN_PROM_COUNTER,
                                          .unit = "s",
                                          .help = "What it is.",
                                          .scope_labels = scope,
                                          .labels = labels},
                                 .value = v,
                                 .time_ns = t,
                                 .start_ns = t - 1,
                                 .flags =
                                     LTN_SERIES_MONOTONIC | (i % 2 == 0 ? LTN_SERIES_DELTA : 0)};
    assert_int_equal(ltn_series_set(s, &p, ltn_now_mono_ns()), 0);
}

static void what_was_saved_is_loaded(void **state)
{
    (void)state;
    static struct blobs k;
    struct ltn_series *s = ltn_series_new(NULL);
    for (uint64_t t = 1; t <= 20; t++) {
        for (unsigned i = 0; i < 3000; i++)
            if ((i + t) % 3 == 0)
                point(s, i, (double)i + (double)t / 8, 1700000000000000000ULL + t);
        save(s, &k, false, 16384);
    }
    size_t n = k.n;
    save(s, &k, false, 16384);
    assert_int_equal(k.n, n); /* nothing changed, nothing saved */
    struct ltn_series *back = load(&k);
    same(s, back);
    assert_int_equal(stats(back).restored, 3000);
    assert_int_equal(stats(back).unknown, 0);
    /* The states of delta sums are back too: repeated ones change nothing, the next one adds. */
    for (unsigned i = 0; i < 3000; i++) {
        point(back, i, 5, 1700000000000000000ULL + 18);
        point(back, i, 5, 1700000000000000000ULL + 21);
        point(s, i, 5, 1700000000000000000ULL + 21);
    }
    same(s, back);
    /* And it goes on in the same file. */
    save(back, &k, false, 16384);
    struct ltn_series *again = load(&k);
    same(back, again);
    ltn_series_free(again);
    ltn_series_free(back);
    ltn_series_free(s);
    drop(&k);
}

static void a_failed_saving_is_made_up_for(void **state)
{
    (void)state;
    static struct blobs k;
    struct ltn_series *s = ltn_series_new(NULL);
    struct ltn_buf b;
    uint64_t round = 0;
    ltn_buf_init(&b, 1 << 26);
    for (unsigned i = 0; i < 3000; i++)
        point(s, i, i, 5);
    for (int attempt = 0; attempt < 3; attempt++) {
        ltn_series_save_begin(s, false);
        assert_true(ltn_series_save_next(s, &b, 8192)); /* not all of it */
        ltn_buf_reset(&b);
        assert_true(ltn_series_save_old(s, &b, 4096, &round));
        ltn_buf_reset(&b);
        for (unsigned i = 0; i < 10; i++)
            point(s, i, i + 1, 6 + (unsigned)attempt);
        ltn_series_save_end(s, false);
    }
    ltn_buf_done(&b);
    save(s, &k, false, 1 << 20);
    struct ltn_series *back = load(&k);
    same(s, back);
    ltn_series_free(back);
    ltn_series_free(s);
    drop(&k);
}

/* The endless walk over all makes what is older than its last round superfluous. */
static void old_blobs_may_go(void **state)
{
    (void)state;
    static struct blobs k;
    static size_t begun[128]; /* first blob of a round */
    struct ltn_series *s = ltn_series_new(NULL);
    struct ltn_buf b;
    uint64_t round = 0, first = 0;
    ltn_buf_init(&b, 1 << 26);
    for (uint64_t t = 1; t < 400; t++) {
        for (unsigned i = 0; i < 300; i++)
            if (i % 20 == t % 20)
                point(s, i, (double)t, t);
        ltn_series_save_begin(s, false);
        while (ltn_series_save_next(s, &b, 65536))
            keep(&k, &b);
        assert_true(ltn_series_save_old(s, &b, 2048, &round));
        if (first == 0)
            first = round;
        assert_true(round - first < LTN_ARRAY_SIZE(begun));
        if (begun[round - first] == 0)
            begun[round - first] = k.n + (round == first ? 1 : 0);
        keep(&k, &b);
        ltn_series_save_end(s, true);
    }
    assert_true(round - first >= 3);
    struct blobs rest = {.n = 0};
    for (size_t i = begun[round - first - 1]; i < k.n; i++) {
        rest.data[rest.n] = k.data[i];
        rest.len[rest.n++] = k.len[i];
    }
    assert_true(rest.n < k.n / 2);
    struct ltn_series *back = load(&rest);
    same(s, back);
    assert_int_equal(stats(back).unknown, 0);
    ltn_series_free(back);
    ltn_series_free(s);
    ltn_buf_done(&b);
    drop(&k);
}

static void a_flipped_blob_costs_only_itself(void **state)
{
    (void)state;
    static struct blobs k;
    struct ltn_series *s = ltn_series_new(NULL);
    for (uint64_t t = 1; t <= 6; t++) {
        for (unsigned i = 0; i < 100; i++)
            if (t == 1 || i % 6 == t % 6)
                point(s, i, (double)t, t);
        save(s, &k, false, 1 << 20);
    }
    assert_int_equal(k.n, 6);
    /* Any byte of a blob of values only: its series keep what they had, the others are new. */
    for (size_t at = 0; at < k.len[3]; at++) {
        k.data[3][at] ^= 0x10;
        struct ltn_series *back = load(&k);
        assert_int_equal(stats(back).damaged, at >= 4 && at < 8 ? 0 : 1);
        assert_int_equal(stats(back).series, 100);
        char *text = render(back);
        assert_non_null(strstr(text, "i=\"5\"} 5\n")); /* no delta */
        free(text);
        ltn_series_free(back);
        k.data[3][at] ^= 0x10;
    }
    /* Cut short anywhere. */
    for (size_t len = 0; len < k.len[5]; len += 7) {
        size_t whole = k.len[5];
        k.len[5] = len;
        struct ltn_series *back = load(&k);
        assert_int_equal(stats(back).damaged, 1);
        assert_int_equal(stats(back).series, 100);
        ltn_series_free(back);
        k.len[5] = whole;
    }
    /* The one with the descriptions: nothing of the others may land on a wrong series. */
    k.data[0][100] ^= 1;
    struct ltn_series *back = load(&k);
    assert_int_equal(stats(back).damaged, 1);
    assert_int_equal(stats(back).series, 0);
    assert_true(stats(back).unknown > 0);
    ltn_series_free(back);
    ltn_series_free(s);
    drop(&k);
}

/* A slot's second series, whose description was lost, must not hand its values to the first. */
static void values_never_land_on_another_series(void **state)
{
    (void)state;
    static struct blobs k;
    struct ltn_series_opts o = {.expire_ns = LTN_NS_PER_S};
    struct ltn_series *s = ltn_series_new(&o);
    assert_int_equal(set(s, "a", LTN_PROM_GAUGE, "old=\"1\"", 1, 1), 0);
    save(s, &k, false, 1 << 20);
    ltn_series_expire(s, 100 * LTN_NS_PER_S);
    assert_int_equal(set(s, "a", LTN_PROM_GAUGE, "new=\"1\"", 2, 200), 0);
    save(s, &k, false, 1 << 20);
    assert_int_equal(set(s, "a", LTN_PROM_GAUGE, "new=\"1\"", 3, 201), 0);
    save(s, &k, false, 1 << 20);
    struct ltn_series *back = load(&k);
    shows(back, "# TYPE a gauge\na{new=\"1\"} 3\n");
    ltn_series_free(back);
    k.data[1][k.len[1] - 1] ^= 1;
    back = load(&k);
    char *text = render(back);
    assert_null(strstr(text, "} 3"));
    free(text);
    ltn_series_free(back);
    ltn_series_free(s);
    drop(&k);
}

static void everything_goes_into_a_new_file(void **state)
{
    (void)state;
    static struct blobs k, anew;
    struct ltn_series *s = ltn_series_new(NULL);
    for (unsigned i = 0; i < 500; i++)
        point(s, i, i, 5);
    save(s, &k, false, 1 << 20);
    save(s, &anew, true, 4096);
    assert_true(anew.n > 1);
    struct ltn_series *back = load(&anew);
    same(s, back);
    ltn_series_free(back);
    ltn_series_free(s);
    drop(&k);
    drop(&anew);
}

/* Changes the clocks in the heading of a blob, as if it had been saved at another time. */
static void save_at(const struct blobs *k, int64_t wall_s, int64_t boot_s, bool other_boot)
{
    enum { CHECKSUM = 8, WALL = 16, BOOT = 24, BOOT_ID = 32 };
    for (size_t i = 0; i < k->n; i++) {
        uint64_t v[3];
        memcpy(v, k->data[i] + WALL, sizeof(v));
        v[0] += (uint64_t)(wall_s * 1000000000);
        v[1] += (uint64_t)(boot_s * 1000000000);
        v[2] ^= other_boot ? 1 : 0;
        memcpy(k->data[i] + WALL, v, sizeof(v));
        uint64_t sum = XXH3_64bits(k->data[i] + WALL, k->len[i] - WALL);
        memcpy(k->data[i] + CHECKSUM, &sum, sizeof(sum));
    }
}

static void back_after(struct blobs *k, size_t wanted)
{
    struct ltn_series *back = load(k);
    assert_int_equal(stats(back).damaged, 0);
    assert_int_equal(stats(back).series, wanted);
    ltn_series_free(back);
}

/* The wall clock may step while the collector is away; only time that has passed lets expire. */
static void steps_of_the_wall_clock_expire_nothing(void **state)
{
    (void)state;
    static struct blobs k;
    struct ltn_series *s = ltn_series_new(NULL);
    for (unsigned i = 0; i < 10; i++)
        point(s, i, i, 5);
    save(s, &k, false, 1 << 20);
    save_at(&k, -86400, 0, false); /* stepped forward by a day since */
    back_after(&k, 10);
    save_at(&k, 2 * 86400, 0, false); /* back by a day */
    back_after(&k, 10);
    save_at(&k, -86400, -200, false);
    back_after(&k, 10);
    save_at(&k, 0, -200, false); /* away for longer than the expiry */
    back_after(&k, 0);
    save_at(&k, -100, 0, true); /* the machine was started anew: the wall clock is all there is */
    back_after(&k, 10);
    save_at(&k, -400, 0, false);
    back_after(&k, 0);
    ltn_series_free(s);
    drop(&k);
}

/* ---- threads ---- */

struct threads {
    struct ltn_series *s;
    _Atomic bool stop;
    _Atomic int failed;
};

#define THREAD_SERIES 300u

/* Values that only grow, of series in an order of its own. */
static void *takes(void *arg)
{
    struct threads *t = arg;
    for (uint64_t time = 1; time <= 300; time++) {
        struct ltn_series_sample v[THREAD_SERIES];
        for (unsigned i = 0; i < THREAD_SERIES; i++) {
            char labels[16];
            (void)snprintf(labels, sizeof(labels), "i=\"%u\"", i);
            const struct ltn_series_desc d = {
                .family = "t_total", .type = LTN_PROM_COUNTER, .labels = labels};
            struct ltn_series_key key = ltn_series_key(t->s, 1, labels, strlen(labels));
            v[i] = (struct ltn_series_sample){
                .value = 1, .time_ns = time, .start_ns = time - 1, .flags = LTN_SERIES_DELTA};
            ltn_series_lock(t->s);
            v[i].ref = ltn_series_find(t->s, key);
            if (v[i].ref == 0 &&
                ltn_series_resolve(t->s, &d, key, ltn_now_mono_ns(), &v[i].ref) != 0)
                t->failed++;
            ltn_series_unlock(t->s);
        }
        if (ltn_series_take(t->s, v, THREAD_SERIES, ltn_now_mono_ns()) != 0)
            t->failed++;
    }
    return NULL;
}

static void *walks(void *arg)
{
    struct threads *t = arg;
    while (!t->stop) {
        free(render(t->s));
        ltn_series_expire(t->s, ltn_now_mono_ns());
    }
    return NULL;
}

static void *saves(void *arg)
{
    struct threads *t = arg;
    struct ltn_buf b;
    uint64_t round;
    ltn_buf_init(&b, 1 << 24);
    for (unsigned n = 0; !t->stop; n++) {
        ltn_series_save_begin(t->s, n == 0);
        while (ltn_series_save_next(t->s, &b, 4096))
            ltn_buf_reset(&b);
        (void)ltn_series_save_old(t->s, &b, 4096, &round);
        ltn_buf_reset(&b);
        ltn_series_save_end(t->s, n % 3 != 1);
    }
    ltn_buf_done(&b);
    return NULL;
}

static void threads_at_once(void **state)
{
    (void)state;
    static struct blobs k;
    struct threads t = {.s = ltn_series_new(NULL)};
    pthread_t ids[4];
    void *(*const work[])(void *) = {takes, takes, walks, saves};
    for (size_t i = 0; i < LTN_ARRAY_SIZE(ids); i++)
        assert_int_equal(pthread_create(&ids[i], NULL, work[i], &t), 0);
    for (size_t i = 0; i < LTN_ARRAY_SIZE(ids); i++) {
        assert_int_equal(pthread_join(ids[i], NULL), 0);
        if (i == 1)
            t.stop = true;
    }
    assert_int_equal(t.failed, 0);
    assert_int_equal(stats(t.s).series, THREAD_SERIES);
    /* Both said the same: every point was added by one of them. */
    char *text = render(t.s);
    assert_non_null(strstr(text, "t_total{i=\"7\"} 300\n"));
    free(text);
    save(t.s, &k, true, 1 << 20);
    struct ltn_series *back = load(&k);
    same(t.s, back);
    ltn_series_free(back);
    ltn_series_free(t.s);
    drop(&k);
}

/* ---- states ---- */

static void state_free(void *arg, void *state)
{
    (void)arg;
    free(state);
}

static void state_save(void *arg, const void *state, struct ltn_buf *out)
{
    (void)arg;
    (void)ltn_buf_puts(out, state);
}

static void *state_load(void *arg, const uint8_t *p, size_t n)
{
    (void)arg;
    return strndup((const char *)p, n);
}

static void state_write(void *arg, const void *state, struct ltn_prom *out, const char *labels)
{
    (void)arg;
    (void)ltn_buf_printf(out->out, "%s: %s\n", labels, (const char *)state);
}

static void states_are_shown_and_saved(void **state)
{
    (void)state;
    static struct blobs k;
    static const struct ltn_series_state_ops ops = {state_free, state_save, state_load, state_write,
                                                    NULL};
    const struct ltn_series_desc d = {.family = "h",
                                      .type = LTN_PROM_HISTOGRAM,
                                      .scope_labels = "job=\"j\"",
                                      .labels = "a=\"1\"",
                                      .state = true};
    struct ltn_series *s = ltn_series_new(NULL);
    uint64_t now = ltn_now_mono_ns();
    ltn_series_ref ref;
    ltn_series_set_state_ops(s, &ops, NULL);
    ltn_series_lock(s);
    assert_int_equal(ltn_series_resolve(s, &d, (struct ltn_series_key){0, 0}, now, &ref), 0);
    void **at = ltn_series_state(s, ref);
    assert_non_null(at);
    assert_null(*at);
    *at = strdup("buckets");
    ltn_series_touch(s, ref, 77, false, now);
    assert_int_equal(ltn_series_time(s, ref), 77);
    ltn_series_unlock(s);
    shows(s, "# TYPE h histogram\njob=\"j\",a=\"1\": buckets\n");
    save(s, &k, false, 1 << 20);
    struct ltn_series *back = ltn_series_new(NULL);
    ltn_series_set_state_ops(back, &ops, NULL);
    assert_int_equal(ltn_series_load(back, k.data[0], k.len[0], now), 0);
    assert_int_equal(ltn_series_load_end(back, now), 0);
    same(s, back);
    ltn_series_free(back);
    back = load(&k); /* nobody who could read states: not shown */
    shows(back, "");
    ltn_series_free(back);
    ltn_series_free(s);
    drop(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeps_the_newest_value),
        cmocka_unit_test(adds_deltas_once),
        cmocka_unit_test(ends_a_series),
        cmocka_unit_test(overflows_into_one_series),
        cmocka_unit_test(refuses_conflicts_and_too_many_families),
        cmocka_unit_test(forgets_what_is_not_set_any_more),
        cmocka_unit_test(a_clock_that_was_ahead_is_outlived),
        cmocka_unit_test(nothing_expires_under_a_walk),
        cmocka_unit_test(keys_of_the_same_labels_lead_to_one_series),
        cmocka_unit_test(keys_of_what_expired_are_gone_the_others_stay),
        cmocka_unit_test(keys_are_bounded),
        cmocka_unit_test(what_was_saved_is_loaded),
        cmocka_unit_test(a_failed_saving_is_made_up_for),
        cmocka_unit_test(old_blobs_may_go),
        cmocka_unit_test(a_flipped_blob_costs_only_itself),
        cmocka_unit_test(values_never_land_on_another_series),
        cmocka_unit_test(everything_goes_into_a_new_file),
        cmocka_unit_test(steps_of_the_wall_clock_expire_nothing),
        cmocka_unit_test(threads_at_once),
        cmocka_unit_test(states_are_shown_and_saved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
