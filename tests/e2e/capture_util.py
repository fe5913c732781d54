# SPDX-License-Identifier: Apache-2.0
"""What the tests of the capture path share: the agent, simulated programs, the kernel's maps, the table of ops."""

import json
import os
import re
import shutil
import sqlite3
import subprocess
import time

import pytest

import harness

SIM_DIR = os.path.join(harness.BUILD_DIR, "simgpu")
SIM_LIBS = [os.path.join(SIM_DIR, n) for n in ("libcudart.so.12", "libcuda.so.1", "libnccl.so.2")]
LINK_KINDS = ("session", "multi", "perf")


def require():
    """Root, BTF, uprobes, bpftool, and programs that are built."""
    harness.require_btf()
    harness.require_command("bpftool")
    for name in ("lanterne", "simtrain", "simctl", "capture_target"):
        harness.program(name)


CALL_UNTIMED = 0x20  # flag of a record: no return probe
# The kernel that brought a kind of link, and with it the right answer.
LINKS_SINCE = {"session": (6, 13), "multi": (6, 6), "perf": (0, 0)}


def require_links(kind):
    release = tuple(int(n) for n in re.findall(r"\d+", os.uname().release)[:2])
    if release < LINKS_SINCE[kind]:
        pytest.skip(f"{kind} links need kernel {'.'.join(map(str, LINKS_SINCE[kind]))}")


def read_ops():
    """(ids by name, op name by exported symbol, names of ops by flag) as agent/probe/ops.def has them."""
    ids, by_symbol, names, flagged = {}, {}, {}, {}
    with open(os.path.join(harness.SOURCE_DIR, "agent", "probe", "ops.def"), encoding="utf-8") as f:
        text = f.read()
    for m in re.finditer(r'^LTN_(OP|SYMBOL|SYMBOL_ABI)\((\w+), (?:"(\w+)"|\w+, "(\w+)")', text, re.M):
        if m[1] == "OP":
            names[m[2]] = m[3]
            ids[m[3]] = len(ids) + 1
            for flag in re.findall(r"\w+", text[m.end():text.index(")", m.end())].split(",")[-1]):
                flagged.setdefault(flag, set()).add(m[3])
        else:
            by_symbol[m[4]] = names[m[2]]
    return ids, by_symbol, flagged


OP_IDS, OP_OF_SYMBOL, OPS_BY_FLAG = read_ops()
ENTRY_ONLY_OPS = OPS_BY_FLAG["ENTRY_ONLY"]
DETAIL_OPS = OPS_BY_FLAG["DETAIL"]  # not with perf links


def op_tally(*files, kind=None):
    """Calls by op, from tallies of exported symbols; of those that have probes with links of the kind."""
    sums = {}
    for path in files:
        with open(path, encoding="utf-8") as f:
            for symbol, count in json.load(f).items():
                if symbol in OP_OF_SYMBOL:
                    op = OP_OF_SYMBOL[symbol]
                    if kind != "perf" or op not in DETAIL_OPS:
                        sums[op] = sums.get(op, 0) + count
    return sums


def hist_decode(blob):
    """{bucket: count} of a histogram blob: version 1, then pairs of varints (step, count)."""
    if not blob:
        return {}
    assert blob[0] == 1
    numbers, value, shift = [], 0, 0
    for byte in blob[1:]:
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            numbers.append(value)
            value = shift = 0
    assert shift == 0 and len(numbers) % 2 == 0
    counts, index = {}, 0
    for step, count in zip(numbers[::2], numbers[1::2]):
        index += step
        counts[index] = count
    return counts


class Agent:
    """`lanterne agent` with a database of its own; by default it traces what this process starts, and turns
    nothing down however much that costs."""

    def __init__(self, procs, folder, *options, scope=("--pid", str(os.getpid())), libs=SIM_LIBS,
                 window="1s", attach=None, name="agent", budget="0"):
        self.db_path = os.path.join(str(folder), f"{name}.db")
        words = [harness.program("lanterne"), "agent", "--db", self.db_path, "--node", "n0",
                 "--window", window, "--budget", budget, *scope, *options]
        for lib in libs:
            words += ["--cuda-lib", lib]
        if attach:
            require_links(attach)
            words += ["--attach", attach]
        self.process = procs.start(*words)
        self.process.wait_log(r"tracing with (\w+) links", 30)

    @property
    def pid(self):
        return self.process.pid

    @property
    def link_kind(self):
        return self.process.wait_log(r"tracing with (\w+) links")[1]

    def stop(self):
        """SIGTERM; closing perf links takes 100 ms each."""
        assert self.process.stop(60) == 0, self.process.log()

    def rows(self, sql, *args):
        with sqlite3.connect(f"file:{self.db_path}?mode=ro", uri=True, timeout=10) as db:
            db.row_factory = sqlite3.Row
            return db.execute(sql, args).fetchall()

    def value(self, sql, *args):
        return self.rows(sql, *args)[0][0]

    def windows(self):
        return self.value("SELECT count(*) FROM windows")

    def wait_window(self, count=1, timeout_s=10):
        """Waits until that many more windows are in the database."""
        want = self.windows() + count
        harness.wait_until(lambda: self.windows() >= want, timeout_s, "the next window")

    def op_sums(self, pids=None):
        """{op: (calls, returns, bytes, histogram count)} over all windows."""
        sums = {}
        for r in self.rows("SELECT p.pid, o.name, w.* FROM op_windows w JOIN ops o ON o.id = w.op_id"
                           " JOIN procs p ON p.id = w.proc_id"):
            if pids is not None and r["pid"] not in pids:
                continue
            old = sums.get(r["name"], (0, 0, 0, 0))
            hist = sum(hist_decode(r["hist"]).values())
            sums[r["name"]] = (old[0] + r["calls"], old[1] + r["returns"], old[2] + r["bytes"],
                               old[3] + hist)
        return sums

    def health(self):
        h = dict(self.rows("SELECT * FROM agent_health ORDER BY window_id DESC LIMIT 1")[0])
        h["drops"] = json.loads(h["drops"])
        return h

    def map_ids(self):
        """{name: id} of the kernel maps that this agent holds."""
        ids = set()
        for fd in os.listdir(f"/proc/{self.pid}/fdinfo"):
            try:
                with open(f"/proc/{self.pid}/fdinfo/{fd}", encoding="ascii") as f:
                    m = re.search(r"^map_id:\s*(\d+)", f.read(), re.M)
            except FileNotFoundError:
                continue
            if m:
                ids.add(int(m[1]))
        return {m["name"]: m["id"] for i in ids for m in [bpftool("map", "show", "id", str(i))]}

    def map_dump(self, name, ids=None):
        """[(key, value)] of a map, as its BTF describes them."""
        rows = bpftool("map", "dump", "id", str((ids or self.map_ids())[name]))
        return [(r["formatted"]["key"], r["formatted"]["value"]) if "formatted" in r
                else (r["key"], r["value"]) for r in rows]


def bpftool(*words):
    got = subprocess.run(["bpftool", "-j", *words], capture_output=True, text=True, check=False,
                         timeout=30)
    assert got.returncode == 0, got.stdout + got.stderr
    return json.loads(got.stdout)


class Sim:
    """Simulated GPU programs that share one state folder. With own=True they have libraries that no other test's
    agent attaches to: what is attached to by somebody can be told from what is not."""

    def __init__(self, procs, folder, own=False):
        self.procs = procs
        self.dir = os.path.join(str(folder), "sim")
        os.makedirs(self.dir, exist_ok=True)
        self.lib_dir = os.path.join(self.dir, "lib") if own else SIM_DIR
        if own:
            shutil.copytree(SIM_DIR, self.lib_dir, dirs_exist_ok=True)
        self.env = {"SIMGPU_DIR": self.dir, "LD_LIBRARY_PATH": self.lib_dir}
        self.count = 0

    def train(self, *options, env=None, cpu=None):
        """simtrain; the process gets .report and .tally, the paths of its files."""
        self.count += 1
        report = os.path.join(self.dir, f"r{self.count}.json")
        tally = os.path.join(self.dir, f"t{self.count}.json")
        words = ["taskset", "-c", str(cpu)] if cpu is not None else []
        p = self.procs.start(*words, harness.program("simtrain"), *options, "--report", report,
                             "--tally", tally, env={**self.env, **(env or {})})
        p.report, p.tally = report, tally
        return p

    def target(self, *words, env=None):
        return self.procs.start(harness.program("capture_target"), *words,
                                env={**self.env, **(env or {})})

    def job(self, ranks, *options, env=None):
        """The ranks of one job."""
        port = str(harness.free_port())
        return [self.train(*options, env={
            "RANK": str(r), "WORLD_SIZE": str(ranks), "LOCAL_RANK": str(r), "MASTER_PORT": port,
            "MASTER_ADDR": "127.0.0.1", "LOCAL_WORLD_SIZE": str(ranks), **(env or {})})
            for r in range(ranks)]

    def ctl(self, *words):
        subprocess.run([harness.program("simctl"), "--dir", self.dir, *words], check=True,
                       timeout=10, capture_output=True)


def finish(processes, timeout_s=60, code=0):
    for p in processes:
        assert p.wait(timeout_s) == code, f"{p}: {p.log()[-2000:]}"


def report(p):
    with open(p.report, encoding="utf-8") as f:
        return json.load(f)


def mean(values, weights):
    total = sum(weights)
    return sum(v * w for v, w in zip(values, weights)) / total


def monotonic_ns():
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


def stolen_ms():
    """Time that the hypervisor gave to others so far: on the CPU by the clock, but not by schedstat."""
    with open("/proc/stat", encoding="ascii") as f:
        return int(f.readline().split()[8]) * 1000 / os.sysconf("SC_CLK_TCK")
