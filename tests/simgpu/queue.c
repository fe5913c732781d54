// SPDX-License-Identifier: Apache-2.0
// Streams: entries run in order, each for its duration. Time is virtual within a stream: an entry
// starts when the one before it ended or when it was enqueued, whichever is later. So whoever looks
// (a waiting caller or the GPU thread) can complete what is due, and the GPU thread sleeps until
// the next moment that somebody is interested in.
#include "engine.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

static struct sim_entry *entry_at(struct sim_stream *s, uint64_t seq)
{
    return &s->ring[seq % SIM_QUEUE_DEPTH];
}

void sim_kick(struct sim_device *dev)
{
    atomic_fetch_add(&dev->bell->word, 1);
    sim_futex_wake(&dev->bell->word, 1);
}

static uint64_t noisy(struct sim_device *dev, uint64_t ns)
{
    uint64_t x = dev->noise_state;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    dev->noise_state = x;
    uint64_t span = ns / 1000 * sim_set.noise_ppm / 1000; // half width of the noise
    return span == 0 ? ns : ns - span + x % (2 * span + 1);
}

static uint64_t entry_ns(struct sim_device *dev, const struct sim_entry *e)
{
    if (e->type == SIM_E_KERNEL)
        return noisy(dev, e->dur_ns) * atomic_load(&dev->shared->factor_permille) / 1000;
    if (e->type == SIM_E_COPY || e->type == SIM_E_SET)
        return e->dur_ns * atomic_load(&dev->shared->copy_permille) / 1000;
    return 0;
}

void sim_entry_release(struct sim_entry *e)
{
    if (e->type == SIM_E_COPY)
        free(e->u.copy.staging);
    if (e->type == SIM_E_COLL)
        free(e->u.coll.ops);
}

static void entry_effects(struct sim_device *dev, struct sim_entry *e)
{
    switch (e->type) {
    case SIM_E_COPY:
        if (e->u.copy.bytes > 0)
            memmove(e->u.copy.dst, e->u.copy.staging != NULL ? e->u.copy.staging : e->u.copy.src,
                    e->u.copy.bytes);
        break;
    case SIM_E_SET:
        memset(e->u.set.dst, e->u.set.value, e->u.set.bytes);
        break;
    case SIM_E_FREE:
        sim_mem_free(dev, (uint64_t)(uintptr_t)e->u.ptr);
        break;
    case SIM_E_EVENT:
        if (e->u.event.event->rec_id == e->u.event.rec_id)
            e->u.event.event->done_ns = e->end_ns;
        break;
    case SIM_E_COLL:
        sim_coll_effects(e->u.coll.ops, e->u.coll.n);
        break;
    default:
        break;
    }
}

static void account_busy(struct sim_device *dev, const struct sim_entry *e)
{
    if (e->type != SIM_E_KERNEL && e->type != SIM_E_COLL)
        return;
    uint64_t from = e->start_ns > dev->busy_until_ns ? e->start_ns : dev->busy_until_ns;
    if (e->end_ns > from) {
        atomic_fetch_add(&dev->shared->busy_ns, e->end_ns - from);
        dev->busy_until_ns = e->end_ns;
    }
}

// Runs a host function without the lock; only the GPU thread does that.
static void run_host(struct sim_device *dev, struct sim_entry *e)
{
    pthread_mutex_unlock(&dev->lock);
    if (e->u.host.callback != NULL)
        e->u.host.callback(e->u.host.stream_handle, 0, e->u.host.arg);
    else
        e->u.host.fn(e->u.host.arg);
    pthread_mutex_lock(&dev->lock);
}

// Tries to bring the head to its end. Returns true when e->end_ns is known.
static bool head_resolve(struct sim_device *dev, struct sim_stream *s, struct sim_entry *e,
                         bool gpu_thread, uint64_t now)
{
    if (!e->started) {
        e->start_ns = e->enq_ns > s->prev_end_ns ? e->enq_ns : s->prev_end_ns;
        if (e->start_ns > now)
            return false;
        e->started = 1;
        e->end_ns = 0;
        if (e->type == SIM_E_COLL)
            sim_coll_arrive(dev, e->u.coll.ops, e->u.coll.n, e->start_ns);
        else if (e->type < SIM_E_DEP)
            e->end_ns = e->start_ns + entry_ns(dev, e);
    }
    if (e->end_ns != 0)
        return true;
    if (e->type == SIM_E_DEP) {
        if (e->u.dep.stream->dev == dev ? atomic_load(&e->u.dep.stream->completed) >= e->u.dep.seq
                                        : sim_stream_reached(e->u.dep.stream, e->u.dep.seq))
            e->end_ns =
                e->u.dep.stream->prev_end_ns > e->start_ns && e->u.dep.stream->prev_end_ns <= now
                    ? e->u.dep.stream->prev_end_ns
                    : e->start_ns;
    } else if (e->type == SIM_E_COLL) {
        e->end_ns = sim_coll_end(e->u.coll.ops, e->u.coll.n, e->start_ns);
    } else if (e->type == SIM_E_HOST && gpu_thread && e->started == 1) {
        e->started = 2;
        run_host(dev, e);
        e->end_ns = sim_now_ns();
    }
    return e->end_ns != 0;
}

// When the GPU thread must look at this stream again, given that its head is not finished.
static uint64_t stream_interest(struct sim_device *dev, struct sim_stream *s)
{
    uint64_t seq = atomic_load(&s->completed);
    struct sim_entry *head = entry_at(s, seq);
    if (head->started && head->end_ns == 0) {
        bool poll = sim_set.coll_timeout_ns != 0 ||
                    (head->type == SIM_E_DEP && head->u.dep.stream->dev != dev);
        return poll ? sim_now_ns() + (head->type == SIM_E_DEP ? 200000u : 100000000u) : SIM_NEVER;
    }
    uint64_t at = head->started                   ? head->end_ns
                  : head->enq_ns > s->prev_end_ns ? head->enq_ns
                                                  : s->prev_end_ns;
    if (!head->started && head->type < SIM_E_DEP)
        at += head->dur_ns;
    if (head->type >= SIM_E_DEP)
        return at;
    // Plain entries behind the head are finished lazily: sleep over the whole run, but not past a
    // waiter's target.
    uint64_t last = seq + 1;
    uint64_t factor = atomic_load(&dev->shared->factor_permille);
    for (; last < s->submitted && last - seq < 256; last++) {
        struct sim_entry *e = entry_at(s, last);
        if (e->type >= SIM_E_DEP || last >= s->wait_seq)
            return at;
        at += e->type == SIM_E_KERNEL ? e->dur_ns * factor / 1000 * 98 / 100 : e->dur_ns;
    }
    bool wanted = s->wait_seq <= last || last < s->submitted;
    return wanted ? at : SIM_NEVER;
}

// A stream whose head waits for another stream of this device is a waiter of that stream.
static void arm_dependencies(struct sim_device *dev)
{
    for (size_t i = 0; i < SIM_MAX_STREAMS; i++) {
        struct sim_stream *s = &dev->streams[i];
        if (s->ring == NULL || atomic_load(&s->completed) >= s->submitted)
            continue;
        const struct sim_entry *head = entry_at(s, atomic_load(&s->completed));
        if (head->type != SIM_E_DEP || head->end_ns != 0 || head->u.dep.stream->dev != dev)
            continue;
        if (head->u.dep.seq < head->u.dep.stream->wait_seq)
            head->u.dep.stream->wait_seq = head->u.dep.seq;
    }
}

uint64_t sim_advance_locked(struct sim_device *dev, bool gpu_thread)
{
    bool progress = true, wake = false;
    uint64_t now = sim_now_ns();
    uint64_t next = SIM_NEVER, inflight = 0;
    while (progress) {
        progress = false;
        for (size_t i = 0; i < SIM_MAX_STREAMS; i++) {
            struct sim_stream *s = &dev->streams[i];
            if (s->ring == NULL)
                continue;
            while (atomic_load(&s->completed) < s->submitted) {
                struct sim_entry *e = entry_at(s, atomic_load(&s->completed));
                if (!head_resolve(dev, s, e, gpu_thread, now) || e->end_ns > now)
                    break;
                entry_effects(dev, e);
                account_busy(dev, e);
                if (e->end_ns > s->prev_end_ns)
                    s->prev_end_ns = e->end_ns;
                sim_entry_release(e);
                uint64_t done = atomic_load(&s->completed) + 1;
                atomic_store(&s->completed, done);
                progress = true;
                if (done >= s->wait_seq) {
                    wake = true;
                    s->wait_seq = SIM_NEVER;
                }
            }
        }
    }
    arm_dependencies(dev);
    for (size_t i = 0; i < SIM_MAX_STREAMS; i++) {
        struct sim_stream *s = &dev->streams[i];
        if (s->ring == NULL || atomic_load(&s->completed) >= s->submitted)
            continue;
        struct sim_entry *head = entry_at(s, atomic_load(&s->completed));
        if (head->started && head->type != SIM_E_DEP &&
            (inflight == 0 || head->start_ns < inflight))
            inflight = head->start_ns;
        uint64_t at = stream_interest(dev, s);
        next = at < next ? at : next;
    }
    atomic_store(&dev->shared->inflight_since_ns, inflight);
    if (wake)
        pthread_cond_broadcast(&dev->done);
    return next;
}

void *sim_gpu_thread(void *arg)
{
    struct sim_device *dev = arg;
    prctl(PR_SET_NAME, "cuda-EvtHandlr");
    prctl(PR_SET_TIMERSLACK, 1);
    for (;;) {
        uint32_t seen = atomic_load(&dev->bell->word);
        pthread_mutex_lock(&dev->lock);
        uint64_t next = sim_advance_locked(dev, true);
        atomic_store(&dev->wake_ns, next);
        pthread_mutex_unlock(&dev->lock);
        if (next > sim_now_ns())
            sim_futex_wait(&dev->bell->word, seen, next == SIM_NEVER ? 0 : next);
    }
    return NULL;
}

struct sim_stream *sim_stream_new(struct sim_device *dev, uint32_t flags)
{
    struct sim_stream *s = NULL;
    pthread_mutex_lock(&dev->lock);
    for (size_t i = 0; i < SIM_MAX_STREAMS && s == NULL; i++) {
        struct sim_stream *c = &dev->streams[i];
        if (!c->live && atomic_load(&c->completed) >= c->submitted)
            s = c;
    }
    if (s != NULL && s->ring == NULL)
        s->ring = calloc(SIM_QUEUE_DEPTH, sizeof(*s->ring));
    if (s != NULL && s->ring != NULL) {
        s->dev = dev;
        s->live = 1;
        s->flags = flags;
        s->capture = NULL;
        s->wait_seq = SIM_NEVER;
    } else {
        s = NULL;
    }
    pthread_mutex_unlock(&dev->lock);
    return s;
}

void sim_stream_free(struct sim_stream *s)
{
    pthread_mutex_lock(&s->dev->lock);
    s->live = 0; // pending entries still run
    pthread_mutex_unlock(&s->dev->lock);
}

static int graph_append(struct sim_graph *g, const struct sim_entry *e)
{
    if (g->n == g->cap) {
        uint32_t cap = g->cap == 0 ? 64 : g->cap * 2;
        struct sim_entry *nodes = realloc(g->nodes, cap * sizeof(*nodes));
        if (nodes == NULL)
            return 2;
        g->nodes = nodes;
        g->cap = cap;
    }
    g->nodes[g->n++] = *e;
    g->kernels += e->type == SIM_E_KERNEL;
    g->copies += e->type == SIM_E_COPY;
    return 0;
}

static bool waits_block(struct sim_device *dev, bool force_block)
{
    if (sim_set.wait != 0)
        return sim_set.wait == 2;
    return force_block || (dev->sched_flags & 7) == 4;
}

// One round of waiting for s to reach seq, entered and left with the lock held.
static void wait_round(struct sim_stream *s, uint64_t seq, bool block)
{
    struct sim_device *dev = s->dev;
    if (seq < s->wait_seq)
        s->wait_seq = seq;
    uint64_t next = sim_advance_locked(dev, false);
    if (atomic_load(&s->completed) >= seq)
        return;
    if (next < atomic_load(&dev->wake_ns))
        sim_kick(dev);
    if (block) {
        pthread_cond_wait(&dev->done, &dev->lock);
        return;
    }
    uint64_t look = sim_now_ns() + 20000;
    if (next < look)
        look = next;
    bool yield = (dev->sched_flags & 7) == 2;
    pthread_mutex_unlock(&dev->lock);
    while (sim_now_ns() < look && atomic_load(&s->completed) < seq) {
        if (yield)
            sched_yield();
    }
    pthread_mutex_lock(&dev->lock);
}

static void wait_locked(struct sim_stream *s, uint64_t seq, bool block)
{
    while (atomic_load(&s->completed) < seq)
        wait_round(s, seq, block);
}

// Pushes with the lock held; the queue may be full, then the caller waits as the real one does.
static void push_locked(struct sim_stream *s, struct sim_entry *e, uint64_t *ret_seq)
{
    struct sim_device *dev = s->dev;
    if (s->submitted - atomic_load(&s->completed) >= SIM_QUEUE_DEPTH)
        sim_advance_locked(dev, false);
    while (s->submitted - atomic_load(&s->completed) >= SIM_QUEUE_DEPTH)
        wait_round(s, s->submitted - SIM_QUEUE_DEPTH + 1, waits_block(dev, false));
    if (e->type == SIM_E_COLL)
        sim_coll_assign(e->u.coll.ops, e->u.coll.n);
    e->enq_ns = sim_now_ns();
    e->started = 0;
    e->end_ns = 0;
    *entry_at(s, s->submitted) = *e;
    s->submitted++;
    if (e->type == SIM_E_EVENT) {
        e->u.event.event->stream = s;
        e->u.event.event->seq = s->submitted;
        e->u.event.event->rec_id = e->u.event.rec_id;
        e->u.event.event->done_ns = 0;
    }
    if (ret_seq != NULL)
        *ret_seq = s->submitted;
    if (e->type >= SIM_E_DEP) {
        uint64_t next = sim_advance_locked(dev, false);
        if (e->type == SIM_E_HOST || next < atomic_load(&dev->wake_ns))
            sim_kick(dev);
    }
}

// The legacy default stream and the blocking streams wait for each other.
static void legacy_order_locked(struct sim_stream *s)
{
    struct sim_device *dev = s->dev;
    for (size_t i = 0; i < SIM_MAX_STREAMS; i++) {
        struct sim_stream *o = s->legacy ? &dev->streams[i] : dev->null_stream;
        bool ordered = o != s && o->ring != NULL && (o->flags & 1) == 0;
        if (ordered && atomic_load(&o->completed) < o->submitted) {
            struct sim_entry dep = {.type = SIM_E_DEP};
            dep.u.dep.stream = o;
            dep.u.dep.seq = o->submitted;
            push_locked(s, &dep, NULL);
        }
        if (!s->legacy)
            break;
    }
}

int sim_push(struct sim_stream *s, struct sim_entry *e, uint64_t *ret_seq)
{
    int rc = 0;
    sim_burn_ns(sim_set.launch_ns);
    pthread_mutex_lock(&s->dev->lock);
    if (s->dev->sticky_error != 0) {
        rc = s->dev->sticky_error;
        sim_entry_release(e);
    } else if (s->capture != NULL) {
        rc = graph_append(s->capture, e);
    } else {
        if ((s->flags & 1) == 0)
            legacy_order_locked(s);
        push_locked(s, e, ret_seq);
    }
    pthread_mutex_unlock(&s->dev->lock);
    return rc;
}

bool sim_stream_reached(struct sim_stream *s, uint64_t seq)
{
    if (atomic_load(&s->completed) >= seq)
        return true;
    if (pthread_mutex_trylock(&s->dev->lock) ==
        0) { // never waits: two devices may look at each other
        sim_advance_locked(s->dev, false);
        pthread_mutex_unlock(&s->dev->lock);
    }
    return atomic_load(&s->completed) >= seq;
}

int sim_stream_wait(struct sim_stream *s, uint64_t seq, bool force_block)
{
    pthread_mutex_lock(&s->dev->lock);
    wait_locked(s, seq, waits_block(s->dev, force_block));
    int rc = s->dev->sticky_error;
    pthread_mutex_unlock(&s->dev->lock);
    return rc;
}

int sim_stream_sync(struct sim_stream *s, bool force_block)
{
    if (s->capture != NULL)
        return 900;
    pthread_mutex_lock(&s->dev->lock);
    uint64_t seq = s->submitted;
    pthread_mutex_unlock(&s->dev->lock);
    return sim_stream_wait(s, seq, force_block);
}

int sim_device_sync(struct sim_device *dev)
{
    static _Thread_local uint64_t targets[SIM_MAX_STREAMS];
    pthread_mutex_lock(&dev->lock);
    for (size_t i = 0; i < SIM_MAX_STREAMS; i++)
        targets[i] = dev->streams[i].ring == NULL ? 0 : dev->streams[i].submitted;
    for (size_t i = 0; i < SIM_MAX_STREAMS; i++) {
        if (targets[i] != 0)
            wait_locked(&dev->streams[i], targets[i], waits_block(dev, false));
    }
    int rc = dev->sticky_error;
    pthread_mutex_unlock(&dev->lock);
    return rc;
}

int sim_event_record(struct sim_event *event, struct sim_stream *s)
{
    static _Atomic uint64_t record_ids;
    struct sim_entry e = {.type = SIM_E_EVENT};
    e.u.event.event = event;
    e.u.event.rec_id = atomic_fetch_add(&record_ids, 1) + 1;
    event->capture = s->capture;
    return sim_push(s, &e, NULL);
}

static bool is_open(const struct sim_device *dev, const struct sim_graph *g)
{
    for (size_t i = 0; g != NULL && i < SIM_MAX_STREAMS; i++) {
        if (dev->streams[i].capture == g)
            return true;
    }
    return false;
}

void sim_capture_end(struct sim_stream *s)
{
    const struct sim_graph *g = s->capture;
    for (size_t i = 0; i < SIM_MAX_STREAMS; i++) {
        if (s->dev->streams[i].capture == g)
            s->dev->streams[i].capture = NULL;
    }
}

// Who waits for an event that was recorded into a graph is captured from then on; the graph stays
// one sequence, in the order of the calls.
int sim_event_wait(struct sim_stream *s, struct sim_event *event)
{
    if (is_open(s->dev, event->capture)) {
        s->capture = s->capture == NULL ? event->capture : s->capture;
        return s->capture == event->capture ? 0 : 902;
    }
    if (event->stream == NULL || s->capture != NULL)
        return 0;
    struct sim_entry e = {.type = SIM_E_DEP};
    e.u.dep.stream = event->stream;
    e.u.dep.seq = event->seq;
    return sim_push(s, &e, NULL);
}
