# SPDX-License-Identifier: Apache-2.0
"""/metrics as the real Prometheus of the distribution takes it, and the files of deploy/grafana against both."""

import glob
import json
import os
import re
import subprocess
import urllib.parse
import urllib.request

import pytest

import collector_util as cu
import harness

GRAFANA = os.path.join(harness.SOURCE_DIR, "deploy", "grafana")
RULES = os.path.join(GRAFANA, "rules", "lanterne.rules.yaml")
OPENMETRICS = "application/openmetrics-text; version=1.0.0"

# Families of the interface: name, labels a series must have.
PROMISED = {
    "lanterne_node_up": {"node"},
    "lanterne_node_last_seen_seconds": {"node"},
    "lanterne_rank_self_time_ratio": {"job", "rank", "node"},
    "lanterne_rank_self_time_seconds": {"job", "rank", "node"},
    "lanterne_rank_peer_wait_seconds": {"job", "rank", "node"},
    "lanterne_rank_step_seconds": {"job", "rank", "node"},
    "lanterne_straggler": {"job", "rank", "node", "cause"},
    "lanterne_straggler_effect_ratio": {"job", "rank", "node", "cause"},
    "lanterne_job_gpu_hours_lost_total": {"job"},
    "lanterne_job_ranks": {"job"},
    "lanterne_incidents_total": {"severity", "kind", "node"},
    "gpu_cuda_operation_duration_seconds_bucket": {"node", "op", "source", "le"},
    "gpu_cuda_operation_duration_seconds_count": {"node", "op", "source"},
    "gpu_cuda_operation_count_total": {"node", "op", "source"},
    "gpu_nccl_operation_count_total": {"node", "op", "source"},
    "gpu_nccl_operation_duration_seconds_bucket": {"node", "op", "source", "le"},
    "hw_gpu_utilization_ratio": {"node", "hw_id"},
    "lanterne_gpu_clock_frequency_hertz": {"node", "hw_id"},
    "system_memory_usage_bytes": {"node"},
    "lanterne_collector_points_received_total": set(),
    "lanterne_collector_rejected_total": {"reason"},
    "lanterne_collector_queue_bytes": set(),
    "lanterne_collector_decode_seconds_total": set(),
}
FORBIDDEN_LABELS = re.compile(r"pid|step|stack|tid|thread")


def hog(job, i):
    if i == 12:
        r = job.rank(3)
        r.slow, r.part, r.preemptor = 1.5, "run_queue", "logrotate"


def rich_window(job):
    """Requests of a window with what a real agent sends besides: NCCL calls, GPU and host readings, agent health."""
    out = job.next_window()
    for node, q in out.items():
        q.resource(**job._agent(node))
        q.gauge("system.memory.usage", "By", 1 << 30)
        for r in job.ranks[node]:
            q.gauge("hw.gpu.memory.usage", "By", 30 << 30, hw__id=r.uuid)
            q.gauge("hw.power", "W", 512.0, hw__id=r.uuid, hw__type="gpu")
            q.gauge("hw.temperature", "Cel", 61.0, hw__id=r.uuid, hw__type="gpu")
            q.sum("hw.errors", "{error}", 0, hw__id=r.uuid, hw__type="gpu", error__type="uncorrected")
        q.sum("process.cpu.time", "s", 0.02 * job.sequence)
        q.gauge("process.memory.usage", "By", 40 << 20)
        q.gauge("lanterne.agent.map.size", "By", 8 << 20)
        for r in job.ranks[node]:
            q.resource(**job._agent(node), process__pid=r.pid, process__creation__time=r.start_ns,
                       lanterne__job=job.key, lanterne__rank=r.rank, lanterne__world_size=job.world)
            op = {"lanterne__source": "nccl", "lanterne__op": "ncclAllReduce"}
            q.sum("gpu.nccl.operation.count", "{call}", 3 * r.steps, **op)
            q.sum("gpu.nccl.operation.errors", "{call}", 0, **op)
            q.sum("gpu.nccl.operation.io", "By", 3 * r.steps << 20, **op)
            q.duration("gpu.nccl.operation.duration", [3 * r.steps], -15, 0, r.steps * 1e-4, **op)
    return out


def incident():
    logs = cu.proto("collector.logs.v1.logs_service").ExportLogsServiceRequest()
    rl = logs.resource_logs.add()
    cu.put_attrs(rl.resource.attributes, service__name="lanterne-agent", host__name="node-0")
    r = rl.scope_logs.add().log_records.add()
    r.event_name, r.time_unix_nano, r.severity_number, r.severity_text = "lanterne.incident", 1, 17, "HIGH"
    cu.put_attrs(r.attributes, lanterne__incident__id="i", lanterne__incident__kind="oom\"\n\\",
                 lanterne__incident__state="open")
    return logs.SerializeToString()


def feed(c, windows=1):
    with c.channel() as channel:
        for _ in range(windows):
            for q in rich_window(c.job).values():
                cu.export(channel, q.bytes())


@pytest.fixture
def fed(procs, tmp_path):
    """A collector with an open straggler, an incident and an alert target that is not there."""
    c = cu.Collector(procs, tmp_path, "--alert-webhook", f"http://127.0.0.1:{harness.free_port()}/",
                     "--alert-node-silent-after", "0").start()
    job = cu.Job()
    with c.channel() as channel:
        for i in range(18):
            hog(job, i)
            for q in rich_window(job).values():
                cu.export(channel, q.bytes())
        cu.export(channel, incident(), cu.GRPC_LOGS)
    c.job = job
    return c


class Prometheus:
    def __init__(self, procs, folder, target, rules=None, alertmanager=None, flags=()):
        harness.require_command("prometheus")
        self.port = harness.free_port()
        config = os.path.join(str(folder), "prometheus.yml")
        text = "global: {scrape_interval: 1s, evaluation_interval: 1s}\n"
        if rules:
            text += f"rule_files: ['{rules}']\n"
        if alertmanager:
            text += f"alerting: {{alertmanagers: [{{static_configs: [{{targets: ['127.0.0.1:{alertmanager}']}}]}}]}}\n"
        text += ("scrape_configs:\n  - job_name: lanterne\n    honor_labels: true\n"
                 f"    static_configs: [{{targets: ['127.0.0.1:{target}']}}]\n")
        with open(config, "w", encoding="utf-8") as f:
            f.write(text)
        self.process = procs.start("prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder}/tsdb",
                                   f"--web.listen-address=127.0.0.1:{self.port}", *flags)
        self.process.wait_port(self.port, timeout_s=30)
        ready = f"http://127.0.0.1:{self.port}/-/ready"   # it listens before it can answer
        harness.wait_until(lambda: harness.http_get(ready)[0] == 200, 30, "Prometheus ready")

    def api(self, path, **query):
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=10) as r:
            return json.load(r)["data"]

    def query(self, expr):
        """[(labels, value)] now."""
        return [(s["metric"], float(s["value"][1])) for s in self.api("query", query=expr)["result"]]

    def names(self):
        return set(self.api("label/__name__/values"))


def scraped(p):
    """True after a scrape that worked; in OpenMetrics, which this Prometheus asks for first."""
    for target in p.api("targets")["activeTargets"]:
        assert target["lastError"] == "", target
        return target["health"] == "up"
    return False


def fresh(p, c):
    """Waits for a scrape of what is pushed now: ranks are exposed for three windows only."""
    harness.wait_until(lambda: scraped(p), 30, "a scrape")
    feed(c)
    harness.wait_until(lambda: p.query("lanterne_rank_step_seconds"), 20, "ranks")


def test_prometheus_scrapes_it(procs, tmp_path, fed):
    p = Prometheus(procs, tmp_path, fed.api_port)
    fresh(p, fed)
    assert p.query("up") == [({"__name__": "up", "instance": f"127.0.0.1:{fed.api_port}", "job": "lanterne"}, 1)]
    for name, labels in PROMISED.items():
        got = p.query(name)
        assert got, f"{name} is not there"
        for series, _ in got:
            assert labels <= set(series), (name, series)
            assert not [k for k in series if FORBIDDEN_LABELS.search(k)], series
    # Its own `job` label is kept: the job of the rank, not the one of the scrape.
    got = p.query("lanterne_straggler == 1")
    assert [(s["job"], s["rank"], s["node"], s["cause"]) for s, _ in got] == [("train-1", "3", "node-1", "cpu_contention")]
    assert p.query('lanterne_rank_self_time_ratio{rank="3"}')[0][1] > 1.35
    got = p.query('histogram_quantile(0.5, sum by (le) (gpu_cuda_operation_duration_seconds_bucket))')
    assert 1e-6 < got[0][1] < 1e-4
    for total in ("gpu_cuda_operation_duration_seconds", "gpu_nccl_operation_duration_seconds"):
        assert p.query(f'{total}_bucket{{le="+Inf"}} - on(node, op, source) {total}_count > 0') == []
    assert p.query('lanterne_incidents_total{kind=~"oom.*"}')[0][1] == 1
    # The verdict ends, the series ends with it.
    fed.job.rank(3).slow, fed.job.rank(3).preemptor = 1.0, None
    feed(fed, 10)
    harness.wait_until(lambda: p.query("lanterne_straggler") == [], 20, "the end of the verdict")


def test_text_passes_promtool(fed):
    harness.require_command("promtool")
    status, headers, body = harness.http_get(fed.url("/metrics"))
    headers = {k.lower(): v for k, v in headers.items()}
    assert status == 200 and headers["content-type"].startswith("text/plain; version=0.0.4")
    r = subprocess.run(["promtool", "check", "metrics"], input=body, capture_output=True, check=False)
    said = (r.stdout + r.stderr).decode().splitlines()
    # The one finding is a name of the interface: GPU hours are what people pay for.
    assert [line for line in said if line and "lanterne_job_gpu_hours_lost_total" not in line] == [], said


def test_openmetrics_form(fed):
    _, headers, body = harness.http_get(fed.url("/metrics"), headers={"Accept": f"{OPENMETRICS},text/plain;q=0.5"})
    headers = {k.lower(): v for k, v in headers.items()}
    text = body.decode()
    assert headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    assert text.endswith("\n# EOF\n") and text.count("# EOF") == 1
    types = {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in types, f"{name} twice"
            types[name] = kind
            assert not (kind == "counter" and name.endswith("_total")), line
        assert line.startswith(("# TYPE ", "# HELP ", "# UNIT ", "# EOF")) or not line.startswith("#"), line
    seen = set()
    for line in text.splitlines():
        if not line.startswith("#"):
            series = line.rsplit(" ", 1)[0]
            assert series not in seen, f"{series} twice"
            seen.add(series)


# --- the files of deploy/grafana -------------------------------------------------------------------

WORD = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
NOT_METRICS = set("""
    by without on ignoring group_left group_right and or unless offset bool sum avg min max count topk bottomk quantile
    stddev rate irate increase delta histogram_quantile clamp_min clamp_max abs time vector scalar label_replace
    absent changes resets sort sort_desc max_over_time min_over_time avg_over_time last_over_time sum_over_time
    count_over_time quantile_over_time __rate_interval __range __interval
""".split())


def metric_names(expr):
    """Names of metrics in an expression."""
    expr = re.sub(r'"(?:\\.|[^"\\])*"', '""', expr)
    expr = re.sub(r"\$\{?\w+\}?", "", expr)
    expr = re.sub(r"\{[^}]*\}", "", expr)
    expr = re.sub(r"\b(by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)", " ", expr)
    expr = re.sub(r"\[[^\]]*\]", " ", expr)
    return {w for w in WORD.findall(re.sub(r"\b\d[\w.]*", " ", expr)) if w not in NOT_METRICS}


def dashboards():
    return sorted(glob.glob(os.path.join(GRAFANA, "dashboards", "*.json")))


def panels(board):
    for p in board["panels"]:
        yield p
        yield from p.get("panels", [])


def rule_expressions():
    with open(RULES, encoding="utf-8") as f:
        lines = f.read().splitlines()
    return [m.group(1) for line in lines if (m := re.match(r"\s*expr: (.+)", line))]


def recorded():
    with open(RULES, encoding="utf-8") as f:
        return set(re.findall(r"^\s*- record: (\S+)", f.read(), re.M))


def test_dashboard_form():
    files = dashboards()
    assert files
    uids = []
    for path in files:
        with open(path, encoding="utf-8") as f:
            board = json.load(f)
        uids.append(board["uid"])
        assert re.fullmatch(r"[a-zA-Z0-9_-]{1,40}", board["uid"]) and "id" not in board and board["schemaVersion"] >= 36
        variables = {v["name"]: v for v in board["templating"]["list"]}
        assert variables["DS"]["type"] == "datasource" and variables["DS"]["query"] == "prometheus"
        ids = [p["id"] for p in panels(board)]
        assert len(ids) == len(set(ids))
        places = set()
        for p in panels(board):
            g = p["gridPos"]
            assert 0 < g["w"] and g["x"] + g["w"] <= 24
            cells = {(x, y) for x in range(g["x"], g["x"] + g["w"]) for y in range(g["y"], g["y"] + g["h"])}
            assert not cells & places, f"{p['title']} covers another panel"
            places |= cells
            if p["type"] == "row":
                continue
            assert p["datasource"] == {"type": "prometheus", "uid": "${DS}"} and p["title"] and p["description"]
            assert len({t["refId"] for t in p["targets"]}) == len(p["targets"]) > 0
            for t in p["targets"]:
                assert t["expr"].count("(") == t["expr"].count(")")
                for interval in re.findall(r"\b(?:rate|increase)\([^\[]*\[([^\]]*)\]", t["expr"]):
                    assert interval == "$__rate_interval", t["expr"]
                for name in re.findall(r"\$\{?(\w+)", t["expr"]):
                    assert name in variables or name.startswith("__"), (name, p["title"])
    assert len(uids) == len(set(uids))


def test_every_metric_exists_and_every_expression_works(procs, tmp_path, fed):
    """Each expression of dashboard and rules is evaluated by a Prometheus that scrapes a collector."""
    p = Prometheus(procs, tmp_path, fed.api_port, rules=RULES)
    fresh(p, fed)
    real = p.names()
    expressions = [(f"rules: {e}", e) for e in rule_expressions()]
    assert len(expressions) > 8
    for path in dashboards():
        with open(path, encoding="utf-8") as f:
            board = json.load(f)
        for v in board["templating"]["list"]:
            if v["type"] == "query":
                expressions += [(v["name"], n) for n in re.findall(r"label_values\((\w+)", json.dumps(v["query"]))]
        expressions += [(q["title"], t["expr"]) for q in panels(board) for t in q.get("targets", [])]
    for where, expr in expressions:
        for name in metric_names(expr):
            assert name in real or name in recorded(), f"{where}: the collector has no {name}"
        ready = re.sub(r"\$__(rate_interval|range|interval)", "1m", expr)
        ready = re.sub(r"\$\{?\w+(:\w+)?\}?", ".*", ready)
        p.api("query", query=ready)   # an error is an HTTP error

    harness.wait_until(lambda: recorded() <= p.names(), 30, "the recorded series")
    rules = [r for g in p.api("rules")["groups"] for r in g["rules"]]
    harness.wait_until(lambda: all(r["health"] == "ok" for g in p.api("rules")["groups"] for r in g["rules"]), 30, "rules")
    assert {r["name"] for r in rules if r["type"] == "alerting"} >= {"LanterneStraggler", "LanterneNodeSilent"}
    got = [a for a in p.api("alerts")["alerts"] if a["labels"]["alertname"] == "LanterneStraggler"]
    assert [(a["labels"]["job"], a["labels"]["rank"]) for a in got] == [("train-1", "3")]


def test_metric_names_are_found():
    """The check above is worth what this function finds."""
    assert metric_names('sum by (job) (rate(a_total{b="c_d"}[5m])) / on(x) group_left(y) e:f:g > 1e3') == {"a_total", "e:f:g"}
    assert metric_names("histogram_quantile(0.5, sum by (le) (rate(h_bucket[$__rate_interval])))") == {"h_bucket"}


def test_rules_pass_promtool():
    harness.require_command("promtool")
    for command in (["check", "rules", RULES], ["test", "rules", os.path.join(GRAFANA, "rules", "lanterne.test.yaml")]):
        r = subprocess.run(["promtool", *command], capture_output=True, text=True, check=False)
        assert r.returncode == 0, r.stdout + r.stderr
