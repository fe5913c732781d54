/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why a member is slow: how much more of each part of self time it spends than its peers, set
 * against how much slower it is. A part in which it is faster explains nothing and takes nothing
 * away. A cause is named only when it explains min_named_share of the excess.
 */
#include "straggler/internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/text.h"
#include "stats/robust.h"

static double peers_median_part(const struct ltn_round *r, const struct ltn_case *c, size_t part)
{
    double *v = r->s->scratch;
    size_t k = 0;
    for (size_t i = 0; i < r->n; i++)
        if (&r->cases[i] != c)
            v[k++] = r->cases[i].in->part_ns[part];
    return ltn_median(v, k);
}

void ltn_cause_sample(const struct ltn_round *r, const struct ltn_case *c,
                      struct ltn_sample *sample)
{
    for (size_t p = 0; p < LTN_PARTS; p++)
        sample->part_excess_ns[p] = c->in->part_ns[p] - peers_median_part(r, c, p);
    memcpy(sample->preemptors, c->in->preemptors, sizeof(sample->preemptors));
}

/* Parts that make one cause together: waiting for something that is not a CPU or a device. */
static const enum ltn_part blocked_parts[] = {LTN_PART_READ, LTN_PART_DISK, LTN_PART_FUTEX,
                                              LTN_PART_POLL, LTN_PART_SLEEP};

struct blocked_name {
    const char *cause;
    const char *detail;
};

static struct blocked_name blocked_name(enum ltn_part part)
{
    switch (part) {
    case LTN_PART_READ:
        return (struct blocked_name){"data_loader", "blocked in read on input"};
    case LTN_PART_DISK:
        return (struct blocked_name){"disk_io", "blocked on disk I/O"};
    case LTN_PART_POLL:
        return (struct blocked_name){"blocked_poll", "blocked in poll, waiting for input"};
    case LTN_PART_SLEEP:
        return (struct blocked_name){"blocked_sleep", "sleeping in the program itself"};
    default:
        return (struct blocked_name){"blocked_futex", "blocked on a lock or another thread"};
    }
}

struct excess {
    double self_ns;
    double part_ns[LTN_PARTS];
};

static void mean_excess(const struct ltn_mate *m, struct excess *e)
{
    memset(e, 0, sizeof(*e));
    size_t k = 0;
    for (size_t i = 0; i < m->recent_n; i++) {
        const struct ltn_sample *s = &m->recent[i];
        if (!s->slow)
            continue;
        e->self_ns += s->self_ns - s->peer_median_ns;
        for (size_t p = 0; p < LTN_PARTS; p++)
            e->part_ns[p] += s->part_excess_ns[p];
        k++;
    }
    if (k == 0)
        return;
    e->self_ns /= (double)k;
    for (size_t p = 0; p < LTN_PARTS; p++)
        e->part_ns[p] = fmax(0, e->part_ns[p] / (double)k);
}

/* The comm that held the CPU for most of the waited time; its share of that time. */
static double top_preemptor(const struct ltn_mate *m, char comm[LTN_STRAGGLER_COMM_BYTES])
{
    struct ltn_straggler_preemptor sums[LTN_RECENT * LTN_STRAGGLER_PREEMPTORS];
    size_t n = 0;
    double total = 0;
    for (size_t i = 0; i < m->recent_n; i++) {
        for (size_t k = 0; m->recent[i].slow && k < LTN_STRAGGLER_PREEMPTORS; k++) {
            const struct ltn_straggler_preemptor *p = &m->recent[i].preemptors[k];
            if (!(p->waited_ns > 0) || p->comm[0] == '\0')
                continue;
            size_t at = 0;
            while (at < n && strncmp(sums[at].comm, p->comm, sizeof(p->comm)) != 0)
                at++;
            if (at == n)
                sums[n++] = (struct ltn_straggler_preemptor){{0}, 0};
            memcpy(sums[at].comm, p->comm, sizeof(p->comm));
            sums[at].waited_ns += p->waited_ns;
            total += p->waited_ns;
        }
    }
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        if (sums[i].waited_ns > sums[best].waited_ns)
            best = i;
    if (n == 0)
        return 0;
    memcpy(comm, sums[best].comm, LTN_STRAGGLER_COMM_BYTES);
    comm[LTN_STRAGGLER_COMM_BYTES - 1] = '\0';
    return sums[best].waited_ns / total;
}

static void name_cpu(const struct ltn_mate *m, struct ltn_straggler_verdict *v)
{
    char comm[LTN_STRAGGLER_COMM_BYTES] = "";
    double share = top_preemptor(m, comm);
    ltn_copy_str(v->cause, sizeof(v->cause), "cpu_contention");
    if (share <= 0)
        ltn_copy_str(v->cause_detail, sizeof(v->cause_detail),
                     "waiting for a CPU; who held it was not seen");
    else if (share >= 0.5)
        (void)snprintf(v->cause_detail, sizeof(v->cause_detail), "waiting for a CPU that `%s` held",
                       comm);
    else
        (void)snprintf(v->cause_detail, sizeof(v->cause_detail),
                       "waiting for a CPU that several held, `%s` the longest (%.0f %%)", comm,
                       100 * share);
}

/* "self time +52.0 ms: on_cpu +21.0 ms, run_queue +30.1 ms" */
static void print_split(const struct excess *e, char *out, size_t size)
{
    struct ltn_buf b;
    ltn_buf_init(&b, 1024);
    (void)ltn_buf_printf(&b, "no part explains it; self time %+.3f ms:", e->self_ns / 1e6);
    const char *comma = "";
    for (size_t p = 0; p < LTN_PARTS; p++) {
        if (e->part_ns[p] < 0.02 * e->self_ns)
            continue;
        (void)ltn_buf_printf(&b, "%s %s %+.3f ms", comma, ltn_part_name((enum ltn_part)p),
                             e->part_ns[p] / 1e6);
        comma = ",";
    }
    if (comma[0] == '\0')
        (void)ltn_buf_puts(&b, " no split was measured");
    ltn_copy_str(out, size, ltn_buf_str(&b));
    ltn_buf_done(&b);
}

struct candidate {
    double ns;
    enum ltn_part part; /* the part, or the leading one of the blocked family */
    bool blocked;
};

static struct candidate best_candidate(const struct excess *e)
{
    struct candidate blocked = {0, LTN_PART_READ, true};
    bool in_family[LTN_PARTS] = {false};
    for (size_t i = 0; i < LTN_ARRAY_SIZE(blocked_parts); i++) {
        enum ltn_part p = blocked_parts[i];
        in_family[p] = true;
        blocked.ns += e->part_ns[p];
        if (e->part_ns[p] > e->part_ns[blocked.part])
            blocked.part = p;
    }
    /* A family without a leader is a list, not a cause. */
    if (e->part_ns[blocked.part] < 0.5 * blocked.ns)
        blocked.ns = e->part_ns[blocked.part];
    struct candidate best = blocked;
    for (size_t p = 0; p < LTN_PARTS; p++)
        if (!in_family[p] && p != LTN_PART_OTHER && e->part_ns[p] > best.ns)
            best = (struct candidate){e->part_ns[p], (enum ltn_part)p, false};
    return best;
}

void ltn_cause_name(const struct ltn_straggler_opts *opts, const struct ltn_mate *m,
                    struct ltn_straggler_verdict *v)
{
    struct excess e;
    mean_excess(m, &e);
    struct candidate best = best_candidate(&e);
    v->tier = "ebpf";
    v->explained_share = e.self_ns > 0 ? fmin(1.0, best.ns / e.self_ns) : 0;
    if (v->explained_share < opts->min_named_share) {
        ltn_copy_str(v->cause, sizeof(v->cause), "unattributed");
        print_split(&e, v->cause_detail, sizeof(v->cause_detail));
        return;
    }
    const char *cause = NULL, *detail = NULL;
    if (best.blocked) {
        struct blocked_name n = blocked_name(best.part);
        cause = n.cause;
        detail = n.detail;
    } else if (best.part == LTN_PART_RUN_QUEUE) {
        name_cpu(m, v);
        return;
    } else if (best.part == LTN_PART_ON_CPU) {
        cause = "host_compute";
        detail = "the program itself computes longer on the CPU between waits";
    } else if (best.part == LTN_PART_DEVICE) {
        cause = "device";
        detail = "waiting longer for its own device, with no collective outstanding";
    } else if (best.part == LTN_PART_FAULT) {
        cause = "page_faults";
        detail = "waiting for memory pages";
    } else if (best.part == LTN_PART_WRITE) {
        cause = "blocked_write";
        detail = "blocked in write on output";
    } else {
        cause = "blocked_child";
        detail = "waiting for a child process";
    }
    ltn_copy_str(v->cause, sizeof(v->cause), cause);
    ltn_copy_str(v->cause_detail, sizeof(v->cause_detail), detail);
}
