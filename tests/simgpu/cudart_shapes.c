// SPDX-License-Identifier: Apache-2.0
// Runtime: copies and sets of other shapes than a line, arrays, symbols, batches, prefetch.
#include "cudart_export.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct rt_extent {
    size_t width, height, depth;
};
struct rt_pitched {
    void *ptr;
    size_t pitch, xsize, ysize;
};
struct rt_pos {
    size_t x, y, z;
};
struct rt_format { // cudaChannelFormatDesc
    int x, y, z, w, kind;
};

// What a runtime array is: the driver's, and what the runtime needs of its format.
struct rt_array {
    void *driver;
    size_t element;
};

struct rt_memcpy3d { // CUDA_MEMCPY3D and ..._PEER
    size_t src_pos[3], src_lod;
    int src_type;
    const void *src_host;
    uint64_t src_device;
    void *src_array;
    void *src_context;
    size_t src_pitch, src_height;
    size_t dst_pos[3], dst_lod;
    int dst_type;
    void *dst_host;
    uint64_t dst_device;
    void *dst_array;
    void *dst_context;
    size_t dst_pitch, dst_height;
    size_t width, height, depth;
};
_Static_assert(sizeof(struct rt_memcpy3d) == 200, "CUDA_MEMCPY3D");

// One end of a copy: pointer or array.
struct rt_end {
    void *ptr;
    const struct rt_array *array;
    int type; // CUmemorytype
};

static size_t extent_rows(struct rt_extent e)
{
    return (e.height == 0 ? 1 : e.height) * (e.depth == 0 ? 1 : e.depth);
}

RT_API cudaError_t cudaMalloc3D(struct rt_pitched *ret, struct rt_extent e)
{
    SIM_COUNT(cudaMalloc3D);
    uint64_t at = 0;
    int rc = sim_rt_ready();
    if (rc == 0)
        rc = sim_drv[0].cuMemAllocPitch(&at, &ret->pitch, e.width, extent_rows(e), 4);
    ret->ptr = (void *)(uintptr_t)at;
    ret->xsize = e.width;
    ret->ysize = e.height;
    return sim_rt_done(rc);
}

// The format of the driver that has as many bytes for each number.
static unsigned driver_format(const struct rt_format *f)
{
    return f->x == 32 ? 0x03 : f->x == 16 ? 0x02 : 0x01;
}

static int array_new(struct rt_array **ret, const struct rt_format *f, struct rt_extent e)
{
    if (ret == NULL || f == NULL)
        return 1;
    struct rt_array *a = calloc(1, sizeof(*a));
    if (a == NULL)
        return 2;
    unsigned channels = (f->x != 0) + (f->y != 0) + (f->z != 0) + (f->w != 0);
    a->element = (size_t)(f->x + f->y + f->z + f->w) / 8;
    struct {
        size_t width, height, depth;
        unsigned format, channels, flags, pad;
    } d = {e.width, e.height, e.depth, driver_format(f), channels, 0, 0};
    struct {
        size_t width, height;
        unsigned format, channels;
    } flat = {e.width, e.height, driver_format(f), channels};
    int rc = e.depth == 0 ? sim_drv[0].cuArrayCreate(&a->driver, &flat)
                          : sim_drv[0].cuArray3DCreate(&a->driver, &d);
    if (rc != 0) {
        free(a);
        return rc;
    }
    *ret = a;
    return 0;
}

RT_API cudaError_t cudaMallocArray(struct rt_array **ret, const struct rt_format *f, size_t width,
                                   size_t height, unsigned flags)
{
    SIM_COUNT(cudaMallocArray);
    const struct rt_extent e = {width, height, 0};
    int rc = sim_rt_ready();
    (void)flags;
    return sim_rt_done(rc != 0 ? rc : array_new(ret, f, e));
}

RT_API cudaError_t cudaMalloc3DArray(struct rt_array **ret, const struct rt_format *f,
                                     struct rt_extent e, unsigned flags)
{
    SIM_COUNT(cudaMalloc3DArray);
    int rc = sim_rt_ready();
    (void)flags;
    return sim_rt_done(rc != 0 ? rc : array_new(ret, f, e));
}

// Only the first level is there.
RT_API cudaError_t cudaMallocMipmappedArray(struct rt_array **ret, const struct rt_format *f,
                                            struct rt_extent e, unsigned levels, unsigned flags)
{
    SIM_COUNT(cudaMallocMipmappedArray);
    int rc = sim_rt_ready();
    (void)flags;
    if (rc == 0 && levels == 0)
        rc = 1;
    return sim_rt_done(rc != 0 ? rc : array_new(ret, f, e));
}

static int array_free(struct rt_array *a)
{
    if (a == NULL)
        return 0;
    int rc = sim_drv[0].cuArrayDestroy(a->driver);
    free(a);
    return rc;
}

RT_API cudaError_t cudaFreeArray(struct rt_array *array)
{
    SIM_COUNT(cudaFreeArray);
    int rc = sim_rt_ready();
    return sim_rt_done(rc != 0 ? rc : array_free(array));
}

RT_API cudaError_t cudaFreeMipmappedArray(struct rt_array *array)
{
    SIM_COUNT(cudaFreeMipmappedArray);
    int rc = sim_rt_ready();
    return sim_rt_done(rc != 0 ? rc : array_free(array));
}

// kind as in cudaMemcpyKind; 4 leaves it to the driver.
static void set_types(struct rt_end *src, struct rt_end *dst, int kind)
{
    src->type = src->array != NULL ? 3 : kind <= 1 ? 1 : kind == 4 ? 4 : 2;
    dst->type = dst->array != NULL ? 3 : kind == 0 || kind == 2 ? 1 : kind == 4 ? 4 : 2;
}

static void fill_3d(struct rt_memcpy3d *p, const struct rt_end *src, const struct rt_end *dst,
                    struct rt_extent e)
{
    *p = (struct rt_memcpy3d){.src_type = src->type,
                              .dst_type = dst->type,
                              .src_host = src->ptr,
                              .src_device = ADDR(src->ptr),
                              .src_array = src->array != NULL ? src->array->driver : NULL,
                              .dst_host = dst->ptr,
                              .dst_device = ADDR(dst->ptr),
                              .dst_array = dst->array != NULL ? dst->array->driver : NULL,
                              .width = e.width,
                              .height = e.height,
                              .depth = e.depth};
}

// Rectangles that begin or end in an array; the width is in bytes.
static int copy_rect(int pt, const struct rt_end ends[2], struct rt_extent e, int kind,
                     const cudaStream_t *stream)
{
    struct rt_end src = ends[0], dst = ends[1];
    struct rt_memcpy3d p;
    if (kind < 0 || kind > 4)
        return 1;
    set_types(&src, &dst, kind);
    fill_3d(&p, &src, &dst, e);
    return stream != NULL ? sim_drv[pt].cuMemcpy3DAsync(&p, *stream) : sim_drv[pt].cuMemcpy3D(&p);
}

#define TO_ARRAY                                                                                   \
    struct rt_array *dst, size_t w_offset, size_t h_offset, const void *src, size_t spitch,        \
        size_t width, size_t height, int kind
#define TO_ARRAY_ARGS dst, w_offset, h_offset, src, spitch, width, height, kind

static int to_array(int pt, TO_ARRAY, const cudaStream_t *stream)
{
    const struct rt_end ends[2] = {{.ptr = (void *)(uintptr_t)src}, {.array = dst}};
    const struct rt_extent e = {width, height, 1};
    (void)w_offset;
    (void)h_offset;
    (void)spitch;
    return dst == NULL ? 1 : copy_rect(pt, ends, e, kind, stream);
}

static int do_cudaMemcpy2DToArray(int pt, TO_ARRAY)
{
    return to_array(pt, TO_ARRAY_ARGS, NULL);
}
RT_PT_DO(cudaMemcpy2DToArray, _ptds, (TO_ARRAY), TO_ARRAY_ARGS)

static int do_cudaMemcpy2DToArrayAsync(int pt, TO_ARRAY, cudaStream_t stream)
{
    return to_array(pt, TO_ARRAY_ARGS, &stream);
}
RT_PT_DO(cudaMemcpy2DToArrayAsync, _ptsz, (TO_ARRAY, cudaStream_t stream), TO_ARRAY_ARGS, stream)

#define FROM_ARRAY                                                                                 \
    void *dst, size_t dpitch, const struct rt_array *src, size_t w_offset, size_t h_offset,        \
        size_t width, size_t height, int kind
#define FROM_ARRAY_ARGS dst, dpitch, src, w_offset, h_offset, width, height, kind

static int from_array(int pt, FROM_ARRAY, const cudaStream_t *stream)
{
    const struct rt_end ends[2] = {{.array = src}, {.ptr = dst}};
    const struct rt_extent e = {width, height, 1};
    (void)w_offset;
    (void)h_offset;
    (void)dpitch;
    return src == NULL ? 1 : copy_rect(pt, ends, e, kind, stream);
}

static int do_cudaMemcpy2DFromArray(int pt, FROM_ARRAY)
{
    return from_array(pt, FROM_ARRAY_ARGS, NULL);
}
RT_PT_DO(cudaMemcpy2DFromArray, _ptds, (FROM_ARRAY), FROM_ARRAY_ARGS)

static int do_cudaMemcpy2DFromArrayAsync(int pt, FROM_ARRAY, cudaStream_t stream)
{
    return from_array(pt, FROM_ARRAY_ARGS, &stream);
}
RT_PT_DO(cudaMemcpy2DFromArrayAsync, _ptsz, (FROM_ARRAY, cudaStream_t stream), FROM_ARRAY_ARGS,
         stream)

#define BETWEEN_ARRAYS                                                                             \
    struct rt_array *dst, size_t dst_w, size_t dst_h, const struct rt_array *src, size_t src_w,    \
        size_t src_h, size_t width, size_t height, int kind
#define BETWEEN_ARRAYS_ARGS dst, dst_w, dst_h, src, src_w, src_h, width, height, kind

static int do_cudaMemcpy2DArrayToArray(int pt, BETWEEN_ARRAYS)
{
    const struct rt_end ends[2] = {{.array = src}, {.array = dst}};
    const struct rt_extent e = {width, height, 1};
    (void)dst_w;
    (void)dst_h;
    (void)src_w;
    (void)src_h;
    return src == NULL || dst == NULL ? 1 : copy_rect(pt, ends, e, kind, NULL);
}
RT_PT_DO(cudaMemcpy2DArrayToArray, _ptds, (BETWEEN_ARRAYS), BETWEEN_ARRAYS_ARGS)

struct rt_parms3d { // cudaMemcpy3DParms
    const struct rt_array *src_array;
    struct rt_pos src_pos;
    struct rt_pitched src;
    const struct rt_array *dst_array;
    struct rt_pos dst_pos;
    struct rt_pitched dst;
    struct rt_extent extent;
    int kind;
};
_Static_assert(sizeof(struct rt_parms3d) == 160, "cudaMemcpy3DParms");

struct rt_parms3d_peer { // cudaMemcpy3DPeerParms
    const struct rt_array *src_array;
    struct rt_pos src_pos;
    struct rt_pitched src;
    int src_device;
    const struct rt_array *dst_array;
    struct rt_pos dst_pos;
    struct rt_pitched dst;
    int dst_device;
    struct rt_extent extent;
};
_Static_assert(sizeof(struct rt_parms3d_peer) == 168, "cudaMemcpy3DPeerParms");

static int box_of(const struct rt_parms3d *r, struct rt_memcpy3d *p)
{
    struct rt_end src = {.ptr = r->src.ptr, .array = r->src_array};
    struct rt_end dst = {.ptr = r->dst.ptr, .array = r->dst_array};
    struct rt_extent e = r->extent;
    if (r->kind < 0 || r->kind > 4)
        return 1;
    if (src.array != NULL || dst.array != NULL) // in elements then
        e.width *= src.array != NULL ? src.array->element : dst.array->element;
    set_types(&src, &dst, r->kind);
    fill_3d(p, &src, &dst, e);
    return 0;
}

static int do_cudaMemcpy3D(int pt, const struct rt_parms3d *r)
{
    struct rt_memcpy3d p;
    int rc = r == NULL ? 1 : box_of(r, &p);
    return rc != 0 ? rc : sim_drv[pt].cuMemcpy3D(&p);
}
RT_PT_DO(cudaMemcpy3D, _ptds, (const struct rt_parms3d *r), r)

static int do_cudaMemcpy3DAsync(int pt, const struct rt_parms3d *r, cudaStream_t stream)
{
    struct rt_memcpy3d p;
    int rc = r == NULL ? 1 : box_of(r, &p);
    return rc != 0 ? rc : sim_drv[pt].cuMemcpy3DAsync(&p, stream);
}
RT_PT_DO(cudaMemcpy3DAsync, _ptsz, (const struct rt_parms3d *r, cudaStream_t stream), r, stream)

static int peer_box_of(const struct rt_parms3d_peer *r, struct rt_memcpy3d *p)
{
    const struct rt_parms3d plain = {.src_array = r->src_array,
                                     .src = r->src,
                                     .dst_array = r->dst_array,
                                     .dst = r->dst,
                                     .extent = r->extent,
                                     .kind = 3};
    return box_of(&plain, p);
}

static int do_cudaMemcpy3DPeer(int pt, const struct rt_parms3d_peer *r)
{
    struct rt_memcpy3d p;
    int rc = r == NULL ? 1 : peer_box_of(r, &p);
    return rc != 0 ? rc : sim_drv[pt].cuMemcpy3DPeer(&p);
}
RT_PT_DO(cudaMemcpy3DPeer, _ptds, (const struct rt_parms3d_peer *r), r)

static int do_cudaMemcpy3DPeerAsync(int pt, const struct rt_parms3d_peer *r, cudaStream_t stream)
{
    struct rt_memcpy3d p;
    int rc = r == NULL ? 1 : peer_box_of(r, &p);
    return rc != 0 ? rc : sim_drv[pt].cuMemcpy3DPeerAsync(&p, stream);
}
RT_PT_DO(cudaMemcpy3DPeerAsync, _ptsz, (const struct rt_parms3d_peer *r, cudaStream_t stream), r,
         stream)

// A symbol is a device address here: nothing registers variables.
static int symbol_copy(int pt, uint64_t dst, uint64_t src, size_t bytes, int kind)
{
    const struct sim_drv *d = &sim_drv[pt];
    return kind == 1   ? d->cuMemcpyHtoD(dst, src, bytes)
           : kind == 2 ? d->cuMemcpyDtoH(dst, src, bytes)
           : kind == 3 ? d->cuMemcpyDtoD(dst, src, bytes)
           : kind == 4 ? d->cuMemcpy(dst, src, bytes)
                       : 1;
}

static int symbol_copy_async(int pt, uint64_t dst, uint64_t src, size_t bytes, int kind,
                             cudaStream_t stream)
{
    const struct sim_drv *d = &sim_drv[pt];
    return kind == 1   ? d->cuMemcpyHtoDAsync(dst, src, bytes, stream)
           : kind == 2 ? d->cuMemcpyDtoHAsync(dst, src, bytes, stream)
           : kind == 3 ? d->cuMemcpyDtoDAsync(dst, src, bytes, stream)
           : kind == 4 ? d->cuMemcpyAsync(dst, src, bytes, stream)
                       : 1;
}

static int do_cudaMemcpyToSymbol(int pt, const void *symbol, const void *src, size_t count,
                                 size_t offset, int kind)
{
    return symbol_copy(pt, ADDR(symbol) + offset, ADDR(src), count, kind);
}
RT_PT_DO(cudaMemcpyToSymbol, _ptds,
         (const void *symbol, const void *src, size_t count, size_t offset, int kind), symbol, src,
         count, offset, kind)

static int do_cudaMemcpyFromSymbol(int pt, void *dst, const void *symbol, size_t count,
                                   size_t offset, int kind)
{
    return symbol_copy(pt, ADDR(dst), ADDR(symbol) + offset, count, kind);
}
RT_PT_DO(cudaMemcpyFromSymbol, _ptds,
         (void *dst, const void *symbol, size_t count, size_t offset, int kind), dst, symbol, count,
         offset, kind)

static int do_cudaMemcpyToSymbolAsync(int pt, const void *symbol, const void *src, size_t count,
                                      size_t offset, int kind, cudaStream_t stream)
{
    return symbol_copy_async(pt, ADDR(symbol) + offset, ADDR(src), count, kind, stream);
}
RT_PT_DO(cudaMemcpyToSymbolAsync, _ptsz,
         (const void *symbol, const void *src, size_t count, size_t offset, int kind,
          cudaStream_t stream),
         symbol, src, count, offset, kind, stream)

static int do_cudaMemcpyFromSymbolAsync(int pt, void *dst, const void *symbol, size_t count,
                                        size_t offset, int kind, cudaStream_t stream)
{
    return symbol_copy_async(pt, ADDR(dst), ADDR(symbol) + offset, count, kind, stream);
}
RT_PT_DO(cudaMemcpyFromSymbolAsync, _ptsz,
         (void *dst, const void *symbol, size_t count, size_t offset, int kind,
          cudaStream_t stream),
         dst, symbol, count, offset, kind, stream)

RT_PT(cudaMemset2D, _ptds, (void *ptr, size_t pitch, int value, size_t width, size_t height),
      cuMemsetD2D8(ADDR(ptr), pitch, (unsigned char)value, width, height))
RT_PT(cudaMemset2DAsync, _ptsz,
      (void *ptr, size_t pitch, int value, size_t width, size_t height, cudaStream_t stream),
      cuMemsetD2D8Async(ADDR(ptr), pitch, (unsigned char)value, width, height, stream))
RT_PT(cudaMemset3D, _ptds, (struct rt_pitched p, int value, struct rt_extent e),
      cuMemsetD2D8(ADDR(p.ptr), p.pitch, (unsigned char)value, e.width, e.height *e.depth))
RT_PT(cudaMemset3DAsync, _ptsz,
      (struct rt_pitched p, int value, struct rt_extent e, cudaStream_t stream),
      cuMemsetD2D8Async(ADDR(p.ptr), p.pitch, (unsigned char)value, e.width, e.height *e.depth,
                        stream))

struct rt_launch_params { // cudaLaunchParams
    const void *func;
    struct sim_dim3 grid, block;
    void **args;
    size_t shared;
    cudaStream_t stream;
};
struct rt_driver_params { // CUDA_LAUNCH_PARAMS
    void *f;
    struct sim_dim3 grid, block;
    unsigned shared, pad;
    cudaStream_t stream;
    void **args;
};

RT_API cudaError_t cudaLaunchCooperativeKernelMultiDevice(const struct rt_launch_params *list,
                                                          unsigned count, unsigned flags)
{
    SIM_COUNT(cudaLaunchCooperativeKernelMultiDevice);
    struct rt_driver_params d[16];
    int rc = sim_rt_ready();
    if (rc == 0 && (list == NULL || count == 0 || count > sizeof(d) / sizeof(d[0])))
        rc = 1;
    for (unsigned i = 0; rc == 0 && i < count; i++) {
        const struct rt_launch_params *l = &list[i];
        d[i] = (struct rt_driver_params){sim_rt_function(l->func),
                                         l->grid,
                                         l->block,
                                         (unsigned)l->shared,
                                         0,
                                         l->stream,
                                         l->args};
        rc = d[i].f == NULL ? 98 : 0;
    }
    if (rc == 0)
        rc = sim_drv[0].cuLaunchCooperativeKernelMultiDevice(d, count, flags);
    return sim_rt_done(rc);
}

// Where one name has another layout in another major version.
#define LOCATION_OF(device) ((uint64_t)1 | (uint64_t)(unsigned)(device) << 32)

#if SIM_RT_MAJOR < 13
RT_PT(cudaMemPrefetchAsync, _ptsz, (const void *ptr, size_t bytes, int device, cudaStream_t stream),
      cuMemPrefetchAsync(ADDR(ptr), bytes, LOCATION_OF(device), 0, stream))
#else
RT_PT(cudaMemPrefetchAsync, _ptsz,
      (const void *ptr, size_t bytes, uint64_t location, unsigned flags, cudaStream_t stream),
      cuMemPrefetchAsync(ADDR(ptr), bytes, location, flags, stream))
#endif

#define BATCH_PARAMS                                                                               \
    void **dst, void **src, size_t *bytes, size_t count, void *attrs, size_t *attr_at,             \
        size_t attr_count
#define BATCH_CALL(failed)                                                                         \
    cuMemcpyBatchAsync((uint64_t *)dst, (uint64_t *)src, bytes, count, attrs, attr_at, attr_count, \
                       failed, stream)

#if SIM_RT_MAJOR == 12
RT_PT(cudaMemPrefetchAsync_v2, _ptsz,
      (const void *ptr, size_t bytes, uint64_t location, unsigned flags, cudaStream_t stream),
      cuMemPrefetchAsync(ADDR(ptr), bytes, location, flags, stream))
RT_PT(cudaMemcpyBatchAsync, _ptsz, (BATCH_PARAMS, size_t *failed, cudaStream_t stream),
      BATCH_CALL(failed))
#elif SIM_RT_MAJOR > 12
RT_PT(cudaMemcpyBatchAsync, _ptsz, (BATCH_PARAMS, cudaStream_t stream), BATCH_CALL(NULL))
#endif
