# SPDX-License-Identifier: Apache-2.0
"""Incidents of the node with their causes: real load on simulated GPU programs, to the record and the collector."""

import json
import os

import pytest

import capture_util as cap
import collector_util as cu
import harness

USUAL_S, BAD_S = 7, 6


def incidents(agent, pid=None):
    rows = [dict(r) for r in agent.rows("SELECT * FROM incidents ORDER BY opened_at_ns")]
    for r in rows:
        r["evidence"] = json.loads(r["evidence"])
        print({k: r[k] for k in ("kind", "state", "severity", "title", "root_cause",
                                 "explained_share", "count", "pid")})
    return [r for r in rows if pid is None or r["pid"] == pid]


def kinds(rows):
    """Other programs on the machine may well hold a CPU: that is no mistake."""
    return {r["kind"] for r in rows} - {"cold_start", "cpu_contention"}


# What ranks do that run at the same time, beside each other. Those that take the disk's time are a pair of their own,
# a CPU for each; the others hardly use theirs.
TOGETHER = [(["none", "device", "copy", "free", "error", "memory"], (0.3, 5)), (["fsync", "fault"], (2, 1))]


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """{what a rank does: its incidents}, of ranks that do it from their eighth second on."""
    cap.require()
    harness.require_command("chrt")
    found = {}
    for group, (cpu_ms, kernel_ms) in TOGETHER:
        folder = tmp_path_factory.mktemp("together")
        procs = harness.Processes(str(folder))
        try:
            agent = cap.Agent(procs, folder)
            ranks = {}
            for i, what in enumerate(group):
                # Real time, so that other programs of the machine do not disturb it.
                words = ["chrt", "-f", "5", "taskset", "-c", i % 2, harness.program("causal_target"), what, USUAL_S,
                         BAD_S, folder, cpu_ms, kernel_ms]
                (folder / what).mkdir()
                ranks[what] = procs.start(*[str(w) for w in words], env=cap.Sim(procs, folder / what).env)
            cap.finish(ranks.values())
            agent.stop()
            found.update({what: incidents(agent, p.pid) for what, p in ranks.items()})
        finally:
            procs.kill_all()
    yield found


def one(rows, kind):
    found = [r for r in rows if r["kind"] == kind]
    assert len(found) == 1, rows
    return found[0]


def test_a_cpu_hog_is_named_here_and_at_the_collector(procs, tmp_path):
    """Positive: a hog on the rank's CPU, named; with the collector's copy of the same incident."""
    cap.require()
    collector = cu.Collector(procs, tmp_path).start()
    agent = cap.Agent(procs, tmp_path, "--collector", f"http://127.0.0.1:{collector.port}")
    sim = cap.Sim(procs, tmp_path)
    # Real time, so that the hog is the only one that can disturb it.
    p = procs.start("chrt", "-f", "5", "taskset", "-c", "1", harness.program("causal_target"),
                    "none", "30", "0", tmp_path, env={**sim.env, "SIMGPU_GPU_CPU": "0"})
    agent.wait_window(8, 20)
    hog = tmp_path / "logrotate"
    os.symlink(os.path.realpath("/usr/bin/python3"), hog)
    spin = "import time\nwhile True:\n t = time.monotonic() + .01\n while time.monotonic() < t: pass\n time.sleep(.01)"
    procs.start("chrt", "-f", "10", "taskset", "-c", "1", hog, "-c", spin)
    held = "CPU held by logrotate"
    here = harness.wait_until(lambda: agent.rows(
        "SELECT * FROM incidents WHERE root_cause = ?", held), 20, "the incident")
    there = harness.wait_until(lambda: [i for i in collector.get("/api/v1/incidents")["incidents"]
                                        if i["cause"] == held], 10, "the collector's")
    p.kill()
    agent.stop()
    (found,) = [i for i in incidents(agent) if i["root_cause"] == held]
    assert found["kind"] == "cpu_contention" and "`logrotate`" in found["title"]
    assert found["explained_share"] >= 0.8 and found["pid"] == p.pid
    assert found["state"] == "closed"
    assert found["evidence"]["preemptors"][0]["comm"] == "logrotate"
    assert there[0]["id"] == here[0]["id"] == found["id"]
    assert "`logrotate`" in there[0]["title"] and there[0]["kind"] == "cpu_contention"
    changes = [r["state"] for r in agent.rows(
        "SELECT state FROM incident_changes WHERE incident = ? ORDER BY id", found["id"])]
    assert changes[0] == "open" and changes[-1] == "closed" and changes.count("open") == 1


@pytest.mark.parametrize("what, kind, cause", [
    ("fsync", "io_wait", "waiting for the disk (block I/O, fsync)"),
    ("fault", "page_faults", "page faults"),
    ("copy", "memcpy_bound", "blocking copies between host and device"),
    ("free", "alloc_spike", "free that waits for the device"),
    ("error", "cuda_error", "cudaFree: 1 invalid value"),
    ("memory", "device_memory", "cudaMalloc: 2 out of memory"),
])
def test_what_a_rank_does_is_what_the_incident_says(seen, what, kind, cause):
    found = one(seen[what], kind)
    assert found["root_cause"].startswith(cause), found
    assert found["explained_share"] >= 0.8
    assert found["state"] == "closed" and found["count"] >= 1
    if kind == "cuda_error":
        before = found["evidence"]["calls_before"]
        assert len(before) == 8 and "cudaStreamSynchronize" in {c["op"] for c in before}


@pytest.mark.parametrize("what", ["none", "device"])
def test_usual_work_and_a_slower_device_are_no_incident(seen, what):
    assert kinds(seen[what]) == set()


def test_a_rank_that_hangs_is_told_from_those_that_wait(procs, tmp_path):
    cap.require()
    agent = cap.Agent(procs, tmp_path, "--incident-hang", "2s")
    sim = cap.Sim(procs, tmp_path)
    ranks = sim.job(3, "--seconds", "60", "--kernel-us", "200", "--kernels", "6", "--wait", "block")
    harness.wait_until(lambda: agent.rows("SELECT 1 FROM rank_steps"), 20, "the first steps")
    agent.wait_window(2)
    assert not agent.rows("SELECT 1 FROM incidents WHERE kind = 'collective_hang'")
    sim.ctl("fault", "start", "hang", "--rank", "1")
    harness.wait_until(lambda: agent.rows(
        "SELECT 1 FROM incidents WHERE kind = 'collective_hang'"), 20, "the incident")
    sim.ctl("fault", "stop", "hang", "--rank", "1")
    harness.wait_until(lambda: agent.rows("SELECT 1 FROM incidents WHERE kind = 'collective_hang'"
                                          " AND state = 'closed'"), 20, "its end")
    for p in ranks:
        p.kill()
    agent.stop()
    found = one(incidents(agent), "collective_hang")
    assert found["root_cause"] == "rank 1 has not entered the collective"
    assert found["pid"] == ranks[1].pid and found["severity"] == "CRITICAL"
    inside = {m["rank"]: m["inside"] for m in found["evidence"]["members"]}
    assert inside[0] == inside[2] == "cudaStreamSynchronize" and inside[1] is None


def test_a_cold_start_and_a_warm_one(procs, tmp_path):
    cap.require()
    agent = cap.Agent(procs, tmp_path)
    agent.wait_window(1)
    sim = cap.Sim(procs, tmp_path)
    def start(name, ctx_ms):
        exe = tmp_path / name
        os.symlink(harness.program("causal_target"), exe)
        p = procs.start("chrt", "-f", "5", exe, "none", "2", "0", tmp_path,
                        env={**sim.env, "SIMGPU_CTX_MS": str(ctx_ms)})
        cap.finish([p])
        return p.pid
    cold, warm = start("cold", 900), start("warm", 0)
    agent.wait_window(2)
    agent.stop()
    found = one(incidents(agent), "cold_start")
    assert found["pid"] == cold != warm
    assert found["severity"] == "LOW" and found["explained_share"] >= 0.8


@pytest.fixture
def small_cgroup():
    """(folder, file of its processes) of a memory cgroup of 160 MiB, version 1 or 2."""
    v1 = os.path.isdir("/sys/fs/cgroup/memory")
    folder = f"/sys/fs/cgroup/{'memory/' if v1 else ''}ltn-test-{os.getpid()}"
    limit = "memory.limit_in_bytes" if v1 else "memory.max"
    try:
        os.mkdir(folder)
        with open(os.path.join(folder, limit), "w", encoding="ascii") as f:
            f.write(str(160 << 20))
    except OSError as e:
        if os.path.isdir(folder):
            os.rmdir(folder)
        pytest.skip(f"needs a memory cgroup that can be limited ({e})")
    yield os.path.join(folder, "cgroup.procs")
    os.rmdir(folder)


def test_a_rank_that_the_kernel_kills_for_memory(procs, tmp_path, small_cgroup):
    cap.require()
    agent = cap.Agent(procs, tmp_path)
    sim = cap.Sim(procs, tmp_path)
    p = procs.start("sh", "-c", 'echo $$ >"$0"; exec "$@"', small_cgroup,
                    harness.program("causal_target"), "hoard", "1", "30", tmp_path, env=sim.env)
    assert p.wait(40) == -9
    agent.wait_window(2)
    agent.stop()
    found = one(incidents(agent), "oom_kill")
    assert found["pid"] == p.pid and found["severity"] == "CRITICAL"
    assert found["root_cause"] == "out of memory" and found["state"] == "closed"


def test_trace_says_it_as_it_opens(procs, tmp_path):
    cap.require()
    sim = cap.Sim(procs, tmp_path)
    p = procs.start(harness.program("causal_target"), "memory", "0", "4", tmp_path, env=sim.env)
    trace = procs.start(harness.program("lanterne"), "trace", "--pid", p.pid, "--duration", "4s",
                        "--window", "1s", "--no-record", "--cuda-lib", cap.SIM_LIBS[0])
    assert trace.wait(20) == 0
    lines = [l for l in trace.log().splitlines() if "device memory exhausted" in l]
    assert len(lines) == 1 and "HIGH" in lines[0], trace.log()
