/* SPDX-License-Identifier: Apache-2.0 */
/* Routes: from GET requests to JSON. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/text.h"
#include "serve/internal.h"

#define MAX_ANSWER_BYTES ((size_t)64 << 20)
#define INCIDENTS_LIMIT  1000

size_t ltn_serve_not_ready(const struct ltn_serve *s, char reasons[LTN_READY_REASONS][192])
{
    struct ltn_store_stats st;
    size_t n = 0;
    ltn_store_stats(s->store, &st);
    if (s->draining)
        (void)snprintf(reasons[n++], 192, "shutting down");
    if (!st.writable)
        (void)snprintf(reasons[n++], 192, "database cannot be written: %.140s", st.error);
    return n;
}

void ltn_serve_reply_json(struct ltn_http_request *req, int status, struct ltn_buf *b)
{
    if (ltn_buf_error(b) != 0) {
        int rc = ltn_buf_error(b);
        ltn_buf_done(b);
        ltn_http_reply_error(req, rc, "answer too large", 0);
        return;
    }
    (void)ltn_buf_putc(b, '\n');
    size_t n = 0;
    char *body = ltn_buf_steal(b, &n);
    ltn_http_reply(req, &(struct ltn_http_response){.status = status,
                                                    .content_type = "application/json",
                                                    .body = body,
                                                    .body_len = n,
                                                    .take_body = true});
    ltn_buf_done(b);
}

static void begin_object(struct ltn_buf *b, struct ltn_json *j)
{
    ltn_buf_init(b, MAX_ANSWER_BYTES);
    ltn_json_init(j, b);
    ltn_json_open_object(j);
}

static void finish_object(struct ltn_http_request *req, int status, struct ltn_buf *b,
                          struct ltn_json *j)
{
    ltn_json_close_object(j);
    ltn_serve_reply_json(req, status, b);
}

bool ltn_serve_parse_since(struct ltn_http_request *req, uint64_t now_ns, uint64_t *ret_ns)
{
    char text[64];
    uint64_t v;
    *ret_ns = 0;
    if (!ltn_http_query_get(req, "since", text, sizeof(text)))
        return strstr(ltn_http_query(req), "since=") == NULL;
    if (ltn_parse_u64(text, &v) && v > 1000000000000ULL) {
        *ret_ns = v;
        return true;
    }
    if (!ltn_parse_duration_ns(text, &v))
        return false;
    *ret_ns = now_ns > v ? now_ns - v : 0;
    return true;
}

static void bad_since(struct ltn_http_request *req)
{
    ltn_http_reply_error(req, LTN_ERR_MALFORMED, "since: a duration such as 5m, or Unix time in ns",
                         0);
}

bool ltn_serve_only_params(struct ltn_http_request *req, const char *const *names, size_t n,
                           const char *message)
{
    for (const char *q = ltn_http_query(req); *q != '\0';) {
        size_t part = strcspn(q, "&"), name = strcspn(q, "&=");
        bool known = part == 0;
        for (size_t i = 0; i < n; i++)
            known = known || (strlen(names[i]) == name && strncmp(names[i], q, name) == 0);
        if (!known) {
            ltn_http_reply_error(req, LTN_ERR_MALFORMED, message, 0);
            return false;
        }
        q += part + (q[part] == '&' ? 1 : 0);
    }
    return true;
}

static void on_overview(void *arg, struct ltn_http_request *req)
{
    struct ltn_buf b;
    struct ltn_json j;
    begin_object(&b, &j);
    ltn_serve_overview(&j, arg, ltn_now_unix_ns());
    finish_object(req, 200, &b, &j);
}

static void on_nodes(void *arg, struct ltn_http_request *req)
{
    const struct ltn_serve *s = arg;
    struct ltn_buf b;
    struct ltn_json j;
    size_t n = 0;
    uint64_t now = ltn_now_unix_ns();
    void **nodes = ltn_serve_sorted(&s->fleet->nodes, ltn_serve_by_node_name, &n);
    begin_object(&b, &j);
    ltn_json_key(&j, "nodes");
    ltn_json_open_array(&j);
    for (size_t i = 0; i < n; i++)
        ltn_serve_node(&j, s, nodes[i], false, now);
    ltn_json_close_array(&j);
    free(nodes);
    finish_object(req, 200, &b, &j);
}

static void on_jobs(void *arg, struct ltn_http_request *req)
{
    const struct ltn_serve *s = arg;
    struct ltn_buf b;
    struct ltn_json j;
    size_t n = 0;
    uint64_t now = ltn_now_unix_ns();
    void **jobs = ltn_serve_sorted(&s->fleet->jobs, ltn_serve_by_job_key, &n);
    begin_object(&b, &j);
    ltn_json_key(&j, "jobs");
    ltn_json_open_array(&j);
    for (size_t i = 0; i < n; i++)
        ltn_serve_job(&j, s, jobs[i], &(struct ltn_job_query){.ranks = false}, now);
    ltn_json_close_array(&j);
    free(jobs);
    finish_object(req, 200, &b, &j);
}

/* The decoded rest of the path names an object of the map; NULL after an answer. */
static void *find_named(const struct ltn_map *m, struct ltn_http_request *req, const char *what)
{
    char name[512], message[64];
    const char *rest = ltn_http_path_rest(req);
    void *o = NULL;
    if (ltn_http_url_decode(rest, strlen(rest), name, sizeof(name)))
        o = ltn_map_get_str(m, name);
    if (o == NULL) {
        (void)snprintf(message, sizeof(message), "no such %s", what);
        ltn_http_reply_error(req, LTN_ERR_NOT_FOUND, message, 0);
    }
    return o;
}

static void on_node(void *arg, struct ltn_http_request *req)
{
    const struct ltn_serve *s = arg;
    struct ltn_buf b;
    struct ltn_json j;
    const struct ltn_fleet_node *n = find_named(&s->fleet->nodes, req, "node");
    if (n == NULL)
        return;
    ltn_buf_init(&b, MAX_ANSWER_BYTES);
    ltn_json_init(&j, &b);
    ltn_serve_node(&j, s, n, true, ltn_now_unix_ns());
    ltn_serve_reply_json(req, 200, &b);
}

static void on_job(void *arg, struct ltn_http_request *req)
{
    const struct ltn_serve *s = arg;
    struct ltn_buf b;
    struct ltn_json j;
    struct ltn_job_query q = {.ranks = true, .windows = LTN_FLEET_HISTORY};
    char windows[16], rank[LTN_STRAGGLER_KEY_BYTES];
    uint64_t n;
    if (ltn_http_query_get(req, "windows", windows, sizeof(windows))) {
        if (!ltn_parse_u64(windows, &n) || n > LTN_FLEET_HISTORY) {
            ltn_http_reply_error(req, LTN_ERR_MALFORMED, "windows: a number from 0 to 60", 0);
            return;
        }
        q.windows = (size_t)n;
    }
    if (ltn_http_query_get(req, "rank", rank, sizeof(rank)))
        q.rank_key = rank;
    const struct ltn_fleet_job *o = find_named(&s->fleet->jobs, req, "job");
    if (o == NULL)
        return;
    ltn_buf_init(&b, MAX_ANSWER_BYTES);
    ltn_json_init(&j, &b);
    ltn_serve_job(&j, s, o, &q, ltn_now_unix_ns());
    ltn_serve_reply_json(req, 200, &b);
}

static void on_stragglers(void *arg, struct ltn_http_request *req)
{
    struct ltn_buf b;
    struct ltn_json j;
    uint64_t since;
    static const char *const names[] = {"since"};
    if (!ltn_serve_only_params(req, names, LTN_ARRAY_SIZE(names),
                               "unknown parameter: since is known"))
        return;
    if (!ltn_serve_parse_since(req, ltn_now_unix_ns(), &since)) {
        bad_since(req);
        return;
    }
    begin_object(&b, &j);
    ltn_serve_stragglers(&j, arg, since);
    finish_object(req, 200, &b, &j);
}

/* As docs/incidents.md names them, worst last. */
static bool is_severity(const char *text)
{
    static const char *const severities[] = {"LOW", "MEDIUM", "HIGH", "CRITICAL"};
    for (size_t i = 0; i < LTN_ARRAY_SIZE(severities); i++)
        if (strcasecmp(text, severities[i]) == 0)
            return true;
    return false;
}

static void on_incidents(void *arg, struct ltn_http_request *req)
{
    struct ltn_buf b;
    struct ltn_json j;
    char node[LTN_NAME_BYTES], severity[32];
    struct ltn_incident_query q = {.limit = INCIDENTS_LIMIT};
    static const char *const names[] = {"since", "node", "severity"};
    if (!ltn_serve_only_params(req, names, LTN_ARRAY_SIZE(names),
                               "unknown parameter: since, node and severity are known"))
        return;
    if (!ltn_serve_parse_since(req, ltn_now_unix_ns(), &q.since_ns)) {
        bad_since(req);
        return;
    }
    if (ltn_http_query_get(req, "node", node, sizeof(node)))
        q.node = node;
    if (strstr(ltn_http_query(req), "severity=") != NULL) {
        if (!ltn_http_query_get(req, "severity", severity, sizeof(severity)) ||
            !is_severity(severity)) {
            ltn_http_reply_error(req, LTN_ERR_MALFORMED,
                                 "severity: one of LOW, MEDIUM, HIGH, CRITICAL", 0);
            return;
        }
        q.severity = severity;
    }
    begin_object(&b, &j);
    ltn_serve_incidents(&j, arg, &q);
    finish_object(req, 200, &b, &j);
}

static void on_ops(void *arg, struct ltn_http_request *req)
{
    struct ltn_buf b;
    struct ltn_json j;
    char node[LTN_NAME_BYTES];
    bool one = ltn_http_query_get(req, "node", node, sizeof(node));
    begin_object(&b, &j);
    ltn_serve_ops(&j, arg, one ? node : NULL, ltn_now_unix_ns());
    finish_object(req, 200, &b, &j);
}

static void on_ingest(void *arg, struct ltn_http_request *req)
{
    struct ltn_buf b;
    struct ltn_json j;
    begin_object(&b, &j);
    ltn_serve_ingest(&j, arg, ltn_now_unix_ns());
    finish_object(req, 200, &b, &j);
}

static void on_time(void *arg, struct ltn_http_request *req)
{
    struct ltn_buf b;
    struct ltn_json j;
    (void)arg;
    begin_object(&b, &j);
    ltn_json_kv_time(&j, "now", "now_ns", ltn_now_unix_ns());
    finish_object(req, 200, &b, &j);
}

static void on_healthz(void *arg, struct ltn_http_request *req)
{
    (void)arg;
    ltn_http_reply_text(req, 200, "ok\n");
}

static void on_readyz(void *arg, struct ltn_http_request *req)
{
    struct ltn_buf b;
    struct ltn_json j;
    char reasons[LTN_READY_REASONS][192];
    size_t n = ltn_serve_not_ready(arg, reasons);
    begin_object(&b, &j);
    ltn_json_kv_bool(&j, "ready", n == 0);
    ltn_json_key(&j, "reasons");
    ltn_json_open_array(&j);
    for (size_t i = 0; i < n; i++)
        ltn_json_str(&j, reasons[i]);
    ltn_json_close_array(&j);
    finish_object(req, n == 0 ? 200 : 503, &b, &j);
}

/* What `status` prints: a table, or everything of it as one object. */
static void on_status(void *arg, struct ltn_http_request *req)
{
    const struct ltn_serve *s = arg;
    struct ltn_buf b;
    struct ltn_json j;
    const char *accept = ltn_http_header(req, "accept");
    uint64_t now = ltn_now_unix_ns();
    if (accept != NULL && strstr(accept, "text/plain") != NULL) {
        ltn_buf_init(&b, MAX_ANSWER_BYTES);
        ltn_serve_table(s, &b, now);
        ltn_http_reply_text(req, 200, ltn_buf_str(&b));
        ltn_buf_done(&b);
        return;
    }
    size_t n = 0;
    begin_object(&b, &j);
    ltn_serve_overview(&j, s, now);
    void **jobs = ltn_serve_sorted(&s->fleet->jobs, ltn_serve_by_job_key, &n);
    ltn_json_key(&j, "jobs_list");
    ltn_json_open_array(&j);
    for (size_t i = 0; i < n; i++)
        ltn_serve_job(&j, s, jobs[i],
                      &(struct ltn_job_query){.ranks = true, .windows = LTN_FLEET_HISTORY}, now);
    ltn_json_close_array(&j);
    free(jobs);
    ltn_serve_stragglers(&j, s, now);
    finish_object(req, 200, &b, &j);
}

int ltn_serve_routes(struct ltn_serve *s, struct ltn_http_server *server)
{
    static const struct {
        const char *path;
        unsigned flags;
        void (*handle)(void *arg, struct ltn_http_request *req);
    } routes[] = {
        {"/api/v1/overview", 0, on_overview},
        {"/api/v1/nodes", 0, on_nodes},
        {"/api/v1/nodes/", LTN_ROUTE_PREFIX, on_node},
        {"/api/v1/jobs", 0, on_jobs},
        {"/api/v1/jobs/", LTN_ROUTE_PREFIX, on_job},
        {"/api/v1/stragglers", 0, on_stragglers},
        {"/api/v1/incidents", 0, on_incidents},
        {"/api/v1/ops", 0, on_ops},
        {"/api/v1/ingest", 0, on_ingest},
        {"/api/v1/status", 0, on_status},
        {"/api/v1/time", 0, on_time},
        {"/metrics", 0, ltn_serve_on_metrics},
        {"/", LTN_ROUTE_NO_AUTH, ltn_serve_on_page},
        {"/assets/", LTN_ROUTE_PREFIX | LTN_ROUTE_NO_AUTH, ltn_serve_on_page},
        {"/healthz", LTN_ROUTE_NO_AUTH, on_healthz},
        {"/readyz", LTN_ROUTE_NO_AUTH, on_readyz},
    };
    for (size_t i = 0; i < LTN_ARRAY_SIZE(routes); i++) {
        struct ltn_http_route r = {.methods = LTN_HTTP_GET,
                                   .path = routes[i].path,
                                   .flags = routes[i].flags | LTN_ROUTE_GZIP,
                                   .handle = routes[i].handle,
                                   .arg = s};
        int rc = ltn_http_server_route(server, &r);
        if (rc != 0)
            return rc;
    }
    const struct ltn_http_route query = {.methods = LTN_HTTP_POST,
                                         .path = "/api/v1/query",
                                         .content_types = "application/json",
                                         .handle = ltn_serve_on_query,
                                         .arg = s};
    return ltn_http_server_route(server, &query);
}
