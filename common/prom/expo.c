/* SPDX-License-Identifier: Apache-2.0 */
#include "prom/expo.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/attr.h"
#include "base/text.h"

void ltn_prom_begin(struct ltn_prom *p, struct ltn_buf *out, enum ltn_prom_format f)
{
    *p = (struct ltn_prom){.out = out, .format = f};
}

/* ---- numbers ---- */

static bool reads_back(const char *text, double v)
{
    double back = strtod(text, NULL);
    return memcmp(&back, &v, sizeof(v)) == 0;
}

/* The fewest significant digits of |v| that read back the same, as d.ddde+xx; v is finite. */
static void shortest(double v, char out[LTN_PROM_FLOAT_BYTES])
{
    static const int precisions[] = {5, 14, 15,
                                     16}; /* of figures that people write, and the rest */
    for (size_t i = 0; i < LTN_ARRAY_SIZE(precisions); i++) {
        (void)snprintf(out, LTN_PROM_FLOAT_BYTES, "%.*e", precisions[i], v);
        if (reads_back(out, v))
            break;
    }
}

/* Puts the digits of d.ddde+xx where they belong by the rule of Go's %g: an exponent below 1e-4 and
 * from 1e+06 on. */
void ltn_prom_float(double v, char ret[LTN_PROM_FLOAT_BYTES])
{
    char sci[LTN_PROM_FLOAT_BYTES], digits[24] = "";
    size_t n = 0, len = 0;
    if (isnan(v) || isinf(v)) {
        (void)ltn_copy_str(ret, LTN_PROM_FLOAT_BYTES, isnan(v) ? "NaN" : v > 0 ? "+Inf" : "-Inf");
        return;
    }
    shortest(fabs(v), sci);
    char *e = strchr(sci, 'e');
    int exponent = (int)strtol(e + 1, NULL, 10);
    for (const char *c = sci; c < e && n + 1 < sizeof(digits); c++)
        if (*c != '.')
            digits[n++] = *c;
    while (n > 1 && digits[n - 1] == '0')
        n--;
    /* At most: a sign, 17 digits, a point, 5 zeros or an exponent of 5 characters, the end. */
    bool small = exponent < 0 && exponent >= -4, large = exponent < -4 || exponent >= 6;
    size_t before = small ? 0 : large ? 1 : (size_t)exponent + 1;
    if (signbit(v))
        ret[len++] = '-';
    for (size_t i = 0; i < before; i++)
        ret[len++] = i < n ? digits[i] : '0';
    if (!large || n > 1) {
        if (before == 0)
            ret[len++] = '0';
        ret[len++] = '.';
        for (int i = -1; small && i > exponent; i--)
            ret[len++] = '0';
        for (size_t i = before; i < n; i++)
            ret[len++] = digits[i];
        if (n <= before)
            ret[len++] = '0';
    }
    ret[len] = '\0';
    if (large)
        (void)ltn_copy_str(ret + len, LTN_PROM_FLOAT_BYTES - len, e);
}

/* ---- families ---- */

static bool ends_with(const char *s, const char *tail)
{
    size_t n = strlen(s), k = strlen(tail);
    return n >= k && strcmp(s + n - k, tail) == 0;
}

/* HELP text: backslash and newline escaped, in OpenMetrics the quote as well. */
static void put_help(struct ltn_prom *p, const char *help)
{
    for (; *help != '\0'; help++) {
        if (*help == '\\')
            (void)ltn_buf_puts(p->out, "\\\\");
        else if (*help == '\n')
            (void)ltn_buf_puts(p->out, "\\n");
        else if (*help == '"' && p->format == LTN_PROM_OPENMETRICS)
            (void)ltn_buf_puts(p->out, "\\\"");
        else
            (void)ltn_buf_putc(p->out, *help);
    }
    (void)ltn_buf_putc(p->out, '\n');
}

static const char *type_name(const struct ltn_prom *p)
{
    bool text = p->format == LTN_PROM_TEXT;
    switch (p->type) {
    case LTN_PROM_COUNTER:
        return "counter";
    case LTN_PROM_GAUGE:
        return "gauge";
    case LTN_PROM_HISTOGRAM:
        return "histogram";
    case LTN_PROM_SUMMARY:
        return "summary";
    case LTN_PROM_INFO:
        return text ? "gauge" : "info";
    default:
        return text ? "untyped" : "unknown";
    }
}

/* What the samples of counters and infos have behind the family's name. */
static const char *own_suffix(enum ltn_prom_type type)
{
    return type == LTN_PROM_COUNTER ? "_total" : type == LTN_PROM_INFO ? "_info" : "";
}

void ltn_prom_family(struct ltn_prom *p, const char *name, enum ltn_prom_type type,
                     const char *unit, const char *help)
{
    const char *own = own_suffix(type);
    (void)ltn_copy_str(p->name, sizeof(p->name), name);
    p->type = type;
    if (own[0] != '\0' && ends_with(p->name, own))
        p->name[strlen(p->name) - strlen(own)] = '\0';
    const char *suffix = p->format == LTN_PROM_TEXT ? own : "";
    if (help != NULL && help[0] != '\0') {
        (void)ltn_buf_printf(p->out, "# HELP %s%s ", p->name, suffix);
        put_help(p, help);
    }
    (void)ltn_buf_printf(p->out, "# TYPE %s%s %s\n", p->name, suffix, type_name(p));
    if (p->format != LTN_PROM_OPENMETRICS || unit == NULL || unit[0] == '\0' ||
        type == LTN_PROM_INFO)
        return;
    size_t n = strlen(p->name), k = strlen(unit);
    if (n > k + 1 && p->name[n - k - 1] == '_' && ends_with(p->name, unit))
        (void)ltn_buf_printf(p->out, "# UNIT %s %s\n", p->name, unit);
}

/* A sample's value: whole numbers as such. */
static void put_number(struct ltn_buf *out, double v)
{
    char text[LTN_PROM_FLOAT_BYTES];
    if (fabs(v) < 1e15 && v == floor(v)) {
        (void)ltn_buf_printf(out, "%.0f", v);
        return;
    }
    ltn_prom_float(v, text);
    (void)ltn_buf_puts(out, text);
}

void ltn_prom_put_label(struct ltn_buf *out, const char *name, const char *value, size_t value_len)
{
    (void)ltn_buf_printf(out, "%s=\"", name);
    for (size_t i = 0; i < value_len;) {
        size_t k = ltn_utf8_len(value + i, value_len - i);
        unsigned char c = (unsigned char)value[i];
        if (k == 0) {
            (void)ltn_buf_putc(out, '?');
            i++;
            continue;
        }
        if (c == '\n')
            (void)ltn_buf_puts(out, "\\n");
        else if (c == '"' || c == '\\')
            (void)ltn_buf_printf(out, "\\%c", c);
        else if (k == 1 && (c < 0x20 || c == 0x7f))
            (void)ltn_buf_putc(out, '?');
        else
            (void)ltn_buf_append(out, value + i, k);
        i += k;
    }
    (void)ltn_buf_putc(out, '"');
}

static void put_name(struct ltn_prom *p, const char *suffix)
{
    (void)ltn_buf_puts(p->out, p->name);
    (void)ltn_buf_puts(p->out, suffix);
}

static void put_labels(struct ltn_prom *p, const struct ltn_prom_label *labels, size_t n)
{
    if (n == 0)
        return;
    (void)ltn_buf_putc(p->out, '{');
    for (size_t i = 0; i < n; i++) {
        if (i > 0)
            (void)ltn_buf_putc(p->out, ',');
        const char *v = labels[i].value != NULL ? labels[i].value : "";
        ltn_prom_put_label(p->out, labels[i].name, v, strlen(v));
    }
    (void)ltn_buf_putc(p->out, '}');
}

static void put_value(struct ltn_prom *p, double value)
{
    (void)ltn_buf_putc(p->out, ' ');
    put_number(p->out, value);
    (void)ltn_buf_putc(p->out, '\n');
}

/* OpenMetrics has no counters below zero, and none that are no number. */
static bool forbidden(const struct ltn_prom *p, double value)
{
    return p->format == LTN_PROM_OPENMETRICS && p->type == LTN_PROM_COUNTER && !(value >= 0);
}

void ltn_prom_sample(struct ltn_prom *p, const struct ltn_prom_label *labels, size_t n,
                     double value)
{
    if (forbidden(p, value))
        return;
    put_name(p, own_suffix(p->type));
    put_labels(p, labels, n);
    put_value(p, value);
}

void ltn_prom_sample_text(struct ltn_prom *p, const char *labels, double value)
{
    if (forbidden(p, value))
        return;
    put_name(p, own_suffix(p->type));
    if (labels[0] != '\0')
        (void)ltn_buf_printf(p->out, "{%s}", labels);
    put_value(p, value);
}

/* ---- histograms and summaries ---- */

/* Text of a bound; those of the histogram before are most often the same. */
static const char *bound_text(struct ltn_prom *p, size_t i, double v)
{
    size_t at = i % LTN_PROM_BOUNDS_KEPT;
    if (p->bounds[at].text[0] == '\0' || memcmp(&p->bounds[at].value, &v, sizeof(v)) != 0) {
        p->bounds[at].value = v;
        ltn_prom_float(v, p->bounds[at].text);
    }
    return p->bounds[at].text;
}

/* name_suffix{labels,own="text"} */
static void put_head(struct ltn_prom *p, const char *suffix, const char *labels, const char *own,
                     const char *text)
{
    put_name(p, suffix);
    if (labels[0] == '\0' && own == NULL)
        return;
    (void)ltn_buf_putc(p->out, '{');
    (void)ltn_buf_puts(p->out, labels);
    if (own != NULL)
        (void)ltn_buf_printf(p->out, "%s%s=\"%s\"", labels[0] != '\0' ? "," : "", own, text);
    (void)ltn_buf_putc(p->out, '}');
}

/* The newest exemplar of (above, bound], behind a sample; nothing when there is none. */
static void put_exemplar(struct ltn_prom *p, const struct ltn_prom_cumulative *h, double above,
                         double bound)
{
    const struct ltn_prom_exemplar *best = NULL;
    for (size_t i = 0; p->format == LTN_PROM_OPENMETRICS && i < h->exemplar_n; i++) {
        const struct ltn_prom_exemplar *e = &h->exemplars[i];
        if (e->value > above && e->value <= bound && (best == NULL || e->time_ns >= best->time_ns))
            best = e;
    }
    if (best == NULL)
        return;
    (void)ltn_buf_printf(p->out, " # {%s} ", best->labels);
    put_number(p->out, best->value);
    if (best->time_ns != 0)
        (void)ltn_buf_printf(p->out, " %llu.%03u", best->time_ns / LTN_NS_PER_S,
                             (unsigned)(best->time_ns % LTN_NS_PER_S / LTN_NS_PER_MS));
}

static void put_count(struct ltn_prom *p, uint64_t n)
{
    (void)ltn_buf_printf(p->out, " %" PRIu64, n);
}

void ltn_prom_histogram_text(struct ltn_prom *p, const char *labels,
                             const struct ltn_prom_cumulative *h)
{
    double above = -HUGE_VAL;
    bool negative = false;
    for (size_t i = 0; i < h->n; i++) {
        if (!isfinite(h->bounds[i]))
            continue;
        negative = negative || h->bounds[i] < 0;
        put_head(p, "_bucket", labels, "le", bound_text(p, i, h->bounds[i]));
        put_count(p, h->counts[i]);
        put_exemplar(p, h, above, h->bounds[i]);
        (void)ltn_buf_putc(p->out, '\n');
        above = h->bounds[i];
    }
    put_head(p, "_bucket", labels, "le", "+Inf");
    put_count(p, h->count);
    put_exemplar(p, h, above, HUGE_VAL);
    (void)ltn_buf_putc(p->out, '\n');
    bool sum = h->has_sum;
    bool both = p->format == LTN_PROM_TEXT || (sum && !negative && h->sum >= 0);
    if (sum && both) {
        put_head(p, "_sum", labels, NULL, NULL);
        put_value(p, h->sum);
    }
    if (!both)
        return;
    put_head(p, "_count", labels, NULL, NULL);
    put_count(p, h->count);
    (void)ltn_buf_putc(p->out, '\n');
}

void ltn_prom_summary_text(struct ltn_prom *p, const char *labels,
                           const struct ltn_prom_quantiles *s)
{
    bool om = p->format == LTN_PROM_OPENMETRICS;
    for (size_t i = 0; i < s->n; i++) {
        char text[LTN_PROM_FLOAT_BYTES];
        if (om && s->items[i].value < 0)
            continue;
        ltn_prom_float(s->items[i].quantile, text);
        put_head(p, "", labels, "quantile", text);
        put_value(p, s->items[i].value);
    }
    if (!om || s->sum >= 0) {
        put_head(p, "_sum", labels, NULL, NULL);
        put_value(p, s->sum);
    }
    put_head(p, "_count", labels, NULL, NULL);
    put_count(p, s->count);
    (void)ltn_buf_putc(p->out, '\n');
}

/* Label text of the structured form, in a buffer of its own. */
static void label_text(struct ltn_buf *b, const struct ltn_prom_label *labels, size_t n)
{
    ltn_buf_init(b, (size_t)1 << 16);
    for (size_t i = 0; i < n; i++) {
        const char *v = labels[i].value != NULL ? labels[i].value : "";
        if (i > 0)
            (void)ltn_buf_putc(b, ',');
        ltn_prom_put_label(b, labels[i].name, v, strlen(v));
    }
}

void ltn_prom_histogram(struct ltn_prom *p, const struct ltn_prom_label *labels, size_t n,
                        const struct ltn_prom_buckets *h)
{
    uint64_t counts[LTN_PROM_BOUNDS_KEPT], sum = 0;
    struct ltn_buf text;
    size_t bounds = h->n < LTN_ARRAY_SIZE(counts) ? h->n : LTN_ARRAY_SIZE(counts);
    for (size_t i = 0; i < h->n; i++) {
        sum += h->counts[i];
        if (i < bounds)
            counts[i] = sum;
    }
    label_text(&text, labels, n);
    ltn_prom_histogram_text(p, ltn_buf_str(&text),
                            &(struct ltn_prom_cumulative){.bounds = h->bounds,
                                                          .counts = counts,
                                                          .n = bounds,
                                                          .count = sum + h->counts[h->n],
                                                          .has_sum = true,
                                                          .sum = h->sum});
    ltn_buf_done(&text);
}

void ltn_prom_end(struct ltn_prom *p)
{
    if (p->format == LTN_PROM_OPENMETRICS)
        (void)ltn_buf_puts(p->out, "# EOF\n");
}
