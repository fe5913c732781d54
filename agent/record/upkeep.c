/* SPDX-License-Identifier: Apache-2.0 */
#include "record/upkeep.h"

#include "base/clock.h"

/* Rows of one deleting transaction: short enough for the writer to come between. */
#define CALLS_PER_CHUNK     5000
#define WINDOWS_PER_CHUNK   20
#define INCIDENTS_PER_CHUNK 200
/* Longest pruning at a stretch. */
#define PRUNE_SLICE_NS (200 * LTN_NS_PER_MS)
/* Free pages given back at a time. */
#define VACUUM_PAGES 2000

/* ---- pruning ---- */

static int delete_below(struct ltn_db *db, const char *sql, int64_t limit, int64_t *ret_deleted)
{
    struct ltn_stmt *s;
    int rc = ltn_db_prepare(db, sql, &s);
    if (rc < 0) {
        return rc;
    }
    ltn_stmt_i64(s, 1, limit);
    rc = ltn_stmt_run(s);
    if (rc == 0) {
        *ret_deleted = ltn_db_changes(db);
    }
    return rc;
}

static int prune_calls(struct ltn_db *db, uint64_t *deleted)
{
    int64_t n = 0;
    int rc = delete_below(db, "DELETE FROM calls WHERE id < (SELECT min(id) FROM calls) + ?",
                          CALLS_PER_CHUNK, &n);
    *deleted = (uint64_t)n;
    return rc;
}

/* Stacks go with the processes that had them. */
static int prune_stacks(struct ltn_db *db)
{
    return ltn_db_exec(
        db, "DELETE FROM stack_refs WHERE proc_id NOT IN (SELECT id FROM procs);"
            "DELETE FROM stack_contents WHERE id NOT IN (SELECT stack_id FROM stack_refs);"
            "DELETE FROM stack_content_frames WHERE stack_id NOT IN (SELECT id FROM "
            "stack_contents);"
            "DELETE FROM frames WHERE id NOT IN (SELECT frame_id FROM stack_content_frames)");
}

/* The newest window stays: it says when the record ends. */
static int prune_windows(struct ltn_db *db, uint64_t *deleted)
{
    static const char *const parts[] = {
        "DELETE FROM op_windows WHERE window_id < ?",
        "DELETE FROM rank_windows WHERE window_id < ?",
        "DELETE FROM preemptors WHERE window_id < ?",
        "DELETE FROM communicators WHERE window_id < ?",
        "DELETE FROM gpu_samples WHERE window_id < ?",
        "DELETE FROM agent_health WHERE window_id < ?",
        "DELETE FROM windows WHERE id < ?",
    };
    int64_t limit = 0;
    int64_t n = 0;
    int rc = ltn_db_get_i64(db,
                            "SELECT min((SELECT coalesce(min(id), 0) + 20 FROM windows), (SELECT "
                            "coalesce(max(id), 0) FROM windows))",
                            &limit);
    _Static_assert(WINDOWS_PER_CHUNK == 20, "stands in the statement");
    if (rc == 0) {
        rc = ltn_db_begin(db);
    }
    for (size_t i = 0; i < LTN_ARRAY_SIZE(parts) && rc == 0; i++) {
        rc = delete_below(db, parts[i], limit, &n);
    }
    if (rc == 0) {
        int64_t gone;
        rc =
            delete_below(db,
                         "DELETE FROM procs WHERE last_seen_ns < (SELECT end_ns FROM windows WHERE "
                         "id >= ? ORDER BY id LIMIT 1) AND last_seen_ns < coalesce((SELECT time_ns "
                         "FROM calls ORDER BY time_ns LIMIT 1), last_seen_ns + 1) AND NOT EXISTS "
                         "(SELECT 1 FROM incident_changes i WHERE i.proc_id = procs.id)",
                         limit, &gone);
        if (rc == 0 && gone > 0) {
            rc = prune_stacks(db);
        }
    }
    if (rc == 0) {
        rc = ltn_db_commit(db);
    }
    if (rc < 0) {
        ltn_db_rollback(db);
        return rc;
    }
    *deleted = (uint64_t)n;
    return 0;
}

static int prune_incidents(struct ltn_db *db, uint64_t *deleted)
{
    int64_t n = 0;
    int rc = delete_below(
        db, "DELETE FROM incident_changes WHERE id < (SELECT min(id) FROM incident_changes) + ?",
        INCIDENTS_PER_CHUNK, &n);
    *deleted = (uint64_t)n;
    return rc;
}

static uint64_t used_bytes(const struct ltn_db_size *s)
{
    return (s->pages - s->free_pages) * s->page_bytes;
}

int ltn_prune(struct ltn_db *db, uint64_t max_bytes, struct ltn_pruned *p)
{
    static int (*const classes[])(struct ltn_db *, uint64_t *) = {prune_calls, prune_windows,
                                                                  prune_incidents};
    uint64_t *counters[] = {&p->calls, &p->windows, &p->incidents};
    uint64_t give_up_ns = ltn_now_mono_ns() + PRUNE_SLICE_NS;
    struct ltn_db_size size;
    size_t class = 0;
    int rc = ltn_db_size(db, &size);
    p->more = false;
    if (rc < 0 || (used_bytes(&size) <= max_bytes / 100 * 95 && size.file_bytes <= max_bytes)) {
        return rc;
    }
    while (rc == 0 && class < LTN_ARRAY_SIZE(classes) && used_bytes(&size) > max_bytes / 10 * 9) {
        uint64_t n = 0;
        rc = classes[class](db, &n);
        *counters[class] += n;
        class += n == 0;
        if (rc == 0) {
            rc = ltn_db_size(db, &size);
        }
        if (ltn_now_mono_ns() > give_up_ns) {
            p->more = true;
            break;
        }
    }
    /* What is free is used again; only a file above its cap gives pages back. */
    if (rc == 0 && size.file_bytes > max_bytes) {
        if (size.free_pages > 0) {
            rc = ltn_db_vacuum_some(db, VACUUM_PAGES);
        }
        if (rc == 0) {
            /* A reader may hold the log back; it is tried again next time. */
            rc = ltn_db_checkpoint(db, true);
            rc = rc == LTN_ERR_BUSY ? 0 : rc;
        }
    }
    return rc;
}

/* ---- outbox ---- */

int ltn_outbox_measure(struct ltn_db *db, struct ltn_outbox_size *ret)
{
    int64_t rows;
    int64_t bytes;
    int rc = ltn_db_get_i64(db, "SELECT count(*) FROM outbox", &rows);
    if (rc == 0) {
        rc = ltn_db_get_i64(db, "SELECT coalesce(sum(length(bytes)), 0) FROM outbox", &bytes);
    }
    if (rc == 0) {
        *ret = (struct ltn_outbox_size){.rows = (uint64_t)rows, .bytes = (uint64_t)bytes};
    }
    return rc;
}

int ltn_outbox_append(struct ltn_db *db, const struct ltn_outbox_row *row,
                      struct ltn_outbox_size *size)
{
    struct ltn_stmt *s;
    int rc = ltn_db_prepare(
        db, "INSERT INTO outbox (signal, created_ns, sequence, bytes) VALUES (?, ?, ?, ?)", &s);
    if (rc < 0) {
        return rc;
    }
    ltn_stmt_i64(s, 1, row->signal);
    ltn_stmt_u64(s, 2, row->created_ns);
    ltn_stmt_u64(s, 3, row->sequence);
    ltn_stmt_blob(s, 4, row->bytes, row->n);
    rc = ltn_stmt_run(s);
    if (rc == 0) {
        size->rows++;
        size->bytes += row->n;
    }
    return rc;
}

static void count_out(struct ltn_outbox_size *size, uint64_t bytes)
{
    size->rows -= size->rows > 0;
    size->bytes -= size->bytes < bytes ? size->bytes : bytes;
}

int ltn_outbox_remove(struct ltn_db *db, int64_t id, struct ltn_outbox_size *size)
{
    struct ltn_stmt *s;
    int rc = ltn_db_prepare(db, "DELETE FROM outbox WHERE id = ? RETURNING length(bytes)", &s);
    if (rc < 0) {
        return rc;
    }
    ltn_stmt_i64(s, 1, id);
    rc = ltn_stmt_step(s);
    if (rc == 1) {
        count_out(size, ltn_stmt_col_u64(s, 0));
        ltn_stmt_reset(s);
        rc = 0;
    }
    return rc;
}

int ltn_outbox_tried(struct ltn_db *db, int64_t id)
{
    struct ltn_stmt *s;
    int rc = ltn_db_prepare(db, "UPDATE outbox SET attempts = attempts + 1 WHERE id = ?", &s);
    if (rc < 0) {
        return rc;
    }
    ltn_stmt_i64(s, 1, id);
    return ltn_stmt_run(s);
}

struct oldest {
    int64_t id;
    uint64_t created_ns;
};

static int find_oldest(struct ltn_db *db, struct oldest *ret)
{
    struct ltn_stmt *s;
    int rc = ltn_db_prepare(db, "SELECT id, created_ns FROM outbox ORDER BY id LIMIT 1", &s);
    if (rc < 0) {
        return rc;
    }
    rc = ltn_stmt_step(s);
    if (rc == 1) {
        *ret = (struct oldest){.id = ltn_stmt_col_i64(s, 0), .created_ns = ltn_stmt_col_u64(s, 1)};
        ltn_stmt_reset(s);
    }
    return rc;
}

int ltn_outbox_bound(struct ltn_db *db, uint64_t oldest_ns, uint64_t max_bytes,
                     struct ltn_outbox_size *size, struct ltn_outbox_dropped *ret)
{
    *ret = (struct ltn_outbox_dropped){0};
    while (size->rows > 0) {
        struct oldest o = {0};
        int rc = find_oldest(db, &o);
        if (rc <= 0) {
            return rc;
        }
        bool old = o.created_ns < oldest_ns;
        if (!old && size->bytes <= max_bytes) {
            return 0;
        }
        rc = ltn_outbox_remove(db, o.id, size);
        if (rc < 0) {
            return rc;
        }
        ret->for_age += old;
        ret->for_bytes += !old;
    }
    return 0;
}
