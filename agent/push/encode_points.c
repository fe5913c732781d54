/* SPDX-License-Identifier: Apache-2.0 */
/* The metrics of the node and of a process. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "otlp/hist_point.h"
#include "probe/ops.h"
#include "push/encode_int.h"

#define NS 1e-9

/* The times of a point, with its attributes. */
struct ltn_otlp_point ltn_push_point(const struct ltn_encoding *en, uint64_t start_ns,
                                     const struct ltn_otlp_attr *attrs, size_t n)
{
    return (struct ltn_otlp_point){
        .attrs = {.items = attrs, .n = n}, .start_ns = start_ns, .time_ns = en->window->end_ns};
}

int ltn_push_int(struct ltn_encoding *en, const struct ltn_otlp_point *p, uint64_t v)
{
    struct ltn_otlp_number n = {
        .point = *p, .type = LTN_OTLP_INT, .i = v > INT64_MAX ? INT64_MAX : (int64_t)v};
    return ltn_push_number(en, &n);
}

int ltn_push_double(struct ltn_encoding *en, const struct ltn_otlp_point *p, double v)
{
    struct ltn_otlp_number n = {.point = *p, .type = LTN_OTLP_DOUBLE, .d = v};
    return ltn_push_number(en, &n);
}

/* One metric with one point. */
static int one_int(struct ltn_encoding *en, const char *name, const char *unit,
                   enum ltn_otlp_kind kind, const struct ltn_otlp_point *p, uint64_t v)
{
    int rc = ltn_push_metric(en, name, unit, kind);
    return rc < 0 ? rc : ltn_push_int(en, p, v);
}

static int one_double(struct ltn_encoding *en, const char *name, const char *unit,
                      const struct ltn_otlp_point *p, double v)
{
    int rc = ltn_push_metric(en, name, unit, LTN_OTLP_GAUGE);
    return rc < 0 ? rc : ltn_push_double(en, p, v);
}

/* ---- the node ---- */

struct gpu_metric {
    const char *name;
    const char *unit;
    size_t offset; /* of a double or an int in struct ltn_gpu_window */
    bool is_int;
    bool with_model;
    bool with_type;
};

static double gpu_value(const struct ltn_gpu_window *g, const struct gpu_metric *m)
{
    const char *at = (const char *)g + m->offset;
    if (m->is_int) {
        int v;
        memcpy(&v, at, sizeof(v));
        return v;
    }
    double v;
    memcpy(&v, at, sizeof(v));
    return v;
}

static size_t gpu_attrs(const struct ltn_gpu_window *g, const struct gpu_metric *m,
                        struct ltn_otlp_attr *to)
{
    size_t n = 0;
    to[n++] = ltn_otlp_attr_str("hw.id", g->uuid);
    if (m->with_model) {
        to[n++] = ltn_otlp_attr_str("hw.model", g->model);
    }
    if (m->with_type) {
        to[n++] = ltn_otlp_attr_str("hw.type", "gpu");
    }
    return n;
}

/* Values that could not be read are negative and are not sent. */
static int put_gpu_metric(struct ltn_encoding *en, const struct gpu_metric *m)
{
    const struct ltn_window *w = en->window;
    bool open = false;
    int rc = 0;
    for (size_t i = 0; i < w->gpu_count && rc == 0; i++) {
        struct ltn_otlp_attr attrs[3];
        double v = gpu_value(&w->gpus[i], m);
        if (!(v >= 0)) {
            continue;
        }
        if (!open) {
            open = true;
            rc = ltn_push_metric(en, m->name, m->unit, LTN_OTLP_GAUGE);
        }
        if (rc == 0) {
            struct ltn_otlp_point p =
                ltn_push_point(en, w->start_ns, attrs, gpu_attrs(&w->gpus[i], m, attrs));
            rc = m->is_int ? ltn_push_int(en, &p, (uint64_t)v) : ltn_push_double(en, &p, v);
        }
    }
    return rc;
}

static int put_gpu_reasons(struct ltn_encoding *en)
{
    const struct ltn_window *w = en->window;
    int rc = ltn_push_metric(en, "lanterne.gpu.clock.reasons", "1", LTN_OTLP_GAUGE);
    for (size_t i = 0; i < w->gpu_count && rc == 0; i++) {
        struct ltn_otlp_attr attr = ltn_otlp_attr_str("hw.id", w->gpus[i].uuid);
        struct ltn_otlp_point p = ltn_push_point(en, w->start_ns, &attr, 1);
        rc = ltn_push_int(en, &p, w->gpus[i].throttle_reasons);
    }
    return rc;
}

static int put_gpu_errors(struct ltn_encoding *en)
{
    const struct ltn_window *w = en->window;
    int rc = ltn_push_metric(en, "hw.errors", "{error}", LTN_OTLP_SUM);
    for (size_t i = 0; i < w->gpu_count && rc == 0; i++) {
        const struct ltn_gpu_window *g = &w->gpus[i];
        const struct ltn_otlp_attr attrs[] = {ltn_otlp_attr_str("hw.id", g->uuid),
                                              ltn_otlp_attr_str("hw.type", "gpu"),
                                              ltn_otlp_attr_str("error.type", "uncorrected")};
        struct ltn_otlp_point p =
            ltn_push_point(en, en->e->started_ns, attrs, LTN_ARRAY_SIZE(attrs));
        if (g->ecc_uncorrected >= 0) {
            rc = ltn_push_int(en, &p, (uint64_t)g->ecc_uncorrected);
        }
    }
    return rc;
}

static int put_gpus(struct ltn_encoding *en)
{
#define GPU(f) offsetof(struct ltn_gpu_window, f)
    static const struct gpu_metric metrics[] = {
        {"hw.gpu.utilization", "1", GPU(utilization), false, true, false},
        {"hw.gpu.memory.usage", "By", GPU(memory_used_bytes), false, false, false},
        {"hw.gpu.memory.limit", "By", GPU(memory_total_bytes), false, false, false},
        {"hw.power", "W", GPU(power_w), false, false, true},
        {"hw.temperature", "Cel", GPU(temperature_c), false, false, true},
        {"lanterne.gpu.clock.frequency", "Hz", GPU(sm_clock_hz), false, false, false},
        {"lanterne.gpu.clock.limit", "Hz", GPU(sm_clock_max_hz), false, false, false},
        {"lanterne.gpu.pcie.width", "{lane}", GPU(pcie_width), true, false, false},
        {"lanterne.gpu.pcie.width.limit", "{lane}", GPU(pcie_width_max), true, false, false},
        {"lanterne.gpu.pcie.generation", "1", GPU(pcie_generation), true, false, false},
        {"lanterne.gpu.pcie.generation.limit", "1", GPU(pcie_generation_max), true, false, false},
    };
#undef GPU
    int rc = 0;
    for (size_t i = 0; i < LTN_ARRAY_SIZE(metrics) && rc == 0; i++) {
        rc = put_gpu_metric(en, &metrics[i]);
    }
    if (rc == 0) {
        rc = put_gpu_errors(en);
    }
    return rc < 0 ? rc : put_gpu_reasons(en);
}

static int put_records(struct ltn_encoding *en, const struct ltn_agent_health *h)
{
    const struct {
        const char *outcome;
        uint64_t v;
    } outcomes[] = {{"emitted", h->records_emitted}, {"read", h->records_read}};
    int rc = ltn_push_metric(en, "lanterne.agent.records", "{record}", LTN_OTLP_SUM);
    for (size_t i = 0; i < LTN_ARRAY_SIZE(outcomes) && rc == 0; i++) {
        struct ltn_otlp_attr attr = ltn_otlp_attr_str("lanterne.outcome", outcomes[i].outcome);
        struct ltn_otlp_point p = ltn_push_point(en, en->e->started_ns, &attr, 1);
        rc = ltn_push_int(en, &p, outcomes[i].v);
    }
    return rc;
}

static int put_drop(struct ltn_encoding *en, const char *reason, uint64_t v)
{
    struct ltn_otlp_attr attr = ltn_otlp_attr_str("lanterne.reason", reason);
    struct ltn_otlp_point p = ltn_push_point(en, en->e->started_ns, &attr, 1);
    return ltn_push_int(en, &p, v);
}

static int put_drops(struct ltn_encoding *en, const struct ltn_agent_health *h)
{
    int rc = ltn_push_metric(en, "lanterne.agent.drops", "{record}", LTN_OTLP_SUM);
    for (unsigned i = 0; i < LTN_DROPS && rc == 0; i++) {
        rc = put_drop(en, ltn_record_kernel_drop_name((enum ltn_drop)i), h->drops[i]);
    }
    if (rc == 0) {
        rc = put_drop(en, "windows", h->windows_dropped);
    }
    if (rc == 0) {
        rc = put_drop(en, "stacks", h->coverage.stacks_refused);
    }
    return rc < 0 ? rc : put_drop(en, "records", h->records_dropped);
}

/* What tracing costs and what was turned down for that. Shares that are not known are left out. */
static int put_price(struct ltn_encoding *en, const struct ltn_otlp_point *sum,
                     const struct ltn_otlp_point *gauge, const struct ltn_price_health *p)
{
    int rc = one_int(en, "lanterne.agent.detail", "1", LTN_OTLP_GAUGE, gauge, p->detail);
    if (rc == 0) {
        rc = one_int(en, "lanterne.agent.thinning", "1", LTN_OTLP_GAUGE, gauge, p->thin);
    }
    if (rc == 0) {
        rc = one_int(en, "lanterne.agent.records.thinned", "{record}", LTN_OTLP_SUM, sum,
                     p->thinned);
    }
    if (rc == 0 && p->probe_share >= 0.0) {
        rc = one_double(en, "lanterne.agent.probe.share", "1", gauge, p->probe_share);
    }
    if (rc == 0 && p->own_share >= 0.0) {
        rc = one_double(en, "lanterne.agent.cpu.share", "1", gauge, p->own_share);
    }
    if (rc == 0 && p->pair_ns > 0.0) {
        rc = one_double(en, "lanterne.agent.probe.duration", "s", gauge, p->pair_ns * NS);
    }
    return rc;
}

static int put_files(struct ltn_encoding *en, const struct ltn_coverage *c)
{
    const struct {
        const char *state;
        uint64_t v;
    } states[] = {{"attached", c->files}, {"unattached", c->files_unattached}};
    int rc = ltn_push_metric(en, "lanterne.agent.files", "{file}", LTN_OTLP_GAUGE);
    for (size_t i = 0; i < LTN_ARRAY_SIZE(states) && rc == 0; i++) {
        struct ltn_otlp_attr attr = ltn_otlp_attr_str("lanterne.state", states[i].state);
        struct ltn_otlp_point p = ltn_push_point(en, en->window->start_ns, &attr, 1);
        rc = ltn_push_int(en, &p, states[i].v);
    }
    return rc;
}

/* What the probes do not cover. */
static int put_coverage(struct ltn_encoding *en, const struct ltn_coverage *c)
{
    struct ltn_otlp_point sum = ltn_push_point(en, en->e->started_ns, NULL, 0);
    struct ltn_otlp_point gauge = ltn_push_point(en, en->window->start_ns, NULL, 0);
    int rc = put_files(en, c);
    if (rc == 0) {
        rc = one_int(en, "lanterne.agent.processes.hidden", "{process}", LTN_OTLP_GAUGE, &gauge,
                     c->hidden_processes);
    }
    if (rc == 0) {
        rc = one_int(en, "lanterne.agent.processes.silent", "{process}", LTN_OTLP_GAUGE, &gauge,
                     c->silent_processes);
    }
    if (rc == 0) {
        rc = one_int(en, "lanterne.agent.silences", "{process}", LTN_OTLP_SUM, &sum,
                     c->silent_total);
    }
    if (rc == 0) {
        rc = ltn_push_metric(en, "lanterne.agent.attach.delay", "s", LTN_OTLP_GAUGE);
    }
    return rc < 0 ? rc : ltn_push_double(en, &gauge, (double)c->attach_delay_max_ns / 1e9);
}

static int put_health(struct ltn_encoding *en, const struct ltn_agent_health *h)
{
    struct ltn_otlp_point sum = ltn_push_point(en, en->e->started_ns, NULL, 0);
    struct ltn_otlp_point gauge = ltn_push_point(en, en->window->start_ns, NULL, 0);
    int rc = one_int(en, "lanterne.agent.calls", "{call}", LTN_OTLP_SUM, &sum, h->calls_seen);
    if (rc == 0) {
        rc = put_records(en, h);
    }
    if (rc == 0) {
        rc = put_drops(en, h);
    }
    if (rc == 0) {
        rc = one_int(en, "lanterne.agent.processes", "1", LTN_OTLP_GAUGE, &gauge,
                     h->traced_processes);
    }
    if (rc == 0) {
        rc = one_int(en, "lanterne.agent.probes", "1", LTN_OTLP_GAUGE, &gauge, h->attached_probes);
    }
    if (rc == 0) {
        rc = put_coverage(en, &h->coverage);
    }
    if (rc == 0) {
        rc = one_int(en, "lanterne.agent.map.size", "By", LTN_OTLP_GAUGE, &gauge, h->map_bytes);
    }
    if (rc == 0) {
        rc = ltn_push_metric(en, "process.cpu.time", "s", LTN_OTLP_SUM);
    }
    if (rc == 0) {
        rc = ltn_push_double(en, &sum, h->cpu_seconds);
    }
    if (rc == 0) {
        rc = one_int(en, "process.memory.usage", "By", LTN_OTLP_GAUGE, &gauge, h->rss_bytes);
    }
    return rc < 0 ? rc : put_price(en, &sum, &gauge, &h->price);
}

int ltn_push_node(struct ltn_encoding *en)
{
    en->resource_n = ltn_push_base_attrs(en->e, en->resource);
    en->resource[en->resource_n++] =
        ltn_otlp_attr_int("lanterne.window.sequence", (int64_t)en->sequence);
    int rc = ltn_push_resource(en);
    if (rc == 0 && en->window->gpu_count > 0) {
        rc = put_gpus(en);
    }
    if (rc == 0) {
        rc = ltn_push_host(en);
    }
    return rc < 0 ? rc : put_health(en, &en->window->health);
}

/* ---- operations of a process ---- */

enum op_metric { OP_COUNT, OP_ERRORS, OP_IO, OP_REPLAYED, OP_DURATION, OP_METRICS };

static int put_op_duration(struct ltn_encoding *en, const struct ltn_otlp_point *at,
                           const struct ltn_op_window *o)
{
    struct ltn_exphist h;
    struct ltn_otlp_exp_histogram p = {0};
    if (o->hist_total == NULL) {
        return 0;
    }
    ltn_exphist_init(&h, en->e->hist_storage, LTN_EXPHIST_FULL_BUCKETS, LTN_EXPHIST_KERNEL_SCALE);
    ltn_exphist_add_kernel(&h, o->hist_total, LTN_HIST_BUCKETS, o->duration_total_ns);
    if (h.count == 0) {
        return 0;
    }
    ltn_otlp_from_exphist(&h, &p);
    p.point = *at;
    /* The kernel keeps the exact longest, the buckets only its neighbourhood; the shortest is not
     * kept. */
    p.has_max = o->max_ns > 0;
    p.max = (double)o->max_ns * NS;
    p.has_min = false;
    p.min = 0;
    return ltn_push_exp_histogram(en, &p);
}

static int put_op(struct ltn_encoding *en, enum op_metric which, const struct ltn_otlp_point *at,
                  const struct ltn_op_window *o)
{
    switch (which) {
    case OP_COUNT:
        return ltn_push_int(en, at, o->calls_total);
    case OP_ERRORS:
        return ltn_push_int(en, at, o->errors_total);
    case OP_IO:
        return o->bytes_total > 0 ? ltn_push_int(en, at, o->bytes_total) : 0;
    case OP_REPLAYED:
        return o->replayed_total > 0 ? ltn_push_int(en, at, o->replayed_total) : 0;
    case OP_DURATION:
        return put_op_duration(en, at, o);
    case OP_METRICS:
        break;
    }
    return 0;
}

static int put_op_metric(struct ltn_encoding *en, const struct ltn_proc_window *p, bool nccl,
                         enum op_metric which, uint64_t start_ns)
{
    static const struct {
        const char *name[2]; /* cuda, nccl */
        const char *unit;
        enum ltn_otlp_kind kind;
    } metrics[OP_METRICS] = {
        [OP_COUNT] = {{"gpu.cuda.operation.count", "gpu.nccl.operation.count"},
                      "{call}",
                      LTN_OTLP_SUM},
        [OP_ERRORS] = {{"gpu.cuda.operation.errors", "gpu.nccl.operation.errors"},
                       "{call}",
                       LTN_OTLP_SUM},
        [OP_IO] = {{"gpu.cuda.operation.io", "gpu.nccl.operation.io"}, "By", LTN_OTLP_SUM},
        [OP_REPLAYED] = {{"gpu.cuda.operation.replayed", "gpu.nccl.operation.replayed"},
                         "{call}",
                         LTN_OTLP_SUM},
        [OP_DURATION] = {{"gpu.cuda.operation.duration", "gpu.nccl.operation.duration"},
                         "s",
                         LTN_OTLP_EXP_HISTOGRAM},
    };
    bool open = false;
    int rc = 0;
    for (size_t i = 0; i < p->op_count && rc == 0; i++) {
        const struct ltn_op *op = ltn_op_get(p->ops[i].op);
        if (op == NULL || (op->source == LTN_OP_SOURCE_NCCL) != nccl) {
            continue;
        }
        if (!open) {
            open = true;
            rc = ltn_push_metric(en, metrics[which].name[nccl], metrics[which].unit,
                                 metrics[which].kind);
        }
        if (rc == 0) {
            const struct ltn_otlp_attr attrs[] = {
                ltn_otlp_attr_str("lanterne.source", ltn_op_source_name(op->source)),
                ltn_otlp_attr_str("lanterne.op", op->name)};
            struct ltn_otlp_point at = ltn_push_point(en, start_ns, attrs, LTN_ARRAY_SIZE(attrs));
            rc = put_op(en, which, &at, &p->ops[i]);
        }
    }
    return rc;
}

static int put_ops(struct ltn_encoding *en, const struct ltn_proc_window *p, uint64_t start_ns)
{
    int rc = 0;
    for (int nccl = 0; nccl < 2; nccl++) {
        for (int which = 0; which < OP_METRICS && rc == 0; which++) {
            rc = put_op_metric(en, p, nccl != 0, (enum op_metric)which, start_ns);
        }
    }
    return rc;
}

/* ---- communicators ---- */

static int put_comms(struct ltn_encoding *en, const struct ltn_proc_window *p, uint64_t start_ns,
                     bool bytes)
{
    int rc =
        bytes ? ltn_push_metric(en, "gpu.nccl.communicator.io", "By", LTN_OTLP_SUM)
              : ltn_push_metric(en, "gpu.nccl.communicator.sequence", "{operation}", LTN_OTLP_SUM);
    for (size_t i = 0; i < p->comm_count && rc == 0; i++) {
        const struct ltn_comm_window *c = &p->comms[i];
        char id[17];
        (void)snprintf(id, sizeof(id), "%016" PRIx64, c->comm_id);
        const struct ltn_otlp_attr attrs[] = {ltn_otlp_attr_str("lanterne.comm.id", id),
                                              ltn_otlp_attr_int("lanterne.comm.rank", c->rank),
                                              ltn_otlp_attr_int("lanterne.comm.size", c->ranks)};
        struct ltn_otlp_point at = ltn_push_point(en, start_ns, attrs, LTN_ARRAY_SIZE(attrs));
        rc = ltn_push_int(en, &at, bytes ? c->bytes_total : c->sequence_total);
    }
    return rc;
}

/* ---- steps ---- */

static int put_split(struct ltn_encoding *en, const struct ltn_rank_window *r)
{
    int rc = ltn_push_metric(en, "lanterne.step.split", "s", LTN_OTLP_GAUGE);
    for (unsigned i = 0; i < LTN_SPLITS && rc == 0; i++) {
        struct ltn_otlp_attr attr =
            ltn_otlp_attr_str("lanterne.state", ltn_split_name((enum ltn_split)i));
        struct ltn_otlp_point p = ltn_push_point(en, en->window->start_ns, &attr, 1);
        rc = ltn_push_double(en, &p, r->split_ns[i] * NS);
    }
    return rc;
}

static int put_faults(struct ltn_encoding *en, const struct ltn_rank_window *r)
{
    const struct {
        const char *name;
        double v;
    } faults[] = {{"major", r->major_faults}, {"minor", r->minor_faults}};
    int rc = ltn_push_metric(en, "lanterne.step.faults", "{fault}", LTN_OTLP_GAUGE);
    for (size_t i = 0; i < LTN_ARRAY_SIZE(faults) && rc == 0; i++) {
        struct ltn_otlp_attr attr = ltn_otlp_attr_str("lanterne.fault", faults[i].name);
        struct ltn_otlp_point p = ltn_push_point(en, en->window->start_ns, &attr, 1);
        rc = ltn_push_double(en, &p, faults[i].v);
    }
    return rc;
}

static int put_preemptors(struct ltn_encoding *en, const struct ltn_rank_window *r)
{
    int rc = r->preemptors[0].waited_ns > 0
                 ? ltn_push_metric(en, "lanterne.preemptor.time", "s", LTN_OTLP_GAUGE)
                 : 0;
    for (size_t i = 0; i < LTN_PREEMPTORS && rc == 0; i++) {
        const struct ltn_preemptor *q = &r->preemptors[i];
        char comm[LTN_COMM_BYTES + 1];
        if (q->waited_ns == 0) {
            break;
        }
        ltn_text_clean(comm, sizeof(comm), q->comm, strnlen(q->comm, LTN_COMM_BYTES));
        const struct ltn_otlp_attr attrs[] = {
            ltn_otlp_attr_str("lanterne.preemptor.comm", comm),
            ltn_otlp_attr_int("lanterne.preemptor.pid", q->tgid),
            ltn_otlp_attr_int("lanterne.preemptor.cgroup", (int64_t)q->cgroup_id)};
        struct ltn_otlp_point p =
            ltn_push_point(en, en->window->start_ns, attrs, LTN_ARRAY_SIZE(attrs));
        rc = ltn_push_double(en, &p, (double)q->waited_ns * NS / r->steps);
    }
    return rc;
}

static int put_steps(struct ltn_encoding *en, const struct ltn_rank_window *r, uint64_t start_ns)
{
    struct ltn_otlp_point sum = ltn_push_point(en, start_ns, NULL, 0);
    struct ltn_otlp_point gauge = ltn_push_point(en, en->window->start_ns, NULL, 0);
    const struct {
        const char *name;
        const char *unit;
        double v;
    } gauges[] = {{"lanterne.step.duration", "s", r->step_ns * NS},
                  {"lanterne.step.self_time", "s", r->self_ns * NS},
                  {"lanterne.step.peer_wait", "s", r->peer_wait_ns * NS},
                  {"lanterne.step.coverage", "1", r->coverage}};
    int rc = one_int(en, "lanterne.step.count", "{step}", LTN_OTLP_SUM, &sum, r->steps_total);
    for (size_t i = 0; i < LTN_ARRAY_SIZE(gauges) && rc == 0; i++) {
        rc = one_double(en, gauges[i].name, gauges[i].unit, &gauge, gauges[i].v);
    }
    if (rc == 0) {
        rc = one_int(en, "lanterne.step.collectives", "{operation}", LTN_OTLP_GAUGE, &gauge,
                     r->collectives_per_step);
    }
    if (rc == 0) {
        rc = put_split(en, r);
    }
    if (rc == 0) {
        rc = put_faults(en, r);
    }
    return rc < 0 ? rc : put_preemptors(en, r);
}

/* ---- a process ---- */

static void add_known(struct ltn_encoding *en, const char *key, int64_t v, int64_t least)
{
    if (v >= least) {
        en->resource[en->resource_n++] = ltn_otlp_attr_int(key, v);
    }
}

static void proc_resource(struct ltn_encoding *en, const struct ltn_proc_window *p)
{
    const struct ltn_window *w = en->window;
    const char *comm = p->comm != NULL ? p->comm : "";
    const char *job = p->job != NULL ? p->job : "";
    ltn_text_clean(en->command, sizeof(en->command), comm, strlen(comm));
    ltn_text_clean(en->job, sizeof(en->job), job, strlen(job));
    en->resource_n = ltn_push_base_attrs(en->e, en->resource);
    add_known(en, "lanterne.window.sequence", (int64_t)en->sequence, 0);
    add_known(en, "process.pid", p->pid, 0);
    add_known(en, "process.creation.time", (int64_t)p->start_ns, 0);
    en->resource[en->resource_n++] = ltn_otlp_attr_str("process.command", en->command);
    if (en->job[0] != '\0') {
        en->resource[en->resource_n++] = ltn_otlp_attr_str("lanterne.job", en->job);
    }
    add_known(en, "lanterne.rank", p->rank, 0);
    add_known(en, "lanterne.world_size", p->world_size, 1);
    add_known(en, "lanterne.local_rank", p->local_rank, 0);
    if (p->gpu >= 0 && (size_t)p->gpu < w->gpu_count) {
        en->resource[en->resource_n++] = ltn_otlp_attr_str("hw.id", w->gpus[p->gpu].uuid);
    }
}

int ltn_push_proc(struct ltn_encoding *en, const struct ltn_proc_window *p)
{
    uint64_t start_ns = ltn_push_first_seen(en->e, en->window, p);
    proc_resource(en, p);
    _Static_assert(LTN_PUSH_MAX_ATTRS >= 14, "5 of every resource, the sequence, 8 of a process");
    int rc = ltn_push_resource(en);
    if (rc == 0) {
        rc = put_ops(en, p, start_ns);
    }
    if (rc == 0 && p->comm_count > 0) {
        rc = put_comms(en, p, start_ns, false);
        rc = rc < 0 ? rc : put_comms(en, p, start_ns, true);
    }
    if (rc == 0 && p->is_rank && p->rank_window.steps > 0) {
        rc = put_steps(en, &p->rank_window, start_ns);
    }
    return rc;
}
