/* SPDX-License-Identifier: Apache-2.0 */
/* Command line of the collector. Functions return the exit code of the program. */
#ifndef LTN_COLLECTOR_CLI_H
#define LTN_COLLECTOR_CLI_H

#include <stdbool.h>
#include <stdint.h>

#include "conf/conf.h"

struct ltn_collector_conf {
    struct ltn_conf_strings otlp_listen;
    char *api_listen;
    char *db;
    bool db_sync_full;
    uint64_t db_window_keep_ns;
    uint64_t db_history_keep_ns;
    uint64_t window_ns;
    int log_level;
    char *token_file;
    bool insecure_no_token;
    uint64_t max_nodes, max_processes, max_jobs, max_series, max_series_per_metric;
    uint64_t queue_bytes;
    double min_effect_pct;
};

extern const struct ltn_conf_table ltn_collector_conf_table;

/* True when the address ("127.0.0.1:4317", "[::1]:0", "localhost:1") cannot be reached from
 * elsewhere. */
bool ltn_collector_is_loopback(const char *address);

/* The service: runs until SIGTERM or SIGINT. */
int ltn_collector_run(const struct ltn_collector_conf *conf);

/* `lanterne-collector [flags]` and `lanterne-collector status [flags]`. */
int ltn_collector_main(int argc, char **argv);
int ltn_collector_status(int argc, char **argv);

#endif /* LTN_COLLECTOR_CLI_H */
