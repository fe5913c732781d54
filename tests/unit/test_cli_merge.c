/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/file.h"
#include "cli/fanout.h"
#include "cli/merge.h"
#include "cli/scenario.h"
#include "drop_tree.h"
#include "record/record.h"
#include "record/reader.h"
#include "record/schema.h"

static char dir[32];
static char a_path[64], b_path[64], out_path[64];

static int make_dir(void **state)
{
    (void)state;
    (void)snprintf(dir, sizeof(dir), "/tmp/ltn-mrg-XXXXXX");
    if (mkdtemp(dir) == NULL) {
        return -1;
    }
    (void)snprintf(a_path, sizeof(a_path), "%s/a.db", dir);
    (void)snprintf(b_path, sizeof(b_path), "%s/b.db", dir);
    (void)snprintf(out_path, sizeof(out_path), "%s/out.db", dir);
    return 0;
}

static int drop_dir(void **state)
{
    (void)state;
    return ltn_drop_tree(dir);
}

#define T0 1700000000000000000ULL

/* A node's record whose clock is off by skew_ns, with one incident that has the same id on every
 * node. */
static void make_record(const char *path, const char *node, unsigned windows, uint64_t skew_ns)
{
    struct ltn_record *r = NULL;
    const struct ltn_record_opts o = {.path = path, .node = node, .record_calls = true};
    assert_int_equal(ltn_record_open(&o, &r, NULL), 0);
    for (unsigned n = 0; n < windows; n++) {
        assert_int_equal(
            ltn_record_send_calls(r, ltn_scenario_calls(LTN_SCENARIO_CPU, n, T0 + skew_ns)), 0);
        assert_int_equal(
            ltn_record_send_window(r, ltn_scenario_window(LTN_SCENARIO_CPU, n, T0 + skew_ns)), 0);
    }
    const struct ltn_record_incident i = {.id = "same",
                                          .time_ns = T0 + 5,
                                          .opened_ns = T0 + 5,
                                          .state = "open",
                                          .kind = "cpu_contention",
                                          .severity = "HIGH",
                                          .title = node,
                                          .cause = "x",
                                          .explained_share = 0.9,
                                          .count = 1,
                                          .evidence = "{}"};
    assert_int_equal(ltn_record_send_incident(r, &i), 0);
    assert_int_equal(ltn_record_start(r), 0);
    ltn_record_close(r);
}

static int64_t number(const char *path, const char *sql)
{
    struct ltn_record_reader *r = NULL;
    struct ltn_errinfo info = {0};
    int64_t v = -1;
    if (ltn_record_reader_open(path, &r, &info) != 0) {
        fail_msg("%s", info.msg);
    }
    int rc = ltn_db_get_i64(ltn_record_reader_db(r), sql, &v);
    if (rc != 0) {
        fail_msg("%s: %d %s", sql, rc, ltn_db_message(ltn_record_reader_db(r)));
    }
    ltn_record_reader_close(r);
    return v;
}

static int merge(const char *first, const char *second, const char *node,
                 struct ltn_merge_result *ret, struct ltn_errinfo *info)
{
    const char *const inputs[] = {first, second};
    const struct ltn_merge_opts o = {
        .inputs = inputs, .input_count = 2, .output = out_path, .force_node = node};
    return ltn_merge(&o, ret, info);
}

/* Every table and every column of the schema is either copied or left out by name. */
static void the_schema_is_covered(void **state)
{
    (void)state;
    make_record(a_path, "n0", 1, 0);
    const char *columns;
    size_t n = 0;
    while (ltn_merge_table(n, &columns) != NULL) {
        char sql[512];
        (void)snprintf(sql, sizeof(sql), "SELECT count(*) FROM pragma_table_info('%s')",
                       ltn_merge_table(n, &columns));
        int64_t named = 1;
        for (const char *p = columns; *p != '\0'; p++) {
            named += *p == ',';
        }
        if (number(a_path, sql) != named) {
            fail_msg("%s has columns that merging does not know", ltn_merge_table(n, &columns));
        }
        n++;
    }
    assert_int_equal(number(a_path, "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND "
                                    "name NOT LIKE 'sqlite_%'"),
                     (int64_t)n);
}

static void everything_is_there_once(void **state)
{
    (void)state;
    struct ltn_merge_result r;
    struct ltn_errinfo info = {0};
    make_record(a_path, "n0", 20, 0);
    make_record(b_path, "n1", 20, 250 * LTN_NS_PER_MS);
    if (merge(a_path, b_path, NULL, &r, &info) != 0) {
        fail_msg("%s", info.msg);
    }
    static const char *const tables[] = {
        "calls",         "windows",     "op_windows",   "rank_windows",     "preemptors",
        "communicators", "gpu_samples", "agent_health", "incident_changes", "procs"};
    for (size_t i = 0; i < LTN_ARRAY_SIZE(tables); i++) {
        char sql[128];
        (void)snprintf(sql, sizeof(sql), "SELECT count(*) FROM %s", tables[i]);
        int64_t a = number(a_path, sql);
        assert_true(a > 0);
        assert_int_equal(number(out_path, sql), a + number(b_path, sql));
    }
    assert_int_equal(number(out_path, "SELECT count(DISTINCT id) = count(*) FROM events"), 1);
    assert_int_equal(number(out_path, "SELECT count(*) FROM events WHERE node = 'n1'"),
                     number(b_path, "SELECT count(*) FROM events"));
    assert_int_equal(number(out_path,
                            "SELECT count(*) FROM (SELECT node, pid, op, count, total_ns, "
                            "p99_ns FROM op_stats)"),
                     2 * number(a_path, "SELECT count(*) FROM op_stats"));
    /* Histograms came along whole. */
    assert_int_equal(number(out_path, "SELECT hist_count(hist_merge(hist)) FROM op_windows"),
                     2 * number(a_path, "SELECT hist_count(hist_merge(hist)) FROM op_windows"));
    /* Two incidents of one id stay two, each with its own node. */
    assert_int_equal(number(out_path, "SELECT count(*) FROM incidents WHERE title = node"), 2);
    assert_int_equal(number(out_path, "SELECT count(*) FROM preemptors x JOIN strings s ON s.id = "
                                      "x.comm_id WHERE s.text = 'cc1plus'"),
                     number(out_path, "SELECT count(*) FROM preemptors"));
    assert_int_equal(r.duplicates, 0);
    assert_int_equal(r.skew_pairs, 1);
    assert_true(r.skew_ns > -251e6 && r.skew_ns < -249e6);
}

static void a_file_twice_counts_once(void **state)
{
    (void)state;
    struct ltn_merge_result r;
    make_record(a_path, "n0", 6, 0);
    assert_int_equal(merge(a_path, a_path, NULL, &r, NULL), 0);
    assert_int_equal(number(out_path, "SELECT count(*) FROM calls"),
                     number(a_path, "SELECT count(*) FROM calls"));
    assert_int_equal(number(out_path, "SELECT count(*) FROM op_windows"),
                     number(a_path, "SELECT count(*) FROM op_windows"));
    assert_true(r.duplicates > 0);
}

/* A record that an agent of the first version left behind lacks tables and columns. */
static void an_older_record_merges_too(void **state)
{
    (void)state;
    struct ltn_merge_result r;
    struct ltn_errinfo info = {0};
    struct ltn_db *db = NULL;
    assert_int_equal(ltn_db_open(&(struct ltn_db_opts){.path = a_path}, &db, NULL), 0);
    assert_int_equal(ltn_db_migrate(db, ltn_record_migrations, 1, NULL), 0);
    assert_int_equal(
        ltn_db_exec(db,
                    "INSERT INTO nodes VALUES (1, 'n0', ''); INSERT INTO strings VALUES (1, "
                    "'hog'); INSERT INTO procs (id, node_id, pid, start_ns, first_seen_ns, "
                    "last_seen_ns) VALUES (1, 1, 5, 1, 1, 2); INSERT INTO windows VALUES (1, 1, "
                    "1, 2, 0); INSERT INTO ops VALUES (1, 'cuda', 'cudaFree', 'free'); INSERT "
                    "INTO op_windows VALUES (1, 1, 1, 9, 9, 0, 0, 90, 0, 0, 10, 9, NULL); INSERT "
                    "INTO preemptors VALUES (1, 1, 0, 1, 77, 42, 100, 3); "
                    "INSERT INTO agent_health VALUES (1, 7, 0, 0, '{}', 0, 0, 0, 0.5, 0, 1, 2)"),
        0);
    ltn_db_close(db);
    make_record(b_path, "n1", 2, 0);
    if (merge(a_path, b_path, NULL, &r, &info) != 0) {
        fail_msg("%s", info.msg);
    }
    assert_int_equal(number(out_path, "SELECT count(*) FROM cpu_holders WHERE by_comm = 'hog' AND "
                                      "by_pid = 77 AND waited_ns = 100 AND by_tid IS NULL"),
                     1);
    assert_int_equal(number(out_path, "SELECT count(DISTINCT node_id) FROM windows"), 2);
    assert_int_equal(
        number(out_path, "SELECT count(*) FROM op_stats WHERE count = 9 AND replayed = 0"), 1);
    assert_int_equal(number(out_path, "SELECT silent_total FROM agent_health WHERE calls_seen = 7"),
                     0);
}

static void a_forced_node_takes_all(void **state)
{
    (void)state;
    struct ltn_merge_result r;
    make_record(a_path, "n0", 3, 0);
    make_record(b_path, "n1", 3, 7);
    assert_int_equal(merge(a_path, b_path, "both", &r, NULL), 0);
    assert_int_equal(number(out_path, "SELECT count(DISTINCT node) FROM events"), 1);
    assert_int_equal(number(out_path, "SELECT count(*) FROM incidents"), 2);
    assert_int_equal(number(out_path, "SELECT value = 'both' FROM meta WHERE key = 'node'"), 1);
}

static void inputs_and_files_that_are_there_stay_as_they_are(void **state)
{
    (void)state;
    struct ltn_merge_result r;
    struct ltn_errinfo info = {0};
    struct ltn_buf before;
    struct ltn_buf after;
    make_record(a_path, "n0", 3, 0);
    make_record(b_path, "n1", 3, 0);
    ltn_buf_init(&before, 64 << 20);
    ltn_buf_init(&after, 64 << 20);
    assert_int_equal(ltn_file_read(a_path, &before), 0);
    assert_int_equal(merge(a_path, b_path, NULL, &r, NULL), 0);
    assert_int_equal(ltn_file_read(a_path, &after), 0);
    assert_int_equal(before.len, after.len);
    assert_memory_equal(before.data, after.data, before.len);
    assert_int_equal(merge(a_path, b_path, NULL, &r, &info), -EEXIST);
    assert_true(number(out_path, "SELECT count(*) FROM calls") > 0);
    /* A broken input leaves no output. */
    assert_int_equal(unlink(out_path), 0);
    assert_true(merge(a_path, "/etc/passwd", NULL, &r, &info) < 0);
    assert_int_equal(access(out_path, F_OK), -1);
    ltn_buf_done(&before);
    ltn_buf_done(&after);
}

static void joined_rows_are_reduced_read_only(void **state)
{
    (void)state;
    struct ltn_rows rows;
    struct ltn_rows out;
    struct ltn_errinfo info = {0};
    const char *const names[] = {"node", "n\"x", "n\"x"};
    ltn_rows_init(&rows, 1 << 20);
    assert_int_equal(ltn_rows_columns(&rows, names, 3), 0);
    for (int i = 1; i <= 4; i++) {
        const struct ltn_sql_value v[] = {{.type = LTN_SQL_TEXT, .p = "a", .n = 1},
                                          {.type = LTN_SQL_I64, .i = i},
                                          {.type = LTN_SQL_F64, .f = 0.5}};
        assert_int_equal(ltn_rows_add(&rows, v), 0);
    }
    ltn_rows_init(&out, 1 << 20);
    assert_int_equal(ltn_fanout_reduce(&rows,
                                       "SELECT sum(\"n\"\"x\") s, avg(\"column 3\") FROM fleet",
                                       NULL, &out, &info),
                     0);
    assert_int_equal(ltn_rows_i64(&out, 0, "s"), 10);
    ltn_rows_done(&out);
    static const char *const hostile[] = {
        "DELETE FROM fleet",    "DROP TABLE fleet",
        "ATTACH '/tmp/x' AS y", "INSERT INTO fleet VALUES (1, 2, 3)",
        "PRAGMA query_only=0",  "SELECT 1; SELECT 2"};
    for (size_t i = 0; i < LTN_ARRAY_SIZE(hostile); i++) {
        ltn_rows_init(&out, 1 << 20);
        assert_int_equal(ltn_fanout_reduce(&rows, hostile[i], NULL, &out, &info),
                         LTN_ERR_FORBIDDEN);
        ltn_rows_done(&out);
    }
    const struct ltn_db_limits limits = {.timeout_ns = 100 * LTN_NS_PER_MS};
    ltn_rows_init(&out, 1 << 20);
    assert_int_equal(ltn_fanout_reduce(&rows,
                                       "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 "
                                       "FROM c) SELECT max(x) FROM c",
                                       &limits, &out, &info),
                     LTN_ERR_TIMEOUT);
    ltn_rows_done(&out);
    ltn_rows_done(&rows);
}

/* Of before stacks were recorded. */
static void an_older_record_merges(void **state)
{
    (void)state;
    struct ltn_db *db = NULL;
    struct ltn_record_reader *r = NULL;
    struct ltn_merge_result result;
    const char *inputs[] = {a_path, b_path};
    const struct ltn_merge_opts o = {.inputs = inputs, .input_count = 2, .output = out_path};
    int64_t calls = 0;
    int64_t before = 0;
    make_record(a_path, "new", 2, 0);
    assert_int_equal(ltn_db_open(&(struct ltn_db_opts){.path = b_path}, &db, NULL), 0);
    assert_int_equal(ltn_db_migrate(db, ltn_record_migrations, 1, NULL), 0);
    assert_int_equal(
        ltn_db_exec(db,
                    "INSERT INTO nodes (id, name) VALUES (1, 'old'); INSERT INTO ops VALUES (1, "
                    "'cuda', 'cudaMalloc', 'alloc'); INSERT INTO procs (id, node_id, pid, "
                    "start_ns, first_seen_ns, last_seen_ns) VALUES (1, 1, 5, 1, 1, 1); INSERT "
                    "INTO calls VALUES (1, 1, 1, 5, 1, 10, 10, 0, 0, 0, 0, NULL, NULL, NULL, 1, "
                    "0, 0, 0, 0, 0)"),
        0);
    ltn_db_close(db);
    assert_int_equal(ltn_merge(&o, &result, NULL), 0);
    assert_int_equal(ltn_record_reader_open(a_path, &r, NULL), 0);
    assert_int_equal(
        ltn_db_get_i64(ltn_record_reader_db(r), "SELECT count(*) FROM events", &before), 0);
    ltn_record_reader_close(r);
    assert_int_equal(ltn_record_reader_open(out_path, &r, NULL), 0);
    assert_int_equal(ltn_db_get_i64(ltn_record_reader_db(r), "SELECT count(*) FROM events", &calls),
                     0);
    ltn_record_reader_close(r);
    assert_int_equal(calls, before + 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_schema_is_covered, make_dir, drop_dir),
        cmocka_unit_test_setup_teardown(everything_is_there_once, make_dir, drop_dir),
        cmocka_unit_test_setup_teardown(a_file_twice_counts_once, make_dir, drop_dir),
        cmocka_unit_test_setup_teardown(an_older_record_merges_too, make_dir, drop_dir),
        cmocka_unit_test_setup_teardown(a_forced_node_takes_all, make_dir, drop_dir),
        cmocka_unit_test_setup_teardown(inputs_and_files_that_are_there_stay_as_they_are, make_dir,
                                        drop_dir),
        cmocka_unit_test_setup_teardown(an_older_record_merges, make_dir, drop_dir),
        cmocka_unit_test(joined_rows_are_reduced_read_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
