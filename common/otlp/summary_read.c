/* SPDX-License-Identifier: Apache-2.0 */
/* Points of summaries from the wire. */
#include "base/err.h"
#include "otlp/read_int.h"

/* One ValueAtQuantile; what is not between 0 and 1, and too many of them, reject the point. */
static int read_quantile(struct ltn_otlp_reader *r, struct ltn_pb_cur c, size_t *n, int *reject)
{
    struct ltn_otlp_quantile q = {0, 0};
    struct ltn_pb_field f;
    int rc;
    while ((rc = ltn_pb_next(&c, &f)) > 0) {
        if (f.number == 1 && f.type == LTN_PB_I64) {
            q.quantile = ltn_pb_f64(f.value);
        } else if (f.number == 2 && f.type == LTN_PB_I64) {
            q.value = ltn_pb_f64(f.value);
        }
    }
    if (rc < 0) {
        return rc;
    }
    if (!(q.quantile >= 0 && q.quantile <= 1)) {
        *reject = LTN_OTLP_REJECT_RANGE;
    } else if (*n == LTN_OTLP_QUANTILES_MAX) {
        *reject = LTN_OTLP_REJECT_BUCKETS;
    } else {
        r->quantiles[(*n)++] = q;
    }
    return 0;
}

static void summary_scalar(struct ltn_otlp_summary *s, const struct ltn_pb_field *f)
{
    switch (f->number << 3 | f->type) {
    case 2 << 3 | LTN_PB_I64:
        s->point.start_ns = f->value;
        break;
    case 3 << 3 | LTN_PB_I64:
        s->point.time_ns = f->value;
        break;
    case 4 << 3 | LTN_PB_I64:
        s->count = f->value;
        break;
    case 5 << 3 | LTN_PB_I64:
        s->sum = ltn_pb_f64(f->value);
        break;
    case 8 << 3 | LTN_PB_VARINT:
        s->point.flags = (uint32_t)f->value;
        break;
    default:
        break;
    }
}

int ltn_otlp_summary_read(struct ltn_otlp_reader *r, struct ltn_pb_cur *c,
                          struct ltn_otlp_summary *ret, int *ret_reject)
{
    struct ltn_otlp_summary s = {.quantiles = r->quantiles};
    struct ltn_pb_field f;
    struct ltn_pb_cur sub;
    int rc;
    *ret_reject = -1;
    ltn_otlp_point_reset(r);
    while ((rc = ltn_pb_next(c, &f)) > 0) {
        if (f.number == 6 && f.type == LTN_PB_LEN) {
            rc = ltn_pb_enter(c, &f, &sub);
            rc = rc < 0 ? rc : read_quantile(r, sub, &s.n, ret_reject);
        } else if (f.number == 7 && f.type == LTN_PB_LEN) {
            rc = ltn_otlp_attr_read(c, &f, &r->point);
        } else {
            summary_scalar(&s, &f);
        }
        if (rc < 0) {
            return rc;
        }
    }
    *ret = s;
    return rc;
}
