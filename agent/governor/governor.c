/* SPDX-License-Identifier: Apache-2.0 */
#include "governor/governor.h"

#include "base/attr.h"

#define SECOND LTN_NS_PER_S
/* A burst of a second is no reason to give detail up. */
#define OVER_PROBES 2
#define OVER_OWN    10
/* Detail comes back only with room to spare, and after calm. */
#define WORTH_IT        1.05 /* less saved is nothing saved */
#define STACKS_MATTER   0.1  /* of the budget */
#define ROOM            0.7
#define CALM_PROBES_NS  (10 * SECOND)
#define PATIENCE_NS     (30 * SECOND)
#define PATIENCE_MAX_NS (600 * SECOND)
#define SWING_NS        (60 * SECOND)
/* From here on it is worth giving something up for the agent's own sake. */
#define WORTH_RECORDS_PER_S  100.0
#define WORTH_PROGRAMS_SHARE 0.002
/* Beyond it only the traced program is helped, not the agent. */
#define LAST_FOR_OWN LTN_DETAIL_NO_HOST

void ltn_governor_init(struct ltn_governor *g, const struct ltn_governor_conf *conf)
{
    *g = (struct ltn_governor){.conf = *conf, .patience_ns = PATIENCE_NS, .off = {.thin = 1}};
}

double ltn_governor_own_limit(double calls_per_s)
{
    if (calls_per_s < LTN_GOVERNOR_REST_CALLS) {
        return LTN_GOVERNOR_REST;
    }
    double load = calls_per_s / LTN_GOVERNOR_BUSY_CALLS;
    return LTN_GOVERNOR_WORK + (LTN_GOVERNOR_BUSY - LTN_GOVERNOR_WORK) * (load < 1.0 ? load : 1.0);
}

/* The most detailed level at which no process loses more than the limit. When there is none, the
 * most detailed of those that save about as much as can be saved. */
static enum ltn_detail level_within(const struct ltn_governor_input *in, double limit)
{
    double least = in->probe_share[LTN_DETAILS - 1] * WORTH_IT;
    int l = 0;
    while (l < LTN_DETAILS - 1 && in->probe_share[l] > limit && in->probe_share[l] > least) {
        l++;
    }
    return (enum ltn_detail)l;
}

/* What each level would cost is known, so it goes where it must go at once, and back likewise. */
static void decide_probes(struct ltn_governor *g, const struct ltn_governor_input *in)
{
    enum ltn_detail needed = level_within(in, g->conf.budget);
    enum ltn_detail easy = level_within(in, g->conf.budget * ROOM);
    g->over_all = in->probe_share[LTN_DETAILS - 1] > g->conf.budget ? g->over_all + 1 : 0;
    g->exhausted = g->over_all >= OVER_PROBES;
    g->over_probes = needed > g->by_probes ? g->over_probes + 1 : 0;
    if (g->over_probes >= OVER_PROBES) {
        g->by_probes = needed;
        g->over_probes = 0;
    }
    if (easy >= g->by_probes) {
        g->calm_probes_ns = 0;
        return;
    }
    if (g->calm_probes_ns == 0) {
        g->calm_probes_ns = in->now_ns;
    } else if (in->now_ns - g->calm_probes_ns >= CALM_PROBES_NS) {
        g->by_probes = easy;
        g->calm_probes_ns = 0;
    }
}

/* Would this level save the agent anything? */
static bool helps_own(const struct ltn_governor_input *in, enum ltn_detail level)
{
    return level < LTN_DETAIL_NO_HOST ? in->records_per_s >= WORTH_RECORDS_PER_S
                                      : in->programs_share >= WORTH_PROGRAMS_SHARE;
}

static enum ltn_detail next_for_own(const struct ltn_governor_input *in, enum ltn_detail level)
{
    for (enum ltn_detail l = level + 1; l <= LAST_FOR_OWN; l++) {
        if (helps_own(in, l)) {
            return l;
        }
    }
    return level;
}

/* What a level saves the agent itself is only seen afterwards: one at a time, and more patience
 * each time it proves wrong to have come back. */
static void decide_own(struct ltn_governor *g, const struct ltn_governor_input *in)
{
    double limit = ltn_governor_own_limit(in->calls_per_s);
    g->over_own = in->own_share > limit ? g->over_own + 1 : 0;
    if (g->over_own >= OVER_OWN && next_for_own(in, g->by_own) != g->by_own) {
        bool swings = g->raised_own_ns != 0 && in->now_ns - g->raised_own_ns < SWING_NS;
        g->patience_ns = swings ? g->patience_ns * 2 : PATIENCE_NS;
        g->patience_ns = g->patience_ns < PATIENCE_MAX_NS ? g->patience_ns : PATIENCE_MAX_NS;
        g->by_own = next_for_own(in, g->by_own);
        g->over_own = 0;
    }
    if (g->by_own == 0 || (in->own_share > limit * ROOM && helps_own(in, g->by_own))) {
        g->calm_own_ns = 0;
        return;
    }
    if (g->calm_own_ns == 0) {
        g->calm_own_ns = in->now_ns;
    } else if (in->now_ns - g->calm_own_ns >= g->patience_ns) {
        g->by_own--;
        g->calm_own_ns = 0;
        g->raised_own_ns = in->now_ns;
    }
}

/*
 * The levels of the agent's own time turn down what costs the agent: records, stacks, host events.
 * Those of the budget turn down what costs the traced program, and leave the rest alone: a record
 * more or less is nothing to a program that makes a million calls.
 */
static struct ltn_governor_off turned_down(const struct ltn_governor *g,
                                           const struct ltn_governor_input *in)
{
    bool stacks_matter = in->stack_share >= STACKS_MATTER * g->conf.budget;
    bool stacks_by_probes =
        g->by_probes >= LTN_DETAIL_NO_STACKS && (g->off.stacks || stacks_matter);
    return (struct ltn_governor_off){
        .stacks = g->by_own >= LTN_DETAIL_NO_STACKS || stacks_by_probes,
        .host = g->by_own >= LTN_DETAIL_NO_HOST,
        .nested = g->by_probes >= LTN_DETAIL_NO_NESTED,
        .launch = g->by_probes >= LTN_DETAIL_COUNTS,
        .thin = g->by_own >= LTN_DETAIL_SAMPLE_100  ? 100
                : g->by_own >= LTN_DETAIL_SAMPLE_10 ? 10
                                                    : 1,
    };
}

static bool differ(const struct ltn_governor_off *a, const struct ltn_governor_off *b)
{
    return a->stacks != b->stacks || a->host != b->host || a->nested != b->nested ||
           a->launch != b->launch || a->thin != b->thin;
}

bool ltn_governor_decide(struct ltn_governor *g, const struct ltn_governor_input *in)
{
    if (g->conf.budget <= 0.0) {
        return false;
    }
    enum ltn_detail before = g->level;
    struct ltn_governor_off off_before = g->off;
    decide_probes(g, in);
    decide_own(g, in);
    g->level = g->by_probes > g->by_own ? g->by_probes : g->by_own;
    g->reason = g->level == LTN_DETAIL_FULL ? LTN_GOVERNOR_CALM
                : g->by_probes >= g->by_own ? LTN_GOVERNOR_PROBES
                                            : LTN_GOVERNOR_OWN;
    g->off = turned_down(g, in);
    return g->level != before || differ(&g->off, &off_before);
}
