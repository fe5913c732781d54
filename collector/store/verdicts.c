/* SPDX-License-Identifier: Apache-2.0 */
/* Verdict changes to rows, and what was kept back to memory. */
#include <string.h>

#include "base/text.h"
#include "store/internal.h"

#define VERDICT_COLUMNS                                                                            \
    "job, peer_group, rank_key, rank, node, method, effect_pct, peers, peer_median_ns,"            \
    " self_time_ns, gpu_clock, peer_gpu_clock, cause, cause_detail, explained_share, tier,"        \
    " since_ns, opened_at_ns, at_ns, closed_at_ns, windows, impact_share, gpu_hours_lost,"         \
    " close_reason"

static const char *const change_names[] = {"open", "update", "close"};

int ltn_write_verdict(struct ltn_writer *w, enum ltn_straggler_change change,
                      const struct ltn_straggler_verdict *v)
{
    struct ltn_stmt *st;
    int rc = ltn_db_prepare(w->db,
                            "INSERT INTO verdict (" VERDICT_COLUMNS ", change) VALUES (?1, ?2, ?3,"
                            " ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18,"
                            " ?19, ?20, ?21, ?22, ?23, ?24, ?25)",
                            &st);
    if (rc != 0)
        return rc;
    ltn_stmt_text(st, 1, v->job);
    ltn_stmt_text(st, 2, v->group);
    ltn_stmt_text(st, 3, v->key);
    ltn_stmt_i64(st, 4, v->rank);
    ltn_stmt_text(st, 5, v->node);
    ltn_stmt_i64(st, 6, (int64_t)v->method);
    ltn_stmt_f64(st, 7, v->effect_pct);
    ltn_stmt_i64(st, 8, v->peers);
    ltn_stmt_f64(st, 9, v->peer_median_ns);
    ltn_stmt_f64(st, 10, v->self_time_ns);
    ltn_stmt_f64(st, 11, v->gpu_clock);
    ltn_stmt_f64(st, 12, v->peer_gpu_clock);
    ltn_stmt_text(st, 13, v->cause);
    ltn_stmt_text(st, 14, v->cause_detail);
    ltn_stmt_f64(st, 15, v->explained_share);
    ltn_stmt_text(st, 16, v->tier);
    ltn_stmt_u64(st, 17, v->since_ns);
    ltn_stmt_u64(st, 18, v->opened_at_ns);
    ltn_stmt_u64(st, 19, v->updated_at_ns);
    ltn_stmt_u64(st, 20, v->closed_at_ns);
    ltn_stmt_i64(st, 21, v->windows);
    ltn_stmt_f64(st, 22, v->impact_share);
    ltn_stmt_f64(st, 23, v->gpu_hours_lost);
    ltn_stmt_text(st, 24, v->close_reason);
    ltn_stmt_text(st, 25, (unsigned)change < 3 ? change_names[change] : "?");
    w->rows++;
    return ltn_stmt_run(st);
}

static void read_verdict(struct ltn_stmt *st, struct ltn_straggler_verdict *v)
{
    memset(v, 0, sizeof(*v));
    (void)ltn_copy_str(v->job, sizeof(v->job), ltn_stmt_col_text(st, 0));
    (void)ltn_copy_str(v->group, sizeof(v->group), ltn_stmt_col_text(st, 1));
    (void)ltn_copy_str(v->key, sizeof(v->key), ltn_stmt_col_text(st, 2));
    v->rank = (int32_t)ltn_stmt_col_i64(st, 3);
    (void)ltn_copy_str(v->node, sizeof(v->node), ltn_stmt_col_text(st, 4));
    int64_t method = ltn_stmt_col_i64(st, 5);
    v->method = method >= 0 && method <= LTN_METHOD_GPU_CLOCK ? (enum ltn_straggler_method)method
                                                              : LTN_METHOD_PEERS;
    v->effect_pct = ltn_stmt_col_f64(st, 6);
    v->peers = (uint32_t)ltn_stmt_col_i64(st, 7);
    v->peer_median_ns = ltn_stmt_col_f64(st, 8);
    v->self_time_ns = ltn_stmt_col_f64(st, 9);
    v->gpu_clock = ltn_stmt_col_f64(st, 10);
    v->peer_gpu_clock = ltn_stmt_col_f64(st, 11);
    (void)ltn_copy_str(v->cause, sizeof(v->cause), ltn_stmt_col_text(st, 12));
    (void)ltn_copy_str(v->cause_detail, sizeof(v->cause_detail), ltn_stmt_col_text(st, 13));
    v->explained_share = ltn_stmt_col_f64(st, 14);
    v->tier = strcmp(ltn_stmt_col_text(st, 15), "nvml") == 0 ? "nvml" : "ebpf";
    v->since_ns = ltn_stmt_col_u64(st, 16);
    v->opened_at_ns = ltn_stmt_col_u64(st, 17);
    v->updated_at_ns = ltn_stmt_col_u64(st, 18);
    v->closed_at_ns = ltn_stmt_col_u64(st, 19);
    v->windows = (uint32_t)ltn_stmt_col_i64(st, 20);
    v->impact_share = ltn_stmt_col_f64(st, 21);
    v->gpu_hours_lost = ltn_stmt_col_f64(st, 22);
    (void)ltn_copy_str(v->close_reason, sizeof(v->close_reason), ltn_stmt_col_text(st, 23));
}

int ltn_load_verdicts(struct ltn_db *db, size_t max, const struct ltn_store_sink *sink)
{
    struct ltn_stmt *st;
    int rc = ltn_db_prepare(db,
                            "SELECT " VERDICT_COLUMNS " FROM verdict WHERE id IN (SELECT id FROM"
                            " (SELECT max(id) AS id FROM verdict GROUP BY job, rank_key,"
                            " opened_at_ns ORDER BY id DESC LIMIT ?1)) ORDER BY id",
                            &st);
    if (rc != 0)
        return rc;
    ltn_stmt_u64(st, 1, max);
    while ((rc = ltn_stmt_step(st)) == 1) {
        struct ltn_straggler_verdict v;
        read_verdict(st, &v);
        sink->on_verdict(sink->ctx, &v);
    }
    return rc;
}

int ltn_load_incidents(struct ltn_db *db, size_t max, const struct ltn_store_sink *sink)
{
    struct ltn_stmt *st;
    int rc = ltn_db_prepare(
        db,
        "SELECT * FROM (SELECT node, incident_id, time_ns, state, kind, severity, severity_number,"
        " title, cause, explained_share, count, job, rank, pid, opened_at_ns, evidence"
        " FROM incident ORDER BY time_ns DESC LIMIT ?1) ORDER BY time_ns",
        &st);
    if (rc != 0)
        return rc;
    ltn_stmt_u64(st, 1, max);
    while ((rc = ltn_stmt_step(st)) == 1) {
        struct ltn_update_incident i = {
            .node = ltn_stmt_col_text(st, 0),
            .id = ltn_stmt_col_text(st, 1),
            .time_ns = ltn_stmt_col_u64(st, 2),
            .state = ltn_stmt_col_text(st, 3),
            .kind = ltn_stmt_col_text(st, 4),
            .severity = ltn_stmt_col_text(st, 5),
            .severity_number = (int32_t)ltn_stmt_col_i64(st, 6),
            .title = ltn_stmt_col_text(st, 7),
            .cause = ltn_stmt_col_text(st, 8),
            .explained_share = ltn_stmt_col_null(st, 9) ? -1 : ltn_stmt_col_f64(st, 9),
            .count = ltn_stmt_col_u64(st, 10),
            .job = ltn_stmt_col_text(st, 11),
            .rank = ltn_stmt_col_null(st, 12) ? -1 : (int32_t)ltn_stmt_col_i64(st, 12),
            .pid = (uint32_t)ltn_stmt_col_i64(st, 13),
            .opened_at_ns = ltn_stmt_col_u64(st, 14),
            .evidence = ltn_stmt_col_text(st, 15),
        };
        sink->on_incident(sink->ctx, &i);
    }
    return rc;
}
