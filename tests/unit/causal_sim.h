/* SPDX-License-Identifier: Apache-2.0 */
/* A node in miniature for the tests of agent/causal: windows made by hand, changes kept. */
#ifndef CAUSAL_SIM_H
#define CAUSAL_SIM_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "causal/causal.h"
#include "probe/ops.h"

#define SIM_MS     1000000ULL
#define SIM_S      1000000000ULL
#define SIM_WINDOW (10 * SIM_S)
#define SIM_PROCS  8
#define SIM_KEPT   512
#define SIM_START  (1700000000ULL * SIM_S)

struct sim_change {
    char id[20];
    char state[8];
    enum ltn_causal_kind kind;
    enum ltn_causal_severity severity;
    char title[LTN_CAUSAL_TITLE_BYTES];
    char cause[LTN_CAUSAL_CAUSE_BYTES];
    double share;
    uint64_t count;
    uint32_t pid;
    char evidence[16384];
};

struct sim_node {
    struct ltn_causal *causal;
    struct ltn_window window;
    struct ltn_proc_window procs[SIM_PROCS];
    struct ltn_comm_window comms[SIM_PROCS];
    struct ltn_stuck_call stuck[SIM_PROCS];
    struct ltn_op_window op[SIM_PROCS];
    struct sim_change *changes;
    size_t change_count;
};

static void sim_on_change(void *ctx, const struct ltn_causal_change *c)
{
    struct sim_node *n = ctx;
    if (n->change_count == SIM_KEPT) {
        return;
    }
    struct sim_change *s = &n->changes[n->change_count++];
    (void)snprintf(s->id, sizeof(s->id), "%s", c->id);
    (void)snprintf(s->state, sizeof(s->state), "%s", c->state);
    (void)snprintf(s->title, sizeof(s->title), "%s", c->title);
    (void)snprintf(s->cause, sizeof(s->cause), "%s", c->cause);
    (void)snprintf(s->evidence, sizeof(s->evidence), "%s", c->evidence);
    s->kind = c->kind;
    s->severity = c->severity;
    s->share = c->explained_share;
    s->count = c->count;
    s->pid = c->pid;
}

/* Processes 100, 101, … of a job whose steps take 100 ms: 30 ms on the CPU, 60 ms waiting for
 * peers, the rest for the device. */
static inline struct sim_node *sim_new(size_t procs, struct ltn_causal_opts opts)
{
    struct sim_node *n = calloc(1, sizeof(*n));
    n->changes = calloc(SIM_KEPT, sizeof(*n->changes));
    opts.node = "n0";
    opts.ctx = n;
    opts.change = sim_on_change;
    n->causal = ltn_causal_new(&opts);
    n->window.procs = n->procs;
    n->window.proc_count = procs;
    n->window.end_ns = SIM_START;
    n->window.pressure_memory = -1;
    n->window.pressure_io = -1;
    for (size_t i = 0; i < procs; i++) {
        n->procs[i] = (struct ltn_proc_window){
            .pid = 100 + (uint32_t)i,
            .start_ns = SIM_START - 1000 * SIM_S,
            .comm = "python3",
            .job = "job",
            .rank = (int32_t)i,
            .is_rank = true,
            .has_host = true,
            .host = {.steps = 100,
                     .step_ns = 100.0 * (double)SIM_MS,
                     .self_ns = 40.0 * (double)SIM_MS,
                     .peer_wait_ns = 60.0 * (double)SIM_MS},
            .comms = &n->comms[i],
            .comm_count = 1,
            .stuck = &n->stuck[i],
            .ops = &n->op[i],
            .op_count = 1,
        };
        n->procs[i].host.split_ns[LTN_SPLIT_ON_CPU] = 30.0 * (double)SIM_MS;
        n->procs[i].host.split_ns[LTN_SPLIT_DEVICE] = 10.0 * (double)SIM_MS;
        n->comms[i] = (struct ltn_comm_window){
            .comm_id = 0xfeed, .rank = (int32_t)i, .ranks = (int32_t)procs, .sequence_total = 1000};
        n->op[i] = (struct ltn_op_window){.op = LTN_OP_ID_CUDA_LAUNCH_KERNEL, .calls = 1000};
    }
    return n;
}

static inline void sim_free(struct sim_node *n)
{
    ltn_causal_free(n->causal);
    free(n->changes);
    free(n);
}

/* Adds to the host time of a process. */
static inline void sim_add(struct sim_node *n, size_t i, enum ltn_split part, double ms)
{
    struct ltn_rank_window *r = &n->procs[i].host;
    r->split_ns[part] += ms * (double)SIM_MS;
    r->self_ns += ms * (double)SIM_MS;
    r->step_ns += ms * (double)SIM_MS;
}

static inline void sim_preemptor(struct sim_node *n, size_t i, const char *comm, uint32_t tgid)
{
    n->procs[i].host.preemptors[0] =
        (struct ltn_preemptor){.tgid = tgid, .waited_ns = 4 * SIM_S, .times = 100};
    (void)snprintf(n->procs[i].host.preemptors[0].comm, LTN_COMM_BYTES, "%s", comm);
}

static inline void sim_windows(struct sim_node *n, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        n->window.start_ns = n->window.end_ns;
        n->window.end_ns += SIM_WINDOW;
        for (size_t p = 0; p < n->window.proc_count; p++) {
            n->procs[p].cpu_total_ns += n->stuck[p].op != 0 ? 0 : 3 * SIM_S;
        }
        ltn_causal_window(n->causal, &n->window);
    }
}

/* The first change of a kind in a state; NULL when there is none. */
static inline const struct sim_change *sim_find(const struct sim_node *n, enum ltn_causal_kind kind,
                                                const char *state)
{
    for (size_t i = 0; i < n->change_count; i++) {
        if (n->changes[i].kind == kind && strcmp(n->changes[i].state, state) == 0) {
            return &n->changes[i];
        }
    }
    return NULL;
}

static inline void sim_call(struct sim_node *n, size_t i, struct ltn_call call)
{
    call.pid = n->procs[i].pid;
    call.tid = call.pid;
    call.proc_start_ns = n->procs[i].start_ns;
    call.weight = 1;
    ltn_causal_calls(n->causal, &call, 1);
}

#endif /* CAUSAL_SIM_H */
