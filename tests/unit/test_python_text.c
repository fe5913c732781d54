/* SPDX-License-Identifier: Apache-2.0 */
#include "cmocka_all.h"

#include <string.h>

#include "base/attr.h"
#include "symbol/python_text.h"

static void expect(const void *data, size_t n, unsigned width, const char *want)
{
    char out[64];
    size_t len = ltn_python_text(out, sizeof(out), data, n, width);
    assert_string_equal(out, want);
    assert_int_equal(len, strlen(want));
}

static void widths(void **state)
{
    (void)state;
    expect("abc", 3, 1, "abc");
    expect("stra\xdf"
           "e",
           6, 1,
           "stra\xc3\x9f"
           "e");
    expect("\x44\x04\x41\x00\xac\x20", 6, 2,
           "\xd1\x84"
           "A\xe2\x82\xac");
    expect("\x00\xf6\x01\x00", 4, 4, "\xf0\x9f\x98\x80");
    expect("ab\xac", 3, 2, "\xe6\x89\xa1"); /* U+6261; half a character behind it is none */
}

static void what_must_not_get_through(void **state)
{
    (void)state;
    expect("a\x1b[31m\x7f\x9b\n", 9, 1, "a?[31m???");
    expect("\x80\xdc", 2, 2, "?");                     /* a byte that was no text in a file name */
    expect("\x00\x00\x11\x00", 4, 4, "?");             /* above the last code point */
    expect("\x2e\x20\x6a\x20", 4, 2, "?\xe2\x81\xaa"); /* U+202E turns the line around */
}

static void limits(void **state)
{
    (void)state;
    char out[5];
    assert_int_equal(ltn_python_text(out, sizeof(out), "abcdefgh", 8, 1), 4);
    assert_string_equal(out, "abcd");
    /* Never half a character. */
    assert_int_equal(ltn_python_text(out, sizeof(out), "\xac\x20\xac\x20", 4, 2), 3);
    assert_int_equal(ltn_python_text(out, sizeof(out), "abc", 3, 0), 0);
    assert_string_equal(out, "");
    assert_int_equal(ltn_python_text(out, 0, "abc", 3, 1), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(widths),
        cmocka_unit_test(what_must_not_get_through),
        cmocka_unit_test(limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
