// SPDX-License-Identifier: Apache-2.0
// Functions named like CUDA ones whose first instruction is endbr64 (on x86-64): for tests of probe
// sites.
#include <stddef.h>

#define API __attribute__((visibility("default"), noinline))

static int total;

API int cudaMalloc(void **ptr, size_t bytes)
{
    *ptr = NULL;
    total += (int)bytes;
    return total;
}

API int cudaFree(void *ptr)
{
    return ptr == NULL ? 0 : ++total;
}

API int cudaLaunchKernel(const void *func)
{
    return func == NULL ? 98 : ++total;
}

API int cudaStreamSynchronize(void *stream)
{
    return stream == NULL ? 0 : ++total;
}
