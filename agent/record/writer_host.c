/* SPDX-License-Identifier: Apache-2.0 */
#include "record/writer_int.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/attr.h"
#include "base/text.h"

#define ADDRESS_TEXT_BYTES INET6_ADDRSTRLEN

static void bind_share(struct ltn_stmt *s, int i, double v)
{
    if (v >= 0) {
        ltn_stmt_f64(s, i, v);
    } else {
        ltn_stmt_null(s, i);
    }
}

static void bind_sums(struct ltn_stmt *s, int at, const uint64_t *values, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        ltn_stmt_u64(s, at + (int)i, values[i]);
    }
}

/* Row of the owner: NULL when it is nobody traced. A process that made no call, such as a data
 * loader's worker, has no other row that could give it a name; renamed: this one is newer than any
 * other. */
static int owner(struct ltn_writer *w, const struct ltn_window *window,
                 const struct ltn_host_owner *who, bool renamed, int64_t *ret)
{
    int64_t comm = 0;
    struct ltn_stmt *s;
    *ret = 0;
    if (who->pid == 0) {
        return 0;
    }
    int rc = ltn_writer_proc_id(w, who->pid, who->start_ns, window->end_ns, ret);
    if (rc == 0) {
        rc = ltn_writer_string_id(w, who->comm, &comm);
    }
    if (rc < 0 || comm == 0) {
        return rc;
    }
    rc = ltn_db_prepare(w->db,
                        "UPDATE procs SET comm_id = ?2 WHERE id = ?1 AND (comm_id IS NULL OR (?3 "
                        "AND comm_id <> ?2))",
                        &s);
    if (rc == 0) {
        ltn_stmt_i64(s, 1, *ret);
        ltn_stmt_i64(s, 2, comm);
        ltn_stmt_i64(s, 3, renamed);
        rc = ltn_stmt_run(s);
    }
    return rc;
}

/* Prepares an insertion with the window and the owner as its first two values. */
static int begin(struct ltn_writer *w, const struct ltn_window *window, int64_t id,
                 const struct ltn_host_owner *who, const char *sql, struct ltn_stmt **ret)
{
    int64_t proc = 0;
    int rc = owner(w, window, who, false, &proc);
    if (rc == 0) {
        rc = ltn_db_prepare(w->db, sql, ret);
    }
    if (rc == 0) {
        ltn_stmt_i64(*ret, 1, id);
        if (proc != 0) {
            ltn_stmt_i64(*ret, 2, proc);
        } else {
            ltn_stmt_null(*ret, 2);
        }
    }
    return rc;
}

static int store_proc(struct ltn_writer *w, const struct ltn_window *window, int64_t id,
                      const struct ltn_host_proc_row *r)
{
    const struct ltn_host_process *d = &r->delta;
    const uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    const uint64_t values[] = {
        d->pages * page_bytes,
        d->reclaims,
        d->reclaim_ns,
        d->opens,
        d->open_ns,
        d->opens_failed,
        d->opens_missing,
        d->opens_slow,
        d->opens_untold,
        d->socket_calls,
        d->socket_sent_bytes,
        d->socket_received_bytes,
        d->socket_untold,
        d->block_read_bytes,
        d->block_written_bytes,
    };
    struct ltn_stmt *s;
    if (r->who.pid == 0) {
        return 0;
    }
    int rc = begin(w, window, id, &r->who,
                   "INSERT OR REPLACE INTO host_processes (window_id, proc_id, parent_pid, "
                   "page_bytes, reclaims, reclaim_ns, opens, open_ns, opens_failed, opens_missing, "
                   "opens_slow, opens_untold, socket_calls, socket_sent_bytes, "
                   "socket_received_bytes, socket_untold, block_read_bytes, block_written_bytes) "
                   "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                   &s);
    if (rc < 0) {
        return rc;
    }
    ltn_stmt_i64(s, 3, r->parent_pid);
    bind_sums(s, 4, values, LTN_ARRAY_SIZE(values));
    return ltn_stmt_run(s);
}

static const char *op_name(uint32_t op)
{
    static const char *const names[] = {
        [LTN_BLOCK_READ] = "read",
        [LTN_BLOCK_WRITE] = "write",
        [LTN_BLOCK_FLUSH] = "flush",
        [LTN_BLOCK_OTHER] = "other",
    };
    return op < LTN_ARRAY_SIZE(names) ? names[op] : "other";
}

static int store_block(struct ltn_writer *w, const struct ltn_window *window, int64_t id,
                       const struct ltn_host_block_row *r)
{
    const struct ltn_block_stats *d = &r->delta;
    const uint64_t values[] = {d->requests,  d->bytes,      d->errors,
                               d->queued_ns, d->service_ns, d->max_ns};
    struct ltn_stmt *s;
    if (d->requests == 0) {
        return 0;
    }
    int rc = begin(w, window, id, &r->who,
                   "INSERT INTO host_block (window_id, proc_id, disk, major, minor, op, requests, "
                   "bytes, errors, queued_ns, service_ns, max_ns, depth, depth_max) VALUES (?, ?, "
                   "?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                   &s);
    if (rc < 0) {
        return rc;
    }
    ltn_stmt_text(s, 3, r->disk);
    ltn_stmt_i64(s, 4, r->key.major);
    ltn_stmt_i64(s, 5, r->key.minor);
    ltn_stmt_text(s, 6, op_name(r->key.op));
    bind_sums(s, 7, values, LTN_ARRAY_SIZE(values));
    ltn_stmt_f64(s, 13, (double)d->depth_sum / (double)d->requests);
    ltn_stmt_u64(s, 14, d->depth_max);
    return ltn_stmt_run(s);
}

/* An address as people write it; one of IPv4 inside IPv6 as the IPv4 one it is. */
static void address_text(uint32_t family, const uint8_t *a, char out[ADDRESS_TEXT_BYTES])
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    bool inner = family == AF_INET6 && memcmp(a, mapped, sizeof(mapped)) == 0;
    const void *at = inner ? a + sizeof(mapped) : a;
    if (inet_ntop(family == AF_INET6 && !inner ? AF_INET6 : AF_INET, at, out, ADDRESS_TEXT_BYTES) ==
        NULL) {
        out[0] = '\0';
    }
}

static void protocol_text(const struct ltn_net_key *k, char out[16])
{
    if (k->family == AF_UNIX) {
        (void)snprintf(out, 16, "unix");
    } else if (k->family != AF_INET && k->family != AF_INET6) {
        (void)snprintf(out, 16, "family %u", k->family);
    } else if (k->protocol == IPPROTO_TCP || k->protocol == IPPROTO_UDP) {
        (void)snprintf(out, 16, "%s", k->protocol == IPPROTO_TCP ? "tcp" : "udp");
    } else {
        (void)snprintf(out, 16, "ip %u", k->protocol);
    }
}

static int store_net(struct ltn_writer *w, const struct ltn_window *window, int64_t id,
                     const struct ltn_host_net_row *r)
{
    static const uint8_t none[LTN_ADDRESS_BYTES];
    static const char *const sides[] = {[LTN_SIDE_CLIENT] = "client", [LTN_SIDE_SERVER] = "server"};
    const struct ltn_net_stats *d = &r->delta;
    const uint64_t values[] = {d->sends,          d->sent_bytes,  d->receives,
                               d->received_bytes, d->would_block, d->failed};
    char protocol[16];
    char peer[ADDRESS_TEXT_BYTES];
    struct ltn_stmt *s;
    if (r->who.pid == 0) {
        return 0;
    }
    int rc = begin(w, window, id, &r->who,
                   "INSERT INTO host_net (window_id, proc_id, protocol, peer, port, side, sends, "
                   "sent_bytes, receives, received_bytes, would_block, failed) VALUES (?, ?, ?, ?, "
                   "?, ?, ?, ?, ?, ?, ?, ?)",
                   &s);
    if (rc < 0) {
        return rc;
    }
    bool internet = r->key.family == AF_INET || r->key.family == AF_INET6;
    bool connected = internet && memcmp(r->key.peer, none, sizeof(none)) != 0;
    protocol_text(&r->key, protocol);
    address_text(r->key.family, r->key.peer, peer);
    ltn_stmt_text(s, 3, protocol);
    ltn_stmt_text(s, 4, connected ? peer : NULL);
    if (internet) {
        ltn_stmt_i64(s, 5, r->key.port);
    } else {
        ltn_stmt_null(s, 5);
    }
    ltn_stmt_text(s, 6,
                  internet && r->key.side < LTN_ARRAY_SIZE(sides) ? sides[r->key.side] : NULL);
    bind_sums(s, 7, values, LTN_ARRAY_SIZE(values));
    return ltn_stmt_run(s);
}

static int store_retransmit(struct ltn_writer *w, const struct ltn_window *window, int64_t id,
                            const struct ltn_host_retransmit_row *r)
{
    char local[ADDRESS_TEXT_BYTES];
    char peer[ADDRESS_TEXT_BYTES];
    struct ltn_stmt *s;
    int rc = begin(w, window, id, &r->who,
                   "INSERT INTO host_retransmits (window_id, proc_id, local, local_port, peer, "
                   "peer_port, segments, handshake) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                   &s);
    if (rc < 0) {
        return rc;
    }
    address_text(r->key.family, r->key.local, local);
    address_text(r->key.family, r->key.peer, peer);
    ltn_stmt_text(s, 3, local);
    ltn_stmt_i64(s, 4, r->key.local_port);
    ltn_stmt_text(s, 5, peer);
    ltn_stmt_i64(s, 6, r->key.peer_port);
    ltn_stmt_u64(s, 7, r->segments);
    ltn_stmt_u64(s, 8, r->handshake);
    return ltn_stmt_run(s);
}

static int store_file(struct ltn_writer *w, const struct ltn_window *window, int64_t id,
                      const struct ltn_host_file_row *r)
{
    const struct ltn_file_stats *d = &r->delta;
    const uint64_t values[] = {d->failed, d->missing, d->slow, d->spent_ns, d->max_ns};
    char path[LTN_FILE_PATH_BYTES];
    struct ltn_stmt *s;
    if (r->who.pid == 0) {
        return 0;
    }
    int rc = begin(w, window, id, &r->who,
                   "INSERT INTO host_files (window_id, proc_id, path, failed, missing, slow, "
                   "spent_ns, max_ns, last_errno) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                   &s);
    if (rc < 0) {
        return rc;
    }
    ltn_text_clean(path, sizeof(path), d->path, strnlen(d->path, sizeof(d->path)));
    ltn_stmt_text(s, 3, path);
    bind_sums(s, 4, values, LTN_ARRAY_SIZE(values));
    ltn_stmt_i64(s, 9, d->last_errno);
    return ltn_stmt_run(s);
}

static int store_throttle(struct ltn_writer *w, const struct ltn_window *window, int64_t id,
                          const struct ltn_host_throttle_row *r)
{
    struct ltn_stmt *s;
    int rc = begin(w, window, id, &r->who,
                   "INSERT OR REPLACE INTO host_throttles (window_id, proc_id, path, periods, "
                   "throttled, throttled_ns) VALUES (?, ?, ?, ?, ?, ?)",
                   &s);
    if (rc < 0) {
        return rc;
    }
    ltn_stmt_text(s, 3, r->path);
    ltn_stmt_u64(s, 4, r->periods);
    ltn_stmt_u64(s, 5, r->throttled);
    ltn_stmt_u64(s, 6, r->throttled_ns);
    return ltn_stmt_run(s);
}

static const char *event_name(uint16_t type)
{
    switch (type) {
    case LTN_EVENT_EXEC:
        return "exec";
    case LTN_EVENT_EXIT:
        return "exit";
    case LTN_EVENT_FORK:
        return "fork";
    case LTN_EVENT_OOM:
        return "oom";
    default:
        return "first_call";
    }
}

static int store_event(struct ltn_writer *w, const struct ltn_window *window, int64_t id,
                       const struct ltn_host_event_row *r)
{
    struct ltn_stmt *s;
    int64_t proc = 0;
    if (r->who.pid == 0) {
        return 0;
    }
    int rc =
        owner(w, window, &r->who, r->type == LTN_EVENT_EXEC || r->type == LTN_EVENT_EXIT, &proc);
    if (rc < 0) {
        return rc;
    }
    rc = begin(w, window, id, &r->who,
               "INSERT INTO host_events (window_id, proc_id, time_ns, type, parent_pid, "
               "exit_code) VALUES (?, ?, ?, ?, ?, ?)",
               &s);
    if (rc < 0) {
        return rc;
    }
    ltn_stmt_u64(s, 3, r->time_ns);
    ltn_stmt_text(s, 4, event_name(r->type));
    if (r->parent_pid != 0) {
        ltn_stmt_i64(s, 5, r->parent_pid);
    } else {
        ltn_stmt_null(s, 5);
    }
    if (r->type == LTN_EVENT_EXIT) {
        ltn_stmt_i64(s, 6, r->exit_code);
    } else {
        ltn_stmt_null(s, 6);
    }
    return ltn_stmt_run(s);
}

static int store_state(struct ltn_writer *w, int64_t id, const struct ltn_host *h)
{
    struct ltn_stmt *s;
    int rc = ltn_db_prepare(w->db,
                            "INSERT OR REPLACE INTO host_states (window_id, cpus, cpu_busy, load1, "
                            "memory_total_bytes, memory_available_bytes, swap_total_bytes, "
                            "swap_used_bytes, pressure_cpu, pressure_memory, pressure_io) VALUES "
                            "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                            &s);
    if (rc < 0) {
        return rc;
    }
    const uint64_t sizes[] = {h->memory_total_bytes, h->memory_available_bytes, h->swap_total_bytes,
                              h->swap_used_bytes};
    ltn_stmt_i64(s, 1, id);
    ltn_stmt_i64(s, 2, h->cpus);
    bind_share(s, 3, h->cpu_busy);
    bind_share(s, 4, h->load1);
    for (int i = 0; i < 4; i++) {
        if (h->memory_total_bytes > 0) {
            ltn_stmt_u64(s, 5 + i, sizes[i]);
        } else {
            ltn_stmt_null(s, 5 + i);
        }
    }
    bind_share(s, 9, h->pressure_cpu);
    bind_share(s, 10, h->pressure_memory);
    bind_share(s, 11, h->pressure_io);
    return ltn_stmt_run(s);
}

int ltn_writer_host(struct ltn_writer *w, const struct ltn_window *window, int64_t id)
{
    const struct ltn_host_window *h = &window->host;
    int rc = h->has_state && h->state_due ? store_state(w, id, &h->state) : 0;
    for (size_t i = 0; i < h->proc_count && rc == 0; i++) {
        rc = store_proc(w, window, id, &h->procs[i]);
    }
    for (size_t i = 0; i < h->block_count && rc == 0; i++) {
        rc = store_block(w, window, id, &h->blocks[i]);
    }
    for (size_t i = 0; i < h->net_count && rc == 0; i++) {
        rc = store_net(w, window, id, &h->nets[i]);
    }
    for (size_t i = 0; i < h->retransmit_count && rc == 0; i++) {
        rc = store_retransmit(w, window, id, &h->retransmits[i]);
    }
    for (size_t i = 0; i < h->file_count && rc == 0; i++) {
        rc = store_file(w, window, id, &h->files[i]);
    }
    for (size_t i = 0; i < h->throttle_count && rc == 0; i++) {
        rc = store_throttle(w, window, id, &h->throttles[i]);
    }
    for (size_t i = 0; i < h->event_count && rc == 0; i++) {
        rc = store_event(w, window, id, &h->events[i]);
    }
    return rc;
}
