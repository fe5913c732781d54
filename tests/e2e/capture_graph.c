// SPDX-License-Identifier: Apache-2.0
// Graphs with known contents: recorded in every way, made executable in every way, launched a known
// number of times. Says on its output what the launches stand for.
//     capture_graph DIR [one-stream]
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sim_api.h"

extern cudaError_t cudaStreamBeginCaptureToGraph(cudaStream_t stream, cudaGraph_t graph,
                                                 const void *dependencies, const void *data,
                                                 size_t count, int mode);
extern cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *exec, cudaGraph_t graph,
                                                 unsigned long long flags);
extern cudaError_t cudaGraphInstantiateWithParams(cudaGraphExec_t *exec, cudaGraph_t graph,
                                                  void *params);
extern cudaError_t cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t graph, void *result);
extern cudaError_t cudaGraphCreate(cudaGraph_t *graph, unsigned flags);
extern int cuGraphLaunch(void *exec, void *stream);

enum { COPY = 4096, SET = 1000, WORDS = 1000, BUFFER = 1 << 16 };

// What one launch of a graph stands for.
struct contents {
    unsigned launches, copies, sets, collectives;
};

static struct contents g_replayed;
static int g_failed;
static void *g_device, *g_host;
static ncclComm_t g_comm;

static void check(int rc, const char *what)
{
    if (rc != 0) {
        g_failed++;
        fprintf(stderr, "capture_graph: %s: %d\n", what, rc);
    }
}
#define CHECK(call) check((call), #call)

static void kernel(cudaStream_t stream, struct contents *c)
{
    uint64_t ns = 1000;
    void *args[] = {&ns};
    CHECK(cudaLaunchKernel((const void *)&simKernel, (dim3){1, 1, 1}, (dim3){32, 1, 1}, args, 0,
                           stream));
    c->launches++;
}

static void collective(cudaStream_t stream, struct contents *c)
{
    CHECK(ncclAllReduce(g_device, g_device, WORDS, ncclFloat, ncclSum, g_comm, stream));
    c->collectives++;
}

static void launch(cudaGraphExec_t exec, cudaStream_t stream, const struct contents *c,
                   unsigned times, int driver)
{
    for (unsigned i = 0; i < times; i++) {
        CHECK(driver ? cuGraphLaunch(exec, stream) : cudaGraphLaunch(exec, stream));
        g_replayed.launches += c->launches;
        g_replayed.copies += c->copies;
        g_replayed.sets += c->sets;
        g_replayed.collectives += c->collectives;
    }
    CHECK(cudaStreamSynchronize(stream));
}

struct other_thread {
    cudaStream_t stream;
    struct contents *c;
};

static void *run_other(void *arg)
{
    struct other_thread *o = arg;
    CHECK(cudaSetDevice(0));
    kernel(o->stream, o->c);
    return NULL;
}

// A stream that joins by an event, a thread that has begun nothing, a group, and a stream that is
// no part of it.
static cudaGraph_t forked(cudaStream_t stream, struct contents *c)
{
    cudaStream_t side, stranger;
    cudaEvent_t fork, join;
    cudaGraph_t graph = NULL;
    struct contents none = {0};
    pthread_t thread;
    CHECK(cudaStreamCreateWithFlags(&side, 1));
    CHECK(cudaStreamCreateWithFlags(&stranger, 1));
    CHECK(cudaEventCreateWithFlags(&fork, 2));
    CHECK(cudaEventCreateWithFlags(&join, 2));
    CHECK(cudaStreamBeginCapture(stream, 2));
    kernel(stream, c);
    CHECK(cudaEventRecord(fork, stream));
    CHECK(cudaStreamWaitEvent(side, fork, 0));
    kernel(side, c);
    struct other_thread other = {.stream = side, .c = c};
    check(pthread_create(&thread, NULL, run_other, &other), "pthread_create");
    check(pthread_join(thread, NULL), "pthread_join");
    for (int i = 0; i < 4; i++)
        kernel(stranger, &none);
    CHECK(ncclGroupStart());
    collective(side, c);
    CHECK(ncclGroupEnd());
    CHECK(cudaEventRecord(join, side));
    CHECK(cudaStreamWaitEvent(stream, join, 0));
    collective(stream, c);
    CHECK(cudaStreamEndCapture(stream, &graph));
    kernel(side, &none); // what was part of it is not any more
    CHECK(cudaStreamSynchronize(stranger));
    CHECK(cudaStreamSynchronize(side));
    return graph;
}

static cudaGraph_t plain(cudaStream_t stream, struct contents *c)
{
    cudaGraph_t graph = NULL;
    CHECK(cudaStreamBeginCapture(stream, 0));
    for (int i = 0; i < 3; i++)
        kernel(stream, c);
    CHECK(cudaMemcpyAsync(g_device, g_host, COPY, cudaMemcpyHostToDevice, stream));
    c->copies++;
    CHECK(cudaMemsetAsync(g_device, 0, SET, stream));
    c->sets++;
    collective(stream, c);
    CHECK(cudaStreamEndCapture(stream, &graph));
    return graph;
}

static void run(int one_stream)
{
    cudaStream_t s;
    cudaGraph_t graph, side, empty = NULL, nested = NULL;
    cudaGraphExec_t exec = NULL, forks = NULL, params = NULL, unknown = NULL, outer = NULL;
    struct contents c = {0}, f = {0}, none = {0};
    CHECK(cudaStreamCreateWithFlags(&s, 1));
    graph = plain(s, &c);
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    launch(exec, s, &c, 5, 0);
    struct contents more = c;
    CHECK(cudaStreamBeginCaptureToGraph(s, graph, NULL, NULL, 0, 0));
    kernel(s, &more);
    CHECK(cudaStreamEndCapture(s, &graph));
    launch(exec, s, &c, 1, 0); // as it was
    CHECK(cudaGraphExecUpdate(exec, graph, NULL));
    launch(exec, s, &more, 2, 0);
    CHECK(cudaGraphInstantiateWithParams(&params, graph, NULL));
    launch(params, s, &more, 2, 1);
    if (!one_stream) {
        side = forked(s, &f);
        CHECK(cudaGraphInstantiateWithFlags(&forks, side, 0));
        CHECK(cudaGraphDestroy(side));
        launch(forks, s, &f, 3, 0);
    }
    // An address that was an executable's before, of a graph whose making was not seen.
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphCreate(&empty, 0));
    CHECK(cudaGraphInstantiate(&unknown, empty, 0));
    launch(unknown, s, &none, 3, 0);
    // A graph inside a graph: nothing runs while it is recorded, its launches are not followed.
    CHECK(cudaStreamBeginCapture(s, 0));
    CHECK(cudaGraphLaunch(params, s));
    CHECK(cudaStreamEndCapture(s, &nested));
    CHECK(cudaGraphInstantiate(&outer, nested, 0));
    // From now on it stands for what nobody saw being made.
    CHECK(cudaGraphExecUpdate(params, empty, NULL));
    launch(params, s, &none, 2, 0);
    CHECK(cudaStreamBeginCapture(s, 0)); // still open at the end
    kernel(s, &none);
}

int main(int argc, char **argv)
{
    ncclUniqueId id;
    if (argc < 2)
        return 2;
    CHECK(cudaSetDevice(0));
    CHECK(cudaMalloc(&g_device, BUFFER));
    CHECK(cudaHostAlloc(&g_host, BUFFER, 0));
    CHECK(ncclGetUniqueId(&id));
    CHECK(ncclCommInitRank(&g_comm, 1, id, 0));
    run(argc > 2 && strcmp(argv[2], "one-stream") == 0);
    printf("{\"pid\": %d, \"launches\": %u, \"copies\": %u, \"copy_bytes\": %u, \"sets\": %u, "
           "\"set_bytes\": %u, \"collectives\": %u, \"collective_bytes\": %u}\n",
           getpid(), g_replayed.launches, g_replayed.copies, g_replayed.copies * COPY,
           g_replayed.sets, g_replayed.sets * SET, g_replayed.collectives,
           g_replayed.collectives * WORDS * 4);
    fflush(stdout);
    _exit(g_failed != 0); // with a capture open
}
