/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of this room share. */
#ifndef LTN_CAUSAL_INTERNAL_H
#define LTN_CAUSAL_INTERNAL_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/map.h"
#include "causal/causal.h"
#include "probe/ops.h"

#define LTN_CAUSAL_EXPLAINED 0.8 /* a cause that explains less is not named */

#define BASELINE_WINDOWS 16 /* kept of the usual */
#define BASELINE_MIN     4  /* needed before anything is unusual */
#define RECENT_CALLS     8
#define ALLOC_HISTORY    64
#define SPIKE_TIMES      16
#define EVIDENCE_BYTES   8192

/* One window of host time, per step. */
struct sample {
    double step_ns;
    double host_ns; /* self time less the wait for the own device */
    double split_ns[LTN_SPLITS];
    double major_faults;
    double minor_faults;
};

struct recent_call {
    uint64_t time_ns;
    uint64_t duration_ns;
    uint16_t op;
    int32_t result;
};

/* Durations of one class (allocation or freeing) and the spikes among them. */
struct alloc_track {
    uint64_t history_ns[ALLOC_HISTORY];
    uint64_t seen;
    unsigned spike_windows; /* bits: which of the last windows had spikes */
    /* of the running window */
    unsigned spikes;
    uint64_t spike_ns;
    uint64_t queued_ns;
    uint64_t blocked_ns;
    uint64_t worst_ns;
    uint16_t worst_op;
    unsigned long calls;
    uint64_t total_ns;
    /* of the windows before */
    double counts[BASELINE_WINDOWS];
    unsigned count_n;
};

struct first_error {
    uint64_t count; /* in the running window */
    uint64_t bytes;
    uint16_t op;
    int32_t result;
    uint64_t time_ns;
    size_t before_n;
    struct recent_call before[RECENT_CALLS];
};

/* Until the first blocking call returned: what the first calls took. */
struct cold_track {
    bool done;
    bool seen[LTN_OP_COUNT];
    uint64_t first_ns;
    uint64_t ready_ns; /* 0 = not yet */
    uint64_t calls_ns;
    uint64_t worst_ns;
    uint16_t worst_op;
};

struct causal_proc {
    uint32_t pid;
    uint64_t start_ns;
    char comm[LTN_COMM_BYTES];
    int32_t rank;
    uint64_t touched_window;

    struct sample usual[BASELINE_WINDOWS]; /* ring */
    unsigned usual_n;
    unsigned streak; /* unusual windows in a row */

    struct recent_call recent[RECENT_CALLS]; /* ring */
    uint64_t recent_n;
    struct recent_call slow; /* the wait that lost the most to the run queue in this window */
    uint64_t slow_queued_ns;

    struct alloc_track alloc[2]; /* allocations, frees */
    uint64_t spike_times[SPIKE_TIMES];
    unsigned spike_n;
    struct first_error error;
    struct cold_track cold;
    unsigned copy_streak;

    uint64_t cpu_total_ns;
    uint64_t io_total_bytes;
    unsigned idle_windows; /* in a row without CPU, I/O or calls */
};

struct incident;

#define ENDED_RANKS 32
struct ended_rank {
    uint64_t comm_id;
    uint32_t pid;
    int32_t rank;
    uint64_t time_ns;
};

struct ltn_causal {
    struct ltn_causal_opts opts;
    char node[256];
    struct ltn_map procs;     /* pid -> struct causal_proc */
    struct ltn_map incidents; /* key text -> struct incident */
    uint64_t window;          /* number of the running window */
    uint64_t first_window_ns;
    unsigned opened_in_window;
    unsigned pressure_streak;
    struct ended_rank ended[ENDED_RANKS]; /* ring */
    unsigned ended_n;
    char last_comms[8][LTN_COMM_BYTES]; /* names of processes that ended, for restarts */
    unsigned last_comm_n;
    struct ltn_causal_stats stats;
};

/* ---- incidents.c ---- */

/* What a finding says about an incident in this window. */
struct finding {
    enum ltn_causal_kind kind;
    enum ltn_causal_severity severity;
    const char *title;
    const char *cause;
    double share;
    uint64_t count;  /* adds to the incident's */
    unsigned quiet;  /* windows without the finding after which it closes */
    uint64_t detail; /* tells incidents of one kind and process apart */
    const struct ltn_buf *evidence;
};

/* Opens the incident or goes on with it. proc NULL: of the node. */
void ltn_inc_found(struct ltn_causal *c, const struct causal_proc *proc, uint64_t time_ns,
                   const struct finding *f);
/* The process finished no step in this window: what its steps told before is not over for that, for
 * some windows at most. */
void ltn_inc_hold(struct ltn_causal *c, const struct causal_proc *proc);
/* True when the process has an open incident of this kind. */
bool ltn_inc_is_open(const struct ltn_causal *c, const struct causal_proc *proc,
                     enum ltn_causal_kind kind, uint64_t detail);
/* Closes what was not found for long enough. */
void ltn_inc_turn(struct ltn_causal *c, uint64_t time_ns);
/* Closes all of a process, or (NULL) everything. */
void ltn_inc_close_all(struct ltn_causal *c, const struct causal_proc *proc, uint64_t time_ns);
void ltn_inc_done(struct ltn_causal *c);

/* ---- text.c ---- */

#define DURATION_BYTES 16
/* "812 ns", "4.1 µs", "17 ms", "2.4 s". */
const char *ltn_causal_duration(char out[DURATION_BYTES], double ns);
/* "rank 3 (`python3`)" or "`python3`". */
#define WHO_BYTES 64
const char *ltn_causal_who(char out[WHO_BYTES], const struct causal_proc *p);
/* Name of a result, such as "cudaErrorIllegalAddress"; NULL when it has none here. */
const char *ltn_causal_result_name(const struct ltn_op *op, int32_t result);
const char *ltn_causal_op_name(unsigned op);
/* An object under key with the parts that are not zero, in ns. */
void ltn_causal_put_split(struct ltn_json *j, const char *key, const double split_ns[LTN_SPLITS]);

/* ---- findings: each looks at one process of the window ---- */

void ltn_causal_host(struct ltn_causal *c, struct causal_proc *p, const struct ltn_window *w,
                     const struct ltn_proc_window *pw);
void ltn_causal_note_call(struct causal_proc *p, const struct ltn_call *call);
void ltn_causal_note_alloc(struct causal_proc *p, const struct ltn_op *op,
                           const struct ltn_call *call);
void ltn_causal_errors(struct ltn_causal *c, struct causal_proc *p, const struct ltn_window *w);
void ltn_causal_alloc(struct ltn_causal *c, struct causal_proc *p, const struct ltn_window *w);
void ltn_causal_cold(struct ltn_causal *c, struct causal_proc *p, const struct ltn_window *w);
void ltn_causal_copies(struct ltn_causal *c, struct causal_proc *p, const struct ltn_window *w,
                       const struct ltn_proc_window *pw);
/* Looks at the whole window: communicators join processes. */
void ltn_causal_hangs(struct ltn_causal *c, const struct ltn_window *w);
void ltn_causal_note_ended(struct ltn_causal *c, const struct ltn_proc_window *pw,
                           uint64_t time_ns);

/* Usual step of a process, 0 when not known. */
double ltn_causal_usual_step_ns(const struct causal_proc *p);

struct causal_proc *ltn_causal_find(const struct ltn_causal *c, uint32_t pid);

#endif /* LTN_CAUSAL_INTERNAL_H */
