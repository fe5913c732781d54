// SPDX-License-Identifier: Apache-2.0
// Settings, devices and their GPU threads.
#include "engine.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

struct sim_settings sim_set;
struct sim_device sim_devices[SIM_MAX_DEVICES];

static pthread_mutex_t g_lock = PTHREAD_MUTEX_INITIALIZER;
static struct sim_shm *g_shm;
static int g_node = -1;

static void settings_read(void)
{
    const char *wait = getenv("SIMGPU_WAIT");
    sim_set.launch_ns = sim_env_u64("SIMGPU_LAUNCH_NS", 2500);
    sim_set.default_kernel_ns = sim_env_u64("SIMGPU_KERNEL_NS", 10000);
    sim_set.copy_bytes_per_us = sim_env_u64("SIMGPU_COPY_BYTES_PER_US", 25000); // 25 GB/s
    sim_set.coll_latency_ns = sim_env_u64("SIMGPU_COLL_LATENCY_NS", 20000);
    sim_set.coll_bytes_per_us = sim_env_u64("SIMGPU_COLL_BYTES_PER_US", 40000); // 40 GB/s
    sim_set.coll_timeout_ns = sim_env_u64("SIMGPU_COLL_TIMEOUT_S", 0) * 1000000000ull;
    sim_set.noise_ppm = sim_env_u64("SIMGPU_NOISE_PPM", 10000);
    sim_set.seed = sim_env_u64("SIMGPU_SEED", 1);
    sim_set.ctx_ms = sim_env_u64("SIMGPU_CTX_MS", 60);
    sim_set.copy_max = sim_env_u64("SIMGPU_COPY_MAX", 65536);
    sim_set.gpu_cpu =
        getenv("SIMGPU_GPU_CPU") != NULL ? (int64_t)sim_env_u64("SIMGPU_GPU_CPU", 0) : -1;
    sim_set.wait = wait == NULL                 ? 0
                   : strcmp(wait, "spin") == 0  ? 1
                   : strcmp(wait, "block") == 0 ? 2
                                                : 0;
    sim_set.rank = getenv("RANK") != NULL ? (int)sim_env_u64("RANK", 0) : -1;
    if (sim_set.rank >= SIM_MAX_RANKS)
        sim_set.rank = -1;
    if (sim_set.copy_bytes_per_us == 0)
        sim_set.copy_bytes_per_us = 1;
    if (sim_set.coll_bytes_per_us == 0)
        sim_set.coll_bytes_per_us = 1;
}

int sim_engine_init(void)
{
    if (__atomic_load_n(&g_node, __ATOMIC_ACQUIRE) >= 0)
        return 0;
    pthread_mutex_lock(&g_lock);
    if (g_node < 0) {
        settings_read();
        g_shm = sim_shm_get();
        int node = g_shm == NULL ? -1 : sim_node_self(g_shm);
        __atomic_store_n(&g_node, node, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&g_lock);
    return g_node >= 0 ? 0 : 999;
}

int sim_device_count(void)
{
    return sim_engine_init() != 0 ? 0 : (int)g_shm->nodes[g_node].device_count;
}

// Takes a bell and a process slot in the shared area; slots of dead processes are taken over.
static int shared_slots(struct sim_device *dev)
{
    int pid = getpid();
    int rc = -1;
    sim_lock(&g_shm->lock);
    dev->bell_index = -1;
    for (int i = 0; i < SIM_MAX_BELLS && dev->bell_index < 0; i++) {
        int owner = atomic_load(&g_shm->bells[i].pid);
        if (owner == 0 || (owner != pid && !sim_alive(owner, 0))) {
            atomic_store(&g_shm->bells[i].pid, pid);
            dev->bell_index = i;
            dev->bell = &g_shm->bells[i];
        }
    }
    for (size_t i = 0; i < SIM_MAX_PROCS && dev->proc == NULL; i++) {
        struct sim_dev_proc *proc = &dev->shared->procs[i];
        int owner = atomic_load(&proc->pid);
        if (owner == 0 || !sim_alive(owner, proc->start_ticks)) {
            atomic_store(&proc->used_bytes, SIM_CONTEXT_BYTES);
            proc->start_ticks = sim_start_ticks(pid);
            atomic_store(&proc->pid, pid);
            dev->proc = proc;
        }
    }
    if (dev->bell_index >= 0 && dev->proc != NULL)
        rc = 0;
    if (sim_set.rank >= 0 && rc == 0) {
        struct sim_rank *rank = &g_shm->ranks[sim_set.rank];
        rank->node = g_node;
        rank->device = dev->ordinal;
        atomic_store(&rank->pid, pid);
    }
    sim_unlock(&g_shm->lock);
    if (sim_set.rank >= 0 && rc == 0 &&
        atomic_load(&g_shm->ranks[sim_set.rank].gpu_permille) != 1000)
        sim_gpu_fault(g_shm, sim_set.rank, atomic_load(&g_shm->ranks[sim_set.rank].gpu_permille));
    return rc;
}

static int thread_start(struct sim_device *dev)
{
    pthread_attr_t attr;
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    if (sim_set.gpu_cpu >= 0 && sim_set.gpu_cpu < CPU_SETSIZE) {
        CPU_SET((size_t)sim_set.gpu_cpu, &cpus);
    } else {
        for (size_t i = 0; i < CPU_SETSIZE; i++)
            CPU_SET(i, &cpus);
    }
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    int rc = pthread_create(&dev->thread, &attr, sim_gpu_thread, dev);
    pthread_attr_destroy(&attr);
    if (rc != 0)
        return rc;
    pthread_setaffinity_np(dev->thread, sizeof(cpus), &cpus);
    struct sched_param param = {.sched_priority = 10};
    pthread_setschedparam(dev->thread, SCHED_FIFO,
                          &param); // without the right to it the thread stays normal
    return 0;
}

static int device_init(struct sim_device *dev, int ordinal)
{
    pthread_condattr_t attr;
    dev->ordinal = ordinal;
    dev->shared = &g_shm->nodes[g_node].dev[ordinal];
    if (shared_slots(dev) != 0)
        return 999;
    pthread_mutex_init(&dev->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&dev->done, &attr);
    pthread_condattr_destroy(&attr);
    atomic_store(&dev->wake_ns, SIM_NEVER);
    dev->noise_state = (sim_set.seed * 0x9e3779b97f4a7c15ull) ^
                       ((uint64_t)(sim_set.rank + 2) << 32) ^ (uint64_t)(ordinal + 1);
    struct timespec nap = {.tv_sec = (time_t)(sim_set.ctx_ms / 1000),
                           .tv_nsec = (long)(sim_set.ctx_ms % 1000) * 1000000};
    nanosleep(&nap, NULL);
    sim_burn_ns(sim_set.ctx_ms * 100000); // a tenth of it is computing
    dev->null_stream = sim_stream_new(dev, 0);
    if (dev->null_stream == NULL || thread_start(dev) != 0)
        return 999;
    dev->null_stream->legacy = 1;
    return 0;
}

struct sim_device *sim_device_ready(int ordinal)
{
    if (ordinal < 0 || ordinal >= sim_device_count())
        return NULL;
    struct sim_device *dev = &sim_devices[ordinal];
    if (__atomic_load_n(&dev->inited, __ATOMIC_ACQUIRE) == 1)
        return dev;
    pthread_mutex_lock(&g_lock);
    if (dev->inited == 0)
        __atomic_store_n(&dev->inited, device_init(dev, ordinal) == 0 ? 1 : 2, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&g_lock);
    return dev->inited == 1 ? dev : NULL;
}

// Leaves the shared area tidy when the process ends by itself; a killed process is recognised as
// dead by the others.
__attribute__((destructor)) static void engine_done(void)
{
    if (g_node < 0)
        return;
    for (size_t i = 0; i < SIM_MAX_DEVICES; i++) {
        struct sim_device *dev = &sim_devices[i];
        if (dev->inited != 1 || atomic_load(&dev->proc->pid) != getpid())
            continue;
        atomic_store(&dev->proc->used_bytes, 0);
        atomic_store(&dev->proc->pid, 0);
        atomic_store(&dev->shared->inflight_since_ns, 0);
    }
}
