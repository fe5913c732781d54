# SPDX-License-Identifier: Apache-2.0
"""The Helm chart: lint, renders, refusals, real programs on its configuration, and what each object may contain."""

import base64
import glob
import json
import os
import re
import shutil
import subprocess

import pytest

import deploy_util as deploy
import harness

KUBE_VERSIONS = ("1.25.0", "1.27.3", "1.30.0", "1.34.1", "1.37.0")
FULL = os.path.join(deploy.CHART, "ci", "full-values.yaml")
MINIMAL = os.path.join(deploy.CHART, "ci", "minimal-values.yaml")


def value_sets(function):
    return pytest.mark.parametrize("values", deploy.CI_VALUES, ids=os.path.basename)(function)


def both_helms(function):
    return pytest.mark.parametrize("major", sorted(deploy.HELMS))(function)


# --- Helm itself ----------------------------------------------------------------------------------

def test_there_are_value_sets():
    assert len(deploy.CI_VALUES) >= 4


@both_helms
@value_sets
def test_lint(values, major):
    code, out, err = deploy.run_helm("lint", "--strict", deploy.CHART, "-f", values, major=major)
    assert code == 0, out + err
    assert "[WARNING]" not in out and "[ERROR]" not in out, out


def nulls(value, path=""):
    if value is None:
        yield path
    elif isinstance(value, dict):
        for k, v in value.items():
            yield from nulls(v, f"{path}.{k}")
    elif isinstance(value, list):
        for i, v in enumerate(value):
            yield from nulls(v, f"{path}[{i}]")


@pytest.mark.parametrize("kube", KUBE_VERSIONS)
@value_sets
def test_renders_for_each_kubernetes(values, kube):
    text = deploy.render_text(values, "--kube-version", kube)
    docs = deploy.parse(text)
    assert docs
    for d in docs:
        assert list(nulls(d)) == [], d["metadata"]["name"]
        assert d["metadata"]["namespace"] == deploy.NAMESPACE
        assert d["metadata"]["labels"]["app.kubernetes.io/instance"] == deploy.RELEASE
    names = [(d["kind"], d["metadata"]["name"]) for d in docs]
    assert len(set(names)) == len(names)
    assert not re.search(r"[ \t]+$|<no value>|\{\{ *\.", text, re.M)


@value_sets
def test_both_helms_render_the_same(values):
    def fixed(docs):
        for d in deploy.of_kind(docs, "Secret"):
            d["data"] = {k: "x" for k in d["data"]}
        return sorted(docs, key=lambda d: (d["kind"], d["metadata"]["name"]))
    assert fixed(deploy.render(values)) == fixed(deploy.render(values, major=4))


def test_an_old_kubernetes_is_refused():
    code, _, err = deploy.run_helm("template", "x", deploy.CHART, "--kube-version", "1.24.9")
    assert code != 0 and "kubeVersion" in err


WRONG = [
    ("agent.privilegd=true", "privilegd"),
    ("agent.privileged=true", "privileged"),
    ("agents.enabled=true", "agents"),
    ("agent.image.tga=1", "tga"),
    ("agent.image.tag=latest", "tag"),
    ("agent.image.digest=sha256:12", "digest"),
    ("agent.extraCapabilities={NET_ADMIN}", "extraCapabilities"),
    ("agent.extraCapabilities={ALL}", "extraCapabilities"),
    ("agent.seccompProfile.type=None", "seccompProfile"),
    ("agent.resources.limits.memory=lots", "memory"),
    ("agent.dataPath=relative", "dataPath"),
    ("agent.dataPath=/var/../etc", "dataPath"),
    ("agent.extraEnv[0].name=NODE_NAME", "extraEnv"),
    ("window=10", "window"),
    ("window=10m", "window"),
    ("collector.replicas=2", "replicas"),
    ("collector.persistence.size=big", "size"),
    ("collector.podDisruptionBudget.maxUnavailable=3", "maxUnavailable"),
    ("networkPolicy.enabled=yes please", "networkPolicy"),
    ("serviceMonitor.intervall=30s", "intervall"),
    ("auth.secretkey=x", "secretkey"),
]


@both_helms
@pytest.mark.parametrize("setting,named", WRONG, ids=[w[0] for w in WRONG])
def test_wrong_values_are_refused(setting, named, major):
    code, _, err = deploy.run_helm("template", "x", deploy.CHART, "--set", setting, major=major)
    assert code != 0
    assert named in err and "schema" in err, err


def schema_of(schema, node):
    if "$ref" in node:
        return schema["definitions"][node["$ref"].rsplit("/", 1)[1]]
    return node


def compare(schema, node, value, path):
    """Values and schema name the same things, at every depth."""
    node = schema_of(schema, node)
    if not isinstance(value, dict) or "properties" not in node:
        return
    assert node["additionalProperties"] is False, path
    assert set(node["properties"]) == set(value), path
    for k, v in value.items():
        compare(schema, node["properties"][k], v, f"{path}.{k}")


def test_schema_and_values_name_the_same():
    with open(os.path.join(deploy.CHART, "values.schema.json"), encoding="utf-8") as f:
        schema = json.load(f)
    with open(os.path.join(deploy.CHART, "values.yaml"), encoding="utf-8") as f:
        values = deploy.yaml.safe_load(f)
    assert schema["$schema"] == "http://json-schema.org/draft-07/schema#"
    compare(schema, schema, values, "")


@both_helms
def test_as_part_of_another_chart(tmp_path, major):
    parent = tmp_path / "parent"
    (parent / "charts").mkdir(parents=True)
    shutil.copytree(deploy.CHART, parent / "charts" / "lanterne")
    (parent / "Chart.yaml").write_text(
        "apiVersion: v2\nname: parent\nversion: 1.0.0\n"
        "dependencies: [{name: lanterne, version: 0.1.0, condition: lanterne.enabled}]\n")
    (parent / "values.yaml").write_text("global: {region: x}\nlanterne: {enabled: true, clusterName: sub}\n")
    docs = deploy.render(chart=str(parent), major=major)
    assert "sub" in config_of(docs, "agent")
    code, out, err = deploy.run_helm("template", "x", str(parent), "--set", "lanterne.enabled=false", major=major)
    assert code == 0 and not deploy.parse(out), err


def test_package_holds_what_is_needed_and_no_more(tmp_path):
    code, out, err = deploy.run_helm("package", deploy.CHART, "-d", str(tmp_path))
    assert code == 0, out + err
    got = subprocess.run(["tar", "tzf", *glob.glob(str(tmp_path / "*.tgz"))], capture_output=True, text=True, check=True)
    names = got.stdout.split()
    assert "lanterne/values.schema.json" in names and "lanterne/files/rules.yaml" in names
    assert not any("/ci/" in n for n in names)


@pytest.mark.parametrize("values", [None, FULL, MINIMAL], ids=["default", "full", "minimal"])
def test_notes(values):
    options = ["-f", values] if values else []
    code, out, err = deploy.run_helm("install", deploy.RELEASE, deploy.CHART, "-n", deploy.NAMESPACE,
                                     "--dry-run=client", *options, major=4)
    assert code == 0, err
    notes = out.split("NOTES:", 1)[1]
    assert f"daemonset/{'fleet' if values == FULL else 'lt-lanterne'}-agent" in notes
    assert ("lanterne-collector status" in notes) == (values != MINIMAL)
    assert ("DESIRED 0" in notes) == (values != MINIMAL)


# --- objects --------------------------------------------------------------------------------------

MODULES = {"v1": "kubernetes-models/v1", "apps/v1": "kubernetes-models/apps/v1",
           "policy/v1": "kubernetes-models/policy/v1",
           "networking.k8s.io/v1": "kubernetes-models/networking.k8s.io/v1",
           "monitoring.coreos.com/v1": "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1"}


def all_docs():
    """Every object of every value set."""
    return [d for v in deploy.CI_VALUES for d in deploy.render(v)]


def validate(docs, folder):
    """(complaints of the schemas, complaints about unknown fields)."""
    for link in ("node_modules", "package.json"):
        if not os.path.exists(os.path.join(folder, link)):
            os.symlink(os.path.join(deploy.models(), link), os.path.join(folder, link))
    script, types = [], []
    for i, d in enumerate(docs):
        module = f'{MODULES[d["apiVersion"]]}/{d["kind"]}'
        name = f'{d["kind"]}/{d["metadata"]["name"]}'
        script.append(f'import {{ {d["kind"]} as K{i} }} from "{module}";\n'
                      f'try {{ new K{i}({json.dumps(d)}).validate(); }}\n'
                      f'catch (e) {{ console.log({json.dumps(name)}, e.message); }}\n')
        types.append(f'import {{ I{d["kind"]} as T{i} }} from "{module}";\n'
                     f'export const v{i}: T{i} = {json.dumps(d, indent=1)};\n')
    with open(os.path.join(folder, "v.mjs"), "w", encoding="utf-8") as f:
        f.writelines(script)
    with open(os.path.join(folder, "v.ts"), "w", encoding="utf-8") as f:
        f.writelines(types)
    schema = subprocess.run(["node", "v.mjs"], cwd=folder, capture_output=True, text=True, check=False, timeout=60)
    assert schema.returncode == 0, schema.stderr
    strict = subprocess.run(
        ["node", "node_modules/typescript/bin/tsc", "--noEmit", "--strict", "--skipLibCheck", "--module", "esnext",
         "--moduleResolution", "bundler", "--target", "es2022", "v.ts"],
        cwd=folder, capture_output=True, text=True, check=False, timeout=120)
    assert strict.returncode == 0 or "error TS" in strict.stdout, strict.stdout + strict.stderr
    return schema.stdout, strict.stdout


def test_objects_are_valid_and_have_no_unknown_fields(tmp_path):
    docs = all_docs()
    assert {d["apiVersion"] for d in docs} == set(MODULES)
    assert validate(docs, str(tmp_path)) == ("", "")


def test_the_validators_see_mistakes(tmp_path):
    docs = deploy.render()
    spec = deploy.agent_daemonset(docs)["spec"]["template"]["spec"]
    spec["terminationGracePeriodSeconds"] = "soon"
    schema, _ = validate(docs, str(tmp_path))
    assert "DaemonSet/lt-lanterne-agent" in schema and "terminationGracePeriodSeconds" in schema
    spec["terminationGracePeriodSeconds"] = 60
    spec["hostPIDD"] = True
    schema, strict = validate(docs, str(tmp_path))
    assert schema == "" and "hostPIDD" in strict


def config_of(docs, component):
    for d in deploy.of_kind(docs, "ConfigMap"):
        if f"{component}.yaml" in d["data"]:
            return d["data"][f"{component}.yaml"]
    return None


def load_by_program(program, args, config, tmp_path):
    """The real program reads the configuration and arguments of the chart; what it understood."""
    path = tmp_path / "config.yaml"
    path.write_text(config)
    words = [a.replace("$(NODE_NAME)", "gpu-17") for a in args if not a.startswith("--config=")]
    for check in ("--check-config", "--dump-config"):
        got = subprocess.run([harness.program(program), *words, f"--config={path}", check],
                             capture_output=True, text=True, check=False, timeout=10)
        # Tokens and certificates are where the pods have them.
        missing = check == "--check-config" and got.returncode == 3 and "No such file" in got.stderr
        assert got.returncode == 0 or missing, got.stderr
    return deploy.yaml.safe_load(got.stdout)


@value_sets
def test_the_programs_take_the_charts_configuration(values, tmp_path):
    docs = deploy.render(values)
    container = deploy.agent_container(docs)
    seen = load_by_program("lanterne", container["args"], config_of(docs, "agent"), tmp_path)
    assert seen["node"] == "gpu-17"
    assert seen["db"] == "/var/lib/lanterne/lanterne.db"
    services = {d["metadata"]["name"] for d in deploy.of_kind(docs, "Service")}
    host = re.match(r"https?://([^.:/]+)\.([^:/]*):4317$", seen["collector"])
    if deploy.of_kind(docs, "StatefulSet"):
        assert host[1] in services and host[2] == f"{deploy.NAMESPACE}.svc"
        container = deploy.of_kind(docs, "StatefulSet")[0]["spec"]["template"]["spec"]["containers"][0]
        other = load_by_program("lanterne-collector", container["args"], config_of(docs, "collector"), tmp_path)
        assert other["window"] == seen["window"] and other["token_file"] == seen["token_file"]
        ports = {p["containerPort"] for p in container["ports"]}
        listen = [*other["otlp"]["listen"], other["api"]["listen"]]
        assert ports == {int(a.rsplit(":", 1)[1]) for a in listen} == {4317, 4318, 8420}
    else:
        assert seen["collector"] == "http://collector.example:4317"


def test_values_reach_the_programs(tmp_path):
    docs = deploy.render(FULL)
    seen = load_by_program("lanterne", deploy.agent_container(docs)["args"], config_of(docs, "agent"), tmp_path)
    assert (seen["cluster"], seen["window"], str(seen["ringbuf_size"])) == ("east", "5s", "16m")
    assert seen["log_level"] == "debug"
    container = deploy.of_kind(docs, "StatefulSet")[0]["spec"]["template"]["spec"]["containers"][0]
    seen = load_by_program("lanterne-collector", container["args"], config_of(docs, "collector"), tmp_path)
    assert seen["straggler"]["min_effect"] == 12 and seen["limits"]["nodes"] == 500


def test_token():
    docs = deploy.render(FULL)
    data = deploy.of_kind(docs, "Secret")[0]["data"]
    assert base64.b64decode(data["token"]).decode() == "6f1de2a1-not-a-real-token"
    first, second = (deploy.of_kind(deploy.render(), "Secret")[0]["data"]["token"] for _ in range(2))
    assert first != second and len(base64.b64decode(first)) == 48
    docs = deploy.render(MINIMAL)
    assert not deploy.of_kind(docs, "Secret")
    volumes = {v["name"]: v for v in deploy.agent_daemonset(docs)["spec"]["template"]["spec"]["volumes"]}
    assert volumes["token"]["secret"]["secretName"] == "fleet-token"
    assert volumes["token"]["secret"]["items"] == [{"key": "bearer", "path": "token"}]


def test_long_names_fit():
    name = "r" * 53
    code, out, err = deploy.run_helm("template", name, deploy.CHART)
    assert code == 0, err
    for d in deploy.parse(out):
        # A label of the pods is this name and 11 characters.
        limit = 52 if d["kind"] in ("StatefulSet", "DaemonSet") else 63
        assert len(d["metadata"]["name"]) <= limit
        assert all(len(v) <= 63 for v in d["metadata"]["labels"].values())


def test_upgrades_change_nothing_that_is_fixed(tmp_path):
    chart = tmp_path / "lanterne"
    shutil.copytree(deploy.CHART, chart)
    text = (chart / "Chart.yaml").read_text()
    (chart / "Chart.yaml").write_text(re.sub(r"^(version|appVersion): .*", r'\1: "9.9.9"', text, flags=re.M))

    def fixed(docs):
        out = {}
        for d in docs:
            spec = d.get("spec", {})
            key = (d["kind"], d["metadata"]["name"])
            if d["kind"] in ("DaemonSet", "StatefulSet"):
                out[key] = [spec["selector"], spec.get("serviceName"), spec.get("volumeClaimTemplates")]
            elif d["kind"] == "Service":
                out[key] = [spec.get("clusterIP"), spec["selector"]]
        return out
    for values in deploy.CI_VALUES:
        old, new = deploy.render(values), deploy.render(values, chart=str(chart))
        assert fixed(old) == fixed(new)
    assert deploy.agent_container(new)["image"].endswith(":9.9.9")


def test_apparmor_is_said_as_this_kubernetes_understands_it():
    def template(kube):
        docs = deploy.render(None, "--set", "agent.appArmorProfile.type=Unconfined", "--kube-version", kube)
        return deploy.agent_daemonset(docs)["spec"]["template"]
    key = "container.apparmor.security.beta.kubernetes.io/agent"
    old, new = template("1.29.0"), template("1.30.0")
    assert old["metadata"]["annotations"][key] == "unconfined"
    assert "appArmorProfile" not in old["spec"]["containers"][0]["securityContext"]
    assert key not in new["metadata"]["annotations"]
    assert new["spec"]["containers"][0]["securityContext"]["appArmorProfile"] == {"type": "Unconfined"}


def test_service_monitor_finds_one_service_and_shows_the_token():
    docs = deploy.render(FULL)
    monitor = deploy.of_kind(docs, "ServiceMonitor")[0]
    wanted = monitor["spec"]["selector"]["matchLabels"].items()
    found = [d for d in deploy.of_kind(docs, "Service") if wanted <= d["metadata"]["labels"].items()]
    assert [d["metadata"]["name"] for d in found] == ["fleet-collector"]
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    endpoint = monitor["spec"]["endpoints"][0]
    assert endpoint["port"] in [p["name"] for p in found[0]["spec"]["ports"]]
    secret = deploy.of_kind(docs, "Secret")[0]
    assert endpoint["authorization"]["credentials"]["name"] == secret["metadata"]["name"]
    assert endpoint["authorization"]["credentials"]["key"] in secret["data"]


def test_rules_are_those_of_the_file():
    """With what Prometheus puts into braces left alone."""
    rule = deploy.of_kind(deploy.render(FULL), "PrometheusRule")[0]
    with open(os.path.join(deploy.CHART, "files", "rules.yaml"), encoding="utf-8") as f:
        assert rule["spec"] == deploy.yaml.safe_load(f)
    assert rule["metadata"]["labels"]["release"] == "prometheus"
    rules = [r for g in rule["spec"]["groups"] for r in g["rules"]]
    assert any(r.get("alert") == "LanterneStraggler" for r in rules)
    assert "{{ $labels.node }}" in json.dumps(rules)


def test_dashboards():
    """A ConfigMap with the dashboards that the chart was packed with, or a clear refusal when there are none."""
    code, out, err = deploy.run_helm("template", "x", deploy.CHART, "--set", "dashboards.enabled=true")
    packed = sorted(os.path.basename(p) for p in glob.glob(os.path.join(deploy.CHART, "files", "*.json")))
    if not packed:
        assert code != 0 and "packed without dashboards" in err
        return
    assert code == 0, err
    maps = [d for d in deploy.parse(out) if "grafana_dashboard" in d["metadata"]["labels"]]
    assert sorted(maps[0]["data"]) == packed
    for name, text in maps[0]["data"].items():
        with open(os.path.join(deploy.CHART, "files", name), encoding="utf-8") as f:
            assert json.loads(text) == json.load(f)


def test_the_patch_in_the_documentation_fits(tmp_path):
    """The way to a privileged agent, for nodes where nothing else works, stays a documented one."""
    with open(os.path.join(harness.SOURCE_DIR, "docs", "kubernetes.md"), encoding="utf-8") as f:
        patch = json.loads(re.search(r"--type json -p '(\[.*?\])'", f.read(), re.S)[1])
    docs = deploy.render()
    daemonset = deploy.agent_daemonset(docs)
    for step in patch:
        *way, last = step["path"].strip("/").split("/")
        at = daemonset
        for key in way:
            at = at[int(key)] if isinstance(at, list) else at[key]
        assert last in at
        if step["op"] == "remove":
            del at[last]
        else:
            at[last] = step["value"]
    context = deploy.agent_container(docs)["securityContext"]
    # The API server refuses both together.
    assert context["privileged"] is True and "allowPrivilegeEscalation" not in context
    assert validate(docs, str(tmp_path)) == ("", "")


def test_documented_values_exist():
    with open(os.path.join(deploy.CHART, "values.yaml"), encoding="utf-8") as f:
        values = deploy.yaml.safe_load(f)
    with open(os.path.join(harness.SOURCE_DIR, "docs", "kubernetes.md"), encoding="utf-8") as f:
        text = f.read()
    names = set(re.findall(r"\b((?:%s)(?:\.\w+)+)" % "|".join(k for k in values if isinstance(values[k], dict)), text))
    names = {n for n in names if not n.endswith((".yaml", ".Dockerfile", ".db", ".md", ".crt", ".key"))}
    assert len(names) > 20
    for name in names:
        at = values
        for key in name.split("."):
            if at == {}:  # free form
                break
            assert key in at, name
            at = at[key]


TLS = os.path.join(deploy.CHART, "ci", "tls-values.yaml")


def mounts(pod):
    """{mount path: (secret, keys or None)} of the first container."""
    secrets = {v["name"]: v["secret"] for v in pod["volumes"] if "secret" in v}
    return {m["mountPath"]: (secrets[m["name"]]["secretName"], [i["key"] for i in secrets[m["name"]].get("items", [])] or None)
            for m in pod["containers"][0]["volumeMounts"] if m["name"] in secrets}


def test_tls_reaches_everybody(tmp_path):
    docs = deploy.render(TLS)
    agent = load_by_program("lanterne", deploy.agent_container(docs)["args"], config_of(docs, "agent"), tmp_path)
    assert agent["collector"].startswith("https://") and agent["collector_server_name"] == "collector.example"
    pod = deploy.of_kind(docs, "StatefulSet")[0]["spec"]["template"]["spec"]
    seen = load_by_program("lanterne-collector", pod["containers"][0]["args"], config_of(docs, "collector"), tmp_path)["tls"]
    assert seen["required"] is True and seen["require_client_cert"] == "all" and len(seen["allow_san"]) == 2
    # Agents get the authority, not the collector's key.
    at = mounts(deploy.agent_daemonset(docs)["spec"]["template"]["spec"])
    assert at["/etc/lanterne/tls-ca"] == ("collector-tls", ["ca.crt"]) and at["/etc/lanterne/tls"] == ("agent-tls", None)
    for key in ("collector_ca_file", "collector_cert_file", "collector_key_file"):
        assert os.path.dirname(agent[key]) in at
    assert at["/etc/lanterne/token"] == ("fleet-token", ["token"])
    at = mounts(pod)
    assert at["/etc/lanterne/tls"] == ("collector-tls", None) and at["/etc/lanterne/token"] == ("fleet-token", ["clusters"])
    for key in ("cert_file", "key_file", "client_ca_file"):
        assert os.path.dirname(seen[key]) in at
    probes = [pod["containers"][0][k]["httpGet"] for k in ("startupProbe", "readinessProbe", "livenessProbe")]
    assert all(p["scheme"] == "HTTPS" for p in probes)
    endpoint = deploy.of_kind(docs, "ServiceMonitor")[0]["spec"]["endpoints"][0]
    assert endpoint["scheme"] == "https" and endpoint["tlsConfig"]["serverName"] == "collector.example"
    assert endpoint["tlsConfig"]["keySecret"] == {"name": "agent-tls", "key": "tls.key"}
    test = next(d for d in deploy.of_kind(docs, "Pod") if d["metadata"]["name"].endswith("-test-status"))
    assert any(a.startswith("--url=https://") for a in test["spec"]["containers"][0]["args"])
    assert set(mounts(test["spec"])) == {"/etc/lanterne/token", "/etc/lanterne/tls-ca", "/etc/lanterne/tls"}


@pytest.mark.parametrize("settings,why", [
    (["tls.enabled=true"], "tls.existingSecret is needed"),
    (["tls.enabled=true", "tls.existingSecret=x", "tls.caKey=", "tls.clientCertificates=otlp"], "tls.caKey is needed")])
def test_tls_that_lacks_something(settings, why):
    words = [w for s in settings for w in ("--set", s)]
    code, _, err = deploy.run_helm("template", "x", deploy.CHART, *words)
    assert code != 0 and why in err, err
