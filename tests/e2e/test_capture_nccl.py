# SPDX-License-Identifier: Apache-2.0
"""Communicators: the same id on every rank, rank and size, the sequence of collectives, bytes."""

import json
import os

import pytest

import capture_util as cap

RANKS = 4
# What capture_target does in collectives, as exported names; see run_nccl there.
COLLECTIVES = {"ncclAllReduce", "ncclAllGather", "ncclReduceScatter", "ncclBroadcast", "ncclBcast",
               "ncclReduce", "ncclAlltoAll"}


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """One run of four ranks: (agent, what each rank says of itself, its events)."""
    cap.require()
    folder = tmp_path_factory.mktemp("nccl")
    procs = cap.harness.Processes(str(folder))
    try:
        agent = cap.Agent(procs, folder, "--record-all")
        sim = cap.Sim(procs, folder)
        outs = [os.path.join(sim.dir, f"out{r}.json") for r in range(RANKS)]
        cap.finish([sim.target("nccl", str(r), str(RANKS), sim.dir, outs[r]) for r in range(RANKS)])
        agent.stop()
        ranks = []
        for path in outs:
            with open(path, encoding="utf-8") as f:
                ranks.append(json.load(f))
        yield agent, ranks
    finally:
        procs.kill_all()


def comms_of(agent, pid):
    """{comm id: its last row} of a process."""
    rows = agent.rows("SELECT c.* FROM communicators c JOIN procs p ON p.id = c.proc_id"
                      " WHERE p.pid = ? ORDER BY c.window_id", pid)
    return {r["comm_id"]: r for r in rows}


def made(agent, pid, op):
    """{handle: comm id} of the calls that made communicators."""
    return {r["handle"]: r["comm_id"] for r in agent.rows(
        "SELECT c.handle, c.comm_id FROM calls c JOIN procs p ON p.id = c.proc_id"
        " JOIN ops o ON o.id = c.op_id WHERE p.pid = ? AND o.name = ? ORDER BY c.time_ns", pid, op)}


def named(rank, name):
    return [c for c in rank["comms"] if c["name"] == name]


@pytest.mark.parametrize("name,op", [("rank", "ncclCommInitRank"),
                                     ("config", "ncclCommInitRankConfig"),
                                     ("scalable", "ncclCommInitRankScalable")])
def test_init(seen, name, op):
    agent, ranks = seen
    ids = set()
    for rank in ranks:
        (truth,) = named(rank, name)
        comm_id = made(agent, rank["pid"], op)[truth["handle"]]
        row = comms_of(agent, rank["pid"])[comm_id]
        ids.add(comm_id)
        assert (row["rank"], row["ranks"]) == (truth["rank"], RANKS)
        assert row["sequence_total"] == truth["sequence"]
        assert row["bytes_total"] == truth["bytes"]
    assert len(ids) == 1 and 0 not in ids


def test_ids_differ_between_communicators(seen):
    agent, ranks = seen
    ids = {op: set(made(agent, ranks[0]["pid"], op).values()) for op in
           ("ncclCommInitRank", "ncclCommInitRankConfig", "ncclCommInitRankScalable")}
    assert len(ids["ncclCommInitRank"]) >= 2  # the job's and the short-lived ones
    everything = set.union(*ids.values())
    assert len(everything) == sum(len(i) for i in ids.values())


def test_split(seen):
    agent, ranks = seen
    children = []
    for rank in ranks:
        (truth,) = named(rank, "child")
        comm_id = made(agent, rank["pid"], "ncclCommSplit")[truth["handle"]]
        row = comms_of(agent, rank["pid"])[comm_id]
        assert row["sequence_total"] == truth["sequence"]
        assert row["bytes_total"] == truth["bytes"]
        children.append(comm_id)
    assert children[0] == children[2] and children[1] == children[3]
    assert children[0] != children[1]
    rest = set()
    for rank in ranks[1:]:
        (truth,) = named(rank, "rest")
        rest.add(made(agent, rank["pid"], "ncclCommSplit")[truth["handle"]])
    assert len(rest) == 1 and not rest & set(children)
    assert not named(ranks[0], "rest")


def test_shrink(seen):
    """The ranks that are left keep their order."""
    agent, ranks = seen
    ids = set()
    assert not named(ranks[1], "left")
    for new_rank, rank in enumerate([ranks[0], ranks[2], ranks[3]]):
        (truth,) = named(rank, "left")
        comm_id = made(agent, rank["pid"], "ncclCommShrink")[truth["handle"]]
        row = comms_of(agent, rank["pid"])[comm_id]
        ids.add(comm_id)
        assert (row["rank"], row["ranks"]) == (truth["rank"], truth["ranks"]) == (new_rank, 3)
        assert row["sequence_total"] == truth["sequence"] == 6
        assert row["bytes_total"] == truth["bytes"]
    others = {i for op in ("ncclCommInitRank", "ncclCommSplit") for i in made(agent, ranks[0]["pid"], op).values()}
    assert len(ids) == 1 and not ids & others


def test_init_all(seen):
    agent, ranks = seen
    ids = set()
    for rank in ranks:
        truth = named(rank, "all")
        assert {c["rank"] for c in truth} == {0, 1}
        (comm_id,) = set(made(agent, rank["pid"], "ncclCommInitAll").values())
        row = comms_of(agent, rank["pid"])[comm_id]
        assert row["ranks"] == 2 and row["rank"] in (0, 1)
        assert row["sequence_total"] == truth[0]["sequence"]
        ids.add(comm_id)
    assert len(ids) == RANKS  # each process made its own


def test_communicators_that_ended_within_a_window(seen):
    """They were destroyed, and perhaps their addresses used again, before anybody looked."""
    agent, ranks = seen
    for rank in ranks:
        (job,) = named(rank, "rank")
        ids = {r["comm_id"] for r in agent.rows(
            "SELECT c.comm_id FROM calls c JOIN procs p ON p.id = c.proc_id JOIN ops o ON o.id = c.op_id"
            " WHERE p.pid = ? AND o.name = 'ncclCommInitRank'", rank["pid"])}
        ids.discard(made(agent, rank["pid"], "ncclCommInitRank").get(job["handle"]))
        rows = comms_of(agent, rank["pid"])
        short = [rows[i]["sequence_total"] for i in ids if i in rows and rows[i]["ranks"] == 1]
        assert sum(short) == rank["short_sum"]


def test_events_agree_with_counters(seen):
    agent, ranks = seen
    for rank in ranks:
        events = agent.rows(
            "SELECT o.name, c.* FROM calls c JOIN procs p ON p.id = c.proc_id"
            " JOIN ops o ON o.id = c.op_id WHERE p.pid = ? AND o.source = 'nccl'"
            " AND o.class = 'collective' ORDER BY c.time_ns", rank["pid"])
        (truth,) = named(rank, "rank")
        mine = [e for e in events if e["handle"] == truth["handle"] and e["comm_id"] ==
                made(agent, rank["pid"], "ncclCommInitRank")[truth["handle"]]]
        assert [e["sequence"] for e in mine] == list(range(10))
        assert sum(e["bytes"] for e in mine) == truth["bytes"]
        assert {e["name"] for e in mine} == COLLECTIVES
        assert all(e["comm_id"] not in (0, None) for e in events)
        bytes_of_op = {e["name"]: 0 for e in events}
        for e in events:
            bytes_of_op[e["name"]] += e["bytes"]
        sums = agent.op_sums({rank["pid"]})
        assert {op: sums[op][2] for op in bytes_of_op} == bytes_of_op


def test_signatures_agree_over_ranks(seen):
    agent, ranks = seen
    for name in ("rank", "config", "scalable"):
        op = {"rank": "ncclCommInitRank", "config": "ncclCommInitRankConfig",
              "scalable": "ncclCommInitRankScalable"}[name]
        signatures = set()
        for rank in ranks:
            comm_id = made(agent, rank["pid"], op)[named(rank, name)[0]["handle"]]
            signatures.add(comms_of(agent, rank["pid"])[comm_id]["signature"])
        assert len(signatures) == 1


def test_an_error_that_is_only_told_when_asked(procs, tmp_path):
    """The call succeeds; what it tells is the failure of a collective before it."""
    cap.require()
    agent = cap.Agent(procs, tmp_path)  # failures are recorded whatever is sampled
    sim = cap.Sim(procs, tmp_path)
    env = {"SIMGPU_COLL_TIMEOUT_S": "5"}  # also the time that rank 1 has to join, in an emulated machine beside other work
    ranks = [sim.target("async", str(r), sim.dir, env=env) for r in range(2)]
    cap.finish(ranks, 120)
    assert "error 6" in ranks[0].log()
    agent.stop()
    rows = agent.rows("SELECT c.result, c.flags, c.handle FROM calls c JOIN ops o ON o.id = c.op_id"
                      " WHERE o.name = 'ncclCommGetAsyncError'")
    (row,) = rows
    assert row["result"] == 6 and row["flags"] & 2 and row["handle"] != 0
    assert agent.value("SELECT sum(w.errors) FROM op_windows w JOIN ops o ON o.id = w.op_id"
                       " WHERE o.name = 'ncclCommGetAsyncError'") == 1
    (title,) = [r[0] for r in agent.rows("SELECT DISTINCT title FROM incidents WHERE title LIKE '%ncclCommGetAsyncError%'")]
    assert "ncclCommGetAsyncError failed with 6 (remote error)" in title
