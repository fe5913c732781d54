/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The GPUs of this node and what they are doing, sampled by one thread of its own: a driver that
 * hangs stalls that thread and nothing else. Where the numbers come from is a provider (NVML, or a
 * mock in tests). All functions here but the provider's may be called from any thread.
 */
#ifndef LTN_GPU_GPU_H
#define LTN_GPU_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/attr.h"

#define LTN_GPU_MAX        32 /* devices looked at */
#define LTN_GPU_PROCS      64 /* compute processes kept per device */
#define LTN_GPU_UUID_BYTES 96
#define LTN_GPU_NAME_BYTES 96
#define LTN_GPU_BUS_BYTES  32

/* Values a device or driver does not offer. */
#define LTN_GPU_NA_U32 UINT32_MAX
#define LTN_GPU_NA_U64 UINT64_MAX

/* What does not change. Texts are cleaned. */
struct ltn_gpu_info {
    uint32_t index; /* NVML's order, which is not CUDA's */
    int32_t minor;  /* N of /dev/nvidiaN; -1 = not known */
    char uuid[LTN_GPU_UUID_BYTES];
    char name[LTN_GPU_NAME_BYTES];
    char bus_id[LTN_GPU_BUS_BYTES]; /* "00000000:3B:00.0", upper case */
    uint64_t memory_total_bytes;
    uint32_t sm_clock_max_mhz;
    uint32_t pcie_gen_max;
    uint32_t pcie_width_max;
};

/* Why the clock is what it is (bits of clock_reasons). */
#define LTN_CLOCK_IDLE           0x001u
#define LTN_CLOCK_APP_SETTING    0x002u
#define LTN_CLOCK_SW_POWER_CAP   0x004u
#define LTN_CLOCK_HW_SLOWDOWN    0x008u
#define LTN_CLOCK_SYNC_BOOST     0x010u
#define LTN_CLOCK_SW_THERMAL     0x020u
#define LTN_CLOCK_HW_THERMAL     0x040u
#define LTN_CLOCK_HW_POWER_BRAKE 0x080u
#define LTN_CLOCK_DISPLAY        0x100u
/* A sign of broken or overheated hardware; a reason for lower speed. */
#define LTN_CLOCK_ALARMING (LTN_CLOCK_HW_SLOWDOWN | LTN_CLOCK_HW_THERMAL | LTN_CLOCK_HW_POWER_BRAKE)
#define LTN_CLOCK_SLOWING  (LTN_CLOCK_ALARMING | LTN_CLOCK_SW_POWER_CAP | LTN_CLOCK_SW_THERMAL)

/* Name of one bit ("hw_thermal_slowdown"), NULL for unknown ones; static storage. */
const char *ltn_clock_reason_name(uint64_t bit);

/* All names of a set, comma-separated, "none" when empty; unknown bits are left out. */
void ltn_clock_reasons_text(uint64_t reasons, char *out, size_t size);

struct ltn_gpu_proc {
    pid_t pid;                  /* as the driver numbers it: the host's pid namespace */
    uint64_t memory_used_bytes; /* LTN_GPU_NA_U64 = not known */
};

struct ltn_gpu_sample {
    uint32_t sm_clock_mhz;
    uint64_t clock_reasons; /* LTN_GPU_NA_U64 = not known */
    uint32_t util_gpu_pct;
    uint32_t util_memory_pct;
    uint64_t memory_used_bytes;
    uint32_t power_mw;
    uint32_t temperature_c;
    uint32_t pcie_gen;
    uint32_t pcie_width;
    uint64_t ecc_uncorrected_total; /* since the driver was loaded */
    bool lost;                      /* the driver says the device fell off or needs a reset */
    size_t proc_count;
    bool procs_cut; /* more processes than LTN_GPU_PROCS */
    struct ltn_gpu_proc procs[LTN_GPU_PROCS];
};

/*
 * Source of the numbers; called by the sampler thread only. Functions return 0, -errno or
 * LTN_ERR_*. A device index is 0..count-1. open may be called again after close.
 */
struct ltn_gpu_provider {
    const char *name;
    void *ctx;
    int (*open)(void *ctx); /* LTN_ERR_NOT_FOUND: no library; LTN_ERR_UNAVAILABLE: no driver */
    void (*close)(void *ctx);
    int (*driver_version)(void *ctx, char *out, size_t size);
    int (*count)(void *ctx, uint32_t *ret);
    int (*info)(void *ctx, uint32_t index, struct ltn_gpu_info *ret);
    int (*sample)(void *ctx, uint32_t index, struct ltn_gpu_sample *ret);
    void (*free_ctx)(void *ctx); /* may be NULL */
};

enum ltn_gpu_state {
    LTN_GPU_STARTING,   /* no answer yet */
    LTN_GPU_READY,      /* devices known */
    LTN_GPU_NO_LIBRARY, /* no NVML on this node */
    LTN_GPU_NO_DRIVER,  /* NVML there, driver not loaded or of another version */
    LTN_GPU_FAILED,     /* other failure, tried again every 30 s like the two above */
};

/* One device in a view. */
struct ltn_gpu_device {
    struct ltn_gpu_info info;
    struct ltn_gpu_sample sample; /* the last good one */
    bool has_sample;
    int last_error;          /* of the last try: 0, -errno, LTN_ERR_* */
    uint64_t sample_mono_ns; /* when the last good sample was finished */
    uint64_t age_ns;         /* at the time of the view */
};

/* Copy of everything the sampler knows. Large (some 50 KB): keep it off small stacks. */
struct ltn_gpu_view {
    enum ltn_gpu_state state;
    int error;              /* why not ready */
    bool stalled;           /* a call has been in the driver for longer than the time box */
    uint64_t in_call_ns;    /* how long the present call lasts; 0 = none */
    uint64_t samples_total; /* rounds finished */
    uint64_t errors_total;
    uint64_t stalls_total;
    uint32_t devices_left_out; /* above LTN_GPU_MAX */
    char driver_version[32];
    uint32_t device_count;
    struct ltn_gpu_device devices[LTN_GPU_MAX];
};

struct ltn_gpu;

/* Starts the sampler thread. provider is copied (its ctx is owned from now on, also on failure).
 * interval_ms between rounds (at least 10); a call longer than box_ms counts as stalled. NULL when
 * memory or threads are out. */
struct ltn_gpu *ltn_gpu_new(const struct ltn_gpu_provider *provider, unsigned interval_ms,
                            unsigned box_ms) ltn_must_check;

/* Stops the thread and waits for it, at most for box_ms: a thread stuck in the driver is left
 * behind with its memory (returns false then). NULL is ignored (true). */
bool ltn_gpu_free(struct ltn_gpu *g);

/* Copies the present picture; never waits for the driver. */
void ltn_gpu_view(struct ltn_gpu *g, struct ltn_gpu_view *ret);

/* Waits until samples_total is at least rounds or the state is final, at most timeout_ms. True when
 * reached. For `check` and tests. */
bool ltn_gpu_wait(struct ltn_gpu *g, uint64_t rounds, unsigned timeout_ms);

/* Devices the process computes on, by the last samples: bit i = devices[i] of the view. */
uint32_t ltn_gpu_devices_of(const struct ltn_gpu_view *view, pid_t pid);

/* "starting", "ready", "no library", "no driver", "failed"; static storage. */
const char *ltn_gpu_state_name(enum ltn_gpu_state state);

/* Provider on NVML, loaded with dlopen (path, or NULL for libnvidia-ml.so.1 by the usual search);
 * nothing of NVIDIA is linked. 0 or -ENOMEM; a missing library shows only in open. */
int ltn_gpu_nvml_provider(const char *path, struct ltn_gpu_provider *ret) ltn_must_check;

#endif /* LTN_GPU_GPU_H */
