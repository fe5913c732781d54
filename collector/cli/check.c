/* SPDX-License-Identifier: Apache-2.0 */
/* What --check-config looks at beside the values themselves. */
#include "access/access.h"
#include "alert/alert.h"
#include "cli/cli.h"
#include "http/server.h"

int ltn_collector_check_addresses(const struct ltn_collector_conf *c, struct ltn_errinfo *info)
{
    int rc = ltn_http_address_check(c->api_listen, info);
    for (size_t i = 0; rc == 0 && i < c->otlp_listen.n; i++)
        rc = ltn_http_address_check(c->otlp_listen.items[i], info);
    return rc;
}

static int check_access_files(const struct ltn_collector_conf *c, struct ltn_errinfo *info)
{
    struct ltn_access *access = NULL;
    struct ltn_access_conf ac;
    ltn_collector_access_conf(c, &ac);
    int rc = ltn_access_new(&ac, &access, info);
    ltn_access_free(access);
    return rc;
}

static int check_alert_files(const struct ltn_collector_conf *c, struct ltn_errinfo *info)
{
    struct ltn_alerts *alerts = NULL;
    int rc = ltn_collector_make_alerts(&c->alert, &alerts, info);
    ltn_alerts_free(alerts);
    return rc;
}

int ltn_collector_check_files(const struct ltn_collector_conf *c, struct ltn_errinfo *info)
{
    int rc = check_access_files(c, info);
    return rc == 0 ? check_alert_files(c, info) : rc;
}
