/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "record/reader.h"
#include "record/record.h"
#include "db_dir.h"
#include "record_sample.h"
#include "run_program.h"

static struct ltn_record *open_record(struct ltn_record_opts o)
{
    struct ltn_record *r = NULL;
    struct ltn_errinfo info = {0};
    o.path = path;
    o.node = o.node != NULL ? o.node : "node-a";
    o.record_calls = true;
    o.commit_ms = 10;
    int rc = ltn_record_open(&o, &r, &info);
    if (rc == 0) {
        rc = ltn_record_start(r);
    }
    if (rc != 0) {
        fail_msg("open: %d %s", rc, info.msg);
    }
    return r;
}

static uint64_t dropped(const struct ltn_record_flow *f)
{
    uint64_t n = 0;
    for (int i = 0; i < LTN_RECORD_DROPS; i++) {
        n += f->dropped[i];
    }
    return n;
}

static void check_flow(const struct ltn_record_flow *f, uint64_t received)
{
    assert_int_equal(f->received, received);
    assert_int_equal(f->stored + dropped(f) + f->waiting, received);
    assert_int_equal(f->waiting, 0);
}

/* One text cell of a statement run by the reader. */
struct cell {
    char text[256];
    size_t rows;
};

static int on_row(void *ctx, const struct ltn_sql_value *v, size_t n)
{
    struct cell *c = ctx;
    (void)n;
    if (c->rows++ > 0) {
        return 0;
    }
    if (v[0].type == LTN_SQL_I64) {
        (void)snprintf(c->text, sizeof(c->text), "%" PRId64, v[0].i);
    } else if (v[0].type == LTN_SQL_F64) {
        (void)snprintf(c->text, sizeof(c->text), "%.3f", v[0].f);
    } else if (v[0].type != LTN_SQL_NULL) {
        (void)snprintf(c->text, sizeof(c->text), "%.*s", (int)v[0].n, (const char *)v[0].p);
    } else {
        (void)snprintf(c->text, sizeof(c->text), "NULL");
    }
    return 0;
}

static void expect(const char *sql, const char *want)
{
    struct ltn_record_reader *r = NULL;
    struct ltn_errinfo info = {0};
    struct cell c = {0};
    struct ltn_db_sink sink = {&c, NULL, on_row};
    struct ltn_db_query_result result;
    assert_int_equal(ltn_record_reader_open(path, &r, &info), 0);
    int rc = ltn_record_query(r, sql, NULL, &sink, &result, &info);
    if (rc != 0 || strcmp(c.text, want) != 0) {
        fail_msg("%s: %d %s, got \"%s\", want \"%s\"", sql, rc, info.msg, c.text, want);
    }
    ltn_record_reader_close(r);
}

static const struct ltn_record_incident incident = {.id = "i-1",
                                                    .time_ns = SAMPLE_T0_NS + 2,
                                                    .opened_ns = SAMPLE_T0_NS + 1,
                                                    .state = "open",
                                                    .kind = "slow_sync",
                                                    .severity = "HIGH",
                                                    .title = "cudaStreamSynchronize took 142 ms",
                                                    .cause = "logrotate held the CPU",
                                                    .explained_share = 0.93,
                                                    .count = 1,
                                                    .pid = SAMPLE_PID,
                                                    .proc_start_ns = SAMPLE_START,
                                                    .evidence = "{}"};

static void what_is_sent_can_be_asked_for(void **state)
{
    (void)state;
    struct ltn_record *r = open_record((struct ltn_record_opts){0});
    assert_int_equal(ltn_record_send_calls(r, sample_calls(0, 50)), 0);
    assert_int_equal(ltn_record_send_window(r, sample_window(0)), 0);
    assert_int_equal(ltn_record_send_window(r, sample_window(1)), 0);
    assert_int_equal(ltn_record_send_incident(r, &incident), 0);
    struct ltn_record_incident closed = incident;
    closed.state = "closed";
    closed.time_ns += 1000000000;
    closed.count = 3;
    assert_int_equal(ltn_record_send_incident(r, &closed), 0);
    ltn_record_stop(r);
    struct ltn_record_stats s;
    ltn_record_stats(r, &s);
    check_flow(&s.calls, 50);
    check_flow(&s.windows, 2);
    check_flow(&s.incidents, 2);
    assert_int_equal(s.calls.stored, 50);
    assert_int_equal(s.windows.stored, 2);
    /* The three statements that must work on every node. */
    expect("SELECT node || source || count(*) FROM events GROUP BY node, source", "node-acuda50");
    expect("SELECT op || n || ms FROM (SELECT op, count(*) n, max(duration_ns)/1e6 ms FROM events "
           "WHERE source='cuda' GROUP BY op ORDER BY ms DESC)",
           "cudaStreamSynchronize500.05");
    expect(
        "SELECT opened_at || severity || title || root_cause || explained_share FROM incidents "
        "ORDER BY opened_at DESC LIMIT 10",
        "2023-11-14T22:13:20.000ZHIGHcudaStreamSynchronize took 142 mslogrotate held the CPU0.93");
    expect(
        "SELECT group_concat(name, ',') FROM pragma_table_info('events')",
        "id,timestamp,timestamp_ns,node,rank,pid,tid,comm,source,op,duration_ns,oncpu_ns,runq_ns,"
        "blocked_ns,bytes,result,weight,stack_id");
    expect("SELECT id || '|' || timestamp || '|' || rank || '|' || pid || '|' || comm FROM events "
           "ORDER BY timestamp_ns LIMIT 1",
           "node-a:1|2023-11-14T22:13:20.000Z|0|1000|python?[31m");
    expect("SELECT state || count || closed_at FROM incidents", "closed32023-11-14T22:13:21.000Z");
    expect("SELECT count(*) FROM incidents", "1");
    expect("SELECT count || ' ' || errors FROM op_stats WHERE op = 'ncclAllReduce' AND pid = 1001",
           "200 2");
    expect("SELECT job || rank || world_size || gpu FROM processes WHERE pid = 1001",
           "train12GPU-1");
    expect("SELECT count(*) FROM processes WHERE rank IS NOT NULL", "2");
    expect("SELECT self_ns / 1e6 FROM rank_steps WHERE rank = 1", "400.000");
    expect("SELECT on_cpu_ns + run_queue_ns - self_ns FROM rank_steps", "0.000");
    expect("SELECT power_w IS NULL AND utilization = 0.5 FROM snapshots WHERE kind = 'gpu'", "1");
    expect("SELECT count(*) FROM snapshots WHERE kind = 'agent'", "2");
    ltn_record_close(r);
}

static void what_the_host_did_can_be_asked_for(void **state)
{
    (void)state;
    struct ltn_record *r = open_record((struct ltn_record_opts){0});
    assert_int_equal(ltn_record_send_window(r, sample_window(0)), 0);
    assert_int_equal(ltn_record_send_window(r, sample_window(1)), 0);
    ltn_record_stop(r);
    ltn_record_close(r);
    expect("SELECT disk || op || requests || ' ' || avg_queued_ns || ' ' || avg_service_ns || ' ' "
           "|| queue_depth || ' ' || max_queue_depth || comm FROM disk_io WHERE pid = 1000 LIMIT 1",
           "nvme0n1read4 100 200 2.5 5python?[31m");
    expect("SELECT count(*) FROM disk_io WHERE pid IS NULL", "2");
    expect("SELECT protocol || peer || port || side || sent_bytes FROM socket_io LIMIT 1",
           "tcp192.0.2.7443client300");
    expect("SELECT local || ' ' || peer || ' ' || segments || handshake || (pid IS NULL) FROM "
           "tcp_retransmits LIMIT 1",
           "2001:: 2001::2 511");
    expect("SELECT path || failed || missing || last_errno || comm FROM file_opens LIMIT 1",
           "/data/?[31m?432worker");
    expect("SELECT cgroup || throttled || '/' || periods FROM cpu_throttling LIMIT 1",
           "/pod/x40/100");
    expect("SELECT parent_pid || ' ' || opens || opens_failed || socket_sent_bytes FROM "
           "process_host LIMIT 1",
           "1000 104100");
    expect("SELECT type || exit_code || timestamp || comm FROM process_events LIMIT 1",
           "exit2562023-11-14T22:13:20.000Zworker");
    expect("SELECT by_comm || by_pid || by_tid || cgroup FROM cpu_holders LIMIT 1",
           "logrotate7778/system.slice/logrotate");
    /* The second window's state was not worth keeping. */
    expect("SELECT count(*) || ' ' || cpu_busy || ' ' || memory_used_bytes || "
           "(pressure_memory IS NULL) FROM snapshots WHERE kind = 'system'",
           "1 0.5 750.01");
}

static void percentiles_come_from_the_histogram(void **state)
{
    (void)state;
    struct ltn_record *r = open_record((struct ltn_record_opts){0});
    assert_int_equal(ltn_record_send_window(r, sample_window(0)), 0);
    ltn_record_stop(r);
    ltn_record_close(r);
    /* Bucket 200 is [2^15 * 1.5, 2^15 * 1.5625): 49152 to 51200 ns; bucket 300 around 3.9 ms. */
    expect("SELECT p50_ns BETWEEN 49152 AND 51200 AND p95_ns BETWEEN 49152 AND 51200 FROM op_stats "
           "WHERE op = 'cudaLaunchKernel'",
           "1");
    expect("SELECT hist_count(hist_merge(hist)) FROM op_windows", "600");
    expect("SELECT replayed || ' ' || replayed_bytes FROM op_stats WHERE op = 'cudaLaunchKernel'",
           "7 700");
    expect(
        "SELECT hist_quantile(hist_merge(hist), 1.0) BETWEEN 3000000 AND 4500000 FROM op_windows",
        "1");
    expect("SELECT hist_quantile(x'02', 0.5) IS NULL AND hist_quantile('text', 0.5) IS NULL", "1");
    /* Any other SQLite can read the file too. */
    char command[256];
    (void)snprintf(command, sizeof(command),
                   "import sqlite3; r = sqlite3.connect('%s').execute('SELECT "
                   "p50_ns, avg_ns FROM op_stats').fetchone(); assert r == (None, 500000), r",
                   path);
    assert_int_equal(ltn_run_python(command), 0);
}

static void a_second_start_goes_on(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        struct ltn_record *r = open_record((struct ltn_record_opts){0});
        assert_string_equal(ltn_record_moved(r), "");
        assert_int_equal(ltn_record_send_calls(r, sample_calls(i * 10, 10)), 0);
        assert_int_equal(ltn_record_send_window(r, sample_window(i)), 0);
        ltn_record_close(r);
    }
    expect("SELECT count(*) FROM events", "30");
    expect("SELECT max(CAST(substr(id, 8) AS INTEGER)) FROM events", "30");
    expect("SELECT count(*) FROM processes WHERE rank IS NOT NULL", "2");
    expect("SELECT count(*) FROM windows", "3");
}

static void calls_may_come_before_their_process(void **state)
{
    (void)state;
    struct ltn_record *r = open_record((struct ltn_record_opts){0});
    struct ltn_call_batch *b = sample_calls(0, 1);
    b->calls[0].op = 60000; /* of a newer version */
    assert_int_equal(ltn_record_send_calls(r, b), 0);
    ltn_record_close(r);
    expect("SELECT source || op || (comm IS NULL) FROM events", "unknownunknown1");
}

/* Ids must not be given again after every call was pruned. */
static void the_cap_prunes_oldest_calls_first(void **state)
{
    (void)state;
    const uint64_t cap = 2U << 20;
    struct ltn_record *r = open_record((struct ltn_record_opts){.max_bytes = cap});
    assert_int_equal(ltn_record_send_incident(r, &incident), 0);
    struct ltn_record_stats s;
    unsigned sent = 0;
    for (unsigned i = 0; i < 120; i++) {
        struct ltn_call_batch *b = sample_calls(sent, 1000);
        if (ltn_record_send_calls(r, b) != 0) {
            free(b);
            (void)nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
        }
        sent += 1000;
        if (i % 20 == 0) {
            struct ltn_window *w = sample_window(i);
            assert_int_equal(ltn_record_send_window(r, w), 0);
        }
    }
    uint64_t deadline = ltn_now_mono_ns() + 30 * LTN_NS_PER_S;
    do {
        (void)nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
        ltn_record_stats(r, &s);
    } while ((s.used_bytes > cap || s.db_bytes > cap + cap / 4 || s.pruned_calls == 0 ||
              s.calls.waiting > 0) &&
             ltn_now_mono_ns() < deadline);
    assert_true(s.pruned_calls > 0);
    assert_int_equal(s.pruned_windows, 0);
    assert_int_equal(s.pruned_incidents, 0);
    assert_true(s.used_bytes <= cap);
    ltn_record_stop(r);
    ltn_record_stats(r, &s);
    assert_int_equal(s.calls.stored + dropped(&s.calls), s.calls.received);
    char want[32];
    (void)snprintf(want, sizeof(want), "%" PRIu64, s.calls.stored - s.pruned_calls);
    expect("SELECT count(*) FROM events", want);
    expect("SELECT count(*) FROM incidents", "1");
    ltn_record_close(r);
}

static void a_busy_queue_gives_the_item_back(void **state)
{
    (void)state;
    struct ltn_record *r = NULL;
    assert_int_equal(ltn_record_open(&(struct ltn_record_opts){.path = path,
                                                               .node = "n",
                                                               .record_calls = true,
                                                               .max_queued_windows = 2,
                                                               .max_queued_batches = 2},
                                     &r, NULL),
                     0);
    for (unsigned i = 0; i < 4; i++) {
        struct ltn_window *w = sample_window(i);
        struct ltn_call_batch *b = sample_calls(0, 7);
        int rc = ltn_record_send_window(r, w);
        assert_int_equal(rc, i < 2 ? 0 : LTN_ERR_BUSY);
        if (rc != 0) {
            ltn_window_free(w);
        }
        rc = ltn_record_send_calls(r, b);
        assert_int_equal(rc, i < 2 ? 0 : LTN_ERR_BUSY);
        if (rc != 0) {
            free(b);
        }
    }
    assert_int_equal(ltn_record_start(r), 0);
    ltn_record_stop(r);
    struct ltn_window *late = sample_window(9);
    assert_int_equal(ltn_record_send_window(r, late), LTN_ERR_CLOSED);
    ltn_window_free(late);
    struct ltn_record_stats s;
    ltn_record_stats(r, &s);
    check_flow(&s.windows, 5);
    check_flow(&s.calls, 28);
    assert_int_equal(s.windows.stored, 2);
    assert_int_equal(s.windows.dropped[LTN_RECORD_DROP_QUEUE], 2);
    assert_int_equal(s.windows.dropped[LTN_RECORD_DROP_CLOSED], 1);
    assert_int_equal(s.calls.stored, 14);
    /* The numbers of the windows that were refused are missing. */
    expect("SELECT group_concat(sequence) FROM windows", "1,2");
    ltn_record_close(r);
}

static int encode(void *ctx, const struct ltn_window *w, uint64_t sequence, ltn_record_emit_fn emit,
                  void *emit_ctx)
{
    char bytes[1000];
    (void)w;
    (void)ctx;
    (void)snprintf(bytes, sizeof(bytes), "window %" PRIu64, sequence);
    return emit(emit_ctx, LTN_RECORD_METRICS, bytes, sizeof(bytes));
}

static const struct ltn_record_encoder encoder = {.window = encode};

static void the_outbox_is_acknowledged_and_bounded(void **state)
{
    (void)state;
    struct ltn_record *r =
        open_record((struct ltn_record_opts){.encoder = &encoder, .outbox_max_bytes = 5500});
    for (unsigned i = 0; i < 10; i++) {
        assert_int_equal(ltn_record_send_window(r, sample_window(i)), 0);
    }
    struct ltn_record_stats s;
    do {
        ltn_record_stats(r, &s);
    } while (s.windows.waiting > 0);
    assert_int_equal(s.outbox_rows, 5);
    assert_int_equal(s.outbox_bytes, 5000);
    assert_int_equal(s.outbox_dropped_bytes_limit, 5);
    struct ltn_record_reader *reader = NULL;
    int64_t first = 0;
    assert_int_equal(ltn_record_reader_open(path, &reader, NULL), 0);
    assert_int_equal(
        ltn_db_get_i64(ltn_record_reader_db(reader), "SELECT min(id) FROM outbox", &first), 0);
    ltn_record_reader_close(reader);
    assert_int_equal(ltn_record_ack(r, first, LTN_RECORD_SENT), 0);
    assert_int_equal(ltn_record_ack(r, first, LTN_RECORD_SENT), 0);
    assert_int_equal(ltn_record_ack(r, first + 1, LTN_RECORD_TRIED), 0);
    ltn_record_stop(r);
    assert_int_equal(ltn_record_ack(r, first + 2, LTN_RECORD_SENT), LTN_ERR_CLOSED);
    ltn_record_stats(r, &s);
    assert_int_equal(s.outbox_rows, 4);
    ltn_record_close(r);
    expect("SELECT group_concat(attempts) FROM outbox", "1,0,0,0");
    /* The size is found again; what is too old goes with the next group. */
    r = open_record(
        (struct ltn_record_opts){.encoder = &encoder, .outbox_max_age_ns = 1, .node = "node-a"});
    ltn_record_stats(r, &s);
    assert_int_equal(s.outbox_rows, 4);
    assert_int_equal(ltn_record_send_window(r, sample_window(11)), 0);
    ltn_record_close(r);
    expect("SELECT count(*) FROM outbox", "0");
}

static void the_file_is_given_away(void **state)
{
    (void)state;
    if (geteuid() != 0) {
        print_message("SKIPPED: needs root to give files away\n");
        skip();
    }
    (void)snprintf(path, sizeof(path), "%s/made/r.db", dir);
    struct ltn_record *r =
        open_record((struct ltn_record_opts){.own = true, .uid = 12345, .gid = 23456});
    assert_int_equal(ltn_record_send_window(r, sample_window(0)), 0);
    static const char *const suffixes[] = {"", "-wal", "-shm", "/.."};
    for (size_t i = 0; i < LTN_ARRAY_SIZE(suffixes); i++) {
        char name[96];
        struct stat st;
        if (i < 3) {
            (void)snprintf(name, sizeof(name), "%s%s", path, suffixes[i]);
        } else {
            (void)snprintf(name, sizeof(name), "%s/made", dir);
        }
        assert_int_equal(stat(name, &st), 0);
        assert_int_equal(st.st_uid, 12345);
        assert_int_equal(st.st_gid, 23456);
    }
    ltn_record_close(r);
}

static void other_files_are_refused(void **state)
{
    (void)state;
    struct ltn_db *db = NULL;
    struct ltn_record *r = NULL;
    struct ltn_record_reader *reader = NULL;
    struct ltn_errinfo info = {0};
    assert_int_equal(ltn_db_open(&(struct ltn_db_opts){.path = path}, &db, NULL), 0);
    assert_int_equal(ltn_db_exec(db, "CREATE TABLE t (a); PRAGMA user_version=1"), 0);
    ltn_db_close(db);
    assert_int_equal(
        ltn_record_open(&(struct ltn_record_opts){.path = path, .node = "n"}, &r, &info),
        LTN_ERR_UNSUPPORTED);
    assert_int_equal(ltn_record_reader_open(path, &reader, &info), LTN_ERR_UNSUPPORTED);
    assert_int_equal(ltn_record_reader_open("/nonexistent/x.db", &reader, &info),
                     LTN_ERR_NOT_FOUND);
    assert_int_equal(unlink(path), 0);
    r = open_record((struct ltn_record_opts){0});
    ltn_record_close(r);
    assert_int_equal(ltn_db_open(&(struct ltn_db_opts){.path = path}, &db, NULL), 0);
    assert_int_equal(ltn_db_exec(db, "PRAGMA user_version=99"), 0);
    ltn_db_close(db);
    assert_int_equal(
        ltn_record_open(&(struct ltn_record_opts){.path = path, .node = "n"}, &r, &info),
        LTN_ERR_UNSUPPORTED);
    assert_non_null(strstr(info.msg, "newer"));
    assert_int_equal(ltn_record_reader_open(path, &reader, &info), LTN_ERR_UNSUPPORTED);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, make_dir, drop_dir)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_is_sent_can_be_asked_for),
        TEST(what_the_host_did_can_be_asked_for),
        TEST(percentiles_come_from_the_histogram),
        TEST(a_second_start_goes_on),
        TEST(calls_may_come_before_their_process),
        TEST(the_cap_prunes_oldest_calls_first),
        TEST(a_busy_queue_gives_the_item_back),
        TEST(the_outbox_is_acknowledged_and_bounded),
        TEST(the_file_is_given_away),
        TEST(other_files_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
