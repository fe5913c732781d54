// SPDX-License-Identifier: Apache-2.0
// Every traced function of the runtime.
#include "capture_ops.h"

#include <stdlib.h>
#include <string.h>

typedef void *ptr;
typedef struct {
    unsigned x, y, z;
} dim3;
typedef struct {
    size_t width, height, depth;
} extent;
typedef struct {
    ptr at;
    size_t pitch, xsize, ysize;
} pitched;
typedef struct {
    int x, y, z, w, kind;
} format;

#define ONE ((dim3){1, 1, 1})

static ptr g_dev, g_dev2, g_host, g_stream, g_other, g_event, g_kernel;
static size_t n, w, h, d; // what the next calls are given

#define SIZE    (n = ops_prime())
#define RECT    (w = ops_prime(), h = ops_small_prime(), w * h)
#define BOX     (w = ops_prime(), h = ops_small_prime(), d = ops_small_prime(), w * h * d)
#define STREAM  OPS_ADDR(g_stream)
#define OTHER   OPS_ADDR(g_other)
#define ELEMENT 8 // bytes: two numbers of 32 bits

static const format g_format = {32, 32, 0, 0, 0};

static void prepare(void)
{
    g_stream = ops_fake(1);
    g_other = ops_fake(2);
    g_event = ops_fake(3);
    g_dev = ops_fake(4);
    g_dev2 = ops_fake(5);
    g_host = malloc(4 << 20);
    QUIETLY("cudaSetDevice", (int), (0));
    QUIETLY("cudaStreamCreateWithFlags", (ptr *, unsigned), (&g_stream, 1));
    QUIETLY("cudaStreamCreateWithFlags", (ptr *, unsigned), (&g_other, 1));
    QUIETLY("cudaEventCreate", (ptr *), (&g_event));
    DO("cudaMalloc", (.bytes = 67108879), (ptr *, size_t), (&g_dev, 67108879));
    DO("cudaMalloc", (.bytes = 67108913), (ptr *, size_t), (&g_dev2, 67108913));
    memset(g_host, 1, 4 << 20);
    (void)ops_find("simKernel", &g_kernel);
}

static void launches(void)
{
    uint64_t ns = 1000;
    ptr args[] = {&ns};
    struct {
        dim3 grid, block;
        size_t shared;
        ptr stream, attrs;
        unsigned attr_count;
    } config = {ONE, ONE, 0, g_other, NULL, 0};
    struct {
        ptr func;
        dim3 grid, block;
        ptr *args;
        size_t shared;
        ptr stream;
    } list = {g_kernel, ONE, ONE, args, 0, g_stream};
    Z("cudaLaunchKernel", (.handle = STREAM), (ptr, dim3, dim3, ptr *, size_t, ptr),
      (g_kernel, ONE, ONE, args, 0, g_stream));
    Z("cudaLaunchKernelExC", (.handle = OTHER), (ptr, ptr, ptr *), (&config, g_kernel, args));
    Z("cudaLaunchCooperativeKernel", (.handle = STREAM), (ptr, dim3, dim3, ptr *, size_t, ptr),
      (g_kernel, ONE, ONE, args, 0, g_stream));
    DO("cudaLaunchCooperativeKernelMultiDevice", (0), (ptr, unsigned, unsigned), (&list, 1, 0));
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
    Z("cudaLaunchHostFunc", (.handle = STREAM), (ptr, void (*)(ptr), ptr),
      (g_stream, nothing, NULL));
    Z("cudaStreamAddCallback", (.handle = OTHER), (ptr, void (*)(ptr, int, ptr), ptr, unsigned),
      (g_other, called_back, NULL, 0));
}

static void linear_memory(void)
{
    ptr p = ops_fake(6);
    size_t pitch = 0;
    DO("cudaMalloc", (.bytes = SIZE), (ptr *, size_t), (&p, n));
    DO("cudaFree", (.handle = OPS_ADDR(p)), (ptr), (p));
    DO("cudaMallocManaged", (.bytes = SIZE), (ptr *, size_t, unsigned), (&p, n, 1));
    DO("cudaFree", (.handle = OPS_ADDR(p)), (ptr), (p));
    DO("cudaMallocPitch", (.bytes = RECT), (ptr *, size_t *, size_t, size_t), (&p, &pitch, w, h));
    DO("cudaFree", (.handle = OPS_ADDR(p)), (ptr), (p));
    for (int i = 0; i < 2; i++) {
        DO(i == 0 ? "cudaMallocAsync" : "cudaMallocAsync_ptsz", (.bytes = SIZE, .handle = STREAM),
           (ptr *, size_t, ptr), (&p, n, g_stream));
        DO(i == 0 ? "cudaFreeAsync" : "cudaFreeAsync_ptsz", (.handle = OPS_ADDR(p)), (ptr, ptr),
           (p, g_stream));
        DO(i == 0 ? "cudaMallocFromPoolAsync" : "cudaMallocFromPoolAsync_ptsz",
           (.bytes = SIZE, .handle = OTHER), (ptr *, size_t, ptr, ptr), (&p, n, NULL, g_other));
        DO("cudaFree", (.handle = OPS_ADDR(p)), (ptr), (p));
    }
    DO("cudaMallocHost", (.bytes = SIZE), (ptr *, size_t), (&p, n));
    DO("cudaFreeHost", (.handle = OPS_ADDR(p)), (ptr), (p));
    DO("cudaHostAlloc", (.bytes = SIZE), (ptr *, size_t, unsigned), (&p, n, 0));
    DO("cudaFreeHost", (.handle = OPS_ADDR(p)), (ptr), (p));
    DO("cudaHostRegister", (.bytes = SIZE), (ptr, size_t, unsigned), (g_host, n, 0));
    DO("cudaHostUnregister", (.handle = OPS_ADDR(g_host)), (ptr), (g_host));
}

static void shaped_memory(void)
{
    pitched box = {.at = ops_fake(7)};
    ptr array = ops_fake(8);
    size_t bytes = BOX;
    DO("cudaMalloc3D", (.bytes = bytes), (pitched *, extent), (&box, (extent){w, h, d}));
    DO("cudaFree", (.handle = OPS_ADDR(box.at)), (ptr), (box.at));
    DO("cudaMallocArray", (.bytes = RECT * ELEMENT),
       (ptr *, const format *, size_t, size_t, unsigned), (&array, &g_format, w, h, 0));
    DO("cudaFreeArray", (.handle = OPS_ADDR(array)), (ptr), (array));
    DO("cudaMallocArray", (.bytes = SIZE * ELEMENT),
       (ptr *, const format *, size_t, size_t, unsigned), (&array, &g_format, n, 0, 0));
    DO("cudaFreeArray", (.handle = OPS_ADDR(array)), (ptr), (array));
    DO("cudaMalloc3DArray", (.bytes = BOX * ELEMENT), (ptr *, const format *, extent, unsigned),
       (&array, &g_format, (extent){w, h, d}, 0));
    DO("cudaFreeArray", (.handle = OPS_ADDR(array)), (ptr), (array));
    DO("cudaMallocMipmappedArray", (.bytes = BOX * ELEMENT),
       (ptr *, const format *, extent, unsigned, unsigned),
       (&array, &g_format, (extent){w, h, d}, 2, 0));
    DO("cudaFreeMipmappedArray", (.handle = OPS_ADDR(array)), (ptr), (array));
}

static void copies(void)
{
    const ptr to[5] = {(char *)g_host + (2 << 20), g_dev, g_host, g_dev, g_dev};
    const ptr from[5] = {g_host, g_host, g_dev, g_dev2, g_host};
    for (int kind = 0; kind <= 4; kind++) {
        D("cudaMemcpy", (.bytes = SIZE, .kind = kind), (ptr, ptr, size_t, int),
          (to[kind], from[kind], n, kind));
        Z("cudaMemcpyAsync", (.bytes = SIZE, .kind = kind, .handle = STREAM),
          (ptr, ptr, size_t, int, ptr), (to[kind], from[kind], n, kind, g_stream));
    }
    for (int kind = 1; kind <= 4; kind++) {
        D("cudaMemcpy2D", (.bytes = RECT, .kind = kind),
          (ptr, size_t, ptr, size_t, size_t, size_t, int),
          (to[kind], 65536, from[kind], 65536, w, h, kind));
        Z("cudaMemcpy2DAsync", (.bytes = RECT, .kind = kind, .handle = OTHER),
          (ptr, size_t, ptr, size_t, size_t, size_t, int, ptr),
          (to[kind], 65536, from[kind], 65536, w, h, kind, g_other));
    }
    DO("cudaMemcpyPeer", (.bytes = SIZE, .kind = 3), (ptr, int, ptr, int, size_t),
       (g_dev, 0, g_dev2, 0, n));
    DO("cudaMemcpyPeerAsync", (.bytes = SIZE, .kind = 3, .handle = STREAM),
       (ptr, int, ptr, int, size_t, ptr), (g_dev, 0, g_dev2, 0, n, g_stream));
    D("cudaMemcpyToSymbol", (.bytes = SIZE, .kind = 1), (ptr, ptr, size_t, size_t, int),
      (g_dev, g_host, n, 64, 1));
    Z("cudaMemcpyToSymbolAsync", (.bytes = SIZE, .kind = 1, .handle = STREAM),
      (ptr, ptr, size_t, size_t, int, ptr), (g_dev, g_host, n, 64, 1, g_stream));
    D("cudaMemcpyFromSymbol", (.bytes = SIZE, .kind = 2), (ptr, ptr, size_t, size_t, int),
      (g_host, g_dev, n, 64, 2));
    Z("cudaMemcpyFromSymbolAsync", (.bytes = SIZE, .kind = 3, .handle = OTHER),
      (ptr, ptr, size_t, size_t, int, ptr), (g_dev, g_dev2, n, 64, 3, g_other));
}

static void array_copies(void)
{
    ptr a = ops_fake(9), b = ops_fake(10);
    DO("cudaMallocArray", (.bytes = 4001 * 64 * ELEMENT),
       (ptr *, const format *, size_t, size_t, unsigned), (&a, &g_format, 4001, 64, 0));
    DO("cudaMallocArray", (.bytes = 4003 * 64 * ELEMENT),
       (ptr *, const format *, size_t, size_t, unsigned), (&b, &g_format, 4003, 64, 0));
    D("cudaMemcpy2DToArray", (.bytes = RECT, .kind = 1),
      (ptr, size_t, size_t, ptr, size_t, size_t, size_t, int), (a, 0, 0, g_host, 8192, w, h, 1));
    Z("cudaMemcpy2DToArrayAsync", (.bytes = RECT, .kind = 1, .handle = STREAM),
      (ptr, size_t, size_t, ptr, size_t, size_t, size_t, int, ptr),
      (a, 0, 0, g_host, 8192, w, h, 1, g_stream));
    D("cudaMemcpy2DFromArray", (.bytes = RECT, .kind = 2),
      (ptr, size_t, ptr, size_t, size_t, size_t, size_t, int), (g_host, 8192, a, 0, 0, w, h, 2));
    Z("cudaMemcpy2DFromArrayAsync", (.bytes = RECT, .kind = 2, .handle = OTHER),
      (ptr, size_t, ptr, size_t, size_t, size_t, size_t, int, ptr),
      (g_host, 8192, a, 0, 0, w, h, 2, g_other));
    D("cudaMemcpy2DArrayToArray", (.bytes = RECT, .kind = 3),
      (ptr, size_t, size_t, ptr, size_t, size_t, size_t, size_t, int), (b, 0, 0, a, 0, 0, w, h, 3));
    DO("cudaDeviceSynchronize", (0), (void), ());
    DO("cudaFreeArray", (.handle = OPS_ADDR(a)), (ptr), (a));
    DO("cudaFreeArray", (.handle = OPS_ADDR(b)), (ptr), (b));
}

static void box_copies(void)
{
    struct {
        ptr src_array;
        size_t src_pos[3];
        pitched src;
        ptr dst_array;
        size_t dst_pos[3];
        pitched dst;
        extent sides;
        int kind;
    } p = {.src = {g_host, 65536, 1, 1}, .dst = {g_dev, 65536, 1, 1}, .kind = 1};
    struct {
        ptr src_array;
        size_t src_pos[3];
        pitched src;
        int src_device;
        ptr dst_array;
        size_t dst_pos[3];
        pitched dst;
        int dst_device;
        extent sides;
    } peer = {.src = {g_dev2, 65536, 1, 1}, .dst = {g_dev, 65536, 1, 1}};
#define BOX_OF(s) (bytes = BOX, (s).sides = (extent){w, h, d}, bytes)
    size_t bytes;
    D("cudaMemcpy3D", (.bytes = BOX_OF(p), .kind = 1), (ptr), (&p));
    p.kind = 3;
    p.src.at = g_dev2;
    Z("cudaMemcpy3DAsync", (.bytes = BOX_OF(p), .kind = 3, .handle = STREAM), (ptr, ptr),
      (&p, g_stream));
    D("cudaMemcpy3DPeer", (.bytes = BOX_OF(peer), .kind = 3), (ptr), (&peer));
    Z("cudaMemcpy3DPeerAsync", (.bytes = BOX_OF(peer), .kind = 3, .handle = OTHER), (ptr, ptr),
      (&peer, g_other));
}

// Where the arguments lie depends on the version.
static void versioned(int major)
{
    ptr to[3] = {g_dev, g_dev, g_dev}, from[3] = {g_dev2, g_dev2, g_dev2};
    size_t sizes[3] = {ops_prime(), ops_prime(), ops_prime()};
    const size_t sum = sizes[0] + sizes[1] + sizes[2];
    const uint64_t location = 1;
    if (major < 13) {
        Z("cudaMemPrefetchAsync", (.bytes = SIZE, .kind = 4, .handle = STREAM),
          (ptr, size_t, int, ptr), (g_dev, n, 0, g_stream));
        Z("cudaMemPrefetchAsync_v2", (.bytes = SIZE, .kind = 4, .handle = OTHER),
          (ptr, size_t, uint64_t, unsigned, ptr), (g_dev, n, location, 0, g_other));
        Z("cudaMemcpyBatchAsync", (.bytes = sum, .kind = 4, .handle = STREAM),
          (ptr *, ptr *, size_t *, size_t, ptr, size_t *, size_t, size_t *, ptr),
          (to, from, sizes, 3, NULL, NULL, 0, NULL, g_stream));
    } else {
        Z("cudaMemPrefetchAsync", (.bytes = SIZE, .kind = 4, .handle = STREAM),
          (ptr, size_t, uint64_t, unsigned, ptr), (g_dev, n, location, 0, g_stream));
        Z("cudaMemcpyBatchAsync", (.bytes = sum, .kind = 4, .handle = STREAM),
          (ptr *, ptr *, size_t *, size_t, ptr, size_t *, size_t, ptr),
          (to, from, sizes, 3, NULL, NULL, 0, g_stream));
    }
}

static void sets(void)
{
    const pitched box = {g_dev, 65536, 1, 1};
    size_t bytes;
    D("cudaMemset", (.bytes = SIZE), (ptr, int, size_t), (g_dev, 7, n));
    Z("cudaMemsetAsync", (.bytes = SIZE, .handle = STREAM), (ptr, int, size_t, ptr),
      (g_dev, 7, n, g_stream));
    D("cudaMemset2D", (.bytes = RECT), (ptr, size_t, int, size_t, size_t), (g_dev, 65536, 7, w, h));
    Z("cudaMemset2DAsync", (.bytes = RECT, .handle = OTHER),
      (ptr, size_t, int, size_t, size_t, ptr), (g_dev, 65536, 7, w, h, g_other));
    bytes = BOX;
    D("cudaMemset3D", (.bytes = bytes), (pitched, int, extent), (box, 7, (extent){w, h, d}));
    bytes = BOX;
    Z("cudaMemset3DAsync", (.bytes = bytes, .handle = STREAM), (pitched, int, extent, ptr),
      (box, 7, (extent){w, h, d}, g_stream));
}

static void order(void)
{
    uint64_t ns = 50000000;
    ptr args[] = {&ns};
    Z("cudaEventRecord", (.handle = STREAM), (ptr, ptr), (g_event, g_stream));
    Z("cudaEventRecordWithFlags", (.handle = OTHER), (ptr, ptr, unsigned), (g_event, g_other, 0));
    Z("cudaStreamWaitEvent", (.handle = STREAM), (ptr, ptr, unsigned), (g_stream, g_event, 0));
    DO("cudaLaunchKernel", (.handle = STREAM), (ptr, dim3, dim3, ptr *, size_t, ptr),
       (g_kernel, ONE, ONE, args, 0, g_stream));
    DO("cudaEventRecord", (.handle = STREAM), (ptr, ptr), (g_event, g_stream));
    Z("cudaStreamQuery", (.handle = STREAM), (ptr), (g_stream));
    DO("cudaEventQuery", (.handle = OPS_ADDR(g_event)), (ptr), (g_event));
    DO("cudaEventSynchronize", (.handle = OPS_ADDR(g_event)), (ptr), (g_event));
    Z("cudaStreamSynchronize", (.handle = OTHER), (ptr), (g_other));
    DO("cudaDeviceSynchronize", (0), (void), ());
}

static void capture(const char *begin, const char *end, ptr *graph)
{
    uint64_t ns = 1000;
    ptr args[] = {&ns};
    DO(begin, (.handle = STREAM), (ptr, int), (g_stream, 0));
    DO("cudaLaunchKernel", (.handle = STREAM), (ptr, dim3, dim3, ptr *, size_t, ptr),
       (g_kernel, ONE, ONE, args, 0, g_stream));
    DO(end, (.handle = STREAM), (ptr, ptr *), (g_stream, graph));
}

static void graphs(int major)
{
    ptr graph = ops_fake(11), more = ops_fake(12), exec = ops_fake(13), second = NULL;
    char result[24];
    uint64_t params[4] = {0};
    capture("cudaStreamBeginCapture", "cudaStreamEndCapture", &graph);
    capture("cudaStreamBeginCapture_ptsz", "cudaStreamEndCapture_ptsz", &more);
    DO("cudaGraphDestroy", (.handle = OPS_ADDR(more)), (ptr), (more));
    const uint64_t g = OPS_ADDR(graph);
    if (major < 12) {
        DO("cudaGraphInstantiate", (.handle = g), (ptr *, ptr, ptr *, char *, size_t),
           (&exec, graph, NULL, NULL, 0));
        DO("cudaGraphExecUpdate", (.handle = OPS_ADDR(exec)), (ptr, ptr, ptr *, int *),
           (exec, graph, NULL, (int *)(ptr)result));
    } else {
        DO("cudaGraphInstantiate", (.handle = g), (ptr *, ptr, unsigned long long),
           (&exec, graph, 0));
        DO("cudaGraphExecUpdate", (.handle = OPS_ADDR(exec)), (ptr, ptr, ptr),
           (exec, graph, result));
    }
    DO("cudaGraphInstantiateWithFlags", (.handle = g), (ptr *, ptr, unsigned long long),
       (&second, graph, 0));
    Z("cudaGraphInstantiateWithParams", (.handle = g), (ptr *, ptr, ptr), (&second, graph, params));
    Z("cudaGraphUpload", (.handle = OTHER), (ptr, ptr), (exec, g_other));
    Z("cudaGraphLaunch", (.handle = STREAM), (ptr, ptr), (exec, g_stream));
    DO("cudaStreamSynchronize", (.handle = STREAM), (ptr), (g_stream));
    for (int i = 0; i < 2; i++) {
        DO(i == 0 ? "cudaStreamBeginCaptureToGraph" : "cudaStreamBeginCaptureToGraph_ptsz",
           (.handle = STREAM), (ptr, ptr, const void *, const void *, size_t, int),
           (g_stream, graph, NULL, NULL, 0, 0));
        DO("cudaStreamEndCapture", (.handle = STREAM), (ptr, ptr *), (g_stream, &more));
    }
    DO("cudaGraphExecDestroy", (.handle = OPS_ADDR(exec)), (ptr), (exec));
}

void ops_runtime(int major)
{
    prepare();
    launches();
    host_functions();
    linear_memory();
    shaped_memory();
    copies();
    array_copies();
    box_copies();
    versioned(major);
    sets();
    order();
    graphs(major);
}
