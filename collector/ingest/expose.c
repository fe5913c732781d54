/* SPDX-License-Identifier: Apache-2.0 */
/* Gauges and sums of any client as Prometheus series. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/text.h"
#include "ingest/internal.h"

struct label {
    char name[LTN_PROM_NAME_BYTES];
    char value[LTN_LABEL_VALUE_MAX];
    size_t order;
};

/* Identities that make a series for each process or request, or that are said elsewhere. */
static bool unwanted(struct ltn_otlp_str key)
{
    static const char *const keys[] = {"process.pid", "thread.id", "lanterne.preemptor.pid",
                                       "lanterne.comm.id"};
    for (size_t i = 0; i < LTN_ARRAY_SIZE(keys); i++)
        if (ltn_otlp_str_eq(key, keys[i]))
            return true;
    return false;
}

static int by_name(const void *a, const void *b)
{
    const struct label *x = a, *y = b;
    int c = strcmp(x->name, y->name);
    return c != 0 ? c : (x->order > y->order) - (x->order < y->order);
}

void ltn_decode_put_labels(struct ltn_buf *out, struct ltn_otlp_attrs attrs)
{
    static _Thread_local struct label labels[LTN_MAX_LABELS];
    size_t n = 0;
    for (size_t i = 0; i < attrs.n && n < LTN_MAX_LABELS; i++) {
        const struct ltn_otlp_attr *a = &attrs.items[i];
        struct ltn_prom_text key = {a->key.p, a->key.n};
        if (unwanted(a->key) || !ltn_prom_label_name(key, labels[n].name))
            continue;
        (void)ltn_otlp_value_text(&a->value, labels[n].value, sizeof(labels[n].value));
        labels[n].order = i;
        n++;
    }
    qsort(labels, n, sizeof(*labels), by_name);
    for (size_t i = 0; i < n; i++) {
        char joined[2 * LTN_LABEL_VALUE_MAX];
        size_t len = strlen(labels[i].value), first = i;
        memcpy(joined, labels[i].value, len);
        while (i + 1 < n && strcmp(labels[i + 1].name, labels[first].name) == 0) {
            size_t k = strlen(labels[++i].value);
            if (len + k + 1 >= sizeof(joined))
                continue;
            joined[len++] = ';';
            memcpy(joined + len, labels[i].value, k);
            len += k;
        }
        if (out->len > 0)
            (void)ltn_buf_putc(out, ',');
        ltn_prom_put_label(out, labels[first].name, joined, len);
    }
}

/* Names of the metric into the arena, once per metric of the request. */
static int name_metric(struct ltn_decoder *d)
{
    if (d->family_copy != NULL)
        return 0;
    d->family_copy = ltn_arena_strndup(&d->u->arena, d->family, strlen(d->family));
    d->unit_copy = ltn_arena_strndup(&d->u->arena, d->unit, strlen(d->unit));
    d->help_copy = ltn_arena_strndup(&d->u->arena, d->help, strlen(d->help));
    return d->family_copy != NULL && d->unit_copy != NULL && d->help_copy != NULL
               ? 0
               : LTN_ERR_TOO_LARGE;
}

static void put_labels(struct ltn_decoder *d, const struct ltn_otlp_group *g,
                       const struct ltn_otlp_number *p)
{
    ltn_buf_reset(&d->labels);
    (void)ltn_buf_puts(&d->labels, d->target_labels);
    if (d->resource != NULL) {
        if (d->labels.len > 0)
            (void)ltn_buf_putc(&d->labels, ',');
        ltn_prom_put_label(&d->labels, "node", d->resource->node, strlen(d->resource->node));
    } else if (g->scope_name.n > 0 && g->scope_name.n < LTN_LABEL_VALUE_MAX) {
        if (d->labels.len > 0)
            (void)ltn_buf_putc(&d->labels, ',');
        ltn_prom_put_label(&d->labels, "otel_scope_name", g->scope_name.p, g->scope_name.n);
    }
    ltn_decode_put_labels(&d->labels, p->point.attrs);
}

int ltn_decode_expose(struct ltn_decoder *d, const struct ltn_otlp_group *g,
                      const struct ltn_otlp_metric *m, const struct ltn_otlp_number *p)
{
    if (!d->name_ok || p->type == LTN_OTLP_NONE ||
        (p->point.flags & LTN_OTLP_NO_RECORDED_VALUE) != 0) {
        d->result->unexposed++;
        return 0;
    }
    int rc = name_metric(d);
    if (rc != 0)
        return rc;
    put_labels(d, g, p);
    if (ltn_buf_error(&d->labels) != 0) { /* labels of more than a few KiB help nobody */
        ltn_buf_reset(&d->labels);
        d->result->unexposed++;
        return 0;
    }
    struct ltn_update_point *o = ltn_arena_calloc(&d->u->arena, 1, sizeof(*o));
    char *labels = ltn_arena_strndup(&d->u->arena, ltn_buf_str(&d->labels), d->labels.len);
    if (o == NULL || labels == NULL)
        return LTN_ERR_TOO_LARGE;
    bool counter = m->kind == LTN_OTLP_SUM && m->monotonic;
    bool delta = m->kind == LTN_OTLP_SUM && m->temporality == LTN_OTLP_DELTA;
    o->series = (struct ltn_series_point){
        .desc = {.family = d->family_copy,
                 .type = counter ? LTN_PROM_COUNTER : LTN_PROM_GAUGE,
                 .unit = d->unit_copy,
                 .help = d->help_copy,
                 .labels = labels},
        .value = ltn_otlp_number_f64(p),
        .time_ns = p->point.time_ns,
        .start_ns = p->point.start_ns,
        .flags = (counter ? LTN_SERIES_MONOTONIC : 0) | (delta ? LTN_SERIES_DELTA : 0),
    };
    o->next = d->u->points;
    d->u->points = o;
    d->u->point_count++;
    return 0;
}
