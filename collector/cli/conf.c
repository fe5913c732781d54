/* SPDX-License-Identifier: Apache-2.0 */
/* Configuration table, help, and which command runs. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "access/access.h"
#include "base/attr.h"
#include "base/file.h"
#include "cli/cli.h"
#include "conf/command.h"

static const char *const severities[] = {"low", "medium", "high", "critical", NULL};
static const char *const client_certs[] = {"off", "otlp", "all", NULL};
static const char *const log_levels[] = {"error", "warn", "info", "debug", NULL};

#define AT(field) offsetof(struct ltn_collector_conf, field)

static const struct ltn_conf_key keys[] = {
    {.key = "otlp.listen",
     .type = LTN_CONF_STRINGS,
     .offset = AT(otlp_listen),
     .def = "127.0.0.1:4317,127.0.0.1:4318",
     .doc = "Addresses for OTLP; each speaks gRPC and HTTP.",
     .flags = LTN_CONF_NOT_EMPTY,
     .arg = "ADDR:PORT"},
    LTN_COLLECTOR_LIMIT_KEYS(AT(limits)),
    {.key = "otlp.workers",
     .type = LTN_CONF_U64,
     .offset = AT(otlp_workers),
     .def = "0",
     .max = 64,
     .doc = "Threads that decode larger requests; 0: one less than processors, at most 4."},
    {.key = "api.listen",
     .type = LTN_CONF_STRING,
     .offset = AT(api_listen),
     .def = "127.0.0.1:8420",
     .doc = "Address of API, metrics and health.",
     .flags = LTN_CONF_NOT_EMPTY,
     .arg = "ADDR:PORT"},
    {.key = "db",
     .type = LTN_CONF_STRING,
     .offset = AT(db),
     .def = "/var/lib/lanterne/collector.db",
     .doc = "Database file.",
     .flags = LTN_CONF_NOT_EMPTY,
     .arg = "FILE"},
    {.key = "db_options.sync_full",
     .type = LTN_CONF_BOOL,
     .offset = AT(db_sync_full),
     .def = "false",
     .doc = "Wait for the disk at each commit, so that acknowledged data survives a power loss."},
    {.key = "db_options.window_keep",
     .type = LTN_CONF_DURATION_NS,
     .offset = AT(db_window_keep_ns),
     .def = "1d",
     .min = 60,
     .max = 3153600000,
     .doc = "How long windows of ranks are kept."},
    {.key = "db_options.history_keep",
     .type = LTN_CONF_DURATION_NS,
     .offset = AT(db_history_keep_ns),
     .def = "30d",
     .min = 60,
     .max = 3153600000,
     .doc = "How long verdicts, incidents and processes are kept."},
    {.key = "db_options.log_keep",
     .type = LTN_CONF_DURATION_NS,
     .offset = AT(db_log_keep_ns),
     .def = "7d",
     .min = 60,
     .max = 3153600000,
     .doc = "How long log records are kept, from their arrival on."},
    {.key = "window",
     .type = LTN_CONF_DURATION_NS,
     .offset = AT(window_ns),
     .def = "10s",
     .min = 0.1,
     .max = 3600,
     .doc = "Window length of the agents."},
    {.key = "token_file",
     .type = LTN_CONF_STRING,
     .offset = AT(token_file),
     .doc = "File with the bearer tokens that agents and readers must show; a line each, TOKEN or "
            "CLUSTER TOKEN.",
     .arg = "FILE"},
    {.key = "insecure_no_auth",
     .type = LTN_CONF_BOOL,
     .offset = AT(insecure_no_token),
     .def = "false",
     .doc = "Allow addresses beyond loopback without a token; also --insecure-no-token."},
    {.key = "tls.cert_file",
     .type = LTN_CONF_STRING,
     .offset = AT(tls.cert_file),
     .doc = "Certificate of the collector and its issuers, PEM; with it every address speaks TLS "
            "as well as cleartext.",
     .arg = "FILE"},
    {.key = "tls.key_file",
     .type = LTN_CONF_STRING,
     .offset = AT(tls.key_file),
     .doc = "Key of that certificate, PEM, without a password.",
     .arg = "FILE"},
    {.key = "tls.required",
     .type = LTN_CONF_BOOL,
     .offset = AT(tls.required),
     .def = "false",
     .doc = "Refuse cleartext that does not come from this machine."},
    {.key = "tls.handshakes_per_s",
     .type = LTN_CONF_U64,
     .offset = AT(tls.handshakes_per_s),
     .def = "500",
     .min = 1,
     .max = 100000,
     .doc = "TLS handshakes a second, twice as many at once; further connections are closed."},
    {.key = "tls.client_ca_file",
     .type = LTN_CONF_STRING,
     .offset = AT(tls.client_ca_file),
     .doc = "Authorities that clients' certificates are checked against, PEM.",
     .arg = "FILE"},
    {.key = "tls.require_client_cert",
     .type = LTN_CONF_ENUM,
     .offset = AT(tls.require_client_cert),
     .def = "off",
     .names = client_certs,
     .doc = "Who must show a certificate: nobody, agents, or readers of the API as well."},
    {.key = "tls.allow_san",
     .type = LTN_CONF_STRINGS,
     .offset = AT(tls.allow_san),
     .doc = "Names that a client's certificate may have, DNS:NAME or URI:NAME with * for any text; "
            "any name when there are none.",
     .arg = "PATTERN"},
    {.key = "limits.nodes",
     .type = LTN_CONF_U64,
     .offset = AT(max_nodes),
     .def = "20000",
     .min = 1,
     .max = 1000000,
     .doc = "Nodes known at a time; further ones are refused and counted."},
    {.key = "limits.processes",
     .type = LTN_CONF_U64,
     .offset = AT(max_processes),
     .def = "200000",
     .min = 1,
     .max = 10000000,
     .doc = "Processes known at a time."},
    {.key = "limits.jobs",
     .type = LTN_CONF_U64,
     .offset = AT(max_jobs),
     .def = "10000",
     .min = 1,
     .max = 1000000,
     .doc = "Jobs known at a time."},
    {.key = "limits.series",
     .type = LTN_CONF_U64,
     .offset = AT(max_series),
     .def = "200000",
     .min = 1,
     .max = 10000000,
     .doc = "Series of clients exposed at /metrics."},
    {.key = "limits.series_per_metric",
     .type = LTN_CONF_U64,
     .offset = AT(max_series_per_metric),
     .def = "2000",
     .min = 1,
     .max = 10000000,
     .doc = "Series of one metric; what is beyond goes into one overflow series."},
    {.key = "limits.queue",
     .type = LTN_CONF_SIZE_BYTES,
     .offset = AT(queue_bytes),
     .def = "256m",
     .min = 1048576,
     .max = 1099511627776,
     .doc = "Requests between arrival and answer; beyond, clients are asked to wait."},
    {.key = "limits.log_bytes",
     .type = LTN_CONF_SIZE_BYTES,
     .offset = AT(log_bytes),
     .def = "1g",
     .min = 1048576,
     .max = 1099511627776,
     .doc = "Log records kept together; the oldest go first."},
    {.key = "straggler.min_effect",
     .type = LTN_CONF_DOUBLE,
     .offset = AT(min_effect_pct),
     .def = "8",
     .min = 1,
     .max = 1000,
     .doc = "How much slower than its peers a rank must be to be named, in percent.",
     .arg = "PCT"},
    {.key = "alert.alertmanager",
     .type = LTN_CONF_STRINGS,
     .offset = AT(alert.alertmanagers),
     .doc = "Alertmanagers that alerts go to, each of them; http://HOST:9093.",
     .arg = "URL"},
    {.key = "alert.webhook",
     .type = LTN_CONF_STRINGS,
     .offset = AT(alert.webhooks),
     .doc = "Webhooks that alerts go to; @FILE for a URL that stands in a file.",
     .arg = "URL"},
    {.key = "alert.webhook_secret_file",
     .type = LTN_CONF_STRING,
     .offset = AT(alert.webhook_secret_file),
     .doc = "File with the key that webhook bodies are signed with (HMAC-SHA256).",
     .arg = "FILE"},
    {.key = "alert.token_file",
     .type = LTN_CONF_STRING,
     .offset = AT(alert.token_file),
     .doc = "File with the bearer token shown to Alertmanagers.",
     .arg = "FILE"},
    {.key = "alert.ca_file",
     .type = LTN_CONF_STRING,
     .offset = AT(alert.ca_file),
     .doc = "Certificates that https targets are checked against instead of the system's.",
     .arg = "FILE"},
    {.key = "alert.external_url",
     .type = LTN_CONF_STRING,
     .offset = AT(alert.external_url),
     .doc = "Where people reach this collector; alerts link to it.",
     .arg = "URL"},
    {.key = "alert.min_severity",
     .type = LTN_CONF_ENUM,
     .offset = AT(alert.min_severity),
     .def = "high",
     .names = severities,
     .doc = "Least severe incidents that raise an alert."},
    {.key = "alert.node_silent_after",
     .type = LTN_CONF_DURATION_NS,
     .offset = AT(alert.silent_after_ns),
     .def = "1m",
     .max = 86400,
     .doc = "How long a node must be silent to raise an alert; 0 for never."},
    {.key = "alert.resend",
     .type = LTN_CONF_DURATION_NS,
     .offset = AT(alert.resend_ns),
     .def = "30s",
     .min = 1,
     .max = 60,
     .doc = "How often Alertmanagers are told of an alert that goes on."},
    {.key = "alert.timeout",
     .type = LTN_CONF_DURATION_NS,
     .offset = AT(alert.timeout_ns),
     .def = "5s",
     .min = 0.1,
     .max = 30,
     .doc = "How long a target may take to answer."},
    {.key = "alert.max_alerts",
     .type = LTN_CONF_U64,
     .offset = AT(alert.max_alerts),
     .def = "10000",
     .min = 1,
     .max = 1000000,
     .doc = "Alerts known at a time; further ones are refused and counted."},
    {.key = "log_level",
     .type = LTN_CONF_ENUM,
     .offset = AT(log_level),
     .def = "info",
     .names = log_levels,
     .doc = "Least important log lines that are printed."},
};

const struct ltn_conf_table ltn_collector_conf_table = {keys, LTN_ARRAY_SIZE(keys), "LANTERNE_"};

bool ltn_collector_is_loopback(const char *address)
{
    return strncmp(address, "127.", 4) == 0 || strncmp(address, "[::1]:", 6) == 0 ||
           strncmp(address, "localhost:", 10) == 0;
}

static int print_buf(struct ltn_buf *b, int rc)
{
    if (rc == 0 && ltn_buf_error(b) == 0)
        rc = ltn_fd_write_all(1, ltn_buf_str(b), b->len);
    ltn_buf_done(b);
    return rc == 0 ? LTN_EXIT_OK : LTN_EXIT_CANNOT;
}

static int print_help(void)
{
    struct ltn_buf b;
    ltn_buf_init(&b, 1 << 20);
    (void)ltn_buf_puts(
        &b, "usage: lanterne-collector [--config FILE] [flags]\n"
            "       lanterne-collector status [--url URL] [--token-file FILE] [--ca-file FILE]\n"
            "                                 [--json]\n\n"
            "Takes in what lanterne agents push, names the ranks that others wait for, and serves\n"
            "API and metrics.\n\n"
            "  --config FILE         YAML file; every flag below is also a key there and an\n"
            "                        environment variable LANTERNE_...\n"
            "  --check-config        check the configuration, tokens and certificates, and end\n"
            "  --dump-config         print the whole configuration and end\n"
            "  --version             print the version and end\n\n");
    return print_buf(&b, ltn_conf_help(&ltn_collector_conf_table, &b));
}

static int dump(const struct ltn_collector_conf *conf)
{
    struct ltn_buf b;
    ltn_buf_init(&b, 1 << 20);
    return print_buf(&b, ltn_conf_dump(&ltn_collector_conf_table, conf, &b));
}

void ltn_collector_access_conf(const struct ltn_collector_conf *c, struct ltn_access_conf *ret)
{
    *ret = (struct ltn_access_conf){
        .token_file = c->token_file,
        .cert_file = c->tls.cert_file,
        .key_file = c->tls.key_file,
        .client_ca_file = c->tls.client_ca_file,
        .client_cert = (enum ltn_access_client_cert)c->tls.require_client_cert,
        .allow = (const char *const *)c->tls.allow_san.items,
        .allow_count = c->tls.allow_san.n,
        .tls_required = c->tls.required,
        .handshakes_per_s = (uint32_t)c->tls.handshakes_per_s,
    };
}

/* The rule about credentials, so that --check-config knows it too. */
static int check_exposure(const struct ltn_collector_conf *c)
{
    const char *open = NULL;
    int certs = c->tls.require_client_cert;
    for (size_t i = 0; i < c->otlp_listen.n; i++)
        if (!ltn_collector_is_loopback(c->otlp_listen.items[i]) && certs == LTN_CLIENT_CERT_OFF)
            open = c->otlp_listen.items[i];
    if (!ltn_collector_is_loopback(c->api_listen) && certs != LTN_CLIENT_CERT_ALL)
        open = c->api_listen;
    if (open == NULL || c->token_file[0] != '\0' || c->insecure_no_token)
        return LTN_EXIT_OK;
    (void)fprintf(stderr,
                  "lanterne-collector: %s can be reached from other machines: give --token-file "
                  "FILE, or --insecure-no-auth if that is meant\n",
                  open);
    return LTN_EXIT_USAGE;
}

static int complain(int code, const struct ltn_errinfo *info)
{
    (void)fprintf(stderr, "lanterne-collector: %s\n", info->msg);
    return code;
}

static int check(const struct ltn_collector_conf *c)
{
    struct ltn_errinfo info = {0, ""};
    struct ltn_access_conf ac;
    ltn_collector_access_conf(c, &ac);
    int rc = ltn_access_check(&ac, &info);
    if (rc == 0)
        rc = ltn_collector_check_addresses(c, &info);
    if (rc == 0)
        rc = ltn_collector_check_alerts(&c->alert, &info);
    return rc == 0 ? check_exposure(c) : complain(LTN_EXIT_USAGE, &info);
}

static int only_check(const struct ltn_collector_conf *c)
{
    struct ltn_errinfo info = {0, ""};
    if (ltn_collector_check_files(c, &info) != 0)
        return complain(LTN_EXIT_CANNOT, &info);
    (void)printf("configuration is fine\n");
    return LTN_EXIT_OK;
}

static int with_conf(struct ltn_collector_conf *conf, const struct ltn_conf_args *args)
{
    if (args->help)
        return print_help();
    if (args->version) {
        (void)printf("lanterne-collector %s\n", LTN_VERSION);
        return LTN_EXIT_OK;
    }
    if (args->word_count > 0) {
        (void)fprintf(
            stderr, "lanterne-collector: \"%s\" is no command; there are: status, version, help\n",
            args->words[0]);
        return LTN_EXIT_USAGE;
    }
    int rc = check(conf);
    if (rc != LTN_EXIT_OK)
        return rc;
    if (args->hint[0] != '\0')
        (void)fprintf(stderr, "lanterne-collector: %s\n", args->hint);
    if (args->dump_config)
        return dump(conf);
    return args->check_config ? only_check(conf) : ltn_collector_run(conf);
}

int ltn_collector_main(int argc, char **argv)
{
    static char alias[] = "--insecure-no-auth";
    struct ltn_collector_conf conf = {0};
    struct ltn_conf_args args = {0};
    struct ltn_errinfo info = {0, ""};
    if (argc > 1 && strcmp(argv[1], "status") == 0)
        return ltn_collector_status(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "help") == 0)
        return print_help();
    if (argc > 1 && strcmp(argv[1], "version") == 0) {
        (void)printf("lanterne-collector %s\n", LTN_VERSION);
        return LTN_EXIT_OK;
    }
    /* The name everybody looks for; a key of that ending would have to be a file. */
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--insecure-no-token") == 0)
            argv[i] = alias;
    int code = LTN_EXIT_USAGE;
    if (ltn_conf_load(&ltn_collector_conf_table, &conf, NULL, argc, argv, &args, &info) == 0)
        code = with_conf(&conf, &args);
    else
        (void)fprintf(stderr, "lanterne-collector: %s\n", info.msg);
    ltn_conf_args_done(&args);
    ltn_conf_done(&ltn_collector_conf_table, &conf);
    return code;
}
