// SPDX-License-Identifier: Apache-2.0
// NCCL: identity, creation, splitting and end of communicators.
#include "nccl_comm.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

SIM_DEFINE_TALLY(simTallyNccl)

extern int cuCtxGetDevice(int *device);
extern int cuInit(unsigned flags);
extern int cuDevicePrimaryCtxRetain(void **ctx, int device);
extern int cuCtxSetCurrent(void *ctx);

bool sim_comm_valid(ncclComm_t comm)
{
    return comm != NULL && comm->magic == SIM_NCCL_MAGIC;
}

NCCL_FN(ncclGetVersion, (int *version))
{
    SIM_COUNT(ncclGetVersion);
    if (version == NULL)
        return NCCL_EINVAL;
    *version = 22809;
    return NCCL_OK;
}

NCCL_FN(ncclGetUniqueId, (ncclUniqueId * id))
{
    SIM_COUNT(ncclGetUniqueId);
    if (id == NULL)
        return NCCL_EINVAL;
    return getrandom(id, sizeof(*id), 0) == (ssize_t)sizeof(*id) ? NCCL_OK : NCCL_SYSTEM;
}

NCCL_API const char *pncclGetErrorString(ncclResult_t result);
NCCL_API const char *ncclGetErrorString(ncclResult_t result)
    __attribute__((weak, alias("pncclGetErrorString")));
NCCL_API const char *pncclGetErrorString(ncclResult_t result)
{
    SIM_COUNT(ncclGetErrorString);
    static const char *const texts[] = {"no error",
                                        "unhandled cuda error",
                                        "unhandled system error",
                                        "internal error",
                                        "invalid argument",
                                        "invalid usage",
                                        "remote process exited or there was a network error",
                                        "NCCL operation in progress"};
    return result >= 0 && result <= 7 ? texts[result] : "unknown result code";
}

static void channels_forget(struct sim_shm *shm, uint32_t comm)
{
    for (size_t i = 0; i < SIM_MAX_CHANNELS; i++) {
        struct sim_channel *c = &shm->channels[i];
        if (c->used && c->comm == comm) {
            uint32_t src = c->src, dst = c->dst;
            memset(c, 0, sizeof(*c));
            c->used = 1;
            c->comm = comm;
            c->src = src;
            c->dst = dst;
        }
    }
}

// A communicator that all its ranks have left, or whose ranks are all dead, is used again.
static bool comm_reusable(const struct sim_comm *comm)
{
    if (!atomic_load(&comm->used))
        return true;
    if (atomic_load(&comm->joined) == comm->nranks && atomic_load(&comm->left) >= comm->nranks)
        return true;
    for (uint32_t r = 0; r < comm->nranks; r++) {
        if (comm->ranks[r].pid != 0 && sim_alive(comm->ranks[r].pid, 0))
            return false;
    }
    return true;
}

static int comm_find(struct sim_shm *shm, const unsigned char *id, uint32_t nranks)
{
    for (int i = 0; i < SIM_MAX_COMMS; i++) {
        struct sim_comm *c = &shm->comms[i];
        if (atomic_load(&c->used) && memcmp(c->id, id, SIM_UID_BYTES) == 0)
            return c->nranks == nranks ? i : -1;
    }
    for (int i = 0; i < SIM_MAX_COMMS; i++) {
        struct sim_comm *c = &shm->comms[i];
        if (!comm_reusable(c))
            continue;
        memcpy(c->id, id, SIM_UID_BYTES);
        c->nranks = nranks;
        atomic_store(&c->joined, 0);
        atomic_store(&c->left, 0);
        atomic_store(&c->split_gen, 0);
        atomic_store(&c->link_permille, 1000);
        memset(c->ranks, 0, sizeof(c->ranks));
        memset(c->ring, 0, sizeof(c->ring));
        for (size_t r = 0; r < SIM_MAX_COMM_RANKS; r++)
            atomic_store(&c->ranks[r].bell, -1);
        channels_forget(shm, (uint32_t)i);
        atomic_store(&c->used, 1);
        return i;
    }
    return -1;
}

static ncclResult_t comm_join(const unsigned char *id, int nranks, int rank, ncclComm_t *ret)
{
    struct sim_shm *shm = sim_shm_get();
    int device = 0;
    if (ret == NULL)
        return NCCL_EINVAL;
    *ret = NULL;
    if (nranks < 1 || nranks > SIM_MAX_COMM_RANKS || rank < 0 || rank >= nranks)
        return NCCL_EINVAL;
    if (shm == NULL)
        return NCCL_SYSTEM;
    if (cuCtxGetDevice(&device) != 0)
        return NCCL_CUDA;
    ncclComm_t comm = calloc(1, sizeof(*comm));
    if (comm == NULL)
        return NCCL_SYSTEM;
    sim_lock(&shm->lock);
    int index = comm_find(shm, id, (uint32_t)nranks);
    bool ok = index >= 0 && !atomic_load(&shm->comms[index].ranks[rank].registered);
    if (ok) {
        struct sim_comm *c = &shm->comms[index];
        c->ranks[rank].pid = getpid();
        atomic_store(&c->ranks[rank].registered, 1);
        atomic_fetch_add(&c->joined, 1);
        sim_futex_wake(&c->joined, INT_MAX);
    }
    sim_unlock(&shm->lock);
    if (!ok) {
        free(comm);
        return NCCL_EINVAL;
    }
    *comm = (struct sim_nccl_comm){SIM_NCCL_MAGIC, (uint32_t)index, rank, nranks, device, 0, 0};
    *ret = comm;
    return NCCL_OK;
}

// The slowest rank decides how long this takes, as with the real bootstrap.
ncclResult_t sim_comm_wait_joined(ncclComm_t comm)
{
    struct sim_comm *c = &sim_shm_get()->comms[comm->index];
    uint64_t patience = sim_env_u64("SIMGPU_COLL_TIMEOUT_S", 0) * 1000000000ull;
    uint64_t until = patience == 0 ? 0 : sim_now_ns() + patience;
    for (uint32_t have = atomic_load(&c->joined); have < c->nranks;
         have = atomic_load(&c->joined)) {
        if (until != 0 && sim_now_ns() > until)
            return NCCL_REMOTE;
        sim_futex_wait(&c->joined, have, until);
    }
    comm->ready = 1;
    return NCCL_OK;
}

static ncclResult_t comm_init(ncclComm_t *comm, int nranks, const unsigned char *id, int rank)
{
    ncclResult_t rc = comm_join(id, nranks, rank, comm);
    if (rc != NCCL_OK)
        return rc;
    return sim_group_depth() > 0 ? sim_group_add_init(*comm) : sim_comm_wait_joined(*comm);
}

NCCL_FN(ncclCommInitRank, (ncclComm_t * comm, int nranks, ncclUniqueId id, int rank))
{
    SIM_COUNT(ncclCommInitRank);
    return comm_init(comm, nranks, (const unsigned char *)id.internal, rank);
}

NCCL_FN(ncclCommInitRankConfig,
        (ncclComm_t * comm, int nranks, ncclUniqueId id, int rank, void *config))
{
    SIM_COUNT(ncclCommInitRankConfig);
    (void)config;
    return comm_init(comm, nranks, (const unsigned char *)id.internal, rank);
}

NCCL_FN(ncclCommInitRankScalable,
        (ncclComm_t * comm, int nranks, int rank, int n_id, ncclUniqueId *ids, void *config))
{
    SIM_COUNT(ncclCommInitRankScalable);
    (void)config;
    if (n_id < 1 || ids == NULL)
        return NCCL_EINVAL;
    return comm_init(comm, nranks, (const unsigned char *)ids[0].internal, rank);
}

NCCL_FN(ncclCommInitAll, (ncclComm_t * comms, int ndev, const int *devices))
{
    SIM_COUNT(ncclCommInitAll);
    ncclUniqueId id;
    void *ctx = NULL;
    if (comms == NULL || ndev < 1 || cuInit(0) != 0)
        return comms == NULL || ndev < 1 ? NCCL_EINVAL : NCCL_CUDA;
    ncclResult_t rc = ncclGetUniqueId(&id);
    for (int i = 0; i < ndev && rc == NCCL_OK; i++) {
        if (cuDevicePrimaryCtxRetain(&ctx, devices == NULL ? i : devices[i]) != 0 ||
            cuCtxSetCurrent(ctx) != 0)
            return NCCL_CUDA;
        rc = comm_join((const unsigned char *)id.internal, ndev, i, &comms[i]);
    }
    for (int i = 0; i < ndev && rc == NCCL_OK; i++)
        rc = sim_comm_wait_joined(comms[i]);
    return rc;
}

static void derive_id(const unsigned char *parent, uint32_t ordinal, uint32_t color,
                      unsigned char *ret_id)
{
    uint64_t state = 1469598103934665603ull ^ ((uint64_t)ordinal << 32) ^ color;
    for (size_t i = 0; i < SIM_UID_BYTES; i++) {
        state = (state ^ parent[i]) * 1099511628211ull;
        ret_id[i] = (unsigned char)(state >> 32);
    }
}

// Waits until every rank of the parent has said its colour and key for this split.
static ncclResult_t split_gather(struct sim_comm *c, uint32_t ordinal)
{
    uint64_t patience = sim_env_u64("SIMGPU_COLL_TIMEOUT_S", 0) * 1000000000ull;
    uint64_t until = patience == 0 ? 0 : sim_now_ns() + patience;
    for (;;) {
        uint32_t gen = atomic_load(&c->split_gen), have = 0;
        sim_lock(&c->lock);
        for (uint32_t r = 0; r < c->nranks; r++)
            have += c->ranks[r].split_seq >= ordinal;
        sim_unlock(&c->lock);
        if (have == c->nranks)
            return NCCL_OK;
        if (until != 0 && sim_now_ns() > until)
            return NCCL_REMOTE;
        sim_futex_wait(&c->split_gen, gen, until);
    }
}

// A split reads what the others said one or two splits ago at most: two places per rank are enough,
// since a rank reaches split n + 2 only after all have said n + 1, which each does only after it
// has read n.
ncclResult_t sim_comm_split_now(ncclComm_t parent, uint32_t ordinal, int color, int key,
                                ncclComm_t *ret)
{
    struct sim_comm *c = &sim_shm_get()->comms[parent->index];
    unsigned char id[SIM_UID_BYTES];
    int nranks = 0, rank = 0;
    sim_lock(&c->lock);
    struct sim_comm_rank *me = &c->ranks[parent->rank];
    me->split_color[ordinal % 2] = color;
    me->split_key[ordinal % 2] = key;
    me->split_seq = ordinal;
    sim_unlock(&c->lock);
    atomic_fetch_add(&c->split_gen, 1);
    sim_futex_wake(&c->split_gen, INT_MAX);
    ncclResult_t rc = split_gather(c, ordinal);
    if (rc != NCCL_OK || color < 0) {
        *ret = NULL;
        return rc;
    }
    sim_lock(&c->lock);
    for (int r = 0; r < (int)c->nranks; r++) {
        if (c->ranks[r].split_color[ordinal % 2] != color)
            continue;
        nranks++;
        int other = c->ranks[r].split_key[ordinal % 2];
        rank += other < key || (other == key && r < parent->rank);
    }
    derive_id(c->id, ordinal, (uint32_t)color, id);
    sim_unlock(&c->lock);
    rc = comm_join(id, nranks, rank, ret);
    return rc != NCCL_OK ? rc : sim_comm_wait_joined(*ret);
}

NCCL_FN(ncclCommSplit, (ncclComm_t comm, int color, int key, ncclComm_t *newcomm, void *config))
{
    SIM_COUNT(ncclCommSplit);
    (void)config;
    if (!sim_comm_valid(comm) || newcomm == NULL)
        return NCCL_EINVAL;
    *newcomm = NULL;
    if (sim_group_depth() > 0)
        return sim_group_add_split(comm, color, key, newcomm);
    return sim_comm_split_now(comm, ++comm->splits, color, key, newcomm);
}

NCCL_FN(ncclCommShrink,
        (ncclComm_t comm, int *exclude, int n, ncclComm_t *newcomm, void *config, int flags))
{
    SIM_COUNT(ncclCommShrink);
    unsigned char id[SIM_UID_BYTES];
    bool gone[SIM_MAX_COMM_RANKS] = {false};
    int nranks = 0, rank = 0;
    (void)config;
    (void)flags;
    if (!sim_comm_valid(comm) || newcomm == NULL || (n > 0 && exclude == NULL))
        return NCCL_EINVAL;
    *newcomm = NULL;
    for (int i = 0; i < n; i++) {
        if (exclude[i] < 0 || exclude[i] >= comm->nranks || exclude[i] == comm->rank)
            return NCCL_EINVAL;
        gone[exclude[i]] = true;
    }
    for (int r = 0; r < comm->nranks; r++) {
        nranks += !gone[r];
        rank += !gone[r] && r < comm->rank;
    }
    derive_id(sim_shm_get()->comms[comm->index].id, 0x80000000u | ++comm->splits, 0, id);
    return comm_init(newcomm, nranks, id, rank);
}

NCCL_FN(ncclCommCount, (ncclComm_t comm, int *count))
{
    SIM_COUNT(ncclCommCount);
    if (!sim_comm_valid(comm) || count == NULL)
        return NCCL_EINVAL;
    *count = comm->nranks;
    return NCCL_OK;
}

NCCL_FN(ncclCommUserRank, (ncclComm_t comm, int *rank))
{
    SIM_COUNT(ncclCommUserRank);
    if (!sim_comm_valid(comm) || rank == NULL)
        return NCCL_EINVAL;
    *rank = comm->rank;
    return NCCL_OK;
}

NCCL_FN(ncclCommCuDevice, (ncclComm_t comm, int *device))
{
    SIM_COUNT(ncclCommCuDevice);
    if (!sim_comm_valid(comm) || device == NULL)
        return NCCL_EINVAL;
    *device = comm->device;
    return NCCL_OK;
}

NCCL_FN(ncclCommGetAsyncError, (ncclComm_t comm, ncclResult_t *error))
{
    SIM_COUNT(ncclCommGetAsyncError);
    if (!sim_comm_valid(comm) || error == NULL)
        return NCCL_EINVAL;
    *error = (int)atomic_load(&sim_shm_get()->comms[comm->index].ranks[comm->rank].async_error);
    return NCCL_OK;
}

NCCL_FN(ncclCommFinalize, (ncclComm_t comm))
{
    SIM_COUNT(ncclCommFinalize);
    return sim_comm_valid(comm) ? NCCL_OK : NCCL_EINVAL;
}

static void comm_leave(ncclComm_t comm)
{
    struct sim_comm *c = &sim_shm_get()->comms[comm->index];
    comm->magic = 0;
    atomic_fetch_add(&c->left, 1);
    free(comm);
}

NCCL_FN(ncclCommDestroy, (ncclComm_t comm))
{
    SIM_COUNT(ncclCommDestroy);
    if (comm == NULL)
        return NCCL_OK;
    if (!sim_comm_valid(comm))
        return NCCL_EINVAL;
    comm_leave(comm);
    return NCCL_OK;
}

// Ends this rank's operations at once; the other ranks go on waiting until they abort too.
NCCL_FN(ncclCommAbort, (ncclComm_t comm))
{
    SIM_COUNT(ncclCommAbort);
    if (comm == NULL)
        return NCCL_OK;
    if (!sim_comm_valid(comm))
        return NCCL_EINVAL;
    struct sim_shm *shm = sim_shm_get();
    struct sim_comm_rank *me = &shm->comms[comm->index].ranks[comm->rank];
    atomic_store(&me->aborted, 1);
    int bell = atomic_load(&me->bell);
    if (bell >= 0 && bell < SIM_MAX_BELLS) {
        atomic_fetch_add(&shm->bells[bell].word, 1);
        sim_futex_wake(&shm->bells[bell].word, 1);
    }
    comm_leave(comm);
    return NCCL_OK;
}
