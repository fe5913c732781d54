/* SPDX-License-Identifier: Apache-2.0 */
#include "ingest/ingest.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "ingest/decode.h"
#include "otlp/model.h"
#include "otlp/response.h"

#define GRPC_TRACES "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
#define HTTP_TRACES "/v1/traces"

#define RETRY_BUSY_MS 2000
#define RETRY_DISK_MS 10000

/* Largest body taken, on the wire and inflated: an agent's window is some tens of KiB. */
#define MAX_BODY_BYTES ((size_t)16 << 20)

struct ltn_ingest {
    struct ltn_loop *loop;
    struct ltn_store *store;
    struct ltn_fleet *fleet;
    struct ltn_series *series;
    struct ltn_decoder *decoder;
    struct ltn_ingest_stats stats;
    bool draining;
};

/* A request between decoding and its answer. */
struct pending {
    struct ltn_store_item item; /* first: the store gives it back */
    struct ltn_task task;
    struct ltn_ingest *in;
    struct ltn_http_request *req;
    struct ltn_update *update;
    enum ltn_otlp_signal signal;
    uint64_t rejected;
    const char *message; /* static */
    int rc;
};

struct ltn_ingest *ltn_ingest_new(struct ltn_loop *loop, struct ltn_store *store,
                                  struct ltn_fleet *fleet, struct ltn_series *series)
{
    struct ltn_ingest *in = calloc(1, sizeof(*in));
    if (in == NULL)
        return NULL;
    *in = (struct ltn_ingest){.loop = loop, .store = store, .fleet = fleet, .series = series};
    in->decoder = ltn_decoder_new(series);
    if (in->decoder == NULL) {
        free(in);
        return NULL;
    }
    return in;
}

void ltn_ingest_free(struct ltn_ingest *in)
{
    if (in == NULL)
        return;
    ltn_decoder_free(in->decoder);
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
    if (rc == LTN_ERR_DISK) {
        in->stats.rejected_disk++;
        retry_ms = RETRY_DISK_MS;
    } else if (rc == LTN_ERR_CLOSED) {
        in->stats.rejected_draining++;
        retry_ms = RETRY_BUSY_MS;
    } else if (ltn_err_retryable(rc)) {
        in->stats.rejected_busy++;
        retry_ms = RETRY_BUSY_MS;
    } else {
        in->stats.rejected_malformed++;
    }
    ltn_http_reply_error(req, rc, NULL, retry_ms);
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

/* The answer has the media type of the request. */
static void acknowledge(struct ltn_http_request *req, const struct pending *p, const char *verdict)
{
    struct ltn_buf body;
    struct ltn_http_field fields[1] = {{"lanterne-verdict", verdict}};
    size_t field_count = verdict != NULL ? 1 : 0;
    ltn_buf_init(&body, 4096);
    int rc = is_json(req) ? ltn_otlp_response_json(&body, p->signal, p->rejected, p->message)
                          : ltn_otlp_response_write(&body, p->rejected, p->message);
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

/* ---- after the commit ---- */

/* Loop thread. */
static void committed(struct ltn_task *task)
{
    struct pending *p = (struct pending *)((char *)task - offsetof(struct pending, task));
    struct ltn_ingest *in = p->in;
    in->stats.in_flight--;
    if (p->rc != 0) {
        refuse(in, p->req, p->rc);
    } else {
        char verdict[LTN_STRAGGLER_JOB_BYTES + 96];
        uint64_t now = ltn_now_unix_ns();
        ltn_fleet_apply(in->fleet, p->update, now);
        in->stats.acknowledged++;
        const char *node = p->update->resources != NULL ? p->update->resources->node : NULL;
        if (node != NULL)
            verdict_text(in->fleet, node, verdict, sizeof(verdict));
        acknowledge(p->req, p, node != NULL ? verdict : NULL);
    }
    ltn_update_free(p->update);
    free(p);
}

/* Writer thread. */
static void on_done(struct ltn_store_item *item, int rc)
{
    struct pending *p = (struct pending *)item;
    p->rc = rc;
    p->task.fn = committed;
    ltn_loop_post(p->in->loop, &p->task);
}

/* Hands a decoded request to the store; it owns req and the update from here. */
static void commit(struct ltn_ingest *in, struct ltn_http_request *req, enum ltn_otlp_signal signal,
                   struct ltn_decode_result *d)
{
    struct pending *p = calloc(1, sizeof(*p));
    if (p == NULL) {
        ltn_update_free(d->update);
        refuse(in, req, LTN_ERR_BUSY);
        return;
    }
    p->item = (struct ltn_store_item){d->update, on_done};
    p->in = in;
    p->req = req;
    p->update = d->update;
    p->signal = signal;
    p->rejected = d->rejected;
    p->message = d->message;
    in->stats.in_flight++;
    int rc = ltn_store_put(in->store, &p->item, d->update->arena.used_bytes + sizeof(*p));
    if (rc == 0)
        return;
    in->stats.in_flight--;
    refuse(in, req, rc);
    ltn_update_free(p->update);
    free(p);
}

/* ---- requests ---- */

/* The body of a request as protobuf. */
struct body {
    const uint8_t *data;
    size_t n;
    uint64_t unknown; /* JSON members without a meaning */
};

/* False when the request was refused. */
static bool take_body(struct ltn_ingest *in, struct ltn_http_request *req,
                      enum ltn_otlp_signal signal, struct body *ret)
{
    struct ltn_otlp_json_info info = {.unknown = 0};
    char text[64];
    ret->data = ltn_http_body(req, &ret->n);
    ret->unknown = 0;
    if (!is_json(req))
        return true;
    int rc = ltn_decode_json(in->decoder, signal, &ret->data, &ret->n, &info);
    ret->unknown = info.unknown;
    if (rc != 0)
        ltn_decode_json_done(in->decoder);
    if (rc == LTN_ERR_MALFORMED) {
        in->stats.rejected_malformed++;
        (void)snprintf(text, sizeof(text), "malformed JSON at byte %zu", info.error_at);
        ltn_http_reply_error(req, rc, text, 0);
    } else if (rc != 0) {
        refuse(in, req, rc);
    }
    return rc == 0;
}

/* A warning for bodies that say something of which nothing was understood, as misspelt JSON names
 * do.
 */
static const char *nothing_found(const struct body *b)
{
    if (b->unknown > 0)
        return "no records found; JSON members with unknown names were ignored, names are in "
               "lowerCamelCase";
    return b->n > 0 ? "no records found in the request" : NULL;
}

static int decode(struct ltn_ingest *in, enum ltn_otlp_signal signal, const struct body *b,
                  struct ltn_decode_result *ret)
{
    uint64_t now = ltn_now_unix_ns();
    return signal == LTN_OTLP_METRICS ? ltn_decode_metrics(in->decoder, b->data, b->n, now, ret)
                                      : ltn_decode_logs(in->decoder, b->data, b->n, now, ret);
}

static void take(struct ltn_ingest *in, struct ltn_http_request *req, enum ltn_otlp_signal signal)
{
    struct ltn_decode_result d;
    struct body body;
    in->stats.requests++;
    if (in->draining) {
        refuse(in, req, LTN_ERR_CLOSED);
        return;
    }
    uint64_t began = ltn_now_mono_ns();
    if (!take_body(in, req, signal, &body))
        return;
    int rc = decode(in, signal, &body, &d);
    ltn_decode_json_done(in->decoder);
    in->stats.decode_seconds += (double)(ltn_now_mono_ns() - began) / 1e9;
    if (rc != 0) {
        refuse(in, req, rc);
        return;
    }
    if (d.accepted == 0 && d.rejected == 0)
        d.message = nothing_found(&body);
    *(signal == LTN_OTLP_METRICS ? &in->stats.points_received : &in->stats.logs_received) +=
        d.accepted;
    in->stats.points_unexposed += d.unexposed;
    in->stats.rejected_points += d.rejected;
    commit(in, req, signal, &d);
}

static void on_metrics(void *arg, struct ltn_http_request *req)
{
    take(arg, req, LTN_OTLP_METRICS);
}

static void on_logs(void *arg, struct ltn_http_request *req)
{
    take(arg, req, LTN_OTLP_LOGS);
}

/* Nothing of traces is kept, so nothing is committed. */
static void on_traces(void *arg, struct ltn_http_request *req)
{
    struct ltn_ingest *in = arg;
    struct pending p = {.signal = LTN_OTLP_TRACES, .message = "traces are not stored"};
    struct body body;
    in->stats.requests++;
    if (!take_body(in, req, LTN_OTLP_TRACES, &body))
        return;
    int rc = ltn_decode_count_spans(body.data, body.n, &p.rejected);
    ltn_decode_json_done(in->decoder);
    if (rc != 0) {
        refuse(in, req, rc);
        return;
    }
    in->stats.spans_refused += p.rejected;
    if (p.rejected == 0)
        p.message = nothing_found(&body);
    acknowledge(req, &p, NULL);
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
                                   .flags = LTN_ROUTE_GRPC | LTN_ROUTE_STATUS_BODY,
                                   .max_body_bytes = MAX_BODY_BYTES,
                                   .handle = services[i].handle,
                                   .arg = in};
        rc = ltn_http_server_route(server, &r);
        r.methods = LTN_HTTP_POST;
        r.path = services[i].http;
        r.flags = LTN_ROUTE_STATUS_BODY;
        r.content_types = "application/x-protobuf,application/protobuf,application/json";
        if (rc == 0)
            rc = ltn_http_server_route(server, &r);
    }
    return rc;
}
