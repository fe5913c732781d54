/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Group commit of requests that only changed series. Their values are in the table of series
 * already, and every commit writes what changed in the table; so the requests wait, all together,
 * for one commit that begins after them. While it is on its way the next ones gather. Under load
 * commits are kept a millisecond, or some thousand values, apart: each has its price, and a
 * series that changed many times in between is written once.
 */
#include "base/clock.h"
#include "base/err.h"
#include "ingest/request.h"

#define APART_NS     (1 * LTN_NS_PER_MS)
#define APART_VALUES 8192u

static void kick(struct ltn_ingest_group *g);

void ltn_ingest_group_init(struct ltn_ingest_group *g, struct ltn_ingest *in, struct ltn_loop *loop,
                           struct ltn_store *store)
{
    *g = (struct ltn_ingest_group){.in = in, .loop = loop, .store = store};
    g->forming_end = &g->forming;
}

static void answer_all(struct ltn_ingest_request *r, int rc)
{
    while (r != NULL) {
        struct ltn_ingest_request *next = r->next;
        r->rc = rc;
        ltn_ingest_answer(r);
        r = next;
    }
}

/* Loop thread. */
static void on_committed(struct ltn_task *task)
{
    struct ltn_ingest_group *g =
        (struct ltn_ingest_group *)((char *)task - offsetof(struct ltn_ingest_group, task));
    struct ltn_ingest_request *r = g->flying;
    g->flying = NULL;
    g->busy = false;
    answer_all(r, g->rc);
    kick(g);
}

/* Writer thread. */
static void on_done(struct ltn_store_item *item, int rc)
{
    struct ltn_ingest_group *g = (struct ltn_ingest_group *)item;
    g->rc = rc;
    g->task.fn = on_committed;
    ltn_loop_post(g->loop, &g->task);
}

static void send(struct ltn_ingest_group *g, uint64_t now_ns)
{
    struct ltn_ingest_request *all = g->forming;
    g->forming = NULL;
    g->forming_end = &g->forming;
    g->forming_values = 0;
    g->item = (struct ltn_store_item){NULL, on_done};
    g->sent_ns = now_ns;
    int rc = ltn_store_put(g->store, &g->item, sizeof(*g));
    if (rc != 0) {
        answer_all(all, rc);
        return;
    }
    g->flying = all;
    g->busy = true;
}

static void on_timer(void *arg)
{
    kick(arg);
}

static void kick(struct ltn_ingest_group *g)
{
    if (g->busy || g->stopped || g->forming == NULL)
        return;
    uint64_t now = ltn_now_mono_ns();
    bool soon = now - g->sent_ns < APART_NS && g->forming_values < APART_VALUES;
    if (soon && (g->timer.slot != 0 ||
                 ltn_loop_timer_at(g->loop, &g->timer, g->sent_ns + APART_NS, on_timer, g) == 0))
        return;
    ltn_loop_timer_stop(g->loop, &g->timer);
    send(g, now);
}

void ltn_ingest_group_add(struct ltn_ingest_group *g, struct ltn_ingest_request *r)
{
    if (g->stopped) {
        r->rc = LTN_ERR_CLOSED;
        ltn_ingest_answer(r);
        return;
    }
    r->next = NULL;
    *g->forming_end = r;
    g->forming_end = &r->next;
    g->forming_values += r->result.samples;
    kick(g);
}

void ltn_ingest_group_stop(struct ltn_ingest_group *g)
{
    struct ltn_ingest_request *all = g->forming;
    ltn_loop_timer_stop(g->loop, &g->timer);
    g->stopped = true;
    g->forming = NULL;
    g->forming_end = &g->forming;
    answer_all(all, LTN_ERR_CLOSED);
}
