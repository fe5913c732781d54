/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Latest values of series that come from clients, in little memory: families, what many series
 * share of their labels (the scope), and the series themselves, with ceilings on each and on all.
 * Beyond a ceiling the points of a family go into one series with the label
 * otel_metric_overflow="true" and are counted.
 *
 * A point is taken in three steps. Its key, made from the bytes that came in, finds the series of a
 * point like it that was seen before (ltn_series_find). Only a new key needs labels
 * (ltn_series_resolve): the same labels in another order of bytes lead to the same series. The
 * value is then taken (ltn_series_take).
 *
 * Threads: the table has one lock. Functions say "locked" when the caller holds it; the others take
 * it themselves. Hold it for some ten microseconds at most and let it go: readers (the exposition,
 * the saving) work in slices of about that length, so that neither waits for the other for long. A
 * reference may be kept without the lock for some seconds: the place of a series that expires is
 * not used again before the next expiry.
 *
 * What changed since the last saving is known; ltn_series_save_* give it away as blobs that
 * ltn_series_load reads back, so that values and the state of delta sums outlive the process.
 */
#ifndef LTN_PROM_SERIES_H
#define LTN_PROM_SERIES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/attr.h"
#include "prom/expo.h"

struct ltn_series;

#define LTN_SERIES_FAMILIES 5000

struct ltn_series_opts {
    size_t max_families;   /* 0: LTN_SERIES_FAMILIES */
    size_t max_per_family; /* 0: 2000 */
    size_t max_series;     /* 0: 200000; at most 16 million */
    uint64_t expire_ns;    /* series not set for so long vanish; 0: 5 min; whole seconds */
};

struct ltn_series_stats {
    size_t families, series;
    size_t bytes;            /* memory held, about */
    uint64_t points;         /* taken */
    uint64_t overflowed;     /* gone into an overflow series */
    uint64_t refused;        /* for want of room for a family, or memory */
    uint64_t type_conflicts; /* refused: the family has another type, or its name or one of its
                                samples' belongs to another family */
    uint64_t late;           /* as old as the last one or older: changed nothing */
    uint64_t delta_gaps;     /* delta sums begun anew behind a gap */
    uint64_t delta_overlaps; /* delta points that begin before the last one ended */
    uint64_t ended;          /* series that their client ended */
    uint64_t new_keys;       /* points that needed labels */
    uint64_t restored;       /* series loaded */
    uint64_t damaged;        /* blobs that could not be read back */
    uint64_t unknown;        /* values passed over for want of a description that was damaged */
};

/* NULL when out of memory; opts may be NULL. */
struct ltn_series *ltn_series_new(const struct ltn_series_opts *opts) ltn_must_check;
void ltn_series_free(struct ltn_series *s);

void ltn_series_lock(struct ltn_series *s);
void ltn_series_unlock(struct ltn_series *s);

/* Keeps a family (full name), and all names that its samples have, for the program's own use. 0 or
 * -ENOMEM, LTN_ERR_COUNT. */
int ltn_series_reserve(struct ltn_series *s, const char *name,
                       enum ltn_prom_type type) ltn_must_check;

/* ---- keys ---- */

struct ltn_series_key {
    uint64_t a; /* 0 and b 0: no key */
    uint32_t b;
};

/* Hash of n bytes within a context (0 at the top), keyed at random per table: what a resource, then
 * a scope, then a metric is. Any thread, no lock. */
uint64_t ltn_series_context(const struct ltn_series *s, uint64_t context, const void *p, size_t n);

/* Key of a point whose attributes are these bytes. Any thread, no lock. */
struct ltn_series_key ltn_series_key(const struct ltn_series *s, uint64_t context, const void *p,
                                     size_t n);

/* ---- taking points ---- */

typedef uint32_t ltn_series_ref; /* 0: none */

/* The series of that key, or 0. Locked. */
ltn_series_ref ltn_series_find(struct ltn_series *s, struct ltn_series_key key);
/* Says that find comes soon, so that memory is at hand. Locked. */
void ltn_series_prefetch(const struct ltn_series *s, struct ltn_series_key key);

/* What makes a series. */
struct ltn_series_desc {
    const char *family; /* full name */
    enum ltn_prom_type type;
    const char *unit;         /* may be NULL or "" */
    const char *help;         /* may be NULL; the first one stays */
    const char *scope_labels; /* exposition form; shared by many series; may be NULL */
    const char *labels;       /* exposition form, behind the scope's; keys sorted; may be NULL */
    bool state; /* has a state instead of a value (see below); by the family's first */
};

/* Finds or makes the series, and remembers the key for it unless it has none. 0; LTN_ERR_COUNT
 * (refused, no room for a family), -EINVAL (type conflict or reserved), -ENOMEM. now_ns: monotonic.
 * Locked. */
int ltn_series_resolve(struct ltn_series *s, const struct ltn_series_desc *d,
                       struct ltn_series_key key, uint64_t now_ns,
                       ltn_series_ref *ret) ltn_must_check;

enum ltn_series_flag {
    LTN_SERIES_DELTA = 1, /* value is a difference */
    LTN_SERIES_MONOTONIC = 2,
    LTN_SERIES_END = 4, /* no value: the client ended the series */
};

struct ltn_series_sample {
    double value;
    uint64_t time_ns;  /* since 1970; 0 unknown: taken as newer than any */
    uint64_t start_ns; /* of a delta; 0 unknown */
    ltn_series_ref ref;
    uint32_t flags; /* bits of ltn_series_flag */
};

/* Takes values. One as old as its series' last or older changes nothing. A delta adds when it
 * begins where the last ended (or does not say), sets the series to itself when it is the first or
 * when a gap lies before it, and adds and is counted when it overlaps. Also marks the series as
 * seen, but for values older than its last. Takes the lock, and lets it go in between. 0, or
 * LTN_ERR_BUSY when a series expired between find and now (the others were taken): the same points
 * again then find or make all of them. */
int ltn_series_take(struct ltn_series *s, const struct ltn_series_sample *samples, size_t n,
                    uint64_t now_ns) ltn_must_check;

/* A point with everything in one call, for few: resolve and take. Errors as resolve. */
struct ltn_series_point {
    struct ltn_series_desc desc;
    double value;
    uint64_t time_ns, start_ns;
    uint32_t flags;
};
int ltn_series_set(struct ltn_series *s, const struct ltn_series_point *p, uint64_t now_ns);

/* Drops what was not seen since now_ns - expire_ns (monotonic, so that steps of the wall clock
 * change nothing), and what was ended. Does nothing while a cursor is open. Takes the lock, in
 * slices. */
void ltn_series_expire(struct ltn_series *s, uint64_t now_ns);

/* ---- series with a state: histograms ---- */

/* One table of functions for all of them. A state is one allocation of its owner's. All are called
 * locked and must be short. */
struct ltn_series_state_ops {
    void (*free)(void *arg, void *state);
    /* Appends the state; ltn_buf errors stick. */
    void (*save)(void *arg, const void *state, struct ltn_buf *out);
    /* From what save wrote, checked by a checksum but to be read with care; NULL: cannot. */
    void *(*load)(void *arg, const uint8_t *p, size_t n);
    /* Writes the samples of one series; labels in exposition form, may be "". */
    void (*write)(void *arg, const void *state, struct ltn_prom *out, const char *labels);
    /* When the table and all states are gone; may be NULL. */
    void (*done)(void *arg);
};
/* Before the first series and before loading; ops live as long as the table. */
void ltn_series_set_state_ops(struct ltn_series *s, const struct ltn_series_state_ops *ops,
                              void *arg);
void *ltn_series_state_arg(const struct ltn_series *s);

/* True for the series that the points beyond a ceiling go to. Locked. */
bool ltn_series_is_overflow(const struct ltn_series *s, ltn_series_ref ref);

/* Where the state of a series stands: *at is NULL at first and is the owner's to set. NULL when the
 * series has a value, or has expired since. Locked. */
void **ltn_series_state(struct ltn_series *s, ltn_series_ref ref);

/* Last time of the series, ns; 0 when it was never set. Locked. */
uint64_t ltn_series_time(const struct ltn_series *s, ltn_series_ref ref);

/* Says that the state was changed by a point of that time: to be saved, to be shown, seen. ended:
 * to be shown no more until the next call. Locked. */
void ltn_series_touch(struct ltn_series *s, ltn_series_ref ref, uint64_t time_ns, bool ended,
                      uint64_t now_ns);

/* ---- exposition ---- */

/* Walks over all families, each whole, in slices: every slice holds the lock for no longer than it
 * takes to write about that many series, and points are taken in between. Each series shows a value
 * that it had during the walk. Series that come meanwhile may be missing, none goes. */
struct ltn_series_cursor {
    struct ltn_series *s;
    size_t family;
    void *group;
    uint32_t slot;
    bool open, heading;
};

void ltn_series_walk(struct ltn_series *s, struct ltn_series_cursor *c);
/* Writes up to max series; true while there are more. */
bool ltn_series_walk_next(struct ltn_series_cursor *c, struct ltn_prom *out, size_t max);
/* Ends the walk, at any point of it. */
void ltn_series_walk_end(struct ltn_series_cursor *c);

/* Writes all families: a whole walk. */
void ltn_series_write(struct ltn_series *s, struct ltn_prom *out);

void ltn_series_stats(struct ltn_series *s, struct ltn_series_stats *ret);

/* Family that was refused last for a conflict of types; "" for none. */
void ltn_series_last_conflict(struct ltn_series *s, char *ret, size_t size);

/* ---- saving: one thread at a time ---- */

/* Begins to give away what changed. With everything, all series, as into a new file. */
void ltn_series_save_begin(struct ltn_series *s, bool everything);

/* Appends the next blob of about max_bytes to out (empty before). True when one was written, false
 * when nothing is left. Takes the lock in slices. */
bool ltn_series_save_next(struct ltn_series *s, struct ltn_buf *out, size_t max_bytes);

/* Like that, series that did not change: the next of an endless walk over all. *ret_round grows by
 * one when the walk begins anew: what was saved before the round before is then no longer needed.
 */
bool ltn_series_save_old(struct ltn_series *s, struct ltn_buf *out, size_t max_bytes,
                         uint64_t *ret_round);

/* Ends it. When not ok, everything given away since begin counts as changed again. */
void ltn_series_save_end(struct ltn_series *s, bool ok);

/* Reads blobs back, in the order of their saving, into an empty table; then load_end, before
 * anything else. Unreadable ones are counted (damaged) and passed over; so is what later ones say
 * of series that only they described (unknown). Series that had not been seen for the expiry by now
 * are left out; time is told by the clock of the machine's run where it is still the same one.
 * now_ns: monotonic. 0 or -ENOMEM. */
int ltn_series_load(struct ltn_series *s, const void *blob, size_t n,
                    uint64_t now_ns) ltn_must_check;
int ltn_series_load_end(struct ltn_series *s, uint64_t now_ns) ltn_must_check;

#endif /* LTN_PROM_SERIES_H */
