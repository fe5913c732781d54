/* SPDX-License-Identifier: Apache-2.0 */
#include "ingest/ingest.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "access/scope.h"
#include "base/clock.h"
#include "base/err.h"
#include "ingest/decode.h"
#include "ingest/request.h"
#include "otlp/model.h"
#include "otlp/response.h"

#define GRPC_TRACES "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
#define HTTP_TRACES "/v1/traces"

#define RETRY_BUSY_MS 2000
#define RETRY_DISK_MS 10000

/* Smaller bodies are decoded where they arrive: handing them over would cost more. */
#define INLINE_BYTES ((size_t)16 << 10)
#define CODED_RATIO  8u /* of compressed ones, about */
#define LANES        256u
/* Bytes that a request counts beside its body. */
#define REQUEST_BYTES ((size_t)4096)

struct ltn_ingest {
    struct ltn_loop *loop;
    struct ltn_store *store;
    struct ltn_fleet *fleet;
    struct ltn_ingest_tools tools;
    struct ltn_ingest_workers *workers; /* NULL: none */
    struct ltn_ingest_group group;
    struct ltn_ingest_stats stats;
    size_t max_bytes, held_bytes;
    uint32_t lanes[LANES]; /* requests of each with the workers */
    bool draining, stopped;
};

struct ltn_ingest *ltn_ingest_new(const struct ltn_ingest_opts *o)
{
    struct ltn_ingest *in = calloc(1, sizeof(*in));
    if (in == NULL)
        return NULL;
    *in = (struct ltn_ingest){
        .loop = o->loop, .store = o->store, .fleet = o->fleet, .max_bytes = o->max_bytes};
    ltn_ingest_group_init(&in->group, in, o->loop, o->store);
    in->tools.decoder = ltn_decoder_new(o->series);
    if (o->workers > 0)
        in->workers = ltn_ingest_workers_new(o->loop, o->series, o->workers);
    if (in->tools.decoder == NULL || (o->workers > 0 && in->workers == NULL)) {
        ltn_ingest_free(in);
        return NULL;
    }
    return in;
}

void ltn_ingest_stop(struct ltn_ingest *in)
{
    if (in == NULL)
        return;
    in->draining = in->stopped = true;
    ltn_ingest_workers_free(in->workers);
    in->workers = NULL;
    ltn_ingest_group_stop(&in->group);
}

void ltn_ingest_free(struct ltn_ingest *in)
{
    if (in == NULL)
        return;
    ltn_ingest_workers_free(in->workers);
    ltn_decoder_free(in->tools.decoder);
    ltn_http_inflater_free(in->tools.inflater);
    free(in);
}

void ltn_ingest_drain(struct ltn_ingest *in)
{
    in->draining = true;
}

const struct ltn_ingest_stats *ltn_ingest_stats(const struct ltn_ingest *in)
{
    return &in->stats;
}

/* ---- answers ---- */

static void refuse(struct ltn_ingest *in, struct ltn_http_request *req, int rc)
{
    uint32_t retry_ms = 0;
    const char *message = NULL;
    if (rc == LTN_ERR_DISK) {
        in->stats.rejected_disk++;
        retry_ms = RETRY_DISK_MS;
    } else if (rc == LTN_ERR_CLOSED) {
        in->stats.rejected_draining++;
        retry_ms = RETRY_BUSY_MS;
    } else if (rc == LTN_ERR_TIMEOUT) {
        in->stats.skipped_gone++;
    } else if (ltn_err_retryable(rc)) {
        in->stats.rejected_busy++;
        retry_ms = RETRY_BUSY_MS;
    } else if (rc == LTN_ERR_FORBIDDEN) {
        in->stats.rejected_forbidden++;
        message = "the token is for another cluster";
    } else {
        in->stats.rejected_malformed++;
    }
    ltn_http_reply_error(req, rc, message, retry_ms);
}

/* Header text: what is not printable ASCII, and the separators, become '?'. */
static void header_text(char *dst, size_t size, const char *src)
{
    size_t n = 0;
    for (; *src != '\0' && n + 1 < size; src++)
        dst[n++] = *src > 0x20 && *src < 0x7f && *src != ';' && *src != '=' ? *src : '?';
    dst[n] = '\0';
}

static void verdict_text(const struct ltn_fleet *f, const char *node, char *out, size_t size)
{
    const struct ltn_fleet_verdict *o = ltn_fleet_node_verdict(f, node);
    char job[LTN_STRAGGLER_JOB_BYTES];
    if (o == NULL) {
        (void)snprintf(out, size, "ok");
        return;
    }
    header_text(job, sizeof(job), o->v.job);
    (void)snprintf(out, size, "straggler;job=%s;rank=%" PRId32 ";cause=%s", job, o->v.rank,
                   o->v.cause);
}

static bool is_json(const struct ltn_http_request *req)
{
    return strcmp(ltn_http_content_type(req), "application/json") == 0;
}

/* Why something was rejected, of what metric; NULL when nothing was. */
static const char *rejection(const struct ltn_decode_result *result, char *text, size_t size)
{
    if (result->message == NULL || result->metric[0] == '\0')
        return result->message;
    (void)snprintf(text, size, "%s: %s", result->metric, result->message);
    return text;
}

/* The answer has the media type of the request. */
static void acknowledge(const struct ltn_ingest_request *r, const char *verdict)
{
    struct ltn_http_request *req = r->http;
    struct ltn_buf body;
    struct ltn_http_field fields[1] = {{"lanterne-verdict", verdict}};
    size_t field_count = verdict != NULL ? 1 : 0;
    char text[256];
    const char *message = rejection(&r->result, text, sizeof(text));
    ltn_buf_init(&body, 4096);
    int rc = is_json(req) ? ltn_otlp_response_json(&body, r->signal, r->result.rejected, message)
                          : ltn_otlp_response_write(&body, r->result.rejected, message);
    if (rc != 0) {
        ltn_http_reply_error(req, LTN_ERR_INTERNAL, NULL, 0);
    } else if (ltn_http_is_grpc(req)) {
        ltn_grpc_reply(req, &(struct ltn_grpc_response){.body = body.data,
                                                        .body_len = body.len,
                                                        .fields = fields,
                                                        .field_count = field_count});
    } else {
        ltn_http_reply(req, &(struct ltn_http_response){.status = 200,
                                                        .content_type = ltn_http_content_type(req),
                                                        .body = body.data,
                                                        .body_len = body.len,
                                                        .fields = fields,
                                                        .field_count = field_count});
    }
    ltn_buf_done(&body);
}

static void release(struct ltn_ingest_request *r)
{
    r->in->held_bytes -= r->body_bytes + REQUEST_BYTES;
    r->in->stats.in_flight--;
    ltn_update_free(r->result.update);
    free(r);
}

/* Something for the store and the fleet, not only for series. */
static bool has_rows(const struct ltn_update *u)
{
    return u != NULL && (u->resource_count > 0 || u->incident_count > 0 || u->log_count > 0);
}

/* With the place where it is known. */
static void answer_malformed(const struct ltn_ingest_request *r)
{
    char text[64];
    r->in->stats.rejected_malformed++;
    (void)snprintf(text, sizeof(text), "malformed JSON at byte %zu", r->error_at);
    ltn_http_reply_error(r->http, r->rc, r->refusal != NULL ? r->refusal : text, 0);
}

void ltn_ingest_answer(struct ltn_ingest_request *r)
{
    struct ltn_ingest *in = r->in;
    const struct ltn_update *u = r->result.update;
    if (r->rc == LTN_ERR_MALFORMED && (r->error_at > 0 || r->refusal != NULL)) {
        answer_malformed(r);
    } else if (r->rc != 0) {
        refuse(in, r->http, r->rc);
    } else {
        char verdict[LTN_STRAGGLER_JOB_BYTES + 96];
        const char *node = has_rows(u) && u->resources != NULL ? u->resources->node : NULL;
        if (has_rows(u))
            ltn_fleet_apply(in->fleet, u, ltn_now_unix_ns());
        in->stats.acknowledged++;
        if (node != NULL)
            verdict_text(in->fleet, node, verdict, sizeof(verdict));
        acknowledge(r, node != NULL ? verdict : NULL);
    }
    release(r);
}

/* ---- the commit ---- */

static void committed(struct ltn_task *task)
{
    ltn_ingest_answer(
        (struct ltn_ingest_request *)((char *)task - offsetof(struct ltn_ingest_request, task)));
}

/* Writer thread. */
static void on_done(struct ltn_store_item *item, int rc)
{
    struct ltn_ingest_request *r = (struct ltn_ingest_request *)item;
    r->rc = rc;
    r->task.fn = committed;
    ltn_loop_post(r->in->loop, &r->task);
}

static void commit(struct ltn_ingest_request *r)
{
    struct ltn_ingest *in = r->in;
    const struct ltn_update *u = r->result.update;
    if (in->stopped) {
        r->rc = LTN_ERR_CLOSED;
        ltn_ingest_answer(r);
        return;
    }
    if (!has_rows(u)) {
        if (r->result.samples > 0)
            ltn_ingest_group_add(&in->group, r);
        else
            ltn_ingest_answer(r); /* nothing to keep */
        return;
    }
    r->item = (struct ltn_store_item){u, on_done};
    /* Once it is put, r is the writer's, which may have written r->rc before this returns. */
    int rc = ltn_store_put(in->store, &r->item, u->arena.used_bytes + sizeof(*r));
    if (rc != 0) {
        r->rc = rc;
        ltn_ingest_answer(r);
    }
}

/* ---- decoding ---- */

/* A warning for bodies that say something of which nothing was understood, as misspelt JSON names
 * do.
 */
static const char *nothing_found(const struct ltn_ingest_request *r)
{
    if (r->unknown > 0)
        return "no records found; JSON members with unknown names were ignored, names are in "
               "lowerCamelCase";
    return r->read_bytes > 0 ? "no records found in the request" : NULL;
}

static int decode_as(struct ltn_ingest_request *r, struct ltn_decoder *d, const uint8_t *body,
                     size_t n)
{
    switch (r->signal) {
    case LTN_OTLP_METRICS:
        return ltn_decode_metrics(d, body, n, r->received_ns, &r->result);
    case LTN_OTLP_LOGS:
        return ltn_decode_logs(d, body, n, r->received_ns, &r->result);
    default:
        return ltn_decode_count_spans(body, n, &r->result.rejected);
    }
}

static void decode_plain(struct ltn_ingest_request *r, struct ltn_decoder *d)
{
    struct ltn_otlp_json_info info = {.unknown = 0};
    size_t n = 0;
    const uint8_t *body = ltn_http_body(r->http, &n);
    ltn_decoder_confine(d, ltn_scope_cluster(r->http));
    r->rc = is_json(r->http) ? ltn_decode_json(d, r->signal, &body, &n, &info) : 0;
    r->unknown = info.unknown;
    r->read_bytes = n;
    if (r->rc == 0)
        r->rc = decode_as(r, d, body, n);
    else if (r->rc == LTN_ERR_MALFORMED)
        r->error_at = info.error_at > 0 ? info.error_at : 1;
    ltn_decode_json_done(d);
}

void ltn_ingest_decode(struct ltn_ingest_request *r, struct ltn_ingest_tools *tools)
{
    uint64_t began = ltn_now_mono_ns();
    if (ltn_http_gone(r->http)) { /* nobody waits for it any more */
        r->rc = LTN_ERR_TIMEOUT;
        return;
    }
    r->rc = ltn_http_inflate(r->http, &tools->inflater);
    if (r->rc == 0)
        decode_plain(r, tools->decoder);
    else if (r->rc == LTN_ERR_MALFORMED)
        r->refusal = "body cannot be decompressed";
    r->decode_ns = ltn_now_mono_ns() - began;
}

/* Nothing of traces is kept, so nothing is committed. */
static void count_spans(struct ltn_ingest_request *r)
{
    r->in->stats.spans_refused += r->result.rejected;
    r->result.message = r->result.rejected > 0 ? "traces are not stored" : nothing_found(r);
    acknowledge(r, NULL);
    release(r);
}

void ltn_ingest_decoded(struct ltn_ingest_request *r)
{
    struct ltn_ingest *in = r->in;
    if (r->offloaded)
        in->lanes[r->lane]--;
    in->stats.decode_seconds += (double)r->decode_ns / 1e9;
    if (r->rc == 0 && r->result.update != NULL)
        r->rc = ltn_confine_nodes(in->fleet, r->result.update, ltn_scope_cluster(r->http));
    if (r->rc != 0) {
        ltn_ingest_answer(r);
        return;
    }
    if (r->signal == LTN_OTLP_TRACES) {
        count_spans(r);
        return;
    }
    if (r->result.accepted == 0 && r->result.rejected == 0)
        r->result.message = nothing_found(r);
    *(r->signal == LTN_OTLP_METRICS ? &in->stats.points_received : &in->stats.logs_received) +=
        r->result.accepted;
    in->stats.points_unexposed += r->result.unexposed;
    in->stats.rejected_points += r->result.rejected;
    commit(r);
}

/* ---- requests ---- */

/* Whether there is a point in decoding it now: refusing must stay cheap. */
static int admit(struct ltn_ingest *in, size_t n)
{
    if (in->draining)
        return LTN_ERR_CLOSED;
    if (in->held_bytes + n + REQUEST_BYTES > in->max_bytes && in->stats.in_flight > 0)
        return LTN_ERR_BUSY;
    return ltn_store_check(in->store);
}

/* One lane for each connection. */
static uint32_t lane_of(const char *peer)
{
    return (uint32_t)(XXH3_64bits(peer, strlen(peer)) % LANES);
}

static void take(struct ltn_ingest *in, struct ltn_http_request *req, enum ltn_otlp_signal signal)
{
    size_t n = 0;
    (void)ltn_http_body(req, &n);
    in->stats.requests++;
    int rc = admit(in, n);
    struct ltn_ingest_request *r = rc == 0 ? malloc(sizeof(*r)) : NULL;
    if (r == NULL) {
        refuse(in, req, rc != 0 ? rc : LTN_ERR_BUSY);
        return;
    }
    *r = (struct ltn_ingest_request){
        .in = in, .http = req, .signal = signal, .body_bytes = n, .received_ns = ltn_now_unix_ns()};
    in->held_bytes += n + REQUEST_BYTES;
    in->stats.in_flight++;
    if (in->workers != NULL) {
        r->lane = lane_of(ltn_http_peer(req));
        size_t most = ltn_http_is_coded(req) ? INLINE_BYTES / CODED_RATIO : INLINE_BYTES;
        r->offloaded = n > most || in->lanes[r->lane] > 0;
    }
    if (r->offloaded) {
        in->lanes[r->lane]++;
        ltn_ingest_workers_put(in->workers, r);
        return;
    }
    ltn_ingest_decode(r, &in->tools);
    ltn_ingest_decoded(r);
}

static uint64_t rested_ns(void *arg, const char *peer, unsigned *ret_worker)
{
    const struct ltn_ingest *in = arg;
    if (in->workers == NULL)
        return UINT64_MAX;
    return ltn_ingest_workers_rested_ns(in->workers, lane_of(peer), ret_worker);
}

static void on_metrics(void *arg, struct ltn_http_request *req)
{
    take(arg, req, LTN_OTLP_METRICS);
}

static void on_logs(void *arg, struct ltn_http_request *req)
{
    take(arg, req, LTN_OTLP_LOGS);
}

static void on_traces(void *arg, struct ltn_http_request *req)
{
    take(arg, req, LTN_OTLP_TRACES);
}

int ltn_ingest_routes(struct ltn_ingest *in, struct ltn_http_server *server)
{
    static const struct {
        const char *grpc, *http;
        void (*handle)(void *arg, struct ltn_http_request *req);
    } services[] = {
        {LTN_OTLP_GRPC_METRICS, LTN_OTLP_HTTP_METRICS, on_metrics},
        {LTN_OTLP_GRPC_LOGS, LTN_OTLP_HTTP_LOGS, on_logs},
        {GRPC_TRACES, HTTP_TRACES, on_traces},
    };
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < LTN_ARRAY_SIZE(services); i++) {
        struct ltn_http_route r = {.path = services[i].grpc,
                                   .flags =
                                       LTN_ROUTE_GRPC | LTN_ROUTE_STATUS_BODY | LTN_ROUTE_CODED,
                                   .rested_ns = rested_ns,
                                   .handle = services[i].handle,
                                   .arg = in};
        rc = ltn_http_server_route(server, &r);
        r.methods = LTN_HTTP_POST;
        r.path = services[i].http;
        r.flags = LTN_ROUTE_STATUS_BODY | LTN_ROUTE_CODED;
        r.content_types = "application/x-protobuf,application/protobuf,application/json";
        if (rc == 0)
            rc = ltn_http_server_route(server, &r);
    }
    return rc;
}
