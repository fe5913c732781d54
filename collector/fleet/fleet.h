/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Registry of the cluster and the way from windows to group windows. The structures are open for
 * reading by collector/serve; only this folder changes them. One thread (the collector's loop).
 * Times are Unix ns and come from the caller.
 */
#ifndef LTN_FLEET_FLEET_H
#define LTN_FLEET_FLEET_H

#include "base/attr.h"
#include "base/map.h"
#include "fleet/update.h"
#include "straggler/straggler.h"

#define LTN_FLEET_HISTORY   60 /* windows remembered per rank */
#define LTN_FLEET_WINDOWS   8  /* of these whole, to be judged */
#define LTN_FLEET_GPUS      16 /* per node */
#define LTN_FLEET_COMMS     16 /* per process */
#define LTN_FLEET_ROLE_SIZE 8  /* distinct communicator sizes in a role */
#define LTN_FLEET_DROPS     24 /* reasons per node */

/* name, help: things refused or out of the ordinary, since start */
#define LTN_FLEET_COUNTERS(X)                                                                      \
    X(refused_nodes, "updates refused: too many nodes")                                            \
    X(refused_processes, "process updates refused: too many processes")                            \
    X(refused_jobs, "process updates without a job: too many jobs")                                \
    X(refused_ops, "op counters not exposed: too many ops on a node")                              \
    X(refused_groups, "group windows not judged: detector at its ceiling")                         \
    X(windows, "rank windows taken")                                                               \
    X(windows_duplicate, "rank windows that came again and changed nothing")                       \
    X(windows_late, "rank windows that came after their group was judged")                         \
    X(windows_length, "agent windows of another length than the collector's")                      \
    X(windows_gap, "agent windows that never came, by their sequence")                             \
    X(groups_scored, "group windows judged")                                                       \
    X(groups_abstained, "group windows in which nothing could be said")                            \
    X(ranks_replaced, "processes that a newer one of the same rank replaced")                      \
    X(samples_duplicate, "samples left out of an exposition: their labels were there")

struct ltn_fleet_counters {
#define LTN_FLEET_COUNTER(name, help) uint64_t name;
    LTN_FLEET_COUNTERS(LTN_FLEET_COUNTER)
#undef LTN_FLEET_COUNTER
};

struct ltn_fleet_gpu {
    char uuid[64];
    char model[64];
    double utilization, memory_used, memory_total, power_w, temperature_c; /* < 0: unknown */
    double clock_hz, clock_max_hz;
    double pcie_width, pcie_width_max, pcie_generation, pcie_generation_max;
    double errors_uncorrected;
    uint64_t clock_reasons;
    bool has_reasons;
    uint64_t seen_ns;
};

/* Sums over the processes of a node, also those that ended. */
struct ltn_fleet_op {
    char source[16];
    char op[64];
    uint64_t calls, errors, bytes;
    uint64_t buckets[LTN_DURATION_BUCKETS];
    double duration_s;
    bool has_duration;
};

struct ltn_fleet_drop {
    char reason[48];
    uint64_t count;
};

struct ltn_fleet_node {
    char name[LTN_NAME_BYTES];
    char cluster[LTN_NAME_BYTES];
    char instance[64];
    char version[48];
    uint64_t first_seen_ns, last_seen_ns;
    uint64_t sequence;       /* newest of this instance */
    uint64_t gaps;           /* windows of this node that never came */
    int64_t clock_offset_ns; /* node minus collector, lower bound of |.|; 0 while small */
    int64_t offset_samples[6];
    uint32_t offset_n;
    uint64_t offset_at_ns;
    uint64_t agent_window_ns; /* length of its windows; 0: not known */
    uint64_t length_sequence; /* window whose length was looked at last */
    uint32_t odd_lengths;     /* in a row that are not as long as ours */
    bool length_differs;
    struct ltn_fleet_gpu gpus[LTN_FLEET_GPUS];
    size_t gpu_count;
    struct ltn_update_health health; /* drops is NULL: see below */
    struct ltn_fleet_drop drops[LTN_FLEET_DROPS];
    size_t drop_count;
    struct ltn_map ops; /* "source\x1fop" -> struct ltn_fleet_op */
    size_t process_count;
    uint64_t incidents;
};

struct ltn_fleet_window {
    uint64_t slot; /* end over window length; 0: empty */
    uint64_t received_ns;
    struct ltn_straggler_member member; /* what was or will be judged */
};

/* What is remembered of a window for longer. */
struct ltn_fleet_past {
    uint64_t slot; /* 0: empty */
    uint64_t end_ns;
    float step_ns, self_ns;
    float ratio; /* self time over the peers' median; 0: not judged */
    float coverage;
};

struct ltn_fleet_comm {
    uint64_t id;
    int32_t rank, size;
    uint64_t sequence, first_sequence;
    uint64_t moved_ns; /* when the sequence last grew */
};

struct ltn_fleet_group;

struct ltn_fleet_proc {
    struct ltn_fleet_node *node;
    uint32_t pid;
    uint64_t start_ns;
    char comm[32];
    struct ltn_fleet_job *job; /* NULL: in no job */
    int32_t rank, world_size, local_rank;
    char gpu_uuid[64];
    char key[LTN_STRAGGLER_KEY_BYTES];
    uint64_t first_seen_ns, last_seen_ns;
    uint64_t seen_sequence; /* newest window of that agent instance */
    char seen_instance[64];
    char last_instance[64];    /* the agent before, which may still have pushes under way */
    uint64_t instance_seen_ns; /* when seen_instance was heard last */
    struct ltn_map ops;        /* "source\x1fop" -> struct ltn_update_op of its own */
    struct ltn_fleet_comm comms[LTN_FLEET_COMMS];
    size_t comm_count;
    uint64_t steps_total, first_steps;
    bool is_rank;
    bool rank_given; /* the rank is the job's, not that of a communicator */
    bool replaced;   /* ended: a newer process has the rank */
    char *place;     /* key in job->places; owned; NULL: in none */
    int role;        /* index into job->roles; -1: not yet known */
    unsigned role_misses;
    struct ltn_fleet_group *group; /* NULL: none yet */
    uint64_t last_slot, slot_sequence;
    uint64_t last_window_ns; /* received */
    struct ltn_fleet_window windows[LTN_FLEET_WINDOWS];
    size_t window_at; /* where the next goes */
    struct ltn_fleet_past past[LTN_FLEET_HISTORY];
    size_t past_at;
};

/* What ranks of one role have in common: communicator sizes and operations per step on each. */
struct ltn_fleet_role {
    int32_t size[LTN_FLEET_ROLE_SIZE];
    double per_step[LTN_FLEET_ROLE_SIZE];
    size_t n;
};
#define LTN_FLEET_ROLES 64

struct ltn_fleet_group {
    struct ltn_fleet_job *job;
    char name[LTN_STRAGGLER_JOB_BYTES];
    uint64_t comm_id; /* 0: by job and world size */
    int32_t size;     /* of the communicator or the world */
    int role;
    struct ltn_fleet_proc **members;
    size_t n, cap;
    uint64_t next_slot; /* the next to be judged; 0: none yet */
    uint64_t scored_ns; /* end of the newest judged window */
    uint64_t judged_ns; /* our time of that judgement */
    struct ltn_straggler_status status;
    double step_ns;        /* median of the newest window */
    double self_median_ns; /* likewise */
};

struct ltn_fleet_job {
    char key[LTN_STRAGGLER_JOB_BYTES];
    uint64_t first_seen_ns, last_seen_ns;
    int32_t world_size;
    struct ltn_map procs;  /* "node\x1fpid\x1fstart" -> struct ltn_fleet_proc */
    struct ltn_map groups; /* name -> struct ltn_fleet_group */
    struct ltn_map places; /* of a rank -> the struct ltn_fleet_proc that has it now */
    struct ltn_fleet_role roles[LTN_FLEET_ROLES];
    size_t role_count;
    double gpu_hours_lost; /* since this collector first saw the job */
};

/* Verdicts as served: open ones and the newest closed ones. */
struct ltn_fleet_verdict {
    struct ltn_straggler_verdict v;
    double counted_hours; /* of gpu_hours_lost, already added to the job */
    uint64_t heard_ns;    /* collector's time of the last change or of the restore */
};

struct ltn_fleet_incident {
    char node[LTN_NAME_BYTES];
    char id[64], kind[48], state[16], severity[16], cause[48];
    char job[LTN_STRAGGLER_JOB_BYTES];
    char title[256];
    char *evidence; /* JSON text as the agent sent it; owned; NULL when none */
    int32_t rank, severity_number;
    uint32_t pid;
    uint64_t opened_at_ns, last_change_ns, closed_at_ns, count;
    double explained_share;
};

/* Incidents opened, by what /metrics tells them apart by. */
struct ltn_fleet_incident_total {
    char severity[16], kind[48];
    char node[LTN_NAME_BYTES];
    uint64_t count;
};

struct ltn_fleet_opts {
    uint64_t window_ns;
    size_t max_nodes;     /* 20000 */
    size_t max_processes; /* 200000 */
    size_t max_jobs;      /* 10000 */
    size_t max_verdicts;  /* closed ones kept in memory: 4096 */
    size_t max_incidents; /* 4096 */
    struct ltn_straggler_opts straggler;
};
void ltn_fleet_opts_default(struct ltn_fleet_opts *o);

struct ltn_fleet_sink {
    void *ctx;
    ltn_straggler_event_fn *on_verdict; /* changes, after the fleet took them in; may be NULL */
    /* Once per node whose agent's windows are not as long as ours; may be NULL. */
    void (*on_window_length)(void *ctx, const char *node, uint64_t agent_window_ns);
};

struct ltn_fleet {
    struct ltn_fleet_opts opts;
    struct ltn_fleet_sink sink;
    struct ltn_straggler *straggler;
    struct ltn_map nodes;             /* name */
    struct ltn_map procs;             /* "node\x1fpid\x1fstart" */
    struct ltn_map pids;              /* "node\x1fpid" -> newest process of that id */
    struct ltn_map jobs;              /* key */
    struct ltn_map open;              /* "job\x1fgroup\x1fkey" -> struct ltn_fleet_verdict */
    struct ltn_fleet_verdict *closed; /* ring of max_verdicts */
    size_t closed_n, closed_at;
    struct ltn_map incidents; /* "node\x1fid" -> struct ltn_fleet_incident */
    struct ltn_map
        incident_totals; /* "severity\x1fkind\x1fnode" -> struct ltn_fleet_incident_total */
    double *scratch;
    size_t scratch_n;
    struct ltn_fleet_counters counters;
    uint64_t now_ns;
};

/* NULL when out of memory. opts and sink are copied. */
struct ltn_fleet *ltn_fleet_new(const struct ltn_fleet_opts *opts,
                                const struct ltn_fleet_sink *sink) ltn_must_check;
void ltn_fleet_free(struct ltn_fleet *f);

/* Takes an update in; what it makes complete is judged at once. The same update again changes
 * nothing. Never fails as a whole: what finds no room is counted. */
void ltn_fleet_apply(struct ltn_fleet *f, const struct ltn_update *u, uint64_t now_ns);

/* Judges windows whose grace has ended, forgets what is long gone. Call about once a second. */
void ltn_fleet_tick(struct ltn_fleet *f, uint64_t now_ns);

/* Puts back what the store kept: an open or closed verdict, an incident. 0, -ENOMEM, ... */
int ltn_fleet_restore_verdict(struct ltn_fleet *f, const struct ltn_straggler_verdict *v,
                              uint64_t now_ns) ltn_must_check;
void ltn_fleet_take_incident(struct ltn_fleet *f, const struct ltn_update_incident *i);

/* True when the node was heard of within three windows. */
bool ltn_fleet_node_up(const struct ltn_fleet *f, const struct ltn_fleet_node *n, uint64_t now_ns);

/* The i-th newest closed verdict, NULL at the end. */
const struct ltn_fleet_verdict *ltn_fleet_closed(const struct ltn_fleet *f, size_t i);

/* The newest window of a rank, NULL when there is none. */
const struct ltn_fleet_window *ltn_fleet_newest(const struct ltn_fleet_proc *p);
/* The i-th newest remembered window, NULL at the end. */
const struct ltn_fleet_past *ltn_fleet_past(const struct ltn_fleet_proc *p, size_t i);

/* What can be said of all ranks that send windows. */
struct ltn_fleet_outcome {
    const char *state; /* static: "straggler" (a verdict is open), "no_straggler", "partial" (nobody
                        * is slow among those judged), "cannot_tell" (nobody is judged) */
    size_t judged, unjudged; /* ranks */
    char reason[384];        /* why some are not judged; "" when all are */
};
void ltn_fleet_outcome(const struct ltn_fleet *f, struct ltn_fleet_outcome *ret);

/* Ranks of a job that send windows, at most its world size; *ret_replaced (may be NULL): processes
 * that a newer one of the same rank replaced. */
size_t ltn_fleet_job_ranks(const struct ltn_fleet_job *job, size_t *ret_replaced);

/* The open verdict of this very process, NULL when there is none. */
const struct ltn_fleet_verdict *ltn_fleet_proc_verdict(const struct ltn_fleet *f,
                                                       const struct ltn_fleet_proc *p);

/* The open verdict of a process of that node, NULL when there is none. */
const struct ltn_fleet_verdict *ltn_fleet_node_verdict(const struct ltn_fleet *f, const char *node);

#endif /* LTN_FLEET_FLEET_H */
