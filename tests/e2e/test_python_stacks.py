# SPDX-License-Identifier: Apache-2.0
"""Python lines of a training program's calls, all the way: kernel, symbols, record."""

import json
import re
import signal

import pytest

import capture_util as cap
import python_util as py

SOURCE = cap.os.path.join(cap.harness.SOURCE_DIR, "tests", "simgpu", "simtrain.py")
# The calls that get a record, and the functions of simtrain.py that make them, from the call outwards.
CALLERS = {
    "cudaStreamSynchronize": ["read_loss", "training_step", "train", "main", "<module>"],
    "cudaMalloc": ["set_up", "main", "<module>"],
    "cudaFree": ["tear_down", "main", "<module>"],
}


@pytest.fixture(scope="session")
def found():
    cap.require()
    return py.interpreters()


def qualified(names, version):
    return names if version >= (3, 11) else [n.rsplit(".", 1)[-1] for n in names]


def lines_of(op):
    """Numbers of the lines of simtrain.py on which it calls op."""
    with open(SOURCE, encoding="utf-8") as f:
        return {n for n, line in enumerate(f, 1) if re.search(rf"\b{op}\(", line)}


def python_frames(agent, op):
    """{stack: [(function, file, line), ...]} of an op's calls, innermost first."""
    stacks = {}
    for r in agent.rows("SELECT DISTINCT e.stack_id, f.position, f.function, f.file, f.line FROM events e"
                        " JOIN stack_frames f ON f.stack_id = e.stack_id"
                        " WHERE e.op = ? AND f.kind = 'python' ORDER BY 1, 2", op):
        stacks.setdefault(r["stack_id"], []).append((r["function"], r["file"], r["line"]))
    return stacks


@pytest.mark.parametrize("version", py.VERSIONS)
def test_the_line_of_each_call(procs, tmp_path, found, version):
    if version not in found:
        pytest.skip(f"there is no CPython {version[0]}.{version[1]} on this machine")
    agent = cap.Agent(procs, tmp_path)
    sim = cap.Sim(procs, tmp_path)
    script = cap.harness.program("simtrain.py")
    cap.finish([procs.start(found[version][0], script, "--steps", "30", env=sim.env)])
    agent.stop()
    for op, callers in CALLERS.items():
        stacks = python_frames(agent, op)
        assert stacks, op
        for frames in stacks.values():
            assert [f[0] for f in frames] == qualified(callers, version), op
            assert all(f[1] == script for f in frames)
            assert frames[0][2] in lines_of(op), (op, frames)
    calls, named = agent.rows("SELECT count(*), count(stack_id) FROM events WHERE op = 'cudaStreamSynchronize'")[0]
    assert calls >= 30 and named == calls


def test_ranks_share_their_stacks(procs, tmp_path, found):
    """Two ranks of a job stand on the same lines: one row for both, whatever the addresses."""
    agent = cap.Agent(procs, tmp_path)
    sim = cap.Sim(procs, tmp_path)
    port = str(cap.harness.free_port())
    ranks = [procs.start("/usr/bin/python3", cap.harness.program("simtrain.py"), "--steps", "20", env={
        **sim.env, "RANK": str(r), "WORLD_SIZE": "2", "LOCAL_RANK": str(r), "MASTER_PORT": port,
        "MASTER_ADDR": "127.0.0.1", "LOCAL_WORLD_SIZE": "2"}) for r in range(2)]
    cap.finish(ranks)
    agent.stop()
    shared = agent.rows("SELECT stack_id, count(DISTINCT pid) AS pids FROM events"
                        " WHERE op = 'cudaStreamSynchronize' GROUP BY stack_id")
    assert [r["pids"] for r in shared] == [2]


def test_an_orphan_that_no_scan_can_place(procs, tmp_path, found):
    """Its parent is gone before anybody looks: the kernel traces it all the same, and so it has its lines."""
    agent = cap.Agent(procs, tmp_path)
    sim = cap.Sim(procs, tmp_path)
    report = tmp_path / "report.json"
    cap.finish([procs.start("sh", "-c", f"/usr/bin/python3 {cap.harness.program('simtrain.py')} --steps 100"
                            f" --report {report} &", env=sim.env)])
    cap.harness.wait_until(report.exists, 20, "the orphan's end")
    agent.stop()
    assert [f[0] for frames in python_frames(agent, "cudaStreamSynchronize").values() for f in frames[:1]] == ["read_loss"]


def test_without_stacks_there_are_none(procs, tmp_path, found):
    agent = cap.Agent(procs, tmp_path, "--no-stack")
    sim = cap.Sim(procs, tmp_path)
    cap.finish([procs.start("/usr/bin/python3", cap.harness.program("simtrain.py"), "--steps", "5", env=sim.env)])
    agent.stop()
    assert agent.value("SELECT count(*) FROM events") > 0
    assert agent.value("SELECT count(*) FROM stack_frames") == 0


@pytest.mark.parametrize("walker", ["auto", "userspace", "ebpf"])
def test_where_a_rank_waits_in_a_hang(procs, tmp_path, found, walker):
    """A call that does not end has no record: a walk from outside says where it stands."""
    agent = cap.Agent(procs, tmp_path, "--incident-hang", "2s", "--py-walker", walker)
    sim = cap.Sim(procs, tmp_path)
    port = str(cap.harness.free_port())
    ranks = [procs.start("/usr/bin/python3", cap.harness.program("simtrain.py"), "--steps", "100000", "--wait", "block",
                         env={**sim.env, "RANK": str(r), "WORLD_SIZE": "2", "LOCAL_RANK": str(r), "MASTER_PORT": port,
                              "MASTER_ADDR": "127.0.0.1", "LOCAL_WORLD_SIZE": "2"}) for r in range(2)]
    cap.harness.wait_until(lambda: agent.rows("SELECT 1 FROM rank_steps"), 20, "the first steps")
    agent.wait_window(2)
    ranks[1].send(signal.SIGSTOP)
    cap.harness.wait_until(lambda: agent.rows("SELECT 1 FROM incidents WHERE kind = 'collective_hang'"), 20,
                           "the incident")
    evidence = json.loads(agent.value("SELECT evidence FROM incidents WHERE kind = 'collective_hang'"))
    for p in ranks:
        p.kill()
    agent.stop()
    waiting = next(m for m in evidence["members"] if m["rank"] == 0)
    assert waiting["inside"] == "cudaStreamSynchronize"
    if walker == "ebpf":
        assert "at" not in waiting
    else:
        line = max(lines_of("cudaStreamSynchronize"))
        assert waiting["at"].startswith("read_loss (") and waiting["at"].endswith(f"simtrain.py:{line})")
    python = agent.value("SELECT count(*) FROM stack_frames WHERE kind = 'python'")
    assert (python == 0) == (walker == "userspace")
