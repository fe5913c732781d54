/* SPDX-License-Identifier: Apache-2.0 */
#include "access/access.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "access/scope.h"
#include "access/tokens.h"
#include "http/tls.h"

struct ltn_access {
    char *token_file; /* NULL: none */
    struct stat token_stat;
    struct ltn_tokens *tokens;
    struct ltn_tls_server *otlp_tls, *api_tls; /* NULL: cleartext */
    bool tls_required;
    uint32_t handshakes_per_s;
    bool otlp_wants_cert, api_wants_cert;
    void (*notice)(void *ctx, bool failed, const char *text);
    void *notice_ctx;
    uint64_t reloads, failures;
};

/* ---- checking requests ---- */

static int check_token(const struct ltn_access *a, const struct ltn_http_request *req,
                       const char **ret_cluster)
{
    const char *value = ltn_http_header(req, "authorization");
    *ret_cluster = NULL;
    if (a->token_file == NULL) {
        return 0;
    }
    if (value == NULL || strncasecmp(value, "bearer ", 7) != 0) {
        return LTN_ERR_UNAUTHENTICATED;
    }
    value += 7 + strspn(value + 7, " ");
    return ltn_tokens_find(a->tokens, value, ret_cluster) ? 0 : LTN_ERR_UNAUTHENTICATED;
}

static int authorize_otlp(void *arg, const struct ltn_http_request *req, uint64_t *ret_tag)
{
    const struct ltn_access *a = arg;
    const char *cluster = NULL;
    /* Over TLS the handshake has seen to it; what comes in cleartext has none. */
    if (a->otlp_wants_cert && ltn_http_identity(req)[0] == '\0') {
        return LTN_ERR_CERTIFICATE;
    }
    int rc = check_token(a, req, &cluster);
    *ret_tag = (uint64_t)(uintptr_t)cluster; /* read by ltn_scope_cluster() */
    return rc;
}

/* What the API shows is of all clusters: a token of one is not enough. */
static int authorize_api(void *arg, const struct ltn_http_request *req, uint64_t *ret_tag)
{
    const struct ltn_access *a = arg;
    const char *cluster = NULL;
    (void)ret_tag;
    if (a->api_wants_cert && ltn_http_identity(req)[0] == '\0') {
        return LTN_ERR_CERTIFICATE;
    }
    int rc = check_token(a, req, &cluster);
    return rc == 0 && cluster != NULL ? LTN_ERR_SCOPE : rc;
}

static void guard(struct ltn_access *a, struct ltn_http_conf *hc, struct ltn_tls_server *tls)
{
    hc->tls = tls;
    hc->tls_required = a->tls_required;
    hc->handshake_per_s = a->handshakes_per_s;
    hc->handshake_burst = 2 * a->handshakes_per_s;
    hc->authorize_arg = a;
}

void ltn_access_guard_otlp(struct ltn_access *a, struct ltn_http_conf *hc)
{
    guard(a, hc, a->otlp_tls);
    hc->authorize = authorize_otlp;
}

void ltn_access_guard_api(struct ltn_access *a, struct ltn_http_conf *hc)
{
    guard(a, hc, a->api_tls);
    hc->authorize = authorize_api;
}

bool ltn_access_has_tokens(const struct ltn_access *a)
{
    return a->token_file != NULL;
}

/* ---- making ---- */

int ltn_access_check(const struct ltn_access_conf *c, struct ltn_errinfo *info)
{
    bool cert = c->cert_file[0] != '\0';
    const char *why = NULL;
    if (cert != (c->key_file[0] != '\0')) {
        why = "tls.cert_file and tls.key_file belong together";
    } else if (!cert && (c->tls_required || c->client_ca_file[0] != '\0')) {
        why = "tls.required and tls.client_ca_file need tls.cert_file and tls.key_file";
    } else if (c->client_ca_file[0] == '\0' &&
               (c->client_cert != LTN_CLIENT_CERT_OFF || c->allow_count > 0)) {
        why = "tls.require_client_cert and tls.allow_san need tls.client_ca_file";
    }
    if (why == NULL && c->client_cert != LTN_CLIENT_CERT_OFF && !c->tls_required) {
        why = "tls.require_client_cert needs tls.required: cleartext carries no certificate";
    }
    return why == NULL ? 0 : ltn_errinfo_set(info, LTN_ERR_CONFIG, "%s", why);
}

static int make_tls(const struct ltn_access_conf *c, bool require, struct ltn_tls_server **ret,
                    struct ltn_errinfo *info)
{
    const struct ltn_tls_server_conf tc = {
        .cert_file = c->cert_file,
        .key_file = c->key_file,
        .client_ca_file = c->client_ca_file[0] != '\0' ? c->client_ca_file : NULL,
        .require_client_cert = require,
        .allow = c->allow,
        .allow_count = c->allow_count,
    };
    return ltn_tls_server_new(&tc, ret, info);
}

static bool token_file_changed(struct ltn_access *a)
{
    struct stat now;
    if (stat(a->token_file, &now) != 0) {
        memset(&now, 0, sizeof(now));
    }
    const struct stat *old = &a->token_stat;
    bool changed = now.st_mtim.tv_sec != old->st_mtim.tv_sec ||
                   now.st_mtim.tv_nsec != old->st_mtim.tv_nsec || now.st_ino != old->st_ino ||
                   now.st_size != old->st_size;
    a->token_stat = now;
    return changed;
}

static int make(struct ltn_access *a, const struct ltn_access_conf *c, struct ltn_errinfo *info)
{
    int rc = ltn_access_check(c, info);
    a->tls_required = c->tls_required;
    a->handshakes_per_s = c->handshakes_per_s;
    a->otlp_wants_cert = c->client_cert != LTN_CLIENT_CERT_OFF;
    a->api_wants_cert = c->client_cert == LTN_CLIENT_CERT_ALL;
    a->tokens = ltn_tokens_new();
    if (rc == 0 && a->tokens == NULL) {
        rc = ltn_errinfo_set(info, -ENOMEM, "out of memory");
    }
    if (rc == 0 && c->token_file[0] != '\0') {
        a->token_file = strdup(c->token_file);
        if (a->token_file == NULL) {
            return ltn_errinfo_set(info, -ENOMEM, "out of memory");
        }
        (void)token_file_changed(a);
        rc = ltn_tokens_load(a->tokens, a->token_file, info);
    }
    if (rc == 0 && c->cert_file[0] != '\0') {
        rc = make_tls(c, c->client_cert != LTN_CLIENT_CERT_OFF, &a->otlp_tls, info);
        /* The API's health checks come without one: there it is asked for request by request. */
        if (rc == 0) {
            rc = make_tls(c, false, &a->api_tls, info);
        }
    }
    return rc;
}

int ltn_access_new(const struct ltn_access_conf *conf, struct ltn_access **ret,
                   struct ltn_errinfo *info)
{
    struct ltn_access *a = calloc(1, sizeof(*a));
    if (a == NULL) {
        return ltn_errinfo_set(info, -ENOMEM, "out of memory");
    }
    a->notice = conf->notice;
    a->notice_ctx = conf->notice_ctx;
    int rc = make(a, conf, info);
    if (rc != 0) {
        ltn_access_free(a);
        return rc;
    }
    *ret = a;
    return 0;
}

void ltn_access_free(struct ltn_access *a)
{
    if (a == NULL) {
        return;
    }
    ltn_tls_server_free(a->otlp_tls);
    ltn_tls_server_free(a->api_tls);
    ltn_tokens_free(a->tokens);
    free(a->token_file);
    free(a);
}

/* ---- reading again ---- */

static void tell(struct ltn_access *a, int rc, const struct ltn_errinfo *info, const char *what)
{
    char text[sizeof(info->msg) + 80];
    a->reloads += rc == 0;
    a->failures += rc != 0;
    if (rc == 0) {
        (void)snprintf(text, sizeof(text), "%s read again", what);
    } else {
        (void)snprintf(text, sizeof(text), "%s not taken over, the old stay in force: %s", what,
                       info->msg[0] != '\0' ? info->msg : ltn_err_str(rc));
    }
    if (a->notice != NULL) {
        a->notice(a->notice_ctx, rc != 0, text);
    }
}

static void reload_tokens(struct ltn_access *a)
{
    struct ltn_errinfo info = {0};
    tell(a, ltn_tokens_load(a->tokens, a->token_file, &info), &info, "tokens");
}

/* Both listeners have the same files. */
static void reload_tls(struct ltn_access *a)
{
    struct ltn_errinfo info = {0};
    int rc = ltn_tls_server_reload(a->otlp_tls, &info);
    if (rc == 0) {
        rc = ltn_tls_server_reload(a->api_tls, &info);
    }
    tell(a, rc, &info, "certificates");
}

void ltn_access_reload(struct ltn_access *a)
{
    if (a->token_file != NULL) {
        (void)token_file_changed(a);
        reload_tokens(a);
    }
    if (a->otlp_tls != NULL) {
        reload_tls(a);
    }
}

void ltn_access_poll(struct ltn_access *a)
{
    if (a->token_file != NULL && token_file_changed(a)) {
        reload_tokens(a);
    }
    if (a->otlp_tls != NULL) {
        struct ltn_errinfo info = {0};
        int otlp = ltn_tls_server_poll(a->otlp_tls, &info);
        int api = ltn_tls_server_poll(a->api_tls, &info);
        if (otlp != 0 || api != 0) {
            tell(a, otlp < 0 ? otlp : (api < 0 ? api : 0), &info, "certificates");
        }
    }
}

void ltn_access_stats(const struct ltn_access *a, struct ltn_access_stats *ret)
{
    *ret = (struct ltn_access_stats){
        .reloads = a->reloads,
        .reload_failures = a->failures,
        .tokens = ltn_tokens_count(a->tokens),
        .cert_expires_s = a->otlp_tls != NULL ? ltn_tls_server_expires_s(a->otlp_tls) : 0,
    };
}
