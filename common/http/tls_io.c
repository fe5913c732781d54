/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes through a TLS session on a non-blocking socket. */
#include <errno.h>
#include <limits.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/socket.h>

#include "base/text.h"
#include "http/tls_int.h"

/* ---- the socket, as OpenSSL wants it; its own raises SIGPIPE ---- */

static int fd_of(BIO *b)
{
    return (int)(intptr_t)BIO_get_data(b);
}

static int on_write(BIO *b, const char *src, int n)
{
    BIO_clear_retry_flags(b);
    for (;;) {
        ssize_t sent = send(fd_of(b), src, (size_t)n, MSG_NOSIGNAL);
        if (sent >= 0) {
            return (int)sent;
        }
        if (errno == EAGAIN || errno == EWOULDBLOCK) {
            BIO_set_retry_write(b);
        }
        if (errno != EINTR) {
            return -1;
        }
    }
}

static int on_read(BIO *b, char *dst, int n)
{
    BIO_clear_retry_flags(b);
    for (;;) {
        ssize_t got = recv(fd_of(b), dst, (size_t)n, 0);
        if (got == 0) {
            BIO_set_flags(b, BIO_FLAGS_IN_EOF);
        }
        if (got >= 0) {
            return (int)got;
        }
        if (errno == EAGAIN || errno == EWOULDBLOCK) {
            BIO_set_retry_read(b);
        }
        if (errno != EINTR) {
            return -1;
        }
    }
}

static long on_ctrl(BIO *b, int cmd, long num, void *ptr)
{
    (void)num, (void)ptr;
    switch (cmd) {
    case BIO_CTRL_FLUSH:
        return 1;
    case BIO_CTRL_EOF:
        return BIO_test_flags(b, BIO_FLAGS_IN_EOF) != 0;
    default:
        return 0;
    }
}

static BIO_METHOD *method;

static void make_method(void)
{
    BIO_METHOD *m = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "socket");
    if (m != NULL && BIO_meth_set_write(m, on_write) == 1 && BIO_meth_set_read(m, on_read) == 1 &&
        BIO_meth_set_ctrl(m, on_ctrl) == 1) {
        method = m; /* for the life of the process */
    } else {
        BIO_meth_free(m);
    }
}

bool ltn_tls_set_socket(SSL *ssl, int fd)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, make_method);
    BIO *b = method != NULL ? BIO_new(method) : NULL;
    if (b == NULL) {
        return false;
    }
    BIO_set_data(b, (void *)(intptr_t)fd);
    BIO_set_init(b, 1);
    SSL_set_bio(ssl, b, b); /* takes it */
    return true;
}

/* ---- sessions ---- */

#define MAX_RECORDS 64 /* of one read, however small they are */

int ltn_tls_handshake(SSL *ssl, bool *ret_want_write)
{
    ERR_clear_error();
    int n = SSL_do_handshake(ssl);
    *ret_want_write = false;
    if (n == 1) {
        return 1;
    }
    switch (SSL_get_error(ssl, n)) {
    case SSL_ERROR_WANT_READ:
        return 0;
    case SSL_ERROR_WANT_WRITE:
        *ret_want_write = true;
        return 0;
    default:
        return -ECONNABORTED;
    }
}

/* What SSL_read or SSL_write said, as an errno; 0: the peer has ended its side. */
static ssize_t failure(SSL *ssl, int n)
{
    int saved = errno;
    switch (SSL_get_error(ssl, n)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
        return -EAGAIN;
    case SSL_ERROR_ZERO_RETURN:
        return 0;
    case SSL_ERROR_SYSCALL:
        return saved != 0 ? -saved : -ECONNRESET;
    default:
        return -EPROTO;
    }
}

ssize_t ltn_tls_read(SSL *ssl, uint8_t *dst, size_t n)
{
    size_t done = 0;
    for (int i = 0; i < MAX_RECORDS; i++) {
        size_t room = n - done;
        /* A record that fits only in part would leave bytes that no poll() tells of. */
        if (done > 0 && room < LTN_TLS_RECORD_BYTES) {
            break;
        }
        ERR_clear_error();
        errno = 0;
        int got = SSL_read(ssl, dst + done, (int)(room < INT_MAX ? room : INT_MAX));
        if (got <= 0) {
            ssize_t rc = failure(ssl, got);
            if (done == 0) {
                return rc;
            }
            if (rc != -EAGAIN) {
                /* The session has ended behind these bytes: that is said by the next call, which
                 * a socket that counts as ended brings about. */
                (void)shutdown(fd_of(SSL_get_rbio(ssl)), SHUT_RD);
            }
            break;
        }
        done += (size_t)got;
    }
    return (ssize_t)done;
}

ssize_t ltn_tls_write(SSL *ssl, const uint8_t *src, size_t n)
{
    if (n == 0) {
        return 0;
    }
    ERR_clear_error();
    errno = 0;
    int sent = SSL_write(ssl, src, (int)(n < INT_MAX ? n : INT_MAX));
    if (sent > 0) {
        return sent;
    }
    ssize_t rc = failure(ssl, sent);
    return rc != 0 ? rc : -EPIPE;
}

void ltn_tls_reason(SSL *ssl, char *out, size_t size)
{
    unsigned long code = ERR_peek_last_error();
    const char *text = code != 0 ? ERR_reason_error_string(code) : NULL;
    long verify = SSL_get_verify_result(ssl);
    if (verify != X509_V_OK &&
        (code == 0 || ERR_GET_REASON(code) == SSL_R_CERTIFICATE_VERIFY_FAILED)) {
        text = X509_verify_cert_error_string(verify);
    }
    (void)snprintf(out, size, "%s", text != NULL ? text : "connection ended by the peer");
    ERR_clear_error();
}
