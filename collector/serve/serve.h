/* SPDX-License-Identifier: Apache-2.0 */
/* The API and metrics of the collector on an HTTP server. Loop thread. docs/api.md lists the paths.
 */
#ifndef LTN_SERVE_SERVE_H
#define LTN_SERVE_SERVE_H

#include "access/access.h"
#include "alert/alert.h"
#include "base/attr.h"
#include "fleet/fleet.h"
#include "http/server.h"
#include "ingest/ingest.h"
#include "prom/series.h"
#include "query/query.h"
#include "store/store.h"

/* Answers to /metrics, which are made in pieces. */
struct ltn_scrape_stats {
    unsigned active;
    uint64_t complete, cut, refused, bytes; /* cut: the client left, or took too long */
    double seconds;                         /* spent making them */
};

/* Everything that is shown; all borrowed. */
struct ltn_serve {
    struct ltn_fleet *fleet;
    struct ltn_store *store;
    struct ltn_series *series;
    struct ltn_alerts *alerts; /* NULL when there are none */
    const struct ltn_ingest *ingest;
    struct ltn_query_hub *hub;
    const struct ltn_access *access; /* NULL: nothing is said of it */
    const struct ltn_http_server *otlp_server;
    const struct ltn_http_server *api_server;
    uint64_t started_ns;
    bool draining;
    struct ltn_scrape_stats scrapes;
};

/* Keeps the names of the collector's own families from clients. */
int ltn_serve_reserve(struct ltn_series *series) ltn_must_check;

/* Adds the routes. *s must outlive the server. */
int ltn_serve_routes(struct ltn_serve *s, struct ltn_http_server *server) ltn_must_check;

/* Writes the table of `status`. */
void ltn_serve_table(const struct ltn_serve *s, struct ltn_buf *out, uint64_t now_ns);

#endif /* LTN_SERVE_SERVE_H */
