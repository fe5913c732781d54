# SPDX-License-Identifier: Apache-2.0
"""The generator of bench/ingest against a collector: every point acknowledged is counted, and the last value of each series stands at /metrics."""

import json
import re
import subprocess

import pytest

import collector_util as cu
import harness

SERIES = 2400
NODE = "00000000-0000-4000-8000-00005eed0001"  # the resource of the first 240
SHAPES = ["--grpc", "--grpc --gzip", "--grpc --zstd", "--grpc --points 1 --connections 2 --streams 50", "--grpc --points 1000",
          "--http2", "--http1", "--http1 --gzip", "--http1 --json", "--http1 --json --gzip", "--http2 --json --zstd"]


@pytest.fixture(scope="module")
def collector(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ingest")
    procs = harness.Processes(str(folder))
    yield cu.Collector(procs, folder, "--limits-series-per-metric", "100000").start()
    procs.kill_all()


def load(collector, *flags):
    done = subprocess.run([harness.program("ingest_load"), "--port", str(collector.port), "--warmup", "0", "--seconds", "30",
                           "--series", str(SERIES), *flags], capture_output=True, text=True, check=True, timeout=60)
    return json.loads(done.stdout)


def counted(collector):
    return collector.get("/api/v1/ingest")["ingest"]["points_received"]


def samples(collector):
    """{number of the series among the first node's 240: value}"""
    status, _, text = harness.http_get(collector.url("/metrics"), timeout_s=20)
    assert status == 200
    found = {}
    for line in text.decode().splitlines():
        if line.startswith("app_worker_operation_metric") and f'instance="{NODE}"' in line:
            found[int(re.search(r'pod_name="trainer-7f9c-(\d+)"', line).group(1))] = float(line.rsplit(" ", 1)[1])
    return found


@pytest.mark.parametrize("shape", SHAPES)
def test_every_point_is_counted_and_the_last_stands(collector, shape):
    rounds = 2 + SHAPES.index(shape)  # another last value in each case
    before = counted(collector)
    r = load(collector, "--rounds", str(rounds), *shape.split())
    assert r["used_up"] and r["all_points"] == rounds * SERIES
    assert (r["all_failed"], r["all_refused"], r["all_rejected"], r["unanswered"], r["reopened"]) == (0, 0, 0, 0, 0)
    assert counted(collector) - before == r["all_points"]
    # Time and value of each point are written over in turn, the value is the second; see load_value().
    value = {i: 1_000_000_000 + (rounds - 1) * 16 + (2 * i + 1) % 16 for i in range(240)}
    if "--points 1" in shape and "--points 1000" not in shape:
        value = {i: 1_000_000_000 + (rounds - 1) * 16 + 1 for i in range(240)}
    assert samples(collector) == {i: v + (0.5 if i // 24 % 2 else 0) for i, v in value.items()}


def test_windows_of_agents(collector):
    before = counted(collector)
    r = load(collector, "--agent", "--rounds", "2")
    assert r["used_up"] and r["points_a_request"] == 458 and r["all_points"] == 2 * r["series"]
    assert (r["all_failed"], r["all_rejected"], r["unanswered"]) == (0, 0, 0)
    assert counted(collector) - before == r["all_points"]
    assert len(collector.get("/api/v1/nodes")["nodes"]) == r["series"] // 458


def test_open_loop_keeps_its_rate(collector):
    r = load(collector, "--rate", "50", "--rounds", "2")
    assert r["used_up"] and r["sent"] == 20 and r["given_up"] == 0
    assert r["seconds"] >= 0.37  # 20 requests, 20 ms apart
