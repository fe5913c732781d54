/* SPDX-License-Identifier: Apache-2.0 */
#include "load_shape.h"

#include <stdio.h>

#include "base/attr.h"
#include "load_body.h"
#include "otlp/metrics_write.h"

#define PER_METRIC   24
#define START_NS     1700000000000000000u
#define RANKS        8
#define HIST_BUCKETS 12
#define AGENT_SERIES 458

static void must(int rc)
{
    if (rc != 0)
        load_fail("cannot encode the request");
}

static const char *const ops[] = {"cudaLaunchKernel", "cudaStreamSynchronize", "cudaMemcpyAsync"};

/* The names of series number s. */
struct series {
    char host[32], instance[40], name[48], pod[32], rank[8];
    const char *op;
    uint32_t node, metric;
    bool sum;
};

static struct series series_of(uint32_t s)
{
    uint32_t within = s % LOAD_POINTS_A_NODE;
    struct series r = {.node = s / LOAD_POINTS_A_NODE, .metric = within / PER_METRIC};
    r.op = ops[within % LTN_ARRAY_SIZE(ops)];
    r.sum = r.metric % 2 == 0;
    (void)snprintf(r.host, sizeof(r.host), "gpu-node-%05u", r.node);
    (void)snprintf(r.instance, sizeof(r.instance), "%08x-0000-4000-8000-00005eed0001", r.node);
    (void)snprintf(r.name, sizeof(r.name), "app.worker.operation.metric%u", r.metric);
    (void)snprintf(r.pod, sizeof(r.pod), "trainer-7f9c-%05u", within);
    (void)snprintf(r.rank, sizeof(r.rank), "%u", within % 8);
    return r;
}

static void open_resource(struct ltn_otlp_metrics_writer *w, const struct series *s)
{
    const struct ltn_otlp_attr attrs[] = {
        ltn_otlp_attr_str("service.name", "trainer"),
        ltn_otlp_attr_str("service.instance.id", s->instance),
        ltn_otlp_attr_str("host.name", s->host),
    };
    must(ltn_otlp_metrics_resource(w, (struct ltn_otlp_attrs){attrs, LTN_ARRAY_SIZE(attrs)}));
    must(ltn_otlp_metrics_scope(w, "bench", "1.0.0"));
}

static void open_metric(struct ltn_otlp_metrics_writer *w, const char *name, const char *unit,
                        bool sum)
{
    const struct ltn_otlp_metric m = {.name = ltn_otlp_str(name),
                                      .unit = ltn_otlp_str(unit),
                                      .kind = sum ? LTN_OTLP_SUM : LTN_OTLP_GAUGE,
                                      .temporality = LTN_OTLP_CUMULATIVE,
                                      .monotonic = sum};
    must(ltn_otlp_metrics_metric(w, &m));
}

static void put_number(struct ltn_otlp_metrics_writer *w, const struct ltn_otlp_attr *attrs,
                       size_t n, bool whole)
{
    struct ltn_otlp_number p = {
        .point = {.attrs = {attrs, n}, .start_ns = START_NS, .time_ns = LOAD_MARK_TIME},
        .type = whole ? LTN_OTLP_INT : LTN_OTLP_DOUBLE};
    if (whole)
        p.i = (int64_t)LOAD_MARK_INT;
    else
        p.d = LOAD_MARK_DOUBLE;
    must(ltn_otlp_metrics_number(w, &p));
}

uint32_t load_shape_series(struct ltn_buf *b, uint32_t index, uint32_t points, uint32_t series)
{
    struct ltn_otlp_metrics_writer w;
    uint32_t first = index * points, n = series - first < points ? series - first : points;
    uint32_t node = UINT32_MAX, metric = UINT32_MAX;
    ltn_otlp_metrics_begin(&w, b);
    for (uint32_t i = 0; i < n; i++) {
        const struct series s = series_of(first + i);
        if (s.node != node) {
            open_resource(&w, &s);
            metric = UINT32_MAX;
        }
        if (s.metric != metric)
            open_metric(&w, s.name, "{call}", s.sum);
        node = s.node;
        metric = s.metric;
        const struct ltn_otlp_attr attrs[] = {ltn_otlp_attr_str("gpu.operation", s.op),
                                              ltn_otlp_attr_str("k8s.pod.name", s.pod),
                                              ltn_otlp_attr_str("rank", s.rank)};
        put_number(&w, attrs, LTN_ARRAY_SIZE(attrs), s.sum);
    }
    must(ltn_otlp_metrics_end(&w));
    return n;
}

/* ---- JSON ---- */

static void json_attr(struct ltn_buf *b, const char *before, const char *key, const char *value)
{
    (void)ltn_buf_printf(b, "%s{\"key\":\"%s\",\"value\":{\"stringValue\":\"%s\"}}", before, key,
                         value);
}

static void json_resource(struct ltn_buf *b, const struct series *s)
{
    (void)ltn_buf_puts(b, "{\"resource\":{\"attributes\":[");
    json_attr(b, "", "service.name", "trainer");
    json_attr(b, ",", "service.instance.id", s->instance);
    json_attr(b, ",", "host.name", s->host);
    (void)ltn_buf_puts(b, "]},\"scopeMetrics\":[{\"scope\":{\"name\":\"bench\",\"version\":"
                          "\"1.0.0\"},\"metrics\":[");
}

static void json_end_metric(struct ltn_buf *b, bool sum)
{
    (void)ltn_buf_puts(b, sum ? "],\"aggregationTemporality\":2,\"isMonotonic\":true}}" : "]}}");
}

static void json_point(struct ltn_buf *b, const struct series *s)
{
    (void)ltn_buf_puts(b, "{\"attributes\":[");
    json_attr(b, "", "gpu.operation", s->op);
    json_attr(b, ",", "k8s.pod.name", s->pod);
    json_attr(b, ",", "rank", s->rank);
    (void)ltn_buf_printf(b, "],\"startTimeUnixNano\":\"%llu\",\"timeUnixNano\":\"%s\",%s%s%s}",
                         (unsigned long long)START_NS, LOAD_MARK_TIME_TEXT,
                         s->sum ? "\"asInt\":\"" : "\"asDouble\":",
                         s->sum ? LOAD_MARK_INT_TEXT : LOAD_MARK_DOUBLE_TEXT, s->sum ? "\"" : ".5");
}

uint32_t load_shape_json(struct ltn_buf *b, uint32_t index, uint32_t points, uint32_t series)
{
    uint32_t first = index * points, n = series - first < points ? series - first : points;
    struct series last = {.node = UINT32_MAX};
    (void)ltn_buf_puts(b, "{\"resourceMetrics\":[");
    for (uint32_t i = 0; i < n; i++) {
        const struct series s = series_of(first + i);
        bool resource = i == 0 || s.node != last.node, metric = resource || s.metric != last.metric;
        if (i > 0 && metric)
            json_end_metric(b, last.sum);
        if (i > 0 && resource)
            (void)ltn_buf_puts(b, "]}]}");
        if (i > 0)
            (void)ltn_buf_putc(b, ',');
        if (resource)
            json_resource(b, &s);
        if (metric)
            (void)ltn_buf_printf(b, "{\"name\":\"%s\",\"unit\":\"{call}\",\"%s\":{\"dataPoints\":[",
                                 s.name, s.sum ? "sum" : "gauge");
        json_point(b, &s);
        last = s;
    }
    json_end_metric(b, last.sum);
    (void)ltn_buf_puts(b, "]}]}]}");
    return n;
}

/* ---- an agent's window ---- */

static void agent_resource(struct ltn_otlp_metrics_writer *w, uint32_t node, int rank)
{
    char host[32], uuid[48], instance[48];
    (void)snprintf(host, sizeof(host), "gpu-node-%05u", node);
    (void)snprintf(instance, sizeof(instance), "agent-%08x-5eed", node);
    (void)snprintf(uuid, sizeof(uuid), "GPU-%08x-%d", node, rank);
    const struct ltn_otlp_attr attrs[] = {
        ltn_otlp_attr_str("service.name", "lanterne-agent"),
        ltn_otlp_attr_str("service.instance.id", instance),
        ltn_otlp_attr_str("service.version", "0.1.0"),
        ltn_otlp_attr_str("host.name", host),
        ltn_otlp_attr_int("lanterne.window.sequence", 1),
        ltn_otlp_attr_int("process.pid", 1000 + rank),
        ltn_otlp_attr_int("process.creation.time", (int64_t)START_NS + rank),
        ltn_otlp_attr_str("process.command", "python3"),
        ltn_otlp_attr_str("lanterne.job", "train-1"),
        ltn_otlp_attr_int("lanterne.rank", (int64_t)node * RANKS + rank),
        ltn_otlp_attr_int("lanterne.world_size", 100000),
        ltn_otlp_attr_int("lanterne.local_rank", rank),
        ltn_otlp_attr_str("hw.id", uuid),
    };
    size_t n = rank >= 0 ? LTN_ARRAY_SIZE(attrs) : 5;
    must(ltn_otlp_metrics_resource(w, (struct ltn_otlp_attrs){attrs, n}));
    must(ltn_otlp_metrics_scope(w, "lanterne", "0.1.0"));
}

static const char *const agent_ops[] = {
    "cudaLaunchKernel", "cudaMemcpyAsync", "cudaMemsetAsync",     "cudaStreamSynchronize",
    "cudaEventRecord",  "cudaEventQuery",  "cudaStreamWaitEvent", "cudaMalloc",
    "cudaFree",         "cudaMallocAsync", "cudaFreeAsync",       "cudaDeviceSynchronize",
    "cudaGraphLaunch",  "cudaMemcpy",      "cuLaunchKernel",      "cuMemAlloc",
    "cuMemFree",        "cuEventRecord",   "cuStreamSynchronize", "cuMemcpyAsync",
    "cuCtxSynchronize",
};

static void agent_sums(struct ltn_otlp_metrics_writer *w, const char *name)
{
    open_metric(w, name, "{call}", true);
    for (size_t i = 0; i < LTN_ARRAY_SIZE(agent_ops); i++) {
        const struct ltn_otlp_attr attrs[] = {ltn_otlp_attr_str("lanterne.source", "cuda"),
                                              ltn_otlp_attr_str("lanterne.op", agent_ops[i])};
        put_number(w, attrs, LTN_ARRAY_SIZE(attrs), true);
    }
}

static void agent_durations(struct ltn_otlp_metrics_writer *w)
{
    const struct ltn_otlp_metric m = {.name = ltn_otlp_str("gpu.cuda.operation.duration"),
                                      .unit = ltn_otlp_str("s"),
                                      .kind = LTN_OTLP_EXP_HISTOGRAM,
                                      .temporality = LTN_OTLP_CUMULATIVE};
    uint64_t counts[HIST_BUCKETS];
    must(ltn_otlp_metrics_metric(w, &m));
    for (size_t i = 0; i < LTN_ARRAY_SIZE(agent_ops); i++) {
        const struct ltn_otlp_attr attrs[] = {ltn_otlp_attr_str("lanterne.source", "cuda"),
                                              ltn_otlp_attr_str("lanterne.op", agent_ops[i])};
        struct ltn_otlp_exp_histogram h = {.point = {.attrs = {attrs, LTN_ARRAY_SIZE(attrs)},
                                                     .start_ns = START_NS,
                                                     .time_ns = LOAD_MARK_TIME},
                                           .scale = 2,
                                           .has_sum = true,
                                           .sum = 1.25};
        for (size_t k = 0; k < HIST_BUCKETS; k++)
            h.count += counts[k] = 100 + k * (i + 1);
        h.positive = (struct ltn_otlp_buckets){-70, counts, HIST_BUCKETS};
        must(ltn_otlp_metrics_exp_histogram(w, &h));
    }
}

/* A gauge that is not written over: a window must stay one that can be. */
static void agent_gauge(struct ltn_otlp_metrics_writer *w, const char *name, const char *unit,
                        double v, const char *key, const char *value)
{
    const struct ltn_otlp_attr attr = ltn_otlp_attr_str(key != NULL ? key : "", value);
    const struct ltn_otlp_number p = {.point = {.attrs = {&attr, key != NULL ? 1 : 0},
                                                .start_ns = LOAD_MARK_START,
                                                .time_ns = LOAD_MARK_TIME},
                                      .type = LTN_OTLP_DOUBLE,
                                      .d = v};
    open_metric(w, name, unit, false);
    must(ltn_otlp_metrics_number(w, &p));
}

static void agent_steps(struct ltn_otlp_metrics_writer *w)
{
    static const char *const states[] = {"on_cpu", "run_queue", "device", "futex", "read", "disk"};
    open_metric(w, "lanterne.step.count", "{step}", true);
    put_number(w, NULL, 0, true);
    agent_gauge(w, "lanterne.step.duration", "s", 0.11, NULL, NULL);
    agent_gauge(w, "lanterne.step.self_time", "s", 0.05, NULL, NULL);
    agent_gauge(w, "lanterne.step.peer_wait", "s", 0.06, NULL, NULL);
    agent_gauge(w, "lanterne.step.coverage", "1", 0.98, NULL, NULL);
    agent_gauge(w, "lanterne.step.collectives", "{operation}", 3, NULL, NULL);
    for (size_t i = 0; i < LTN_ARRAY_SIZE(states); i++)
        agent_gauge(w, "lanterne.step.split", "s", 0.008, "lanterne.state", states[i]);
    agent_gauge(w, "lanterne.step.faults", "{fault}", 0, "lanterne.fault", "major");
    agent_gauge(w, "lanterne.step.faults", "{fault}", 4, "lanterne.fault", "minor");
}

uint32_t load_shape_agent(struct ltn_buf *b, uint32_t index)
{
    struct ltn_otlp_metrics_writer w;
    ltn_otlp_metrics_begin(&w, b);
    agent_resource(&w, index, -1);
    agent_gauge(&w, "lanterne.agent.processes", "1", RANKS, NULL, NULL);
    agent_gauge(&w, "lanterne.agent.probes", "1", 120, NULL, NULL);
    agent_gauge(&w, "process.memory.usage", "By", 3e7, NULL, NULL);
    agent_gauge(&w, "lanterne.agent.map.size", "By", 1e7, NULL, NULL);
    agent_gauge(&w, "lanterne.agent.detail", "1", 0, NULL, NULL);
    agent_gauge(&w, "lanterne.agent.thinning", "1", 1, NULL, NULL);
    agent_gauge(&w, "system.cpu.utilization", "1", 0.4, NULL, NULL);
    agent_gauge(&w, "system.memory.limit", "By", 1e12, NULL, NULL);
    agent_gauge(&w, "system.cpu.load_average.1m", "{thread}", 12, NULL, NULL);
    agent_gauge(&w, "system.memory.utilization", "1", 0.6, "system.memory.state", "used");
    for (int rank = 0; rank < RANKS; rank++) {
        agent_resource(&w, index, rank);
        agent_sums(&w, "gpu.cuda.operation.count");
        agent_durations(&w);
        agent_steps(&w);
    }
    must(ltn_otlp_metrics_end(&w));
    return (uint32_t)w.points;
}

uint32_t load_shape_agent_series(void)
{
    return AGENT_SERIES;
}
