# SPDX-License-Identifier: Apache-2.0
"""The control stream from the agent's side, spoken by grpcio: honest agents and hostile ones."""

import functools
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

import grpc

import harness

ATTACH = "/lanterne.v1.Control/Attach"


@functools.lru_cache(maxsize=None)
def control():
    """The generated module of control.proto."""
    root = os.path.join(harness.SOURCE_DIR, "proto")
    folder = tempfile.mkdtemp(prefix="ltn-control-")
    subprocess.run(["protoc", f"-I{root}", f"--python_out={folder}",
                    os.path.join(root, "lanterne", "v1", "control.proto")], check=True)
    sys.path.insert(0, os.path.join(folder, "lanterne", "v1"))
    import control_pb2  # pylint: disable=import-error,import-outside-toplevel
    return control_pb2


class Agent:
    """One control stream. answer(agent, query) is called for each query, on the reader's thread."""

    def __init__(self, port, node, answer=None, hello=True, metadata=None, **fields):
        self.node = node
        self.answer = answer
        self.out = queue.Queue()
        self.received = []
        self.code = None
        self.details = None
        self.ended = threading.Event()
        self.channel = grpc.insecure_channel(f"127.0.0.1:{port}",
                                             options=[("grpc.enable_retries", 0)])
        call = self.channel.stream_stream(ATTACH)
        self.call = call(iter(self.out.get, None), metadata=metadata)
        if hello:
            m = control().AgentMessage()
            m.hello.node = node
            m.hello.version = "test"
            for key, value in fields.items():
                setattr(m.hello, key, value)
            self.send(m)
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def send(self, message):
        self.out.put(message if isinstance(message, bytes) else message.SerializeToString())

    def page(self, query_id, page, columns=(), rows=()):
        m = control().AgentMessage()
        m.query_page.id = query_id
        m.query_page.page = page
        m.query_page.columns.extend(columns)
        for row in rows:
            r = m.query_page.rows.add()
            for value in row:
                cell = r.cells.add()
                if isinstance(value, int):
                    cell.integer = value
                elif isinstance(value, float):
                    cell.real = value
                elif isinstance(value, str):
                    cell.text = value
                elif isinstance(value, bytes):
                    cell.blob = value
        self.send(m)

    def end(self, query_id, code=0, message="", truncated=False):
        m = control().AgentMessage()
        m.query_end.id = query_id
        m.query_end.code = code
        m.query_end.message = message
        m.query_end.truncated = truncated
        self.send(m)

    def _read(self):
        try:
            for data in self.call:
                m = control().CollectorMessage.FromString(data)
                self.received.append(m)
                if m.WhichOneof("body") == "query" and self.answer:
                    self.answer(self, m.query)
        except grpc.RpcError as e:
            self.code, self.details = e.code(), e.details()
        else:
            self.code = self.call.code()
        self.ended.set()

    def got(self, kind):
        return [getattr(m, kind) for m in self.received if m.WhichOneof("body") == kind]

    def wait(self, kind, timeout_s=5):
        return harness.wait_until(lambda: self.got(kind), timeout_s, f"{kind} for {self.node}")[-1]

    def wait_end(self, timeout_s=10):
        assert self.ended.wait(timeout_s), f"the stream of {self.node} goes on"
        return self.code

    def close(self):
        self.call.cancel()
        self.channel.close()


def table(columns, rows):
    """An answer of one page."""
    def answer(agent, query):
        agent.page(query.id, 0, columns, rows)
        agent.end(query.id)
    return answer


def ask(collector, sql, timeout_s=30, status=200, token=None, **members):
    """The answer of POST /api/v1/query."""
    headers = {"Content-Type": "application/json"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    request = urllib.request.Request(collector.url("/api/v1/query"),
                                     data=json.dumps({"sql": sql, **members}).encode(),
                                     headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=timeout_s) as r:
            got, body = r.status, r.read()
    except urllib.error.HTTPError as e:
        with e:
            got, body = e.code, e.read()
    assert got == status, f"{got}: {body[:500]!r}"
    return json.loads(body)


def counter(collector, kind):
    return collector.metric("lanterne_collector_control_total", kind=kind) or 0


def wait_streams(collector, n, timeout_s=10):
    harness.wait_until(lambda: collector.metric("lanterne_collector_control_streams") == n,
                       timeout_s, f"{n} control streams")


def now_ns():
    return time.time_ns()
