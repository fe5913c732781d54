# SPDX-License-Identifier: Apache-2.0
"""What no object of the chart may have, and what each must: rights, mounts, probes, resources, selectors."""

import os
import re

import pytest

import deploy_util as deploy

DEFAULT_CAPABILITIES = {"BPF", "PERFMON", "SYS_PTRACE", "DAC_READ_SEARCH", "CHECKPOINT_RESTORE"}
ALLOWED_CAPABILITIES = DEFAULT_CAPABILITIES | {"SYSLOG", "SYS_ADMIN"}
# Path on the node: whether it may be written.
HOST_PATHS = {"/sys/kernel/btf": False, "/var/lib/lanterne": True}
KINDS = {"DaemonSet", "StatefulSet", "Service", "ServiceAccount", "ConfigMap", "Secret", "NetworkPolicy",
         "PodDisruptionBudget", "ServiceMonitor", "PrometheusRule", "Pod"}


@pytest.fixture(params=deploy.CI_VALUES, ids=os.path.basename)
def docs(request):
    return deploy.render(request.param)


def pods(docs):
    """(name, pod spec, labels of the pod) of everything that runs."""
    for d in docs:
        if d["kind"] == "Pod":
            yield d["metadata"]["name"], d["spec"], d["metadata"]["labels"]
        elif d["kind"] in ("DaemonSet", "StatefulSet"):
            template = d["spec"]["template"]
            yield d["metadata"]["name"], template["spec"], template["metadata"]["labels"]


def containers(docs):
    for name, spec, _ in pods(docs):
        for c in [*spec.get("initContainers", []), *spec["containers"]]:
            yield name, spec, c


def test_kinds(docs):
    """Neither program talks to the API server, so there is nothing to grant: no Role of any kind."""
    assert {d["kind"] for d in docs} <= KINDS


def test_no_pod_holds_a_token_of_the_cluster(docs):
    for d in deploy.of_kind(docs, "ServiceAccount"):
        assert d["automountServiceAccountToken"] is False
    accounts = {d["metadata"]["name"] for d in deploy.of_kind(docs, "ServiceAccount")}
    for name, spec, _ in pods(docs):
        assert spec["automountServiceAccountToken"] is False, name
        assert spec["enableServiceLinks"] is False, name
        if "serviceAccountName" in spec:
            assert spec["serviceAccountName"] in accounts


def test_containers_are_confined(docs):
    seen = 0
    for name, spec, c in containers(docs):
        seen += 1
        s = c["securityContext"]
        assert s["privileged"] is False, name
        assert s["allowPrivilegeEscalation"] is False, name
        assert s["readOnlyRootFilesystem"] is True, name
        assert s["capabilities"]["drop"] == ["ALL"], name
        added = s["capabilities"].get("add", [])
        assert len(set(added)) == len(added) and set(added) <= ALLOWED_CAPABILITIES, name
        profile = s.get("seccompProfile") or spec.get("securityContext", {}).get("seccompProfile")
        assert profile["type"] in ("RuntimeDefault", "Localhost", "Unconfined"), name
        for field in ("hostNetwork", "hostIPC", "shareProcessNamespace"):
            assert not spec.get(field), name
        assert not any("hostPort" in p for p in c.get("ports", [])), name
        if c["name"] != "agent":
            assert not added and not spec.get("hostPID"), name
            assert s["runAsNonRoot"] is True, name
            pod = spec["securityContext"]
            assert pod["runAsNonRoot"] is True and pod["runAsUser"] > 0 and pod["runAsGroup"] > 0, name
            assert profile["type"] == "RuntimeDefault", name
    assert seen >= 1


def test_defaults_grant_no_more_than_they_say():
    context = deploy.agent_container(deploy.render())["securityContext"]
    assert set(context["capabilities"]["add"]) == DEFAULT_CAPABILITIES
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    spec = deploy.agent_daemonset(deploy.render())["spec"]["template"]["spec"]
    assert spec["hostPID"] is True and "priorityClassName" not in spec


def test_host_paths(docs):
    for name, spec, c in containers(docs):
        volumes = {v["name"]: v for v in spec.get("volumes", [])}
        mounts = {m["name"]: m for m in c.get("volumeMounts", [])}
        claims = {t["metadata"]["name"] for d in deploy.of_kind(docs, "StatefulSet")
                  for t in d["spec"].get("volumeClaimTemplates", [])}
        assert set(volumes) <= set(mounts) and set(mounts) <= set(volumes) | claims, name
        paths = [m["mountPath"] for m in mounts.values()]
        assert len(set(paths)) == len(paths)
        for v in volumes.values():
            if "hostPath" in v:
                path = v["hostPath"]["path"]
                assert c["name"] == "agent" and path in HOST_PATHS, path
                assert mounts[v["name"]].get("readOnly", False) is not HOST_PATHS[path], path
                assert v["hostPath"]["type"] in ("Directory", "DirectoryOrCreate")
                assert "mountPropagation" not in mounts[v["name"]]
            if "secret" in v:
                assert v["secret"]["defaultMode"] & 0o007 == 0
                assert mounts[v["name"]]["readOnly"] is True


def test_resources(docs):
    for name, _, c in containers(docs):
        r = c["resources"]
        assert {"cpu", "memory"} <= set(r["requests"]), name
        assert "memory" in r["limits"], name


def test_memory_limit_leaves_room_for_the_kernel_maps():
    """Maps take about 8 MiB and the ring; the agent some tens of MiB."""
    limit = deploy.agent_container(deploy.render())["resources"]["limits"]["memory"]
    assert limit.endswith("Mi") and int(limit[:-2]) >= 256


def test_probes(docs):
    for name, _, c in containers(docs):
        probes = [c[p] for p in ("startupProbe", "readinessProbe", "livenessProbe") if p in c]
        if c["name"] == "status" or (c["name"] == "agent" and not probes):
            continue
        assert len(probes) == 3, name
        for p in probes:
            assert p["timeoutSeconds"] >= 5, name
            assert p.get("periodSeconds", 10) >= 5, name
            assert set(p) & {"exec", "httpGet"}, name
        live = c["livenessProbe"]
        assert live["periodSeconds"] * live["failureThreshold"] >= 60, name
        start = c["startupProbe"]
        assert start["periodSeconds"] * start["failureThreshold"] >= 120, name


def test_probes_are_on_by_default():
    assert all(f"{p}Probe" in deploy.agent_container(deploy.render()) for p in ("startup", "readiness", "liveness"))


def test_images_are_pinned(docs):
    for name, _, c in containers(docs):
        assert re.search(r":[A-Za-z0-9_][\w.-]*$|@sha256:[0-9a-f]{64}$", c["image"]), c["image"]
        assert not c["image"].endswith(":latest"), name
        assert c["imagePullPolicy"] in ("Always", "IfNotPresent", "Never")


def test_selectors_fit(docs):
    labels = {name: l for name, _, l in pods(docs)}
    for d in docs:
        if d["kind"] in ("DaemonSet", "StatefulSet"):
            assert d["spec"]["selector"]["matchLabels"].items() <= labels[d["metadata"]["name"]].items()
        selectors = []
        if d["kind"] == "Service":
            selectors = [d["spec"]["selector"]]
        elif d["kind"] == "PodDisruptionBudget":
            selectors = [d["spec"]["selector"]["matchLabels"]]
        elif d["kind"] == "NetworkPolicy":
            selectors = [d["spec"]["podSelector"]["matchLabels"]]
        for s in selectors:
            chosen = [n for n, l in labels.items() if s.items() <= l.items()]
            assert len(chosen) == 1, (d["kind"], d["metadata"]["name"], chosen)
            if d["kind"] == "Service":
                ports = {p["name"] for n, _, c in containers(docs) if n == chosen[0] for p in c.get("ports", [])}
                assert {p["targetPort"] for p in d["spec"]["ports"]} == ports
            else:
                assert d["metadata"]["name"] == chosen[0]


def test_the_headless_service_is_the_one_named(docs):
    services = {d["metadata"]["name"]: d for d in deploy.of_kind(docs, "Service")}
    for d in deploy.of_kind(docs, "StatefulSet"):
        assert services[d["spec"]["serviceName"]]["spec"]["clusterIP"] == "None"
        assert d["spec"]["replicas"] == 1
    for s in services.values():
        assert s["spec"].get("type", "ClusterIP") in ("ClusterIP", "LoadBalancer", "NodePort")
    if services:
        kinds = [s["spec"].get("clusterIP") for s in services.values()]
        assert sorted(kinds, key=lambda k: k or "") == [None, "None"]


def test_network_policies():
    docs = deploy.render()
    policies = {d["metadata"]["name"]: d["spec"] for d in deploy.of_kind(docs, "NetworkPolicy")}
    assert len(policies) == 2
    agent = policies["lt-lanterne-agent"]
    assert agent["policyTypes"] == ["Ingress"] and "ingress" not in agent
    agent_labels = next(l for n, _, l in pods(docs) if n == "lt-lanterne-agent")
    for rule in policies["lt-lanterne-collector"]["ingress"]:
        assert rule["from"] and rule["ports"]
        if any(p["port"] == 4317 for p in rule["ports"]):
            assert [p["podSelector"]["matchLabels"].items() <= agent_labels.items() for p in rule["from"]] == [True]


def test_configuration_changes_restart_the_pods():
    def checksums(*options):
        docs = deploy.render(None, *options)
        return [d["spec"]["template"]["metadata"]["annotations"] for d in docs if d["kind"] in ("DaemonSet", "StatefulSet")]
    before, window, token = checksums(), checksums("--set", "window=5s"), checksums("--set", "auth.token=x")
    for a, b, c in zip(before, window, token):
        assert a["checksum/config"] != b["checksum/config"]
        assert a["checksum/token"] != c["checksum/token"]
    assert before == checksums()
