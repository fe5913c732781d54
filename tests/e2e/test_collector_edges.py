# SPDX-License-Identifier: Apache-2.0
"""Strangers and mistakes: hostile bodies, wrong tokens, wrong configuration, foreign clients, scrapers."""

import gzip
import os
import socket
import subprocess

import grpc
import pytest

import collector_util as cu
import harness


@pytest.fixture
def collector(procs, tmp_path):
    return cu.Collector(procs, tmp_path).start()


def run(*args, env=None):
    return subprocess.run([harness.program("lanterne-collector"), *args], capture_output=True,
                          text=True, check=False, timeout=20, env={**os.environ, **(env or {})})


def answers(ask):
    """Whether it is answered with 200; accepting pauses for a moment when descriptors are out."""
    try:
        return ask() == 200
    except OSError:
        return False


def test_few_descriptors_leave_readers_theirs(procs, tmp_path):
    c = cu.Collector(procs, tmp_path)
    c.before = ("prlimit", "--nofile=90:90")
    c.start()
    c.process.wait_log(r"room for 60 connections of the 40000 of otlp.max_connections", 5)
    held = [socket.create_connection(("127.0.0.1", c.port), timeout=10) for _ in range(120)]
    harness.wait_until(lambda: answers(lambda: harness.http_get(c.url("/healthz"))[0]), 10, "health beside them")
    for s in held:
        s.close()
    harness.wait_until(lambda: answers(lambda: c.post("/v1/metrics", b"")[0]), 10, "room again")


def test_descriptors_are_raised_as_far_as_they_may(procs, tmp_path):
    c = cu.Collector(procs, tmp_path, "--otlp-max-connections", "1000")
    c.before = ("prlimit", "--nofile=64:4096")
    c.start()
    with open(f"/proc/{c.process.pid}/limits", encoding="ascii") as f:
        assert next(line.split()[3] for line in f if line.startswith("Max open files")) == "1256"
    assert "limit of open files" not in c.process.log()


def test_the_log_tells_of_series_without_room(procs, tmp_path):
    c = cu.Collector(procs, tmp_path, "--limits-series-per-metric", "5").start()
    q = cu.Request(cu.time.time_ns(), 10 * cu.SECOND)
    q.resource(service__name="s")
    for i in range(9):
        q.gauge("many", "1", 1.0, i=str(i))
    assert c.post("/v1/metrics", q.bytes())[0] == 200
    c.process.wait_log(r"4 points of clients are in series with otel_metric_overflow", 10)


def test_hostile_bodies(collector):
    nested = b""
    for _ in range(5000):
        nested = b"\x2a" + _varint(len(nested)) + nested
    bodies = [b"\xff" * 100, b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\x0a\x05abc",
              os.urandom(4096), nested, b"\x0a\x00" * 300000]
    for path in ("/v1/metrics", "/v1/logs", "/v1/traces"):
        for body in bodies:
            status, _, _ = collector.post(path, body)
            assert status in (200, 400), (path, body[:20], status)
        assert collector.post(path, b"") == (200, collector.post(path, b"")[1], b"")
        assert collector.post(path, b"{}", {"Content-Type": "text/json"})[0] == 415
        assert collector.post(path, b"", {"Content-Type": "application/grp"})[0] == 415
        assert collector.post(path, b"not gzip", {"Content-Encoding": "gzip"})[0] == 400
    assert collector.post("/v1/nothing", b"")[0] == 404
    bomb = gzip.compress(b"\0" * (200 << 20), 9)
    assert collector.post("/v1/metrics", bomb, {"Content-Encoding": "gzip"})[0] in (400, 413)
    with socket.create_connection(("127.0.0.1", collector.port), timeout=10) as c:
        c.sendall(b"POST /v1/metrics HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-protobuf\r\n"
                  b"Content-Length: 67108865\r\n\r\n")
        assert c.recv(4096).startswith(b"HTTP/1.1 413 ")
    with collector.channel() as channel:
        with pytest.raises(grpc.RpcError) as e:
            cu.export(channel, b"\xff" * 64)
        assert e.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    # Names from traced programs are data.
    q = cu.Request(cu.time.time_ns(), 10 * cu.SECOND)
    q.resource(service__name="lanterne-agent", host__name='n"1\n\\{}\x07', lanterne__window__sequence=1)
    q.gauge("hw.gpu.utilization", "1", float("nan"), hw__id='u"\n')
    q.gauge("hw.gpu.utilization", "1", float("inf"), hw__id="x" * 10000)
    assert collector.post("/v1/metrics", q.bytes())[0] == 200
    assert collector.get("/api/v1/nodes")["nodes"][0]["node"] == 'n"1?\\{}?'
    assert harness.http_get(collector.url("/metrics"))[0] == 200
    assert harness.http_get(collector.url("/api/v1/nodes/%00"))[0] == 404
    assert harness.http_get(collector.url("/api/v1/jobs/" + "a" * 5000))[0] == 404
    assert harness.http_get(collector.url("/api/v1/stragglers?since=yesterday"))[0] == 400
    assert harness.http_get(collector.url("/api/v1/incidents?severity=high&since=1d"))[0] == 200
    assert harness.http_get(collector.url("/api/v1/incidents?severity="))[0] == 400
    assert harness.http_get(collector.url("/api/v1/incidents?severty=high"))[0] == 400
    status, _, text = harness.http_get(collector.url("/api/v1/incidents?severity=bogus"))
    assert status == 400 and b"LOW, MEDIUM, HIGH, CRITICAL" in text
    refused = collector.get("/api/v1/ingest")["ingest"]["rejected_malformed"]
    assert refused >= 3, refused  # too large, twice, and not to be read
    assert collector.process.running()


def _status(collector):
    return harness.http_get(collector.url("/api/v1/status"), headers={"Accept": "text/plain"})[2].decode()


def _samples(collector):
    """Names and labels of all samples of /metrics."""
    return [line.rsplit(" ", 1)[0] for line in harness.http_get(collector.url("/metrics"))[2].decode().splitlines()
            if line and not line.startswith("#")]


def test_an_agent_restart_makes_no_second_ranks(collector):
    job = cu.Job(nodes=4, per_node=2, seed=33)
    for k in range(14):
        if k == 7:  # agents start again and tell the start of the same processes a little differently
            job.instance = {n: f"agent-{n}-again" for n in job.nodes}
            for r in (r for ranks in job.ranks.values() for r in ranks):
                r.start_ns += 40_000_000
        for q in job.next_window().values():
            assert collector.post("/v1/metrics", q.bytes())[0] == 200
    text = _status(collector)
    assert "8 of 8 ranks" in text, text
    assert "No straggler: nobody is being waited for." in text, text
    seen = _samples(collector)
    assert len(seen) == len(set(seen))
    assert len([s for s in seen if s.startswith("lanterne_rank_self_time_seconds{")]) == 8
    overview = collector.get("/api/v1/overview")
    assert overview["verdict_state"] == "no_straggler" and overview["ranks"] == 8


def test_status_does_not_acquit_whom_nobody_judged(collector):
    text = _status(collector)
    assert "Cannot tell: no rank sends windows." in text and "No straggler" not in text
    job = cu.Job(nodes=1, per_node=1, seed=34)
    for q in job.next_window().values():
        assert collector.post("/v1/metrics", q.bytes())[0] == 200
    text = _status(collector)
    assert "Cannot tell: job train-1: " in text and "step -" in text, text
    overview = collector.get("/api/v1/overview")
    assert overview["verdict_state"] == "cannot_tell" and overview["verdict_reason"]


def test_another_window_length_is_noticed(collector):
    job = cu.Job(nodes=2, per_node=1, window_ns=2 * cu.SECOND, seed=35)
    for _ in range(5):
        for q in job.next_window().values():
            assert collector.post("/v1/metrics", q.bytes())[0] == 200
    assert "node-1: its agent's windows are 2 s long, the collector's 10 s" in _status(collector)
    agent = collector.get("/api/v1/nodes")["nodes"][1]["agent"]
    assert agent["window_differs"] is True and agent["window_ns"] == 2 * cu.SECOND
    assert collector.metric("lanterne_collector_fleet_total", kind="windows_length") >= 6
    assert collector.process.log().count("node-1: its agent's windows") == 1


def _varint(n):
    out = b""
    while n >= 128:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def test_compressed_requests(collector):
    job = cu.Job(nodes=1, seed=21)
    body = job.next_window()["node-0"].bytes()
    assert collector.post("/v1/metrics", gzip.compress(body), {"Content-Encoding": "gzip"})[0] == 200
    assert cu.op_counts(collector.db) == job.launches()


def test_a_rejection_names_metric_and_limit(procs, tmp_path):
    """The first of several, in words that a developer can act on."""
    collector = cu.Collector(procs, tmp_path).start()
    wide = {f"a{i}": i for i in range(129)}
    reserved = "lanterne.straggler: another type is known here, or the name is reserved"
    for name, attrs, more, said in (("wide", wide, 0, "wide: more than 128 attributes"),
                                    ("wi\x1bde", wide, 0, "wi?de: more than 128 attributes"),
                                    ("lanterne.straggler", {}, 2, reserved)):
        q = cu.Request(1_700_000_000 * cu.SECOND, cu.SECOND)
        q.resource(service__name="web")
        q.gauge("fine", "", 1.0)
        q.gauge(name, "", 1.0, **attrs)
        for i in range(more):
            q.gauge("lanterne.straggler", "", 1.0, rank=str(i))
        status, _, body = collector.post("/v1/metrics", q.bytes())
        assert (status, cu.partial(body)) == (200, (1 + more, said))


def test_foreign_clients_are_exposed_within_limits(procs, tmp_path):
    collector = cu.Collector(procs, tmp_path, "--limits-series-per-metric", "10").start()
    q = cu.Request(1_700_000_000 * cu.SECOND, cu.SECOND)
    q.resource(service__name="web", service__namespace="shop", service__instance__id="i-1",
               deployment__region="north")
    q.gauge("room.temperature", "Cel", 21.5, room="a.b", **{"x__y": 1, "x_y": 2})
    q.sum("http.requests", "{request}", 7, job="mine")
    for i in range(100):
        q.gauge("many", "", i, i=i)
    q.duration("latency", [1, 2], 0, 0, 3.0)
    q.gauge("lanterne.straggler", "", 1.0, rank="9")
    status, _, body = collector.post("/v1/metrics", q.bytes())
    assert (status, cu.partial(body)) == (200, (1, "lanterne.straggler: another type is known here, or the name is reserved"))
    _, headers, text = harness.http_get(collector.url("/metrics"))
    text = text.decode()
    assert headers.get("Content-Type", headers.get("content-type")).startswith("text/plain; version=0.0.4")
    assert 'room_temperature_celsius{instance="i-1",job="shop/web",otel_scope_name="lanterne",' \
        'room="a.b",x_y="1;2"} 21.5' in text
    assert 'http_requests_total{instance="i-1",job="shop/web",otel_scope_name="lanterne",' \
        'exported_job="mine"} 7' in text
    assert text.count("\nmany{") == 11 and 'many{otel_metric_overflow="true"}' in text
    assert 'rank="9"' not in text
    assert 'target_info{instance="i-1",job="shop/web",deployment_region="north"} 1' in text
    assert collector.metric("lanterne_collector_series_refused_total", reason="overflow") == 90
    assert collector.metric("lanterne_collector_series_refused_total", reason="type_conflict") == 1
    assert collector.metric("lanterne_collector_series_refused_total", reason="kind") == 0
    assert collector.metric("latency_seconds_bucket", le="2.0") == 1 and collector.metric("latency_seconds_count") == 3


def test_traces_are_refused_politely(collector):
    request = b"\x0a\x08\x12\x06\x12\x01\x0a\x12\x01\x0a"  # two spans in one scope
    status, _, body = collector.post("/v1/traces", request)
    assert status == 200
    assert cu.partial(body) == (2, "traces are not stored")
    with collector.channel() as channel:
        response, _ = cu.export(channel, request, cu.GRPC_TRACES)
    assert cu.partial(response)[0] == 2


def test_exposition_holds_its_rules(collector):
    cu.push_grpc(collector, cu.Job(seed=22), 8)
    for accept, kind in ((None, "text/plain; version=0.0.4"),
                         ("application/openmetrics-text;version=1.0.0,text/plain;q=0.5",
                          "application/openmetrics-text; version=1.0.0")):
        _, headers, body = harness.http_get(collector.url("/metrics"),
                                            headers={"Accept": accept} if accept else {})
        headers = {k.lower(): v for k, v in headers.items()}
        assert headers["content-type"].startswith(kind)
        check_exposition(body.decode(), "openmetrics" in kind)
        assert "pid=" not in body.decode()


def check_exposition(text, openmetrics):
    seen, family, samples = set(), None, set()
    lines = text.split("\n")
    assert lines[-1] == ""
    if openmetrics:
        assert lines[-2] == "# EOF"
    for line in lines[:-1]:
        if line.startswith("# TYPE "):
            _, _, family, kind = line.split(" ")
            assert family not in seen, f"family twice: {family}"
            seen.add(family)
            assert not (openmetrics and kind == "counter" and family.endswith("_total"))
        elif not line.startswith("#"):
            name = line.split("{")[0].split(" ")[0]
            assert name.startswith(family), (family, line)
            key = line.rsplit(" ", 1)[0]
            assert key not in samples, f"sample twice: {key}"
            samples.add(key)
            float(line.rsplit(" ", 1)[1])


def test_tokens(procs, tmp_path):
    token = tmp_path / "token"
    token.write_text("s3cret\n")
    token.chmod(0o600)
    collector = cu.Collector(procs, tmp_path, "--token-file", token).start()
    body = cu.Job(nodes=1).next_window()["node-0"].bytes()
    good = {"Authorization": "Bearer s3cret"}
    for headers in ({}, {"Authorization": "Bearer s3cre"}, {"Authorization": "Bearer s3cret2"},
                    {"Authorization": "Basic s3cret"}):
        status, answer, _ = collector.post("/v1/metrics", body, headers)
        assert status == 401 and "www-authenticate" in answer
        assert harness.http_get(collector.url("/api/v1/overview"), headers=headers)[0] == 401
        assert harness.http_get(collector.url("/metrics"), headers=headers)[0] == 401
    assert collector.post("/v1/metrics", body, good)[0] == 200
    assert harness.http_get(collector.url("/api/v1/overview"), headers=good)[0] == 200
    assert harness.http_get(collector.url("/healthz"))[0] == 200
    with collector.channel() as channel:
        with pytest.raises(grpc.RpcError) as e:
            cu.export(channel, body)
        assert e.value.code() == grpc.StatusCode.UNAUTHENTICATED
        cu.export(channel, body, metadata=(("authorization", "Bearer s3cret"),))
    url = f"http://127.0.0.1:{collector.api_port}"
    refused = run("status", "--url", url)
    assert refused.returncode == 3 and "token" in refused.stderr
    assert run("status", "--url", url, "--token-file", str(token)).returncode == 0


def test_open_addresses_need_a_token(tmp_path):
    db = str(tmp_path / "c.db")
    for flags in (("--api-listen", "0.0.0.0:0"), ("--otlp-listen", ":0"), ("--otlp-listen", "[::]:0")):
        r = run(*flags, "--db", db)
        assert r.returncode == 2 and "--token-file" in r.stderr, flags
        assert run(*flags, "--db", db, "--insecure-no-token", "--check-config").returncode == 0
    assert not os.path.exists(db)


def test_configuration(tmp_path):
    conf = tmp_path / "c.yaml"
    conf.write_text("otlp:\n  lisen: 127.0.0.1:1\n")
    r = run("--config", str(conf))
    assert r.returncode == 2 and "otlp.listen" in r.stderr
    conf.write_text("otlp:\n  listen: ['127.0.0.1:1']\nwindow: 5s\n")
    r = run("--config", str(conf), "--dump-config", env={"LANTERNE_WINDOW": "7s"})
    assert r.returncode == 0 and "7s" in r.stdout and "127.0.0.1:1" in r.stdout
    assert run("--config", str(conf), "--check-config").returncode == 0
    assert run("--config", str(conf), "--window", "soon").returncode == 2
    for address, why in (("127.0.0.1:99999", "65535"), ("::1:4317", "brackets"), ("127.0.0.1", "HOST:PORT"), ("[::1]:x", "HOST:PORT")):
        r = run("--otlp-listen", address, "--insecure-no-token", "--check-config")
        assert r.returncode == 2 and why in r.stderr and address in r.stderr, r.stderr
    r = run("--token-file", str(tmp_path / "none"), "--check-config")
    assert r.returncode == 3 and "none: No such file" in r.stderr
    r = run("--alert-webhook", "@/nowhere/url", "--check-config")
    assert r.returncode == 3 and "/nowhere/url" in r.stderr
    r = run("--check-config", env={"LANTERNE_OTLP_LISTN": "x"})
    assert r.returncode == 0 and "did you mean LANTERNE_OTLP_LISTEN?" in r.stderr
    assert run("frobnicate").returncode == 2
    assert run("--help").returncode == 0 and "--otlp-listen" in run("--help").stdout
    assert "lanterne-collector" in run("--version").stdout
    r = run("status", "--url", f"http://127.0.0.1:{harness.free_port()}")
    assert r.returncode == 3 and r.stderr


def test_a_second_one_says_whom_it_waits_for(procs, tmp_path):
    first = cu.Collector(procs, tmp_path).start()
    second = procs.start(harness.program("lanterne-collector"), "--otlp-listen", "127.0.0.1:0", "--api-listen", "127.0.0.1:0",
                         "--db", first.db)
    second.wait_log(rf"another collector \(pid {first.process.pid}\) writes")
    assert first.process.stop() == 0
    second.wait_log("ready:")


def test_it_says_why_it_cannot_start(collector, tmp_path):
    r = run("--db", str(tmp_path / "other.db"), "--api-listen", f"127.0.0.1:{collector.api_port}",
            "--otlp-listen", "127.0.0.1:0")
    assert r.returncode == 3 and "cannot start" in r.stderr
    r = run("--db", "/proc/nothing/c.db", "--otlp-listen", "127.0.0.1:0", "--api-listen", "127.0.0.1:0")
    assert r.returncode == 3 and "cannot start" in r.stderr
