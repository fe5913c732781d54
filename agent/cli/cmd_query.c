/* SPDX-License-Identifier: Apache-2.0 */
/* `lanterne query`: events by filters, or one SQL statement, on this node or on many. */
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "cli/commands.h"
#include "cli/fanout.h"
#include "cli/query_collector.h"
#include "cli/reading.h"
#include "conf/command.h"
#include "serve/reports.h"
#include "serve/rows.h"

#define OUT_BYTES   ((size_t)512 << 20)
#define ROWS_BYTES  ((size_t)256 << 20)
#define SQL_BYTES   ((size_t)64 << 10)
#define TOKEN_BYTES 1024
#define EVENT_COLUMNS                                                                              \
    "timestamp, node, rank, pid, tid, comm, source, op, duration_ns, oncpu_ns, runq_ns, "          \
    "blocked_ns, bytes, result"

struct query_options {
    char *db;
    char *since, *from, *to;
    struct ltn_conf_strings pids, ops, sources, nodes;
    uint64_t limit;
    uint64_t timeout_ns;
    uint64_t skew_ns;
    char *reduce;
    char *collector;
    char *token_file;
    char *ca_file, *cert_file, *key_file;
    bool json, csv;
};

#define AT(field) offsetof(struct query_options, field)
static const struct ltn_conf_key keys[] = {
    {.key = "db",
     .type = LTN_CONF_STRING,
     .offset = AT(db),
     .arg = "FILE",
     .doc = "The database; by default the user's own, else that of the service."},
    {.key = "since",
     .type = LTN_CONF_STRING,
     .offset = AT(since),
     .arg = "5m",
     .flags = LTN_CONF_FLAG_ONLY,
     .doc = "Events that are not older."},
    {.key = "from",
     .type = LTN_CONF_STRING,
     .offset = AT(from),
     .arg = "TIME",
     .flags = LTN_CONF_FLAG_ONLY,
     .doc = "Events from this moment on (RFC 3339)."},
    {.key = "to",
     .type = LTN_CONF_STRING,
     .offset = AT(to),
     .arg = "TIME",
     .flags = LTN_CONF_FLAG_ONLY,
     .doc = "Events before this moment."},
    {.key = "pid",
     .type = LTN_CONF_STRINGS,
     .offset = AT(pids),
     .letter = 'p',
     .flags = LTN_CONF_FLAG_ONLY,
     .doc = "Only of these processes."},
    {.key = "op",
     .type = LTN_CONF_STRINGS,
     .offset = AT(ops),
     .flags = LTN_CONF_FLAG_ONLY,
     .doc = "Only these operations, such as cudaStreamSynchronize."},
    {.key = "source",
     .type = LTN_CONF_STRINGS,
     .offset = AT(sources),
     .flags = LTN_CONF_FLAG_ONLY,
     .doc = "Only of these sources: cuda, driver, nccl, …"},
    {.key = "limit",
     .type = LTN_CONF_U64,
     .offset = AT(limit),
     .def = "1000",
     .min = 1,
     .max = 1000000,
     .flags = LTN_CONF_FLAG_ONLY,
     .doc = "Most rows (of each node)."},
    {.key = "timeout",
     .type = LTN_CONF_DURATION_NS,
     .offset = AT(timeout_ns),
     .def = "10s",
     .min = 0.001,
     .max = 600,
     .flags = LTN_CONF_FLAG_ONLY,
     .doc = "Longest time of a statement, and of an answer of a node."},
    {.key = "nodes",
     .type = LTN_CONF_STRINGS,
     .offset = AT(nodes),
     .arg = "A:8421,B:8421",
     .flags = LTN_CONF_FLAG_ONLY,
     .doc = "Ask these nodes through their local APIs."},
    {.key = "collector",
     .type = LTN_CONF_STRING,
     .offset = AT(collector),
     .arg = "URL",
     .flags = LTN_CONF_FLAG_ONLY,
     .doc = "Ask all nodes by way of the collector (http://HOST:8420); --nodes then holds names."},
    {.key = "reduce",
     .type = LTN_CONF_STRING,
     .offset = AT(reduce),
     .arg = "SQL",
     .flags = LTN_CONF_FLAG_ONLY,
     .doc = "Second statement, over the joined rows in the table fleet."},
    {.key = "clock_skew_threshold",
     .type = LTN_CONF_DURATION_NS,
     .offset = AT(skew_ns),
     .def = "10ms",
     .flags = LTN_CONF_FLAG_ONLY,
     .doc = "Warn when a node's clock is off by more than this."},
    {.key = "api_token_file",
     .type = LTN_CONF_STRING,
     .offset = AT(token_file),
     .arg = "FILE",
     .doc = "File with the bearer token of the nodes' APIs, or of the collector's."},
    {.key = "ca_file",
     .type = LTN_CONF_STRING,
     .offset = AT(ca_file),
     .arg = "FILE",
     .flags = LTN_CONF_FLAG_ONLY,
     .doc = "Certificates that https:// addresses are checked against instead of the system's."},
    {.key = "cert_file",
     .type = LTN_CONF_STRING,
     .offset = AT(cert_file),
     .arg = "FILE",
     .flags = LTN_CONF_FLAG_ONLY,
     .doc = "Certificate to show there, PEM."},
    {.key = "key_file",
     .type = LTN_CONF_STRING,
     .offset = AT(key_file),
     .arg = "FILE",
     .flags = LTN_CONF_FLAG_ONLY,
     .doc = "Its key; in the certificate's file when not given."},
    {.key = "json",
     .type = LTN_CONF_BOOL,
     .offset = AT(json),
     .def = "false",
     .flags = LTN_CONF_FLAG_ONLY,
     .doc = "Print one JSON object."},
    {.key = "csv",
     .type = LTN_CONF_BOOL,
     .offset = AT(csv),
     .def = "false",
     .flags = LTN_CONF_FLAG_ONLY,
     .doc = "Print CSV."},
};
static const struct ltn_conf_table table = {
    .keys = keys, .n = LTN_ARRAY_SIZE(keys), .env_prefix = "LANTERNE_"};

/* ---- filters ---- */

static void put_text(struct ltn_buf *b, const char *s)
{
    (void)ltn_buf_putc(b, '\'');
    for (; *s != '\0'; s++) {
        if (*s == '\'') {
            (void)ltn_buf_putc(b, '\'');
        }
        (void)ltn_buf_putc(b, *s);
    }
    (void)ltn_buf_putc(b, '\'');
}

static void put_list(struct ltn_buf *b, const char *column, const struct ltn_conf_strings *list)
{
    if (list->n == 0) {
        return;
    }
    (void)ltn_buf_printf(b, " AND %s IN (", column);
    for (size_t i = 0; i < list->n; i++) {
        (void)ltn_buf_puts(b, i > 0 ? "," : "");
        put_text(b, list->items[i]);
    }
    (void)ltn_buf_puts(b, ")");
}

/* The statement that the filters mean. False after a message. */
static bool filters_to_sql(const struct query_options *o, struct ltn_buf *b)
{
    uint64_t from;
    uint64_t to;
    uint64_t pid;
    if (!ltn_reading_times("query", o->since, o->from, o->to, &from, &to)) {
        return false;
    }
    (void)ltn_buf_printf(b,
                         "SELECT " EVENT_COLUMNS " FROM events WHERE timestamp_ns >= %" PRIu64
                         " AND timestamp_ns < %" PRIu64,
                         from, to);
    for (size_t i = 0; i < o->pids.n; i++) {
        if (!ltn_parse_u64(o->pids.items[i], &pid) || pid > INT_MAX) {
            (void)fprintf(stderr, "lanterne query: --pid: '%s' is no process id\n",
                          o->pids.items[i]);
            return false;
        }
        (void)ltn_buf_printf(b, "%s%" PRIu64, i == 0 ? " AND pid IN (" : ",", pid);
    }
    (void)ltn_buf_puts(b, o->pids.n > 0 ? ")" : "");
    put_list(b, "op", &o->ops);
    put_list(b, "source", &o->sources);
    (void)ltn_buf_printf(b, " ORDER BY timestamp_ns DESC LIMIT %" PRIu64, o->limit);
    return true;
}

static bool has_filters(const struct query_options *o)
{
    return o->since[0] != '\0' || o->from[0] != '\0' || o->to[0] != '\0' || o->pids.n > 0 ||
           o->ops.n > 0 || o->sources.n > 0;
}

/* ---- output ---- */

static void node_json(struct ltn_json *j, const struct ltn_fanout_node *n)
{
    ltn_json_open_object(j);
    ltn_json_kv_str(j, "address", n->address);
    ltn_json_kv_str(j, "node", n->answered ? n->node : NULL);
    ltn_json_kv_bool(j, "answered", n->answered);
    ltn_json_kv_str(j, "error", n->answered ? NULL : n->error);
    ltn_json_kv_u64(j, "row_count", n->answered ? n->row_count : 0);
    ltn_json_kv_bool(j, "truncated", n->truncated);
    ltn_json_kv_f64(j, "clock_skew_ns", n->clock_known ? n->skew_ns : (double)NAN);
    ltn_json_kv_f64(j, "clock_uncertainty_ns", n->clock_known ? n->uncertainty_ns : (double)NAN);
    ltn_json_close_object(j);
}

static bool print_rows(const struct query_options *o, const struct ltn_rows *rows,
                       const struct ltn_fanout_node *nodes, size_t n)
{
    struct ltn_buf out;
    struct ltn_json j;
    ltn_buf_init(&out, OUT_BYTES);
    if (o->csv) {
        ltn_rows_csv(rows, &out);
    } else if (o->json) {
        ltn_json_init(&j, &out);
        ltn_json_open_object(&j);
        ltn_rows_json(rows, &j);
        if (nodes != NULL) {
            ltn_json_key(&j, "nodes");
            ltn_json_open_array(&j);
            for (size_t i = 0; i < n; i++) {
                node_json(&j, &nodes[i]);
            }
            ltn_json_close_array(&j);
        }
        ltn_json_close_object(&j);
        (void)ltn_buf_putc(&out, '\n');
    } else {
        ltn_rows_table(rows, &out);
    }
    bool ok = ltn_reading_flush(stdout, &out) && fflush(stdout) == 0;
    ltn_buf_done(&out);
    if (rows->truncated) {
        (void)fprintf(stderr, "lanterne query: there are more rows; raise --limit\n");
    }
    return ok;
}

/* Says what is wrong with nodes; true when something is. */
static bool warn_nodes(const struct query_options *o, const struct ltn_fanout_node *nodes, size_t n)
{
    bool partial = false;
    for (size_t i = 0; i < n; i++) {
        const struct ltn_fanout_node *x = &nodes[i];
        if (!x->answered) {
            (void)fprintf(stderr, "lanterne query: warning: %s did not answer: %s\n", x->address,
                          x->error);
            partial = true;
        } else if (x->clock_known && fabs(x->skew_ns) - x->uncertainty_ns > (double)o->skew_ns) {
            (void)fprintf(stderr,
                          "lanterne query: warning: the clock of %s is off by %+.1f ms (+-%.1f "
                          "ms); times of different nodes do not compare\n",
                          x->node, x->skew_ns / 1e6, x->uncertainty_ns / 1e6);
        }
    }
    return partial;
}

/* ---- running ---- */

static int fail(int rc, const struct ltn_errinfo *info)
{
    (void)fprintf(stderr, "lanterne query: %s\n", info->msg);
    return ltn_reading_exit_code(rc);
}

static int reduce_and_print(const struct query_options *o, const struct ltn_rows *rows,
                            const struct ltn_fanout_node *nodes, size_t n)
{
    const struct ltn_db_limits limits = {.timeout_ns = o->timeout_ns, .max_rows = o->limit};
    struct ltn_errinfo info = {0};
    struct ltn_rows reduced;
    if (o->reduce[0] == '\0') {
        return print_rows(o, rows, nodes, n) ? LTN_EXIT_OK : LTN_EXIT_CANNOT;
    }
    ltn_rows_init(&reduced, ROWS_BYTES);
    int rc = ltn_fanout_reduce(rows, o->reduce, &limits, &reduced, &info);
    int code = rc < 0                              ? fail(rc, &info)
               : print_rows(o, &reduced, nodes, n) ? LTN_EXIT_OK
                                                   : LTN_EXIT_CANNOT;
    ltn_rows_done(&reduced);
    return code;
}

static const char *or_null(const char *text)
{
    return text[0] != '\0' ? text : NULL;
}

static int run_nodes(const struct query_options *o, const char *sql)
{
    char token[TOKEN_BYTES] = "";
    struct ltn_errinfo info = {0};
    struct ltn_fanout_node *nodes = NULL;
    int rc = 0;
    if (o->token_file[0] != '\0') {
        rc = ltn_conf_read_secret(o->token_file, token, sizeof(token), &info);
    }
    const struct ltn_fanout_opts opts = {.nodes = (const char *const *)o->nodes.items,
                                         .node_count = o->nodes.n,
                                         .sql = sql,
                                         .token = token,
                                         .ca_file = or_null(o->ca_file),
                                         .cert_file = or_null(o->cert_file),
                                         .key_file = or_null(o->key_file),
                                         .limit = o->limit,
                                         .timeout_ns = o->timeout_ns};
    if (rc == 0) {
        rc = ltn_fanout_run(&opts, &nodes, &info);
    }
    explicit_bzero(token, sizeof(token));
    if (rc < 0) {
        return fail(rc, &info);
    }
    struct ltn_rows rows;
    ltn_rows_init(&rows, ROWS_BYTES);
    rc = ltn_fanout_join(nodes, o->nodes.n, &rows);
    bool partial = warn_nodes(o, nodes, o->nodes.n);
    int code;
    if (rc < 0) {
        (void)ltn_errinfo_set(&info, rc, "the rows of all nodes together: %s", ltn_err_str(rc));
        code = fail(rc, &info);
    } else if (rows.column_count == 0) {
        (void)fprintf(stderr, "lanterne query: no node answered\n");
        code = LTN_EXIT_CANNOT;
    } else {
        code = reduce_and_print(o, &rows, nodes, o->nodes.n);
        code = code == LTN_EXIT_OK && partial ? LTN_EXIT_FINDING : code;
    }
    ltn_rows_done(&rows);
    ltn_fanout_free(nodes, o->nodes.n);
    return code;
}

static int run_collector(const struct query_options *o, const char *sql)
{
    char token[TOKEN_BYTES] = "";
    struct ltn_errinfo info = {0};
    if (o->token_file[0] != '\0') {
        int rc = ltn_conf_read_secret(o->token_file, token, sizeof(token), &info);
        if (rc < 0) {
            return fail(rc, &info);
        }
    }
    const struct ltn_query_collector q = {
        .url = o->collector,
        .token = token,
        .ca_file = or_null(o->ca_file),
        .cert_file = or_null(o->cert_file),
        .key_file = or_null(o->key_file),
        .sql = sql,
        .reduce = o->reduce[0] != '\0' ? o->reduce : NULL,
        .nodes = o->nodes.n > 0 ? (const char *const *)o->nodes.items : NULL,
        .node_count = o->nodes.n,
        .limit = o->limit,
        .timeout_ns = o->timeout_ns,
        .format = o->json  ? LTN_QUERY_JSON
                  : o->csv ? LTN_QUERY_CSV
                           : LTN_QUERY_TABLE,
    };
    int code = ltn_query_collector(&q, stdout, stderr);
    explicit_bzero(token, sizeof(token));
    return code;
}

static int run_here(const struct query_options *o, const char *sql)
{
    const struct ltn_db_limits limits = {
        .timeout_ns = o->timeout_ns, .max_rows = o->limit, .max_bytes = ROWS_BYTES / 2};
    struct ltn_errinfo info = {0};
    struct ltn_rows rows;
    int code = 0;
    struct ltn_record_reader *r = ltn_reading_open("query", o->db, &code);
    if (r == NULL) {
        return code;
    }
    ltn_rows_init(&rows, ROWS_BYTES);
    int rc = ltn_rows_query(&rows, ltn_record_reader_db(r), sql, &limits, &info);
    code = rc < 0 ? fail(rc, &info) : reduce_and_print(o, &rows, NULL, 0);
    ltn_rows_done(&rows);
    ltn_record_reader_close(r);
    return code;
}

static int run(const struct query_options *o, const struct ltn_conf_args *args)
{
    struct ltn_buf sql;
    if (!ltn_reading_words("query", args, 1)) {
        return LTN_EXIT_USAGE;
    }
    if (args->word_count == 1 && has_filters(o)) {
        (void)fprintf(stderr, "lanterne query: filters and a statement exclude each other\n");
        return LTN_EXIT_USAGE;
    }
    if (o->json && o->csv) {
        (void)fprintf(stderr, "lanterne query: --json and --csv exclude each other\n");
        return LTN_EXIT_USAGE;
    }
    ltn_buf_init(&sql, SQL_BYTES);
    bool ok = args->word_count == 1 || filters_to_sql(o, &sql);
    if (args->word_count == 1) {
        (void)ltn_buf_puts(&sql, args->words[0]);
    }
    int code = LTN_EXIT_USAGE;
    if (ok && ltn_buf_error(&sql) != 0) {
        (void)fprintf(stderr, "lanterne query: the statement is too long\n");
    } else if (ok) {
        code = o->collector[0] != '\0' ? run_collector(o, ltn_buf_str(&sql))
               : o->nodes.n > 0        ? run_nodes(o, ltn_buf_str(&sql))
                                       : run_here(o, ltn_buf_str(&sql));
    }
    ltn_buf_done(&sql);
    return code;
}

int ltn_cmd_query(int argc, char **argv)
{
    struct query_options o = {0};
    struct ltn_conf_args args = {0};
    int code = ltn_reading_load(
        &table, &o, "query [options] [SQL]",
        "Recorded calls by filters, newest first, or one statement that only reads "
        "(docs/sql.md).\nExit code 1: some of the nodes did not answer.",
        argc, argv, &args);
    if (code < 0) {
        code = run(&o, &args);
    }
    ltn_conf_args_done(&args);
    ltn_conf_done(&table, &o);
    return code;
}
