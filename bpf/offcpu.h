/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Accounts the last stay off the CPU of a traced task: run queue or blocked, by what, and who ran
 * meanwhile. */
#ifndef LTN_BPF_OFFCPU_H
#define LTN_BPF_OFFCPU_H

#include "bpf/maps.h"

/* Shorter waits are not worth a map update; they stay in the sums. */
#define PREEMPTOR_MIN_NS 20000

static __always_inline void note_preemptor(struct ltn_task *t, struct task_struct *task,
                                           ltn_u64 waited_ns)
{
    struct ltn_preemptor_key key = {
        .tgid = (ltn_u32)task->tgid, .tid = (ltn_u32)task->pid, .by_tgid = t->by_tgid};
    struct ltn_preemptor_stats *s = bpf_map_lookup_elem(&preemptors, &key);
    if (!s) {
        struct ltn_preemptor_stats fresh = {0};
        bpf_map_update_elem(&preemptors, &key, &fresh, BPF_NOEXIST);
        s = bpf_map_lookup_elem(&preemptors, &key);
        if (!s) {
            return;
        }
    }
    /* As of now: a process that was just forked still has the name and the cgroup of its parent. */
    __builtin_memcpy(s->by_comm, t->by_comm, sizeof(s->by_comm));
    s->by_cgroup = t->by_cgroup;
    s->by_tid = t->by_tid;
    __sync_fetch_and_add(&s->waited_ns, waited_ns);
    __sync_fetch_and_add(&s->times, 1);
}

/*
 * When the task got the CPU back. Now and then a busy kernel makes a switch that no tracer is told
 * of; the scheduler's own note of the moment, on its own clock, stands in for it.
 */
static __always_inline int find_arrival(struct ltn_task *t, struct task_struct *task)
{
    if (t->in_ns >= t->out_ns) {
        t->clock_ns = t->in_ns - task->sched_info.last_arrival;
        return 1;
    }
    if (t->clock_ns == 0) {
        return 0;
    }
    t->in_ns = task->sched_info.last_arrival + t->clock_ns;
    t->by_tgid = 0;
    return t->in_ns >= t->out_ns;
}

/*
 * The kernel adds to run_delay when the task gets the CPU, which is after the tracepoint that says
 * so. Hence the stay is accounted later: at the task's next probe or when it leaves the CPU again.
 */
static __always_inline void settle(struct ltn_task *t, struct task_struct *task)
{
    if (t->out_ns == 0 || !find_arrival(t, task)) {
        return;
    }
    ltn_u64 off = t->in_ns - t->out_ns;
    ltn_u64 waited = task->sched_info.run_delay - t->out_run_delay_ns;
    if (waited > off) {
        waited = off;
    }
    t->off_cpu_ns += off;
    t->queued_ns += waited;
    ltn_u32 reason = t->out_reason;
    if (reason < LTN_OFF_REASONS) {
        t->blocked_ns[reason] += off - waited;
    }
    if (waited >= PREEMPTOR_MIN_NS && t->by_tgid != 0) {
        note_preemptor(t, task, waited);
    }
    t->out_ns = 0;
}

/* Accounts what ended before a moment just passed; a stay that began after it belongs to what comes
 * next. */
static __always_inline void settle_before(struct ltn_task *t, struct task_struct *task, ltn_u64 now)
{
    if (t->out_ns <= now) {
        settle(t, task);
    }
}

/* Time the task has waited for a CPU up to the moment it was settled for. */
static __always_inline ltn_u64 queued_until_now(const struct ltn_task *t, struct task_struct *task)
{
    return have_sched ? t->queued_ns : task->sched_info.run_delay;
}

#endif /* LTN_BPF_OFFCPU_H */
