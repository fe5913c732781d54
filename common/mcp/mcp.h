/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Server side of the Model Context Protocol: one JSON-RPC message in, its answer out. Revisions
 * 2025-03-26 to 2025-11-25 (`initialize`) and 2026-07-28 (stateless); nothing is remembered between
 * messages. A server is for one thread at a time; different servers are independent.
 */
#ifndef LTN_MCP_MCP_H
#define LTN_MCP_MCP_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/attr.h"

#define LTN_MCP_MAX_BODY_BYTES ((size_t)1 << 20)
#define LTN_MCP_MAX_DEPTH      64
#define LTN_MCP_MAX_BATCH      32
#define LTN_MCP_VERSION        "2026-07-28" /* newest revision */

/* ---- tools ---- */

/* A call under way. */
struct ltn_mcp_call {
    const json_t *args;   /* object that conforms to the input schema; borrowed */
    uint64_t deadline_ns; /* monotonic */
    bool verbose;         /* the client asked with "tsc": false */
    json_t *result;       /* put here by run: an object, owned by the call from then on */
    char error[512];      /* in words, when run fails */
    void *request;        /* the core's */
};

/* Notes why a call fails, cut at its size; returns rc. */
int ltn_mcp_fail(struct ltn_mcp_call *call, int rc, const char *fmt, ...) ltn_printf(3, 4);

/* For tools whose answer comes later, on the same thread: ltn_mcp_defer gives a handle, run returns
 * LTN_MCP_LATER, and ltn_mcp_finish is called exactly once. NULL, with the failure noted, where
 * nobody can wait (a batch, stdio); run then returns an error. */
#define LTN_MCP_LATER 1
struct ltn_mcp_later;
struct ltn_mcp_later *ltn_mcp_defer(struct ltn_mcp_call *call) ltn_must_check;
/* Takes the result; NULL: the call failed, error says why. Frees the handle. */
void ltn_mcp_finish(struct ltn_mcp_later *later, json_t *result, const char *error);
/* True when nobody waits for the answer any more. */
bool ltn_mcp_later_gone(const struct ltn_mcp_later *later);

struct ltn_mcp_tool {
    const char *name, *title, *description;
    const char *input_schema;  /* JSON text, type object; see ltn_mcp_schema_check */
    const char *output_schema; /* JSON text, type object; result must conform */
    /* 0 with call->result set, LTN_MCP_LATER, or a negative code after ltn_mcp_fail. May block
     * until the deadline where the front allows it. */
    int (*run)(void *arg, struct ltn_mcp_call *call);
    bool open_world; /* asks other machines */
};

/* ---- prompts ---- */

struct ltn_mcp_prompt_arg {
    const char *name, *description;
    bool required;
    const char *def; /* text when it is not given; "" or a default */
};

struct ltn_mcp_prompt {
    const char *name, *title, *description;
    const char *text; /* "{name}" stands for the argument */
    const struct ltn_mcp_prompt_arg *args;
    size_t arg_count;
};

/* ---- server ---- */

/* Everything is borrowed for the server's life. */
struct ltn_mcp_conf {
    const char *name, *title, *version, *instructions;
    const struct ltn_mcp_tool *tools;
    size_t tool_count;
    const struct ltn_mcp_prompt *prompts;
    size_t prompt_count;
    void *arg;               /* for run */
    uint64_t timeout_ns;     /* of a call; 0: 20 s */
    size_t max_result_bytes; /* of structured content; 0: 256 KiB */
};

struct ltn_mcp;

/* 0, -EINVAL for a table that is wrong (a schema that does not parse), -ENOMEM. */
int ltn_mcp_new(const struct ltn_mcp_conf *conf, struct ltn_mcp **ret) ltn_must_check;
void ltn_mcp_free(struct ltn_mcp *m);

/* A message with what its carrier knows of it. */
struct ltn_mcp_in {
    const char *body;
    size_t len;
    bool http;           /* the three headers are judged */
    const char *version; /* MCP-Protocol-Version; NULL when absent */
    const char *method;  /* Mcp-Method */
    const char *name;    /* Mcp-Name */
    /* stdio: the revision that `initialize` settled on, "" before; NULL over HTTP. Written to. */
    char (*negotiated)[16];
    bool may_wait; /* the carrier can bring an answer later */
};

struct ltn_mcp_out {
    int status; /* HTTP status; 202: nothing to say */
    char *body; /* malloc'd JSON without a line break, NULL: none */
    size_t len;
    struct ltn_mcp_later *later; /* the answer comes later: attach to it; status is 0 */
};

/* Where a later answer goes: deliver is called once, maybe at once, and takes out->body. gone (may
 * be NULL) says that nobody waits any more. */
void ltn_mcp_later_attach(struct ltn_mcp_later *later,
                          void (*deliver)(void *arg, const struct ltn_mcp_out *out),
                          bool (*gone)(void *arg), void *arg);

/* Answers any bytes. Never fails but for memory: then the answer is an empty 500. */
void ltn_mcp_handle(struct ltn_mcp *m, const struct ltn_mcp_in *in, struct ltn_mcp_out *ret);

struct ltn_mcp_stats {
    uint64_t messages;    /* taken in, also broken ones */
    uint64_t refused;     /* answered with a protocol error */
    uint64_t tool_calls;  /* of known tools */
    uint64_t tool_errors; /* of these, results with isError */
};
struct ltn_mcp_stats ltn_mcp_stats(const struct ltn_mcp *m);

/* ---- parts that tests and fronts use by themselves ---- */

/* Parses hostile text: size, depth, duplicate keys and UTF-8 are checked before or by the parser.
 * 0, LTN_ERR_TOO_LARGE, LTN_ERR_DEPTH, LTN_ERR_MALFORMED. */
int ltn_mcp_read(const char *text, size_t len, json_t **ret) ltn_must_check;

/* Is value what the schema says? Knows type, properties, required, additionalProperties: false,
 * items, enum, minimum, maximum, maxLength, maxItems. False with a reason in why (size bytes). */
bool ltn_mcp_schema_check(const json_t *schema, const json_t *value, char *why, size_t size);

#endif /* LTN_MCP_MCP_H */
