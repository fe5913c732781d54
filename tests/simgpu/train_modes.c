// SPDX-License-Identifier: Apache-2.0
// Single-process modes: a launch storm, allocation churn, and calls whose split between CPU,
// waiting and page faults is known beforehand.
#include "train.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

struct worker {
    struct train *t;
    pthread_t thread;
    int index;
    uint64_t calls, failed;
};

static bool time_left(const struct train *t)
{
    return (double)(sim_now_ns() - t->begin_ns) / 1e9 < (t->opt.seconds > 0 ? t->opt.seconds : 1);
}

static void *storm_worker(void *arg)
{
    struct worker *w = arg;
    struct train *t = w->t;
    int n = t->opt.streams > 0 && t->opt.streams <= 64 ? t->opt.streams : 1;
    cudaStream_t streams[64] = {NULL};
    w->failed += cudaSetDevice(t->local_rank) != 0;
    for (int i = 0; i < n; i++)
        w->failed += cudaStreamCreateWithFlags(&streams[i], 1) != 0;
    // steps, when given without --seconds, is the exact number of launches per thread
    bool counted = t->opt.seconds <= 0 && t->opt.steps > 0;
    while (counted ? w->calls < t->opt.steps : w->calls % 256 != 0 || time_left(t)) {
        w->failed +=
            train_launch(streams[w->calls % (uint64_t)n], (uint64_t)(t->opt.kernel_us * 1000)) != 0;
        w->calls++;
    }
    for (int i = 0; i < n; i++) {
        w->failed += cudaStreamSynchronize(streams[i]) != 0;
        w->failed += cudaStreamDestroy(streams[i]) != 0;
    }
    return NULL;
}

static void *churn_worker(void *arg)
{
    struct worker *w = arg;
    struct train *t = w->t;
    void *held[32] = {NULL};
    uint64_t rng = t->opt.seed * 77 + (uint64_t)w->index + 1;
    w->failed += cudaSetDevice(t->local_rank) != 0;
    bool counted = t->opt.seconds <= 0 && t->opt.steps > 0;
    while (counted ? w->calls < t->opt.steps : w->calls % 64 != 0 || time_left(t)) {
        rng = rng * 6364136223846793005ull + 1442695040888963407ull;
        void **slot = &held[(rng >> 33) % 32];
        if (*slot != NULL)
            w->failed += cudaFree(*slot) != 0;
        *slot = NULL;
        w->failed += cudaMalloc(slot, 4096 + (rng >> 40) % (8u << 20)) != 0;
        w->calls++;
    }
    for (int i = 0; i < 32; i++)
        w->failed += held[i] != NULL && cudaFree(held[i]) != 0;
    return NULL;
}

static void run_workers(struct train *t, void *(*fn)(void *))
{
    struct worker workers[64] = {0};
    int n = t->opt.threads > 0 && t->opt.threads <= 64 ? t->opt.threads : 1;
    uint64_t calls = 0;
    t->begin_ns = sim_now_ns();
    for (int i = 0; i < n; i++) {
        workers[i].t = t;
        workers[i].index = i;
        if (pthread_create(&workers[i].thread, NULL, fn, &workers[i]) != 0)
            workers[i].t = NULL;
    }
    for (int i = 0; i < n; i++) {
        if (workers[i].t != NULL)
            pthread_join(workers[i].thread, NULL);
        calls += workers[i].calls;
        t->failed_calls += workers[i].failed;
    }
    t->end_ns = sim_now_ns();
    t->steps_done = calls;
    snprintf(t->extra, sizeof(t->extra), ",\"calls_per_s\":%.0f",
             (double)calls / ((double)(t->end_ns - t->begin_ns) / 1e9));
}

struct span {
    uint64_t wall_ns, cpu_ns, wait_ns;
    long minor_faults;
    uint64_t t0, run0, wait0;
    long faults0;
};

static void span_begin(struct span *s)
{
    struct rusage ru;
    getrusage(RUSAGE_THREAD, &ru);
    s->faults0 = ru.ru_minflt;
    s->wait0 = train_sched_wait_ns(false, &s->run0);
    s->t0 = sim_now_ns();
}

static void span_end(struct span *s)
{
    struct rusage ru;
    uint64_t run = 0;
    s->wall_ns += sim_now_ns() - s->t0;
    s->wait_ns += train_sched_wait_ns(false, &run) - s->wait0;
    s->cpu_ns += run - s->run0;
    getrusage(RUSAGE_THREAD, &ru);
    s->minor_faults += ru.ru_minflt - s->faults0;
}

// Repeats: launch a kernel of mode_ms, then measure the sync. Spin waiting burns CPU for that long,
// blocking waits sleep.
static void known_sync(struct train *t)
{
    struct span s = {0};
    uint64_t n = t->opt.steps > 0 ? t->opt.steps : 20;
    t->begin_ns = sim_now_ns();
    for (uint64_t i = 0; i < n; i++) {
        CHECK(t, train_launch(t->stream, (uint64_t)(t->opt.mode_ms * 1e6)));
        span_begin(&s);
        CHECK(t, cudaStreamSynchronize(t->stream));
        span_end(&s);
        t->steps_done++;
    }
    t->end_ns = sim_now_ns();
    double expected = t->opt.mode_ms, count = (double)n;
    snprintf(t->extra, sizeof(t->extra),
             ",\"expected\":{\"call\":\"cudaStreamSynchronize\",\"calls\":%llu,\"wall_ms\":%.3f,"
             "\"on_cpu_ms\":%.3f,"
             "\"blocked_ms\":%.3f},\"measured\":{\"wall_ms\":%.3f,\"on_cpu_ms\":%.3f,\"runqueue_"
             "ms\":%.3f}",
             (unsigned long long)n, expected, t->opt.block ? 0.0 : expected,
             t->opt.block ? expected : 0.0, (double)s.wall_ns / 1e6 / count,
             (double)s.cpu_ns / 1e6 / count, (double)s.wait_ns / 1e6 / count);
}

// Between two syncs, touches fresh pages one by one: that many minor faults, no more waiting than
// that.
__attribute__((noinline)) static void touch_fresh(struct train *t, size_t page)
{
    size_t bytes = t->opt.pages * page;
    volatile char *at =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) {
        t->failed_calls++;
        return;
    }
    madvise((void *)(uintptr_t)at, bytes, MADV_NOHUGEPAGE);
    for (uint64_t i = 0; i < t->opt.pages; i++)
        at[i * page] = 1;
    munmap((void *)(uintptr_t)at, bytes);
}

static void known_faults(struct train *t)
{
    struct span s = {0};
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uint64_t n = t->opt.steps > 0 ? t->opt.steps : 20;
    t->begin_ns = sim_now_ns();
    for (uint64_t i = 0; i < n; i++) {
        CHECK(t, cudaStreamSynchronize(t->stream));
        span_begin(&s);
        touch_fresh(t, page);
        span_end(&s);
        CHECK(t, train_launch(t->stream, 1000000));
        CHECK(t, cudaStreamSynchronize(t->stream));
        t->steps_done++;
    }
    t->end_ns = sim_now_ns();
    snprintf(t->extra, sizeof(t->extra),
             ",\"expected\":{\"minor_faults\":%llu},\"measured\":{\"minor_faults\":%ld,\"wall_ms\":"
             "%.3f,\"on_cpu_ms\":%.3f}",
             (unsigned long long)(t->opt.pages * n), s.minor_faults,
             (double)s.wall_ns / 1e6 / (double)n, (double)s.cpu_ns / 1e6 / (double)n);
}

int train_mode_single(struct train *t)
{
    const char *mode = t->opt.mode;
    if (strcmp(mode, "storm") == 0)
        run_workers(t, storm_worker);
    else if (strcmp(mode, "churn") == 0)
        run_workers(t, churn_worker);
    else if (strcmp(mode, "hog-victim") == 0 || strcmp(mode, "sleep") == 0)
        known_sync(t);
    else if (strcmp(mode, "pagefault") == 0)
        known_faults(t);
    else
        return 2;
    return 0;
}
