/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/logs.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/chan.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/text.h"
#include "fleet/update.h"
#include "serve/internal.h"
#include "sql/db_query.h"

#define LIMIT_DEFAULT    100
#define LIMIT_MAX        1000
#define QUEUE_MAX        64
#define RETRY_MS         1000
#define ROW_BYTES        ((uint64_t)16 << 20) /* of all rows of an answer */
#define MAX_ANSWER_BYTES ((size_t)64 << 20)
#define TEXT_MAX         256
#define SQL_MAX_BYTES    16384

struct ltn_serve_logs {
    char *db;
    uint64_t budget_ns;
    struct ltn_chan *asked;
    pthread_t thread;
    atomic_bool stop;
};

/* What is asked; one allocation per request. */
struct search {
    struct ltn_http_request *req;
    uint64_t limit, since_ns;
    int severity; /* at least; 0: any */
    bool has_service, has_before;
    char service[LTN_NAME_BYTES];
    char q[TEXT_MAX];
    uint64_t before_ns, before_id;
};

/* ---- parameters ---- */

/* A name of the protocol's six ranges, or a number from 1 to 24. */
static bool parse_severity(const char *text, int *ret)
{
    static const char *const names[] = {"TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL"};
    uint64_t n;
    for (size_t i = 0; i < LTN_ARRAY_SIZE(names); i++)
        if (strcasecmp(text, names[i]) == 0) {
            *ret = (int)(1 + 4 * i);
            return true;
        }
    if (!ltn_parse_u64(text, &n) || n < 1 || n > 24)
        return false;
    *ret = (int)n;
    return true;
}

static bool parse_before(char *text, struct search *s)
{
    char *colon = strchr(text, ':');
    if (colon == NULL)
        return false;
    *colon = '\0';
    s->has_before = true;
    return ltn_parse_u64(text, &s->before_ns) && s->before_ns <= INT64_MAX &&
           ltn_parse_u64(colon + 1, &s->before_id) && s->before_id <= INT64_MAX;
}

/* 1 given, 0 not, -1 given but broken or too long. */
static int get(struct ltn_http_request *req, const char *name, char *out, size_t size)
{
    char with[32];
    if (ltn_http_query_get(req, name, out, size))
        return 1;
    (void)snprintf(with, sizeof(with), "%s=", name);
    for (const char *p = ltn_http_query(req); (p = strstr(p, with)) != NULL; p++)
        if (p == ltn_http_query(req) || p[-1] == '&')
            return -1;
    return 0;
}

/* NULL, or what is wrong. */
static const char *parse(struct ltn_http_request *req, struct search *s)
{
    char text[64];
    int got = get(req, "limit", text, sizeof(text));
    s->limit = LIMIT_DEFAULT;
    if (got < 0 ||
        (got > 0 && (!ltn_parse_u64(text, &s->limit) || s->limit < 1 || s->limit > LIMIT_MAX)))
        return "limit: a number from 1 to 1000";
    if (!ltn_serve_parse_since(req, ltn_now_unix_ns(), &s->since_ns))
        return "since: a duration such as 5m, or Unix time in ns";
    got = get(req, "severity", text, sizeof(text));
    if (got < 0 || (got > 0 && !parse_severity(text, &s->severity)))
        return "severity: TRACE, DEBUG, INFO, WARN, ERROR, FATAL, or a number from 1 to 24";
    got = get(req, "before", text, sizeof(text));
    if (got < 0 || (got > 0 && !parse_before(text, s)))
        return "before: the next of an earlier answer";
    got = get(req, "service", s->service, sizeof(s->service));
    if (got < 0)
        return "service: at most 127 bytes";
    s->has_service = got > 0;
    if (get(req, "q", s->q, sizeof(s->q)) < 0)
        return "q: at most 255 bytes";
    return NULL;
}

/* ---- the statement ---- */

static void put_quoted(struct ltn_buf *b, const char *s, bool pattern)
{
    (void)ltn_buf_puts(b, pattern ? "'%" : "'");
    for (; *s != '\0'; s++) {
        if (pattern && (*s == '%' || *s == '_' || *s == '\\'))
            (void)ltn_buf_putc(b, '\\');
        if (*s == '\'')
            (void)ltn_buf_putc(b, '\'');
        (void)ltn_buf_putc(b, *s);
    }
    (void)ltn_buf_puts(b, pattern ? "%' ESCAPE '\\'" : "'");
}

/* One row more than wanted, to know whether there are more. */
static void put_statement(struct ltn_buf *b, const struct search *s)
{
    (void)ltn_buf_printf(b,
                         "SELECT id, at_ns, received_ns, service, instance, severity,"
                         " severity_number, scope, event, body, body_json, attributes, resource,"
                         " trace_id, span_id, flags, cut FROM logs WHERE at_ns >= %" PRIu64,
                         s->since_ns < INT64_MAX ? s->since_ns : INT64_MAX);
    if (s->has_before)
        (void)ltn_buf_printf(
            b, " AND at_ns <= %" PRIu64 " AND (at_ns < %" PRIu64 " OR id < %" PRIu64 ")",
            s->before_ns, s->before_ns, s->before_id);
    if (s->severity > 0)
        (void)ltn_buf_printf(b, " AND severity_number >= %d", s->severity);
    if (s->has_service) {
        (void)ltn_buf_puts(b, " AND service = ");
        put_quoted(b, s->service, false);
    }
    if (s->q[0] != '\0') {
        (void)ltn_buf_puts(b, " AND (body LIKE ");
        put_quoted(b, s->q, true);
        (void)ltn_buf_puts(b, " OR attributes LIKE ");
        put_quoted(b, s->q, true);
        (void)ltn_buf_putc(b, ')');
    }
    (void)ltn_buf_printf(b, " ORDER BY at_ns DESC, id DESC LIMIT %" PRIu64, s->limit + 1);
}

/* ---- the answer ---- */

enum column {
    C_ID,
    C_AT,
    C_RECEIVED,
    C_SERVICE,
    C_INSTANCE,
    C_SEVERITY,
    C_SEVERITY_NUMBER,
    C_SCOPE,
    C_EVENT,
    C_BODY,
    C_BODY_JSON,
    C_ATTRIBUTES,
    C_RESOURCE,
    C_TRACE,
    C_SPAN,
    C_FLAGS,
    C_CUT,
    COLUMNS
};

struct answer {
    const struct search *s;
    struct ltn_json j;
    uint64_t rows, last_ns, last_id;
    bool more;
};

/* Texts that are not there are null. */
static void put_text(struct ltn_json *j, const char *key, const struct ltn_sql_value *v)
{
    ltn_json_key(j, key);
    if (v->type == LTN_SQL_TEXT && v->n > 0)
        ltn_json_strn(j, v->p, v->n);
    else
        ltn_json_null(j);
}

static void put_object(struct ltn_json *j, const char *key, const struct ltn_sql_value *v)
{
    ltn_json_key(j, key);
    if (v->type == LTN_SQL_TEXT && v->n > 0)
        ltn_json_raw(j, v->p, v->n);
    else
        ltn_json_raw(j, "{}", 2);
}

static void put_body(struct ltn_json *j, const struct ltn_sql_value *v, bool json)
{
    ltn_json_key(j, "body");
    if (v->type != LTN_SQL_TEXT)
        ltn_json_null(j);
    else if (json)
        ltn_json_raw(j, v->p, v->n);
    else
        ltn_json_strn(j, v->p, v->n);
}

static int on_row(void *ctx, const struct ltn_sql_value *v, size_t n)
{
    struct answer *a = ctx;
    struct ltn_json *j = &a->j;
    if (n != COLUMNS)
        return LTN_ERR_INTERNAL;
    if (a->rows == a->s->limit) {
        a->more = true;
        return 0;
    }
    a->rows++;
    a->last_id = (uint64_t)v[C_ID].i;
    a->last_ns = (uint64_t)v[C_AT].i;
    ltn_json_open_object(j);
    ltn_json_kv_i64(j, "id", v[C_ID].i);
    ltn_json_kv_time(j, "at", "at_ns", a->last_ns);
    ltn_json_kv_time(j, "received_at", "received_at_ns", (uint64_t)v[C_RECEIVED].i);
    put_text(j, "service", &v[C_SERVICE]);
    put_text(j, "instance", &v[C_INSTANCE]);
    put_text(j, "severity", &v[C_SEVERITY]);
    ltn_json_kv_i64(j, "severity_number", v[C_SEVERITY_NUMBER].i);
    put_text(j, "scope", &v[C_SCOPE]);
    put_text(j, "event", &v[C_EVENT]);
    put_body(j, &v[C_BODY], v[C_BODY_JSON].i != 0);
    put_object(j, "attributes", &v[C_ATTRIBUTES]);
    put_object(j, "resource", &v[C_RESOURCE]);
    put_text(j, "trace_id", &v[C_TRACE]);
    put_text(j, "span_id", &v[C_SPAN]);
    ltn_json_kv_i64(j, "flags", v[C_FLAGS].i);
    ltn_json_kv_i64(j, "values_cut", v[C_CUT].i);
    ltn_json_close_object(j);
    return 0;
}

static int search(const struct ltn_serve_logs *l, const struct search *s, struct answer *a,
                  struct ltn_errinfo *info)
{
    struct ltn_db *db = NULL;
    struct ltn_buf sql;
    struct ltn_db_query_result result = {0};
    const struct ltn_db_limits limits = {.timeout_ns = l->budget_ns,
                                         .max_rows = s->limit + 1,
                                         .max_bytes = ROW_BYTES,
                                         .cancelled = &l->stop};
    const struct ltn_db_sink sink = {a, NULL, on_row};
    int rc = ltn_db_open_readonly(l->db, &db, info);
    if (rc != 0)
        return rc;
    ltn_buf_init(&sql, SQL_MAX_BYTES);
    put_statement(&sql, s);
    rc = ltn_buf_error(&sql);
    if (rc == 0)
        rc = ltn_db_query(db, ltn_buf_str(&sql), &limits, &sink, &result, info);
    a->more |= result.truncated;
    ltn_buf_done(&sql);
    ltn_db_close(db);
    return rc;
}

static void answer(const struct ltn_serve_logs *l, const struct search *s)
{
    struct ltn_buf b;
    struct ltn_errinfo info = {0, ""};
    struct answer a = {.s = s};
    char next[48];
    ltn_buf_init(&b, MAX_ANSWER_BYTES);
    ltn_json_init(&a.j, &b);
    ltn_json_open_object(&a.j);
    ltn_json_key(&a.j, "logs");
    ltn_json_open_array(&a.j);
    int rc = search(l, s, &a, &info);
    if (rc != 0) {
        ltn_buf_done(&b);
        const char *why = info.msg[0] != '\0' ? info.msg : NULL;
        if (rc == LTN_ERR_TIMEOUT && atomic_load(&l->stop))
            rc = LTN_ERR_CLOSED;
        else if (rc == LTN_ERR_TIMEOUT)
            why = "the search took too long; since, service and severity make it shorter";
        ltn_http_reply_error(s->req, rc, why, RETRY_MS);
        return;
    }
    ltn_json_close_array(&a.j);
    ltn_json_kv_bool(&a.j, "truncated", a.more);
    (void)snprintf(next, sizeof(next), "%" PRIu64 ":%" PRIu64, a.last_ns, a.last_id);
    ltn_json_kv_str(&a.j, "next", a.more && a.rows > 0 ? next : NULL);
    ltn_json_close_object(&a.j);
    ltn_serve_reply_json(s->req, 200, &b);
}

static void *reader_main(void *arg)
{
    struct ltn_serve_logs *l = arg;
    for (;;) {
        struct search *s = ltn_chan_recv_wait(l->asked, 1000);
        if (s == NULL) {
            if (atomic_load(&l->stop))
                return NULL;
            continue;
        }
        if (atomic_load(&l->stop) || ltn_http_gone(s->req))
            ltn_http_reply_error(s->req, LTN_ERR_CLOSED, NULL, RETRY_MS);
        else
            answer(l, s);
        free(s);
    }
}

static void on_logs(void *arg, struct ltn_http_request *req)
{
    static const char *const names[] = {"limit", "since", "service", "severity", "q", "before"};
    struct ltn_serve_logs *l = arg;
    if (!ltn_serve_only_params(req, names, LTN_ARRAY_SIZE(names),
                               "unknown parameter: limit, since, service, severity, q and before "
                               "are known"))
        return;
    struct search *s = calloc(1, sizeof(*s));
    if (s == NULL) {
        ltn_http_reply_error(req, -ENOMEM, NULL, RETRY_MS);
        return;
    }
    s->req = req;
    const char *wrong = parse(req, s);
    int rc = wrong != NULL ? LTN_ERR_MALFORMED : ltn_chan_send(l->asked, s, 1);
    if (rc == 0)
        return;
    ltn_http_reply_error(req, rc, wrong, RETRY_MS);
    free(s);
}

/* ---- life ---- */

static int start(struct ltn_serve_logs *l)
{
    sigset_t all, old;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    int rc = pthread_create(&l->thread, NULL, reader_main, l);
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    return -rc;
}

int ltn_serve_logs_new(const char *db, uint64_t budget_ns, struct ltn_http_server *server,
                       struct ltn_serve_logs **ret)
{
    struct ltn_serve_logs *l = calloc(1, sizeof(*l));
    if (l == NULL)
        return -ENOMEM;
    l->budget_ns = budget_ns;
    l->db = strdup(db);
    l->asked = ltn_chan_new(QUEUE_MAX, QUEUE_MAX);
    int rc = l->db == NULL || l->asked == NULL ? -ENOMEM : start(l);
    if (rc != 0) {
        ltn_chan_free(l->asked, NULL);
        free(l->db);
        free(l);
        return rc;
    }
    const struct ltn_http_route r = {.methods = LTN_HTTP_GET,
                                     .path = "/api/v1/logs",
                                     .flags = LTN_ROUTE_GZIP,
                                     .handle = on_logs,
                                     .arg = l};
    rc = ltn_http_server_route(server, &r);
    if (rc != 0)
        ltn_serve_logs_free(l);
    else
        *ret = l;
    return rc;
}

void ltn_serve_logs_free(struct ltn_serve_logs *l)
{
    if (l == NULL)
        return;
    atomic_store(&l->stop, true);
    ltn_chan_close(l->asked);
    (void)pthread_join(l->thread, NULL);
    ltn_chan_free(l->asked, NULL);
    free(l->db);
    free(l);
}
