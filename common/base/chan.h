/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bounded channel that moves ownership of items between threads: any number of senders, one
 * receiver, capacity in items and bytes. When it is full the sender keeps its item and counts the
 * loss. The descriptor is readable while items wait.
 */
#ifndef LTN_BASE_CHAN_H
#define LTN_BASE_CHAN_H

#include <stddef.h>
#include <stdint.h>

#include "base/attr.h"

struct ltn_chan;

/* Creates a channel for max_items and max_bytes. NULL when memory or descriptors are out. Free with
 * ltn_chan_free. */
struct ltn_chan *ltn_chan_new(size_t max_items, size_t max_bytes) ltn_must_check;

/* Frees the channel; waiting items are passed to free_item unless that is NULL. No other thread may
 * use it any more. */
void ltn_chan_free(struct ltn_chan *c, void (*free_item)(void *));

/* Sends an item of the given weight. 0: the channel owns it. LTN_ERR_BUSY: full, the caller keeps
 * it. LTN_ERR_CLOSED: closed. An item heavier than max_bytes is accepted only into an empty
 * channel. Any thread. */
int ltn_chan_send(struct ltn_chan *c, void *item, size_t weight_bytes) ltn_must_check;

/* Next item, which the caller owns; NULL when none waits. Never blocks. Receiver thread only. */
void *ltn_chan_recv(struct ltn_chan *c);

/* Next item, waiting for at most timeout_ms; NULL on timeout, or when closed and empty. Receiver
 * thread only. */
void *ltn_chan_recv_wait(struct ltn_chan *c, int timeout_ms);

/* Refuses further items and wakes the receiver. Any thread. */
void ltn_chan_close(struct ltn_chan *c);

/* Descriptor for poll/epoll: readable while items wait or after close. Owned by the channel. */
int ltn_chan_fd(const struct ltn_chan *c);

/* Items and bytes that wait now, the most items that ever waited, and sends refused because it was
 * full. Any thread. */
struct ltn_chan_stats {
    size_t items;
    size_t bytes;
    size_t high_water_items;
    uint64_t refused_total;
};
struct ltn_chan_stats ltn_chan_stats(struct ltn_chan *c);

#endif /* LTN_BASE_CHAN_H */
