/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows for a model that pays for every word: columns once with short keys, rows as arrays, a legend
 * that says what the keys mean and in which unit; or, when asked, each row as an object with full
 * names. Capped by rows and bytes; where it ends, a cursor says how to go on.
 */
#ifndef LTN_MCP_TABLE_H
#define LTN_MCP_TABLE_H

#include "mcp/mcp.h"

struct ltn_mcp_column {
    const char *key;  /* short; in the compact form */
    const char *name; /* full, with the unit in it */
    const char *doc;  /* NULL: the name says it */
    bool foreign;     /* text that traced programs chose */
};

#define LTN_MCP_TABLE_ROWS  50 /* rows unless "limit" says otherwise */
#define LTN_MCP_TABLE_BYTES ((size_t)48 << 10)

struct ltn_mcp_table {
    const struct ltn_mcp_column *columns; /* borrowed until finish */
    size_t n;
    json_t *rows;
    size_t skip, seen, limit, bytes;
    bool verbose, truncated;
};

/* Parts of schemas: members of "properties", and a whole output schema. */
#define LTN_MCP_SCHEMA_PAGE                                                                        \
    "\"limit\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":1000,\"description\":\"Most rows "  \
    "of one answer; 50 by default.\"},"                                                            \
    "\"cursor\":{\"type\":\"string\",\"maxLength\":32,\"description\":\"next_cursor of the "       \
    "answer "                                                                                      \
    "before, to go on from there.\"},"                                                             \
    "\"tsc\":{\"type\":\"boolean\",\"description\":\"false: each row as an object with full "      \
    "names. By default columns come once and rows are arrays.\"}"
#define LTN_MCP_SCHEMA_TABLE_PROPERTIES                                                            \
    "\"columns\":{\"type\":\"array\",\"items\":{\"type\":\"string\"}},"                            \
    "\"legend\":{\"type\":\"object\",\"additionalProperties\":{\"type\":\"string\"}},"             \
    "\"rows\":{\"type\":\"array\",\"items\":{\"type\":[\"array\",\"object\"]}},"                   \
    "\"truncated\":{\"type\":\"boolean\"},"                                                        \
    "\"next_cursor\":{\"type\":[\"string\",\"null\"]},"                                            \
    "\"notice\":{\"type\":\"string\"}"
#define LTN_MCP_SCHEMA_TABLE                                                                       \
    "{\"type\":\"object\",\"properties\":{" LTN_MCP_SCHEMA_TABLE_PROPERTIES                        \
    "},\"required\":[\"rows\",\"truncated\",\"next_cursor\"]}"

/* Starts a table from the call's "limit", "cursor" and form. 0, -ENOMEM, or LTN_ERR_MALFORMED for a
 * cursor that is none of ours (noted in the call). End with ltn_mcp_table_finish or _drop. */
int ltn_mcp_table_begin(struct ltn_mcp_table *t, struct ltn_mcp_call *call,
                        const struct ltn_mcp_column *columns, size_t n) ltn_must_check;

/* True when the next row would be kept; rows before the cursor are counted by asking. After the end
 * it notes that there is more. */
bool ltn_mcp_table_wants(struct ltn_mcp_table *t);

/* Adds the row that was wanted: values in the order of the columns (stolen), or the members of an
 * object that have the columns' full names (borrowed). Failures show at finish. */
void ltn_mcp_table_row(struct ltn_mcp_table *t, json_t *values);
void ltn_mcp_table_object(struct ltn_mcp_table *t, const json_t *object);

/* The table as an object that the caller owns; NULL when memory is out. */
json_t *ltn_mcp_table_finish(struct ltn_mcp_table *t) ltn_must_check;
void ltn_mcp_table_drop(struct ltn_mcp_table *t);

/* A text that may hold anything, cleaned and cut at max_bytes; JSON null for NULL. */
json_t *ltn_mcp_text(const char *s, size_t len, size_t max_bytes);

#endif /* LTN_MCP_TABLE_H */
