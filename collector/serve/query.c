/* SPDX-License-Identifier: Apache-2.0 */
/* POST /api/v1/query: from a JSON request to a question, from its answer to JSON. */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "serve/internal.h"

#define MAX_ANSWER_BYTES ((size_t)64 << 20)
#define MAX_WARNINGS     200
#define SKEW_NS          (10 * (int64_t)LTN_NS_PER_MS)

/* A request and the hub it asks; one allocation per question. */
struct question {
    const struct ltn_serve *s;
    struct ltn_http_request *req;
};

/* ---- the answer ---- */

static void put_blob(struct ltn_json *j, struct ltn_buf *scratch, struct ltn_control_str v)
{
    ltn_buf_reset(scratch);
    for (size_t i = 0; i < v.n; i++)
        (void)ltn_buf_printf(scratch, "%02x", (unsigned char)v.p[i]);
    ltn_json_str(j, ltn_buf_str(scratch));
}

static void put_cell(struct ltn_json *j, struct ltn_buf *scratch, const struct ltn_control_cell *c)
{
    switch (c->type) {
    case LTN_CONTROL_NULL:
        ltn_json_null(j);
        break;
    case LTN_CONTROL_INTEGER:
        ltn_json_i64(j, c->integer);
        break;
    case LTN_CONTROL_REAL:
        ltn_json_f64(j, c->real);
        break;
    case LTN_CONTROL_TEXT:
        ltn_json_strn(j, c->bytes.p, c->bytes.n);
        break;
    case LTN_CONTROL_BLOB:
        put_blob(j, scratch, c->bytes);
        break;
    }
}

static size_t put_rows(struct ltn_json *j, const struct ltn_query_answer *a)
{
    struct ltn_control_cell cells[LTN_CONTROL_MAX_COLUMNS + 1];
    struct ltn_query_cursor cursor = {0};
    struct ltn_buf scratch;
    size_t n = ltn_query_answer_columns(a), rows = 0;
    ltn_buf_init(&scratch, MAX_ANSWER_BYTES);
    ltn_json_key(j, "columns");
    ltn_json_open_array(j);
    for (size_t i = 0; i < n; i++)
        ltn_json_str(j, ltn_query_answer_column(a, i));
    ltn_json_close_array(j);
    ltn_json_key(j, "rows");
    ltn_json_open_array(j);
    while (ltn_buf_error(j->out) == 0 && ltn_query_next_row(a, &cursor, cells)) {
        ltn_json_open_array(j);
        for (size_t i = 0; i < n; i++)
            put_cell(j, &scratch, &cells[i]);
        ltn_json_close_array(j);
        rows++;
    }
    ltn_json_close_array(j);
    ltn_buf_done(&scratch);
    return rows;
}

static void put_nodes(struct ltn_json *j, const struct ltn_query_answer *a)
{
    struct ltn_query_node_answer n;
    size_t answered = 0, i = 0;
    ltn_json_key(j, "nodes");
    ltn_json_open_array(j);
    for (; ltn_query_node_answer(a, i, &n); i++) {
        answered += n.state == LTN_QUERY_ANSWERED ? 1 : 0;
        ltn_json_open_object(j);
        ltn_json_kv_str(j, "node", n.node);
        ltn_json_kv_str(j, "state", ltn_query_node_state_name(n.state));
        ltn_json_kv_u64(j, "rows", n.rows);
        ltn_json_kv_bool(j, "truncated", n.truncated);
        ltn_json_kv_u64(j, "elapsed_ns", n.elapsed_ns);
        ltn_json_close_object(j);
    }
    ltn_json_close_array(j);
    ltn_json_kv_u64(j, "nodes_asked", i);
    ltn_json_kv_u64(j, "nodes_answered", answered);
}

static void put_warning(struct ltn_json *j, const char *node, const char *kind, const char *text)
{
    ltn_json_open_object(j);
    ltn_json_kv_str(j, "node", node);
    ltn_json_kv_str(j, "kind", kind);
    ltn_json_kv_str(j, "message", text);
    ltn_json_close_object(j);
}

/* What is wrong with one node's part: at most two things. */
static size_t put_node_warnings(struct ltn_json *j, const struct ltn_serve *s,
                                const struct ltn_query_node_answer *n)
{
    struct ltn_query_node known;
    char text[128];
    size_t count = 0;
    if (n->state != LTN_QUERY_ANSWERED || n->message[0] != '\0') {
        bool cut = n->state == LTN_QUERY_ANSWERED;
        put_warning(j, n->node, cut ? "truncated" : ltn_query_node_state_name(n->state),
                    n->message);
        count++;
    } else if (n->truncated) {
        put_warning(j, n->node, "truncated", "it has more rows than the limit");
        count++;
    }
    if (n->state == LTN_QUERY_ANSWERED && ltn_query_hub_node(s->hub, n->node, &known) &&
        known.has_clock) {
        int64_t off = known.clock_offset_ns < 0 ? -known.clock_offset_ns : known.clock_offset_ns;
        if (off - (int64_t)known.clock_uncertainty_ns > SKEW_NS) {
            (void)snprintf(text, sizeof(text),
                           "its clock is %.1f ms %s the collector's (+-%.1f ms)", (double)off / 1e6,
                           known.clock_offset_ns > 0 ? "ahead of" : "behind",
                           (double)known.clock_uncertainty_ns / 1e6);
            put_warning(j, n->node, "clock_skew", text);
            count++;
        }
    }
    return count;
}

static void put_warnings(struct ltn_json *j, const struct ltn_serve *s,
                         const struct ltn_query_answer *a)
{
    struct ltn_query_node_answer n;
    size_t count = 0, i = 0, left_out = 0;
    ltn_json_key(j, "warnings");
    ltn_json_open_array(j);
    for (; ltn_query_node_answer(a, i, &n); i++) {
        if (count < MAX_WARNINGS)
            count += put_node_warnings(j, s, &n);
        else
            left_out += n.state != LTN_QUERY_ANSWERED ? 1 : 0;
    }
    ltn_json_close_array(j);
    ltn_json_kv_u64(j, "warnings_left_out", left_out);
}

static void on_answer(void *arg, const struct ltn_query_answer *a)
{
    struct question *q = arg;
    struct ltn_buf b;
    struct ltn_json j;
    const char *message = "";
    int rc = ltn_query_answer_rc(a, &message);
    if (rc != 0) {
        ltn_http_reply_error(q->req, rc, message, 0);
        free(q);
        return;
    }
    ltn_buf_init(&b, MAX_ANSWER_BYTES);
    ltn_json_init(&j, &b);
    ltn_json_open_object(&j);
    ltn_json_kv_u64(&j, "row_count", put_rows(&j, a));
    ltn_json_kv_bool(&j, "truncated", ltn_query_answer_truncated(a));
    put_nodes(&j, a);
    put_warnings(&j, q->s, a);
    ltn_json_kv_u64(&j, "elapsed_ns", ltn_query_answer_elapsed_ns(a));
    ltn_json_close_object(&j);
    ltn_serve_reply_json(q->req, 200, &b);
    free(q);
}

static bool asker_gone(void *arg)
{
    const struct question *q = arg;
    return ltn_http_gone(q->req);
}

/* ---- the request ---- */

/* What a request's JSON says; texts belong to the JSON. */
struct parsed {
    json_t *root;
    const char **nodes;
    struct ltn_query_request r;
};

static int get_text(const json_t *v, const char *key, const char **ret, struct ltn_errinfo *info)
{
    const char *text = json_string_value(v);
    if (json_is_null(v))
        return 0;
    if (text == NULL || strlen(text) != json_string_length(v))
        return ltn_errinfo_set(info, LTN_ERR_MALFORMED, "%s: a text", key);
    *ret = text;
    return 0;
}

static int get_number(const json_t *v, const char *key, uint64_t *ret, struct ltn_errinfo *info)
{
    if (json_is_null(v))
        return 0;
    if (!json_is_integer(v) || json_integer_value(v) < 1 || json_integer_value(v) > 1000000000)
        return ltn_errinfo_set(info, LTN_ERR_MALFORMED, "%s: a whole number of at least 1", key);
    *ret = (uint64_t)json_integer_value(v);
    return 0;
}

static int get_nodes(const json_t *v, struct parsed *p, struct ltn_errinfo *info)
{
    size_t n = json_array_size(v);
    if (json_is_null(v))
        return 0;
    if (!json_is_array(v) || n == 0)
        return ltn_errinfo_set(info, LTN_ERR_MALFORMED, "nodes: a list of names");
    p->nodes = calloc(n, sizeof(*p->nodes));
    if (p->nodes == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++) {
        p->nodes[i] = NULL;
        int rc = get_text(json_array_get(v, i), "nodes", &p->nodes[i], info);
        if (rc != 0 || p->nodes[i] == NULL)
            return ltn_errinfo_set(info, LTN_ERR_MALFORMED, "nodes: a list of names");
    }
    p->r.nodes = p->nodes;
    p->r.node_count = n;
    return 0;
}

static int get_member(const char *key, const json_t *v, struct parsed *p, struct ltn_errinfo *info)
{
    uint64_t ms = 0;
    if (strcmp(key, "sql") == 0)
        return get_text(v, key, &p->r.sql, info);
    if (strcmp(key, "reduce") == 0)
        return get_text(v, key, &p->r.reduce, info);
    if (strcmp(key, "nodes") == 0)
        return get_nodes(v, p, info);
    if (strcmp(key, "limit") == 0)
        return get_number(v, key, &p->r.limit, info);
    if (strcmp(key, "timeout_ms") == 0) {
        int rc = get_number(v, key, &ms, info);
        p->r.timeout_ns = ms * LTN_NS_PER_MS;
        return rc;
    }
    return ltn_errinfo_set(info, LTN_ERR_MALFORMED,
                           "\"%.64s\" is not known; there are sql, nodes, reduce, limit, "
                           "timeout_ms",
                           key);
}

static int parse(struct ltn_http_request *req, struct parsed *p, struct ltn_errinfo *info)
{
    size_t n = 0;
    const char *key;
    json_t *v;
    json_error_t e;
    const uint8_t *body = ltn_http_body(req, &n);
    p->root = json_loadb((const char *)body, n, JSON_REJECT_DUPLICATES, &e);
    if (p->root == NULL)
        return ltn_errinfo_set(info, LTN_ERR_MALFORMED, "the body is no JSON: %.120s", e.text);
    if (!json_is_object(p->root))
        return ltn_errinfo_set(info, LTN_ERR_MALFORMED, "the body is no JSON object");
    json_object_foreach(p->root, key, v)
    {
        int rc = get_member(key, v, p, info);
        if (rc != 0)
            return rc;
    }
    return p->r.sql != NULL ? 0 : ltn_errinfo_set(info, LTN_ERR_MALFORMED, "sql is missing");
}

void ltn_serve_on_query(void *arg, struct ltn_http_request *req)
{
    const struct ltn_serve *s = arg;
    struct parsed p = {0};
    struct ltn_errinfo info = {0, ""};
    struct question *q = malloc(sizeof(*q));
    int rc = q == NULL ? -ENOMEM : parse(req, &p, &info);
    if (rc == 0) {
        *q = (struct question){s, req};
        const struct ltn_query_asker asker = {on_answer, asker_gone, q};
        rc = ltn_query_ask(s->hub, &p.r, &asker, &info);
    }
    if (rc != 0) {
        ltn_http_reply_error(req, rc, info.msg[0] != '\0' ? info.msg : NULL, 0);
        free(q);
    }
    json_decref(p.root);
    free(p.nodes);
}
