/* SPDX-License-Identifier: Apache-2.0 */
/* `lanterne trace`: a live table, or one JSON object for each recorded call. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/chan.h"
#include "base/clock.h"
#include "base/file.h"
#include "cli/api.h"
#include "cli/call_json.h"
#include "cli/commands.h"
#include "cli/health.h"
#include "cli/incidents.h"
#include "cli/options.h"
#include "cli/run.h"
#include "cli/store.h"
#include "cli/table.h"
#include "conf/command.h"
#include "symbol/cache.h"

#define TEXT_MAX_BYTES (4U * 1024 * 1024)
#define TEXTS_WAITING  64
#define SHOWN_BYTES    1024
#define LINES_MAX      (64U * 1024)
#define STACKS_BYTES   (16U * 1024 * 1024)
#define CLEAR_SCREEN   "\033[H\033[2J"

struct trace {
    struct ltn_agent_options o;
    struct ltn_record *record; /* NULL with --no-record */
    struct ltn_serve *api;     /* NULL when there is none */
    struct ltn_chan *texts;    /* struct ltn_buf *, made by the aggregate thread, printed by main */
    bool colour;
    uint64_t lost_texts;
    struct ltn_stack_cache *stacks; /* with --json: what the lines show of them */
    struct ltn_incidents incidents;
    struct ltn_buf opened; /* lines of the incidents that opened in the running window */
    struct ltn_buf shown;  /* those before, on a screen that is cleared */
    struct ltn_engine *engine;
    struct ltn_health health;
};

static void free_text(void *arg)
{
    struct ltn_buf *b = arg;
    ltn_buf_done(b);
    free(b);
}

static struct ltn_buf *new_text(void)
{
    struct ltn_buf *b = malloc(sizeof(*b));
    if (b != NULL) {
        ltn_buf_init(b, TEXT_MAX_BYTES);
    }
    return b;
}

static void send_text(struct trace *t, struct ltn_buf *b)
{
    if (ltn_chan_send(t->texts, b, b->len) != 0) {
        t->lost_texts++;
        free_text(b);
    }
}

/* One line (or object) as an incident opens. */
static void on_incident(void *ctx, const struct ltn_causal_change *c)
{
    struct trace *t = ctx;
    char at[LTN_RFC3339_BYTES];
    if (strcmp(c->state, "open") != 0) {
        return;
    }
    if (t->o.json) {
        ltn_incident_json(&t->opened, c, t->o.node);
        return;
    }
    ltn_format_rfc3339(c->opened_ns, at);
    (void)ltn_buf_printf(&t->opened, "%.8s %-8s %s", at + 11, ltn_causal_severity_name(c->severity),
                         c->title);
    if (c->cause[0] != '\0' && c->explained_share >= 0) {
        (void)ltn_buf_printf(&t->opened, " [%.0f %% explained]", c->explained_share * 100.0);
    }
    (void)ltn_buf_putc(&t->opened, '\n');
}

/* Incidents below the table. A screen that is cleared shows the latest ones again. */
static void add_incidents(struct trace *t, struct ltn_buf *out)
{
    if (t->colour) {
        (void)ltn_buf_append(&t->shown, ltn_buf_str(&t->opened), t->opened.len);
        while (t->shown.len > SHOWN_BYTES) {
            const char *text = ltn_buf_str(&t->shown);
            const char *end = strchr(text, '\n');
            ltn_buf_consume(&t->shown, end != NULL ? (size_t)(end - text) + 1 : t->shown.len);
        }
    }
    const struct ltn_buf *lines = t->colour ? &t->shown : &t->opened;
    if (lines->len > 0) {
        (void)ltn_buf_puts(out, t->o.json ? "" : "\nIncidents\n");
        (void)ltn_buf_append(out, ltn_buf_str(lines), lines->len);
    }
    ltn_buf_reset(&t->opened);
}

/* The sink's functions run on the aggregate thread: they make text and hand the data on. */
static int on_window(void *ctx, struct ltn_window *w)
{
    struct trace *t = ctx;
    ltn_incidents_window(&t->incidents, w);
    struct ltn_buf *b = t->o.json && t->opened.len == 0 ? NULL : new_text();
    if (b != NULL) {
        if (!t->o.json) {
            ltn_table_window(b, w, t->o.node, t->colour);
        }
        add_incidents(t, b);
        send_text(t, b);
    }
    if (t->record == NULL) {
        ltn_window_free(w);
        return 0;
    }
    return ltn_record_send_window(t->record, w);
}

static int on_calls(void *ctx, struct ltn_call_batch *batch)
{
    struct trace *t = ctx;
    ltn_incidents_calls(&t->incidents, batch);
    struct ltn_buf *b = t->o.json ? new_text() : NULL;
    if (b != NULL) {
        for (size_t i = 0; i < batch->count; i++) {
            const struct ltn_call *c = &batch->calls[i];
            const struct ltn_stack *stack =
                c->stack_id != 0 ? ltn_stack_cache_get(t->stacks, c->stack_id) : NULL;
            ltn_call_json(b, c, t->o.node, stack);
            ltn_stack_unref(stack);
        }
        send_text(t, b);
    }
    if (t->record == NULL) {
        free(batch);
        return 0;
    }
    return ltn_record_send_calls(t->record, batch);
}

/* Resolve thread. */
static int on_stack(void *ctx, const struct ltn_stack *s)
{
    struct trace *t = ctx;
    if (t->stacks != NULL) {
        ltn_stack_cache_put(t->stacks, s);
    }
    return t->record != NULL ? ltn_record_send_stack(t->record, s) : 0;
}

static void print_texts(void *arg)
{
    struct trace *t = arg;
    struct ltn_buf *b;
    while ((b = ltn_chan_recv(t->texts)) != NULL) {
        if (t->colour) {
            (void)fputs(CLEAR_SCREEN, stdout);
        }
        (void)fwrite(ltn_buf_str(b), 1, b->len, stdout);
        (void)fflush(stdout);
        free_text(b);
    }
}

/* Each second, on the main thread. */
static void tick(void *arg)
{
    struct trace *t = arg;
    struct ltn_engine_stats s;
    struct ltn_health_line lines[LTN_HEALTH_LINES];
    print_texts(t);
    ltn_engine_stats(t->engine, &s);
    size_t n = ltn_health_silence(&t->health, ltn_now_mono_ns(), &s.silence, lines);
    for (size_t i = 0; i < n; i++) {
        (void)fprintf(stderr, "%s\n", lines[i].text);
    }
}

static int start(struct trace *t, struct ltn_engine **ret, struct ltn_errinfo *info)
{
    struct ltn_engine_opts e;
    int rc = ltn_agent_engine_opts(&t->o, &e, info);
    if (rc < 0) {
        return rc;
    }
    struct ltn_invoker who;
    ltn_invoker_find(&who);
    bool nothing_said = e.scope.pid_count == 0 && !e.scope.by_uid && t->o.cgroup[0] == '\0';
    if (nothing_said && who.sudo) {
        e.scope.by_uid = true;
        e.scope.uid = who.uid;
    }
    if (t->o.record) {
        rc = ltn_store_open(&t->o, false, NULL, &t->record, info);
        if (rc < 0) {
            return rc;
        }
        rc = ltn_api_start(&t->o, NULL, ltn_record_path(t->record), &t->api, info);
        if (rc < 0) {
            return rc;
        }
    }
    if (t->o.json) {
        t->stacks = ltn_stack_cache_new(STACKS_BYTES);
        if (t->stacks == NULL) {
            return ltn_errinfo_set(info, -ENOMEM, "out of memory");
        }
    }
    ltn_buf_init(&t->opened, LINES_MAX);
    ltn_buf_init(&t->shown, LINES_MAX);
    t->incidents.record = t->record;
    t->incidents.ctx = t;
    t->incidents.change = on_incident;
    rc = ltn_incidents_init(&t->incidents, &t->o);
    if (rc < 0) {
        return ltn_errinfo_set(info, rc, "out of memory");
    }
    e.sink = (struct ltn_capture_sink){.ctx = t, .window = on_window, .calls = on_calls};
    e.stack = t->o.json || t->record != NULL ? on_stack : NULL;
    return ltn_engine_start(&e, ret, info);
}

static void say_what_runs(const struct trace *t, const struct ltn_engine *e)
{
    struct ltn_probes_info info;
    ltn_probes_info(ltn_engine_probes(e), &info);
    (void)fprintf(stderr, "tracing with %s links, %zu functions in %zu files; %s\n",
                  ltn_link_kind_name(info.kind), info.functions, info.files,
                  t->record != NULL ? ltn_record_path(t->record) : "not recorded");
    if (ltn_probes_note(ltn_engine_probes(e))[0] != '\0') {
        (void)fprintf(stderr, "not available here: %s\n", ltn_probes_note(ltn_engine_probes(e)));
    }
    if (ltn_probes_host_note(ltn_engine_probes(e))[0] != '\0') {
        (void)fprintf(stderr, "not watched here: %s\n", ltn_probes_host_note(ltn_engine_probes(e)));
    }
}

static void say_losses(const struct trace *t, struct ltn_engine *e)
{
    struct ltn_engine_stats s;
    ltn_engine_stats(e, &s);
    (void)fprintf(stderr,
                  "%" PRIu64 " windows, %" PRIu64 " records; lost: %" PRIu64 " records, %" PRIu64
                  " windows, %" PRIu64 " tables\n",
                  s.aggregate.windows_total, s.drain.read_total, s.drain.dropped_total,
                  s.aggregate.windows_dropped, t->lost_texts);
    (void)fprintf(stderr,
                  "%" PRIu64 " stacks named; %" PRIu64 " of processes that were gone, %" PRIu64
                  " refused, %" PRIu64 " asked for again\n",
                  s.symbols.resolved_total, s.symbols.empty_total, s.symbols.refused_total,
                  s.aggregate.stacks_asked);
    if (s.python.added_total > 0) {
        (void)fprintf(stderr,
                      "%" PRIu64 " Python functions; frames of unknown code: %" PRIu64
                      ", rejected: %" PRIu64 "\n",
                      s.python.added_total, s.python.unknown_total, s.python.rejected_total);
    }
}

static int run(struct trace *t)
{
    struct ltn_errinfo info = {0};
    struct ltn_engine *e = NULL;
    t->colour = isatty(STDOUT_FILENO) == 1 && getenv("NO_COLOR") == NULL && !t->o.json;
    t->texts = ltn_chan_new(TEXTS_WAITING, (size_t)TEXTS_WAITING * TEXT_MAX_BYTES);
    ltn_run_block_signals();
    int rc = t->texts == NULL ? ltn_errinfo_set(&info, LTN_ERR_INTERNAL, "out of memory")
                              : start(t, &e, &info);
    if (rc < 0) {
        (void)fprintf(stderr, "lanterne trace: %s\n", info.msg);
        return rc == LTN_ERR_CONFIG ? LTN_EXIT_USAGE : LTN_EXIT_CANNOT;
    }
    say_what_runs(t, e);
    t->engine = e;
    ltn_run_until_signal(e, t->o.duration_ns, tick, t);
    if (t->o.verbose) {
        say_losses(t, e);
    }
    ltn_engine_stop(e);
    print_texts(t);
    return LTN_EXIT_OK;
}

int ltn_cmd_trace(int argc, char **argv)
{
    struct trace t = {0};
    int code = ltn_agent_options_load(
        &t.o,
        "Watches GPU calls live and records them. Without --pid, --user and "
        "--cgroup: of every process; under\nsudo: of the processes of the user who called it.",
        argc, argv);
    if (code < 0) {
        code = run(&t);
    }
    ltn_serve_stop(t.api);
    ltn_incidents_done(&t.incidents);
    ltn_buf_done(&t.opened);
    ltn_buf_done(&t.shown);
    ltn_record_close(t.record);
    ltn_chan_free(t.texts, free_text);
    ltn_stack_cache_free(t.stacks);
    ltn_conf_done(&ltn_agent_table, &t.o);
    return code;
}
