/* SPDX-License-Identifier: Apache-2.0 */
/* From updates to group windows: alignment, roles, grace, repeats, ceilings. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmocka_all.h"

#include "fleet/fleet.h"

#define WINDOW_NS 10000000000ULL
#define T0        (1700000000ULL * 1000000000ULL)

/* One rank's window, as ingest would hand it over. */
struct push {
    const char *node;
    const char *instance;
    uint64_t sequence;
    uint64_t begin_ns, end_ns; /* begin 0: not told */
    int32_t rank, world;
    const char *job;
    uint64_t steps;
    double self_ms;
    uint64_t comm_id;
    int32_t comm_size;
    uint64_t comm_sequence;
    uint64_t comm2_id;
    int32_t comm2_size;
    uint64_t comm2_sequence;
    uint64_t launches;
    double clock;
    uint64_t reasons;
    bool by_comm;      /* the agent does not know rank and world of the job */
    uint32_t pid;      /* 0: by the rank */
    uint64_t start_ns; /* 0: 5 */
};

static void apply(struct ltn_fleet *f, const struct push *p, uint64_t now_ns)
{
    struct ltn_update u = {.received_ns = now_ns};
    struct ltn_update_op op = {NULL, "cuda", "cudaLaunchKernel", p->launches, 0, 0, true, false,
                               0,    {0}};
    struct ltn_update_comm second = {NULL,          p->comm2_id,       p->rank,
                                     p->comm2_size, p->comm2_sequence, 0};
    struct ltn_update_comm comm = {
        p->comm2_id != 0 ? &second : NULL, p->comm_id, p->rank, p->comm_size, p->comm_sequence, 0};
    struct ltn_update_gpu gpu = {.uuid = "GPU-1",
                                 .model = "",
                                 .clock_hz = p->clock * 2e9,
                                 .clock_max_hz = 2e9,
                                 .clock_reasons = p->reasons,
                                 .has_reasons = true,
                                 .utilization = 0.9};
    struct ltn_update_resource proc = {.node = p->node,
                                       .cluster = "",
                                       .instance = p->instance,
                                       .version = "1",
                                       .sequence = p->sequence,
                                       .has_sequence = true,
                                       .start_ns = p->begin_ns,
                                       .end_ns = p->end_ns,
                                       .is_process = true,
                                       .pid = p->pid != 0 ? p->pid : 100 + (uint32_t)p->rank,
                                       .proc_start_ns = p->start_ns != 0 ? p->start_ns : 5,
                                       .comm = "python3",
                                       .job = p->job != NULL ? p->job : "",
                                       .rank = p->by_comm ? -1 : p->rank,
                                       .world_size = p->by_comm ? -1 : p->world,
                                       .local_rank = 0,
                                       .gpu_uuid = p->clock > 0 ? "GPU-1" : "",
                                       .ops = p->launches > 0 ? &op : NULL,
                                       .comms = p->comm_id != 0 ? &comm : NULL};
    proc.steps = (struct ltn_update_rank){.present = p->self_ms > 0,
                                          .steps_total = p->steps,
                                          .step_ns = 200e6,
                                          .self_ns = p->self_ms * 1e6,
                                          .peer_wait_ns = 200e6 - p->self_ms * 1e6,
                                          .coverage = 1};
    struct ltn_update_resource node = {.next = &proc,
                                       .node = p->node,
                                       .cluster = "",
                                       .instance = p->instance,
                                       .version = "1",
                                       .sequence = p->sequence,
                                       .has_sequence = true,
                                       .end_ns = p->end_ns,
                                       .gpus = p->clock > 0 ? &gpu : NULL};
    u.resources = &node;
    ltn_fleet_apply(f, &u, now_ns);
}

struct world {
    struct ltn_fleet *f;
    unsigned opened, closed;
    struct ltn_straggler_verdict last;
    char node[16][16], instance[16][16];
};

static void on_verdict(void *ctx, enum ltn_straggler_change change, bool notable,
                       const struct ltn_straggler_verdict *v)
{
    struct world *w = ctx;
    (void)notable;
    w->opened += change == LTN_VERDICT_OPENED;
    w->closed += change == LTN_VERDICT_CLOSED;
    w->last = *v;
}

static void setup(struct world *w, const struct ltn_fleet_opts *opts)
{
    struct ltn_fleet_opts o;
    struct ltn_fleet_sink sink = {w, on_verdict, NULL};
    ltn_fleet_opts_default(&o);
    memset(w, 0, sizeof(*w));
    w->f = ltn_fleet_new(opts != NULL ? opts : &o, &sink);
    assert_non_null(w->f);
    for (int i = 0; i < 16; i++) {
        (void)snprintf(w->node[i], sizeof(w->node[i]), "node-%d", i);
        (void)snprintf(w->instance[i], sizeof(w->instance[i]), "agent-%d", i);
    }
}

/* Window k (from 1) of rank i in a job of n, its end moved by phase_ns. */
static struct push window(struct world *w, int i, int n, uint64_t k, int64_t phase_ns)
{
    return (struct push){.node = w->node[i],
                         .instance = w->instance[i],
                         .sequence = k,
                         .end_ns = T0 + k * WINDOW_NS + (uint64_t)phase_ns,
                         .rank = i,
                         .world = n,
                         .job = "job",
                         .steps = 50 * k,
                         .self_ms = 50,
                         .comm_id = 0xabc,
                         .comm_size = n,
                         .comm_sequence = 100 * k,
                         .launches = 1000 * k};
}

static struct ltn_fleet_group *only_group(struct ltn_fleet *f, const char *job)
{
    size_t pos = 0;
    struct ltn_fleet_job *j = ltn_map_get_str(&f->jobs, job);
    assert_non_null(j);
    assert_int_equal(j->groups.len, 1);
    return ltn_map_next(&j->groups, &pos);
}

static void a_straggler_comes_through(void **state)
{
    struct world w;
    (void)state;
    setup(&w, NULL);
    for (uint64_t k = 1; k <= 20; k++)
        for (int i = 0; i < 4; i++) {
            struct push p = window(&w, i, 4, k, 0);
            if (i == 2 && k > 8)
                p.self_ms = 80;
            apply(w.f, &p, p.end_ns + 1000);
        }
    assert_int_equal(w.opened, 1);
    assert_int_equal(w.last.rank, 2);
    assert_string_equal(w.last.node, "node-2");
    assert_string_equal(w.last.job, "job");
    assert_non_null(ltn_fleet_node_verdict(w.f, "node-2"));
    assert_null(ltn_fleet_node_verdict(w.f, "node-1"));
    ltn_fleet_free(w.f);
}

/* Phases on both sides of the rounding point, with jitter: no window may be lost or doubled. */
static void windows_of_any_phase_meet(void **state)
{
    static const int64_t phases_ms[] = {0, 4900, -4900, 2000};
    (void)state;
    for (int64_t base_ms = 0; base_ms < 10000; base_ms += 500) {
        struct world w;
        setup(&w, NULL);
        for (uint64_t k = 1; k <= 20; k++)
            for (int i = 0; i < 4; i++) {
                int64_t jitter_ms = (int64_t)((k * 37 + (uint64_t)i * 11) % 7) * 20;
                struct push p =
                    window(&w, i, 4, k, (base_ms + phases_ms[i] / 2 + jitter_ms) * 1000000);
                apply(w.f, &p, p.end_ns + 50000000);
            }
        ltn_fleet_tick(w.f, T0 + 30 * WINDOW_NS);
        assert_int_equal(only_group(w.f, "job")->n, 4);
        assert_int_equal(w.f->counters.windows, 80);
        assert_int_equal(w.f->counters.windows_duplicate, 0);
        assert_true(w.f->counters.windows_late <= 4);
        /* Warm-up of group and ranks, and the last slot that only some have. */
        assert_true(w.f->counters.groups_scored >= 15);
        assert_true(w.f->counters.groups_abstained <= 5);
        ltn_fleet_free(w.f);
    }
}

static void repeats_change_nothing(void **state)
{
    struct world w;
    (void)state;
    setup(&w, NULL);
    for (uint64_t k = 1; k <= 10; k++)
        for (int i = 0; i < 4; i++) {
            struct push p = window(&w, i, 4, k, 0);
            apply(w.f, &p, p.end_ns + 1000);
            apply(w.f, &p, p.end_ns + 2000);
            if (k > 2) { /* and one from the past */
                p = window(&w, i, 4, k - 2, 0);
                apply(w.f, &p, p.end_ns + 2 * WINDOW_NS + 3000);
            }
        }
    const struct ltn_fleet_node *n = ltn_map_get_str(&w.f->nodes, "node-1");
    size_t pos = 0;
    const struct ltn_fleet_op *op = ltn_map_next(&n->ops, &pos);
    assert_int_equal(op->calls, 10000);
    assert_int_equal(w.f->counters.windows, 40);
    assert_int_equal(only_group(w.f, "job")->n, 4);
    assert_int_equal(n->gaps, 0);
    ltn_fleet_free(w.f);
}

static void a_missing_rank_costs_the_grace_only(void **state)
{
    struct world w;
    (void)state;
    setup(&w, NULL);
    for (uint64_t k = 1; k <= 12; k++) {
        for (int i = 0; i < 4; i++) {
            struct push p = window(&w, i, 4, k, 0);
            if (i != 3 || k < 6)
                apply(w.f, &p, p.end_ns + 1000);
        }
        ltn_fleet_tick(w.f, T0 + k * WINDOW_NS + 2000);
    }
    struct ltn_fleet_group *g = only_group(w.f, "job");
    /* 12 and 11 wait for rank 3; 10 had its grace of 1.5 windows. */
    assert_int_equal(g->scored_ns, (T0 / WINDOW_NS + 10) * WINDOW_NS);
    assert_int_equal(g->status.used, 3);
    ltn_fleet_tick(w.f, T0 + 14 * WINDOW_NS);
    assert_int_equal(g->scored_ns, (T0 / WINDOW_NS + 12) * WINDOW_NS);
    struct push late = window(&w, 3, 4, 12, 0);
    apply(w.f, &late, T0 + 14 * WINDOW_NS);
    assert_int_equal(w.f->counters.windows_late, 1);
    ltn_fleet_free(w.f);
}

/* Two stages: the same sizes, other numbers of operations per step on the small communicator. */
static void roles_tell_stages_apart(void **state)
{
    struct world w;
    (void)state;
    setup(&w, NULL);
    for (uint64_t k = 1; k <= 10; k++)
        for (int i = 0; i < 8; i++) {
            bool late_stage = i >= 4;
            struct push p = window(&w, i, 8, k, 0);
            p.self_ms = late_stage ? 90 : 50;
            p.comm2_id = 0x100 + (uint64_t)(i % 4);
            p.comm2_size = 2;
            p.comm2_sequence = (late_stage ? 8 : 16) * p.steps;
            apply(w.f, &p, p.end_ns + 1000);
        }
    struct ltn_fleet_job *j = ltn_map_get_str(&w.f->jobs, "job");
    size_t pos = 0;
    assert_int_equal(j->groups.len, 2);
    for (struct ltn_fleet_group *g; (g = ltn_map_next(&j->groups, &pos)) != NULL;) {
        assert_int_equal(g->n, 4);
        assert_int_equal(g->status.state, LTN_GROUP_SCORED);
        assert_int_equal(g->status.used, 4);
    }
    assert_int_equal(w.opened, 0);
    ltn_fleet_free(w.f);
}

static void without_a_job_key_the_communicator_is_the_job(void **state)
{
    struct world w;
    (void)state;
    setup(&w, NULL);
    for (uint64_t k = 1; k <= 5; k++)
        for (int i = 0; i < 4; i++) {
            struct push p = window(&w, i, 4, k, 0);
            p.job = NULL;
            apply(w.f, &p, p.end_ns + 1000);
        }
    assert_int_equal(only_group(w.f, "comm-0000000000000abc")->n, 4);
    /* Without communicators: job key and world size. */
    for (uint64_t k = 1; k <= 5; k++)
        for (int i = 4; i < 8; i++) {
            struct push p = window(&w, i, 4, k, 0);
            p.job = "env";
            p.comm_id = 0;
            apply(w.f, &p, p.end_ns + 1000);
        }
    assert_string_equal(only_group(w.f, "env")->name, "size-4/role-0");
    ltn_fleet_free(w.f);
}

static void the_gpu_is_joined(void **state)
{
    struct world w;
    (void)state;
    setup(&w, NULL);
    for (uint64_t k = 1; k <= 16; k++)
        for (int i = 0; i < 4; i++) {
            struct push p = window(&w, i, 4, k, 0);
            p.clock = i == 1 ? 0.6 : 1.0;
            p.reasons = i == 1 ? 0x8 : 0;
            apply(w.f, &p, p.end_ns + 1000);
        }
    assert_int_equal(w.opened, 1);
    assert_int_equal(w.last.rank, 1);
    assert_string_equal(w.last.cause, "gpu_clock");
    ltn_fleet_free(w.f);
}

static void silence_ends_a_job_and_its_verdicts(void **state)
{
    struct world w;
    (void)state;
    setup(&w, NULL);
    for (uint64_t k = 1; k <= 12; k++)
        for (int i = 0; i < 4; i++) {
            struct push p = window(&w, i, 4, k, 0);
            if (i == 2)
                p.self_ms = 90;
            apply(w.f, &p, p.end_ns + 1000);
        }
    assert_int_equal(w.opened, 1);
    ltn_fleet_tick(w.f, T0 + 30 * WINDOW_NS);
    assert_int_equal(w.closed, 0);
    ltn_fleet_tick(w.f, T0 + 100 * WINDOW_NS);
    assert_int_equal(w.closed, 1);
    assert_string_equal(w.last.close_reason, "gone");
    assert_non_null(ltn_fleet_closed(w.f, 0));
    assert_null(ltn_fleet_closed(w.f, 1));
    ltn_fleet_tick(w.f, T0 + 1000 * WINDOW_NS);
    assert_int_equal(w.f->jobs.len, 0);
    assert_int_equal(w.f->procs.len, 0);
    ltn_fleet_free(w.f);
}

/* The agent learns the job's name a window later than the communicator. */
static void a_first_guess_of_the_job_is_forgotten(void **state)
{
    struct world w;
    (void)state;
    setup(&w, NULL);
    for (uint64_t k = 1; k <= 4; k++)
        for (int i = 0; i < 4; i++) {
            struct push p = window(&w, i, 4, k, 0);
            p.comm_id = 77;
            p.comm_size = 4;
            p.comm_sequence = 100 * k;
            p.job = k == 1 ? NULL : "named";
            apply(w.f, &p, p.end_ns + 1000);
        }
    assert_int_equal(w.f->jobs.len, 1);
    assert_non_null(ltn_map_get_str(&w.f->jobs, "named"));
    ltn_fleet_free(w.f);
}

static void ceilings_refuse_and_count(void **state)
{
    struct world w;
    struct ltn_fleet_opts o;
    (void)state;
    ltn_fleet_opts_default(&o);
    o.max_nodes = 4;
    o.max_processes = 3;
    o.max_jobs = 1;
    setup(&w, &o);
    for (int i = 0; i < 8; i++) {
        struct push p = window(&w, i, 8, 1, 0);
        p.job = i % 2 ? "a" : "b";
        apply(w.f, &p, p.end_ns + 1000);
    }
    assert_int_equal(w.f->nodes.len, 4);
    assert_int_equal(w.f->procs.len, 3);
    assert_int_equal(w.f->jobs.len, 1);
    assert_true(w.f->counters.refused_nodes >= 4);
    assert_true(w.f->counters.refused_processes >= 1);
    assert_true(w.f->counters.refused_jobs >= 1);
    ltn_fleet_free(w.f);
}

static void a_wrong_clock_is_seen_and_corrected(void **state)
{
    struct world w;
    (void)state;
    setup(&w, NULL);
    for (uint64_t k = 1; k <= 30; k++)
        for (int i = 0; i < 4; i++) {
            struct push p = window(&w, i, 4, k, 0);
            uint64_t received = p.end_ns + 1000;
            if (i == 3)
                p.end_ns -= 3600 * 1000000000ULL; /* an hour behind */
            apply(w.f, &p, received);
        }
    const struct ltn_fleet_node *n = ltn_map_get_str(&w.f->nodes, "node-3");
    assert_true(n->clock_offset_ns < -3590LL * 1000000000LL);
    assert_int_equal(only_group(w.f, "job")->status.used, 4);
    n = ltn_map_get_str(&w.f->nodes, "node-1");
    assert_int_equal(n->clock_offset_ns, 0);
    ltn_fleet_free(w.f);
}

static void lost_windows_are_counted_by_sequence(void **state)
{
    struct world w;
    (void)state;
    setup(&w, NULL);
    for (uint64_t k = 1; k <= 9; k += 4) {
        struct push p = window(&w, 0, 4, k, 0);
        apply(w.f, &p, p.end_ns);
    }
    const struct ltn_fleet_node *n = ltn_map_get_str(&w.f->nodes, "node-0");
    assert_int_equal(n->gaps, 6);
    struct push p = window(&w, 0, 4, 20, 0);
    p.instance = "another start of the agent";
    p.launches = 10;
    apply(w.f, &p, p.end_ns);
    assert_int_equal(n->gaps, 6);
    size_t pos = 0;
    const struct ltn_fleet_op *op = ltn_map_next(&n->ops, &pos);
    assert_int_equal(op->calls, 9000 + 10);
    ltn_fleet_free(w.f);
}

/* ---- one process per rank ---- */

#define START_NS (1600000000ULL * 1000000000ULL)

static struct ltn_fleet_proc *in_place(struct ltn_fleet *f, const char *key)
{
    struct ltn_fleet_group *g = only_group(f, "job");
    struct ltn_fleet_proc *found = NULL;
    for (size_t i = 0; i < g->n; i++) {
        if (strcmp(g->members[i]->key, key) != 0)
            continue;
        assert_null(found);
        found = g->members[i];
    }
    return found;
}

static void a_start_time_told_differently_is_one_process(void **state)
{
    struct world w;
    (void)state;
    setup(&w, NULL);
    for (uint64_t k = 1; k <= 20; k++) {
        for (int i = 0; i < 4; i++) {
            struct push p = window(&w, i, 4, k, 0);
            p.start_ns = START_NS;
            if (k > 10) { /* the agents were started again */
                p.instance = w.instance[i + 8];
                p.sequence = k - 10;
                p.start_ns = START_NS + 900000000ULL - 100000000ULL * (unsigned)i;
                p.launches = 1000 * (k - 10);
                p.steps = 50 * (k - 10);
                p.comm_sequence = 100 * (k - 10);
            }
            apply(w.f, &p, T0 + k * WINDOW_NS + 1000000);
        }
    }
    struct ltn_fleet_job *j = ltn_map_get_str(&w.f->jobs, "job");
    size_t replaced = 7;
    assert_int_equal(ltn_fleet_job_ranks(j, &replaced), 4);
    assert_int_equal(replaced, 0);
    assert_int_equal(w.f->procs.len, 4);
    struct ltn_fleet_group *g = only_group(w.f, "job");
    assert_int_equal(g->n, 4);
    assert_int_equal(g->status.state, LTN_GROUP_SCORED);
    assert_int_equal(g->status.used, 4);
    assert_non_null(ltn_fleet_past(in_place(w.f, "0"), 15)); /* from before the restart */
    ltn_fleet_free(w.f);
}

static void two_agents_on_a_node_count_nothing_twice(void **state)
{
    struct world w;
    (void)state;
    setup(&w, NULL);
    for (uint64_t k = 1; k <= 20; k++) {
        for (int i = 0; i < 4; i++) {
            struct push p = window(&w, i, 4, k, 0);
            p.start_ns = START_NS;
            apply(w.f, &p, T0 + k * WINDOW_NS + 1000000);
            p.instance = w.instance[i + 8];
            p.start_ns = START_NS + 10000000;
            apply(w.f, &p, T0 + k * WINDOW_NS + 2000000);
        }
    }
    assert_int_equal(w.f->procs.len, 4);
    assert_int_equal(only_group(w.f, "job")->status.used, 4);
    struct ltn_fleet_node *n = ltn_map_get_str(&w.f->nodes, "node-0");
    size_t pos = 0;
    const struct ltn_fleet_op *o = ltn_map_next(&n->ops, &pos);
    assert_non_null(o);
    assert_true(o->calls <= 21000); /* 20 windows, and once more what the second began with */
    ltn_fleet_free(w.f);
}

static void a_newer_process_replaces_the_older_at_once(void **state)
{
    struct world w;
    (void)state;
    setup(&w, NULL);
    for (uint64_t k = 1; k <= 24; k++) {
        for (int i = 0; i < 4; i++) {
            struct push p = window(&w, i, 4, k, 0);
            p.start_ns = START_NS;
            if (k > 12) { /* the job was started again; rank 3 on another node */
                p.pid = 500 + (uint32_t)i;
                p.start_ns = START_NS + 12 * WINDOW_NS;
                p.steps = 50 * (k - 12);
                p.comm_id = 0xdef;
                p.comm_sequence = 100 * (k - 12);
                if (i == 3) {
                    p.node = w.node[5];
                    p.instance = w.instance[5];
                }
            } else if (i == 1) {
                p.self_ms = 100;
            }
            apply(w.f, &p, T0 + k * WINDOW_NS + 1000000);
        }
        if (k == 12)
            assert_non_null(ltn_fleet_proc_verdict(w.f, in_place(w.f, "1")));
        if (k == 13)
            assert_int_equal(w.f->counters.ranks_replaced, 4);
    }
    struct ltn_fleet_job *j = ltn_map_get_str(&w.f->jobs, "job");
    size_t replaced = 0, pos = 0, in_groups = 0;
    assert_int_equal(ltn_fleet_job_ranks(j, &replaced), 4);
    assert_int_equal(replaced, 4);
    for (struct ltn_fleet_group *g; (g = ltn_map_next(&j->groups, &pos)) != NULL;)
        in_groups += g->n;
    assert_int_equal(in_groups, 4);
    assert_int_equal(w.opened, 1);
    assert_int_equal(w.closed, 1);
    assert_string_equal(w.last.close_reason, "gone");
    pos = 0;
    for (struct ltn_fleet_proc *p; (p = ltn_map_next(&j->procs, &pos)) != NULL;) {
        assert_int_equal(p->replaced, p->pid < 500);
        assert_null(ltn_fleet_proc_verdict(w.f, p));
        if (!p->replaced)
            assert_int_equal(p->group->status.used, 4);
    }
    /* a late window of an old one does not put it back */
    struct push late = window(&w, 1, 4, 24, 0);
    late.start_ns = START_NS;
    apply(w.f, &late, T0 + 24 * WINDOW_NS + 5000000);
    assert_int_equal(ltn_fleet_job_ranks(j, &replaced), 4);
    ltn_fleet_free(w.f);
}

static void a_verdict_is_that_of_one_process_only(void **state)
{
    struct world w;
    (void)state;
    setup(&w, NULL);
    /* Two data-parallel groups whose ranks are known by their communicators only: both have a
     * rank 1, and that of the first is slow. */
    for (uint64_t k = 1; k <= 12; k++) {
        for (int i = 0; i < 8; i++) {
            struct push p = window(&w, i, 8, k, 0);
            p.pid = 100 + (uint32_t)i;
            p.rank = i % 4;
            p.by_comm = true;
            p.comm_id = i < 4 ? 0xaaa : 0xbbb;
            p.comm_size = 4;
            if (i == 1)
                p.self_ms = 100;
            apply(w.f, &p, T0 + k * WINDOW_NS + 1000000);
        }
    }
    assert_int_equal(w.f->open.len, 1);
    size_t pos = 0, named = 0;
    for (struct ltn_fleet_proc *p; (p = ltn_map_next(&w.f->procs, &pos)) != NULL;) {
        assert_false(p->replaced);
        if (ltn_fleet_proc_verdict(w.f, p) == NULL)
            continue;
        assert_string_equal(p->node->name, "node-1");
        named++;
    }
    assert_int_equal(named, 1);
    ltn_fleet_free(w.f);
}

/* ---- clocks ---- */

/* A job of 8 in which rank 5 is slow, run in real time; the clock of node 2 is off by off_ns from
 * window from on. The straggler must be found, and nearly every window judged. */
static void run_with_clock(int64_t off_ns, uint64_t from, uint64_t to, uint64_t max_late)
{
    struct world w;
    setup(&w, NULL);
    for (uint64_t k = 1; k <= 30; k++) {
        for (int i = 0; i < 8; i++) {
            struct push p = window(&w, i, 8, k, i * 1000000);
            uint64_t now = p.end_ns + 300000000;
            if (i == 2 && k >= from && k < to)
                p.end_ns += (uint64_t)off_ns;
            if (i == 5)
                p.self_ms = 80;
            apply(w.f, &p, now);
        }
        ltn_fleet_tick(w.f, T0 + k * WINDOW_NS + 4000000000ULL);
        ltn_fleet_tick(w.f, T0 + k * WINDOW_NS + 8000000000ULL);
    }
    struct ltn_fleet_group *g = only_group(w.f, "job");
    assert_int_equal(w.opened, 1);
    assert_int_equal(w.last.rank, 5);
    assert_int_equal(w.last.closed_at_ns, 0);
    assert_int_equal(g->status.state, LTN_GROUP_SCORED);
    assert_in_range(g->status.used, 7, 8);
    assert_true(w.f->counters.groups_scored >= 26);
    assert_in_range(w.f->counters.windows_late, 0, max_late);
    ltn_fleet_free(w.f);
}

static void one_wrong_clock_does_not_silence_the_job(void **state)
{
    const int64_t s = 1000000000, hour = 3600 * s;
    (void)state;
    run_with_clock(0, 1, 99, 0);
    run_with_clock(hour, 1, 99, 0);
    run_with_clock(-hour, 1, 99, 8);
    run_with_clock(5 * s, 1, 99, 0);
    run_with_clock(-5 * s, 1, 99, 2);
    run_with_clock(25 * s, 1, 99, 0);
    run_with_clock(hour, 12, 99, 1); /* a step while it runs */
    run_with_clock(-hour, 12, 99, 8);
    run_with_clock(hour, 12, 20, 2); /* and back */
    run_with_clock(24 * 365 * hour, 3, 9, 2);
}

static void a_node_ahead_that_comes_first_does_not_begin_the_group(void **state)
{
    struct world w;
    (void)state;
    setup(&w, NULL);
    for (uint64_t k = 1; k <= 12; k++)
        for (int i = 0; i < 4; i++) {
            struct push p = window(&w, i, 4, k, i == 0 ? 3600000000000LL : 0);
            apply(w.f, &p, T0 + k * WINDOW_NS + 2000000);
        }
    assert_int_equal(w.f->counters.windows_late, 0);
    assert_int_equal(only_group(w.f, "job")->status.used, 4);
    ltn_fleet_free(w.f);
}

/* ---- what can be said ---- */

static const char *outcome(struct ltn_fleet *f)
{
    static struct ltn_fleet_outcome o;
    ltn_fleet_outcome(f, &o);
    return o.state;
}

static void nothing_judged_is_not_no_straggler(void **state)
{
    struct world w;
    struct ltn_fleet_outcome o;
    (void)state;
    setup(&w, NULL);
    assert_string_equal(outcome(w.f), "cannot_tell");
    for (uint64_t k = 1; k <= 12; k++) {
        for (int i = 0; i < 4; i++) {
            struct push p = window(&w, i, 4, k, 0);
            apply(w.f, &p, T0 + k * WINDOW_NS + 1000000);
        }
        if (k == 2)
            assert_string_equal(outcome(w.f), "cannot_tell"); /* warm-up */
    }
    assert_string_equal(outcome(w.f), "no_straggler");
    /* Only one of four still comes. */
    for (uint64_t k = 13; k <= 16; k++) {
        struct push p = window(&w, 0, 4, k, 0);
        apply(w.f, &p, T0 + k * WINDOW_NS + 1000000);
        ltn_fleet_tick(w.f, T0 + k * WINDOW_NS + 9000000000ULL);
    }
    ltn_fleet_outcome(w.f, &o);
    assert_string_equal(o.state, "cannot_tell");
    assert_int_equal(o.judged, 0);
    assert_non_null(strstr(o.reason, "job job: "));
    /* Nobody comes any more. */
    ltn_fleet_tick(w.f, T0 + 60 * WINDOW_NS);
    ltn_fleet_outcome(w.f, &o);
    assert_string_equal(o.state, "cannot_tell");
    assert_string_equal(o.reason, "no rank sends windows");
    ltn_fleet_free(w.f);
}

/* ---- windows of another length ---- */

static unsigned length_warnings;

static void on_length(void *ctx, const char *node, uint64_t agent_window_ns)
{
    (void)ctx;
    assert_string_equal(node, "node-1");
    assert_int_equal(agent_window_ns, WINDOW_NS / 5);
    length_warnings++;
}

static void another_window_length_is_noticed_once(void **state)
{
    struct world w;
    struct ltn_fleet_opts o;
    (void)state;
    memset(&w, 0, sizeof(w));
    setup(&w, NULL);
    ltn_fleet_free(w.f);
    ltn_fleet_opts_default(&o);
    w.f = ltn_fleet_new(&o, &(struct ltn_fleet_sink){&w, on_verdict, on_length});
    assert_non_null(w.f);
    for (uint64_t k = 1; k <= 10; k++)
        for (int i = 0; i < 2; i++) {
            struct push p = window(&w, i, 2, k, 0);
            p.begin_ns = p.end_ns - (i == 1 ? WINDOW_NS / 5 : WINDOW_NS - 20000000);
            if (i == 0 && k == 4)
                p.begin_ns = p.end_ns - WINDOW_NS / 3; /* one short window is no news */
            apply(w.f, &p, p.end_ns + 1000000);
        }
    assert_int_equal(length_warnings, 1);
    assert_int_equal(w.f->counters.windows_length, 11);
    assert_true(((struct ltn_fleet_node *)ltn_map_get_str(&w.f->nodes, "node-1"))->length_differs);
    assert_false(((struct ltn_fleet_node *)ltn_map_get_str(&w.f->nodes, "node-0"))->length_differs);
    ltn_fleet_free(w.f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_start_time_told_differently_is_one_process),
        cmocka_unit_test(two_agents_on_a_node_count_nothing_twice),
        cmocka_unit_test(a_newer_process_replaces_the_older_at_once),
        cmocka_unit_test(a_verdict_is_that_of_one_process_only),
        cmocka_unit_test(one_wrong_clock_does_not_silence_the_job),
        cmocka_unit_test(a_node_ahead_that_comes_first_does_not_begin_the_group),
        cmocka_unit_test(nothing_judged_is_not_no_straggler),
        cmocka_unit_test(another_window_length_is_noticed_once),
        cmocka_unit_test(a_straggler_comes_through),
        cmocka_unit_test(windows_of_any_phase_meet),
        cmocka_unit_test(repeats_change_nothing),
        cmocka_unit_test(a_missing_rank_costs_the_grace_only),
        cmocka_unit_test(roles_tell_stages_apart),
        cmocka_unit_test(without_a_job_key_the_communicator_is_the_job),
        cmocka_unit_test(the_gpu_is_joined),
        cmocka_unit_test(silence_ends_a_job_and_its_verdicts),
        cmocka_unit_test(a_first_guess_of_the_job_is_forgotten),
        cmocka_unit_test(ceilings_refuse_and_count),
        cmocka_unit_test(a_wrong_clock_is_seen_and_corrected),
        cmocka_unit_test(lost_windows_are_counted_by_sequence),
    };
    return LTN_RUN_TESTS(tests);
}
