/* SPDX-License-Identifier: Apache-2.0 */
/* The readers on requests built by hand: order, merging, limits, hostile bytes. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/err.h"
#include "otlp/logs_read.h"
#include "otlp/logs_write.h"
#include "otlp/metrics_read.h"
#include "otlp/metrics_write.h"
#include "otlp/pb_write.h"

/* What the callbacks saw, as text. */
struct seen {
    struct ltn_buf text;
    int fail_with;
};

static void note_attrs(struct ltn_buf *t, struct ltn_otlp_attrs attrs)
{
    for (size_t i = 0; i < attrs.n; i++) {
        char text[64];
        (void)ltn_buf_printf(t, " %.*s=%s%s", (int)attrs.items[i].key.n, attrs.items[i].key.p,
                             ltn_otlp_value_text(&attrs.items[i].value, text, sizeof(text)),
                             attrs.items[i].value.bad_utf8 || attrs.items[i].key_bad_utf8 ? "!"
                                                                                          : "");
    }
}

static void note_group(struct ltn_buf *t, const struct ltn_otlp_group *g)
{
    (void)ltn_buf_printf(t, "[%u", g->resource_index);
    note_attrs(t, g->resource);
    (void)ltn_buf_printf(t, "][%u %.*s", g->scope_index, (int)g->scope_name.n, g->scope_name.p);
    note_attrs(t, g->scope_attrs);
    (void)ltn_buf_puts(t, "]");
}

static void note_metric(struct ltn_buf *t, const struct ltn_otlp_metric *m)
{
    (void)ltn_buf_printf(t, " %u:%.*s kind=%d t=%d%s", m->metric_index, (int)m->name.n, m->name.p,
                         (int)m->kind, (int)m->temporality, m->monotonic ? " mono" : "");
}

static int on_number(void *ctx, const struct ltn_otlp_group *g, const struct ltn_otlp_metric *m,
                     const struct ltn_otlp_number *p)
{
    struct seen *s = ctx;
    note_group(&s->text, g);
    note_metric(&s->text, m);
    (void)ltn_buf_printf(&s->text, " %g@%u", ltn_otlp_number_f64(p), (unsigned)p->point.time_ns);
    note_attrs(&s->text, p->point.attrs);
    (void)ltn_buf_puts(&s->text, "\n");
    return s->fail_with;
}

static int on_histogram(void *ctx, const struct ltn_otlp_group *g, const struct ltn_otlp_metric *m,
                        const struct ltn_otlp_histogram *p)
{
    struct seen *s = ctx;
    (void)g;
    note_metric(&s->text, m);
    (void)ltn_buf_printf(&s->text, " n=%u", (unsigned)p->count);
    for (size_t i = 0; i < p->bucket_n; i++) {
        (void)ltn_buf_printf(&s->text, " %u", (unsigned)p->bucket_counts[i]);
    }
    for (size_t i = 0; i < p->bound_n; i++) {
        (void)ltn_buf_printf(&s->text, " %g", p->bounds[i]);
    }
    (void)ltn_buf_puts(&s->text, "\n");
    return s->fail_with;
}

static int on_exp(void *ctx, const struct ltn_otlp_group *g, const struct ltn_otlp_metric *m,
                  const struct ltn_otlp_exp_histogram *p)
{
    struct seen *s = ctx;
    (void)g;
    note_metric(&s->text, m);
    (void)ltn_buf_printf(&s->text, " scale=%d +%d:", p->scale, p->positive.offset);
    for (size_t i = 0; i < p->positive.n; i++) {
        (void)ltn_buf_printf(&s->text, " %u", (unsigned)p->positive.counts[i]);
    }
    (void)ltn_buf_printf(&s->text, " -%d:", p->negative.offset);
    for (size_t i = 0; i < p->negative.n; i++) {
        (void)ltn_buf_printf(&s->text, " %u", (unsigned)p->negative.counts[i]);
    }
    (void)ltn_buf_puts(&s->text, "\n");
    return s->fail_with;
}

static int on_log(void *ctx, const struct ltn_otlp_group *g, const struct ltn_otlp_log *l)
{
    struct seen *s = ctx;
    char body[64];
    note_group(&s->text, g);
    (void)ltn_buf_printf(&s->text, " sev=%d %.*s id=%zu %.*s:%s", l->severity,
                         (int)l->severity_text.n, l->severity_text.p, l->trace_id.n,
                         (int)l->event_name.n, l->event_name.p,
                         ltn_otlp_value_text(&l->body, body, sizeof(body)));
    note_attrs(&s->text, l->attrs);
    (void)ltn_buf_puts(&s->text, "\n");
    return s->fail_with;
}

static struct seen seen;
static struct ltn_otlp_counts counts;

static int read_with(const struct ltn_otlp_limits *limits, bool logs, const void *p, size_t n)
{
    struct ltn_otlp_reader *r = ltn_otlp_reader_new(limits);
    const struct ltn_otlp_metrics_sink metrics = {&seen, on_number, on_histogram, on_exp, NULL};
    const struct ltn_otlp_logs_sink log_sink = {&seen, on_log};
    /* Exactly n bytes on the heap: a sanitizer sees any read beyond. */
    char *copy = malloc(n > 0 ? n : 1);
    assert_non_null(r);
    assert_non_null(copy);
    if (n > 0) {
        memcpy(copy, p, n);
    }
    ltn_buf_reset(&seen.text);
    int rc = logs ? ltn_otlp_logs_read(r, copy, n, &log_sink, &counts)
                  : ltn_otlp_metrics_read(r, copy, n, &metrics, &counts);
    free(copy);
    ltn_otlp_reader_free(r);
    return rc;
}

static int read_metrics(const struct ltn_buf *b)
{
    return read_with(NULL, false, b->data, b->len);
}

static int setup(void **state)
{
    (void)state;
    ltn_buf_init(&seen.text, 1 << 22);
    seen.fail_with = 0;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    ltn_buf_done(&seen.text);
    return 0;
}

/* Small builders. */
static void put_kv(struct ltn_buf *b, uint32_t field, const char *key, const char *value)
{
    size_t kv = ltn_pb_open(b, field);
    size_t v = ltn_pb_open(b, 2); /* value before key */
    ltn_pb_put_str_field(b, 1, value);
    ltn_pb_close(b, v);
    ltn_pb_put_str_field(b, 1, key);
    ltn_pb_close(b, kv);
}

static void put_point(struct ltn_buf *b, double v, uint64_t time)
{
    size_t p = ltn_pb_open(b, 1);
    put_kv(b, 7, "k", "v");
    ltn_pb_put_f64_field(b, 4, v);
    ltn_pb_put_i64_field(b, 3, time);
    ltn_pb_close(b, p);
}

/* request { resource { scope { metric { ... and their ends. */
struct nest {
    size_t resource, scope, metric;
};

static struct nest open_nest(struct ltn_buf *b)
{
    struct nest n;
    n.resource = ltn_pb_open(b, 1);
    n.scope = ltn_pb_open(b, 2);
    n.metric = ltn_pb_open(b, 2);
    return n;
}

static void close_nest(struct ltn_buf *b, struct nest n)
{
    ltn_pb_close(b, n.metric);
    ltn_pb_close(b, n.scope);
    ltn_pb_close(b, n.resource);
}

static void test_empty(void **state)
{
    (void)state;
    assert_int_equal(read_with(NULL, false, NULL, 0), 0);
    assert_int_equal(counts.records, 0);
    assert_int_equal(read_with(NULL, true, NULL, 0), 0);
    assert_int_equal(read_with(NULL, false, "\x0a\x00", 2), 0); /* no resource, no scope */
    assert_int_equal(counts.groups, 1);
    assert_int_equal(read_with(NULL, false, "\x0a\x02\x12\x00", 4), 0);
    assert_int_equal(counts.groups, 2);
}

/* The description of each level stands after what it describes, and in two pieces. */
static void test_any_order(void **state)
{
    (void)state;
    struct ltn_buf b;
    ltn_buf_init(&b, 1 << 16);
    struct nest n = open_nest(&b);
    size_t sum = ltn_pb_open(&b, 7);
    put_point(&b, 1.5, 9);
    ltn_pb_put_u64_field(&b, 3, 1);
    ltn_pb_put_u64_field(&b, 2, 2);
    ltn_pb_close(&b, sum);
    ltn_pb_put_str_field(&b, 3, "s");
    ltn_pb_put_str_field(&b, 1, "old");
    ltn_pb_put_str_field(&b, 1, "name"); /* the last wins */
    ltn_pb_close(&b, n.metric);
    size_t scope = ltn_pb_open(&b, 1);
    ltn_pb_put_str_field(&b, 1, "sc");
    ltn_pb_close(&b, scope);
    scope = ltn_pb_open(&b, 1);
    put_kv(&b, 3, "x", "1");
    ltn_pb_close(&b, scope);
    ltn_pb_close(&b, n.scope);
    for (int piece = 0; piece < 2; piece++) {
        size_t resource = ltn_pb_open(&b, 1);
        put_kv(&b, 1, piece == 0 ? "a" : "b", "v");
        ltn_pb_close(&b, resource);
    }
    ltn_pb_close(&b, n.resource);
    assert_int_equal(read_metrics(&b), 0);
    assert_string_equal(ltn_buf_str(&seen.text),
                        "[0 a=v b=v][0 sc x=1] 0:name kind=2 t=2 mono 1.5@9 k=v\n");
    assert_int_equal(counts.records, 1);
    ltn_buf_done(&b);
}

/* gauge, sum, gauge: only the last gauge counts; gauge, gauge: both, as one. */
static void test_oneof(void **state)
{
    (void)state;
    static const uint32_t fields[][3] = {{5, 7, 5}, {5, 5, 5}, {7, 5, 7}, {5, 7, 7}};
    static const char *const want[] = {
        "[0][0 ] 0:m kind=1 t=0 3@3 k=v\n",
        ("[0][0 ] 0:m kind=1 t=0 1@1 k=v\n[0][0 ] 0:m kind=1 t=0 2@2 k=v\n"
         "[0][0 ] 0:m kind=1 t=0 3@3 k=v\n"),
        "[0][0 ] 0:m kind=2 t=1 3@3 k=v\n",
        "[0][0 ] 0:m kind=2 t=1 2@2 k=v\n[0][0 ] 0:m kind=2 t=1 3@3 k=v\n"};
    for (size_t i = 0; i < LTN_ARRAY_SIZE(fields); i++) {
        struct ltn_buf b;
        ltn_buf_init(&b, 1 << 16);
        struct nest n = open_nest(&b);
        for (unsigned k = 0; k < 3; k++) {
            size_t data = ltn_pb_open(&b, fields[i][k]);
            put_point(&b, k + 1, k + 1);
            if (k == 2) {
                ltn_pb_put_u64_field(&b, 2, 1);
            }
            ltn_pb_close(&b, data);
        }
        ltn_pb_put_str_field(&b, 1, "m");
        close_nest(&b, n);
        assert_int_equal(read_metrics(&b), 0);
        assert_string_equal(ltn_buf_str(&seen.text), want[i]);
        ltn_buf_done(&b);
    }
}

/* What a discarded sum said about itself does not cling to the member that replaces it. */
static void test_oneof_forgets(void **state)
{
    (void)state;
    struct ltn_buf b;
    ltn_buf_init(&b, 1 << 16);
    struct nest n = open_nest(&b);
    size_t sum = ltn_pb_open(&b, 7);
    ltn_pb_put_u64_field(&b, 2, 2);
    ltn_pb_put_u64_field(&b, 3, 1);
    ltn_pb_close(&b, sum);
    size_t gauge = ltn_pb_open(&b, 5);
    put_point(&b, 4, 4);
    ltn_pb_close(&b, gauge);
    ltn_pb_put_str_field(&b, 1, "m");
    close_nest(&b, n);
    assert_int_equal(read_metrics(&b), 0);
    assert_string_equal(ltn_buf_str(&seen.text), "[0][0 ] 0:m kind=1 t=0 4@4 k=v\n");
    ltn_buf_done(&b);
}

/* Value of a point and of an attribute: the last member wins; an unknown type is skipped. */
static void test_value_oneof(void **state)
{
    (void)state;
    struct ltn_buf b;
    ltn_buf_init(&b, 1 << 16);
    struct nest n = open_nest(&b);
    ltn_pb_put_str_field(&b, 1, "m");
    size_t data = ltn_pb_open(&b, 5);
    size_t p = ltn_pb_open(&b, 1);
    ltn_pb_put_f64_field(&b, 4, 7.0);
    ltn_pb_put_i64_field(&b, 6, (uint64_t)-3);
    ltn_pb_put_u64_field(&b, 4, 5);        /* wrong wire type: unknown */
    ltn_pb_put_bytes_field(&b, 3, "x", 1); /* likewise */
    ltn_pb_put_i32_field(&b, 900, 1);
    size_t kv = ltn_pb_open(&b, 7);
    ltn_pb_put_str_field(&b, 1, "k");
    for (int i = 0; i < 2; i++) { /* two pieces of one AnyValue */
        size_t v = ltn_pb_open(&b, 2);
        if (i == 0) {
            ltn_pb_put_str_field(&b, 1, "text");
        } else {
            ltn_pb_put_u64_field(&b, 2, 1);
        }
        ltn_pb_close(&b, v);
    }
    ltn_pb_close(&b, kv);
    ltn_pb_close(&b, p);
    ltn_pb_close(&b, data);
    close_nest(&b, n);
    assert_int_equal(read_metrics(&b), 0);
    assert_string_equal(ltn_buf_str(&seen.text), "[0][0 ] 0:m kind=1 t=0 -3@0 k=true\n");
    ltn_buf_done(&b);
}

/* One exponential histogram point; buckets packed, unpacked and in pieces. */
static void put_exp(struct ltn_buf *b, int scale, int offset, size_t positive, size_t negative)
{
    struct nest n = open_nest(b);
    ltn_pb_put_str_field(b, 1, "e");
    size_t data = ltn_pb_open(b, 10);
    size_t p = ltn_pb_open(b, 1);
    for (size_t i = 0; i < positive; i++) {
        size_t k = ltn_pb_open(b, 8);
        if (i % 2 == 0) {
            ltn_pb_put_u64_field(b, 2, i + 1);
        } else {
            const uint64_t v = i + 1;
            ltn_pb_put_packed_u64(b, 2, &v, 1);
        }
        ltn_pb_put_sint_field(b, 1, offset);
        ltn_pb_close(b, k);
    }
    for (size_t i = 0; i < negative; i++) {
        size_t k = ltn_pb_open(b, 9);
        ltn_pb_put_u64_field(b, 2, i + 1);
        ltn_pb_close(b, k);
    }
    ltn_pb_put_sint_field(b, 6, scale);
    ltn_pb_close(b, p);
    ltn_pb_put_u64_field(b, 2, 1);
    ltn_pb_close(b, data);
    close_nest(b, n);
}

static void test_exp_histogram(void **state)
{
    (void)state;
    struct ltn_buf b;
    ltn_buf_init(&b, 1 << 20);
    put_exp(&b, -3, -4, 3, 2);
    assert_int_equal(read_metrics(&b), 0);
    assert_string_equal(ltn_buf_str(&seen.text), " 0:e kind=4 t=1 scale=-3 +-4: 1 2 3 -0: 1 2\n");
    static const int bad[][2] = {{21, 0}, {-11, 0}, {0, 1024}, {20, INT32_MAX - 1}, {0, -1076}};
    for (size_t i = 0; i < LTN_ARRAY_SIZE(bad); i++) {
        ltn_buf_reset(&b);
        put_exp(&b, bad[i][0], bad[i][1], 3, 0);
        assert_int_equal(read_metrics(&b), 0);
        assert_int_equal(counts.records, 0);
        assert_int_equal(counts.by_reason[LTN_OTLP_REJECT_RANGE], 1);
    }
    ltn_buf_reset(&b);
    put_exp(&b, 0, 1021, 3, 0); /* up to the largest double */
    assert_int_equal(read_metrics(&b), 0);
    assert_int_equal(counts.records, 1);
    /* The ceiling on buckets is for both signs together. */
    struct ltn_otlp_limits l = LTN_OTLP_LIMITS_DEFAULT;
    l.max_buckets = 5;
    for (size_t extra = 0; extra < 2; extra++) {
        ltn_buf_reset(&b);
        put_exp(&b, 0, 0, 3 + extra, 2);
        assert_int_equal(read_with(&l, false, b.data, b.len), 0);
        assert_int_equal(counts.by_reason[LTN_OTLP_REJECT_BUCKETS], extra);
        assert_int_equal(counts.records, 1 - extra);
    }
    ltn_buf_done(&b);
}

static void test_histogram(void **state)
{
    (void)state;
    static const struct {
        size_t buckets, bounds;
        double first;
        int accepted;
    } cases[] = {{0, 0, 1, 1}, {1, 0, 1, 1}, {3, 2, 1, 1}, {2, 2, 1, 0},
                 {3, 0, 1, 0}, {0, 1, 1, 0}, {3, 2, 9, 0}, {3, 2, (double)NAN, 0}};
    for (size_t i = 0; i < LTN_ARRAY_SIZE(cases); i++) {
        struct ltn_buf b;
        ltn_buf_init(&b, 1 << 16);
        struct nest n = open_nest(&b);
        ltn_pb_put_str_field(&b, 1, "h");
        size_t data = ltn_pb_open(&b, 9);
        size_t p = ltn_pb_open(&b, 1);
        for (size_t k = 0; k < cases[i].bounds; k++) {
            ltn_pb_put_f64_field(&b, 7, k == 0 ? cases[i].first : 2.5);
        }
        for (size_t k = 0; k < cases[i].buckets; k++) {
            ltn_pb_put_i64_field(&b, 6, k);
        }
        ltn_pb_close(&b, p);
        ltn_pb_close(&b, data);
        close_nest(&b, n);
        assert_int_equal(read_metrics(&b), 0);
        assert_int_equal(counts.records, cases[i].accepted);
        assert_int_equal(counts.by_reason[LTN_OTLP_REJECT_RANGE], 1 - cases[i].accepted);
        if (i == 2) {
            assert_string_equal(ltn_buf_str(&seen.text), " 0:h kind=3 t=0 n=0 0 1 2 1 2.5\n");
        }
        ltn_buf_done(&b);
    }
}

/* A body of arrays (or key-value lists) in one another, as a log request. */
static void put_deep(struct ltn_buf *b, unsigned levels, bool kvlist)
{
    ltn_buf_reset(b);
    struct ltn_buf other;
    ltn_buf_init(&other, 1 << 24);
    (void)ltn_buf_append(b, "\x10\x01", 2); /* the innermost AnyValue: true */
    for (unsigned i = 0; i < levels; i++) {
        /* Each level wraps what is there; two buffers take turns. */
        ltn_buf_reset(&other);
        size_t list = ltn_pb_open(&other, kvlist ? 6 : 5);
        size_t item = ltn_pb_open(&other, 1);
        size_t value = kvlist ? ltn_pb_open(&other, 2) : 0;
        (void)ltn_buf_append(&other, b->data, b->len);
        ltn_pb_close(&other, value);
        ltn_pb_close(&other, item);
        ltn_pb_close(&other, list);
        struct ltn_buf t = *b;
        *b = other;
        other = t;
    }
    ltn_buf_reset(&other);
    size_t r = ltn_pb_open(&other, 1);
    size_t s = ltn_pb_open(&other, 2);
    size_t l = ltn_pb_open(&other, 2);
    ltn_pb_put_bytes_field(&other, 5, b->data, b->len);
    ltn_pb_close(&other, l);
    ltn_pb_close(&other, s);
    ltn_pb_close(&other, r);
    struct ltn_buf t = *b;
    *b = other;
    ltn_buf_done(&t);
}

static void test_depth(void **state)
{
    (void)state;
    struct ltn_buf b;
    ltn_buf_init(&b, 1 << 24);
    /* request, resource, scope, record, body: 5 levels; an array takes 2 more, a list 3. */
    static const struct {
        unsigned levels;
        bool kvlist;
        int rc;
    } cases[] = {{0, false, 0},
                 {13, false, 0},
                 {9, true, 0},
                 {14, false, LTN_ERR_DEPTH},
                 {10, true, LTN_ERR_DEPTH},
                 {150, false, LTN_ERR_DEPTH},
                 {150, true, LTN_ERR_DEPTH},
                 {5000, false, LTN_ERR_DEPTH}};
    for (size_t i = 0; i < LTN_ARRAY_SIZE(cases); i++) {
        put_deep(&b, cases[i].levels, cases[i].kvlist);
        assert_int_equal(read_with(NULL, true, b.data, b.len), cases[i].rc);
        assert_int_equal(counts.rejected, 0);
    }
    /* The deepest limit there is cannot overrun the stack of the walk. */
    struct ltn_otlp_limits l = LTN_OTLP_LIMITS_DEFAULT;
    l.max_depth = 64;
    put_deep(&b, 29, false);
    assert_int_equal(read_with(&l, true, b.data, b.len), 0);
    put_deep(&b, 30, false);
    assert_int_equal(read_with(&l, true, b.data, b.len), LTN_ERR_DEPTH);
    l.max_depth = 65;
    assert_null(ltn_otlp_reader_new(&l));
    ltn_buf_done(&b);
}

/* Every prefix of a good request: an error or a shorter good request, and no read beyond. */
static void test_truncated(void **state)
{
    (void)state;
    struct ltn_buf b;
    struct ltn_otlp_log log = {.body = {.type = LTN_OTLP_STRING, .str = ltn_otlp_str("b")}};
    struct ltn_otlp_logs_writer w;
    struct ltn_otlp_attr a = ltn_otlp_attr_str("key", "value");
    log.attrs = (struct ltn_otlp_attrs){&a, 1};
    ltn_buf_init(&b, 1 << 16);
    put_exp(&b, 2, 3, 4, 2);
    for (size_t n = 0; n < b.len; n++) {
        int rc = read_with(NULL, false, b.data, n);
        assert_int_equal(rc, n == 0 ? 0 : LTN_ERR_MALFORMED);
    }
    ltn_buf_reset(&b);
    ltn_otlp_logs_begin(&w, &b);
    assert_int_equal(ltn_otlp_logs_resource(&w, log.attrs), 0);
    assert_int_equal(ltn_otlp_logs_scope(&w, "s", "v"), 0);
    assert_int_equal(ltn_otlp_logs_record(&w, &log), 0);
    assert_int_equal(ltn_otlp_logs_end(&w), 0);
    for (size_t n = 0; n < b.len; n++) {
        int rc = read_with(NULL, true, b.data, n);
        assert_int_equal(rc, n == 0 ? 0 : LTN_ERR_MALFORMED);
    }
    /* Each byte, in turn, at each value that tends to hurt. */
    static const char nasty[] = {0, 1, 0x0b, 0x7f, (char)0x80, (char)0xff};
    for (size_t i = 0; i < b.len; i++) {
        char keep = b.data[i];
        for (size_t k = 0; k < sizeof(nasty); k++) {
            b.data[i] = nasty[k];
            int rc = read_with(NULL, true, b.data, b.len);
            assert_true(rc == 0 || rc == LTN_ERR_MALFORMED);
        }
        b.data[i] = keep;
    }
    ltn_buf_done(&b);
}

/* Floods of empty messages end at the count limits and in linear time. */
static void test_floods(void **state)
{
    (void)state;
    size_t n = 4 << 20;
    char *flood = malloc(n);
    assert_non_null(flood);
    for (size_t i = 0; i < n; i += 2) {
        memcpy(flood + i, "\x0a", 2);
    }
    assert_int_equal(read_with(NULL, false, flood, n), LTN_ERR_COUNT);
    assert_int_equal(counts.groups, 1000000);
    assert_int_equal(read_with(NULL, true, flood, n), LTN_ERR_COUNT);
    struct ltn_buf b;
    ltn_buf_init(&b, 1 << 24);
    struct nest nest = open_nest(&b);
    size_t data = ltn_pb_open(&b, 5);
    (void)ltn_buf_append(&b, flood, 2200);
    ltn_pb_close(&b, data);
    close_nest(&b, nest);
    struct ltn_otlp_limits l = LTN_OTLP_LIMITS_DEFAULT;
    l.max_records = 1100;
    assert_int_equal(read_with(&l, false, b.data, b.len), 0);
    assert_int_equal(counts.by_reason[LTN_OTLP_REJECT_NAME], 1100);
    assert_int_equal(counts.rejected, 1100);
    l.max_records = 1099;
    assert_int_equal(read_with(&l, false, b.data, b.len), LTN_ERR_COUNT);
    ltn_buf_done(&b);
    free(flood);
}

static void put_many_attrs(struct ltn_buf *b, unsigned on_resource, unsigned on_point)
{
    ltn_buf_reset(b);
    struct nest n = open_nest(b);
    ltn_pb_put_str_field(b, 1, "m");
    size_t data = ltn_pb_open(b, 5);
    size_t p = ltn_pb_open(b, 1);
    for (unsigned i = 0; i < on_point; i++) {
        put_kv(b, 7, "k", "v");
    }
    ltn_pb_close(b, p);
    put_point(b, 1, 1);
    ltn_pb_close(b, data);
    ltn_pb_close(b, n.metric);
    ltn_pb_close(b, n.scope);
    size_t resource = ltn_pb_open(b, 1);
    for (unsigned i = 0; i < on_resource; i++) {
        put_kv(b, 1, "k", "v");
    }
    ltn_pb_close(b, resource);
    ltn_pb_close(b, n.resource);
}

static void test_attr_limits(void **state)
{
    (void)state;
    struct ltn_buf b;
    ltn_buf_init(&b, 1 << 20);
    put_many_attrs(&b, 128, 128);
    assert_int_equal(read_metrics(&b), 0);
    assert_int_equal(counts.records, 2);
    put_many_attrs(&b, 128, 129);
    assert_int_equal(read_metrics(&b), 0);
    assert_int_equal(counts.records, 1);
    assert_int_equal(counts.by_reason[LTN_OTLP_REJECT_ATTRS], 1);
    put_many_attrs(&b, 129, 1);
    assert_int_equal(read_metrics(&b), 0);
    assert_int_equal(counts.records, 0);
    assert_int_equal(counts.by_reason[LTN_OTLP_REJECT_ATTRS], 2);
    ltn_buf_done(&b);
}

/* References to a string table reject the record, also from deep inside a value. */
static void test_strindex(void **state)
{
    (void)state;
    static const char *const values[] = {
        "\x40\x03",                 /* string_value_strindex */
        "\x2a\x04\x0a\x02\x40\x00", /* array { it } */
        "\x32\x04\x0a\x02\x18\x05", /* kvlist { key_strindex } */
    };
    static const size_t lengths[] = {2, 6, 6};
    for (size_t i = 0; i < LTN_ARRAY_SIZE(values); i++) {
        struct ltn_buf b;
        ltn_buf_init(&b, 1 << 16);
        struct nest n = open_nest(&b); /* the innermost is a log record here */
        ltn_pb_put_bytes_field(&b, 5, values[i], lengths[i]);
        close_nest(&b, n);
        assert_int_equal(read_with(NULL, true, b.data, b.len), 0);
        assert_int_equal(counts.records, 0);
        assert_int_equal(counts.by_reason[LTN_OTLP_REJECT_STRINDEX], 1);
        ltn_buf_done(&b);
    }
}

static void test_bad_utf8(void **state)
{
    (void)state;
    struct ltn_buf b;
    ltn_buf_init(&b, 1 << 16);
    struct nest n = open_nest(&b);
    ltn_pb_put_u64_field(&b, 2, 17);
    ltn_pb_put_str_field(&b, 3, "ERROR");
    ltn_pb_put_bytes_field(&b, 9, "short", 5);
    ltn_pb_put_str_field(&b, 12, "ev");
    size_t kv = ltn_pb_open(&b, 6);
    ltn_pb_put_str_field(&b, 1, "k");
    size_t v = ltn_pb_open(&b, 2);
    ltn_pb_put_bytes_field(&b, 1,
                           "a\0\xff"
                           "b",
                           4);
    ltn_pb_close(&b, v);
    ltn_pb_close(&b, kv);
    put_kv(&b, 6, "k\xc0\xa7", "fine");
    put_kv(&b, 6, "ok", "pr\xc3\xa9t, et long de plus de huit");
    size_t body = ltn_pb_open(&b, 5);
    ltn_pb_put_bytes_field(&b, 7, "\xff\xff", 2);
    ltn_pb_close(&b, body);
    close_nest(&b, n);
    assert_int_equal(read_with(NULL, true, b.data, b.len), 0);
    assert_string_equal(ltn_buf_str(&seen.text),
                        "[0][0 ] sev=17 ERROR id=0 ev:{\xe2\x80\xa6} k=a! k\xc0\xa7=fine! "
                        "ok=pr\xc3\xa9t, et long de plus de huit\n");
    ltn_buf_done(&b);
}

static void test_callback_error(void **state)
{
    (void)state;
    struct ltn_buf b;
    ltn_buf_init(&b, 1 << 20);
    put_many_attrs(&b, 1, 1);
    seen.fail_with = LTN_ERR_BUSY;
    assert_int_equal(read_metrics(&b), LTN_ERR_BUSY);
    assert_int_equal(counts.records, 1);
    ltn_buf_done(&b);
}

/* Kinds without a callback, and summaries, are counted as rejected. */
static void test_unsupported(void **state)
{
    (void)state;
    struct ltn_buf b;
    ltn_buf_init(&b, 1 << 16);
    struct nest n = open_nest(&b);
    ltn_pb_put_str_field(&b, 1, "m");
    size_t data = ltn_pb_open(&b, 11);
    ltn_pb_put_bytes_field(&b, 1, NULL, 0);
    ltn_pb_put_bytes_field(&b, 1, NULL, 0);
    ltn_pb_close(&b, data);
    close_nest(&b, n);
    assert_int_equal(read_metrics(&b), 0);
    assert_int_equal(counts.by_reason[LTN_OTLP_REJECT_KIND], 2);
    ltn_buf_reset(&b);
    put_exp(&b, 0, 0, 1, 0);
    struct ltn_otlp_reader *r = ltn_otlp_reader_new(NULL);
    const struct ltn_otlp_metrics_sink sink = {.ctx = &seen, .on_number = on_number};
    assert_non_null(r);
    assert_int_equal(ltn_otlp_metrics_read(r, b.data, b.len, &sink, &counts), 0);
    assert_int_equal(counts.by_reason[LTN_OTLP_REJECT_KIND], 1);
    ltn_otlp_reader_free(r);
    for (int i = 0; i < LTN_OTLP_REJECT_KINDS; i++) {
        assert_true(strlen(ltn_otlp_reject_str((enum ltn_otlp_reject)i)) > 0);
    }
    ltn_buf_done(&b);
}

static void test_attr_helpers(void **state)
{
    (void)state;
    const struct ltn_otlp_attr items[] = {
        ltn_otlp_attr_str("s", "12"),
        ltn_otlp_attr_int("i", -7),
        ltn_otlp_attr_double("d", 2.0),
        ltn_otlp_attr_double("frac", 2.5),
        ltn_otlp_attr_bool("b", true),
        ltn_otlp_attr_double("huge", 1e19),
        ltn_otlp_attr_double("nan", (double)NAN),
        ltn_otlp_attr_str("t", "true"),
        ltn_otlp_attr_str("s", "second"),
    };
    const struct ltn_otlp_attrs attrs = {items, LTN_ARRAY_SIZE(items)};
    struct ltn_otlp_str s;
    int64_t i = 99;
    double d = 99;
    bool b = false;
    assert_true(ltn_otlp_get_str(attrs, "s", &s) && ltn_otlp_str_eq(s, "12"));
    assert_false(ltn_otlp_get_str(attrs, "i", &s));
    assert_false(ltn_otlp_get_i64(attrs, "none", &i));
    assert_false(ltn_otlp_get_i64(attrs, "frac", &i));
    assert_false(ltn_otlp_get_i64(attrs, "huge", &i));
    assert_false(ltn_otlp_get_i64(attrs, "nan", &i));
    assert_int_equal(i, 99);
    assert_true(ltn_otlp_get_i64(attrs, "s", &i) && i == 12);
    assert_true(ltn_otlp_get_i64(attrs, "d", &i) && i == 2);
    assert_true(ltn_otlp_get_i64(attrs, "b", &i) && i == 1);
    assert_true(ltn_otlp_get_f64(attrs, "i", &d) && d == -7);
    assert_true(ltn_otlp_get_f64(attrs, "frac", &d) && d == 2.5);
    assert_false(ltn_otlp_get_f64(attrs, "b", &d));
    assert_true(ltn_otlp_get_bool(attrs, "t", &b) && b);
    assert_false(ltn_otlp_get_bool(attrs, "i", &b));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_empty),         cmocka_unit_test(test_any_order),
        cmocka_unit_test(test_oneof),         cmocka_unit_test(test_value_oneof),
        cmocka_unit_test(test_oneof_forgets), cmocka_unit_test(test_exp_histogram),
        cmocka_unit_test(test_histogram),     cmocka_unit_test(test_depth),
        cmocka_unit_test(test_truncated),     cmocka_unit_test(test_floods),
        cmocka_unit_test(test_attr_limits),   cmocka_unit_test(test_strindex),
        cmocka_unit_test(test_bad_utf8),      cmocka_unit_test(test_unsupported),
        cmocka_unit_test(test_attr_helpers),  cmocka_unit_test(test_callback_error),
    };
    return cmocka_run_group_tests_name("otlp_read", tests, setup, teardown);
}
