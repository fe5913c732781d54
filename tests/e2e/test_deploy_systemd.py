# SPDX-License-Identifier: Apache-2.0
"""cmake --install, and the units: verified by systemd, and the programs at work under their rights and filters."""

import ctypes
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

import pytest

import capture_util as cap
import deploy_util as deploy
import harness

NOBODY = 65534
FILTER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "deploy_filter.py")
UNITS = ("lanterne.service", "lanterne-collector.service")
# What systemd makes of the agent is "OK" at most; the collector must be tighter.
EXPOSURE = {"lanterne.service": 35, "lanterne-collector.service": 15}


def install(prefix, destdir=""):
    harness.require_command("cmake")
    env = {k: v for k, v in os.environ.items() if k != "DESTDIR"}
    if destdir:
        env["DESTDIR"] = str(destdir)
    got = subprocess.run(["cmake", "--install", harness.BUILD_DIR, "--prefix", str(prefix)], env=env,
                         capture_output=True, text=True, check=False, timeout=60)
    assert got.returncode == 0, got.stdout + got.stderr


@pytest.fixture
def installed(tmp_path):
    install(tmp_path / "usr")
    return tmp_path / "usr"


def read_unit(path):
    """{key: [values]} of all sections; an empty value clears what was before, as systemd does."""
    keys, section = {}, None
    with open(path, encoding="utf-8") as f:
        for line in f.read().splitlines():
            if not line or line.startswith("#"):
                continue
            if line.startswith("["):
                section = line.strip("[]")
                continue
            assert section in ("Unit", "Service", "Install"), line
            key, value = line.split("=", 1)
            keys.setdefault(key, []).append(value)
    return keys


def require_systemd():
    harness.require_command("systemd-analyze")


def test_install_under_destdir(tmp_path):
    install("/usr", tmp_path)
    root = str(tmp_path)
    found = {os.path.join(d, f)[len(root):] for d, _, files in os.walk(root) for f in files}
    assert {"/usr/bin/lanterne", "/usr/bin/lanterne-collector", "/usr/share/doc/lanterne/README.md",
            "/usr/share/doc/lanterne/LICENSE", "/usr/share/doc/lanterne/docs/install.md",
            "/usr/share/doc/lanterne/LICENSES/GPL-2.0-only.txt",
            "/usr/share/lanterne/helm/lanterne/Chart.yaml",
            *(f"/usr/lib/systemd/system/{u}" for u in UNITS)} <= found
    for part in ("docs", "deploy/grafana"):
        here = os.path.join(harness.SOURCE_DIR, part)
        under = "/usr/share/doc/lanterne" if part == "docs" else "/usr/share/lanterne"
        for d, _, files in os.walk(here):
            for f in files:
                rel = os.path.relpath(os.path.join(d, f), os.path.dirname(here))
                assert f"{under}/{rel}" in found
    # Nothing of the tests or for developers, and nothing that names the folder it was staged in.
    assert not [f for f in found if f.endswith((".py", ".c", ".h", ".a", ".cmake"))]
    assert [f for f in found if f.startswith("/usr/lib/") and not f.startswith("/usr/lib/systemd/system/")] == []
    assert {os.path.basename(f) for f in found if f.startswith("/usr/bin/")} == {"lanterne", "lanterne-collector"}
    for unit in UNITS:
        with open(f"{root}/usr/lib/systemd/system/{unit}", encoding="utf-8") as f:
            text = f.read()
        assert root not in text and "@" not in re.sub(r"@[a-z-]+", "", text)
        assert "ExecStart=/usr/bin/lanterne" in text
    got = subprocess.run([f"{root}/usr/bin/lanterne", "version"], capture_output=True, text=True, check=False)
    assert got.returncode == 0 and got.stdout.startswith("lanterne ")


def test_links_in_units_exist(installed):
    for unit in UNITS:
        for value in read_unit(installed / "lib/systemd/system" / unit)["Documentation"]:
            assert os.path.exists(value.removeprefix("file://")), value


@pytest.mark.parametrize("unit", UNITS)
def test_systemd_takes_the_units(installed, unit):
    require_systemd()
    path = str(installed / "lib/systemd/system" / unit)
    got = subprocess.run(["systemd-analyze", "verify", "--man=no", path], capture_output=True, text=True,
                         check=False, timeout=60)
    # Units of the machine may have faults of their own.
    own = [line for line in (got.stdout + got.stderr).splitlines() if "lanterne" in line]
    assert not own, own
    got = subprocess.run(["systemd-analyze", "security", "--offline=yes", "--no-pager",
                          f"--threshold={EXPOSURE[unit]}", path], capture_output=True, text=True, check=False,
                         timeout=60)
    assert got.returncode == 0, got.stdout[-300:] + got.stderr


def test_systemd_would_see_a_mistake(installed):
    require_systemd()
    path = installed / "lib/systemd/system" / UNITS[0]
    path.write_text(path.read_text().replace("ProtectSystem=strict", "ProtectSystemm=strict"))
    got = subprocess.run(["systemd-analyze", "verify", "--man=no", str(path)], capture_output=True, text=True,
                         check=False, timeout=60)
    assert "ProtectSystemm" in got.stdout + got.stderr


def unit_caps(unit):
    caps = unit["CapabilityBoundingSet"][0].split()
    assert unit["AmbientCapabilities"][0].split() == caps
    return [c.removeprefix("CAP_").lower() for c in caps]


def test_units_and_chart_grant_the_same(installed):
    folder = installed / "lib/systemd/system"
    assert set(unit_caps(read_unit(folder / UNITS[0]))) == set(deploy.agent_capabilities())
    assert unit_caps(read_unit(folder / UNITS[1])) == []


@pytest.mark.parametrize("unit", UNITS)
def test_rules_of_the_units(installed, unit):
    keys = read_unit(installed / "lib/systemd/system" / unit)
    single = {k: v[0] for k, v in keys.items() if len(v) == 1}
    want = {"DynamicUser": "yes", "NoNewPrivileges": "yes", "ProtectSystem": "strict", "PrivateTmp": "yes",
            "RestrictNamespaces": "yes", "SystemCallArchitectures": "native", "RestrictSUIDSGID": "yes"}
    assert want.items() <= single.items()
    assert single["StateDirectory"] == unit.removesuffix(".service")
    assert {"MemoryMax", "TasksMax", "TimeoutStopSec"} <= set(single)
    assert single["ExecStart"].split()[0] == str(installed / "bin" / unit.removesuffix(".service"))
    assert os.access(single["ExecStart"].split()[0], os.X_OK)
    assert "@system-service" in keys["SystemCallFilter"][0].split()


def confined(unit, command):
    """Command words that run it with the rights and the system call filter of the unit."""
    try:
        ctypes.CDLL("libseccomp.so.2")
    except OSError:
        pytest.skip("needs libseccomp2")
    return [*deploy.setpriv(unit_caps(unit), NOBODY), "/usr/bin/python3", "-B", FILTER, *unit["SystemCallFilter"], "--",
            *command]


@pytest.fixture
def open_folder():
    """A folder that every user can get to; those of pytest are closed again by each run that starts beside this one."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="ltn-deploy-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def state_folder(parent):
    """What StateDirectory= makes."""
    folder = parent / "state"
    folder.mkdir(mode=0o750)
    os.chown(folder, NOBODY, NOBODY)
    return folder


def test_the_agent_works_as_its_unit_confines_it(procs, tmp_path, open_folder):
    require_systemd()
    cap.require()
    install(open_folder)
    unit = read_unit(open_folder / "lib/systemd/system" / UNITS[0])
    data = state_folder(open_folder)
    command = unit["ExecStart"][0].split()
    agent = object.__new__(cap.Agent)
    agent.db_path = str(data / "lanterne.db")
    agent.process = procs.start(
        *confined(unit, [*command, "--db", agent.db_path, "--node", "n0", "--window", "1s", "--pid", str(os.getpid()),
                         *(w for lib in cap.SIM_LIBS for w in ("--cuda-lib", lib))]))
    agent.process.wait_log(r"tracing with (\w+) links", 30)
    with open(f"/proc/{agent.pid}/status", encoding="ascii") as f:
        assert "Seccomp:\t2" in f.read()
    sim = cap.Sim(procs, tmp_path)
    job = sim.job(2, "--steps", "60", "--kernel-us", "500")
    cap.finish(job)
    agent.stop()
    for p in job:
        assert {op: v[0] for op, v in agent.op_sums({p.pid}).items()} == cap.op_tally(p.tally)
    assert agent.value("SELECT count(*) FROM procs WHERE rank IN (0, 1)") == 2


def test_a_filter_without_bpf_is_named(tmp_path, installed):
    require_systemd()
    cap.require()
    unit = read_unit(installed / "lib/systemd/system" / UNITS[0])
    unit["SystemCallFilter"] = ["@system-service"]
    got = subprocess.run(confined(unit, [harness.program("lanterne"), "check", "--db", "/tmp/x.db"]),
                         capture_output=True, text=True, check=False, timeout=60)
    assert got.returncode == 1 and "the seccomp profile blocks the bpf system call" in got.stdout, got.stdout


def test_the_collector_works_as_its_unit_confines_it(procs, open_folder):
    require_systemd()
    harness.require_root()
    install(open_folder)
    unit = read_unit(open_folder / "lib/systemd/system" / UNITS[1])
    data = state_folder(open_folder)
    port, otlp = harness.free_port(), harness.free_port()
    config = data / "c.yaml"
    config.write_text(f"api: {{listen: '127.0.0.1:{port}'}}\notlp: {{listen: ['127.0.0.1:{otlp}']}}\n")
    name, value = unit["Environment"][0].split("=", 1)
    assert (name, value) == ("LANTERNE_DB", "/var/lib/lanterne-collector/collector.db")
    p = procs.start(*confined(unit, unit["ExecStart"][0].split()),
                    env={name: str(data / "collector.db"), "LANTERNE_CONFIG": str(config)})
    p.wait_port(port, timeout_s=20)
    assert harness.http_get(f"http://127.0.0.1:{port}/readyz")[0] == 200
    with open(f"/proc/{p.pid}/status", encoding="ascii") as f:
        status = f.read()
    assert "CapEff:\t0000000000000000" in status and "Seccomp:\t2" in status
    assert p.stop(20) == 0
    assert os.path.exists(data / "collector.db")
