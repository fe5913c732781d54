/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client connection of the load generator: HTTP/2 or HTTP/1.1 over one socket, framing of its
 * own, no more than the measurement needs. The peer is a server under test, not an enemy: what it
 * says wrong ends the connection.
 */
#ifndef LTN_BENCH_LOAD_CONN_H
#define LTN_BENCH_LOAD_CONN_H

#include <stdbool.h>
#include <stdint.h>

#include "load_body.h"

struct load_target {
    const char *host; /* numeric IPv4 */
    uint16_t port;
    bool http2;
    bool grpc;
    bool json;
    bool tls; /* the server's certificate is not checked */
    enum load_coding coding;
    const char *path;
    const char *token; /* NULL: none */
    uint32_t streams;  /* at a time on one connection */
};

struct load_reply {
    uint64_t due_ns; /* when the request was to be sent */
    uint32_t points;
    bool ok;           /* acknowledged */
    bool retry;        /* refused for now */
    bool hint;         /* and told when to come again */
    int status;        /* of HTTP, or gRPC's when that is not 0 */
    uint64_t rejected; /* points, by partial success */
};

struct load_conn;

/* Connects; NULL when it cannot. What replies bring goes to on_reply. */
struct load_conn *load_conn_new(const struct load_target *t, const struct load_set *set,
                                void (*on_reply)(void *arg, const struct load_reply *r), void *arg);
void load_conn_free(struct load_conn *c);
int load_conn_fd(const struct load_conn *c);

/* Whether another request can begin now: streams, windows and buffer have room. */
bool load_conn_ready(const struct load_conn *c);
void load_conn_begin(struct load_conn *c, const struct load_body *b, uint64_t time_ns,
                     uint64_t round, uint64_t due_ns);
/* Sends what can be sent. False: the connection is gone. */
bool load_conn_flush(struct load_conn *c);
/* Reads what there is. False: the connection is gone. */
bool load_conn_read(struct load_conn *c);
bool load_conn_wants_write(const struct load_conn *c);
uint32_t load_conn_in_flight(const struct load_conn *c);
uint64_t load_conn_sent_bytes(const struct load_conn *c);

#endif /* LTN_BENCH_LOAD_CONN_H */
