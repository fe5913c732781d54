/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "probe/ops.h"

static void every_op_is_whole_and_unique(void **state)
{
    (void)state;
    for (unsigned id = 1; id < LTN_OP_COUNT; id++) {
        const struct ltn_op *op = ltn_op_get(id);
        assert_non_null(op);
        assert_non_null(op->name);
        assert_int_equal(ltn_op_find(op->name), id);
        assert_int_equal(LTN_COOKIE_OP(op->cookie), id);
        assert_int_equal(LTN_COOKIE_CLASS(op->cookie), op->op_class);
        assert_string_not_equal(ltn_op_class_name(op->op_class), "unknown");
    }
    assert_null(ltn_op_get(LTN_OP_NONE));
    assert_null(ltn_op_get(LTN_OP_COUNT));
    assert_int_equal(ltn_op_find("noSuchFunction"), LTN_OP_NONE);
}

static void every_symbol_belongs_to_an_op_and_stands_once(void **state)
{
    (void)state;
    size_t n;
    const struct ltn_op_symbol *s = ltn_op_symbols(&n);
    assert_true(n >= LTN_OP_COUNT - 1);
    for (size_t i = 0; i < n; i++) {
        assert_non_null(ltn_op_get(s[i].op));
        assert_true(s[i].from_major <= s[i].to_major);
        for (size_t k = 0; k < i; k++) {
            if (strcmp(s[i].symbol, s[k].symbol) == 0) { /* for different versions */
                assert_int_equal(s[i].op, s[k].op);
                assert_true(s[i].from_major > s[k].to_major || s[i].to_major < s[k].from_major);
            }
        }
    }
}

static uint64_t cookie_in(const char *symbol, unsigned major)
{
    size_t n;
    const struct ltn_op_symbol *s = ltn_op_symbols(&n);
    uint64_t found = 0;
    for (size_t i = 0; i < n; i++) {
        uint64_t cookie = strcmp(s[i].symbol, symbol) == 0 ? ltn_op_symbol_cookie(&s[i], major) : 0;
        assert_true(found == 0 || cookie == 0 || major == 0);
        found = cookie != 0 ? cookie : found;
    }
    return found;
}

/* One name, another place of the stream: by the library's version. */
static void one_name_with_several_layouts(void **state)
{
    (void)state;
    static const struct {
        const char *symbol;
        unsigned major;
        unsigned b;
    } rows[] = {
        {"cudaMemPrefetchAsync", 11, 3},    {"cudaMemPrefetchAsync", 12, 3},
        {"cudaMemPrefetchAsync", 13, 4},    {"cudaMemPrefetchAsync", 14, 4},
        {"cudaMemPrefetchAsync_v2", 12, 4}, {"cudaMemcpyBatchAsync", 12, 8},
        {"cudaMemcpyBatchAsync", 13, 7},    {"cuMemPrefetchAsync", 1, 3},
        {"cuMemPrefetchAsync_v2", 1, 4},    {"cuMemcpyBatchAsync", 0, 8},
        {"cuMemcpyBatchAsync_v2", 0, 7},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint64_t cookie = cookie_in(rows[i].symbol, rows[i].major);
        assert_int_equal(LTN_COOKIE_B(cookie), rows[i].b);
    }
    uint64_t unknown = cookie_in("cudaMemPrefetchAsync", 0);
    assert_int_equal(LTN_COOKIE_OP(unknown), ltn_op_find("cudaMemPrefetchAsync"));
    assert_int_equal(LTN_COOKIE_DECODER(unknown), LTN_DECODE_NONE);
    assert_int_equal(cookie_in("cudaMemPrefetchAsync_v2", 13), 0);
    assert_int_equal(ltn_op_soname_major("libcudart.so.11.0"), 11);
    assert_int_equal(ltn_op_soname_major("libcudart-9335f6a2.so.12"), 12);
    assert_int_equal(ltn_op_soname_major("libcudart.so.13"), 13);
    assert_int_equal(ltn_op_soname_major("libcudart.so"), 0);
    assert_int_equal(ltn_op_soname_major(""), 0);
    assert_int_equal(ltn_op_soname_major("libcudart.so.9999999999999999999"), 0);
}

/* Flags above the eighth bit have places of their own and leave the flags alone. */
static void what_a_name_says(void **state)
{
    (void)state;
    uint64_t c = ltn_op_get(ltn_op_find("cuMemcpyDtoH"))->cookie;
    assert_int_equal(LTN_COOKIE_DIRECTION(c), 2);
    assert_int_equal(LTN_COOKIE_FLAGS(c), LTN_OP_BLOCKING);
    c = ltn_op_get(ltn_op_find("cuMemsetD2D32Async"))->cookie;
    assert_int_equal(LTN_COOKIE_SHIFT(c), 2);
    assert_int_equal(LTN_COOKIE_DIRECTION(c), 0);
    assert_int_equal(LTN_COOKIE_FLAGS(c), LTN_OP_DETAIL);
    c = ltn_op_get(ltn_op_find("cudaEventRecord"))->cookie;
    assert_int_equal(LTN_COOKIE_FLAGS(c), LTN_OP_ENTRY_ONLY | LTN_OP_DETAIL);
}

static void every_op_has_a_symbol(void **state)
{
    (void)state;
    size_t n;
    const struct ltn_op_symbol *s = ltn_op_symbols(&n);
    for (unsigned id = 1; id < LTN_OP_COUNT; id++) {
        size_t found = 0;
        for (size_t i = 0; i < n; i++) {
            found += s[i].op == id;
        }
        assert_true(found > 0);
    }
}

/* The positions stand in the reference of the ABI; a slip in the table would decode nonsense
 * silently. */
static void argument_positions(void **state)
{
    (void)state;
    static const struct {
        const char *op;
        unsigned a;
        unsigned b;
    } rows[] = {
        {"cudaLaunchKernel", LTN_ARG_NONE, 7},
        {"cuLaunchKernel", LTN_ARG_NONE, 8},
        {"cudaMemcpyAsync", 2, 4},
        {"cudaMalloc", 1, LTN_ARG_NONE},
        {"ncclAllReduce", 2, 5},
        {"ncclAllGather", 2, 4},
        {"ncclReduce", 2, 6},
        {"ncclSend", 1, 4},
        {"cuMemcpyHtoDAsync", 2, 3},
        {"cudaMemsetAsync", 2, 3},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct ltn_op *op = ltn_op_get(ltn_op_find(rows[i].op));
        assert_non_null(op);
        assert_int_equal(LTN_COOKIE_A(op->cookie), rows[i].a);
        assert_int_equal(LTN_COOKIE_B(op->cookie), rows[i].b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_op_is_whole_and_unique),
        cmocka_unit_test(every_symbol_belongs_to_an_op_and_stands_once),
        cmocka_unit_test(every_op_has_a_symbol),
        cmocka_unit_test(argument_positions),
        cmocka_unit_test(one_name_with_several_layouts),
        cmocka_unit_test(what_a_name_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
