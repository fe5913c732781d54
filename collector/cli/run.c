/* SPDX-License-Identifier: Apache-2.0 */
/* The service: everything made, wired, run and taken down again in order. */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "access/access.h"
#include "alert/alert.h"
#include "base/clock.h"
#include "base/log.h"
#include "cli/cli.h"
#include "cli/descriptors.h"
#include "cli/watch.h"
#include "conf/command.h"
#include "fleet/fleet.h"
#include "http/library.h"
#include "http/server.h"
#include "ingest/ingest.h"
#include "io/loop.h"
#include "prom/hist_state.h"
#include "prom/series.h"
#include "query/query.h"
#include "serve/logs.h"
#include "serve/mcp.h"
#include "serve/serve.h"
#include "store/store.h"

#define TICK_NS         (LTN_NS_PER_S / 2)
#define EXPIRE_EVERY_NS (30 * LTN_NS_PER_S)
#define DRAIN_NS        (5 * LTN_NS_PER_S)
#define API_BUDGET      ((size_t)64 << 20) /* readers are served whatever clients push */

#define OTLP_RESPONSE_BYTES ((size_t)4 << 20)
#define QUEUE_ITEMS         65536
#define POLL_EVERY_NS       (2 * LTN_NS_PER_S)
#define WORKERS_MAX         4

struct service {
    const struct ltn_collector_conf *conf;
    struct ltn_loop *loop;
    struct ltn_store *store;
    struct ltn_fleet *fleet;
    struct ltn_alerts *alerts; /* NULL without a target */
    struct ltn_series *series;
    struct ltn_collector_watch watch;
    struct ltn_http_budget *budget, *api_budget;
    struct ltn_http_server *otlp, *api;
    struct ltn_ingest *ingest;
    struct ltn_query_hub *hub;
    struct ltn_serve serve;
    struct ltn_serve_mcp *mcp;
    struct ltn_serve_logs *logs;
    struct ltn_timer tick;
    uint64_t expired_ns;
    struct ltn_access *access;
    uint64_t polled_ns;
    int drained;
    bool stopping;
};

/* ---- events ---- */

static void on_verdict(void *ctx, enum ltn_straggler_change change, bool notable,
                       const struct ltn_straggler_verdict *v)
{
    struct service *s = ctx;
    if (!notable)
        return;
    ltn_alerts_verdict(s->alerts, change, v, ltn_now_unix_ns());
    const char *what =
        change == LTN_VERDICT_OPENED
            ? "straggler"
            : (change == LTN_VERDICT_CLOSED ? "straggler gone" : "straggler changed");
    ltn_log_info("%s: rank %d on %s, job %s: %+.1f %% against %u peers, cause %s "
                 "(explains %.2f): %s",
                 what, (int)v->rank, v->node, v->job, v->effect_pct, v->peers, v->cause,
                 v->explained_share, v->cause_detail);
    if (s->hub != NULL)
        ltn_query_hub_verdict(s->hub, v);
    if (s->store != NULL && ltn_store_verdict(s->store, change, v) != 0)
        ltn_log_error("verdict not kept: too many wait for the database");
}

static void on_window_length(void *ctx, const char *node, uint64_t agent_window_ns)
{
    const struct service *s = ctx;
    ltn_log_warn("%s: its agent's windows are %.3g s long, the collector's %.3g s; give both the "
                 "same window",
                 node, (double)agent_window_ns / 1e9, (double)s->fleet->opts.window_ns / 1e9);
}

static void on_tick(void *arg)
{
    struct service *s = arg;
    uint64_t now = ltn_now_unix_ns();
    ltn_fleet_tick(s->fleet, now);
    ltn_alerts_sync(s->alerts, s->fleet, now);
    if (ltn_now_mono_ns() - s->expired_ns >= EXPIRE_EVERY_NS) {
        s->expired_ns = ltn_now_mono_ns();
        ltn_series_expire(s->series, ltn_now_mono_ns());
    }
    ltn_collector_watch_look(&s->watch, ltn_now_mono_ns());
    if (now - s->polled_ns >= POLL_EVERY_NS) {
        s->polled_ns = now;
        ltn_access_poll(s->access);
    }
    if (ltn_loop_timer_at(s->loop, &s->tick, ltn_now_mono_ns() + TICK_NS, on_tick, s) != 0)
        ltn_loop_stop(s->loop);
}

static void on_drained(void *arg)
{
    struct service *s = arg;
    if (++s->drained == 2)
        ltn_loop_stop(s->loop);
}

static void on_signal(void *arg, int signo)
{
    struct service *s = arg;
    if (signo == SIGHUP) {
        if (s->access != NULL)
            ltn_access_reload(s->access);
        return;
    }
    if (s->stopping) {
        ltn_loop_stop(s->loop); /* asked twice: at once */
        return;
    }
    s->stopping = true;
    s->serve.draining = true;
    ltn_log_info("shutting down on signal %d", signo);
    ltn_ingest_drain(s->ingest);
    ltn_query_hub_drain(s->hub);
    ltn_http_server_drain(s->otlp, DRAIN_NS, on_drained, s);
    ltn_http_server_drain(s->api, DRAIN_NS, on_drained, s);
}

/* ---- making ---- */

static void restore_verdict(void *ctx, const struct ltn_straggler_verdict *v)
{
    struct service *s = ctx;
    int rc = ltn_fleet_restore_verdict(s->fleet, v, ltn_now_unix_ns());
    if (rc != 0)
        ltn_log_warn("verdict of job %s not taken over: %s", v->job, ltn_err_str(rc));
}

static void restore_incident(void *ctx, const struct ltn_update_incident *i)
{
    struct service *s = ctx;
    ltn_fleet_take_incident(s->fleet, i);
}

static void log_notice(void *ctx, const char *text)
{
    (void)ctx;
    ltn_log_error("%s", text);
}

static int load_series(struct service *s)
{
    struct ltn_series_stats st;
    int rc = ltn_store_load_series(s->store);
    ltn_series_stats(s->series, &st);
    if (st.damaged > 0)
        ltn_log_warn("%llu records of series were damaged and passed over; %llu series are back",
                     (unsigned long long)st.damaged, (unsigned long long)st.series);
    return rc;
}

static int make_state(struct service *s, struct ltn_errinfo *info)
{
    const struct ltn_collector_conf *c = s->conf;
    struct ltn_fleet_opts fo;
    struct ltn_fleet_sink sink = {s, on_verdict, on_window_length};
    struct ltn_series_opts so = {.max_per_family = c->max_series_per_metric,
                                 .max_series = c->max_series,
                                 .expire_ns = 300 * LTN_NS_PER_S};
    struct ltn_store_opts store = {.path = c->db,
                                   .sync_full = c->db_sync_full,
                                   .window_keep_ns = c->db_window_keep_ns,
                                   .history_keep_ns = c->db_history_keep_ns,
                                   .log_keep_ns = c->db_log_keep_ns,
                                   .log_bytes = c->log_bytes,
                                   .queue_items = QUEUE_ITEMS,
                                   .queue_bytes = c->queue_bytes,
                                   .notice = log_notice};
    ltn_fleet_opts_default(&fo);
    fo.window_ns = c->window_ns;
    fo.max_nodes = c->max_nodes;
    fo.max_processes = c->max_processes;
    fo.max_jobs = c->max_jobs;
    fo.straggler.min_effect = c->min_effect_pct / 100;
    s->fleet = ltn_fleet_new(&fo, &sink);
    s->series = ltn_series_new(&so);
    if (s->fleet == NULL || s->series == NULL || ltn_hist_attach(s->series, 0) != 0 ||
        ltn_serve_reserve(s->series) != 0)
        return ltn_errinfo_set(info, -ENOMEM, "out of memory");
    store.series = s->series;
    int rc = ltn_store_open(&store, &s->store, info);
    if (rc != 0)
        return rc;
    if (info->msg[0] != '\0')
        ltn_log_warn("%s", info->msg);
    struct ltn_store_sink back = {s, restore_verdict, restore_incident};
    rc = ltn_store_load(s->store, fo.max_verdicts, &back);
    if (rc != 0)
        return ltn_errinfo_set(info, rc, "%s: cannot read: %s", c->db, ltn_err_str(rc));
    rc = load_series(s);
    if (rc != 0)
        return ltn_errinfo_set(info, rc, "%s: cannot read series: %s", c->db, ltn_err_str(rc));
    rc = ltn_store_start(s->store);
    if (rc != 0)
        return ltn_errinfo_set(info, rc, "cannot start a thread: %s", ltn_err_str(rc));
    info->msg[0] = '\0';
    return ltn_collector_make_alerts(&c->alert, &s->alerts, info);
}

/* As asked for, or by the processors that this process may use: the loop needs one. */
static unsigned worker_count(const struct ltn_collector_conf *c)
{
    cpu_set_t set;
    if (c->otlp_workers > 0)
        return (unsigned)c->otlp_workers;
    int n = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
    return n > WORKERS_MAX ? WORKERS_MAX : (unsigned)(n - 1);
}

static int make_servers(struct service *s, struct ltn_errinfo *info)
{
    struct ltn_http_conf hc;
    ltn_http_conf_default(&hc);
    hc.server_name = "lanterne-collector";
    hc.grpc_health = true;
    struct ltn_http_conf otlp = hc;
    otlp.max_response_bytes = OTLP_RESPONSE_BYTES;
    otlp.protected_bytes = s->conf->queue_bytes;
    ltn_collector_apply_limits(&s->conf->limits, &otlp);
    uint32_t room = ltn_collector_descriptors(otlp.max_connections);
    if (room < otlp.max_connections)
        ltn_log_warn("the limit of open files has room for %u connections of the %u of "
                     "otlp.max_connections; raise it (ulimit -n, LimitNOFILE)",
                     room, otlp.max_connections);
    otlp.max_connections = room;
    ltn_access_guard_otlp(s->access, &otlp);
    s->budget = ltn_http_budget_new((size_t)s->conf->limits.memory_bytes);
    s->otlp = ltn_http_server_new(s->loop, &otlp, s->budget);
    hc.max_connections = 1024;
    hc.max_connections_per_ip = 256;
    s->api_budget = ltn_http_budget_new(API_BUDGET);
    hc.grpc_health = false;
    hc.max_body_bytes = 65536;
    hc.max_response_bytes = (size_t)64 << 20;
    ltn_access_guard_api(s->access, &hc);
    s->api = ltn_http_server_new(s->loop, &hc, s->api_budget);
    s->ingest = ltn_ingest_new(&(struct ltn_ingest_opts){.loop = s->loop,
                                                         .store = s->store,
                                                         .fleet = s->fleet,
                                                         .series = s->series,
                                                         .workers = worker_count(s->conf),
                                                         .max_bytes = s->conf->queue_bytes});
    s->hub = ltn_query_hub_new(s->loop, s->fleet, NULL);
    if (s->budget == NULL || s->api_budget == NULL || s->otlp == NULL || s->api == NULL ||
        s->ingest == NULL || s->hub == NULL)
        return ltn_errinfo_set(info, -ENOMEM, "out of memory");
    s->serve = (struct ltn_serve){.fleet = s->fleet,
                                  .store = s->store,
                                  .series = s->series,
                                  .alerts = s->alerts,
                                  .ingest = s->ingest,
                                  .hub = s->hub,
                                  .access = s->access,
                                  .otlp_server = s->otlp,
                                  .api_server = s->api,
                                  .started_ns = ltn_now_unix_ns()};
    s->watch = (struct ltn_collector_watch){
        .store = s->store, .series = s->series, .otlp = s->otlp, .api = s->api, .db = s->conf->db};
    int rc = ltn_ingest_routes(s->ingest, s->otlp);
    if (rc == 0)
        rc = ltn_query_hub_route(s->hub, s->otlp);
    if (rc == 0)
        rc = ltn_serve_routes(&s->serve, s->api);
    const struct ltn_serve_mcp_opts mcp = {
        .serve = &s->serve,
        .loopback = ltn_collector_is_loopback(s->conf->api_listen),
        .token = ltn_access_has_tokens(s->access),
    };
    if (rc == 0)
        rc = ltn_serve_mcp_new(&mcp, s->api, &s->mcp);
    if (rc == 0)
        rc = ltn_serve_logs_new(s->conf->db, 0, s->api, &s->logs);
    return rc == 0 ? 0 : ltn_errinfo_set(info, rc, "routes: %s", ltn_err_str(rc));
}

/* The address as asked for, with the port that was given. */
static void say_listening(const char *what, const char *address, uint16_t port)
{
    const char *colon = strrchr(address, ':');
    int n = colon != NULL ? (int)(colon - address) : (int)strlen(address);
    ltn_log_info("listening for %s on %.*s:%u", what, n, address, port);
}

static int listen_all(struct service *s, struct ltn_errinfo *info)
{
    const struct ltn_conf_strings *otlp = &s->conf->otlp_listen;
    for (size_t i = 0; i < otlp->n; i++) {
        int rc = ltn_http_server_listen(s->otlp, otlp->items[i], info);
        if (rc != 0)
            return rc;
        say_listening("otlp", otlp->items[i], ltn_http_server_port(s->otlp, i));
    }
    int rc = ltn_http_server_listen(s->api, s->conf->api_listen, info);
    if (rc == 0)
        say_listening("api", s->conf->api_listen, ltn_http_server_port(s->api, 0));
    return rc;
}

static int make_loop(struct service *s, struct ltn_errinfo *info)
{
    sigset_t set;
    s->loop = ltn_loop_new();
    if (s->loop == NULL)
        return ltn_errinfo_set(info, -errno, "event loop: %s", ltn_err_str(-errno));
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGINT);
    (void)sigaddset(&set, SIGHUP);
    int rc = ltn_loop_signals(s->loop, &set, on_signal, s);
    return rc == 0 ? 0 : ltn_errinfo_set(info, rc, "signals: %s", ltn_err_str(rc));
}

static void on_reloaded(void *ctx, bool failed, const char *text)
{
    (void)ctx;
    if (failed)
        ltn_log_error("%s", text);
    else
        ltn_log_info("%s", text);
}

static int make_access(struct service *s, struct ltn_errinfo *info)
{
    struct ltn_access_conf ac;
    ltn_collector_access_conf(s->conf, &ac);
    ac.notice = on_reloaded;
    return ltn_access_new(&ac, &s->access, info);
}

static int make_all(struct service *s, struct ltn_errinfo *info)
{
    int rc = ltn_http_library_check(info);
    if (rc == 0)
        rc = make_access(s, info);
    if (rc == 0)
        rc = make_loop(s, info);
    if (rc == 0)
        rc = make_state(s, info);
    if (rc == 0)
        rc = make_servers(s, info);
    if (rc == 0)
        rc = listen_all(s, info);
    return rc;
}

/* Intake is closed; what waits is committed and answered by the tasks that the loop still holds. */
static void take_down(struct service *s)
{
    struct ltn_store *store = s->store;
    ltn_http_server_free(s->otlp);
    ltn_http_server_free(s->api);
    struct ltn_alerts *alerts = s->alerts;
    ltn_ingest_stop(s->ingest);
    ltn_query_hub_stop(s->hub);
    ltn_serve_mcp_free(s->mcp);
    ltn_serve_logs_free(s->logs);
    s->store = NULL; /* no verdict is made any more that could be kept */
    s->alerts = NULL;
    ltn_store_free(store);
    ltn_alerts_free(alerts);
    ltn_loop_free(s->loop);
    ltn_query_hub_free(s->hub);
    s->hub = NULL; /* the fleet may still close verdicts */
    ltn_ingest_free(s->ingest);
    ltn_fleet_free(s->fleet);
    ltn_series_free(s->series);
    ltn_http_budget_free(s->budget);
    ltn_http_budget_free(s->api_budget);
    ltn_access_free(s->access);
}

int ltn_collector_run(const struct ltn_collector_conf *conf)
{
    struct service s = {.conf = conf};
    struct ltn_errinfo info = {0, ""};
    ltn_log_set_level((enum ltn_log_level)conf->log_level);
    (void)signal(SIGPIPE, SIG_IGN);
    int rc = make_all(&s, &info);
    if (rc != 0) {
        (void)fprintf(stderr, "lanterne-collector: cannot start: %s\n",
                      info.msg[0] != '\0' ? info.msg : ltn_err_str(rc));
        take_down(&s);
        return LTN_EXIT_CANNOT;
    }
    s.expired_ns = ltn_now_mono_ns();
    on_tick(&s);
    ltn_log_info("ready: version %s, window %.3g s, database %s, token %s, TLS %s", LTN_VERSION,
                 (double)conf->window_ns / 1e9, conf->db,
                 conf->token_file[0] != '\0' ? "yes" : "no",
                 conf->tls.cert_file[0] == '\0' ? "no" : (conf->tls.required ? "required" : "yes"));
    rc = ltn_loop_run(s.loop);
    take_down(&s);
    if (rc != 0)
        ltn_log_error("event loop ended: %s", ltn_err_str(rc));
    else
        ltn_log_info("stopped");
    return rc == 0 ? LTN_EXIT_OK : LTN_EXIT_CANNOT;
}
