# SPDX-License-Identifier: Apache-2.0
"""Recorded calls lead to the functions that made them, whatever became of the file, and one content is one row."""

import gzip
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys

import pytest

import capture_util as cap
import harness
import mcp_util as mcp

CHAIN = ["stacks_inner", "stacks_local", "stacks_outer"]


class Target:
    """stacks_target that calls when told and stays until told."""

    def __init__(self, sim, folder, mode="sync", n=3, path=None, before=()):
        self.go = os.path.join(str(folder), f"go{id(self)}")
        self.end = os.path.join(str(folder), f"end{id(self)}")
        self.process = sim.procs.start(*before, path or harness.program("stacks_target"), mode, str(n), self.go,
                                       self.end, env=sim.env)
        self.process.wait_log("ready")

    @property
    def pid(self):
        return self.process.pid

    def call(self):
        with open(self.go, "w", encoding="ascii"):
            pass
        self.process.wait_log("called")

    def stop(self):
        with open(self.end, "w", encoding="ascii"):
            pass
        assert self.process.wait(20) == 0, self.process.log()


def call_and_stop(agent, *targets):
    """Lets them call, and the agent see it while they live."""
    for t in targets:
        t.call()
    want = agent.value("SELECT count(*) FROM stack_refs") + 1
    try:
        harness.wait_until(lambda: agent.value("SELECT count(*) FROM stack_refs") >= want, 3, "a stack")
    except harness.WaitTimeout:
        pass
    for t in targets:
        t.stop()
    agent.stop()


def frames_of(agent, op, pid=None):
    """[[row of stack_frames]] of the distinct stacks that an op was called from."""
    stacks = {}
    for r in agent.rows("SELECT f.* FROM stack_frames f WHERE f.stack_id IN (SELECT e.stack_id FROM events e WHERE "
                        "e.op = ? AND (?2 IS NULL OR e.pid = ?2)) ORDER BY f.stack_id, f.position", op, pid):
        stacks.setdefault(r["stack_id"], []).append(dict(r))
    return list(stacks.values())


def functions(frames):
    return [f["function"] for f in frames]


def only_stack(agent, op, pid=None):
    stacks = frames_of(agent, op, pid)
    assert len(stacks) == 1, stacks
    return stacks[0]


@pytest.fixture
def sim(procs, tmp_path):
    cap.require()
    return cap.Sim(procs, tmp_path)


@pytest.mark.parametrize("kind", cap.LINK_KINDS)
def test_every_link_kind_takes_the_callers(procs, sim, tmp_path, kind):
    agent = cap.Agent(procs, tmp_path, attach=kind)
    t = Target(sim, tmp_path, "alloc", 4)
    call_and_stop(agent, t)
    for op in ("cudaMalloc", "cudaFree"):
        frames = only_stack(agent, op)
        assert functions(frames)[:4] == CHAIN + ["main"], frames
        assert all(f["kind"] == "native" and f["offset"] > 0 for f in frames)
        assert os.path.basename(frames[0]["file"]) == "stacks_target"
        assert re.fullmatch("[0-9a-f]{40}", frames[0]["build_id"])
    # Every recorded call has one, and it is the same one for the same place.
    assert agent.value("SELECT count(*) FROM events WHERE op = 'cudaMalloc' AND stack_id IS NULL") == 0
    assert agent.value("SELECT count(*) FROM events WHERE op = 'cudaMalloc'") == 4
    h = agent.health()["drops"]
    assert h["ring_stacks"] == 0 and h["stack_state"] == 0


def test_two_runs_share_one_content(procs, sim, tmp_path):
    agent = cap.Agent(procs, tmp_path)
    a, b = Target(sim, tmp_path), Target(sim, tmp_path)
    bases = set()
    for t in (a, b):
        with open(f"/proc/{t.pid}/maps", encoding="utf-8") as f:
            bases.add(next(line.split("-")[0] for line in f if "stacks_target" in line))
    call_and_stop(agent, a, b)
    assert len(bases) == 2  # they do lie at other addresses
    only_stack(agent, "cudaStreamSynchronize")
    refs = agent.rows("SELECT DISTINCT c.stack_ref, r.stack_id FROM calls c JOIN stack_refs r ON r.ref = c.stack_ref "
                      "JOIN ops o ON o.id = c.op_id WHERE o.name = 'cudaStreamSynchronize'")
    assert len(refs) == 2 and len({r["stack_id"] for r in refs}) == 1


def test_stripped_program_has_places(procs, sim, tmp_path):
    harness.require_command("strip")
    agent = cap.Agent(procs, tmp_path)
    path = os.path.join(str(tmp_path), "bare")
    shutil.copy(harness.program("stacks_target"), path)
    subprocess.run(["strip", "--strip-all", path], check=True)
    call_and_stop(agent, Target(sim, tmp_path, path=path))
    frames = only_stack(agent, "cudaStreamSynchronize")
    for f in frames[:3]:
        assert f["function"] is None and re.fullmatch("bare\\+0x[0-9a-f]+", f["text"]), f
    # The place is that of the call: the unstripped file says which function it is.
    nm = subprocess.run(["nm", "-S", harness.program("stacks_target")], check=True, capture_output=True, text=True)
    symbols = {}
    for line in nm.stdout.splitlines():
        words = line.split()
        if len(words) == 4 and words[2] in "tT":
            symbols[words[3]] = (int(words[0], 16), int(words[1], 16))
    for f, name in zip(frames, CHAIN):
        start, size = symbols[name]
        assert start <= f["offset"] < start + size, (f, name)


def test_deleted_and_replaced_files(procs, sim, tmp_path):
    agent = cap.Agent(procs, tmp_path)
    path = os.path.join(str(tmp_path), "app")
    shutil.copy(harness.program("stacks_target"), path)
    gone = Target(sim, tmp_path, path=path)
    os.unlink(path)
    shutil.copy("/bin/true", path)  # another program in its place
    call_and_stop(agent, gone)
    assert functions(only_stack(agent, "cudaStreamSynchronize"))[:3] == CHAIN


def test_file_in_another_mount_namespace(procs, sim, tmp_path):
    harness.require_command("unshare")
    agent = cap.Agent(procs, tmp_path)
    hidden = os.path.join(str(tmp_path), "container")
    os.mkdir(hidden)
    t = Target(sim, tmp_path, path=f"{hidden}/app", before=(
        "unshare", "--mount", "sh", "-c",
        f'mount -t tmpfs none "{hidden}" && cp "{harness.program("stacks_target")}" "$0" && exec "$0" "$@"'))
    assert os.listdir(hidden) == []  # not to be seen from here
    call_and_stop(agent, t)
    frames = only_stack(agent, "cudaStreamSynchronize")
    assert functions(frames)[:3] == CHAIN and frames[0]["file"] == f"{hidden}/app"


def test_names_of_cpp(procs, sim, tmp_path):
    if not os.access(os.path.join(harness.BIN_DIR, "stacks_names"), os.X_OK):
        pytest.skip("no C++ compiler")
    agent = cap.Agent(procs, tmp_path)
    p = sim.procs.start(harness.program("stacks_names"), env=sim.env)
    # Short-lived on purpose: it may be gone before its maps are read; then nothing is made up.
    assert p.wait(20) == 0
    slow = sim.procs.start("sh", "-c", f'"{harness.program("stacks_names")}"; sleep 0.1', env=sim.env)
    assert slow.wait(20) == 0
    agent.stop()
    stacks = frames_of(agent, "cudaMalloc")
    for frames in stacks:
        assert functions(frames)[:3] == ["app::Loader<double>::fetch(double const*, unsigned int)", "app::epoch(int)",
                                         "main"], frames


def test_deep_and_many(procs, sim, tmp_path):
    agent = cap.Agent(procs, tmp_path)
    deep, many = Target(sim, tmp_path, "deep", 2), Target(sim, tmp_path, "many", 300)
    call_and_stop(agent, deep, many)
    frames = only_stack(agent, "cudaStreamSynchronize", deep.pid)
    assert len(frames) == 64 and functions(frames)[:4] == CHAIN + ["stacks_deep"]
    assert agent.value("SELECT truncated FROM stacks WHERE id = ?", frames[0]["stack_id"]) == 1
    # Each way has its own stack, told by the functions on it.
    ways = set()
    for frames in frames_of(agent, "cudaStreamSynchronize", many.pid):
        names = functions(frames)
        assert names[0] == "stacks_inner" and names[1] == "stacks_fork"
        ways.add(tuple(n == "stacks_left" for n in names if n in ("stacks_left", "stacks_right")))
    assert len(ways) == 300 and all(len(w) == 10 for w in ways)


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="made code is x86-64")
def test_code_without_a_file(procs, sim, tmp_path):
    agent = cap.Agent(procs, tmp_path)
    a, b = Target(sim, tmp_path, "jit", 3), Target(sim, tmp_path, "jit", 1)
    call_and_stop(agent, a, b)
    frames = only_stack(agent, "cudaStreamSynchronize")
    texts = [f["text"] for f in frames]
    assert texts[:4] == CHAIN + ["[anon]"] and texts[4] == "main", texts


@pytest.mark.parametrize("paused", [True, False])
def test_exec_makes_other_stacks(procs, sim, tmp_path, paused):
    """The same process and, without randomised addresses, the same frames: but another program."""
    for command in ("setarch", "objcopy"):
        harness.require_command(command)
    agent = cap.Agent(procs, tmp_path)
    path = os.path.join(str(tmp_path), "second")
    subprocess.run(["objcopy", "--remove-section", ".note.gnu.build-id", harness.program("stacks_target"), path],
                   check=True)
    pause = os.path.join(str(tmp_path), "pause")
    sim.env.update(STACKS_NEXT=path, STACKS_PAUSE=pause if paused else "/")
    t = Target(sim, tmp_path, "exec", 1, before=("setarch", "-R"))
    if paused:
        with open(t.go, "w", encoding="ascii"):
            pass
        harness.wait_until(lambda: frames_of(agent, "cudaStreamSynchronize"), 10, "the first program's stack")
        with open(pause, "w", encoding="ascii"):
            pass
    call_and_stop(agent, t)
    refs = agent.rows("SELECT DISTINCT c.stack_ref FROM calls c JOIN ops o ON o.id = c.op_id"
                      " WHERE o.name = 'cudaStreamSynchronize'")
    assert len(refs) == 2
    stacks = frames_of(agent, "cudaStreamSynchronize")
    # Without the pause the first program's files may be gone when it is named: then it has no names, never others.
    named = [s for s in stacks if paused or any(functions(s))]
    assert named and all(functions(s)[:3] == CHAIN for s in named)
    file_of = {s[0]["stack_id"]: os.path.basename(s[0]["file"]) for s in stacks}
    files = [file_of.get(r[0]) for r in agent.rows("SELECT stack_id FROM events WHERE op = 'cudaStreamSynchronize'"
                                                   " ORDER BY timestamp_ns")]
    # Without the pause the first program is gone before its maps are read: nothing is told, not the second's names.
    assert files == ["stacks_target", "second"] or (not paused and files == [None, "second"]), files


def test_stacks_come_again_after_a_flood(procs, sim, tmp_path):
    """A full ring loses stacks too; they are counted, and sent again once there is room."""
    agent = cap.Agent(procs, tmp_path, "--ringbuf-size", "4096", "--record-all")
    flood = sim.train("--storm", "--threads", "3", "--streams", "2", "--kernel-us", "0", "--steps", "20000")
    many = Target(sim, tmp_path, "many", 1000)
    many.call()
    assert flood.wait(60) == 0
    many.stop()
    t = Target(sim, tmp_path, "sync", 3)
    t.call()
    harness.wait_until(lambda: agent.value(
        "SELECT count(*) FROM events WHERE pid = ? AND op = 'cudaStreamSynchronize' AND stack_id IS NOT NULL", t.pid)
        == 3, 10, "the stack of three calls")
    t.stop()
    agent.stop()
    h = agent.health()
    assert h["drops"]["ring_calls"] > 0 and h["drops"]["ring_stacks"] > 0
    assert h["records_emitted"] == h["records_read"] + sum(n for k, n in h["drops"].items() if k.startswith("ring_"))
    assert functions(only_stack(agent, "cudaStreamSynchronize", t.pid))[:3] == CHAIN


def test_stacks_can_be_left_out(procs, sim, tmp_path):
    agent = cap.Agent(procs, tmp_path, "--no-stack")
    t = Target(sim, tmp_path)
    t.call()
    t.stop()
    agent.stop()
    assert agent.value("SELECT count(*) FROM events WHERE op = 'cudaStreamSynchronize'") == 3
    assert agent.value("SELECT count(*) FROM calls WHERE stack_ref IS NOT NULL") == 0
    assert agent.value("SELECT count(*) FROM stacks") == 0


# ---- who shows them ----

PROFILE = """syntax = "proto3";
message Profile {
  repeated ValueType sample_type = 1; repeated Sample sample = 2; repeated Mapping mapping = 3;
  repeated Location location = 4; repeated Function function = 5; repeated string string_table = 6;
  int64 time_nanos = 9; int64 duration_nanos = 10; int64 default_sample_type = 14;
}
message ValueType { int64 type = 1; int64 unit = 2; }
message Sample { repeated uint64 location_id = 1; repeated int64 value = 2; repeated Label label = 3; }
message Label { int64 key = 1; int64 str = 2; int64 num = 3; }
message Mapping { uint64 id = 1; int64 filename = 5; int64 build_id = 6; }
message Location { uint64 id = 1; uint64 mapping_id = 2; uint64 address = 3; repeated Line line = 4; }
message Line { uint64 function_id = 1; int64 line = 2; }
message Function { uint64 id = 1; int64 name = 2; int64 filename = 4; }
"""


def read_profile(folder, data):
    harness.require_command("protoc")
    with open(os.path.join(folder, "prof.proto"), "w", encoding="ascii") as f:
        f.write(PROFILE)
    subprocess.run(["protoc", f"--python_out={folder}", "-I", folder, "prof.proto"], check=True)
    sys.path.insert(0, folder)
    try:
        import prof_pb2
    finally:
        sys.path.remove(folder)
    return prof_pb2.Profile.FromString(gzip.decompress(data))


def lanterne(*words, code=0):
    got = subprocess.run([harness.program("lanterne"), *words], capture_output=True, check=False, timeout=60)
    assert got.returncode == code, got.stderr.decode()
    return got.stdout


def test_exports_and_queries(procs, sim, tmp_path):
    agent = cap.Agent(procs, tmp_path)
    a, b = Target(sim, tmp_path, "alloc", 5), Target(sim, tmp_path, "sync", 7)
    call_and_stop(agent, a, b)
    # pprof
    p = read_profile(str(tmp_path), lanterne("export", "--db", agent.db_path, "--format", "pprof"))
    text = p.string_table
    assert text[0] == "" and [text[t.type] for t in p.sample_type] == ["calls", "time", "blocked", "waiting_for_cpu"]
    functions_by_id = {f.id: text[f.name] for f in p.function}
    mappings = {m.id: m for m in p.mapping}
    places = {l.id: l for l in p.location}
    found = {}
    for s in p.sample:
        names = [functions_by_id[places[i].line[0].function_id] for i in s.location_id]
        labels = {text[l.key]: text[l.str] if l.str else l.num for l in s.label}
        assert labels["op"] == names[0] and labels["comm"] == "stacks_target"
        found[names[0], labels["pid"]] = (names, list(s.value), s)
    names, values, sample = found["cudaMalloc", a.pid]
    assert names[1:5] == CHAIN + ["main"] and values[0] == 5
    mapping = mappings[places[sample.location_id[1]].mapping_id]
    assert os.path.basename(text[mapping.filename]) == "stacks_target" and len(text[mapping.build_id]) == 40
    assert found["cudaStreamSynchronize", b.pid][1][0] == 7
    total = agent.value("SELECT sum(duration_ns * weight) FROM events")
    assert sum(s.value[1] for s in p.sample) == total
    # perfetto
    trace = json.loads(lanterne("export", "--db", agent.db_path))
    stacks = {e["args"].get("stack", "").split("\n")[0] for e in trace["traceEvents"] if e.get("cat") == "cuda"}
    assert "stacks_inner" in stacks
    # csv and SQL
    assert "stack_id" in lanterne("export", "--db", agent.db_path, "--format", "csv").decode().split("\n")[0]
    rows = json.loads(lanterne("query", "--db", agent.db_path, "--json",
                               "SELECT s.top, s.frames, count(*) AS n FROM events e JOIN stacks s ON s.id = e.stack_id "
                               "WHERE e.op = 'cudaMalloc' GROUP BY 1, 2"))
    assert rows["rows"][0][0] == "stacks_inner" and rows["rows"][0][2] == 5
    assert rows["rows"][0][1].startswith(";".join(CHAIN))
    # merge: equal contents are one row, whatever record they come from
    merged = os.path.join(str(tmp_path), "all.db")
    copy = os.path.join(str(tmp_path), "copy.db")
    shutil.copy(agent.db_path, copy)
    lanterne("merge", agent.db_path, copy, "-o", merged)
    for sql in ("SELECT count(*) FROM stacks", "SELECT count(*) FROM frames", "SELECT count(*) FROM stack_refs",
                "SELECT count(*) FROM events WHERE stack_id IS NOT NULL", "SELECT group_concat(frames) FROM stacks"):
        got = json.loads(lanterne("query", "--db", merged, "--json", sql))["rows"]
        assert got == json.loads(lanterne("query", "--db", agent.db_path, "--json", sql))["rows"], sql


def test_explain_shows_where_calls_came_from(procs, sim, tmp_path):
    agent = cap.Agent(procs, tmp_path)
    a, b = Target(sim, tmp_path, "alloc", 5), Target(sim, tmp_path, "sync", 7)
    call_and_stop(agent, a, b)
    with sqlite3.connect(agent.db_path) as d:
        first, last = d.execute("SELECT min(timestamp_ns), max(timestamp_ns) FROM events").fetchone()
        d.execute("INSERT INTO incident_changes (node_id, incident, time_ns, opened_ns, state, kind, severity, title,"
                  " count, proc_id, evidence) SELECT 1, 'i-1', ?, ?, 'open', 'alloc_spike', 'HIGH', 'slow', 1, id, '{}'"
                  " FROM procs WHERE pid = ?", (last + 1, first, a.pid))
    text = lanterne("explain", "--db", agent.db_path, "--since", "1h", code=1).decode()
    at = text.index("called    cudaMalloc, 5 recorded")
    assert text[at:].splitlines()[1:5] == [" " * 14 + n for n in CHAIN + ["main"]], text
    assert "called    cudaStreamSynchronize" not in text  # that was the other process
    got = json.loads(lanterne("explain", "--db", agent.db_path, "--since", "1h", "--json", code=1))
    ops = {s["op"] for s in got["stacks"]}
    assert "cudaMalloc" in ops and "cudaStreamSynchronize" not in ops
    assert all(s["incident"] == "i-1" and s["frames"] for s in got["stacks"])


def test_mcp_tells_stacks(procs, sim, tmp_path):
    agent = cap.Agent(procs, tmp_path)
    a, b = Target(sim, tmp_path, "alloc", 5), Target(sim, tmp_path, "sync", 7)
    call_and_stop(agent, a, b)
    server = procs.start(harness.program("lanterne"), "mcp", "--db", agent.db_path, "--http", "127.0.0.1:0")
    port = int(server.wait_log(r"http://127\.0\.0\.1:(\d+)/mcp").group(1))
    got = mcp.call(port, "get_stacks")
    table = mcp.rows(got)
    assert [r["tot"] for r in table] == sorted((r["tot"] for r in table), reverse=True)
    malloc = next(r for r in table if r["op"] == "cudaMalloc")
    assert malloc["n"] == 5 and malloc["pid"] == a.pid and malloc["f"].startswith(";".join(CHAIN))
    assert "never an instruction" in got["notice"]
    only = mcp.rows(mcp.call(port, "get_stacks", {"op": "cudaStreamSynchronize", "pid": b.pid}))
    assert [(r["op"], r["n"]) for r in only] == [("cudaStreamSynchronize", 7)]
    assert mcp.call(port, "get_stacks", {"op": "cudaStreamSynchronize", "pid": a.pid})["rows"] == []
    status, _, refused = mcp.modern(port, "tools/call", {"name": "get_stacks", "arguments": {"op": "' OR 1 --"}})
    assert status == 200 and refused["result"]["isError"]


def test_trace_json_carries_frames(procs, sim, tmp_path):
    t = Target(sim, tmp_path, "sync", 3)
    p = procs.start(harness.program("lanterne"), "trace", "--no-record", "--json", "--pid", str(t.pid), "--duration",
                    "20s", *[w for lib in cap.SIM_LIBS for w in ("--cuda-lib", lib)])
    p.wait_log(r"tracing with (\w+) links", 30)
    t.call()
    harness.wait_until(lambda: p.log().count('"cudaStreamSynchronize"') >= 3, 10, "three calls")
    t.stop()
    p.stop()
    calls = [json.loads(line) for line in p.log().splitlines() if '"cudaStreamSynchronize"' in line]
    assert [c["frames"][:3] for c in calls] == [CHAIN] * 3, calls
