/* SPDX-License-Identifier: Apache-2.0 */
/* A target made ready: address, headers, and the client that talks to it. Push thread only. */
#ifndef LTN_PUSH_TARGET_H
#define LTN_PUSH_TARGET_H

#include "http/client.h"
#include "http/tls.h"
#include "push/push.h"

struct ltn_push_header {
    char name[128]; /* lower case */
    char value[1024];
};

struct ltn_push_sender {
    bool enabled;
    bool grpc;
    char address[LTN_PUSH_ENDPOINT_BYTES + 16]; /* "host:port", or the URL */
    const char *path;                           /* gRPC method */
    struct ltn_push_header headers[LTN_PUSH_MAX_HEADERS];
    size_t header_count;
    _Atomic uint64_t *cut_ns; /* as of struct ltn_grpc_call; set by the owner, NULL: none */
    uint64_t timeout_ns;
    bool gzip, zstd;
    char ca_file[LTN_PUSH_ENDPOINT_BYTES];
    char cert_file[LTN_PUSH_ENDPOINT_BYTES], key_file[LTN_PUSH_ENDPOINT_BYTES];
    bool secure;                /* gRPC over TLS */
    struct ltn_tls_client *tls; /* of grpc_client */
    struct ltn_grpc_client *grpc_client;
    struct ltn_http_client *http_client;
};

enum ltn_push_outcome { LTN_PUSH_SENT, LTN_PUSH_REFUSED, LTN_PUSH_RETRY };

struct ltn_push_answer {
    enum ltn_push_outcome outcome;
    bool wrong_credentials;  /* why it is to be tried again */
    uint64_t retry_after_ns; /* the collector's wish */
    uint64_t rejected_points;
    char message[160];
    char verdict[256]; /* "" when none was given */
};

/* How the target is spoken to. */
bool ltn_push_over_grpc(const struct ltn_push_target *t);

/* Works out the address and headers, reads the certificates. LTN_ERR_CONFIG, -errno. */
int ltn_push_sender_init(struct ltn_push_sender *s, const struct ltn_push_target *t,
                         enum ltn_record_signal signal, struct ltn_errinfo *info) ltn_must_check;
void ltn_push_sender_done(struct ltn_push_sender *s);

/* Sends one request; blocks for at most the timeout. token "" for none. */
void ltn_push_send(struct ltn_push_sender *s, const char *token, const void *bytes, size_t n,
                   struct ltn_push_answer *ret);

#endif /* LTN_PUSH_TARGET_H */
