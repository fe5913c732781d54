/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much detail tracing may have. Two things are kept within bounds: what the probes take from a
 * traced process (the budget), and what the agent takes from the machine. Detail goes in one order,
 * a level at a time or several at once; counts never go. Pure: the caller brings time and figures,
 * and applies the level.
 */
#ifndef LTN_GOVERNOR_GOVERNOR_H
#define LTN_GOVERNOR_GOVERNOR_H

#include <stdbool.h>
#include <stdint.h>

#include "capture/window.h"

struct ltn_governor_conf {
    double budget; /* share of a traced process's time that probes may take; 0 = no governor */
};

/* What the agent may take of one core: below LTN_GOVERNOR_REST_CALLS calls a second, just above
 * that, and at LTN_GOVERNOR_BUSY_CALLS and beyond. */
#define LTN_GOVERNOR_REST       0.01
#define LTN_GOVERNOR_WORK       0.05
#define LTN_GOVERNOR_BUSY       0.10
#define LTN_GOVERNOR_REST_CALLS 100.0
#define LTN_GOVERNOR_BUSY_CALLS 200000.0

/* What was measured since the last decision. */
struct ltn_governor_input {
    uint64_t now_ns; /* any clock that only grows */
    /* Share of its time that the dearest process would lose at each level, by its present calls. */
    double probe_share[LTN_DETAILS];
    double stack_share; /* of probe_share[LTN_DETAIL_FULL]: taking stacks */
    double own_share;   /* the agent's CPU time with that of its kernel programs, of one core */
    double calls_per_s;
    double records_per_s;  /* as if none were thinned out */
    double programs_share; /* of own_share: scheduler, process and host programs */
};

enum ltn_governor_reason {
    LTN_GOVERNOR_CALM = 0, /* nothing is turned down */
    LTN_GOVERNOR_PROBES,   /* a process would lose more than the budget */
    LTN_GOVERNOR_OWN,      /* the agent took too much itself */
};

/* What a decision turns down: what the agent's own time asks for, and what the budget asks for. */
struct ltn_governor_off {
    bool stacks;
    bool host;
    bool nested;   /* of calls inside others few are timed */
    bool launch;   /* of launches, copies, memsets few are timed */
    uint32_t thin; /* of the records that may be thinned out at least so many for one */
};

struct ltn_governor {
    struct ltn_governor_conf conf;
    enum ltn_detail by_probes; /* level that the budget asks for */
    enum ltn_detail by_own;    /* level that the agent's own time asks for */
    unsigned over_probes;      /* decisions in a row */
    unsigned over_own;
    unsigned over_all;       /* decisions in a row at which no level was enough */
    uint64_t calm_probes_ns; /* since when less would do; 0 = it would not */
    uint64_t calm_own_ns;
    uint64_t raised_own_ns; /* when by_own came back a level, to tell swinging */
    uint64_t patience_ns;   /* calm needed before by_own comes back */
    /* The outcome. */
    enum ltn_detail level;
    enum ltn_governor_reason reason;
    struct ltn_governor_off off;
    bool exhausted; /* no level brings the cost under the budget */
};

void ltn_governor_init(struct ltn_governor *g, const struct ltn_governor_conf *conf);

/* Decides; about once a second. True when the level, or what is turned down, changed. */
bool ltn_governor_decide(struct ltn_governor *g, const struct ltn_governor_input *in);

/* Most that the agent may take of a core at this rate of calls. */
double ltn_governor_own_limit(double calls_per_s);

#endif /* LTN_GOVERNOR_GOVERNOR_H */
