/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/attr.h"
#include "base/file.h"
#include "capture/cgroups.h"
#include "drop_tree.h"

static char dir[32];
static struct ltn_cgroups c;

/* A hierarchy of our own in place of the machine's: this process is at the place that
 * /proc/self/cgroup says, below it. */
static int setup(void **state)
{
    (void)state;
    (void)snprintf(dir, sizeof(dir), "/tmp/ltn-cgr-XXXXXX");
    if (mkdtemp(dir) == NULL) {
        return -1;
    }
    ltn_cgroups_init(&c);
    c.v1[0] = '\0';
    (void)snprintf(c.v2, sizeof(c.v2), "%s", dir);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    ltn_cgroups_done(&c);
    return ltn_drop_tree(dir);
}

/* Path of this process in the hierarchy of version 2; false where there is none. */
static bool own_path(char *out, size_t size)
{
    char text[4096];
    if (ltn_file_read_head("/proc/self/cgroup", text, sizeof(text)) <= 0) {
        return false;
    }
    const char *at = strstr(text, "0::");
    if (at == NULL || (at != text && at[-1] != '\n')) {
        return false;
    }
    (void)snprintf(out, size, "%.*s", (int)strcspn(at + 3, "\n"), at + 3);
    return true;
}

static void make_folders(char *path)
{
    for (char *p = path + 1; *p != '\0'; p++) {
        if (*p == '/') {
            *p = '\0';
            (void)mkdir(path, 0700);
            *p = '/';
        }
    }
    (void)mkdir(path, 0700);
}

static void put_stat(const char *below, const char *text)
{
    char path[1024];
    (void)snprintf(path, sizeof(path), "%s%s", dir, below);
    make_folders(path);
    (void)snprintf(path, sizeof(path), "%s%s/cpu.stat", dir, below);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void a_limit_of_version_2_is_read(void **state)
{
    (void)state;
    char own[LTN_CGROUP_PATH_BYTES];
    struct ltn_throttle t;
    const uint32_t self = (uint32_t)getpid();
    if (!own_path(own, sizeof(own))) {
        print_message("SKIP: part: no cgroup of version 2\n");
        return;
    }
    put_stat(own, "usage_usec 5\nnr_periods 100\nnr_throttled 10\nthrottled_usec 1000\n");
    ltn_cgroups_turn(&c);
    assert_false(ltn_cgroups_throttle(&c, self, &t)); /* takes its bearings */
    put_stat(own, "usage_usec 9\nnr_periods 130\nnr_throttled 15\nthrottled_usec 4000\n");
    assert_false(ltn_cgroups_throttle(&c, self, &t)); /* the same window: not read again */
    ltn_cgroups_turn(&c);
    assert_true(ltn_cgroups_throttle(&c, self, &t));
    assert_int_equal(t.periods, 30);
    assert_int_equal(t.throttled, 5);
    assert_int_equal(t.throttled_ns, 3000 * LTN_NS_PER_US);
    assert_int_equal(t.throttled_total_ns, 4000 * LTN_NS_PER_US);
    assert_string_equal(t.path, own);
    assert_true(ltn_cgroups_throttle(&c, self, &t)); /* another process of the same cgroup */
    ltn_cgroups_turn(&c);
    assert_false(ltn_cgroups_throttle(&c, self, &t)); /* nothing was added */
}

static void what_is_no_limit_is_none(void **state)
{
    (void)state;
    struct ltn_throttle t;
    char own[LTN_CGROUP_PATH_BYTES];
    if (own_path(own, sizeof(own))) {
        put_stat(own, "nonsense\nxnr_throttled 5\nthrottled_usec");
    }
    for (int i = 0; i < 3; i++) {
        ltn_cgroups_turn(&c);
        assert_false(ltn_cgroups_throttle(&c, (uint32_t)getpid(), &t));
        assert_false(ltn_cgroups_throttle(&c, 0x7fffffff, &t));
    }
    assert_null(ltn_cgroups_path(&c, 0));
    assert_null(ltn_cgroups_path(&c, UINT64_MAX));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_limit_of_version_2_is_read, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_no_limit_is_none, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
