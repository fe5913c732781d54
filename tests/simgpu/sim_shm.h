// SPDX-License-Identifier: Apache-2.0
// The area that every process of one simulated cluster shares: nodes, devices, ranks,
// communicators, faults. It is one file, state.shm, in $SIMGPU_DIR; only a common file system is
// needed, so it works across network namespaces.
#ifndef SIM_SHM_H
#define SIM_SHM_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_SHM_MAGIC   0x53494d47u
#define SIM_SHM_VERSION 1u

enum {
    SIM_MAX_NODES = 16,
    SIM_MAX_DEVICES = 16,
    SIM_MAX_PROCS = 32,
    SIM_MAX_COMMS = 512,
    SIM_MAX_COMM_RANKS = 64,
    SIM_COLL_RING = 64,
    SIM_MAX_RANKS = 256,
    SIM_MAX_BELLS = 256,
    SIM_MAX_CHANNELS = 2048,
    SIM_UID_BYTES = 128,
};

#define SIM_DEFAULT_MEM_BYTES (80ull << 30)
#define SIM_CONTEXT_BYTES     (412ull << 20)

struct sim_dev_proc {
    _Atomic int32_t pid;
    uint64_t start_ticks;
    _Atomic uint64_t used_bytes;
};

struct sim_dev {
    _Atomic uint32_t
        factor_permille; // kernel times are multiplied by this; the SM clock is divided by it
    _Atomic uint32_t copy_permille; // copy times are multiplied by this
    _Atomic uint64_t reasons;       // clock-event reason bits
    _Atomic uint32_t pcie_gen, pcie_width;
    _Atomic uint64_t ecc_corrected, ecc_uncorrected;
    _Atomic uint32_t remap_correctable, remap_uncorrectable, remap_pending, remap_failure;
    _Atomic uint32_t temperature_c, power_mw;
    _Atomic uint64_t mem_total_bytes;
    _Atomic uint64_t busy_ns;           // finished work
    _Atomic uint64_t inflight_since_ns; // start of the work that runs now, 0 when idle
    _Atomic uint64_t energy_base_ns;
    struct sim_dev_proc procs[SIM_MAX_PROCS];
};

struct sim_node {
    char name[32];
    uint32_t device_count;
    uint64_t uuid_seed;
    struct sim_dev dev[SIM_MAX_DEVICES];
};

struct sim_rank {
    _Atomic int32_t pid;
    int32_t node, device;
    // Faults, set by simctl or by the workload itself.
    _Atomic uint64_t loader_extra_ns;
    _Atomic uint32_t hang;
    _Atomic uint32_t gpu_permille;
    _Atomic int32_t hog_pid;
    _Atomic uint64_t steps;
    _Atomic uint64_t fault_since_unix_ns[4]; // by enum sim_fault_kind, 0 when off
    _Atomic uint32_t hog_core;
};

struct sim_bell {
    _Atomic int32_t pid;
    _Atomic uint32_t word; // futex
};

struct sim_coll_slot {
    uint64_t seq;
    uint32_t arrived;
    _Atomic uint32_t done;
    uint64_t last_ns;
    uint64_t bytes;
    uint64_t sum;
    uint64_t end_ns;
    uint32_t last_rank;
    uint32_t mismatch;
    uint64_t signature;
};

struct sim_comm_rank {
    int32_t pid;
    _Atomic int32_t bell; // -1 until the first operation
    _Atomic uint32_t registered;
    _Atomic uint32_t aborted;
    _Atomic uint32_t async_error;
    uint64_t next_seq;  // assigned by the owner when it enqueues
    uint32_t split_seq; // number of splits made by this rank
    int32_t split_color[2], split_key[2];
    uint32_t split_ordinal[2];
};

struct sim_comm {
    pthread_mutex_t lock; // robust, process-shared
    unsigned char id[SIM_UID_BYTES];
    _Atomic uint32_t used;
    uint32_t nranks;
    _Atomic uint32_t joined;    // futex: ranks that registered
    _Atomic uint32_t split_gen; // futex: bumped on every split arrival
    _Atomic uint32_t left;
    _Atomic uint32_t link_permille; // transfer times are multiplied by this
    struct sim_comm_rank ranks[SIM_MAX_COMM_RANKS];
    struct sim_coll_slot ring[SIM_COLL_RING];
};

// One direction between two ranks of one communicator.
struct sim_channel {
    uint32_t used;
    uint32_t comm, src, dst;
    uint64_t send_next, recv_next; // assigned at enqueue
    struct {
        uint64_t seq;
        uint32_t have;
        uint32_t done;
        uint64_t last_ns, bytes, end_ns, value;
    } ring[SIM_COLL_RING];
};

struct sim_shm {
    uint32_t magic, version;
    uint64_t size_bytes;
    pthread_mutex_t
        lock; // robust, process-shared: nodes, ranks, bells, channels, creation of communicators
    _Atomic uint64_t stop_step; // --seconds: the step after which the whole job stops, 0 = not yet
    struct sim_node nodes[SIM_MAX_NODES];
    struct sim_rank ranks[SIM_MAX_RANKS];
    struct sim_bell bells[SIM_MAX_BELLS];
    struct sim_comm comms[SIM_MAX_COMMS];
    struct sim_channel channels[SIM_MAX_CHANNELS];
};

// $SIMGPU_DIR or /dev/shm/simgpu-UID; created when missing. Returns 0 or -errno.
int sim_dir(char *ret_dir, size_t size);
// Maps (and on first use builds) the shared area. The pointer stays valid for the life of the
// process; NULL on failure.
struct sim_shm *sim_shm_get(void);
// As above for an explicit directory.
struct sim_shm *sim_shm_open(const char *dir);

// Locks a robust process-shared mutex; a dead owner's lock is recovered.
void sim_lock(pthread_mutex_t *lock);
void sim_unlock(pthread_mutex_t *lock);

// Index of the node named $SIMGPU_NODE (default: the host name), registered on first use; -1 when
// the table is full.
int sim_node_self(struct sim_shm *shm);
int sim_node_find(struct sim_shm *shm, const char *name);

uint64_t sim_now_ns(void);  // CLOCK_MONOTONIC
uint64_t sim_unix_ns(void); // CLOCK_REALTIME
uint64_t sim_env_u64(const char *name, uint64_t fallback);
uint64_t sim_start_ticks(int pid);                // field 22 of /proc/PID/stat, 0 when gone
bool sim_alive(int pid, uint64_t start_ticks);    // start_ticks 0 = do not compare
uint64_t sim_dev_used_bytes(struct sim_dev *dev); // sum over living processes
void sim_burn_ns(uint64_t ns);                    // spins on the CPU

void sim_futex_wake(_Atomic uint32_t *word, int count);
// Waits while *word == value, until the absolute CLOCK_MONOTONIC time (0 = for ever).
void sim_futex_wait(_Atomic uint32_t *word, uint32_t value, uint64_t until_ns);

// Sets a rank's GPU fault (1000 = none) on its device: kernel times, clock, reason bits.
void sim_gpu_fault(struct sim_shm *shm, int rank, uint32_t permille);

#endif
