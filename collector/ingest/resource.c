/* SPDX-License-Identifier: Apache-2.0 */
/* Resources: which are an agent's node or process, and how anybody's are called in Prometheus. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/text.h"
#include "ingest/internal.h"
#include "ingest/labels.h"

const char *ltn_decode_text(struct ltn_decoder *d, struct ltn_otlp_str s, size_t max)
{
    char *out;
    size_t n = s.n < max - 1 ? s.n : max - 1;
    if (n == 0)
        return "";
    out = ltn_arena_alloc(&d->u->arena, n + 1);
    if (out != NULL)
        ltn_text_clean(out, n + 1, s.p, s.n);
    return out;
}

const char *ltn_decode_attr_text(struct ltn_decoder *d, struct ltn_otlp_attrs attrs,
                                 const char *key, size_t max)
{
    struct ltn_otlp_str s;
    return ltn_otlp_get_str(attrs, key, &s) ? ltn_decode_text(d, s, max) : "";
}

static int64_t attr_i64(struct ltn_otlp_attrs attrs, const char *key, int64_t missing)
{
    int64_t v;
    return ltn_otlp_get_i64(attrs, key, &v) ? v : missing;
}

static int32_t attr_i32(struct ltn_otlp_attrs attrs, const char *key)
{
    int64_t v = attr_i64(attrs, key, -1);
    return v >= 0 && v <= INT32_MAX ? (int32_t)v : -1;
}

static bool fill(struct ltn_decoder *d, struct ltn_otlp_attrs a, struct ltn_update_resource *r)
{
    int64_t pid = attr_i64(a, "process.pid", -1);
    int64_t start = attr_i64(a, "process.creation.time", 0);
    int64_t sequence = attr_i64(a, "lanterne.window.sequence", -1);
    r->node = ltn_decode_attr_text(d, a, "host.name", LTN_NAME_BYTES);
    r->cluster = ltn_decode_attr_text(d, a, "lanterne.cluster", LTN_NAME_BYTES);
    r->instance = ltn_decode_attr_text(d, a, "service.instance.id", 64);
    r->version = ltn_decode_attr_text(d, a, "service.version", 48);
    r->has_sequence = sequence >= 0;
    r->sequence = sequence >= 0 ? (uint64_t)sequence : 0;
    r->is_process = pid > 0 && pid <= UINT32_MAX;
    r->pid = r->is_process ? (uint32_t)pid : 0;
    r->proc_start_ns = start > 0 ? (uint64_t)start : 0;
    r->comm = ltn_decode_attr_text(d, a, "process.command", 32);
    r->job = ltn_decode_attr_text(d, a, "lanterne.job", LTN_STRAGGLER_JOB_BYTES);
    r->rank = attr_i32(a, "lanterne.rank");
    r->world_size = attr_i32(a, "lanterne.world_size");
    r->local_rank = attr_i32(a, "lanterne.local_rank");
    r->gpu_uuid = ltn_decode_attr_text(d, a, "hw.id", 64);
    return r->node != NULL && r->cluster != NULL && r->instance != NULL && r->version != NULL &&
           r->comm != NULL && r->job != NULL && r->gpu_uuid != NULL;
}

/* The update's resource of that identity, so that pieces of one window come together. */
static int agent_resource(struct ltn_decoder *d, struct ltn_otlp_attrs attrs)
{
    struct ltn_update_resource r = {.next = NULL};
    char key[2 * LTN_NAME_BYTES + 128];
    if (!fill(d, attrs, &r))
        return LTN_ERR_TOO_LARGE;
    if (r.node[0] == '\0')
        return 0;
    if (r.cluster[0] == '\0' && d->only_cluster != NULL)
        r.cluster = d->only_cluster;
    int n = snprintf(key, sizeof(key), "%s\x1f%s\x1f%u\x1f%llu\x1f%llu", r.node, r.instance, r.pid,
                     (unsigned long long)r.proc_start_ns, (unsigned long long)r.sequence);
    if (n <= 0 || (size_t)n >= sizeof(key))
        return LTN_ERR_TOO_LARGE;
    d->resource = ltn_map_get_str(&d->resources, key);
    if (d->resource != NULL)
        return 0;
    struct ltn_update_resource *o = ltn_arena_alloc(&d->u->arena, sizeof(*o));
    if (o == NULL)
        return LTN_ERR_TOO_LARGE;
    *o = r;
    o->steps.step_ns = o->steps.self_ns = -1;
    o->steps.coverage = 1;
    int rc = ltn_map_put_str(&d->resources, key, o);
    if (rc != 0)
        return rc;
    o->next = d->u->resources;
    d->u->resources = o;
    d->u->resource_count++;
    d->resource = o;
    return 0;
}

static void put_text(struct ltn_buf *b, const char *name, struct ltn_otlp_str s)
{
    if (b->len > 0)
        (void)ltn_buf_putc(b, ',');
    ltn_prom_put_label(b, name, s.p, s.n < LTN_LABEL_VALUE_MAX ? s.n : LTN_LABEL_VALUE_MAX);
}

/* instance and job, sorted; an agent's instance is its node, so that a restart makes no new series.
 */
static void target_labels(struct ltn_decoder *d, struct ltn_otlp_attrs a)
{
    struct ltn_otlp_str name = {NULL, 0}, space = {NULL, 0}, instance = {NULL, 0};
    char job[2 * LTN_LABEL_VALUE_MAX];
    (void)ltn_otlp_get_str(a, "service.name", &name);
    (void)ltn_otlp_get_str(a, "service.namespace", &space);
    (void)ltn_otlp_get_str(a, "service.instance.id", &instance);
    if (d->resource != NULL)
        instance = ltn_otlp_str(d->resource->node);
    int name_n = (int)(name.n < 200 ? name.n : 200), space_n = (int)(space.n < 200 ? space.n : 200);
    int n = space.n > 0 ? snprintf(job, sizeof(job), "%.*s/%.*s", space_n, space.p, name_n,
                                   name.p != NULL ? name.p : "")
                        : snprintf(job, sizeof(job), "%.*s", name_n, name.p != NULL ? name.p : "");
    ltn_buf_reset(&d->target);
    if (instance.n > 0)
        put_text(&d->target, "instance", instance);
    if (n > 0)
        put_text(&d->target, "job", ltn_otlp_str(job));
}

/* What a client's resource says of itself, once per job and instance: target_info. */
static int target_info(struct ltn_decoder *d, struct ltn_otlp_attrs a, struct ltn_series_key key,
                       ltn_series_ref *ret)
{
    static const char *const said[] = {"service.name", "service.namespace", "service.instance.id"};
    struct ltn_otlp_attr rest[LTN_LABELS_MAX];
    struct ltn_otlp_attrs others = {rest, 0};
    for (size_t i = 0; i < a.n && others.n < LTN_LABELS_MAX; i++) {
        bool known = false;
        for (size_t k = 0; k < LTN_ARRAY_SIZE(said); k++)
            known = known || ltn_otlp_str_eq(a.items[i].key, said[k]);
        if (!known)
            rest[others.n++] = a.items[i];
    }
    if (others.n == 0 || d->target.len == 0)
        return 0;
    ltn_buf_reset(&d->labels);
    ltn_labels_put_point(&d->labels, others, false);
    if (ltn_buf_error(&d->labels) != 0) /* too long to be of use */
        return 0;
    const struct ltn_series_desc desc = {.family = "target_info",
                                         .type = LTN_PROM_INFO,
                                         .help = "Attributes of the resource.",
                                         .scope_labels = ltn_buf_str(&d->target),
                                         .labels = ltn_buf_str(&d->labels)};
    int rc = ltn_decode_resolve(d, &desc, key, ret);
    return rc == -ENOMEM ? rc : 0; /* refusals are the table's counters */
}

/* A client's: known by its bytes, if it came before. */
static int client_resource(struct ltn_decoder *d, const struct ltn_otlp_group *g)
{
    static const char info[] = "target_info";
    struct ltn_series_sample v = {.value = 1, .ref = 0};
    struct ltn_series_key key = {0, 0};
    if (g->resource_raw.p != NULL) {
        d->resource_context =
            ltn_series_context(d->series, 0, g->resource_raw.p, g->resource_raw.n);
        key = ltn_series_key(d->series, d->resource_context, info, sizeof(info));
        v.ref = ltn_decode_find(d, key);
        ltn_decode_unlock(d);
    } else {
        d->resource_context = ltn_series_context(d->series, 0, d->target.data, d->target.len);
    }
    int rc = v.ref == 0 ? target_info(d, g->resource, key, &v.ref) : 0;
    ltn_decode_unlock(d);
    return rc == 0 && v.ref != 0 ? ltn_decode_stage(d, &v) : rc;
}

int ltn_decode_resource(struct ltn_decoder *d, const struct ltn_otlp_group *g)
{
    if (d->have_resource && d->resource_index == g->resource_index)
        return 0;
    struct ltn_otlp_str service;
    d->have_resource = true;
    d->resource_index = g->resource_index;
    d->resource = NULL;
    d->have_scope = false;
    int rc = ltn_decode_check_cluster(d, g->resource);
    if (rc == 0 && ltn_otlp_get_str(g->resource, "service.name", &service) &&
        ltn_otlp_str_eq(service, "lanterne-agent"))
        rc = agent_resource(d, g->resource);
    if (rc != 0)
        return rc;
    target_labels(d, g->resource);
    if (d->resource == NULL)
        return client_resource(d, g);
    /* Its bytes change with every window. */
    d->resource_context = ltn_series_context(d->series, 1, d->target.data, d->target.len);
    return 0;
}
