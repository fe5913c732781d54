/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests of protected routes under overload. Those for which there is no room are refused at
 * their head, as far as refusing may go on; the others wait there without their body, for a second
 * at most. So every peer soon knows, and neither costs much. Loop thread.
 */
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "http/server-internals.h"

#define TURN_NS           (2 * LTN_NS_PER_MS)
#define OVERDUE_NS        (1 * LTN_NS_PER_S)
#define SMALL_BODY_BYTES  4096 /* asking for it would cost more than taking it */
#define MAX_DETAILS_BYTES 512
#define TEXT              "overloaded, try again later"

/* ---- the refusal, made once: it must cost little beside serving ---- */

static void add(struct ltn_refusal *o, const char *name, const char *value)
{
    o->fields[o->count++] = (struct ltn_http_field){name, value};
}

static int encode(struct ltn_buf *out, const struct ltn_buf *bytes)
{
    return ltn_base64_encode(out, (const uint8_t *)ltn_buf_str(bytes), bytes->len);
}

/* Clients read the hint in different places: both are filled. */
static int make_details(struct ltn_refusal *o, int status, uint32_t retry_ms)
{
    struct ltn_buf bytes;
    ltn_buf_init(&bytes, MAX_DETAILS_BYTES);
    int rc = ltn_rpc_status(&bytes, status, TEXT, retry_ms);
    if (rc == 0) {
        rc = encode(&o->details, &bytes);
    }
    ltn_buf_reset(&bytes);
    if (rc == 0) {
        rc = ltn_rpc_retry_info(&bytes, retry_ms);
    }
    if (rc == 0) {
        rc = encode(&o->retry, &bytes);
    }
    ltn_buf_done(&bytes);
    return rc;
}

static int make_refusal(struct ltn_refusal *o, uint32_t retry_ms)
{
    int status = ltn_err_grpc(LTN_ERR_BUSY);
    ltn_buf_init(&o->details, MAX_DETAILS_BYTES);
    ltn_buf_init(&o->retry, MAX_DETAILS_BYTES);
    (void)snprintf(o->status, sizeof(o->status), "%d", status);
    int rc = make_details(o, status, retry_ms);
    add(o, "content-type", "application/grpc");
    add(o, "grpc-status", o->status);
    add(o, "grpc-message", TEXT);
    add(o, "grpc-status-details-bin", ltn_buf_str(&o->details));
    add(o, "google.rpc.retryinfo-bin", ltn_buf_str(&o->retry));
    return rc;
}

int ltn_overload_init(struct ltn_overload *o, const struct ltn_http_conf *conf)
{
    ltn_load_init(&o->load, conf->protected_bytes, conf->refusals_per_s);
    TAILQ_INIT(&o->waiting);
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
        return;
    }
    LTN_COUNT(c->server, refused_load);
    ltn_request_enter(core);
    ltn_http_reply_error(rq, LTN_ERR_BUSY, TEXT, 0);
    ltn_request_leave();
}

/* ---- waiting ---- */

static void look(struct ltn_http_server *s, const struct ltn_http_request *rq)
{
    const struct ltn_http_route *r = &rq->route->r;
    uint64_t loop_ns = ltn_loop_rested_ns(s->loop), own_ns = r->rested_ns(r->arg, rq);
    ltn_load_look(&s->overload.load, ltn_loop_now_ns(s->loop), loop_ns < own_ns ? loop_ns : own_ns);
}

static void let_in(struct ltn_http_server *s, struct ltn_http_request *rq)
{
    rq->counted = true;
    ltn_load_begin(&s->overload.load);
}

static bool may_refuse(struct ltn_http_server *s)
{
    return ltn_load_may_refuse(&s->overload.load, ltn_loop_now_ns(s->loop));
}

static void on_turn(void *arg);

static void plan_turn(struct ltn_http_server *s)
{
    struct ltn_overload *o = &s->overload;
    uint64_t due_ns = ltn_loop_now_ns(s->loop) + TURN_NS;
    if (!TAILQ_EMPTY(&o->waiting) && o->turn.slot == 0) {
        /* Without memory for it: the next request that comes plans one. */
        (void)!ltn_loop_timer_at(s->loop, &o->turn, due_ns, on_turn, s);
    }
}

/* Whether the first in line has waited too long to be left without an answer. */
static bool is_overdue(const struct ltn_http_server *s)
{
    const struct ltn_http_request *first = TAILQ_FIRST(&s->overload.waiting);
    return first != NULL && ltn_loop_now_ns(s->loop) - first->started_ns > OVERDUE_NS;
}

/* Lets in those for which there is room, refuses those that waited too long. Room goes to the last
 * that came, which is answered soonest; in their order all would be answered late. */
static void on_turn(void *arg)
{
    struct ltn_http_server *s = arg;
    struct ltn_overload *o = &s->overload;
    struct ltn_http_request *rq = TAILQ_FIRST(&o->waiting);
    if (rq != NULL) {
        look(s, rq);
    }
    while ((rq = TAILQ_LAST(&o->waiting, ltn_waiting)) != NULL && ltn_load_has_room(&o->load)) {
        ltn_overload_forget(rq);
        let_in(s, rq);
        ltn_exchange_go_on(rq);
    }
    while (is_overdue(s) && may_refuse(s)) {
        refuse(TAILQ_FIRST(&o->waiting));
    }
    plan_turn(s);
}

static void hold_bodies(struct conn *c)
{
    if (c->h2 != NULL && c->server->overload.load.body_bytes > SMALL_BODY_BYTES) {
        ltn_h2_hold_bodies(c->h2);
    }
}

/* The short way of the common case: a call that would be refused at the end of its admission. */
bool ltn_overload_turns_away(struct conn *c, int32_t stream, const struct ltn_head *head)
{
    struct ltn_http_server *s = c->server;
    struct ltn_load *l = &s->overload.load;
    const struct route *route = NULL;
    char allow[64];
    if (c->h2 == NULL || !l->overloaded || ltn_load_has_room(l) || head->too_large ||
        head->target == NULL || strcmp(head->method, "POST") != 0) {
        return false;
    }
    const char *type = ltn_head_get(head, "content-type");
    if (type == NULL || !ltn_grpc_is_type(type) ||
        ltn_router_find(&s->router, head->target, LTN_HTTP_POST, true, &route, allow,
                        sizeof(allow)) != ROUTE_FOUND ||
        route->r.rested_ns == NULL || is_overdue(s) || !may_refuse(s)) {
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
    struct ltn_overload *o = &s->overload;
    if (rq->route->r.rested_ns == NULL) {
        return true;
    }
    look(s, rq);
    bool room = ltn_load_has_room(&o->load);
    if (!room || o->load.overloaded) {
        hold_bodies(c);
    }
    if (room) {
        let_in(s, rq);
        return true;
    }
    if (!is_overdue(s) && may_refuse(s)) {
        refuse(rq);
        return false;
    }
    rq->waits = true;
    TAILQ_INSERT_TAIL(&o->waiting, rq, waiting);
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
        TAILQ_REMOVE(&rq->conn->server->overload.waiting, rq, waiting);
    }
}
