/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives that do not end: who is told, who waits, and what only takes long. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "causal_sim.h"

/* From now on the rank sits in a sync, in the operation that was the next one. */
static void wait_in_sync(struct sim_node *n, size_t i)
{
    n->stuck[i] = (struct ltn_stuck_call){.since_ns = n->window.end_ns,
                                          .op = LTN_OP_ID_CUDA_STREAM_SYNCHRONIZE};
    n->procs[i].stuck_count = 1;
    n->procs[i].has_host = false;
    n->op[i].calls = 0;
    n->comms[i].sequence_total = 1001;
}

/* The rank does nothing any more that is seen. */
static void stop(struct sim_node *n, size_t i)
{
    n->stuck[i].op = LTN_OP_ID_CUDA_LAUNCH_KERNEL; /* no CPU time either, see sim_windows */
    n->procs[i].stuck_count = 0;
    n->procs[i].has_host = false;
    n->op[i].calls = 0;
}

static void test_the_rank_that_has_not_entered_is_named(void **state)
{
    (void)state;
    struct sim_node *n = sim_new(4, (struct ltn_causal_opts){0});
    sim_windows(n, 6);
    stop(n, 2);
    wait_in_sync(n, 0);
    wait_in_sync(n, 1);
    wait_in_sync(n, 3);
    sim_windows(n, 2);
    assert_int_equal(n->change_count, 0); /* 20 s */
    sim_windows(n, 1);
    const struct sim_change *c = sim_find(n, LTN_CAUSAL_HANG, "open");
    assert_non_null(c);
    assert_int_equal(n->change_count, 1);
    assert_int_equal(c->pid, 102);
    assert_int_equal(c->severity, LTN_CAUSAL_CRITICAL);
    assert_string_equal(c->cause, "rank 2 has not entered the collective");
    assert_non_null(strstr(c->title, "3 of 4 ranks here wait for 30 s in operation 1001"));
    assert_non_null(strstr(c->evidence, "\"inside\":\"cudaStreamSynchronize\""));
    sim_free(n);
}

static void test_a_checkpoint_is_no_hang(void **state)
{
    (void)state;
    struct sim_node *n = sim_new(4, (struct ltn_causal_opts){0});
    sim_windows(n, 6);
    stop(n, 2);
    wait_in_sync(n, 0);
    wait_in_sync(n, 1);
    wait_in_sync(n, 3);
    for (int i = 0; i < 12; i++) { /* two minutes of writing a file */
        n->procs[2].io_total_bytes += 1ULL << 30;
        sim_windows(n, 1);
    }
    assert_int_equal(n->change_count, 0);
    for (int i = 0; i < 19; i++) { /* nobody writes that long */
        n->procs[2].io_total_bytes += 1ULL << 30;
        sim_windows(n, 1);
    }
    assert_non_null(sim_find(n, LTN_CAUSAL_HANG, "open"));
    sim_free(n);
}

static void test_a_compiling_rank_is_no_hang(void **state)
{
    (void)state;
    struct sim_node *n = sim_new(2, (struct ltn_causal_opts){0});
    sim_windows(n, 6);
    wait_in_sync(n, 0);
    n->procs[1].has_host = false;
    n->op[1].calls = 0; /* its CPU time goes on */
    sim_windows(n, 12);
    assert_int_equal(n->change_count, 0);
    sim_free(n);
}

static void test_long_steps_give_patience(void **state)
{
    (void)state;
    struct sim_node *n = sim_new(2, (struct ltn_causal_opts){0});
    n->procs[0].host.step_ns = n->procs[1].host.step_ns = 12.0 * (double)SIM_S;
    sim_windows(n, 6);
    stop(n, 1);
    wait_in_sync(n, 0);
    sim_windows(n, 11); /* 110 s, below ten steps */
    assert_int_equal(n->change_count, 0);
    sim_windows(n, 1);
    assert_non_null(sim_find(n, LTN_CAUSAL_HANG, "open"));
    sim_free(n);
}

static void test_the_threshold_is_an_option(void **state)
{
    (void)state;
    struct sim_node *n = sim_new(2, (struct ltn_causal_opts){.hang_ns = 300 * SIM_S});
    sim_windows(n, 6);
    stop(n, 1);
    wait_in_sync(n, 0);
    sim_windows(n, 29);
    assert_int_equal(n->change_count, 0);
    sim_windows(n, 1);
    assert_non_null(sim_find(n, LTN_CAUSAL_HANG, "open"));
    sim_free(n);
}

static void test_everybody_in_one_long_step_is_no_hang(void **state)
{
    (void)state;
    struct sim_node *n = sim_new(2, (struct ltn_causal_opts){0});
    sim_windows(n, 6);
    wait_in_sync(n, 0);
    wait_in_sync(n, 1);
    sim_windows(n, 9); /* 90 s */
    assert_int_equal(n->change_count, 0);
    n->procs[0].stuck_count = n->procs[1].stuck_count = 0;
    sim_windows(n, 3);
    assert_int_equal(n->change_count, 0);
    sim_free(n);
}

static void test_when_nobody_here_is_behind_nobody_here_is_blamed(void **state)
{
    (void)state;
    struct sim_node *n = sim_new(2, (struct ltn_causal_opts){0});
    n->comms[0].ranks = n->comms[1].ranks = 16;
    sim_windows(n, 6);
    wait_in_sync(n, 0);
    wait_in_sync(n, 1);
    sim_windows(n, 12);
    const struct sim_change *c = sim_find(n, LTN_CAUSAL_HANG, "open");
    assert_non_null(c);
    assert_int_equal(c->pid, 0);
    assert_string_equal(c->cause, "");
    assert_true(c->share < 0);
    assert_non_null(strstr(c->title, "not on this node"));
    sim_free(n);
}

static void test_a_rank_that_died_is_named(void **state)
{
    (void)state;
    struct sim_node *n = sim_new(3, (struct ltn_causal_opts){0});
    sim_windows(n, 6);
    wait_in_sync(n, 0);
    wait_in_sync(n, 1);
    n->procs[2].ended = true;
    sim_windows(n, 1);
    n->window.proc_count = 2;
    sim_windows(n, 2);
    const struct sim_change *c = sim_find(n, LTN_CAUSAL_HANG, "open");
    assert_non_null(c);
    assert_string_equal(c->cause, "rank 2 has ended");
    sim_free(n);
}

static void test_it_closes_when_it_goes_on(void **state)
{
    (void)state;
    struct sim_node *n = sim_new(2, (struct ltn_causal_opts){0});
    sim_windows(n, 6);
    stop(n, 1);
    wait_in_sync(n, 0);
    sim_windows(n, 5);
    n->procs[0].stuck_count = 0;
    n->comms[1].sequence_total = 1001;
    sim_windows(n, 2);
    const struct sim_change *c = sim_find(n, LTN_CAUSAL_HANG, "closed");
    assert_non_null(c);
    assert_int_equal(c->count, 3);
    sim_free(n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_rank_that_has_not_entered_is_named),
        cmocka_unit_test(test_a_checkpoint_is_no_hang),
        cmocka_unit_test(test_a_compiling_rank_is_no_hang),
        cmocka_unit_test(test_long_steps_give_patience),
        cmocka_unit_test(test_the_threshold_is_an_option),
        cmocka_unit_test(test_everybody_in_one_long_step_is_no_hang),
        cmocka_unit_test(test_when_nobody_here_is_behind_nobody_here_is_blamed),
        cmocka_unit_test(test_a_rank_that_died_is_named),
        cmocka_unit_test(test_it_closes_when_it_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
