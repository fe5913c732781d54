/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/attr.h"
#include "serve/guard.h"
#include "serve/when.h"

static void only_loopback_names_are_local(void **state)
{
    (void)state;
    static const char *const local[] = {"127.0.0.1:8421", "127.8.9.1",   "[::1]:8421",
                                        "localhost",      "LOCALHOST:1", "[::1]"};
    static const char *const foreign[] = {
        "0.0.0.0:8421", ":8421", "[::]:8421", "10.0.0.1:1", "localhost.x:1", "evil.example",
        "127.0.0.1.x",  "",      "::1",       "[::1",       "[::1]x",        "128.0.0.1"};
    for (size_t i = 0; i < LTN_ARRAY_SIZE(local); i++) {
        assert_true(ltn_guard_is_loopback(local[i]));
        assert_true(ltn_guard_host_is_local(local[i]));
    }
    for (size_t i = 0; i < LTN_ARRAY_SIZE(foreign); i++) {
        assert_false(ltn_guard_is_loopback(foreign[i]));
        assert_false(ltn_guard_host_is_local(foreign[i]));
    }
}

static void origins_are_compared_whole(void **state)
{
    (void)state;
    assert_true(ltn_guard_origin_is_local("http://localhost:8421"));
    assert_true(ltn_guard_origin_is_local("https://[::1]:8421"));
    assert_false(ltn_guard_origin_is_local("http://localhost.evil.example"));
    assert_false(ltn_guard_origin_is_local("null"));
    assert_false(ltn_guard_origin_is_local("file://localhost"));
    assert_true(ltn_guard_origin_is_host("https://Node-1:8421", "node-1:8421"));
    assert_false(ltn_guard_origin_is_host("https://node-1:8422", "node-1:8421"));
    assert_false(ltn_guard_origin_is_host("node-1:8421", "node-1:8421"));
}

static void expect_when(const char *text, uint64_t want)
{
    uint64_t got = 1;
    if (!ltn_parse_when(text, 1700000000000000000ULL, &got) || got != want) {
        fail_msg("%s: %llu", text, (unsigned long long)got);
    }
}

static void moments_of_every_form(void **state)
{
    (void)state;
    uint64_t ignored;
    expect_when("5m", 1699999700000000000ULL);
    expect_when("1699999700000000001", 1699999700000000001ULL);
    expect_when("2023-11-14T22:13:20Z", 1700000000000000000ULL);
    expect_when("2023-11-14T22:13:20.25Z", 1700000000250000000ULL);
    expect_when("2023-11-14T23:13:20.000000001+01:00", 1700000000000000001ULL);
    expect_when("2023-11-14", 1699920000000000000ULL);
    static const char *const wrong[] = {"",
                                        "yesterday",
                                        "2023-11-14T22",
                                        "2023-13-14",
                                        "5 m",
                                        "2023-11-14T22:13:20+0100",
                                        "-5m",
                                        "2023-11-14T22:13:20Zx"};
    for (size_t i = 0; i < LTN_ARRAY_SIZE(wrong); i++) {
        assert_false(ltn_parse_when(wrong[i], 1700000000000000000ULL, &ignored));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_loopback_names_are_local),
        cmocka_unit_test(origins_are_compared_whole),
        cmocka_unit_test(moments_of_every_form),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
