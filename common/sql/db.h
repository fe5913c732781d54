/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SQLite behind a small face: opening with the right pragmas, cached statements with typed binds,
 * transactions, migrations, SQL functions, and statements of strangers under engine-enforced limits
 * (db_query.h). A connection and its statements belong to one thread at a time.
 *
 * Errors of the engine become LTN_ERR_DISK (full, I/O error, read-only), LTN_ERR_CORRUPT (damaged,
 * not a database), LTN_ERR_BUSY (locked), LTN_ERR_NOT_FOUND (cannot open), LTN_ERR_TOO_LARGE,
 * LTN_ERR_TIMEOUT (interrupted), LTN_ERR_FORBIDDEN (authorizer), -EEXIST (constraint), -ENOMEM,
 * LTN_ERR_MALFORMED (SQL wrong); the engine's text is in ltn_db_message().
 */
#ifndef LTN_SQL_DB_H
#define LTN_SQL_DB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/attr.h"
#include "base/err.h"

struct ltn_db;
struct ltn_stmt;

#define LTN_DB_PATH_BYTES 4096

/* What the engine appends to a database's name for the files beside it, while it is in use. */
#define LTN_DB_SIDES 2
extern const char *const ltn_db_sides[LTN_DB_SIDES];

struct ltn_db_opts {
    const char *path;         /* file, created with mode 0600 when missing, or ":memory:" */
    bool sync_full;           /* synchronous FULL: survives power loss; else NORMAL */
    unsigned busy_timeout_ms; /* 0: 5000 */
    uint64_t cache_bytes;     /* page cache; 0: 8 MiB */
    bool own;                 /* give the file to uid and gid (also the side files) */
    unsigned uid, gid;
};

/* Opens for reading and writing: WAL, foreign keys on, defensive, untrusted schema, incremental
 * auto-vacuum for new files. Missing parent folders are made. A symbolic link as last component is
 * refused (-ELOOP). Does not ask whose file it is: writers of files use sql/claim.h. info may be
 * NULL. Free with ltn_db_close. */
int ltn_db_open(const struct ltn_db_opts *opts, struct ltn_db **ret_db,
                struct ltn_errinfo *info) ltn_must_check;

/* Opens an existing file read-only (SQLITE_OPEN_READONLY); works also where the folder cannot be
 * written, as long as no unfinished write-ahead log lies beside the file. */
int ltn_db_open_readonly(const char *path, struct ltn_db **ret_db,
                         struct ltn_errinfo *info) ltn_must_check;

/* Makes a connection of ltn_db_open to a database in memory fit for ltn_db_query: from now on it
 * only reads, under the limits of a read-only one; the database cannot grow beyond max_bytes, and
 * large sorts go to a temporary file. */
int ltn_db_seal(struct ltn_db *db, uint64_t max_bytes) ltn_must_check;

/* Finalises all statements and closes. NULL is ignored. */
void ltn_db_close(struct ltn_db *db);

/* From now on the connection only reads, as if opened with ltn_db_open_readonly: for a database in
 * memory that was filled and now takes statements of strangers. */
int ltn_db_freeze(struct ltn_db *db) ltn_must_check;

/* Text of the connection's last error; valid until its next use. */
const char *ltn_db_message(const struct ltn_db *db);

/* Brings PRAGMA user_version up to n by running migrations[user_version] .. migrations[n - 1], each
 * with its version number in one transaction. LTN_ERR_UNSUPPORTED when the file is newer than n. */
int ltn_db_migrate(struct ltn_db *db, const char *const *migrations, size_t n,
                   struct ltn_errinfo *info) ltn_must_check;

/* Runs trusted SQL text of several statements, rows ignored. */
int ltn_db_exec(struct ltn_db *db, const char *sql) ltn_must_check;

/* Transactions do not nest. begin takes the write lock. rollback is fine outside a transaction. */
int ltn_db_begin(struct ltn_db *db) ltn_must_check;
int ltn_db_commit(struct ltn_db *db) ltn_must_check;
void ltn_db_rollback(struct ltn_db *db);
bool ltn_db_in_transaction(const struct ltn_db *db);

/* ---- statements ---- */

/* Statement for a text, from the connection's cache; reset and without bindings. Belongs to the
 * connection. sql is copied. The same text must not be in use twice at a time. */
int ltn_db_prepare(struct ltn_db *db, const char *sql, struct ltn_stmt **ret_stmt) ltn_must_check;

/* Binds parameter i (from 1). Texts and blobs are borrowed until the statement is reset. A failure
 * sticks and is reported by the next step. Unsigned 64-bit values keep their bits (above 2^63 they
 * read as negative in SQL). NULL text or blob binds NULL. */
void ltn_stmt_i64(struct ltn_stmt *s, int i, int64_t v);
void ltn_stmt_u64(struct ltn_stmt *s, int i, uint64_t v);
void ltn_stmt_f64(struct ltn_stmt *s, int i, double v); /* not finite: NULL */
void ltn_stmt_text(struct ltn_stmt *s, int i, const char *v);
void ltn_stmt_textn(struct ltn_stmt *s, int i, const char *v, size_t n);
void ltn_stmt_blob(struct ltn_stmt *s, int i, const void *v, size_t n);
void ltn_stmt_null(struct ltn_stmt *s, int i);

/* Next row: 1 when there is one, 0 at the end, negative on error. At the end and on error the
 * statement is reset. */
int ltn_stmt_step(struct ltn_stmt *s) ltn_must_check;

/* Steps to the end and resets; for statements without rows. 0 or negative. */
int ltn_stmt_run(struct ltn_stmt *s) ltn_must_check;

/* Gives the statement back before its end. NULL is ignored. */
void ltn_stmt_reset(struct ltn_stmt *s);

/* Columns of the present row, from 0; borrowed until the next step or reset. _col_text is "" and
 * _col_blob NULL for NULL. */
bool ltn_stmt_col_null(struct ltn_stmt *s, int col);
int64_t ltn_stmt_col_i64(struct ltn_stmt *s, int col);
uint64_t ltn_stmt_col_u64(struct ltn_stmt *s, int col);
double ltn_stmt_col_f64(struct ltn_stmt *s, int col);
const char *ltn_stmt_col_text(struct ltn_stmt *s, int col);
const void *ltn_stmt_col_blob(struct ltn_stmt *s, int col, size_t *ret_n);

/* Row id of the last INSERT, rows changed by the last statement. */
int64_t ltn_db_last_rowid(const struct ltn_db *db);
int64_t ltn_db_changes(const struct ltn_db *db);

/* One integer from one row of trusted SQL (a PRAGMA, a count); NOT_FOUND without a row. */
int ltn_db_get_i64(struct ltn_db *db, const char *sql, int64_t *ret) ltn_must_check;

/* ---- upkeep ---- */

/* Moves the write-ahead log into the file; truncate also cuts the log to nothing. LTN_ERR_BUSY when
 * a reader holds it back. */
int ltn_db_checkpoint(struct ltn_db *db, bool truncate) ltn_must_check;

struct ltn_db_size {
    uint64_t page_bytes;
    uint64_t pages;
    uint64_t free_pages;
    uint64_t file_bytes; /* file and write-ahead log on disk */
};
int ltn_db_size(struct ltn_db *db, struct ltn_db_size *ret) ltn_must_check;

/* True when the file no longer stands under its name (deleted, renamed, replaced): what is written
 * now nobody can find. */
bool ltn_db_moved(struct ltn_db *db);

/* A cheap look (a stat, two small reads) at whether what is written can still be found and read:
 * LTN_ERR_NOT_FOUND when moved as above, LTN_ERR_CORRUPT when the file or its write-ahead log no
 * longer begins as it must. Outside a transaction. */
int ltn_db_look(struct ltn_db *db) ltn_must_check;

/* Gives up to that many free pages back to the file system. */
int ltn_db_vacuum_some(struct ltn_db *db, uint64_t pages) ltn_must_check;

/* ---- functions ---- */

enum ltn_sql_type { LTN_SQL_NULL, LTN_SQL_I64, LTN_SQL_F64, LTN_SQL_TEXT, LTN_SQL_BLOB };

struct ltn_sql_value {
    enum ltn_sql_type type;
    int64_t i;
    double f;
    const void *p; /* text (terminated) or blob; borrowed */
    size_t n;      /* bytes */
};

/* A function of the arguments, deterministic and without side effects. *ret is NULL at the start;
 * what ret->p points to is copied before fn is called again. */
typedef void (*ltn_sql_scalar_fn)(const struct ltn_sql_value *args, size_t n,
                                  struct ltn_sql_value *ret);
int ltn_db_add_function(struct ltn_db *db, const char *name, int args,
                        ltn_sql_scalar_fn fn) ltn_must_check;

/* An aggregate over state_bytes of cleared memory. finish gets state NULL for an empty group, must
 * free what step allocated, and fills *ret as above. */
struct ltn_sql_aggregate {
    const char *name;
    int args;
    size_t state_bytes;
    void (*step)(void *state, const struct ltn_sql_value *args, size_t n);
    void (*finish)(void *state, struct ltn_sql_value *ret);
    void (*release)(void *p); /* called with ret->p after it was copied; may be NULL */
};
/* *a must live as long as the connection. */
int ltn_db_add_aggregate(struct ltn_db *db, const struct ltn_sql_aggregate *a) ltn_must_check;

#endif /* LTN_SQL_DB_H */
