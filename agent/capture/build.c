/* SPDX-License-Identifier: Apache-2.0 */
#include "capture/build.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "capture/host_state.h"
#include "capture/rank_window.h"

#define CHUNK_BYTES (256U * 1024)

static const char *copy(struct ltn_arena *a, const char *s)
{
    return ltn_arena_strndup(a, s, strlen(s));
}

static int build_ops(struct ltn_arena *a, const struct ltn_cap_proc *p, struct ltn_proc_window *w)
{
    size_t count = 0;
    for (unsigned i = 0; i < LTN_OP_COUNT; i++) {
        count += p->ops[i] != NULL && p->ops[i]->touched;
    }
    struct ltn_op_window *ops = ltn_arena_calloc(a, count + 1, sizeof(*ops));
    if (ops == NULL) {
        return -ENOMEM;
    }
    size_t n = 0;
    for (unsigned i = 0; i < LTN_OP_COUNT; i++) {
        const struct ltn_proc_op *op = p->ops[i];
        if (op == NULL || !op->touched) {
            continue;
        }
        uint32_t *hist = ltn_arena_alloc(a, sizeof(op->hist));
        uint64_t *hist_total = ltn_arena_alloc(a, sizeof(op->hist_total));
        if (hist == NULL || hist_total == NULL) {
            return -ENOMEM;
        }
        memcpy(hist, op->hist, sizeof(op->hist));
        memcpy(hist_total, op->hist_total, sizeof(op->hist_total));
        ops[n++] = (struct ltn_op_window){
            .op = (uint16_t)i,
            .calls_total = op->last.calls,
            .errors_total = op->last.errors,
            .bytes_total = op->last.bytes,
            .duration_total_ns = op->last.duration_ns,
            .replayed_total = op->last.replayed,
            .replayed_bytes_total = op->last.replayed_bytes,
            .calls = op->delta.calls,
            .returns = op->delta.returns,
            .errors = op->delta.errors,
            .bytes = op->delta.bytes,
            .duration_ns = op->delta.duration_ns,
            .off_cpu_ns = op->delta.off_cpu_ns,
            .run_queue_ns = op->delta.run_queue_ns,
            .max_ns = op->last.max_ns,
            .replayed = op->delta.replayed,
            .replayed_bytes = op->delta.replayed_bytes,
            .hist = hist,
            .hist_total = hist_total,
        };
    }
    w->ops = ops;
    w->op_count = n;
    return 0;
}

static int build_comms(struct ltn_arena *a, const struct ltn_cap_proc *p, struct ltn_proc_window *w)
{
    struct ltn_comm_window *comms = ltn_arena_calloc(a, p->comm_count + 1, sizeof(*comms));
    if (comms == NULL) {
        return -ENOMEM;
    }
    size_t n = 0;
    for (size_t i = 0; i < p->comm_count; i++) {
        const struct ltn_proc_comm *c = &p->comms[i];
        if (!c->seen) {
            continue; /* ended, and was in an earlier window */
        }
        comms[n++] = (struct ltn_comm_window){
            .comm_id = c->now.comm_id,
            .rank = c->now.rank,
            .ranks = c->now.ranks,
            .sequence_total = c->now.sequence,
            .bytes_total = c->now.count_sum,
            .collectives = c->now.sequence - c->before.sequence,
            .signature = c->now.signature,
        };
    }
    w->comms = comms;
    w->comm_count = n;
    return 0;
}

/* The thread that waits for the device: the one with the most waits for peers in this window. */
static const struct ltn_proc_thread *waiting_thread(const struct ltn_cap_proc *p)
{
    const struct ltn_proc_thread *best = NULL;
    uint64_t most = 0;
    for (size_t i = 0; i < p->thread_count; i++) {
        const struct ltn_proc_thread *t = &p->threads[i];
        uint64_t waits = t->now.peer_syncs - t->before.peer_syncs;
        if (waits > most) {
            most = waits;
            best = t;
        }
    }
    return best;
}

static void keep_preemptor(struct ltn_preemptor best[LTN_PREEMPTORS],
                           const struct ltn_proc_preemptor *p)
{
    struct ltn_preemptor candidate = {
        .tgid = p->key.by_tgid,
        .tid = p->now.by_tid,
        .cgroup_id = p->now.by_cgroup,
        .waited_ns = p->now.waited_ns - p->before.waited_ns,
        .times = p->now.times - p->before.times,
    };
    ltn_text_clean(candidate.comm, sizeof(candidate.comm), p->now.by_comm, sizeof(p->now.by_comm));
    for (int i = 0; i < LTN_PREEMPTORS && candidate.waited_ns > 0; i++) {
        if (candidate.waited_ns > best[i].waited_ns) {
            struct ltn_preemptor moved = best[i];
            best[i] = candidate;
            candidate = moved;
        }
    }
}

/* Those that kept this thread from the CPU, longest first, with the names of their cgroups. */
static void build_preemptors(struct ltn_arena *a, struct ltn_cgroups *cgroups,
                             const struct ltn_cap_proc *p, struct ltn_rank_window *r)
{
    for (size_t i = 0; i < p->preemptor_count; i++) {
        if (p->preemptors[i].key.tid == r->tid) {
            keep_preemptor(r->preemptors, &p->preemptors[i]);
        }
    }
    for (int i = 0; cgroups != NULL && i < LTN_PREEMPTORS && r->preemptors[i].waited_ns > 0; i++) {
        const char *path = ltn_cgroups_path(cgroups, r->preemptors[i].cgroup_id);
        r->preemptors[i].cgroup = path != NULL ? copy(a, path) : NULL;
    }
}

/* A process without collectives: its busiest thread, one blocking call after the other. */
static void build_host(const struct ltn_cap_proc *p, uint64_t window_ns, struct ltn_proc_window *w)
{
    const struct ltn_proc_thread *best = NULL;
    uint64_t most = 0;
    for (size_t i = 0; i < p->thread_count; i++) {
        const struct ltn_proc_thread *t = &p->threads[i];
        uint64_t syncs = t->now.syncs - t->before.syncs;
        if (syncs > most) {
            most = syncs;
            best = t;
        }
    }
    if (best == NULL) {
        return;
    }
    struct ltn_thread_stats before = best->before;
    struct ltn_thread_stats now = best->now;
    before.peer_syncs = before.syncs;
    now.peer_syncs = now.syncs;
    const struct ltn_steps one_each = {0};
    w->has_host = ltn_rank_window_fill(&before, &now, &one_each, window_ns, &w->host);
}

static int build_stuck(struct ltn_arena *a, const struct ltn_cap_proc *p, struct ltn_proc_window *w)
{
    struct ltn_stuck_call *calls = ltn_arena_calloc(a, p->stuck_count + 1, sizeof(*calls));
    if (calls == NULL) {
        return -ENOMEM;
    }
    memcpy(calls, p->stuck, p->stuck_count * sizeof(*calls));
    w->stuck = calls;
    w->stuck_count = p->stuck_count;
    w->oom = p->oom;
    if (p->comm_count > 0 && !p->ended) {
        ltn_activity_read(p->tgid, &w->cpu_total_ns, &w->io_total_bytes);
    }
    return 0;
}

static void build_rank(struct ltn_cap_proc *p, uint64_t window_ns, struct ltn_proc_window *w)
{
    const struct ltn_proc_thread *t = waiting_thread(p);
    if (t == NULL) {
        return;
    }
    (void)ltn_steps_find(&p->steps);
    struct ltn_rank_window *r = &w->rank_window;
    w->is_rank = ltn_rank_window_fill(&t->before, &t->now, &p->steps, window_ns, r);
    if (!w->is_rank) {
        return;
    }
    p->steps_total += r->steps;
    r->steps_total = (uint64_t)p->steps_total;
}

/* Rank and world size: from the environment, else from the largest communicator. */
static void build_identity(struct ltn_arena *a, const struct ltn_cap_proc *p,
                           struct ltn_proc_window *w)
{
    w->pid = p->tgid;
    w->start_ns = p->id.start_unix_ns;
    w->comm = copy(a, p->id.comm);
    w->job = copy(a, p->rank.job_key);
    w->rank = p->rank.rank;
    w->world_size = p->rank.world_size;
    w->local_rank = p->rank.local_rank;
    w->ended = p->ended;
    for (size_t i = 0; i < p->comm_count && p->rank.rank < 0; i++) {
        if (p->comms[i].now.ranks > w->world_size) {
            w->rank = p->comms[i].now.rank;
            w->world_size = p->comms[i].now.ranks;
        }
    }
}

static int32_t gpu_of(const struct ltn_gpu_view *gpus, const struct ltn_cap_proc *p)
{
    uint32_t mask = gpus != NULL ? ltn_gpu_devices_of(gpus, (pid_t)p->tgid) : 0;
    return mask == 0 ? -1 : __builtin_ctz(mask);
}

static int build_procs(struct ltn_window *w, struct ltn_procs *t, const struct ltn_gpu_view *gpus,
                       struct ltn_cgroups *cgroups)
{
    struct ltn_proc_window *procs = ltn_arena_calloc(&w->arena, t->by_tgid.len + 1, sizeof(*procs));
    if (procs == NULL) {
        return -ENOMEM;
    }
    size_t pos = 0;
    size_t n = 0;
    struct ltn_cap_proc *p;
    while ((p = ltn_procs_next(t, &pos)) != NULL) {
        if (!ltn_procs_is_known(p)) {
            continue;
        }
        struct ltn_proc_window *pw = &procs[n++];
        build_identity(&w->arena, p, pw);
        pw->gpu = gpu_of(gpus, p);
        build_rank(p, w->end_ns - w->start_ns, pw);
        if (pw->is_rank) {
            build_preemptors(&w->arena, cgroups, p, &pw->rank_window);
            pw->has_host = true;
            pw->host = pw->rank_window;
        } else {
            build_host(p, w->end_ns - w->start_ns, pw);
            build_preemptors(&w->arena, cgroups, p, &pw->host);
        }
        if (pw->comm == NULL || pw->job == NULL || build_ops(&w->arena, p, pw) != 0 ||
            build_comms(&w->arena, p, pw) != 0 || build_stuck(&w->arena, p, pw) != 0) {
            return -ENOMEM;
        }
    }
    w->procs = procs;
    w->proc_count = n;
    return 0;
}

static double known_u32(uint32_t v, double factor)
{
    return v == LTN_GPU_NA_U32 ? -1.0 : (double)v * factor;
}

static double known_u64(uint64_t v)
{
    return v == LTN_GPU_NA_U64 ? -1.0 : (double)v;
}

static int known_int(uint32_t v)
{
    return v == LTN_GPU_NA_U32 || v > 1024 ? -1 : (int)v;
}

static int build_gpus(struct ltn_window *w, const struct ltn_gpu_view *view)
{
    size_t count = view != NULL ? view->device_count : 0;
    struct ltn_gpu_window *gpus = ltn_arena_calloc(&w->arena, count + 1, sizeof(*gpus));
    if (gpus == NULL) {
        return -ENOMEM;
    }
    for (size_t i = 0; i < count; i++) {
        const struct ltn_gpu_info *info = &view->devices[i].info;
        const struct ltn_gpu_sample *s = &view->devices[i].sample;
        gpus[i] = (struct ltn_gpu_window){
            .uuid = copy(&w->arena, info->uuid),
            .model = copy(&w->arena, info->name),
            .sm_clock_hz = known_u32(s->sm_clock_mhz, 1e6),
            .sm_clock_max_hz = known_u32(info->sm_clock_max_mhz, 1e6),
            .throttle_reasons = s->clock_reasons == LTN_GPU_NA_U64 ? 0 : s->clock_reasons,
            .utilization = known_u32(s->util_gpu_pct, 0.01),
            .memory_used_bytes = known_u64(s->memory_used_bytes),
            .memory_total_bytes = known_u64(info->memory_total_bytes),
            .power_w = known_u32(s->power_mw, 1e-3),
            .temperature_c = known_u32(s->temperature_c, 1.0),
            .pcie_width = known_int(s->pcie_width),
            .pcie_width_max = known_int(info->pcie_width_max),
            .pcie_generation = known_int(s->pcie_gen),
            .pcie_generation_max = known_int(info->pcie_gen_max),
            .ecc_uncorrected = known_u64(s->ecc_uncorrected_total),
        };
        if (gpus[i].uuid == NULL || gpus[i].model == NULL) {
            return -ENOMEM;
        }
    }
    w->gpus = gpus;
    w->gpu_count = count;
    return 0;
}

struct ltn_window *ltn_window_build(struct ltn_procs *t, const struct ltn_gpu_view *gpus,
                                    struct ltn_cgroups *cgroups, uint64_t start_ns, uint64_t end_ns)
{
    struct ltn_window *w = calloc(1, sizeof(*w));
    if (w == NULL) {
        return NULL;
    }
    ltn_arena_init(&w->arena, CHUNK_BYTES, LTN_WINDOW_MAX_BYTES);
    w->start_ns = start_ns;
    w->end_ns = end_ns;
    if (build_procs(w, t, gpus, cgroups) != 0 || build_gpus(w, gpus) != 0) {
        ltn_window_free(w);
        return NULL;
    }
    return w;
}
