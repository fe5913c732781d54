/* SPDX-License-Identifier: Apache-2.0 */
/* Windows and call batches as capture makes them, with known content. */
#ifndef LTN_TEST_RECORD_SAMPLE_H
#define LTN_TEST_RECORD_SAMPLE_H

#include "capture/window.h"

#define SAMPLE_T0_NS   1700000000000000000ULL
#define SAMPLE_STEP_NS 10000000000ULL
#define SAMPLE_PROCS   2
#define SAMPLE_PID     1000
#define SAMPLE_START   (SAMPLE_T0_NS - 5000000000ULL)
/* Calls of each op in each window; cumulative totals are (n + 1) times this. */
#define SAMPLE_CALLS 100

/* Window n (from 0): two ranks, each with cudaLaunchKernel, cudaStreamSynchronize and
 * ncclAllReduce, one GPU. */
struct ltn_window *sample_window(unsigned n);

/* count calls of process 0 starting at SAMPLE_T0_NS + first. */
struct ltn_call_batch *sample_calls(unsigned first, unsigned count);

#endif /* LTN_TEST_RECORD_SAMPLE_H */
