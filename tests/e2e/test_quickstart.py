# SPDX-License-Identifier: Apache-2.0
"""scripts/quickstart: wrong use, missing rights, its ends, busy machines, and the whole play with each fault."""

import fcntl
import json
import os
import signal
import subprocess
import time

import pytest

import harness

QUICKSTART = os.path.join(harness.SOURCE_DIR, "scripts", "quickstart")
LOCK = "/run/lock/lanterne-quickstart.lock"
CAUSES = {"cpu": "cpu_contention", "dataloader": "data_loader", "gpu": "gpu_clock"}


def run(*args, timeout_s=60, **kwargs):
    return subprocess.run([QUICKSTART, *args], capture_output=True, text=True, check=False,
                          timeout=timeout_s, stdin=subprocess.DEVNULL, **kwargs)


@pytest.mark.parametrize("args", [["--fault"], ["--fault", "fire"], ["--seconds", "0"],
                                  ["--seconds", "1; id"], ["--nonsense"], ["extra"]], ids=" ".join)
def test_wrong_use_is_2(args):
    got = run(*args)
    assert got.returncode == 2
    assert got.stdout == ""
    assert "usage: scripts/quickstart" in got.stderr


def test_help_is_0():
    got = run("--help")
    assert got.returncode == 0
    for option in ("--fault", "--seconds", "--keep", "--json", "--clean"):
        assert option in got.stdout


def test_without_root_it_says_so_and_exits_3():
    if os.geteuid() == 0:
        got = run(user=65534, group=65534, extra_groups=[])
    else:
        got = run()
    assert got.returncode == 3
    assert got.stdout == ""
    assert "root is needed" in got.stderr


def left_behind():
    """What is still there of ours; zombies are the reaper's."""
    out = subprocess.run("ip netns; ip -o link; ls -d /dev/shm/* /tmp/*; "
                         "cat /proc/[0-9]*/cgroup | grep -v '(deleted)';"
                         "ps -eo stat=,args= | grep -v ^Z", shell=True, capture_output=True,
                         text=True, check=False).stdout
    return [w for w in ("ltn-n0", "ltn-br", "ltn-quickstart", "lanterne-quickstart.") if w in out]


def require_stage():
    """Root, namespaces, and nobody else who plays."""
    harness.require_btf()
    harness.require_netns()
    if os.cpu_count() < 2:
        pytest.skip("needs two CPU cores")
    os.makedirs(os.path.dirname(LOCK), exist_ok=True)
    with open(LOCK, "w", encoding="ascii") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pytest.skip("another quickstart is running on this machine")


def sh(command):
    return subprocess.run(command, shell=True, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def leftovers():
    """What a run that was killed leaves, in small; yields the process among it."""
    require_stage()
    cgroups = sh("awk '$3 == \"cgroup2\" {print $2; exit}' /proc/mounts")
    if not cgroups:
        pytest.skip("needs a cgroup v2 hierarchy")
    group = f"{cgroups}/ltn-quickstart/agents"
    sh(f"mkdir -p {group} && ip netns add ltn-n0 && ip link add ltn-br type bridge && mkdir /dev/shm/lanterne-quickstart.abcdef")
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as p:
        with open(f"{group}/cgroup.procs", "w", encoding="ascii") as f:
            f.write(str(p.pid))
        assert len(left_behind()) == 4
        yield p
        p.kill()
        run("--clean")


def test_clean_removes_what_a_killed_run_left(leftovers):
    got = run("--clean")
    assert got.returncode == 0, got.stderr
    assert leftovers.wait(5) == -signal.SIGKILL
    assert left_behind() == []
    assert run("--clean").returncode == 0  # and when there is nothing


def test_clean_leaves_a_running_one_alone(leftovers):
    with open(LOCK, "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        got = run("--clean")
    assert got.returncode == 3
    assert "another quickstart is running" in got.stderr
    assert leftovers.poll() is None


@pytest.mark.parametrize("obeys", [True, False], ids=["slow", "stubborn"])
def test_signals_during_the_build_leave_nothing(obeys, leftovers, tmp_path):
    """Two signals in a row: one end, after the build's; leftovers are gone though the build never was done."""
    cmake = tmp_path / "cmake"
    last_words = "sleep 1; exit 1" if obeys else ""
    cmake.write_text(f"#!/bin/sh\ntrap '{last_words}' TERM\necho $$ >{tmp_path}/pid\n"
                     "while :; do sleep 0.1; done\n")
    cmake.chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    with subprocess.Popen([QUICKSTART], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env,
                          start_new_session=True, text=True) as p:
        pid_file = tmp_path / "pid"
        harness.wait_until(lambda: pid_file.exists() and pid_file.read_text().strip(), 60, "build")
        build = int(pid_file.read_text())
        os.kill(p.pid, signal.SIGINT)
        time.sleep(0.2)
        os.kill(p.pid, signal.SIGTERM)
        out, _ = p.communicate(timeout=30)
    assert p.returncode == 130, out
    assert not sh(f"ps -o stat= -p {build} | grep -v ^Z || true"), "the build goes on"
    assert leftovers.wait(5) == -signal.SIGKILL
    assert left_behind() == []


@pytest.mark.parametrize("wait_pct", [5, 45])
def test_a_busy_machine_is_measured_and_said(wait_pct):
    ranks = [{"rank": r, "self_time_ns": 30e6, "split_ns": {"run_queue": 30e4 * wait_pct}} for r in range(4)]
    ranks += [{"rank": 5, "self_time_ns": 90e6, "split_ns": {"run_queue": 80e6}},  # has the fault
              {"rank": 6, "self_time_ns": None}]                                   # no step yet
    fetched = {"/api/v1/jobs": {"jobs": [{"job": "a:1"}]},
               "/api/v1/jobs/a%3A1?windows=1": {"ranks": ranks}}
    cases = "".join(f"'{path}') echo '{json.dumps(body)}' ;;\n" for path, body in fetched.items())
    script = (f"source {QUICKSTART}\nfetch() {{\ncase \"$1\" in\n{cases}*) return 1 ;;\nesac\n}}\n"
              "begin_measuring; measure_ranks; end_measuring before; begin_measuring; measure_ranks; measure_ranks\n"
              'end_measuring since; echo "$machine"; echo "$busy_note"\n')
    got = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    machine, note = got.stdout.split("\n")[:2]
    machine = json.loads(machine)
    assert machine["before"]["ranks_wait_pct"] == machine["since"]["ranks_wait_pct"] == wait_pct
    assert machine["busy"] == (wait_pct == 45)
    if machine["busy"]:
        assert "this machine is busy: ranks waited 45 % of their time for a CPU before the fault" in note
    else:
        assert note == ""


@pytest.mark.parametrize("stderr, code, busy", [
    ("[ 9 s] NOTE: this machine is busy: x; the answer below is not reliable\n[ 9 s] cleaning up\n", 1, True),
    ("[ 9 s] NOTE: this machine is busy: x; the answer may be wrong or missing\n", 1, False),
    ("[ 9 s] this is not the right answer\n", 1, False)])
def test_only_what_quickstart_says_excuses_a_wrong_answer(stderr, code, busy):
    assert bool(too_busy(subprocess.CompletedProcess([], code, "", stderr))) == busy


def too_busy(got):
    """What quickstart itself says about this machine, when that makes its answer worthless."""
    lines = [l for l in got.stderr.splitlines() if "the answer below is not reliable" in l]
    return lines[-1] if got.returncode == 1 and lines else None


@pytest.mark.parametrize("fault", ["none", "cpu", "dataloader", "gpu"])
def test_the_play(fault):
    require_stage()
    if not os.access(os.path.join(harness.BIN_DIR, "lanterne-collector"), os.X_OK):
        pytest.skip("the programs are not part of this build")
    if os.path.basename(harness.BUILD_DIR) != "release":
        pytest.skip("quickstart uses the release build")
    got = run("--fault", fault, "--seconds", "30" if fault == "none" else "90", "--json",
              timeout_s=240)
    assert left_behind() == []
    if too_busy(got):
        pytest.skip(f"MACHINE TOO BUSY, {fault} was not tested: {too_busy(got)}")
    assert got.returncode == 0, got.stdout + got.stderr
    result = json.loads(got.stdout.splitlines()[-1])
    assert result["machine"]["before"]["ranks_wait_pct"] is not None
    if fault == "none":
        assert (result["verdicts"], result["truth"]) == ([], {"fault": "none"})
        return
    truth = result["truth"]
    assert truth["fault"] == fault
    (verdict,) = result["verdicts"]
    assert (verdict["node"], verdict["rank"]) == (truth["node"], truth["rank"])
    assert verdict["effect_pct"] >= 8
    assert verdict["peers"] == 7
    assert 0 < verdict["seconds_to_detect"] <= 90
    if result["machine"]["busy"] and verdict["cause"] != CAUSES[fault]:
        pytest.skip(f"MACHINE TOO BUSY, the cause of {fault} was not tested: {result['machine']}")
    assert verdict["cause"] == CAUSES[fault], verdict
    if fault == "cpu":
        assert verdict["explained_share"] >= 0.8
        assert "logrotate" in verdict["cause_detail"]
