/* SPDX-License-Identifier: Apache-2.0 */
/* When are two descriptors the same file? */
#include "cmocka_all.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "discover/file_id.h"

static struct ltn_file_id id_of(const char *path)
{
    struct ltn_file_id id;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(ltn_file_id_of(fd, &id), 0);
    (void)close(fd);
    return id;
}

static void test_names_of_one_file_and_copies(void **state)
{
    (void)state;
    char dir[] = "/tmp/ltn-file-id-XXXXXX";
    char a[64];
    char b[64];
    char c[64];
    assert_non_null(mkdtemp(dir));
    (void)snprintf(a, sizeof(a), "%s/a", dir);
    (void)snprintf(b, sizeof(b), "%s/b", dir);
    (void)snprintf(c, sizeof(c), "%s/c", dir);
    FILE *f = fopen(a, "we");
    assert_non_null(f);
    (void)fputs("the same words", f);
    (void)fclose(f);
    f = fopen(c, "we");
    assert_non_null(f);
    (void)fputs("the same words", f);
    (void)fclose(f);
    assert_int_equal(link(a, b), 0);
    struct ltn_file_id ia = id_of(a);
    struct ltn_file_id ib = id_of(b);
    struct ltn_file_id ic = id_of(c);
    assert_true(ltn_file_id_same(&ia, &ib));
    assert_false(ltn_file_id_same(&ia, &ic));
    (void)unlink(a);
    (void)unlink(b);
    (void)unlink(c);
    (void)rmdir(dir);
}

static void test_overlays_show_the_file_below(void **state)
{
    (void)state;
    const struct ltn_file_id a = {
        .state = {.dev = 1, .ino = 7, .size_bytes = 9, .mtime_ns = 11, .ctime_ns = 13},
        .overlay = true};
    struct ltn_file_id b = a;
    b.state.dev = 2;
    assert_true(ltn_file_id_same(&a, &b));
    b.state.ctime_ns++;
    assert_false(ltn_file_id_same(&a, &b));
    b = a;
    b.state.dev = 2;
    b.state.ino++;
    assert_false(ltn_file_id_same(&a, &b));
    /* Snapshots of one file system: alike in everything, and two files. */
    b = a;
    b.state.dev = 2;
    b.overlay = false;
    assert_false(ltn_file_id_same(&a, &b));
}

static void test_not_open(void **state)
{
    (void)state;
    struct ltn_file_id id;
    assert_int_equal(ltn_file_id_of(-1, &id), -EBADF);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_of_one_file_and_copies),
        cmocka_unit_test(test_overlays_show_the_file_below),
        cmocka_unit_test(test_not_open),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
