/* SPDX-License-Identifier: Apache-2.0 */
/* Host time that grew: what is named, and what looks alike and is not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "causal_sim.h"

static void test_a_hog_is_named_with_its_share(void **state)
{
    (void)state;
    struct sim_node *n = sim_new(2, (struct ltn_causal_opts){0});
    sim_windows(n, 6);
    assert_int_equal(n->change_count, 0);
    sim_add(n, 1, LTN_SPLIT_RUN_QUEUE, 18);
    sim_add(n, 1, LTN_SPLIT_ON_CPU, 2);
    sim_preemptor(n, 1, "logrotate", 77);
    sim_windows(n, 1);
    assert_int_equal(n->change_count, 0); /* once is nothing */
    sim_windows(n, 1);
    assert_int_equal(n->change_count, 1);
    const struct sim_change *c = sim_find(n, LTN_CAUSAL_CPU, "open");
    assert_non_null(c);
    assert_int_equal(c->pid, 101);
    assert_string_equal(c->cause, "CPU held by logrotate");
    assert_non_null(
        strstr(c->title, "50 ms: 30 ms usual, 18 ms waiting for a CPU that `logrotate`"));
    assert_true(c->share > 0.89 && c->share < 0.91);
    assert_non_null(strstr(c->evidence, "\"run_queue\":18000000"));
    assert_int_equal(c->severity, LTN_CAUSAL_MEDIUM);
    sim_free(n);
}

static void test_it_closes_when_it_is_over_and_counts(void **state)
{
    (void)state;
    struct sim_node *n = sim_new(1, (struct ltn_causal_opts){0});
    sim_windows(n, 6);
    sim_add(n, 0, LTN_SPLIT_RUN_QUEUE, 20);
    sim_preemptor(n, 0, "hog", 77);
    sim_windows(n, 12);
    sim_add(n, 0, LTN_SPLIT_RUN_QUEUE, -20);
    sim_windows(n, 2);
    assert_null(sim_find(n, LTN_CAUSAL_CPU, "closed"));
    sim_windows(n, 1);
    const struct sim_change *open = sim_find(n, LTN_CAUSAL_CPU, "open");
    const struct sim_change *closed = sim_find(n, LTN_CAUSAL_CPU, "closed");
    assert_non_null(closed);
    assert_string_equal(open->id, closed->id);
    assert_int_equal(closed->count, 11);
    assert_int_equal(n->change_count, 5); /* open, updates at 2, 4 and 8, closed */
    struct ltn_causal_stats s = ltn_causal_stats(n->causal);
    assert_int_equal(s.opened_total, 1);
    assert_int_equal(s.closed_total, 1);
    assert_int_equal(s.open, 0);
    sim_free(n);
}

static void test_the_same_again_has_another_id_and_the_same_input_the_same(void **state)
{
    (void)state;
    char first[2][20];
    for (int run = 0; run < 2; run++) {
        struct sim_node *n = sim_new(1, (struct ltn_causal_opts){0});
        sim_windows(n, 6);
        sim_add(n, 0, LTN_SPLIT_RUN_QUEUE, 20);
        sim_preemptor(n, 0, "hog", 77);
        sim_windows(n, 3);
        sim_add(n, 0, LTN_SPLIT_RUN_QUEUE, -20);
        sim_windows(n, 6);
        memcpy(first[run], n->changes[0].id, sizeof(first[run]));
        sim_add(n, 0, LTN_SPLIT_RUN_QUEUE, 20);
        sim_windows(n, 3);
        assert_string_not_equal(n->changes[n->change_count - 1].id, first[run]);
        sim_free(n);
    }
    assert_string_equal(first[0], first[1]);
}

static void test_less_than_80_percent_is_unexplained(void **state)
{
    (void)state;
    struct sim_node *n = sim_new(1, (struct ltn_causal_opts){0});
    sim_windows(n, 6);
    sim_add(n, 0, LTN_SPLIT_RUN_QUEUE, 14);
    sim_add(n, 0, LTN_SPLIT_READ, 6);
    sim_preemptor(n, 0, "hog", 77);
    sim_windows(n, 3);
    assert_null(sim_find(n, LTN_CAUSAL_CPU, "open"));
    const struct sim_change *c = sim_find(n, LTN_CAUSAL_UNEXPLAINED, "open");
    assert_non_null(c);
    assert_string_equal(c->cause, "");
    assert_true(c->share > 0.69 && c->share < 0.71);
    assert_non_null(strstr(c->evidence, "\"read\":6000000"));
    sim_free(n);
}

static void test_one_of_many_holders_is_not_named_as_the_cause(void **state)
{
    (void)state;
    struct sim_node *n = sim_new(1, (struct ltn_causal_opts){0});
    sim_windows(n, 6);
    sim_add(n, 0, LTN_SPLIT_RUN_QUEUE, 18);
    sim_preemptor(n, 0, "cc1", 77);
    n->procs[0].host.preemptors[1] = n->procs[0].host.preemptors[0];
    (void)snprintf(n->procs[0].host.preemptors[1].comm, LTN_COMM_BYTES, "ld");
    n->procs[0].host.preemptors[1].waited_ns -= 1;
    sim_windows(n, 2);
    const struct sim_change *c = sim_find(n, LTN_CAUSAL_CPU, "open");
    assert_non_null(c);
    assert_string_equal(c->cause, "CPU held by several processes");
    assert_non_null(strstr(c->title, "several processes held, `cc1` 50 % of it"));
    sim_free(n);
}

static void test_two_of_one_name_are_one_holder(void **state)
{
    (void)state;
    struct sim_node *n = sim_new(1, (struct ltn_causal_opts){0});
    sim_windows(n, 6);
    sim_add(n, 0, LTN_SPLIT_RUN_QUEUE, 18);
    sim_preemptor(n, 0, "cc1", 77);
    n->procs[0].host.preemptors[1] = n->procs[0].host.preemptors[0];
    n->procs[0].host.preemptors[1].tgid = 78;
    sim_windows(n, 2);
    const struct sim_change *c = sim_find(n, LTN_CAUSAL_CPU, "open");
    assert_non_null(c);
    assert_string_equal(c->cause, "CPU held by cc1");
    sim_free(n);
}

static void test_own_threads_are_no_neighbour(void **state)
{
    (void)state;
    struct sim_node *n = sim_new(1, (struct ltn_causal_opts){0});
    sim_windows(n, 6);
    sim_add(n, 0, LTN_SPLIT_RUN_QUEUE, 12);
    sim_preemptor(n, 0, "worker", 100);
    sim_windows(n, 3);
    const struct sim_change *c = sim_find(n, LTN_CAUSAL_CPU, "open");
    assert_non_null(c);
    assert_string_equal(c->cause, "CPU held by its own threads");
    assert_null(strstr(c->title, "worker"));
    sim_free(n);
}

static void test_a_neighbour_from_the_start_is_seen_own_threads_are_not(void **state)
{
    (void)state;
    struct sim_node *n = sim_new(2, (struct ltn_causal_opts){0});
    sim_add(n, 0, LTN_SPLIT_RUN_QUEUE, 30);
    sim_preemptor(n, 0, "hog", 77);
    sim_add(n, 1, LTN_SPLIT_RUN_QUEUE, 30);
    sim_preemptor(n, 1, "python3", 101);
    sim_windows(n, 8);
    assert_int_equal(ltn_causal_stats(n->causal).opened_total, 1);
    assert_int_equal(n->changes[0].kind, LTN_CAUSAL_CPU);
    assert_int_equal(n->changes[0].pid, 100);
    sim_free(n);
}

static void test_waiting_for_the_device_or_peers_is_nobodys_fault(void **state)
{
    (void)state;
    struct sim_node *n = sim_new(1, (struct ltn_causal_opts){0});
    sim_windows(n, 6);
    sim_add(n, 0, LTN_SPLIT_DEVICE, 80);
    n->procs[0].host.peer_wait_ns *= 5;
    n->procs[0].host.step_ns *= 5;
    sim_windows(n, 10);
    assert_int_equal(n->change_count, 0);
    sim_free(n);
}

static void test_one_slow_window_is_nothing(void **state)
{
    (void)state;
    struct sim_node *n = sim_new(1, (struct ltn_causal_opts){0});
    sim_windows(n, 6);
    for (int i = 0; i < 4; i++) {
        sim_add(n, 0, LTN_SPLIT_DISK, 100);
        sim_windows(n, 1);
        sim_add(n, 0, LTN_SPLIT_DISK, -100);
        sim_windows(n, 2);
    }
    assert_int_equal(n->change_count, 0);
    sim_free(n);
}

static void test_disk_and_read(void **state)
{
    (void)state;
    static const struct {
        enum ltn_split part;
        const char *cause;
    } cases[] = {{LTN_SPLIT_DISK, "waiting for the disk (block I/O, fsync)"},
                 {LTN_SPLIT_READ, "waiting in read (pipe, socket or file)"},
                 {LTN_SPLIT_WRITE, "waiting in write (pipe, socket or file)"}};
    for (size_t i = 0; i < LTN_ARRAY_SIZE(cases); i++) {
        struct sim_node *n = sim_new(1, (struct ltn_causal_opts){0});
        sim_windows(n, 6);
        sim_add(n, 0, cases[i].part, 15);
        sim_windows(n, 3);
        const struct sim_change *c = sim_find(n, LTN_CAUSAL_IO, "open");
        assert_non_null(c);
        assert_string_equal(c->cause, cases[i].cause);
        sim_free(n);
    }
}

static void test_disk_waits_of_page_faults_are_page_faults(void **state)
{
    (void)state;
    struct sim_node *n = sim_new(1, (struct ltn_causal_opts){0});
    sim_windows(n, 6);
    sim_add(n, 0, LTN_SPLIT_DISK, 15);
    n->procs[0].host.major_faults = 40;
    n->window.pressure_memory = 0.1;
    sim_windows(n, 3);
    assert_null(sim_find(n, LTN_CAUSAL_IO, "open"));
    const struct sim_change *c = sim_find(n, LTN_CAUSAL_FAULTS, "open");
    assert_non_null(c);
    assert_string_equal(c->cause, "page faults, memory pressure");
    assert_non_null(strstr(c->title, "in page faults (40 from disk), memory is short"));
    assert_null(sim_find(n, LTN_CAUSAL_PRESSURE, "open"));
    sim_free(n);
}

static void test_pressure_of_the_node(void **state)
{
    (void)state;
    struct sim_node *n = sim_new(1, (struct ltn_causal_opts){0});
    n->window.pressure_memory = 0.3;
    sim_windows(n, 2);
    n->window.pressure_memory = 0.0;
    sim_windows(n, 3);
    assert_int_equal(n->change_count, 0);
    n->window.pressure_memory = 0.3;
    sim_windows(n, 3);
    const struct sim_change *c = sim_find(n, LTN_CAUSAL_PRESSURE, "open");
    assert_non_null(c);
    assert_int_equal(c->pid, 0);
    sim_free(n);
}

static void test_without_steps_another_mix_of_work_is_nothing(void **state)
{
    (void)state;
    struct sim_node *n = sim_new(1, (struct ltn_causal_opts){0});
    n->procs[0].is_rank = false;
    sim_windows(n, 6);
    sim_add(n, 0, LTN_SPLIT_ON_CPU, 100);
    sim_windows(n, 10);
    assert_int_equal(n->change_count, 0);
    sim_free(n);
}

/* A disk so slow that windows pass without a step: one incident, not several; it ends when nothing
 * comes any more. */
static void test_no_steps_at_all_are_no_end(void **state)
{
    (void)state;
    struct sim_node *n = sim_new(1, (struct ltn_causal_opts){0});
    sim_windows(n, 6);
    sim_add(n, 0, LTN_SPLIT_DISK, 30);
    sim_windows(n, 3);
    const struct ltn_rank_window before = n->procs[0].host;
    for (int i = 0; i < 3; i++) {
        n->procs[0].host = (struct ltn_rank_window){0};
        sim_windows(n, 5);
        n->procs[0].host = before;
        sim_windows(n, 1);
        assert_int_equal(ltn_causal_stats(n->causal).opened_total, 1);
        assert_null(sim_find(n, LTN_CAUSAL_IO, "closed"));
    }
    n->procs[0].host = (struct ltn_rank_window){0};
    sim_windows(n, 20);
    assert_non_null(sim_find(n, LTN_CAUSAL_IO, "closed"));
    sim_free(n);
}

static void test_what_nobody_explains_becomes_usual(void **state)
{
    (void)state;
    struct sim_node *n = sim_new(1, (struct ltn_causal_opts){0});
    sim_windows(n, 6);
    sim_add(n, 0, LTN_SPLIT_ON_CPU, 30);
    sim_windows(n, 100);
    assert_non_null(sim_find(n, LTN_CAUSAL_UNEXPLAINED, "open"));
    assert_non_null(sim_find(n, LTN_CAUSAL_UNEXPLAINED, "closed"));
    assert_int_equal(ltn_causal_stats(n->causal).opened_total, 1);
    sim_free(n);
}

static void test_caps_hold_and_count(void **state)
{
    (void)state;
    struct sim_node *n = sim_new(8, (struct ltn_causal_opts){.max_open = 5, .max_per_window = 3});
    sim_windows(n, 6);
    for (size_t i = 0; i < 8; i++) {
        sim_add(n, i, LTN_SPLIT_READ, 20);
    }
    sim_windows(n, 2);
    struct ltn_causal_stats s = ltn_causal_stats(n->causal);
    assert_int_equal(s.open, 3);
    assert_int_equal(s.suppressed_total, 5);
    sim_windows(n, 2);
    assert_int_equal(ltn_causal_stats(n->causal).open, 5);
    ltn_causal_end(n->causal, n->window.end_ns);
    assert_int_equal(ltn_causal_stats(n->causal).open, 0);
    assert_int_equal(ltn_causal_stats(n->causal).closed_total, 5);
    sim_free(n);
}

static void test_a_name_from_the_program_is_data(void **state)
{
    (void)state;
    struct sim_node *n = sim_new(1, (struct ltn_causal_opts){0});
    n->procs[0].comm = "a\x1b[2J\"\n\xff";
    sim_windows(n, 6);
    sim_add(n, 0, LTN_SPLIT_READ, 20);
    sim_windows(n, 2);
    assert_int_equal(n->change_count, 1);
    assert_null(strchr(n->changes[0].title, '\x1b'));
    assert_null(strchr(n->changes[0].title, '\n'));
    sim_free(n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_hog_is_named_with_its_share),
        cmocka_unit_test(test_it_closes_when_it_is_over_and_counts),
        cmocka_unit_test(test_the_same_again_has_another_id_and_the_same_input_the_same),
        cmocka_unit_test(test_less_than_80_percent_is_unexplained),
        cmocka_unit_test(test_one_of_many_holders_is_not_named_as_the_cause),
        cmocka_unit_test(test_two_of_one_name_are_one_holder),
        cmocka_unit_test(test_own_threads_are_no_neighbour),
        cmocka_unit_test(test_a_neighbour_from_the_start_is_seen_own_threads_are_not),
        cmocka_unit_test(test_waiting_for_the_device_or_peers_is_nobodys_fault),
        cmocka_unit_test(test_one_slow_window_is_nothing),
        cmocka_unit_test(test_disk_and_read),
        cmocka_unit_test(test_disk_waits_of_page_faults_are_page_faults),
        cmocka_unit_test(test_pressure_of_the_node),
        cmocka_unit_test(test_without_steps_another_mix_of_work_is_nothing),
        cmocka_unit_test(test_no_steps_at_all_are_no_end),
        cmocka_unit_test(test_what_nobody_explains_becomes_usual),
        cmocka_unit_test(test_caps_hold_and_count),
        cmocka_unit_test(test_a_name_from_the_program_is_data),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
