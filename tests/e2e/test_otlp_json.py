# SPDX-License-Identifier: Apache-2.0
"""OTLP/JSON and media types: the same data in both encodings, answers in the type of the request, refusals, known
bugs of other receivers."""

import gzip
import json
import os
import time

import pytest

import collector_util as cu
import harness

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
REGRESS = os.path.join(ROOT, "tests", "fuzz", "regress", "fuzz_otlp_json")
JSON = "application/json"
PATHS = ("/v1/metrics", "/v1/logs", "/v1/traces")

# What each file of the fuzz target's regressions gets at /v1/metrics, /v1/logs, /v1/traces. 200 alone is {}; "warn"
# is a warning without rejections, a number is that many rejected.
ANSWERS = {
    "empty": ("{}", "{}", "{}"),
    "exp-scale-20": ("{}", "warn", "warn"),
    "garbage-traces": (400, 400, 400),
    "logs-no-resource": ("warn", "{}", "warn"),
    "u64-negative": (400, "warn", "warn"),
    "u64-empty": (400, "warn", "warn"),
    "u64-too-big": (400, "warn", "warn"),
    "trace-id-15-bytes": ("warn", "{}", "warn"),
    "histogram-mismatch": (1, "warn", "warn"),
    "body-empty": ("warn", "{}", "warn"),
    "body-missing": ("warn", "{}", "warn"),
    "body-null": ("warn", "{}", "warn"),
    "kvlist-in-array": ("warn", "{}", "warn"),
    "deep-150": (400, 400, 400),
    "deep-5000": (400, 400, 400),
    "deep-unknown": (400, 400, 400),
    "old-names": ("warn", "warn", "warn"),
    "snake-case": ("warn", "warn", "warn"),
    "enum-name": (400, "warn", "warn"),
    "nul-and-not-utf8": ("warn", "{}", "warn"),
    "flood": ("warn", "warn", "warn"),
}
REJECTED = {"/v1/metrics": "rejectedDataPoints", "/v1/logs": "rejectedLogRecords", "/v1/traces": "rejectedSpans"}


@pytest.fixture
def collector(procs, tmp_path):
    return cu.Collector(procs, tmp_path).start()


def post(collector, path, body, kind=JSON, **headers):
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    return collector.post(path, body, {"Content-Type": kind, **headers})


def gauge(name, value, **attributes):
    attrs = [{"key": k, "value": {"stringValue": v}} for k, v in attributes.items()]
    point = {"timeUnixNano": str(time.time_ns()), "asDouble": value, "attributes": attrs}
    return {"resourceMetrics": [{"scopeMetrics": [{"metrics": [{"name": name, "gauge": {"dataPoints": [point]}}]}]}]}


def spans(n):
    return {"resourceSpans": [{"scopeSpans": [{"spans": [{"name": f"s{i}", "kind": 1} for i in range(n)]}]}]}


def verdict(path, answer):
    status, headers, body = answer
    assert headers["content-type"] == JSON
    value = json.loads(body)
    if status != 200:
        assert value["code"] == 3 and value["message"], value
        return status
    if value == {}:
        return "{}"
    assert list(value) == ["partialSuccess"]
    part = value["partialSuccess"]
    assert part["errorMessage"]
    return int(part[REJECTED[path]]) if len(part) == 2 else "warn"


def test_answers_and_known_bugs(collector):
    assert sorted(ANSWERS) == sorted(os.listdir(REGRESS))
    for name, expected in ANSWERS.items():
        with open(os.path.join(REGRESS, name), "rb") as f:
            body = f.read()
        got = tuple(verdict(path, post(collector, path, body)) for path in PATHS)
        assert got == expected, name
    status, _, body = post(collector, "/v1/metrics", {"resource_metrics": [{}]})
    assert status == 200 and "lowerCamelCase" in json.loads(body)["partialSuccess"]["errorMessage"]
    status, _, body = post(collector, "/v1/metrics", b'{"resourceMetrics": 1}')
    assert status == 400 and json.loads(body)["message"] == "malformed JSON at byte 20"
    assert post(collector, "/v1/traces", spans(3))[2] == (
        b'{"partialSuccess":{"rejectedSpans":"3","errorMessage":"traces are not stored"}}')


def test_media_types(collector):
    for path in PATHS:
        for kind in ("application/json; charset=utf-8", "Application/JSON", "application/json;charset=UTF-8"):
            assert post(collector, path, b"{}", kind)[0::2] == (200, b"{}"), kind
        for kind in ("application/x-protobuf", "application/protobuf", "application/x-protobuf; version=1"):
            status, headers, body = post(collector, path, b"", kind)
            assert (status, body) == (200, b"") and headers["content-type"] == kind.split(";")[0]
            status, headers, body = post(collector, path, b"\xff", kind)
            assert status == 400 and headers["content-type"] == kind.split(";")[0] and body.startswith(b"\x08\x03")
        for kind in ("text/plain", "application/", "application/grp", "application/jsonx", "application/x-ndjson"):
            status, headers, _ = post(collector, path, b"{}", kind)
            assert status == 415 and headers["content-type"] == JSON, kind
        assert harness.http_get(f"http://127.0.0.1:{collector.port}{path}")[0] == 405
    # Protobuf too is told when nothing in a body was understood; an empty one is fine.
    status, _, body = post(collector, "/v1/metrics", b"\x0a\x00", "application/x-protobuf")
    assert status == 200 and cu.partial(body) == (0, "no records found in the request")


def test_same_data_in_both_encodings(collector):
    assert post(collector, "/v1/metrics", gauge("from.json", 2.5, room="caf\u00e9 \U0001f680"))[2] == b"{}"
    body = gzip.compress(json.dumps(gauge("from.gzip", -0.25, room="a")).encode())
    assert post(collector, "/v1/metrics", body, **{"Content-Encoding": "gzip"})[2] == b"{}"
    assert collector.metric("from_json", room="caf\u00e9 \U0001f680") == 2.5
    assert collector.metric("from_gzip", room="a") == -0.25
    # The requests of simulated agents, turned to JSON by Google's library, are taken as their protobuf is.
    job = cu.Job(nodes=2, per_node=1)
    for _ in range(3):
        for node, q in job.next_window().items():
            status, headers, body = post(collector, "/v1/metrics", as_json(q.bytes()))
            assert (status, body) == (200, b"{}") and headers["lanterne-verdict"] == "ok", node
    assert cu.op_counts(collector.db) == job.launches()


def as_json(data):
    from google.protobuf import json_format
    m = cu.proto("collector.metrics.v1.metrics_service").ExportMetricsServiceRequest()
    m.ParseFromString(data)
    return json_format.MessageToJson(m, use_integers_for_enums=True).encode()


def test_traces_are_counted(collector):
    with collector.channel() as channel:
        data = b"\x0a\x0a\x12\x08" + b"\x12\x00" * 4
        response, _ = cu.export(channel, data, "/opentelemetry.proto.collector.trace.v1.TraceService/Export")
    assert cu.partial(response) == (4, "traces are not stored")
    assert cu.partial(post(collector, "/v1/traces", data, "application/x-protobuf")[2])[0] == 4
    assert verdict("/v1/traces", post(collector, "/v1/traces", spans(2))) == 2
    assert collector.metric("lanterne_collector_rejected_total", reason="traces") == 10
