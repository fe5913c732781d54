/* SPDX-License-Identifier: Apache-2.0 */
/* Whose file it is, one writer at a time, damaged files moved aside. */
#include "sql/claim.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "sql/internal.h"

/* The file format fixes both: the header's length, and where the application id stands in it. */
#define HEADER_BYTES   100
#define APPLICATION_AT 68

#define LOCK_WAIT_MS  15000
#define LOCK_RETRY_MS 50
#define LOCK_TELL_MS  1000

static const char magic[16] = "SQLite format 3";

void ltn_db_claim_init(struct ltn_db_claim *c, uint32_t application_id, const char *writer,
                       const char *const *tables)
{
    *c = (struct ltn_db_claim){.application_id = application_id,
                               .writer = writer,
                               .tables = tables,
                               .lock_wait_ms = LOCK_WAIT_MS,
                               .lock_fd = -1};
}

void ltn_db_claim_done(struct ltn_db_claim *c)
{
    if (c->lock_fd >= 0) {
        (void)close(c->lock_fd);
        c->lock_fd = -1;
    }
}

void ltn_db_claim_file(struct ltn_db_claim *c, struct ltn_db *db)
{
    struct stat st;
    c->known = !ltn_db_moved(db) && lstat(db->path, &st) == 0;
    if (c->known) {
        c->dev = st.st_dev;
        c->ino = st.st_ino;
    }
}

static uint32_t be32(const unsigned char *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* ---- whose file ---- */

enum file_kind {
    FILE_NEW,  /* missing or empty */
    FILE_OURS, /* by its header, or known from before */
};

static int refuse(struct ltn_errinfo *info, const char *path, const char *what)
{
    return ltn_errinfo_set(info, LTN_ERR_UNSUPPORTED, "%s: %s; it was not touched", path, what);
}

static int refuse_id(struct ltn_errinfo *info, const char *path, uint32_t id)
{
    switch (id) {
    case LTN_DB_NODE:
        return refuse(info, path, "this is a node's database, as the agent writes it");
    case LTN_DB_COLLECTOR:
        return refuse(info, path, "this is a collector's database");
    default:
        return refuse(info, path, "a database of another program");
    }
}

/* Opens what was looked at and nothing else: opening a device can do things by itself, opening a
 * FIFO can wait for ever. */
static int open_regular(const char *path, const struct stat *seen, int flags)
{
    struct stat st;
    int fd = open(path, flags | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0) {
        return -errno;
    }
    if (fstat(fd, &st) != 0 || st.st_dev != seen->st_dev || st.st_ino != seen->st_ino) {
        (void)close(fd);
        return -EAGAIN;
    }
    return fd;
}

/* Bytes of the header that are there, or -errno. */
static ssize_t read_header(const char *path, const struct stat *seen, unsigned char *header)
{
    int fd = open_regular(path, seen, O_RDONLY);
    if (fd < 0) {
        return fd;
    }
    ssize_t n = pread(fd, header, HEADER_BYTES, 0);
    int error = errno;
    (void)close(fd);
    return n < 0 ? -error : n;
}

static bool has_table(struct ltn_db *db, const char *name)
{
    struct ltn_stmt *s;
    int rc =
        ltn_db_prepare(db, "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", &s);
    if (rc == 0) {
        ltn_stmt_text(s, 1, name);
        rc = ltn_stmt_step(s);
        ltn_stmt_reset(s);
    }
    return rc == 1;
}

/* True for a file without an id that has all of our tables. Only reads: without a log not even
 * side files are made. */
static bool has_our_tables(const char *path, const char *const *tables)
{
    struct ltn_db *db = NULL;
    bool ours = tables != NULL && tables[0] != NULL && ltn_sql_open_unchanged(path, &db) == 0;
    for (size_t i = 0; ours && tables[i] != NULL; i++) {
        ours = has_table(db, tables[i]);
    }
    ltn_db_close(db);
    return ours;
}

static int look_at_header(const char *path, const struct ltn_db_claim *c, const struct stat *st,
                          struct ltn_errinfo *info)
{
    unsigned char header[HEADER_BYTES];
    ssize_t n = read_header(path, st, header);
    if (n < 0) {
        return ltn_errinfo_set(info, (int)n, "%s: %s", path, ltn_err_str((int)n));
    }
    if (n < HEADER_BYTES || memcmp(header, magic, sizeof(magic)) != 0) {
        return refuse(info, path, "not a database");
    }
    uint32_t id = be32(header + APPLICATION_AT);
    if (id == c->application_id || (id == 0 && has_our_tables(path, c->tables))) {
        return FILE_OURS;
    }
    return refuse_id(info, path, id);
}

/* enum file_kind, or a refusal. */
static int inspect(const char *path, const struct ltn_db_claim *c, struct ltn_errinfo *info)
{
    struct stat st;
    if (lstat(path, &st) != 0) {
        int rc = -errno;
        return rc == -ENOENT ? (int)FILE_NEW
                             : ltn_errinfo_set(info, rc, "%s: %s", path, ltn_err_str(rc));
    }
    if (S_ISLNK(st.st_mode)) {
        return ltn_errinfo_set(info, -ELOOP, "%s: a symbolic link; name the file itself", path);
    }
    if (!S_ISREG(st.st_mode)) {
        return refuse(info, path, "not a regular file");
    }
    if (c->known && st.st_dev == c->dev && st.st_ino == c->ino) {
        return FILE_OURS;
    }
    return st.st_size == 0 ? (int)FILE_NEW : look_at_header(path, c, &st, info);
}

/* ---- one writer ---- */

/* The lock file holds the holder's process id and nothing else; a file with anything else in it is
 * not ours. -1: foreign; 0: nobody yet. */
static long read_holder(int fd)
{
    char text[24];
    uint64_t pid;
    ssize_t n = pread(fd, text, sizeof(text) - 1, 0);
    if (n == 0) {
        return 0;
    }
    if (n < 0 || text[n - 1] != '\n') {
        return -1;
    }
    text[n - 1] = '\0';
    return ltn_parse_u64(text, &pid) && pid <= INT32_MAX ? (long)pid : -1;
}

static int open_lock(const char *name, const struct ltn_db_opts *opts, struct ltn_errinfo *info)
{
    struct stat st;
    int fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd >= 0) {
        if (opts->own && fchown(fd, opts->uid, opts->gid) != 0) {
            int rc = -errno;
            (void)close(fd);
            return ltn_errinfo_set(info, rc, "%s: %s", name, ltn_err_str(rc));
        }
        return fd;
    }
    int rc = -errno;
    if (rc == -EEXIST && lstat(name, &st) == 0) {
        if (!S_ISREG(st.st_mode)) {
            return refuse(info, name, "not a lock file of this program");
        }
        fd = open_regular(name, &st, O_RDWR);
        if (fd >= 0 && read_holder(fd) < 0) {
            (void)close(fd);
            return refuse(info, name, "not a lock file of this program");
        }
        if (fd >= 0) {
            return fd;
        }
        rc = fd;
    }
    int code = ltn_sql_disk_error(rc);
    return ltn_errinfo_set(info, code, "%s: %s", name, ltn_err_str(rc));
}

/* True when the lock that is held still is the one that others would find. */
static bool lock_stands(const char *name, int fd)
{
    struct stat held;
    struct stat found;
    return fd >= 0 && fstat(fd, &held) == 0 && lstat(name, &found) == 0 &&
           held.st_dev == found.st_dev && held.st_ino == found.st_ino;
}

static void tell_waiting(const struct ltn_db_claim *c, const char *path, long pid)
{
    char text[LTN_DB_PATH_BYTES + 128];
    (void)snprintf(text, sizeof(text),
                   "another %s (pid %ld) writes %s; waiting up to %u s for it to end", c->writer,
                   pid, path, c->lock_wait_ms / 1000);
    c->waits(c->waits_ctx, text);
}

/* One that was killed holds its lock until the kernel is through with it, which with many probes
 * takes seconds: who is started in its place waits for that. */
static int wait_for_lock(int fd, const char *path, const struct ltn_db_claim *c)
{
    uint64_t begun = ltn_now_mono_ns(), until = begun + c->lock_wait_ms * LTN_NS_PER_MS;
    bool told = false;
    while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK) {
            return -errno;
        }
        uint64_t now = ltn_now_mono_ns();
        if (now >= until) {
            return LTN_ERR_BUSY;
        }
        if (!told && c->waits != NULL && now - begun >= LOCK_TELL_MS * LTN_NS_PER_MS) {
            told = true;
            tell_waiting(c, path, read_holder(fd));
        }
        (void)nanosleep(&(struct timespec){.tv_nsec = LOCK_RETRY_MS * 1000000L}, NULL);
    }
    return 0;
}

/* A lock of its own file: the engine's locks on the database belong to the process and would go
 * with any other descriptor of it. The kernel lets go of this one when the process ends. */
static int take_lock(const char *path, const struct ltn_db_opts *opts, struct ltn_db_claim *c,
                     struct ltn_errinfo *info)
{
    char name[LTN_DB_PATH_BYTES + 8];
    char text[24];
    (void)snprintf(name, sizeof(name), "%s.lock", path);
    if (lock_stands(name, c->lock_fd)) {
        return 0;
    }
    int fd = open_lock(name, opts, info);
    if (fd < 0) {
        return fd;
    }
    int rc = wait_for_lock(fd, path, c);
    if (rc < 0) {
        long pid = read_holder(fd);
        (void)close(fd);
        return rc == LTN_ERR_BUSY
                   ? ltn_errinfo_set(info, rc, "another %s (pid %ld) writes this database: %s",
                                     c->writer, pid, path)
                   : ltn_errinfo_set(info, rc, "%s: %s", name, ltn_err_str(rc));
    }
    if (!lock_stands(name, fd)) {
        (void)close(fd);
        return ltn_errinfo_set(info, LTN_ERR_BUSY, "%s: replaced while it was taken", name);
    }
    ltn_db_claim_done(c);
    c->lock_fd = fd;
    c->lock_wait_ms = 0; /* a running writer that must take it anew does not stand still */
    int n = snprintf(text, sizeof(text), "%ld\n", (long)getpid());
    /* The number is for the message only; a full disk must not keep anybody from starting. */
    if (ftruncate(fd, 0) != 0 || pwrite(fd, text, (size_t)n, 0) != n) {
        (void)!ftruncate(fd, 0);
    }
    return 0;
}

/* ---- damaged files ---- */

static int move_aside(const char *path, char moved[LTN_DB_PATH_BYTES])
{
    unsigned long long now_s = ltn_now_unix_ns() / LTN_NS_PER_S;
    int n = snprintf(moved, LTN_DB_PATH_BYTES, "%s.corrupt-%llu", path, now_s);
    if (n < 0 || n >= LTN_DB_PATH_BYTES - 8) {
        return -ENAMETOOLONG;
    }
    size_t room = LTN_DB_PATH_BYTES - (size_t)n;
    for (unsigned more = 1; access(moved, F_OK) == 0 && more < 1000; more++) {
        (void)snprintf(moved + n, room, "-%u", more);
    }
    if (rename(path, moved) != 0) {
        return -errno;
    }
    for (size_t i = 0; i < LTN_DB_SIDES; i++) {
        char from[LTN_DB_PATH_BYTES + 8];
        char to[LTN_DB_PATH_BYTES + 8];
        (void)snprintf(from, sizeof(from), "%s%s", path, ltn_db_sides[i]);
        (void)snprintf(to, sizeof(to), "%s%s", moved, ltn_db_sides[i]);
        if (rename(from, to) != 0 && errno != ENOENT) {
            return -errno;
        }
    }
    return 0;
}

/* 0 when the file is whole as far as a quick look can tell. quick_check of a large file would take
 * minutes, so only its first findings and the schema are looked at; damage elsewhere shows as
 * LTN_ERR_CORRUPT when it is met. */
static int look_for_damage(struct ltn_db *db)
{
    int64_t tables = 0;
    int rc = ltn_db_get_i64(db, "SELECT count(*) FROM sqlite_master", &tables);
    if (rc < 0) {
        return rc;
    }
    struct ltn_db_size size;
    rc = ltn_db_size(db, &size);
    if (rc < 0) {
        return rc;
    }
    struct stat st;
    uint64_t want = size.pages * size.page_bytes;
    bool log_is_empty = size.file_bytes <= want;
    if (db->path[0] != '\0' && log_is_empty && stat(db->path, &st) == 0 &&
        (uint64_t)st.st_size < want) {
        return LTN_ERR_CORRUPT; /* cut short */
    }
    if (want > (64ULL << 20)) {
        return 0;
    }
    struct ltn_stmt *s;
    rc = ltn_db_prepare(db, "PRAGMA quick_check(1)", &s);
    if (rc < 0) {
        return rc;
    }
    rc = ltn_stmt_step(s);
    if (rc == 1) {
        rc = strcmp(ltn_stmt_col_text(s, 0), "ok") == 0 ? 0 : LTN_ERR_CORRUPT;
        ltn_stmt_reset(s);
    }
    return rc;
}

/* Inspects, locks, and inspects again: the holder of the lock may have changed the file before it
 * let go. Nothing is made beside a file that is refused. */
static int claim(const char *path, const struct ltn_db_opts *opts, struct ltn_db_claim *c,
                 struct ltn_errinfo *info)
{
    int rc = inspect(path, c, info);
    if (rc < 0) {
        return rc;
    }
    rc = take_lock(path, opts, c, info);
    return rc < 0 ? rc : inspect(path, c, info);
}

static int open_checked(const struct ltn_db_opts *opts, const struct ltn_db_claim *c,
                        struct ltn_db **ret_db, struct ltn_errinfo *info)
{
    struct ltn_db *db = NULL;
    int rc = ltn_sql_open(opts, c->application_id, &db, info);
    if (rc < 0) {
        return rc;
    }
    rc = look_for_damage(db);
    if (rc < 0) {
        (void)ltn_errinfo_set(info, rc, "%s: %s", opts->path, ltn_db_message(db));
        /* Closing may write the log back into the file: that is as good as it gets. */
        ltn_db_close(db);
        return rc;
    }
    *ret_db = db;
    return 0;
}

int ltn_db_open_or_recover(const struct ltn_db_opts *opts, struct ltn_db_claim *c,
                           struct ltn_db **ret_db, char *ret_moved, struct ltn_errinfo *info)
{
    char path[LTN_DB_PATH_BYTES];
    char moved[LTN_DB_PATH_BYTES];
    if (ret_moved != NULL) {
        ret_moved[0] = '\0';
    }
    if (opts->path == NULL || opts->path[0] == '\0' || c->application_id == 0) {
        return ltn_errinfo_set(info, -EINVAL, "no database path given");
    }
    int rc = ltn_sql_find_place(opts, path);
    if (rc < 0) {
        return ltn_errinfo_set(info, rc, "%s: %s", opts->path, ltn_err_str(rc));
    }
    rc = claim(path, opts, c, info);
    /* An inode's number may come again, so it holds for one open only. */
    c->known = false;
    if (rc < 0) {
        return rc;
    }
    bool ours = rc == (int)FILE_OURS;
    rc = open_checked(opts, c, ret_db, info);
    if (rc != LTN_ERR_CORRUPT || !ours) {
        return rc;
    }
    rc = move_aside(path, moved);
    if (rc < 0) {
        return ltn_errinfo_set(info, rc, "%s: damaged, and cannot be moved aside: %s", path,
                               ltn_err_str(rc));
    }
    rc = ltn_sql_open(opts, c->application_id, ret_db, info);
    if (ret_moved != NULL) {
        (void)ltn_copy_str(ret_moved, LTN_DB_PATH_BYTES, moved);
    }
    return rc;
}

/* ---- while it is open ---- */

static bool has_header(sqlite3_file *file)
{
    unsigned char header[HEADER_BYTES];
    return file->pMethods->xRead(file, header, HEADER_BYTES, 0) == SQLITE_OK &&
           memcmp(header, magic, sizeof(magic)) == 0;
}

/* An empty log is as good as one that begins as it must. Only for a log that was written here: the
 * engine passes over a broken one that it finds, and writes it anew. */
static bool has_log_header(sqlite3_file *log)
{
    unsigned char start[32];
    sqlite3_int64 size = 0;
    if (log->pMethods->xFileSize(log, &size) != SQLITE_OK) {
        return false;
    }
    if (size < (sqlite3_int64)sizeof(start)) {
        return true;
    }
    return log->pMethods->xRead(log, start, sizeof(start), 0) == SQLITE_OK &&
           (be32(start) & ~1u) == 0x377f0682u;
}

/* Through the engine's own descriptors: closing another one would drop its locks. */
bool ltn_sql_log_is_whole(struct ltn_db *db)
{
    sqlite3_file *log = NULL;
    if (!db->log_written || db->path[0] == '\0') {
        return true;
    }
    (void)sqlite3_file_control(db->handle, "main", SQLITE_FCNTL_JOURNAL_POINTER, &log);
    return log == NULL || log->pMethods == NULL || has_log_header(log);
}

int ltn_db_look(struct ltn_db *db)
{
    sqlite3_file *file = NULL;
    if (db->path[0] == '\0') {
        return 0;
    }
    if (ltn_db_moved(db)) {
        return LTN_ERR_NOT_FOUND;
    }
    (void)sqlite3_file_control(db->handle, "main", SQLITE_FCNTL_FILE_POINTER, &file);
    bool whole =
        file != NULL && file->pMethods != NULL && has_header(file) && ltn_sql_log_is_whole(db);
    return whole ? 0 : LTN_ERR_CORRUPT;
}
