// SPDX-License-Identifier: Apache-2.0
// Every traced function of NCCL, on communicators of one rank. What several ranks see of each
// other is another test.
#include "capture_ops.h"

#include <dlfcn.h>
#include <string.h>

typedef void *ptr;
typedef struct {
    char internal[128];
} unique_id;

static ptr g_send, g_recv, g_stream;
static size_t n;

#define SIZE (n = ops_prime())
enum { TYPE_F32 = 7, TYPE_F64 = 8, TYPE_BF16 = 9 };

// From other libraries: sums of bytes are told apart by op, so these need not be quiet.
static int other(const char *file, const char *symbol, void *ret_fn)
{
    void *at = dlsym(dlopen(file, RTLD_NOW), symbol);
    memcpy(ret_fn, &at, sizeof(at));
    return at == NULL;
}

static void prepare(void)
{
    int (*allocate)(ptr *, size_t) = NULL;
    int (*stream)(ptr *, unsigned) = NULL;
    int (*select)(int) = NULL;
    ops_check(other("libcudart.so.12", "cudaSetDevice", &select) != 0 || select(0),
              "cudaSetDevice");
    ops_check(other("libcudart.so.12", "cudaMalloc", &allocate) != 0 ||
                  allocate(&g_send, 1 << 24) != 0 || allocate(&g_recv, 1 << 24) != 0,
              "cudaMalloc");
    ops_check(other("libcudart.so.12", "cudaStreamCreateWithFlags", &stream) != 0 ||
                  stream(&g_stream, 1) != 0,
              "cudaStreamCreateWithFlags");
}

static ptr communicators(void)
{
    unique_id id;
    ptr one = NULL, comm = NULL, all[1];
    DO("ncclGetUniqueId", (0), (unique_id *), (&id));
    DO("ncclCommInitRank", (.any_handle = OPS_ANY), (ptr *, int, unique_id, int), (&one, 1, id, 0));
    DO("ncclGetUniqueId", (0), (unique_id *), (&id));
    DO("ncclCommInitRankConfig", (.any_handle = OPS_ANY), (ptr *, int, unique_id, int, ptr),
       (&comm, 1, id, 0, NULL));
    DO("ncclCommFinalize", (.handle = OPS_ADDR(comm)), (ptr), (comm));
    DO("ncclCommDestroy", (.handle = OPS_ADDR(comm)), (ptr), (comm));
    DO("ncclGetUniqueId", (0), (unique_id *), (&id));
    DO("ncclCommInitRankScalable", (.any_handle = OPS_ANY),
       (ptr *, int, int, int, unique_id *, ptr), (&comm, 1, 0, 1, &id, NULL));
    DO("ncclCommAbort", (.handle = OPS_ADDR(comm)), (ptr), (comm));
    DO("ncclCommInitAll", (.any_handle = OPS_ANY), (ptr *, int, const int *), (all, 1, NULL));
    DO("ncclCommSplit", (.any_handle = OPS_ANY), (ptr, int, int, ptr *, ptr),
       (one, 0, 0, &comm, NULL));
    DO("ncclCommDestroy", (.handle = OPS_ADDR(comm)), (ptr), (comm));
    DO("ncclCommShrink", (.any_handle = OPS_ANY), (ptr, int *, int, ptr *, ptr, int),
       (one, NULL, 0, &comm, NULL, 0));
    DO("ncclCommDestroy", (.handle = OPS_ADDR(comm)), (ptr), (comm));
    return one;
}

#define TWO ptr, ptr, size_t, int

static void collectives(ptr comm)
{
    const uint64_t c = OPS_ADDR(comm);
    DO("ncclAllReduce", (.bytes = SIZE * 4, .kind = TYPE_F32, .handle = c), (TWO, int, ptr, ptr),
       (g_send, g_recv, n, TYPE_F32, 0, comm, g_stream));
    DO("ncclReduceScatter", (.bytes = SIZE * 8, .kind = TYPE_F64, .handle = c),
       (TWO, int, ptr, ptr), (g_send, g_recv, n, TYPE_F64, 0, comm, g_stream));
    DO("ncclReduce", (.bytes = SIZE * 2, .kind = TYPE_BF16, .handle = c), (TWO, int, int, ptr, ptr),
       (g_send, g_recv, n, TYPE_BF16, 0, 0, comm, g_stream));
    DO("ncclBroadcast", (.bytes = SIZE * 4, .kind = TYPE_F32, .handle = c), (TWO, int, ptr, ptr),
       (g_send, g_recv, n, TYPE_F32, 0, comm, g_stream));
    DO("ncclBcast", (.bytes = SIZE * 8, .kind = TYPE_F64, .handle = c),
       (ptr, size_t, int, int, ptr, ptr), (g_send, n, TYPE_F64, 0, comm, g_stream));
    DO("ncclAllGather", (.bytes = SIZE * 2, .kind = TYPE_BF16, .handle = c), (TWO, ptr, ptr),
       (g_send, g_recv, n, TYPE_BF16, comm, g_stream));
    DO("ncclAlltoAll", (.bytes = SIZE * 4, .kind = TYPE_F32, .handle = c), (TWO, ptr, ptr),
       (g_send, g_recv, n, TYPE_F32, comm, g_stream));
    DO("ncclGather", (.bytes = SIZE * 8, .kind = TYPE_F64, .handle = c), (TWO, int, ptr, ptr),
       (g_send, g_recv, n, TYPE_F64, 0, comm, g_stream));
    DO("ncclScatter", (.bytes = SIZE * 2, .kind = TYPE_BF16, .handle = c), (TWO, int, ptr, ptr),
       (g_send, g_recv, n, TYPE_BF16, 0, comm, g_stream));
    int error = -1;
    DO("ncclCommGetAsyncError", (.handle = c), (ptr, int *), (comm, &error));
    ops_check(error, "asynchronous error");
    DO("ncclGroupStart", (0), (void), ());
    DO("ncclSend", (.bytes = SIZE * 4, .kind = TYPE_F32, .handle = c),
       (ptr, size_t, int, int, ptr, ptr), (g_send, n, TYPE_F32, 0, comm, g_stream));
    DO("ncclRecv", (.bytes = n * 4, .kind = TYPE_F32, .handle = c),
       (ptr, size_t, int, int, ptr, ptr), (g_recv, n, TYPE_F32, 0, comm, g_stream));
    DO("ncclGroupEnd", (0), (void), ());
}

static void memory(ptr comm)
{
    ptr at = NULL, handle = NULL;
    const uint64_t c = OPS_ADDR(comm);
    DO("ncclMemAlloc", (.bytes = SIZE), (ptr *, size_t), (&at, n));
    DO("ncclCommRegister", (.bytes = SIZE), (ptr, ptr, size_t, ptr *), (comm, at, n, &handle));
    DO("ncclCommDeregister", (.handle = c), (ptr, ptr), (comm, handle));
    DO("ncclCommWindowRegister", (.bytes = SIZE), (ptr, ptr, size_t, ptr *, int),
       (comm, at, n, &handle, 1));
    DO("ncclCommWindowDeregister", (.handle = c), (ptr, ptr), (comm, handle));
    DO("ncclMemFree", (.handle = OPS_ADDR(at)), (ptr), (at));
}

void ops_nccl(void)
{
    prepare();
    ptr comm = communicators();
    collectives(comm);
    memory(comm);
}
