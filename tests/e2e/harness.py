# SPDX-License-Identifier: Apache-2.0
"""Processes with captured logs, waits with limits, ports that are free, and what a machine must have."""

import ctypes
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest

SOURCE_DIR = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", ".."))
BUILD_DIR = os.environ.get("LTN_BUILD_DIR", os.path.join(SOURCE_DIR, "build", "dev"))
BIN_DIR = os.environ.get("LTN_BIN_DIR", os.path.join(BUILD_DIR, "bin"))

PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


class WaitTimeout(AssertionError):
    """A condition did not come true in time."""


def wait_until(condition, timeout_s=10.0, what="condition", interval_s=0.02):
    """Calls condition until it returns something true, and returns that."""
    deadline = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() >= deadline:
            raise WaitTimeout(f"{what}: not within {timeout_s:g} s")
        time.sleep(interval_s)


def free_port(host="127.0.0.1"):
    """A TCP port that nobody listens on now."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as s:
        s.bind((host, 0))
        return s.getsockname()[1]


def port_open(port, host="127.0.0.1"):
    try:
        with socket.create_connection((host, port), timeout=1):
            return True
    except OSError:
        return False


def program(name):
    """Path of a program of this build."""
    path = os.path.join(BIN_DIR, name)
    assert os.access(path, os.X_OK), f"{name} is not built in {BIN_DIR}"
    return path


def http_get(url, timeout_s=5.0, headers=None):
    """(status, headers, body bytes); an error status is a result, not an exception."""
    request = urllib.request.Request(url, headers=headers or {})
    try:
        with urllib.request.urlopen(request, timeout=timeout_s) as r:
            return r.status, dict(r.headers), r.read()
    except urllib.error.HTTPError as e:
        with e:
            return e.code, dict(e.headers), e.read()


def http_get_json(url, timeout_s=5.0):
    status, _, body = http_get(url, timeout_s)
    assert status == 200, f"{url}: {status} {body[:200]!r}"
    return json.loads(body)


class Process:
    """A child in its own session whose output goes to a file. It dies with the test."""

    def __init__(self, command, log_path, env=None, cwd=None, vfork=False):
        self.command = [str(c) for c in command]
        self.log_path = log_path
        before = ["setpriv", "--pdeathsig", "KILL"] if vfork else []
        death = None if vfork else lambda: _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        with open(log_path, "ab") as log:
            self._p = subprocess.Popen(
                before + self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                cwd=cwd, env={**os.environ, **(env or {})}, start_new_session=True, preexec_fn=death)

    @property
    def pid(self):
        return self._p.pid

    @property
    def returncode(self):
        return self._p.poll()

    def running(self):
        return self._p.poll() is None

    def log(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as f:
            return f.read()

    def wait_log(self, pattern, timeout_s=10.0):
        """Waits for a line that matches and returns the match; fails at once when the process ends."""
        def look():
            m = re.search(pattern, self.log(), re.M)
            if not m and not self.running():
                m = re.search(pattern, self.log(), re.M)
                if not m:
                    raise AssertionError(f"{self} ended with {self.returncode} before it said "
                                         f"{pattern!r}:\n{self.log()[-4000:]}")
            return m
        return wait_until(look, timeout_s, f"{self}: log line {pattern!r}")

    def wait_port(self, port, host="127.0.0.1", timeout_s=10.0):
        def look():
            if not self.running():
                raise AssertionError(f"{self} ended with {self.returncode}:\n{self.log()[-4000:]}")
            return port_open(port, host)
        wait_until(look, timeout_s, f"{self}: port {port}")

    def wait(self, timeout_s=10.0):
        """Waits for the end and returns the exit code (negative: signal)."""
        try:
            return self._p.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise WaitTimeout(f"{self} still runs after {timeout_s:g} s") from None

    def send(self, sig):
        if self.running():
            os.kill(self.pid, sig)

    def stop(self, timeout_s=10.0):
        """SIGTERM, then the exit code; fails when the process does not obey."""
        self.send(signal.SIGTERM)
        return self.wait(timeout_s)

    def kill(self):
        """SIGKILL to the whole session; never fails."""
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
        self._p.wait()

    def __str__(self):
        return os.path.basename(self.command[0]) + f"[{self.pid}]"


class Processes:
    """Starts processes with numbered logs in one folder and ends what is left of them. Where gRPC is loaded without
    the handlers that libraries have around fork: its own wait for its threads to be idle, for ever when calls are
    at work, or abort."""

    def __init__(self, folder):
        self.folder = folder
        self.all = []

    def start(self, *command, env=None, cwd=None, netns=None):
        if netns:
            command = ("ip", "netns", "exec", netns, *command)
        name = f"{len(self.all):02d}-{os.path.basename(str(command[0]))}.log"
        p = Process(command, os.path.join(self.folder, name), env, cwd, vfork="grpc" in sys.modules)
        self.all.append(p)
        return p

    def kill_all(self):
        for p in reversed(self.all):
            p.kill()

    def logs(self, last=4000):
        return "".join(f"--- {p}, exit code {p.returncode}\n{p.log()[-last:]}\n" for p in self.all)


# --- what a machine must have ---------------------------------------------------------------------

def require_root():
    if os.geteuid() != 0:
        pytest.skip("needs root")


def require_command(name):
    if shutil.which(name) is None:
        pytest.skip(f"needs the command {name}")


def require_btf():
    """Kernel with BTF and uprobes, and the right to use them."""
    require_root()
    if not os.path.exists("/sys/kernel/btf/vmlinux"):
        pytest.skip("needs a kernel with BTF (CONFIG_DEBUG_INFO_BTF)")
    if not os.path.exists("/sys/bus/event_source/devices/uprobe/type"):
        pytest.skip("needs a kernel with uprobes (CONFIG_UPROBE_EVENTS)")


def require_netns():
    """Network namespaces that can be made."""
    require_root()
    require_command("ip")
    name = f"ltnt-{os.getpid()}"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode:
        pytest.skip("needs network namespaces (ip netns add)")
    subprocess.run(["ip", "netns", "del", name], check=True)
