/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Thread `aggregate`: decodes records, keeps the table of processes, and makes a window out of the
 * kernel's counters at each multiple of the window length (of Unix time, so that the windows of all
 * nodes are the same).
 */
#ifndef LTN_CAPTURE_AGGREGATE_H
#define LTN_CAPTURE_AGGREGATE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/attr.h"
#include "capture/drain.h"
#include "capture/window.h"
#include "gpu/gpu.h"
#include "probe/probes.h"

/* Where windows and calls go; called on the aggregate thread. Both take ownership when they return
 * 0; otherwise the item is freed here and counted. They must not wait. calls may be NULL: call
 * records are then not kept. */
struct ltn_capture_sink {
    void *ctx;
    int (*window)(void *ctx, struct ltn_window *w);
    int (*calls)(void *ctx, struct ltn_call_batch *batch);
};

/* Where stacks go, called on the aggregate thread as they arrive. Takes a copy and returns 0, or a
 * negative code: the stack will then come again. proc_start_ns: start of the process, Unix time. */
struct ltn_stack_sink {
    void *ctx;
    int (*stack)(void *ctx, const struct ltn_event_stack *e, uint64_t proc_start_ns);
    /* A record of size bytes about a Python code object that later stacks name; NULL: thrown away.
     */
    void (*code)(void *ctx, const void *record, size_t size);
    /* Writes where a thread stands that is inside a call for long into out ("" when that cannot be
     * told); what it writes is used only if the thread is inside the same call afterwards. NULL:
     * not asked for. Aggregate thread. */
    void (*place)(void *ctx, uint32_t pid, uint32_t tid, char *out, size_t size);
};

struct ltn_aggregate_opts {
    struct ltn_probe_maps maps;
    struct ltn_drain *drain; /* borrowed; already started */
    struct ltn_gpu *gpu;     /* borrowed; NULL = no GPU information */
    struct ltn_capture_sink sink;
    struct ltn_stack_sink stacks; /* .stack NULL: stacks are thrown away */
    const char *node;             /* name of this machine, borrowed; NULL = not known */
    uint64_t window_ns;
    uint64_t map_bytes;    /* for the health part of windows */
    double deadband;       /* see ltn_host_is_due */
    uint64_t heartbeat_ns; /* likewise */
    bool set_slow;         /* write the thresholds from which a call is worth a record */
};

struct ltn_aggregate;

/* NULL when memory is out. Free with ltn_aggregate_free. */
struct ltn_aggregate *ltn_aggregate_new(const struct ltn_aggregate_opts *opts) ltn_must_check;

/* Starts the thread. 0 or -errno. */
int ltn_aggregate_start(struct ltn_aggregate *a) ltn_must_check;

/* Ends the thread. The drain thread must have stopped before, so that what it read last is still
 * counted; a last, shorter window is made. */
void ltn_aggregate_stop(struct ltn_aggregate *a);
void ltn_aggregate_free(struct ltn_aggregate *a);

/* What is attached and what is not, for the health part of windows. Any thread. */
void ltn_aggregate_set_coverage(struct ltn_aggregate *a, const struct ltn_coverage *now);

/* What a process did up to the end of the last window. */
struct ltn_activity {
    uint32_t tgid;
    bool in_call; /* some thread is inside a call that may last */
    uint64_t calls;
};

/* False when the process made no call yet. Any thread. */
bool ltn_aggregate_activity(struct ltn_aggregate *a, uint32_t tgid, struct ltn_activity *ret);

/* Bytes that the kernel's maps take, for the health part of windows. Any thread. */
void ltn_aggregate_set_map_bytes(struct ltn_aggregate *a, uint64_t bytes);

/* What the governor says, for the health part of windows; `thin` and `thinned` are filled in here.
 * Any thread. */
void ltn_aggregate_set_price(struct ltn_aggregate *a, const struct ltn_price_health *price);

struct ltn_aggregate_stats {
    uint64_t windows_total;
    uint64_t windows_dropped;
    uint64_t batches_dropped;
    uint64_t calls_dropped;
    uint64_t unknown_records;
    uint64_t refused; /* processes, threads, … over a ceiling */
    uint64_t read_errors;
    uint64_t impossible;    /* calls whose arguments were read as what they cannot be */
    uint32_t impossible_op; /* the op that has the most of them */
    uint64_t stacks_total;  /* distinct ones, as often as they came */
    uint64_t stacks_asked;  /* calls whose stack had not arrived: it was asked for again */
};
/* Any thread; the numbers are those of the end of the last window. */
struct ltn_aggregate_stats ltn_aggregate_stats(struct ltn_aggregate *a);

#endif /* LTN_CAPTURE_AGGREGATE_H */
