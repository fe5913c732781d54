// SPDX-License-Identifier: Apache-2.0
// A program with the CUDA runtime linked into it: capture_static DIR LAUNCHES.
//   makes DIR/started, waits for DIR/open, makes one call (which opens the driver), makes
//   DIR/opened, waits for DIR/call, launches that many kernels and waits for them
// With the real runtime (REAL_RUNTIME) and no driver here every call fails; they count all the
// same.
#include <stdint.h>
#include <stdlib.h>

#include "capture_flags.h"
#include "sim_api.h"

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
    flag_make(argv[1], "started");
    if (flag_wait(argv[1], "open") != 0) {
        return 2;
    }
    failed |= cudaFree(NULL);
    flag_make(argv[1], "opened");
    if (flag_wait(argv[1], "call") != 0) {
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
