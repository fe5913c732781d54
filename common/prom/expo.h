/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes a Prometheus exposition into a buffer. Families are written one after the other, each
 * whole; the writer takes care of TYPE, UNIT and HELP lines, of suffixes, escaping and number
 * forms. Label values that are not valid UTF-8 are mended, so that one bad byte cannot spoil a
 * scrape. No time stamps are written. One thread per writer.
 */
#ifndef LTN_PROM_EXPO_H
#define LTN_PROM_EXPO_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

enum ltn_prom_format { LTN_PROM_TEXT = 0, LTN_PROM_OPENMETRICS };

/* The format of the highest q in an Accept header that is spoken here; text when accept is NULL,
 * empty or names nothing known. Thread-safe. */
enum ltn_prom_format ltn_prom_negotiate(const char *accept);

/* Content-Type of a format; static. */
const char *ltn_prom_content_type(enum ltn_prom_format f);

enum ltn_prom_type {
    LTN_PROM_COUNTER = 0,
    LTN_PROM_GAUGE,
    LTN_PROM_HISTOGRAM,
    LTN_PROM_UNKNOWN,
};

struct ltn_prom_label {
    const char *name; /* valid label name */
    const char *value;
};

struct ltn_prom {
    struct ltn_buf *out; /* borrowed; errors stick there */
    enum ltn_prom_format format;
    enum ltn_prom_type type;
    char name[256]; /* of the open family, without _total */
};

void ltn_prom_begin(struct ltn_prom *p, struct ltn_buf *out, enum ltn_prom_format f);

/* Begins a family. name as in samples, counters with "_total" (added when missing). unit may be
 * NULL; it is written only where the name ends in it. */
void ltn_prom_family(struct ltn_prom *p, const char *name, enum ltn_prom_type type,
                     const char *unit, const char *help);

/* A sample of a counter, gauge or unknown family. */
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

/* Ends the exposition. */
void ltn_prom_end(struct ltn_prom *p);

/* Appends name="value" with escaping; invalid UTF-8 and control characters but \n become '?'. */
void ltn_prom_put_label(struct ltn_buf *out, const char *name, const char *value, size_t value_len);

#endif /* LTN_PROM_EXPO_H */
