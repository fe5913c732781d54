/* SPDX-License-Identifier: Apache-2.0 */
#include "capture/procs.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/text.h"

void ltn_procs_init(struct ltn_procs *t, size_t max, const char *node)
{
    ltn_map_init(&t->by_tgid, max);
    t->node = node;
    t->refused = 0;
}

static void free_proc(void *arg)
{
    struct ltn_cap_proc *p = arg;
    for (unsigned i = 0; i < LTN_OP_COUNT; i++) {
        free(p->ops[i]);
    }
    free(p->threads);
    free(p->comms);
    free(p->preemptors);
    free(p);
}

void ltn_procs_done(struct ltn_procs *t)
{
    ltn_map_done(&t->by_tgid, free_proc);
}

struct ltn_cap_proc *ltn_procs_find(const struct ltn_procs *t, uint32_t tgid)
{
    return ltn_map_get_u64(&t->by_tgid, tgid);
}

void ltn_procs_identify(const struct ltn_procs *t, struct ltn_cap_proc *p)
{
    struct ltn_proc before = p->id;
    bool known = p->identified;
    p->identified = ltn_proc_read((pid_t)p->tgid, &p->id) == 0;
    if (!p->identified && known) {
        p->id = before;
        p->identified = true;
    }
    if (!p->identified) {
        p->id.pid = (pid_t)p->tgid;
        (void)memcpy(p->id.comm, "?", 2);
    }
    if (ltn_rank_read((pid_t)p->tgid, t->node, &p->rank) != 0 && !known) {
        ltn_rank_parse("", 0, t->node, &p->rank);
    }
}

void ltn_procs_told(struct ltn_cap_proc *p, const struct ltn_event_process *e)
{
    uint64_t start_ticks = ltn_proc_boottime_to_ticks(e->start_boottime_ns);
    if (e->start_boottime_ns == 0 || (p->identified && p->id.start_ticks != start_ticks)) {
        return;
    }
    p->id.start_ticks = start_ticks;
    p->id.start_unix_ns = ltn_proc_start_unix_ns(p->id.start_ticks);
    ltn_text_clean(p->id.comm, sizeof(p->id.comm), e->comm, strnlen(e->comm, sizeof(e->comm)));
    p->identified = true;
}

struct ltn_cap_proc *ltn_procs_get(struct ltn_procs *t, uint32_t tgid)
{
    struct ltn_cap_proc *p = ltn_procs_find(t, tgid);
    if (p != NULL) {
        return p;
    }
    p = calloc(1, sizeof(*p));
    if (p == NULL) {
        t->refused++;
        return NULL;
    }
    p->tgid = tgid;
    p->first_seen_ns = ltn_now_unix_ns();
    ltn_steps_init(&p->steps);
    ltn_procs_identify(t, p);
    if (ltn_map_put_u64(&t->by_tgid, tgid, p) != 0) {
        free_proc(p);
        t->refused++;
        return NULL;
    }
    return p;
}

void ltn_procs_drop(struct ltn_procs *t, uint32_t tgid)
{
    struct ltn_cap_proc *p = ltn_map_del_u64(&t->by_tgid, tgid);
    if (p != NULL) {
        free_proc(p);
    }
}

struct ltn_cap_proc *ltn_procs_next(const struct ltn_procs *t, size_t *pos)
{
    return ltn_map_next(&t->by_tgid, pos);
}

void ltn_procs_read_op(struct ltn_procs *t, const struct ltn_op_key *key,
                       const struct ltn_op_stats *now)
{
    struct ltn_cap_proc *p = key->op < LTN_OP_COUNT ? ltn_procs_get(t, key->tgid) : NULL;
    if (p == NULL) {
        return;
    }
    struct ltn_proc_op *op = p->ops[key->op];
    if (op == NULL) {
        op = calloc(1, sizeof(*op));
        if (op == NULL) {
            t->refused++;
            return;
        }
        p->ops[key->op] = op;
    }
    const struct ltn_op_stats *last = &op->last;
    op->delta.calls += now->calls - last->calls;
    op->delta.errors += now->errors - last->errors;
    op->delta.bytes += now->bytes - last->bytes;
    op->delta.duration_ns += now->duration_ns - last->duration_ns;
    op->delta.off_cpu_ns += now->off_cpu_ns - last->off_cpu_ns;
    op->delta.run_queue_ns += now->run_queue_ns - last->run_queue_ns;
    op->delta.replayed += now->replayed - last->replayed;
    op->delta.replayed_bytes += now->replayed_bytes - last->replayed_bytes;
    for (unsigned i = 0; i < LTN_HIST_BUCKETS; i++) {
        /* Both count modulo 2^32. The histogram may be a call ahead of the counters; it says itself
         * how many it has. */
        uint32_t more = now->hist[i] - (uint32_t)op->hist_total[i];
        op->hist[i] += more;
        op->hist_total[i] += more;
        op->delta.returns += more;
    }
    memcpy(&op->last, now, offsetof(struct ltn_op_stats, hist));
    op->touched = true;
}

/* Finds the entry whose first 32 or 64 bits say who it is, or appends a zeroed one. */
static void *slot(void **array, size_t *count, size_t size, size_t max,
                  bool (*is)(const void *entry, const void *key), const void *key)
{
    char *base = *array;
    for (size_t i = 0; i < *count; i++) {
        if (is(base + i * size, key)) {
            return base + i * size;
        }
    }
    if (*count == max) {
        return NULL;
    }
    if ((*count & (*count - 1)) ==
        0) { /* may be full at each power of two (after a loss it is not) */
        size_t room = *count == 0 ? 1 : *count * 2;
        base = realloc(*array, room * size);
        if (base == NULL) {
            return NULL;
        }
        *array = base;
    }
    void *entry = base + *count * size;
    memset(entry, 0, size);
    (*count)++;
    return entry;
}

static bool is_thread(const void *entry, const void *key)
{
    return ((const struct ltn_proc_thread *)entry)->tid == *(const uint32_t *)key;
}

/* By what it is, not by where: it has another key once it ended. */
static bool is_comm(const void *entry, const void *key)
{
    const struct ltn_comm_state *known = &((const struct ltn_proc_comm *)entry)->now;
    const struct ltn_comm_state *c = key;
    return known->comm_id == c->comm_id && known->rank == c->rank;
}

static bool is_preemptor(const void *entry, const void *key)
{
    const struct ltn_preemptor_key *a = &((const struct ltn_proc_preemptor *)entry)->key;
    const struct ltn_preemptor_key *b = key;
    return a->tid == b->tid && a->by_tgid == b->by_tgid;
}

void ltn_procs_read_thread(struct ltn_procs *t, const struct ltn_thread_stats *now)
{
    struct ltn_cap_proc *p = ltn_procs_get(t, now->tgid);
    if (p == NULL) {
        return;
    }
    void *array = p->threads;
    struct ltn_proc_thread *e =
        slot(&array, &p->thread_count, sizeof(*e), LTN_PROC_THREADS, is_thread, &now->tid);
    p->threads = array;
    if (e == NULL) {
        t->refused++;
        return;
    }
    e->tid = now->tid;
    e->seen = true;
    if (now->begin == now->end) {
        e->now = *now; /* else it is written this very moment: the next window has it */
    }
}

void ltn_procs_read_comm(struct ltn_procs *t, const struct ltn_comm_key *key,
                         const struct ltn_comm_state *now)
{
    struct ltn_cap_proc *p = ltn_procs_get(t, key->tgid);
    if (p == NULL) {
        return;
    }
    void *array = p->comms;
    struct ltn_proc_comm *e =
        slot(&array, &p->comm_count, sizeof(*e), LTN_PROC_COMMS, is_comm, now);
    p->comms = array;
    if (e == NULL) {
        t->refused++;
        return;
    }
    e->key = *key;
    e->seen = true;
    e->now = *now;
}

void ltn_procs_read_preemptor(struct ltn_procs *t, const struct ltn_preemptor_key *key,
                              const struct ltn_preemptor_stats *now)
{
    struct ltn_cap_proc *p = ltn_procs_find(t, key->tgid);
    if (p == NULL) {
        return;
    }
    void *array = p->preemptors;
    struct ltn_proc_preemptor *e =
        slot(&array, &p->preemptor_count, sizeof(*e), LTN_PROC_PREEMPTORS, is_preemptor, key);
    p->preemptors = array;
    if (e == NULL) {
        t->refused++;
        return;
    }
    if (now->waited_ns < e->before.waited_ns) {
        memset(&e->before, 0, sizeof(e->before)); /* the kernel's table let it go and began anew */
    }
    e->key = *key;
    e->seen = true;
    e->now = *now;
}

void ltn_procs_read_stuck(struct ltn_procs *t, uint32_t tid, const struct ltn_in_flight *now)
{
    struct ltn_cap_proc *p = ltn_procs_find(t, now->tgid);
    if (p == NULL || now->op >= LTN_OP_COUNT) {
        return;
    }
    struct ltn_stuck_call call = {
        .since_ns = ltn_mono_to_unix_ns(now->since_ns), .tid = tid, .op = (uint16_t)now->op};
    if (p->stuck_count < LTN_STUCK_CALLS) {
        p->stuck[p->stuck_count++] = call;
        return;
    }
    for (size_t i = 0; i < LTN_STUCK_CALLS; i++) {
        if (call.since_ns < p->stuck[i].since_ns) { /* the oldest ones matter */
            struct ltn_stuck_call newer = p->stuck[i];
            p->stuck[i] = call;
            call = newer;
        }
    }
}

static void turn_proc(struct ltn_cap_proc *p)
{
    p->stuck_count = 0;
    p->oom = false;
    for (unsigned i = 0; i < LTN_OP_COUNT; i++) {
        struct ltn_proc_op *op = p->ops[i];
        if (op == NULL) {
            continue;
        }
        op->touched = false;
        memset(&op->delta, 0, offsetof(struct ltn_op_stats, hist));
        memset(op->hist, 0, sizeof(op->hist));
    }
    size_t kept = 0;
    for (size_t i = 0; i < p->thread_count; i++) {
        if (p->threads[i].seen) {
            p->threads[kept] = p->threads[i];
            p->threads[kept].before = p->threads[kept].now;
            p->threads[kept++].seen = false;
        }
    }
    p->thread_count = kept;
    kept = 0;
    for (size_t i = 0; i < p->comm_count; i++) {
        if (p->comms[i].seen) {
            p->comms[kept] = p->comms[i];
            p->comms[kept].before = p->comms[kept].now;
            p->comms[kept++].seen = false;
        }
    }
    p->comm_count = kept;
    kept = 0;
    for (size_t i = 0; i < p->preemptor_count; i++) {
        if (p->preemptors[i].seen) {
            p->preemptors[kept] = p->preemptors[i];
            p->preemptors[kept].before = p->preemptors[kept].now;
            p->preemptors[kept++].seen = false;
        }
    }
    p->preemptor_count = kept;
}

void ltn_procs_turn(struct ltn_procs *t)
{
    size_t pos = 0;
    struct ltn_cap_proc *p;
    while ((p = ltn_procs_next(t, &pos)) != NULL) {
        if (ltn_procs_is_known(p)) {
            turn_proc(p);
        }
        p->windows += p->windows < LTN_PROC_PATIENCE;
    }
}
