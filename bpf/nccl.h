/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Communicators: an id that is the same on every rank (hash of the 128-byte unique id, or derived
 * from the parent), rank, size, and the sequence of collectives, kept here so that lost records
 * cannot shift it.
 */
#ifndef LTN_BPF_NCCL_H
#define LTN_BPF_NCCL_H

#include "bpf/arguments.h"

#define UNIQUE_ID_WORDS 16
#define FNV_PRIME       0x100000001b3ULL
#define FNV_BASIS       0xcbf29ce484222325ULL

static __always_inline ltn_u64 hash_word(ltn_u64 hash, ltn_u64 word)
{
    hash = (hash ^ word) * FNV_PRIME;
    return hash ^ (hash >> 29);
}

static __always_inline ltn_u64 hash_unique_id(struct ltn_task *t, ltn_u64 at)
{
    if (bpf_probe_read_user(t->scratch, sizeof(t->scratch), (const void *)at) != 0) {
        count_drop(LTN_DROP_ARGUMENT);
        return 0;
    }
    ltn_u64 hash = FNV_BASIS;
    for (int i = 0; i < UNIQUE_ID_WORDS; i++) {
        hash = hash_word(hash, t->scratch[i]);
    }
    return hash | 1; /* 0 means unknown */
}

/* Bytes of one element of an ncclDataType_t. */
static __always_inline ltn_u64 data_type_bytes(ltn_u32 type)
{
    if (type == 4 || type == 5 || type == 8) {
        return 8;
    }
    if (type == 2 || type == 3 || type == 7) {
        return 4;
    }
    return type == 6 || type == 9 ? 2 : 1;
}

static __always_inline void enter_init_by_value(struct ltn_task *t, struct ltn_frame *f)
{
    f->out_ptr = t->args[0];
    f->ranks = (ltn_s32)t->args[1];
#if defined(__TARGET_ARCH_x86)
    /* A 128-byte struct goes on the stack and takes no register, so rank is the third register
     * argument. */
    f->rank = (ltn_s32)t->args[2];
    f->comm_id = hash_unique_id(t, f->sp + STACK_SKIP);
#else
    f->rank = (ltn_s32)t->args[3];
    f->comm_id = hash_unique_id(t, t->args[2]);
#endif
}

static __always_inline void enter_init_scalable(struct ltn_task *t, struct ltn_frame *f)
{
    f->out_ptr = t->args[0];
    f->ranks = (ltn_s32)t->args[1];
    f->rank = (ltn_s32)t->args[2];
    f->comm_id = hash_unique_id(t, t->args[4]);
}

static __always_inline void enter_split(struct ltn_task *t, struct ltn_frame *f, ltn_u32 tgid)
{
    struct ltn_comm_key key = {.comm = t->args[0], .tgid = tgid};
    struct ltn_comm_state *parent = bpf_map_lookup_elem(&comms, &key);
    f->handle = t->args[0];
    f->out_ptr = t->args[3];
    f->rank = -1; /* the order of the new ranks depends on the keys of all members */
    f->ranks = -1;
    if (!parent) {
        return;
    }
    ltn_u32 ordinal = __sync_fetch_and_add(&parent->splits, 1);
    f->sequence = parent->comm_id; /* carried to the record as parent id */
    f->comm_id =
        hash_word(hash_word(hash_word(FNV_BASIS, parent->comm_id), ordinal), (ltn_u32)t->args[1]) |
        1;
}

#define SHRINK_MAX 16 /* excluded ranks that are read */

/* The ranks that are left keep their order, so the new rank is known. */
static __always_inline void enter_shrink(struct ltn_task *t, struct ltn_frame *f, ltn_u32 tgid)
{
    struct ltn_comm_key key = {.comm = t->args[0], .tgid = tgid};
    struct ltn_comm_state *parent = bpf_map_lookup_elem(&comms, &key);
    ltn_u32 gone = (ltn_u32)t->args[2];
    ltn_u32 read = gone < SHRINK_MAX ? gone : SHRINK_MAX;
    f->handle = t->args[0];
    f->out_ptr = t->args[3];
    f->rank = -1;
    f->ranks = -1;
    if (!parent) {
        return;
    }
    __builtin_memset(t->scratch, 0, sizeof(t->scratch));
    if (bpf_probe_read_user(t->scratch, (read & 31) * 4, (const void *)t->args[1]) != 0) {
        count_drop(LTN_DROP_ARGUMENT);
        return;
    }
    ltn_u32 ordinal = __sync_fetch_and_add(&parent->splits, 1);
    ltn_u64 hash = hash_word(hash_word(FNV_BASIS, parent->comm_id), 1ULL << 32 | ordinal);
    ltn_s32 lower = 0;
    hash = hash_word(hash, gone);
    /* Without branches, which the verifier would follow one by one: unread words are 0, and the
     * sign of a difference says which is less. */
    for (ltn_u32 i = 0; i < SHRINK_MAX; i++) {
        ltn_u32 rank = (ltn_u32)(t->scratch[i / 2] >> (i % 2) * 32);
        hash = hash_word(hash, rank);
        lower += (ltn_s32)((i - read) >> 31 & (rank - (ltn_u32)parent->rank) >> 31);
    }
    f->sequence = parent->comm_id;
    f->comm_id = hash | 1;
    if (parent->ranks > 0 && parent->rank >= 0 && gone == read) {
        f->rank = parent->rank - lower;
        f->ranks = parent->ranks - (ltn_s32)gone;
    }
}

static __always_inline void add_comm(ltn_u32 tgid, ltn_u64 comm, const struct ltn_frame *f,
                                     ltn_s32 rank)
{
    struct ltn_comm_key key = {.comm = comm, .tgid = tgid};
    struct ltn_comm_state state = {
        .comm_id = f->comm_id,
        .signature = FNV_BASIS,
        .rank = rank,
        .ranks = f->ranks,
    };
    if (bpf_map_update_elem(&comms, &key, &state, BPF_ANY) != 0) {
        count_drop(LTN_DROP_MAP_COMMS);
    }
}

/* The communicator ended: its sums go where the next user of the address does not overwrite them.
 */
static __always_inline void retire_comm(ltn_u32 tgid, ltn_u64 comm)
{
    struct ltn_comm_key live = {.comm = comm, .tgid = tgid};
    struct ltn_comm_state *c = bpf_map_lookup_elem(&comms, &live);
    if (!c) {
        return;
    }
    struct ltn_comm_key key = {.comm = c->comm_id, .tgid = tgid, .ended = (ltn_u32)(c->rank + 2)};
    struct ltn_comm_state state = *c;
    if (bpf_map_update_elem(&comms, &key, &state, BPF_ANY) != 0) {
        count_drop(LTN_DROP_MAP_COMMS);
    }
    bpf_map_delete_elem(&comms, &live);
}

static __always_inline ltn_u64 read_pointer(ltn_u64 at)
{
    ltn_u64 value = 0;
    if (bpf_probe_read_user(&value, sizeof(value), (const void *)at) != 0) {
        count_drop(LTN_DROP_ARGUMENT);
        return 0;
    }
    return value;
}

#define INIT_ALL_MAX 32

/* ncclCommInitAll fills an array of communicators, one for each rank, all in this process. */
static __always_inline void leave_init_all(struct ltn_frame *f, ltn_u32 tgid)
{
    for (int i = 0; i < INIT_ALL_MAX; i++) {
        if (i >= f->ranks) {
            break;
        }
        ltn_u64 comm = read_pointer(f->out_ptr + 8ULL * (ltn_u64)i);
        if (i == 0) {
            f->comm_id = hash_word(hash_word(FNV_BASIS, comm), f->enter_ns) | 1;
        }
        if (comm != 0) {
            add_comm(tgid, comm, f, i);
        }
    }
}

/* A communicator call succeeded: note what it made. */
static __always_inline void leave_comm_init(struct ltn_frame *f, ltn_u32 decoder, ltn_u32 tgid)
{
    if (decoder == LTN_DECODE_INIT_ALL) {
        leave_init_all(f, tgid);
        return;
    }
    ltn_u64 comm = read_pointer(f->out_ptr);
    if (comm != 0 && f->comm_id != 0) {
        add_comm(tgid, comm, f, f->rank);
        f->handle = comm;
    }
}

static __always_inline void enter_collective(struct ltn_frame *f, ltn_u32 tgid,
                                             struct ltn_process *p)
{
    struct ltn_comm_key key = {.comm = f->handle, .tgid = tgid};
    struct ltn_comm_state *c = bpf_map_lookup_elem(&comms, &key);
    ltn_u64 elements = f->bytes;
    f->out_ptr = elements; /* carried to the record as count */
    f->bytes = elements * data_type_bytes(f->kind);
    if (c) {
        f->comm_id = c->comm_id;
        f->rank = c->rank;
        f->ranks = c->ranks;
        f->sequence = c->sequence;
    }
    if (f->flags & LTN_CALL_CAPTURED) {
        return; /* nothing was issued: the launches of the graph will do that */
    }
    __sync_fetch_and_add(&p->collectives, 1);
    if (!c) {
        return;
    }
    c->last_ns = f->enter_ns;
    __sync_fetch_and_add(&c->count_sum, f->bytes);
    if (LTN_COOKIE_FLAGS(f->cookie) & LTN_OP_P2P) {
        f->sequence = __sync_fetch_and_add(&c->p2p, 1);
        return;
    }
    f->sequence = __sync_fetch_and_add(&c->sequence, 1);
    c->signature = hash_word(hash_word(c->signature, LTN_COOKIE_OP(f->cookie)),
                             elements << 8 | (f->kind & 255));
}

#endif /* LTN_BPF_NCCL_H */
