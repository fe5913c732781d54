/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Series of clients in the database: a log of blobs, one or a few a commit, with what changed since
 * the one before. Beside what changed each commit rewrites a part of what did not, a third as much;
 * when this walk has come round, what is older than its beginning is deleted. So the log stays
 * bounded by a small multiple of what it holds, and no commit is a long one.
 */
#include "store/internal.h"

#define BLOB_BYTES     ((size_t)256 << 10)
#define BLOB_MAX_BYTES ((size_t)8 << 20)
/* A log shorter than that is left as it is. */
#define LOG_MIN_BYTES ((uint64_t)4 << 20)
/* How much of what did not change is written, in parts of what did. */
#define OLD_PART      3
#define OLD_MIN_BYTES ((size_t)4096)
#define DELETE_ROWS   16

static int append(struct ltn_writer *w, const struct ltn_buf *blob)
{
    struct ltn_stmt *st;
    int rc = ltn_buf_error(blob);
    if (rc == 0)
        rc = ltn_db_prepare(w->db, "INSERT INTO series_log (body) VALUES (?1)", &st);
    if (rc != 0)
        return rc;
    ltn_stmt_blob(st, 1, blob->data, blob->len);
    w->log.bytes += blob->len;
    w->log.round_bytes += blob->len;
    w->rows++;
    return ltn_stmt_run(st);
}

/* What changed. *ret_bytes: how much that was. */
static int append_changes(struct ltn_writer *w, struct ltn_buf *blob, size_t *ret_bytes)
{
    int rc = 0;
    size_t bytes = 0;
    while (rc == 0 && ltn_series_save_next(w->series, blob, BLOB_BYTES)) {
        rc = append(w, blob);
        bytes += blob->len;
        ltn_buf_reset(blob);
    }
    *ret_bytes = bytes;
    return rc;
}

/* A part of what did not. */
static int append_old(struct ltn_writer *w, struct ltn_buf *blob, size_t bytes)
{
    uint64_t round = 0;
    size_t max = bytes / OLD_PART > OLD_MIN_BYTES ? bytes / OLD_PART : OLD_MIN_BYTES;
    if (w->log.bytes < LOG_MIN_BYTES ||
        !ltn_series_save_old(w->series, blob, max < BLOB_BYTES ? max : BLOB_BYTES, &round))
        return 0;
    int rc = append(w, blob);
    if (rc != 0 || round == w->log.round)
        return rc;
    /* The round before has described everything anew: what is older is not needed. */
    w->log.delete_below = w->log.round_seq;
    w->log.round = round;
    w->log.round_seq = ltn_db_last_rowid(w->db);
    w->log.bytes = w->log.round_bytes;
    w->log.round_bytes = 0;
    return 0;
}

static int delete_old(struct ltn_writer *w)
{
    struct ltn_stmt *st;
    if (w->log.delete_below == 0)
        return 0;
    int rc = ltn_db_prepare(w->db,
                            "DELETE FROM series_log WHERE seq IN (SELECT seq FROM series_log WHERE"
                            " seq < ?1 ORDER BY seq LIMIT ?2)",
                            &st);
    if (rc != 0)
        return rc;
    ltn_stmt_i64(st, 1, w->log.delete_below);
    ltn_stmt_i64(st, 2, DELETE_ROWS);
    rc = ltn_stmt_run(st);
    if (rc == 0 && ltn_db_changes(w->db) < DELETE_ROWS)
        w->log.delete_below = 0;
    return rc;
}

int ltn_write_series(struct ltn_writer *w)
{
    struct ltn_buf blob;
    size_t bytes = 0;
    int rc = 0;
    if (w->series == NULL)
        return 0;
    w->log_before = w->log;
    w->series_open = true;
    if (w->series_anew) {
        rc = ltn_db_exec(w->db, "DELETE FROM series_log");
        w->log = (struct ltn_series_log){.round = 0};
    }
    ltn_series_save_begin(w->series, w->series_anew);
    ltn_buf_init(&blob, BLOB_MAX_BYTES);
    if (rc == 0)
        rc = append_changes(w, &blob, &bytes);
    if (rc == 0 && bytes > 0)
        rc = append_old(w, &blob, bytes);
    if (rc == 0 && bytes > 0)
        rc = delete_old(w);
    ltn_buf_done(&blob);
    return rc;
}

void ltn_series_written(struct ltn_writer *w, bool ok)
{
    if (!w->series_open)
        return;
    w->series_open = false;
    ltn_series_save_end(w->series, ok);
    if (ok)
        w->series_anew = false;
    else
        w->log = w->log_before;
}

int ltn_load_series(struct ltn_writer *w, uint64_t now_ns)
{
    struct ltn_stmt *st;
    int rc = ltn_db_prepare(w->db, "SELECT body FROM series_log ORDER BY seq", &st);
    if (rc != 0)
        return rc;
    while ((rc = ltn_stmt_step(st)) == 1) {
        size_t n = 0;
        const void *body = ltn_stmt_col_blob(st, 0, &n);
        w->log.bytes += n;
        rc = ltn_series_load(w->series, body, n, now_ns);
        if (rc != 0)
            break;
    }
    ltn_stmt_reset(st);
    if (rc == LTN_ERR_CORRUPT) { /* what could be read is better than nothing: written anew */
        w->series_anew = true;
        rc = 0;
    }
    return rc == 0 ? ltn_series_load_end(w->series, now_ns) : rc;
}
