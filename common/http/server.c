/* SPDX-License-Identifier: Apache-2.0 */
#include "http/server.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "http/server-internals.h"

#define DEFAULT_BUDGET_BYTES (512UL * 1024 * 1024)
#define MIN_SWEEP_NS         (10 * LTN_NS_PER_MS)
#define MAX_SWEEP_NS         (1 * LTN_NS_PER_S)
#define ACCEPT_PAUSE_NS      (100 * LTN_NS_PER_MS)
#define ACCEPTS_PER_EVENT    64
#define LISTEN_BACKLOG       1024
#define MAX_TENANTS          4096
#define DRAIN_FINAL_NS       (1 * LTN_NS_PER_S)

/* ---- configuration ---- */

void ltn_http_conf_default(struct ltn_http_conf *conf)
{
    *conf = (struct ltn_http_conf){
        .max_connections = 16384,
        .max_connections_per_ip = 1024,
        .first_byte_timeout_ns = 5 * LTN_NS_PER_S,
        .headers_timeout_ns = 10 * LTN_NS_PER_S,
        .idle_timeout_ns = 120 * LTN_NS_PER_S,
        .request_timeout_ns = 120 * LTN_NS_PER_S,
        .body_grace_ns = 10 * LTN_NS_PER_S,
        .body_min_bytes_per_s = 1024,
        .write_timeout_ns = 30 * LTN_NS_PER_S,
        .max_connection_age_ns = 1800 * LTN_NS_PER_S,
        .max_body_bytes = 64UL * 1024 * 1024,
        .max_header_bytes = 16 * 1024,
        .max_header_count = 64,
        .max_response_bytes = 64UL * 1024 * 1024,
        .connection_budget_bytes = 128UL * 1024 * 1024,
        .max_inflate_ratio = 200,
        .zstd_window_log_max = 23,
        .h2_max_streams = 100,
        .h2_stream_window_bytes = 1024 * 1024,
        .h2_connection_window_bytes = 4 * 1024 * 1024,
        .h2_reset_burst = 200,
        .h2_reset_per_s = 20,
        .h2_nuisance_burst = 1000,
        .h2_nuisance_per_s = 50,
        .h2_fault_burst = 100,
        .h2_fault_per_s = 10,
        .h2_ping_interval_ns = 10 * LTN_NS_PER_S,
        .h2_ping_strikes = 2,
        .handshake_timeout_ns = 10 * LTN_NS_PER_S,
        .handshake_burst = 1000,
        .handshake_per_s = 500,
        .grpc_health = true,
        .retry_after_s = 5,
        .burst_ns = LTN_LOAD_BURST_MS * LTN_NS_PER_MS,
        .refusals_per_s = 55000, /* about a tenth of a core */
    };
}

/* ---- budget and core ---- */

struct ltn_http_budget *ltn_http_budget_new(size_t max_bytes)
{
    struct ltn_http_budget *b = calloc(1, sizeof(*b));
    if (b != NULL) {
        b->max_bytes = max_bytes;
    }
    return b;
}

void ltn_http_budget_free(struct ltn_http_budget *b)
{
    free(b);
}

size_t ltn_http_budget_used(const struct ltn_http_budget *b)
{
    return atomic_load(&b->used);
}

bool ltn_budget_take(struct ltn_http_budget *b, size_t n)
{
    size_t before = atomic_fetch_add(&b->used, n);
    if (n <= b->max_bytes && before <= b->max_bytes - n) {
        return true;
    }
    atomic_fetch_sub(&b->used, n);
    return false;
}

void ltn_budget_give(struct ltn_http_budget *b, size_t n)
{
    atomic_fetch_sub(&b->used, n);
}

void ltn_core_unref(struct core *c)
{
    if (atomic_fetch_sub(&c->refs, 1) != 1) {
        return;
    }
    if (c->budget != NULL && c->budget->owned_by_core) {
        ltn_http_budget_free(c->budget);
    }
    pthread_mutex_destroy(&c->lock);
    free(c);
}

static struct core *core_new(struct ltn_http_server *s, struct ltn_http_budget *budget)
{
    struct core *c = calloc(1, sizeof(*c));
    if (c == NULL) {
        return NULL;
    }
    atomic_init(&c->refs, 1);
    pthread_mutex_init(&c->lock, NULL);
    c->loop = s->loop;
    c->server = s;
    c->retry_after_s = s->conf.retry_after_s > 0 ? s->conf.retry_after_s : 1;
    c->max_response_bytes = s->conf.max_response_bytes;
    c->max_inflate_ratio = s->conf.max_inflate_ratio;
    c->zstd_window_log_max = s->conf.zstd_window_log_max;
    c->budget = budget;
    if (budget == NULL) {
        c->budget = ltn_http_budget_new(DEFAULT_BUDGET_BYTES);
        if (c->budget == NULL) {
            ltn_core_unref(c);
            return NULL;
        }
        c->budget->owned_by_core = true;
    }
    return c;
}

/* ---- sweeping ---- */

static uint64_t sweep_step(const struct ltn_http_conf *conf)
{
    const uint64_t times[] = {
        conf->first_byte_timeout_ns, conf->headers_timeout_ns, conf->idle_timeout_ns,
        conf->request_timeout_ns,    conf->body_grace_ns,      conf->write_timeout_ns,
        conf->handshake_timeout_ns,
    };
    uint64_t step = MAX_SWEEP_NS;
    for (size_t i = 0; i < LTN_ARRAY_SIZE(times); i++) {
        step = times[i] / 4 < step ? times[i] / 4 : step;
    }
    return step > MIN_SWEEP_NS ? step : MIN_SWEEP_NS;
}

static void on_sweep(void *arg);

static int arm_sweep(struct ltn_http_server *s)
{
    uint64_t due_ns = ltn_now_mono_ns() + sweep_step(&s->conf);
    return ltn_loop_timer_at(s->loop, &s->sweep, due_ns, on_sweep, s);
}

void ltn_server_conn_clean(struct conn *c)
{
    if (!c->dirty) {
        return;
    }
    if (c->dirty_prev != NULL) {
        c->dirty_prev->dirty_next = c->dirty_next;
    } else {
        c->server->dirty = c->dirty_next;
    }
    if (c->dirty_next != NULL) {
        c->dirty_next->dirty_prev = c->dirty_prev;
    }
    c->dirty = false;
}

static void on_flush(void *arg);

/* In this round at its end, or after the descriptors had their turn. False without memory. */
static bool arm_flush(struct ltn_http_server *s, bool now)
{
    uint64_t due_ns = ltn_loop_now_ns(s->loop) + (now ? 0 : 1);
    return s->flush.slot != 0 || ltn_loop_timer_at(s->loop, &s->flush, due_ns, on_flush, s) == 0;
}

/* Those that were in the list; what comes in meanwhile has its turn in the next round. */
static void on_flush(void *arg)
{
    struct ltn_http_server *s = arg;
    size_t n = 0;
    for (struct conn *c = s->dirty; c != NULL; c = c->dirty_next) {
        n++;
    }
    for (; n > 0 && s->dirty != NULL; n--) {
        struct conn *c = s->dirty;
        ltn_server_conn_clean(c);
        ltn_conn_work(c);
    }
    if (s->dirty != NULL) {
        (void)arm_flush(s, false); /* no memory: the next sweep sends it */
    }
}

void ltn_server_conn_dirty(struct conn *c)
{
    struct ltn_http_server *s = c->server;
    if (c->dirty || c->busy) {
        return; /* a busy connection sends what waits at the end of its event */
    }
    if (!arm_flush(s, true)) {
        return; /* no memory: the next sweep sends it */
    }
    c->dirty = true;
    c->dirty_prev = NULL;
    c->dirty_next = s->dirty;
    if (s->dirty != NULL) {
        s->dirty->dirty_prev = c;
    }
    s->dirty = c;
}

void ltn_server_conn_later(struct conn *c)
{
    struct ltn_http_server *s = c->server;
    if (c->dirty || !arm_flush(s, false)) {
        return;
    }
    struct conn *last = s->dirty;
    while (last != NULL && last->dirty_next != NULL) {
        last = last->dirty_next;
    }
    c->dirty = true;
    c->dirty_prev = last;
    c->dirty_next = NULL;
    if (last != NULL) {
        last->dirty_next = c;
    } else {
        s->dirty = c;
    }
}

static void on_sweep(void *arg)
{
    struct ltn_http_server *s = arg;
    uint64_t now_ns = ltn_loop_now_ns(s->loop);
    if (arm_sweep(s) != 0) {
        return; /* cannot happen: the slot of this very timer is free again */
    }
    ltn_health_tick(s);
    for (struct conn *c = s->conns; c != NULL; c = s->walk_next) {
        s->walk_next = c->next;
        ltn_conn_sweep(c, now_ns);
    }
}

/* ---- life ---- */

struct ltn_http_server *ltn_http_server_new(struct ltn_loop *loop, const struct ltn_http_conf *conf,
                                            struct ltn_http_budget *budget)
{
    struct ltn_http_server *s = calloc(1, sizeof(*s));
    if (s == NULL) {
        return NULL;
    }
    s->loop = loop;
    s->conf = *conf;
    atomic_init(&s->serving, true);
    ltn_map_init(&s->per_ip, conf->max_connections + 1);
    ltn_bucket_init(&s->handshakes, conf->handshake_burst, conf->handshake_per_s);
    s->core = core_new(s, budget);
    s->inflater = ltn_inflater_new(conf->zstd_window_log_max);
    bool limited = conf->tenant_requests_per_s != 0 || conf->tenant_bytes_per_s != 0;
    s->rate = limited
                  ? ltn_rate_new(conf->tenant_requests_per_s, conf->tenant_bytes_per_s, MAX_TENANTS)
                  : NULL;
    if (s->core == NULL || s->inflater == NULL || ltn_overload_init(&s->overload, &s->conf) != 0 ||
        (limited && s->rate == NULL) || (conf->grpc_health && ltn_health_routes(s) != 0) ||
        arm_sweep(s) != 0) {
        ltn_http_server_free(s);
        return NULL;
    }
    return s;
}

static void close_listeners(struct ltn_http_server *s)
{
    for (size_t i = 0; i < s->listener_count; i++) {
        ltn_loop_unwatch(s->loop, &s->listeners[i].watch);
        close(s->listeners[i].fd);
    }
    s->listener_count = 0;
    ltn_loop_timer_stop(s->loop, &s->accept_pause);
}

void ltn_http_server_free(struct ltn_http_server *s)
{
    if (s == NULL) {
        return;
    }
    s->drained = NULL;
    close_listeners(s);
    while (s->conns != NULL) {
        ltn_conn_close(s->conns);
    }
    ltn_loop_timer_stop(s->loop, &s->sweep);
    ltn_loop_timer_stop(s->loop, &s->flush);
    ltn_loop_timer_stop(s->loop, &s->drain_timer);
    ltn_loop_timer_stop(s->loop, &s->drain_final_timer);
    if (s->core != NULL) {
        pthread_mutex_lock(&s->core->lock);
        s->core->loop = NULL;
        s->core->server = NULL;
        pthread_mutex_unlock(&s->core->lock);
        ltn_core_unref(s->core);
    }
    ltn_router_done(&s->router);
    ltn_map_done(&s->per_ip, NULL);
    ltn_inflater_free(s->inflater);
    ltn_rate_free(s->rate);
    ltn_overload_done(&s->overload, s->loop);
    ltn_h2_spares_done(&s->spares);
    free(s);
}

int ltn_http_server_route(struct ltn_http_server *s, const struct ltn_http_route *r)
{
    return s->port_count == 0 ? ltn_router_add(&s->router, r) : -EBUSY;
}

/* ---- listening ---- */

static void on_accept(void *arg, uint32_t events);

static void watch_listeners(struct ltn_http_server *s, bool on)
{
    for (size_t i = 0; i < s->listener_count; i++) {
        int rc = ltn_loop_rewatch(s->loop, &s->listeners[i].watch, on ? (uint32_t)EPOLLIN : 0);
        (void)rc; /* a change of events of a watched descriptor does not fail */
    }
}

static void on_accept_pause_over(void *arg)
{
    struct ltn_http_server *s = arg;
    watch_listeners(s, true);
}

/* Out of descriptors or memory: the pending connection stays readable, so wait instead of spin. */
static void pause_accept(struct ltn_http_server *s)
{
    LTN_COUNT(s, accept_errors);
    uint64_t due_ns = ltn_loop_now_ns(s->loop) + ACCEPT_PAUSE_NS;
    if (ltn_loop_timer_at(s->loop, &s->accept_pause, due_ns, on_accept_pause_over, s) == 0) {
        watch_listeners(s, false);
    }
}

static void on_accept(void *arg, uint32_t events)
{
    struct listener *l = arg;
    struct ltn_http_server *s = l->server;
    (void)events;
    for (int i = 0; i < ACCEPTS_PER_EVENT; i++) {
        struct sockaddr_storage from;
        socklen_t len = sizeof(from);
        int fd = accept4(l->fd, (struct sockaddr *)&from, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
                pause_accept(s);
                return;
            }
            if (errno == EAGAIN || errno == EWOULDBLOCK) {
                return;
            }
            continue; /* that one connection failed */
        }
        if (atomic_load(&s->counters.connections) >= s->conf.max_connections) {
            LTN_COUNT(s, connections_refused_cap);
            close(fd);
            continue;
        }
        ltn_conn_accepted(s, fd, &from);
    }
}

static uint16_t port_of(int fd)
{
    struct sockaddr_storage a;
    socklen_t len = sizeof(a);
    if (getsockname(fd, (struct sockaddr *)&a, &len) != 0) {
        return 0;
    }
    return ntohs(a.ss_family == AF_INET ? ((struct sockaddr_in *)&a)->sin_port
                                        : ((struct sockaddr_in6 *)&a)->sin6_port);
}

static int open_socket(const struct ltn_http_server *s, const struct addrinfo *ai, bool dual,
                       int *ret_fd)
{
    int on = 1;
    int off = 0;
    int fd = socket(ai->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return -errno;
    }
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (s->conf.reuse_port) {
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on));
    }
    if (ai->ai_family == AF_INET6) {
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, dual ? &off : &on, sizeof(on));
    }
    if (bind(fd, ai->ai_addr, ai->ai_addrlen) != 0 || listen(fd, LISTEN_BACKLOG) != 0) {
        int rc = -errno;
        close(fd);
        return rc;
    }
    *ret_fd = fd;
    return 0;
}

static int listen_one(struct ltn_http_server *s, const struct addrinfo *ai, bool dual,
                      uint16_t *ret_port)
{
    int fd = -1;
    if (s->listener_count == LTN_MAX_LISTENERS) {
        return -ENOSPC;
    }
    int rc = open_socket(s, ai, dual, &fd);
    if (rc != 0) {
        return rc;
    }
    struct listener *l = &s->listeners[s->listener_count];
    *l = (struct listener){.server = s, .fd = fd, .port = port_of(fd)};
    rc = ltn_loop_watch(s->loop, &l->watch, fd, EPOLLIN, on_accept, l);
    if (rc != 0) {
        close(fd);
        return rc;
    }
    s->listener_count++;
    *ret_port = l->port;
    return 0;
}

static int split_address(const char *address, char *host, size_t host_size, uint16_t *ret_port,
                         struct ltn_errinfo *info)
{
    const char *colon = strrchr(address, ':');
    uint64_t port = 0;
    bool number = colon != NULL && ltn_parse_u64(colon + 1, &port);
    if (number && port > UINT16_MAX) {
        return ltn_errinfo_set(info, -EINVAL, "'%s': ports go up to 65535", address);
    }
    size_t n = number ? (size_t)(colon - address) : 0;
    bool brackets = n >= 2 && address[0] == '[' && address[n - 1] == ']';
    if (!number || (!brackets && memchr(address, ':', n) != NULL) || n >= host_size) {
        return ltn_errinfo_set(info, -EINVAL,
                               "'%s' is not of the form HOST:PORT (IPv6 in brackets)", address);
    }
    n -= brackets ? 2 : 0;
    memcpy(host, address + (brackets ? 1 : 0), n);
    host[n] = '\0';
    *ret_port = (uint16_t)port;
    return 0;
}

/* All addresses of a name get the port the first one got. */
static int listen_all(struct ltn_http_server *s, const struct addrinfo *list, uint16_t *port)
{
    int first_rc = -EADDRNOTAVAIL;
    bool any = false;
    for (const struct addrinfo *ai = list; ai != NULL; ai = ai->ai_next) {
        uint16_t got = 0;
        if (ai->ai_family == AF_INET) {
            ((struct sockaddr_in *)ai->ai_addr)->sin_port = htons(*port);
        } else if (ai->ai_family == AF_INET6) {
            ((struct sockaddr_in6 *)ai->ai_addr)->sin6_port = htons(*port);
        } else {
            continue;
        }
        int rc = listen_one(s, ai, false, &got);
        if (rc == 0) {
            any = true;
            *port = got;
        } else if (first_rc == -EADDRNOTAVAIL) {
            first_rc = rc;
        }
    }
    return any ? 0 : first_rc;
}

static int listen_any(struct ltn_http_server *s, uint16_t *port)
{
    struct sockaddr_in6 any6 = {
        .sin6_family = AF_INET6, .sin6_port = htons(*port), .sin6_addr = IN6ADDR_ANY_INIT};
    struct sockaddr_in any4 = {
        .sin_family = AF_INET, .sin_port = htons(*port), .sin_addr = {htonl(INADDR_ANY)}};
    const struct addrinfo ai6 = {
        .ai_family = AF_INET6, .ai_addr = (struct sockaddr *)&any6, .ai_addrlen = sizeof(any6)};
    const struct addrinfo ai4 = {
        .ai_family = AF_INET, .ai_addr = (struct sockaddr *)&any4, .ai_addrlen = sizeof(any4)};
    int rc = listen_one(s, &ai6, true, port);
    if (rc == -EAFNOSUPPORT || rc == -EADDRNOTAVAIL) {
        rc = listen_one(s, &ai4, false, port);
    }
    return rc;
}

int ltn_http_address_check(const char *address, struct ltn_errinfo *info)
{
    char host[256];
    uint16_t port;
    return split_address(address, host, sizeof(host), &port, info);
}

int ltn_http_server_listen(struct ltn_http_server *s, const char *address, struct ltn_errinfo *info)
{
    char host[256];
    uint16_t port;
    if (s->port_count == LTN_MAX_LISTENERS) {
        return ltn_errinfo_set(info, -ENOSPC, "too many listen addresses");
    }
    int rc = split_address(address, host, sizeof(host), &port, info);
    if (rc != 0) {
        return rc;
    }
    if (host[0] == '\0') {
        rc = listen_any(s, &port);
    } else {
        struct addrinfo *list = NULL;
        const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
        int gai = getaddrinfo(host, NULL, &hints, &list);
        if (gai != 0) {
            return ltn_errinfo_set(info, -EADDRNOTAVAIL, "cannot resolve '%s': %s", host,
                                   gai_strerror(gai));
        }
        rc = listen_all(s, list, &port);
        freeaddrinfo(list);
    }
    if (rc != 0) {
        return ltn_errinfo_set(info, rc, "cannot listen on %s: %s", address, ltn_err_str(rc));
    }
    s->ports[s->port_count++] = port;
    return 0;
}

uint16_t ltn_http_server_port(const struct ltn_http_server *s, size_t index)
{
    return index < s->port_count ? s->ports[index] : 0;
}

/* ---- draining ---- */

static void finish_drain(struct ltn_http_server *s)
{
    void (*done)(void *) = s->drained;
    s->drained = NULL;
    ltn_loop_timer_stop(s->loop, &s->drain_timer);
    ltn_loop_timer_stop(s->loop, &s->drain_final_timer);
    if (done != NULL) {
        done(s->drained_arg);
    }
}

static void on_drained(void *arg)
{
    finish_drain(arg);
}

void ltn_server_conn_gone(struct ltn_http_server *s)
{
    if (s->draining && s->conns == NULL && s->drained != NULL) {
        /* By timer: the caller may be in the middle of a walk over the connections. */
        uint64_t now_ns = ltn_loop_now_ns(s->loop);
        if (ltn_loop_timer_at(s->loop, &s->drain_timer, now_ns, on_drained, s) != 0) {
            finish_drain(s);
        }
    }
}

static void on_drain_deadline(void *arg)
{
    struct ltn_http_server *s = arg;
    void (*done)(void *) = s->drained;
    s->drained = NULL;
    while (s->conns != NULL) {
        ltn_conn_close(s->conns);
    }
    s->drained = done;
    finish_drain(s);
}

static void on_drain_final(void *arg)
{
    struct ltn_http_server *s = arg;
    for (struct conn *c = s->conns; c != NULL; c = s->walk_next) {
        s->walk_next = c->next;
        ltn_conn_drain_final(c);
        ltn_conn_work(c);
    }
}

void ltn_http_server_drain(struct ltn_http_server *s, uint64_t grace_ns, void (*done)(void *arg),
                           void *arg)
{
    uint64_t now_ns = ltn_now_mono_ns();
    if (s->draining) {
        return;
    }
    s->draining = true;
    s->drained = done;
    s->drained_arg = arg;
    atomic_store(&s->serving, false);
    ltn_health_drain(s);
    close_listeners(s);
    if (ltn_loop_timer_at(s->loop, &s->drain_timer, now_ns + grace_ns, on_drain_deadline, s) != 0 ||
        ltn_loop_timer_at(s->loop, &s->drain_final_timer, now_ns + DRAIN_FINAL_NS, on_drain_final,
                          s) != 0) {
        on_drain_deadline(s);
        return;
    }
    for (struct conn *c = s->conns; c != NULL; c = s->walk_next) {
        s->walk_next = c->next;
        ltn_conn_drain(c);
        ltn_conn_work(c);
    }
    ltn_server_conn_gone(s);
}

/* ---- small services ---- */

const char *ltn_server_date(struct ltn_http_server *s)
{
    uint64_t now_s = ltn_now_unix_ns() / LTN_NS_PER_S;
    if (now_s != s->date_s) {
        static const char days[][4] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
        static const char months[][4] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                         "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
        time_t t = (time_t)now_s;
        struct tm tm;
        (void)gmtime_r(&t, &tm);
        /* Not strftime: its names follow the locale. */
        (void)snprintf(s->date, sizeof(s->date), "%s, %02d %s %04d %02d:%02d:%02d GMT",
                       days[tm.tm_wday % 7], tm.tm_mday % 100, months[tm.tm_mon % 12],
                       (tm.tm_year + 1900) % 10000, tm.tm_hour % 100, tm.tm_min % 100,
                       tm.tm_sec % 100);
        s->date_s = now_s;
    }
    return s->date;
}

void ltn_http_server_set_serving(struct ltn_http_server *s, bool serving)
{
    atomic_store(&s->serving, serving);
}

void ltn_http_server_stats(const struct ltn_http_server *s, struct ltn_http_stats *ret)
{
    const struct counters *c = &s->counters;
#define LTN_COPY(name, help) ret->name = atomic_load_explicit(&c->name, memory_order_relaxed);
    LTN_HTTP_COUNTERS(LTN_COPY)
#undef LTN_COPY
    ret->request_inflated_bytes += atomic_load(&s->core->inflated_bytes);
    ret->connections = atomic_load_explicit(&c->connections, memory_order_relaxed);
    ret->in_flight = atomic_load_explicit(&c->in_flight, memory_order_relaxed);
    ret->body_bytes = ltn_http_budget_used(s->core->budget);
}
