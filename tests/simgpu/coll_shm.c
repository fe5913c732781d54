// SPDX-License-Identifier: Apache-2.0
// Collectives between processes. An operation starts on a rank when it reaches the head of that
// rank's stream and ends at last arrival + latency + bytes / bandwidth, so everybody really waits
// for the last one to arrive.
#include "engine.h"

#include <string.h>
#include <unistd.h>

static struct sim_channel *channel_get(struct sim_shm *shm, const struct sim_coll_op *op)
{
    uint32_t src = op->kind == SIM_OP_SEND ? op->rank : op->peer;
    uint32_t dst = op->kind == SIM_OP_SEND ? op->peer : op->rank;
    uint32_t at = (op->comm * 31u + src * 131u + dst * 7919u) % SIM_MAX_CHANNELS;
    for (uint32_t i = 0; i < SIM_MAX_CHANNELS; i++) {
        struct sim_channel *c = &shm->channels[(at + i) % SIM_MAX_CHANNELS];
        if (c->used && c->comm == op->comm && c->src == src && c->dst == dst)
            return c;
        if (!c->used) {
            memset(c, 0, sizeof(*c));
            c->used = 1;
            c->comm = op->comm;
            c->src = src;
            c->dst = dst;
            return c;
        }
    }
    return NULL;
}

void sim_coll_assign(struct sim_coll_op *ops, uint32_t n)
{
    struct sim_shm *shm = sim_shm_get();
    for (uint32_t i = 0; i < n; i++) {
        struct sim_comm *comm = &shm->comms[ops[i].comm];
        sim_lock(&shm->lock);
        if (ops[i].kind == SIM_OP_COLL) {
            ops[i].seq = comm->ranks[ops[i].rank].next_seq++;
        } else {
            struct sim_channel *c = channel_get(shm, &ops[i]);
            if (c != NULL) {
                ops[i].channel = (uint32_t)(c - shm->channels);
                ops[i].seq = ops[i].kind == SIM_OP_SEND ? c->send_next++ : c->recv_next++;
            }
        }
        sim_unlock(&shm->lock);
    }
}

static uint64_t transfer_ns(const struct sim_comm *comm, uint64_t bytes)
{
    uint64_t ns = bytes * 1000 / sim_set.coll_bytes_per_us;
    uint32_t permille = atomic_load(&comm->link_permille);
    return sim_set.coll_latency_ns + (permille == 0 ? ns : ns * permille / 1000);
}

static void ring_bell(struct sim_shm *shm, int index)
{
    if (index < 0 || index >= SIM_MAX_BELLS)
        return;
    atomic_fetch_add(&shm->bells[index].word, 1);
    sim_futex_wake(&shm->bells[index].word, 1);
}

static uint64_t first_word(const struct sim_coll_op *op)
{
    uint64_t value = 0; // only 64-bit integers are really reduced, and only their first element
    if ((op->dtype == 4 || op->dtype == 5) && op->count > 0 && op->send != NULL)
        memcpy(&value, op->send, sizeof(value));
    return value;
}

static void arrive_coll(struct sim_shm *shm, struct sim_coll_op *op, uint64_t at)
{
    struct sim_comm *comm = &shm->comms[op->comm];
    uint64_t signature = ((uint64_t)op->func << 56) ^ ((uint64_t)op->dtype << 48) ^
                         ((uint64_t)op->redop << 40) ^ op->count;
    bool last = false;
    sim_lock(&comm->lock);
    struct sim_coll_slot *slot = &comm->ring[op->seq % SIM_COLL_RING];
    if (slot->seq != op->seq || slot->arrived == 0) {
        memset(slot, 0, sizeof(*slot));
        slot->seq = op->seq;
        slot->signature = signature;
    }
    slot->mismatch |= slot->signature != signature;
    slot->arrived++;
    if (at >= slot->last_ns) {
        slot->last_ns = at;
        slot->last_rank = op->rank;
    }
    if (op->bytes > slot->bytes)
        slot->bytes = op->bytes;
    slot->sum += op->func != 1 || op->rank == op->root ? first_word(op) : 0; // 1 = broadcast
    if (slot->arrived == comm->nranks) {
        slot->end_ns = slot->last_ns + transfer_ns(comm, slot->bytes);
        atomic_store(&slot->done, 1);
        last = true;
    }
    sim_unlock(&comm->lock);
    for (uint32_t r = 0; last && r < comm->nranks; r++) {
        if (r != op->rank)
            ring_bell(shm, atomic_load(&comm->ranks[r].bell));
    }
}

static void arrive_p2p(struct sim_shm *shm, struct sim_coll_op *op, uint64_t at)
{
    struct sim_comm *comm = &shm->comms[op->comm];
    struct sim_channel *c = &shm->channels[op->channel];
    uint32_t k = (uint32_t)(op->seq % SIM_COLL_RING);
    bool last = false;
    sim_lock(&comm->lock);
    if (c->ring[k].have == 0 || c->ring[k].seq != op->seq) {
        memset(&c->ring[k], 0, sizeof(c->ring[k]));
        c->ring[k].seq = op->seq;
    }
    c->ring[k].have++;
    if (at > c->ring[k].last_ns)
        c->ring[k].last_ns = at;
    if (op->bytes > c->ring[k].bytes)
        c->ring[k].bytes = op->bytes;
    if (op->kind == SIM_OP_SEND)
        c->ring[k].value = first_word(op);
    if (c->ring[k].have == 2) {
        c->ring[k].end_ns = c->ring[k].last_ns + transfer_ns(comm, c->ring[k].bytes);
        c->ring[k].done = 1;
        last = true;
    }
    sim_unlock(&comm->lock);
    if (last)
        ring_bell(shm, atomic_load(&comm->ranks[op->peer].bell));
}

void sim_coll_arrive(struct sim_device *dev, struct sim_coll_op *ops, uint32_t n, uint64_t at_ns)
{
    struct sim_shm *shm = sim_shm_get();
    for (uint32_t i = 0; i < n; i++) {
        atomic_store(&shm->comms[ops[i].comm].ranks[ops[i].rank].bell, dev->bell_index);
        if (ops[i].kind == SIM_OP_COLL)
            arrive_coll(shm, &ops[i], at_ns);
        else
            arrive_p2p(shm, &ops[i], at_ns);
    }
}

static uint64_t op_end(struct sim_shm *shm, const struct sim_coll_op *op)
{
    struct sim_comm *comm = &shm->comms[op->comm];
    uint64_t end = 0;
    sim_lock(&comm->lock);
    if (op->kind == SIM_OP_COLL) {
        const struct sim_coll_slot *slot = &comm->ring[op->seq % SIM_COLL_RING];
        end = slot->seq == op->seq && atomic_load(&slot->done) ? slot->end_ns : 0;
    } else {
        const struct sim_channel *c = &shm->channels[op->channel];
        uint32_t k = (uint32_t)(op->seq % SIM_COLL_RING);
        end = c->ring[k].seq == op->seq && c->ring[k].done ? c->ring[k].end_ns : 0;
    }
    sim_unlock(&comm->lock);
    return end;
}

// True when a member is dead and the patience for it is over.
static bool given_up(struct sim_comm *comm, uint32_t self, uint64_t arrived_ns)
{
    if (sim_set.coll_timeout_ns == 0 || sim_now_ns() < arrived_ns + sim_set.coll_timeout_ns)
        return false;
    for (uint32_t r = 0; r < comm->nranks; r++) {
        if (comm->ranks[r].pid != 0 && !sim_alive(comm->ranks[r].pid, 0)) {
            atomic_store(&comm->ranks[self].async_error, 6);
            return true;
        }
    }
    return false;
}

uint64_t sim_coll_end(struct sim_coll_op *ops, uint32_t n, uint64_t arrived_ns)
{
    struct sim_shm *shm = sim_shm_get();
    uint64_t latest = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct sim_comm *comm = &shm->comms[ops[i].comm];
        uint64_t end = op_end(shm, &ops[i]);
        if (end == 0 && (atomic_load(&comm->ranks[ops[i].rank].aborted) ||
                         atomic_load(&comm->ranks[ops[i].rank].async_error) != 0 ||
                         given_up(comm, ops[i].rank, arrived_ns)))
            end = sim_now_ns();
        if (end == 0)
            return 0;
        latest = end > latest ? end : latest;
    }
    return latest;
}

void sim_coll_effects(struct sim_coll_op *ops, uint32_t n)
{
    struct sim_shm *shm = sim_shm_get();
    for (uint32_t i = 0; i < n; i++) {
        struct sim_coll_op *op = &ops[i];
        struct sim_comm *comm = &shm->comms[op->comm];
        bool failed = atomic_load(&comm->ranks[op->rank].aborted) ||
                      atomic_load(&comm->ranks[op->rank].async_error) != 0;
        if (failed || op->recv == NULL || (op->dtype != 4 && op->dtype != 5) || op->count == 0)
            continue;
        uint64_t value = 0;
        sim_lock(&comm->lock);
        if (op->kind == SIM_OP_COLL)
            value = comm->ring[op->seq % SIM_COLL_RING].sum;
        else
            value = shm->channels[op->channel].ring[op->seq % SIM_COLL_RING].value;
        sim_unlock(&comm->lock);
        if (op->kind != SIM_OP_SEND)
            memcpy(op->recv, &value, sizeof(value));
    }
}
