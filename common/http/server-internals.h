/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the server's files only (server.c, conn.c, exchange.c, request.c, router.c). Everything
 * here belongs to the loop thread unless a comment says otherwise.
 */
#ifndef LTN_HTTP_SERVER_INTERNALS_H
#define LTN_HTTP_SERVER_INTERNALS_H

#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/map.h"
#include "http/answer.h"
#include "http/bucket.h"
#include "http/coding.h"
#include "http/grpc.h"
#include "http/h1.h"
#include "http/h2.h"
#include "http/load.h"
#include "http/rate.h"
#include "http/server.h"
#include "http/session.h"
#include "http/transport.h"

#define LTN_PEER_BYTES    64
#define LTN_MAX_ROUTES    128
#define LTN_MAX_LISTENERS 16
#define LTN_SCRATCH_BYTES (64 * 1024)

/* ---- what outlives the server: shared by it and its requests ---- */

struct ltn_http_budget {
    size_t max_bytes;
    atomic_size_t used;
    bool owned_by_core;
};

bool ltn_budget_take(struct ltn_http_budget *b, size_t n);
void ltn_budget_give(struct ltn_http_budget *b, size_t n);

struct core {
    atomic_size_t refs;
    pthread_mutex_t lock;  /* protects server and loop against the end of the server */
    struct ltn_loop *loop; /* NULL once the server is gone */
    struct ltn_http_server *server;
    struct ltn_http_budget *budget;
    uint32_t retry_after_s;
    size_t max_response_bytes;
    uint32_t max_inflate_ratio;
    uint32_t zstd_window_log_max;
    atomic_uint_fast64_t inflated_bytes; /* by handlers */
};

void ltn_core_unref(struct core *c);

/* ---- request ---- */

enum request_state {
    RQ_BODY,    /* receiving */
    RQ_HANDLER, /* with a handler */
    RQ_STREAM,  /* a bidirectional stream with its owner */
};

/* A reply being carried from its maker to the loop. */
struct reply {
    struct ltn_arena arena; /* fields and trailers */
    struct ltn_session_reply r;
    struct ltn_http_field fields[16];
    struct ltn_http_field trailers[6];
    bool failed; /* no memory: the stream is reset */
    bool too_large;
};

struct ltn_http_request {
    struct ltn_task task; /* carries the reply to the loop */
    struct core *core;    /* holds a reference */
    struct conn *conn;    /* NULL once the stream or the connection is gone */
    struct ltn_http_request *prev;
    struct ltn_http_request *next; /* in conn->requests */
    int32_t stream;
    enum request_state state;
    atomic_bool gone; /* any thread */

    struct ltn_head *head;
    const struct route *route;
    const char *query;
    const char *rest;
    char *path;
    char content_type[96];
    char peer[LTN_PEER_BYTES];
    unsigned method; /* bit of ltn_http_method; 0: another */
    bool is_head;
    bool grpc;
    bool status_body; /* errors as google.rpc.Status */
    bool may_gzip;    /* the reply; copied, for the route goes with the server */
    uint64_t tag;
    uint64_t deadline_ns;
    struct ltn_timer deadline_timer;

    enum ltn_coding coding;
    bool coded;        /* the body still is */
    size_t late_bytes; /* of the budget, taken by the handler's thread */
    struct ltn_buf body;
    struct ltn_grpc_frame frame;
    bool frame_complete;
    struct ltn_lane *lane; /* of a protected route */
    size_t charged_bytes;  /* in its load, while it is let in; else 0 */
    bool waits;            /* at its head, for room; then in the server's list */
    bool whole;            /* nothing more comes */
    TAILQ_ENTRY(ltn_http_request) waiting;
    size_t withheld_credit; /* of the stream, while it waits */
    bool closed;            /* the stream has ended; a late reply is dropped */
    size_t max_body_bytes;
    size_t held_bytes; /* of the budget; given back when the request is freed */
    uint64_t wire_bytes;
    uint64_t started_ns;
    uint64_t rate_ns;    /* slowness is judged from here */
    uint64_t rate_bytes; /* wire_bytes at that time */

    /* bidirectional streams */
    void *stream_ctx;
    size_t frame_held; /* of held_bytes: the message being put together */
    bool stream_over;  /* ended by either side: nothing more is told */
    bool dispatching;  /* inside the owner's callback: freed behind it */

    struct reply reply;
};

void ltn_request_free(struct ltn_http_request *rq);
bool ltn_request_reserve(struct ltn_http_request *rq, size_t n);
/* Gives n of the reserved bytes back. */
void ltn_request_give_back(struct ltn_http_request *rq, size_t n);

/* Marks that a handler of this core runs on this thread: replies made inside are applied by
 * ltn_request_leave() instead of travelling through the loop. */
void ltn_request_enter(struct core *c);
void ltn_request_leave(void);

/* ---- router ---- */

struct route {
    struct ltn_http_route r;
    size_t path_len;
    char *path;
    char *content_types;
};

struct router {
    struct route routes[LTN_MAX_ROUTES];
    size_t count;
};

enum route_match { ROUTE_FOUND, ROUTE_NO_PATH, ROUTE_NO_METHOD };

int ltn_router_add(struct router *r, const struct ltn_http_route *route) ltn_must_check;
void ltn_router_done(struct router *r);
/* allow: "GET, HEAD" when the path is known but not for this method. */
enum route_match ltn_router_find(const struct router *r, const char *path, unsigned method,
                                 bool grpc, const struct route **ret, char *allow,
                                 size_t allow_size);
unsigned ltn_method_bit(const char *method, bool *ret_head);
bool ltn_route_accepts(const struct route *r, const char *content_type);

/* ---- connection ---- */

enum proto { PROTO_SNIFF, PROTO_H1, PROTO_H2, PROTO_LINGER };

struct conn {
    struct ltn_http_server *server;
    struct conn *prev;
    struct conn *next;
    struct ltn_watch watch;
    struct ltn_transport transport;
    enum proto proto;
    struct ltn_h1 *h1;
    struct ltn_h2 *h2;
    struct ltn_buf in;  /* HTTP/1 bytes that wait for a reply, or the first bytes */
    struct ltn_buf out; /* pulled, not yet taken by the socket */
    size_t out_pos;
    char peer[LTN_PEER_BYTES];
    uint8_t ip[16];

    struct ltn_http_request *requests; /* open streams and requests with handlers */
    uint32_t in_handlers;
    size_t held_bytes;      /* bodies, also of streams that ended but are with handlers */
    size_t withheld_credit; /* connection credit kept back */

    bool busy; /* inside a call that frees it at the end, not in between */
    bool dead;
    bool ended; /* the peer ended its side */
    bool holds; /* its last request of a protected route found no room, or a limit in force */
    bool aging; /* told to go */
    bool dirty; /* in the server's list of connections with output to send */
    struct conn *dirty_prev;
    struct conn *dirty_next;
    uint64_t accepted_ns;
    uint64_t age_limit_ns;
    uint64_t active_ns; /* last time a request began or ended, or a frame came */
    uint64_t head_ns;   /* since when a head is incomplete; 0: none */
    uint64_t stuck_ns;  /* since when output waits without progress; 0: none */
    uint64_t sent_bytes;
    uint64_t progress_mark;
    uint64_t linger_ns;
    size_t linger_bytes;
};

void ltn_conn_accepted(struct ltn_http_server *s, int fd, const struct sockaddr_storage *from);
void ltn_conn_close(struct conn *c);
/* Sends what there is, goes on reading when it may, closes when all is done. */
void ltn_conn_work(struct conn *c);
/* Judges the timeouts. */
void ltn_conn_sweep(struct conn *c, uint64_t now_ns);
void ltn_conn_drain(struct conn *c);
void ltn_conn_drain_final(struct conn *c);
/* A body's budget was given back: credit withheld may go out. */
void ltn_conn_relieved(struct conn *c);

/* ---- TLS (transport_tls.c) ---- */

/* The transport of a server with a certificate; takes fd. read is NULL when memory is out. */
struct ltn_transport ltn_transport_tls(struct conn *c, int fd);
/* True while a handshake goes on; *ret_want_write: it waits until the socket takes bytes. */
bool ltn_conn_in_handshake(const struct conn *c, bool *ret_want_write);
bool ltn_conn_is_secure(const struct conn *c);
/* True when another protocol was agreed on than the one now begun. */
bool ltn_conn_alpn_denies(const struct conn *c, bool h2);

/* ---- exchange: from a head to a handler and back ---- */

extern const struct ltn_session_sink ltn_exchange_sink; /* arg: struct conn */
/* Applies a reply that came back; frees the request. */
void ltn_exchange_replied(struct ltn_http_request *rq);
/* Detaches requests that are with handlers, frees the others. */
void ltn_exchange_forget(struct conn *c);
/* A body that came too slowly. */
void ltn_exchange_timeout(struct ltn_http_request *rq);
/* A request that waited is let in. */
void ltn_exchange_go_on(struct ltn_http_request *rq);
/* Takes a request off its connection. */
void ltn_exchange_detach(struct ltn_http_request *rq);

/* ---- streams ---- */

/* Begins an admitted stream. False: it was answered and is gone. */
bool ltn_stream_begin(struct ltn_http_request *rq);
void ltn_stream_data(struct ltn_http_request *rq, const uint8_t *p, size_t n);
/* The peer's last word; its deadline. */
void ltn_stream_end(struct ltn_http_request *rq);
void ltn_stream_deadline(struct ltn_http_request *rq);
/* The HTTP/2 stream or the connection is gone. */
void ltn_stream_gone(struct ltn_http_request *rq);

/* ---- overload (overload.c) ---- */

/* The answer to gRPC calls that are refused for it. */
struct ltn_refusal {
    struct ltn_http_field fields[5];
    size_t count;
    char status[12];
    struct ltn_buf details, retry;
};

struct ltn_lane {
    struct ltn_load load;
    TAILQ_HEAD(ltn_waiting, ltn_http_request) waiting; /* in the order they came */
};

struct ltn_overload {
    struct ltn_load_total total;
    struct ltn_lane lanes[LTN_HTTP_LANES];
    struct ltn_refusal refusal;
    struct ltn_timer turn;
};

/* 0 or -ENOMEM; ltn_overload_done() follows either way. */
int ltn_overload_init(struct ltn_overload *o, const struct ltn_http_conf *conf) ltn_must_check;
void ltn_overload_done(struct ltn_overload *o, struct ltn_loop *loop);
/* The short way of the common case, a gRPC call that would be refused at the end of its admission:
 * true when it was refused on the spot. */
bool ltn_overload_turns_away(struct conn *c, int32_t stream, const struct ltn_head *head);
/* An admitted request: counts it as let in, refuses it, or has it wait (rq->waits). False: it was
 * answered. */
bool ltn_overload_head(struct ltn_http_request *rq);
/* Some of its body has come; whole: that was all. */
void ltn_overload_body(struct ltn_http_request *rq, bool whole);
/* Its body does not come as expected: only what has come counts. */
void ltn_overload_late(struct ltn_http_request *rq);
/* It waits no longer. */
void ltn_overload_forget(struct ltn_http_request *rq);
/* It is over, by its handler or before. */
void ltn_overload_over(struct ltn_http_request *rq);

/* ---- server ---- */

struct listener {
    struct ltn_watch watch;
    struct ltn_http_server *server;
    int fd;
    uint16_t port;
};

#define LTN_COUNTER_FIELD(name, help) atomic_uint_fast64_t name;
struct counters {
    LTN_HTTP_COUNTERS(LTN_COUNTER_FIELD)
    atomic_uint_fast64_t connections;
    atomic_uint_fast64_t in_flight;
};
#undef LTN_COUNTER_FIELD

#define LTN_COUNT(s, name) ltn_count_add(&(s)->counters.name, 1)
static inline void ltn_count_add(atomic_uint_fast64_t *c, uint64_t n)
{
    atomic_fetch_add_explicit(c, n, memory_order_relaxed);
}
static inline void ltn_count_sub(atomic_uint_fast64_t *c, uint64_t n)
{
    atomic_fetch_sub_explicit(c, n, memory_order_relaxed);
}

struct ltn_http_server {
    struct ltn_loop *loop;
    struct ltn_http_conf conf;
    struct core *core;
    struct router router;
    struct listener listeners[LTN_MAX_LISTENERS];
    size_t listener_count;
    uint16_t ports[LTN_MAX_LISTENERS]; /* per listen call */
    size_t port_count;
    struct conn *conns;
    struct conn *walk_next; /* of the walk over conns now going on; kept valid by closes */
    struct ltn_map per_ip;  /* address -> count */
    struct ltn_timer sweep;
    struct ltn_timer accept_pause;
    struct ltn_timer drain_timer;
    struct ltn_timer drain_final_timer;
    struct ltn_timer flush; /* sends what replies and streams queued */
    struct conn *dirty;     /* connections it is for */
    bool accept_paused;
    bool draining;
    void (*drained)(void *arg);
    void *drained_arg;
    atomic_bool serving;
    struct ltn_health_watch *watches; /* calls of Health/Watch */
    size_t watch_count;
    struct ltn_inflater *inflater;
    struct ltn_rate *rate; /* NULL: no limits */
    struct ltn_bucket handshakes;
    struct ltn_overload overload; /* of protected routes */
    struct ltn_h2_spares spares;
    struct counters counters;
    uint8_t scratch_in[LTN_SCRATCH_BYTES];
    uint8_t scratch_out[LTN_SCRATCH_BYTES];
    char date[40];
    uint64_t date_s;
};

/* "Sun, 06 Nov 1994 08:49:37 GMT", made anew each second. */
const char *ltn_server_date(struct ltn_http_server *s);
void ltn_server_conn_gone(struct ltn_http_server *s);
/* Has the connection's output sent at the end of this round of the loop, so that replies that come
 * together leave together. */
void ltn_server_conn_dirty(struct conn *c);
/* Likewise, from inside its own events: not before the others had their turn. */
void ltn_server_conn_later(struct conn *c);
/* Takes it off that list. */
void ltn_server_conn_clean(struct conn *c);

/* ---- grpc.health.v1 (health.c) ---- */

int ltn_health_routes(struct ltn_http_server *s) ltn_must_check;
/* Tells watchers of a change. */
void ltn_health_tick(struct ltn_http_server *s);
/* Tells them the last state and ends them. */
void ltn_health_drain(struct ltn_http_server *s);

#endif /* LTN_HTTP_SERVER_INTERNALS_H */
