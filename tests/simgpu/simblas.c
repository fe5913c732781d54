// SPDX-License-Identifier: Apache-2.0
// A library that launches at the driver directly, as the vendor's math libraries do: invisible to
// probes on the runtime.
#include <stddef.h>
#include <stdint.h>

extern int cuLibraryLoadData(void **library, const void *code, void *jit, void **jit_values,
                             unsigned jit_n, void *options, void **values, unsigned n);
extern int cuLibraryGetKernel(void **kernel, void *library, const char *name);
extern int cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                          unsigned bz, unsigned shared, void *stream, void **params, void **extra);

__attribute__((visibility("default"))) int simblasGemm(void *stream, uint64_t duration_ns)
{
    static void *kernel;
    void *library = NULL, *params[] = {&duration_ns};
    if (kernel == NULL && (cuLibraryLoadData(&library, "", NULL, NULL, 0, NULL, NULL, 0) != 0 ||
                           cuLibraryGetKernel(&kernel, library, "simKernelGemm") != 0))
        return 1;
    return cuLaunchKernel(kernel, 128, 1, 1, 256, 1, 1, 0, stream, params, NULL);
}
