/* SPDX-License-Identifier: Apache-2.0 */
/* The collector's MCP tools at /mcp. What they say is in memory, or comes from the nodes
 * later: no call blocks. Loop
 * thread. docs/mcp.md lists them. */
#ifndef LTN_SERVE_MCP_H
#define LTN_SERVE_MCP_H

#include "serve/serve.h"

struct ltn_serve_mcp;

struct ltn_serve_mcp_opts {
    const struct ltn_serve *serve; /* borrowed */
    bool loopback;                 /* the API is reachable from this machine only */
    bool token;                    /* the API asks for a token */
};

/* Makes the tools and adds the route. 0, -ENOMEM, or errors of ltn_http_server_route. Free with
 * ltn_serve_mcp_free after the server and after the hub was stopped. */
int ltn_serve_mcp_new(const struct ltn_serve_mcp_opts *opts, struct ltn_http_server *server,
                      struct ltn_serve_mcp **ret) ltn_must_check;
void ltn_serve_mcp_free(struct ltn_serve_mcp *m);

#endif /* LTN_SERVE_MCP_H */
