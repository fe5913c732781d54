/* SPDX-License-Identifier: Apache-2.0 */
/* What goes wrong with files: full disk, read-only, damaged, writer killed. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "drop_tree.h"
#include "sql/claim.h"
#include "sql/db.h"
#include "sql/db_query.h"

static char dir[32];
static char path[64];

static int make_dir(void **state)
{
    (void)state;
    (void)snprintf(dir, sizeof(dir), "/tmp/ltn-sqlf-XXXXXX");
    if (mkdtemp(dir) == NULL) {
        return -1;
    }
    (void)snprintf(path, sizeof(path), "%s/t.db", dir);
    return 0;
}

static int drop_dir(void **state)
{
    (void)state;
    (void)umount2(dir, MNT_DETACH);
    return ltn_drop_tree(dir);
}

static struct ltn_db *open_db(char *moved)
{
    struct ltn_db *db = NULL;
    struct ltn_errinfo info = {0};
    struct ltn_db_claim claim;
    ltn_db_claim_init(&claim, LTN_DB_NODE, "test", NULL);
    int rc = ltn_db_open_or_recover(&(struct ltn_db_opts){.path = path}, &claim, &db, moved, &info);
    ltn_db_claim_done(&claim);
    if (rc != 0) {
        fail_msg("open: %d %s", rc, info.msg);
    }
    return db;
}

static bool small_disk(void)
{
    if (geteuid() != 0 || mount("tmpfs", dir, "tmpfs", 0, "size=1m") != 0) {
        print_message("SKIPPED: needs root and mount(2) for a small file system\n");
        return false;
    }
    return true;
}

static void full_disk_is_a_disk_error_and_passes(void **state)
{
    (void)state;
    if (!small_disk()) {
        skip();
    }
    struct ltn_db *db = open_db(NULL);
    assert_int_equal(ltn_db_exec(db, "CREATE TABLE t (a)"), 0);
    int rc = 0;
    int64_t stored = 0;
    for (int i = 0; i < 1000 && rc == 0; i++) {
        rc = ltn_db_exec(db, "INSERT INTO t VALUES (zeroblob(10000))");
        stored += rc == 0;
    }
    assert_int_equal(rc, LTN_ERR_DISK);
    int64_t n = -1;
    assert_int_equal(ltn_db_get_i64(db, "SELECT count(*) FROM t", &n), 0);
    assert_int_equal(n, stored);
    assert_int_equal(mount("tmpfs", dir, "tmpfs", MS_REMOUNT, "size=4m"), 0);
    assert_int_equal(ltn_db_exec(db, "INSERT INTO t VALUES (zeroblob(10000))"), 0);
    ltn_db_close(db);
}

static void read_only_file(void **state)
{
    (void)state;
    if (!small_disk()) {
        skip();
    }
    struct ltn_db *db = open_db(NULL);
    assert_int_equal(ltn_db_exec(db, "CREATE TABLE t (a); INSERT INTO t VALUES (7)"), 0);
    ltn_db_close(db);
    assert_int_equal(mount("tmpfs", dir, "tmpfs", MS_REMOUNT | MS_RDONLY, "size=1m"), 0);
    struct ltn_errinfo info = {0};
    assert_int_equal(ltn_db_open(&(struct ltn_db_opts){.path = path}, &db, &info), LTN_ERR_DISK);
    assert_non_null(strstr(info.msg, path));
    /* Reading still works. */
    int64_t n = 0;
    assert_int_equal(ltn_db_open_readonly(path, &db, &info), 0);
    assert_int_equal(ltn_db_get_i64(db, "SELECT a FROM t", &n), 0);
    assert_int_equal(n, 7);
    assert_int_equal(ltn_db_exec(db, "INSERT INTO t VALUES (8)"), LTN_ERR_DISK);
    ltn_db_close(db);
}

static void check_recovered(const char *kind)
{
    char moved[LTN_DB_PATH_BYTES] = "";
    struct ltn_db *db = open_db(moved);
    int64_t n = -1;
    if (strstr(moved, "/t.db.corrupt-") == NULL || access(moved, F_OK) != 0) {
        fail_msg("%s: not moved aside but to \"%s\"", kind, moved);
    }
    assert_int_equal(ltn_db_get_i64(db, "SELECT count(*) FROM sqlite_master", &n), 0);
    assert_int_equal(n, 0);
    ltn_db_close(db);
    db = open_db(moved);
    assert_string_equal(moved, "");
    ltn_db_close(db);
}

static void fill(void)
{
    struct ltn_db *db = open_db(NULL);
    assert_int_equal(ltn_db_exec(db,
                                 "CREATE TABLE t (a); WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL "
                                 "SELECT i + 1 FROM n LIMIT 500) INSERT INTO t SELECT "
                                 "randomblob(500) FROM n"),
                     0);
    assert_int_equal(ltn_db_checkpoint(db, true), 0);
    ltn_db_close(db);
}

static void damaged_files_are_moved_aside(void **state)
{
    (void)state;
    char noise[8192];
    memset(noise, 'x', sizeof(noise));
    fill();
    assert_int_equal(truncate(path, 60000), 0);
    check_recovered("cut short");
    fill();
    int fd = open(path, O_RDWR | O_CLOEXEC);
    for (off_t at = 8192; at < 200000; at += 8192) {
        assert_int_equal(pwrite(fd, noise, 4096, at), 4096);
    }
    (void)close(fd);
    check_recovered("pages overwritten");
}

static void damage_met_later_has_its_code(void **state)
{
    (void)state;
    fill();
    struct ltn_db *db = open_db(NULL);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    char noise[4096];
    memset(noise, 0xee, sizeof(noise));
    for (off_t at = 4096; at < 200000; at += 4096) {
        assert_int_equal(pwrite(fd, noise, sizeof(noise), at), sizeof(noise));
    }
    (void)close(fd);
    struct ltn_db *reader = NULL;
    int rc = ltn_db_open_readonly(path, &reader, NULL);
    if (rc == 0) {
        int64_t n;
        rc = ltn_db_get_i64(reader, "SELECT sum(length(a)) FROM t", &n);
    }
    assert_int_equal(rc, LTN_ERR_CORRUPT);
    ltn_db_close(reader);
    ltn_db_close(db);
}

static void write_and_die(int ready)
{
    struct ltn_db *db = NULL;
    struct ltn_db_claim claim;
    ltn_db_claim_init(&claim, LTN_DB_NODE, "test", NULL);
    if (ltn_db_open_or_recover(&(struct ltn_db_opts){.path = path}, &claim, &db, NULL, NULL) != 0 ||
        ltn_db_exec(db, "CREATE TABLE t (a)") != 0 || ltn_db_begin(db) != 0 ||
        ltn_db_exec(db, "INSERT INTO t VALUES (1)") != 0 || ltn_db_commit(db) != 0 ||
        ltn_db_begin(db) != 0 ||
        ltn_db_exec(db,
                    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 20000) "
                    "INSERT INTO t SELECT randomblob(1000) FROM n") != 0) {
        _exit(1);
    }
    if (write(ready, "x", 1) != 1) {
        _exit(2);
    }
    for (;;) {
        (void)pause();
    }
}

static void killed_in_mid_transaction(void **state)
{
    (void)state;
    int ready[2];
    char x;
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0) {
        write_and_die(ready[1]);
    }
    (void)close(ready[1]);
    assert_int_equal(read(ready[0], &x, 1), 1);
    (void)close(ready[0]);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    char moved[LTN_DB_PATH_BYTES];
    struct ltn_db *db = open_db(moved);
    int64_t n = -1;
    assert_string_equal(moved, "");
    assert_int_equal(ltn_db_get_i64(db, "SELECT count(*) FROM t", &n), 0);
    assert_int_equal(n, 1);
    assert_int_equal(ltn_db_exec(db, "INSERT INTO t VALUES (2)"), 0);
    ltn_db_close(db);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(full_disk_is_a_disk_error_and_passes, make_dir, drop_dir),
        cmocka_unit_test_setup_teardown(read_only_file, make_dir, drop_dir),
        cmocka_unit_test_setup_teardown(damaged_files_are_moved_aside, make_dir, drop_dir),
        cmocka_unit_test_setup_teardown(damage_met_later_has_its_code, make_dir, drop_dir),
        cmocka_unit_test_setup_teardown(killed_in_mid_transaction, make_dir, drop_dir),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
