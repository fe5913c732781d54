/* SPDX-License-Identifier: Apache-2.0 */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "cmocka_all.h"

struct fixture {
    char dir[64];
    char path[80];
};

static int make_file(void **state)
{
    static struct fixture f;
    (void)snprintf(f.dir, sizeof(f.dir), "/tmp/ltn-test-file-XXXXXX");
    if (mkdtemp(f.dir) == NULL) {
        return -1;
    }
    (void)snprintf(f.path, sizeof(f.path), "%s/f", f.dir);
    int fd = open(f.path, O_CREAT | O_WRONLY, 0600);
    char block[1000];
    memset(block, 'q', sizeof(block));
    int rc = 0;
    for (int i = 0; i < 50 && rc == 0; i++) { /* more than one read */
        rc = ltn_fd_write_all(fd, block, sizeof(block));
    }
    (void)close(fd);
    *state = &f;
    return rc;
}

static int remove_file(void **state)
{
    struct fixture *f = *state;
    (void)unlink(f->path);
    return rmdir(f->dir);
}

static void whole_file_is_appended(void **state)
{
    struct fixture *f = *state;
    struct ltn_buf b;
    ltn_buf_init(&b, 50002);
    assert_int_equal(ltn_buf_puts(&b, "x:"), 0);
    assert_int_equal(ltn_file_read(f->path, &b), 0);
    assert_int_equal(b.len, 50002);
    assert_memory_equal(b.data, "x:qqq", 5);
    assert_int_equal(b.data[50001], 'q');
    ltn_buf_done(&b);
}

static void ceiling_refuses_a_longer_file(void **state)
{
    struct fixture *f = *state;
    struct ltn_buf b;
    ltn_buf_init(&b, 49999);
    assert_int_equal(ltn_file_read(f->path, &b), LTN_ERR_TOO_LARGE);
    ltn_buf_done(&b);
}

static void errors_are_errno(void **state)
{
    struct fixture *f = *state;
    struct ltn_buf b;
    char out[8];
    ltn_buf_init(&b, 100);
    assert_int_equal(ltn_file_read("/nonexistent/file", &b), -ENOENT);
    assert_int_equal(ltn_file_read(f->dir, &b), -EISDIR);
    assert_int_equal(ltn_file_read_head("/nonexistent/file", out, sizeof(out)), -ENOENT);
    assert_int_equal(ltn_file_read_head(f->dir, out, sizeof(out)), -EISDIR);
    assert_int_equal(ltn_fd_write_all(-1, "x", 1), -EBADF);
    ltn_buf_done(&b);
}

static void head_is_cut_and_terminated(void **state)
{
    struct fixture *f = *state;
    char out[8];
    memset(out, 'z', sizeof(out));
    assert_int_equal(ltn_file_read_head(f->path, out, sizeof(out)), 7);
    assert_string_equal(out, "qqqqqqq");
    assert_int_equal(ltn_file_read_head(f->path, out, 1), 0);
    assert_string_equal(out, "");
    assert_true(ltn_file_read_head("/proc/self/comm", out, sizeof(out)) > 0);
}

struct drain {
    int fd;
    size_t got;
};

static void *drain_pipe(void *arg)
{
    struct drain *d = arg;
    char block[777];
    ssize_t n;
    while ((n = read(d->fd, block, sizeof(block))) > 0) {
        d->got += (size_t)n;
    }
    return NULL;
}

static void write_all_goes_on_after_short_writes(void **state)
{
    (void)state;
    int fds[2];
    const size_t n = 1 << 20; /* far more than a pipe holds */
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    struct drain d = {.fd = fds[0]};
    pthread_t t;
    assert_int_equal(pthread_create(&t, NULL, drain_pipe, &d), 0);
    char *data = calloc(1, n);
    assert_non_null(data);
    assert_int_equal(ltn_fd_write_all(fds[1], data, n), 0);
    (void)close(fds[1]);
    (void)pthread_join(t, NULL);
    (void)close(fds[0]);
    free(data);
    assert_int_equal(d.got, n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_file_is_appended),
        cmocka_unit_test(ceiling_refuses_a_longer_file),
        cmocka_unit_test(errors_are_errno),
        cmocka_unit_test(head_is_cut_and_terminated),
        cmocka_unit_test(write_all_goes_on_after_short_writes),
    };
    return cmocka_run_group_tests(tests, make_file, remove_file);
}
