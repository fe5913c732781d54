/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/attr.h"
#include "capture/rank_window.h"

#define MS(x) ((uint64_t)((x)*1e6))

static double sum(const double *split)
{
    double s = 0;
    for (int i = 0; i < LTN_SPLITS; i++) {
        s += split[i];
    }
    return s;
}

/* Ten steps of 100 ms: 30 ms on CPU, 5 ms queued, 15 ms in read, 50 ms waiting for peers of which 2
 * ms were spent woken but queued. */
static struct ltn_thread_stats ten_steps(void)
{
    struct ltn_thread_stats t = {
        .tid = 42,
        .syncs = 10,
        .peer_syncs = 10,
        .collectives = 50,
        .segment_ns = MS(500),
        .segment_off_cpu_ns = MS(200),
        .segment_run_queue_ns = MS(50),
        .peer_wait_ns = MS(500),
        .peer_wait_run_queue_ns = MS(20),
        .segment_major_faults = 20,
    };
    t.segment_blocked_ns[LTN_OFF_READ] = MS(150);
    return t;
}

static const struct ltn_steps one_wait = {
    .period = 6, .waits_per_step = 1, .collectives_per_step = 5};

static void self_time_is_the_step_without_waiting_for_peers(void **state)
{
    (void)state;
    const struct ltn_thread_stats before = {0};
    const struct ltn_thread_stats now = ten_steps();
    struct ltn_rank_window w;
    assert_true(ltn_rank_window_fill(&before, &now, &one_wait, MS(1000), &w));
    assert_float_equal(w.steps, 10, 1e-9);
    assert_float_equal(w.step_ns, 100e6, 1);
    assert_float_equal(w.self_ns, 52e6,
                       1); /* 50 ms of host work and the 2 ms it was woken but had no CPU */
    assert_float_equal(w.peer_wait_ns, 48e6, 1);
    assert_float_equal(w.split_ns[LTN_SPLIT_ON_CPU], 30e6, 1);
    assert_float_equal(w.split_ns[LTN_SPLIT_RUN_QUEUE], 7e6, 1);
    assert_float_equal(w.split_ns[LTN_SPLIT_READ], 15e6, 1);
    assert_float_equal(sum(w.split_ns), w.self_ns, 10);
    assert_float_equal(w.major_faults, 2, 1e-9);
    assert_float_equal(w.coverage, 1.0, 1e-9);
    assert_int_equal(w.tid, 42);
}

static void waiting_for_the_own_device_is_self_time(void **state)
{
    (void)state;
    const struct ltn_thread_stats before = {0};
    struct ltn_thread_stats now = ten_steps();
    struct ltn_rank_window w;
    now.device_wait_ns = MS(100);
    now.device_wait_run_queue_ns = MS(10);
    assert_true(ltn_rank_window_fill(&before, &now, &one_wait, MS(2000), &w));
    assert_float_equal(w.self_ns, 62e6, 1);
    assert_float_equal(w.split_ns[LTN_SPLIT_DEVICE], 9e6, 1);
    assert_float_equal(w.split_ns[LTN_SPLIT_RUN_QUEUE], 8e6, 1);
    assert_float_equal(sum(w.split_ns), w.self_ns, 10);
    assert_float_equal(w.coverage, 0.55, 1e-9);
}

static void only_what_lies_between_the_readings_counts(void **state)
{
    (void)state;
    const struct ltn_thread_stats before = ten_steps();
    struct ltn_thread_stats now = ten_steps();
    struct ltn_rank_window w;
    assert_false(ltn_rank_window_fill(&before, &now, &one_wait, MS(1000), &w));
    now.peer_syncs += 4;
    now.segment_ns += MS(40);
    now.peer_wait_ns += MS(400);
    assert_true(ltn_rank_window_fill(&before, &now, &one_wait, MS(1000), &w));
    assert_float_equal(w.steps, 4, 1e-9);
    assert_float_equal(w.self_ns, 10e6, 1);
    assert_float_equal(w.step_ns, 110e6, 1);
}

static void steps_are_counted_by_waits_or_by_collectives(void **state)
{
    (void)state;
    const struct ltn_thread_stats before = {0};
    const struct ltn_thread_stats now = ten_steps();
    const struct ltn_steps two_waits = {
        .period = 4, .waits_per_step = 2, .collectives_per_step = 2};
    const struct ltn_steps no_wait = {.period = 5, .waits_per_step = 0, .collectives_per_step = 5};
    const struct ltn_steps unknown = {0};
    struct ltn_rank_window w;
    assert_true(ltn_rank_window_fill(&before, &now, &two_waits, MS(1000), &w));
    assert_float_equal(w.steps, 5, 1e-9);
    assert_true(ltn_rank_window_fill(&before, &now, &no_wait, MS(1000), &w));
    assert_float_equal(w.steps, 10, 1e-9);
    assert_true(ltn_rank_window_fill(&before, &now, &unknown, MS(1000), &w));
    assert_float_equal(w.steps, 10, 1e-9);
}

static void time_off_the_cpu_without_a_name_goes_to_other(void **state)
{
    (void)state;
    const struct ltn_thread_stats before = {0};
    struct ltn_thread_stats now = ten_steps();
    struct ltn_rank_window w;
    now.segment_blocked_ns[LTN_OFF_READ] = 0;
    assert_true(ltn_rank_window_fill(&before, &now, &one_wait, MS(1000), &w));
    assert_float_equal(w.split_ns[LTN_SPLIT_OTHER], 15e6, 1);
    assert_float_equal(sum(w.split_ns), w.self_ns, 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(self_time_is_the_step_without_waiting_for_peers),
        cmocka_unit_test(waiting_for_the_own_device_is_self_time),
        cmocka_unit_test(only_what_lies_between_the_readings_counts),
        cmocka_unit_test(steps_are_counted_by_waits_or_by_collectives),
        cmocka_unit_test(time_off_the_cpu_without_a_name_goes_to_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
