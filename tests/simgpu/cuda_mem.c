// SPDX-License-Identifier: Apache-2.0
// Driver: memory, copies, sets.
#include "cuda_api.h"

#include <stdlib.h>
#include <string.h>

static CUresult mem_alloc(CUdeviceptr *ptr, size_t bytes)
{
    struct sim_device *dev;
    CUresult rc = sim_ctx_use(&dev);
    if (rc != CUDA_OK)
        return rc;
    return ptr == NULL ? CUDA_EINVAL : sim_mem_alloc(dev, bytes, ptr);
}

CU_FN(cuMemAlloc_v2)(CUdeviceptr *ptr, size_t bytes)
{
    SIM_COUNT(cuMemAlloc_v2);
    return mem_alloc(ptr, bytes);
}

CU_FN(cuMemAllocManaged)(CUdeviceptr *ptr, size_t bytes, unsigned flags)
{
    SIM_COUNT(cuMemAllocManaged);
    (void)flags;
    return mem_alloc(ptr, bytes);
}

CU_FN(cuMemAllocPitch_v2)
(CUdeviceptr *ptr, size_t *pitch, size_t width, size_t height, unsigned element)
{
    SIM_COUNT(cuMemAllocPitch_v2);
    (void)element;
    size_t p = (width + 511) & ~(size_t)511;
    CUresult rc = mem_alloc(ptr, p * height);
    if (rc == CUDA_OK)
        *pitch = p;
    return rc;
}

CU_FN(cuMemFree_v2)(CUdeviceptr ptr)
{
    SIM_COUNT(cuMemFree_v2);
    struct sim_device *dev;
    CUresult rc = sim_ctx_use(&dev);
    if (rc != CUDA_OK || ptr == 0)
        return rc;
    struct sim_device *owner = sim_mem_device(ptr);
    if (owner == NULL)
        return CUDA_EINVAL;
    rc = sim_device_sync(owner); // freeing waits for the device
    return rc != CUDA_OK ? rc : sim_mem_free(owner, ptr);
}

CU_FN(cuMemGetInfo_v2)(size_t *free_bytes, size_t *total)
{
    SIM_COUNT(cuMemGetInfo_v2);
    struct sim_device *dev;
    CUresult rc = sim_ctx_use(&dev);
    if (rc != CUDA_OK)
        return rc;
    uint64_t used = sim_dev_used_bytes(dev->shared);
    *total = atomic_load(&dev->shared->mem_total_bytes);
    *free_bytes = used > *total ? 0 : *total - used;
    return CUDA_OK;
}

static CUresult do_cuMemAllocAsync(int pt, CUdeviceptr *ptr, size_t bytes, CUstream stream)
{
    if (sim_stream_of(stream, pt) == NULL)
        return CUDA_ECTX;
    sim_burn_ns(sim_set.launch_ns / 2);
    return mem_alloc(ptr, bytes);
}
CU_PT(cuMemAllocAsync, _ptsz, (CUdeviceptr * ptr, size_t bytes, CUstream stream), ptr, bytes,
      stream)

static CUresult do_cuMemAllocFromPoolAsync(int pt, CUdeviceptr *ptr, size_t bytes, void *pool,
                                           CUstream stream)
{
    (void)pool;
    return do_cuMemAllocAsync(pt, ptr, bytes, stream);
}
CU_PT(cuMemAllocFromPoolAsync, _ptsz,
      (CUdeviceptr * ptr, size_t bytes, void *pool, CUstream stream), ptr, bytes, pool, stream)

static CUresult do_cuMemFreeAsync(int pt, CUdeviceptr ptr, CUstream stream)
{
    struct sim_stream *s = sim_stream_of(stream, pt);
    if (s == NULL)
        return CUDA_ECTX;
    if (!sim_mem_valid(ptr, 1))
        return CUDA_EINVAL;
    struct sim_entry e = {.type = SIM_E_FREE};
    e.u.ptr = (void *)(uintptr_t)ptr;
    return sim_push(s, &e, NULL);
}
CU_PT(cuMemFreeAsync, _ptsz, (CUdeviceptr ptr, CUstream stream), ptr, stream)

CU_FN(cuMemHostAlloc)(void **ptr, size_t bytes, unsigned flags)
{
    SIM_COUNT(cuMemHostAlloc);
    struct sim_device *dev;
    (void)flags;
    CUresult rc = sim_ctx_use(&dev);
    return rc != CUDA_OK ? rc : sim_host_alloc(bytes, ptr);
}

CU_FN(cuMemAllocHost_v2)(void **ptr, size_t bytes)
{
    SIM_COUNT(cuMemAllocHost_v2);
    struct sim_device *dev;
    CUresult rc = sim_ctx_use(&dev);
    return rc != CUDA_OK ? rc : sim_host_alloc(bytes, ptr);
}

CU_FN(cuMemFreeHost)(void *ptr)
{
    SIM_COUNT(cuMemFreeHost);
    return sim_host_free(ptr);
}

CU_FN(cuMemHostRegister_v2)(void *ptr, size_t bytes, unsigned flags)
{
    SIM_COUNT(cuMemHostRegister_v2);
    (void)flags;
    return ptr == NULL || bytes == 0 ? CUDA_EINVAL : CUDA_OK;
}

CU_FN(cuMemHostUnregister)(void *ptr)
{
    SIM_COUNT(cuMemHostUnregister);
    return ptr == NULL ? CUDA_EINVAL : CUDA_OK;
}

// Virtual memory management: addresses and physical handles are accounted apart, as in the real
// driver.
CU_FN(cuMemCreate)(uint64_t *handle, size_t size, const void *prop, uint64_t flags)
{
    SIM_COUNT(cuMemCreate);
    (void)prop;
    (void)flags;
    return mem_alloc(handle, size);
}

CU_FN(cuMemRelease)(uint64_t handle)
{
    SIM_COUNT(cuMemRelease);
    struct sim_device *owner = sim_mem_device(handle);
    return owner == NULL ? CUDA_EINVAL : sim_mem_free(owner, handle);
}

CU_FN(cuMemAddressReserve)
(CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr, uint64_t flags)
{
    SIM_COUNT(cuMemAddressReserve);
    static _Atomic uint64_t next = 0x7000000000000000ull;
    (void)alignment;
    (void)addr;
    (void)flags;
    if (ptr == NULL || size == 0)
        return CUDA_EINVAL;
    *ptr = atomic_fetch_add(&next, (size + 0x1fffff) & ~(size_t)0x1fffff);
    return CUDA_OK;
}

CU_FN(cuMemAddressFree)(CUdeviceptr ptr, size_t size)
{
    SIM_COUNT(cuMemAddressFree);
    (void)size;
    return ptr == 0 ? CUDA_EINVAL : CUDA_OK;
}

CU_FN(cuMemMap)(CUdeviceptr ptr, size_t size, size_t offset, uint64_t handle, uint64_t flags)
{
    SIM_COUNT(cuMemMap);
    (void)offset;
    (void)flags;
    return ptr == 0 || size == 0 || handle == 0 ? CUDA_EINVAL : CUDA_OK;
}

CU_FN(cuMemUnmap)(CUdeviceptr ptr, size_t size)
{
    SIM_COUNT(cuMemUnmap);
    return ptr == 0 || size == 0 ? CUDA_EINVAL : CUDA_OK;
}

CU_FN(cuMemSetAccess)(CUdeviceptr ptr, size_t size, const void *desc, size_t count)
{
    SIM_COUNT(cuMemSetAccess);
    (void)desc;
    return ptr == 0 || size == 0 || count == 0 ? CUDA_EINVAL : CUDA_OK;
}

static bool is_device(uint64_t ptr)
{
    return sim_mem_device(ptr) != NULL;
}

// kind: 1 host to device, 2 device to host, 3 device to device, 4 by the addresses. Only the first
// SIMGPU_COPY_MAX bytes are really moved; the rest costs simulated time alone.
static CUresult copy_push(struct sim_stream *s, uint64_t dst, uint64_t src, size_t bytes, int kind,
                          uint64_t *ret_seq)
{
    if (s == NULL)
        return CUDA_ECTX;
    if (bytes == 0)
        return CUDA_OK;
    if (dst == 0 || src == 0 || ((kind == 1 || kind == 3) && !sim_mem_valid(dst, bytes)) ||
        ((kind == 2 || kind == 3) && !sim_mem_valid(src, bytes)))
        return CUDA_EINVAL;
    struct sim_entry e = {.type = SIM_E_COPY};
    e.u.copy.dst = (void *)(uintptr_t)dst;
    e.u.copy.src = (const void *)(uintptr_t)src;
    e.u.copy.bytes = bytes < sim_set.copy_max ? bytes : sim_set.copy_max;
    e.dur_ns = 1000 + bytes * 1000 / sim_set.copy_bytes_per_us;
    if (!is_device(src) && s->capture == NULL) {
        e.u.copy.staging = malloc(e.u.copy.bytes);
        if (e.u.copy.staging == NULL)
            return CUDA_ENOMEM;
        memcpy(e.u.copy.staging, e.u.copy.src, e.u.copy.bytes);
    }
    return sim_push(s, &e, ret_seq);
}

static CUresult copy_sync(struct sim_stream *s, uint64_t dst, uint64_t src, size_t bytes, int kind)
{
    uint64_t seq = 0;
    if (s != NULL && s->capture != NULL)
        return 900;
    CUresult rc = copy_push(s, dst, src, bytes, kind, &seq);
    if (rc != CUDA_OK || bytes == 0 || kind == 3)
        return rc;
    return sim_stream_wait(s, seq, false);
}

#define COPY_SYNC(name, kind)                                                                      \
    static CUresult do_##name(int pt, uint64_t dst, uint64_t src, size_t bytes)                    \
    {                                                                                              \
        return copy_sync(sim_stream_of(NULL, pt), dst, src, bytes, kind);                          \
    }                                                                                              \
    CU_PT(name, _ptds, (uint64_t dst, uint64_t src, size_t bytes), dst, src, bytes)
#define COPY_ASYNC(name, kind)                                                                     \
    static CUresult do_##name(int pt, uint64_t dst, uint64_t src, size_t bytes, CUstream stream)   \
    {                                                                                              \
        return copy_push(sim_stream_of(stream, pt), dst, src, bytes, kind, NULL);                  \
    }                                                                                              \
    CU_PT(name, _ptsz, (uint64_t dst, uint64_t src, size_t bytes, CUstream stream), dst, src,      \
          bytes, stream)

COPY_SYNC(cuMemcpy, 4)
COPY_SYNC(cuMemcpyHtoD_v2, 1)
COPY_SYNC(cuMemcpyDtoH_v2, 2)
COPY_SYNC(cuMemcpyDtoD_v2, 3)
COPY_ASYNC(cuMemcpyAsync, 4)
COPY_ASYNC(cuMemcpyHtoDAsync_v2, 1)
COPY_ASYNC(cuMemcpyDtoHAsync_v2, 2)
COPY_ASYNC(cuMemcpyDtoDAsync_v2, 3)

static CUresult do_cuMemcpyPeerAsync(int pt, uint64_t dst, CUcontext dst_ctx, uint64_t src,
                                     CUcontext src_ctx, size_t bytes, CUstream stream)
{
    (void)dst_ctx;
    (void)src_ctx;
    return copy_push(sim_stream_of(stream, pt), dst, src, bytes, 3, NULL);
}
CU_PT(cuMemcpyPeerAsync, _ptsz,
      (uint64_t dst, CUcontext dst_ctx, uint64_t src, CUcontext src_ctx, size_t bytes,
       CUstream stream),
      dst, dst_ctx, src, src_ctx, bytes, stream)

static CUresult do_cuMemcpyPeer(int pt, uint64_t dst, CUcontext dst_ctx, uint64_t src,
                                CUcontext src_ctx, size_t bytes)
{
    (void)dst_ctx;
    (void)src_ctx;
    return copy_sync(sim_stream_of(NULL, pt), dst, src, bytes, 3);
}
CU_PT(cuMemcpyPeer, _ptds,
      (uint64_t dst, CUcontext dst_ctx, uint64_t src, CUcontext src_ctx, size_t bytes), dst,
      dst_ctx, src, src_ctx, bytes)

struct sim_memcpy2d {
    size_t src_x, src_y;
    int src_type;
    const void *src_host;
    uint64_t src_device;
    void *src_array;
    size_t src_pitch, dst_x, dst_y;
    int dst_type;
    void *dst_host;
    uint64_t dst_device;
    void *dst_array;
    size_t dst_pitch, width, height;
};
_Static_assert(sizeof(struct sim_memcpy2d) == 128, "CUDA_MEMCPY2D");

CUresult sim_copy_rows(struct sim_stream *s, const struct sim_rows *r, bool sync)
{
    struct sim_entry pad = {.type = SIM_E_KERNEL};
    pad.dur_ns = r->rows > 1 ? r->row_bytes * (r->rows - 1) * 1000 / sim_set.copy_bytes_per_us : 0;
    if (s == NULL)
        return CUDA_ECTX;
    if (sync && s->capture != NULL)
        return 900;
    CUresult rc = pad.dur_ns > 0 ? sim_push(s, &pad, NULL) : CUDA_OK;
    if (rc != CUDA_OK)
        return rc;
    return sync ? copy_sync(s, r->dst, r->src, r->row_bytes, r->kind)
                : copy_push(s, r->dst, r->src, r->row_bytes, r->kind, NULL);
}

static CUresult copy_2d(struct sim_stream *s, const struct sim_memcpy2d *p, bool sync)
{
    if (p == NULL)
        return CUDA_EINVAL;
    struct sim_rows r = {.row_bytes = p->width, .rows = p->height, .kind = 4};
    r.src = p->src_type == 1   ? (uint64_t)(uintptr_t)p->src_host
            : p->src_type == 3 ? sim_array_address(p->src_array)
                               : p->src_device;
    r.dst = p->dst_type == 1   ? (uint64_t)(uintptr_t)p->dst_host
            : p->dst_type == 3 ? sim_array_address(p->dst_array)
                               : p->dst_device;
    return sim_copy_rows(s, &r, sync);
}

static CUresult do_cuMemcpy2DAsync_v2(int pt, const struct sim_memcpy2d *p, CUstream stream)
{
    return copy_2d(sim_stream_of(stream, pt), p, false);
}
CU_PT(cuMemcpy2DAsync_v2, _ptsz, (const struct sim_memcpy2d *p, CUstream stream), p, stream)

static CUresult do_cuMemcpy2D_v2(int pt, const struct sim_memcpy2d *p)
{
    return copy_2d(sim_stream_of(NULL, pt), p, true);
}
CU_PT(cuMemcpy2D_v2, _ptds, (const struct sim_memcpy2d *p), p)

static CUresult do_cuMemcpy2DUnaligned_v2(int pt, const struct sim_memcpy2d *p)
{
    return copy_2d(sim_stream_of(NULL, pt), p, true);
}
CU_PT(cuMemcpy2DUnaligned_v2, _ptds, (const struct sim_memcpy2d *p), p)

static CUresult set_push(struct sim_stream *s, uint64_t ptr, int value, size_t bytes)
{
    if (s == NULL)
        return CUDA_ECTX;
    if (bytes == 0)
        return CUDA_OK;
    if (!sim_mem_valid(ptr, bytes))
        return CUDA_EINVAL;
    struct sim_entry e = {.type = SIM_E_SET};
    e.u.set.dst = (void *)(uintptr_t)ptr;
    e.u.set.value = value;
    e.u.set.bytes = bytes < sim_set.copy_max ? bytes : sim_set.copy_max;
    e.dur_ns = 1000 + bytes / 1000;
    return sim_push(s, &e, NULL);
}

CUresult sim_set_rows(struct sim_stream *s, uint64_t ptr, int value, size_t row_bytes, size_t rows)
{
    CUresult rc = set_push(s, ptr, value, row_bytes);
    struct sim_entry pad = {.type = SIM_E_KERNEL};
    pad.dur_ns = rows > 1 ? row_bytes * (rows - 1) / 1000 : 0;
    return rc != CUDA_OK || pad.dur_ns == 0 ? rc : sim_push(s, &pad, NULL);
}

#define SET_PAIR(sync, async, type, width)                                                         \
    static CUresult do_##sync(int pt, uint64_t ptr, type value, size_t n)                          \
    {                                                                                              \
        return set_push(sim_stream_of(NULL, pt), ptr, (int)value, n * width);                      \
    }                                                                                              \
    CU_PT(sync, _ptds, (uint64_t ptr, type value, size_t n), ptr, value, n)                        \
    static CUresult do_##async(int pt, uint64_t ptr, type value, size_t n, CUstream stream)        \
    {                                                                                              \
        return set_push(sim_stream_of(stream, pt), ptr, (int)value, n * width);                    \
    }                                                                                              \
    CU_PT(async, _ptsz, (uint64_t ptr, type value, size_t n, CUstream stream), ptr, value, n,      \
          stream)

SET_PAIR(cuMemsetD8_v2, cuMemsetD8Async, unsigned char, 1)
SET_PAIR(cuMemsetD16_v2, cuMemsetD16Async, unsigned short, 2)
SET_PAIR(cuMemsetD32_v2, cuMemsetD32Async, unsigned, 4)

CU_FN(cuPointerGetAttribute)(void *data, int attribute, uint64_t ptr)
{
    SIM_COUNT(cuPointerGetAttribute);
    struct sim_device *owner = sim_mem_device(ptr);
    if (data == NULL || owner == NULL)
        return CUDA_EINVAL;
    *(int *)data = attribute == 2 ? 2 : owner->ordinal; // 2 = memory type: device
    return CUDA_OK;
}
