# SPDX-License-Identifier: Apache-2.0
"""Which files are attached to, from when and until when: late starters, copies, containers, programs with the
runtime linked in, and what the agent says of what it cannot see."""

import json
import os
import re
import shutil
import subprocess
import time

import pytest

import capture_util as cap
import churn
import harness

FAST = {"SIMGPU_CTX_MS": "0"}


def delays_ms(agent):
    """Milliseconds from mapping to probes, of each file that was attached to after a notice."""
    return [float(m) for m in re.findall(r"functions, ([\d.]+) ms after it was mapped", agent.process.log())]


def agent_for(procs, folder, *options, **kwargs):
    return cap.Agent(procs, folder, "--log-level", "debug", *options, **{"libs": [], **kwargs})


def wait_flag(path, timeout_s=10):
    harness.wait_until(path.exists, timeout_s, str(path), 0.001)


def calls(agent, pid, op):
    return agent.op_sums({pid}).get(op, (0,))[0]


def pids_in_database(agent):
    return {r["pid"] for r in agent.rows("SELECT pid FROM procs")}


def copy_of_libraries(folder):
    shutil.copytree(cap.SIM_DIR, folder)
    return folder / "libcudart.so.12"


# --- processes started later ----------------------------------------------------------------------

@pytest.mark.parametrize("kind", cap.LINK_KINDS)
def test_a_call_one_second_after_mapping_is_seen(procs, tmp_path, kind):
    """Nobody used the library before, and the agent was told of none. Perf links of the copy before are still
    being closed then, which may hold the new ones up for a moment."""
    cap.require()
    wait_s = 3 if kind == "perf" else 1
    agent = agent_for(procs, tmp_path, attach=kind)
    sim = cap.Sim(procs, tmp_path, own=True)
    for i in range(1 if kind == "perf" else 2):
        lib = copy_of_libraries(tmp_path / f"copy{i}") if kind == "perf" else f"{sim.lib_dir}/libcudart.so.12"
        p = late(procs, sim, tmp_path / f"p{i}", lib, 100)
        time.sleep(wait_s)
        (tmp_path / f"p{i}" / "call").touch()
        cap.finish([p])
        agent.wait_window(2)
        assert calls(agent, p.pid, "cudaLaunchKernel") == 100
        assert calls(agent, p.pid, "cudaDeviceSynchronize") == 1
    agent.stop()
    gaps = delays_ms(agent)
    print(f"{kind}: probes in place after {min(gaps):.1f} to {max(gaps):.1f} ms, {len(gaps)} times")
    assert gaps and max(gaps) < 1000 * wait_s
    assert agent.health()["attach_delay_max_ns"] < 1_000_000_000 * wait_s


# --- the runtime linked into the program ----------------------------------------------------------

def run_static(procs, tmp_path, agent, name, env, launches=50):
    """The first call comes a second after the program was started, the launches a second after it."""
    p = procs.start(harness.program(name), tmp_path, str(launches), env=env)
    wait_flag(tmp_path / "started")
    time.sleep(1)
    (tmp_path / "open").touch()
    wait_flag(tmp_path / "opened")
    time.sleep(1)
    (tmp_path / "call").touch()
    cap.finish([p])
    agent.stop()
    return {op: n[:2] for op, n in agent.op_sums({p.pid}).items()}


RUNTIME = {"cudaFree": (1, 1), "cudaLaunchKernel": (50, 50), "cudaDeviceSynchronize": (1, 1),
           "cudaMalloc": (1, 1)}


def test_static_runtime(procs, tmp_path):
    cap.require()
    agent = agent_for(procs, tmp_path)
    got = run_static(procs, tmp_path, agent, "capture_static", cap.Sim(procs, tmp_path, own=True).env)
    assert {op: got.get(op) for op in RUNTIME} == RUNTIME
    assert got["cuLaunchKernel"] == (50, 50)


def test_static_runtime_of_a_stripped_program_is_seen_at_the_driver(procs, tmp_path):
    """The stand-in has none of the marks by which functions of the real runtime are told."""
    cap.require()
    agent = agent_for(procs, tmp_path)
    got = run_static(procs, tmp_path, agent, "capture_static_stripped", cap.Sim(procs, tmp_path, own=True).env)
    assert got["cuLaunchKernel"] == (50, 50)
    assert got["cuCtxSynchronize"] == (1, 1)
    assert got["cuMemAlloc"] == (1, 1)
    assert not [op for op in got if op.startswith("cuda")]


@pytest.mark.parametrize("name", ["capture_static_real", "capture_static_real_stripped"])
def test_real_static_runtime(procs, tmp_path, name):
    """Every call fails without a driver, and is seen."""
    cap.require()
    if not os.access(os.path.join(harness.BIN_DIR, name), os.X_OK):
        pytest.skip("needs libcudart_static.a of a CUDA toolkit in /usr/local/cuda")
    agent = agent_for(procs, tmp_path)
    got = run_static(procs, tmp_path, agent, name, {"LD_LIBRARY_PATH": ""})
    assert {op: got.get(op) for op in RUNTIME} == RUNTIME


def test_driver_only(procs, tmp_path):
    cap.require()
    agent = agent_for(procs, tmp_path)
    sim = cap.Sim(procs, tmp_path, own=True)
    p = procs.start(harness.program("capture_driver"), "driver", tmp_path, "50", env=sim.env)
    wait_flag(tmp_path / "opened")
    time.sleep(1)
    (tmp_path / "call").touch()
    cap.finish([p])
    agent.stop()
    got = {op: n[:2] for op, n in agent.op_sums({p.pid}).items()}
    assert got["cuLaunchKernel"] == (50, 50) and got["cuStreamSynchronize"] == (1, 1)
    assert got["cuCtxCreate"] == (1, 1) and got["cuModuleLoad"] == (1, 1)
    assert not [op for op in got if op.startswith("cuda")]


# --- files ----------------------------------------------------------------------------------------

def attached(agent):
    agent.wait_window(2)
    return agent.health()["attached_files"]


def late(procs, sim, folder, lib, launches=25):
    folder.mkdir()
    (folder / "map").touch()
    p = procs.start(harness.program("capture_late"), folder, str(launches), lib,
                    env={**sim.env, "LD_LIBRARY_PATH": os.path.dirname(str(lib))})
    wait_flag(folder / "mapped")
    return p


def test_several_paths_of_one_file(procs, tmp_path):
    cap.require()
    one = copy_of_libraries(tmp_path / "one")
    two = tmp_path / "two"
    two.mkdir()
    for name in os.listdir(tmp_path / "one"):
        os.link(tmp_path / "one" / name, two / name)
    agent = agent_for(procs, tmp_path)
    sim = cap.Sim(procs, tmp_path, own=True)
    some = [late(procs, sim, tmp_path / "a", one), late(procs, sim, tmp_path / "b", two / one.name)]
    time.sleep(1)
    for name in ("a", "b"):
        (tmp_path / name / "call").touch()
    cap.finish(some)
    agent.stop()
    for p in some:
        assert calls(agent, p.pid, "cudaLaunchKernel") == 25
        assert calls(agent, p.pid, "cuLaunchKernel") == 25
    assert len(re.findall(r"attached to .*libcudart", agent.process.log())) == 1


COPIES = 2


def test_copies_are_attached_and_let_go_one_by_one(procs, tmp_path):
    cap.require()
    agent = agent_for(procs, tmp_path)
    sim = cap.Sim(procs, tmp_path, own=True)
    assert attached(agent) == 0
    before = churn.held(agent)
    some = []
    for i in range(COPIES):
        lib = copy_of_libraries(tmp_path / f"copy{i}")
        some.append(late(procs, sim, tmp_path / f"p{i}", lib))
        some.append(late(procs, sim, tmp_path / f"q{i}", lib))  # the second user of each
        assert attached(agent) == i + 1
    for i in range(COPIES):
        for who in "pq":
            (tmp_path / f"{who}{i}" / "call").touch()
            cap.finish([some[2 * i + "pq".index(who)]])
            harness.wait_until(lambda: attached(agent) == COPIES - i - (who == "q"), 10, "the copy let go")
    now = churn.held(agent)
    assert (now["fds"], now["links"]) == (before["fds"], before["links"])
    agent.stop()
    for p in some:
        assert calls(agent, p.pid, "cudaLaunchKernel") == 25
    log = agent.process.log()
    assert len(re.findall("attached to .*libcudart", log)) == len(re.findall("detached from .*libcudart", log)) == COPIES


def private_mounts(command, *more):
    """Command in a mount namespace of its own, whose mounts nobody else sees."""
    words = ["unshare", "-m", "--propagation", "private", *more]
    if subprocess.run([*words, "true"], check=False).returncode:
        pytest.skip(f"needs namespaces ({' '.join(words)})")
    return [*words, "sh", "-c", command]


@pytest.mark.parametrize("more", [[], ["-p", "-f"]], ids=["mounts", "mounts_and_pids"])
def test_a_library_in_a_container(procs, tmp_path, more):
    """The agent's own view has an empty folder where the process has its libraries. With a pid namespace, the
    process believes to be 1."""
    cap.require()
    harness.require_command("unshare")
    agent = agent_for(procs, tmp_path)
    sim = cap.Sim(procs, tmp_path, own=True)
    box = tmp_path / "box"
    box.mkdir()
    (tmp_path / "flags").mkdir()
    (tmp_path / "flags" / "map").touch()
    program = harness.program("capture_late")
    p = procs.start(*private_mounts(
        f"mount -t tmpfs none {box} && cp -a {cap.SIM_DIR}/. {box} && exec {program} {tmp_path}/flags 25"
        f" {box}/libcudart.so.12", *more), env={**sim.env, "LD_LIBRARY_PATH": str(box)})
    wait_flag(tmp_path / "flags" / "mapped")
    assert os.listdir(box) == []
    time.sleep(1)
    (tmp_path / "flags" / "call").touch()
    cap.finish([p])
    agent.stop()
    seen = pids_in_database(agent)
    assert len(seen) == 1 and (seen == {p.pid}) == (not more)
    pid = seen.pop()
    assert pid != 1
    assert calls(agent, pid, "cudaLaunchKernel") == 25
    assert calls(agent, pid, "cuLaunchKernel") == 25


def test_one_layer_in_two_containers(procs, tmp_path):
    """Two overlay mounts of one image: calls count once, and go on counting when the first container is gone."""
    cap.require()
    harness.require_command("unshare")
    copy_of_libraries(tmp_path / "image")
    agent = agent_for(procs, tmp_path)
    sim = cap.Sim(procs, tmp_path, own=True)
    some = []
    for i in range(2):
        flags = tmp_path / f"flags{i}"
        flags.mkdir()
        (flags / "map").touch()
        box = tmp_path / f"box{i}"
        box.mkdir()
        line = (f"mount -t tmpfs none {box} && mkdir {box}/u {box}/w {box}/m && mount -t overlay overlay"
                f" -o lowerdir={tmp_path}/image,upperdir={box}/u,workdir={box}/w {box}/m || exit 77;"
                f" exec {harness.program('capture_late')} {flags} 25 {box}/m/libcudart.so.12")
        p = procs.start(*private_mounts(line), env={**sim.env, "LD_LIBRARY_PATH": f"{box}/m"})
        try:
            wait_flag(flags / "mapped")
        except harness.WaitTimeout:
            if p.returncode == 77:
                pytest.skip("needs overlay mounts")
            raise
        some.append(p)
        agent.wait_window(2)
    for i in range(2):
        (tmp_path / f"flags{i}" / "call").touch()
        cap.finish([some[i]])
        agent.wait_window(3)  # the scan finds it gone, and the other one still there
    agent.stop()
    for p in some:
        assert calls(agent, p.pid, "cudaLaunchKernel") == 25


# --- what cannot be seen --------------------------------------------------------------------------

def compile_library(path):
    """A library by its name, with nothing of it inside."""
    source = path.parent / "empty.c"
    source.write_text("int nothing(void) { return 0; }\n", encoding="ascii")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", path, source], check=True)


def check_lines(name):
    out = subprocess.run([harness.program("lanterne"), "check", "--json"], capture_output=True, text=True,
                         check=False, timeout=60)
    return [f for f in json.loads(out.stdout)["findings"] if f["name"] == name]


def test_what_cannot_be_attached_is_told_with_its_reason(procs, tmp_path):
    cap.require()
    harness.require_command("cc")
    (tmp_path / "libcuda.so.1").write_text("no library\n" * 1000, encoding="ascii")
    compile_library(tmp_path / "libcudart.so.12")
    agent = agent_for(procs, tmp_path)
    some = [procs.start(harness.program("capture_driver"), "map", tmp_path / name, "60")
            for name in ("libcuda.so.1", "libcudart.so.12")]
    agent.wait_window(1)
    harness.wait_until(lambda: agent.health()["unattached_files"] == 2, 10, "both files reported")
    log = agent.process.log()
    assert re.search(r"cannot attach to .*/libcuda\.so\.1: ", log)
    assert re.search(r"cannot attach to .*/libcudart\.so\.12: none of the traced functions is in it", log)
    mine = [f for kind in ("cuda", "cudart") for f in check_lines(kind) if str(tmp_path)[:80] in f["value"]]
    assert len(mine) == 2
    assert all(f["level"] == "warn" and f["advice"] for f in mine), mine
    assert any("none of the traced functions" in f["advice"] for f in mine)
    for p in some:
        p.kill()
    harness.wait_until(lambda: agent.health()["unattached_files"] == 0, 10, "both files gone")
    agent.stop()


def test_check_tells_what_is_seen_at_the_driver_only(procs, tmp_path):
    cap.require()
    sim = cap.Sim(procs, tmp_path, own=True)
    p = procs.start(harness.program("capture_static_stripped"), tmp_path, "1", env={**sim.env, **FAST})
    (tmp_path / "open").touch()
    wait_flag(tmp_path / "opened")
    found = check_lines("driver_only")
    assert len(found) == 1 and found[0]["level"] == "ok" and "stripped" in found[0]["advice"]
    (tmp_path / "call").touch()
    cap.finish([p])


def test_a_process_of_which_nothing_is_seen_raises_an_alarm(procs, tmp_path):
    cap.require()
    agent = agent_for(procs, tmp_path)
    sim = cap.Sim(procs, tmp_path, own=True)
    # It maps the same library, but runs code of its own only: no alarm.
    other = procs.start("sh", "-c", f"LD_PRELOAD={sim.lib_dir}/libcudart.so.12 exec sh -c 'while :; do :; done'", env=sim.env)
    agent.wait_window(8)
    assert agent.health()["silent_processes"] == 0
    p = procs.start(harness.program("capture_driver"), "burn", f"{sim.lib_dir}/libcudart.so.12", "60", env=sim.env)
    harness.wait_until(lambda: agent.health()["silent_processes"] == 1, 25, "the alarm")
    agent.process.wait_log(rf"no call of theirs is seen: process {p.pid} \(capture_driver\)")
    assert agent.health()["silent_total"] == 1
    p.kill()
    harness.wait_until(lambda: agent.health()["silent_processes"] == 0, 10, "the end of the alarm")
    other.kill()
    agent.stop()


def test_a_wait_that_lasts_is_no_silence(procs, tmp_path):
    """It spins in the library's code for several windows without a new call."""
    cap.require()
    agent = agent_for(procs, tmp_path)
    sim = cap.Sim(procs, tmp_path, own=True)
    p = sim.train("--seconds", "30", "--kernel-us", "6000000", "--kernels", "1", "--wait", "spin")
    agent.wait_window(9)
    assert p.running() and agent.health()["silent_total"] == 0
    p.kill()
    agent.stop()
