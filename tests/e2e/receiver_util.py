# SPDX-License-Identifier: Apache-2.0
"""OTLP receivers that are not ours and do as a script says, and the agent's exporter alone to send to them."""

import gzip
import http.server
import json
import os
import select
import socket
import struct
import subprocess
import threading
import time
from concurrent import futures

import grpc
import h2.config
import h2.connection
import h2.events
import h2.exceptions

import collector_util as cu
import harness

PATHS = {"/v1/metrics": "metrics", cu.GRPC_METRICS: "metrics", "/v1/logs": "logs", cu.GRPC_LOGS: "logs"}


def numbers(signal, body):
    """What push_feed put into a request."""
    name = f"collector.{signal}.v1.{signal}_service"
    m = getattr(cu.proto(name), f"Export{signal.capitalize()}ServiceRequest")()
    m.ParseFromString(body)
    if signal == "metrics":
        return [p.as_int for rm in m.resource_metrics for sm in rm.scope_metrics for x in sm.metrics
                for p in x.gauge.data_points]
    return [int(r.body.string_value) for rl in m.resource_logs for sl in rl.scope_logs for r in sl.log_records]


def partial(signal, rejected, message):
    name = f"collector.{signal}.v1.{signal}_service"
    m = getattr(cu.proto(name), f"Export{signal.capitalize()}ServiceResponse")()
    field = "rejected_data_points" if signal == "metrics" else "rejected_log_records"
    setattr(m.partial_success, field, rejected)
    m.partial_success.error_message = message
    return m.SerializeToString()


class Receiver:
    """Calls in order of arrival: (time, signal, numbers, what was done). script: what to do with the next calls,
    one entry each; then they are accepted."""

    def __init__(self, script=()):
        self.script = list(script)
        self.calls = []
        self.strange = []    # requests that are not as they must be
        self.lock = threading.Lock()

    def next(self, signal, body):
        with self.lock:
            todo = self.script.pop(0) if self.script else ("ok",)
            self.calls.append((time.monotonic(), signal, numbers(signal, body), todo))
            return todo

    def accepted(self, signal):
        """Numbers of acknowledged requests, in order."""
        return [n for _, s, ns, todo in list(self.calls) if s == signal and todo[0] in ("ok", "partial") for n in ns]

    def hang(self, seconds):
        """Says nothing until somebody calls again, for so long at most."""
        with self.lock:
            before = len(self.calls)
        try:
            harness.wait_until(lambda: len(self.calls) > before, seconds)
        except harness.WaitTimeout:
            pass

    def gap(self, i):
        """Seconds between the call i and the one after it."""
        return self.calls[i + 1][0] - self.calls[i][0]


# --- HTTP/1.1 ----------------------------------------------------------------------------------------

class HttpReceiver(Receiver):
    """("ok",) ("partial", rejected, message) ("status", code, headers) ("reset",) before the answer ("cut",)
    within it ("hang", seconds)."""

    def __init__(self, script=(), prefix="", port=0):
        super().__init__(script)
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                path = self.path[len(prefix):] if self.path.startswith(prefix) else None
                if PATHS.get(path) is None or self.headers["Content-Type"] != "application/x-protobuf":
                    outer.strange.append((self.path, dict(self.headers)))
                    self.send_error(404)
                    return
                if self.headers["Content-Encoding"] == "gzip":
                    body = gzip.decompress(body)
                outer.act(outer, self, PATHS[path], outer.next(PATHS[path], body))

            def do_GET(self):
                outer.strange.append(("GET", self.path))
                self.send_error(405)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        self.endpoint = f"http://127.0.0.1:{self.port}{prefix}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    @staticmethod
    def act(outer, handler, signal, todo):
        def answer(status, body=b"", headers=()):
            handler.send_response(status)
            for name, value in dict(headers).items():
                handler.send_header(name, value() if callable(value) else value)
            handler.send_header("Content-Type", "application/x-protobuf")
            handler.send_header("Content-Length", str(len(body)))
            handler.end_headers()
            handler.wfile.write(body)
        kind = todo[0]
        if kind == "ok":
            answer(200)
        elif kind == "partial":
            answer(200, partial(signal, *todo[1:]))
        elif kind == "status":
            answer(todo[1], b"", todo[2] if len(todo) > 2 else ())
        elif kind == "hang":
            outer.hang(todo[1])
            handler.close_connection = True
        elif kind == "cut":
            handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc")
            handler.close_connection = True
        elif kind == "reset":
            handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            handler.connection.close()
            handler.wfile = handler.rfile = open("/dev/null", "r+b", buffering=0)
            handler.close_connection = True


# --- gRPC by its own library -------------------------------------------------------------------------

def retry_info(seconds):
    """google.rpc.RetryInfo."""
    whole = int(seconds)
    duration = b"\x08" + bytes([whole]) + b"\x10" + _varint(int((seconds - whole) * 1e9))
    return b"\x0a" + bytes([len(duration)]) + duration


def status_details(code, seconds):
    """google.rpc.Status with a RetryInfo."""
    info = retry_info(seconds)
    url = b"type.googleapis.com/google.rpc.RetryInfo"
    detail = b"\x0a" + bytes([len(url)]) + url + b"\x12" + bytes([len(info)]) + info
    return b"\x08" + bytes([code]) + b"\x12\x03try" + b"\x1a" + bytes([len(detail)]) + detail


def _varint(n):
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


class GrpcReceiver(Receiver):
    """("ok",) ("partial", rejected, message) ("code", grpc.StatusCode, trailers, initial metadata first)
    ("hang", seconds). The library is strict about what it lets through."""

    def __init__(self, script=(), port=0, options=()):
        super().__init__(script)
        self.options = options
        self.listen(port)

    def listen(self, port):
        self.server = grpc.server(futures.ThreadPoolExecutor(max_workers=4),
                                  options=(("grpc.so_reuseport", 0), *self.options))
        for signal in ("metrics", "logs"):
            handler = grpc.unary_unary_rpc_method_handler(
                lambda body, context, signal=signal: self.export(signal, body, context), lambda b: b, lambda b: b)
            service = f"opentelemetry.proto.collector.{signal}.v1.{signal.capitalize()}Service"
            self.server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {"Export": handler}),))
        self.port = self.server.add_insecure_port(f"127.0.0.1:{port}")
        assert self.port != 0
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self.server.start()

    def close(self):
        self.server.stop(0).wait()

    def export(self, signal, body, context):
        meta = {k: v for k, v in context.invocation_metadata()}
        if not meta.get("user-agent"):
            self.strange.append(meta)
        todo = self.next(signal, body)
        if todo[0] == "partial":
            return partial(signal, *todo[1:])
        if todo[0] == "hang":
            self.hang(todo[1])
            context.abort(grpc.StatusCode.UNAVAILABLE, "too late")
        if todo[0] == "code":
            if len(todo) > 3:
                context.send_initial_metadata((("x-first", "yes"),))
            context.set_trailing_metadata(tuple(todo[2] if len(todo) > 2 else ()))
            context.abort(todo[1], "as the script says")
        return b""


# --- HTTP/2 by hand ----------------------------------------------------------------------------------

class H2Receiver(Receiver):
    """What no library lets a server do: ("ok",) ("headers", fields: one HEADERS that ends the stream)
    ("rst", code) ("goaway", last stream or None for none processed) ("close",) ("split",: an answer in single
    bytes) ("silent",: only the connection's end tells)."""

    def __init__(self, script=()):
        super().__init__(script)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.endpoint = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self.accept, daemon=True).start()

    def close(self):
        self.listener.close()

    def accept(self):
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(sock,), daemon=True).start()

    def serve(self, sock):
        conn = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding="utf-8"))
        conn.initiate_connection()
        streams = {}
        try:
            sock.sendall(conn.data_to_send())
            while True:
                data = sock.recv(65536)
                if not data:
                    return
                for e in conn.receive_data(data):
                    if isinstance(e, h2.events.RequestReceived):
                        streams[e.stream_id] = [dict(e.headers), b""]
                    elif isinstance(e, h2.events.DataReceived):
                        streams[e.stream_id][1] += e.data
                        conn.acknowledge_received_data(e.flow_controlled_length, e.stream_id)
                    elif isinstance(e, h2.events.StreamEnded):
                        if not self.answer(sock, conn, e.stream_id, *streams.pop(e.stream_id)):
                            sock.sendall(conn.data_to_send())
                            return
                sock.sendall(conn.data_to_send())
        except (OSError, h2.exceptions.ProtocolError):
            pass
        finally:
            sock.close()

    def answer(self, sock, conn, sid, head, body):
        """False: the connection is to end."""
        ok = (head.get(":method"), head.get("te"), head.get("content-type"))
        if ok != ("POST", "trailers", "application/grpc") or head[":path"] not in PATHS:
            self.strange.append(head)
        message = body[5:]
        if body[:1] == b"\1":
            message = gzip.decompress(message)
        todo = self.next(PATHS[head[":path"]], message)
        kind = todo[0]
        if kind in ("ok", "split"):
            conn.send_headers(sid, [(":status", "200"), ("content-type", "application/grpc")])
            for i in range(5):
                conn.send_data(sid, b"\0" * (1 if kind == "split" else 5))
                if kind == "ok":
                    break
                sock.sendall(conn.data_to_send())
            conn.send_headers(sid, [("grpc-status", "0")], end_stream=True)
        elif kind == "headers":
            conn.send_headers(sid, todo[1], end_stream=True)
        elif kind == "rst":
            conn.reset_stream(sid, todo[1])
        elif kind == "goaway":
            conn.close_connection(0, last_stream_id=sid if todo[1] is None else todo[1])
            return False
        return kind not in ("close", "silent")


# --- the exporter ------------------------------------------------------------------------------------

class Feed:
    """push_feed on a new database."""

    def __init__(self, folder, endpoint, protocol, name="feed", **env):
        clean = {k: v for k, v in os.environ.items() if not k.startswith("OTEL_")}
        self.process = subprocess.Popen(
            [harness.program("push_feed"), str(folder / f"{name}.db")], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True, bufsize=1,
            env={**clean, "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
                 "OTEL_EXPORTER_OTLP_TIMEOUT": "2000", **env})
        assert self.process.stdout.readline() == "ready\n"

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is not None:
            self.process.kill()
        else:
            self.process.stdin.write("end\n")
            self.process.stdin.flush()
        self.process.wait(20)
        self.process.stdin.close()
        self.process.stdout.close()

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        ready, _, _ = select.select([self.process.stdout], [], [], 20)
        assert ready, "push_feed says nothing"
        return json.loads(self.process.stdout.readline())

    def feed(self, n):
        assert self.ask(f"feed {n}") == 0

    def stats(self):
        return self.ask("stats")

    def drained(self, dealt_with, timeout_s=30):
        """Waits until so many requests were sent or refused, and none waits."""
        last = {}
        def look():
            last.update(self.stats())
            return last["sent"] + last["refused"] >= dealt_with and last["rows"] == 0 and last["waiting"] == 0
        try:
            harness.wait_until(look, timeout_s, "an empty outbox")
        except harness.WaitTimeout:
            raise AssertionError(f"not drained: {last}") from None
        return last
