/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes a Prometheus exposition into a buffer. Families are written one after the other, each
 * whole; the writer takes care of TYPE, UNIT and HELP lines, of suffixes, escaping and number
 * forms. Label values that are not valid UTF-8 are mended, so that one bad byte cannot spoil a
 * scrape. No time stamps of samples are written: they would switch off staleness. One thread per
 * writer.
 */
#ifndef LTN_PROM_EXPO_H
#define LTN_PROM_EXPO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

enum ltn_prom_format { LTN_PROM_TEXT = 0, LTN_PROM_OPENMETRICS };

/* Content types of the formats. */
#define LTN_PROM_TYPE_TEXT          "text/plain; version=0.0.4; charset=utf-8"
#define LTN_PROM_TYPE_TEXT_1        "text/plain; version=1.0.0; charset=utf-8"
#define LTN_PROM_TYPE_OPENMETRICS   "application/openmetrics-text; version=1.0.0; charset=utf-8"
#define LTN_PROM_TYPE_OPENMETRICS_0 "application/openmetrics-text; version=0.0.1; charset=utf-8"

enum ltn_prom_type {
    LTN_PROM_COUNTER = 0,
    LTN_PROM_GAUGE,
    LTN_PROM_HISTOGRAM,
    LTN_PROM_UNKNOWN,
    LTN_PROM_SUMMARY,
    LTN_PROM_INFO, /* a gauge of 1 in the text format */
};

struct ltn_prom_label {
    const char *name; /* valid label name */
    const char *value;
};

/* Bounds whose text is remembered between histograms. */
#define LTN_PROM_BOUNDS_KEPT 64
#define LTN_PROM_FLOAT_BYTES 32

struct ltn_prom {
    struct ltn_buf *out; /* borrowed; errors stick there */
    enum ltn_prom_format format;
    enum ltn_prom_type type;
    char name[256]; /* of the open family, without _total and _info */
    struct {
        double value;
        char text[LTN_PROM_FLOAT_BYTES];
    } bounds[LTN_PROM_BOUNDS_KEPT]; /* text empty: none yet */
};

/* Begins an exposition; it may go on in another buffer by a change of p->out. */
void ltn_prom_begin(struct ltn_prom *p, struct ltn_buf *out, enum ltn_prom_format f);

/* Begins a family. name as in samples, counters with "_total" (added when missing), infos with
 * "_info". unit may be NULL; it is written only where the name ends in it. */
void ltn_prom_family(struct ltn_prom *p, const char *name, enum ltn_prom_type type,
                     const char *unit, const char *help);

/* A sample of a counter, gauge, info or unknown family. Counters below zero or NaN, which
 * OpenMetrics forbids, are left out in it. */
void ltn_prom_sample(struct ltn_prom *p, const struct ltn_prom_label *labels, size_t n,
                     double value);

/* The same with labels already in exposition form ("a=\"b\",c=\"d\"", may be ""). */
void ltn_prom_sample_text(struct ltn_prom *p, const char *labels, double value);

/* A histogram: counts[i] values (not cumulative) up to bounds[i], counts[n] above. */
struct ltn_prom_buckets {
    const double *bounds;
    const uint64_t *counts; /* n + 1 */
    size_t n;
    double sum;
};
void ltn_prom_histogram(struct ltn_prom *p, const struct ltn_prom_label *labels, size_t n,
                        const struct ltn_prom_buckets *h);

/* A measurement beside a bucket. */
struct ltn_prom_exemplar {
    double value;
    uint64_t time_ns;   /* 0: unknown */
    const char *labels; /* exposition form, at most LTN_PROM_EXEMPLAR_RUNES in all; may be "" */
};

/* Code points of all names and values of an exemplar's labels together. */
#define LTN_PROM_EXEMPLAR_RUNES 128

/* A histogram with cumulative counts. Bounds ascend; those that are not finite are left out, and
 * +Inf is always written, with count. Exemplars are written in OpenMetrics only, the newest of each
 * bucket. Where OpenMetrics forbids a sum (none, negative, NaN, negative bounds), sum and count are
 * left out in it. */
struct ltn_prom_cumulative {
    const double *bounds;
    const uint64_t *counts; /* n, each at most count */
    size_t n;
    uint64_t count;
    bool has_sum;
    double sum;
    const struct ltn_prom_exemplar *exemplars;
    size_t exemplar_n;
};
void ltn_prom_histogram_text(struct ltn_prom *p, const char *labels,
                             const struct ltn_prom_cumulative *h);

struct ltn_prom_quantile {
    double quantile, value;
};

/* A summary, its quantiles ascending. What OpenMetrics forbids (negative values) is left out in it.
 */
struct ltn_prom_quantiles {
    const struct ltn_prom_quantile *items;
    size_t n;
    uint64_t count;
    double sum;
};
void ltn_prom_summary_text(struct ltn_prom *p, const char *labels,
                           const struct ltn_prom_quantiles *s);

/* Ends the exposition. */
void ltn_prom_end(struct ltn_prom *p);

/* Appends name="value" with escaping; invalid UTF-8 and control characters but \n become '?'. */
void ltn_prom_put_label(struct ltn_buf *out, const char *name, const char *value, size_t value_len);

/* The canonical form of a float: the fewest digits that read back the same, "1.0", "0.005",
 * "1e-05", "100000.0", "1e+06", "+Inf", "NaN". */
void ltn_prom_float(double v, char ret[LTN_PROM_FLOAT_BYTES]);

#endif /* LTN_PROM_EXPO_H */
