/* SPDX-License-Identifier: Apache-2.0 */
#include "mcp/http.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* The name without the port, which is digits. */
static size_t host_len(const char *host)
{
    const char *end = host[0] == '[' ? strchr(host, ']') : NULL;
    size_t n = end != NULL ? (size_t)(end - host) + 1 : strcspn(host, ":");
    if (host[n] == ':') {
        return strspn(host + n + 1, "0123456789") == strlen(host + n + 1) ? n : 0;
    }
    return host[n] == '\0' ? n : 0;
}

bool ltn_mcp_is_local_host(const char *host)
{
    size_t n = host_len(host);
    return (n == 9 && strncasecmp(host, "localhost", 9) == 0) ||
           (n == 5 && strncmp(host, "[::1]", 5) == 0) ||
           (n >= 7 && strncmp(host, "127.", 4) == 0 && strspn(host, "0123456789.") == n);
}

/* What follows the scheme; NULL for another scheme, and for "null". */
static const char *origin_host(const char *origin)
{
    if (strncasecmp(origin, "http://", 7) == 0) {
        return origin + 7;
    }
    return strncasecmp(origin, "https://", 8) == 0 ? origin + 8 : NULL;
}

bool ltn_mcp_is_local_origin(const char *origin)
{
    const char *host = origin_host(origin);
    return host != NULL && ltn_mcp_is_local_host(host);
}

/* Host, or :authority, which the server hands over under the same name. */
static bool may_ask(const struct ltn_mcp_http *h, const struct ltn_http_request *req)
{
    const char *host = ltn_http_header(req, "host");
    const char *origin = ltn_http_header(req, "origin");
    if (h->loopback && host != NULL && !ltn_mcp_is_local_host(host)) {
        return false;
    }
    if (origin == NULL || ltn_mcp_is_local_origin(origin)) {
        return true;
    }
    const char *from = origin_host(origin);
    return h->token && from != NULL && host != NULL && strcasecmp(from, host) == 0;
}

static void deliver(void *arg, const struct ltn_mcp_out *out)
{
    struct ltn_http_request *req = arg;
    ltn_http_reply(req, &(struct ltn_http_response){
                            .status = out->status,
                            .content_type = out->body != NULL ? "application/json" : NULL,
                            .body = out->body,
                            .body_len = out->len,
                            .take_body = out->body != NULL,
                        });
}

static bool gone(void *arg)
{
    const struct ltn_http_request *req = arg;
    return ltn_http_gone(req);
}

void ltn_mcp_http_answer(struct ltn_mcp_http *h, struct ltn_http_request *req)
{
    struct ltn_mcp_out out;
    size_t n = 0;
    if (!may_ask(h, req)) {
        h->refused++;
        ltn_http_reply_error(req, LTN_ERR_FORBIDDEN, "this host or origin may not ask here", 0);
        return;
    }
    const char *body = (const char *)ltn_http_body(req, &n);
    struct ltn_mcp_in in = {
        .body = body != NULL ? body : "",
        .len = n,
        .http = true,
        .version = ltn_http_header(req, "mcp-protocol-version"),
        .method = ltn_http_header(req, "mcp-method"),
        .name = ltn_http_header(req, "mcp-name"),
        .may_wait = h->waits,
    };
    ltn_mcp_handle(h->mcp, &in, &out);
    if (out.later != NULL) {
        ltn_mcp_later_attach(out.later, deliver, gone, req);
    } else {
        deliver(req, &out);
    }
}

int ltn_mcp_http_route(struct ltn_http_server *server,
                       void (*handle)(void *arg, struct ltn_http_request *req), void *arg)
{
    return ltn_http_server_route(server, &(struct ltn_http_route){
                                             .methods = LTN_HTTP_POST,
                                             .path = "/mcp",
                                             .content_types = "application/json",
                                             .max_body_bytes = LTN_MCP_MAX_BODY_BYTES,
                                             .handle = handle,
                                             .arg = arg,
                                         });
}
