/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One statement of a stranger (user, API, MCP client) on a read-only connection. The engine
 * enforces that it only reads: the file is open read-only and an authorizer refuses everything but
 * SELECT. Time, rows and bytes are bounded.
 */
#ifndef LTN_SQL_DB_QUERY_H
#define LTN_SQL_DB_QUERY_H

#include <stdatomic.h>

#include "sql/db.h"

struct ltn_db_limits {
    uint64_t timeout_ns; /* 0: 5 s */
    uint64_t max_rows;   /* 0: 10000 */
    uint64_t max_bytes;  /* of all values handed over; 0: 16 MiB */
    /* When it becomes true, from whatever thread, the statement ends as if its time were up. NULL:
     * cannot be cancelled. */
    const atomic_bool *cancelled;
};

/* Callbacks get borrowed values and return 0 to go on; anything else ends the query and is its
 * result. on_columns (may be NULL) comes once, also when no row follows. */
struct ltn_db_sink {
    void *ctx;
    int (*on_columns)(void *ctx, const char *const *names, size_t n);
    int (*on_row)(void *ctx, const struct ltn_sql_value *values, size_t n);
};

struct ltn_db_query_result {
    uint64_t rows;
    uint64_t bytes;
    bool truncated; /* ended at max_rows or max_bytes; what was handed over is valid */
};

/* Runs exactly one statement (comments and a final semicolon are fine). Only for connections of
 * ltn_db_open_readonly, or after ltn_db_seal. limits may be NULL. LTN_ERR_FORBIDDEN when it would
 * do more than read, LTN_ERR_TIMEOUT after timeout_ns, LTN_ERR_MALFORMED for wrong SQL (message in
 * info), LTN_ERR_TOO_LARGE for a value or statement beyond the engine's limits. */
int ltn_db_query(struct ltn_db *db, const char *sql, const struct ltn_db_limits *limits,
                 const struct ltn_db_sink *sink, struct ltn_db_query_result *ret,
                 struct ltn_errinfo *info) ltn_must_check;

#endif /* LTN_SQL_DB_QUERY_H */
