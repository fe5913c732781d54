/* SPDX-License-Identifier: Apache-2.0 */
/* Command line of the collector. Functions return the exit code of the program. */
#ifndef LTN_COLLECTOR_CLI_H
#define LTN_COLLECTOR_CLI_H

#include <stdbool.h>
#include <stdint.h>

#include "cli/limits.h"
#include "conf/conf.h"

struct ltn_collector_conf {
    struct ltn_conf_strings otlp_listen;
    uint64_t otlp_workers; /* 0: by the processors */
    char *api_listen;
    char *db;
    bool db_sync_full;
    uint64_t db_window_keep_ns;
    uint64_t db_history_keep_ns;
    uint64_t db_log_keep_ns;
    uint64_t window_ns;
    int log_level;
    char *token_file;
    bool insecure_no_token;
    struct ltn_collector_tls_conf {
        char *cert_file, *key_file, *client_ca_file;
        int require_client_cert; /* enum ltn_access_client_cert */
        bool required;
        uint64_t handshakes_per_s;
        struct ltn_conf_strings allow_san;
    } tls;
    uint64_t max_nodes, max_processes, max_jobs, max_series, max_series_per_metric;
    uint64_t queue_bytes, log_bytes;
    double min_effect_pct;
    struct ltn_collector_limits limits;
    struct ltn_collector_alert_conf {
        struct ltn_conf_strings alertmanagers, webhooks;
        char *token_file, *webhook_secret_file, *ca_file, *external_url;
        int min_severity;
        uint64_t silent_after_ns, resend_ns, timeout_ns, max_alerts;
    } alert;
};

extern const struct ltn_conf_table ltn_collector_conf_table;

/* True when the address ("127.0.0.1:4317", "[::1]:0", "localhost:1") cannot be reached from
 * elsewhere. */
bool ltn_collector_is_loopback(const char *address);

/* Makes the alerts of the configuration, reading its files; the rest as ltn_alerts_new. In
 * alerts.c. */
struct ltn_alerts;
int ltn_collector_make_alerts(const struct ltn_collector_alert_conf *c, struct ltn_alerts **ret,
                              struct ltn_errinfo *info) ltn_must_check;
/* The rules about alert targets, so that --check-config knows them too. */
int ltn_collector_check_alerts(const struct ltn_collector_alert_conf *c,
                               struct ltn_errinfo *info) ltn_must_check;

/* Tokens and certificates as the configuration names them; the texts stay the configuration's. */
struct ltn_access_conf;
void ltn_collector_access_conf(const struct ltn_collector_conf *c, struct ltn_access_conf *ret);

/* Whether the addresses have a form that can be listened on. In check.c, as the next. */
int ltn_collector_check_addresses(const struct ltn_collector_conf *c,
                                  struct ltn_errinfo *info) ltn_must_check;
/* Whether the files that the configuration names (tokens, certificates, secrets) can be used. */
int ltn_collector_check_files(const struct ltn_collector_conf *c,
                              struct ltn_errinfo *info) ltn_must_check;

/* The service: runs until SIGTERM or SIGINT. */
int ltn_collector_run(const struct ltn_collector_conf *conf);

/* `lanterne-collector [flags]` and `lanterne-collector status [flags]`. */
int ltn_collector_main(int argc, char **argv);
int ltn_collector_status(int argc, char **argv);

#endif /* LTN_COLLECTOR_CLI_H */
