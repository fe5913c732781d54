/* SPDX-License-Identifier: Apache-2.0 */
#include "base/arena.h"

#include <stdalign.h>
#include <string.h>

#include "cmocka_all.h"

static void pointers_are_aligned_and_apart(void **state)
{
    (void)state;
    struct ltn_arena a;
    ltn_arena_init(&a, 512, 64 * 1024);
    unsigned char *p[200];
    for (size_t i = 0; i < 200; i++) {
        size_t n = i % 37;
        p[i] = ltn_arena_alloc(&a, n);
        assert_non_null(p[i]);
        assert_int_equal((uintptr_t)p[i] % alignof(max_align_t), 0);
        memset(p[i], (int)i, n);
    }
    for (size_t i = 0; i < 200; i++) {
        for (size_t k = 0; k < i % 37; k++) {
            assert_int_equal(p[i][k], i);
        }
    }
    assert_true(a.used_bytes <= a.cap_bytes);
    ltn_arena_done(&a);
}

static void the_ceiling_holds(void **state)
{
    (void)state;
    struct ltn_arena a;
    ltn_arena_init(&a, 256, 4096);
    size_t got = 0;
    while (ltn_arena_alloc(&a, 100) != NULL) {
        got++;
        assert_true(a.used_bytes <= 4096);
    }
    assert_in_range(got, 20, 40);
    assert_null(ltn_arena_alloc(&a, 4096));
    ltn_arena_done(&a);
    assert_int_equal(a.used_bytes, 0);

    ltn_arena_init(&a, 4096, 100);
    assert_null(ltn_arena_alloc(&a, 1));
    ltn_arena_init(&a, 256, 0);
    assert_null(ltn_arena_alloc(&a, 0));
    ltn_arena_done(&a);
}

static void large_requests_get_their_own_chunk(void **state)
{
    (void)state;
    struct ltn_arena a;
    ltn_arena_init(&a, 256, 1 << 20);
    char *big = ltn_arena_alloc(&a, 100000);
    assert_non_null(big);
    memset(big, 1, 100000);
    assert_non_null(ltn_arena_alloc(&a, 10));
    ltn_arena_done(&a);
}

static void absurd_sizes_fail(void **state)
{
    (void)state;
    struct ltn_arena a;
    ltn_arena_init(&a, 256, SIZE_MAX);
    assert_null(ltn_arena_alloc(&a, SIZE_MAX));
    assert_null(ltn_arena_alloc(&a, SIZE_MAX - 32));
    assert_null(ltn_arena_calloc(&a, SIZE_MAX / 2, 3));
    assert_null(ltn_arena_strndup(&a, "x", SIZE_MAX));
    assert_int_equal(a.used_bytes, 0);
    ltn_arena_done(&a);
}

static void reset_keeps_one_chunk(void **state)
{
    (void)state;
    struct ltn_arena a;
    ltn_arena_init(&a, 256, 1 << 20);
    for (int i = 0; i < 100; i++) {
        assert_non_null(ltn_arena_alloc(&a, 200));
    }
    size_t before = a.used_bytes;
    ltn_arena_reset(&a);
    size_t kept = a.used_bytes;
    assert_true(kept > 0 && kept < before / 50);
    assert_non_null(ltn_arena_alloc(&a, 200));
    assert_int_equal(a.used_bytes, kept);
    ltn_arena_reset(&a);
    assert_int_equal(a.used_bytes, kept);
    ltn_arena_done(&a);
    ltn_arena_reset(&a);
    ltn_arena_done(&a);
    ltn_arena_done(NULL);
}

static void calloc_clears_reused_memory(void **state)
{
    (void)state;
    struct ltn_arena a;
    ltn_arena_init(&a, 256, 4096);
    void *dirty = ltn_arena_alloc(&a, 128);
    assert_non_null(dirty);
    memset(dirty, 0xff, 128);
    ltn_arena_reset(&a);
    const unsigned char *p = ltn_arena_calloc(&a, 16, 8);
    assert_non_null(p);
    for (size_t i = 0; i < 128; i++) {
        assert_int_equal(p[i], 0);
    }
    ltn_arena_done(&a);
}

static void strndup_terminates(void **state)
{
    (void)state;
    struct ltn_arena a;
    ltn_arena_init(&a, 256, 4096);
    assert_string_equal(ltn_arena_strndup(&a, "abcdef", 3), "abc");
    assert_string_equal(ltn_arena_strndup(&a, NULL, 0), "");
    ltn_arena_done(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pointers_are_aligned_and_apart),
        cmocka_unit_test(the_ceiling_holds),
        cmocka_unit_test(large_requests_get_their_own_chunk),
        cmocka_unit_test(absurd_sizes_fail),
        cmocka_unit_test(reset_keeps_one_chunk),
        cmocka_unit_test(calloc_clears_reused_memory),
        cmocka_unit_test(strndup_terminates),
    };
    return LTN_RUN_TESTS(tests);
}
