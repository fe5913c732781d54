# SPDX-License-Identifier: Apache-2.0
"""The product's own clients against grpcio, against the product's server and against dead peers."""
import os
import socket
import subprocess
import threading
import time
from concurrent import futures

import grpc
import pytest

from http_util import BIN, Server

CALL = os.path.join(BIN, "http_call")


def parse(line):
    head, _, tail = line.partition(" message=" if " message=" in line else " error=")
    result = dict(part.split("=", 1) for part in head.split())
    result["text"] = tail
    return result


def run(*args, timeout=20):
    out = subprocess.run([CALL, *map(str, args)], capture_output=True, text=True, check=True, timeout=timeout).stdout
    return [parse(line) for line in out.splitlines()]


class Handler(grpc.GenericRpcHandler):
    def __init__(self):
        self.metadata = {}

    def service(self, details):
        def answer(request, context):
            self.metadata = dict(context.invocation_metadata())
            if details.method.endswith("Sleep"):
                time.sleep(1.0)
            if details.method.endswith("Fail"):
                context.set_trailing_metadata((("google.rpc.retryinfo-bin", bytes.fromhex("0a020803")),))
                context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "né 100%")
            context.send_initial_metadata((("x-threshold", "7"),))
            return request
        return grpc.unary_unary_rpc_method_handler(answer)


@pytest.fixture()
def python_server():
    handler = Handler()
    server = grpc.server(futures.ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers((handler,))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield "127.0.0.1:%d" % port, handler, server
    server.stop(None)


def test_against_grpcio(python_server):
    target, handler, _ = python_server
    for extra in ((), ("gzip",)):
        for r in run("grpc", target, "/a.B/Echo", "hello" * 2000, 5000, "count=5", "token=abc", *extra):
            assert (r["rc"], r["status"], r["len"], r["threshold"]) == ("0", "0", "10000", "7")
        assert handler.metadata["authorization"] == "Bearer abc" and handler.metadata["x-node"] == "n1"
        assert handler.metadata["user-agent"].startswith("lanterne/")


def test_grpcio_errors(python_server):
    target, _, _ = python_server
    r = run("grpc", target, "/a.B/Fail", "x", 5000)[0]
    assert (r["status"], r["retry"], r["after_ms"], r["text"]) == ("8", "1", "3000", "né 100%")
    first, second = run("grpc", target, "/a.B/Sleep", "x", 300, "count=2")
    for r in (first, second):
        assert r["status"] == "4" and r["retry"] == "1" and 250 <= int(r["took_ms"]) < 900


def test_own_server():
    with Server(late_ms=50) as server:
        target = "127.0.0.1:%d" % server.port
        for r in run("grpc", target, "/test.Echo/Late", "abc", 5000, "count=4", "gzip"):
            assert (r["rc"], r["len"], r["threshold"]) == ("0", "3", "42")
        assert server.stats()["connections_accepted"] == 1
        r = run("grpc", target, "/test.Echo/Busy", "abc", 5000)[0]
        assert (r["status"], r["retry"], r["after_ms"], r["text"]) == ("14", "1", "2500", "café 100% full")
        r = run("grpc", target, "/test.Echo/Bad", "abc", 5000)[0]
        assert (r["status"], r["retry"]) == ("3", "0")
        r = run("grpc", target, "/nope.X/Y", "abc", 5000)[0]
        assert (r["status"], r["retry"]) == ("12", "0")
        r = run("grpc", target, "/test.Echo/Small", "a" * 1001, 5000)[0]
        assert (r["status"], r["retry"]) == ("8", "0")


def test_reconnects_after_goaway():
    with Server(age_ms=200) as server:
        for r in run("grpc", "127.0.0.1:%d" % server.port, "/test.Echo/Unary", "abc", 5000, "count=20", "pause_ms=100"):
            assert r["rc"] == "0"
        assert server.stats()["connections_accepted"] > 1


def test_peer_killed_during_call():
    server = Server(late_ms=5000)
    proc = subprocess.Popen([CALL, "grpc", "127.0.0.1:%d" % server.port, "/test.Echo/Late", "abc", "10000", "count=2"],
                            stdout=subprocess.PIPE, text=True)
    server.wait_stat("in_flight", 1)
    server.proc.kill()
    server.proc.wait()
    lines = [parse(line) for line in proc.communicate(timeout=10)[0].splitlines()]
    for r in lines:
        assert (r["status"], r["retry"]) == ("14", "1") and int(r["took_ms"]) < 5000
    assert lines[0]["sent"] == "1" and lines[1]["sent"] == "0"
    server.proc.stdout.close()


def serve_once(answer, hold=0.0):
    """A peer that accepts, sends fixed bytes and goes (or stays silent for a while)."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve(conn):
        with conn:
            conn.settimeout(5)
            try:
                conn.recv(65536)
                conn.sendall(answer)
                time.sleep(hold)
            except OSError:
                pass

    def loop():
        while True:
            try:
                conn, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(conn,), daemon=True).start()

    threading.Thread(target=loop, daemon=True).start()
    return listener, listener.getsockname()[1]


@pytest.mark.parametrize("answer,hold,status", ids=lambda v: None if isinstance(v, bytes) else str(v), argvalues=[
    (b"", 0, "14"),                                                          # closes at once
    (b"", 3, "4"),                                                           # never says a word
    (b"HTTP/1.1 400 Bad Request\r\n\r\n", 3, "14"),                          # another protocol
    (b"\0\0\0\4\0\0\0\0\0", 3, "4"),                                         # settings, then silence
    (b"\0\0\0\4\0\0\0\0\0" + b"\0\0\4\3\0\0\0\0\1\0\0\0\7", 3, "14"),         # REFUSED_STREAM
    (b"\0\0\0\4\0\0\0\0\0" + b"\0\0\4\3\0\0\0\0\1\0\0\0\2", 3, "14"),         # INTERNAL_ERROR
    (b"\0\0\0\4\0\0\0\0\0" + b"\0\0\x08\7\0\0\0\0\0\0\0\0\0\0\0\0\0", 3, "14"),  # GOAWAY, nothing processed
    (b"\xff" * 200, 3, "14"),
])
def test_broken_peers(answer, hold, status):
    listener, port = serve_once(answer, hold)
    first, second = run("grpc", "127.0.0.1:%d" % port, "/a.B/C", "abc", 500, "count=2")
    assert (first["status"], first["retry"]) == (status, "1") and int(first["took_ms"]) < 1500
    # The second may share the connection with a peer that says no more.
    assert second["status"] in ("4", "14") and second["retry"] == "1" and int(second["took_ms"]) < 1500
    listener.close()


def test_nobody_listens():
    r = run("grpc", "127.0.0.1:1", "/a.B/C", "abc", 500)[0]
    assert (r["status"], r["retry"], r["sent"]) == ("14", "1", "0")
    r = run("grpc", "no-such-host.invalid:1", "/a.B/C", "abc", 500)[0]
    assert (r["status"], r["retry"], r["sent"]) == ("14", "1", "0")


def test_http_client():
    with Server() as server:
        url = "http://127.0.0.1:%d" % server.port
        r = run("http", url + "/echo", "hello", 5000)[0]
        assert (r["rc"], r["status"], r["len"], r["type"]) == ("0", "200", "5", "text/plain")
        assert run("http", url + "/echo", "hello" * 100, 5000, "gzip")[0]["len"] == "500"
        assert run("http", url + "/echo", "hello" * 100, 5000, "zstd")[0]["len"] == "500"
        r = run("http", url + "/busy", "x", 5000)[0]
        assert (r["status"], r["retry"], r["after_ms"]) == ("503", "1", "3000")
        r = run("http", url + "/nope", "-", 5000)[0]
        assert (r["status"], r["retry"]) == ("404", "0") and int(r["rc"]) < 0
        r = run("http", url + "/big", "-", 5000, "max=1000")[0]
        assert r["rc"] == "-10002"
    r = run("http", url + "/echo", "-", 500)[0]
    assert (r["status"], r["retry"]) == ("0", "1") and r["text"]
    listener, port = serve_once(b"", 3)
    r = run("http", "http://127.0.0.1:%d/" % port, "-", 300)[0]
    assert (r["rc"], r["retry"]) == ("-10012", "1")
    listener.close()
    date = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + 100))
    listener, port = serve_once(b"HTTP/1.1 429 X\r\nRetry-After: " + date.encode() + b"\r\nContent-Length: 0\r\n\r\n")
    r = run("http", "http://127.0.0.1:%d/" % port, "-", 2000)[0]
    assert r["status"] == "429" and 90000 < int(r["after_ms"]) <= 100000
    listener.close()
    # Wishes that make no sense are none: the exporter's own pause is taken.
    past = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() - 100))
    for wish, after_ms in (("-5", 0), ("0", 0), ("soon", 0), (past, 0), ("99999999999999999999", None), ("7", 7000)):
        listener, port = serve_once(f"HTTP/1.1 503 X\r\nRetry-After: {wish}\r\nContent-Length: 0\r\n\r\n".encode())
        r = run("http", "http://127.0.0.1:%d/" % port, "-", 2000)[0]
        assert (r["status"], r["retry"]) == ("503", "1"), wish
        assert int(r["after_ms"]) == after_ms if after_ms is not None else int(r["after_ms"]) <= 86400000, (wish, r)
        listener.close()
    assert run("http", "file:///etc/passwd", "-", 500)[0]["rc"] == "-22"
