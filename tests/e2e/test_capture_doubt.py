# SPDX-License-Identifier: Apache-2.0
"""Arguments that cannot be: the agent says that it reads a library wrongly, and does not count what it read."""

import json
import os
import subprocess
import sys

import capture_util as cap
import harness

LIB = os.path.join(harness.BIN_DIR, "libcapture_future.so")
COPIES, ASYNC, MALLOCS, INITS = 11, 7, 5, 3
PROGRAM = """
import ctypes, sys
lib = ctypes.CDLL(sys.argv[1])
v, n = ctypes.c_void_p, ctypes.c_size_t
at = 0x7f1234567000
for i in range(%d):
    assert lib.cudaMemcpy(n(4099), 1, v(at), v(at + 4096)) == 0
for i in range(%d):
    assert lib.cudaMemcpyAsync(v(at), v(at + 4096), n(4099), v(at + 8192), v(0)) == 0
for i in range(%d):
    assert lib.cudaMalloc(v(at), n(1 << 60)) == 2
class Id(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * 128)]
for i in range(%d):
    assert lib.ncclCommInitRank(v(at), 2, Id(), 9) == 0
""" % (COPIES, ASYNC, MALLOCS, INITS)


def findings(db):
    got = subprocess.run([harness.program("lanterne"), "check", "--json", "--db", db],
                         capture_output=True, text=True, check=False, timeout=60)
    return {f["name"]: f for f in json.loads(got.stdout)["findings"]}


def test_arguments_that_cannot_be(procs, tmp_path):
    cap.require()
    agent = cap.Agent(procs, tmp_path, "--record-all", libs=[LIB])
    p = procs.start(sys.executable, "-c", PROGRAM, LIB)
    assert p.wait(30) == 0, p.log()
    said = agent.process.wait_log(r"(\d+) more calls succeeded with arguments that cannot be, most of (\w+)", 20)
    assert said.groups() == (str(COPIES + ASYNC + INITS), "cudaMemcpy")
    agent.stop()
    h = agent.health()
    assert h["drops"]["impossible"] == COPIES + ASYNC + INITS
    sums = agent.op_sums({p.pid})
    assert sums["cudaMemcpy"][:3] == (COPIES, COPIES, 0)  # counted, without bytes
    assert sums["cudaMemcpyAsync"][:3] == (ASYNC, ASYNC, 0)
    assert sums["cudaMalloc"][:3] == (MALLOCS, MALLOCS, 0)
    # What a program asked for and did not get is its own matter, and the record says what it was.
    assert {r[0] for r in agent.rows("SELECT c.bytes FROM calls c JOIN ops o ON o.id = c.op_id"
                                     " WHERE o.name = 'cudaMalloc' AND c.result = 2")} == {1 << 60}
    found = findings(agent.db_path)["arguments"]
    assert found["level"] == "warn" and "another way" in found["advice"]
    assert f" {COPIES + ASYNC + INITS} read as what they cannot be" in found["value"]


def test_no_doubt_without_a_reason(procs, tmp_path):
    cap.require()
    agent = cap.Agent(procs, tmp_path)
    sim = cap.Sim(procs, tmp_path)
    cap.finish([sim.train("--churn", "--steps", "200")])
    agent.stop()
    found = findings(agent.db_path)["arguments"]
    assert (found["level"], found["advice"]) == ("ok", "")
    assert " 0 read as what they cannot be, 0 not readable" in found["value"]
