/* SPDX-License-Identifier: Apache-2.0 */
#include "record_sample.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/attr.h"
#include "probe/ops.h"

static void *need(void *p)
{
    if (p == NULL) {
        abort();
    }
    return p;
}

static struct ltn_op_window sample_op(struct ltn_arena *a, unsigned op, unsigned n)
{
    uint32_t *hist = need(ltn_arena_calloc(a, LTN_HIST_BUCKETS, sizeof(*hist)));
    uint64_t *total = need(ltn_arena_calloc(a, LTN_HIST_BUCKETS, sizeof(*total)));
    hist[200] = SAMPLE_CALLS - 1;
    hist[300] = 1;
    total[200] = (uint64_t)(SAMPLE_CALLS - 1) * (n + 1);
    total[300] = n + 1;
    return (struct ltn_op_window){.op = (uint16_t)op,
                                  .calls_total = (uint64_t)SAMPLE_CALLS * (n + 1),
                                  .errors_total = n + 1,
                                  .bytes_total = 4096ULL * (n + 1),
                                  .duration_total_ns = 50000000ULL * (n + 1),
                                  .calls = SAMPLE_CALLS,
                                  .returns = SAMPLE_CALLS,
                                  .errors = 1,
                                  .bytes = 4096,
                                  .duration_ns = 50000000,
                                  .off_cpu_ns = 1000,
                                  .run_queue_ns = 500,
                                  .max_ns = 12000000,
                                  .replayed_total = 7 * (n + 1),
                                  .replayed = 7,
                                  .replayed_bytes = 700,
                                  .hist = hist,
                                  .hist_total = total};
}

static void sample_rank(struct ltn_rank_window *r, unsigned n)
{
    *r = (struct ltn_rank_window){.tid = 1001,
                                  .steps = 20,
                                  .steps_total = 20ULL * (n + 1),
                                  .step_ns = 500e6,
                                  .self_ns = 400e6,
                                  .peer_wait_ns = 100e6,
                                  .coverage = 0.99,
                                  .major_faults = 0.5,
                                  .minor_faults = 2,
                                  .collectives_per_step = 3};
    r->split_ns[LTN_SPLIT_ON_CPU] = 300e6;
    r->split_ns[LTN_SPLIT_RUN_QUEUE] = 100e6;
    (void)snprintf(r->preemptors[0].comm, LTN_COMM_BYTES, "logrotate");
    r->preemptors[0].tgid = 77;
    r->preemptors[0].tid = 78;
    r->preemptors[0].cgroup = "/system.slice/logrotate";
    r->preemptors[0].cgroup_id = 42;
    r->preemptors[0].waited_ns = 1800000000;
    r->preemptors[0].times = 9;
}

static void sample_proc(struct ltn_arena *a, struct ltn_proc_window *p, unsigned rank, unsigned n)
{
    struct ltn_op_window *ops = need(ltn_arena_calloc(a, 3, sizeof(*ops)));
    struct ltn_comm_window *comm = need(ltn_arena_calloc(a, 1, sizeof(*comm)));
    ops[0] = sample_op(a, LTN_OP_ID_CUDA_LAUNCH_KERNEL, n);
    ops[1] = sample_op(a, LTN_OP_ID_CUDA_STREAM_SYNCHRONIZE, n);
    ops[2] = sample_op(a, ltn_op_find("ncclAllReduce"), n);
    *comm = (struct ltn_comm_window){.comm_id = 0xfedcba9876543210ULL,
                                     .rank = (int32_t)rank,
                                     .ranks = SAMPLE_PROCS,
                                     .sequence_total = 60ULL * (n + 1),
                                     .bytes_total = 1024ULL * (n + 1),
                                     .collectives = 60,
                                     .signature = 1};
    *p = (struct ltn_proc_window){.pid = SAMPLE_PID + rank,
                                  .start_ns = SAMPLE_START,
                                  .comm = need(ltn_arena_strndup(a, "python\x1b[31m", 11)),
                                  .job = need(ltn_arena_strndup(a, "train", 5)),
                                  .rank = (int32_t)rank,
                                  .world_size = SAMPLE_PROCS,
                                  .local_rank = (int32_t)rank,
                                  .gpu = 0,
                                  .is_rank = true,
                                  .ops = ops,
                                  .op_count = 3,
                                  .comms = comm,
                                  .comm_count = 1};
    sample_rank(&p->rank_window, n);
}

/* What the host did: one row of each kind, in a state that is worth keeping. */
static void sample_host(struct ltn_arena *a, struct ltn_host_window *h, unsigned n)
{
    const struct ltn_host_owner who = {SAMPLE_PID, SAMPLE_START, "python"};
    const struct ltn_host_owner worker = {SAMPLE_PID + 500, SAMPLE_START + 9, "worker"};
    struct ltn_host_proc_row *proc = need(ltn_arena_calloc(a, 1, sizeof(*proc)));
    struct ltn_host_block_row *blocks = need(ltn_arena_calloc(a, 2, sizeof(*blocks)));
    struct ltn_host_net_row *net = need(ltn_arena_calloc(a, 1, sizeof(*net)));
    struct ltn_host_retransmit_row *again = need(ltn_arena_calloc(a, 1, sizeof(*again)));
    struct ltn_host_file_row *file = need(ltn_arena_calloc(a, 1, sizeof(*file)));
    struct ltn_host_throttle_row *held = need(ltn_arena_calloc(a, 1, sizeof(*held)));
    struct ltn_host_event_row *event = need(ltn_arena_calloc(a, 1, sizeof(*event)));
    struct ltn_host_disk_row *disk = need(ltn_arena_calloc(a, 1, sizeof(*disk)));
    *proc = (struct ltn_host_proc_row){
        .who = worker,
        .parent_pid = SAMPLE_PID,
        .delta = {.opens = 10, .opens_failed = 4, .opens_missing = 3, .socket_sent_bytes = 100}};
    blocks[0] = (struct ltn_host_block_row){
        .who = who,
        .key = {.tgid = SAMPLE_PID, .major = 259, .minor = 0, .op = LTN_BLOCK_READ},
        .disk = "nvme0n1",
        .delta = {.requests = 4,
                  .bytes = 16384,
                  .queued_ns = 400,
                  .service_ns = 800,
                  .max_ns = 700,
                  .depth_sum = 10,
                  .depth_max = 5}};
    blocks[1] = blocks[0];
    blocks[1].who = (struct ltn_host_owner){0};
    *net = (struct ltn_host_net_row){
        .who = who,
        .key = {.family = 2, .protocol = 6, .port = 443, .peer = {192, 0, 2, 7}},
        .delta = {.sends = 3, .sent_bytes = 300, .receives = 2, .received_bytes = 200}};
    *again = (struct ltn_host_retransmit_row){.key = {.family = 10,
                                                      .local = {0x20, 1},
                                                      .peer = {0x20, 1, [15] = 2},
                                                      .local_port = 4000,
                                                      .peer_port = 443},
                                              .segments = 5,
                                              .handshake = 1};
    *file = (struct ltn_host_file_row){.who = worker,
                                       .delta = {.failed = 4,
                                                 .missing = 3,
                                                 .spent_ns = 9000,
                                                 .max_ns = 5000,
                                                 .last_errno = 2,
                                                 .path = "/data/\x1b[31m\xff"}};
    *held = (struct ltn_host_throttle_row){.who = who,
                                           .path = need(ltn_arena_strndup(a, "/pod/x", 6)),
                                           .periods = 100,
                                           .throttled = 40,
                                           .throttled_ns = 3000000000};
    *event = (struct ltn_host_event_row){.who = worker,
                                         .time_ns = SAMPLE_T0_NS + 5,
                                         .parent_pid = SAMPLE_PID,
                                         .exit_code = 256,
                                         .type = LTN_EVENT_EXIT};
    *disk = (struct ltn_host_disk_row){.major = 259,
                                       .op = LTN_BLOCK_READ,
                                       .disk = "nvme0n1",
                                       .requests = 8,
                                       .bytes = 32768,
                                       .spent_ns = 2400};
    *h = (struct ltn_host_window){
        .procs = proc,
        .proc_count = 1,
        .blocks = blocks,
        .block_count = 2,
        .nets = net,
        .net_count = 1,
        .retransmits = again,
        .retransmit_count = 1,
        .files = file,
        .file_count = 1,
        .throttles = held,
        .throttle_count = 1,
        .events = event,
        .event_count = 1,
        .disks = disk,
        .disk_count = 1,
        .has_state = true,
        .state_due = n % 2 == 0,
        .totals = {.opens = 10, .opens_failed = 4, .opens_missing = 3, .retransmits = 5},
        .state = {.cpus = 8,
                  .cpu_busy = 0.5,
                  .load1 = 3.5,
                  .memory_total_bytes = 1000,
                  .memory_available_bytes = 250,
                  .swap_total_bytes = 100,
                  .swap_used_bytes = 10,
                  .pressure_cpu = 0.25,
                  .pressure_memory = -1,
                  .pressure_io = 0}};
    h->totals.events[LTN_EVENT_EXIT] = 1;
}

struct ltn_window *sample_window(unsigned n)
{
    struct ltn_window *w = need(calloc(1, sizeof(*w)));
    ltn_arena_init(&w->arena, 16384, 1U << 20);
    struct ltn_proc_window *procs = need(ltn_arena_calloc(&w->arena, SAMPLE_PROCS, sizeof(*procs)));
    struct ltn_gpu_window *gpu = need(ltn_arena_calloc(&w->arena, 1, sizeof(*gpu)));
    w->start_ns = SAMPLE_T0_NS + n * SAMPLE_STEP_NS;
    w->end_ns = w->start_ns + SAMPLE_STEP_NS;
    for (unsigned i = 0; i < SAMPLE_PROCS; i++) {
        sample_proc(&w->arena, &procs[i], i, n);
    }
    *gpu = (struct ltn_gpu_window){.uuid = need(ltn_arena_strndup(&w->arena, "GPU-1", 5)),
                                   .model = need(ltn_arena_strndup(&w->arena, "H100", 4)),
                                   .sm_clock_hz = 1.9e9,
                                   .sm_clock_max_hz = 1.98e9,
                                   .throttle_reasons = 4,
                                   .utilization = 0.5,
                                   .memory_used_bytes = 1e9,
                                   .memory_total_bytes = 8e10,
                                   .power_w = -1,
                                   .temperature_c = 60,
                                   .pcie_width = 16,
                                   .pcie_width_max = 16,
                                   .pcie_generation = -1,
                                   .pcie_generation_max = -1,
                                   .ecc_uncorrected = 0};
    w->procs = procs;
    w->proc_count = SAMPLE_PROCS;
    w->gpus = gpu;
    w->gpu_count = 1;
    sample_host(&w->arena, &w->host, n);
    w->health.calls_seen = 600ULL * (n + 1);
    w->health.drops[LTN_DROP_RING_CALLS] = n;
    w->health.cpu_seconds = 0.25;
    w->health.price = (struct ltn_price_health){.detail = LTN_DETAIL_NO_HOST,
                                                .thin = 100,
                                                .thinned = 9000,
                                                .probe_share = 0.015,
                                                .probe_pid = SAMPLE_PID,
                                                .own_share = -1.0,
                                                .pair_ns = 950.0};
    w->health.coverage = (struct ltn_coverage){.files = 3,
                                               .files_unattached = 1,
                                               .hidden_processes = 2,
                                               .silent_processes = 4,
                                               .silent_total = 5,
                                               .attach_delay_max_ns = 6000000,
                                               .stacks_refused = 7};
    return w;
}

struct ltn_call_batch *sample_calls(unsigned first, unsigned count)
{
    struct ltn_call_batch *b = need(calloc(1, sizeof(*b) + count * sizeof(b->calls[0])));
    b->count = count;
    b->capacity = count;
    for (unsigned i = 0; i < count; i++) {
        b->calls[i] = (struct ltn_call){.time_ns = SAMPLE_T0_NS + first + i,
                                        .duration_ns = 1000ULL * (i + 1),
                                        .on_cpu_ns = 100,
                                        .run_queue_ns = 200,
                                        .blocked_ns = 700,
                                        .bytes = 8,
                                        .handle = UINT64_MAX,
                                        .pid = SAMPLE_PID,
                                        .tid = 1001,
                                        .proc_start_ns = SAMPLE_START,
                                        .weight = 1,
                                        .op = LTN_OP_ID_CUDA_STREAM_SYNCHRONIZE};
    }
    return b;
}
