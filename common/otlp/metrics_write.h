/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Builds an ExportMetricsServiceRequest in a ltn_buf, whose ceiling is the batch cap. Levels close
 * by themselves when a sibling or parent begins; a resource, scope or metric that stayed empty is
 * taken back. Every call either appends all it was asked to or, on error, nothing: after
 * LTN_ERR_TOO_LARGE call ltn_otlp_metrics_end, send what is there and begin anew. The margin that
 * closing needs is kept free, so _end cannot fail for lack of room. One thread at a time.
 *
 *   ltn_otlp_metrics_begin -> { _resource -> { _scope -> { _metric -> { _number | _exp_histogram
 * }}}}
 *   -> ltn_otlp_metrics_end
 */
#ifndef LTN_OTLP_METRICS_WRITE_H
#define LTN_OTLP_METRICS_WRITE_H

#include <stdint.h>

#include "base/attr.h"
#include "base/buf.h"
#include "otlp/model.h"

struct ltn_otlp_level {
    size_t start; /* where the level begins, to take it back */
    size_t mark;  /* for ltn_pb_close */
    uint32_t members;
    bool open;
};

struct ltn_otlp_metrics_writer {
    struct ltn_buf *out;
    struct ltn_otlp_level level[4]; /* resource, scope, metric, data */
    uint64_t points;                /* points written since begin */
    enum ltn_otlp_kind kind;        /* of the open metric */
};

/* Starts a request at the end of *out (borrowed until _end). */
void ltn_otlp_metrics_begin(struct ltn_otlp_metrics_writer *w, struct ltn_buf *out);

/* Begins a resource. 0, LTN_ERR_TOO_LARGE, -ENOMEM. */
int ltn_otlp_metrics_resource(struct ltn_otlp_metrics_writer *w,
                              struct ltn_otlp_attrs attrs) ltn_must_check;

/* Begins a scope of the resource; version may be NULL. Errors as above, -EINVAL without a resource.
 */
int ltn_otlp_metrics_scope(struct ltn_otlp_metrics_writer *w, const char *name,
                           const char *version) ltn_must_check;

/* Begins a metric of the scope: name, unit, description, kind (GAUGE, SUM, HISTOGRAM,
 * EXP_HISTOGRAM), temporality and monotonic are read. -EINVAL without a scope, a name or a kind. */
int ltn_otlp_metrics_metric(struct ltn_otlp_metrics_writer *w,
                            const struct ltn_otlp_metric *m) ltn_must_check;

/* Adds a point to the open metric; -EINVAL when its kind is another. Values of type ARRAY, KVLIST
 * and BYTES in attributes are written as given. */
int ltn_otlp_metrics_number(struct ltn_otlp_metrics_writer *w,
                            const struct ltn_otlp_number *p) ltn_must_check;
int ltn_otlp_metrics_histogram(struct ltn_otlp_metrics_writer *w,
                               const struct ltn_otlp_histogram *p) ltn_must_check;
int ltn_otlp_metrics_exp_histogram(struct ltn_otlp_metrics_writer *w,
                                   const struct ltn_otlp_exp_histogram *p) ltn_must_check;

/* Closes everything. *out then holds the request; it is unchanged when no point was written. Errors
 * of the buffer that the caller caused elsewhere are returned. */
int ltn_otlp_metrics_end(struct ltn_otlp_metrics_writer *w) ltn_must_check;

#endif /* LTN_OTLP_METRICS_WRITE_H */
