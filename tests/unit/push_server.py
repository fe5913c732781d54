#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An OTLP metrics receiver that misbehaves on demand.

push_server.py grpc|http PORT OUT: appends each accepted request to OUT (4 bytes big-endian length, then the bytes).
Modes are read from standard input, one a line: ok, unavailable, slow, invalid, token (only with "Bearer s3cret"),
partial (takes all but three points, and says so; wants the exporter's User-Agent). Says
"ready PORT" when it listens and "mode" after each change. PORT 0 takes any.
"""
import gzip
import http.server
import struct
import sys
import threading
import time
from concurrent import futures

import grpc

METHOD = "Export"
SERVICE = "opentelemetry.proto.collector.metrics.v1.MetricsService"


def drop_cut_record(path):
    """A receiver that was killed in the middle of a write left part of a record, which it did not acknowledge."""
    whole = 0
    with open(path, "ab+") as file:
        file.seek(0)
        data = file.read()
        while whole + 4 <= len(data):
            end = whole + 4 + struct.unpack_from(">I", data, whole)[0]
            if end > len(data):
                break
            whole = end
        if whole < len(data):
            print("cut record dropped:", len(data) - whole, "bytes", file=sys.stderr)
            file.truncate(whole)


# ExportMetricsServiceResponse{partial_success{rejected_data_points: 3, error_message: "too old"}}
PARTIAL = b"\x0a\x0b\x08\x03\x12\x07too old"
USER_AGENT = "lanterne/%s OTel-OTLP-Exporter-C/%s"


def known_agent(text):
    """The product, then the exporter, of one version."""
    version = text.split("/", 1)[-1].split(" ", 1)[0]
    return text.startswith(USER_AGENT % (version, version))


class Receiver:
    def __init__(self, path):
        drop_cut_record(path)
        self.out = open(path, "ab", buffering=0)
        self.mode = "ok"
        self.lock = threading.Lock()

    def keep(self, request):
        with self.lock:
            self.out.write(struct.pack(">I", len(request)) + request)

    def export(self, request, context):
        mode = self.mode
        if mode == "slow":
            time.sleep(1.0)
            context.abort(grpc.StatusCode.UNAVAILABLE, "too late anyway")
        if mode == "unavailable":
            context.abort(grpc.StatusCode.UNAVAILABLE, "not now")
        if mode == "invalid":
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "not like this")
        if mode == "token" and ("authorization", "Bearer s3cret") not in context.invocation_metadata():
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "who are you")
        if mode == "partial" and not known_agent(dict(context.invocation_metadata())["user-agent"]):
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "which exporter")
        self.keep(request)
        context.send_initial_metadata((("lanterne-verdict", "straggler;job=train;rank=1;cause=cpu"),))
        return PARTIAL if mode == "partial" else b""


class HttpHandler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    receiver = None

    def answer(self, status, headers=(), body=b""):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        mode = self.receiver.mode
        if self.path != "/base/v1/metrics" or self.headers["Content-Type"] != "application/x-protobuf":
            self.answer(404)
        elif mode == "unavailable":
            self.answer(503, (("Retry-After", "7"),))
        elif mode == "invalid":
            self.answer(400)
        elif mode == "token" and self.headers["Authorization"] != "Bearer s3cret":
            self.answer(401)
        else:
            if self.headers["Content-Encoding"] == "gzip":
                body = gzip.decompress(body)
            if mode == "partial" and not known_agent(self.headers["User-Agent"]):
                self.answer(400)
                return
            self.receiver.keep(body)
            self.answer(200, body=PARTIAL if mode == "partial" else b"")

    def log_message(self, *_):
        pass


def start_http(receiver, port):
    HttpHandler.receiver = receiver
    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), HttpHandler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]


def start_grpc(receiver, port):
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=4), options=(("grpc.so_reuseport", 0),))
    handler = grpc.method_handlers_generic_handler(
        SERVICE,
        {METHOD: grpc.unary_unary_rpc_method_handler(receiver.export, lambda b: b, lambda b: b)},
    )
    server.add_generic_rpc_handlers((handler,))
    port = server.add_insecure_port("127.0.0.1:%d" % port)
    if port == 0:
        sys.exit("cannot listen")
    server.start()
    receiver.server = server
    return port


def main():
    receiver = Receiver(sys.argv[3])
    start = start_http if sys.argv[1] == "http" else start_grpc
    print("ready", start(receiver, int(sys.argv[2])), flush=True)
    for line in sys.stdin:
        receiver.mode = line.strip()
        print("mode", flush=True)


main()
