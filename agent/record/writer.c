/* SPDX-License-Identifier: Apache-2.0 */
#include "record/writer_int.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "record/hist_blob.h"

/* Remembered ids per kind. Beyond it everything is forgotten and learned anew: many more processes
 * than run at a time, and few enough that those long gone take little memory. */
#define MAX_REMEMBERED 4096
/* A name from a traced program is cut at this. */
#define MAX_NAME_BYTES 256
#define MAX_BLOB_BYTES (16U << 10)
/* How old the last sighting of a process in the database may be while it makes calls. */
#define SEEN_STEP_NS (60 * LTN_NS_PER_S)

struct proc {
    int64_t id;
    uint64_t last_seen_ns; /* as stored */
};

struct proc_key {
    uint64_t start_ns;
    uint64_t pid;
};

/* ---- what is remembered ---- */

static void remember_init(struct ltn_writer *w)
{
    ltn_map_init(&w->strings, MAX_REMEMBERED);
    ltn_map_init(&w->procs, MAX_REMEMBERED);
    ltn_map_init(&w->gpus, MAX_REMEMBERED);
}

static void remember_done(struct ltn_writer *w)
{
    ltn_map_done(&w->strings, free);
    ltn_map_done(&w->procs, free);
    ltn_map_done(&w->gpus, free);
}

void ltn_writer_forget(struct ltn_writer *w)
{
    remember_done(w);
    remember_init(w);
}

/* Keeps a copy of n bytes under the key; failing to do so only costs a look into the database. */
static void remember(struct ltn_map *m, const void *key, size_t key_len, const void *p, size_t n)
{
    if (m->len >= MAX_REMEMBERED) {
        ltn_map_done(m, free);
        ltn_map_init(m, MAX_REMEMBERED);
    }
    void *copy = malloc(n);
    if (copy == NULL) {
        return;
    }
    memcpy(copy, p, n);
    void *old = ltn_map_get(m, key, key_len);
    if (ltn_map_put(m, key, key_len, copy) < 0) {
        free(copy);
    } else {
        free(old);
    }
}

/* ---- small rows ---- */

int ltn_writer_take_id(struct ltn_stmt *s, int64_t *ret)
{
    int rc = ltn_stmt_step(s);
    if (rc == 1) {
        *ret = ltn_stmt_col_i64(s, 0);
        ltn_stmt_reset(s);
        return 0;
    }
    return rc < 0 ? rc : LTN_ERR_NOT_FOUND;
}

int ltn_writer_string_id(struct ltn_writer *w, const char *text, int64_t *ret)
{
    char clean[MAX_NAME_BYTES];
    *ret = 0;
    if (text == NULL || text[0] == '\0') {
        return 0;
    }
    ltn_text_clean(clean, sizeof(clean), text, strnlen(text, sizeof(clean)));
    const int64_t *known = ltn_map_get_str(&w->strings, clean);
    if (known != NULL) {
        *ret = *known;
        return 0;
    }
    struct ltn_stmt *s;
    int rc = ltn_db_prepare(w->db,
                            "INSERT INTO strings (text) VALUES (?) ON CONFLICT DO UPDATE SET "
                            "text = text RETURNING id",
                            &s);
    if (rc < 0) {
        return rc;
    }
    ltn_stmt_text(s, 1, clean);
    rc = ltn_writer_take_id(s, ret);
    if (rc == 0) {
        remember(&w->strings, clean, strlen(clean), ret, sizeof(*ret));
    }
    return rc;
}

static void bind_id(struct ltn_stmt *s, int i, int64_t id)
{
    if (id != 0) {
        ltn_stmt_i64(s, i, id);
    } else {
        ltn_stmt_null(s, i);
    }
}

/* Values that could not be read are negative: NULL. */
static void bind_known(struct ltn_stmt *s, int i, double v)
{
    if (v >= 0) {
        ltn_stmt_f64(s, i, v);
    } else {
        ltn_stmt_null(s, i);
    }
}

static void bind_known_int(struct ltn_stmt *s, int i, int64_t v)
{
    if (v >= 0) {
        ltn_stmt_i64(s, i, v);
    } else {
        ltn_stmt_null(s, i);
    }
}

static int gpu_id(struct ltn_writer *w, const struct ltn_gpu_window *g, int64_t *ret)
{
    const char *uuid = g->uuid != NULL ? g->uuid : "";
    const int64_t *known = ltn_map_get_str(&w->gpus, uuid);
    if (known != NULL) {
        *ret = *known;
        return 0;
    }
    struct ltn_stmt *s;
    int rc = ltn_db_prepare(w->db,
                            "INSERT INTO gpus (node_id, uuid, model) VALUES (?, ?, ?) ON CONFLICT "
                            "DO UPDATE SET model = excluded.model RETURNING id",
                            &s);
    if (rc < 0) {
        return rc;
    }
    ltn_stmt_i64(s, 1, w->node_id);
    ltn_stmt_text(s, 2, uuid);
    ltn_stmt_text(s, 3, g->model);
    rc = ltn_writer_take_id(s, ret);
    if (rc == 0) {
        remember(&w->gpus, uuid, strlen(uuid), ret, sizeof(*ret));
    }
    return rc;
}

/* ---- processes ---- */

static void remember_proc(struct ltn_writer *w, const struct proc_key *key, int64_t id,
                          uint64_t seen_ns)
{
    struct proc p = {.id = id, .last_seen_ns = seen_ns};
    remember(&w->procs, key, sizeof(*key), &p, sizeof(p));
}

int ltn_writer_proc_id(struct ltn_writer *w, uint32_t pid, uint64_t start_ns, uint64_t seen_ns,
                       int64_t *ret)
{
    struct proc_key key = {.start_ns = start_ns, .pid = pid};
    const struct proc *known = ltn_map_get(&w->procs, &key, sizeof(key));
    if (known != NULL && known->last_seen_ns + SEEN_STEP_NS > seen_ns) {
        *ret = known->id;
        return 0;
    }
    struct ltn_stmt *s;
    int rc =
        ltn_db_prepare(w->db,
                       "INSERT INTO procs (node_id, pid, start_ns, first_seen_ns, last_seen_ns) "
                       "VALUES (?1, ?2, ?3, ?4, ?4) ON CONFLICT DO UPDATE SET "
                       "last_seen_ns = max(last_seen_ns, excluded.last_seen_ns) RETURNING id",
                       &s);
    if (rc < 0) {
        return rc;
    }
    ltn_stmt_i64(s, 1, w->node_id);
    ltn_stmt_i64(s, 2, pid);
    ltn_stmt_u64(s, 3, start_ns);
    ltn_stmt_u64(s, 4, seen_ns);
    rc = ltn_writer_take_id(s, ret);
    if (rc == 0) {
        remember_proc(w, &key, *ret, seen_ns);
    }
    return rc;
}

static int store_proc(struct ltn_writer *w, const struct ltn_window *window,
                      const struct ltn_proc_window *p, int64_t *ret)
{
    int64_t comm = 0;
    int64_t job = 0;
    int64_t gpu = 0;
    int rc = ltn_writer_string_id(w, p->comm, &comm);
    if (rc == 0) {
        rc = ltn_writer_string_id(w, p->job, &job);
    }
    if (rc == 0 && p->gpu >= 0 && (size_t)p->gpu < window->gpu_count) {
        rc = gpu_id(w, &window->gpus[p->gpu], &gpu);
    }
    if (rc < 0) {
        return rc;
    }
    struct ltn_stmt *s;
    rc = ltn_db_prepare(
        w->db,
        "INSERT INTO procs (node_id, pid, start_ns, comm_id, job_id, rank, world_size, local_rank, "
        "gpu_id, first_seen_ns, last_seen_ns, ended_ns) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, "
        "?9, ?10, ?11, ?12) ON CONFLICT DO UPDATE SET comm_id = coalesce(excluded.comm_id, "
        "comm_id), "
        "job_id = coalesce(excluded.job_id, job_id), rank = coalesce(excluded.rank, rank), "
        "world_size = coalesce(excluded.world_size, world_size), "
        "local_rank = coalesce(excluded.local_rank, local_rank), "
        "gpu_id = coalesce(excluded.gpu_id, gpu_id), "
        "first_seen_ns = min(first_seen_ns, excluded.first_seen_ns), "
        "last_seen_ns = max(last_seen_ns, excluded.last_seen_ns), "
        "ended_ns = coalesce(excluded.ended_ns, ended_ns) RETURNING id",
        &s);
    if (rc < 0) {
        return rc;
    }
    ltn_stmt_i64(s, 1, w->node_id);
    ltn_stmt_i64(s, 2, p->pid);
    ltn_stmt_u64(s, 3, p->start_ns);
    bind_id(s, 4, comm);
    bind_id(s, 5, job);
    bind_known_int(s, 6, p->rank);
    bind_known_int(s, 7, p->world_size > 0 ? p->world_size : -1);
    bind_known_int(s, 8, p->local_rank);
    bind_id(s, 9, gpu);
    ltn_stmt_u64(s, 10, window->start_ns);
    ltn_stmt_u64(s, 11, window->end_ns);
    bind_id(s, 12, p->ended ? (int64_t)window->end_ns : 0);
    rc = ltn_writer_take_id(s, ret);
    if (rc == 0) {
        struct proc_key key = {.start_ns = p->start_ns, .pid = p->pid};
        remember_proc(w, &key, *ret, window->end_ns);
    }
    return rc;
}

/* ---- windows ---- */

struct place {
    int64_t window;
    int64_t proc;
};

static int64_t op_row(const struct ltn_writer *w, unsigned op)
{
    return op < LTN_OP_COUNT ? w->ops[op] : w->ops[LTN_OP_NONE];
}

static int store_op(struct ltn_writer *w, const struct place *at, const struct ltn_op_window *o)
{
    struct ltn_stmt *s;
    int rc = ltn_db_prepare(w->db,
                            "INSERT INTO op_windows (window_id, proc_id, op_id, calls, returns, "
                            "errors, bytes, duration_ns, off_cpu_ns, run_queue_ns, max_ns, "
                            "calls_total, replayed, replayed_bytes, hist) "
                            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                            &s);
    if (rc < 0) {
        return rc;
    }
    ltn_buf_reset(&w->blob);
    if (o->hist != NULL) {
        rc = ltn_hist_blob_write(&w->blob, o->hist, LTN_HIST_BUCKETS);
        if (rc < 0) {
            return rc;
        }
    }
    const uint64_t values[] = {o->calls,       o->returns,    o->errors,        o->bytes,
                               o->duration_ns, o->off_cpu_ns, o->run_queue_ns,  o->max_ns,
                               o->calls_total, o->replayed,   o->replayed_bytes};
    ltn_stmt_i64(s, 1, at->window);
    ltn_stmt_i64(s, 2, at->proc);
    ltn_stmt_i64(s, 3, op_row(w, o->op));
    for (size_t i = 0; i < LTN_ARRAY_SIZE(values); i++) {
        ltn_stmt_u64(s, (int)i + 4, values[i]);
    }
    ltn_stmt_blob(s, 15, w->blob.len > 0 ? w->blob.data : NULL, w->blob.len);
    return ltn_stmt_run(s);
}

static int store_preemptors(struct ltn_writer *w, const struct place *at,
                            const struct ltn_rank_window *r)
{
    for (int i = 0; i < LTN_PREEMPTORS; i++) {
        const struct ltn_preemptor *p = &r->preemptors[i];
        if (p->waited_ns == 0) {
            continue;
        }
        char comm[LTN_COMM_BYTES + 1];
        int64_t comm_id = 0;
        int64_t cgroup = 0;
        struct ltn_stmt *s;
        ltn_text_clean(comm, sizeof(comm), p->comm, strnlen(p->comm, LTN_COMM_BYTES));
        int rc = ltn_writer_string_id(w, comm[0] != '\0' ? comm : "?", &comm_id);
        if (rc == 0) {
            rc = ltn_writer_string_id(w, p->cgroup, &cgroup);
        }
        if (rc == 0) {
            rc = ltn_db_prepare(w->db,
                                "INSERT INTO preemptors (window_id, proc_id, position, comm_id, "
                                "by_pid, cgroup_id, waited_ns, times, by_tid, cgroup_path_id) "
                                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                                &s);
        }
        if (rc < 0) {
            return rc;
        }
        ltn_stmt_i64(s, 1, at->window);
        ltn_stmt_i64(s, 2, at->proc);
        ltn_stmt_i64(s, 3, i);
        ltn_stmt_i64(s, 4, comm_id);
        ltn_stmt_i64(s, 5, p->tgid);
        ltn_stmt_u64(s, 6, p->cgroup_id);
        ltn_stmt_u64(s, 7, p->waited_ns);
        ltn_stmt_u64(s, 8, p->times);
        bind_id(s, 9, p->tid);
        bind_id(s, 10, cgroup);
        rc = ltn_stmt_run(s);
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

static int store_rank(struct ltn_writer *w, const struct place *at, const struct ltn_rank_window *r)
{
    struct ltn_stmt *s;
    int rc = ltn_db_prepare(
        w->db,
        "INSERT INTO rank_windows (window_id, proc_id, tid, steps, steps_total, step_ns, self_ns, "
        "peer_wait_ns, on_cpu_ns, run_queue_ns, device_ns, futex_ns, read_ns, write_ns, poll_ns, "
        "sleep_ns, disk_ns, child_ns, fault_ns, other_ns, major_faults, minor_faults, coverage, "
        "collectives_per_step) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, "
        "?, ?, ?, ?)",
        &s);
    if (rc < 0) {
        return rc;
    }
    _Static_assert(LTN_SPLITS == 12, "a column for each part of self time, in their order");
    ltn_stmt_i64(s, 1, at->window);
    ltn_stmt_i64(s, 2, at->proc);
    ltn_stmt_i64(s, 3, r->tid);
    ltn_stmt_f64(s, 4, r->steps);
    ltn_stmt_u64(s, 5, r->steps_total);
    ltn_stmt_f64(s, 6, r->step_ns);
    ltn_stmt_f64(s, 7, r->self_ns);
    ltn_stmt_f64(s, 8, r->peer_wait_ns);
    for (int i = 0; i < LTN_SPLITS; i++) {
        ltn_stmt_f64(s, 9 + i, r->split_ns[i]);
    }
    ltn_stmt_f64(s, 21, r->major_faults);
    ltn_stmt_f64(s, 22, r->minor_faults);
    ltn_stmt_f64(s, 23, r->coverage);
    ltn_stmt_i64(s, 24, r->collectives_per_step);
    return ltn_stmt_run(s);
}

static int store_comm(struct ltn_writer *w, const struct place *at, const struct ltn_comm_window *c)
{
    struct ltn_stmt *s;
    int rc = ltn_db_prepare(w->db,
                            "INSERT OR REPLACE INTO communicators (window_id, proc_id, comm_id, "
                            "rank, ranks, sequence_total, bytes_total, collectives, signature) "
                            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                            &s);
    if (rc < 0) {
        return rc;
    }
    ltn_stmt_i64(s, 1, at->window);
    ltn_stmt_i64(s, 2, at->proc);
    ltn_stmt_u64(s, 3, c->comm_id);
    ltn_stmt_i64(s, 4, c->rank);
    ltn_stmt_i64(s, 5, c->ranks);
    ltn_stmt_u64(s, 6, c->sequence_total);
    ltn_stmt_u64(s, 7, c->bytes_total);
    ltn_stmt_u64(s, 8, c->collectives);
    ltn_stmt_u64(s, 9, c->signature);
    return ltn_stmt_run(s);
}

static int store_proc_window(struct ltn_writer *w, const struct ltn_window *window, int64_t id,
                             const struct ltn_proc_window *p)
{
    struct place at = {.window = id};
    int rc = store_proc(w, window, p, &at.proc);
    for (size_t i = 0; i < p->op_count && rc == 0; i++) {
        rc = store_op(w, &at, &p->ops[i]);
    }
    for (size_t i = 0; i < p->comm_count && rc == 0; i++) {
        rc = store_comm(w, &at, &p->comms[i]);
    }
    if (rc == 0 && p->is_rank) {
        rc = store_rank(w, &at, &p->rank_window);
    }
    if (rc == 0 && (p->is_rank || p->has_host)) {
        rc = store_preemptors(w, &at, p->is_rank ? &p->rank_window : &p->host);
    }
    return rc;
}

static int store_gpu(struct ltn_writer *w, int64_t window, const struct ltn_gpu_window *g)
{
    int64_t gpu;
    struct ltn_stmt *s;
    int rc = gpu_id(w, g, &gpu);
    if (rc == 0) {
        rc = ltn_db_prepare(w->db,
                            "INSERT OR REPLACE INTO gpu_samples (window_id, gpu_id, sm_clock_hz, "
                            "sm_clock_max_hz, throttle_reasons, utilization, memory_used_bytes, "
                            "memory_total_bytes, power_w, temperature_c, pcie_width, "
                            "pcie_width_max, pcie_generation, pcie_generation_max, "
                            "ecc_uncorrected) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                            &s);
    }
    if (rc < 0) {
        return rc;
    }
    ltn_stmt_i64(s, 1, window);
    ltn_stmt_i64(s, 2, gpu);
    bind_known(s, 3, g->sm_clock_hz);
    bind_known(s, 4, g->sm_clock_max_hz);
    ltn_stmt_u64(s, 5, g->throttle_reasons);
    bind_known(s, 6, g->utilization);
    bind_known(s, 7, g->memory_used_bytes);
    bind_known(s, 8, g->memory_total_bytes);
    bind_known(s, 9, g->power_w);
    bind_known(s, 10, g->temperature_c);
    bind_known_int(s, 11, g->pcie_width);
    bind_known_int(s, 12, g->pcie_width_max);
    bind_known_int(s, 13, g->pcie_generation);
    bind_known_int(s, 14, g->pcie_generation_max);
    bind_known(s, 15, g->ecc_uncorrected);
    return ltn_stmt_run(s);
}

static int store_health(struct ltn_writer *w, int64_t window, const struct ltn_agent_health *h)
{
    struct ltn_json j;
    struct ltn_stmt *s;
    ltn_buf_reset(&w->blob);
    ltn_json_init(&j, &w->blob);
    ltn_json_open_object(&j);
    for (unsigned i = 0; i < LTN_DROPS; i++) {
        ltn_json_kv_u64(&j, ltn_record_kernel_drop_name((enum ltn_drop)i), h->drops[i]);
    }
    ltn_json_kv_u64(&j, "stacks", h->coverage.stacks_refused);
    ltn_json_close_object(&j);
    int rc = ltn_buf_error(&w->blob);
    if (rc == 0) {
        rc = ltn_db_prepare(w->db,
                            "INSERT INTO agent_health (window_id, calls_seen, records_emitted, "
                            "records_read, drops, windows_dropped, records_dropped, map_bytes, "
                            "cpu_seconds, rss_bytes, traced_processes, attached_probes, "
                            "attached_files, unattached_files, hidden_processes, "
                            "silent_processes, silent_total, attach_delay_max_ns, detail, thin, "
                            "thinned, probe_share, probe_pid, own_share, pair_ns) VALUES (?, ?, ?, "
                            "?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                            &s);
    }
    if (rc < 0) {
        return rc;
    }
    ltn_stmt_i64(s, 1, window);
    ltn_stmt_u64(s, 2, h->calls_seen);
    ltn_stmt_u64(s, 3, h->records_emitted);
    ltn_stmt_u64(s, 4, h->records_read);
    ltn_stmt_text(s, 5, ltn_buf_str(&w->blob));
    ltn_stmt_u64(s, 6, h->windows_dropped);
    ltn_stmt_u64(s, 7, h->records_dropped + w->calls_lost);
    ltn_stmt_u64(s, 8, h->map_bytes);
    ltn_stmt_f64(s, 9, h->cpu_seconds);
    ltn_stmt_u64(s, 10, h->rss_bytes);
    ltn_stmt_i64(s, 11, h->traced_processes);
    ltn_stmt_i64(s, 12, h->attached_probes);
    ltn_stmt_i64(s, 13, h->coverage.files);
    ltn_stmt_i64(s, 14, h->coverage.files_unattached);
    ltn_stmt_i64(s, 15, h->coverage.hidden_processes);
    ltn_stmt_i64(s, 16, h->coverage.silent_processes);
    ltn_stmt_u64(s, 17, h->coverage.silent_total);
    ltn_stmt_u64(s, 18, h->coverage.attach_delay_max_ns);
    ltn_stmt_text(s, 19, ltn_detail_name(h->price.detail));
    ltn_stmt_i64(s, 20, h->price.thin);
    ltn_stmt_u64(s, 21, h->price.thinned);
    bind_known(s, 22, h->price.probe_share);
    bind_id(s, 23, h->price.probe_pid);
    bind_known(s, 24, h->price.own_share);
    bind_known(s, 25, h->price.pair_ns);
    return ltn_stmt_run(s);
}

int ltn_writer_window(struct ltn_writer *w, const struct ltn_window *window, uint64_t sequence)
{
    struct ltn_stmt *s;
    int64_t id = 0;
    int rc = ltn_db_prepare(w->db,
                            "INSERT INTO windows (node_id, start_ns, end_ns, sequence) VALUES (?, "
                            "?, ?, ?) RETURNING id",
                            &s);
    if (rc < 0) {
        return rc;
    }
    ltn_stmt_i64(s, 1, w->node_id);
    ltn_stmt_u64(s, 2, window->start_ns);
    ltn_stmt_u64(s, 3, window->end_ns);
    ltn_stmt_u64(s, 4, sequence);
    rc = ltn_writer_take_id(s, &id);
    for (size_t i = 0; i < window->gpu_count && rc == 0; i++) {
        rc = store_gpu(w, id, &window->gpus[i]);
    }
    for (size_t i = 0; i < window->proc_count && rc == 0; i++) {
        rc = store_proc_window(w, window, id, &window->procs[i]);
    }
    if (rc == 0) {
        rc = ltn_writer_host(w, window, id);
    }
    return rc < 0 ? rc : store_health(w, id, &window->health);
}

/* ---- calls ---- */

static int store_call(struct ltn_writer *w, struct ltn_stmt *s, const struct ltn_call *c)
{
    int64_t proc;
    int rc = ltn_writer_proc_id(w, c->pid, c->proc_start_ns, c->time_ns, &proc);
    if (rc < 0) {
        return rc;
    }
    ltn_stmt_i64(s, 1, w->next_call_id);
    ltn_stmt_u64(s, 2, c->time_ns);
    ltn_stmt_i64(s, 3, proc);
    ltn_stmt_i64(s, 4, c->tid);
    ltn_stmt_i64(s, 5, op_row(w, c->op));
    ltn_stmt_u64(s, 6, c->duration_ns);
    ltn_stmt_u64(s, 7, c->on_cpu_ns);
    ltn_stmt_u64(s, 8, c->run_queue_ns);
    ltn_stmt_u64(s, 9, c->blocked_ns);
    ltn_stmt_u64(s, 10, c->bytes);
    ltn_stmt_u64(s, 11, c->handle);
    bind_id(s, 12, (int64_t)c->comm_id);
    if (c->comm_id != 0) {
        ltn_stmt_i64(s, 13, (int64_t)c->sequence);
    } else {
        ltn_stmt_null(s, 13);
    }
    bind_id(s, 14, (int64_t)c->segment_ns);
    ltn_stmt_i64(s, 15, c->weight);
    ltn_stmt_i64(s, 16, c->result);
    ltn_stmt_i64(s, 17, c->major_faults);
    ltn_stmt_i64(s, 18, c->minor_faults);
    ltn_stmt_i64(s, 19, c->flags);
    ltn_stmt_i64(s, 20, c->kind);
    bind_id(s, 21, (int64_t)c->stack_id);
    rc = ltn_stmt_run(s);
    if (rc == 0) {
        w->next_call_id++;
    }
    return rc;
}

int ltn_writer_calls(struct ltn_writer *w, const struct ltn_call_batch *batch)
{
    struct ltn_stmt *s;
    int rc = ltn_db_prepare(
        w->db,
        "INSERT INTO calls (id, time_ns, proc_id, tid, op_id, duration_ns, "
        "on_cpu_ns, run_queue_ns, blocked_ns, bytes, handle, comm_id, sequence, "
        "segment_ns, weight, result, major_faults, minor_faults, flags, kind, "
        "stack_ref) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, "
        "?, ?)",
        &s);
    for (size_t i = 0; i < batch->count && rc == 0; i++) {
        rc = store_call(w, s, &batch->calls[i]);
    }
    return rc;
}

int ltn_writer_save_counters(struct ltn_writer *w)
{
    struct ltn_stmt *s;
    int rc = ltn_db_prepare(w->db,
                            "INSERT INTO meta (key, value) VALUES ('next_call_id', ?) ON CONFLICT "
                            "DO UPDATE SET value = excluded.value",
                            &s);
    if (rc < 0) {
        return rc;
    }
    ltn_stmt_i64(s, 1, w->next_call_id);
    return ltn_stmt_run(s);
}

/* ---- incidents ---- */

int ltn_writer_incident(struct ltn_writer *w, const struct ltn_record_incident *i)
{
    int64_t proc = 0;
    struct ltn_stmt *s;
    int rc = i->pid != 0 ? ltn_writer_proc_id(w, i->pid, i->proc_start_ns, i->time_ns, &proc) : 0;
    if (rc == 0) {
        rc = ltn_db_prepare(w->db,
                            "INSERT INTO incident_changes (node_id, incident, time_ns, opened_ns, "
                            "state, kind, severity, title, root_cause, explained_share, count, "
                            "proc_id, evidence) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                            &s);
    }
    if (rc < 0) {
        return rc;
    }
    ltn_stmt_i64(s, 1, w->node_id);
    ltn_stmt_text(s, 2, i->id);
    ltn_stmt_u64(s, 3, i->time_ns);
    ltn_stmt_u64(s, 4, i->opened_ns);
    ltn_stmt_text(s, 5, i->state);
    ltn_stmt_text(s, 6, i->kind);
    ltn_stmt_text(s, 7, i->severity);
    ltn_stmt_text(s, 8, i->title);
    ltn_stmt_text(s, 9, i->cause != NULL && i->cause[0] != '\0' ? i->cause : NULL);
    bind_known(s, 10, i->explained_share);
    ltn_stmt_u64(s, 11, i->count);
    bind_id(s, 12, proc);
    ltn_stmt_text(s, 13, i->evidence);
    return ltn_stmt_run(s);
}

/* ---- start ---- */

static int learn_ops(struct ltn_writer *w)
{
    struct ltn_stmt *s;
    int rc = ltn_db_prepare(w->db,
                            "INSERT INTO ops (source, name, class) VALUES (?, ?, ?) ON CONFLICT DO "
                            "UPDATE SET class = excluded.class RETURNING id",
                            &s);
    for (unsigned op = 0; op < LTN_OP_COUNT && rc == 0; op++) {
        const struct ltn_op *o = ltn_op_get(op);
        ltn_stmt_text(s, 1, o != NULL ? ltn_op_source_name(o->source) : "unknown");
        ltn_stmt_text(s, 2, o != NULL ? o->name : "unknown");
        ltn_stmt_text(s, 3, o != NULL ? ltn_op_class_name(o->op_class) : "unknown");
        rc = ltn_writer_take_id(s, &w->ops[op]);
    }
    return rc;
}

static int learn_node(struct ltn_writer *w, const char *node)
{
    char boot_id[64] = "";
    struct ltn_stmt *s;
    if (ltn_file_read_head("/proc/sys/kernel/random/boot_id", boot_id, sizeof(boot_id)) > 0) {
        boot_id[strcspn(boot_id, "\n")] = '\0';
    }
    int rc = ltn_db_prepare(w->db,
                            "INSERT INTO nodes (name, boot_id) VALUES (?, ?) ON CONFLICT DO UPDATE "
                            "SET boot_id = excluded.boot_id RETURNING id",
                            &s);
    if (rc < 0) {
        return rc;
    }
    ltn_stmt_text(s, 1, node);
    ltn_stmt_text(s, 2, boot_id);
    rc = ltn_writer_take_id(s, &w->node_id);
    if (rc == 0) {
        rc = ltn_db_prepare(w->db,
                            "INSERT INTO meta (key, value) VALUES ('node', ?1), ('boot_id', ?2), "
                            "('version', ?3) ON CONFLICT DO UPDATE SET value = excluded.value",
                            &s);
    }
    if (rc < 0) {
        return rc;
    }
    ltn_stmt_text(s, 1, node);
    ltn_stmt_text(s, 2, boot_id);
    ltn_stmt_text(s, 3, LTN_VERSION);
    return ltn_stmt_run(s);
}

static int learn_counters(struct ltn_writer *w)
{
    return ltn_db_get_i64(
        w->db,
        "SELECT 1 + max(coalesce((SELECT max(id) FROM calls), 0), coalesce((SELECT "
        "value - 1 FROM meta WHERE key = 'next_call_id'), 0))",
        &w->next_call_id);
}

int ltn_writer_init(struct ltn_writer *w, struct ltn_db *db, const char *node)
{
    *w = (struct ltn_writer){.db = db};
    remember_init(w);
    ltn_buf_init(&w->blob, MAX_BLOB_BYTES);
    int rc = ltn_db_begin(db);
    if (rc == 0) {
        rc = learn_node(w, node);
    }
    if (rc == 0) {
        rc = learn_ops(w);
    }
    if (rc == 0) {
        rc = ltn_db_commit(db);
    }
    if (rc == 0) {
        rc = learn_counters(w);
    }
    if (rc < 0) {
        ltn_db_rollback(db);
        ltn_writer_done(w);
    }
    return rc;
}

void ltn_writer_done(struct ltn_writer *w)
{
    remember_done(w);
    ltn_buf_done(&w->blob);
}
