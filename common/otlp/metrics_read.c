/* SPDX-License-Identifier: Apache-2.0 */
#include "otlp/metrics_read.h"

#include <math.h>

#include "base/err.h"
#include "otlp/read_int.h"
#include "stats/exphist.h"

/* One Metric on its way to the callbacks. */
struct metric_read {
    struct ltn_otlp_reader *r;
    const struct ltn_otlp_metrics_sink *sink;
    struct ltn_otlp_metric metric;
    uint32_t data_field;        /* member of the oneof that counts; 0 while there is none */
    struct ltn_pb_cur data_run; /* from its first piece on */
    int reject;                 /* why all its points are rejected, or -1 */
};

/* Ends a point: true when it may go to its callback. */
static bool point_accept(const struct metric_read *m, struct ltn_otlp_point *p, int reject)
{
    struct ltn_otlp_reader *r = m->r;
    if (r->point.reject >= 0) {
        reject = r->point.reject;
    }
    if (reject >= 0) {
        ltn_otlp_count_reject(r, reject, m->metric.name);
        return false;
    }
    p->attrs = ltn_otlp_attrs_view(&r->point);
    p->exemplars = r->exemplars;
    p->exemplar_n = r->exemplar_n;
    r->counts->records++;
    return true;
}

/* raw: its attributes as they came, if that is known. */
static int read_number(struct metric_read *m, struct ltn_pb_cur *c, struct ltn_otlp_str raw)
{
    struct ltn_otlp_reader *r = m->r;
    struct ltn_otlp_number n = {.type = LTN_OTLP_NONE};
    struct ltn_pb_field f;
    int rc;
    ltn_otlp_point_reset(r);
    while ((rc = ltn_pb_next(c, &f)) > 0) {
        switch (f.number << 3 | f.type) {
        case 2 << 3 | LTN_PB_I64:
            n.point.start_ns = f.value;
            break;
        case 3 << 3 | LTN_PB_I64:
            n.point.time_ns = f.value;
            break;
        case 5 << 3 | LTN_PB_LEN:
            rc = ltn_otlp_exemplar_read(r, c, &f);
            if (rc < 0) {
                return rc;
            }
            break;
        case 4 << 3 | LTN_PB_I64:
            n.type = LTN_OTLP_DOUBLE;
            n.d = ltn_pb_f64(f.value);
            break;
        case 6 << 3 | LTN_PB_I64:
            n.type = LTN_OTLP_INT;
            n.i = (int64_t)f.value;
            break;
        case 7 << 3 | LTN_PB_LEN:
            rc = ltn_otlp_attr_read(c, &f, &r->point);
            if (rc < 0) {
                return rc;
            }
            break;
        case 8 << 3 | LTN_PB_VARINT:
            n.point.flags = (uint32_t)f.value;
            break;
        default:
            break;
        }
    }
    if (rc < 0 || !point_accept(m, &n.point, -1)) {
        return rc;
    }
    n.point.raw = raw;
    return m->sink->on_number(m->sink->ctx, &r->group, &m->metric, &n);
}

/* A repeated number field; too many of them reject the point instead of the request. */
static int read_repeated(const struct ltn_pb_field *f, enum ltn_pb_type elem, uint64_t *out,
                         size_t max, size_t *n, int *reject)
{
    int rc = ltn_pb_repeated(f, elem, out, max, n);
    if (rc == LTN_ERR_COUNT) {
        *reject = LTN_OTLP_REJECT_BUCKETS;
        rc = 0;
    }
    return rc;
}

/* Turns bit patterns into doubles and looks at them: bounds ascend and are numbers. */
static bool bounds_ok(struct ltn_otlp_reader *r, const uint64_t *bits, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        r->bounds[i] = ltn_pb_f64(bits[i]);
        if (isnan(r->bounds[i]) || (i > 0 && r->bounds[i] <= r->bounds[i - 1])) {
            return false;
        }
    }
    return true;
}

/* Fields of HistogramDataPoint that are single numbers. */
static void histogram_scalar(struct ltn_otlp_histogram *h, const struct ltn_pb_field *f)
{
    switch (f->number << 3 | f->type) {
    case 2 << 3 | LTN_PB_I64:
        h->point.start_ns = f->value;
        break;
    case 3 << 3 | LTN_PB_I64:
        h->point.time_ns = f->value;
        break;
    case 4 << 3 | LTN_PB_I64:
        h->count = f->value;
        break;
    case 5 << 3 | LTN_PB_I64:
        h->has_sum = true;
        h->sum = ltn_pb_f64(f->value);
        break;
    case 10 << 3 | LTN_PB_VARINT:
        h->point.flags = (uint32_t)f->value;
        break;
    case 11 << 3 | LTN_PB_I64:
        h->has_min = true;
        h->min = ltn_pb_f64(f->value);
        break;
    case 12 << 3 | LTN_PB_I64:
        h->has_max = true;
        h->max = ltn_pb_f64(f->value);
        break;
    default:
        break;
    }
}

static bool is_number_list(const struct ltn_pb_field *f, enum ltn_pb_type elem)
{
    return f->type == LTN_PB_LEN || f->type == (uint32_t)elem;
}

static int read_histogram(struct metric_read *m, struct ltn_pb_cur *c)
{
    struct ltn_otlp_reader *r = m->r;
    struct ltn_otlp_histogram h = {.count = 0};
    struct ltn_pb_field f;
    int reject = -1;
    int rc;
    ltn_otlp_point_reset(r);
    while ((rc = ltn_pb_next(c, &f)) > 0) {
        if (f.number == 6 && is_number_list(&f, LTN_PB_I64)) {
            rc = read_repeated(&f, LTN_PB_I64, r->positive, r->limits.max_buckets, &h.bucket_n,
                               &reject);
        } else if (f.number == 7 && is_number_list(&f, LTN_PB_I64)) {
            rc = read_repeated(&f, LTN_PB_I64, r->negative, r->limits.max_buckets, &h.bound_n,
                               &reject);
        } else if (f.number == 9 && f.type == LTN_PB_LEN) {
            rc = ltn_otlp_attr_read(c, &f, &r->point);
        } else if (f.number == 8 && f.type == LTN_PB_LEN) {
            rc = ltn_otlp_exemplar_read(r, c, &f);
        } else {
            histogram_scalar(&h, &f);
        }
        if (rc < 0) {
            return rc;
        }
    }
    if (rc < 0) {
        return rc;
    }
    bool shape_ok = h.bucket_n == 0 ? h.bound_n == 0 : h.bucket_n == h.bound_n + 1;
    if (reject < 0 && (!shape_ok || !bounds_ok(r, r->negative, h.bound_n))) {
        reject = LTN_OTLP_REJECT_RANGE;
    }
    h.bucket_counts = r->positive;
    h.bounds = r->bounds;
    if (!point_accept(m, &h.point, reject)) {
        return 0;
    }
    return m->sink->on_histogram(m->sink->ctx, &r->group, &m->metric, &h);
}

/* One piece of Buckets. */
static int read_buckets(const struct ltn_otlp_reader *r, struct ltn_pb_cur c, uint64_t *scratch,
                        struct ltn_otlp_buckets *k, int *reject)
{
    struct ltn_pb_field f;
    int rc;
    while ((rc = ltn_pb_next(&c, &f)) > 0) {
        if (f.number == 1 && f.type == LTN_PB_VARINT) {
            k->offset = ltn_pb_sint32(f.value);
        } else if (f.number == 2 && is_number_list(&f, LTN_PB_VARINT)) {
            rc = read_repeated(&f, LTN_PB_VARINT, scratch, r->limits.max_buckets, &k->n, reject);
            if (rc < 0) {
                return rc;
            }
        }
    }
    return rc;
}

/* Fields of ExponentialHistogramDataPoint that are single numbers. */
static void exp_scalar(struct ltn_otlp_exp_histogram *h, const struct ltn_pb_field *f)
{
    switch (f->number << 3 | f->type) {
    case 2 << 3 | LTN_PB_I64:
        h->point.start_ns = f->value;
        break;
    case 3 << 3 | LTN_PB_I64:
        h->point.time_ns = f->value;
        break;
    case 4 << 3 | LTN_PB_I64:
        h->count = f->value;
        break;
    case 5 << 3 | LTN_PB_I64:
        h->has_sum = true;
        h->sum = ltn_pb_f64(f->value);
        break;
    case 6 << 3 | LTN_PB_VARINT:
        h->scale = ltn_pb_sint32(f->value);
        break;
    case 7 << 3 | LTN_PB_I64:
        h->zero_count = f->value;
        break;
    case 10 << 3 | LTN_PB_VARINT:
        h->point.flags = (uint32_t)f->value;
        break;
    case 12 << 3 | LTN_PB_I64:
        h->has_min = true;
        h->min = ltn_pb_f64(f->value);
        break;
    case 13 << 3 | LTN_PB_I64:
        h->has_max = true;
        h->max = ltn_pb_f64(f->value);
        break;
    case 14 << 3 | LTN_PB_I64:
        h->zero_threshold = ltn_pb_f64(f->value);
        break;
    default:
        break;
    }
}

static int exp_check(const struct ltn_otlp_reader *r, const struct ltn_otlp_exp_histogram *h)
{
    if (h->positive.n > r->limits.max_buckets - h->negative.n) {
        return LTN_OTLP_REJECT_BUCKETS;
    }
    bool fits = ltn_exphist_run_ok(h->scale, h->positive.offset, h->positive.n) &&
                ltn_exphist_run_ok(h->scale, h->negative.offset, h->negative.n);
    bool zero_ok = isfinite(h->zero_threshold) && h->zero_threshold >= 0;
    return fits && zero_ok ? -1 : LTN_OTLP_REJECT_RANGE;
}

static int read_exp_histogram(struct metric_read *m, struct ltn_pb_cur *c)
{
    struct ltn_otlp_reader *r = m->r;
    struct ltn_otlp_exp_histogram h = {.positive = {.counts = r->positive},
                                       .negative = {.counts = r->negative}};
    struct ltn_pb_field f;
    struct ltn_pb_cur sub;
    int reject = -1;
    int rc;
    ltn_otlp_point_reset(r);
    while ((rc = ltn_pb_next(c, &f)) > 0) {
        if (f.type != LTN_PB_LEN) {
            exp_scalar(&h, &f);
        } else if (f.number == 1) {
            rc = ltn_otlp_attr_read(c, &f, &r->point);
        } else if (f.number == 8) {
            rc = ltn_pb_enter(c, &f, &sub);
            rc = rc < 0 ? rc : read_buckets(r, sub, r->positive, &h.positive, &reject);
        } else if (f.number == 9) {
            rc = ltn_pb_enter(c, &f, &sub);
            rc = rc < 0 ? rc : read_buckets(r, sub, r->negative, &h.negative, &reject);
        } else if (f.number == 11) {
            rc = ltn_otlp_exemplar_read(r, c, &f);
        }
        if (rc < 0) {
            return rc;
        }
    }
    if (rc < 0 || !point_accept(m, &h.point, reject >= 0 ? reject : exp_check(r, &h))) {
        return rc;
    }
    return m->sink->on_exp_histogram(m->sink->ctx, &r->group, &m->metric, &h);
}

static int read_summary(struct metric_read *m, struct ltn_pb_cur *c)
{
    struct ltn_otlp_reader *r = m->r;
    struct ltn_otlp_summary s;
    int reject = -1;
    int rc = ltn_otlp_summary_read(r, c, &s, &reject);
    if (rc < 0 || !point_accept(m, &s.point, reject)) {
        return rc;
    }
    return m->sink->on_summary(m->sink->ctx, &r->group, &m->metric, &s);
}

/* All points of one piece of data, by the kind of the metric. */
static int read_points(struct metric_read *m, struct ltn_pb_cur c)
{
    struct ltn_pb_field f;
    int rc;
    while ((rc = ltn_pb_next(&c, &f)) > 0) {
        struct ltn_pb_cur sub;
        if (f.number != 1 || f.type != LTN_PB_LEN) {
            continue;
        }
        if ((rc = ltn_otlp_count_record(m->r)) < 0 || (rc = ltn_pb_enter(&c, &f, &sub)) < 0) {
            return rc;
        }
        if (m->reject >= 0) {
            ltn_otlp_count_reject(m->r, m->reject, m->metric.name);
        } else if (m->metric.kind == LTN_OTLP_HISTOGRAM) {
            rc = read_histogram(m, &sub);
        } else if (m->metric.kind == LTN_OTLP_EXP_HISTOGRAM) {
            rc = read_exp_histogram(m, &sub);
        } else if (m->metric.kind == LTN_OTLP_SUMMARY) {
            rc = read_summary(m, &sub);
        } else {
            rc = read_number(m, &sub, (struct ltn_otlp_str){NULL, 0});
        }
        if (rc < 0) {
            return rc;
        }
    }
    return rc;
}

/* Numbers that were looked at, some at a time. */
struct ahead {
    struct ltn_pb_cur cur[LTN_OTLP_AHEAD];
    struct ltn_otlp_number number[LTN_OTLP_AHEAD];
    size_t n;
};

/* Fills it with the next points. The end of them, as ltn_pb_next. */
static int look_ahead(const struct metric_read *m, struct ltn_pb_cur *c, struct ahead *a)
{
    struct ltn_pb_field f;
    int rc = 1;
    a->n = 0;
    while (a->n < LTN_OTLP_AHEAD && (rc = ltn_pb_next(c, &f)) > 0) {
        if (f.number != 1 || f.type != LTN_PB_LEN) {
            continue;
        }
        a->number[a->n] = (struct ltn_otlp_number){.type = LTN_OTLP_NONE};
        if ((rc = ltn_otlp_count_record(m->r)) < 0 ||
            (rc = ltn_pb_enter(c, &f, &a->cur[a->n])) < 0 ||
            (rc = ltn_otlp_number_scan(a->cur[a->n], &a->number[a->n])) < 0) {
            return rc;
        }
        a->n++;
        rc = 1;
    }
    return rc;
}

/* The same as read_points for numbers, with a look ahead for those whose attributes are known. */
static int read_numbers(struct metric_read *m, struct ltn_pb_cur c)
{
    struct ltn_otlp_reader *r = m->r;
    struct ahead a;
    int more;
    do {
        more = look_ahead(m, &c, &a);
        for (size_t i = 0; more >= 0 && i < a.n; i++) {
            int k = r->on_numbers_raw(m->sink->ctx, &r->group, &m->metric, a.number + i, a.n - i);
            if (k < 0) {
                return k;
            }
            r->counts->records += (uint64_t)k;
            i += (size_t)k;
            int rc = i < a.n ? read_number(m, &a.cur[i], a.number[i].point.raw) : 0;
            if (rc < 0) {
                return rc;
            }
        }
    } while (more > 0);
    return more;
}

/* Temporality and monotonicity, which may stand after the points, from one piece of data. */
static int read_data_heading(struct ltn_otlp_metric *m, struct ltn_pb_cur c)
{
    struct ltn_pb_field f;
    int rc;
    while ((rc = ltn_pb_next(&c, &f)) > 0) {
        if (f.type != LTN_PB_VARINT) {
            continue;
        }
        if (f.number == 2) {
            uint32_t t = (uint32_t)f.value;
            m->temporality = t == LTN_OTLP_DELTA || t == LTN_OTLP_CUMULATIVE
                                 ? (enum ltn_otlp_temporality)t
                                 : LTN_OTLP_TEMPORALITY_UNSPECIFIED;
        } else if (f.number == 3 && m->kind == LTN_OTLP_SUM) {
            m->monotonic = f.value != 0;
        }
    }
    return rc;
}

/* Field of Metric to kind; false for fields that are no data. */
static bool data_kind(uint32_t number, enum ltn_otlp_kind *ret)
{
    switch (number) {
    case 5:
        *ret = LTN_OTLP_GAUGE;
        return true;
    case 7:
        *ret = LTN_OTLP_SUM;
        return true;
    case 9:
        *ret = LTN_OTLP_HISTOGRAM;
        return true;
    case 10:
        *ret = LTN_OTLP_EXP_HISTOGRAM;
        return true;
    case 11:
        *ret = LTN_OTLP_SUMMARY;
        return true;
    default:
        return false;
    }
}

/* A data field in the first pass. Another member of the oneof discards what came before; the same
 * member again merges with it. before is the cursor in front of the field. */
static int note_data(struct metric_read *m, struct ltn_pb_cur before, const struct ltn_pb_field *f,
                     enum ltn_otlp_kind kind)
{
    struct ltn_pb_cur sub;
    if (m->data_field != f->number) {
        m->data_field = f->number;
        m->data_run = before;
        m->metric.kind = kind;
        m->metric.temporality = LTN_OTLP_TEMPORALITY_UNSPECIFIED;
        m->metric.monotonic = false;
    }
    int rc = ltn_pb_enter(&before, f, &sub);
    if (rc < 0 || kind == LTN_OTLP_GAUGE || kind == LTN_OTLP_SUMMARY) {
        return rc;
    }
    return read_data_heading(&m->metric, sub);
}

static int read_metric_heading(struct metric_read *m, struct ltn_pb_cur c)
{
    struct ltn_pb_field f;
    int rc;
    for (;;) {
        struct ltn_pb_cur before = c;
        enum ltn_otlp_kind kind;
        rc = ltn_pb_next(&c, &f);
        if (rc <= 0) {
            return rc;
        }
        if (f.type != LTN_PB_LEN) {
            continue;
        }
        if (f.number == 1) {
            m->metric.name = ltn_otlp_field_text(&f, &m->metric.bad_utf8);
        } else if (f.number == 2) {
            m->metric.description = ltn_otlp_field_text(&f, &m->metric.bad_utf8);
        } else if (f.number == 3) {
            m->metric.unit = ltn_otlp_field_text(&f, &m->metric.bad_utf8);
        } else if (data_kind(f.number, &kind)) {
            rc = note_data(m, before, &f, kind);
            if (rc < 0) {
                return rc;
            }
        }
    }
}

static bool kind_wanted(const struct ltn_otlp_metrics_sink *sink, enum ltn_otlp_kind kind)
{
    switch (kind) {
    case LTN_OTLP_GAUGE:
    case LTN_OTLP_SUM:
        return sink->on_number != NULL;
    case LTN_OTLP_HISTOGRAM:
        return sink->on_histogram != NULL;
    case LTN_OTLP_EXP_HISTOGRAM:
        return sink->on_exp_histogram != NULL;
    case LTN_OTLP_SUMMARY:
        return sink->on_summary != NULL;
    }
    return false;
}

static int metric_reject(const struct metric_read *m)
{
    int reject = ltn_otlp_group_reject(m->r);
    if (reject < 0 && m->metric.name.n == 0) {
        reject = LTN_OTLP_REJECT_NAME;
    }
    if (reject < 0 && !kind_wanted(m->sink, m->metric.kind)) {
        reject = LTN_OTLP_REJECT_KIND;
    }
    return reject;
}

static int read_metric(struct ltn_otlp_reader *r, struct ltn_pb_cur c, void *arg)
{
    struct metric_read m = {
        .r = r, .sink = arg, .metric = {.name = {"", 0}, .unit = {"", 0}, .description = {"", 0}}};
    struct ltn_pb_field f;
    int rc = ltn_otlp_count_group(r);
    if (rc < 0 || (rc = read_metric_heading(&m, c)) < 0) {
        return rc;
    }
    m.metric.metric_index = r->metric_n++;
    if (m.data_field == 0) {
        return 0;
    }
    m.reject = metric_reject(&m);
    bool ahead = r->on_numbers_raw != NULL && m.reject < 0 &&
                 (m.metric.kind == LTN_OTLP_GAUGE || m.metric.kind == LTN_OTLP_SUM);
    while ((rc = ltn_pb_next(&m.data_run, &f)) > 0) {
        struct ltn_pb_cur sub;
        if (f.number != m.data_field || f.type != LTN_PB_LEN) {
            continue;
        }
        rc = ltn_pb_enter(&m.data_run, &f, &sub);
        if (rc < 0 || (rc = ahead ? read_numbers(&m, sub) : read_points(&m, sub)) < 0) {
            return rc;
        }
    }
    return rc;
}

void ltn_otlp_metrics_raw(struct ltn_otlp_reader *r, ltn_otlp_numbers_raw_fn *fn)
{
    r->on_numbers_raw = fn;
}

int ltn_otlp_metrics_read(struct ltn_otlp_reader *r, const void *data, size_t n,
                          const struct ltn_otlp_metrics_sink *sink,
                          struct ltn_otlp_counts *ret_counts)
{
    struct ltn_otlp_metrics_sink copy = *sink;
    *ret_counts = (struct ltn_otlp_counts){.records = 0};
    r->counts = ret_counts;
    return ltn_otlp_walk(r, data, n, read_metric, &copy);
}
