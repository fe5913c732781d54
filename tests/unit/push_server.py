#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An OTLP/gRPC metrics receiver that misbehaves on demand.

push_server.py PORT OUT: appends each accepted request to OUT (4 bytes big-endian length, then the bytes). Modes are
read from standard input, one a line: ok, unavailable, slow, invalid. Says "ready PORT" when it listens and "mode" after
each change. PORT 0 takes any.
"""
import struct
import sys
import threading
import time
from concurrent import futures

import grpc

METHOD = "Export"
SERVICE = "opentelemetry.proto.collector.metrics.v1.MetricsService"


class Receiver:
    def __init__(self, path):
        self.out = open(path, "ab", buffering=0)
        self.mode = "ok"
        self.lock = threading.Lock()

    def export(self, request, context):
        mode = self.mode
        if mode == "slow":
            time.sleep(1.0)
            context.abort(grpc.StatusCode.UNAVAILABLE, "too late anyway")
        if mode == "unavailable":
            context.abort(grpc.StatusCode.UNAVAILABLE, "not now")
        if mode == "invalid":
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "not like this")
        with self.lock:
            self.out.write(struct.pack(">I", len(request)) + request)
        context.send_initial_metadata((("lanterne-verdict", "straggler;job=train;rank=1;cause=cpu"),))
        return b""


def main():
    receiver = Receiver(sys.argv[2])
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=4), options=(("grpc.so_reuseport", 0),))
    handler = grpc.method_handlers_generic_handler(
        SERVICE,
        {METHOD: grpc.unary_unary_rpc_method_handler(receiver.export, lambda b: b, lambda b: b)},
    )
    server.add_generic_rpc_handlers((handler,))
    port = server.add_insecure_port("127.0.0.1:" + sys.argv[1])
    if port == 0:
        sys.exit("cannot listen")
    server.start()
    print("ready", port, flush=True)
    for line in sys.stdin:
        receiver.mode = line.strip()
        print("mode", flush=True)
    server.stop(0)


main()
