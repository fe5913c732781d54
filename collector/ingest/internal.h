/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the decoder share. */
#ifndef LTN_INGEST_INTERNAL_H
#define LTN_INGEST_INTERNAL_H

#include "base/buf.h"
#include "base/map.h"
#include "fleet/update.h"
#include "ingest/decode.h"
#include "otlp/model.h"
#include "prom/expo.h"
#include "prom/name.h"
#include "stats/exphist.h"

#define LTN_MAX_RESOURCES    8192 /* agents' resources in one request */
#define LTN_MAX_OPS          160  /* of one process */
#define LTN_MAX_COMMS        64
#define LTN_MAX_GPUS         16
#define LTN_MAX_DROPS        24
#define LTN_UPDATE_MAX_BYTES ((size_t)128 << 20)
#define LTN_LABELS_MAX_BYTES 4096
#define LTN_LABEL_VALUE_MAX  256

/* The metrics of docs/internals/wire.md. */
enum ltn_wire_metric {
    LTN_WIRE_OTHER = 0,
#define LTN_WIRE_TABLE(X)                                                                          \
    X(CUDA_COUNT, "gpu.cuda.operation.count")                                                      \
    X(CUDA_ERRORS, "gpu.cuda.operation.errors")                                                    \
    X(CUDA_IO, "gpu.cuda.operation.io")                                                            \
    X(CUDA_DURATION, "gpu.cuda.operation.duration")                                                \
    X(NCCL_COUNT, "gpu.nccl.operation.count")                                                      \
    X(NCCL_ERRORS, "gpu.nccl.operation.errors")                                                    \
    X(NCCL_IO, "gpu.nccl.operation.io")                                                            \
    X(NCCL_DURATION, "gpu.nccl.operation.duration")                                                \
    X(COMM_SEQUENCE, "gpu.nccl.communicator.sequence")                                             \
    X(COMM_IO, "gpu.nccl.communicator.io")                                                         \
    X(STEP_COUNT, "lanterne.step.count")                                                           \
    X(STEP_DURATION, "lanterne.step.duration")                                                     \
    X(STEP_SELF, "lanterne.step.self_time")                                                        \
    X(STEP_WAIT, "lanterne.step.peer_wait")                                                        \
    X(STEP_SPLIT, "lanterne.step.split")                                                           \
    X(STEP_FAULTS, "lanterne.step.faults")                                                         \
    X(STEP_COVERAGE, "lanterne.step.coverage")                                                     \
    X(STEP_COLLECTIVES, "lanterne.step.collectives")                                               \
    X(PREEMPTOR, "lanterne.preemptor.time")                                                        \
    X(GPU_UTILIZATION, "hw.gpu.utilization")                                                       \
    X(GPU_MEMORY, "hw.gpu.memory.usage")                                                           \
    X(GPU_MEMORY_LIMIT, "hw.gpu.memory.limit")                                                     \
    X(GPU_POWER, "hw.power")                                                                       \
    X(GPU_TEMPERATURE, "hw.temperature")                                                           \
    X(GPU_ERRORS, "hw.errors")                                                                     \
    X(GPU_CLOCK, "lanterne.gpu.clock.frequency")                                                   \
    X(GPU_CLOCK_LIMIT, "lanterne.gpu.clock.limit")                                                 \
    X(GPU_REASONS, "lanterne.gpu.clock.reasons")                                                   \
    X(GPU_PCIE_WIDTH, "lanterne.gpu.pcie.width")                                                   \
    X(GPU_PCIE_WIDTH_LIMIT, "lanterne.gpu.pcie.width.limit")                                       \
    X(GPU_PCIE_GENERATION, "lanterne.gpu.pcie.generation")                                         \
    X(GPU_PCIE_GENERATION_LIMIT, "lanterne.gpu.pcie.generation.limit")                             \
    X(AGENT_CALLS, "lanterne.agent.calls")                                                         \
    X(AGENT_RECORDS, "lanterne.agent.records")                                                     \
    X(AGENT_DROPS, "lanterne.agent.drops")                                                         \
    X(AGENT_PROCESSES, "lanterne.agent.processes")                                                 \
    X(AGENT_PROBES, "lanterne.agent.probes")                                                       \
    X(AGENT_MAPS, "lanterne.agent.map.size")                                                       \
    X(AGENT_CPU, "process.cpu.time")                                                               \
    X(AGENT_MEMORY, "process.memory.usage")
#define LTN_WIRE_ENUM(name, text) LTN_WIRE_##name,
    LTN_WIRE_TABLE(LTN_WIRE_ENUM)
#undef LTN_WIRE_ENUM
        LTN_WIRE_METRICS
};

struct ltn_staged_hist;

struct ltn_decoder {
    struct ltn_otlp_reader *reader;
    struct ltn_series *series;
    uint64_t *hist_counts; /* LTN_EXPHIST_FULL_BUCKETS */
    struct ltn_buf labels;
    struct ltn_buf json;      /* protobuf form of a JSON body */
    const char *only_cluster; /* NULL: any; see ltn_decoder_confine() */
    /* of the request at work */
    struct ltn_update *u;
    struct ltn_map resources; /* identity -> struct ltn_update_resource */
    struct ltn_decode_result *result;
    uint64_t now_ns; /* monotonic */
    uint32_t resource_index, scope_index, metric_index;
    bool have_resource, have_scope, have_metric;
    struct ltn_update_resource *resource; /* NULL: not an agent's */
    /* Points to be taken once the whole request was read. */
    struct ltn_series_sample *samples;
    size_t sample_n, sample_room;
    struct ltn_staged_hist *hists; /* in the update's arena, newest first */
    bool locked;                   /* the table of series, for a few points */
    unsigned locked_points;
    /* What resource, scope and metric are, as hashes for keys; the texts are made when a new series
     * asks for them. */
    uint64_t resource_context, scope_context, metric_context;
    struct ltn_buf target; /* labels job and instance */
    struct ltn_buf scope;  /* these and what the scope adds: what series share */
    bool scope_ready;
    /* of the metric at work */
    enum ltn_wire_metric metric; /* of agents */
    bool named, name_ok;
    char family[LTN_PROM_NAME_BYTES];
    char unit[LTN_PROM_NAME_BYTES];
    char help[200];
};

#define LTN_REJECT_TYPE     "another type is known here, or the name is reserved"
#define LTN_REJECT_FAMILIES "beyond " LTN_STRING(LTN_SERIES_FAMILIES) " metrics"

/* Rejects the point or record at work with a static text; metric: whose it is, empty for none. */
void ltn_decode_reject(struct ltn_decoder *d, struct ltn_otlp_str metric, const char *why);

/* True when a sum or histogram does not say its temporality. */
static inline bool ltn_decode_untimely(const struct ltn_otlp_metric *m)
{
    return m->kind != LTN_OTLP_GAUGE && m->kind != LTN_OTLP_SUMMARY &&
           m->temporality == LTN_OTLP_TEMPORALITY_UNSPECIFIED;
}

/* resource.c: sets resource, target and resource_context for the group. 0, LTN_ERR_COUNT,
 * LTN_ERR_TOO_LARGE, -ENOMEM. */
int ltn_decode_resource(struct ltn_decoder *d, const struct ltn_otlp_group *g) ltn_must_check;

/* confine.c: LTN_ERR_FORBIDDEN when the resource names another cluster than the sender's. */
int ltn_decode_check_cluster(const struct ltn_decoder *d,
                             struct ltn_otlp_attrs resource) ltn_must_check;

/* apply.c: takes a point of an agent's metric in. *ret_expose says whether it is also a series. 0
 * or LTN_ERR_TOO_LARGE. */
int ltn_decode_agent_number(struct ltn_decoder *d, const struct ltn_otlp_metric *m,
                            const struct ltn_otlp_number *p, bool *ret_expose) ltn_must_check;
int ltn_decode_agent_histogram(struct ltn_decoder *d,
                               const struct ltn_otlp_exp_histogram *p) ltn_must_check;

/* number.c: the way of a number to its series. */
/* Notes the scope and the metric for what follows. */
void ltn_decode_begin_metric(struct ltn_decoder *d, const struct ltn_otlp_group *g,
                             const struct ltn_otlp_metric *m);
/* Points like some seen before: how many were taken, from the first on (LTN_OTLP_AHEAD at most), or
 * -ENOMEM. */
int ltn_decode_numbers_raw(struct ltn_decoder *d, const struct ltn_otlp_metric *m,
                           const struct ltn_otlp_number *p, size_t n) ltn_must_check;
/* A point with its attributes. 0 or -ENOMEM. */
int ltn_decode_number(struct ltn_decoder *d, const struct ltn_otlp_group *g,
                      const struct ltn_otlp_metric *m,
                      const struct ltn_otlp_number *p) ltn_must_check;
/* Stages a value for a series. 0 or -ENOMEM. */
int ltn_decode_stage(struct ltn_decoder *d, const struct ltn_series_sample *v) ltn_must_check;
/* Series of that key, 0 for none. Holds the lock of the table for some calls, until
 * ltn_decode_unlock at the latest. */
ltn_series_ref ltn_decode_find(struct ltn_decoder *d, struct ltn_series_key key);
/* Makes or finds the series. As ltn_series_resolve. */
int ltn_decode_resolve(struct ltn_decoder *d, const struct ltn_series_desc *desc,
                       struct ltn_series_key key, ltn_series_ref *ret) ltn_must_check;
void ltn_decode_unlock(struct ltn_decoder *d);

/* expose.c */
/* Names the metric in Prometheus' way: family, unit, help, name_ok. */
void ltn_decode_name(struct ltn_decoder *d, const struct ltn_otlp_metric *m);
/* Labels that the series of the group share, in d->scope. */
void ltn_decode_scope(struct ltn_decoder *d, const struct ltn_otlp_group *g);
/* expose_hist.c: histograms and summaries. Staged in the update's arena, taken by
 * ltn_decode_take_hists once the whole request was read. 0, LTN_ERR_TOO_LARGE, -ENOMEM. */
int ltn_decode_histogram(struct ltn_decoder *d, const struct ltn_otlp_group *g,
                         const struct ltn_otlp_metric *m,
                         const struct ltn_otlp_histogram *p) ltn_must_check;
int ltn_decode_exp_histogram(struct ltn_decoder *d, const struct ltn_otlp_group *g,
                             const struct ltn_otlp_metric *m,
                             const struct ltn_otlp_exp_histogram *p) ltn_must_check;
int ltn_decode_summary(struct ltn_decoder *d, const struct ltn_otlp_group *g,
                       const struct ltn_otlp_metric *m,
                       const struct ltn_otlp_summary *p) ltn_must_check;
/* 0, -ENOMEM, or LTN_ERR_BUSY (the same request again takes what was not). */
int ltn_decode_take_hists(struct ltn_decoder *d, size_t *ret_taken) ltn_must_check;

/* logs.c: a record that is no agent's incident. 0 or LTN_ERR_TOO_LARGE. */
int ltn_decode_log(struct ltn_decoder *d, const struct ltn_otlp_group *g,
                   const struct ltn_otlp_log *log) ltn_must_check;

/* Cleaned copy in the update's arena, cut at max bytes; NULL when it is full. */
const char *ltn_decode_text(struct ltn_decoder *d, struct ltn_otlp_str s, size_t max);
/* The string attribute of that key, "" without one; NULL when the arena is full. */
const char *ltn_decode_attr_text(struct ltn_decoder *d, struct ltn_otlp_attrs attrs,
                                 const char *key, size_t max);

#endif /* LTN_INGEST_INTERNAL_H */
