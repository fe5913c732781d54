/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Latest values of series that come from clients: families by name, series by label text, with a
 * ceiling on each and on all. Beyond a ceiling the points of a family go into one series with the
 * label otel_metric_overflow="true" and are counted. One thread at a time.
 */
#ifndef LTN_PROM_SERIES_H
#define LTN_PROM_SERIES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/attr.h"
#include "prom/expo.h"

struct ltn_series;

struct ltn_series_opts {
    size_t max_families;   /* 0: 5000 */
    size_t max_per_family; /* 0: 2000 */
    size_t max_series;     /* 0: 200000 */
    uint64_t expire_ns;    /* series not set for so long vanish; 0: 5 min */
};

struct ltn_series_stats {
    size_t families, series;
    uint64_t points;         /* taken */
    uint64_t overflowed;     /* gone into an overflow series */
    uint64_t refused;        /* for want of room for a family, or memory */
    uint64_t type_conflicts; /* refused: the family has another type, or a reserved name */
};

/* NULL when out of memory; opts may be NULL. */
struct ltn_series *ltn_series_new(const struct ltn_series_opts *opts) ltn_must_check;
void ltn_series_free(struct ltn_series *s);

/* Keeps a family name for the program's own use. 0 or -ENOMEM, LTN_ERR_COUNT. */
int ltn_series_reserve(struct ltn_series *s, const char *name) ltn_must_check;

struct ltn_series_point {
    const char *family; /* full name */
    enum ltn_prom_type type;
    const char *unit;   /* may be NULL or "" */
    const char *help;   /* may be NULL; the first one stays */
    const char *labels; /* exposition form, keys sorted */
    double value;
    uint64_t time_ns; /* of the value; an older one than the last is ignored */
    bool delta;       /* add to the series instead of setting it */
};

/* Sets a series. 0; LTN_ERR_COUNT (refused), -EINVAL (type conflict), -ENOMEM. now_ns is for the
 * expiry. */
int ltn_series_set(struct ltn_series *s, const struct ltn_series_point *p, uint64_t now_ns);

/* Drops what was not set since now_ns - expire_ns. */
void ltn_series_expire(struct ltn_series *s, uint64_t now_ns);

/* Writes all families. */
void ltn_series_write(const struct ltn_series *s, struct ltn_prom *out);

void ltn_series_stats(const struct ltn_series *s, struct ltn_series_stats *ret);

#endif /* LTN_PROM_SERIES_H */
