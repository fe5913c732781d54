/* SPDX-License-Identifier: Apache-2.0 */
/* Each rule of the detector, with the fault it must name and the likeness it must not. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/err.h"
#include "straggler_sim.h"

static void assert_named(const struct sim *s, uint64_t ranks)
{
    if (s->named != ranks)
        fail_msg("named %#llx instead of %#llx", (unsigned long long)s->named,
                 (unsigned long long)ranks);
}

static void names_the_slow_one_at_every_size(void **state)
{
    (void)state;
    static const size_t sizes[] = {3, 4, 8, 64};
    for (size_t k = 0; k < LTN_ARRAY_SIZE(sizes); k++) {
        struct sim s;
        sim_init(&s, sizes[k], 7 + k);
        assert_true(sim_run(&s, 20));
        assert_int_equal(s.opened, 0);
        s.slow[1] = 1.5;
        assert_true(sim_run(&s, 3));
        assert_int_equal(s.opened, 0); /* persistence: four windows */
        assert_true(sim_run(&s, 3));
        assert_int_equal(s.opened, 1);
        assert_named(&s, 1 << 1);
        assert_int_equal(s.last.peers, sizes[k] - 1);
        assert_true(s.last.effect_pct > 40 && s.last.effect_pct < 60);
        assert_true(s.last.self_time_ns > s.last.peer_median_ns * 1.35);
        assert_string_equal(s.last.node, "node-1");
        assert_string_equal(s.last.cause, "host_compute");
        assert_string_equal(s.last.tier, "ebpf");
        sim_done(&s);
    }
}

static void born_slow_is_named(void **state)
{
    (void)state;
    struct sim s;
    sim_init(&s, 4, 3);
    s.slow[2] = 1.3;
    assert_true(sim_run(&s, 2));
    assert_int_equal(s.status.state, LTN_GROUP_WARM_UP);
    assert_true(sim_run(&s, 6));
    assert_named(&s, 1 << 2);
    sim_done(&s);
}

static void small_effects_and_single_pauses_are_nothing(void **state)
{
    (void)state;
    struct sim s;
    sim_init(&s, 8, 11);
    assert_true(sim_run(&s, 10));
    s.slow[3] = 1.05;
    assert_true(sim_run(&s, 30));
    s.slow[3] = 1;
    for (int i = 0; i < 10; i++) {
        s.slow[5] = 3;
        assert_true(sim_run(&s, 3));
        s.slow[5] = 1;
        assert_true(sim_run(&s, 9));
    }
    assert_int_equal(s.opened, 0);
    sim_done(&s);
}

static void an_effect_inside_the_noise_is_nothing(void **state)
{
    (void)state;
    struct sim s;
    sim_init(&s, 8, 13);
    s.noise = 0.15;
    s.slow[0] = 1.12;
    assert_true(sim_run(&s, 300));
    assert_int_equal(s.opened, 0);
    sim_done(&s);
}

static void pauses_shared_by_all_are_nothing(void **state)
{
    (void)state;
    struct sim s;
    sim_init(&s, 8, 17);
    assert_true(sim_run(&s, 15));
    for (size_t i = 0; i < 8; i++)
        s.slow[i] = 1.5;
    assert_true(sim_run(&s, 10));
    assert_int_equal(s.opened, 0);
    assert_int_equal(s.status.state, LTN_GROUP_JOB_WIDE);
    assert_true(s.status.effect_pct > 35 && s.status.effect_pct < 60);
    sim_done(&s);
}

static void closes_after_five_clean_windows_and_opens_again(void **state)
{
    (void)state;
    struct sim s;
    sim_init(&s, 4, 19);
    s.noise = 0.005;
    assert_true(sim_run(&s, 5));
    s.slow[0] = 1.4;
    assert_true(sim_run(&s, 10));
    assert_int_equal(s.opened, 1);
    uint64_t since = s.last.since_ns;
    assert_int_equal(s.last.opened_at_ns - since, 3 * SIM_WINDOW_NS);
    assert_int_equal(s.last.windows, 10);
    s.slow[0] = 1;
    assert_true(sim_run(&s, 4));
    assert_int_equal(s.closed, 0);
    assert_true(sim_run(&s, 1));
    assert_int_equal(s.closed, 1);
    assert_string_equal(s.last.close_reason, "recovered");
    assert_int_equal(s.last.closed_at_ns, s.end_ns);
    assert_true(sim_run(&s, 10));
    s.slow[0] = 1.4;
    assert_true(sim_run(&s, 5));
    assert_int_equal(s.opened, 2);
    sim_done(&s);
}

static void a_pause_in_the_fault_does_not_close_it(void **state)
{
    (void)state;
    struct sim s;
    sim_init(&s, 4, 23);
    assert_true(sim_run(&s, 5));
    for (int i = 0; i < 6; i++) {
        s.slow[0] = 1.4;
        assert_true(sim_run(&s, 6));
        s.slow[0] = 1;
        assert_true(sim_run(&s, 4));
    }
    assert_int_equal(s.opened, 1);
    assert_int_equal(s.closed, 0);
    sim_done(&s);
}

static void missing_is_not_slow(void **state)
{
    (void)state;
    struct sim s;
    sim_init(&s, 8, 29);
    assert_true(sim_run(&s, 5));
    s.slow[0] = 1.4;
    for (size_t i = 2; i < 8; i++)
        s.absent[i] = true; /* 2 of 8: under 60 % */
    assert_true(sim_run(&s, 20));
    assert_int_equal(s.opened, 0);
    assert_int_equal(s.status.state, LTN_GROUP_PEERS_ABSENT);
    for (size_t i = 2; i < 6; i++)
        s.absent[i] = false;
    s.absent[0] = true; /* the slow one itself is away */
    assert_true(sim_run(&s, 20));
    assert_int_equal(s.opened, 0);
    s.absent[0] = false;
    assert_true(sim_run(&s, 6));
    assert_named(&s, 1);
    sim_done(&s);
}

static void low_coverage_abstains_and_says_so(void **state)
{
    (void)state;
    struct sim s;
    sim_init(&s, 4, 31);
    assert_true(sim_run(&s, 5));
    s.slow[0] = 1.5;
    for (size_t i = 0; i < 4; i++)
        s.coverage[i] = 0.5;
    assert_true(sim_run(&s, 10));
    assert_int_equal(s.opened, 0);
    assert_int_equal(s.status.state, LTN_GROUP_LOW_COVERAGE);
    assert_true(s.status.note[0] != '\0');
    sim_done(&s);
}

static void a_cohort_is_not_a_straggler(void **state)
{
    (void)state;
    struct sim s;
    sim_init(&s, 8, 37);
    assert_true(sim_run(&s, 10));
    s.slow[0] = s.slow[3] = s.slow[5] = 1.3;
    assert_true(sim_run(&s, 10));
    assert_int_equal(s.opened, 0);
    assert_int_equal(s.status.state, LTN_GROUP_COHORT);
    assert_true(s.status.effect_pct > 20 && s.status.effect_pct < 40);
    sim_done(&s);
}

static void both_ranks_of_one_node_are_one_straggling_node(void **state)
{
    (void)state;
    struct sim s;
    sim_init(&s, 8, 41);
    s.ranks_per_node = 2;
    assert_true(sim_run(&s, 10));
    s.slow[2] = s.slow[3] = 1.4; /* node-1 */
    assert_true(sim_run(&s, 10));
    assert_named(&s, 3 << 2);
    sim_done(&s);
}

static void a_pair_is_told_by_its_past_only(void **state)
{
    (void)state;
    struct sim s;
    sim_init(&s, 2, 43);
    s.slow[1] = 1.4; /* born slow: which of the two is off cannot be known */
    assert_true(sim_run(&s, 40));
    assert_int_equal(s.opened, 0);
    assert_int_equal(s.status.state, LTN_GROUP_CANNOT_TELL);
    sim_done(&s);

    sim_init(&s, 2, 44);
    assert_true(sim_run(&s, 25));
    s.slow[0] = 1.4;
    assert_true(sim_run(&s, 6));
    assert_named(&s, 1);
    assert_int_equal(s.last.method, LTN_METHOD_OWN_HISTORY);
    assert_true(s.last.effect_pct > 30 && s.last.effect_pct < 50);
    sim_done(&s);

    sim_init(&s, 2, 45);
    assert_true(sim_run(&s, 25));
    s.slow[0] = s.slow[1] = 1.4; /* both alike: the job, not a rank */
    assert_true(sim_run(&s, 10));
    assert_int_equal(s.opened, 0);
    assert_int_equal(s.status.state, LTN_GROUP_JOB_WIDE);
    sim_done(&s);
}

static void causes(void **state)
{
    (void)state;
    static const struct {
        enum ltn_part part;
        double share;
        const char *preemptor;
        const char *cause;
        const char *detail; /* must be in it */
    } cases[] = {
        {LTN_PART_RUN_QUEUE, 1.0, "logrotate", "cpu_contention", "`logrotate` held"},
        {LTN_PART_RUN_QUEUE, 0.9, "logrotate", "cpu_contention", "`logrotate` held"},
        {LTN_PART_RUN_QUEUE, 1.0, NULL, "cpu_contention", "not seen"},
        {LTN_PART_RUN_QUEUE, 0.5, "logrotate", "unattributed", "run_queue"},
        {LTN_PART_READ, 1.0, NULL, "data_loader", "blocked in read on input"},
        {LTN_PART_DISK, 1.0, NULL, "disk_io", "disk"},
        {LTN_PART_FUTEX, 1.0, NULL, "blocked_futex", "lock"},
        {LTN_PART_POLL, 1.0, NULL, "blocked_poll", "poll"},
        {LTN_PART_SLEEP, 1.0, NULL, "blocked_sleep", "sleeping"},
        {LTN_PART_ON_CPU, 1.0, NULL, "host_compute", "computes"},
        {LTN_PART_DEVICE, 1.0, NULL, "device", "device"},
        {LTN_PART_OTHER, 1.0, NULL, "unattributed", "other"},
    };
    for (size_t k = 0; k < LTN_ARRAY_SIZE(cases); k++) {
        struct sim s;
        sim_init(&s, 4, 100 + k);
        s.noise = 0.01;
        s.part = cases[k].part;
        s.part_share = cases[k].share;
        s.preemptor = cases[k].preemptor;
        s.slow[3] = 1.6;
        assert_true(sim_run(&s, 8));
        assert_named(&s, 1 << 3);
        assert_string_equal(s.last.cause, cases[k].cause);
        assert_non_null(strstr(s.last.cause_detail, cases[k].detail));
        if (strcmp(cases[k].cause, "unattributed") == 0)
            assert_true(s.last.explained_share < 0.8);
        else
            assert_true(s.last.explained_share >= 0.8 && s.last.explained_share <= 1);
        sim_done(&s);
    }
}

static void throttled(struct sim *s, size_t rank, double clock, uint64_t bits)
{
    s->clock[rank] = clock;
    s->bits[rank] = bits;
}

static void a_slow_gpu_is_named_and_its_victims_are_not(void **state)
{
    (void)state;
    for (size_t n = 2; n <= 64; n *= 2) {
        struct sim s;
        sim_init(&s, n, 50 + n);
        assert_true(sim_run(&s, 10));
        throttled(&s, 1, 0.6, 0x40 | 0x8);
        assert_true(sim_run(&s, 8));
        assert_int_equal(s.opened, 1);
        assert_named(&s, 1 << 1);
        assert_string_equal(s.last.cause, "gpu_clock");
        assert_string_equal(s.last.tier, "nvml");
        assert_int_equal(s.last.method, LTN_METHOD_GPU_CLOCK);
        assert_true(fabs(s.last.effect_pct - 66.7) < 1);
        assert_true(s.last.explained_share >= 0.8);
        assert_true(s.last.impact_share > 0.15 && s.last.impact_share < 0.35);
        assert_true(s.last.gpu_hours_lost > 0);
        assert_non_null(strstr(s.last.cause_detail, "hardware thermal"));
        throttled(&s, 1, 1, 0);
        assert_true(sim_run(&s, 5));
        assert_int_equal(s.closed, 1);
        sim_done(&s);
    }
}

static void a_low_clock_without_reason_or_cost_is_nothing(void **state)
{
    (void)state;
    struct sim s;
    sim_init(&s, 4, 61);
    assert_true(sim_run(&s, 10));
    throttled(&s, 1, 0.3, 0x1); /* idle */
    assert_true(sim_run(&s, 10));
    throttled(&s, 1, 0.3, 0x2); /* clocks set by an administrator */
    assert_true(sim_run(&s, 10));
    for (size_t i = 0; i < 4; i++)
        throttled(&s, i, 0.7, 0x4); /* all alike under the power cap */
    assert_true(sim_run(&s, 10));
    assert_int_equal(s.opened, 0);
    sim_done(&s);

    sim_init(&s, 4, 62);
    s.device_ns = 0.01e6; /* the GPU hardly matters: the step does not grow */
    assert_true(sim_run(&s, 10));
    throttled(&s, 1, 0.6, 0x40);
    assert_true(sim_run(&s, 20));
    assert_int_equal(s.opened, 0);
    sim_done(&s);
}

static void a_gpu_slow_from_the_start_is_named_without_a_share(void **state)
{
    (void)state;
    struct sim s;
    sim_init(&s, 4, 63);
    throttled(&s, 2, 0.7, 0x20);
    assert_true(sim_run(&s, 8));
    assert_named(&s, 1 << 2);
    assert_string_equal(s.last.cause, "gpu_clock");
    assert_true(s.last.explained_share < 0);
    sim_done(&s);
}

static void a_throttled_bystander_of_a_slow_host_is_not_blamed(void **state)
{
    (void)state;
    struct sim s;
    sim_init(&s, 8, 64);
    s.part = LTN_PART_RUN_QUEUE;
    s.preemptor = "hog";
    assert_true(sim_run(&s, 10));
    s.slow[5] = 4;              /* +150 ms */
    throttled(&s, 1, 0.9, 0x4); /* would cost 7 ms */
    assert_true(sim_run(&s, 10));
    assert_named(&s, 1 << 5);
    assert_string_equal(s.last.cause, "cpu_contention");
    sim_done(&s);
}

static void cost_is_what_the_others_wait(void **state)
{
    (void)state;
    struct sim s;
    sim_init(&s, 8, 71);
    s.noise = 0;
    assert_true(sim_run(&s, 5));
    s.slow[0] = 2; /* 100 of 160 ms; the next slowest 50 */
    assert_true(sim_run(&s, 36));
    assert_true(fabs(s.last.impact_share - 50.0 / 160.0) < 1e-6);
    double hours = 36 * 10.0 / 3600 * 8 * 50 / 160;
    assert_true(fabs(s.last.gpu_hours_lost - hours) < 1e-6);
    sim_done(&s);
}

static void restored_verdicts_go_on(void **state)
{
    (void)state;
    struct sim s;
    sim_init(&s, 4, 73);
    s.slow[1] = 1.5;
    assert_true(sim_run(&s, 10));
    struct ltn_straggler_verdict v = s.last;
    ltn_straggler_free(s.det);
    s.det = ltn_straggler_new(NULL);
    assert_int_equal(ltn_straggler_restore(s.det, &v), 0);
    assert_int_equal(ltn_straggler_restore(s.det, &v), 0);
    assert_true(sim_run(&s, 6));
    assert_int_equal(s.opened, 1);
    assert_true(s.last.gpu_hours_lost > v.gpu_hours_lost);
    assert_int_equal(s.last.opened_at_ns, v.opened_at_ns);
    s.slow[1] = 1;
    assert_true(sim_run(&s, 6));
    assert_int_equal(s.closed, 1);
    sim_done(&s);
}

static void forgetting_closes(void **state)
{
    (void)state;
    struct sim s;
    sim_init(&s, 4, 79);
    s.slow[1] = 1.5;
    assert_true(sim_run(&s, 10));
    ltn_straggler_forget(s.det, "job", "g", "0", s.end_ns, sim_event, &s);
    assert_int_equal(s.closed, 0);
    ltn_straggler_forget(s.det, "job", "nobody", NULL, s.end_ns, sim_event, &s);
    ltn_straggler_forget(s.det, "job", "g", NULL, s.end_ns + 1, sim_event, &s);
    assert_int_equal(s.closed, 1);
    assert_string_equal(s.last.close_reason, "gone");
    size_t groups = 9, members = 9;
    ltn_straggler_sizes(s.det, &groups, &members);
    assert_int_equal(groups + members, 0);
    sim_done(&s);
}

static void a_new_process_in_the_place_warms_up(void **state)
{
    (void)state;
    struct sim s;
    sim_init(&s, 4, 83);
    assert_true(sim_run(&s, 10));
    struct ltn_straggler_member m[SIM_MAX];
    for (int i = 0; i < 5; i++) {
        s.end_ns += SIM_WINDOW_NS;
        s.slow[1] = i < 2 ? 5 : 1; /* start-up of the new process */
        size_t n = sim_members(&s, m);
        m[1].incarnation = 2;
        struct ltn_straggler_window w = {"job", "g", s.end_ns, SIM_WINDOW_NS, 4, 4, m, n};
        assert_int_equal(ltn_straggler_feed(s.det, &w, sim_event, &s, &s.status), 0);
        assert_int_equal(s.status.used, i < 2 ? 3 : 4);
    }
    assert_int_equal(s.opened, 0);
    sim_done(&s);
}

static void hostile_windows_are_refused_or_harmless(void **state)
{
    (void)state;
    struct sim s;
    sim_init(&s, 4, 89);
    assert_true(sim_run(&s, 5));
    struct ltn_straggler_member m[SIM_MAX];
    size_t n = sim_members(&s, m);
    m[0].self_ns = (double)NAN;
    m[1].self_ns = (double)INFINITY;
    m[2].self_ns = -5;
    m[3].coverage = (double)NAN;
    s.end_ns += SIM_WINDOW_NS;
    struct ltn_straggler_window w = {"job", "g", s.end_ns, SIM_WINDOW_NS, 4, 4, m, n};
    assert_int_equal(ltn_straggler_feed(s.det, &w, sim_event, &s, &s.status), 0);
    assert_int_equal(s.status.used, 0);
    assert_int_equal(ltn_straggler_feed(s.det, &w, sim_event, &s, NULL), -EINVAL); /* time */
    n = sim_members(&s, m);
    memcpy(m[1].key, m[0].key, sizeof(m[0].key));
    w.end_ns += SIM_WINDOW_NS;
    assert_int_equal(ltn_straggler_feed(s.det, &w, sim_event, &s, NULL), -EINVAL);
    w.length_ns = 0;
    assert_int_equal(ltn_straggler_feed(s.det, &w, sim_event, &s, NULL), -EINVAL);
    sim_done(&s);

    struct ltn_straggler_opts o;
    ltn_straggler_opts_default(&o);
    o.max_groups = 1;
    struct ltn_straggler *det = ltn_straggler_new(&o);
    w = (struct ltn_straggler_window){"a", "g", 1, 1, 0, 0, NULL, 0};
    assert_int_equal(ltn_straggler_feed(det, &w, NULL, NULL, NULL), 0);
    w.job = "b";
    assert_int_equal(ltn_straggler_feed(det, &w, NULL, NULL, NULL), LTN_ERR_COUNT);
    ltn_straggler_free(det);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_the_slow_one_at_every_size),
        cmocka_unit_test(born_slow_is_named),
        cmocka_unit_test(small_effects_and_single_pauses_are_nothing),
        cmocka_unit_test(an_effect_inside_the_noise_is_nothing),
        cmocka_unit_test(pauses_shared_by_all_are_nothing),
        cmocka_unit_test(closes_after_five_clean_windows_and_opens_again),
        cmocka_unit_test(a_pause_in_the_fault_does_not_close_it),
        cmocka_unit_test(missing_is_not_slow),
        cmocka_unit_test(low_coverage_abstains_and_says_so),
        cmocka_unit_test(a_cohort_is_not_a_straggler),
        cmocka_unit_test(both_ranks_of_one_node_are_one_straggling_node),
        cmocka_unit_test(a_pair_is_told_by_its_past_only),
        cmocka_unit_test(causes),
        cmocka_unit_test(a_slow_gpu_is_named_and_its_victims_are_not),
        cmocka_unit_test(a_low_clock_without_reason_or_cost_is_nothing),
        cmocka_unit_test(a_gpu_slow_from_the_start_is_named_without_a_share),
        cmocka_unit_test(a_throttled_bystander_of_a_slow_host_is_not_blamed),
        cmocka_unit_test(cost_is_what_the_others_wait),
        cmocka_unit_test(restored_verdicts_go_on),
        cmocka_unit_test(forgetting_closes),
        cmocka_unit_test(a_new_process_in_the_place_warms_up),
        cmocka_unit_test(hostile_windows_are_refused_or_harmless),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
