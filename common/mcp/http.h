/* SPDX-License-Identifier: Apache-2.0 */
/* MCP at a path of an HTTP server. POST only; GET and DELETE get 405 from the server. */
#ifndef LTN_MCP_HTTP_H
#define LTN_MCP_HTTP_H

#include "http/server.h"
#include "mcp/mcp.h"

/* Who may ask. With loopback set, Host must be a name of this machine (that keeps web pages from
 * reaching it through a name of their own). A request with an Origin passes when that is a name of
 * this machine, or, with token, the server itself. */
struct ltn_mcp_http {
    struct ltn_mcp *mcp; /* borrowed */
    bool loopback;       /* the address listened on */
    bool token;          /* the server asks for a token before this is reached */
    bool waits;          /* tools may answer later, on the thread of *h */
    uint64_t refused;    /* requests turned away for Host or Origin */
};

/* Answers the request, taking it. On the thread that *h belongs to; as long as a tool may take. */
void ltn_mcp_http_answer(struct ltn_mcp_http *h, struct ltn_http_request *req);

/* Adds "/mcp" with a handler of the caller's. Errors of ltn_http_server_route. */
int ltn_mcp_http_route(struct ltn_http_server *server,
                       void (*handle)(void *arg, struct ltn_http_request *req),
                       void *arg) ltn_must_check;

/* "localhost", "127.x.y.z", "[::1]", each with or without a port. */
bool ltn_mcp_is_local_host(const char *host);
/* The same behind "http://" or "https://". */
bool ltn_mcp_is_local_origin(const char *origin);

#endif /* LTN_MCP_HTTP_H */
