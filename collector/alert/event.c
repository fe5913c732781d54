/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the fleet knows, as labels and annotations. Labels are what alerts are told apart and routed
 * by; whatever changes while an alert is open is an annotation, but for the cause, which people
 * route by.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "alert/internal.h"
#include "base/clock.h"
#include "base/json.h"

#define TEXT_BYTES 16384 /* of all labels, or all annotations, of an alert */

/* An object of non-empty texts under construction. */
struct object {
    struct ltn_buf buf;
    struct ltn_json json;
};

static void object_begin(struct object *o)
{
    ltn_buf_init(&o->buf, TEXT_BYTES);
    ltn_json_init(&o->json, &o->buf);
    ltn_json_open_object(&o->json);
}

/* Alertmanager takes an empty label for none. */
static void put(struct object *o, const char *key, const char *value)
{
    if (value[0] != '\0')
        ltn_json_kv_str(&o->json, key, value);
}

static void putf(struct object *o, const char *key, const char *fmt, ...) ltn_printf(3, 4);
static void putf(struct object *o, const char *key, const char *fmt, ...)
{
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    if (n > 0)
        put(o, key, text);
}

static char *object_end(struct object *o, int *rc)
{
    ltn_json_close_object(&o->json);
    if (*rc == 0)
        *rc = ltn_buf_error(&o->buf);
    size_t len;
    char *text = ltn_buf_steal(&o->buf, &len);
    ltn_buf_done(&o->buf);
    return text;
}

struct draft {
    struct object labels, annotations, group;
    struct ltn_buf group_key, url;
};

static void draft_begin(struct draft *d, const char *name)
{
    object_begin(&d->labels);
    object_begin(&d->annotations);
    object_begin(&d->group);
    ltn_buf_init(&d->group_key, TEXT_BYTES);
    ltn_buf_init(&d->url, TEXT_BYTES);
    put(&d->labels, "alertname", name);
    put(&d->group, "alertname", name);
    (void)ltn_buf_puts(&d->url, "");
}

/* A label that alerts of one matter share. */
static void put_shared(struct draft *d, const char *key, const char *value)
{
    put(&d->labels, key, value);
    put(&d->group, key, value);
}

static void put_escaped(struct ltn_buf *out, const char *text)
{
    static const char plain[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
    for (const char *p = text; *p != '\0'; p++) {
        if (strchr(plain, *p) != NULL)
            (void)ltn_buf_putc(out, *p);
        else
            (void)ltn_buf_printf(out, "%%%02X", (unsigned)(unsigned char)*p);
    }
}

/* Link to a page of the collector: BASE/#/x/y/..., parts up to NULL. */
static void put_link(struct draft *d, const char *base, const char *const *parts)
{
    size_t n = strlen(base);
    if (n == 0)
        return;
    while (n > 0 && base[n - 1] == '/')
        n--;
    (void)ltn_buf_append(&d->url, base, n);
    (void)ltn_buf_puts(&d->url, "/#");
    for (; *parts != NULL; parts++) {
        (void)ltn_buf_putc(&d->url, '/');
        put_escaped(&d->url, *parts);
    }
    put(&d->annotations, "link", ltn_buf_str(&d->url));
}

static char *steal_text(struct ltn_buf *b, int *rc)
{
    if (*rc == 0)
        *rc = ltn_buf_error(b);
    char *text = strdup(ltn_buf_str(b));
    if (text == NULL && *rc == 0)
        *rc = -ENOMEM;
    ltn_buf_done(b);
    return text;
}

static int draft_end(struct draft *d, uint64_t starts_ns, struct ltn_alert_content *ret)
{
    int rc = 0;
    struct ltn_alert_content c = {.starts_ns = starts_ns};
    c.labels = object_end(&d->labels, &rc);
    c.annotations = object_end(&d->annotations, &rc);
    c.group_labels = object_end(&d->group, &rc);
    if (c.group_labels != NULL)
        (void)ltn_buf_printf(&d->group_key, "{}:%s", c.group_labels);
    c.group_key = steal_text(&d->group_key, &rc);
    c.url = steal_text(&d->url, &rc);
    if (rc == 0 && (c.labels == NULL || c.annotations == NULL || c.group_labels == NULL))
        rc = -ENOMEM;
    if (rc == 0)
        *ret = c;
    else
        ltn_alert_content_done(&c);
    return rc;
}

int ltn_alert_from_verdict(const char *external_url, const struct ltn_straggler_verdict *v,
                           struct ltn_alert_content *ret)
{
    struct draft d;
    draft_begin(&d, "LanterneStraggler");
    put(&d.labels, "severity", "warning");
    put_shared(&d, "job", v->job);
    put(&d.labels, "rank", v->key);
    put(&d.labels, "node", v->node);
    put(&d.labels, "cause", v->cause);
    putf(&d.annotations, "summary", "rank %s of job %s on %s is %.0f %% slower than its peers",
         v->key, v->job, v->node, v->effect_pct);
    put(&d.annotations, "description", v->cause_detail);
    putf(&d.annotations, "effect_pct", "%.1f", v->effect_pct);
    putf(&d.annotations, "peers", "%u", v->peers);
    if (v->explained_share >= 0)
        putf(&d.annotations, "explained_share", "%.2f", v->explained_share);
    putf(&d.annotations, "gpu_hours_lost", "%.3f", v->gpu_hours_lost);
    put(&d.annotations, "method", ltn_straggler_method_name(v->method));
    put(&d.annotations, "tier", v->tier);
    put_link(&d, external_url, (const char *const[]){"jobs", v->job, "ranks", v->key, NULL});
    return draft_end(&d, v->since_ns != 0 ? v->since_ns : v->opened_at_ns, ret);
}

static const char *severity_of(int32_t number)
{
    return number >= 21 ? "critical" : (number >= 13 ? "warning" : "info");
}

int ltn_alert_from_incident(const char *external_url, const struct ltn_fleet_incident *i,
                            struct ltn_alert_content *ret)
{
    struct draft d;
    draft_begin(&d, "LanterneIncident");
    put(&d.labels, "severity", severity_of(i->severity_number));
    put_shared(&d, "node", i->node);
    put_shared(&d, "kind", i->kind);
    put(&d.labels, "incident", i->id);
    put(&d.labels, "cause", i->cause);
    put(&d.labels, "job", i->job);
    if (i->rank >= 0)
        putf(&d.labels, "rank", "%d", (int)i->rank);
    putf(&d.annotations, "summary", "%s on %s: %s", i->kind, i->node, i->title);
    put(&d.annotations, "description", i->title);
    put(&d.annotations, "incident_severity", i->severity);
    if (i->explained_share >= 0)
        putf(&d.annotations, "explained_share", "%.2f", i->explained_share);
    put_link(&d, external_url, (const char *const[]){"incidents", i->node, i->id, NULL});
    return draft_end(&d, i->opened_at_ns, ret);
}

int ltn_alert_from_node(const char *external_url, const struct ltn_fleet_node *n,
                        struct ltn_alert_content *ret)
{
    struct draft d;
    char heard[LTN_RFC3339_BYTES];
    draft_begin(&d, "LanterneNodeSilent");
    ltn_format_rfc3339(n->last_seen_ns, heard);
    put(&d.labels, "severity", "warning");
    put_shared(&d, "cluster", n->cluster);
    put_shared(&d, "node", n->name);
    putf(&d.annotations, "summary", "node %s sends nothing any more", n->name);
    putf(&d.annotations, "description",
         "Last heard of at %s. The agent, the node or the network between is down; ranks on it are "
         "not judged.",
         heard);
    put_link(&d, external_url, (const char *const[]){"nodes", n->name, NULL});
    return draft_end(&d, n->last_seen_ns, ret);
}
