/* SPDX-License-Identifier: Apache-2.0 */
/* The table, its entries and the targets. Everything in struct ltn_alerts is under its lock but
 * what is marked as fixed. */
#ifndef LTN_ALERT_INTERNAL_H
#define LTN_ALERT_INTERNAL_H

#include <pthread.h>

#include "alert/alert.h"
#include "base/buf.h"
#include "base/map.h"
#include "http/client.h"

#define LTN_ALERT_KEY_BYTES   640
#define LTN_ALERT_BATCH       64 /* alerts of one request to an Alertmanager */
#define LTN_ALERT_BODY_BYTES  ((size_t)1 << 20)
#define LTN_ALERT_FINGERPRINT 17

enum ltn_alert_kind { LTN_ALERT_ALERTMANAGER, LTN_ALERT_WEBHOOK };

/* What an alert says, ready to be put into a body. All owned. */
struct ltn_alert_content {
    char *labels;       /* JSON object; the identity for Alertmanagers */
    char *annotations;  /* JSON object */
    char *group_labels; /* JSON object, part of labels */
    char *group_key;    /* text */
    char *url;          /* "" for none */
    uint64_t starts_ns;
};
void ltn_alert_content_done(struct ltn_alert_content *c);

struct ltn_alert {
    char key[LTN_ALERT_KEY_BYTES];
    struct ltn_alert_content c;
    char fingerprint[LTN_ALERT_FINGERPRINT]; /* of the labels */
    uint64_t ends_ns;                        /* 0 while firing */
    uint64_t stamp;      /* of what it was made from: unchanged, not made again */
    uint64_t mark;       /* sync that saw its reason last */
    uint64_t hold_ns;    /* not resolved by a sync before this */
    uint64_t changed_ns; /* Unix time of the newest version */
    uint64_t version;
    bool earlier;    /* from before the start: targets may know it */
    bool remembered; /* kept for a while after its end, so that it is not made anew */
    unsigned busy;   /* requests under way that carry it */
    struct ltn_alert_sent {
        uint64_t version; /* the target has; 0: none */
        uint64_t mono_ns; /* when */
        uint32_t tries;   /* since the last success */
        bool attempted;   /* the target may know it */
    } sent[LTN_ALERT_TARGETS];
};

struct ltn_alert_target {
    struct ltn_alerts *owner;
    size_t index;
    enum ltn_alert_kind kind; /* fixed, as are url and shown */
    char *url;                /* where the requests go */
    char *shown;              /* the same without path and credentials, for logs */
    struct ltn_http_client *client;
    struct ltn_buf body;
    pthread_t thread;
    bool started;
    bool said_down;
    unsigned failures; /* in a row */
    uint64_t not_before_ns;
    struct ltn_alert_target_stats stats;
};

struct ltn_alerts {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool stop;
    struct ltn_map table; /* key -> struct ltn_alert */
    uint64_t mark;
    struct ltn_alerts_stats stats; /* targets: see the targets */
    struct ltn_alert_target targets[LTN_ALERT_TARGETS];
    size_t target_count;
    /* fixed */
    char *token, *secret, *ca_file, *external_url;
    int32_t min_severity;
    uint64_t silent_after_ns, resend_ns, timeout_ns;
};

/* table.c; with the lock held */

/* Takes the content (freed also on failure). An alert under that key with the same labels is
 * updated, one with others is resolved and a new one begun. NULL without room. */
struct ltn_alert *ltn_alert_put(struct ltn_alerts *a, const char *key, struct ltn_alert_content *c,
                                uint64_t now_ns);
/* The alert under the key if it fires, else NULL. */
struct ltn_alert *ltn_alert_firing(struct ltn_alerts *a, const char *key);
void ltn_alert_resolve(struct ltn_alerts *a, struct ltn_alert *e, uint64_t ends_ns,
                       uint64_t now_ns);
/* Resolves what the newest sync did not see, forgets what is delivered. */
void ltn_alert_sweep(struct ltn_alerts *a, uint64_t now_ns);
/* True when the target needs the alert now or (*ret_at_ns, monotonic) later; UINT64_MAX: never. */
bool ltn_alert_due(const struct ltn_alerts *a, const struct ltn_alert_target *t,
                   const struct ltn_alert *e, uint64_t mono_ns, uint64_t *ret_at_ns);
/* The target needs no word about it: it has the newest state, or never heard of an alert that is
 * over. */
bool ltn_alert_known(const struct ltn_alert *e, size_t target);
/* Frees it when it is resolved and every target knows. */
void ltn_alert_drop_if_done(struct ltn_alerts *a, struct ltn_alert *e);

/* event.c: content from what the fleet knows. 0 or -ENOMEM, LTN_ERR_TOO_LARGE. */
int ltn_alert_from_verdict(const char *external_url, const struct ltn_straggler_verdict *v,
                           struct ltn_alert_content *ret) ltn_must_check;
int ltn_alert_from_incident(const char *external_url, const struct ltn_fleet_incident *i,
                            struct ltn_alert_content *ret) ltn_must_check;
int ltn_alert_from_node(const char *external_url, const struct ltn_fleet_node *n,
                        struct ltn_alert_content *ret) ltn_must_check;

/* render.c: failures stick in out. */

/* [alert, ...] for POST /api/v2/alerts; expire_ns is how long a firing one holds unrepeated. */
void ltn_alert_render_v2(struct ltn_buf *out, struct ltn_alert *const *alerts, size_t n,
                         uint64_t now_ns, uint64_t expire_ns);
/* Webhook body of version 4 with one alert. The same alert gives the same bytes. */
void ltn_alert_render_webhook(struct ltn_buf *out, const struct ltn_alert *e,
                              const char *external_url);

/* sign.c: lower-case hex of SHA-256, cut to hex_bytes - 1 digits; HMAC likewise. 0 or
 * LTN_ERR_INTERNAL. */
#define LTN_ALERT_HEX_BYTES 65
int ltn_alert_digest(const void *data, size_t n, char *ret_hex, size_t hex_bytes) ltn_must_check;
/* Of "TIMESTAMP.BODY". */
int ltn_alert_sign(const char *secret, uint64_t unix_s, const void *body, size_t n,
                   char ret_hex[LTN_ALERT_HEX_BYTES]) ltn_must_check;

/* target.c */
enum ltn_alert_outcome { LTN_ALERT_ACCEPTED, LTN_ALERT_RETRY, LTN_ALERT_REJECTED };
enum ltn_alert_outcome ltn_alert_outcome_of(int http_status);
/* How long to wait after the given number of failures in a row; random is 0..1. */
uint64_t ltn_alert_backoff_ns(unsigned failures, uint64_t retry_after_ns, double random);
int ltn_alert_target_init(struct ltn_alerts *a, enum ltn_alert_kind kind, const char *url,
                          struct ltn_errinfo *info) ltn_must_check;
void ltn_alert_target_done(struct ltn_alert_target *t);
void *ltn_alert_target_main(void *arg);

#endif /* LTN_ALERT_INTERNAL_H */
