// SPDX-License-Identifier: Apache-2.0
// Device memory: addresses come from a reserved range of host memory that is only touched where
// data really moves. What a process holds is accounted per device in the shared area, so that
// several processes share one device's size.
#include "engine.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SIM_ALIGN 512ull

struct sim_block {
    uint64_t at, bytes;
};

static pthread_mutex_t g_mem_lock = PTHREAD_MUTEX_INITIALIZER;

struct sim_host_block {
    void *at;
    size_t bytes;
    struct sim_host_block *next;
};
static struct sim_host_block *g_host;

static bool within_limit(struct sim_device *dev, uint64_t bytes)
{
    uint64_t total = atomic_load(&dev->shared->mem_total_bytes);
    uint64_t used = 0;
    for (size_t i = 0; i < SIM_MAX_PROCS; i++) {
        if (atomic_load(&dev->shared->procs[i].pid) != 0)
            used += atomic_load(&dev->shared->procs[i].used_bytes);
    }
    if (used + bytes <= total)
        return true;
    return sim_dev_used_bytes(dev->shared) + bytes <=
           total; // slow: looks which processes still live
}

// First fit over the sorted list of live blocks. Returns the index where the new block belongs, or
// -1.
static int64_t find_gap(const struct sim_device *dev, uint64_t bytes, uint64_t *ret_at)
{
    uint64_t at = (uint64_t)(uintptr_t)dev->arena;
    uint64_t end = at + dev->arena_bytes;
    if (dev->block_count > 0) { // the end of the list first: cheap for programs that only grow
        const struct sim_block *last = &dev->blocks[dev->block_count - 1];
        if (last->at + last->bytes + bytes <= end) {
            *ret_at = last->at + last->bytes;
            return dev->block_count;
        }
    }
    for (uint32_t i = 0; i <= dev->block_count; i++) {
        uint64_t next = i < dev->block_count ? dev->blocks[i].at : end;
        if (at + bytes <= next) {
            *ret_at = at;
            return i;
        }
        if (i < dev->block_count)
            at = dev->blocks[i].at + dev->blocks[i].bytes;
    }
    return -1;
}

static bool arena_ready(struct sim_device *dev)
{
    if (dev->arena != NULL)
        return true;
    uint64_t bytes = atomic_load(&dev->shared->mem_total_bytes) + (1ull << 30);
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        return false;
    dev->arena = at;
    dev->arena_bytes = bytes;
    return true;
}

int sim_mem_alloc(struct sim_device *dev, size_t bytes, uint64_t *ret_ptr)
{
    int rc = 2;
    if (bytes == 0)
        return 1;
    if (bytes > atomic_load(&dev->shared->mem_total_bytes))
        return 2;
    uint64_t need = (bytes + SIM_ALIGN - 1) & ~(SIM_ALIGN - 1);
    pthread_mutex_lock(&g_mem_lock);
    uint64_t at = 0;
    int64_t index = -1;
    if (arena_ready(dev) && within_limit(dev, need))
        index = find_gap(dev, need, &at);
    if (index >= 0 && dev->block_count == dev->block_cap) {
        uint32_t cap = dev->block_cap == 0 ? 256 : dev->block_cap * 2;
        struct sim_block *blocks = realloc(dev->blocks, cap * sizeof(*blocks));
        if (blocks == NULL)
            index = -1;
        else {
            dev->blocks = blocks;
            dev->block_cap = cap;
        }
    }
    if (index >= 0) {
        memmove(&dev->blocks[index + 1], &dev->blocks[index],
                (dev->block_count - (uint64_t)index) * sizeof(*dev->blocks));
        dev->blocks[index].at = at;
        dev->blocks[index].bytes = need;
        dev->block_count++;
        atomic_fetch_add(&dev->proc->used_bytes, need);
        *ret_ptr = at;
        rc = 0;
    }
    pthread_mutex_unlock(&g_mem_lock);
    return rc;
}

// Index of the block that holds ptr, or -1. Caller holds g_mem_lock.
static int64_t block_of(const struct sim_device *dev, uint64_t ptr)
{
    int64_t low = 0, high = (int64_t)dev->block_count - 1;
    while (low <= high) {
        int64_t mid = (low + high) / 2;
        const struct sim_block *b = &dev->blocks[mid];
        if (ptr < b->at)
            high = mid - 1;
        else if (ptr >= b->at + b->bytes)
            low = mid + 1;
        else
            return mid;
    }
    return -1;
}

int sim_mem_free(struct sim_device *dev, uint64_t ptr)
{
    int rc = 1;
    pthread_mutex_lock(&g_mem_lock);
    int64_t i = block_of(dev, ptr);
    if (i >= 0 && dev->blocks[i].at == ptr) {
        uint64_t bytes = dev->blocks[i].bytes;
        memmove(&dev->blocks[i], &dev->blocks[i + 1],
                (dev->block_count - (uint64_t)i - 1) * sizeof(*dev->blocks));
        dev->block_count--;
        atomic_fetch_sub(&dev->proc->used_bytes, bytes);
        rc = 0;
    }
    pthread_mutex_unlock(&g_mem_lock);
    return rc;
}

struct sim_device *sim_mem_device(uint64_t ptr)
{
    for (size_t i = 0; i < SIM_MAX_DEVICES; i++) {
        struct sim_device *dev = &sim_devices[i];
        uint64_t from = (uint64_t)(uintptr_t)dev->arena;
        if (dev->arena != NULL && ptr >= from && ptr < from + dev->arena_bytes)
            return dev;
    }
    return NULL;
}

bool sim_mem_valid(uint64_t ptr, size_t bytes)
{
    struct sim_device *dev = sim_mem_device(ptr);
    bool ok = false;
    if (dev == NULL)
        return false;
    pthread_mutex_lock(&g_mem_lock);
    int64_t i = block_of(dev, ptr);
    if (i >= 0)
        ok = ptr + bytes <= dev->blocks[i].at + dev->blocks[i].bytes;
    pthread_mutex_unlock(&g_mem_lock);
    return ok;
}

int sim_host_alloc(size_t bytes, void **ret_ptr)
{
    struct sim_host_block *b = malloc(sizeof(*b));
    void *at = bytes == 0 ? NULL : aligned_alloc(4096, (bytes + 4095) & ~(size_t)4095);
    if (b == NULL || at == NULL) {
        free(b);
        free(at);
        return bytes == 0 ? 1 : 2;
    }
    b->at = at;
    b->bytes = bytes;
    pthread_mutex_lock(&g_mem_lock);
    b->next = g_host;
    g_host = b;
    pthread_mutex_unlock(&g_mem_lock);
    *ret_ptr = at;
    return 0;
}

int sim_host_free(void *ptr)
{
    struct sim_host_block *found = NULL;
    pthread_mutex_lock(&g_mem_lock);
    for (struct sim_host_block **at = &g_host; *at != NULL; at = &(*at)->next) {
        if ((*at)->at == ptr) {
            found = *at;
            *at = found->next;
            break;
        }
    }
    pthread_mutex_unlock(&g_mem_lock);
    if (found == NULL)
        return 1;
    free(found->at);
    free(found);
    return 0;
}
