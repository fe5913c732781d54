/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Self-alarm: a process runs code of a library that carries probes, and yet no call of it is seen.
 * Only a process that uses the CPU and makes no call for some windows is looked at, one at a time,
 * for a second. Main thread.
 */
#ifndef LTN_ENGINE_SILENCE_H
#define LTN_ENGINE_SILENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/attr.h"
#include "capture/aggregate.h"
#include "discover/proc.h"
#include "discover/scan.h"
#include "probe/probes.h"

#define LTN_SILENCE_PATH_BYTES 160

/* A process of which nothing is seen. */
struct ltn_silent {
    pid_t pid;
    char comm[LTN_PROC_COMM_BYTES];
    char path[LTN_SILENCE_PATH_BYTES]; /* one of the files whose code it runs, for people */
    unsigned cpu_pct;                  /* of one CPU, in that code, when it was looked at */
    uint64_t quiet_windows;            /* without a call */
};

struct ltn_silence_stats {
    uint64_t silent_total; /* processes found so since the start */
    uint64_t looks_total;  /* times a process was looked at */
    uint32_t silent_now;
    struct ltn_silent first; /* one of those now */
};

struct ltn_silence;

/* scanner, probes and aggregate are borrowed. NULL when memory is out. */
struct ltn_silence *ltn_silence_new(struct ltn_scanner *scanner, const struct ltn_probes *probes,
                                    struct ltn_aggregate *aggregate) ltn_must_check;
void ltn_silence_free(struct ltn_silence *s);

/* To be called every second. */
void ltn_silence_tick(struct ltn_silence *s);

void ltn_silence_stats(const struct ltn_silence *s, struct ltn_silence_stats *ret);

#endif /* LTN_ENGINE_SILENCE_H */
