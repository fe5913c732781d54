/* SPDX-License-Identifier: Apache-2.0 */
#include "capture/drain.h"

#include <bpf/libbpf.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/chan.h"
#include "base/clock.h"
#include "bpf/event.h"
#include "capture/thinning.h"

#define BATCHES 16
/* The kernel wakes the thread only when a ring fills up, so it looks by itself: often while there
 * is work, rarely when not. */
#define LOOK_BUSY_MS 5
#define LOOK_IDLE_MS 80

struct ltn_drain {
    struct ring_buffer *rings;
    struct ltn_chan *full;
    struct ltn_chan *empty;
    struct ltn_drain_batch *current; /* drain thread only */
    pthread_t thread;
    _Atomic int stop;
    _Atomic uint64_t read;
    _Atomic uint64_t dropped;
    _Atomic uint64_t malformed;
    _Atomic uint64_t looks;
    struct ltn_thinning thinning; /* drain thread only */
    uint32_t *thin;               /* read by the kernel programs; NULL = left alone */
    _Atomic uint32_t least;
};

static void pass_on(struct ltn_drain *d)
{
    struct ltn_drain_batch *b = d->current;
    if (b == NULL || b->records == 0) {
        return;
    }
    if (ltn_chan_send(d->full, b, b->len) == 0) {
        d->current = NULL;
        return;
    }
    atomic_fetch_add_explicit(&d->dropped, b->records, memory_order_relaxed);
    b->len = 0;
    b->records = 0;
}

/* Hands on what there is, unless the receiver is busy with earlier batches: then this one goes on
 * filling, so that many small ones do not use up all batches. */
static void pass_on_if_wanted(struct ltn_drain *d)
{
    if (ltn_chan_stats(d->full).items == 0) {
        pass_on(d);
    }
}

static struct ltn_drain_batch *batch_with_room(struct ltn_drain *d, size_t need)
{
    if (d->current != NULL && d->current->len + need > LTN_DRAIN_BATCH_BYTES) {
        pass_on(d);
    }
    if (d->current == NULL) {
        d->current = ltn_chan_recv(d->empty);
        if (d->current != NULL) {
            d->current->len = 0;
            d->current->records = 0;
        }
    }
    return d->current;
}

static int on_record(void *ctx, void *data, size_t size)
{
    struct ltn_drain *d = ctx;
    atomic_fetch_add_explicit(&d->read, 1, memory_order_relaxed);
    struct ltn_event_hdr hdr;
    if (size < sizeof(hdr)) {
        atomic_fetch_add_explicit(&d->malformed, 1, memory_order_relaxed);
        return 0;
    }
    memcpy(&hdr, data, sizeof(hdr));
    size_t room = (size + 7) & ~(size_t)7;
    if (hdr.size != size || room > LTN_DRAIN_BATCH_BYTES) {
        atomic_fetch_add_explicit(&d->malformed, 1, memory_order_relaxed);
        return 0;
    }
    struct ltn_drain_batch *b = batch_with_room(d, room);
    if (b == NULL) {
        atomic_fetch_add_explicit(&d->dropped, 1, memory_order_relaxed);
        return 0;
    }
    memcpy(b->data + b->len, data, size);
    b->len += room;
    b->records++;
    return 0;
}

struct ltn_drain *ltn_drain_new(int calls_fd, int critical_fd)
{
    struct ltn_drain *d = calloc(1, sizeof(*d));
    if (d == NULL) {
        return NULL;
    }
    d->full = ltn_chan_new(BATCHES, (size_t)BATCHES * LTN_DRAIN_BATCH_BYTES);
    d->empty = ltn_chan_new(BATCHES, BATCHES);
    d->rings = ring_buffer__new(critical_fd, on_record, d, NULL);
    int rc = d->rings != NULL ? ring_buffer__add(d->rings, calls_fd, on_record, d) : -ENOMEM;
    for (int i = 0; i < BATCHES && rc == 0 && d->full != NULL && d->empty != NULL; i++) {
        struct ltn_drain_batch *b = malloc(sizeof(*b));
        if (b == NULL || ltn_chan_send(d->empty, b, 1) != 0) {
            free(b);
            rc = -ENOMEM;
        }
    }
    if (rc != 0 || d->full == NULL || d->empty == NULL) {
        ltn_drain_free(d);
        return NULL;
    }
    return d;
}

void ltn_drain_free(struct ltn_drain *d)
{
    if (d == NULL) {
        return;
    }
    ring_buffer__free(d->rings);
    ltn_chan_free(d->full, free);
    ltn_chan_free(d->empty, free);
    free(d->current);
    free(d);
}

/* Tells the kernel programs how much to thin out. */
static void adapt(struct ltn_drain *d)
{
    uint64_t read = atomic_load_explicit(&d->read, memory_order_relaxed);
    uint64_t lost = atomic_load_explicit(&d->dropped, memory_order_relaxed);
    if (d->thin == NULL || !ltn_thinning_update(&d->thinning, ltn_now_mono_ns(), read, lost)) {
        return;
    }
    uint32_t least = atomic_load_explicit(&d->least, memory_order_relaxed);
    uint32_t now = d->thinning.one_in > least ? d->thinning.one_in : least;
    __atomic_store_n(d->thin, now, __ATOMIC_RELAXED);
}

static void *run(void *arg)
{
    struct ltn_drain *d = arg;
    int wait_ms = LOOK_BUSY_MS;
    struct pollfd p = {.fd = ring_buffer__epoll_fd(d->rings), .events = POLLIN};
    while (!atomic_load(&d->stop)) {
        (void)poll(&p, 1, wait_ms);
        int n = ring_buffer__consume(d->rings);
        atomic_fetch_add_explicit(&d->looks, 1, memory_order_relaxed);
        adapt(d);
        pass_on_if_wanted(d);
        wait_ms = n > 0 ? LOOK_BUSY_MS : wait_ms * 2;
        if (wait_ms > LOOK_IDLE_MS) {
            wait_ms = LOOK_IDLE_MS;
        }
    }
    (void)ring_buffer__consume(d->rings);
    pass_on(d);
    return NULL;
}

void ltn_drain_control(struct ltn_drain *d, uint32_t *thin)
{
    d->thin = thin;
}

void ltn_drain_set_least(struct ltn_drain *d, uint32_t least)
{
    atomic_store_explicit(&d->least, least, memory_order_relaxed);
}

int ltn_drain_start(struct ltn_drain *d)
{
    int rc = pthread_create(&d->thread, NULL, run, d);
    if (rc == 0) {
        (void)pthread_setname_np(d->thread, "drain");
    }
    return -rc;
}

void ltn_drain_stop(struct ltn_drain *d)
{
    atomic_store(&d->stop, 1);
    (void)pthread_join(d->thread, NULL);
}

struct ltn_drain_batch *ltn_drain_next(struct ltn_drain *d, int timeout_ms)
{
    return timeout_ms == 0 ? ltn_chan_recv(d->full) : ltn_chan_recv_wait(d->full, timeout_ms);
}

void ltn_drain_release(struct ltn_drain *d, struct ltn_drain_batch *b)
{
    if (ltn_chan_send(d->empty, b, 1) != 0) {
        free(b); /* cannot happen: there are as many places as batches */
    }
}

struct ltn_drain_stats ltn_drain_stats(const struct ltn_drain *d)
{
    return (struct ltn_drain_stats){
        .read_total = atomic_load_explicit(&d->read, memory_order_relaxed),
        .dropped_total = atomic_load_explicit(&d->dropped, memory_order_relaxed),
        .malformed_total = atomic_load_explicit(&d->malformed, memory_order_relaxed),
        .looks_total = atomic_load_explicit(&d->looks, memory_order_relaxed),
        .thin = d->thin != NULL ? __atomic_load_n(d->thin, __ATOMIC_RELAXED) : 1,
    };
}
