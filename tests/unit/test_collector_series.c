/* SPDX-License-Identifier: Apache-2.0 */
/* Series in the collector's database: back after the end, bounded in size, made up for after
 * failures. */
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmocka_all.h"
#include "db_dir.h"

#include "base/clock.h"
#include "sql/db.h"
#include "store/store.h"

/* ---- a store with its series ---- */

struct both {
    struct ltn_series *series;
    struct ltn_store *store;
};

static struct both open_both(void)
{
    struct both b = {.series = ltn_series_new(&(struct ltn_series_opts){.max_per_family = 100000})};
    const struct ltn_store_opts o = {
        .path = path, .series = b.series, .queue_items = 64, .queue_bytes = 1 << 20};
    struct ltn_errinfo info = {0, ""};
    if (ltn_store_open(&o, &b.store, &info) != 0)
        fail_msg("%s", info.msg);
    assert_int_equal(ltn_store_load_series(b.store), 0);
    assert_int_equal(ltn_store_start(b.store), 0);
    return b;
}

static void close_both(struct both *b)
{
    ltn_store_free(b->store);
    ltn_series_free(b->series);
}

struct waiter {
    struct ltn_store_item base;
    sem_t done;
    int rc;
};

static void on_done(struct ltn_store_item *base, int rc)
{
    struct waiter *w = (struct waiter *)base;
    w->rc = rc;
    (void)sem_post(&w->done);
}

static int commit(const struct both *b)
{
    struct waiter w = {.base = {NULL, on_done}};
    (void)sem_init(&w.done, 0, 0);
    int rc = ltn_store_put(b->store, &w.base, 1);
    if (rc == 0) {
        (void)sem_wait(&w.done);
        rc = w.rc;
    }
    (void)sem_destroy(&w.done);
    return rc;
}

static void add(const struct both *b, unsigned i, uint64_t t)
{
    char labels[32];
    (void)snprintf(labels, sizeof(labels), "i=\"%u\"", i);
    const struct ltn_series_point p = {
        .desc = {.family = "sum_total", .type = LTN_PROM_COUNTER, .labels = labels},
        .value = 1,
        .time_ns = t,
        .start_ns = t - 1,
        .flags = LTN_SERIES_DELTA | LTN_SERIES_MONOTONIC};
    assert_int_equal(ltn_series_set(b->series, &p, ltn_now_mono_ns()), 0);
}

static void shows(const struct both *b, unsigned i, unsigned value)
{
    char line[64];
    struct ltn_buf out;
    struct ltn_prom p;
    (void)snprintf(line, sizeof(line), "sum_total{i=\"%u\"} %u\n", i, value);
    ltn_buf_init(&out, 1 << 24);
    ltn_prom_begin(&p, &out, LTN_PROM_TEXT);
    ltn_series_write(b->series, &p);
    if (strstr(ltn_buf_str(&out), line) == NULL)
        fail_msg("no %s", line);
    ltn_buf_done(&out);
}

static int64_t ask(const char *sql)
{
    struct ltn_db *db = NULL;
    struct ltn_errinfo info;
    int64_t v = -1;
    assert_int_equal(ltn_db_open_readonly(path, &db, &info), 0);
    assert_int_equal(ltn_db_get_i64(db, sql, &v), 0);
    ltn_db_close(db);
    return v;
}

/* ---- tests ---- */

static void sums_go_on_where_they_were(void **state)
{
    (void)state;
    for (unsigned life = 0; life < 4; life++) {
        struct both b = open_both();
        if (life > 0)
            shows(&b, 3, 5 * life);
        for (unsigned k = 0; k < 5; k++) {
            uint64_t t = 10 + 5 * life + k;
            for (unsigned i = 0; i < 20; i++) {
                add(&b, i, t);
                add(&b, i, t); /* told again */
                add(&b, i, t - 1);
            }
            assert_int_equal(commit(&b), 0);
        }
        close_both(&b);
    }
    struct both b = open_both();
    for (unsigned i = 0; i < 20; i++)
        shows(&b, i, 20);
    close_both(&b);
}

static void the_log_stays_bounded(void **state)
{
    (void)state;
    struct both b = open_both();
    uint64_t written = 0;
    for (uint64_t t = 1; t <= 1500; t++) {
        for (unsigned i = 0; i < 2000; i++)
            add(&b, i, t);
        assert_int_equal(commit(&b), 0);
        written += (uint64_t)2000 * 7;
    }
    int64_t bytes = ask("SELECT sum(length(body)) FROM series_log");
    assert_true(written > (uint64_t)20 << 20);
    assert_true(bytes < 10 << 20);
    close_both(&b);
    b = open_both();
    for (unsigned i = 0; i < 2000; i += 100)
        shows(&b, i, 1500);
    /* It goes on like that after the start. */
    for (uint64_t t = 1501; t <= 2000; t++) {
        for (unsigned i = 0; i < 400; i++)
            add(&b, i, t);
        assert_int_equal(commit(&b), 0);
    }
    assert_true(ask("SELECT sum(length(body)) FROM series_log") < 10 << 20);
    close_both(&b);
    b = open_both();
    shows(&b, 7, 2000);
    close_both(&b);
}

static void a_deleted_file_gets_everything_anew(void **state)
{
    (void)state;
    struct both b = open_both();
    for (uint64_t t = 1; t <= 3; t++) {
        for (unsigned i = 0; i < 10; i++)
            add(&b, i, t);
        assert_int_equal(commit(&b), 0);
    }
    assert_int_equal(unlink(path), 0);
    add(&b, 0, 4);
    int rc = commit(&b);
    for (int i = 0; i < 100 && rc != 0; i++) {
        (void)usleep(50000);
        rc = commit(&b);
    }
    assert_int_equal(rc, 0);
    close_both(&b);
    b = open_both();
    shows(&b, 0, 4);
    shows(&b, 9, 3);
    close_both(&b);
}

static void exec_sql(const char *sql)
{
    struct ltn_db *db = NULL;
    struct ltn_errinfo info;
    const struct ltn_db_opts o = {.path = path};
    assert_int_equal(ltn_db_open(&o, &db, &info), 0);
    assert_int_equal(ltn_db_exec(db, sql), 0);
    ltn_db_close(db);
}

static void damage_is_passed_over(void **state)
{
    (void)state;
    struct ltn_series_stats st;
    struct both b = open_both();
    for (uint64_t t = 1; t <= 5; t++) {
        for (unsigned i = 0; i < 10; i++)
            add(&b, i, t);
        assert_int_equal(commit(&b), 0);
    }
    close_both(&b);
    exec_sql("UPDATE series_log SET body = zeroblob(length(body)) WHERE seq = 3");
    b = open_both();
    ltn_series_stats(b.series, &st);
    assert_int_equal(st.damaged, 1);
    for (unsigned i = 0; i < 10; i++)
        shows(&b, i, 5); /* later records have whole sums */
    add(&b, 0, 6);
    assert_int_equal(commit(&b), 0);
    close_both(&b);
    b = open_both();
    shows(&b, 0, 6);
    close_both(&b);
}

static void one_commit_is_a_blob_not_a_row_a_value(void **state)
{
    (void)state;
    struct both b = open_both();
    for (unsigned i = 0; i < 5000; i++)
        add(&b, i, 1);
    assert_int_equal(commit(&b), 0);
    int64_t rows = ask("SELECT count(*) FROM series_log");
    assert_true(rows >= 1 && rows <= 2);
    for (uint64_t t = 2; t < 100; t++)
        add(&b, 1, t); /* many values, of which the last is written */
    assert_int_equal(commit(&b), 0);
    assert_int_equal(ask("SELECT count(*) FROM series_log"), rows + 1);
    assert_true(ask("SELECT length(body) FROM series_log ORDER BY seq DESC LIMIT 1") < 100);
    assert_int_equal(commit(&b), 0); /* nothing changed */
    assert_int_equal(ask("SELECT count(*) FROM series_log"), rows + 1);
    close_both(&b);
}

#define IN_A_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_dir, drop_dir)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_A_FOLDER(sums_go_on_where_they_were),
        IN_A_FOLDER(the_log_stays_bounded),
        IN_A_FOLDER(a_deleted_file_gets_everything_anew),
        IN_A_FOLDER(damage_is_passed_over),
        IN_A_FOLDER(one_commit_is_a_blob_not_a_row_a_value),
    };
    return LTN_RUN_TESTS(tests);
}
