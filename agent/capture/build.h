/* SPDX-License-Identifier: Apache-2.0 */
/* Turns the readings of a window into a struct ltn_window. One thread. */
#ifndef LTN_CAPTURE_BUILD_H
#define LTN_CAPTURE_BUILD_H

#include <stdint.h>

#include "base/attr.h"
#include "capture/cgroups.h"
#include "capture/procs.h"
#include "capture/window.h"
#include "gpu/gpu.h"

/* Memory a window may take; more makes it fail, and the window is dropped and counted. */
#define LTN_WINDOW_MAX_BYTES (64U * 1024 * 1024)

/* Builds the window [start_ns, end_ns) (Unix time) from the readings in t and the state of the GPUs
 * (may be NULL); cgroups names those of the preemptors (may be NULL). Raises steps_total of the
 * processes. The parts host and health are left zero. NULL when
 * memory is out. */
struct ltn_window *ltn_window_build(struct ltn_procs *t, const struct ltn_gpu_view *gpus,
                                    struct ltn_cgroups *cgroups, uint64_t start_ns,
                                    uint64_t end_ns) ltn_must_check;

#endif /* LTN_CAPTURE_BUILD_H */
