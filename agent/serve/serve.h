/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The node's HTTP API from the record: one thread for connections, one for the fixed reports and
 * one for statements of users, each with a short queue; what does not fit is answered 503. It reads
 * the database through connections of its own and never touches capture.
 */
#ifndef LTN_SERVE_SERVE_H
#define LTN_SERVE_SERVE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/attr.h"
#include "base/err.h"

struct ltn_serve;

struct ltn_serve_opts {
    const char *listen;     /* "127.0.0.1:8421"; port 0: chosen by the kernel */
    const char *token_file; /* bearer token that callers must send; "" or NULL: none */
    const char *db_path;    /* the record */
    const char *node;       /* name of this node; "" or NULL: as the record says */
    /* Certificate and key, PEM; then the API speaks TLS, and cleartext to this machine only. Read
     * again when they change. NULL or "": cleartext. */
    const char *cert_file, *key_file;
};

/* Listens and starts the threads. LTN_ERR_CONFIG when the address is reachable from elsewhere and
 * no token is given, or the token cannot be read; -errno when it cannot listen. Free with
 * ltn_serve_stop. Texts are copied. */
int ltn_serve_start(const struct ltn_serve_opts *opts, struct ltn_serve **ret,
                    struct ltn_errinfo *info) ltn_must_check;

/* Ends the threads and frees. Waits for a running statement (10 s at most). NULL is ignored. */
void ltn_serve_stop(struct ltn_serve *s);

/* The port it listens on. */
uint16_t ltn_serve_port(const struct ltn_serve *s);

#endif /* LTN_SERVE_SERVE_H */
