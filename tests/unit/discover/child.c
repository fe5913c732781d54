/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A traced program under remote control: it obeys lines on standard input and answers each with one
 * line. "open PATH" (answers "ok N"), "close N", "fork" (answers the new pid; the child of the
 * child waits for the end), "exec PATH" (starts PATH with the same standard input), "call PATH
 * SYMBOL", "quit".
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef EMBEDS
static __attribute__((noinline, used)) int cudaLaunchKernel(void)
{
    __asm__ volatile("");
    return 7;
}
#endif

static void obey(char *line, void **handles, int *count)
{
    if (strncmp(line, "open ", 5) == 0 && *count < 64) {
        handles[*count] = dlopen(line + 5, RTLD_NOW | RTLD_LOCAL);
        if (handles[*count] == NULL) {
            printf("error %s\n", dlerror());
        } else {
            printf("ok %d\n", (*count)++);
        }
    } else if (strncmp(line, "close ", 6) == 0) {
        long n = strtol(line + 6, NULL, 10);
        printf("%s\n", n >= 0 && n < *count && dlclose(handles[n]) == 0 ? "ok" : "error");
    } else if (strcmp(line, "fork") == 0) {
        int gate[2];
        pid_t pid;
        if (pipe(gate) < 0 || (pid = fork()) < 0) {
            printf("error\n");
            return;
        }
        if (pid == 0) { /* lives until its parent, the only writer, is gone */
            char c;
            (void)close(gate[1]);
            while (read(gate[0], &c, 1) > 0) {
            }
            _exit(0);
        }
        printf("%d\n", (int)pid);
    } else if (strncmp(line, "exec ", 5) == 0) {
        execl(line + 5, line + 5, (char *)NULL);
        printf("error\n");
    } else {
        printf("error\n");
    }
}

int main(void)
{
    char line[4096];
    void *handles[64];
    int count = 0;
#ifdef EMBEDS
    if (cudaLaunchKernel() != 7) {
        return 1;
    }
#endif
    setvbuf(stdin, NULL, _IONBF, 0);
    printf("ready\n");
    fflush(stdout);
    while (fgets(line, sizeof(line), stdin) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        if (strcmp(line, "quit") == 0) {
            break;
        }
        obey(line, handles, &count);
        fflush(stdout);
    }
    return 0;
}
