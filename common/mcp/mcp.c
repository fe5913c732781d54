/* SPDX-License-Identifier: Apache-2.0 */
/* JSON-RPC: from bytes to a request of an era, and back. */
#include "mcp/mcp.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/text.h"
#include "mcp/internal.h"

#define DEFAULT_TIMEOUT_NS   (20 * LTN_NS_PER_S)
#define DEFAULT_RESULT_BYTES ((size_t)256 << 10)

#define META_VERSION      "io.modelcontextprotocol/protocolVersion"
#define META_CAPABILITIES "io.modelcontextprotocol/clientCapabilities"

/* ---- server ---- */

static json_t *schema_new(const char *text)
{
    json_error_t e;
    json_t *s = json_loads(text, JSON_REJECT_DUPLICATES, &e);
    const char *type = json_string_value(json_object_get(s, "type"));
    if (type == NULL || strcmp(type, "object") != 0) {
        json_decref(s);
        return NULL;
    }
    return s;
}

int ltn_mcp_new(const struct ltn_mcp_conf *conf, struct ltn_mcp **ret)
{
    struct ltn_mcp *m = calloc(1, sizeof(*m));
    if (m == NULL) {
        return -ENOMEM;
    }
    m->conf = *conf;
    if (m->conf.timeout_ns == 0) {
        m->conf.timeout_ns = DEFAULT_TIMEOUT_NS;
    }
    if (m->conf.max_result_bytes == 0) {
        m->conf.max_result_bytes = DEFAULT_RESULT_BYTES;
    }
    m->input = calloc(conf->tool_count + 1, sizeof(*m->input));
    m->output = calloc(conf->tool_count + 1, sizeof(*m->output));
    int rc = m->input == NULL || m->output == NULL ? -ENOMEM : 0;
    for (size_t i = 0; rc == 0 && i < conf->tool_count; i++) {
        m->input[i] = schema_new(conf->tools[i].input_schema);
        m->output[i] = schema_new(conf->tools[i].output_schema);
        rc = m->input[i] == NULL || m->output[i] == NULL ? -EINVAL : 0;
    }
    if (rc < 0) {
        ltn_mcp_free(m);
        return rc;
    }
    *ret = m;
    return 0;
}

void ltn_mcp_free(struct ltn_mcp *m)
{
    if (m == NULL) {
        return;
    }
    for (size_t i = 0; i < m->conf.tool_count; i++) {
        json_decref(m->input != NULL ? m->input[i] : NULL);
        json_decref(m->output != NULL ? m->output[i] : NULL);
    }
    free(m->input);
    free(m->output);
    free(m);
}

struct ltn_mcp_stats ltn_mcp_stats(const struct ltn_mcp *m)
{
    return m->stats;
}

json_t *ltn_mcp_refuse(struct mcp_request *rq, int code, int status, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(rq->message, sizeof(rq->message), fmt, ap);
    va_end(ap);
    rq->code = code;
    rq->status = status;
    return NULL;
}

/* ---- answers ---- */

static json_t *envelope(const json_t *id)
{
    json_t *o = json_object();
    (void)json_object_set_new(o, "jsonrpc", json_string("2.0"));
    if (id != NULL) {
        (void)json_object_set_new(o, "id", json_copy((json_t *)(uintptr_t)id));
    }
    return o;
}

static json_t *result_answer(const json_t *id, bool modern, json_t *result)
{
    json_t *o = envelope(id);
    if (modern) {
        (void)json_object_set_new(result, "resultType", json_string("complete"));
    }
    (void)json_object_set_new(o, "result", result);
    return o;
}

/* Takes rq->data. */
static json_t *error_answer(struct mcp_request *rq, const json_t *id)
{
    char text[sizeof(rq->message)];
    json_t *o = envelope(id);
    json_t *e = json_object();
    ltn_text_clean(text, sizeof(text), rq->message, strlen(rq->message));
    (void)json_object_set_new(e, "code", json_integer(rq->code));
    (void)json_object_set_new(e, "message", json_string(text));
    if (rq->data != NULL) {
        (void)json_object_set_new(e, "data", rq->data);
        rq->data = NULL;
    }
    (void)json_object_set_new(o, "error", e);
    rq->m->stats.refused++;
    return o;
}

/* ---- eras ---- */

/* RFC 4648 into out (terminated); false when it is none or too long. */
static bool base64_text(const char *s, size_t n, char *out, size_t size)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    unsigned bits = 0;
    unsigned value = 0;
    size_t at = 0;
    while (n > 0 && s[n - 1] == '=') {
        n--;
    }
    for (size_t i = 0; i < n; i++) {
        const char *d = s[i] != '\0' ? strchr(digits, s[i]) : NULL;
        if (d == NULL) {
            return false;
        }
        value = (value << 6 | (unsigned)(d - digits)) & 0xffff;
        bits += 6;
        if (bits >= 8) {
            bits -= 8;
            if (at + 1 >= size) {
                return false;
            }
            out[at++] = (char)(value >> bits & 0xff);
        }
    }
    out[at] = '\0';
    return true;
}

/* A header says the same as the body; it may come as =?base64?...?=. */
static bool header_is(const char *header, const char *want)
{
    static const char open[] = "=?base64?";
    char text[1024];
    if (header == NULL) {
        return false;
    }
    size_t n = strlen(header);
    if (n >= sizeof(open) + 1 && strncasecmp(header, open, sizeof(open) - 1) == 0 &&
        strcmp(header + n - 2, "?=") == 0) {
        return base64_text(header + sizeof(open) - 1, n - sizeof(open) - 1, text, sizeof(text)) &&
               strcmp(text, want) == 0;
    }
    return strcmp(header, want) == 0;
}

static bool check_headers(struct mcp_request *rq, const char *version)
{
    const struct ltn_mcp_in *in = rq->in;
    bool named = strcmp(rq->method, "tools/call") == 0 || strcmp(rq->method, "prompts/get") == 0 ||
                 strcmp(rq->method, "resources/read") == 0;
    const char *key = strcmp(rq->method, "resources/read") == 0 ? "uri" : "name";
    const char *name = json_string_value(json_object_get(rq->params, key));
    const char *wrong = NULL;
    if (!header_is(in->version, version)) {
        wrong = "MCP-Protocol-Version";
    } else if (!header_is(in->method, rq->method)) {
        wrong = "Mcp-Method";
    } else if (named && name != NULL && !header_is(in->name, name)) {
        wrong = "Mcp-Name";
    } else {
        return true;
    }
    (void)ltn_mcp_refuse(rq, MCP_HEADER_MISMATCH, 400,
                         "header %s is missing or differs from the body", wrong);
    return false;
}

static bool refuse_version(struct mcp_request *rq, const char *version)
{
    rq->data = json_object();
    (void)json_object_set_new(rq->data, "supported", ltn_mcp_versions());
    (void)json_object_set_new(rq->data, "requested", json_string(version));
    (void)ltn_mcp_refuse(rq, MCP_UNSUPPORTED_VERSION, 400, "unsupported protocol version");
    return false;
}

/* What the stateless era demands of each request. */
static bool check_modern(struct mcp_request *rq)
{
    const json_t *meta = json_object_get(rq->params, "_meta");
    const char *version = json_string_value(json_object_get(meta, META_VERSION));
    if (version == NULL || !json_is_object(json_object_get(meta, META_CAPABILITIES))) {
        (void)ltn_mcp_refuse(rq, MCP_INVALID_PARAMS, 400, "params._meta must hold %s and %s",
                             META_VERSION, META_CAPABILITIES);
        return false;
    }
    if (rq->in->http && !check_headers(rq, version)) {
        return false;
    }
    return strcmp(version, LTN_MCP_VERSION) == 0 ? true : refuse_version(rq, version);
}

static bool check_legacy(struct mcp_request *rq)
{
    const char *v = rq->in->http ? rq->in->version : NULL;
    if (v == NULL || strcmp(rq->method, "initialize") == 0 || ltn_mcp_is_legacy_version(v)) {
        return true;
    }
    char clean[64];
    ltn_text_clean(clean, sizeof(clean), v, strlen(v));
    return refuse_version(rq, clean);
}

static bool is_modern(const struct mcp_request *rq)
{
    const json_t *meta = json_object_get(rq->params, "_meta");
    if (json_object_get(meta, META_VERSION) != NULL) {
        return true;
    }
    if (strcmp(rq->method, "initialize") == 0) {
        return false;
    }
    const char *v = rq->in->http ? rq->in->version : NULL;
    return strcmp(rq->method, "server/discover") == 0 || rq->in->method != NULL ||
           (v != NULL && strcmp(v, LTN_MCP_VERSION) == 0);
}

/* ---- messages ---- */

static json_t *dispatch(struct mcp_request *rq)
{
    rq->modern = is_modern(rq);
    if (!(rq->modern ? check_modern(rq) : check_legacy(rq))) {
        return NULL;
    }
    const struct mcp_method *method = ltn_mcp_method_find(rq->method, rq->modern);
    if (method == NULL) {
        char name[64];
        ltn_text_clean(name, sizeof(name), rq->method, strlen(rq->method));
        return ltn_mcp_refuse(rq, MCP_NO_METHOD, rq->modern ? 404 : 200, "no method \"%s\"", name);
    }
    json_t *result = method->answer(rq);
    if (result != NULL && rq->modern && method->cacheable) {
        /* The lists change with the program only. */
        (void)json_object_set_new(result, "ttlMs", json_integer(300000));
        (void)json_object_set_new(result, "cacheScope", json_string("private"));
    }
    return result;
}

/* A valid id, or NULL with an error noted when there is one that is not. */
static const json_t *request_id(struct mcp_request *rq, const json_t *msg)
{
    const json_t *id = json_object_get(msg, "id");
    if (id != NULL && !json_is_string(id) && !json_is_integer(id)) {
        return ltn_mcp_refuse(rq, MCP_INVALID_REQUEST, 400, "id must be a string or an integer");
    }
    return id;
}

/* Answer to one message of a batch or alone; NULL when there is none, or when it comes later (then
 * *ret_later, NULL where that may not be, is set). *status is its HTTP status. */
static json_t *answer_message(struct ltn_mcp *m, const struct ltn_mcp_in *in, const json_t *msg,
                              int *status, struct ltn_mcp_later **ret_later)
{
    struct mcp_request rq = {.m = m, .in = in, .may_wait = ret_later != NULL};
    *status = 400;
    if (!json_is_object(msg)) {
        (void)ltn_mcp_refuse(&rq, MCP_INVALID_REQUEST, 400, "a message is an object");
        return error_answer(&rq, NULL);
    }
    const char *version = json_string_value(json_object_get(msg, "jsonrpc"));
    const json_t *id = request_id(&rq, msg);
    rq.method = json_string_value(json_object_get(msg, "method"));
    rq.params = json_object_get(msg, "params");
    if (rq.code != 0) {
        return error_answer(&rq, NULL);
    }
    if (version == NULL || strcmp(version, "2.0") != 0) {
        (void)ltn_mcp_refuse(&rq, MCP_INVALID_REQUEST, 400, "jsonrpc must be \"2.0\"");
        return error_answer(&rq, id);
    }
    if (rq.method == NULL && json_object_get(msg, "method") == NULL && id != NULL &&
        (json_object_get(msg, "result") != NULL || json_object_get(msg, "error") != NULL)) {
        *status = 202; /* nothing was asked of the client; its answers go nowhere */
        return NULL;
    }
    if (rq.method == NULL || (rq.params != NULL && !json_is_object(rq.params))) {
        (void)ltn_mcp_refuse(&rq, MCP_INVALID_REQUEST, 400,
                             "a request has a method, and an object as params");
        return error_answer(&rq, id);
    }
    if (id == NULL) {
        *status = 202; /* a notification: none changes anything here */
        return NULL;
    }
    rq.id = id;
    json_t *result = dispatch(&rq);
    if (rq.later != NULL) {
        *ret_later = rq.later;
        *status = 0;
        return NULL;
    }
    if (result == NULL) {
        *status = rq.status;
        return error_answer(&rq, id);
    }
    *status = 200;
    return result_answer(id, rq.modern, result);
}

/* One revision had batches; it is also what a client speaks that names none. */
static bool batch_allowed(const struct ltn_mcp_in *in)
{
    const char *v = in->http ? in->version : (in->negotiated != NULL ? *in->negotiated : "");
    return v == NULL || strcmp(v, "2025-03-26") == 0;
}

static json_t *answer_batch(struct ltn_mcp *m, const struct ltn_mcp_in *in, const json_t *batch,
                            int *status)
{
    struct mcp_request rq = {.m = m, .in = in};
    size_t i;
    const json_t *msg;
    if (!batch_allowed(in) || json_array_size(batch) == 0 ||
        json_array_size(batch) > LTN_MCP_MAX_BATCH) {
        (void)ltn_mcp_refuse(&rq, MCP_INVALID_REQUEST, 400,
                             "one message at a time; batches of up to %d in revision 2025-03-26",
                             LTN_MCP_MAX_BATCH);
        *status = 400;
        return error_answer(&rq, NULL);
    }
    json_t *all = json_array();
    json_array_foreach(batch, i, msg)
    {
        int one = 0;
        json_t *a = answer_message(m, in, msg, &one, NULL);
        if (a != NULL) {
            (void)json_array_append_new(all, a);
        }
    }
    *status = json_array_size(all) > 0 ? 200 : 202;
    if (*status == 202) {
        json_decref(all);
        return NULL;
    }
    return all;
}

static json_t *answer_broken(struct ltn_mcp *m, const struct ltn_mcp_in *in, int rc, int *status)
{
    struct mcp_request rq = {.m = m, .in = in};
    *status = rc == LTN_ERR_TOO_LARGE ? 413 : 400;
    (void)ltn_mcp_refuse(&rq, rc == LTN_ERR_MALFORMED ? MCP_PARSE_ERROR : MCP_INVALID_REQUEST,
                         *status, "%s", ltn_err_str(rc));
    return error_answer(&rq, NULL);
}

/* Takes the answer. */
static void write_answer(json_t *answer, int status, struct ltn_mcp_out *ret)
{
    ret->body = json_dumps(answer, JSON_COMPACT | JSON_REAL_PRECISION(12));
    ret->len = ret->body != NULL ? strlen(ret->body) : 0;
    ret->status = ret->body != NULL ? status : 500;
    json_decref(answer);
}

void ltn_mcp_handle(struct ltn_mcp *m, const struct ltn_mcp_in *in, struct ltn_mcp_out *ret)
{
    json_t *msg = NULL;
    json_t *answer;
    *ret = (struct ltn_mcp_out){.status = 500};
    m->stats.messages++;
    int rc = ltn_mcp_read(in->body, in->len, &msg);
    if (rc < 0) {
        answer = answer_broken(m, in, rc, &ret->status);
    } else if (json_is_array(msg)) {
        answer = answer_batch(m, in, msg, &ret->status);
    } else {
        answer = answer_message(m, in, msg, &ret->status, in->may_wait ? &ret->later : NULL);
    }
    json_decref(msg);
    if (answer != NULL) {
        write_answer(answer, ret->status, ret);
    }
}

void ltn_mcp_write_result(const json_t *id, bool modern, json_t *result, struct ltn_mcp_out *ret)
{
    write_answer(result_answer(id, modern, result), 200, ret);
}
