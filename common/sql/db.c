/* SPDX-License-Identifier: Apache-2.0 */
/* Statements, transactions, upkeep and functions of an open connection. */
#include "sql/db.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "sql/internal.h"

static void free_statement(void *p)
{
    struct ltn_stmt *s = p;
    (void)sqlite3_finalize(s->handle);
    free(s);
}

void ltn_db_close(struct ltn_db *db)
{
    if (db == NULL) {
        return;
    }
    ltn_map_done(&db->statements, free_statement);
    if (db->handle != NULL && !ltn_sql_log_is_whole(db)) {
        (void)sqlite3_db_config(db->handle, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    }
    (void)sqlite3_close(db->handle);
    free(db);
}

const char *ltn_db_message(const struct ltn_db *db)
{
    return sqlite3_errmsg(db->handle);
}

int ltn_db_exec(struct ltn_db *db, const char *sql)
{
    return ltn_sql_error(sqlite3_exec(db->handle, sql, NULL, NULL, NULL));
}

int ltn_db_begin(struct ltn_db *db)
{
    return ltn_db_exec(db, "BEGIN IMMEDIATE");
}

int ltn_db_commit(struct ltn_db *db)
{
    int rc = ltn_db_exec(db, "COMMIT");
    db->log_written |= rc == 0;
    return rc;
}

bool ltn_db_in_transaction(const struct ltn_db *db)
{
    return sqlite3_get_autocommit(db->handle) == 0;
}

void ltn_db_rollback(struct ltn_db *db)
{
    /* Some failures (full disk, I/O) have rolled back on their own. */
    if (ltn_db_in_transaction(db)) {
        (void)sqlite3_exec(db->handle, "ROLLBACK", NULL, NULL, NULL);
    }
}

/* ---- statements ---- */

int ltn_db_prepare(struct ltn_db *db, const char *sql, struct ltn_stmt **ret_stmt)
{
    size_t len = strlen(sql);
    struct ltn_stmt *s = ltn_map_get(&db->statements, sql, len);
    if (s != NULL) {
        (void)sqlite3_reset(s->handle);
        (void)sqlite3_clear_bindings(s->handle);
        s->error = 0;
        *ret_stmt = s;
        return 0;
    }
    s = calloc(1, sizeof(*s));
    if (s == NULL) {
        return -ENOMEM;
    }
    s->db = db;
    int rc = ltn_sql_error(sqlite3_prepare_v3(db->handle, sql, (int)len + 1,
                                              SQLITE_PREPARE_PERSISTENT, &s->handle, NULL));
    if (rc == 0 && s->handle == NULL) {
        rc = LTN_ERR_MALFORMED; /* nothing but comments */
    }
    if (rc == 0) {
        rc = ltn_map_put(&db->statements, sql, len, s);
    }
    if (rc < 0) {
        free_statement(s);
        return rc;
    }
    *ret_stmt = s;
    return 0;
}

static void note(struct ltn_stmt *s, int engine_rc)
{
    if (engine_rc != SQLITE_OK && s->error == 0) {
        s->error = ltn_sql_error(engine_rc);
    }
}

void ltn_stmt_i64(struct ltn_stmt *s, int i, int64_t v)
{
    note(s, sqlite3_bind_int64(s->handle, i, v));
}

void ltn_stmt_u64(struct ltn_stmt *s, int i, uint64_t v)
{
    note(s, sqlite3_bind_int64(s->handle, i, (int64_t)v));
}

void ltn_stmt_f64(struct ltn_stmt *s, int i, double v)
{
    note(s, isfinite(v) ? sqlite3_bind_double(s->handle, i, v) : sqlite3_bind_null(s->handle, i));
}

void ltn_stmt_textn(struct ltn_stmt *s, int i, const char *v, size_t n)
{
    note(s, v == NULL ? sqlite3_bind_null(s->handle, i)
                      : sqlite3_bind_text64(s->handle, i, v, n, SQLITE_STATIC, SQLITE_UTF8));
}

void ltn_stmt_text(struct ltn_stmt *s, int i, const char *v)
{
    ltn_stmt_textn(s, i, v, v != NULL ? strlen(v) : 0);
}

void ltn_stmt_blob(struct ltn_stmt *s, int i, const void *v, size_t n)
{
    note(s, v == NULL ? sqlite3_bind_null(s->handle, i)
                      : sqlite3_bind_blob64(s->handle, i, v, n, SQLITE_STATIC));
}

void ltn_stmt_null(struct ltn_stmt *s, int i)
{
    note(s, sqlite3_bind_null(s->handle, i));
}

int ltn_stmt_step(struct ltn_stmt *s)
{
    if (s->error != 0) {
        int rc = s->error;
        ltn_stmt_reset(s);
        return rc;
    }
    int engine_rc = sqlite3_step(s->handle);
    if (engine_rc == SQLITE_ROW) {
        return 1;
    }
    int rc = ltn_sql_error(engine_rc);
    ltn_stmt_reset(s);
    return rc;
}

int ltn_stmt_run(struct ltn_stmt *s)
{
    int rc = ltn_stmt_step(s);
    if (rc == 1) {
        ltn_stmt_reset(s);
        rc = 0;
    }
    return rc;
}

void ltn_stmt_reset(struct ltn_stmt *s)
{
    if (s != NULL) {
        (void)sqlite3_reset(s->handle);
        (void)sqlite3_clear_bindings(s->handle);
        s->error = 0;
    }
}

bool ltn_stmt_col_null(struct ltn_stmt *s, int col)
{
    return sqlite3_column_type(s->handle, col) == SQLITE_NULL;
}

int64_t ltn_stmt_col_i64(struct ltn_stmt *s, int col)
{
    return sqlite3_column_int64(s->handle, col);
}

uint64_t ltn_stmt_col_u64(struct ltn_stmt *s, int col)
{
    return (uint64_t)sqlite3_column_int64(s->handle, col);
}

double ltn_stmt_col_f64(struct ltn_stmt *s, int col)
{
    return sqlite3_column_double(s->handle, col);
}

const char *ltn_stmt_col_text(struct ltn_stmt *s, int col)
{
    const unsigned char *text = sqlite3_column_text(s->handle, col);
    return text != NULL ? (const char *)text : "";
}

const void *ltn_stmt_col_blob(struct ltn_stmt *s, int col, size_t *ret_n)
{
    const void *p = sqlite3_column_blob(s->handle, col);
    *ret_n = (size_t)sqlite3_column_bytes(s->handle, col);
    return p;
}

int64_t ltn_db_last_rowid(const struct ltn_db *db)
{
    return sqlite3_last_insert_rowid(db->handle);
}

int64_t ltn_db_changes(const struct ltn_db *db)
{
    return sqlite3_changes64(db->handle);
}

int ltn_db_get_i64(struct ltn_db *db, const char *sql, int64_t *ret)
{
    sqlite3_stmt *s = NULL;
    int rc = ltn_sql_error(sqlite3_prepare_v2(db->handle, sql, -1, &s, NULL));
    if (rc == 0) {
        int engine_rc = sqlite3_step(s);
        if (engine_rc == SQLITE_ROW) {
            *ret = sqlite3_column_int64(s, 0);
        } else {
            rc = engine_rc == SQLITE_DONE ? LTN_ERR_NOT_FOUND : ltn_sql_error(engine_rc);
        }
    }
    (void)sqlite3_finalize(s);
    return rc;
}

/* ---- upkeep ---- */

int ltn_db_checkpoint(struct ltn_db *db, bool truncate)
{
    if (!ltn_sql_log_is_whole(db)) {
        return LTN_ERR_CORRUPT;
    }
    return ltn_sql_error(sqlite3_wal_checkpoint_v2(
        db->handle, NULL, truncate ? SQLITE_CHECKPOINT_TRUNCATE : SQLITE_CHECKPOINT_PASSIVE, NULL,
        NULL));
}

static uint64_t size_on_disk(const char *path, const char *suffix)
{
    char name[LTN_DB_PATH_BYTES + 8];
    struct stat st;
    (void)snprintf(name, sizeof(name), "%s%s", path, suffix);
    return stat(name, &st) == 0 ? (uint64_t)st.st_size : 0;
}

int ltn_db_size(struct ltn_db *db, struct ltn_db_size *ret)
{
    int64_t page_bytes;
    int64_t pages;
    int64_t free_pages;
    int rc = ltn_db_get_i64(db, "PRAGMA page_size", &page_bytes);
    if (rc == 0) {
        rc = ltn_db_get_i64(db, "PRAGMA page_count", &pages);
    }
    if (rc == 0) {
        rc = ltn_db_get_i64(db, "PRAGMA freelist_count", &free_pages);
    }
    if (rc < 0) {
        return rc;
    }
    *ret = (struct ltn_db_size){.page_bytes = (uint64_t)page_bytes,
                                .pages = (uint64_t)pages,
                                .free_pages = (uint64_t)free_pages};
    ret->file_bytes = db->path[0] != '\0'
                          ? size_on_disk(db->path, "") + size_on_disk(db->path, "-wal")
                          : ret->page_bytes * ret->pages;
    return 0;
}

bool ltn_db_moved(struct ltn_db *db)
{
    int moved = 0;
    return db->path[0] != '\0' &&
           sqlite3_file_control(db->handle, "main", SQLITE_FCNTL_HAS_MOVED, &moved) == SQLITE_OK &&
           moved != 0;
}

int ltn_db_vacuum_some(struct ltn_db *db, uint64_t pages)
{
    char text[64];
    (void)snprintf(text, sizeof(text), "PRAGMA incremental_vacuum(%llu)",
                   (unsigned long long)pages);
    return ltn_db_exec(db, text);
}

/* ---- functions ---- */

/* Arguments a registered function may have. */
#define MAX_ARGS 8

static void from_engine(sqlite3_value *v, struct ltn_sql_value *ret)
{
    *ret = (struct ltn_sql_value){.type = LTN_SQL_NULL};
    switch (sqlite3_value_type(v)) {
    case SQLITE_INTEGER:
        ret->type = LTN_SQL_I64;
        ret->i = sqlite3_value_int64(v);
        ret->f = (double)ret->i;
        break;
    case SQLITE_FLOAT:
        ret->type = LTN_SQL_F64;
        ret->f = sqlite3_value_double(v);
        break;
    case SQLITE_TEXT:
        ret->type = LTN_SQL_TEXT;
        ret->p = sqlite3_value_text(v);
        ret->n = (size_t)sqlite3_value_bytes(v);
        break;
    case SQLITE_BLOB:
        ret->type = LTN_SQL_BLOB;
        ret->p = sqlite3_value_blob(v);
        ret->n = (size_t)sqlite3_value_bytes(v);
        break;
    default:
        break;
    }
}

static void give_result(sqlite3_context *ctx, const struct ltn_sql_value *v)
{
    switch (v->type) {
    case LTN_SQL_I64:
        sqlite3_result_int64(ctx, v->i);
        break;
    case LTN_SQL_F64:
        sqlite3_result_double(ctx, v->f);
        break;
    case LTN_SQL_TEXT:
        sqlite3_result_text64(ctx, v->p, v->n, SQLITE_TRANSIENT, SQLITE_UTF8);
        break;
    case LTN_SQL_BLOB:
        sqlite3_result_blob64(ctx, v->p, v->n, SQLITE_TRANSIENT);
        break;
    case LTN_SQL_NULL:
        sqlite3_result_null(ctx);
        break;
    }
}

static size_t take_args(int n, sqlite3_value **from, struct ltn_sql_value to[MAX_ARGS])
{
    size_t count = n < MAX_ARGS ? (size_t)n : MAX_ARGS;
    for (size_t i = 0; i < count; i++) {
        from_engine(from[i], &to[i]);
    }
    return count;
}

/* The engine hands back an object pointer; ISO C has no cast from there to a function. */
struct scalar {
    ltn_sql_scalar_fn fn;
};

static void call_scalar(sqlite3_context *ctx, int n, sqlite3_value **argv)
{
    const struct scalar *scalar = sqlite3_user_data(ctx);
    struct ltn_sql_value args[MAX_ARGS];
    struct ltn_sql_value result = {.type = LTN_SQL_NULL};
    size_t count = take_args(n, argv, args);
    scalar->fn(args, count, &result);
    give_result(ctx, &result);
}

#define FUNCTION_FLAGS (SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_INNOCUOUS)

int ltn_db_add_function(struct ltn_db *db, const char *name, int args, ltn_sql_scalar_fn fn)
{
    struct scalar *scalar = malloc(sizeof(*scalar));
    if (scalar == NULL) {
        return -ENOMEM;
    }
    scalar->fn = fn;
    /* On failure the engine calls free itself. */
    return ltn_sql_error(sqlite3_create_function_v2(db->handle, name, args, FUNCTION_FLAGS, scalar,
                                                    call_scalar, NULL, NULL, free));
}

/* sqlite3_user_data is not const-correct, the aggregate behind it is never written. */
static const struct ltn_sql_aggregate *aggregate_of(sqlite3_context *ctx)
{
    return sqlite3_user_data(ctx);
}

static void call_step(sqlite3_context *ctx, int n, sqlite3_value **argv)
{
    const struct ltn_sql_aggregate *a = aggregate_of(ctx);
    struct ltn_sql_value args[MAX_ARGS];
    void *state = sqlite3_aggregate_context(ctx, (int)a->state_bytes);
    if (state == NULL) {
        sqlite3_result_error_nomem(ctx);
        return;
    }
    size_t count = take_args(n, argv, args);
    a->step(state, args, count);
}

static void call_finish(sqlite3_context *ctx)
{
    const struct ltn_sql_aggregate *a = aggregate_of(ctx);
    struct ltn_sql_value result = {.type = LTN_SQL_NULL};
    a->finish(sqlite3_aggregate_context(ctx, 0), &result);
    give_result(ctx, &result);
    if (a->release != NULL && result.p != NULL) {
        a->release((void *)(uintptr_t)result.p);
    }
}

int ltn_db_add_aggregate(struct ltn_db *db, const struct ltn_sql_aggregate *a)
{
    return ltn_sql_error(sqlite3_create_function_v2(db->handle, a->name, a->args, FUNCTION_FLAGS,
                                                    (void *)(uintptr_t)a, NULL, call_step,
                                                    call_finish, NULL));
}
