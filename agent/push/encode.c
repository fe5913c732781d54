/* SPDX-License-Identifier: Apache-2.0 */
/* The frame of a request: resources, splitting, first sightings, incidents. */
#include "push/encode.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/text.h"
#include "otlp/logs_write.h"
#include "push/encode_int.h"

#define DEFAULT_REQUEST_BYTES (1U << 20)
#define SCOPE_NAME            "lanterne"
#define MAX_PROCESSES         65536
/* A process that no window has shown for so long is forgotten. */
#define FORGET_NS (24ULL * 3600 * LTN_NS_PER_S)
#define SWEEP_NS  (3600ULL * LTN_NS_PER_S)

struct sighting {
    uint64_t key[2];
    uint64_t first_ns;
    uint64_t last_ns;
};

/* ---- first sightings ---- */

/* Keeps those of the last day in a new map. On failure the old one stays. */
static void sweep(struct ltn_push_encoder *e, uint64_t now_ns)
{
    struct ltn_map fresh;
    size_t pos = 0;
    int rc = 0;
    ltn_map_init(&fresh, MAX_PROCESSES);
    for (struct sighting *s = ltn_map_next(&e->first_seen, &pos); s != NULL && rc == 0;
         s = ltn_map_next(&e->first_seen, &pos)) {
        if (s->last_ns + FORGET_NS >= now_ns) {
            rc = ltn_map_put(&fresh, s->key, sizeof(s->key), s);
        }
    }
    if (rc < 0) {
        ltn_map_done(&fresh, NULL);
        return;
    }
    pos = 0;
    for (struct sighting *s = ltn_map_next(&e->first_seen, &pos); s != NULL;
         s = ltn_map_next(&e->first_seen, &pos)) {
        if (s->last_ns + FORGET_NS < now_ns) {
            free(s);
        }
    }
    ltn_map_done(&e->first_seen, NULL);
    e->first_seen = fresh;
}

uint64_t ltn_push_first_seen(struct ltn_push_encoder *e, const struct ltn_window *w,
                             const struct ltn_proc_window *p)
{
    uint64_t key[2] = {p->pid, p->start_ns};
    struct sighting *s = ltn_map_get(&e->first_seen, key, sizeof(key));
    if (s != NULL) {
        s->last_ns = w->end_ns > s->last_ns ? w->end_ns : s->last_ns;
        return s->first_ns;
    }
    /* A process that began inside the window was first seen then. */
    uint64_t first =
        p->start_ns > w->start_ns && p->start_ns < w->end_ns ? p->start_ns : w->start_ns;
    s = calloc(1, sizeof(*s));
    if (s != NULL) {
        *s = (struct sighting){.key = {key[0], key[1]}, .first_ns = first, .last_ns = w->end_ns};
        if (ltn_map_put(&e->first_seen, key, sizeof(key), s) < 0) {
            free(s);
        }
    }
    return first;
}

/* ---- the frame ---- */

size_t ltn_push_base_attrs(const struct ltn_push_encoder *e, struct ltn_otlp_attr *to)
{
    size_t n = 0;
    to[n++] = ltn_otlp_attr_str("service.name", "lanterne-agent");
    to[n++] = ltn_otlp_attr_str("service.instance.id", e->instance_id);
    to[n++] = ltn_otlp_attr_str("service.version", e->version);
    to[n++] = ltn_otlp_attr_str("host.name", e->node);
    if (e->cluster[0] != '\0') {
        to[n++] = ltn_otlp_attr_str("lanterne.cluster", e->cluster);
    }
    return n;
}

static int begin_resource(struct ltn_encoding *en)
{
    struct ltn_otlp_attrs attrs = {.items = en->resource, .n = en->resource_n};
    int rc = ltn_otlp_metrics_resource(&en->writer, attrs);
    return rc < 0 ? rc : ltn_otlp_metrics_scope(&en->writer, SCOPE_NAME, en->e->version);
}

static int send_request(struct ltn_encoding *en)
{
    int rc = ltn_otlp_metrics_end(&en->writer);
    if (rc == 0 && en->e->request.len > 0) {
        rc = en->emit(en->emit_ctx, LTN_RECORD_METRICS, en->e->request.data, en->e->request.len);
    }
    ltn_buf_reset(&en->e->request);
    ltn_otlp_metrics_begin(&en->writer, &en->e->request);
    return rc;
}

/* Sends what is there and opens the same levels in a new request. */
static int next_request(struct ltn_encoding *en)
{
    int rc = send_request(en);
    if (rc == 0) {
        rc = begin_resource(en);
    }
    if (rc == 0 && en->metric_open) {
        rc = ltn_otlp_metrics_metric(&en->writer, &en->metric);
    }
    return rc;
}

int ltn_push_resource(struct ltn_encoding *en)
{
    en->metric_open = false;
    int rc = begin_resource(en);
    return rc == LTN_ERR_TOO_LARGE ? next_request(en) : rc;
}

int ltn_push_metric(struct ltn_encoding *en, const char *name, const char *unit,
                    enum ltn_otlp_kind kind)
{
    en->metric = (struct ltn_otlp_metric){.name = ltn_otlp_str(name),
                                          .unit = ltn_otlp_str(unit),
                                          .kind = kind,
                                          .temporality = kind != LTN_OTLP_GAUGE
                                                             ? LTN_OTLP_CUMULATIVE
                                                             : LTN_OTLP_TEMPORALITY_UNSPECIFIED,
                                          .monotonic = kind == LTN_OTLP_SUM};
    en->metric_open = true;
    int rc = ltn_otlp_metrics_metric(&en->writer, &en->metric);
    return rc == LTN_ERR_TOO_LARGE ? next_request(en) : rc;
}

/* A point that no request can hold is dropped and counted, the rest goes on. */
static int settle(struct ltn_encoding *en, int rc)
{
    if (rc == LTN_ERR_TOO_LARGE) {
        atomic_fetch_add(&en->e->points_dropped, 1);
        return 0;
    }
    return rc;
}

int ltn_push_number(struct ltn_encoding *en, const struct ltn_otlp_number *p)
{
    int rc = ltn_otlp_metrics_number(&en->writer, p);
    if (rc == LTN_ERR_TOO_LARGE) {
        rc = next_request(en);
        rc = rc < 0 ? rc : settle(en, ltn_otlp_metrics_number(&en->writer, p));
    }
    return rc;
}

int ltn_push_exp_histogram(struct ltn_encoding *en, const struct ltn_otlp_exp_histogram *p)
{
    int rc = ltn_otlp_metrics_exp_histogram(&en->writer, p);
    if (rc == LTN_ERR_TOO_LARGE) {
        rc = next_request(en);
        rc = rc < 0 ? rc : settle(en, ltn_otlp_metrics_exp_histogram(&en->writer, p));
    }
    return rc;
}

int ltn_push_encode_window(struct ltn_push_encoder *e, const struct ltn_window *w,
                           uint64_t sequence, ltn_record_emit_fn emit, void *emit_ctx)
{
    struct ltn_encoding en = {
        .e = e, .window = w, .sequence = sequence, .emit = emit, .emit_ctx = emit_ctx};
    if (w->end_ns > e->swept_ns + SWEEP_NS) {
        sweep(e, w->end_ns);
        e->swept_ns = w->end_ns;
    }
    ltn_buf_reset(&e->request);
    ltn_otlp_metrics_begin(&en.writer, &e->request);
    int rc = ltn_push_node(&en);
    for (size_t i = 0; i < w->proc_count && rc == 0; i++) {
        rc = ltn_push_proc(&en, &w->procs[i]);
    }
    return rc < 0 ? rc : send_request(&en);
}

/* ---- incidents ---- */

static int32_t severity_number(const char *text)
{
    static const struct {
        const char *text;
        enum ltn_otlp_severity number;
    } table[] = {{"LOW", LTN_OTLP_INFO},
                 {"MEDIUM", LTN_OTLP_WARN},
                 {"HIGH", LTN_OTLP_ERROR},
                 {"CRITICAL", LTN_OTLP_FATAL}};
    for (size_t i = 0; i < LTN_ARRAY_SIZE(table); i++) {
        if (strcasecmp(table[i].text, text) == 0) {
            return (int32_t)table[i].number;
        }
    }
    return LTN_OTLP_SEVERITY_UNSPECIFIED;
}

static size_t incident_attrs(const struct ltn_record_incident *i, struct ltn_otlp_attr *to)
{
    size_t n = 0;
    to[n++] = ltn_otlp_attr_str("lanterne.incident.id", i->id);
    to[n++] = ltn_otlp_attr_str("lanterne.incident.kind", i->kind);
    to[n++] = ltn_otlp_attr_str("lanterne.incident.state", i->state);
    to[n++] = ltn_otlp_attr_int("lanterne.incident.opened_at", (int64_t)i->opened_ns);
    to[n++] = ltn_otlp_attr_int("lanterne.incident.count", (int64_t)i->count);
    if (i->cause != NULL && i->cause[0] != '\0') {
        to[n++] = ltn_otlp_attr_str("lanterne.incident.cause", i->cause);
    }
    if (i->explained_share >= 0) {
        to[n++] = ltn_otlp_attr_double("lanterne.incident.explained_share", i->explained_share);
    }
    if (i->evidence != NULL && i->evidence[0] != '\0') {
        to[n++] = ltn_otlp_attr_str("lanterne.incident.evidence", i->evidence);
    }
    return n;
}

int ltn_push_encode_incident(struct ltn_push_encoder *e, const struct ltn_record_incident *i,
                             ltn_record_emit_fn emit, void *emit_ctx)
{
    struct ltn_otlp_logs_writer w;
    struct ltn_otlp_attr resource[LTN_PUSH_MAX_ATTRS];
    struct ltn_otlp_attr attrs[LTN_PUSH_MAX_ATTRS];
    size_t n = ltn_push_base_attrs(e, resource);
    if (i->pid != 0) {
        resource[n++] = ltn_otlp_attr_int("process.pid", i->pid);
        resource[n++] = ltn_otlp_attr_int("process.creation.time", (int64_t)i->proc_start_ns);
    }
    struct ltn_otlp_log log = {
        .time_ns = i->time_ns,
        .observed_ns = i->time_ns,
        .severity = severity_number(i->severity),
        .severity_text = ltn_otlp_str(i->severity),
        .event_name = ltn_otlp_str("lanterne.incident"),
        .body = {.type = LTN_OTLP_STRING, .str = ltn_otlp_str(i->title)},
        .attrs = {.items = attrs, .n = incident_attrs(i, attrs)},
    };
    ltn_buf_reset(&e->request);
    ltn_otlp_logs_begin(&w, &e->request);
    int rc = ltn_otlp_logs_resource(&w, (struct ltn_otlp_attrs){.items = resource, .n = n});
    if (rc == 0) {
        rc = ltn_otlp_logs_scope(&w, SCOPE_NAME, e->version);
    }
    if (rc == 0) {
        rc = ltn_otlp_logs_record(&w, &log);
    }
    int end = ltn_otlp_logs_end(&w);
    rc = rc < 0 ? rc : end;
    if (rc == 0) {
        rc = emit(emit_ctx, LTN_RECORD_LOGS, e->request.data, e->request.len);
    }
    ltn_buf_reset(&e->request);
    return rc;
}

/* ---- life ---- */

static int make_instance_id(char out[64])
{
    uint64_t random[2];
    if (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random)) {
        return -errno;
    }
    /* A random UUID: RFC 9562, version 4. */
    random[0] = (random[0] & ~0xf000ULL) | 0x4000ULL;
    random[1] = (random[1] & ~(3ULL << 62)) | 1ULL << 63;
    (void)snprintf(out, 64, "%08x-%04x-%04x-%04x-%012" PRIx64, (unsigned)(random[0] >> 32),
                   (unsigned)(random[0] >> 16 & 0xffff), (unsigned)(random[0] & 0xffff),
                   (unsigned)(random[1] >> 48), (uint64_t)(random[1] & 0xffffffffffffULL));
    return 0;
}

static void copy_clean(char *dst, size_t size, const char *src)
{
    ltn_text_clean(dst, size, src != NULL ? src : "", src != NULL ? strlen(src) : 0);
}

int ltn_push_encoder_new(const struct ltn_push_encoder_conf *conf,
                         struct ltn_push_encoder **ret_encoder)
{
    if (conf->node == NULL || conf->node[0] == '\0') {
        return -EINVAL;
    }
    struct ltn_push_encoder *e = calloc(1, sizeof(*e));
    if (e == NULL) {
        return -ENOMEM;
    }
    copy_clean(e->node, sizeof(e->node), conf->node);
    copy_clean(e->cluster, sizeof(e->cluster), conf->cluster);
    copy_clean(e->version, sizeof(e->version), conf->version != NULL ? conf->version : LTN_VERSION);
    copy_clean(e->instance_id, sizeof(e->instance_id), conf->instance_id);
    e->started_ns = conf->started_ns != 0 ? conf->started_ns : ltn_now_unix_ns();
    ltn_map_init(&e->first_seen, MAX_PROCESSES);
    ltn_buf_init(&e->request,
                 conf->max_request_bytes != 0 ? conf->max_request_bytes : DEFAULT_REQUEST_BYTES);
    int rc = e->instance_id[0] == '\0' ? make_instance_id(e->instance_id) : 0;
    if (rc < 0) {
        ltn_push_encoder_free(e);
        return rc;
    }
    *ret_encoder = e;
    return 0;
}

void ltn_push_encoder_free(struct ltn_push_encoder *e)
{
    if (e != NULL) {
        ltn_map_done(&e->first_seen, free);
        ltn_buf_done(&e->request);
        free(e);
    }
}

static int encode_window(void *ctx, const struct ltn_window *w, uint64_t sequence,
                         ltn_record_emit_fn emit, void *emit_ctx)
{
    return ltn_push_encode_window(ctx, w, sequence, emit, emit_ctx);
}

static int encode_incident(void *ctx, const struct ltn_record_incident *i, ltn_record_emit_fn emit,
                           void *emit_ctx)
{
    return ltn_push_encode_incident(ctx, i, emit, emit_ctx);
}

struct ltn_record_encoder ltn_push_record_encoder(struct ltn_push_encoder *e)
{
    return (struct ltn_record_encoder){
        .ctx = e, .window = encode_window, .incident = encode_incident};
}

uint64_t ltn_push_points_dropped(const struct ltn_push_encoder *e)
{
    return atomic_load(&e->points_dropped);
}

const char *ltn_push_encoder_instance(const struct ltn_push_encoder *e)
{
    return e->instance_id;
}
