// SPDX-License-Identifier: Apache-2.0
// Maps the CUDA libraries only when told to: capture_late DIR LAUNCHES LIB.
//   waits for DIR/map, maps LIB, makes DIR/mapped, waits for DIR/call, launches that many kernels,
//   makes DIR/called
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "capture_flags.h"

typedef struct {
    unsigned x, y, z;
} dim3;

int main(int argc, char **argv)
{
    int (*launch)(const void *, dim3, dim3, void **, size_t, void *);
    int (*sync)(void);
    void *kernel;
    if (argc != 4 || flag_wait(argv[1], "map") != 0) {
        return 2;
    }
    void *lib = dlopen(argv[3], RTLD_NOW);
    if (lib == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    *(void **)&launch = dlsym(lib, "cudaLaunchKernel");
    *(void **)&sync = dlsym(lib, "cudaDeviceSynchronize");
    kernel = dlsym(lib, "simKernel");
    flag_make(argv[1], "mapped");
    if (launch == NULL || sync == NULL || kernel == NULL || flag_wait(argv[1], "call") != 0) {
        return 1;
    }
    for (long i = strtol(argv[2], NULL, 10); i > 0; i--) {
        uint64_t ns = 1000;
        void *args[] = {&ns};
        if (launch(kernel, (dim3){1, 1, 1}, (dim3){32, 1, 1}, args, 0, NULL) != 0) {
            return 1;
        }
    }
    return sync();
}
