/* SPDX-License-Identifier: Apache-2.0 */
/* Runs another program from a test, without a shell. */
#ifndef LTN_TESTS_RUN_PROGRAM_H
#define LTN_TESTS_RUN_PROGRAM_H

#include <spawn.h>
#include <stddef.h>
#include <sys/wait.h>
#include <unistd.h>

/* Runs /usr/bin/python3 -c code and waits. Its exit code, or -1 when it could not be run. */
static int ltn_run_python(const char *code)
{
    char interpreter[] = "/usr/bin/python3";
    char option[] = "-c";
    char text[4096];
    size_t n = 0;
    for (; code[n] != '\0' && n + 1 < sizeof(text); n++) {
        text[n] = code[n];
    }
    text[n] = '\0';
    char *argv[] = {interpreter, option, text, NULL};
    pid_t pid;
    int status;
    if (posix_spawn(&pid, interpreter, NULL, NULL, argv, environ) != 0 ||
        waitpid(pid, &status, 0) != pid || !WIFEXITED(status)) {
        return -1;
    }
    return WEXITSTATUS(status);
}

#endif /* LTN_TESTS_RUN_PROGRAM_H */
