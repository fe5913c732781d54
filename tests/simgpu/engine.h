// SPDX-License-Identifier: Apache-2.0
// The simulated silicon inside libcuda.so.1: devices, streams, queues, device memory, collectives.
// Everything here is hidden; only the cu* exports (and a few sim* ones) leave the library.
#ifndef SIM_ENGINE_H
#define SIM_ENGINE_H

#include "sim_shm.h"
#include "sim_launch.h"

#define SIM_QUEUE_DEPTH 1024u
#define SIM_MAX_STREAMS 256u
#define SIM_NEVER       UINT64_MAX

enum sim_entry_type {
    SIM_E_KERNEL,
    SIM_E_COPY,
    SIM_E_SET,
    SIM_E_FREE,
    SIM_E_EVENT,
    // The types from here on need the GPU thread or something outside the stream.
    SIM_E_DEP,
    SIM_E_HOST,
    SIM_E_COLL,
};

struct sim_stream;

struct sim_event {
    struct sim_stream *stream;
    uint64_t seq;    // position in the stream of the last record
    uint64_t rec_id; // which record is the last one
    uint64_t done_ns;
    uint32_t flags;
    uint32_t live;
    struct sim_graph *capture; // the last record went into this graph
};

typedef void (*sim_host_fn)(void *);
typedef void (*sim_callback_fn)(void *, int, void *);

struct sim_entry {
    enum sim_entry_type type;
    uint32_t started;
    uint64_t enq_ns, dur_ns, start_ns, end_ns;
    union {
        struct {
            void *dst;
            const void *src;
            void *staging; // freed when done
            size_t bytes;  // really moved
        } copy;
        struct {
            void *dst;
            size_t bytes;
            int value;
        } set;
        void *ptr; // SIM_E_FREE
        struct {
            struct sim_event *event;
            uint64_t rec_id;
        } event;
        struct {
            struct sim_stream *stream;
            uint64_t seq;
        } dep;
        struct {
            sim_host_fn fn;
            sim_callback_fn callback;
            void *arg;
            void *stream_handle;
        } host;
        struct {
            struct sim_coll_op *ops; // owned by the entry
            uint32_t n;
        } coll;
    } u;
};

struct sim_graph {
    struct sim_entry *nodes;
    uint32_t n, cap;
    uint32_t kernels, copies; // as recorded: the executable form has runs of kernels as one
};

struct sim_device;

struct sim_stream {
    struct sim_device *dev;
    uint32_t live, flags;
    uint32_t legacy;
    uint32_t capture_mode;
    struct sim_graph *capture;
    struct sim_entry *ring; // SIM_QUEUE_DEPTH
    uint64_t submitted;     // entries ever pushed
    _Atomic uint64_t completed;
    uint64_t prev_end_ns;
    uint64_t wait_seq; // smallest position that a blocked waiter wants
};

struct sim_device {
    int ordinal;
    uint32_t inited;
    uint32_t sched_flags; // CUctx_flags: 0 auto, 1 spin, 2 yield, 4 blocking
    struct sim_dev *shared;
    struct sim_dev_proc *proc;
    struct sim_bell *bell;
    int bell_index;
    pthread_mutex_t lock;
    pthread_cond_t done;
    pthread_t thread;
    _Atomic uint64_t wake_ns; // when the GPU thread will look again
    struct sim_stream streams[SIM_MAX_STREAMS];
    struct sim_stream *null_stream;
    uint64_t noise_state;
    uint64_t busy_until_ns;
    int sticky_error;
    // device memory
    char *arena;
    uint64_t arena_bytes;
    struct sim_block *blocks;
    uint32_t block_count, block_cap;
};

struct sim_settings {
    uint64_t launch_ns; // CPU that an enqueue costs
    uint64_t default_kernel_ns;
    uint64_t copy_bytes_per_us;
    uint64_t coll_latency_ns;
    uint64_t coll_bytes_per_us;
    uint64_t coll_timeout_ns; // 0 = none
    uint64_t noise_ppm;
    uint64_t seed;
    uint64_t ctx_ms;
    uint64_t copy_max; // bytes of a copy that are really moved
    int64_t gpu_cpu;   // -1 = any
    int wait;          // 0 by flags, 1 spin, 2 block
    int rank;          // $RANK, -1 when unset
};

extern struct sim_settings sim_set;
extern struct sim_device sim_devices[SIM_MAX_DEVICES];

// settings.c / device.c
int sim_engine_init(void); // 0 or a CUresult; safe to call often
int sim_device_count(void);
struct sim_device *sim_device_ready(
    int ordinal); // creates the context on first use; NULL when there is no such device

// queue.c. All take and release the device's lock themselves unless the name ends in _locked.
struct sim_stream *sim_stream_new(struct sim_device *dev, uint32_t flags);
void sim_stream_free(struct sim_stream *stream);
int sim_push(struct sim_stream *stream, struct sim_entry *entry,
             uint64_t *ret_seq); // 0 or a CUresult
int sim_stream_wait(struct sim_stream *stream, uint64_t seq, bool force_block);
int sim_stream_sync(struct sim_stream *stream, bool force_block);
int sim_device_sync(struct sim_device *dev);
bool sim_stream_reached(struct sim_stream *stream, uint64_t seq);
uint64_t sim_advance_locked(struct sim_device *dev, bool gpu_thread); // returns when to look again
void *sim_gpu_thread(void *arg);
void sim_kick(struct sim_device *dev);
int sim_event_record(struct sim_event *event, struct sim_stream *stream);
int sim_event_wait(struct sim_stream *stream, struct sim_event *event);
void sim_capture_end(struct sim_stream *stream); // of this stream and those that joined it
void sim_entry_release(struct sim_entry *entry);

// mem.c
int sim_mem_alloc(struct sim_device *dev, size_t bytes, uint64_t *ret_ptr); // CUresult
int sim_mem_free(struct sim_device *dev, uint64_t ptr);
struct sim_device *sim_mem_device(uint64_t ptr); // owner of a device address or NULL
bool sim_mem_valid(uint64_t ptr, size_t bytes);
int sim_host_alloc(size_t bytes, void **ret_ptr);
int sim_host_free(void *ptr);

// coll_shm.c: called with the device's lock held.
void sim_coll_assign(struct sim_coll_op *ops, uint32_t n); // at enqueue: sequence numbers
void sim_coll_arrive(struct sim_device *dev, struct sim_coll_op *ops, uint32_t n, uint64_t at_ns);
// 0 when not all have come; otherwise the time when the operation ends.
uint64_t sim_coll_end(struct sim_coll_op *ops, uint32_t n, uint64_t arrived_ns);
void sim_coll_effects(struct sim_coll_op *ops, uint32_t n);

#endif
