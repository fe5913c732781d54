/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What our readers make of OTLP requests, for comparison with another implementation. Input:
 * requests, each as one byte for its kind (0 metrics, 1 logs; 2 and 3 the same as JSON), four bytes
 * of length (little endian) and the bytes. Output for each: a line per record and "REQUEST code
 * records rejected"; text and bytes are in hex.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "otlp/json_read.h"
#include "otlp/logs_read.h"
#include "otlp/metrics_read.h"

#define REQUEST_MAX_BYTES (16u << 20)

static void put_hex(struct ltn_otlp_str s, bool bad_utf8)
{
    for (size_t i = 0; i < s.n; i++) {
        (void)printf("%02x", (unsigned char)s.p[i]);
    }
    (void)fputs(bad_utf8 ? "!" : "", stdout);
}

static void put_str(struct ltn_otlp_str s)
{
    (void)putchar(' ');
    put_hex(s, false);
}

static void put_double(double d)
{
    uint64_t bits;
    memcpy(&bits, &d, sizeof(bits));
    if (isnan(d)) {
        (void)printf("nan");
    } else {
        (void)printf("%016" PRIx64, bits);
    }
}

static void put_value(const struct ltn_otlp_value *v)
{
    switch (v->type) {
    case LTN_OTLP_NONE:
        (void)printf("n:");
        break;
    case LTN_OTLP_STRING:
        (void)printf("s:");
        put_hex(v->str, v->bad_utf8);
        break;
    case LTN_OTLP_BOOL:
        (void)printf("b:%d", v->b);
        break;
    case LTN_OTLP_INT:
        (void)printf("i:%" PRId64, v->i);
        break;
    case LTN_OTLP_DOUBLE:
        (void)printf("d:");
        put_double(v->d);
        break;
    case LTN_OTLP_ARRAY:
        (void)printf("a:");
        put_hex(v->str, false);
        break;
    case LTN_OTLP_KVLIST:
        (void)printf("k:");
        put_hex(v->str, false);
        break;
    case LTN_OTLP_BYTES:
        (void)printf("y:");
        put_hex(v->str, false);
        break;
    }
}

static void put_attrs(struct ltn_otlp_attrs attrs)
{
    (void)printf(" {");
    for (size_t i = 0; i < attrs.n; i++) {
        (void)putchar(' ');
        put_hex(attrs.items[i].key, attrs.items[i].key_bad_utf8);
        (void)putchar('=');
        put_value(&attrs.items[i].value);
    }
    (void)printf(" }");
}

static void put_group(const struct ltn_otlp_group *g)
{
    put_str(g->resource_schema_url);
    put_attrs(g->resource);
    put_str(g->scope_schema_url);
    put_str(g->scope_name);
    put_str(g->scope_version);
    put_attrs(g->scope_attrs);
}

static void put_point(char kind, const struct ltn_otlp_group *g, const struct ltn_otlp_metric *m,
                      const struct ltn_otlp_point *p)
{
    (void)putchar(kind);
    put_group(g);
    put_str(m->name);
    put_str(m->unit);
    put_str(m->description);
    (void)printf(" %d %d %d %" PRIu64 " %" PRIu64 " %" PRIu32, (int)m->kind, (int)m->temporality,
                 m->monotonic, p->start_ns, p->time_ns, p->flags);
    put_attrs(p->attrs);
}

static int on_number(void *ctx, const struct ltn_otlp_group *g, const struct ltn_otlp_metric *m,
                     const struct ltn_otlp_number *n)
{
    struct ltn_otlp_value v = {.type = n->type};
    (void)ctx;
    if (n->type == LTN_OTLP_INT) {
        v.i = n->i;
    } else {
        v.d = n->d;
    }
    put_point('N', g, m, &n->point);
    (void)putchar(' ');
    put_value(&v);
    (void)putchar('\n');
    return 0;
}

static void put_optional(bool has, double v)
{
    (void)putchar(' ');
    if (has) {
        put_double(v);
    } else {
        (void)putchar('-');
    }
}

static void put_counts(const uint64_t *counts, size_t n)
{
    (void)printf(" [");
    for (size_t i = 0; i < n; i++) {
        (void)printf(" %" PRIu64, counts[i]);
    }
    (void)printf(" ]");
}

static int on_histogram(void *ctx, const struct ltn_otlp_group *g, const struct ltn_otlp_metric *m,
                        const struct ltn_otlp_histogram *h)
{
    (void)ctx;
    put_point('H', g, m, &h->point);
    (void)printf(" %" PRIu64, h->count);
    put_optional(h->has_sum, h->sum);
    put_optional(h->has_min, h->min);
    put_optional(h->has_max, h->max);
    put_counts(h->bucket_counts, h->bucket_n);
    for (size_t i = 0; i < h->bound_n; i++) {
        put_optional(true, h->bounds[i]);
    }
    (void)putchar('\n');
    return 0;
}

static int on_exp(void *ctx, const struct ltn_otlp_group *g, const struct ltn_otlp_metric *m,
                  const struct ltn_otlp_exp_histogram *h)
{
    (void)ctx;
    put_point('E', g, m, &h->point);
    (void)printf(" %" PRIu64, h->count);
    put_optional(h->has_sum, h->sum);
    put_optional(h->has_min, h->min);
    put_optional(h->has_max, h->max);
    (void)printf(" %" PRId32 " %" PRIu64, h->scale, h->zero_count);
    put_optional(true, h->zero_threshold);
    (void)printf(" %" PRId32, h->positive.offset);
    put_counts(h->positive.counts, h->positive.n);
    (void)printf(" %" PRId32, h->negative.offset);
    put_counts(h->negative.counts, h->negative.n);
    (void)putchar('\n');
    return 0;
}

static int on_log(void *ctx, const struct ltn_otlp_group *g, const struct ltn_otlp_log *l)
{
    (void)ctx;
    (void)putchar('L');
    put_group(g);
    (void)printf(" %" PRIu64 " %" PRIu64 " %" PRId32 " %" PRIu32, l->time_ns, l->observed_ns,
                 l->severity, l->flags);
    put_str(l->severity_text);
    put_str(l->event_name);
    put_str(l->trace_id);
    put_str(l->span_id);
    (void)putchar(' ');
    put_value(&l->body);
    put_attrs(l->attrs);
    (void)putchar('\n');
    return 0;
}

/* Records go to stdout as they come, so the head line with the verdict is the last: "REQUEST". */
static void read_one(struct ltn_otlp_reader *r, unsigned kind, const uint8_t *data, size_t n)
{
    static const struct ltn_otlp_metrics_sink metrics = {NULL, on_number, on_histogram, on_exp,
                                                         NULL};
    static const struct ltn_otlp_logs_sink logs = {NULL, on_log};
    struct ltn_otlp_counts counts = {.records = 0};
    struct ltn_otlp_json_info info;
    struct ltn_buf wire;
    int rc = 0;
    ltn_buf_init(&wire, (size_t)1 << 27);
    if (kind >= 2) {
        rc = ltn_otlp_json_read(kind == 2 ? LTN_OTLP_METRICS : LTN_OTLP_LOGS, data, n, 32, &wire,
                                &info);
        data = (const uint8_t *)wire.data;
        n = wire.len;
    }
    if (rc == 0) {
        rc = kind % 2 == 0 ? ltn_otlp_metrics_read(r, data, n, &metrics, &counts)
                           : ltn_otlp_logs_read(r, data, n, &logs, &counts);
    }
    (void)printf("REQUEST %d %" PRIu64 " %" PRIu64 "\n", rc, counts.records, counts.rejected);
    ltn_buf_done(&wire);
}

int main(void)
{
    struct ltn_otlp_reader *r = ltn_otlp_reader_new(NULL);
    uint8_t head[5];
    if (r == NULL) {
        return 1;
    }
    while (fread(head, 1, sizeof(head), stdin) == sizeof(head)) {
        size_t n = head[1] | (size_t)head[2] << 8 | (size_t)head[3] << 16 | (size_t)head[4] << 24;
        uint8_t *data = n <= REQUEST_MAX_BYTES ? malloc(n > 0 ? n : 1) : NULL;
        if (data == NULL || fread(data, 1, n, stdin) != n) {
            free(data);
            ltn_otlp_reader_free(r);
            return 1;
        }
        read_one(r, head[0], data, n);
        free(data);
    }
    ltn_otlp_reader_free(r);
    return 0;
}
