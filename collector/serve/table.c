/* SPDX-License-Identifier: Apache-2.0 */
/* The fleet as text for people. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "serve/internal.h"

#define MAX_RANKS_SHOWN 64
#define MAX_NODES_SHOWN 200

static void put_nodes(const struct ltn_serve *s, struct ltn_buf *b, uint64_t now_ns)
{
    size_t n = 0;
    void **nodes = ltn_serve_sorted(&s->fleet->nodes, ltn_serve_by_node_name, &n);
    (void)ltn_buf_printf(b, "\n%-24s %-5s %9s %5s %6s %9s %9s  %s\n", "NODE", "STATE", "LAST SEEN",
                         "GPUS", "PROCS", "DROPS", "MISSING", "AGENT");
    for (size_t i = 0; i < n && i < MAX_NODES_SHOWN; i++) {
        const struct ltn_fleet_node *o = nodes[i];
        uint64_t drops = 0;
        for (size_t k = 0; k < o->drop_count; k++)
            drops += o->drops[k].count;
        double age = now_ns > o->last_seen_ns ? (double)(now_ns - o->last_seen_ns) / 1e9 : 0;
        (void)ltn_buf_printf(b, "%-24s %-5s %7.0f s %5zu %6zu %9llu %9llu  %s\n", o->name,
                             ltn_fleet_node_up(s->fleet, o, now_ns) ? "up" : "DOWN", age,
                             o->gpu_count, o->process_count, (unsigned long long)drops,
                             (unsigned long long)o->gaps, o->version);
    }
    if (n > MAX_NODES_SHOWN)
        (void)ltn_buf_printf(b, "... and %zu more\n", n - MAX_NODES_SHOWN);
    for (size_t i = 0; i < n && i < MAX_NODES_SHOWN; i++) {
        const struct ltn_fleet_node *o = nodes[i];
        if (o->length_differs)
            (void)ltn_buf_printf(b,
                                 "%s: its agent's windows are %.3g s long, the collector's %.3g s; "
                                 "give both the same window\n",
                                 o->name, (double)o->agent_window_ns / 1e9,
                                 (double)s->fleet->opts.window_ns / 1e9);
    }
    free(nodes);
}

static void put_rank(const struct ltn_serve *s, struct ltn_buf *b, const struct ltn_fleet_proc *p)
{
    const struct ltn_fleet_window *w = ltn_fleet_newest(p);
    const struct ltn_fleet_verdict *v = ltn_fleet_proc_verdict(s->fleet, p);
    double ratio = 0;
    for (size_t i = 0; i < 3 && ratio <= 0; i++) {
        const struct ltn_fleet_past *past = ltn_fleet_past(p, i);
        ratio = past != NULL ? (double)past->ratio : 0;
    }
    (void)ltn_buf_printf(b, "  %6s  %-24s %10.2f ms %10.2f ms", p->key, p->node->name,
                         w->member.self_ns / 1e6, w->member.peer_wait_ns / 1e6);
    if (ratio > 0)
        (void)ltn_buf_printf(b, " %+8.1f %%", 100 * (ratio - 1));
    else
        (void)ltn_buf_printf(b, " %10s", "-");
    if (w->member.gpu_clock > 0)
        (void)ltn_buf_printf(b, " %6.0f %%", 100 * w->member.gpu_clock);
    else
        (void)ltn_buf_printf(b, " %8s", "-");
    (void)ltn_buf_printf(b, "  %s%s\n", v != NULL ? "STRAGGLER: " : "",
                         v != NULL ? v->v.cause : "");
}

static void put_job(const struct ltn_serve *s, struct ltn_buf *b, const struct ltn_fleet_job *job)
{
    size_t n = 0, pos = 0, shown = 0, replaced = 0, more = 0;
    double step_ns = 0;
    for (const struct ltn_fleet_group *g; (g = ltn_map_next(&job->groups, &pos)) != NULL;)
        step_ns = fmax(step_ns, g->step_ns);
    void **procs = ltn_serve_sorted(&job->procs, ltn_serve_by_rank, &n);
    (void)ltn_buf_printf(b, "\nJOB %s: %zu of ", job->key, ltn_fleet_job_ranks(job, &replaced));
    if (job->world_size > 0)
        (void)ltn_buf_printf(b, "%d ranks", job->world_size);
    else
        (void)ltn_buf_puts(b, "? ranks");
    if (replaced > 0)
        (void)ltn_buf_printf(b, " (%zu replaced)", replaced);
    if (step_ns > 0)
        (void)ltn_buf_printf(b, ", step %.2f ms", step_ns / 1e6);
    else
        (void)ltn_buf_puts(b, ", step -");
    (void)ltn_buf_printf(b, ", %.3f GPU-hours lost\n", job->gpu_hours_lost);
    pos = 0;
    for (const struct ltn_fleet_group *g; (g = ltn_map_next(&job->groups, &pos)) != NULL;)
        if (g->status.note[0] != '\0')
            (void)ltn_buf_printf(b, "  %s: %s\n", ltn_straggler_state_name(g->status.state),
                                 g->status.note);
        else if (g->status.state != LTN_GROUP_SCORED)
            (void)ltn_buf_printf(b, "  %s\n", ltn_straggler_state_name(g->status.state));
    (void)ltn_buf_printf(b, "  %6s  %-24s %13s %13s %10s %8s\n", "RANK", "NODE", "SELF TIME",
                         "PEER WAIT", "VS PEERS", "GPU CLK");
    for (size_t i = 0; i < n; i++) {
        const struct ltn_fleet_proc *p = procs[i];
        if (p->replaced || ltn_fleet_newest(p) == NULL)
            continue;
        if (shown == MAX_RANKS_SHOWN) {
            more++;
            continue;
        }
        put_rank(s, b, p);
        shown++;
    }
    if (more > 0)
        (void)ltn_buf_printf(b, "  ... and %zu more ranks\n", more);
    free(procs);
}

static void put_stragglers(const struct ltn_serve *s, struct ltn_buf *b)
{
    size_t pos = 0;
    if (s->fleet->open.len == 0) {
        struct ltn_fleet_outcome o;
        ltn_fleet_outcome(s->fleet, &o);
        if (strcmp(o.state, "cannot_tell") == 0)
            (void)ltn_buf_printf(b, "\nCannot tell: %s.\n", o.reason);
        else if (o.unjudged > 0)
            (void)ltn_buf_printf(b, "\nNo straggler among %zu ranks; cannot tell about %zu: %s.\n",
                                 o.judged, o.unjudged, o.reason);
        else
            (void)ltn_buf_puts(b, "\nNo straggler: nobody is being waited for.\n");
        return;
    }
    (void)ltn_buf_puts(b, "\nSTRAGGLERS\n");
    for (const struct ltn_fleet_verdict *o; (o = ltn_map_next(&s->fleet->open, &pos)) != NULL;) {
        const struct ltn_straggler_verdict *v = &o->v;
        (void)ltn_buf_printf(b, "  rank %s on %s (job %s): %+.0f %% against %u peers [%s, %s]\n",
                             v->key, v->node, v->job, v->effect_pct, v->peers, v->tier,
                             ltn_straggler_method_name(v->method));
        (void)ltn_buf_printf(b, "    %s: %s\n", v->cause, v->cause_detail);
        if (v->explained_share >= 0)
            (void)ltn_buf_printf(b, "    explains %.0f %% of the excess;",
                                 100 * v->explained_share);
        else
            (void)ltn_buf_puts(b, "    explained share unknown;");
        (void)ltn_buf_printf(b, " costs %.1f %% of the step, %.3f GPU-hours so far\n",
                             100 * v->impact_share, v->gpu_hours_lost);
    }
}

static void put_ingest(const struct ltn_serve *s, struct ltn_buf *b)
{
    struct ltn_ingest_stats in;
    ltn_serve_ingest_stats(s, &in);
    struct ltn_store_stats st;
    ltn_store_stats(s->store, &st);
    (void)ltn_buf_printf(
        b,
        "\nIngest: %llu requests, %llu acknowledged, %llu points, %llu logs; "
        "refused: %llu malformed, %llu busy, %llu disk; %llu points rejected\n",
        (unsigned long long)in.requests, (unsigned long long)in.acknowledged,
        (unsigned long long)in.points_received, (unsigned long long)in.logs_received,
        (unsigned long long)in.rejected_malformed, (unsigned long long)in.rejected_busy,
        (unsigned long long)in.rejected_disk, (unsigned long long)in.rejected_points);
    (void)ltn_buf_printf(b, "Store: %llu commits, %llu failed, %zu waiting%s%s\n",
                         (unsigned long long)st.commits, (unsigned long long)st.failed_commits,
                         st.queue_items, st.writable ? "" : "; CANNOT WRITE: ", st.error);
    (void)ltn_buf_printf(b, "Windows: %llu taken, %llu again, %llu late, %llu never came\n",
                         (unsigned long long)s->fleet->counters.windows,
                         (unsigned long long)s->fleet->counters.windows_duplicate,
                         (unsigned long long)s->fleet->counters.windows_late,
                         (unsigned long long)s->fleet->counters.windows_gap);
}

static void put_control(const struct ltn_serve *s, struct ltn_buf *b)
{
    struct ltn_query_stats st;
    ltn_query_hub_stats(s->hub, &st);
    (void)ltn_buf_printf(
        b,
        "Control streams: %zu open, %llu attached so far, %llu ended for silence, %llu for "
        "breaking "
        "the protocol\nQuestions: %llu, %llu with nodes missing, %llu failed, %llu refused; pages: "
        "%llu, %llu too late, %llu unasked\n",
        st.streams, (unsigned long long)st.attaches, (unsigned long long)st.silent,
        (unsigned long long)st.hostile, (unsigned long long)st.queries,
        (unsigned long long)st.queries_partial, (unsigned long long)st.queries_failed,
        (unsigned long long)st.queries_refused, (unsigned long long)st.pages,
        (unsigned long long)st.pages_late, (unsigned long long)st.pages_unasked);
}

void ltn_serve_table(const struct ltn_serve *s, struct ltn_buf *out, uint64_t now_ns)
{
    size_t n = 0;
    void **jobs = ltn_serve_sorted(&s->fleet->jobs, ltn_serve_by_job_key, &n);
    (void)ltn_buf_printf(out, "lanterne-collector %s: %zu nodes, %zu jobs, %zu stragglers\n",
                         LTN_VERSION, s->fleet->nodes.len, n, s->fleet->open.len);
    put_stragglers(s, out);
    for (size_t i = 0; i < n; i++)
        put_job(s, out, jobs[i]);
    free(jobs);
    put_nodes(s, out, now_ns);
    put_ingest(s, out);
    put_control(s, out);
}
