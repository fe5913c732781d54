/* SPDX-License-Identifier: Apache-2.0 */
#include "prom/expo.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/text.h"

/* ---- negotiation ---- */

#define MAX_ACCEPT_ITEMS 64

static bool has_prefix(const char *s, size_t n, const char *prefix)
{
    size_t k = strlen(prefix);
    return n >= k && strncasecmp(s, prefix, k) == 0;
}

/* Value of q among the parameters of one item; 1 when absent, 0 when it is no number. */
static double quality(const char *s, size_t n)
{
    for (size_t i = 0; i + 2 < n; i++) {
        if (s[i] != ';')
            continue;
        size_t k = i + 1;
        while (k < n && (s[k] == ' ' || s[k] == '\t'))
            k++;
        if (k + 1 >= n || (s[k] != 'q' && s[k] != 'Q') || s[k + 1] != '=')
            continue;
        char num[16];
        size_t len = 0;
        for (k += 2; k < n && s[k] != ';' && s[k] != ' ' && len + 1 < sizeof(num); k++)
            num[len++] = s[k];
        num[len] = '\0';
        double q;
        return ltn_parse_f64(num, &q) && q >= 0 && q <= 1 ? q : 0;
    }
    return 1;
}

/* OpenMetrics is taken in version 1.0.0 only, which a bare type means too. */
static bool is_openmetrics(const char *s, size_t n)
{
    if (!has_prefix(s, n, "application/openmetrics-text"))
        return false;
    for (size_t i = 0; i + 8 < n; i++)
        if (has_prefix(s + i, n - i, "version="))
            return has_prefix(s + i + 8, n - i - 8, "1.0");
    return true;
}

enum ltn_prom_format ltn_prom_negotiate(const char *accept)
{
    double best_om = 0, best_text = 0;
    if (accept == NULL)
        return LTN_PROM_TEXT;
    for (int items = 0; *accept != '\0' && items < MAX_ACCEPT_ITEMS; items++) {
        size_t n = strcspn(accept, ",");
        const char *s = accept;
        size_t len = n;
        while (len > 0 && (*s == ' ' || *s == '\t')) {
            s++;
            len--;
        }
        double q = quality(s, len);
        if (is_openmetrics(s, len))
            best_om = fmax(best_om, q);
        else if (has_prefix(s, len, "text/plain") || has_prefix(s, len, "text/*") ||
                 has_prefix(s, len, "*/*"))
            best_text = fmax(best_text, q);
        accept += n;
        if (*accept == ',')
            accept++;
    }
    return best_om > 0 && best_om >= best_text ? LTN_PROM_OPENMETRICS : LTN_PROM_TEXT;
}

const char *ltn_prom_content_type(enum ltn_prom_format f)
{
    return f == LTN_PROM_OPENMETRICS ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
                                     : "text/plain; version=0.0.4; charset=utf-8";
}

/* ---- writing ---- */

void ltn_prom_begin(struct ltn_prom *p, struct ltn_buf *out, enum ltn_prom_format f)
{
    *p = (struct ltn_prom){.out = out, .format = f};
}

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
    switch (p->type) {
    case LTN_PROM_COUNTER:
        return "counter";
    case LTN_PROM_GAUGE:
        return "gauge";
    case LTN_PROM_HISTOGRAM:
        return "histogram";
    default:
        return p->format == LTN_PROM_OPENMETRICS ? "unknown" : "untyped";
    }
}

void ltn_prom_family(struct ltn_prom *p, const char *name, enum ltn_prom_type type,
                     const char *unit, const char *help)
{
    (void)ltn_copy_str(p->name, sizeof(p->name), name);
    p->type = type;
    if (type == LTN_PROM_COUNTER && ends_with(p->name, "_total"))
        p->name[strlen(p->name) - 6] = '\0';
    const char *suffix = type == LTN_PROM_COUNTER && p->format == LTN_PROM_TEXT ? "_total" : "";
    if (help != NULL && help[0] != '\0') {
        (void)ltn_buf_printf(p->out, "# HELP %s%s ", p->name, suffix);
        put_help(p, help);
    }
    (void)ltn_buf_printf(p->out, "# TYPE %s%s %s\n", p->name, suffix, type_name(p));
    if (p->format != LTN_PROM_OPENMETRICS || unit == NULL || unit[0] == '\0')
        return;
    size_t n = strlen(p->name), k = strlen(unit);
    if (n > k + 1 && p->name[n - k - 1] == '_' && ends_with(p->name, unit))
        (void)ltn_buf_printf(p->out, "# UNIT %s %s\n", p->name, unit);
}

static void put_number(struct ltn_buf *out, double v)
{
    if (isnan(v))
        (void)ltn_buf_puts(out, "NaN");
    else if (isinf(v))
        (void)ltn_buf_puts(out, v > 0 ? "+Inf" : "-Inf");
    else if (v == floor(v) && fabs(v) < 1e15)
        (void)ltn_buf_printf(out, "%.0f", v);
    else
        (void)ltn_buf_printf(out, "%.15g", v);
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

/* Labels in braces, with a last one of the writer's own unless le is NULL. */
static void put_labels(struct ltn_prom *p, const struct ltn_prom_label *labels, size_t n,
                       const char *le)
{
    if (n == 0 && le == NULL)
        return;
    (void)ltn_buf_putc(p->out, '{');
    for (size_t i = 0; i < n; i++) {
        if (i > 0)
            (void)ltn_buf_putc(p->out, ',');
        const char *v = labels[i].value != NULL ? labels[i].value : "";
        ltn_prom_put_label(p->out, labels[i].name, v, strlen(v));
    }
    if (le != NULL)
        (void)ltn_buf_printf(p->out, "%sle=\"%s\"", n > 0 ? "," : "", le);
    (void)ltn_buf_putc(p->out, '}');
}

static void put_value(struct ltn_prom *p, double value)
{
    (void)ltn_buf_putc(p->out, ' ');
    put_number(p->out, value);
    (void)ltn_buf_putc(p->out, '\n');
}

void ltn_prom_sample(struct ltn_prom *p, const struct ltn_prom_label *labels, size_t n,
                     double value)
{
    put_name(p, p->type == LTN_PROM_COUNTER ? "_total" : "");
    put_labels(p, labels, n, NULL);
    put_value(p, value);
}

void ltn_prom_sample_text(struct ltn_prom *p, const char *labels, double value)
{
    put_name(p, p->type == LTN_PROM_COUNTER ? "_total" : "");
    if (labels[0] != '\0')
        (void)ltn_buf_printf(p->out, "{%s}", labels);
    put_value(p, value);
}

/* Canonical float of a bound: always with a point or an exponent. */
static void bound_text(double v, char out[32])
{
    struct ltn_buf b;
    ltn_buf_init(&b, 32);
    (void)ltn_buf_printf(&b, "%.12g", v);
    if (strpbrk(ltn_buf_str(&b), ".e") == NULL)
        (void)ltn_buf_puts(&b, ".0");
    (void)ltn_copy_str(out, 32, ltn_buf_str(&b));
    ltn_buf_done(&b);
}

void ltn_prom_histogram(struct ltn_prom *p, const struct ltn_prom_label *labels, size_t n,
                        const struct ltn_prom_buckets *h)
{
    uint64_t sum = 0;
    for (size_t i = 0; i <= h->n; i++) {
        char le[32] = "+Inf";
        if (i < h->n)
            bound_text(h->bounds[i], le);
        sum += h->counts[i];
        put_name(p, "_bucket");
        put_labels(p, labels, n, le);
        put_value(p, (double)sum);
    }
    put_name(p, "_sum");
    put_labels(p, labels, n, NULL);
    put_value(p, h->sum);
    put_name(p, "_count");
    put_labels(p, labels, n, NULL);
    put_value(p, (double)sum);
}

void ltn_prom_end(struct ltn_prom *p)
{
    if (p->format == LTN_PROM_OPENMETRICS)
        (void)ltn_buf_puts(p->out, "# EOF\n");
}
