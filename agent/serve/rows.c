/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/rows.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

#define CHUNK_BYTES      (64U * 1024)
#define CELL_WIDTH_MAX   60
#define COLUMNS_MAX      200
#define NUMBER_BYTES     40
#define TABLE_CELL_BYTES (4 * CELL_WIDTH_MAX + 8)

void ltn_rows_init(struct ltn_rows *r, size_t max_bytes)
{
    *r = (struct ltn_rows){0};
    ltn_arena_init(&r->arena, CHUNK_BYTES, max_bytes);
}

void ltn_rows_done(struct ltn_rows *r)
{
    ltn_arena_done(&r->arena);
    free(r->cells);
    *r = (struct ltn_rows){0};
}

int ltn_rows_columns(struct ltn_rows *r, const char *const *names, size_t n)
{
    r->names = ltn_arena_calloc(&r->arena, n > 0 ? n : 1, sizeof(*r->names));
    if (r->names == NULL) {
        return LTN_ERR_TOO_LARGE;
    }
    for (size_t i = 0; i < n; i++) {
        r->names[i] = ltn_arena_strndup(&r->arena, names[i], strlen(names[i]));
        if (r->names[i] == NULL) {
            return LTN_ERR_TOO_LARGE;
        }
    }
    r->column_count = n;
    return 0;
}

static int grow(struct ltn_rows *r)
{
    size_t capacity = r->row_capacity == 0 ? 64 : 2 * r->row_capacity;
    struct ltn_sql_value *cells =
        reallocarray(r->cells, capacity, r->column_count * sizeof(*cells));
    if (cells == NULL) {
        return -ENOMEM;
    }
    r->cells = cells;
    r->row_capacity = capacity;
    return 0;
}

int ltn_rows_add(struct ltn_rows *r, const struct ltn_sql_value *values)
{
    if (r->column_count == 0) {
        return LTN_ERR_MALFORMED;
    }
    int rc = r->row_count == r->row_capacity ? grow(r) : 0;
    if (rc < 0) {
        return rc;
    }
    struct ltn_sql_value *row = &r->cells[r->row_count * r->column_count];
    for (size_t i = 0; i < r->column_count; i++) {
        row[i] = values[i];
        if (values[i].type != LTN_SQL_TEXT && values[i].type != LTN_SQL_BLOB) {
            continue;
        }
        row[i].p = ltn_arena_strndup(&r->arena, values[i].n > 0 ? values[i].p : "", values[i].n);
        if (row[i].p == NULL) {
            return LTN_ERR_TOO_LARGE;
        }
    }
    r->row_count++;
    return 0;
}

static int take_columns(void *ctx, const char *const *names, size_t n)
{
    return ltn_rows_columns(ctx, names, n);
}

static int take_row(void *ctx, const struct ltn_sql_value *values, size_t n)
{
    (void)n;
    return ltn_rows_add(ctx, values);
}

int ltn_rows_query(struct ltn_rows *r, struct ltn_db *db, const char *sql,
                   const struct ltn_db_limits *limits, struct ltn_errinfo *info)
{
    const struct ltn_db_sink sink = {.ctx = r, .on_columns = take_columns, .on_row = take_row};
    struct ltn_db_query_result result = {0};
    int rc = ltn_db_query(db, sql, limits, &sink, &result, info);
    r->truncated = result.truncated;
    return rc;
}

int ltn_rows_find(const struct ltn_rows *r, const char *name)
{
    for (size_t i = 0; i < r->column_count; i++) {
        if (strcmp(r->names[i], name) == 0) {
            return (int)i;
        }
    }
    return -1;
}

const struct ltn_sql_value *ltn_rows_cell(const struct ltn_rows *r, size_t row, const char *name)
{
    static const struct ltn_sql_value null = {.type = LTN_SQL_NULL};
    int column = ltn_rows_find(r, name);
    return column < 0 ? &null : &r->cells[row * r->column_count + (size_t)column];
}

const char *ltn_rows_text(const struct ltn_rows *r, size_t row, const char *name)
{
    const struct ltn_sql_value *v = ltn_rows_cell(r, row, name);
    return v->type == LTN_SQL_TEXT ? v->p : "";
}

double ltn_rows_number(const struct ltn_rows *r, size_t row, const char *name)
{
    const struct ltn_sql_value *v = ltn_rows_cell(r, row, name);
    return v->type == LTN_SQL_F64 ? v->f : v->type == LTN_SQL_I64 ? (double)v->i : 0;
}

int64_t ltn_rows_i64(const struct ltn_rows *r, size_t row, const char *name)
{
    const struct ltn_sql_value *v = ltn_rows_cell(r, row, name);
    return v->type == LTN_SQL_I64 ? v->i : v->type == LTN_SQL_F64 ? (int64_t)v->f : 0;
}

/* ---- JSON ---- */

static void hex(struct ltn_buf *out, const struct ltn_sql_value *v)
{
    const unsigned char *p = v->p;
    for (size_t i = 0; i < v->n; i++) {
        (void)ltn_buf_printf(out, "%02x", p[i]);
    }
}

static void put_blob(struct ltn_json *j, const struct ltn_sql_value *v)
{
    ltn_json_raw(j, "\"", 1);
    hex(j->out, v);
    (void)ltn_buf_putc(j->out, '"');
}

static void put_value(struct ltn_json *j, const struct ltn_sql_value *v)
{
    switch (v->type) {
    case LTN_SQL_I64:
        ltn_json_i64(j, v->i);
        break;
    case LTN_SQL_F64:
        ltn_json_f64(j, v->f);
        break;
    case LTN_SQL_TEXT:
        ltn_json_strn(j, v->p, v->n);
        break;
    case LTN_SQL_BLOB:
        put_blob(j, v);
        break;
    default:
        ltn_json_null(j);
        break;
    }
}

void ltn_rows_json(const struct ltn_rows *r, struct ltn_json *j)
{
    ltn_json_key(j, "columns");
    ltn_json_open_array(j);
    for (size_t i = 0; i < r->column_count; i++) {
        ltn_json_str(j, r->names[i]);
    }
    ltn_json_close_array(j);
    ltn_json_key(j, "rows");
    ltn_json_open_array(j);
    for (size_t row = 0; row < r->row_count; row++) {
        ltn_json_open_array(j);
        for (size_t i = 0; i < r->column_count; i++) {
            put_value(j, &r->cells[row * r->column_count + i]);
        }
        ltn_json_close_array(j);
    }
    ltn_json_close_array(j);
    ltn_json_kv_u64(j, "row_count", r->row_count);
    ltn_json_kv_bool(j, "truncated", r->truncated);
}

/* Writes the text as JSON when it is; false when it is not. */
static bool put_nested(struct ltn_json *j, const char *name, const struct ltn_sql_value *v)
{
    if (v->type != LTN_SQL_TEXT || (strcmp(name, "evidence") != 0 && strcmp(name, "drops") != 0)) {
        return false;
    }
    json_t *root = json_loadb(v->p, v->n, JSON_REJECT_DUPLICATES, NULL);
    if (root == NULL) {
        return false;
    }
    char *text = json_dumps(root, JSON_COMPACT);
    json_decref(root);
    if (text == NULL) {
        return false;
    }
    ltn_json_raw(j, text, strlen(text));
    free(text);
    return true;
}

void ltn_rows_objects(const struct ltn_rows *r, struct ltn_json *j)
{
    ltn_json_open_array(j);
    for (size_t row = 0; row < r->row_count; row++) {
        ltn_json_open_object(j);
        for (size_t i = 0; i < r->column_count; i++) {
            const struct ltn_sql_value *v = &r->cells[row * r->column_count + i];
            ltn_json_key(j, r->names[i]);
            if (!put_nested(j, r->names[i], v)) {
                put_value(j, v);
            }
        }
        ltn_json_close_object(j);
    }
    ltn_json_close_array(j);
}

/* ---- CSV ---- */

static void csv_field(struct ltn_buf *out, const char *s, size_t n)
{
    bool quote = n > 0 && (s[0] == ' ' || s[n - 1] == ' ');
    for (size_t i = 0; i < n && !quote; i++) {
        quote = s[i] == ',' || s[i] == '"' || s[i] == '\n' || s[i] == '\r';
    }
    if (!quote) {
        (void)ltn_buf_append(out, s, n);
        return;
    }
    (void)ltn_buf_putc(out, '"');
    for (size_t i = 0; i < n; i++) {
        if (s[i] == '"') {
            (void)ltn_buf_putc(out, '"');
        }
        (void)ltn_buf_putc(out, s[i]);
    }
    (void)ltn_buf_putc(out, '"');
}

static size_t number_text(const struct ltn_sql_value *v, char out[NUMBER_BYTES], bool for_people)
{
    int n = v->type == LTN_SQL_I64
                ? snprintf(out, NUMBER_BYTES, "%" PRId64, v->i)
                : snprintf(out, NUMBER_BYTES, for_people ? "%.6g" : "%.17g", v->f);
    return n > 0 ? (size_t)n : 0;
}

static void csv_value(struct ltn_buf *out, const struct ltn_sql_value *v)
{
    char text[NUMBER_BYTES];
    if (v->type == LTN_SQL_I64 || v->type == LTN_SQL_F64) {
        size_t n = number_text(v, text, false);
        (void)ltn_buf_append(out, text, n);
    } else if (v->type == LTN_SQL_TEXT) {
        csv_field(out, v->p, v->n);
    } else if (v->type == LTN_SQL_BLOB) {
        hex(out, v);
    }
}

void ltn_rows_csv_row(const struct ltn_rows *r, const struct ltn_sql_value *values,
                      struct ltn_buf *out)
{
    for (size_t i = 0; i < r->column_count; i++) {
        (void)ltn_buf_puts(out, i > 0 ? "," : "");
        csv_value(out, &values[i]);
    }
    (void)ltn_buf_puts(out, "\r\n");
}

void ltn_rows_csv(const struct ltn_rows *r, struct ltn_buf *out)
{
    for (size_t i = 0; i < r->column_count; i++) {
        (void)ltn_buf_puts(out, i > 0 ? "," : "");
        csv_field(out, r->names[i], strlen(r->names[i]));
    }
    (void)ltn_buf_puts(out, "\r\n");
    for (size_t row = 0; row < r->row_count; row++) {
        ltn_rows_csv_row(r, &r->cells[row * r->column_count], out);
    }
}

/* ---- table ---- */

/* Text of a cell for people, at most CELL_WIDTH_MAX characters. */
static void cell_text(const struct ltn_sql_value *v, char out[TABLE_CELL_BYTES])
{
    out[0] = '\0';
    if (v->type == LTN_SQL_I64 || v->type == LTN_SQL_F64) {
        (void)number_text(v, out, true);
    } else if (v->type == LTN_SQL_TEXT) {
        ltn_text_clean(out, TABLE_CELL_BYTES, v->p, v->n);
    } else if (v->type == LTN_SQL_BLOB) {
        (void)snprintf(out, TABLE_CELL_BYTES, "(%zu bytes)", v->n);
    }
}

/* Characters of a clean text, and the bytes of its first CELL_WIDTH_MAX. */
static size_t width_of(const char *s, size_t *ret_bytes)
{
    size_t width = 0;
    size_t at = 0;
    size_t n = strlen(s);
    while (at < n && width < CELL_WIDTH_MAX) {
        size_t len = ltn_utf8_len(s + at, n - at);
        at += len > 0 ? len : 1;
        width++;
    }
    *ret_bytes = at;
    return width;
}

static bool is_number(const struct ltn_sql_value *v)
{
    return v->type == LTN_SQL_I64 || v->type == LTN_SQL_F64;
}

static void put_cell(struct ltn_buf *out, const char *text, size_t column_width, bool right,
                     bool last)
{
    size_t bytes;
    size_t width = width_of(text, &bytes);
    int pad = column_width > width ? (int)(column_width - width) : 0;
    if (right) {
        (void)ltn_buf_printf(out, "%*s", pad, "");
    }
    (void)ltn_buf_append(out, text, bytes);
    if (!right && !last) {
        (void)ltn_buf_printf(out, "%*s", pad, "");
    }
    (void)ltn_buf_puts(out, last ? "\n" : "  ");
}

void ltn_rows_table(const struct ltn_rows *r, struct ltn_buf *out)
{
    char text[TABLE_CELL_BYTES];
    size_t widths[COLUMNS_MAX] = {0};
    size_t n = r->column_count < COLUMNS_MAX ? r->column_count : COLUMNS_MAX;
    size_t bytes;
    for (size_t i = 0; i < n; i++) {
        widths[i] = width_of(r->names[i], &bytes);
        for (size_t row = 0; row < r->row_count; row++) {
            cell_text(&r->cells[row * r->column_count + i], text);
            size_t width = width_of(text, &bytes);
            widths[i] = width > widths[i] ? width : widths[i];
        }
    }
    for (size_t i = 0; i < n; i++) {
        bool right = r->row_count > 0 && is_number(&r->cells[i]);
        put_cell(out, r->names[i], widths[i], right, i + 1 == n);
    }
    for (size_t row = 0; row < r->row_count; row++) {
        for (size_t i = 0; i < n; i++) {
            const struct ltn_sql_value *v = &r->cells[row * r->column_count + i];
            cell_text(v, text);
            put_cell(out, text, widths[i], is_number(v), i + 1 == n);
        }
    }
}
