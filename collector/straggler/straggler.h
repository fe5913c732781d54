/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who is everybody waiting for? Takes the windows of one peer group at a time and says which member
 * is slow, by how much and why; or that it cannot tell. A pure library: no I/O, no clock, no
 * threads. Time comes with the windows; the same windows give the same verdicts.
 *
 * The caller decides who are peers (collector/fleet). One object is for one thread at a time.
 * The rules and their reasons: docs/straggler.md.
 */
#ifndef LTN_STRAGGLER_STRAGGLER_H
#define LTN_STRAGGLER_STRAGGLER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/attr.h"

/* Parts of self time, as the attribute lanterne.state of docs/internals/wire.md names them. */
#define LTN_PART_TABLE(X)                                                                          \
    X(ON_CPU, "on_cpu")                                                                            \
    X(RUN_QUEUE, "run_queue")                                                                      \
    X(DEVICE, "device")                                                                            \
    X(FUTEX, "futex")                                                                              \
    X(READ, "read")                                                                                \
    X(WRITE, "write")                                                                              \
    X(POLL, "poll")                                                                                \
    X(SLEEP, "sleep")                                                                              \
    X(DISK, "disk")                                                                                \
    X(CHILD, "child")                                                                              \
    X(FAULT, "fault")                                                                              \
    X(OTHER, "other")

enum ltn_part {
#define LTN_PART_ENUM(name, text) LTN_PART_##name,
    LTN_PART_TABLE(LTN_PART_ENUM)
#undef LTN_PART_ENUM
        LTN_PARTS
};

/* Name of a part (static), and its number; LTN_PARTS for an unknown name. Thread-safe. */
const char *ltn_part_name(enum ltn_part part);
enum ltn_part ltn_part_find(const char *name, size_t len);

#define LTN_STRAGGLER_COMM_BYTES 16
#define LTN_STRAGGLER_PREEMPTORS 4
#define LTN_STRAGGLER_JOB_BYTES  128
#define LTN_STRAGGLER_NODE_BYTES 128
#define LTN_STRAGGLER_KEY_BYTES  32

/* A process that had the CPU while the rank's threads waited for it. */
struct ltn_straggler_preemptor {
    char comm[LTN_STRAGGLER_COMM_BYTES];
    double waited_ns; /* per step */
};

/* The window of one member. Times are means per step. */
struct ltn_straggler_member {
    char key[LTN_STRAGGLER_KEY_BYTES]; /* identity inside the job */
    char node[LTN_STRAGGLER_NODE_BYTES];
    int32_t rank;
    uint64_t incarnation; /* changes when another process takes the rank's place */
    double step_ns;
    double self_ns;
    double peer_wait_ns;
    double part_ns[LTN_PARTS];
    struct ltn_straggler_preemptor preemptors[LTN_STRAGGLER_PREEMPTORS]; /* unused: waited_ns 0 */
    double coverage;       /* share of the window that steps cover; below min_coverage: not used */
    double gpu_clock;      /* SM clock over its limit, 0..1; negative: unknown */
    double gpu_busy;       /* utilisation 0..1; negative: unknown */
    uint64_t gpu_throttle; /* NVML clock-event reason bits */
};

struct ltn_straggler_window {
    const char *job;
    const char *group; /* peers inside the job: ranks of the same role */
    uint64_t end_ns;   /* grows from call to call of a group */
    uint64_t length_ns;
    size_t expected; /* members that should be there; at least n is assumed */
    size_t job_gpus; /* GPUs that wait when this group waits */
    const struct ltn_straggler_member *members;
    size_t n;
};

/* What a verdict rests on. */
enum ltn_straggler_method {
    LTN_METHOD_PEERS = 0,   /* self time against the median of at least two peers */
    LTN_METHOD_OWN_HISTORY, /* two members only: against its own past, the peer unchanged */
    LTN_METHOD_GPU_CLOCK,   /* clock of its GPU against its peers', with a throttle reason */
};
const char *ltn_straggler_method_name(enum ltn_straggler_method m);

#define LTN_STRAGGLER_CAUSE_BYTES  24
#define LTN_STRAGGLER_DETAIL_BYTES 384

struct ltn_straggler_verdict {
    char job[LTN_STRAGGLER_JOB_BYTES];
    char group[LTN_STRAGGLER_JOB_BYTES];
    char key[LTN_STRAGGLER_KEY_BYTES];
    char node[LTN_STRAGGLER_NODE_BYTES];
    int32_t rank;
    uint64_t incarnation; /* of the process; 0: not known (put back from an earlier run) */
    enum ltn_straggler_method method;
    double effect_pct;     /* how much slower than its reference */
    uint32_t peers;        /* members compared with */
    double peer_median_ns; /* self time of the peers */
    double self_time_ns;
    double gpu_clock; /* ratio to its limit, own and peers'; negative when unknown */
    double peer_gpu_clock;
    char cause[LTN_STRAGGLER_CAUSE_BYTES];
    char cause_detail[LTN_STRAGGLER_DETAIL_BYTES];
    double explained_share; /* of the excess, 0..1; negative when it cannot be said */
    const char *tier;       /* "ebpf" or "nvml"; static storage */
    uint64_t since_ns;      /* end of the first window of the run that led to it */
    uint64_t opened_at_ns;  /* end of the window it was opened in */
    uint64_t updated_at_ns;
    uint64_t closed_at_ns; /* 0 while open */
    uint32_t windows;      /* windows in which it showed */
    double impact_share;   /* share of the job's step that goes to it, latest */
    double gpu_hours_lost;
    char close_reason[16]; /* "recovered", "gone"; "" while open */
};

enum ltn_straggler_change { LTN_VERDICT_OPENED, LTN_VERDICT_UPDATED, LTN_VERDICT_CLOSED };

/* A change of a verdict; v is valid during the call. "updated" comes with every scored window of an
 * open verdict; notable says that cause or effect changed enough to keep it as history. */
typedef void ltn_straggler_event_fn(void *ctx, enum ltn_straggler_change change, bool notable,
                                    const struct ltn_straggler_verdict *v);

/* What became of a window. */
enum ltn_straggler_state {
    LTN_GROUP_SCORED = 0,
    LTN_GROUP_WARM_UP,      /* first windows of a group are not judged */
    LTN_GROUP_ALONE,        /* fewer than two members */
    LTN_GROUP_PEERS_ABSENT, /* under min_present of the members came: nothing moves */
    LTN_GROUP_LOW_COVERAGE, /* as above, for steps that cover too little of the window */
    LTN_GROUP_CANNOT_TELL,  /* two members differ, and history does not say who changed */
    LTN_GROUP_COHORT,       /* too many are slow at once to call them stragglers */
    LTN_GROUP_JOB_WIDE,     /* nearly all are slower than they were */
};
const char *ltn_straggler_state_name(enum ltn_straggler_state s);

struct ltn_straggler_status {
    enum ltn_straggler_state state;
    uint32_t used;         /* members that were scored */
    uint32_t low_coverage; /* members left out for their coverage */
    double effect_pct;     /* COHORT, JOB_WIDE: by how much; else 0 */
    char note[192];        /* for people; "" when there is nothing to say */
};

struct ltn_straggler_opts {
    double min_effect;          /* 0.08: slower than the reference by this share */
    double min_sigmas;          /* 4 */
    double noise_floor;         /* 0.005: no scale is smaller */
    double min_present;         /* 0.6 of the expected members */
    double min_coverage;        /* 0.8 */
    double max_share;           /* 0.2 of the members (at least one) may be stragglers */
    double min_step_growth;     /* 0.03: of the job's step, for the GPU channel */
    double min_named_share;     /* 0.8: a cause that explains less is not named */
    uint32_t warm_up_windows;   /* 2 */
    uint32_t clean_windows;     /* 5: in a row, to close */
    uint32_t max_groups;        /* 20000 */
    uint32_t max_group_members; /* 65536 */
};

/* The defaults named above. */
void ltn_straggler_opts_default(struct ltn_straggler_opts *opts);

struct ltn_straggler;

/* New detector; opts NULL for the defaults. NULL when memory is out. */
struct ltn_straggler *ltn_straggler_new(const struct ltn_straggler_opts *opts) ltn_must_check;

/* NULL is ignored. Open verdicts are not closed by this. */
void ltn_straggler_free(struct ltn_straggler *s);

/* Takes one window of a group and reports changes through fn (may be NULL). Verdicts are one per
 * rank: a rank with an open verdict gets no second one. *ret (may be NULL) is set on success.
 * 0, -EINVAL (no job or group, duplicate keys, length 0), LTN_ERR_COUNT (a ceiling), -ENOMEM. */
int ltn_straggler_feed(struct ltn_straggler *s, const struct ltn_straggler_window *w,
                       ltn_straggler_event_fn *fn, void *ctx,
                       struct ltn_straggler_status *ret) ltn_must_check;

/* Puts an open verdict from an earlier run back, so that later windows update and close it. It is
 * ignored when its rank has one already. Errors as above. */
int ltn_straggler_restore(struct ltn_straggler *s,
                          const struct ltn_straggler_verdict *v) ltn_must_check;

/* Forgets a group, or one member of it (key not NULL), closing what is open with reason "gone" at
 * now_ns. Unknown names are ignored. */
void ltn_straggler_forget(struct ltn_straggler *s, const char *job, const char *group,
                          const char *key, uint64_t now_ns, ltn_straggler_event_fn *fn, void *ctx);

/* Groups and members known now. */
void ltn_straggler_sizes(const struct ltn_straggler *s, size_t *ret_groups, size_t *ret_members);

#endif /* LTN_STRAGGLER_STRAGGLER_H */
