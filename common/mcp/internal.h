/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of common/mcp share. */
#ifndef LTN_MCP_INTERNAL_H
#define LTN_MCP_INTERNAL_H

#include "mcp/mcp.h"

/* JSON-RPC and MCP error codes. */
enum {
    MCP_PARSE_ERROR = -32700,
    MCP_INVALID_REQUEST = -32600,
    MCP_NO_METHOD = -32601,
    MCP_INVALID_PARAMS = -32602,
    MCP_INTERNAL = -32603,
    MCP_HEADER_MISMATCH = -32020,
    MCP_UNSUPPORTED_VERSION = -32022,
};

struct ltn_mcp {
    struct ltn_mcp_conf conf;
    json_t **input;  /* parsed schemas, one per tool */
    json_t **output; /* likewise */
    struct ltn_mcp_stats stats;
};

/* One request being answered. */
struct mcp_request {
    struct ltn_mcp *m;
    const struct ltn_mcp_in *in;
    const char *method;
    json_t *params;   /* object or NULL; borrowed */
    const json_t *id; /* borrowed */
    bool modern;
    bool may_wait;
    size_t tool;                 /* being called */
    struct ltn_mcp_later *later; /* the tool took a handle */
    /* the error, when a method gives no result */
    int code, status;
    char message[256];
    json_t *data; /* owned; NULL: none */
};

/* Notes an error; returns NULL. */
json_t *ltn_mcp_refuse(struct mcp_request *rq, int code, int status, const char *fmt, ...)
    ltn_printf(4, 5);

struct mcp_method {
    const char *name;
    bool legacy, modern;
    bool cacheable; /* its results carry hints for caches in the modern era */
    json_t *(*answer)(struct mcp_request *rq);
};

/* NULL: unknown in that era. */
const struct mcp_method *ltn_mcp_method_find(const char *name, bool modern);

/* Later answers. */
struct ltn_mcp_later {
    struct ltn_mcp *m;
    size_t tool;
    json_t *id;
    bool modern;
    bool done; /* out is the answer */
    struct ltn_mcp_out out;
    void (*deliver)(void *arg, const struct ltn_mcp_out *out);
    bool (*gone)(void *arg);
    void *arg;
};
void ltn_mcp_later_drop(struct ltn_mcp_later *later);

/* The result of a tool from what it gave: an object (borrowed), or an error in words. */
json_t *ltn_mcp_tool_result(struct ltn_mcp *m, size_t tool, const json_t *result,
                            const char *error);

/* Wraps the result (taken) and writes it. */
void ltn_mcp_write_result(const json_t *id, bool modern, json_t *result, struct ltn_mcp_out *ret);

/* All revisions, newest first, as an array. */
json_t *ltn_mcp_versions(void);
bool ltn_mcp_is_legacy_version(const char *v);

#endif /* LTN_MCP_INTERNAL_H */
