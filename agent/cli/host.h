/* SPDX-License-Identifier: Apache-2.0 */
/* The state of the machine from /proc: CPU, load, memory, pressure. One thread at a time. */
#ifndef LTN_CLI_HOST_H
#define LTN_CLI_HOST_H

#include <stdint.h>

#include "base/buf.h"

/* Shares are 0..1; what the kernel does not say is negative. */
struct ltn_host {
    unsigned cpus;
    double cpu_busy; /* of all CPUs, since the sample before; negative in the first */
    double load1;
    uint64_t memory_total_bytes; /* 0: unknown */
    uint64_t memory_available_bytes;
    double pressure_cpu; /* some task waited, mean of 10 s (PSI) */
    double pressure_memory;
    double pressure_io;
};

struct ltn_host_sampler {
    const char *proc; /* NULL: /proc; borrowed */
    uint64_t busy_ticks, all_ticks;
};

/* Reads the present state; never fails. Zero the sampler before the first call. */
void ltn_host_sample(struct ltn_host_sampler *s, struct ltn_host *ret);

/* Appends the section "System context": two lines of bars, at most 80 columns. */
void ltn_host_table(struct ltn_buf *out, const struct ltn_host *h, const char *bold,
                    const char *reset);

#endif /* LTN_CLI_HOST_H */
