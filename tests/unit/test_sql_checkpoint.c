/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "db_dir.h"
#include "sql/checkpoint.h"

#define MIB ((off_t)1 << 20)

static char log_path[80];

static int make_log_dir(void **state)
{
    if (make_dir(state) != 0) {
        return -1;
    }
    (void)snprintf(log_path, sizeof(log_path), "%s-wal", path);
    return 0;
}

static struct ltn_db *open_db(const char *name)
{
    struct ltn_db *db = NULL;
    struct ltn_errinfo info = {0};
    if (ltn_db_open(&(struct ltn_db_opts){.path = name}, &db, &info) != 0) {
        fail_msg("open: %s", info.msg);
    }
    assert_int_equal(ltn_db_exec(db, "CREATE TABLE IF NOT EXISTS t (id INTEGER PRIMARY KEY, b)"),
                     0);
    return db;
}

/* One commit of n times 64 KiB. */
static void put(struct ltn_db *db, int n)
{
    assert_int_equal(ltn_db_begin(db), 0);
    for (int i = 0; i < n; i++) {
        assert_int_equal(ltn_db_exec(db, "INSERT INTO t (b) VALUES (randomblob(65536))"), 0);
    }
    assert_int_equal(ltn_db_commit(db), 0);
}

static off_t size_of(const char *name)
{
    struct stat st;
    return stat(name, &st) == 0 ? st.st_size : 0;
}

static int64_t rows(struct ltn_db *db)
{
    int64_t n = -1;
    assert_int_equal(ltn_db_get_i64(db, "SELECT count(*) FROM t WHERE length(b) = 65536", &n), 0);
    return n;
}

/* The log reaches the file though no further commit comes; what is in it is whole. */
static void the_thread_moves_the_log(void **state)
{
    (void)state;
    const struct timespec moment = {0, 5000000};
    struct ltn_db *db = open_db(path);
    struct ltn_db_checkpointer *c = ltn_db_checkpointer_new(db);
    assert_non_null(c);
    put(db, 1);
    assert_true(size_of(path) < MIB);
    put(db, 128);
    for (int i = 0; i < 2000 && size_of(path) < 8 * MIB; i++) {
        (void)nanosleep(&moment, NULL);
    }
    assert_true(size_of(path) >= 8 * MIB);
    assert_int_equal(rows(db), 129);
    ltn_db_checkpointer_free(c, db);
    ltn_db_close(db);
    assert_int_equal(access(log_path, F_OK), -1); /* the last connection went, and cleaned up */
    db = open_db(path);
    assert_int_equal(rows(db), 129);
    ltn_db_close(db);
}

/* Commits without a pause: the log begins anew at its ceiling. */
static void the_log_is_bounded(void **state)
{
    (void)state;
    struct ltn_db *db = open_db(path);
    struct ltn_db_checkpointer *c = ltn_db_checkpointer_new(db);
    assert_non_null(c);
    off_t largest = 0;
    for (int i = 0; i < 320; i++) { /* 160 MiB */
        put(db, 8);
        off_t now = size_of(log_path);
        largest = now > largest ? now : largest;
    }
    assert_true(largest < 96 * MIB);
    ltn_db_checkpointer_free(c, db);
    assert_int_equal(rows(db), 2560);
    ltn_db_close(db);
}

/* Afterwards the engine makes its own again. */
static void the_engine_takes_over(void **state)
{
    (void)state;
    struct ltn_db *db = open_db(path);
    struct ltn_db_checkpointer *c = ltn_db_checkpointer_new(db);
    assert_non_null(c);
    ltn_db_checkpointer_free(c, db);
    put(db, 128);
    assert_true(size_of(path) >= 8 * MIB);
    ltn_db_close(db);
    ltn_db_checkpointer_free(NULL, NULL);
}

static void memory_has_none(void **state)
{
    (void)state;
    struct ltn_db *db = open_db(":memory:");
    assert_null(ltn_db_checkpointer_new(db));
    ltn_db_close(db);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_thread_moves_the_log, make_log_dir, drop_dir),
        cmocka_unit_test_setup_teardown(the_log_is_bounded, make_log_dir, drop_dir),
        cmocka_unit_test_setup_teardown(the_engine_takes_over, make_log_dir, drop_dir),
        cmocka_unit_test(memory_has_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
