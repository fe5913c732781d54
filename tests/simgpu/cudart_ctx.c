// SPDX-License-Identifier: Apache-2.0
// Runtime: driver lookup, devices, errors, kernel registration.
#include "cudart_drv.h"
#include "sim_launch.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#ifndef RT_API
#define RT_API __attribute__((visibility("default")))
#endif
#define RT_MAJOR 12

SIM_DEFINE_TALLY(simTallyCudart)

struct sim_drv sim_drv[2];
static int g_driver_rc = 35;
static pthread_once_t g_once = PTHREAD_ONCE_INIT;
static pthread_mutex_t g_lock = PTHREAD_MUTEX_INITIALIZER;
static void *g_contexts[64];
static unsigned g_flags[64];
static void *g_library;

static _Thread_local int t_error;
static _Thread_local int t_device;
static _Thread_local int t_bound = -1; // device whose context is current in this thread

static void driver_once(void)
{
    int (*query)(const char *, void **, int, uint64_t, int *);
    void *lib = dlopen("libcuda.so.1", RTLD_NOW);
    void *symbol = lib == NULL ? NULL : dlsym(lib, "cuGetProcAddress_v2");
    if (symbol == NULL)
        return;
    memcpy(&query, &symbol, sizeof(query));
    static const char *const names[] = {
#define X(name, params) #name,
        SIM_DRV_LIST(X)
#undef X
    };
    for (uint64_t flavour = 0; flavour < 2; flavour++) {
        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
            int status = 0;
            void *pfn = NULL;
            if (query(names[i], &pfn, RT_MAJOR * 1000 + 40, flavour * 2, &status) != 0 ||
                pfn == NULL) {
                fprintf(stderr, "simgpu: the driver lacks %s\n", names[i]);
                return;
            }
            memcpy((char *)&sim_drv[flavour] + i * sizeof(void *), &pfn, sizeof(pfn));
        }
    }
    g_driver_rc = sim_drv[0].cuInit(0);
}

int sim_rt_driver(void)
{
    pthread_once(&g_once, driver_once);
    return g_driver_rc;
}

int sim_rt_done(int rc)
{
    if (rc != 0)
        t_error = rc;
    return rc;
}

int sim_rt_device(void)
{
    return t_device;
}

int sim_rt_select(int device)
{
    int rc = sim_rt_driver(), count = 0;
    if (rc == 0)
        rc = sim_drv[0].cuDeviceGetCount(&count);
    if (rc != 0)
        return rc;
    if (device < 0 || device >= count || device >= 64)
        return 101;
    t_device = device;
    return sim_rt_ready();
}

int sim_rt_ready(void)
{
    int rc = sim_rt_driver();
    if (rc != 0 || t_bound == t_device)
        return rc;
    pthread_mutex_lock(&g_lock);
    if (g_contexts[t_device] == NULL) {
        rc = sim_drv[0].cuDevicePrimaryCtxSetFlags(t_device, g_flags[t_device]);
        if (rc == 0)
            rc = sim_drv[0].cuDevicePrimaryCtxRetain(&g_contexts[t_device], t_device);
    }
    pthread_mutex_unlock(&g_lock);
    if (rc == 0)
        rc = sim_drv[0].cuCtxSetCurrent(g_contexts[t_device]);
    if (rc == 0)
        t_bound = t_device;
    return rc;
}

RT_API cudaError_t cudaSetDevice(int device)
{
    SIM_COUNT(cudaSetDevice);
    return sim_rt_done(sim_rt_select(device));
}

RT_API cudaError_t cudaInitDevice(int device, unsigned device_flags, unsigned flags)
{
    SIM_COUNT(cudaInitDevice);
    (void)flags;
    int old = t_device;
    if (device >= 0 && device < 64)
        g_flags[device] = device_flags;
    int rc = sim_rt_select(device);
    if (rc == 0)
        rc = sim_rt_select(old);
    return sim_rt_done(rc);
}

RT_API cudaError_t cudaGetDevice(int *device)
{
    SIM_COUNT(cudaGetDevice);
    *device = t_device;
    return sim_rt_done(sim_rt_driver());
}

RT_API cudaError_t cudaGetDeviceCount(int *count)
{
    SIM_COUNT(cudaGetDeviceCount);
    int rc = sim_rt_driver();
    return sim_rt_done(rc != 0 ? rc : sim_drv[0].cuDeviceGetCount(count));
}

RT_API cudaError_t cudaSetDeviceFlags(unsigned flags)
{
    SIM_COUNT(cudaSetDeviceFlags);
    int rc = sim_rt_driver();
    if (rc != 0)
        return sim_rt_done(rc);
    g_flags[t_device] = flags;
    return sim_rt_done(sim_drv[0].cuDevicePrimaryCtxSetFlags(t_device, flags));
}

RT_API cudaError_t cudaGetDeviceFlags(unsigned *flags)
{
    SIM_COUNT(cudaGetDeviceFlags);
    *flags = g_flags[t_device];
    return 0;
}

RT_API cudaError_t cudaDeviceReset(void)
{
    SIM_COUNT(cudaDeviceReset);
    int rc = sim_rt_ready();
    if (rc == 0)
        rc = sim_drv[0].cuCtxSynchronize();
    return sim_rt_done(rc != 0 ? rc : sim_drv[0].cuDevicePrimaryCtxReset(t_device));
}

RT_API cudaError_t cudaDeviceSynchronize(void)
{
    SIM_COUNT(cudaDeviceSynchronize);
    int rc = sim_rt_ready();
    return sim_rt_done(rc != 0 ? rc : sim_drv[0].cuCtxSynchronize());
}

RT_API cudaError_t cudaDeviceGetAttribute(int *value, int attribute, int device)
{
    SIM_COUNT(cudaDeviceGetAttribute);
    int rc = sim_rt_driver();
    return sim_rt_done(rc != 0 ? rc : sim_drv[0].cuDeviceGetAttribute(value, attribute, device));
}

RT_API cudaError_t cudaDeviceGetPCIBusId(char *text, int len, int device)
{
    SIM_COUNT(cudaDeviceGetPCIBusId);
    int rc = sim_rt_driver();
    return sim_rt_done(rc != 0 ? rc : sim_drv[0].cuDeviceGetPCIBusId(text, len, device));
}

RT_API cudaError_t cudaGetDeviceProperties_v2(void *prop, int device)
{
    SIM_COUNT(cudaGetDeviceProperties_v2);
    int rc = sim_rt_driver();
    if (rc != 0)
        return sim_rt_done(rc);
    size_t total = 0;
    memset(prop, 0, 1032);
    rc = sim_drv[0].cuDeviceGetName(prop, 256, device);
    if (rc == 0)
        rc = sim_drv[0].cuDeviceGetUuid((unsigned char *)prop + 256, device);
    if (rc == 0)
        rc = sim_drv[0].cuDeviceTotalMem(&total, device);
    memcpy((char *)prop + 288, &total, sizeof(total));
    return sim_rt_done(rc);
}

RT_API cudaError_t cudaDriverGetVersion(int *version)
{
    SIM_COUNT(cudaDriverGetVersion);
    int rc = sim_rt_driver();
    return sim_rt_done(rc != 0 ? rc : sim_drv[0].cuDriverGetVersion(version));
}

RT_API cudaError_t cudaRuntimeGetVersion(int *version)
{
    SIM_COUNT(cudaRuntimeGetVersion);
    *version = RT_MAJOR * 1000 + 40;
    return 0;
}

RT_API cudaError_t cudaGetLastError(void)
{
    SIM_COUNT(cudaGetLastError);
    int rc = t_error;
    t_error = 0;
    return rc;
}

RT_API cudaError_t cudaPeekAtLastError(void)
{
    SIM_COUNT(cudaPeekAtLastError);
    return t_error;
}

static const struct {
    int code;
    const char *name, *text;
} g_errors[] = {
    {0, "cudaSuccess", "no error"},
    {1, "cudaErrorInvalidValue", "invalid argument"},
    {2, "cudaErrorMemoryAllocation", "out of memory"},
    {3, "cudaErrorInitializationError", "initialization error"},
    {4, "cudaErrorCudartUnloading", "driver shutting down"},
    {35, "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {98, "cudaErrorInvalidDeviceFunction", "invalid device function"},
    {100, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {101, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {400, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {600, "cudaErrorNotReady", "device not ready"},
    {700, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
    {900, "cudaErrorStreamCaptureUnsupported", "operation not permitted when stream is capturing"},
};

RT_API const char *cudaGetErrorString(cudaError_t error)
{
    SIM_COUNT(cudaGetErrorString);
    for (size_t i = 0; i < sizeof(g_errors) / sizeof(g_errors[0]); i++) {
        if (g_errors[i].code == error)
            return g_errors[i].text;
    }
    return "unrecognized error code";
}

RT_API const char *cudaGetErrorName(cudaError_t error)
{
    SIM_COUNT(cudaGetErrorName);
    for (size_t i = 0; i < sizeof(g_errors) / sizeof(g_errors[0]); i++) {
        if (g_errors[i].code == error)
            return g_errors[i].name;
    }
    return "unrecognized error code";
}

// The address of this export is a kernel: its first argument points at a 64-bit duration in
// nanoseconds.
RT_API void simKernel(void)
{
    SIM_COUNT(simKernel);
}

// Host stubs and kernel handles, as registered by the program's own initialisation code. Open
// addressing, never removed.
enum { SIM_STUBS = 8192 };
static struct {
    const void *stub;
    const char *name;
    void *handle;
} g_stubs[SIM_STUBS];

static size_t stub_slot(const void *stub)
{
    size_t at = ((uintptr_t)stub >> 2) * 0x9e3779b1u % SIM_STUBS;
    for (size_t i = 0; i < SIM_STUBS; i++, at = (at + 1) % SIM_STUBS) {
        const void *have = __atomic_load_n(&g_stubs[at].stub, __ATOMIC_ACQUIRE);
        if (have == stub || have == NULL)
            return at;
    }
    return SIM_STUBS;
}

static size_t stub_add(const void *stub, const char *name)
{
    pthread_mutex_lock(&g_lock);
    size_t at = stub_slot(stub);
    if (at < SIM_STUBS && g_stubs[at].stub == NULL) {
        g_stubs[at].name = name;
        __atomic_store_n(&g_stubs[at].stub, stub, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&g_lock);
    return at;
}

// First use of a kernel loads it: library, kernel, function, as lazy loading does.
static void *stub_load(size_t at)
{
    pthread_mutex_lock(&g_lock);
    void *kernel = NULL, *fn = __atomic_load_n(&g_stubs[at].handle, __ATOMIC_ACQUIRE);
    if (fn == NULL) {
        if (g_library == NULL)
            sim_drv[0].cuLibraryLoadData(&g_library, "", NULL, NULL, 0, NULL, NULL, 0);
        if (sim_drv[0].cuLibraryGetKernel(&kernel, g_library, g_stubs[at].name) == 0 &&
            sim_drv[0].cuKernelGetFunction(&fn, kernel) == 0)
            __atomic_store_n(&g_stubs[at].handle, fn, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&g_lock);
    return fn;
}

void *sim_rt_function(const void *f)
{
    if (f == NULL)
        return NULL;
    size_t at = stub_slot(f);
    if (at < SIM_STUBS && g_stubs[at].stub == NULL)
        at = stub_add(f, f == (const void *)&simKernel ? "simKernel" : "unregistered");
    if (at >= SIM_STUBS)
        return NULL;
    void *handle = __atomic_load_n(&g_stubs[at].handle, __ATOMIC_ACQUIRE);
    return handle != NULL ? handle : stub_load(at);
}

RT_API void **__cudaRegisterFatBinary(void *fatbin)
{
    SIM_COUNT(__cudaRegisterFatBinary);
    static void *handle;
    (void)fatbin;
    return &handle;
}

RT_API void __cudaRegisterFatBinaryEnd(void **handle)
{
    SIM_COUNT(__cudaRegisterFatBinaryEnd);
    (void)handle;
}

RT_API void __cudaUnregisterFatBinary(void **handle)
{
    SIM_COUNT(__cudaUnregisterFatBinary);
    (void)handle;
}

RT_API void __cudaRegisterFunction(void **handle, const char *host_fun, char *device_fun,
                                   const char *device_name, int thread_limit, void *tid, void *bid,
                                   void *bdim, void *gdim, int *wsize)
{
    SIM_COUNT(__cudaRegisterFunction);
    (void)handle;
    (void)device_fun;
    (void)thread_limit;
    (void)tid;
    (void)bid;
    (void)bdim;
    (void)gdim;
    (void)wsize;
    stub_add(host_fun, device_name);
}

RT_API void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int ext,
                              size_t size, int constant, int global)
{
    SIM_COUNT(__cudaRegisterVar);
    (void)handle;
    (void)host;
    (void)device;
    (void)name;
    (void)ext;
    (void)size;
    (void)constant;
    (void)global;
}

RT_API char __cudaInitModule(void **handle)
{
    SIM_COUNT(__cudaInitModule);
    (void)handle;
    return 1;
}

RT_API cudaError_t __cudaGetKernel(void **kernel, const void *host_fun)
{
    SIM_COUNT(__cudaGetKernel);
    int rc = sim_rt_ready();
    *kernel = rc == 0 ? sim_rt_function(host_fun) : NULL;
    if (*kernel != NULL)
        stub_add(*kernel, "handle");
    size_t at = *kernel == NULL ? SIM_STUBS : stub_slot(*kernel);
    if (at < SIM_STUBS)
        __atomic_store_n(&g_stubs[at].handle, *kernel, __ATOMIC_RELEASE);
    return sim_rt_done(rc != 0 ? rc : *kernel == NULL ? 98 : 0);
}

struct call_configuration {
    struct sim_dim3 grid, block;
    size_t shared;
    void *stream;
};
static _Thread_local struct call_configuration t_configs[8];
static _Thread_local unsigned t_config_count;

RT_API unsigned __cudaPushCallConfiguration(struct sim_dim3 grid, struct sim_dim3 block,
                                            size_t shared, void *stream)
{
    SIM_COUNT(__cudaPushCallConfiguration);
    if (t_config_count >= sizeof(t_configs) / sizeof(t_configs[0]))
        return 1;
    t_configs[t_config_count++] = (struct call_configuration){grid, block, shared, stream};
    return 0;
}

RT_API cudaError_t __cudaPopCallConfiguration(struct sim_dim3 *grid, struct sim_dim3 *block,
                                              size_t *shared, void *stream)
{
    SIM_COUNT(__cudaPopCallConfiguration);
    if (t_config_count == 0)
        return sim_rt_done(1);
    const struct call_configuration *c = &t_configs[--t_config_count];
    *grid = c->grid;
    *block = c->block;
    *shared = c->shared;
    *(void **)stream = c->stream;
    return 0;
}
