# SPDX-License-Identifier: Apache-2.0
"""Alerts of the collector in the real Alertmanager of the distribution."""

import time

import pytest

import alert_util as au
import collector_util as cu
import harness


@pytest.fixture
def hook():
    h = au.Webhook()
    yield h
    h.close()


def hog(job, i, start=12, end=None):
    r = job.rank(3)
    if i == start:
        r.slow, r.part, r.preemptor = 1.5, "run_queue", "logrotate"
    if i == end:
        r.slow, r.preemptor = 1.0, None


def incident(node="node-0", number=21, text="CRITICAL", state="open", identity="i-1", when=None):
    logs = cu.proto("collector.logs.v1.logs_service").ExportLogsServiceRequest()
    rl = logs.resource_logs.add()
    cu.put_attrs(rl.resource.attributes, service__name="lanterne-agent", host__name=node,
                 process__pid=12, lanterne__job="train-1", lanterne__rank=1)
    r = rl.scope_logs.add().log_records.add()
    r.event_name = "lanterne.incident"
    r.time_unix_nano = when or time.time_ns()
    r.severity_number, r.severity_text = number, text
    r.body.string_value = "cudaMalloc failed"
    cu.put_attrs(r.attributes, lanterne__incident__id=identity, lanterne__incident__kind="oom",
                 lanterne__incident__state=state, lanterne__incident__cause="memory_pressure",
                 lanterne__incident__explained_share=0.94, lanterne__incident__count=1)
    return logs.SerializeToString()


def send_incident(collector, **kw):
    with collector.channel() as channel:
        cu.export(channel, incident(**kw), cu.GRPC_LOGS)


def test_a_straggler_fires_and_resolves(procs, tmp_path, hook):
    am = au.Alertmanager(procs, tmp_path, hook.url())
    other = au.Alertmanager(procs, tmp_path)
    c = cu.Collector(procs, tmp_path, "--alert-alertmanager", am.url(), "--alert-alertmanager", other.url() + "/",
                     "--alert-external-url", "http://lanterne.example:8420/", "--alert-resend", "1s",
                     "--alert-node-silent-after", "0").start()
    job = cu.Job()
    cu.push_grpc(c, job, 18, hog)
    for instance in (am, other):
        got = harness.wait_until(lambda: instance.alerts(alertname="LanterneStraggler"), 20, "the alert")
        assert len(got) == 1, cu.dumps(got)
        assert got[0]["labels"] == {"alertname": "LanterneStraggler", "severity": "warning", "job": "train-1",
                                    "rank": "3", "node": "node-1", "cause": "cpu_contention"}
        notes = got[0]["annotations"]
        assert "`logrotate` held" in notes["description"] and 40 < float(notes["effect_pct"]) < 60
        assert float(notes["explained_share"]) >= 0.8 and float(notes["gpu_hours_lost"]) > 0
        assert notes["peers"] == "7" and "rank 3 of job train-1" in notes["summary"]
        assert got[0]["generatorURL"] == notes["link"] == "http://lanterne.example:8420/#/jobs/train-1/ranks/3"

    # It is told again and again: the time it would end by itself moves on.
    first = am.alerts()[0]["endsAt"]
    harness.wait_until(lambda: am.alerts()[0]["endsAt"] > first, 20, "a repeat")
    fired = harness.wait_until(lambda: [b for b in hook.bodies() if b["status"] == "firing"], 20, "notification")
    assert fired[0]["alerts"][0]["labels"]["cause"] == "cpu_contention"

    cu.push_grpc(c, job, 10, lambda j, i: hog(j, i, start=None, end=0))
    assert c.get("/api/v1/stragglers")["stragglers"][0]["state"] == "closed"
    harness.wait_until(lambda: not am.alerts() and not other.alerts(), 20, "resolved")
    harness.wait_until(lambda: [b for b in hook.bodies() if b["status"] == "resolved"], 20, "notification of the end")
    harness.wait_until(lambda: c.metric("lanterne_collector_alerts", state="resolved") == 0, 10, "an empty table")
    assert c.metric("lanterne_collector_alert_requests_total", target="alertmanager-0", outcome="rejected") == 0
    assert c.metric("lanterne_collector_alert_target_up", target="alertmanager-1") == 1
    # Not ended by expiry: well before four repeats were missed.
    assert c.process.stop() == 0


def test_open_verdicts_come_again_after_a_restart(procs, tmp_path):
    port = harness.free_port()
    flags = ("--alert-alertmanager", f"http://127.0.0.1:{port}", "--alert-resend", "1s",
             "--alert-node-silent-after", "0")
    c = cu.Collector(procs, tmp_path, *flags).start()
    job = cu.Job()
    cu.push_grpc(c, job, 18, hog)   # nobody listens yet: ingest and verdicts go on
    assert c.get("/api/v1/stragglers")["stragglers"][0]["state"] == "open"
    harness.wait_until(lambda: c.metric("lanterne_collector_alert_target_up", target="alertmanager-0") == 0, 10, "down")
    c.process.kill()
    am = au.Alertmanager(procs, tmp_path, port=port)
    assert am.alerts() == []
    c.start()
    got = harness.wait_until(lambda: am.alerts(alertname="LanterneStraggler"), 20, "the alert after the restart")
    assert got[0]["labels"]["rank"] == "3" and got[0]["labels"]["cause"] == "cpu_contention"
    # The Alertmanager starts anew, without memory: it is told by the next repeat.
    am.process.kill()
    harness.wait_until(lambda: c.metric("lanterne_collector_alert_target_up", target="alertmanager-0") == 0, 20, "down")
    again = au.Alertmanager(procs, tmp_path / "again", port=port)
    harness.wait_until(lambda: again.alerts(alertname="LanterneStraggler"), 30, "the alert in a new Alertmanager")
    cu.push_grpc(c, job, 14, lambda j, i: hog(j, i, start=None, end=0))
    assert c.get("/api/v1/stragglers")["stragglers"][0]["state"] == "closed"
    harness.wait_until(lambda: not again.alerts(), 20, "resolved")


def test_incidents_and_silent_nodes(procs, tmp_path):
    am = au.Alertmanager(procs, tmp_path)
    c = cu.Collector(procs, tmp_path, "--alert-alertmanager", am.url(), "--alert-resend", "1s",
                     "--alert-node-silent-after", "3s", "--window", "1s").start()
    send_incident(c, number=13, text="MEDIUM", identity="low-1")
    send_incident(c)
    got = harness.wait_until(lambda: am.alerts(alertname="LanterneIncident"), 20, "the incident")
    assert len(got) == 1 and got[0]["labels"]["incident"] == "i-1", cu.dumps(got)
    assert got[0]["labels"] | {"severity": "critical", "kind": "oom", "node": "node-0", "job": "train-1", "rank": "1",
                               "cause": "memory_pressure"} == got[0]["labels"]
    assert got[0]["annotations"]["description"] == "cudaMalloc failed"
    send_incident(c, state="closed")
    harness.wait_until(lambda: not am.alerts(alertname="LanterneIncident"), 20, "the end of the incident")
    # One that was over before anybody looked still reaches somebody, and is not repeated for ever.
    send_incident(c, state="closed", identity="short-1")
    harness.wait_until(lambda: am.alerts(incident="short-1"), 20, "the short incident")

    job = cu.Job(nodes=2, per_node=1)
    cu.push_grpc(c, job, 1)
    got = harness.wait_until(lambda: am.alerts(alertname="LanterneNodeSilent"), 20, "silence")
    got = harness.wait_until(lambda: len(a := am.alerts(alertname="LanterneNodeSilent")) == 2 and a, 20, "both")
    assert {a["labels"]["node"] for a in got} == {"node-0", "node-1"}
    cu.push_grpc(c, job, 1)
    harness.wait_until(lambda: len(am.alerts(alertname="LanterneNodeSilent")) < 2, 20, "a sign of life")
