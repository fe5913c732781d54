/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the node knows about one window of time (10 s by default): per process the calls, the
 * communicators and, where the process is a rank of a synchronous job, its step and self time.
 * Plain data, made by the aggregate thread, immutable after that, handed on by pointer (capture ->
 * record -> push). All pointers lead into the window's own arena.
 */
#ifndef LTN_CAPTURE_WINDOW_H
#define LTN_CAPTURE_WINDOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "bpf/event.h"
#include "capture/host_window.h"

/* Parts of self time. on CPU + run queue + each reason of being blocked + waiting for the own
 * device = self time. */
enum ltn_split {
    LTN_SPLIT_ON_CPU = 0,
    LTN_SPLIT_RUN_QUEUE,
    LTN_SPLIT_DEVICE, /* blocking calls with no collective outstanding */
    LTN_SPLIT_FUTEX,
    LTN_SPLIT_READ,
    LTN_SPLIT_WRITE,
    LTN_SPLIT_POLL,
    LTN_SPLIT_SLEEP,
    LTN_SPLIT_DISK,
    LTN_SPLIT_CHILD,
    LTN_SPLIT_FAULT,
    LTN_SPLIT_OTHER,
    LTN_SPLITS,
};

/* "on_cpu", "run_queue", "device", "futex", … : the value of the attribute lanterne.state. Static
 * storage. */
const char *ltn_split_name(enum ltn_split split);

/* One op of one process. *_total only grow while the process lives; the others cover this window.
 */
struct ltn_op_window {
    uint16_t op; /* id in agent/probe/ops.def */
    uint64_t calls_total;
    uint64_t errors_total;
    uint64_t bytes_total;
    uint64_t duration_total_ns;
    uint64_t replayed_total; /* see replayed */
    uint64_t replayed_bytes_total;
    uint64_t calls;
    uint64_t returns; /* calls whose duration was measured: the sum of hist */
    uint64_t errors;
    uint64_t bytes;
    uint64_t duration_ns;
    uint64_t off_cpu_ns;
    uint64_t run_queue_ns;
    uint64_t max_ns;   /* since the process was first seen */
    uint64_t replayed; /* calls that launches of graphs issued anew: in no other member, and without
                          durations */
    uint64_t replayed_bytes;
    const uint32_t *hist;       /* LTN_HIST_BUCKETS counts of this window */
    const uint64_t *hist_total; /* the same since the process was first seen */
};

struct ltn_preemptor {
    char comm[LTN_COMM_BYTES];
    uint32_t tgid;
    uint32_t tid; /* its thread that was seen first */
    uint64_t cgroup_id;
    const char *cgroup; /* path of it; NULL = not known */
    uint64_t waited_ns; /* in this window */
    uint64_t times;
};
#define LTN_PREEMPTORS 4

struct ltn_comm_window {
    uint64_t comm_id;
    int32_t rank;
    int32_t ranks;
    uint64_t sequence_total;
    uint64_t bytes_total;
    uint64_t collectives; /* in this window */
    uint64_t signature;
};

/* Step and self time of a rank: means over the steps that ended in the window. */
struct ltn_rank_window {
    uint32_t tid; /* the thread that waits for the device */
    double steps; /* steps completed; may be fractional when several blocking calls make a step */
    uint64_t steps_total;
    double step_ns; /* self + peer wait */
    double self_ns; /* step minus time blocked on peers */
    double peer_wait_ns;
    double split_ns[LTN_SPLITS]; /* sums to self_ns */
    double major_faults;
    double minor_faults;
    double coverage; /* share of the window's wall time that the steps cover */
    uint32_t collectives_per_step;
    struct ltn_preemptor
        preemptors[LTN_PREEMPTORS]; /* of this thread; longest wait first; unused: waited_ns 0 */
};

#define LTN_STUCK_CALLS 8
#define LTN_PLACE_BYTES 192

/* A call that a thread had not returned from when the window ended; launches and asynchronous
 * copies are not among them. */
struct ltn_stuck_call {
    uint64_t since_ns; /* Unix time */
    uint32_t tid;
    uint16_t op;
    char place[LTN_PLACE_BYTES]; /* line of the program that made it, cleaned; "" = not known */
};

struct ltn_proc_window {
    uint32_t pid;
    uint64_t
        start_ns; /* start of the process, Unix time: pid and start together name an incarnation */
    const char *comm;
    const char *job; /* "" when unknown */
    int32_t rank;    /* -1 when unknown */
    int32_t world_size;
    int32_t local_rank;
    int32_t gpu; /* index into gpus, -1 when unknown */
    bool ended;  /* the process exited in this window */
    bool is_rank;
    bool oom;                           /* chosen by the kernel's out-of-memory killer */
    struct ltn_rank_window rank_window; /* meaningful when is_rank */
    /* The same of a process without collectives: a "step" is one blocking call with the host
     * segment before it. Equal to rank_window when is_rank. */
    bool has_host;
    struct ltn_rank_window host;
    const struct ltn_stuck_call *stuck;
    size_t stuck_count;
    uint64_t cpu_total_ns; /* all threads, since the start; only of processes with communicators */
    uint64_t io_total_bytes; /* read and written; likewise */
    const struct ltn_op_window *ops;
    size_t op_count;
    const struct ltn_comm_window *comms;
    size_t comm_count;
};

/* State of a GPU at the end of the window, from NVML. Values that could not be read are negative.
 */
struct ltn_gpu_window {
    const char *uuid;
    const char *model;
    double sm_clock_hz;
    double sm_clock_max_hz;
    uint64_t throttle_reasons; /* NVML clock-event reason bits */
    double utilization;        /* 0..1 */
    double memory_used_bytes;
    double memory_total_bytes;
    double power_w;
    double temperature_c;
    int pcie_width;
    int pcie_width_max;
    int pcie_generation;
    int pcie_generation_max;
    double ecc_uncorrected;
};

/* How much detail tracing has. Each level gives up what the ones before it gave up, and one thing
 * more; docs/budget.md tells the order. */
enum ltn_detail {
    LTN_DETAIL_FULL = 0,
    LTN_DETAIL_NO_STACKS,  /* records come without stacks */
    LTN_DETAIL_SAMPLE_10,  /* one record in ten of those that may be thinned out */
    LTN_DETAIL_SAMPLE_100, /* one in a hundred */
    LTN_DETAIL_NO_HOST,    /* families of host events are off */
    LTN_DETAIL_NO_NESTED,  /* of calls inside another call one in 16 is timed */
    LTN_DETAIL_COUNTS,     /* of launches, asynchronous copies and memsets too */
    LTN_DETAILS,
};

/* "full", "no_stacks", "sample_10", … Static storage. */
const char *ltn_detail_name(enum ltn_detail detail);

/* The agent about its price. Shares are negative when not known. */
struct ltn_price_health {
    enum ltn_detail detail;
    uint32_t thin;      /* records thinned out now: one in so many is kept */
    uint64_t thinned;   /* records left out so far */
    double probe_share; /* of its time that the dearest process loses to probes, all its threads
                           together */
    uint32_t probe_pid; /* that process; 0 = none */
    double own_share;   /* agent and its kernel programs, of one core */
    double pair_ns;     /* what a timed call costs the traced program */
};

/* What the probes cover. Present state, and totals since the agent's start. */
struct ltn_coverage {
    uint32_t functions;        /* attached */
    uint32_t files;            /* attached */
    uint32_t files_unattached; /* mapped by a process in scope, but without probes */
    uint32_t hidden_processes; /* whose mappings may not be read */
    uint32_t silent_processes; /* run code of an attached file, and yet no call is seen */
    uint64_t silent_total;
    uint64_t attach_delay_max_ns; /* longest time from a mapping until its probes were in place */
    uint64_t stacks_refused;      /* not named: over their rate or number, or no room */
};

/* The agent about itself; totals since its start. seen = stored + drops. */
struct ltn_agent_health {
    uint64_t calls_seen;
    uint64_t records_emitted; /* by the kernel programs */
    uint64_t records_read;
    uint64_t drops[LTN_DROPS];
    uint64_t windows_dropped;
    uint64_t records_dropped; /* read from the rings, but not handed on */
    uint64_t map_bytes;
    double cpu_seconds;
    uint64_t rss_bytes;
    uint32_t traced_processes;
    uint32_t attached_probes;
    struct ltn_price_health price;
    struct ltn_coverage coverage;
};

struct ltn_window {
    struct ltn_arena arena;
    uint64_t start_ns; /* Unix time */
    uint64_t end_ns;
    const struct ltn_proc_window *procs;
    size_t proc_count;
    const struct ltn_gpu_window *gpus;
    size_t gpu_count;
    /* Share of the window in which some task of the node waited for memory or block I/O
     * (/proc/pressure); negative when the kernel does not say. */
    double pressure_memory;
    double pressure_io;
    struct ltn_host_window host;
    struct ltn_agent_health health;
};

/* Frees the window and everything in it. NULL is ignored. */
void ltn_window_free(struct ltn_window *w);

/* A call record, decoded, on its way to the database. */
struct ltn_call {
    uint64_t time_ns; /* Unix time of entry */
    uint64_t duration_ns;
    uint64_t on_cpu_ns;
    uint64_t run_queue_ns;
    uint64_t blocked_ns;
    uint64_t bytes;
    uint64_t handle;
    uint64_t comm_id; /* collectives only, else 0 */
    uint64_t sequence;
    uint64_t segment_ns; /* blocking calls only: the host segment before it */
    uint64_t stack_id;   /* struct ltn_event_stack of bpf/event.h; 0 = none */
    uint32_t pid;
    uint32_t tid;
    uint64_t proc_start_ns;
    uint32_t weight;
    int32_t result;
    uint32_t major_faults;
    uint32_t minor_faults;
    uint16_t op;
    uint8_t flags; /* LTN_CALL_* */
    uint8_t kind;
};

struct ltn_call_batch {
    size_t count;
    size_t capacity;
    struct ltn_call calls[]; /* capacity entries; freed with free() as one block */
};

#endif /* LTN_CAPTURE_WINDOW_H */
