/* SPDX-License-Identifier: Apache-2.0 */
/* Step and self time of a rank from two readings of its waiting thread's sums. Pure, thread-safe.
 */
#ifndef LTN_CAPTURE_RANK_WINDOW_H
#define LTN_CAPTURE_RANK_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

#include "bpf/event.h"
#include "capture/steps.h"
#include "capture/window.h"

/*
 * Self time is the step minus the time blocked on peers (H = T - B). A wait counts as blocked on
 * peers when a collective was outstanding, less the part in which the thread was already woken and
 * waited for a CPU: that delay is its own. Fills *ret except tid's preemptors and returns true, or
 * returns false when no step ended between the readings.
 */
bool ltn_rank_window_fill(const struct ltn_thread_stats *before, const struct ltn_thread_stats *now,
                          const struct ltn_steps *steps, uint64_t window_ns,
                          struct ltn_rank_window *ret);

#endif /* LTN_CAPTURE_RANK_WINDOW_H */
