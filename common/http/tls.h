/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Certificates and keys for TLS, both sides. What is read from files can be read again while it is
 * in use: connections that stand go on with what they began with, a file that cannot be used leaves
 * everything as it was. TLS 1.2 and newer, no renegotiation, no compression.
 */
#ifndef LTN_HTTP_TLS_H
#define LTN_HTTP_TLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/attr.h"
#include "base/err.h"

/* Longest identity kept, with its terminator. */
#define LTN_TLS_IDENTITY_BYTES 256

struct ltn_tls_server;

struct ltn_tls_server_conf {
    const char *cert_file;      /* PEM, the server's own first, then its issuers */
    const char *key_file;       /* PEM, without a password */
    const char *client_ca_file; /* PEM; NULL: clients are not asked for a certificate */
    bool require_client_cert;   /* the handshake fails without one; else it may be left out */
    /* Names a client's certificate may have, any of them: "DNS:*.nodes.example",
     * "URI:spiffe://example/agent/" + "*"; '*' stands for any text. 0: any name. */
    const char *const *allow;
    size_t allow_count;
};

/* Reads the files. Everything of conf is copied. 0, LTN_ERR_CONFIG, -errno, -ENOMEM with the reason
 * in *info. Free with ltn_tls_server_free once no HTTP server uses it any more. */
int ltn_tls_server_new(const struct ltn_tls_server_conf *conf, struct ltn_tls_server **ret,
                       struct ltn_errinfo *info) ltn_must_check;
void ltn_tls_server_free(struct ltn_tls_server *t); /* NULL is ignored */

/* Reads the files again, also unchanged ones (the keys of session tickets are made anew with them).
 * On failure what was read before stays in use. 0, or as ltn_tls_server_new. Any thread. */
int ltn_tls_server_reload(struct ltn_tls_server *t, struct ltn_errinfo *info) ltn_must_check;

/* The same only when a file has changed since it was last tried, or an hour has passed. 1: read
 * anew, 0: nothing to do, negative: failed. Cheap; to be called every few seconds. Any one thread
 * at a time. */
int ltn_tls_server_poll(struct ltn_tls_server *t, struct ltn_errinfo *info) ltn_must_check;

/* Unix time at which the certificate in use ends. Any thread. */
int64_t ltn_tls_server_expires_s(struct ltn_tls_server *t);

/* True when the name fits a pattern as of ltn_tls_server_conf.allow: same kind, '*' for any text.
 * DNS names without regard to case. */
bool ltn_tls_name_fits(const char *pattern, const char *name);

struct ltn_tls_client;

struct ltn_tls_client_conf {
    const char *ca_file;   /* PEM; NULL: the system's */
    const char *cert_file; /* PEM; NULL: none is shown */
    const char *key_file;  /* PEM; NULL: in cert_file */
    bool insecure;         /* the server's certificate is not checked */
};

/* Reads the files; they are read again for a new connection when they have changed, and when that
 * fails the old ones stay in use. Everything is copied. LTN_ERR_CONFIG, -errno, -ENOMEM. Free with
 * ltn_tls_client_free (NULL-safe). One thread at a time. */
int ltn_tls_client_new(const struct ltn_tls_client_conf *conf, struct ltn_tls_client **ret,
                       struct ltn_errinfo *info) ltn_must_check;
void ltn_tls_client_free(struct ltn_tls_client *t);

#endif /* LTN_HTTP_TLS_H */
