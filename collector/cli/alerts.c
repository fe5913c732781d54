/* SPDX-License-Identifier: Apache-2.0 */
/* Alert targets from the configuration. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "alert/alert.h"
#include "cli/cli.h"

#define URL_BYTES    2048
#define SECRET_BYTES 1024

/* OTLP severity numbers of the names in conf.c. */
static const int32_t severity_numbers[] = {9, 13, 17, 21};

static int check_urls(const struct ltn_conf_strings *urls, const char *key,
                      struct ltn_errinfo *info)
{
    for (size_t i = 0; i < urls->n; i++) {
        struct ltn_errinfo why = {0, ""};
        if (urls->items[i][0] == '@')
            continue; /* read at the start */
        int rc = ltn_alerts_check_url(urls->items[i], &why);
        if (rc != 0)
            return ltn_errinfo_set(info, rc, "%s, entry %zu: %s", key, i + 1, why.msg);
    }
    return 0;
}

int ltn_collector_check_alerts(const struct ltn_collector_alert_conf *c, struct ltn_errinfo *info)
{
    if (c->alertmanagers.n + c->webhooks.n > LTN_ALERT_TARGETS)
        return ltn_errinfo_set(info, LTN_ERR_CONFIG,
                               "alert.alertmanager and alert.webhook: more than %d targets",
                               LTN_ALERT_TARGETS);
    int rc = check_urls(&c->alertmanagers, "alert.alertmanager", info);
    if (rc == 0)
        rc = check_urls(&c->webhooks, "alert.webhook", info);
    if (rc == 0 && c->external_url[0] != '\0' && ltn_alerts_check_url(c->external_url, NULL) != 0)
        rc = ltn_errinfo_set(info, LTN_ERR_CONFIG,
                             "alert.external_url must be http://HOST... or https://HOST...");
    return rc;
}

/* The URLs with those of files put in; free with free_urls. */
static int read_urls(const struct ltn_conf_strings *from, struct ltn_conf_strings *to,
                     struct ltn_errinfo *info)
{
    char url[URL_BYTES];
    to->items = calloc(from->n + 1, sizeof(char *));
    if (to->items == NULL)
        return -ENOMEM;
    for (; to->n < from->n; to->n++) {
        const char *item = from->items[to->n];
        if (item[0] == '@') {
            int rc = ltn_conf_read_secret(item + 1, url, sizeof(url), info);
            if (rc != 0)
                return rc;
            item = url;
        }
        to->items[to->n] = strdup(item);
        if (to->items[to->n] == NULL)
            return -ENOMEM;
    }
    return 0;
}

static void free_urls(struct ltn_conf_strings *urls)
{
    for (size_t i = 0; i < urls->n; i++)
        free(urls->items[i]);
    free(urls->items);
}

static int read_optional(const char *path, char *out, struct ltn_errinfo *info)
{
    out[0] = '\0';
    return path[0] != '\0' ? ltn_conf_read_secret(path, out, SECRET_BYTES, info) : 0;
}

int ltn_collector_make_alerts(const struct ltn_collector_alert_conf *c, struct ltn_alerts **ret,
                              struct ltn_errinfo *info)
{
    char token[SECRET_BYTES], secret[SECRET_BYTES];
    struct ltn_conf_strings alertmanagers = {0}, webhooks = {0};
    int rc = read_optional(c->token_file, token, info);
    if (rc == 0)
        rc = read_optional(c->webhook_secret_file, secret, info);
    if (rc == 0)
        rc = read_urls(&c->alertmanagers, &alertmanagers, info);
    if (rc == 0)
        rc = read_urls(&c->webhooks, &webhooks, info);
    if (rc == 0) {
        struct ltn_alerts_opts o = {.alertmanagers = alertmanagers.items,
                                    .alertmanager_count = alertmanagers.n,
                                    .webhooks = webhooks.items,
                                    .webhook_count = webhooks.n,
                                    .bearer_token = token,
                                    .webhook_secret = secret,
                                    .ca_file = c->ca_file,
                                    .external_url = c->external_url,
                                    .min_severity = severity_numbers[c->min_severity],
                                    .silent_after_ns = c->silent_after_ns,
                                    .resend_ns = c->resend_ns,
                                    .timeout_ns = c->timeout_ns,
                                    .max_alerts = c->max_alerts};
        rc = ltn_alerts_new(&o, ret, info);
    }
    free_urls(&alertmanagers);
    free_urls(&webhooks);
    explicit_bzero(token, sizeof(token));
    explicit_bzero(secret, sizeof(secret));
    return rc;
}
