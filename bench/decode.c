/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How fast a metrics request is decoded: our reader, protobuf-c with malloc and with a bump
 * allocator, and our reader from JSON text of the same request, in the same run. The request has
 * 240 points of 3 attributes, about 130 bytes each, as an agent with a few processes sends it. Best
 * of ROUNDS.
 *
 *   bench_decode [seconds per round, default 0.5]
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "opentelemetry/proto/collector/metrics/v1/metrics_service.pb-c.h"

#include "base/attr.h"
#include "otlp/json_read.h"
#include "otlp/metrics_read.h"
#include "otlp/metrics_write.h"

#define POINTS     240
#define PER_METRIC 24
#define ROUNDS     5

static double seconds_per_round = 0.5;

/* Time of this process on a processor: other load on the machine does not count. */
static double now_s(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void must(int rc)
{
    if (rc != 0) {
        (void)fprintf(stderr, "bench_decode: error %d\n", rc);
        exit(1);
    }
}

static void build(struct ltn_buf *b)
{
    static const char *const ops[] = {"cudaLaunchKernel", "cudaStreamSynchronize",
                                      "cudaMemcpyAsync"};
    const struct ltn_otlp_attr resource[] = {ltn_otlp_attr_str("host.name", "gpu-node-0017"),
                                             ltn_otlp_attr_str("service.name", "lanterne"),
                                             ltn_otlp_attr_str("k8s.cluster.name", "training-a")};
    struct ltn_otlp_metrics_writer w;
    ltn_otlp_metrics_begin(&w, b);
    must(ltn_otlp_metrics_resource(&w, (struct ltn_otlp_attrs){resource, 3}));
    must(ltn_otlp_metrics_scope(&w, "lanterne", "0.1.0"));
    for (unsigned i = 0; i < POINTS; i++) {
        char name[64], pod[64], rank[16];
        if (i % PER_METRIC == 0) {
            (void)snprintf(name, sizeof(name), "gpu.cuda.operation.metric%u", i / PER_METRIC);
            const struct ltn_otlp_metric m = {.name = ltn_otlp_str(name),
                                              .unit = ltn_otlp_str("{call}"),
                                              .kind = LTN_OTLP_SUM,
                                              .temporality = LTN_OTLP_CUMULATIVE,
                                              .monotonic = true};
            must(ltn_otlp_metrics_metric(&w, &m));
        }
        (void)snprintf(pod, sizeof(pod), "trainer-7f9c-%05u", i);
        (void)snprintf(rank, sizeof(rank), "%u", i % 8);
        const struct ltn_otlp_attr attrs[] = {
            ltn_otlp_attr_str("gpu.operation", ops[i % LTN_ARRAY_SIZE(ops)]),
            ltn_otlp_attr_str("k8s.pod.name", pod), ltn_otlp_attr_str("rank", rank)};
        const struct ltn_otlp_number p = {.point = {.attrs = {attrs, 3},
                                                    .start_ns = 1700000000000000000ULL,
                                                    .time_ns = 1700000010000000000ULL},
                                          .type = LTN_OTLP_INT,
                                          .i = (int64_t)i * 1000};
        must(ltn_otlp_metrics_number(&w, &p));
    }
    must(ltn_otlp_metrics_end(&w));
}

static void json_attr(struct ltn_buf *b, const char *key, const char *value, bool last)
{
    must(ltn_buf_printf(b, "{\"key\":\"%s\",\"value\":{\"stringValue\":\"%s\"}}%s", key, value,
                        last ? "]" : ","));
}

/* The same request as JSON text, as the exporters of OpenTelemetry write it. */
static void build_json(struct ltn_buf *b)
{
    static const char *const ops[] = {"cudaLaunchKernel", "cudaStreamSynchronize",
                                      "cudaMemcpyAsync"};
    must(ltn_buf_puts(b, "{\"resourceMetrics\":[{\"resource\":{\"attributes\":["));
    json_attr(b, "host.name", "gpu-node-0017", false);
    json_attr(b, "service.name", "lanterne", false);
    json_attr(b, "k8s.cluster.name", "training-a", true);
    must(ltn_buf_puts(b, "},\"scopeMetrics\":[{\"scope\":{\"name\":\"lanterne\","
                         "\"version\":\"0.1.0\"},\"metrics\":["));
    for (unsigned i = 0; i < POINTS; i++) {
        char pod[64], rank[16];
        bool last = (i + 1) % PER_METRIC == 0;
        if (i % PER_METRIC == 0) {
            must(ltn_buf_printf(b,
                                "%s{\"name\":\"gpu.cuda.operation.metric%u\",\"unit\":\"{call}\","
                                "\"sum\":{\"aggregationTemporality\":2,\"isMonotonic\":true,"
                                "\"dataPoints\":[",
                                i > 0 ? "," : "", i / PER_METRIC));
        }
        (void)snprintf(pod, sizeof(pod), "trainer-7f9c-%05u", i);
        (void)snprintf(rank, sizeof(rank), "%u", i % 8);
        must(ltn_buf_puts(b, "{\"attributes\":["));
        json_attr(b, "gpu.operation", ops[i % LTN_ARRAY_SIZE(ops)], false);
        json_attr(b, "k8s.pod.name", pod, false);
        json_attr(b, "rank", rank, true);
        must(ltn_buf_printf(b,
                            ",\"startTimeUnixNano\":\"1700000000000000000\","
                            "\"timeUnixNano\":\"1700000010000000000\",\"%s\":%s%u%s}%s",
                            i % 2 == 0 ? "asInt" : "asDouble", i % 2 == 0 ? "\"" : "0.73123456789",
                            i * 1000, i % 2 == 0 ? "\"" : "", last ? "]}}" : ","));
    }
    must(ltn_buf_puts(b, "]}]}]}"));
}

/* Stops the compiler from dropping the work. */
static volatile uint64_t sink_value;

static int on_number(void *ctx, const struct ltn_otlp_group *g, const struct ltn_otlp_metric *m,
                     const struct ltn_otlp_number *p)
{
    uint64_t *sum = ctx;
    (void)g;
    (void)m;
    for (size_t i = 0; i < p->point.attrs.n; i++) {
        *sum += p->point.attrs.items[i].value.str.n;
    }
    *sum += (uint64_t)p->i;
    return 0;
}

static struct ltn_otlp_reader *reader;

static void ours(const struct ltn_buf *b)
{
    uint64_t sum = 0;
    struct ltn_otlp_counts counts;
    const struct ltn_otlp_metrics_sink sink = {.ctx = &sum, .on_number = on_number};
    must(ltn_otlp_metrics_read(reader, b->data, b->len, &sink, &counts));
    must(counts.records == POINTS ? 0 : 1);
    sink_value = sum;
}

static struct ltn_buf as_protobuf;

static void json_only(const struct ltn_buf *b)
{
    struct ltn_otlp_json_info info;
    ltn_buf_reset(&as_protobuf);
    must(ltn_otlp_json_read(LTN_OTLP_METRICS, b->data, b->len, 32, &as_protobuf, &info));
    sink_value = as_protobuf.len;
}

static void json(const struct ltn_buf *b)
{
    json_only(b);
    ours(&as_protobuf);
}

static void protobuf_c(const struct ltn_buf *b)
{
    Opentelemetry__Proto__Collector__Metrics__V1__ExportMetricsServiceRequest *r =
        opentelemetry__proto__collector__metrics__v1__export_metrics_service_request__unpack(
            NULL, b->len, (const uint8_t *)b->data);
    must(r != NULL ? 0 : 1);
    sink_value = r->n_resource_metrics;
    opentelemetry__proto__collector__metrics__v1__export_metrics_service_request__free_unpacked(
        r, NULL);
}

static _Alignas(16) unsigned char pool[16 << 20];
static size_t pool_used;

static void *pool_alloc(void *ctx, size_t n)
{
    (void)ctx;
    size_t at = pool_used;
    pool_used += (n + 15) & ~(size_t)15;
    return pool_used <= sizeof(pool) ? pool + at : NULL;
}

static void pool_free(void *ctx, void *p)
{
    (void)ctx;
    (void)p;
}

static void protobuf_c_bump(const struct ltn_buf *b)
{
    ProtobufCAllocator bump = {pool_alloc, pool_free, NULL};
    pool_used = 0;
    Opentelemetry__Proto__Collector__Metrics__V1__ExportMetricsServiceRequest *r =
        opentelemetry__proto__collector__metrics__v1__export_metrics_service_request__unpack(
            &bump, b->len, (const uint8_t *)b->data);
    must(r != NULL ? 0 : 1);
    sink_value = r->n_resource_metrics;
}

static double measure(const char *name, void (*decode)(const struct ltn_buf *),
                      const struct ltn_buf *b, double base)
{
    double best = 0;
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t requests = 0;
        double start = now_s(), elapsed;
        do {
            for (int i = 0; i < 64; i++) {
                decode(b);
            }
            requests += 64;
            elapsed = now_s() - start;
        } while (elapsed < seconds_per_round);
        double rate = (double)requests / elapsed;
        best = rate > best ? rate : best;
    }
    (void)printf("%-24s %8.2f M points/s %10.0f MB/s", name, best * POINTS / 1e6,
                 best * (double)b->len / 1e6);
    if (base > 0) {
        (void)printf("   1/%.1f", base / best);
    }
    (void)printf("\n");
    return best;
}

int main(int argc, char **argv)
{
    struct ltn_buf b, text;
    if (argc > 1) {
        seconds_per_round = strtod(argv[1], NULL);
    }
    ltn_buf_init(&b, 1 << 20);
    ltn_buf_init(&text, 1 << 20);
    ltn_buf_init(&as_protobuf, 1 << 20);
    build(&b);
    build_json(&text);
    reader = ltn_otlp_reader_new(NULL);
    must(reader != NULL ? 0 : 1);
    (void)printf("request: %d points, %zu bytes (%zu a point)\n", POINTS, b.len, b.len / POINTS);
    double base = measure("lanterne reader", ours, &b, 0);
    (void)measure("protobuf-c, malloc", protobuf_c, &b, base);
    (void)measure("protobuf-c, bump arena", protobuf_c_bump, &b, base);
    (void)printf("as JSON: %zu bytes (%zu a point)\n", text.len, text.len / POINTS);
    (void)measure("JSON, lanterne reader", json, &text, base);
    (void)measure("  of this, to protobuf", json_only, &text, base);
    ltn_otlp_reader_free(reader);
    ltn_buf_done(&b);
    ltn_buf_done(&text);
    ltn_buf_done(&as_protobuf);
    return 0;
}
