// SPDX-License-Identifier: Apache-2.0
// A rank of a job of one. After some seconds of usual steps each step does one more thing, which
// the first argument names:
//   causal_target WHAT USUAL_S BAD_S DIR [CPU_MS KERNEL_MS]
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "sim_api.h"

enum { FILE_BYTES = 64 << 20, BLOCK_BYTES = 4 << 20, COPY_BYTES = 256 << 20, TYPE_F32 = 7 };

static int g_failed;

static void check(int rc, const char *what)
{
    if (rc != 0) {
        g_failed++;
        fprintf(stderr, "causal_target: %s: %d\n", what, rc);
    }
}
#define CHECK(call) check((call), #call)

struct work {
    const char *what;
    cudaStream_t stream;
    int file;
    int direct; // the same file past the page cache
    void *block;
    volatile char *map;
    size_t at;
    bool evicts;
    char *host;
    void *device;
};

static double now_s(clockid_t clock)
{
    struct timespec ts;
    clock_gettime(clock, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static void burn(double ms)
{
    double end = now_s(CLOCK_THREAD_CPUTIME_ID) + ms / 1e3;
    while (now_s(CLOCK_THREAD_CPUTIME_ID) < end) {
    }
}

static void launch(cudaStream_t stream, uint64_t ns)
{
    void *args[] = {&ns};
    CHECK(cudaLaunchKernel((const void *)&simKernel, (dim3){1, 1, 1}, (dim3){32, 1, 1}, args, 0,
                           stream));
}

static void prepare(struct work *w, const char *dir)
{
    char path[512], block[65536];
    memset(block, 7, sizeof(block));
    snprintf(path, sizeof(path), "%s/causal-%d", dir, (int)getpid());
    w->file = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    for (int i = 0; i < FILE_BYTES / (int)sizeof(block); i++) {
        check(write(w->file, block, sizeof(block)) != (ssize_t)sizeof(block), "write");
    }
    check(fsync(w->file), "fsync");
    w->direct = open(path, O_RDWR | O_DIRECT | O_CLOEXEC);
    check(w->direct < 0, "open O_DIRECT");
    w->block = aligned_alloc(4096, BLOCK_BYTES);
    memset(w->block, 1, BLOCK_BYTES);
    unlink(path);
    w->map = mmap(NULL, FILE_BYTES, PROT_READ, MAP_SHARED, w->file, 0);
    w->host = malloc(COPY_BYTES);
}

// Takes the file's pages out of memory again and again, beside the rank, and keeps the disk busy,
// so that a fault waits much longer than it computes.
static void *evict(void *arg)
{
    struct work *w = arg;
    void *block = aligned_alloc(4096, BLOCK_BYTES);
    for (;;) {
        check(madvise((void *)w->map, FILE_BYTES, MADV_DONTNEED), "madvise");
        check(posix_fadvise(w->file, 0, FILE_BYTES, POSIX_FADV_DONTNEED), "posix_fadvise");
        check(pread(w->direct, block, BLOCK_BYTES, 0) != BLOCK_BYTES, "pread");
    }
    return NULL;
}

// Pages of a file that nobody holds: a touch reads the disk.
static void touch_cold_pages(struct work *w)
{
    pthread_t thread;
    if (!w->evicts) {
        w->evicts = true;
        check(madvise((void *)w->map, FILE_BYTES, MADV_RANDOM), "madvise random");
        check(pthread_create(&thread, NULL, evict, w), "pthread_create");
    }
    for (int i = 0; i < 20; i++) {
        w->at = (w->at + 37 * ((size_t)1 << 20) + 4096) % FILE_BYTES;
        (void)w->map[w->at];
    }
}

// Writes that are on the disk when they return; past the page cache, so that hardly any CPU is
// used.
static void write_through(struct work *w)
{
    double end = now_s(CLOCK_MONOTONIC) + 0.01;
    do {
        check(pwrite(w->direct, w->block, BLOCK_BYTES, 0) != BLOCK_BYTES, "pwrite");
        check(fdatasync(w->direct), "fdatasync");
    } while (now_s(CLOCK_MONOTONIC) < end);
}

// Frees that find the device idle, or busy.
static void free_some(struct work *w, bool busy)
{
    void *p = NULL;
    CHECK(cudaMalloc(&p, 4096));
    if (busy) {
        launch(w->stream, 15000000);
    }
    CHECK(cudaFree(p));
}

// Memory that is never given back, until the kernel ends it.
static void hoard(void)
{
    size_t bytes = 16 << 20;
    char *p = malloc(bytes);
    for (size_t i = 0; p != NULL && i < bytes; i += 4096) {
        ((volatile char *)p)[i] = 1;
    }
}

static void bad_step(struct work *w)
{
    if (strcmp(w->what, "fault") == 0) {
        touch_cold_pages(w);
    } else if (strcmp(w->what, "fsync") == 0) {
        write_through(w);
    } else if (strcmp(w->what, "copy") == 0) {
        CHECK(cudaMemcpy(w->device, w->host, COPY_BYTES, 1));
    } else if (strcmp(w->what, "free") == 0) {
        free_some(w, true);
    } else if (strcmp(w->what, "error") == 0) {
        (void)cudaFree((void *)(uintptr_t)0x1234);
    } else if (strcmp(w->what, "memory") == 0) {
        void *p;
        (void)cudaMalloc(&p, (size_t)1 << 50);
    } else if (strcmp(w->what, "hoard") == 0) {
        hoard();
    } else if (strcmp(w->what, "device") == 0) {
        launch(w->stream, 15000000);
    }
}

int main(int argc, char **argv)
{
    if (argc != 5 && argc != 7) {
        fputs("usage: causal_target WHAT USUAL_S BAD_S DIR [CPU_MS KERNEL_MS]\n", stderr);
        return 2;
    }
    double cpu_ms = argc == 7 ? strtod(argv[5], NULL) : 2;
    double kernel_ms = argc == 7 ? strtod(argv[6], NULL) : 1;
    struct work w = {.what = argv[1]};
    ncclComm_t comm = NULL;
    ncclUniqueId id;
    void *buffer = NULL;
    prepare(&w, argv[4]); // before the first GPU call: a busy disk is no part of the start
    CHECK(cudaSetDevice(0));
    CHECK(cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync));
    CHECK(cudaStreamCreateWithFlags(&w.stream, 1));
    CHECK(cudaMalloc(&buffer, 4096));
    CHECK(ncclGetUniqueId(&id));
    CHECK(ncclCommInitRank(&comm, 1, id, 0));
    CHECK(cudaMalloc(&w.device, COPY_BYTES));
    double start = now_s(CLOCK_MONOTONIC);
    double bad = start + strtod(argv[2], NULL);
    double end = bad + strtod(argv[3], NULL);
    double now;
    while ((now = now_s(CLOCK_MONOTONIC)) < end) {
        burn(cpu_ms);
        if (strcmp(w.what, "free") == 0) {
            free_some(&w, false);
        }
        if (now >= bad) {
            bad_step(&w);
        }
        launch(w.stream, (uint64_t)(kernel_ms * 1e6));
        CHECK(ncclAllReduce(buffer, buffer, 8, TYPE_F32, 0, comm, w.stream));
        CHECK(cudaStreamSynchronize(w.stream));
    }
    return g_failed != 0;
}
