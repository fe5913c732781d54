# SPDX-License-Identifier: Apache-2.0
"""The images: what their Dockerfiles say, and, where there are tools for it, built and run as the chart would."""

import json
import os
import re
import shutil
import subprocess

import pytest

import capture_util as cap
import deploy_util as deploy
import harness

FOLDER = os.path.join(harness.SOURCE_DIR, "deploy", "docker")
NAMES = ("agent", "collector")
BASE = "docker.io/library/debian:12-slim"
TOOLS = ("buildah", "podman", "runc", "mmdebstrap")
IMAGE_LIMIT_BYTES = 260_000_000  # the full base that is built here has 180 MB, the slim one 75


# --- Dockerfiles ----------------------------------------------------------------------------------

def instructions(name):
    """[(instruction, words)] of a Dockerfile, continued lines joined."""
    with open(os.path.join(FOLDER, f"{name}.Dockerfile"), encoding="utf-8") as f:
        lines = [line for line in f.read().splitlines() if not line.startswith("#")]
    text = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    return [tuple(line.split(None, 1)) for line in text.splitlines() if line.strip()]


def last_stage(name):
    found = instructions(name)
    at = max(i for i, (word, _) in enumerate(found) if word == "FROM")
    return found[at:]


@pytest.mark.parametrize("name", NAMES)
def test_dockerfile_rules(name):
    found = instructions(name)
    words = [w for w, _ in found]
    args = dict(rest.split("=", 1) for w, rest in found if w == "ARG")
    assert args["BASE"] == "debian:12-slim"
    assert [rest for w, rest in found if w == "FROM"] == ["${BASE} AS build", "${BASE}"]
    assert "ADD" not in words and "latest" not in json.dumps(found)
    for _, rest in (x for x in found if x[0] == "RUN" and "apt-get install" in x[1]):
        assert "-y --no-install-recommends" in rest and "rm -rf /var/lib/apt/lists/*" in rest
    stage = dict(last_stage(name))
    assert not re.search(r"\b(gcc|clang|cmake|\S+-dev)\b", stage["RUN"])
    assert all(rest.startswith("--from=build ") for w, rest in last_stage(name) if w == "COPY")
    for key in ("title", "description", "version", "revision", "licenses"):
        assert f"org.opencontainers.image.{key}=" in stage["LABEL"]
    assert stage["HEALTHCHECK"].count("--") == 4 and " CMD [" in stage["HEALTHCHECK"]
    assert json.loads(stage["ENTRYPOINT"]) == [f"/usr/bin/lanterne{'-collector' if name == 'collector' else ''}"]
    assert stage["USER"] == ("65532:65532" if name == "collector" else "0:0")


@pytest.mark.parametrize("name", NAMES)
def test_every_library_is_installed(name):
    """What the programs are linked with, by the names of Debian's packages."""
    harness.require_command("readelf")
    harness.require_command("dpkg-query")
    program = harness.program("lanterne" if name == "agent" else "lanterne-collector")
    got = subprocess.run(["readelf", "-d", program], capture_output=True, text=True, check=True)
    needed = re.findall(r"\(NEEDED\).*\[(.*?)\]", got.stdout)
    stage = dict(last_stage(name))["RUN"].split()
    assert "libyaml-0.so.2" in needed
    for library in needed:
        owner = subprocess.run(["dpkg-query", "-S", f"*/{library}"], capture_output=True, text=True, check=False)
        packages = {line.split(":")[0] for line in owner.stdout.splitlines()}
        assert packages & {*stage, "libc6"}, f"{library} is in {packages}"


def test_the_build_stages_are_the_same():
    first, second = (instructions(n)[:-len(last_stage(n))] for n in NAMES)
    assert first == second and len(first) >= 5


def test_health_of_image_and_chart_are_the_same():
    stage = dict(last_stage("agent"))
    health = json.loads(stage["HEALTHCHECK"].split("CMD ", 1)[1])
    assert health == deploy.agent_container(deploy.render())["readinessProbe"]["exec"]["command"]


def test_user_of_image_and_chart_are_the_same():
    spec = deploy.of_kind(deploy.render(), "StatefulSet")[0]["spec"]["template"]["spec"]["securityContext"]
    assert dict(last_stage("collector"))["USER"] == f'{spec["runAsUser"]}:{spec["runAsGroup"]}'


def test_the_build_sees_sources_only():
    with open(os.path.join(harness.SOURCE_DIR, ".dockerignore"), encoding="utf-8") as f:
        lines = [line for line in f.read().splitlines() if line and not line.startswith("#")]
    assert lines[0] == "*"
    allowed = {line[1:] for line in lines if line.startswith("!")}
    assert not allowed & {"build", "tests", "docs", ".git", "deploy"}
    assert all(os.path.exists(os.path.join(harness.SOURCE_DIR, a)) for a in allowed)


def test_linter(tmp_path):
    folder = os.path.join(deploy.CACHE, "dockerfilelint")
    program = os.path.join(folder, "node_modules", "dockerfilelint", "bin", "dockerfilelint")
    if not os.path.exists(program):
        deploy._npm(folder, "install", "--ignore-scripts", "--save-exact", "dockerfilelint@1.8.0")
    for name in NAMES:
        # The linter is older than ARG before FROM and --start-period.
        with open(os.path.join(FOLDER, f"{name}.Dockerfile"), encoding="utf-8") as f:
            text = re.sub(r"^ARG BASE=(.*)\n", "", f.read(), flags=re.M).replace("${BASE}", "debian:12-slim")
            text = re.sub(r"--start-period=\S+ ", "", text)
        (tmp_path / "Dockerfile").write_text(text)
        got = subprocess.run(["node", program, "-o", "json", str(tmp_path / "Dockerfile")], capture_output=True,
                             text=True, check=False, timeout=60)
        issues = json.loads(got.stdout)["files"][0]["issues"]
        assert not issues, issues


# --- images ---------------------------------------------------------------------------------------

class Engine:
    """buildah and podman with a store of their own."""

    def __init__(self, folder):
        self.folder = folder
        conf = os.path.join(folder, "storage.conf")
        with open(conf, "w", encoding="utf-8") as f:
            f.write(f'[storage]\ndriver = "overlay"\ngraphroot = "{folder}/root"\nrunroot = "{folder}/run"\n')
        self.env = {**os.environ, "CONTAINERS_STORAGE_CONF": conf}
        self.containers = []

    def call(self, *words, timeout=60, check=True):
        got = subprocess.run(words, env=self.env, cwd=harness.SOURCE_DIR, capture_output=True, text=True, check=False,
                             timeout=timeout)
        assert not check or got.returncode == 0, f"{words}: {got.stdout[-3000:]}{got.stderr[-3000:]}"
        return got

    def podman(self, *words, **options):
        return self.call("podman", "--runtime", "runc", "--cgroup-manager", "cgroupfs", "--tmpdir",
                         os.path.join(self.folder, "tmp"), *words, **options)

    def run(self, context, image, *args, options=(), detach=False, **more):
        """A container under the securityContext of a rendered pod."""
        # Limits that a machine without CAP_SYS_RESOURCE can set as well.
        words = ["run", "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096", "--network", "none",
                 "--no-healthcheck", *flags(context), *options]
        if detach:
            name = f"ltn-{os.getpid()}-{len(self.containers)}"
            self.containers.append(name)
            self.podman(*words, "--detach", "--name", name, image, *args)
            return name
        return self.podman(*words, "--rm", image, *args, check=False, **more)

    def close(self):
        for name in self.containers:
            self.podman("rm", "-f", "-t", "0", name, check=False)
        self.call("buildah", "umount", "--all", check=False)
        subprocess.run(["umount", os.path.join(self.folder, "root", "overlay")], capture_output=True, check=False)
        shutil.rmtree(self.folder, ignore_errors=True)


def flags(context):
    assert context["privileged"] is False and context["capabilities"]["drop"] == ["ALL"]
    words = ["--cap-drop", "ALL"]
    for c in context["capabilities"].get("add", []):
        words += ["--cap-add", c]
    if not context["allowPrivilegeEscalation"]:
        words += ["--security-opt", "no-new-privileges"]
    if context["readOnlyRootFilesystem"]:
        words += ["--read-only", "--read-only-tmpfs=false"]
    if context.get("seccompProfile", {}).get("type") == "Unconfined":
        words += ["--security-opt", "seccomp=unconfined"]
    return words


def make_base(engine):
    """Debian's own packages as the base image, under the name that the Dockerfiles use."""
    os.makedirs(deploy.CACHE, exist_ok=True)
    tar = os.path.join(deploy.CACHE, "debian-12.tar")
    if not os.path.exists(tar):
        got = engine.call("mmdebstrap", "--variant=minbase", "--quiet", "bookworm", tar + ".part", timeout=240, check=False)
        if got.returncode != 0:
            pytest.skip(f"no base image could be made: {got.stderr.strip()[-300:]}")
        os.rename(tar + ".part", tar)
    name = engine.call("buildah", "from", "scratch").stdout.strip()
    engine.call("buildah", "add", "-q", name, tar, "/")
    engine.call("buildah", "config", "--cmd", "bash", name)
    engine.call("buildah", "commit", "-q", name, BASE)
    engine.call("buildah", "rm", name)


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    """Both images, built from the tree as it is."""
    if not os.environ.get("LTN_TEST_IMAGES"):
        pytest.skip("building images takes minutes: asked for by LTN_TEST_IMAGES=1")
    harness.require_root()
    missing = [t for t in TOOLS if shutil.which(t) is None]
    if missing:
        pytest.skip(f"images are neither built nor run here: needs {', '.join(missing)}")
    e = Engine(str(tmp_path_factory.mktemp("containers")))
    try:
        make_base(e)
        for name in NAMES:
            got = e.call("buildah", "bud", "--format", "docker", "--pull-never", "--isolation", "chroot", "--network", "host",
                         "--layers", "--build-arg", "REVISION=test", "-f", f"deploy/docker/{name}.Dockerfile",
                         "-t", f"localhost/lanterne-{name}:test", ".", timeout=480, check=False)
            if got.returncode != 0 and "Unable to fetch" in got.stdout + got.stderr:
                pytest.skip(f"the package mirror cannot be reached from a build: {got.stderr[-300:]}")
            assert got.returncode == 0, got.stdout[-3000:] + got.stderr[-3000:]
        yield e
    finally:
        e.close()


def image(name):
    return f"localhost/lanterne-{name}:test"


@pytest.mark.parametrize("name", NAMES)
def test_image(engine, name):
    found = json.loads(engine.podman("image", "inspect", image(name)).stdout)[0]
    config = found["Config"]
    assert config["User"] == dict(last_stage(name))["USER"]
    assert config["Labels"]["org.opencontainers.image.revision"] == "test"
    assert config["Labels"]["org.opencontainers.image.version"] == "0.1.0"
    assert found["Size"] < IMAGE_LIMIT_BYTES
    stage = dict(last_stage(name))
    assert found["Healthcheck"]["Test"] == ["CMD", *json.loads(stage["HEALTHCHECK"].split("CMD ", 1)[1])]
    context = {"privileged": False, "capabilities": {"drop": ["ALL"]}, "allowPrivilegeEscalation": False,
               "readOnlyRootFilesystem": True}
    got = engine.run(context, image(name), "version")
    assert got.returncode == 0 and got.stdout.startswith("lanterne"), got.stdout + got.stderr
    got = engine.run(context, image(name), "-c", "command -v gcc clang cmake bpftool; ls -d /src;"
                     " test -s /usr/share/doc/lanterne/LICENSE || echo no licence", options=["--entrypoint", "bash"])
    assert got.stdout == "", got.stdout


def test_the_collector_wants_a_token(engine):
    spec = deploy.of_kind(deploy.render(), "StatefulSet")[0]["spec"]["template"]["spec"]
    got = engine.run(spec["containers"][0]["securityContext"], image("collector"))
    assert got.returncode == 2 and "give --token-file" in got.stderr


def config_file(docs, component, folder):
    data = next(d["data"] for d in deploy.of_kind(docs, "ConfigMap") if f"{component}.yaml" in d["data"])
    path = folder / f"{component}.yaml"
    path.write_text(data[f"{component}.yaml"])
    return path


def test_the_collector_runs_as_the_chart_says(engine, tmp_path):
    docs = deploy.render()
    spec = deploy.of_kind(docs, "StatefulSet")[0]["spec"]["template"]["spec"]
    container = spec["containers"][0]
    uid, gid = spec["securityContext"]["runAsUser"], spec["securityContext"]["fsGroup"]
    data, token = tmp_path / "data", tmp_path / "token"
    data.mkdir()
    data.chmod(0o770)
    os.chown(data, 0, gid)  # as fsGroup makes it
    token.write_text("secret-1\n")
    os.chown(token, 0, gid)
    token.chmod(0o440)
    config = config_file(docs, "collector", tmp_path)
    name = engine.run(container["securityContext"], image("collector"), *container["args"], detach=True, options=[
        "--user", f"{uid}:{gid}", "-v", f"{data}:/var/lib/lanterne", "-v", f"{token}:/etc/lanterne/token/token:ro",
        "-v", f"{config}:/etc/lanterne/config/collector.yaml:ro", "--tmpfs", "/tmp"])
    health = json.loads(dict(last_stage("collector"))["HEALTHCHECK"].split("CMD ", 1)[1])

    def healthy():
        return engine.podman("exec", name, *health, check=False).returncode == 0
    try:
        harness.wait_until(healthy, 20, "the health check of the image", 0.2)
    except harness.WaitTimeout:
        raise AssertionError(engine.podman("logs", name, check=False).stderr) from None
    # What the test pod of the chart does.
    pod = deploy.of_kind(docs, "Pod")[0]["spec"]["containers"][0]
    args = [re.sub(r"http://[^:]*:", "http://127.0.0.1:", a) for a in pod["args"]]
    got = engine.podman("exec", name, "lanterne-collector", *args, check=False)
    assert got.returncode == 0, got.stdout + got.stderr
    got = engine.podman("exec", name, "lanterne-collector", *[a for a in args if "token" not in a], check=False)
    assert got.returncode != 0 and "token" in got.stderr
    engine.podman("stop", "-t", "20", name)
    assert json.loads(engine.podman("inspect", name).stdout)[0]["State"]["ExitCode"] == 0
    assert (data / "collector.db").exists()


def test_the_agent_traces_from_its_container(engine, procs, tmp_path):
    """What the node runs is found, named and counted from a container with the chart's rights."""
    cap.require()
    docs = deploy.render(None, "--set", "agent.seccompProfile.type=Unconfined", "--set", "window=1s")
    container = deploy.agent_container(docs)
    data = tmp_path / "data"
    data.mkdir(mode=0o755)
    (tmp_path / "token").write_text("secret-1\n")
    config = config_file(docs, "agent", tmp_path)
    args = [a.replace("$(NODE_NAME)", "gpu-17") for a in container["args"]]
    name = engine.run(container["securityContext"], image("agent"), *args, "--pid", str(os.getpid()), detach=True, options=[
        "--pid", "host", "-v", f"{data}:/var/lib/lanterne", "-v", "/sys/kernel/btf:/sys/kernel/btf:ro",
        "-v", f"{tmp_path}/token:/etc/lanterne/token/token:ro",
        "-v", f"{config}:/etc/lanterne/config/agent.yaml:ro", "--tmpfs", "/tmp"])
    agent = object.__new__(cap.Agent)
    agent.db_path = str(data / "lanterne.db")
    probe = container["readinessProbe"]["exec"]["command"]
    try:
        harness.wait_until(lambda: engine.podman("exec", name, *probe, check=False).returncode == 0, 30,
                           "the agent's readiness", 0.2)
    except harness.WaitTimeout:
        raise AssertionError(engine.podman("logs", name, check=False).stderr) from None
    sim = cap.Sim(procs, tmp_path)
    first = sim.train("--seconds", "60", "--kernel-us", "500")
    harness.wait_until(lambda: agent.op_sums({first.pid}), 20, "calls of a program whose libraries were found")
    job = sim.job(2, "--steps", "60", "--kernel-us", "500")
    cap.finish(job)
    first.kill()
    engine.podman("stop", "-t", "60", name)
    assert json.loads(engine.podman("inspect", name).stdout)[0]["State"]["ExitCode"] == 0
    for p in job:
        assert {op: v[0] for op, v in agent.op_sums({p.pid}).items()} == cap.op_tally(p.tally)
    assert agent.value("SELECT count(*) FROM procs WHERE rank IN (0, 1)") >= 2


def test_the_agent_says_when_the_runtime_blocks_bpf(engine):
    """Under the engine's own seccomp profile it either works, or names the profile."""
    cap.require()
    container = deploy.agent_container(deploy.render())
    got = engine.run(container["securityContext"], image("agent"), "check", options=["--pid", "host"])
    if got.returncode == 0:
        assert "a probe on a function of our own fired" in got.stdout
    else:
        assert got.returncode == 1 and "the seccomp profile blocks the bpf system call" in got.stdout, got.stdout
