/* SPDX-License-Identifier: Apache-2.0 */
/* Rates of tenants. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "http/rate.h"

#define MS LTN_NS_PER_MS

static uint32_t wait_of(struct ltn_rate *r, uint64_t tenant, uint64_t now_ns)
{
    uint32_t wait = 0;
    return ltn_rate_admit(r, &tenant, sizeof(tenant), now_ns, &wait) ? 0 : wait;
}

static void requests_have_a_burst_and_a_rate(void **state)
{
    (void)state;
    struct ltn_rate *r = ltn_rate_new(10, 0, 100);
    uint64_t now = 1000 * MS;
    for (int i = 0; i < 20; i++) {
        assert_int_equal(wait_of(r, 1, now), 0);
    }
    assert_int_equal(wait_of(r, 1, now), 100);
    assert_int_equal(wait_of(r, 2, now), 0); /* another tenant is not held up */
    assert_int_equal(wait_of(r, 1, now + 99 * MS), 1);
    assert_int_equal(wait_of(r, 1, now + 100 * MS), 0);
    assert_int_equal(wait_of(r, 1, now + 100 * MS), 100);
    now += 3600000 * MS;
    for (int i = 0; i < 20; i++) { /* no more than the burst, however long it was quiet */
        assert_int_equal(wait_of(r, 1, now), 0);
    }
    assert_int_equal(wait_of(r, 1, now), 100);
    assert_int_equal(wait_of(r, 1, now - 5000 * MS), 100); /* time does not go back */
    ltn_rate_free(r);
}

static void bytes_are_paid_afterwards(void **state)
{
    (void)state;
    struct ltn_rate *r = ltn_rate_new(0, 1000, 100);
    uint64_t tenant = 1;
    uint64_t now = 1000 * MS;
    assert_int_equal(wait_of(r, 1, now), 0);
    ltn_rate_charge(r, &tenant, sizeof(tenant), 2000, now);
    assert_int_equal(wait_of(r, 1, now), 0);
    ltn_rate_charge(r, &tenant, sizeof(tenant), 500, now);
    assert_int_equal(wait_of(r, 1, now), 500);
    assert_int_equal(wait_of(r, 1, now + 500 * MS), 0);
    ltn_rate_charge(r, &tenant, sizeof(tenant), UINT64_MAX, now + 500 * MS);
    assert_int_equal(wait_of(r, 1, now + 500 * MS), 60000); /* a minute is the most */
    assert_int_equal(wait_of(r, 1, now + 60500 * MS), 0);
    ltn_rate_free(r);
}

static void tenants_are_bounded(void **state)
{
    (void)state;
    struct ltn_rate *r = ltn_rate_new(5, 0, 50);
    uint64_t now = 1000 * MS;
    for (uint64_t t = 0; t < 50; t++) {
        for (int i = 0; i < 10; i++) {
            assert_int_equal(wait_of(r, t, now), 0);
        }
    }
    assert_int_equal(ltn_rate_tenants(r), 50);
    for (uint64_t t = 100; t < 110; t++) { /* strangers share one account */
        assert_int_equal(wait_of(r, t, now), 0);
    }
    assert_int_equal(wait_of(r, 999, now), 200);
    assert_int_equal(ltn_rate_tenants(r), 50);
    assert_int_equal(wait_of(r, 7, now), 200); /* those known stay as they were */
    now += 5000 * MS;
    assert_int_equal(wait_of(r, 999, now), 0); /* the idle made room */
    assert_int_equal(ltn_rate_tenants(r), 1);
    ltn_rate_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_have_a_burst_and_a_rate),
        cmocka_unit_test(bytes_are_paid_afterwards),
        cmocka_unit_test(tenants_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
