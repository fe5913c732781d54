# SPDX-License-Identifier: Apache-2.0
"""The reading commands and the local API, on records of known content: no root, no GPU, no probes."""

import csv
import hashlib
import http.client
import http.server
import io
import json
import os
import re
import sqlite3
import subprocess
import threading
import time

import pytest

import harness

SCENARIOS = ["incident", "cold-start", "memcpy-bottleneck", "periodic-spike", "cpu-contention",
             "gpu-steal"]


def run(*words, code=0, env=None):
    """Standard output of a command that must end with this exit code."""
    got = subprocess.run([harness.program("lanterne"), *words], capture_output=True, text=True,
                         timeout=60, check=False, env={**os.environ, "NO_COLOR": "1", **(env or {})})
    assert got.returncode == code, f"{words}: {got.returncode}\n{got.stdout}\n{got.stderr}"
    run.stderr = got.stderr
    return got.stdout


def demo(folder, name="a", scenario="incident", node="n0"):
    path = os.path.join(str(folder), f"{name}.db")
    run("demo", scenario, "--no-gpu", "--keep-db", path, "--node", node)
    return path


class Api:
    """`lanterne dashboard` on a database."""

    def __init__(self, procs, db, *options, listen="127.0.0.1:0"):
        self.process = procs.start(harness.program("lanterne"), "dashboard", "--db", db, "--listen",
                                   listen, *options)
        self.port = int(self.process.wait_log(r"on port (\d+)")[1])
        self.address = f"127.0.0.1:{self.port}"

    def request(self, method, path, body=None, headers=None, host="127.0.0.1"):
        c = http.client.HTTPConnection(host, self.port, timeout=15)
        send = {"Content-Type": "application/json"} if body is not None else {}
        c.request(method, path, body=None if body is None else json.dumps(body),
                  headers={**send, **(headers or {})})
        r = c.getresponse()
        text = r.read()
        c.close()
        return r.status, json.loads(text) if text.startswith(b"{") else text

    def get(self, path, **more):
        status, answer = self.request("GET", path, **more)
        assert status == 200, (path, status, answer)
        return answer

    def query(self, sql, code=200, **more):
        status, answer = self.request("POST", "/api/v1/query", {"sql": sql, **more})
        assert status == code, (sql, status, answer)
        return answer


# --- demo and explain -----------------------------------------------------------------------------

WANT = {"incident": ("cpu_contention", "logrotate"), "cold-start": ("cold_start", "first calls"),
        "memcpy-bottleneck": ("memcpy_bound", "copies"), "periodic-spike": ("alloc_spike", "allocator"),
        "cpu-contention": ("cpu_contention", "cc1plus"), "gpu-steal": (None, None)}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_each_demo_names_its_cause(scenario):
    report = json.loads(run("demo", scenario, "--no-gpu", "--json"))
    kind, cause = WANT[scenario]
    if kind is None:
        assert report["incidents"] == []
        (shared,) = report["shared_gpus"]
        assert shared["users"] == 2 and "notebook" in shared["who"]
        worst = report["ranks"][0]
        assert worst["rank"] == 1 and worst["device_grew_ns"] > 20e6
        return
    assert {i["kind"] for i in report["incidents"]} == {kind}
    for incident in report["incidents"]:
        assert cause in incident["root_cause"] and incident["explained_share"] >= 0.8
        assert incident["evidence"] and report["advice"][kind]
    text = run("demo", scenario, "--no-gpu")
    assert cause in text and "fix" in text and "measured" in text


def test_demo_leaves_nothing_behind_and_never_overwrites(tmp_path):
    before = {n for n in os.listdir("/tmp") if n.startswith("lanterne-demo-")}
    run("demo", "incident")
    # Demos of tests beside this one come and go.
    harness.wait_until(lambda: {n for n in os.listdir("/tmp")
                                if n.startswith("lanterne-demo-")} <= before,
                       what="no folder left by a demo")
    path = demo(tmp_path)
    run("demo", "incident", "--keep-db", path, code=3)
    run("demo", "no-such", code=2)
    assert "incident" in run("demo", code=2)


def test_explain_tells_the_incident_and_its_times(tmp_path):
    db = demo(tmp_path)
    text = run("explain", "--db", db, "--per-process", code=1)
    for want in ("[HIGH]", "logrotate", "opened", "still open", "explains", "run_queue 118ms", "fix",
                 "warning: CPU contention", "rank 1"):
        assert want in text, want
    assert all(len(line) <= 80 for line in text.splitlines() if "warning" not in line), text
    report = json.loads(run("explain", "--db", db, "--json", code=1))
    assert report["windows"] == 20 and report["node"] == "n0"
    assert report["preemptors"][0]["comm"] == "logrotate"
    worst = report["ranks"][0]
    assert worst["rank"] == 1 and worst["run_queue_grew_ns"] > 60e6
    assert "ops" not in json.loads(run("explain", "--db", db, "--chains", "--json", code=1))
    # Of another process, or of another time, there is none.
    assert "No incident" in run("explain", "--db", db, "--pid", "4100")
    assert "no window" in run("explain", "--db", db, "--to", "2001-01-01T00:00:00Z")
    run("explain", "--db", db, "--since", "yesterday", code=2)
    run("explain", "--db", str(tmp_path / "none.db"), code=3)


def test_explain_makes_hostile_texts_harmless(tmp_path):
    db = demo(tmp_path)
    with sqlite3.connect(db) as d:
        d.execute("UPDATE incident_changes SET title = ?, evidence = ?",
                  ("\x1b[2Jtitle", '{"a":{"b":{"c":1}},"x_ns":1e999}'))
        d.execute("UPDATE strings SET text = 'evil' || char(27) || '[31m' WHERE text = 'logrotate'")
    text = run("explain", "--db", db, code=1)
    assert "\x1b" not in text and "title" in text
    json.loads(run("explain", "--db", db, "--json", code=1))


# --- query ----------------------------------------------------------------------------------------

def test_query_filters_and_forms(tmp_path):
    db = demo(tmp_path)
    rows = json.loads(run("query", "--db", db, "--op", "cudaMalloc,cudaMemcpy", "--pid", "4101",
                          "--limit", "5", "--json"))
    assert rows["row_count"] == 5 and rows["truncated"] is False
    column = rows["columns"].index
    assert {r[column("op")] for r in rows["rows"]} == {"cudaMalloc"}
    assert {r[column("pid")] for r in rows["rows"]} == {4101}
    times = [r[column("timestamp")] for r in rows["rows"]]
    assert times == sorted(times, reverse=True)
    text = run("query", "--db", db, "--csv", "SELECT op, count(*) AS n FROM events GROUP BY op")
    table = {r["op"]: int(r["n"]) for r in csv.DictReader(io.StringIO(text))}
    with sqlite3.connect(db) as d:
        assert table == dict(d.execute("SELECT op, count(*) FROM events GROUP BY op"))
    assert "cudaMalloc" in run("query", "--db", db, "--since", "1h")
    assert run("query", "--db", db, "--source", "x' OR '1'='1").count("\n") == 1
    run("query", "--db", db, "--since", "5m", "SELECT 1", code=2)
    run("query", "--db", db, "--pid", "1 OR 1", code=2)
    assert "more rows" not in run.stderr
    run("query", "--db", db, "--limit", "2", "SELECT op FROM events")
    assert "more rows" in run.stderr
    env = {"LANTERNE_DB": db}
    assert "n0" in run("query", "SELECT node FROM events LIMIT 1", env=env)


def test_the_recipes_of_the_documentation(tmp_path):
    db = demo(tmp_path)
    with open(os.path.join(harness.SOURCE_DIR, "docs", "sql.md"), encoding="utf-8") as f:
        recipes = re.findall(r"^```\n(.*?)\n```$", f.read(), re.M | re.S)
    assert len(recipes) >= 7
    for sql in recipes:
        got = json.loads(run("query", "--db", db, "--json", sql))
        # The demonstration is of the last minute: no recipe may come back empty, but those of what the host did.
        if not re.search(r"FROM (disk_io|file_opens|tcp_retransmits)", sql):
            assert got["row_count"] > 0, sql


HOSTILE = ["DELETE FROM calls", "DROP VIEW events", "ATTACH '/etc/passwd' AS x", "SELECT 1; SELECT 2",
           "PRAGMA writable_schema=1", "INSERT INTO meta VALUES ('a', 1)", "VACUUM INTO '/tmp/ltn-x'",
           "SELECT load_extension('x')", "not sql at all", "", "UPDATE calls SET pid = 0",
           "BEGIN", "CREATE TEMP TABLE t (x)"]
ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c) SELECT max(x) FROM c"


def digest(path):
    with open(path, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()


def test_query_only_reads(tmp_path):
    db = demo(tmp_path)
    before = digest(db)
    for sql in HOSTILE:
        run("query", "--db", db, sql, code=2)
    start = time.monotonic()
    run("query", "--db", db, "--timeout", "500ms", ENDLESS, code=3)
    assert time.monotonic() - start < 10
    run("query", "--db", db, "SELECT zeroblob(1000000000)", code=3)
    assert digest(db) == before


# --- local API ------------------------------------------------------------------------------------

def test_api_answers_from_the_record(procs, tmp_path):
    api = Api(procs, demo(tmp_path))
    overview = api.get("/api/v1/overview")
    assert overview["node"] == "n0" and overview["counts"]["windows"] == 20
    assert overview["worst_incident"]["kind"] == "cpu_contention"
    assert overview["agent"]["calls_seen"] == 36000
    ops = {o["op"]: o for o in api.get("/api/v1/ops?since=1h")["ops"]}
    assert ops["cudaLaunchKernel"]["count"] == 32000
    assert 5500 < ops["cudaLaunchKernel"]["p95_ns"] <= 6000
    assert api.get("/api/v1/ops?since=2100-01-01")["ops"] == []
    for path in ("incidents", "chains"):
        (incident,) = api.get(f"/api/v1/{path}")["incidents"]
        assert incident["evidence"]["preemptors"][0]["comm"] == "logrotate"
    assert {s["kind"] for s in api.get("/api/v1/snapshots?limit=50")["snapshots"]} == {"gpu", "agent"}
    (first, second) = api.get("/api/v1/collectives")["collectives"]
    assert first["sequence_total"] == second["sequence_total"] == 1200
    assert first["communicator"] == second["communicator"] and len(first["communicator"]) == 16
    capabilities = api.get("/api/v1/capabilities")
    assert all(c["measured_by"] for c in capabilities["not_measured"]) and capabilities["measured"]
    assert abs(api.get("/api/v1/time")["now_ns"] - time.time_ns()) < 5e9
    assert api.get("/healthz") == b"ok\n" and api.get("/readyz")["ready"] is True
    for path, code in (("/api/v1/ops?since=x", 400), ("/api/v1/ops?limit=0", 400), ("/api/v1/no", 404)):
        assert api.request("GET", path)[0] == code
    assert api.process.stop() == 0


def test_api_statements_only_read_and_end(procs, tmp_path):
    db = demo(tmp_path)
    before = digest(db)
    api = Api(procs, db)
    got = api.query("SELECT node, source, count(*) AS n FROM events GROUP BY source")
    assert got["columns"] == ["node", "source", "n"] and got["node"] == "n0"
    assert got["rows"] == [["n0", "cuda", 320], ["n0", "nccl", 160]]
    got = api.query("SELECT op FROM events", limit=3)
    assert got["row_count"] == 3 and got["truncated"] is True
    for sql in HOSTILE:
        status, answer = api.request("POST", "/api/v1/query", {"sql": sql})
        assert status in (400, 403), (sql, status)
        assert answer["error"]["message"]
    for body in ({}, {"sql": 1}, {"sql": "SELECT 1", "limit": -1}, {"sql": "SELECT 1", "timeout_ms": 1e9},
                 [], {"sql": "SELECT 1", "limit": 10**9}):
        assert api.request("POST", "/api/v1/query", body)[0] == 400, body
    assert api.request("POST", "/api/v1/query", {"sql": "x" * 300000})[0] in (400, 413)
    huge = api.query("WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c) SELECT x, "
                     "printf('%.1000c', 'x') FROM c", limit=1000000, timeout_ms=10000)
    assert huge["truncated"] is True and huge["row_count"] < 1000000
    assert digest(db) == before


def test_endless_statements_do_not_hold_up_the_rest(procs, tmp_path):
    """Statements wait in a short queue of their own; reports and health answer meanwhile."""
    api = Api(procs, demo(tmp_path))
    codes = []

    def ask():
        codes.append(api.request("POST", "/api/v1/query", {"sql": ENDLESS, "timeout_ms": 600})[0])
    threads = [threading.Thread(target=ask) for _ in range(24)]
    for t in threads:
        t.start()
    harness.wait_until(lambda: 503 in codes, 5, "the queue is full")
    start = time.monotonic()
    assert api.get("/healthz") == b"ok\n"
    assert api.get("/api/v1/overview")["node"] == "n0"
    assert time.monotonic() - start < 2
    for t in threads:
        t.join()
    assert set(codes) <= {503, 504} and codes.count(503) >= 24 - 18 and codes.count(504) >= 10
    assert api.query("SELECT 1")["rows"] == [[1]]


def test_foreign_pages_are_refused(procs, tmp_path):
    api = Api(procs, demo(tmp_path))
    path = "/api/v1/overview"
    for headers in ({"Host": "evil.example"}, {"Host": "127.0.0.1.evil.example:80"},
                    {"Origin": "http://evil.example"}, {"Origin": "null"}, {"Host": "10.0.0.1"}):
        assert api.request("GET", path, headers=headers)[0] == 403, headers
    for headers in ({"Host": "localhost"}, {"Origin": f"http://localhost:{api.port}"},
                    {"Host": "[::1]:8421"}):
        assert api.request("GET", path, headers=headers)[0] == 200, headers
    # No form of another page can post statements: they need a type that asks the browser first.
    c = http.client.HTTPConnection("127.0.0.1", api.port, timeout=10)
    c.request("POST", "/api/v1/query", body='{"sql":"SELECT 1"}', headers={"Content-Type": "text/plain"})
    assert c.getresponse().status == 415


def test_not_ready_without_a_record(procs, tmp_path):
    db = demo(tmp_path)
    api = Api(procs, db)
    os.rename(db, db + ".away")
    status, answer = api.request("GET", "/readyz")
    assert status == 503 and answer["ready"] is False and answer["reasons"]
    assert api.request("GET", "/api/v1/overview")[0] == 503
    assert api.get("/healthz") == b"ok\n"
    os.rename(db + ".away", db)
    assert api.get("/readyz")["ready"] is True


def test_beyond_loopback_needs_a_token(procs, tmp_path):
    db = demo(tmp_path)
    run("dashboard", "--db", db, "--listen", "0.0.0.0:0", code=2)
    assert "--api-token-file" in run.stderr
    token = tmp_path / "token"
    token.write_text("s3cret-token\n")
    api = Api(procs, db, "--api-token-file", str(token), listen="0.0.0.0:0")
    path = "/api/v1/overview"
    assert api.request("GET", path)[0] == 401
    assert api.request("GET", path, headers={"Authorization": "Bearer wrong"})[0] == 401
    good = {"Authorization": "Bearer s3cret-token"}
    assert api.request("GET", path, headers=good)[0] == 200
    assert api.request("GET", path, headers={**good, "Origin": "http://evil.example"})[0] == 403
    assert api.request("GET", "/healthz")[0] == 200
    sql = "SELECT count(*) AS n FROM events"
    run("query", "--nodes", api.address, sql, code=3)
    assert "480" in run("query", "--nodes", api.address, "--api-token-file", str(token), sql)
    assert "s3cret" not in api.process.log()


# --- fan-out --------------------------------------------------------------------------------------

class FakeNode(http.server.BaseHTTPRequestHandler):
    """A node whose clock is 400 ms ahead, or whose answers are nonsense."""

    mode = "skewed"

    def answer(self, value):
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.answer({"now_ns": time.time_ns() + 400_000_000})

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        answers = {"skewed": {"node": "far", "columns": ["source", "n"], "rows": [["cuda", 7]],
                              "row_count": 1, "truncated": False},
                   "nonsense": b"[[[[", "short rows": {"columns": ["source", "n"], "rows": [[1]]},
                   "columns": {"columns": ["other"], "rows": [[1]]}, "nested": b"[" * 100000,
                   "objects": {"columns": ["source", "n"], "rows": [[{}, 1]]}}
        self.answer(answers[self.mode])

    def log_message(self, *_):
        pass


@pytest.fixture
def fake_node():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), FakeNode)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


BY_SOURCE = "SELECT source, count(*) AS n FROM events GROUP BY source ORDER BY source"


def test_fan_out_joins_reduces_and_warns(procs, tmp_path, fake_node):
    a = Api(procs, demo(tmp_path, "a", node="n0"))
    b = Api(procs, demo(tmp_path, "b", "memcpy-bottleneck", node="n1"))
    nodes = f"{a.address},http://{b.address}/"
    FakeNode.mode = "skewed"
    got = json.loads(run("query", "--nodes", nodes, "--json", BY_SOURCE))
    assert got["columns"] == ["node", "source", "n"]
    assert got["rows"] == [["n0", "cuda", 320], ["n0", "nccl", 160], ["n1", "cuda", 400],
                           ["n1", "nccl", 160]]
    assert run.stderr == ""
    assert all(n["answered"] and abs(n["clock_skew_ns"]) < 10e6 for n in got["nodes"])
    # A statement that names the node keeps its column.
    got = json.loads(run("query", "--nodes", nodes, "--json",
                         "SELECT node, source, count(*) FROM events GROUP BY node, source"))
    assert got["columns"] == ["node", "source", "count(*)"] and len(got["rows"]) == 4
    got = json.loads(run("query", "--nodes", nodes, "--json", BY_SOURCE, "--reduce",
                         "SELECT source, sum(n) AS total, count(DISTINCT node) AS nodes FROM fleet "
                         "GROUP BY source ORDER BY total DESC"))
    assert got["rows"] == [["cuda", 720, 2], ["nccl", 320, 2]]
    run("query", "--nodes", nodes, BY_SOURCE, "--reduce", "DELETE FROM fleet", code=2)
    # A dead node and a skewed one: partial rows, both said.
    dead = f"127.0.0.1:{harness.free_port()}"
    text = run("query", "--nodes", f"{nodes},{dead},{fake_node}", BY_SOURCE, code=1)
    assert "far" in text and "n1" in text
    assert f"{dead} did not answer" in run.stderr
    assert "the clock of far is off by +400" in run.stderr and "n0" not in run.stderr
    run("query", "--nodes", fake_node, "--clock-skew-threshold", "2s", BY_SOURCE)
    assert run.stderr == ""
    run("query", "--nodes", dead, BY_SOURCE, code=3)
    # Wrong SQL is the caller's fault on every node, and said as the node says it.
    run("query", "--nodes", a.address, "SELECT x FROM nowhere", code=3)
    assert "nowhere" in run.stderr


def test_fan_out_with_nodes_that_answer_nonsense(procs, tmp_path, fake_node):
    a = Api(procs, demo(tmp_path))
    for mode in ("nonsense", "short rows", "columns", "nested", "objects"):
        FakeNode.mode = mode
        text = run("query", "--nodes", f"{a.address},{fake_node}", BY_SOURCE, code=1)
        assert "n0" in text and fake_node in run.stderr, mode


def test_fan_out_does_not_wait_for_a_node_that_hangs(procs, tmp_path):
    import socket
    a = Api(procs, demo(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        hung = f"127.0.0.1:{silent.getsockname()[1]}"
        start = time.monotonic()
        text = run("query", "--nodes", f"{a.address},{hung}", "--timeout", "1s", BY_SOURCE, code=1)
        assert "n0" in text and hung in run.stderr and time.monotonic() - start < 8


# --- merge and export -----------------------------------------------------------------------------

def test_merge_command(tmp_path):
    a, b = demo(tmp_path, "a", node="n0"), demo(tmp_path, "b", "cpu-contention", node="n1")
    out = str(tmp_path / "all.db")
    before = digest(a), digest(b)
    result = json.loads(run("merge", a, b, "-o", out, "--json"))
    assert result["events"] == 960 and result["windows"] == 40 and result["duplicates"] == 0
    assert (digest(a), digest(b)) == before
    got = json.loads(run("query", "--db", out, "--json",
                         "SELECT node, source, count(*) FROM events GROUP BY node, source"))
    assert [r[2] for r in got["rows"]] == [320, 160, 320, 160]
    run("merge", a, b, "-o", out, code=3)
    assert "exists already" in run.stderr
    run("merge", a, code=2)
    report = run("explain", "--db", out, code=1)
    assert "logrotate" in report and "cc1plus" in report


def test_export_perfetto(tmp_path):
    a, b = demo(tmp_path, "a", node="n0"), demo(tmp_path, "b", "periodic-spike", node="n1")
    both, out = str(tmp_path / "all.db"), str(tmp_path / "t.json")
    run("merge", a, b, "-o", both)
    run("export", "--db", both, "--format", "perfetto", "-o", out)
    with open(out, encoding="utf-8") as f:
        trace = json.load(f)
    events = trace["traceEvents"]
    names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert {"n0 rank 0: python3[4100]", "n1 rank 1: python3[4101]", "n0: system"} <= set(names.values())
    threads = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
    spans = [e for e in events if e["ph"] == "X"]
    with sqlite3.connect(both) as d:
        rows = d.execute("SELECT op, timestamp_ns, duration_ns FROM events").fetchall()
    zero = trace["otherData"]["zero_ns"]
    # Every call is there, exact to the ns.
    assert sorted((e["name"], round(e["ts"] * 1000) + zero, round(e["dur"] * 1000)) for e in spans) \
        == sorted(rows)
    assert {(e["pid"], e["tid"]) for e in spans} <= threads
    assert len({t for _, t in threads}) == len(threads), "a thread number is used twice"
    assert all(e["ts"] >= 0 for e in events if "ts" in e)
    # Within a thread spans nest or follow each other.
    for key in threads:
        stack = []
        for e in sorted((e for e in spans if (e["pid"], e["tid"]) == key),
                        key=lambda e: (e["ts"], -e["dur"])):
            while stack and stack[-1] <= e["ts"]:
                stack.pop()
            assert not stack or e["ts"] + e["dur"] <= stack[-1] + 1e-6, e
            stack.append(e["ts"] + e["dur"])
    marks = [e for e in events if e["ph"] == "i"]
    assert {m["args"]["kind"] for m in marks} == {"cpu_contention", "alloc_spike"}
    counters = {e["name"] for e in events if e["ph"] == "C"}
    assert {"step ms", "self ms", "agent CPU s"} <= counters
    assert any("busy %" in c for c in counters)
    # A part of the time has a part of the calls.
    part = json.loads(run("export", "--db", both, "--to", "2001-01-01T00:00:00Z"))
    assert not [e for e in part["traceEvents"] if e["ph"] != "M"]


def test_export_csv_and_full_disk(tmp_path):
    db = demo(tmp_path)
    rows = list(csv.DictReader(io.StringIO(run("export", "--db", db, "--format", "csv"))))
    assert len(rows) == 480 and rows[0]["node"] == "n0"
    assert [int(r["timestamp_ns"]) for r in rows] == sorted(int(r["timestamp_ns"]) for r in rows)
    if os.path.exists("/dev/full"):
        for form in ("csv", "perfetto"):
            run("export", "--db", db, "--format", form, "-o", "/dev/full", code=3)
    run("export", "--db", db, "-o", "/no/such/folder/x", code=3)
    run("export", "--db", db, "--format", "xml", code=2)


def test_export_memory_does_not_grow_with_the_record(tmp_path):
    import resource
    small, big = demo(tmp_path, "s"), demo(tmp_path, "b")
    with sqlite3.connect(big) as d:
        d.execute("INSERT INTO calls SELECT NULL, c.time_ns + 200 * x.n, c.proc_id, c.tid, c.op_id, 100,"
                  " 1, 1, 98, c.bytes, c.handle, c.comm_id, c.sequence, c.segment_ns, 1, 0, 0, 0, 0, 0, NULL"
                  " FROM calls c, (WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c"
                  " WHERE n < 400) SELECT n FROM c) x")

    def peak_kb(db):
        with open(os.devnull, "wb") as null:
            p = subprocess.Popen([harness.program("lanterne"), "export", "--db", db], stdout=null)
            _, status, usage = os.wait4(p.pid, 0)
        assert status == 0
        return usage.ru_maxrss
    assert resource.RLIMIT_AS is not None
    assert peak_kb(big) < peak_kb(small) + 16 * 1024


# --- check ----------------------------------------------------------------------------------------

def findings(*options, code=None):
    got = subprocess.run([harness.program("lanterne"), "check", "--json", *options], text=True,
                         capture_output=True, timeout=60, check=False)
    assert got.returncode in ((0, 1) if code is None else (code,)), got.stderr
    return {f["name"]: f for f in json.loads(got.stdout)["findings"]}


def test_check_says_whether_the_collector_is_there(procs, tmp_path):
    assert "collector" not in findings()
    dead = findings("--collector", f"127.0.0.1:{harness.free_port()}", code=1)
    assert dead["collector"]["level"] == "fail" and dead["collector"]["advice"]
    api = Api(procs, demo(tmp_path))
    assert findings("--collector", api.address)["collector"]["level"] == "ok"
    assert findings("--collector", f"http://{api.address}/")["collector"]["level"] == "ok"
    assert dead["clock"]["value"]


def test_support_bundle_has_no_secrets(tmp_path):
    import tarfile
    path = str(tmp_path / "s.tar.gz")
    db = demo(tmp_path)
    findings("--support-bundle", path, "--db", db, "--collector", "http://me:s3cret@127.0.0.1:1", code=1)
    assert os.stat(path).st_mode & 0o777 == 0o600
    with tarfile.open(path) as tar:
        texts = {os.path.basename(m.name): tar.extractfile(m).read().decode() for m in tar}
    assert {"check.txt", "check.json", "config.yaml", "version.txt", "record.json"} <= set(texts)
    assert not [n for n, t in texts.items() if "s3cret" in t]
    assert "[removed]@127.0.0.1" in texts["config.yaml"]
    assert json.loads(texts["record.json"])["node"] == "n0"
    json.loads(texts["check.json"])
    findings("--support-bundle", path, code=3)
