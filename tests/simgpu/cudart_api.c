// SPDX-License-Identifier: Apache-2.0
// Runtime: memory, copies, streams, events, launches, graphs. Every call goes on to the driver's
// export.
#include "cudart_drv.h"
#include "sim_launch.h"

#include <stdbool.h>
#include <string.h>

#ifndef RT_API
#define RT_API __attribute__((visibility("default")))
#endif

// A plain export: ready check, then one driver call.
#define RT_FN(name, params, call)                                                                  \
    RT_API cudaError_t name params                                                                 \
    {                                                                                              \
        SIM_COUNT(name);                                                                           \
        int rc = sim_rt_ready();                                                                   \
        return sim_rt_done(rc != 0 ? rc : sim_drv[0].call);                                        \
    }
// An export and its per-thread-default-stream variant.
#define RT_PT(name, suffix, params, call)                                                          \
    RT_FN(name, params, call)                                                                      \
    RT_API cudaError_t name##suffix params                                                         \
    {                                                                                              \
        SIM_COUNT(name##suffix);                                                                   \
        int rc = sim_rt_ready();                                                                   \
        return sim_rt_done(rc != 0 ? rc : sim_drv[1].call);                                        \
    }
// As RT_PT, but through a helper that takes the flavour first.
#define RT_PT_DO(name, suffix, params, ...)                                                        \
    RT_API cudaError_t name params                                                                 \
    {                                                                                              \
        SIM_COUNT(name);                                                                           \
        int rc = sim_rt_ready();                                                                   \
        return sim_rt_done(rc != 0 ? rc : do_##name(0, __VA_ARGS__));                              \
    }                                                                                              \
    RT_API cudaError_t name##suffix params                                                         \
    {                                                                                              \
        SIM_COUNT(name##suffix);                                                                   \
        int rc = sim_rt_ready();                                                                   \
        return sim_rt_done(rc != 0 ? rc : do_##name(1, __VA_ARGS__));                              \
    }

#define ADDR(p) ((uint64_t)(uintptr_t)(p))

RT_FN(cudaMalloc, (void **ptr, size_t bytes), cuMemAlloc((uint64_t *)ptr, bytes))
RT_FN(cudaMallocManaged, (void **ptr, size_t bytes, unsigned flags),
      cuMemAllocManaged((uint64_t *)ptr, bytes, flags))
RT_FN(cudaMallocPitch, (void **ptr, size_t *pitch, size_t width, size_t height),
      cuMemAllocPitch((uint64_t *)ptr, pitch, width, height, 4))
RT_FN(cudaFree, (void *ptr), cuMemFree(ADDR(ptr)))
RT_FN(cudaMallocHost, (void **ptr, size_t bytes), cuMemHostAlloc(ptr, bytes, 0))
RT_FN(cudaHostAlloc, (void **ptr, size_t bytes, unsigned flags), cuMemHostAlloc(ptr, bytes, flags))
RT_FN(cudaFreeHost, (void *ptr), cuMemFreeHost(ptr))
RT_FN(cudaHostRegister, (void *ptr, size_t bytes, unsigned flags),
      cuMemHostRegister(ptr, bytes, flags))
RT_FN(cudaHostUnregister, (void *ptr), cuMemHostUnregister(ptr))
RT_FN(cudaMemGetInfo, (size_t * free_bytes, size_t *total), cuMemGetInfo(free_bytes, total))
RT_PT(cudaMallocAsync, _ptsz, (void **ptr, size_t bytes, cudaStream_t stream),
      cuMemAllocAsync((uint64_t *)ptr, bytes, stream))
RT_PT(cudaMallocFromPoolAsync, _ptsz, (void **ptr, size_t bytes, void *pool, cudaStream_t stream),
      cuMemAllocFromPoolAsync((uint64_t *)ptr, bytes, pool, stream))
RT_PT(cudaFreeAsync, _ptsz, (void *ptr, cudaStream_t stream), cuMemFreeAsync(ADDR(ptr), stream))

static int do_cudaMemcpy(int pt, void *dst, const void *src, size_t bytes, int kind)
{
    const struct sim_drv *d = &sim_drv[pt];
    switch (kind) {
    case 0:
        memmove(dst, src, bytes);
        return 0;
    case 1:
        return d->cuMemcpyHtoD(ADDR(dst), ADDR(src), bytes);
    case 2:
        return d->cuMemcpyDtoH(ADDR(dst), ADDR(src), bytes);
    case 3:
        return d->cuMemcpyDtoD(ADDR(dst), ADDR(src), bytes);
    case 4:
        return d->cuMemcpy(ADDR(dst), ADDR(src), bytes);
    default:
        return 1;
    }
}
RT_PT_DO(cudaMemcpy, _ptds, (void *dst, const void *src, size_t bytes, int kind), dst, src, bytes,
         kind)

static int do_cudaMemcpyAsync(int pt, void *dst, const void *src, size_t bytes, int kind,
                              cudaStream_t stream)
{
    const struct sim_drv *d = &sim_drv[pt];
    switch (kind) {
    case 1:
        return d->cuMemcpyHtoDAsync(ADDR(dst), ADDR(src), bytes, stream);
    case 2:
        return d->cuMemcpyDtoHAsync(ADDR(dst), ADDR(src), bytes, stream);
    case 3:
        return d->cuMemcpyDtoDAsync(ADDR(dst), ADDR(src), bytes, stream);
    case 0:
    case 4:
        return d->cuMemcpyAsync(ADDR(dst), ADDR(src), bytes, stream);
    default:
        return 1;
    }
}
RT_PT_DO(cudaMemcpyAsync, _ptsz,
         (void *dst, const void *src, size_t bytes, int kind, cudaStream_t stream), dst, src, bytes,
         kind, stream)

struct rt_memcpy2d { // CUDA_MEMCPY2D
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

struct rt_rect {
    void *dst;
    size_t dst_pitch;
    const void *src;
    size_t src_pitch, width, height;
};

static int copy_2d(int pt, const struct rt_rect *r, int kind, bool async, cudaStream_t stream)
{
    struct rt_memcpy2d p = {.src_pitch = r->src_pitch,
                            .dst_pitch = r->dst_pitch,
                            .width = r->width,
                            .height = r->height};
    if (kind < 0 || kind > 4)
        return 1;
    p.src_type = kind <= 1 ? 1 : kind == 4 ? 4 : 2;
    p.dst_type = kind == 0 || kind == 2 ? 1 : kind == 4 ? 4 : 2;
    p.src_host = r->src;
    p.src_device = ADDR(r->src);
    p.dst_host = r->dst;
    p.dst_device = ADDR(r->dst);
    return async ? sim_drv[pt].cuMemcpy2DAsync(&p, stream) : sim_drv[pt].cuMemcpy2DUnaligned(&p);
}

static int do_cudaMemcpy2D(int pt, void *dst, size_t dpitch, const void *src, size_t spitch,
                           size_t width, size_t height, int kind)
{
    struct rt_rect r = {dst, dpitch, src, spitch, width, height};
    return copy_2d(pt, &r, kind, false, NULL);
}
RT_PT_DO(cudaMemcpy2D, _ptds,
         (void *dst, size_t dpitch, const void *src, size_t spitch, size_t width, size_t height,
          int kind),
         dst, dpitch, src, spitch, width, height, kind)

static int do_cudaMemcpy2DAsync(int pt, void *dst, size_t dpitch, const void *src, size_t spitch,
                                size_t width, size_t height, int kind, cudaStream_t stream)
{
    struct rt_rect r = {dst, dpitch, src, spitch, width, height};
    return copy_2d(pt, &r, kind, true, stream);
}
RT_PT_DO(cudaMemcpy2DAsync, _ptsz,
         (void *dst, size_t dpitch, const void *src, size_t spitch, size_t width, size_t height,
          int kind, cudaStream_t stream),
         dst, dpitch, src, spitch, width, height, kind, stream)

RT_FN(cudaMemcpyPeer, (void *dst, int dst_device, const void *src, int src_device, size_t bytes),
      cuMemcpyPeer(ADDR(dst), (void *)(intptr_t)dst_device, ADDR(src), (void *)(intptr_t)src_device,
                   bytes))
RT_FN(cudaMemcpyPeerAsync,
      (void *dst, int dst_device, const void *src, int src_device, size_t bytes,
       cudaStream_t stream),
      cuMemcpyPeerAsync(ADDR(dst), (void *)(intptr_t)dst_device, ADDR(src),
                        (void *)(intptr_t)src_device, bytes, stream))
RT_PT(cudaMemset, _ptds, (void *ptr, int value, size_t bytes),
      cuMemsetD8(ADDR(ptr), (unsigned char)value, bytes))
RT_PT(cudaMemsetAsync, _ptsz, (void *ptr, int value, size_t bytes, cudaStream_t stream),
      cuMemsetD8Async(ADDR(ptr), (unsigned char)value, bytes, stream))

RT_FN(cudaStreamCreate, (cudaStream_t * stream), cuStreamCreate(stream, 0))
RT_FN(cudaStreamCreateWithFlags, (cudaStream_t * stream, unsigned flags),
      cuStreamCreate(stream, flags))
RT_FN(cudaStreamCreateWithPriority, (cudaStream_t * stream, unsigned flags, int priority),
      cuStreamCreateWithPriority(stream, flags, priority))
RT_FN(cudaStreamDestroy, (cudaStream_t stream), cuStreamDestroy(stream))
RT_PT(cudaStreamSynchronize, _ptsz, (cudaStream_t stream), cuStreamSynchronize(stream))
RT_PT(cudaStreamQuery, _ptsz, (cudaStream_t stream), cuStreamQuery(stream))
RT_PT(cudaStreamWaitEvent, _ptsz, (cudaStream_t stream, cudaEvent_t event, unsigned flags),
      cuStreamWaitEvent(stream, event, flags))
RT_PT(cudaStreamAddCallback, _ptsz, (cudaStream_t stream, void *fn, void *arg, unsigned flags),
      cuStreamAddCallback(stream, fn, arg, flags))
RT_PT(cudaLaunchHostFunc, _ptsz, (cudaStream_t stream, void (*fn)(void *), void *arg),
      cuLaunchHostFunc(stream, fn, arg))
RT_FN(cudaEventCreate, (cudaEvent_t * event), cuEventCreate(event, 0))
RT_FN(cudaEventCreateWithFlags, (cudaEvent_t * event, unsigned flags), cuEventCreate(event, flags))
RT_PT(cudaEventRecord, _ptsz, (cudaEvent_t event, cudaStream_t stream),
      cuEventRecord(event, stream))
RT_PT(cudaEventRecordWithFlags, _ptsz, (cudaEvent_t event, cudaStream_t stream, unsigned flags),
      cuEventRecordWithFlags(event, stream, flags))
RT_FN(cudaEventQuery, (cudaEvent_t event), cuEventQuery(event))
RT_FN(cudaEventSynchronize, (cudaEvent_t event), cuEventSynchronize(event))
RT_FN(cudaEventDestroy, (cudaEvent_t event), cuEventDestroy(event))
RT_FN(cudaEventElapsedTime, (float *ms, cudaEvent_t start, cudaEvent_t end),
      cuEventElapsedTime(ms, start, end))

static int do_cudaLaunchKernel(int pt, const void *func, struct sim_dim3 g, struct sim_dim3 b,
                               void **args, size_t shared, cudaStream_t stream)
{
    void *fn = sim_rt_function(func);
    if (fn == NULL)
        return 98;
    return sim_drv[pt].cuLaunchKernel(fn, g.x, g.y, g.z, b.x, b.y, b.z, (unsigned)shared, stream,
                                      args, NULL);
}
RT_PT_DO(cudaLaunchKernel, _ptsz,
         (const void *func, struct sim_dim3 g, struct sim_dim3 b, void **args, size_t shared,
          cudaStream_t stream),
         func, g, b, args, shared, stream)

// Tail jumps, as in the real library: a probe on cudaLaunchKernel sees both spellings once.
RT_API cudaError_t __cudaLaunchKernel(const void *func, struct sim_dim3 g, struct sim_dim3 b,
                                      void **args, size_t shared, cudaStream_t stream)
{
    SIM_COUNT(__cudaLaunchKernel);
    return cudaLaunchKernel(func, g, b, args, shared, stream);
}

RT_API cudaError_t __cudaLaunchKernel_ptsz(const void *func, struct sim_dim3 g, struct sim_dim3 b,
                                           void **args, size_t shared, cudaStream_t stream)
{
    SIM_COUNT(__cudaLaunchKernel_ptsz);
    return cudaLaunchKernel_ptsz(func, g, b, args, shared, stream);
}

static int do_cudaLaunchCooperativeKernel(int pt, const void *func, struct sim_dim3 g,
                                          struct sim_dim3 b, void **args, size_t shared,
                                          cudaStream_t stream)
{
    void *fn = sim_rt_function(func);
    if (fn == NULL)
        return 98;
    return sim_drv[pt].cuLaunchCooperativeKernel(fn, g.x, g.y, g.z, b.x, b.y, b.z, (unsigned)shared,
                                                 stream, args);
}
RT_PT_DO(cudaLaunchCooperativeKernel, _ptsz,
         (const void *func, struct sim_dim3 g, struct sim_dim3 b, void **args, size_t shared,
          cudaStream_t stream),
         func, g, b, args, shared, stream)

struct rt_launch_config { // cudaLaunchConfig_t
    struct sim_dim3 grid, block;
    size_t shared;
    cudaStream_t stream;
    void *attrs;
    unsigned attr_count;
};
struct rt_driver_config { // CUlaunchConfig
    struct sim_dim3 grid, block;
    unsigned shared, pad;
    cudaStream_t stream;
    void *attrs;
    unsigned attr_count;
};

static int do_cudaLaunchKernelExC(int pt, const struct rt_launch_config *c, const void *func,
                                  void **args)
{
    void *fn = sim_rt_function(func);
    if (fn == NULL || c == NULL)
        return c == NULL ? 1 : 98;
    struct rt_driver_config d = {c->grid,   c->block, (unsigned)c->shared, 0,
                                 c->stream, c->attrs, c->attr_count};
    return sim_drv[pt].cuLaunchKernelEx(&d, fn, args, NULL);
}
RT_PT_DO(cudaLaunchKernelExC, _ptsz,
         (const struct rt_launch_config *c, const void *func, void **args), c, func, args)

RT_PT(cudaStreamBeginCapture, _ptsz, (cudaStream_t stream, int mode),
      cuStreamBeginCapture(stream, mode))
RT_PT(cudaStreamEndCapture, _ptsz, (cudaStream_t stream, cudaGraph_t *graph),
      cuStreamEndCapture(stream, graph))
RT_PT(cudaStreamIsCapturing, _ptsz, (cudaStream_t stream, int *status),
      cuStreamIsCapturing(stream, status))
RT_FN(cudaGraphCreate, (cudaGraph_t * graph, unsigned flags), cuGraphCreate(graph, flags))
RT_FN(cudaGraphInstantiate, (cudaGraphExec_t * exec, cudaGraph_t graph, unsigned long long flags),
      cuGraphInstantiateWithFlags(exec, graph, flags))
RT_FN(cudaGraphInstantiateWithFlags,
      (cudaGraphExec_t * exec, cudaGraph_t graph, unsigned long long flags),
      cuGraphInstantiateWithFlags(exec, graph, flags))
RT_PT(cudaGraphInstantiateWithParams, _ptsz,
      (cudaGraphExec_t * exec, cudaGraph_t graph, void *params),
      cuGraphInstantiateWithParams(exec, graph, params))
RT_PT(cudaGraphLaunch, _ptsz, (cudaGraphExec_t exec, cudaStream_t stream),
      cuGraphLaunch(exec, stream))
RT_PT(cudaGraphUpload, _ptsz, (cudaGraphExec_t exec, cudaStream_t stream),
      cuGraphUpload(exec, stream))
RT_FN(cudaGraphExecUpdate, (cudaGraphExec_t exec, cudaGraph_t graph, void *result),
      cuGraphExecUpdate(exec, graph, result))
RT_FN(cudaGraphExecDestroy, (cudaGraphExec_t exec), cuGraphExecDestroy(exec))
RT_FN(cudaGraphDestroy, (cudaGraph_t graph), cuGraphDestroy(graph))
