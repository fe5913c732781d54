/* SPDX-License-Identifier: Apache-2.0 */
/* Making and taking down, and what the loop says. */
#include "alert/alert.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "alert/internal.h"

/* Ends that came so shortly before the start that a target may not have heard of them. */
#define LATE_END_NS (900 * LTN_NS_PER_S)
/* An incident that is over when it is first looked at still fires for so long, that a person hears
 * of it. */
#define SHORT_NS (60 * LTN_NS_PER_S)

static void key_of(char key[LTN_ALERT_KEY_BYTES], char kind, const char *x, const char *y)
{
    (void)snprintf(key, LTN_ALERT_KEY_BYTES, "%c\x1f%s\x1f%s", kind, x, y);
}

/* A node that was silent for so long is taken for removed. */
#define GONE_NS (86400 * LTN_NS_PER_S)

/* ---- verdicts ---- */

static void put_verdict(struct ltn_alerts *a, const struct ltn_straggler_verdict *v, bool earlier,
                        uint64_t now_ns)
{
    char key[LTN_ALERT_KEY_BYTES];
    struct ltn_alert_content c;
    key_of(key, 'v', v->job, v->key);
    if (ltn_alert_from_verdict(a->external_url, v, &c) != 0) {
        a->stats.refused++;
        return;
    }
    struct ltn_alert *e = ltn_alert_put(a, key, &c, now_ns);
    if (e == NULL)
        return;
    e->earlier |= earlier;
    if (v->closed_at_ns != 0)
        ltn_alert_resolve(a, e, v->closed_at_ns, now_ns);
}

void ltn_alerts_verdict(struct ltn_alerts *a, enum ltn_straggler_change change,
                        const struct ltn_straggler_verdict *v, uint64_t now_ns)
{
    char key[LTN_ALERT_KEY_BYTES];
    if (a == NULL)
        return;
    key_of(key, 'v', v->job, v->key);
    (void)pthread_mutex_lock(&a->lock);
    struct ltn_alert *e = ltn_alert_firing(a, key);
    if (change != LTN_VERDICT_CLOSED || e != NULL) /* the end says what it cost in all */
        put_verdict(a, v, false, now_ns);
    (void)pthread_mutex_unlock(&a->lock);
}

static void sync_verdicts(struct ltn_alerts *a, const struct ltn_fleet *f, bool first,
                          uint64_t now_ns)
{
    char key[LTN_ALERT_KEY_BYTES];
    size_t pos = 0;
    for (size_t i = 0; first; i++) { /* ends that may not have been told */
        const struct ltn_fleet_verdict *o = ltn_fleet_closed(f, i);
        if (o == NULL)
            break;
        key_of(key, 'v', o->v.job, o->v.key);
        if (o->v.closed_at_ns + LATE_END_NS > now_ns && ltn_map_get_str(&a->table, key) == NULL)
            put_verdict(a, &o->v, true, now_ns);
    }
    for (const struct ltn_fleet_verdict *o; (o = ltn_map_next(&f->open, &pos)) != NULL;) {
        key_of(key, 'v', o->v.job, o->v.key);
        struct ltn_alert *e = ltn_alert_firing(a, key);
        if (e == NULL)
            put_verdict(a, &o->v, first, now_ns);
        else
            e->mark = a->mark;
    }
}

/* ---- incidents ---- */

static void sync_incident(struct ltn_alerts *a, const struct ltn_fleet_incident *i, bool first,
                          uint64_t now_ns)
{
    char key[LTN_ALERT_KEY_BYTES];
    struct ltn_alert_content c;
    bool open = i->closed_at_ns == 0;
    if (i->severity_number < a->min_severity)
        return;
    if (!open && (i->closed_at_ns + 2 * SHORT_NS < now_ns || i->closed_at_ns > now_ns + SHORT_NS))
        return; /* old news, or a clock that is far off */
    key_of(key, 'i', i->node, i->id);
    struct ltn_alert *e = ltn_map_get_str(&a->table, key);
    if (e != NULL && (e->stamp == i->last_change_ns || !open)) {
        if (open && e->ends_ns == 0)
            e->mark = a->mark;
        return; /* one that has closed is resolved by the sweep */
    }
    if (ltn_alert_from_incident(a->external_url, i, &c) != 0) {
        a->stats.refused++;
        return;
    }
    e = ltn_alert_put(a, key, &c, now_ns);
    if (e == NULL)
        return;
    e->stamp = i->last_change_ns;
    e->remembered = true;
    e->earlier |= first;
    if (!open)
        e->hold_ns = now_ns + SHORT_NS;
}

/* ---- nodes ---- */

static void sync_node(struct ltn_alerts *a, const struct ltn_fleet_node *n, uint64_t after_ns,
                      uint64_t now_ns)
{
    char key[LTN_ALERT_KEY_BYTES];
    struct ltn_alert_content c;
    if (now_ns < n->last_seen_ns + after_ns || now_ns > n->last_seen_ns + GONE_NS)
        return;
    key_of(key, 'n', n->name, "");
    struct ltn_alert *e = ltn_alert_firing(a, key);
    if (e != NULL) {
        e->mark = a->mark;
        return;
    }
    if (ltn_alert_from_node(a->external_url, n, &c) != 0)
        a->stats.refused++;
    else
        (void)ltn_alert_put(a, key, &c, now_ns);
}

void ltn_alerts_sync(struct ltn_alerts *a, const struct ltn_fleet *f, uint64_t now_ns)
{
    if (a == NULL)
        return;
    (void)pthread_mutex_lock(&a->lock);
    bool first = a->mark++ == 0;
    size_t pos = 0;
    sync_verdicts(a, f, first, now_ns);
    for (const struct ltn_fleet_incident *i; (i = ltn_map_next(&f->incidents, &pos)) != NULL;)
        sync_incident(a, i, first, now_ns);
    /* Agents push once per window: less than three missing is no silence. */
    uint64_t after_ns = 3 * f->opts.window_ns;
    after_ns = a->silent_after_ns > after_ns ? a->silent_after_ns : after_ns;
    pos = 0;
    for (const struct ltn_fleet_node *n;
         a->silent_after_ns != 0 && (n = ltn_map_next(&f->nodes, &pos)) != NULL;)
        sync_node(a, n, after_ns, now_ns);
    ltn_alert_sweep(a, now_ns);
    (void)pthread_mutex_unlock(&a->lock);
}

/* ---- counters ---- */

void ltn_alerts_stats(struct ltn_alerts *a, struct ltn_alerts_stats *ret)
{
    *ret = (struct ltn_alerts_stats){0};
    if (a == NULL)
        return;
    (void)pthread_mutex_lock(&a->lock);
    *ret = a->stats;
    ret->target_count = a->target_count;
    for (size_t i = 0; i < a->target_count; i++)
        ret->targets[i] = a->targets[i].stats;
    size_t pos = 0;
    for (const struct ltn_alert *e; (e = ltn_map_next(&a->table, &pos)) != NULL;) {
        *(e->ends_ns == 0 ? &ret->firing : &ret->resolved) += 1;
        for (size_t i = 0; i < a->target_count; i++)
            ret->targets[i].waiting += ltn_alert_known(e, i) ? 0 : 1;
    }
    (void)pthread_mutex_unlock(&a->lock);
}

/* ---- making ---- */

static int copy_text(char **to, const char *from)
{
    *to = strdup(from != NULL ? from : "");
    return *to != NULL ? 0 : -ENOMEM;
}

static int init_lock(struct ltn_alerts *a)
{
    pthread_condattr_t attr;
    (void)pthread_mutex_init(&a->lock, NULL);
    int rc = pthread_condattr_init(&attr);
    if (rc == 0)
        rc = pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    if (rc == 0)
        rc = pthread_cond_init(&a->wake, &attr);
    (void)pthread_condattr_destroy(&attr);
    return -rc;
}

static int init_targets(struct ltn_alerts *a, const struct ltn_alerts_opts *o,
                        struct ltn_errinfo *info)
{
    if (o->alertmanager_count + o->webhook_count > LTN_ALERT_TARGETS)
        return ltn_errinfo_set(info, LTN_ERR_CONFIG, "more than %d alert targets",
                               LTN_ALERT_TARGETS);
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < o->alertmanager_count; i++)
        rc = ltn_alert_target_init(a, LTN_ALERT_ALERTMANAGER, o->alertmanagers[i], info);
    for (size_t i = 0; rc == 0 && i < o->webhook_count; i++)
        rc = ltn_alert_target_init(a, LTN_ALERT_WEBHOOK, o->webhooks[i], info);
    return rc;
}

static int start_threads(struct ltn_alerts *a)
{
    for (size_t i = 0; i < a->target_count; i++) {
        struct ltn_alert_target *t = &a->targets[i];
        int rc = pthread_create(&t->thread, NULL, ltn_alert_target_main, t);
        if (rc != 0)
            return -rc;
        t->started = true;
    }
    return 0;
}

int ltn_alerts_new(const struct ltn_alerts_opts *o, struct ltn_alerts **ret,
                   struct ltn_errinfo *info)
{
    if (o->alertmanager_count + o->webhook_count == 0) {
        *ret = NULL;
        return 0;
    }
    struct ltn_alerts *a = calloc(1, sizeof(*a));
    if (a == NULL)
        return ltn_errinfo_set(info, -ENOMEM, "out of memory");
    int rc = init_lock(a);
    if (rc != 0) {
        free(a);
        return ltn_errinfo_set(info, rc, "alerts: %s", ltn_err_str(rc));
    }
    ltn_map_init(&a->table, o->max_alerts);
    a->min_severity = o->min_severity;
    a->silent_after_ns = o->silent_after_ns;
    a->resend_ns = o->resend_ns;
    a->timeout_ns = o->timeout_ns;
    rc = copy_text(&a->token, o->bearer_token);
    rc = rc != 0 ? rc : copy_text(&a->secret, o->webhook_secret);
    rc = rc != 0 ? rc : copy_text(&a->ca_file, o->ca_file);
    rc = rc != 0 ? rc : copy_text(&a->external_url, o->external_url);
    rc = rc != 0 ? rc : init_targets(a, o, info);
    rc = rc != 0 ? rc : start_threads(a);
    if (rc != 0) {
        ltn_alerts_free(a);
        if (info != NULL && info->msg[0] == '\0')
            (void)ltn_errinfo_set(info, rc, "alerts: %s", ltn_err_str(rc));
        return rc;
    }
    *ret = a;
    return 0;
}

static void free_entry(void *p)
{
    struct ltn_alert *e = p;
    ltn_alert_content_done(&e->c);
    free(e);
}

void ltn_alerts_free(struct ltn_alerts *a)
{
    if (a == NULL)
        return;
    (void)pthread_mutex_lock(&a->lock);
    a->stop = true;
    (void)pthread_cond_broadcast(&a->wake);
    (void)pthread_mutex_unlock(&a->lock);
    for (size_t i = 0; i < a->target_count; i++)
        if (a->targets[i].started)
            (void)pthread_join(a->targets[i].thread, NULL);
    for (size_t i = 0; i < a->target_count; i++)
        ltn_alert_target_done(&a->targets[i]);
    ltn_map_done(&a->table, free_entry);
    free(a->token);
    free(a->secret);
    free(a->ca_file);
    free(a->external_url);
    (void)pthread_cond_destroy(&a->wake);
    (void)pthread_mutex_destroy(&a->lock);
    free(a);
}
