/* SPDX-License-Identifier: Apache-2.0 */
/* Errors, allocations, copies, starts and kills: what is told, and what looks alike and is not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "causal_sim.h"

/* ---- errors ---- */

static void failed(struct sim_node *n, unsigned op, int32_t result)
{
    sim_call(n, 0,
             (struct ltn_call){.time_ns = n->window.end_ns + SIM_S,
                               .duration_ns = 1000,
                               .op = (uint16_t)op,
                               .result = result,
                               .flags = LTN_CALL_FAILED});
}

static void test_the_first_error_with_the_calls_before(void **state)
{
    (void)state;
    struct sim_node *n = sim_new(1, (struct ltn_causal_opts){0});
    sim_windows(n, 1);
    for (unsigned i = 0; i < 20; i++) {
        sim_call(n, 0,
                 (struct ltn_call){.time_ns = n->window.end_ns + i,
                                   .duration_ns = 500 + i,
                                   .op = LTN_OP_ID_CUDA_LAUNCH_KERNEL});
    }
    failed(n, LTN_OP_ID_CUDA_STREAM_SYNCHRONIZE, 700);
    for (unsigned i = 0; i < 50; i++) {
        failed(n, LTN_OP_ID_CUDA_LAUNCH_KERNEL, 719); /* what follows from it */
    }
    sim_windows(n, 1);
    assert_int_equal(n->change_count, 1);
    const struct sim_change *c = sim_find(n, LTN_CAUSAL_ERROR, "open");
    assert_non_null(c);
    assert_string_equal(c->cause, "cudaStreamSynchronize: 700 illegal address");
    assert_int_equal(c->count, 51);
    assert_non_null(strstr(c->evidence, "\"duration_ns\":512"));
    assert_null(strstr(c->evidence, "\"duration_ns\":511,"));
    sim_windows(n, 8);
    assert_non_null(sim_find(n, LTN_CAUSAL_ERROR, "closed"));
    sim_free(n);
}

static void test_polls_and_benign_results_are_no_errors(void **state)
{
    (void)state;
    struct sim_node *n = sim_new(1, (struct ltn_causal_opts){0});
    failed(n, LTN_OP_ID_CUDA_STREAM_SYNCHRONIZE, 600); /* not ready */
    failed(n, LTN_OP_ID_NCCL_ALL_REDUCE, 7);           /* in progress */
    failed(n, LTN_OP_ID_CUDA_FREE, 4);                 /* the program ends */
    sim_call(n, 0,
             (struct ltn_call){.op = LTN_OP_ID_CU_MEM_ALLOC,
                               .result = 2,
                               .flags = LTN_CALL_FAILED | LTN_CALL_NESTED});
    sim_windows(n, 3);
    assert_int_equal(n->change_count, 0);
    sim_free(n);
}

static void test_device_memory(void **state)
{
    (void)state;
    struct sim_node *n = sim_new(1, (struct ltn_causal_opts){0});
    sim_call(n, 0,
             (struct ltn_call){.op = LTN_OP_ID_CUDA_MALLOC,
                               .bytes = 3ULL << 30,
                               .result = 2,
                               .flags = LTN_CALL_FAILED});
    sim_windows(n, 1);
    const struct sim_change *c = sim_find(n, LTN_CAUSAL_MEMORY, "open");
    assert_non_null(c);
    assert_non_null(strstr(c->title, "device memory exhausted: cudaMalloc of 3072.0 MiB failed"));
    assert_null(sim_find(n, LTN_CAUSAL_ERROR, "open"));
    sim_free(n);
}

static void test_an_error_of_a_process_that_ends_is_told_and_closed(void **state)
{
    (void)state;
    struct sim_node *n = sim_new(1, (struct ltn_causal_opts){0});
    failed(n, LTN_OP_ID_CUDA_STREAM_SYNCHRONIZE, 719);
    n->procs[0].ended = true;
    sim_windows(n, 1);
    assert_non_null(sim_find(n, LTN_CAUSAL_ERROR, "open"));
    assert_non_null(sim_find(n, LTN_CAUSAL_ERROR, "closed"));
    sim_free(n);
}

static void test_out_of_memory_kill(void **state)
{
    (void)state;
    struct sim_node *n = sim_new(2, (struct ltn_causal_opts){0});
    sim_windows(n, 1);
    n->procs[0].ended = true; /* ends without being killed */
    n->procs[1].ended = true;
    n->procs[1].oom = true;
    sim_windows(n, 1);
    const struct sim_change *c = sim_find(n, LTN_CAUSAL_OOM, "open");
    assert_non_null(c);
    assert_int_equal(c->pid, 101);
    assert_int_equal(c->severity, LTN_CAUSAL_CRITICAL);
    assert_int_equal(ltn_causal_stats(n->causal).opened_total, 1);
    sim_free(n);
}

/* ---- allocations ---- */

static void alloc(struct sim_node *n, uint64_t at_ns, uint64_t duration_ns, uint64_t queued_ns)
{
    sim_call(n, 0,
             (struct ltn_call){.time_ns = n->window.end_ns + at_ns,
                               .duration_ns = duration_ns,
                               .on_cpu_ns = duration_ns - queued_ns,
                               .run_queue_ns = queued_ns,
                               .op = LTN_OP_ID_CUDA_MALLOC});
}

static void usual_allocs(struct sim_node *n, unsigned windows)
{
    for (unsigned w = 0; w < windows; w++) {
        for (unsigned i = 0; i < 20; i++) {
            alloc(n, i * SIM_MS, 50000, 0);
        }
        sim_windows(n, 1);
    }
}

static void test_slow_allocations_and_their_period(void **state)
{
    (void)state;
    struct sim_node *n = sim_new(1, (struct ltn_causal_opts){0});
    usual_allocs(n, 3);
    for (unsigned i = 0; i < 5; i++) {
        alloc(n, i * 2 * SIM_S, 40 * SIM_MS, 0);
    }
    sim_windows(n, 1);
    const struct sim_change *c = sim_find(n, LTN_CAUSAL_ALLOC, "open");
    assert_non_null(c);
    assert_string_equal(c->cause, "allocator calls into the driver");
    assert_non_null(strstr(c->title, "cudaMalloc took 40 ms, 50 µs usual; 5 such calls"));
    assert_non_null(strstr(c->title, "about every 2.0 s"));
    sim_free(n);
}

static void test_random_spikes_have_no_period(void **state)
{
    (void)state;
    static const unsigned at_ms[] = {100, 900, 4100, 4800, 8600};
    struct sim_node *n = sim_new(1, (struct ltn_causal_opts){0});
    usual_allocs(n, 3);
    for (size_t i = 0; i < LTN_ARRAY_SIZE(at_ms); i++) {
        alloc(n, at_ms[i] * SIM_MS, 40 * SIM_MS, 0);
    }
    sim_windows(n, 1);
    const struct sim_change *c = sim_find(n, LTN_CAUSAL_ALLOC, "open");
    assert_non_null(c);
    assert_null(strstr(c->title, "every"));
    sim_free(n);
}

static void test_allocations_that_wait_for_a_cpu_are_not_the_allocators(void **state)
{
    (void)state;
    struct sim_node *n = sim_new(1, (struct ltn_causal_opts){0});
    usual_allocs(n, 3);
    for (unsigned i = 0; i < 5; i++) {
        alloc(n, i * 2 * SIM_S, 40 * SIM_MS, 39 * SIM_MS);
    }
    sim_windows(n, 1);
    assert_int_equal(n->change_count, 0);
    sim_free(n);
}

static void test_the_first_slow_ones_and_a_single_one_are_no_spike(void **state)
{
    (void)state;
    struct sim_node *n = sim_new(1, (struct ltn_causal_opts){0});
    for (unsigned i = 0; i < 5; i++) {
        alloc(n, i * SIM_MS, 40 * SIM_MS, 0); /* warming up */
    }
    usual_allocs(n, 4);
    alloc(n, 0, 40 * SIM_MS, 0);
    sim_windows(n, 3);
    assert_int_equal(n->change_count, 0);
    sim_free(n);
}

static void test_a_burst(void **state)
{
    (void)state;
    struct sim_node *n = sim_new(1, (struct ltn_causal_opts){0});
    usual_allocs(n, 5);
    for (unsigned i = 0; i < 20000; i++) {
        alloc(n, i * 100000, 50000, 0);
    }
    sim_windows(n, 1);
    const struct sim_change *c = sim_find(n, LTN_CAUSAL_ALLOC, "open");
    assert_non_null(c);
    assert_string_equal(c->cause, "burst of allocator calls");
    sim_free(n);
}

/* ---- copies ---- */

static void copies(struct sim_node *n, double share, double bytes)
{
    n->op[0] = (struct ltn_op_window){.op = LTN_OP_ID_CUDA_MEMCPY,
                                      .calls = 1000,
                                      .duration_ns = (uint64_t)(share * (double)SIM_WINDOW),
                                      .bytes = (uint64_t)bytes};
}

static void test_bound_by_copies(void **state)
{
    (void)state;
    struct sim_node *n = sim_new(1, (struct ltn_causal_opts){0});
    copies(n, 0.6, 90e9);
    sim_windows(n, 2);
    assert_int_equal(n->change_count, 0);
    sim_windows(n, 1);
    const struct sim_change *c = sim_find(n, LTN_CAUSAL_MEMCPY, "open");
    assert_non_null(c);
    assert_non_null(strstr(c->title, "60 % of its time: 100 a second, 15.0 GB/s"));
    sim_free(n);
}

static void test_a_small_copy_that_waits_for_the_device_is_no_copy_problem(void **state)
{
    (void)state;
    struct sim_node *n = sim_new(1, (struct ltn_causal_opts){0});
    copies(n, 0.9, 4000); /* reading back the loss */
    sim_windows(n, 5);
    copies(n, 0.2, 90e9); /* many bytes, little time */
    sim_windows(n, 5);
    n->op[0].op = LTN_OP_ID_CUDA_MEMCPY_ASYNC; /* overlapped */
    n->op[0].duration_ns = SIM_WINDOW;
    sim_windows(n, 5);
    assert_int_equal(n->change_count, 0);
    sim_free(n);
}

/* ---- starts ---- */

static void begin(struct sim_node *n, uint64_t first_ms, uint64_t sync_after_ms)
{
    uint64_t t = n->window.end_ns + SIM_S;
    sim_call(n, 0,
             (struct ltn_call){
                 .time_ns = t, .duration_ns = first_ms * SIM_MS, .op = LTN_OP_ID_CUDA_MALLOC});
    sim_call(n, 0,
             (struct ltn_call){.time_ns = t + sync_after_ms * SIM_MS,
                               .duration_ns = SIM_MS,
                               .op = LTN_OP_ID_CUDA_STREAM_SYNCHRONIZE});
}

static void test_a_cold_start_but_not_of_a_restarted_worker(void **state)
{
    (void)state;
    struct sim_node *n = sim_new(1, (struct ltn_causal_opts){0});
    n->window.proc_count = 0;
    sim_windows(n, 1);
    n->window.proc_count = 1;
    n->procs[0].start_ns = n->window.end_ns;
    sim_windows(n, 1); /* seen before its first call has returned */
    begin(n, 2000, 2100);
    sim_windows(n, 1);
    const struct sim_change *c = sim_find(n, LTN_CAUSAL_COLD, "open");
    assert_non_null(c);
    assert_int_equal(c->severity, LTN_CAUSAL_LOW);
    assert_true(c->share > 0.9);
    assert_non_null(strstr(c->title, "2.0 s of it in cudaMalloc"));
    sim_windows(n, 2);
    assert_non_null(sim_find(n, LTN_CAUSAL_COLD, "closed"));
    n->procs[0].ended = true;
    sim_windows(n, 1);
    n->procs[0].ended = false;
    n->procs[0].pid = 900;
    n->procs[0].start_ns = n->window.end_ns;
    begin(n, 2000, 2100);
    sim_windows(n, 3);
    assert_int_equal(ltn_causal_stats(n->causal).opened_total, 1);
    sim_free(n);
}

/* What is said of a start is up to a second too early. */
static void test_a_start_just_after_the_agents(void **state)
{
    (void)state;
    for (uint64_t early_ms = 900; early_ms <= 1100; early_ms += 200) {
        struct sim_node *n = sim_new(1, (struct ltn_causal_opts){0});
        n->procs[0].start_ns = n->window.end_ns - early_ms * SIM_MS;
        begin(n, 2000, 2100);
        sim_windows(n, 2);
        assert_int_equal(n->change_count > 0, early_ms < 1000);
        sim_free(n);
    }
}

static void test_starts_that_are_quick_or_unseen_or_slow_elsewhere(void **state)
{
    (void)state;
    struct sim_node *n = sim_new(1, (struct ltn_causal_opts){0});
    begin(n, 2000, 2100); /* runs since long before the agent */
    sim_windows(n, 2);
    assert_int_equal(n->change_count, 0);
    n->procs[0].pid = 200;
    n->procs[0].start_ns = n->window.end_ns;
    begin(n, 100, 110);
    sim_windows(n, 2);
    assert_int_equal(n->change_count, 0);
    n->procs[0].pid = 300;
    n->procs[0].start_ns = n->window.end_ns;
    begin(n, 100, 5000); /* the program itself took its time */
    sim_windows(n, 2);
    assert_int_equal(n->changes[0].kind, LTN_CAUSAL_COLD);
    assert_string_equal(n->changes[0].cause, "");
    sim_free(n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_first_error_with_the_calls_before),
        cmocka_unit_test(test_polls_and_benign_results_are_no_errors),
        cmocka_unit_test(test_device_memory),
        cmocka_unit_test(test_an_error_of_a_process_that_ends_is_told_and_closed),
        cmocka_unit_test(test_out_of_memory_kill),
        cmocka_unit_test(test_slow_allocations_and_their_period),
        cmocka_unit_test(test_random_spikes_have_no_period),
        cmocka_unit_test(test_allocations_that_wait_for_a_cpu_are_not_the_allocators),
        cmocka_unit_test(test_the_first_slow_ones_and_a_single_one_are_no_spike),
        cmocka_unit_test(test_a_burst),
        cmocka_unit_test(test_bound_by_copies),
        cmocka_unit_test(test_a_small_copy_that_waits_for_the_device_is_no_copy_problem),
        cmocka_unit_test(test_a_cold_start_but_not_of_a_restarted_worker),
        cmocka_unit_test(test_a_start_just_after_the_agents),
        cmocka_unit_test(test_starts_that_are_quick_or_unseen_or_slow_elsewhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
