/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One target and its thread: takes what is due from the table, sends it, notes what became of it.
 * The lock is never held during a request. Redirects are not followed; logs name a target by scheme
 * and host only, because paths and credentials of webhooks are secrets.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "alert/internal.h"
#include "base/clock.h"
#include "base/log.h"

#define MAX_URL_BYTES      2048
#define MAX_BACKOFF_NS     (60 * LTN_NS_PER_S)
#define MAX_RETRY_AFTER_NS (300 * LTN_NS_PER_S)
#define IDLE_NS            (30 * LTN_NS_PER_S)
#define EXPIRE_RESENDS     4 /* a firing alert ends by itself after so many missed repeats */
#define ANSWER_BYTES       65536

/* ---- URLs ---- */

/* Host and port: from, len. False when it is no URL for a target. */
static bool split_url(const char *url, size_t *ret_scheme, size_t *ret_host, size_t *ret_end)
{
    size_t scheme = strncmp(url, "http://", 7) == 0 ? 7 : strncmp(url, "https://", 8) == 0 ? 8 : 0;
    size_t len = strnlen(url, MAX_URL_BYTES);
    if (scheme == 0 || len >= MAX_URL_BYTES)
        return false;
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)url[i] <= ' ' || (unsigned char)url[i] >= 127 || url[i] == '\\')
            return false;
    size_t end = scheme + strcspn(url + scheme, "/?#");
    size_t host = scheme;
    for (size_t i = scheme; i < end; i++)
        if (url[i] == '@')
            host = i + 1;
    *ret_scheme = scheme;
    *ret_host = host;
    *ret_end = end;
    return end > host && url[host] != ':' && strchr(url, '#') == NULL;
}

int ltn_alerts_check_url(const char *url, struct ltn_errinfo *info)
{
    size_t scheme, host, end;
    if (split_url(url, &scheme, &host, &end))
        return 0;
    return ltn_errinfo_set(info, LTN_ERR_CONFIG,
                           "not the URL of an alert target: it must be http://HOST... or "
                           "https://HOST..., without spaces and fragment");
}

static char *shown_url(const char *url)
{
    size_t scheme, host, end;
    char *text = NULL;
    if (!split_url(url, &scheme, &host, &end) ||
        asprintf(&text, "%.*s%.*s", (int)scheme, url, (int)(end - host), url + host) < 0)
        return NULL;
    return text;
}

static char *request_url(enum ltn_alert_kind kind, const char *url)
{
    char *text = NULL;
    size_t n = strlen(url);
    if (kind == LTN_ALERT_WEBHOOK)
        return strdup(url);
    while (n > 0 && url[n - 1] == '/')
        n--;
    return asprintf(&text, "%.*s/api/v2/alerts", (int)n, url) < 0 ? NULL : text;
}

int ltn_alert_target_init(struct ltn_alerts *a, enum ltn_alert_kind kind, const char *url,
                          struct ltn_errinfo *info)
{
    int rc = ltn_alerts_check_url(url, info);
    if (rc != 0)
        return rc;
    size_t nth = 0;
    for (size_t i = 0; i < a->target_count; i++)
        nth += a->targets[i].kind == kind ? 1 : 0;
    struct ltn_alert_target *t = &a->targets[a->target_count];
    *t = (struct ltn_alert_target){.owner = a, .index = a->target_count++, .kind = kind};
    (void)snprintf(t->stats.name, sizeof(t->stats.name), "%s-%zu",
                   kind == LTN_ALERT_WEBHOOK ? "webhook" : "alertmanager", nth);
    t->stats.up = true;
    t->url = request_url(kind, url);
    t->shown = shown_url(url);
    t->client = ltn_http_client_new();
    ltn_buf_init(&t->body, LTN_ALERT_BODY_BYTES * 4);
    if (t->url == NULL || t->shown == NULL || t->client == NULL)
        return -ENOMEM;
    return 0;
}

void ltn_alert_target_done(struct ltn_alert_target *t)
{
    free(t->url);
    free(t->shown);
    ltn_http_client_free(t->client);
    ltn_buf_done(&t->body);
}

/* ---- what became of a request ---- */

enum ltn_alert_outcome ltn_alert_outcome_of(int http_status)
{
    if (http_status >= 200 && http_status < 300)
        return LTN_ALERT_ACCEPTED;
    if (http_status == 0 || http_status == 408 || http_status == 429 || http_status >= 500)
        return LTN_ALERT_RETRY;
    return LTN_ALERT_REJECTED;
}

uint64_t ltn_alert_backoff_ns(unsigned failures, uint64_t retry_after_ns, double random)
{
    uint64_t wait = MAX_BACKOFF_NS;
    if (failures == 0)
        return 0;
    if (failures <= 6)
        wait = LTN_NS_PER_S << (failures - 1);
    wait = (uint64_t)((double)wait * (0.8 + 0.4 * random));
    wait = wait < MAX_BACKOFF_NS ? wait : MAX_BACKOFF_NS;
    if (retry_after_ns > MAX_RETRY_AFTER_NS)
        retry_after_ns = MAX_RETRY_AFTER_NS;
    return wait > retry_after_ns ? wait : retry_after_ns;
}

/* ---- the thread ---- */

struct parcel {
    struct ltn_alert *alerts[LTN_ALERT_BATCH];
    uint64_t versions[LTN_ALERT_BATCH];
    size_t n;
    char key[33]; /* webhook: idempotency key */
};

/* What goes next: for an Alertmanager as many as one request holds, for a webhook the one that
 * failed least often, then the one that waits longest. *ret_next_ns: when to look again. */
static void pick(const struct ltn_alert_target *t, uint64_t mono_ns, struct parcel *p,
                 uint64_t *ret_next_ns)
{
    const struct ltn_alerts *a = t->owner;
    size_t max = t->kind == LTN_ALERT_WEBHOOK ? 1 : LTN_ALERT_BATCH, pos = 0;
    p->n = 0;
    *ret_next_ns = mono_ns + IDLE_NS;
    for (struct ltn_alert *e; (e = ltn_map_next(&a->table, &pos)) != NULL;) {
        uint64_t at_ns;
        if (!ltn_alert_due(a, t, e, mono_ns, &at_ns)) {
            *ret_next_ns = at_ns < *ret_next_ns ? at_ns : *ret_next_ns;
            continue;
        }
        if (p->n < max) {
            p->alerts[p->n++] = e;
            continue;
        }
        const struct ltn_alert_sent *s = &e->sent[t->index], *best = &p->alerts[0]->sent[t->index];
        if (max == 1 && (s->tries < best->tries ||
                         (s->tries == best->tries && e->changed_ns < p->alerts[0]->changed_ns)))
            p->alerts[0] = e;
    }
}

/* Writes the body; from here on the alerts of the parcel are not freed. */
static int pack(struct ltn_alert_target *t, struct parcel *p)
{
    const struct ltn_alerts *a = t->owner;
    ltn_buf_reset(&t->body);
    if (t->kind == LTN_ALERT_WEBHOOK)
        ltn_alert_render_webhook(&t->body, p->alerts[0], a->external_url);
    else
        ltn_alert_render_v2(&t->body, p->alerts, p->n, ltn_now_unix_ns(),
                            EXPIRE_RESENDS * a->resend_ns);
    int rc = ltn_buf_error(&t->body);
    if (rc == 0 && t->kind == LTN_ALERT_WEBHOOK)
        rc = ltn_alert_digest(t->body.data, t->body.len, p->key, sizeof(p->key));
    for (size_t i = 0; rc == 0 && i < p->n; i++) {
        p->versions[i] = p->alerts[i]->version;
        p->alerts[i]->busy++;
        p->alerts[i]->sent[t->index].attempted = true;
    }
    return rc;
}

/* Without the lock. *ret_status is 0 when there was no answer. */
static void send_parcel(struct ltn_alert_target *t, const struct parcel *p, int *ret_status,
                        struct ltn_http_result *ret)
{
    const struct ltn_alerts *a = t->owner;
    char headers[3][128], hex[LTN_ALERT_HEX_BYTES];
    const char *lines[4] = {NULL};
    uint64_t now_s = ltn_now_unix_ns() / LTN_NS_PER_S;
    struct ltn_http_call call = {.url = t->url,
                                 .body = t->body.data,
                                 .body_len = t->body.len,
                                 .content_type = "application/json",
                                 .timeout_ns = a->timeout_ns,
                                 .max_response_bytes = ANSWER_BYTES,
                                 .ca_file = a->ca_file[0] != '\0' ? a->ca_file : NULL,
                                 .headers = lines};
    int rc = 0;
    if (t->kind == LTN_ALERT_WEBHOOK) {
        (void)snprintf(headers[0], sizeof(headers[0]), "Idempotency-Key: %s", p->key);
        lines[0] = headers[0];
        if (a->secret[0] != '\0') {
            rc = ltn_alert_sign(a->secret, now_s, t->body.data, t->body.len, hex);
            (void)snprintf(headers[1], sizeof(headers[1]), "X-Lanterne-Timestamp: %llu",
                           (unsigned long long)now_s);
            (void)snprintf(headers[2], sizeof(headers[2]), "X-Lanterne-Signature: sha256=%s",
                           rc == 0 ? hex : "");
            lines[1] = headers[1];
            lines[2] = headers[2];
        }
    } else if (a->token[0] != '\0') {
        call.bearer_token = a->token;
    }
    *ret = (struct ltn_http_result){0};
    if (rc == 0)
        rc = ltn_http_client_call(t->client, &call, ret);
    *ret_status = ret->status;
    if (rc != 0 && ret->status == 0 && ret->error[0] == '\0')
        (void)snprintf(ret->error, sizeof(ret->error), "%s", ltn_err_str(rc));
}

static void say(struct ltn_alert_target *t, enum ltn_alert_outcome o, int status,
                const struct ltn_http_result *r)
{
    if (o == LTN_ALERT_ACCEPTED) {
        if (t->said_down)
            ltn_log_info("alerts: %s at %s answers again", t->stats.name, t->shown);
        t->said_down = false;
        return;
    }
    if (o == LTN_ALERT_REJECTED) {
        ltn_log_error("alerts: %s at %s refused an alert with HTTP %d%s", t->stats.name, t->shown,
                      status, status / 100 == 3 ? " (redirects are not followed)" : "");
        return;
    }
    if (t->said_down)
        return;
    t->said_down = true;
    if (status != 0)
        ltn_log_warn("alerts: %s at %s answered HTTP %d, trying again", t->stats.name, t->shown,
                     status);
    else
        ltn_log_warn("alerts: %s at %s did not answer, trying again", t->stats.name, t->shown);
    ltn_log_debug("alerts: %s: %s", t->stats.name, r->error);
}

/* Notes the outcome; with the lock. */
static void settle(struct ltn_alert_target *t, struct parcel *p, enum ltn_alert_outcome o,
                   uint64_t retry_after_ns)
{
    struct ltn_alerts *a = t->owner;
    uint64_t now = ltn_now_mono_ns();
    struct timespec ts = {0};
    (void)clock_gettime(CLOCK_MONOTONIC, &ts);
    t->failures = o == LTN_ALERT_RETRY ? t->failures + 1 : 0;
    t->not_before_ns =
        now + ltn_alert_backoff_ns(t->failures, retry_after_ns, (double)(ts.tv_nsec % 1000) / 1000);
    t->stats.up = o == LTN_ALERT_ACCEPTED;
    t->stats.accepted += o == LTN_ALERT_ACCEPTED ? 1 : 0;
    t->stats.retried += o == LTN_ALERT_RETRY ? 1 : 0;
    t->stats.rejected += o == LTN_ALERT_REJECTED ? 1 : 0;
    for (size_t i = 0; i < p->n; i++) {
        struct ltn_alert *e = p->alerts[i];
        struct ltn_alert_sent *s = &e->sent[t->index];
        e->busy--;
        if (o == LTN_ALERT_RETRY) {
            s->tries++;
        } else {
            s->version = p->versions[i];
            s->mono_ns = now;
            s->tries = 0;
        }
        ltn_alert_drop_if_done(a, e);
    }
}

static void wait_until_mono(struct ltn_alerts *a, uint64_t at_ns)
{
    struct timespec ts = {.tv_sec = (time_t)(at_ns / LTN_NS_PER_S),
                          .tv_nsec = (long)(at_ns % LTN_NS_PER_S)};
    (void)pthread_cond_timedwait(&a->wake, &a->lock, &ts);
}

void *ltn_alert_target_main(void *arg)
{
    struct ltn_alert_target *t = arg;
    struct ltn_alerts *a = t->owner;
    (void)pthread_mutex_lock(&a->lock);
    while (!a->stop) {
        struct parcel p;
        struct ltn_http_result r;
        uint64_t now = ltn_now_mono_ns(), next_ns;
        int status = 0;
        if (now < t->not_before_ns) {
            wait_until_mono(a, t->not_before_ns);
            continue;
        }
        pick(t, now, &p, &next_ns);
        if (p.n == 0) {
            wait_until_mono(a, next_ns);
            continue;
        }
        if (pack(t, &p) != 0) {
            t->failures++;
            t->not_before_ns = now + ltn_alert_backoff_ns(t->failures, 0, 0.5);
            continue;
        }
        (void)pthread_mutex_unlock(&a->lock);
        send_parcel(t, &p, &status, &r);
        enum ltn_alert_outcome o = ltn_alert_outcome_of(status);
        say(t, o, status, &r);
        (void)pthread_mutex_lock(&a->lock);
        settle(t, &p, o, r.retry_after_ns);
    }
    (void)pthread_mutex_unlock(&a->lock);
    return NULL;
}
