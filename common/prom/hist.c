/* SPDX-License-Identifier: Apache-2.0 */
#include "prom/hist.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "prom/hist_int.h"
#include "stats/exphist.h"

struct ltn_hist *ltn_hist_new(void)
{
    return calloc(1, sizeof(struct ltn_hist));
}

static void free_exemplars(struct ltn_hist *h)
{
    for (size_t i = 0; i < h->exemplar_n; i++)
        free(h->exemplars[i].labels);
    free(h->exemplars);
}

void ltn_hist_free(struct ltn_hist *h)
{
    if (h == NULL)
        return;
    free_exemplars(h);
    free(h->data);
    free(h);
}

uint64_t ltn_hist_time_ns(const struct ltn_hist *h)
{
    return h->time_ns;
}

uint64_t ltn_hist_count(const struct ltn_hist *h)
{
    return h->count;
}

size_t ltn_hist_bytes(const struct ltn_hist *h)
{
    size_t n = sizeof(*h) + ltn_hist_words(h) * sizeof(uint64_t);
    for (size_t i = 0; i < h->exemplar_n; i++)
        n += sizeof(h->exemplars[i]) + strlen(h->exemplars[i].labels) + 1;
    return n;
}

size_t ltn_hist_point_bytes(const struct ltn_hist_point *p)
{
    size_t words = 2 * p->bound_n + 1;
    if (p->kind == LTN_HIST_EXPONENTIAL)
        words = (p->positive.n < LTN_HIST_BUCKETS ? p->positive.n : LTN_HIST_BUCKETS) +
                (p->negative.n < LTN_HIST_BUCKETS ? p->negative.n : LTN_HIST_BUCKETS) + 1;
    else if (p->kind == LTN_HIST_SUMMARY)
        words = 2 * p->quantile_n + 1;
    size_t n = sizeof(struct ltn_hist) + words * sizeof(uint64_t);
    for (size_t i = 0; i < p->exemplar_n && i < LTN_HIST_EXEMPLARS; i++)
        n += sizeof(struct ltn_hist_exemplar) + strlen(p->exemplars[i].labels) + 1;
    return n;
}

static void add(uint64_t *to, uint64_t n)
{
    if (__builtin_add_overflow(*to, n, to))
        *to = UINT64_MAX;
}

/* ---- exponential buckets ---- */

/* The run without empty buckets at its ends. */
static struct ltn_hist_run trim(struct ltn_hist_run r)
{
    while (r.n > 0 && r.counts[0] == 0) {
        r.counts++;
        r.n--;
        r.offset++;
    }
    while (r.n > 0 && r.counts[r.n - 1] == 0)
        r.n--;
    return r;
}

/* Edges that two runs span together at a scale that is lower by a and b than theirs. */
static void span(const struct ltn_hist_run *a, int a_down, const struct ltn_hist_run *b, int b_down,
                 int64_t *ret_lo, int64_t *ret_n)
{
    int64_t lo = INT64_MAX, hi = INT64_MIN;
    const struct ltn_hist_run *runs[] = {a, b};
    const int downs[] = {a_down, b_down};
    for (size_t i = 0; i < 2; i++) {
        if (runs[i]->n == 0)
            continue;
        int64_t first = (int64_t)runs[i]->offset >> downs[i];
        int64_t last = ((int64_t)runs[i]->offset + (int64_t)runs[i]->n - 1) >> downs[i];
        lo = first < lo ? first : lo;
        hi = last > hi ? last : hi;
    }
    *ret_lo = lo == INT64_MAX ? 0 : lo;
    *ret_n = lo == INT64_MAX ? 0 : hi - lo + 1;
}

static void put_run(uint64_t *counts, int64_t lo, const struct ltn_hist_run *r, int down)
{
    for (size_t i = 0; i < r->n; i++)
        add(&counts[(((int64_t)r->offset + (int64_t)i) >> down) - lo], r->counts[i]);
}

/* What two exponential states are together; both trimmed. */
struct exp_part {
    int32_t scale;
    uint64_t zero_count;
    double zero_threshold;
    struct ltn_hist_run run[2]; /* positive, negative */
};

/* Buckets at or below the zero threshold become zeros; the threshold rises to the end of a bucket
 * that it cuts. In place. */
static void fold_zeros(struct ltn_hist *h)
{
    uint64_t *counts = h->data;
    if (!(h->zero_threshold > 0))
        return;
    double raised = h->zero_threshold;
    for (size_t s = 0; s < 2; s++) {
        for (uint32_t i = 0; i < h->n[s]; i++) {
            int32_t index = h->offset[s] + (int32_t)i;
            if (counts[i] == 0 || ltn_exphist_bound(index, h->scale) >= h->zero_threshold)
                continue;
            add(&h->zero_count, counts[i]);
            counts[i] = 0;
            raised =
                fmax(raised, fmin(ltn_exphist_bound(index + 1, h->scale), 0x1.fffffffffffffp1023));
        }
        counts += h->n[s];
    }
    h->zero_threshold = raised;
}

static int merge_exponential(struct ltn_hist *h, const struct exp_part *a, const struct exp_part *b)
{
    int32_t scale = a->scale < b->scale ? a->scale : b->scale;
    int64_t lo[2], n[2];
    for (;; scale--) {
        for (size_t s = 0; s < 2; s++)
            span(&a->run[s], a->scale - scale, &b->run[s], b->scale - scale, &lo[s], &n[s]);
        if ((n[0] <= LTN_HIST_BUCKETS && n[1] <= LTN_HIST_BUCKETS) ||
            scale <= LTN_EXPHIST_SCALE_MIN)
            break;
    }
    uint64_t *data = calloc((size_t)(n[0] + n[1]) + 1, sizeof(*data));
    if (data == NULL)
        return -ENOMEM;
    for (size_t s = 0; s < 2; s++) {
        uint64_t *to = data + (s == 0 ? 0 : n[0]);
        put_run(to, lo[s], &a->run[s], a->scale - scale);
        put_run(to, lo[s], &b->run[s], b->scale - scale);
    }
    uint64_t zeros = a->zero_count; /* the runs may be of h's own memory: it is freed last */
    add(&zeros, b->zero_count);
    double threshold = fmax(a->zero_threshold, b->zero_threshold);
    free(h->data);
    h->data = data;
    h->scale = scale;
    h->zero_count = zeros;
    h->zero_threshold = threshold;
    for (size_t s = 0; s < 2; s++) {
        h->offset[s] = (int32_t)lo[s];
        h->n[s] = (uint32_t)n[s];
    }
    fold_zeros(h);
    return 0;
}

static struct exp_part part_of(const struct ltn_hist *h)
{
    struct exp_part e = {
        .scale = h->scale, .zero_count = h->zero_count, .zero_threshold = h->zero_threshold};
    for (size_t s = 0; s < 2; s++)
        e.run[s] = trim((struct ltn_hist_run){ltn_hist_side(h, s), h->n[s], h->offset[s]});
    return e;
}

static int set_exponential(struct ltn_hist *h, const struct ltn_hist_point *p, bool sum_up)
{
    struct exp_part now = {.scale = p->scale,
                           .zero_count = p->zero_count,
                           .zero_threshold = p->zero_threshold,
                           .run = {trim(p->positive), trim(p->negative)}};
    struct exp_part none = {.scale = p->scale};
    struct exp_part before = sum_up ? part_of(h) : none;
    return merge_exponential(h, &before, &now);
}

/* ---- explicit buckets and quantiles ---- */

static bool same_bounds(const struct ltn_hist *h, const struct ltn_hist_point *p)
{
    size_t n = p->counts != NULL ? p->bound_n : 0;
    return h->kind == LTN_HIST_EXPLICIT && h->data != NULL && h->n[0] == n &&
           h->bare == (p->counts == NULL) &&
           (n == 0 || memcmp(h->data, p->bounds, n * sizeof(double)) == 0);
}

static int set_explicit(struct ltn_hist *h, const struct ltn_hist_point *p, bool sum_up)
{
    size_t n = p->counts != NULL ? p->bound_n : 0;
    if (!same_bounds(h, p)) {
        uint64_t *data = calloc(2 * n + 1, sizeof(*data));
        if (data == NULL)
            return -ENOMEM;
        if (n > 0)
            memcpy(data, p->bounds, n * sizeof(double));
        free(h->data);
        h->data = data;
        h->n[0] = (uint32_t)n;
        h->n[1] = 0;
        h->bare = p->counts == NULL;
    }
    uint64_t *counts = h->data + n;
    for (size_t i = 0; p->counts != NULL && i <= n; i++) {
        if (sum_up)
            add(&counts[i], p->counts[i]);
        else
            counts[i] = p->counts[i];
    }
    return 0;
}

static int by_quantile(const void *a, const void *b)
{
    const struct ltn_prom_quantile *x = a, *y = b;
    return (x->quantile > y->quantile) - (x->quantile < y->quantile);
}

static int set_summary(struct ltn_hist *h, const struct ltn_hist_point *p)
{
    _Static_assert(sizeof(struct ltn_prom_quantile) == 2 * sizeof(uint64_t), "two words each");
    uint64_t *data = calloc(2 * p->quantile_n + 1, sizeof(*data));
    if (data == NULL)
        return -ENOMEM;
    struct ltn_prom_quantile *q = (struct ltn_prom_quantile *)(void *)data;
    if (p->quantile_n > 0) {
        memcpy(q, p->quantiles, p->quantile_n * sizeof(*q));
        qsort(q, p->quantile_n, sizeof(*q), by_quantile);
    }
    size_t n = 0;
    for (size_t i = 0; i < p->quantile_n; i++) { /* each quantile once */
        if (n > 0 && !(q[n - 1].quantile < q[i].quantile))
            n--;
        q[n++] = q[i];
    }
    free(h->data);
    h->data = data;
    h->n[0] = (uint32_t)n;
    h->n[1] = 0;
    return 0;
}

/* ---- exemplars ---- */

/* Exemplars are kept one for each place: a bucket, or a power of two. */
static int32_t place_of(const struct ltn_hist *h, double v)
{
    if (h->kind == LTN_HIST_EXPLICIT) {
        const double *bounds = ltn_hist_bounds(h);
        uint32_t i = 0;
        while (i < h->n[0] && v > bounds[i])
            i++;
        return (int32_t)i;
    }
    int exponent = 0;
    (void)frexp(v, &exponent);
    return v > 0 ? exponent : v < 0 ? 10000 - exponent : 20000;
}

static void keep_exemplar(struct ltn_hist *h, const struct ltn_prom_exemplar *e)
{
    size_t at = h->exemplar_n;
    if (!isfinite(e->value))
        return;
    if (h->exemplars == NULL)
        h->exemplars = calloc(LTN_HIST_EXEMPLARS, sizeof(*h->exemplars));
    char *labels = strdup(e->labels);
    if (h->exemplars == NULL || labels == NULL) { /* a histogram without them is as true */
        free(labels);
        return;
    }
    size_t oldest = 0;
    for (size_t i = 0; i < h->exemplar_n; i++) {
        if (h->exemplars[i].time_ns < h->exemplars[oldest].time_ns)
            oldest = i;
        if (at == h->exemplar_n && place_of(h, h->exemplars[i].value) == place_of(h, e->value))
            at = i;
    }
    if (at == LTN_HIST_EXEMPLARS)
        at = oldest;
    if (at < h->exemplar_n && h->exemplars[at].time_ns > e->time_ns) {
        free(labels);
        return;
    }
    if (at == h->exemplar_n)
        h->exemplar_n++;
    else
        free(h->exemplars[at].labels);
    h->exemplars[at] = (struct ltn_hist_exemplar){e->value, e->time_ns, labels};
}

/* ---- points ---- */

static bool possible(const struct ltn_hist_point *p)
{
    switch (p->kind) {
    case LTN_HIST_EXPLICIT:
        return p->bound_n <= LTN_HIST_BOUNDS_MAX;
    case LTN_HIST_SUMMARY:
        return p->quantile_n <= LTN_HIST_QUANTILES_MAX && !p->delta;
    case LTN_HIST_EXPONENTIAL:
        return ltn_exphist_run_ok(p->scale, p->positive.offset, p->positive.n) &&
               ltn_exphist_run_ok(p->scale, p->negative.offset, p->negative.n) &&
               p->zero_threshold >= 0 && isfinite(p->zero_threshold);
    }
    return false;
}

/* True when the point is to be taken; sum_up: added to what is there. */
static bool wanted(const struct ltn_hist *h, const struct ltn_hist_point *p, bool mixed,
                   bool *ret_sum_up, enum ltn_hist_fate *ret_fate)
{
    bool first = !h->used || h->kind != p->kind;
    *ret_sum_up = p->delta && !first;
    *ret_fate = LTN_HIST_TAKEN;
    if (first)
        return true;
    if (mixed) {
        *ret_fate = p->delta || p->count >= h->count ? LTN_HIST_TAKEN : LTN_HIST_OLD;
    } else if (p->delta && p->time_ns != 0) {
        bool late = p->time_ns <= h->time_ns || (p->start_ns != 0 && p->start_ns < h->start_ns);
        bool gap = p->start_ns > h->time_ns && h->time_ns != 0;
        bool overlap = p->start_ns != 0 && p->start_ns < h->time_ns;
        *ret_fate = late      ? LTN_HIST_OLD
                    : gap     ? LTN_HIST_GAP
                    : overlap ? LTN_HIST_OVERLAP
                              : LTN_HIST_TAKEN;
        *ret_sum_up = !gap;
    } else if (!p->delta && p->time_ns < h->time_ns) {
        *ret_fate = LTN_HIST_OLD;
    }
    /* Added to other bounds it would be neither. */
    if (*ret_sum_up && p->kind == LTN_HIST_EXPLICIT && !same_bounds(h, p))
        *ret_sum_up = false;
    return *ret_fate != LTN_HIST_OLD;
}

static int set_buckets(struct ltn_hist *h, const struct ltn_hist_point *p, bool sum_up)
{
    switch (p->kind) {
    case LTN_HIST_EXPLICIT:
        return set_explicit(h, p, sum_up);
    case LTN_HIST_EXPONENTIAL:
        return set_exponential(h, p, sum_up);
    default:
        return set_summary(h, p);
    }
}

int ltn_hist_set(struct ltn_hist *h, const struct ltn_hist_point *p, bool mixed,
                 enum ltn_hist_fate *ret_fate)
{
    bool sum_up;
    *ret_fate = LTN_HIST_REFUSED;
    if (!possible(p) || !wanted(h, p, mixed, &sum_up, ret_fate))
        return 0;
    int rc = set_buckets(h, p, sum_up);
    if (rc != 0)
        return rc;
    if (!h->used || !sum_up)
        h->start_ns = p->start_ns;
    if (sum_up) {
        add(&h->count, p->count);
        h->sum += p->sum;
        h->has_sum = h->has_sum && p->has_sum;
    } else {
        h->count = p->count;
        h->sum = p->sum;
        h->has_sum = p->has_sum;
    }
    h->kind = (uint8_t)p->kind;
    h->used = true;
    h->time_ns = p->time_ns > h->time_ns ? p->time_ns : h->time_ns;
    for (size_t i = 0; i < p->exemplar_n; i++)
        keep_exemplar(h, &p->exemplars[i]);
    return 0;
}
