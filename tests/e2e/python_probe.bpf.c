/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The agent's programs, and one that walks the Python frames of each call of a test function. */
#include "bpf/agent.bpf.c"
#include "tests/e2e/python_probe.h"

struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, 64 * 1024 * 1024);
} ticks SEC(".maps");

SEC("uprobe")
int on_tick(struct pt_regs *ctx)
{
    struct task_struct *task = bpf_get_current_task_btf();
    ltn_u32 tgid = (ltn_u32)task->tgid;
    struct ltn_event_stack *s =
        bpf_task_storage_get(&stack_scratch, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
    struct python_tick *t = bpf_ringbuf_reserve(&ticks, sizeof(*t), 0);
    if (!t) {
        count_drop(LTN_DROP_RING_CRITICAL);
        return 0;
    }
    t->serial = PT_REGS_PARM1(ctx);
    t->walk_ns = 0;
    t->tgid = tgid;
    t->tid = (ltn_u32)task->pid;
    t->known = bpf_map_lookup_elem(&python_processes, &tgid) != 0;
    t->flags = 0;
    t->count = 0;
    if (s) {
        s->python_flags = 0;
        s->python_count = 0;
        ltn_u64 begin = bpf_ktime_get_ns();
        walk_python(task, tgid, s);
        t->walk_ns = bpf_ktime_get_ns() - begin;
        t->flags = s->python_flags;
        t->count = s->python_count;
        for (ltn_u32 i = 0; i < LTN_STACK_PYTHON; i++) {
            if (i >= s->python_count) {
                break;
            }
            t->frames[i] = s->python[i];
        }
    }
    bpf_ringbuf_submit(t, BPF_RB_NO_WAKEUP);
    return 0;
}
