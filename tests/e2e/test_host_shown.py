# SPDX-License-Identifier: Apache-2.0
"""What the host does, where people look: the live table, and the collector's metrics."""

import re

import capture_util as cap
import collector_util as cu
import harness
import host_util as host

LOAD = """
import subprocess
end = time.monotonic() + float(sys.argv[3])
while time.monotonic() < end:
    for i in range(20):
        try:
            os.open("/nonexistent/model.bin", os.O_RDONLY)
        except OSError:
            pass
    a, b = socket.socketpair()
    a.send(b"x" * 1000)
    b.recv(1000)
    fd = os.open(sys.argv[2] + ".data", os.O_WRONLY | os.O_CREAT)
    os.write(fd, b"y" * 8192)
    os.fsync(fd)
    os.close(fd)
    subprocess.run(["/bin/true"], check=True)
    time.sleep(0.02)
"""


def test_trace_shows_the_host(procs, tmp_path):
    host.require()
    sim = cap.Sim(procs, tmp_path)
    words = []
    for lib in cap.SIM_LIBS:
        words += ["--cuda-lib", lib]
    trace = procs.start(harness.program("lanterne"), "trace", "--db", tmp_path / "t.db", "--window", "1s", host.FILES, *words)
    trace.wait_log("tracing with", 30)
    load = host.Load(sim, tmp_path, LOAD, words=(4,))
    load.go()
    trace.wait_log(r"^Host context$", 20)
    trace.wait_log(r"open /nonexistent/model.bin +\d+ failed", 20)
    trace.wait_log(r"^python3 +\w+ +write +\d+ x ", 20)
    trace.wait_log(r"[1-9]\d* forks, [1-9]\d* execs, [1-9]\d* exits, 0 OOM kills", 20)
    load.finish()
    assert trace.stop() == 0
    text = trace.log()
    assert "System context" in text and re.search(rf"{load.pid} python3 +memory .* opens \d+ \(\d+ failed\)", text)


def test_the_collector_has_metrics_without_paths_and_peers(procs, tmp_path):
    host.require()
    collector = cu.Collector(procs, tmp_path).start()
    sim = cap.Sim(procs, tmp_path)
    agent = cap.Agent(procs, tmp_path, host.FILES, "--collector", f"http://127.0.0.1:{collector.port}")
    load = host.Load(sim, tmp_path, LOAD, words=(3,))
    load.finish()
    agent.wait_window(2)

    def value(name, **labels):
        return harness.wait_until(lambda: collector.metric(name, node="n0", **labels), 20, name)
    assert value("lanterne_traced_file_opens_total", lanterne_outcome="missing") >= 20
    assert value("lanterne_traced_network_io_bytes_total", network_io_direction="transmit") >= 1000
    assert value("lanterne_traced_process_events_total", lanterne_event="exec") >= 1
    assert value("system_disk_io_bytes_total", disk_io_direction="write") >= 8192
    assert value("system_memory_limit_bytes") > 1 << 20
    assert 0 <= value("system_memory_utilization_ratio", system_memory_state="used") <= 1
    agent.stop()
    # The node's sums are those of its record.
    missing = host.total(agent, "opens_missing", "process_host", "1")
    harness.wait_until(lambda: collector.metric("lanterne_traced_file_opens_total", lanterne_outcome="missing") == missing,
                       20, "the last window")
    _, _, body = harness.http_get(collector.url("/metrics"))
    lines = [x for x in body.decode().splitlines() if x.startswith(("lanterne_traced", "system_", "lanterne_system"))]
    assert len(lines) > 10
    for line in lines:
        assert "nonexistent" not in line and "pid" not in line and "127.0.0.1" not in line, line
