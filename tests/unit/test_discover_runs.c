/* SPDX-License-Identifier: Apache-2.0 */
#include "discover/util.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>

#include "base/buf.h"
#include "base/file.h"
#include "discover/runs.h"

#define LIBRARY FIXTURES "/libcudart.so.12"

/* Not looked into by a sanitizer, or the loop would be in that most of the time. */
__attribute__((no_sanitize("thread", "address"))) static void *loop(void *arg)
{
    int (*fn)(void);
    memcpy(&fn, &arg, sizeof(fn));
    volatile unsigned sum = 0;
    for (;;) {
        if (fn == NULL) {
            sum++;
        } else {
            sum += (unsigned)fn();
        }
    }
    return NULL;
}

/* A process that maps the library. One of its threads runs: in the library, or outside it. */
static pid_t start(bool inside)
{
    int up[2];
    char c;
    assert_int_equal(pipe(up), 0);
    pid_t pid = fork();
    if (pid == 0) {
        void *lib = dlopen(LIBRARY, RTLD_NOW);
        void *fn = lib == NULL ? NULL : dlsym(lib, "cudaMalloc");
        pthread_t t;
        if (fn == NULL || pthread_create(&t, NULL, loop, inside ? fn : NULL) != 0 ||
            write(up[1], "x", 1) != 1) {
            _exit(1);
        }
        (void)pause();
        _exit(0);
    }
    assert_int_equal(read(up[0], &c, 1), 1);
    (void)close(up[0]);
    (void)close(up[1]);
    return pid;
}

static void end(pid_t pid)
{
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* The library as that process maps it. */
static struct ltn_lib *lib_of(struct ltn_libs *libs, pid_t pid)
{
    char path[64];
    struct ltn_buf text;
    struct ltn_map_line line;
    struct ltn_lib *lib = NULL;
    size_t pos = 0;
    bool new_file;
    bool new_user;
    (void)snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
    ltn_buf_init(&text, LTN_MAPS_MAX_BYTES);
    assert_int_equal(ltn_file_read(path, &text), 0);
    while (lib == NULL && ltn_maps_next(text.data, text.len, &pos, &line)) {
        if (ltn_lib_kind_of_path(line.path, line.path_len) == LTN_LIB_CUDART) {
            assert_int_equal(
                ltn_libs_map(libs, pid, &line, LTN_LIB_CUDART, &lib, &new_file, &new_user), 0);
        }
    }
    ltn_buf_done(&text);
    assert_non_null(lib);
    return lib;
}

static struct ltn_runs_result look(pid_t pid)
{
    const struct timespec wait = {.tv_nsec = 500000000};
    struct ltn_libs *libs = ltn_libs_new(4);
    const struct ltn_lib *lib = lib_of(libs, pid);
    struct ltn_runs_result res = {0};
    struct ltn_runs *r;
    int rc = ltn_runs_new(pid, &r);
    if (rc == -EACCES || rc == -EPERM) {
        end(pid);
        ltn_libs_free(libs);
        print_message("SKIPPED: no right to sample\n");
        skip();
    }
    assert_int_equal(rc, 0);
    (void)nanosleep(&wait, NULL);
    assert_int_equal(ltn_runs_end(r, &lib, 1, &res), 0);
    ltn_runs_free(r);
    ltn_libs_free(libs);
    return res;
}

static void test_inside(void **state)
{
    (void)state;
    pid_t pid = start(true);
    struct ltn_runs_result res = look(pid);
    end(pid);
    assert_true(res.samples > 0);
    assert_true(res.inside * 10 >= res.samples); /* the loop itself is outside */
}

static void test_outside(void **state)
{
    (void)state;
    pid_t pid = start(false);
    struct ltn_runs_result res = look(pid);
    end(pid);
    assert_true(res.samples > 0);
    assert_int_equal(res.inside, 0);
}

static void test_gone(void **state)
{
    (void)state;
    struct ltn_runs *r;
    pid_t pid = start(false);
    end(pid);
    assert_int_equal(ltn_runs_new(pid, &r), -ESRCH);
    ltn_runs_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_inside),
        cmocka_unit_test(test_outside),
        cmocka_unit_test(test_gone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
