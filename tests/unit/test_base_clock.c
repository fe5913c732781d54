/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"

#include <string.h>

#include "base/attr.h"
#include "cmocka_all.h"

static void clocks_go_forward(void **state)
{
    (void)state;
    uint64_t a = ltn_now_mono_ns();
    uint64_t cpu = ltn_cpu_self_ns();
    uint64_t b = ltn_now_mono_ns();
    assert_true(a > 0 && b >= a);
    assert_true(cpu > 0);
    assert_true(ltn_now_unix_ns() > 1600000000ULL * LTN_NS_PER_S);
}

static void monotonic_maps_to_unix(void **state)
{
    (void)state;
    uint64_t at = ltn_now_mono_ns();
    uint64_t one = ltn_mono_to_unix_ns(at);
    uint64_t two = ltn_mono_to_unix_ns(at + 5 * LTN_NS_PER_S);
    uint64_t apart = two - one;
    /* Each call reads the two clocks anew; a second between the calls is allowed for. */
    assert_in_range(apart, 4 * LTN_NS_PER_S, 6 * LTN_NS_PER_S);
}

static void times_are_written_as_rfc3339(void **state)
{
    (void)state;
    static const struct {
        uint64_t ns;
        const char *text;
    } cases[] = {
        {0, "1970-01-01T00:00:00.000Z"},
        {999999, "1970-01-01T00:00:00.000Z"},
        {951782400ULL * LTN_NS_PER_S, "2000-02-29T00:00:00.000Z"},
        {1769860800ULL * LTN_NS_PER_S + 123456789, "2026-01-31T12:00:00.123Z"},
        {UINT64_MAX, "2554-07-21T23:34:33.709Z"},
    };
    for (size_t i = 0; i < LTN_ARRAY_SIZE(cases); i++) {
        char out[LTN_RFC3339_BYTES];
        memset(out, 'x', sizeof(out));
        ltn_format_rfc3339(cases[i].ns, out);
        assert_string_equal(out, cases[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clocks_go_forward),
        cmocka_unit_test(monotonic_maps_to_unix),
        cmocka_unit_test(times_are_written_as_rfc3339),
    };
    return LTN_RUN_TESTS(tests);
}
