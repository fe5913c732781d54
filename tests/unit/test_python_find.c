/* SPDX-License-Identifier: Apache-2.0 */
/* This program has no Python inside; Debian's interpreter, where it is installed, has. */
#include "cmocka_all.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/err.h"
#include "symbol/python_find.h"
#include "symbol/python_layout.h"

#define PYTHON "/usr/bin/python3"

static void none_in_this_process(void **state)
{
    (void)state;
    struct ltn_python_process p;
    struct ltn_errinfo info = {0};
    assert_int_equal(ltn_python_find(getpid(), &p, &info), LTN_ERR_NOT_FOUND);
    assert_int_equal(ltn_python_find(0x3fffffff, &p, &info), -ESRCH);
    assert_true(info.msg[0] != '\0');
}

static void one_in_python(void **state)
{
    (void)state;
    if (access(PYTHON, X_OK) != 0) {
        print_message("SKIP: there is no " PYTHON "\n");
        skip();
    }
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0) {
        (void)dup2(ready[1], 1);
        (void)execl(PYTHON, PYTHON, "-c", "import os, signal; os.write(1, b'x'); signal.pause()",
                    (char *)NULL);
        _exit(1);
    }
    char byte;
    (void)close(ready[1]);
    ssize_t got = read(ready[0], &byte, 1);
    struct ltn_python_process p = {0};
    struct ltn_python_process again = {0};
    struct ltn_errinfo info = {0};
    int rc = ltn_python_find(pid, &p, &info);
    int rc_again = ltn_python_find(pid, &again, &info);
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, NULL, 0);
    (void)close(ready[0]);
    assert_int_equal(got, 1);
    assert_int_equal(rc, 0);
    assert_int_equal(rc_again, 0);
    assert_true(p.runtime != 0 && p.code_type != 0 && p.text_type != 0 && p.bytes_type != 0);
    assert_int_equal(p.runtime, again.runtime);
    assert_true(p.seed != again.seed);
    assert_true(p.specific_first != 0);
    assert_true(p.version >= LTN_PYTHON_VERSION(3, 9));
}

static void names_of_versions(void **state)
{
    (void)state;
    char name[LTN_PYTHON_VERSION_BYTES];
    ltn_python_version_name(LTN_PYTHON_VERSION(3, 11), name);
    assert_string_equal(name, "3.11");
    ltn_python_version_name(LTN_PYTHON_VERSION(3, 13) | LTN_PYTHON_FREE_THREADED, name);
    assert_string_equal(name, "3.13t");
    ltn_python_version_name(0, name);
    assert_string_equal(name, "?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(none_in_this_process),
        cmocka_unit_test(one_in_python),
        cmocka_unit_test(names_of_versions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
