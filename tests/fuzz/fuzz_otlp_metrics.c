/* SPDX-License-Identifier: Apache-2.0 */
/* Metrics requests: what is accepted is written again by our writer; reading that must give as many
 * points, and every histogram must merge. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "otlp/hist_point.h"
#include "otlp/metrics_read.h"
#include "otlp/metrics_write.h"
#include "otlp/value_json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct copy {
    struct ltn_otlp_metrics_writer w;
    struct ltn_exphist hist;
    uint32_t resource, scope, metric; /* last index + 1 */
};

static void require(int condition)
{
    if (!condition) {
        abort();
    }
}

static void look_at(struct ltn_otlp_attrs attrs)
{
    char text[32];
    int64_t i;
    double d;
    bool b;
    for (size_t k = 0; k < attrs.n; k++) {
        (void)ltn_otlp_value_text(&attrs.items[k].value, text, sizeof(text));
        struct ltn_otlp_attrs one = {&attrs.items[k], 1};
        (void)ltn_otlp_get_i64(one, "k", &i);
        (void)ltn_otlp_get_f64(one, "k", &d);
        (void)ltn_otlp_get_bool(one, "k", &b);
    }
}

static void begin(struct copy *c, const struct ltn_otlp_group *g, const struct ltn_otlp_metric *m)
{
    if (c->resource != g->resource_index + 1) {
        c->resource = g->resource_index + 1;
        look_at(g->resource);
        require(ltn_otlp_metrics_resource(&c->w, g->resource) == 0);
    }
    if (c->scope != g->scope_index + 1) {
        c->scope = g->scope_index + 1;
        require(ltn_otlp_metrics_scope(&c->w, "s", "1") == 0);
    }
    if (c->metric != m->metric_index + 1) {
        c->metric = m->metric_index + 1;
        require(ltn_otlp_metrics_metric(&c->w, m) == 0);
    }
}

static int on_number(void *ctx, const struct ltn_otlp_group *g, const struct ltn_otlp_metric *m,
                     const struct ltn_otlp_number *p)
{
    struct copy *c = ctx;
    begin(c, g, m);
    look_at(p->point.attrs);
    require(ltn_otlp_metrics_number(&c->w, p) == 0);
    return 0;
}

static int on_histogram(void *ctx, const struct ltn_otlp_group *g, const struct ltn_otlp_metric *m,
                        const struct ltn_otlp_histogram *p)
{
    struct copy *c = ctx;
    begin(c, g, m);
    require(ltn_otlp_metrics_histogram(&c->w, p) == 0);
    return 0;
}

static int on_exp(void *ctx, const struct ltn_otlp_group *g, const struct ltn_otlp_metric *m,
                  const struct ltn_otlp_exp_histogram *p)
{
    struct copy *c = ctx;
    begin(c, g, m);
    require(ltn_otlp_metrics_exp_histogram(&c->w, p) == 0);
    if (ltn_otlp_into_exphist(p, &c->hist) == 0 && c->hist.count > 0) {
        double median = ltn_exphist_quantile(&c->hist, 0.5);
        require(!isnan(median) && median >= 0);
        require(c->hist.n <= c->hist.cap);
        require(!isnan(ltn_exphist_count_above(&c->hist, median)));
    }
    return 0;
}

static int only_count(void *ctx, const struct ltn_otlp_group *g, const struct ltn_otlp_metric *m,
                      const struct ltn_otlp_number *p)
{
    (void)ctx;
    (void)g;
    (void)m;
    (void)p;
    return 0;
}

static int only_count_histogram(void *ctx, const struct ltn_otlp_group *g,
                                const struct ltn_otlp_metric *m, const struct ltn_otlp_histogram *p)
{
    (void)ctx;
    (void)g;
    (void)m;
    (void)p;
    return 0;
}

static int only_count_exp(void *ctx, const struct ltn_otlp_group *g,
                          const struct ltn_otlp_metric *m, const struct ltn_otlp_exp_histogram *p)
{
    (void)ctx;
    (void)g;
    (void)m;
    (void)p;
    return 0;
}

/* Exemplars and summaries are read, not written: everything of them is touched. */
static uint64_t touched;

static void touch_json(const struct ltn_otlp_value *v)
{
    struct ltn_buf b;
    struct ltn_json j;
    uint32_t cut = 0;
    ltn_buf_init(&b, 4096);
    ltn_json_init(&j, &b);
    require(ltn_otlp_value_json(&j, v, 512, &cut) != 0 || ltn_buf_error(&b) != 0 || b.len > 0);
    ltn_buf_done(&b);
}

static void touch_point(const struct ltn_otlp_point *p)
{
    char text[64];
    require(p->exemplar_n <= LTN_OTLP_EXEMPLARS_MAX);
    for (size_t i = 0; i < p->exemplar_n; i++) {
        const struct ltn_otlp_exemplar *e = &p->exemplars[i];
        require(e->trace_id.n == 0 || e->trace_id.n == 16);
        require(e->span_id.n == 0 || e->span_id.n == 8);
        for (size_t k = 0; k < e->attrs.n; k++) {
            touch_json(&e->attrs.items[k].value);
            touched += (unsigned char)ltn_otlp_value_text(&e->attrs.items[k].value, text, 64)[0];
        }
    }
}

static int touch_number(void *ctx, const struct ltn_otlp_group *g, const struct ltn_otlp_metric *m,
                        const struct ltn_otlp_number *p)
{
    (void)ctx;
    (void)g;
    (void)m;
    touch_point(&p->point);
    for (size_t k = 0; k < p->point.attrs.n; k++)
        touch_json(&p->point.attrs.items[k].value);
    return 0;
}

static int touch_histogram(void *ctx, const struct ltn_otlp_group *g,
                           const struct ltn_otlp_metric *m, const struct ltn_otlp_histogram *p)
{
    (void)ctx;
    (void)g;
    (void)m;
    touch_point(&p->point);
    return 0;
}

static int touch_exp(void *ctx, const struct ltn_otlp_group *g, const struct ltn_otlp_metric *m,
                     const struct ltn_otlp_exp_histogram *p)
{
    (void)ctx;
    (void)g;
    (void)m;
    touch_point(&p->point);
    return 0;
}

static int touch_summary(void *ctx, const struct ltn_otlp_group *g, const struct ltn_otlp_metric *m,
                         const struct ltn_otlp_summary *p)
{
    (void)ctx;
    (void)g;
    (void)m;
    touch_point(&p->point);
    for (size_t i = 0; i < p->n; i++)
        require(p->quantiles[i].quantile >= 0 && p->quantiles[i].quantile <= 1);
    return 0;
}

static void touch_all(struct ltn_otlp_reader *reader, const uint8_t *data, size_t size)
{
    const struct ltn_otlp_metrics_sink sink = {NULL, touch_number, touch_histogram, touch_exp,
                                               touch_summary};
    struct ltn_otlp_counts counts;
    (void)!ltn_otlp_metrics_read(reader, data, size, &sink, &counts);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct ltn_otlp_reader *reader;
    static uint64_t storage[160];
    if (reader == NULL) {
        reader = ltn_otlp_reader_new(NULL);
        require(reader != NULL);
    }
    struct copy c = {.resource = 0};
    struct ltn_buf b;
    struct ltn_otlp_counts counts, again;
    const struct ltn_otlp_metrics_sink sink = {&c, on_number, on_histogram, on_exp, NULL};
    const struct ltn_otlp_metrics_sink quiet = {NULL, only_count, only_count_histogram,
                                                only_count_exp, NULL};
    /* A resource of many attributes may be written once for each point it is read with. */
    ltn_buf_init(&b, (size + 64) * 64);
    ltn_exphist_init(&c.hist, storage, 160, LTN_EXPHIST_SCALE_MAX);
    ltn_otlp_metrics_begin(&c.w, &b);
    int rc = ltn_otlp_metrics_read(reader, data, size, &sink, &counts);
    require(ltn_otlp_metrics_end(&c.w) == 0);
    require(c.w.points == counts.records);
    if (rc == 0) {
        require(ltn_otlp_metrics_read(reader, b.data, b.len, &quiet, &again) == 0);
        require(again.records == counts.records && again.rejected == 0);
    }
    ltn_buf_done(&b);
    touch_all(reader, data, size);
    return 0;
}
