// SPDX-License-Identifier: Apache-2.0
// The stand-in libraries as a CUDA program sees them: queues, waiting, memory, collectives, graphs,
// NVML.
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "sim_api.h"
#include "sim_shm.h"

#define MS(n) ((uint64_t)(n)*1000000ull)

static int launch_on(cudaStream_t stream, uint64_t ns)
{
    void *args[] = {&ns};
    return cudaLaunchKernel((const void *)&simKernel, (dim3){1, 1, 1}, (dim3){32, 1, 1}, args, 0,
                            stream);
}

static cudaStream_t stream_new(void)
{
    cudaStream_t stream = NULL;
    assert_int_equal(cudaStreamCreateWithFlags(&stream, 1), 0);
    return stream;
}

static uint64_t tally(const char *library, const char *reader, const char *function)
{
    const char *(*read_one)(unsigned, uint64_t *);
    void *lib = dlopen(library, RTLD_NOW | RTLD_NOLOAD);
    assert_non_null(lib);
    void *symbol = dlsym(lib, reader);
    assert_non_null(symbol);
    memcpy(&read_one, &symbol, sizeof(read_one));
    uint64_t value = 0;
    const char *name;
    for (unsigned i = 0; (name = read_one(i, &value)) != NULL; i++) {
        if (strcmp(name, function) == 0)
            return value;
    }
    return 0;
}

static uint64_t tally_rt(const char *function)
{
    return tally("libcudart.so.12", "simTallyCudart", function);
}

static uint64_t tally_drv(const char *function)
{
    return tally("libcuda.so.1", "simTallyCuda", function);
}

static void *launch_thousand(void *arg)
{
    uintptr_t failed = 0;
    (void)arg;
    cudaStream_t stream = NULL;
    failed += cudaSetDevice(0) != 0 || cudaStreamCreateWithFlags(&stream, 1) != 0;
    for (int i = 0; i < 1000; i++)
        failed += launch_on(stream, 100) != 0;
    failed += cudaStreamSynchronize(stream) != 0 || cudaStreamDestroy(stream) != 0;
    return (void *)failed;
}

static void test_tally_is_exact_with_threads(void **state)
{
    (void)state;
    pthread_t threads[4];
    uint64_t rt = tally_rt("cudaLaunchKernel"), drv = tally_drv("cuLaunchKernel");
    uint64_t sync = tally_rt("cudaStreamSynchronize");
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, launch_thousand, NULL), 0);
    for (int i = 0; i < 4; i++) {
        void *failed = NULL;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    assert_int_equal(tally_rt("cudaLaunchKernel") - rt, 4000);
    assert_int_equal(tally_drv("cuLaunchKernel") - drv, 4000);
    assert_int_equal(tally_rt("cudaStreamSynchronize") - sync, 4);
}

static void test_both_launch_spellings(void **state)
{
    (void)state;
    uint64_t one = 1, rt = tally_rt("cudaLaunchKernel"), other = tally_rt("__cudaLaunchKernel");
    uint64_t drv = tally_drv("cuLaunchKernel");
    void *args[] = {&one};
    assert_int_equal(__cudaLaunchKernel((const void *)&simKernel, (dim3){1, 1, 1}, (dim3){1, 1, 1},
                                        args, 0, NULL),
                     0);
    assert_int_equal(tally_rt("__cudaLaunchKernel") - other, 1);
    assert_int_equal(tally_rt("cudaLaunchKernel") - rt, 1);
    assert_int_equal(tally_drv("cuLaunchKernel") - drv, 1);
    assert_int_equal(cudaDeviceSynchronize(), 0);
}

static void test_enqueue_returns_and_sync_waits(void **state)
{
    (void)state;
    cudaStream_t stream = stream_new();
    cudaEvent_t a, b;
    float ms = 0;
    assert_int_equal(cudaEventCreate(&a), 0);
    assert_int_equal(cudaEventCreate(&b), 0);
    assert_int_equal(cudaEventRecord(a, stream), 0);
    assert_int_equal(launch_on(stream, MS(300)), 0);
    assert_int_equal(cudaEventRecord(b, stream), 0);
    assert_int_equal(cudaStreamQuery(stream), 600);
    assert_int_equal(cudaEventQuery(b), 600);
    assert_int_equal(cudaStreamSynchronize(stream), 0);
    assert_int_equal(cudaStreamQuery(stream), 0);
    assert_int_equal(cudaEventElapsedTime(&ms, a, b), 0);
    assert_true(ms >= 300.0F && ms < 305.0F); // simulated time, not measured time
    assert_int_equal(cudaEventDestroy(a), 0);
    assert_int_equal(cudaEventDestroy(b), 0);
    assert_int_equal(cudaStreamDestroy(stream), 0);
}

static void test_wait_modes(void **state)
{
    (void)state;
    struct timespec ts;
    cudaStream_t stream = stream_new();
    uint64_t cpu[2];
    static const unsigned flags[] = {cudaDeviceScheduleSpin, cudaDeviceScheduleBlockingSync};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(cudaSetDeviceFlags(flags[i]), 0);
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
        uint64_t from = (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
        assert_int_equal(launch_on(stream, MS(200)), 0);
        assert_int_equal(cudaStreamSynchronize(stream), 0);
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
        cpu[i] = (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec - from;
    }
    assert_true(cpu[0] > 4 * cpu[1]); // spinning burns CPU, blocking does not
    assert_int_equal(cudaStreamDestroy(stream), 0);
}

static sem_t g_gate;
static _Atomic int g_pushed;

static void gate_wait(void *arg)
{
    (void)arg;
    while (sem_wait(&g_gate) != 0) {
    }
}

static void *push_many(void *arg)
{
    uintptr_t failed = cudaSetDevice(0) != 0;
    for (int i = 0; i < 1100; i++) {
        failed += launch_on(arg, 10) != 0;
        atomic_fetch_add(&g_pushed, 1);
    }
    return (void *)failed;
}

static void test_full_queue_blocks(void **state)
{
    (void)state;
    pthread_t thread;
    struct timespec nap = {.tv_nsec = 20000000};
    void *failed = NULL;
    cudaStream_t stream = stream_new();
    sem_init(&g_gate, 0, 0);
    assert_int_equal(cudaLaunchHostFunc(stream, gate_wait, NULL), 0);
    assert_int_equal(pthread_create(&thread, NULL, push_many, stream), 0);
    while (atomic_load(&g_pushed) < 1023)
        nanosleep(&nap, NULL);
    nanosleep(&nap, NULL);
    assert_int_equal(atomic_load(&g_pushed),
                     1023); // with the host function 1,024 entries are queued
    sem_post(&g_gate);
    pthread_join(thread, &failed);
    assert_null(failed);
    assert_int_equal(cudaStreamSynchronize(stream), 0);
    assert_int_equal(cudaStreamDestroy(stream), 0);
}

static void test_data_moves_in_stream_order(void **state)
{
    (void)state;
    unsigned char out[64], in[64];
    void *dev = NULL;
    cudaStream_t stream = stream_new();
    for (int i = 0; i < 64; i++)
        in[i] = (unsigned char)i;
    assert_int_equal(cudaMalloc(&dev, 64), 0);
    assert_int_equal(cudaMemcpyAsync(dev, in, 64, cudaMemcpyHostToDevice, stream), 0);
    assert_int_equal(cudaMemsetAsync(dev, 7, 8, stream), 0);
    assert_int_equal(cudaMemcpyAsync(out, dev, 64, cudaMemcpyDeviceToHost, stream), 0);
    assert_int_equal(cudaStreamSynchronize(stream), 0);
    assert_int_equal(out[0], 7);
    assert_int_equal(out[7], 7);
    assert_memory_equal(out + 8, in + 8, 56);
    assert_int_equal(cudaMemcpy(out, dev, 513, cudaMemcpyDeviceToHost), 1);
    assert_int_equal(cudaMemcpy(out, out, 8, cudaMemcpyDeviceToHost), 1);
    assert_int_equal(cudaFree(dev), 0);
    assert_int_equal(cudaFree(dev), 1);
    assert_int_equal(cudaStreamDestroy(stream), 0);
}

static void test_memory_is_accounted(void **state)
{
    (void)state;
    size_t before = 0, after = 0, total = 0;
    void *a = NULL, *b = NULL;
    assert_int_equal(cudaMemGetInfo(&before, &total), 0);
    assert_int_equal(cudaMalloc(&a, 1u << 30), 0);
    assert_int_equal(cudaMemGetInfo(&after, &total), 0);
    assert_int_equal(before - after, 1u << 30);
    assert_int_equal(cudaMalloc(&b, total), 2);
    assert_int_equal(cudaGetLastError(), 2);
    assert_int_equal(cudaGetLastError(), 0);
    assert_int_equal(cudaMalloc(&b, after + 1), 2);
    assert_int_equal(cudaMallocAsync(&b, 4096, NULL), 0);
    assert_int_equal(cudaFreeAsync(b, NULL), 0);
    assert_int_equal(cudaFree(a), 0);
    assert_int_equal(cudaMemGetInfo(&after, &total), 0);
    assert_int_equal(before, after);
}

static void test_graph_replays(void **state)
{
    (void)state;
    cudaStream_t stream = stream_new();
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    cudaEvent_t a, b;
    float ms = 0;
    assert_int_equal(cudaEventCreate(&a), 0);
    assert_int_equal(cudaEventCreate(&b), 0);
    assert_int_equal(cudaStreamBeginCapture(stream, 0), 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(launch_on(stream, MS(10)), 0);
    assert_int_equal(cudaStreamSynchronize(stream), 900);
    assert_int_equal(cudaStreamEndCapture(stream, &graph), 0);
    assert_int_equal(cudaStreamQuery(stream), 0); // nothing ran
    assert_int_equal(cudaGraphInstantiate(&exec, graph, 0), 0);
    assert_int_equal(cudaEventRecord(a, stream), 0);
    assert_int_equal(cudaGraphLaunch(exec, stream), 0);
    assert_int_equal(cudaGraphLaunch(exec, stream), 0);
    assert_int_equal(cudaEventRecord(b, stream), 0);
    assert_int_equal(cudaEventSynchronize(b), 0);
    assert_int_equal(cudaEventElapsedTime(&ms, a, b), 0);
    assert_true(ms >= 60.0F && ms < 65.0F);
    assert_int_equal(cudaGraphExecDestroy(exec), 0);
    assert_int_equal(cudaGraphDestroy(graph), 0);
    assert_int_equal(cudaStreamDestroy(stream), 0);
}

static void test_streams_wait_for_events(void **state)
{
    (void)state;
    cudaStream_t s1 = stream_new(), s2 = stream_new();
    cudaEvent_t e;
    assert_int_equal(cudaEventCreate(&e), 0);
    assert_int_equal(launch_on(s1, MS(300)), 0);
    assert_int_equal(cudaEventRecord(e, s1), 0);
    assert_int_equal(cudaStreamWaitEvent(s2, e, 0), 0);
    assert_int_equal(launch_on(s2, 1000), 0);
    assert_int_equal(cudaStreamQuery(s2), 600);
    assert_int_equal(cudaStreamSynchronize(s2), 0);
    assert_int_equal(cudaStreamQuery(s1), 0);
    assert_int_equal(cudaEventDestroy(e), 0);
    assert_int_equal(cudaStreamDestroy(s1), 0);
    assert_int_equal(cudaStreamDestroy(s2), 0);
}

static void test_collective_needs_all_ranks(void **state)
{
    (void)state;
    ncclComm_t comms[2];
    cudaStream_t streams[2];
    uint64_t *bufs[2], value;
    assert_int_equal(ncclCommInitAll(comms, 2, NULL), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(cudaSetDevice(i), 0);
        streams[i] = stream_new();
        assert_int_equal(cudaMalloc((void **)&bufs[i], 8), 0);
        value = 40 + (uint64_t)i * 2;
        assert_int_equal(cudaMemcpy(bufs[i], &value, 8, cudaMemcpyHostToDevice), 0);
    }
    uint64_t drv = tally_drv("cuLaunchKernelEx");
    assert_int_equal(ncclAllReduce(bufs[0], bufs[0], 1, ncclUint64, ncclSum, comms[0], streams[0]),
                     0);
    assert_int_equal(launch_on(streams[1], MS(300)), 0); // rank 1 comes late
    assert_int_equal(ncclAllReduce(bufs[1], bufs[1], 1, ncclUint64, ncclSum, comms[1], streams[1]),
                     0);
    assert_int_equal(tally_drv("cuLaunchKernelEx") - drv, 2);
    assert_int_equal(cudaStreamQuery(streams[0]), 600);
    assert_int_equal(cudaStreamSynchronize(streams[0]),
                     0); // the victim waits for the culprit's kernel
    for (int i = 0; i < 2; i++) {
        assert_int_equal(cudaStreamSynchronize(streams[i]), 0);
        assert_int_equal(cudaMemcpy(&value, bufs[i], 8, cudaMemcpyDeviceToHost), 0);
        assert_int_equal(value, 82);
        assert_int_equal(ncclCommDestroy(comms[i]), 0);
        assert_int_equal(cudaFree(bufs[i]), 0);
        assert_int_equal(cudaStreamDestroy(streams[i]), 0);
    }
    assert_int_equal(cudaSetDevice(0), 0);
}

static void test_abort_releases(void **state)
{
    (void)state;
    ncclComm_t comms[2];
    assert_int_equal(ncclCommInitAll(comms, 2, NULL), 0);
    assert_int_equal(cudaSetDevice(0), 0);
    cudaStream_t stream = stream_new();
    assert_int_equal(ncclAllReduce(NULL, NULL, 16, ncclFloat, ncclSum, comms[0], stream), 0);
    assert_int_equal(cudaStreamQuery(stream), 600);
    assert_int_equal(ncclCommAbort(comms[0]), 0);
    assert_int_equal(cudaStreamSynchronize(stream), 0);
    assert_int_equal(ncclCommAbort(comms[1]), 0);
    assert_int_equal(cudaStreamDestroy(stream), 0);
}

static ncclUniqueId g_id;

struct member {
    int rank;
    int new_rank, new_count;
    uint64_t sum, received;
    int failed;
};

static void *member_run(void *arg)
{
    struct member *m = arg;
    ncclComm_t comm = NULL, half = NULL;
    cudaStream_t stream = NULL;
    uint64_t *buf = NULL, value = 1ull << (8 * m->rank);
    m->failed += cudaSetDevice(m->rank) != 0 || cudaStreamCreateWithFlags(&stream, 1) != 0;
    m->failed += cudaMalloc((void **)&buf, 16) != 0;
    m->failed += ncclCommInitRankConfig(&comm, 4, g_id, m->rank, NULL) != 0;
    m->failed += ncclCommSplit(comm, m->rank % 2, -m->rank, &half, NULL) != 0;
    m->failed +=
        ncclCommCount(half, &m->new_count) != 0 || ncclCommUserRank(half, &m->new_rank) != 0;
    m->failed += cudaMemcpy(buf, &value, 8, cudaMemcpyHostToDevice) != 0;
    m->failed += ncclAllReduce(buf, buf, 1, ncclUint64, ncclSum, half, stream) != 0;
    m->failed += cudaStreamSynchronize(stream) != 0;
    m->failed += cudaMemcpy(&m->sum, buf, 8, cudaMemcpyDeviceToHost) != 0;
    // A ring: everybody sends and receives in one group.
    value = 100 + (uint64_t)m->rank;
    m->failed += cudaMemcpy(buf, &value, 8, cudaMemcpyHostToDevice) != 0;
    m->failed += ncclGroupStart() != 0;
    m->failed += ncclSend(buf, 1, ncclUint64, (unsigned)(m->rank + 1) % 4, comm, stream) != 0;
    m->failed += ncclRecv(buf + 1, 1, ncclUint64, (unsigned)(m->rank + 3) % 4, comm, stream) != 0;
    m->failed += ncclGroupEnd() != 0;
    m->failed += cudaStreamSynchronize(stream) != 0;
    m->failed += cudaMemcpy(&m->received, buf + 1, 8, cudaMemcpyDeviceToHost) != 0;
    m->failed += ncclCommDestroy(half) != 0 || ncclCommDestroy(comm) != 0;
    m->failed += cudaFree(buf) != 0 || cudaStreamDestroy(stream) != 0;
    return NULL;
}

static void test_split_and_ring(void **state)
{
    (void)state;
    pthread_t threads[4];
    struct member members[4] = {{0}};
    assert_int_equal(ncclGetUniqueId(&g_id), 0);
    for (int i = 0; i < 4; i++) {
        members[i].rank = i;
        assert_int_equal(pthread_create(&threads[i], NULL, member_run, &members[i]), 0);
    }
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(members[i].failed, 0);
        assert_int_equal(members[i].new_count, 2);
        assert_int_equal(members[i].new_rank, i < 2 ? 1 : 0); // the key turns the order round
        assert_int_equal(members[i].sum, i % 2 == 0 ? 0x10001 : 0x1000100);
        assert_int_equal(members[i].received, 100 + (i + 3) % 4);
    }
}

static void test_unique_ids_differ(void **state)
{
    (void)state;
    ncclUniqueId a, b;
    assert_int_equal(ncclGetUniqueId(&a), 0);
    assert_int_equal(ncclGetUniqueId(&b), 0);
    assert_memory_not_equal(&a, &b, sizeof(a));
}

static void test_driver_query_gives_exports(void **state)
{
    (void)state;
    int (*query)(const char *, void **, int, uint64_t, int *);
    void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), *pfn = NULL;
    void *symbol = dlsym(lib, "cuGetProcAddress_v2");
    int status = -1;
    static const struct {
        const char *name, *export;
        int version;
        uint64_t flags;
    } rows[] = {
        {"cuMemAlloc", "cuMemAlloc_v2", 3020, 0},
        {"cuLaunchKernel", "cuLaunchKernel", 4000, 1},
        {"cuLaunchKernel", "cuLaunchKernel_ptsz", 12040, 2},
        {"cuMemcpyHtoD", "cuMemcpyHtoD_v2_ptds", 12040, 2},
        {"cuStreamSynchronize", "cuStreamSynchronize_ptsz", 12040, 2},
        {"cuCtxSynchronize", "cuCtxSynchronize", 12040, 2},
        {"cuStreamBeginCapture", "cuStreamBeginCapture_v2", 10010, 0},
    };
    assert_non_null(symbol);
    memcpy(&query, &symbol, sizeof(query));
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(query(rows[i].name, &pfn, rows[i].version, rows[i].flags, &status), 0);
        assert_int_equal(status, 0);
        assert_ptr_equal(pfn, dlsym(lib, rows[i].export));
    }
    assert_int_equal(query("cuNoSuchThing", &pfn, 12040, 0, &status), 0);
    assert_null(pfn);
    assert_int_equal(status, 1);
    assert_int_equal(query("cuMemAlloc", &pfn, 99000, 0, &status), 0);
    assert_int_equal(status, 2);
}

static void test_direct_driver_caller(void **state)
{
    (void)state;
    int (*gemm)(void *, uint64_t);
    void *lib = dlopen("libsimblas.so", RTLD_NOW);
    assert_non_null(lib);
    void *symbol = dlsym(lib, "simblasGemm");
    memcpy(&gemm, &symbol, sizeof(gemm));
    uint64_t rt = tally_rt("cudaLaunchKernel"), drv = tally_drv("cuLaunchKernel");
    cudaStream_t stream = stream_new();
    assert_int_equal(gemm(stream, 1000), 0);
    assert_int_equal(cudaStreamSynchronize(stream), 0);
    assert_int_equal(tally_rt("cudaLaunchKernel") - rt, 0);
    assert_int_equal(tally_drv("cuLaunchKernel") - drv, 1);
    assert_int_equal(cudaStreamDestroy(stream), 0);
}

struct nvml_process {
    unsigned pid, pad;
    unsigned long long used;
    unsigned gi, ci;
};

static void *nvml_symbol(void *lib, const char *name)
{
    void *symbol = dlsym(lib, name);
    assert_non_null(symbol);
    return symbol;
}

#define NVML(type, name)                                                                           \
    int(*name) type;                                                                               \
    do {                                                                                           \
        void *nvml_at = nvml_symbol(lib, #name);                                                   \
        memcpy(&(name), &nvml_at, sizeof(name));                                                   \
    } while (0)

static void test_nvml_sees_the_device(void **state)
{
    (void)state;
    void *lib = dlopen("libnvidia-ml.so.1", RTLD_NOW), *dev = NULL;
    assert_non_null(lib);
    NVML((void), nvmlInit_v2);
    NVML((unsigned *), nvmlDeviceGetCount_v2);
    NVML((unsigned, void **), nvmlDeviceGetHandleByIndex_v2);
    NVML((void *, int, unsigned *), nvmlDeviceGetClockInfo);
    NVML((void *, int, unsigned *), nvmlDeviceGetMaxClockInfo);
    NVML((void *, unsigned long long *), nvmlDeviceGetCurrentClocksEventReasons);
    NVML((void *, unsigned *, struct nvml_process *), nvmlDeviceGetComputeRunningProcesses_v3);
    NVML((void *, unsigned *), nvmlDeviceGetCurrPcieLinkWidth);
    unsigned n = 0, mhz = 0, max = 0, count = 0;
    unsigned long long bits = 0;
    struct nvml_process processes[32];
    assert_int_equal(nvmlDeviceGetCount_v2(&n), 1); // not initialised
    assert_int_equal(nvmlInit_v2(), 0);
    assert_int_equal(nvmlDeviceGetCount_v2(&n), 0);
    assert_int_equal(n, 4);
    assert_int_equal(nvmlDeviceGetHandleByIndex_v2(9, &dev), 2);
    struct sim_shm *shm = sim_shm_get();
    assert_non_null(shm);
    int device = shm->ranks[5].device;
    assert_int_equal(nvmlDeviceGetHandleByIndex_v2((unsigned)device, &dev), 0);
    assert_int_equal(nvmlDeviceGetMaxClockInfo(dev, 1, &max), 0);
    assert_int_equal(nvmlDeviceGetClockInfo(dev, 1, &mhz), 0);
    assert_int_equal(mhz, max);
    sim_gpu_fault(shm, 5, 2000);
    assert_int_equal(nvmlDeviceGetClockInfo(dev, 1, &mhz), 0);
    assert_int_equal(mhz, max / 2);
    assert_int_equal(nvmlDeviceGetCurrentClocksEventReasons(dev, &bits), 0);
    assert_int_equal(bits, 0x24);
    sim_gpu_fault(shm, 5, 1000);
    assert_int_equal(nvmlDeviceGetCurrPcieLinkWidth(dev, &n), 0);
    assert_int_equal(n, 16);
    assert_int_equal(nvmlDeviceGetComputeRunningProcesses_v3(dev, &count, NULL), 7);
    count = 32;
    assert_int_equal(nvmlDeviceGetComputeRunningProcesses_v3(dev, &count, processes), 0);
    bool found = false;
    for (unsigned i = 0; i < count; i++)
        found |= processes[i].pid == (unsigned)getpid() && processes[i].used > 0;
    assert_true(found);
}

static void test_gpu_fault_stretches_kernels(void **state)
{
    (void)state;
    struct sim_shm *shm = sim_shm_get();
    cudaEvent_t a, b;
    float ms = 0;
    assert_int_equal(cudaSetDevice(shm->ranks[5].device), 0);
    cudaStream_t stream = stream_new();
    assert_int_equal(cudaEventCreate(&a), 0);
    assert_int_equal(cudaEventCreate(&b), 0);
    sim_gpu_fault(shm, 5, 1500);
    assert_int_equal(cudaEventRecord(a, stream), 0);
    assert_int_equal(launch_on(stream, MS(40)), 0);
    assert_int_equal(cudaEventRecord(b, stream), 0);
    assert_int_equal(cudaStreamSynchronize(stream), 0);
    sim_gpu_fault(shm, 5, 1000);
    assert_int_equal(cudaEventElapsedTime(&ms, a, b), 0);
    assert_true(ms >= 60.0F && ms < 65.0F);
    assert_int_equal(cudaStreamDestroy(stream), 0);
    assert_int_equal(cudaSetDevice(0), 0);
}

int main(void)
{
    char dir[] = "/tmp/simgpu-test-XXXXXX";
    if (mkdtemp(dir) == NULL)
        return 1;
    setenv("SIMGPU_DIR", dir, 1);
    setenv("SIMGPU_NODE", "test", 1);
    setenv("SIMGPU_DEVICES", "4", 1);
    setenv("SIMGPU_NOISE_PPM", "0", 1);
    setenv("SIMGPU_CTX_MS", "1", 1);
    setenv("RANK", "5", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tally_is_exact_with_threads),
        cmocka_unit_test(test_both_launch_spellings),
        cmocka_unit_test(test_enqueue_returns_and_sync_waits),
        cmocka_unit_test(test_wait_modes),
        cmocka_unit_test(test_full_queue_blocks),
        cmocka_unit_test(test_data_moves_in_stream_order),
        cmocka_unit_test(test_memory_is_accounted),
        cmocka_unit_test(test_graph_replays),
        cmocka_unit_test(test_streams_wait_for_events),
        cmocka_unit_test(test_collective_needs_all_ranks),
        cmocka_unit_test(test_abort_releases),
        cmocka_unit_test(test_split_and_ring),
        cmocka_unit_test(test_unique_ids_differ),
        cmocka_unit_test(test_driver_query_gives_exports),
        cmocka_unit_test(test_direct_driver_caller),
        cmocka_unit_test(test_nvml_sees_the_device),
        cmocka_unit_test(test_gpu_fault_stretches_kernels),
    };
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    char path[64];
    snprintf(path, sizeof(path), "%s/state.shm", dir);
    unlink(path);
    rmdir(dir);
    return rc;
}
