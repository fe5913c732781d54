/* SPDX-License-Identifier: Apache-2.0 */
#include "capture/aggregate.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/map.h"
#include "base/text.h"
#include "capture/build.h"
#include "capture/cgroups.h"
#include "capture/host_state.h"
#include "capture/host_maps.h"
#include "capture/kernel_maps.h"
#include "capture/place.h"
#include "capture/procs.h"
#include "capture/system.h"
#include "stats/exphist.h"

#define PROCS_MAX     8192
#define CALLS_BATCH   1024
#define CALLS_HOLD_NS (250 * LTN_NS_PER_MS)
#define LOOP_WAIT_MS  100
/* Stacks known to have arrived; beyond it all are forgotten and come once more. */
#define STACKS_MAX 65536
/* A call is slow when it takes this many times its op's 99th percentile, and longer than the floor.
 */
#define SLOW_FACTOR    2
#define SLOW_FLOOR_NS  (20 * LTN_NS_PER_US)
#define SLOW_MIN_CALLS 200

struct ltn_aggregate {
    struct ltn_aggregate_opts opts;
    struct ltn_procs procs;
    struct ltn_call_batch *calls;
    uint64_t calls_since_ns;
    struct ltn_map stacks; /* stack id -> not NULL */
    uint64_t unix_minus_mono_ns;
    struct ltn_gpu_view *gpu_view;
    uint64_t window_start_ns;
    uint64_t window_end_ns;
    uint64_t slow[LTN_OP_COUNT];
    struct ltn_pressure pressure;
    struct ltn_host_maps host;
    struct ltn_cgroups cgroups;
    struct ltn_host_sampler sampler;
    struct ltn_host_keeper keeper;
    pthread_t thread;
    _Atomic int stop;
    _Atomic uint64_t map_bytes;
    pthread_mutex_t stats_lock; /* guards shared, price, coverage and activity */
    struct ltn_aggregate_stats shared;
    struct ltn_price_health price;
    struct ltn_coverage coverage;
    struct ltn_activity *activity; /* ascending tgid */
    size_t activity_count;
    struct ltn_aggregate_stats stats; /* aggregate thread */
};

/* ---- records
 * ----------------------------------------------------------------------------------------------------------------
 */

/* Makes the kernel send a stack once more when it is met again. */
static void ask_again(struct ltn_aggregate *a, uint64_t stack_id)
{
    (void)bpf_map_delete_elem(a->opts.maps.stacks_sent, &stack_id);
}

/* A stack comes before the calls that refer to it. One that did not was lost on the way; or it is
 * on its way from another CPU, then it comes twice. */
static void ask_for_missing(struct ltn_aggregate *a, const struct ltn_call_batch *b)
{
    for (size_t i = 0; a->opts.stacks.stack != NULL && i < b->count; i++) {
        uint64_t id = b->calls[i].stack_id;
        if (id != 0 && ltn_map_get_u64(&a->stacks, id) == NULL) {
            a->stats.stacks_asked++;
            ask_again(a, id);
        }
    }
}

static void on_stack(struct ltn_aggregate *a, const unsigned char *data, size_t size)
{
    struct ltn_event_stack e;
    const size_t head = offsetof(struct ltn_event_stack, native);
    memset(&e, 0, sizeof(e));
    memcpy(&e, data, size < sizeof(e) ? size : sizeof(e));
    size_t want = e.python_count > 0 ? offsetof(struct ltn_event_stack, python) +
                                           (size_t)e.python_count * sizeof(e.python[0])
                                     : head + (size_t)e.native_count * sizeof(e.native[0]);
    if (size < head || e.native_count > LTN_STACK_NATIVE || e.python_count > LTN_STACK_PYTHON ||
        size != want) {
        a->stats.unknown_records++;
        return;
    }
    a->stats.stacks_total++;
    struct ltn_cap_proc *p =
        a->opts.stacks.stack != NULL ? ltn_procs_get(&a->procs, e.hdr.tgid) : NULL;
    if (p == NULL) {
        return;
    }
    if (a->stacks.len >= STACKS_MAX) {
        ltn_map_done(&a->stacks, NULL);
        ltn_map_init(&a->stacks, STACKS_MAX);
    }
    /* Without the start it is not known which process of this number it is; the record that says so
     * comes through the other ring. */
    if (p->id.start_unix_ns == 0 ||
        a->opts.stacks.stack(a->opts.stacks.ctx, &e, p->id.start_unix_ns) != 0 ||
        ltn_map_put_u64(&a->stacks, e.stack_id, a) != 0) {
        ask_again(a, e.stack_id);
    }
}

static void flush_calls(struct ltn_aggregate *a)
{
    struct ltn_call_batch *b = a->calls;
    if (b == NULL || b->count == 0) {
        return;
    }
    for (size_t i = 0; i < b->count; i++) {
        /* A call may overtake the record that says whose it is: they use different rings. */
        const struct ltn_cap_proc *p =
            b->calls[i].proc_start_ns == 0 ? ltn_procs_find(&a->procs, b->calls[i].pid) : NULL;
        if (p != NULL) {
            b->calls[i].proc_start_ns = p->id.start_unix_ns;
        }
    }
    ask_for_missing(a, b);
    if (a->opts.sink.calls(a->opts.sink.ctx, b) == 0) {
        a->calls = NULL;
        return;
    }
    a->stats.batches_dropped++;
    a->stats.calls_dropped += b->count;
    b->count = 0;
}

static struct ltn_call *next_call(struct ltn_aggregate *a)
{
    if (a->calls != NULL && a->calls->count == a->calls->capacity) {
        flush_calls(a);
    }
    if (a->calls == NULL) {
        a->calls = malloc(sizeof(*a->calls) + CALLS_BATCH * sizeof(struct ltn_call));
        if (a->calls == NULL) {
            a->stats.calls_dropped++;
            return NULL;
        }
        a->calls->count = 0;
        a->calls->capacity = CALLS_BATCH;
    }
    if (a->calls->count == 0) {
        a->calls_since_ns = ltn_now_mono_ns();
    }
    return &a->calls->calls[a->calls->count++];
}

/* Keeps a call for the sink. segment_ns, comm_id and sequence come from the longer kinds of record.
 */
static void keep_call(struct ltn_aggregate *a, const struct ltn_cap_proc *p,
                      const struct ltn_event_call *e, uint64_t segment_ns, uint64_t comm_id,
                      uint64_t sequence)
{
    struct ltn_call *c = a->opts.sink.calls != NULL ? next_call(a) : NULL;
    if (c == NULL) {
        return;
    }
    uint64_t off = e->off_cpu_ns < e->duration_ns ? e->off_cpu_ns : e->duration_ns;
    uint64_t queued = e->run_queue_ns < off ? e->run_queue_ns : off;
    *c = (struct ltn_call){
        .time_ns = e->hdr.time_ns + a->unix_minus_mono_ns,
        .duration_ns = e->duration_ns,
        .on_cpu_ns = e->duration_ns - off,
        .run_queue_ns = queued,
        .blocked_ns = off - queued,
        .bytes = e->bytes,
        .handle = e->handle,
        .comm_id = comm_id,
        .sequence = sequence,
        .segment_ns = segment_ns,
        .stack_id = e->stack_id,
        .pid = e->hdr.tgid,
        .tid = e->hdr.tid,
        .proc_start_ns = p->id.start_unix_ns,
        .weight = e->weight,
        .result = e->result,
        .major_faults = e->major_faults,
        .minor_faults = e->minor_faults,
        .op = e->op,
        .flags = e->flags,
        .kind = (uint8_t)e->kind,
    };
}

static void on_sync(struct ltn_aggregate *a, struct ltn_cap_proc *p, const struct ltn_event_sync *e)
{
    if (e->call.flags & LTN_CALL_PEERS) {
        ltn_steps_add_wait(&p->steps);
    }
    keep_call(a, p, &e->call, e->segment_ns, 0, 0);
}

static void on_collective(struct ltn_aggregate *a, struct ltn_cap_proc *p,
                          const struct ltn_event_collective *e)
{
    if (!(e->call.flags &
          LTN_CALL_CAPTURED)) { /* else the launches of its graph are in its place */
        ltn_steps_add_collective(&p->steps, e->comm_id, e->call.op, e->count, e->data_type);
    }
    keep_call(a, p, &e->call, 0, e->comm_id, e->sequence);
}

static void on_graph(struct ltn_aggregate *a, struct ltn_cap_proc *p,
                     const struct ltn_event_graph *e)
{
    if (e->collectives > 0) {
        ltn_steps_add_graph(&p->steps, e->signature, e->collectives);
    }
    keep_call(a, p, &e->call, 0, 0, 0);
}

static void on_process(struct ltn_aggregate *a, const struct ltn_event_process *e)
{
    bool of_interest =
        e->hdr.type == LTN_EVENT_SEEN || (e->hdr.type == LTN_EVENT_EXIT && e->hdr.reserved == 0);
    ltn_host_maps_event(&a->host, e, e->hdr.time_ns + a->unix_minus_mono_ns);
    struct ltn_cap_proc *p = of_interest ? ltn_procs_get(&a->procs, e->hdr.tgid)
                                         : ltn_procs_find(&a->procs, e->hdr.tgid);
    if (p == NULL) {
        return;
    }
    if (e->hdr.type == LTN_EVENT_EXEC) {
        ltn_procs_identify(&a->procs, p);
    }
    if (e->hdr.type != LTN_EVENT_OOM) {
        ltn_procs_told(p, e);
    }
    if (e->hdr.type == LTN_EVENT_SEEN) {
        ltn_host_maps_adopt(&a->opts.maps, e->hdr.tgid);
    }
    if (e->hdr.type == LTN_EVENT_EXIT) {
        p->ended = true;
    }
    p->oom = p->oom || e->hdr.type == LTN_EVENT_OOM;
}

static void on_record(struct ltn_aggregate *a, const unsigned char *data, size_t size)
{
    union {
        struct ltn_event_hdr hdr;
        struct ltn_event_call call;
        struct ltn_event_sync sync;
        struct ltn_event_collective collective;
        struct ltn_event_comm comm;
        struct ltn_event_process process;
        struct ltn_event_graph graph;
    } e;
    static const size_t sizes[] = {
        [LTN_EVENT_CALL] = sizeof(e.call),
        [LTN_EVENT_SYNC] = sizeof(e.sync),
        [LTN_EVENT_COLLECTIVE] = sizeof(e.collective),
        [LTN_EVENT_COMM] = sizeof(e.comm),
        [LTN_EVENT_EXEC] = sizeof(e.process),
        [LTN_EVENT_EXIT] = sizeof(e.process),
        [LTN_EVENT_FORK] = sizeof(e.process),
        [LTN_EVENT_OOM] = sizeof(e.process),
        [LTN_EVENT_SEEN] = sizeof(e.process),
        [LTN_EVENT_GRAPH] = sizeof(e.graph),
    };
    memcpy(&e.hdr, data, sizeof(e.hdr));
    if (e.hdr.type == LTN_EVENT_STACK) {
        on_stack(a, data, size);
        return;
    }
    if (e.hdr.type == LTN_EVENT_PYTHON_CODE) {
        if (a->opts.stacks.code != NULL) {
            a->opts.stacks.code(a->opts.stacks.ctx, data, size);
        }
        return;
    }
    if (e.hdr.type >= LTN_ARRAY_SIZE(sizes) || sizes[e.hdr.type] != size || size == 0) {
        a->stats.unknown_records++;
        return;
    }
    memcpy(&e, data, size);
    if (e.hdr.type >= LTN_EVENT_EXEC && e.hdr.type != LTN_EVENT_GRAPH) {
        on_process(a, &e.process);
        return;
    }
    struct ltn_cap_proc *p = e.call.op < LTN_OP_COUNT ? ltn_procs_get(&a->procs, e.hdr.tgid) : NULL;
    if (p == NULL) {
        a->stats.unknown_records++;
        return;
    }
    switch (e.hdr.type) {
    case LTN_EVENT_SYNC:
        on_sync(a, p, &e.sync);
        break;
    case LTN_EVENT_COLLECTIVE:
        on_collective(a, p, &e.collective);
        break;
    case LTN_EVENT_GRAPH:
        on_graph(a, p, &e.graph);
        break;
    case LTN_EVENT_COMM:
        keep_call(a, p, &e.call, 0, e.comm.comm_id, 0);
        break;
    default:
        keep_call(a, p, &e.call, 0, 0, 0);
        break;
    }
}

static void on_batch(struct ltn_aggregate *a, const struct ltn_drain_batch *b)
{
    for (size_t at = 0; at + sizeof(struct ltn_event_hdr) <= b->len;) {
        struct ltn_event_hdr hdr;
        memcpy(&hdr, b->data + at, sizeof(hdr));
        if (hdr.size < sizeof(hdr) || hdr.size > b->len - at) {
            a->stats.unknown_records++;
            return;
        }
        on_record(a, b->data + at, hdr.size);
        at += ((size_t)hdr.size + 7) & ~(size_t)7;
    }
}

/* ---- windows
 * ----------------------------------------------------------------------------------------------------------------
 */

static void each_op(const void *key, const void *value, void *arg)
{
    ltn_procs_read_op(arg, key, value);
}

static void each_thread(const void *key, const void *value, void *arg)
{
    (void)key;
    ltn_procs_read_thread(arg, value);
}

static void each_comm(const void *key, const void *value, void *arg)
{
    ltn_procs_read_comm(arg, key, value);
}

static void each_preemptor(const void *key, const void *value, void *arg)
{
    ltn_procs_read_preemptor(arg, key, value);
}

static void each_in_flight(const void *key, const void *value, void *arg)
{
    uint32_t tid;
    memcpy(&tid, key, sizeof(tid));
    ltn_procs_read_stuck(arg, tid, value);
}

static void read_maps(struct ltn_aggregate *a)
{
    const struct ltn_probe_maps *m = &a->opts.maps;
    struct ltn_procs *t = &a->procs;
    int rc[] = {
        ltn_kernel_map_each(m->op_stats, sizeof(struct ltn_op_key), sizeof(struct ltn_op_stats),
                            each_op, t),
        ltn_kernel_map_each(m->threads, sizeof(uint32_t), sizeof(struct ltn_thread_stats),
                            each_thread, t),
        ltn_kernel_map_each(m->comms, sizeof(struct ltn_comm_key), sizeof(struct ltn_comm_state),
                            each_comm, t),
        ltn_kernel_map_each(m->preemptors, sizeof(struct ltn_preemptor_key),
                            sizeof(struct ltn_preemptor_stats), each_preemptor, t),
        ltn_kernel_map_each(m->in_flight, sizeof(uint32_t), sizeof(struct ltn_in_flight),
                            each_in_flight, t),
    };
    for (size_t i = 0; i < LTN_ARRAY_SIZE(rc); i++) {
        a->stats.read_errors += rc[i] < 0;
    }
    ltn_places_find(t, &a->opts.stacks, m->in_flight);
}

/* A process whose exit was not seen has no entry in /proc any more, or another one. */
static void find_ended(struct ltn_aggregate *a)
{
    size_t pos = 0;
    struct ltn_cap_proc *p;
    while ((p = ltn_procs_next(&a->procs, &pos)) != NULL) {
        struct ltn_proc now;
        if (ltn_proc_read_stat((pid_t)p->tgid, &now) != 0 ||
            (p->identified && now.start_ticks != p->id.start_ticks)) {
            p->ended = true;
        }
    }
}

struct graph_sweep {
    int map;
    uint32_t tgid;
};

static void forget_graph(const void *key, const void *value, void *arg)
{
    const struct graph_sweep *s = arg;
    struct ltn_graph_key k;
    (void)value;
    memcpy(&k, key, sizeof(k));
    if (k.tgid == s->tgid) {
        (void)bpf_map_delete_elem(s->map, &k);
    }
}

/* Did it call anything to do with graphs? */
static bool has_graphs(const struct ltn_cap_proc *p)
{
    for (unsigned i = 1; i < LTN_OP_COUNT; i++) {
        if (p->ops[i] != NULL && ltn_op_get(i)->op_class == LTN_CLASS_GRAPH) {
            return true;
        }
    }
    return false;
}

/* Takes an ended process out of the kernel's maps and out of the table. */
static void forget(struct ltn_aggregate *a, struct ltn_cap_proc *p)
{
    const struct ltn_probe_maps *m = &a->opts.maps;
    for (uint32_t i = 0; i < LTN_OP_COUNT; i++) {
        struct ltn_op_key key = {.tgid = p->tgid, .op = i};
        if (p->ops[i] != NULL) {
            (void)bpf_map_delete_elem(m->op_stats, &key);
        }
    }
    for (size_t i = 0; i < p->thread_count; i++) {
        (void)bpf_map_delete_elem(m->threads, &p->threads[i].tid);
    }
    for (size_t i = 0; i < p->comm_count; i++) {
        (void)bpf_map_delete_elem(m->comms, &p->comms[i].key);
    }
    for (size_t i = 0; i < p->preemptor_count; i++) {
        (void)bpf_map_delete_elem(m->preemptors, &p->preemptors[i].key);
    }
    if (has_graphs(p)) {
        struct graph_sweep sweep = {.map = m->graphs, .tgid = p->tgid};
        a->stats.read_errors +=
            ltn_kernel_map_each(m->graphs, sizeof(struct ltn_graph_key), sizeof(struct ltn_graph),
                                forget_graph, &sweep) < 0;
    }
    (void)bpf_map_delete_elem(m->processes, &p->tgid);
    ltn_procs_drop(&a->procs, p->tgid);
}

/* Nobody but this thread touches the entry of a communicator that ended. */
static void forget_comms(struct ltn_aggregate *a, const struct ltn_cap_proc *p)
{
    for (size_t i = 0; i < p->comm_count; i++) {
        if (p->comms[i].key.ended != 0) {
            (void)bpf_map_delete_elem(a->opts.maps.comms, &p->comms[i].key);
        }
    }
}

static void forget_ended(struct ltn_aggregate *a)
{
    size_t pos = 0;
    struct ltn_cap_proc *p;
    while ((p = ltn_procs_next(&a->procs, &pos)) != NULL) {
        forget_comms(a, p);
    }
    pos = 0;
    while ((p = ltn_procs_next(&a->procs, &pos)) != NULL) {
        if (p->ended && ltn_procs_is_known(p)) {
            forget(a, p);
            pos = 0; /* the walk does not survive a removal */
        }
    }
}

static void set_slow(struct ltn_aggregate *a)
{
    for (uint32_t op = 1; op < LTN_OP_COUNT; op++) {
        uint64_t hist[LTN_HIST_BUCKETS] = {0};
        uint64_t total = 0;
        size_t pos = 0;
        const struct ltn_cap_proc *p;
        while ((p = ltn_procs_next(&a->procs, &pos)) != NULL) {
            const struct ltn_proc_op *o = p->ops[op];
            for (unsigned i = 0; o != NULL && i < LTN_HIST_BUCKETS; i++) {
                hist[i] += o->hist[i];
                total += o->hist[i];
            }
        }
        if (total < SLOW_MIN_CALLS) {
            continue;
        }
        uint64_t slow = (uint64_t)ltn_khist_quantile_ns(hist, LTN_HIST_BUCKETS, 0.99) * SLOW_FACTOR;
        slow = slow < SLOW_FLOOR_NS ? SLOW_FLOOR_NS : slow;
        if (slow != a->slow[op] &&
            bpf_map_update_elem(a->opts.maps.slow_ns, &op, &slow, BPF_ANY) == 0) {
            a->slow[op] = slow;
        }
    }
}

static uint64_t own_rss_bytes(void)
{
    char text[128];
    if (ltn_file_read_head("/proc/self/statm", text, sizeof(text)) < 0) {
        return 0;
    }
    char *second = strchr(text, ' ');
    char *end = second != NULL ? strchr(second + 1, ' ') : NULL;
    uint64_t pages = 0;
    if (end != NULL) {
        *end = '\0';
        (void)ltn_parse_u64(second + 1, &pages);
    }
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Who has the most calls with impossible arguments; looked for when there are new ones. */
static void find_impossible(struct ltn_aggregate *a, uint64_t total)
{
    uint64_t most = 0;
    if (total == a->stats.impossible) {
        return;
    }
    a->stats.impossible = total;
    for (uint32_t op = 1; op < LTN_OP_COUNT; op++) {
        uint64_t n = 0;
        if (bpf_map_lookup_elem(a->opts.maps.impossible, &op, &n) == 0 && n > most) {
            most = n;
            a->stats.impossible_op = op;
        }
    }
}

static void fill_health(struct ltn_aggregate *a, struct ltn_agent_health *h)
{
    uint64_t seen[LTN_SEENS] = {0};
    struct ltn_drain_stats drain = ltn_drain_stats(a->opts.drain);
    a->stats.read_errors += ltn_kernel_counters(a->opts.maps.seen, seen, LTN_SEENS) < 0;
    a->stats.read_errors += ltn_kernel_counters(a->opts.maps.drops, h->drops, LTN_DROPS) < 0;
    find_impossible(a, h->drops[LTN_DROP_IMPOSSIBLE]);
    h->calls_seen = seen[LTN_SEEN_CALLS];
    h->records_emitted = seen[LTN_SEEN_EMITTED];
    h->records_read = drain.read_total;
    h->windows_dropped = a->stats.windows_dropped;
    h->records_dropped = drain.dropped_total + drain.malformed_total + a->stats.calls_dropped +
                         a->stats.unknown_records;
    h->map_bytes = atomic_load(&a->map_bytes);
    h->cpu_seconds = (double)ltn_cpu_self_ns() / 1e9;
    h->rss_bytes = own_rss_bytes();
    h->traced_processes = (uint32_t)a->procs.by_tgid.len;
    (void)pthread_mutex_lock(&a->stats_lock);
    h->coverage = a->coverage;
    h->price = a->price;
    (void)pthread_mutex_unlock(&a->stats_lock);
    h->attached_probes = h->coverage.functions;
    h->price.thin = drain.thin;
    h->price.thinned = seen[LTN_SEEN_THINNED];
}

static int by_tgid(const void *a, const void *b)
{
    const struct ltn_activity *x = a;
    const struct ltn_activity *y = b;
    return (x->tgid > y->tgid) - (x->tgid < y->tgid);
}

/* What each process did so far, in a list of its own. NULL when memory is out. */
static struct ltn_activity *list_activity(const struct ltn_aggregate *a, size_t *ret_count)
{
    size_t count = 0;
    size_t pos = 0;
    const struct ltn_cap_proc *p;
    struct ltn_activity *list = calloc(a->procs.by_tgid.len + 1, sizeof(*list));
    while (list != NULL && (p = ltn_procs_next(&a->procs, &pos)) != NULL) {
        struct ltn_activity *x = &list[count++];
        *x = (struct ltn_activity){.tgid = p->tgid, .in_call = p->stuck_count > 0};
        for (unsigned op = 0; op < LTN_OP_COUNT; op++) {
            x->calls += p->ops[op] != NULL ? p->ops[op]->last.calls : 0;
        }
    }
    if (list != NULL) {
        qsort(list, count, sizeof(*list), by_tgid);
    }
    *ret_count = count;
    return list;
}

static void share_stats(struct ltn_aggregate *a)
{
    size_t count;
    struct ltn_activity *list = list_activity(a, &count);
    a->stats.refused = a->procs.refused + a->host.refused;
    (void)pthread_mutex_lock(&a->stats_lock);
    a->shared = a->stats;
    struct ltn_activity *old = a->activity;
    if (list != NULL) {
        a->activity = list;
        a->activity_count = count;
    }
    (void)pthread_mutex_unlock(&a->stats_lock);
    free(list != NULL ? old : NULL);
}

/* CPU limits of the traced processes; one row each. */
static int build_throttles(struct ltn_aggregate *a, struct ltn_window *w)
{
    struct ltn_host_throttle_row *rows =
        ltn_arena_calloc(&w->arena, w->proc_count + 1, sizeof(*rows));
    if (rows == NULL) {
        return -ENOMEM;
    }
    for (size_t i = 0; i < w->proc_count; i++) {
        const struct ltn_proc_window *p = &w->procs[i];
        struct ltn_throttle t;
        if (p->ended || !ltn_cgroups_throttle(&a->cgroups, p->pid, &t)) {
            continue;
        }
        struct ltn_host_throttle_row *row = &rows[w->host.throttle_count++];
        *row = (struct ltn_host_throttle_row){
            .who = {.pid = p->pid, .start_ns = p->start_ns},
            .path = ltn_arena_strndup(&w->arena, t.path, strlen(t.path)),
            .periods = t.periods,
            .throttled = t.throttled,
            .throttled_ns = t.throttled_ns,
            .throttled_total_ns = t.throttled_total_ns,
        };
        a->host.totals.throttled_ns += t.throttled_ns;
        ltn_text_clean(row->who.comm, sizeof(row->who.comm), p->comm, strlen(p->comm));
        if (row->path == NULL) {
            return -ENOMEM;
        }
    }
    w->host.throttles = rows;
    w->host.totals.throttled_ns = a->host.totals.throttled_ns;
    return 0;
}

/* What the host did. 0 or -ENOMEM. */
static int build_host(struct ltn_aggregate *a, struct ltn_window *w)
{
    ltn_cgroups_turn(&a->cgroups);
    int rc = ltn_host_maps_read(&a->host, &a->opts.maps, &w->arena, &w->host);
    rc = rc == 0 ? build_throttles(a, w) : rc;
    a->stats.read_errors += a->host.read_errors;
    a->host.read_errors = 0;
    ltn_host_sample(&a->sampler, &w->host.state);
    w->host.has_state = true;
    w->host.state_due = ltn_host_is_due(&a->keeper, &w->host.state, w->end_ns, a->opts.deadband,
                                        a->opts.heartbeat_ns);
    return rc;
}

static void end_window(struct ltn_aggregate *a, uint64_t end_ns)
{
    struct ltn_gpu_view *view = NULL;
    if (a->opts.gpu != NULL && a->gpu_view != NULL) {
        view = a->gpu_view;
        ltn_gpu_view(a->opts.gpu, view);
    }
    find_ended(a);
    read_maps(a);
    struct ltn_window *w =
        ltn_window_build(&a->procs, view, &a->cgroups, a->window_start_ns, end_ns);
    a->stats.windows_total++;
    if (w != NULL && build_host(a, w) != 0) {
        ltn_window_free(w);
        w = NULL;
    }
    if (w != NULL) {
        ltn_pressure_share(&a->pressure, end_ns - a->window_start_ns, w);
        fill_health(a, &w->health);
    }
    if (w == NULL || a->opts.sink.window(a->opts.sink.ctx, w) != 0) {
        a->stats.windows_dropped++;
        ltn_window_free(w);
    }
    if (a->opts.set_slow) {
        set_slow(a);
    }
    forget_ended(a);
    share_stats(a);
    ltn_procs_turn(&a->procs);
    a->window_start_ns = end_ns;
    a->window_end_ns = (end_ns / a->opts.window_ns + 1) * a->opts.window_ns;
    a->unix_minus_mono_ns = ltn_mono_to_unix_ns(0);
}

/* ---- thread
 * -----------------------------------------------------------------------------------------------------------------
 */

static int wait_ms(const struct ltn_aggregate *a, uint64_t now_ns)
{
    uint64_t left_ms =
        now_ns < a->window_end_ns ? (a->window_end_ns - now_ns) / LTN_NS_PER_MS + 1 : 0;
    return left_ms < LOOP_WAIT_MS ? (int)left_ms : LOOP_WAIT_MS;
}

static void *run(void *arg)
{
    struct ltn_aggregate *a = arg;
    struct ltn_host first;
    ltn_host_sample(&a->sampler, &first); /* the first window's share of CPU has a beginning */
    a->window_start_ns = ltn_now_unix_ns();
    a->window_end_ns = (a->window_start_ns / a->opts.window_ns + 1) * a->opts.window_ns;
    a->unix_minus_mono_ns = ltn_mono_to_unix_ns(0);
    struct ltn_drain_batch *b;
    while (!atomic_load(&a->stop)) {
        b = ltn_drain_next(a->opts.drain, wait_ms(a, ltn_now_unix_ns()));
        if (b != NULL) {
            on_batch(a, b);
            ltn_drain_release(a->opts.drain, b);
        }
        if (a->calls != NULL && ltn_now_mono_ns() - a->calls_since_ns > CALLS_HOLD_NS) {
            flush_calls(a);
        }
        uint64_t now_ns = ltn_now_unix_ns();
        if (now_ns >= a->window_end_ns) {
            /* After a pause (suspend, a starved node) the windows missed are one long one. */
            end_window(a, now_ns / a->opts.window_ns * a->opts.window_ns);
        }
    }
    while ((b = ltn_drain_next(a->opts.drain, 0)) != NULL) {
        on_batch(a, b);
        ltn_drain_release(a->opts.drain, b);
    }
    flush_calls(a);
    size_t pos = 0;
    struct ltn_cap_proc *p;
    while ((p = ltn_procs_next(&a->procs, &pos)) != NULL) {
        p->windows = LTN_PROC_PATIENCE; /* there is no later window to wait for */
    }
    end_window(a, ltn_now_unix_ns());
    return NULL;
}

struct ltn_aggregate *ltn_aggregate_new(const struct ltn_aggregate_opts *opts)
{
    struct ltn_aggregate *a = calloc(1, sizeof(*a));
    if (a == NULL) {
        return NULL;
    }
    a->opts = *opts;
    ltn_map_init(&a->stacks, STACKS_MAX);
    a->map_bytes = opts->map_bytes;
    a->price = (struct ltn_price_health){.probe_share = -1.0, .own_share = -1.0};
    ltn_procs_init(&a->procs, PROCS_MAX, opts->node != NULL ? opts->node : "");
    ltn_host_maps_init(&a->host);
    ltn_cgroups_init(&a->cgroups);
    (void)pthread_mutex_init(&a->stats_lock, NULL);
    if (opts->gpu != NULL) {
        a->gpu_view = calloc(1, sizeof(*a->gpu_view));
        if (a->gpu_view == NULL) {
            ltn_aggregate_free(a);
            return NULL;
        }
    }
    return a;
}

int ltn_aggregate_start(struct ltn_aggregate *a)
{
    int rc = pthread_create(&a->thread, NULL, run, a);
    if (rc == 0) {
        (void)pthread_setname_np(a->thread, "aggregate");
    }
    return -rc;
}

void ltn_aggregate_stop(struct ltn_aggregate *a)
{
    atomic_store(&a->stop, 1);
    (void)pthread_join(a->thread, NULL);
}

void ltn_aggregate_free(struct ltn_aggregate *a)
{
    if (a == NULL) {
        return;
    }
    ltn_procs_done(&a->procs);
    ltn_host_maps_done(&a->host);
    ltn_cgroups_done(&a->cgroups);
    ltn_map_done(&a->stacks, NULL);
    (void)pthread_mutex_destroy(&a->stats_lock);
    free(a->activity);
    free(a->gpu_view);
    free(a->calls);
    free(a);
}

void ltn_aggregate_set_coverage(struct ltn_aggregate *a, const struct ltn_coverage *now)
{
    (void)pthread_mutex_lock(&a->stats_lock);
    a->coverage = *now;
    (void)pthread_mutex_unlock(&a->stats_lock);
}

bool ltn_aggregate_activity(struct ltn_aggregate *a, uint32_t tgid, struct ltn_activity *ret)
{
    struct ltn_activity key = {.tgid = tgid};
    (void)pthread_mutex_lock(&a->stats_lock);
    const struct ltn_activity *x =
        a->activity == NULL ? NULL
                            : bsearch(&key, a->activity, a->activity_count, sizeof(key), by_tgid);
    if (x != NULL) {
        *ret = *x;
    }
    (void)pthread_mutex_unlock(&a->stats_lock);
    return x != NULL;
}

void ltn_aggregate_set_map_bytes(struct ltn_aggregate *a, uint64_t bytes)
{
    atomic_store(&a->map_bytes, bytes);
}

void ltn_aggregate_set_price(struct ltn_aggregate *a, const struct ltn_price_health *price)
{
    (void)pthread_mutex_lock(&a->stats_lock);
    a->price = *price;
    (void)pthread_mutex_unlock(&a->stats_lock);
}

struct ltn_aggregate_stats ltn_aggregate_stats(struct ltn_aggregate *a)
{
    (void)pthread_mutex_lock(&a->stats_lock);
    struct ltn_aggregate_stats s = a->shared;
    (void)pthread_mutex_unlock(&a->stats_lock);
    return s;
}
