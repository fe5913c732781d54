// SPDX-License-Identifier: Apache-2.0
// simtrain: one process of a simulated training job.
#ifndef SIM_TRAIN_H
#define SIM_TRAIN_H

#include "fault.h"
#include "sim_api.h"

enum { TRAIN_MAX_FAULTS = 8, TRAIN_MAX_WINDOWS = 4096, TRAIN_WINDOW = 20 };

struct train_options {
    uint64_t steps;
    double seconds;
    double step_cpu_ms;
    int kernels;
    double kernel_us;
    int buckets;
    uint64_t bucket_bytes;
    uint64_t batch_bytes;
    double read_ms;
    double jitter;
    int graph; // each step is one launch of a graph
    int block; // waiting: 1 block, 0 spin
    uint64_t seed;
    int threads, streams;
    const char *mode; // train, storm, churn, hog-victim, sleep, pagefault
    uint64_t pages;
    double mode_ms;
    const char *tally, *report;
    struct sim_fault faults[TRAIN_MAX_FAULTS];
    int fault_count;
};

struct train_window {
    double step_ms, self_ms, load_ms, sync_ms;
};

struct train {
    struct train_options opt;
    struct sim_shm *shm;
    char dir[400];
    int rank, world, local_rank;
    ncclComm_t comm;
    cudaStream_t stream;
    // results
    uint64_t steps_done, failed_calls, checksum;
    uint64_t begin_ns, end_ns;
    uint64_t sync_ns, load_ns;
    struct train_window windows[TRAIN_MAX_WINDOWS];
    int window_count;
    char extra[1024]; // further members of the report, each begins with a comma
    uint64_t rng;
};

// Counts a failed call and says so once.
void train_check(struct train *t, int rc, const char *what);
#define CHECK(t, call) train_check(t, call, #call)

// Launches a kernel that takes ns nanoseconds of simulated GPU time.
int train_launch(cudaStream_t stream, uint64_t ns);
void train_burn_cpu(uint64_t ns); // CPU time of this thread, not wall time
void train_mix(struct train *t, uint64_t value);

// The loader: a child process behind a pipe. It produces a batch when asked. Must start before the
// first CUDA call.
struct train_loader;
struct train_loader *train_loader_new(struct train *t);
int train_loader_next(struct train_loader *loader, void *batch,
                      uint64_t bytes); // blocks in read(2); 0 or -errno
void train_loader_free(struct train_loader *loader);

int train_steps(struct train *t, struct train_loader *loader);
int train_mode_single(struct train *t); // every mode but "train"
int train_write_report(struct train *t);
int train_write_tally(const char *path);
uint64_t train_sched_wait_ns(bool all_tasks, uint64_t *ret_run_ns);

#endif
