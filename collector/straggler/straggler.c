/* SPDX-License-Identifier: Apache-2.0 */
/* Groups and members, persistence and hysteresis: from windows to verdicts. */
#include "straggler/straggler.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/text.h"
#include "stats/robust.h"
#include "straggler/internal.h"

/* A hole of so many windows makes the recent ones old: persistence starts anew. */
#define HOLE_WINDOWS 12

/* An update is notable when the effect moved by this share of itself. */
#define NOTABLE_SHARE 0.25

#define SCRATCH_ARRAYS 2

static const char *const part_names[LTN_PARTS] = {
#define LTN_PART_TEXT(name, text) [LTN_PART_##name] = (text),
    LTN_PART_TABLE(LTN_PART_TEXT)
#undef LTN_PART_TEXT
};

const char *ltn_part_name(enum ltn_part part)
{
    return (unsigned)part < LTN_PARTS ? part_names[part] : "?";
}

enum ltn_part ltn_part_find(const char *name, size_t len)
{
    for (size_t p = 0; p < LTN_PARTS; p++)
        if (strlen(part_names[p]) == len && memcmp(part_names[p], name, len) == 0)
            return (enum ltn_part)p;
    return LTN_PARTS;
}

const char *ltn_straggler_method_name(enum ltn_straggler_method m)
{
    static const char *const names[] = {"peers", "own_history", "gpu_clock"};
    return (unsigned)m < LTN_ARRAY_SIZE(names) ? names[m] : "?";
}

const char *ltn_straggler_state_name(enum ltn_straggler_state s)
{
    static const char *const names[] = {"scored",       "warm_up",     "alone",  "peers_absent",
                                        "low_coverage", "cannot_tell", "cohort", "job_wide"};
    return (unsigned)s < LTN_ARRAY_SIZE(names) ? names[s] : "?";
}

void ltn_straggler_opts_default(struct ltn_straggler_opts *opts)
{
    *opts = (struct ltn_straggler_opts){
        .min_effect = 0.08,
        .min_sigmas = 4,
        .noise_floor = 0.005,
        .min_present = 0.6,
        .min_coverage = 0.8,
        .max_share = 0.2,
        .min_step_growth = 0.03,
        .min_named_share = 0.8,
        .warm_up_windows = 2,
        .clean_windows = 5,
        .max_groups = 20000,
        .max_group_members = 65536,
    };
}

bool ltn_sample_own_slow(const struct ltn_sample *s)
{
    return s->own_slow;
}

bool ltn_sample_throttled(const struct ltn_sample *s)
{
    return s->throttled;
}

size_t ltn_mate_count(const struct ltn_mate *m, bool (*pick)(const struct ltn_sample *))
{
    size_t k = 0;
    for (size_t i = 0; i < m->recent_n; i++)
        k += pick(&m->recent[i]) ? 1 : 0;
    return k;
}

/* ---- objects ---- */

struct ltn_straggler *ltn_straggler_new(const struct ltn_straggler_opts *opts)
{
    struct ltn_straggler *s = calloc(1, sizeof(*s));
    if (s == NULL)
        return NULL;
    if (opts != NULL)
        s->opts = *opts;
    else
        ltn_straggler_opts_default(&s->opts);
    ltn_map_init(&s->groups, s->opts.max_groups);
    return s;
}

static void free_group(void *p)
{
    struct ltn_group *g = p;
    ltn_map_done(&g->mates, free);
    free(g);
}

void ltn_straggler_free(struct ltn_straggler *s)
{
    if (s == NULL)
        return;
    ltn_map_done(&s->groups, free_group);
    free(s->scratch);
    free(s);
}

void ltn_straggler_sizes(const struct ltn_straggler *s, size_t *ret_groups, size_t *ret_members)
{
    *ret_groups = s->groups.len;
    *ret_members = s->members;
}

/* Job and group in one key; a separator that no cleaned name holds. */
static size_t group_key(const char *job, const char *group, char *out, size_t size)
{
    int n = snprintf(out, size, "%s\x1f%s", job, group);
    return n < 0 ? 0 : ((size_t)n < size ? (size_t)n : size - 1);
}

static int get_group(struct ltn_straggler *s, const char *job, const char *name,
                     struct ltn_group **ret)
{
    char key[2 * LTN_STRAGGLER_JOB_BYTES + 2];
    if (job == NULL || name == NULL || strlen(job) >= LTN_STRAGGLER_JOB_BYTES ||
        strlen(name) >= LTN_STRAGGLER_JOB_BYTES)
        return -EINVAL;
    size_t len = group_key(job, name, key, sizeof(key));
    struct ltn_group *g = ltn_map_get(&s->groups, key, len);
    if (g == NULL) {
        g = calloc(1, sizeof(*g));
        if (g == NULL)
            return -ENOMEM;
        (void)ltn_copy_str(g->job, sizeof(g->job), job);
        (void)ltn_copy_str(g->name, sizeof(g->name), name);
        ltn_map_init(&g->mates, s->opts.max_group_members);
        int rc = ltn_map_put(&s->groups, key, len, g);
        if (rc != 0) {
            free(g);
            return rc;
        }
    }
    *ret = g;
    return 0;
}

static int get_mate(struct ltn_straggler *s, struct ltn_group *g, const char *key,
                    struct ltn_mate **ret)
{
    struct ltn_mate *m = ltn_map_get_str(&g->mates, key);
    if (m == NULL) {
        m = calloc(1, sizeof(*m));
        if (m == NULL)
            return -ENOMEM;
        (void)ltn_copy_str(m->key, sizeof(m->key), key);
        int rc = ltn_map_put_str(&g->mates, key, m);
        if (rc != 0) {
            free(m);
            return rc;
        }
        s->members++;
    }
    *ret = m;
    return 0;
}

/* ---- one window ---- */

static bool usable(const struct ltn_straggler_opts *o, const struct ltn_straggler_member *m)
{
    return isfinite(m->self_ns) && m->self_ns > 0 && isfinite(m->step_ns) && m->step_ns > 0 &&
           isfinite(m->coverage) && m->coverage >= o->min_coverage;
}

static int by_x(const void *a, const void *b)
{
    const struct ltn_case *x = a, *y = b;
    if (x->x != y->x)
        return x->x < y->x ? -1 : 1;
    return strcmp(x->in->key, y->in->key);
}

/* Members worth scoring, ascending in self time. A new incarnation warms up by itself. */
static int collect(struct ltn_round *r, struct ltn_straggler_status *st)
{
    struct ltn_straggler *s = r->s;
    for (size_t i = 0; i < r->w->n; i++) {
        const struct ltn_straggler_member *in = &r->w->members[i];
        if (in->key[0] == '\0' || memchr(in->key, '\0', sizeof(in->key)) == NULL)
            return -EINVAL;
        struct ltn_mate *m = NULL;
        int rc = get_mate(s, r->g, in->key, &m);
        if (rc != 0)
            return rc;
        if (m->windows > 0 && m->incarnation != in->incarnation) {
            m->windows = 0;
            m->recent_n = m->recent_at = 0;
            m->base_n = m->dev_n = 0;
        }
        if (m->last_end_ns == r->w->end_ns)
            return -EINVAL; /* twice in one window */
        m->last_end_ns = r->w->end_ns;
        m->incarnation = in->incarnation;
        if (isfinite(in->coverage) && in->coverage < s->opts.min_coverage && in->self_ns > 0)
            st->low_coverage++;
        if (!usable(&s->opts, in))
            continue;
        if (m->windows++ < s->opts.warm_up_windows && !m->open)
            continue;
        r->cases[r->n++] = (struct ltn_case){.in = in, .mate = m, .x = log(in->self_ns)};
    }
    qsort(r->cases, r->n, sizeof(*r->cases), by_x);
    return 0;
}

static struct ltn_sample *push_sample(struct ltn_mate *m)
{
    struct ltn_sample *s = &m->recent[m->recent_at];
    m->recent_at = (m->recent_at + 1) % LTN_RECENT;
    if (m->recent_n < LTN_RECENT)
        m->recent_n++;
    memset(s, 0, sizeof(*s));
    return s;
}

/* Share of the step that would be saved if this member were as fast as the slowest of the others.
 */
static double self_impact(const struct ltn_round *r, size_t i)
{
    double slowest =
        i + 1 == r->n ? r->cases[r->n - 2].in->self_ns : r->cases[r->n - 1].in->self_ns;
    double share = (r->cases[i].in->self_ns - slowest) / r->cases[i].in->step_ns;
    return fmax(0, fmin(1, share));
}

static void note_samples(struct ltn_round *r)
{
    for (size_t i = 0; i < r->n; i++) {
        struct ltn_case *c = &r->cases[i];
        if (c->mate->recent_n > 0 &&
            r->w->end_ns - r->g->last_end_ns > HOLE_WINDOWS * r->w->length_ns)
            c->mate->recent_n = c->mate->recent_at = 0;
        struct ltn_sample *s = push_sample(c->mate);
        s->end_ns = r->w->end_ns;
        s->effect = c->effect;
        s->self_ns = c->in->self_ns;
        s->step_ns = c->in->step_ns;
        s->peer_median_ns = exp(c->peer_x);
        s->slow = c->slow;
        s->own_slow = c->own_slow;
        s->throttled = c->throttled;
        s->clock = c->in->gpu_clock;
        s->peer_clock = c->peer_clock;
        s->throttle_bits = c->in->gpu_throttle;
        if (!c->slow)
            continue;
        s->impact = self_impact(r, i);
        ltn_cause_sample(r, c, s);
        if (r->n == 2) /* the reference is its own past; the parts are set against the peer's */
            s->peer_median_ns = exp(c->mate->base_x);
    }
}

/* ---- verdicts ---- */

static int descending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x > y ? -1 : x < y;
}

/* Slow in enough of the recent windows, and steadily: a long pause beside one noisy window is a
 * pause. The weakest of the needed windows must show half of what the middle one shows. */
bool ltn_mate_slow(const struct ltn_mate *m)
{
    double e[LTN_RECENT];
    size_t k = 0;
    for (size_t i = 0; i < m->recent_n; i++)
        if (m->recent[i].slow)
            e[k++] = m->recent[i].effect;
    if (k < LTN_NEEDED)
        return false;
    qsort(e, k, sizeof(*e), descending);
    return e[LTN_NEEDED - 1] >= 0.5 * e[k / 2 - (k % 2 == 0 ? 1 : 0)];
}

static void identify(const struct ltn_round *r, const struct ltn_case *c,
                     struct ltn_straggler_verdict *v)
{
    (void)ltn_copy_str(v->job, sizeof(v->job), r->g->job);
    (void)ltn_copy_str(v->group, sizeof(v->group), r->g->name);
    memcpy(v->key, c->in->key, sizeof(v->key));
    memcpy(v->node, c->in->node, sizeof(v->node));
    v->node[sizeof(v->node) - 1] = '\0';
    v->rank = c->in->rank;
    v->incarnation = c->in->incarnation;
    v->peers = (uint32_t)(r->n - 1);
    v->self_time_ns = c->in->self_ns;
    v->peer_median_ns = exp(c->peer_x);
    v->updated_at_ns = r->w->end_ns;
}

static double median_effect(const struct ltn_mate *m)
{
    double e[LTN_RECENT];
    size_t k = 0;
    for (size_t i = 0; i < m->recent_n; i++)
        if (m->recent[i].slow)
            e[k++] = m->recent[i].effect;
    return k > 0 ? ltn_median(e, k) : 0;
}

static double mean_of(const struct ltn_mate *m, bool self)
{
    double sum = 0, k = 0;
    for (size_t i = 0; i < m->recent_n; i++) {
        if (!m->recent[i].slow)
            continue;
        sum += self ? m->recent[i].self_ns : m->recent[i].peer_median_ns;
        k += 1;
    }
    return k > 0 ? sum / k : 0;
}

/* Fills what the recent windows say about a member's self time. */
static bool self_verdict(const struct ltn_round *r, const struct ltn_case *c,
                         struct ltn_straggler_verdict *v)
{
    if (!ltn_mate_slow(c->mate))
        return false;
    v->method = r->n == 2 ? LTN_METHOD_OWN_HISTORY : LTN_METHOD_PEERS;
    v->effect_pct = 100 * expm1(median_effect(c->mate));
    v->self_time_ns = mean_of(c->mate, true);
    v->peer_median_ns = mean_of(c->mate, false);
    v->impact_share = c->mate->recent[(c->mate->recent_at + LTN_RECENT - 1) % LTN_RECENT].impact;
    v->gpu_clock = c->in->gpu_clock > 0 ? c->in->gpu_clock : -1;
    v->peer_gpu_clock = c->peer_clock;
    ltn_cause_name(&r->s->opts, c->mate, v);
    return true;
}

/* Both channels: a GPU that holds the rank up explains a longer wait for the own device. */
static bool make_verdict(const struct ltn_round *r, const struct ltn_case *c,
                         struct ltn_straggler_verdict *v)
{
    identify(r, c, v);
    bool slow = self_verdict(r, c, v);
    if (slow && strcmp(v->cause, "device") != 0 && strcmp(v->cause, "unattributed") != 0)
        return true;
    struct ltn_straggler_verdict gpu = *v;
    if (!ltn_gpu_verdict(r, c, &gpu))
        return slow;
    if (slow && strcmp(gpu.cause, "gpu_clock") != 0)
        return true;
    if (slow) { /* keep the measured effect: it is the stronger statement */
        gpu.method = v->method;
        gpu.effect_pct = v->effect_pct;
    }
    *v = gpu;
    return true;
}

static bool shows(const struct ltn_sample *s)
{
    return s->slow || s->throttled;
}

static double window_gpu_hours(const struct ltn_round *r, double impact)
{
    size_t gpus = r->w->job_gpus > 0 ? r->w->job_gpus : r->n;
    return impact * (double)gpus * (double)r->w->length_ns / 3.6e12;
}

static void emit(const struct ltn_round *r, enum ltn_straggler_change change, bool notable,
                 const struct ltn_straggler_verdict *v)
{
    if (r->fn != NULL)
        r->fn(r->ctx, change, notable, v);
}

static void open_verdict(struct ltn_round *r, struct ltn_case *c,
                         const struct ltn_straggler_verdict *found)
{
    struct ltn_mate *m = c->mate;
    m->verdict = *found;
    m->verdict.since_ns = r->w->end_ns;
    m->verdict.opened_at_ns = r->w->end_ns;
    m->verdict.closed_at_ns = 0;
    m->verdict.close_reason[0] = '\0';
    m->verdict.gpu_hours_lost = 0;
    m->verdict.windows = 0;
    for (size_t i = 0; i < m->recent_n; i++) {
        const struct ltn_sample *s = &m->recent[i];
        if (!shows(s))
            continue;
        if (s->end_ns < m->verdict.since_ns)
            m->verdict.since_ns = s->end_ns;
        m->verdict.windows++;
        double impact =
            m->verdict.method == LTN_METHOD_GPU_CLOCK ? m->verdict.impact_share : s->impact;
        m->verdict.gpu_hours_lost += window_gpu_hours(r, impact);
    }
    m->open = true;
    m->clean = 0;
    m->kept_effect_pct = m->verdict.effect_pct;
    emit(r, LTN_VERDICT_OPENED, true, &m->verdict);
}

static bool is_clean(const struct ltn_round *r, const struct ltn_case *c)
{
    if (c->slow || c->throttled)
        return false;
    if (c->mate->verdict.method == LTN_METHOD_GPU_CLOCK)
        return true;
    return c->effect < 0.5 * log1p(r->s->opts.min_effect);
}

static void update_verdict(struct ltn_round *r, struct ltn_case *c)
{
    struct ltn_mate *m = c->mate;
    struct ltn_straggler_verdict v = m->verdict;
    bool still = make_verdict(r, c, &v);
    if (c->slow || c->throttled) {
        m->clean = 0;
        v.windows++;
        const struct ltn_sample *s = &m->recent[(m->recent_at + LTN_RECENT - 1) % LTN_RECENT];
        double impact = v.method == LTN_METHOD_GPU_CLOCK ? v.impact_share : s->impact;
        v.gpu_hours_lost += window_gpu_hours(r, impact);
    } else if (is_clean(r, c)) {
        m->clean++;
    }
    bool notable = still && (strcmp(v.cause, m->verdict.cause) != 0 ||
                             fabs(v.effect_pct - m->kept_effect_pct) >
                                 NOTABLE_SHARE * fabs(m->kept_effect_pct));
    if (notable)
        m->kept_effect_pct = v.effect_pct;
    m->verdict = v;
    if (m->clean < r->s->opts.clean_windows) {
        emit(r, LTN_VERDICT_UPDATED, notable, &m->verdict);
        return;
    }
    m->open = false;
    m->verdict.closed_at_ns = r->w->end_ns;
    (void)ltn_copy_str(m->verdict.close_reason, sizeof(m->verdict.close_reason), "recovered");
    emit(r, LTN_VERDICT_CLOSED, true, &m->verdict);
}

struct slow_set {
    size_t members, nodes, all_nodes;
};

static bool first_of_node(const struct ltn_round *r, size_t i, bool slow_only)
{
    for (size_t j = 0; j < i; j++) {
        bool counts = !slow_only || r->cases[j].mate->open || ltn_mate_slow(r->cases[j].mate);
        if (counts &&
            strncmp(r->cases[j].in->node, r->cases[i].in->node, sizeof(r->cases[i].in->node)) == 0)
            return false;
    }
    return true;
}

/* Counts the persistently slow. Nodes are only told apart when more than one member is slow. */
static struct slow_set count_slow(const struct ltn_round *r)
{
    struct slow_set k = {0, 0, 0};
    for (size_t i = 0; i < r->n; i++)
        k.members += ltn_mate_slow(r->cases[i].mate) ? 1 : 0;
    if (k.members < 2 || r->n > 4096)
        return k;
    for (size_t i = 0; i < r->n; i++) {
        k.all_nodes += first_of_node(r, i, false) ? 1 : 0;
        if (ltn_mate_slow(r->cases[i].mate))
            k.nodes += first_of_node(r, i, true) ? 1 : 0;
    }
    return k;
}

static size_t allowed(const struct ltn_straggler_opts *o, size_t n)
{
    size_t k = (size_t)(o->max_share * (double)n);
    return k > 0 ? k : 1;
}

/* Few enough to be called stragglers: of the members, or of the nodes when they share a few. */
static bool few_enough(const struct ltn_round *r, const struct slow_set *k)
{
    const struct ltn_straggler_opts *o = &r->s->opts;
    if (k->members <= allowed(o, r->n))
        return true;
    return k->all_nodes >= 3 && k->nodes <= allowed(o, k->all_nodes);
}

static void note_cohort(const struct ltn_round *r, const struct slow_set *k,
                        struct ltn_straggler_status *st)
{
    double *e = r->s->scratch;
    size_t n = 0;
    for (size_t i = 0; i < r->n; i++)
        if (ltn_mate_slow(r->cases[i].mate))
            e[n++] = median_effect(r->cases[i].mate);
    st->state = LTN_GROUP_COHORT;
    st->effect_pct = 100 * expm1(ltn_median(e, n));
    (void)snprintf(st->note, sizeof(st->note),
                   "%zu of %zu ranks on %zu nodes are slow at once (median %+.0f %%): a cohort, "
                   "not a straggler",
                   k->members, r->n, k->nodes, st->effect_pct);
}

/* Nearly all are slower than they were, and nobody stands out. */
static void note_job_wide(const struct ltn_round *r, struct ltn_straggler_status *st)
{
    double *e = r->s->scratch;
    size_t slow = 0;
    for (size_t i = 0; i < r->n; i++)
        if (ltn_mate_count(r->cases[i].mate, ltn_sample_own_slow) >= LTN_NEEDED)
            e[slow++] = r->cases[i].own_effect;
    if (r->n < 2 || (double)slow < 0.8 * (double)r->n)
        return;
    st->state = LTN_GROUP_JOB_WIDE;
    st->effect_pct = 100 * expm1(ltn_median(e, slow));
    (void)snprintf(st->note, sizeof(st->note),
                   "%zu of %zu ranks are slower than their own past (median %+.0f %%), alike: look "
                   "at what they share (input, storage, code)",
                   slow, r->n, st->effect_pct);
}

static void note_pair(const struct ltn_round *r, struct ltn_straggler_status *st)
{
    double apart = r->cases[1].x - r->cases[0].x;
    if (apart < log1p(r->s->opts.min_effect))
        return;
    st->state = LTN_GROUP_CANNOT_TELL;
    (void)snprintf(
        st->note, sizeof(st->note),
        "two ranks differ by %.0f %%; with one peer and no change over time it cannot be "
        "told which one is off",
        100 * expm1(apart));
}

static void judge(struct ltn_round *r, struct ltn_straggler_status *st)
{
    struct slow_set k = count_slow(r);
    bool few = few_enough(r, &k);
    bool open = false;
    for (size_t i = 0; i < r->n; i++) {
        struct ltn_case *c = &r->cases[i];
        if (c->mate->open) {
            update_verdict(r, c);
        } else if (c->slow || c->throttled) {
            struct ltn_straggler_verdict v = {.gpu_clock = -1, .peer_gpu_clock = -1};
            /* A slow cohort says nothing against a GPU whose own clock is down. */
            if (make_verdict(r, c, &v) && (few || v.method == LTN_METHOD_GPU_CLOCK))
                open_verdict(r, c, &v);
        }
        open = open || c->mate->open;
    }
    if (!few)
        note_cohort(r, &k, st);
    else if (!open && r->n == 2)
        note_pair(r, st);
    if (!open && st->state == LTN_GROUP_SCORED)
        note_job_wide(r, st);
}

static int make_room(struct ltn_straggler *s, size_t n)
{
    if (n <= s->scratch_n)
        return 0;
    double *p = reallocarray(s->scratch, n, SCRATCH_ARRAYS * sizeof(*p));
    if (p == NULL)
        return -ENOMEM;
    s->scratch = p;
    s->scratch_n = n;
    return 0;
}

/* True when the round cannot be scored; says why. */
static bool abstain(const struct ltn_round *r, struct ltn_straggler_status *st)
{
    const struct ltn_straggler_opts *o = &r->s->opts;
    size_t expected = r->w->expected > r->w->n ? r->w->expected : r->w->n;
    bool absent = (double)r->n < o->min_present * (double)expected;
    if (r->g->windows <= o->warm_up_windows) {
        st->state = LTN_GROUP_WARM_UP;
    } else if (absent && st->low_coverage > 0) {
        st->state = LTN_GROUP_LOW_COVERAGE;
        (void)snprintf(st->note, sizeof(st->note),
                       "%u of %zu ranks have steps that cover under %.0f %% of the window",
                       st->low_coverage, expected, 100 * o->min_coverage);
    } else if (r->n < 2) {
        st->state = LTN_GROUP_ALONE;
    } else if (absent) {
        st->state = LTN_GROUP_PEERS_ABSENT;
        (void)snprintf(st->note, sizeof(st->note), "%zu of %zu ranks reported", r->n, expected);
    } else {
        return false;
    }
    return true;
}

static int score_window(struct ltn_round *r, struct ltn_straggler_status *st)
{
    int rc = collect(r, st);
    if (rc != 0)
        return rc;
    st->used = (uint32_t)r->n;
    if (r->g->windows < UINT32_MAX)
        r->g->windows++;
    if (!abstain(r, st)) {
        ltn_score_round(r);
        ltn_gpu_round(r);
        note_samples(r);
        judge(r, st);
        ltn_score_learn(r);
        ltn_gpu_learn(r);
    }
    r->g->last_end_ns = r->w->end_ns;
    return 0;
}

int ltn_straggler_feed(struct ltn_straggler *s, const struct ltn_straggler_window *w,
                       ltn_straggler_event_fn *fn, void *ctx, struct ltn_straggler_status *ret)
{
    struct ltn_group *g = NULL;
    if (w->length_ns == 0 || (w->n > 0 && w->members == NULL))
        return -EINVAL;
    if (w->n > s->opts.max_group_members)
        return LTN_ERR_COUNT;
    int rc = get_group(s, w->job, w->group, &g);
    if (rc == 0 && w->end_ns <= g->last_end_ns)
        rc = -EINVAL;
    if (rc == 0)
        rc = make_room(s, w->n);
    if (rc != 0)
        return rc;
    struct ltn_case *cases = calloc(w->n + 1, sizeof(*cases));
    if (cases == NULL)
        return -ENOMEM;
    struct ltn_straggler_status st = {.state = LTN_GROUP_SCORED};
    struct ltn_round r = {.s = s, .g = g, .w = w, .cases = cases, .fn = fn, .ctx = ctx};
    rc = score_window(&r, &st);
    free(cases);
    if (rc == 0 && ret != NULL)
        *ret = st;
    return rc;
}

int ltn_straggler_restore(struct ltn_straggler *s, const struct ltn_straggler_verdict *v)
{
    struct ltn_group *g = NULL;
    struct ltn_mate *m = NULL;
    if (v->key[0] == '\0')
        return -EINVAL;
    int rc = get_group(s, v->job, v->group, &g);
    if (rc == 0)
        rc = get_mate(s, g, v->key, &m);
    if (rc != 0 || m->open)
        return rc;
    m->verdict = *v;
    m->open = true;
    m->kept_effect_pct = v->effect_pct;
    return 0;
}

static void close_gone(struct ltn_mate *m, uint64_t now_ns, ltn_straggler_event_fn *fn, void *ctx)
{
    if (!m->open)
        return;
    m->open = false;
    m->verdict.closed_at_ns = now_ns;
    m->verdict.updated_at_ns = now_ns;
    (void)ltn_copy_str(m->verdict.close_reason, sizeof(m->verdict.close_reason), "gone");
    if (fn != NULL)
        fn(ctx, LTN_VERDICT_CLOSED, true, &m->verdict);
}

void ltn_straggler_forget(struct ltn_straggler *s, const char *job, const char *group,
                          const char *key, uint64_t now_ns, ltn_straggler_event_fn *fn, void *ctx)
{
    char name[2 * LTN_STRAGGLER_JOB_BYTES + 2];
    size_t len = group_key(job, group, name, sizeof(name));
    struct ltn_group *g = ltn_map_get(&s->groups, name, len);
    if (g == NULL)
        return;
    if (key != NULL) {
        struct ltn_mate *m = ltn_map_del(&g->mates, key, strlen(key));
        if (m == NULL)
            return;
        s->members--;
        close_gone(m, now_ns, fn, ctx);
        free(m);
        return;
    }
    size_t pos = 0;
    for (struct ltn_mate *m; (m = ltn_map_next(&g->mates, &pos)) != NULL;)
        close_gone(m, now_ns, fn, ctx);
    s->members -= g->mates.len;
    (void)ltn_map_del(&s->groups, name, len);
    free_group(g);
}
