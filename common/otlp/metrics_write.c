/* SPDX-License-Identifier: Apache-2.0 */
#include "otlp/metrics_write.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

#include "otlp/pb_write.h"
#include "otlp/write_int.h"

enum { RESOURCE, SCOPE, METRIC, DATA, LEVELS };

void ltn_otlp_metrics_begin(struct ltn_otlp_metrics_writer *w, struct ltn_buf *out)
{
    *w = (struct ltn_otlp_metrics_writer){.out = out};
}

int ltn_otlp_metrics_resource(struct ltn_otlp_metrics_writer *w, struct ltn_otlp_attrs attrs)
{
    ltn_otlp_levels_close(w->out, w->level, RESOURCE, LEVELS);
    if (ltn_buf_error(w->out) != 0) {
        return ltn_buf_error(w->out);
    }
    struct ltn_otlp_level *level = &w->level[RESOURCE];
    ltn_otlp_level_open(w->out, level, 1);
    ltn_otlp_put_resource(w->out, attrs);
    int rc = ltn_otlp_settle(w->out, level->start);
    level->open = rc == 0;
    return rc;
}

int ltn_otlp_metrics_scope(struct ltn_otlp_metrics_writer *w, const char *name, const char *version)
{
    ltn_otlp_levels_close(w->out, w->level, SCOPE, LEVELS);
    if (ltn_buf_error(w->out) != 0) {
        return ltn_buf_error(w->out);
    }
    if (!w->level[RESOURCE].open) {
        return -EINVAL;
    }
    struct ltn_otlp_level *level = &w->level[SCOPE];
    ltn_otlp_level_open(w->out, level, 2);
    ltn_otlp_put_scope(w->out, name, version);
    int rc = ltn_otlp_settle(w->out, level->start);
    level->open = rc == 0;
    return rc;
}

/* Field of Metric for a kind; 0 when it cannot be written. */
static uint32_t kind_field(enum ltn_otlp_kind kind)
{
    switch (kind) {
    case LTN_OTLP_GAUGE:
        return 5;
    case LTN_OTLP_SUM:
        return 7;
    case LTN_OTLP_HISTOGRAM:
        return 9;
    case LTN_OTLP_EXP_HISTOGRAM:
        return 10;
    case LTN_OTLP_SUMMARY:
        break;
    }
    return 0;
}

int ltn_otlp_metrics_metric(struct ltn_otlp_metrics_writer *w, const struct ltn_otlp_metric *m)
{
    struct ltn_buf *b = w->out;
    ltn_otlp_levels_close(b, w->level, METRIC, LEVELS);
    if (ltn_buf_error(b) != 0) {
        return ltn_buf_error(b);
    }
    uint32_t field = kind_field(m->kind);
    if (!w->level[SCOPE].open || m->name.n == 0 || field == 0) {
        return -EINVAL;
    }
    ltn_otlp_level_open(b, &w->level[METRIC], 2);
    ltn_otlp_put_text(b, 1, m->name);
    ltn_otlp_put_text_opt(b, 2, m->description);
    ltn_otlp_put_text_opt(b, 3, m->unit);
    ltn_otlp_level_open(b, &w->level[DATA], field);
    if (m->kind != LTN_OTLP_GAUGE && m->temporality != LTN_OTLP_TEMPORALITY_UNSPECIFIED) {
        ltn_pb_put_u64_field(b, 2, (uint64_t)m->temporality);
    }
    if (m->kind == LTN_OTLP_SUM && m->monotonic) {
        ltn_pb_put_u64_field(b, 3, 1);
    }
    int rc = ltn_otlp_settle(b, w->level[METRIC].start);
    w->level[METRIC].open = rc == 0;
    w->level[DATA].open = rc == 0;
    w->kind = m->kind;
    return rc;
}

/* Checks that a point may come now. */
static int point_allowed(const struct ltn_otlp_metrics_writer *w, bool fits)
{
    if (ltn_buf_error(w->out) != 0) {
        return ltn_buf_error(w->out);
    }
    return w->level[DATA].open && fits ? 0 : -EINVAL;
}

static int point_done(struct ltn_otlp_metrics_writer *w, size_t start, size_t mark)
{
    ltn_pb_close(w->out, mark);
    int rc = ltn_otlp_settle(w->out, start);
    if (rc == 0) {
        w->level[DATA].members = 1;
        w->points++;
    }
    return rc;
}

static void put_times(struct ltn_buf *b, const struct ltn_otlp_point *p)
{
    if (p->start_ns != 0) {
        ltn_pb_put_i64_field(b, 2, p->start_ns);
    }
    ltn_pb_put_i64_field(b, 3, p->time_ns);
}

static void put_flags(struct ltn_buf *b, uint32_t number, uint32_t flags)
{
    if (flags != 0) {
        ltn_pb_put_u64_field(b, number, flags);
    }
}

int ltn_otlp_metrics_number(struct ltn_otlp_metrics_writer *w, const struct ltn_otlp_number *p)
{
    struct ltn_buf *b = w->out;
    int rc = point_allowed(w, w->kind == LTN_OTLP_GAUGE || w->kind == LTN_OTLP_SUM);
    if (rc < 0) {
        return rc;
    }
    size_t start = b->len;
    size_t mark = ltn_pb_open(b, 1);
    put_times(b, &p->point);
    if (p->type == LTN_OTLP_DOUBLE) {
        ltn_pb_put_f64_field(b, 4, p->d);
    } else if (p->type == LTN_OTLP_INT) {
        ltn_pb_put_i64_field(b, 6, (uint64_t)p->i);
    }
    ltn_otlp_put_attrs(b, 7, p->point.attrs);
    put_flags(b, 8, p->point.flags);
    return point_done(w, start, mark);
}

static void put_optional(struct ltn_buf *b, uint32_t number, bool has, double v)
{
    if (has) {
        ltn_pb_put_f64_field(b, number, v);
    }
}

static void put_packed_i64(struct ltn_buf *b, uint32_t number, const void *items, size_t n)
{
    const char *from = items;
    size_t mark = n > 0 ? ltn_pb_open(b, number) : 0;
    for (size_t i = 0; i < n; i++) {
        uint64_t v;
        memcpy(&v, from + i * sizeof(v), sizeof(v));
        v = htole64(v);
        (void)ltn_buf_append(b, &v, sizeof(v));
    }
    ltn_pb_close(b, mark);
}

int ltn_otlp_metrics_histogram(struct ltn_otlp_metrics_writer *w,
                               const struct ltn_otlp_histogram *p)
{
    struct ltn_buf *b = w->out;
    int rc = point_allowed(w, w->kind == LTN_OTLP_HISTOGRAM);
    if (rc < 0) {
        return rc;
    }
    size_t start = b->len;
    size_t mark = ltn_pb_open(b, 1);
    put_times(b, &p->point);
    ltn_pb_put_i64_field(b, 4, p->count);
    put_optional(b, 5, p->has_sum, p->sum);
    put_packed_i64(b, 6, p->bucket_counts, p->bucket_n);
    put_packed_i64(b, 7, p->bounds, p->bound_n);
    ltn_otlp_put_attrs(b, 9, p->point.attrs);
    put_flags(b, 10, p->point.flags);
    put_optional(b, 11, p->has_min, p->min);
    put_optional(b, 12, p->has_max, p->max);
    return point_done(w, start, mark);
}

static void put_buckets(struct ltn_buf *b, uint32_t number, const struct ltn_otlp_buckets *k)
{
    if (k->n == 0) {
        return;
    }
    size_t mark = ltn_pb_open(b, number);
    if (k->offset != 0) {
        ltn_pb_put_sint_field(b, 1, k->offset);
    }
    ltn_pb_put_packed_u64(b, 2, k->counts, k->n);
    ltn_pb_close(b, mark);
}

int ltn_otlp_metrics_exp_histogram(struct ltn_otlp_metrics_writer *w,
                                   const struct ltn_otlp_exp_histogram *p)
{
    struct ltn_buf *b = w->out;
    int rc = point_allowed(w, w->kind == LTN_OTLP_EXP_HISTOGRAM);
    if (rc < 0) {
        return rc;
    }
    size_t start = b->len;
    size_t mark = ltn_pb_open(b, 1);
    ltn_otlp_put_attrs(b, 1, p->point.attrs);
    put_times(b, &p->point);
    ltn_pb_put_i64_field(b, 4, p->count);
    put_optional(b, 5, p->has_sum, p->sum);
    if (p->scale != 0) {
        ltn_pb_put_sint_field(b, 6, p->scale);
    }
    if (p->zero_count != 0) {
        ltn_pb_put_i64_field(b, 7, p->zero_count);
    }
    put_buckets(b, 8, &p->positive);
    put_buckets(b, 9, &p->negative);
    put_flags(b, 10, p->point.flags);
    put_optional(b, 12, p->has_min, p->min);
    put_optional(b, 13, p->has_max, p->max);
    put_optional(b, 14, p->zero_threshold > 0, p->zero_threshold);
    return point_done(w, start, mark);
}

int ltn_otlp_metrics_end(struct ltn_otlp_metrics_writer *w)
{
    ltn_otlp_levels_close(w->out, w->level, RESOURCE, LEVELS);
    return ltn_buf_error(w->out);
}
