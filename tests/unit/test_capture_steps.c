/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "capture/steps.h"

#define ALL_REDUCE 1

static void add_step(struct ltn_steps *s, unsigned buckets, bool equal_buckets)
{
    for (unsigned i = 0; i < buckets; i++) {
        ltn_steps_add_collective(s, 0xabc, ALL_REDUCE, equal_buckets ? 1000 : 1000 + i, 7);
    }
    ltn_steps_add_wait(s);
}

static void finds_a_step_of_different_buckets(void **state)
{
    (void)state;
    struct ltn_steps s;
    ltn_steps_init(&s);
    for (int i = 0; i < 20; i++) {
        add_step(&s, 5, false);
    }
    assert_true(ltn_steps_find(&s));
    assert_int_equal(s.period, 6);
    assert_int_equal(s.collectives_per_step, 5);
    assert_int_equal(s.waits_per_step, 1);
}

static void equal_buckets_do_not_look_like_steps(void **state)
{
    (void)state;
    struct ltn_steps s;
    ltn_steps_init(&s);
    for (int i = 0; i < 20; i++) {
        add_step(&s, 4, true);
    }
    assert_true(ltn_steps_find(&s));
    assert_int_equal(s.collectives_per_step, 4);
    assert_int_equal(s.waits_per_step, 1);
}

static void two_waits_in_a_step(void **state)
{
    (void)state;
    struct ltn_steps s;
    ltn_steps_init(&s);
    for (int i = 0; i < 20; i++) {
        ltn_steps_add_collective(&s, 1, ALL_REDUCE, 10, 7);
        ltn_steps_add_wait(&s);
        ltn_steps_add_collective(&s, 1, ALL_REDUCE, 20, 7);
        ltn_steps_add_wait(&s);
    }
    assert_true(ltn_steps_find(&s));
    assert_int_equal(s.waits_per_step, 2);
    assert_int_equal(s.collectives_per_step, 2);
}

static void without_repetition_nothing_is_known(void **state)
{
    (void)state;
    struct ltn_steps s;
    ltn_steps_init(&s);
    for (uint64_t i = 0; i < 300; i++) {
        ltn_steps_add_collective(&s, 1, ALL_REDUCE, i * i, 7);
    }
    assert_false(ltn_steps_find(&s));
    assert_int_equal(s.period, 0);
}

static void a_few_calls_are_not_enough(void **state)
{
    (void)state;
    struct ltn_steps s;
    ltn_steps_init(&s);
    add_step(&s, 5, false);
    add_step(&s, 5, false);
    assert_false(ltn_steps_find(&s));
}

static void an_evaluation_does_not_lose_the_period(void **state)
{
    (void)state;
    struct ltn_steps s;
    ltn_steps_init(&s);
    for (int i = 0; i < 30; i++) {
        add_step(&s, 5, false);
    }
    assert_true(ltn_steps_find(&s));
    for (uint64_t i = 0; i < 7; i++) {
        ltn_steps_add_collective(&s, 2, ALL_REDUCE, 77 + i * i, 7);
    }
    assert_true(ltn_steps_find(&s));
    assert_int_equal(s.period, 6);
    for (int i = 0; i < 30; i++) {
        add_step(&s, 3, false);
    }
    assert_true(ltn_steps_find(&s));
    assert_int_equal(s.period, 4);
}

static void works_after_the_ring_wrapped(void **state)
{
    (void)state;
    struct ltn_steps s;
    ltn_steps_init(&s);
    for (int i = 0; i < 5000; i++) {
        add_step(&s, 9, false);
    }
    assert_true(ltn_steps_find(&s));
    assert_int_equal(s.period, 10);
}

static void the_longest_period_that_fits(void **state)
{
    (void)state;
    struct ltn_steps s;
    ltn_steps_init(&s);
    for (int i = 0; i < 10; i++) {
        add_step(&s, 340, false);
    }
    assert_true(ltn_steps_find(&s));
    assert_int_equal(s.period, 341);
}

static void a_step_that_is_one_launch_of_a_graph(void **state)
{
    (void)state;
    struct ltn_steps s;
    ltn_steps_init(&s);
    for (int i = 0; i < 20; i++) {
        ltn_steps_add_graph(&s, 0x1234, 5);
        ltn_steps_add_wait(&s);
    }
    assert_true(ltn_steps_find(&s));
    assert_int_equal(s.period, 2);
    assert_int_equal(s.waits_per_step, 1);
    assert_int_equal(s.collectives_per_step, 5);
}

static void graphs_of_different_contents_are_different_tokens(void **state)
{
    (void)state;
    struct ltn_steps s;
    ltn_steps_init(&s);
    for (int i = 0; i < 20; i++) {
        ltn_steps_add_graph(&s, 1, 3);
        ltn_steps_add_wait(&s);
        ltn_steps_add_graph(&s, 2, 3);
        ltn_steps_add_collective(&s, 7, ALL_REDUCE, 1, 7);
        ltn_steps_add_wait(&s);
    }
    assert_true(ltn_steps_find(&s));
    assert_int_equal(s.period, 5);
    assert_int_equal(s.waits_per_step, 2);
    assert_int_equal(s.collectives_per_step, 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_a_step_of_different_buckets),
        cmocka_unit_test(equal_buckets_do_not_look_like_steps),
        cmocka_unit_test(two_waits_in_a_step),
        cmocka_unit_test(without_repetition_nothing_is_known),
        cmocka_unit_test(a_few_calls_are_not_enough),
        cmocka_unit_test(an_evaluation_does_not_lose_the_period),
        cmocka_unit_test(works_after_the_ring_wrapped),
        cmocka_unit_test(the_longest_period_that_fits),
        cmocka_unit_test(a_step_that_is_one_launch_of_a_graph),
        cmocka_unit_test(graphs_of_different_contents_are_different_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
