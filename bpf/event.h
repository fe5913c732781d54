/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The one ABI between the kernel programs and the agent: ids packed into attach cookies, records in
 * the rings, values in the maps. Fixed-width fields, explicit padding, sizes asserted. Both sides
 * are built together; LTN_ABI_VERSION guards the rest.
 */
#ifndef LTN_BPF_EVENT_H
#define LTN_BPF_EVENT_H

#ifdef __bpf__
typedef unsigned char ltn_u8;
typedef unsigned short ltn_u16;
typedef unsigned int ltn_u32;
typedef int ltn_s32;
typedef unsigned long long ltn_u64;
#else
#include <stdint.h>
typedef uint8_t ltn_u8;
typedef uint16_t ltn_u16;
typedef uint32_t ltn_u32;
typedef int32_t ltn_s32;
typedef uint64_t ltn_u64;
#endif

#define LTN_ABI_VERSION 1
#define LTN_COMM_BYTES  16

/* What kind of call an op is; decides what is emitted and how a wait inside it is read. */
enum ltn_op_class {
    LTN_CLASS_LAUNCH = 1,
    LTN_CLASS_COPY,
    LTN_CLASS_ALLOC,
    LTN_CLASS_FREE,
    LTN_CLASS_SYNC,
    LTN_CLASS_GRAPH,
    LTN_CLASS_COLLECTIVE,
    LTN_CLASS_COMM,
    LTN_CLASS_MEMSET,
    LTN_CLASS_EVENT,
    LTN_CLASS_CONTEXT, /* contexts and modules come into being */
};

/* How the arguments of an op are read at entry. */
enum ltn_decoder {
    LTN_DECODE_NONE = 0,
    LTN_DECODE_LAUNCH, /* stream: where the launch functions keep it */
    LTN_DECODE_BYTES,  /* bytes = argument [a], stream = argument [b] when b is set */
    LTN_DECODE_COPY,   /* bytes = argument [a], direction = argument [a + 1] (32 bits), stream = [b]
                        */
    LTN_DECODE_STREAM, /* stream = argument [b] */
    LTN_DECODE_HANDLE, /* pointer or handle = argument [a] */
    LTN_DECODE_COLLECTIVE,    /* count = argument [a], data type = [a + 1] (32 bits), communicator =
                                 [b] */
    LTN_DECODE_INIT_BY_VALUE, /* ncclCommInitRank(Config): unique id by value */
    LTN_DECODE_INIT_SCALABLE, /* ncclCommInitRankScalable: rank before the ids, ids by pointer */
    LTN_DECODE_INIT_ALL,      /* ncclCommInitAll: one process owns every rank */
    LTN_DECODE_SPLIT,         /* ncclCommSplit: child derived from its parent */
    LTN_DECODE_COMM,          /* communicator = argument [a] */
};

/*
 * Attach cookie: 0-15 op id, 16-23 class, 24-31 decoder, 32-35 argument index a, 36-39 argument
 * index b (15 = none), 40-47 flags.
 */
#define LTN_COOKIE(op, cls, dec, a, b, flags)                                                      \
    ((ltn_u64)(op) | (ltn_u64)(cls) << 16 | (ltn_u64)(dec) << 24 | (ltn_u64)((a)&15) << 32 |       \
     (ltn_u64)((b)&15) << 36 | (ltn_u64)(flags) << 40)
#define LTN_COOKIE_OP(c)      ((ltn_u32)((c)&0xffff))
#define LTN_COOKIE_CLASS(c)   ((ltn_u32)((c) >> 16 & 0xff))
#define LTN_COOKIE_DECODER(c) ((ltn_u32)((c) >> 24 & 0xff))
#define LTN_COOKIE_A(c)       ((ltn_u32)((c) >> 32 & 15))
#define LTN_COOKIE_B(c)       ((ltn_u32)((c) >> 36 & 15))
#define LTN_COOKIE_FLAGS(c)   ((ltn_u32)((c) >> 40 & 0xff))
#define LTN_ARG_NONE          15

#define LTN_OP_BLOCKING   0x01 /* returns when device work is done: ends a host segment */
#define LTN_OP_ENTRY_ONLY 0x02 /* no return probe: duration and result unknown */
#define LTN_OP_P2P        0x04 /* send or receive: ordered per peer only, not part of the sequence */

/* Where a thread's time off the CPU went. Order is part of the ABI. */
enum ltn_off_reason {
    LTN_OFF_FUTEX = 0,
    LTN_OFF_READ,
    LTN_OFF_WRITE,
    LTN_OFF_POLL,
    LTN_OFF_SLEEP,
    LTN_OFF_DISK, /* uninterruptible with the iowait flag, or fsync and its like */
    LTN_OFF_CHILD,
    LTN_OFF_FAULT, /* slept outside a system call: page fault */
    LTN_OFF_OTHER,
    LTN_OFF_REASONS,
};

/* Duration histogram: 16 sub-buckets per power of two of nanoseconds, up to 2^36 ns; the last
 * bucket takes what is longer. */
#define LTN_HIST_BUCKETS 528

enum ltn_event_type {
    LTN_EVENT_CALL = 1,
    LTN_EVENT_SYNC,
    LTN_EVENT_COLLECTIVE,
    LTN_EVENT_COMM,
    LTN_EVENT_EXEC,
    LTN_EVENT_EXIT,
    LTN_EVENT_FORK,
    LTN_EVENT_OOM,
    LTN_EVENT_SEEN,
};

struct ltn_event_hdr {
    ltn_u16 type;
    ltn_u16 size; /* of the whole record */
    ltn_u32 tgid; /* as the initial pid namespace numbers it */
    ltn_u32 tid;
    ltn_u32 reserved;
    ltn_u64 time_ns; /* CLOCK_MONOTONIC; for calls the time of entry */
};

#define LTN_CALL_SLOW   0x01
#define LTN_CALL_FAILED 0x02
#define LTN_CALL_NESTED 0x04 /* made inside another traced call */
#define LTN_CALL_PEERS  0x08 /* a collective was outstanding: the wait may be for peers */
#define LTN_CALL_SLEPT  0x10 /* gave the CPU away on its own at least once */

/* The time of one call: wall = on-CPU + run queue + blocked. */
struct ltn_event_call {
    struct ltn_event_hdr hdr;
    ltn_u64 duration_ns;
    ltn_u64 off_cpu_ns; /* run queue and blocked together */
    ltn_u64 run_queue_ns;
    ltn_u64 bytes;
    ltn_u64 handle; /* stream, pointer or communicator, by op */
    ltn_u32 major_faults;
    ltn_u32 minor_faults;
    ltn_u32 weight; /* calls this record stands for */
    ltn_s32 result;
    ltn_u16 op;
    ltn_u8 op_class;
    ltn_u8 flags;
    ltn_u32 kind; /* copy direction */
};

/* A blocking call, with the host segment that it ended. */
struct ltn_event_sync {
    struct ltn_event_call call;
    ltn_u64 segment_ns; /* 0 when no blocking call came before on this thread */
    ltn_u64 segment_off_cpu_ns;
    ltn_u64 segment_run_queue_ns;
    ltn_u64 segment_blocked_ns[LTN_OFF_REASONS];
    ltn_u32 segment_major_faults;
    ltn_u32 segment_minor_faults;
};

/* A collective or point-to-point call. */
struct ltn_event_collective {
    struct ltn_event_call call;
    ltn_u64
        comm_id; /* the same on every rank of the communicator; 0 when its creation was not seen */
    ltn_u64 sequence;
    ltn_u64 count;
    ltn_u32 data_type;
    ltn_s32 rank;
    ltn_s32 ranks;
    ltn_u32 reserved;
};

/* A communicator came into being or ended. */
struct ltn_event_comm {
    struct ltn_event_call call;
    ltn_u64 comm_id;
    ltn_u64 parent_id;
    ltn_s32 rank;
    ltn_s32 ranks;
    ltn_u32 ended;
    ltn_u32 reserved;
};

/* Process life cycle and out-of-memory kills, on the critical ring. LTN_EVENT_SEEN: the first
 * traced call of a process. Name and start are here because a short-lived process is gone when user
 * space looks. */
struct ltn_event_process {
    struct ltn_event_hdr hdr;
    ltn_u64 start_boottime_ns;
    ltn_u32 parent_tgid;
    ltn_s32 exit_code;
    char comm[LTN_COMM_BYTES];
};

/* Map op_stats: one entry per process and op. Counters only grow; hist wraps at 2^32. */
struct ltn_op_key {
    ltn_u32 tgid;
    ltn_u32 op;
};
struct ltn_op_stats {
    ltn_u64 calls;
    ltn_u64 returns; /* calls whose return was seen; duration and the histogram cover these */
    ltn_u64 errors;
    ltn_u64 nested;
    ltn_u64 bytes;
    ltn_u64 duration_ns;
    ltn_u64 off_cpu_ns;
    ltn_u64 run_queue_ns;
    ltn_u64 max_ns;
    ltn_u32 hist[LTN_HIST_BUCKETS];
};

/*
 * Map threads: one entry per thread that made a blocking call. All sums are brought forward
 * together when a blocking call returns. A reader has a whole value exactly when `end` equals
 * `begin`: the kernel writes begin first and end last, and copies run upwards, so the reader sees
 * end first.
 */
struct ltn_thread_stats {
    ltn_u64 end;
    ltn_u32 tgid;
    ltn_u32 tid;
    ltn_u64 syncs;       /* outermost blocking calls returned */
    ltn_u64 peer_syncs;  /* those with a collective outstanding */
    ltn_u64 collectives; /* issued by the process up to the last blocking call */
    ltn_u64 updated_ns;  /* CLOCK_MONOTONIC of the last blocking call's return */
    ltn_u64 segment_ns;  /* host segments: wall */
    ltn_u64 segment_off_cpu_ns;
    ltn_u64 segment_run_queue_ns;
    ltn_u64 segment_blocked_ns[LTN_OFF_REASONS];
    ltn_u64 segment_major_faults;
    ltn_u64 segment_minor_faults;
    ltn_u64 peer_wait_ns;           /* wall inside blocking calls with a collective outstanding */
    ltn_u64 peer_wait_run_queue_ns; /* of it: woken, but waiting for a CPU */
    ltn_u64 device_wait_ns;         /* wall inside the other blocking calls */
    ltn_u64 device_wait_run_queue_ns;
    ltn_u64 begin;
};

/* Map in_flight: what a thread is inside of now, launches and asynchronous copies left out. Key:
 * tid. */
struct ltn_in_flight {
    ltn_u64 since_ns;
    ltn_u64 handle;
    ltn_u32 tgid;
    ltn_u32 op;
};

/* Map comms. A communicator that ended moves to a key of its own, so that its last sums are read
 * although its address may be in use again; user space deletes that entry once it has read it. */
struct ltn_comm_key {
    ltn_u64 comm; /* its pointer in the process; its comm_id when it ended */
    ltn_u32 tgid;
    ltn_u32 ended; /* 0 = it lives; else its rank + 2 */
};
struct ltn_comm_state {
    ltn_u64 comm_id;
    ltn_u64 sequence;  /* collectives issued */
    ltn_u64 p2p;       /* sends and receives issued */
    ltn_u64 count_sum; /* elements times the size of their type */
    ltn_u64 signature; /* running hash of (op, count, data type) */
    ltn_u64 last_ns;
    ltn_s32 rank;
    ltn_s32 ranks;
    ltn_u32 splits;
    ltn_u32 reserved;
};

/* Map preemptors: who had the CPU while a traced thread waited for it. Key {traced tgid, tgid that
 * ran}. */
struct ltn_preemptor_key {
    ltn_u32 tgid;
    ltn_u32 by_tgid;
};
struct ltn_preemptor_stats {
    ltn_u64 waited_ns;
    ltn_u64 times;
    ltn_u64 by_cgroup;
    char by_comm[LTN_COMM_BYTES];
};

/* Per-CPU counters of records that could not be kept, and of state that could not be stored. */
enum ltn_drop {
    LTN_DROP_RING_CALLS = 0, /* the calls ring was full */
    LTN_DROP_RING_CRITICAL,
    LTN_DROP_MAP_OP_STATS,
    LTN_DROP_MAP_THREADS,
    LTN_DROP_MAP_COMMS,
    LTN_DROP_TASK_STORAGE,
    LTN_DROP_NESTING,  /* more calls inside each other than the task keeps */
    LTN_DROP_ARGUMENT, /* an argument in user memory could not be read */
    LTN_DROPS,
};

/* Per-CPU counters of what was seen. */
enum ltn_seen {
    LTN_SEEN_CALLS = 0,  /* entries in scope */
    LTN_SEEN_EMITTED,    /* records asked for: stored in the ring or counted as a drop */
    LTN_SEEN_FILTERED,   /* calls out of scope */
    LTN_SEEN_UNEXPECTED, /* returns without an entry */
    LTN_SEEN_THINNED,    /* records left out by thinning: others stand for them by their weight */
    LTN_SEENS,
};

/* Which processes are traced. */
#define LTN_TRACE_PIDS   0x01 /* tgid must be in scope_tgids */
#define LTN_TRACE_UID    0x02
#define LTN_TRACE_CGROUP 0x04 /* cgroup-v2 ancestor at a level */

struct ltn_bpf_config {
    ltn_u64 scope_cgroup;
    ltn_u32 scope_cgroup_level;
    ltn_u32 scope_uid;
    ltn_u32 scope_mode;
    ltn_u32 sample_every; /* 0: only policy records; 1: every call; N: one in N of the rest */
    ltn_u32 wake_bytes;   /* ring fill at which user space is woken */
    ltn_u32 thin_bytes;   /* ring fill from which records are thinned; 0: they never are */
    ltn_u32 pid_level;    /* depth of the agent's pid namespace */
};

/* What is turned down, in struct ltn_bpf_control. Counts never are. */
#define LTN_DOWN_STACKS 0x01 /* no stack is taken */
#define LTN_DOWN_HOST   0x02 /* program families beside the calls do nothing */
#define LTN_DOWN_NESTED 0x04 /* of the calls made inside another one, few are timed */
#define LTN_DOWN_LAUNCH 0x08 /* the same of launches, asynchronous copies and memsets */

/* Of calls that are only counted, one in this many is timed all the same, so that there are
 * percentiles. A power of two. */
#define LTN_TIMED_ONE_IN 16

/* The global `control`: lies in memory that the agent has mapped and writes at any time. */
struct ltn_bpf_control {
    ltn_u32 off;  /* LTN_DOWN_* */
    ltn_u32 thin; /* a record that may be thinned is kept once in so many, with that weight; 1: each
                   */
};

#ifndef __bpf__
_Static_assert(sizeof(struct ltn_event_hdr) == 24, "record header is part of the ABI");
_Static_assert(sizeof(struct ltn_event_call) == 88, "call record is part of the ABI");
_Static_assert(sizeof(struct ltn_event_sync) == 192, "sync record is part of the ABI");
_Static_assert(sizeof(struct ltn_event_collective) == 128, "collective record is part of the ABI");
_Static_assert(sizeof(struct ltn_event_comm) == 120, "communicator record is part of the ABI");
#endif

#endif /* LTN_BPF_EVENT_H */
