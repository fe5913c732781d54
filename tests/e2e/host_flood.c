// SPDX-License-Identifier: Apache-2.0
// Processes that begin and end as fast as the machine can make them, while threads storm calls:
// what the agent must not lose a record of. Arguments: how many, and the program that each becomes.
#include <pthread.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sim_api.h"

extern char **environ;

enum { STORMERS = 2 };
static atomic_int g_stop;
static atomic_ulong g_calls;

static void *storm(void *arg)
{
    cudaStream_t stream = NULL;
    (void)arg;
    if (cudaStreamCreateWithFlags(&stream, 1) != 0) {
        return NULL;
    }
    while (!atomic_load(&g_stop)) {
        uint64_t ns = 0;
        void *args[] = {&ns};
        (void)cudaLaunchKernel((const void *)&simKernel, (dim3){1, 1, 1}, (dim3){32, 1, 1}, args, 0,
                               stream);
        atomic_fetch_add(&g_calls, 1);
    }
    return NULL;
}

static void *wait_for_the_end(void *arg)
{
    (void)arg;
    for (;;) {
        (void)pause();
    }
    return NULL;
}

static int end_together(void)
{
    pthread_t thread;
    for (int i = 0; i < 8; i++) {
        if (pthread_create(&thread, NULL, wait_for_the_end, NULL) != 0) {
            return 1;
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    pthread_t threads[STORMERS];
    if (argc != 3) {
        return argc == 1 ? end_together() : 2;
    }
    if (cudaSetDevice(0) != 0) {
        return 1;
    }
    for (int i = 0; i < STORMERS; i++) {
        if (pthread_create(&threads[i], NULL, storm, NULL) != 0) {
            return 1;
        }
    }
    while (atomic_load(&g_calls) == 0) {
    }
    long made = 0;
    for (long i = strtol(argv[1], NULL, 10); i > 0; i--) {
        char *const words[] = {argv[2], NULL};
        pid_t pid;
        int status;
        if (posix_spawn(&pid, argv[2], NULL, NULL, words, environ) == 0 &&
            waitpid(pid, &status, 0) == pid && WIFEXITED(status)) {
            made++;
        }
    }
    atomic_store(&g_stop, 1);
    for (int i = 0; i < STORMERS; i++) {
        (void)pthread_join(threads[i], NULL);
    }
    printf("{\"made\": %ld, \"calls\": %lu}\n", made, atomic_load(&g_calls));
    return 0;
}
