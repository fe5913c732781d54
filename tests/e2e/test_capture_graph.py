# SPDX-License-Identifier: Apache-2.0
"""Graphs: what is recorded counts when it is launched, not when it is recorded; a job whose step is one launch of a graph
has steps, sequences and verdicts like any other."""

import json
import re

import pytest

import capture_util as cap
import collector_util as cu
import harness

RANKS = 4
STEPS = 60
BUCKETS = 4


def replays(agent, pid):
    """{op: (calls, replayed, replayed bytes)}"""
    return {r["op"]: (r["count"], r["replayed"], r["replayed_bytes"])
            for r in agent.rows("SELECT * FROM op_stats WHERE pid = ?", pid)}


@pytest.mark.parametrize("attach", [None, "multi"])
def test_every_way_to_record_and_to_launch(procs, tmp_path, attach):
    cap.require()
    agent = cap.Agent(procs, tmp_path, "--record-all", attach=attach)
    # Where perf links are all there is, events are not probed: what joins by them is not seen.
    details = agent.link_kind != "perf"
    words = [] if details else ["one-stream"]
    p = procs.start(harness.program("capture_graph"), tmp_path, *words, env=cap.Sim(procs, tmp_path).env)
    cap.finish([p])
    truth = json.loads(p.log().splitlines()[-1])
    assert open_captures(agent) == 0  # although the process ended in the middle of one
    harness.wait_until(lambda: agent.map_dump("graphs") == [], 10, "the process's graphs to be forgotten")
    agent.stop()
    got = replays(agent, truth["pid"])
    assert got["cudaLaunchKernel"][1:] == got["cuLaunchKernel"][1:] == (truth["launches"], 0)
    assert got["cudaMemcpyAsync"][1:] == (truth["copies"], truth["copy_bytes"])
    assert got["ncclAllReduce"][1:] == (truth["collectives"], truth["collective_bytes"])
    assert got["cuLaunchKernelEx"][1] == truth["collectives"]
    if details:
        assert got["cudaMemsetAsync"][1:] == (truth["sets"], truth["set_bytes"])
    assert {op for op, v in got.items() if v[1]} <= {
        "cudaLaunchKernel", "cuLaunchKernel", "cudaMemcpyAsync", "cuMemcpyHtoDAsync", "cudaMemsetAsync",
        "cuMemsetD8Async", "ncclAllReduce", "cuLaunchKernelEx"}
    (comm,) = agent.rows("SELECT * FROM communicators c JOIN procs p ON p.id = c.proc_id WHERE p.pid = ?"
                         " ORDER BY window_id DESC LIMIT 1", truth["pid"])
    # Recording moves nothing: only launches do.
    assert comm["sequence_total"] == truth["collectives"]
    assert comm["bytes_total"] == truth["collective_bytes"]
    recorded = agent.rows("SELECT c.flags FROM calls c JOIN ops o ON o.id = c.op_id WHERE o.name = 'ncclAllReduce'")
    assert len(recorded) == got["ncclAllReduce"][0] and all(r["flags"] & 0x40 for r in recorded)
    assert not any(agent.health()["drops"].values())


def open_captures(agent):
    """The kernel programs' own count of captures that are open."""
    ids = agent.map_ids()
    (bss,) = [i for name, i in ids.items() if name.endswith(".bss")]
    (count,) = re.findall(r'"capturing":\s*(\d+)', json.dumps(cap.bpftool("map", "dump", "id", str(bss))))
    return int(count)


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """(agent, ranks) of a job whose step is one launch of a graph."""
    cap.require()
    folder = tmp_path_factory.mktemp("graph")
    procs = harness.Processes(str(folder))
    try:
        agent = cap.Agent(procs, folder)
        sim = cap.Sim(procs, folder)
        ranks = sim.job(RANKS, "--graph", "--wait", "block", "--steps", str(STEPS), "--buckets", str(BUCKETS),
                        "--kernels", "16", "--kernel-us", "1500", "--read-ms", "4")
        cap.finish(ranks, 60)
        agent.stop()
        yield agent, ranks
    finally:
        procs.kill_all()


def test_counts_against_what_the_device_ran(job):
    agent, ranks = job
    for p in ranks:
        with open(p.tally, encoding="utf-8") as f:
            tally = json.load(f)
        got = replays(agent, p.pid)
        assert tally["simReplayedCollectives"] == STEPS * (BUCKETS + 1)
        assert got["ncclAllReduce"][:2] == (tally["ncclAllReduce"], tally["simReplayedCollectives"])
        assert got["cudaLaunchKernel"][:2] == (tally["cudaLaunchKernel"], tally["simReplayedKernels"])
        assert got["cudaMemcpyAsync"][:2] == (tally["cudaMemcpyAsync"], tally["simReplayedCopies"])
        assert {op: v[0] for op, v in agent.op_sums({p.pid}).items()} == cap.op_tally(p.tally, kind=agent.link_kind)
    assert not any(agent.health()["drops"].values())


def test_sequences_move_with_the_launches_and_agree(job):
    agent, ranks = job
    last = {r["pid"]: r for r in agent.rows("SELECT p.pid, c.* FROM communicators c JOIN procs p"
                                            " ON p.id = c.proc_id ORDER BY c.window_id")}
    assert {r["sequence_total"] for r in last.values()} == {STEPS * (BUCKETS + 1)}
    assert {r["bytes_total"] for r in last.values()} == {STEPS * (BUCKETS * (1 << 20) + 8)}
    assert len({r["signature"] for r in last.values()}) == 1 and len(last) == len(ranks)


def test_steps_of_a_graph_job(job):
    agent, ranks = job
    for p in ranks:
        rows = agent.rows("SELECT * FROM rank_steps WHERE pid = ? ORDER BY timestamp_ns", p.pid)
        assert sum(r["steps"] for r in rows) == pytest.approx(STEPS, abs=1)
        assert {r["collectives_per_step"] for r in rows if r["collectives_per_step"]} == {BUCKETS + 1}
        step_ms = cap.mean([r["step_ns"] for r in rows], [r["steps"] for r in rows]) / 1e6
        assert step_ms == pytest.approx(cap.report(p)["mean_step_ms"], rel=0.1)


def test_a_slow_loader_is_named_in_a_graph_job(procs, tmp_path):
    cap.require()
    collector = cu.Collector(procs, tmp_path, "--window", "1s").start()
    agent = cap.Agent(procs, tmp_path, "--collector", f"http://127.0.0.1:{collector.port}")
    sim = cap.Sim(procs, tmp_path)
    ranks = sim.job(RANKS, "--graph", "--wait", "block", "--seconds", "60", "--kernels", "8", "--kernel-us", "500",
                    "--step-cpu-ms", "0.2", "--read-ms", "3", "--fault", "dataloader:rank=2:at=0:ms=25")
    (verdict,) = harness.wait_until(lambda: collector.get("/api/v1/stragglers")["stragglers"], 40, "the verdict")
    for p in ranks:
        p.kill()
    agent.stop()
    assert verdict["rank"] == 2 and verdict["cause"] == "data_loader", verdict
