/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "cmocka_all.h"

static void appends_add_up(void **state)
{
    (void)state;
    struct ltn_buf b;
    ltn_buf_init(&b, 1000);
    assert_string_equal(ltn_buf_str(&b), "");
    assert_int_equal(ltn_buf_puts(&b, "ab"), 0);
    assert_int_equal(ltn_buf_putc(&b, 'c'), 0);
    assert_int_equal(ltn_buf_append(&b, "\0d", 2), 0);
    assert_int_equal(ltn_buf_append(&b, NULL, 0), 0);
    assert_int_equal(ltn_buf_printf(&b, "%d-%s", 42, "e"), 0);
    assert_int_equal(b.len, 9);
    assert_memory_equal(b.data, "abc\0d42-e", 10);
    assert_int_equal(ltn_buf_error(&b), 0);
    ltn_buf_done(&b);
    assert_null(b.data);
    ltn_buf_done(&b);
    ltn_buf_done(NULL);
}

static void grows_to_the_ceiling_exactly(void **state)
{
    (void)state;
    for (size_t max = 0; max < 300; max++) {
        struct ltn_buf b;
        ltn_buf_init(&b, max);
        for (size_t i = 0; i < max; i++) {
            assert_int_equal(ltn_buf_putc(&b, (char)('a' + i % 26)), 0);
        }
        assert_int_equal(ltn_buf_error(&b), 0);
        assert_int_equal(ltn_buf_putc(&b, 'x'), LTN_ERR_TOO_LARGE);
        assert_int_equal(b.len, max);
        assert_true(b.size <= max + 1 || b.data == NULL);
        for (size_t i = 0; i < max; i++) {
            assert_int_equal(b.data[i], 'a' + i % 26);
        }
        ltn_buf_done(&b);
    }
}

static void errors_stick_until_reset(void **state)
{
    (void)state;
    struct ltn_buf b;
    ltn_buf_init(&b, 4);
    assert_int_equal(ltn_buf_puts(&b, "abc"), 0);
    assert_int_equal(ltn_buf_puts(&b, "de"), LTN_ERR_TOO_LARGE);
    assert_string_equal(ltn_buf_str(&b), "abc");
    /* It would fit, but the content would have a hole. */
    assert_int_equal(ltn_buf_putc(&b, 'd'), LTN_ERR_TOO_LARGE);
    assert_int_equal(ltn_buf_printf(&b, "%c", 'd'), LTN_ERR_TOO_LARGE);
    assert_null(ltn_buf_reserve(&b, 1));
    assert_int_equal(ltn_buf_error(&b), LTN_ERR_TOO_LARGE);
    ltn_buf_reset(&b);
    assert_int_equal(ltn_buf_error(&b), 0);
    assert_string_equal(ltn_buf_str(&b), "");
    assert_int_equal(ltn_buf_puts(&b, "wxyz"), 0);
    assert_string_equal(ltn_buf_str(&b), "wxyz");
    ltn_buf_done(&b);
}

static void no_ceiling_to_speak_of(void **state)
{
    (void)state;
    struct ltn_buf b;
    ltn_buf_init(&b, SIZE_MAX);
    assert_int_equal(ltn_buf_puts(&b, "still works"), 0);
    assert_string_equal(ltn_buf_str(&b), "still works");
    assert_int_equal(ltn_buf_append(&b, "x", SIZE_MAX), LTN_ERR_TOO_LARGE);
    ltn_buf_reset(&b);
    assert_null(ltn_buf_reserve(&b, SIZE_MAX - 4));
    ltn_buf_done(&b);
}

static void reserve_keeps_the_terminator(void **state)
{
    (void)state;
    struct ltn_buf b;
    ltn_buf_init(&b, 100);
    char *at = ltn_buf_reserve(&b, 50);
    assert_non_null(at);
    assert_string_equal(ltn_buf_str(&b), "");
    memcpy(at, "hello", 5);
    ltn_buf_commit(&b, 5);
    assert_string_equal(ltn_buf_str(&b), "hello");
    assert_non_null(ltn_buf_reserve(&b, 95));
    assert_string_equal(ltn_buf_str(&b), "hello");
    assert_null(ltn_buf_reserve(&b, 96));
    ltn_buf_done(&b);
}

static void consume_moves_the_rest(void **state)
{
    (void)state;
    struct ltn_buf b;
    ltn_buf_init(&b, 100);
    ltn_buf_consume(&b, 0);
    assert_int_equal(ltn_buf_puts(&b, "abcdef"), 0);
    ltn_buf_consume(&b, 2);
    assert_string_equal(ltn_buf_str(&b), "cdef");
    ltn_buf_consume(&b, 4);
    assert_string_equal(ltn_buf_str(&b), "");
    assert_int_equal(b.len, 0);
    ltn_buf_done(&b);
}

static void steal_hands_over(void **state)
{
    (void)state;
    struct ltn_buf b;
    size_t len = 99;
    ltn_buf_init(&b, 100);
    assert_null(ltn_buf_steal(&b, &len));
    assert_int_equal(len, 0);
    assert_int_equal(ltn_buf_puts(&b, "mine"), 0);
    char *mine = ltn_buf_steal(&b, &len);
    assert_int_equal(len, 4);
    assert_string_equal(mine, "mine");
    assert_int_equal(b.len, 0);
    assert_int_equal(ltn_buf_puts(&b, "new"), 0);
    assert_string_equal(mine, "mine");
    free(mine);
    ltn_buf_done(&b);
}

static void long_formats_fit(void **state)
{
    (void)state;
    struct ltn_buf b;
    ltn_buf_init(&b, 5000);
    assert_int_equal(ltn_buf_printf(&b, "%4000d", 7), 0);
    assert_int_equal(b.len, 4000);
    assert_int_equal(b.data[3999], '7');
    assert_int_equal(ltn_buf_printf(&b, "%1001d", 7), LTN_ERR_TOO_LARGE);
    assert_int_equal(b.len, 4000);
    ltn_buf_done(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(appends_add_up),
        cmocka_unit_test(grows_to_the_ceiling_exactly),
        cmocka_unit_test(errors_stick_until_reset),
        cmocka_unit_test(no_ceiling_to_speak_of),
        cmocka_unit_test(reserve_keeps_the_terminator),
        cmocka_unit_test(consume_moves_the_rest),
        cmocka_unit_test(steal_hands_over),
        cmocka_unit_test(long_formats_fit),
    };
    return LTN_RUN_TESTS(tests);
}
