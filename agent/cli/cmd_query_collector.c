/* SPDX-License-Identifier: Apache-2.0 */
/* `query --collector URL`: the collector asks the nodes and joins their rows. */
#include "cli/query_collector.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/text.h"
#include "conf/command.h"
#include "http/client.h"

#define MAX_REQUEST_BYTES  ((size_t)1 << 20)
#define MAX_RESPONSE_BYTES ((size_t)80 << 20)
#define DEFAULT_TIME_NS    (10 * LTN_NS_PER_S)
#define MARGIN_NS          (10 * LTN_NS_PER_S) /* beyond the nodes' time and that of reduce */
#define MAX_COLUMNS        256
#define MAX_WIDTH          48
#define CELL_BYTES         256

/* ---- asking ---- */

static void write_request(const struct ltn_query_collector *q, struct ltn_buf *b)
{
    struct ltn_json j;
    ltn_json_init(&j, b);
    ltn_json_open_object(&j);
    ltn_json_kv_str(&j, "sql", q->sql);
    if (q->reduce != NULL) {
        ltn_json_kv_str(&j, "reduce", q->reduce);
    }
    if (q->limit != 0) {
        ltn_json_kv_u64(&j, "limit", q->limit);
    }
    if (q->timeout_ns >= LTN_NS_PER_MS) {
        ltn_json_kv_u64(&j, "timeout_ms", q->timeout_ns / LTN_NS_PER_MS);
    }
    if (q->nodes != NULL) {
        ltn_json_key(&j, "nodes");
        ltn_json_open_array(&j);
        for (size_t i = 0; i < q->node_count; i++) {
            ltn_json_str(&j, q->nodes[i]);
        }
        ltn_json_close_array(&j);
    }
    ltn_json_close_object(&j);
}

/* ---- showing ---- */

/* A value as text, cut and without control characters; its width in characters. */
static size_t cell_text(const json_t *v, char out[CELL_BYTES], bool cut)
{
    char raw[CELL_BYTES];
    const char *text = raw;
    size_t n;
    if (json_is_string(v)) {
        text = json_string_value(v);
        n = json_string_length(v);
    } else if (json_is_integer(v)) {
        n = (size_t)snprintf(raw, sizeof(raw), "%" JSON_INTEGER_FORMAT, json_integer_value(v));
    } else if (json_is_real(v)) {
        n = (size_t)snprintf(raw, sizeof(raw), "%.6g", json_real_value(v));
    } else {
        n = (size_t)snprintf(raw, sizeof(raw), "%s", json_is_null(v) ? "-" : "?");
    }
    ltn_text_clean(out, CELL_BYTES, text, n);
    size_t width = 0;
    size_t at = 0;
    while (out[at] != '\0' && (!cut || width < MAX_WIDTH)) {
        size_t step = ltn_utf8_len(out + at, strlen(out + at));
        at += step > 0 ? step : 1;
        width++;
    }
    out[at] = '\0';
    return width;
}

static void put_padded(FILE *out, const char *text, size_t width, size_t want, bool right)
{
    int pad = want > width ? (int)(want - width) : 0;
    (void)fprintf(out, "%*s%s%*s", right ? pad : 0, "", text, right ? 0 : pad, "");
}

static void put_line(FILE *out, const json_t *row, const size_t *widths, size_t n)
{
    char text[CELL_BYTES];
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(row, i);
        size_t width = cell_text(v, text, true);
        bool last = i + 1 == n;
        put_padded(out, text, width, last && !json_is_number(v) ? 0 : widths[i], json_is_number(v));
        (void)fputs(last ? "\n" : "  ", out);
    }
}

static void put_table(FILE *out, const json_t *columns, const json_t *rows)
{
    size_t widths[MAX_COLUMNS] = {0};
    char text[CELL_BYTES];
    size_t n = json_array_size(columns) < MAX_COLUMNS ? json_array_size(columns) : MAX_COLUMNS;
    for (size_t i = 0; i < n; i++) {
        widths[i] = cell_text(json_array_get(columns, i), text, true);
        for (size_t k = 0; k < json_array_size(rows); k++) {
            size_t w = cell_text(json_array_get(json_array_get(rows, k), i), text, true);
            widths[i] = w > widths[i] ? w : widths[i];
        }
    }
    put_line(out, columns, widths, n);
    for (size_t k = 0; k < json_array_size(rows); k++) {
        put_line(out, json_array_get(rows, k), widths, n);
    }
}

/* RFC 4180; text in full. */
static void put_csv_line(FILE *out, const json_t *row, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(row, i);
        (void)fputs(i > 0 ? "," : "", out);
        if (json_is_integer(v)) {
            (void)fprintf(out, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
        } else if (json_is_real(v)) {
            (void)fprintf(out, "%.17g", json_real_value(v));
        } else if (json_is_string(v)) {
            bool quote = strpbrk(json_string_value(v), ",\"\r\n") != NULL;
            (void)fputs(quote ? "\"" : "", out);
            for (const char *p = json_string_value(v); *p != '\0'; p++) {
                (void)fputs(*p == '"' ? "\"" : "", out);
                (void)fputc(*p, out);
            }
            (void)fputs(quote ? "\"" : "", out);
        }
    }
    (void)fputs("\r\n", out);
}

static void put_csv(FILE *out, const json_t *columns, const json_t *rows)
{
    size_t n = json_array_size(columns);
    put_csv_line(out, columns, n);
    for (size_t k = 0; k < json_array_size(rows); k++) {
        put_csv_line(out, json_array_get(rows, k), n);
    }
}

static void put_warnings(FILE *err, const json_t *root)
{
    const json_t *warnings = json_object_get(root, "warnings");
    char node[CELL_BYTES], text[CELL_BYTES];
    for (size_t i = 0; i < json_array_size(warnings); i++) {
        const json_t *w = json_array_get(warnings, i);
        (void)cell_text(json_object_get(w, "node"), node, false);
        (void)cell_text(json_object_get(w, "message"), text, false);
        (void)fprintf(err, "warning: %s: %s\n", node, text);
    }
    if (json_is_true(json_object_get(root, "truncated"))) {
        (void)fputs("warning: there are more rows than the limit\n", err);
    }
}

static int show(const struct ltn_query_collector *q, const struct ltn_http_result *r, FILE *out,
                FILE *err)
{
    json_error_t e;
    json_t *root = json_loadb((const char *)r->body, r->body_len, JSON_REJECT_DUPLICATES, &e);
    const json_t *columns = json_object_get(root, "columns");
    const json_t *rows = json_object_get(root, "rows");
    if (!json_is_array(columns) || !json_is_array(rows)) {
        (void)fprintf(err, "lanterne: %s: its answer is not that of a collector\n", q->url);
        json_decref(root);
        return LTN_EXIT_CANNOT;
    }
    bool partial = json_integer_value(json_object_get(root, "nodes_answered")) <
                   json_integer_value(json_object_get(root, "nodes_asked"));
    if (q->format == LTN_QUERY_JSON) {
        (void)fwrite(r->body, 1, r->body_len, out);
    } else {
        if (q->format == LTN_QUERY_CSV) {
            put_csv(out, columns, rows);
        } else {
            put_table(out, columns, rows);
        }
        put_warnings(err, root);
    }
    json_decref(root);
    return partial ? LTN_EXIT_FINDING : LTN_EXIT_OK;
}

static int explain_failure(const struct ltn_query_collector *q, const struct ltn_http_result *r,
                           FILE *err)
{
    json_error_t e;
    char text[CELL_BYTES] = "";
    json_t *root = json_loadb((const char *)r->body, r->body_len, 0, &e);
    const json_t *m = json_object_get(json_object_get(root, "error"), "message");
    if (json_is_string(m)) {
        (void)cell_text(m, text, false);
    }
    json_decref(root);
    if (r->status == 401) {
        (void)fprintf(err,
                      "lanterne: %s: wrong or missing token (--token-file) or client certificate "
                      "(--cert-file, --key-file)\n",
                      q->url);
    } else if (r->status != 0) {
        (void)fprintf(err, "lanterne: %s: %s (HTTP status %d)\n", q->url,
                      text[0] != '\0' ? text : "no answer", r->status);
    } else {
        (void)fprintf(err, "lanterne: %s: %s\n", q->url, r->error);
    }
    bool wrong = r->status == 400 || (r->status == 403 && text[0] != '\0');
    return wrong ? LTN_EXIT_USAGE : LTN_EXIT_CANNOT;
}

int ltn_query_collector(const struct ltn_query_collector *q, FILE *out, FILE *err)
{
    struct ltn_buf body, url;
    struct ltn_http_result result = {0};
    struct ltn_http_client *client = ltn_http_client_new();
    int code = LTN_EXIT_CANNOT;
    uint64_t nodes_ns = q->timeout_ns != 0 ? q->timeout_ns : DEFAULT_TIME_NS;
    size_t n = strlen(q->url);
    while (n > 0 && q->url[n - 1] == '/') {
        n--;
    }
    ltn_buf_init(&body, MAX_REQUEST_BYTES);
    ltn_buf_init(&url, MAX_REQUEST_BYTES);
    write_request(q, &body);
    (void)ltn_buf_printf(&url, "%s%.*s/api/v1/query",
                         strstr(q->url, "://") != NULL ? "" : "http://", (int)n, q->url);
    if (client == NULL || ltn_buf_error(&body) != 0 || ltn_buf_error(&url) != 0) {
        (void)fputs("lanterne: out of memory, or a statement of more than 1 MiB\n", err);
    } else {
        const struct ltn_http_call call = {
            .url = ltn_buf_str(&url),
            .body = ltn_buf_str(&body),
            .body_len = body.len,
            .content_type = "application/json",
            .bearer_token = q->token != NULL && q->token[0] != '\0' ? q->token : NULL,
            .timeout_ns = nodes_ns * (q->reduce != NULL ? 2 : 1) + MARGIN_NS,
            .max_response_bytes = MAX_RESPONSE_BYTES,
            .ca_file = q->ca_file,
            .cert_file = q->cert_file,
            .key_file = q->key_file,
        };
        int rc = ltn_http_client_call(client, &call, &result);
        code = rc == 0 ? show(q, &result, out, err) : explain_failure(q, &result, err);
    }
    ltn_buf_done(&body);
    ltn_buf_done(&url);
    ltn_http_client_free(client);
    return code;
}
