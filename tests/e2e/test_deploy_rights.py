# SPDX-License-Identifier: Apache-2.0
"""The agent works with exactly the capabilities that the chart grants, and says which one is missing otherwise."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time

import pytest

import capture_util as cap
import deploy_util as deploy
import harness

NOBODY = 65534


def require():
    cap.require()
    harness.require_command("setpriv")
    with open("/proc/self/status", encoding="ascii") as f:
        status = dict(line.split(":\t", 1) for line in f if ":\t" in line)
    for bit in (2, 19, 38, 39, 40):
        if not int(status["CapBnd"], 16) >> bit & 1:
            pytest.skip(f"needs capability {bit} to give away")


def words(caps, *command, uid=None):
    return [*deploy.setpriv(caps, uid), *command]


def run(caps, *command, uid=None):
    return subprocess.run(words(caps, *command, uid=uid), capture_output=True, text=True,
                          check=False, timeout=60)


class LeastAgent(cap.Agent):
    """An agent with these capabilities and no others."""

    def __init__(self, procs, folder, caps, uid=None, window="1s", hide=None):
        self.db_path = os.path.join(str(folder), "lanterne.db")
        os.chown(folder, uid or 0, uid or 0)
        own_mounts = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"', hide] if hide else []
        self.process = procs.start(
            *own_mounts, *words(caps, harness.program("lanterne"), "agent", "--db", self.db_path, "--node=n0",
                   "--window", window, "--pid", str(os.getpid()), uid=uid))
        self.process.wait_log(r"tracing with (\w+) links", 30)

    def status(self):
        with open(f"/proc/{self.pid}/status", encoding="ascii") as f:
            return dict(line.rstrip("\n").split(":\t", 1) for line in f if ":\t" in line)


@pytest.fixture
def open_folder():
    """A folder that every user can get to; those of pytest are closed again by each run that starts beside this one."""
    top = pathlib.Path(tempfile.mkdtemp(prefix="ltn-deploy-"))
    top.chmod(0o755)
    folder = top / "data"
    folder.mkdir(mode=0o750)
    yield folder
    shutil.rmtree(top)


def check_job_is_traced(procs, tmp_path, agent):
    """Libraries that the agent finds by itself; from then on every call of two ranks is counted."""
    sim = cap.Sim(procs, tmp_path)
    first = sim.train("--seconds", "60", "--kernel-us", "500")
    harness.wait_until(lambda: agent.op_sums({first.pid}), 20, "calls of a program whose libraries were found")
    job = sim.job(2, "--steps", "60", "--kernel-us", "500")
    storm = sim.train("--storm", "--steps", "3000", "--threads", "2", "--kernel-us", "0")
    cap.finish([*job, storm])
    first.kill()
    agent.stop()
    for p in [*job, storm]:
        want = cap.op_tally(p.tally)
        got = {op: v[0] for op, v in agent.op_sums({p.pid}).items()}
        assert got == want, p
    assert cap.op_tally(storm.tally)["cudaLaunchKernel"] == 6000
    health = agent.health()
    assert not any(health["drops"].values()), health["drops"]


@pytest.mark.parametrize("uid", [None, NOBODY], ids=["root", "nobody"])
@pytest.mark.parametrize("extra", [["CHECKPOINT_RESTORE"], []], ids=["default", "least"])
def test_the_charts_capabilities_are_enough(procs, tmp_path, open_folder, uid, extra):
    require()
    caps = deploy.agent_capabilities("--set-json", f"agent.extraCapabilities={json.dumps(extra)}")
    assert set(caps) == {"bpf", "perfmon", "sys_ptrace", "dac_read_search", *(e.lower() for e in extra)}
    agent = LeastAgent(procs, open_folder, caps, uid)
    status = agent.status()
    held = int(status["CapEff"], 16)
    numbers = {"dac_read_search": 2, "sys_ptrace": 19, "perfmon": 38, "bpf": 39, "checkpoint_restore": 40}
    assert held == sum(1 << numbers[c] for c in caps)
    assert int(status["CapBnd"], 16) == held and status["NoNewPrivs"] == "1"
    assert status["Uid"].split() == [str(uid or 0)] * 4
    assert agent.link_kind in ("session", "multi")
    check_job_is_traced(procs, tmp_path, agent)


def test_libraries_that_only_the_job_can_see(procs, tmp_path, open_folder):
    """As in a container: what the job has mapped lies in no folder that the agent has."""
    require()
    agent = LeastAgent(procs, open_folder, deploy.agent_capabilities("--set-json", "agent.extraCapabilities=[]"),
                       hide=cap.SIM_DIR)
    assert os.listdir(f"/proc/{agent.pid}/root{cap.SIM_DIR}") == [] and os.listdir(cap.SIM_DIR)
    check_job_is_traced(procs, tmp_path, agent)


@pytest.mark.parametrize("uid", [None, NOBODY], ids=["root", "nobody"])
@pytest.mark.parametrize("missing", ["bpf", "perfmon"])
def test_a_vital_capability_is_missing(open_folder, uid, missing):
    require()
    os.chown(open_folder, uid or 0, uid or 0)
    caps = [c for c in deploy.agent_capabilities() if c != missing]
    db = str(open_folder / "lanterne.db")
    got = run(caps, harness.program("lanterne"), "check", "--json", "--db", db, uid=uid)
    findings = {f["name"]: f for f in json.loads(got.stdout)["findings"]}
    assert got.returncode == 1
    assert findings["bpf"]["level"] == findings["programs"]["level"] == "fail"
    assert findings["capabilities"]["level"] == "fail"
    assert findings["capabilities"]["advice"] == f"grant CAP_{missing.upper()}"
    got = run(caps, harness.program("lanterne"), "agent", "--db", db, "--duration", "5s", uid=uid)
    assert got.returncode == 3, got.stderr
    assert "cannot load the kernel programs: Operation not permitted" in got.stderr
    assert "CAP_BPF and CAP_PERFMON are needed" in got.stderr


@pytest.mark.parametrize("missing", ["sys_ptrace", "dac_read_search", "checkpoint_restore"])
def test_a_useful_capability_is_missing(open_folder, missing):
    require()
    os.chown(open_folder, NOBODY, NOBODY)
    caps = [c for c in deploy.agent_capabilities() if c != missing]
    got = run(caps, harness.program("lanterne"), "check", "--json", "--db", str(open_folder / "x.db"), uid=NOBODY)
    findings = {f["name"]: f for f in json.loads(got.stdout)["findings"]}
    assert got.returncode == 0
    assert findings["programs"]["level"] == findings["uprobe"]["level"] == "ok"
    assert findings["capabilities"]["level"] == "warn"
    assert findings["capabilities"]["advice"] == f"grant CAP_{missing.upper()}"


def test_nothing_is_granted(open_folder):
    """What is seen when the securityContext of the chart was thrown away."""
    require()
    os.chown(open_folder, NOBODY, NOBODY)
    got = run([], harness.program("lanterne"), "agent", "--db", str(open_folder / "x.db"), uid=NOBODY)
    assert got.returncode == 3 and "CAP_BPF and CAP_PERFMON are needed" in got.stderr


def probe_passes(command, folder):
    moved = [w.replace("/var/lib/lanterne", str(folder)) for w in command]
    assert moved != command
    return subprocess.run(moved, check=False, timeout=10).returncode == 0


def test_the_charts_probes_know_an_agent_that_writes(procs, open_folder):
    require()
    container = deploy.agent_container(deploy.render())
    probes = [container[f"{k}Probe"]["exec"]["command"] for k in ("startup", "readiness", "liveness")]
    assert not any(probe_passes(p, open_folder) for p in probes)
    agent = LeastAgent(procs, open_folder, deploy.agent_capabilities())
    agent.wait_window(1)
    assert all(probe_passes(p, open_folder) for p in probes)

    def age(minutes):
        then = time.time() - 60 * minutes
        for name in os.listdir(open_folder):
            os.utime(open_folder / name, (then, then))

    # It is the next window that makes the files young again.
    age(60)
    agent.wait_window(1)
    assert all(probe_passes(p, open_folder) for p in probes)
    agent.process.kill()
    age(4)
    assert [probe_passes(p, open_folder) for p in probes] == [False, False, True]
    age(16)
    assert not any(probe_passes(p, open_folder) for p in probes)
