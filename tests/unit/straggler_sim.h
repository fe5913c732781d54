/* SPDX-License-Identifier: Apache-2.0 */
/* Synthetic peer groups for the tests of collector/straggler: seeded noise, one knob per fault. */
#ifndef LTN_TESTS_STRAGGLER_SIM_H
#define LTN_TESTS_STRAGGLER_SIM_H

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "straggler/straggler.h"

#define SIM_MAX       64
#define SIM_WINDOW_NS 10000000000ULL

struct sim_rng {
    uint64_t s;
};

/* SplitMix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators" (2014). */
static inline uint64_t sim_u64(struct sim_rng *r)
{
    uint64_t z = (r->s += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
}

static inline double sim_uniform(struct sim_rng *r)
{
    return (double)(sim_u64(r) >> 11) * 0x1p-53;
}

static inline double sim_normal(struct sim_rng *r)
{
    double u = 1.0 - sim_uniform(r);
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * sim_uniform(r));
}

struct sim {
    struct sim_rng rng;
    size_t n;
    double noise;     /* sd of ln self time */
    double host_ns;   /* self time of a healthy rank */
    double device_ns; /* what the GPU needs */
    uint64_t end_ns;
    double slow[SIM_MAX];     /* factor on self time */
    enum ltn_part part;       /* where the excess goes */
    double part_share;        /* share of the excess in it, the rest on the CPU */
    const char *preemptor;    /* of the slow ones */
    double clock[SIM_MAX];    /* SM clock ratio */
    uint64_t bits[SIM_MAX];   /* throttle reasons */
    double coverage[SIM_MAX]; /* 1 */
    bool absent[SIM_MAX];
    size_t ranks_per_node;
    struct ltn_straggler *det;
    /* what came out */
    unsigned opened, closed, updated, notable;
    struct ltn_straggler_verdict last;
    uint64_t named; /* bit per rank that was ever named */
    struct ltn_straggler_status status;
};

static inline void sim_init(struct sim *s, size_t n, uint64_t seed)
{
    memset(s, 0, sizeof(*s));
    s->rng.s = seed;
    s->n = n;
    s->noise = 0.02;
    s->host_ns = 50e6;
    s->device_ns = 60e6;
    s->end_ns = 1700000000ULL * 1000000000ULL;
    s->part = LTN_PART_ON_CPU;
    s->part_share = 1;
    s->ranks_per_node = 1;
    for (size_t i = 0; i < SIM_MAX; i++)
        s->slow[i] = s->coverage[i] = s->clock[i] = 1;
    s->det = ltn_straggler_new(NULL);
}

static inline void sim_done(struct sim *s)
{
    ltn_straggler_free(s->det);
}

static inline void sim_event(void *ctx, enum ltn_straggler_change change, bool notable,
                             const struct ltn_straggler_verdict *v)
{
    struct sim *s = ctx;
    s->last = *v;
    s->opened += change == LTN_VERDICT_OPENED;
    s->closed += change == LTN_VERDICT_CLOSED;
    s->updated += change == LTN_VERDICT_UPDATED;
    s->notable += change == LTN_VERDICT_UPDATED && notable;
    if (v->rank >= 0 && v->rank < 64)
        s->named |= 1ULL << v->rank;
}

/* A synchronous step: the slowest host and the slowest GPU set its length, the others wait. */
static inline size_t sim_members(struct sim *s, struct ltn_straggler_member *m)
{
    double self[SIM_MAX], longest = 0, slowest_gpu = 0;
    size_t k = 0;
    for (size_t i = 0; i < s->n; i++) {
        self[i] = s->host_ns * s->slow[i] * exp(s->noise * sim_normal(&s->rng));
        longest = self[i] > longest ? self[i] : longest;
        double gpu = s->device_ns / s->clock[i];
        slowest_gpu = gpu > slowest_gpu ? gpu : slowest_gpu;
    }
    for (size_t i = 0; i < s->n; i++) {
        if (s->absent[i])
            continue;
        struct ltn_straggler_member *x = &m[k++];
        memset(x, 0, sizeof(*x));
        (void)snprintf(x->key, sizeof(x->key), "%zu", i);
        (void)snprintf(x->node, sizeof(x->node), "node-%zu", i / s->ranks_per_node);
        x->rank = (int32_t)i;
        x->incarnation = 1;
        x->self_ns = self[i];
        x->step_ns = longest + slowest_gpu;
        x->peer_wait_ns = x->step_ns - self[i];
        double healthy = self[i] / s->slow[i], excess = self[i] - healthy;
        x->part_ns[LTN_PART_ON_CPU] = 0.9 * healthy + (1 - s->part_share) * excess;
        x->part_ns[LTN_PART_RUN_QUEUE] = 0.02 * healthy;
        x->part_ns[LTN_PART_READ] = 0.08 * healthy;
        x->part_ns[s->part] += s->part_share * excess;
        if (s->preemptor != NULL && excess > 0) {
            (void)snprintf(x->preemptors[0].comm, sizeof(x->preemptors[0].comm), "%s",
                           s->preemptor);
            x->preemptors[0].waited_ns = 0.9 * s->part_share * excess;
            (void)snprintf(x->preemptors[1].comm, sizeof(x->preemptors[1].comm), "kworker/0:1");
            x->preemptors[1].waited_ns = 0.1 * s->part_share * excess;
        }
        x->coverage = s->coverage[i];
        x->gpu_clock = s->clock[i];
        x->gpu_busy = 0.9;
        x->gpu_throttle = s->bits[i];
    }
    return k;
}

static inline int sim_window(struct sim *s)
{
    struct ltn_straggler_member m[SIM_MAX];
    s->end_ns += SIM_WINDOW_NS;
    struct ltn_straggler_window w = {
        .job = "job",
        .group = "g",
        .end_ns = s->end_ns,
        .length_ns = SIM_WINDOW_NS,
        .expected = s->n,
        .job_gpus = s->n,
        .members = m,
        .n = sim_members(s, m),
    };
    return ltn_straggler_feed(s->det, &w, sim_event, s, &s->status);
}

/* Feeds k windows; false when one was refused. */
static inline bool sim_run(struct sim *s, unsigned k)
{
    while (k-- > 0)
        if (sim_window(s) != 0)
            return false;
    return true;
}

#endif /* LTN_TESTS_STRAGGLER_SIM_H */
