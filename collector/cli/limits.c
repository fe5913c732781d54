/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/limits.h"

void ltn_collector_apply_limits(const struct ltn_collector_limits *l, struct ltn_http_conf *ret)
{
    ret->max_body_bytes = (size_t)l->max_body_bytes;
    ret->max_connections = (uint32_t)l->max_connections;
    ret->max_connections_per_ip = (uint32_t)l->max_connections_per_address;
    ret->h2_max_streams = (uint32_t)l->max_streams;
    ret->max_connection_age_ns = l->max_connection_age_ns;
    ret->first_byte_timeout_ns = l->first_byte_timeout_ns;
    ret->headers_timeout_ns = l->header_timeout_ns;
    ret->request_timeout_ns = l->request_timeout_ns;
    ret->body_grace_ns = l->body_grace_ns;
    ret->idle_timeout_ns = l->idle_timeout_ns;
    ret->write_timeout_ns = l->write_timeout_ns;
    ret->tenant_requests_per_s = l->tenant_requests_per_s;
    ret->tenant_bytes_per_s = l->tenant_bytes_per_s;
}
