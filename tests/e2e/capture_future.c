// SPDX-License-Identifier: Apache-2.0
// A runtime library whose functions have the known names, but not the known arguments, as a future
// version may: the agent is to notice. And one that has, to be called with nonsense: that is the
// caller's own matter.
#include <stddef.h>

#define EXPORT __attribute__((visibility("default"), noinline))

// Another order than cudaMemcpy(dst, src, bytes, kind) has: the place of bytes holds a pointer.
EXPORT int cudaMemcpy(size_t bytes, int kind, void *dst, const void *src)
{
    __asm__ volatile("" ::: "memory");
    return bytes == 0 || kind < 0 || dst == src;
}

// The direction became a pointer to attributes.
EXPORT int cudaMemcpyAsync(void *dst, const void *src, size_t bytes, const void *attributes,
                           void *stream)
{
    __asm__ volatile("" ::: "memory");
    return dst == src || bytes == 0 || attributes == stream;
}

struct unique_id {
    char bytes[128];
};

// Takes a rank that is none of its ranks.
EXPORT int ncclCommInitRank(void **comm, int ranks, struct unique_id id, int rank)
{
    __asm__ volatile("" ::: "memory");
    return comm == NULL || ranks < 1 || id.bytes[0] != 0 || rank < ranks;
}

EXPORT int cudaMalloc(void **ptr, size_t bytes)
{
    __asm__ volatile("" ::: "memory");
    return ptr == NULL || bytes > 1ULL << 40 ? 2 : 0; // out of memory
}
