/* SPDX-License-Identifier: Apache-2.0 */
/* What the log tells of things that go wrong while the collector runs: each once when it begins or
 * twice a minute at most, since counters say how often. Loop thread. */
#ifndef LTN_COLLECTOR_WATCH_H
#define LTN_COLLECTOR_WATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "http/server.h"
#include "prom/series.h"
#include "store/store.h"

struct ltn_collector_watch {
    /* borrowed; set before the first look */
    struct ltn_store *store;
    struct ltn_series *series;
    struct ltn_http_server *otlp, *api;
    const char *db;
    /* told so far */
    bool unwritable;
    uint64_t conflicts, overflowed, refused, pruned_bytes, accept_errors;
    uint64_t next_ns; /* losses are not told of before */
};

/* Looks at all of it: for every tick. now_ns: monotonic. */
void ltn_collector_watch_look(struct ltn_collector_watch *w, uint64_t now_ns);

#endif /* LTN_COLLECTOR_WATCH_H */
