/* SPDX-License-Identifier: Apache-2.0 */
/* One connection: bytes between the transport and its session, timeouts, the orderly end. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "http/server-internals.h"

#define READS_PER_EVENT    4
#define LINGER_NS          (2 * LTN_NS_PER_S)
#define LINGER_BYTES       (256 * 1024)
#define DRAIN_FINAL_NS     (1 * LTN_NS_PER_S)
#define AGED_GRACE_NS      (60 * LTN_NS_PER_S)
#define MIN_PROGRESS_BYTES 1024
#define BODY_EXPECTED_NS   (1 * LTN_NS_PER_S)

static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
#define PREFACE_BYTES (sizeof(preface) - 1)

/* ---- beginning ---- */

static void describe_peer(struct conn *c, const struct sockaddr_storage *from)
{
    char text[INET6_ADDRSTRLEN] = "?";
    if (from->ss_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)from;
        (void)inet_ntop(AF_INET, &in->sin_addr, text, sizeof(text));
        (void)snprintf(c->peer, sizeof(c->peer), "%s:%u", text, ntohs(in->sin_port));
        memcpy(c->ip, "\0\0\0\0\0\0\0\0\0\0\xff\xff", 12);
        memcpy(c->ip + 12, &in->sin_addr, 4);
        return;
    }
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)from;
    memcpy(c->ip, &in6->sin6_addr, 16);
    if (IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr)) {
        (void)inet_ntop(AF_INET, c->ip + 12, text, sizeof(text));
        (void)snprintf(c->peer, sizeof(c->peer), "%s:%u", text, ntohs(in6->sin6_port));
    } else {
        (void)inet_ntop(AF_INET6, &in6->sin6_addr, text, sizeof(text));
        (void)snprintf(c->peer, sizeof(c->peer), "[%s]:%u", text, ntohs(in6->sin6_port));
    }
}

/* Counts the connection for its address. False: too many, or no memory for the count. */
static bool count_ip(struct ltn_http_server *s, const uint8_t ip[16])
{
    uintptr_t n = (uintptr_t)ltn_map_get(&s->per_ip, ip, 16);
    if (n >= s->conf.max_connections_per_ip) {
        return false;
    }
    return ltn_map_put(&s->per_ip, ip, 16, (void *)(n + 1)) == 0; /* NOLINT: a count, no pointer */
}

static void uncount_ip(struct ltn_http_server *s, const uint8_t ip[16])
{
    uintptr_t n = (uintptr_t)ltn_map_get(&s->per_ip, ip, 16);
    if (n > 1) {
        int rc = ltn_map_put(&s->per_ip, ip, 16, (void *)(n - 1)); /* NOLINT: as above */
        (void)rc; /* replaces a value: needs no memory */
    } else {
        (void)ltn_map_del(&s->per_ip, ip, 16);
    }
}

/* Spread by 10 % either way, so that a fleet does not come back at once. */
static uint64_t jittered(uint64_t ns, const struct conn *c)
{
    uint64_t mix = (uint64_t)(uintptr_t)c * 0x9e3779b97f4a7c15ULL ^ c->accepted_ns;
    return ns - ns / 10 + mix % (ns / 5 + 1);
}

static void on_event(void *arg, uint32_t events);

void ltn_conn_accepted(struct ltn_http_server *s, int fd, const struct sockaddr_storage *from)
{
    struct conn *c = calloc(1, sizeof(*c));
    if (c == NULL) {
        close(fd);
        return;
    }
    int on = 1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    c->server = s;
    c->watch.fd = -1;
    describe_peer(c, from);
    if (!count_ip(s, c->ip)) {
        LTN_COUNT(s, connections_refused_ip);
        close(fd);
        free(c);
        return;
    }
    c->transport = s->conf.tls != NULL ? ltn_transport_tls(c, fd) : ltn_transport_plain(fd);
    if (c->transport.read == NULL) {
        uncount_ip(s, c->ip);
        close(fd);
        free(c);
        return;
    }
    ltn_buf_init(&c->in, LTN_SCRATCH_BYTES + PREFACE_BYTES);
    ltn_buf_init(&c->out, LTN_SCRATCH_BYTES);
    c->accepted_ns = ltn_loop_now_ns(s->loop);
    c->active_ns = c->accepted_ns;
    c->age_limit_ns = s->conf.max_connection_age_ns == 0
                          ? UINT64_MAX
                          : c->accepted_ns + jittered(s->conf.max_connection_age_ns, c);
    c->next = s->conns;
    if (s->conns != NULL) {
        s->conns->prev = c;
    }
    s->conns = c;
    LTN_COUNT(s, connections_accepted);
    ltn_count_add(&s->counters.connections, 1);
    if (ltn_loop_watch(s->loop, &c->watch, fd, EPOLLIN, on_event, c) != 0) {
        ltn_conn_close(c);
    }
}

/* ---- end ---- */

static void count_end(struct conn *c)
{
    if (c->h2 != NULL && ltn_h2_flooded(c->h2)) {
        LTN_COUNT(c->server, floods_closed);
    }
    if (c->h2 != NULL && ltn_h2_failed(c->h2)) {
        LTN_COUNT(c->server, protocol_errors);
    }
}

static void end_sessions(struct conn *c)
{
    count_end(c);
    bool busy = c->busy;
    c->busy = true; /* the sessions report their requests closed */
    struct ltn_h1 *h1 = c->h1;
    struct ltn_h2 *h2 = c->h2;
    c->withheld_credit = 0;
    ltn_h1_free(h1);
    ltn_h2_free(h2);
    c->h1 = NULL;
    c->h2 = NULL;
    ltn_exchange_forget(c);
    c->busy = busy;
}

void ltn_conn_close(struct conn *c)
{
    struct ltn_http_server *s = c->server;
    end_sessions(c);
    ltn_server_conn_clean(c);
    if (s->walk_next == c) {
        s->walk_next = c->next; /* a handler answered another connection's request */
    }
    ltn_loop_unwatch(s->loop, &c->watch);
    c->transport.close(c->transport.state);
    uncount_ip(s, c->ip);
    if (c->prev != NULL) {
        c->prev->next = c->next;
    } else {
        s->conns = c->next;
    }
    if (c->next != NULL) {
        c->next->prev = c->prev;
    }
    ltn_buf_done(&c->in);
    ltn_buf_done(&c->out);
    free(c);
    ltn_count_sub(&s->counters.connections, 1);
    ltn_server_conn_gone(s);
}

/* Our side is done: tells the peer, then reads a little on, so that unread bytes do not turn the
 * close into a reset that destroys the last answer on its way. */
static void start_linger(struct conn *c)
{
    end_sessions(c);
    c->transport.shutdown(c->transport.state);
    c->proto = PROTO_LINGER;
    c->linger_ns = ltn_loop_now_ns(c->server->loop) + LINGER_NS;
    c->linger_bytes = 0;
}

/* ---- input ---- */

static struct ltn_h2_conf h2_conf(struct ltn_http_server *s)
{
    const struct ltn_http_conf *conf = &s->conf;
    return (struct ltn_h2_conf){
        .spares = &s->spares,
        .max_header_bytes = conf->max_header_bytes,
        .max_header_count = conf->max_header_count,
        .max_streams = conf->h2_max_streams,
        .stream_window_bytes = conf->h2_stream_window_bytes,
        .connection_window_bytes = conf->h2_connection_window_bytes,
        .reset_burst = conf->h2_reset_burst,
        .reset_per_s = conf->h2_reset_per_s,
        .nuisance_burst = conf->h2_nuisance_burst,
        .nuisance_per_s = conf->h2_nuisance_per_s,
        .fault_burst = conf->h2_fault_burst,
        .fault_per_s = conf->h2_fault_per_s,
        .ping_interval_ns = conf->h2_ping_interval_ns - conf->h2_ping_interval_ns / 10,
        .ping_strikes = conf->h2_ping_strikes,
    };
}

/* What the session has to say, kept until the socket's turn comes. */
static void pull_ahead(struct conn *c)
{
    uint8_t *scratch = c->server->scratch_out;
    size_t n = ltn_h2_pull(c->h2, scratch, LTN_SCRATCH_BYTES - c->out.len);
    if (ltn_buf_append(&c->out, scratch, n) != 0) {
        c->dead = true;
    }
}

static void feed_h2(struct conn *c, const uint8_t *p, size_t n)
{
    uint64_t now_ns = ltn_loop_now_ns(c->server->loop);
    int rc = 0;
    size_t used;
    c->active_ns = now_ns;
    for (; n > 0 && rc == 0 && !c->dead; p += used, n -= used) {
        rc = ltn_h2_feed(c->h2, p, n, now_ns, &used);
        if (used < n && rc == 0) {
            pull_ahead(c);
        }
    }
    if (rc == -ENOMEM) {
        c->dead = true;
    }
}

/* What the session cannot take yet stays in c->in. */
static void feed_h1(struct conn *c, const uint8_t *p, size_t n)
{
    size_t used = 0;
    if (ltn_h1_feed(c->h1, p, n, &used) != 0) {
        LTN_COUNT(c->server, protocol_errors);
        used = n;
    }
    if (ltn_h1_closing(c->h1)) {
        return;
    }
    if (used < n && ltn_buf_append(&c->in, p + used, n - used) != 0) {
        c->dead = true;
    }
}

/* Lets waiting HTTP/1 bytes through; true when some moved. */
static bool feed_waiting(struct conn *c)
{
    if (c->h1 == NULL || c->in.len == 0 || ltn_h1_blocked(c->h1) || ltn_h1_closing(c->h1)) {
        return false;
    }
    size_t used = 0;
    if (ltn_h1_feed(c->h1, (const uint8_t *)c->in.data, c->in.len, &used) != 0) {
        LTN_COUNT(c->server, protocol_errors);
        used = c->in.len;
    }
    ltn_buf_consume(&c->in, used);
    return used > 0;
}

static void choose_proto(struct conn *c, bool h2)
{
    struct ltn_http_server *s = c->server;
    if (h2) {
        const struct ltn_h2_conf conf = h2_conf(s);
        c->h2 = ltn_h2_new(&conf, &ltn_exchange_sink, c);
        c->proto = PROTO_H2;
        LTN_COUNT(s, connections_h2);
    } else {
        const struct ltn_h1_conf conf = {s->conf.max_header_bytes, s->conf.max_header_count};
        c->h1 = ltn_h1_new(&conf, &ltn_exchange_sink, c);
        c->proto = PROTO_H1;
        LTN_COUNT(s, connections_h1);
    }
    if (c->h1 == NULL && c->h2 == NULL) {
        c->dead = true;
    }
}

/* Waits until the bytes can be told from the HTTP/2 preface, or match it whole. */
static void sniff(struct conn *c, const uint8_t *p, size_t n)
{
    if (ltn_buf_append(&c->in, p, n) != 0) {
        c->dead = true;
        return;
    }
    size_t look = c->in.len < PREFACE_BYTES ? c->in.len : PREFACE_BYTES;
    bool match = memcmp(c->in.data, preface, look) == 0;
    if (match && look < PREFACE_BYTES) {
        return;
    }
    if (ltn_conn_alpn_denies(c, match)) {
        LTN_COUNT(c->server, protocol_errors);
        c->dead = true;
        return;
    }
    choose_proto(c, match);
    if (c->dead || !match) {
        return; /* HTTP/1 takes its bytes from c->in */
    }
    struct ltn_buf first = c->in;
    ltn_buf_init(&c->in, first.max_bytes);
    feed_h2(c, (const uint8_t *)first.data, first.len);
    ltn_buf_done(&first);
}

static void take(struct conn *c, const uint8_t *p, size_t n)
{
    switch (c->proto) {
    case PROTO_SNIFF:
        sniff(c, p, n);
        break;
    case PROTO_H1:
        feed_h1(c, p, n);
        break;
    case PROTO_H2:
        feed_h2(c, p, n);
        break;
    case PROTO_LINGER:
        c->linger_bytes += n;
        c->dead = c->linger_bytes > LINGER_BYTES;
        break;
    }
}

static bool wants_input(const struct conn *c)
{
    if (c->ended || c->dead) {
        return false;
    }
    if (c->proto == PROTO_H1) {
        return c->in.len == 0 && !ltn_h1_blocked(c->h1) && !ltn_h1_closing(c->h1);
    }
    return true;
}

static void read_some(struct conn *c)
{
    uint8_t *scratch = c->server->scratch_in;
    for (int i = 0; i < READS_PER_EVENT && wants_input(c); i++) {
        ssize_t n = c->transport.read(c->transport.state, scratch, LTN_SCRATCH_BYTES);
        if (n == -EAGAIN) {
            return;
        }
        if (n == -ECONNABORTED && c->proto == PROTO_SNIFF) {
            start_linger(c); /* the transport told the peer why */
            return;
        }
        if (n < 0) {
            c->dead = true;
            return;
        }
        if (n == 0) {
            c->ended = true;
            return;
        }
        take(c, scratch, (size_t)n);
        if (n < LTN_SCRATCH_BYTES) {
            return;
        }
    }
}

/* ---- output ---- */

static size_t pull(struct conn *c, uint8_t *dst, size_t room)
{
    if (c->h2 != NULL) {
        return ltn_h2_pull(c->h2, dst, room);
    }
    return c->h1 != NULL ? ltn_h1_pull(c->h1, dst, room) : 0;
}

/* Sends n bytes as far as the socket takes them; returns how many, 0 when it takes none. */
static size_t push(struct conn *c, const uint8_t *p, size_t n)
{
    size_t done = 0;
    while (done < n) {
        ssize_t sent = c->transport.write(c->transport.state, p + done, n - done);
        if (sent <= 0) {
            c->dead = c->dead || sent != -EAGAIN;
            break;
        }
        done += (size_t)sent;
    }
    c->sent_bytes += done;
    return done;
}

/* A reply is sent in turns of about so many bytes, or of that time where they are made as they go,
 * so that a fast reader of a long one does not keep everybody else waiting. */
#define TURN_BYTES ((size_t)256 * 1024)
#define TURN_NS    (2 * LTN_NS_PER_MS)
#define TURN_SMALL ((size_t)4 * 1024) /* no clock is asked below */

static bool turn_is_over(const struct conn *c, size_t bytes)
{
    return bytes >= TURN_BYTES ||
           (bytes >= TURN_SMALL && ltn_now_mono_ns() - ltn_loop_now_ns(c->server->loop) >= TURN_NS);
}

static void flush(struct conn *c)
{
    size_t turn = 0;
    uint8_t *scratch = c->server->scratch_out;
    while (!c->dead) {
        if (c->out.len > c->out_pos) {
            c->out_pos += push(c, (uint8_t *)c->out.data + c->out_pos, c->out.len - c->out_pos);
            if (c->out.len > c->out_pos) {
                return;
            }
        }
        if (c->out.len > 0) {
            ltn_buf_done(&c->out); /* an idle connection keeps no buffer */
            c->out_pos = 0;
        }
        if (turn_is_over(c, turn)) {
            ltn_server_conn_later(c);
            return;
        }
        size_t n = pull(c, scratch, LTN_SCRATCH_BYTES);
        if (n == 0) {
            return;
        }
        turn += n;
        size_t sent = push(c, scratch, n);
        if (sent < n && ltn_buf_append(&c->out, scratch + sent, n - sent) != 0) {
            c->dead = true;
        }
    }
}

static bool output_waits(const struct conn *c)
{
    return c->out.len > c->out_pos;
}

/* Everything said that was to be said. */
static bool finished(const struct conn *c)
{
    if (output_waits(c) || c->dead) {
        return false;
    }
    if (c->h1 != NULL) {
        return ltn_h1_closing(c->h1) && !ltn_h1_has_output(c->h1);
    }
    return c->h2 != NULL && ltn_h2_done(c->h2);
}

/* The peer ended its side: an HTTP/1 request that is whole still gets its reply. */
static bool abandoned(const struct conn *c)
{
    if (!c->ended) {
        return false;
    }
    if (c->proto != PROTO_H1) {
        return true;
    }
    bool waits = ltn_h1_blocked(c->h1) || ltn_h1_has_output(c->h1) || c->in.len > 0;
    return !waits && !output_waits(c);
}

static void note_stuck(struct conn *c)
{
    bool waits = output_waits(c) || (c->h2 != NULL && ltn_h2_unsent(c->h2) > 0);
    if (!waits) {
        c->stuck_ns = 0;
    } else if (c->stuck_ns == 0) {
        c->stuck_ns = ltn_loop_now_ns(c->server->loop);
        c->progress_mark = c->h2 != NULL ? ltn_h2_progress(c->h2) : c->sent_bytes;
    }
}

static void note_head(struct conn *c)
{
    bool in_head = (c->h1 != NULL && ltn_h1_in_head(c->h1)) ||
                   (c->h2 != NULL && ltn_h2_in_head(c->h2)) ||
                   (c->proto == PROTO_SNIFF && c->in.len > 0);
    if (!in_head) {
        c->head_ns = 0;
    } else if (c->head_ns == 0) {
        c->head_ns = ltn_loop_now_ns(c->server->loop);
    }
}

void ltn_conn_work(struct conn *c)
{
    if (c->busy) {
        return;
    }
    c->busy = true;
    ltn_server_conn_clean(c);
    bool moved;
    do {
        moved = feed_waiting(c);
        flush(c);
    } while (moved && !c->dead);
    if (finished(c)) {
        start_linger(c);
    }
    c->busy = false;
    if (c->dead || abandoned(c)) {
        ltn_conn_close(c);
        return;
    }
    note_stuck(c);
    note_head(c);
    bool want_write = false;
    (void)ltn_conn_in_handshake(c, &want_write);
    uint32_t events = (wants_input(c) ? (uint32_t)EPOLLIN : 0) |
                      (output_waits(c) || want_write ? (uint32_t)EPOLLOUT : 0);
    if (ltn_loop_rewatch(c->server->loop, &c->watch, events) != 0) {
        ltn_conn_close(c);
    }
}

static void on_event(void *arg, uint32_t events)
{
    struct conn *c = arg;
    bool want_write = false;
    (void)ltn_conn_in_handshake(c, &want_write); /* then room to write is a step of it, too */
    c->busy = true;
    if ((events & EPOLLERR) != 0) {
        c->dead = true;
    } else if ((events & (EPOLLIN | EPOLLHUP)) != 0 || want_write) {
        if (wants_input(c)) {
            read_some(c);
        } else if ((events & EPOLLHUP) != 0) {
            c->dead = true; /* both sides have ended: nobody waits for the reply */
        }
    }
    c->busy = false;
    ltn_conn_work(c);
}

void ltn_conn_relieved(struct conn *c)
{
    struct ltn_http_server *s = c->server;
    if (c->withheld_credit == 0 || c->h2 == NULL ||
        c->held_bytes > s->conf.connection_budget_bytes) {
        return;
    }
    ltn_h2_credit_connection(c->h2, c->withheld_credit);
    c->withheld_credit = 0;
    /* The pause was ours: bodies are judged for slowness from here on. */
    for (struct ltn_http_request *rq = c->requests; rq != NULL; rq = rq->next) {
        rq->rate_ns = ltn_loop_now_ns(s->loop);
        rq->rate_bytes = rq->wire_bytes;
    }
}

/* ---- time ---- */

static bool too_slow(const struct conn *c, const struct ltn_http_request *rq, uint64_t now_ns)
{
    const struct ltn_http_conf *conf = &c->server->conf;
    if (now_ns - rq->started_ns > conf->request_timeout_ns) {
        return true;
    }
    uint64_t elapsed_ns = now_ns - rq->rate_ns;
    if (conf->body_min_bytes_per_s == 0 || elapsed_ns <= conf->body_grace_ns) {
        return false;
    }
    uint64_t due = conf->body_min_bytes_per_s * (elapsed_ns / LTN_NS_PER_MS) / 1000;
    return rq->wire_bytes - rq->rate_bytes < due;
}

static void sweep_bodies(struct conn *c, uint64_t now_ns)
{
    for (struct ltn_http_request *rq = c->requests; rq != NULL; rq = rq->next) {
        if (rq->state == RQ_BODY && now_ns - rq->started_ns > BODY_EXPECTED_NS) {
            ltn_overload_late(rq);
        }
    }
    if (c->withheld_credit > 0) {
        return; /* it is this side that does not take them */
    }
    struct ltn_http_request *rq = c->requests;
    while (rq != NULL) {
        struct ltn_http_request *next = rq->next;
        if (rq->state == RQ_BODY && !rq->waits && too_slow(c, rq, now_ns)) {
            LTN_COUNT(c->server, timeouts_body);
            ltn_exchange_timeout(rq);
        }
        rq = next;
    }
}

/* True when the connection is to be cut. */
static bool sweep_output(struct conn *c, uint64_t now_ns)
{
    if (c->stuck_ns == 0 || now_ns - c->stuck_ns <= c->server->conf.write_timeout_ns) {
        return false;
    }
    uint64_t progress = c->h2 != NULL ? ltn_h2_progress(c->h2) : c->sent_bytes;
    if (progress - c->progress_mark >= MIN_PROGRESS_BYTES) {
        c->stuck_ns = now_ns;
        c->progress_mark = progress;
        return false;
    }
    LTN_COUNT(c->server, timeouts_write);
    return true;
}

static void sweep_age(struct conn *c, uint64_t now_ns)
{
    if (now_ns < c->age_limit_ns) {
        return;
    }
    if (!c->aging) {
        c->aging = true;
        LTN_COUNT(c->server, connections_aged);
        ltn_conn_drain(c);
    } else if (now_ns - c->age_limit_ns > AGED_GRACE_NS) {
        c->dead = true;
    } else if (now_ns - c->age_limit_ns > DRAIN_FINAL_NS) {
        ltn_conn_drain_final(c);
    }
}

static void sweep_idle(struct conn *c, uint64_t now_ns)
{
    const struct ltn_http_conf *conf = &c->server->conf;
    if (c->requests != NULL || c->stuck_ns != 0 || now_ns - c->active_ns <= conf->idle_timeout_ns) {
        return;
    }
    LTN_COUNT(c->server, timeouts_idle);
    if (c->h2 != NULL) {
        ltn_h2_terminate(c->h2, LTN_H2_NO_ERROR);
    } else {
        c->dead = true;
    }
}

/* Nothing of HTTP came yet. */
static void sweep_silent(struct conn *c, uint64_t now_ns)
{
    const struct ltn_http_conf *conf = &c->server->conf;
    bool want_write;
    uint64_t waited_ns = now_ns - c->accepted_ns;
    if (ltn_conn_in_handshake(c, &want_write)) {
        if (waited_ns > conf->handshake_timeout_ns) {
            LTN_COUNT(c->server, timeouts_handshake);
            c->dead = true;
        }
        return;
    }
    /* A handshake that took long leaves its client the time all the same. */
    uint64_t limit_ns = conf->first_byte_timeout_ns;
    limit_ns += ltn_conn_is_secure(c) ? conf->handshake_timeout_ns : 0;
    if (waited_ns > limit_ns) {
        LTN_COUNT(c->server, timeouts_first_byte);
        c->dead = true;
    }
}

void ltn_conn_sweep(struct conn *c, uint64_t now_ns)
{
    const struct ltn_http_conf *conf = &c->server->conf;
    c->busy = true;
    if (c->proto == PROTO_LINGER) {
        c->dead = c->dead || now_ns > c->linger_ns;
    } else if (c->proto == PROTO_SNIFF && c->in.len == 0) {
        sweep_silent(c, now_ns);
    } else if (c->head_ns != 0 && now_ns - c->head_ns > conf->headers_timeout_ns) {
        LTN_COUNT(c->server, timeouts_head);
        c->head_ns = 0;
        if (c->h1 != NULL) {
            ltn_h1_fail(c->h1, 408);
        } else if (c->h2 != NULL) {
            ltn_h2_terminate(c->h2, LTN_H2_ENHANCE_YOUR_CALM);
        } else {
            c->dead = true;
        }
    } else if (sweep_output(c, now_ns)) {
        c->dead = true;
    } else {
        if (c->h2 != NULL) {
            ltn_h2_tick(c->h2, now_ns);
        }
        sweep_bodies(c, now_ns);
        sweep_age(c, now_ns);
        sweep_idle(c, now_ns);
    }
    c->busy = false;
    ltn_conn_work(c);
}

void ltn_conn_drain(struct conn *c)
{
    if (c->h2 != NULL) {
        ltn_h2_drain(c->h2);
    } else if (c->h1 != NULL && !(ltn_h1_idle(c->h1) && !output_waits(c))) {
        ltn_h1_set_closing(c->h1);
    } else if (c->proto == PROTO_SNIFF || c->h1 != NULL) {
        c->dead = true;
    }
}

void ltn_conn_drain_final(struct conn *c)
{
    if (c->h2 != NULL) {
        ltn_h2_drain_final(c->h2);
    }
}
