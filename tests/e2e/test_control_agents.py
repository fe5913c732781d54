# SPDX-License-Identifier: Apache-2.0
"""Questions over real agents: three `lanterne agent` on eBPF, each with its own record, and one collector."""

import os
import sqlite3
import subprocess
import threading

import pytest

import capture_util as cap
import collector_util as cu
import control_util as ctl
import harness

GROUPED = "SELECT node, source, count(*) FROM events GROUP BY node, source"


class Node:
    def __init__(self, procs, folder, name, collector, *options):
        self.name = name
        self.db = os.path.join(str(folder), f"{name}.db")
        words = [harness.program("lanterne"), "agent", "--db", self.db, "--node", name, "--window", "1s",
                 "--collector", f"127.0.0.1:{collector.port}", "--pid", str(os.getpid()), "--record-all",
                 *options]
        for lib in cap.SIM_LIBS:
            words += ["--cuda-lib", lib]
        self.process = procs.start(*words)

    def rows(self, sql):
        with sqlite3.connect(f"file:{self.db}?mode=ro", uri=True, timeout=10) as db:
            return db.execute(sql).fetchall()

    def events(self):
        try:
            return self.rows("SELECT count(*) FROM calls")[0][0]
        except sqlite3.Error:
            return 0


def fleet(procs, folder):
    """(collector, three nodes) with something in each record."""
    cap.require()
    collector = cu.Collector(procs, folder).start()
    made = [Node(procs, folder, f"n{i}", collector) for i in range(3)]
    for n in made:
        n.process.wait_log(r"tracing with (\w+) links", 30)
    ctl.wait_streams(collector, 3)
    sim = cap.Sim(procs, folder)
    cap.finish([sim.train("--steps", "20")])
    # All of it is in every record, and nothing is being added any more.
    counts = {}

    def settled():
        before = dict(counts)
        counts.update({n.name: n.events() for n in made})
        return all(counts.values()) and counts == before
    harness.wait_until(settled, 30, "the records", interval_s=1.5)
    return collector, made


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A fleet that is only asked."""
    folder = tmp_path_factory.mktemp("fleet")
    procs = harness.Processes(str(folder))
    try:
        yield fleet(procs, folder)
    finally:
        procs.kill_all()


def test_group_by_node_and_source(shared):
    collector, nodes = shared
    got = ctl.ask(collector, GROUPED)
    assert got["warnings"] == [] and got["nodes_answered"] == 3, got
    assert got["columns"][:2] == ["node", "source"]
    sums = {}
    for node, source, count in got["rows"]:
        assert source in ("cuda", "driver", "graph", "nccl"), got["rows"]
        sums[node] = sums.get(node, 0) + count
    assert sums == {n.name: n.events() for n in nodes}
    # The command line asks the same.
    cli = subprocess.run([harness.program("lanterne"), "query", "--collector", collector.url(""), "--csv", GROUPED],
                         capture_output=True, timeout=30, check=True).stdout.decode()
    assert cli.splitlines()[1:] == [f"{n},{s},{c}" for n, s, c in got["rows"]]
    # The same, with a second statement over all.
    got = ctl.ask(collector, "SELECT duration_ns FROM events",
                  reduce="SELECT count(DISTINCT node), count(*), max(duration_ns) FROM fleet")
    assert got["rows"][0][:2] == [3, sum(sums.values())]


def test_many_pages_and_limits(shared):
    collector, _ = shared
    numbers = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c WHERE x < 30000) SELECT x FROM c"
    got = ctl.ask(collector, numbers, limit=100000)
    assert got["row_count"] == 90000 and not got["truncated"]
    assert [r[1] for r in got["rows"] if r[0] == "n1"] == list(range(1, 30001))
    assert ctl.counter(collector, "pages") >= 90
    got = ctl.ask(collector, numbers, limit=10)
    assert got["row_count"] == 10 and got["truncated"]


@pytest.mark.parametrize("sql, status", [
    ("DELETE FROM calls", 403), ("SELECT nix FROM events", 400), ("SELECT 1; SELECT 2", 403),
    ("ATTACH '/tmp/x.db' AS x", 403), ("VACUUM INTO '/tmp/ltn-stolen.db'", 403)])
def test_nodes_only_read(shared, sql, status):
    collector, nodes = shared
    before = [n.events() for n in nodes]
    ctl.ask(collector, sql, status=status)
    assert [n.events() for n in nodes] == before


def test_endless_statement_is_ended_on_the_node(shared):
    collector, _ = shared
    endless = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c) SELECT count(*) FROM c"
    ctl.ask(collector, endless, timeout_ms=500, status=504)
    # Its thread is free again: no node is late now.
    got = ctl.ask(collector, GROUPED)
    assert got["nodes_answered"] == 3 and got["warnings"] == []


def test_one_killed_in_the_middle(procs, tmp_path):
    collector, nodes = fleet(procs, tmp_path)
    slow = "SELECT node, count(*) FROM events, (WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c " \
           "WHERE x < 3000000) SELECT sum(x) FROM c) GROUP BY node"
    results = []
    t = threading.Thread(target=lambda: results.append(ctl.ask(collector, slow, timeout_ms=20000)))
    t.start()
    harness.wait_until(lambda: collector.metric("lanterne_collector_queries_running") == 1, 10, "the question",
                       interval_s=0.005)
    nodes[1].process.kill()
    t.join()
    got = results[0]
    assert {r[0] for r in got["rows"]} == {"n0", "n2"}
    assert [(w["node"], w["kind"]) for w in got["warnings"]] == [("n1", "unreachable")]
    # Later questions say so too, as long as the fleet knows the node.
    got = ctl.ask(collector, GROUPED)
    assert {r[0] for r in got["rows"]} == {"n0", "n2"}
    assert [(w["node"], w["kind"]) for w in got["warnings"]] == [("n1", "unreachable")]


def test_clock_offset_and_a_new_collector(procs, tmp_path):
    collector, nodes = fleet(procs, tmp_path)
    def measured():
        got = {n["node"]: n for n in collector.get("/api/v1/nodes")["nodes"]}
        return len(got) == 3 and all(n["clock_offset_measured"] for n in got.values()) and got
    got = harness.wait_until(measured, 20, "the clocks")
    for n in got.values():
        # One machine, one clock.
        assert abs(n["clock_offset_ns"]) <= n["clock_offset_uncertainty_ns"] + 1_000_000
        assert n["clock_offset_uncertainty_ns"] < 1_000_000_000
    # The collector dies and comes back: the agents find it.
    collector.process.kill()
    collector.start()
    ctl.wait_streams(collector, 3, 30)
    assert ctl.ask(collector, GROUPED)["nodes_answered"] == 3
    for n in nodes:
        assert n.process.stop(40) == 0, n.process.log()
    ctl.wait_streams(collector, 0)
