/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The node's MCP tools over its record: calls block until they are answered or their deadline has
 * passed, so they want a thread of their own. One thread at a time. docs/mcp.md lists them.
 */
#ifndef LTN_SERVE_MCP_TOOLS_H
#define LTN_SERVE_MCP_TOOLS_H

#include "base/err.h"
#include "mcp/mcp.h"

struct ltn_node_mcp_opts {
    const char *db_path;       /* the record */
    const char *check_program; /* run as "PROGRAM check --json --db DB" for get_check */
    const char *const *nodes;  /* addresses that query_fleet may ask, "host:port" */
    size_t node_count;         /* at most LTN_NODE_MCP_NODES */
    const char *nodes_token;   /* bearer token for them; "" or NULL: none */
};

#define LTN_NODE_MCP_NODES 64

struct ltn_node_mcp;

/* Everything in opts is borrowed for its life. 0, -ENOMEM, LTN_ERR_COUNT (too many nodes). Free
 * with ltn_node_mcp_free (NULL-safe). */
int ltn_node_mcp_new(const struct ltn_node_mcp_opts *opts,
                     struct ltn_node_mcp **ret) ltn_must_check;
void ltn_node_mcp_free(struct ltn_node_mcp *n);

/* The server that answers messages; owned by n. */
struct ltn_mcp *ltn_node_mcp_server(struct ltn_node_mcp *n);

#endif /* LTN_SERVE_MCP_TOOLS_H */
