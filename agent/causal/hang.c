/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives that never end. Victims sit in a blocking call; the rank that has not entered the
 * operation is behind in the communicator's sequence. A rank that is busy (CPU, files, calls) may
 * be writing a checkpoint or compiling: it gets ten times the patience.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "causal/internal.h"

#define HANG_NS           (30 * LTN_NS_PER_S)
#define STEP_FACTOR       10 /* longer than so many usual steps */
#define BUSY_FACTOR       10
#define NO_CULPRIT_FACTOR 4
#define QUIET             2
#define VICTIMS_MAX       64
#define COMMS_MAX         32

struct group {
    uint64_t comm_id;
    uint64_t newest; /* sequence of the one that is furthest */
    uint64_t oldest;
    unsigned members;
    unsigned waiting;
    int32_t ranks;
    uint64_t since_ns;
    const struct ltn_proc_window *behind; /* not waiting, and behind */
    uint64_t behind_sequence;
    int32_t behind_rank;
    const struct ltn_proc_window *first_victim;
    uint16_t op;
};

static const struct ltn_stuck_call *oldest_wait(const struct ltn_proc_window *pw)
{
    const struct ltn_stuck_call *oldest = NULL;
    for (size_t i = 0; i < pw->stuck_count; i++) {
        const struct ltn_op *op = ltn_op_get(pw->stuck[i].op);
        bool waits = op != NULL && (op->op_class == LTN_CLASS_COLLECTIVE ||
                                    (LTN_COOKIE_FLAGS(op->cookie) & LTN_OP_BLOCKING) != 0);
        if (waits && (oldest == NULL || pw->stuck[i].since_ns < oldest->since_ns)) {
            oldest = &pw->stuck[i];
        }
    }
    return oldest;
}

static uint64_t patience_ns(const struct ltn_causal *c, const struct causal_proc *p)
{
    uint64_t least = c->opts.hang_ns != 0 ? c->opts.hang_ns : HANG_NS;
    double steps = p != NULL ? STEP_FACTOR * ltn_causal_usual_step_ns(p) : 0.0;
    return (double)least > steps ? least : (uint64_t)steps;
}

static bool is_victim(const struct ltn_causal *c, const struct ltn_window *w,
                      const struct ltn_proc_window *pw, uint64_t *ret_since)
{
    const struct ltn_stuck_call *call = oldest_wait(pw);
    if (call == NULL || call->since_ns >= w->end_ns || pw->ended) {
        return false;
    }
    *ret_since = call->since_ns;
    return w->end_ns - call->since_ns >= patience_ns(c, ltn_causal_find(c, pw->pid));
}

static const struct ltn_comm_window *member_of(const struct ltn_proc_window *pw, uint64_t comm_id)
{
    for (size_t i = 0; i < pw->comm_count; i++) {
        if (pw->comms[i].comm_id == comm_id) {
            return &pw->comms[i];
        }
    }
    return NULL;
}

/* Who of this node is where in a communicator. */
static void look(const struct ltn_causal *c, const struct ltn_window *w, struct group *g)
{
    g->oldest = UINT64_MAX;
    g->since_ns = UINT64_MAX;
    for (size_t i = 0; i < w->proc_count; i++) {
        const struct ltn_proc_window *pw = &w->procs[i];
        const struct ltn_comm_window *m = member_of(pw, g->comm_id);
        uint64_t since = 0;
        if (m == NULL) {
            continue;
        }
        g->members++;
        g->ranks = m->ranks;
        g->newest = m->sequence_total > g->newest ? m->sequence_total : g->newest;
        if (is_victim(c, w, pw, &since)) {
            g->waiting++;
            if (since < g->since_ns) {
                g->since_ns = since;
                g->first_victim = pw;
                g->op = oldest_wait(pw)->op;
            }
        } else if (m->sequence_total < g->oldest) {
            g->oldest = m->sequence_total;
            g->behind = pw;
            g->behind_sequence = m->sequence_total;
            g->behind_rank = m->rank;
        }
    }
    if (g->behind != NULL && g->behind_sequence >= g->newest) {
        g->behind = NULL;
    }
}

static const struct ended_rank *ended_member(const struct ltn_causal *c, uint64_t comm_id)
{
    unsigned n = c->ended_n < ENDED_RANKS ? c->ended_n : ENDED_RANKS;
    for (unsigned i = 0; i < n; i++) {
        if (c->ended[i].comm_id == comm_id) {
            return &c->ended[i];
        }
    }
    return NULL;
}

static void put_evidence(struct ltn_buf *b, const struct ltn_window *w, const struct group *g)
{
    struct ltn_json j;
    char id[20];
    (void)snprintf(id, sizeof(id), "%016" PRIx64, g->comm_id);
    ltn_json_init(&j, b);
    ltn_json_open_object(&j);
    ltn_json_kv_str(&j, "comm_id", id);
    ltn_json_kv_i64(&j, "ranks", g->ranks);
    ltn_json_kv_u64(&j, "ranks_here", g->members);
    ltn_json_kv_u64(&j, "ranks_waiting_here", g->waiting);
    ltn_json_kv_time(&j, "waiting_since", "waiting_since_ns", g->since_ns);
    ltn_json_kv_str(&j, "waiting_in", ltn_causal_op_name(g->op));
    ltn_json_kv_u64(&j, "newest_operation", g->newest);
    ltn_json_key(&j, "members");
    ltn_json_open_array(&j);
    unsigned shown = 0;
    for (size_t i = 0; i < w->proc_count && shown < VICTIMS_MAX; i++) {
        const struct ltn_comm_window *m = member_of(&w->procs[i], g->comm_id);
        if (m == NULL) {
            continue;
        }
        const struct ltn_stuck_call *call = oldest_wait(&w->procs[i]);
        shown++;
        ltn_json_open_object(&j);
        ltn_json_kv_i64(&j, "rank", m->rank);
        ltn_json_kv_u64(&j, "pid", w->procs[i].pid);
        ltn_json_kv_u64(&j, "operation", m->sequence_total);
        ltn_json_kv_str(&j, "inside", call != NULL ? ltn_causal_op_name(call->op) : NULL);
        if (call != NULL && call->place[0] != '\0') {
            ltn_json_kv_str(&j, "at", call->place);
        }
        ltn_json_close_object(&j);
    }
    ltn_json_close_array(&j);
    ltn_json_close_object(&j);
}

/* What is said of a group, or false when it is not time yet. */
static bool word(const struct ltn_causal *c, const struct ltn_window *w, const struct group *g,
                 struct finding *f, char *title, size_t title_size, char *cause, size_t cause_size)
{
    char waited[DURATION_BYTES];
    uint64_t age = w->end_ns - g->since_ns;
    uint64_t patience = patience_ns(c, ltn_causal_find(c, g->first_victim->pid));
    const struct ended_rank *ended = ended_member(c, g->comm_id);
    ltn_causal_duration(waited, (double)age);
    f->severity = LTN_CAUSAL_CRITICAL;
    f->share = 1.0;
    if (g->behind != NULL) {
        const struct causal_proc *p = ltn_causal_find(c, g->behind->pid);
        bool idle = p != NULL && p->idle_windows >= 1;
        (void)snprintf(title, title_size,
                       "%u of %u ranks here wait for %s in operation %" PRIu64
                       " that rank %d (`%.15s`, %u) has not entered",
                       g->waiting, g->members, waited, g->newest, (int)g->behind_rank,
                       g->behind->comm, g->behind->pid);
        (void)snprintf(cause, cause_size, "rank %d has not entered the collective",
                       (int)g->behind_rank);
        return idle || age >= BUSY_FACTOR * patience;
    }
    if (ended != NULL) {
        (void)snprintf(title, title_size,
                       "%u ranks here wait for %s in operation %" PRIu64
                       "; rank %d (%u) of the communicator has ended",
                       g->waiting, waited, g->newest, (int)ended->rank, ended->pid);
        (void)snprintf(cause, cause_size, "rank %d has ended", (int)ended->rank);
        return true;
    }
    f->severity = LTN_CAUSAL_HIGH;
    f->share = -1.0;
    bool elsewhere = (int64_t)g->members < g->ranks;
    (void)snprintf(title, title_size,
                   elsewhere ? "%u of %u ranks here wait for %s in operation %" PRIu64
                               ": whom they wait for is not on this node"
                             : "all %u of %u ranks wait for %s in operation %" PRIu64
                               ": everybody has entered, nobody is behind",
                   g->waiting, g->members, waited, g->newest);
    return g->waiting == g->members && age >= NO_CULPRIT_FACTOR * patience;
}

static void judge(struct ltn_causal *c, const struct ltn_window *w, const struct group *g)
{
    char title[LTN_CAUSAL_TITLE_BYTES];
    char cause[LTN_CAUSAL_CAUSE_BYTES] = "";
    struct finding f = {.kind = LTN_CAUSAL_HANG,
                        .title = title,
                        .cause = cause,
                        .count = 1,
                        .quiet = QUIET,
                        .detail = g->comm_id};
    if (!word(c, w, g, &f, title, sizeof(title), cause, sizeof(cause))) {
        return;
    }
    struct ltn_buf evidence;
    ltn_buf_init(&evidence, 2 * EVIDENCE_BYTES - 512);
    put_evidence(&evidence, w, g);
    f.evidence = &evidence;
    const struct causal_proc *about = g->behind != NULL ? ltn_causal_find(c, g->behind->pid) : NULL;
    ltn_inc_found(c, about, w->end_ns, &f);
    ltn_buf_done(&evidence);
}

/* True when a rank that is behind only waits itself, in another communicator. */
static bool waits_too(const struct ltn_causal *c, const struct ltn_window *w, const struct group *g)
{
    uint64_t since;
    return g->behind != NULL && is_victim(c, w, g->behind, &since);
}

void ltn_causal_hangs(struct ltn_causal *c, const struct ltn_window *w)
{
    struct group groups[COMMS_MAX];
    size_t n = 0;
    unsigned victims = 0;
    for (size_t i = 0; i < w->proc_count && victims < VICTIMS_MAX; i++) {
        const struct ltn_proc_window *pw = &w->procs[i];
        uint64_t since;
        if (pw->comm_count == 0 || !is_victim(c, w, pw, &since)) {
            continue;
        }
        victims++;
        for (size_t k = 0; k < pw->comm_count && n < COMMS_MAX; k++) {
            bool known = pw->comms[k].comm_id == 0 || pw->comms[k].sequence_total == 0;
            for (size_t g = 0; g < n && !known; g++) {
                known = groups[g].comm_id == pw->comms[k].comm_id;
            }
            if (!known) {
                groups[n] = (struct group){.comm_id = pw->comms[k].comm_id};
                look(c, w, &groups[n++]);
            }
        }
    }
    /* Where somebody is behind, that is the answer; the other groups of the victims only wait. */
    bool culprit = false;
    for (size_t g = 0; g < n; g++) {
        culprit = culprit || (groups[g].behind != NULL && !waits_too(c, w, &groups[g]));
    }
    for (size_t g = 0; g < n; g++) {
        bool is_root = groups[g].behind != NULL && !waits_too(c, w, &groups[g]);
        if (groups[g].first_victim != NULL && (is_root || (!culprit && groups[g].behind == NULL))) {
            judge(c, w, &groups[g]);
        }
    }
}

void ltn_causal_note_ended(struct ltn_causal *c, const struct ltn_proc_window *pw, uint64_t time_ns)
{
    for (size_t i = 0; i < pw->comm_count; i++) {
        c->ended[c->ended_n++ % ENDED_RANKS] = (struct ended_rank){.comm_id = pw->comms[i].comm_id,
                                                                   .pid = pw->pid,
                                                                   .rank = pw->comms[i].rank,
                                                                   .time_ns = time_ns};
        if (c->ended_n >= 2 * ENDED_RANKS) {
            c->ended_n -= ENDED_RANKS;
        }
    }
}
