// SPDX-License-Identifier: Apache-2.0
// Driver: copies and sets of other shapes than a line, arrays, batches, prefetch.
#include "cuda_api.h"

#include <stdlib.h>

#define ARRAY_MAGIC 0x41525259u

// An array is device memory of elements. What a real driver keeps in tiles lies in rows here.
struct sim_array {
    uint32_t magic;
    uint64_t at;
};

uint64_t sim_array_address(const void *array)
{
    const struct sim_array *a = array;
    return a != NULL && a->magic == ARRAY_MAGIC ? a->at : 0;
}

static unsigned format_bytes(unsigned format)
{
    switch (format) {
    case 0x02:
    case 0x09:
    case 0x10:
        return 2;
    case 0x03:
    case 0x0a:
    case 0x20:
        return 4;
    default:
        return 1;
    }
}

static CUresult array_create(void **ret, size_t bytes)
{
    struct sim_device *dev;
    CUresult rc = sim_ctx_use(&dev);
    if (rc != CUDA_OK)
        return rc;
    struct sim_array *a = ret == NULL || bytes == 0 ? NULL : calloc(1, sizeof(*a));
    if (a == NULL)
        return ret == NULL || bytes == 0 ? CUDA_EINVAL : CUDA_ENOMEM;
    a->magic = ARRAY_MAGIC;
    rc = sim_mem_alloc(dev, bytes, &a->at);
    if (rc != CUDA_OK) {
        free(a);
        return rc;
    }
    *ret = a;
    return CUDA_OK;
}

struct array_descriptor { // CUDA_ARRAY_DESCRIPTOR
    size_t width, height;
    unsigned format, channels;
};
_Static_assert(sizeof(struct array_descriptor) == 24, "CUDA_ARRAY_DESCRIPTOR");

struct array3d_descriptor { // CUDA_ARRAY3D_DESCRIPTOR
    size_t width, height, depth;
    unsigned format, channels, flags, pad;
};
_Static_assert(sizeof(struct array3d_descriptor) == 40, "CUDA_ARRAY3D_DESCRIPTOR");

CU_FN(cuArrayCreate_v2)(void **ret, const struct array_descriptor *d)
{
    SIM_COUNT(cuArrayCreate_v2);
    if (d == NULL)
        return CUDA_EINVAL;
    size_t rows = d->height == 0 ? 1 : d->height;
    return array_create(ret, d->width * rows * d->channels * format_bytes(d->format));
}

CU_FN(cuArray3DCreate_v2)(void **ret, const struct array3d_descriptor *d)
{
    SIM_COUNT(cuArray3DCreate_v2);
    if (d == NULL)
        return CUDA_EINVAL;
    size_t rows = (d->height == 0 ? 1 : d->height) * (d->depth == 0 ? 1 : d->depth);
    return array_create(ret, d->width * rows * d->channels * format_bytes(d->format));
}

CU_FN(cuArrayDestroy)(void *array)
{
    SIM_COUNT(cuArrayDestroy);
    struct sim_array *a = array;
    struct sim_device *owner = sim_mem_device(sim_array_address(a));
    if (owner == NULL)
        return CUDA_EHANDLE;
    CUresult rc = sim_device_sync(owner);
    if (rc == CUDA_OK)
        rc = sim_mem_free(owner, a->at);
    a->magic = 0;
    free(a);
    return rc;
}

struct sim_memcpy3d { // CUDA_MEMCPY3D and, with contexts where the former has nothing, ..._PEER
    size_t src_x, src_y, src_z, src_lod;
    int src_type;
    const void *src_host;
    uint64_t src_device;
    void *src_array;
    void *src_context;
    size_t src_pitch, src_height;
    size_t dst_x, dst_y, dst_z, dst_lod;
    int dst_type;
    void *dst_host;
    uint64_t dst_device;
    void *dst_array;
    void *dst_context;
    size_t dst_pitch, dst_height;
    size_t width, height, depth;
};
_Static_assert(sizeof(struct sim_memcpy3d) == 200, "CUDA_MEMCPY3D");
_Static_assert(offsetof(struct sim_memcpy3d, src_context) == 64, "CUDA_MEMCPY3D_PEER");
_Static_assert(offsetof(struct sim_memcpy3d, dst_type) == 120, "CUDA_MEMCPY3D");
_Static_assert(offsetof(struct sim_memcpy3d, dst_context) == 152, "CUDA_MEMCPY3D_PEER");
_Static_assert(offsetof(struct sim_memcpy3d, width) == 176, "CUDA_MEMCPY3D");

static CUresult copy_3d(struct sim_stream *s, const struct sim_memcpy3d *p, bool sync)
{
    if (p == NULL)
        return CUDA_EINVAL;
    struct sim_rows r = {.row_bytes = p->width, .rows = p->height * p->depth, .kind = 4};
    r.src = p->src_type == 1   ? (uint64_t)(uintptr_t)p->src_host
            : p->src_type == 3 ? sim_array_address(p->src_array)
                               : p->src_device;
    r.dst = p->dst_type == 1   ? (uint64_t)(uintptr_t)p->dst_host
            : p->dst_type == 3 ? sim_array_address(p->dst_array)
                               : p->dst_device;
    return sim_copy_rows(s, &r, sync);
}

#define COPY_3D(sync, async, waits)                                                                \
    static CUresult do_##sync(int pt, const struct sim_memcpy3d *p)                                \
    {                                                                                              \
        return copy_3d(sim_stream_of(NULL, pt), p, waits);                                         \
    }                                                                                              \
    CU_PT(sync, _ptds, (const struct sim_memcpy3d *p), p)                                          \
    static CUresult do_##async(int pt, const struct sim_memcpy3d *p, CUstream stream)              \
    {                                                                                              \
        return copy_3d(sim_stream_of(stream, pt), p, false);                                       \
    }                                                                                              \
    CU_PT(async, _ptsz, (const struct sim_memcpy3d *p, CUstream stream), p, stream)

COPY_3D(cuMemcpy3D_v2, cuMemcpy3DAsync_v2, true)
COPY_3D(cuMemcpy3DPeer, cuMemcpy3DPeerAsync, false)

#define SET_2D(sync, async, type, bytes)                                                           \
    static CUresult do_##sync(int pt, uint64_t ptr, size_t pitch, type value, size_t width,        \
                              size_t height)                                                       \
    {                                                                                              \
        (void)pitch;                                                                               \
        return sim_set_rows(sim_stream_of(NULL, pt), ptr, (int)value, width * (bytes), height);    \
    }                                                                                              \
    CU_PT(sync, _ptds, (uint64_t ptr, size_t pitch, type value, size_t width, size_t height), ptr, \
          pitch, value, width, height)                                                             \
    static CUresult do_##async(int pt, uint64_t ptr, size_t pitch, type value, size_t width,       \
                               size_t height, CUstream stream)                                     \
    {                                                                                              \
        (void)pitch;                                                                               \
        return sim_set_rows(sim_stream_of(stream, pt), ptr, (int)value, width * (bytes), height);  \
    }                                                                                              \
    CU_PT(async, _ptsz,                                                                            \
          (uint64_t ptr, size_t pitch, type value, size_t width, size_t height, CUstream stream),  \
          ptr, pitch, value, width, height, stream)

SET_2D(cuMemsetD2D8_v2, cuMemsetD2D8Async, unsigned char, 1)
SET_2D(cuMemsetD2D16_v2, cuMemsetD2D16Async, unsigned short, 2)
SET_2D(cuMemsetD2D32_v2, cuMemsetD2D32Async, unsigned, 4)

struct sim_batch {
    uint64_t *dst, *src;
    size_t *bytes;
    size_t count;
};

static CUresult copy_batch(struct sim_stream *s, const struct sim_batch *b)
{
    CUresult rc = b->dst == NULL || b->src == NULL || b->bytes == NULL || b->count == 0
                      ? CUDA_EINVAL
                      : CUDA_OK;
    for (size_t i = 0; i < b->count && rc == CUDA_OK; i++) {
        const struct sim_rows r = {
            .dst = b->dst[i], .src = b->src[i], .row_bytes = b->bytes[i], .rows = 1, .kind = 4};
        rc = sim_copy_rows(s, &r, false);
    }
    return rc;
}

#define BATCH_PARAMS                                                                               \
    uint64_t *dst, uint64_t *src, size_t *bytes, size_t count, void *attrs, size_t *attr_at,       \
        size_t attr_count
#define BATCH_ARGS dst, src, bytes, count, attrs, attr_at, attr_count

static CUresult batch_on(struct sim_stream *s, BATCH_PARAMS)
{
    const struct sim_batch b = {dst, src, bytes, count};
    (void)attrs;
    (void)attr_at;
    (void)attr_count;
    return copy_batch(s, &b);
}

static CUresult do_cuMemcpyBatchAsync(int pt, BATCH_PARAMS, size_t *failed, CUstream stream)
{
    CUresult rc = batch_on(sim_stream_of(stream, pt), BATCH_ARGS);
    if (failed != NULL)
        *failed = rc == CUDA_OK ? 0 : SIZE_MAX;
    return rc;
}
CU_PT(cuMemcpyBatchAsync, _ptsz, (BATCH_PARAMS, size_t *failed, CUstream stream), BATCH_ARGS,
      failed, stream)

static CUresult do_cuMemcpyBatchAsync_v2(int pt, BATCH_PARAMS, CUstream stream)
{
    return batch_on(sim_stream_of(stream, pt), BATCH_ARGS);
}
CU_PT(cuMemcpyBatchAsync_v2, _ptsz, (BATCH_PARAMS, CUstream stream), BATCH_ARGS, stream)

// All memory is where it is; moving it takes its time.
static CUresult prefetch(struct sim_stream *s, uint64_t ptr, size_t bytes)
{
    struct sim_entry e = {.type = SIM_E_KERNEL};
    e.dur_ns = 1000 + bytes * 1000 / sim_set.copy_bytes_per_us;
    if (s == NULL || !sim_mem_valid(ptr, bytes))
        return s == NULL ? CUDA_ECTX : CUDA_EINVAL;
    return sim_push(s, &e, NULL);
}

static CUresult do_cuMemPrefetchAsync(int pt, uint64_t ptr, size_t bytes, int device,
                                      CUstream stream)
{
    (void)device;
    return prefetch(sim_stream_of(stream, pt), ptr, bytes);
}
CU_PT(cuMemPrefetchAsync, _ptsz, (uint64_t ptr, size_t bytes, int device, CUstream stream), ptr,
      bytes, device, stream)

static CUresult do_cuMemPrefetchAsync_v2(int pt, uint64_t ptr, size_t bytes, uint64_t location,
                                         unsigned flags, CUstream stream)
{
    (void)location;
    (void)flags;
    return prefetch(sim_stream_of(stream, pt), ptr, bytes);
}
CU_PT(cuMemPrefetchAsync_v2, _ptsz,
      (uint64_t ptr, size_t bytes, uint64_t location, unsigned flags, CUstream stream), ptr, bytes,
      location, flags, stream)
