/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that decode, each with a queue of its own, so that a lane keeps its order. What may wait
 * is bounded by who puts. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#include "base/clock.h"
#include "ingest/request.h"

struct worker {
    pthread_t thread;
    bool started;
    pthread_mutex_t lock; /* what follows */
    pthread_cond_t wake;
    struct ltn_ingest_request *first, **last;
    bool ending, resting;
    uint64_t rested_ns; /* when it last rested */
    struct ltn_loop *loop;
    struct ltn_ingest_tools tools;
};

struct ltn_ingest_workers {
    unsigned n;
    struct worker workers[];
};

static void on_decoded(struct ltn_task *task)
{
    struct ltn_ingest_request *r =
        (struct ltn_ingest_request *)((char *)task - offsetof(struct ltn_ingest_request, task));
    ltn_ingest_decoded(r);
}

/* The next; NULL: the end. */
static struct ltn_ingest_request *wait_for_work(struct worker *w)
{
    (void)pthread_mutex_lock(&w->lock);
    while (w->first == NULL && !w->ending) {
        w->resting = true;
        (void)pthread_cond_wait(&w->wake, &w->lock);
        w->resting = false;
    }
    struct ltn_ingest_request *r = w->first;
    if (r != NULL)
        w->first = r->next;
    if (w->first == NULL)
        w->last = &w->first;
    (void)pthread_mutex_unlock(&w->lock);
    return r;
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    struct ltn_ingest_request *r;
    while ((r = wait_for_work(w)) != NULL) {
        ltn_ingest_decode(r, &w->tools);
        r->task.fn = on_decoded;
        ltn_loop_post(w->loop, &r->task);
    }
    return NULL;
}

static bool start(struct worker *w, struct ltn_loop *loop, struct ltn_series *series)
{
    sigset_t all, old;
    w->loop = loop;
    w->last = &w->first;
    w->rested_ns = ltn_now_mono_ns();
    (void)pthread_mutex_init(&w->lock, NULL);
    (void)pthread_cond_init(&w->wake, NULL);
    w->tools.decoder = ltn_decoder_new(series);
    if (w->tools.decoder == NULL)
        return false;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    w->started = pthread_create(&w->thread, NULL, worker_main, w) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    return w->started;
}

struct ltn_ingest_workers *ltn_ingest_workers_new(struct ltn_loop *loop, struct ltn_series *series,
                                                  unsigned n)
{
    struct ltn_ingest_workers *w = calloc(1, sizeof(*w) + n * sizeof(w->workers[0]));
    if (w == NULL)
        return NULL;
    for (unsigned i = 0; i < n; i++) {
        w->n++;
        if (!start(&w->workers[i], loop, series)) {
            ltn_ingest_workers_free(w);
            return NULL;
        }
    }
    return w;
}

void ltn_ingest_workers_free(struct ltn_ingest_workers *w)
{
    if (w == NULL)
        return;
    for (unsigned i = 0; i < w->n; i++) {
        struct worker *o = &w->workers[i];
        (void)pthread_mutex_lock(&o->lock);
        o->ending = true;
        (void)pthread_cond_signal(&o->wake);
        (void)pthread_mutex_unlock(&o->lock);
        if (o->started)
            (void)pthread_join(o->thread, NULL);
        ltn_decoder_free(o->tools.decoder);
        ltn_http_inflater_free(o->tools.inflater);
        (void)pthread_cond_destroy(&o->wake);
        (void)pthread_mutex_destroy(&o->lock);
    }
    free(w);
}

void ltn_ingest_workers_put(struct ltn_ingest_workers *w, struct ltn_ingest_request *r)
{
    struct worker *o = &w->workers[r->lane % w->n];
    r->next = NULL;
    (void)pthread_mutex_lock(&o->lock);
    bool was_empty = o->first == NULL;
    *o->last = r;
    o->last = &r->next;
    if (o->resting && was_empty)
        o->rested_ns = ltn_now_mono_ns();
    if (was_empty)
        (void)pthread_cond_signal(&o->wake);
    (void)pthread_mutex_unlock(&o->lock);
}

uint64_t ltn_ingest_workers_rested_ns(struct ltn_ingest_workers *w, uint32_t lane,
                                      unsigned *ret_worker)
{
    *ret_worker = lane % w->n;
    struct worker *o = &w->workers[*ret_worker];
    (void)pthread_mutex_lock(&o->lock);
    uint64_t ns = o->resting && o->first == NULL ? UINT64_MAX : o->rested_ns;
    (void)pthread_mutex_unlock(&o->lock);
    return ns;
}
