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
    ltn_u64 begin = bpf_ktime_get_ns();
    struct ltn_python_walk *w = walk_python(task, tgid);
    ltn_u64 end = bpf_ktime_get_ns();
    struct python_tick *t = bpf_ringbuf_reserve(&ticks, sizeof(*t), 0);
    if (!t) {
        count_drop(LTN_DROP_RING_CRITICAL);
        return 0;
    }
    t->serial = PT_REGS_PARM1(ctx);
    t->walk_ns = end - begin;
    t->tgid = tgid;
    t->tid = (ltn_u32)task->pid;
    t->known = w != 0;
    t->flags = w ? w->flags : 0;
    t->count = w ? w->count : 0;
    for (ltn_u32 i = 0; i < LTN_PYTHON_FRAMES; i++) {
        if (!w || i >= w->count) {
            break;
        }
        t->frames[i] = w->frames[i];
    }
    bpf_ringbuf_submit(t, BPF_RB_NO_WAKEUP);
    return 0;
}
