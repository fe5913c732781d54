/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "drop_tree.h"
#include "sql/db.h"

static char dir[] = "/tmp/ltn-sql-XXXXXX";
static char path[128];

static int make_dir(void **state)
{
    (void)state;
    (void)snprintf(dir, sizeof(dir), "/tmp/ltn-sql-XXXXXX");
    if (mkdtemp(dir) == NULL) {
        return -1;
    }
    (void)snprintf(path, sizeof(path), "%s/sub/t.db", dir);
    return 0;
}

static int drop_dir(void **state)
{
    (void)state;
    return ltn_drop_tree(dir);
}

static struct ltn_db *open_db(void)
{
    struct ltn_db *db = NULL;
    struct ltn_errinfo info = {0};
    int rc = ltn_db_open(&(struct ltn_db_opts){.path = path}, &db, &info);
    if (rc != 0) {
        fail_msg("open: %d %s", rc, info.msg);
    }
    return db;
}

static void pragmas_are_set(void **state)
{
    (void)state;
    struct ltn_db *db = open_db();
    static const struct {
        const char *sql;
        int64_t want;
    } pragmas[] = {{"PRAGMA synchronous", 1},
                   {"PRAGMA foreign_keys", 1},
                   {"PRAGMA auto_vacuum", 2},
                   {"PRAGMA trusted_schema", 0},
                   {"PRAGMA cache_size", -8192},
                   {"PRAGMA busy_timeout", 5000},
                   {"SELECT count(*) FROM pragma_journal_mode WHERE journal_mode = 'wal'", 1}};
    for (size_t i = 0; i < LTN_ARRAY_SIZE(pragmas); i++) {
        int64_t got = -1;
        assert_int_equal(ltn_db_get_i64(db, pragmas[i].sql, &got), 0);
        if (got != pragmas[i].want) {
            fail_msg("%s is %lld", pragmas[i].sql, (long long)got);
        }
    }
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    ltn_db_close(db);
}

static void values_keep_their_types(void **state)
{
    (void)state;
    struct ltn_db *db = open_db();
    struct ltn_stmt *s;
    assert_int_equal(ltn_db_exec(db, "CREATE TABLE t (a, b, c, d, e)"), 0);
    const char *insert = "INSERT INTO t VALUES (?, ?, ?, ?, ?)";
    assert_int_equal(ltn_db_prepare(db, insert, &s), 0);
    ltn_stmt_u64(s, 1, UINT64_MAX);
    ltn_stmt_f64(s, 2, 2.5);
    ltn_stmt_text(s, 3, "text");
    ltn_stmt_blob(s, 4, "\0\1", 2);
    ltn_stmt_text(s, 5, NULL);
    assert_int_equal(ltn_stmt_run(s), 0);
    assert_int_equal(ltn_db_last_rowid(db), 1);
    struct ltn_stmt *again;
    assert_int_equal(ltn_db_prepare(db, insert, &again), 0);
    assert_ptr_equal(s, again);
    ltn_stmt_i64(again, 9, 1);
    assert_int_equal(ltn_stmt_run(again), LTN_ERR_MALFORMED);
    assert_int_equal(ltn_db_prepare(db, "SELECT a, b, c, d, e FROM t", &s), 0);
    assert_int_equal(ltn_stmt_step(s), 1);
    assert_true(ltn_stmt_col_u64(s, 0) == UINT64_MAX);
    assert_true(ltn_stmt_col_f64(s, 1) > 2.4 && ltn_stmt_col_f64(s, 1) < 2.6);
    assert_string_equal(ltn_stmt_col_text(s, 2), "text");
    size_t n;
    assert_memory_equal(ltn_stmt_col_blob(s, 3, &n), "\0\1", 2);
    assert_int_equal(n, 2);
    assert_true(ltn_stmt_col_null(s, 4));
    assert_int_equal(ltn_stmt_step(s), 0);
    assert_int_equal(ltn_db_prepare(db, "SELECT nope FROM t", &s), LTN_ERR_MALFORMED);
    assert_non_null(strstr(ltn_db_message(db), "nope"));
    ltn_db_close(db);
}

static void constraint_and_rollback(void **state)
{
    (void)state;
    struct ltn_db *db = open_db();
    int64_t n = -1;
    assert_int_equal(ltn_db_exec(db, "CREATE TABLE t (a PRIMARY KEY)"), 0);
    assert_int_equal(ltn_db_begin(db), 0);
    assert_int_equal(ltn_db_exec(db, "INSERT INTO t VALUES (1)"), 0);
    assert_int_equal(ltn_db_exec(db, "INSERT INTO t VALUES (1)"), -EEXIST);
    assert_true(ltn_db_in_transaction(db));
    ltn_db_rollback(db);
    ltn_db_rollback(db);
    assert_int_equal(ltn_db_get_i64(db, "SELECT count(*) FROM t", &n), 0);
    assert_int_equal(n, 0);
    assert_int_equal(ltn_db_get_i64(db, "SELECT a FROM t", &n), LTN_ERR_NOT_FOUND);
    ltn_db_close(db);
}

static void a_locked_file_is_busy(void **state)
{
    (void)state;
    struct ltn_db *a = open_db();
    struct ltn_db *b = NULL;
    assert_int_equal(
        ltn_db_open(&(struct ltn_db_opts){.path = path, .busy_timeout_ms = 1}, &b, NULL), 0);
    assert_int_equal(ltn_db_begin(a), 0);
    assert_int_equal(ltn_db_begin(b), LTN_ERR_BUSY);
    assert_int_equal(ltn_db_commit(a), 0);
    assert_int_equal(ltn_db_begin(b), 0);
    ltn_db_close(b);
    ltn_db_close(a);
}

static void migrations_run_once_and_whole(void **state)
{
    (void)state;
    static const char *const steps[] = {
        "CREATE TABLE a (x); INSERT INTO a VALUES (1);", "INSERT INTO a VALUES (2);",
        "INSERT INTO a VALUES (3); INSERT INTO nowhere VALUES (1);"};
    struct ltn_db *db = open_db();
    struct ltn_errinfo info;
    int64_t n;
    assert_int_equal(ltn_db_migrate(db, steps, 1, &info), 0);
    assert_int_equal(ltn_db_migrate(db, steps, 2, &info), 0);
    assert_int_equal(ltn_db_migrate(db, steps, 2, &info), 0);
    assert_int_equal(ltn_db_get_i64(db, "SELECT count(*) FROM a", &n), 0);
    assert_int_equal(n, 2);
    assert_true(ltn_db_migrate(db, steps, 3, &info) < 0);
    assert_non_null(strstr(info.msg, "nowhere"));
    assert_int_equal(ltn_db_get_i64(db, "SELECT count(*) FROM a", &n), 0);
    assert_int_equal(n, 2);
    assert_int_equal(ltn_db_get_i64(db, "PRAGMA user_version", &n), 0);
    assert_int_equal(n, 2);
    assert_int_equal(ltn_db_migrate(db, steps, 1, &info), LTN_ERR_UNSUPPORTED);
    ltn_db_close(db);
}

static void twice(const struct ltn_sql_value *args, size_t n, struct ltn_sql_value *ret)
{
    assert_int_equal(n, 1);
    ret->type = LTN_SQL_I64;
    ret->i = args[0].i * 2;
}

static void product_step(void *state, const struct ltn_sql_value *args, size_t n)
{
    int64_t *p = state;
    (void)n;
    *p = (*p == 0 ? 1 : *p) * args[0].i;
}

static void product_finish(void *state, struct ltn_sql_value *ret)
{
    if (state != NULL) {
        ret->type = LTN_SQL_I64;
        ret->i = *(int64_t *)state;
    }
}

static void functions_of_ours(void **state)
{
    (void)state;
    static const struct ltn_sql_aggregate product = {
        "product", 1, sizeof(int64_t), product_step, product_finish, NULL};
    struct ltn_db *db = open_db();
    int64_t n;
    assert_int_equal(ltn_db_add_function(db, "twice", 1, twice), 0);
    assert_int_equal(ltn_db_add_aggregate(db, &product), 0);
    assert_int_equal(
        ltn_db_get_i64(db, "SELECT twice(product(x)) FROM (SELECT 3 x UNION SELECT 7)", &n), 0);
    assert_int_equal(n, 42);
    assert_int_equal(
        ltn_db_get_i64(db, "SELECT product(x) IS NULL FROM (SELECT 3 x) WHERE x = 4", &n), 0);
    assert_int_equal(n, 1);
    ltn_db_close(db);
}

static void freed_pages_go_back(void **state)
{
    (void)state;
    struct ltn_db *db = open_db();
    struct ltn_db_size before;
    struct ltn_db_size after;
    assert_int_equal(ltn_db_exec(db, "CREATE TABLE t (a)"), 0);
    assert_int_equal(ltn_db_exec(db,
                                 "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n "
                                 "LIMIT 1000) INSERT INTO t SELECT zeroblob(3000) FROM n"),
                     0);
    assert_int_equal(ltn_db_checkpoint(db, true), 0);
    assert_int_equal(ltn_db_size(db, &before), 0);
    assert_true(before.file_bytes >= 3000000);
    assert_int_equal(ltn_db_exec(db, "DELETE FROM t"), 0);
    assert_int_equal(ltn_db_size(db, &after), 0);
    assert_true(after.free_pages > 500);
    assert_int_equal(ltn_db_vacuum_some(db, 100000), 0);
    assert_int_equal(ltn_db_checkpoint(db, true), 0);
    assert_int_equal(ltn_db_size(db, &after), 0);
    assert_int_equal(after.free_pages, 0);
    assert_true(after.file_bytes < 100000);
    ltn_db_close(db);
}

static void a_link_is_refused(void **state)
{
    (void)state;
    ltn_db_close(open_db());
    char link_path[160];
    (void)snprintf(link_path, sizeof(link_path), "%s/link.db", dir);
    assert_int_equal(symlink(path, link_path), 0);
    struct ltn_db *db = NULL;
    assert_int_equal(ltn_db_open(&(struct ltn_db_opts){.path = link_path}, &db, NULL), -ELOOP);
    /* A link to the folder is fine. */
    char folder[160];
    (void)snprintf(folder, sizeof(folder), "%s/folder", dir);
    assert_int_equal(symlink("sub", folder), 0);
    (void)snprintf(link_path, sizeof(link_path), "%s/folder/t.db", dir);
    assert_int_equal(ltn_db_open(&(struct ltn_db_opts){.path = link_path}, &db, NULL), 0);
    ltn_db_close(db);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(pragmas_are_set, make_dir, drop_dir),
        cmocka_unit_test_setup_teardown(values_keep_their_types, make_dir, drop_dir),
        cmocka_unit_test_setup_teardown(constraint_and_rollback, make_dir, drop_dir),
        cmocka_unit_test_setup_teardown(a_locked_file_is_busy, make_dir, drop_dir),
        cmocka_unit_test_setup_teardown(migrations_run_once_and_whole, make_dir, drop_dir),
        cmocka_unit_test_setup_teardown(functions_of_ours, make_dir, drop_dir),
        cmocka_unit_test_setup_teardown(freed_pages_go_back, make_dir, drop_dir),
        cmocka_unit_test_setup_teardown(a_link_is_refused, make_dir, drop_dir),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
