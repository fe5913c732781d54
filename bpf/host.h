/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What the host families share: which processes they watch, and the sums of each. */
#ifndef LTN_BPF_HOST_H
#define LTN_BPF_HOST_H

#include "bpf/maps.h"

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __uint(max_entries, 16384);
    __type(key, ltn_u32);
    __type(value, struct ltn_host_process);
} host_processes SEC(".maps");

/* What a watched task is in the middle of. */
struct ltn_host_task {
    ltn_u64 open_path; /* where the path of the open in progress lies; 0 = none */
    ltn_u64 open_ns;
    ltn_u64 reclaim_ns; /* 0 = not reclaiming */
};

struct {
    __uint(type, BPF_MAP_TYPE_TASK_STORAGE);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, int);
    __type(value, struct ltn_host_task);
} host_tasks SEC(".maps");

/* The budget has no room for the families now: they add nothing, what is under way comes to its
 * end. */
static __always_inline int host_is_down(void)
{
    return (control.off & LTN_DOWN_HOST) != 0;
}

static __always_inline void add_to(ltn_u64 *sum, ltn_u64 n)
{
    __sync_fetch_and_add(sum, n);
}

static const struct ltn_host_process no_host_process; /* zeros: the stack has no room for them */

/* From now on the families watch this process. It may be the next life of a number whose last sums
 * were not read yet; those are given up then. Readers wait for a start. */
static __always_inline void host_watch(struct task_struct *task, ltn_u32 tgid, ltn_u32 parent)
{
    struct ltn_host_process *p = bpf_map_lookup_elem(&host_processes, &tgid);
    if (p && !p->ended) {
        return;
    }
    bpf_map_update_elem(&host_processes, &tgid, &no_host_process, BPF_ANY);
    p = bpf_map_lookup_elem(&host_processes, &tgid);
    if (!p) {
        count_drop(LTN_DROP_MAP_HOST);
        return;
    }
    struct task_struct *leader = BPF_CORE_READ(task, group_leader);
    p->parent_tgid = parent;
    bpf_core_read(p->comm, sizeof(p->comm), &leader->comm);
    p->start_boottime_ns = BPF_CORE_READ(leader, start_boottime);
}

static __always_inline struct ltn_host_process *host_of(ltn_u32 tgid)
{
    struct ltn_host_process *p = bpf_map_lookup_elem(&host_processes, &tgid);
    return p && !p->ended ? p : 0;
}

static __always_inline struct ltn_host_process *host_of_current(void)
{
    return host_of((ltn_u32)(bpf_get_current_pid_tgid() >> 32));
}

#endif /* LTN_BPF_HOST_H */
