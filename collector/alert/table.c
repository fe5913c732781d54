/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The newest state of each alert. A change replaces the state before it, so what waits for a dead
 * target is never more than one state per alert. An end always finds its place, because its alert
 * has one already.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "alert/internal.h"
#include "base/clock.h"
#include "base/text.h"

#define GIVE_UP_NS  (86400 * LTN_NS_PER_S) /* a resolved alert that some target never took */
#define REMEMBER_NS (300 * LTN_NS_PER_S)   /* one that must not be made anew */
#define MAX_REMOVED 64                     /* by one sweep */

void ltn_alert_content_done(struct ltn_alert_content *c)
{
    free(c->labels);
    free(c->annotations);
    free(c->group_labels);
    free(c->group_key);
    free(c->url);
    *c = (struct ltn_alert_content){0};
}

static void entry_free(struct ltn_alert *e)
{
    ltn_alert_content_done(&e->c);
    free(e);
}

static struct ltn_alert *find(struct ltn_alerts *a, const char *key)
{
    return ltn_map_get_str(&a->table, key);
}

static void remove_entry(struct ltn_alerts *a, struct ltn_alert *e)
{
    (void)ltn_map_del(&a->table, e->key, strlen(e->key));
    entry_free(e);
}

/* A target that was never told of the alert need not hear of its end. */
bool ltn_alert_known(const struct ltn_alert *e, size_t target)
{
    const struct ltn_alert_sent *s = &e->sent[target];
    return s->version == e->version || (e->ends_ns != 0 && !s->attempted && !e->earlier);
}

static bool everybody_knows(const struct ltn_alerts *a, const struct ltn_alert *e)
{
    for (size_t i = 0; i < a->target_count; i++)
        if (!ltn_alert_known(e, i))
            return false;
    return true;
}

void ltn_alert_drop_if_done(struct ltn_alerts *a, struct ltn_alert *e)
{
    if (e->busy > 0)
        return;
    if (e->key[0] == '\0') /* see set_aside */
        entry_free(e);
    else if (e->ends_ns != 0 && !e->remembered && everybody_knows(a, e))
        remove_entry(a, e);
}

/* Makes room by dropping the alert that was resolved longest ago. */
static bool evict(struct ltn_alerts *a)
{
    struct ltn_alert *oldest = NULL;
    size_t pos = 0;
    for (struct ltn_alert *e; (e = ltn_map_next(&a->table, &pos)) != NULL;)
        if (e->ends_ns != 0 && e->busy == 0 &&
            (oldest == NULL || e->changed_ns < oldest->changed_ns))
            oldest = e;
    if (oldest == NULL)
        return false;
    a->stats.evicted += everybody_knows(a, oldest) ? 0 : 1;
    remove_entry(a, oldest);
    return true;
}

static struct ltn_alert *add(struct ltn_alerts *a, const char *key)
{
    if (a->table.len >= a->table.max_entries && !evict(a)) {
        a->stats.refused++;
        return NULL;
    }
    struct ltn_alert *e = calloc(1, sizeof(*e));
    if (e == NULL || !ltn_copy_str(e->key, sizeof(e->key), key) ||
        ltn_map_put_str(&a->table, key, e) != 0) {
        free(e);
        a->stats.refused++;
        return NULL;
    }
    return e;
}

static void changed(struct ltn_alerts *a, struct ltn_alert *e, uint64_t now_ns)
{
    e->version++;
    e->changed_ns = now_ns;
    for (size_t i = 0; i < a->target_count; i++)
        e->sent[i].tries = 0;
    (void)pthread_cond_broadcast(&a->wake);
}

/* The labels changed: for every target that is another alert, and this one has ended. Its key makes
 * room for the other. */
static void set_aside(struct ltn_alerts *a, struct ltn_alert *e, uint64_t now_ns)
{
    char key[LTN_ALERT_KEY_BYTES];
    int n = snprintf(key, sizeof(key), "%s\x1f%s", e->key, e->fingerprint);
    struct ltn_alert *old = n > 0 && (size_t)n < sizeof(key) ? find(a, key) : NULL;
    if (old != NULL && old->busy == 0)
        remove_entry(a, old);
    (void)ltn_map_del(&a->table, e->key, strlen(e->key));
    if (n <= 0 || (size_t)n >= sizeof(key) || (old != NULL && find(a, key) != NULL) ||
        ltn_map_put_str(&a->table, key, e) != 0) {
        /* No place to wait for its end in: Alertmanagers see it end by its endsAt. */
        a->stats.evicted++;
        if (e->busy == 0)
            entry_free(e);
        else
            e->key[0] = '\0'; /* ltn_alert_drop_if_done frees it after the request */
        return;
    }
    (void)ltn_copy_str(e->key, sizeof(e->key), key);
    ltn_alert_resolve(a, e, now_ns, now_ns);
}

static bool same(const struct ltn_alert_content *x, const struct ltn_alert_content *y)
{
    return strcmp(x->annotations, y->annotations) == 0 && x->starts_ns == y->starts_ns;
}

struct ltn_alert *ltn_alert_put(struct ltn_alerts *a, const char *key, struct ltn_alert_content *c,
                                uint64_t now_ns)
{
    struct ltn_alert *e = find(a, key);
    if (e != NULL && strcmp(e->c.labels, c->labels) != 0) {
        set_aside(a, e, now_ns);
        e = NULL;
    }
    if (e == NULL)
        e = add(a, key);
    if (e == NULL) {
        ltn_alert_content_done(c);
        return NULL;
    }
    bool news = e->version == 0 || e->ends_ns != 0 || !same(&e->c, c);
    ltn_alert_content_done(&e->c);
    e->c = *c;
    *c = (struct ltn_alert_content){0};
    e->ends_ns = 0;
    e->mark = a->mark;
    if (ltn_alert_digest(e->c.labels, strlen(e->c.labels), e->fingerprint,
                         sizeof(e->fingerprint)) != 0)
        e->fingerprint[0] = '\0';
    if (news)
        changed(a, e, now_ns);
    return e;
}

struct ltn_alert *ltn_alert_firing(struct ltn_alerts *a, const char *key)
{
    struct ltn_alert *e = find(a, key);
    return e != NULL && e->ends_ns == 0 ? e : NULL;
}

void ltn_alert_resolve(struct ltn_alerts *a, struct ltn_alert *e, uint64_t ends_ns, uint64_t now_ns)
{
    if (e->ends_ns != 0)
        return;
    if (ends_ns > now_ns)
        ends_ns = now_ns;
    /* An end before the beginning would be refused. */
    e->ends_ns = ends_ns > e->c.starts_ns ? ends_ns : e->c.starts_ns + LTN_NS_PER_MS;
    changed(a, e, now_ns);
}

void ltn_alert_sweep(struct ltn_alerts *a, uint64_t now_ns)
{
    size_t pos = 0, removed = 0;
    for (struct ltn_alert *e; (e = ltn_map_next(&a->table, &pos)) != NULL;) {
        if (e->ends_ns == 0 && e->mark != a->mark && now_ns >= e->hold_ns)
            ltn_alert_resolve(a, e, now_ns, now_ns);
        if (e->ends_ns == 0 || e->busy > 0 || removed >= MAX_REMOVED)
            continue;
        uint64_t keep_ns = !everybody_knows(a, e) ? GIVE_UP_NS : (e->remembered ? REMEMBER_NS : 0);
        if (now_ns < e->changed_ns + keep_ns)
            continue;
        a->stats.expired += everybody_knows(a, e) ? 0 : 1;
        remove_entry(a, e);
        removed++;
        pos = 0; /* the walk begins again after a removal */
    }
}

bool ltn_alert_due(const struct ltn_alerts *a, const struct ltn_alert_target *t,
                   const struct ltn_alert *e, uint64_t mono_ns, uint64_t *ret_at_ns)
{
    const struct ltn_alert_sent *s = &e->sent[t->index];
    *ret_at_ns = UINT64_MAX;
    if (!ltn_alert_known(e, t->index)) {
        *ret_at_ns = mono_ns;
        return true;
    }
    if (e->ends_ns != 0 || t->kind == LTN_ALERT_WEBHOOK)
        return false;
    *ret_at_ns = s->mono_ns + a->resend_ns;
    return *ret_at_ns <= mono_ns;
}
