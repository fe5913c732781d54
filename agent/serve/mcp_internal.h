/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the node's MCP tools share. */
#ifndef LTN_SERVE_MCP_INTERNAL_H
#define LTN_SERVE_MCP_INTERNAL_H

#include "mcp/table.h"
#include "serve/mcp_tools.h"

struct ltn_node_mcp {
    struct ltn_node_mcp_opts opts;
    struct ltn_mcp *server;
};

/* Runs of the tools; arg is the struct ltn_node_mcp. */
int ltn_node_tool_check(void *arg, struct ltn_mcp_call *call);
int ltn_node_tool_trace_stats(void *arg, struct ltn_mcp_call *call);
int ltn_node_tool_causal_chains(void *arg, struct ltn_mcp_call *call);
int ltn_node_tool_stacks(void *arg, struct ltn_mcp_call *call);
int ltn_node_tool_run_sql(void *arg, struct ltn_mcp_call *call);
int ltn_node_tool_query_fleet(void *arg, struct ltn_mcp_call *call);

/* Time left to the call in ns, at most cap_ns, at least 1. */
uint64_t ltn_node_mcp_left_ns(const struct ltn_mcp_call *call, uint64_t cap_ns);

#endif /* LTN_SERVE_MCP_INTERNAL_H */
