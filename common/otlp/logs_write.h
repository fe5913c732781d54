/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Builds an ExportLogsServiceRequest in a ltn_buf; the rules of metrics_write.h hold.
 *
 *   ltn_otlp_logs_begin -> { _resource -> { _scope -> { _record }}} -> ltn_otlp_logs_end
 */
#ifndef LTN_OTLP_LOGS_WRITE_H
#define LTN_OTLP_LOGS_WRITE_H

#include <stdint.h>

#include "base/attr.h"
#include "base/buf.h"
#include "otlp/metrics_write.h"
#include "otlp/model.h"

struct ltn_otlp_logs_writer {
    struct ltn_buf *out;
    struct ltn_otlp_level level[2]; /* resource, scope */
    uint64_t records;               /* records written since begin */
};

/* Starts a request at the end of *out (borrowed until _end). */
void ltn_otlp_logs_begin(struct ltn_otlp_logs_writer *w, struct ltn_buf *out);

/* 0, LTN_ERR_TOO_LARGE, -ENOMEM; -EINVAL when the level above is not open. */
int ltn_otlp_logs_resource(struct ltn_otlp_logs_writer *w,
                           struct ltn_otlp_attrs attrs) ltn_must_check;
int ltn_otlp_logs_scope(struct ltn_otlp_logs_writer *w, const char *name,
                        const char *version) ltn_must_check;
int ltn_otlp_logs_record(struct ltn_otlp_logs_writer *w,
                         const struct ltn_otlp_log *log) ltn_must_check;
int ltn_otlp_logs_end(struct ltn_otlp_logs_writer *w) ltn_must_check;

#endif /* LTN_OTLP_LOGS_WRITE_H */
