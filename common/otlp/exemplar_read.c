/* SPDX-License-Identifier: Apache-2.0 */
/* Exemplars of data points from the wire. */
#include "base/err.h"
#include "otlp/read_int.h"

#define TRACE_ID_BYTES 16
#define SPAN_ID_BYTES  8

/* An id of another length is no id. */
static struct ltn_otlp_str id_of(const struct ltn_pb_field *f, size_t bytes)
{
    return f->value == bytes ? ltn_otlp_field_str(f) : (struct ltn_otlp_str){NULL, 0};
}

/* Fields that are no messages. */
static void exemplar_scalar(struct ltn_otlp_exemplar *e, const struct ltn_pb_field *f)
{
    switch (f->number << 3 | f->type) {
    case 2 << 3 | LTN_PB_I64:
        e->time_ns = f->value;
        break;
    case 3 << 3 | LTN_PB_I64:
        e->value = ltn_pb_f64(f->value);
        break;
    case 4 << 3 | LTN_PB_LEN:
        e->span_id = id_of(f, SPAN_ID_BYTES);
        break;
    case 5 << 3 | LTN_PB_LEN:
        e->trace_id = id_of(f, TRACE_ID_BYTES);
        break;
    case 6 << 3 | LTN_PB_I64:
        e->value = (double)(int64_t)f->value;
        break;
    default:
        break;
    }
}

int ltn_otlp_exemplar_read(struct ltn_otlp_reader *r, const struct ltn_pb_cur *c,
                           const struct ltn_pb_field *f)
{
    struct ltn_otlp_exemplar e = {.time_ns = 0};
    struct ltn_pb_cur sub;
    struct ltn_pb_field part;
    struct ltn_otlp_attr_set set = {.items = r->exemplar_attrs + r->exemplar_attr_n,
                                    .max = LTN_OTLP_EXEMPLAR_ATTRS_MAX - r->exemplar_attr_n,
                                    .reject = -1};
    int rc = ltn_pb_enter(c, f, &sub);
    if (rc < 0) {
        return rc;
    }
    while ((rc = ltn_pb_next(&sub, &part)) > 0) {
        if (part.number == 7 && part.type == LTN_PB_LEN) {
            rc = ltn_otlp_attr_read(&sub, &part, &set);
            if (rc < 0) {
                return rc;
            }
        } else {
            exemplar_scalar(&e, &part);
        }
    }
    if (rc < 0 || set.reject >= 0 || r->exemplar_n == LTN_OTLP_EXEMPLARS_MAX) {
        return rc;
    }
    e.attrs = ltn_otlp_attrs_view(&set);
    r->exemplar_attr_n += set.n;
    r->exemplars[r->exemplar_n++] = e;
    return 0;
}
