/* SPDX-License-Identifier: Apache-2.0 */
#include "governor/meter.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/map.h"
#include "bpf/event.h"
#include "capture/kernel_maps.h"
#include "probe/ops.h"

#define NS 1e-9
/* What others cost against a launch: they are entered in the table of calls in progress and get a
 * record (docs/performance.md). */
#define OTHER_FACTOR 1.5
/* A stack of usual depth, Python frames left out. */
#define STACK_NS 1000.0
/* A process costs at most this share of the budget when its counters are not worth reading. */
#define WORTH_READING  0.5
#define COUNTERS_MAX   65536
#define FORGET_AT_ONCE 64
#define OWN_SMOOTHING  0.2
#define STATS_EACH_NS  (60 * LTN_NS_PER_S)
#define STATS_FOR_NS   (900 * LTN_NS_PER_MS)

/* Last counts of one op of one process. */
struct counter {
    struct ltn_op_key key;
    uint64_t read_ns; /* when; 0 = never */
    uint64_t calls;
    uint64_t nested;
};

struct process_rates {
    uint32_t tgid;
    struct ltn_call_rates r;
};

struct ltn_meter {
    const struct ltn_probes *probes;
    struct ltn_probe_price price;
    double budget;
    uint64_t last_ns;
    uint64_t last_calls; /* all processes */
    uint64_t last_records;
    uint64_t last_own_ns;
    double own_share; /* smoothed; negative before the first */
    /* Counters of single processes. */
    struct ltn_map counters; /* {tgid, op} -> struct counter */
    uint64_t reading_ns;     /* the moment of the reading under way */
    struct process_rates *rates;
    bool stepped[LTN_OP_COUNT]; /* some probe of the op is stepped through */
    struct ltn_map by_tgid;     /* where a process is in rates, plus one */
    size_t rate_count;
    size_t rate_cap;
    /* Statistics of the kernel. */
    int stats_fd;
    uint64_t stats_since_ns;
    uint64_t stats_due_ns;
    struct ltn_probe_runtime stats_from;
    double programs_share; /* scheduler and process programs, of one core */
};

struct ltn_meter *ltn_meter_new(const struct ltn_probes *probes,
                                const struct ltn_probe_price *price, double budget)
{
    struct ltn_meter *m = calloc(1, sizeof(*m));
    if (m == NULL) {
        return NULL;
    }
    m->probes = probes;
    m->price = *price;
    m->budget = budget;
    m->own_share = -1.0;
    m->stats_fd = -1;
    ltn_map_init(&m->counters, COUNTERS_MAX);
    ltn_map_init(&m->by_tgid, COUNTERS_MAX);
    return m;
}

void ltn_meter_free(struct ltn_meter *m)
{
    if (m == NULL) {
        return;
    }
    if (m->stats_fd >= 0) {
        (void)close(m->stats_fd);
    }
    ltn_map_done(&m->counters, free);
    ltn_map_done(&m->by_tgid, NULL);
    free(m->rates);
    free(m);
}

double ltn_meter_share(const struct ltn_call_rates *r, const struct ltn_probe_price *price,
                       enum ltn_detail level)
{
    double nested = level >= LTN_DETAIL_NO_NESTED ? price->entry_ns : price->pair_ns;
    double launch = level >= LTN_DETAIL_COUNTS ? price->entry_ns : price->pair_ns;
    return (r->nested * nested + r->launches * launch + r->entries_only * price->entry_ns +
            r->others * price->pair_ns * OTHER_FACTOR + r->stepped * price->step_ns) *
           NS;
}

/* ---- processes ---- */

static struct process_rates *rates_of(struct ltn_meter *m, uint32_t tgid)
{
    size_t at = (size_t)(uintptr_t)ltn_map_get_u64(&m->by_tgid, tgid);
    if (at != 0) {
        return &m->rates[at - 1];
    }
    if (m->rate_count == m->rate_cap) {
        size_t cap = m->rate_cap == 0 ? 64 : m->rate_cap * 2;
        struct process_rates *grown = realloc(m->rates, cap * sizeof(*grown));
        if (grown == NULL) {
            return NULL;
        }
        m->rates = grown;
        m->rate_cap = cap;
    }
    /* One is added, since a map keeps no NULL. */
    if (ltn_map_put_u64(&m->by_tgid, tgid, (void *)(uintptr_t)(m->rate_count + 1)) != 0) {
        return NULL;
    }
    m->rates[m->rate_count] = (struct process_rates){.tgid = tgid};
    return &m->rates[m->rate_count++];
}

static void add_rate(struct ltn_call_rates *r, uint32_t op, double calls, double nested,
                     bool stepped)
{
    const struct ltn_op *o = ltn_op_get(op);
    uint64_t cookie = o != NULL ? o->cookie : 0;
    uint32_t cls = o != NULL ? o->op_class : 0;
    bool quick = (LTN_COOKIE_FLAGS(cookie) & LTN_OP_BLOCKING) == 0 &&
                 (cls == LTN_CLASS_LAUNCH || cls == LTN_CLASS_COPY || cls == LTN_CLASS_MEMSET);
    r->nested += nested;
    r->stepped += stepped ? calls : 0.0;
    if ((LTN_COOKIE_FLAGS(cookie) & LTN_OP_ENTRY_ONLY) != 0) {
        r->entries_only += calls - nested;
    } else if (quick) {
        r->launches += calls - nested;
    } else {
        r->others += calls - nested;
    }
}

static struct counter *counter_of(struct ltn_meter *m, const struct ltn_op_key *key)
{
    struct counter *c = ltn_map_get(&m->counters, key, sizeof(*key));
    if (c != NULL) {
        return c;
    }
    c = calloc(1, sizeof(*c));
    if (c == NULL || ltn_map_put(&m->counters, key, sizeof(*key), c) != 0) {
        free(c);
        return NULL;
    }
    c->key = *key;
    return c;
}

static void on_counter(const void *k, const void *value, void *arg)
{
    struct ltn_meter *m = arg;
    struct ltn_op_key key;
    uint64_t calls;
    uint64_t nested;
    memcpy(&key, k, sizeof(key));
    memcpy(&calls, (const char *)value + offsetof(struct ltn_op_stats, calls), sizeof(calls));
    memcpy(&nested, (const char *)value + offsetof(struct ltn_op_stats, nested), sizeof(nested));
    struct counter *c = counter_of(m, &key);
    if (c == NULL) {
        return;
    }
    struct process_rates *p = c->read_ns != 0 ? rates_of(m, key.tgid) : NULL;
    bool same = calls >= c->calls && nested >= c->nested; /* else another process has the pid */
    if (p != NULL && same && m->reading_ns > c->read_ns) {
        double per_s = 1e9 / (double)(m->reading_ns - c->read_ns);
        add_rate(&p->r, key.op, (double)(calls - c->calls) * per_s,
                 (double)(nested - c->nested) * per_s, key.op < LTN_OP_COUNT && m->stepped[key.op]);
    }
    c->calls = calls;
    c->nested = nested;
    c->read_ns = m->reading_ns;
}

/* Counters that were not there any more: their process is gone. A few at a time. */
static void forget_gone(struct ltn_meter *m)
{
    size_t pos = 0;
    struct counter *c;
    for (unsigned n = 0; n < FORGET_AT_ONCE && (c = ltn_map_next(&m->counters, &pos)) != NULL;) {
        if (c->read_ns != m->reading_ns) {
            struct ltn_op_key key = c->key;
            free(ltn_map_del(&m->counters, &key, sizeof(key)));
            pos = 0;
            n++;
        }
    }
}

/* True when there is any. */
static bool find_stepped(struct ltn_meter *m)
{
    bool any = false;
    size_t pos = 0;
    const struct ltn_probe_site *site;
    memset(m->stepped, 0, sizeof(m->stepped));
    while ((site = ltn_probes_next(m->probes, &pos)) != NULL) {
        if (site->site.kind == LTN_SITE_SINGLE_STEPPED && site->op < LTN_OP_COUNT) {
            m->stepped[site->op] = true;
            any = true;
        }
    }
    return any;
}

/* Fills in the shares of the dearest process. */
static void read_processes(struct ltn_meter *m, uint64_t now_ns, struct ltn_governor_input *ret,
                           uint32_t *ret_pid)
{
    struct ltn_probe_maps maps = ltn_probes_maps(m->probes);
    m->reading_ns = now_ns;
    m->rate_count = 0;
    ltn_map_done(&m->by_tgid, NULL);
    ltn_map_init(&m->by_tgid, COUNTERS_MAX);
    if (ltn_kernel_map_each(maps.op_stats, sizeof(struct ltn_op_key), sizeof(struct ltn_op_stats),
                            on_counter, m) == 0) {
        forget_gone(m);
    }
    for (size_t i = 0; i < m->rate_count; i++) {
        const struct ltn_call_rates *r = &m->rates[i].r;
        if (ltn_meter_share(r, &m->price, LTN_DETAIL_FULL) > ret->probe_share[LTN_DETAIL_FULL]) {
            *ret_pid = m->rates[i].tgid;
        }
        for (int l = 0; l < LTN_DETAILS; l++) {
            double share = ltn_meter_share(r, &m->price, (enum ltn_detail)l);
            ret->probe_share[l] = share > ret->probe_share[l] ? share : ret->probe_share[l];
        }
    }
}

/* ---- the agent itself ---- */

static void read_statistics(struct ltn_meter *m, uint64_t now_ns)
{
    if (m->stats_fd < 0) {
        if (now_ns >= m->stats_due_ns) {
            m->stats_due_ns = now_ns + STATS_EACH_NS;
            m->stats_fd = ltn_probes_stats_on();
            m->stats_since_ns = now_ns;
            if (m->stats_fd >= 0 && ltn_probes_runtime(m->probes, &m->stats_from) < 0) {
                (void)close(m->stats_fd);
                m->stats_fd = -1;
            }
        }
        return;
    }
    if (now_ns - m->stats_since_ns < STATS_FOR_NS) {
        return;
    }
    struct ltn_probe_runtime now;
    if (ltn_probes_runtime(m->probes, &now) == 0) {
        m->programs_share = (double)(now.others_ns - m->stats_from.others_ns) /
                            (double)(now_ns - m->stats_since_ns);
    }
    (void)close(m->stats_fd);
    m->stats_fd = -1;
}

static void read_own(struct ltn_meter *m, uint64_t own_ns, double seconds)
{
    double share = (double)(own_ns - m->last_own_ns) * NS / seconds;
    m->own_share =
        m->own_share < 0.0 ? share : m->own_share + OWN_SMOOTHING * (share - m->own_share);
}

void ltn_meter_read(struct ltn_meter *m, uint64_t now_ns, struct ltn_governor_input *ret,
                    uint32_t *ret_pid)
{
    *ret = (struct ltn_governor_input){.now_ns = now_ns};
    *ret_pid = 0;
    uint64_t seen[LTN_SEENS] = {0};
    uint64_t own_ns = ltn_cpu_self_ns();
    if (ltn_kernel_counters(ltn_probes_maps(m->probes).seen, seen, LTN_SEENS) < 0) {
        return;
    }
    bool first = m->last_ns == 0 || now_ns <= m->last_ns;
    double seconds = first ? 1.0 : (double)(now_ns - m->last_ns) * NS;
    double calls_per_s = first ? 0.0 : (double)(seen[LTN_SEEN_CALLS] - m->last_calls) / seconds;
    uint64_t records = seen[LTN_SEEN_EMITTED] + seen[LTN_SEEN_THINNED];
    if (!first) {
        ret->records_per_s = (double)(records - m->last_records) / seconds;
        read_own(m, own_ns, seconds);
    }
    m->last_ns = now_ns;
    m->last_calls = seen[LTN_SEEN_CALLS];
    m->last_records = records;
    m->last_own_ns = own_ns;
    read_statistics(m, now_ns);
    ret->calls_per_s = calls_per_s;
    ret->programs_share = m->programs_share;
    ret->own_share = (m->own_share > 0.0 ? m->own_share : 0.0) + m->programs_share;
    ret->stack_share = ret->records_per_s * STACK_NS * NS; /* as if all were the dearest's */
    /* The most that one process can lose: as if all calls were its own, and of the dearest kind. */
    const struct ltn_call_rates all = {.others = calls_per_s,
                                       .stepped = find_stepped(m) ? calls_per_s : 0.0};
    double most = ltn_meter_share(&all, &m->price, LTN_DETAIL_FULL);
    if (most + ret->stack_share >= WORTH_READING * m->budget) {
        read_processes(m, now_ns, ret, ret_pid);
    } else {
        for (int l = 0; l < LTN_DETAILS; l++) {
            ret->probe_share[l] = most;
        }
    }
    ret->probe_share[LTN_DETAIL_FULL] += ret->stack_share;
}
