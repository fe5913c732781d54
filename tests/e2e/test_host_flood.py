# SPDX-License-Identifier: Apache-2.0
"""The life of processes is never sampled and never dropped, however many calls are."""

import json

import capture_util as cap
import harness
import host_util as host

SPAWNED = 4000


def test_no_birth_and_no_death_is_lost_while_calls_are(procs, tmp_path):
    host.require()
    sim = cap.Sim(procs, tmp_path)
    # A record of each call into a ring of one page: most of them find it full.
    agent = cap.Agent(procs, tmp_path, "--record-all", "--ringbuf-size", "4096", window="2s")
    flood = procs.start(harness.program("host_flood"), SPAWNED, "/bin/true", env=sim.env)
    cap.finish([flood], 120)
    agent.stop()
    truth = json.loads(flood.log())
    assert truth["made"] == SPAWNED
    health = agent.health()
    assert health["drops"]["ring_calls"] > 1000, "the calls did not flood"
    assert health["drops"]["ring_critical"] == 0
    counts = {r["type"]: (r["n"], r["pids"]) for r in agent.rows(
        "SELECT type, count(*) n, count(DISTINCT pid) pids FROM process_events WHERE parent_pid = ? GROUP BY type",
        flood.pid)}
    assert counts == {t: (SPAWNED, SPAWNED) for t in ("fork", "exec", "exit")}
    own = [r["type"] for r in agent.rows("SELECT type FROM process_events WHERE pid = ? ORDER BY timestamp_ns", flood.pid)]
    assert own[-1] == "exit" and own.count("first_call") == 1 and own.count("exit") == 1
    # Each fork before its exec, each exec before its exit, and the name of the program then.
    wrong = agent.value(
        "SELECT count(*) FROM process_events f JOIN process_events x ON x.pid = f.pid AND x.type = 'exec'"
        " JOIN process_events e ON e.pid = f.pid AND e.type = 'exit' WHERE f.type = 'fork' AND f.parent_pid = ?"
        " AND NOT (f.timestamp_ns <= x.timestamp_ns AND x.timestamp_ns <= e.timestamp_ns)", flood.pid)
    assert wrong == 0
    assert agent.op_sums([flood.pid])["cudaLaunchKernel"][0] == truth["calls"], "counts lose nothing either"


def test_threads_that_end_at_once_are_one_exit(procs, tmp_path):
    host.require()
    sim = cap.Sim(procs, tmp_path)
    agent = cap.Agent(procs, tmp_path)
    flood = procs.start(harness.program("host_flood"), 400, harness.program("host_flood"), env=sim.env)
    cap.finish([flood], 120)
    agent.stop()
    counts = agent.rows("SELECT count(*) n, count(DISTINCT pid) pids FROM process_events WHERE parent_pid = ?"
                        " AND type = 'exit'", flood.pid)[0]
    assert tuple(counts) == (400, 400)


def test_what_is_kept_of_processes_goes_with_them(procs, tmp_path):
    host.require()
    sim = cap.Sim(procs, tmp_path)
    agent = cap.Agent(procs, tmp_path, host.FILES)
    script = """
import subprocess
for i in range(30):
    subprocess.run(["/bin/sh", "-c", "cat /nonexistent/file; exec /bin/true"], stderr=subprocess.DEVNULL)
a, b = socket.socketpair()
a.send(b"x")
"""
    loads = [host.Load(sim, tmp_path, script, name=f"load{i}") for i in range(3)]
    for load in loads:
        load.finish()
        assert host.sums_now(agent, load.pid)
        load.process.kill()

    def nothing_left():
        agent.wait_window(1)
        ids = agent.map_ids()
        return not any(agent.map_dump(name, ids) for name in ("host_processes", "host_net", "host_files"))
    harness.wait_until(nothing_left, 10, "the maps to be empty")
    agent.stop()
    assert host.total(agent, "missing", "file_opens", "path = '/nonexistent/file'") == 90


def test_exit_codes_and_names(procs, tmp_path):
    host.require()
    sim = cap.Sim(procs, tmp_path)
    agent = cap.Agent(procs, tmp_path)
    load = host.Load(sim, tmp_path, """
import subprocess
a = subprocess.Popen(["/bin/sh", "-c", "exit 7"])
a.wait()
b = subprocess.Popen(["/bin/sleep", "60"])
b.kill()
b.wait()
emit(a=a.pid, b=b.pid)
""")
    plain = host.Load(sim, tmp_path, """
import subprocess
emit(c=subprocess.run(["/bin/true"]).returncode)
""", traced=False, name="plain")
    truth = load.finish()
    plain.finish()
    agent.stop()
    ends = {r["pid"]: (r["exit_code"], r["comm"]) for r in agent.rows(
        "SELECT pid, exit_code, comm FROM process_events WHERE type = 'exit'")}
    assert ends[truth["a"]] == (7 << 8, "sh")
    assert ends[truth["b"]] == (9, "sleep")
    assert agent.value("SELECT count(*) FROM process_events WHERE pid = ? OR parent_pid = ?", plain.pid, plain.pid) == 0
