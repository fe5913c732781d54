// SPDX-License-Identifier: Apache-2.0
// NVML: what the devices of this node ($SIMGPU_NODE) look like, from the shared area.
#include "sim_launch.h"
#include "sim_shm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

typedef int nvmlReturn_t;
typedef struct sim_dev *nvmlDevice_t;

enum {
    NVML_OK = 0,
    NVML_UNINIT = 1,
    NVML_EINVAL = 2,
    NVML_NOTSUP = 3,
    NVML_NOTFOUND = 6,
    NVML_SIZE = 7,
    NVML_NODRIVER = 9,
    NVML_VERSION = 25,
};

#define SIM_MAX_SM_MHZ  1980u
#define SIM_MAX_MEM_MHZ 2619u

SIM_DEFINE_TALLY(simTallyNvml)

static struct sim_node *g_node;

// Every export counts itself and refuses to work before nvmlInit.
#define NVML_FN(name, params, body)                                                                \
    __attribute__((visibility("default"))) nvmlReturn_t name params                                \
    {                                                                                              \
        SIM_COUNT(name);                                                                           \
        if (g_node == NULL)                                                                        \
            return NVML_UNINIT;                                                                    \
        body;                                                                                      \
    }
#define NVML_DEV(name, params, body)                                                               \
    NVML_FN(name, params, {                                                                        \
        if (device_index(dev) < 0)                                                                 \
            return NVML_EINVAL;                                                                    \
        body;                                                                                      \
        return NVML_OK;                                                                            \
    })

static int device_index(const struct sim_dev *dev)
{
    return g_node == NULL || dev < g_node->dev || dev >= g_node->dev + g_node->device_count
               ? -1
               : (int)(dev - g_node->dev);
}

static nvmlReturn_t init(void)
{
    struct sim_shm *shm = sim_shm_get();
    int node = shm == NULL ? -1 : sim_node_self(shm);
    if (node < 0)
        return NVML_NODRIVER;
    g_node = &shm->nodes[node];
    return NVML_OK;
}

#define NVML_INIT(name, params)                                                                    \
    __attribute__((visibility("default"))) nvmlReturn_t name params                                \
    {                                                                                              \
        SIM_COUNT(name);                                                                           \
        return init();                                                                             \
    }
NVML_INIT(nvmlInit, (void))
NVML_INIT(nvmlInit_v2, (void))
NVML_INIT(nvmlInitWithFlags, (unsigned flags __attribute__((unused))))
NVML_FN(nvmlShutdown, (void), return NVML_OK)

__attribute__((visibility("default"))) const char *nvmlErrorString(nvmlReturn_t result)
{
    SIM_COUNT(nvmlErrorString);
    return result == NVML_OK       ? "Success"
           : result == NVML_UNINIT ? "Uninitialized"
                                   : "Unknown Error";
}

static nvmlReturn_t text_out(char *out, unsigned size, const char *text)
{
    if (out == NULL)
        return NVML_EINVAL;
    int n = snprintf(out, size, "%s", text);
    return n < 0 || (unsigned)n >= size ? NVML_SIZE : NVML_OK;
}

NVML_FN(nvmlSystemGetDriverVersion, (char *out, unsigned size),
        return text_out(out, size, "550.163.01"))
NVML_FN(nvmlSystemGetNVMLVersion, (char *out, unsigned size),
        return text_out(out, size, "12.550.163.01"))
NVML_FN(nvmlSystemGetCudaDriverVersion, (int *version), *version = 12040; return NVML_OK)
NVML_FN(nvmlSystemGetCudaDriverVersion_v2, (int *version), *version = 12040; return NVML_OK)
NVML_FN(nvmlDeviceGetCount, (unsigned *count), *count = g_node->device_count; return NVML_OK)
NVML_FN(nvmlDeviceGetCount_v2, (unsigned *count), *count = g_node->device_count; return NVML_OK)

static nvmlReturn_t by_index(unsigned index, nvmlDevice_t *dev)
{
    if (index >= g_node->device_count || dev == NULL)
        return NVML_EINVAL;
    *dev = &g_node->dev[index];
    return NVML_OK;
}
NVML_FN(nvmlDeviceGetHandleByIndex, (unsigned index, nvmlDevice_t *dev),
        return by_index(index, dev))
NVML_FN(nvmlDeviceGetHandleByIndex_v2, (unsigned index, nvmlDevice_t *dev),
        return by_index(index, dev))

static void uuid_text(const struct sim_dev *dev, char out[96])
{
    // The same bytes as cuDeviceGetUuid: eight of the node, then zeros, then the index.
    unsigned char seed[8];
    memcpy(seed, &g_node->uuid_seed, sizeof(seed));
    snprintf(out, 96, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-0000-0000000000%02x", seed[0],
             seed[1], seed[2], seed[3], seed[4], seed[5], seed[6], seed[7],
             (unsigned)device_index(dev));
}

static void bus_text(const struct sim_dev *dev, char *out, size_t size, bool wide)
{
    unsigned bus = (0x10u + (unsigned)device_index(dev)) & 0xff;
    snprintf(out, size, wide ? "00000000:%02X:00.0" : "0000:%02X:00.0", bus);
}

NVML_DEV(nvmlDeviceGetUUID, (nvmlDevice_t dev, char *out, unsigned size), {
    char text[96];
    uuid_text(dev, text);
    return text_out(out, size, text);
})
NVML_DEV(nvmlDeviceGetName, (nvmlDevice_t dev, char *out, unsigned size),
         return text_out(out, size, "Simulated GPU 80GB"))
NVML_DEV(nvmlDeviceGetIndex, (nvmlDevice_t dev, unsigned *index),
         *index = (unsigned)device_index(dev))
NVML_DEV(nvmlDeviceGetMinorNumber, (nvmlDevice_t dev, unsigned *minor),
         *minor = (unsigned)device_index(dev))
NVML_DEV(nvmlDeviceGetNumaNodeId, (nvmlDevice_t dev, unsigned *node), *node = 0)

NVML_FN(nvmlDeviceGetHandleByUUID, (const char *uuid, nvmlDevice_t *dev), {
    for (unsigned i = 0; i < g_node->device_count; i++) {
        char text[96];
        uuid_text(&g_node->dev[i], text);
        if (uuid != NULL && strcmp(uuid, text) == 0)
            return by_index(i, dev);
    }
    return NVML_NOTFOUND;
})

static nvmlReturn_t by_bus(const char *bus, nvmlDevice_t *dev)
{
    for (unsigned i = 0; bus != NULL && i < g_node->device_count; i++) {
        char wide[32], narrow[32];
        bus_text(&g_node->dev[i], wide, sizeof(wide), true);
        bus_text(&g_node->dev[i], narrow, sizeof(narrow), false);
        if (strcasecmp(bus, wide) == 0 || strcasecmp(bus, narrow) == 0)
            return by_index(i, dev);
    }
    return NVML_NOTFOUND;
}
NVML_FN(nvmlDeviceGetHandleByPciBusId, (const char *bus, nvmlDevice_t *dev),
        return by_bus(bus, dev))
NVML_FN(nvmlDeviceGetHandleByPciBusId_v2, (const char *bus, nvmlDevice_t *dev),
        return by_bus(bus, dev))

struct sim_pci {
    char legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
};
_Static_assert(sizeof(struct sim_pci) == 68, "nvmlPciInfo_t");

NVML_DEV(nvmlDeviceGetPciInfo_v3, (nvmlDevice_t dev, struct sim_pci *pci), {
    memset(pci, 0, sizeof(*pci));
    bus_text(dev, pci->legacy, sizeof(pci->legacy), false);
    bus_text(dev, pci->bus_id, sizeof(pci->bus_id), true);
    pci->bus = 0x10u + (unsigned)device_index(dev);
    pci->device_id = 0x233010de;
})

// Start of the work in flight, 0 when idle; a killed process leaves a stale value behind, which
// does not count.
static uint64_t inflight_since(struct sim_dev *dev)
{
    uint64_t since = atomic_load(&dev->inflight_since_ns);
    for (size_t i = 0; since != 0 && i < SIM_MAX_PROCS; i++) {
        int pid = atomic_load(&dev->procs[i].pid);
        if (pid != 0 && sim_alive(pid, dev->procs[i].start_ticks))
            return since;
    }
    return 0;
}

// Busy share since the previous call in this process.
static unsigned utilisation(struct sim_dev *dev)
{
    static struct {
        uint64_t at_ns, busy_ns;
        unsigned last;
    } prev[SIM_MAX_DEVICES];
    int i = device_index(dev);
    uint64_t now = sim_now_ns(), since = inflight_since(dev);
    uint64_t busy = atomic_load(&dev->busy_ns) + (since != 0 && now > since ? now - since : 0);
    if (prev[i].at_ns == 0) {
        prev[i].last = since != 0 ? 100 : 0;
    } else if (now - prev[i].at_ns < 50000000) {
        return prev[i].last;
    } else {
        uint64_t gain = busy > prev[i].busy_ns ? busy - prev[i].busy_ns : 0;
        uint64_t pct = gain * 100 / (now - prev[i].at_ns);
        prev[i].last = (unsigned)(pct > 100 ? 100 : pct);
    }
    prev[i].at_ns = now;
    prev[i].busy_ns = busy;
    return prev[i].last;
}

struct sim_utilisation {
    unsigned gpu, memory;
};
NVML_DEV(nvmlDeviceGetUtilizationRates, (nvmlDevice_t dev, struct sim_utilisation *u), {
    u->gpu = utilisation(dev);
    u->memory = u->gpu * 6 / 10;
})

struct sim_memory {
    unsigned long long total, free, used;
};
NVML_DEV(nvmlDeviceGetMemoryInfo, (nvmlDevice_t dev, struct sim_memory *m), {
    m->total = atomic_load(&dev->mem_total_bytes);
    m->used = sim_dev_used_bytes(dev);
    m->free = m->total > m->used ? m->total - m->used : 0;
})

struct sim_memory2 {
    unsigned version, pad;
    unsigned long long total, reserved, free, used;
};
_Static_assert(sizeof(struct sim_memory2) == 40, "nvmlMemory_v2_t");
NVML_DEV(nvmlDeviceGetMemoryInfo_v2, (nvmlDevice_t dev, struct sim_memory2 *m), {
    if (m->version != 0x02000028)
        return NVML_VERSION;
    m->total = atomic_load(&dev->mem_total_bytes);
    m->used = sim_dev_used_bytes(dev);
    m->reserved = 0;
    m->free = m->total > m->used ? m->total - m->used : 0;
})

static unsigned sm_clock(struct sim_dev *dev)
{
    uint32_t factor = atomic_load(&dev->factor_permille);
    return factor == 0 ? SIM_MAX_SM_MHZ : SIM_MAX_SM_MHZ * 1000 / factor;
}

static nvmlReturn_t clock_out(struct sim_dev *dev, int type, unsigned *mhz, int max)
{
    if (type < 0 || type > 3 || mhz == NULL)
        return NVML_EINVAL;
    *mhz = type == 2 ? SIM_MAX_MEM_MHZ : max ? SIM_MAX_SM_MHZ : sm_clock(dev);
    return NVML_OK;
}
NVML_DEV(nvmlDeviceGetClockInfo, (nvmlDevice_t dev, int type, unsigned *mhz),
         return clock_out(dev, type, mhz, 0))
NVML_DEV(nvmlDeviceGetMaxClockInfo, (nvmlDevice_t dev, int type, unsigned *mhz),
         return clock_out(dev, type, mhz, 1))

static unsigned power_mw(struct sim_dev *dev)
{
    uint32_t fixed = atomic_load(&dev->power_mw);
    return fixed != 0 ? fixed : 90000 + (inflight_since(dev) != 0 ? 420000u : 0u);
}
NVML_DEV(nvmlDeviceGetPowerUsage, (nvmlDevice_t dev, unsigned *mw), *mw = power_mw(dev))
NVML_DEV(nvmlDeviceGetEnforcedPowerLimit, (nvmlDevice_t dev, unsigned *mw), *mw = 700000)
NVML_DEV(nvmlDeviceGetPowerManagementLimit, (nvmlDevice_t dev, unsigned *mw), *mw = 700000)
NVML_DEV(nvmlDeviceGetTotalEnergyConsumption, (nvmlDevice_t dev, unsigned long long *mj), {
    uint64_t idle_ns = sim_now_ns() - atomic_load(&dev->energy_base_ns);
    *mj = idle_ns / 1000000 * 90 / 1 + atomic_load(&dev->busy_ns) / 1000000 * 420;
})
NVML_DEV(nvmlDeviceGetTemperature, (nvmlDevice_t dev, int sensor, unsigned *c), {
    if (sensor != 0)
        return NVML_EINVAL;
    *c = atomic_load(&dev->temperature_c);
})
NVML_DEV(nvmlDeviceGetPerformanceState, (nvmlDevice_t dev, int *state), *state = 0)

static unsigned long long reasons(struct sim_dev *dev)
{
    unsigned long long bits = atomic_load(&dev->reasons);
    return bits != 0 || inflight_since(dev) != 0 ? bits : 1; // 1 = idle
}
NVML_DEV(nvmlDeviceGetCurrentClocksEventReasons, (nvmlDevice_t dev, unsigned long long *bits),
         *bits = reasons(dev))
NVML_DEV(nvmlDeviceGetCurrentClocksThrottleReasons, (nvmlDevice_t dev, unsigned long long *bits),
         *bits = reasons(dev))

NVML_DEV(nvmlDeviceGetCurrPcieLinkGeneration, (nvmlDevice_t dev, unsigned *v),
         *v = atomic_load(&dev->pcie_gen))
NVML_DEV(nvmlDeviceGetCurrPcieLinkWidth, (nvmlDevice_t dev, unsigned *v),
         *v = atomic_load(&dev->pcie_width))
NVML_DEV(nvmlDeviceGetMaxPcieLinkGeneration, (nvmlDevice_t dev, unsigned *v), *v = 5)
NVML_DEV(nvmlDeviceGetMaxPcieLinkWidth, (nvmlDevice_t dev, unsigned *v), *v = 16)
NVML_DEV(nvmlDeviceGetPcieReplayCounter, (nvmlDevice_t dev, unsigned *v), *v = 0)
NVML_DEV(nvmlDeviceGetPcieThroughput, (nvmlDevice_t dev, int counter, unsigned *kbps), {
    if (counter < 0 || counter > 1)
        return NVML_EINVAL;
    *kbps = inflight_since(dev) != 0 ? 1500000 : 0;
})
NVML_DEV(nvmlDeviceGetTotalEccErrors,
         (nvmlDevice_t dev, int type, int counter, unsigned long long *n), {
             if (type < 0 || type > 1 || counter < 0 || counter > 1)
                 return NVML_EINVAL;
             *n = type == 0 ? atomic_load(&dev->ecc_corrected) : atomic_load(&dev->ecc_uncorrected);
         })
NVML_DEV(nvmlDeviceGetEccMode, (nvmlDevice_t dev, int *now, int *pending), {
    *now = 1;
    *pending = 1;
})
NVML_DEV(nvmlDeviceGetRemappedRows,
         (nvmlDevice_t dev, unsigned *corr, unsigned *uncorr, unsigned *pending, unsigned *failure),
         {
             *corr = atomic_load(&dev->remap_correctable);
             *uncorr = atomic_load(&dev->remap_uncorrectable);
             *pending = atomic_load(&dev->remap_pending);
             *failure = atomic_load(&dev->remap_failure);
         })
NVML_DEV(nvmlDeviceGetNvLinkState, (nvmlDevice_t dev, unsigned link, int *active), {
    if (link >= 18)
        return NVML_EINVAL;
    *active = 1;
})
NVML_DEV(nvmlDeviceGetNvLinkErrorCounter,
         (nvmlDevice_t dev, unsigned link, int counter, unsigned long long *n), {
             if (link >= 18 || counter < 0)
                 return NVML_EINVAL;
             *n = 0;
         })
NVML_DEV(nvmlDeviceGetMigMode, (nvmlDevice_t dev, unsigned *now, unsigned *pending), {
    *now = 0;
    *pending = 0;
})

struct sim_field {
    unsigned id, scope;
    long long timestamp, latency;
    int type;
    nvmlReturn_t rc;
    unsigned long long value;
};
_Static_assert(sizeof(struct sim_field) == 40, "nvmlFieldValue_t");

static void field_fill(struct sim_dev *dev, struct sim_field *f)
{
    f->timestamp = (long long)(sim_unix_ns() / 1000);
    f->latency = 0;
    f->type = 1;
    f->rc = NVML_OK;
    f->value = 0;
    switch (f->id) {
    case 82: // memory temperature
        f->value = atomic_load(&dev->temperature_c) + 8;
        break;
    case 142:
        f->value = atomic_load(&dev->remap_correctable);
        break;
    case 143:
        f->value = atomic_load(&dev->remap_uncorrectable);
        break;
    case 144:
        f->value = atomic_load(&dev->remap_pending);
        break;
    case 145:
        f->value = atomic_load(&dev->remap_failure);
        break;
    case 185:
    case 186:
        f->value = power_mw(dev);
        break;
    default:
        f->rc = NVML_NOTSUP;
    }
}
NVML_DEV(nvmlDeviceGetFieldValues, (nvmlDevice_t dev, int n, struct sim_field *fields), {
    for (int i = 0; i < n; i++)
        field_fill(dev, &fields[i]);
})

struct sim_process {
    unsigned pid, pad;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
};
_Static_assert(sizeof(struct sim_process) == 24, "nvmlProcessInfo_t");

static nvmlReturn_t processes(struct sim_dev *dev, unsigned *count, struct sim_process *out)
{
    unsigned have = 0, room = count == NULL ? 0 : *count;
    if (count == NULL)
        return NVML_EINVAL;
    for (size_t i = 0; i < SIM_MAX_PROCS; i++) {
        int pid = atomic_load(&dev->procs[i].pid);
        if (pid == 0 || !sim_alive(pid, dev->procs[i].start_ticks))
            continue;
        if (have < room && out != NULL)
            out[have] = (struct sim_process){
                (unsigned)pid, 0, atomic_load(&dev->procs[i].used_bytes), 0xffffffffu, 0xffffffffu};
        have++;
    }
    *count = have;
    return have > room ? NVML_SIZE : NVML_OK;
}
NVML_DEV(nvmlDeviceGetComputeRunningProcesses_v3,
         (nvmlDevice_t dev, unsigned *count, struct sim_process *out),
         return processes(dev, count, out))
NVML_DEV(nvmlDeviceGetMPSComputeRunningProcesses_v3, (nvmlDevice_t dev, unsigned *count, void *out),
         {
             (void)out;
             *count = 0;
         })
