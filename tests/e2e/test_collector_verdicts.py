# SPDX-License-Identifier: Apache-2.0
"""Windows in, verdicts out: whom the collector names, and how it says so."""

import json
import subprocess

import pytest

import collector_util as cu
import harness


@pytest.fixture
def collector(procs, tmp_path):
    return cu.Collector(procs, tmp_path).start()


def hog(job, i):
    """From window 12 on `logrotate` takes rank 3's CPU."""
    if i == 12:
        r = job.rank(3)
        r.slow, r.part, r.preemptor = 1.5, "run_queue", "logrotate"


def test_cpu_hog_is_named_with_its_cause(collector):
    job = cu.Job()
    headers = cu.push_grpc(collector, job, 18, hog)
    got = collector.get("/api/v1/stragglers")["stragglers"]
    assert [(s["rank"], s["node"], s["state"]) for s in got] == [(3, "node-1", "open")], cu.dumps(got)
    s = got[0]
    assert s["job"] == "train-1" and s["peers"] == 7 and s["tier"] == "ebpf"
    assert s["cause"] == "cpu_contention" and "`logrotate` held" in s["cause_detail"]
    assert 40 < s["effect_pct"] < 60 and s["explained_share"] >= 0.8
    assert s["self_time_ns"] > 1.35 * s["peer_median_ns"] > 0
    assert s["gpu_hours_lost"] > 0 and s["closed_at"] is None and s["opened_at_ns"] > s["since_ns"]
    assert headers["node-1"]["lanterne-verdict"] == "straggler;job=train-1;rank=3;cause=cpu_contention"
    assert headers["node-0"]["lanterne-verdict"] == "ok"

    assert collector.metric("lanterne_straggler", job="train-1", rank="3", node="node-1",
                            cause="cpu_contention") == 1
    assert collector.metric("lanterne_rank_self_time_ratio", rank="3") > 1.35
    assert 0.9 < collector.metric("lanterne_rank_self_time_ratio", rank="0") < 1.1
    assert collector.metric("lanterne_job_gpu_hours_lost_total", job="train-1") > 0
    assert collector.metric("gpu_cuda_operation_count_total", node="node-0") == 2 * 18 * 2000
    assert collector.metric("gpu_cuda_operation_duration_seconds_count", node="node-0") == 2 * 18 * 2000
    assert collector.metric("lanterne_node_up", node="node-2") == 1
    assert collector.metric("hw_gpu_utilization_ratio", hw_id="GPU-node-0-0") == 0.93

    detail = collector.get("/api/v1/jobs/train-1")
    assert detail["world_size"] == 8 and len(detail["ranks"]) == 8 and detail["coverage"] == 1
    assert [r["rank"] for r in detail["ranks"] if r["verdict"]] == [3]
    assert detail["groups"][0]["state"] == "scored" and detail["groups"][0]["judged"] == 8
    node = collector.get("/api/v1/nodes/node-1")
    assert node["up"] and len(node["gpus"]) == 2 and node["agent"]["drops"] == {"ring_full": 3}
    assert {p["rank"] for p in node["processes"]} == {2, 3}
    overview = collector.get("/api/v1/overview")
    assert overview["nodes"] == 4 and overview["stragglers_open"] == 1 and overview["ready"]

    text = subprocess.run([harness.program("lanterne-collector"), "status", "--url",
                           f"http://127.0.0.1:{collector.api_port}"], capture_output=True,
                          text=True, check=True).stdout
    assert "rank 3 on node-1 (job train-1)" in text and "`logrotate` held" in text
    out = subprocess.run([harness.program("lanterne-collector"), "status", "--json", "--url",
                          f"http://127.0.0.1:{collector.api_port}"], capture_output=True, check=True)
    assert json.loads(out.stdout)["stragglers"][0]["rank"] == 3


def test_it_closes_when_the_rank_recovers(collector):
    job = cu.Job(seed=2)

    def change(j, i):
        hog(j, i)
        if i == 20:
            j.rank(3).slow, j.rank(3).preemptor = 1.0, None

    cu.push_grpc(collector, job, 30, change)
    got = collector.get("/api/v1/stragglers")["stragglers"]
    assert [(s["rank"], s["state"], s["close_reason"]) for s in got] == [(3, "closed", "recovered")]
    assert collector.get("/api/v1/stragglers?since=1s")["stragglers"] == []
    assert collector.metric("lanterne_straggler") is None


def test_a_healthy_job_is_left_alone(collector):
    cu.push_grpc(collector, cu.Job(seed=3), 30)
    assert collector.get("/api/v1/stragglers")["stragglers"] == []
    group = collector.get("/api/v1/jobs/train-1")["groups"][0]
    assert group["state"] == "scored" and group["members"] == 8


def test_throttled_gpu_is_named_and_its_victims_are_not(collector):
    job = cu.Job(seed=4)

    def change(j, i):
        if i == 12:
            j.rank(5).clock, j.rank(5).reasons = 0.65, 0x40

    cu.push_grpc(collector, job, 18, change)
    got = collector.get("/api/v1/stragglers")["stragglers"]
    assert [(s["rank"], s["cause"], s["tier"], s["method"]) for s in got] == \
        [(5, "gpu_clock", "nvml", "gpu_clock")], cu.dumps(got)
    assert 50 < got[0]["effect_pct"] < 58 and got[0]["explained_share"] >= 0.8
    assert "hardware thermal" in got[0]["cause_detail"]


def test_data_loader(collector):
    job = cu.Job(seed=5)

    def change(j, i):
        if i == 12:
            j.rank(0).slow, j.rank(0).part = 1.4, "read"

    cu.push_grpc(collector, job, 18, change)
    got = collector.get("/api/v1/stragglers")["stragglers"]
    assert [(s["rank"], s["cause"], s["cause_detail"]) for s in got] == \
        [(0, "data_loader", "blocked in read on input")]


def test_over_http_and_twice(collector):
    """OTLP/HTTP; every request is sent twice and out of order, which changes nothing."""
    job = cu.Job(seed=6)
    for i in range(18):
        hog(job, i)
        requests = [q.bytes() for q in job.next_window().values()]
        for body in requests + requests[::-1]:
            status, headers, answer = collector.post("/v1/metrics", body)
            assert (status, answer) == (200, b"")
            assert headers["content-type"] == "application/x-protobuf"
    got = collector.get("/api/v1/stragglers")["stragglers"]
    assert [(s["rank"], s["cause"]) for s in got] == [(3, "cpu_contention")]
    assert cu.op_counts(collector.db) == job.launches()
    assert collector.metric("gpu_cuda_operation_count_total", node="node-0") == 2 * 18 * 2000


def test_pipeline_stages_are_not_compared(collector):
    """Two roles with different work and different operation counts on one world communicator."""
    job = cu.Job(seed=7)
    for _ in range(25):
        requests = job.next_window()
        for node, q in requests.items():
            late_stage = node in ("node-2", "node-3")
            for rm in q.message.resource_metrics:
                for m in rm.scope_metrics[0].metrics:
                    if late_stage and m.name == "gpu.nccl.communicator.sequence":
                        m.sum.data_points[0].as_int *= 3
                    if late_stage and m.name == "lanterne.step.self_time":
                        m.gauge.data_points[0].as_double *= 1.4
        with collector.channel() as channel:
            for q in requests.values():
                cu.export(channel, q.bytes())
    assert collector.get("/api/v1/stragglers")["stragglers"] == []
    groups = collector.get("/api/v1/jobs/train-1")["groups"]
    assert sorted(g["members"] for g in groups) == [4, 4], cu.dumps(groups)


def test_incidents(collector):
    logs = cu.proto("collector.logs.v1.logs_service").ExportLogsServiceRequest()
    rl = logs.resource_logs.add()
    cu.put_attrs(rl.resource.attributes, service__name="lanterne-agent", host__name="node-0",
                 process__pid=12, lanterne__job="train-1", lanterne__rank=1)
    for state, seconds in (("open", 1), ("closed", 9)):
        r = rl.scope_logs.add().log_records.add()
        r.event_name = "lanterne.incident"
        r.time_unix_nano = 1_700_000_000 * cu.SECOND + seconds
        r.severity_number, r.severity_text = 17, "HIGH"
        r.body.string_value = "cudaStreamSynchronize took 142 ms\x1b[31m"
        cu.put_attrs(r.attributes, lanterne__incident__id="i-1", lanterne__incident__kind="slow_call",
                     lanterne__incident__state=state, lanterne__incident__cause="cpu_contention",
                     lanterne__incident__explained_share=0.94, lanterne__incident__count=3)
    with collector.channel() as channel:
        for _ in range(2):
            cu.export(channel, logs.SerializeToString(), cu.GRPC_LOGS)
    got = collector.get("/api/v1/incidents")["incidents"]
    assert len(got) == 1
    assert (got[0]["id"], got[0]["state"], got[0]["count"], got[0]["rank"]) == ("i-1", "closed", 3, 1)
    assert got[0]["title"] == "cudaStreamSynchronize took 142 ms?[31m"
    assert collector.metric("lanterne_incidents_total", severity="HIGH", kind="slow_call",
                            node="node-0") == 1
    assert collector.get("/api/v1/incidents?node=elsewhere")["incidents"] == []
