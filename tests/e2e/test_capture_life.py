# SPDX-License-Identifier: Apache-2.0
"""Who is traced and from when, what is left when they are gone, and what never returns."""

import os
import shutil
import subprocess
import tempfile
import time

import pytest

import capture_util as cap
import harness

PER_PROCESS_MAPS = ("op_stats", "threads", "comms", "processes", "in_flight", "scope_tgids")


def short(sim, launches=10, **kwargs):
    """A process that makes that many launches and ends."""
    return sim.train("--storm", "--steps", str(launches), "--kernel-us", "0", **kwargs)


def pids_in_database(agent):
    return {r["pid"] for r in agent.rows("SELECT pid FROM procs")}


def tgids_in_maps(agent):
    """Processes that any kernel map of the agent knows."""
    ids = agent.map_ids()
    found = {k["tgid"] for k, _ in agent.map_dump("op_stats", ids)}
    found |= {v["tgid"] for _, v in agent.map_dump("threads", ids)}
    found |= {k for k, _ in agent.map_dump("processes", ids)}
    return found


# --- scope ----------------------------------------------------------------------------------------

def in_cgroup(path):
    def enter():
        with open(os.path.join(path, "cgroup.procs"), "w", encoding="ascii") as f:
            f.write(str(os.getpid()))
    return enter


def test_scope_pid_takes_the_children_and_nobody_else(procs, tmp_path):
    cap.require()
    sim = cap.Sim(procs, tmp_path)
    go = tmp_path / "go"
    line = f'while [ ! -e {go} ]; do sleep 0.02; done; {harness.program("simtrain")} --storm --steps 10' \
        ' --kernel-us 0 & wait; exit 0'
    # The child calls at once: nobody but the kernel itself can have added it by then.
    parent = procs.start("bash", "-c", line, env={**sim.env, "SIMGPU_CTX_MS": "0"})
    agent = cap.Agent(procs, tmp_path, scope=("--pid", str(parent.pid)), window="600s")
    outsider = short(sim)
    cap.finish([outsider])
    go.touch()
    cap.finish([parent])
    inside = tgids_in_maps(agent)
    assert outsider.pid not in inside and len(inside) == 1
    agent.stop()
    assert pids_in_database(agent) == inside
    assert agent.op_sums()["cudaLaunchKernel"][0] == 10


def test_scope_pid_takes_children_that_were_there_before(procs, tmp_path):
    cap.require()
    sim = cap.Sim(procs, tmp_path)
    line = f'{harness.program("simtrain")} --storm --seconds 3 --kernel-us 0 & wait; exit 0'
    parent = procs.start("bash", "-c", line, env=sim.env)
    child = int(harness.wait_until(lambda: subprocess.run(
        ["pgrep", "-P", str(parent.pid)], capture_output=True, text=True, check=False).stdout,
        10, "the child"))
    agent = cap.Agent(procs, tmp_path, scope=("--pid", str(parent.pid)), window="600s")
    harness.wait_until(lambda: child in tgids_in_maps(agent), 10, "the child's calls")
    cap.finish([parent])
    agent.stop()
    assert pids_in_database(agent) == {child}


@pytest.fixture
def open_folder():
    """A folder that everybody may use; pytest's own are closed to others whenever a run begins."""
    with tempfile.TemporaryDirectory(prefix="ltn-open-", dir="/tmp") as name:
        os.chmod(name, 0o777)
        yield name


def test_scope_user(procs, tmp_path, open_folder):
    cap.require()
    harness.require_command("setpriv")
    sim = cap.Sim(procs, open_folder)
    os.chmod(sim.dir, 0o777)
    mine = short(sim)  # makes the shared state, before others need it
    cap.finish([mine])
    for name in os.listdir(sim.dir):
        os.chmod(os.path.join(sim.dir, name), 0o666)
    agent = cap.Agent(procs, tmp_path, scope=("--user", "nobody"), window="600s")
    other = procs.start("setpriv", "--reuid", "nobody", "--clear-groups", harness.program("simtrain"),
                        "--storm", "--steps", "10", "--kernel-us", "0", env=sim.env)
    mine = short(sim)
    cap.finish([other, mine])
    assert tgids_in_maps(agent) == {other.pid}
    agent.stop()
    assert pids_in_database(agent) == {other.pid}


def cgroup2_mount():
    with open("/proc/self/mounts", encoding="utf-8") as f:
        for line in f:
            if line.split()[2] == "cgroup2":
                return line.split()[1]
    return None


def test_scope_cgroup(procs, tmp_path):
    cap.require()
    mount = cgroup2_mount()
    if mount is None:
        pytest.skip("needs a cgroup v2 hierarchy")
    name = f"ltn-test-{os.getpid()}"
    path = os.path.join(mount, name)
    try:
        os.makedirs(os.path.join(path, "below"))
    except OSError as e:
        pytest.skip(f"needs a cgroup v2 hierarchy that can be written: {e}")
    sim = cap.Sim(procs, tmp_path)
    command = f"{harness.program('simtrain')} --storm --steps 10 --kernel-us 0"
    try:
        agent = cap.Agent(procs, tmp_path, scope=("--cgroup", f"/{name}"), window="600s")
        inside = [procs.start("bash", "-c", f"echo $$ > {where}/cgroup.procs; exec {command}", env=sim.env)
                  for where in (path, os.path.join(path, "below"))]
        outside = short(sim)
        cap.finish([*inside, outside])
        assert tgids_in_maps(agent) == {p.pid for p in inside}
        agent.stop()
        assert pids_in_database(agent) == {p.pid for p in inside}
    finally:
        os.rmdir(os.path.join(path, "below"))
        os.rmdir(path)


# --- late starters --------------------------------------------------------------------------------

def test_every_rank_is_seen_from_its_first_communicator_on(procs, tmp_path):
    """The agent knows no library beforehand."""
    cap.require()
    agent = cap.Agent(procs, tmp_path, libs=[])
    sim = cap.Sim(procs, tmp_path)
    ranks = sim.job(4, "--steps", "10", "--kernel-us", "100")
    cap.finish(ranks)
    agent.stop()
    for p in ranks:
        events = agent.rows("SELECT * FROM events WHERE pid = ? AND op = 'ncclCommInitRank'", p.pid)
        assert len(events) == 1
    rows = agent.rows("SELECT DISTINCT p.pid, c.comm_id, c.rank, c.ranks FROM communicators c"
                      " JOIN procs p ON p.id = c.proc_id")
    assert {r["pid"] for r in rows} == {p.pid for p in ranks}
    assert len({r["comm_id"] for r in rows}) == 1
    assert {(r["rank"], r["ranks"]) for r in rows} == {(i, 4) for i in range(4)}


def first_byte(pid, lib, symbol):
    """First byte of a function as the process has it; 0xCC is a breakpoint."""
    name = os.path.basename(lib)
    with open(f"/proc/{pid}/maps", encoding="utf-8") as f:
        start = next(int(line.split("-")[0], 16) for line in f if name in line)
    out = subprocess.run(["nm", "-D", lib], capture_output=True, text=True, check=True).stdout
    at = next(int(line.split()[0], 16) for line in out.splitlines()
              if line.split()[-1].split("@")[0] == symbol)
    with open(f"/proc/{pid}/mem", "rb") as f:
        f.seek(start + at)
        return f.read(1)[0]


def test_a_library_opened_late(procs, tmp_path):
    """The probes are there soon after the mapping; every call from then on counts."""
    cap.require()
    harness.require_command("nm")
    sim = cap.Sim(procs, tmp_path)
    p = procs.start(harness.program("capture_late"), tmp_path, "25", cap.SIM_LIBS[0], env=sim.env)
    agent = cap.Agent(procs, tmp_path, libs=[])
    (tmp_path / "map").touch()
    harness.wait_until((tmp_path / "mapped").exists, 10, "the mapping", 0.001)
    mapped = os.stat(tmp_path / "mapped").st_mtime
    harness.wait_until(lambda: first_byte(p.pid, cap.SIM_LIBS[0], "cudaLaunchKernel") == 0xCC, 5,
                       "a probe", 0.001)
    print(f"probe in place {1e3 * (time.time() - mapped):.0f} ms after the mapping")
    (tmp_path / "call").touch()
    cap.finish([p])
    agent.stop()
    sums = agent.op_sums({p.pid})
    assert sums["cudaLaunchKernel"][:2] == (25, 25)
    assert sums["cudaDeviceSynchronize"][:2] == (1, 1)


def test_a_library_whose_file_is_gone(procs, tmp_path):
    cap.require()
    sim = cap.Sim(procs, tmp_path)
    copies = tmp_path / "copies"
    shutil.copytree(cap.SIM_DIR, copies)
    p = procs.start(harness.program("capture_late"), tmp_path, "25", copies / "libcudart.so.12",
                    env={**sim.env, "LD_LIBRARY_PATH": str(copies)})
    (tmp_path / "map").touch()
    harness.wait_until((tmp_path / "mapped").exists, 10, "the mapping")
    os.unlink(copies / "libcudart.so.12")
    agent = cap.Agent(procs, tmp_path, libs=[])
    (tmp_path / "call").touch()
    cap.finish([p])
    agent.stop()
    sums = agent.op_sums({p.pid})
    assert sums["cudaLaunchKernel"][:2] == (25, 25)


# --- clean-up -------------------------------------------------------------------------------------

def rss_kib(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        return int(next(line for line in f if line.startswith("VmRSS")).split()[1])


def level(agent):
    ids = agent.map_ids()
    return {name: len(agent.map_dump(name, ids)) for name in PER_PROCESS_MAPS}


def test_a_process_has_the_name_of_its_first_thread(procs, tmp_path):
    cap.require()
    agent = cap.Agent(procs, tmp_path)
    sim = cap.Sim(procs, tmp_path)
    # Gone before /proc can be asked: only the kernel's record names most of them.
    some = [sim.target("thread", env={"SIMGPU_CTX_MS": "0"}) for _ in range(20)]
    cap.finish(some)
    agent.wait_window(3)
    rows = agent.rows("SELECT DISTINCT comm FROM processes WHERE pid IN (%s)"
                      % ",".join(str(p.pid) for p in some))
    assert [r["comm"] for r in rows] == ["capture_target"]
    agent.stop()


def test_short_processes_leave_nothing(procs, tmp_path):
    cap.require()
    agent = cap.Agent(procs, tmp_path)
    sim = cap.Sim(procs, tmp_path)
    env = {"SIMGPU_CTX_MS": "0"}
    processes = []

    def wave(n):
        for _ in range(n // 4):
            some = [short(sim, env=env) for _ in range(4)]
            cap.finish(some)
            processes.extend(some)

    wave(40)
    agent.wait_window(3)
    before, fds = level(agent), len(os.listdir(f"/proc/{agent.pid}/fd"))

    def settled():
        now = level(agent)
        return all(now[k] <= before[k] for k in before) and now

    # A leak grows with every wave; what the allocator keeps of the busiest moment does not.
    growth = []
    while len(growth) < 4 and min(growth, default=1 << 30) > 1024:
        rss = rss_kib(agent.pid)
        wave(200)
        harness.wait_until(settled, 10, "empty kernel maps")
        agent.wait_window(2)
        assert len(os.listdir(f"/proc/{agent.pid}/fd")) == fds
        growth.append(rss_kib(agent.pid) - rss)
    assert min(growth) <= 1024, f"resident memory grew by {growth} KiB"
    for name in ("op_stats", "threads", "comms", "processes", "in_flight"):
        assert before[name] == 0
    agent.stop()
    print(f"resident memory {rss} KiB, grew by {growth} KiB; {fds} descriptors")
    # Each of them is there, under its own name, with all its calls.
    assert pids_in_database(agent) == {p.pid for p in processes}
    assert agent.op_sums()["cudaLaunchKernel"][0] == 10 * len(processes)
    nameless = agent.rows("SELECT p.pid, p.start_ns, s.text FROM procs p LEFT JOIN strings s"
                          " ON s.id = p.comm_id WHERE s.text IS NOT 'simtrain' OR p.start_ns = 0")
    assert [tuple(r) for r in nameless] == []
    assert agent.value("SELECT count(*) FROM procs") == len(processes)
    assert agent.value("SELECT count(*) FROM procs WHERE ended_ns IS NULL") == 0


# --- calls that never return ----------------------------------------------------------------------

def test_victims_of_a_hang_are_in_flight(procs, tmp_path):
    cap.require()
    agent = cap.Agent(procs, tmp_path)
    sim = cap.Sim(procs, tmp_path)
    ranks = sim.job(4, "--seconds", "60", "--kernel-us", "200", "--kernels", "6", "--wait", "block")
    sync = cap.OP_IDS["cudaStreamSynchronize"]
    harness.wait_until(lambda: agent.rows("SELECT 1 FROM rank_steps"), 20, "the first steps")
    sim.ctl("fault", "start", "hang", "--rank", "2")
    victims = {ranks[i].pid for i in (0, 1, 3)}
    ids = agent.map_ids()

    def stuck():
        found = {v["tgid"]: v for _, v in agent.map_dump("in_flight", ids) if v["op"] == sync and
                 cap.monotonic_ns() - v["since_ns"] > 300_000_000}
        return found if set(found) >= victims else None
    first = harness.wait_until(stuck, 15, "the victims inside their syncs")
    assert ranks[2].pid not in first
    agent.wait_window(1)
    second = {v["tgid"]: v for _, v in agent.map_dump("in_flight", ids)}
    for pid in victims:
        assert second[pid]["since_ns"] == first[pid]["since_ns"]
        assert cap.monotonic_ns() - second[pid]["since_ns"] > 300_000_000
    assert ranks[2].pid not in second
    sim.ctl("fault", "stop", "hang", "--rank", "2")
    harness.wait_until(lambda: not stuck(), 10, "the victims to go on")
    agent.wait_window(2)
    for p in ranks:
        p.kill()
    harness.wait_until(lambda: agent.map_dump("in_flight", ids) == [], 10, "an empty table")
    agent.stop()
