/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ltn_utf8_len against the definition: a sequence is valid exactly if it is the encoding of a code
 * point below U+110000 that is not a surrogate. All inputs of up to three bytes, all encodings of
 * four, and every wrong lead or second byte of four.
 */
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "cmocka_all.h"

static unsigned char *table; /* bit set: these three bytes (big-endian index) are one character */
static unsigned char two[65536];

static size_t encode(uint32_t cp, unsigned char out[4])
{
    if (cp < 0x80) {
        out[0] = (unsigned char)cp;
        return 1;
    }
    if (cp < 0x800) {
        out[0] = (unsigned char)(0xc0 | cp >> 6);
        out[1] = (unsigned char)(0x80 | (cp & 0x3f));
        return 2;
    }
    if (cp < 0x10000) {
        out[0] = (unsigned char)(0xe0 | cp >> 12);
        out[1] = (unsigned char)(0x80 | (cp >> 6 & 0x3f));
        out[2] = (unsigned char)(0x80 | (cp & 0x3f));
        return 3;
    }
    out[0] = (unsigned char)(0xf0 | cp >> 18);
    out[1] = (unsigned char)(0x80 | (cp >> 12 & 0x3f));
    out[2] = (unsigned char)(0x80 | (cp >> 6 & 0x3f));
    out[3] = (unsigned char)(0x80 | (cp & 0x3f));
    return 4;
}

static bool surrogate(uint32_t cp)
{
    return cp >= 0xd800 && cp < 0xe000;
}

static int make_tables(void **state)
{
    (void)state;
    table = calloc(1, (1U << 24) / 8);
    if (table == NULL) {
        return -1;
    }
    for (uint32_t cp = 0x80; cp < 0x10000; cp++) {
        unsigned char b[4];
        if (surrogate(cp)) {
            continue;
        }
        if (encode(cp, b) == 2) {
            two[b[0] << 8 | b[1]] = 1;
        } else {
            uint32_t i = (uint32_t)b[0] << 16 | (uint32_t)b[1] << 8 | b[2];
            table[i / 8] = (unsigned char)(table[i / 8] | 1U << i % 8);
        }
    }
    return 0;
}

static int free_tables(void **state)
{
    (void)state;
    free(table);
    return 0;
}

static void up_to_three_bytes(void **state)
{
    (void)state;
    unsigned long wrong = 0;
    assert_int_equal(ltn_utf8_len("", 0), 0);
    for (uint32_t i = 0; i < 1U << 24; i++) {
        const char s[3] = {(char)(i >> 16), (char)(i >> 8), (char)i};
        size_t one_len = i >> 16 < 0x80 ? 1 : 0;
        size_t two_len = one_len != 0 ? one_len : two[i >> 8] != 0 ? 2 : 0;
        size_t three_len = two_len != 0 ? two_len : (table[i / 8] >> i % 8 & 1) != 0 ? 3 : 0;
        wrong += ltn_utf8_len(s, 3) != three_len;
        if ((i & 0xff) == 0) {
            wrong += ltn_utf8_len(s, 2) != two_len;
        }
        if ((i & 0xffff) == 0) {
            wrong += ltn_utf8_len(s, 1) != one_len;
        }
    }
    assert_int_equal(wrong, 0);
}

static void four_bytes(void **state)
{
    (void)state;
    unsigned long wrong = 0;
    for (uint32_t cp = 0x10000; cp < 0x110000; cp++) {
        unsigned char b[5] = {0};
        assert_int_equal(encode(cp, b), 4);
        wrong += ltn_utf8_len((const char *)b, 5) != 4;
        wrong += ltn_utf8_len((const char *)b, 4) != 4;
        wrong += ltn_utf8_len((const char *)b, 3) != 0;
    }
    for (unsigned lead = 0xf0; lead < 0x100; lead++) {
        for (unsigned i = 0; i < 0x10000; i++) {
            const unsigned char b[4] = {(unsigned char)lead, (unsigned char)(i >> 8),
                                        (unsigned char)i, 0xbf};
            uint32_t cp = (lead & 7) << 18 | (b[1] & 0x3fU) << 12 | (b[2] & 0x3fU) << 6 | 0x3f;
            unsigned char again[4];
            bool valid = cp < 0x110000 && encode(cp, again) == 4 && memcmp(again, b, 4) == 0;
            wrong += ltn_utf8_len((const char *)b, 4) != (valid ? 4 : 0);
        }
    }
    assert_int_equal(wrong, 0);
}

static void whole_strings(void **state)
{
    (void)state;
    assert_true(ltn_utf8_valid("", 0));
    assert_true(ltn_utf8_valid("a\xc3\xbc\xe2\x82\xac\xf0\x9f\x9a\xb2", 10));
    assert_false(ltn_utf8_valid("a\xc3\xbc\xe2\x82\xac\xf0\x9f\x9a\xb2", 9));
    assert_false(ltn_utf8_valid("ok\x80", 3));
    assert_true(ltn_utf8_valid("\0", 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(up_to_three_bytes),
        cmocka_unit_test(four_bytes),
        cmocka_unit_test(whole_strings),
    };
    return cmocka_run_group_tests(tests, make_tables, free_tables);
}
