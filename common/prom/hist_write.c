/* SPDX-License-Identifier: Apache-2.0 */
/* Histograms as Prometheus writes them: classic buckets, cumulative from the lowest number up. */
#include <math.h>
#include <string.h>

#include "prom/hist_int.h"
#include "stats/exphist.h"

/* Finest scale of a family's bounds: edges 19 % apart. */
#define GRID_SCALE_MAX 2

void ltn_hist_grid_begin(struct ltn_hist_grid *g)
{
    *g = (struct ltn_hist_grid){.scale = GRID_SCALE_MAX};
}

/* Lowers the grid to a scale; edges move outwards. */
static void lower(struct ltn_hist_grid *g, int32_t scale)
{
    int down = g->scale - scale;
    if (down <= 0)
        return;
    for (size_t s = 0; s < 2; s++) {
        g->lo[s] = g->lo[s] >> down;
        g->hi[s] = ((g->hi[s] - 1) >> down) + 1;
    }
    g->scale = scale;
}

void ltn_hist_grid_add(struct ltn_hist_grid *g, const struct ltn_hist *h)
{
    if (h->kind != LTN_HIST_EXPONENTIAL || !h->used)
        return;
    lower(g, h->scale);
    int down = h->scale - g->scale;
    g->zero = g->zero || h->zero_count > 0;
    g->zero_threshold = fmax(g->zero_threshold, h->zero_threshold);
    for (size_t s = 0; s < 2; s++) {
        const uint64_t *counts = ltn_hist_side(h, s);
        for (uint32_t i = 0; i < h->n[s]; i++) {
            if (counts[i] == 0)
                continue;
            int32_t lo = (h->offset[s] + (int32_t)i) >> down;
            g->lo[s] = g->any[s] && g->lo[s] < lo ? g->lo[s] : lo;
            g->hi[s] = g->any[s] && g->hi[s] > lo + 1 ? g->hi[s] : lo + 1;
            g->any[s] = true;
        }
    }
}

static size_t edges(const struct ltn_hist_grid *g)
{
    size_t n = 0;
    for (size_t s = 0; s < 2; s++)
        n += g->any[s] ? (size_t)((int64_t)g->hi[s] - g->lo[s] + 1) : 0;
    return n;
}

/* Appends a bound that is a number and above the one before. */
static void put_edge(struct ltn_hist_grid *g, int8_t side, int32_t index, double bound)
{
    if (!isfinite(bound) || (g->n > 0 && bound <= g->bounds[g->n - 1]) ||
        g->n == LTN_HIST_EDGES + 4 || (side != 0 && !(fabs(bound) > 0)))
        return;
    g->bounds[g->n] = bound;
    g->index[g->n] = index;
    g->side[g->n] = side;
    g->n++;
}

/* The edge that ends the zero bucket: the threshold itself when no bucket reaches down to it, else
 * the next edge of the grid. */
static int32_t zero_edge(const struct ltn_hist_grid *g, double *ret_bound)
{
    int32_t index = INT32_MIN;
    bool inside = false;
    *ret_bound = g->zero_threshold;
    if (!(g->zero_threshold > 0))
        return index;
    for (size_t s = 0; s < 2; s++)
        inside = inside || (g->any[s] && ltn_exphist_bound(g->lo[s], g->scale) < g->zero_threshold);
    if (!inside)
        return index;
    index = ltn_exphist_index(g->zero_threshold, g->scale) + 1;
    *ret_bound = ltn_exphist_bound(index, g->scale);
    return index;
}

void ltn_hist_grid_end(struct ltn_hist_grid *g)
{
    double zero;
    while (g->scale > LTN_EXPHIST_SCALE_MIN && edges(g) > LTN_HIST_EDGES)
        lower(g, g->scale - 1);
    int32_t zero_index = zero_edge(g, &zero);
    g->n = 0;
    for (int64_t k = g->hi[1]; g->any[1] && k >= g->lo[1] && k > zero_index; k--)
        put_edge(g, -1, (int32_t)k, -ltn_exphist_bound((int32_t)k, g->scale));
    if (g->zero || g->any[1]) {
        if (zero > 0)
            put_edge(g, -1, zero_index, -zero);
        put_edge(g, 0, zero_index, zero > 0 ? zero : 0.0);
    }
    for (int64_t k = g->lo[0]; g->any[0] && k <= g->hi[0]; k++)
        if (k > zero_index)
            put_edge(g, 1, (int32_t)k, ltn_exphist_bound((int32_t)k, g->scale));
}

static void add(uint64_t *to, uint64_t n)
{
    if (__builtin_add_overflow(*to, n, to))
        *to = UINT64_MAX;
}

/* Sum of one side's buckets at or above (below: under) an edge of the grid. */
static uint64_t side_sum(const struct ltn_hist *h, size_t side, int down, int64_t edge, bool below)
{
    const uint64_t *counts = ltn_hist_side(h, side);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < h->n[side]; i++)
        if ((((int64_t)h->offset[side] + (int64_t)i) >> down < edge) == below)
            add(&sum, counts[i]);
    return sum;
}

static void write_exponential(const struct ltn_hist *h, const struct ltn_hist_grid *g,
                              struct ltn_prom_cumulative *c, uint64_t *counts)
{
    int down = h->scale - g->scale;
    uint64_t negative = side_sum(h, 1, down, INT64_MIN, false), total = negative;
    add(&total, h->zero_count);
    uint64_t zeros = total;
    add(&total, side_sum(h, 0, down, INT64_MAX, true));
    for (size_t i = 0; i < g->n; i++) {
        if (g->side[i] < 0) {
            counts[i] = side_sum(h, 1, down, g->index[i], false);
        } else {
            counts[i] = zeros;
            if (g->side[i] > 0 || g->index[i] != INT32_MIN)
                add(&counts[i], side_sum(h, 0, down, g->index[i], true));
        }
    }
    c->bounds = g->bounds;
    c->counts = counts;
    c->n = g->n;
    c->count = h->count > total ? h->count : total;
}

static void write_explicit(const struct ltn_hist *h, struct ltn_prom_cumulative *c,
                           uint64_t *counts)
{
    uint64_t sum = 0;
    const uint64_t *own = h->data + h->n[0];
    for (uint32_t i = 0; i < h->n[0]; i++) {
        add(&sum, own[i]);
        counts[i] = sum;
    }
    if (!h->bare)
        add(&sum, own[h->n[0]]);
    c->bounds = ltn_hist_bounds(h);
    c->counts = counts;
    c->n = h->n[0];
    c->count = h->count > sum ? h->count : sum;
}

void ltn_hist_write(const struct ltn_hist *h, const struct ltn_hist_grid *g, const char *labels,
                    struct ltn_prom *p)
{
    uint64_t counts[LTN_HIST_BOUNDS_MAX];
    struct ltn_prom_exemplar exemplars[LTN_HIST_EXEMPLARS];
    struct ltn_prom_cumulative c = {.has_sum = h->has_sum, .sum = h->sum};
    if (!h->used || (h->kind == LTN_HIST_SUMMARY) != (p->type == LTN_PROM_SUMMARY))
        return;
    if (h->kind == LTN_HIST_SUMMARY) {
        const struct ltn_prom_quantiles s = {
            .items = (const void *)h->data, .n = h->n[0], .count = h->count, .sum = h->sum};
        ltn_prom_summary_text(p, labels, &s);
        return;
    }
    if (h->kind == LTN_HIST_EXPLICIT)
        write_explicit(h, &c, counts);
    else
        write_exponential(h, g, &c, counts);
    for (size_t i = 0; i < h->exemplar_n; i++)
        exemplars[i] = (struct ltn_prom_exemplar){h->exemplars[i].value, h->exemplars[i].time_ns,
                                                  h->exemplars[i].labels};
    c.exemplars = exemplars;
    c.exemplar_n = h->exemplar_n;
    ltn_prom_histogram_text(p, labels, &c);
}
