/* SPDX-License-Identifier: Apache-2.0 */
/* `lanterne export`: the record as a Perfetto trace, as a profile or as CSV. */
#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/attr.h"
#include "cli/commands.h"
#include "cli/perfetto.h"
#include "cli/pprof.h"
#include "cli/reading.h"
#include "conf/command.h"
#include "serve/rows.h"

#define CSV_BYTES ((size_t)1 << 20)
#define CSV_COLUMNS                                                                                \
    "id, timestamp, timestamp_ns, node, rank, pid, tid, comm, source, op, duration_ns, oncpu_ns, " \
    "runq_ns, blocked_ns, bytes, result, weight, stack_id"

enum format { PERFETTO, PPROF, CSV };
static const char *const format_names[] = {"perfetto", "pprof", "csv", NULL};

struct export_options {
    char *db;
    char *since, *from, *to;
    char *output;
    int format;
};

#define AT(field) offsetof(struct export_options, field)
static const struct ltn_conf_key keys[] = {
    {.key = "db",
     .type = LTN_CONF_STRING,
     .offset = AT(db),
     .arg = "FILE",
     .doc = "The database; by default the user's own, else that of the service."},
    {.key = "format",
     .type = LTN_CONF_ENUM,
     .offset = AT(format),
     .def = "perfetto",
     .names = format_names,
     .flags = LTN_CONF_FLAG_ONLY,
     .doc = "perfetto: Chrome trace JSON for ui.perfetto.dev; pprof: time in calls by stack, for "
            "pprof and its relatives; csv: the view events."},
    {.key = "since",
     .type = LTN_CONF_STRING,
     .offset = AT(since),
     .arg = "5m",
     .flags = LTN_CONF_FLAG_ONLY,
     .doc = "Only this last time; by default all that is kept."},
    {.key = "from",
     .type = LTN_CONF_STRING,
     .offset = AT(from),
     .arg = "TIME",
     .flags = LTN_CONF_FLAG_ONLY,
     .doc = "Only from this moment on (RFC 3339)."},
    {.key = "to",
     .type = LTN_CONF_STRING,
     .offset = AT(to),
     .arg = "TIME",
     .flags = LTN_CONF_FLAG_ONLY,
     .doc = "Only until this moment."},
    {.key = "output",
     .type = LTN_CONF_STRING,
     .offset = AT(output),
     .letter = 'o',
     .arg = "FILE",
     .flags = LTN_CONF_FLAG_ONLY,
     .doc = "Write there, not to standard output."},
};
static const struct ltn_conf_table table = {
    .keys = keys, .n = LTN_ARRAY_SIZE(keys), .env_prefix = "LANTERNE_"};

/* ---- CSV, a row at a time ---- */

struct csv {
    FILE *f;
    struct ltn_rows rows; /* the columns, and one row */
    struct ltn_buf buf;
};

static int csv_columns(void *ctx, const char *const *names, size_t n)
{
    struct csv *c = ctx;
    int rc = ltn_rows_columns(&c->rows, names, n);
    if (rc == 0) {
        ltn_rows_csv(&c->rows, &c->buf);
    }
    return rc == 0 && !ltn_reading_flush(c->f, &c->buf) ? -EIO : rc;
}

static int csv_row(void *ctx, const struct ltn_sql_value *values, size_t n)
{
    struct csv *c = ctx;
    (void)n;
    ltn_rows_csv_row(&c->rows, values, &c->buf);
    return ltn_reading_flush(c->f, &c->buf) ? 0 : -EIO;
}

static int write_csv(struct ltn_record_reader *r, uint64_t from, uint64_t to, FILE *f,
                     struct ltn_errinfo *info)
{
    char sql[512];
    struct csv c = {.f = f};
    struct ltn_db_query_result result;
    const struct ltn_db_limits limits = {
        .timeout_ns = 86400 * LTN_NS_PER_S, .max_rows = UINT64_MAX, .max_bytes = UINT64_MAX};
    const struct ltn_db_sink sink = {.ctx = &c, .on_columns = csv_columns, .on_row = csv_row};
    (void)snprintf(sql, sizeof(sql),
                   "SELECT " CSV_COLUMNS " FROM events WHERE timestamp_ns >= %" PRIu64
                   " AND timestamp_ns < %" PRIu64 " ORDER BY timestamp_ns",
                   from, to);
    ltn_rows_init(&c.rows, CSV_BYTES);
    ltn_buf_init(&c.buf, CSV_BYTES);
    int rc = ltn_record_query(r, sql, &limits, &sink, &result, info);
    ltn_buf_done(&c.buf);
    ltn_rows_done(&c.rows);
    return rc;
}

/* ---- running ---- */

static int write_to(struct ltn_record_reader *r, const struct export_options *o, uint64_t from,
                    uint64_t to, FILE *f)
{
    struct ltn_errinfo info = {0};
    struct ltn_perfetto_result result = {0};
    int rc = o->format == CSV     ? write_csv(r, from, to, f, &info)
             : o->format == PPROF ? ltn_pprof_write(r, from, to, f, &info)
                                  : ltn_perfetto_write(r, from, to, f, &result, &info);
    if (rc == 0 && fflush(f) != 0) {
        rc = ltn_errinfo_set(&info, -errno, "%s", strerror(errno));
    }
    if (rc < 0) {
        (void)fprintf(stderr, "lanterne export: %s\n", info.msg);
        return LTN_EXIT_CANNOT;
    }
    if (o->format == PERFETTO && f != stdout) {
        (void)printf("%s: %" PRIu64 " spans, %" PRIu64 " incidents, %" PRIu64
                     " counter values; open it at https://ui.perfetto.dev\n",
                     o->output, result.spans, result.instants, result.counters);
    }
    if (result.skipped > 0) {
        (void)fprintf(stderr,
                      "lanterne export: %" PRIu64 " calls left out: too many threads; choose a "
                      "shorter time with --since\n",
                      result.skipped);
    }
    return LTN_EXIT_OK;
}

static int run(const struct export_options *o)
{
    uint64_t from;
    uint64_t to;
    int code = 0;
    if (!ltn_reading_times("export", o->since, o->from, o->to, &from, &to)) {
        return LTN_EXIT_USAGE;
    }
    struct ltn_record_reader *r = ltn_reading_open("export", o->db, &code);
    if (r == NULL) {
        return code;
    }
    FILE *f = stdout;
    if (o->output[0] != '\0' && strcmp(o->output, "-") != 0) {
        f = fopen(o->output, "we");
    }
    if (f == NULL) {
        (void)fprintf(stderr, "lanterne export: %s: %s\n", o->output, strerror(errno));
        code = LTN_EXIT_CANNOT;
    } else {
        code = write_to(r, o, from, to, f);
        if (f != stdout && fclose(f) != 0 && code == LTN_EXIT_OK) {
            (void)fprintf(stderr, "lanterne export: %s: %s\n", o->output, strerror(errno));
            code = LTN_EXIT_CANNOT;
        }
    }
    ltn_record_reader_close(r);
    return code;
}

int ltn_cmd_export(int argc, char **argv)
{
    struct export_options o = {0};
    struct ltn_conf_args args = {0};
    int code = ltn_reading_load(
        &table, &o, "export [options]",
        "Writes the record as a trace for the Perfetto UI, as a profile or as CSV.", argc, argv,
        &args);
    if (code < 0) {
        code = ltn_reading_words("export", &args, 0) ? run(&o) : LTN_EXIT_USAGE;
    }
    ltn_conf_args_done(&args);
    ltn_conf_done(&table, &o);
    return code;
}
