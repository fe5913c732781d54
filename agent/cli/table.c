/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/table.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/attr.h"
#include "base/clock.h"
#include "cli/host.h"
#include "probe/ops.h"
#include "stats/exphist.h"

#define BOLD  "\033[1m"
#define RESET "\033[0m"

/* Sums of one op over all processes. */
struct op_row {
    uint64_t calls;
    uint64_t returns;
    uint64_t errors;
    uint64_t duration_ns;
    uint64_t max_ns;
    uint64_t hist[LTN_HIST_BUCKETS];
};

static void format_duration(char out[16], double ns)
{
    static const struct {
        double limit;
        double unit;
        const char *name;
    } scales[] = {{1e3, 1, "ns"}, {1e6, 1e3, "us"}, {1e9, 1e6, "ms"}, {1e300, 1e9, "s"}};
    for (size_t i = 0; i < LTN_ARRAY_SIZE(scales); i++) {
        if (ns < scales[i].limit || i + 1 == LTN_ARRAY_SIZE(scales)) {
            double v = ns / scales[i].unit;
            (void)snprintf(out, 16, v < 9.95 && i > 0 ? "%.1f%s" : "%.0f%s", v, scales[i].name);
            return;
        }
    }
}

void ltn_table_duration(struct ltn_buf *out, double ns)
{
    char text[16];
    format_duration(text, ns);
    (void)ltn_buf_puts(out, text);
}

static void put_column(struct ltn_buf *out, double ns)
{
    char text[16];
    format_duration(text, ns);
    (void)ltn_buf_printf(out, " %7s", text);
}

static void add_up(const struct ltn_window *w, unsigned op, struct op_row *row)
{
    memset(row, 0, sizeof(*row));
    for (size_t i = 0; i < w->proc_count; i++) {
        const struct ltn_proc_window *p = &w->procs[i];
        for (size_t k = 0; k < p->op_count; k++) {
            const struct ltn_op_window *o = &p->ops[k];
            if (o->op != op) {
                continue;
            }
            row->calls += o->calls;
            row->returns += o->returns;
            row->errors += o->errors;
            row->duration_ns += o->duration_ns;
            row->max_ns = o->max_ns > row->max_ns ? o->max_ns : row->max_ns;
            for (unsigned b = 0; b < LTN_HIST_BUCKETS; b++) {
                row->hist[b] += o->hist[b];
            }
        }
    }
}

static void put_heading(struct ltn_buf *out, const char *text, bool colour)
{
    (void)ltn_buf_printf(out, "\n%s%-24s%s %9s %7s %7s %7s %7s %6s %4s\n", colour ? BOLD : "", text,
                         colour ? RESET : "", "calls", "p50", "p95", "p99", "max", "wall%", "fail");
}

static void put_op(struct ltn_buf *out, const char *name, const struct op_row *row,
                   double window_ns)
{
    (void)ltn_buf_printf(out, "%-24.24s %9" PRIu64, name, row->calls);
    put_column(out, ltn_khist_quantile_ns(row->hist, LTN_HIST_BUCKETS, 0.50));
    put_column(out, ltn_khist_quantile_ns(row->hist, LTN_HIST_BUCKETS, 0.95));
    put_column(out, ltn_khist_quantile_ns(row->hist, LTN_HIST_BUCKETS, 0.99));
    put_column(out, (double)row->max_ns);
    (void)ltn_buf_printf(out, " %6.1f", 100.0 * (double)row->duration_ns / window_ns);
    if (row->errors > 0) {
        (void)ltn_buf_printf(out, " %4" PRIu64, row->errors);
    }
    (void)ltn_buf_putc(out, '\n');
}

static void put_source(struct ltn_buf *out, const struct ltn_window *w, enum ltn_op_source source,
                       const char *title, bool colour)
{
    bool first = true;
    double window_ns = (double)(w->end_ns - w->start_ns);
    for (unsigned id = 1; id < LTN_OP_COUNT; id++) {
        const struct ltn_op *op = ltn_op_get(id);
        struct op_row row;
        if (op->source != source) {
            continue;
        }
        add_up(w, id, &row);
        if (row.calls == 0 && row.returns == 0) {
            continue;
        }
        if (first) {
            put_heading(out, title, colour);
            first = false;
        }
        put_op(out, op->name, &row, window_ns);
    }
}

static void put_rank(struct ltn_buf *out, const struct ltn_proc_window *p)
{
    const struct ltn_rank_window *r = &p->rank_window;
    char rank[16] = "-";
    if (p->rank >= 0) {
        (void)snprintf(rank, sizeof(rank), "%d/%d", p->rank, p->world_size);
    }
    (void)ltn_buf_printf(out, "%7u %6s %5.0f", p->pid, rank, r->steps);
    put_column(out, r->step_ns);
    put_column(out, r->self_ns);
    put_column(out, r->peer_wait_ns);
    put_column(out, r->split_ns[LTN_SPLIT_ON_CPU]);
    put_column(out, r->split_ns[LTN_SPLIT_RUN_QUEUE]);
    double blocked = 0;
    for (int s = LTN_SPLIT_FUTEX; s < LTN_SPLITS; s++) {
        blocked += r->split_ns[s];
    }
    put_column(out, blocked);
    if (r->preemptors[0].waited_ns > 0) {
        (void)ltn_buf_printf(out, " %.11s", r->preemptors[0].comm);
    }
    (void)ltn_buf_putc(out, '\n');
}

static void put_ranks(struct ltn_buf *out, const struct ltn_window *w, bool colour)
{
    bool first = true;
    for (size_t i = 0; i < w->proc_count; i++) {
        if (!w->procs[i].is_rank) {
            continue;
        }
        if (first) {
            (void)ltn_buf_printf(out, "\n%s%7s%s %6s %5s %7s %7s %7s %7s %7s %7s %s\n",
                                 colour ? BOLD : "", "Ranks", colour ? RESET : "", "rank", "steps",
                                 "step", "self", "peers", "on CPU", "queued", "blocked",
                                 "CPU held by");
            first = false;
        }
        put_rank(out, &w->procs[i]);
    }
}

static void put_gpus(struct ltn_buf *out, const struct ltn_window *w)
{
    for (size_t i = 0; i < w->gpu_count; i++) {
        const struct ltn_gpu_window *g = &w->gpus[i];
        (void)ltn_buf_printf(out, "%sGPU %zu %.20s  busy %3.0f%%  SM %.0f/%.0f MHz%s\n",
                             i == 0 ? "\n" : "", i, g->model, g->utilization * 100.0,
                             g->sm_clock_hz / 1e6, g->sm_clock_max_hz / 1e6,
                             (g->throttle_reasons & ~1ULL) != 0 ? "  throttled" : "");
    }
}

void ltn_table_window(struct ltn_buf *out, const struct ltn_window *w, const char *node,
                      bool colour)
{
    char when[LTN_RFC3339_BYTES];
    ltn_format_rfc3339(w->end_ns, when);
    uint64_t drops = 0;
    for (int i = 0; i < LTN_DROPS; i++) {
        drops += w->health.drops[i];
    }
    (void)ltn_buf_printf(out, "%s%.24s%s  %.19sZ  %zu procs, %u probes, %" PRIu64 " drops\n",
                         colour ? BOLD : "", node, colour ? RESET : "", when, w->proc_count,
                         w->health.attached_probes, drops);
    if (w->host.has_state) {
        ltn_host_table(out, &w->host.state, colour ? BOLD : "", colour ? RESET : "");
    }
    put_source(out, w, LTN_OP_SOURCE_CUDA, "CUDA Runtime", colour);
    put_source(out, w, LTN_OP_SOURCE_DRIVER, "CUDA Driver", colour);
    put_source(out, w, LTN_OP_SOURCE_GRAPH, "CUDA Graph", colour);
    put_source(out, w, LTN_OP_SOURCE_NCCL, "NCCL", colour);
    put_ranks(out, w, colour);
    ltn_host_context_table(out, &w->host, colour ? BOLD : "", colour ? RESET : "");
    put_gpus(out, w);
    if (w->proc_count == 0) {
        (void)ltn_buf_puts(out, "\nno CUDA process in scope yet; waiting\n");
    }
}
