/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocking clients for a worker thread: gRPC over h2c or TLS, and HTTP through libcurl. Each call
 * has a deadline and ends by it; a dead peer is a retryable error, never a hang. A client belongs
 * to one thread at a time. Looking up a host name follows the limits of the system resolver, which
 * a deadline cannot cut short; addresses in numbers are not looked up.
 */
#ifndef LTN_HTTP_CLIENT_H
#define LTN_HTTP_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/attr.h"
#include "base/err.h"

struct ltn_tls_client;

/* ---- gRPC ---- */

struct ltn_grpc_client;

struct ltn_grpc_client_conf {
    const char *target;          /* "host:port"; IPv6 in brackets. Copied. */
    const char *authority;       /* :authority; NULL: target. Copied. */
    const char *user_agent;      /* NULL: "lanterne/VERSION". Copied. */
    const char *bearer_token;    /* NULL: none. Copied. */
    bool gzip;                   /* compress requests */
    bool zstd;                   /* instead of gzip */
    uint64_t connect_timeout_ns; /* 0: 5 s; never beyond a call's deadline */
    uint64_t max_age_ns;         /* reconnect (and resolve again) after this; 0: never */
    size_t max_response_bytes;   /* 0: 4 MiB */
    struct ltn_tls_client
        *tls; /* from http/tls.h; NULL: cleartext. Borrowed for the client's life. */
    const char
        *server_name; /* name in the server's certificate; NULL: the target's host. Copied. */
};

/* Creates a client; connects at the first call. 0, -EINVAL, -ENOMEM. Free with
 * ltn_grpc_client_free (NULL-safe). */
int ltn_grpc_client_new(const struct ltn_grpc_client_conf *conf,
                        struct ltn_grpc_client **ret_client) ltn_must_check;
void ltn_grpc_client_free(struct ltn_grpc_client *c);

struct ltn_grpc_field {
    const char *name; /* lower case */
    const char *value;
};

struct ltn_grpc_call {
    const char *path; /* "/package.Service/Method" */
    const void *body; /* one message; borrowed */
    size_t body_len;
    uint64_t timeout_ns; /* whole call with connect; also sent as grpc-timeout. Must not be 0. */
    /* NULL, or: the call ends with a timeout soon after this time (ltn_now_mono_ns; 0: none), which
     * another thread may set at any moment. Looking a name up is not cut short. */
    _Atomic uint64_t *cut_ns;
    const struct ltn_grpc_field *metadata; /* borrowed */
    size_t metadata_count;
};

/* Outcome of a call; belongs to the client and is valid until its next call. */
struct ltn_grpc_result {
    int status;          /* gRPC code; local failures: 14, 4 (deadline), 8 (response too large) */
    const char *message; /* decoded grpc-message or local reason; never NULL */
    const uint8_t *body; /* message of the response */
    size_t body_len;
    bool retry;              /* the same call may be tried again later */
    uint64_t retry_after_ns; /* the server's wish; 0: none given */
    bool sent;               /* false: the request certainly did not reach a handler */
};

/* Performs a unary call. 0 when the server answered with status 0; LTN_ERR_TIMEOUT,
 * LTN_ERR_UNAVAILABLE (no connection, reset, GOAWAY, peer gone), LTN_ERR_TOO_LARGE,
 * LTN_ERR_MALFORMED, -ENOMEM, or the LTN_ERR_* nearest to the server's status. *ret is always
 * filled. */
int ltn_grpc_client_call(struct ltn_grpc_client *c, const struct ltn_grpc_call *call,
                         struct ltn_grpc_result *ret) ltn_must_check;

/* Header or trailer of the last response, name in lower case; NULL when absent. "-bin" values are
 * as sent (base64). Valid until the next call. */
const char *ltn_grpc_client_metadata(const struct ltn_grpc_client *c, const char *name);

/* Closes the connection; the next call opens a new one. */
void ltn_grpc_client_disconnect(struct ltn_grpc_client *c);

/* ---- gRPC streams ---- */

struct ltn_grpc_stream;

struct ltn_grpc_stream_conf {
    const char *path;                      /* "/package.Service/Method" */
    uint64_t timeout_ns;                   /* to connect and send the head; must not be 0 */
    _Atomic uint64_t *cut_ns;              /* as of a call, for connecting and the head */
    size_t max_in_bytes;                   /* one message received; 0: 1 MiB */
    size_t max_out_bytes;                  /* all messages that wait to be sent; 0: 1 MiB */
    const struct ltn_grpc_field *metadata; /* borrowed during the call */
    size_t metadata_count;
    void (*message)(void *arg, const uint8_t *p, size_t n); /* borrowed message */
    void *arg;
};

/* Opens a bidirectional stream on a client, which it occupies until ltn_grpc_stream_close: there
 * are no unary calls meanwhile. 0, or an error of ltn_grpc_client_call with the reason in *info. */
int ltn_grpc_stream_open(struct ltn_grpc_client *c, const struct ltn_grpc_stream_conf *conf,
                         struct ltn_grpc_stream **ret_stream,
                         struct ltn_errinfo *info) ltn_must_check;

/* Queues a message. 0, LTN_ERR_BUSY when max_out_bytes would be passed, LTN_ERR_CLOSED, -ENOMEM. */
int ltn_grpc_stream_send(struct ltn_grpc_stream *s, const void *p, size_t n) ltn_must_check;

/* Bytes that wait to be taken by the connection and the peer. */
size_t ltn_grpc_stream_waiting(const struct ltn_grpc_stream *s);

/* Moves bytes for at most timeout_ms, calling message for what arrives; returns early when wake_fd
 * (-1: none) is readable or something was moved. 0 while the stream is open; LTN_ERR_CLOSED when
 * the peer ended it or the connection is gone. */
int ltn_grpc_stream_run(struct ltn_grpc_stream *s, int wake_fd, int timeout_ms) ltn_must_check;

/* True when the peer asked for no more calls on this connection: open another soon. */
bool ltn_grpc_stream_leaving(const struct ltn_grpc_stream *s);

/* How it ended: the gRPC status and a message; *ret->message is valid until the client's next
 * call. */
void ltn_grpc_stream_result(struct ltn_grpc_stream *s, struct ltn_grpc_result *ret);

/* Takes the call back if it is still open, sends what that needs, closes the connection and frees
 * the stream. NULL is ignored. */
void ltn_grpc_stream_close(struct ltn_grpc_stream *s);

/* ---- HTTP ---- */

struct ltn_http_client;

/* Creates a client that keeps connections between calls. NULL when memory is out or libcurl, loaded
 * by the first call, is missing. Free with ltn_http_client_free (NULL-safe). */
struct ltn_http_client *ltn_http_client_new(void) ltn_must_check;
void ltn_http_client_free(struct ltn_http_client *c);

struct ltn_http_call {
    const char *method; /* NULL: POST with a body, else GET */
    const char *url;    /* http:// or https:// */
    const void *body;   /* borrowed */
    size_t body_len;
    const char *content_type;   /* of the body; NULL: none */
    const char *bearer_token;   /* NULL: none */
    const char *const *headers; /* "Name: value" lines, NULL-terminated; NULL: none */
    uint64_t timeout_ns;        /* whole call; must not be 0 */
    size_t max_response_bytes;  /* 0: 4 MiB */
    bool gzip;                  /* compress the body */
    bool zstd;                  /* instead of gzip */
    const char *user_agent;     /* NULL: "lanterne/VERSION" */
    const char *ca_file;        /* NULL: the system's */
    const char *cert_file;      /* client certificate, PEM; NULL: none */
    const char *key_file;       /* its key; NULL: in cert_file */
    bool insecure;              /* skip certificate checks */
    bool follow;                /* follow up to 5 redirects (GET only) */
    _Atomic uint64_t *cut_ns;   /* as of struct ltn_grpc_call */
};

/* Outcome; belongs to the client and is valid until its next call. */
struct ltn_http_result {
    int status;               /* HTTP status; 0 when there was no answer */
    const char *content_type; /* "" when none */
    const uint8_t *body;      /* followed by a NUL that does not count */
    size_t body_len;
    bool retry;              /* no answer, 429, 502, 503 or 504 */
    uint64_t retry_after_ns; /* Retry-After, seconds or date; 0: none */
    char error[256];         /* reason in words when there was no answer */
};

/* 0 for any 2xx; LTN_ERR_TIMEOUT, LTN_ERR_UNAVAILABLE, LTN_ERR_TOO_LARGE, -EINVAL, -ENOMEM, or the
 * LTN_ERR_* nearest to the HTTP status. *ret is always filled. */
int ltn_http_client_call(struct ltn_http_client *c, const struct ltn_http_call *call,
                         struct ltn_http_result *ret) ltn_must_check;

#endif /* LTN_HTTP_CLIENT_H */
