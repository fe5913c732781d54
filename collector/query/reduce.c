/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The second statement: a thread puts the joined rows into a table "fleet" of a database in memory,
 * seals it, and runs the statement under the same guards as any statement of a stranger. One at a
 * time, so that their memory does not add up.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/err.h"
#include "query/internal.h"
#include "sql/db_query.h"

#define MAX_RESULT_BYTES ((size_t)32 << 20)
#define MAX_DB_BYTES     (256ULL << 20)
#define MAX_DDL_BYTES    ((size_t)256 << 10)
#define MAX_SUFFIX       1000

/* ---- the table ---- */

/* Whether one of the first n columns of the answer has this name. */
static bool taken(const struct ltn_query_answer *q, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcasecmp(ltn_query_answer_column(q, i), name) == 0)
            return true;
    return false;
}

static void put_quoted(struct ltn_buf *b, const char *name)
{
    (void)ltn_buf_putc(b, '"');
    for (const char *p = name; *p != '\0'; p++) {
        if (*p == '"')
            (void)ltn_buf_putc(b, '"');
        (void)ltn_buf_putc(b, *p);
    }
    (void)ltn_buf_putc(b, '"');
}

/* Names that stand twice get a number, as a table cannot have them. */
static void put_column(struct ltn_buf *b, const struct ltn_query_answer *q, size_t i)
{
    char name[LTN_QUERY_COLUMN_BYTES + 16];
    const char *own = ltn_query_answer_column(q, i);
    (void)snprintf(name, sizeof(name), "%s", own);
    for (int k = 2; k < MAX_SUFFIX && taken(q, i, name); k++)
        (void)snprintf(name, sizeof(name), "%s_%d", own, k);
    put_quoted(b, name);
}

static int create_table(struct ltn_db *db, const struct ltn_query_answer *q, struct ltn_buf *b)
{
    size_t n = ltn_query_answer_columns(q);
    (void)ltn_buf_puts(b, "CREATE TABLE fleet(");
    for (size_t i = 0; i < n; i++) {
        if (i > 0)
            (void)ltn_buf_putc(b, ',');
        put_column(b, q, i);
    }
    (void)ltn_buf_puts(b, ")");
    int rc = ltn_buf_error(b);
    return rc == 0 ? ltn_db_exec(db, ltn_buf_str(b)) : rc;
}

static void bind(struct ltn_stmt *s, int i, const struct ltn_control_cell *c)
{
    switch (c->type) {
    case LTN_CONTROL_INTEGER:
        ltn_stmt_i64(s, i, c->integer);
        break;
    case LTN_CONTROL_REAL:
        ltn_stmt_f64(s, i, c->real);
        break;
    case LTN_CONTROL_TEXT:
        ltn_stmt_textn(s, i, c->bytes.p, c->bytes.n);
        break;
    case LTN_CONTROL_BLOB:
        ltn_stmt_blob(s, i, c->bytes.p, c->bytes.n);
        break;
    case LTN_CONTROL_NULL:
        ltn_stmt_null(s, i);
        break;
    }
}

static int insert_rows(struct ltn_db *db, const struct ltn_query_answer *q, struct ltn_buf *b)
{
    struct ltn_control_cell cells[LTN_CONTROL_MAX_COLUMNS + 1];
    struct ltn_query_cursor c = {0};
    struct ltn_stmt *s = NULL;
    size_t n = ltn_query_answer_columns(q);
    ltn_buf_reset(b);
    (void)ltn_buf_puts(b, "INSERT INTO fleet VALUES(?");
    for (size_t i = 1; i < n; i++)
        (void)ltn_buf_puts(b, ",?");
    (void)ltn_buf_puts(b, ")");
    int rc = ltn_buf_error(b);
    if (rc == 0)
        rc = ltn_db_prepare(db, ltn_buf_str(b), &s);
    if (rc == 0)
        rc = ltn_db_begin(db);
    while (rc == 0 && !atomic_load(&q->cancelled) && ltn_query_next_row(q, &c, cells)) {
        for (size_t i = 0; i < n; i++)
            bind(s, (int)i + 1, &cells[i]);
        rc = ltn_stmt_run(s);
    }
    return rc == 0 ? ltn_db_commit(db) : rc;
}

/* ---- the statement ---- */

struct result {
    struct columns columns;
    struct rowset rows;
    struct ltn_buf row;
};

static int on_columns(void *ctx, const char *const *names, size_t n)
{
    struct result *r = ctx;
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = ltn_columns_put(&r->columns, names[i], strlen(names[i]));
    return rc;
}

static int on_row(void *ctx, const struct ltn_sql_value *values, size_t n)
{
    struct result *r = ctx;
    ltn_buf_reset(&r->row);
    for (size_t i = 0; i < n; i++) {
        const struct ltn_sql_value *v = &values[i];
        struct ltn_control_cell c = {.integer = v->i, .real = v->f, .bytes = {v->p, v->n}};
        c.type = v->type == LTN_SQL_I64    ? LTN_CONTROL_INTEGER
                 : v->type == LTN_SQL_F64  ? LTN_CONTROL_REAL
                 : v->type == LTN_SQL_TEXT ? LTN_CONTROL_TEXT
                 : v->type == LTN_SQL_BLOB ? LTN_CONTROL_BLOB
                                           : LTN_CONTROL_NULL;
        ltn_control_put_cell(&r->row, &c);
    }
    int rc = ltn_buf_error(&r->row);
    return rc == 0 ? ltn_rowset_put(&r->rows,
                                    (struct ltn_control_str){ltn_buf_str(&r->row), r->row.len})
                   : rc;
}

static int run(struct ltn_query_answer *q, struct ltn_db *db, struct result *r,
               struct ltn_errinfo *info)
{
    struct ltn_buf b;
    struct ltn_db_query_result got = {0};
    const struct ltn_db_limits limits = {.timeout_ns = q->timeout_ns,
                                         .max_rows = q->limit,
                                         .max_bytes = MAX_RESULT_BYTES / 2,
                                         .cancelled = &q->cancelled};
    const struct ltn_db_sink sink = {r, on_columns, on_row};
    ltn_buf_init(&b, MAX_DDL_BYTES);
    int rc = create_table(db, q, &b);
    if (rc == 0)
        rc = insert_rows(db, q, &b);
    ltn_buf_done(&b);
    if (rc == 0)
        rc = ltn_db_seal(db, MAX_DB_BYTES);
    if (rc != 0)
        return ltn_errinfo_set(info, rc, "the table fleet: %s", ltn_db_message(db));
    rc = ltn_db_query(db, q->reduce, &limits, &sink, &got, info);
    q->truncated = q->truncated || got.truncated;
    return rc;
}

/* Leaves the outcome in q. Reducer thread. */
static void reduce(struct ltn_query_answer *q)
{
    const struct ltn_db_opts opts = {.path = ":memory:"};
    struct ltn_errinfo info = {0};
    struct result r = {0};
    struct ltn_db *db = NULL;
    ltn_rowset_init(&r.rows, MAX_RESULT_BYTES);
    ltn_buf_init(&r.row, MAX_RESULT_BYTES);
    int rc = ltn_db_open(&opts, &db, &info);
    if (rc == 0)
        rc = run(q, db, &r, &info);
    ltn_db_close(db);
    ltn_buf_done(&r.row);
    if (rc != 0) {
        q->rc = rc;
        (void)snprintf(q->message, sizeof(q->message), "reduce: %.200s",
                       info.msg[0] != '\0' ? info.msg : ltn_err_str(rc));
        ltn_columns_done(&r.columns);
        ltn_rowset_done(&r.rows);
        return;
    }
    ltn_columns_done(&q->columns);
    q->columns = r.columns;
    q->result = r.rows;
    q->adds_node = false;
    q->reduced = true;
}

/* ---- the thread ---- */

static void on_reduced(struct ltn_task *task)
{
    struct ltn_query_answer *q =
        (struct ltn_query_answer *)((char *)task - offsetof(struct ltn_query_answer, task));
    ltn_fanout_reduced(q);
}

static void *reducer_main(void *arg)
{
    struct ltn_query_hub *h = arg;
    (void)pthread_setname_np(pthread_self(), "reduce");
    pthread_mutex_lock(&h->lock);
    for (;;) {
        struct ltn_query_answer *q = h->first;
        if (q == NULL && h->stop)
            break;
        if (q == NULL) {
            pthread_cond_wait(&h->change, &h->lock);
            continue;
        }
        h->first = q->next;
        if (h->first == NULL)
            h->last = &h->first;
        if (h->stop)
            atomic_store(&q->cancelled, true);
        pthread_mutex_unlock(&h->lock);
        reduce(q);
        q->task.fn = on_reduced;
        ltn_loop_post(h->loop, &q->task);
        pthread_mutex_lock(&h->lock);
    }
    pthread_mutex_unlock(&h->lock);
    return NULL;
}

int ltn_reducer_start(struct ltn_query_hub *h)
{
    int rc = -pthread_create(&h->thread, NULL, reducer_main, h);
    h->thread_runs = rc == 0;
    return rc;
}

void ltn_reducer_stop(struct ltn_query_hub *h)
{
    if (!h->thread_runs)
        return;
    pthread_mutex_lock(&h->lock);
    h->stop = true;
    pthread_cond_broadcast(&h->change);
    pthread_mutex_unlock(&h->lock);
    for (size_t i = 0; i < h->running_n; i++)
        atomic_store(&h->running[i]->cancelled, true);
    (void)pthread_join(h->thread, NULL);
    h->thread_runs = false;
}

void ltn_reducer_take(struct ltn_query_hub *h, struct ltn_query_answer *q)
{
    pthread_mutex_lock(&h->lock);
    q->next = NULL;
    *h->last = q;
    h->last = &q->next;
    pthread_cond_broadcast(&h->change);
    pthread_mutex_unlock(&h->lock);
}
