// SPDX-License-Identifier: Apache-2.0
// Every traced function of the driver.
#include "capture_ops.h"

#include <stdlib.h>
#include <string.h>

typedef void *ptr;
typedef uint64_t dptr;

static ptr g_ctx, g_module, g_kernel, g_stream, g_other, g_event, g_host;
static dptr g_dev, g_dev2;
static size_t n, w, h, d; // what the next calls are given

#define SIZE   (n = ops_prime())
#define RECT   (w = ops_prime(), h = ops_small_prime(), w * h)
#define BOX    (w = ops_prime(), h = ops_small_prime(), d = ops_small_prime(), w * h * d)
#define STREAM OPS_ADDR(g_stream)
#define OTHER  OPS_ADDR(g_other)
#define PITCH  262144

static void contexts(void)
{
    ptr ctx = NULL, code = NULL;
    QUIETLY("cuInit", (unsigned), (0));
    DO("cuCtxCreate_v2", (0), (ptr *, unsigned, int), (&ctx, 0, 0));
    DO("cuCtxCreate_v3", (0), (ptr *, ptr, int, unsigned, int), (&ctx, NULL, 0, 0, 0));
    DO("cuCtxCreate_v4", (0), (ptr *, ptr, unsigned, int), (&ctx, NULL, 0, 0));
    DO("cuDevicePrimaryCtxRetain", (0), (ptr *, int), (&g_ctx, 0));
    QUIETLY("cuCtxSetCurrent", (ptr), (g_ctx));
    DO("cuModuleLoad", (0), (ptr *, const char *), (&g_module, ""));
    DO("cuModuleLoadData", (0), (ptr *, const char *), (&g_module, ""));
    DO("cuModuleLoadDataEx", (0), (ptr *, const char *, unsigned, ptr, ptr),
       (&g_module, "", 0, NULL, NULL));
    DO("cuModuleLoadFatBinary", (0), (ptr *, const char *), (&g_module, ""));
    DO("cuLibraryLoadData", (0), (ptr *, const char *, ptr, ptr, unsigned, ptr, ptr, unsigned),
       (&code, "", NULL, NULL, 0, NULL, NULL, 0));
    QUIETLY("cuModuleGetFunction", (ptr *, ptr, const char *), (&g_kernel, g_module, "simKernel"));
    QUIETLY("cuStreamCreate", (ptr *, unsigned), (&g_stream, 1));
    QUIETLY("cuStreamCreate", (ptr *, unsigned), (&g_other, 1));
    QUIETLY("cuEventCreate", (ptr *, unsigned), (&g_event, 0));
    DO("cuMemAlloc_v2", (.bytes = 67108879), (dptr *, size_t), (&g_dev, 67108879));
    DO("cuMemAlloc_v2", (.bytes = 67108913), (dptr *, size_t), (&g_dev2, 67108913));
    g_host = malloc(4 << 20);
    memset(g_host, 1, 4 << 20);
}

#define KERNEL_PARAMS                                                                              \
    ptr, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, ptr, ptr *

static void launches(void)
{
    uint64_t ns = 1000;
    ptr args[] = {&ns};
    struct {
        unsigned grid[3], block[3], shared, pad;
        ptr stream, attrs;
        unsigned attr_count;
    } config = {{1, 1, 1}, {1, 1, 1}, 0, 0, g_other, NULL, 0};
    struct {
        ptr f;
        unsigned grid[3], block[3], shared, pad;
        ptr stream;
        ptr *args;
    } list = {g_kernel, {1, 1, 1}, {1, 1, 1}, 0, 0, g_stream, args};
    Z("cuLaunchKernel", (.handle = STREAM), (KERNEL_PARAMS, ptr *),
      (g_kernel, 1, 1, 1, 1, 1, 1, 0, g_stream, args, NULL));
    Z("cuLaunchKernelEx", (.handle = OTHER), (ptr, ptr, ptr *, ptr *),
      (&config, g_kernel, args, NULL));
    Z("cuLaunchCooperativeKernel", (.handle = STREAM), (KERNEL_PARAMS),
      (g_kernel, 1, 1, 1, 1, 1, 1, 0, g_stream, args));
    DO("cuLaunchCooperativeKernelMultiDevice", (0), (ptr, unsigned, unsigned), (&list, 1, 0));
}

static void nothing(ptr arg)
{
    (void)arg;
}

static void called_back(ptr stream, int rc, ptr arg)
{
    (void)stream;
    (void)rc;
    (void)arg;
}

static void host_functions(void)
{
    Z("cuLaunchHostFunc", (.handle = STREAM), (ptr, void (*)(ptr), ptr), (g_stream, nothing, NULL));
    Z("cuStreamAddCallback", (.handle = OTHER), (ptr, void (*)(ptr, int, ptr), ptr, unsigned),
      (g_other, called_back, NULL, 0));
}

static void memory(void)
{
    dptr p = 0;
    ptr host = NULL;
    size_t pitch = 0;
    DO("cuMemAllocManaged", (.bytes = SIZE), (dptr *, size_t, unsigned), (&p, n, 1));
    DO("cuMemFree_v2", (.handle = p), (dptr), (p));
    DO("cuMemAllocPitch_v2", (.bytes = RECT), (dptr *, size_t *, size_t, size_t, unsigned),
       (&p, &pitch, w, h, 4));
    DO("cuMemFree_v2", (.handle = p), (dptr), (p));
    for (int i = 0; i < 2; i++) {
        DO(i == 0 ? "cuMemAllocAsync" : "cuMemAllocAsync_ptsz", (.bytes = SIZE, .handle = STREAM),
           (dptr *, size_t, ptr), (&p, n, g_stream));
        DO(i == 0 ? "cuMemFreeAsync" : "cuMemFreeAsync_ptsz", (.handle = p), (dptr, ptr),
           (p, g_stream));
        DO(i == 0 ? "cuMemAllocFromPoolAsync" : "cuMemAllocFromPoolAsync_ptsz",
           (.bytes = SIZE, .handle = OTHER), (dptr *, size_t, ptr, ptr), (&p, n, NULL, g_other));
        DO("cuMemFree_v2", (.handle = p), (dptr), (p));
    }
    DO("cuMemAllocHost_v2", (.bytes = SIZE), (ptr *, size_t), (&host, n));
    DO("cuMemFreeHost", (.handle = OPS_ADDR(host)), (ptr), (host));
    DO("cuMemHostAlloc", (.bytes = SIZE), (ptr *, size_t, unsigned), (&host, n, 0));
    DO("cuMemFreeHost", (.handle = OPS_ADDR(host)), (ptr), (host));
    DO("cuMemHostRegister_v2", (.bytes = SIZE), (ptr, size_t, unsigned), (g_host, n, 0));
    DO("cuMemHostUnregister", (.handle = OPS_ADDR(g_host)), (ptr), (g_host));
}

static void arrays(void)
{
    ptr array = NULL;
    struct {
        size_t width, height;
        unsigned format, channels;
    } flat = {.format = 0x20, .channels = 3}; // floats
    struct {
        size_t width, height, depth;
        unsigned format, channels, flags, pad;
    } box = {.format = 0x10, .channels = 5}; // halves
    size_t bytes = RECT * 12;
    flat.width = w;
    flat.height = h;
    DO("cuArrayCreate_v2", (.bytes = bytes), (ptr *, ptr), (&array, &flat));
    DO("cuArrayDestroy", (.handle = OPS_ADDR(array)), (ptr), (array));
    bytes = BOX * 10;
    box.width = w;
    box.height = h;
    box.depth = d;
    DO("cuArray3DCreate_v2", (.bytes = bytes), (ptr *, ptr), (&array, &box));
    DO("cuArrayDestroy", (.handle = OPS_ADDR(array)), (ptr), (array));
}

static void virtual_memory(void)
{
    dptr at = 0, handle = 0;
    uint64_t prop[4] = {0};
    const size_t bytes = ops_prime();
    DO("cuMemAddressReserve", (.bytes = bytes), (dptr *, size_t, size_t, dptr, uint64_t),
       (&at, bytes, 0, 0, 0));
    DO("cuMemCreate", (.bytes = SIZE), (dptr *, size_t, ptr, uint64_t), (&handle, n, prop, 0));
    DO("cuMemMap", (.bytes = SIZE), (dptr, size_t, size_t, dptr, uint64_t), (at, n, 0, handle, 0));
    DO("cuMemSetAccess", (.bytes = SIZE), (dptr, size_t, ptr, size_t), (at, n, prop, 1));
    DO("cuMemUnmap", (.bytes = SIZE), (dptr, size_t), (at, n));
    DO("cuMemRelease", (.handle = handle), (dptr), (handle));
    DO("cuMemAddressFree", (.bytes = bytes), (dptr, size_t), (at, bytes));
}

static void line_copies(void)
{
    const dptr host = OPS_ADDR(g_host);
    D("cuMemcpy", (.bytes = SIZE, .kind = 4), (dptr, dptr, size_t), (g_dev, host, n));
    D("cuMemcpyHtoD_v2", (.bytes = SIZE, .kind = 1), (dptr, dptr, size_t), (g_dev, host, n));
    D("cuMemcpyDtoH_v2", (.bytes = SIZE, .kind = 2), (dptr, dptr, size_t), (host, g_dev, n));
    D("cuMemcpyDtoD_v2", (.bytes = SIZE, .kind = 3), (dptr, dptr, size_t), (g_dev, g_dev2, n));
    Z("cuMemcpyAsync", (.bytes = SIZE, .kind = 4, .handle = STREAM), (dptr, dptr, size_t, ptr),
      (g_dev, host, n, g_stream));
    Z("cuMemcpyHtoDAsync_v2", (.bytes = SIZE, .kind = 1, .handle = OTHER),
      (dptr, dptr, size_t, ptr), (g_dev, host, n, g_other));
    Z("cuMemcpyDtoHAsync_v2", (.bytes = SIZE, .kind = 2, .handle = STREAM),
      (dptr, dptr, size_t, ptr), (host, g_dev, n, g_stream));
    Z("cuMemcpyDtoDAsync_v2", (.bytes = SIZE, .kind = 3, .handle = OTHER),
      (dptr, dptr, size_t, ptr), (g_dev, g_dev2, n, g_other));
    D("cuMemcpyPeer", (.bytes = SIZE, .kind = 3), (dptr, ptr, dptr, ptr, size_t),
      (g_dev, g_ctx, g_dev2, g_ctx, n));
    Z("cuMemcpyPeerAsync", (.bytes = SIZE, .kind = 3, .handle = STREAM),
      (dptr, ptr, dptr, ptr, size_t, ptr), (g_dev, g_ctx, g_dev2, g_ctx, n, g_stream));
}

struct rectangle { // CUDA_MEMCPY2D
    size_t src_x, src_y;
    int src_type;
    ptr src_host;
    dptr src_device;
    ptr src_array;
    size_t src_pitch, dst_x, dst_y;
    int dst_type;
    ptr dst_host;
    dptr dst_device;
    ptr dst_array;
    size_t dst_pitch, width, height;
};
struct box { // CUDA_MEMCPY3D
    size_t src_pos[3], src_lod;
    int src_type;
    ptr src_host;
    dptr src_device;
    ptr src_array, src_context;
    size_t src_pitch, src_height, dst_pos[3], dst_lod;
    int dst_type;
    ptr dst_host;
    dptr dst_device;
    ptr dst_array, dst_context;
    size_t dst_pitch, dst_height, width, height, depth;
};

// Types of memory at both ends, and what direction that is.
static const struct {
    int from, to, kind;
} ends[] = {{1, 1, 0}, {1, 2, 1}, {2, 1, 2}, {2, 2, 3}, {4, 2, 4}, {1, 4, 4}};
enum { ENDS = sizeof(ends) / sizeof(ends[0]) };

#define FILL(s, i)                                                                                 \
    do {                                                                                           \
        (s).src_type = ends[i].from;                                                               \
        (s).dst_type = ends[i].to;                                                                 \
        (s).src_host = g_host;                                                                     \
        (s).dst_host = (char *)g_host + (2 << 20);                                                 \
        (s).src_device = g_dev2;                                                                   \
        (s).dst_device = g_dev;                                                                    \
    } while (0)
#define RECT_OF(s) (bytes = RECT, (s).width = w, (s).height = h, bytes)
#define BOX_OF(s)  (bytes = BOX, (s).width = w, (s).height = h, (s).depth = d, bytes)

static void shaped_copies(void)
{
    size_t bytes;
    for (int i = 0; i < ENDS; i++) {
        struct rectangle r = {0};
        struct box b = {0};
        const int kind = ends[i].kind;
        FILL(r, i);
        FILL(b, i);
        D("cuMemcpy2D_v2", (.bytes = RECT_OF(r), .kind = kind), (ptr), (&r));
        D("cuMemcpy2DUnaligned_v2", (.bytes = RECT_OF(r), .kind = kind), (ptr), (&r));
        Z("cuMemcpy2DAsync_v2", (.bytes = RECT_OF(r), .kind = kind, .handle = STREAM), (ptr, ptr),
          (&r, g_stream));
        D("cuMemcpy3D_v2", (.bytes = BOX_OF(b), .kind = kind), (ptr), (&b));
        Z("cuMemcpy3DAsync_v2", (.bytes = BOX_OF(b), .kind = kind, .handle = OTHER), (ptr, ptr),
          (&b, g_other));
        D("cuMemcpy3DPeer", (.bytes = BOX_OF(b), .kind = kind), (ptr), (&b));
        Z("cuMemcpy3DPeerAsync", (.bytes = BOX_OF(b), .kind = kind, .handle = STREAM), (ptr, ptr),
          (&b, g_stream));
    }
}

static void many_copies(void)
{
    dptr to[40], from[40];
    size_t sizes[40], sum = 0;
    for (int i = 0; i < 40; i++) {
        to[i] = g_dev;
        from[i] = g_dev2;
        sizes[i] = ops_prime();
        sum += sizes[i];
    }
    Z("cuMemcpyBatchAsync", (.bytes = sum, .kind = 4, .handle = STREAM),
      (dptr *, dptr *, size_t *, size_t, ptr, size_t *, size_t, size_t *, ptr),
      (to, from, sizes, 40, NULL, NULL, 0, NULL, g_stream));
    Z("cuMemcpyBatchAsync_v2", (.bytes = sum, .kind = 4, .handle = OTHER),
      (dptr *, dptr *, size_t *, size_t, ptr, size_t *, size_t, ptr),
      (to, from, sizes, 40, NULL, NULL, 0, g_other));
    Z("cuMemPrefetchAsync", (.bytes = SIZE, .kind = 4, .handle = STREAM), (dptr, size_t, int, ptr),
      (g_dev, n, 0, g_stream));
    Z("cuMemPrefetchAsync_v2", (.bytes = SIZE, .kind = 4, .handle = OTHER),
      (dptr, size_t, uint64_t, unsigned, ptr), (g_dev, n, 1, 0, g_other));
}

#define SETS(bits, element, type)                                                                  \
    do {                                                                                           \
        D("cuMemsetD" #bits "_v2", (.bytes = SIZE * (element)), (dptr, type, size_t),              \
          (g_dev, 7, n));                                                                          \
        Z("cuMemsetD" #bits "Async", (.bytes = SIZE * (element), .handle = STREAM),                \
          (dptr, type, size_t, ptr), (g_dev, 7, n, g_stream));                                     \
        D("cuMemsetD2D" #bits "_v2", (.bytes = RECT * (element)),                                  \
          (dptr, size_t, type, size_t, size_t), (g_dev, PITCH, 7, w, h));                          \
        Z("cuMemsetD2D" #bits "Async", (.bytes = RECT * (element), .handle = OTHER),               \
          (dptr, size_t, type, size_t, size_t, ptr), (g_dev, PITCH, 7, w, h, g_other));            \
    } while (0)

static void sets(void)
{
    SETS(8, 1, unsigned char);
    SETS(16, 2, unsigned short);
    SETS(32, 4, unsigned);
}

static void order(void)
{
    uint64_t ns = 50000000;
    ptr args[] = {&ns};
    Z("cuEventRecord", (.handle = STREAM), (ptr, ptr), (g_event, g_stream));
    Z("cuEventRecordWithFlags", (.handle = OTHER), (ptr, ptr, unsigned), (g_event, g_other, 0));
    Z("cuStreamWaitEvent", (.handle = STREAM), (ptr, ptr, unsigned), (g_stream, g_event, 0));
    DO("cuLaunchKernel", (.handle = STREAM), (KERNEL_PARAMS, ptr *),
       (g_kernel, 1, 1, 1, 1, 1, 1, 0, g_stream, args, NULL));
    DO("cuEventRecord", (.handle = STREAM), (ptr, ptr), (g_event, g_stream));
    Z("cuStreamQuery", (.handle = STREAM), (ptr), (g_stream));
    DO("cuEventQuery", (.handle = OPS_ADDR(g_event)), (ptr), (g_event));
    DO("cuEventSynchronize", (.handle = OPS_ADDR(g_event)), (ptr), (g_event));
    Z("cuStreamSynchronize", (.handle = OTHER), (ptr), (g_other));
    DO("cuCtxSynchronize", (0), (void), ());
    DO("cuCtxSynchronize_v2", (0), (ptr), (g_ctx));
}

static void capture(const char *begin, const char *end, ptr *graph)
{
    uint64_t ns = 1000;
    ptr args[] = {&ns};
    DO(begin, (.handle = STREAM), (ptr, int), (g_stream, 0));
    DO("cuLaunchKernel", (.handle = STREAM), (KERNEL_PARAMS, ptr *),
       (g_kernel, 1, 1, 1, 1, 1, 1, 0, g_stream, args, NULL));
    DO(end, (.handle = STREAM), (ptr, ptr *), (g_stream, graph));
}

static void graphs(void)
{
    ptr graph = NULL, more = NULL, exec = NULL, second = NULL;
    char result[24];
    uint64_t params[4] = {0};
    capture("cuStreamBeginCapture_v2", "cuStreamEndCapture", &graph);
    capture("cuStreamBeginCapture_v2_ptsz", "cuStreamEndCapture_ptsz", &more);
    DO("cuGraphDestroy", (.handle = OPS_ADDR(more)), (ptr), (more));
    const uint64_t g = OPS_ADDR(graph);
    DO("cuGraphInstantiate", (.handle = g), (ptr *, ptr, ptr *, char *, size_t),
       (&exec, graph, NULL, NULL, 0));
    DO("cuGraphInstantiate_v2", (.handle = g), (ptr *, ptr, ptr *, char *, size_t),
       (&second, graph, NULL, NULL, 0));
    DO("cuGraphInstantiateWithFlags", (.handle = g), (ptr *, ptr, uint64_t), (&second, graph, 0));
    Z("cuGraphInstantiateWithParams", (.handle = g), (ptr *, ptr, ptr), (&second, graph, params));
    DO("cuGraphExecUpdate", (.handle = OPS_ADDR(exec)), (ptr, ptr, ptr *, int *),
       (exec, graph, NULL, NULL));
    DO("cuGraphExecUpdate_v2", (.handle = OPS_ADDR(exec)), (ptr, ptr, ptr), (exec, graph, result));
    Z("cuGraphUpload", (.handle = OTHER), (ptr, ptr), (exec, g_other));
    Z("cuGraphLaunch", (.handle = STREAM), (ptr, ptr), (exec, g_stream));
    DO("cuStreamSynchronize", (.handle = STREAM), (ptr), (g_stream));
    for (int i = 0; i < 2; i++) {
        DO(i == 0 ? "cuStreamBeginCaptureToGraph" : "cuStreamBeginCaptureToGraph_ptsz",
           (.handle = STREAM), (ptr, ptr, const void *, const void *, size_t, int),
           (g_stream, graph, NULL, NULL, 0, 0));
        DO("cuStreamEndCapture", (.handle = STREAM), (ptr, ptr *), (g_stream, &more));
    }
    DO("cuGraphExecDestroy", (.handle = OPS_ADDR(exec)), (ptr), (exec));
}

void ops_driver(void)
{
    contexts();
    launches();
    host_functions();
    memory();
    arrays();
    virtual_memory();
    line_copies();
    shaped_copies();
    many_copies();
    sets();
    order();
    graphs();
}
