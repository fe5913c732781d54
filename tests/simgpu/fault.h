// SPDX-License-Identifier: Apache-2.0
// Faults: starting and stopping them, and the ground-truth lines that tests score against.
#ifndef SIM_FAULT_H
#define SIM_FAULT_H

#include "sim_shm.h"

enum sim_fault_kind {
    SIM_FAULT_CPU,
    SIM_FAULT_DATALOADER,
    SIM_FAULT_GPU,
    SIM_FAULT_HANG,
    SIM_FAULT_KINDS
};

struct sim_fault {
    enum sim_fault_kind kind;
    int rank;
    int core;         // cpu: where the hog runs
    int threads;      // cpu: how many threads the hog spins with, 0 = 1
    int nice;         // cpu: its niceness
    char comm[16];    // cpu: name of the hog
    double ms;        // dataloader: extra time per batch
    double factor;    // gpu: kernel times are multiplied by this
    uint64_t at_step; // command line of simtrain only
    uint64_t until_step;
};

// Kind by name; -1 when unknown.
int sim_fault_kind_of(const char *name);
const char *sim_fault_name(enum sim_fault_kind kind);
// "NAME:rank=R:at=S[:until=S][:core=C][:comm=X][:ms=F][:factor=F]". 0 or -EINVAL.
int sim_fault_parse(const char *text, struct sim_fault *ret_fault);
// Starts or stops a fault in the shared area and appends a line to DIR/truth.jsonl. 0 or -errno.
// ret_pid gets the hog's pid.
int sim_fault_start(struct sim_shm *shm, const char *dir, const struct sim_fault *fault,
                    int *ret_pid);
int sim_fault_stop(struct sim_shm *shm, const char *dir, const struct sim_fault *fault);

#endif
