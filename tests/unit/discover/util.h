/* SPDX-License-Identifier: Apache-2.0 */
/* Real child processes for the tests of discover. */
#ifndef LTN_TEST_DISCOVER_UTIL_H
#define LTN_TEST_DISCOVER_UTIL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

struct child {
    pid_t pid;
    FILE *to;
    FILE *from;
};

static inline void child_answer(struct child *c, char *out, size_t size)
{
    assert_non_null(fgets(out, (int)size, c->from));
    out[strcspn(out, "\n")] = '\0';
}

/* Starts the program with the environment given (NULL = none) and, unless root is NULL, that root
 * directory. */
static inline void child_start_in(struct child *c, const char *program, char *const env[],
                                  const char *root)
{
    int in[2];
    int out[2];
    assert_int_equal(pipe2(in, O_CLOEXEC), 0);
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    c->pid = fork();
    assert_true(c->pid >= 0);
    if (c->pid == 0) {
        char *const no_env[] = {NULL};
        char program_copy[1024];
        (void)snprintf(program_copy, sizeof(program_copy), "%s", program);
        char *const argv[] = {program_copy, NULL};
        if (dup2(in[0], 0) < 0 || dup2(out[1], 1) < 0) {
            _exit(126);
        }
        if (root != NULL && (chroot(root) < 0 || chdir("/") < 0)) {
            _exit(125);
        }
        execve(program, argv, env == NULL ? no_env : env);
        _exit(127);
    }
    (void)close(in[0]);
    (void)close(out[1]);
    c->to = fdopen(in[1], "w");
    c->from = fdopen(out[0], "r");
    char line[64];
    child_answer(c, line, sizeof(line));
    assert_string_equal(line, "ready");
}

static inline void child_start(struct child *c, const char *program, char *const env[])
{
    child_start_in(c, program, env, NULL);
}

static inline void child_say(struct child *c, const char *verb, const char *what, char *answer,
                             size_t size)
{
    fprintf(c->to, "%s%s\n", verb, what);
    fflush(c->to);
    child_answer(c, answer, size);
}

static inline int child_open(struct child *c, const char *path)
{
    char answer[512];
    child_say(c, "open ", path, answer, sizeof(answer));
    if (strncmp(answer, "ok ", 3) != 0) {
        fail_msg("%s", answer);
    }
    return (int)strtol(answer + 3, NULL, 10);
}

static inline void child_close(struct child *c, int handle)
{
    char text[16];
    char answer[64];
    (void)snprintf(text, sizeof(text), "%d", handle);
    child_say(c, "close ", text, answer, sizeof(answer));
    assert_string_equal(answer, "ok");
}

static inline void child_end(struct child *c)
{
    (void)fclose(c->to);
    (void)fclose(c->from);
    assert_int_equal(waitpid(c->pid, NULL, 0), c->pid);
}

/* Copies a file; the copy is a new inode. */
static inline void copy_file(const char *from, const char *to)
{
    char chunk[65536];
    int in = open(from, O_RDONLY | O_CLOEXEC);
    int out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0755);
    assert_true(in >= 0);
    assert_true(out >= 0);
    ssize_t n;
    while ((n = read(in, chunk, sizeof(chunk))) > 0) {
        assert_int_equal(write(out, chunk, (size_t)n), n);
    }
    (void)close(in);
    (void)close(out);
}

/* Fresh directory under /tmp; the caller removes what it puts there. */
static inline void make_dir(char out[64])
{
    (void)snprintf(out, 64, "/tmp/ltn-discover-XXXXXX");
    assert_non_null(mkdtemp(out));
}

#endif /* LTN_TEST_DISCOVER_UTIL_H */
