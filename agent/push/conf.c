/* SPDX-License-Identifier: Apache-2.0 */
/* Endpoints from the command line and from the OTEL_ variables. */
#include <stdio.h>
#include <string.h>

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
        return LTN_ERR_CONFIG; /* http/json among others */
    }
    return 0;
}

static int set_one(struct ltn_push_target *t, const char *what, const char *v, bool own)
{
    uint64_t ms;
    if (strcmp(what, "ENDPOINT") == 0) {
        t->as_is = own;
        t->from_otel = true;
        return ltn_copy_str(t->endpoint, sizeof(t->endpoint), v) ? 0 : LTN_ERR_CONFIG;
    }
    if (strcmp(what, "HEADERS") == 0) {
        return ltn_copy_str(t->headers, sizeof(t->headers), v) ? 0 : LTN_ERR_CONFIG;
    }
    if (strcmp(what, "CERTIFICATE") == 0) {
        return ltn_copy_str(t->ca_file, sizeof(t->ca_file), v) ? 0 : LTN_ERR_CONFIG;
    }
    if (strcmp(what, "PROTOCOL") == 0) {
        return set_protocol(t, v);
    }
    if (strcmp(what, "TIMEOUT") == 0) {
        if (!ltn_parse_u64(v, &ms) || ms == 0 || ms > 3600000) {
            return LTN_ERR_CONFIG;
        }
        t->timeout_ns = ms * LTN_NS_PER_MS;
        return 0;
    }
    t->gzip = strcmp(v, "gzip") == 0;
    return t->gzip || strcmp(v, "none") == 0 ? 0 : LTN_ERR_CONFIG;
}

int ltn_push_conf_env(struct ltn_push_conf *c, char *const *envp, struct ltn_errinfo *info)
{
    static const char *const names[] = {"ENDPOINT",    "HEADERS",  "TIMEOUT",
                                        "COMPRESSION", "PROTOCOL", "CERTIFICATE"};
    static const char *const infixes[] = {"", "METRICS_", "LOGS_"};
    for (size_t k = 0; k < LTN_ARRAY_SIZE(infixes); k++) {
        for (size_t i = 0; i < LTN_ARRAY_SIZE(names); i++) {
            char name[64];
            (void)snprintf(name, sizeof(name), "OTEL_EXPORTER_OTLP_%s%s", infixes[k], names[i]);
            const char *v = get(envp, name);
            int rc = 0;
            if (v != NULL && k != 2) {
                rc = set_one(&c->metrics, names[i], v, k == 1);
            }
            if (v != NULL && k != 1 && rc == 0) {
                rc = set_one(&c->logs, names[i], v, k == 2);
            }
            if (rc < 0) {
                return ltn_errinfo_set(info, rc, "%s: \"%.80s\" cannot be used", name,
                                       strcmp(names[i], "HEADERS") == 0 ? "…" : v);
            }
        }
    }
    return 0;
}
