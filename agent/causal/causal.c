/* SPDX-License-Identifier: Apache-2.0 */
#include "causal/causal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "causal/internal.h"

#define PROCS_MAX        8192
#define INCIDENTS_MAX    4096
#define FORGET_WINDOWS   60
#define IDLE_CPU_SHARE   0.1
#define IDLE_BYTES_PER_S 65536
#define PRESSURE_HIGH    0.2
#define PRESSURE_WINDOWS 3
#define PRESSURE_QUIET   3

struct ltn_causal *ltn_causal_new(const struct ltn_causal_opts *opts)
{
    struct ltn_causal *c = calloc(1, sizeof(*c));
    if (c == NULL) {
        return NULL;
    }
    c->opts = *opts;
    (void)ltn_copy_str(c->node, sizeof(c->node), opts->node != NULL ? opts->node : "");
    c->opts.node = c->node;
    ltn_map_init(&c->procs, PROCS_MAX);
    ltn_map_init(&c->incidents, INCIDENTS_MAX);
    return c;
}

void ltn_causal_free(struct ltn_causal *c)
{
    if (c == NULL) {
        return;
    }
    ltn_map_done(&c->procs, free);
    ltn_inc_done(c);
    free(c);
}

struct causal_proc *ltn_causal_find(const struct ltn_causal *c, uint32_t pid)
{
    return ltn_map_get_u64(&c->procs, pid);
}

/* The process, anew when its pid now belongs to another one. */
static struct causal_proc *get_proc(struct ltn_causal *c, uint32_t pid, uint64_t start_ns)
{
    struct causal_proc *p = ltn_causal_find(c, pid);
    if (p != NULL && start_ns != 0 && p->start_ns == 0) {
        p->start_ns = start_ns;
    }
    if (p != NULL && (start_ns == 0 || p->start_ns == start_ns)) {
        return p;
    }
    if (p == NULL) {
        p = malloc(sizeof(*p));
        if (p == NULL || ltn_map_put_u64(&c->procs, pid, p) != 0) {
            free(p);
            c->stats.refused_total++;
            return NULL;
        }
    }
    memset(p, 0, sizeof(*p));
    p->pid = pid;
    p->start_ns = start_ns;
    p->rank = -1;
    p->touched_window = c->window;
    return p;
}

void ltn_causal_calls(struct ltn_causal *c, const struct ltn_call *calls, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct causal_proc *p = get_proc(c, calls[i].pid, calls[i].proc_start_ns);
        if (p != NULL) {
            p->touched_window = c->window;
            ltn_causal_note_call(p, &calls[i]);
        }
    }
}

/* Whether a process did anything in the window, so that it is not taken for stuck. */
static void note_activity(struct causal_proc *p, const struct ltn_window *w,
                          const struct ltn_proc_window *pw)
{
    double window_ns = (double)(w->end_ns - w->start_ns);
    uint64_t calls = 0;
    for (size_t i = 0; i < pw->op_count; i++) {
        calls += pw->ops[i].calls;
    }
    bool known = p->cpu_total_ns != 0 && pw->cpu_total_ns >= p->cpu_total_ns;
    double cpu = known ? (double)(pw->cpu_total_ns - p->cpu_total_ns) : 0.0;
    double bytes = pw->io_total_bytes > p->io_total_bytes
                       ? (double)(pw->io_total_bytes - p->io_total_bytes)
                       : 0.0;
    bool idle = known && calls == 0 && cpu < IDLE_CPU_SHARE * window_ns &&
                bytes < IDLE_BYTES_PER_S * window_ns / 1e9;
    p->idle_windows = idle ? p->idle_windows + 1 : 0;
    p->cpu_total_ns = pw->cpu_total_ns;
    p->io_total_bytes = pw->io_total_bytes;
}

static void killed(struct ltn_causal *c, struct causal_proc *p, const struct ltn_window *w)
{
    char title[LTN_CAUSAL_TITLE_BYTES];
    char who[WHO_BYTES];
    (void)snprintf(title, sizeof(title), "%s was killed: the node or its cgroup ran out of memory",
                   ltn_causal_who(who, p));
    const struct finding f = {
        .kind = LTN_CAUSAL_OOM,
        .severity = LTN_CAUSAL_CRITICAL,
        .title = title,
        .cause = "out of memory",
        .share = 1.0,
        .count = 1,
        .quiet = 1,
    };
    ltn_inc_found(c, p, w->end_ns, &f);
}

static void ended(struct ltn_causal *c, struct causal_proc *p, const struct ltn_window *w,
                  const struct ltn_proc_window *pw)
{
    ltn_causal_note_ended(c, pw, w->end_ns);
    memcpy(c->last_comms[c->last_comm_n % LTN_ARRAY_SIZE(c->last_comms)], p->comm, sizeof(p->comm));
    c->last_comm_n++;
    if (c->last_comm_n >= 2 * LTN_ARRAY_SIZE(c->last_comms)) {
        c->last_comm_n -= (unsigned)LTN_ARRAY_SIZE(c->last_comms);
    }
    ltn_inc_close_all(c, p, w->end_ns);
    free(ltn_map_del_u64(&c->procs, pw->pid));
}

static void look_at(struct ltn_causal *c, const struct ltn_window *w,
                    const struct ltn_proc_window *pw)
{
    struct causal_proc *p = get_proc(c, pw->pid, pw->start_ns);
    if (p == NULL) {
        return;
    }
    const char *comm = pw->comm != NULL ? pw->comm : "";
    ltn_text_clean(p->comm, sizeof(p->comm), comm, strlen(comm));
    p->rank = pw->rank;
    p->touched_window = c->window;
    note_activity(p, w, pw);
    ltn_causal_errors(c, p, w);
    ltn_causal_cold(c, p, w);
    ltn_causal_host(c, p, w, pw);
    ltn_causal_alloc(c, p, w);
    ltn_causal_copies(c, p, w, pw);
    p->slow_queued_ns = 0;
    if (pw->oom) {
        killed(c, p, w);
    }
}

/* Calls may come before the window that knows their process, so it stays a while. */
static void forget(struct ltn_causal *c, uint64_t time_ns)
{
    size_t pos = 0;
    struct causal_proc *p;
    while ((p = ltn_map_next(&c->procs, &pos)) != NULL) {
        if (c->window - p->touched_window > FORGET_WINDOWS) {
            ltn_inc_close_all(c, p, time_ns);
            free(ltn_map_del_u64(&c->procs, p->pid));
            pos = 0;
        }
    }
}

/* The node waits for memory, whoever it is; processes that suffer have incidents of their own. */
static void look_at_pressure(struct ltn_causal *c, const struct ltn_window *w)
{
    c->pressure_streak = w->pressure_memory >= PRESSURE_HIGH ? c->pressure_streak + 1 : 0;
    if (c->pressure_streak < PRESSURE_WINDOWS) {
        return;
    }
    char title[LTN_CAUSAL_TITLE_BYTES];
    (void)snprintf(title, sizeof(title),
                   "memory is short: tasks of the node waited for it %.0f %% of the time",
                   w->pressure_memory * 100.0);
    struct ltn_buf evidence;
    struct ltn_json j;
    ltn_buf_init(&evidence, EVIDENCE_BYTES);
    ltn_json_init(&j, &evidence);
    ltn_json_open_object(&j);
    ltn_json_kv_time(&j, "window_end", "window_end_ns", w->end_ns);
    ltn_json_kv_f64(&j, "pressure_memory", w->pressure_memory);
    ltn_json_kv_f64(&j, "pressure_io", w->pressure_io);
    ltn_json_close_object(&j);
    const struct finding f = {
        .kind = LTN_CAUSAL_PRESSURE,
        .severity = w->pressure_memory >= 0.5 ? LTN_CAUSAL_HIGH : LTN_CAUSAL_MEDIUM,
        .title = title,
        .cause = "memory pressure",
        .share = 1.0,
        .count = 1,
        .quiet = PRESSURE_QUIET,
        .evidence = &evidence,
    };
    ltn_inc_found(c, NULL, w->end_ns, &f);
    ltn_buf_done(&evidence);
}

void ltn_causal_window(struct ltn_causal *c, const struct ltn_window *w)
{
    c->window++;
    if (c->first_window_ns == 0) {
        c->first_window_ns = w->start_ns;
    }
    for (size_t i = 0; i < w->proc_count; i++) {
        look_at(c, w, &w->procs[i]);
    }
    look_at_pressure(c, w);
    ltn_causal_hangs(c, w);
    for (size_t i = 0; i < w->proc_count; i++) {
        struct causal_proc *p = w->procs[i].ended ? ltn_causal_find(c, w->procs[i].pid) : NULL;
        if (p != NULL) {
            ended(c, p, w, &w->procs[i]);
        }
    }
    forget(c, w->end_ns);
    ltn_inc_turn(c, w->end_ns);
}

void ltn_causal_end(struct ltn_causal *c, uint64_t now_ns)
{
    ltn_inc_close_all(c, NULL, now_ns);
}

struct ltn_causal_stats ltn_causal_stats(const struct ltn_causal *c)
{
    struct ltn_causal_stats s = c->stats;
    s.open = c->incidents.len;
    return s;
}
