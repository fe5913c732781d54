/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The transport of a server with a certificate: the first byte tells a TLS record from cleartext,
 * then it is one or the other for good. Loop thread.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "http/server-internals.h"
#include "http/tls_int.h"

#define RECORD_HANDSHAKE 0x16

enum phase {
    FIRST,     /* nothing was read yet */
    HANDSHAKE, /* TLS, not yet agreed */
    SECURE,
    PLAIN,
    REFUSED, /* the peer was told why; what it sends is thrown away */
};

struct secure {
    int fd;
    enum phase phase;
    bool want_write; /* the handshake waits for room, not for bytes */
    struct conn *conn;
    SSL *ssl;
    char *identity; /* NULL: none */
};

static const char told_cleartext[] = "HTTP/1.1 400 Bad Request\r\n"
                                     "Content-Type: text/plain; charset=utf-8\r\n"
                                     "Content-Length: 26\r\n"
                                     "Connection: close\r\n"
                                     "\r\n"
                                     "this port speaks TLS only\n";

static bool from_loopback(const struct conn *c)
{
    static const uint8_t mapped[13] = {[10] = 0xff, [11] = 0xff, [12] = 127};
    static const uint8_t one[16] = {[15] = 1};
    return memcmp(c->ip, mapped, sizeof(mapped)) == 0 || memcmp(c->ip, one, sizeof(one)) == 0;
}

static ssize_t plain(const struct secure *s, uint8_t *dst, size_t n, int flags)
{
    for (;;) {
        ssize_t got = recv(s->fd, dst, n, flags);
        if (got >= 0) {
            return got;
        }
        if (errno != EINTR) {
            return errno == EWOULDBLOCK ? -EAGAIN : -errno;
        }
    }
}

static ssize_t begin_tls(struct secure *s)
{
    struct ltn_http_server *server = s->conn->server;
    if (!ltn_bucket_take(&server->handshakes, 1, ltn_loop_now_ns(server->loop))) {
        LTN_COUNT(server, tls_handshakes_limited);
        return -ECONNREFUSED;
    }
    s->ssl = ltn_tls_accept(server->conf.tls, s->fd);
    if (s->ssl == NULL) {
        return -ENOMEM;
    }
    s->phase = HANDSHAKE;
    return 0;
}

/* Decides by the first byte. 0, or what the read is to return, negative. */
static ssize_t look(struct secure *s)
{
    struct ltn_http_server *server = s->conn->server;
    uint8_t first = 0;
    ssize_t n = plain(s, &first, 1, MSG_PEEK);
    if (n <= 0) {
        return n < 0 ? n : -ECONNRESET; /* came and went: nothing to tell it */
    }
    if (first == RECORD_HANDSHAKE) {
        return begin_tls(s);
    }
    if (server->conf.tls_required && !from_loopback(s->conn)) {
        LTN_COUNT(server, cleartext_refused);
        ssize_t sent = send(s->fd, told_cleartext, sizeof(told_cleartext) - 1, MSG_NOSIGNAL);
        (void)sent; /* a courtesy */
        s->phase = REFUSED;
        return -ECONNABORTED;
    }
    s->phase = PLAIN;
    return 0;
}

/* 0, or what the read is to return, negative. */
static ssize_t agree(struct secure *s)
{
    struct ltn_http_server *server = s->conn->server;
    int rc = ltn_tls_handshake(s->ssl, &s->want_write);
    if (rc == 0) {
        return -EAGAIN;
    }
    s->want_write = false;
    if (rc < 0) {
        LTN_COUNT(server, tls_handshakes_failed);
        s->phase = REFUSED;
        return -ECONNABORTED;
    }
    char name[LTN_TLS_IDENTITY_BYTES];
    ltn_tls_identity(s->ssl, name);
    if (name[0] != '\0') {
        s->identity = strdup(name);
        if (s->identity == NULL) {
            return -ENOMEM;
        }
    }
    LTN_COUNT(server, connections_tls);
    s->phase = SECURE;
    return 0;
}

static ssize_t secure_read(void *state, uint8_t *dst, size_t n)
{
    struct secure *s = state;
    ssize_t rc = s->phase == FIRST ? look(s) : 0;
    if (rc == 0 && s->phase == HANDSHAKE) {
        rc = agree(s);
    }
    if (rc != 0) {
        return rc;
    }
    return s->phase == SECURE ? ltn_tls_read(s->ssl, dst, n) : plain(s, dst, n, 0);
}

static ssize_t secure_write(void *state, const uint8_t *src, size_t n)
{
    struct secure *s = state;
    if (s->phase == SECURE) {
        return ltn_tls_write(s->ssl, src, n);
    }
    if (s->phase != PLAIN) {
        return -EAGAIN;
    }
    for (;;) {
        ssize_t sent = send(s->fd, src, n, MSG_NOSIGNAL);
        if (sent >= 0) {
            return sent;
        }
        if (errno != EINTR) {
            return errno == EWOULDBLOCK ? -EAGAIN : -errno;
        }
    }
}

static void secure_shutdown(void *state)
{
    struct secure *s = state;
    if (s->phase == SECURE) {
        (void)SSL_shutdown(s->ssl);
        s->phase = REFUSED; /* what still comes is not looked at */
    }
    (void)shutdown(s->fd, SHUT_WR);
}

static void secure_close(void *state)
{
    struct secure *s = state;
    SSL_free(s->ssl);
    close(s->fd);
    free(s->identity);
    free(s);
}

struct ltn_transport ltn_transport_tls(struct conn *c, int fd)
{
    struct secure *s = calloc(1, sizeof(*s));
    if (s == NULL) {
        return (struct ltn_transport){.read = NULL};
    }
    s->fd = fd;
    s->conn = c;
    return (struct ltn_transport){
        .read = secure_read,
        .write = secure_write,
        .shutdown = secure_shutdown,
        .close = secure_close,
        .state = s,
    };
}

/* The state behind the connection's transport; NULL when it is a plain one. */
static const struct secure *secure_of(const struct conn *c)
{
    return c->transport.read == secure_read ? c->transport.state : NULL;
}

bool ltn_conn_in_handshake(const struct conn *c, bool *ret_want_write)
{
    const struct secure *s = secure_of(c);
    bool in = s != NULL && s->phase == HANDSHAKE;
    *ret_want_write = in && s->want_write;
    return in;
}

bool ltn_conn_alpn_denies(const struct conn *c, bool h2)
{
    const struct secure *s = secure_of(c);
    const unsigned char *name = NULL;
    unsigned int n = 0;
    if (s == NULL || s->phase != SECURE) {
        return false;
    }
    SSL_get0_alpn_selected(s->ssl, &name, &n);
    return n > 0 && (n == 2 && memcmp(name, "h2", 2) == 0) != h2;
}

const char *ltn_http_identity(const struct ltn_http_request *req)
{
    const struct secure *s = req->conn != NULL ? secure_of(req->conn) : NULL;
    return s != NULL && s->identity != NULL ? s->identity : "";
}

bool ltn_conn_is_secure(const struct conn *c)
{
    const struct secure *s = secure_of(c);
    return s != NULL && s->phase == SECURE;
}
