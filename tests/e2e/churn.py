# SPDX-License-Identifier: Apache-2.0
"""Processes that start, call and exit without end, and what the agent holds of them meanwhile."""

import os
import random
import re
import shutil

import capture_util as cap
import harness

# Not scope_tgids: the programs that look at the maps are in scope themselves, and it takes a scan to forget them.
PER_PROCESS_MAPS = ("op_stats", "threads", "comms", "processes", "in_flight", "graphs")
QUICK = {"SIMGPU_CTX_MS": "0"}


def rss_kib(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        return int(next(line for line in f if line.startswith("VmRSS")).split()[1])


def links(pid):
    """Links of kernel programs that the process holds."""
    count = 0
    for fd in os.listdir(f"/proc/{pid}/fdinfo"):
        try:
            with open(f"/proc/{pid}/fdinfo/{fd}", encoding="ascii") as f:
                count += re.search(r"^link_id:", f.read(), re.M) is not None
        except FileNotFoundError:
            continue
    return count


def held(agent):
    """What the agent holds now."""
    ids = agent.map_ids()
    return {"fds": len(os.listdir(f"/proc/{agent.pid}/fd")), "links": links(agent.pid),
            "rss_kib": rss_kib(agent.pid),
            "entries": sum(len(agent.map_dump(name, ids)) for name in PER_PROCESS_MAPS)}


class Churn:
    """Waves of a few processes: some end by themselves, some are killed in the middle of their calls, some use
    a copy of the libraries that nobody had before and that is deleted afterwards."""

    def __init__(self, procs, folder, seed=1):
        self.procs = procs
        self.sim = cap.Sim(procs, folder, own=True)
        self.folder = str(folder)
        self.random = random.Random(seed)
        self.started = 0
        self.copies = 0
        self.exact = []  # those that ended by themselves

    def _train(self, *options, env=None):
        self.started += 1
        return self.sim.train("--storm", "--kernel-us", "0", *options, env={**QUICK, **(env or {})})

    def wave(self, copies=False):
        ends = [self._train("--steps", "10") for _ in range(3)]
        killed = self._train("--seconds", "60")
        folder = None
        if copies:
            self.copies += 1
            folder = os.path.join(self.folder, f"copy{self.copies}")
            shutil.copytree(cap.SIM_DIR, folder)
            self.started += 1
            ends.append(self.procs.start(harness.program("capture_late"), self._late_folder(),
                                         "10", os.path.join(folder, "libcudart.so.12"),
                                         env={**self.sim.env, **QUICK, "LD_LIBRARY_PATH": folder}))
        cap.finish(ends)
        killed.kill()
        self.exact += ends[:3]
        if folder:
            shutil.rmtree(folder)
        self._forget([*ends, killed])

    def _late_folder(self):
        """A folder in which capture_late need not wait."""
        folder = os.path.join(self.folder, "late")
        os.makedirs(folder, exist_ok=True)
        for name in ("map", "call"):
            with open(os.path.join(folder, name), "w", encoding="ascii"):
                pass
        return folder

    def _forget(self, processes):
        """Their logs would pile up."""
        for p in processes:
            self.procs.all.remove(p)
            os.unlink(p.log_path)


def grown(before, now):
    """The names of what grew, resident memory aside."""
    return [k for k in ("fds", "links", "entries") if now[k] > before[k]]
