# SPDX-License-Identifier: Apache-2.0
"""Loads on the host with known truth, by a process that makes one traced call first, or none."""

import json
import os

import capture_util as cap
import harness

# Runs before the load: the call that makes the process a traced one, then the go of the test.
PREAMBLE = """
import ctypes, fcntl, json, mmap, os, socket, sys, threading, time
def emit(**words):
    sys.stdout.write(json.dumps(words) + "\\n")
    sys.stdout.flush()
def call():
    lib = ctypes.CDLL("libcudart.so.12")
    p = ctypes.c_void_p()
    assert lib.cudaMalloc(ctypes.byref(p), ctypes.c_size_t(4096)) == 0
if sys.argv[1] == "traced":
    call()
emit(ready=1)
while not os.path.exists(sys.argv[2]):
    time.sleep(0.01)
"""
# And after it: stays until it is ended, so that the last window finds it alive.
POSTAMBLE = """
emit(done=1)
while True:
    time.sleep(1)
"""


class Load:
    """A Python program; `traced` says whether it makes a CUDA call before it waits for go()."""

    def __init__(self, sim, folder, script, traced=True, name="load", netns=None, words=(), prefix=()):
        self.go_path = os.path.join(str(folder), f"{name}.go")
        command = [*prefix, "/usr/bin/python3", "-B", "-c", PREAMBLE + script + POSTAMBLE,
                   "traced" if traced else "plain", self.go_path, *[str(w) for w in words]]
        self.process = sim.procs.start(*command, env={**sim.env, "SIMGPU_CTX_MS": "0"}, netns=netns)
        self.process.wait_log(r'"ready"', 30)

    @property
    def pid(self):
        return self.process.pid

    def go(self):
        with open(self.go_path, "w", encoding="ascii"):
            pass

    def finish(self, timeout_s=60):
        """Waits until the load is done; returns what the script emitted."""
        self.go()
        self.process.wait_log(r'"done"', timeout_s)
        truth = {}
        for line in self.process.log().splitlines():
            if line.startswith("{"):
                truth.update(json.loads(line))
        return truth


# Files are watched in any case: not every kernel has the way that costs nobody else anything.
FILES = "--files-by-syscall"


def two_loads(sim, folder, script, words=()):
    """The same load by a traced process and, as a negative, by one that is not."""
    return (Load(sim, folder, script, True, "traced", words=words),
            Load(sim, folder, script, False, "plain", words=words))


def total(agent, column, view, where, *args):
    return agent.value(f"SELECT coalesce(sum({column}), 0) FROM {view} WHERE {where}", *args)


def require():
    cap.require()
    harness.require_root()


def sums_now(agent, pid):
    """What the kernel has counted for a process so far: its first call opened files of its own."""
    for key, value in agent.map_dump("host_processes"):
        if key == pid:
            return value
    raise AssertionError(f"{pid} is not watched")
