/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/scenario.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "probe/ops.h"
#include "stats/exphist.h"

#define RANKS        2
#define PID          4100
#define STEPS        20 /* in a window: 100 ms each */
#define TROUBLE_FROM 12 /* first window with the trouble */
#define ARENA_BYTES  (1U << 20)
#define MS           1e6
#define CALLS_MAX    64
#define COMM_ID      0x5ca1ab1e0ddba11ULL

static const struct {
    const char *name;
    const char *about;
} scenarios[LTN_SCENARIOS] = {
    [LTN_SCENARIO_INCIDENT] = {"incident", "Half way through, a log rotation takes the CPU that "
                                           "rank 1 needs between two kernels."},
    [LTN_SCENARIO_COLD_START] = {"cold-start", "A serving process starts: its first calls create "
                                               "the context and load modules."},
    [LTN_SCENARIO_MEMCPY] = {"memcpy-bottleneck", "Rank 1 copies its batches with blocking copies "
                                                  "from pageable memory."},
    [LTN_SCENARIO_SPIKES] = {"periodic-spike", "Every four seconds an allocation of rank 1 goes "
                                               "into the driver and takes long."},
    [LTN_SCENARIO_CPU] = {"cpu-contention", "A compiler run on the same node holds the CPUs that "
                                            "both ranks wait for."},
    [LTN_SCENARIO_GPU_STEAL] = {"gpu-steal", "Half way through, another process begins to use the "
                                             "GPU of rank 1."},
};

const char *ltn_scenario_name(enum ltn_scenario s)
{
    return scenarios[s].name;
}

const char *ltn_scenario_about(enum ltn_scenario s)
{
    return scenarios[s].about;
}

/* What a rank does in a window; all times per step. */
struct shape {
    double split_ns[LTN_SPLITS];
    double peer_wait_ns;
    struct ltn_preemptor by;
    unsigned copies; /* blocking ones in the window */
    double copy_ns;
    double copy_bytes;
    double sync_ns;
};

/* A little difference from window to window, the same in every run. */
static double jitter(unsigned n, unsigned rank)
{
    return 1.0 + 0.004 * (double)((n * 7 + rank * 3) % 5);
}

static void hold_cpu(struct shape *s, const char *comm, uint32_t pid, double ns_per_step)
{
    s->split_ns[LTN_SPLIT_RUN_QUEUE] += ns_per_step;
    (void)snprintf(s->by.comm, sizeof(s->by.comm), "%s", comm);
    s->by.tgid = pid;
    s->by.cgroup_id = 77;
    s->by.waited_ns = (uint64_t)(ns_per_step * STEPS * 0.95);
    s->by.times = STEPS;
}

static struct shape shape_of(enum ltn_scenario what, unsigned n, unsigned rank)
{
    struct shape s = {.sync_ns = 17 * MS};
    double j = jitter(n, rank);
    bool trouble = n >= TROUBLE_FROM;
    s.split_ns[LTN_SPLIT_ON_CPU] = 30 * MS * j;
    s.split_ns[LTN_SPLIT_RUN_QUEUE] = 0.3 * MS;
    s.split_ns[LTN_SPLIT_READ] = 2 * MS;
    s.split_ns[LTN_SPLIT_DEVICE] = 50 * MS;
    s.peer_wait_ns = 17 * MS;
    if (what == LTN_SCENARIO_INCIDENT && trouble && rank == 1) {
        hold_cpu(&s, "logrotate", 901, 118 * MS);
        s.sync_ns = 142 * MS;
        s.peer_wait_ns = 2 * MS;
    } else if (what == LTN_SCENARIO_INCIDENT && trouble) {
        s.peer_wait_ns = 120 * MS;
    } else if (what == LTN_SCENARIO_CPU && trouble) {
        hold_cpu(&s, "cc1plus", 950, (60 + 5.0 * rank) * MS);
    } else if (what == LTN_SCENARIO_MEMCPY && rank == 1) {
        s.copies = 240;
        s.copy_ns = 6 * MS;
        s.copy_bytes = 24e6; /* 4 GB/s: pageable */
        s.split_ns[LTN_SPLIT_DEVICE] = 75 * MS;
        s.peer_wait_ns = 2 * MS;
    } else if (what == LTN_SCENARIO_GPU_STEAL && trouble && rank == 1) {
        s.split_ns[LTN_SPLIT_DEVICE] = 95 * MS;
        s.sync_ns = 60 * MS;
        s.peer_wait_ns = 2 * MS;
    }
    return s;
}

/* ---- windows ---- */

struct op_sum {
    unsigned op;
    uint64_t calls;
    double each_ns;
    double bytes;
    double run_queue_ns;
};

static uint32_t bucket_of(double ns)
{
    uint32_t bucket = ltn_khist_index((uint64_t)ns);
    return bucket < LTN_HIST_BUCKETS ? bucket : LTN_HIST_BUCKETS - 1;
}

static bool put_op(struct ltn_arena *a, struct ltn_op_window *o, const struct op_sum *sum,
                   unsigned n, uint64_t **ret_total)
{
    uint32_t *hist = ltn_arena_calloc(a, LTN_HIST_BUCKETS, sizeof(*hist));
    uint64_t *total = ltn_arena_calloc(a, LTN_HIST_BUCKETS, sizeof(*total));
    if (hist == NULL || total == NULL) {
        return false;
    }
    hist[bucket_of(sum->each_ns)] = (uint32_t)sum->calls;
    total[bucket_of(sum->each_ns)] = sum->calls * (n + 1);
    *ret_total = total;
    uint64_t duration = (uint64_t)(sum->each_ns * (double)sum->calls);
    uint64_t bytes = (uint64_t)(sum->bytes * (double)sum->calls);
    *o = (struct ltn_op_window){.op = (uint16_t)sum->op,
                                .calls_total = sum->calls * (n + 1),
                                .bytes_total = bytes * (n + 1),
                                .duration_total_ns = duration * (n + 1),
                                .calls = sum->calls,
                                .returns = sum->calls,
                                .bytes = bytes,
                                .duration_ns = duration,
                                .off_cpu_ns = duration / 2,
                                .run_queue_ns = (uint64_t)sum->run_queue_ns,
                                .max_ns = (uint64_t)sum->each_ns,
                                .hist = hist,
                                .hist_total = total};
    return true;
}

static bool put_ops(struct ltn_arena *a, struct ltn_proc_window *p, const struct shape *s,
                    unsigned n, enum ltn_scenario what)
{
    uint64_t *totals[5] = {0};
    const struct op_sum sums[] = {
        {LTN_OP_ID_CUDA_LAUNCH_KERNEL, 800, 6000, 0, 0},
        {LTN_OP_ID_CUDA_STREAM_SYNCHRONIZE, STEPS, s->sync_ns, 0,
         s->split_ns[LTN_SPLIT_RUN_QUEUE] * STEPS},
        {LTN_OP_ID_CUDA_MALLOC, 4, 20000, 1 << 20, 0},
        {ltn_op_find("ncclAllReduce"), 60, 12000, 4e6, 0},
        {LTN_OP_ID_CUDA_MEMCPY, s->copies, s->copy_ns, s->copy_bytes, 0},
    };
    size_t count = s->copies > 0 ? LTN_ARRAY_SIZE(sums) : LTN_ARRAY_SIZE(sums) - 1;
    struct ltn_op_window *ops = ltn_arena_calloc(a, count, sizeof(*ops));
    if (ops == NULL) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        if (!put_op(a, &ops[i], &sums[i], n, &totals[i])) {
            return false;
        }
    }
    /* The wait is what changes over the scenario. */
    if (p->rank >= 0) {
        memset(totals[1], 0, LTN_HIST_BUCKETS * sizeof(*totals[1]));
        for (unsigned k = 0; k <= n; k++) {
            struct shape then = shape_of(what, k, (unsigned)p->rank);
            totals[1][bucket_of(then.sync_ns)] += STEPS;
        }
    }
    p->ops = ops;
    p->op_count = count;
    return true;
}

static struct ltn_rank_window rank_of(const struct shape *s, unsigned n)
{
    struct ltn_rank_window r = {.tid = PID,
                                .steps = STEPS,
                                .steps_total = (uint64_t)STEPS * (n + 1),
                                .peer_wait_ns = s->peer_wait_ns,
                                .coverage = 0.99,
                                .minor_faults = 12,
                                .collectives_per_step = 3};
    memcpy(r.split_ns, s->split_ns, sizeof(r.split_ns));
    for (int i = 0; i < LTN_SPLITS; i++) {
        r.self_ns += r.split_ns[i];
    }
    r.step_ns = r.self_ns + r.peer_wait_ns;
    /* A window holds as many steps as fit. */
    double fit = (double)LTN_SCENARIO_WINDOW_NS / r.step_ns;
    r.steps = fit < STEPS ? fit : STEPS;
    r.preemptors[0] = s->by;
    return r;
}

static bool put_proc(struct ltn_arena *a, struct ltn_proc_window *p, enum ltn_scenario what,
                     unsigned n, unsigned rank, uint64_t start_ns)
{
    struct shape s = shape_of(what, n, rank);
    struct ltn_comm_window *comm = ltn_arena_calloc(a, 1, sizeof(*comm));
    if (comm == NULL) {
        return false;
    }
    *comm = (struct ltn_comm_window){.comm_id = COMM_ID,
                                     .rank = (int32_t)rank,
                                     .ranks = RANKS,
                                     .sequence_total = 60ULL * (n + 1),
                                     .bytes_total = 240000000ULL * (n + 1),
                                     .collectives = 60,
                                     .signature = 1};
    *p = (struct ltn_proc_window){.pid = PID + rank,
                                  .start_ns = start_ns - 60 * LTN_NS_PER_S,
                                  .comm = "python3",
                                  .job = "demo",
                                  .rank = (int32_t)rank,
                                  .world_size = RANKS,
                                  .local_rank = (int32_t)rank,
                                  .gpu = (int32_t)rank,
                                  .is_rank = true,
                                  .rank_window = rank_of(&s, n),
                                  .has_host = true,
                                  .comms = comm,
                                  .comm_count = 1};
    p->host = p->rank_window;
    return put_ops(a, p, &s, n, what);
}

/* A process without a job: the one that starts, or the one that steals. */
static bool put_other(struct ltn_arena *a, struct ltn_proc_window *p, enum ltn_scenario what,
                      unsigned n, uint64_t start_ns)
{
    const struct shape s = {.sync_ns = 8 * MS};
    *p = (struct ltn_proc_window){.pid = PID + 50,
                                  .start_ns = start_ns + LTN_SCENARIO_WINDOW_NS * TROUBLE_FROM,
                                  .comm = what == LTN_SCENARIO_COLD_START ? "vllm" : "notebook",
                                  .job = "",
                                  .rank = -1,
                                  .world_size = -1,
                                  .local_rank = -1,
                                  .gpu = 1};
    return put_ops(a, p, &s, n - TROUBLE_FROM, what);
}

static void put_gpus(struct ltn_gpu_window *gpus, enum ltn_scenario what, unsigned n)
{
    static const char *const uuids[RANKS] = {"GPU-00000000-demo", "GPU-11111111-demo"};
    for (unsigned i = 0; i < RANKS; i++) {
        bool full = what == LTN_SCENARIO_GPU_STEAL && n >= TROUBLE_FROM && i == 1;
        gpus[i] = (struct ltn_gpu_window){.uuid = uuids[i],
                                          .model = "demonstration GPU",
                                          .sm_clock_hz = 1.755e9,
                                          .sm_clock_max_hz = 1.98e9,
                                          .utilization = full ? 0.99 : 0.62,
                                          .memory_used_bytes = full ? 71e9 : 40e9,
                                          .memory_total_bytes = 80e9,
                                          .power_w = 350,
                                          .temperature_c = 61,
                                          .pcie_width = 16,
                                          .pcie_width_max = 16,
                                          .pcie_generation = 5,
                                          .pcie_generation_max = 5,
                                          .ecc_uncorrected = 0};
    }
}

static bool has_other(enum ltn_scenario what, unsigned n)
{
    return (what == LTN_SCENARIO_COLD_START || what == LTN_SCENARIO_GPU_STEAL) && n >= TROUBLE_FROM;
}

struct ltn_window *ltn_scenario_window(enum ltn_scenario what, unsigned n, uint64_t start_ns)
{
    struct ltn_window *w = calloc(1, sizeof(*w));
    if (w == NULL) {
        return NULL;
    }
    ltn_arena_init(&w->arena, 65536, ARENA_BYTES);
    size_t count = RANKS + (has_other(what, n) ? 1 : 0);
    struct ltn_proc_window *procs = ltn_arena_calloc(&w->arena, count, sizeof(*procs));
    struct ltn_gpu_window *gpus = ltn_arena_calloc(&w->arena, RANKS, sizeof(*gpus));
    bool ok = procs != NULL && gpus != NULL;
    w->start_ns = start_ns + n * LTN_SCENARIO_WINDOW_NS;
    w->end_ns = w->start_ns + LTN_SCENARIO_WINDOW_NS;
    w->pressure_memory = -1;
    w->pressure_io = -1;
    for (unsigned i = 0; i < RANKS && ok; i++) {
        ok = put_proc(&w->arena, &procs[i], what, n, i, start_ns);
    }
    if (ok && has_other(what, n)) {
        ok = put_other(&w->arena, &procs[RANKS], what, n, start_ns);
    }
    if (!ok) {
        ltn_window_free(w);
        return NULL;
    }
    put_gpus(gpus, what, n);
    w->procs = procs;
    w->proc_count = count;
    w->gpus = gpus;
    w->gpu_count = RANKS;
    w->health = (struct ltn_agent_health){.calls_seen = 1800ULL * (n + 1),
                                          .cpu_seconds = 0.01 * (n + 1),
                                          .rss_bytes = 30 << 20,
                                          .traced_processes = (uint32_t)count};
    return w;
}

/* ---- calls ---- */

static void add(struct ltn_call_batch *b, uint32_t pid, uint64_t proc_start_ns, uint64_t time_ns,
                unsigned op, double duration_ns, double run_queue_ns)
{
    if (b->count == b->capacity) {
        return;
    }
    uint64_t duration = (uint64_t)duration_ns;
    uint64_t queued = (uint64_t)run_queue_ns;
    b->calls[b->count++] =
        (struct ltn_call){.time_ns = time_ns,
                          .duration_ns = duration,
                          .on_cpu_ns = (duration - queued) / 4,
                          .run_queue_ns = queued,
                          .blocked_ns = duration - queued - (duration - queued) / 4,
                          .bytes = op == LTN_OP_ID_CUDA_MALLOC ? 1 << 20 : 0,
                          .pid = pid,
                          .tid = pid,
                          .proc_start_ns = proc_start_ns,
                          .weight = 1,
                          .op = (uint16_t)op};
}

static void add_rank_calls(struct ltn_call_batch *b, enum ltn_scenario what, unsigned n,
                           unsigned rank, uint64_t start_ns)
{
    struct shape s = shape_of(what, n, rank);
    uint64_t at = start_ns + n * LTN_SCENARIO_WINDOW_NS + rank * LTN_NS_PER_MS;
    uint64_t born = start_ns - 60 * LTN_NS_PER_S;
    bool spike = what == LTN_SCENARIO_SPIKES && rank == 1 && n >= 5 && n % 2 == 0;
    for (unsigned i = 0; i < 4; i++) {
        add(b, PID + rank, born, at + i * 400 * LTN_NS_PER_MS, LTN_OP_ID_CUDA_MALLOC,
            spike && i == 1 ? 310 * MS : 20000 + 100.0 * i, 0);
        add(b, PID + rank, born, at + (i * 400 + 350) * LTN_NS_PER_MS,
            LTN_OP_ID_CUDA_STREAM_SYNCHRONIZE, s.sync_ns,
            s.by.waited_ns > 0 ? s.split_ns[LTN_SPLIT_RUN_QUEUE] * 0.99 : 0);
        if (s.copies > 0) {
            add(b, PID + rank, born, at + (i * 400 + 100) * LTN_NS_PER_MS, LTN_OP_ID_CUDA_MEMCPY,
                s.copy_ns, 0);
        }
    }
    /* Collectives let the clocks of nodes be compared. */
    for (unsigned i = 0; i < 4; i++) {
        add(b, PID + rank, born, at + (i * 400 + 390) * LTN_NS_PER_MS, ltn_op_find("ncclAllReduce"),
            12000, 0);
        if (b->count > 0) {
            struct ltn_call *c = &b->calls[b->count - 1];
            c->comm_id = COMM_ID;
            c->sequence = n * 60 + i * 15;
            c->bytes = 4000000;
        }
    }
}

struct ltn_call_batch *ltn_scenario_calls(enum ltn_scenario what, unsigned n, uint64_t start_ns)
{
    struct ltn_call_batch *b = calloc(1, sizeof(*b) + CALLS_MAX * sizeof(b->calls[0]));
    if (b == NULL) {
        return NULL;
    }
    b->capacity = CALLS_MAX;
    for (unsigned rank = 0; rank < RANKS; rank++) {
        add_rank_calls(b, what, n, rank, start_ns);
    }
    if (what == LTN_SCENARIO_COLD_START && n == TROUBLE_FROM) {
        uint64_t born = start_ns + LTN_SCENARIO_WINDOW_NS * TROUBLE_FROM;
        add(b, PID + 50, born, born + 100 * LTN_NS_PER_MS, LTN_OP_ID_CUDA_MALLOC, 930 * MS, 0);
        add(b, PID + 50, born, born + 1040 * LTN_NS_PER_MS, LTN_OP_ID_CUDA_LAUNCH_KERNEL, 410 * MS,
            0);
        add(b, PID + 50, born, born + 1460 * LTN_NS_PER_MS, LTN_OP_ID_CUDA_STREAM_SYNCHRONIZE,
            12 * MS, 0);
    }
    return b;
}
