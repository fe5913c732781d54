/* SPDX-License-Identifier: Apache-2.0 */
/* Whose file it is: what is not ours stays as it is, to the byte. One writer at a time. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "drop_tree.h"
#include "sql/claim.h"
#include "sql/db.h"

static const char *const tables[] = {"one", "two", NULL};

static char dir[32];
static char path[64];
static char lock_path[80];
static struct ltn_db_claim claim;
static struct ltn_db *db;
static struct ltn_errinfo info;
static char moved[LTN_DB_PATH_BYTES];

static int make_dir(void **state)
{
    (void)state;
    (void)snprintf(dir, sizeof(dir), "/tmp/ltn-claim-XXXXXX");
    if (mkdtemp(dir) == NULL) {
        return -1;
    }
    (void)snprintf(path, sizeof(path), "%s/t.db", dir);
    (void)snprintf(lock_path, sizeof(lock_path), "%s.lock", path);
    ltn_db_claim_init(&claim, LTN_DB_COLLECTOR, "collector", tables);
    claim.lock_wait_ms = 0;
    return 0;
}

static int drop_dir(void **state)
{
    (void)state;
    ltn_db_close(db);
    db = NULL;
    ltn_db_claim_done(&claim);
    return ltn_drop_tree(dir);
}

static int try_open(void)
{
    memset(&info, 0, sizeof(info));
    return ltn_db_open_or_recover(&(struct ltn_db_opts){.path = path}, &claim, &db, moved, &info);
}

static void close_all(void)
{
    ltn_db_close(db);
    db = NULL;
    ltn_db_claim_done(&claim);
}

static size_t slurp(char *out, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    ssize_t n = read(fd, out, size);
    (void)close(fd);
    assert_true(n >= 0);
    return (size_t)n;
}

/* Refused with the words; the file keeps its bytes and its mode, and nothing appears beside it. */
static void check_refused(const char *words)
{
    static char before[65536];
    static char after[65536];
    char side[96];
    struct stat st[2];
    size_t n = slurp(before, sizeof(before));
    assert_int_equal(stat(path, &st[0]), 0);
    assert_int_equal(try_open(), LTN_ERR_UNSUPPORTED);
    if (strstr(info.msg, words) == NULL || strstr(info.msg, path) == NULL) {
        fail_msg("no \"%s\" in \"%s\"", words, info.msg);
    }
    assert_string_equal(moved, "");
    assert_int_equal(slurp(after, sizeof(after)), n);
    assert_memory_equal(before, after, n);
    assert_int_equal(stat(path, &st[1]), 0);
    assert_int_equal(st[0].st_ino, st[1].st_ino);
    assert_int_equal(st[0].st_mode, st[1].st_mode);
    assert_true(st[0].st_mtim.tv_sec == st[1].st_mtim.tv_sec &&
                st[0].st_mtim.tv_nsec == st[1].st_mtim.tv_nsec);
    static const char *const sides[] = {".lock", "-wal", "-shm", "-journal"};
    for (size_t i = 0; i < LTN_ARRAY_SIZE(sides); i++) {
        (void)snprintf(side, sizeof(side), "%s%s", path, sides[i]);
        assert_int_equal(access(side, F_OK), -1);
    }
    assert_int_equal(unlink(path), 0);
}

static void put(const void *bytes, size_t n)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    assert_int_equal(write(fd, bytes, n), n);
    (void)close(fd);
}

/* A database of somebody else, in rollback mode as most are. */
static void put_database(const char *sql)
{
    struct ltn_db *other = NULL;
    assert_int_equal(ltn_db_open(&(struct ltn_db_opts){.path = path}, &other, NULL), 0);
    assert_int_equal(ltn_db_exec(other, "PRAGMA journal_mode=DELETE"), 0);
    assert_int_equal(ltn_db_exec(other, sql), 0);
    ltn_db_close(other);
    assert_int_equal(chmod(path, 0644), 0);
}

static void foreign_files_are_not_touched(void **state)
{
    (void)state;
    static const char text[] = "root:x:0:0:root:/root:/bin/bash\n";
    char noise[8192];
    put(text, sizeof(text) - 1);
    check_refused("not a database");
    memset(noise, 'x', sizeof(noise));
    put(noise, sizeof(noise));
    check_refused("not a database");
    put("SQLite format 3", 16);
    check_refused("not a database");
    put_database("CREATE TABLE t (a)");
    check_refused("another program");
    put_database("CREATE TABLE one (a); CREATE VIEW two AS SELECT 1");
    check_refused("another program");
    put_database("PRAGMA user_version=3");
    check_refused("another program");
    put_database("PRAGMA application_id=7; CREATE TABLE one (a); CREATE TABLE two (a)");
    check_refused("another program");
    put_database("PRAGMA application_id=0x4c544e52; CREATE TABLE t (a)");
    check_refused("node's database");
}

static void a_foreign_database_in_wal_mode_is_not_touched(void **state)
{
    (void)state;
    struct ltn_db *other = NULL;
    assert_int_equal(ltn_db_open(&(struct ltn_db_opts){.path = path}, &other, NULL), 0);
    assert_int_equal(ltn_db_exec(other, "CREATE TABLE t (a)"), 0);
    ltn_db_close(other);
    check_refused("another program");
}

static void what_is_no_file_is_refused_at_once(void **state)
{
    (void)state;
    char to[64];
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(try_open(), LTN_ERR_UNSUPPORTED);
    assert_non_null(strstr(info.msg, "not a regular file"));
    assert_int_equal(ltn_db_open_readonly(path, &db, &info), LTN_ERR_UNSUPPORTED);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(try_open(), LTN_ERR_UNSUPPORTED);
    assert_int_equal(rmdir(path), 0);
    (void)snprintf(to, sizeof(to), "%s/target", dir);
    assert_int_equal(symlink(to, path), 0);
    assert_int_equal(try_open(), -ELOOP);
    assert_non_null(strstr(info.msg, "symbolic link"));
    assert_int_equal(access(to, F_OK), -1);
    assert_int_equal(access(lock_path, F_OK), -1);
}

/* The id stands in the file itself, also when the writer is killed before any checkpoint. */
static void new_files_carry_the_id_from_the_start(void **state)
{
    (void)state;
    static char bytes[65536];
    put("", 0);
    assert_int_equal(try_open(), 0);
    assert_true(slurp(bytes, sizeof(bytes)) >= 100);
    assert_memory_equal(bytes, "SQLite format 3", 16);
    assert_memory_equal(bytes + 68, "LTNC", 4);
    int64_t vacuum = 0;
    assert_int_equal(ltn_db_get_i64(db, "PRAGMA auto_vacuum", &vacuum), 0);
    assert_int_equal(vacuum, 2);
}

static void a_file_from_before_the_id_is_known_by_its_tables(void **state)
{
    (void)state;
    static char bytes[65536];
    put_database("CREATE TABLE one (a); CREATE TABLE two (a); INSERT INTO two VALUES (5)");
    assert_int_equal(try_open(), 0);
    int64_t n = 0;
    assert_int_equal(ltn_db_get_i64(db, "SELECT a FROM two", &n), 0);
    assert_int_equal(n, 5);
    close_all();
    (void)slurp(bytes, sizeof(bytes));
    assert_memory_equal(bytes + 68, "LTNC", 4);
    assert_int_equal(try_open(), 0);
}

static void files_of_ours_become_private(void **state)
{
    (void)state;
    static const char *const sides[] = {"", "-wal", "-shm"};
    char name[96];
    struct stat st;
    struct ltn_db *reader = NULL;
    assert_int_equal(try_open(), 0);
    assert_int_equal(ltn_db_exec(db, "CREATE TABLE t (a)"), 0);
    /* A reader keeps the side files where they are. */
    assert_int_equal(ltn_db_open_readonly(path, &reader, NULL), 0);
    ltn_db_close(db);
    for (size_t i = 0; i < LTN_ARRAY_SIZE(sides); i++) {
        (void)snprintf(name, sizeof(name), "%s%s", path, sides[i]);
        assert_int_equal(chmod(name, 0644), 0);
    }
    assert_int_equal(try_open(), 0);
    for (size_t i = 0; i < LTN_ARRAY_SIZE(sides); i++) {
        (void)snprintf(name, sizeof(name), "%s%s", path, sides[i]);
        assert_int_equal(stat(name, &st), 0);
        assert_int_equal(st.st_mode & 0777, 0600);
    }
    assert_int_equal(stat(lock_path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    ltn_db_close(reader);
}

static void hold_and_wait(int ready)
{
    if (try_open() != 0 || write(ready, "x", 1) != 1) {
        _exit(1);
    }
    for (;;) {
        (void)pause();
    }
}

static void one_writer_at_a_time(void **state)
{
    (void)state;
    int ready[2];
    char x;
    char want[64];
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0) {
        hold_and_wait(ready[1]);
    }
    (void)close(ready[1]);
    assert_int_equal(read(ready[0], &x, 1), 1);
    (void)close(ready[0]);
    assert_int_equal(try_open(), LTN_ERR_BUSY);
    (void)snprintf(want, sizeof(want), "another collector (pid %d) writes this database", pid);
    assert_non_null(strstr(info.msg, want));
    assert_int_equal(ltn_db_open_readonly(path, &db, &info), 0);
    ltn_db_close(db);
    db = NULL;
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(try_open(), 0);
}

static void a_foreign_lock_file_is_not_touched(void **state)
{
    (void)state;
    char got[16] = "";
    int fd = open(lock_path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(write(fd, "precious\n", 9), 9);
    assert_int_equal(try_open(), LTN_ERR_UNSUPPORTED);
    assert_non_null(strstr(info.msg, lock_path));
    assert_int_equal(pread(fd, got, sizeof(got), 0), 9);
    assert_memory_equal(got, "precious\n", 9);
    (void)close(fd);
    assert_int_equal(access(path, F_OK), -1);
}

static void overwrite(const char *name)
{
    char noise[8192];
    memset(noise, 0x5a, sizeof(noise));
    int fd = open(name, O_WRONLY | O_CLOEXEC);
    assert_int_equal(pwrite(fd, noise, sizeof(noise), 0), sizeof(noise));
    (void)close(fd);
}

static void open_with_rows(void)
{
    assert_int_equal(try_open(), 0);
    assert_int_equal(ltn_db_exec(db, "CREATE TABLE IF NOT EXISTS t (a)"), 0);
    assert_int_equal(ltn_db_begin(db), 0);
    assert_int_equal(ltn_db_exec(db, "INSERT INTO t VALUES (1)"), 0);
    assert_int_equal(ltn_db_commit(db), 0);
    assert_int_equal(ltn_db_look(db), 0);
}

static void a_look_notices_what_happened_to_the_file(void **state)
{
    (void)state;
    char log[80];
    (void)snprintf(log, sizeof(log), "%s-wal", path);
    open_with_rows();
    overwrite(log);
    assert_int_equal(ltn_db_look(db), LTN_ERR_CORRUPT);
    close_all();
    open_with_rows();
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(ltn_db_look(db), LTN_ERR_CORRUPT);
    close_all();
    assert_int_equal(unlink(path), 0);
    open_with_rows();
    assert_int_equal(unlink(path), 0);
    assert_int_equal(ltn_db_look(db), LTN_ERR_NOT_FOUND);
}

/* The header is gone, so only who had it open knows whose it was; not so after another one came in
 * its place. */
static void a_file_that_was_open_is_known_without_its_header(void **state)
{
    (void)state;
    char aside[64];
    char log[80];
    (void)snprintf(log, sizeof(log), "%s-wal", path);
    open_with_rows();
    overwrite(path);
    overwrite(log);
    assert_int_equal(ltn_db_look(db), LTN_ERR_CORRUPT);
    ltn_db_claim_file(&claim, db);
    ltn_db_close(db);
    db = NULL;
    assert_int_equal(try_open(), 0);
    assert_non_null(strstr(moved, "/t.db.corrupt-"));
    assert_int_equal(access(moved, F_OK), 0);
    (void)snprintf(aside, sizeof(aside), "%s/aside", dir);
    assert_int_equal(rename(path, aside), 0);
    put("mine", 4);
    ltn_db_claim_file(&claim, db);
    ltn_db_close(db);
    db = NULL;
    assert_int_equal(try_open(), LTN_ERR_UNSUPPORTED);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, make_dir, drop_dir)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(foreign_files_are_not_touched),
        TEST(a_foreign_database_in_wal_mode_is_not_touched),
        TEST(what_is_no_file_is_refused_at_once),
        TEST(new_files_carry_the_id_from_the_start),
        TEST(a_file_from_before_the_id_is_known_by_its_tables),
        TEST(files_of_ours_become_private),
        TEST(one_writer_at_a_time),
        TEST(a_foreign_lock_file_is_not_touched),
        TEST(a_look_notices_what_happened_to_the_file),
        TEST(a_file_that_was_open_is_known_without_its_header),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
