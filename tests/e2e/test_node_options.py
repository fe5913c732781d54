# SPDX-License-Identifier: Apache-2.0
"""Options that make no sense are refused, or said to wait for something, instead of being taken in silence."""

import os
import subprocess

import pytest

import capture_util as cap
import harness


def agent(tmp_path, *options):
    # A command that is accepted would run on: it ends at the limit.
    return subprocess.run([harness.program("lanterne"), "agent", "--db", str(tmp_path / "a.db"), "--listen",
                           "off", "--duration", "1s", *options], capture_output=True, text=True,
                          check=False, timeout=30)


@pytest.mark.parametrize("options,says", [
    (["--pid", ","], "pid"),
    (["--cgroup", "../../.."], 'without'),
    (["--cgroup", "/a/../../b"], 'without'),
    (["--collector", "ftp://host"], "no http:// or https:// address"),
    (["--max-db", "1"], "--max-db must be 1m or more"),
    (["--no-record"], "--no-record is for trace"),
    (["--budget", "101"], "budget"),
    (["--ringbuf-size", "2048"], "ringbuf"),
    (["--ringbuf-size", "5000"], "power of two"),
    (["--sampling-rate", "-1"], "sampling"),
    (["--token-file", "/nonexistent/token"], "/nonexistent/token: "),
])
def test_refused(tmp_path, options, says):
    cap.require()
    got = agent(tmp_path, *options)
    assert got.returncode == 2 and says in got.stderr, got.stderr


def test_a_named_pipe_hangs_nothing(tmp_path):
    cap.require()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for option in "--token-file", "--config":
        got = agent(tmp_path, option, str(pipe))
        assert got.returncode == 2 and str(pipe) in got.stderr, got.stderr


def test_a_process_that_does_not_exist_is_waited_for(tmp_path):
    cap.require()
    got = agent(tmp_path, "--pid", "99999999")
    assert got.returncode == 0 and "there is no process 99999999" in got.stderr, got.stderr


def test_unknown_commands():
    def said(word):
        got = subprocess.run([harness.program("lanterne"), word], capture_output=True, text=True,
                             check=False, timeout=30)
        assert got.returncode == 2
        return got.stderr
    assert 'did you mean "agent"' in said("agnet")
    assert "did you mean" not in said("foo") and "--help" in said("foo")
