/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Life of traced processes, on the ring that calls cannot flood. */
#include "bpf/host.h"
#include "bpf/process.h"
#include "bpf/python.h"

#define SIGNAL_GROUP_EXIT 4

SEC("raw_tp/sched_process_exec")
int on_exec(struct bpf_raw_tracepoint_args *ctx)
{
    struct task_struct *task = (struct task_struct *)((ltn_u64 *)ctx)[0];
    ltn_u32 tgid = BPF_CORE_READ(task, tgid);
    struct ltn_host_process *p = host_of(tgid);
    if (p) {
        bpf_core_read(p->comm, sizeof(p->comm), &task->comm);
    }
    python_gone(tgid);
    captures_gone(tgid);
    if (p || bpf_map_lookup_elem(&processes, &tgid)) {
        emit_process(LTN_EVENT_EXEC, task, tgid, BPF_CORE_READ(task, real_parent, tgid), 0);
    }
    return 0;
}

/* Calls that the ending thread was inside of were not counted yet if a return would have done it.
 */
static __always_inline void count_unfinished(void)
{
    struct task_struct *self = bpf_get_current_task_btf();
    struct ltn_task *t = bpf_task_storage_get(&tasks, self, 0, 0);
    if (!t) {
        return;
    }
    for (ltn_u32 i = 0; i < LTN_NESTING; i++) {
        if (i < t->depth) {
            let_go(&t->frames[i], (ltn_u32)self->tgid);
        }
    }
    t->depth = 0;
}

SEC("raw_tp/sched_process_exit")
int on_exit(struct bpf_raw_tracepoint_args *ctx)
{
    count_unfinished();
    struct task_struct *task = (struct task_struct *)((ltn_u64 *)ctx)[0];
    ltn_u32 tgid = BPF_CORE_READ(task, tgid);
    ltn_u32 tid = BPF_CORE_READ(task, pid);
    bpf_map_delete_elem(&in_flight, &tid);
    if (BPF_CORE_READ(task, signal, live.counter) != 0) {
        /* Other threads go on, and this one's sums are history; not so when all of them are ending.
         */
        if (!(BPF_CORE_READ(task, signal, flags) & SIGNAL_GROUP_EXIT)) {
            bpf_map_delete_elem(&threads, &tid);
        }
        return 0;
    }
    /* Several last threads may each find that no other lives: the first one tells. */
    struct ltn_host_process *p = bpf_map_lookup_elem(&host_processes, &tgid);
    int told = p && __sync_val_compare_and_swap(&p->ended, 0, 1) != 0;
    if (!told && (p || bpf_map_lookup_elem(&processes, &tgid))) {
        emit_process(LTN_EVENT_EXIT, task, tgid, BPF_CORE_READ(task, real_parent, tgid),
                     BPF_CORE_READ(task, exit_code));
    }
    bpf_map_delete_elem(&scope_tgids, &tgid);
    python_gone(tgid);
    captures_gone(tgid);
    return 0;
}

SEC("raw_tp/sched_process_fork")
int on_fork(struct bpf_raw_tracepoint_args *ctx)
{
    struct task_struct *parent = (struct task_struct *)((ltn_u64 *)ctx)[0];
    struct task_struct *child = (struct task_struct *)((ltn_u64 *)ctx)[1];
    ltn_u32 tgid = BPF_CORE_READ(child, tgid);
    ltn_u32 parent_tgid = BPF_CORE_READ(parent, tgid);
    if (tgid == parent_tgid) {
        return 0; /* a thread */
    }
    int watched = host_of(parent_tgid) != 0;
    if (watched) {
        host_watch(child, tgid, parent_tgid);
    }
    python_forked(parent_tgid, tgid);
    if (config.scope_mode & LTN_TRACE_PIDS) {
        ltn_u32 one = 1;
        if (!bpf_map_lookup_elem(&scope_tgids, &parent_tgid)) {
            return 0;
        }
        bpf_map_update_elem(&scope_tgids, &tgid, &one, BPF_ANY);
    }
    if (watched || bpf_map_lookup_elem(&processes, &parent_tgid)) {
        emit_process(LTN_EVENT_FORK, child, tgid, parent_tgid, 0);
    }
    return 0;
}

/* The first argument is the victim's task, or its pid on kernels with the old prototype. */
SEC("raw_tp/mark_victim")
int on_oom(struct bpf_raw_tracepoint_args *ctx)
{
    ltn_u64 victim = ((ltn_u64 *)ctx)[0];
    if (mark_victim_is_pid) {
        emit_process(LTN_EVENT_OOM, 0, (ltn_u32)victim, 0, 0);
        return 0;
    }
    struct task_struct *task = (struct task_struct *)victim;
    emit_process(LTN_EVENT_OOM, task, BPF_CORE_READ(task, tgid), 0, 0);
    return 0;
}
