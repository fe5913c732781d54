/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Graphs: what is called while a stream is captured does not run, it is remembered; each launch of
 * the graph issues it again. A call belongs to a capture when its stream is the one that is
 * captured, or waited for an event of such a stream, in whichever thread. What is remembered goes
 * from the capture to the graph, from the graph to each executable made of it, and is added at
 * each launch: to counters of their own, since a replay is no call of the program, and to the
 * sequence of the communicators, since their collectives do run.
 */
#ifndef LTN_BPF_GRAPH_H
#define LTN_BPF_GRAPH_H

#include "bpf/counts.h"
#include "bpf/nccl.h"

#define LAUNCH_CONFIG_STREAM 32 /* cudaLaunchConfig_t, CUlaunchConfig */

static const struct ltn_graph no_graph; /* zeros: too large for the stack */

/* The open capture that the stream or event belongs to, with its number. */
static __always_inline struct ltn_graph *capture_of(ltn_u32 tgid, ltn_u64 handle, ltn_u32 is_event,
                                                    ltn_u64 *ret_id)
{
    struct capture_member key = {.handle = handle, .tgid = tgid, .is_event = is_event};
    ltn_u64 *id = bpf_map_lookup_elem(&capture_members, &key);
    if (!id) {
        return 0;
    }
    struct ltn_graph_key open = {.handle = *id, .tgid = tgid, .kind = LTN_GRAPH_OPEN};
    *ret_id = open.handle;
    return bpf_map_lookup_elem(&graphs, &open);
}

static __always_inline void join(ltn_u32 tgid, ltn_u64 handle, ltn_u32 is_event, ltn_u64 id)
{
    struct capture_member key = {.handle = handle, .tgid = tgid, .is_event = is_event};
    if (bpf_map_update_elem(&capture_members, &key, &id, BPF_ANY) != 0) {
        count_drop(LTN_DROP_GRAPH);
    }
}

static __always_inline void add_to_ops(struct ltn_graph *g, ltn_u32 op, ltn_u64 bytes)
{
#pragma clang loop unroll(disable)
    for (ltn_u32 i = 0; i < LTN_GRAPH_OPS; i++) {
        struct ltn_graph_op *o = &g->ops[i];
        ltn_u32 was = o->op ? o->op : __sync_val_compare_and_swap(&o->op, 0, op);
        if (was == 0 || was == op) {
            __sync_fetch_and_add(&o->calls, 1);
            __sync_fetch_and_add(&o->bytes, bytes);
            return;
        }
    }
    count_drop(LTN_DROP_GRAPH);
}

static __always_inline void add_to_comms(struct ltn_graph *g, const struct ltn_frame *f,
                                         ltn_u64 bytes)
{
    ltn_u64 token = f->bytes << 8 | (f->kind & 255);
    __sync_fetch_and_add(&g->collectives, 1);
    g->signature =
        hash_word(hash_word(hash_word(g->signature, f->handle), LTN_COOKIE_OP(f->cookie)), token);
#pragma clang loop unroll(disable)
    for (ltn_u32 i = 0; i < LTN_GRAPH_COMMS; i++) {
        struct ltn_graph_comm *c = &g->comms[i];
        ltn_u64 was = c->comm ? c->comm : __sync_val_compare_and_swap(&c->comm, 0, f->handle);
        if (was != 0 && was != f->handle) {
            continue;
        }
        __sync_fetch_and_add(&c->bytes, bytes);
        if (LTN_COOKIE_FLAGS(f->cookie) & LTN_OP_P2P) {
            __sync_fetch_and_add(&c->p2p, 1);
        } else {
            __sync_fetch_and_add(&c->collectives, 1);
            c->signature = hash_word(hash_word(c->signature, LTN_COOKIE_OP(f->cookie)), token);
        }
        return;
    }
    count_drop(LTN_DROP_GRAPH);
}

/* The stream of a call, 0 in *ret_known when it has none that it was given. */
static __always_inline ltn_u64 stream_of(struct ltn_task *t, const struct ltn_frame *f,
                                         ltn_u32 *ret_known)
{
    ltn_u32 decoder = LTN_COOKIE_DECODER(f->cookie);
    ltn_u32 b = LTN_COOKIE_B(f->cookie);
    *ret_known = 1;
    if (decoder == LTN_DECODE_LAUNCH) {
        return read_pointer(t->args[LTN_COOKIE_A(f->cookie) & 7] + LAUNCH_CONFIG_STREAM);
    }
    if (b == LTN_ARG_NONE) {
        *ret_known = 0;
        return 0;
    }
    /* Of every collective the stream is what follows the communicator. */
    return argument(t, f->sp, decoder == LTN_DECODE_COLLECTIVE ? b + 1 : b);
}

/* While something is captured: is this call part of it? */
static __noinline int note_call(struct ltn_task *t, struct ltn_frame *f, ltn_u32 tgid,
                                ltn_u32 depth)
{
    ltn_u32 cls = LTN_COOKIE_CLASS(f->cookie);
    ltn_u32 decoder = LTN_COOKIE_DECODER(f->cookie);
    ltn_u32 known = 0;
    ltn_u64 id = 0;
    if (decoder == LTN_DECODE_EVENT_RECORD || decoder == LTN_DECODE_EVENT_WAIT) {
        ltn_u64 event = argument(t, f->sp, LTN_COOKIE_A(f->cookie));
        ltn_u32 waits = decoder == LTN_DECODE_EVENT_WAIT;
        if (capture_of(tgid, waits ? event : f->handle, waits, &id)) {
            join(tgid, waits ? f->handle : event, !waits, id);
        }
        return 0;
    }
    if (cls != LTN_CLASS_LAUNCH && cls != LTN_CLASS_COPY && cls != LTN_CLASS_MEMSET &&
        cls != LTN_CLASS_COLLECTIVE && decoder != LTN_DECODE_GRAPH_LAUNCH) {
        return 0;
    }
    ltn_u64 stream = stream_of(t, f, &known);
    struct ltn_graph *g = known ? capture_of(tgid, stream, 0, &id) : 0;
    if (!g) {
        return 0;
    }
    f->flags |= LTN_CALL_CAPTURED;
    if (cls == LTN_CLASS_GRAPH) {
        return 0; /* becomes a node that is a graph itself */
    }
    ltn_u64 bytes = f->flags & LTN_FRAME_IMPOSSIBLE ? 0 : f->bytes;
    if (cls == LTN_CLASS_COLLECTIVE) {
        bytes = depth == 0 ? bytes * data_type_bytes(f->kind) : 0;
    }
    add_to_ops(g, LTN_COOKIE_OP(f->cookie), bytes);
    if (cls == LTN_CLASS_COLLECTIVE && depth == 0) {
        add_to_comms(g, f, bytes);
    }
    return 0;
}

static __noinline int replay_op(ltn_u32 tgid, const struct ltn_graph_op *o)
{
    struct ltn_op_stats *s = stats_of(tgid, o->op);
    if (s) {
        __sync_fetch_and_add(&s->replayed, o->calls);
        __sync_fetch_and_add(&s->replayed_bytes, o->bytes);
    }
    return 0;
}

static __noinline int replay_comm(ltn_u32 tgid, const struct ltn_graph_comm *g, ltn_u64 now)
{
    struct ltn_comm_key key = {.comm = g->comm, .tgid = tgid};
    struct ltn_comm_state *c = bpf_map_lookup_elem(&comms, &key);
    if (!c) {
        return 0;
    }
    c->last_ns = now;
    __sync_fetch_and_add(&c->count_sum, g->bytes);
    __sync_fetch_and_add(&c->sequence, g->collectives);
    __sync_fetch_and_add(&c->p2p, g->p2p);
    if (g->collectives != 0) {
        c->signature = hash_word(c->signature, g->signature);
    }
    return 0;
}

static __always_inline void replay(struct ltn_frame *f, ltn_u32 tgid)
{
    struct ltn_graph_key key = {.handle = f->out_ptr, .tgid = tgid, .kind = LTN_GRAPH_EXEC};
    const struct ltn_graph *g = bpf_map_lookup_elem(&graphs, &key);
    struct ltn_process *p = bpf_map_lookup_elem(&processes, &tgid);
    if (!g || !p) {
        return;
    }
#pragma clang loop unroll(disable)
    for (ltn_u32 i = 0; i < LTN_GRAPH_OPS; i++) {
        if (g->ops[i].op == 0) {
            break;
        }
        replay_op(tgid, &g->ops[i]);
    }
    f->collectives = g->collectives;
    f->sequence = g->signature;
    if (g->collectives == 0) {
        return;
    }
    __sync_fetch_and_add(&p->collectives, g->collectives);
#pragma clang loop unroll(disable)
    for (ltn_u32 i = 0; i < LTN_GRAPH_COMMS; i++) {
        if (g->comms[i].comm == 0) {
            break;
        }
        replay_comm(tgid, &g->comms[i], f->enter_ns);
    }
}

/* Takes what one entry has over into another, or empties that when there is nothing: its address
 * may have been in use before. */
static __always_inline void hand_on(struct ltn_graph_key *from, struct ltn_graph_key *to)
{
    const struct ltn_graph *g = bpf_map_lookup_elem(&graphs, from);
    if (!g) {
        bpf_map_delete_elem(&graphs, to);
    } else if (bpf_map_update_elem(&graphs, to, g, BPF_ANY) != 0) {
        count_drop(LTN_DROP_GRAPH);
        bpf_map_delete_elem(&graphs, to);
    }
}

/* An outermost call to do with graphs begins. */
static __noinline int enter_graph(struct ltn_frame *f, ltn_u32 tgid)
{
    struct ltn_graph_key key = {.handle = f->handle, .tgid = tgid, .kind = LTN_GRAPH_DONE};
    switch (LTN_COOKIE_DECODER(f->cookie)) {
    case LTN_DECODE_GRAPH_LAUNCH:
        if (!(f->flags & LTN_CALL_CAPTURED)) {
            replay(f, tgid);
        }
        break;
    case LTN_DECODE_EXEC_DESTROY:
        key.kind = LTN_GRAPH_EXEC;
        bpf_map_delete_elem(&graphs, &key);
        break;
    case LTN_DECODE_GRAPH_DESTROY:
        bpf_map_delete_elem(&graphs, &key);
        break;
    default:
        break;
    }
    return 0;
}

static __always_inline void capture_began(const struct ltn_frame *f, ltn_u32 tgid)
{
    struct ltn_graph_key key = {.tgid = tgid, .kind = LTN_GRAPH_OPEN};
    struct ltn_graph_key before = {.handle = f->out_ptr, .tgid = tgid, .kind = LTN_GRAPH_DONE};
    struct ltn_process *p = process_of(tgid);
    key.handle = hash_word(hash_word(FNV_BASIS, f->handle), f->enter_ns) | 1;
    const struct ltn_graph *g = f->out_ptr ? bpf_map_lookup_elem(&graphs, &before) : 0;
    long rc = g ? bpf_map_update_elem(&graphs, &key, g, BPF_ANY)
                : bpf_map_update_elem(&graphs, &key, &no_graph, BPF_ANY);
    if (!p || rc != 0) {
        count_drop(LTN_DROP_GRAPH);
        return;
    }
    join(tgid, f->handle, 0, key.handle);
    __sync_fetch_and_add(&p->capturing, 1);
    __sync_fetch_and_add(&capturing, 1);
}

static __always_inline void capture_ended(const struct ltn_frame *f, ltn_u32 tgid)
{
    struct ltn_graph_key open = {.tgid = tgid, .kind = LTN_GRAPH_OPEN};
    struct ltn_graph_key done = {.tgid = tgid, .kind = LTN_GRAPH_DONE};
    struct ltn_process *p = bpf_map_lookup_elem(&processes, &tgid);
    if (!capture_of(tgid, f->handle, 0, &open.handle)) {
        return;
    }
    done.handle = f->flags & LTN_CALL_FAILED ? 0 : read_pointer(f->out_ptr);
    if (done.handle != 0) {
        hand_on(&open, &done);
    }
    /* Whoever takes the entry away takes it from the counts. */
    if (bpf_map_delete_elem(&graphs, &open) == 0 && p && p->capturing != 0) {
        __sync_fetch_and_sub(&p->capturing, 1);
        __sync_fetch_and_sub(&capturing, 1);
    }
}

/* An outermost call to do with graphs returns. */
static __noinline int leave_graph(const struct ltn_frame *f, ltn_u32 tgid)
{
    ltn_u32 decoder = LTN_COOKIE_DECODER(f->cookie);
    struct ltn_graph_key graph = {.handle = f->handle, .tgid = tgid, .kind = LTN_GRAPH_DONE};
    struct ltn_graph_key exec = {.handle = f->handle, .tgid = tgid, .kind = LTN_GRAPH_EXEC};
    if (decoder == LTN_DECODE_CAPTURE_END) {
        capture_ended(f, tgid);
        return 0;
    }
    if (f->flags & LTN_CALL_FAILED) {
        return 0;
    }
    switch (decoder) {
    case LTN_DECODE_CAPTURE_BEGIN:
        capture_began(f, tgid);
        break;
    case LTN_DECODE_GRAPH_INSTANTIATE:
        exec.handle = read_pointer(f->out_ptr);
        hand_on(&graph, &exec);
        break;
    case LTN_DECODE_GRAPH_UPDATE:
        graph.handle = f->out_ptr;
        hand_on(&graph, &exec);
        break;
    default:
        break;
    }
    return 0;
}

/* The process ends, or becomes another program: what it was capturing is gone. */
static __always_inline void captures_gone(ltn_u32 tgid)
{
    struct ltn_process *p = bpf_map_lookup_elem(&processes, &tgid);
    ltn_u32 open = p ? p->capturing : 0;
    if (open != 0 && __sync_val_compare_and_swap(&p->capturing, open, 0) == open) {
        __sync_fetch_and_sub(&capturing, open);
    }
}

#endif /* LTN_BPF_GRAPH_H */
