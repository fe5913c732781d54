/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the encoder share. */
#ifndef LTN_PUSH_ENCODE_INT_H
#define LTN_PUSH_ENCODE_INT_H

#include <stdatomic.h>

#include "base/map.h"
#include "otlp/metrics_write.h"
#include "otlp/model.h"
#include "push/encode.h"
#include "stats/exphist.h"

#define LTN_PUSH_MAX_ATTRS  16
#define LTN_PUSH_TEXT_BYTES 256

struct ltn_push_encoder {
    char instance_id[64];
    char node[LTN_PUSH_TEXT_BYTES];
    char cluster[LTN_PUSH_TEXT_BYTES];
    char version[64];
    uint64_t started_ns;
    struct ltn_map first_seen; /* {pid, start} -> struct */
    uint64_t swept_ns;
    struct ltn_buf request;
    uint64_t hist_storage[LTN_EXPHIST_FULL_BUCKETS];
    _Atomic uint64_t points_dropped;
};

/* One window on its way out. After a request is full the open levels are begun again in the next.
 */
struct ltn_encoding {
    struct ltn_push_encoder *e;
    const struct ltn_window *window;
    uint64_t sequence;
    ltn_record_emit_fn emit;
    void *emit_ctx;
    struct ltn_otlp_metrics_writer writer;
    struct ltn_otlp_attr resource[LTN_PUSH_MAX_ATTRS];
    size_t resource_n;
    struct ltn_otlp_metric metric;
    bool metric_open;
    char command[LTN_PUSH_TEXT_BYTES];
    char job[LTN_PUSH_TEXT_BYTES];
};

/* Attributes that every resource has; returns their number. */
size_t ltn_push_base_attrs(const struct ltn_push_encoder *e, struct ltn_otlp_attr *to);

/* Begins a resource with en->resource, then metrics and points. 0 or negative. */
int ltn_push_resource(struct ltn_encoding *en) ltn_must_check;
int ltn_push_metric(struct ltn_encoding *en, const char *name, const char *unit,
                    enum ltn_otlp_kind kind) ltn_must_check;
int ltn_push_number(struct ltn_encoding *en, const struct ltn_otlp_number *p) ltn_must_check;
int ltn_push_exp_histogram(struct ltn_encoding *en,
                           const struct ltn_otlp_exp_histogram *p) ltn_must_check;

/* The node's and a process's resource with all of its points. */
int ltn_push_node(struct ltn_encoding *en) ltn_must_check;
int ltn_push_proc(struct ltn_encoding *en, const struct ltn_proc_window *p) ltn_must_check;

/* Building blocks of metrics: the times and attributes of a point, one point, one metric with one
 * point. attrs is borrowed until the point is put. */
struct ltn_otlp_point ltn_push_point(const struct ltn_encoding *en, uint64_t start_ns,
                                     const struct ltn_otlp_attr *attrs, size_t n);
int ltn_push_int(struct ltn_encoding *en, const struct ltn_otlp_point *p,
                 uint64_t v) ltn_must_check;
int ltn_push_double(struct ltn_encoding *en, const struct ltn_otlp_point *p,
                    double v) ltn_must_check;

/* What the host does: the state of the node, its disks, and sums over the traced processes. */
int ltn_push_host(struct ltn_encoding *en) ltn_must_check;

/* When the process was first seen; the present window when it is new. */
uint64_t ltn_push_first_seen(struct ltn_push_encoder *e, const struct ltn_window *w,
                             const struct ltn_proc_window *p);

#endif /* LTN_PUSH_ENCODE_INT_H */
