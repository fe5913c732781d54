// SPDX-License-Identifier: Apache-2.0
// The OpenTelemetry SDK and its exporters for Node.js, one export after another. Standard input: a list
// of {"kind": "grpc" | "http" | "proto", "signal": "metrics" | "logs" | "traces", "url", "compression",
// "timeoutMillis", "headers", "service", "parallel"}. Standard output: for each of them {"code": 0 for
// success, "error", "warnings": what the exporter said of the answer, "ms": how long it took}.

import { readFileSync } from "node:fs";
import { context, diag, DiagLogLevel, trace } from "@opentelemetry/api";
import { resourceFromAttributes } from "@opentelemetry/resources";
import { AggregationTemporality, MeterProvider, MetricReader } from "@opentelemetry/sdk-metrics";
import { LoggerProvider } from "@opentelemetry/sdk-logs";
import { BasicTracerProvider } from "@opentelemetry/sdk-trace-base";

const SPEC = { metrics: "metrics", logs: "logs", traces: "trace" };
const CLASS = { metrics: "OTLPMetricExporter", logs: "OTLPLogExporter", traces: "OTLPTraceExporter" };

let warnings = [];
const note = (...args) => warnings.push(args.map(String).join(" "));
diag.setLogger({ error: note, warn: note, info() {}, debug() {}, verbose() {} }, DiagLogLevel.WARN);

class Reader extends MetricReader {
  constructor(delta) {
    super({ aggregationTemporalitySelector: () =>
      delta ? AggregationTemporality.DELTA : AggregationTemporality.CUMULATIVE });
  }
  async onShutdown() {}
  async onForceFlush() {}
}

async function metrics(resource, want) {
  const reader = new Reader(want.delta);
  const meter = new MeterProvider({ resource, readers: [reader] }).getMeter("shop", "1.2.3");
  const orders = meter.createCounter("orders", { unit: "{order}", description: "Orders taken." });
  orders.add(5, { kind: "book", paid: true });
  orders.add(2, { kind: "book", paid: true });
  orders.add(1.5, { kind: "pen \"blue\" \\", paid: false });
  meter.createUpDownCounter("queue.length").add(-3);
  meter.createObservableGauge("room.temperature", { unit: "Cel" })
    .addCallback((r) => { r.observe(21.25, { room: "1" }); r.observe(-4, { room: "2" }); });
  const duration = meter.createHistogram("call.duration", { unit: "s", advice: { explicitBucketBoundaries: [0.1, 1, 10] } });
  for (const v of [0.05, 0.5, 0.5, 5, 50]) duration.record(v);
  return (await reader.collect()).resourceMetrics;
}

function logs(resource) {
  const records = [];
  const processor = { onEmit(r) { records.push(r); }, async forceFlush() {}, async shutdown() {} };
  const logger = new LoggerProvider({ resource, processors: [processor] }).getLogger("shop", "1.2.3");
  const span = trace.setSpanContext(context.active(), {
    traceId: "0af7651916cd43dd8448eb211c80319c", spanId: "b7ad6b7169203331", traceFlags: 1 });
  const at = new Date("2026-01-02T03:04:05.678Z");
  logger.emit({ timestamp: at, severityNumber: 17, severityText: "ERROR", body: "card refused\n  at pay()",
                attributes: { "user.id": 7, amount: 12.5, vip: false, tags: ["a", "b"] }, context: span });
  logger.emit({ timestamp: at, severityNumber: 9, body: { order: { lines: [1, 2.5, "x", null], note: "" } } });
  logger.emit({ timestamp: at, eventName: "cart.emptied" });
  return records;
}

function traces(resource) {
  const spans = [];
  const processor = { onStart() {}, onEnd(s) { spans.push(s); }, async forceFlush() {}, async shutdown() {} };
  const tracer = new BasicTracerProvider({ resource, spanProcessors: [processor] }).getTracer("shop");
  for (const name of ["a", "b", "c"]) tracer.startSpan(name).end();
  return spans;
}

async function run(want) {
  const module = await import(`@opentelemetry/exporter-${SPEC[want.signal]}-otlp-${want.kind}`);
  const exporter = new (module[CLASS[want.signal]])({
    url: want.url, compression: want.compression, timeoutMillis: want.timeoutMillis ?? 10000,
    headers: want.headers });
  const resource = resourceFromAttributes({ "service.name": want.service, "service.instance.id": "js-1",
                                            "service.namespace": "test", "host.arch": "amd64" });
  const items = await { metrics, logs, traces }[want.signal](resource, want);
  const began = Date.now();
  const result = await new Promise((done) => exporter.export(items, done));
  const said = { code: result.code, error: result.error?.message ?? null, status: result.error?.code ?? null,
                 warnings, ms: Date.now() - began };
  await exporter.shutdown();
  return said;
}

const wants = JSON.parse(readFileSync(0, "utf8"));
let out = [];
if (wants.every((w) => w.parallel)) {
  out = await Promise.all(wants.map(run));
} else {
  for (const want of wants) {
    warnings = [];
    out.push(await run(want));
  }
}
process.stdout.write(JSON.stringify(out));
