/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decodes an ExportMetricsServiceRequest, calling back once per data point. Fields may come in any
 * order; the last of a scalar wins, repeated messages merge, the last member of a oneof wins,
 * unknown fields are skipped. Nothing is allocated; time is linear in the input.
 *
 * An error may be found after callbacks were made: stage what they deliver, and drop it when the
 * call fails.
 */
#ifndef LTN_OTLP_METRICS_READ_H
#define LTN_OTLP_METRICS_READ_H

#include <stddef.h>

#include "base/attr.h"
#include "otlp/model.h"
#include "otlp/reader.h"

/* Callbacks return 0 to go on, or a negative code that ends the call and becomes its result. All
 * views die with the callback. A callback that is NULL means that its kind is not supported. */
struct ltn_otlp_metrics_sink {
    void *ctx;
    int (*on_number)(void *ctx, const struct ltn_otlp_group *g, const struct ltn_otlp_metric *m,
                     const struct ltn_otlp_number *p);
    int (*on_histogram)(void *ctx, const struct ltn_otlp_group *g, const struct ltn_otlp_metric *m,
                        const struct ltn_otlp_histogram *p);
    int (*on_exp_histogram)(void *ctx, const struct ltn_otlp_group *g,
                            const struct ltn_otlp_metric *m,
                            const struct ltn_otlp_exp_histogram *p);
    int (*on_summary)(void *ctx, const struct ltn_otlp_group *g, const struct ltn_otlp_metric *m,
                      const struct ltn_otlp_summary *p);
};

/* A look ahead for numbers whose attributes are known already. Called with the next n points of a
 * metric (at most LTN_OTLP_AHEAD), with the sink's ctx and the attributes as raw bytes only (attrs
 * empty), before on_number for any of them. Returns how many of them, from the first on, were
 * taken: on_number is called with all of the one behind, then this again with the rest. Negative:
 * an error. The raw bytes were not looked into: take a point only when they are those of one that
 * on_number had. */
#define LTN_OTLP_AHEAD 16
typedef int ltn_otlp_numbers_raw_fn(void *ctx, const struct ltn_otlp_group *g,
                                    const struct ltn_otlp_metric *m,
                                    const struct ltn_otlp_number *p, size_t n);
/* For all calls of ltn_otlp_metrics_read from now on; NULL: none. */
void ltn_otlp_metrics_raw(struct ltn_otlp_reader *r, ltn_otlp_numbers_raw_fn *fn);

/* Reads n bytes (an empty request is fine). *ret_counts is filled also on error. 0,
 * LTN_ERR_MALFORMED, LTN_ERR_DEPTH, LTN_ERR_COUNT, or what a callback returned. r is for one thread
 * at a time and may be used again at once. */
int ltn_otlp_metrics_read(struct ltn_otlp_reader *r, const void *data, size_t n,
                          const struct ltn_otlp_metrics_sink *sink,
                          struct ltn_otlp_counts *ret_counts) ltn_must_check;

#endif /* LTN_OTLP_METRICS_READ_H */
