/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Where a call was made from: taken for calls that get a record, sent once for each distinct stack,
 * named in the record by its id.
 */
#ifndef LTN_BPF_STACKS_H
#define LTN_BPF_STACKS_H

#include "bpf/maps.h"
#include "bpf/python.h"

static __always_inline ltn_u64 mix(ltn_u64 h, ltn_u64 v)
{
    h = (h ^ v) * 0x9e3779b97f4a7c15ULL;
    return h ^ (h >> 32);
}

/* The id: two stacks that differ in any frame, or stem from different processes, or from before and
 * after an exec, differ in it. */
static __always_inline ltn_u64 hash_stack(const struct ltn_event_stack *s, struct task_struct *task)
{
    ltn_u64 h = mix(task->self_exec_id << 32 | s->hdr.tgid, task->group_leader->start_boottime);
    ltn_u32 n = s->native_count;
    h = mix(h, (ltn_u64)s->python_count << 32 | n);
#pragma clang loop unroll(disable)
    for (ltn_u32 i = 0; i < LTN_STACK_NATIVE; i++) {
        if (i >= n) {
            break;
        }
        h = mix(h, s->native[i]);
    }
    n = s->python_count;
#pragma clang loop unroll(disable)
    for (ltn_u32 i = 0; i < LTN_STACK_PYTHON; i++) {
        if (i >= n) {
            break;
        }
        const struct ltn_python_frame *f = &s->python[i];
        h = mix(mix(mix(h, f->code), f->identity), f->offset);
    }
    return h != 0 ? h : 1;
}

static __always_inline void send_stack(struct ltn_event_stack *s)
{
    ltn_u32 one = 1;
    if (bpf_map_update_elem(&stacks_sent, &s->stack_id, &one, BPF_NOEXIST) != 0) {
        /* Somebody else sends it at this moment, or there is no room to remember it. */
        if (!bpf_map_lookup_elem(&stacks_sent, &s->stack_id)) {
            count_drop(LTN_DROP_STACK_STATE);
        }
        return;
    }
    ltn_u64 bytes = s->python_count != 0 ? __builtin_offsetof(struct ltn_event_stack, python) +
                                               sizeof(s->python[0]) * (ltn_u64)s->python_count
                                         : __builtin_offsetof(struct ltn_event_stack, native) +
                                               sizeof(s->native[0]) * (ltn_u64)s->native_count;
    if (bytes > sizeof(*s)) {
        return; /* cannot be; the verifier wants to see it */
    }
    s->hdr.size = (ltn_u16)bytes;
    count_seen(LTN_SEEN_EMITTED);
    count_seen(LTN_SEEN_STACKS);
    if (bpf_ringbuf_output(&calls, s, bytes, wake_flag(&calls)) != 0) {
        count_drop(LTN_DROP_RING_STACKS);
        bpf_map_delete_elem(&stacks_sent, &s->stack_id);
    }
}

/* Id of the stack of the current task, 0 when there is none or stacks are off. */
static __noinline ltn_u64 take_stack(struct pt_regs *ctx, struct task_struct *task)
{
    if (control.off & LTN_DOWN_STACKS) {
        return 0;
    }
    struct ltn_event_stack *s =
        bpf_task_storage_get(&stack_scratch, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
    if (!s) {
        count_drop(LTN_DROP_STACK_STATE);
        return 0;
    }
    s->hdr.type = LTN_EVENT_STACK;
    s->hdr.tgid = (ltn_u32)task->tgid;
    s->hdr.tid = (ltn_u32)task->pid;
    s->hdr.reserved = (ltn_u32)task->self_exec_id;
    s->hdr.time_ns = bpf_ktime_get_ns();
    s->code_start = task->mm->start_code;
    s->stack_start = task->mm->start_stack;
    long bytes = bpf_get_stack(ctx, s->native, sizeof(s->native), BPF_F_USER_STACK);
    s->native_count = bytes > 0 ? (ltn_u32)bytes / sizeof(s->native[0]) : 0;
    s->python_count = 0;
    s->python_flags = 0;
    walk_python(task, (ltn_u32)task->tgid, s);
    if (s->native_count == 0 && s->python_count == 0) {
        return 0;
    }
    s->stack_id = hash_stack(s, task);
    if (!bpf_map_lookup_elem(&stacks_sent, &s->stack_id)) {
        send_stack(s);
    }
    return s->stack_id;
}

#endif /* LTN_BPF_STACKS_H */
