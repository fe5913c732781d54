/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of a statement kept in memory, under the limits of the statement, and their three forms:
 * JSON, CSV and a table for people. One thread at a time.
 */
#ifndef LTN_SERVE_ROWS_H
#define LTN_SERVE_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/json.h"
#include "record/reader.h"

struct ltn_rows {
    struct ltn_arena arena;
    const char **names;
    size_t column_count;
    struct ltn_sql_value *cells; /* row_count * column_count; texts lie in the arena */
    size_t row_count;
    size_t row_capacity;
    bool truncated; /* there were more rows than the limits allow */
};

/* Prepares an empty set that may hold max_bytes of names and values. */
void ltn_rows_init(struct ltn_rows *r, size_t max_bytes);
void ltn_rows_done(struct ltn_rows *r);

/* Sets the columns, once; adds a row of column_count values (copied). 0, -ENOMEM or
 * LTN_ERR_TOO_LARGE at the ceiling. */
int ltn_rows_columns(struct ltn_rows *r, const char *const *names, size_t n) ltn_must_check;
int ltn_rows_add(struct ltn_rows *r, const struct ltn_sql_value *values) ltn_must_check;

/* Runs a statement and keeps what it gives; errors of ltn_record_query. r must be empty. */
int ltn_rows_query(struct ltn_rows *r, struct ltn_db *db, const char *sql,
                   const struct ltn_db_limits *limits, struct ltn_errinfo *info) ltn_must_check;

/* Index of a column, or -1; the value in a row by column name: NULL, 0 or "" when absent. */
int ltn_rows_find(const struct ltn_rows *r, const char *name);
const struct ltn_sql_value *ltn_rows_cell(const struct ltn_rows *r, size_t row, const char *name);
const char *ltn_rows_text(const struct ltn_rows *r, size_t row, const char *name);
double ltn_rows_number(const struct ltn_rows *r, size_t row, const char *name);
int64_t ltn_rows_i64(const struct ltn_rows *r, size_t row, const char *name);

/* Members "columns" and "rows" (arrays in column order), "row_count" and "truncated" of the object
 * that is open in j. Blobs are lower-case hexadecimal text. */
void ltn_rows_json(const struct ltn_rows *r, struct ltn_json *j);

/* An array of objects, one a row, keyed by column. A column "evidence" or "drops" that holds valid
 * JSON is written as JSON. */
void ltn_rows_objects(const struct ltn_rows *r, struct ltn_json *j);

/* RFC 4180, with a line of names. */
void ltn_rows_csv(const struct ltn_rows *r, struct ltn_buf *out);

/* One line of values that are not in the set; r gives the number of columns. */
void ltn_rows_csv_row(const struct ltn_rows *r, const struct ltn_sql_value *values,
                      struct ltn_buf *out);

/* Columns padded to their widest value (at most 60 characters); control characters become '?'. */
void ltn_rows_table(const struct ltn_rows *r, struct ltn_buf *out);

#endif /* LTN_SERVE_ROWS_H */
