/* SPDX-License-Identifier: Apache-2.0 */
#include "cmocka_all.h"

#include <stdio.h>
#include <string.h>

#include "symbol/demangle.h"

static void expect(const char *symbol, const char *want)
{
    char out[256];
    ltn_demangle(symbol, out, sizeof(out));
    assert_string_equal(out, want);
}

static void test_names(void **state)
{
    (void)state;
    expect("cudaMalloc", "cudaMalloc");
    expect("", "");
    expect("_ZN3app5epochEi", "app::epoch(int)");
    expect("_ZNSt6vectorIiSaIiEE9push_backEOi",
           "std::vector<int, std::allocator<int> >::push_back(int&&)");
    expect("_ZN3app5epochEi.cold", "app::epoch(int) [clone .cold]");
    /* Not what it looks like. */
    expect("_Z", "_Z");
    expect("_Znonsense", "_Znonsense");
    expect("_ZN3app5epoch", "_ZN3app5epoch");
}

static void test_small_buffers(void **state)
{
    (void)state;
    char out[16];
    memset(out, 'x', sizeof(out));
    ltn_demangle("_ZN3app5epochEi", out, 8);
    assert_string_equal(out, "app::ep");
    assert_int_equal(out[8], 'x');
    ltn_demangle("plain_function", out, 6);
    assert_string_equal(out, "plain");
    ltn_demangle("_ZN3app5epochEi", out, 1);
    assert_string_equal(out, "");
    ltn_demangle("x", out, 0);
}

/* Each parameter's type names the one before twice: 60 of them would be 2^60 names. */
static void test_bombs(void **state)
{
    (void)state;
    char symbol[2048] = "_Z1f1x1AIS_S_E";
    char out[256];
    for (int i = 0; i < 34; i++) {
        char part[32];
        char digit[2] = {(char)(i + 1 < 10 ? '0' + i + 1 : 'A' + i + 1 - 10), '\0'};
        (void)snprintf(part, sizeof(part), "S0_IS%s_S%s_E", digit, digit);
        (void)strncat(symbol, part, sizeof(symbol) - strlen(symbol) - 1);
    }
    ltn_demangle(symbol, out, sizeof(out));
    assert_int_equal(strlen(out), sizeof(out) - 1);
    assert_memory_equal(out, "f(x, A<x, x>, A<A<x, x>, A<x, x> >", 34);
    /* Nesting without end, and a name too long to be tried. */
    char deep[4096];
    memset(deep, 'P', sizeof(deep));
    memcpy(deep, "_Z1f", 4);
    deep[2000] = '\0';
    ltn_demangle(deep, out, sizeof(out));
    memset(deep + 4, 'P', sizeof(deep) - 5);
    deep[sizeof(deep) - 1] = '\0';
    ltn_demangle(deep, out, sizeof(out));
    assert_memory_equal(out, "_Z1fPPPP", 8);
    assert_int_equal(strlen(out), sizeof(out) - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_small_buffers),
        cmocka_unit_test(test_bombs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
