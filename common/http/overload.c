/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests of protected routes for which there is no room. Under overload they are refused at their
 * head, as far as refusing may go on; otherwise they wait there without their body, for two seconds
 * at most. So every peer soon knows, and neither costs much. Loop thread.
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "http/server-internals.h"

#define TURN_NS           (2 * LTN_NS_PER_MS)
#define OVERDUE_NS        (LTN_LOAD_BURST_MS * LTN_NS_PER_MS)
#define SMALL_BODY_BYTES  4096 /* asking for it would cost more than taking it */
#define MAX_DETAILS_BYTES 512
#define TEXT              "overloaded, try again later"

/* ---- the refusal, made once: it must cost little beside serving ---- */

static void add(struct ltn_refusal *o, const char *name, const char *value)
{
    o->fields[o->count++] = (struct ltn_http_field){name, value};
}

static int make_refusal(struct ltn_refusal *o, uint32_t retry_ms)
{
    int status = ltn_err_grpc(LTN_ERR_BUSY);
    ltn_buf_init(&o->details, MAX_DETAILS_BYTES);
    ltn_buf_init(&o->retry, MAX_DETAILS_BYTES);
    (void)snprintf(o->status, sizeof(o->status), "%d", status);
    int rc = ltn_grpc_hint(&o->details, &o->retry, status, TEXT, retry_ms);
    add(o, "content-type", "application/grpc");
    add(o, "grpc-status", o->status);
    add(o, "grpc-message", TEXT);
    add(o, "grpc-status-details-bin", ltn_buf_str(&o->details));
    add(o, "google.rpc.retryinfo-bin", ltn_buf_str(&o->retry));
    return rc;
}

int ltn_overload_init(struct ltn_overload *o, const struct ltn_http_conf *conf)
{
    ltn_load_total_init(&o->total, conf->protected_bytes, conf->refusals_per_s);
    for (size_t i = 0; i < LTN_HTTP_LANES; i++) {
        TAILQ_INIT(&o->lanes[i].waiting);
        o->lanes[i].load.burst_ns = conf->burst_ns;
    }
    return make_refusal(&o->refusal, (conf->retry_after_s > 0 ? conf->retry_after_s : 1) * 1000);
}

void ltn_overload_done(struct ltn_overload *o, struct ltn_loop *loop)
{
    ltn_loop_timer_stop(loop, &o->turn);
    ltn_buf_done(&o->refusal.details);
    ltn_buf_done(&o->refusal.retry);
}

static void refuse_grpc(struct conn *c, int32_t stream)
{
    const struct ltn_refusal *o = &c->server->overload.refusal;
    struct ltn_session_reply r = {.status = 200,
                                  .fields = o->fields,
                                  .field_count = o->count,
                                  .lasting = true,
                                  .no_length = true};
    LTN_COUNT(c->server, refused_load);
    if (ltn_h2_reply(c->h2, stream, &r) == 0) {
        LTN_COUNT(c->server, replies);
    } else {
        LTN_COUNT(c->server, replies_dropped);
    }
    ltn_server_conn_dirty(c);
}

static void refuse(struct ltn_http_request *rq)
{
    struct conn *c = rq->conn;
    struct core *core = rq->core;
    ltn_overload_forget(rq);
    if (rq->grpc) {
        int32_t stream = rq->stream;
        ltn_exchange_detach(rq);
        ltn_request_free(rq);
        refuse_grpc(c, stream);
        ltn_conn_relieved(c);
        return;
    }
    LTN_COUNT(c->server, refused_load);
    ltn_request_enter(core);
    ltn_http_reply_error(rq, LTN_ERR_BUSY, TEXT, 0);
    ltn_request_leave();
}

/* ---- waiting ---- */

/* The lane that the route has for the peer, which is looked at. */
static struct ltn_lane *lane_of(struct ltn_http_server *s, const struct ltn_http_route *r,
                                const char *peer)
{
    unsigned index = 0;
    uint64_t loop_ns = ltn_loop_rested_ns(s->loop), own_ns = r->rested_ns(r->arg, peer, &index);
    struct ltn_lane *lane = &s->overload.lanes[index % LTN_HTTP_LANES];
    ltn_load_look(&lane->load, ltn_loop_now_ns(s->loop), loop_ns < own_ns ? loop_ns : own_ns);
    return lane;
}

static bool has_room(const struct ltn_http_server *s, const struct ltn_lane *lane)
{
    return ltn_load_has_room(&lane->load) && ltn_load_total_has_room(&s->overload.total);
}

static bool may_refuse(struct ltn_http_server *s, struct ltn_lane *lane)
{
    if (!ltn_load_total_may_refuse(&s->overload.total, ltn_loop_now_ns(s->loop))) {
        return false;
    }
    lane->load.refused++;
    return true;
}

static void let_in(struct ltn_http_server *s, struct ltn_http_request *rq)
{
    struct ltn_load_total *t = &s->overload.total;
    ltn_load_let_in(&rq->lane->load);
    t->in_progress++;
    rq->charged_bytes = t->body_bytes + LTN_LOAD_OWN_BYTES;
    t->bytes += rq->charged_bytes;
}

/* Counts the request as so many bytes. */
static void charge(struct ltn_load_total *t, struct ltn_http_request *rq, size_t bytes)
{
    t->bytes = t->bytes - rq->charged_bytes + bytes;
    rq->charged_bytes = bytes;
}

void ltn_overload_over(struct ltn_http_request *rq)
{
    struct ltn_load_total *t = &rq->core->server->overload.total;
    if (rq->charged_bytes != 0) {
        ltn_load_over(&rq->lane->load, rq->state == RQ_HANDLER);
        charge(t, rq, 0);
        t->in_progress--;
    }
}

void ltn_overload_body(struct ltn_http_request *rq, bool whole)
{
    struct ltn_load_total *t = &rq->conn->server->overload.total;
    size_t bytes = (size_t)rq->wire_bytes + LTN_LOAD_OWN_BYTES;
    if (rq->charged_bytes != 0 && (whole || bytes > rq->charged_bytes)) {
        charge(t, rq, bytes);
    }
    if (rq->charged_bytes != 0 && whole) {
        ltn_load_total_body(t, (size_t)rq->wire_bytes);
    }
}

void ltn_overload_late(struct ltn_http_request *rq)
{
    if (rq->charged_bytes != 0) {
        charge(&rq->conn->server->overload.total, rq, (size_t)rq->wire_bytes + LTN_LOAD_OWN_BYTES);
    }
}

static void on_turn(void *arg);

static bool somebody_waits(const struct ltn_overload *o)
{
    size_t i = 0;
    while (i < LTN_HTTP_LANES && o->lanes[i].load.waiting == 0) {
        i++;
    }
    return i < LTN_HTTP_LANES;
}

static void plan_turn(struct ltn_http_server *s)
{
    struct ltn_overload *o = &s->overload;
    uint64_t due_ns = ltn_loop_now_ns(s->loop) + TURN_NS;
    if (o->turn.slot == 0 && somebody_waits(o)) {
        /* Without memory for it: the next request that comes plans one. */
        (void)!ltn_loop_timer_at(s->loop, &o->turn, due_ns, on_turn, s);
    }
}

/* Whether the first in line has waited too long to be left without an answer. */
static bool is_overdue(const struct ltn_http_server *s, const struct ltn_lane *lane)
{
    const struct ltn_http_request *first = TAILQ_FIRST(&lane->waiting);
    return first != NULL && ltn_loop_now_ns(s->loop) - first->started_ns > OVERDUE_NS;
}

/* Whether one that has just come may be refused: not for want of bytes in a burst, nor while others
 * have waited for their refusal. */
static bool may_refuse_newest(struct ltn_http_server *s, struct ltn_lane *lane)
{
    return lane->load.overloaded && !is_overdue(s, lane) && may_refuse(s, lane);
}

/* Lets in those for which there is room, as far as the turn goes: what came whole is handled right
 * there. Room goes to the last that came, which is answered soonest; in their order all would be
 * answered late. */
static void let_waiting_in(struct ltn_http_server *s, struct ltn_lane *lane)
{
    uint64_t until_ns = ltn_now_mono_ns() + TURN_NS;
    struct ltn_http_request *rq;
    while ((rq = TAILQ_LAST(&lane->waiting, ltn_waiting)) != NULL && has_room(s, lane) &&
           ltn_now_mono_ns() < until_ns) {
        ltn_overload_forget(rq);
        let_in(s, rq);
        ltn_exchange_go_on(rq);
    }
}

/* And refuses those that waited too long. */
static void serve_waiting(struct ltn_http_server *s, struct ltn_lane *lane)
{
    const struct ltn_http_request *first = TAILQ_FIRST(&lane->waiting);
    if (first == NULL) {
        return;
    }
    (void)lane_of(s, &first->route->r, first->peer);
    let_waiting_in(s, lane);
    while (is_overdue(s, lane) && may_refuse(s, lane)) {
        refuse(TAILQ_FIRST(&lane->waiting));
    }
}

static void on_turn(void *arg)
{
    struct ltn_http_server *s = arg;
    for (size_t i = 0; i < LTN_HTTP_LANES; i++) {
        serve_waiting(s, &s->overload.lanes[i]);
    }
    plan_turn(s);
}

/* ---- at the head ---- */

enum judgement { LET_IN, REFUSE, WAIT };

static enum judgement judge(struct ltn_http_server *s, struct ltn_lane *lane)
{
    if (has_room(s, lane)) {
        return LET_IN;
    }
    return may_refuse_newest(s, lane) ? REFUSE : WAIT;
}

static void hold_bodies(struct conn *c)
{
    if (c->h2 != NULL && c->server->overload.total.body_bytes > SMALL_BODY_BYTES) {
        ltn_h2_hold_bodies(c->h2);
    }
}

/* The protected route of a gRPC call, else NULL. */
static const struct ltn_http_route *route_of(struct ltn_http_server *s, const struct ltn_head *head)
{
    const struct route *route = NULL;
    char allow[64];
    const char *type = ltn_head_get(head, "content-type");
    if (head->too_large || head->target == NULL || head->method == NULL ||
        strcmp(head->method, "POST") != 0 || type == NULL || !ltn_grpc_is_type(type) ||
        ltn_router_find(&s->router, head->target, LTN_HTTP_POST, true, &route, allow,
                        sizeof(allow)) != ROUTE_FOUND) {
        return NULL;
    }
    return route->r.rested_ns != NULL ? &route->r : NULL;
}

bool ltn_overload_turns_away(struct conn *c, int32_t stream, const struct ltn_head *head)
{
    struct ltn_http_server *s = c->server;
    const struct ltn_http_route *r = c->holds ? route_of(s, head) : NULL;
    if (r == NULL) {
        return false;
    }
    struct ltn_lane *lane = lane_of(s, r, c->peer);
    if (judge(s, lane) != REFUSE) {
        return false;
    }
    LTN_COUNT(s, requests_grpc);
    hold_bodies(c);
    refuse_grpc(c, stream);
    return true;
}

bool ltn_overload_head(struct ltn_http_request *rq)
{
    struct conn *c = rq->conn;
    struct ltn_http_server *s = c->server;
    if (rq->route->r.rested_ns == NULL) {
        return true;
    }
    rq->lane = lane_of(s, &rq->route->r, rq->peer);
    enum judgement what = judge(s, rq->lane);
    c->holds = what != LET_IN || rq->lane->load.holds;
    if (c->holds) {
        hold_bodies(c);
    }
    if (what == LET_IN) {
        let_in(s, rq);
        return true;
    }
    if (what == REFUSE) {
        refuse(rq);
        return false;
    }
    rq->waits = true;
    TAILQ_INSERT_TAIL(&rq->lane->waiting, rq, waiting);
    rq->lane->load.waiting++;
    if (c->h2 != NULL) {
        ltn_h2_wait(c->h2, rq->stream);
    }
    plan_turn(s);
    return true;
}

void ltn_overload_forget(struct ltn_http_request *rq)
{
    if (rq->waits) {
        rq->waits = false;
        TAILQ_REMOVE(&rq->lane->waiting, rq, waiting);
        rq->lane->load.waiting--;
    }
}
