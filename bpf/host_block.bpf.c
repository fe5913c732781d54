/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Block I/O by device and by the process whose thread issued it: how many, how long, how deep. */
#include "bpf/host.h"

#define IN_FLIGHT_MAX 8192
#define DEVICES_MAX   1024

#define REQ_OP_MASK 0xff
#define REQ_READ    0
#define REQ_WRITE   1
#define REQ_FLUSH   2

struct ltn_block_in_flight {
    struct ltn_block_key key;
    ltn_u64 made_ns;
    ltn_u64 issued_ns;
};

struct ltn_block_device {
    ltn_u32 major;
    ltn_u32 minor;
};

/* Who handed in a bio that no request has taken yet. Forgotten when it never becomes one. */
struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, IN_FLIGHT_MAX);
    __type(key, ltn_u64);
    __type(value, ltn_u32);
} block_owners SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __uint(max_entries, IN_FLIGHT_MAX);
    __type(key, ltn_u64);
    __type(value, struct ltn_block_in_flight);
} block_in_flight SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __uint(max_entries, DEVICES_MAX);
    __type(key, struct ltn_block_device);
    __type(value, ltn_u64);
} block_depth SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __uint(max_entries, 8192);
    __type(key, struct ltn_block_key);
    __type(value, struct ltn_block_stats);
} host_block SEC(".maps");

/* The bio is handed in by the thread that wants it; the request it becomes may be given to the
 * driver by any other. */
SEC("raw_tp/block_bio_queue")
int on_bio_queue(struct bpf_raw_tracepoint_args *ctx)
{
    if (host_is_down()) {
        return 0;
    }
    ltn_u64 bio = ((ltn_u64 *)ctx)[0];
    ltn_u32 tgid = (ltn_u32)(bpf_get_current_pid_tgid() >> 32);
    ltn_u32 owner = host_of(tgid) ? tgid : 0;
    bpf_map_update_elem(&block_owners, &bio, &owner, BPF_ANY);
    return 0;
}

/* What is too large for the disk is cut: the front becomes a bio of its own, of which no notice
 * says that it was handed in, and whose private field leads to the one it was cut from. */
SEC("raw_tp/block_split")
int on_bio_split(struct bpf_raw_tracepoint_args *ctx)
{
    if (host_is_down()) {
        return 0;
    }
    ltn_u64 front = ((ltn_u64 *)ctx)[0];
    ltn_u64 from = (ltn_u64)BPF_CORE_READ((struct bio *)front, bi_private);
    ltn_u32 *known = bpf_map_lookup_elem(&block_owners, &from);
    if (known) {
        ltn_u32 owner = *known;
        bpf_map_update_elem(&block_owners, &front, &owner, BPF_ANY);
    }
    return 0;
}

static __always_inline ltn_u32 owner_of(struct request *rq)
{
    ltn_u64 bio = (ltn_u64)BPF_CORE_READ(rq, bio);
    ltn_u32 *owner = bio ? bpf_map_lookup_elem(&block_owners, &bio) : 0;
    if (owner) {
        ltn_u32 tgid = *owner;
        bpf_map_delete_elem(&block_owners, &bio);
        return tgid;
    }
    /* A flush: issued by the thread itself, as a rule. */
    ltn_u32 tgid = (ltn_u32)(bpf_get_current_pid_tgid() >> 32);
    return host_of(tgid) ? tgid : 0;
}

static __always_inline ltn_u32 op_of(struct request *rq)
{
    switch (BPF_CORE_READ(rq, cmd_flags) & REQ_OP_MASK) {
    case REQ_READ:
        return LTN_BLOCK_READ;
    case REQ_WRITE:
        return LTN_BLOCK_WRITE;
    case REQ_FLUSH:
        return LTN_BLOCK_FLUSH;
    default:
        return LTN_BLOCK_OTHER;
    }
}

static __always_inline struct ltn_block_stats *block_stats(const struct ltn_block_key *key,
                                                           struct request *rq)
{
    struct ltn_block_stats *s = bpf_map_lookup_elem(&host_block, key);
    if (!s) {
        struct ltn_block_stats fresh = {0};
        struct gendisk *disk = BPF_CORE_READ(rq, q, disk);
        bpf_core_read_str(fresh.disk, sizeof(fresh.disk), &disk->disk_name);
        bpf_map_update_elem(&host_block, key, &fresh, BPF_NOEXIST);
        s = bpf_map_lookup_elem(&host_block, key);
        if (!s) {
            count_drop(LTN_DROP_MAP_HOST);
        }
    }
    return s;
}

/* One more, or one less, request with the driver; returns how many it has then. */
static __always_inline ltn_u64 change_depth(const struct ltn_block_key *key, ltn_u64 by)
{
    struct ltn_block_device device = {.major = key->major, .minor = key->minor};
    ltn_u64 *depth = bpf_map_lookup_elem(&block_depth, &device);
    if (!depth) {
        ltn_u64 none = 0;
        bpf_map_update_elem(&block_depth, &device, &none, BPF_NOEXIST);
        depth = bpf_map_lookup_elem(&block_depth, &device);
        if (!depth) {
            return 0;
        }
    }
    return __sync_fetch_and_add(depth, by) + by;
}

SEC("raw_tp/block_rq_issue")
int on_block_issue(struct bpf_raw_tracepoint_args *ctx)
{
    if (host_is_down()) {
        return 0;
    }
    struct request *rq = (struct request *)((ltn_u64 *)ctx)[0];
    ltn_u64 at = (ltn_u64)rq;
    struct gendisk *disk = BPF_CORE_READ(rq, q, disk);
    if (!disk) {
        return 0; /* a command to a controller, not to a disk */
    }
    struct ltn_block_in_flight new = {0};
    new.key.tgid = owner_of(rq);
    new.key.major = (ltn_u32)BPF_CORE_READ(disk, major);
    new.key.minor = (ltn_u32)BPF_CORE_READ(disk, first_minor);
    new.key.op = op_of(rq);
    new.issued_ns = bpf_ktime_get_ns();
    new.made_ns = BPF_CORE_READ(rq, start_time_ns);
    /* An end that no program was told of: the kernel lets none interrupt itself. */
    struct ltn_block_in_flight *old = bpf_map_lookup_elem(&block_in_flight, &at);
    if (old) {
        change_depth(&old->key, (ltn_u64)-1);
    }
    if (bpf_map_update_elem(&block_in_flight, &at, &new, BPF_ANY) != 0) {
        count_drop(LTN_DROP_MAP_HOST);
        return 0;
    }
    ltn_u64 depth = change_depth(&new.key, 1);
    struct ltn_block_stats *s = block_stats(&new.key, rq);
    if (s) {
        add_to(&s->depth_sum, depth);
        if (depth > s->depth_max) {
            s->depth_max = depth;
        }
    }
    return 0;
}

static __always_inline void add_to_owner(const struct ltn_block_key *key, ltn_u64 bytes)
{
    struct ltn_host_process *p = key->tgid ? host_of(key->tgid) : 0;
    if (p && key->op == LTN_BLOCK_READ) {
        add_to(&p->block_read_bytes, bytes);
    } else if (p && key->op == LTN_BLOCK_WRITE) {
        add_to(&p->block_written_bytes, bytes);
    }
}

/* The driver gave it back to the queue, for want of room as a rule: it will be issued again, by a
 * thread of the kernel. */
SEC("raw_tp/block_rq_requeue")
int on_block_requeue(struct bpf_raw_tracepoint_args *ctx)
{
    ltn_u64 at = ((ltn_u64 *)ctx)[0];
    struct ltn_block_in_flight *r = bpf_map_lookup_elem(&block_in_flight, &at);
    if (r) {
        ltn_u64 bio = (ltn_u64)BPF_CORE_READ((struct request *)at, bio);
        ltn_u32 owner = r->key.tgid;
        if (bio) {
            bpf_map_update_elem(&block_owners, &bio, &owner, BPF_ANY);
        }
        change_depth(&r->key, (ltn_u64)-1);
        bpf_map_delete_elem(&block_in_flight, &at);
    }
    return 0;
}

SEC("raw_tp/block_rq_complete")
int on_block_complete(struct bpf_raw_tracepoint_args *ctx)
{
    struct request *rq = (struct request *)((ltn_u64 *)ctx)[0];
    int failed = (int)((ltn_u64 *)ctx)[1] != 0;
    ltn_u32 bytes = (ltn_u32)((ltn_u64 *)ctx)[2];
    ltn_u64 at = (ltn_u64)rq;
    struct ltn_block_in_flight *r = bpf_map_lookup_elem(&block_in_flight, &at);
    if (!r) {
        return 0;
    }
    struct ltn_block_stats *s = block_stats(&r->key, rq);
    if (s) {
        add_to(&s->bytes, bytes);
    }
    add_to_owner(&r->key, bytes);
    if (bytes < BPF_CORE_READ(rq, __data_len)) {
        return 0; /* the rest is still with the driver */
    }
    change_depth(&r->key, (ltn_u64)-1);
    if (s) {
        ltn_u64 now = bpf_ktime_get_ns();
        ltn_u64 queued = r->made_ns && r->made_ns < r->issued_ns ? r->issued_ns - r->made_ns : 0;
        ltn_u64 service = now - r->issued_ns;
        add_to(&s->requests, 1);
        add_to(&s->errors, failed ? 1 : 0);
        add_to(&s->queued_ns, queued);
        add_to(&s->service_ns, service);
        if (queued + service > s->max_ns) {
            s->max_ns = queued + service;
        }
    }
    bpf_map_delete_elem(&block_in_flight, &at);
    return 0;
}
