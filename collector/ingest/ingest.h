/* SPDX-License-Identifier: Apache-2.0 */
/*
 * OTLP services on an HTTP server: metrics, logs and traces, gRPC and HTTP with protobuf or JSON.
 * Small requests are decoded on the loop thread, larger ones by workers. Values of series are taken
 * into their table at once, the rest is an update for the store; a request is acknowledged after a
 * commit by the store's writer that holds all of it, and fleets see it then, on the loop thread.
 */
#ifndef LTN_INGEST_INGEST_H
#define LTN_INGEST_INGEST_H

#include "base/attr.h"
#include "fleet/fleet.h"
#include "http/server.h"
#include "io/loop.h"
#include "prom/series.h"
#include "store/store.h"

/* name, help */
#define LTN_INGEST_COUNTERS(X)                                                                     \
    X(requests, "export requests that reached a handler")                                          \
    X(points_received, "data points accepted")                                                     \
    X(points_unexposed, "of these without a usable name, value or room")                           \
    X(logs_received, "log records accepted")                                                       \
    X(spans_refused, "spans refused: traces are not stored")                                       \
    X(rejected_forbidden, "requests refused: the token is for another cluster")                    \
    X(rejected_malformed, "requests refused: malformed, too deep, too many")                       \
    X(rejected_points, "points and records rejected inside accepted requests")                     \
    X(rejected_busy, "requests refused for now: overload")                                         \
    X(rejected_disk, "requests refused for now: database cannot be written")                       \
    X(rejected_draining, "requests refused for now: shutting down")                                \
    X(skipped_gone, "requests not decoded: their client had gone or its deadline had passed")      \
    X(acknowledged, "requests acknowledged after commit")

struct ltn_ingest_stats {
#define LTN_INGEST_COUNTER(name, help) uint64_t name;
    LTN_INGEST_COUNTERS(LTN_INGEST_COUNTER)
#undef LTN_INGEST_COUNTER
    double decode_seconds;
    size_t in_flight; /* requests with the store now */
};

struct ltn_ingest;

struct ltn_ingest_opts {
    /* Borrowed; must outlive the ingest. */
    struct ltn_loop *loop;
    struct ltn_store *store; /* with the series below */
    struct ltn_fleet *fleet;
    struct ltn_series *series;
    unsigned workers; /* threads that decode larger bodies; 0: the loop decodes all */
    size_t max_bytes; /* bodies between arrival and answer; beyond, requests are refused for now */
};

/* NULL when out of memory or threads. */
struct ltn_ingest *ltn_ingest_new(const struct ltn_ingest_opts *opts) ltn_must_check;

/* Ends the workers and asks the store for nothing more; what waits is refused. Before the store is
 * freed, after the servers were. NULL is ignored. */
void ltn_ingest_stop(struct ltn_ingest *in);

/* After the store was freed (no call back comes any more). NULL is ignored. */
void ltn_ingest_free(struct ltn_ingest *in);

/* Adds the routes. 0 or the server's error. */
int ltn_ingest_routes(struct ltn_ingest *in, struct ltn_http_server *server) ltn_must_check;

/* From now on every request is refused as retryable. */
void ltn_ingest_drain(struct ltn_ingest *in);

const struct ltn_ingest_stats *ltn_ingest_stats(const struct ltn_ingest *in);

#endif /* LTN_INGEST_INGEST_H */
