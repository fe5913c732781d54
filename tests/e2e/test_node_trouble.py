# SPDX-License-Identifier: Apache-2.0
"""An agent that cannot push or cannot record says so once, with what to do, and says when it works again."""

import os
import signal
import subprocess
import time

import capture_util as cap
import harness


def collector(procs, tmp_path, port, *options):
    p = procs.start(harness.program("lanterne-collector"), "--otlp-listen", f"127.0.0.1:{port}",
                    "--api-listen", f"127.0.0.1:{harness.free_port()}", "--db", tmp_path / "c.db",
                    "--window", "1s", *options)
    p.wait_port(port)
    return p


def test_a_collector_that_comes_back(procs, tmp_path):
    cap.require()
    port = harness.free_port()
    agent = cap.Agent(procs, tmp_path, "--listen", "off", "--collector", f"http://127.0.0.1:{port}")
    agent.process.wait_log(r"warn.*cannot push to the collector: .*refused.*--collector", 20)
    collector(procs, tmp_path, port)
    agent.process.wait_log(r"info.*pushing to the collector works again after \d+ s", 60)
    assert agent.process.log().count("cannot push") == 1
    agent.stop()


def test_a_wrong_token(procs, tmp_path):
    cap.require()
    port = harness.free_port()
    right, wrong = tmp_path / "right", tmp_path / "wrong"
    right.write_text("right-token-of-some-length\n")
    wrong.write_text("wrong-token-of-some-length\n")
    collector(procs, tmp_path, port, "--token-file", right)
    agent = cap.Agent(procs, tmp_path, "--listen", "off", "--collector", f"http://127.0.0.1:{port}",
                      "--token-file", wrong)
    agent.process.wait_log(r"cannot push to the collector: .*--token-file", 20)
    agent.stop()


def test_an_unknown_host(procs, tmp_path):
    cap.require()
    agent = cap.Agent(procs, tmp_path, "--listen", "off", "--collector", "http://collector.invalid:4317")
    agent.process.wait_log(r"cannot push to the collector: .*collector\.invalid.*DNS", 40)
    agent.process.kill()


def test_a_stopped_collector_does_not_hold_up_the_end(procs, tmp_path):
    cap.require()
    port = harness.free_port()
    other = collector(procs, tmp_path, port)
    agent = cap.Agent(procs, tmp_path, "--listen", "off", "--collector", f"http://127.0.0.1:{port}")
    agent.wait_window(2)
    os.kill(other.pid, signal.SIGSTOP)
    try:
        agent.wait_window(2)
        began = time.monotonic()
        assert agent.process.stop(40) == 0
        assert time.monotonic() - began < 8
    finally:
        os.kill(other.pid, signal.SIGCONT)


def test_a_full_disk(procs, tmp_path):
    cap.require()
    folder = tmp_path / "small"
    folder.mkdir()
    harness.require_command("mount")
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "none", folder], check=False).returncode:
        harness.pytest.skip("needs the right to mount")
    try:
        agent = cap.Agent(procs, folder, "--listen", "off")
        agent.wait_window()
        with open(folder / "fill", "wb", buffering=0) as f:
            try:
                while True:
                    f.write(b"x" * 4096)
            except OSError:
                pass
        sim = cap.Sim(procs, tmp_path)
        sim.train("--mode", "sleep", "--steps", "5000", "--mode-ms", "5")
        agent.process.wait_log(r"warn.*cannot write to the database: ", 60)
        os.unlink(folder / "fill")
        agent.process.wait_log(r"info.*writing to the database works again", 60)
        agent.process.kill()
    finally:
        subprocess.run(["umount", "-l", folder], check=True)
