/* SPDX-License-Identifier: Apache-2.0 */
/* Messages in, answers out: both eras, and what is refused. */
#include "cmocka_all.h"

#include <errno.h>

#include "mcp_toy.h"

#define META                                                                                       \
    "\"_meta\":{\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\","                       \
    "\"io.modelcontextprotocol/clientCapabilities\":{}}"

static struct ltn_mcp *mcp;

static int set_up(void **state)
{
    (void)state;
    mcp = toy_new();
    return mcp != NULL ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    ltn_mcp_free(mcp);
    return 0;
}

/* The answer to a message, to be freed; NULL when there was none. */
static json_t *ask_with(struct ltn_mcp_in in, const char *body, int *status)
{
    struct ltn_mcp_out out;
    json_error_t e;
    in.body = body;
    in.len = strlen(body);
    ltn_mcp_handle(mcp, &in, &out);
    *status = out.status;
    if (out.body == NULL) {
        assert_int_equal(out.len, 0);
        return NULL;
    }
    assert_null(strchr(out.body, '\n'));
    json_t *v = json_loadb(out.body, out.len, 0, &e);
    assert_non_null(v);
    free(out.body);
    return v;
}

static json_t *ask(const char *body, int *status)
{
    return ask_with((struct ltn_mcp_in){.http = true}, body, status);
}

static json_t *get(const json_t *o, const char *a, const char *b)
{
    json_t *v = json_object_get(o, a);
    return b != NULL ? json_object_get(v, b) : v;
}

static void expect_error(const char *body, int code, int want_status)
{
    int status;
    json_t *a = ask(body, &status);
    assert_int_equal(json_integer_value(get(a, "error", "code")), code);
    assert_int_equal(status, want_status);
    assert_null(get(a, "result", NULL));
    json_decref(a);
}

static void test_initialize_settles_a_revision(void **state)
{
    static const struct {
        const char *asked, *got;
    } cases[] = {{"2025-03-26", "2025-03-26"}, {"2025-06-18", "2025-06-18"},
                 {"2025-11-25", "2025-11-25"}, {"2024-11-05", "2025-11-25"},
                 {"2026-07-28", "2025-11-25"}, {"tomorrow", "2025-11-25"}};
    char body[256];
    (void)state;
    for (size_t i = 0; i < LTN_ARRAY_SIZE(cases); i++) {
        int status;
        (void)snprintf(body, sizeof(body),
                       "{\"jsonrpc\":\"2.0\",\"id\":\"a\",\"method\":\"initialize\",\"params\":{"
                       "\"protocolVersion\":\"%s\"}}",
                       cases[i].asked);
        json_t *a = ask(body, &status);
        const json_t *r = get(a, "result", NULL);
        assert_int_equal(status, 200);
        assert_string_equal(json_string_value(get(a, "id", NULL)), "a");
        assert_string_equal(json_string_value(get(r, "protocolVersion", NULL)), cases[i].got);
        assert_string_equal(json_string_value(get(r, "serverInfo", "name")), "toy");
        assert_true(json_is_object(get(r, "capabilities", "tools")));
        assert_true(json_is_object(get(r, "capabilities", "prompts")));
        assert_null(get(r, "resultType", NULL));
        json_decref(a);
    }
}

static void test_legacy_methods(void **state)
{
    int status;
    (void)state;
    json_t *a = ask("{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"ping\"}", &status);
    assert_int_equal(json_integer_value(get(a, "id", NULL)), 7);
    assert_int_equal(json_object_size(get(a, "result", NULL)), 0);
    json_decref(a);
    assert_null(ask("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}", &status));
    assert_int_equal(status, 202);
    assert_null(ask("{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}", &status));
    assert_int_equal(status, 202);
    a = ask("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\",\"params\":{\"cursor\":\"\"}}",
            &status);
    const json_t *tools = get(a, "result", "tools");
    assert_int_equal(json_array_size(tools), 4);
    const json_t *t = json_array_get(tools, 0);
    assert_string_equal(json_string_value(get(t, "name", NULL)), "count");
    assert_true(json_is_true(get(t, "annotations", "readOnlyHint")));
    assert_true(json_is_false(get(t, "annotations", "destructiveHint")));
    assert_string_equal(json_string_value(get(t, "inputSchema", "type")), "object");
    assert_string_equal(json_string_value(get(t, "outputSchema", "type")), "object");
    json_decref(a);
    expect_error("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\",\"params\":{\"cursor\":"
                 "\"x\"}}",
                 -32602, 200);
    expect_error("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"resources/list\"}", -32601, 200);
}

static json_t *call(const char *name, const char *args)
{
    char body[512];
    int status;
    (void)snprintf(body, sizeof(body),
                   "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":"
                   "\"%s\",\"arguments\":%s}}",
                   name, args);
    json_t *a = ask(body, &status);
    assert_int_equal(status, 200);
    return a;
}

static void test_call_gives_structure_and_the_same_text(void **state)
{
    json_error_t e;
    (void)state;
    json_t *a = call("count", "{\"to\":3,\"text\":\"\\u0007 ignore all\",\"limit\":2}");
    const json_t *r = get(a, "result", NULL);
    const json_t *s = get(r, "structuredContent", NULL);
    assert_true(json_is_false(get(r, "isError", NULL)));
    const char *text =
        json_string_value(get(json_array_get(get(r, "content", NULL), 0), "text", NULL));
    json_t *same = json_loads(text, 0, &e);
    assert_true(json_equal(same, s));
    json_decref(same);
    json_t *rows = json_loads("[[1,\"? ignore all\"],[2,\"? ignore all\"]]", 0, &e);
    json_t *columns = json_loads("[\"n\",\"t\"]", 0, &e);
    assert_true(json_equal(get(s, "rows", NULL), rows));
    assert_true(json_equal(get(s, "columns", NULL), columns));
    json_decref(rows);
    json_decref(columns);
    assert_string_equal(json_string_value(get(s, "legend", "n")), "number: what was counted");
    assert_true(json_is_true(get(s, "truncated", NULL)));
    assert_string_equal(json_string_value(get(s, "next_cursor", NULL)), "r2");
    assert_non_null(strstr(json_string_value(get(s, "notice", NULL)), "t: text from traced"));
    json_decref(a);
}

static void test_cursor_goes_on_and_ends(void **state)
{
    (void)state;
    json_t *a = call("count", "{\"to\":3,\"limit\":2,\"cursor\":\"r2\",\"tsc\":false}");
    const json_t *s = get(get(a, "result", NULL), "structuredContent", NULL);
    assert_int_equal(json_array_size(get(s, "rows", NULL)), 1);
    const json_t *row = json_array_get(get(s, "rows", NULL), 0);
    assert_int_equal(json_integer_value(get(row, "number", NULL)), 3);
    assert_null(get(s, "columns", NULL));
    assert_true(json_is_null(get(s, "next_cursor", NULL)));
    assert_true(json_is_false(get(s, "truncated", NULL)));
    json_decref(a);
    /* Exactly the last row: nothing more, and it says so. */
    a = call("count", "{\"to\":2,\"limit\":2}");
    assert_true(json_is_false(
        get(get(get(a, "result", NULL), "structuredContent", NULL), "truncated", NULL)));
    json_decref(a);
}

static void test_an_answer_is_capped_by_bytes(void **state)
{
    (void)state;
    json_t *a =
        call("count", "{\"to\":5000,\"limit\":1000,\"text\":\"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
                      "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\"}");
    const json_t *r = get(a, "result", NULL);
    const json_t *s = get(r, "structuredContent", NULL);
    size_t n = json_array_size(get(s, "rows", NULL));
    assert_true(n > 100 && n < 1000);
    assert_true(json_is_true(get(s, "truncated", NULL)));
    assert_true(json_string_length(get(json_array_get(get(r, "content", NULL), 0), "text", NULL)) <
                LTN_MCP_TABLE_BYTES + 4096);
    json_decref(a);
}

static void expect_tool_error(const char *name, const char *args, const char *says)
{
    json_t *a = call(name, args);
    const json_t *r = get(a, "result", NULL);
    const char *text =
        json_string_value(get(json_array_get(get(r, "content", NULL), 0), "text", NULL));
    assert_true(json_is_true(get(r, "isError", NULL)));
    assert_null(get(r, "structuredContent", NULL));
    assert_non_null(text);
    if (strstr(text, says) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", text, says);
    }
    json_decref(a);
}

static void test_failures_of_tools_are_results(void **state)
{
    (void)state;
    expect_tool_error("fail", "{}", "fail: there is \"nothing\" here");
    expect_tool_error("lie", "{}", "internal error");
    expect_tool_error("count", "{}", "to is missing");
    expect_tool_error("count", "{\"to\":\"3\"}", "to: expected integer");
    expect_tool_error("count", "{\"to\":3.5}", "to: expected integer");
    expect_tool_error("count", "{\"to\":5001}", "to: above 5000");
    expect_tool_error("count", "{\"to\":-1}", "to: below 0");
    expect_tool_error("count", "{\"to\":1,\"mode\":\"side\"}", "mode: not one of");
    expect_tool_error("count", "{\"to\":1,\"tags\":[1]}", "tags: expected string");
    expect_tool_error("count", "{\"to\":1,\"tags\":[\"a\",\"b\",\"c\"]}", "tags: more than 2");
    expect_tool_error("count", "{\"to\":1,\"drop\":true}", "drop: no such argument");
    expect_tool_error("count", "{\"to\":1,\"cursor\":\"elsewhere\"}", "cursor");
    expect_tool_error("count", "{\"to\":1,\"cursor\":\"r-1\"}", "cursor");
    expect_tool_error("count", "[1]", "expected object");
    struct ltn_mcp_stats s = ltn_mcp_stats(mcp);
    assert_int_equal(s.tool_calls, 14);
    assert_int_equal(s.tool_errors, 14);
    expect_error("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":"
                 "\"rm\"}}",
                 -32602, 200);
}

static void test_prompts(void **state)
{
    int status;
    (void)state;
    json_t *a = ask("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"prompts/list\"}", &status);
    const json_t *p = json_array_get(get(a, "result", "prompts"), 0);
    assert_int_equal(json_array_size(get(p, "arguments", NULL)), 2);
    json_decref(a);
    a = ask("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"prompts/get\",\"params\":{\"name\":"
            "\"greet\",\"arguments\":{\"who\":\"{how}\\n\"}}}",
            &status);
    const json_t *m = json_array_get(get(a, "result", "messages"), 0);
    /* What a client gives is not looked at for placeholders again. */
    assert_string_equal(json_string_value(get(m, "content", "text")),
                        "Greet {how}? kindly; {what} stays.");
    json_decref(a);
    expect_error("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"prompts/get\",\"params\":{\"name\":"
                 "\"greet\"}}",
                 -32602, 200);
    expect_error("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"prompts/get\",\"params\":{\"name\":"
                 "\"curse\"}}",
                 -32602, 200);
}

static void test_hostile_json(void **state)
{
    char deep[2048];
    (void)state;
    expect_error("", -32700, 400);
    expect_error("{", -32700, 400);
    expect_error("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"} x", -32700, 400);
    expect_error("{\"jsonrpc\":\"2.0\",\"id\":1,\"id\":2,\"method\":\"ping\"}", -32700, 400);
    expect_error("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"p\xff\"}", -32700, 400);
    expect_error("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\\u0000b\"}", -32700, 400);
    expect_error("{\"id\":1,\"method\":\"ping\"}", -32600, 400);
    expect_error("{\"jsonrpc\":2.0,\"id\":1,\"method\":\"ping\"}", -32600, 400);
    expect_error("{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"ping\"}", -32600, 400);
    expect_error("{\"jsonrpc\":\"2.0\",\"id\":1.5,\"method\":\"ping\"}", -32600, 400);
    expect_error("{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":\"ping\"}", -32600, 400);
    expect_error("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":7}", -32600, 400);
    expect_error("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"params\":[1]}", -32600, 400);
    expect_error("3", -32700, 400);
    memset(deep, '[', 1000);
    deep[1000] = '\0';
    expect_error(deep, -32600, 400);
    /* Brackets in texts are no depth. */
    deep[0] = '"';
    deep[999] = '"';
    json_t *v = NULL;
    char message[2100];
    (void)snprintf(message, sizeof(message), "{\"a\":%s}", deep);
    assert_int_equal(ltn_mcp_read(message, strlen(message), &v), 0);
    json_decref(v);
}

static void test_size_limit(void **state)
{
    size_t n = LTN_MCP_MAX_BODY_BYTES + 1;
    char *big = malloc(n + 1);
    int status;
    (void)state;
    assert_non_null(big);
    memset(big, ' ', n);
    big[n] = '\0';
    json_t *a = ask(big, &status);
    assert_int_equal(status, 413);
    assert_int_equal(json_integer_value(get(a, "error", "code")), -32600);
    json_decref(a);
    free(big);
}

static void test_batches_of_the_one_revision_that_had_them(void **state)
{
    static const char batch[] = "[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"},"
                                "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\"},"
                                "{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"nope\"}]";
    int status;
    (void)state;
    json_t *a = ask(batch, &status);
    assert_int_equal(status, 200);
    assert_int_equal(json_array_size(a), 2);
    assert_int_equal(json_integer_value(get(json_array_get(a, 1), "error", "code")), -32601);
    json_decref(a);
    a = ask_with((struct ltn_mcp_in){.http = true, .version = "2025-11-25"}, batch, &status);
    assert_int_equal(status, 400);
    assert_int_equal(json_integer_value(get(a, "error", "code")), -32600);
    json_decref(a);
    char settled[16] = "2025-06-18";
    a = ask_with((struct ltn_mcp_in){.negotiated = &settled}, batch, &status);
    assert_int_equal(status, 400);
    json_decref(a);
    expect_error("[]", -32600, 400);
    assert_null(ask("[{\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\"}]", &status));
    assert_int_equal(status, 202);
}

static void test_unknown_legacy_header(void **state)
{
    int status;
    (void)state;
    json_t *a = ask_with((struct ltn_mcp_in){.http = true, .version = "2019-01-01"},
                         "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}", &status);
    assert_int_equal(status, 400);
    assert_int_equal(json_integer_value(get(a, "error", "code")), -32022);
    json_decref(a);
}

/* ---- the stateless era ---- */

static const struct ltn_mcp_in modern_call = {
    .http = true, .version = "2026-07-28", .method = "tools/call", .name = "count"};
#define MODERN_CALL                                                                                \
    "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"count\","      \
    "\"arguments\":{\"to\":1}," META "}}"

static void test_modern_call(void **state)
{
    int status;
    (void)state;
    json_t *a = ask_with(modern_call, MODERN_CALL, &status);
    const json_t *r = get(a, "result", NULL);
    assert_int_equal(status, 200);
    assert_string_equal(json_string_value(get(r, "resultType", NULL)), "complete");
    assert_int_equal(json_array_size(get(r, "structuredContent", "rows")), 1);
    assert_null(get(r, "ttlMs", NULL));
    json_decref(a);
    struct ltn_mcp_in in = modern_call;
    in.name = "=?base64?Y291bnQ=?=";
    a = ask_with(in, MODERN_CALL, &status);
    assert_int_equal(status, 200);
    json_decref(a);
}

static void test_modern_headers_must_agree(void **state)
{
    static const struct {
        const char *version, *method, *name;
    } wrong[] = {{"2025-11-25", "tools/call", "count"},
                 {NULL, "tools/call", "count"},
                 {"2026-07-28", NULL, "count"},
                 {"2026-07-28", "tools/list", "count"},
                 {"2026-07-28", "tools/call", NULL},
                 {"2026-07-28", "tools/call", "fail"},
                 {"2026-07-28", "tools/call", "=?base64?*?="}};
    (void)state;
    for (size_t i = 0; i < LTN_ARRAY_SIZE(wrong); i++) {
        int status;
        json_t *a = ask_with((struct ltn_mcp_in){.http = true,
                                                 .version = wrong[i].version,
                                                 .method = wrong[i].method,
                                                 .name = wrong[i].name},
                             MODERN_CALL, &status);
        assert_int_equal(status, 400);
        assert_int_equal(json_integer_value(get(a, "error", "code")), -32020);
        assert_int_equal(json_integer_value(get(a, "id", NULL)), 1);
        json_decref(a);
    }
    /* stdio has no headers to judge. */
    int status;
    json_t *a = ask_with((struct ltn_mcp_in){.http = false}, MODERN_CALL, &status);
    assert_int_equal(status, 200);
    json_decref(a);
}

static void test_modern_meta_is_mandatory(void **state)
{
    static const char *const bodies[] = {
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\"}",
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\",\"params\":{\"_meta\":{"
        "\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\"}}}",
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\",\"params\":{\"_meta\":{"
        "\"io.modelcontextprotocol/protocolVersion\":7,"
        "\"io.modelcontextprotocol/clientCapabilities\":{}}}}",
    };
    (void)state;
    for (size_t i = 0; i < LTN_ARRAY_SIZE(bodies); i++) {
        int status;
        json_t *a = ask_with(
            (struct ltn_mcp_in){.http = true, .version = "2026-07-28", .method = "tools/list"},
            bodies[i], &status);
        assert_int_equal(status, 400);
        assert_int_equal(json_integer_value(get(a, "error", "code")), -32602);
        json_decref(a);
    }
}

static void test_modern_version_and_methods(void **state)
{
    int status;
    (void)state;
    json_t *a = ask_with(
        (struct ltn_mcp_in){.http = true, .version = "2099-01-01", .method = "tools/list"},
        "{\"jsonrpc\":\"2.0\",\"id\":\"x\",\"method\":\"tools/list\",\"params\":{\"_meta\":{"
        "\"io.modelcontextprotocol/protocolVersion\":\"2099-01-01\","
        "\"io.modelcontextprotocol/clientCapabilities\":{}}}}",
        &status);
    assert_int_equal(status, 400);
    assert_int_equal(json_integer_value(get(a, "error", "code")), -32022);
    const json_t *data = get(a, "error", "data");
    assert_string_equal(json_string_value(get(data, "requested", NULL)), "2099-01-01");
    assert_string_equal(json_string_value(json_array_get(get(data, "supported", NULL), 0)),
                        "2026-07-28");
    json_decref(a);
    static const char *const gone[] = {"ping", "logging/setLevel", "resources/subscribe"};
    for (size_t i = 0; i < LTN_ARRAY_SIZE(gone); i++) {
        char body[512];
        (void)snprintf(body, sizeof(body),
                       "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"%s\",\"params\":{" META "}}",
                       gone[i]);
        a = ask_with((struct ltn_mcp_in){.http = true, .version = "2026-07-28", .method = gone[i]},
                     body, &status);
        assert_int_equal(status, 404);
        assert_int_equal(json_integer_value(get(a, "error", "code")), -32601);
        json_decref(a);
    }
}

static void test_discover_and_caching(void **state)
{
    static const char *const methods[] = {"server/discover", "tools/list", "prompts/list"};
    int status;
    (void)state;
    for (size_t i = 0; i < LTN_ARRAY_SIZE(methods); i++) {
        char body[512];
        (void)snprintf(body, sizeof(body),
                       "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"%s\",\"params\":{" META "}}",
                       methods[i]);
        json_t *a = ask_with(
            (struct ltn_mcp_in){.http = true, .version = "2026-07-28", .method = methods[i]}, body,
            &status);
        const json_t *r = get(a, "result", NULL);
        assert_int_equal(status, 200);
        assert_true(json_integer_value(get(r, "ttlMs", NULL)) > 0);
        assert_string_equal(json_string_value(get(r, "cacheScope", NULL)), "private");
        if (i == 0) {
            assert_int_equal(json_array_size(get(r, "supportedVersions", NULL)), 4);
            assert_string_equal(json_string_value(get(r, "instructions", NULL)), "Play.");
            assert_string_equal(
                json_string_value(
                    get(get(r, "_meta", "io.modelcontextprotocol/serverInfo"), "name", NULL)),
                "toy");
        }
        json_decref(a);
    }
}

/* ---- answers that come later ---- */

static char *delivered;
static void deliver(void *arg, const struct ltn_mcp_out *out)
{
    assert_ptr_equal(arg, &delivered);
    assert_null(delivered);
    assert_int_equal(out->status, 200);
    delivered = out->body;
}

static bool is_gone(void *arg)
{
    (void)arg;
    return true;
}

static struct ltn_mcp_later *wait_call(const char *args)
{
    char body[512];
    struct ltn_mcp_out out;
    (void)snprintf(body, sizeof(body),
                   "{\"jsonrpc\":\"2.0\",\"id\":9,\"method\":\"tools/call\",\"params\":{\"name\":"
                   "\"wait\",\"arguments\":%s," META "}}",
                   args);
    const struct ltn_mcp_in in = {.body = body, .len = strlen(body), .may_wait = true};
    ltn_mcp_handle(mcp, &in, &out);
    if (out.later == NULL) {
        delivered = out.body;
    } else {
        assert_int_equal(out.status, 0);
        assert_null(out.body);
    }
    return out.later;
}

static void expect_delivered(const char *says)
{
    json_error_t e;
    assert_non_null(delivered);
    json_t *a = json_loads(delivered, 0, &e);
    assert_int_equal(json_integer_value(get(a, "id", NULL)), 9);
    assert_string_equal(json_string_value(get(a, "result", "resultType")), "complete");
    assert_non_null(strstr(delivered, says));
    json_decref(a);
    free(delivered);
    delivered = NULL;
}

static void test_answers_that_come_later(void **state)
{
    (void)state;
    struct ltn_mcp_later *later = wait_call("{}");
    assert_ptr_equal(later, toy_waiting);
    assert_false(ltn_mcp_later_gone(later));
    ltn_mcp_later_attach(later, deliver, is_gone, &delivered);
    assert_true(ltn_mcp_later_gone(later));
    assert_null(delivered);
    ltn_mcp_finish(later, json_pack("{s:[], s:b, s:n}", "rows", "truncated", 0, "next_cursor"),
                   NULL);
    expect_delivered("\"structuredContent\":{\"rows\":[]");
    later = wait_call("{\"at_once\":true}");
    ltn_mcp_later_attach(later, deliver, NULL, &delivered);
    expect_delivered("wait: over before it began");
    assert_null(wait_call("{\"refuse\":true}"));
    expect_delivered("wait: not now");
    /* Nobody can wait on stdio and in batches. */
    expect_tool_error("wait", "{}", "a message of its own");
}

static void test_a_broken_table_is_refused(void **state)
{
    struct ltn_mcp_tool tool = toy_tools[0];
    struct ltn_mcp *m = NULL;
    (void)state;
    tool.output_schema = "{\"type\":\"array\"}";
    assert_int_equal(ltn_mcp_new(&(struct ltn_mcp_conf){.tools = &tool, .tool_count = 1}, &m),
                     -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_initialize_settles_a_revision, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_legacy_methods, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_call_gives_structure_and_the_same_text, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_cursor_goes_on_and_ends, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_an_answer_is_capped_by_bytes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_failures_of_tools_are_results, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_prompts, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_hostile_json, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_size_limit, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_batches_of_the_one_revision_that_had_them, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_unknown_legacy_header, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_modern_call, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_modern_headers_must_agree, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_modern_meta_is_mandatory, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_modern_version_and_methods, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_discover_and_caching, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_answers_that_come_later, set_up, tear_down),
        cmocka_unit_test(test_a_broken_table_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
