/* SPDX-License-Identifier: Apache-2.0 */
#include "io/loop.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/clock.h"

#define EVENTS_PER_ROUND 128

struct ltn_loop {
    int epoll_fd;
    int wake_fd;
    atomic_bool stop;
    uint64_t now_ns;
    uint64_t rested_ns;

    struct ltn_watch wake_watch;
    struct ltn_watch signal_watch;
    int signal_fd;
    void (*signal_fn)(void *arg, int signo);
    void *signal_arg;

    /* Binary heap by due time; slot i of a timer is its index + 1. */
    struct ltn_timer **heap;
    size_t heap_len;
    size_t heap_size;

    /* What epoll reported in this round; ltn_loop_unwatch() clears what must not be called. */
    struct epoll_event batch[EVENTS_PER_ROUND];
    int batch_len;

    pthread_mutex_t lock; /* protects the task list */
    struct ltn_task *task_head;
    struct ltn_task *task_tail;
};

static void heap_set(struct ltn_loop *l, size_t i, struct ltn_timer *t)
{
    l->heap[i] = t;
    t->slot = i + 1;
}

static void heap_up(struct ltn_loop *l, size_t i)
{
    struct ltn_timer *t = l->heap[i];
    while (i > 0) {
        size_t parent = (i - 1) / 2;
        if (l->heap[parent]->due_ns <= t->due_ns) {
            break;
        }
        heap_set(l, i, l->heap[parent]);
        i = parent;
    }
    heap_set(l, i, t);
}

static void heap_down(struct ltn_loop *l, size_t i)
{
    struct ltn_timer *t = l->heap[i];
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= l->heap_len) {
            break;
        }
        if (child + 1 < l->heap_len && l->heap[child + 1]->due_ns < l->heap[child]->due_ns) {
            child++;
        }
        if (t->due_ns <= l->heap[child]->due_ns) {
            break;
        }
        heap_set(l, i, l->heap[child]);
        i = child;
    }
    heap_set(l, i, t);
}

static int heap_grow(struct ltn_loop *l)
{
    if (l->heap_len < l->heap_size) {
        return 0;
    }
    size_t size = l->heap_size == 0 ? 64 : l->heap_size * 2;
    struct ltn_timer **heap = reallocarray(l->heap, size, sizeof(*heap));
    if (heap == NULL) {
        return -ENOMEM;
    }
    l->heap = heap;
    l->heap_size = size;
    return 0;
}

int ltn_loop_timer_at(struct ltn_loop *l, struct ltn_timer *t, uint64_t due_ns,
                      void (*fn)(void *arg), void *arg)
{
    t->fn = fn;
    t->arg = arg;
    if (t->slot != 0) {
        uint64_t before = t->due_ns;
        t->due_ns = due_ns;
        if (due_ns < before) {
            heap_up(l, t->slot - 1);
        } else {
            heap_down(l, t->slot - 1);
        }
        return 0;
    }
    int rc = heap_grow(l);
    if (rc != 0) {
        return rc;
    }
    t->due_ns = due_ns;
    heap_set(l, l->heap_len, t);
    l->heap_len++;
    heap_up(l, t->slot - 1);
    return 0;
}

void ltn_loop_timer_stop(struct ltn_loop *l, struct ltn_timer *t)
{
    if (t->slot == 0) {
        return;
    }
    size_t i = t->slot - 1;
    t->slot = 0;
    l->heap_len--;
    if (i == l->heap_len) {
        return;
    }
    heap_set(l, i, l->heap[l->heap_len]);
    heap_up(l, i);
    heap_down(l, i);
}

static void run_timers(struct ltn_loop *l)
{
    /* Timers armed by these calls for "now" wait for the next round, so that a callback that
     * re-arms itself cannot keep the descriptors waiting. */
    uint64_t until_ns = l->now_ns;
    size_t left = l->heap_len;
    while (left > 0 && l->heap_len > 0 && l->heap[0]->due_ns <= until_ns) {
        struct ltn_timer *t = l->heap[0];
        ltn_loop_timer_stop(l, t);
        t->fn(t->arg);
        left--;
    }
}

static void drain_counter(int fd)
{
    uint64_t count;
    ssize_t n = read(fd, &count, sizeof(count));
    (void)n; /* the value does not matter, EAGAIN neither */
}

static void run_tasks(struct ltn_loop *l)
{
    pthread_mutex_lock(&l->lock);
    struct ltn_task *task = l->task_head;
    l->task_head = NULL;
    l->task_tail = NULL;
    pthread_mutex_unlock(&l->lock);
    while (task != NULL) {
        struct ltn_task *next = task->next;
        task->fn(task);
        task = next;
    }
}

static void on_wake(void *arg, uint32_t events)
{
    struct ltn_loop *l = arg;
    (void)events;
    drain_counter(l->wake_fd);
    run_tasks(l);
}

static void wake(struct ltn_loop *l)
{
    const uint64_t one = 1;
    ssize_t n = write(l->wake_fd, &one, sizeof(one));
    (void)n; /* fails only when the counter is full, and then the loop is awake anyway */
}

struct ltn_loop *ltn_loop_new(void)
{
    struct ltn_loop *l = calloc(1, sizeof(*l));
    if (l == NULL) {
        return NULL;
    }
    l->signal_fd = -1;
    l->wake_fd = -1;
    l->now_ns = l->rested_ns = ltn_now_mono_ns();
    pthread_mutex_init(&l->lock, NULL);
    l->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (l->epoll_fd < 0) {
        goto fail;
    }
    l->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (l->wake_fd < 0) {
        goto fail;
    }
    if (ltn_loop_watch(l, &l->wake_watch, l->wake_fd, EPOLLIN, on_wake, l) != 0) {
        goto fail;
    }
    return l;

fail:;
    int saved = errno;
    if (l->wake_fd >= 0) {
        close(l->wake_fd);
    }
    if (l->epoll_fd >= 0) {
        close(l->epoll_fd);
    }
    pthread_mutex_destroy(&l->lock);
    free(l);
    errno = saved;
    return NULL;
}

void ltn_loop_free(struct ltn_loop *l)
{
    if (l == NULL) {
        return;
    }
    while (l->task_head != NULL) {
        run_tasks(l);
    }
    if (l->signal_fd >= 0) {
        close(l->signal_fd);
    }
    close(l->wake_fd);
    close(l->epoll_fd);
    pthread_mutex_destroy(&l->lock);
    free(l->heap);
    free(l);
}

static int wait_ms(const struct ltn_loop *l, int timeout_ms)
{
    if (atomic_load(&l->stop)) {
        return 0;
    }
    if (l->heap_len == 0) {
        return timeout_ms;
    }
    uint64_t now_ns = ltn_now_mono_ns();
    uint64_t due_ns = l->heap[0]->due_ns;
    if (due_ns <= now_ns) {
        return 0;
    }
    /* Rounded up: waking early would only spin. */
    uint64_t ms = (due_ns - now_ns + LTN_NS_PER_MS - 1) / LTN_NS_PER_MS;
    if (ms > INT_MAX) {
        ms = INT_MAX;
    }
    if (timeout_ms >= 0 && (uint64_t)timeout_ms < ms) {
        return timeout_ms;
    }
    return (int)ms;
}

/* Looks first, so that it is known when nobody waited. */
static int next_events(struct ltn_loop *l, int timeout_ms)
{
    int ms = wait_ms(l, timeout_ms);
    int n = epoll_wait(l->epoll_fd, l->batch, EVENTS_PER_ROUND, 0);
    if (n != 0) {
        return n;
    }
    if (ms != 0) {
        n = epoll_wait(l->epoll_fd, l->batch, EVENTS_PER_ROUND, ms);
    }
    l->rested_ns = ltn_now_mono_ns();
    return n;
}

int ltn_loop_step(struct ltn_loop *l, int timeout_ms)
{
    int n = next_events(l, timeout_ms);
    if (n < 0 && errno != EINTR) {
        return -errno;
    }
    l->now_ns = ltn_now_mono_ns();
    l->batch_len = n > 0 ? n : 0;
    for (int i = 0; i < l->batch_len; i++) {
        struct ltn_watch *w = l->batch[i].data.ptr;
        if (w != NULL) {
            w->fn(w->arg, l->batch[i].events);
        }
    }
    l->batch_len = 0;
    run_timers(l);
    return 0;
}

int ltn_loop_run(struct ltn_loop *l)
{
    l->rested_ns = ltn_now_mono_ns();
    while (!atomic_load(&l->stop)) {
        int rc = ltn_loop_step(l, -1);
        if (rc != 0) {
            return rc;
        }
    }
    atomic_store(&l->stop, false);
    return 0;
}

uint64_t ltn_loop_rested_ns(const struct ltn_loop *l)
{
    return l->rested_ns;
}

void ltn_loop_stop(struct ltn_loop *l)
{
    atomic_store(&l->stop, true);
    wake(l);
}

uint64_t ltn_loop_now_ns(const struct ltn_loop *l)
{
    return l->now_ns;
}

int ltn_loop_watch(struct ltn_loop *l, struct ltn_watch *w, int fd, uint32_t events,
                   void (*fn)(void *arg, uint32_t events), void *arg)
{
    struct epoll_event ev = {.events = events, .data.ptr = w};
    w->fn = fn;
    w->arg = arg;
    w->events = events;
    if (epoll_ctl(l->epoll_fd, EPOLL_CTL_ADD, fd, &ev) != 0) {
        w->fd = -1;
        return -errno;
    }
    w->fd = fd;
    return 0;
}

int ltn_loop_rewatch(struct ltn_loop *l, struct ltn_watch *w, uint32_t events)
{
    if (w->events == events) {
        return 0;
    }
    struct epoll_event ev = {.events = events, .data.ptr = w};
    if (epoll_ctl(l->epoll_fd, EPOLL_CTL_MOD, w->fd, &ev) != 0) {
        return -errno;
    }
    w->events = events;
    return 0;
}

void ltn_loop_unwatch(struct ltn_loop *l, struct ltn_watch *w)
{
    if (w->fd < 0) {
        return;
    }
    (void)epoll_ctl(l->epoll_fd, EPOLL_CTL_DEL, w->fd, NULL);
    w->fd = -1;
    for (int i = 0; i < l->batch_len; i++) {
        if (l->batch[i].data.ptr == w) {
            l->batch[i].data.ptr = NULL;
        }
    }
}

void ltn_loop_post(struct ltn_loop *l, struct ltn_task *task)
{
    task->next = NULL;
    pthread_mutex_lock(&l->lock);
    bool was_empty = l->task_head == NULL;
    if (was_empty) {
        l->task_head = task;
    } else {
        l->task_tail->next = task;
    }
    l->task_tail = task;
    /* Under the lock: once it is released the loop may run the task and be freed by its owner. */
    if (was_empty) {
        wake(l);
    }
    pthread_mutex_unlock(&l->lock);
}

static void on_signal(void *arg, uint32_t events)
{
    struct ltn_loop *l = arg;
    struct signalfd_siginfo info;
    (void)events;
    while (read(l->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        l->signal_fn(l->signal_arg, (int)info.ssi_signo);
    }
}

int ltn_loop_signals(struct ltn_loop *l, const sigset_t *set, void (*fn)(void *arg, int signo),
                     void *arg)
{
    if (l->signal_fd >= 0) {
        return -EBUSY;
    }
    int rc = pthread_sigmask(SIG_BLOCK, set, NULL);
    if (rc != 0) {
        return -rc;
    }
    int fd = signalfd(-1, set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (fd < 0) {
        return -errno;
    }
    rc = ltn_loop_watch(l, &l->signal_watch, fd, EPOLLIN, on_signal, l);
    if (rc != 0) {
        close(fd);
        return rc;
    }
    l->signal_fd = fd;
    l->signal_fn = fn;
    l->signal_arg = arg;
    return 0;
}
