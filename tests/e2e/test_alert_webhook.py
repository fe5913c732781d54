# SPDX-License-Identifier: Apache-2.0
"""Webhooks of the collector against a receiver that fails in every way."""

import subprocess
import time

import alert_util as au
import collector_util as cu
import harness

SECRET = b"not-a-real-secret"


def hog(job, i, start=12, end=None):
    r = job.rank(3)
    if i == start:
        r.slow, r.part, r.preemptor = 1.5, "run_queue", "logrotate"
    if i == end:
        r.slow, r.preemptor = 1.0, None


def start(procs, tmp_path, *flags):
    secret = tmp_path / "secret"
    secret.write_bytes(SECRET + b"\n")
    return cu.Collector(procs, tmp_path, "--alert-webhook-secret-file", str(secret), "--alert-timeout", "1s",
                        "--alert-node-silent-after", "0", *flags).start()


def repeats(c, hook):
    """A restart sends the last message again, byte for byte."""
    with hook.lock:
        before = list(hook.requests)
    assert c.process.stop() == 0
    c.start()
    harness.wait_until(lambda: len(hook.requests) > len(before), 20, "the repeat")
    with hook.lock:
        h, body, _ = hook.requests[-1]
    assert body == before[-1][1] and h["idempotency-key"] == before[-1][0]["idempotency-key"]


def test_body_signature_and_end(procs, tmp_path):
    hook = au.Webhook()
    url_file = tmp_path / "url"
    url_file.write_text(hook.url() + "\n")
    c = start(procs, tmp_path, "--alert-webhook", f"@{url_file}", "--alert-external-url", "http://c.example")
    job = cu.Job()
    cu.push_grpc(c, job, 18, hog)
    harness.wait_until(hook.taken, 20, "the webhook")
    headers, raw, _ = hook.requests[0]
    body = hook.bodies()[0]
    assert headers["content-type"] == "application/json"
    assert headers["x-lanterne-signature"] == au.signature(SECRET, headers, raw)
    assert abs(int(headers["x-lanterne-timestamp"]) - time.time()) < 60
    assert set(body) == {"version", "groupKey", "truncatedAlerts", "status", "receiver", "groupLabels",
                         "commonLabels", "commonAnnotations", "externalURL", "alerts"}
    assert (body["version"], body["status"], body["externalURL"]) == ("4", "firing", "http://c.example")
    alert = body["alerts"][0]
    assert alert["status"] == "firing" and alert["endsAt"] == "0001-01-01T00:00:00Z"
    assert alert["labels"] == body["commonLabels"] and alert["labels"]["cause"] == "cpu_contention"
    assert body["groupLabels"] == {"alertname": "LanterneStraggler", "job": "train-1"}
    assert len(alert["fingerprint"]) == 16
    # A restart tells it again, under the same key.
    harness.wait_until(lambda: c.metric("lanterne_collector_alerts_waiting", target="webhook-0") == 0, 10, "all told")
    repeats(c, hook)
    cu.push_grpc(c, job, 10, lambda j, i: hog(j, i, start=None, end=0))
    last = harness.wait_until(lambda: [b for b in hook.taken() if b["status"] == "resolved"], 20, "the end")[0]["alerts"][0]
    repeats(c, hook)
    assert hook.taken()[-1]["alerts"] == [last]
    assert last["startsAt"] == alert["startsAt"] < last["endsAt"]
    assert last["fingerprint"] == alert["fingerprint"]
    with hook.lock:
        requests = list(hook.requests)
    assert len({h["idempotency-key"] for h, _, _ in requests}) == len({body for _, body, _ in requests}) > 1
    assert "secret-in-path" not in c.process.log()
    hook.close()


def test_failures_are_retried_with_the_same_key(procs, tmp_path):
    hook = au.Webhook(["close", 500, (429, {"Retry-After": "2"}), "hang", 503])
    c = start(procs, tmp_path, "--alert-webhook", hook.url())
    cu.push_grpc(c, cu.Job(), 18, hog)
    harness.wait_until(hook.taken, 60, "delivery after all")
    with hook.lock:
        requests = list(hook.requests)
    assert [a for _, _, a in requests[:6]] == ["close", 500, (429, {"Retry-After": "2"}), "hang", 503, 200]
    # The same state under the same key; a newer state replaces the one that waits.
    for h, body, _ in requests:
        same = {k["idempotency-key"] for k, b, _ in requests if b == body}
        assert same == {h["idempotency-key"]}
    assert c.metric("lanterne_collector_alert_requests_total", target="webhook-0", outcome="retried") == 5
    assert c.metric("lanterne_collector_alert_target_up", target="webhook-0") == 1
    assert "webhook-0 at http://127.0.0.1" in c.process.log() and "secret-in-path" not in c.process.log()
    hook.close()


def test_a_4xx_is_final_and_redirects_are_not_followed(procs, tmp_path):
    elsewhere = au.Webhook()
    hook = au.Webhook([400])
    moved = au.Webhook([(307, {"Location": elsewhere.url()})] * 9)
    c = start(procs, tmp_path, "--alert-webhook", hook.url(), "--alert-webhook", moved.url())
    cu.push_grpc(c, cu.Job(), 18, hog)
    for target in ("webhook-0", "webhook-1"):
        harness.wait_until(lambda: (c.metric("lanterne_collector_alert_requests_total", target=target,
                                             outcome="rejected") or 0) >= 1, 20, f"{target} refused it")
        assert c.metric("lanterne_collector_alert_requests_total", target=target, outcome="retried") == 0
        harness.wait_until(lambda: c.metric("lanterne_collector_alerts_waiting", target=target) == 0, 5, "none waits")
    assert elsewhere.requests == []
    assert len({body for _, body, _ in hook.requests}) == len(hook.requests), "nothing was sent twice"
    for h in (hook, moved, elsewhere):
        h.close()


def test_a_dead_target_delays_nobody(procs, tmp_path):
    """One target hangs, one is not there; ingest, verdicts, the third target and the end go on."""
    dead = au.Webhook(["hang"] * 1000)
    live = au.Webhook()
    c = start(procs, tmp_path, "--alert-webhook", dead.url(), "--alert-webhook", live.url(),
              "--alert-webhook", f"http://127.0.0.1:{harness.free_port()}/", "--alert-timeout", "30s")
    job = cu.Job()
    cu.push_grpc(c, job, 18, hog)
    harness.wait_until(lambda: live.taken() and dead.requests, 20, "delivery beside a dead target")
    cu.push_grpc(c, job, 10, lambda j, i: hog(j, i, start=None, end=0))
    harness.wait_until(lambda: [b for b in live.taken() if b["status"] == "resolved"], 20, "the end")
    assert c.metric("lanterne_collector_alerts_waiting", target="webhook-0") == 1
    assert c.metric("lanterne_collector_alert_target_up", target="webhook-2") == 0
    dead.close()
    live.close()
    assert c.process.stop(40) == 0


def test_the_table_is_bounded(procs, tmp_path):
    """Room for one alert: the second straggler is refused and counted, and nothing else happens."""
    hook = au.Webhook()
    c = start(procs, tmp_path, "--alert-webhook", hook.url(), "--alert-max-alerts", "1")
    jobs = [cu.Job(key="train-1"), cu.Job(key="train-2", seed=2)]
    for ranks in jobs[1].ranks.values():
        for r in ranks:
            r.pid += 5000   # other processes on the same nodes
    for i in range(18):
        for job in jobs:
            hog(job, i)
        with c.channel() as channel:
            for job in jobs:
                for q in job.next_window().values():
                    cu.export(channel, q.bytes())
    harness.wait_until(hook.taken, 20, "the first")
    assert c.metric("lanterne_collector_alerts_lost_total", reason="refused") >= 1
    assert len({b["commonLabels"]["job"] for b in hook.bodies()}) == 1
    hook.close()


def test_configuration_is_checked(tmp_path):
    for bad in ("ftp://host/", "http://", "host:9093", "http://h/ x", "http://u:secret@"):
        p = subprocess.run([harness.program("lanterne-collector"), "--check-config", "--alert-webhook", bad],
                           capture_output=True, text=True, check=False)
        assert p.returncode == 2 and "alert.webhook, entry 1" in p.stderr, (bad, p.stderr)
        assert "secret" not in p.stderr
    p = subprocess.run([harness.program("lanterne-collector"), "--check-config", "--alert-alertmanager",
                        ",".join(["http://h"] * 17)], capture_output=True, text=True, check=False)
    assert p.returncode == 2 and "more than 16 targets" in p.stderr
    p = subprocess.run([harness.program("lanterne-collector"), "--db", str(tmp_path / "x.db"), "--otlp-listen",
                        "127.0.0.1:0", "--api-listen", "127.0.0.1:0", "--alert-webhook", "@/nowhere/url"],
                       capture_output=True, text=True, check=False, timeout=20)
    assert p.returncode == 3 and "/nowhere/url" in p.stderr
