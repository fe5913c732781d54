/* SPDX-License-Identifier: Apache-2.0 */
/* Points of agents' metrics into the fields of an update. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/text.h"
#include "ingest/internal.h"
#include "otlp/hist_point.h"

static uint64_t as_u64(const struct ltn_otlp_number *p)
{
    if (p->type == LTN_OTLP_INT)
        return p->i > 0 ? (uint64_t)p->i : 0;
    double v = ltn_otlp_number_f64(p);
    return v > 0 && v < 1.8e19 ? (uint64_t)v : 0;
}

/* Longest time of a step that is believed: 1 h. */
#define MAX_STEP_S 3600.0

/* A figure of a step that no window can have. */
static bool plausible(enum ltn_wire_metric metric, double v)
{
    bool is_time = metric == LTN_WIRE_STEP_DURATION || metric == LTN_WIRE_STEP_SELF ||
                   metric == LTN_WIRE_STEP_WAIT || metric == LTN_WIRE_STEP_SPLIT ||
                   metric == LTN_WIRE_PREEMPTOR;
    return isfinite(v) && v >= 0 && (!is_time || v <= MAX_STEP_S);
}

/* Seconds on the wire, which are plausible. */
static double as_ns(const struct ltn_otlp_number *p)
{
    return ltn_otlp_number_f64(p) * 1e9;
}

static void note_time(struct ltn_update_resource *r, const struct ltn_otlp_point *p)
{
    if (p->time_ns > r->end_ns)
        r->end_ns = p->time_ns;
}

/* ---- ops ---- */

static int get_op(struct ltn_decoder *d, struct ltn_otlp_attrs attrs, const char *fallback,
                  struct ltn_update_op **ret)
{
    struct ltn_otlp_str source = ltn_otlp_str(fallback), op = {NULL, 0};
    struct ltn_update_op *o;
    size_t n = 0;
    *ret = NULL;
    (void)ltn_otlp_get_str(attrs, "lanterne.source", &source);
    if (!ltn_otlp_get_str(attrs, "lanterne.op", &op) || op.n == 0)
        return 0;
    const char *source_text = ltn_decode_text(d, source, 16);
    const char *op_text = ltn_decode_text(d, op, 64);
    if (source_text == NULL || op_text == NULL)
        return LTN_ERR_TOO_LARGE;
    for (o = d->resource->ops; o != NULL; o = o->next, n++)
        if (strcmp(o->op, op_text) == 0 && strcmp(o->source, source_text) == 0)
            break;
    if (o == NULL && n < LTN_MAX_OPS) {
        o = ltn_arena_calloc(&d->u->arena, 1, sizeof(*o));
        if (o == NULL)
            return LTN_ERR_TOO_LARGE;
        o->source = source_text;
        o->op = op_text;
        o->next = d->resource->ops;
        d->resource->ops = o;
    }
    *ret = o;
    return 0;
}

static int op_number(struct ltn_decoder *d, const struct ltn_otlp_number *p)
{
    struct ltn_update_op *o = NULL;
    bool nccl = d->metric >= LTN_WIRE_NCCL_COUNT && d->metric <= LTN_WIRE_NCCL_DURATION;
    int rc = get_op(d, p->point.attrs, nccl ? "nccl" : "cuda", &o);
    if (rc != 0 || o == NULL)
        return rc;
    o->has_counts = true;
    if (d->metric == LTN_WIRE_CUDA_COUNT || d->metric == LTN_WIRE_NCCL_COUNT)
        o->calls = as_u64(p);
    else if (d->metric == LTN_WIRE_CUDA_ERRORS || d->metric == LTN_WIRE_NCCL_ERRORS)
        o->errors = as_u64(p);
    else
        o->bytes = as_u64(p);
    return 0;
}

int ltn_decode_agent_histogram(struct ltn_decoder *d, const struct ltn_otlp_exp_histogram *p)
{
    struct ltn_update_op *o = NULL;
    bool nccl = d->metric == LTN_WIRE_NCCL_DURATION;
    note_time(d->resource, &p->point);
    int rc = get_op(d, p->point.attrs, nccl ? "nccl" : "cuda", &o);
    if (rc != 0 || o == NULL)
        return rc;
    struct ltn_exphist h;
    ltn_exphist_init(&h, d->hist_counts, LTN_EXPHIST_FULL_BUCKETS, p->scale);
    if (ltn_otlp_into_exphist(p, &h) != 0)
        return 0;
    o->has_duration = true;
    o->duration_s = isfinite(h.sum) && h.sum > 0 ? h.sum : 0;
    uint64_t above = h.count;
    for (size_t i = 0; i < LTN_DURATION_BOUNDS; i++) {
        double over = ltn_exphist_count_above(&h, ltn_duration_bounds[i]);
        uint64_t now = over > 0 ? (uint64_t)llround(over) : 0;
        now = now < above ? now : above;
        o->buckets[i] = above - now;
        above = now;
    }
    o->buckets[LTN_DURATION_BOUNDS] = above;
    return 0;
}

/* ---- communicators ---- */

static int comm_number(struct ltn_decoder *d, const struct ltn_otlp_number *p)
{
    struct ltn_otlp_str hex;
    char text[20] = "";
    char *end = NULL;
    int64_t rank = -1, size = 0;
    if (!ltn_otlp_get_str(p->point.attrs, "lanterne.comm.id", &hex) || hex.n == 0 || hex.n > 16)
        return 0;
    memcpy(text, hex.p, hex.n);
    uint64_t id = strtoull(text, &end, 16);
    if (end != text + hex.n || text[0] == '-' || text[0] == '+' ||
        !ltn_otlp_get_i64(p->point.attrs, "lanterne.comm.size", &size) || size < 1 ||
        size > 1000000)
        return 0;
    (void)ltn_otlp_get_i64(p->point.attrs, "lanterne.comm.rank", &rank);
    struct ltn_update_comm *c;
    size_t n = 0;
    for (c = d->resource->comms; c != NULL && c->id != id; c = c->next)
        n++;
    if (c == NULL && n < LTN_MAX_COMMS) {
        c = ltn_arena_calloc(&d->u->arena, 1, sizeof(*c));
        if (c == NULL)
            return LTN_ERR_TOO_LARGE;
        c->id = id;
        c->next = d->resource->comms;
        d->resource->comms = c;
    }
    if (c == NULL)
        return 0;
    c->size = (int32_t)size;
    c->rank = rank >= 0 && rank < size ? (int32_t)rank : -1;
    if (d->metric == LTN_WIRE_COMM_SEQUENCE)
        c->sequence = as_u64(p);
    else
        c->bytes = as_u64(p);
    return 0;
}

/* ---- steps ---- */

static void take_preemptor(struct ltn_update_rank *r, const struct ltn_otlp_number *p)
{
    struct ltn_otlp_str comm;
    struct ltn_straggler_preemptor one = {.waited_ns = as_ns(p)};
    if (!ltn_otlp_get_str(p->point.attrs, "lanterne.preemptor.comm", &comm))
        return;
    ltn_text_clean(one.comm, sizeof(one.comm), comm.p, comm.n);
    for (size_t i = 0; i < LTN_STRAGGLER_PREEMPTORS; i++) {
        if (!(one.waited_ns > r->preemptors[i].waited_ns))
            continue;
        struct ltn_straggler_preemptor moved = r->preemptors[i];
        r->preemptors[i] = one;
        one = moved;
    }
}

static void take_part(struct ltn_update_rank *r, const struct ltn_otlp_number *p)
{
    struct ltn_otlp_str state;
    if (!ltn_otlp_get_str(p->point.attrs, "lanterne.state", &state))
        return;
    enum ltn_part part = ltn_part_find(state.p, state.n);
    if (part < LTN_PARTS)
        r->part_ns[part] = as_ns(p);
}

static void step_number(struct ltn_decoder *d, struct ltn_otlp_str name,
                        const struct ltn_otlp_number *p)
{
    struct ltn_update_rank *r = &d->resource->steps;
    struct ltn_otlp_str fault;
    double v = ltn_otlp_number_f64(p);
    if (!plausible(d->metric, v)) {
        ltn_decode_reject(d, name, "implausible figure: not finite, negative or over 1 h");
        return;
    }
    if (d->metric != LTN_WIRE_STEP_COUNT && p->point.start_ns != 0)
        d->resource->start_ns = p->point.start_ns;
    switch (d->metric) {
    case LTN_WIRE_STEP_COUNT:
        r->steps_total = as_u64(p);
        break;
    case LTN_WIRE_STEP_DURATION:
        r->step_ns = as_ns(p);
        break;
    case LTN_WIRE_STEP_SELF:
        r->self_ns = as_ns(p);
        break;
    case LTN_WIRE_STEP_WAIT:
        r->peer_wait_ns = as_ns(p);
        break;
    case LTN_WIRE_STEP_SPLIT:
        take_part(r, p);
        break;
    case LTN_WIRE_STEP_FAULTS:
        if (!ltn_otlp_get_str(p->point.attrs, "lanterne.fault", &fault))
            break;
        if (ltn_otlp_str_eq(fault, "major"))
            r->major_faults = v;
        else
            r->minor_faults = v;
        break;
    case LTN_WIRE_STEP_COVERAGE:
        r->coverage = fmin(1, v);
        break;
    case LTN_WIRE_STEP_COLLECTIVES:
        r->collectives = v;
        break;
    default:
        take_preemptor(r, p);
    }
    r->present = r->step_ns > 0 && r->self_ns > 0;
}

/* ---- GPUs and the agent ---- */

static int get_gpu(struct ltn_decoder *d, struct ltn_otlp_attrs attrs, struct ltn_update_gpu **ret)
{
    const char *uuid = ltn_decode_attr_text(d, attrs, "hw.id", 64);
    struct ltn_update_gpu *g;
    size_t n = 0;
    *ret = NULL;
    if (uuid == NULL)
        return LTN_ERR_TOO_LARGE;
    if (uuid[0] == '\0')
        return 0;
    for (g = d->resource->gpus; g != NULL && strcmp(g->uuid, uuid) != 0; g = g->next)
        n++;
    if (g == NULL && n < LTN_MAX_GPUS) {
        g = ltn_arena_calloc(&d->u->arena, 1, sizeof(*g));
        if (g == NULL)
            return LTN_ERR_TOO_LARGE;
        *g = (struct ltn_update_gpu){
            d->resource->gpus, uuid, "", -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 0, false};
        d->resource->gpus = g;
    }
    *ret = g;
    return 0;
}

static int gpu_number(struct ltn_decoder *d, const struct ltn_otlp_number *p)
{
    struct ltn_update_gpu *g = NULL;
    int rc = get_gpu(d, p->point.attrs, &g);
    if (rc != 0 || g == NULL)
        return rc;
    double v = ltn_otlp_number_f64(p);
    if (!isfinite(v))
        return 0;
    switch (d->metric) {
    case LTN_WIRE_GPU_UTILIZATION: {
        if (p->point.start_ns != 0)
            d->resource->start_ns = p->point.start_ns;
        const char *model = ltn_decode_attr_text(d, p->point.attrs, "hw.model", 64);
        g->utilization = v;
        g->model = model != NULL ? model : "";
        return 0;
    }
    case LTN_WIRE_GPU_MEMORY:
        g->memory_used = v;
        return 0;
    case LTN_WIRE_GPU_MEMORY_LIMIT:
        g->memory_total = v;
        return 0;
    case LTN_WIRE_GPU_POWER:
        g->power_w = v;
        return 0;
    case LTN_WIRE_GPU_TEMPERATURE:
        g->temperature_c = v;
        return 0;
    case LTN_WIRE_GPU_ERRORS:
        g->errors_uncorrected = v;
        return 0;
    case LTN_WIRE_GPU_CLOCK:
        g->clock_hz = v;
        return 0;
    case LTN_WIRE_GPU_CLOCK_LIMIT:
        g->clock_max_hz = v;
        return 0;
    case LTN_WIRE_GPU_REASONS:
        g->clock_reasons = as_u64(p);
        g->has_reasons = true;
        return 0;
    case LTN_WIRE_GPU_PCIE_WIDTH:
        g->pcie_width = v;
        return 0;
    case LTN_WIRE_GPU_PCIE_WIDTH_LIMIT:
        g->pcie_width_max = v;
        return 0;
    case LTN_WIRE_GPU_PCIE_GENERATION:
        g->pcie_generation = v;
        return 0;
    default:
        g->pcie_generation_max = v;
        return 0;
    }
}

static int take_drop(struct ltn_decoder *d, const struct ltn_otlp_number *p)
{
    struct ltn_update_health *h = &d->resource->health;
    const char *reason = ltn_decode_attr_text(d, p->point.attrs, "lanterne.reason", 48);
    struct ltn_update_drop *o;
    size_t n = 0;
    if (reason == NULL)
        return LTN_ERR_TOO_LARGE;
    for (o = h->drops; o != NULL && strcmp(o->reason, reason) != 0; o = o->next)
        n++;
    if (o == NULL && n < LTN_MAX_DROPS) {
        o = ltn_arena_calloc(&d->u->arena, 1, sizeof(*o));
        if (o == NULL)
            return LTN_ERR_TOO_LARGE;
        o->reason = reason;
        o->next = h->drops;
        h->drops = o;
    }
    if (o != NULL)
        o->count = as_u64(p);
    return 0;
}

static int health_number(struct ltn_decoder *d, const struct ltn_otlp_number *p)
{
    struct ltn_update_health *h = &d->resource->health;
    struct ltn_otlp_str outcome = {NULL, 0};
    uint64_t v = as_u64(p);
    h->present = true;
    switch (d->metric) {
    case LTN_WIRE_AGENT_CALLS:
        h->calls = v;
        return 0;
    case LTN_WIRE_AGENT_RECORDS:
        (void)ltn_otlp_get_str(p->point.attrs, "lanterne.outcome", &outcome);
        if (ltn_otlp_str_eq(outcome, "emitted"))
            h->records_emitted = v;
        else if (ltn_otlp_str_eq(outcome, "read"))
            h->records_read = v;
        return 0;
    case LTN_WIRE_AGENT_DROPS:
        return take_drop(d, p);
    case LTN_WIRE_AGENT_PROCESSES:
        h->processes = (uint32_t)v;
        return 0;
    case LTN_WIRE_AGENT_PROBES:
        h->probes = (uint32_t)v;
        return 0;
    case LTN_WIRE_AGENT_MAPS:
        h->map_bytes = v;
        return 0;
    case LTN_WIRE_AGENT_CPU:
        h->cpu_seconds = ltn_otlp_number_f64(p);
        return 0;
    default:
        h->rss_bytes = v;
        return 0;
    }
}

int ltn_decode_agent_number(struct ltn_decoder *d, const struct ltn_otlp_metric *m,
                            const struct ltn_otlp_number *p, bool *ret_expose)
{
    struct ltn_update_resource *r = d->resource;
    *ret_expose = d->metric == LTN_WIRE_OTHER || !r->is_process;
    note_time(r, &p->point);
    if (p->type == LTN_OTLP_NONE || (p->point.flags & LTN_OTLP_NO_RECORDED_VALUE) != 0) {
        *ret_expose = false;
        return 0;
    }
    if (r->is_process) {
        if (d->metric >= LTN_WIRE_CUDA_COUNT && d->metric <= LTN_WIRE_NCCL_IO)
            return op_number(d, p);
        if (d->metric == LTN_WIRE_COMM_SEQUENCE || d->metric == LTN_WIRE_COMM_IO)
            return comm_number(d, p);
        if (d->metric >= LTN_WIRE_STEP_COUNT && d->metric <= LTN_WIRE_PREEMPTOR)
            step_number(d, m->name, p);
        return 0;
    }
    if (d->metric >= LTN_WIRE_GPU_UTILIZATION && d->metric <= LTN_WIRE_GPU_PCIE_GENERATION_LIMIT)
        return gpu_number(d, p);
    if (d->metric >= LTN_WIRE_AGENT_CALLS)
        return health_number(d, p);
    return 0;
}
