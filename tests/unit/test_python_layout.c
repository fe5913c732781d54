/* SPDX-License-Identifier: Apache-2.0 */
#include "cmocka_all.h"

#include <string.h>

#include "base/attr.h"
#include "base/err.h"
#include "symbol/python_layout.h"

#define V(minor) LTN_PYTHON_VERSION(3, minor)

static void known_versions(void **state)
{
    (void)state;
    static const uint32_t known[] = {V(9),
                                     V(10),
                                     V(11),
                                     V(12),
                                     V(13),
                                     V(14),
                                     V(15),
                                     V(13) | LTN_PYTHON_FREE_THREADED,
                                     V(14) | LTN_PYTHON_FREE_THREADED};
    struct ltn_python_process p;
    for (size_t i = 0; i < LTN_ARRAY_SIZE(known); i++) {
        assert_int_equal(ltn_python_layout_get(known[i], &p), 0);
        assert_int_equal(p.version, known[i]);
        /* What the kernel programs take for granted. */
        assert_true(p.frame_bytes <= 112 && p.frame_bytes % 8 == 0);
        assert_true(p.code_word * 8 < p.frame_bytes && p.previous_word * 8 < p.frame_bytes);
        assert_true(p.position_word * 8 < p.frame_bytes);
        assert_true(p.owner_word == 15 || p.owner_word * 8 < p.frame_bytes);
        assert_true(p.first_line_word < 11);
        assert_int_equal(p.code_identity + 80, p.code_table);
        assert_int_equal(p.code_identity + p.first_line_word * 8 + p.first_line_shift / 8,
                         p.code_first_line);
        assert_int_equal(p.text_compact - p.text_ascii, i < 3 ? 24 : 16);
    }
    assert_int_equal(ltn_python_layout_get(V(8), &p), LTN_ERR_UNSUPPORTED);
    assert_int_equal(ltn_python_layout_get(V(16), &p), LTN_ERR_UNSUPPORTED);
    assert_int_equal(ltn_python_layout_get(V(12) | LTN_PYTHON_FREE_THREADED, &p),
                     LTN_ERR_UNSUPPORTED);
    assert_int_equal(ltn_python_layout_get(0, &p), LTN_ERR_UNSUPPORTED);
}

static void put(uint8_t *runtime, unsigned at, uint64_t value)
{
    memcpy(runtime + at, &value, sizeof(value));
}

/* What 3.13.0 publishes. */
static void publish(uint8_t runtime[LTN_PYTHON_DEBUG_BYTES])
{
    static const uint16_t entries[][2] = {
        {40, 632}, {64, 7264}, {72, 7344}, {168, 8},   {184, 72},  {192, 152}, {232, 8},
        {240, 0},  {248, 56},  {264, 70},  {280, 112}, {288, 120}, {296, 128}, {304, 136},
        {312, 68}, {344, 200}, {552, 16},  {560, 40},  {520, 16},  {528, 32},
    };
    memset(runtime, 0, LTN_PYTHON_DEBUG_BYTES);
    memcpy(runtime, "xdebugpy", 8);
    put(runtime, 8, 0x030d00f0);
    for (size_t i = 0; i < LTN_ARRAY_SIZE(entries); i++) {
        put(runtime, entries[i][0], entries[i][1]);
    }
}

static void adopts_what_the_interpreter_says(void **state)
{
    (void)state;
    uint8_t runtime[LTN_PYTHON_DEBUG_BYTES];
    struct ltn_python_process p;
    bool agreed = false;
    publish(runtime);
    assert_int_equal(ltn_python_layout_version(runtime, sizeof(runtime)), V(13));
    assert_int_equal(ltn_python_layout_get(V(13), &p), 0);
    assert_int_equal(ltn_python_layout_adopt(runtime, sizeof(runtime), &p, &agreed), 0);
    assert_true(agreed);
    put(runtime, 344, 208); /* a patch release that moved the code */
    put(runtime, 264, 74);
    assert_int_equal(ltn_python_layout_adopt(runtime, sizeof(runtime), &p, &agreed), 0);
    assert_false(agreed);
    assert_int_equal(p.code_bytes, 208);
    assert_int_equal(p.owner_word, 9);
    assert_int_equal(p.owner_shift, 16);
}

static void refuses_what_cannot_be(void **state)
{
    (void)state;
    static const uint16_t bad[][2] = {{232, 4}, {240, 80},  {248, 500}, {264, 80},
                                      {304, 8}, {312, 200}, {64, 65535}};
    uint8_t runtime[LTN_PYTHON_DEBUG_BYTES];
    struct ltn_python_process p;
    struct ltn_python_process before;
    bool agreed;
    for (size_t i = 0; i < LTN_ARRAY_SIZE(bad); i++) {
        publish(runtime);
        put(runtime, bad[i][0], bad[i][1]);
        assert_int_equal(ltn_python_layout_get(V(13), &p), 0);
        before = p;
        assert_int_equal(ltn_python_layout_adopt(runtime, sizeof(runtime), &p, &agreed),
                         LTN_ERR_UNSUPPORTED);
        assert_memory_equal(&p, &before, sizeof(p));
    }
    publish(runtime);
    assert_int_equal(ltn_python_layout_adopt(runtime, 300, &p, &agreed), LTN_ERR_UNSUPPORTED);
    put(runtime, 16, 1); /* free-threaded: another layout */
    assert_int_equal(ltn_python_layout_adopt(runtime, sizeof(runtime), &p, &agreed),
                     LTN_ERR_UNSUPPORTED);
    runtime[0] = 'X';
    assert_int_equal(ltn_python_layout_version(runtime, sizeof(runtime)), 0);
    assert_int_equal(ltn_python_layout_version(runtime, 10), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_versions),
        cmocka_unit_test(adopts_what_the_interpreter_says),
        cmocka_unit_test(refuses_what_cannot_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
