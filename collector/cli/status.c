/* SPDX-License-Identifier: Apache-2.0 */
/* `status`: asks a running collector for its table. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/attr.h"
#include "base/file.h"
#include "cli/cli.h"
#include "conf/command.h"
#include "http/client.h"

struct status_conf {
    char *url;
    char *token_file, *ca_file, *cert_file, *key_file;
    bool json;
    uint64_t timeout_ns;
};

#define AT(field) offsetof(struct status_conf, field)

static const struct ltn_conf_key keys[] = {
    {.key = "url",
     .type = LTN_CONF_STRING,
     .offset = AT(url),
     .def = "http://127.0.0.1:8420",
     .doc = "API address of the collector.",
     .arg = "URL"},
    {.key = "token_file",
     .type = LTN_CONF_STRING,
     .offset = AT(token_file),
     .doc = "File with the bearer token.",
     .arg = "FILE"},
    {.key = "ca_file",
     .type = LTN_CONF_STRING,
     .offset = AT(ca_file),
     .doc = "Certificates that an https collector is checked against instead of the system's.",
     .flags = LTN_CONF_FLAG_ONLY,
     .arg = "FILE"},
    {.key = "cert_file",
     .type = LTN_CONF_STRING,
     .offset = AT(cert_file),
     .doc = "Certificate to show to the collector, PEM.",
     .flags = LTN_CONF_FLAG_ONLY,
     .arg = "FILE"},
    {.key = "key_file",
     .type = LTN_CONF_STRING,
     .offset = AT(key_file),
     .doc = "Its key; in the certificate's file when not given.",
     .flags = LTN_CONF_FLAG_ONLY,
     .arg = "FILE"},
    {.key = "json",
     .type = LTN_CONF_BOOL,
     .offset = AT(json),
     .def = "false",
     .doc = "Print JSON.",
     .flags = LTN_CONF_FLAG_ONLY},
    {.key = "timeout",
     .type = LTN_CONF_DURATION_NS,
     .offset = AT(timeout_ns),
     .def = "10s",
     .min = 0.1,
     .max = 3600,
     .doc = "How long to wait for the answer.",
     .flags = LTN_CONF_FLAG_ONLY},
};
static const struct ltn_conf_table table = {keys, LTN_ARRAY_SIZE(keys), "LANTERNE_"};

static int help(void)
{
    struct ltn_buf b;
    ltn_buf_init(&b, 65536);
    (void)ltn_buf_puts(&b, "usage: lanterne-collector status [flags]\n\n");
    int rc = ltn_conf_help(&table, &b);
    if (rc == 0)
        rc = ltn_fd_write_all(1, ltn_buf_str(&b), b.len);
    ltn_buf_done(&b);
    return rc == 0 ? LTN_EXIT_OK : LTN_EXIT_CANNOT;
}

static int ask(const struct status_conf *c, const char *token)
{
    char url[1024];
    size_t n = strlen(c->url);
    while (n > 0 && c->url[n - 1] == '/')
        n--;
    if (n > 900) {
        (void)fprintf(stderr, "lanterne-collector: the URL is too long\n");
        return LTN_EXIT_USAGE;
    }
    (void)snprintf(url, sizeof(url), "%.*s/api/v1/status", (int)n, c->url);
    const char *headers[] = {c->json ? "Accept: application/json" : "Accept: text/plain", NULL};
    struct ltn_http_call call = {.url = url,
                                 .headers = headers,
                                 .bearer_token = token,
                                 .ca_file = c->ca_file[0] != '\0' ? c->ca_file : NULL,
                                 .cert_file = c->cert_file[0] != '\0' ? c->cert_file : NULL,
                                 .key_file = c->key_file[0] != '\0' ? c->key_file : NULL,
                                 .timeout_ns = c->timeout_ns,
                                 .max_response_bytes = (size_t)64 << 20};
    struct ltn_http_result r;
    struct ltn_http_client *client = ltn_http_client_new();
    int code = LTN_EXIT_CANNOT;
    if (client == NULL) {
        (void)fprintf(stderr, "lanterne-collector: out of memory\n");
        return code;
    }
    if (ltn_http_client_call(client, &call, &r) == 0)
        code = ltn_fd_write_all(1, r.body, r.body_len) == 0 ? LTN_EXIT_OK : LTN_EXIT_CANNOT;
    else if (r.status == 401)
        (void)fprintf(stderr,
                      "lanterne-collector: %s: wrong or missing token (--token-file) or client "
                      "certificate (--cert-file, --key-file)\n",
                      url);
    else if (r.status == 403)
        (void)fprintf(stderr,
                      "lanterne-collector: %s: this token may not read; one of a single cluster "
                      "only pushes\n",
                      url);
    else if (r.status != 0)
        (void)fprintf(stderr, "lanterne-collector: %s: HTTP status %d\n", url, r.status);
    else
        (void)fprintf(stderr, "lanterne-collector: %s: %s\n", url, r.error);
    ltn_http_client_free(client);
    return code;
}

static int with_conf(const struct status_conf *c, const struct ltn_conf_args *args)
{
    char token[1024];
    struct ltn_errinfo info = {0, ""};
    if (args->help)
        return help();
    if (args->word_count > 0) {
        (void)fprintf(stderr, "lanterne-collector: status takes no argument \"%s\"\n",
                      args->words[0]);
        return LTN_EXIT_USAGE;
    }
    if (c->token_file[0] != '\0' &&
        ltn_conf_read_secret(c->token_file, token, sizeof(token), &info) != 0) {
        (void)fprintf(stderr, "lanterne-collector: %s\n", info.msg);
        return LTN_EXIT_CANNOT;
    }
    return ask(c, c->token_file[0] != '\0' ? token : NULL);
}

int ltn_collector_status(int argc, char **argv)
{
    struct status_conf conf = {0};
    struct ltn_conf_args args = {0};
    struct ltn_errinfo info = {0, ""};
    int code = LTN_EXIT_USAGE;
    int rc = ltn_conf_init(&table, &conf, &info);
    if (rc == 0)
        rc = ltn_conf_load_args(&table, &conf, argc, argv, &args, &info);
    if (rc == 0)
        code = with_conf(&conf, &args);
    else
        (void)fprintf(stderr, "lanterne-collector: %s\n", info.msg);
    ltn_conf_args_done(&args);
    ltn_conf_done(&table, &conf);
    return code;
}
