// SPDX-License-Identifier: Apache-2.0
// The training loop: batch, copy, forward, backward with bucketed all-reduces, loss read-back,
// optimiser.
#include "train.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct buffers {
    void *batch; // device
    void *grads; // device
    void *loss;  // device, one 64-bit integer
    void *host;  // pinned
    uint64_t *host_loss;
    cudaGraphExec_t graph; // with --graph
};

int train_launch(cudaStream_t stream, uint64_t ns)
{
    void *args[] = {&ns};
    return cudaLaunchKernel((const void *)&simKernel, (dim3){64, 1, 1}, (dim3){256, 1, 1}, args, 0,
                            stream);
}

static uint64_t thread_cpu_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

void train_burn_cpu(uint64_t ns)
{
    uint64_t end = thread_cpu_ns() + ns;
    volatile uint64_t x = 1;
    while (thread_cpu_ns() < end) {
        for (int i = 0; i < 2000; i++)
            x = x * 6364136223846793005ull + 1;
    }
}

void train_mix(struct train *t, uint64_t value)
{
    t->checksum = (t->checksum ^ value) * 1099511628211ull;
}

static void sync_stream(struct train *t)
{
    uint64_t from = sim_now_ns();
    CHECK(t, cudaStreamSynchronize(t->stream));
    t->sync_ns += sim_now_ns() - from;
}

// A rank that hangs sits here, in its own code, and never enters the next collective.
__attribute__((noinline)) static void wait_while_hung(struct train *t)
{
    struct timespec nap = {.tv_nsec = 20000000};
    while (atomic_load(&t->shm->ranks[t->rank].hang))
        nanosleep(&nap, NULL);
}

static void phase_launch(struct train *t, int kernels, uint64_t cpu_ns)
{
    const struct train_options *o = &t->opt;
    for (int i = 0; i < kernels; i++) {
        if (cpu_ns > 0)
            train_burn_cpu(cpu_ns / (uint64_t)kernels);
        CHECK(t, train_launch(t->stream, (uint64_t)(o->kernel_us * 1000)));
    }
}

static void phase_backward(struct train *t, struct buffers *b, int kernels, uint64_t cpu_ns)
{
    const struct train_options *o = &t->opt;
    int buckets = t->comm == NULL ? 0 : o->buckets;
    int parts = buckets > 0 ? buckets : 1;
    for (int i = 0; i < parts; i++) {
        int share = kernels * (i + 1) / parts - kernels * i / parts;
        phase_launch(t, share, cpu_ns / (uint64_t)parts);
        if (buckets == 0)
            continue;
        wait_while_hung(t);
        CHECK(t, ncclAllReduce(b->grads, b->grads, o->bucket_bytes / 4, ncclFloat, ncclSum, t->comm,
                               t->stream));
    }
}

// From the batch to the loss on the host.
static void enqueue_step(struct train *t, struct buffers *b, uint64_t cpu_ns)
{
    const struct train_options *o = &t->opt;
    int forward = o->kernels / 3, backward = o->kernels - forward - o->kernels / 8;
    CHECK(t, cudaMemcpyAsync(b->batch, b->host, o->batch_bytes, cudaMemcpyHostToDevice, t->stream));
    phase_launch(t, forward, cpu_ns / 3);
    // The "loss" is the first word of the batch plus the step's data: the sum over all ranks is
    // exact and repeatable.
    CHECK(t, cudaMemcpyAsync(b->loss, b->batch, 8, 3, t->stream));
    phase_backward(t, b, backward, cpu_ns * 2 / 3);
    if (t->comm != NULL)
        CHECK(t, ncclAllReduce(b->loss, b->loss, 1, ncclUint64, ncclSum, t->comm, t->stream));
    CHECK(t, cudaMemcpyAsync(b->host_loss, b->loss, 8, cudaMemcpyDeviceToHost, t->stream));
}

// The whole step as one graph, the optimiser too.
static void record_step(struct train *t, struct buffers *b)
{
    cudaGraph_t graph = NULL;
    CHECK(t, cudaStreamBeginCapture(t->stream, 0));
    enqueue_step(t, b, 0);
    phase_launch(t, t->opt.kernels / 8, 0);
    CHECK(t, cudaStreamEndCapture(t->stream, &graph));
    CHECK(t, cudaGraphInstantiate(&b->graph, graph, 0));
    CHECK(t, cudaGraphDestroy(graph));
}

static void one_step(struct train *t, struct train_loader *loader, struct buffers *b)
{
    const struct train_options *o = &t->opt;
    uint64_t cpu_ns = (uint64_t)(o->step_cpu_ms * 1e6);
    uint64_t from = sim_now_ns();
    int rc = train_loader_next(loader, b->host, o->batch_bytes);
    t->load_ns += sim_now_ns() - from;
    train_check(t, rc == 0 ? 0 : 999, "loader");
    if (b->graph != NULL) {
        train_burn_cpu(cpu_ns);
        wait_while_hung(t);
        CHECK(t, cudaGraphLaunch(b->graph, t->stream));
    } else {
        enqueue_step(t, b, cpu_ns);
    }
    sync_stream(t);
    if (t->comm != NULL) {
        int error = 0;
        CHECK(t, ncclCommGetAsyncError(t->comm, &error));
        train_check(t, error, "a collective");
    }
    train_mix(t, *b->host_loss);
    if (b->graph == NULL)
        phase_launch(t, o->kernels / 8, 0);
}

static void faults_due(struct train *t)
{
    for (int i = 0; i < t->opt.fault_count; i++) {
        const struct sim_fault *f = &t->opt.faults[i];
        if (f->rank != t->rank)
            continue;
        if (f->at_step == t->steps_done)
            sim_fault_start(t->shm, t->dir, f, NULL);
        if (f->until_step == t->steps_done)
            sim_fault_stop(t->shm, t->dir, f);
    }
}

static void window_close(struct train *t, uint64_t from_ns, uint64_t sync_ns, uint64_t load_ns)
{
    if (t->window_count == TRAIN_MAX_WINDOWS)
        return;
    struct train_window *w = &t->windows[t->window_count++];
    double steps = TRAIN_WINDOW;
    w->step_ms = (double)(sim_now_ns() - from_ns) / 1e6 / steps;
    w->sync_ms = (double)(t->sync_ns - sync_ns) / 1e6 / steps;
    w->load_ms = (double)(t->load_ns - load_ns) / 1e6 / steps;
    w->self_ms = w->step_ms - w->sync_ms;
}

// True when the loop is over. With --seconds, rank 0's view of the time decides for all, by a file
// in the shared area: here every rank stops after the same step because the stop step is agreed one
// window ahead.
static bool finished(struct train *t)
{
    const struct train_options *o = &t->opt;
    if (t->failed_calls > 0)
        return true;
    if (o->seconds <= 0)
        return t->steps_done >= o->steps;
    _Atomic uint64_t *stop = &t->shm->stop_step;
    if (t->rank == 0 && atomic_load(stop) == 0 &&
        (double)(sim_now_ns() - t->begin_ns) / 1e9 >= o->seconds)
        atomic_store(stop, t->steps_done + 2);
    uint64_t at = atomic_load(stop);
    return at != 0 && t->steps_done >= at;
}

int train_steps(struct train *t, struct train_loader *loader)
{
    struct buffers b = {0};
    CHECK(t, cudaMalloc(&b.batch, t->opt.batch_bytes));
    CHECK(t, cudaMalloc(&b.grads, t->opt.bucket_bytes));
    CHECK(t, cudaMalloc(&b.loss, 8));
    CHECK(t, cudaHostAlloc(&b.host, t->opt.batch_bytes, 0));
    CHECK(t, cudaHostAlloc((void **)&b.host_loss, 8, 0));
    if (t->failed_calls > 0)
        return 1;
    if (t->opt.graph)
        record_step(t, &b);
    uint64_t window_from = sim_now_ns(), window_sync = 0, window_load = 0;
    t->begin_ns = window_from;
    while (!finished(t)) {
        faults_due(t);
        one_step(t, loader, &b);
        t->steps_done++;
        atomic_store(&t->shm->ranks[t->rank].steps, t->steps_done);
        if (t->steps_done % TRAIN_WINDOW == 0) {
            window_close(t, window_from, window_sync, window_load);
            window_from = sim_now_ns();
            window_sync = t->sync_ns;
            window_load = t->load_ns;
        }
    }
    CHECK(t, cudaDeviceSynchronize());
    t->end_ns = sim_now_ns();
    if (b.graph != NULL)
        CHECK(t, cudaGraphExecDestroy(b.graph));
    CHECK(t, cudaFreeHost(b.host));
    CHECK(t, cudaFreeHost(b.host_loss));
    CHECK(t, cudaFree(b.loss));
    CHECK(t, cudaFree(b.grads));
    CHECK(t, cudaFree(b.batch));
    return 0;
}
