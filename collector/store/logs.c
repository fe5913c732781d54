/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Log records: one row each, resources once. A record that comes again, because its sender got no
 * answer, is known by a hash of everything it says together with its times: it is kept once. Equal
 * records within one request are different ones (the first, the second, ...); a retry carries as
 * many of them. A record without any time is compared with those of the last ten minutes only.
 *
 * What is kept is bounded by bytes (in the transaction that would pass the limit) and by age since
 * arrival, oldest first. The sum of bytes stands in the file, so that opening need not count.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/clock.h"
#include "store/internal.h"

#define ROW_OVERHEAD_BYTES 112 /* of a record in its table and two indexes, about */
#define TIMELESS_NS        (600 * LTN_NS_PER_S)
#define PRUNE_ROWS         2000
#define BOUND_ROWS         64 /* deleted at a time, so that about what came goes */

/* ---- identity ---- */

static void add_text(XXH3_state_t *h, const char *s)
{
    size_t n =
        s != NULL ? strlen(s) + 1 : 0; /* the terminator tells "" from none, ab c from a bc */
    (void)XXH3_64bits_update(h, s != NULL ? s : "\xff", n > 0 ? n : 1);
}

static void add_id(XXH3_state_t *h, const uint8_t *id, size_t n)
{
    (void)XXH3_64bits_update(h, id != NULL ? id : (const uint8_t *)"", id != NULL ? n : 1);
}

static uint64_t content_hash(XXH3_state_t *h, const struct ltn_update_log *l)
{
    const uint64_t numbers[] = {l->time_ns, l->observed_ns, (uint64_t)(int64_t)l->severity_number,
                                l->flags, l->body_json ? 1 : 0};
    (void)XXH3_64bits_reset(h);
    (void)XXH3_64bits_update(h, numbers, sizeof(numbers));
    add_text(h, l->source->attrs);
    add_text(h, l->scope);
    add_text(h, l->severity);
    add_text(h, l->event);
    add_text(h, l->body);
    add_text(h, l->attrs);
    add_id(h, l->trace_id, 16);
    add_id(h, l->span_id, 8);
    return XXH3_64bits_digest(h);
}

/* How many equal ones came before it in the request goes into the hash. */
static int number_equal(struct ltn_map *seen, uint64_t *hash)
{
    uintptr_t before = (uintptr_t)ltn_map_get_u64(seen, *hash);
    int rc = ltn_map_put_u64(seen, *hash, (void *)(before + 1));
    if (rc == 0 && before > 0) {
        uint64_t pair[2] = {*hash, before};
        *hash = XXH3_64bits(pair, sizeof(pair));
    }
    return rc;
}

/* ---- rows ---- */

static int add_bytes(struct ltn_writer *w, int64_t bytes)
{
    struct ltn_stmt *st;
    if (bytes == 0)
        return 0;
    int rc = ltn_db_prepare(w->db, "UPDATE log_total SET bytes = max(0, bytes + ?1)", &st);
    if (rc != 0)
        return rc;
    ltn_stmt_i64(st, 1, bytes);
    rc = ltn_stmt_run(st);
    if (rc == 0)
        w->logs.bytes = bytes < 0 && w->logs.bytes < (uint64_t)-bytes
                            ? 0
                            : (uint64_t)((int64_t)w->logs.bytes + bytes);
    return rc;
}

static int insert_source(struct ltn_writer *w, const struct ltn_update_log_source *s,
                         const XXH128_canonical_t *key, int64_t *ret_id, int64_t *bytes)
{
    struct ltn_stmt *st;
    size_t size = strlen(s->attrs) + strlen(s->service) + strlen(s->instance) + ROW_OVERHEAD_BYTES;
    int rc = ltn_db_prepare(w->db,
                            "INSERT INTO log_source (hash, service, instance, attributes, bytes,"
                            " last_log_id) VALUES (?1, ?2, ?3, ?4, ?5, 0)",
                            &st);
    if (rc != 0)
        return rc;
    ltn_stmt_blob(st, 1, key, sizeof(*key));
    ltn_stmt_text(st, 2, s->service);
    ltn_stmt_text(st, 3, s->instance);
    ltn_stmt_text(st, 4, s->attrs);
    ltn_stmt_u64(st, 5, size);
    rc = ltn_stmt_run(st);
    if (rc == 0) {
        *ret_id = ltn_db_last_rowid(w->db);
        *bytes += (int64_t)size;
    }
    return rc;
}

/* Its row, made when it is new. */
static int source_id(struct ltn_writer *w, const struct ltn_update_log_source *s, int64_t *ret_id,
                     int64_t *bytes)
{
    struct ltn_stmt *st;
    XXH128_canonical_t key;
    XXH128_canonicalFromHash(&key, XXH3_128bits(s->attrs, strlen(s->attrs)));
    int rc = ltn_db_prepare(w->db, "SELECT id FROM log_source WHERE hash = ?1", &st);
    if (rc != 0)
        return rc;
    ltn_stmt_blob(st, 1, &key, sizeof(key));
    rc = ltn_stmt_step(st);
    if (rc < 0)
        return rc;
    if (rc == 1)
        *ret_id = ltn_stmt_col_i64(st, 0);
    ltn_stmt_reset(st);
    return rc == 1 ? 0 : insert_source(w, s, &key, ret_id, bytes);
}

/* The newest record of a source keeps it. */
static int touch_source(struct ltn_writer *w, int64_t source, int64_t log_id)
{
    struct ltn_stmt *st;
    if (source == 0 || log_id == 0)
        return 0;
    int rc = ltn_db_prepare(w->db, "UPDATE log_source SET last_log_id = ?2 WHERE id = ?1", &st);
    if (rc != 0)
        return rc;
    ltn_stmt_i64(st, 1, source);
    ltn_stmt_i64(st, 2, log_id);
    return ltn_stmt_run(st);
}

static bool is_known(struct ltn_writer *w, const struct ltn_update_log *l, uint64_t hash,
                     uint64_t received_ns, int *ret_rc)
{
    struct ltn_stmt *st;
    bool timeless = l->time_ns == 0 && l->observed_ns == 0;
    *ret_rc = ltn_db_prepare(w->db,
                             "SELECT 1 FROM log WHERE hash = ?1 AND time_ns IS ?2"
                             " AND observed_ns IS ?3 AND received_ns >= ?4",
                             &st);
    if (*ret_rc != 0)
        return false;
    ltn_stmt_u64(st, 1, hash);
    if (l->time_ns != 0)
        ltn_stmt_u64(st, 2, l->time_ns);
    if (l->observed_ns != 0)
        ltn_stmt_u64(st, 3, l->observed_ns);
    ltn_stmt_u64(st, 4, timeless && received_ns > TIMELESS_NS ? received_ns - TIMELESS_NS : 0);
    *ret_rc = ltn_stmt_step(st);
    ltn_stmt_reset(st);
    return *ret_rc == 1;
}

static size_t text_bytes(const char *s)
{
    return s != NULL ? strlen(s) : 0;
}

static void bind_text(struct ltn_stmt *st, int i, const char *s)
{
    ltn_stmt_text(st, i, s != NULL && s[0] != '\0' ? s : NULL);
}

static int insert_log(struct ltn_writer *w, const struct ltn_update_log *l, uint64_t hash,
                      uint64_t received_ns, int64_t source, int64_t *bytes)
{
    struct ltn_stmt *st;
    size_t size = ROW_OVERHEAD_BYTES + text_bytes(l->severity) + text_bytes(l->event) +
                  text_bytes(l->scope) + text_bytes(l->body) + text_bytes(l->attrs) +
                  (l->trace_id != NULL ? 16 : 0) + (l->span_id != NULL ? 8 : 0);
    int rc = ltn_db_prepare(w->db,
                            "INSERT INTO log (source_id, hash, time_ns, observed_ns, received_ns,"
                            " severity_number, severity, event, scope, body, body_json,"
                            " attributes, trace_id, span_id, flags, cut, bytes) VALUES (?1, ?2,"
                            " ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)",
                            &st);
    if (rc != 0)
        return rc;
    ltn_stmt_i64(st, 1, source);
    ltn_stmt_u64(st, 2, hash);
    if (l->time_ns != 0)
        ltn_stmt_u64(st, 3, l->time_ns);
    if (l->observed_ns != 0)
        ltn_stmt_u64(st, 4, l->observed_ns);
    ltn_stmt_u64(st, 5, received_ns);
    ltn_stmt_i64(st, 6, l->severity_number);
    bind_text(st, 7, l->severity);
    bind_text(st, 8, l->event);
    bind_text(st, 9, l->scope);
    ltn_stmt_text(st, 10, l->body);
    ltn_stmt_i64(st, 11, l->body_json ? 1 : 0);
    bind_text(st, 12, l->attrs);
    if (l->trace_id != NULL)
        ltn_stmt_blob(st, 13, l->trace_id, 16);
    if (l->span_id != NULL)
        ltn_stmt_blob(st, 14, l->span_id, 8);
    ltn_stmt_u64(st, 15, l->flags);
    ltn_stmt_u64(st, 16, l->cut);
    ltn_stmt_u64(st, 17, size);
    rc = ltn_stmt_run(st);
    if (rc == 0)
        *bytes += (int64_t)size;
    return rc;
}

/* What has been done of one request. */
struct progress {
    XXH3_state_t *hash;
    struct ltn_map seen;
    const struct ltn_update_log_source *source;
    int64_t source_id, last_id, bytes;
};

static int write_one(struct ltn_writer *w, struct progress *p, const struct ltn_update_log *l,
                     uint64_t received_ns)
{
    uint64_t hash = content_hash(p->hash, l);
    int rc = number_equal(&p->seen, &hash);
    if (rc != 0)
        return rc;
    if (is_known(w, l, hash, received_ns, &rc)) {
        w->logs.repeated++;
        return 0;
    }
    if (rc == 0 && p->source != l->source) {
        rc = touch_source(w, p->source_id, p->last_id);
        p->source = l->source;
        p->last_id = 0;
        if (rc == 0)
            rc = source_id(w, l->source, &p->source_id, &p->bytes);
    }
    if (rc == 0)
        rc = insert_log(w, l, hash, received_ns, p->source_id, &p->bytes);
    if (rc != 0)
        return rc;
    p->last_id = ltn_db_last_rowid(w->db);
    w->logs.stored++;
    w->rows++;
    return 0;
}

int ltn_write_logs(struct ltn_writer *w, const struct ltn_update *u)
{
    struct progress p = {.hash = NULL};
    int rc = 0;
    if (u->logs == NULL)
        return 0;
    p.hash = XXH3_createState();
    if (p.hash == NULL)
        return -ENOMEM;
    ltn_map_init(&p.seen, u->log_count + 1);
    for (const struct ltn_update_log *l = u->logs; rc == 0 && l != NULL; l = l->next)
        rc = write_one(w, &p, l, u->received_ns);
    if (rc == 0)
        rc = touch_source(w, p.source_id, p.last_id);
    if (rc == 0)
        rc = add_bytes(w, p.bytes);
    ltn_map_done(&p.seen, NULL);
    (void)XXH3_freeState(p.hash);
    return rc;
}

/* ---- bounds ---- */

/* Runs a DELETE that returns the bytes of each row. */
static int delete_rows(struct ltn_writer *w, const char *sql, uint64_t before_ns, int64_t max_rows,
                       uint64_t *ret_rows)
{
    struct ltn_stmt *st;
    int64_t freed = 0;
    *ret_rows = 0;
    int rc = ltn_db_prepare(w->db, sql, &st);
    if (rc != 0)
        return rc;
    ltn_stmt_u64(st, 1, before_ns);
    ltn_stmt_i64(st, 2, max_rows);
    while ((rc = ltn_stmt_step(st)) == 1) {
        freed += ltn_stmt_col_i64(st, 0);
        (*ret_rows)++;
    }
    return rc < 0 ? rc : add_bytes(w, -freed);
}

/* The oldest records by arrival; those that came before before_ns only. */
static int delete_oldest(struct ltn_writer *w, uint64_t before_ns, int64_t max_rows,
                         uint64_t *ret_rows)
{
    return delete_rows(w,
                       "DELETE FROM log WHERE id IN (SELECT id FROM log ORDER BY id LIMIT ?2)"
                       " AND received_ns < ?1 RETURNING bytes",
                       before_ns, max_rows, ret_rows);
}

static int delete_unused_sources(struct ltn_writer *w)
{
    uint64_t rows;
    return delete_rows(w,
                       "DELETE FROM log_source WHERE id IN (SELECT id FROM log_source WHERE"
                       " last_log_id < (SELECT ifnull(min(id), ?1) FROM log) ORDER BY last_log_id"
                       " LIMIT ?2) RETURNING bytes",
                       INT64_MAX, PRUNE_ROWS, &rows);
}

int ltn_logs_bound(struct ltn_writer *w, uint64_t max_bytes)
{
    if (max_bytes == 0 || w->logs.bytes <= max_bytes)
        return 0;
    int rc = 0;
    uint64_t rows = 1;
    while (rc == 0 && rows > 0 && w->logs.bytes > max_bytes) {
        rc = delete_oldest(w, INT64_MAX, BOUND_ROWS, &rows);
        w->logs.pruned_bytes += rows;
        if (rc == 0)
            rc = delete_unused_sources(w);
    }
    return rc;
}

int ltn_logs_expire(struct ltn_writer *w, uint64_t before_ns)
{
    uint64_t rows = 0;
    int rc = delete_oldest(w, before_ns, PRUNE_ROWS, &rows);
    w->logs.pruned_age += rows;
    return rc == 0 && rows > 0 ? delete_unused_sources(w) : rc;
}

int ltn_logs_open(struct ltn_writer *w)
{
    int64_t bytes = 0;
    int rc = ltn_db_get_i64(w->db, "SELECT bytes FROM log_total", &bytes);
    if (rc == 0)
        w->logs.bytes = bytes > 0 ? (uint64_t)bytes : 0;
    return rc;
}
