/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Thread `drain`: empties the kernel's rings into batches of raw records and passes them on. It
 * never waits for anybody: when no batch is free, records of calls are thrown away and counted;
 * critical ones (the life of processes) stay in their ring until one is.
 */
#ifndef LTN_CAPTURE_DRAIN_H
#define LTN_CAPTURE_DRAIN_H

#include <stddef.h>
#include <stdint.h>

#include "base/attr.h"

#define LTN_DRAIN_BATCH_BYTES (256U * 1024)

/* Records one after the other, each beginning with struct ltn_event_hdr and rounded up to 8 bytes.
 */
struct ltn_drain_batch {
    size_t len;
    size_t records;
    _Alignas(8) unsigned char data[LTN_DRAIN_BATCH_BYTES];
};

struct ltn_drain;

/* Prepares to read the two rings (descriptors borrowed). NULL when memory is out or the rings
 * cannot be mapped. */
struct ltn_drain *ltn_drain_new(int calls_fd, int critical_fd) ltn_must_check;

/* How much is thinned out (agent/probe): the drain sets it by how fast records come, at least once
 * a second, to 1, 10 or 100, and never below what ltn_drain_set_least says. To be called before
 * start; `thin` must outlive the drain. Without it nothing is thinned out. */
void ltn_drain_control(struct ltn_drain *d, uint32_t *thin);
void ltn_drain_set_least(struct ltn_drain *d, uint32_t least); /* any thread */

/* Starts the thread. 0 or -errno. */
int ltn_drain_start(struct ltn_drain *d) ltn_must_check;

/* Ends the thread after a last look at the rings, which it leaves empty. */
void ltn_drain_stop(struct ltn_drain *d);

/* Frees; the thread must have been stopped. NULL is ignored. */
void ltn_drain_free(struct ltn_drain *d);

/* Next full batch, waiting at most timeout_ms; NULL when there is none. To be given back with
 * ltn_drain_release. One thread. */
struct ltn_drain_batch *ltn_drain_next(struct ltn_drain *d, int timeout_ms);
void ltn_drain_release(struct ltn_drain *d, struct ltn_drain_batch *b);

/* Records read, and records thrown away because no batch was free. Any thread. */
struct ltn_drain_stats {
    uint64_t read_total;
    uint64_t dropped_total;
    uint64_t malformed_total;
    uint64_t looks_total; /* times the thread woke up */
    uint32_t thin;        /* records thinned out now: one in so many; 1 = none */
};
struct ltn_drain_stats ltn_drain_stats(const struct ltn_drain *d);

#endif /* LTN_CAPTURE_DRAIN_H */
