/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "engine/scope.h"

static int resolve(const char *name, struct ltn_cgroup_ref *ret)
{
    struct ltn_errinfo info = {0};
    int rc = ltn_cgroup_resolve(name, ret, &info);
    if (rc == LTN_ERR_UNSUPPORTED) {
        (void)printf("no cgroup v2 hierarchy is mounted here\n");
        skip();
    }
    if (rc < 0) {
        assert_string_not_equal(info.msg, "");
    }
    return rc;
}

static void the_root_has_level_0(void **state)
{
    (void)state;
    struct ltn_cgroup_ref ref;
    assert_int_equal(resolve("/", &ref), 0);
    assert_int_equal(ref.level, 0);
    assert_string_equal(ref.path, "/");
    assert_true(ref.id > 0);
}

static void what_is_not_there_is_said(void **state)
{
    (void)state;
    struct ltn_cgroup_ref ref = {.level = 77};
    assert_true(resolve("/no/such/cgroup", &ref) < 0);
    assert_int_equal(ref.level, 77);
}

static void too_long_a_path_is_refused(void **state)
{
    (void)state;
    char name[4096];
    struct ltn_cgroup_ref ref;
    memset(name, 'a', sizeof(name));
    name[0] = '/';
    name[sizeof(name) - 1] = '\0';
    assert_int_equal(resolve(name, &ref), LTN_ERR_TOO_LARGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_root_has_level_0),
        cmocka_unit_test(what_is_not_there_is_said),
        cmocka_unit_test(too_long_a_path_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
