# SPDX-License-Identifier: Apache-2.0
"""Counts come from the kernel's counters and are exact, whatever the link kind and whatever is dropped."""

import pytest

import capture_util as cap


def storm(sim, seconds=None, threads=4, steps=15000, **env):
    options = ["--storm", "--threads", str(threads), "--streams", "2", "--kernel-us", "0"]
    options += ["--seconds", str(seconds)] if seconds else ["--steps", str(steps)]
    return sim.train(*options, env=env)


def check_exact(agent, processes):
    want = cap.op_tally(*(p.tally for p in processes), kind=agent.link_kind)
    got = agent.op_sums({p.pid for p in processes})
    assert want["cudaLaunchKernel"] >= 1000 and want["cuLaunchKernel"] >= 1000
    assert {op: v[0] for op, v in got.items()} == want
    for op, (calls, returns, _, hist) in got.items():
        assert (returns, hist) == ((0, 0) if op in cap.ENTRY_ONLY_OPS else (calls, calls)), op


def check_balance(agent):
    """seen = stored + drops, for the records of calls and of processes."""
    h = agent.health()
    assert h["records_emitted"] == h["records_read"] + h["drops"]["ring_calls"] + \
        h["drops"]["ring_critical"] + h["drops"]["ring_stacks"]
    assert h["windows_dropped"] == 0
    others = {k: n for k, n in h["drops"].items() if not k.startswith("ring_")}
    assert not any(others.values()), others
    return h


@pytest.mark.parametrize("kind", cap.LINK_KINDS)
def test_counts_are_exact(procs, tmp_path, kind):
    cap.require()
    agent = cap.Agent(procs, tmp_path, attach=kind)
    assert agent.link_kind == kind
    sim = cap.Sim(procs, tmp_path)
    running = [storm(sim, seconds=1.5), storm(sim, seconds=1.5), sim.train("--churn", "--steps", "2000")]
    cap.finish(running)
    agent.stop()
    check_exact(agent, running)
    h = check_balance(agent)
    assert h["drops"]["ring_calls"] == 0
    assert h["calls_seen"] == sum(cap.op_tally(*(p.tally for p in running), kind=kind).values())


@pytest.mark.parametrize("kind", ["session", "multi"])
def test_counts_stay_exact_when_records_are_dropped(procs, tmp_path, kind):
    cap.require()
    agent = cap.Agent(procs, tmp_path, "--ringbuf-size", "4096", "--record-all", "--no-stack", attach=kind)
    sim = cap.Sim(procs, tmp_path)
    running = [storm(sim, threads=3, steps=20000), storm(sim, threads=2, steps=20000)]
    cap.finish(running)
    agent.stop()
    check_exact(agent, running)
    h = check_balance(agent)
    assert h["drops"]["ring_calls"] > 0
    # Runtime calls are recorded, those they make inside the driver are not.
    tally = cap.op_tally(*(p.tally for p in running))
    outermost = sum(n for op, n in tally.items() if not op.startswith("cu") or op.startswith("cuda"))
    process_records = h["records_emitted"] - outermost
    assert 0 <= process_records <= 6 * len(running)
    stored = agent.value("SELECT count(*) FROM calls")
    lost = outermost - h["drops"]["ring_calls"] - stored
    assert h["records_dropped"] - process_records <= lost <= h["records_dropped"]


def test_every_call_is_recorded_when_asked(procs, tmp_path):
    cap.require()
    agent = cap.Agent(procs, tmp_path, "--record-all", "--ringbuf-size", "16m")
    sim = cap.Sim(procs, tmp_path)
    p = storm(sim, threads=2, steps=10000)
    cap.finish([p])
    agent.stop()
    check_exact(agent, [p])
    assert check_balance(agent)["drops"]["ring_calls"] == 0
    assert agent.value("SELECT count(*) FROM events WHERE op = 'cudaLaunchKernel'") == 20000
    assert agent.value("SELECT count(*) FROM events WHERE source = 'driver'"
                       " AND op NOT IN ('cuCtxCreate', 'cuModuleLoad')") == 0
    assert agent.value("SELECT count(*) FROM procs") == 1
