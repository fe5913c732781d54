/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * One pair of programs for every traced function, told apart by the attach cookie. Entry notes the
 * moment and the task's counters; return makes the differences, adds them to the process's
 * histogram and, where it is worth one, writes a record.
 */
#include "bpf/layouts.h"
#include "bpf/nccl.h"
#include "bpf/graph.h"
#include "bpf/offcpu.h"
#include "bpf/stacks.h"

#define NCCL_IN_PROGRESS 7

/* How many places the log-linear index moves per power of two. */
#define SUB_BUCKETS_LOG2 4

static __always_inline ltn_u32 log2_of(ltn_u64 v)
{
    ltn_u32 r = 0;
    ltn_u32 shift;
    shift = (v > 0xffffffffULL) << 5;
    v >>= shift;
    r |= shift;
    shift = (v > 0xffff) << 4;
    v >>= shift;
    r |= shift;
    shift = (v > 0xff) << 3;
    v >>= shift;
    r |= shift;
    shift = (v > 0xf) << 2;
    v >>= shift;
    r |= shift;
    shift = (v > 0x3) << 1;
    v >>= shift;
    r |= shift;
    return r | (ltn_u32)(v >> 1);
}

/* Index of a duration: below 16 ns the value, above 16 sub-buckets per power of two. */
static __always_inline ltn_u32 bucket_of(ltn_u64 v)
{
    ltn_u32 i;
    if (v < 16) {
        i = (ltn_u32)v;
    } else {
        ltn_u32 l = log2_of(v);
        i = ((l - 3) << SUB_BUCKETS_LOG2) + (ltn_u32)((v >> (l - SUB_BUCKETS_LOG2)) & 15);
    }
    return i < LTN_HIST_BUCKETS ? i : LTN_HIST_BUCKETS - 1;
}

/* The frame goes without a return. */
static __always_inline void let_go(const struct ltn_frame *f, ltn_u32 tgid)
{
    if (!(f->flags & LTN_FRAME_COUNTED)) {
        count_call(tgid, LTN_COOKIE_OP(f->cookie), f->bytes, f->flags & LTN_CALL_NESTED);
    }
}

/* The host segment since the last blocking call ends here. */
static __always_inline void close_segment(struct ltn_task *t, const struct ltn_frame *f)
{
    struct ltn_event_sync *s = &t->closed;
    if (!t->segment_open) {
        s->segment_ns = 0;
        return;
    }
    s->segment_ns = f->enter_ns - t->segment_ns;
    s->segment_off_cpu_ns = f->off_cpu_ns - t->segment_off_cpu_ns;
    s->segment_run_queue_ns = f->queued_ns - t->segment_queued_ns;
    for (int i = 0; i < LTN_OFF_REASONS; i++) {
        s->segment_blocked_ns[i] = t->blocked_ns[i] - t->segment_blocked_ns[i];
    }
    s->segment_major_faults = f->major_faults - (ltn_u32)t->segment_major_faults;
    s->segment_minor_faults = f->minor_faults - (ltn_u32)t->segment_minor_faults;
    t->segment_open = 0;
}

static __always_inline void open_segment(struct ltn_task *t, struct task_struct *task, ltn_u64 now)
{
    t->segment_ns = now;
    t->segment_off_cpu_ns = t->off_cpu_ns;
    t->segment_queued_ns = queued_until_now(t, task);
    for (int i = 0; i < LTN_OFF_REASONS; i++) {
        t->segment_blocked_ns[i] = t->blocked_ns[i];
    }
    t->segment_major_faults = (ltn_u32)task->maj_flt;
    t->segment_minor_faults = (ltn_u32)task->min_flt;
    t->segment_open = 1;
}

/* Was something read that no call means? Whether that is our fault is known at the return: a
 * program may pass nonsense, and gets an error. */
static __always_inline int is_impossible(const struct ltn_frame *f)
{
    ltn_u32 cls = LTN_COOKIE_CLASS(f->cookie);
    if (f->bytes > LTN_BYTES_MAX) {
        return cls != LTN_CLASS_MAPPING || f->bytes > LTN_ADDRESSES_MAX;
    }
    if (cls == LTN_CLASS_COPY) {
        return f->kind > LTN_DIRECTION_MAX;
    }
    if (cls == LTN_CLASS_COLLECTIVE) {
        return f->kind > LTN_DATA_TYPE_MAX;
    }
    ltn_u32 decoder = LTN_COOKIE_DECODER(f->cookie);
    if (decoder == LTN_DECODE_INIT_BY_VALUE || decoder == LTN_DECODE_INIT_SCALABLE) {
        return f->ranks < 1 || f->ranks > LTN_RANKS_MAX || f->rank < 0 || f->rank >= f->ranks;
    }
    return decoder == LTN_DECODE_INIT_ALL && (f->ranks < 1 || f->ranks > LTN_RANKS_MAX);
}

/* The call succeeded, so what was read of it cannot be what it was given. */
static __noinline int tell_impossible(ltn_u32 op)
{
    ltn_u64 *n = bpf_map_lookup_elem(&impossible, &op);
    if (n) {
        __sync_fetch_and_add(n, 1);
    }
    count_drop(LTN_DROP_IMPOSSIBLE);
    return 0;
}

static __always_inline void doubt(struct ltn_frame *f)
{
    f->flags |= LTN_FRAME_IMPOSSIBLE;
    if (LTN_COOKIE_CLASS(f->cookie) == LTN_CLASS_COLLECTIVE) {
        f->bytes = 0; /* no part of the sums that are compared between ranks */
        f->kind = 0;
    }
}

/* What makes communicators, or ends one. */
static __noinline int decode_communicator(struct ltn_task *t, struct ltn_frame *f, ltn_u32 tgid)
{
    switch (LTN_COOKIE_DECODER(f->cookie)) {
    case LTN_DECODE_INIT_BY_VALUE:
        enter_init_by_value(t, f);
        break;
    case LTN_DECODE_INIT_SCALABLE:
        enter_init_scalable(t, f);
        break;
    case LTN_DECODE_INIT_ALL:
        f->out_ptr = t->args[0];
        f->ranks = (ltn_s32)t->args[1];
        break;
    case LTN_DECODE_SPLIT:
        enter_split(t, f, tgid);
        break;
    case LTN_DECODE_SHRINK:
        enter_shrink(t, f, tgid);
        break;
    case LTN_DECODE_COMM: {
        struct ltn_comm_key key = {.comm = t->args[0], .tgid = tgid};
        struct ltn_comm_state *c = bpf_map_lookup_elem(&comms, &key);
        f->handle = t->args[0];
        if (c) {
            f->comm_id = c->comm_id;
            f->rank = c->rank;
            f->ranks = c->ranks;
        }
        break;
    }
    default:
        break;
    }
    return 0;
}

/* Ends early where nothing was read that can be told to be wrong. */
static __always_inline void decode_entry(struct ltn_task *t, struct ltn_frame *f, ltn_u32 tgid)
{
    ltn_u32 a = LTN_COOKIE_A(f->cookie);
    ltn_u32 b = LTN_COOKIE_B(f->cookie);
    switch (LTN_COOKIE_DECODER(f->cookie)) {
    case LTN_DECODE_NONE:
        return;
    case LTN_DECODE_BYTES:
        f->bytes = argument(t, f->sp, a) << LTN_COOKIE_SHIFT(f->cookie);
        f->handle = argument(t, f->sp, b);
        break;
    case LTN_DECODE_COPY:
        f->bytes = argument(t, f->sp, a);
        f->kind = (ltn_u32)argument(t, f->sp, a + 1);
        f->handle = argument(t, f->sp, b);
        break;
    case LTN_DECODE_STREAM:
        /* Reading user memory is a third of the price of a launch, and hardly a launch gets a
         * record. */
        if (b >= REGISTER_ARGS && b != LTN_ARG_NONE && f->weight == 0 &&
            !LTN_COOKIE_MAY_HANG(f->cookie)) {
            f->flags |= LTN_FRAME_LATE_HANDLE;
        } else {
            f->handle = argument(t, f->sp, b);
        }
        return;
    case LTN_DECODE_LAUNCH: /* the configuration; read for its stream when a record is made */
        f->handle = argument(t, f->sp, a);
        f->flags |= LTN_FRAME_LATE_HANDLE;
        return;
    case LTN_DECODE_HANDLE:
        f->handle = argument(t, f->sp, a);
        return;
    case LTN_DECODE_COLLECTIVE: {
        f->bytes = argument(t, f->sp, a);
        f->kind = (ltn_u32)argument(t, f->sp, a + 1);
        f->handle = argument(t, f->sp, b);
        break;
    }
    case LTN_DECODE_ASYNC_ERROR:
        f->handle = t->args[0];
        f->out_ptr = t->args[1];
        return;
    case LTN_DECODE_EVENT_RECORD:
    case LTN_DECODE_EVENT_WAIT:
        f->handle = argument(t, f->sp, b);
        return;
    case LTN_DECODE_CAPTURE_BEGIN:
    case LTN_DECODE_CAPTURE_END:
    case LTN_DECODE_GRAPH_LAUNCH:
        f->handle = argument(t, f->sp, b);
        f->out_ptr = argument(t, f->sp, a);
        return;
    case LTN_DECODE_GRAPH_INSTANTIATE:
    case LTN_DECODE_GRAPH_UPDATE:
    case LTN_DECODE_GRAPH_DESTROY:
    case LTN_DECODE_EXEC_DESTROY:
        f->handle = argument(t, f->sp, a);
        f->out_ptr = argument(t, f->sp, b);
        return;
    case LTN_DECODE_SPLIT:
    case LTN_DECODE_SHRINK:
    case LTN_DECODE_COMM:
        decode_communicator(t, f, tgid);
        return;
    case LTN_DECODE_INIT_BY_VALUE:
    case LTN_DECODE_INIT_SCALABLE:
    case LTN_DECODE_INIT_ALL:
        decode_communicator(t, f, tgid);
        break;
    default:
        decode_layout(t, f);
        break;
    }
    if (is_impossible(f)) {
        doubt(f);
    }
}

static __always_inline void note_in_flight(const struct ltn_frame *f, ltn_u32 tgid, ltn_u32 tid)
{
    struct ltn_in_flight v = {
        .since_ns = f->enter_ns,
        .handle = f->handle,
        .tgid = tgid,
        .op = LTN_COOKIE_OP(f->cookie),
    };
    bpf_map_update_elem(&in_flight, &tid, &v, BPF_ANY);
}

/* How many calls a record of this launch or copy stands for; 0 = it gets none unless it turns out
 * slow or failed. */
static __always_inline ltn_u32 sample_weight(void)
{
    if (config.sample_every <= 1) {
        return config.sample_every;
    }
    return bpf_get_prandom_u32() % config.sample_every == 0 ? config.sample_every : 0;
}

static __always_inline void fill_frame(struct ltn_frame *f, struct ltn_task *t,
                                       struct task_struct *task, ltn_u32 nested)
{
    f->bytes = 0;
    f->handle = 0;
    f->kind = LTN_COOKIE_DIRECTION(f->cookie);
    f->flags = nested ? LTN_CALL_NESTED : 0;
    f->weight = 0;
    if (LTN_COOKIE_MAY_HANG(f->cookie)) {
        f->rank = 0;
        f->ranks = 0;
        f->out_ptr = 0;
        f->collectives = 0;
        f->comm_id = 0;
        f->sequence = 0;
    } else if (!nested) {
        f->weight = sample_weight();
    }
    f->enter_ns = bpf_ktime_get_ns();
    settle_before(t, task, f->enter_ns);
    f->off_cpu_ns = t->off_cpu_ns;
    f->queued_ns = queued_until_now(t, task);
    if (!have_sched) {
        f->exec_ns = task->se.sum_exec_runtime;
    }
    f->voluntary = task->nvcsw;
    f->major_faults = (ltn_u32)task->maj_flt;
    f->minor_faults = (ltn_u32)task->min_flt;
}

/* What an outermost call that may hang leaves behind at its entry. */
static __always_inline void enter_outermost(struct ltn_task *t, struct ltn_frame *f, ltn_u32 tgid,
                                            ltn_u32 tid)
{
    struct ltn_process *p = process_of(tgid);
    if (p && (LTN_COOKIE_FLAGS(f->cookie) & LTN_OP_BLOCKING)) {
        f->collectives = p->collectives;
        f->flags |= p->collectives != p->synced ? LTN_CALL_PEERS : 0;
        close_segment(t, f);
    }
    if (p && LTN_COOKIE_CLASS(f->cookie) == LTN_CLASS_COLLECTIVE) {
        enter_collective(f, tgid, p);
    }
    if (LTN_COOKIE_CLASS(f->cookie) == LTN_CLASS_GRAPH) {
        enter_graph(f, tgid);
    }
    note_in_flight(f, tgid, tid);
}

static __noinline int emit_untimed(struct ltn_frame *f, ltn_u64 pid_tgid);

/* Is this one of the calls that the agent has given up timing, all but a few? */
static __always_inline int only_counted(ltn_u64 cookie, ltn_u32 depth)
{
    ltn_u32 off = control.off;
    if (!(off & (LTN_DOWN_NESTED | LTN_DOWN_LAUNCH))) {
        return 0;
    }
    ltn_u32 cls = LTN_COOKIE_CLASS(cookie);
    if (cls == LTN_CLASS_COLLECTIVE || cls == LTN_CLASS_COMM) {
        return 0;
    }
    if (!((off & LTN_DOWN_NESTED) && depth > 0) &&
        !((off & LTN_DOWN_LAUNCH) && !LTN_COOKIE_MAY_HANG(cookie))) {
        return 0;
    }
    return (bpf_get_prandom_u32() & (LTN_TIMED_ONE_IN - 1)) != 0;
}

/* Returns 0 when the return of this call is wanted. */
static __always_inline int enter(struct pt_regs *ctx, ltn_u64 cookie)
{
    struct task_struct *task = bpf_get_current_task_btf();
    ltn_u32 tgid = (ltn_u32)task->tgid;
    if (!in_scope(tgid)) {
        count_seen(LTN_SEEN_FILTERED);
        return 1;
    }
    count_seen(LTN_SEEN_CALLS);
    struct ltn_task *t = bpf_task_storage_get(&tasks, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
    if (!t) {
        count_drop(LTN_DROP_TASK_STORAGE);
        count_call(tgid, LTN_COOKIE_OP(cookie), 0, 0);
        return 1;
    }
    /* A call that was left by longjmp never returns: its frame lies below the stack pointer now. */
    ltn_u64 sp = PT_REGS_SP(ctx);
    ltn_u32 depth = t->depth;
    for (int i = 0; i < LTN_NESTING; i++) {
        ltn_u32 top = t->depth - 1;
        if (t->depth == 0 || t->frames[top & (LTN_NESTING - 1)].sp > sp) {
            break;
        }
        let_go(&t->frames[top & (LTN_NESTING - 1)], tgid);
        t->depth = top;
    }
    if (depth != 0 && t->depth == 0) {
        ltn_u32 tid = (ltn_u32)task->pid;
        bpf_map_delete_elem(&in_flight, &tid);
    }
    depth = t->depth;
    if (depth >= LTN_NESTING) {
        count_drop(LTN_DROP_NESTING);
        count_call(tgid, LTN_COOKIE_OP(cookie), 0, 1);
        return 1;
    }
    struct ltn_frame *f = &t->frames[depth & (LTN_NESTING - 1)];
    ltn_u32 entry_only =
        (LTN_COOKIE_FLAGS(cookie) & LTN_OP_ENTRY_ONLY) || only_counted(cookie, depth);
    f->cookie = cookie;
    f->sp = sp;
    load_register_args(ctx, t);
    fill_frame(f, t, task, depth);
    decode_entry(t, f, tgid);
    if (capturing != 0) {
        note_call(t, f, tgid, depth);
    }
    if (LTN_COOKIE_MAY_HANG(cookie) || entry_only) {
        if (depth == 0 && !entry_only) {
            enter_outermost(t, f, tgid, (ltn_u32)task->pid);
        }
        ltn_u64 bytes = (LTN_COOKIE_CLASS(cookie) == LTN_CLASS_COLLECTIVE && depth > 0) ||
                                (f->flags & LTN_FRAME_IMPOSSIBLE)
                            ? 0
                            : f->bytes;
        count_call(tgid, LTN_COOKIE_OP(cookie), bytes, depth);
        f->flags |= LTN_FRAME_COUNTED;
    }
    if (entry_only) {
        if (f->weight != 0) {
            emit_untimed(f, (ltn_u64)tgid << 32 | (ltn_u32)task->pid);
        }
        return 1; /* no return will take the frame away */
    }
    t->depth = depth + 1;
    return 0;
}

/* The frame of the call that returns to this stack pointer; frames of calls that never returned are
 * let go. */
static __always_inline struct ltn_frame *pop_frame(struct ltn_task *t, ltn_u64 cookie, ltn_u64 sp,
                                                   ltn_u32 tgid)
{
    for (int i = 0; i < LTN_NESTING; i++) {
        if (t->depth == 0) {
            return 0;
        }
        ltn_u32 top = t->depth - 1;
        struct ltn_frame *f = &t->frames[top & (LTN_NESTING - 1)];
        if (f->sp + RETURN_POPS > sp) {
            return 0; /* belongs to a call further in */
        }
        t->depth = top;
        if (f->sp + RETURN_POPS == sp && f->cookie == cookie) {
            return f;
        }
        let_go(f, tgid);
    }
    return 0;
}

static __always_inline void fill_call(struct ltn_event_call *e, const struct ltn_frame *f,
                                      ltn_u64 pid_tgid, ltn_u16 type, ltn_u16 size)
{
    e->hdr.type = type;
    e->hdr.size = size;
    e->hdr.tgid = (ltn_u32)(pid_tgid >> 32);
    e->hdr.tid = (ltn_u32)pid_tgid;
    e->hdr.reserved = 0;
    e->hdr.time_ns = f->enter_ns;
    e->bytes = f->bytes;
    e->handle = f->handle;
    e->weight = 1;
    e->op = (ltn_u16)LTN_COOKIE_OP(f->cookie);
    e->op_class = (ltn_u8)LTN_COOKIE_CLASS(f->cookie);
    e->flags = (ltn_u8)f->flags;
    e->kind = f->kind;
    e->stack_id = f->stack_id;
}

/* What a return measured; same fields as in the record. */
struct measured {
    ltn_u64 duration_ns;
    ltn_u64 off_cpu_ns;
    ltn_u64 run_queue_ns;
    ltn_u32 major_faults;
    ltn_u32 minor_faults;
    ltn_s32 result;
};

static __always_inline void fill_measured(struct ltn_event_call *e, const struct measured *m)
{
    e->duration_ns = m->duration_ns;
    e->off_cpu_ns = m->off_cpu_ns;
    e->run_queue_ns = m->run_queue_ns;
    e->major_faults = m->major_faults;
    e->minor_faults = m->minor_faults;
    e->result = m->result;
}

static __always_inline void measure(struct ltn_task *t, struct task_struct *task,
                                    const struct ltn_frame *f, ltn_u64 now, struct measured *m)
{
    m->duration_ns = now - f->enter_ns;
    m->run_queue_ns = queued_until_now(t, task) - f->queued_ns;
    if (have_sched) {
        m->off_cpu_ns = t->off_cpu_ns - f->off_cpu_ns;
    } else {
        /* sum_exec_runtime lags by up to a tick, so the difference may come out too large. */
        ltn_u64 exec = task->se.sum_exec_runtime - f->exec_ns;
        m->off_cpu_ns = exec < m->duration_ns ? m->duration_ns - exec : 0;
    }
    m->major_faults = (ltn_u32)task->maj_flt - f->major_faults;
    m->minor_faults = (ltn_u32)task->min_flt - f->minor_faults;
}

static __always_inline void add_stats(const struct ltn_frame *f, ltn_u32 tgid,
                                      const struct measured *m)
{
    struct ltn_op_stats *s = stats_of(tgid, LTN_COOKIE_OP(f->cookie));
    if (!s) {
        return;
    }
    if (!(f->flags & LTN_FRAME_COUNTED)) {
        __sync_fetch_and_add(&s->calls, 1);
        if (f->flags & LTN_CALL_NESTED) {
            __sync_fetch_and_add(&s->nested, 1);
        }
        if (f->bytes != 0 && !(f->flags & LTN_FRAME_IMPOSSIBLE)) {
            __sync_fetch_and_add(&s->bytes, f->bytes);
        }
    }
    __sync_fetch_and_add(&s->returns, 1);
    __sync_fetch_and_add(&s->duration_ns, m->duration_ns);
    if (m->off_cpu_ns != 0) {
        __sync_fetch_and_add(&s->off_cpu_ns, m->off_cpu_ns);
        __sync_fetch_and_add(&s->run_queue_ns, m->run_queue_ns);
    }
    if (f->flags & LTN_CALL_FAILED) {
        __sync_fetch_and_add(&s->errors, 1);
    }
    if (m->duration_ns > s->max_ns) {
        s->max_ns = m->duration_ns;
    }
    ltn_u32 bucket = bucket_of(m->duration_ns);
    if (bucket < LTN_HIST_BUCKETS) {
        __sync_fetch_and_add(&s->hist[bucket], 1);
    }
}

static const struct ltn_thread_stats no_thread;

/* Brings the thread's sums forward: all of them together, between begin and end. */
static __always_inline void add_thread(const struct ltn_task *t, const struct ltn_frame *f,
                                       ltn_u64 pid_tgid, ltn_u64 now, const struct measured *m)
{
    ltn_u32 tid = (ltn_u32)pid_tgid;
    ltn_u32 tgid = (ltn_u32)(pid_tgid >> 32);
    struct ltn_thread_stats *s = bpf_map_lookup_elem(&threads, &tid);
    if (!s || (s->tgid != tgid && s->tgid != 0)) { /* the number of a thread that ended before */
        bpf_map_update_elem(&threads, &tid, &no_thread, BPF_ANY);
        s = bpf_map_lookup_elem(&threads, &tid);
        if (!s) {
            count_drop(LTN_DROP_MAP_THREADS);
            return;
        }
    }
    if (s->tgid != tgid || s->tid != tid) {
        s->tgid = tgid;
        s->tid = tid;
    }
    s->begin += 1;
    barrier();
    s->syncs += 1;
    s->updated_ns = now;
    if (f->collectives > s->collectives) {
        s->collectives = f->collectives;
    }
    const struct ltn_event_sync *c = &t->closed;
    if (c->segment_ns != 0) {
        s->segment_ns += c->segment_ns;
        s->segment_off_cpu_ns += c->segment_off_cpu_ns;
        s->segment_run_queue_ns += c->segment_run_queue_ns;
        for (int i = 0; i < LTN_OFF_REASONS; i++) {
            s->segment_blocked_ns[i] += c->segment_blocked_ns[i];
        }
        s->segment_major_faults += c->segment_major_faults;
        s->segment_minor_faults += c->segment_minor_faults;
    }
    /* A waiter that spins loses nothing by being preempted until the device is done; one that slept
     * does. */
    ltn_u64 woken_late = f->flags & LTN_CALL_SLEPT ? m->run_queue_ns : 0;
    if (f->flags & LTN_CALL_PEERS) {
        s->peer_syncs += 1;
        s->peer_wait_ns += m->duration_ns;
        s->peer_wait_run_queue_ns += woken_late;
    } else {
        s->device_wait_ns += m->duration_ns;
        s->device_wait_run_queue_ns += woken_late;
    }
    barrier();
    s->end = s->begin;
}

static __always_inline void emit_sync(struct ltn_task *t, struct ltn_frame *f, ltn_u64 pid_tgid,
                                      const struct measured *m, ltn_u32 weight)
{
    /* The record is put together where the closed segment already lies: task storage, not the
     * stack. */
    struct ltn_event_sync *e = &t->closed;
    fill_call(&e->call, f, pid_tgid, LTN_EVENT_SYNC, sizeof(*e));
    fill_measured(&e->call, m);
    e->call.weight = weight;
    if (bpf_ringbuf_output(&calls, e, sizeof(*e), wake_flag(&calls)) != 0) {
        count_drop(LTN_DROP_RING_CALLS);
    }
}

static __always_inline void emit_collective(struct ltn_frame *f, ltn_u64 pid_tgid,
                                            const struct measured *m)
{
    struct ltn_event_collective *e = bpf_ringbuf_reserve(&calls, sizeof(*e), 0);
    if (!e) {
        count_drop(LTN_DROP_RING_CALLS);
        return;
    }
    fill_call(&e->call, f, pid_tgid, LTN_EVENT_COLLECTIVE, sizeof(*e));
    fill_measured(&e->call, m);
    e->comm_id = f->comm_id;
    e->sequence = f->sequence;
    e->count = f->out_ptr;
    e->data_type = f->kind;
    e->rank = f->rank;
    e->ranks = f->ranks;
    e->reserved = 0;
    bpf_ringbuf_submit(e, wake_flag(&calls));
}

static __always_inline void emit_comm(struct ltn_frame *f, ltn_u64 pid_tgid,
                                      const struct measured *m)
{
    struct ltn_event_comm *e = bpf_ringbuf_reserve(&calls, sizeof(*e), 0);
    if (!e) {
        count_drop(LTN_DROP_RING_CALLS);
        return;
    }
    fill_call(&e->call, f, pid_tgid, LTN_EVENT_COMM, sizeof(*e));
    fill_measured(&e->call, m);
    e->comm_id = f->comm_id;
    e->parent_id = f->sequence;
    e->rank = f->rank;
    e->ranks = f->ranks;
    e->ended = LTN_COOKIE_DECODER(f->cookie) == LTN_DECODE_COMM;
    e->reserved = 0;
    bpf_ringbuf_submit(e, wake_flag(&calls));
}

static __always_inline void emit_graph(struct ltn_frame *f, ltn_u64 pid_tgid,
                                       const struct measured *m, ltn_u32 weight)
{
    struct ltn_event_graph *e = bpf_ringbuf_reserve(&calls, sizeof(*e), 0);
    if (!e) {
        count_drop(LTN_DROP_RING_CALLS);
        return;
    }
    fill_call(&e->call, f, pid_tgid, LTN_EVENT_GRAPH, sizeof(*e));
    fill_measured(&e->call, m);
    e->call.weight = weight;
    e->exec = f->out_ptr;
    e->collectives = f->collectives;
    e->signature = f->sequence;
    bpf_ringbuf_submit(e, wake_flag(&calls));
}

static __always_inline void emit_call(struct ltn_frame *f, ltn_u64 pid_tgid,
                                      const struct measured *m, ltn_u32 weight)
{
    struct ltn_event_call *e = bpf_ringbuf_reserve(&calls, sizeof(*e), 0);
    if (!e) {
        count_drop(LTN_DROP_RING_CALLS);
        return;
    }
    fill_call(e, f, pid_tgid, LTN_EVENT_CALL, sizeof(*e));
    fill_measured(e, m);
    e->weight = weight;
    bpf_ringbuf_submit(e, wake_flag(&calls));
}

/* A sampled call without a return: the record says what is known at the entry. */
static __noinline int emit_untimed(struct ltn_frame *f, ltn_u64 pid_tgid)
{
    const struct measured nothing = {0};
    f->flags |= LTN_CALL_UNTIMED;
    count_seen(LTN_SEEN_EMITTED);
    emit_call(f, pid_tgid, &nothing, f->weight);
    return 0;
}

/* How many calls a record of this one stands for; 0 = it gets none. */
static __always_inline ltn_u32 weight_of(const struct ltn_frame *f)
{
    if (f->flags & LTN_CALL_NESTED) {
        return 0; /* recorded with the call around it */
    }
    if ((f->flags & (LTN_CALL_FAILED | LTN_CALL_SLOW)) || LTN_COOKIE_MAY_HANG(f->cookie)) {
        return 1;
    }
    return f->weight;
}

/* NCCL's errors of work that was started long before: the call itself succeeds. */
static __always_inline void take_async_error(struct ltn_frame *f, struct measured *m)
{
    ltn_s32 error = 0;
    if (bpf_probe_read_user(&error, sizeof(error), (const void *)f->out_ptr) != 0) {
        count_drop(LTN_DROP_ARGUMENT);
    } else if (error != 0 && error != NCCL_IN_PROGRESS) {
        m->result = error;
        f->flags |= LTN_CALL_FAILED;
    }
}

/* Records that are never thinned out: what steps are told by, and what comes once. */
static __always_inline int always_kept(const struct ltn_frame *f)
{
    ltn_u32 cls = LTN_COOKIE_CLASS(f->cookie);
    return (f->flags & LTN_CALL_PEERS) || cls == LTN_CLASS_COLLECTIVE || cls == LTN_CLASS_COMM ||
           cls == LTN_CLASS_CONTEXT || (cls == LTN_CLASS_GRAPH && f->collectives != 0);
}

/* The weight of a record that would stand for `weight` calls; 0 = it is left out, because records
 * come faster than they can be taken. */
static __always_inline ltn_u32 thin_out(const struct ltn_frame *f, ltn_u32 weight)
{
    if (config.thin_bytes == 0 || always_kept(f)) {
        return weight;
    }
    ltn_u32 one_in = control.thin;
    ltn_u64 fill = bpf_ringbuf_query(&calls, BPF_RB_AVAIL_DATA);
    if (fill >= config.thin_bytes && one_in < 10) {
        one_in = 10;
    }
    if (fill >= config.thin_bytes + config.thin_bytes / 2 && one_in < 100) {
        one_in = 100;
    }
    if (f->flags & (LTN_CALL_FAILED | LTN_CALL_SLOW)) {
        one_in /= 10; /* kept, unless it is these that come too fast */
    }
    if (one_in <= 1) {
        return weight;
    }
    if (bpf_get_prandom_u32() % one_in != 0) {
        count_seen(LTN_SEEN_THINNED);
        return 0;
    }
    return weight * one_in;
}

static __always_inline int is_failure(ltn_u32 cls, ltn_s32 result)
{
    if (cls == LTN_CLASS_COLLECTIVE || cls == LTN_CLASS_COMM) {
        return result != 0 && result != NCCL_IN_PROGRESS;
    }
    return result != 0 && result != 600; /* cudaErrorNotReady */
}

static __always_inline void emit(struct pt_regs *ctx, struct task_struct *task, struct ltn_task *t,
                                 struct ltn_frame *f, const struct measured *m)
{
    ltn_u32 weight = weight_of(f);
    if (weight != 0) {
        weight = thin_out(f, weight);
    }
    if (weight == 0) {
        return;
    }
    ltn_u64 pid_tgid = (ltn_u64)(ltn_u32)task->tgid << 32 | (ltn_u32)task->pid;
    f->stack_id = have_stacks ? take_stack(ctx, task) : 0;
    if (f->flags & LTN_FRAME_LATE_HANDLE) {
        f->handle = LTN_COOKIE_DECODER(f->cookie) == LTN_DECODE_LAUNCH
                        ? read_pointer(f->handle + LAUNCH_CONFIG_STREAM)
                        : argument(t, f->sp, LTN_COOKIE_B(f->cookie));
    }
    count_seen(LTN_SEEN_EMITTED);
    ltn_u32 cls = LTN_COOKIE_CLASS(f->cookie);
    if (LTN_COOKIE_FLAGS(f->cookie) & LTN_OP_BLOCKING) {
        emit_sync(t, f, pid_tgid, m, weight);
    } else if (cls == LTN_CLASS_COLLECTIVE) {
        emit_collective(f, pid_tgid, m);
    } else if (cls == LTN_CLASS_COMM) {
        emit_comm(f, pid_tgid, m);
    } else if (LTN_COOKIE_DECODER(f->cookie) == LTN_DECODE_GRAPH_LAUNCH) {
        emit_graph(f, pid_tgid, m, weight);
    } else {
        emit_call(f, pid_tgid, m, weight);
    }
}

static __always_inline void leave_outermost(struct ltn_task *t, struct task_struct *task,
                                            struct ltn_frame *f, ltn_u64 pid_tgid,
                                            const struct measured *m)
{
    ltn_u32 tgid = (ltn_u32)(pid_tgid >> 32);
    ltn_u32 tid = (ltn_u32)pid_tgid;
    if (LTN_COOKIE_FLAGS(f->cookie) & LTN_OP_BLOCKING) {
        struct ltn_process *p = bpf_map_lookup_elem(&processes, &tgid);
        if (p && f->collectives > p->synced) {
            p->synced = f->collectives;
        }
        ltn_u64 now = f->enter_ns + m->duration_ns;
        add_thread(t, f, pid_tgid, now, m);
        open_segment(t, task, now);
    }
    bpf_map_delete_elem(&in_flight, &tid);
}

static __always_inline int leave(struct pt_regs *ctx, ltn_u64 cookie)
{
    struct task_struct *task = bpf_get_current_task_btf();
    struct ltn_task *t = bpf_task_storage_get(&tasks, task, 0, 0);
    if (!t) {
        return 0; /* attached while the call was running */
    }
    ltn_u64 now = bpf_ktime_get_ns();
    ltn_u32 tgid = (ltn_u32)task->tgid;
    struct ltn_frame *f = pop_frame(t, cookie, PT_REGS_SP(ctx), tgid);
    if (!f) {
        if (control.off == 0) { /* else the entry may have been only counted */
            count_seen(LTN_SEEN_UNEXPECTED);
        }
        return 0;
    }
    ltn_u64 pid_tgid = (ltn_u64)tgid << 32 | (ltn_u32)task->pid;
    ltn_u32 cls = LTN_COOKIE_CLASS(cookie);
    struct measured m = {0};
    settle_before(t, task, now);
    measure(t, task, f, now, &m);
    m.result = (ltn_s32)PT_REGS_RC(ctx);
    if (is_failure(cls, m.result)) {
        f->flags |= LTN_CALL_FAILED;
    } else if (f->flags & LTN_FRAME_IMPOSSIBLE) {
        tell_impossible(LTN_COOKIE_OP(cookie));
        f->bytes = 0;
        f->kind = 0;
    } else if (cls == LTN_CLASS_COMM && f->out_ptr != 0) {
        leave_comm_init(f, LTN_COOKIE_DECODER(cookie), tgid);
    } else if (cls == LTN_CLASS_EVENT && LTN_COOKIE_DECODER(cookie) == LTN_DECODE_ASYNC_ERROR) {
        take_async_error(f, &m);
    }
    if (cls == LTN_CLASS_GRAPH && !(f->flags & LTN_CALL_NESTED)) {
        leave_graph(f, tgid);
    }
    if (task->nvcsw != f->voluntary) {
        f->flags |= LTN_CALL_SLEPT;
    }
    ltn_u32 op = LTN_COOKIE_OP(cookie);
    ltn_u64 *slow = bpf_map_lookup_elem(&slow_ns, &op);
    if (slow && *slow != 0 && m.duration_ns >= *slow) {
        f->flags |= LTN_CALL_SLOW;
    }
    add_stats(f, tgid, &m);
    emit(ctx, task, t, f, &m);
    if (!(f->flags & LTN_CALL_NESTED) && LTN_COOKIE_MAY_HANG(cookie)) {
        leave_outermost(t, task, f, pid_tgid, &m);
    }
    if (LTN_COOKIE_DECODER(cookie) == LTN_DECODE_COMM && !(f->flags & LTN_CALL_FAILED)) {
        retire_comm(tgid, f->handle);
    }
    return 0;
}

/* Links of kind "session" (6.13 and later): one program for both ends; answering 1 at entry saves
 * the return. */
SEC("uprobe")
int call_session(struct pt_regs *ctx)
{
    ltn_u64 cookie = bpf_get_attach_cookie(ctx);
    if (PT_REGS_IP(ctx) != bpf_get_func_ip(ctx)) {
        return leave(ctx, cookie);
    }
    return enter(ctx, cookie);
}

/* Links of kind "multi" (6.6 and later) and perf links: a program for each end. */
SEC("uprobe")
int call_enter(struct pt_regs *ctx)
{
    enter(ctx, bpf_get_attach_cookie(ctx));
    return 0;
}

SEC("uretprobe")
int call_return(struct pt_regs *ctx)
{
    leave(ctx, bpf_get_attach_cookie(ctx));
    return 0;
}
