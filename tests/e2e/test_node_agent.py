# SPDX-License-Identifier: Apache-2.0
"""The local API beside a running agent, on real probes; statements that run for long disturb nothing."""

import http.client
import json
import subprocess
import threading

import capture_util as cap
import harness

ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c) SELECT max(x) FROM c"


def post(port, sql, timeout_ms=5000):
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    c.request("POST", "/api/v1/query", body=json.dumps({"sql": sql, "timeout_ms": timeout_ms}),
              headers={"Content-Type": "application/json"})
    r = c.getresponse()
    return r.status, json.loads(r.read())


def api_port(agent):
    return int(agent.process.wait_log(r"local API on \S+ port (\d+)")[1])


def test_the_api_of_a_running_agent(procs, tmp_path):
    cap.require()
    agent = cap.Agent(procs, tmp_path, "--listen", "127.0.0.1:0")
    port = api_port(agent)
    sim = cap.Sim(procs, tmp_path)
    stop = threading.Event()

    def pester():
        while not stop.is_set():
            post(port, ENDLESS, 300)
    threads = [threading.Thread(target=pester) for _ in range(4)]
    for t in threads:
        t.start()
    p = sim.train("--mode", "sleep", "--steps", "40", "--mode-ms", "20")
    cap.finish([p])
    agent.wait_window(2)
    stop.set()
    for t in threads:
        t.join()
    status, answer = post(port, f"SELECT count(*) FROM events WHERE pid = {p.pid} AND op = "
                                "'cudaStreamSynchronize'")
    assert (status, answer["node"]) == (200, "n0")
    assert answer["rows"] == [[40]]
    ops = harness.http_get_json(f"http://127.0.0.1:{port}/api/v1/ops?since=5m")["ops"]
    sync = next(o for o in ops if o["op"] == "cudaStreamSynchronize")
    assert sync["count"] == 40 and 20e6 <= sync["p50_ns"] < 25e6
    overview = harness.http_get_json(f"http://127.0.0.1:{port}/api/v1/overview")
    assert overview["agent"]["windows_dropped"] == 0 and overview["agent"]["records_dropped"] == 0
    got = subprocess.run([harness.program("lanterne"), "query", "--nodes", f"127.0.0.1:{port}",
                          "--json", "SELECT node, source, count(*) FROM events GROUP BY node, source"],
                         capture_output=True, text=True, check=True, timeout=30)
    assert ["n0", "cuda"] in [r[:2] for r in json.loads(got.stdout)["rows"]]
    agent.stop()


def test_where_the_api_listens(procs, tmp_path):
    cap.require()
    first = cap.Agent(procs, tmp_path, "--listen", "127.0.0.1:0", name="a")
    port = api_port(first)
    # A second agent that cannot have the address goes on without an API.
    second = cap.Agent(procs, tmp_path, "--listen", f"127.0.0.1:{port}", name="b")
    second.process.wait_log(r"no local API")
    second.wait_window()
    second.stop()
    off = cap.Agent(procs, tmp_path, "--listen", "off", name="c")
    off.wait_window()
    assert "local API" not in off.process.log()
    off.stop()
    first.stop()
    # Beyond loopback without a token it does not start at all.
    got = subprocess.run([harness.program("lanterne"), "agent", "--db", str(tmp_path / "d.db"),
                          "--listen", "0.0.0.0:0"], capture_output=True, text=True, check=False,
                         timeout=30)
    assert got.returncode == 2 and "--api-token-file" in got.stderr
