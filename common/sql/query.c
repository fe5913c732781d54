/* SPDX-License-Identifier: Apache-2.0 */
#include "sql/db_query.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "sql/internal.h"

#define DEFAULT_TIMEOUT_NS (5 * LTN_NS_PER_S)
#define DEFAULT_ROWS       10000
#define DEFAULT_BYTES      (16ULL << 20)
/* Engine instructions between two looks at the clock. */
#define OPS_PER_LOOK 1000
/* Columns of a result; the reader's SQLITE_LIMIT_COLUMN is the same. */
#define MAX_COLUMNS 200

struct run {
    sqlite3_stmt *stmt;
    uint64_t deadline_ns;
    uint64_t max_rows;
    uint64_t max_bytes;
    const atomic_bool *cancelled;
    bool forbidden;
};

static bool harmless_pragma(const char *name)
{
    static const char *const names[] = {"table_info", "table_xinfo", "table_list", "index_list",
                                        "index_info"};
    for (size_t i = 0; i < LTN_ARRAY_SIZE(names); i++) {
        if (name != NULL && sqlite3_stricmp(name, names[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* Functions that reach out of the statement, or that exist to be misused. */
static bool harmful_function(const char *name)
{
    static const char *const names[] = {"load_extension", "readfile", "writefile", "edit",
                                        "fts3_tokenizer"};
    for (size_t i = 0; i < LTN_ARRAY_SIZE(names); i++) {
        if (name != NULL && sqlite3_stricmp(name, names[i]) == 0) {
            return true;
        }
    }
    return false;
}

static int authorize(void *arg, int action, const char *a, const char *b, const char *db,
                     const char *trigger)
{
    struct run *run = arg;
    (void)db;
    (void)trigger;
    bool allowed = action == SQLITE_SELECT || action == SQLITE_READ || action == SQLITE_RECURSIVE ||
                   (action == SQLITE_FUNCTION && !harmful_function(b)) ||
                   (action == SQLITE_PRAGMA && harmless_pragma(a));
    if (!allowed) {
        run->forbidden = true;
        return SQLITE_DENY;
    }
    return SQLITE_OK;
}

static int look_at_clock(void *arg)
{
    const struct run *run = arg;
    return ltn_now_mono_ns() >= run->deadline_ns ||
           (run->cancelled != NULL && atomic_load(run->cancelled));
}

static int fail(struct ltn_db *db, const struct run *run, int rc, struct ltn_errinfo *info)
{
    if (run->forbidden) {
        return ltn_errinfo_set(info, LTN_ERR_FORBIDDEN,
                               "only statements that read are allowed (%s)",
                               sqlite3_errmsg(db->handle));
    }
    if (rc == LTN_ERR_TIMEOUT) {
        return ltn_errinfo_set(info, rc, "the statement took too long and was ended");
    }
    return ltn_errinfo_set(info, rc, "%s", sqlite3_errmsg(db->handle));
}

/* True when nothing but white space, semicolons and comments is left. */
static bool is_blank(sqlite3 *handle, const char *tail)
{
    while (*tail == ' ' || *tail == '\t' || *tail == '\n' || *tail == '\r' || *tail == ';') {
        tail++;
    }
    if (*tail == '\0') {
        return true;
    }
    sqlite3_stmt *more = NULL;
    int rc = sqlite3_prepare_v2(handle, tail, -1, &more, NULL);
    (void)sqlite3_finalize(more);
    return rc == SQLITE_OK && more == NULL;
}

static int prepare(struct ltn_db *db, struct run *run, const char *sql, struct ltn_errinfo *info)
{
    const char *tail = "";
    int rc = ltn_sql_error(sqlite3_prepare_v2(db->handle, sql, -1, &run->stmt, &tail));
    if (rc < 0) {
        return fail(db, run, rc, info);
    }
    if (run->stmt == NULL) {
        return ltn_errinfo_set(info, LTN_ERR_MALFORMED, "no statement given");
    }
    if (!is_blank(db->handle, tail)) {
        return ltn_errinfo_set(info, LTN_ERR_FORBIDDEN, "only one statement at a time is allowed");
    }
    if (sqlite3_stmt_readonly(run->stmt) == 0) {
        return ltn_errinfo_set(info, LTN_ERR_FORBIDDEN, "only statements that read are allowed");
    }
    if (sqlite3_column_count(run->stmt) == 0) {
        return ltn_errinfo_set(info, LTN_ERR_FORBIDDEN, "the statement gives no rows");
    }
    return 0;
}

static int send_columns(const struct run *run, const struct ltn_db_sink *sink, int n)
{
    const char *names[MAX_COLUMNS];
    if (sink->on_columns == NULL) {
        return 0;
    }
    for (int i = 0; i < n; i++) {
        const char *name = sqlite3_column_name(run->stmt, i);
        if (name == NULL) {
            return -ENOMEM;
        }
        names[i] = name;
    }
    return sink->on_columns(sink->ctx, names, (size_t)n);
}

static void read_column(sqlite3_stmt *stmt, int i, struct ltn_sql_value *ret)
{
    *ret = (struct ltn_sql_value){.type = LTN_SQL_NULL};
    switch (sqlite3_column_type(stmt, i)) {
    case SQLITE_INTEGER:
        ret->type = LTN_SQL_I64;
        ret->i = sqlite3_column_int64(stmt, i);
        ret->f = (double)ret->i;
        break;
    case SQLITE_FLOAT:
        ret->type = LTN_SQL_F64;
        ret->f = sqlite3_column_double(stmt, i);
        break;
    case SQLITE_TEXT:
        ret->type = LTN_SQL_TEXT;
        ret->p = sqlite3_column_text(stmt, i);
        ret->n = (size_t)sqlite3_column_bytes(stmt, i);
        break;
    case SQLITE_BLOB:
        ret->type = LTN_SQL_BLOB;
        ret->p = sqlite3_column_blob(stmt, i);
        ret->n = (size_t)sqlite3_column_bytes(stmt, i);
        break;
    default:
        break;
    }
}

static uint64_t read_row(const struct run *run, struct ltn_sql_value *values, int n)
{
    uint64_t bytes = 0;
    for (int i = 0; i < n; i++) {
        read_column(run->stmt, i, &values[i]);
        bytes += sizeof(int64_t) + values[i].n;
    }
    return bytes;
}

static int deliver(struct ltn_db *db, struct run *run, const struct ltn_db_sink *sink,
                   struct ltn_db_query_result *ret, struct ltn_errinfo *info)
{
    struct ltn_sql_value values[MAX_COLUMNS];
    int n = sqlite3_column_count(run->stmt);
    if (n > MAX_COLUMNS) {
        return ltn_errinfo_set(info, LTN_ERR_TOO_LARGE, "more than %d columns", MAX_COLUMNS);
    }
    int rc = send_columns(run, sink, n);
    while (rc == 0) {
        int engine_rc = sqlite3_step(run->stmt);
        if (engine_rc == SQLITE_DONE) {
            return 0;
        }
        if (engine_rc != SQLITE_ROW) {
            return fail(db, run, ltn_sql_error(engine_rc), info);
        }
        uint64_t bytes = read_row(run, values, n);
        if (ret->rows == run->max_rows || bytes > run->max_bytes - ret->bytes) {
            ret->truncated = true;
            return 0;
        }
        ret->rows++;
        ret->bytes += bytes;
        rc = sink->on_row(sink->ctx, values, (size_t)n);
    }
    return ltn_errinfo_set(info, rc, "ended by its receiver: %s", ltn_err_str(rc));
}

int ltn_db_query(struct ltn_db *db, const char *sql, const struct ltn_db_limits *limits,
                 const struct ltn_db_sink *sink, struct ltn_db_query_result *ret,
                 struct ltn_errinfo *info)
{
    static const struct ltn_db_limits none;
    const struct ltn_db_limits *l = limits != NULL ? limits : &none;
    if (!db->readonly) {
        return ltn_errinfo_set(info, LTN_ERR_INTERNAL, "not a read-only connection");
    }
    struct run run = {
        .deadline_ns =
            ltn_now_mono_ns() + (l->timeout_ns != 0 ? l->timeout_ns : DEFAULT_TIMEOUT_NS),
        .max_rows = l->max_rows != 0 ? l->max_rows : DEFAULT_ROWS,
        .max_bytes = l->max_bytes != 0 ? l->max_bytes : DEFAULT_BYTES,
        .cancelled = l->cancelled,
    };
    *ret = (struct ltn_db_query_result){0};
    (void)sqlite3_set_authorizer(db->handle, authorize, &run);
    sqlite3_progress_handler(db->handle, OPS_PER_LOOK, look_at_clock, &run);
    int rc = prepare(db, &run, sql, info);
    if (rc == 0) {
        rc = deliver(db, &run, sink, ret, info);
    }
    (void)sqlite3_finalize(run.stmt);
    sqlite3_progress_handler(db->handle, 0, NULL, NULL);
    (void)sqlite3_set_authorizer(db->handle, NULL, NULL);
    return rc;
}
