# SPDX-License-Identifier: Apache-2.0
"""Every kind of OTLP metric at /metrics: read by the strict parsers, by promtool and by the real Prometheus, in both formats."""

import http.server
import math
import random
import socket
import struct
import subprocess
import threading
import time

import pytest

import collector_util as cu
import harness
import tls_util as tls
from test_prometheus import Prometheus, scraped


def parse_openmetrics(text):
    parser = pytest.importorskip("prometheus_client.openmetrics.parser", reason="python3-prometheus-client is not installed")
    return parser.text_string_to_metric_families(text)


def parse_text(text):
    parser = pytest.importorskip("prometheus_client.parser", reason="python3-prometheus-client is not installed")
    return parser.text_string_to_metric_families(text)


OPENMETRICS = "application/openmetrics-text;version=1.0.0"
DELTA, CUMULATIVE = 1, 2


def varint(n):
    out = b""
    while n >= 128:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def exemplar(field, value, trace=b"", span=b"", **attrs):
    """An exemplar as bytes of field `field` of a data point: the subset of the protocol in proto/ has none."""
    kvs = cu.proto("resource.v1.resource").Resource()
    cu.put_attrs(kvs.attributes, **attrs)
    body = b"\x11" + struct.pack("<Q", time.time_ns()) + b"\x19" + struct.pack("<d", value)
    body += b"\x22" + varint(len(span)) + span + b"\x2a" + varint(len(trace)) + trace
    for kv in kvs.attributes:
        raw = kv.SerializeToString()
        body += b"\x3a" + varint(len(raw)) + raw
    return varint(field << 3 | 2) + varint(len(body)) + body


class Doc:
    """One resource with one scope, and points of all kinds."""

    def __init__(self, job="shop", instance="i-1", **attrs):
        self.message = cu.proto("collector.metrics.v1.metrics_service").ExportMetricsServiceRequest()
        rm = self.message.resource_metrics.add()
        cu.put_attrs(rm.resource.attributes, service__name=job, service__instance__id=instance, **attrs)
        self.scope = rm.scope_metrics.add()
        self.scope.scope.name = "lib"
        self.scope.scope.version = "1.0"

    def metric(self, name, unit, kind, temporality=CUMULATIVE):
        m = self.scope.metrics.add(name=name, unit=unit, description=f"About {name}.")
        data = getattr(m, kind)
        data.SetInParent()
        if kind in ("sum", "histogram", "exponential_histogram"):
            data.aggregation_temporality = temporality
        return data

    def point(self, data, **attrs):
        p = data.data_points.add(time_unix_nano=time.time_ns())
        cu.put_attrs(p.attributes, **attrs)
        return p

    def histogram(self, name, bounds, counts, total, temporality=CUMULATIVE, start=0, end=0, **attrs):
        p = self.point(self.metric(name, "s", "histogram", temporality), **attrs)
        p.explicit_bounds.extend(bounds)
        p.bucket_counts.extend(counts)
        p.count = sum(counts)
        if total is not None:
            p.sum = total
        p.start_time_unix_nano = start
        p.time_unix_nano = end or p.time_unix_nano
        return p

    def exponential(self, name, scale, positive, negative=(0, []), zero=0, threshold=0.0, total=1.0, **attrs):
        p = self.point(self.metric(name, "s", "exponential_histogram"), **attrs)
        p.scale, p.zero_count = scale, zero
        p.positive.offset, p.negative.offset = positive[0], negative[0]
        p.positive.bucket_counts.extend(positive[1])
        p.negative.bucket_counts.extend(negative[1])
        p.count = zero + sum(positive[1]) + sum(negative[1])
        if threshold:   # field 14, which the subset lacks too
            p.MergeFromString(b"\x71" + struct.pack("<d", threshold))
        p.sum = total
        return p

    def summary(self, name, quantiles, count, total, **attrs):
        p = self.point(self.metric(name, "s", "summary"), **attrs)
        for q, v in quantiles:
            p.quantile_values.add(quantile=q, value=v)
        p.count, p.sum = count, total
        return p

    def number(self, name, unit, value, kind="gauge", monotonic=False, temporality=CUMULATIVE, **attrs):
        data = self.metric(name, unit, kind, temporality)
        if kind == "sum":
            data.is_monotonic = monotonic
        p = self.point(data, **attrs)
        p.as_double = value
        return p

    def bytes(self):
        return self.message.SerializeToString()


def all_kinds():
    """Points of all kinds, and of what must not spoil a scrape."""
    d = Doc(deployment__region="north", host__arch="amd64")
    trace, span = b"0123456789abcdef", b"\x01\x02\x03\x04\x05\x06\x07\x08"
    p = d.histogram("rpc.duration", [0.1, 1.0, 10.0], [1, 2, 3, 4], 42.5, route="/a")
    p.MergeFromString(exemplar(8, 0.5, trace, span, user="u1", secret="x" * 200))
    p.MergeFromString(exemplar(8, 99.0))                      # without any label
    d.histogram("no.sum", [1.0], [1, 1], None)
    d.histogram("below.zero", [-1.0, 1.0], [1, 1, 1], -3.0)
    p = d.exponential("exp.duration", 3, (-8, [1] * 16), threshold=0.02, zero=5, total=20.0)
    p.MergeFromString(exemplar(11, 1.5, trace, span))
    d.exponential("signed.exp", 0, (1, [3, 0, 5]), (0, [7, 11]), zero=2)
    d.exponential("fine.exp", 20, (-100, [1] * 200))
    d.summary("gc.pause", [(0.99, 0.25), (0.5, 0.125)], 10, 1.5, collector="old")
    d.number("queue.length", "1", 3, "sum", pool="p")                          # may fall: a gauge
    d.number("requests", "{request}", 7, "sum", True, job="mine", le="0.5", **{"a.b": "1", "a_b": "2"})
    p = d.number("temperature", "Cel", 21.5, room="caf\u00e9 \"x\" \\ \n end")
    p.MergeFromString(exemplar(5, 20.0, trace, span))        # of a gauge: not allowed
    d.number("share", "1", 0.25)
    # names that belong to samples of others
    d.number("rpc.duration.seconds.count", "", 1.0)
    d.number("rpc.duration.seconds.created", "", 1.0)
    return d


# Series that all_kinds() must give, in either format: name, labels besides those of job and scope, value.
EXPECTED = [
    ("rpc_duration_seconds_bucket", {"route": "/a", "le": "0.1"}, 1),
    ("rpc_duration_seconds_bucket", {"route": "/a", "le": "1.0"}, 3),
    ("rpc_duration_seconds_bucket", {"route": "/a", "le": "10.0"}, 6),
    ("rpc_duration_seconds_bucket", {"route": "/a", "le": "+Inf"}, 10),
    ("rpc_duration_seconds_sum", {"route": "/a"}, 42.5),
    ("rpc_duration_seconds_count", {"route": "/a"}, 10),
    ("no_sum_seconds_bucket", {"le": "+Inf"}, 2),
    ("below_zero_seconds_bucket", {"le": "-1.0"}, 1),
    ("exp_duration_seconds_bucket", {"le": "0.5"}, 5),       # zeros, none of the rest
    ("exp_duration_seconds_bucket", {"le": "1.0"}, 13),
    ("exp_duration_seconds_bucket", {"le": "2.0"}, 21),
    ("exp_duration_seconds_bucket", {"le": "+Inf"}, 21),
    ("signed_exp_seconds_bucket", {"le": "-2.0"}, 11),
    ("signed_exp_seconds_bucket", {"le": "-1.0"}, 18),
    ("signed_exp_seconds_bucket", {"le": "0.0"}, 20),
    ("signed_exp_seconds_bucket", {"le": "4.0"}, 23),
    ("signed_exp_seconds_bucket", {"le": "16.0"}, 28),
    ("fine_exp_seconds_bucket", {"le": "+Inf"}, 200),
    ("gc_pause_seconds", {"collector": "old", "quantile": "0.5"}, 0.125),
    ("gc_pause_seconds", {"collector": "old", "quantile": "0.99"}, 0.25),
    ("gc_pause_seconds_sum", {"collector": "old"}, 1.5),
    ("gc_pause_seconds_count", {"collector": "old"}, 10),
    ("queue_length", {"pool": "p"}, 3),
    ("requests_total", {"exported_job": "mine", "exported_le": "0.5", "a_b": "1;2"}, 7),
    ("temperature_celsius", {"room": "caf\u00e9 \"x\" \\ ? end"}, 21.5),
    ("share_ratio", {}, 0.25),
]
SCOPE = {"job": "shop", "instance": "i-1", "otel_scope_name": "lib", "otel_scope_version": "1.0"}


def scrape(c, accept=None):
    _, headers, body = harness.http_get(c.url("/metrics"), headers={"Accept": accept} if accept else {})
    return {k.lower(): v for k, v in headers.items()}, body.decode()


def samples(families):
    """{(name, labels): value}; two of the same are an error."""
    out = {}
    for f in families:
        for s in f.samples:
            key = (s.name, tuple(sorted(s.labels.items())))
            assert key not in out, f"twice: {key}"
            out[key] = s.value
    return out


def find(all_samples, name, labels):
    want = {**SCOPE, **labels}
    if "le" in want:   # the parsers of the two formats keep other texts of the same number
        return [v for (n, l), v in all_samples.items() if n == name and
                {**dict(l), "le": ""} == {**want, "le": ""} and float(dict(l)["le"]) == float(want["le"])]
    return [v for (n, l), v in all_samples.items() if n == name and dict(l) == want]


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kinds")
    procs = harness.Processes(folder)
    try:
        c = cu.Collector(procs, folder).start()
        status, _, body = c.post("/v1/metrics", all_kinds().bytes())
        assert status == 200
        c.partial = cu.partial(body)
        yield c
    finally:
        procs.kill_all()


def test_both_formats_by_strict_parsers(full):
    assert full.partial[0] == 1 or full.partial[0] == 2, full.partial   # the two that bear names of others' samples
    headers, text = scrape(full)
    assert headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert "accept" in headers["vary"].lower()
    plain = samples(parse_text(text))
    headers, text = scrape(full, f"{OPENMETRICS},text/plain;q=0.5,/;q=0.1")
    assert headers["content-type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    families = list(parse_openmetrics(text))
    strict = samples(families)
    for name, labels, value in EXPECTED:
        for got in (plain, strict):
            assert find(got, name, labels) == [value], (name, labels, [k for k in got if k[0] == name])
    kinds = {f.name: (f.type, f.unit) for f in families}
    assert kinds["rpc_duration_seconds"] == ("histogram", "seconds") and kinds["gc_pause_seconds"] == ("summary", "seconds")
    assert kinds["requests"] == ("counter", "") and kinds["queue_length"] == ("gauge", "")
    assert kinds["target"] == ("info", "")
    assert [v for (n, l), v in strict.items() if n == "target_info"] == [1]
    # What OpenMetrics forbids is not in it, and in the text format it is.
    for name in ("below_zero_seconds_sum", "below_zero_seconds_count", "signed_exp_seconds_sum", "no_sum_seconds_count"):
        assert not find(strict, name, {}), name
    assert find(plain, "below_zero_seconds_sum", {}) == [-3] and find(plain, "no_sum_seconds_count", {}) == [2]


def test_exemplars_only_where_allowed(full):
    _, text = scrape(full, OPENMETRICS)
    found = [(s.name, s.labels.get("le"), s.exemplar) for f in parse_openmetrics(text) for s in f.samples if s.exemplar]
    by_place = {(n, le): e for n, le, e in found}
    assert {k for k in by_place if k[0].startswith("rpc_")} == {("rpc_duration_seconds_bucket", "1.0"),
                                                              ("rpc_duration_seconds_bucket", "+Inf")}
    assert [k[0] for k in by_place if not k[0].startswith("rpc_")] == ["exp_duration_seconds_bucket"]
    e = by_place["rpc_duration_seconds_bucket", "1.0"]
    assert e.value == 0.5 and e.labels == {"trace_id": b"0123456789abcdef".hex(), "span_id": "0102030405060708", "user": "u1"}
    assert abs(float(e.timestamp) - time.time()) < 600
    assert by_place["rpc_duration_seconds_bucket", "+Inf"].labels == {}
    assert " # {} 99" in text and "{" in text
    assert "#" not in "".join(line.partition("} ")[2] for line in scrape(full)[1].splitlines() if line[0] != "#")


def test_text_passes_promtool(full):
    harness.require_command("promtool")
    _, text = scrape(full)
    r = subprocess.run(["promtool", "check", "metrics"], input=text.encode(), capture_output=True, check=False)
    said = (r.stdout + r.stderr).decode().splitlines()
    # Names of clients are theirs; only the form is ours. (GPU hours are what people pay for.)
    ours = [s for s in said if s and "lanterne_job_gpu_hours_lost_total" not in s]
    assert r.returncode in (0, 3) and not [s for s in ours if "error" in s.lower()], said
    assert ours == [], said


class TextOnly(http.server.BaseHTTPRequestHandler):
    """/metrics of a collector in the text format, whatever is asked."""

    def do_GET(self):   # pylint: disable=invalid-name
        headers, text = scrape(self.server.collector)
        self.send_response(200)
        self.send_header("Content-Type", headers["content-type"])
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *args):
        pass


@pytest.mark.parametrize("form", ["openmetrics", "text"])
def test_the_real_prometheus_takes_all_kinds(procs, tmp_path, full, form):
    target = full.api_port
    if form == "text":
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), TextOnly)
        server.collector = full
        threading.Thread(target=server.serve_forever, daemon=True).start()
        target = server.server_address[1]
    p = Prometheus(procs, tmp_path, target, flags=["--enable-feature=exemplar-storage"])
    harness.wait_until(lambda: scraped(p), 30, "a scrape")
    for name, labels, value in EXPECTED:
        want = {**SCOPE, **labels}
        got = [g for g in p.query(f'{name}{{job="shop"}}')
               if all(float(g[0].get(k, "nan")) == float(v) if k == "le" else g[0].get(k) == v for k, v in want.items())]
        assert [v for _, v in got] == [value], (name, labels, got)
    quantile = p.query("histogram_quantile(0.5, exp_duration_seconds_bucket)")[0][1]
    assert 0.5 <= quantile <= 1.0
    assert -4 <= p.query("histogram_quantile(0.3, signed_exp_seconds_bucket)")[0][1] <= -1
    assert p.query("target_info")[0][0]["deployment_region"] == "north"
    if form == "openmetrics":
        now = time.time()
        got = p.api("query_exemplars", query="rpc_duration_seconds_bucket", start=now - 600, end=now + 60)
        ids = [e["labels"].get("trace_id") for series in got for e in series["exemplars"]]
        assert b"0123456789abcdef".hex() in ids, got
    else:
        server.shutdown()


def test_series_end_when_their_client_says_so(procs, tmp_path):
    c = cu.Collector(procs, tmp_path).start()
    d = Doc()
    d.histogram("h", [1.0], [1, 1], 1.0)
    d.summary("s", [(0.5, 1.0)], 1, 1.0)
    d.exponential("e", 0, (0, [1]))
    assert c.post("/v1/metrics", d.bytes())[0] == 200
    assert c.metric("h_seconds_count") == 2 and c.metric("s_seconds_count") == 1 and c.metric("e_seconds_count") == 1
    d = Doc()
    for p in (d.histogram("h", [], [], None), d.summary("s", [], 0, 0), d.exponential("e", 0, (0, []))):
        p.flags = 1
    assert c.post("/v1/metrics", d.bytes())[0] == 200
    text = scrape(c)[1]
    assert "h_seconds" not in text and "s_seconds" not in text.replace("lanterne", "").split("otel_scope")[0][-1:], text
    assert c.metric("h_seconds_count") is None and c.metric("s_seconds_count") is None and c.metric("e_seconds_count") is None


def test_histograms_outlive_kill_nine(procs, tmp_path):
    """What was acknowledged is there after the restart; deltas go on where they were, and a retry adds nothing."""
    c = cu.Collector(procs, tmp_path).start()
    t = time.time_ns()

    def push(start, end):
        d = Doc()
        d.histogram("h", [1.0], [1, 2], 5.0, DELTA, t + start, t + end)
        d.summary("s", [(0.5, 1.0)], 7, 1.0)
        d.exponential("e", 2, (-3, [1, 2]))
        assert c.post("/v1/metrics", d.bytes())[0] == 200

    push(0, 10)
    push(10, 20)
    c.process.kill()
    c.process.wait()
    c.start()
    assert c.metric("h_seconds_count") == 6 and c.metric("h_seconds_sum") == 10
    assert c.metric("s_seconds_count") == 7 and c.metric("e_seconds_count") == 3
    push(10, 20)
    assert c.metric("h_seconds_count") == 6
    push(20, 30)
    assert c.metric("h_seconds_count") == 9


WORDS = ["a", "a.b", "a_b", "a..b", "9lives", "le", "quantile", "job", "instance", "node", "__name__", "caf\u00e9", "x y",
         "otel.scope.name", "otel_metric_overflow", "\u0000", "\U0001f600", "total", "seconds", "bucket", "count", "sum",
         "created", "info", "h", "h.count", "h.bucket", "h.total", "ratio", ""]
UNITS = ["", "1", "s", "By", "{x}", "By/s", "{x}/s", "%", "rpm", "ms/m/", "/", "s/", "\u00b5s"]
VALUES = [0.0, 1.0, -1.5, 1e-9, 1e300, -1e300, math.inf, -math.inf, math.nan, 0.1 + 0.2, 5e-324, 123456789.0]


def random_document(r):
    d = Doc(job=r.choice(WORDS), instance=r.choice(WORDS))
    cu.put_attrs(d.message.resource_metrics[0].resource.attributes, **{w: r.choice(WORDS) for w in r.sample(WORDS, 3)})
    d.scope.scope.name = r.choice(WORDS)
    for w in r.sample(WORDS, 2):
        cu.put_attrs(d.scope.scope.attributes, **{w: r.choice(WORDS)})
    for _ in range(r.randint(1, 12)):
        name = ".".join(r.sample(WORDS, r.randint(1, 2)))
        attrs = {w: r.choice([1, True, 0.5, *WORDS]) for w in r.sample(WORDS, r.randint(0, 4))}
        kind = r.randrange(5)
        if kind == 0:
            n = r.randint(0, 5)
            bounds = sorted(r.sample([-2.0, -0.5, 0.0, 1e-9, 0.1, 1.0, 1e6, 1e300], n))
            p = d.histogram(name, bounds, [r.choice([0, 1, 7, 2**60]) for _ in range(n + 1)] if n else [],
                            r.choice([None, *VALUES]), r.choice([DELTA, CUMULATIVE]))
            p.count = p.count if n else r.randint(0, 9)
        elif kind == 1:
            scale = r.randint(-10, 20)
            reach = max(0, min(900, 1000 >> -scale) if scale < 0 else 900)
            p = d.exponential(name, scale, (r.randint(-reach - 1, reach), [r.randint(0, 3) for _ in range(r.randint(0, 5))]),
                              (r.randint(-reach - 1, reach), [r.randint(0, 3) for _ in range(r.randint(0, 5))]),
                              r.randint(0, 2), r.choice([0.0, 1e-9, 0.02, 3.0]), r.choice(VALUES))
        elif kind == 2:
            p = d.summary(name, [(r.random(), r.choice(VALUES)) for _ in range(r.randint(0, 4))], r.randint(0, 9), r.choice(VALUES))
        else:
            p = d.number(name, r.choice(UNITS), r.choice(VALUES), r.choice(["gauge", "sum"]), r.random() < 0.5,
                         r.choice([DELTA, CUMULATIVE]))
        cu.put_attrs(p.attributes, **attrs)
        field = {0: 8, 1: 11, 2: 99}.get(kind, 5)
        for _ in range(r.randint(0, 2)):
            p.MergeFromString(exemplar(field, r.choice(VALUES), r.choice([b"", b"0123456789abcdef"]), b"",
                                       **{w: r.choice(WORDS) * r.choice([1, 90]) for w in r.sample(WORDS, 2)}))
    return d


def test_random_documents_parse_and_agree(procs, tmp_path):
    """Whatever clients send, both formats parse strictly and say the same."""
    c = cu.Collector(procs, tmp_path).start()
    r = random.Random(7)
    for round_ in range(6):
        for _ in range(25):
            status, _, _ = c.post("/v1/metrics", random_document(r).bytes())
            assert status in (200, 400)
        plain = samples(parse_text(scrape(c)[1]))
        try:
            strict = samples(parse_openmetrics(scrape(c, OPENMETRICS)[1]))
        except ValueError as e:
            pytest.fail(f"round {round_}: {e}")
        own = ("lanterne_", "gpu_")
        plain = {k: v for k, v in plain.items() if not k[0].startswith(own)}
        strict = {k: v for k, v in strict.items() if not k[0].startswith(own)}
        assert len(plain) > 20

        def same(a, b):
            return float(a) == float(b) or (math.isnan(a) and math.isnan(b))

        def key(k):   # bounds as numbers
            labels = dict(k[1])
            if "le" in labels:
                labels["le"] = float(labels["le"])
            return k[0], tuple(sorted(labels.items()))
        plain, strict = {key(k): v for k, v in plain.items()}, {key(k): v for k, v in strict.items()}
        assert set(strict) <= set(plain), set(strict) - set(plain)
        assert [(k, plain[k], v) for k, v in strict.items() if not same(plain[k], v)] == []
        for k in set(plain) - set(strict):   # what OpenMetrics has no room for
            negative_counter = k[0].endswith("_total") and not plain[k] >= 0
            assert k[0].endswith(("_sum", "_count")) or "quantile" in dict(k[1]) or negative_counter, k


def rss_kib(process):
    with open(f"/proc/{process.pid}/status", encoding="ascii") as f:
        return int(next(line for line in f if line.startswith("VmRSS")).split()[1])


def test_slow_scrapers_are_bounded(procs, tmp_path):
    """Sixteen that do not read get as far as their sockets take it; nothing of the rest is made, and others go on."""
    c = cu.Collector(procs, tmp_path).start()
    bounds = [i / 16 for i in range(500)]
    for i in range(10):
        d = Doc()
        for k in range(20):
            d.histogram("wide", bounds, [1] * 501, 1.0, pod=f"pod-{i * 20 + k}", padding="x" * 200)
        assert c.post("/v1/metrics", d.bytes())[0] == 200
    before = rss_kib(c.process)
    size = len(scrape(c)[1])
    assert size > 20_000_000
    slow = []
    for _ in range(16):
        s = socket.socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        s.connect(("127.0.0.1", c.api_port))
        s.sendall(b"GET /metrics HTTP/1.1\r\nhost: x\r\naccept-encoding: identity\r\n\r\n")
        assert s.recv(12) == b"HTTP/1.1 200"
        slow.append(s)
    status, headers, _ = harness.http_get(c.url("/metrics"))
    assert status == 503 and "Retry-After" in {k.title() for k in headers}
    assert c.post("/v1/metrics", Doc().bytes())[0] == 200
    assert rss_kib(c.process) - before < 60_000   # not sixteen times twenty megabytes
    for s in slow:
        s.close()
    harness.wait_until(lambda: harness.http_get(c.url("/metrics"))[0] == 200, 10, "room for a scrape")
    assert c.metric("lanterne_collector_scrapes_total", outcome="cut") >= 16
    assert c.metric("lanterne_collector_scrapes_total", outcome="refused") >= 1
    assert c.metric("lanterne_collector_scrapes_total", outcome="complete") >= 1


def test_hostile_bytes_and_like_resources(procs, tmp_path):
    """Invalid UTF-8 in names, keys, values and descriptions; the same series from two resources."""
    c = cu.Collector(procs, tmp_path).start()
    d = Doc(job="shBADop", tag="vBADv")
    d.scope.scope.name = "liBADb"
    d.number("nBADn", "uBADu", 1.0, k="vBADv", **{"kBADk": "w"})
    d.histogram("hBADh", [1.0], [1, 1], 1.0, k="\nBAD\"").MergeFromString(exemplar(8, 0.5, k="vBADv"))
    assert c.post("/v1/metrics", d.bytes().replace(b"BAD", b"\xff\xc0\xa7"))[0] == 200
    for instance in ("i-1", "i-2"):
        d = Doc(instance=instance)
        d.number("same", "", 5.0, a="b", job="theirs")
        assert c.post("/v1/metrics", d.bytes())[0] == 200
    _, text = scrape(c)
    plain, strict = samples(parse_text(text)), samples(parse_openmetrics(scrape(c, OPENMETRICS)[1]))
    for got in (plain, strict):
        same = sorted(dict(l)["instance"] for (n, l), v in got.items() if n == "same" and v == 5)
        assert same == ["i-1", "i-2"]
        assert [dict(l)["exported_job"] for (n, l) in got if n == "same"] == ["theirs"] * 2
        bad = [dict(l) for (n, l) in got if n == "n_n_u_u"]
        assert len(bad) == 1 and bad[0]["k"] == "v???v" and bad[0]["k_k"] == "w" and bad[0]["job"] == "sh???op", bad
    harness.require_command("promtool")
    r = subprocess.run(["promtool", "check", "metrics"], input=text.encode(), capture_output=True, check=False)
    assert r.returncode in (0, 3), r.stdout + r.stderr


@pytest.mark.parametrize("proto", ["--http1.1", "--http2"])
def test_a_long_scrape_over_tls(procs, tmp_path, proto):
    """Pieces through a transport that takes them record by record: the same bytes as in cleartext."""
    authority = tls.Authority(tmp_path)
    cert, key = authority.issue("server", "DNS:localhost,IP:127.0.0.1")
    c = cu.Collector(procs, tmp_path, "--tls-cert-file", cert, "--tls-key-file", key).start()
    d = Doc()
    for i in range(60):
        d.histogram("wide", [k / 16 for k in range(500)], [1] * 501, 1.0, pod=f"pod-{i}", padding="x" * 200)
    assert c.post("/v1/metrics", d.bytes())[0] == 200
    for encoding in ("identity", "gzip"):
        out = subprocess.run(["curl", "-sS", "-m", "20", proto, "--compressed" if encoding == "gzip" else "--no-compressed",
                              "--cacert", authority.file, f"https://localhost:{c.api_port}/metrics"], capture_output=True, check=True)
        plain = scrape(c)[1]
        assert len(out.stdout) > 5_000_000

        def clients(text):
            return [line for line in text.splitlines() if line.startswith("wide_")]
        assert clients(out.stdout.decode()) == clients(plain)
