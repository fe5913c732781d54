/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/fanout.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/text.h"
#include "http/client.h"

#define THREADS        16
#define CLOCK_LOOKS    5
#define ANSWER_BYTES   ((size_t)64 << 20)
#define ROWS_BYTES     ((size_t)256 << 20)
#define URL_BYTES      1024
#define BODY_BYTES     ((size_t)256 << 10)
#define COLUMNS_MAX    199 /* one more is added */
#define FLEET_SQL_SIZE ((size_t)128 << 10)

struct fanout {
    const struct ltn_fanout_opts *o;
    struct ltn_fanout_node *nodes;
    const char *body;
    size_t body_len;
    atomic_size_t next;
};

static bool make_url(const char *address, const char *path, char out[URL_BYTES])
{
    bool is_url = strncmp(address, "http://", 7) == 0 || strncmp(address, "https://", 8) == 0;
    size_t n = strlen(address);
    while (n > 0 && address[n - 1] == '/') {
        n--;
    }
    int len = snprintf(out, URL_BYTES, "%s%.*s%s", is_url ? "" : "http://", (int)n, address, path);
    return len > 0 && len < URL_BYTES;
}

static int call(struct ltn_http_client *c, const struct fanout *f, const char *address,
                const char *path, bool post, struct ltn_http_result *ret)
{
    char url[URL_BYTES];
    *ret = (struct ltn_http_result){0};
    if (!make_url(address, path, url)) {
        (void)snprintf(ret->error, sizeof(ret->error), "the address is too long");
        return -EINVAL;
    }
    const struct ltn_http_call what = {
        .method = post ? "POST" : "GET",
        .url = url,
        .body = post ? f->body : NULL,
        .body_len = post ? f->body_len : 0,
        .content_type = post ? "application/json" : NULL,
        .bearer_token = f->o->token != NULL && f->o->token[0] != '\0' ? f->o->token : NULL,
        .timeout_ns = f->o->timeout_ns,
        .max_response_bytes = ANSWER_BYTES,
        .ca_file = f->o->ca_file,
        .cert_file = f->o->cert_file,
        .key_file = f->o->key_file,
    };
    return ltn_http_client_call(c, &what, ret);
}

/* The clock of a node, from the look with the shortest round trip. */
static void look_at_clock(struct ltn_http_client *c, const struct fanout *f,
                          struct ltn_fanout_node *n)
{
    for (int i = 0; i < CLOCK_LOOKS; i++) {
        struct ltn_http_result r;
        uint64_t before = ltn_now_unix_ns();
        uint64_t mono = ltn_now_mono_ns();
        if (call(c, f, n->address, "/api/v1/time", false, &r) < 0) {
            return;
        }
        double half = (double)(ltn_now_mono_ns() - mono) / 2;
        json_t *root = json_loadb((const char *)r.body, r.body_len, 0, NULL);
        const json_t *now = json_object_get(root, "now_ns");
        if (json_is_integer(now) && (!n->clock_known || half < n->uncertainty_ns)) {
            n->clock_known = true;
            n->skew_ns = (double)(json_integer_value(now) - (json_int_t)before) - half;
            n->uncertainty_ns = half;
        }
        json_decref(root);
    }
}

static void say(struct ltn_fanout_node *n, const char *text)
{
    ltn_text_clean(n->error, sizeof(n->error), text, strlen(text));
}

static int take_columns(struct ltn_rows *rows, const json_t *columns)
{
    const char *names[COLUMNS_MAX];
    size_t count = json_array_size(columns);
    if (count == 0 || count > COLUMNS_MAX) {
        return LTN_ERR_MALFORMED;
    }
    for (size_t i = 0; i < count; i++) {
        names[i] = json_string_value(json_array_get(columns, i));
        if (names[i] == NULL) {
            return LTN_ERR_MALFORMED;
        }
    }
    return ltn_rows_columns(rows, names, count);
}

static bool to_value(const json_t *v, struct ltn_sql_value *ret)
{
    *ret = (struct ltn_sql_value){.type = LTN_SQL_NULL};
    if (json_is_integer(v)) {
        ret->type = LTN_SQL_I64;
        ret->i = json_integer_value(v);
        ret->f = (double)ret->i;
    } else if (json_is_real(v)) {
        ret->type = LTN_SQL_F64;
        ret->f = json_real_value(v);
    } else if (json_is_string(v)) {
        ret->type = LTN_SQL_TEXT;
        ret->p = json_string_value(v);
        ret->n = json_string_length(v);
    } else {
        return json_is_null(v);
    }
    return true;
}

static int take_rows(struct ltn_rows *rows, const json_t *list)
{
    struct ltn_sql_value values[COLUMNS_MAX];
    int rc = json_is_array(list) ? 0 : LTN_ERR_MALFORMED;
    for (size_t i = 0; i < json_array_size(list) && rc == 0; i++) {
        const json_t *row = json_array_get(list, i);
        if (json_array_size(row) != rows->column_count) {
            return LTN_ERR_MALFORMED;
        }
        for (size_t k = 0; k < rows->column_count; k++) {
            if (!to_value(json_array_get(row, k), &values[k])) {
                return LTN_ERR_MALFORMED;
            }
        }
        rc = ltn_rows_add(rows, values);
    }
    return rc;
}

static void take_answer(struct ltn_fanout_node *n, const struct ltn_http_result *r)
{
    json_error_t error;
    json_t *root = json_loadb((const char *)r->body, r->body_len, 0, &error);
    const char *name = json_string_value(json_object_get(root, "node"));
    int rc = take_columns(&n->rows, json_object_get(root, "columns"));
    if (rc == 0) {
        rc = take_rows(&n->rows, json_object_get(root, "rows"));
    }
    if (rc < 0) {
        say(n, rc == LTN_ERR_MALFORMED ? "its answer is not understood" : ltn_err_str(rc));
    } else {
        n->answered = true;
        n->truncated = json_is_true(json_object_get(root, "truncated"));
        n->row_count = n->rows.row_count;
        name = name != NULL && name[0] != '\0' ? name : n->address;
        ltn_text_clean(n->node, sizeof(n->node), name, strlen(name));
    }
    json_decref(root);
}

/* What the node itself said, else what the transport says. */
static void take_failure(struct ltn_fanout_node *n, int rc, const struct ltn_http_result *r)
{
    json_t *root = r->body != NULL ? json_loadb((const char *)r->body, r->body_len, 0, NULL) : NULL;
    const char *message =
        json_string_value(json_object_get(json_object_get(root, "error"), "message"));
    say(n, message != NULL ? message : r->error[0] != '\0' ? r->error : ltn_err_str(rc));
    json_decref(root);
}

static void ask(struct ltn_http_client *c, const struct fanout *f, struct ltn_fanout_node *n)
{
    struct ltn_http_result r;
    int rc = call(c, f, n->address, "/api/v1/query", true, &r);
    if (rc < 0) {
        take_failure(n, rc, &r);
        return;
    }
    take_answer(n, &r);
    if (n->answered) {
        look_at_clock(c, f, n);
    }
}

static void *ask_some(void *arg)
{
    struct fanout *f = arg;
    struct ltn_http_client *c = ltn_http_client_new();
    size_t i;
    while ((i = atomic_fetch_add(&f->next, 1)) < f->o->node_count) {
        if (c == NULL) {
            say(&f->nodes[i], "out of memory");
        } else {
            ask(c, f, &f->nodes[i]);
        }
    }
    ltn_http_client_free(c);
    return NULL;
}

static int make_body(const struct ltn_fanout_opts *o, struct ltn_buf *body)
{
    struct ltn_json j;
    ltn_buf_init(body, BODY_BYTES);
    ltn_json_init(&j, body);
    ltn_json_open_object(&j);
    ltn_json_kv_str(&j, "sql", o->sql);
    ltn_json_kv_u64(&j, "limit", o->limit);
    ltn_json_kv_u64(&j, "timeout_ms",
                    o->timeout_ns / LTN_NS_PER_MS > 10000 ? 10000 : o->timeout_ns / LTN_NS_PER_MS);
    ltn_json_close_object(&j);
    return ltn_buf_error(body);
}

int ltn_fanout_run(const struct ltn_fanout_opts *o, struct ltn_fanout_node **ret_nodes,
                   struct ltn_errinfo *info)
{
    pthread_t threads[THREADS];
    size_t started = 0;
    struct ltn_buf body;
    if (o->node_count == 0 || o->node_count > LTN_FANOUT_NODES) {
        return ltn_errinfo_set(info, LTN_ERR_CONFIG, "--nodes: 1 to %d nodes", LTN_FANOUT_NODES);
    }
    struct fanout f = {.o = o, .nodes = calloc(o->node_count, sizeof(*f.nodes))};
    int rc = make_body(o, &body);
    if (f.nodes == NULL || rc < 0) {
        free(f.nodes);
        ltn_buf_done(&body);
        return ltn_errinfo_set(info, rc < 0 ? rc : -ENOMEM, "the statement is too long");
    }
    f.body = ltn_buf_str(&body);
    f.body_len = body.len;
    for (size_t i = 0; i < o->node_count; i++) {
        f.nodes[i].address = o->nodes[i];
        ltn_rows_init(&f.nodes[i].rows, ROWS_BYTES);
    }
    while (started < THREADS - 1 && started + 1 < o->node_count &&
           pthread_create(&threads[started], NULL, ask_some, &f) == 0) {
        started++;
    }
    (void)ask_some(&f);
    for (size_t i = 0; i < started; i++) {
        (void)pthread_join(threads[i], NULL);
    }
    ltn_buf_done(&body);
    *ret_nodes = f.nodes;
    return 0;
}

void ltn_fanout_free(struct ltn_fanout_node *nodes, size_t n)
{
    for (size_t i = 0; nodes != NULL && i < n; i++) {
        ltn_rows_done(&nodes[i].rows);
    }
    free(nodes);
}

/* ---- joining ---- */

static bool same_columns(const struct ltn_rows *a, const struct ltn_rows *b)
{
    if (a->column_count != b->column_count) {
        return false;
    }
    for (size_t i = 0; i < a->column_count; i++) {
        if (strcmp(a->names[i], b->names[i]) != 0) {
            return false;
        }
    }
    return true;
}

static int join_columns(const struct ltn_rows *first, bool add_node, struct ltn_rows *out)
{
    const char *names[COLUMNS_MAX + 1];
    size_t n = 0;
    if (add_node) {
        names[n++] = "node";
    }
    for (size_t i = 0; i < first->column_count; i++) {
        names[n++] = first->names[i];
    }
    return ltn_rows_columns(out, names, n);
}

static int join_rows(const struct ltn_fanout_node *node, bool add_node, struct ltn_rows *out)
{
    struct ltn_sql_value values[COLUMNS_MAX + 1];
    size_t n = node->rows.column_count;
    int rc = 0;
    for (size_t row = 0; row < node->rows.row_count && rc == 0; row++) {
        size_t at = 0;
        if (add_node) {
            values[at++] = (struct ltn_sql_value){
                .type = LTN_SQL_TEXT, .p = node->node, .n = strlen(node->node)};
        }
        memcpy(&values[at], &node->rows.cells[row * n], n * sizeof(values[0]));
        rc = ltn_rows_add(out, values);
    }
    return rc;
}

int ltn_fanout_join(struct ltn_fanout_node *nodes, size_t n, struct ltn_rows *out)
{
    const struct ltn_rows *first = NULL;
    bool add_node = false;
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++) {
        if (!nodes[i].answered) {
            continue;
        }
        if (first == NULL) {
            first = &nodes[i].rows;
            add_node = ltn_rows_find(first, "node") < 0;
            rc = join_columns(first, add_node, out);
        } else if (!same_columns(first, &nodes[i].rows)) {
            nodes[i].answered = false;
            say(&nodes[i], "its columns differ from those of the first node");
            continue;
        }
        if (rc == 0) {
            rc = join_rows(&nodes[i], add_node, out);
        }
        out->truncated = out->truncated || nodes[i].truncated;
    }
    return rc;
}

/* ---- reducing ---- */

static void put_name(struct ltn_buf *b, const char *name)
{
    (void)ltn_buf_putc(b, '"');
    for (; *name != '\0'; name++) {
        if (*name == '"') {
            (void)ltn_buf_putc(b, '"');
        }
        (void)ltn_buf_putc(b, *name);
    }
    (void)ltn_buf_putc(b, '"');
}

/* Columns of the same name get a number, as in "count(*):1". */
static int make_table(struct ltn_db *db, const struct ltn_rows *rows, struct ltn_buf *insert)
{
    struct ltn_buf create;
    ltn_buf_init(&create, FLEET_SQL_SIZE);
    (void)ltn_buf_puts(&create, "CREATE TABLE fleet (");
    (void)ltn_buf_puts(insert, "INSERT INTO fleet VALUES (");
    for (size_t i = 0; i < rows->column_count; i++) {
        (void)ltn_buf_puts(&create, i > 0 ? "," : "");
        (void)ltn_buf_puts(insert, i > 0 ? ",?" : "?");
        if (ltn_rows_find(rows, rows->names[i]) == (int)i) {
            put_name(&create, rows->names[i]);
        } else {
            (void)ltn_buf_printf(&create, "\"column %zu\"", i + 1);
        }
    }
    (void)ltn_buf_puts(&create, ")");
    (void)ltn_buf_puts(insert, ")");
    int rc = ltn_buf_error(&create) != 0 ? ltn_buf_error(&create) : ltn_buf_error(insert);
    if (rc == 0) {
        rc = ltn_db_exec(db, ltn_buf_str(&create));
    }
    ltn_buf_done(&create);
    return rc;
}

static void bind(struct ltn_stmt *s, int at, const struct ltn_sql_value *v)
{
    switch (v->type) {
    case LTN_SQL_I64:
        ltn_stmt_i64(s, at, v->i);
        break;
    case LTN_SQL_F64:
        ltn_stmt_f64(s, at, v->f);
        break;
    case LTN_SQL_TEXT:
        ltn_stmt_textn(s, at, v->p, v->n);
        break;
    case LTN_SQL_BLOB:
        ltn_stmt_blob(s, at, v->p, v->n);
        break;
    default:
        ltn_stmt_null(s, at);
        break;
    }
}

static int fill_table(struct ltn_db *db, const struct ltn_rows *rows)
{
    struct ltn_buf insert;
    struct ltn_stmt *s = NULL;
    ltn_buf_init(&insert, FLEET_SQL_SIZE);
    int rc = make_table(db, rows, &insert);
    if (rc == 0) {
        rc = ltn_db_begin(db);
    }
    for (size_t row = 0; row < rows->row_count && rc == 0; row++) {
        rc = ltn_db_prepare(db, ltn_buf_str(&insert), &s);
        for (size_t i = 0; i < rows->column_count && rc == 0; i++) {
            bind(s, (int)i + 1, &rows->cells[row * rows->column_count + i]);
        }
        if (rc == 0) {
            rc = ltn_stmt_run(s);
        }
    }
    if (rc == 0) {
        rc = ltn_db_commit(db);
    }
    ltn_buf_done(&insert);
    return rc;
}

int ltn_fanout_reduce(const struct ltn_rows *rows, const char *sql,
                      const struct ltn_db_limits *limits, struct ltn_rows *out,
                      struct ltn_errinfo *info)
{
    struct ltn_db *db = NULL;
    if (rows->column_count == 0) {
        return ltn_errinfo_set(info, LTN_ERR_UNAVAILABLE, "no node answered");
    }
    int rc = ltn_db_open(&(struct ltn_db_opts){.path = ":memory:"}, &db, info);
    if (rc < 0) {
        return rc;
    }
    rc = fill_table(db, rows);
    if (rc == 0) {
        rc = ltn_db_freeze(db);
    }
    if (rc < 0) {
        (void)ltn_errinfo_set(info, rc, "the joined rows: %s", ltn_db_message(db));
    } else {
        rc = ltn_rows_query(out, db, sql, limits, info);
        out->truncated = out->truncated || rows->truncated;
    }
    ltn_db_close(db);
    return rc;
}
