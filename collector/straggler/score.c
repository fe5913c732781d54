/* SPDX-License-Identifier: Apache-2.0 */
/* Residuals against peers and against the own past, in logarithms: +10 % is +0.095 everywhere. */
#include "straggler/internal.h"

#include <math.h>

#include "stats/robust.h"

/* Prior of the cross-section scale: worth so many observations of this deviation. */
#define PRIOR_SIGMA  0.015
#define PRIOR_WEIGHT 4.0

/* How fast noise and baseline are learned, and how much a value may move them at most, in sigmas.
 */
#define NOISE_ALPHA 0.05
#define BASE_ALPHA  (1.0 / 30.0)
#define CLIP_SIGMAS 3.0
#define NOISE_MIN_N 5
#define USUAL_MIN_N 30
#define OWN_MIN_N   6
#define PAIR_MIN_N  12
#define START_SIGMA 0.02
#define HELD_SHARE  0.02 /* of the usual speed while a member stands out */

/* Makes the MAD of m normal values unbiased for sigma, on top of LTN_MAD_TO_SIGMA. Croux and
 * Rousseeuw, "Time-efficient algorithms for two highly robust estimators of scale" (1992). */
static double mad_factor(size_t m)
{
    static const double small[] = {0, 0, 1.196, 1.495, 1.363, 1.206, 1.200, 1.140, 1.129, 1.107};
    if (m < LTN_ARRAY_SIZE(small))
        return small[m];
    return (double)m / ((double)m - 0.8);
}

/* Variance of the median of m values in units of one value's. */
static double median_variance(size_t m)
{
    static const double small[] = {1, 1, 0.5, 0.449, 0.298, 0.287, 0.215};
    if (m < LTN_ARRAY_SIZE(small))
        return small[m];
    return 1.571 / (double)m;
}

/* Spread of the others at this moment, pulled towards the prior when they are few. */
static double cross_variance(const double *sorted, size_t n, size_t i)
{
    size_t m = n - 1;
    double sigma = LTN_MAD_TO_SIGMA * mad_factor(m) * ltn_loo_mad_sorted(sorted, n, i);
    double weight = (double)(m - 1);
    return (weight * sigma * sigma + PRIOR_WEIGHT * PRIOR_SIGMA * PRIOR_SIGMA) /
           (weight + PRIOR_WEIGHT);
}

/* Spread over time of the others, each around its own usual place in the group. */
static double temporal_variance(const struct ltn_round *r, size_t skip)
{
    double sum = 0;
    size_t k = 0;
    for (size_t i = 0; i < r->n; i++) {
        if (i == skip || r->cases[i].mate->dev_n < NOISE_MIN_N)
            continue;
        sum += r->cases[i].mate->dev_var;
        k++;
    }
    return k > 0 ? sum / (double)k : 0;
}

static double ln_effect(const struct ltn_straggler_opts *o)
{
    return log1p(o->min_effect);
}

static double own_sigma(const struct ltn_straggler_opts *o, const struct ltn_mate *m)
{
    return sqrt(fmax(m->base_var, o->noise_floor * o->noise_floor));
}

static void judge_own(const struct ltn_straggler_opts *o, struct ltn_case *c)
{
    const struct ltn_mate *m = c->mate;
    c->own_effect = 0;
    c->own_slow = false;
    if (m->base_n < OWN_MIN_N)
        return;
    c->own_effect = c->x - m->base_x;
    c->own_slow = c->own_effect >= ln_effect(o) && c->own_effect >= o->min_sigmas * own_sigma(o, m);
}

/* Two members: the sign says who is slower, only the past says who changed. */
static void judge_pair(struct ltn_round *r)
{
    const struct ltn_straggler_opts *o = &r->s->opts;
    for (size_t i = 0; i < 2; i++) {
        struct ltn_case *c = &r->cases[i];
        const struct ltn_case *p = &r->cases[1 - i];
        c->peer_x = p->x;
        c->effect = c->own_effect;
        c->scale = own_sigma(o, c->mate);
        bool known = c->mate->base_n >= PAIR_MIN_N && p->mate->base_n >= PAIR_MIN_N;
        bool apart = c->x - p->x - (c->mate->base_x - p->mate->base_x) >= ln_effect(o);
        c->slow = known && apart && c->own_slow && p->own_effect < 0.5 * ln_effect(o);
    }
}

void ltn_score_round(struct ltn_round *r)
{
    const struct ltn_straggler_opts *o = &r->s->opts;
    for (size_t i = 0; i < r->n; i++)
        judge_own(o, &r->cases[i]);
    if (r->n == 2) {
        judge_pair(r);
        return;
    }
    double *sorted = r->s->scratch;
    for (size_t i = 0; i < r->n; i++)
        sorted[i] = r->cases[i].x;
    double floor_variance = o->noise_floor * o->noise_floor;
    double reference = 1.0 + median_variance(r->n - 1);
    for (size_t i = 0; i < r->n; i++) {
        struct ltn_case *c = &r->cases[i];
        c->peer_x = ltn_loo_median_sorted(sorted, r->n, i);
        c->effect = c->x - c->peer_x;
        c->slow = false;
        c->scale = 0;
        if (c->effect < ln_effect(o))
            continue; /* the scale is only asked for when the effect is there */
        double variance = fmax(cross_variance(sorted, r->n, i), floor_variance);
        variance = fmax(variance, temporal_variance(r, i));
        c->scale = sqrt(variance * reference);
        /* A usual difference (another batch of GPUs, another rack) is no event by itself. */
        double usual = c->mate->dev_n >= USUAL_MIN_N ? fmax(0, c->mate->dev_mean) : 0;
        c->slow = c->effect - usual >= o->min_sigmas * c->scale;
    }
}

/* Moves mean and variance by a value that may count for CLIP_SIGMAS at most. Held: only the mean,
 * and hardly. */
static void learn(double *mean, double *var, uint32_t *n, double v, double alpha, bool held)
{
    if (*n == 0) {
        *mean = v;
        *var = START_SIGMA * START_SIGMA;
        *n = 1;
        return;
    }
    double limit = CLIP_SIGMAS * sqrt(fmax(*var, 1e-6));
    double d = fmax(-limit, fmin(limit, v - *mean));
    if (held) {
        *mean += alpha * HELD_SHARE * d;
        return;
    }
    *mean += fmax(alpha, 1.0 / (double)(*n + 1)) * d;
    *var += alpha * (d * d - *var);
    if (*n < UINT32_MAX)
        (*n)++;
}

void ltn_score_learn(struct ltn_round *r)
{
    double median =
        r->n % 2 ? r->cases[r->n / 2].x : 0.5 * (r->cases[r->n / 2 - 1].x + r->cases[r->n / 2].x);
    double half = 0.5 * ln_effect(&r->s->opts);
    for (size_t i = 0; i < r->n; i++) {
        struct ltn_mate *m = r->cases[i].mate;
        const struct ltn_case *c = &r->cases[i];
        bool out = c->slow || m->open;
        if (!out)
            learn(&m->dev_mean, &m->dev_var, &m->dev_n, c->x - median, NOISE_ALPHA, false);
        /* A lasting change of the whole job becomes the new usual, slowly; a suspect's does not. */
        bool held = c->own_slow || out || (m->base_n >= OWN_MIN_N && c->own_effect > half);
        learn(&m->base_x, &m->base_var, &m->base_n, c->x, BASE_ALPHA, held);
    }
}
