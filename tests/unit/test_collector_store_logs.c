/* SPDX-License-Identifier: Apache-2.0 */
/* Log records in the store: once each, bounded by bytes and age, and what a failed commit counted
 * is not counted. */
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmocka_all.h"
#include "db_dir.h"

#include "base/clock.h"
#include "sql/db.h"
#include "store/internal.h"

static struct ltn_writer w;

static int open_file(void **state)
{
    struct ltn_errinfo info;
    if (make_dir(state) != 0)
        return -1;
    w = (struct ltn_writer){.db = NULL};
    if (ltn_db_open(&(struct ltn_db_opts){.path = path}, &w.db, &info) != 0 ||
        ltn_db_migrate(w.db, ltn_store_migrations, ltn_store_migration_count, &info) != 0)
        return -1;
    return ltn_logs_open(&w);
}

static int close_file(void **state)
{
    ltn_db_close(w.db);
    return drop_dir(state);
}

static int64_t ask(const char *sql)
{
    int64_t v = -1;
    assert_int_equal(ltn_db_get_i64(w.db, sql, &v), 0);
    return v;
}

#define MANY 300

/* n records of one source; body and time tell them apart, or not. */
static int write_records(const char *service, size_t n, uint64_t time_ns, uint64_t step_ns,
                         uint64_t received_ns)
{
    static struct ltn_update_log logs[MANY];
    static const struct ltn_update_log blank = {.severity = "INFO", .event = "", .scope = "s"};
    char attrs[64];
    struct ltn_update_log_source source = {service, "i", attrs, 0};
    struct ltn_update u = {.received_ns = received_ns, .logs = logs, .log_count = n};
    assert_true(n <= MANY);
    (void)snprintf(attrs, sizeof(attrs), "{\"service.name\":\"%s\"}", service);
    for (size_t i = 0; i < n; i++) {
        logs[i] = blank;
        logs[i].source = &source;
        logs[i].body = "a body";
        logs[i].attrs = "{}";
        logs[i].time_ns = time_ns > 0 ? time_ns + i * step_ns : 0;
        logs[i].next = i + 1 < n ? &logs[i + 1] : NULL;
    }
    return ltn_write_update(&w, &u);
}

static void the_same_is_kept_once(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++)
        assert_int_equal(write_records("a", 10, 1000, 0, 5000), 0); /* ten equal ones */
    assert_int_equal(ask("SELECT count(*) FROM logs"), 10);
    assert_int_equal(w.logs.stored, 10);
    assert_int_equal(w.logs.repeated, 20);
    assert_int_equal(write_records("a", 12, 1000, 0, 5000), 0); /* two more of them */
    assert_int_equal(ask("SELECT count(*) FROM logs"), 12);
    assert_int_equal(write_records("b", 12, 1000, 0, 5000), 0); /* of somebody else */
    assert_int_equal(ask("SELECT count(*) FROM logs"), 24);
    assert_int_equal(ask("SELECT count(*) FROM log_source"), 2);
    assert_int_equal(w.logs.bytes, ask("SELECT bytes FROM log_total"));
    assert_int_equal(w.logs.bytes, ask("SELECT (SELECT sum(bytes) FROM log) +"
                                       " (SELECT sum(bytes) FROM log_source)"));
}

/* Without a time of its own only what came a moment ago is the same. */
static void without_a_time_the_same_is_kept_again_later(void **state)
{
    uint64_t now = 1700000000 * LTN_NS_PER_S;
    (void)state;
    assert_int_equal(write_records("a", 1, 0, 0, now), 0);
    assert_int_equal(write_records("a", 1, 0, 0, now + 300 * LTN_NS_PER_S), 0);
    assert_int_equal(ask("SELECT count(*) FROM logs"), 1);
    assert_int_equal(write_records("a", 1, 0, 0, now + 3600 * LTN_NS_PER_S), 0);
    assert_int_equal(ask("SELECT count(*) FROM logs"), 2);
}

static void the_oldest_go_when_there_are_too_many_bytes(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 20; i++) {
        char service[16];
        (void)snprintf(service, sizeof(service), "s%d", (int)i);
        assert_int_equal(write_records(service, MANY, 1000 * (i + 1), 1, 5000 + i), 0);
        assert_int_equal(ltn_logs_bound(&w, 100000), 0);
        assert_true(w.logs.bytes <= 100000);
        assert_int_equal(w.logs.bytes, ask("SELECT bytes FROM log_total"));
    }
    assert_int_equal(ask("SELECT max(time_ns) FROM logs"), 20299);
    assert_int_equal(ask("SELECT count(*) FROM logs") + (int64_t)w.logs.pruned_bytes, 20 * MANY);
    assert_int_equal(ask("SELECT max(id) - min(id) + 1 FROM logs"),
                     ask("SELECT count(*) FROM logs")); /* no holes: by arrival */
    assert_int_equal(ask("SELECT count(*) FROM log_source"),
                     ask("SELECT count(DISTINCT source_id) FROM log"));
    assert_int_equal(ltn_logs_bound(&w, 1), 0); /* nothing fits */
    assert_int_equal(ask("SELECT count(*) FROM log"), 0);
    assert_int_equal(ask("SELECT count(*) FROM log_source"), 0);
    assert_int_equal(w.logs.bytes, 0);
}

static void age_counts_from_arrival(void **state)
{
    (void)state;
    assert_int_equal(write_records("a", 5, 1, 1, 1000), 0);
    assert_int_equal(write_records("b", 5, 1, 1, 2000), 0);
    assert_int_equal(ltn_logs_expire(&w, 1000), 0);
    assert_int_equal(ask("SELECT count(*) FROM logs"), 10);
    assert_int_equal(ltn_logs_expire(&w, 1001), 0);
    assert_int_equal(ask("SELECT count(*) FROM logs"), 5);
    assert_int_equal(w.logs.pruned_age, 5);
    assert_int_equal(ask("SELECT count(*) FROM log_source"), 1);
    assert_int_equal(w.logs.bytes, ask("SELECT bytes FROM log_total"));
}

static void an_old_file_gets_the_tables(void **state)
{
    struct ltn_errinfo info;
    (void)state;
    ltn_db_close(w.db);
    (void)unlink(path);
    assert_int_equal(ltn_db_open(&(struct ltn_db_opts){.path = path}, &w.db, &info), 0);
    assert_int_equal(ltn_db_migrate(w.db, ltn_store_migrations, 2, &info), 0);
    assert_int_equal(ltn_db_migrate(w.db, ltn_store_migrations, ltn_store_migration_count, &info),
                     0);
    assert_int_equal(ltn_logs_open(&w), 0);
    assert_int_equal(write_records("a", 5, 1, 1, 1000), 0);
    assert_int_equal(ask("SELECT count(*) FROM logs WHERE service = 'a' AND severity = 'INFO'"), 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_same_is_kept_once, open_file, close_file),
        cmocka_unit_test_setup_teardown(without_a_time_the_same_is_kept_again_later, open_file,
                                        close_file),
        cmocka_unit_test_setup_teardown(the_oldest_go_when_there_are_too_many_bytes, open_file,
                                        close_file),
        cmocka_unit_test_setup_teardown(age_counts_from_arrival, open_file, close_file),
        cmocka_unit_test_setup_teardown(an_old_file_gets_the_tables, open_file, close_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
