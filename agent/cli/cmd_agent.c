/* SPDX-License-Identifier: Apache-2.0 */
/* `lanterne agent`: the engine as a service. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "cli/api.h"
#include "cli/commands.h"
#include "cli/health.h"
#include "cli/incidents.h"
#include "cli/options.h"
#include "cli/run.h"
#include "cli/store.h"
#include "conf/command.h"
#include "probe/ops.h"
#include "push/control.h"
#include "push/encode.h"
#include "push/push.h"

#define LAST_WINDOW_WAIT_MS 2000

struct agent_run {
    struct ltn_agent_options o;
    struct ltn_push_encoder *encoder;
    struct ltn_record *record;
    struct ltn_push *push;             /* NULL when nothing is pushed */
    struct ltn_agent_control *control; /* NULL when there is no stream to a collector */
    struct ltn_engine *engine;
    struct ltn_serve *api; /* NULL when there is none */
    struct ltn_incidents incidents;
    struct ltn_health health;
};

static int on_window(void *ctx, struct ltn_window *w)
{
    struct agent_run *a = ctx;
    ltn_incidents_window(&a->incidents, w);
    return ltn_record_send_window(a->record, w);
}

static int on_calls(void *ctx, struct ltn_call_batch *batch)
{
    struct agent_run *a = ctx;
    ltn_incidents_calls(&a->incidents, batch);
    return ltn_record_send_calls(a->record, batch);
}

static int on_stack(void *ctx, const struct ltn_stack *s)
{
    struct agent_run *a = ctx;
    return ltn_record_send_stack(a->record, s);
}

/* Where to push: --collector, or what OTEL_EXPORTER_OTLP_* say. */
static int push_conf(const struct agent_run *a, struct ltn_push_conf *c, struct ltn_errinfo *info)
{
    ltn_push_conf_init(c);
    int rc = ltn_push_conf_env(c, environ, info);
    if (rc == 0 && a->o.collector[0] != '\0') {
        rc = ltn_push_conf_endpoint(c, a->o.collector, info);
    }
    const struct ltn_push_tls_conf tls = {.ca_file = a->o.collector_ca_file,
                                          .cert_file = a->o.collector_cert_file,
                                          .key_file = a->o.collector_key_file,
                                          .server_name = a->o.collector_server_name};
    if (rc == 0) {
        rc = ltn_push_conf_tls(c, &tls, info);
    }
    for (size_t i = 0; rc == 0 && i < c->note_count; i++) {
        ltn_log_warn("%s", c->notes[i]);
    }
    if (rc == 0 && !ltn_copy_str(c->token_file, sizeof(c->token_file), a->o.token_file)) {
        rc = ltn_errinfo_set(info, LTN_ERR_CONFIG, "--token-file: the path is too long");
    }
    if (rc == 0 && c->token_file[0] != '\0') {
        char start[2]; /* also when nothing is pushed yet: it will not be read then either */
        long n = ltn_file_read_head(c->token_file, start, sizeof(start));
        if (n <= 0) {
            rc = ltn_errinfo_set(info, LTN_ERR_CONFIG, "%.150s: %s", c->token_file,
                                 n == 0 ? "no token there" : ltn_err_str((int)n));
        }
    }
    return rc;
}

static int start_push(struct agent_run *a, const struct ltn_push_conf *c, struct ltn_errinfo *info)
{
    int rc = ltn_push_open(c, a->record, &a->push, info);
    if (rc < 0) {
        return rc;
    }
    rc = ltn_push_start(a->push);
    return rc < 0 ? ltn_errinfo_set(info, rc, "cannot start a thread: %s", ltn_err_str(rc)) : 0;
}

/* The stream to the collector. Without one the agent works all the same. */
static void start_control(struct agent_run *a, const struct ltn_push_conf *push)
{
    struct ltn_errinfo info = {0};
    const struct ltn_agent_control_conf conf = {
        .node = a->o.node,
        .cluster = a->o.cluster,
        .instance = ltn_push_encoder_instance(a->encoder),
        .db_path = ltn_record_path(a->record),
    };
    int rc = ltn_agent_control_open(&conf, push, &a->control, &info);
    if (rc == 0) {
        rc = ltn_agent_control_start(a->control);
    }
    if (rc != 0) {
        ltn_log_info("no control stream to the collector: %s",
                     info.msg[0] != '\0' ? info.msg : ltn_err_str(rc));
    }
}

static int start(struct agent_run *a, struct ltn_errinfo *info)
{
    if (!a->o.record) {
        return ltn_errinfo_set(info, LTN_ERR_CONFIG,
                               "--no-record is for trace: the agent's database is also where data "
                               "waits for the collector; --max-db bounds it");
    }
    struct ltn_engine_opts e;
    struct ltn_push_conf push;
    struct ltn_record_encoder encoder;
    int rc = ltn_agent_engine_opts(&a->o, &e, info);
    if (rc == 0) {
        rc = push_conf(a, &push, info);
    }
    if (rc < 0) {
        return rc;
    }
    bool pushes = ltn_push_conf_enabled(&push);
    if (pushes) {
        const struct ltn_push_encoder_conf conf = {.node = a->o.node, .cluster = a->o.cluster};
        rc = ltn_push_encoder_new(&conf, &a->encoder);
        if (rc < 0) {
            return ltn_errinfo_set(info, rc, "out of memory");
        }
        encoder = ltn_push_record_encoder(a->encoder);
    }
    rc = ltn_store_open(&a->o, true, pushes ? &encoder : NULL, &a->record, info);
    if (rc == 0) {
        rc = ltn_api_start(&a->o, LTN_API_DEFAULT, ltn_record_path(a->record), &a->api, info);
    }
    if (rc == 0 && pushes) {
        rc = start_push(a, &push, info);
    }
    if (rc < 0) {
        return rc;
    }
    if (pushes) {
        start_control(a, &push);
    }
    a->incidents.record = a->record;
    rc = ltn_incidents_init(&a->incidents, &a->o);
    if (rc < 0) {
        return ltn_errinfo_set(info, rc, "out of memory");
    }
    e.sink = (struct ltn_capture_sink){.ctx = a, .window = on_window, .calls = on_calls};
    e.stack = on_stack;
    return ltn_engine_start(&e, &a->engine, info);
}

/* The engine's last window should leave with the last push: gives the recorder a moment to store
 * it. */
static void wait_for_last_window(struct agent_run *a)
{
    const struct timespec pause = {.tv_nsec = 20 * (long)LTN_NS_PER_MS};
    struct ltn_record_stats s;
    for (int ms = 0; a->push != NULL && ms < LAST_WINDOW_WAIT_MS; ms += 20) {
        ltn_record_stats(a->record, &s);
        if (s.windows.waiting == 0) {
            return;
        }
        (void)nanosleep(&pause, NULL);
    }
}

static void say_start(const struct agent_run *a)
{
    struct ltn_probes_info p;
    ltn_probes_info(ltn_engine_probes(a->engine), &p);
    ltn_log_info("node %s: tracing with %s links, windows of %.1f s, database %s, collector %s",
                 a->o.node, ltn_link_kind_name(p.kind), (double)a->o.window_ns / 1e9,
                 ltn_record_path(a->record), a->o.collector[0] != '\0' ? a->o.collector : "none");
    const char *note = ltn_probes_note(ltn_engine_probes(a->engine));
    if (note[0] != '\0') {
        ltn_log_warn("not available here: %s", note);
    }
    if (ltn_probes_host_note(ltn_engine_probes(a->engine))[0] != '\0') {
        ltn_log_info("not watched here: %s", ltn_probes_host_note(ltn_engine_probes(a->engine)));
    }
}

static void say_lines(const struct ltn_health_line *lines, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        LTN_LOG(lines[i].level, "%s", lines[i].text);
    }
}

/* The engine's own doubts about what it reads. */
static void say_impossible(struct agent_run *a, const struct ltn_engine_stats *s)
{
    struct ltn_health_line line;
    const struct ltn_op *op = ltn_op_get(s->aggregate.impossible_op);
    if (ltn_health_impossible(&a->health, ltn_now_mono_ns(), s->aggregate.impossible,
                              op != NULL ? op->name : "?", &line)) {
        say_lines(&line, 1);
    }
}

static void say_health(void *arg)
{
    struct agent_run *a = arg;
    struct ltn_push_stats push;
    struct ltn_record_stats record;
    struct ltn_engine_stats engine;
    struct ltn_health_line lines[LTN_HEALTH_LINES];
    ltn_record_stats(a->record, &record);
    if (a->push != NULL) {
        ltn_push_stats(a->push, &push);
    }
    size_t n = ltn_health_look(&a->health, ltn_now_mono_ns(), a->push != NULL ? &push : NULL,
                               &record, lines);
    say_lines(lines, n);
    ltn_engine_stats(a->engine, &engine);
    say_lines(lines, ltn_health_silence(&a->health, ltn_now_mono_ns(), &engine.silence, lines));
    say_impossible(a, &engine);
}

static int run(struct agent_run *a)
{
    struct ltn_errinfo info = {0};
    ltn_run_block_signals();
    int rc = start(a, &info);
    if (rc < 0) {
        ltn_log_error("%s", info.msg);
        return rc == LTN_ERR_CONFIG ? LTN_EXIT_USAGE : LTN_EXIT_CANNOT;
    }
    say_start(a);
    struct ltn_record_stats record;
    ltn_record_stats(a->record, &record);
    a->health.replaced_files = record.replaced_files; /* said at the start */
    ltn_run_until_signal(a->engine, a->o.duration_ns, say_health, a);
    ltn_log_info("stopping");
    return LTN_EXIT_OK;
}

/* Once, at the end: what caps or memory kept from being an incident. */
static void say_lost_incidents(const struct agent_run *a)
{
    if (a->incidents.causal == NULL) {
        return;
    }
    struct ltn_causal_stats s = ltn_causal_stats(a->incidents.causal);
    if (s.suppressed_total + s.refused_total + a->incidents.lost > 0) {
        ltn_log_warn("incidents: %" PRIu64 " opened, %" PRIu64 " kept out by caps, %" PRIu64
                     " refused for memory, %" PRIu64 " changes not recorded",
                     s.opened_total, s.suppressed_total, s.refused_total, a->incidents.lost);
    }
}

/* Once, at the end: what limits kept from being named. */
static void say_lost_stacks(const struct agent_run *a)
{
    struct ltn_engine_stats s;
    if (a->engine == NULL) {
        return;
    }
    ltn_engine_stats(a->engine, &s);
    if (s.symbols.refused_total > 0) {
        ltn_log_info("stacks: %" PRIu64 " named, %" PRIu64 " refused", s.symbols.resolved_total,
                     s.symbols.refused_total);
    }
    if (s.python.unknown_total + s.python.rejected_total > 0) {
        ltn_log_info("Python frames: %" PRIu64 " of unknown code, %" PRIu64 " rejected",
                     s.python.unknown_total, s.python.rejected_total);
    }
}

int ltn_cmd_agent(int argc, char **argv)
{
    struct agent_run a = {0};
    int code = ltn_agent_options_load(
        &a.o, "Records what GPU processes do and pushes it to a collector.", argc, argv);
    if (code < 0) {
        code = run(&a);
    }
    /* In the direction data takes: no more windows, then everything written, then everything sent.
     */
    ltn_agent_control_close(a.control);
    say_lost_stacks(&a);
    ltn_engine_stop(a.engine);
    say_lost_incidents(&a);
    ltn_serve_stop(a.api);
    ltn_incidents_done(&a.incidents);
    wait_for_last_window(&a);
    ltn_push_close(a.push);
    ltn_record_close(a.record);
    ltn_push_encoder_free(a.encoder);
    ltn_conf_done(&ltn_agent_table, &a.o);
    return code;
}
