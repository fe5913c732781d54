/* SPDX-License-Identifier: Apache-2.0 */
/* The gRPC client's bytes, through TLS or not. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "http/client-internals.h"
#include "http/tls_int.h"

static bool agreed_on_h2(SSL *ssl)
{
    const unsigned char *name = NULL;
    unsigned int n = 0;
    SSL_get0_alpn_selected(ssl, &name, &n);
    return n == 2 && memcmp(name, "h2", 2) == 0;
}

static int failed(struct ltn_grpc_client *c, const char *why)
{
    (void)snprintf(c->reason, sizeof(c->reason), "TLS with %.60s: %.80s", c->tls_name, why);
    return LTN_ERR_UNAVAILABLE;
}

int ltn_client_handshake(struct ltn_grpc_client *c, uint64_t deadline_ns)
{
    if (c->tls == NULL) {
        return 0;
    }
    c->ssl = ltn_tls_connect(c->tls, c->fd, c->tls_name);
    if (c->ssl == NULL) {
        return -ENOMEM;
    }
    for (;;) {
        bool want_write = false;
        int rc = ltn_tls_handshake(c->ssl, &want_write);
        if (rc == 1) {
            break;
        }
        if (rc < 0) {
            char why[96];
            ltn_tls_reason(c->ssl, why, sizeof(why));
            return failed(c, why);
        }
        if (ltn_client_wait(c, c->fd, want_write ? POLLOUT : POLLIN, deadline_ns) == 0) {
            (void)failed(c, "no answer to the handshake");
            return LTN_ERR_TIMEOUT;
        }
    }
    return agreed_on_h2(c->ssl) ? 0 : failed(c, "the server does not speak HTTP/2");
}

void ltn_client_end_tls(struct ltn_grpc_client *c)
{
    if (c->ssl == NULL) {
        return;
    }
    if (!c->broken && SSL_is_init_finished(c->ssl)) {
        (void)SSL_shutdown(c->ssl);
    }
    SSL_free(c->ssl);
    c->ssl = NULL;
}

ssize_t ltn_client_recv(struct ltn_grpc_client *c, uint8_t *dst, size_t n)
{
    if (c->ssl != NULL) {
        return ltn_tls_read(c->ssl, dst, n);
    }
    ssize_t got;
    do {
        got = recv(c->fd, dst, n, 0);
    } while (got < 0 && errno == EINTR);
    if (got >= 0) {
        return got;
    }
    return errno == EWOULDBLOCK ? -EAGAIN : -errno;
}

ssize_t ltn_client_write(struct ltn_grpc_client *c, const uint8_t *src, size_t n)
{
    if (c->ssl != NULL) {
        return ltn_tls_write(c->ssl, src, n);
    }
    ssize_t sent;
    do {
        sent = send(c->fd, src, n, MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    if (sent >= 0) {
        return sent;
    }
    return errno == EWOULDBLOCK ? -EAGAIN : -errno;
}

void ltn_client_lost(struct ltn_grpc_client *c, const char *what, ssize_t rc)
{
    char why[96];
    if (c->ssl != NULL && rc == -EPROTO) { /* an alert of the peer says more than an errno */
        ltn_tls_reason(c->ssl, why, sizeof(why));
        c->broken = true;
        (void)failed(c, why);
        return;
    }
    ltn_client_fail(c, what, (int)-rc);
}
