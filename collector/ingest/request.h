/* SPDX-License-Identifier: Apache-2.0 */
/* A request on its way through ingest.c, workers.c and group.c. */
#ifndef LTN_INGEST_REQUEST_H
#define LTN_INGEST_REQUEST_H

#include "http/server.h"
#include "ingest/decode.h"
#include "io/loop.h"
#include "otlp/model.h"
#include "store/store.h"

struct ltn_ingest;
struct ltn_ingest_workers;

/* Between its arrival and its answer. */
struct ltn_ingest_request {
    struct ltn_store_item item; /* first: the store gives it back */
    struct ltn_task task;
    struct ltn_ingest_request *next;
    struct ltn_ingest *in;
    struct ltn_http_request *http;
    enum ltn_otlp_signal signal;
    uint32_t lane; /* requests of one lane are decoded in the order of their arrival */
    bool offloaded;
    const char *refusal; /* static; NULL: what rc says */
    size_t body_bytes;
    uint64_t received_ns; /* since 1970 */
    /* what decoding yielded */
    struct ltn_decode_result result;
    size_t read_bytes; /* what was decoded, as protobuf */
    uint64_t unknown;  /* JSON members without a meaning */
    size_t error_at;   /* where JSON broke */
    uint64_t decode_ns;
    int rc;
};

/* ---- ingest.c ---- */

/* What a thread needs to decode. */
struct ltn_ingest_tools {
    struct ltn_decoder *decoder;
    struct ltn_inflater *inflater; /* made when first needed */
};

/* Inflates and decodes r; any thread. */
void ltn_ingest_decode(struct ltn_ingest_request *r, struct ltn_ingest_tools *tools);
/* Goes on with a decoded request. Loop thread. */
void ltn_ingest_decoded(struct ltn_ingest_request *r);
/* Answers by r->rc and frees it. Loop thread. */
void ltn_ingest_answer(struct ltn_ingest_request *r);

/* ---- workers.c: threads that decode ---- */

/* NULL when out of memory or threads. n is at least 1. done is called on the loop thread. */
struct ltn_ingest_workers *ltn_ingest_workers_new(struct ltn_loop *loop, struct ltn_series *series,
                                                  unsigned n) ltn_must_check;
/* Decodes what waits, ends the threads. NULL is ignored. */
void ltn_ingest_workers_free(struct ltn_ingest_workers *w);
/* Has r decoded by the thread of its lane; ltn_ingest_decoded follows. */
void ltn_ingest_workers_put(struct ltn_ingest_workers *w, struct ltn_ingest_request *r);
/* Until when the lane's thread last had nothing to do, CLOCK_MONOTONIC; UINT64_MAX: it has not.
 * *ret_worker: which of them it is. */
uint64_t ltn_ingest_workers_rested_ns(struct ltn_ingest_workers *w, uint32_t lane,
                                      unsigned *ret_worker);

/* ---- group.c: one commit for many requests that only have series ---- */

struct ltn_ingest_group {
    struct ltn_store_item item; /* first: the store gives it back */
    struct ltn_task task;
    struct ltn_ingest *in;
    struct ltn_loop *loop;
    struct ltn_store *store;
    struct ltn_timer timer;
    struct ltn_ingest_request *forming, **forming_end;
    size_t forming_values;
    struct ltn_ingest_request *flying; /* with the store now */
    uint64_t sent_ns;
    bool busy, stopped;
    int rc;
};

void ltn_ingest_group_init(struct ltn_ingest_group *g, struct ltn_ingest *in, struct ltn_loop *loop,
                           struct ltn_store *store);
/* r is answered after a commit that began later than now. */
void ltn_ingest_group_add(struct ltn_ingest_group *g, struct ltn_ingest_request *r);
/* Refuses what waits; no commit is asked for any more. */
void ltn_ingest_group_stop(struct ltn_ingest_group *g);

#endif /* LTN_INGEST_REQUEST_H */
