/* SPDX-License-Identifier: Apache-2.0 */
/* What windows take from /proc and from the table of calls in flight. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/attr.h"
#include "base/clock.h"
#include "capture/build.h"
#include "capture/host_state.h"
#include "capture/procs.h"

static void test_own_activity(void **state)
{
    (void)state;
    uint64_t cpu[2];
    uint64_t io[2];
    ltn_activity_read((uint32_t)getpid(), &cpu[0], &io[0]);
    uint64_t until = ltn_cpu_self_ns() + 50 * LTN_NS_PER_MS;
    while (ltn_cpu_self_ns() < until) {
    }
    int fds[2];
    char block[4096] = {0};
    assert_int_equal(pipe(fds), 0);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(write(fds[1], block, sizeof(block)), sizeof(block));
        assert_int_equal(read(fds[0], block, sizeof(block)), sizeof(block));
    }
    ltn_activity_read((uint32_t)getpid(), &cpu[1], &io[1]);
    uint64_t tick = LTN_NS_PER_S / (uint64_t)sysconf(_SC_CLK_TCK);
    assert_in_range(cpu[1] - cpu[0], 50 * LTN_NS_PER_MS - 2 * tick, LTN_NS_PER_S);
    assert_true(cpu[1] <= ltn_cpu_self_ns() + 2 * tick);
    assert_true(io[0] == 0 || io[1] - io[0] >= 8 * sizeof(block));
    (void)close(fds[0]);
    (void)close(fds[1]);
}

static void test_no_such_process_is_zero(void **state)
{
    (void)state;
    uint64_t cpu = 1;
    uint64_t io = 1;
    ltn_activity_read(UINT32_MAX, &cpu, &io);
    assert_int_equal(cpu, 0);
    assert_int_equal(io, 0);
}

static void test_pressure_is_a_share_of_the_window(void **state)
{
    (void)state;
    struct ltn_pressure p = {0};
    struct ltn_window w = {0};
    ltn_pressure_share(&p, LTN_NS_PER_S, &w);
    assert_true(w.pressure_memory < 0); /* nothing to compare with yet */
    assert_true(w.pressure_io < 0);
    if (!p.known) {
        skip(); /* a kernel without /proc/pressure */
    }
    ltn_pressure_share(&p, LTN_NS_PER_S, &w);
    assert_true(w.pressure_memory >= 0 && w.pressure_memory <= 1);
    p.memory_us -= p.memory_us > 300000 ? 300000 : p.memory_us;
    uint64_t before = p.memory_us;
    ltn_pressure_share(&p, LTN_NS_PER_S, &w);
    assert_true(w.pressure_memory >= (double)(p.memory_us - before) / 1e6 - 1e-9);
    ltn_pressure_share(&p, 1, &w);
    assert_true(w.pressure_memory <= 1);
}

static void test_the_oldest_calls_in_flight_are_kept_for_one_window(void **state)
{
    (void)state;
    struct ltn_procs t;
    ltn_procs_init(&t, 16, "n0");
    uint32_t me = (uint32_t)getpid();
    assert_non_null(ltn_procs_get(&t, me));
    uint64_t now = ltn_now_mono_ns();
    for (uint32_t i = 0; i < 20; i++) {
        /* 1 s, 2 s, ... 20 s ago */
        const struct ltn_in_flight f = {.since_ns = now - (i + 1) * LTN_NS_PER_S,
                                        .tgid = me,
                                        .op = LTN_OP_ID_CUDA_STREAM_SYNCHRONIZE};
        ltn_procs_read_stuck(&t, 100 + i, &f);
    }
    const struct ltn_in_flight stranger = {.tgid = me + 1, .op = 1};
    const struct ltn_in_flight unknown = {.tgid = me, .op = LTN_OP_COUNT};
    ltn_procs_read_stuck(&t, 1, &stranger);
    ltn_procs_read_stuck(&t, 1, &unknown);
    struct ltn_window *w =
        ltn_window_build(&t, NULL, NULL, ltn_now_unix_ns() - LTN_NS_PER_S, ltn_now_unix_ns());
    assert_non_null(w);
    assert_int_equal(w->procs[0].stuck_count, LTN_STUCK_CALLS);
    for (size_t i = 0; i < LTN_STUCK_CALLS; i++) {
        const struct ltn_stuck_call *s = &w->procs[0].stuck[i];
        assert_in_range(s->tid, 112, 119);
        assert_true(w->end_ns - s->since_ns >= 12 * LTN_NS_PER_S);
    }
    ltn_window_free(w);
    ltn_procs_turn(&t);
    w = ltn_window_build(&t, NULL, NULL, 1, 2);
    assert_int_equal(w->procs[0].stuck_count, 0);
    ltn_window_free(w);
    ltn_procs_done(&t);
}

static void test_host_time_of_a_process_without_collectives(void **state)
{
    (void)state;
    struct ltn_procs t;
    ltn_procs_init(&t, 16, "n0");
    uint32_t me = (uint32_t)getpid();
    assert_non_null(ltn_procs_get(&t, me));
    /* 10 waits of 3 ms, before each 5 ms of host time of which 2 ms in the run queue. */
    const struct ltn_thread_stats s = {.tgid = me,
                                       .tid = me,
                                       .syncs = 10,
                                       .segment_ns = 50 * LTN_NS_PER_MS,
                                       .segment_off_cpu_ns = 20 * LTN_NS_PER_MS,
                                       .segment_run_queue_ns = 20 * LTN_NS_PER_MS,
                                       .device_wait_ns = 30 * LTN_NS_PER_MS};
    ltn_procs_read_thread(&t, &s);
    struct ltn_window *w = ltn_window_build(&t, NULL, NULL, 1, 1 + LTN_NS_PER_S);
    assert_non_null(w);
    assert_false(w->procs[0].is_rank);
    assert_true(w->procs[0].has_host);
    const struct ltn_rank_window *h = &w->procs[0].host;
    assert_true(h->steps > 9.99 && h->steps < 10.01);
    assert_true(h->self_ns > 7.99e6 && h->self_ns < 8.01e6);
    assert_true(h->split_ns[LTN_SPLIT_RUN_QUEUE] > 1.99e6);
    assert_true(h->split_ns[LTN_SPLIT_DEVICE] > 2.99e6 && h->split_ns[LTN_SPLIT_ON_CPU] > 2.99e6);
    ltn_window_free(w);
    ltn_procs_done(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_own_activity),
        cmocka_unit_test(test_no_such_process_is_zero),
        cmocka_unit_test(test_pressure_is_a_share_of_the_window),
        cmocka_unit_test(test_the_oldest_calls_in_flight_are_kept_for_one_window),
        cmocka_unit_test(test_host_time_of_a_process_without_collectives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
