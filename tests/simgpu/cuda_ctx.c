// SPDX-License-Identifier: Apache-2.0
// Driver: initialisation, devices, contexts, entry-point queries.
#include "cuda_api.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SIM_DRIVER_VERSION 12040

SIM_HIDDEN _Atomic uint32_t sim_driver_gone;

SIM_DEFINE_TALLY(simTallyCuda)

__attribute__((destructor)) static void driver_done(void)
{
    atomic_store(&sim_driver_gone, 0x51de4d01);
}

struct sim_ctx {
    struct sim_device *dev;
    uint32_t refs;
};

static struct sim_ctx g_primary[SIM_MAX_DEVICES];
static _Atomic int g_inited, g_init_pid;
static _Thread_local struct sim_ctx *t_stack[16];
static _Thread_local uint32_t t_depth; // t_stack[t_depth] is current

struct sim_device *sim_ctx_device(void)
{
    return t_stack[t_depth] == NULL ? NULL : t_stack[t_depth]->dev;
}

CUresult sim_ctx_use(struct sim_device **ret_dev)
{
    if (!atomic_load(&g_inited) || atomic_load(&g_init_pid) != getpid())
        return CUDA_ENOTINIT;
    *ret_dev = sim_ctx_device();
    return *ret_dev == NULL ? CUDA_ECTX : CUDA_OK;
}

CU_FN(cuInit)(unsigned flags)
{
    SIM_COUNT(cuInit);
    if (flags != 0)
        return CUDA_EINVAL;
    if (atomic_load(&g_inited))
        return atomic_load(&g_init_pid) == getpid() ? CUDA_OK : CUDA_ENOTINIT;
    int rc = sim_engine_init();
    if (rc != 0)
        return rc;
    if (sim_device_count() == 0)
        return CUDA_ENODEV;
    atomic_store(&g_init_pid, getpid());
    atomic_store(&g_inited, 1);
    return CUDA_OK;
}

CU_FN(cuDriverGetVersion)(int *version)
{
    SIM_COUNT(cuDriverGetVersion);
    if (version == NULL)
        return CUDA_EINVAL;
    *version = SIM_DRIVER_VERSION;
    return CUDA_OK;
}

CU_FN(cuDeviceGetCount)(int *count)
{
    SIM_COUNT(cuDeviceGetCount);
    if (!atomic_load(&g_inited))
        return CUDA_ENOTINIT;
    *count = sim_device_count();
    return CUDA_OK;
}

CU_FN(cuDeviceGet)(int *device, int ordinal)
{
    SIM_COUNT(cuDeviceGet);
    if (!atomic_load(&g_inited))
        return CUDA_ENOTINIT;
    if (ordinal < 0 || ordinal >= sim_device_count())
        return CUDA_EDEV;
    *device = ordinal;
    return CUDA_OK;
}

CU_FN(cuDeviceGetName)(char *name, int len, int device)
{
    SIM_COUNT(cuDeviceGetName);
    if (device < 0 || device >= sim_device_count() || len <= 0)
        return CUDA_EDEV;
    snprintf(name, (size_t)len, "Simulated GPU 80GB");
    return CUDA_OK;
}

static CUresult device_uuid(unsigned char *uuid, int device)
{
    struct sim_shm *shm = sim_shm_get();
    if (device < 0 || device >= sim_device_count() || shm == NULL)
        return CUDA_EDEV;
    uint64_t seed = shm->nodes[sim_node_self(shm)].uuid_seed;
    memcpy(uuid, &seed, 8);
    memset(uuid + 8, 0, 7);
    uuid[15] = (unsigned char)device;
    return CUDA_OK;
}

CU_FN(cuDeviceGetUuid)(unsigned char *uuid, int device)
{
    SIM_COUNT(cuDeviceGetUuid);
    return device_uuid(uuid, device);
}

CU_FN(cuDeviceGetUuid_v2)(unsigned char *uuid, int device)
{
    SIM_COUNT(cuDeviceGetUuid_v2);
    return device_uuid(uuid, device);
}

CU_FN(cuDeviceTotalMem_v2)(size_t *bytes, int device)
{
    SIM_COUNT(cuDeviceTotalMem_v2);
    struct sim_shm *shm = sim_shm_get();
    if (device < 0 || device >= sim_device_count() || shm == NULL)
        return CUDA_EDEV;
    *bytes = atomic_load(&shm->nodes[sim_node_self(shm)].dev[device].mem_total_bytes);
    return CUDA_OK;
}

CU_FN(cuDeviceGetAttribute)(int *value, int attribute, int device)
{
    SIM_COUNT(cuDeviceGetAttribute);
    if (device < 0 || device >= sim_device_count())
        return CUDA_EDEV;
    switch (attribute) {
    case 16: // multiprocessors
        *value = 132;
        break;
    case 33: // PCI bus
        *value = 0x10 + device;
        break;
    case 75: // compute capability
        *value = 9;
        break;
    case 10: // warp size
        *value = 32;
        break;
    case 1: // threads per block
        *value = 1024;
        break;
    default:
        *value = 0;
    }
    return CUDA_OK;
}

CU_FN(cuDeviceGetPCIBusId)(char *text, int len, int device)
{
    SIM_COUNT(cuDeviceGetPCIBusId);
    if (device < 0 || device >= sim_device_count() || len < 13)
        return CUDA_EDEV;
    snprintf(text, (size_t)len, "0000:%02X:00.0", 0x10u + (unsigned)device);
    return CUDA_OK;
}

CU_FN(cuDevicePrimaryCtxRetain)(CUcontext *ctx, int device)
{
    SIM_COUNT(cuDevicePrimaryCtxRetain);
    if (!atomic_load(&g_inited))
        return CUDA_ENOTINIT;
    struct sim_device *dev = sim_device_ready(device);
    if (dev == NULL)
        return CUDA_EDEV;
    g_primary[device].dev = dev;
    __atomic_fetch_add(&g_primary[device].refs, 1, __ATOMIC_RELAXED);
    *ctx = &g_primary[device];
    return CUDA_OK;
}

static CUresult primary_flags(int device, unsigned flags)
{
    if (device < 0 || device >= sim_device_count())
        return CUDA_EDEV;
    sim_devices[device].sched_flags = flags;
    return CUDA_OK;
}

CU_FN(cuDevicePrimaryCtxSetFlags)(int device, unsigned flags)
{
    SIM_COUNT(cuDevicePrimaryCtxSetFlags);
    return primary_flags(device, flags);
}

CU_FN(cuDevicePrimaryCtxSetFlags_v2)(int device, unsigned flags)
{
    SIM_COUNT(cuDevicePrimaryCtxSetFlags_v2);
    return primary_flags(device, flags);
}

CU_FN(cuDevicePrimaryCtxGetState)(int device, unsigned *flags, int *active)
{
    SIM_COUNT(cuDevicePrimaryCtxGetState);
    if (device < 0 || device >= sim_device_count())
        return CUDA_EDEV;
    *flags = sim_devices[device].sched_flags;
    *active = sim_devices[device].inited == 1;
    return CUDA_OK;
}

CU_FN(cuDevicePrimaryCtxRelease_v2)(int device)
{
    SIM_COUNT(cuDevicePrimaryCtxRelease_v2);
    return device < 0 || device >= sim_device_count() ? CUDA_EDEV : CUDA_OK;
}

CU_FN(cuDevicePrimaryCtxReset_v2)(int device)
{
    SIM_COUNT(cuDevicePrimaryCtxReset_v2);
    return device < 0 || device >= sim_device_count() ? CUDA_EDEV : CUDA_OK;
}

static CUresult ctx_create(CUcontext *ctx, unsigned flags, int device)
{
    if (!atomic_load(&g_inited))
        return CUDA_ENOTINIT;
    struct sim_device *dev = sim_device_ready(device);
    if (dev == NULL)
        return CUDA_EDEV;
    struct sim_ctx *c = calloc(1, sizeof(*c));
    if (c == NULL)
        return CUDA_ENOMEM;
    c->dev = dev;
    dev->sched_flags = flags;
    t_stack[t_depth] = c;
    *ctx = c;
    return CUDA_OK;
}

CU_FN(cuCtxCreate_v2)(CUcontext *ctx, unsigned flags, int device)
{
    SIM_COUNT(cuCtxCreate_v2);
    return ctx_create(ctx, flags, device);
}

CU_FN(cuCtxCreate_v3)(CUcontext *ctx, void *params, int n, unsigned flags, int device)
{
    SIM_COUNT(cuCtxCreate_v3);
    (void)params;
    (void)n;
    return ctx_create(ctx, flags, device);
}

CU_FN(cuCtxCreate_v4)(CUcontext *ctx, void *params, unsigned flags, int device)
{
    SIM_COUNT(cuCtxCreate_v4);
    (void)params;
    return ctx_create(ctx, flags, device);
}

CU_FN(cuCtxDestroy_v2)(CUcontext ctx)
{
    SIM_COUNT(cuCtxDestroy_v2);
    struct sim_ctx *c = ctx;
    if (c == NULL)
        return CUDA_ECTX;
    if (t_stack[t_depth] == c)
        t_stack[t_depth] = NULL;
    sim_device_sync(c->dev);
    if (c < g_primary || c >= g_primary + SIM_MAX_DEVICES)
        free(c);
    return CUDA_OK;
}

CU_FN(cuCtxSetCurrent)(CUcontext ctx)
{
    SIM_COUNT(cuCtxSetCurrent);
    if (!atomic_load(&g_inited))
        return CUDA_ENOTINIT;
    t_stack[t_depth] = ctx;
    return CUDA_OK;
}

CU_FN(cuCtxGetCurrent)(CUcontext *ctx)
{
    SIM_COUNT(cuCtxGetCurrent);
    *ctx = t_stack[t_depth];
    return CUDA_OK;
}

CU_FN(cuCtxPushCurrent_v2)(CUcontext ctx)
{
    SIM_COUNT(cuCtxPushCurrent_v2);
    if (t_depth + 1 >= sizeof(t_stack) / sizeof(t_stack[0]))
        return CUDA_ECTX;
    t_stack[++t_depth] = ctx;
    return CUDA_OK;
}

CU_FN(cuCtxPopCurrent_v2)(CUcontext *ctx)
{
    SIM_COUNT(cuCtxPopCurrent_v2);
    if (t_stack[t_depth] == NULL)
        return CUDA_ECTX;
    if (ctx != NULL)
        *ctx = t_stack[t_depth];
    t_stack[t_depth] = NULL;
    if (t_depth > 0)
        t_depth--;
    return CUDA_OK;
}

CU_FN(cuCtxGetDevice)(int *device)
{
    SIM_COUNT(cuCtxGetDevice);
    struct sim_device *dev;
    CUresult rc = sim_ctx_use(&dev);
    if (rc == CUDA_OK)
        *device = dev->ordinal;
    return rc;
}

CU_FN(cuCtxSynchronize)(void)
{
    SIM_COUNT(cuCtxSynchronize);
    struct sim_device *dev;
    CUresult rc = sim_ctx_use(&dev);
    return rc != CUDA_OK ? rc : sim_device_sync(dev);
}

CU_FN(cuCtxSynchronize_v2)(CUcontext ctx)
{
    SIM_COUNT(cuCtxSynchronize_v2);
    const struct sim_ctx *c = ctx;
    if (!atomic_load(&g_inited))
        return CUDA_ENOTINIT;
    return c == NULL ? CUDA_ECTX : sim_device_sync(c->dev);
}

CU_FN(cuGetExportTable)(const void **table, const void *id)
{
    SIM_COUNT(cuGetExportTable);
    (void)table;
    (void)id;
    return CUDA_EINVAL;
}

static const struct {
    int code;
    const char *name, *text;
} g_errors[] = {
    {0, "CUDA_SUCCESS", "no error"},
    {1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {400, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {500, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {600, "CUDA_ERROR_NOT_READY", "device not ready"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
};

static CUresult error_text(int code, const char **text, bool name)
{
    for (size_t i = 0; i < sizeof(g_errors) / sizeof(g_errors[0]); i++) {
        if (g_errors[i].code == code) {
            *text = name ? g_errors[i].name : g_errors[i].text;
            return CUDA_OK;
        }
    }
    *text = NULL;
    return CUDA_EINVAL;
}

CU_FN(cuGetErrorString)(int code, const char **text)
{
    SIM_COUNT(cuGetErrorString);
    return error_text(code, text, false);
}

CU_FN(cuGetErrorName)(int code, const char **text)
{
    SIM_COUNT(cuGetErrorName);
    return error_text(code, text, true);
}

extern const struct sim_export __start_sim_exports[] SIM_HIDDEN;
extern const struct sim_export __stop_sim_exports[] SIM_HIDDEN;

static void *export_find(const char *base, const char *a, const char *b)
{
    char name[128];
    snprintf(name, sizeof(name), "%s%s%s", base, a, b);
    for (const struct sim_export *e = __start_sim_exports; e < __stop_sim_exports; e++) {
        if (strcmp(e->name, name) == 0)
            return e->address;
    }
    return NULL;
}

// The newest variant that the asked version may see. All _v2 names here date from 3020 or 4000, the
// rest is listed.
static bool v2_visible(const char *symbol, int version)
{
    static const struct {
        const char *name;
        int since;
    } late[] = {
        {"cuStreamBeginCapture", 10010},    {"cuGraphExecUpdate", 12000},
        {"cuGetProcAddress", 12000},        {"cuDevicePrimaryCtxRelease", 11000},
        {"cuDevicePrimaryCtxReset", 11000}, {"cuDevicePrimaryCtxSetFlags", 11000},
        {"cuDeviceGetUuid", 11040},         {"cuGraphInstantiate", 11000},
        {"cuMemPrefetchAsync", 12020},      {"cuMemcpyBatchAsync", 13000},
        {"cuCtxSynchronize", 13000},
    };
    for (size_t i = 0; i < sizeof(late) / sizeof(late[0]); i++) {
        if (strcmp(symbol, late[i].name) == 0)
            return version >= late[i].since;
    }
    return version >= 3020;
}

static CUresult proc_address(const char *symbol, void **pfn, int version, uint64_t flags,
                             int *status)
{
    if (symbol == NULL || pfn == NULL || strlen(symbol) > 100)
        return CUDA_EINVAL;
    const char *version_suffix = v2_visible(symbol, version) ? "_v2" : "";
    void *found = NULL;
    if (flags & 2) {
        static const char *const tails[] = {"_ptsz", "_ptds"};
        for (size_t i = 0; i < 2 && found == NULL; i++)
            found = export_find(symbol, version_suffix, tails[i]);
        for (size_t i = 0; i < 2 && found == NULL; i++)
            found = export_find(symbol, "", tails[i]);
    }
    if (found == NULL)
        found = export_find(symbol, version_suffix, "");
    if (found == NULL)
        found = export_find(symbol, "", "");
    if (status != NULL)
        *status = found != NULL && version <= SIM_DRIVER_VERSION ? 0 : found == NULL ? 1 : 2;
    *pfn = version <= SIM_DRIVER_VERSION ? found : NULL;
    return CUDA_OK;
}

CU_FN(cuGetProcAddress)(const char *symbol, void **pfn, int version, uint64_t flags)
{
    SIM_COUNT(cuGetProcAddress);
    return proc_address(symbol, pfn, version, flags, NULL);
}

CU_FN(cuGetProcAddress_v2)(const char *symbol, void **pfn, int version, uint64_t flags, int *status)
{
    SIM_COUNT(cuGetProcAddress_v2);
    return proc_address(symbol, pfn, version, flags, status);
}
