/* SPDX-License-Identifier: Apache-2.0 */
/* Summaries, exemplars and values as JSON, read from bytes. */
#include "cmocka_all.h"

#include <math.h>
#include <stdio.h>

#include "otlp/metrics_read.h"
#include "otlp/pb_write.h"

static struct ltn_otlp_summary seen_summary;
static struct ltn_otlp_quantile seen_quantiles[8];
static struct ltn_otlp_exemplar seen_exemplars[LTN_OTLP_EXEMPLARS_MAX];
static size_t seen_exemplar_n, calls;
static char seen_trace[17], seen_attr[32];

static int on_summary(void *ctx, const struct ltn_otlp_group *g, const struct ltn_otlp_metric *m,
                      const struct ltn_otlp_summary *p)
{
    (void)ctx;
    (void)g;
    (void)m;
    calls++;
    seen_summary = *p;
    for (size_t i = 0; i < p->n && i < 8; i++)
        seen_quantiles[i] = p->quantiles[i];
    return 0;
}

static int on_number(void *ctx, const struct ltn_otlp_group *g, const struct ltn_otlp_metric *m,
                     const struct ltn_otlp_number *p)
{
    (void)ctx;
    (void)g;
    (void)m;
    calls++;
    seen_exemplar_n = p->point.exemplar_n;
    for (size_t i = 0; i < seen_exemplar_n; i++)
        seen_exemplars[i] = p->point.exemplars[i];
    if (seen_exemplar_n > 0) {
        const struct ltn_otlp_exemplar *e = &p->point.exemplars[0];
        (void)snprintf(seen_trace, sizeof(seen_trace), "%.*s", (int)e->trace_id.n, e->trace_id.p);
        if (e->attrs.n > 0)
            (void)ltn_otlp_value_text(&e->attrs.items[0].value, seen_attr, sizeof(seen_attr));
    }
    return 0;
}

static struct ltn_otlp_counts counts;

static int read_it(const struct ltn_buf *b)
{
    const struct ltn_otlp_metrics_sink sink = {.on_number = on_number, .on_summary = on_summary};
    struct ltn_otlp_reader *r = ltn_otlp_reader_new(NULL);
    assert_non_null(r);
    calls = 0;
    int rc = ltn_otlp_metrics_read(r, b->data, b->len, &sink, &counts);
    ltn_otlp_reader_free(r);
    return rc;
}

struct marks {
    size_t m[5];
};

/* Opens everything down to the data of a metric (field data of Metric). */
static struct marks begin(struct ltn_buf *b, uint32_t data)
{
    struct marks k;
    ltn_buf_init(b, 1 << 20);
    k.m[0] = ltn_pb_open(b, 1);
    k.m[1] = ltn_pb_open(b, 2);
    k.m[2] = ltn_pb_open(b, 2);
    ltn_pb_put_str_field(b, 1, "name");
    k.m[3] = ltn_pb_open(b, data);
    k.m[4] = ltn_pb_open(b, 1);
    return k;
}

static void end(struct ltn_buf *b, const struct marks *k)
{
    for (int i = 4; i >= 0; i--)
        ltn_pb_close(b, k->m[i]);
}

static void put_quantile(struct ltn_buf *b, double q, double v)
{
    size_t m = ltn_pb_open(b, 6);
    ltn_pb_put_f64_field(b, 1, q);
    ltn_pb_put_f64_field(b, 2, v);
    ltn_pb_close(b, m);
}

static void reads_summaries(void **state)
{
    (void)state;
    struct ltn_buf b;
    struct marks k = begin(&b, 11);
    ltn_pb_put_i64_field(&b, 3, 77);
    put_quantile(&b, 0.99, 3);
    put_quantile(&b, 0.5, 1);
    ltn_pb_put_i64_field(&b, 4, 10);
    ltn_pb_put_f64_field(&b, 5, 12.5);
    ltn_pb_put_u64_field(&b, 8, LTN_OTLP_NO_RECORDED_VALUE);
    end(&b, &k);
    assert_int_equal(read_it(&b), 0);
    assert_int_equal(calls, 1);
    assert_int_equal(seen_summary.count, 10);
    assert_true(seen_summary.sum > 12.4 && seen_summary.sum < 12.6);
    assert_int_equal(seen_summary.point.time_ns, 77);
    assert_int_equal(seen_summary.point.flags, LTN_OTLP_NO_RECORDED_VALUE);
    assert_int_equal(seen_summary.n, 2);
    assert_true(seen_quantiles[0].quantile > 0.98 && seen_quantiles[1].value < 1.1);
    ltn_buf_done(&b);
}

static void rejects_what_is_no_quantile(void **state)
{
    (void)state;
    const double bad[] = {-0.1, 1.1, (double)NAN, (double)INFINITY};
    for (size_t i = 0; i < LTN_ARRAY_SIZE(bad); i++) {
        struct ltn_buf b;
        struct marks k = begin(&b, 11);
        put_quantile(&b, bad[i], 1);
        end(&b, &k);
        assert_int_equal(read_it(&b), 0);
        assert_int_equal(calls, 0);
        assert_int_equal(counts.by_reason[LTN_OTLP_REJECT_RANGE], 1);
        ltn_buf_done(&b);
    }
    struct ltn_buf b;
    struct marks k = begin(&b, 11);
    for (int i = 0; i < 1000; i++)
        put_quantile(&b, 0.5, i);
    end(&b, &k);
    assert_int_equal(read_it(&b), 0);
    assert_int_equal(counts.by_reason[LTN_OTLP_REJECT_BUCKETS], 1);
    ltn_buf_done(&b);
}

static void put_exemplar(struct ltn_buf *b, double v, const char *trace, size_t attrs)
{
    size_t m = ltn_pb_open(b, 5);
    for (size_t i = 0; i < attrs; i++) {
        size_t kv = ltn_pb_open(b, 7);
        ltn_pb_put_str_field(b, 1, "user");
        size_t any = ltn_pb_open(b, 2);
        ltn_pb_put_str_field(b, 1, "u1");
        ltn_pb_close(b, any);
        ltn_pb_close(b, kv);
    }
    ltn_pb_put_i64_field(b, 2, 5);
    ltn_pb_put_f64_field(b, 3, v);
    ltn_pb_put_str_field(b, 5, trace);
    ltn_pb_put_str_field(b, 4, "spanspan");
    ltn_pb_close(b, m);
}

static void reads_exemplars(void **state)
{
    (void)state;
    struct ltn_buf b;
    struct marks k = begin(&b, 5);
    put_exemplar(&b, 0.25, "0123456789abcdef", 1);
    put_exemplar(&b, 0.5, "short", 0);
    for (int i = 0; i < 100; i++)
        put_exemplar(&b, 1, "0123456789abcdef", 3);
    end(&b, &k);
    assert_int_equal(read_it(&b), 0);
    assert_int_equal(calls, 1);
    assert_int_equal(seen_exemplar_n, LTN_OTLP_EXEMPLARS_MAX);
    assert_string_equal(seen_trace, "0123456789abcdef");
    assert_string_equal(seen_attr, "u1");
    assert_int_equal(seen_exemplars[1].trace_id.n, 0);
    assert_int_equal(seen_exemplars[1].span_id.n, 8);
    ltn_buf_done(&b);
    /* The next point starts without them. */
    k = begin(&b, 5);
    end(&b, &k);
    assert_int_equal(read_it(&b), 0);
    assert_int_equal(seen_exemplar_n, 0);
    ltn_buf_done(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_summaries),
        cmocka_unit_test(rejects_what_is_no_quantile),
        cmocka_unit_test(reads_exemplars),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
