/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Histograms and summaries of any client as Prometheus series. A point is copied into the update's
 * arena, for the request may still turn out to be malformed, and taken at its end.
 */
#include <errno.h>
#include <string.h>

#include "base/err.h"
#include "ingest/internal.h"
#include "ingest/labels.h"
#include "prom/hist_state.h"

struct ltn_staged_hist {
    struct ltn_staged_hist *next;
    ltn_series_ref ref;
    const char *family;
    struct ltn_hist_point point;
    bool ended; /* no value: the client ended the series */
};

/* Copy of n bytes in the arena; NULL for none. *failed is set when there is no room. */
static void *copy(struct ltn_decoder *d, const void *p, size_t n, bool *failed)
{
    void *to = n > 0 ? ltn_arena_alloc(&d->u->arena, n) : NULL;
    if (to != NULL)
        memcpy(to, p, n);
    *failed = *failed || (n > 0 && to == NULL);
    return to;
}

static const char *copy_text(struct ltn_decoder *d, const char *s, bool *failed)
{
    const char *to = ltn_arena_strndup(&d->u->arena, s, strlen(s));
    *failed = *failed || to == NULL;
    return to;
}

/* Exemplars with their labels as text; those that are too long for the arena are left out. */
static void copy_exemplars(struct ltn_decoder *d, const struct ltn_otlp_point *p,
                           struct ltn_hist_point *to, bool *failed)
{
    size_t n = p->exemplar_n < LTN_HIST_EXEMPLARS ? p->exemplar_n : LTN_HIST_EXEMPLARS;
    struct ltn_prom_exemplar *list =
        n > 0 ? ltn_arena_calloc(&d->u->arena, n, sizeof(*list)) : NULL;
    if (list == NULL) {
        *failed = *failed || n > 0;
        return;
    }
    for (size_t i = 0; i < n; i++) {
        const struct ltn_otlp_exemplar *e = &p->exemplars[i];
        ltn_buf_reset(&d->labels);
        ltn_labels_put_exemplar(&d->labels, e);
        list[i] = (struct ltn_prom_exemplar){e->value, e->time_ns,
                                             copy_text(d, ltn_buf_str(&d->labels), failed)};
    }
    to->exemplars = list;
    to->exemplar_n = n;
}

/* Finds or makes the series; 0 when there is none to be had, which is counted. 0 or -ENOMEM. */
static int resolve(struct ltn_decoder *d, const struct ltn_otlp_group *g,
                   const struct ltn_otlp_metric *m, const struct ltn_otlp_point *p,
                   ltn_series_ref *ret)
{
    *ret = 0;
    ltn_decode_unlock(d);
    ltn_decode_name(d, m);
    ltn_buf_reset(&d->labels);
    if (d->name_ok) {
        ltn_decode_scope(d, g);
        ltn_labels_put_point(&d->labels, p->attrs, d->resource != NULL);
    }
    if (!d->name_ok || ltn_buf_error(&d->labels) != 0 || ltn_buf_error(&d->scope) != 0) {
        d->result->unexposed++;
        return 0;
    }
    const struct ltn_series_desc desc = {.family = d->family,
                                         .type = m->kind == LTN_OTLP_SUMMARY ? LTN_PROM_SUMMARY
                                                                             : LTN_PROM_HISTOGRAM,
                                         .unit = d->unit,
                                         .help = d->help,
                                         .scope_labels = ltn_buf_str(&d->scope),
                                         .labels = ltn_buf_str(&d->labels),
                                         .state = true};
    int rc = ltn_decode_resolve(d, &desc, (struct ltn_series_key){0, 0}, ret);
    ltn_decode_unlock(d);
    if (rc == 0 || rc == -ENOMEM)
        return rc;
    *ret = 0;
    if (d->resource != NULL) /* an agent of another version: the table counts it */
        d->result->unexposed++;
    else
        ltn_decode_reject(d, m->name, rc == -EINVAL ? LTN_REJECT_TYPE : LTN_REJECT_FAMILIES);
    return 0;
}

/* Begins a staged point; *ret is NULL when nothing is to be staged. 0, LTN_ERR_TOO_LARGE, -ENOMEM.
 */
static int begin(struct ltn_decoder *d, const struct ltn_otlp_group *g,
                 const struct ltn_otlp_metric *m, const struct ltn_otlp_point *p,
                 struct ltn_staged_hist **ret)
{
    bool failed = false;
    ltn_series_ref ref;
    *ret = NULL;
    if (ltn_decode_untimely(m)) {
        ltn_decode_reject(d, m->name, "histogram without a temporality");
        return 0;
    }
    int rc = resolve(d, g, m, p, &ref);
    if (rc != 0 || ref == 0)
        return rc;
    struct ltn_staged_hist *o = ltn_arena_calloc(&d->u->arena, 1, sizeof(*o));
    if (o == NULL)
        return LTN_ERR_TOO_LARGE;
    o->ref = ref;
    o->family = copy_text(d, d->family, &failed);
    o->ended = (p->flags & LTN_OTLP_NO_RECORDED_VALUE) != 0;
    o->point.delta = m->temporality == LTN_OTLP_DELTA;
    o->point.start_ns = p->start_ns;
    o->point.time_ns = p->time_ns;
    if (!o->ended)
        copy_exemplars(d, p, &o->point, &failed);
    if (failed)
        return LTN_ERR_TOO_LARGE;
    *ret = o;
    return 0;
}

static int end(struct ltn_decoder *d, struct ltn_staged_hist *o, bool failed)
{
    if (failed)
        return LTN_ERR_TOO_LARGE;
    o->next = d->hists;
    d->hists = o;
    return 0;
}

int ltn_decode_histogram(struct ltn_decoder *d, const struct ltn_otlp_group *g,
                         const struct ltn_otlp_metric *m, const struct ltn_otlp_histogram *p)
{
    struct ltn_staged_hist *o;
    bool failed = false;
    if (p->bound_n > LTN_HIST_BOUNDS_MAX) {
        ltn_decode_reject(d, m->name, "more than " LTN_STRING(LTN_HIST_BOUNDS_MAX) " bounds");
        return 0;
    }
    int rc = begin(d, g, m, &p->point, &o);
    if (rc != 0 || o == NULL)
        return rc;
    o->point.kind = LTN_HIST_EXPLICIT;
    o->point.count = p->count;
    o->point.sum = p->sum;
    o->point.has_sum = p->has_sum;
    o->point.bound_n = p->bound_n;
    o->point.bounds = copy(d, p->bounds, p->bound_n * sizeof(double), &failed);
    o->point.counts = copy(d, p->bucket_counts, p->bucket_n * sizeof(uint64_t), &failed);
    return end(d, o, failed);
}

static struct ltn_hist_run copy_run(struct ltn_decoder *d, const struct ltn_otlp_buckets *b,
                                    bool *failed)
{
    return (struct ltn_hist_run){copy(d, b->counts, b->n * sizeof(uint64_t), failed), b->n,
                                 b->offset};
}

int ltn_decode_exp_histogram(struct ltn_decoder *d, const struct ltn_otlp_group *g,
                             const struct ltn_otlp_metric *m,
                             const struct ltn_otlp_exp_histogram *p)
{
    struct ltn_staged_hist *o;
    bool failed = false;
    int rc = begin(d, g, m, &p->point, &o);
    if (rc != 0 || o == NULL)
        return rc;
    o->point.kind = LTN_HIST_EXPONENTIAL;
    o->point.count = p->count;
    o->point.sum = p->sum;
    o->point.has_sum = p->has_sum;
    o->point.scale = p->scale;
    o->point.zero_count = p->zero_count;
    o->point.zero_threshold = p->zero_threshold;
    o->point.positive = copy_run(d, &p->positive, &failed);
    o->point.negative = copy_run(d, &p->negative, &failed);
    return end(d, o, failed);
}

int ltn_decode_summary(struct ltn_decoder *d, const struct ltn_otlp_group *g,
                       const struct ltn_otlp_metric *m, const struct ltn_otlp_summary *p)
{
    struct ltn_staged_hist *o;
    bool failed = false;
    if (p->n > LTN_HIST_QUANTILES_MAX) {
        ltn_decode_reject(d, m->name, "more than " LTN_STRING(LTN_HIST_QUANTILES_MAX) " quantiles");
        return 0;
    }
    int rc = begin(d, g, m, &p->point, &o);
    if (rc != 0 || o == NULL)
        return rc;
    o->point.kind = LTN_HIST_SUMMARY;
    o->point.delta = false;
    o->point.count = p->count;
    o->point.sum = p->sum;
    o->point.has_sum = true;
    o->point.quantile_n = p->n;
    struct ltn_prom_quantile *q =
        p->n > 0 ? ltn_arena_calloc(&d->u->arena, p->n, sizeof(*q)) : NULL;
    failed = p->n > 0 && q == NULL;
    for (size_t i = 0; !failed && i < p->n; i++)
        q[i] = (struct ltn_prom_quantile){p->quantiles[i].quantile, p->quantiles[i].value};
    o->point.quantiles = q;
    return end(d, o, failed);
}

int ltn_decode_take_hists(struct ltn_decoder *d, size_t *ret_taken)
{
    struct ltn_staged_hist *first = NULL;
    int failed = 0;
    *ret_taken = 0;
    while (d->hists != NULL) { /* in the order in which they came */
        struct ltn_staged_hist *o = d->hists;
        d->hists = o->next;
        o->next = first;
        first = o;
    }
    for (const struct ltn_staged_hist *o = first; o != NULL; o = o->next) {
        int rc = ltn_hist_take(d->series, o->ref, o->family, o->ended ? NULL : &o->point,
                               o->point.time_ns, d->now_ns);
        if (rc == 0)
            (*ret_taken)++;
        else
            failed = rc;
    }
    return failed;
}
