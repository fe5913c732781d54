/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent's engine: finds the processes and libraries in scope, keeps the probes attached, and
 * runs the drain and aggregate threads. All functions belong to the main thread.
 */
#ifndef LTN_ENGINE_ENGINE_H
#define LTN_ENGINE_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "capture/aggregate.h"
#include "discover/scan.h"
#include "engine/attach.h"
#include "engine/silence.h"
#include "gpu/gpu.h"
#include "engine/pythons.h"
#include "probe/probes.h"
#include "symbol/resolve.h"

struct ltn_engine_opts {
    struct ltn_scope scope;  /* cgroup_path is filled in from cgroup */
    const char *node;        /* name of this machine; must outlive the engine */
    const char *cgroup;      /* as the user wrote it; NULL or "" = no condition */
    const char *const *libs; /* files named by the user */
    size_t lib_count;
    uint64_t window_ns;
    uint32_t ring_bytes;   /* 0 = default */
    uint32_t sample_every; /* struct ltn_bpf_config */
    bool keep_all;         /* records are never thinned out */
    double budget;         /* share of a traced process's time that probes may take; 0 = any */
    bool force_kind;
    enum ltn_link_kind kind;
    bool no_sched;
    uint32_t host_off;     /* LTN_HOST_* */
    bool files_by_syscall; /* struct ltn_probes_opts */
    uint64_t open_slow_ns; /* struct ltn_probes_opts */
    double deadband;       /* struct ltn_aggregate_opts */
    uint64_t heartbeat_ns;
    bool no_gpu;
    bool no_stacks;
    enum ltn_py_walker py_walker;
    struct ltn_capture_sink sink;
    /* Where stacks go, with sink.ctx; on the resolve thread. As in struct ltn_resolver_opts; NULL:
     * as no_stacks. */
    int (*stack)(void *ctx, const struct ltn_stack *s);
};

struct ltn_engine;

/* Loads, attaches and starts. 0 or a negative code with the reason and what to do in *info. */
int ltn_engine_start(const struct ltn_engine_opts *opts, struct ltn_engine **ret,
                     struct ltn_errinfo *info) ltn_must_check;

/* To be called every second: looks for new processes and libraries. */
void ltn_engine_tick(struct ltn_engine *e);

/* Readable (poll) when some process mapped a library of interest; ltn_engine_look then attaches at
 * once instead of at the next tick. -1 when the privileges do not allow to be told. */
int ltn_engine_fd(const struct ltn_engine *e);
void ltn_engine_look(struct ltn_engine *e);

/* Stops the threads (a last window is made), detaches and frees. NULL is ignored. */
void ltn_engine_stop(struct ltn_engine *e);

/* What is known; owned by the engine, read between two calls of tick. */
const struct ltn_probes *ltn_engine_probes(const struct ltn_engine *e);
struct ltn_scanner *ltn_engine_scanner(struct ltn_engine *e);
const struct ltn_attach *ltn_engine_attach(const struct ltn_engine *e);

struct ltn_engine_stats {
    struct ltn_aggregate_stats aggregate;
    struct ltn_drain_stats drain;
    struct ltn_resolver_stats symbols;    /* zeros without stacks */
    struct ltn_python_codes_stats python; /* zeros without stacks */
    struct ltn_price_health price;        /* as of the last tick */
    uint64_t attach_failures;
    struct ltn_silence_stats silence;
};
void ltn_engine_stats(struct ltn_engine *e, struct ltn_engine_stats *ret);

#endif /* LTN_ENGINE_ENGINE_H */
