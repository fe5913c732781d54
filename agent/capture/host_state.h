/* SPDX-License-Identifier: Apache-2.0 */
/* What /proc says about the node and about a process beside the probes: pressure, CPU time, bytes
 * read and written. One thread. */
#ifndef LTN_CAPTURE_HOST_STATE_H
#define LTN_CAPTURE_HOST_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include "capture/window.h"

/* Sums of /proc/pressure at the last reading. Starts zeroed. */
struct ltn_pressure {
    bool known;
    uint64_t memory_us;
    uint64_t io_us;
};

/* Sets the pressure of *w from what was added since the last call, window_ns ago; negative at the
 * first call and where the kernel has no /proc/pressure. */
void ltn_pressure_share(struct ltn_pressure *p, uint64_t window_ns, struct ltn_window *w);

/* CPU time of all threads, and bytes through read and write; 0 for what cannot be read. */
void ltn_activity_read(uint32_t pid, uint64_t *ret_cpu_ns, uint64_t *ret_io_bytes);

#endif /* LTN_CAPTURE_HOST_STATE_H */
