/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who may talk to the collector: tokens and certificates, for the listeners of OTLP and of the API,
 * read again while it runs. What cannot be read leaves in force what was there. Loop thread.
 */
#ifndef LTN_ACCESS_ACCESS_H
#define LTN_ACCESS_ACCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/attr.h"
#include "base/err.h"
#include "http/server.h"

/* Which listeners want a client's certificate. */
enum ltn_access_client_cert { LTN_CLIENT_CERT_OFF, LTN_CLIENT_CERT_OTLP, LTN_CLIENT_CERT_ALL };

struct ltn_access_conf {
    const char *token_file; /* as of access/tokens.h; "": none. All texts are copied. */
    const char *cert_file, *key_file, *client_ca_file; /* "": none */
    enum ltn_access_client_cert client_cert;
    const char *const *allow; /* as of struct ltn_tls_server_conf */
    size_t allow_count;
    bool tls_required;
    uint32_t handshakes_per_s; /* of each listener; twice as many at once */
    /* What a reload came to, in words; failed: the old stays in force. NULL: not told. */
    void (*notice)(void *ctx, bool failed, const char *text);
    void *notice_ctx;
};

struct ltn_access;

/* Reads everything. LTN_ERR_CONFIG, -errno, -ENOMEM. Free with ltn_access_free (NULL-safe) after
 * the servers that use it. */
int ltn_access_new(const struct ltn_access_conf *conf, struct ltn_access **ret,
                   struct ltn_errinfo *info) ltn_must_check;
void ltn_access_free(struct ltn_access *a);

/* Whether that combination makes sense, without reading a file. LTN_ERR_CONFIG. */
int ltn_access_check(const struct ltn_access_conf *conf, struct ltn_errinfo *info) ltn_must_check;

/* Puts TLS and the check of credentials into a server's configuration. */
void ltn_access_guard_otlp(struct ltn_access *a, struct ltn_http_conf *hc);
void ltn_access_guard_api(struct ltn_access *a, struct ltn_http_conf *hc);

/* True when the API asks for a token. */
bool ltn_access_has_tokens(const struct ltn_access *a);

/* Reads all files again. */
void ltn_access_reload(struct ltn_access *a);

/* Reads again what has changed; cheap, to be called every few seconds. */
void ltn_access_poll(struct ltn_access *a);

struct ltn_access_stats {
    uint64_t reloads, reload_failures; /* of token file or certificates */
    uint64_t tokens;
    int64_t cert_expires_s; /* Unix time; 0: no certificate */
};

void ltn_access_stats(const struct ltn_access *a, struct ltn_access_stats *ret);

#endif /* LTN_ACCESS_ACCESS_H */
