// SPDX-License-Identifier: Apache-2.0
// NCCL: groups and operations. Each operation, or each group per stream, becomes one kernel launch
// through the driver's cuLaunchKernelEx with its parameters in the "extra" buffer, in the calling
// thread.
#include "nccl_comm.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

extern int cuLaunchKernelEx(const void *config, void *f, void **params, void **extra);
extern int cuLibraryLoadData(void **library, const void *code, void *jit, void **jit_values,
                             unsigned jit_n, void *options, void **values, unsigned n);
extern int cuLibraryGetKernel(void **kernel, void *library, const char *name);

struct launch_config { // CUlaunchConfig
    unsigned grid[3], block[3];
    unsigned shared, pad;
    cudaStream_t stream;
    void *attrs;
    unsigned attr_count;
};

struct pending_op {
    ncclComm_t comm;
    cudaStream_t stream;
    struct sim_coll_op op;
    uint32_t launched;
};

struct pending_split {
    ncclComm_t parent, *ret;
    int color, key;
    uint32_t ordinal;
};

enum { MAX_PENDING = 256 };

struct group {
    int depth;
    uint32_t ops, inits, splits;
    struct pending_op op[MAX_PENDING];
    ncclComm_t init[SIM_MAX_COMM_RANKS];
    struct pending_split split[16];
};

static _Thread_local struct group *t_group;

static struct group *group_get(void)
{
    if (t_group == NULL)
        t_group = calloc(1, sizeof(*t_group)); // lives as long as its thread's process
    return t_group;
}

int sim_group_depth(void)
{
    return t_group == NULL ? 0 : t_group->depth;
}

static void *kernel_handle(void)
{
    static void *handle;
    void *library = NULL, *kernel = __atomic_load_n(&handle, __ATOMIC_ACQUIRE);
    if (kernel != NULL)
        return kernel;
    if (cuLibraryLoadData(&library, "", NULL, NULL, 0, NULL, NULL, 0) != 0 ||
        cuLibraryGetKernel(&kernel, library,
                           "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)") != 0)
        return NULL;
    __atomic_store_n(&handle, kernel, __ATOMIC_RELEASE);
    return kernel;
}

static ncclResult_t launch_now(struct sim_coll_launch *launch, cudaStream_t stream)
{
    struct launch_config config = {{8, 1, 1}, {512, 1, 1}, 0, 0, stream, NULL, 0};
    size_t size = sizeof(*launch);
    void *extra[] = {(void *)1, launch, (void *)2, &size, NULL};
    void *kernel = kernel_handle();
    launch->magic = SIM_COLL_LAUNCH_MAGIC;
    return kernel != NULL && cuLaunchKernelEx(&config, kernel, NULL, extra) == 0 ? NCCL_OK
                                                                                 : NCCL_CUDA;
}

ncclResult_t sim_group_add_op(ncclComm_t comm, cudaStream_t stream, const struct sim_coll_op *op)
{
    struct group *g = group_get();
    if (g == NULL)
        return NCCL_SYSTEM;
    if (g->depth == 0) {
        struct sim_coll_launch launch;
        launch.n = 1;
        launch.ops[0] = *op;
        return launch_now(&launch, stream);
    }
    if (g->ops == MAX_PENDING)
        return NCCL_INTERNAL;
    g->op[g->ops++] = (struct pending_op){comm, stream, *op, 0};
    return NCCL_OK;
}

ncclResult_t sim_group_add_init(ncclComm_t comm)
{
    struct group *g = group_get();
    if (g == NULL || g->inits == SIM_MAX_COMM_RANKS)
        return NCCL_INTERNAL;
    g->init[g->inits++] = comm;
    return NCCL_OK;
}

ncclResult_t sim_group_add_split(ncclComm_t parent, int color, int key, ncclComm_t *ret)
{
    struct group *g = group_get();
    if (g == NULL || g->splits == 16)
        return NCCL_INTERNAL;
    g->split[g->splits++] = (struct pending_split){parent, ret, color, key, ++parent->splits};
    return NCCL_OK;
}

NCCL_FN(ncclGroupStart, (void))
{
    SIM_COUNT(ncclGroupStart);
    struct group *g = group_get();
    if (g == NULL)
        return NCCL_SYSTEM;
    g->depth++;
    return NCCL_OK;
}

static ncclResult_t group_launch(struct group *g)
{
    ncclResult_t rc = NCCL_OK;
    for (uint32_t i = 0; i < g->ops && rc == NCCL_OK; i++) {
        struct sim_coll_launch launch;
        if (g->op[i].launched)
            continue;
        launch.n = 0;
        for (uint32_t k = i; k < g->ops && launch.n < SIM_MAX_GROUP_OPS / 2; k++) {
            if (g->op[k].launched || g->op[k].stream != g->op[i].stream ||
                g->op[k].comm->device != g->op[i].comm->device)
                continue;
            launch.ops[launch.n++] = g->op[k].op;
            g->op[k].launched = 1;
        }
        rc = launch_now(&launch, g->op[i].stream);
    }
    return rc;
}

NCCL_FN(ncclGroupEnd, (void))
{
    SIM_COUNT(ncclGroupEnd);
    struct group *g = group_get();
    if (g == NULL || g->depth == 0)
        return NCCL_USAGE;
    if (--g->depth > 0)
        return NCCL_OK;
    ncclResult_t rc = NCCL_OK;
    for (uint32_t i = 0; i < g->inits && rc == NCCL_OK; i++)
        rc = sim_comm_wait_joined(g->init[i]);
    for (uint32_t i = 0; i < g->splits && rc == NCCL_OK; i++) {
        struct pending_split *s = &g->split[i];
        rc = sim_comm_split_now(s->parent, s->ordinal, s->color, s->key, s->ret);
    }
    if (rc == NCCL_OK)
        rc = group_launch(g);
    g->inits = 0;
    g->splits = 0;
    g->ops = 0;
    return rc;
}

static const uint32_t g_type_bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};

enum {
    F_ALLREDUCE,
    F_BROADCAST,
    F_REDUCE,
    F_ALLGATHER,
    F_REDUCESCATTER,
    F_ALLTOALL,
    F_GATHER,
    F_SCATTER,
    F_SENDRECV
};

static ncclResult_t op_add(ncclComm_t comm, cudaStream_t stream, struct sim_coll_op op,
                           uint64_t factor)
{
    if (!sim_comm_valid(comm) || op.dtype >= sizeof(g_type_bytes) / sizeof(g_type_bytes[0]) ||
        op.root >= (uint32_t)comm->nranks)
        return NCCL_EINVAL;
    if (op.kind != SIM_OP_COLL && op.peer >= (uint32_t)comm->nranks)
        return NCCL_EINVAL;
    if (!comm->ready && sim_group_depth() == 0)
        return NCCL_EINVAL;
    op.comm = comm->index;
    op.rank = (uint32_t)comm->rank;
    op.bytes = op.count * g_type_bytes[op.dtype] * factor;
    return sim_group_add_op(comm, stream, &op);
}

#define OP(...)     ((struct sim_coll_op){__VA_ARGS__})
#define RANKS(comm) (sim_comm_valid(comm) ? (uint64_t)(comm)->nranks : 1)

NCCL_FN(ncclAllReduce, (const void *send, void *recv, size_t count, unsigned type, unsigned op,
                        ncclComm_t comm, cudaStream_t stream))
{
    SIM_COUNT(ncclAllReduce);
    return op_add(comm, stream,
                  OP(.func = F_ALLREDUCE, .dtype = type, .redop = op, .count = count, .send = send,
                     .recv = recv),
                  2);
}

NCCL_FN(ncclReduceScatter, (const void *send, void *recv, size_t count, unsigned type, unsigned op,
                            ncclComm_t comm, cudaStream_t stream))
{
    SIM_COUNT(ncclReduceScatter);
    return op_add(comm, stream,
                  OP(.func = F_REDUCESCATTER, .dtype = type, .redop = op, .count = count,
                     .send = send, .recv = recv),
                  RANKS(comm));
}

NCCL_FN(ncclReduce, (const void *send, void *recv, size_t count, unsigned type, unsigned op,
                     unsigned root, ncclComm_t comm, cudaStream_t stream))
{
    SIM_COUNT(ncclReduce);
    return op_add(comm, stream,
                  OP(.func = F_REDUCE, .dtype = type, .redop = op, .root = root, .count = count,
                     .send = send, .recv = recv),
                  1);
}

NCCL_FN(ncclBroadcast, (const void *send, void *recv, size_t count, unsigned type, unsigned root,
                        ncclComm_t comm, cudaStream_t stream))
{
    SIM_COUNT(ncclBroadcast);
    return op_add(comm, stream,
                  OP(.func = F_BROADCAST, .dtype = type, .root = root, .count = count, .send = send,
                     .recv = recv),
                  1);
}

NCCL_FN(ncclBcast, (void *buff, size_t count, unsigned type, unsigned root, ncclComm_t comm,
                    cudaStream_t stream))
{
    SIM_COUNT(ncclBcast);
    return ncclBroadcast(buff, buff, count, type, root, comm, stream);
}

NCCL_FN(ncclAllGather, (const void *send, void *recv, size_t count, unsigned type, ncclComm_t comm,
                        cudaStream_t stream))
{
    SIM_COUNT(ncclAllGather);
    return op_add(
        comm, stream,
        OP(.func = F_ALLGATHER, .dtype = type, .count = count, .send = send, .recv = recv),
        RANKS(comm));
}

NCCL_FN(ncclAlltoAll, (const void *send, void *recv, size_t count, unsigned type, ncclComm_t comm,
                       cudaStream_t stream))
{
    SIM_COUNT(ncclAlltoAll);
    return op_add(comm, stream,
                  OP(.func = F_ALLTOALL, .dtype = type, .count = count, .send = send, .recv = recv),
                  RANKS(comm));
}

NCCL_FN(ncclGather, (const void *send, void *recv, size_t count, unsigned type, unsigned root,
                     ncclComm_t comm, cudaStream_t stream))
{
    SIM_COUNT(ncclGather);
    return op_add(comm, stream,
                  OP(.func = F_GATHER, .dtype = type, .root = root, .count = count, .send = send,
                     .recv = recv),
                  RANKS(comm));
}

NCCL_FN(ncclScatter, (const void *send, void *recv, size_t count, unsigned type, unsigned root,
                      ncclComm_t comm, cudaStream_t stream))
{
    SIM_COUNT(ncclScatter);
    return op_add(comm, stream,
                  OP(.func = F_SCATTER, .dtype = type, .root = root, .count = count, .send = send,
                     .recv = recv),
                  RANKS(comm));
}

NCCL_FN(ncclSend, (const void *send, size_t count, unsigned type, unsigned peer, ncclComm_t comm,
                   cudaStream_t stream))
{
    SIM_COUNT(ncclSend);
    return op_add(comm, stream,
                  OP(.kind = SIM_OP_SEND, .func = F_SENDRECV, .dtype = type, .peer = peer,
                     .count = count, .send = send),
                  1);
}

NCCL_FN(ncclRecv, (void *recv, size_t count, unsigned type, unsigned peer, ncclComm_t comm,
                   cudaStream_t stream))
{
    SIM_COUNT(ncclRecv);
    return op_add(comm, stream,
                  OP(.kind = SIM_OP_RECV, .func = F_SENDRECV, .dtype = type, .peer = peer,
                     .count = count, .recv = recv),
                  1);
}

extern int cuMemAlloc_v2(uint64_t *ptr, size_t bytes);
extern int cuMemFree_v2(uint64_t ptr);

NCCL_FN(ncclMemAlloc, (void **ptr, size_t bytes))
{
    SIM_COUNT(ncclMemAlloc);
    uint64_t at = 0;
    if (ptr == NULL || cuMemAlloc_v2(&at, bytes) != 0)
        return ptr == NULL ? NCCL_EINVAL : NCCL_CUDA;
    *ptr = (void *)(uintptr_t)at;
    return NCCL_OK;
}

NCCL_FN(ncclCommRegister, (ncclComm_t comm, void *buff, size_t bytes, void **handle))
{
    SIM_COUNT(ncclCommRegister);
    if (!sim_comm_valid(comm) || buff == NULL || bytes == 0 || handle == NULL)
        return NCCL_EINVAL;
    *handle = buff;
    return NCCL_OK;
}

NCCL_FN(ncclCommDeregister, (ncclComm_t comm, void *handle))
{
    SIM_COUNT(ncclCommDeregister);
    return sim_comm_valid(comm) && handle != NULL ? NCCL_OK : NCCL_EINVAL;
}

NCCL_FN(ncclCommWindowRegister,
        (ncclComm_t comm, void *buff, size_t bytes, void **window, int flags))
{
    SIM_COUNT(ncclCommWindowRegister);
    (void)flags;
    if (!sim_comm_valid(comm) || buff == NULL || bytes == 0 || window == NULL)
        return NCCL_EINVAL;
    *window = buff;
    return NCCL_OK;
}

NCCL_FN(ncclCommWindowDeregister, (ncclComm_t comm, void *window))
{
    SIM_COUNT(ncclCommWindowDeregister);
    return sim_comm_valid(comm) && window != NULL ? NCCL_OK : NCCL_EINVAL;
}

NCCL_FN(ncclMemFree, (void *ptr))
{
    SIM_COUNT(ncclMemFree);
    return cuMemFree_v2((uint64_t)(uintptr_t)ptr) == 0 ? NCCL_OK : NCCL_CUDA;
}
