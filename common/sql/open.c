/* SPDX-License-Identifier: Apache-2.0 */
/* Opening and migrations. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"
#include "sql/internal.h"

#define DEFAULT_BUSY_MS     5000
#define DEFAULT_CACHE_BYTES (8ULL << 20)
/* The log is cut back to this after a checkpoint. */
#define WAL_KEEP_BYTES (16 << 20)

static int say(struct ltn_errinfo *info, int rc, const char *path, const char *detail)
{
    return ltn_errinfo_set(info, rc, "%s: %s", path, detail);
}

/* The engine's words, and the system's where they are the reason: a full disk is an "I/O error" to
 * the one and has a name with the other. */
static int say_engine(struct ltn_errinfo *info, struct ltn_db *db, int engine_rc)
{
    int cause = db->handle != NULL ? sqlite3_system_errno(db->handle) : 0;
    int code = ltn_sql_error(engine_rc);
    if (code == LTN_ERR_DISK && cause != 0) {
        return ltn_errinfo_set(info, code, "%s: %s (%s); make room, or give another --db", db->path,
                               sqlite3_errmsg(db->handle), ltn_err_str(-cause));
    }
    return say(info, ltn_sql_error(engine_rc), db->path[0] != '\0' ? db->path : ":memory:",
               db->handle != NULL ? sqlite3_errmsg(db->handle) : sqlite3_errstr(engine_rc));
}

/* Makes the folders above path; those made are given to the owner of the file. */
static int make_parents(const char *path, const struct ltn_db_opts *opts)
{
    char part[LTN_DB_PATH_BYTES];
    if (!ltn_copy_str(part, sizeof(part), path)) {
        return -ENAMETOOLONG;
    }
    for (char *slash = strchr(part + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        bool made = mkdir(part, 0755) == 0;
        bool failed = made ? opts->own && lchown(part, opts->uid, opts->gid) != 0 : errno != EEXIST;
        if (failed) {
            return -errno;
        }
        *slash = '/';
    }
    return 0;
}

/* Resolves the folder and keeps the last component, so that a link there can be refused while links
 * above it are fine. */
static int real_path(const char *path, char out[LTN_DB_PATH_BYTES])
{
    const char *slash = strrchr(path, '/');
    const char *name = slash != NULL ? slash + 1 : path;
    char dir[LTN_DB_PATH_BYTES];
    if (slash == NULL) {
        (void)ltn_copy_str(dir, sizeof(dir), ".");
    } else if (snprintf(dir, sizeof(dir), "%.*s/", (int)(slash - path), path) >= (int)sizeof(dir)) {
        return -ENAMETOOLONG;
    }
    char *real = realpath(dir, NULL);
    if (real == NULL) {
        return -errno;
    }
    int n = snprintf(out, LTN_DB_PATH_BYTES, "%s/%s", strcmp(real, "/") == 0 ? "" : real, name);
    free(real);
    return n < LTN_DB_PATH_BYTES - 32 ? 0 : -ENAMETOOLONG;
}

static int adopt_file(int fd, const struct ltn_db_opts *opts)
{
    struct stat st;
    if (fstat(fd, &st) != 0) {
        return -errno;
    }
    if (!S_ISREG(st.st_mode)) {
        return -EINVAL;
    }
    bool foreign = opts->own && (st.st_uid != opts->uid || st.st_gid != opts->gid);
    if (foreign && fchown(fd, opts->uid, opts->gid) != 0) {
        return -errno;
    }
    /* Names, paths and stacks of everybody's processes: for the owner only. Who is not the owner
     * must take the file as it is. */
    bool open_to_others = (st.st_mode & 077) != 0;
    return open_to_others && fchmod(fd, 0600) != 0 && errno != EPERM ? -errno : 0;
}

const char *const ltn_db_sides[LTN_DB_SIDES] = {"-wal", "-shm"};

/* The engine gives new side files the mode of the file; those from before are ours to tighten. */
static void tighten_side_files(const char *path)
{
    for (size_t i = 0; i < LTN_DB_SIDES; i++) {
        char name[LTN_DB_PATH_BYTES + 8];
        struct stat st;
        (void)snprintf(name, sizeof(name), "%s%s", path, ltn_db_sides[i]);
        if (lstat(name, &st) == 0 && S_ISREG(st.st_mode) && (st.st_mode & 077) != 0) {
            (void)chmod(name, 0600);
        }
    }
}

int ltn_sql_find_place(const struct ltn_db_opts *opts, char out[LTN_DB_PATH_BYTES])
{
    int rc = make_parents(opts->path, opts);
    if (rc == 0) {
        rc = real_path(opts->path, out);
    }
    return ltn_sql_disk_error(rc);
}

/* A full or read-only disk is the same to the caller wherever it shows first. */
int ltn_sql_disk_error(int rc)
{
    return rc == -ENOSPC || rc == -EROFS || rc == -EDQUOT ? LTN_ERR_DISK : rc;
}

/* Creates the file when missing and gives it to its owner; the engine then makes its side files
 * with the same owner. */
static int prepare_file(const struct ltn_db_opts *opts, char out[LTN_DB_PATH_BYTES])
{
    int rc = make_parents(opts->path, opts);
    if (rc < 0) {
        return rc;
    }
    rc = real_path(opts->path, out);
    if (rc < 0) {
        return rc;
    }
    int fd = open(out, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0600);
    if (fd < 0) {
        return -errno;
    }
    rc = adopt_file(fd, opts);
    (void)close(fd);
    tighten_side_files(out);
    return rc;
}

static struct ltn_db *new_db(void)
{
    struct ltn_db *db = calloc(1, sizeof(*db));
    if (db != NULL) {
        ltn_map_init(&db->statements, LTN_DB_MAX_STATEMENTS);
    }
    return db;
}

static int set_option(struct ltn_db *db, int option, int value)
{
    return sqlite3_db_config(db->handle, option, value, NULL);
}

static int set_pragma(struct ltn_db *db, const char *text)
{
    return sqlite3_exec(db->handle, text, NULL, NULL, NULL);
}

/* Writes the id into the header itself, not only into the log, so that the file is known as ours
 * from its first page on: before WAL begins in a new file, by a checkpoint in one from before. */
static int set_id(struct ltn_db *db, uint32_t application_id)
{
    char text[64];
    int64_t present = 0;
    if (application_id == 0) {
        return SQLITE_OK;
    }
    int rc = set_pragma(db, "SELECT 1 FROM sqlite_master LIMIT 1");
    if (rc == SQLITE_OK && ltn_db_get_i64(db, "PRAGMA application_id", &present) == 0 &&
        (uint32_t)present != application_id) {
        (void)snprintf(text, sizeof(text), "PRAGMA application_id=%u; PRAGMA wal_checkpoint",
                       application_id);
        rc = set_pragma(db, text);
    }
    return rc;
}

static int configure(struct ltn_db *db, const struct ltn_db_opts *opts, uint32_t application_id)
{
    uint64_t cache = opts->cache_bytes != 0 ? opts->cache_bytes : DEFAULT_CACHE_BYTES;
    char text[160];
    unsigned busy_ms = opts->busy_timeout_ms != 0 ? opts->busy_timeout_ms : DEFAULT_BUSY_MS;
    (void)sqlite3_extended_result_codes(db->handle, 1);
    (void)sqlite3_busy_timeout(db->handle, (int)busy_ms);
    (void)set_option(db, SQLITE_DBCONFIG_DEFENSIVE, 1);
    (void)set_option(db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0);
    (void)set_option(db, SQLITE_DBCONFIG_DQS_DML, 0);
    (void)set_option(db, SQLITE_DBCONFIG_DQS_DDL, 0);
    (void)set_option(db, SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0);
    /* auto_vacuum has an effect only before the first table, and before WAL. */
    int rc = set_pragma(db, "PRAGMA auto_vacuum=INCREMENTAL");
    if (rc == SQLITE_OK) {
        rc = set_id(db, application_id);
    }
    if (rc == SQLITE_OK) {
        rc = set_pragma(db, "PRAGMA journal_mode=WAL");
    }
    if (rc == SQLITE_OK) {
        (void)snprintf(text, sizeof(text),
                       "PRAGMA synchronous=%s; PRAGMA cache_size=-%llu; PRAGMA foreign_keys=ON;"
                       "PRAGMA journal_size_limit=%d; PRAGMA secure_delete=OFF",
                       opts->sync_full ? "FULL" : "NORMAL", (unsigned long long)(cache >> 10),
                       WAL_KEEP_BYTES);
        rc = set_pragma(db, text);
    }
    return rc;
}

int ltn_db_open(const struct ltn_db_opts *opts, struct ltn_db **ret_db, struct ltn_errinfo *info)
{
    return ltn_sql_open(opts, 0, ret_db, info);
}

int ltn_sql_open(const struct ltn_db_opts *opts, uint32_t application_id, struct ltn_db **ret_db,
                 struct ltn_errinfo *info)
{
    if (opts == NULL || opts->path == NULL || opts->path[0] == '\0') {
        return ltn_errinfo_set(info, -EINVAL, "no database path given");
    }
    struct ltn_db *db = new_db();
    if (db == NULL) {
        return ltn_errinfo_set(info, -ENOMEM, "out of memory");
    }
    bool memory = strcmp(opts->path, ":memory:") == 0;
    if (!memory) {
        int rc = prepare_file(opts, db->path);
        if (rc < 0) {
            int code = ltn_sql_disk_error(rc);
            (void)say(info, code, opts->path, ltn_err_str(rc));
            ltn_db_close(db);
            return code;
        }
    }
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE |
                SQLITE_OPEN_EXRESCODE | (memory ? SQLITE_OPEN_CREATE : SQLITE_OPEN_NOFOLLOW);
    int rc = sqlite3_open_v2(memory ? ":memory:" : db->path, &db->handle, flags, NULL);
    if (rc == SQLITE_OK) {
        rc = configure(db, opts, application_id);
    }
    if (rc != SQLITE_OK) {
        int code = say_engine(info, db, rc);
        ltn_db_close(db);
        return code;
    }
    *ret_db = db;
    return 0;
}

/* ---- read-only ---- */

/* Limits that keep one statement of a stranger from eating memory before its deadline. */
static void limit_reader(struct ltn_db *db)
{
    static const struct {
        int id;
        int value;
    } limits[] = {{SQLITE_LIMIT_LENGTH, 16 << 20},    {SQLITE_LIMIT_SQL_LENGTH, 64 << 10},
                  {SQLITE_LIMIT_COLUMN, 200},         {SQLITE_LIMIT_EXPR_DEPTH, 100},
                  {SQLITE_LIMIT_COMPOUND_SELECT, 50}, {SQLITE_LIMIT_VDBE_OP, 100000},
                  {SQLITE_LIMIT_FUNCTION_ARG, 100},   {SQLITE_LIMIT_ATTACHED, 0},
                  {SQLITE_LIMIT_TRIGGER_DEPTH, 10},   {SQLITE_LIMIT_WORKER_THREADS, 0},
                  {SQLITE_LIMIT_VARIABLE_NUMBER, 100}};
    for (size_t i = 0; i < LTN_ARRAY_SIZE(limits); i++) {
        (void)sqlite3_limit(db->handle, limits[i].id, limits[i].value);
    }
}

/* "file:" URI of a path with what a URI cannot hold escaped. */
static int path_to_uri(const char *path, char *out, size_t size)
{
    size_t n = (size_t)snprintf(out, size, "file:");
    for (const char *p = path; *p != '\0'; p++) {
        bool plain = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') ||
                     (*p >= '0' && *p <= '9') || strchr("/._-~", *p) != NULL;
        if (n + 4 >= size) {
            return -ENAMETOOLONG;
        }
        n += (size_t)snprintf(out + n, size - n, plain ? "%c" : "%%%02X", (unsigned char)*p);
    }
    if (n + sizeof("?immutable=1") > size) {
        return -ENAMETOOLONG;
    }
    (void)snprintf(out + n, size - n, "?immutable=1");
    return 0;
}

static bool log_has_content(const char *path)
{
    char wal[LTN_DB_PATH_BYTES + 8];
    struct stat st;
    (void)snprintf(wal, sizeof(wal), "%s-wal", path);
    return stat(wal, &st) == 0 && st.st_size > 0;
}

static int open_reader(struct ltn_db *db, bool immutable)
{
    char uri[3 * LTN_DB_PATH_BYTES + 32];
    const char *name = db->path;
    int flags = SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE |
                SQLITE_OPEN_EXRESCODE;
    if (immutable) {
        int rc = path_to_uri(db->path, uri, sizeof(uri));
        if (rc < 0) {
            return SQLITE_CANTOPEN;
        }
        name = uri;
        flags |= SQLITE_OPEN_URI;
    }
    int rc = sqlite3_open_v2(name, &db->handle, flags, NULL);
    if (rc != SQLITE_OK) {
        return rc;
    }
    (void)sqlite3_busy_timeout(db->handle, DEFAULT_BUSY_MS);
    (void)set_option(db, SQLITE_DBCONFIG_DEFENSIVE, 1);
    (void)set_option(db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0);
    (void)set_option(db, SQLITE_DBCONFIG_DQS_DML, 0);
    (void)set_option(db, SQLITE_DBCONFIG_DQS_DDL, 0);
    limit_reader(db);
    /* The first access is what shows whether the log's index can be used. The table-valued forms of
     * harmless pragmas declare a table when first used, which the authorizer would refuse. */
    rc = set_pragma(db, "PRAGMA cache_size=-8192; SELECT 1 FROM sqlite_master LIMIT 1;"
                        "SELECT 1 FROM pragma_table_info('sqlite_master') LIMIT 1;"
                        "SELECT 1 FROM pragma_table_list LIMIT 1");
    return rc;
}

int ltn_sql_open_unchanged(const char *path, struct ltn_db **ret_db)
{
    struct ltn_db *db = new_db();
    if (db == NULL) {
        return -ENOMEM;
    }
    int rc = ltn_copy_str(db->path, sizeof(db->path), path) ? 0 : -ENAMETOOLONG;
    if (rc == 0) {
        rc = ltn_sql_error(open_reader(db, !log_has_content(path)));
    }
    if (rc < 0) {
        ltn_db_close(db);
        return rc;
    }
    *ret_db = db;
    return 0;
}

int ltn_db_open_readonly(const char *path, struct ltn_db **ret_db, struct ltn_errinfo *info)
{
    struct ltn_db *db = new_db();
    if (db == NULL) {
        return ltn_errinfo_set(info, -ENOMEM, "out of memory");
    }
    db->readonly = true;
    if (!ltn_copy_str(db->path, sizeof(db->path), path) || access(path, R_OK) != 0) {
        int rc = errno == EACCES ? -EACCES : LTN_ERR_NOT_FOUND;
        (void)say(info, rc, path,
                  rc == -EACCES ? "permission denied" : "no such database; record one first");
        ltn_db_close(db);
        return rc;
    }
    struct stat st;
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) {
        /* Opening a FIFO would wait for ever. */
        (void)say(info, LTN_ERR_UNSUPPORTED, path, "not a regular file");
        ltn_db_close(db);
        return LTN_ERR_UNSUPPORTED;
    }
    int rc = open_reader(db, false);
    if ((rc & 0xff) == SQLITE_CANTOPEN || (rc & 0xff) == SQLITE_READONLY) {
        /* The folder cannot be written, so the log's index cannot be made. Without a log the file
         * alone is the whole database. */
        if (!log_has_content(path)) {
            (void)sqlite3_close(db->handle);
            db->handle = NULL;
            rc = open_reader(db, true);
        }
    }
    if (rc != SQLITE_OK) {
        int code = say_engine(info, db, rc);
        ltn_db_close(db);
        return code;
    }
    *ret_db = db;
    return 0;
}

int ltn_db_freeze(struct ltn_db *db)
{
    int rc =
        ltn_sql_error(set_pragma(db, "PRAGMA query_only=1;"
                                     "SELECT 1 FROM pragma_table_info('sqlite_master') LIMIT 1"));
    if (rc == 0) {
        limit_reader(db);
        db->readonly = true;
    }
    return rc;
}

/* ---- migrations ---- */

static int run_migration(struct ltn_db *db, const char *sql, size_t version)
{
    char set[64];
    int rc = ltn_db_begin(db);
    if (rc == 0) {
        rc = ltn_db_exec(db, sql);
    }
    if (rc == 0) {
        (void)snprintf(set, sizeof(set), "PRAGMA user_version=%zu", version);
        rc = ltn_db_exec(db, set);
    }
    if (rc == 0) {
        rc = ltn_db_commit(db);
    }
    return rc;
}

int ltn_db_migrate(struct ltn_db *db, const char *const *migrations, size_t n,
                   struct ltn_errinfo *info)
{
    int64_t version = 0;
    int rc = ltn_db_get_i64(db, "PRAGMA user_version", &version);
    if (rc < 0) {
        return say(info, rc, db->path, ltn_db_message(db));
    }
    if (version < 0 || (uint64_t)version > n) {
        return ltn_errinfo_set(info, LTN_ERR_UNSUPPORTED,
                               "%s: schema version %lld is newer than this program knows (%zu)",
                               db->path, (long long)version, n);
    }
    for (size_t i = (size_t)version; i < n; i++) {
        rc = run_migration(db, migrations[i], i + 1);
        if (rc < 0) {
            (void)ltn_errinfo_set(info, rc, "%s: schema version %zu: %s", db->path, i + 1,
                                  ltn_db_message(db));
            ltn_db_rollback(db);
            return rc;
        }
    }
    return 0;
}

/* ---- sealed ---- */

int ltn_db_seal(struct ltn_db *db, uint64_t max_bytes)
{
    char text[192];
    limit_reader(db);
    (void)snprintf(text, sizeof(text),
                   "PRAGMA max_page_count=%llu; PRAGMA temp_store=FILE; PRAGMA query_only=ON;"
                   "SELECT 1 FROM pragma_table_info('sqlite_master') LIMIT 1",
                   (unsigned long long)(max_bytes >> 12));
    int rc = set_pragma(db, text);
    db->readonly = rc == SQLITE_OK;
    return ltn_sql_error(rc);
}
