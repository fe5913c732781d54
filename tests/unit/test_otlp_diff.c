/* SPDX-License-Identifier: Apache-2.0 */
/* Our readers and writers against protobuf-c, on many random requests. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "otlp/logs_read.h"
#include "otlp/logs_write.h"
#include "otlp/metrics_read.h"
#include "otlp/metrics_write.h"
#include "otlp_dump.h"
#include "otlp_gen.h"

#define ROUNDS 1500

struct four {
    struct ltn_buf plain, wire, ours, oracle;
};

static void four_init(struct four *f)
{
    ltn_buf_init(&f->plain, 1 << 24);
    ltn_buf_init(&f->wire, 1 << 24);
    ltn_buf_init(&f->ours, 1 << 26);
    ltn_buf_init(&f->oracle, 1 << 26);
}

static void four_done(struct four *f)
{
    ltn_buf_done(&f->plain);
    ltn_buf_done(&f->wire);
    ltn_buf_done(&f->ours);
    ltn_buf_done(&f->oracle);
}

/* Prints what surrounds the first difference of two texts. */
static void show_difference(const struct ltn_buf *a, const struct ltn_buf *b)
{
    size_t i = 0;
    while (i < a->len && i < b->len && a->data[i] == b->data[i]) {
        i++;
    }
    size_t from = i > 200 ? i - 200 : 0;
    (void)fprintf(stderr, "--- ours\n%.300s\n--- protobuf-c\n%.300s\n",
                  a->len > from ? a->data + from : "", b->len > from ? b->data + from : "");
}

/* Both texts of the same bytes, compared. */
static void compare(struct ltn_otlp_reader *r, struct four *f, bool logs, const struct ltn_buf *in,
                    uint64_t seed)
{
    ltn_buf_reset(&f->ours);
    ltn_buf_reset(&f->oracle);
    if (!otlp_dump_oracle(logs, in, &f->oracle)) {
        fail_msg("seed %u: protobuf-c refuses what the generator made", (unsigned)seed);
    }
    int rc = otlp_dump_ours(r, logs, in, &f->ours);
    if (rc != 0) {
        fail_msg("seed %u: our reader says %d", (unsigned)seed, rc);
    }
    if (f->ours.len != f->oracle.len ||
        memcmp(ltn_buf_str(&f->ours), ltn_buf_str(&f->oracle), f->ours.len) != 0) {
        show_difference(&f->ours, &f->oracle);
        fail_msg("seed %u: the texts differ", (unsigned)seed);
    }
}

static void diff(bool logs)
{
    struct ltn_otlp_reader *r = ltn_otlp_reader_new(NULL);
    struct four f;
    size_t text_bytes = 0;
    assert_non_null(r);
    four_init(&f);
    for (uint64_t seed = 1; seed <= ROUNDS; seed++) {
        struct otlp_rng rng = {seed};
        ltn_buf_reset(&f.plain);
        ltn_buf_reset(&f.wire);
        if (logs) {
            otlp_gen_logs(&rng, &f.plain);
        } else {
            otlp_gen_metrics(&rng, &f.plain);
        }
        compare(r, &f, logs, &f.plain, seed);
        otlp_gen_rearrange(&rng, logs, &f.plain, &f.wire);
        assert_int_equal(ltn_buf_error(&f.wire), 0);
        compare(r, &f, logs, &f.wire, seed);
        text_bytes += f.ours.len;
    }
    assert_true(text_bytes > ROUNDS * 500); /* it was about something */
    four_done(&f);
    ltn_otlp_reader_free(r);
}

static void test_metrics(void **state)
{
    (void)state;
    diff(false);
}

static void test_logs(void **state)
{
    (void)state;
    diff(true);
}

/* What our reader hands out, written again by our writers. */
struct copy {
    struct ltn_otlp_metrics_writer metrics;
    struct ltn_otlp_logs_writer logs;
    uint32_t resource, scope, metric; /* last index + 1 */
};

static const char *view_str(struct ltn_otlp_str s, char *dst, size_t size)
{
    size_t n = s.n < size ? s.n : size - 1;
    memcpy(dst, s.p, n);
    dst[n] = '\0';
    return dst;
}

static void copy_group(struct copy *c, bool logs, const struct ltn_otlp_group *g)
{
    char name[64], version[64];
    if (c->resource != g->resource_index + 1) {
        c->resource = g->resource_index + 1;
        assert_int_equal(logs ? ltn_otlp_logs_resource(&c->logs, g->resource)
                              : ltn_otlp_metrics_resource(&c->metrics, g->resource),
                         0);
    }
    if (c->scope != g->scope_index + 1) {
        c->scope = g->scope_index + 1;
        (void)view_str(g->scope_name, name, sizeof(name));
        (void)view_str(g->scope_version, version, sizeof(version));
        assert_int_equal(logs ? ltn_otlp_logs_scope(&c->logs, name, version)
                              : ltn_otlp_metrics_scope(&c->metrics, name, version),
                         0);
    }
}

static void copy_metric(struct copy *c, const struct ltn_otlp_group *g,
                        const struct ltn_otlp_metric *m)
{
    copy_group(c, false, g);
    if (c->metric != m->metric_index + 1) {
        c->metric = m->metric_index + 1;
        assert_int_equal(ltn_otlp_metrics_metric(&c->metrics, m), 0);
    }
}

static int copy_number(void *ctx, const struct ltn_otlp_group *g, const struct ltn_otlp_metric *m,
                       const struct ltn_otlp_number *p)
{
    copy_metric(ctx, g, m);
    return ltn_otlp_metrics_number(&((struct copy *)ctx)->metrics, p);
}

static int copy_histogram(void *ctx, const struct ltn_otlp_group *g,
                          const struct ltn_otlp_metric *m, const struct ltn_otlp_histogram *p)
{
    copy_metric(ctx, g, m);
    return ltn_otlp_metrics_histogram(&((struct copy *)ctx)->metrics, p);
}

static int copy_exp(void *ctx, const struct ltn_otlp_group *g, const struct ltn_otlp_metric *m,
                    const struct ltn_otlp_exp_histogram *p)
{
    copy_metric(ctx, g, m);
    return ltn_otlp_metrics_exp_histogram(&((struct copy *)ctx)->metrics, p);
}

static int copy_log(void *ctx, const struct ltn_otlp_group *g, const struct ltn_otlp_log *l)
{
    struct copy *c = ctx;
    copy_group(c, true, g);
    return ltn_otlp_logs_record(&c->logs, l);
}

/* Writing what was read gives the same meaning to protobuf-c, apart from what the writers do not
 * carry (schema addresses, scope attributes, offsets of empty buckets) or mend (UTF-8): so the
 * second generation is compared with the third, and the first by its number of records. */
static void rewrite(struct ltn_otlp_reader *r, bool logs, const struct ltn_buf *in,
                    struct ltn_buf *out, uint64_t *ret_records)
{
    struct copy c = {.resource = 0};
    const struct ltn_otlp_metrics_sink sink = {&c, copy_number, copy_histogram, copy_exp, NULL};
    const struct ltn_otlp_logs_sink log_sink = {&c, copy_log};
    struct ltn_otlp_counts counts;
    ltn_buf_reset(out);
    ltn_otlp_metrics_begin(&c.metrics, out);
    ltn_otlp_logs_begin(&c.logs, out);
    assert_int_equal(logs ? ltn_otlp_logs_read(r, in->data, in->len, &log_sink, &counts)
                          : ltn_otlp_metrics_read(r, in->data, in->len, &sink, &counts),
                     0);
    assert_int_equal(logs ? ltn_otlp_logs_end(&c.logs) : ltn_otlp_metrics_end(&c.metrics), 0);
    *ret_records = counts.records;
}

static void generations(bool logs)
{
    struct ltn_otlp_reader *r = ltn_otlp_reader_new(NULL);
    struct four f;
    struct ltn_buf second, third;
    assert_non_null(r);
    four_init(&f);
    ltn_buf_init(&second, 1 << 24);
    ltn_buf_init(&third, 1 << 24);
    for (uint64_t seed = 1; seed <= ROUNDS / 3; seed++) {
        struct otlp_rng rng = {seed * 7919};
        uint64_t n1, n2;
        ltn_buf_reset(&f.plain);
        if (logs) {
            otlp_gen_logs(&rng, &f.plain);
        } else {
            otlp_gen_metrics(&rng, &f.plain);
        }
        rewrite(r, logs, &f.plain, &second, &n1);
        compare(r, &f, logs, &second, seed);
        rewrite(r, logs, &second, &third, &n2);
        assert_int_equal(n1, n2);
        assert_int_equal(second.len, third.len);
        assert_memory_equal(ltn_buf_str(&second), ltn_buf_str(&third), second.len);
    }
    ltn_buf_done(&second);
    ltn_buf_done(&third);
    four_done(&f);
    ltn_otlp_reader_free(r);
}

static void test_generations(void **state)
{
    (void)state;
    generations(false);
    generations(true);
}

/* Damaged bytes: where protobuf-c and our reader both accept, they agree. */
static void test_damaged(void **state)
{
    (void)state;
    struct ltn_otlp_reader *r = ltn_otlp_reader_new(NULL);
    struct four f;
    unsigned accepted = 0, refused = 0;
    assert_non_null(r);
    four_init(&f);
    for (uint64_t seed = 1; seed <= 4 * ROUNDS; seed++) {
        struct otlp_rng rng = {seed};
        ltn_buf_reset(&f.plain);
        otlp_gen_logs(&rng, &f.plain);
        if (f.plain.len == 0) {
            continue;
        }
        f.plain.data[otlp_rng_below(&rng, f.plain.len)] = (char)otlp_rng_below(&rng, 256);
        ltn_buf_reset(&f.ours);
        ltn_buf_reset(&f.oracle);
        int rc = otlp_dump_ours(r, true, &f.plain, &f.ours);
        if (rc != 0) {
            refused++;
        } else {
            accepted++;
        }
        /* What we accept, protobuf-c must be able to walk as well. */
        if (rc == 0 && otlp_dump_oracle(true, &f.plain, &f.oracle) &&
            memchr(f.plain.data, 0, f.plain.len) == NULL) {
            assert_string_equal(ltn_buf_str(&f.ours), ltn_buf_str(&f.oracle));
        }
    }
    assert_true(accepted > 100 && refused > 100);
    four_done(&f);
    ltn_otlp_reader_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_metrics),
        cmocka_unit_test(test_logs),
        cmocka_unit_test(test_generations),
        cmocka_unit_test(test_damaged),
    };
    return cmocka_run_group_tests_name("otlp_diff", tests, NULL, NULL);
}
