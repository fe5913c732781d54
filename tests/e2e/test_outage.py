# SPDX-License-Identifier: Apache-2.0
"""The whole way under trouble: real probes, an agent, a collector that is killed in the middle. Nothing may be lost."""

import json
import os
import re
import signal
import sqlite3
import subprocess
import time

import harness

SIMGPU = os.path.join(harness.BUILD_DIR, "simgpu")
LIBRARIES = [os.path.join(SIMGPU, n) for n in ("libcudart.so.12", "libcuda.so.1", "libnccl.so.2")]


class Stage:
    """A collector and an agent on one machine, and jobs of simtrain for them."""

    def __init__(self, procs, tmp_path):
        self.procs = procs
        self.sim = tmp_path / "sim"
        self.sim.mkdir()
        self.agent_db = str(tmp_path / "agent.db")
        self.collector_db = str(tmp_path / "collector.db")
        self.otlp = harness.free_port()
        self.api = harness.free_port()
        self.environment = dict(os.environ, LD_LIBRARY_PATH=SIMGPU, SIMGPU_DIR=str(self.sim),
                                SIMGPU_NODE="n0")

    def start_collector(self):
        collector = self.procs.start(
            harness.program("lanterne-collector"), "--otlp-listen", f"127.0.0.1:{self.otlp}",
            "--api-listen", f"127.0.0.1:{self.api}", "--db", self.collector_db, "--window", "1s")
        collector.wait_port(self.api)
        return collector

    def start_agent(self):
        command = [harness.program("lanterne"), "agent", "--node", "n0", "--window", "1s", "--db",
                   self.agent_db, "--collector", f"http://127.0.0.1:{self.otlp}"]
        for library in LIBRARIES:
            command += ["--cuda-lib", library]
        agent = self.procs.start(*command, env=self.environment)
        agent.wait_log("tracing with")
        return agent

    def job(self, seconds):
        return self.procs.start(harness.program("simrun"), "--dir", str(self.sim), "--nodes", "1",
                                "--ranks-per-node", "2", "--", "--preset", "quickstart",
                                "--seconds", str(seconds), env=self.environment)

    def tally(self):
        """Calls of all ranks by function, as the libraries counted them."""
        sums = {}
        for rank in range(2):
            with open(self.sim / f"tally-{rank}.json", encoding="utf-8") as f:
                for name, calls in json.load(f).items():
                    sums[name] = sums.get(name, 0) + calls
        return sums


def query(path, sql):
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as db:
        return dict(db.execute(sql).fetchall())


def rank_pids(job):
    """Process ids of the job's ranks; other tests may be running on this machine and are traced too."""
    return ",".join(re.findall(r"^rank \d+ node \S+ pid (\d+)", job.log(), re.M)) or "0"


def agent_counts(path, job):
    return query(path, f"SELECT op, sum(count) FROM op_stats WHERE pid IN ({rank_pids(job)}) GROUP BY op")


def collector_counts(path, job):
    return query(path, f"SELECT op, sum(calls) FROM op_counts WHERE pid IN ({rank_pids(job)}) GROUP BY op")


def outbox_rows(path):
    return query(path, "SELECT 0, count(*) FROM outbox")[0]


def test_a_killed_collector_loses_nothing(procs, tmp_path):
    harness.require_btf()
    stage = Stage(procs, tmp_path)
    collector = stage.start_collector()
    agent = stage.start_agent()
    job = stage.job(12)
    harness.wait_until(lambda: os.path.exists(stage.collector_db)
                       and collector_counts(stage.collector_db, job).get("cudaLaunchKernel", 0) > 0,
                       timeout_s=30, what="first counts in the collector", interval_s=0.2)
    for pause in (2.0, 0.1):
        collector.kill()
        time.sleep(pause)
        collector = stage.start_collector()
        time.sleep(1)
    assert job.wait(60) == 0
    harness.wait_until(lambda: agent_counts(stage.agent_db, job).get("cudaLaunchKernel", 0)
                       == stage.tally()["cudaLaunchKernel"],
                       timeout_s=30, what="the agent's own counts", interval_s=0.2)
    assert agent.running
    harness.wait_until(lambda: outbox_rows(stage.agent_db) <= 1, timeout_s=30, what="empty outbox")
    assert agent.stop(20) == 0
    truth = stage.tally()
    counted = agent_counts(stage.agent_db, job)
    for op in ("cudaLaunchKernel", "cudaStreamSynchronize", "ncclAllReduce", "ncclCommInitRank"):
        assert counted[op] == truth[op], op
    harness.wait_until(lambda: collector_counts(stage.collector_db, job) == counted, timeout_s=30,
                       what=f"the collector's counts {counted}", interval_s=0.2)
    assert collector.stop(20) == 0


def test_an_agent_without_a_collector_keeps_what_it_has_to_say(procs, tmp_path):
    harness.require_btf()
    stage = Stage(procs, tmp_path)
    agent = stage.start_agent()
    job = stage.job(3)
    assert job.wait(60) == 0
    time.sleep(1.5)
    agent.kill()
    assert outbox_rows(stage.agent_db) > 0
    # Another agent on the same database sends what the killed one could not.
    collector = stage.start_collector()
    agent = stage.start_agent()
    counted = agent_counts(stage.agent_db, job)
    assert counted["cudaLaunchKernel"] > 0
    harness.wait_until(lambda: collector_counts(stage.collector_db, job) == counted, timeout_s=30,
                       what=f"the collector's counts {counted}", interval_s=0.2)
    assert agent.stop(20) == 0
    assert collector.stop(20) == 0


def result_of(report):
    return report["checksum"], report["failed_calls"], report["steps"]


def run_train(stage, name, disturb=None):
    report = stage.sim / name
    with subprocess.Popen([harness.program("simtrain"), "--steps", "60", "--step-cpu-ms", "2",
                           "--kernels", "10", "--seed", "7", "--report", str(report)],
                          env=stage.environment, stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL) as train:
        if disturb is not None:
            disturb()
        assert train.wait(60) == 0
    with open(report, encoding="utf-8") as f:
        return result_of(json.load(f))


def test_the_traced_program_computes_the_same(procs, tmp_path):
    """Without an agent, with one, and with one that is killed and started again meanwhile."""
    harness.require_btf()
    stage = Stage(procs, tmp_path)
    alone = run_train(stage, "alone.json")
    assert alone[1] == 0
    agents = [stage.start_agent()]
    assert run_train(stage, "traced.json") == alone

    def disturb():
        for _ in range(2):
            time.sleep(0.5)
            os.killpg(agents[-1].pid, signal.SIGKILL)
            agents.append(stage.start_agent())

    assert run_train(stage, "disturbed.json", disturb) == alone
