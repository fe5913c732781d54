/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Time off the CPU of traced tasks, told apart by reason, and the task that had the CPU instead. */
#include "bpf/offcpu.h"

#define STATE_INTERRUPTIBLE   1
#define STATE_UNINTERRUPTIBLE 2

/* Numbers of the system calls in which a sleep has a name. */
/* clang-format off */
#if defined(__TARGET_ARCH_x86)
#define SYSCALL_CASES(X)                                                                           \
    X(202, FUTEX) X(449, FUTEX)                                                                    \
    X(0, READ) X(17, READ) X(19, READ) X(45, READ) X(47, READ) X(299, READ)                        \
    X(1, WRITE) X(18, WRITE) X(20, WRITE) X(44, WRITE) X(46, WRITE)                                \
    X(7, POLL) X(23, POLL) X(232, POLL) X(270, POLL) X(271, POLL) X(281, POLL) X(441, POLL)        \
    X(35, SLEEP) X(230, SLEEP)                                                                     \
    X(26, DISK) X(74, DISK) X(75, DISK) X(162, DISK) X(277, DISK) X(306, DISK)                     \
    X(61, CHILD) X(247, CHILD)
#else
#define SYSCALL_CASES(X)                                                                           \
    X(98, FUTEX) X(449, FUTEX)                                                                     \
    X(63, READ) X(65, READ) X(67, READ) X(207, READ) X(212, READ) X(243, READ)                     \
    X(64, WRITE) X(66, WRITE) X(68, WRITE) X(206, WRITE) X(211, WRITE)                             \
    X(22, POLL) X(72, POLL) X(73, POLL) X(441, POLL)                                               \
    X(101, SLEEP) X(115, SLEEP)                                                                    \
    X(81, DISK) X(82, DISK) X(83, DISK) X(84, DISK) X(227, DISK) X(267, DISK)                      \
    X(95, CHILD) X(260, CHILD)
#endif
/* clang-format on */
#define SYSCALL_MAX 1024

static __always_inline ltn_u32 reason_of_syscall(ltn_u64 nr)
{
    if (nr > SYSCALL_MAX) {
        return LTN_OFF_FAULT; /* not in a system call */
    }
    switch (nr) {
#define SYSCALL_CASE(number, reason)                                                               \
    case number:                                                                                   \
        return LTN_OFF_##reason;
        SYSCALL_CASES(SYSCALL_CASE)
    default:
        return LTN_OFF_OTHER;
    }
}

static __always_inline ltn_u64 syscall_of(struct task_struct *task)
{
    struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
#if defined(__TARGET_ARCH_x86)
    return BPF_CORE_READ(regs, orig_ax);
#else
    return (ltn_u64)(long)BPF_CORE_READ(regs, syscallno);
#endif
}

static __always_inline ltn_u32 reason_of(struct task_struct *task, int preempt)
{
    ltn_u32 state = task->__state;
    if (preempt || !(state & (STATE_INTERRUPTIBLE | STATE_UNINTERRUPTIBLE))) {
        return LTN_OFF_OTHER; /* still runnable: all of the stay will be run queue */
    }
    if ((state & STATE_UNINTERRUPTIBLE) && BPF_CORE_READ_BITFIELD(task, in_iowait)) {
        return LTN_OFF_DISK;
    }
    return reason_of_syscall(syscall_of(task));
}

static __always_inline ltn_u64 cgroup_of(struct task_struct *task)
{
    return BPF_CORE_READ(task, cgroups, dfl_cgrp, kn, id);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_sched_switch, _Bool preempt, struct task_struct *prev, struct task_struct *next)
{
    ltn_u64 now = 0;
    struct ltn_task *t = bpf_task_storage_get(&tasks, prev, 0, 0);
    if (t) {
        now = bpf_ktime_get_ns();
        settle(t, prev);
        t->out_run_delay_ns = prev->sched_info.run_delay;
        t->out_reason = reason_of(prev, preempt);
        t->in_ns = 0;
        t->out_ns = now;
    }
    t = bpf_task_storage_get(&tasks, next, 0, 0);
    if (t && t->out_ns != 0) {
        t->in_ns = now ? now : bpf_ktime_get_ns();
        t->by_tgid = prev->pid != 0 && prev->pid != next->pid ? prev->tgid : 0;
        if (t->by_tgid != 0) {
            t->by_tid = (ltn_u32)prev->pid;
            t->by_cgroup = cgroup_of(prev);
            __builtin_memcpy(t->by_comm, prev->comm, sizeof(t->by_comm));
        }
    }
    return 0;
}
