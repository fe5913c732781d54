/* SPDX-License-Identifier: Apache-2.0 */
/* The answers of the local API, made from the record. docs/node-api.md describes their shapes. A
 * reader belongs to one thread at a time. */
#ifndef LTN_SERVE_REPORTS_H
#define LTN_SERVE_REPORTS_H

#include <stdint.h>

#include "base/json.h"
#include "record/reader.h"

struct ltn_report_ctx {
    const char *node; /* name of this node; "" takes it from the record */
    uint64_t since_ns;
    uint64_t limit; /* rows; 0: 1000 */
};

/* Each writes the members of the object that is open in j. 0 or an error of ltn_record_query with
 * its message; then what was written is to be thrown away. */
typedef int (*ltn_report_fn)(struct ltn_record_reader *r, const struct ltn_report_ctx *c,
                             struct ltn_json *j, struct ltn_errinfo *info);

int ltn_report_overview(struct ltn_record_reader *r, const struct ltn_report_ctx *c,
                        struct ltn_json *j, struct ltn_errinfo *info) ltn_must_check;
int ltn_report_ops(struct ltn_record_reader *r, const struct ltn_report_ctx *c, struct ltn_json *j,
                   struct ltn_errinfo *info) ltn_must_check;
int ltn_report_incidents(struct ltn_record_reader *r, const struct ltn_report_ctx *c,
                         struct ltn_json *j, struct ltn_errinfo *info) ltn_must_check;
int ltn_report_snapshots(struct ltn_record_reader *r, const struct ltn_report_ctx *c,
                         struct ltn_json *j, struct ltn_errinfo *info) ltn_must_check;
int ltn_report_collectives(struct ltn_record_reader *r, const struct ltn_report_ctx *c,
                           struct ltn_json *j, struct ltn_errinfo *info) ltn_must_check;

/* What is measured and what is not; needs no record. */
void ltn_report_capabilities(struct ltn_json *j);

/* Name of the node that the record is of, "" when it holds none. */
void ltn_report_node(struct ltn_record_reader *r, char *out, size_t size);

#endif /* LTN_SERVE_REPORTS_H */
