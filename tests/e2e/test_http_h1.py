# SPDX-License-Identifier: Apache-2.0
"""HTTP/1.1 with curl and with raw bytes: what must work and what must be refused."""
import gzip
import json
import socket
import subprocess
import time

import pytest

from http_util import Server, read_all, send_all


@pytest.fixture(scope="module")
def server():
    with Server(max_body=1000000) as s:
        yield s


def curl(server, *args, data=None):
    out = subprocess.run(["curl", "-sS", "-m", "10", "-i", *args[:-1], "http://127.0.0.1:%d%s" % (server.port, args[-1])],
                         capture_output=True, check=True, input=data).stdout
    head, _, body = out.rpartition(b"\r\n\r\n") if args[0] == "-I" else out.partition(b"\r\n\r\n")
    while head.startswith((b"HTTP/1.1 100", b"HTTP/2 100")):
        head, _, body = body.partition(b"\r\n\r\n")
    lines = (head or body).decode().split("\r\n")
    fields = dict(line.split(": ", 1) for line in lines[1:] if ": " in line)
    return int(lines[0].split()[1]), fields, body


def status(answer):
    return int(answer.split(b" ", 2)[1]) if answer else None


@pytest.mark.parametrize("proto", ["--http1.1", "--http2-prior-knowledge"])
def test_curl(server, proto):
    code, head, body = curl(server, proto, "/echo?a=1&b=2")
    assert (code, head["x-query"], body) == (200, "a=1&b=2", b"")
    code, head, body = curl(server, proto, "-d", "hello", "/echo")
    assert (code, body) == (200, b"hello")
    code, head, body = curl(server, proto, "-H", "transfer-encoding: chunked", "--data-binary", "@-", "/size",
                            data=b"x" * 300000)
    assert (code, body) == (200, b"300000\n")
    code, head, body = curl(server, proto, "-H", "expect: 100-continue", "--data-binary", "@-", "/size",
                            data=b"x" * 999999)
    assert (code, body) == (200, b"999999\n")
    code, head, body = curl(server, proto, "-I", "/big")
    assert code == 200 and head["content-length"] == "4194304"
    code, head, body = curl(server, proto, "-H", "accept-encoding: gzip", "/big")
    assert head["content-encoding"] == "gzip" and gzip.decompress(body) == bytes(4194304)
    code, head, body = curl(server, proto, "-H", "accept-encoding: gzip;q=0, identity", "/big")
    assert "content-encoding" not in head and head["vary"] == "accept-encoding" and len(body) == 4194304
    assert curl(server, proto, "/tree/a/b%20c?x")[1]["x-rest"] == "a/b%20c"
    assert curl(server, proto, "/late")[2] == b"late\n"


@pytest.mark.parametrize("proto", ["--http1.1", "--http2-prior-knowledge"])
def test_answer_matrix(server, proto):
    assert curl(server, proto, "/nope")[0] == 404
    code, head, _ = curl(server, proto, "-X", "DELETE", "/echo")
    assert code == 405 and head["allow"] == "GET, HEAD, POST"
    code, head, _ = curl(server, proto, "-d", "x", "-H", "content-type: text/plain", "/v1/metrics")
    assert code == 415
    assert curl(server, proto, "-d", "x", "-H", "content-type: Application/JSON; charset=utf-8", "/v1/metrics")[0] == 200
    code, head, _ = curl(server, proto, "-d", "x", "-H", "content-encoding: br", "/echo")
    assert code == 415 and head["accept-encoding"] == "gzip, zstd"
    code, head, _ = curl(server, proto, "--data-binary", "@-", "/size", data=b"x" * 1000001)
    assert code == 413
    code, head, body = curl(server, proto, "-d", "x", "/busy")
    assert code == 503 and head["retry-after"] == "3" and json.loads(body)["error"]["message"] == "café 100% full"
    code, head, body = curl(server, proto, "-d", "x", "-H", "content-type: application/x-protobuf", "/v1/bad")
    assert code == 400 and head["content-type"] == "application/x-protobuf" and body.startswith(b"\x08\x03\x12\x08bad data")
    code, head, body = curl(server, proto, "-d", "{}", "-H", "content-type: application/json", "/v1/bad")
    answer = json.loads(body)
    assert answer["code"] == 3 and answer["message"] == "bad data"
    assert curl(server, proto, "-H", "x: " + "y" * 20000, "/echo")[0] == 431
    assert curl(server, proto, *sum((["-H", "x%d: y" % i] for i in range(80)), []), "/echo")[0] == 431
    code, head, _ = curl(server, proto, "-d", "x", "-H", "content-type: text/plain", "/test.Echo/Unary")
    assert code == 415
    code, _, body = curl(server, proto, "-d", "", "-H", "content-type: application/x-protobuf", "/v1/metrics")
    assert (code, body) == (200, b"")


def test_inflate(server):
    two = gzip.compress(b"a" * 1000) + gzip.compress(b"") + gzip.compress(b"b" * 500)
    assert curl(server, "-H", "content-encoding: gzip", "--data-binary", "@-", "/echo", data=two)[2] == b"a" * 1000 + b"b" * 500
    zst = subprocess.run(["zstd", "-q", "-c"], input=b"abc" * 1000, capture_output=True, check=True).stdout
    assert curl(server, "-H", "content-encoding: zstd", "--data-binary", "@-", "/echo", data=zst + zst)[2] == b"abc" * 2000
    for bad in (two[:-3], two + b"garbage", b"garbage", two[:20] + b"\xff\xff" + two[22:]):
        assert curl(server, "-H", "content-encoding: gzip", "--data-binary", "@-", "/echo", data=bad)[0] == 400
    for bad in (zst[:-3], zst + b"garbage", b"garbage"):
        assert curl(server, "-H", "content-encoding: zstd", "--data-binary", "@-", "/echo", data=bad)[0] == 400


def test_bombs():
    """A body that inflates beyond the limit is refused and the process does not grow by its size."""
    zeros = gzip.compress(bytes(300_000_000))
    zst = subprocess.run(["zstd", "-q", "-c"], input=bytes(300_000_000), capture_output=True, check=True).stdout
    far = subprocess.run(["zstd", "-q", "-c", "--ultra", "--long=27"], input=bytes(150_000_000), capture_output=True,
                         check=True).stdout
    with Server(ratio=0, max_body=16_000_000) as server:
        for coding, body in (("gzip", zeros), ("zstd", zst)):
            for _ in range(3):
                assert curl(server, "-H", "content-encoding: " + coding, "--data-binary", "@-", "/size", data=body)[0] == 413
        assert server.peak_kib() < 60_000
        assert server.stats()["refused_body"] == 6
        assert server.stats()["body_bytes"] == 0
        assert curl(server, "-H", "content-encoding: zstd", "--data-binary", "@-", "/size", data=far)[0] == 413
    with Server() as server:  # the ratio alone, below the size limit
        body = gzip.compress(bytes(10_000_000))
        assert curl(server, "-H", "content-encoding: gzip", "--data-binary", "@-", "/size", data=body)[0] == 413
        assert server.stats()["request_inflated_bytes"] < 5_000_000


GET = b"GET /echo HTTP/1.1\r\nHost: a\r\n\r\n"
CLOSE = b"GET /echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"


def test_pipelining(server):
    post = b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc"
    late = b"GET /late HTTP/1.1\r\nHost: a\r\n\r\n"
    chunked = b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nxyz\r\n0\r\nT: u\r\n\r\n"
    answer = server.raw(GET + late + post + chunked + GET * 50 + CLOSE)
    assert answer.count(b"HTTP/1.1 200 OK") == 55
    assert answer.index(b"late\n") < answer.index(b"abc") < answer.index(b"xyz")


def test_one_byte_at_a_time(server):
    request = b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
    with server.connect() as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for i in range(len(request)):
            s.sendall(request[i:i + 1])
        assert read_all(s).endswith(b"abc")


def test_half_close_still_gets_the_reply(server):
    assert server.raw(b"GET /late HTTP/1.1\r\nHost: a\r\n\r\n", half_close=True).endswith(b"late\n")


def test_http10(server):
    assert b"connection: close" in server.raw(b"GET /echo HTTP/1.0\r\n\r\n")
    answer = server.raw(b"GET /echo HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET /echo HTTP/1.0\r\n\r\n")
    assert answer.count(b"200 OK") == 2


SMUGGLE = [
    (400, b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    (400, b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n"),
    (400, b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc"),
    (400, b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3, 3\r\n\r\nabc"),
    (400, b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: +3\r\n\r\nabc"),
    (400, b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n"),
    (400, b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\n"),
    (400, b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999\r\n\r\n"),
    (400, b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length : 3\r\n\r\nabc"),
    (501, b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
    (501, b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"),
    (400, b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    (400, b"POST /echo HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    (400, b"GET /echo HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n"),
    (400, b"GET /echo HTTP/1.1\nHost: a\n\n"),
    (400, b"GET /echo HTTP/1.1\r\nHost: a\nX: b\r\n\r\n"),
    (400, b"GET /echo HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n"),
    (400, b"GET /echo HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n"),
    (400, b"GET /echo HTTP/1.1\r\n\r\n"),
    (400, b"GET /echo HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"),
    (400, b"GET  /echo HTTP/1.1\r\nHost: a\r\n\r\n"),
    (400, b"GET /ec ho HTTP/1.1\r\nHost: a\r\n\r\n"),
    (400, b"GET echo HTTP/1.1\r\nHost: a\r\n\r\n"),
    (505, b"GET /echo HTTP/3.0\r\nHost: a\r\n\r\n"),
    (400, b"G\x01T /echo HTTP/1.1\r\nHost: a\r\n\r\n"),
    (400, b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n"),
    (400, b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0x3\r\nabc\r\n0\r\n\r\n"),
    (400, b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3 \r\nabc\r\n0\r\n\r\n"),
    (400, b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n"),
    (400, b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3;" + b"x" * 300 + b"\r\n"),
    (417, b"POST /echo HTTP/1.1\r\nHost: a\r\nExpect: tea\r\nContent-Length: 1\r\n\r\nx"),
    (414, b"GET /" + b"a" * 20000 + b" HTTP/1.1\r\nHost: a\r\n\r\n"),
    (431, b"GET /echo HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 20000 + b"\r\n\r\n"),
    (400, b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n"),
    (400, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\r\n" * 10),
]


@pytest.mark.parametrize("code,request_bytes", SMUGGLE)
def test_refused_and_closed(server, code, request_bytes):
    """One error answer, then the end: nothing behind it is read as a second request."""
    answer = server.raw(request_bytes + CLOSE, timeout=10)
    assert status(answer) in (code, 505 if b"HTTP/2.0" in request_bytes else code)
    assert answer.count(b"HTTP/1.1 ") == 1
    assert b"connection: close" in answer


def test_early_refusal_keeps_or_closes(server):
    small = b"POST /nope HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n" + b"x" * 1000
    answer = server.raw(small + CLOSE)
    assert answer.count(b"HTTP/1.1 ") == 2  # the small body was skipped
    large = b"POST /nope HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n" + b"x" * 1000
    answer = server.raw(large)
    assert status(answer) == 404 and b"connection: close" in answer
    waiting = b"POST /nope HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 10\r\n\r\n"
    answer = server.raw(waiting)
    assert status(answer) == 404 and b"connection: close" in answer and b"100 Continue" not in answer


def test_slow_peers():
    with Server(first_byte_ms=300, headers_ms=400, idle_ms=500, grace_ms=300, request_ms=1500, write_ms=400) as server:
        began = time.monotonic()
        assert server.raw(b"") == b""
        assert server.raw(b"GET /ec") .startswith(b"HTTP/1.1 408")
        assert server.raw(b"PRI * HT") == b""
        assert server.raw(b"POST /size HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nx").startswith(b"HTTP/1.1 408")
        answer = server.raw(GET)
        assert answer.count(b"200 OK") == 1  # idle afterwards
        with server.connect() as s:  # a head that trickles in
            answer = b""
            try:
                for i in range(200):
                    s.sendall(b"GET /echo HTTP/1.1\r\nX: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"[i:i + 1])
                    time.sleep(0.02)
            except OSError:
                pass
        with server.connect() as s:  # asks for much, takes nothing
            send_all(s, b"GET /big HTTP/1.1\r\nHost: a\r\n\r\n" * 4)
            server.wait_stat("timeouts_write", 1)
        stats = server.stats()
        assert stats["timeouts_first_byte"] == 1 and stats["timeouts_head"] == 3
        assert stats["timeouts_body"] == 1 and stats["timeouts_idle"] == 1
        server.wait_stat("connections", 0, exact=True)
        assert time.monotonic() - began < 30


def test_connection_caps():
    with Server(per_ip=5) as server:
        socks = [server.connect() for _ in range(5)]
        for s in socks:
            s.sendall(GET)
            assert s.recv(1000)
        with server.connect() as extra:
            assert read_all(extra) == b""
        assert server.stats()["connections_refused_ip"] == 1
        socks.pop().close()
        server.wait_stat("connections", 4, exact=True)
        assert status(server.raw(CLOSE)) == 200
        for s in socks:
            s.close()
    with Server(connections=3) as server:
        socks = [server.connect() for _ in range(3)]
        server.wait_stat("connections", 3)
        with server.connect() as extra:
            assert read_all(extra) == b""
        assert server.stats()["connections_refused_cap"] == 1
        for s in socks:
            s.close()


def test_budget():
    with Server(budget=300_000) as server:
        with server.connect() as s:
            s.sendall(b"POST /size HTTP/1.1\r\nHost: a\r\nContent-Length: 250000\r\n\r\n" + b"x" * 240000)
            server.wait_stat("body_bytes", 240000)
            answer = server.raw(b"POST /size HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 100000\r\n\r\n" + b"x" * 100000)
            assert status(answer) == 503 and b"retry-after" in answer
        server.wait_stat("body_bytes", 0, exact=True)
        assert server.stats()["refused_budget"] == 1


def test_drain():
    with Server(late_ms=300) as server:
        idle = server.connect()
        idle.sendall(GET)
        assert idle.recv(1000)
        busy = server.connect()
        busy.sendall(b"GET /late HTTP/1.1\r\nHost: a\r\n\r\n")
        server.wait_stat("in_flight", 1)
        server.terminate()
        answer = read_all(busy)
        assert b"connection: close" in answer and answer.endswith(b"late\n")
        assert read_all(idle) == b""
        busy.close()
        idle.close()
        assert server.wait() == 0
