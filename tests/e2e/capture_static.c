// SPDX-License-Identifier: Apache-2.0
// A program with the CUDA runtime linked into it: capture_static DIR LAUNCHES.
//   makes DIR/started, waits for DIR/open, makes one call (which opens the driver), makes
//   DIR/opened, waits for DIR/call, launches that many kernels and waits for them
// With the real runtime (REAL_RUNTIME) and no driver here every call fails; they count all the
// same.
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "sim_api.h"

static void file_name(char out[512], const char *dir, const char *name)
{
    snprintf(out, 512, "%s/%s", dir, name);
}

static int wait_for(const char *dir, const char *name)
{
    char path[512];
    const struct timespec nap = {.tv_nsec = 1000000};
    file_name(path, dir, name);
    for (int i = 0; i < 60000; i++) {
        if (access(path, F_OK) == 0) {
            return 0;
        }
        nanosleep(&nap, NULL);
    }
    return -1;
}

static void make(const char *dir, const char *name)
{
    char path[512];
    file_name(path, dir, name);
    close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
}

#ifdef REAL_RUNTIME
static int kernel_stub;
#define KERNEL ((const void *)&kernel_stub)
#else
#define KERNEL ((const void *)&simKernel)
#endif

int main(int argc, char **argv)
{
    int failed = 0;
    if (argc < 3) {
        return 2;
    }
    make(argv[1], "started");
    if (wait_for(argv[1], "open") != 0) {
        return 2;
    }
    failed |= cudaFree(NULL);
    make(argv[1], "opened");
    if (wait_for(argv[1], "call") != 0) {
        return 2;
    }
    for (long i = strtol(argv[2], NULL, 10); i > 0; i--) {
        uint64_t ns = 1000;
        void *args[] = {&ns};
        failed |= cudaLaunchKernel(KERNEL, (dim3){1, 1, 1}, (dim3){32, 1, 1}, args, 0, NULL);
    }
    failed |= cudaDeviceSynchronize();
    void *memory = NULL;
    failed |= cudaMalloc(&memory, 4096);
#ifdef REAL_RUNTIME
    return failed == 0; // there is no driver, or it is not this test's
#else
    return failed;
#endif
}
