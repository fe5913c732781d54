/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of collector/straggler share. */
#ifndef LTN_STRAGGLER_INTERNAL_H
#define LTN_STRAGGLER_INTERNAL_H

#include "straggler/straggler.h"

#include "base/map.h"

/* Verdicts look at the last RECENT scored windows of a member, of which NEEDED must show it. */
#define LTN_RECENT 5
#define LTN_NEEDED 4

/* Clean windows whose step time makes the group's baseline. */
#define LTN_BASELINE_WINDOWS 30
#define LTN_BASELINE_MIN     3

/* NVML clock-event reasons that slow a busy GPU: software power cap, hardware slowdown, software
 * thermal, hardware thermal, power brake. Idle (0x1) is none of them. */
#define LTN_THROTTLE_BITS (0x4ULL | 0x8ULL | 0x20ULL | 0x40ULL | 0x80ULL)

/* One scored window of a member. */
struct ltn_sample {
    uint64_t end_ns;
    double effect; /* ln of own over reference */
    double self_ns;
    double peer_median_ns;
    double step_ns;
    double impact; /* share of the step that goes to this member */
    bool slow;     /* self time: effect and sigmas reached */
    bool own_slow; /* against its own baseline */
    bool throttled;
    double clock, peer_clock;
    uint64_t throttle_bits;
    double part_excess_ns[LTN_PARTS]; /* only when slow */
    struct ltn_straggler_preemptor preemptors[LTN_STRAGGLER_PREEMPTORS];
};

struct ltn_mate {
    char key[LTN_STRAGGLER_KEY_BYTES];
    uint64_t incarnation;
    uint64_t last_end_ns;
    uint32_t windows; /* of this incarnation */
    struct ltn_sample recent[LTN_RECENT];
    uint32_t recent_n, recent_at; /* filled entries; where the next goes */
    double dev_mean, dev_var;     /* of x - median of the group */
    uint32_t dev_n;
    double base_x, base_var; /* own past of x */
    uint32_t base_n;
    uint32_t clean;
    bool open;
    struct ltn_straggler_verdict verdict;
    double kept_effect_pct; /* effect of the last notable change */
};

struct ltn_group {
    char job[LTN_STRAGGLER_JOB_BYTES];
    char name[LTN_STRAGGLER_JOB_BYTES];
    struct ltn_map mates;
    uint32_t windows;
    uint64_t last_end_ns;
    double base_step_ns[LTN_BASELINE_WINDOWS]; /* ring of clean windows */
    double base_device_ns[LTN_BASELINE_WINDOWS];
    uint32_t base_n, base_at;
};

struct ltn_straggler {
    struct ltn_straggler_opts opts;
    struct ltn_map groups;
    size_t members;
    double *scratch; /* 8 arrays of scratch_n */
    size_t scratch_n;
};

/* A member under judgement: what came, what is known of it, what this window says. */
struct ltn_case {
    const struct ltn_straggler_member *in;
    struct ltn_mate *mate;
    double x;          /* ln of self time */
    double peer_x;     /* leave-one-out median */
    double effect;     /* x - peer_x */
    double scale;      /* robust sigma of effect */
    double own_effect; /* x - own baseline; 0 without one */
    bool slow, own_slow, throttled;
    double peer_clock;
};

struct ltn_round {
    struct ltn_straggler *s;
    struct ltn_group *g;
    const struct ltn_straggler_window *w;
    struct ltn_case *cases; /* ascending in x */
    size_t n;
    ltn_straggler_event_fn *fn;
    void *ctx;
};

/* score.c: fills effect, scale, slow, own_slow of all cases (n >= 2), then learns from them. */
void ltn_score_round(struct ltn_round *r);
void ltn_score_learn(struct ltn_round *r);

/* gpu.c: fills throttled and peer_clock. */
void ltn_gpu_round(struct ltn_round *r);
/* True when the recent windows name this member's GPU; fills the verdict's own fields then. */
bool ltn_gpu_verdict(const struct ltn_round *r, const struct ltn_case *c,
                     struct ltn_straggler_verdict *v);
/* Keeps step and device time of a window in which nobody stands out. */
void ltn_gpu_learn(struct ltn_round *r);

/* cause.c: excess parts of a slow member into *sample, and the cause of the recent windows into
 * *v. */
void ltn_cause_sample(const struct ltn_round *r, const struct ltn_case *c,
                      struct ltn_sample *sample);
void ltn_cause_name(const struct ltn_straggler_opts *opts, const struct ltn_mate *m,
                    struct ltn_straggler_verdict *v);

/* Persistently and steadily slow in the recent windows. */
bool ltn_mate_slow(const struct ltn_mate *m);

/* Samples of the recent windows for which pick holds. */
size_t ltn_mate_count(const struct ltn_mate *m, bool (*pick)(const struct ltn_sample *));
bool ltn_sample_own_slow(const struct ltn_sample *s);
bool ltn_sample_throttled(const struct ltn_sample *s);

#endif /* LTN_STRAGGLER_INTERNAL_H */
