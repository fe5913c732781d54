/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Made-up windows and calls, as capture would hand them on, of a job with a known trouble: for
 * `lanterne demo` and for tests of what reads the record. Pure; one thread at a time.
 */
#ifndef LTN_CLI_SCENARIO_H
#define LTN_CLI_SCENARIO_H

#include <stdint.h>

#include "base/attr.h"
#include "capture/window.h"

#define LTN_SCENARIO_WINDOWS   20
#define LTN_SCENARIO_WINDOW_NS (2 * LTN_NS_PER_S)

enum ltn_scenario {
    LTN_SCENARIO_INCIDENT,   /* a log rotation takes the CPU of one rank half way */
    LTN_SCENARIO_COLD_START, /* first calls take seconds */
    LTN_SCENARIO_MEMCPY,     /* blocking copies fill the time */
    LTN_SCENARIO_SPIKES,     /* slow allocations at a period */
    LTN_SCENARIO_CPU,        /* every rank waits for CPUs that a build holds */
    LTN_SCENARIO_GPU_STEAL,  /* another process takes turns on the GPU */
    LTN_SCENARIOS,
};

/* "incident", "cold-start", "memcpy-bottleneck", "periodic-spike", "cpu-contention", "gpu-steal";
 * and what is to be seen, in a sentence. Static storage. */
const char *ltn_scenario_name(enum ltn_scenario s);
const char *ltn_scenario_about(enum ltn_scenario s);

/* Window n (from 0) of the scenario that began at start_ns (Unix time), and its calls; NULL when
 * memory is out. Free with ltn_window_free and free. */
struct ltn_window *ltn_scenario_window(enum ltn_scenario s, unsigned n,
                                       uint64_t start_ns) ltn_must_check;
struct ltn_call_batch *ltn_scenario_calls(enum ltn_scenario s, unsigned n,
                                          uint64_t start_ns) ltn_must_check;

#endif /* LTN_CLI_SCENARIO_H */
