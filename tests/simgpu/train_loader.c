// SPDX-License-Identifier: Apache-2.0
// The loader: a child that reads a real file and writes batches into a pipe. The rank asks with one
// byte and then blocks in read(2) for as long as the child takes.
#include "train.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SLOTS = 10 };

struct train_loader {
    int ask_fd, data_fd;
    pid_t pid;
};

static int data_file(struct train *t)
{
    char path[512], block[4096];
    uint64_t state = t->opt.seed * 0x9e3779b97f4a7c15ull + (uint64_t)t->rank + 1;
    snprintf(path, sizeof(path), "%s/data-%d.bin", t->dir, t->rank);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    uint64_t bytes = t->opt.batch_bytes * 4;
    for (uint64_t done = 0; fd >= 0 && done < bytes; done += sizeof(block)) {
        for (size_t i = 0; i < sizeof(block); i += 8) {
            state = state * 6364136223846793005ull + 1442695040888963407ull;
            memcpy(block + i, &state, 8);
        }
        if (write(fd, block, sizeof(block)) != (ssize_t)sizeof(block)) {
            close(fd);
            return -1;
        }
    }
    return fd;
}

// A batch's normal time. The jitter is stratified: over any ten steps every rank gets each of ten
// offsets once, and at no step two neighbouring ranks get the same one. So ranks start at different
// times, in changing order, and yet the means over windows of steps agree.
static uint64_t produce_ns(const struct train *t, uint64_t step)
{
    uint64_t turn = step / SLOTS, slot = step % SLOTS;
    uint64_t mixed = (t->opt.seed + turn) * 0x9e3779b97f4a7c15ull;
    static const uint64_t strides[] = {1, 3, 7, 9};
    slot = ((slot + (uint64_t)t->rank * 3) * strides[(mixed >> 40) % 4] + (mixed >> 50)) % SLOTS;
    double offset = ((double)slot - (SLOTS - 1) / 2.0) / ((SLOTS - 1) / 2.0); // -1 .. 1
    double ms = t->opt.read_ms * (1 + t->opt.jitter * offset);
    return ms <= 0 ? 0 : (uint64_t)(ms * 1e6);
}

static int write_all(int fd, const char *data, uint64_t bytes)
{
    while (bytes > 0) {
        ssize_t n = write(fd, data, bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return -1;
        data += n;
        bytes -= (uint64_t)n;
    }
    return 0;
}

static void nap_until(uint64_t until)
{
    struct timespec ts = {.tv_sec = (time_t)(until / 1000000000ull),
                          .tv_nsec = (long)(until % 1000000000ull)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL) == EINTR) {
    }
}

static void loader_run(struct train *t, int file, int ask, int data)
{
    char *batch = malloc(t->opt.batch_bytes), byte;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_TIMERSLACK, 1000);
    prctl(PR_SET_NAME, "simloader");
    for (uint64_t step = 0; batch != NULL && read(ask, &byte, 1) == 1; step++) {
        uint64_t begin = sim_now_ns();
        if (pread(file, batch, t->opt.batch_bytes, (off_t)(step % 4 * t->opt.batch_bytes)) !=
            (ssize_t)t->opt.batch_bytes)
            break;
        memcpy(batch, &step, sizeof(step));
        uint64_t extra = atomic_load(&t->shm->ranks[t->rank].loader_extra_ns);
        nap_until(begin + produce_ns(t, step) + extra);
        if (write_all(data, batch, t->opt.batch_bytes) != 0)
            break;
    }
    _exit(0);
}

struct train_loader *train_loader_new(struct train *t)
{
    int ask[2], data[2];
    struct train_loader *loader = calloc(1, sizeof(*loader));
    int file = data_file(t);
    if (loader == NULL || file < 0 || pipe2(ask, O_CLOEXEC) != 0 || pipe2(data, O_CLOEXEC) != 0) {
        free(loader);
        return NULL;
    }
    fcntl(data[1], F_SETPIPE_SZ, 1 << 20); // a whole batch fits, so that the rank wakes once
    loader->pid = fork();
    if (loader->pid == 0) {
        close(ask[1]);
        close(data[0]);
        loader_run(t, file, ask[0], data[1]);
    }
    close(file);
    close(ask[0]);
    close(data[1]);
    loader->ask_fd = ask[1];
    loader->data_fd = data[0];
    return loader;
}

int train_loader_next(struct train_loader *loader, void *batch, uint64_t bytes)
{
    char *at = batch;
    if (write(loader->ask_fd, "n", 1) != 1)
        return -errno;
    while (bytes > 0) {
        ssize_t n = read(loader->data_fd, at, bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n == 0 ? -EPIPE : -errno;
        at += n;
        bytes -= (uint64_t)n;
    }
    return 0;
}

void train_loader_free(struct train_loader *loader)
{
    if (loader == NULL)
        return;
    close(loader->ask_fd);
    close(loader->data_fd);
    waitpid(loader->pid, NULL, 0);
    free(loader);
}
