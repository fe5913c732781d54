/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of an update. Every statement may run twice with the same data and change nothing then. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/json.h"
#include "store/internal.h"

#define KEY_BYTES (LTN_NAME_BYTES + 96)

void ltn_writer_forget(struct ltn_writer *w)
{
    ltn_map_done(&w->ids.map, NULL);
    ltn_map_init(&w->ids.map, LTN_IDS_MAX);
}

static int64_t id_get(struct ltn_writer *w, const char *key)
{
    return (int64_t)(uintptr_t)ltn_map_get_str(&w->ids.map, key);
}

static void id_put(struct ltn_writer *w, const char *key, int64_t id)
{
    if (w->ids.map.len >= LTN_IDS_MAX)
        ltn_writer_forget(w);
    if (ltn_map_put_str(&w->ids.map, key, (void *)(uintptr_t)id) != 0)
        return; /* asked for again next time */
}

/* The statement gives one row with the id. */
static int one_id(struct ltn_stmt *st, int64_t *ret)
{
    int rc = ltn_stmt_step(st);
    if (rc == 1) {
        *ret = ltn_stmt_col_i64(st, 0);
        /* RETURNING applies its change at the first step; stepping on ends the statement. */
        rc = ltn_stmt_step(st);
    } else if (rc == 0) {
        rc = LTN_ERR_INTERNAL;
    }
    ltn_stmt_reset(st);
    return rc;
}

static int write_node(struct ltn_writer *w, const struct ltn_update *u,
                      const struct ltn_update_resource *r, int64_t *ret_id)
{
    struct ltn_stmt *st;
    int rc = ltn_db_prepare(
        w->db,
        "INSERT INTO node (name, cluster, instance, version, first_seen_ns, last_seen_ns, sequence)"
        " VALUES (?1, ?2, ?3, ?4, ?5, ?5, ?6) ON CONFLICT (name) DO UPDATE SET"
        " cluster = excluded.cluster, instance = excluded.instance, version = excluded.version,"
        " last_seen_ns = max(last_seen_ns, excluded.last_seen_ns),"
        " sequence = CASE WHEN instance = excluded.instance THEN max(sequence, excluded.sequence)"
        " ELSE excluded.sequence END RETURNING id",
        &st);
    if (rc != 0)
        return rc;
    ltn_stmt_text(st, 1, r->node);
    ltn_stmt_text(st, 2, r->cluster);
    ltn_stmt_text(st, 3, r->instance);
    ltn_stmt_text(st, 4, r->version);
    ltn_stmt_u64(st, 5, u->received_ns);
    ltn_stmt_u64(st, 6, r->sequence);
    w->rows++;
    return one_id(st, ret_id);
}

/* Another start of the agent counts anew: what was counted so far is put aside. */
static int begin_instance(struct ltn_writer *w, const struct ltn_update_resource *r,
                          int64_t node_id)
{
    struct ltn_stmt *st;
    int rc = ltn_db_prepare(w->db,
                            "UPDATE op_count SET earlier_calls = earlier_calls + calls,"
                            " earlier_errors = earlier_errors + errors,"
                            " earlier_bytes = earlier_bytes + bytes, calls = 0, errors = 0,"
                            " bytes = 0 WHERE process_id = (SELECT id FROM process WHERE"
                            " node_id = ?1 AND pid = ?2 AND start_ns = ?3 AND instance <> ?4)",
                            &st);
    if (rc != 0)
        return rc;
    ltn_stmt_i64(st, 1, node_id);
    ltn_stmt_i64(st, 2, r->pid);
    ltn_stmt_u64(st, 3, r->proc_start_ns);
    ltn_stmt_text(st, 4, r->instance);
    return ltn_stmt_run(st);
}

static int write_process(struct ltn_writer *w, const struct ltn_update *u,
                         const struct ltn_update_resource *r, int64_t node_id, int64_t *ret_id)
{
    struct ltn_stmt *st;
    int rc = ltn_db_prepare(
        w->db,
        "INSERT INTO process (node_id, pid, start_ns, comm, job, rank, world_size, gpu,"
        " first_seen_ns, last_seen_ns, instance)"
        " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?9, ?10)"
        " ON CONFLICT (node_id, pid, start_ns) DO UPDATE SET comm = excluded.comm,"
        " job = excluded.job, rank = excluded.rank, world_size = excluded.world_size,"
        " gpu = excluded.gpu, instance = excluded.instance, last_seen_ns = max(last_seen_ns, "
        "excluded.last_seen_ns) RETURNING id",
        &st);
    if (rc != 0)
        return rc;
    ltn_stmt_i64(st, 1, node_id);
    ltn_stmt_i64(st, 2, r->pid);
    ltn_stmt_u64(st, 3, r->proc_start_ns);
    ltn_stmt_text(st, 4, r->comm);
    ltn_stmt_text(st, 5, r->job);
    if (r->rank >= 0)
        ltn_stmt_i64(st, 6, r->rank);
    if (r->world_size >= 0)
        ltn_stmt_i64(st, 7, r->world_size);
    ltn_stmt_text(st, 8, r->gpu_uuid);
    ltn_stmt_u64(st, 9, u->received_ns);
    ltn_stmt_text(st, 10, r->instance);
    w->rows++;
    return one_id(st, ret_id);
}

static int op_id(struct ltn_writer *w, const struct ltn_update_op *o, int64_t *ret_id)
{
    char key[KEY_BYTES];
    struct ltn_stmt *st;
    (void)snprintf(key, sizeof(key), "%s\x1f%s", o->source, o->op);
    *ret_id = id_get(w, key);
    if (*ret_id != 0)
        return 0;
    int rc = ltn_db_prepare(w->db,
                            "INSERT INTO op (source, name) VALUES (?1, ?2) ON CONFLICT"
                            " (source, name) DO UPDATE SET name = excluded.name RETURNING id",
                            &st);
    if (rc != 0)
        return rc;
    ltn_stmt_text(st, 1, o->source);
    ltn_stmt_text(st, 2, o->op);
    rc = one_id(st, ret_id);
    if (rc == 0)
        id_put(w, key, *ret_id);
    return rc;
}

static int write_ops(struct ltn_writer *w, const struct ltn_update_resource *r, int64_t process_id)
{
    for (const struct ltn_update_op *o = r->ops; o != NULL; o = o->next) {
        struct ltn_stmt *st;
        int64_t op = 0;
        if (!o->has_counts)
            continue;
        int rc = op_id(w, o, &op);
        if (rc == 0)
            rc = ltn_db_prepare(w->db,
                                "INSERT INTO op_count (process_id, op_id, calls, errors, bytes)"
                                " VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (process_id, op_id)"
                                " DO UPDATE SET calls = max(calls, excluded.calls),"
                                " errors = max(errors, excluded.errors),"
                                " bytes = max(bytes, excluded.bytes)",
                                &st);
        if (rc != 0)
            return rc;
        ltn_stmt_i64(st, 1, process_id);
        ltn_stmt_i64(st, 2, op);
        ltn_stmt_u64(st, 3, o->calls);
        ltn_stmt_u64(st, 4, o->errors);
        ltn_stmt_u64(st, 5, o->bytes);
        rc = ltn_stmt_run(st);
        if (rc != 0)
            return rc;
        w->rows++;
    }
    return 0;
}

static void split_json(struct ltn_buf *b, const struct ltn_update_rank *s)
{
    struct ltn_json j;
    ltn_json_init(&j, b);
    ltn_json_open_object(&j);
    for (size_t p = 0; p < LTN_PARTS; p++)
        if (s->part_ns[p] > 0)
            ltn_json_kv_f64(&j, ltn_part_name((enum ltn_part)p), round(s->part_ns[p]));
    ltn_json_close_object(&j);
}

static int write_window(struct ltn_writer *w, const struct ltn_update_resource *r,
                        int64_t process_id)
{
    struct ltn_stmt *st;
    struct ltn_buf split;
    if (!r->steps.present || r->end_ns == 0)
        return 0;
    int rc = ltn_db_prepare(w->db,
                            "INSERT OR IGNORE INTO rank_window (process_id, end_ns, steps_total,"
                            " step_ns, self_ns, peer_wait_ns, coverage, split)"
                            " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
                            &st);
    if (rc != 0)
        return rc;
    ltn_buf_init(&split, 4096);
    split_json(&split, &r->steps);
    ltn_stmt_i64(st, 1, process_id);
    ltn_stmt_u64(st, 2, r->end_ns);
    ltn_stmt_u64(st, 3, r->steps.steps_total);
    ltn_stmt_f64(st, 4, r->steps.step_ns);
    ltn_stmt_f64(st, 5, r->steps.self_ns);
    ltn_stmt_f64(st, 6, r->steps.peer_wait_ns);
    ltn_stmt_f64(st, 7, r->steps.coverage);
    ltn_stmt_text(st, 8, ltn_buf_str(&split));
    rc = ltn_stmt_run(st);
    ltn_buf_done(&split);
    w->rows++;
    return rc;
}

static int write_incident(struct ltn_writer *w, const struct ltn_update_incident *i)
{
    struct ltn_stmt *st;
    int rc = ltn_db_prepare(
        w->db,
        "INSERT OR IGNORE INTO incident (node, incident_id, time_ns, state, kind, severity,"
        " severity_number, title, cause, explained_share, count, job, rank, pid, opened_at_ns,"
        " evidence) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)",
        &st);
    if (rc != 0)
        return rc;
    ltn_stmt_text(st, 1, i->node);
    ltn_stmt_text(st, 2, i->id);
    ltn_stmt_u64(st, 3, i->time_ns);
    ltn_stmt_text(st, 4, i->state);
    ltn_stmt_text(st, 5, i->kind);
    ltn_stmt_text(st, 6, i->severity);
    ltn_stmt_i64(st, 7, i->severity_number);
    ltn_stmt_text(st, 8, i->title);
    ltn_stmt_text(st, 9, i->cause);
    if (i->explained_share >= 0)
        ltn_stmt_f64(st, 10, i->explained_share);
    ltn_stmt_u64(st, 11, i->count);
    ltn_stmt_text(st, 12, i->job);
    if (i->rank >= 0)
        ltn_stmt_i64(st, 13, i->rank);
    ltn_stmt_i64(st, 14, i->pid);
    ltn_stmt_u64(st, 15, i->opened_at_ns);
    ltn_stmt_text(st, 16, i->evidence);
    w->rows++;
    return ltn_stmt_run(st);
}

int ltn_write_update(struct ltn_writer *w, const struct ltn_update *u)
{
    for (const struct ltn_update_resource *r = u->resources; r != NULL; r = r->next) {
        int64_t node_id = 0, process_id = 0;
        int rc = write_node(w, u, r, &node_id);
        if (rc == 0 && r->is_process)
            rc = begin_instance(w, r, node_id);
        if (rc == 0 && r->is_process)
            rc = write_process(w, u, r, node_id, &process_id);
        if (rc == 0 && r->is_process)
            rc = write_ops(w, r, process_id);
        if (rc == 0 && r->is_process)
            rc = write_window(w, r, process_id);
        if (rc != 0)
            return rc;
    }
    for (const struct ltn_update_incident *i = u->incidents; i != NULL; i = i->next) {
        int rc = write_incident(w, i);
        if (rc != 0)
            return rc;
    }
    return ltn_write_logs(w, u);
}
