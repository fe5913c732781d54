// SPDX-License-Identifier: Apache-2.0
// How a driver export is written. On x86-64 each export is a thunk of the real driver's shape, so
// that a tracer's choice of probe site is exercised: 10-byte RIP-relative cmpl, short je +0x0c,
// indirect tail jump, and "mov $4,%eax; ret".
#ifndef SIM_CUDA_API_H
#define SIM_CUDA_API_H

#include "engine.h"

typedef int CUresult;
typedef void *CUstream, *CUevent, *CUfunction, *CUcontext, *CUgraph, *CUgraphExec, *CUmodule;
typedef uint64_t CUdeviceptr;

enum {
    CUDA_OK = 0,
    CUDA_EINVAL = 1,
    CUDA_ENOMEM = 2,
    CUDA_ENOTINIT = 3,
    CUDA_ENODEV = 100,
    CUDA_EDEV = 101,
    CUDA_ECTX = 201,
    CUDA_EHANDLE = 400,
    CUDA_ENOTFOUND = 500,
    CUDA_ENOTREADY = 600,
    CUDA_ENOTSUP = 801,
};

struct sim_export {
    const char *name;
    void *address;
};

#define SIM_HIDDEN __attribute__((visibility("hidden")))

#define SIM_EXPORT_ROW(name)                                                                       \
    extern void sim_thunk_##name(void) __asm__(#name);                                             \
    static const struct sim_export sim_export_##name                                               \
        __attribute__((section("sim_exports"), used, aligned(16))) = {#name,                       \
                                                                      (void *)&sim_thunk_##name};

#if defined(__x86_64__)
#define SIM_THUNK(name)                                                                            \
    __asm__(                                                                                       \
        ".text\n\t.p2align 4\n\t.globl " #name "\n\t.type " #name ", @function\n" #name ":\n\t"    \
        "cmpl $0x51de4d01, sim_driver_gone(%rip)\n\tje 1f\n\tjmp *sim_slot_" #name "(%rip)\n\t"    \
        ".byte 0x66, 0x0f, 0x1f, 0x44, 0, 0\n1:\tmov $4, %eax\n\tret\n\t.size " #name              \
        ", . - " #name "\n\t.section .data.rel.local, \"aw\"\n\t.p2align 3\nsim_slot_" #name       \
        ":\n\t.quad sim_impl_" #name "\n\t.text\n");                                               \
    SIM_EXPORT_ROW(name)
#define CU_FN(name)                                                                                \
    SIM_THUNK(name)                                                                                \
    SIM_HIDDEN __attribute__((used)) CUresult sim_impl_##name
#else
#define CU_FN(name)                                                                                \
    SIM_EXPORT_ROW(name)                                                                           \
    __attribute__((visibility("default"))) CUresult name
#endif

// An export and its per-thread-default-stream variant; both call do_NAME(pt, ...).
#define CU_PT(name, suffix, params, ...)                                                           \
    CU_FN(name) params                                                                             \
    {                                                                                              \
        SIM_COUNT(name);                                                                           \
        return do_##name(0, __VA_ARGS__);                                                          \
    }                                                                                              \
    CU_FN(name##suffix) params                                                                     \
    {                                                                                              \
        SIM_COUNT(name##suffix);                                                                   \
        return do_##name(1, __VA_ARGS__);                                                          \
    }

// cuda_ctx.c
struct sim_device *sim_ctx_device(void); // device of the thread's current context, or NULL
CUresult sim_ctx_use(struct sim_device **ret_dev);

// cuda_stream.c. A NULL handle, 1 and 2 are the default streams.
struct sim_stream *sim_stream_of(CUstream handle, int per_thread);

// cuda_mem.c: the parts of which copies and sets of every shape are made. kind as in copy_push;
// rows of a rectangle or box: only the first one really moves, the time is that of all.
struct sim_rows {
    uint64_t dst, src;
    size_t row_bytes, rows;
    int kind;
};
CUresult sim_copy_rows(struct sim_stream *s, const struct sim_rows *r, bool sync);
CUresult sim_set_rows(struct sim_stream *s, uint64_t ptr, int value, size_t row_bytes, size_t rows);

// cuda_shapes.c: where the memory of an array begins, 0 when the handle is none.
uint64_t sim_array_address(const void *array);

#endif
