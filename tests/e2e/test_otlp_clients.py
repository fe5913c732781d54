# SPDX-License-Identifier: Apache-2.0
"""Other people's OTLP clients against the real collector; what they sent is found again, value by value."""

import concurrent.futures
import gzip
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

import grpc
import pytest

import collector_util as cu
import harness
import http_util
import otlp_client_util as oc

KINDS = ("grpc", "http", "proto")
NOW = time.time_ns()


@pytest.fixture
def collector(procs, tmp_path):
    return cu.Collector(procs, tmp_path).start()


def node_case(collector, kind, signal_name, **more):
    base = f"http://127.0.0.1:{collector.port}"
    return {"kind": kind, "signal": signal_name, "url": base if kind == "grpc" else f"{base}/v1/{signal_name}",
            "service": f"{kind}-{signal_name}", **more}


def require_json(collector, kind):
    if kind == "http" and collector.post("/v1/logs", b"{}", {"Content-Type": "application/json"})[0] == 415:
        pytest.skip("the collector does not take JSON bodies")


def exposition(collector):
    """{(name, frozenset of labels): value}."""
    out = {}
    for line in harness.http_get(collector.url("/metrics"))[2].decode().splitlines():
        m = re.match(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$", line)
        if m and not line.startswith("#"):
            labels = re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', m[2] or "")
            out[m[1], frozenset(labels)] = float(m[3])
    return out


def logs(collector, **params):
    query = "&".join(f"{k}={v}" for k, v in params.items())
    return collector.get(f"/api/v1/logs?{query}")["logs"]


# --- OpenTelemetry for Node.js ---------------------------------------------------------------------

def check_metrics(collector, service, factor=1):
    """What otlp_client.mjs records, under the names of the translation rules."""
    got = exposition(collector)
    target = {("job", f"test/{service}"), ("instance", "js-1")}
    mine = {}
    for (name, labels), value in got.items():
        if target <= labels:
            mine[name, frozenset((k, v) for k, v in labels - target if not k.startswith("otel_scope_"))] = value
    def of(name, **labels):
        return mine.get((name, frozenset(labels.items())))
    assert of("orders_total", kind="book", paid="true") == 7 * factor
    assert of("orders_total", kind='pen \\"blue\\" \\\\', paid="false") == 1.5 * factor
    assert of("queue_length") == -3
    assert of("room_temperature_celsius", room="1") == 21.25
    assert of("room_temperature_celsius", room="2") == -4
    assert of("target_info", host_arch="amd64") == 1
    if any(name.startswith("call_duration_seconds") for name, _ in mine):
        assert [of("call_duration_seconds_bucket", le=le) for le in ("0.1", "1", "10", "+Inf")] == \
            [1 * factor, 3 * factor, 4 * factor, 5 * factor] or of("call_duration_seconds_bucket", le="1.0")
        assert of("call_duration_seconds_count") == 5 * factor
        assert of("call_duration_seconds_sum") == pytest.approx(56.05 * factor)


def check_logs(collector, service):
    got = {r["severity_number"]: r for r in logs(collector, service=service)}
    assert sorted(got) == [0, 9, 17]
    r = got[17]
    assert (r["body"], r["severity"], r["scope"]) == ("card refused\n  at pay()", "ERROR", "shop")
    assert r["attributes"] == {"user.id": 7, "amount": 12.5, "vip": False, "tags": ["a", "b"]}
    assert (r["trace_id"], r["span_id"], r["flags"]) == ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331", 1)
    assert r["at_ns"] == 1767323045678000000
    assert r["resource"]["host.arch"] == "amd64" and r["instance"] == "js-1"
    assert got[9]["body"] == {"order": {"lines": [1, 2.5, "x", None], "note": ""}}
    assert (got[0]["event"], got[0]["body"]) == ("cart.emptied", None)


@pytest.mark.parametrize("kind", KINDS)
def test_node_exporters(collector, kind):
    """Metrics, logs and traces, plain and gzip, twice each: the second time changes nothing."""
    require_json(collector, kind)
    signals = ("metrics", "logs", "traces")
    cases = [node_case(collector, kind, s, compression=c) for s in signals for c in ("none", "gzip")]
    for want, said in zip(cases, oc.node(cases)):
        assert said["code"] == 0, (want, said)
        if want["signal"] == "traces":
            assert len(said["warnings"]) == 1 and re.search(r'rejectedSpans":"?3', said["warnings"][0]), said
        else:
            assert said["warnings"] == [], said
    check_metrics(collector, f"{kind}-metrics")
    check_logs(collector, f"{kind}-logs")


def test_node_exporters_are_told_to_come_again(collector, tmp_path):
    """503 while the database cannot be written: the HTTP exporters wait as long as they are told and then
    succeed, gRPC is told UNAVAILABLE (its exporter leaves trying again to the caller)."""
    with open(collector.db + ".new", "w", encoding="utf-8") as f:
        f.write("somebody else's file")
    os.rename(collector.db + ".new", collector.db)
    harness.wait_until(lambda: harness.http_get(collector.url("/readyz"))[0] == 503, what="not ready")
    kinds = ["proto", "grpc"]
    if collector.post("/v1/logs", b"{}", {"Content-Type": "application/json"})[0] != 415:
        kinds.append("http")
    running = oc.start_node([node_case(collector, k, "logs", parallel=True, timeoutMillis=60000) for k in kinds])
    def refused():
        return collector.get("/api/v1/ingest")["ingest"]["rejected_disk"] >= len(kinds)
    harness.wait_until(refused, 30, "a refusal of each")
    os.unlink(collector.db)
    said = dict(zip(kinds, oc.finish_node(running)))
    for k in kinds[:1] + kinds[2:]:
        assert said[k]["code"] == 0 and said[k]["ms"] >= 9000, said[k]
        check_logs(collector, f"{k}-logs")
    assert said["grpc"]["code"] != 0 and said["grpc"]["status"] == 14, said["grpc"]


# --- gRPC in C (Python, Ruby) ----------------------------------------------------------------------

def log_request(service, bodies, at=NOW):
    m = cu.proto("collector.logs.v1.logs_service").ExportLogsServiceRequest()
    rl = m.resource_logs.add()
    cu.put_attrs(rl.resource.attributes, service__name=service)
    records = rl.scope_logs.add().log_records
    for i, body in enumerate(bodies):
        records.add(time_unix_nano=at + i, severity_number=9).body.string_value = body
    return m.SerializeToString()


def gauge_request(service, values):
    q = cu.Request(time.time_ns(), cu.SECOND)
    q.resource(service__name=service)
    for i, value in enumerate(values):
        q.gauge("probe.value", "1", value, i=i)
    return q.bytes()


@pytest.mark.parametrize("compression", ["NoCompression", "Deflate", "Gzip"])
def test_grpcio_compression(collector, compression):
    kind = getattr(grpc.Compression, compression)
    with grpc.insecure_channel(f"127.0.0.1:{collector.port}", compression=kind) as channel:
        call = channel.unary_unary(cu.GRPC_LOGS)
        data = log_request("py", ["x" * 5000])
        if compression == "Deflate":    # not among what is offered
            with pytest.raises(grpc.RpcError) as e:
                call(data, timeout=10)
            assert e.value.code() == grpc.StatusCode.UNIMPLEMENTED
            return
        assert call(data, timeout=10) == b""
        channel.unary_unary(cu.GRPC_METRICS)(gauge_request("py", [1.5, -2.0]), timeout=10)
    assert [r["body"] for r in logs(collector, service="py")] == ["x" * 5000]
    assert collector.metric("probe_value_ratio", job="py", i="0") == 1.5
    assert collector.metric("probe_value_ratio", job="py", i="1") == -2.0


def test_grpcio_keepalive_and_message_sizes(collector):
    """PINGs as often as the library allows do no harm; messages around 4 MiB are taken, above the limit refused."""
    options = [("grpc.keepalive_time_ms", 1000), ("grpc.keepalive_timeout_ms", 1000),
               ("grpc.keepalive_permit_without_calls", 1), ("grpc.http2.max_pings_without_data", 0),
               ("grpc.http2.min_time_between_pings_ms", 1000), ("grpc.enable_retries", 0)]
    with grpc.insecure_channel(f"127.0.0.1:{collector.port}", options=options) as channel:
        call = channel.unary_unary(cu.GRPC_LOGS)
        assert call(log_request("py", ["first"]), timeout=10) == b""
        big = log_request("big", [f"{i} " + "y" * 60000 for i in range(70)])
        assert len(big) > 4 << 20
        assert call(big, timeout=20) == b""
        with pytest.raises(grpc.RpcError) as e:
            call(log_request("huge", ["z" * 60000 for _ in range(1200)]), timeout=20)
        assert e.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "retry" not in "".join(k for k, _ in e.value.trailing_metadata() or ())
        until = time.monotonic() + 2.5
        while time.monotonic() < until:
            assert call(log_request("py", ["again"]), timeout=10) == b""
            time.sleep(0.2)
    assert len(logs(collector, service="big", limit=1000)) == 70
    assert logs(collector, service="huge") == []
    assert {r["body"] for r in logs(collector, service="py")} == {"first", "again"}


def test_grpcio_calls_during_a_restart(collector):
    """GOAWAY with calls at work: each call is answered or fails as one that may come again; sent until it
    is acknowledged, every record is kept once."""
    stop = threading.Event()
    def client(n):
        sent, codes, channel = [], [], None
        while not stop.is_set() or not sent:
            body = f"{n}-{len(sent)}"
            while True:
                # A new channel after a failure: the library's back-off would be all that is waited for.
                channel = channel or grpc.insecure_channel(f"127.0.0.1:{collector.port}", options=[
                    ("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0)])
                try:
                    channel.unary_unary(cu.GRPC_LOGS)(log_request("restart", [body], NOW + len(sent)), timeout=10)
                    break
                except grpc.RpcError as e:
                    codes.append(e.code())
                    channel.close()
                    channel = None
                    time.sleep(0.02)
            sent.append(body)
        channel.close()
        return sent, codes
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        futures = [pool.submit(client, n) for n in range(8)]
        for _ in range(2):
            time.sleep(0.4)
            assert collector.process.stop() == 0
            collector.start()
        time.sleep(0.3)
        stop.set()
        results = [f.result(60) for f in futures]
    want = sorted(b for sent, _ in results for b in sent)
    assert {c for _, codes in results for c in codes} <= {grpc.StatusCode.UNAVAILABLE}
    assert len(want) > 100
    page, got = collector.get("/api/v1/logs?limit=1000&service=restart"), []
    while True:
        got += [r["body"] for r in page["logs"]]
        if page["next"] is None:
            break
        page = collector.get(f"/api/v1/logs?limit=1000&service=restart&before={page['next']}")
    assert sorted(got) == want


def test_grpcio_connections_of_limited_age():
    """A server that ends each connection after 200 ms (the collector: 30 minutes): no call notices. What came too
    late for one, its library sends again on the next."""
    with http_util.Server(age_ms=200) as server, \
            grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        call = channel.unary_unary("/test.Echo/Unary")
        count = 0
        while server.stats()["connections_aged"] < 3:
            for future in [call.future(b"x" * 1000, timeout=20) for _ in range(20)]:
                assert future.result() == b"x" * 1000
                count += 1
        assert count >= 60


def test_ruby_grpc(collector):
    if shutil.which("ruby") is None or subprocess.run(["ruby", "-e", "require 'grpc'"], capture_output=True,
                                                      check=False).returncode:
        pytest.skip("needs ruby with grpc (Debian: ruby-grpc)")
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "otlp_clients", "otlp_client.rb")
    for path, body in ((cu.GRPC_LOGS, log_request("ruby", ["caf\u00e9", ""])),
                       (cu.GRPC_METRICS, gauge_request("ruby", [3.25]))):
        got = subprocess.run(["ruby", script, f"127.0.0.1:{collector.port}", path, "3"], input=body,
                             capture_output=True, timeout=60, check=False)
        assert got.returncode == 0, got.stderr
        assert got.stdout.split() == []    # three empty messages
        assert got.stdout.count(b"\n") == 3
    assert sorted(r["body"] for r in logs(collector, service="ruby")) == ["", "caf\u00e9"]
    assert collector.metric("probe_value_ratio", job="ruby") == 3.25


# --- curl, nghttp, h2load --------------------------------------------------------------------------

CURL = {"h1": ["--http1.1"], "h1-chunked": ["--http1.1", "-H", "Transfer-Encoding: chunked"],
        "h1-continue": ["--http1.1", "-H", "Expect: 100-continue"], "h1.0": ["--http1.0"],
        "h2": ["--http2-prior-knowledge"], "h2-upgrade": ["--http2"],
        "h2-gzip": ["--http2-prior-knowledge", "-H", "Content-Encoding: gzip"],
        "h1-chunked-gzip": ["--http1.1", "-H", "Transfer-Encoding: chunked", "-H", "Content-Encoding: gzip"]}


def test_curl(collector, tmp_path):
    harness.require_command("curl")
    for name, flags in CURL.items():
        for size in (10, 2 << 20):    # above 1 MiB curl asks first by itself
            data = log_request(name, [os.urandom(size // 80).hex() for _ in range(40)])
            path = tmp_path / "body"
            path.write_bytes(gzip.compress(data) if "gzip" in name else data)
            got = subprocess.run(["curl", "-sS", "-o", "-", "-D", str(tmp_path / "head"), *flags, "--data-binary",
                                  f"@{path}", "-H", "Content-Type: application/x-protobuf",
                                  f"http://127.0.0.1:{collector.port}/v1/logs"], capture_output=True, timeout=30,
                                 check=False)
            head = (tmp_path / "head").read_text()
            assert got.returncode == 0 and got.stdout == b"", (name, size, got.stderr, got.stdout)
            assert re.findall(r"^HTTP/\S+ (\d+)", head, re.M)[-1] == "200", (name, size, head)
            if name == "h1-continue":
                assert " 100" in head.splitlines()[0], head
            assert ("HTTP/2 200" in head) == (name in ("h2", "h2-gzip")), (name, head)
        assert len(logs(collector, service=name, limit=1000)) == 80


def test_nghttp_and_h2load(collector, tmp_path):
    harness.require_command("nghttp")
    harness.require_command("h2load")
    path = tmp_path / "body"
    url = f"http://127.0.0.1:{collector.port}/v1/logs"
    flags = ["-d", str(path), "-H", "content-type: application/x-protobuf"]
    path.write_bytes(log_request("nghttp", ["n" * 100000]))
    got = subprocess.run(["nghttp", "-v", *flags, url], capture_output=True, text=True, timeout=30, check=False)
    assert got.returncode == 0 and ":status: 200" in got.stdout, got.stdout[-2000:]
    (got,) = logs(collector, service="nghttp")
    assert (got["body"], got["values_cut"]) == ("n" * 65536, 1)    # the longest that is kept
    path.write_bytes(log_request("load", [f"{i}" for i in range(50)]))
    for extra in ([], ["--h1"]):
        got = subprocess.run(["h2load", "-n", "1000", "-c", "8", "-m", "20" if not extra else "1", *extra, *flags, url],
                             capture_output=True, text=True, timeout=60, check=False)
        assert "1000 succeeded, 0 failed, 0 errored, 0 timeout" in got.stdout, got.stdout
    got = sorted(int(r["body"]) for r in logs(collector, service="load", limit=1000))
    assert got == list(range(50))    # 2,000 times the same request: kept once
    assert collector.metric("lanterne_collector_logs_total", kind="repeated") == 1999 * 50
    # And the same over gRPC framing, by hand.
    data = path.read_bytes()
    path.write_bytes(b"\0" + len(data).to_bytes(4, "big") + data)
    got = subprocess.run(["h2load", "-n", "1000", "-c", "4", "-m", "50", "-d", str(path), "-H",
                          "content-type: application/grpc", "-H", "te: trailers",
                          f"http://127.0.0.1:{collector.port}{cu.GRPC_LOGS}"],
                         capture_output=True, text=True, timeout=60, check=False)
    assert "1000 succeeded, 0 failed, 0 errored, 0 timeout" in got.stdout, got.stdout
    assert collector.metric("lanterne_collector_logs_total", kind="repeated") == 2999 * 50


# --- where they can be had -------------------------------------------------------------------------

def test_python_sdk(collector):
    """The exporters of opentelemetry-exporter-otlp, where that is installed."""
    if importlib.util.find_spec("opentelemetry") is None or \
            importlib.util.find_spec("opentelemetry.exporter") is None:
        pytest.skip("needs opentelemetry-exporter-otlp for this Python (not in Debian 12)")
    code = """
import sys
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
for kind, url in (("grpc", sys.argv[1]), ("http", sys.argv[1] + "/v1/metrics")):
    module = __import__(f"opentelemetry.exporter.otlp.proto.{kind}.metric_exporter", fromlist=["x"])
    exporter = module.OTLPMetricExporter(endpoint=url)
    reader = PeriodicExportingMetricReader(exporter, export_interval_millis=3600000)
    provider = MeterProvider([reader], resource=Resource({"service.name": "sdk-" + kind}))
    provider.get_meter("m").create_counter("orders").add(7)
    assert provider.force_flush()
    provider.shutdown()
"""
    got = subprocess.run([sys.executable, "-c", code, f"http://127.0.0.1:{collector.port}"], capture_output=True,
                         text=True, timeout=60, check=False)
    assert got.returncode == 0, got.stderr
    for kind in ("grpc", "http"):
        assert collector.metric("orders_total", job=f"sdk-{kind}") == 7


def test_opentelemetry_collector(collector, procs, tmp_path):
    """The OpenTelemetry Collector in front of ours, where its binary is given as LTN_OTELCOL."""
    binary = os.environ.get("LTN_OTELCOL")
    if not binary:
        pytest.skip("needs the OpenTelemetry Collector (path in LTN_OTELCOL; not in Debian 12)")
    port = harness.free_port()
    conf = tmp_path / "otelcol.yaml"
    conf.write_text(json.dumps({    # JSON is YAML
        "receivers": {"otlp": {"protocols": {"grpc": {"endpoint": f"127.0.0.1:{port}"}}}},
        "exporters": {
            "otlp": {"endpoint": f"127.0.0.1:{collector.port}", "tls": {"insecure": True}},
            "otlphttp": {"endpoint": f"http://127.0.0.1:{collector.port}"}},
        "service": {"telemetry": {"metrics": {"level": "none"}},
                    "pipelines": {"logs": {"receivers": ["otlp"], "exporters": ["otlp"]},
                                  "metrics": {"receivers": ["otlp"], "exporters": ["otlphttp"]}}}}))
    p = procs.start(binary, "--config", str(conf))
    p.wait_port(port, timeout_s=30)
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        cu.export(channel, log_request("through", ["a", "b"]), cu.GRPC_LOGS)
        cu.export(channel, gauge_request("through", [4.5]))
    harness.wait_until(lambda: len(logs(collector, service="through")) == 2, 20, "the records")
    harness.wait_until(lambda: collector.metric("probe_value_ratio", job="through") == 4.5, 20, "the value")
    p.send(signal.SIGTERM)
