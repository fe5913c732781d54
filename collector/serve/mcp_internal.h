/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the collector's MCP tools share. */
#ifndef LTN_SERVE_MCP_INTERNAL_H
#define LTN_SERVE_MCP_INTERNAL_H

#include "mcp/table.h"
#include "serve/internal.h"
#include "serve/mcp.h"

/* Runs of the tools; arg is the const struct ltn_serve. */
int ltn_serve_tool_list_jobs(void *arg, struct ltn_mcp_call *call);
int ltn_serve_tool_stragglers(void *arg, struct ltn_mcp_call *call);
int ltn_serve_tool_incidents(void *arg, struct ltn_mcp_call *call);
int ltn_serve_tool_fleet_health(void *arg, struct ltn_mcp_call *call);
int ltn_serve_tool_explain_rank(void *arg, struct ltn_mcp_call *call);
int ltn_serve_tool_compare_ranks(void *arg, struct ltn_mcp_call *call);
int ltn_serve_tool_query_fleet(void *arg, struct ltn_mcp_call *call);

/* The object that was written between the two; NULL when it did not fit or parse. */
struct ltn_serve_mcp_object {
    struct ltn_buf buf;
    struct ltn_json json;
};
struct ltn_json *ltn_serve_mcp_write(struct ltn_serve_mcp_object *o);
json_t *ltn_serve_mcp_read(struct ltn_serve_mcp_object *o) ltn_must_check;

/* The job that the argument "job" names; NULL with an error noted. */
const struct ltn_fleet_job *ltn_serve_mcp_job(const struct ltn_serve *s, struct ltn_mcp_call *call);

#endif /* LTN_SERVE_MCP_INTERNAL_H */
