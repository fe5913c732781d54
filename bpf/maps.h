/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Maps, settings and counters that the program families share. */
#ifndef LTN_BPF_MAPS_H
#define LTN_BPF_MAPS_H

#include "bpf/event.h"
#include "bpf/kernel_types.h"

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

struct bpf_raw_tracepoint_args;

/* Calls inside each other that a task keeps (collective, runtime and driver on top of each other,
 * and one to spare). */
#define LTN_NESTING 4

/* 14,000 records: more than the machine can make between two looks of user space. */
#define CRITICAL_RING_BYTES (1024 * 1024)

/* Set before load. */
const volatile struct ltn_bpf_config config = {0};
const volatile ltn_u32 have_sched =
    0; /* sched_switch is attached: time off the CPU is measured there */
const volatile ltn_u32 have_stacks = 1;        /* the programs can take stacks at all */
const volatile ltn_u32 mark_victim_is_pid = 0; /* old prototype of the tracepoint */

/* Written by user space at any time. */
volatile struct ltn_bpf_control control = {.thin = 1};

/* Captures of graphs that are open now, in all processes. While there are none, which is nearly
 * always, no call asks whether it is part of one. */
volatile ltn_u32 capturing = 0;

#define LTN_FRAME_COUNTED     0x100 /* the call stands in op_stats already */
#define LTN_FRAME_LATE_HANDLE 0x200 /* the handle lies in user memory and was not read yet */
#define LTN_FRAME_IMPOSSIBLE  0x400 /* an argument was read as what it cannot be */

/* A traced call in progress. */
struct ltn_frame {
    ltn_u64 cookie;
    ltn_u64 sp;
    ltn_u64 enter_ns;
    ltn_u64 off_cpu_ns;
    ltn_u64 queued_ns;
    ltn_u64 exec_ns; /* only without sched_switch */
    ltn_u64 voluntary;
    ltn_u64 bytes;
    ltn_u64 handle;
    ltn_u32 kind;
    ltn_u32 major_faults;
    ltn_u32 minor_faults;
    ltn_u32 flags;  /* LTN_CALL_* and LTN_FRAME_* */
    ltn_u32 weight; /* calls that a record of this one stands for; 0 = none unless slow or failed */
    /* From here on for calls that may hang only. */
    ltn_s32 rank;
    ltn_s32 ranks;
    ltn_u64 out_ptr; /* where the call stores its result */
    ltn_u64 collectives;
    ltn_u64 comm_id;
    ltn_u64 sequence;
    ltn_u64 stack_id; /* written only when a record is made */
};

/* What is kept per task that made a traced call; freed by the kernel with the task. */
struct ltn_task {
    ltn_u32 depth;
    ltn_u32
        segment_open; /* the fields segment_* hold the moment of the last blocking call's return */
    ltn_u64 args[8];
    ltn_u64 scratch[16];
    /* Time off the CPU, brought up to date by settle(): queued and blocked together. */
    ltn_u64 off_cpu_ns;
    ltn_u64 queued_ns;
    ltn_u64 blocked_ns[LTN_OFF_REASONS];
    ltn_u64 out_ns; /* left the CPU at this time; 0 = nothing to settle */
    ltn_u64 in_ns;
    ltn_u64 out_run_delay_ns;
    ltn_u64 clock_ns; /* this clock less the scheduler's */
    ltn_u32 out_reason;
    ltn_u32 by_tgid; /* who had the CPU when this task got it back */
    ltn_u32 by_tid;
    ltn_u32 reserved;
    ltn_u64 by_cgroup;
    char by_comm[LTN_COMM_BYTES];
    /* The running host segment. */
    ltn_u64 segment_ns;
    ltn_u64 segment_off_cpu_ns;
    ltn_u64 segment_queued_ns;
    ltn_u64 segment_blocked_ns[LTN_OFF_REASONS];
    ltn_u64 segment_major_faults;
    ltn_u64 segment_minor_faults;
    struct ltn_event_sync closed; /* the segment that the blocking call in progress ended */
    struct ltn_frame frames[LTN_NESTING];
};

/* Per process: collectives issued, and how many of them the newest finished blocking call covers.
 */
struct ltn_process {
    ltn_u64 collectives;
    ltn_u64 synced;
    ltn_u32 capturing; /* its part of the global of that name */
    ltn_u32 reserved;
};

struct {
    __uint(type, BPF_MAP_TYPE_TASK_STORAGE);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, int);
    __type(value, struct ltn_task);
} tasks SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __uint(max_entries, 16384);
    __type(key, struct ltn_op_key);
    __type(value, struct ltn_op_stats);
} op_stats SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __uint(max_entries, 65536);
    __type(key, ltn_u32);
    __type(value, struct ltn_thread_stats);
} threads SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __uint(max_entries, 65536);
    __type(key, ltn_u32);
    __type(value, struct ltn_in_flight);
} in_flight SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __uint(max_entries, 16384);
    __type(key, ltn_u32);
    __type(value, struct ltn_process);
} processes SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __uint(max_entries, 16384);
    __type(key, struct ltn_comm_key);
    __type(value, struct ltn_comm_state);
} comms SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __uint(max_entries, 8192);
    __type(key, struct ltn_graph_key);
    __type(value, struct ltn_graph);
} graphs SEC(".maps");

/* Streams that are being captured, and events that carry a capture to other streams: the key of the
 * capture in `graphs`. An entry outlives its capture, and then leads nowhere. */
struct capture_member {
    ltn_u64 handle;
    ltn_u32 tgid;
    ltn_u32 is_event;
};
struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 4096);
    __type(key, struct capture_member);
    __type(value, ltn_u64);
} capture_members SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 4096);
    __type(key, struct ltn_preemptor_key);
    __type(value, struct ltn_preemptor_stats);
} preemptors SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __uint(max_entries, 16384);
    __type(key, ltn_u32);
    __type(value, ltn_u32);
} scope_tgids SEC(".maps");

/* Per op: duration from which a call is worth a record; 0 = none. Written by user space from the
 * op's own p99. */
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, LTN_OPS_MAX);
    __type(key, ltn_u32);
    __type(value, ltn_u64);
} slow_ns SEC(".maps");

/* Per op: calls that succeeded although an argument was read as what it cannot be. */
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, LTN_OPS_MAX);
    __type(key, ltn_u32);
    __type(value, ltn_u64);
} impossible SEC(".maps");

/* A stack on its way into the ring. Per task, as the programs may be interrupted by others of their
 * kind on the same CPU; only tasks that made a record have one. */
struct {
    __uint(type, BPF_MAP_TYPE_TASK_STORAGE);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, int);
    __type(value, struct ltn_event_stack);
} stack_scratch SEC(".maps");

/* Ids of the stacks that were sent. User space deletes one that did not reach it, so that it comes
 * again. */
struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 16384);
    __type(key, ltn_u64);
    __type(value, ltn_u32);
} stacks_sent SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, 4 * 1024 * 1024);
} calls SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, CRITICAL_RING_BYTES);
} critical SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, LTN_DROPS);
    __type(key, ltn_u32);
    __type(value, ltn_u64);
} drops SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, LTN_SEENS);
    __type(key, ltn_u32);
    __type(value, ltn_u64);
} seen SEC(".maps");

static __always_inline void count_drop(ltn_u32 reason)
{
    ltn_u64 *n = bpf_map_lookup_elem(&drops, &reason);
    if (n) {
        *n += 1;
    }
}

static __always_inline void count_seen(ltn_u32 what)
{
    ltn_u64 *n = bpf_map_lookup_elem(&seen, &what);
    if (n) {
        *n += 1;
    }
}

#define WAKE_SPAN_MAX 4096

/* Wakes user space only as the ring's fill passes a mark, with the few records that lie around it:
 * a wake-up for each record would cost more than the call it describes. */
static __always_inline ltn_u64 wake_flag(void *ring)
{
    ltn_u32 span = config.wake_bytes / 4 < WAKE_SPAN_MAX ? config.wake_bytes / 4 : WAKE_SPAN_MAX;
    ltn_u64 past = bpf_ringbuf_query(ring, BPF_RB_AVAIL_DATA) - config.wake_bytes;
    return past < span ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP;
}

/* Is the current task one of those to be traced? */
static __always_inline int in_scope(ltn_u32 tgid)
{
    if ((config.scope_mode & LTN_TRACE_PIDS) && !bpf_map_lookup_elem(&scope_tgids, &tgid)) {
        return 0;
    }
    if ((config.scope_mode & LTN_TRACE_UID) &&
        (ltn_u32)bpf_get_current_uid_gid() != config.scope_uid) {
        return 0;
    }
    if ((config.scope_mode & LTN_TRACE_CGROUP) &&
        bpf_get_current_ancestor_cgroup_id(config.scope_cgroup_level) != config.scope_cgroup) {
        return 0;
    }
    return 1;
}

#endif /* LTN_BPF_MAPS_H */
