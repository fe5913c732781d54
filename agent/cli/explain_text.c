/* SPDX-License-Identifier: Apache-2.0 */
/* The report for people. */
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/attr.h"
#include "base/clock.h"
#include "base/text.h"
#include "cli/explain.h"
#include "cli/table.h"

#define BOLD           "\033[1m"
#define RED            "\033[31m"
#define YELLOW         "\033[33m"
#define RESET          "\033[0m"
#define WIDTH          80
#define EVIDENCE_LINES 16
#define RANKS_SHOWN    8
/* Growth of self time worth a sentence, and a share of it spent waiting for a CPU. */
#define GROWTH_NOTABLE 1.10
#define QUEUE_NOTABLE  0.05

static void clock_text(uint64_t unix_ns, char out[LTN_RFC3339_BYTES])
{
    char full[LTN_RFC3339_BYTES];
    ltn_format_rfc3339(unix_ns, full);
    (void)snprintf(out, LTN_RFC3339_BYTES, "%.12s", full + 11);
}

/* Text of the record for people: the database may hold anything. */
static void put_clean(struct ltn_buf *out, const char *s)
{
    char text[512];
    ltn_text_clean(text, sizeof(text), s, strlen(s));
    (void)ltn_buf_puts(out, text);
}

/* A paragraph wrapped at WIDTH, its lines after the first behind indent spaces. */
static void put_wrapped(struct ltn_buf *out, const char *head, const char *s, int indent)
{
    char text[1024];
    ltn_text_clean(text, sizeof(text), s, strlen(s));
    (void)ltn_buf_printf(out, "%-*s", indent, head);
    size_t at = (size_t)indent;
    const char *p = text;
    while (*p != '\0') {
        size_t n = strcspn(p, " ");
        if (at > (size_t)indent && at + 1 + n > WIDTH) {
            (void)ltn_buf_printf(out, "\n%*s", indent, "");
            at = (size_t)indent;
        } else if (at > (size_t)indent) {
            (void)ltn_buf_putc(out, ' ');
            at++;
        }
        (void)ltn_buf_append(out, p, n);
        at += n;
        p += n;
        p += strspn(p, " ");
    }
    (void)ltn_buf_putc(out, '\n');
}

static void put_heading(const struct ltn_explain *e, struct ltn_buf *out, const char *text)
{
    (void)ltn_buf_printf(out, "\n%s%s%s\n", e->o.colour ? BOLD : "", text,
                         e->o.colour ? RESET : "");
}

/* ---- evidence ---- */

static bool is_ns(const char *key)
{
    size_t n = strlen(key);
    return n > 3 && strcmp(key + n - 3, "_ns") == 0;
}

/* A number as a duration where its name says so. Returns false for what is no scalar. */
static bool put_scalar(struct ltn_buf *out, const json_t *v, bool duration)
{
    if (json_is_number(v) && duration) {
        double ns = json_number_value(v);
        (void)ltn_buf_puts(out, ns < 0 ? "-" : "");
        ltn_table_duration(out, fabs(ns));
    } else if (json_is_integer(v)) {
        (void)ltn_buf_printf(out, "%lld", (long long)json_integer_value(v));
    } else if (json_is_real(v)) {
        (void)ltn_buf_printf(out, "%.3g", json_real_value(v));
    } else if (json_is_string(v)) {
        put_clean(out, json_string_value(v));
    } else if (json_is_boolean(v)) {
        (void)ltn_buf_puts(out, json_is_true(v) ? "yes" : "no");
    } else {
        return false;
    }
    return true;
}

/* One object on one line: "on_cpu 17ms, run_queue 118ms". */
static void put_members(struct ltn_buf *line, const json_t *object, bool duration)
{
    const char *key;
    const json_t *v;
    bool first = true;
    /* The library's macro casts constness away from what it only reads. */
    void *it = json_object_iter((json_t *)(uintptr_t)object);
    for (; it != NULL; it = json_object_iter_next((json_t *)(uintptr_t)object, it)) {
        key = json_object_iter_key(it);
        v = json_object_iter_value(it);
        if (json_is_object(v) || json_is_array(v) || json_is_null(v)) {
            continue;
        }
        (void)ltn_buf_printf(line, "%s", first ? "" : ", ");
        put_clean(line, key);
        (void)ltn_buf_putc(line, ' ');
        (void)put_scalar(line, v, duration || is_ns(key));
        first = false;
    }
}

static void put_evidence_value(struct ltn_buf *line, const char *key, const json_t *v)
{
    if (json_is_object(v)) {
        put_members(line, v, is_ns(key));
    } else if (json_is_array(v)) {
        for (size_t i = 0; i < json_array_size(v) && i < 4; i++) {
            const json_t *item = json_array_get(v, i);
            (void)ltn_buf_puts(line, i > 0 ? "; " : "");
            if (json_is_object(item)) {
                put_members(line, item, is_ns(key));
            } else {
                (void)put_scalar(line, item, is_ns(key));
            }
        }
    } else {
        (void)put_scalar(line, v, is_ns(key));
    }
}

/* A moment stands twice, as text and in ns: the text is enough. */
static bool is_moment(const json_t *root, const char *key)
{
    char base[64];
    size_t n = strlen(key);
    if (!is_ns(key) || n - 3 >= sizeof(base)) {
        return false;
    }
    (void)snprintf(base, sizeof(base), "%.*s", (int)(n - 3), key);
    return json_is_string(json_object_get(root, base)) &&
           json_number_value(json_object_get(root, key)) > 1e18;
}

static void put_evidence(struct ltn_buf *out, const char *text)
{
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    int lines = 0;
    for (void *it = json_object_iter(root); it != NULL && lines < EVIDENCE_LINES;
         it = json_object_iter_next(root, it)) {
        struct ltn_buf line;
        char head[40];
        const char *key = json_object_iter_key(it);
        if (is_moment(root, key)) {
            continue;
        }
        ltn_buf_init(&line, 16384);
        put_evidence_value(&line, key, json_object_iter_value(it));
        ltn_text_clean(head, 28, key, strlen(key));
        size_t n = strlen(head);
        if (n > 3 && strcmp(head + n - 3, "_ns") == 0) {
            head[n - 3] = '\0';
            if (json_object_get(root, head) != NULL) {
                (void)snprintf(head + n - 3, sizeof(head) - n + 3, " time");
            }
        }
        (void)snprintf(head + strlen(head), sizeof(head) - strlen(head), " ");
        char padded[48];
        (void)snprintf(padded, sizeof(padded), "    %s", head);
        if (line.len > 0) {
            put_wrapped(out, padded, ltn_buf_str(&line), 26);
            lines++;
        }
        ltn_buf_done(&line);
    }
    json_decref(root);
}

/* ---- incidents ---- */

static const char *severity_colour(const char *severity)
{
    return strcmp(severity, "CRITICAL") == 0 || strcmp(severity, "HIGH") == 0 ? RED : YELLOW;
}

static void put_times(struct ltn_buf *out, const struct ltn_rows *r, size_t i)
{
    char opened[LTN_RFC3339_BYTES];
    char changed[LTN_RFC3339_BYTES];
    bool closed = strcmp(ltn_rows_text(r, i, "state"), "closed") == 0;
    uint64_t from = (uint64_t)ltn_rows_i64(r, i, "opened_at_ns");
    uint64_t to = (uint64_t)ltn_rows_i64(r, i, "changed_at_ns");
    clock_text(from, opened);
    clock_text(to, changed);
    (void)ltn_buf_printf(out, "  when      %.8s opened, %.8s %s", opened, changed,
                         closed ? "closed" : "last seen, still open");
    (void)ltn_buf_puts(out, " (");
    ltn_table_duration(out, to > from ? (double)(to - from) : 0);
    (void)ltn_buf_printf(out, ", %" PRId64 " times)\n", ltn_rows_i64(r, i, "count"));
}

static void put_who(struct ltn_buf *out, const struct ltn_rows *r, size_t i)
{
    (void)ltn_buf_puts(out, "  where     node ");
    put_clean(out, ltn_rows_text(r, i, "node"));
    if (ltn_rows_cell(r, i, "pid")->type == LTN_SQL_I64) {
        (void)ltn_buf_puts(out, ", process ");
        put_clean(out, ltn_rows_text(r, i, "comm"));
        (void)ltn_buf_printf(out, "[%" PRId64 "]", ltn_rows_i64(r, i, "pid"));
    }
    const struct ltn_sql_value *rank = ltn_rows_cell(r, i, "rank");
    if (rank->type == LTN_SQL_I64 && rank->i >= 0) {
        (void)ltn_buf_printf(out, ", rank %" PRId64, rank->i);
    }
    (void)ltn_buf_putc(out, '\n');
}

static void put_incident(const struct ltn_explain *e, struct ltn_buf *out, size_t i)
{
    const struct ltn_rows *r = &e->incidents;
    const char *severity = ltn_rows_text(r, i, "severity");
    const char *cause = ltn_rows_text(r, i, "root_cause");
    char head[64];
    (void)snprintf(head, sizeof(head), "[%.12s] ", severity);
    (void)ltn_buf_printf(out, "\n%s", e->o.colour ? severity_colour(severity) : "");
    put_wrapped(out, head, ltn_rows_text(r, i, "title"), (int)strlen(head));
    (void)ltn_buf_puts(out, e->o.colour ? RESET : "");
    put_times(out, r, i);
    put_who(out, r, i);
    const struct ltn_sql_value *share = ltn_rows_cell(r, i, "explained_share");
    char text[256];
    if (cause[0] == '\0') {
        (void)snprintf(text, sizeof(text), "unexplained: no measured part explains enough");
    } else if (share->type != LTN_SQL_NULL && share->f >= 0) {
        (void)snprintf(text, sizeof(text), "%.200s, explains %.0f %% of the loss", cause,
                       100.0 * share->f);
    } else {
        (void)snprintf(text, sizeof(text), "%.200s", cause);
    }
    put_wrapped(out, "  cause     ", text, 12);
    if (ltn_rows_text(r, i, "evidence")[0] == '{') {
        (void)ltn_buf_puts(out, "  measured\n");
        put_evidence(out, ltn_rows_text(r, i, "evidence"));
    }
    ltn_explain_stacks_text(e, ltn_rows_text(r, i, "id"), out);
    put_wrapped(out, "  fix       ", ltn_explain_advice(ltn_rows_text(r, i, "kind")), 12);
}

/* ---- windows ---- */

static void put_column(struct ltn_buf *out, const struct ltn_rows *r, size_t i, const char *name)
{
    struct ltn_buf text;
    ltn_buf_init(&text, 64);
    if (ltn_rows_cell(r, i, name)->type == LTN_SQL_NULL) {
        (void)ltn_buf_putc(&text, '-');
    } else {
        ltn_table_duration(&text, ltn_rows_number(r, i, name));
    }
    (void)ltn_buf_printf(out, " %8s", ltn_buf_str(&text));
    ltn_buf_done(&text);
}

static void put_ops(const struct ltn_explain *e, struct ltn_buf *out)
{
    const struct ltn_rows *r = &e->ops;
    if (r->row_count == 0) {
        return;
    }
    put_heading(e, out, "Operations, the newest quarter of the time against before");
    (void)ltn_buf_printf(out, "%-24s %9s %8s %8s %8s %8s %8s\n", "op", "calls", "p50 was",
                         "p50 now", "p95 now", "max", "total");
    for (size_t i = 0; i < r->row_count; i++) {
        char op[32];
        const char *name = ltn_rows_text(r, i, "op");
        ltn_text_clean(op, 25, name, strlen(name));
        (void)ltn_buf_printf(out, "%-24s %9" PRId64, op, ltn_rows_i64(r, i, "count"));
        put_column(out, r, i, "usual_p50_ns");
        put_column(out, r, i, "recent_p50_ns");
        put_column(out, r, i, "recent_p95_ns");
        put_column(out, r, i, "max_ns");
        put_column(out, r, i, "total_ns");
        int64_t errors = ltn_rows_i64(r, i, "errors");
        if (errors > 0) {
            (void)ltn_buf_printf(out, "  %" PRId64 " failed", errors);
        }
        (void)ltn_buf_putc(out, '\n');
    }
}

/* The part of self time that grew most. */
static const char *grown_part(const struct ltn_rows *r, size_t i, double *ret_ns)
{
    static const struct {
        const char *column;
        const char *words;
    } parts[] = {
        {"on_cpu_grew_ns", "time on the CPU"},
        {"run_queue_grew_ns", "waiting for a CPU"},
        {"device_grew_ns", "waiting for the device"},
        {"futex_grew_ns", "waiting for a lock"},
        {"read_grew_ns", "blocked in read"},
        {"write_grew_ns", "blocked in write"},
        {"poll_grew_ns", "blocked in poll"},
        {"sleep_grew_ns", "sleeping"},
        {"disk_grew_ns", "waiting for the disk"},
        {"child_grew_ns", "waiting for a child"},
        {"fault_grew_ns", "page faults"},
        {"other_grew_ns", "blocked otherwise"},
    };
    const char *words = "";
    *ret_ns = 0;
    for (size_t k = 0; k < LTN_ARRAY_SIZE(parts); k++) {
        double ns = ltn_rows_number(r, i, parts[k].column);
        if (ns > *ret_ns) {
            *ret_ns = ns;
            words = parts[k].words;
        }
    }
    return words;
}

static void put_ranks(const struct ltn_explain *e, struct ltn_buf *out)
{
    const struct ltn_rows *r = &e->ranks;
    if (r->row_count == 0) {
        return;
    }
    put_heading(e, out, "Ranks, the later half of the time against the earlier");
    (void)ltn_buf_printf(out, "%8s %5s %8s %8s %8s %8s  %s\n", "pid", "rank", "step was",
                         "step now", "self was", "self now", "what grew");
    for (size_t i = 0; i < r->row_count && i < RANKS_SHOWN; i++) {
        double grown_ns;
        double was = ltn_rows_number(r, i, "earlier_self_ns");
        double now = ltn_rows_number(r, i, "later_self_ns");
        const char *words = grown_part(r, i, &grown_ns);
        (void)ltn_buf_printf(out, "%8" PRId64 " %5" PRId64, ltn_rows_i64(r, i, "pid"),
                             ltn_rows_i64(r, i, "rank"));
        put_column(out, r, i, "earlier_step_ns");
        put_column(out, r, i, "later_step_ns");
        put_column(out, r, i, "earlier_self_ns");
        put_column(out, r, i, "later_self_ns");
        if (was > 0 && now > was * GROWTH_NOTABLE && words[0] != '\0') {
            (void)ltn_buf_printf(out, "  %s +", words);
            ltn_table_duration(out, grown_ns);
        } else if (now > 0) {
            (void)ltn_buf_puts(out, "  steady");
        }
        (void)ltn_buf_putc(out, '\n');
    }
    if (r->row_count > RANKS_SHOWN) {
        (void)ltn_buf_printf(out, "  … and %zu more; --json has all\n", r->row_count - RANKS_SHOWN);
    }
}

static void put_preemptors(const struct ltn_explain *e, struct ltn_buf *out)
{
    const struct ltn_rows *r = &e->preemptors;
    if (r->row_count == 0) {
        return;
    }
    put_heading(e, out, "Who held the CPU that ranks waited for");
    (void)ltn_buf_printf(out, "%-18s %8s %9s %8s %8s\n", "process", "pid", "waited", "times",
                         "victims");
    for (size_t i = 0; i < r->row_count; i++) {
        char comm[20];
        const char *name = ltn_rows_text(r, i, "comm");
        ltn_text_clean(comm, 19, name, strlen(name));
        (void)ltn_buf_printf(out, "%-18s %8" PRId64 " ", comm, ltn_rows_i64(r, i, "by_pid"));
        put_column(out, r, i, "waited_ns");
        (void)ltn_buf_printf(out, " %8" PRId64 " %8" PRId64 "\n", ltn_rows_i64(r, i, "times"),
                             ltn_rows_i64(r, i, "victims"));
    }
}

static void put_processes(const struct ltn_explain *e, struct ltn_buf *out)
{
    const struct ltn_rows *r = &e->processes;
    put_heading(e, out, "Processes");
    (void)ltn_buf_printf(out, "%8s %-16s %5s %9s %8s %8s %8s %s\n", "pid", "command", "rank",
                         "calls", "in calls", "self", "CPU wait", "failed");
    for (size_t i = 0; i < r->row_count; i++) {
        char comm[20];
        const char *name = ltn_rows_text(r, i, "comm");
        ltn_text_clean(comm, 17, name, strlen(name));
        char rank[16] = "-";
        if (ltn_rows_cell(r, i, "rank")->type == LTN_SQL_I64) {
            (void)snprintf(rank, sizeof(rank), "%" PRId64, ltn_rows_i64(r, i, "rank"));
        }
        (void)ltn_buf_printf(out, "%8" PRId64 " %-16s %5s %9" PRId64, ltn_rows_i64(r, i, "pid"),
                             comm, rank, ltn_rows_i64(r, i, "calls"));
        put_column(out, r, i, "in_calls_ns");
        put_column(out, r, i, "self_ns");
        put_column(out, r, i, "run_queue_ns");
        (void)ltn_buf_printf(out, " %" PRId64 "\n", ltn_rows_i64(r, i, "errors"));
    }
    for (size_t i = 0; i < r->row_count; i++) {
        double self = ltn_rows_number(r, i, "self_ns");
        double queued = ltn_rows_number(r, i, "run_queue_ns");
        if (self <= 0 || queued < QUEUE_NOTABLE * self) {
            continue;
        }
        (void)ltn_buf_printf(out,
                             "%swarning%s: CPU contention: process %" PRId64
                             " waited for a CPU during %.0f %% of its own time",
                             e->o.colour ? YELLOW : "", e->o.colour ? RESET : "",
                             ltn_rows_i64(r, i, "pid"), 100.0 * queued / self);
        if (ltn_rows_text(r, i, "held_by")[0] != '\0') {
            (void)ltn_buf_puts(out, ", most behind ");
            put_clean(out, ltn_rows_text(r, i, "held_by"));
        }
        (void)ltn_buf_putc(out, '\n');
    }
}

static void put_sharing(const struct ltn_explain *e, struct ltn_buf *out)
{
    const struct ltn_rows *r = &e->sharing;
    for (size_t i = 0; i < r->row_count; i++) {
        char line[512];
        (void)snprintf(line, sizeof(line), "%.60s is used by %" PRId64 " processes: %.300s",
                       ltn_rows_text(r, i, "gpu"), ltn_rows_i64(r, i, "users"),
                       ltn_rows_text(r, i, "who"));
        if (i == 0) {
            put_heading(e, out, "GPUs that processes share");
        }
        put_wrapped(out, "", line, 2);
    }
}

/* ---- the whole ---- */

static void put_span(const struct ltn_explain *e, struct ltn_buf *out)
{
    char first[LTN_RFC3339_BYTES];
    char last[LTN_RFC3339_BYTES];
    const struct ltn_rows *r = &e->span;
    (void)ltn_buf_puts(out, "node ");
    put_clean(out, ltn_rows_text(r, 0, "node"));
    if (ltn_rows_i64(r, 0, "windows") == 0) {
        (void)ltn_buf_puts(out, ": no window in this time\n");
        return;
    }
    ltn_format_rfc3339((uint64_t)ltn_rows_i64(r, 0, "first_ns"), first);
    ltn_format_rfc3339((uint64_t)ltn_rows_i64(r, 0, "last_ns"), last);
    (void)ltn_buf_printf(out, ": %.19sZ to %.8s, %" PRId64 " windows, %" PRId64 " processes\n",
                         first, last + 11, ltn_rows_i64(r, 0, "windows"),
                         ltn_rows_i64(r, 0, "processes"));
}

void ltn_explain_text(const struct ltn_explain *e, struct ltn_buf *out)
{
    if (e->span.row_count > 0) {
        put_span(e, out);
    }
    for (size_t i = 0; i < e->incidents.row_count; i++) {
        put_incident(e, out, i);
    }
    if (e->incidents.row_count == 0) {
        (void)ltn_buf_puts(out, "No incident was recorded in this time.\n");
    }
    if (!e->o.chains) {
        put_ops(e, out);
        put_ranks(e, out);
        put_preemptors(e, out);
        put_sharing(e, out);
    }
    if (e->o.per_process) {
        put_processes(e, out);
    }
}
