/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Event loop on epoll: descriptors, timers, signals and calls from other threads. One loop belongs
 * to one thread, the one that runs it; only ltn_loop_post() and ltn_loop_stop() may be called from
 * elsewhere. Watches, timers and tasks are embedded in the objects that use them, so that arming
 * one never allocates for it.
 */
#ifndef LTN_IO_LOOP_H
#define LTN_IO_LOOP_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/attr.h"

struct ltn_loop;

/* A descriptor under watch. Fill it with ltn_loop_watch(); the memory stays the caller's and must
 * live until ltn_loop_unwatch(). */
struct ltn_watch {
    int fd;          /* borrowed; -1 when not under watch */
    uint32_t events; /* EPOLLIN, EPOLLOUT, ... */
    void (*fn)(void *arg, uint32_t events);
    void *arg;
};

/* A one-shot timer. Zero-initialise it; the memory stays the caller's and must live until it fired
 * or was stopped. */
struct ltn_timer {
    uint64_t due_ns; /* CLOCK_MONOTONIC */
    size_t slot;     /* place in the heap plus one; 0 when not armed */
    void (*fn)(void *arg);
    void *arg;
};

/* A call handed over from another thread. The memory belongs to the loop from post until fn is
 * called (fn may free it). */
struct ltn_task {
    struct ltn_task *next;
    void (*fn)(struct ltn_task *task);
};

/* Creates a loop. NULL when memory or descriptors are out; errno tells. */
struct ltn_loop *ltn_loop_new(void) ltn_must_check;

/* Frees a loop that does not run. Tasks still waiting are called first, so that they can free what
 * they own; watches and timers are forgotten. NULL is ignored. */
void ltn_loop_free(struct ltn_loop *l);

/* Runs until ltn_loop_stop(). 0, or -errno when waiting failed. */
int ltn_loop_run(struct ltn_loop *l) ltn_must_check;

/* One round: waits for at most timeout_ms (-1: without limit) and calls what is due. 0 or -errno.
 */
int ltn_loop_step(struct ltn_loop *l, int timeout_ms) ltn_must_check;

/* Makes ltn_loop_run() return after the present round, also when called before it. Any thread. */
void ltn_loop_stop(struct ltn_loop *l);

/* Time of the present round, CLOCK_MONOTONIC, without a system call. Loop thread. */
uint64_t ltn_loop_now_ns(const struct ltn_loop *l);

/* When the loop last found nobody waiting for it, CLOCK_MONOTONIC; before it ran, when it was made.
 * Loop thread. */
uint64_t ltn_loop_rested_ns(const struct ltn_loop *l);

/* Starts watching fd. 0 or -errno. Loop thread. */
int ltn_loop_watch(struct ltn_loop *l, struct ltn_watch *w, int fd, uint32_t events,
                   void (*fn)(void *arg, uint32_t events), void *arg) ltn_must_check;

/* Changes the events; cheap when they stay the same. 0 or -errno. Loop thread. */
int ltn_loop_rewatch(struct ltn_loop *l, struct ltn_watch *w, uint32_t events) ltn_must_check;

/* Stops watching; no call follows, not even for events already reported in this round. Does not
 * close fd; call it before the close. Loop thread. */
void ltn_loop_unwatch(struct ltn_loop *l, struct ltn_watch *w);

/* Arms (or moves) a timer to the absolute time due_ns. 0 or -ENOMEM. Loop thread. */
int ltn_loop_timer_at(struct ltn_loop *l, struct ltn_timer *t, uint64_t due_ns,
                      void (*fn)(void *arg), void *arg) ltn_must_check;

/* Disarms a timer; nothing happens when it is not armed. Loop thread. */
void ltn_loop_timer_stop(struct ltn_loop *l, struct ltn_timer *t);

/* Has task->fn called on the loop's thread. Never fails, never blocks for long; tasks run in the
 * order of posting. Any thread; the loop must outlive the call. */
void ltn_loop_post(struct ltn_loop *l, struct ltn_task *task);

/* Blocks the signals of set in the calling thread (call before starting threads, so that they
 * inherit it) and has fn called on the loop's thread for each that arrives. One set per loop.
 * 0, -EBUSY when already set, or -errno. */
int ltn_loop_signals(struct ltn_loop *l, const sigset_t *set, void (*fn)(void *arg, int signo),
                     void *arg) ltn_must_check;

#endif /* LTN_IO_LOOP_H */
