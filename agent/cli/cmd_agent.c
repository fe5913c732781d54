/* SPDX-License-Identifier: Apache-2.0 */
/* `lanterne agent`: the engine as a service. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/run.h"
#include "cli/store.h"
#include "conf/command.h"
#include "push/encode.h"

struct agent_run {
    struct ltn_agent_options o;
    struct ltn_push_encoder *encoder;
    struct ltn_record *record;
    struct ltn_engine *engine;
};

static int on_window(void *ctx, struct ltn_window *w)
{
    struct agent_run *a = ctx;
    return ltn_record_send_window(a->record, w);
}

static int on_calls(void *ctx, struct ltn_call_batch *batch)
{
    struct agent_run *a = ctx;
    return ltn_record_send_calls(a->record, batch);
}

static int start(struct agent_run *a, struct ltn_errinfo *info)
{
    struct ltn_engine_opts e;
    int rc = ltn_agent_engine_opts(&a->o, &e, info);
    if (rc < 0) {
        return rc;
    }
    bool push = a->o.collector[0] != '\0';
    struct ltn_record_encoder encoder;
    if (push) {
        const struct ltn_push_encoder_conf conf = {.node = a->o.node, .cluster = a->o.cluster};
        rc = ltn_push_encoder_new(&conf, &a->encoder);
        if (rc < 0) {
            return ltn_errinfo_set(info, rc, "out of memory");
        }
        encoder = ltn_push_record_encoder(a->encoder);
    }
    rc = ltn_store_open(&a->o, true, push ? &encoder : NULL, &a->record, info);
    if (rc < 0) {
        return rc;
    }
    e.sink = (struct ltn_capture_sink){.ctx = a, .window = on_window, .calls = on_calls};
    return ltn_engine_start(&e, &a->engine, info);
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
    ltn_run_until_signal(a->engine, a->o.duration_ns, NULL, NULL);
    ltn_log_info("stopping");
    return LTN_EXIT_OK;
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
    ltn_engine_stop(a.engine);
    ltn_record_close(a.record);
    ltn_push_encoder_free(a.encoder);
    ltn_conf_done(&ltn_agent_table, &a.o);
    return code;
}
