/* SPDX-License-Identifier: Apache-2.0 */
#include "base/chan.h"

#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/err.h"

struct slot {
    void *item;
    size_t weight_bytes;
};

struct ltn_chan {
    pthread_mutex_t lock; /* guards everything below */
    struct slot *slots;
    size_t max_items;
    size_t max_bytes;
    size_t first;
    size_t count;
    size_t bytes;
    size_t high_water;
    uint64_t refused;
    bool closed;
    int fd; /* eventfd: non-zero exactly while items wait or the channel is closed */
};

struct ltn_chan *ltn_chan_new(size_t max_items, size_t max_bytes)
{
    struct ltn_chan *c = calloc(1, sizeof(*c));
    if (c == NULL) {
        return NULL;
    }
    c->max_items = max_items == 0 ? 1 : max_items;
    c->max_bytes = max_bytes;
    c->slots = calloc(c->max_items, sizeof(*c->slots));
    c->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (c->slots == NULL || c->fd < 0 || pthread_mutex_init(&c->lock, NULL) != 0) {
        if (c->fd >= 0) {
            (void)close(c->fd);
        }
        free(c->slots);
        free(c);
        return NULL;
    }
    return c;
}

void ltn_chan_free(struct ltn_chan *c, void (*free_item)(void *))
{
    if (c == NULL) {
        return;
    }
    for (size_t i = 0; i < c->count && free_item != NULL; i++) {
        free_item(c->slots[(c->first + i) % c->max_items].item);
    }
    (void)pthread_mutex_destroy(&c->lock);
    (void)close(c->fd);
    free(c->slots);
    free(c);
}

static void signal_waiting(struct ltn_chan *c)
{
    const uint64_t one = 1;
    ssize_t put = write(c->fd, &one, sizeof(one));
    (void)put; /* fails only when the counter is already non-zero and full: still readable */
}

static void clear_waiting(struct ltn_chan *c)
{
    uint64_t value;
    ssize_t got = read(c->fd, &value, sizeof(value));
    (void)got; /* EAGAIN: it was clear */
}

int ltn_chan_send(struct ltn_chan *c, void *item, size_t weight_bytes)
{
    int rc = 0;
    (void)pthread_mutex_lock(&c->lock);
    bool too_heavy =
        c->count > 0 && (weight_bytes > c->max_bytes || c->bytes > c->max_bytes - weight_bytes);
    if (c->closed) {
        rc = LTN_ERR_CLOSED;
    } else if (c->count == c->max_items || too_heavy) {
        c->refused++;
        rc = LTN_ERR_BUSY;
    } else {
        c->slots[(c->first + c->count) % c->max_items] =
            (struct slot){.item = item, .weight_bytes = weight_bytes};
        c->count++;
        c->bytes += weight_bytes;
        if (c->count > c->high_water) {
            c->high_water = c->count;
        }
        if (c->count == 1) {
            signal_waiting(c);
        }
    }
    (void)pthread_mutex_unlock(&c->lock);
    return rc;
}

void *ltn_chan_recv(struct ltn_chan *c)
{
    void *item = NULL;
    (void)pthread_mutex_lock(&c->lock);
    if (c->count > 0) {
        item = c->slots[c->first].item;
        c->bytes -= c->slots[c->first].weight_bytes;
        c->first = (c->first + 1) % c->max_items;
        c->count--;
        if (c->count == 0 && !c->closed) {
            clear_waiting(c);
        }
    }
    (void)pthread_mutex_unlock(&c->lock);
    return item;
}

void *ltn_chan_recv_wait(struct ltn_chan *c, int timeout_ms)
{
    void *item = ltn_chan_recv(c);
    if (item != NULL) {
        return item;
    }
    struct pollfd p = {.fd = c->fd, .events = POLLIN};
    (void)poll(&p, 1, timeout_ms);
    return ltn_chan_recv(c);
}

void ltn_chan_close(struct ltn_chan *c)
{
    (void)pthread_mutex_lock(&c->lock);
    c->closed = true;
    signal_waiting(c);
    (void)pthread_mutex_unlock(&c->lock);
}

int ltn_chan_fd(const struct ltn_chan *c)
{
    return c->fd;
}

struct ltn_chan_stats ltn_chan_stats(struct ltn_chan *c)
{
    (void)pthread_mutex_lock(&c->lock);
    struct ltn_chan_stats s = {.items = c->count,
                               .bytes = c->bytes,
                               .high_water_items = c->high_water,
                               .refused_total = c->refused};
    (void)pthread_mutex_unlock(&c->lock);
    return s;
}
