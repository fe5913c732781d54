/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the readers of this folder only. */
#ifndef LTN_OTLP_READ_INT_H
#define LTN_OTLP_READ_INT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/attr.h"
#include "otlp/model.h"
#include "otlp/pb_read.h"
#include "otlp/reader.h"

/* Ceilings of the limits themselves: the walk over nested values keeps a stack of this depth, the
 * scratch arrays have these sizes. */
#define LTN_OTLP_DEPTH_CEILING   64
#define LTN_OTLP_ATTRS_CEILING   1024
#define LTN_OTLP_BUCKETS_CEILING 1048576

/* Quantiles of one summary point, and attributes of all exemplars of one point together. */
#define LTN_OTLP_QUANTILES_MAX      256
#define LTN_OTLP_EXEMPLAR_ATTRS_MAX 64

/* Attributes being collected. */
struct ltn_otlp_attr_set {
    struct ltn_otlp_attr *items; /* scratch of max items */
    size_t n;
    size_t max;
    int reject; /* enum ltn_otlp_reject, or -1 while all is well */
};

struct ltn_otlp_reader {
    struct ltn_otlp_limits limits;
    struct ltn_otlp_counts *counts; /* of the request being read */
    struct ltn_otlp_group group;
    struct ltn_otlp_attr_set resource;
    struct ltn_otlp_attr_set scope;
    struct ltn_otlp_attr_set point;
    size_t exemplar_n, exemplar_attr_n; /* of the point being read */
    uint64_t *positive;                 /* max_buckets items each */
    uint64_t *negative;
    double *bounds;
    uint32_t resource_n; /* seen so far in this request */
    uint32_t scope_n;
    uint32_t metric_n;
    uint32_t record_n;
    struct ltn_otlp_exemplar exemplars[LTN_OTLP_EXEMPLARS_MAX];
    struct ltn_otlp_attr exemplar_attrs[LTN_OTLP_EXEMPLAR_ATTRS_MAX];
    struct ltn_otlp_quantile quantiles[LTN_OTLP_QUANTILES_MAX];
    int (*on_numbers_raw)(void *ctx, const struct ltn_otlp_group *g,
                          const struct ltn_otlp_metric *m, const struct ltn_otlp_number *p,
                          size_t n);
};

/* Called for each Metric or LogRecord, with the cursor inside it. */
typedef int ltn_otlp_leaf_fn(struct ltn_otlp_reader *r, struct ltn_pb_cur c, void *arg);

/* The two levels that metrics and logs share: request { resource groups { scope groups { leaf }}}.
 * r->group describes where the leaf stands. */
int ltn_otlp_walk(struct ltn_otlp_reader *r, const void *data, size_t n, ltn_otlp_leaf_fn *leaf,
                  void *arg) ltn_must_check;

/* Why everything in the current group is to be rejected; -1 when nothing speaks against it. */
int ltn_otlp_group_reject(const struct ltn_otlp_reader *r);

/* Counts one more group, or one more record, as it begins; LTN_ERR_COUNT at the limit. */
int ltn_otlp_count_group(struct ltn_otlp_reader *r) ltn_must_check;
int ltn_otlp_count_record(struct ltn_otlp_reader *r) ltn_must_check;
void ltn_otlp_count_reject(struct ltn_otlp_reader *r, int why, struct ltn_otlp_str metric);

static inline void ltn_otlp_attrs_reset(struct ltn_otlp_attr_set *set)
{
    set->n = 0;
    set->reject = -1;
}

static inline struct ltn_otlp_attrs ltn_otlp_attrs_view(const struct ltn_otlp_attr_set *set)
{
    return (struct ltn_otlp_attrs){set->items, set->n};
}

/* Begins a point: nothing of the one before is left. */
static inline void ltn_otlp_point_reset(struct ltn_otlp_reader *r)
{
    ltn_otlp_attrs_reset(&r->point);
    r->exemplar_n = 0;
    r->exemplar_attr_n = 0;
}

/* Decodes the Exemplar in field f of c into the scratch; what does not fit is skipped. */
int ltn_otlp_exemplar_read(struct ltn_otlp_reader *r, const struct ltn_pb_cur *c,
                           const struct ltn_pb_field *f) ltn_must_check;

/* Decodes a SummaryDataPoint under c; its quantiles stand in the scratch, its attributes in
 * r->point. *ret_reject says why it is to be rejected, -1 for not at all. */
int ltn_otlp_summary_read(struct ltn_otlp_reader *r, struct ltn_pb_cur *c,
                          struct ltn_otlp_summary *ret, int *ret_reject) ltn_must_check;

/* Fields of the NumberDataPoint under c into *n (zeros), its attributes only as raw bytes. */
int ltn_otlp_number_scan(struct ltn_pb_cur c, struct ltn_otlp_number *n) ltn_must_check;

/* Decodes the KeyValue in field f of c into the set. Too many, and references to a string table,
 * mark the set as rejected. */
int ltn_otlp_attr_read(const struct ltn_pb_cur *c, const struct ltn_pb_field *f,
                       struct ltn_otlp_attr_set *set) ltn_must_check;

/* Merges the AnyValue message under c into *v, which starts as zeros. *strindex is set when it
 * refers to a string table. */
int ltn_otlp_value_read(struct ltn_pb_cur *c, struct ltn_otlp_value *v,
                        bool *strindex) ltn_must_check;

/* True when the text is valid UTF-8; fast for ASCII. */
bool ltn_otlp_text_ok(const uint8_t *p, size_t n);

static inline struct ltn_otlp_str ltn_otlp_field_str(const struct ltn_pb_field *f)
{
    return (struct ltn_otlp_str){(const char *)f->data, (size_t)f->value};
}

static inline struct ltn_otlp_str ltn_otlp_field_text(const struct ltn_pb_field *f, bool *bad_utf8)
{
    if (f->data != NULL && !ltn_otlp_text_ok(f->data, (size_t)f->value)) {
        *bad_utf8 = true;
    }
    return ltn_otlp_field_str(f);
}

#endif /* LTN_OTLP_READ_INT_H */
