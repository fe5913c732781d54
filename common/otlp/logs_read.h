/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decodes an ExportLogsServiceRequest, calling back once per log record; the rules of
 * metrics_read.h hold.
 */
#ifndef LTN_OTLP_LOGS_READ_H
#define LTN_OTLP_LOGS_READ_H

#include <stddef.h>

#include "base/attr.h"
#include "otlp/model.h"
#include "otlp/reader.h"

struct ltn_otlp_logs_sink {
    void *ctx;
    int (*on_log)(void *ctx, const struct ltn_otlp_group *g, const struct ltn_otlp_log *log);
};

/* As ltn_otlp_metrics_read. */
int ltn_otlp_logs_read(struct ltn_otlp_reader *r, const void *data, size_t n,
                       const struct ltn_otlp_logs_sink *sink,
                       struct ltn_otlp_counts *ret_counts) ltn_must_check;

#endif /* LTN_OTLP_LOGS_READ_H */
