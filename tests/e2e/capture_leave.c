// SPDX-License-Identifier: Apache-2.0
// Leaves traced calls without returning from them, or makes them inside each other:
// capture_leave longjmp ROUNDS DIR | cancel | deep LEVELS.
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct capture_callback {
    void (*fn)(void *arg);
    void *arg;
};
extern int cudaLaunchKernel(const void *func, unsigned long long grid, unsigned grid_z,
                            unsigned long long block, unsigned block_z, void **args);
extern int cudaStreamSynchronize(void *stream);

static jmp_buf g_out;

static int launch(void)
{
    return cudaLaunchKernel((const void *)&launch, 1, 1, 1, 1, NULL);
}

static void jump_out(void *arg)
{
    if (*(const long *)arg % 2 == 1) {
        (void)launch(); // made inside the call that is about to be left
    }
    longjmp(g_out, 1);
}

static void stay(void *arg)
{
    (void)arg;
    const struct timespec nap = {.tv_nsec = 2000000};
    nanosleep(&nap, NULL);
}

// The stack is deeper at every other call.
__attribute__((noinline)) static int sync_at(struct capture_callback *callback, int depth)
{
    volatile char pad[64] = {(char)depth};
    return depth == 0 ? cudaStreamSynchronize(callback)
                      : sync_at(callback, depth - 1) + pad[0] - pad[0];
}

static int run_longjmp(long rounds, const char *dir)
{
    volatile long i = 0, left = 0;
    struct capture_callback out = {jump_out, (void *)&i}, in = {stay, NULL};
    volatile int failed = 0;
    for (i = 0; i < rounds; i++) {
        if (setjmp(g_out) == 0) {
            failed += sync_at(&out, (int)(i % 5));
        } else {
            left++;
        }
        failed += launch();
        failed += sync_at(&in, (int)(i % 3));
    }
    i = 0;
    if (setjmp(g_out) == 0) {
        failed += sync_at(&out, 3);
    } else {
        left++;
    }
    failed += launch();
    printf("left %ld failed %d\n", (long)left, failed);
    fflush(stdout);
    char path[512];
    snprintf(path, sizeof(path), "%s/end", dir);
    const struct timespec nap = {.tv_nsec = 2000000};
    for (int k = 0; k < 10000 && access(path, F_OK) != 0; k++) {
        nanosleep(&nap, NULL);
    }
    return failed != 0;
}

static void one_more(void *arg)
{
    long *left = arg;
    struct capture_callback callback = {one_more, arg};
    if (--*left > 0) {
        (void)cudaStreamSynchronize(&callback);
    }
}

static int run_deep(long levels)
{
    int failed = 0;
    for (int i = 0; i < 3; i++) {
        long left = levels;
        struct capture_callback callback = {one_more, &left};
        failed += cudaStreamSynchronize(&callback) + launch();
    }
    return failed != 0;
}

static volatile int g_cleaned, g_inside;

static void on_cleanup(void *arg)
{
    (void)arg;
    g_cleaned = 1;
}

static void wait_for_ever(void *arg)
{
    (void)arg;
    g_inside = 1;
    for (;;) {
        pause();
    }
}

static void *cancelled(void *arg)
{
    struct capture_callback callback = {wait_for_ever, NULL};
    (void)arg;
    pthread_cleanup_push(on_cleanup, NULL);
    (void)cudaStreamSynchronize(&callback);
    pthread_cleanup_pop(0);
    return NULL;
}

static int run_cancel(void)
{
    pthread_t thread;
    void *result = NULL;
    const struct timespec nap = {.tv_nsec = 1000000};
    if (pthread_create(&thread, NULL, cancelled, NULL) != 0) {
        return 1;
    }
    while (!g_inside) {
        nanosleep(&nap, NULL);
    }
    pthread_cancel(thread);
    pthread_join(thread, &result);
    int failed = launch() + cudaStreamSynchronize(NULL);
    printf("cancelled %d cleaned %d failed %d\n", result == PTHREAD_CANCELED, g_cleaned, failed);
    return failed != 0;
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "longjmp") == 0) {
        return run_longjmp(strtol(argv[2], NULL, 10), argv[3]);
    }
    if (argc == 3 && strcmp(argv[1], "deep") == 0) {
        return run_deep(strtol(argv[2], NULL, 10));
    }
    if (argc == 2 && strcmp(argv[1], "cancel") == 0) {
        return run_cancel();
    }
    return 2;
}
