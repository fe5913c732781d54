// SPDX-License-Identifier: Apache-2.0
// What libnccl.so.2 hands to libcuda.so.1 in the "extra" buffer of cuLaunchKernelEx, and the call
// counters of every library.
#ifndef SIM_LAUNCH_H
#define SIM_LAUNCH_H

#include <stdatomic.h>
#include <stdint.h>

#define SIM_COLL_LAUNCH_MAGIC 0x53434f4cu

enum { SIM_OP_COLL = 0, SIM_OP_SEND = 1, SIM_OP_RECV = 2, SIM_MAX_GROUP_OPS = 64 };

struct sim_coll_op {
    uint32_t kind;
    uint32_t comm; // index in the shared area
    uint32_t rank, peer;
    uint32_t func, dtype, redop, root;
    uint64_t count, bytes;
    uint64_t seq;
    uint32_t channel;
    uint32_t pad;
    const void *send;
    void *recv;
};

struct sim_coll_launch {
    uint32_t magic, n;
    struct sim_coll_op ops[SIM_MAX_GROUP_OPS];
};

struct sim_counter {
    const char *name;
    _Atomic uint64_t n;
};

// Counts one call of an export, exactly and from any thread. Asking for the frame's address makes
// the compiler set up a frame, so that every export begins with "push %rbp" as in the real
// libraries, even a leaf.
#define SIM_COUNT(fn) SIM_ADD(fn, 1)
#define SIM_ADD(fn, count)                                                                         \
    do {                                                                                           \
        static struct sim_counter sim_counter_here                                                 \
            __attribute__((section("sim_counters"), used, aligned(16))) = {#fn, 0};                \
        __asm__ volatile("" : : "r"(__builtin_frame_address(0)));                                  \
        atomic_fetch_add_explicit(&sim_counter_here.n, count, memory_order_relaxed);               \
    } while (0)

// Defines the reader that simtrain uses: the i-th counter's name (NULL past the end) and value.
#define SIM_DEFINE_TALLY(reader)                                                                   \
    extern struct sim_counter __start_sim_counters[] __attribute__((visibility("hidden")));        \
    extern struct sim_counter __stop_sim_counters[] __attribute__((visibility("hidden")));         \
    __attribute__((visibility("default"))) const char *reader(unsigned i, uint64_t *ret_value)     \
    {                                                                                              \
        struct sim_counter *c = __start_sim_counters + i;                                          \
        if (c >= __stop_sim_counters)                                                              \
            return NULL;                                                                           \
        *ret_value = atomic_load(&c->n);                                                           \
        return c->name;                                                                            \
    }

#endif
