/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes that spend their time in blocking copies. A blocking copy also waits for the work
 * before it in its stream, so its time counts only as far as its bytes explain it.
 */
#include <stdio.h>

#include "causal/internal.h"

#define BOUND_SHARE 0.4 /* of the window */
#define PERSIST     3
#define QUIET       3
/* No link between host and device in use is slower for pageable memory; what takes longer waits. */
#define SLOWEST_BYTES_PER_S 2e9

struct copies {
    double ns;
    double queued_ns;
    double bytes;
    double calls;
};

static struct copies sum_of(const struct ltn_proc_window *pw, enum ltn_op_source source)
{
    struct copies s = {0};
    for (size_t i = 0; i < pw->op_count; i++) {
        const struct ltn_op_window *o = &pw->ops[i];
        const struct ltn_op *op = ltn_op_get(o->op);
        if (op != NULL && op->source == source && op->op_class == LTN_CLASS_COPY &&
            (LTN_COOKIE_FLAGS(op->cookie) & LTN_OP_BLOCKING) != 0) {
            s.ns += (double)o->duration_ns;
            s.queued_ns += (double)o->run_queue_ns;
            s.bytes += (double)o->bytes;
            s.calls += (double)o->calls;
        }
    }
    return s;
}

void ltn_causal_copies(struct ltn_causal *c, struct causal_proc *p, const struct ltn_window *w,
                       const struct ltn_proc_window *pw)
{
    /* The runtime's copies are made with the driver's: the larger sum has both. */
    struct copies s = sum_of(pw, LTN_OP_SOURCE_CUDA);
    struct copies driver = sum_of(pw, LTN_OP_SOURCE_DRIVER);
    s = driver.ns > s.ns ? driver : s;
    double window_ns = (double)(w->end_ns - w->start_ns);
    double spent = s.ns - s.queued_ns;
    double moving = s.bytes / SLOWEST_BYTES_PER_S * 1e9;
    moving = moving < spent ? moving : spent;
    double share = window_ns > 0.0 ? moving / window_ns : 0.0;
    double explained = s.ns > 0.0 ? moving / s.ns : 0.0;
    if (share < BOUND_SHARE || explained < LTN_CAUSAL_EXPLAINED) {
        p->copy_streak = 0;
        return;
    }
    if (++p->copy_streak < PERSIST) {
        return;
    }
    share = share > 1.0 ? 1.0 : share;
    char title[LTN_CAUSAL_TITLE_BYTES];
    char who[WHO_BYTES];
    (void)snprintf(title, sizeof(title),
                   "%s: blocking copies take %.0f %% of its time: %.0f a second, %.1f GB/s",
                   ltn_causal_who(who, p), share * 100.0, s.calls / window_ns * 1e9,
                   s.bytes / s.ns);
    struct ltn_buf evidence;
    struct ltn_json j;
    ltn_buf_init(&evidence, EVIDENCE_BYTES);
    ltn_json_init(&j, &evidence);
    ltn_json_open_object(&j);
    ltn_json_kv_time(&j, "window_end", "window_end_ns", w->end_ns);
    ltn_json_kv_u64(&j, "copies", (uint64_t)s.calls);
    ltn_json_kv_u64(&j, "copies_ns", (uint64_t)s.ns);
    ltn_json_kv_u64(&j, "run_queue_ns", (uint64_t)s.queued_ns);
    ltn_json_kv_u64(&j, "bytes", (uint64_t)s.bytes);
    ltn_json_kv_f64(&j, "window_share", share);
    ltn_json_close_object(&j);
    const struct finding f = {
        .kind = LTN_CAUSAL_MEMCPY,
        .severity = share >= 0.7 ? LTN_CAUSAL_HIGH : LTN_CAUSAL_MEDIUM,
        .title = title,
        .cause = "blocking copies between host and device",
        .share = explained,
        .count = 1,
        .quiet = QUIET,
        .evidence = &evidence,
    };
    ltn_inc_found(c, p, w->end_ns, &f);
    ltn_buf_done(&evidence);
}
