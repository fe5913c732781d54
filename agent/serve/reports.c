/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/reports.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/text.h"
#include "serve/rows.h"

#define DEFAULT_LIMIT 1000
#define ROWS_BYTES    ((size_t)64 << 20)
#define SQL_BYTES     4096
#define TIMEOUT_NS    (10 * LTN_NS_PER_S)

/* Runs a statement of our own, made by printf from numbers only. */
static int run(struct ltn_record_reader *r, struct ltn_rows *rows, struct ltn_errinfo *info,
               const char *fmt, ...) ltn_printf(4, 5);
static int run(struct ltn_record_reader *r, struct ltn_rows *rows, struct ltn_errinfo *info,
               const char *fmt, ...)
{
    char sql[SQL_BYTES];
    const struct ltn_db_limits limits = {.timeout_ns = TIMEOUT_NS, .max_rows = 100000};
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(sql, sizeof(sql), fmt, ap);
    va_end(ap);
    ltn_rows_init(rows, ROWS_BYTES);
    if (n < 0 || (size_t)n >= sizeof(sql)) {
        return ltn_errinfo_set(info, LTN_ERR_INTERNAL, "statement too long");
    }
    return ltn_rows_query(rows, ltn_record_reader_db(r), sql, &limits, info);
}

static uint64_t limit_of(const struct ltn_report_ctx *c)
{
    return c->limit != 0 ? c->limit : DEFAULT_LIMIT;
}

/* One array of objects under key, and from when it is. */
static int put_list(struct ltn_json *j, const char *key, const struct ltn_report_ctx *c,
                    struct ltn_rows *rows, int rc)
{
    if (rc == 0) {
        ltn_json_kv_time(j, "since", "since_ns", c->since_ns);
        ltn_json_key(j, key);
        ltn_rows_objects(rows, j);
    }
    ltn_rows_done(rows);
    return rc;
}

void ltn_report_node(struct ltn_record_reader *r, char *out, size_t size)
{
    struct ltn_rows rows;
    out[0] = '\0';
    if (run(r, &rows, NULL, "SELECT value AS name FROM meta WHERE key = 'node'") == 0 &&
        rows.row_count > 0) {
        (void)ltn_copy_str(out, size, ltn_rows_text(&rows, 0, "name"));
    }
    ltn_rows_done(&rows);
}

/* ---- overview ---- */

#define WORST_SQL                                                                                  \
    "SELECT id, opened_at, opened_at_ns, state, kind, severity, title, root_cause, "               \
    "explained_share, count, pid, rank, comm FROM incidents WHERE changed_at_ns >= %" PRIu64       \
    " ORDER BY state = 'closed', CASE severity WHEN 'CRITICAL' THEN 0 WHEN 'HIGH' THEN 1 WHEN "    \
    "'MEDIUM' THEN 2 ELSE 3 END, changed_at_ns DESC LIMIT 1"

static int put_counts(struct ltn_record_reader *r, const struct ltn_report_ctx *c,
                      struct ltn_json *j, struct ltn_errinfo *info)
{
    struct ltn_rows rows;
    int rc = run(r, &rows, info,
                 "SELECT (SELECT coalesce(max(id) - min(id) + 1, 0) FROM calls) AS events,"
                 "(SELECT count(*) FROM windows) AS windows,"
                 "(SELECT min(start_ns) FROM windows) AS first_window_ns,"
                 "(SELECT max(end_ns) FROM windows) AS last_window_ns,"
                 "(SELECT count(*) FROM procs) AS processes,"
                 "(SELECT count(*) FROM procs WHERE ended_ns IS NULL) AS processes_live,"
                 "(SELECT count(*) FROM incidents WHERE state <> 'closed') AS incidents_open,"
                 "(SELECT count(*) FROM incidents WHERE changed_at_ns >= %" PRIu64 ") AS incidents",
                 c->since_ns);
    if (rc == 0) {
        ltn_json_key(j, "counts");
        ltn_json_open_object(j);
        for (size_t i = 0; i < rows.column_count; i++) {
            ltn_json_kv_i64(j, rows.names[i], rows.cells[i].i);
        }
        ltn_json_close_object(j);
    }
    ltn_rows_done(&rows);
    return rc;
}

static int put_first(struct ltn_json *j, const char *key, struct ltn_rows *rows, int rc)
{
    if (rc == 0) {
        ltn_json_key(j, key);
        if (rows->row_count == 0) {
            ltn_json_null(j);
        } else {
            struct ltn_buf text;
            struct ltn_json list;
            ltn_buf_init(&text, ROWS_BYTES);
            ltn_json_init(&list, &text);
            rows->row_count = 1;
            ltn_rows_objects(rows, &list);
            if (ltn_buf_error(&text) == 0 && text.len > 2) {
                ltn_json_raw(j, text.data + 1, text.len - 2);
            } else {
                ltn_json_null(j);
            }
            ltn_buf_done(&text);
        }
    }
    ltn_rows_done(rows);
    return rc;
}

int ltn_report_overview(struct ltn_record_reader *r, const struct ltn_report_ctx *c,
                        struct ltn_json *j, struct ltn_errinfo *info)
{
    char node[256];
    struct ltn_rows rows;
    ltn_report_node(r, node, sizeof(node));
    ltn_json_kv_str(j, "node", c->node[0] != '\0' ? c->node : node);
    ltn_json_kv_str(j, "version", LTN_VERSION);
    ltn_json_kv_time(j, "now", "now_ns", ltn_now_unix_ns());
    int rc = put_counts(r, c, j, info);
    if (rc == 0) {
        rc = run(r, &rows, info, WORST_SQL, c->since_ns);
        rc = put_first(j, "worst_incident", &rows, rc);
    }
    if (rc == 0) {
        rc = run(r, &rows, info,
                 "SELECT calls_seen, records_emitted, records_read, drops, windows_dropped, "
                 "records_dropped, map_bytes, cpu_seconds, rss_bytes, traced_processes, "
                 "attached_probes, attached_files, unattached_files, hidden_processes, "
                 "silent_processes, silent_total, attach_delay_max_ns, detail, thin, "
                 "thinned, probe_share, probe_pid, own_share, pair_ns FROM agent_health ORDER BY "
                 "window_id DESC LIMIT 1");
        rc = put_first(j, "agent", &rows, rc);
    }
    return rc;
}

/* ---- lists ---- */

int ltn_report_ops(struct ltn_record_reader *r, const struct ltn_report_ctx *c, struct ltn_json *j,
                   struct ltn_errinfo *info)
{
    struct ltn_rows rows;
    int rc = run(
        r, &rows, info,
        "SELECT node, source, op, class, count, errors, bytes, total_ns, avg_ns, max_ns,"
        " CAST(min(hist_quantile(h, 0.5), max_ns) AS INTEGER) AS p50_ns,"
        " CAST(min(hist_quantile(h, 0.95), max_ns) AS INTEGER) AS p95_ns,"
        " CAST(min(hist_quantile(h, 0.99), max_ns) AS INTEGER) AS p99_ns, run_queue_ns, off_cpu_ns,"
        " replayed, replayed_bytes"
        " FROM (SELECT n.name AS node, o.source AS source, o.name AS op, o.class AS class,"
        " sum(x.calls) AS count, sum(x.errors) AS errors, sum(x.bytes) AS bytes,"
        " sum(x.duration_ns) AS total_ns, CASE WHEN sum(x.returns) > 0 THEN"
        " sum(x.duration_ns) / sum(x.returns) END AS avg_ns, max(x.max_ns) AS max_ns,"
        " sum(x.run_queue_ns) AS run_queue_ns, sum(x.off_cpu_ns) AS off_cpu_ns,"
        " sum(x.replayed) AS replayed, sum(x.replayed_bytes) AS replayed_bytes,"
        " hist_merge(x.hist) AS h FROM op_windows x JOIN windows w ON w.id = x.window_id"
        " JOIN ops o ON o.id = x.op_id JOIN nodes n ON n.id = w.node_id"
        " WHERE w.end_ns >= %" PRIu64 " GROUP BY n.id, o.id) ORDER BY total_ns DESC, op LIMIT "
        "%" PRIu64,
        c->since_ns, limit_of(c));
    return put_list(j, "ops", c, &rows, rc);
}

int ltn_report_incidents(struct ltn_record_reader *r, const struct ltn_report_ctx *c,
                         struct ltn_json *j, struct ltn_errinfo *info)
{
    struct ltn_rows rows;
    int rc = run(r, &rows, info,
                 "SELECT * FROM incidents WHERE changed_at_ns >= %" PRIu64
                 " ORDER BY opened_at_ns DESC LIMIT %" PRIu64,
                 c->since_ns, limit_of(c));
    return put_list(j, "incidents", c, &rows, rc);
}

int ltn_report_snapshots(struct ltn_record_reader *r, const struct ltn_report_ctx *c,
                         struct ltn_json *j, struct ltn_errinfo *info)
{
    struct ltn_rows rows;
    int rc = run(r, &rows, info,
                 "SELECT * FROM snapshots WHERE timestamp_ns >= %" PRIu64
                 " ORDER BY timestamp_ns DESC LIMIT %" PRIu64,
                 c->since_ns, limit_of(c));
    return put_list(j, "snapshots", c, &rows, rc);
}

int ltn_report_collectives(struct ltn_record_reader *r, const struct ltn_report_ctx *c,
                           struct ltn_json *j, struct ltn_errinfo *info)
{
    struct ltn_rows rows;
    int rc = run(r, &rows, info,
                 "SELECT n.name AS node, printf('%%016x', x.comm_id) AS communicator, p.pid AS pid,"
                 " x.rank AS rank, x.ranks AS ranks, max(x.sequence_total) AS sequence_total,"
                 " max(x.bytes_total) AS bytes_total, sum(x.collectives) AS collectives,"
                 " max(w.end_ns) AS last_window_ns, p.ended_ns AS ended_ns"
                 " FROM communicators x JOIN windows w ON w.id = x.window_id"
                 " JOIN procs p ON p.id = x.proc_id JOIN nodes n ON n.id = w.node_id"
                 " WHERE w.end_ns >= %" PRIu64
                 " GROUP BY n.id, x.comm_id, x.proc_id ORDER BY last_window_ns DESC, communicator,"
                 " rank LIMIT %" PRIu64,
                 c->since_ns, limit_of(c));
    return put_list(j, "collectives", c, &rows, rc);
}

/* ---- capabilities ---- */

struct capability {
    const char *name;
    const char *what;
    const char *instead; /* NULL: measured; else who would measure it */
};

static const struct capability capabilities[] = {
    {"cuda_runtime_calls", "count, duration, errors and bytes of CUDA runtime calls", NULL},
    {"cuda_driver_calls", "the same for the CUDA driver API", NULL},
    {"nccl_calls", "collectives by communicator, rank and sequence number", NULL},
    {"graph_replays", "calls that launches of CUDA graphs issue anew, without durations", NULL},
    {"call_split", "each call and host segment told apart: on CPU, waiting for a CPU, blocked",
     NULL},
    {"step_time", "step, self and peer-wait time of each rank of a synchronous job", NULL},
    {"preemptors", "which process held the CPU that a rank waited for", NULL},
    {"disk_io", "requests, bytes, times and queue depth by disk and by process", NULL},
    {"socket_io", "calls and bytes of traced processes by peer", NULL},
    {"tcp_retransmits", "segments sent again, with both ends", NULL},
    {"file_opens", "opens of traced processes; by path those that failed or were slow", NULL},
    {"memory_allocation", "bytes that traced processes took, and time in direct reclaim", NULL},
    {"cpu_throttling", "time in which a cgroup's CPU limit held a process back", NULL},
    {"process_events", "fork, exec, exit and OOM kill of traced processes, none lost", NULL},
    {"system_state", "CPU, load, memory, swap and pressure of the node", NULL},
    {"gpu_state", "clocks, throttle reasons, memory, power and temperature through NVML", NULL},
    {"kernel_time", "run time of single GPU kernels", "Nsight Systems, or CUPTI in the program"},
    {"sm_occupancy", "occupancy and stalls inside a kernel", "Nsight Compute, or DCGM profiling"},
    {"nvlink_traffic", "bytes by NVLink", "DCGM (DCGM_FI_PROF_NVLINK_*)"},
    {"network_fabric", "congestion in switches", "the fabric's own telemetry"},
};

void ltn_report_capabilities(struct ltn_json *j)
{
    for (int measured = 1; measured >= 0; measured--) {
        ltn_json_key(j, measured != 0 ? "measured" : "not_measured");
        ltn_json_open_array(j);
        for (size_t i = 0; i < LTN_ARRAY_SIZE(capabilities); i++) {
            const struct capability *c = &capabilities[i];
            if ((c->instead == NULL) != (measured != 0)) {
                continue;
            }
            ltn_json_open_object(j);
            ltn_json_kv_str(j, "name", c->name);
            ltn_json_kv_str(j, "what", c->what);
            if (c->instead != NULL) {
                ltn_json_kv_str(j, "measured_by", c->instead);
            }
            ltn_json_close_object(j);
        }
        ltn_json_close_array(j);
    }
}
