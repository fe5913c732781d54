/* SPDX-License-Identifier: Apache-2.0 */
/* An MCP server with one tool that counts and one that fails, for tests of the core. */
#ifndef LTN_TEST_MCP_TOY_H
#define LTN_TEST_MCP_TOY_H

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "mcp/table.h"

static int toy_count(void *arg, struct ltn_mcp_call *call)
{
    static const struct ltn_mcp_column columns[] = {
        {"n", "number", "what was counted", false},
        {"t", "text", NULL, true},
    };
    struct ltn_mcp_table t;
    json_int_t to = json_integer_value(json_object_get(call->args, "to"));
    const json_t *text = json_object_get(call->args, "text");
    (void)arg;
    int rc = ltn_mcp_table_begin(&t, call, columns, LTN_ARRAY_SIZE(columns));
    if (rc < 0) {
        return rc;
    }
    for (json_int_t i = 1; i <= to; i++) {
        if (ltn_mcp_table_wants(&t)) {
            ltn_mcp_table_row(
                &t, json_pack("[I, o]", i,
                              ltn_mcp_text(json_string_value(text), json_string_length(text), 64)));
        }
    }
    call->result = ltn_mcp_table_finish(&t);
    return 0;
}

static int toy_fail(void *arg, struct ltn_mcp_call *call)
{
    (void)arg;
    return ltn_mcp_fail(call, LTN_ERR_NOT_FOUND, "there is \"nothing\" here");
}

/* Gives something that its output schema does not allow. */
static int toy_lie(void *arg, struct ltn_mcp_call *call)
{
    (void)arg;
    call->result = json_pack("{s:s}", "rows", "none");
    return 0;
}

/* Answers when the test says so, or, asked to, before it returns. */
static struct ltn_mcp_later *toy_waiting;
static int toy_wait(void *arg, struct ltn_mcp_call *call)
{
    (void)arg;
    toy_waiting = ltn_mcp_defer(call);
    if (toy_waiting == NULL) {
        return LTN_ERR_UNSUPPORTED;
    }
    if (json_is_true(json_object_get(call->args, "refuse"))) {
        return ltn_mcp_fail(call, LTN_ERR_BUSY, "not now");
    }
    if (json_is_true(json_object_get(call->args, "at_once"))) {
        ltn_mcp_finish(toy_waiting, NULL, "wait: over before it began");
    }
    return LTN_MCP_LATER;
}

static const struct ltn_mcp_tool toy_tools[] = {
    {.name = "count",
     .title = "Count",
     .description = "Counts.",
     .input_schema =
         "{\"type\":\"object\",\"properties\":{\"to\":{\"type\":\"integer\",\"minimum\":0,"
         "\"maximum\":5000},\"text\":{\"type\":\"string\",\"maxLength\":1000},"
         "\"tags\":{\"type\":\"array\",\"items\":{\"type\":\"string\"},\"maxItems\":2},"
         "\"mode\":{\"type\":\"string\",\"enum\":[\"up\",\"down\"]}," LTN_MCP_SCHEMA_PAGE
         "},\"required\":[\"to\"],\"additionalProperties\":false}",
     .output_schema = LTN_MCP_SCHEMA_TABLE,
     .run = toy_count},
    {.name = "fail",
     .title = "Fail",
     .description = "Fails.",
     .input_schema = "{\"type\":\"object\"}",
     .output_schema = LTN_MCP_SCHEMA_TABLE,
     .run = toy_fail},
    {.name = "lie",
     .title = "Lie",
     .description = "Breaks its schema.",
     .input_schema = "{\"type\":\"object\"}",
     .output_schema = LTN_MCP_SCHEMA_TABLE,
     .run = toy_lie},
    {.name = "wait",
     .title = "Wait",
     .description = "Answers later.",
     .input_schema = "{\"type\":\"object\"}",
     .output_schema = LTN_MCP_SCHEMA_TABLE,
     .run = toy_wait},
};

static const struct ltn_mcp_prompt_arg toy_args[] = {
    {"who", "Whom.", true, ""},
    {"how", "How.", false, "kindly"},
};
static const struct ltn_mcp_prompt toy_prompts[] = {
    {.name = "greet",
     .title = "Greet",
     .description = "Greets.",
     .text = "Greet {who} {how}; {what} stays.",
     .args = toy_args,
     .arg_count = 2},
};

static struct ltn_mcp *toy_new(void)
{
    const struct ltn_mcp_conf conf = {.name = "toy",
                                      .title = "Toy",
                                      .version = "1",
                                      .instructions = "Play.",
                                      .tools = toy_tools,
                                      .tool_count = LTN_ARRAY_SIZE(toy_tools),
                                      .prompts = toy_prompts,
                                      .prompt_count = 1};
    struct ltn_mcp *m = NULL;
    return ltn_mcp_new(&conf, &m) == 0 ? m : NULL;
}

#endif /* LTN_TEST_MCP_TOY_H */
