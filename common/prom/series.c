/* SPDX-License-Identifier: Apache-2.0 */
#include "prom/series.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/map.h"
#include "base/text.h"

#define OVERFLOW_LABELS  "otel_metric_overflow=\"true\""
#define HELP_BYTES       200
#define EXPIRE_BATCH_MAX 1024

struct one {
    double value;
    uint64_t time_ns, seen_ns;
    char labels[]; /* exposition form */
};

struct family {
    enum ltn_prom_type type;
    bool reserved;
    struct ltn_map series;
    char *name;
    char *unit;
    char help[HELP_BYTES];
};

struct ltn_series {
    struct ltn_series_opts opts;
    struct ltn_map families;
    struct ltn_series_stats stats;
};

struct ltn_series *ltn_series_new(const struct ltn_series_opts *opts)
{
    struct ltn_series *s = calloc(1, sizeof(*s));
    if (s == NULL)
        return NULL;
    if (opts != NULL)
        s->opts = *opts;
    if (s->opts.max_families == 0)
        s->opts.max_families = 5000;
    if (s->opts.max_per_family == 0)
        s->opts.max_per_family = 2000;
    if (s->opts.max_series == 0)
        s->opts.max_series = 200000;
    if (s->opts.expire_ns == 0)
        s->opts.expire_ns = 300 * LTN_NS_PER_S;
    ltn_map_init(&s->families, s->opts.max_families);
    return s;
}

static void free_family(void *p)
{
    struct family *f = p;
    ltn_map_done(&f->series, free);
    free(f->name);
    free(f->unit);
    free(f);
}

void ltn_series_free(struct ltn_series *s)
{
    if (s == NULL)
        return;
    ltn_map_done(&s->families, free_family);
    free(s);
}

static struct family *add_family(struct ltn_series *s, const struct ltn_series_point *p)
{
    struct family *f = calloc(1, sizeof(*f));
    if (f == NULL)
        return NULL;
    f->type = p->type;
    f->name = strdup(p->family);
    f->unit = strdup(p->unit != NULL ? p->unit : "");
    if (p->help != NULL)
        ltn_text_clean(f->help, sizeof(f->help), p->help, strlen(p->help));
    ltn_map_init(&f->series, s->opts.max_per_family + 1);
    if (f->name == NULL || f->unit == NULL || ltn_map_put_str(&s->families, p->family, f) != 0) {
        free_family(f);
        return NULL;
    }
    s->stats.families++;
    return f;
}

int ltn_series_reserve(struct ltn_series *s, const char *name)
{
    struct ltn_series_point p = {.family = name, .type = LTN_PROM_UNKNOWN};
    struct family *f = ltn_map_get_str(&s->families, name);
    if (f == NULL)
        f = add_family(s, &p);
    if (f == NULL)
        return s->families.len >= s->opts.max_families ? LTN_ERR_COUNT : -ENOMEM;
    f->reserved = true;
    return 0;
}

static struct one *add_one(struct ltn_series *s, struct family *f, const char *labels)
{
    size_t n = strlen(labels);
    struct one *o = calloc(1, sizeof(*o) + n + 1);
    if (o == NULL)
        return NULL;
    memcpy(o->labels, labels, n + 1);
    if (ltn_map_put(&f->series, labels, n, o) != 0) {
        free(o);
        return NULL;
    }
    s->stats.series++;
    return o;
}

static void set_value(struct one *o, const struct ltn_series_point *p, bool overflow)
{
    if (p->time_ns < o->time_ns && !overflow)
        return;
    if (p->delta) {
        if (p->time_ns > o->time_ns || overflow || p->time_ns == 0)
            o->value += p->value;
    } else if (!(overflow && p->type == LTN_PROM_COUNTER && o->value > p->value)) {
        o->value = p->value;
    }
    if (p->time_ns > o->time_ns)
        o->time_ns = p->time_ns;
}

int ltn_series_set(struct ltn_series *s, const struct ltn_series_point *p, uint64_t now_ns)
{
    struct family *f = ltn_map_get_str(&s->families, p->family);
    if (f == NULL)
        f = add_family(s, p);
    if (f == NULL) {
        s->stats.refused++;
        return LTN_ERR_COUNT;
    }
    if (f->reserved || f->type != p->type) {
        s->stats.type_conflicts++;
        return -EINVAL;
    }
    bool overflow = false;
    struct one *o = ltn_map_get_str(&f->series, p->labels);
    if (o == NULL) {
        overflow = f->series.len >= s->opts.max_per_family || s->stats.series >= s->opts.max_series;
        const char *labels = overflow ? OVERFLOW_LABELS : p->labels;
        o = overflow ? ltn_map_get_str(&f->series, labels) : NULL;
        if (o == NULL)
            o = add_one(s, f, labels);
    }
    if (o == NULL) {
        s->stats.refused++;
        return -ENOMEM;
    }
    set_value(o, p, overflow);
    o->seen_ns = now_ns;
    s->stats.points++;
    s->stats.overflowed += overflow ? 1 : 0;
    return 0;
}

/* Takes out what is old, a batch at a time: the map must not change while it is walked. */
static void expire_family(struct ltn_series *s, struct family *f, uint64_t limit_ns)
{
    for (;;) {
        struct one *old[EXPIRE_BATCH_MAX];
        size_t n = 0, pos = 0;
        for (struct one *o; n < EXPIRE_BATCH_MAX && (o = ltn_map_next(&f->series, &pos)) != NULL;)
            if (o->seen_ns < limit_ns)
                old[n++] = o;
        for (size_t i = 0; i < n; i++) {
            (void)ltn_map_del(&f->series, old[i]->labels, strlen(old[i]->labels));
            free(old[i]);
        }
        s->stats.series -= n;
        if (n < EXPIRE_BATCH_MAX)
            return;
    }
}

void ltn_series_expire(struct ltn_series *s, uint64_t now_ns)
{
    if (now_ns < s->opts.expire_ns)
        return;
    size_t pos = 0;
    for (struct family *f; (f = ltn_map_next(&s->families, &pos)) != NULL;)
        expire_family(s, f, now_ns - s->opts.expire_ns);
    pos = 0;
    for (struct family *f; (f = ltn_map_next(&s->families, &pos)) != NULL;) {
        if (f->reserved || f->series.len > 0)
            continue;
        (void)ltn_map_del(&s->families, f->name, strlen(f->name));
        free_family(f);
        s->stats.families--;
        pos = 0;
    }
}

void ltn_series_write(const struct ltn_series *s, struct ltn_prom *out)
{
    size_t pos = 0;
    for (const struct family *f; (f = ltn_map_next(&s->families, &pos)) != NULL;) {
        if (f->reserved || f->series.len == 0)
            continue;
        ltn_prom_family(out, f->name, f->type, f->unit, f->help);
        size_t at = 0;
        for (const struct one *o; (o = ltn_map_next(&f->series, &at)) != NULL;)
            ltn_prom_sample_text(out, o->labels, o->value);
    }
}

void ltn_series_stats(const struct ltn_series *s, struct ltn_series_stats *ret)
{
    *ret = s->stats;
}
