/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/watch.h"

#include <inttypes.h>

#include "base/log.h"

/* How much a counter grew since it was last asked for. */
static uint64_t grown(uint64_t *told, uint64_t now)
{
    uint64_t n = now - *told;
    *told = now;
    return n;
}

void ltn_collector_watch_disk(struct ltn_collector_watch *w)
{
    struct ltn_store_stats st;
    ltn_store_stats(w->store, &st);
    if (!st.writable && !w->unwritable)
        ltn_log_error("%s cannot be written (%s): clients are asked to come again; make room or "
                      "mend the disk, nothing has to be restarted",
                      w->db, st.error);
    else if (st.writable && w->unwritable)
        ltn_log_info("%s can be written again", w->db);
    w->unwritable = !st.writable;
}

static void tell_series(struct ltn_collector_watch *w)
{
    struct ltn_series_stats st;
    char family[256];
    ltn_series_stats(w->series, &st);
    uint64_t n = grown(&w->conflicts, st.type_conflicts);
    ltn_series_last_conflict(w->series, family, sizeof(family));
    if (n > 0)
        ltn_log_warn("%" PRIu64 " points of clients refused: another metric has their name, or one "
                     "of its samples has, with another type; the last one: %s",
                     n, family);
    n = grown(&w->overflowed, st.overflowed);
    if (n > 0)
        ltn_log_warn("%" PRIu64 " points of clients are in series with otel_metric_overflow: more "
                     "series than limits.series_per_metric or limits.series allow (%zu are there)",
                     n, st.series);
    n = grown(&w->refused, st.refused);
    if (n > 0)
        ltn_log_warn("%" PRIu64 " points of clients refused: no room for another metric (%zu are "
                     "there) or no memory",
                     n, st.families);
}

void ltn_collector_watch_losses(struct ltn_collector_watch *w)
{
    struct ltn_store_stats st;
    struct ltn_http_stats otlp, api;
    tell_series(w);
    ltn_store_stats(w->store, &st);
    uint64_t n = grown(&w->pruned_bytes, st.logs_pruned_bytes);
    if (n > 0)
        ltn_log_warn("%" PRIu64 " of the oldest log records dropped: limits.log_bytes is reached",
                     n);
    ltn_http_server_stats(w->otlp, &otlp);
    ltn_http_server_stats(w->api, &api);
    n = grown(&w->accept_errors, otlp.accept_errors + api.accept_errors);
    if (n > 0)
        ltn_log_warn("connections could not be accepted (%" PRIu64 " tries): no file descriptors "
                     "or memory left; raise the limit of open files (ulimit -n, LimitNOFILE)",
                     n);
}
