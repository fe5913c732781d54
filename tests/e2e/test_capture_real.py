# SPDX-License-Identifier: Apache-2.0
"""Real libcudart and libnccl where this machine has them: all their functions of ops.def are there and get a probe, and
arguments are read from the right places of real code. No device is needed; with a driver the calls are not made."""

import glob
import json
import os
import re
import subprocess
import sys

import pytest

import capture_util as cap
import harness
from test_capture_ops import check_decoded, symbols

PLACES = ["/usr/local/cuda*/lib*", "/usr/local/cuda*/targets/*/lib", "/opt/cuda*/lib*", "/usr/lib/*-linux-gnu", "/usr/lib64",
          *[os.path.join(p, "nvidia", "*", "lib") for p in sys.path if p.endswith("-packages")]]
PLACES.append(os.path.join(harness.SOURCE_DIR, "build", "cudart-11", "usr", "lib", "*-linux-gnu"))   # scripts/fetch-cudart
if os.environ.get("CUDA_HOME"):
    PLACES += [os.environ["CUDA_HOME"] + tail for tail in ("/lib*", "/targets/*/lib")]
MAJORS = (11, 12, 13)
NONE = "no-real-library-on-this-machine"
# In which versions of the runtime a function is, where it is not in all since 11.
VERSIONS = {
    "cudaLaunchKernelExC": (11080, None), "cudaGraphInstantiateWithFlags": (11040, None),
    "cudaGraphInstantiateWithParams": (12000, None), "cudaStreamBeginCaptureToGraph": (12030, None),
    "cudaMemPrefetchAsync_v2": (12020, 13000), "cudaMemcpyBatchAsync": (12080, None),
    "cudaLaunchCooperativeKernelMultiDevice": (11000, 13000),
}


def real(pattern):
    """Real files by that name, each once; one that stands for none makes a test that says so."""
    found = {}
    for place in PLACES:
        for path in glob.glob(os.path.join(place, pattern)):
            at = os.path.realpath(path)
            with open(at, "rb") as f:
                if f.read(4) == b"\x7fELF" and "stubs" not in at:
                    found.setdefault(at, path)
    return sorted(found) or [f"{NONE}: {pattern}"]


def require(path):
    cap.require()
    if path.startswith(NONE):
        pytest.skip(path + " in " + ", ".join(PLACES) + "; CUDA_HOME may name another place")


def exported(path, table="--dyn-syms"):
    got = subprocess.run(["readelf", "-W", table, path], capture_output=True, text=True, check=True, timeout=30)
    return {m[1] for m in re.finditer(r" FUNC +\w+ +\w+ +\d+ (\w+)", got.stdout)}


def major_of(path):
    got = subprocess.run(["readelf", "-W", "-d", path], capture_output=True, text=True, check=True, timeout=30)
    return int(re.search(r"SONAME.*\[lib\w+[^\]]*\.so\.(\d+)", got.stdout)[1])


def version_of(path):
    """As in CUDART_VERSION. By the file's name where it says so, else by asking, which before 12 needs a driver: in a process of its
    own, for this one is traced, and would have the library mapped from then on."""
    named = re.search(r"\.so\.(\d+)\.(\d+)\.\d+$", os.path.realpath(path))
    if named:
        return int(named[1]) * 1000 + int(named[2]) * 10
    ask = "import ctypes, sys; n = ctypes.c_int(); assert ctypes.CDLL(sys.argv[1]).cudaRuntimeGetVersion(ctypes.byref(n)) == 0; print(n.value)"
    got = subprocess.run([sys.executable, "-c", ask, path], capture_output=True, text=True, check=True, timeout=30)
    return int(got.stdout)


def in_version(symbol, version):
    since, until = VERSIONS.get(re.sub("_pt[ds][sz]$", "", symbol), (0, None))
    return since <= version and (until is None or version < until)


def attached(procs, tmp_path, path, count):
    agent = cap.Agent(procs, tmp_path, "--record-all", libs=[path])
    agent.wait_window()
    assert agent.health()["attached_probes"] == count
    return agent


@pytest.mark.parametrize("path", [path for major in MAJORS for path in real(f"libcudart.so.{major}*")])
def test_runtime(procs, tmp_path, path):
    require(path)
    want = {s for s in symbols("cudart", major_of(path)) if in_version(s, version_of(path))}
    assert want - exported(path) == set()
    assert len(want) > 100
    agent = attached(procs, tmp_path, path, len(want))
    out, tally = str(tmp_path / "calls.jsonl"), str(tmp_path / "tally.json")
    p = procs.start(harness.program("capture_ops"), "refused", path, out, tally)
    code = p.wait(60)
    agent.stop()
    if code == 77:
        pytest.skip(f"{path}: functions and probes are right; calls are not made where there is a driver")
    assert code == 0, p.log()[-3000:]
    with open(out, encoding="utf-8") as f:
        lines = [json.loads(line) for line in f]
    assert {line["symbol"] for line in lines} == want
    check_decoded(agent, p.pid, lines)
    assert not any(agent.health()["drops"].values())


@pytest.mark.parametrize("path", real("libnccl.so.2*"))
def test_nccl(procs, tmp_path, path):
    require(path)
    have = symbols("nccl", 2) & exported(path)
    assert {"ncclAllReduce", "ncclCommInitRankConfig", "ncclCommSplit", "ncclGroupEnd"} <= have
    # It carries a runtime of its own with local functions, which stay without probes: their calls are not the program's.
    assert "cudaLaunchKernel" in exported(path, "--syms")
    attached(procs, tmp_path, path, len(have)).stop()
