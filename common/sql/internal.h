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
    bool log_written;             /* a commit was made through this connection */
    char path[LTN_DB_PATH_BYTES]; /* "" for a database in memory */
};

struct ltn_stmt {
    sqlite3_stmt *handle;
    struct ltn_db *db;
    int error; /* of a bind, reported by the next step */
};

/* An engine code (primary or extended) as one of ours; 0 for OK, ROW and DONE. */
int ltn_sql_error(int engine_rc);

/* -ENOSPC and the like as LTN_ERR_DISK, other codes as they are. */
int ltn_sql_disk_error(int rc);

/* Makes the folders above opts->path; out gets the path with its folder resolved. */
int ltn_sql_find_place(const struct ltn_db_opts *opts, char out[LTN_DB_PATH_BYTES]) ltn_must_check;

/* ltn_db_open that also sees to the application id; 0: leaves it. */
int ltn_sql_open(const struct ltn_db_opts *opts, uint32_t application_id, struct ltn_db **ret_db,
                 struct ltn_errinfo *info) ltn_must_check;

/* False when a write-ahead log that was written here no longer begins as it must: moving its pages
 * into the file would damage that too. */
bool ltn_sql_log_is_whole(struct ltn_db *db);

/* A reader for a look at a file that may be foreign. */
int ltn_sql_open_unchanged(const char *path, struct ltn_db **ret_db) ltn_must_check;

#endif /* LTN_SQL_INTERNAL_H */
