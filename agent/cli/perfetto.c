/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/perfetto.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/map.h"

#define FLUSH_BYTES (64U * 1024)
#define BUF_BYTES   (4U * 1024 * 1024)
#define THREADS_MAX 65536
#define STACKS_MAX  65536
#define NODE_PID0   1000000 /* "process" of a node's counters: this plus the node's id */

struct writer {
    struct ltn_db *db;
    FILE *f;
    struct ltn_buf buf;
    struct ltn_json j;
    uint64_t from_ns, to_ns;
    uint64_t zero_ns; /* what time 0 of the trace is; keeps the digits of ns in doubles */
    struct ltn_map threads;
    struct ltn_map stacks; /* stack id -> its text */
    uint64_t thread_count;
    struct ltn_perfetto_result *result;
};

/* Hands over what is buffered once it is much, or when all must go. */
static int flush(struct writer *w, bool all)
{
    if (ltn_buf_error(&w->buf) != 0) {
        return ltn_buf_error(&w->buf);
    }
    if (w->buf.len < FLUSH_BYTES && !all) {
        return 0;
    }
    size_t n = w->buf.len;
    bool ok = fwrite(ltn_buf_str(&w->buf), 1, n, w->f) == n;
    ltn_buf_reset(&w->buf);
    return ok ? 0 : -EIO;
}

/* Time in µs as a number with the digits of ns. */
static void kv_us(struct ltn_json *j, const char *key, uint64_t ns)
{
    char text[40];
    int n = snprintf(text, sizeof(text), "%" PRIu64 ".%03" PRIu64, ns / 1000, ns % 1000);
    ltn_json_key(j, key);
    ltn_json_raw(j, text, (size_t)n);
}

static void begin_event(struct writer *w, const char *phase, const char *name, int64_t pid,
                        uint64_t time_ns)
{
    ltn_json_open_object(&w->j);
    ltn_json_kv_str(&w->j, "ph", phase);
    ltn_json_kv_str(&w->j, "name", name);
    ltn_json_kv_i64(&w->j, "pid", pid);
    kv_us(&w->j, "ts", time_ns > w->zero_ns ? time_ns - w->zero_ns : 0);
}

/* Metadata: a name of a process or thread, or the order of processes. */
static void put_metadata(struct writer *w, const char *what, int64_t pid, int64_t tid,
                         const char *name, int64_t order)
{
    ltn_json_open_object(&w->j);
    ltn_json_kv_str(&w->j, "ph", "M");
    ltn_json_kv_str(&w->j, "name", what);
    ltn_json_kv_i64(&w->j, "pid", pid);
    ltn_json_kv_i64(&w->j, "tid", tid);
    ltn_json_key(&w->j, "args");
    ltn_json_open_object(&w->j);
    if (name != NULL) {
        ltn_json_kv_str(&w->j, "name", name);
    } else {
        ltn_json_kv_i64(&w->j, "sort_index", order);
    }
    ltn_json_close_object(&w->j);
    ltn_json_close_object(&w->j);
}

static int put_processes(struct writer *w)
{
    struct ltn_stmt *s;
    char name[512];
    int rc =
        ltn_db_prepare(w->db,
                       "SELECT p.id, n.name, p.rank, coalesce(s.text, '?'), p.pid FROM procs p "
                       "JOIN nodes n ON n.id = p.node_id LEFT JOIN strings s ON s.id = "
                       "p.comm_id ORDER BY p.id",
                       &s);
    while (rc == 0 && (rc = ltn_stmt_step(s)) == 1) {
        int64_t rank = ltn_stmt_col_null(s, 2) ? -1 : ltn_stmt_col_i64(s, 2);
        char rank_text[32] = "";
        if (rank >= 0) {
            (void)snprintf(rank_text, sizeof(rank_text), " rank %" PRId64, rank);
        }
        (void)snprintf(name, sizeof(name), "%.200s%s: %.100s[%" PRId64 "]", ltn_stmt_col_text(s, 1),
                       rank_text, ltn_stmt_col_text(s, 3), ltn_stmt_col_i64(s, 4));
        put_metadata(w, "process_name", ltn_stmt_col_i64(s, 0), 0, name, 0);
        put_metadata(w, "process_sort_index", ltn_stmt_col_i64(s, 0), 0, NULL,
                     rank >= 0 ? rank : 100000);
        rc = flush(w, false);
    }
    if (rc == 0) {
        rc = ltn_db_prepare(w->db, "SELECT id, name FROM nodes ORDER BY id", &s);
    }
    while (rc == 0 && (rc = ltn_stmt_step(s)) == 1) {
        (void)snprintf(name, sizeof(name), "%.200s: system", ltn_stmt_col_text(s, 1));
        put_metadata(w, "process_name", NODE_PID0 + ltn_stmt_col_i64(s, 0), 0, name, 0);
        put_metadata(w, "process_sort_index", NODE_PID0 + ltn_stmt_col_i64(s, 0), 0, NULL, -1);
        rc = flush(w, false);
    }
    return rc;
}

/* Number of a thread in the trace, where thread ids of different nodes must not meet; 0 beyond the
 * ceiling. Its name is written when it is first seen. */
static int64_t thread_number(struct writer *w, int64_t proc, int64_t tid)
{
    const int64_t key[2] = {proc, tid};
    char name[48];
    intptr_t number = (intptr_t)ltn_map_get(&w->threads, key, sizeof(key));
    if (number != 0) {
        return number;
    }
    number = (intptr_t)w->thread_count + 1;
    if (ltn_map_put(&w->threads, key, sizeof(key), (void *)number) < 0) {
        return 0;
    }
    w->thread_count++;
    (void)snprintf(name, sizeof(name), "thread %" PRId64, tid);
    put_metadata(w, "thread_name", proc, number, name, 0);
    return number;
}

/* Text of a stack, one frame a line, innermost first; "" when it cannot be had. */
static const char *stack_text(struct writer *w, int64_t id)
{
    struct ltn_stmt *s;
    char *text = ltn_map_get_u64(&w->stacks, (uint64_t)id);
    if (text != NULL) {
        return text;
    }
    int rc =
        ltn_db_prepare(w->db, "SELECT replace(frames, ';', char(10)) FROM stacks WHERE id = ?", &s);
    if (rc == 0) {
        ltn_stmt_i64(s, 1, id);
        if (ltn_stmt_step(s) == 1) {
            text = strdup(ltn_stmt_col_null(s, 0) ? "" : ltn_stmt_col_text(s, 0));
            ltn_stmt_reset(s);
        }
    }
    if (text != NULL && ltn_map_put_u64(&w->stacks, (uint64_t)id, text) != 0) {
        free(text);
        text = NULL;
    }
    return text != NULL ? text : "";
}

static void put_call(struct writer *w, struct ltn_stmt *s)
{
    int64_t proc = ltn_stmt_col_i64(s, 0);
    int64_t tid = thread_number(w, proc, ltn_stmt_col_i64(s, 1));
    struct ltn_json *j = &w->j;
    if (tid == 0) {
        w->result->skipped++;
        return;
    }
    begin_event(w, "X", ltn_stmt_col_text(s, 2), proc, ltn_stmt_col_u64(s, 4));
    ltn_json_kv_str(j, "cat", ltn_stmt_col_text(s, 3));
    ltn_json_kv_i64(j, "tid", tid);
    kv_us(j, "dur", ltn_stmt_col_u64(s, 5));
    ltn_json_key(j, "args");
    ltn_json_open_object(j);
    ltn_json_kv_i64(j, "oncpu_ns", ltn_stmt_col_i64(s, 6));
    ltn_json_kv_i64(j, "runq_ns", ltn_stmt_col_i64(s, 7));
    ltn_json_kv_i64(j, "blocked_ns", ltn_stmt_col_i64(s, 8));
    if (ltn_stmt_col_i64(s, 9) != 0) {
        ltn_json_kv_i64(j, "bytes", ltn_stmt_col_i64(s, 9));
    }
    if (ltn_stmt_col_i64(s, 10) != 0) {
        ltn_json_kv_i64(j, "result", ltn_stmt_col_i64(s, 10));
    }
    if (!ltn_stmt_col_null(s, 11) && ltn_stmt_col_i64(s, 11) != 0) {
        char comm[24];
        (void)snprintf(comm, sizeof(comm), "%016" PRIx64, ltn_stmt_col_u64(s, 11));
        ltn_json_kv_str(j, "communicator", comm);
        ltn_json_kv_i64(j, "sequence", ltn_stmt_col_i64(s, 12));
    }
    if (!ltn_stmt_col_null(s, 13)) {
        ltn_json_kv_str(j, "stack", stack_text(w, ltn_stmt_col_i64(s, 13)));
    }
    ltn_json_close_object(j);
    ltn_json_close_object(j);
    w->result->spans++;
}

static int put_calls(struct writer *w)
{
    struct ltn_stmt *s;
    int rc = ltn_db_prepare(w->db,
                            "SELECT c.proc_id, c.tid, o.name, o.source, c.time_ns, c.duration_ns, "
                            "c.on_cpu_ns, c.run_queue_ns, c.blocked_ns, c.bytes, c.result, "
                            "c.comm_id, c.sequence, r.stack_id FROM calls c JOIN ops o ON o.id = "
                            "c.op_id LEFT JOIN stack_refs r ON r.ref = c.stack_ref WHERE "
                            "c.time_ns >= ? AND c.time_ns < ? ORDER BY c.time_ns, c.duration_ns "
                            "DESC",
                            &s);
    if (rc < 0) {
        return rc;
    }
    ltn_stmt_u64(s, 1, w->from_ns);
    ltn_stmt_u64(s, 2, w->to_ns);
    while (rc == 0 && (rc = ltn_stmt_step(s)) == 1) {
        put_call(w, s);
        rc = flush(w, false);
    }
    return rc;
}

static int put_incidents(struct writer *w)
{
    struct ltn_stmt *s;
    int rc = ltn_db_prepare(w->db,
                            "SELECT coalesce(i.proc_id, ? + i.node_id), i.title, i.time_ns, "
                            "i.state, i.severity, i.kind, coalesce(i.root_cause, ''), i.incident, "
                            "i.proc_id IS NULL FROM incident_changes i WHERE i.time_ns >= ? AND "
                            "i.time_ns < ? AND i.state <> 'update' ORDER BY i.id",
                            &s);
    if (rc < 0) {
        return rc;
    }
    ltn_stmt_i64(s, 1, NODE_PID0);
    ltn_stmt_u64(s, 2, w->from_ns);
    ltn_stmt_u64(s, 3, w->to_ns);
    while (rc == 0 && (rc = ltn_stmt_step(s)) == 1) {
        char name[512];
        (void)snprintf(name, sizeof(name), "[%.16s] %.16s: %.400s", ltn_stmt_col_text(s, 4),
                       ltn_stmt_col_text(s, 3), ltn_stmt_col_text(s, 1));
        begin_event(w, "i", name, ltn_stmt_col_i64(s, 0), ltn_stmt_col_u64(s, 2));
        ltn_json_kv_str(&w->j, "cat", "incident");
        ltn_json_kv_i64(&w->j, "tid", 0);
        ltn_json_kv_str(&w->j, "s", ltn_stmt_col_i64(s, 8) != 0 ? "g" : "p");
        ltn_json_key(&w->j, "args");
        ltn_json_open_object(&w->j);
        ltn_json_kv_str(&w->j, "id", ltn_stmt_col_text(s, 7));
        ltn_json_kv_str(&w->j, "kind", ltn_stmt_col_text(s, 5));
        ltn_json_kv_str(&w->j, "root_cause", ltn_stmt_col_text(s, 6));
        ltn_json_close_object(&w->j);
        ltn_json_close_object(&w->j);
        w->result->instants++;
        rc = flush(w, false);
    }
    return rc;
}

/* Rows of (pid, counter, time, value). */
static int put_counters(struct writer *w, const char *sql)
{
    struct ltn_stmt *s;
    int rc = ltn_db_prepare(w->db, sql, &s);
    if (rc < 0) {
        return rc;
    }
    ltn_stmt_u64(s, 1, w->from_ns);
    ltn_stmt_u64(s, 2, w->to_ns);
    ltn_stmt_i64(s, 3, NODE_PID0);
    while (rc == 0 && (rc = ltn_stmt_step(s)) == 1) {
        if (ltn_stmt_col_null(s, 3)) {
            rc = 0;
            continue;
        }
        begin_event(w, "C", ltn_stmt_col_text(s, 1), ltn_stmt_col_i64(s, 0),
                    ltn_stmt_col_u64(s, 2));
        ltn_json_key(&w->j, "args");
        ltn_json_open_object(&w->j);
        ltn_json_kv_f64(&w->j, "value", ltn_stmt_col_f64(s, 3));
        ltn_json_close_object(&w->j);
        ltn_json_close_object(&w->j);
        w->result->counters++;
        rc = flush(w, false);
    }
    return rc;
}

#define GPU_COUNTER(title, column, factor)                                                         \
    "SELECT ?3 + w.node_id, 'GPU ' || substr(g.uuid, 1, 12) || ' " title "', w.end_ns, x." column  \
    " * " factor " FROM gpu_samples x JOIN windows w ON w.id = x.window_id JOIN gpus g ON g.id = " \
    "x.gpu_id WHERE w.end_ns >= ?1 AND w.end_ns < ?2 ORDER BY w.end_ns"
#define RANK_COUNTER(title, column)                                                                \
    "SELECT r.proc_id, '" title "', w.end_ns, r." column " / 1e6 FROM rank_windows r JOIN windows" \
    " w ON w.id = r.window_id WHERE w.end_ns >= ?1 AND w.end_ns < ?2 AND ?3 > 0 ORDER BY w.end_ns"

static int put_all_counters(struct writer *w)
{
    static const char *const statements[] = {
        GPU_COUNTER("busy %", "utilization", "100.0"),
        GPU_COUNTER("SM clock MHz", "sm_clock_hz", "1e-6"),
        GPU_COUNTER("memory MiB", "memory_used_bytes", "1.0 / 1048576"),
        GPU_COUNTER("power W", "power_w", "1.0"),
        GPU_COUNTER("temperature C", "temperature_c", "1.0"),
        RANK_COUNTER("step ms", "step_ns"),
        RANK_COUNTER("self ms", "self_ns"),
        RANK_COUNTER("waiting for a CPU ms", "run_queue_ns"),
        ("SELECT ?3 + w.node_id, 'agent CPU s', w.end_ns, h.cpu_seconds FROM agent_health h JOIN "
         "windows w ON w.id = h.window_id WHERE w.end_ns >= ?1 AND w.end_ns < ?2 ORDER BY "
         "w.end_ns"),
    };
    int rc = 0;
    for (size_t i = 0; i < LTN_ARRAY_SIZE(statements) && rc == 0; i++) {
        rc = put_counters(w, statements[i]);
    }
    return rc;
}

/* The earliest moment that is written. */
static int find_zero(struct writer *w)
{
    struct ltn_stmt *s;
    int rc =
        ltn_db_prepare(w->db,
                       "SELECT min(t) FROM (SELECT min(time_ns) AS t FROM calls WHERE time_ns "
                       ">= ?1 AND time_ns < ?2 UNION ALL SELECT min(end_ns) FROM windows WHERE "
                       "end_ns >= ?1 AND end_ns < ?2 UNION ALL SELECT min(time_ns) FROM "
                       "incident_changes WHERE time_ns >= ?1 AND time_ns < ?2)",
                       &s);
    if (rc < 0) {
        return rc;
    }
    ltn_stmt_u64(s, 1, w->from_ns);
    ltn_stmt_u64(s, 2, w->to_ns);
    rc = ltn_stmt_step(s);
    if (rc == 1) {
        w->zero_ns = ltn_stmt_col_u64(s, 0);
        ltn_stmt_reset(s);
        rc = 0;
    }
    return rc;
}

static int write_all(struct writer *w)
{
    struct ltn_json *j = &w->j;
    int rc = ltn_db_exec(w->db, "BEGIN");
    if (rc == 0) {
        rc = find_zero(w);
    }
    ltn_json_open_object(j);
    ltn_json_kv_str(j, "displayTimeUnit", "ns");
    ltn_json_key(j, "otherData");
    ltn_json_open_object(j);
    ltn_json_kv_str(j, "producer", "lanterne " LTN_VERSION);
    ltn_json_kv_time(j, "zero", "zero_ns", w->zero_ns);
    ltn_json_close_object(j);
    ltn_json_key(j, "traceEvents");
    ltn_json_open_array(j);
    rc = rc == 0 ? put_processes(w) : rc;
    rc = rc == 0 ? put_calls(w) : rc;
    rc = rc == 0 ? put_incidents(w) : rc;
    rc = rc == 0 ? put_all_counters(w) : rc;
    ltn_json_close_array(j);
    ltn_json_close_object(j);
    (void)ltn_buf_putc(&w->buf, '\n');
    return rc == 0 ? flush(w, true) : rc;
}

int ltn_perfetto_write(struct ltn_record_reader *r, uint64_t from_ns, uint64_t to_ns, FILE *f,
                       struct ltn_perfetto_result *ret, struct ltn_errinfo *info)
{
    struct writer w = {
        .db = ltn_record_reader_db(r), .f = f, .from_ns = from_ns, .to_ns = to_ns, .result = ret};
    *ret = (struct ltn_perfetto_result){0};
    ltn_buf_init(&w.buf, BUF_BYTES);
    ltn_json_init(&w.j, &w.buf);
    ltn_map_init(&w.threads, THREADS_MAX);
    ltn_map_init(&w.stacks, STACKS_MAX);
    int rc = write_all(&w);
    if (rc < 0) {
        (void)ltn_errinfo_set(info, rc, "%s",
                              rc == -EIO ? "the output takes no more" : ltn_db_message(w.db));
    }
    ltn_db_rollback(w.db);
    ltn_map_done(&w.threads, NULL);
    ltn_map_done(&w.stacks, free);
    ltn_buf_done(&w.buf);
    return rc;
}
