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
        for (size_t k = 0; k < i; k++) {
            assert_string_not_equal(s[i].symbol, s[k].symbol);
        }
    }
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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
