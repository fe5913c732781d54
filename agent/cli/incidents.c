/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/incidents.h"

#include <errno.h>

#include "base/clock.h"
#include "base/json.h"

static void on_change(void *ctx, const struct ltn_causal_change *c)
{
    struct ltn_incidents *i = ctx;
    if (i->change != NULL) {
        i->change(i->ctx, c);
    }
    if (i->record == NULL) {
        return;
    }
    const struct ltn_record_incident r = {
        .id = c->id,
        .time_ns = c->time_ns,
        .opened_ns = c->opened_ns,
        .state = c->state,
        .kind = ltn_causal_kind_name(c->kind),
        .severity = ltn_causal_severity_name(c->severity),
        .title = c->title,
        .cause = c->cause,
        .explained_share = c->explained_share,
        .count = c->count,
        .pid = c->pid,
        .proc_start_ns = c->proc_start_ns,
        .evidence = c->evidence,
    };
    if (ltn_record_send_incident(i->record, &r) != 0) {
        i->lost++; /* the record counts it too */
    }
}

int ltn_incidents_init(struct ltn_incidents *i, const struct ltn_agent_options *o)
{
    if (!o->incidents) {
        return 0;
    }
    const struct ltn_causal_opts opts = {
        .node = o->node,
        .excess = o->incident_excess,
        .hang_ns = o->incident_hang_ns,
        .ctx = i,
        .change = on_change,
    };
    i->causal = ltn_causal_new(&opts);
    return i->causal == NULL ? -ENOMEM : 0;
}

void ltn_incidents_done(struct ltn_incidents *i)
{
    if (i->causal != NULL) {
        ltn_causal_end(i->causal, ltn_now_unix_ns());
        ltn_causal_free(i->causal);
        i->causal = NULL;
    }
}

void ltn_incidents_window(struct ltn_incidents *i, const struct ltn_window *w)
{
    if (i->causal != NULL) {
        ltn_causal_window(i->causal, w);
    }
}

void ltn_incidents_calls(struct ltn_incidents *i, const struct ltn_call_batch *batch)
{
    if (i->causal != NULL) {
        ltn_causal_calls(i->causal, batch->calls, batch->count);
    }
}

void ltn_incident_json(struct ltn_buf *out, const struct ltn_causal_change *c, const char *node)
{
    struct ltn_json j;
    ltn_json_init(&j, out);
    ltn_json_open_object(&j);
    ltn_json_kv_str(&j, "incident", c->id);
    ltn_json_kv_time(&j, "opened_at", "opened_at_ns", c->opened_ns);
    ltn_json_kv_str(&j, "node", node);
    ltn_json_kv_str(&j, "state", c->state);
    ltn_json_kv_str(&j, "kind", ltn_causal_kind_name(c->kind));
    ltn_json_kv_str(&j, "severity", ltn_causal_severity_name(c->severity));
    ltn_json_kv_str(&j, "title", c->title);
    ltn_json_kv_str(&j, "root_cause", c->cause[0] != '\0' ? c->cause : NULL);
    if (c->explained_share >= 0) {
        ltn_json_kv_f64(&j, "explained_share", c->explained_share);
    }
    ltn_json_kv_u64(&j, "count", c->count);
    ltn_json_kv_u64(&j, "pid", c->pid);
    ltn_json_close_object(&j);
    (void)ltn_buf_putc(out, '\n');
}
