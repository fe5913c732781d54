/* SPDX-License-Identifier: Apache-2.0 */
/* The life of incidents: open, update, close; identities, caps and counts. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "causal/internal.h"

#define HOLD_WINDOWS   6 /* without a step, on end */
#define MAX_OPEN       256
#define MAX_PER_WINDOW 32
#define UPDATE_WINDOWS 30 /* at least one update in so many windows that it is seen in */
#define KEY_BYTES      96

struct incident {
    char key[KEY_BYTES];
    char id[17];
    enum ltn_causal_kind kind;
    enum ltn_causal_severity severity;
    uint64_t opened_ns;
    uint64_t last_window;
    uint64_t told_window;
    uint64_t told_count;
    uint64_t count;
    unsigned quiet;
    unsigned held; /* windows that told nothing, since it was last found */
    uint32_t pid;
    uint64_t proc_start_ns;
    double share;
    char title[LTN_CAUSAL_TITLE_BYTES];
    char cause[LTN_CAUSAL_CAUSE_BYTES];
    char *evidence; /* NULL when memory was out */
};

static const char *const kind_names[LTN_CAUSAL_KINDS] = {
    "cpu_contention", "page_faults",     "io_wait",    "unexplained",
    "memcpy_bound",   "alloc_spike",     "cold_start", "cuda_error",
    "device_memory",  "collective_hang", "oom_kill",   "memory_pressure",
};

const char *ltn_causal_kind_name(enum ltn_causal_kind kind)
{
    return (unsigned)kind < LTN_CAUSAL_KINDS ? kind_names[kind] : "unknown";
}

const char *ltn_causal_severity_name(enum ltn_causal_severity severity)
{
    static const char *const names[] = {"LOW", "MEDIUM", "HIGH", "CRITICAL"};
    return (unsigned)severity < LTN_ARRAY_SIZE(names) ? names[severity] : "LOW";
}

/* FNV-1a, with a last mixing so that near inputs differ everywhere. */
static uint64_t hash(const char *text, uint64_t seed)
{
    uint64_t h = 0xcbf29ce484222325ULL ^ seed;
    for (; *text != '\0'; text++) {
        h = (h ^ (unsigned char)*text) * 0x100000001b3ULL;
    }
    h = (h ^ (h >> 33)) * 0xff51afd7ed558ccdULL;
    h = (h ^ (h >> 33)) * 0xc4ceb9fe1a85ec53ULL;
    return h ^ (h >> 33);
}

static void make_key(char out[KEY_BYTES], const struct causal_proc *p, enum ltn_causal_kind kind,
                     uint64_t detail)
{
    (void)snprintf(out, KEY_BYTES, "%u/%" PRIu64 "/%d/%" PRIx64, p != NULL ? p->pid : 0,
                   p != NULL ? p->start_ns : 0, (int)kind, detail);
}

static void tell(struct ltn_causal *c, struct incident *i, const char *state, uint64_t time_ns)
{
    const struct ltn_causal_change change = {
        .id = i->id,
        .time_ns = time_ns,
        .opened_ns = i->opened_ns,
        .state = state,
        .kind = i->kind,
        .severity = i->severity,
        .title = i->title,
        .cause = i->cause,
        .explained_share = i->share,
        .count = i->count,
        .pid = i->pid,
        .proc_start_ns = i->proc_start_ns,
        .evidence = i->evidence != NULL ? i->evidence : "{}",
    };
    i->told_window = c->window;
    i->told_count = i->count;
    if (c->opts.change != NULL) {
        c->opts.change(c->opts.ctx, &change);
    }
}

/* What is worst so far is what the incident says of itself. */
static void describe(struct incident *i, const struct finding *f)
{
    i->severity = f->severity;
    i->share = f->share;
    ltn_text_clean(i->title, sizeof(i->title), f->title, strlen(f->title));
    ltn_text_clean(i->cause, sizeof(i->cause), f->cause, strlen(f->cause));
    if (f->evidence != NULL && ltn_buf_error(f->evidence) == 0) {
        free(i->evidence);
        i->evidence = strdup(ltn_buf_str(f->evidence));
    }
}

static struct incident *open_incident(struct ltn_causal *c, const struct causal_proc *p,
                                      const char *key, uint64_t time_ns, const struct finding *f)
{
    unsigned max_open = c->opts.max_open != 0 ? c->opts.max_open : MAX_OPEN;
    unsigned max_now = c->opts.max_per_window != 0 ? c->opts.max_per_window : MAX_PER_WINDOW;
    if (c->incidents.len >= max_open || c->opened_in_window >= max_now) {
        c->stats.suppressed_total++;
        return NULL;
    }
    struct incident *i = calloc(1, sizeof(*i));
    if (i == NULL || ltn_map_put_str(&c->incidents, key, i) != 0) {
        free(i);
        c->stats.refused_total++;
        return NULL;
    }
    memcpy(i->key, key, KEY_BYTES);
    i->kind = f->kind;
    i->opened_ns = time_ns;
    i->pid = p != NULL ? p->pid : 0;
    i->proc_start_ns = p != NULL ? p->start_ns : 0;
    uint64_t id = hash(key, hash(c->node, time_ns));
    (void)snprintf(i->id, sizeof(i->id), "%016" PRIx64, id);
    c->opened_in_window++;
    c->stats.opened_total++;
    return i;
}

static bool worth_an_update(const struct ltn_causal *c, const struct incident *i, bool worse)
{
    return worse || i->count >= 2 * i->told_count || c->window - i->told_window >= UPDATE_WINDOWS;
}

/* Found by what a step takes. */
static bool is_of_host(enum ltn_causal_kind kind)
{
    return kind == LTN_CAUSAL_CPU || kind == LTN_CAUSAL_FAULTS || kind == LTN_CAUSAL_IO ||
           kind == LTN_CAUSAL_UNEXPLAINED;
}

void ltn_inc_found(struct ltn_causal *c, const struct causal_proc *proc, uint64_t time_ns,
                   const struct finding *f)
{
    char key[KEY_BYTES] = {0};
    make_key(key, proc, f->kind, f->detail);
    struct incident *i = ltn_map_get_str(&c->incidents, key);
    bool fresh = i == NULL;
    if (fresh) {
        i = open_incident(c, proc, key, time_ns, f);
        if (i == NULL) {
            return;
        }
    }
    bool worse = !fresh && f->severity > i->severity;
    i->count += f->count;
    i->quiet = f->quiet;
    i->held = 0;
    i->last_window = c->window;
    if (fresh || worse) {
        describe(i, f);
    }
    if (fresh) {
        tell(c, i, "open", time_ns);
    } else if (worth_an_update(c, i, worse)) {
        describe(i, f);
        tell(c, i, "update", time_ns);
    }
}

void ltn_inc_hold(struct ltn_causal *c, const struct causal_proc *proc)
{
    size_t pos = 0;
    struct incident *i;
    while ((i = ltn_map_next(&c->incidents, &pos)) != NULL) {
        if (i->pid == proc->pid && i->proc_start_ns == proc->start_ns && is_of_host(i->kind) &&
            i->held < HOLD_WINDOWS) {
            i->held++;
            i->last_window++;
        }
    }
}

bool ltn_inc_is_open(const struct ltn_causal *c, const struct causal_proc *proc,
                     enum ltn_causal_kind kind, uint64_t detail)
{
    char key[KEY_BYTES] = {0};
    make_key(key, proc, kind, detail);
    return ltn_map_get_str(&c->incidents, key) != NULL;
}

static void free_incident(void *arg)
{
    struct incident *i = arg;
    free(i->evidence);
    free(i);
}

static void close_incident(struct ltn_causal *c, struct incident *i, uint64_t time_ns)
{
    tell(c, i, "closed", time_ns);
    (void)ltn_map_del(&c->incidents, i->key, strlen(i->key));
    c->stats.closed_total++;
    free_incident(i);
}

void ltn_inc_turn(struct ltn_causal *c, uint64_t time_ns)
{
    size_t pos = 0;
    struct incident *i;
    while ((i = ltn_map_next(&c->incidents, &pos)) != NULL) {
        if (c->window - i->last_window >= i->quiet) {
            close_incident(c, i, time_ns);
            pos = 0; /* the walk does not survive a removal */
        }
    }
    c->opened_in_window = 0;
}

void ltn_inc_close_all(struct ltn_causal *c, const struct causal_proc *proc, uint64_t time_ns)
{
    size_t pos = 0;
    struct incident *i;
    while ((i = ltn_map_next(&c->incidents, &pos)) != NULL) {
        if (proc == NULL || (i->pid == proc->pid && i->proc_start_ns == proc->start_ns)) {
            close_incident(c, i, time_ns);
            pos = 0;
        }
    }
}

void ltn_inc_done(struct ltn_causal *c)
{
    ltn_map_done(&c->incidents, free_incident);
}
