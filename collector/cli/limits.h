/* SPDX-License-Identifier: Apache-2.0 */
/* What the OTLP listeners allow a client: keys of the configuration and how they are applied. */
#ifndef LTN_COLLECTOR_LIMITS_H
#define LTN_COLLECTOR_LIMITS_H

#include <stddef.h>
#include <stdint.h>

#include "http/server.h"

struct ltn_collector_limits {
    uint64_t max_body_bytes, memory_bytes;
    uint64_t max_connections, max_connections_per_address, max_streams;
    uint64_t max_connection_age_ns, first_byte_timeout_ns, header_timeout_ns, request_timeout_ns;
    uint64_t idle_timeout_ns, write_timeout_ns, body_grace_ns;
    uint64_t tenant_requests_per_s, tenant_bytes_per_s;
};

/* Entries of the collector's table; at is the offset of the struct in its configuration. Times are
 * in seconds in min and max. */
#define LTN_LIMIT_AT(at, field) ((at) + offsetof(struct ltn_collector_limits, field))
#define LTN_LIMIT_SIZE(at, name, field, value, low, high, text)                                    \
    {                                                                                              \
        .key = "otlp." name, .type = LTN_CONF_SIZE_BYTES, .offset = LTN_LIMIT_AT(at, field),       \
        .def = value, .min = low, .max = high, .doc = text                                         \
    }
#define LTN_LIMIT_COUNT(at, name, field, value, low, high, text)                                   \
    {                                                                                              \
        .key = "otlp." name, .type = LTN_CONF_U64, .offset = LTN_LIMIT_AT(at, field),              \
        .def = value, .min = low, .max = high, .doc = text                                         \
    }
#define LTN_LIMIT_TIME(at, name, field, value, low, high, text)                                    \
    {                                                                                              \
        .key = "otlp." name, .type = LTN_CONF_DURATION_NS, .offset = LTN_LIMIT_AT(at, field),      \
        .def = value, .min = low, .max = high, .doc = text                                         \
    }
#define LTN_COLLECTOR_LIMIT_KEYS(at)                                                               \
    LTN_LIMIT_SIZE(at, "max_body", max_body_bytes, "64m", 1024, 1073741824,                        \
                   "Largest request, on the wire and decompressed."),                              \
        LTN_LIMIT_SIZE(at, "memory", memory_bytes, "448m", 1048576, 1099511627776,                 \
                       "Request bodies held at a time, of all connections."),                      \
        LTN_LIMIT_COUNT(at, "max_connections", max_connections, "40000", 1, 1000000,               \
                        "Connections at a time; further ones are closed."),                        \
        LTN_LIMIT_COUNT(at, "max_connections_per_address", max_connections_per_address, "4096", 1, \
                        1000000, "Connections from one address."),                                 \
        LTN_LIMIT_COUNT(at, "max_streams", max_streams, "100", 1, 10000,                           \
                        "Requests at a time on one connection."),                                  \
        LTN_LIMIT_TIME(at, "max_connection_age", max_connection_age_ns, "30m", 0, 31536000,        \
                       "Age at which a connection is ended in order, 10 % either way; 0: never."), \
        LTN_LIMIT_TIME(at, "first_byte_timeout", first_byte_timeout_ns, "5s", 0.05, 3600,          \
                       "Time a new connection may be silent."),                                    \
        LTN_LIMIT_TIME(at, "header_timeout", header_timeout_ns, "10s", 0.05, 3600,                 \
                       "Time the head of a request may take."),                                    \
        LTN_LIMIT_TIME(at, "request_timeout", request_timeout_ns, "2m", 0.05, 3600,                \
                       "Time a request may take to come in."),                                     \
        LTN_LIMIT_TIME(at, "body_grace", body_grace_ns, "10s", 0.05, 3600,                         \
                       "After this time a body must come with 1 KiB/s."),                          \
        LTN_LIMIT_TIME(at, "idle_timeout", idle_timeout_ns, "2m", 0.05, 86400,                     \
                       "Time a connection may rest between requests."),                            \
        LTN_LIMIT_TIME(at, "write_timeout", write_timeout_ns, "30s", 0.05, 3600,                   \
                       "Time a client may leave its answers unread."),                             \
        LTN_LIMIT_COUNT(at, "tenant_requests", tenant_requests_per_s, "0", 0, 1000000000,          \
                        "Requests a second of one tenant (token, else address); 0: any."),         \
        LTN_LIMIT_SIZE(at, "tenant_bytes", tenant_bytes_per_s, "0", 0, 68719476736,                \
                       "Body bytes a second of one tenant, on the wire; 0: any.")

/* Puts them into the configuration of a server. */
void ltn_collector_apply_limits(const struct ltn_collector_limits *l, struct ltn_http_conf *ret);

#endif /* LTN_COLLECTOR_LIMITS_H */
