# SPDX-License-Identifier: Apache-2.0
"""Every function of ops.def, called with arguments that are known: bytes, direction, stream or handle of each call as the
agent recorded them, and its counts against the libraries' own."""

import json
import os
import re

import pytest

import capture_util as cap

RUNTIMES = {11: "libcudart.so.11.0", 12: "libcudart.so.12", 13: "libcudart.so.13"}
LIBRARIES = {"CUDART": "cudart", "CUDA_DRIVER": "cuda", "NCCL": "nccl"}
# Made by entry-only calls of the runtime, and recorded as if the program had made them.
BENEATH_ENTRY_ONLY = {"cuLaunchHostFunc", "cuStreamAddCallback", "cuEventRecord", "cuStreamWaitEvent"}


def symbols(library, major):
    """Functions of ops.def that a library of this major version can have."""
    found = set()
    path = os.path.join(cap.harness.SOURCE_DIR, "agent", "probe", "ops.def")
    with open(path, encoding="utf-8") as f:
        for m in re.finditer(r'^LTN_SYMBOL(?:_ABI)?\(\w+, (\w+), "(\w+)"(?:, \w+, \w+, \w+, (\d+), (\d+))?', f.read(), re.M):
            if LIBRARIES[m[1]] == library and int(m[3] or 0) <= major <= int(m[4] or 255):
                found.add(m[2])
    return found


def run(procs, tmp_path, library, file, *options, attach=None):
    """The agent and the lines that the program said of its calls; the agent has ended."""
    libs = {cap.SIM_LIBS[1], cap.SIM_LIBS[2], os.path.join(cap.SIM_DIR, file), cap.SIM_LIBS[0]}
    agent = cap.Agent(procs, tmp_path, "--record-all", "--ringbuf-size", "16m", *options,
                      libs=sorted(libs), attach=attach)
    sim = cap.Sim(procs, tmp_path)
    out, tally = str(tmp_path / "calls.jsonl"), str(tmp_path / "tally.json")
    p = procs.start(cap.harness.program("capture_ops"), library, os.path.join(cap.SIM_DIR, file),
                    out, tally, env=sim.env)
    assert p.wait(60) == 0, p.log()[-3000:]
    agent.stop()
    with open(out, encoding="utf-8") as f:
        return agent, p, [json.loads(line) for line in f], tally


def recorded(agent, pid):
    """{op: [(bytes, kind, handle), ...]} in the order of the calls."""
    ops = {}
    for r in agent.rows("SELECT o.name, c.bytes, c.kind, c.handle, c.result, c.flags FROM calls c"
                        " JOIN ops o ON o.id = c.op_id JOIN procs p ON p.id = c.proc_id"
                        " WHERE p.pid = ? ORDER BY c.time_ns, c.id", pid):
        ops.setdefault(r["name"], []).append(r)
    return ops


def same(line, row):
    want = (line["bytes"], line["kind"], line["rc"])
    rc = line["rc"] if row["flags"] & cap.CALL_UNTIMED else row["result"]
    return (row["bytes"], row["kind"], rc) == want and \
        (line["any"] == 1 or row["handle"] == line["handle"])


def check_decoded(agent, pid, lines):
    rows = recorded(agent, pid)
    left_out = cap.DETAIL_OPS if agent.link_kind == "perf" else set()
    for op in {cap.OP_OF_SYMBOL[line["symbol"]] for line in lines} - left_out:
        mine = [line for line in lines if cap.OP_OF_SYMBOL[line["symbol"]] == op]
        got = rows.get(op, [])
        if op in BENEATH_ENTRY_ONLY:
            at = 0
            for row in got:
                at += at < len(mine) and same(mine[at], row)
            assert at == len(mine), (op, mine[at], [dict(r) for r in got])
            continue
        assert len(got) == len(mine), (op, len(got), len(mine))
        for line, row in zip(mine, got):
            assert same(line, row), (line, dict(row))
            assert bool(row["flags"] & cap.CALL_UNTIMED) == (op in cap.ENTRY_ONLY_OPS)


def check_counts(agent, pid, tally):
    got = agent.op_sums({pid})
    assert {op: v[0] for op, v in got.items()} == cap.op_tally(tally, kind=agent.link_kind)
    for op, (calls, returns, _, hist) in got.items():
        assert (returns, hist) == ((0, 0) if op in cap.ENTRY_ONLY_OPS else (calls, calls)), op
    assert agent.value("SELECT sum(errors) FROM op_windows") == 0  # 600 is no error
    h = agent.health()
    assert not any(h["drops"].values()), h["drops"]
    return h


@pytest.mark.parametrize("major", sorted(RUNTIMES))
def test_runtime(procs, tmp_path, major):
    cap.require()
    agent, p, lines, tally = run(procs, tmp_path, "cudart", RUNTIMES[major])
    # simgpu's runtimes differ in layouts only, except for what came after 11.
    late = {"cudaMemcpyBatchAsync", "cudaMemcpyBatchAsync_ptsz"}
    assert {line["symbol"] for line in lines} == symbols("cudart", major) - (late if major < 12 else set())
    assert any(line["rc"] == 600 for line in lines)
    check_decoded(agent, p.pid, lines)
    check_counts(agent, p.pid, tally)


def test_runtime_with_two_programs(procs, tmp_path):
    """Links of kind multi: functions that are entry-only have none at the return."""
    cap.require()
    cap.require_links("multi")
    agent, p, lines, tally = run(procs, tmp_path, "cudart", RUNTIMES[12], attach="multi")
    assert agent.link_kind == "multi"
    check_decoded(agent, p.pid, lines)
    check_counts(agent, p.pid, tally)


def test_driver(procs, tmp_path):
    cap.require()
    agent, p, lines, tally = run(procs, tmp_path, "cuda", "libcuda.so.1")
    assert {line["symbol"] for line in lines} == symbols("cuda", 1)
    assert any(line["rc"] == 600 for line in lines)
    check_decoded(agent, p.pid, lines)
    check_counts(agent, p.pid, tally)


def test_nccl(procs, tmp_path):
    cap.require()
    agent, p, lines, tally = run(procs, tmp_path, "nccl", "libnccl.so.2")
    assert {line["symbol"] for line in lines} == symbols("nccl", 2)
    check_decoded(agent, p.pid, lines)
    check_counts(agent, p.pid, tally)
