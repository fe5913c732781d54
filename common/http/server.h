/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HTTP server: gRPC, plain HTTP/2 and HTTP/1.1 on one port, over TLS or not, told apart by the
 * first bytes. A server belongs to the thread of its loop. Several servers (one loop and thread
 * each) may listen on the same address with reuse_port and share one budget.
 *
 * A handler gets a complete request: the body is whole, decompressed and, for gRPC, freed of its
 * framing. The handler owns the request until it gives it back with exactly one of the reply calls,
 * at once or later from any thread; so an acknowledgement can wait for a commit. When the peer has
 * gone meanwhile, the reply is dropped and counted.
 *
 * A gRPC route may also be a bidirectional stream: its owner is told of each message and may send
 * at any time, on the loop thread.
 */
#ifndef LTN_HTTP_SERVER_H
#define LTN_HTTP_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/attr.h"
#include "base/buf.h"
#include "base/err.h"
#include "io/loop.h"

struct ltn_http_server;
struct ltn_http_budget;
struct ltn_http_request;
struct ltn_http_stream_ops;
struct ltn_tls_server;

/* ---- configuration ---- */

/* Limits of one server. Every 0 in a size, count or time means "none" only where said. */
struct ltn_http_conf {
    /* connections */
    uint32_t max_connections;
    uint32_t max_connections_per_ip;
    uint64_t first_byte_timeout_ns; /* connect to first byte */
    uint64_t headers_timeout_ns;    /* first byte of a head to its end */
    uint64_t idle_timeout_ns;       /* between requests */
    uint64_t request_timeout_ns;    /* head to end of the body */
    uint64_t body_grace_ns;         /* slowness is not judged before */
    uint32_t body_min_bytes_per_s;  /* 0: not judged */
    uint64_t write_timeout_ns;      /* reply waiting and the peer takes nothing */
    uint64_t max_connection_age_ns; /* then a graceful close, +-10 %; 0: none */
    /* sizes */
    size_t max_body_bytes;   /* on the wire and, again, after decompression */
    size_t max_header_bytes; /* sum of name + value + 32 per field */
    uint32_t max_header_count;
    size_t max_response_bytes;
    size_t connection_budget_bytes; /* bodies held for one connection */
    uint32_t max_inflate_ratio;     /* judged above 1 MiB of output; 0: not judged */
    uint32_t zstd_window_log_max;
    /* HTTP/2 */
    uint32_t h2_max_streams;
    uint32_t h2_stream_window_bytes;
    uint32_t h2_connection_window_bytes;
    uint32_t h2_reset_burst; /* streams the peer may cancel at once, and per second */
    uint32_t h2_reset_per_s;
    uint32_t h2_nuisance_burst; /* PING, SETTINGS, PRIORITY, tiny DATA, ... without work done */
    uint32_t h2_nuisance_per_s;
    uint32_t h2_fault_burst; /* streams this side had to reset for the peer's faults */
    uint32_t h2_fault_per_s;
    uint64_t h2_ping_interval_ns; /* keepalives may come that often (10 % early is fine) while
                                     nothing is answered; 0: not judged */
    uint32_t h2_ping_strikes;     /* so many earlier ones, then GOAWAY "too_many_pings" */
    /* rates of each tenant: of the tag that authorize set or, without one, of the address; 0: none.
     * Beyond: 429 with a spread Retry-After, gRPC 14 with RetryInfo. Burst: two seconds' worth. */
    uint64_t tenant_requests_per_s;
    uint64_t tenant_bytes_per_s; /* of bodies on the wire */
    /* TLS */
    struct ltn_tls_server *tls; /* from http/tls.h; then each port speaks TLS and cleartext, told
                                   apart by the first byte. NULL: cleartext only. Borrowed for the
                                   server's life. */
    bool tls_required;          /* cleartext is refused unless it comes from this machine */
    uint64_t handshake_timeout_ns;
    uint32_t handshake_burst; /* handshakes that may begin at once, and per second */
    uint32_t handshake_per_s;
    /* overload: bodies in progress with handlers of protected routes (ltn_http_route.rested_ns);
     * beyond, requests wait at their head or are refused. 0: no such bound. */
    size_t protected_bytes;
    uint64_t burst_ns; /* some may wait for so long without a break before others are refused */
    uint32_t refusals_per_s; /* at most, of those; the others wait on. At least 1 */
    /* behaviour */
    bool reuse_port;
    bool grpc_health;        /* serve grpc.health.v1.Health */
    const char *server_name; /* Server header; NULL: none. Borrowed for the server's life. */
    uint32_t retry_after_s;  /* hint on 429 and 503 when the caller gives none; at least 1 */
    /* Called on the loop thread with the head of each request, before any byte of the body is
     * kept; not for routes with LTN_ROUTE_NO_AUTH. Returns 0 to let it pass or a code such as
     * LTN_ERR_UNAUTHENTICATED, LTN_ERR_FORBIDDEN, LTN_ERR_QUOTA, which is answered. May set
     * *ret_tag, kept with the request (ltn_http_tag). NULL: everybody may. */
    int (*authorize)(void *arg, const struct ltn_http_request *req, uint64_t *ret_tag);
    void *authorize_arg;
};

/* Fills in the defaults (64 MiB bodies, 16 KiB and 64 header fields, 100 streams, 5 s first byte,
 * 10 s head, 120 s idle, 1 KiB/s after 10 s, 30 min age). */
void ltn_http_conf_default(struct ltn_http_conf *conf);

/* Bytes that all servers of the process may hold in bodies together. Thread-safe; must outlive the
 * servers and their requests. NULL when memory is out. */
struct ltn_http_budget *ltn_http_budget_new(size_t max_bytes) ltn_must_check;
void ltn_http_budget_free(struct ltn_http_budget *b);
size_t ltn_http_budget_used(const struct ltn_http_budget *b);

/* ---- routes ---- */

enum ltn_http_method {
    LTN_HTTP_GET = 1, /* HEAD is answered from GET */
    LTN_HTTP_POST = 2,
    LTN_HTTP_PUT = 4,
    LTN_HTTP_DELETE = 8,
    LTN_HTTP_OPTIONS = 16,
    LTN_HTTP_PATCH = 32,
};

enum ltn_route_flag {
    LTN_ROUTE_PREFIX = 1,      /* path is a prefix; the longest match wins, exact before prefix */
    LTN_ROUTE_GRPC = 2,        /* unary gRPC method; path is "/package.Service/Method" */
    LTN_ROUTE_STATUS_BODY = 4, /* errors as google.rpc.Status in the request's type (OTLP) instead
                                  of {"error":{"code","message"}} */
    LTN_ROUTE_NO_AUTH = 8,     /* the authorize hook is not asked */
    LTN_ROUTE_GZIP = 16,       /* replies to GET are gzipped when the client accepts it */
    LTN_ROUTE_CODED = 32,      /* a compressed body is handed over as it came: the handler inflates
                                  it, where it likes, with ltn_http_inflate() */
};

/* Queues that routes may tell apart: ltn_http_route.rested_ns. */
#define LTN_HTTP_LANES 64

struct ltn_http_route {
    unsigned methods;          /* bits of ltn_http_method; ignored for gRPC */
    const char *path;          /* copied */
    unsigned flags;            /* bits of ltn_route_flag */
    const char *content_types; /* accepted media types, comma separated, lower case; else 415.
                                  NULL: any. Copied. */
    size_t max_body_bytes;     /* 0: the server's */
    /* When what will serve the peer's requests last had nothing to do, CLOCK_MONOTONIC, and in
     * *ret_lane which of the queues below LTN_HTTP_LANES that is; called with arg on the loop
     * thread at the head of a request. A route that has it is protected from overload: when it, or
     * the loop, has no rest, requests beyond what is soon answered wait at their head, without
     * their bodies over HTTP/2, and are refused as LTN_ERR_BUSY when that goes on for longer than a
     * burst. NULL: everybody is let in. */
    uint64_t (*rested_ns)(void *arg, const char *peer, unsigned *ret_lane);
    /* Called on the loop thread, must not block. Owns req until a reply call. */
    void (*handle)(void *arg, struct ltn_http_request *req);
    void *arg;
    /* With LTN_ROUTE_GRPC: the method is a bidirectional stream and handle is not used.
     * max_body_bytes is then the limit of one message. Borrowed for the server's life. */
    const struct ltn_http_stream_ops *stream;
};

/* ---- server ---- */

/* Creates a server on the loop with a copy of conf. budget may be NULL: one of 512 MiB of its own.
 * NULL when memory is out. */
struct ltn_http_server *ltn_http_server_new(struct ltn_loop *loop, const struct ltn_http_conf *conf,
                                            struct ltn_http_budget *budget) ltn_must_check;

/* Closes everything at once and frees the server. Requests still with handlers stay valid; their
 * replies are dropped (and no longer counted). Loop thread, before ltn_loop_free. NULL is ignored.
 */
void ltn_http_server_free(struct ltn_http_server *s);

/* Adds a route; before the first listen. 0, -EEXIST, -EINVAL, -ENOMEM. Loop thread. */
int ltn_http_server_route(struct ltn_http_server *s, const struct ltn_http_route *r) ltn_must_check;

/* Whether an address is of a form that ltn_http_server_listen takes; names are not looked up. 0 or
 * -EINVAL with the reason. Any thread. */
int ltn_http_address_check(const char *address, struct ltn_errinfo *info) ltn_must_check;

/* Listens on "127.0.0.1:4317", "[::1]:4317", ":4317" (all addresses, both families) or
 * "localhost:0" (port chosen by the kernel). May be called several times. 0 or -errno, with the
 * reason in *info (may be NULL). Loop thread. */
int ltn_http_server_listen(struct ltn_http_server *s, const char *address,
                           struct ltn_errinfo *info) ltn_must_check;

/* Port of the index-th listen call; 0 when there is none. */
uint16_t ltn_http_server_port(const struct ltn_http_server *s, size_t index);

/* What grpc.health.v1 answers: serving (true at first) or not; watchers learn it within a second.
 * Any thread. */
void ltn_http_server_set_serving(struct ltn_http_server *s, bool serving);

/* Graceful end: stops accepting, tells HTTP/2 peers (GOAWAY, one round trip, final GOAWAY), answers
 * what was accepted, closes. done(arg) is called on the loop thread when no connection is left or
 * grace_ns have passed (the rest is then cut off). Loop thread; once. */
void ltn_http_server_drain(struct ltn_http_server *s, uint64_t grace_ns, void (*done)(void *arg),
                           void *arg);

/* ---- request: valid until the reply; any thread that owns it ---- */

const char *ltn_http_method(const struct ltn_http_request *req); /* "POST" */
const char *ltn_http_path(const struct ltn_http_request *req);   /* without the query, as sent */
const char *ltn_http_query(const struct ltn_http_request *req);  /* after '?'; "" when none */
/* Rest of the path behind a prefix route, as sent; "" for an exact one. */
const char *ltn_http_path_rest(const struct ltn_http_request *req);
/* Value of a header, name in lower case; NULL when absent. Repeated fields: the first. */
const char *ltn_http_header(const struct ltn_http_request *req, const char *name);
/* Media type in lower case without parameters; "" when none. */
const char *ltn_http_content_type(const struct ltn_http_request *req);
/* Peer as "10.0.0.7:51234" or "[fd00::7]:51234". */
const char *ltn_http_peer(const struct ltn_http_request *req);
/* Name in the client's certificate, "DNS:...", "URI:..." or "CN:...", checked; "" without one. On
 * the loop thread, such as in authorize; valid until it returns. */
const char *ltn_http_identity(const struct ltn_http_request *req);
const uint8_t *ltn_http_body(const struct ltn_http_request *req, size_t *ret_len);
bool ltn_http_is_grpc(const struct ltn_http_request *req);
/* True while the body is compressed; only on routes with LTN_ROUTE_CODED. */
bool ltn_http_is_coded(const struct ltn_http_request *req);

/* Replaces a compressed body by what it holds, below the server's limits; nothing to do when it is
 * not compressed. *inflater is scratch of the calling thread, NULL at first, and lives until
 * ltn_http_inflater_free. 0; LTN_ERR_MALFORMED, LTN_ERR_TOO_LARGE (size or ratio), LTN_ERR_BUSY (no
 * memory budget left), -ENOMEM. Any thread that owns the request. */
struct ltn_inflater;
int ltn_http_inflate(struct ltn_http_request *req, struct ltn_inflater **inflater) ltn_must_check;
void ltn_http_inflater_free(struct ltn_inflater *inflater);
int ltn_http_version(const struct ltn_http_request *req);          /* 10, 11 or 20 */
uint64_t ltn_http_tag(const struct ltn_http_request *req);         /* set by authorize; 0 */
uint64_t ltn_http_deadline_ns(const struct ltn_http_request *req); /* monotonic; 0: none */
/* True when the peer has gone or its deadline has passed, so that work may be spared. */
bool ltn_http_gone(const struct ltn_http_request *req);

/* Decoded value of a query parameter into out; false when absent, malformed or longer than size.
 * A NUL byte in the value counts as malformed. */
bool ltn_http_query_get(const struct ltn_http_request *req, const char *name, char *out,
                        size_t size);

/* Percent-decodes src (n bytes) into out with a terminator. False: malformed, NUL or too long. */
bool ltn_http_url_decode(const char *src, size_t n, char *out, size_t size);

/* True when the Authorization header carries exactly this bearer token; time does not depend on
 * where they differ. */
bool ltn_http_bearer_is(const struct ltn_http_request *req, const char *token);

/* ---- replies: each takes the request; any thread ---- */

struct ltn_http_field {
    const char *name; /* lower case */
    const char *value;
};

/* A body that is made in pieces while it is sent, so that it is never whole in memory. Both are
 * called on the loop thread (done by whoever ends the reply, when the server has gone before). */
struct ltn_http_source {
    /* Appends the next piece to out, which is empty: some tens of KiB, made in about a millisecond,
     * for nothing else happens on the loop meanwhile. 1: there is more; 0: that was all; negative:
     * it cannot go on, and the reply is cut off so that the client knows. */
    int (*next)(void *arg, struct ltn_buf *out);
    /* Called once, whatever became of the reply. */
    void (*done)(void *arg);
    void *arg;
};

struct ltn_http_response {
    int status;
    const char *content_type; /* NULL: none */
    void *body;               /* may be NULL */
    size_t body_len;
    const struct ltn_http_source *source; /* instead of a body; copied; NULL: none */
    bool take_body;                       /* true: body comes from malloc and is freed after use;
                                             false: it is copied */
    const struct ltn_http_field *fields;  /* further headers, copied */
    size_t field_count;
    uint32_t retry_after_s; /* 0: none, except that 429 and 503 get the server's hint */
};

void ltn_http_reply(struct ltn_http_request *req, const struct ltn_http_response *resp);

/* Plain forms of it: a copied body without further headers, and a text. */
void ltn_http_reply_bytes(struct ltn_http_request *req, int status, const char *content_type,
                          const void *body, size_t body_len);
void ltn_http_reply_text(struct ltn_http_request *req, int status, const char *text);

struct ltn_grpc_response {
    int status;          /* gRPC code; body is sent only with 0 */
    const char *message; /* grpc-message; NULL: none */
    const void *body;    /* one message, copied; NULL: empty */
    size_t body_len;
    uint32_t retry_after_ms;             /* RetryInfo in both trailers; 0: none */
    const char *bad_request;             /* what is at fault, as BadRequest detail; NULL: none */
    const struct ltn_http_field *fields; /* initial metadata, copied */
    size_t field_count;
};

void ltn_grpc_reply(struct ltn_http_request *req, const struct ltn_grpc_response *resp);

/* Answers an LTN_ERR_* code or -errno in the form the client speaks, by the answer matrix
 * (LTN_ERR_TABLE): gRPC status, or HTTP status with google.rpc.Status (protobuf or JSON) or
 * {"error":...} by the route. Retryable codes carry a hint of retry_after_ms (0: the server's; at
 * least 1 s), broken bodies a BadRequest detail. message NULL: the code's text. */
void ltn_http_reply_error(struct ltn_http_request *req, int rc, const char *message,
                          uint32_t retry_after_ms);

/* ---- streams: bidirectional gRPC methods; everything on the loop thread ---- */

/* What a stream's owner is told. None of these is called again after closed, and none, closed
 * included, after ltn_http_stream_end() by the owner. */
struct ltn_http_stream_ops {
    /* A peer opened the method. Returns 0 and the pointer for the other calls, or an LTN_ERR_* that
     * the peer is told. The accessors of a request work on it (head, peer, tag), and the stream may
     * already be written to. */
    int (*open)(void *arg, struct ltn_http_request *stream, void **ret_ctx);
    /* A whole message, borrowed. */
    void (*message)(void *ctx, const uint8_t *p, size_t n);
    /* The peer ended its side (it is answered with status 0), took the call back, or is gone. The
     * handle is dead. */
    void (*closed)(void *ctx);
    /* The peer ended its side and goes on listening: a method whose answers stream. NULL: the
     * stream is then ended with status 0. */
    void (*ended)(void *ctx);
};

/* Bytes that may wait on a stream for a peer that does not take them. */
#define LTN_HTTP_STREAM_QUEUE_BYTES ((size_t)1 << 20)

/* Queues a message. 0; LTN_ERR_BUSY: the peer does not take what already waits; LTN_ERR_CLOSED;
 * -ENOMEM. Never calls back. */
int ltn_http_stream_send(struct ltn_http_request *stream, const void *p, size_t n) ltn_must_check;

/* Bytes that wait to be taken by the connection. */
size_t ltn_http_stream_waiting(const struct ltn_http_request *stream);

/* Ends the stream with a gRPC status behind what was queued; the handle is dead. */
void ltn_http_stream_end(struct ltn_http_request *stream, int status, const char *message);

/* ---- counters ---- */

/* name, help */
#define LTN_HTTP_COUNTERS(X)                                                                       \
    X(connections_accepted, "connections accepted")                                                \
    X(connections_refused_cap, "connections closed at once: too many in all")                      \
    X(connections_refused_ip, "connections closed at once: too many from one address")             \
    X(accept_errors, "accept failures such as a lack of descriptors")                              \
    X(connections_h1, "connections that spoke HTTP/1")                                             \
    X(connections_h2, "connections that spoke HTTP/2")                                             \
    X(connections_tls, "connections that agreed on TLS")                                           \
    X(tls_handshakes_failed, "TLS handshakes that failed, such as for a wrong certificate")        \
    X(tls_handshakes_limited, "connections closed at once: too many TLS handshakes")               \
    X(timeouts_handshake, "TLS handshakes that took too long")                                     \
    X(cleartext_refused, "connections refused for not speaking TLS")                               \
    X(protocol_errors, "connections ended for breaking the protocol")                              \
    X(timeouts_first_byte, "connections that never sent a byte")                                   \
    X(timeouts_head, "request heads that took too long")                                           \
    X(timeouts_body, "request bodies that came too slowly")                                        \
    X(timeouts_idle, "idle connections closed")                                                    \
    X(timeouts_write, "connections whose peer did not take its reply")                             \
    X(connections_aged, "connections closed gracefully for their age")                             \
    X(floods_closed, "HTTP/2 connections ended with ENHANCE_YOUR_CALM")                            \
    X(requests, "requests whose head was complete")                                                \
    X(requests_grpc, "of these gRPC calls")                                                        \
    X(request_body_bytes, "body bytes received")                                                   \
    X(request_inflated_bytes, "bytes that decompression yielded")                                  \
    X(refused_auth, "requests refused for their credentials")                                      \
    X(refused_rate, "requests refused for their rate")                                             \
    X(refused_route, "requests for unknown paths or wrong methods")                                \
    X(refused_type, "requests with a wrong content type or encoding")                              \
    X(refused_head, "request heads over the limits")                                               \
    X(refused_body, "bodies over the limits, also after decompression")                            \
    X(refused_malformed, "requests with broken bodies or framing")                                 \
    X(refused_budget, "requests refused for want of memory budget")                                \
    X(refused_load, "requests refused at their head for overload")                                 \
    X(refused_streams, "streams refused because too many requests are at work")                    \
    X(grpc_deadlines, "gRPC calls whose deadline passed before the reply")                         \
    X(streams_reset, "requests the peer took back before the reply")                               \
    X(streams_opened, "bidirectional streams opened")                                              \
    X(streams_ended, "bidirectional streams ended, from either side")                              \
    X(stream_messages, "messages received on bidirectional streams")                               \
    X(stream_messages_sent, "messages queued on bidirectional streams")                            \
    X(stream_faults, "bidirectional streams ended for broken or too large messages")               \
    X(replies, "replies handed to connections")                                                    \
    X(replies_dropped, "replies whose peer had gone")                                              \
    X(replies_too_large, "replies over the size limit")                                            \
    X(backpressure, "times reading paused for the connection budget")

struct ltn_http_stats {
#define LTN_HTTP_STAT(name, help) uint64_t name;
    LTN_HTTP_COUNTERS(LTN_HTTP_STAT)
#undef LTN_HTTP_STAT
    uint64_t connections; /* open now */
    uint64_t in_flight;   /* requests with handlers now */
    uint64_t body_bytes;  /* held in bodies now (all servers of the budget) */
};

/* A snapshot. Any thread while the server lives. */
void ltn_http_server_stats(const struct ltn_http_server *s, struct ltn_http_stats *ret);

#endif /* LTN_HTTP_SERVER_H */
