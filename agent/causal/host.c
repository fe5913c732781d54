/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Host time per step against the process's own usual: which part grew, and whether it explains the
 * growth. Waiting for the device or for peers is not host time.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "causal/internal.h"
#include "stats/exphist.h"
#include "stats/robust.h"

#define EXCESS_DEFAULT 0.15
#define EXCESS_SIGMAS  4.0
#define EXCESS_MIN_NS  200e3 /* per step */
#define LOSS_MIN       0.03  /* share of the window */
#define PERSIST        2     /* unusual windows in a row */
#define QUIET          3     /* usual ones after which it is over */
#define ADOPT          60    /* after so many, what nobody can explain is the new usual */
#define FACT_SHARE     0.3   /* waiting for a CPU that others hold is wrong even without a usual */
#define SELF_HELD      0.5   /* share of the wait from which own threads are what held the CPU */

/* What a group of parts is called. */
enum group { GROUP_CPU, GROUP_FAULTS, GROUP_IO, GROUP_OWN, GROUP_OTHERS, GROUPS };

/* The loss of one window. */
struct loss {
    struct sample now;
    struct sample usual;
    double part_ns[LTN_SPLITS]; /* growth by part */
    double group_ns[GROUPS];
    double total_ns; /* growth of host time per step */
    double share;    /* of the window */
    enum group top;
    double explained;
};

static struct sample sample_of(const struct ltn_rank_window *r)
{
    struct sample s = {
        .step_ns = r->step_ns,
        .host_ns = r->self_ns - r->split_ns[LTN_SPLIT_DEVICE],
        .major_faults = r->major_faults,
        .minor_faults = r->minor_faults,
    };
    memcpy(s.split_ns, r->split_ns, sizeof(s.split_ns));
    s.split_ns[LTN_SPLIT_DEVICE] = 0.0;
    return s;
}

static unsigned usual_count(const struct causal_proc *p)
{
    return p->usual_n < BASELINE_WINDOWS ? p->usual_n : BASELINE_WINDOWS;
}

/* Median of one field, found by its place in the sample. */
static double median_at(const struct causal_proc *p, size_t offset, double *ret_mad)
{
    double x[BASELINE_WINDOWS];
    double scratch[BASELINE_WINDOWS];
    unsigned n = usual_count(p);
    for (unsigned i = 0; i < n; i++) {
        memcpy(&x[i], (const char *)&p->usual[i] + offset, sizeof(double));
    }
    if (n == 0) {
        return 0.0;
    }
    double m = ltn_median(x, n);
    if (ret_mad != NULL) {
        *ret_mad = ltn_mad(x, n, m, scratch);
    }
    return m;
}

double ltn_causal_usual_step_ns(const struct causal_proc *p)
{
    return median_at(p, offsetof(struct sample, step_ns), NULL);
}

static void usual_of(const struct causal_proc *p, struct sample *ret, double *ret_mad)
{
    ret->step_ns = median_at(p, offsetof(struct sample, step_ns), NULL);
    ret->host_ns = median_at(p, offsetof(struct sample, host_ns), ret_mad);
    ret->major_faults = median_at(p, offsetof(struct sample, major_faults), NULL);
    ret->minor_faults = median_at(p, offsetof(struct sample, minor_faults), NULL);
    for (size_t i = 0; i < LTN_SPLITS; i++) {
        ret->split_ns[i] =
            median_at(p, offsetof(struct sample, split_ns) + i * sizeof(double), NULL);
    }
}

static double held_by_self(const struct causal_proc *p, const struct ltn_rank_window *r)
{
    double self = 0.0;
    double all = 0.0;
    for (int i = 0; i < LTN_PREEMPTORS; i++) {
        all += (double)r->preemptors[i].waited_ns;
        self += r->preemptors[i].tgid == p->pid ? (double)r->preemptors[i].waited_ns : 0.0;
    }
    return all > 0.0 ? self / all : 0.0;
}

/* Growth by group. Reads from disk that page faults made show as disk waits with major faults. */
static void attribute(struct loss *l)
{
    bool faulted = l->now.major_faults - l->usual.major_faults >= 1.0;
    for (int i = 0; i < LTN_SPLITS; i++) {
        l->part_ns[i] = l->now.split_ns[i] - l->usual.split_ns[i];
        double grown = l->part_ns[i] > 0.0 ? l->part_ns[i] : 0.0;
        switch (i) {
        case LTN_SPLIT_RUN_QUEUE:
            l->group_ns[GROUP_CPU] += grown;
            break;
        case LTN_SPLIT_FAULT:
            l->group_ns[GROUP_FAULTS] += grown;
            break;
        case LTN_SPLIT_DISK:
            l->group_ns[faulted ? GROUP_FAULTS : GROUP_IO] += grown;
            break;
        case LTN_SPLIT_READ:
        case LTN_SPLIT_WRITE:
            l->group_ns[GROUP_IO] += grown;
            break;
        case LTN_SPLIT_ON_CPU:
            l->group_ns[GROUP_OWN] += grown;
            break;
        default:
            l->group_ns[GROUP_OTHERS] += grown;
            break;
        }
    }
    l->top = GROUP_CPU;
    for (int g = 0; g < GROUPS; g++) {
        l->top = l->group_ns[g] > l->group_ns[l->top] ? (enum group)g : l->top;
    }
    l->explained = l->group_ns[l->top] / l->total_ns;
    l->explained = l->explained > 1.0 ? 1.0 : l->explained;
}

/* Without a usual, or beside one that was bad from the start: what is wrong in itself. */
static bool is_wrong_in_itself(const struct causal_proc *p, const struct ltn_rank_window *r,
                               struct loss *l)
{
    double queued = l->now.split_ns[LTN_SPLIT_RUN_QUEUE];
    double faulted = l->now.split_ns[LTN_SPLIT_FAULT] +
                     (l->now.major_faults >= 1.0 ? l->now.split_ns[LTN_SPLIT_DISK] : 0.0);
    bool queue_bad = queued > FACT_SHARE * l->now.host_ns && held_by_self(p, r) < SELF_HELD &&
                     r->preemptors[0].waited_ns > 0;
    bool faults_bad = l->now.major_faults >= 1.0 && faulted > FACT_SHARE * l->now.host_ns;
    if (!queue_bad && !faults_bad) {
        return false;
    }
    l->usual = l->now;
    if (queue_bad) {
        l->usual.split_ns[LTN_SPLIT_RUN_QUEUE] = 0.0;
    } else {
        l->usual.major_faults = 0.0;
        l->usual.split_ns[LTN_SPLIT_FAULT] = 0.0;
        l->usual.split_ns[LTN_SPLIT_DISK] = 0.0;
    }
    l->total_ns = queue_bad ? queued : faulted;
    l->usual.host_ns = l->now.host_ns - l->total_ns;
    return true;
}

/* True when the window lost time worth speaking of. */
static bool judge(const struct ltn_causal *c, const struct causal_proc *p,
                  const struct ltn_rank_window *r, double window_ns, struct loss *l)
{
    double mad = 0.0;
    double excess = c->opts.excess > 0.0 ? c->opts.excess : EXCESS_DEFAULT;
    l->now = sample_of(r);
    bool bad = false;
    if (usual_count(p) >= BASELINE_MIN) {
        usual_of(p, &l->usual, &mad);
        l->total_ns = l->now.host_ns - l->usual.host_ns;
        bad = l->total_ns > excess * l->usual.host_ns && l->total_ns > EXCESS_MIN_NS &&
              l->total_ns > EXCESS_SIGMAS * LTN_MAD_TO_SIGMA * mad;
    }
    if (!bad && !is_wrong_in_itself(p, r, l)) {
        return false;
    }
    l->share = l->total_ns * r->steps / window_ns;
    if (l->total_ns <= 0.0 || l->share < LOSS_MIN) {
        return false;
    }
    attribute(l);
    return true;
}

static void put_evidence(struct ltn_buf *b, const struct causal_proc *p, const struct loss *l,
                         const struct ltn_window *w, const struct ltn_rank_window *r)
{
    struct ltn_json j;
    ltn_json_init(&j, b);
    ltn_json_open_object(&j);
    ltn_json_kv_time(&j, "window_start", "window_start_ns", w->start_ns);
    ltn_json_kv_time(&j, "window_end", "window_end_ns", w->end_ns);
    ltn_json_kv_f64(&j, "steps", r->steps);
    ltn_json_kv_u64(&j, "tid", r->tid);
    ltn_json_kv_u64(&j, "host_ns", (uint64_t)l->now.host_ns);
    ltn_json_kv_u64(&j, "usual_host_ns", (uint64_t)(l->usual.host_ns > 0 ? l->usual.host_ns : 0));
    ltn_json_kv_u64(&j, "excess_ns", (uint64_t)l->total_ns);
    ltn_json_kv_f64(&j, "lost_share", l->share);
    ltn_json_kv_f64(&j, "largest_part_share", l->explained);
    ltn_causal_put_split(&j, "split_ns", l->now.split_ns);
    ltn_causal_put_split(&j, "usual_split_ns", l->usual.split_ns);
    ltn_causal_put_split(&j, "excess_split_ns", l->part_ns);
    ltn_json_kv_f64(&j, "major_faults", l->now.major_faults);
    ltn_json_kv_f64(&j, "minor_faults", l->now.minor_faults);
    if (w->pressure_memory >= 0.0) {
        ltn_json_kv_f64(&j, "pressure_memory", w->pressure_memory);
        ltn_json_kv_f64(&j, "pressure_io", w->pressure_io);
    }
    ltn_json_key(&j, "preemptors");
    ltn_json_open_array(&j);
    for (int i = 0; i < LTN_PREEMPTORS && r->preemptors[i].waited_ns > 0; i++) {
        ltn_json_open_object(&j);
        ltn_json_kv_str(&j, "comm", r->preemptors[i].comm);
        ltn_json_kv_u64(&j, "pid", r->preemptors[i].tgid);
        ltn_json_kv_u64(&j, "tid", r->preemptors[i].tid);
        ltn_json_kv_u64(&j, "cgroup_id", r->preemptors[i].cgroup_id);
        if (r->preemptors[i].cgroup != NULL) {
            ltn_json_kv_str(&j, "cgroup", r->preemptors[i].cgroup);
        }
        ltn_json_kv_u64(&j, "waited_ns", r->preemptors[i].waited_ns);
        ltn_json_close_object(&j);
    }
    ltn_json_close_array(&j);
    if (p->slow_queued_ns > 0) {
        ltn_json_kv_str(&j, "worst_call", ltn_causal_op_name(p->slow.op));
        ltn_json_kv_u64(&j, "worst_call_ns", p->slow.duration_ns);
        ltn_json_kv_u64(&j, "worst_call_run_queue_ns", p->slow_queued_ns);
    }
    ltn_json_close_object(&j);
}

/* The part that grew most within a group, in words. */
static const char *io_words(const struct loss *l)
{
    if (l->part_ns[LTN_SPLIT_DISK] >= l->part_ns[LTN_SPLIT_READ] &&
        l->part_ns[LTN_SPLIT_DISK] >= l->part_ns[LTN_SPLIT_WRITE]) {
        return "waiting for the disk (block I/O, fsync)";
    }
    return l->part_ns[LTN_SPLIT_READ] >= l->part_ns[LTN_SPLIT_WRITE]
               ? "waiting in read (pipe, socket or file)"
               : "waiting in write (pipe, socket or file)";
}

static double median_of_op(const struct ltn_proc_window *pw, unsigned op)
{
    for (size_t i = 0; i < pw->op_count; i++) {
        if (pw->ops[i].op == op && pw->ops[i].hist_total != NULL) {
            return ltn_khist_quantile_ns(pw->ops[i].hist_total, LTN_HIST_BUCKETS, 0.5);
        }
    }
    return 0.0;
}

/* "cudaStreamSynchronize took 142 ms: 17 ms usual, 118 ms ..." when one call shows it all. */
static bool title_of_call(char *out, size_t size, const struct causal_proc *p,
                          const struct ltn_proc_window *pw, const char *what)
{
    char took[DURATION_BYTES];
    char usual[DURATION_BYTES];
    char queued[DURATION_BYTES];
    double median = median_of_op(pw, p->slow.op);
    double more = (double)p->slow.duration_ns - median;
    if (p->slow_queued_ns == 0 || median <= 0.0 || more < 1e6 ||
        (double)p->slow_queued_ns < LTN_CAUSAL_EXPLAINED * more) {
        return false;
    }
    (void)snprintf(out, size, "%s took %s: %s usual, %s %s", ltn_causal_op_name(p->slow.op),
                   ltn_causal_duration(took, (double)p->slow.duration_ns),
                   ltn_causal_duration(usual, median),
                   ltn_causal_duration(queued, (double)p->slow_queued_ns), what);
    return true;
}

static void title_of_step(char *out, size_t size, const struct causal_proc *p, const struct loss *l,
                          const struct ltn_proc_window *pw, const char *what, double part_ns)
{
    char who[WHO_BYTES];
    char took[DURATION_BYTES];
    char usual[DURATION_BYTES];
    char part[DURATION_BYTES];
    (void)snprintf(out, size, "%s: %s took %s: %s usual, %s %s", ltn_causal_who(who, p),
                   pw->is_rank ? "host work of a step" : "host work between waits",
                   ltn_causal_duration(took, l->now.host_ns),
                   ltn_causal_duration(usual, l->usual.host_ns > 0 ? l->usual.host_ns : 0),
                   ltn_causal_duration(part, part_ns), what);
}

static enum ltn_causal_severity severity_of(double share)
{
    return share >= 0.4 ? LTN_CAUSAL_HIGH : share >= 0.1 ? LTN_CAUSAL_MEDIUM : LTN_CAUSAL_LOW;
}

/* Who held the CPU is part of what the incident is about: two culprits are two incidents. */
static uint64_t detail_of(const char *comm)
{
    uint64_t halves[2] = {0};
    memcpy(halves, comm, strnlen(comm, sizeof(halves)));
    return halves[0] * 31 + halves[1];
}

/* Who held the CPU for most of the wait, own threads left out; the share that this name held. */
static const char *holder(const struct causal_proc *p, const struct loss *l,
                          const struct ltn_rank_window *r, double *ret_share)
{
    const char *name = NULL;
    double most = 0.0;
    double all = 0.0;
    for (int i = 0; i < LTN_PREEMPTORS; i++) {
        const struct ltn_preemptor *by = &r->preemptors[i];
        double held = 0.0;
        all += (double)by->waited_ns;
        for (int k = 0; k < LTN_PREEMPTORS; k++) {
            bool same = strncmp(by->comm, r->preemptors[k].comm, LTN_COMM_BYTES) == 0;
            held +=
                same && r->preemptors[k].tgid != p->pid ? (double)r->preemptors[k].waited_ns : 0.0;
        }
        if (held > most) {
            most = held;
            name = by->comm;
        }
    }
    double queued = l->now.split_ns[LTN_SPLIT_RUN_QUEUE] * r->steps;
    all = all > queued ? all : queued;
    *ret_share = all > 0.0 ? most / all : 0.0;
    return name;
}

/* A process is the named cause when the wait was for it; else it is only mentioned. */
static void name_cpu(const struct causal_proc *p, const struct loss *l,
                     const struct ltn_rank_window *r, char *what, size_t what_size,
                     struct finding *f, char *cause, size_t cause_size)
{
    double share = 0.0;
    const char *name = holder(p, l, r, &share);
    if (held_by_self(p, r) >= SELF_HELD) {
        (void)snprintf(what, what_size, "waiting for a CPU that its own threads held");
        (void)snprintf(cause, cause_size, "CPU held by its own threads");
    } else if (name == NULL) {
        (void)snprintf(what, what_size, "waiting for a CPU, held by whom is not known");
        (void)snprintf(cause, cause_size, "waiting for a CPU");
    } else if (share * l->explained >= LTN_CAUSAL_EXPLAINED) {
        f->share = share * l->explained;
        (void)snprintf(what, what_size, "waiting for a CPU that `%s` held", name);
        (void)snprintf(cause, cause_size, "CPU held by %s", name);
        f->detail = detail_of(name);
    } else {
        (void)snprintf(what, what_size,
                       "waiting for a CPU that several processes held, `%s` %.0f %% of it", name,
                       share * 100.0);
        (void)snprintf(cause, cause_size, "CPU held by several processes");
        f->detail = 1;
    }
}

/* Sets kind, cause and title. False: nothing to be said of this process. */
static bool name_cause(const struct causal_proc *p, const struct loss *l,
                       const struct ltn_window *w, const struct ltn_proc_window *pw,
                       struct finding *f, char *title, size_t title_size, char *cause,
                       size_t cause_size)
{
    char what[112];
    double part = l->group_ns[l->top];
    bool named = l->explained >= LTN_CAUSAL_EXPLAINED;
    f->share = l->explained;
    f->severity = severity_of(l->share);
    if (named && l->top == GROUP_CPU) {
        f->kind = LTN_CAUSAL_CPU;
        name_cpu(p, l, &pw->host, what, sizeof(what), f, cause, cause_size);
        if (title_of_call(title, title_size, p, pw, what)) {
            return true;
        }
    } else if (named && l->top == GROUP_FAULTS) {
        bool pressed = w->pressure_memory >= 0.05;
        f->kind = LTN_CAUSAL_FAULTS;
        (void)snprintf(what, sizeof(what), "in page faults (%.0f from disk)%s", l->now.major_faults,
                       pressed ? ", memory is short" : "");
        (void)snprintf(cause, cause_size, "page faults%s", pressed ? ", memory pressure" : "");
    } else if (named && l->top == GROUP_IO) {
        f->kind = LTN_CAUSAL_IO;
        (void)snprintf(what, sizeof(what), "%s", io_words(l));
        (void)snprintf(cause, cause_size, "%s", io_words(l));
    } else if (!pw->is_rank) {
        return false; /* without steps, another mix of calls looks the same */
    } else {
        static const char *const words[GROUPS] = {"waiting for a CPU", "in page faults",
                                                  "waiting for I/O", "of own work on the CPU",
                                                  "asleep"};
        f->kind = LTN_CAUSAL_UNEXPLAINED;
        (void)snprintf(what, sizeof(what), "%s (unexplained)", words[l->top]);
    }
    title_of_step(title, title_size, p, l, pw, what, part);
    return true;
}

static void push_usual(struct causal_proc *p, const struct sample *s)
{
    p->usual[p->usual_n++ % BASELINE_WINDOWS] = *s;
    if (p->usual_n >= 2 * BASELINE_WINDOWS) {
        p->usual_n -= BASELINE_WINDOWS;
    }
}

void ltn_causal_host(struct ltn_causal *c, struct causal_proc *p, const struct ltn_window *w,
                     const struct ltn_proc_window *pw)
{
    struct loss l = {0};
    double window_ns = (double)(w->end_ns - w->start_ns);
    if (!pw->has_host || pw->host.steps <= 0.0 || window_ns <= 0.0) {
        ltn_inc_hold(c, p);
        return;
    }
    if (!judge(c, p, &pw->host, window_ns, &l)) {
        p->streak = 0;
        struct sample now = sample_of(&pw->host);
        push_usual(p, &now);
        return;
    }
    if (usual_count(p) < BASELINE_MIN) {
        push_usual(p, &l.usual); /* what it would have been */
    }
    p->streak++;
    if (p->streak < PERSIST) {
        return;
    }
    char title[LTN_CAUSAL_TITLE_BYTES] = "";
    char cause[LTN_CAUSAL_CAUSE_BYTES] = "";
    struct finding f = {.title = title, .cause = cause, .count = 1, .quiet = QUIET};
    struct ltn_buf evidence;
    ltn_buf_init(&evidence, EVIDENCE_BYTES);
    put_evidence(&evidence, p, &l, w, &pw->host);
    f.evidence = &evidence;
    bool told = name_cause(p, &l, w, pw, &f, title, sizeof(title), cause, sizeof(cause));
    if (told) {
        ltn_inc_found(c, p, w->end_ns, &f);
    }
    if ((!told || f.kind == LTN_CAUSAL_UNEXPLAINED) && p->streak >= ADOPT) {
        p->usual_n = 0;
        p->streak = 0;
    }
    ltn_buf_done(&evidence);
}
