/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the probes cost here: measured on a function of our own before anything else is attached,
 * and read from the kernel's run-time statistics, which are only kept for as long as somebody asks.
 */
#ifndef LTN_PROBE_PRICE_H
#define LTN_PROBE_PRICE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/attr.h"
#include "probe/probes.h"

/* Nanoseconds that a traced program loses per call. */
struct ltn_probe_price {
    double pair_ns;  /* a launch that is counted and timed */
    double entry_ns; /* a launch that is only counted (LTN_DOWN_LAUNCH), the few timed ones in it */
    double step_ns;  /* added where the kernel must step through the instruction of the probe; not
                        measured with perf links */
    bool measured;   /* false: derived, since the scope leaves out this process or a probe failed */
};

/* Measures, within some ten milliseconds (with perf links a few hundred), and leaves no trace in
 * maps and counters. To be called before anything is attached. Never fails: see `measured`. */
void ltn_probes_measure_price(struct ltn_probes *p, struct ltn_probe_price *ret);

/* Time in kernel programs while statistics were on; both only grow. */
struct ltn_probe_runtime {
    uint64_t calls_ns;  /* programs on traced calls, without the trap that leads to them */
    uint64_t others_ns; /* scheduler and process programs, on all CPUs together */
};

/* Turns the statistics on until the descriptor returned is closed; 60 ns are added to each run of
 * any program meanwhile. Needs CAP_SYS_ADMIN: -EPERM without. */
int ltn_probes_stats_on(void) ltn_must_check;
int ltn_probes_runtime(const struct ltn_probes *p, struct ltn_probe_runtime *ret) ltn_must_check;

#endif /* LTN_PROBE_PRICE_H */
