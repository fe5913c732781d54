/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One decoded request of agents, as plain data in one arena: what ingest hands to the store and,
 * after the commit, to the fleet. Texts are clean (no control characters, valid UTF-8) and short.
 */
#ifndef LTN_FLEET_UPDATE_H
#define LTN_FLEET_UPDATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "straggler/straggler.h"

#define LTN_NAME_BYTES 128 /* longest name kept, with its terminator */

/* Bounds of the duration histograms, seconds; one more bucket above. */
#define LTN_DURATION_BOUNDS 15
extern const double ltn_duration_bounds[LTN_DURATION_BOUNDS];
#define LTN_DURATION_BUCKETS (LTN_DURATION_BOUNDS + 1)

/* One op of a process; totals since the process was first seen. */
struct ltn_update_op {
    struct ltn_update_op *next;
    const char *source; /* "cuda", "driver", "graph", "nccl" */
    const char *op;
    uint64_t calls, errors, bytes;
    bool has_counts;
    bool has_duration;
    double duration_s;
    uint64_t buckets[LTN_DURATION_BUCKETS]; /* not cumulative over bounds */
};

struct ltn_update_comm {
    struct ltn_update_comm *next;
    uint64_t id;
    int32_t rank, size;
    uint64_t sequence, bytes;
};

struct ltn_update_gpu {
    struct ltn_update_gpu *next;
    const char *uuid;
    const char *model;                                                     /* "" when unknown */
    double utilization, memory_used, memory_total, power_w, temperature_c; /* < 0: unknown */
    double clock_hz, clock_max_hz;
    double pcie_width, pcie_width_max, pcie_generation, pcie_generation_max;
    double errors_uncorrected;
    uint64_t clock_reasons;
    bool has_reasons;
};

struct ltn_update_drop {
    struct ltn_update_drop *next;
    const char *reason;
    uint64_t count;
};

struct ltn_update_health {
    bool present;
    uint64_t calls, records_emitted, records_read, map_bytes, rss_bytes;
    double cpu_seconds;
    uint32_t processes, probes;
    struct ltn_update_drop *drops;
};

/* Step and self time; means per step, ns. */
struct ltn_update_rank {
    bool present; /* self time and step time came */
    uint64_t steps_total;
    double step_ns, self_ns, peer_wait_ns;
    double part_ns[LTN_PARTS];
    double coverage, collectives, major_faults, minor_faults;
    struct ltn_straggler_preemptor preemptors[LTN_STRAGGLER_PREEMPTORS]; /* longest first */
};

/* One resource: the node itself, or a process on it. */
struct ltn_update_resource {
    struct ltn_update_resource *next;
    const char *node;
    const char *cluster;  /* "" when not given */
    const char *instance; /* of the agent */
    const char *version;
    uint64_t sequence; /* of the window; grows by one */
    bool has_sequence;
    uint64_t start_ns, end_ns; /* of the window; end 0 when no point said so */
    bool is_process;
    /* node */
    struct ltn_update_gpu *gpus;
    struct ltn_update_health health;
    /* process */
    uint32_t pid;
    uint64_t proc_start_ns;
    const char *comm;
    const char *job;                      /* "" when unknown */
    int32_t rank, world_size, local_rank; /* -1 when unknown */
    const char *gpu_uuid;                 /* "" when unknown */
    struct ltn_update_op *ops;
    struct ltn_update_comm *comms;
    struct ltn_update_rank steps;
};

struct ltn_update_incident {
    struct ltn_update_incident *next;
    const char *node;
    const char *id, *kind, *state, *title, *severity, *cause, *evidence, *job;
    int32_t rank;
    uint32_t pid;
    uint64_t time_ns, opened_at_ns, count;
    int32_t severity_number;
    double explained_share; /* negative: unknown */
};

/* Where log records come from. */
struct ltn_update_log_source {
    const char *service, *instance; /* "" when unknown */
    const char *attrs;              /* all of the resource's: a JSON object */
    uint32_t index;                 /* of the resource in its request */
};

/* A log record of any client. Texts are valid UTF-8; body may hold line ends and tabs. */
struct ltn_update_log {
    struct ltn_update_log *next;
    const struct ltn_update_log_source *source;
    uint64_t time_ns, observed_ns; /* 0: unknown */
    int32_t severity_number;
    const char *severity, *event, *scope; /* "" when not given */
    const char *body;                     /* NULL: empty */
    bool body_json;                       /* body is JSON: it was not a text */
    const char *attrs;                    /* a JSON object, or "" without any */
    const uint8_t *trace_id, *span_id;    /* 16 and 8 bytes; NULL: none */
    uint32_t flags;
    uint32_t cut; /* values that were longer than what is kept */
};

struct ltn_update {
    struct ltn_arena arena;
    uint64_t received_ns;
    struct ltn_update_resource *resources;
    struct ltn_update_incident *incidents;
    struct ltn_update_log *logs, *last_log; /* in the order of the request */
    size_t resource_count, incident_count, log_count;
};

#endif /* LTN_FLEET_UPDATE_H */
