/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Histograms and summaries as the states of series. The exponential ones of a family share their
 * bounds (see hist.h), which grow with what comes and never shrink while the family lives, so that
 * the buckets of a series do not come and go.
 */
#ifndef LTN_PROM_HIST_STATE_H
#define LTN_PROM_HIST_STATE_H

#include "prom/hist.h"
#include "prom/series.h"

/* Bytes that all states of a table may have together, by default. */
#define LTN_HIST_MAX_BYTES ((size_t)256 << 20)

/* Makes a table take histograms, of max_bytes in all (0: LTN_HIST_MAX_BYTES); before its first
 * series and before loading. It frees what this needs with itself. 0 or -ENOMEM. */
int ltn_hist_attach(struct ltn_series *s, size_t max_bytes) ltn_must_check;

/* name, help */
#define LTN_HIST_COUNTERS(X)                                                                       \
    X(taken, "points of histograms and summaries taken")                                           \
    X(late, "late, or delivered before")                                                           \
    X(gaps, "deltas behind a gap, with which a sum began anew")                                    \
    X(overlaps, "taken, though their time overlaps that of another")                               \
    X(refused, "too many bounds, an impossible scale or place")                                    \
    X(no_room, "their states would need more memory than there is for them")

struct ltn_hist_stats {
#define LTN_HIST_STAT(name, help) uint64_t name;
    LTN_HIST_COUNTERS(LTN_HIST_STAT)
#undef LTN_HIST_STAT
    size_t bytes; /* held in states, about */
};

/* Takes a point into a series that was resolved with desc.state, of that family (full name). p
 * NULL: its client has ended the series. 0, -ENOMEM, or LTN_ERR_BUSY when the series expired
 * meanwhile: the same point again finds or makes it. Takes the lock of the table. */
int ltn_hist_take(struct ltn_series *s, ltn_series_ref ref, const char *family,
                  const struct ltn_hist_point *p, uint64_t time_ns, uint64_t now_ns) ltn_must_check;

/* Takes the lock of the table. Zeros when nothing is attached. */
void ltn_hist_stats(struct ltn_series *s, struct ltn_hist_stats *ret);

#endif /* LTN_PROM_HIST_STATE_H */
