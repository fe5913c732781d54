/* SPDX-License-Identifier: Apache-2.0 */
/* Stacks in the record: shared by content, found from the calls, gone with their process. */
#include "cmocka_all.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "record/reader.h"
#include "record/record.h"
#include "record/schema.h"
#include "record/upkeep.h"
#include "db_dir.h"
#include "record_sample.h"
#include "sql/db.h"
#include "symbol/stack.h"

static struct ltn_record *open_record(void)
{
    struct ltn_record *r = NULL;
    const struct ltn_record_opts o = {
        .path = path, .node = "node-a", .record_calls = true, .commit_ms = 10};
    assert_int_equal(ltn_record_open(&o, &r, NULL), 0);
    assert_int_equal(ltn_record_start(r), 0);
    return r;
}

static int on_row(void *ctx, const struct ltn_sql_value *v, size_t n)
{
    char *text = ctx;
    (void)n;
    if (v[0].type == LTN_SQL_I64) {
        (void)snprintf(text, 256, "%" PRId64, v[0].i);
    } else if (v[0].type == LTN_SQL_TEXT) {
        (void)snprintf(text, 256, "%.*s", (int)v[0].n, (const char *)v[0].p);
    } else {
        (void)snprintf(text, 256, "NULL");
    }
    return 0;
}

static void expect(const char *sql, const char *want)
{
    struct ltn_record_reader *r = NULL;
    struct ltn_errinfo info = {0};
    char text[256] = "no row";
    struct ltn_db_sink sink = {text, NULL, on_row};
    struct ltn_db_query_result result;
    assert_int_equal(ltn_record_reader_open(path, &r, &info), 0);
    int rc = ltn_record_query(r, sql, NULL, &sink, &result, &info);
    if (rc != 0 || strcmp(text, want) != 0) {
        fail_msg("%s: %d %s, got \"%s\", want \"%s\"", sql, rc, info.msg, text, want);
    }
    ltn_record_reader_close(r);
}

/* A stack of one native function in /opt/app and, outside of it, a Python one. */
static void send(struct ltn_record *r, uint64_t id, uint32_t pid, uint64_t offset)
{
    struct ltn_stack_builder *b = malloc(sizeof(*b));
    assert_non_null(b);
    ltn_stack_builder_init(b);
    ltn_stack_builder_add(b, &(struct ltn_stack_frame){.kind = LTN_FRAME_NATIVE,
                                                       .function = offset == 1 ? "f(int)" : "",
                                                       .file = "/opt/app",
                                                       .build_id = "ab12",
                                                       .offset = offset});
    ltn_stack_builder_add(
        b, &(struct ltn_stack_frame){
               .kind = LTN_FRAME_PYTHON, .function = "train", .file = "/opt/t.py", .line = 42});
    struct ltn_stack *s = ltn_stack_new(
        b, &(struct ltn_stack){.stack_id = id, .pid = pid, .proc_start_ns = SAMPLE_START});
    assert_non_null(s);
    assert_int_equal(ltn_record_send_stack(r, s), 0);
    ltn_stack_unref(s);
    ltn_stack_builder_done(b);
    free(b);
}

static void calls_lead_to_their_stack(void **state)
{
    (void)state;
    struct ltn_record *r = open_record();
    struct ltn_call_batch *batch = sample_calls(0, 3);
    batch->calls[0].stack_id = 0xfedcba9876543210; /* needs all 64 bits */
    batch->calls[1].stack_id = 7;
    batch->calls[2].stack_id = 8; /* never comes */
    uint64_t sent = batch->count;
    assert_int_equal(ltn_record_send_calls(r, batch), 0); /* before the stacks */
    send(r, 0xfedcba9876543210, SAMPLE_PID, 0x1234);
    send(r, 7, SAMPLE_PID + 1, 0x1234); /* another process, the same code */
    send(r, 9, SAMPLE_PID, 1);
    send(r, 9, SAMPLE_PID, 1); /* may come again */
    ltn_record_stop(r);
    struct ltn_record_stats s;
    ltn_record_stats(r, &s);
    assert_int_equal(s.stacks.received, 4);
    assert_int_equal(s.stacks.stored, 4);
    assert_int_equal(s.calls.stored, sent);
    ltn_record_close(r);
    expect("SELECT count(*) FROM stacks", "2");
    expect("SELECT count(*) FROM frames", "3");
    expect(
        "SELECT group_concat(coalesce(s.frames, '-'), ' | ') FROM (SELECT * FROM events ORDER BY "
        "timestamp_ns) e LEFT JOIN stacks s ON s.id = e.stack_id",
        "app+0x1234;train (/opt/t.py:42) | app+0x1234;train (/opt/t.py:42) | -");
    expect("SELECT count(DISTINCT stack_id) FROM events", "1");
    expect("SELECT top || '/' || depth || '/' || truncated FROM stacks WHERE top LIKE 'f%'",
           "f(int)/2/0");
    expect("SELECT kind || function || file || line FROM stack_frames WHERE position = 1 LIMIT 1",
           "pythontrain/opt/t.py42");
    expect("SELECT build_id || offset FROM stack_frames WHERE position = 0 AND function IS NULL",
           "ab124660");
}

/* Prunes to almost nothing, windows included. */
static void prune(void)
{
    struct ltn_db *db = NULL;
    struct ltn_pruned p = {.more = true};
    assert_int_equal(ltn_db_open(&(struct ltn_db_opts){.path = path}, &db, NULL), 0);
    for (int i = 0; i < 50 && (p.more || i < 2); i++) {
        assert_int_equal(ltn_prune(db, 4096, &p), 0);
    }
    ltn_db_close(db);
}

static void stacks_go_with_their_process(void **state)
{
    (void)state;
    struct ltn_record *r = open_record();
    for (unsigned i = 0; i < 30; i++) {
        assert_int_equal(ltn_record_send_window(r, sample_window(i)), 0);
    }
    send(r, 1, SAMPLE_PID, 1);
    send(r, 2, SAMPLE_PID + 9, 2); /* not in the windows: seen now */
    ltn_record_close(r);
    struct ltn_db *db = NULL;
    assert_int_equal(ltn_db_open(&(struct ltn_db_opts){.path = path}, &db, NULL), 0);
    /* What was stored counts as seen at that time; the first process ended before. */
    char sql[160];
    (void)snprintf(sql, sizeof(sql), "UPDATE procs SET last_seen_ns = %llu WHERE pid = %d",
                   (unsigned long long)SAMPLE_T0_NS, SAMPLE_PID);
    assert_int_equal(ltn_db_exec(db, sql), 0);
    ltn_db_close(db);
    prune();
    expect("SELECT count(*) FROM procs WHERE pid = 1000", "0");
    expect("SELECT group_concat(ref) FROM stack_refs", "2");
    expect("SELECT group_concat(frames) FROM stacks", "app+0x2;train (/opt/t.py:42)");
    expect("SELECT count(*) FROM frames", "2");
}

static void an_older_record_is_read(void **state)
{
    (void)state;
    struct ltn_db *db = NULL;
    struct ltn_errinfo info = {0};
    assert_int_equal(ltn_db_open(&(struct ltn_db_opts){.path = path}, &db, NULL), 0);
    assert_int_equal(ltn_db_migrate(db, ltn_record_migrations, 1, &info), 0);
    assert_int_equal(
        ltn_db_exec(db,
                    "INSERT INTO nodes (id, name) VALUES (1, 'n'); INSERT INTO ops VALUES (1, "
                    "'cuda', 'cudaMalloc', 'alloc'); INSERT INTO procs (id, node_id, pid, "
                    "start_ns, first_seen_ns, last_seen_ns) VALUES (1, 1, 5, 1, 1, 1); INSERT "
                    "INTO calls VALUES (1, 1, 1, 5, 1, 10, 10, 0, 0, 0, 0, NULL, NULL, NULL, 1, "
                    "0, 0, 0, 0, 0)"),
        0);
    ltn_db_close(db);
    expect("SELECT coalesce(stack_id, 'none') || duration_ns FROM events", "none10");
    expect("SELECT count(*) FROM events e LEFT JOIN stacks s ON s.id = e.stack_id LEFT JOIN "
           "stack_frames f ON f.stack_id = s.id",
           "1");
    /* A writer brings it up to date, and its calls stay. */
    struct ltn_record *r = open_record();
    struct ltn_call_batch *batch = sample_calls(0, 1);
    batch->calls[0].stack_id = 3;
    assert_int_equal(ltn_record_send_calls(r, batch), 0);
    send(r, 3, SAMPLE_PID, 1);
    ltn_record_close(r);
    expect("SELECT count(*) || '/' || count(stack_id) FROM events", "2/1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(calls_lead_to_their_stack, make_dir, drop_dir),
        cmocka_unit_test_setup_teardown(stacks_go_with_their_process, make_dir, drop_dir),
        cmocka_unit_test_setup_teardown(an_older_record_is_read, make_dir, drop_dir),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
