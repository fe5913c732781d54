/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The way of a number to its series. Most points are like one that came before: their bytes make a
 * key, the key leads to the series, and nothing else is looked at. Labels are made for the others.
 * Values are staged, as a request may still turn out to be malformed, and taken at its end.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "base/err.h"
#include "ingest/internal.h"
#include "ingest/labels.h"
#include "otlp/metrics_read.h"

#define LOCKED_POINTS 64u

/* ---- the lock ---- */

void ltn_decode_unlock(struct ltn_decoder *d)
{
    if (d->locked)
        ltn_series_unlock(d->series);
    d->locked = false;
}

static void lock(struct ltn_decoder *d, size_t points)
{
    if (d->locked && d->locked_points >= LOCKED_POINTS)
        ltn_decode_unlock(d); /* others may come in between */
    if (!d->locked) {
        ltn_series_lock(d->series);
        d->locked = true;
        d->locked_points = 0;
    }
    d->locked_points += (unsigned)points;
}

ltn_series_ref ltn_decode_find(struct ltn_decoder *d, struct ltn_series_key key)
{
    lock(d, 1);
    return ltn_series_find(d->series, key);
}

int ltn_decode_resolve(struct ltn_decoder *d, const struct ltn_series_desc *desc,
                       struct ltn_series_key key, ltn_series_ref *ret)
{
    lock(d, 1);
    return ltn_series_resolve(d->series, desc, key, d->now_ns, ret);
}

/* ---- staging ---- */

int ltn_decode_stage(struct ltn_decoder *d, const struct ltn_series_sample *v)
{
    if (d->sample_n == d->sample_room) {
        size_t room = d->sample_room == 0 ? 512 : d->sample_room * 2;
        struct ltn_series_sample *samples = realloc(d->samples, room * sizeof(*samples));
        if (samples == NULL)
            return -ENOMEM;
        d->samples = samples;
        d->sample_room = room;
    }
    d->samples[d->sample_n++] = *v;
    return 0;
}

static bool is_counter(const struct ltn_otlp_metric *m)
{
    return m->kind == LTN_OTLP_SUM && m->monotonic;
}

static int stage(struct ltn_decoder *d, const struct ltn_otlp_metric *m,
                 const struct ltn_otlp_number *p, ltn_series_ref ref)
{
    bool delta = m->kind == LTN_OTLP_SUM && m->temporality == LTN_OTLP_DELTA;
    bool end = (p->point.flags & LTN_OTLP_NO_RECORDED_VALUE) != 0;
    const struct ltn_series_sample v = {
        .value = ltn_otlp_number_f64(p),
        .time_ns = p->point.time_ns,
        .start_ns = delta ? p->point.start_ns : 0,
        .ref = ref,
        .flags = (is_counter(m) ? LTN_SERIES_MONOTONIC : 0u) | (delta ? LTN_SERIES_DELTA : 0u) |
                 (end ? LTN_SERIES_END : 0u),
    };
    return ltn_decode_stage(d, &v);
}

/* ---- keys ---- */

static void note_scope(struct ltn_decoder *d, const struct ltn_otlp_group *g)
{
    if (d->have_scope && d->scope_index == g->scope_index)
        return;
    d->have_scope = true;
    d->scope_index = g->scope_index;
    d->have_metric = false;
    d->scope_ready = false;
    if (d->resource != NULL || g->scope_raw.p == NULL) {
        ltn_decode_scope(d, g);
        d->scope_context =
            ltn_series_context(d->series, d->resource_context, d->scope.data, d->scope.len);
    } else {
        d->scope_context =
            ltn_series_context(d->series, d->resource_context, g->scope_raw.p, g->scope_raw.n);
    }
}

void ltn_decode_begin_metric(struct ltn_decoder *d, const struct ltn_otlp_group *g,
                             const struct ltn_otlp_metric *m)
{
    note_scope(d, g);
    if (d->have_metric && d->metric_index == m->metric_index)
        return;
    const uint8_t nature[] = {(uint8_t)m->kind, (uint8_t)m->temporality, m->monotonic ? 1 : 0};
    d->have_metric = true;
    d->metric_index = m->metric_index;
    d->named = false;
    uint64_t c = ltn_series_context(d->series, d->scope_context, m->name.p, m->name.n);
    c = ltn_series_context(d->series, c, m->unit.p, m->unit.n);
    d->metric_context = ltn_series_context(d->series, c, nature, sizeof(nature));
}

static struct ltn_series_key key_of(const struct ltn_decoder *d, const struct ltn_otlp_number *p)
{
    if (p->point.raw.p == NULL)
        return (struct ltn_series_key){0, 0};
    return ltn_series_key(d->series, d->metric_context, p->point.raw.p, p->point.raw.n);
}

/* ---- points ---- */

/* Neither a value nor the end of a series. */
static bool is_empty(const struct ltn_otlp_number *p)
{
    return p->type == LTN_OTLP_NONE && (p->point.flags & LTN_OTLP_NO_RECORDED_VALUE) == 0;
}

static bool is_nan(const struct ltn_otlp_number *p)
{
    return p->type == LTN_OTLP_DOUBLE && isnan(p->d) &&
           (p->point.flags & LTN_OTLP_NO_RECORDED_VALUE) == 0;
}

int ltn_decode_numbers_raw(struct ltn_decoder *d, const struct ltn_otlp_metric *m,
                           const struct ltn_otlp_number *p, size_t n)
{
    struct ltn_series_key keys[LTN_OTLP_AHEAD];
    int taken = 0;
    bool counter = is_counter(m);
    if (ltn_decode_untimely(m))
        return 0;
    for (size_t i = 0; i < n; i++)
        keys[i] = key_of(d, &p[i]);
    lock(d, n);
    for (size_t i = 0; i < n; i++)
        ltn_series_prefetch(d->series, keys[i]);
    for (size_t i = 0; i < n; i++, taken++) {
        if (keys[i].b == 0 || is_empty(&p[i]) || (counter && is_nan(&p[i])))
            break;
        ltn_series_ref ref = ltn_series_find(d->series, keys[i]);
        if (ref == 0)
            break;
        int rc = stage(d, m, &p[i], ref);
        if (rc != 0)
            return rc;
    }
    return taken;
}

/* The series could not be had. */
static int refused(struct ltn_decoder *d, const struct ltn_otlp_metric *m, int rc)
{
    if (rc == -ENOMEM)
        return rc;
    if (d->resource != NULL) /* an agent of another version: the table counts it */
        d->result->unexposed++;
    else if (rc == -EINVAL)
        ltn_decode_reject(d, m->name, LTN_REJECT_TYPE);
    else
        ltn_decode_reject(d, m->name, LTN_REJECT_FAMILIES);
    return 0;
}

int ltn_decode_number(struct ltn_decoder *d, const struct ltn_otlp_group *g,
                      const struct ltn_otlp_metric *m, const struct ltn_otlp_number *p)
{
    struct ltn_series_key key = key_of(d, p);
    ltn_series_ref ref = 0;
    if (ltn_decode_untimely(m)) {
        ltn_decode_reject(d, m->name, "sum without a temporality");
        return 0;
    }
    if (is_counter(m) && is_nan(p)) {
        ltn_decode_reject(d, m->name, "counter that is not a number");
        return 0;
    }
    if (d->resource != NULL && key.b != 0 && !is_empty(p) && (ref = ltn_decode_find(d, key)) != 0)
        return stage(d, m, p, ref);
    ltn_decode_unlock(d);
    ltn_decode_name(d, m);
    ltn_buf_reset(&d->labels);
    if (d->name_ok && !is_empty(p)) {
        ltn_decode_scope(d, g);
        ltn_labels_put_point(&d->labels, p->point.attrs, d->resource != NULL);
    }
    /* Labels of more than a few KiB help nobody. */
    if (!d->name_ok || is_empty(p) || ltn_buf_error(&d->labels) != 0 ||
        ltn_buf_error(&d->scope) != 0) {
        d->result->unexposed++;
        return 0;
    }
    const struct ltn_series_desc desc = {.family = d->family,
                                         .type = is_counter(m) ? LTN_PROM_COUNTER : LTN_PROM_GAUGE,
                                         .unit = d->unit,
                                         .help = d->help,
                                         .scope_labels = ltn_buf_str(&d->scope),
                                         .labels = ltn_buf_str(&d->labels)};
    int rc = ltn_decode_resolve(d, &desc, key, &ref);
    return rc == 0 ? stage(d, m, p, ref) : refused(d, m, rc);
}
