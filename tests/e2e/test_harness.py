# SPDX-License-Identifier: Apache-2.0
"""The harness itself: a test that waits for ever, or leaves a process behind, is worse than none."""

import os
import subprocess
import sys
import time

import pytest

import harness

HERE = os.path.dirname(__file__)


def alive(pid):
    """Whether the process runs; a zombie does not."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as f:
            return f.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_log_is_captured_and_waited_for(procs):
    p = procs.start("bash", "-c", "echo port=4317; echo to-stderr >&2; exec sleep 60")
    assert p.wait_log(r"^port=(\d+)$").group(1) == "4317"
    p.wait_log("to-stderr")
    assert p.stop() == -15


def test_waiting_fails_at_once_when_the_process_ends(procs):
    p = procs.start("bash", "-c", "echo dying; exit 5")
    started = time.monotonic()
    with pytest.raises(AssertionError, match="ended with 5.*(?s:.)*dying"):
        p.wait_log("never", timeout_s=60)
    assert time.monotonic() - started < 30
    with pytest.raises(AssertionError, match="ended with 5"):
        p.wait_port(harness.free_port(), timeout_s=60)


def test_waits_have_limits(procs):
    p = procs.start("sleep", "60")
    with pytest.raises(harness.WaitTimeout, match="not within 0.1 s"):
        p.wait_log("never", timeout_s=0.1)
    with pytest.raises(harness.WaitTimeout, match="still runs"):
        p.wait(timeout_s=0.1)


def test_one_that_ignores_sigterm_is_reported_and_killed(procs):
    p = procs.start("bash", "-c", "trap '' TERM; echo ready; while :; do read -t 1 < <(:); done")
    p.wait_log("ready")
    with pytest.raises(harness.WaitTimeout):
        p.stop(timeout_s=0.2)
    procs.kill_all()
    assert not p.running()


def test_grandchildren_are_killed_too(procs):
    p = procs.start("bash", "-c", "sleep 61 & echo child=$!; wait")
    child = int(p.wait_log(r"child=(\d+)").group(1))
    assert alive(child)
    procs.kill_all()
    harness.wait_until(lambda: not alive(child), 5, "end of the grandchild")


def test_port_helpers(procs):
    port = harness.free_port()
    assert not harness.port_open(port)
    p = procs.start(sys.executable, "-m", "http.server", port, "--bind", "127.0.0.1",
                    cwd=procs.folder)
    p.wait_port(port)
    status, _, body = harness.http_get(f"http://127.0.0.1:{port}/")
    assert status == 200 and b"http.server" in body or b"-python" in body
    assert harness.http_get(f"http://127.0.0.1:{port}/none")[0] == 404


@pytest.mark.parametrize("body,code,line", [
    ("def test_a():\n    harness.pytest.skip('no kernel')\n", 77, "SKIP: test_a: no kernel"),
    ("def test_a():\n    harness.pytest.skip('no x')\ndef test_b():\n    pass\n", 0,
     "SKIP: test_a: no x"),
    ("def test_a():\n    assert 0\n", 1, ""),
    ("", 5, ""),
], ids=["all-skipped", "one-skipped", "failed", "empty"])
def test_exit_codes_and_skip_lines(tmp_path, body, code, line):
    (tmp_path / "conftest.py").write_text(
        f"import sys\nsys.path.insert(0, {HERE!r})\n" + open(f"{HERE}/conftest.py",
                                                            encoding="utf-8").read())
    (tmp_path / "test_inner.py").write_text("import harness\n" + body)
    got = subprocess.run([sys.executable, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider",
                          str(tmp_path)], capture_output=True, text=True, check=False, timeout=60)
    assert got.returncode == code, got.stdout + got.stderr
    assert line in got.stdout.splitlines() or not line
