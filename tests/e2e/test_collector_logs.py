# SPDX-License-Identifier: Apache-2.0
"""Log records of any OTLP client: kept with all they say, once however often sent, found again, bounded."""

import json
import sqlite3
import time
import urllib.parse

import pytest

import collector_util as cu
import harness

NOW = time.time_ns() // cu.SECOND * cu.SECOND


@pytest.fixture
def collector(procs, tmp_path):
    return cu.Collector(procs, tmp_path).start()


def request(**resource):
    m = cu.proto("collector.logs.v1.logs_service").ExportLogsServiceRequest()
    rl = m.resource_logs.add()
    if resource:
        cu.put_attrs(rl.resource.attributes, **resource)
    rl.scope_logs.add().scope.name = "test"
    return m, rl.scope_logs[0].log_records


def record(records, body=None, at=NOW, number=9, text="INFO", **attrs):
    r = records.add(time_unix_nano=at, severity_number=number, severity_text=text)
    if body is not None:
        r.body.string_value = body
    cu.put_attrs(r.attributes, **attrs)
    return r


def answer(data):
    m = cu.proto("collector.logs.v1.logs_service").ExportLogsServiceResponse()
    m.ParseFromString(data)
    return m.partial_success.rejected_log_records, m.partial_success.error_message


def send(collector, message):
    status, _, body = collector.post("/v1/logs", message.SerializeToString())
    assert status == 200, body
    return answer(body)


def logs(collector, **params):
    got = collector.get("/api/v1/logs?" + urllib.parse.urlencode(params))
    return got["logs"]


def test_every_field_comes_back(collector):
    m, records = request(service__name="shop", service__instance__id="i-1", k8s__pod__name="pod-7")
    r = record(records, "line one\r\n\tline two \u00e9\x1b[31m\0end", at=NOW + 123, number=18, text="ERROR2",
               user="anna", tries=3, ratio=0.5, ok=True)
    r.observed_time_unix_nano = NOW + 456
    r.trace_id = bytes(range(16))
    r.span_id = bytes(range(8))
    r.flags = 1
    r.event_name = "order.failed"
    assert send(collector, m) == (0, "")
    (got,) = logs(collector)
    assert got["body"] == "line one\n\tline two \u00e9?[31m?end"
    assert got["attributes"] == {"user": "anna", "tries": 3, "ratio": 0.5, "ok": True}
    assert got["resource"] == {"service.name": "shop", "service.instance.id": "i-1", "k8s.pod.name": "pod-7"}
    assert (got["service"], got["instance"], got["scope"]) == ("shop", "i-1", "test")
    assert (got["severity"], got["severity_number"], got["event"]) == ("ERROR2", 18, "order.failed")
    assert (got["trace_id"], got["span_id"]) == (bytes(range(16)).hex(), bytes(range(8)).hex())
    assert (got["at_ns"], got["flags"], got["values_cut"]) == (NOW + 123, 1, 0)
    with sqlite3.connect(f"file:{collector.db}?mode=ro", uri=True) as c:
        row = c.execute("SELECT service, severity, body, time_ns, observed_ns, at, json_extract(attributes, '$.tries')"
                        " FROM logs").fetchone()
    assert row == ("shop", "ERROR2", got["body"], NOW + 123, NOW + 456, got["at"].split(".")[0] + "Z", 3)


def test_empty_nested_and_missing_things(collector):
    """Values without a type, no body, no resource, lists within maps within lists."""
    m, records = request()
    del m.resource_logs[0].resource.attributes[:]
    m.resource_logs[0].ClearField("resource")
    record(records, at=NOW)                            # no body
    record(records, at=NOW + 1).body.SetInParent()     # a value without a type
    record(records, "", at=NOW + 2)                    # an empty text
    v = record(records, at=NOW + 3).body.kvlist_value.values
    a = v.add(key="list").value.array_value.values
    a.add().int_value = 2**63 - 1
    a.add()
    a.add().kvlist_value.values.add(key="deep").value.bytes_value = b"\x00\xff\x10"
    v.add(key="nan").value.double_value = float("nan")
    a.add().double_value = float("-inf")
    record(records, at=NOW + 4).attributes.add(key="empty")
    record(records, at=NOW + 5).body.int_value = -5
    n = record(records, at=NOW + 6)
    n.trace_id, n.span_id = bytes(16), b"\x01" * 7    # all zeros, wrong length: none
    assert send(collector, m) == (0, "")
    got = {r["at_ns"] - NOW: r for r in logs(collector)}
    assert sorted(got) == list(range(7))
    assert [got[i]["body"] for i in (0, 1, 2, 5)] == [None, None, "", -5]
    assert got[3]["body"] == {"list": [2**63 - 1, None, {"deep": "AP8Q"}, "-Infinity"], "nan": "NaN"}
    assert got[4]["attributes"] == {"empty": None}
    assert all(r["service"] is None and r["resource"] == {} for r in got.values())
    assert got[6]["trace_id"] is None and got[6]["span_id"] is None


def test_depth_and_size_are_bounded(collector):
    m, records = request()
    v = record(records).body
    for _ in range(12):
        v = v.array_value.values.add()
    v.string_value = "bottom"
    assert send(collector, m) == (0, "")
    assert json.dumps(logs(collector)[0]["body"]) == "[" * 12 + '"bottom"' + "]" * 12
    for _ in range(40):
        v = v.array_value.values.add()
    assert collector.post("/v1/logs", m.SerializeToString())[0] == 400
    m, records = request()
    record(records, "x" * 65535 + "\u00e9" * 10, at=NOW + 1, big="y" * 100000,
           **{f"k{i}": "z" * 8000 for i in range(20)})
    assert send(collector, m) == (0, "")
    got = logs(collector)[0]
    assert got["body"] == "x" * 65535 and got["attributes"]["big"] == "y" * 8192
    assert len(json.dumps(got["attributes"])) <= 70000 and "k0" in got["attributes"]
    assert got["values_cut"] == 2 + 21 - len(got["attributes"])


def test_more_records_than_a_request_may_hold(collector):
    m, records = request(service__name="many")
    for i in range(65536 + 10):
        records.add(observed_time_unix_nano=NOW + i)
    rejected, message = send(collector, m)
    assert rejected == 10 and "65,536" in message
    assert collector.metric("lanterne_collector_logs_total", kind="stored") == 65536
    assert logs(collector, limit=1)[0]["at_ns"] == NOW + 65535


def test_sent_again_is_kept_once(collector):
    m, records = request(service__name="a")
    record(records, "same")
    record(records, "same")               # twice in one request: two records
    record(records, "other")
    record(records, "timeless", at=0)
    for _ in range(3):
        assert send(collector, m) == (0, "")
    assert sorted(r["body"] for r in logs(collector)) == ["other", "same", "same", "timeless"]
    collector.process.kill()
    collector.start()
    assert send(collector, m) == (0, "")
    assert len(logs(collector)) == 4
    # Any difference makes another record.
    for change in ("resource", "time", "observed", "severity", "attribute", "scope"):
        m, records = request(service__name="b" if change == "resource" else "a")
        r = record(records, "same", at=NOW + (change == "time"), text="X" if change == "severity" else "INFO")
        if change == "observed":
            r.observed_time_unix_nano = NOW
        if change == "attribute":
            cu.put_attrs(r.attributes, k=1)
        if change == "scope":
            m.resource_logs[0].scope_logs[0].scope.name = "else"
        assert send(collector, m) == (0, "")
    assert len(logs(collector)) == 10
    assert collector.metric("lanterne_collector_logs_total", kind="stored") == 6
    assert collector.metric("lanterne_collector_logs_total", kind="repeated") == 4


def test_search(collector):
    now = time.time_ns()
    for service in ("web", "o'brien"):
        m, records = request(service__name=service)
        for i in range(30):
            record(records, f"100% of {service} {i}_", at=now - i * 60 * cu.SECOND, number=1 + i % 24,
                   text="", path=f"/p/{i}")
        send(collector, m)
    assert [r["body"] for r in logs(collector, service="o'brien", limit=2)] == ["100% of o'brien 0_",
                                                                                "100% of o'brien 1_"]
    assert {r["severity_number"] for r in logs(collector, severity="error")} == set(range(17, 25))
    assert {r["severity_number"] for r in logs(collector, severity="23")} == {23, 24}
    assert [r["body"] for r in logs(collector, q="WEB 7_")] == ["100% of web 7_"]
    assert len(logs(collector, q="0%")) == 60 and logs(collector, q="1%0") == []
    assert len(logs(collector, q="/p/29")) == 2
    assert logs(collector, since="50s", q="0_")[0]["body"].endswith("0_")
    assert len(logs(collector, since=now - 5 * 60 * cu.SECOND)) == 12
    # All pages together are everything, once, newest first.
    seen, before = [], None
    while True:
        page = collector.get("/api/v1/logs?limit=7" + (f"&before={before}" if before else ""))
        seen += page["logs"]
        before = page["next"]
        assert page["truncated"] == (before is not None)
        if before is None:
            break
    assert len({r["id"] for r in seen}) == 60
    assert [r["at_ns"] for r in seen] == sorted((r["at_ns"] for r in seen), reverse=True)
    for bad in ("limit=0", "limit=1001", "limit=x", "severity=HIGH", "severity=25", "before=5", "since=x",
                "q=" + "a" * 300, "q=%00", "node=x"):
        status, _, body = harness.http_get(collector.url("/api/v1/logs?" + bad))
        assert status == 400 and json.loads(body)["error"]["message"], bad


def test_bounded_by_bytes(procs, tmp_path):
    collector = cu.Collector(procs, tmp_path, "--limits-log-bytes", "1m").start()
    for i in range(40):
        m, records = request(service__name=f"s-{i}")
        for k in range(10):
            record(records, f"{i:02d}-{k} " + "x" * 10000, at=NOW + i * 1000 + k)
        assert send(collector, m) == (0, "")
        assert collector.metric("lanterne_collector_log_bytes") <= 1 << 20
    got = logs(collector, limit=1000)
    assert 30 <= len(got) <= 104
    assert [r["body"][:4] for r in got[:3]] == ["39-9", "39-8", "39-7"]    # the oldest went
    assert collector.metric("lanterne_collector_logs_total", kind="pruned_bytes") == 400 - len(got)
    with sqlite3.connect(f"file:{collector.db}?mode=ro", uri=True) as c:
        assert c.execute("SELECT (SELECT sum(bytes) FROM log) + (SELECT sum(bytes) FROM log_source) = bytes"
                         " FROM log_total").fetchone() == (1,)
        assert c.execute("SELECT count(*) FROM log_source").fetchone()[0] <= 11


def test_incidents_of_agents_are_no_logs(collector):
    m, records = request(service__name="lanterne-agent", host__name="node-0")
    record(records, "an incident", lanterne__incident__id="i-1").event_name = "lanterne.incident"
    record(records, "a remark")
    send(collector, m)
    assert [r["body"] for r in logs(collector)] == ["a remark"]
    assert len(collector.get("/api/v1/incidents")["incidents"]) == 1


def test_json_says_the_same(collector):
    """A request sent again in the other encoding holds the same records, nested values too."""
    from google.protobuf import json_format
    m, records = request(service__name="both", a=1.5, b=True)
    record(records, "text \u00e9\U0001f680\n", k="v", n=-7)
    v = record(records, at=NOW + 1).body.kvlist_value.values
    a = v.add(key="list").value.array_value.values
    a.add().int_value = -2**63
    a.add()
    a.add().kvlist_value.values.add(key="").value.bytes_value = b"\x00\xff"
    v.add(key="inf").value.double_value = float("inf")
    record(records, at=NOW + 2)
    assert send(collector, m) == (0, "")
    body = json_format.MessageToJson(m, use_integers_for_enums=True).encode()
    status, _, said = collector.post("/v1/logs", body, {"Content-Type": "application/json"})
    assert (status, said) == (200, b"{}")
    assert len(logs(collector)) == 3
    assert collector.metric("lanterne_collector_logs_total", kind="repeated") == 3
