/* SPDX-License-Identifier: Apache-2.0 */
/* What the two halves of the gRPC client share: unary calls (client_grpc.c) and streams
 * (client_stream.c). */
#ifndef LTN_HTTP_CLIENT_INTERNALS_H
#define LTN_HTTP_CLIENT_INTERNALS_H

#include <nghttp2/nghttp2.h>
#include <openssl/ssl.h>
#include <sys/types.h>

#include "base/buf.h"
#include "http/client.h"
#include "http/grpc.h"
#include "http/head.h"

#define MAX_HEADER_BYTES (32 * 1024)
#define MAX_HEADERS      128
#define MAX_METADATA     64
#define READ_BYTES       (64 * 1024)

struct ltn_grpc_stream;

struct ltn_grpc_client {
    char *host;
    char port[8];
    char *authority;
    char *user_agent;
    char *authorization; /* "Bearer ..."; NULL: none */
    bool gzip, zstd;     /* one at most */
    uint64_t connect_timeout_ns;
    uint64_t max_age_ns;
    _Atomic uint64_t *cut_ns; /* of the present call; NULL: none */

    struct ltn_tls_client *tls; /* borrowed; NULL: cleartext */
    char *tls_name;             /* that the server's certificate must have */

    int fd;
    SSL *ssl;
    nghttp2_session *ng;
    uint64_t connected_ns;
    bool goaway; /* no further call on this connection */
    bool broken; /* the connection failed */
    const uint8_t *pending;
    size_t pending_len;

    /* the call */
    int32_t stream;
    bool closed;
    uint32_t close_code;
    bool head_sent;
    bool heard; /* anything came from the peer during this call */
    struct ltn_head *fields;
    struct ltn_grpc_frame frame;
    bool message_complete;
    int body_rc;
    uint8_t prefix[LTN_GRPC_PREFIX_BYTES];
    size_t prefix_pos;
    const uint8_t *body;
    size_t body_len;
    size_t body_pos;
    struct ltn_grpc_stream *live; /* the call is a stream: it gets the bytes */
    struct ltn_buf zipped;
    struct ltn_buf message;
    char reason[160];
    uint8_t scratch[READ_BYTES];
};

nghttp2_nv ltn_client_nv(const char *name, const char *value);
/* Waits for events of one descriptor until the deadline. 1, 0 on timeout. */
int ltn_client_wait(const struct ltn_grpc_client *c, int fd, short events, uint64_t deadline_ns);
int ltn_client_connect(struct ltn_grpc_client *c, uint64_t deadline_ns) ltn_must_check;
void ltn_client_fail(struct ltn_grpc_client *c, const char *what, int error);
/* client_tls.c: agrees on TLS on the new connection, when there is to be any. 0, LTN_ERR_*,
 * -ENOMEM, with the reason in the client. */
int ltn_client_handshake(struct ltn_grpc_client *c, uint64_t deadline_ns) ltn_must_check;
void ltn_client_end_tls(struct ltn_grpc_client *c);
/* Bytes moved, 0: the peer has ended its side, or -errno; -EAGAIN: wait for the descriptor. */
ssize_t ltn_client_recv(struct ltn_grpc_client *c, uint8_t *dst, size_t n);
ssize_t ltn_client_write(struct ltn_grpc_client *c, const uint8_t *src, size_t n);
/* The connection failed with what one of the two returned. */
void ltn_client_lost(struct ltn_grpc_client *c, const char *what, ssize_t rc);
/* Sends what the socket takes; true when more waits for it. */
bool ltn_client_send(struct ltn_grpc_client *c);
/* Reads and digests what is there. */
void ltn_client_receive(struct ltn_grpc_client *c);
/* Forgets the last call. 0 or -ENOMEM. */
int ltn_client_reset(struct ltn_grpc_client *c) ltn_must_check;
/* True when the connection may carry another call. */
bool ltn_client_usable(struct ltn_grpc_client *c);

/* Bytes of the answer of a call that is a stream. */
void ltn_client_stream_data(struct ltn_grpc_stream *s, const uint8_t *p, size_t n);

#endif /* LTN_HTTP_CLIENT_INTERNALS_H */
