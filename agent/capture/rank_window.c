/* SPDX-License-Identifier: Apache-2.0 */
#include "capture/rank_window.h"

static const enum ltn_split split_of_reason[LTN_OFF_REASONS] = {
    [LTN_OFF_FUTEX] = LTN_SPLIT_FUTEX, [LTN_OFF_READ] = LTN_SPLIT_READ,
    [LTN_OFF_WRITE] = LTN_SPLIT_WRITE, [LTN_OFF_POLL] = LTN_SPLIT_POLL,
    [LTN_OFF_SLEEP] = LTN_SPLIT_SLEEP, [LTN_OFF_DISK] = LTN_SPLIT_DISK,
    [LTN_OFF_CHILD] = LTN_SPLIT_CHILD, [LTN_OFF_FAULT] = LTN_SPLIT_FAULT,
    [LTN_OFF_OTHER] = LTN_SPLIT_OTHER,
};

static double diff(uint64_t now, uint64_t before)
{
    return now > before ? (double)(now - before) : 0.0;
}

/* Steps that ended between the readings: by waits where a step has some, else by collectives. */
static double count_steps(const struct ltn_thread_stats *before, const struct ltn_thread_stats *now,
                          const struct ltn_steps *steps)
{
    double waits = diff(now->peer_syncs, before->peer_syncs);
    if (steps->period == 0) {
        return waits;
    }
    if (steps->waits_per_step > 0) {
        return waits / steps->waits_per_step;
    }
    return diff(now->collectives, before->collectives) / steps->collectives_per_step;
}

bool ltn_rank_window_fill(const struct ltn_thread_stats *before, const struct ltn_thread_stats *now,
                          const struct ltn_steps *steps, uint64_t window_ns,
                          struct ltn_rank_window *ret)
{
    double n = count_steps(before, now, steps);
    if (n <= 0.0) {
        return false;
    }
    double segment = diff(now->segment_ns, before->segment_ns);
    double off = diff(now->segment_off_cpu_ns, before->segment_off_cpu_ns);
    double queued = diff(now->segment_run_queue_ns, before->segment_run_queue_ns);
    double device = diff(now->device_wait_ns, before->device_wait_ns);
    double device_queued = diff(now->device_wait_run_queue_ns, before->device_wait_run_queue_ns);
    double peer = diff(now->peer_wait_ns, before->peer_wait_ns);
    double peer_queued = diff(now->peer_wait_run_queue_ns, before->peer_wait_run_queue_ns);
    double self = segment + device + peer_queued;

    *ret = (struct ltn_rank_window){
        .tid = now->tid,
        .steps = n,
        .step_ns = (segment + device + peer) / n,
        .self_ns = self / n,
        .peer_wait_ns = (peer - peer_queued) / n,
        .major_faults = diff(now->segment_major_faults, before->segment_major_faults) / n,
        .minor_faults = diff(now->segment_minor_faults, before->segment_minor_faults) / n,
        .collectives_per_step = steps->collectives_per_step,
    };
    double *split = ret->split_ns;
    double named = 0.0;
    for (int i = 0; i < LTN_OFF_REASONS; i++) {
        double part = diff(now->segment_blocked_ns[i], before->segment_blocked_ns[i]);
        split[split_of_reason[i]] += part / n;
        named += part;
    }
    split[LTN_SPLIT_ON_CPU] = segment > off ? (segment - off) / n : 0.0;
    split[LTN_SPLIT_RUN_QUEUE] = (queued + peer_queued + device_queued) / n;
    split[LTN_SPLIT_DEVICE] = (device - device_queued) / n;
    double rest = off - queued - named;
    if (rest > 0.0) {
        split[LTN_SPLIT_OTHER] += rest / n;
    }
    double covered = (segment + device + peer) / (double)window_ns;
    ret->coverage = covered > 1.0 ? 1.0 : covered;
    return true;
}
