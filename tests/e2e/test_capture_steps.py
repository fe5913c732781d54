# SPDX-License-Identifier: Apache-2.0
"""Step time, self time and collectives of a whole job against what its ranks measured themselves."""

import json

import pytest

import capture_util as cap

RANKS = 4
STEPS = 80
MS = 1e6


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """(agent, ranks) of a job with the quickstart tuning."""
    cap.require()
    folder = tmp_path_factory.mktemp("job")
    procs = cap.harness.Processes(str(folder))
    try:
        agent = cap.Agent(procs, folder)
        sim = cap.Sim(procs, folder)
        ranks = sim.job(RANKS, "--preset", "quickstart", "--steps", str(STEPS))
        cap.finish(ranks, 60)
        agent.stop()
        yield agent, ranks
    finally:
        procs.kill_all()


def rows_of(agent, p):
    return agent.rows("SELECT * FROM rank_steps WHERE pid = ? ORDER BY timestamp_ns", p.pid)


def weighted(rows, column):
    return cap.mean([r[column] for r in rows], [r["steps"] for r in rows])


def test_step_time(job):
    agent, ranks = job
    for p in ranks:
        rows, truth = rows_of(agent, p), cap.report(p)
        step_ms = weighted(rows, "step_ns") / MS
        print(f"rank {truth['rank']}: step {step_ms:.2f} ms, the rank measured {truth['mean_step_ms']:.2f}")
        assert step_ms == pytest.approx(truth["mean_step_ms"], rel=0.03)
        assert sum(r["steps"] for r in rows) == pytest.approx(STEPS, abs=1)
        assert {r["rank"] for r in rows} == {truth["rank"]}


def test_self_time(job):
    agent, ranks = job
    for p in ranks:
        rows, truth = rows_of(agent, p), cap.report(p)
        self_ms = weighted(rows, "self_ns") / MS
        theirs = sum(w["self_ms"] for w in truth["windows"]) / len(truth["windows"])
        woken_late = weighted(rows, "run_queue_ns") / MS
        print(f"rank {truth['rank']}: self {self_ms:.2f} ms, the rank measured {theirs:.2f}"
              f" (queued {woken_late:.2f})")
        # Being woken late from a wait for peers is the rank's own time; the rank itself cannot see it.
        assert theirs * 0.95 - 0.3 <= self_ms <= theirs * 1.05 + woken_late + 0.3
        for r in rows:
            parts = sum(r[c] for c in r.keys() if c.endswith("_ns") and c not in
                        ("timestamp_ns", "step_ns", "self_ns", "peer_wait_ns"))
            assert parts == pytest.approx(r["self_ns"], rel=1e-6)
            assert r["self_ns"] + r["peer_wait_ns"] == pytest.approx(r["step_ns"], rel=1e-6)


def test_collectives_per_step(job):
    agent, ranks = job
    for p in ranks:
        rows = rows_of(agent, p)
        found = [r["collectives_per_step"] for r in rows if r["collectives_per_step"] > 0]
        assert set(found) == {5}  # four buckets and the loss
        assert len(found) >= len(rows) - 1


def test_sequences_agree_over_ranks_and_with_the_tally(job):
    agent, ranks = job
    last = {}
    for r in agent.rows("SELECT p.pid, c.* FROM communicators c JOIN procs p ON p.id = c.proc_id"
                        " ORDER BY c.window_id"):
        last[r["pid"]] = r
    for p in ranks:
        with open(p.tally, encoding="utf-8") as f:
            tally = json.load(f)
        assert last[p.pid]["sequence_total"] == tally["ncclAllReduce"] == 5 * STEPS
        assert last[p.pid]["bytes_total"] == STEPS * (4 * (8 << 20) + 8)
    assert len({r["comm_id"] for r in last.values()}) == 1
    assert len({r["signature"] for r in last.values()}) == 1
    assert sorted(r["rank"] for r in last.values()) == list(range(RANKS))


def test_coverage(job):
    agent, ranks = job
    for p in ranks:
        rows = rows_of(agent, p)
        for r in rows[1:-1]:
            assert 0.85 <= r["coverage"] <= 1
