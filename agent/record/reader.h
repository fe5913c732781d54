/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading the record: for the command line, the API and MCP. Statements of users run read-only
 * under limits (common/sql/db_query.h), over the views of docs/internals/record.md, with these
 * functions besides SQLite's own: hist_merge(hist) (aggregate), hist_quantile(hist, q) in ns,
 * hist_count(hist). A reader belongs to one thread at a time.
 */
#ifndef LTN_RECORD_READER_H
#define LTN_RECORD_READER_H

#include "sql/db_query.h"

struct ltn_record_reader;

/* Opens the database read-only; it may be written at the same time. Errors of
 * ltn_db_open_readonly; LTN_ERR_UNSUPPORTED for a file that is no record of ours or newer. */
int ltn_record_reader_open(const char *path, struct ltn_record_reader **ret_reader,
                           struct ltn_errinfo *info) ltn_must_check;
void ltn_record_reader_close(struct ltn_record_reader *r);

/* One statement of a user; see ltn_db_query. */
int ltn_record_query(struct ltn_record_reader *r, const char *sql,
                     const struct ltn_db_limits *limits, const struct ltn_db_sink *sink,
                     struct ltn_db_query_result *ret, struct ltn_errinfo *info) ltn_must_check;

/* The connection, for trusted statements of our own. */
struct ltn_db *ltn_record_reader_db(struct ltn_record_reader *r);

#endif /* LTN_RECORD_READER_H */
