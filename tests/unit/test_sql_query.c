/* SPDX-License-Identifier: Apache-2.0 */
/* Statements of strangers: only reading, within limits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "sql/db_query.h"

static char path[] = "/tmp/ltn-sqlq-XXXXXX";
static struct ltn_db *writer;
static struct ltn_db *reader;

static int setup(void **state)
{
    (void)state;
    int fd = mkstemp(path);
    (void)close(fd);
    struct ltn_errinfo info = {0};
    if (ltn_db_open(&(struct ltn_db_opts){.path = path}, &writer, &info) != 0 ||
        ltn_db_exec(writer, "CREATE TABLE t (a, b); WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL "
                            "SELECT i + 1 FROM n LIMIT 100) INSERT INTO t SELECT i, 'x' FROM n;"
                            "CREATE VIEW v AS SELECT a, b FROM t") != 0 ||
        ltn_db_open_readonly(path, &reader, &info) != 0) {
        print_error("%s\n", info.msg);
        return -1;
    }
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    ltn_db_close(reader);
    ltn_db_close(writer);
    return unlink(path);
}

struct got {
    size_t rows;
    size_t columns;
    char first[64];
    int64_t last;
};

static int on_columns(void *ctx, const char *const *names, size_t n)
{
    struct got *g = ctx;
    g->columns = n;
    (void)snprintf(g->first, sizeof(g->first), "%s", names[0]);
    return 0;
}

static int on_row(void *ctx, const struct ltn_sql_value *values, size_t n)
{
    struct got *g = ctx;
    assert_int_equal(n, g->columns);
    g->rows++;
    g->last = values[0].i;
    return g->rows == 1000000 ? -1 : 0;
}

static int ask(const char *sql, const struct ltn_db_limits *l, struct got *g,
               struct ltn_db_query_result *ret)
{
    struct ltn_errinfo info = {0};
    *g = (struct got){0};
    struct ltn_db_sink sink = {g, on_columns, on_row};
    int rc = ltn_db_query(reader, sql, l, &sink, ret, &info);
    assert_true(rc == 0 || info.msg[0] != '\0');
    return rc;
}

static void reading_works(void **state)
{
    (void)state;
    struct got g;
    struct ltn_db_query_result r;
    assert_int_equal(
        ask("SELECT a AS num, b FROM v WHERE a > 90 ORDER BY a -- end\n;", NULL, &g, &r), 0);
    assert_int_equal(g.rows, 10);
    assert_int_equal(g.last, 100);
    assert_string_equal(g.first, "num");
    assert_int_equal(r.rows, 10);
    assert_false(r.truncated);
    assert_int_equal(ask("SELECT * FROM t WHERE 0", NULL, &g, &r), 0);
    assert_int_equal(g.columns, 2);
    assert_int_equal(ask("WITH x AS (SELECT 1) SELECT * FROM x", NULL, &g, &r), 0);
    assert_int_equal(ask("PRAGMA table_info(t)", NULL, &g, &r), 0);
    assert_int_equal(ask("EXPLAIN QUERY PLAN SELECT * FROM t", NULL, &g, &r), 0);
    /* What the writer commits is seen. */
    assert_int_equal(ltn_db_exec(writer, "INSERT INTO t VALUES (101, 'x')"), 0);
    assert_int_equal(ask("SELECT count(*) FROM t", NULL, &g, &r), 0);
    assert_int_equal(g.last, 101);
}

static void everything_else_is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "DELETE FROM t",
        "WITH x AS (SELECT 1) DELETE\nFROM t",
        "INSERT INTO t VALUES (1, 2)",
        "UPDATE t SET a = 1",
        "DROP TABLE t",
        "DROP VIEW v",
        "CREATE TABLE u (x)",
        "CREATE TEMP TABLE u (x)",
        "CREATE TEMP VIEW u AS SELECT 1",
        "ATTACH ':memory:' AS m",
        "ATTACH '/etc/passwd' AS m",
        "DETACH main",
        "PRAGMA query_only=0",
        "PRAGMA writable_schema=1",
        "PRAGMA journal_mode=DELETE",
        "PRAGMA user_version",
        "PRAGMA wal_checkpoint",
        "SELECT * FROM pragma_user_version",
        "VACUUM",
        "VACUUM INTO '/tmp/ltn-stolen.db'",
        "REINDEX",
        "ANALYZE",
        "BEGIN",
        "BEGIN IMMEDIATE",
        "SAVEPOINT x",
        "SELECT load_extension('x')",
        "SELECT 1; DELETE FROM t",
        "SELECT 1; SELECT 2",
        "CREATE TRIGGER tr AFTER INSERT ON t BEGIN SELECT 1; END",
        "CREATE VIRTUAL TABLE f USING fts5(x)",
        "REPLACE INTO t VALUES (1, 2)",
    };
    for (size_t i = 0; i < LTN_ARRAY_SIZE(bad); i++) {
        struct got g;
        struct ltn_db_query_result r;
        int rc = ask(bad[i], NULL, &g, &r);
        if (rc != LTN_ERR_FORBIDDEN || g.rows != 0) {
            fail_msg("%s: rc %d, %zu rows", bad[i], rc, g.rows);
        }
    }
    int64_t n;
    assert_int_equal(ltn_db_get_i64(writer, "SELECT count(*) FROM t", &n), 0);
    assert_int_equal(n, 101);
    assert_int_not_equal(access("/tmp/ltn-stolen.db", F_OK), 0);
}

static void wrong_sql_says_what(void **state)
{
    (void)state;
    struct got g;
    struct ltn_db_query_result r;
    assert_int_equal(ask("SELEC 1", NULL, &g, &r), LTN_ERR_MALFORMED);
    assert_int_equal(ask("SELECT nothere FROM t", NULL, &g, &r), LTN_ERR_MALFORMED);
    assert_int_equal(ask("  -- nothing\n", NULL, &g, &r), LTN_ERR_MALFORMED);
    assert_int_equal(ask("", NULL, &g, &r), LTN_ERR_MALFORMED);
}

static void limits_hold(void **state)
{
    (void)state;
    struct got g;
    struct ltn_db_query_result r;
    assert_int_equal(ask("SELECT a FROM t", &(struct ltn_db_limits){.max_rows = 7}, &g, &r), 0);
    assert_int_equal(g.rows, 7);
    assert_true(r.truncated);
    assert_int_equal(ask("SELECT a FROM t LIMIT 7", &(struct ltn_db_limits){.max_rows = 7}, &g, &r),
                     0);
    assert_false(r.truncated);
    assert_int_equal(
        ask("SELECT a, zeroblob(1000) FROM t", &(struct ltn_db_limits){.max_bytes = 5500}, &g, &r),
        0);
    assert_int_equal(g.rows, 5);
    assert_true(r.truncated);
    const char *endless =
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n";
    assert_int_equal(
        ask(endless, &(struct ltn_db_limits){.timeout_ns = 20 * LTN_NS_PER_MS}, &g, &r),
        LTN_ERR_TIMEOUT);
    assert_int_equal(ask("SELECT zeroblob(1000000000)", NULL, &g, &r), LTN_ERR_TOO_LARGE);
    assert_int_equal(ask("SELECT randomblob(20000000)", NULL, &g, &r), LTN_ERR_TOO_LARGE);
    size_t n = 200000;
    char *deep = malloc(n + 16);
    assert_non_null(deep);
    size_t at = (size_t)snprintf(deep, 16, "SELECT ");
    memset(deep + at, '(', n);
    deep[at + n] = '\0';
    assert_true(ask(deep, NULL, &g, &r) < 0);
    free(deep);
}

static void the_receiver_may_end_it(void **state)
{
    (void)state;
    struct ltn_db_query_result r;
    struct got g = {.columns = 1, .rows = 999999};
    struct ltn_db_sink sink = {&g, NULL, on_row};
    assert_int_equal(ltn_db_query(reader, "SELECT a FROM t", NULL, &sink, &r, NULL), -1);
    assert_int_equal(ltn_db_query(writer, "SELECT a FROM t", NULL, &sink, &r, NULL),
                     LTN_ERR_INTERNAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reading_works),           cmocka_unit_test(everything_else_is_refused),
        cmocka_unit_test(wrong_sql_says_what),     cmocka_unit_test(limits_hold),
        cmocka_unit_test(the_receiver_may_end_it),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
