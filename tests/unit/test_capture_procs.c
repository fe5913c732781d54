/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/attr.h"
#include "capture/build.h"
#include "capture/procs.h"

#define OP LTN_OP_ID_CUDA_LAUNCH_KERNEL

static int setup(void **state)
{
    static struct ltn_procs table;
    ltn_procs_init(&table, 16, "n0");
    *state = &table;
    return 0;
}

static int teardown(void **state)
{
    ltn_procs_done(*state);
    return 0;
}

static struct ltn_op_stats reading(uint64_t calls, uint32_t in_bucket)
{
    static struct ltn_op_stats s;
    memset(&s, 0, sizeof(s));
    s.calls = calls;
    s.returns = in_bucket;
    s.duration_ns = calls * 1000;
    s.hist[100] = in_bucket;
    return s;
}

/* Builds the window and returns the only op of the only process in it. */
static struct ltn_window *window(struct ltn_procs *t, struct ltn_op_window *ret)
{
    struct ltn_window *w = ltn_window_build(t, NULL, NULL, 1000, 2000);
    assert_non_null(w);
    assert_int_equal(w->proc_count, 1);
    assert_int_equal(w->procs[0].op_count, 1);
    *ret = w->procs[0].ops[0];
    return w;
}

static void windows_hold_differences_and_totals(void **state)
{
    struct ltn_procs *t = *state;
    const struct ltn_op_key key = {.tgid = (uint32_t)getpid(), .op = OP};
    struct ltn_op_window op;
    struct ltn_op_stats s = reading(10, 9);
    ltn_procs_read_op(t, &key, &s);
    struct ltn_window *w = window(t, &op);
    assert_int_equal(w->procs[0].pid, getpid());
    assert_int_equal(op.calls, 10);
    assert_int_equal(op.returns, 9);
    assert_int_equal(op.hist[100], 9);
    ltn_window_free(w);
    ltn_procs_turn(t);

    s = reading(25, 25);
    ltn_procs_read_op(t, &key, &s);
    w = window(t, &op);
    assert_int_equal(op.calls, 15);
    assert_int_equal(op.calls_total, 25);
    assert_int_equal(op.hist[100], 16);
    assert_int_equal(op.hist_total[100], 25);
    assert_int_equal(op.duration_ns, 15000);
    ltn_window_free(w);
}

static void the_histogram_may_wrap(void **state)
{
    struct ltn_procs *t = *state;
    const struct ltn_op_key key = {.tgid = (uint32_t)getpid(), .op = OP};
    struct ltn_op_window op;
    struct ltn_op_stats s = reading(1, UINT32_MAX - 4);
    ltn_procs_read_op(t, &key, &s);
    ltn_procs_turn(t);
    s = reading(2, 5);
    ltn_procs_read_op(t, &key, &s);
    struct ltn_window *w = window(t, &op);
    assert_int_equal(op.hist[100], 10);
    assert_true(op.hist_total[100] == (uint64_t)UINT32_MAX + 6);
    ltn_window_free(w);
}

static void half_written_threads_are_left_for_the_next_window(void **state)
{
    struct ltn_procs *t = *state;
    struct ltn_thread_stats s = {.tgid = (uint32_t)getpid(), .tid = 7, .begin = 3, .end = 2};
    ltn_procs_read_thread(t, &s);
    const struct ltn_cap_proc *p = ltn_procs_find(t, (uint32_t)getpid());
    assert_non_null(p);
    assert_int_equal(p->threads[0].now.begin, 0);
    ltn_procs_turn(t);
    s.end = 3;
    ltn_procs_read_thread(t, &s);
    assert_int_equal(p->thread_count, 1);
    assert_int_equal(p->threads[0].now.begin, 3);
}

static void what_the_kernel_no_longer_has_is_let_go(void **state)
{
    struct ltn_procs *t = *state;
    const uint32_t tgid = (uint32_t)getpid();
    for (int round = 0; round < 3; round++) {
        for (uint32_t i = 0; i < 9; i++) {
            struct ltn_thread_stats s = {.tgid = tgid, .tid = 100 + i};
            if (round < 2 || i % 2 == 0) {
                ltn_procs_read_thread(t, &s);
            }
        }
        ltn_procs_turn(t);
    }
    const struct ltn_cap_proc *p = ltn_procs_find(t, tgid);
    assert_int_equal(p->thread_count, 5);
    assert_int_equal(p->threads[4].tid, 108);
    ltn_procs_turn(t);
    assert_int_equal(p->thread_count, 0);
}

static void an_address_used_again_is_a_new_communicator(void **state)
{
    struct ltn_procs *t = *state;
    const struct ltn_comm_key key = {.comm = 0x1000, .tgid = (uint32_t)getpid()};
    struct ltn_comm_state s = {.comm_id = 5, .sequence = 100, .rank = 0, .ranks = 2};
    ltn_procs_read_comm(t, &key, &s);
    ltn_procs_turn(t);
    s = (struct ltn_comm_state){.comm_id = 6, .sequence = 4, .rank = 1, .ranks = 2};
    ltn_procs_read_comm(t, &key, &s);
    struct ltn_window *w = ltn_window_build(t, NULL, NULL, 0, 1);
    assert_non_null(w);
    assert_int_equal(w->procs[0].comm_count, 1);
    assert_int_equal(w->procs[0].comms[0].comm_id, 6);
    assert_int_equal(w->procs[0].comms[0].collectives, 4);
    ltn_window_free(w);
}

static void an_ended_communicator_goes_on_under_its_other_key_and_is_told_once(void **state)
{
    struct ltn_procs *t = *state;
    const uint32_t tgid = (uint32_t)getpid();
    const struct ltn_comm_key live = {.comm = 0x1000, .tgid = tgid};
    const struct ltn_comm_key ended = {.comm = 5, .tgid = tgid, .ended = 3};
    struct ltn_comm_state s = {.comm_id = 5, .sequence = 100, .rank = 1, .ranks = 2};
    ltn_procs_read_comm(t, &live, &s);
    ltn_procs_turn(t);
    s.sequence = 103;
    ltn_procs_read_comm(t, &ended, &s);
    const struct ltn_comm_state other = {.comm_id = 5, .sequence = 7, .rank = 0, .ranks = 2};
    ltn_procs_read_comm(t, &live, &other);
    struct ltn_window *w = ltn_window_build(t, NULL, NULL, 0, 1);
    assert_non_null(w);
    assert_int_equal(w->procs[0].comm_count, 2);
    assert_int_equal(w->procs[0].comms[0].sequence_total, 103);
    assert_int_equal(w->procs[0].comms[0].collectives, 3);
    assert_int_equal(w->procs[0].comms[1].collectives, 7);
    ltn_window_free(w);
    ltn_procs_turn(t);
    w = ltn_window_build(t, NULL, NULL, 0, 1);
    assert_non_null(w);
    assert_int_equal(w->procs[0].comm_count, 0);
    ltn_window_free(w);
}

static void the_longest_preemptors_come_first(void **state)
{
    struct ltn_procs *t = *state;
    const uint32_t tgid = (uint32_t)getpid();
    struct ltn_thread_stats s = {.tgid = tgid, .tid = 7};
    ltn_procs_read_thread(t, &s);
    for (uint32_t i = 1; i <= 6; i++) {
        const struct ltn_preemptor_key key = {.tgid = tgid, .tid = 7, .by_tgid = i};
        struct ltn_preemptor_stats p = {.waited_ns = i * 100, .times = 1};
        memcpy(p.by_comm, "hog", 4);
        ltn_procs_read_preemptor(t, &key, &p);
    }
    /* What another thread of the process waited is no delay of this one. */
    const struct ltn_preemptor_key other = {.tgid = tgid, .tid = 8, .by_tgid = 9};
    ltn_procs_read_preemptor(t, &other, &(struct ltn_preemptor_stats){.waited_ns = 5000});
    s = (struct ltn_thread_stats){
        .tgid = tgid, .tid = 7, .peer_syncs = 2, .segment_ns = 10, .peer_wait_ns = 10};
    ltn_procs_read_thread(t, &s);
    struct ltn_window *w = ltn_window_build(t, NULL, NULL, 0, 1000);
    assert_non_null(w);
    assert_true(w->procs[0].is_rank);
    const struct ltn_preemptor *p = w->procs[0].rank_window.preemptors;
    assert_int_equal(p[0].tgid, 6);
    assert_int_equal(p[1].tgid, 5);
    assert_int_equal(p[LTN_PREEMPTORS - 1].tgid, 3);
    assert_string_equal(p[0].comm, "hog");
    ltn_window_free(w);
}

static void the_ceiling_on_processes_is_counted(void **state)
{
    struct ltn_procs *t = *state;
    for (uint32_t i = 0; i < 20; i++) {
        (void)ltn_procs_get(t, 4000000 + i);
    }
    assert_int_equal(t->by_tgid.len, 16);
    assert_int_equal(t->refused, 4);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

/* A process known from the kernel's record only is the one that /proc told of elsewhere. */
static void a_short_process_has_the_start_that_proc_says(void **state)
{
    (void)state;
    struct ltn_proc here;
    assert_int_equal(ltn_proc_read(getpid(), &here), 0);
    const uint64_t tick_ns = LTN_NS_PER_S / (uint64_t)sysconf(_SC_CLK_TCK);
    const struct ltn_event_process e = {.start_boottime_ns = here.start_ticks * tick_ns + 123,
                                        .comm = "short"};
    struct ltn_cap_proc p = {.tgid = (uint32_t)getpid()};
    ltn_procs_told(&p, &e);
    assert_true(p.identified);
    assert_true(p.id.start_ticks == here.start_ticks);
    assert_true(p.id.start_unix_ns == here.start_unix_ns);
    assert_string_equal(p.id.comm, "short");
}

/* /proc may have been read in the instant before an exec; the record of another life says nothing.
 */
static void the_kernel_has_the_last_word_on_a_name(void **state)
{
    (void)state;
    struct ltn_cap_proc p = {.tgid = (uint32_t)getpid()};
    assert_int_equal(ltn_proc_read(getpid(), &p.id), 0);
    p.identified = true;
    const uint64_t tick_ns = LTN_NS_PER_S / (uint64_t)sysconf(_SC_CLK_TCK);
    const uint64_t start_ns = p.id.start_ticks * tick_ns + 123;
    const struct ltn_event_process now = {.start_boottime_ns = start_ns, .comm = "renamed"};
    ltn_procs_told(&p, &now);
    assert_string_equal(p.id.comm, "renamed");
    const struct ltn_event_process other = {.start_boottime_ns = start_ns + LTN_NS_PER_S,
                                            .comm = "stranger"};
    const struct ltn_event_process unknown = {.comm = "unknown"};
    ltn_procs_told(&p, &other);
    ltn_procs_told(&p, &unknown);
    assert_string_equal(p.id.comm, "renamed");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(windows_hold_differences_and_totals),
        TEST(the_histogram_may_wrap),
        TEST(half_written_threads_are_left_for_the_next_window),
        TEST(what_the_kernel_no_longer_has_is_let_go),
        TEST(an_address_used_again_is_a_new_communicator),
        TEST(an_ended_communicator_goes_on_under_its_other_key_and_is_told_once),
        TEST(the_longest_preemptors_come_first),
        TEST(the_ceiling_on_processes_is_counted),
        TEST(a_short_process_has_the_start_that_proc_says),
        TEST(the_kernel_has_the_last_word_on_a_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
