/* SPDX-License-Identifier: Apache-2.0 */
/* Line tables written by hand from the rules of each version. */
#include "cmocka_all.h"

#include <limits.h>

#include "base/attr.h"
#include "base/err.h"
#include "symbol/python_layout.h"
#include "symbol/python_line.h"

#define V(minor) LTN_PYTHON_VERSION(3, minor)

static struct ltn_python_table table(uint32_t version, const uint8_t *data, size_t size)
{
    return (struct ltn_python_table){
        .version = version, .first_line = 10, .data = data, .size = size, .whole = size};
}

static void expect(const struct ltn_python_table *t, int32_t offset, int rc, uint32_t line)
{
    uint32_t got = 0;
    assert_int_equal(ltn_python_line(t, offset, &got), rc);
    if (rc == 0 || rc == LTN_ERR_NOT_FOUND) {
        assert_int_equal(got, line);
    }
}

static void pairs_of_3_9(void **state)
{
    (void)state;
    /* 0-3: 11; 4-9: 13; 10-: 8 (backwards). */
    const uint8_t data[] = {0, 1, 4, 2, 6, 0xfb};
    struct ltn_python_table t = table(V(9), data, sizeof(data));
    expect(&t, -1, 0, 10);
    expect(&t, 0, 0, 11);
    expect(&t, 3, 0, 11);
    expect(&t, 4, 0, 13);
    expect(&t, 9, 0, 13);
    expect(&t, 10, 0, 8);
    expect(&t, 1000, 0, 8);
    /* Far away: several pairs for one step. */
    const uint8_t far[] = {255, 0, 45, 127, 0, 127};
    t = table(V(9), far, sizeof(far));
    expect(&t, 299, 0, 10);
    expect(&t, 300, 0, 10 + 254);
    /* A part of a table does not know what comes behind it. */
    t.whole = 100;
    expect(&t, 300, LTN_ERR_NOT_FOUND, 264);
    expect(&t, 299, 0, 10);
}

static void ranges_of_3_10(void **state)
{
    (void)state;
    /* [0,4): 11; [4,8): none; [8,8): +100; [8,12): 109. */
    const uint8_t data[] = {4, 1, 4, 0x80, 0, 100, 4, 0xfe};
    struct ltn_python_table t = table(V(10), data, sizeof(data));
    expect(&t, -2, 0, 10);
    expect(&t, 0, 0, 11);
    expect(&t, 2, 0, 11);
    expect(&t, 4, LTN_ERR_NOT_FOUND, 11);
    expect(&t, 8, 0, 109);
    expect(&t, 12, LTN_ERR_NOT_FOUND, 109);
    expect(&t, 3, LTN_ERR_MALFORMED, 0);
}

static void entries_of_3_11(void **state)
{
    (void)state;
    const uint8_t data[] = {
        0x80 | 11 << 3 | 1, 5,    9,    /* 2 units, line + 1: [0,4) 11 */
        0x80 | 0 << 3 | 0,  0x12,       /* 1 unit, the same line: [4,6) 11 */
        0x80 | 13 << 3 | 0, 0x42, 0x01, /* 1 unit, varint 2 + 64 = 66 -> +33: [6,8) 44 */
        0x80 | 15 << 3 | 7,             /* 8 units without a line: [8,24) */
        0x80 | 14 << 3 | 0, 0x03, 0x00, 0x01, 0x02, /* 1 unit, varint 3 -> -1: [24,26) 43 */
    };
    static const uint32_t versions[] = {V(11), V(12), V(13),
                                        V(14), V(15), V(13) | LTN_PYTHON_FREE_THREADED};
    for (size_t i = 0; i < LTN_ARRAY_SIZE(versions); i++) {
        struct ltn_python_table t = table(versions[i], data, sizeof(data));
        expect(&t, -2, 0, 10);
        expect(&t, 0, 0, 11);
        expect(&t, 4, 0, 11);
        expect(&t, 6, 0, 44);
        expect(&t, 8, LTN_ERR_NOT_FOUND, 44);
        expect(&t, 22, LTN_ERR_NOT_FOUND, 44);
        expect(&t, 24, 0, 43);
        expect(&t, 26, LTN_ERR_NOT_FOUND, 43);
        expect(&t, 5, LTN_ERR_MALFORMED, 0);
    }
}

static void what_is_no_table(void **state)
{
    (void)state;
    const uint8_t no_mark[] = {0x12, 0x34};
    const uint8_t endless[] = {0x80 | 13 << 3, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f};
    const uint8_t cut[] = {0x80 | 13 << 3, 0x41};
    const uint8_t below_zero[] = {0x80 | 13 << 3, 0x7f, 0x01};
    struct ltn_python_table t = table(V(11), no_mark, sizeof(no_mark));
    expect(&t, 0, LTN_ERR_MALFORMED, 0);
    t = table(V(11), endless, sizeof(endless));
    expect(&t, 0, LTN_ERR_MALFORMED, 0);
    t = table(V(11), cut, sizeof(cut));
    expect(&t, 0, LTN_ERR_MALFORMED, 0);
    t.whole = 50; /* more of it was not received */
    expect(&t, 0, LTN_ERR_NOT_FOUND, 10);
    t = table(V(11), below_zero, sizeof(below_zero));
    expect(&t, 0, LTN_ERR_MALFORMED, 0);
    t = table(V(11), NULL, 0);
    expect(&t, 0, LTN_ERR_NOT_FOUND, 10);
    t = table(V(8), no_mark, sizeof(no_mark));
    expect(&t, 0, LTN_ERR_UNSUPPORTED, 0);
    t = table(V(16), no_mark, sizeof(no_mark));
    expect(&t, 0, LTN_ERR_UNSUPPORTED, 0);
    t = table(V(11), no_mark, sizeof(no_mark));
    t.first_line = UINT32_MAX;
    expect(&t, 0, LTN_ERR_MALFORMED, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pairs_of_3_9),
        cmocka_unit_test(ranges_of_3_10),
        cmocka_unit_test(entries_of_3_11),
        cmocka_unit_test(what_is_no_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
