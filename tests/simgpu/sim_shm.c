// SPDX-License-Identifier: Apache-2.0
#include "sim_shm.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

uint64_t sim_now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

uint64_t sim_unix_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

uint64_t sim_env_u64(const char *name, uint64_t fallback)
{
    const char *text = getenv(name);
    if (text == NULL || *text == '\0')
        return fallback;
    char *end = NULL;
    errno = 0;
    uint64_t value = strtoull(text, &end, 10);
    return errno != 0 || *end != '\0' ? fallback : value;
}

void sim_burn_ns(uint64_t ns)
{
    uint64_t end = sim_now_ns() + ns;
    while (sim_now_ns() < end) {
    }
}

uint64_t sim_start_ticks(int pid)
{
    char path[64], text[1024];
    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t n = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (n <= 0)
        return 0;
    text[n] = '\0';
    char *at = strrchr(text, ')');
    if (at == NULL || at[1] == '\0' || at[2] == 'Z' || at[2] == 'X')
        return 0;
    for (int field = 2; field < 22 && at != NULL; field++)
        at = strchr(at + 1, ' ');
    return at == NULL ? 0 : strtoull(at + 1, NULL, 10);
}

bool sim_alive(int pid, uint64_t start_ticks)
{
    if (pid <= 0)
        return false;
    uint64_t now = sim_start_ticks(pid);
    return now != 0 && (start_ticks == 0 || now == start_ticks);
}

void sim_futex_wake(_Atomic uint32_t *word, int count)
{
    syscall(SYS_futex, word, FUTEX_WAKE, count, NULL, NULL, 0);
}

void sim_futex_wait(_Atomic uint32_t *word, uint32_t value, uint64_t until_ns)
{
    struct timespec ts = {.tv_sec = (time_t)(until_ns / 1000000000ull),
                          .tv_nsec = (long)(until_ns % 1000000000ull)};
    syscall(SYS_futex, word, FUTEX_WAIT_BITSET, value, until_ns == 0 ? NULL : &ts, NULL,
            FUTEX_BITSET_MATCH_ANY);
}

void sim_lock(pthread_mutex_t *lock)
{
    if (pthread_mutex_lock(lock) == EOWNERDEAD)
        pthread_mutex_consistent(lock);
}

void sim_unlock(pthread_mutex_t *lock)
{
    pthread_mutex_unlock(lock);
}

int sim_dir(char *ret_dir, size_t size)
{
    const char *dir = getenv("SIMGPU_DIR");
    int n = dir != NULL && *dir != '\0'
                ? snprintf(ret_dir, size, "%s", dir)
                : snprintf(ret_dir, size, "/dev/shm/simgpu-%u", (unsigned)geteuid());
    if (n < 0 || (size_t)n >= size)
        return -ENAMETOOLONG;
    return mkdir(ret_dir, 0777) != 0 && errno != EEXIST ? -errno : 0;
}

static void mutex_shared_init(pthread_mutex_t *lock)
{
    pthread_mutexattr_t attr;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(lock, &attr);
    pthread_mutexattr_destroy(&attr);
}

static void shm_build(struct sim_shm *shm)
{
    mutex_shared_init(&shm->lock);
    for (size_t i = 0; i < SIM_MAX_COMMS; i++)
        mutex_shared_init(&shm->comms[i].lock);
    for (size_t i = 0; i < SIM_MAX_RANKS; i++)
        atomic_store(&shm->ranks[i].gpu_permille, 1000);
    shm->version = SIM_SHM_VERSION;
    shm->size_bytes = sizeof(*shm);
    atomic_thread_fence(memory_order_seq_cst);
    shm->magic = SIM_SHM_MAGIC;
}

struct sim_shm *sim_shm_open(const char *dir)
{
    char path[512];
    snprintf(path, sizeof(path), "%s/state.shm", dir);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0)
        return NULL;
    struct sim_shm *shm = NULL;
    struct stat st;
    while (flock(fd, LOCK_EX) != 0 && errno == EINTR) {
    }
    if (fstat(fd, &st) != 0 || (st.st_size != 0 && (size_t)st.st_size != sizeof(*shm)) ||
        (st.st_size == 0 && ftruncate(fd, sizeof(*shm)) != 0))
        goto out;
    shm = mmap(NULL, sizeof(*shm), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (shm == MAP_FAILED) {
        shm = NULL;
        goto out;
    }
    if (shm->magic == 0)
        shm_build(shm);
    if (shm->magic != SIM_SHM_MAGIC || shm->version != SIM_SHM_VERSION ||
        shm->size_bytes != sizeof(*shm)) {
        munmap(shm, sizeof(*shm));
        shm = NULL;
    }
out:
    flock(fd, LOCK_UN);
    close(fd);
    return shm;
}

static struct sim_shm *g_shm;
static pthread_once_t g_once = PTHREAD_ONCE_INIT;

static void shm_once(void)
{
    char dir[400];
    if (sim_dir(dir, sizeof(dir)) == 0)
        g_shm = sim_shm_open(dir);
    if (g_shm == NULL)
        fprintf(stderr,
                "simgpu: cannot map the shared state (SIMGPU_DIR): wrong version or no access\n");
}

struct sim_shm *sim_shm_get(void)
{
    pthread_once(&g_once, shm_once);
    return g_shm;
}

static void node_build(struct sim_node *node, const char *name)
{
    uint64_t seed = 1469598103934665603ull;
    for (const char *c = name; *c != '\0'; c++)
        seed = (seed ^ (unsigned char)*c) * 1099511628211ull;
    node->uuid_seed = seed;
    uint64_t count = sim_env_u64("SIMGPU_DEVICES", 8);
    node->device_count = (uint32_t)(count > SIM_MAX_DEVICES ? SIM_MAX_DEVICES : count);
    for (size_t i = 0; i < SIM_MAX_DEVICES; i++) {
        struct sim_dev *dev = &node->dev[i];
        atomic_store(&dev->factor_permille, 1000);
        atomic_store(&dev->copy_permille, 1000);
        atomic_store(&dev->pcie_gen, 5);
        atomic_store(&dev->pcie_width, 16);
        atomic_store(&dev->temperature_c, 41 + (uint32_t)i);
        atomic_store(&dev->power_mw, 0);
        atomic_store(&dev->energy_base_ns, sim_now_ns());
        atomic_store(&dev->mem_total_bytes, sim_env_u64("SIMGPU_MEM_BYTES", SIM_DEFAULT_MEM_BYTES));
    }
    snprintf(node->name, sizeof(node->name), "%.31s", name);
}

int sim_node_find(struct sim_shm *shm, const char *name)
{
    for (int i = 0; i < SIM_MAX_NODES; i++) {
        if (strncmp(shm->nodes[i].name, name, sizeof(shm->nodes[i].name) - 1) == 0 &&
            shm->nodes[i].name[0] != '\0')
            return i;
    }
    return -1;
}

int sim_node_self(struct sim_shm *shm)
{
    char host[64] = "node";
    const char *name = getenv("SIMGPU_NODE");
    if (name == NULL || *name == '\0') {
        gethostname(host, sizeof(host) - 1);
        name = host;
    }
    sim_lock(&shm->lock);
    int at = sim_node_find(shm, name);
    for (int i = 0; at < 0 && i < SIM_MAX_NODES; i++) {
        if (shm->nodes[i].name[0] == '\0') {
            node_build(&shm->nodes[i], name);
            at = i;
        }
    }
    sim_unlock(&shm->lock);
    return at;
}

uint64_t sim_dev_used_bytes(struct sim_dev *dev)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < SIM_MAX_PROCS; i++) {
        int pid = atomic_load(&dev->procs[i].pid);
        if (pid == 0)
            continue;
        if (pid == getpid() || sim_alive(pid, dev->procs[i].start_ticks))
            sum += atomic_load(&dev->procs[i].used_bytes);
    }
    return sum;
}

void sim_gpu_fault(struct sim_shm *shm, int rank, uint32_t permille)
{
    struct sim_rank *r = &shm->ranks[rank];
    atomic_store(&r->gpu_permille, permille);
    if (atomic_load(&r->pid) == 0)
        return; // applied when the rank makes its context
    struct sim_dev *dev = &shm->nodes[r->node].dev[r->device];
    atomic_store(&dev->factor_permille, permille);
    atomic_store(&dev->reasons, permille > 1000 ? 0x24 : 0);
    atomic_store(&dev->temperature_c, permille > 1000 ? 89 : 41 + (uint32_t)r->device);
}
