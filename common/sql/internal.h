/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of common/sql share. */
#ifndef LTN_SQL_INTERNAL_H
#define LTN_SQL_INTERNAL_H

#include <sqlite3.h>

#include "base/map.h"
#include "sql/db.h"

/* Statements kept per connection; more are an error of the program. */
#define LTN_DB_MAX_STATEMENTS 512

struct ltn_db {
    sqlite3 *handle;
    struct ltn_map statements; /* SQL text -> struct ltn_stmt */
    bool readonly;
    char path[LTN_DB_PATH_BYTES]; /* "" for a database in memory */
};

struct ltn_stmt {
    sqlite3_stmt *handle;
    struct ltn_db *db;
    int error; /* of a bind, reported by the next step */
};

/* An engine code (primary or extended) as one of ours; 0 for OK, ROW and DONE. */
int ltn_sql_error(int engine_rc);

#endif /* LTN_SQL_INTERNAL_H */
