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

void ltn_decode_name(struct ltn_decoder *d, const struct ltn_otlp_metric *m)
{
    static const char what[] = "OpenTelemetry metric ";
    if (d->named)
        return;
    d->named = true;
    enum ltn_prom_type type =
        m->kind == LTN_OTLP_SUM && m->monotonic ? LTN_PROM_COUNTER : LTN_PROM_GAUGE;
    d->name_ok = ltn_prom_metric_name((struct ltn_prom_text){m->name.p, m->name.n},
                                      (struct ltn_prom_text){m->unit.p, m->unit.n}, type, d->family,
                                      d->unit);
    ltn_text_clean(d->help, sizeof(d->help), m->description.p, m->description.n);
    if (d->help[0] == '\0') { /* a family without HELP is a finding of linters */
        (void)ltn_copy_str(d->help, sizeof(d->help), what);
        ltn_text_clean(d->help + sizeof(what) - 1, sizeof(d->help) - sizeof(what) + 1, m->name.p,
                       m->name.n);
    }
}

void ltn_decode_scope(struct ltn_decoder *d, const struct ltn_otlp_group *g)
{
    if (d->scope_ready)
        return;
    d->scope_ready = true;
    ltn_buf_reset(&d->scope);
    (void)ltn_buf_puts(&d->scope, ltn_buf_str(&d->target));
    if (d->resource != NULL) {
        if (d->scope.len > 0)
            (void)ltn_buf_putc(&d->scope, ',');
        ltn_prom_put_label(&d->scope, "node", d->resource->node, strlen(d->resource->node));
    } else if (g->scope_name.n > 0 && g->scope_name.n < LTN_LABEL_VALUE_MAX) {
        if (d->scope.len > 0)
            (void)ltn_buf_putc(&d->scope, ',');
        ltn_prom_put_label(&d->scope, "otel_scope_name", g->scope_name.p, g->scope_name.n);
    }
}
