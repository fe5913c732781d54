/* SPDX-License-Identifier: Apache-2.0 */
/* Options that the capturing subcommands share: one table for file, environment and flags. One
 * thread at a time. */
#ifndef LTN_CLI_OPTIONS_H
#define LTN_CLI_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "conf/conf.h"
#include "engine/engine.h"

struct ltn_agent_options {
    char *node;
    char *cluster;
    char *collector;
    char *token_file;
    char *collector_ca_file, *collector_cert_file, *collector_key_file, *collector_server_name;
    char *db;
    char *user;
    char *cgroup;
    char *listen; /* "auto": what the subcommand does when nothing is said */
    char *api_token_file, *api_cert_file, *api_key_file;
    char *support_bundle; /* check */
    struct ltn_conf_strings pids;
    struct ltn_conf_strings cuda_libs;
    uint64_t window_ns;
    uint64_t duration_ns;
    uint64_t ring_bytes;
    uint64_t sampling_rate;
    double budget_pct;
    uint64_t max_db_bytes;
    bool record;
    bool record_all;
    bool io; /* host families */
    bool tcp;
    bool net;
    bool files;
    bool files_by_syscall;
    bool memory;
    uint64_t open_slow_ns;
    double deadband_percent;
    uint64_t heartbeat_ns;
    bool stack;
    int py_walker; /* enum ltn_py_walker */
    bool incidents;
    uint64_t incident_hang_ns;
    double incident_excess;
    bool json;
    bool verbose;
    int attach;    /* index into ltn_attach_names */
    int log_level; /* enum ltn_log_level */
};

/* "auto", "session", "multi", "perf". */
extern const char *const ltn_attach_names[];

extern const struct ltn_conf_table ltn_agent_table;

/* Host families (LTN_HOST_*) that are switched off. */
uint32_t ltn_agent_host_off(const struct ltn_agent_options *o);

/* Turns options into what the engine wants; pointers into o are kept. 0 or LTN_ERR_CONFIG with a
 * message. */
int ltn_agent_engine_opts(const struct ltn_agent_options *o, struct ltn_engine_opts *ret,
                          struct ltn_errinfo *info) ltn_must_check;

/* Who asked: SUDO_UID and SUDO_GID when started under sudo, else the process's own ids. */
struct ltn_invoker {
    unsigned uid;
    unsigned gid;
    bool sudo;
    char home[512]; /* "" when unknown */
};
void ltn_invoker_find(struct ltn_invoker *ret);

/* Loads everything for subcommand argv[0]; handles --help, --dump-config and --check-config itself.
 * Returns -1 to go on, or the exit code to leave with. *o must be freed with
 * ltn_conf_done(&ltn_agent_table, o) in either case. */
int ltn_agent_options_load(struct ltn_agent_options *o, const char *summary, int argc, char **argv);

#endif /* LTN_CLI_OPTIONS_H */
