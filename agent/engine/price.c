/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/price.h"

#include <errno.h>
#include <stdio.h>

#include "base/attr.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "bpf/event.h"

#define DECIDE_EACH_NS (900 * LTN_NS_PER_MS)
#define SAY_AGAIN_NS   (60 * LTN_NS_PER_S)
#define MAPS_EACH_NS   (10 * LTN_NS_PER_S)
/* Without a budget processes are looked at as if it were this. */
#define BUDGET_TO_LOOK_AT 0.02

#define TEXT_BYTES 256

static uint32_t off_bits(const struct ltn_governor_off *o)
{
    return (o->stacks ? LTN_DOWN_STACKS : 0) | (o->host ? LTN_DOWN_HOST : 0) |
           (o->nested ? LTN_DOWN_NESTED : 0) | (o->launch ? LTN_DOWN_LAUNCH : 0);
}

/* "no stacks, one record in 10": what is turned down. */
static void off_text(const struct ltn_governor_off *o, char out[TEXT_BYTES])
{
    struct ltn_buf text;
    ltn_buf_init(&text, TEXT_BYTES);
    const char *parts[] = {
        o->stacks ? "no stacks" : NULL,
        o->thin >= 100  ? "one record in 100"
        : o->thin >= 10 ? "one record in 10"
                        : NULL,
        o->host ? "no host events" : NULL,
        o->nested ? "of calls inside others one in 16 timed" : NULL,
        o->launch ? "of launches and copies one in 16 timed" : NULL,
    };
    for (size_t i = 0; i < LTN_ARRAY_SIZE(parts); i++) {
        if (parts[i] != NULL) {
            (void)ltn_buf_printf(&text, "%s%s", text.len > 0 ? ", " : "", parts[i]);
        }
    }
    (void)snprintf(out, TEXT_BYTES, "%s", text.len > 0 ? ltn_buf_str(&text) : "all is on");
    ltn_buf_done(&text);
}

int ltn_price_init(struct ltn_price *p, struct ltn_probes *probes, double budget,
                   bool records_wanted)
{
    /* Who asks for every record has accepted what that costs. */
    const struct ltn_governor_conf conf = {.budget = records_wanted ? 0.0 : budget};
    ltn_probes_measure_price(probes, &p->price);
    ltn_governor_init(&p->governor, &conf);
    p->health = (struct ltn_price_health){
        .thin = 1, .probe_share = -1.0, .own_share = -1.0, .pair_ns = p->price.pair_ns};
    p->meter = ltn_meter_new(probes, &p->price, budget > 0.0 ? budget : BUDGET_TO_LOOK_AT);
    return p->meter == NULL ? -ENOMEM : 0;
}

void ltn_price_done(struct ltn_price *p)
{
    ltn_meter_free(p->meter);
    p->meter = NULL;
}

static void say_change(struct ltn_price *p, const struct ltn_governor_input *in)
{
    const struct ltn_governor *g = &p->governor;
    char text[TEXT_BYTES];
    off_text(&g->off, text);
    if (g->reason == LTN_GOVERNOR_PROBES) {
        ltn_log_warn("detail is down to %s (%s): tracing all would take %.1f %% of process %u, the "
                     "budget is %.1f %%, this takes %.1f %%",
                     ltn_detail_name(g->level), text, in->probe_share[LTN_DETAIL_FULL] * 100.0,
                     p->health.probe_pid, g->conf.budget * 100.0,
                     in->probe_share[g->level] * 100.0);
    } else if (g->reason == LTN_GOVERNOR_OWN) {
        ltn_log_warn("detail is down to %s (%s): the agent took %.1f %% of a core, which may be "
                     "%.1f %%",
                     ltn_detail_name(g->level), text, in->own_share * 100.0,
                     ltn_governor_own_limit(in->calls_per_s) * 100.0);
    } else {
        ltn_log_info("detail is %s again: %s", ltn_detail_name(g->level), text);
    }
}

static void say_exhausted(struct ltn_price *p, const struct ltn_governor_input *in)
{
    const struct ltn_governor *g = &p->governor;
    if (g->exhausted && !p->told_exhausted) {
        ltn_log_warn("tracing takes %.1f %% of process %u at the least, more than the budget of "
                     "%.1f %%; leave it out with --pid, --user or --cgroup, or accept that",
                     in->probe_share[LTN_DETAILS - 1] * 100.0, p->health.probe_pid,
                     g->conf.budget * 100.0);
        p->told_exhausted = true;
    }
    /* Said again only after a long time within the budget. */
    if (g->exhausted) {
        p->quiet_ns = in->now_ns;
    } else if (p->told_exhausted && in->now_ns - p->quiet_ns > SAY_AGAIN_NS) {
        p->told_exhausted = false;
    }
}

void ltn_price_tick(struct ltn_price *p, struct ltn_probes *probes, struct ltn_drain *drain,
                    struct ltn_aggregate *aggregate)
{
    uint64_t now_ns = ltn_now_mono_ns();
    if (now_ns < p->next_ns) {
        return;
    }
    p->next_ns = now_ns + DECIDE_EACH_NS;
    struct ltn_governor_input in;
    ltn_meter_read(p->meter, now_ns, &in, &p->health.probe_pid);
    bool changed = ltn_governor_decide(&p->governor, &in);
    enum ltn_detail level = p->governor.level;
    if (changed) {
        ltn_probes_set_off(probes, off_bits(&p->governor.off));
        ltn_drain_set_least(drain, p->governor.off.thin);
        say_change(p, &in);
    }
    say_exhausted(p, &in);
    if (now_ns >= p->maps_ns) {
        p->maps_ns = now_ns + MAPS_EACH_NS;
        ltn_aggregate_set_map_bytes(aggregate, ltn_probes_map_bytes(probes));
    }
    p->health.detail = level;
    p->health.probe_share = in.probe_share[level];
    p->health.own_share = in.own_share;
    ltn_aggregate_set_price(aggregate, &p->health);
}
