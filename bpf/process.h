/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* A record about a process, on the ring that calls cannot flood. */
#ifndef LTN_BPF_PROCESS_H
#define LTN_BPF_PROCESS_H

#include "bpf/maps.h"

/* Nothing here may be lost: user space is woken long before the ring is full. */
static __always_inline ltn_u64 critical_wake_flag(void)
{
    return bpf_ringbuf_query(&critical, BPF_RB_AVAIL_DATA) >= CRITICAL_RING_BYTES / 8
               ? BPF_RB_FORCE_WAKEUP
               : BPF_RB_NO_WAKEUP;
}

static __always_inline void emit_process(ltn_u16 type, struct task_struct *task, ltn_u32 tgid,
                                         ltn_u32 parent, int exit_code)
{
    struct ltn_event_process *e = bpf_ringbuf_reserve(&critical, sizeof(*e), 0);
    count_seen(LTN_SEEN_EMITTED);
    if (!e) {
        count_drop(LTN_DROP_RING_CRITICAL);
        return;
    }
    __builtin_memset(e, 0, sizeof(*e));
    e->hdr.type = type;
    e->hdr.size = sizeof(*e);
    e->hdr.tgid = tgid;
    e->hdr.tid = tgid;
    e->hdr.reserved = !bpf_map_lookup_elem(&processes, &tgid);
    e->hdr.time_ns = bpf_ktime_get_ns();
    e->parent_tgid = parent;
    e->exit_code = exit_code;
    if (task) {
        /* The process is what its first thread is, as in /proc. */
        struct task_struct *leader = BPF_CORE_READ(task, group_leader);
        e->start_boottime_ns = BPF_CORE_READ(leader, start_boottime);
        bpf_core_read(e->comm, sizeof(e->comm), &leader->comm);
    }
    bpf_ringbuf_submit(e, critical_wake_flag());
}

#endif /* LTN_BPF_PROCESS_H */
