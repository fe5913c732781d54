/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tells within milliseconds that some process mapped a library of interest or started a program,
 * so that probes are in place before its first calls. It listens to the kernel's own notes on
 * executable mappings (perf MMAP2 records of a dummy event, one per CPU), which needs CAP_PERFMON.
 * Without it the scan each second finds the same, later. One thread at a time.
 */
#ifndef LTN_DISCOVER_WATCH_H
#define LTN_DISCOVER_WATCH_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/attr.h"

struct ltn_watch;

/* Starts listening on every CPU. 0; -EACCES or -EPERM without the privilege; -errno. Free with
 * ltn_watch_free. */
int ltn_watch_new(struct ltn_watch **ret) ltn_must_check;
void ltn_watch_free(struct ltn_watch *w);

/* Readable (poll) when records wait. Owned by w. */
int ltn_watch_fd(const struct ltn_watch *w);

/* One mapping of code. */
struct ltn_watch_event {
    pid_t pid;
    bool program;       /* a file that is no library by its name: a program, which may carry one */
    uint64_t mapped_ns; /* CLOCK_MONOTONIC */
};
typedef void (*ltn_watch_fn)(const struct ltn_watch_event *event, void *arg);

/* Takes all waiting records; calls fn for each mapping of a library told by its name and of each
 * program. Returns how many. */
unsigned ltn_watch_read(struct ltn_watch *w, ltn_watch_fn fn, void *arg);

/* Records the kernel could not keep. */
uint64_t ltn_watch_lost(const struct ltn_watch *w);

#endif /* LTN_DISCOVER_WATCH_H */
