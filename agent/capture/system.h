/* SPDX-License-Identifier: Apache-2.0 */
/* The state of the machine from /proc: CPU, load, memory, swap, pressure; and when it is worth
 * keeping. One thread at a time. */
#ifndef LTN_CAPTURE_SYSTEM_H
#define LTN_CAPTURE_SYSTEM_H

#include <stdbool.h>
#include <stdint.h>

#include "capture/host_window.h"

struct ltn_host_sampler {
    const char *proc; /* NULL: /proc; borrowed */
    uint64_t busy_ticks, all_ticks;
};

/* Reads the present state; never fails. Zero the sampler before the first call. */
void ltn_host_sample(struct ltn_host_sampler *s, struct ltn_host *ret);

/* What was kept last. Zero before the first call. */
struct ltn_host_keeper {
    struct ltn_host last;
    uint64_t last_ns; /* 0 = nothing yet */
};

/* Is the state worth keeping? When any share, or the load by CPU, moved by at least deadband (0..1;
 * 0: always) since the one kept last, or that one is heartbeat_ns old. Remembers it then. */
bool ltn_host_is_due(struct ltn_host_keeper *k, const struct ltn_host *now, uint64_t now_ns,
                     double deadband, uint64_t heartbeat_ns);

#endif /* LTN_CAPTURE_SYSTEM_H */
