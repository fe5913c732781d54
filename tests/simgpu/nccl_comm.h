// SPDX-License-Identifier: Apache-2.0
// The communicator behind an ncclComm_t.
#ifndef SIM_NCCL_COMM_H
#define SIM_NCCL_COMM_H

#include "sim_launch.h"
#include "sim_shm.h"

typedef int ncclResult_t;
typedef struct sim_nccl_comm *ncclComm_t;
typedef void *cudaStream_t;
typedef struct {
    char internal[SIM_UID_BYTES];
} ncclUniqueId;

enum {
    NCCL_OK = 0,
    NCCL_CUDA = 1,
    NCCL_SYSTEM = 2,
    NCCL_INTERNAL = 3,
    NCCL_EINVAL = 4,
    NCCL_USAGE = 5,
    NCCL_REMOTE = 6,
    NCCL_IN_PROGRESS = 7,
};

#define SIM_NCCL_MAGIC 0x4e43434cu

struct sim_nccl_comm {
    uint32_t magic;
    uint32_t index; // in the shared area
    int rank, nranks, device;
    uint32_t splits;
    uint32_t ready; // all ranks have joined
};

#define NCCL_API __attribute__((visibility("default")))
// ncclX is a weak alias of pncclX: two names, one address.
#define NCCL_FN(name, params)                                                                      \
    NCCL_API ncclResult_t p##name params;                                                          \
    NCCL_API ncclResult_t name params __attribute__((weak, alias("p" #name)));                     \
    NCCL_API ncclResult_t p##name params

// nccl_group.c: what happens inside a group is put off to its end. depth is per thread.
int sim_group_depth(void);
ncclResult_t sim_group_add_op(ncclComm_t comm, cudaStream_t stream, const struct sim_coll_op *op);
ncclResult_t sim_group_add_init(ncclComm_t comm);
ncclResult_t sim_group_add_split(ncclComm_t parent, int color, int key, ncclComm_t *ret);

// nccl_comm.c
ncclResult_t sim_comm_wait_joined(ncclComm_t comm);
ncclResult_t sim_comm_split_now(ncclComm_t parent, uint32_t ordinal, int color, int key,
                                ncclComm_t *ret);
bool sim_comm_valid(ncclComm_t comm);

#endif
