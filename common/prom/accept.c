/* SPDX-License-Identifier: Apache-2.0 */
#include "prom/accept.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/attr.h"
#include "base/text.h"

#define MAX_ITEMS 64

struct text {
    const char *p;
    size_t n;
};

/* One media range. */
struct item {
    struct text type, version, escaping;
    double q; /* below 0: not acceptable */
};

static bool is(struct text t, const char *s)
{
    return t.n == strlen(s) && strncasecmp(t.p, s, t.n) == 0;
}

static struct text trim(struct text t)
{
    while (t.n > 0 && (*t.p == ' ' || *t.p == '\t')) {
        t.p++;
        t.n--;
    }
    while (t.n > 0 && (t.p[t.n - 1] == ' ' || t.p[t.n - 1] == '\t'))
        t.n--;
    return t;
}

/* Cuts *rest at the first separator outside of quotes; what stood before it. */
static struct text cut(struct text *rest, char separator)
{
    bool quoted = false;
    size_t i = 0;
    for (; i < rest->n && (quoted || rest->p[i] != separator); i++) {
        if (rest->p[i] == '"')
            quoted = !quoted;
        else if (rest->p[i] == '\\' && quoted && i + 1 < rest->n)
            i++;
    }
    struct text head = {rest->p, i};
    size_t skip = i < rest->n ? i + 1 : i;
    rest->p += skip;
    rest->n -= skip;
    return trim(head);
}

/* 0 for what is no number between 0 and 1. */
static double quality(struct text t)
{
    char number[16];
    double q;
    if (t.n == 0 || t.n >= sizeof(number))
        return 0;
    memcpy(number, t.p, t.n);
    number[t.n] = '\0';
    return ltn_parse_f64(number, &q) && q >= 0 && q <= 1 ? q : 0;
}

static struct item parse_item(struct text t)
{
    struct item it = {.q = 1};
    it.type = cut(&t, ';');
    while (t.n > 0) {
        struct text value = cut(&t, ';');
        struct text name = cut(&value, '=');
        value = trim(value);
        if (value.n >= 2 && value.p[0] == '"' && value.p[value.n - 1] == '"')
            value = (struct text){value.p + 1, value.n - 2};
        if (is(name, "q"))
            it.q = quality(value);
        else if (is(name, "version"))
            it.version = value;
        else if (is(name, "escaping"))
            it.escaping = value;
    }
    return it;
}

/* True when the item is spoken here; its content type then, without the escaping. */
static bool spoken(const struct item *it, enum ltn_prom_format *format, const char **type)
{
    if (is(it->type, "application/openmetrics-text")) {
        *format = LTN_PROM_OPENMETRICS;
        *type = is(it->version, "0.0.1") ? LTN_PROM_TYPE_OPENMETRICS_0 : LTN_PROM_TYPE_OPENMETRICS;
        return it->version.n == 0 || is(it->version, "1.0.0") || is(it->version, "0.0.1");
    }
    *format = LTN_PROM_TEXT;
    *type = LTN_PROM_TYPE_TEXT;
    if (!is(it->type, "text/plain"))
        return is(it->type, "text/*") || is(it->type, "*/*") || is(it->type, "*");
    if (is(it->version, "1.0.0"))
        *type = LTN_PROM_TYPE_TEXT_1;
    return it->version.n == 0 || is(it->version, "0.0.4") || is(it->version, "1.0.0");
}

/* All names here are of the old alphabet, so that nothing is ever escaped: allow-utf-8 holds as it
 * is, and of the schemes that would rewrite names the one that leaves these as they are is named.
 */
static const char *escaping(const struct item *it)
{
    if (it->escaping.n == 0)
        return "";
    return is(it->escaping, "allow-utf-8") ? "; escaping=allow-utf-8" : "; escaping=underscores";
}

void ltn_prom_choose(const char *accept, struct ltn_prom_choice *ret)
{
    struct text rest = {accept, accept != NULL ? strlen(accept) : 0};
    double best = 0;
    *ret = (struct ltn_prom_choice){.format = LTN_PROM_TEXT};
    (void)ltn_copy_str(ret->content_type, sizeof(ret->content_type), LTN_PROM_TYPE_TEXT);
    for (int items = 0; rest.n > 0 && items < MAX_ITEMS; items++) {
        struct item it = parse_item(cut(&rest, ','));
        enum ltn_prom_format format;
        const char *type;
        if (!(it.q > best) || !spoken(&it, &format, &type))
            continue;
        best = it.q;
        ret->format = format;
        (void)snprintf(ret->content_type, sizeof(ret->content_type), "%s%s", type, escaping(&it));
    }
}

enum ltn_prom_format ltn_prom_negotiate(const char *accept)
{
    struct ltn_prom_choice c;
    ltn_prom_choose(accept, &c);
    return c.format;
}
