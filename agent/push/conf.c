/* SPDX-License-Identifier: Apache-2.0 */
/* Endpoints from the command line and from the OTEL_ variables. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/text.h"
#include "push/push.h"

#define DEFAULT_TIMEOUT_NS (10 * LTN_NS_PER_S)

static void target_init(struct ltn_push_target *t)
{
    *t = (struct ltn_push_target){.timeout_ns = DEFAULT_TIMEOUT_NS, .gzip = true};
}

void ltn_push_conf_init(struct ltn_push_conf *c)
{
    *c = (struct ltn_push_conf){0};
    target_init(&c->metrics);
    target_init(&c->logs);
}

bool ltn_push_conf_enabled(const struct ltn_push_conf *c)
{
    return c->metrics.endpoint[0] != '\0' || c->logs.endpoint[0] != '\0';
}

int ltn_push_conf_endpoint(struct ltn_push_conf *c, const char *endpoint, struct ltn_errinfo *info)
{
    if (!ltn_copy_str(c->metrics.endpoint, sizeof(c->metrics.endpoint), endpoint) ||
        !ltn_copy_str(c->logs.endpoint, sizeof(c->logs.endpoint), endpoint)) {
        return ltn_errinfo_set(info, LTN_ERR_CONFIG, "the collector's address is too long");
    }
    c->metrics.as_is = c->metrics.from_otel = false;
    c->logs.as_is = c->logs.from_otel = false;
    return 0;
}

static const char *get(char *const *envp, const char *name)
{
    size_t n = strlen(name);
    for (; *envp != NULL; envp++) {
        if (strncmp(*envp, name, n) == 0 && (*envp)[n] == '=' && (*envp)[n + 1] != '\0') {
            return *envp + n + 1;
        }
    }
    return NULL;
}

static int set_protocol(struct ltn_push_target *t, const char *v)
{
    if (strcmp(v, "grpc") == 0) {
        t->protocol = LTN_PUSH_GRPC;
    } else if (strcmp(v, "http/protobuf") == 0) {
        t->protocol = LTN_PUSH_HTTP;
    } else {
        return LTN_ERR_CONFIG; /* http/json among others: only protobuf is made here */
    }
    return 0;
}

static int set_bool(bool *ret, const char *v)
{
    bool yes = strcasecmp(v, "true") == 0;
    if (!yes && strcasecmp(v, "false") != 0) {
        return LTN_ERR_CONFIG;
    }
    *ret = yes;
    return 0;
}

static int set_text(char *out, size_t size, const char *v)
{
    return ltn_copy_str(out, size, v) ? 0 : LTN_ERR_CONFIG;
}

static int set_compression(struct ltn_push_target *t, const char *v)
{
    t->gzip = strcmp(v, "gzip") == 0;
    t->zstd = strcmp(v, "zstd") == 0;
    return t->gzip || t->zstd || strcmp(v, "none") == 0 ? 0 : LTN_ERR_CONFIG;
}

static int set_timeout(struct ltn_push_target *t, const char *v)
{
    uint64_t ms;
    if (!ltn_parse_u64(v, &ms) || ms == 0 || ms > 3600000) {
        return LTN_ERR_CONFIG;
    }
    t->timeout_ns = ms * LTN_NS_PER_MS;
    return 0;
}

enum variable {
    ENDPOINT,
    INSECURE,
    HEADERS,
    TIMEOUT,
    COMPRESSION,
    PROTOCOL,
    CERTIFICATE,
    CLIENT_CERTIFICATE,
    CLIENT_KEY,
    VARIABLES,
};

static const char *const names[VARIABLES] = {
    [ENDPOINT] = "ENDPOINT",       [INSECURE] = "INSECURE",
    [HEADERS] = "HEADERS",         [TIMEOUT] = "TIMEOUT",
    [COMPRESSION] = "COMPRESSION", [PROTOCOL] = "PROTOCOL",
    [CERTIFICATE] = "CERTIFICATE", [CLIENT_CERTIFICATE] = "CLIENT_CERTIFICATE",
    [CLIENT_KEY] = "CLIENT_KEY",
};

/* own: the variable is of this signal, not of all. */
static int set_one(struct ltn_push_target *t, enum variable what, const char *v, bool own)
{
    switch (what) {
    case ENDPOINT:
        t->as_is = own;
        t->from_otel = true;
        return set_text(t->endpoint, sizeof(t->endpoint), v);
    case INSECURE:
        return set_bool(&t->insecure, v);
    case HEADERS:
        return set_text(t->headers, sizeof(t->headers), v);
    case TIMEOUT:
        return set_timeout(t, v);
    case COMPRESSION:
        return set_compression(t, v);
    case PROTOCOL:
        return set_protocol(t, v);
    case CERTIFICATE:
        return set_text(t->ca_file, sizeof(t->ca_file), v);
    case CLIENT_CERTIFICATE:
        return set_text(t->cert_file, sizeof(t->cert_file), v);
    case CLIENT_KEY:
        return set_text(t->key_file, sizeof(t->key_file), v);
    case VARIABLES:
        break;
    }
    return LTN_ERR_INTERNAL;
}

/* ---- what is not done, and said ---- */

static void note(struct ltn_push_conf *c, const char *name, size_t name_n, const char *why)
{
    if (c->note_count < LTN_PUSH_MAX_NOTES) {
        (void)snprintf(c->notes[c->note_count++], sizeof(c->notes[0]), "%.*s: %s",
                       (int)(name_n < 80 ? name_n : 80), name, why);
    }
}

#define PREFIX "OTEL_EXPORTER_OTLP_"

/* NULL: nothing to be said of it. */
static const char *why_not(const char *name, size_t n, const char *value)
{
    static const char *const infixes[] = {"METRICS_", "LOGS_", ""};
    for (size_t k = 0; k < LTN_ARRAY_SIZE(infixes); k++) {
        size_t skip = strlen(infixes[k]);
        for (size_t i = 0; i < VARIABLES && n > skip; i++) {
            if (strncmp(name, infixes[k], skip) == 0 && n - skip == strlen(names[i]) &&
                strncmp(name + skip, names[i], n - skip) == 0) {
                return NULL;
            }
        }
    }
    static const char temporality[] = "METRICS_TEMPORALITY_PREFERENCE";
    static const char aggregation[] = "METRICS_DEFAULT_HISTOGRAM_AGGREGATION";
    if (n == sizeof(temporality) - 1 && strncmp(name, temporality, n) == 0) {
        return strcasecmp(value, "cumulative") == 0 ? NULL : "sums are sent as cumulative ones";
    }
    if (n == sizeof(aggregation) - 1 && strncmp(name, aggregation, n) == 0) {
        return strcasecmp(value, "base2_exponential_bucket_histogram") == 0
                   ? NULL
                   : "histograms are sent as exponential ones";
    }
    bool others = strncmp(name, "TRACES_", 7) == 0 || strncmp(name, "PROFILES_", 9) == 0;
    return others ? "no such signal is sent" : "not known, left out";
}

static void look_for_others(struct ltn_push_conf *c, char *const *envp)
{
    for (; *envp != NULL; envp++) {
        size_t n = strcspn(*envp, "=");
        size_t prefix = sizeof(PREFIX) - 1;
        if (strncmp(*envp, PREFIX, prefix) != 0 || (*envp)[n] == '\0' || (*envp)[n + 1] == '\0') {
            continue;
        }
        const char *why = why_not(*envp + prefix, n - prefix, *envp + n + 1);
        if (why != NULL) {
            note(c, *envp, n, why);
        }
    }
}

int ltn_push_conf_env(struct ltn_push_conf *c, char *const *envp, struct ltn_errinfo *info)
{
    static const char *const infixes[] = {"", "METRICS_", "LOGS_"};
    for (size_t k = 0; k < LTN_ARRAY_SIZE(infixes); k++) {
        for (size_t i = 0; i < VARIABLES; i++) {
            char name[64];
            (void)snprintf(name, sizeof(name), PREFIX "%s%s", infixes[k], names[i]);
            const char *v = get(envp, name);
            int rc = 0;
            if (v != NULL && k != 2) {
                rc = set_one(&c->metrics, (enum variable)i, v, k == 1);
            }
            if (v != NULL && k != 1 && rc == 0) {
                rc = set_one(&c->logs, (enum variable)i, v, k == 2);
            }
            if (rc < 0) {
                return ltn_errinfo_set(info, rc, "%s: \"%.80s\" cannot be used", name,
                                       i == HEADERS ? "…" : v);
            }
        }
    }
    look_for_others(c, envp);
    return 0;
}

static bool put_text(char *out, size_t size, const char *text)
{
    return text[0] == '\0' || ltn_copy_str(out, size, text);
}

int ltn_push_conf_tls(struct ltn_push_conf *c, const struct ltn_push_tls_conf *tls,
                      struct ltn_errinfo *info)
{
    struct ltn_push_target *const targets[] = {&c->metrics, &c->logs};
    for (size_t i = 0; i < LTN_ARRAY_SIZE(targets); i++) {
        struct ltn_push_target *t = targets[i];
        if (!put_text(t->ca_file, sizeof(t->ca_file), tls->ca_file) ||
            !put_text(t->cert_file, sizeof(t->cert_file), tls->cert_file) ||
            !put_text(t->key_file, sizeof(t->key_file), tls->key_file) ||
            !put_text(t->server_name, sizeof(t->server_name), tls->server_name)) {
            return ltn_errinfo_set(info, LTN_ERR_CONFIG,
                                   "a path or name for TLS with the collector is too long");
        }
    }
    return 0;
}
