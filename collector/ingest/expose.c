/* SPDX-License-Identifier: Apache-2.0 */
/* How metrics and scopes of any client are called in Prometheus. */
#include <string.h>

#include "base/text.h"
#include "ingest/internal.h"
#include "ingest/labels.h"

void ltn_decode_name(struct ltn_decoder *d, const struct ltn_otlp_metric *m)
{
    static const char what[] = "OpenTelemetry metric ";
    if (d->named)
        return;
    d->named = true;
    /* A sum that may fall is a gauge, but not called like one. */
    enum ltn_prom_type type = m->kind == LTN_OTLP_GAUGE ? LTN_PROM_GAUGE : LTN_PROM_UNKNOWN;
    if (m->kind == LTN_OTLP_SUM && m->monotonic)
        type = LTN_PROM_COUNTER;
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
    } else {
        ltn_labels_put_scope(&d->scope, g);
    }
}
