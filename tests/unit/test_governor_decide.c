/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/attr.h"
#include "governor/governor.h"
#include "governor/meter.h"

static const struct ltn_probe_price price = {
    .pair_ns = 1000.0, .entry_ns = 600.0, .step_ns = 9000.0};
static struct ltn_governor g;
static uint64_t now_s;
static double records_per_s;
static double programs_share;

static void start(const struct ltn_governor_conf *conf)
{
    ltn_governor_init(&g, conf);
    now_s = 100;
    records_per_s = 1000.0;
    programs_share = 0.01;
}

static int fresh(void **state)
{
    (void)state;
    start(&(struct ltn_governor_conf){.budget = 0.02});
    return 0;
}

/* A process makes so many launches a second, each with a call inside, for so many seconds. */
static unsigned pass(double launches, double own_share, unsigned seconds)
{
    unsigned changes = 0;
    struct ltn_call_rates r = {.launches = launches, .nested = launches};
    struct ltn_governor_input in = {.own_share = own_share,
                                    .calls_per_s = 2 * launches,
                                    .records_per_s = records_per_s,
                                    .programs_share = programs_share};
    for (int l = 0; l < LTN_DETAILS; l++) {
        in.probe_share[l] = ltn_meter_share(&r, &price, (enum ltn_detail)l);
    }
    for (unsigned i = 0; i < seconds; i++) {
        in.now_ns = ++now_s * LTN_NS_PER_S;
        changes += ltn_governor_decide(&g, &in);
    }
    return changes;
}

static void the_price_of_a_level(void **state)
{
    (void)state;
    struct ltn_call_rates r = {.launches = 1000, .nested = 500, .others = 100, .entries_only = 10};
    /* 1000 + 500 pairs, 100 at half as much again, 10 entries. */
    double full = (1500.0 * 1000 + 100 * 1500 + 10 * 600) * 1e-9;
    assert_true(fabs(ltn_meter_share(&r, &price, LTN_DETAIL_FULL) - full) < 1e-12);
    assert_true(fabs(ltn_meter_share(&r, &price, LTN_DETAIL_NO_HOST) - full) < 1e-12);
    full -= 500 * 400e-9;
    assert_true(fabs(ltn_meter_share(&r, &price, LTN_DETAIL_NO_NESTED) - full) < 1e-12);
    full -= 1000 * 400e-9;
    assert_true(fabs(ltn_meter_share(&r, &price, LTN_DETAIL_COUNTS) - full) < 1e-12);
    /* Stepping through a probe is not saved by timing less. */
    r.stepped = 100;
    full += 100 * 9000e-9;
    assert_true(fabs(ltn_meter_share(&r, &price, LTN_DETAIL_COUNTS) - full) < 1e-12);
}

static void within_the_budget_nothing_happens(void **state)
{
    (void)state;
    assert_int_equal(pass(9000, 0.005, 1000), 0); /* 1.8 % */
    assert_int_equal(g.level, LTN_DETAIL_FULL);
    assert_int_equal(g.reason, LTN_GOVERNOR_CALM);
    assert_false(g.exhausted);
}

static void a_second_over_it_is_no_reason(void **state)
{
    (void)state;
    for (int i = 0; i < 50; i++) {
        assert_int_equal(pass(100000, 0.005, 1) + pass(1000, 0.005, 1), 0);
    }
}

static void it_goes_no_further_than_it_must(void **state)
{
    (void)state;
    /* 11000 pairs of pairs: 2.2 %; with nested calls counted only: 1.76 %. */
    assert_int_equal(pass(11000, 0.005, 2), 1);
    assert_int_equal(g.level, LTN_DETAIL_NO_NESTED);
    assert_int_equal(g.reason, LTN_GOVERNOR_PROBES);
    assert_int_equal(pass(11000, 0.005, 300), 0);
    /* 16000: 3.2, 2.56, 1.92 %. */
    assert_int_equal(pass(16000, 0.005, 2), 1);
    assert_int_equal(g.level, LTN_DETAIL_COUNTS);
    assert_false(g.exhausted);
    assert_int_equal(pass(100000, 0.005, 10), 0);
    assert_true(g.exhausted);
}

static void calm_brings_detail_back(void **state)
{
    (void)state;
    (void)pass(100000, 0.005, 3);
    assert_int_equal(g.level, LTN_DETAIL_COUNTS);
    assert_int_equal(pass(100, 0.005, 10), 0);
    assert_int_equal(pass(100, 0.005, 1), 1);
    assert_int_equal(g.level, LTN_DETAIL_FULL);
    assert_int_equal(g.reason, LTN_GOVERNOR_CALM);
}

/* Full detail would take 1.8 %: within the budget, but without room to spare. */
static void at_the_edge_it_does_not_swing(void **state)
{
    (void)state;
    (void)pass(11000, 0.005, 3);
    assert_int_equal(g.level, LTN_DETAIL_NO_NESTED);
    assert_int_equal(pass(9000, 0.005, 500), 0);
    assert_int_equal(pass(6900, 0.005, 20), 1); /* 1.38 %: below 70 % of the budget */
    assert_int_equal(g.level, LTN_DETAIL_FULL);
}

static void the_agents_own_time_lowers_detail_level_by_level(void **state)
{
    (void)state;
    assert_int_equal(pass(0, 0.02, 9), 0);
    assert_int_equal(pass(0, 0.02, 1), 1);
    assert_int_equal(g.level, LTN_DETAIL_NO_STACKS);
    assert_int_equal(g.reason, LTN_GOVERNOR_OWN);
    assert_int_equal(pass(0, 0.02, 1000), LTN_DETAIL_NO_HOST - 1);
    assert_int_equal(g.level, LTN_DETAIL_NO_HOST); /* the rest would not help the agent */
    assert_int_equal(pass(0, 0.001, 200), LTN_DETAIL_NO_HOST);
    assert_int_equal(g.level, LTN_DETAIL_FULL);
}

/* At rest there is nothing to give up: no level is taken for nothing, and none is kept. */
static void what_saves_nothing_is_not_given_up(void **state)
{
    (void)state;
    records_per_s = 3.0;
    programs_share = 0.0005;
    assert_int_equal(pass(0, 0.02, 1000), 0);
    programs_share = 0.005;
    assert_int_equal(pass(0, 0.02, 10), 1);
    assert_int_equal(g.level, LTN_DETAIL_NO_HOST);
    programs_share = 0.0005;
    assert_int_equal(pass(0, 0.02, 1000), LTN_DETAIL_NO_HOST);
    assert_int_equal(g.level, LTN_DETAIL_FULL);
}

/* Links of other kinds pay for both traps whatever is turned down. */
static void detail_that_saves_no_time_stays(void **state)
{
    (void)state;
    struct ltn_governor_input in = {.own_share = 0.001};
    for (int l = 0; l < LTN_DETAILS; l++) {
        in.probe_share[l] = 0.51 - 0.002 * l;
    }
    for (unsigned i = 0; i < 20; i++) {
        in.now_ns = ++now_s * LTN_NS_PER_S;
        assert_false(ltn_governor_decide(&g, &in));
        assert_int_equal(g.exhausted, i >= 1);
    }
    assert_int_equal(g.level, LTN_DETAIL_FULL);
}

static void much_work_may_cost_more(void **state)
{
    (void)state;
    assert_int_equal(pass(4000, 0.04, 100), 0);
    start(&(struct ltn_governor_conf){.budget = 1.0});
    assert_int_equal(pass(100000, 0.099, 100), 0);
    assert_int_equal(pass(100000, 0.11, 10), 1);
}

static void swinging_needs_more_patience_each_time(void **state)
{
    (void)state;
    unsigned calm[3] = {0};
    for (int i = 0; i < 3; i++) {
        while (g.level == LTN_DETAIL_FULL) {
            (void)pass(0, 0.02, 1);
        }
        while (g.level != LTN_DETAIL_FULL) {
            (void)pass(0, 0.001, 1);
            calm[i]++;
        }
    }
    assert_true(calm[1] >= 2 * calm[0] - 2 && calm[2] >= 2 * calm[1] - 2);
}

/* The budget gives up what costs the traced program, the agent's own time what costs the agent. */
static void each_reason_gives_up_what_helps_it(void **state)
{
    (void)state;
    (void)pass(100000, 0.005, 3);
    assert_int_equal(g.level, LTN_DETAIL_COUNTS);
    assert_true(g.off.nested && g.off.launch);
    assert_false(g.off.stacks || g.off.host);
    assert_int_equal(g.off.thin, 1);
    (void)pass(100000, 0.5, 40);
    assert_true(g.off.nested && g.off.launch && g.off.stacks && g.off.host);
    assert_int_equal(g.off.thin, 100);
    start(&(struct ltn_governor_conf){.budget = 0.02});
    (void)pass(0, 0.02, 20);
    assert_int_equal(g.level, LTN_DETAIL_SAMPLE_10);
    assert_true(g.off.stacks && g.off.thin == 10);
    assert_false(g.off.nested || g.off.launch || g.off.host);
}

static void stacks_go_first_when_they_are_what_costs(void **state)
{
    (void)state;
    struct ltn_governor_input in = {.own_share = 0.001, .stack_share = 0.03};
    for (int l = 0; l < LTN_DETAILS; l++) {
        in.probe_share[l] = l == LTN_DETAIL_FULL ? 0.04 : 0.01;
    }
    for (unsigned i = 0; i < 3; i++) {
        in.now_ns = ++now_s * LTN_NS_PER_S;
        (void)ltn_governor_decide(&g, &in);
    }
    assert_int_equal(g.level, LTN_DETAIL_NO_STACKS);
    assert_true(g.off.stacks);
    assert_false(g.off.nested || g.exhausted);
}

static void no_budget_no_governor(void **state)
{
    (void)state;
    start(&(struct ltn_governor_conf){.budget = 0.0});
    assert_int_equal(pass(1e6, 0.9, 100), 0);
    assert_int_equal(g.level, LTN_DETAIL_FULL);
}

static void levels_have_names(void **state)
{
    (void)state;
    for (int l = 0; l < LTN_DETAILS; l++) {
        assert_string_not_equal(ltn_detail_name((enum ltn_detail)l), "unknown");
    }
    assert_string_equal(ltn_detail_name(LTN_DETAILS), "unknown");
}

#define TEST(name) cmocka_unit_test_setup(name, fresh)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_price_of_a_level),
        TEST(within_the_budget_nothing_happens),
        TEST(a_second_over_it_is_no_reason),
        TEST(it_goes_no_further_than_it_must),
        TEST(calm_brings_detail_back),
        TEST(at_the_edge_it_does_not_swing),
        TEST(the_agents_own_time_lowers_detail_level_by_level),
        TEST(what_saves_nothing_is_not_given_up),
        TEST(detail_that_saves_no_time_stays),
        TEST(much_work_may_cost_more),
        TEST(swinging_needs_more_patience_each_time),
        TEST(each_reason_gives_up_what_helps_it),
        TEST(stacks_go_first_when_they_are_what_costs),
        TEST(no_budget_no_governor),
        TEST(levels_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
