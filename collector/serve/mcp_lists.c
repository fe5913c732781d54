/* SPDX-License-Identifier: Apache-2.0 */
/* Tools that list: jobs, verdicts, incidents, nodes. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/text.h"
#include "serve/mcp_internal.h"

#define OBJECT_MAX_BYTES ((size_t)4 << 20)

/* ---- what the tools share ---- */

struct ltn_json *ltn_serve_mcp_write(struct ltn_serve_mcp_object *o)
{
    ltn_buf_init(&o->buf, OBJECT_MAX_BYTES);
    ltn_json_init(&o->json, &o->buf);
    return &o->json;
}

/* Moments come twice, as text and as "_ns"; a model needs the text, and many JSON readers round the
 * number. */
static void drop_twins(json_t *o)
{
    const char *key;
    void *next;
    json_t *v;
    char text[64];
    json_object_foreach_safe(o, next, key, v)
    {
        size_t n = strlen(key);
        if (n <= 3 || n >= sizeof(text) || strcmp(key + n - 3, "_ns") != 0)
            continue;
        (void)snprintf(text, sizeof(text), "%.*s", (int)n - 3, key);
        if (json_object_get(o, text) != NULL)
            (void)json_object_del(o, key);
    }
}

json_t *ltn_serve_mcp_read(struct ltn_serve_mcp_object *o)
{
    json_error_t e;
    json_t *v = NULL;
    if (ltn_buf_error(&o->buf) == 0)
        v = json_loadb(ltn_buf_str(&o->buf), o->buf.len, 0, &e);
    drop_twins(v);
    drop_twins(json_object_get(v, "worst_incident"));
    ltn_buf_done(&o->buf);
    return v;
}

const struct ltn_fleet_job *ltn_serve_mcp_job(const struct ltn_serve *s, struct ltn_mcp_call *call)
{
    const char *name = json_string_value(json_object_get(call->args, "job"));
    const struct ltn_fleet_job *job = ltn_map_get_str(&s->fleet->jobs, name);
    if (job == NULL)
        (void)ltn_mcp_fail(call, LTN_ERR_NOT_FOUND,
                           "no job \"%.127s\" is known here; list_jobs gives the names", name);
    return job;
}

static const char *text_arg(const struct ltn_mcp_call *call, const char *name)
{
    return json_string_value(json_object_get(call->args, name));
}

/* Unix ns of "since"; fallback when it is not given. */
static int since_arg(struct ltn_mcp_call *call, uint64_t fallback, uint64_t *ret)
{
    uint64_t ago, now = ltn_now_unix_ns();
    const char *text = text_arg(call, "since");
    *ret = fallback;
    if (text == NULL)
        return 0;
    if (!ltn_parse_duration_ns(text, &ago))
        return ltn_mcp_fail(call, LTN_ERR_MALFORMED, "since: a duration such as 90s, 5m, 2h");
    *ret = now > ago ? now - ago : 0;
    return 0;
}

/* Adds what was written as a row. */
static void add_row(struct ltn_mcp_table *t, struct ltn_serve_mcp_object *o)
{
    json_t *v = ltn_serve_mcp_read(o);
    ltn_mcp_table_object(t, v);
    json_decref(v);
}

static int finish(struct ltn_mcp_call *call, struct ltn_mcp_table *t)
{
    call->result = ltn_mcp_table_finish(t);
    return call->result != NULL ? 0 : -ENOMEM;
}

/* ---- list_jobs ---- */

static const struct ltn_mcp_column job_columns[] = {
    {"job", "job", NULL, true},
    {"run", "running", "sent a window lately", false},
    {"w", "world_size", "ranks it has, by its own account", false},
    {"n", "ranks_count", "ranks seen", false},
    {"cov", "coverage", "seen over world size", false},
    {"step", "step_time_ns", "median of a step, ns", false},
    {"open", "stragglers_open", NULL, false},
    {"lost", "gpu_hours_lost", "GPU-hours lost to stragglers", false},
    {"seen", "last_seen", "UTC", false},
};

static int by_loss(const void *a, const void *b)
{
    const struct ltn_fleet_job *const *x = a, *const *y = b;
    if ((*x)->gpu_hours_lost != (*y)->gpu_hours_lost)
        return (*x)->gpu_hours_lost > (*y)->gpu_hours_lost ? -1 : 1;
    return strcmp((*x)->key, (*y)->key);
}

static bool has_open(const struct ltn_serve *s, const struct ltn_fleet_job *job)
{
    size_t pos = 0;
    for (const struct ltn_fleet_verdict *o; (o = ltn_map_next(&s->fleet->open, &pos)) != NULL;)
        if (strcmp(o->v.job, job->key) == 0)
            return true;
    return false;
}

int ltn_serve_tool_list_jobs(void *arg, struct ltn_mcp_call *call)
{
    const struct ltn_serve *s = arg;
    struct ltn_mcp_table t;
    struct ltn_serve_mcp_object o;
    size_t n = 0;
    const struct ltn_job_query brief = {0}; /* without its ranks */
    bool affected = json_is_true(json_object_get(call->args, "only_affected"));
    int rc = ltn_mcp_table_begin(&t, call, job_columns, LTN_ARRAY_SIZE(job_columns));
    if (rc != 0)
        return rc;
    void **jobs = ltn_serve_sorted(&s->fleet->jobs, by_loss, &n);
    for (size_t i = 0; i < n && !t.truncated; i++) {
        if ((affected && !has_open(s, jobs[i])) || !ltn_mcp_table_wants(&t))
            continue;
        ltn_serve_job(ltn_serve_mcp_write(&o), s, jobs[i], &brief, ltn_now_unix_ns());
        add_row(&t, &o);
    }
    free(jobs);
    return finish(call, &t);
}

/* ---- get_stragglers ---- */

static const struct ltn_mcp_column straggler_columns[] = {
    {"job", "job", NULL, true},
    {"r", "rank", NULL, false},
    {"node", "node", NULL, false},
    {"st", "state", "open or closed", false},
    {"eff", "effect_pct", "slower than the reference, percent", false},
    {"c", "cause", "unattributed: none explains 80 %", false},
    {"why", "cause_detail", NULL, true},
    {"x", "explained_share", "share of the excess that the cause explains, 0 to 1", false},
    {"n", "peers", "ranks compared with", false},
    {"self", "self_time_ns", "per step, ns", false},
    {"med", "peer_median_ns", "self time of the peers, ns", false},
    {"imp", "impact_share", "share of the job's step that goes to it", false},
    {"lost", "gpu_hours_lost", NULL, false},
    {"m", "method", NULL, false},
    {"since", "since", "first window in which it showed, UTC", false},
    {"cl", "closed_at", "UTC", false},
    {"cr", "close_reason", NULL, false},
};

static int by_impact(const void *a, const void *b)
{
    const struct ltn_fleet_verdict *const *x = a, *const *y = b;
    if ((*x)->v.impact_share != (*y)->v.impact_share)
        return (*x)->v.impact_share > (*y)->v.impact_share ? -1 : 1;
    int c = strcmp((*x)->v.job, (*y)->v.job);
    return c != 0 ? c : strcmp((*x)->v.key, (*y)->v.key);
}

static void add_verdict(struct ltn_mcp_table *t, const struct ltn_fleet_verdict *o, const char *job)
{
    struct ltn_serve_mcp_object w;
    if ((job != NULL && strcmp(job, o->v.job) != 0) || !ltn_mcp_table_wants(t))
        return;
    ltn_serve_verdict(ltn_serve_mcp_write(&w), &o->v);
    add_row(t, &w);
}

int ltn_serve_tool_stragglers(void *arg, struct ltn_mcp_call *call)
{
    const struct ltn_serve *s = arg;
    struct ltn_mcp_table t;
    size_t n = 0;
    uint64_t since;
    const char *job = text_arg(call, "job");
    const struct ltn_fleet_verdict *closed;
    int rc = since_arg(call, UINT64_MAX, &since);
    if (rc == 0)
        rc = ltn_mcp_table_begin(&t, call, straggler_columns, LTN_ARRAY_SIZE(straggler_columns));
    if (rc != 0)
        return rc;
    void **open = ltn_serve_sorted(&s->fleet->open, by_impact, &n);
    for (size_t i = 0; i < n; i++)
        add_verdict(&t, open[i], job);
    free(open);
    for (size_t i = 0; (closed = ltn_fleet_closed(s->fleet, i)) != NULL; i++)
        if (closed->v.closed_at_ns >= since)
            add_verdict(&t, closed, job);
    return finish(call, &t);
}

/* ---- get_incidents ---- */

static const struct ltn_mcp_column incident_columns[] = {
    {"at", "opened_at", "UTC", false},
    {"st", "state", "open or closed", false},
    {"sev", "severity", NULL, false},
    {"k", "kind", NULL, false},
    {"t", "title", "what was slow", true},
    {"c", "cause", "null: none is proven", false},
    {"x", "explained_share", "share of the excess that the cause explains, 0 to 1", false},
    {"n", "count", "times it was seen", false},
    {"job", "job", NULL, true},
    {"r", "rank", NULL, false},
    {"node", "node", NULL, false},
    {"pid", "pid", NULL, false},
    {"id", "id", NULL, false},
    {"ev", "evidence", "what was measured", true},
};

static int newest_first(const void *a, const void *b)
{
    const struct ltn_fleet_incident *const *x = a, *const *y = b;
    if ((*x)->last_change_ns != (*y)->last_change_ns)
        return (*x)->last_change_ns > (*y)->last_change_ns ? -1 : 1;
    int c = strcmp((*x)->node, (*y)->node);
    return c != 0 ? c : strcmp((*x)->id, (*y)->id);
}

static void add_incident(struct ltn_mcp_table *t, const struct ltn_fleet_incident *i)
{
    struct ltn_serve_mcp_object w;
    json_t *evidence = NULL;
    ltn_serve_incident(ltn_serve_mcp_write(&w), i);
    json_t *o = ltn_serve_mcp_read(&w);
    if (i->evidence != NULL && ltn_mcp_read(i->evidence, strlen(i->evidence), &evidence) == 0)
        (void)json_object_set_new(o, "evidence", evidence);
    ltn_mcp_table_object(t, o);
    json_decref(o);
}

int ltn_serve_tool_incidents(void *arg, struct ltn_mcp_call *call)
{
    const struct ltn_serve *s = arg;
    struct ltn_mcp_table t;
    size_t n = 0;
    uint64_t since;
    const char *node = text_arg(call, "node"), *severity = text_arg(call, "severity");
    const char *state = text_arg(call, "state");
    int rc = since_arg(call, 0, &since);
    if (rc == 0)
        rc = ltn_mcp_table_begin(&t, call, incident_columns, LTN_ARRAY_SIZE(incident_columns));
    if (rc != 0)
        return rc;
    void **all = ltn_serve_sorted(&s->fleet->incidents, newest_first, &n);
    for (size_t k = 0; k < n && !t.truncated; k++) {
        const struct ltn_fleet_incident *i = all[k];
        bool closed = i->closed_at_ns != 0;
        if ((closed && i->last_change_ns < since) || (node != NULL && strcmp(node, i->node) != 0) ||
            (severity != NULL && strcasecmp(severity, i->severity) != 0) ||
            (state != NULL && closed != (strcmp(state, "closed") == 0)))
            continue;
        if (ltn_mcp_table_wants(&t))
            add_incident(&t, i);
    }
    free(all);
    return finish(call, &t);
}

/* ---- get_fleet_health ---- */

static const struct ltn_mcp_column node_columns[] = {
    {"node", "node", NULL, false},
    {"up", "up", "heard of within three windows", false},
    {"seen", "last_seen", "UTC", false},
    {"miss", "windows_missing", "windows that never came", false},
    {"drop", "records_dropped", "records lost on the node, by all reasons", false},
    {"off", "clock_offset_ns", "its clock minus the collector's, lower bound, ns", false},
    {"gpu", "gpus_count", NULL, false},
    {"pr", "processes_count", NULL, false},
    {"v", "version", "of the agent", false},
};

static uint64_t dropped(const struct ltn_fleet_node *n)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < n->drop_count; i++)
        sum += n->drops[i].count;
    return sum;
}

static void add_node(struct ltn_mcp_table *t, const struct ltn_serve *s,
                     const struct ltn_fleet_node *n)
{
    struct ltn_serve_mcp_object w;
    ltn_serve_node(ltn_serve_mcp_write(&w), s, n, false, ltn_now_unix_ns());
    json_t *o = ltn_serve_mcp_read(&w);
    const json_t *agent = json_object_get(o, "agent");
    (void)json_object_set(o, "windows_missing", json_object_get(agent, "windows_missing"));
    (void)json_object_set(o, "version", json_object_get(agent, "version"));
    (void)json_object_set_new(o, "records_dropped", json_integer((json_int_t)dropped(n)));
    ltn_mcp_table_object(t, o);
    json_decref(o);
}

int ltn_serve_tool_fleet_health(void *arg, struct ltn_mcp_call *call)
{
    const struct ltn_serve *s = arg;
    struct ltn_mcp_table t;
    struct ltn_serve_mcp_object w;
    size_t n = 0;
    uint64_t now = ltn_now_unix_ns();
    bool all = json_is_true(json_object_get(call->args, "all"));
    int rc = ltn_mcp_table_begin(&t, call, node_columns, LTN_ARRAY_SIZE(node_columns));
    if (rc != 0)
        return rc;
    void **nodes = ltn_serve_sorted(&s->fleet->nodes, ltn_serve_by_node_name, &n);
    for (size_t i = 0; i < n && !t.truncated; i++) {
        const struct ltn_fleet_node *node = nodes[i];
        bool well = ltn_fleet_node_up(s->fleet, node, now) && node->gaps == 0 &&
                    dropped(node) == 0 && node->clock_offset_ns == 0;
        if ((all || !well) && ltn_mcp_table_wants(&t))
            add_node(&t, s, node);
    }
    free(nodes);
    struct ltn_json *j = ltn_serve_mcp_write(&w);
    ltn_json_open_object(j);
    ltn_serve_overview(j, s, now);
    ltn_json_close_object(j);
    json_t *overview = ltn_serve_mcp_read(&w);
    rc = finish(call, &t);
    (void)json_object_set_new(call->result, "overview", overview);
    return rc;
}
