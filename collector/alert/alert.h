/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Alerts about stragglers, incidents and silent nodes, delivered to Alertmanagers and webhooks. The
 * collector's loop says what holds now; a bounded table keeps the newest state of each alert, and
 * one thread per target brings it there. Neither a full table nor a dead target ever makes the loop
 * wait. docs/alerts.md describes what is sent.
 */
#ifndef LTN_ALERT_ALERT_H
#define LTN_ALERT_ALERT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/attr.h"
#include "base/err.h"
#include "fleet/fleet.h"

#define LTN_ALERT_TARGETS      16 /* of both kinds together */
#define LTN_ALERT_TARGET_BYTES 32

struct ltn_alerts;

struct ltn_alerts_opts {
    char *const *alertmanagers; /* base URLs: http://host:9093 */
    size_t alertmanager_count;
    char *const *webhooks; /* URLs */
    size_t webhook_count;
    const char *bearer_token;   /* shown to Alertmanagers; "" for none */
    const char *webhook_secret; /* key of the signature; "" for none */
    const char *ca_file;        /* "" for the system's */
    const char *external_url;   /* where people reach this collector; "" for no links */
    int32_t min_severity;       /* OTLP severity number an incident must have */
    uint64_t silent_after_ns;   /* a node is silent after this; 0: never */
    uint64_t resend_ns;         /* how often a firing alert goes to Alertmanagers */
    uint64_t timeout_ns;        /* of a request */
    size_t max_alerts;
};

/* 0 when the text is an http or https URL that can be a target, LTN_ERR_CONFIG with the reason
 * (which does not repeat the URL's path or credentials). */
int ltn_alerts_check_url(const char *url, struct ltn_errinfo *info) ltn_must_check;

/* Makes the table and starts the threads; texts are copied. *ret is NULL and the result 0 when
 * there is no target. LTN_ERR_CONFIG, -ENOMEM, -errno. Free with ltn_alerts_free. */
int ltn_alerts_new(const struct ltn_alerts_opts *opts, struct ltn_alerts **ret,
                   struct ltn_errinfo *info) ltn_must_check;

/* Ends the threads (a request under way is waited for, at most its timeout) and frees. What was
 * not delivered is dropped: open alerts come again after the next start. NULL is ignored. */
void ltn_alerts_free(struct ltn_alerts *a);

/* A verdict was opened, changed notably or closed. Loop thread; a may be NULL. */
void ltn_alerts_verdict(struct ltn_alerts *a, enum ltn_straggler_change change,
                        const struct ltn_straggler_verdict *v, uint64_t now_ns);

/* Compares with the fleet: open verdicts (also those of an earlier run), incidents, silent nodes.
 * Alerts whose reason is gone are resolved. About once a second; loop thread; a may be NULL. */
void ltn_alerts_sync(struct ltn_alerts *a, const struct ltn_fleet *f, uint64_t now_ns);

struct ltn_alert_target_stats {
    char name[LTN_ALERT_TARGET_BYTES]; /* "alertmanager-0", "webhook-1" */
    uint64_t accepted;                 /* requests answered with 2xx */
    uint64_t retried;                  /* no answer, 5xx, 429: tried again later */
    uint64_t rejected;                 /* another answer: not tried again */
    uint64_t waiting;                  /* alerts it does not have the newest state of */
    bool up;                           /* the last request, if any, was accepted */
};

struct ltn_alerts_stats {
    size_t firing, resolved; /* in the table */
    uint64_t refused;        /* new alerts without room in the table */
    uint64_t evicted;        /* resolved ones, not delivered everywhere, that made room */
    uint64_t expired;        /* resolved ones given up after a day */
    size_t target_count;
    struct ltn_alert_target_stats targets[LTN_ALERT_TARGETS];
};

/* Any thread; all zero when a is NULL. */
void ltn_alerts_stats(struct ltn_alerts *a, struct ltn_alerts_stats *ret);

#endif /* LTN_ALERT_ALERT_H */
