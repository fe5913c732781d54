/* SPDX-License-Identifier: Apache-2.0 */
/* What each method answers. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/text.h"
#include "mcp/internal.h"
#include "mcp/table.h"

#define LATEST_LEGACY    "2025-11-25"
#define PROMPT_MAX_BYTES ((size_t)64 << 10)
#define PROMPT_ARG_BYTES 256

static const char *const legacy_versions[] = {LATEST_LEGACY, "2025-06-18", "2025-03-26"};

bool ltn_mcp_is_legacy_version(const char *v)
{
    for (size_t i = 0; i < LTN_ARRAY_SIZE(legacy_versions); i++) {
        if (strcmp(v, legacy_versions[i]) == 0) {
            return true;
        }
    }
    return false;
}

json_t *ltn_mcp_versions(void)
{
    json_t *list = json_array();
    (void)json_array_append_new(list, json_string(LTN_MCP_VERSION));
    for (size_t i = 0; i < LTN_ARRAY_SIZE(legacy_versions); i++) {
        (void)json_array_append_new(list, json_string(legacy_versions[i]));
    }
    return list;
}

int ltn_mcp_fail(struct ltn_mcp_call *call, int rc, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(call->error, sizeof(call->error), fmt, ap);
    va_end(ap);
    return rc;
}

static void set_text(json_t *o, const char *key, const char *v)
{
    if (v != NULL) {
        (void)json_object_set_new(o, key, json_string(v));
    }
}

/* ---- who this is ---- */

static json_t *server_info(const struct ltn_mcp *m)
{
    json_t *o = json_object();
    set_text(o, "name", m->conf.name);
    set_text(o, "title", m->conf.title);
    set_text(o, "version", m->conf.version);
    return o;
}

static json_t *capabilities(const struct ltn_mcp *m)
{
    json_t *o = json_object();
    (void)json_object_set_new(o, "tools", json_object());
    if (m->conf.prompt_count > 0) {
        (void)json_object_set_new(o, "prompts", json_object());
    }
    return o;
}

static json_t *on_initialize(struct mcp_request *rq)
{
    const char *asked = json_string_value(json_object_get(rq->params, "protocolVersion"));
    if (asked == NULL) {
        return ltn_mcp_refuse(rq, MCP_INVALID_PARAMS, 200, "protocolVersion is missing");
    }
    const char *version = ltn_mcp_is_legacy_version(asked) ? asked : LATEST_LEGACY;
    if (rq->in->negotiated != NULL) {
        (void)ltn_copy_str(*rq->in->negotiated, sizeof(*rq->in->negotiated), version);
    }
    json_t *o = json_object();
    set_text(o, "protocolVersion", version);
    (void)json_object_set_new(o, "capabilities", capabilities(rq->m));
    (void)json_object_set_new(o, "serverInfo", server_info(rq->m));
    set_text(o, "instructions", rq->m->conf.instructions);
    return o;
}

static json_t *on_discover(struct mcp_request *rq)
{
    json_t *o = json_object();
    json_t *meta = json_object();
    (void)json_object_set_new(o, "supportedVersions", ltn_mcp_versions());
    (void)json_object_set_new(o, "capabilities", capabilities(rq->m));
    set_text(o, "instructions", rq->m->conf.instructions);
    (void)json_object_set_new(meta, "io.modelcontextprotocol/serverInfo", server_info(rq->m));
    (void)json_object_set_new(o, "_meta", meta);
    return o;
}

static json_t *on_ping(struct mcp_request *rq)
{
    (void)rq;
    return json_object();
}

/* The lists are short and come whole: the only cursor there is is the empty one. */
static bool check_cursor(struct mcp_request *rq)
{
    const json_t *cursor = json_object_get(rq->params, "cursor");
    if (cursor == NULL || (json_is_string(cursor) && json_string_length(cursor) == 0)) {
        return true;
    }
    (void)ltn_mcp_refuse(rq, MCP_INVALID_PARAMS, 200, "cursor: not one of this server's");
    return false;
}

/* ---- tools ---- */

static json_t *tool_json(const struct ltn_mcp *m, size_t i)
{
    const struct ltn_mcp_tool *t = &m->conf.tools[i];
    json_t *o = json_object();
    json_t *hints = json_object();
    set_text(o, "name", t->name);
    set_text(o, "title", t->title);
    set_text(o, "description", t->description);
    (void)json_object_set(o, "inputSchema", m->input[i]);
    (void)json_object_set(o, "outputSchema", m->output[i]);
    set_text(hints, "title", t->title);
    (void)json_object_set_new(hints, "readOnlyHint", json_true());
    (void)json_object_set_new(hints, "destructiveHint", json_false());
    (void)json_object_set_new(hints, "idempotentHint", json_true());
    (void)json_object_set_new(hints, "openWorldHint", json_boolean(t->open_world));
    (void)json_object_set_new(o, "annotations", hints);
    return o;
}

static json_t *on_tools_list(struct mcp_request *rq)
{
    if (!check_cursor(rq)) {
        return NULL;
    }
    json_t *o = json_object();
    json_t *list = json_array();
    for (size_t i = 0; i < rq->m->conf.tool_count; i++) {
        (void)json_array_append_new(list, tool_json(rq->m, i));
    }
    (void)json_object_set_new(o, "tools", list);
    return o;
}

static json_t *text_result(json_t *text, bool is_error)
{
    json_t *o = json_object();
    json_t *block = json_object();
    json_t *content = json_array();
    (void)json_object_set_new(block, "type", json_string("text"));
    (void)json_object_set_new(block, "text", text);
    (void)json_array_append_new(content, block);
    (void)json_object_set_new(o, "content", content);
    (void)json_object_set_new(o, "isError", json_boolean(is_error));
    return o;
}

static json_t *failed_call(struct ltn_mcp *m, const char *why)
{
    m->stats.tool_errors++;
    return text_result(ltn_mcp_text(why, strlen(why), 1024), true);
}

/* The result as structured content and the same as text. */
json_t *ltn_mcp_tool_result(struct ltn_mcp *m, size_t tool, const json_t *result, const char *error)
{
    char why[256];
    json_t *o;
    if (error != NULL) {
        return failed_call(m, error);
    }
    char *text = json_dumps(result, JSON_COMPACT | JSON_REAL_PRECISION(12));
    if (text == NULL) {
        o = failed_call(m, "internal error: the tool gave no result");
    } else if (strlen(text) > m->conf.max_result_bytes) {
        o = failed_call(m, "the answer is too large; ask for less, or for fewer rows with limit");
    } else if (!ltn_mcp_schema_check(m->output[tool], result, why, sizeof(why))) {
        o = failed_call(m, "internal error: the result is not what the tool's schema says");
    } else {
        o = text_result(json_string(text), false);
        (void)json_object_set_new(o, "structuredContent", json_incref((json_t *)(uintptr_t)result));
    }
    free(text);
    return o;
}

static json_t *call_tool(struct mcp_request *rq, size_t tool, const json_t *args)
{
    struct ltn_mcp *m = rq->m;
    char why[256];
    char text[600];
    const struct ltn_mcp_tool *t = &m->conf.tools[tool];
    m->stats.tool_calls++;
    if (!ltn_mcp_schema_check(m->input[tool], args, why, sizeof(why))) {
        return failed_call(m, why);
    }
    struct ltn_mcp_call call = {
        .args = args,
        .deadline_ns = ltn_now_mono_ns() + m->conf.timeout_ns,
        .verbose = json_is_false(json_object_get(args, "tsc")),
        .request = rq,
    };
    rq->tool = tool;
    int rc = t->run(m->conf.arg, &call);
    json_t *o = NULL;
    if (rc == LTN_MCP_LATER && rq->later != NULL) {
        return NULL;
    }
    ltn_mcp_later_drop(rq->later);
    rq->later = NULL;
    if (rc < 0) {
        (void)snprintf(text, sizeof(text), "%s: %s", t->name,
                       call.error[0] != '\0' ? call.error : ltn_err_str(rc));
        o = failed_call(m, text);
    } else {
        o = ltn_mcp_tool_result(m, tool, call.result, NULL);
    }
    json_decref(call.result);
    return o;
}

static json_t *on_tools_call(struct mcp_request *rq)
{
    const char *name = json_string_value(json_object_get(rq->params, "name"));
    json_t *args = json_object_get(rq->params, "arguments");
    if (name == NULL) {
        return ltn_mcp_refuse(rq, MCP_INVALID_PARAMS, 200, "name is missing");
    }
    for (size_t i = 0; i < rq->m->conf.tool_count; i++) {
        if (strcmp(name, rq->m->conf.tools[i].name) == 0) {
            json_t *given = args != NULL ? json_incref(args) : json_object();
            json_t *o = call_tool(rq, i, given);
            json_decref(given);
            return o;
        }
    }
    return ltn_mcp_refuse(rq, MCP_INVALID_PARAMS, 200, "no tool \"%.64s\"", name);
}

/* ---- prompts ---- */

static json_t *prompt_json(const struct ltn_mcp_prompt *p)
{
    json_t *o = json_object();
    json_t *args = json_array();
    set_text(o, "name", p->name);
    set_text(o, "title", p->title);
    set_text(o, "description", p->description);
    for (size_t i = 0; i < p->arg_count; i++) {
        json_t *a = json_object();
        set_text(a, "name", p->args[i].name);
        set_text(a, "description", p->args[i].description);
        (void)json_object_set_new(a, "required", json_boolean(p->args[i].required));
        (void)json_array_append_new(args, a);
    }
    (void)json_object_set_new(o, "arguments", args);
    return o;
}

static json_t *on_prompts_list(struct mcp_request *rq)
{
    if (!check_cursor(rq)) {
        return NULL;
    }
    json_t *o = json_object();
    json_t *list = json_array();
    for (size_t i = 0; i < rq->m->conf.prompt_count; i++) {
        (void)json_array_append_new(list, prompt_json(&rq->m->conf.prompts[i]));
    }
    (void)json_object_set_new(o, "prompts", list);
    return o;
}

/* The value of an argument, cleaned; false when a required one is missing or one is no text. */
static bool prompt_arg(struct mcp_request *rq, const struct ltn_mcp_prompt_arg *a, char *out,
                       size_t size)
{
    const json_t *v = json_object_get(json_object_get(rq->params, "arguments"), a->name);
    if ((v == NULL && a->required) || (v != NULL && !json_is_string(v))) {
        (void)ltn_mcp_refuse(rq, MCP_INVALID_PARAMS, 200, "argument %s: a text is needed", a->name);
        return false;
    }
    const char *text = v != NULL ? json_string_value(v) : a->def;
    ltn_text_clean(out, size, text, strlen(text));
    return true;
}

/* Length of the placeholder at s, with the argument it names; 0 when there is none. */
static size_t placeholder(const struct ltn_mcp_prompt *p, const char *s, size_t *ret_arg)
{
    for (size_t i = 0; s[0] == '{' && i < p->arg_count; i++) {
        size_t n = strlen(p->args[i].name);
        if (strncmp(s + 1, p->args[i].name, n) == 0 && s[n + 1] == '}') {
            *ret_arg = i;
            return n + 2;
        }
    }
    return 0;
}

static bool fill_prompt(struct mcp_request *rq, const struct ltn_mcp_prompt *p, struct ltn_buf *out)
{
    char value[PROMPT_ARG_BYTES];
    for (size_t i = 0; i < p->arg_count; i++) {
        if (!prompt_arg(rq, &p->args[i], value, sizeof(value))) {
            return false;
        }
    }
    for (const char *s = p->text; *s != '\0';) {
        size_t arg = 0;
        size_t n = placeholder(p, s, &arg);
        if (n == 0) {
            (void)ltn_buf_putc(out, *s++);
        } else {
            (void)prompt_arg(rq, &p->args[arg], value, sizeof(value));
            (void)ltn_buf_puts(out, value);
            s += n;
        }
    }
    return true;
}

static json_t *prompt_result(const struct ltn_mcp_prompt *p, const char *text)
{
    json_t *o = json_object();
    json_t *content = json_object();
    json_t *message = json_object();
    json_t *messages = json_array();
    set_text(content, "type", "text");
    set_text(content, "text", text);
    set_text(message, "role", "user");
    (void)json_object_set_new(message, "content", content);
    (void)json_array_append_new(messages, message);
    set_text(o, "description", p->description);
    (void)json_object_set_new(o, "messages", messages);
    return o;
}

static json_t *on_prompts_get(struct mcp_request *rq)
{
    const char *name = json_string_value(json_object_get(rq->params, "name"));
    struct ltn_buf text;
    for (size_t i = 0; name != NULL && i < rq->m->conf.prompt_count; i++) {
        const struct ltn_mcp_prompt *p = &rq->m->conf.prompts[i];
        if (strcmp(name, p->name) != 0) {
            continue;
        }
        ltn_buf_init(&text, PROMPT_MAX_BYTES);
        json_t *o = fill_prompt(rq, p, &text) ? prompt_result(p, ltn_buf_str(&text)) : NULL;
        ltn_buf_done(&text);
        return o;
    }
    return ltn_mcp_refuse(rq, MCP_INVALID_PARAMS, 200, "no such prompt");
}

/* ---- the table ---- */

static const struct mcp_method methods[] = {
    {"initialize", true, false, false, on_initialize},
    {"ping", true, false, false, on_ping},
    {"prompts/get", true, true, false, on_prompts_get},
    {"prompts/list", true, true, true, on_prompts_list},
    {"server/discover", false, true, true, on_discover},
    {"tools/call", true, true, false, on_tools_call},
    {"tools/list", true, true, true, on_tools_list},
};

const struct mcp_method *ltn_mcp_method_find(const char *name, bool modern)
{
    for (size_t i = 0; i < LTN_ARRAY_SIZE(methods); i++) {
        if (strcmp(name, methods[i].name) == 0) {
            return (modern ? methods[i].modern : methods[i].legacy) ? &methods[i] : NULL;
        }
    }
    return NULL;
}
