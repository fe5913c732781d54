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

#define LTN_ABI_VERSION 3
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
    LTN_CLASS_CONTEXT,     /* contexts and modules come into being */
    LTN_CLASS_HOST_MEMORY, /* pinned host memory, made and given back */
    LTN_CLASS_MAPPING,     /* device addresses without memory of their own */
};

/* How the arguments of an op are read at entry. */
enum ltn_decoder {
    LTN_DECODE_NONE = 0,
    LTN_DECODE_LAUNCH, /* argument [a] points at a launch configuration, which has the stream */
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
    LTN_DECODE_SHRINK,        /* ncclCommShrink: child of the ranks that are left */
    LTN_DECODE_RECT,          /* bytes = argument [a] * argument [a + 1], stream = [b] */
    LTN_DECODE_COPY_RECT,     /* as RECT, direction = argument [a + 2] */
    LTN_DECODE_COPY_SYMBOL,   /* as BYTES, direction = argument [a + 2] */
    LTN_DECODE_COPY_3D,       /* argument [a] points at a cudaMemcpy3DParms, stream = [b] */
    LTN_DECODE_COPY_3D_PEER,  /* ... cudaMemcpy3DPeerParms */
    LTN_DECODE_CU_COPY_2D,    /* ... CUDA_MEMCPY2D */
    LTN_DECODE_CU_COPY_3D,    /* ... CUDA_MEMCPY3D or CUDA_MEMCPY3D_PEER */
    LTN_DECODE_BATCH,    /* bytes = sum of the array at argument [a], [a + 1] long, stream = [b] */
    LTN_DECODE_EXTENT,   /* cudaMalloc3D: extent by value */
    LTN_DECODE_SET_3D,   /* cudaMemset3D: extent by value behind a pointer by value */
    LTN_DECODE_ARRAY,    /* cudaMallocArray: description of an element, width, height */
    LTN_DECODE_ARRAY_3D, /* cudaMalloc3DArray: ..., extent by value */
    LTN_DECODE_CU_ARRAY, /* argument [a] points at a CUDA_ARRAY_DESCRIPTOR */
    LTN_DECODE_CU_ARRAY_3D,   /* ... CUDA_ARRAY3D_DESCRIPTOR */
    LTN_DECODE_ASYNC_ERROR,   /* communicator = argument 0; what counts as the result is stored at
                                 argument 1 */
    LTN_DECODE_EVENT_RECORD,  /* event = argument [a], stream = [b] */
    LTN_DECODE_EVENT_WAIT,    /* the same: the stream waits for the event */
    LTN_DECODE_CAPTURE_BEGIN, /* graph to go on with = argument [a] when set, stream = [b] */
    LTN_DECODE_CAPTURE_END,   /* graph is stored at argument [a], stream = [b] */
    LTN_DECODE_GRAPH_INSTANTIATE, /* graph = argument [a], executable is stored at [b] */
    LTN_DECODE_GRAPH_UPDATE,      /* executable = argument [a], graph = [b] */
    LTN_DECODE_GRAPH_LAUNCH,      /* executable = argument [a], stream = [b] */
    LTN_DECODE_GRAPH_DESTROY,     /* graph = argument [a] */
    LTN_DECODE_EXEC_DESTROY,      /* executable = argument [a] */
};

/*
 * Attach cookie: 0-15 op id, 16-23 class, 24-31 decoder, 32-35 argument index a, 36-39 argument
 * index b (15 = none), 40-47 flags, 48-50 direction that the function's name says, 51-52 logarithm
 * of the bytes of an element, 53 may hang.
 */
#define LTN_COOKIE(op, cls, dec, a, b, flags)                                                      \
    ((ltn_u64)(op) | (ltn_u64)(cls) << 16 | (ltn_u64)(dec) << 24 | (ltn_u64)((a)&15) << 32 |       \
     (ltn_u64)((b)&15) << 36 | (ltn_u64)(flags) << 40 |                                            \
     (ltn_u64)LTN_CLASS_MAY_HANG(cls, flags) << 53)
/* Calls that can stand still for long enough to be looked for. The others are the many. */
#define LTN_CLASS_MAY_HANG(cls, flags)                                                             \
    (((flags)&LTN_OP_BLOCKING) != 0 || ((cls) != LTN_CLASS_LAUNCH && (cls) != LTN_CLASS_COPY &&    \
                                        (cls) != LTN_CLASS_MEMSET && (cls) != LTN_CLASS_EVENT))
#define LTN_COOKIE_OP(c)        ((ltn_u32)((c)&0xffff))
#define LTN_COOKIE_CLASS(c)     ((ltn_u32)((c) >> 16 & 0xff))
#define LTN_COOKIE_DECODER(c)   ((ltn_u32)((c) >> 24 & 0xff))
#define LTN_COOKIE_A(c)         ((ltn_u32)((c) >> 32 & 15))
#define LTN_COOKIE_B(c)         ((ltn_u32)((c) >> 36 & 15))
#define LTN_COOKIE_FLAGS(c)     ((ltn_u32)((c) >> 40 & 0xff))
#define LTN_COOKIE_DIRECTION(c) ((ltn_u32)((c) >> 48 & 7))
#define LTN_COOKIE_SHIFT(c)     ((ltn_u32)((c) >> 51 & 3))
#define LTN_COOKIE_MAY_HANG(c)  ((ltn_u32)((c) >> 53 & 1))
#define LTN_ARG_NONE            15
/* The same op with arguments elsewhere. */
#define LTN_COOKIE_WITH(c, dec, a, b)                                                              \
    (((c) & ~((ltn_u64)0xffff << 24)) | (ltn_u64)(dec) << 24 | (ltn_u64)((a)&15) << 32 |           \
     (ltn_u64)((b)&15) << 36)

#define LTN_OPS_MAX 256 /* ids are below */

#define LTN_OP_BLOCKING   0x01 /* returns when device work is done: ends a host segment */
#define LTN_OP_ENTRY_ONLY 0x02 /* no return probe: duration and result unknown */
#define LTN_OP_P2P        0x04 /* send or receive: ordered per peer only, not part of the sequence */
#define LTN_OP_DETAIL     0x08 /* left out where links are slow to close */
/* Above the eight flags, in the cookie's own fields. */
#define LTN_OP_DIRECTION(kind) ((kind) << 8)
#define LTN_OP_SHIFT(log2)     ((log2) << 11)

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
    LTN_EVENT_STACK,
    LTN_EVENT_PYTHON_CODE, /* struct ltn_event_python_code of bpf/python_event.h */
    LTN_EVENT_GRAPH,
};

struct ltn_event_hdr {
    ltn_u16 type;
    ltn_u16 size; /* of the whole record */
    ltn_u32 tgid; /* as the initial pid namespace numbers it */
    ltn_u32 tid;
    ltn_u32 reserved; /* LTN_EVENT_STACK: how often the process became another program (exec) */
    ltn_u64 time_ns;  /* CLOCK_MONOTONIC; for calls the time of entry */
};

#define LTN_CALL_SLOW     0x01
#define LTN_CALL_FAILED   0x02
#define LTN_CALL_NESTED   0x04 /* made inside another traced call */
#define LTN_CALL_PEERS    0x08 /* a collective was outstanding: the wait may be for peers */
#define LTN_CALL_SLEPT    0x10 /* gave the CPU away on its own at least once */
#define LTN_CALL_UNTIMED  0x20 /* no return probe: duration and result are not known */
#define LTN_CALL_CAPTURED 0x40 /* recorded into a graph: nothing ran */

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
    ltn_u32 kind;     /* copy direction */
    ltn_u64 stack_id; /* of struct ltn_event_stack; 0 = none was taken */
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

/* The launch of an executable graph. */
struct ltn_event_graph {
    struct ltn_event_call call;
    ltn_u64 exec;
    ltn_u64 collectives; /* that the launch issued anew */
    ltn_u64 signature;   /* hash of them, the same for each launch of the same recording */
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
    struct ltn_event_hdr hdr; /* reserved = 1: a descendant that made no traced call itself */
    ltn_u64 start_boottime_ns;
    ltn_u32 parent_tgid;
    ltn_s32 exit_code;
    char comm[LTN_COMM_BYTES];
};

#define LTN_STACK_NATIVE 64
#define LTN_STACK_PYTHON 128

/* A Python frame as it was found at the event, innermost first; user space makes file, function and
 * line of it. */
struct ltn_python_frame {
    ltn_u64 code;     /* address of the code object */
    ltn_u64 identity; /* hash of its immutable part, 0 = could not be read */
    ltn_u32 offset;   /* of the current instruction, in bytes */
    ltn_u32 flags;
};

/*
 * Where a call was made from. Sent once for each distinct stack of a process, before (or, from
 * another CPU, a moment after) the first call that refers to it; again when the kernel has
 * forgotten that it was sent. The record ends after the last frame used: when there are no Python
 * frames after native[native_count], else after python[python_count].
 */
struct ltn_event_stack {
    struct ltn_event_hdr hdr;
    ltn_u64 stack_id; /* hash of the process's incarnation and all frames; never 0 */
    ltn_u64
        code_start; /* of its program, with the next what /proc/PID/stat says too: whether what */
    ltn_u64 stack_start; /* is mapped there is still this program */
    ltn_u16 native_count;
    ltn_u16 python_count;
    ltn_u32 python_flags; /* LTN_PYTHON_* of bpf/python_event.h: what of Python is missing */
    ltn_u64
        native[LTN_STACK_NATIVE]; /* return addresses, innermost first: the caller comes first */
    struct ltn_python_frame python[LTN_STACK_PYTHON];
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
    ltn_u64 replayed; /* calls that launches of graphs stood for; not among calls */
    ltn_u64 replayed_bytes;
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

/* Map graphs: the calls that one launch of a graph stands for. The same value for a capture that is
 * open (handle: a number of its own), for a graph, and for an executable made of it. */
enum ltn_graph_kind { LTN_GRAPH_OPEN = 0, LTN_GRAPH_DONE, LTN_GRAPH_EXEC };
struct ltn_graph_key {
    ltn_u64 handle;
    ltn_u32 tgid;
    ltn_u32 kind; /* enum ltn_graph_kind */
};
#define LTN_GRAPH_OPS   24
#define LTN_GRAPH_COMMS 8
struct ltn_graph_op {
    ltn_u32 op; /* 0 = unused */
    ltn_u32 calls;
    ltn_u64 bytes;
};
struct ltn_graph_comm {
    ltn_u64 comm; /* its pointer in the process; 0 = unused */
    ltn_u64 bytes;
    ltn_u64 signature;
    ltn_u32 collectives;
    ltn_u32 p2p;
};
struct ltn_graph {
    ltn_u64 collectives; /* sends and receives among them */
    ltn_u64 signature;
    struct ltn_graph_op ops[LTN_GRAPH_OPS];
    struct ltn_graph_comm comms[LTN_GRAPH_COMMS];
};

/* Map preemptors: who had the CPU while a traced thread waited for it. */
struct ltn_preemptor_key {
    ltn_u32 tgid; /* who waited */
    ltn_u32 tid;
    ltn_u32 by_tgid; /* who ran */
};
struct ltn_preemptor_stats {
    ltn_u64 waited_ns;
    ltn_u64 times;
    ltn_u64 by_cgroup;
    ltn_u32 by_tid; /* the thread of by_tgid that ran the last time */
    ltn_u32 reserved;
    char by_comm[LTN_COMM_BYTES];
};

/* Arguments that no call means. One that was read so, in a call that succeeded, was read from where
 * it is not: another layout of the arguments than ops.def has. Most of all a pointer, which is
 * above 2^46, stands there for bytes; addresses alone are reserved in such numbers. */
#define LTN_BYTES_MAX     (1ULL << 44)
#define LTN_ADDRESSES_MAX (1ULL << 47)
#define LTN_DIRECTION_MAX 4
#define LTN_DATA_TYPE_MAX 31
#define LTN_RANKS_MAX     (1 << 20)
/*
 * What the host does to a traced process and to the node, aggregated by the host families. All of
 * it only grows; user space reads it once a window and makes differences.
 */

/* Map host_processes: processes that made a traced call, and their descendants from then on. */
struct ltn_host_process {
    ltn_u64 start_boottime_ns;
    ltn_u64 pages;    /* allocated on behalf of it by the page allocator */
    ltn_u64 reclaims; /* times it had to free memory before it got some (direct reclaim) */
    ltn_u64 reclaim_ns;
    ltn_u64 opens;
    ltn_u64 open_ns;
    ltn_u64 opens_failed;  /* opens_missing among them */
    ltn_u64 opens_missing; /* ENOENT */
    ltn_u64 opens_slow;
    ltn_u64 opens_untold; /* failed or slow, but host_files had no room for the path */
    ltn_u64 socket_calls;
    ltn_u64 socket_sent_bytes;
    ltn_u64 socket_received_bytes;
    ltn_u64 socket_untold; /* calls for whose peer host_net had no room */
    ltn_u64 block_read_bytes;
    ltn_u64 block_written_bytes;
    ltn_u32 parent_tgid;
    ltn_u32 ended; /* user space takes the entry out once it has read the last sums */
    char comm[LTN_COMM_BYTES];
};

enum ltn_block_op { LTN_BLOCK_READ = 0, LTN_BLOCK_WRITE, LTN_BLOCK_FLUSH, LTN_BLOCK_OTHER };

/* Map host_block. tgid 0: issued by nobody traced (kernel threads that write back among them). */
struct ltn_block_key {
    ltn_u32 tgid;
    ltn_u32 major;
    ltn_u32 minor;
    ltn_u32 op; /* enum ltn_block_op */
};
#define LTN_DISK_NAME_BYTES 32
struct ltn_block_stats {
    ltn_u64 requests;
    ltn_u64 bytes;
    ltn_u64 errors;
    ltn_u64 queued_ns;  /* from its making until the driver got it */
    ltn_u64 service_ns; /* from there until it was done */
    ltn_u64 max_ns;     /* longest queued + service */
    ltn_u64 depth_sum; /* requests that the driver had, this one among them, when it got this one */
    ltn_u64 depth_max;
    char disk[LTN_DISK_NAME_BYTES];
};

/* Map host_net: calls on sockets. Addresses as they lie in packets; 16 bytes for IPv6, 4 for IPv4,
 * zeros for the rest. */
#define LTN_ADDRESS_BYTES 16
#define LTN_SIDE_CLIENT   0
#define LTN_SIDE_SERVER   1
#define LTN_SIDE_UNKNOWN  2
struct ltn_net_key {
    ltn_u32 tgid;
    ltn_u16 family;
    ltn_u16 protocol;
    ltn_u16 port; /* of the service; of the peer when the side is not known */
    ltn_u16 side; /* LTN_SIDE_*: where this process stands */
    ltn_u8 peer[LTN_ADDRESS_BYTES];
};
struct ltn_net_stats {
    ltn_u64 sends;
    ltn_u64 sent_bytes;
    ltn_u64 receives;
    ltn_u64 received_bytes;
    ltn_u64 would_block; /* calls that found nothing to do (EAGAIN) */
    ltn_u64 failed;      /* other errors */
};

/* Map host_retransmits. */
struct ltn_retransmit_key {
    ltn_u8 local[LTN_ADDRESS_BYTES];
    ltn_u8 peer[LTN_ADDRESS_BYTES];
    ltn_u16 local_port;
    ltn_u16 peer_port;
    ltn_u32 family;
};
struct ltn_retransmit_stats {
    ltn_u64 segments;
    ltn_u64 handshake; /* of them while the connection was being made */
    ltn_u32 tgid;      /* traced process that used the socket; 0 = none known */
    ltn_u32 reserved;
};

/* Map host_files: opens that failed or were slow, by path as the process wrote it. */
#define LTN_FILE_PATH_BYTES 192
struct ltn_file_key {
    ltn_u64 path_hash;
    ltn_u32 tgid;
    ltn_u32 reserved;
};
struct ltn_file_stats {
    ltn_u64 failed;
    ltn_u64 missing;
    ltn_u64 slow;
    ltn_u64 spent_ns; /* in all of them */
    ltn_u64 max_ns;
    ltn_s32 last_errno; /* of the last that failed */
    ltn_u32 reserved;
    char path[LTN_FILE_PATH_BYTES]; /* cut when longer; "" when it could not be read */
};

/* Host families, as bits. */
#define LTN_HOST_BLOCK  0x01
#define LTN_HOST_TCP    0x02
#define LTN_HOST_NET    0x04
#define LTN_HOST_FILES  0x08
#define LTN_HOST_MEMORY 0x10
#define LTN_HOST_ALL    0x1f

/* Per-CPU counters of records that could not be kept, and of state that could not be stored. */
enum ltn_drop {
    LTN_DROP_RING_CALLS = 0, /* the calls ring was full */
    LTN_DROP_RING_CRITICAL,
    LTN_DROP_MAP_OP_STATS,
    LTN_DROP_MAP_THREADS,
    LTN_DROP_MAP_COMMS,
    LTN_DROP_TASK_STORAGE,
    LTN_DROP_NESTING,     /* more calls inside each other than the task keeps */
    LTN_DROP_ARGUMENT,    /* an argument in user memory could not be read */
    LTN_DROP_IMPOSSIBLE,  /* an argument read as what it cannot be, in a call that succeeded */
    LTN_DROP_MAP_HOST,    /* no room in a map of a host family */
    LTN_DROP_RING_STACKS, /* the calls ring had no room for a stack, or for what one names */
    LTN_DROP_STACK_STATE, /* no memory to take a stack in, or to remember that it was sent */
    LTN_DROP_GRAPH, /* no room for a graph, or for one more kind of call or communicator in it */
    LTN_DROPS,
};

/* Per-CPU counters of what was seen. */
enum ltn_seen {
    LTN_SEEN_CALLS = 0,  /* entries in scope */
    LTN_SEEN_EMITTED,    /* records asked for: stored in the ring or counted as a drop */
    LTN_SEEN_FILTERED,   /* calls out of scope */
    LTN_SEEN_UNEXPECTED, /* returns without an entry */
    LTN_SEEN_STACKS,     /* of those emitted: stacks, and what they name */
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
    ltn_u64 open_slow_ns; /* an open that takes longer is told by its path */
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
_Static_assert(sizeof(struct ltn_event_call) == 96, "call record is part of the ABI");
_Static_assert(sizeof(struct ltn_event_sync) == 200, "sync record is part of the ABI");
_Static_assert(sizeof(struct ltn_event_collective) == 136, "collective record is part of the ABI");
_Static_assert(sizeof(struct ltn_event_comm) == 128, "communicator record is part of the ABI");
_Static_assert(sizeof(struct ltn_event_graph) == 120, "graph record is part of the ABI");
_Static_assert(sizeof(struct ltn_graph) == 656, "part of the ABI");
_Static_assert(sizeof(struct ltn_event_process) == 56, "process record is part of the ABI");
_Static_assert(sizeof(struct ltn_python_frame) == 24, "Python frame is part of the ABI");
_Static_assert(sizeof(struct ltn_event_stack) == 3640, "stack record is part of the ABI");
_Static_assert(sizeof(struct ltn_host_process) == 152, "part of the ABI");
_Static_assert(sizeof(struct ltn_block_key) == 16, "part of the ABI");
_Static_assert(sizeof(struct ltn_block_stats) == 96, "part of the ABI");
_Static_assert(sizeof(struct ltn_net_key) == 28, "part of the ABI");
_Static_assert(sizeof(struct ltn_retransmit_key) == 40, "part of the ABI");
_Static_assert(sizeof(struct ltn_file_stats) == 240, "part of the ABI");
_Static_assert(sizeof(struct ltn_preemptor_key) == 12, "part of the ABI");
#endif

#endif /* LTN_BPF_EVENT_H */
