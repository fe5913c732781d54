# SPDX-License-Identifier: Apache-2.0
"""Synthetic agents for the tests of the collector: windows as OTLP, over gRPC or HTTP, and a collector to take them."""

import atexit
import functools
import glob
import importlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import grpc

import harness

GRPC_METRICS = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"
GRPC_LOGS = "/opentelemetry.proto.collector.logs.v1.LogsService/Export"
GRPC_TRACES = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
SECOND = 1_000_000_000
PARTS = ("on_cpu", "run_queue", "device", "futex", "read", "disk")


@functools.lru_cache(maxsize=None)
def proto(name):
    """A generated module, such as "collector.metrics.v1.metrics_service"; protoc runs once."""
    folder = _generated()
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return importlib.import_module(f"opentelemetry.proto.{name}_pb2")


@functools.lru_cache(maxsize=None)
def _generated():
    root = os.path.join(harness.SOURCE_DIR, "proto")
    folder = tempfile.mkdtemp(prefix="ltn-proto-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    files = glob.glob(os.path.join(root, "opentelemetry", "**", "*.proto"), recursive=True)
    subprocess.run(["protoc", f"-I{root}", f"--python_out={folder}", *files], check=True)
    return folder


def put_attrs(target, **attrs):
    """Attributes; a double underscore in a name stands for a dot."""
    for key, value in attrs.items():
        if value is None:
            continue
        kv = target.add()
        kv.key = key.replace("__", ".")
        if isinstance(value, bool):
            kv.value.bool_value = value
        elif isinstance(value, int):
            kv.value.int_value = value
        elif isinstance(value, float):
            kv.value.double_value = value
        else:
            kv.value.string_value = value


class Request:
    """An export request of metrics under construction."""

    def __init__(self, end_ns, window_ns):
        self.message = proto("collector.metrics.v1.metrics_service").ExportMetricsServiceRequest()
        self.end_ns = end_ns
        self.start_ns = end_ns - window_ns
        self.scope = None

    def resource(self, **attrs):
        rm = self.message.resource_metrics.add()
        put_attrs(rm.resource.attributes, **attrs)
        self.scope = rm.scope_metrics.add()
        self.scope.scope.name = "lanterne"

    def _point(self, points, value, attrs):
        p = points.add()
        p.start_time_unix_nano = self.start_ns
        p.time_unix_nano = self.end_ns
        if isinstance(value, int):
            p.as_int = value
        else:
            p.as_double = value
        put_attrs(p.attributes, **attrs)

    def gauge(self, name, unit, value, **attrs):
        m = self.scope.metrics.add(name=name, unit=unit)
        self._point(m.gauge.data_points, value, attrs)

    def sum(self, name, unit, value, **attrs):
        m = self.scope.metrics.add(name=name, unit=unit)
        m.sum.is_monotonic = True
        m.sum.aggregation_temporality = 2
        self._point(m.sum.data_points, value, attrs)

    def duration(self, name, counts, offset, scale, total, **attrs):
        m = self.scope.metrics.add(name=name, unit="s")
        m.exponential_histogram.aggregation_temporality = 2
        p = m.exponential_histogram.data_points.add()
        p.start_time_unix_nano = self.start_ns
        p.time_unix_nano = self.end_ns
        p.count = sum(counts)
        p.sum = total
        p.scale = scale
        p.positive.offset = offset
        p.positive.bucket_counts.extend(counts)
        put_attrs(p.attributes, **attrs)

    def bytes(self):
        return self.message.SerializeToString()


class Rank:
    def __init__(self, rank, node, local):
        self.rank = rank
        self.local = local
        self.pid = 1000 + rank
        self.start_ns = 1_700_000_000 * SECOND + rank
        self.uuid = f"GPU-{node}-{local}"
        self.steps = 0
        self.launches = 0
        self.slow = 1.0          # factor on self time
        self.part = "on_cpu"     # where the excess goes
        self.preemptor = None
        self.clock = 1.0
        self.reasons = 0


class Job:
    """A synchronous job: nodes x ranks, step times from self times and GPU clocks."""

    def __init__(self, nodes=4, per_node=2, window_ns=10 * SECOND, seed=1, key="train-1"):
        self.window_ns = window_ns
        self.key = key
        self.random = random.Random(seed)
        self.nodes = [f"node-{i}" for i in range(nodes)]
        self.instance = {n: f"agent-{n}" for n in self.nodes}
        self.ranks = {n: [Rank(i * per_node + k, n, k) for k in range(per_node)]
                      for i, n in enumerate(self.nodes)}
        self.world = nodes * per_node
        self.sequence = 0
        # Windows in the past, so that none of them is early.
        self.end_ns = (time.time_ns() // window_ns) * window_ns - 100 * window_ns

    def rank(self, r):
        return next(x for ranks in self.ranks.values() for x in ranks if x.rank == r)

    def next_window(self, steps=20):
        """Requests of all nodes for the next window: {node: Request}."""
        self.end_ns += self.window_ns
        self.sequence += 1
        everybody = [r for ranks in self.ranks.values() for r in ranks]
        host = {r.rank: 0.05 * r.slow * (1 + self.random.gauss(0, 0.01)) for r in everybody}
        device = max(0.06 / r.clock for r in everybody)
        step = max(host.values()) + device
        out = {}
        for i, node in enumerate(self.nodes):
            jitter = int(self.random.uniform(-0.2, 0.2) * self.window_ns)
            q = Request(self.end_ns + jitter, self.window_ns)
            self._node(q, node)
            for r in self.ranks[node]:
                r.steps += steps
                r.launches += 100 * steps
                self._process(q, node, r, host[r.rank], step)
            out[node] = q
        return out

    def _agent(self, node):
        return {"service__name": "lanterne-agent", "service__instance__id": self.instance[node],
                "service__version": "0.1.0", "host__name": node,
                "lanterne__window__sequence": self.sequence}

    def _node(self, q, node):
        q.resource(**self._agent(node))
        for r in self.ranks[node]:
            q.gauge("hw.gpu.utilization", "1", 0.93, hw__id=r.uuid, hw__model="SIM-100")
            q.gauge("lanterne.gpu.clock.frequency", "Hz", 1.98e9 * r.clock, hw__id=r.uuid)
            q.gauge("lanterne.gpu.clock.limit", "Hz", 1.98e9, hw__id=r.uuid)
            q.gauge("lanterne.gpu.clock.reasons", "1", r.reasons, hw__id=r.uuid)
        q.sum("lanterne.agent.calls", "{call}", self.sequence * 1000)
        q.sum("lanterne.agent.drops", "{record}", 3, lanterne__reason="ring_full")

    def _process(self, q, node, r, host, step):
        q.resource(**self._agent(node), process__pid=r.pid, process__creation__time=r.start_ns,
                   process__command="python3", lanterne__job=self.key, lanterne__rank=r.rank,
                   lanterne__world_size=self.world, lanterne__local_rank=r.local, hw__id=r.uuid)
        op = {"lanterne__source": "cuda", "lanterne__op": "cudaLaunchKernel"}
        q.sum("gpu.cuda.operation.count", "{call}", r.launches, **op)
        q.sum("gpu.cuda.operation.errors", "{call}", 0, **op)
        # Scale 0: (2^-17, 2^-16] s holds launches of some 10 us.
        q.duration("gpu.cuda.operation.duration", [r.launches], -17, 0, r.launches * 1e-5, **op)
        comm = {"lanterne__comm__id": "00000000feedbeef", "lanterne__comm__rank": r.rank,
                "lanterne__comm__size": self.world}
        q.sum("gpu.nccl.communicator.sequence", "{operation}", 3 * r.steps, **comm)
        q.sum("lanterne.step.count", "{step}", r.steps)
        q.gauge("lanterne.step.duration", "s", step)
        q.gauge("lanterne.step.self_time", "s", host)
        q.gauge("lanterne.step.peer_wait", "s", step - host)
        q.gauge("lanterne.step.coverage", "1", 0.98)
        q.gauge("lanterne.step.collectives", "{operation}", 3.0)
        healthy = host / r.slow
        split = {"on_cpu": 0.9 * healthy, "run_queue": 0.02 * healthy, "read": 0.08 * healthy}
        split[r.part] = split.get(r.part, 0) + host - healthy
        for state, seconds in split.items():
            q.gauge("lanterne.step.split", "s", seconds, lanterne__state=state)
        if r.preemptor:
            q.gauge("lanterne.preemptor.time", "s", 0.9 * (host - healthy),
                    lanterne__preemptor__comm=r.preemptor, lanterne__preemptor__pid=4242,
                    lanterne__preemptor__cgroup=7)

    def launches(self):
        """{(node, pid): launches} as the agents know them."""
        return {(n, r.pid): r.launches for n, ranks in self.ranks.items() for r in ranks}


class Collector:
    """A collector with its database in folder, and the ways to talk to it."""

    def __init__(self, procs, folder, *flags, api_host="127.0.0.1", env=None):
        self.procs = procs
        self.folder = folder
        self.env = env
        self.db = os.path.join(str(folder), "collector.db")
        self.port = harness.free_port()
        self.api_port = harness.free_port()
        self.flags = [*flags]
        self.before = ()    # a program and its words that start the collector
        self.api_host = api_host
        self.process = None

    def start(self):
        self.process = self.procs.start(
            *self.before, harness.program("lanterne-collector"), "--otlp-listen", f"127.0.0.1:{self.port}",
            "--api-listen", f"{self.api_host}:{self.api_port}", "--db", self.db, *self.flags,
            env=self.env)
        self.process.wait_port(self.api_port)
        return self

    def url(self, path):
        return f"http://127.0.0.1:{self.api_port}{path}"

    def get(self, path):
        return harness.http_get_json(self.url(path))

    def channel(self):
        return grpc.insecure_channel(f"127.0.0.1:{self.port}",
                                     options=[("grpc.enable_retries", 0)])

    def post(self, path, body, headers=None):
        """(status, headers, body) of an OTLP/HTTP request."""
        h = {"Content-Type": "application/x-protobuf", **(headers or {})}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data=body, headers=h)
        try:
            with urllib.request.urlopen(request, timeout=10) as r:
                return r.status, {k.lower(): v for k, v in r.headers.items()}, r.read()
        except urllib.error.HTTPError as e:
            with e:
                return e.code, {k.lower(): v for k, v in e.headers.items()}, e.read()

    def metric(self, name, **labels):
        """Value of one series at /metrics; None when it is not there."""
        _, _, body = harness.http_get(self.url("/metrics"))
        for line in body.decode().splitlines():
            if line.startswith(name + "{") or line.startswith(name + " "):
                if all(f'{k}="{v}"' in line for k, v in labels.items()):
                    return float(line.rsplit(" ", 1)[1])
        return None


def export(channel, data, path=GRPC_METRICS, timeout=10, metadata=None):
    """One unary call with raw bytes; (response bytes, initial metadata as a dict)."""
    call = channel.unary_unary(path, request_serializer=None, response_deserializer=None)
    response, c = call.with_call(data, timeout=timeout, metadata=metadata)
    return response, dict(c.initial_metadata())


def push_grpc(collector, job, windows, change=None):
    """Pushes windows of all nodes over gRPC, one channel; change(job, i) may alter the job before each."""
    headers = {}
    with collector.channel() as channel:
        for i in range(windows):
            if change:
                change(job, i)
            for node, q in job.next_window().items():
                _, headers[node] = export(channel, q.bytes())
    return headers


def op_counts(db):
    """What the database kept: {(node, pid): calls of cudaLaunchKernel}."""
    import sqlite3
    with sqlite3.connect(f"file:{db}?mode=ro", uri=True) as c:
        rows = c.execute("SELECT node, pid, calls FROM op_counts WHERE op = 'cudaLaunchKernel'")
        return {(n, p): calls for n, p, calls in rows}


def partial(data):
    """(rejected, message) of a metrics response."""
    m = proto("collector.metrics.v1.metrics_service").ExportMetricsServiceResponse()
    m.ParseFromString(data)
    return m.partial_success.rejected_data_points, m.partial_success.error_message


def dumps(value):
    return json.dumps(value, indent=1)
