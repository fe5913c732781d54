/* SPDX-License-Identifier: Apache-2.0 */
/* Full disk, damage at start and while running, rows the schema refuses. Always: received = stored
 * + dropped. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "record/reader.h"
#include "record/record.h"
#include "db_dir.h"
#include "record_sample.h"

static struct ltn_record *open_record(void)
{
    struct ltn_record *r = NULL;
    struct ltn_errinfo info = {0};
    int rc = ltn_record_open(
        &(struct ltn_record_opts){
            .path = path, .node = "n", .record_calls = true, .commit_ms = 5, .retry_ms = 20},
        &r, &info);
    if (rc == 0) {
        rc = ltn_record_start(r);
    }
    if (rc != 0) {
        fail_msg("open: %d %s", rc, info.msg);
    }
    return r;
}

static void nap(void)
{
    (void)nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
}

static uint64_t dropped(const struct ltn_record_flow *f)
{
    uint64_t n = 0;
    for (int i = 0; i < LTN_RECORD_DROPS; i++) {
        n += f->dropped[i];
    }
    return n;
}

static int64_t count(const char *sql)
{
    struct ltn_record_reader *r = NULL;
    int64_t n = -1;
    assert_int_equal(ltn_record_reader_open(path, &r, NULL), 0);
    assert_int_equal(ltn_db_get_i64(ltn_record_reader_db(r), sql, &n), 0);
    ltn_record_reader_close(r);
    return n;
}

static bool wait_degraded(struct ltn_record *r, bool want)
{
    struct ltn_record_stats s;
    uint64_t deadline = ltn_now_mono_ns() + 20 * LTN_NS_PER_S;
    do {
        nap();
        ltn_record_stats(r, &s);
    } while (s.degraded != want && ltn_now_mono_ns() < deadline);
    return s.degraded == want;
}

static void send_calls(struct ltn_record *r, unsigned n)
{
    struct ltn_call_batch *b = sample_calls(0, n);
    if (ltn_record_send_calls(r, b) != 0) {
        free(b);
        nap();
    }
}

static void send_window(struct ltn_record *r, unsigned n)
{
    struct ltn_window *w = sample_window(n);
    if (ltn_record_send_window(r, w) != 0) {
        ltn_window_free(w);
        nap();
    }
}

/* Until nothing waits any more: a thread that is late would have the next window find no room. */
static void wait_written(struct ltn_record *r)
{
    struct ltn_record_stats s;
    for (int i = 0; i < 2000; i++) {
        ltn_record_stats(r, &s);
        if (s.windows.stored + dropped(&s.windows) == s.windows.received) {
            return;
        }
        nap();
    }
}

static void a_full_disk_degrades_and_recovers(void **state)
{
    (void)state;
    if (geteuid() != 0 || mount("tmpfs", dir, "tmpfs", 0, "size=2m") != 0) {
        print_message("SKIPPED: needs root and mount(2) for a small file system\n");
        skip();
    }
    struct ltn_record *r = open_record();
    struct ltn_record_stats s;
    unsigned windows = 0;
    for (unsigned i = 0; i < 2000; i++) {
        send_calls(r, 1000);
        ltn_record_stats(r, &s);
        if (s.degraded) {
            break;
        }
        nap();
    }
    assert_true(wait_degraded(r, true));
    /* More than memory keeps, of both kinds. */
    for (unsigned i = 0; i < 200; i++) {
        send_window(r, windows++);
        send_calls(r, 1000);
        nap();
    }
    ltn_record_stats(r, &s);
    assert_true(s.degraded);
    assert_true(s.windows.dropped[LTN_RECORD_DROP_DISK] > 0);
    assert_true(s.calls.dropped[LTN_RECORD_DROP_DISK] > 0);
    assert_true(s.failed_commits > 0);
    assert_int_equal(mount("tmpfs", dir, "tmpfs", MS_REMOUNT, "size=64m"), 0);
    assert_true(wait_degraded(r, false));
    wait_written(r);
    send_window(r, windows++);
    ltn_record_stop(r);
    ltn_record_stats(r, &s);
    assert_int_equal(s.windows.received, windows);
    assert_int_equal(s.windows.stored + dropped(&s.windows), windows);
    assert_int_equal(s.calls.stored + dropped(&s.calls), s.calls.received);
    assert_int_equal(count("SELECT count(*) FROM windows"), s.windows.stored);
    assert_int_equal(count("SELECT count(*) FROM calls"), s.calls.stored);
    /* The newest were kept. */
    assert_int_equal(count("SELECT max(sequence) FROM windows"), windows);
    assert_true(s.windows.stored >= 32);
    ltn_record_close(r);
}

static void stopping_while_degraded_counts_the_rest(void **state)
{
    (void)state;
    if (geteuid() != 0 || mount("tmpfs", dir, "tmpfs", 0, "size=1m") != 0) {
        print_message("SKIPPED: needs root and mount(2) for a small file system\n");
        skip();
    }
    struct ltn_record *r = open_record();
    struct ltn_record_stats s;
    do {
        send_calls(r, 1000);
        ltn_record_stats(r, &s);
    } while (!s.degraded);
    for (unsigned i = 0; i < 5; i++) {
        send_window(r, i);
    }
    ltn_record_stop(r);
    ltn_record_stats(r, &s);
    assert_int_equal(s.windows.received, 5);
    assert_int_equal(s.windows.stored + dropped(&s.windows), 5);
    assert_int_equal(s.calls.stored + dropped(&s.calls), s.calls.received);
    assert_int_equal(count("SELECT count(*) FROM calls"), s.calls.stored);
    ltn_record_close(r);
}

static void scribble(off_t from, off_t to)
{
    char noise[4096];
    memset(noise, 0x5a, sizeof(noise));
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    for (off_t at = from; at < to; at += (off_t)sizeof(noise)) {
        assert_int_equal(pwrite(fd, noise, sizeof(noise), at), sizeof(noise));
    }
    (void)close(fd);
}

static void damage_at_start_is_said(void **state)
{
    (void)state;
    struct ltn_record *r = open_record();
    send_window(r, 0);
    ltn_record_close(r);
    scribble(4096, 200000);
    r = open_record();
    assert_non_null(strstr(ltn_record_moved(r), "r.db.corrupt-"));
    assert_int_equal(access(ltn_record_moved(r), F_OK), 0);
    send_window(r, 1);
    struct ltn_record_stats s;
    ltn_record_stop(r);
    ltn_record_stats(r, &s);
    assert_int_equal(s.replaced_files, 1);
    assert_int_equal(s.windows.stored, 1);
    assert_int_equal(count("SELECT count(*) FROM windows"), 1);
    ltn_record_close(r);
}

static void damage_while_running_begins_a_new_file(void **state)
{
    (void)state;
    struct ltn_record *r = open_record();
    struct ltn_record_stats s;
    for (unsigned i = 0; i < 60; i++) {
        send_window(r, i);
        send_calls(r, 1000);
        nap();
    }
    /* Everything moves from the log into the file, then the file is damaged under the writer. */
    do {
        nap();
        ltn_record_stats(r, &s);
    } while (s.windows.waiting > 0 || s.calls.waiting > 0);
    struct ltn_db *other = NULL;
    assert_int_equal(ltn_db_open(&(struct ltn_db_opts){.path = path}, &other, NULL), 0);
    assert_int_equal(ltn_db_checkpoint(other, true), 0);
    ltn_db_close(other);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    scribble(8192, st.st_size & ~4095);
    uint64_t deadline = ltn_now_mono_ns() + 20 * LTN_NS_PER_S;
    unsigned n = 60;
    do {
        send_window(r, n++);
        send_calls(r, 5000);
        nap();
        ltn_record_stats(r, &s);
    } while (s.replaced_files == 0 && ltn_now_mono_ns() < deadline);
    assert_int_equal(s.replaced_files, 1);
    assert_true(wait_degraded(r, false));
    send_window(r, n++);
    ltn_record_stop(r);
    ltn_record_stats(r, &s);
    assert_int_equal(s.windows.received, n);
    assert_int_equal(s.windows.stored + dropped(&s.windows), n);
    assert_int_equal(s.calls.stored + dropped(&s.calls), s.calls.received);
    assert_true(count("SELECT count(*) FROM windows WHERE sequence = (SELECT max(sequence) FROM "
                      "windows)") == 1);
    ltn_record_close(r);
}

static void a_deleted_file_is_made_anew(void **state)
{
    (void)state;
    struct ltn_record *r = open_record();
    struct ltn_record_stats s;
    send_window(r, 0);
    do {
        nap();
        ltn_record_stats(r, &s);
    } while (s.windows.waiting > 0);
    assert_int_equal(unlink(path), 0);
    uint64_t deadline = ltn_now_mono_ns() + 20 * LTN_NS_PER_S;
    do {
        nap();
        ltn_record_stats(r, &s);
    } while (s.replaced_files == 0 && ltn_now_mono_ns() < deadline);
    assert_int_equal(s.replaced_files, 1);
    send_window(r, 1);
    send_calls(r, 10);
    ltn_record_stop(r);
    ltn_record_stats(r, &s);
    assert_int_equal(s.windows.stored, 2);
    assert_int_equal(count("SELECT count(*) FROM windows"), 1);
    assert_int_equal(count("SELECT count(*) FROM events"), 10);
    ltn_record_close(r);
}

static void wait_stored(struct ltn_record *r)
{
    struct ltn_record_stats s;
    do {
        nap();
        ltn_record_stats(r, &s);
    } while (s.windows.waiting > 0);
}

/* Also what comes before the next upkeep is stored where it can be found. */
static void what_is_stored_after_a_deletion_is_there(void **state)
{
    (void)state;
    struct ltn_record *r = open_record();
    struct ltn_record_stats s;
    for (unsigned i = 0; i < 3; i++) {
        send_window(r, i);
        wait_stored(r);
        assert_int_equal(count("SELECT count(*) FROM windows"), 1);
        assert_int_equal(unlink(path), 0);
    }
    send_window(r, 3);
    ltn_record_stop(r);
    ltn_record_stats(r, &s);
    assert_int_equal(s.windows.stored, 4);
    assert_int_equal(s.replaced_files, 3);
    assert_int_equal(count("SELECT count(*) FROM windows"), 1);
    ltn_record_close(r);
}

static void scribble_file(const char *name)
{
    char noise[8192];
    memset(noise, 0x5a, sizeof(noise));
    int fd = open(name, O_WRONLY | O_CLOEXEC);
    assert_int_equal(pwrite(fd, noise, sizeof(noise), 0), sizeof(noise));
    (void)close(fd);
}

/* The writer has all pages in its cache, so nothing but a look at the files tells. */
static void overwritten_files_are_noticed_at_the_next_commit(void **state)
{
    (void)state;
    char log[80];
    struct ltn_record *r = open_record();
    struct ltn_record_stats s;
    send_window(r, 0);
    wait_stored(r);
    (void)snprintf(log, sizeof(log), "%s-wal", path);
    scribble_file(path);
    scribble_file(log);
    send_window(r, 1);
    wait_stored(r);
    ltn_record_stats(r, &s);
    assert_int_equal(s.replaced_files, 1);
    assert_false(s.degraded);
    assert_int_equal(count("SELECT count(*) FROM windows"), 1);
    ltn_record_close(r);
}

static void a_foreign_file_in_its_place_is_not_touched(void **state)
{
    (void)state;
    char text[16] = "";
    struct ltn_record *r = open_record();
    send_window(r, 0);
    wait_stored(r);
    assert_int_equal(unlink(path), 0);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(write(fd, "mine", 4), 4);
    send_window(r, 1);
    assert_true(wait_degraded(r, true));
    assert_int_equal(pread(fd, text, sizeof(text), 0), 4);
    assert_memory_equal(text, "mine", 4);
    (void)close(fd);
    assert_int_equal(unlink(path), 0);
    assert_true(wait_degraded(r, false));
    assert_int_equal(count("SELECT count(*) FROM windows"), 1);
    ltn_record_close(r);
}

static void a_second_writer_is_refused(void **state)
{
    (void)state;
    struct ltn_record *r = open_record();
    struct ltn_record *second = NULL;
    struct ltn_errinfo info = {0};
    char want[64];
    assert_int_equal(
        ltn_record_open(&(struct ltn_record_opts){.path = path, .node = "n", .lock_wait_ms = 1},
                        &second, &info),
        LTN_ERR_BUSY);
    (void)snprintf(want, sizeof(want), "another agent (pid %d) writes this database", getpid());
    assert_non_null(strstr(info.msg, want));
    send_window(r, 0);
    wait_stored(r);
    assert_int_equal(count("SELECT count(*) FROM windows"), 1);
    ltn_record_close(r);
    ltn_record_close(open_record());
}

static void what_the_schema_refuses_goes_alone(void **state)
{
    (void)state;
    struct ltn_record *r = open_record();
    struct ltn_record_stats s;
    struct ltn_window *twice = sample_window(1);
    struct ltn_op_window *ops = (struct ltn_op_window *)(uintptr_t)twice->procs[0].ops;
    ops[1].op = ops[0].op; /* the same op twice in a process */
    send_window(r, 0);
    assert_int_equal(ltn_record_send_window(r, twice), 0);
    send_window(r, 2);
    send_calls(r, 10);
    ltn_record_stop(r);
    ltn_record_stats(r, &s);
    assert_int_equal(s.windows.received, 3);
    assert_int_equal(s.windows.stored, 2);
    assert_int_equal(s.windows.dropped[LTN_RECORD_DROP_INVALID], 1);
    assert_int_equal(s.calls.stored, 10);
    assert_int_equal(count("SELECT count(*) FROM windows"), 2);
    assert_int_equal(count("SELECT count(*) FROM op_windows WHERE window_id NOT IN (SELECT id FROM "
                           "windows)"),
                     0);
    assert_int_equal(count("SELECT count(*) FROM calls c JOIN procs p ON p.id = c.proc_id"), 10);
    ltn_record_close(r);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, make_dir, drop_dir)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_full_disk_degrades_and_recovers),
        TEST(stopping_while_degraded_counts_the_rest),
        TEST(damage_at_start_is_said),
        TEST(damage_while_running_begins_a_new_file),
        TEST(a_deleted_file_is_made_anew),
        TEST(what_is_stored_after_a_deletion_is_there),
        TEST(overwritten_files_are_noticed_at_the_next_commit),
        TEST(a_foreign_file_in_its_place_is_not_touched),
        TEST(a_second_writer_is_refused),
        TEST(what_the_schema_refuses_goes_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
