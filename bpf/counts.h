/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The counters of a process and of its ops, made when they are first needed. */
#ifndef LTN_BPF_COUNTS_H
#define LTN_BPF_COUNTS_H

#include "bpf/host.h"
#include "bpf/process.h"

static __always_inline struct ltn_process *process_of(ltn_u32 tgid)
{
    struct ltn_process *p = bpf_map_lookup_elem(&processes, &tgid);
    if (!p) {
        struct ltn_process fresh = {0};
        if (bpf_map_update_elem(&processes, &tgid, &fresh, BPF_NOEXIST) == 0) {
            struct task_struct *task = bpf_get_current_task_btf();
            ltn_u32 parent = BPF_CORE_READ(task, real_parent, tgid);
            emit_process(LTN_EVENT_SEEN, task, tgid, parent, 0);
            host_watch(task, tgid, parent);
        }
        p = bpf_map_lookup_elem(&processes, &tgid);
    }
    return p;
}

static const struct ltn_op_stats no_stats; /* zeros: too large for the stack */

static __always_inline struct ltn_op_stats *stats_of(ltn_u32 tgid, ltn_u32 op)
{
    struct ltn_op_key key = {.tgid = tgid, .op = op};
    struct ltn_op_stats *s = bpf_map_lookup_elem(&op_stats, &key);
    if (!s) {
        (void)process_of(tgid); /* so that its end will be seen */
        bpf_map_update_elem(&op_stats, &key, &no_stats, BPF_NOEXIST);
        s = bpf_map_lookup_elem(&op_stats, &key);
        if (!s) {
            count_drop(LTN_DROP_MAP_OP_STATS);
        }
    }
    return s;
}

/*
 * Counts a call where its return will not do it: because the call may stand still for long, has no
 * return probe, or was left without one (longjmp, the end of its thread). The others are counted
 * when they return, which saves a look-up for each.
 */
static __noinline int count_call(ltn_u32 tgid, ltn_u32 op, ltn_u64 bytes, ltn_u32 nested)
{
    struct ltn_op_stats *s = stats_of(tgid, op);
    if (!s) {
        return 0;
    }
    __sync_fetch_and_add(&s->calls, 1);
    if (nested) {
        __sync_fetch_and_add(&s->nested, 1);
    }
    if (bytes != 0) {
        __sync_fetch_and_add(&s->bytes, bytes);
    }
    return 0;
}

#endif /* LTN_BPF_COUNTS_H */
