// SPDX-License-Identifier: Apache-2.0
// A traced program whose functions the test knows: calls come from chains of fixed depth.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "sim_api.h"

#if defined(__clang__)
#define CHAIN __attribute__((noinline))
#else
#define CHAIN __attribute__((noinline, noclone))
#endif

static cudaStream_t g_stream;
static volatile int g_done; // work after each call, so that none is a tail call

CHAIN void stacks_inner(int what)
{
    void *p = NULL;
    if (what == 0) {
        g_done += cudaStreamSynchronize(g_stream);
    } else {
        g_done += cudaMalloc(&p, 4096);
        g_done += cudaFree(p);
    }
}

CHAIN static void stacks_local(int what)
{
    stacks_inner(what);
    g_done++;
}

CHAIN void stacks_outer(int what)
{
    stacks_local(what);
    g_done++;
}

CHAIN void stacks_deep(int depth)
{
    if (depth > 0) {
        stacks_deep(depth - 1);
    } else {
        stacks_outer(0);
    }
    g_done++;
}

// As many different stacks as there are bits to choose a way by.
CHAIN void stacks_left(unsigned bits, int left);
CHAIN void stacks_right(unsigned bits, int left);

CHAIN void stacks_fork(unsigned bits, int left)
{
    if (left == 0) {
        stacks_inner(0);
    } else if (bits & 1) {
        stacks_left(bits >> 1, left - 1);
    } else {
        stacks_right(bits >> 1, left - 1);
    }
    g_done++;
}

void stacks_left(unsigned bits, int left)
{
    stacks_fork(bits, left);
    g_done++;
}

void stacks_right(unsigned bits, int left)
{
    stacks_fork(bits, left);
    g_done++;
}

// Code that no file holds: pushes the frame pointer, calls the address in the first argument.
#if defined(__x86_64__)
#include <sys/mman.h>
static int run_jit(void)
{
    static const unsigned char code[] = {0x55, 0x48, 0x89, 0xe5, 0x48, 0x89, 0xf8,
                                         0x89, 0xf7, 0xff, 0xd0, 0x5d, 0xc3};
    void *at =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) {
        return 1;
    }
    memcpy(at, code, sizeof(code));
    void (*made)(void (*)(int), int);
    memcpy(&made, &at, sizeof(made));
    made(stacks_outer, 0);
    g_done++;
    return 0;
}
#else
static int run_jit(void)
{
    return 1;
}
#endif

static void wait_for_file(const char *path)
{
    const struct timespec ms = {.tv_nsec = 1000000};
    for (int i = 0; i < 20000 && access(path, F_OK) != 0; i++) {
        nanosleep(&ms, NULL);
    }
}

// stacks_target MODE N [GO STOP]: makes N calls once GO exists, ends when STOP exists.
int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    long n = argc > 2 ? strtol(argv[2], NULL, 10) : 0;
    int rc = 0;
    if (cudaStreamCreate(&g_stream) != 0) {
        return 1;
    }
    if (argc > 4) {
        printf("ready\n");
        fflush(stdout);
        wait_for_file(argv[3]);
    }
    for (long i = 0; i < n; i++) {
        if (strcmp(mode, "sync") == 0) {
            stacks_outer(0);
        } else if (strcmp(mode, "alloc") == 0) {
            stacks_outer(1);
        } else if (strcmp(mode, "deep") == 0) {
            stacks_deep(100);
        } else if (strcmp(mode, "many") == 0) {
            stacks_fork((unsigned)i, 10);
        } else if (strcmp(mode, "exec") == 0) {
            stacks_outer(0);
            wait_for_file(getenv("STACKS_PAUSE"));
            execv(getenv("STACKS_NEXT"), (char *const[]){argv[0], (char[]){"sync"}, (char[]){"1"},
                                                         argv[3], argv[4], NULL});
        } else if (strcmp(mode, "jit") == 0) {
            rc |= run_jit();
        } else {
            return 2;
        }
    }
    if (argc > 4) {
        printf("called\n");
        fflush(stdout);
        wait_for_file(argv[4]);
    }
    return rc;
}
