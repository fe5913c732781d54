/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/attr.h"
#include "capture/thinning.h"

#define MS LTN_NS_PER_MS

static struct ltn_thinning t;
static uint64_t now_ns;
static uint64_t read_total;
static uint64_t lost_total;

static int fresh(void **state)
{
    (void)state;
    t = (struct ltn_thinning){0};
    now_ns = 5000 * MS;
    read_total = 77;
    lost_total = 3;
    assert_true(ltn_thinning_update(&t, now_ns, read_total, lost_total));
    assert_int_equal(t.one_in, 1);
    return 0;
}

/* Records come at this rate for that long, looked at as often as the drain does. */
static void come(uint64_t per_s, uint64_t ms)
{
    for (uint64_t i = 0; i < ms; i += 5) {
        now_ns += 5 * MS;
        read_total += per_s * 5 / 1000;
        (void)ltn_thinning_update(&t, now_ns, read_total, lost_total);
    }
}

static void few_records_are_all_kept(void **state)
{
    (void)state;
    come(LTN_THINNING_RATE / 2, 20000);
    assert_int_equal(t.one_in, 1);
}

static void a_storm_is_thinned_in_two_steps_and_no_further(void **state)
{
    (void)state;
    come(LTN_THINNING_RATE * 5, 600);
    assert_int_equal(t.one_in, 10);
    come(LTN_THINNING_RATE * 5, 600);
    assert_int_equal(t.one_in, 100);
    come(LTN_THINNING_RATE * 5, 5000);
    assert_int_equal(t.one_in, 100);
}

static void calm_brings_them_back_one_step_at_a_time(void **state)
{
    (void)state;
    come(LTN_THINNING_RATE * 5, 1100);
    assert_int_equal(t.one_in, 100);
    come(10, 3000);
    assert_int_equal(t.one_in, 100);
    come(10, 1000);
    assert_int_equal(t.one_in, 10);
    come(10, 4000);
    assert_int_equal(t.one_in, 1);
}

/* What comes now is a tenth of what would come; a rate that fits only thinned stays thinned. */
static void a_lasting_storm_does_not_swing(void **state)
{
    (void)state;
    come(LTN_THINNING_RATE * 2, 600);
    assert_int_equal(t.one_in, 10);
    for (int i = 0; i < 30; i++) {
        come(LTN_THINNING_RATE * 2 / 10, 1000);
        assert_int_equal(t.one_in, 10);
    }
}

static void a_loss_is_reason_enough(void **state)
{
    (void)state;
    lost_total++;
    come(100, 600);
    assert_int_equal(t.one_in, 10);
    come(100, 2000);
    assert_int_equal(t.one_in, 10);
}

static void it_looks_twice_a_second(void **state)
{
    (void)state;
    now_ns += 499 * MS;
    read_total += 1000000;
    assert_false(ltn_thinning_update(&t, now_ns, read_total, lost_total));
    assert_int_equal(t.one_in, 1);
    now_ns += MS;
    assert_true(ltn_thinning_update(&t, now_ns, read_total, lost_total));
    assert_int_equal(t.one_in, 10);
}

#define TEST(name) cmocka_unit_test_setup(name, fresh)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(few_records_are_all_kept),
        TEST(a_storm_is_thinned_in_two_steps_and_no_further),
        TEST(calm_brings_them_back_one_step_at_a_time),
        TEST(a_lasting_storm_does_not_swing),
        TEST(a_loss_is_reason_enough),
        TEST(it_looks_twice_a_second),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
