/* SPDX-License-Identifier: Apache-2.0 */
#include "discover/util.h"

#include <errno.h>

#include "base/err.h"
#include "probe/tracepoint.h"

static void test_counts(void **state)
{
    (void)state;
    if (access("/sys/kernel/btf/vmlinux", R_OK) != 0) {
        assert_int_equal(ltn_tracepoint_arg_count("sched_switch"), LTN_ERR_UNSUPPORTED);
        skip();
    }
    /* Unchanged in every kernel: fork(parent, child), sched_wakeup(task). */
    assert_int_equal(ltn_tracepoint_arg_count("sched_process_fork"), 2);
    assert_int_equal(ltn_tracepoint_arg_count("sched_wakeup"), 1);
    assert_int_equal(ltn_tracepoint_arg_count("sys_enter"), 2);
    int n = ltn_tracepoint_arg_count("sched_switch");
    assert_true(n == 3 || n == 4);
    assert_int_equal(ltn_tracepoint_arg_count("no_such_tracepoint"), LTN_ERR_NOT_FOUND);
    assert_int_equal(ltn_tracepoint_arg_count(""), -EINVAL);
    char name[400];
    memset(name, 'a', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    assert_int_equal(ltn_tracepoint_arg_count(name), -EINVAL);
    ltn_tracepoint_done();
    assert_int_equal(ltn_tracepoint_arg_count("sched_wakeup"), 1);
    ltn_tracepoint_done();
    ltn_tracepoint_done();
}

/* A function that is not there cannot be traced; asked twice, it is remembered. */
static void functions_that_are_not_there(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        assert_false(ltn_kernel_function_traceable("no_such_function_in_any_kernel"));
        assert_false(ltn_kernel_function_traceable(""));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_counts),
                                       cmocka_unit_test(functions_that_are_not_there)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
