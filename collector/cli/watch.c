/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/watch.h"

#include <inttypes.h>

#include "base/clock.h"
#include "base/log.h"

#define QUIET_NS (30 * LTN_NS_PER_S)

/* How much a counter grew since it was last asked for. */
static uint64_t grown(uint64_t *told, uint64_t now)
{
    uint64_t n = now - *told;
    *told = now;
    return n;
}

static void watch_disk(struct ltn_collector_watch *w, const struct ltn_store_stats *st)
{
    if (!st->writable && !w->unwritable)
        ltn_log_error("%s cannot be written (%s): clients are asked to come again; make room or "
                      "mend the disk, nothing has to be restarted",
                      w->db, st->error);
    else if (st->writable && w->unwritable)
        ltn_log_info("%s can be written again", w->db);
    w->unwritable = !st->writable;
}

static bool tell_series(struct ltn_collector_watch *w)
{
    bool told = false;
    struct ltn_series_stats st;
    char family[256];
    ltn_series_stats(w->series, &st);
    uint64_t n = grown(&w->conflicts, st.type_conflicts);
    told = told || n > 0;
    ltn_series_last_conflict(w->series, family, sizeof(family));
    if (n > 0)
        ltn_log_warn("%" PRIu64 " points of clients refused: another metric has their name, or one "
                     "of its samples has, with another type; the last one: %s",
                     n, family);
    n = grown(&w->overflowed, st.overflowed);
    told = told || n > 0;
    if (n > 0)
        ltn_log_warn("%" PRIu64 " points of clients are in series with otel_metric_overflow: more "
                     "series than limits.series_per_metric or limits.series allow (%zu are there)",
                     n, st.series);
    n = grown(&w->refused, st.refused);
    told = told || n > 0;
    if (n > 0)
        ltn_log_warn("%" PRIu64 " points of clients refused: no room for another metric (%zu are "
                     "there) or no memory",
                     n, st.families);
    return told;
}

static bool tell_losses(struct ltn_collector_watch *w, const struct ltn_store_stats *st)
{
    struct ltn_http_stats otlp, api;
    bool told = tell_series(w);
    uint64_t n = grown(&w->pruned_bytes, st->logs_pruned_bytes);
    told = told || n > 0;
    if (n > 0)
        ltn_log_warn("%" PRIu64 " of the oldest log records dropped: limits.log_bytes is reached",
                     n);
    ltn_http_server_stats(w->otlp, &otlp);
    ltn_http_server_stats(w->api, &api);
    n = grown(&w->accept_errors, otlp.accept_errors + api.accept_errors);
    told = told || n > 0;
    if (n > 0)
        ltn_log_warn("connections could not be accepted (%" PRIu64 " tries): no file descriptors "
                     "or memory left; raise the limit of open files (ulimit -n, LimitNOFILE)",
                     n);
    return told;
}

void ltn_collector_watch_look(struct ltn_collector_watch *w, uint64_t now_ns)
{
    struct ltn_store_stats st;
    ltn_store_stats(w->store, &st);
    watch_disk(w, &st);
    if (now_ns >= w->next_ns && tell_losses(w, &st))
        w->next_ns = now_ns + QUIET_NS;
}
