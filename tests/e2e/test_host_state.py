# SPDX-License-Identifier: Apache-2.0
"""Memory that traced processes take, CPU limits that hold them back, who holds the CPU instead, and the node's
state with its deadband and heartbeat."""

import json
import os
import subprocess

import pytest

import capture_util as cap
import harness
import host_util as host

MIB = 1 << 20


def test_memory_that_is_taken_is_counted(procs, tmp_path):
    host.require()
    sim = cap.Sim(procs, tmp_path)
    agent = cap.Agent(procs, tmp_path)
    script = f"""
memory = mmap.mmap(-1, 64 * {MIB}, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory.madvise(mmap.MADV_NOHUGEPAGE)
for at in range(0, 64 * {MIB}, 4096):
    memory[at] = 1
"""
    traced, plain = host.two_loads(sim, tmp_path, script)
    idle = host.Load(sim, tmp_path, "", name="idle")
    before = host.sums_now(agent, traced.pid)["pages"]
    traced.finish()
    plain.finish()
    idle.finish()
    agent.stop()
    page = os.sysconf("SC_PAGESIZE")

    def taken(pid):
        return host.total(agent, "allocated_bytes", "process_host", "pid = ?", pid)
    gained = taken(traced.pid) - before * page
    # Page tables and the interpreter come on top.
    assert 64 * MIB <= gained < 68 * MIB, gained
    assert taken(idle.pid) < 8 * MIB
    assert taken(plain.pid) == 0


def test_switched_off(procs, tmp_path):
    host.require()
    sim = cap.Sim(procs, tmp_path)
    agent = cap.Agent(procs, tmp_path, "--no-memory")
    load = host.Load(sim, tmp_path, f"x = bytearray(16 * {MIB})")
    load.finish()
    agent.stop()
    assert host.total(agent, "allocated_bytes", "process_host", "pid = ?", load.pid) == 0


def cpu_mount():
    """(mount, version) of a hierarchy that can limit CPUs."""
    with open("/proc/self/mounts", encoding="utf-8") as f:
        mounts = [line.split() for line in f]
    for m in mounts:
        if m[2] == "cgroup" and "cpu" in m[3].split(","):
            return m[1], 1
    for m in mounts:
        if m[2] == "cgroup2":
            try:
                with open(os.path.join(m[1], "cgroup.subtree_control"), encoding="ascii") as f:
                    if "cpu" in f.read().split():
                        return m[1], 2
            except OSError:
                pass
    return None, 0


@pytest.fixture(name="limited")
def _limited():
    """A cgroup with a fifth of a CPU, below one without a limit."""
    mount, version = cpu_mount()
    if mount is None:
        pytest.skip("needs the cgroup controller cpu")
    above = os.path.join(mount, f"ltn-limit-{os.getpid()}")
    path = os.path.join(above, "below")
    try:
        os.makedirs(path)
        if version == 2:
            with open(os.path.join(above, "cgroup.subtree_control"), "w", encoding="ascii") as f:
                f.write("+cpu")
        name, text = ("cpu.max", "20000 100000") if version == 2 else ("cpu.cfs_quota_us", "20000")
        with open(os.path.join(path, name), "w", encoding="ascii") as f:
            f.write(text)
    except OSError as e:
        pytest.skip(f"needs cgroups that can be written: {e}")
    # Simulated devices have threads of real-time priority, which version 1 refuses: there the first thread goes.
    yield path[len(mount):], os.path.join(path, "cgroup.procs" if version == 2 else "tasks")
    for folder in path, above:
        harness.wait_until(lambda f=folder: not os.path.exists(f) or not os.rmdir(f), 10, "the cgroup to be empty")


def cpu_stat(members):
    """What the kernel says of the limit's work so far."""
    with open(os.path.join(os.path.dirname(members), "cpu.stat"), encoding="ascii") as f:
        words = dict(line.split() for line in f)
    ns = int(words["throttled_time"]) if "throttled_time" in words else 1000 * int(words["throttled_usec"])
    return {"throttled": int(words["nr_throttled"]), "ns": ns}


SPIN = """
end = time.monotonic() + 3
while time.monotonic() < end:
    pass
"""


def test_a_cpu_limit_that_holds_back_is_told(procs, tmp_path, limited):
    host.require()
    name, members = limited
    sim = cap.Sim(procs, tmp_path)
    agent = cap.Agent(procs, tmp_path)
    held = host.Load(sim, tmp_path, SPIN, name="held")
    free = host.Load(sim, tmp_path, SPIN, name="free")
    with open(members, "w", encoding="ascii") as f:
        f.write(str(held.pid))
    agent.wait_window(2)
    before = cpu_stat(members)
    for load in held, free:
        load.go()
    for load in held, free:
        load.finish()
    after = cpu_stat(members)
    agent.wait_window(2)
    held.process.kill()
    agent.stop()
    rows = agent.rows("SELECT cgroup, sum(throttled) n, sum(periods) periods, sum(throttled_ns) ns FROM"
                      " cpu_throttling WHERE pid = ? GROUP BY cgroup", held.pid)
    assert [r["cgroup"] for r in rows] == [name]
    # How the kernel counts it is its own affair, and changes with its version.
    assert rows[0]["n"] == after["throttled"] - before["throttled"] > 0
    assert rows[0]["ns"] == after["ns"] - before["ns"] > 0
    assert rows[0]["n"] <= rows[0]["periods"]
    assert agent.value("SELECT count(*) FROM cpu_throttling WHERE pid = ?", free.pid) == 0


def test_who_holds_the_cpu_has_a_thread_and_a_cgroup(procs, tmp_path):
    host.require()
    with open("/proc/self/mounts", encoding="utf-8") as f:
        mounts = [line.split()[1] for line in f if line.split()[2] == "cgroup2"]
    if not mounts:
        pytest.skip("needs a cgroup v2 hierarchy")
    name = f"ltn-hog-{os.getpid()}"
    path = os.path.join(mounts[0], name)
    try:
        os.mkdir(path)
    except OSError as e:
        pytest.skip(f"needs a cgroup v2 hierarchy that can be written: {e}")
    try:
        sim = cap.Sim(procs, tmp_path)
        agent = cap.Agent(procs, tmp_path)
        cpu = max(os.sched_getaffinity(0))
        hog = procs.start("taskset", "-c", str(cpu), "/usr/bin/python3", "-c",
                          "import threading,time\n"
                          "def spin():\n"
                          " print(threading.get_native_id(), flush=True)\n"
                          " while True: pass\n"
                          "threading.Thread(target=spin, daemon=True).start()\ntime.sleep(60)\n")
        tid = int(hog.wait_log(r"^(\d+)$")[1])
        with open(os.path.join(path, "cgroup.procs"), "w", encoding="ascii") as f:
            f.write(str(hog.pid))
        busy = sim.train("--seconds", "4", cpu=cpu)
        cap.finish([busy])
        hog.kill()
        agent.stop()
    finally:
        harness.wait_until(lambda: not os.path.exists(path) or not os.rmdir(path), 10, "the cgroup to be empty")
    rows = agent.rows("SELECT by_pid, by_tid, cgroup, sum(waited_ns) ns FROM cpu_holders WHERE pid = ?"
                      " GROUP BY by_pid, by_tid, cgroup ORDER BY ns DESC", busy.pid)
    assert rows, "nobody held the CPU"
    assert tuple(rows[0])[:3] == (hog.pid, tid, f"/{name}")


def test_who_holds_the_cpu_has_the_name_of_now(procs, tmp_path):
    """What was just forked still bears its parent's name when it first takes the CPU."""
    host.require()
    sim = cap.Sim(procs, tmp_path)
    agent = cap.Agent(procs, tmp_path)
    cpu = max(os.sched_getaffinity(0))
    busy = sim.train("--seconds", "6", cpu=cpu)
    hog = procs.start("taskset", "-c", str(cpu), "/usr/bin/python3", "-c",
                      "import time\n"
                      "end = time.monotonic() + 2\n"
                      "while time.monotonic() < end: pass\n"
                      "open('/proc/self/comm', 'w').write('ltn-renamed')\n"
                      "print('renamed', flush=True)\n"
                      "while True: pass\n")
    hog.wait_log(r"^renamed$", 20)
    cap.finish([busy])
    hog.kill()
    agent.stop()
    names = [r["by_comm"] for r in agent.rows("SELECT by_comm FROM cpu_holders WHERE pid = ? AND by_pid = ?"
                                              " ORDER BY timestamp_ns", busy.pid, hog.pid)]
    assert names[0].startswith("python3") and names[-1] == "ltn-renamed", names


def states(agent):
    return agent.rows("SELECT * FROM snapshots WHERE kind = 'system' ORDER BY timestamp_ns")


def test_the_state_of_the_node_is_kept_when_it_moves_or_is_due(procs, tmp_path):
    host.require()
    port = harness.free_port()
    always = cap.Agent(procs, tmp_path, "--deadband", "0", "--listen", f"127.0.0.1:{port}", name="always")
    never = cap.Agent(procs, tmp_path, "--deadband", "100", "--heartbeat", "1h", "--listen", "off", name="never")
    beat = cap.Agent(procs, tmp_path, "--deadband", "100", "--heartbeat", "2s", "--listen", "off", name="beat")
    for agent in always, never, beat:
        agent.wait_window(5)
    told = harness.http_get_json(f"http://127.0.0.1:{port}/api/v1/snapshots?limit=50")["snapshots"]
    assert any(t["kind"] == "system" and t["load1"] >= 0 for t in told)
    for agent in always, never, beat:
        agent.stop()
    assert len(states(always)) == always.windows()
    assert len(states(never)) == 1
    assert 2 <= len(states(beat)) < beat.windows()
    with open("/proc/meminfo", encoding="ascii") as f:
        total = int(f.readline().split()[1]) * 1024
    last = states(always)[-1]
    assert last["memory_total_bytes"] == total and 0 < last["memory_used_bytes"] < total
    assert last["cpus"] == os.cpu_count() and 0 <= last["cpu_busy"] <= 1 and last["load1"] >= 0
    if os.path.exists("/proc/pressure/cpu"):
        assert 0 <= last["pressure_cpu"] <= 1
    if last["pressure_cpu"] is None:
        assert not os.path.exists("/proc/pressure/cpu")


def test_check_names_what_is_watched():
    host.require()

    def line(*options):
        got = subprocess.run([harness.program("lanterne"), "check", "--json", *options], capture_output=True,
                             text=True, check=False, timeout=60)
        findings = json.loads(got.stdout)
        return [f for f in findings["findings"] if f["name"] == "host"][0]
    assert line(host.FILES)["value"] == "watched: disks, TCP, sockets, files, memory"
    cheap = line()
    if "; not: " in cheap["value"]:
        assert cheap["value"] == "watched: disks, TCP, sockets, memory; not: files"
        assert "--files-by-syscall takes it" in cheap["advice"]
    off = line("--no-io", "--no-files")
    assert off["value"] == "watched: TCP, sockets, memory; not: disks (switched off), files (switched off)"
    assert off["level"] == "ok"
