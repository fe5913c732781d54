/* SPDX-License-Identifier: Apache-2.0 */
#include "capture/drain.h"

#include <bpf/libbpf.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/attr.h"
#include "base/chan.h"
#include "base/clock.h"
#include "bpf/event.h"
#include "capture/thinning.h"

#define BATCHES 16
/* The kernel wakes the thread only when a ring fills up, so it looks by itself: often while there
 * is work, rarely when not. */
#define LOOK_BUSY_MS 5
#define LOOK_IDLE_MS 80

/* How long the end waits for batches to come back, for the critical records' sake. */
#define LAST_LOOKS   2000
#define LAST_LOOK_NS 1000000L
/* Room that is made sure of before a critical record is taken out of its ring. */
#define CRITICAL_RECORD_BYTES 256

struct ltn_drain {
    struct ring_buffer *rings;    /* call records */
    struct ring_buffer *critical; /* looked at first, and never thrown away */
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

/* Bytes that the record takes in a batch; 0 when it is none. */
static size_t room_for(struct ltn_drain *d, const void *data, size_t size)
{
    struct ltn_event_hdr hdr = {0};
    size_t room = (size + 7) & ~(size_t)7;
    if (size >= sizeof(hdr)) {
        memcpy(&hdr, data, sizeof(hdr));
    }
    if (size < sizeof(hdr) || hdr.size != size || room > LTN_DRAIN_BATCH_BYTES) {
        atomic_fetch_add_explicit(&d->malformed, 1, memory_order_relaxed);
        return 0;
    }
    return room;
}

static int on_record(void *ctx, void *data, size_t size)
{
    struct ltn_drain *d = ctx;
    atomic_fetch_add_explicit(&d->read, 1, memory_order_relaxed);
    size_t room = room_for(d, data, size);
    if (room == 0) {
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

/* Stops the reading of its ring (that is what a negative value does) when the next record would
 * find no room: it stays in the ring until a batch is free. */
static int on_critical(void *ctx, void *data, size_t size)
{
    struct ltn_drain *d = ctx;
    (void)on_record(ctx, data, size);
    return batch_with_room(d, CRITICAL_RECORD_BYTES) != NULL ? 0 : -ENOBUFS;
}

/* Number of records read, or -ENOBUFS when some had to stay. */
static int consume_critical(struct ltn_drain *d)
{
    return batch_with_room(d, CRITICAL_RECORD_BYTES) != NULL ? ring_buffer__consume(d->critical)
                                                             : -ENOBUFS;
}

struct ltn_drain *ltn_drain_new(int calls_fd, int critical_fd)
{
    struct ltn_drain *d = calloc(1, sizeof(*d));
    if (d == NULL) {
        return NULL;
    }
    d->full = ltn_chan_new(BATCHES, (size_t)BATCHES * LTN_DRAIN_BATCH_BYTES);
    d->empty = ltn_chan_new(BATCHES, BATCHES);
    d->critical = ring_buffer__new(critical_fd, on_critical, d, NULL);
    d->rings = ring_buffer__new(calls_fd, on_record, d, NULL);
    int rc = d->rings != NULL && d->critical != NULL ? 0 : -ENOMEM;
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
    ring_buffer__free(d->critical);
    ltn_chan_free(d->full, free);
    ltn_chan_free(d->empty, free);
    free(d->current);
    free(d);
}

/* Empties both rings; the critical one also when batches have to come back first. */
static void last_look(struct ltn_drain *d)
{
    const struct timespec pause = {.tv_nsec = LAST_LOOK_NS};
    for (int i = 0; i < LAST_LOOKS && consume_critical(d) == -ENOBUFS; i++) {
        (void)nanosleep(&pause, NULL);
    }
    (void)ring_buffer__consume(d->rings);
    pass_on(d);
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
    struct pollfd p[] = {{.fd = ring_buffer__epoll_fd(d->critical), .events = POLLIN},
                         {.fd = ring_buffer__epoll_fd(d->rings), .events = POLLIN}};
    while (!atomic_load(&d->stop)) {
        (void)poll(p, LTN_ARRAY_SIZE(p), wait_ms);
        int critical = consume_critical(d);
        int n = ring_buffer__consume(d->rings);
        atomic_fetch_add_explicit(&d->looks, 1, memory_order_relaxed);
        adapt(d);
        pass_on_if_wanted(d);
        wait_ms = n > 0 || critical != 0 ? LOOK_BUSY_MS : wait_ms * 2;
        if (wait_ms > LOOK_IDLE_MS) {
            wait_ms = LOOK_IDLE_MS;
        }
    }
    last_look(d);
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
