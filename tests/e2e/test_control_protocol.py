# SPDX-License-Identifier: Apache-2.0
"""The collector's side of the control stream, against grpcio: who attaches, clocks, questions, and what hostile
agents may not do."""

import json
import socket
import struct
import subprocess
import threading

import grpc
import h2.config
import h2.connection
import pytest

import collector_util as cu
import control_util as ctl
import harness

COUNTS = ["source", "n"]


@pytest.fixture
def collector(procs, tmp_path):
    return cu.Collector(procs, tmp_path).start()


@pytest.fixture
def attach(collector):
    """Makes agents; ends them."""
    agents = []

    def make(node, answer=None, **more):
        a = ctl.Agent(collector.port, node, answer, **more)
        agents.append(a)
        if more.get("hello", True) and answer is not None:
            a.wait("welcome")
        return a
    yield make
    for a in agents:
        a.close()


def ids(agent):
    return agent.wait("query").id


def test_rows_of_all_nodes_are_joined_and_named(collector, attach):
    attach("b", ctl.table(COUNTS, [["cuda", 2], ["nccl", None]]))
    attach("a", ctl.table(COUNTS, [["cuda", 1]]))
    got = ctl.ask(collector, "SELECT source, count(*) n FROM events GROUP BY source")
    assert got["columns"] == ["node", *COUNTS]
    assert got["rows"] == [["a", "cuda", 1], ["b", "cuda", 2], ["b", "nccl", None]]
    assert got["warnings"] == [] and got["nodes_answered"] == 2 and not got["truncated"]


def test_a_column_node_of_the_statement_stays(collector, attach):
    attach("a", ctl.table(["node", "n"], [["a", 1]]))
    got = ctl.ask(collector, "SELECT node, count(*) n FROM events GROUP BY node")
    assert got["columns"] == ["node", "n"] and got["rows"] == [["a", 1]]


def test_values_arrive_as_they_were(collector, attach):
    row = [-2**63, 2**63 - 1, 1.5, "Übung\n", b"\x00\xff", ""]
    attach("a", ctl.table(list("uvwxyz"), [row]))
    got = ctl.ask(collector, "SELECT 1")
    assert got["rows"] == [["a", -2**63, 2**63 - 1, 1.5, "Übung\n", "00ff", ""]]


def test_reduce_runs_over_the_joined_rows(collector, attach):
    attach("a", ctl.table(["ms", "ms"], [[1, 10], [2, 20]]))
    attach("b", ctl.table(["ms", "ms"], [[6, 30]]))
    got = ctl.ask(collector, "SELECT 1",
                  reduce="SELECT count(DISTINCT node) nodes, avg(ms) a, max(ms_2) m FROM fleet")
    assert got["columns"] == ["nodes", "a", "m"] and got["rows"] == [[2, 3.0, 30]]


@pytest.mark.parametrize("reduce, status", [
    ("DELETE FROM fleet", 403), ("SELECT nothing FROM fleet", 400),
    ("ATTACH 'x.db' AS x", 403), ("PRAGMA query_only=0", 403), ("SELECT 1; SELECT 2", 403)])
def test_reduce_only_reads(collector, attach, reduce, status):
    attach("a", ctl.table(["n"], [[1]]))
    assert "reduce" in ctl.ask(collector, "SELECT 1", reduce=reduce,
                               status=status)["error"]["message"]


def test_endless_reduce_is_ended(collector, attach):
    attach("a", ctl.table(["n"], [[1]]))
    endless = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c) SELECT count(*) FROM c"
    ctl.ask(collector, "SELECT 1", reduce=endless, timeout_ms=300, status=504)
    assert ctl.ask(collector, "SELECT 1")["row_count"] == 1


def test_limit_cuts_the_join(collector, attach):
    attach("a", ctl.table(["n"], [[i] for i in range(3)]))
    attach("b", ctl.table(["n"], [[i] for i in range(3)]))
    got = ctl.ask(collector, "SELECT 1", limit=4)
    assert got["row_count"] == 4 and got["truncated"]


def test_a_silent_node_is_a_warning_and_its_late_pages_are_dropped(collector, attach):
    slow = attach("slow", lambda a, q: None)
    attach("fast", ctl.table(["n"], [[1]]))
    got = ctl.ask(collector, "SELECT 1", timeout_ms=300)
    assert got["rows"] == [["fast", 1]]
    assert [(w["node"], w["kind"]) for w in got["warnings"]] == [("slow", "timeout")]
    assert slow.wait("query_cancel").id == ids(slow)
    slow.page(ids(slow), 0, ["n"], [[7]])
    slow.end(ids(slow))
    harness.wait_until(lambda: ctl.counter(collector, "pages_late") == 1, 5, "the late page")
    slow.answer = ctl.table(["n"], [[2]])
    assert ctl.ask(collector, "SELECT 1")["row_count"] == 2, "the stream still serves"


def test_a_node_lost_on_the_way_is_a_warning(collector, attach):
    def part_then_gone(agent, query):
        agent.page(query.id, 0, ["n"], [[1]])
        agent.close()
    attach("gone", part_then_gone)
    attach("here", ctl.table(["n"], [[1]]))
    got = ctl.ask(collector, "SELECT 1")
    assert got["rows"] == [["here", 1]], "half an answer is none"
    assert [(w["node"], w["kind"]) for w in got["warnings"]] == [("gone", "unreachable")]
    assert ctl.counter(collector, "queries_partial") == 1
    assert ctl.counter(collector, "node_lost") == 1


def test_named_nodes_only(collector, attach):
    for name in "abc":
        attach(name, ctl.table(["n"], [[1]]))
    got = ctl.ask(collector, "SELECT 1", nodes=["c", "x", "a", "a"])
    assert [r[0] for r in got["rows"]] == ["a", "c"]
    assert [(w["node"], w["kind"]) for w in got["warnings"]] == [("x", "unreachable")]
    assert "none of these" in ctl.ask(collector, "SELECT 1", nodes=["x"], status=503)["error"]["message"]


def test_the_same_error_everywhere_is_the_answer(collector, attach):
    for name in "ab":
        attach(name, lambda a, q: a.end(q.id, 3, "no such table: nix"))
    got = ctl.ask(collector, "SELECT * FROM nix", status=400)
    assert "no such table: nix" in got["error"]["message"]


def test_other_columns_than_the_rest_are_left_out(collector, attach):
    attach("a", ctl.table(["zzz"], [[1]]))
    for name in "bc":
        attach(name, ctl.table(["n"], [[1]]))
    got = ctl.ask(collector, "SELECT 1")
    assert [r[0] for r in got["rows"]] == ["b", "c"]
    assert [(w["node"], w["kind"]) for w in got["warnings"]] == [("a", "mismatch")]


@pytest.mark.parametrize("body", [
    {"sql": ""}, {"sql": 1}, {"sql": "SELECT 1", "nodes": []}, {"sql": "SELECT 1", "nodes": [1]},
    {"sql": "SELECT 1", "limit": 0}, {"sql": "SELECT 1", "limit": 10**7}, {"sql": "SELECT 1", "x": 1},
    {"sql": "SELECT 1", "timeout_ms": 10**8}])
def test_bad_questions(collector, attach, body):
    attach("a", ctl.table(["n"], [[1]]))
    assert ctl.ask(collector, **body, status=400)["error"]["message"]


def test_no_agent_no_answer(collector):
    assert "no agent" in ctl.ask(collector, "SELECT 1", status=503)["error"]["message"]


def test_questions_at_a_time_are_bounded(collector, attach):
    attach("a", lambda a, q: None)
    threads = [threading.Thread(target=ctl.ask, args=(collector, "SELECT 1"),
                                kwargs={"timeout_ms": 3000, "status": 504}) for _ in range(4)]
    for t in threads:
        t.start()
    harness.wait_until(lambda: collector.metric("lanterne_collector_queries_running") == 4, 5, "four questions")
    ctl.ask(collector, "SELECT 1", status=503)
    assert ctl.counter(collector, "queries_refused") == 1
    for t in threads:
        t.join()
    assert collector.metric("lanterne_collector_query_bytes") == 0


def test_clock_exchange_is_answered_and_shown(collector, attach):
    job = cu.Job(nodes=1)
    with collector.channel() as channel:
        for q in job.next_window().values():
            cu.export(channel, q.bytes())
    a = attach(job.nodes[0], ctl.table(["n"], [[1]]))
    ping = ctl.control().AgentMessage()
    ping.clock_ping.sequence = 7
    ping.clock_ping.t1_unix_nano = t1 = ctl.now_ns()
    ping.clock_ping.last_offset_ns = -50_000_000
    ping.clock_ping.last_round_trip_ns = 2_000_000
    a.send(ping)
    pong = a.wait("clock_pong")
    assert pong.sequence == 7 and pong.t1_unix_nano == t1
    assert t1 <= pong.t2_unix_nano <= pong.t3_unix_nano <= ctl.now_ns()
    node = collector.get("/api/v1/nodes")["nodes"][0]
    assert node["attached"] and node["clock_offset_measured"]
    assert node["clock_offset_ns"] == 50_000_000, "the node minus the collector"
    assert node["clock_offset_uncertainty_ns"] in (1_000_000, 1_000_001)
    skew = [w for w in ctl.ask(collector, "SELECT 1")["warnings"] if w["kind"] == "clock_skew"]
    assert "50.0 ms ahead" in skew[0]["message"]


def test_a_newer_stream_replaces_the_older(collector, attach):
    old = attach("a", ctl.table(["n"], [[1]]))
    attach("a", ctl.table(["n"], [[2]]))
    assert old.wait_end() == grpc.StatusCode.ABORTED
    assert ctl.ask(collector, "SELECT 1")["rows"] == [["a", 2]]


def test_verdicts_go_to_their_node(collector, attach):
    job = cu.Job(seed=3)
    victim = job.rank(3)
    agents = {n: attach(n, ctl.table(["n"], [[1]])) for n in job.nodes}
    for i in range(20):
        if i == 6:
            victim.slow, victim.part, victim.preemptor = 1.5, "run_queue", "logrotate"
        with collector.channel() as channel:
            for q in job.next_window().values():
                cu.export(channel, q.bytes())
    home = next(n for n, ranks in job.ranks.items() if victim in ranks)
    verdict = agents[home].wait("verdict")
    assert verdict.rank == 3 and verdict.state == 2 and verdict.effect > 0.2
    assert all(not a.got("verdict") for n, a in agents.items() if n != home)
    # Who comes later is told what is open.
    assert attach(home, ctl.table(["n"], [[1]])).wait("verdict").id == verdict.id


def test_shutdown_tells_the_agents(collector, attach):
    a = attach("a", ctl.table(["n"], [[1]]))
    collector.process.stop()
    a.wait("drain")
    assert a.wait_end() == grpc.StatusCode.UNAVAILABLE
    assert collector.process.returncode == 0


# ---- the command line's part ----

def command(collector, form, *words, token=""):
    """(exit code, stdout, stderr) of what `query --collector` runs."""
    got = subprocess.run([harness.program("control_query"), f"127.0.0.1:{collector.api_port}", token, form, *words],
                         capture_output=True, timeout=30, check=False)
    return got.returncode, got.stdout.decode(), got.stderr.decode()


def test_command_line_forms(collector, attach):
    attach("alpha", ctl.table(["op", "ms"], [["sync", 1.5], ['a,"b"', None]]))
    code, out, err = command(collector, "table", "SELECT 1")
    assert (code, err) == (0, "")
    assert [line.split() for line in out.splitlines()] == [
        ["node", "op", "ms"], ["alpha", "sync", "1.5"], ["alpha", 'a,"b"', "-"]]
    code, out, _ = command(collector, "csv", "SELECT 1")
    assert code == 0 and out == 'node,op,ms\r\nalpha,sync,1.5\r\nalpha,"a,""b""",\r\n'
    code, out, _ = command(collector, "json", "SELECT 1", "SELECT count(*) n FROM fleet")
    assert code == 0 and json.loads(out)["rows"] == [[2]]


def test_command_line_says_what_is_missing(collector, attach):
    code, _, err = command(collector, "table", "SELECT 1")
    assert code == 3 and "no agent" in err
    attach("a", ctl.table(["n"], [[1]]))
    attach("mute", lambda a, q: None)
    code, out, err = command(collector, "table", "SELECT 1")
    assert code == 1 and "mute: no answer within 0.5 s" in err and out.splitlines()[1].split() == ["a", "1"]
    code, _, err = command(collector, "table", "SELECT 1", "DROP TABLE fleet")
    assert code == 2 and "only statements that read" in err


# ---- hostile ----

def hostile(collector, attach, *messages):
    a = attach("evil", lambda a, q: None)
    for m in messages:
        a.send(m)
    assert a.wait_end() != grpc.StatusCode.OK
    assert collector.process.running()
    return a


def test_garbage_ends_the_stream(collector, attach):
    hostile(collector, attach, b"\xff" * 40)
    assert ctl.counter(collector, "malformed") == 1


def test_nothing_before_hello(collector, attach):
    a = attach("x", hello=False)
    a.page(1, 0, ["n"], [[1]])
    assert a.wait_end() == grpc.StatusCode.INVALID_ARGUMENT


def test_a_name_too_long(collector, attach):
    assert attach("n" * 5000).wait_end() == grpc.StatusCode.INVALID_ARGUMENT


def test_second_hello(collector, attach):
    m = ctl.control().AgentMessage()
    m.hello.node = "other"
    hostile(collector, attach, m)


def test_a_message_too_large(collector, attach):
    a = hostile(collector, attach, b"\x00" * (2 << 20))
    assert a.code == grpc.StatusCode.RESOURCE_EXHAUSTED


def test_pages_nobody_asked_for(collector, attach):
    a = attach("evil", lambda a, q: None)
    for i in range(3000):
        a.page(i, 0, ["n"], [[1]] * 10)
    assert a.wait_end() == grpc.StatusCode.INVALID_ARGUMENT
    assert ctl.counter(collector, "pages_unasked") > 200
    assert collector.metric("lanterne_collector_query_bytes") == 0


def test_a_flood_of_pings(collector, attach):
    m = ctl.control().AgentMessage()
    m.clock_ping.sequence = 1
    m.clock_ping.t1_unix_nano = 1
    hostile(collector, attach, *[m] * 2000)


@pytest.mark.parametrize("pages", [
    [(1, ["n"], [[1]])],                       # begins with the second
    [(0, [], [[1]])],                          # without columns
    [(0, ["n"], [[1, 2]])],                    # a cell too many
    [(0, ["n"], [[1]]), (2, [], [[1]])],       # one is missing
    [(0, ["n"], [[1]]), (1, ["n"], [[1]])],    # columns twice
    [(0, ["n"], [[1]]), (1, [], [])],          # an empty one
])
def test_pages_that_do_not_fit(collector, attach, pages):
    def answer(agent, query):
        for number, columns, rows in pages:
            agent.page(query.id, number, columns, rows)
        agent.end(query.id)
    attach("odd", answer)
    attach("good", ctl.table(["n"], [[1]]))
    got = ctl.ask(collector, "SELECT 1")
    assert [r[0] for r in got["rows"]] == ["good"]
    assert [(w["node"], w["kind"]) for w in got["warnings"]] == [("odd", "error")]


def test_an_endless_answer_is_cut_off(collector, attach):
    stop = threading.Event()

    def endless(agent, query):
        row = ["x" * 10000]
        agent.page(query.id, 0, ["t"], [row] * 50)
        threading.Thread(target=more, args=(agent, query.id, row), daemon=True).start()

    def more(agent, query_id, row):
        for number in range(1, 400):
            if stop.is_set() or agent.got("query_cancel"):
                return
            agent.page(query_id, number, [], [row] * 50)

    evil = attach("evil", endless)
    attach("good", ctl.table(["t"], [["fine"]]))
    got = ctl.ask(collector, "SELECT 1", reduce="SELECT node, count(*) n FROM fleet GROUP BY node")
    stop.set()
    assert got["truncated"] and ["good", 1] in got["rows"]
    assert [(w["node"], w["kind"]) for w in got["warnings"]] == [("evil", "truncated")]
    evil.wait("query_cancel")
    assert ctl.counter(collector, "rows_over_limit") == 1
    assert collector.metric("lanterne_collector_query_bytes") == 0


def test_who_takes_nothing_does_not_hold_up_others(collector, attach):
    """An agent that never opens its window."""
    s = socket.create_connection(("127.0.0.1", collector.port))
    c = h2.connection.H2Connection(config=h2.config.H2Configuration(client_side=True))
    c.local_settings.initial_window_size = 0
    c.initiate_connection()
    c.send_headers(1, [(":method", "POST"), (":scheme", "http"), (":authority", "x"), (":path", ctl.ATTACH),
                       ("te", "trailers"), ("content-type", "application/grpc")])
    hello = ctl.control().AgentMessage()
    hello.hello.node = "deaf"
    data = hello.SerializeToString()
    c.send_data(1, struct.pack(">BI", 0, len(data)) + data)
    s.sendall(c.data_to_send())
    attach("good", ctl.table(["n"], [[1]]))
    ctl.wait_streams(collector, 2)
    big = "SELECT 1 /* " + "x" * 60000 + " */"
    for _ in range(20):
        got = ctl.ask(collector, big, timeout_ms=200)
        assert got["rows"] == [["good", 1]]
        if got["warnings"][0]["kind"] == "unreachable":
            break
    harness.wait_until(lambda: ctl.counter(collector, "stuck") == 1, 10, "the end of the stuck stream")
    s.close()


def test_a_token_is_needed(procs, tmp_path):
    token = tmp_path / "token"
    token.write_text("secret\n")
    collector = cu.Collector(procs, tmp_path, "--token-file", str(token)).start()
    a = ctl.Agent(collector.port, "a")
    assert a.wait_end() == grpc.StatusCode.UNAUTHENTICATED
    b = ctl.Agent(collector.port, "b", ctl.table(["n"], [[1]]),
                  metadata=[("authorization", "Bearer secret")])
    b.wait("welcome")
    ctl.ask(collector, "SELECT 1", status=401)
    assert ctl.ask(collector, "SELECT 1", token="secret")["row_count"] == 1
    b.close()
