/* SPDX-License-Identifier: Apache-2.0 */
/* TLS inside the room: sessions made from what tls.h holds, and moving bytes through them. */
#ifndef LTN_HTTP_TLS_INT_H
#define LTN_HTTP_TLS_INT_H

#include <openssl/ssl.h>
#include <sys/types.h>

#include "http/tls.h"

/* A server's session on a connected socket, which stays the caller's. NULL when memory is out. Any
 * thread. */
SSL *ltn_tls_accept(struct ltn_tls_server *t, int fd) ltn_must_check;

/* A client's session that wants a certificate for name (a host name or an address). NULL when
 * memory is out. */
SSL *ltn_tls_connect(struct ltn_tls_client *t, int fd, const char *name) ltn_must_check;

/* Gives a session its socket, which stays the caller's. False when memory is out. */
bool ltn_tls_set_socket(SSL *ssl, int fd) ltn_must_check;

/* One step of the handshake: 1 when it is over, 0 when the socket must become ready for
 * *ret_want_write or else reading, negative when it failed. */
int ltn_tls_handshake(SSL *ssl, bool *ret_want_write) ltn_must_check;

/* As recv() and send() on a non-blocking socket. Bytes of whole records only: what is left is with
 * the socket, not hidden in the session, as long as n is at least LTN_TLS_RECORD_BYTES. */
#define LTN_TLS_RECORD_BYTES ((size_t)16 * 1024)
ssize_t ltn_tls_read(SSL *ssl, uint8_t *dst, size_t n);
ssize_t ltn_tls_write(SSL *ssl, const uint8_t *src, size_t n);

/* Who the peer's certificate says it is: the first name in it that the server's list allows, else
 * its first; "DNS:..." or "URI:...", without such names "CN:...". "" without a certificate. */
void ltn_tls_identity(SSL *ssl, char out[LTN_TLS_IDENTITY_BYTES]);

/* Why the last call on this thread failed, in words; also empties OpenSSL's queue. */
void ltn_tls_reason(SSL *ssl, char *out, size_t size);

#endif /* LTN_HTTP_TLS_INT_H */
