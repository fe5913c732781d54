/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NVML without its header: the functions are looked up at run time and declared here as far as they
 * are used. Structs are laid out as the library's interface prescribes; sizes are asserted.
 */
#include "gpu/gpu.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/text.h"

#define NVML_SUCCESS            0
#define NVML_INVALID_ARGUMENT   2
#define NVML_NOT_SUPPORTED      3
#define NVML_NO_PERMISSION      4
#define NVML_NOT_FOUND          6
#define NVML_INSUFFICIENT_SIZE  7
#define NVML_DRIVER_NOT_LOADED  9
#define NVML_TIMEOUT            10
#define NVML_GPU_IS_LOST        15
#define NVML_RESET_REQUIRED     16
#define NVML_LIB_RM_MISMATCH    18
#define NVML_FUNCTION_NOT_FOUND 13

#define CLOCK_SM          1u
#define SENSOR_GPU        0u
#define ECC_UNCORRECTED   1u
#define ECC_VOLATILE      0u
#define MEMORY_V2_VERSION 0x02000028u
#define PROCESSES_OFFERED (LTN_GPU_PROCS + 1)     /* one more, to see that there are more */
#define PROCESS_ROOM      (PROCESSES_OFFERED * 2) /* entries, in case the library's are larger */
#define MAX_PLAUSIBLE_PID (1u << 22)

typedef int nvml_ret;
typedef struct nvml_device_opaque *nvml_dev;

struct nvml_pci {
    char bus_id_legacy[16];
    unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32];
};
_Static_assert(sizeof(struct nvml_pci) == 68, "nvmlPciInfo_t");

struct nvml_memory {
    unsigned long long total, free, used;
};
_Static_assert(sizeof(struct nvml_memory) == 24, "nvmlMemory_t");

struct nvml_memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};
_Static_assert(sizeof(struct nvml_memory_v2) == 40, "nvmlMemory_v2_t");

struct nvml_utilization {
    unsigned gpu, memory;
};

struct nvml_process {
    unsigned pid;
    unsigned long long used_memory;
    unsigned gpu_instance, compute_instance;
};
_Static_assert(sizeof(struct nvml_process) == 24, "nvmlProcessInfo_t");

struct nvml_process_v1 {
    unsigned pid;
    unsigned long long used_memory;
};
_Static_assert(sizeof(struct nvml_process_v1) == 16, "nvmlProcessInfo_v1_t");

/* Every function used: member, its parameters, and its names, newest first. */
#define NVML_FUNCTIONS(X)                                                                          \
    X(init, (void), "nvmlInit_v2", NULL)                                                           \
    X(shutdown, (void), "nvmlShutdown", NULL)                                                      \
    X(driver_version, (char *, unsigned), "nvmlSystemGetDriverVersion", NULL)                      \
    X(count, (unsigned *), "nvmlDeviceGetCount_v2", NULL)                                          \
    X(by_index, (unsigned, nvml_dev *), "nvmlDeviceGetHandleByIndex_v2", NULL)                     \
    X(uuid, (nvml_dev, char *, unsigned), "nvmlDeviceGetUUID", NULL)                               \
    X(name, (nvml_dev, char *, unsigned), "nvmlDeviceGetName", NULL)                               \
    X(pci, (nvml_dev, struct nvml_pci *), "nvmlDeviceGetPciInfo_v3", NULL)                         \
    X(minor, (nvml_dev, unsigned *), "nvmlDeviceGetMinorNumber", NULL)                             \
    X(max_clock, (nvml_dev, unsigned, unsigned *), "nvmlDeviceGetMaxClockInfo", NULL)              \
    X(clock, (nvml_dev, unsigned, unsigned *), "nvmlDeviceGetClockInfo", NULL)                     \
    X(pcie_gen_max, (nvml_dev, unsigned *), "nvmlDeviceGetMaxPcieLinkGeneration", NULL)            \
    X(pcie_width_max, (nvml_dev, unsigned *), "nvmlDeviceGetMaxPcieLinkWidth", NULL)               \
    X(pcie_gen, (nvml_dev, unsigned *), "nvmlDeviceGetCurrPcieLinkGeneration", NULL)               \
    X(pcie_width, (nvml_dev, unsigned *), "nvmlDeviceGetCurrPcieLinkWidth", NULL)                  \
    X(memory_v2, (nvml_dev, struct nvml_memory_v2 *), "nvmlDeviceGetMemoryInfo_v2", NULL)          \
    X(memory, (nvml_dev, struct nvml_memory *), "nvmlDeviceGetMemoryInfo", NULL)                   \
    X(utilization, (nvml_dev, struct nvml_utilization *), "nvmlDeviceGetUtilizationRates", NULL)   \
    X(power, (nvml_dev, unsigned *), "nvmlDeviceGetPowerUsage", NULL)                              \
    X(temperature, (nvml_dev, unsigned, unsigned *), "nvmlDeviceGetTemperature", NULL)             \
    X(reasons, (nvml_dev, unsigned long long *), "nvmlDeviceGetCurrentClocksEventReasons",         \
      "nvmlDeviceGetCurrentClocksThrottleReasons")                                                 \
    X(ecc, (nvml_dev, unsigned, unsigned, unsigned long long *), "nvmlDeviceGetTotalEccErrors",    \
      NULL)                                                                                        \
    X(processes, (nvml_dev, unsigned *, void *), "nvmlDeviceGetComputeRunningProcesses_v3", NULL)  \
    X(processes_v1, (nvml_dev, unsigned *, void *), "nvmlDeviceGetComputeRunningProcesses", NULL)

struct nvml {
    char *path; /* NULL = usual name */
    void *handle;
#define NVML_MEMBER(member, args, name1, name2) nvml_ret(*member) args;
    NVML_FUNCTIONS(NVML_MEMBER)
#undef NVML_MEMBER
    nvml_dev devices[LTN_GPU_MAX];
    bool device_known[LTN_GPU_MAX];
};

static int error_of(nvml_ret r)
{
    switch (r) {
    case NVML_SUCCESS:
        return 0;
    case NVML_INVALID_ARGUMENT:
        return -EINVAL;
    case NVML_NOT_SUPPORTED:
    case NVML_FUNCTION_NOT_FOUND:
        return LTN_ERR_UNSUPPORTED;
    case NVML_NO_PERMISSION:
        return -EPERM;
    case NVML_NOT_FOUND:
        return -ENOENT; /* LTN_ERR_NOT_FOUND means that there is no library */
    case NVML_DRIVER_NOT_LOADED:
    case NVML_LIB_RM_MISMATCH:
        return LTN_ERR_UNAVAILABLE;
    case NVML_TIMEOUT:
        return LTN_ERR_TIMEOUT;
    case NVML_GPU_IS_LOST:
    case NVML_RESET_REQUIRED:
        return -EIO;
    default:
        return LTN_ERR_INTERNAL;
    }
}

static void *find_function(void *handle, const char *name1, const char *name2)
{
    void *f = dlsym(handle, name1);
    return f == NULL && name2 != NULL ? dlsym(handle, name2) : f;
}

static void nvml_close(void *ctx)
{
    struct nvml *n = ctx;
    if (n->handle == NULL) {
        return;
    }
    if (n->shutdown != NULL) {
        (void)n->shutdown();
    }
    (void)dlclose(n->handle);
    n->handle = NULL;
    memset(n->device_known, 0, sizeof(n->device_known));
}

static int nvml_open(void *ctx)
{
    struct nvml *n = ctx;
    n->handle = dlopen(n->path == NULL ? "libnvidia-ml.so.1" : n->path, RTLD_NOW | RTLD_LOCAL);
    if (n->handle == NULL) {
        return LTN_ERR_NOT_FOUND;
    }
    /* Object to function pointer goes through memory: C has no conversion for it. */
#define NVML_LOOK_UP(member, args, name1, name2)                                                   \
    do {                                                                                           \
        void *f = find_function(n->handle, name1, name2);                                          \
        memcpy(&n->member, &f, sizeof(f));                                                         \
    } while (0);
    NVML_FUNCTIONS(NVML_LOOK_UP)
#undef NVML_LOOK_UP
    int rc = LTN_ERR_UNSUPPORTED;
    if (n->init != NULL && n->count != NULL && n->by_index != NULL) {
        rc = error_of(n->init());
    }
    if (rc < 0) {
        (void)dlclose(n->handle); /* not initialised, so not to be shut down */
        n->handle = NULL;
    }
    return rc;
}

static int nvml_driver_version(void *ctx, char *out, size_t size)
{
    struct nvml *n = ctx;
    if (n->driver_version == NULL) {
        return LTN_ERR_UNSUPPORTED;
    }
    int rc = error_of(n->driver_version(out, (unsigned)size));
    if (rc == 0) {
        out[size - 1] = '\0';
    }
    return rc;
}

static int nvml_count(void *ctx, uint32_t *ret)
{
    struct nvml *n = ctx;
    unsigned count = 0;
    int rc = error_of(n->count(&count));
    if (rc == 0) {
        *ret = count;
    }
    return rc;
}

static int device_of(struct nvml *n, uint32_t index, nvml_dev *ret)
{
    if (index >= LTN_GPU_MAX) {
        return -EINVAL;
    }
    if (!n->device_known[index]) {
        int rc = error_of(n->by_index(index, &n->devices[index]));
        if (rc < 0) {
            return rc;
        }
        n->device_known[index] = true;
    }
    *ret = n->devices[index];
    return 0;
}

/* Value of a getter of one number, or "not available". */
static uint32_t get_u32(nvml_ret (*f)(nvml_dev, unsigned *), nvml_dev dev)
{
    unsigned v = 0;
    return f != NULL && f(dev, &v) == NVML_SUCCESS ? v : LTN_GPU_NA_U32;
}

static uint32_t get_u32_of(nvml_ret (*f)(nvml_dev, unsigned, unsigned *), nvml_dev dev,
                           unsigned which)
{
    unsigned v = 0;
    return f != NULL && f(dev, which, &v) == NVML_SUCCESS ? v : LTN_GPU_NA_U32;
}

/* Memory by the newest interface that answers. */
static int get_memory(const struct nvml *n, nvml_dev dev, uint64_t *ret_total, uint64_t *ret_used)
{
    struct nvml_memory_v2 m2 = {.version = MEMORY_V2_VERSION};
    if (n->memory_v2 != NULL && n->memory_v2(dev, &m2) == NVML_SUCCESS) {
        *ret_total = m2.total;
        *ret_used = m2.used;
        return 0;
    }
    struct nvml_memory m = {0};
    nvml_ret r = n->memory == NULL ? NVML_FUNCTION_NOT_FOUND : n->memory(dev, &m);
    if (r == NVML_SUCCESS) {
        *ret_total = m.total;
        *ret_used = m.used;
    }
    return error_of(r);
}

static void upper_case(char *s)
{
    for (; *s != '\0'; s++) {
        if (*s >= 'a' && *s <= 'f') {
            *s = (char)(*s - 'a' + 'A');
        }
    }
}

static int nvml_info(void *ctx, uint32_t index, struct ltn_gpu_info *ret)
{
    struct nvml *n = ctx;
    nvml_dev dev;
    int rc = device_of(n, index, &dev);
    if (rc < 0) {
        return rc;
    }
    struct ltn_gpu_info info = {.index = index, .minor = -1, .memory_total_bytes = LTN_GPU_NA_U64};
    struct nvml_pci pci = {0};
    uint64_t used;
    if (n->uuid == NULL || n->uuid(dev, info.uuid, sizeof(info.uuid)) != NVML_SUCCESS) {
        info.uuid[0] = '\0';
    }
    if (n->name == NULL || n->name(dev, info.name, sizeof(info.name)) != NVML_SUCCESS) {
        info.name[0] = '\0';
    }
    info.uuid[sizeof(info.uuid) - 1] = '\0';
    info.name[sizeof(info.name) - 1] = '\0';
    if (n->pci != NULL && n->pci(dev, &pci) == NVML_SUCCESS) {
        memcpy(info.bus_id, pci.bus_id, sizeof(info.bus_id));
        info.bus_id[sizeof(info.bus_id) - 1] = '\0';
        upper_case(info.bus_id);
    }
    uint32_t minor = get_u32(n->minor, dev);
    info.minor = minor <= INT32_MAX ? (int32_t)minor : -1;
    if (get_memory(n, dev, &info.memory_total_bytes, &used) < 0) {
        info.memory_total_bytes = LTN_GPU_NA_U64;
    }
    info.sm_clock_max_mhz = get_u32_of(n->max_clock, dev, CLOCK_SM);
    info.pcie_gen_max = get_u32(n->pcie_gen_max, dev);
    info.pcie_width_max = get_u32(n->pcie_width_max, dev);
    *ret = info;
    return 0;
}

static void keep_process(struct ltn_gpu_sample *s, unsigned pid, unsigned long long used)
{
    /* Some releases filled larger entries than they announced: what is no pid is left out. */
    if (pid == 0 || pid > MAX_PLAUSIBLE_PID) {
        return;
    }
    if (s->proc_count >= LTN_GPU_PROCS) {
        s->procs_cut = true;
        return;
    }
    s->procs[s->proc_count++] = (struct ltn_gpu_proc){
        .pid = (pid_t)pid, .memory_used_bytes = used == ULLONG_MAX ? LTN_GPU_NA_U64 : used};
}

static void get_processes(const struct nvml *n, nvml_dev dev, struct ltn_gpu_sample *s)
{
    /* The library is told of fewer entries than there is room for (see PROCESS_ROOM). */
    struct nvml_process list[PROCESS_ROOM];
    struct nvml_process_v1 list_v1[PROCESS_ROOM];
    unsigned count = PROCESSES_OFFERED;
    memset(list, 0, sizeof(list));
    memset(list_v1, 0, sizeof(list_v1));
    nvml_ret r = n->processes == NULL ? NVML_FUNCTION_NOT_FOUND : n->processes(dev, &count, list);
    if (r == NVML_SUCCESS || r == NVML_INSUFFICIENT_SIZE) {
        s->procs_cut = r == NVML_INSUFFICIENT_SIZE;
        for (unsigned i = 0; i < count && i < PROCESSES_OFFERED; i++) {
            keep_process(s, list[i].pid, list[i].used_memory);
        }
        return;
    }
    count = PROCESSES_OFFERED;
    r = n->processes_v1 == NULL ? NVML_FUNCTION_NOT_FOUND : n->processes_v1(dev, &count, list_v1);
    if (r == NVML_SUCCESS || r == NVML_INSUFFICIENT_SIZE) {
        s->procs_cut = r == NVML_INSUFFICIENT_SIZE;
        for (unsigned i = 0; i < count && i < PROCESSES_OFFERED; i++) {
            keep_process(s, list_v1[i].pid, list_v1[i].used_memory);
        }
    }
}

static int nvml_sample(void *ctx, uint32_t index, struct ltn_gpu_sample *ret)
{
    struct nvml *n = ctx;
    nvml_dev dev;
    int rc = device_of(n, index, &dev);
    if (rc < 0) {
        return rc;
    }
    struct ltn_gpu_sample s = {0};
    uint64_t total;
    rc = get_memory(n, dev, &total, &s.memory_used_bytes);
    if (rc == -EIO) {
        n->device_known[index] = false; /* the handle may be dead with the device */
        s.lost = true;
    }
    if (rc < 0) {
        s.memory_used_bytes = LTN_GPU_NA_U64;
    }
    unsigned long long v = 0;
    struct nvml_utilization u = {0};
    bool has_u = n->utilization != NULL && n->utilization(dev, &u) == NVML_SUCCESS;
    s.util_gpu_pct = has_u ? u.gpu : LTN_GPU_NA_U32;
    s.util_memory_pct = has_u ? u.memory : LTN_GPU_NA_U32;
    s.sm_clock_mhz = get_u32_of(n->clock, dev, CLOCK_SM);
    bool has_v = n->reasons != NULL && n->reasons(dev, &v) == NVML_SUCCESS;
    s.clock_reasons = has_v ? v : LTN_GPU_NA_U64;
    s.power_mw = get_u32(n->power, dev);
    s.temperature_c = get_u32_of(n->temperature, dev, SENSOR_GPU);
    s.pcie_gen = get_u32(n->pcie_gen, dev);
    s.pcie_width = get_u32(n->pcie_width, dev);
    has_v = n->ecc != NULL && n->ecc(dev, ECC_UNCORRECTED, ECC_VOLATILE, &v) == NVML_SUCCESS;
    s.ecc_uncorrected_total = has_v ? v : LTN_GPU_NA_U64;
    get_processes(n, dev, &s);
    *ret = s;
    return 0;
}

static void nvml_free_ctx(void *ctx)
{
    struct nvml *n = ctx;
    free(n->path);
    free(n);
}

int ltn_gpu_nvml_provider(const char *path, struct ltn_gpu_provider *ret)
{
    struct nvml *n = calloc(1, sizeof(*n));
    if (n == NULL) {
        return -ENOMEM;
    }
    if (path != NULL) {
        n->path = strdup(path);
        if (n->path == NULL) {
            free(n);
            return -ENOMEM;
        }
    }
    *ret = (struct ltn_gpu_provider){.name = "nvml",
                                     .ctx = n,
                                     .open = nvml_open,
                                     .close = nvml_close,
                                     .driver_version = nvml_driver_version,
                                     .count = nvml_count,
                                     .info = nvml_info,
                                     .sample = nvml_sample,
                                     .free_ctx = nvml_free_ctx};
    return 0;
}
