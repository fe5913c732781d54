/* SPDX-License-Identifier: Apache-2.0 */
/* Call records one by one: failures with the calls before them, and what a start took. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "causal/internal.h"

#define ERROR_QUIET      6
#define COLD_MIN_NS      500e6
#define COLD_MAX_NS      (300 * LTN_NS_PER_S) /* a start that takes longer is another matter */
#define START_ERROR_NS   LTN_NS_PER_S /* a process may have started that much later than it says */
#define RESULT_MEMORY    2
#define RESULT_NOT_READY 600
#define RESULT_UNLOADING 4   /* the program ends */
#define RESULT_PEER_ON   704 /* peer access is on already */

/* Failures that programs live with. */
static bool is_harmless(const struct ltn_op *op, int32_t result)
{
    if (op == NULL || result == 0) {
        return true;
    }
    if (op->source == LTN_OP_SOURCE_NCCL) {
        return result == 7; /* in progress */
    }
    return result == RESULT_NOT_READY || result == RESULT_UNLOADING || result == RESULT_PEER_ON;
}

static void note_error(struct causal_proc *p, const struct ltn_call *call)
{
    struct first_error *e = &p->error;
    if (e->count++ > 0) {
        return; /* the first one is what the others come from */
    }
    e->op = call->op;
    e->result = call->result;
    e->time_ns = call->time_ns;
    e->bytes = call->bytes;
    uint64_t n = p->recent_n < RECENT_CALLS ? p->recent_n : RECENT_CALLS;
    e->before_n = 0;
    for (uint64_t i = p->recent_n - n; i < p->recent_n; i++) {
        e->before[e->before_n++] = p->recent[i % RECENT_CALLS];
    }
}

static void note_cold(struct causal_proc *p, const struct ltn_op *op, const struct ltn_call *call)
{
    struct cold_track *t = &p->cold;
    if (t->done || t->ready_ns != 0) {
        return;
    }
    if (t->first_ns == 0) {
        t->first_ns = call->time_ns;
    }
    if (!t->seen[call->op]) {
        t->seen[call->op] = true;
        t->calls_ns += call->duration_ns;
        if (call->duration_ns > t->worst_ns) {
            t->worst_ns = call->duration_ns;
            t->worst_op = call->op;
        }
    }
    if (op->op_class == LTN_CLASS_SYNC) {
        t->ready_ns = call->time_ns + call->duration_ns;
    }
}

void ltn_causal_note_call(struct causal_proc *p, const struct ltn_call *call)
{
    const struct ltn_op *op = ltn_op_get(call->op);
    if (op == NULL || (call->flags & LTN_CALL_NESTED) != 0) {
        return;
    }
    if ((call->flags & LTN_CALL_FAILED) != 0 && !is_harmless(op, call->result)) {
        note_error(p, call);
    }
    note_cold(p, op, call);
    ltn_causal_note_alloc(p, op, call);
    if (op->op_class == LTN_CLASS_SYNC && call->run_queue_ns > p->slow_queued_ns) {
        p->slow_queued_ns = call->run_queue_ns;
        p->slow = (struct recent_call){
            .time_ns = call->time_ns, .duration_ns = call->duration_ns, .op = call->op};
    }
    p->recent[p->recent_n++ % RECENT_CALLS] = (struct recent_call){.time_ns = call->time_ns,
                                                                   .duration_ns = call->duration_ns,
                                                                   .op = call->op,
                                                                   .result = call->result};
}

static void put_calls(struct ltn_json *j, const struct first_error *e)
{
    ltn_json_key(j, "calls_before");
    ltn_json_open_array(j);
    for (size_t i = 0; i < e->before_n; i++) {
        const struct recent_call *r = &e->before[i];
        ltn_json_open_object(j);
        ltn_json_kv_str(j, "op", ltn_causal_op_name(r->op));
        ltn_json_kv_u64(j, "time_ns", r->time_ns);
        ltn_json_kv_u64(j, "duration_ns", r->duration_ns);
        ltn_json_kv_i64(j, "result", r->result);
        ltn_json_close_object(j);
    }
    ltn_json_close_array(j);
}

void ltn_causal_errors(struct ltn_causal *c, struct causal_proc *p, const struct ltn_window *w)
{
    struct first_error *e = &p->error;
    if (e->count == 0) {
        return;
    }
    const struct ltn_op *op = ltn_op_get(e->op);
    const char *name = ltn_causal_result_name(op, e->result);
    bool memory = op != NULL && op->source != LTN_OP_SOURCE_NCCL && e->result == RESULT_MEMORY;
    char title[LTN_CAUSAL_TITLE_BYTES];
    char cause[LTN_CAUSAL_CAUSE_BYTES];
    char who[WHO_BYTES];
    ltn_causal_who(who, p);
    if (memory && e->bytes > 0) {
        (void)snprintf(title, sizeof(title), "%s: device memory exhausted: %s of %.1f MiB failed",
                       who, ltn_causal_op_name(e->op), (double)e->bytes / 1048576.0);
    } else {
        (void)snprintf(title, sizeof(title), "%s: %s failed with %d (%s)", who,
                       ltn_causal_op_name(e->op), (int)e->result,
                       name != NULL ? name : "see the CUDA or NCCL manual");
    }
    (void)snprintf(cause, sizeof(cause), "%s: %d%s%s", ltn_causal_op_name(e->op), (int)e->result,
                   name != NULL ? " " : "", name != NULL ? name : "");
    struct ltn_buf evidence;
    struct ltn_json j;
    ltn_buf_init(&evidence, EVIDENCE_BYTES);
    ltn_json_init(&j, &evidence);
    ltn_json_open_object(&j);
    ltn_json_kv_time(&j, "failed_at", "failed_at_ns", e->time_ns);
    ltn_json_kv_str(&j, "op", ltn_causal_op_name(e->op));
    ltn_json_kv_i64(&j, "result", e->result);
    ltn_json_kv_u64(&j, "bytes", e->bytes);
    put_calls(&j, e);
    ltn_json_close_object(&j);
    const struct finding f = {
        .kind = memory ? LTN_CAUSAL_MEMORY : LTN_CAUSAL_ERROR,
        .severity = LTN_CAUSAL_HIGH,
        .title = title,
        .cause = cause,
        .share = 1.0,
        .count = e->count,
        .quiet = ERROR_QUIET,
        .evidence = &evidence,
    };
    ltn_inc_found(c, p, w->end_ns, &f);
    ltn_buf_done(&evidence);
    e->count = 0;
}

/* A worker of the same name that ended a moment ago: this one only takes its place. */
static bool is_restart(const struct ltn_causal *c, const struct causal_proc *p)
{
    for (size_t i = 0; i < LTN_ARRAY_SIZE(c->last_comms); i++) {
        if (p->comm[0] != '\0' && strncmp(c->last_comms[i], p->comm, LTN_COMM_BYTES) == 0) {
            return true;
        }
    }
    return false;
}

void ltn_causal_cold(struct ltn_causal *c, struct causal_proc *p, const struct ltn_window *w)
{
    struct cold_track *t = &p->cold;
    bool going_on = t->ready_ns == 0 && w->end_ns < t->first_ns + COLD_MAX_NS;
    if (t->done || t->first_ns == 0 || going_on) {
        return;
    }
    t->done = true;
    /* A process that was there before the agent had its first calls unseen. Its start is counted
     * from the boot, which is known to the whole second below. */
    if (t->ready_ns <= t->first_ns || p->start_ns + START_ERROR_NS <= c->first_window_ns ||
        is_restart(c, p)) {
        return;
    }
    double took = (double)(t->ready_ns - t->first_ns);
    if (took < COLD_MIN_NS || took > (double)COLD_MAX_NS) {
        return;
    }
    double share = (double)t->calls_ns / took;
    share = share > 1.0 ? 1.0 : share;
    bool named = share >= LTN_CAUSAL_EXPLAINED;
    char title[LTN_CAUSAL_TITLE_BYTES];
    char who[WHO_BYTES];
    char total[DURATION_BYTES];
    char first[DURATION_BYTES];
    char worst[DURATION_BYTES];
    (void)snprintf(
        title, sizeof(title),
        "%s: %s from its first GPU call to the first result: %s in first calls, %s of it "
        "in %s",
        ltn_causal_who(who, p), ltn_causal_duration(total, took),
        ltn_causal_duration(first, (double)t->calls_ns),
        ltn_causal_duration(worst, (double)t->worst_ns), ltn_causal_op_name(t->worst_op));
    struct ltn_buf evidence;
    struct ltn_json j;
    ltn_buf_init(&evidence, EVIDENCE_BYTES);
    ltn_json_init(&j, &evidence);
    ltn_json_open_object(&j);
    ltn_json_kv_time(&j, "first_call", "first_call_ns", t->first_ns);
    ltn_json_kv_u64(&j, "until_result_ns", (uint64_t)took);
    ltn_json_kv_u64(&j, "first_calls_ns", t->calls_ns);
    ltn_json_kv_str(&j, "worst_op", ltn_causal_op_name(t->worst_op));
    ltn_json_kv_u64(&j, "worst_op_ns", t->worst_ns);
    ltn_json_close_object(&j);
    const struct finding f = {
        .kind = LTN_CAUSAL_COLD,
        .severity = LTN_CAUSAL_LOW,
        .title = title,
        .cause = named ? "first calls: context and module loading" : "",
        .share = share,
        .count = 1,
        .quiet = 1,
        .evidence = &evidence,
    };
    ltn_inc_found(c, p, w->end_ns, &f);
    ltn_buf_done(&evidence);
}
