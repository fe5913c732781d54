/* SPDX-License-Identifier: Apache-2.0 */
/* The protobuf wire reader and writer by themselves. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/err.h"
#include "otlp/pb_read.h"
#include "otlp/pb_write.h"

/* Reads one field of the literal s, whose NUL is not part of it. */
static int next_of(const char *s, size_t n, struct ltn_pb_field *f)
{
    struct ltn_pb_cur c;
    /* A copy of exactly n bytes, so that a sanitizer sees any read beyond. */
    uint8_t *copy = malloc(n > 0 ? n : 1);
    assert_non_null(copy);
    memcpy(copy, s, n);
    ltn_pb_init(&c, copy, n, 4);
    int rc = ltn_pb_next(&c, f);
    if (rc < 0) {
        assert_ptr_equal(c.p, copy);
    }
    free(copy);
    return rc;
}

#define NEXT(s, f) next_of(s, sizeof(s) - 1, f)

static void test_varints(void **state)
{
    (void)state;
    struct ltn_pb_field f;
    assert_int_equal(NEXT("\x08\x00", &f), 1);
    assert_int_equal(f.value, 0);
    assert_int_equal(NEXT("\x08\xac\x02", &f), 1);
    assert_int_equal(f.value, 300);
    assert_int_equal(f.number, 1);
    assert_int_equal(NEXT("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", &f), 1);
    assert_true(f.value == UINT64_MAX);
    /* Not the shortest form, but legal. */
    assert_int_equal(NEXT("\x08\x81\x80\x80\x00", &f), 1);
    assert_int_equal(f.value, 1);
    /* Bits above 64 fall away. */
    assert_int_equal(NEXT("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7e", &f), 1);
    assert_true(f.value == UINT64_MAX >> 1);
    /* 11 bytes, cut. */
    assert_int_equal(NEXT("\x08\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", &f),
                     LTN_ERR_MALFORMED);
    assert_int_equal(NEXT("\x08\xac", &f), LTN_ERR_MALFORMED);
    assert_int_equal(NEXT("\x08", &f), LTN_ERR_MALFORMED);
    assert_int_equal(NEXT("\x88", &f), LTN_ERR_MALFORMED);
}

static void test_tags(void **state)
{
    (void)state;
    struct ltn_pb_field f;
    assert_int_equal(NEXT("", &f), 0);
    assert_int_equal(NEXT("\x00\x00", &f), LTN_ERR_MALFORMED); /* field 0 */
    assert_int_equal(NEXT("\x07\x00", &f), LTN_ERR_MALFORMED);
    assert_int_equal(NEXT("\x0c", &f), LTN_ERR_MALFORMED);
    assert_int_equal(NEXT("\x0e\x00", &f), LTN_ERR_MALFORMED);
    assert_int_equal(NEXT("\x0f\x00", &f), LTN_ERR_MALFORMED);
    /* The highest field number, and one above. */
    assert_int_equal(NEXT("\xf8\xff\xff\xff\x0f\x01", &f), 1);
    assert_int_equal(f.number, 536870911);
    assert_int_equal(NEXT("\x80\x80\x80\x80\x10\x01", &f), LTN_ERR_MALFORMED);
}

static void test_groups(void **state)
{
    (void)state;
    struct ltn_pb_field f;
    assert_int_equal(NEXT("\x0b\x0c", &f), 0);
    assert_int_equal(NEXT("\x0b\x0c\x13\x14", &f), 0);
    assert_int_equal(NEXT("\x0b\x0c\x13\x14\x10\x07", &f), 1);
    assert_true(f.number == 2 && f.value == 7);
    /* Fields of every form, and groups, in a group; field numbers of two bytes. */
    assert_int_equal(NEXT("\x0b\x08\x96\x01\x12\x02\x0c\x0c\x19"
                          "12345678\x25"
                          "1234\xa3\x06\xa4\x06\x0c\x08\x01",
                          &f),
                     1);
    assert_true(f.number == 1 && f.value == 1);
    assert_int_equal(NEXT("\x0b\x0b\x0b\x0c\x0c\x0c", &f), 0);
    /* One more than messages may nest here. */
    assert_int_equal(NEXT("\x0b\x0b\x0b\x0b\x0c\x0c\x0c\x0c", &f), LTN_ERR_MALFORMED);
    /* Without an end, with another's, with a bad or a cut field inside, or an end alone behind. */
    assert_int_equal(NEXT("\x0b", &f), LTN_ERR_MALFORMED);
    assert_int_equal(NEXT("\x0b\x14", &f), LTN_ERR_MALFORMED);
    assert_int_equal(NEXT("\x0b\x13\x0c\x14", &f), LTN_ERR_MALFORMED);
    assert_int_equal(NEXT("\x0b\x04\x0c", &f), LTN_ERR_MALFORMED);
    assert_int_equal(NEXT("\x0b\x0e\x0c", &f), LTN_ERR_MALFORMED);
    assert_int_equal(NEXT("\x0b\x08\x0c", &f), LTN_ERR_MALFORMED);
    assert_int_equal(NEXT("\x0b\x12\x05\x0c", &f), LTN_ERR_MALFORMED);
    assert_int_equal(NEXT("\x0b\x19\x0c", &f), LTN_ERR_MALFORMED);
    assert_int_equal(NEXT("\x0b\x0c\x0c", &f), LTN_ERR_MALFORMED);
}

static void test_fixed_and_len(void **state)
{
    (void)state;
    struct ltn_pb_field f;
    assert_int_equal(NEXT("\x09\x01\x02\x03\x04\x05\x06\x07\x08", &f), 1);
    assert_true(f.value == 0x0807060504030201ULL);
    assert_int_equal(NEXT("\x09\x01\x02\x03\x04\x05\x06\x07", &f), LTN_ERR_MALFORMED);
    assert_int_equal(NEXT("\x0d\x01\x02\x03\x84", &f), 1);
    assert_true(f.value == 0x84030201ULL);
    assert_int_equal(NEXT("\x0d\x01\x02\x03", &f), LTN_ERR_MALFORMED);
    assert_int_equal(NEXT("\x0a\x03"
                          "abc",
                          &f),
                     1);
    assert_int_equal(f.value, 3);
    assert_int_equal(NEXT("\x0a\x04"
                          "abc",
                          &f),
                     LTN_ERR_MALFORMED);
    /* Lengths that would wrap a pointer. */
    assert_int_equal(NEXT("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", &f), LTN_ERR_MALFORMED);
    assert_int_equal(NEXT("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f", &f), LTN_ERR_MALFORMED);
}

static void test_depth(void **state)
{
    (void)state;
    const char nested[] = "\x0a\x06\x0a\x04\x0a\x02\x0a\x00";
    struct ltn_pb_cur c, sub;
    struct ltn_pb_field f;
    ltn_pb_init(&c, nested, sizeof(nested) - 1, 4);
    for (int level = 0; level < 3; level++) {
        assert_int_equal(ltn_pb_next(&c, &f), 1);
        assert_int_equal(ltn_pb_enter(&c, &f, &sub), 0);
        c = sub;
    }
    assert_int_equal(ltn_pb_next(&c, &f), 1);
    assert_int_equal(ltn_pb_enter(&c, &f, &sub), LTN_ERR_DEPTH);
    ltn_pb_init(&c, "\x08\x01", 2, 4);
    assert_int_equal(ltn_pb_next(&c, &f), 1);
    assert_int_equal(ltn_pb_enter(&c, &f, &sub), LTN_ERR_MALFORMED);
    ltn_pb_init(&c, NULL, 0, 1);
    assert_int_equal(ltn_pb_next(&c, &f), 0);
}

static void test_repeated(void **state)
{
    (void)state;
    uint64_t out[4];
    size_t n = 0;
    struct ltn_pb_field f;
    assert_int_equal(NEXT("\x12\x00", &f), 1);
    assert_int_equal(ltn_pb_repeated(&f, LTN_PB_VARINT, out, 4, &n), 0);
    assert_int_equal(n, 0);
    struct ltn_pb_cur c;
    ltn_pb_init(&c, "\x12\x03\x01\xac\x02\x10\x07", 7, 4);
    assert_int_equal(ltn_pb_next(&c, &f), 1);
    assert_int_equal(ltn_pb_repeated(&f, LTN_PB_VARINT, out, 4, &n), 0);
    assert_int_equal(ltn_pb_repeated(&f, LTN_PB_I64, out, 4, &n), LTN_ERR_MALFORMED);
    assert_int_equal(ltn_pb_next(&c, &f), 1);
    assert_int_equal(ltn_pb_repeated(&f, LTN_PB_VARINT, out, 4, &n), 0);
    assert_int_equal(n, 3);
    assert_int_equal(out[0], 1);
    assert_int_equal(out[1], 300);
    assert_int_equal(out[2], 7);
    /* The last varint of a packed run must not read on into what follows. */
    ltn_pb_init(&c, "\x12\x01\x80\x01", 4, 4);
    assert_int_equal(ltn_pb_next(&c, &f), 1);
    assert_int_equal(ltn_pb_repeated(&f, LTN_PB_VARINT, out, 4, &n), LTN_ERR_MALFORMED);
    ltn_pb_init(&c, "\x12\x03\x01\x01\x01", 5, 4);
    assert_int_equal(ltn_pb_next(&c, &f), 1);
    assert_int_equal(ltn_pb_repeated(&f, LTN_PB_VARINT, out, 4, &n), LTN_ERR_COUNT);
    assert_int_equal(n, 4);
}

static void test_sint(void **state)
{
    (void)state;
    assert_int_equal(ltn_pb_sint32(0), 0);
    assert_int_equal(ltn_pb_sint32(1), -1);
    assert_int_equal(ltn_pb_sint32(2), 1);
    assert_int_equal(ltn_pb_sint32(0xfffffffeu), INT32_MAX);
    assert_int_equal(ltn_pb_sint32(0xffffffffu), INT32_MIN);
}

/* Nested lengths on both sides of the widths of a varint. */
static void test_write_nested(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 124, 125, 126, 127, 128, 16378, 16380, 16384, 2097152};
    static char blob[2097152];
    memset(blob, 'x', sizeof(blob));
    for (size_t i = 0; i < LTN_ARRAY_SIZE(sizes); i++) {
        struct ltn_buf b;
        struct ltn_pb_cur c, sub = {.p = NULL}, leaf = {.p = NULL};
        struct ltn_pb_field f;
        ltn_buf_init(&b, 1 << 22);
        size_t outer = ltn_pb_open(&b, 1);
        size_t inner = ltn_pb_open(&b, 2);
        ltn_pb_put_bytes_field(&b, 3, blob, sizes[i]);
        ltn_pb_close(&b, inner);
        ltn_pb_put_u64_field(&b, 4, 7);
        ltn_pb_close(&b, outer);
        assert_int_equal(ltn_buf_error(&b), 0);
        size_t leaf_bytes = 1 + ltn_pb_varint_bytes(sizes[i]) + sizes[i];
        size_t inner_bytes = 1 + ltn_pb_varint_bytes(leaf_bytes) + leaf_bytes + 2;
        assert_int_equal(b.len, 1 + ltn_pb_varint_bytes(inner_bytes) + inner_bytes);
        ltn_pb_init(&c, b.data, b.len, 8);
        assert_int_equal(ltn_pb_next(&c, &f), 1);
        assert_int_equal(ltn_pb_enter(&c, &f, &sub), 0);
        assert_int_equal(ltn_pb_next(&c, &f), 0);
        assert_int_equal(ltn_pb_next(&sub, &f), 1);
        assert_int_equal(ltn_pb_enter(&sub, &f, &leaf), 0);
        assert_int_equal(ltn_pb_next(&leaf, &f), 1);
        assert_int_equal(f.value, sizes[i]);
        assert_memory_equal(f.data, blob, sizes[i]);
        assert_int_equal(ltn_pb_next(&sub, &f), 1);
        assert_int_equal(f.value, 7);
        ltn_buf_done(&b);
    }
}

static void test_write_numbers(void **state)
{
    (void)state;
    static const uint64_t packed[] = {0, 127, 128, UINT64_MAX};
    static const char want[] = "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"
                               "\x10\x03"
                               "\x19\x08\x07\x06\x05\x04\x03\x02\x01"
                               "\x21\x00\x00\x00\x00\x00\x00\xf0\x3f"
                               "\x2d\x04\x03\x02\x01"
                               "\x32\x02hi"
                               "\x3a\x0e\x00\x7f\x80\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01";
    struct ltn_buf b;
    ltn_buf_init(&b, 1000);
    ltn_pb_put_u64_field(&b, 1, UINT64_MAX);
    ltn_pb_put_sint_field(&b, 2, -2);
    ltn_pb_put_i64_field(&b, 3, 0x0102030405060708ULL);
    ltn_pb_put_f64_field(&b, 4, 1.0);
    ltn_pb_put_i32_field(&b, 5, 0x01020304u);
    ltn_pb_put_str_field(&b, 6, "hi");
    ltn_pb_put_packed_u64(&b, 7, packed, LTN_ARRAY_SIZE(packed));
    ltn_pb_put_packed_u64(&b, 8, NULL, 0);
    assert_int_equal(b.len, sizeof(want) - 1);
    assert_memory_equal(b.data, want, b.len);
    ltn_buf_done(&b);
}

static void test_write_ceiling(void **state)
{
    (void)state;
    char blob[130] = {0};
    for (size_t max = 0; max < 140; max++) {
        struct ltn_buf b;
        ltn_buf_init(&b, max);
        size_t mark = ltn_pb_open(&b, 1);
        ltn_pb_put_bytes_field(&b, 2, blob, sizeof(blob));
        ltn_pb_close(&b, mark);
        assert_true(b.len <= max);
        assert_int_equal(ltn_buf_error(&b), max < 3 + 3 + 130 ? LTN_ERR_TOO_LARGE : 0);
        ltn_buf_done(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_varints),       cmocka_unit_test(test_tags),
        cmocka_unit_test(test_groups),        cmocka_unit_test(test_fixed_and_len),
        cmocka_unit_test(test_depth),         cmocka_unit_test(test_repeated),
        cmocka_unit_test(test_sint),          cmocka_unit_test(test_write_nested),
        cmocka_unit_test(test_write_numbers), cmocka_unit_test(test_write_ceiling),
    };
    return cmocka_run_group_tests_name("otlp_pb", tests, NULL, NULL);
}
