# SPDX-License-Identifier: Apache-2.0
"""A collector that is offered more than it can do, by clients that come again at once: it goes on working, what it refuses has a hint, and
honest clients of another make get through."""

import json
import os
import subprocess
import time

import grpc
import pytest

import collector_util as cu
import harness

HINTS = ("grpc-status-details-bin", "google.rpc.retryinfo-bin")


@pytest.fixture(name="collector")
def fixture_collector(tmp_path):
    procs = harness.Processes(str(tmp_path))
    collector = cu.Collector(procs, tmp_path, "--limits-series-per-metric", "200000", "--limits-queue", "1g")
    collector.before = ("taskset", "-c", str(min(os.sched_getaffinity(0))))  # however many there are
    yield collector.start()
    procs.kill_all()


class Storm:
    """More requests at a time than are let in under overload, each repeated as soon as it is answered."""

    def __init__(self, collector, seconds, *flags):
        self.child = subprocess.Popen(
            [harness.program("ingest_load"), "--port", str(collector.port), "--series", "24000", "--warmup", "0", "--seconds",
             str(seconds), "--connections", "64", "--streams", "100", *flags], stdout=subprocess.PIPE, text=True)

    def result(self):
        out, _ = self.child.communicate(timeout=90)
        assert self.child.returncode == 0
        return json.loads(out)


def ingest(collector):
    return collector.get("/api/v1/ingest")["ingest"]


def honest_body():
    """An export request of some 40 KB."""
    r = cu.Request(time.time_ns(), cu.SECOND)
    r.resource(service__name="honest")
    for i in range(400):
        r.gauge("app_honest", "1", float(i), number=str(i), ballast="b" * 60)
    return r.bytes()


@pytest.mark.parametrize("flags", [[], ["--http2"]], ids=["grpc", "http2"])
def test_what_is_refused_has_a_hint_and_nothing_is_lost(collector, flags):
    r = Storm(collector, 5, *flags).result()
    assert r["all_acknowledged"] > 200, r
    assert r["all_refused"] > 0 and r["refused"] == r["hinted"], r
    assert (r["all_failed"], r["all_rejected"], r["unanswered"], r["reopened"]) == (0, 0, 0, 0), r
    now = ingest(collector)
    assert now["points_received"] == r["all_points"]
    assert now["rejected_busy"] == r["all_refused"]


def test_a_client_of_another_make_gets_through(collector):
    storm = Storm(collector, 7)
    channel = grpc.insecure_channel(f"127.0.0.1:{collector.port}", options=[("grpc.enable_retries", 0)])
    export = channel.unary_unary(cu.GRPC_METRICS)
    body = honest_body()
    fine = refused = 0
    end = time.monotonic() + 6
    while time.monotonic() < end:
        try:
            export(body, timeout=10)
            fine += 1
        except grpc.RpcError as e:
            assert e.code() == grpc.StatusCode.UNAVAILABLE, e
            names = {k for k, _ in e.trailing_metadata()}
            assert names >= set(HINTS), e
            refused += 1
    channel.close()
    storm.result()
    assert fine >= 10, (fine, refused)
    assert ingest(collector)["rejected_busy"] >= refused


def test_the_rest_of_the_collector_answers_meanwhile(collector):
    storm = Storm(collector, 5)
    with grpc.insecure_channel(f"127.0.0.1:{collector.port}") as channel:
        health = channel.unary_unary("/grpc.health.v1.Health/Check")
        for _ in range(12):
            assert health(b"", timeout=10) == b"\x08\x01"
            assert ingest(collector)["requests"] >= 0
            status, _, text = harness.http_get(collector.url("/metrics"), timeout_s=20)
            assert status == 200 and b"lanterne_collector_rejected_total" in text
            time.sleep(0.2)
    storm.result()
