/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/explain.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/attr.h"
#include "base/json.h"

#define ROWS_BYTES ((size_t)32 << 20)
#define SQL_BYTES  4096
#define OPS_SHOWN  8
/* Time an op must have taken to be worth a line. */
#define OP_MIN_NS 1000000

static int ask(struct ltn_record_reader *r, struct ltn_rows *rows, struct ltn_errinfo *info,
               const char *fmt, ...) ltn_printf(4, 5);
static int ask(struct ltn_record_reader *r, struct ltn_rows *rows, struct ltn_errinfo *info,
               const char *fmt, ...)
{
    char sql[SQL_BYTES];
    const struct ltn_db_limits limits = {.timeout_ns = 30 * LTN_NS_PER_S};
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(sql, sizeof(sql), fmt, ap);
    va_end(ap);
    if (n < 0 || (size_t)n >= sizeof(sql)) {
        return ltn_errinfo_set(info, LTN_ERR_INTERNAL, "statement too long");
    }
    return ltn_rows_query(rows, ltn_record_reader_db(r), sql, &limits, info);
}

/* Condition on p.pid, or on nothing. */
static void pid_condition(const struct ltn_explain_opts *o, const char *column, char out[48])
{
    out[0] = '\0';
    if (o->pid != 0) {
        (void)snprintf(out, 48, " AND %s = %" PRIu32, column, o->pid);
    }
}

static int load_incidents(struct ltn_explain *e, struct ltn_record_reader *r,
                          struct ltn_errinfo *info)
{
    char pid[48];
    pid_condition(&e->o, "pid", pid);
    int rc = ask(r, &e->span, info,
                 "SELECT min(w.start_ns) AS first_ns, max(w.end_ns) AS last_ns, count(*) AS "
                 "windows, (SELECT count(*) FROM procs) AS processes, (SELECT group_concat(name, "
                 "', ') FROM nodes) AS node FROM windows w WHERE w.end_ns >= %" PRIu64
                 " AND w.start_ns < %" PRIu64,
                 e->o.from_ns, e->o.to_ns);
    if (rc == 0) {
        rc = ask(r, &e->incidents, info,
                 "SELECT * FROM incidents WHERE changed_at_ns >= %" PRIu64
                 " AND opened_at_ns < %" PRIu64 "%s ORDER BY opened_at_ns DESC LIMIT %" PRIu64,
                 e->o.from_ns, e->o.to_ns, pid, e->o.last);
    }
    return rc;
}

/* The newest quarter of the time against the rest. */
static int load_ops(struct ltn_explain *e, struct ltn_record_reader *r, uint64_t recent_ns,
                    struct ltn_errinfo *info)
{
    char pid[48];
    pid_condition(&e->o, "p.pid", pid);
    return ask(
        r, &e->ops, info,
        "SELECT op, source, count, total_ns,"
        " CAST(min(hist_quantile(usual, 0.5), max_ns) AS INTEGER) AS usual_p50_ns,"
        " CAST(min(hist_quantile(recent, 0.5), max_ns) AS INTEGER) AS recent_p50_ns,"
        " CAST(min(hist_quantile(usual, 0.95), max_ns) AS INTEGER) AS usual_p95_ns,"
        " CAST(min(hist_quantile(recent, 0.95), max_ns) AS INTEGER) AS recent_p95_ns, max_ns,"
        " errors FROM (SELECT o.name AS op, o.source AS source, sum(x.calls) AS count,"
        " sum(x.duration_ns) AS total_ns, max(x.max_ns) AS max_ns, sum(x.errors) AS errors,"
        " hist_merge(CASE WHEN w.start_ns < %" PRIu64 " THEN x.hist END) AS usual,"
        " hist_merge(CASE WHEN w.start_ns >= %" PRIu64 " THEN x.hist END) AS recent"
        " FROM op_windows x JOIN windows w ON w.id = x.window_id JOIN ops o ON o.id = x.op_id"
        " JOIN procs p ON p.id = x.proc_id WHERE w.end_ns >= %" PRIu64 " AND w.start_ns < %" PRIu64
        "%s GROUP BY o.id HAVING sum(x.duration_ns) >= %d OR sum(x.errors) > 0)"
        " ORDER BY coalesce((recent_p95_ns + 1.0) / (usual_p95_ns + 1.0), 1) *"
        " (1 + ln(total_ns + 1)) DESC, op LIMIT %d",
        recent_ns, recent_ns, e->o.from_ns, e->o.to_ns, pid, OP_MIN_NS, OPS_SHOWN);
}

#define PARTS(X)                                                                                   \
    X(on_cpu)                                                                                      \
    X(run_queue)                                                                                   \
    X(device) X(futex) X(read) X(write) X(poll) X(sleep) X(disk) X(child) X(fault) X(other)

#define PART_SQL(name)                                                                             \
    ", sum(CASE WHEN late THEN steps * " #name "_ns END) / sum(CASE WHEN late THEN steps END)"     \
    " - sum(CASE WHEN NOT late THEN steps * " #name "_ns END) / "                                  \
    "sum(CASE WHEN NOT late THEN steps END) AS " #name "_grew_ns"

static int load_ranks(struct ltn_explain *e, struct ltn_record_reader *r, uint64_t middle_ns,
                      struct ltn_errinfo *info)
{
    char pid[48];
    pid_condition(&e->o, "pid", pid);
    return ask(r, &e->ranks, info,
               "SELECT node, pid, comm, rank,"
               " sum(CASE WHEN NOT late THEN steps * step_ns END) / sum(CASE WHEN NOT late THEN "
               "steps END) AS earlier_step_ns,"
               " sum(CASE WHEN late THEN steps * step_ns END) / sum(CASE WHEN late THEN steps END)"
               " AS later_step_ns,"
               " sum(CASE WHEN NOT late THEN steps * self_ns END) / sum(CASE WHEN NOT late THEN "
               "steps END) AS earlier_self_ns,"
               " sum(CASE WHEN late THEN steps * self_ns END) / sum(CASE WHEN late THEN steps END)"
               " AS later_self_ns, sum(steps) AS steps" PARTS(
                   PART_SQL) " FROM (SELECT *, timestamp_ns > %" PRIu64
                             " AS late FROM rank_steps WHERE "
                             "timestamp_ns >= %" PRIu64 " AND timestamp_ns < %" PRIu64
                             " AND steps > 0%s) GROUP BY node, pid ORDER BY later_self_ns - "
                             "earlier_self_ns "
                             "DESC, rank LIMIT 64",
               middle_ns, e->o.from_ns, e->o.to_ns, pid);
}

static int load_preemptors(struct ltn_explain *e, struct ltn_record_reader *r,
                           struct ltn_errinfo *info)
{
    char pid[48];
    pid_condition(&e->o, "p.pid", pid);
    return ask(r, &e->preemptors, info,
               "SELECT s.text AS comm, x.by_pid AS by_pid, sum(x.waited_ns) AS waited_ns,"
               " sum(x.times) AS times, count(DISTINCT x.proc_id) AS victims"
               " FROM preemptors x JOIN windows w ON w.id = x.window_id JOIN procs p ON p.id = "
               "x.proc_id LEFT JOIN strings s ON s.id = x.comm_id WHERE w.end_ns >= %" PRIu64
               " AND w.start_ns < %" PRIu64
               "%s GROUP BY x.comm_id, x.by_pid ORDER BY waited_ns DESC LIMIT 5",
               e->o.from_ns, e->o.to_ns, pid);
}

/* Only processes that were there together. */
static int load_sharing(struct ltn_explain *e, struct ltn_record_reader *r,
                        struct ltn_errinfo *info)
{
    return ask(
        r, &e->sharing, info,
        "SELECT node, gpu, count(*) AS users, group_concat(who, ', ') AS who FROM (SELECT "
        "DISTINCT n.name AS node, g.uuid AS gpu, p.id AS id, coalesce(s.text, '?') || '[' || "
        "p.pid || ']' AS who FROM op_windows x JOIN windows w ON w.id = x.window_id JOIN "
        "procs p ON p.id = x.proc_id JOIN gpus g ON g.id = p.gpu_id JOIN nodes n ON n.id = "
        "p.node_id LEFT JOIN strings s ON s.id = p.comm_id WHERE w.end_ns >= %" PRIu64
        " AND w.start_ns < %" PRIu64 " AND EXISTS (SELECT 1 FROM op_windows y JOIN procs q "
        "ON q.id = y.proc_id WHERE y.window_id = x.window_id AND q.gpu_id = p.gpu_id AND "
        "q.id <> p.id) ORDER BY g.uuid, p.pid LIMIT 64) GROUP BY node, gpu",
        e->o.from_ns, e->o.to_ns);
}

static int load_processes(struct ltn_explain *e, struct ltn_record_reader *r,
                          struct ltn_errinfo *info)
{
    char pid[48];
    pid_condition(&e->o, "p.pid", pid);
    return ask(
        r, &e->processes, info,
        "SELECT n.name AS node, p.pid AS pid, s.text AS comm, p.rank AS rank,"
        " sum(x.calls) AS calls, sum(x.errors) AS errors, sum(x.duration_ns) AS in_calls_ns,"
        " sum(x.run_queue_ns) AS calls_run_queue_ns,"
        " (SELECT sum(k.steps * k.self_ns) FROM rank_windows k JOIN windows v ON v.id = "
        "k.window_id WHERE k.proc_id = p.id AND v.end_ns >= %" PRIu64 " AND v.start_ns < %" PRIu64
        ") AS self_ns,"
        " (SELECT sum(k.steps * k.run_queue_ns) FROM rank_windows k JOIN windows v ON v.id = "
        "k.window_id WHERE k.proc_id = p.id AND v.end_ns >= %" PRIu64 " AND v.start_ns < %" PRIu64
        ") AS run_queue_ns,"
        " (SELECT t.text FROM preemptors q JOIN strings t ON t.id = q.comm_id WHERE "
        "q.proc_id = p.id GROUP BY q.comm_id ORDER BY sum(q.waited_ns) DESC LIMIT 1) AS "
        "held_by"
        " FROM op_windows x JOIN windows w ON w.id = x.window_id JOIN procs p ON p.id = "
        "x.proc_id JOIN nodes n ON n.id = p.node_id LEFT JOIN strings s ON s.id = p.comm_id"
        " WHERE w.end_ns >= %" PRIu64 " AND w.start_ns < %" PRIu64
        "%s GROUP BY p.id ORDER BY in_calls_ns DESC LIMIT 256",
        e->o.from_ns, e->o.to_ns, e->o.from_ns, e->o.to_ns, e->o.from_ns, e->o.to_ns, pid);
}

int ltn_explain_load(struct ltn_explain *e, struct ltn_record_reader *r,
                     const struct ltn_explain_opts *o, struct ltn_errinfo *info)
{
    *e = (struct ltn_explain){.o = *o};
    struct ltn_rows *all[] = {&e->span,  &e->incidents,  &e->stacks,  &e->ops,
                              &e->ranks, &e->preemptors, &e->sharing, &e->processes};
    for (size_t i = 0; i < LTN_ARRAY_SIZE(all); i++) {
        ltn_rows_init(all[i], ROWS_BYTES);
    }
    int rc = load_incidents(e, r, info);
    if (rc == 0) {
        rc = ltn_explain_stacks_load(e, r, info);
    }
    if (rc < 0 || e->o.chains || e->span.row_count == 0 ||
        ltn_rows_i64(&e->span, 0, "windows") == 0) {
        return rc;
    }
    uint64_t first = (uint64_t)ltn_rows_i64(&e->span, 0, "first_ns");
    uint64_t last = (uint64_t)ltn_rows_i64(&e->span, 0, "last_ns");
    rc = load_ops(e, r, last - (last - first) / 4, info);
    if (rc == 0) {
        rc = load_ranks(e, r, first + (last - first) / 2, info);
    }
    if (rc == 0) {
        rc = load_preemptors(e, r, info);
    }
    if (rc == 0) {
        rc = load_sharing(e, r, info);
    }
    return rc == 0 && e->o.per_process ? load_processes(e, r, info) : rc;
}

void ltn_explain_done(struct ltn_explain *e)
{
    ltn_rows_done(&e->span);
    ltn_rows_done(&e->incidents);
    ltn_rows_done(&e->stacks);
    ltn_rows_done(&e->ops);
    ltn_rows_done(&e->ranks);
    ltn_rows_done(&e->preemptors);
    ltn_rows_done(&e->sharing);
    ltn_rows_done(&e->processes);
}

/* ---- advice ---- */

const char *ltn_explain_advice(const char *kind)
{
    static const struct {
        const char *kind;
        const char *advice;
    } table[] = {
        {"cpu_contention", "Give the training processes CPUs of their own (cpuset, exclusive cores "
                           "in Kubernetes), or move or throttle the process named above."},
        {"page_faults", "Raise the memory limit or lock the hot memory (mlock, hugepages); "
                        "prefault model files before the first step."},
        {"memory_pressure", "Raise the memory limit of the cgroup or lower the number of loader "
                            "workers; swapping in the step path costs every rank."},
        {"io_wait", "Move the data set or the checkpoints to faster storage, prefetch further "
                    "ahead, or write checkpoints asynchronously."},
        {"memcpy_bound", "Use pinned host memory and asynchronous copies, overlap them with "
                         "compute, and copy less often in larger pieces."},
        {"alloc_spike", "Let the framework cache device memory (no cudaMalloc or cudaFree in the "
                        "step), and warm it up with the largest batch."},
        {"device_memory", "Lower the batch or the cache size, or look for a leak: the balance of "
                          "allocations stands in the evidence."},
        {"cold_start", "Expected once. If it comes back, keep processes alive and load modules "
                       "before traffic."},
        {"cuda_error", "Look at the first failing call above: later errors follow from it. Run the "
                       "program once with CUDA_LAUNCH_BLOCKING=1."},
        {"collective_hang", "Look at the rank that has not entered the collective: its stack and "
                            "host log say why. The others only wait."},
        {"oom_kill", "Raise the memory limit of the cgroup or lower what the process keeps in "
                     "memory."},
        {"unexplained", "No single measured part explains enough. The split above says where the "
                        "time went; `lanterne query` has the calls."},
    };
    for (size_t i = 0; i < LTN_ARRAY_SIZE(table); i++) {
        if (strcmp(table[i].kind, kind) == 0) {
            return table[i].advice;
        }
    }
    return "The split above says where the time went.";
}

/* ---- JSON ---- */

static void put_rows(struct ltn_json *j, const char *key, const struct ltn_rows *rows)
{
    ltn_json_key(j, key);
    ltn_rows_objects(rows, j);
}

void ltn_explain_json(const struct ltn_explain *e, struct ltn_buf *out)
{
    struct ltn_json j;
    ltn_json_init(&j, out);
    ltn_json_open_object(&j);
    if (e->span.row_count > 0) {
        ltn_json_kv_str(&j, "node", ltn_rows_text(&e->span, 0, "node"));
        ltn_json_kv_time(&j, "first", "first_ns", (uint64_t)ltn_rows_i64(&e->span, 0, "first_ns"));
        ltn_json_kv_time(&j, "last", "last_ns", (uint64_t)ltn_rows_i64(&e->span, 0, "last_ns"));
        ltn_json_kv_i64(&j, "windows", ltn_rows_i64(&e->span, 0, "windows"));
    }
    put_rows(&j, "incidents", &e->incidents);
    put_rows(&j, "stacks", &e->stacks);
    ltn_json_key(&j, "advice");
    ltn_json_open_object(&j);
    for (size_t i = 0; i < e->incidents.row_count; i++) {
        const char *kind = ltn_rows_text(&e->incidents, i, "kind");
        bool said = false;
        for (size_t k = 0; k < i && !said; k++) {
            said = strcmp(ltn_rows_text(&e->incidents, k, "kind"), kind) == 0;
        }
        if (!said) {
            ltn_json_kv_str(&j, kind, ltn_explain_advice(kind));
        }
    }
    ltn_json_close_object(&j);
    if (!e->o.chains) {
        put_rows(&j, "ops", &e->ops);
        put_rows(&j, "ranks", &e->ranks);
        put_rows(&j, "preemptors", &e->preemptors);
        put_rows(&j, "shared_gpus", &e->sharing);
    }
    if (e->o.per_process) {
        put_rows(&j, "processes", &e->processes);
    }
    ltn_json_close_object(&j);
    (void)ltn_buf_putc(out, '\n');
}
