# SPDX-License-Identifier: Apache-2.0
"""The abuse suite: the real collector against broken and hostile clients.

One table of cases. Each attack must get the answer it deserves, must not make the collector grow, and must not keep an
honest agent, which pushes all the while over gRPC and HTTP, from being served. What concerns the server's parts (every
frame of HTTP/2, every rule of HTTP/1) is in test_http_*.py, statuses and headers in test_answers.py, MCP in test_mcp_*.py.
"""
import contextlib
import os
import resource
import signal
import socket
import struct
import time

import grpc
import pytest

import abuse_util as au
import collector_util as cu
import harness
from abuse_util import (CONTINUATION, DATA, END_HEADERS, END_STREAM, ENHANCE_YOUR_CALM, HEADERS, HELLO, PING, PREFACE, PRIORITY,
                        PROTOCOL_ERROR, REFUSED_STREAM, RST_STREAM, SETTINGS, WINDOW_UPDATE, frame, goaway_of, head, pb)
from http_util import H2, RSS_SCALE, send_all

SHORT = ("--otlp-first-byte-timeout", "1s", "--otlp-header-timeout", "600ms", "--otlp-body-grace", "600ms",
         "--otlp-request-timeout", "5s", "--otlp-write-timeout", "600ms", "--otlp-max-connections-per-address", "40",
         "--limits-series-per-metric", "500", "--limits-series", "3000")


@pytest.fixture(scope="module")
def module_procs(tmp_path_factory):
    processes = harness.Processes(str(tmp_path_factory.mktemp("logs")))
    yield processes
    processes.kill_all()


def attacked(procs, folder, *flags, headers=None):
    """A collector with short limits and an honest client of it."""
    collector = cu.Collector(procs, folder, *SHORT, *flags).start()
    honest = au.Honest(collector, headers)
    honest.served(10)
    return collector, honest


@pytest.fixture(scope="module")
def scene(module_procs, tmp_path_factory):
    collector, honest = attacked(module_procs, tmp_path_factory.mktemp("open"))
    yield collector, honest
    honest.end()
    assert not honest.errors, honest.errors[:3]
    assert collector.process.stop() == 0


def endure(scene, attack, mib):
    """Runs an attack; the collector must neither grow nor die, nor forget the honest client."""
    collector, honest = scene
    memory = au.Memory(collector.process.pid)
    before = memory.reset()
    pushed = honest.pushed
    attack(au.Target(collector))
    honest.served()
    assert honest.pushed > pushed
    peak, after = memory.peak(), memory.now()
    assert peak - before < au.Memory.mib(mib), f"peak {peak} KiB over {before} KiB"
    assert after - before < au.Memory.mib(min(mib, 24)), f"{after} KiB stay, {before} KiB before"
    assert collector.process.running()


# ---- HTTP/2 floods -------------------------------------------------------------------------------

def calm(data):
    """Ended for a flood. The reset of a connection whose input was not read may overtake the GOAWAY."""
    assert goaway_of(data) is None or goaway_of(data)[0] == ENHANCE_YOUR_CALM, goaway_of(data)


def flooded(t, data):
    before = t.counter("floods_closed")
    answer = t.raw(data)
    calm(answer)
    harness.wait_until(lambda: t.counter("floods_closed") > before, 10, "the flood being counted")
    return answer


def rapid_reset(t):
    """CVE-2023-44487."""
    before = t.counter("requests")
    flooded(t, HELLO + b"".join(frame(HEADERS, END_HEADERS, s, head()) + frame(RST_STREAM, 0, s, struct.pack(">I", 8))
                                for s in range(1, 8001, 2)))
    assert t.counter("requests") - before < 600  # those of the honest client among them


def made_you_reset_by_window(t):
    """CVE-2025-8671: the peer's faults make the server reset its own streams."""
    flooded(t, HELLO + b"".join(frame(HEADERS, END_HEADERS, s, head()) +
                                frame(WINDOW_UPDATE, 0, s, struct.pack(">I", 0x7fffffff)) for s in range(1, 4001, 2)))


def made_you_reset_by_zero(t):
    """This library ends the whole connection for it."""
    answer = t.raw(HELLO + b"".join(frame(HEADERS, END_HEADERS, s, head()) + frame(WINDOW_UPDATE, 0, s, bytes(4))
                                    for s in range(1, 4001, 2)))
    assert goaway_of(answer) is None or goaway_of(answer)[0] in (PROTOCOL_ERROR, ENHANCE_YOUR_CALM)


def made_you_reset_by_end(t):
    """Data behind the end, on stream after stream."""
    answer = t.raw(HELLO + b"".join(frame(HEADERS, END_HEADERS, s, head()) + frame(DATA, END_STREAM, s, b"x") +
                                    frame(DATA, 0, s, b"x") for s in range(1, 4001, 2)))
    assert goaway_of(answer) is None or goaway_of(answer)[0] != 0
    assert len(au.resets_of(answer)) < 300


def made_you_reset_by_length(t):
    """A body that is longer than its content-length, on stream after stream."""
    block = head(more=au.literal(b"content-length", b"1"))
    flooded(t, HELLO + b"".join(frame(HEADERS, END_HEADERS, s, block) + frame(DATA, 0, s, b"xx") for s in range(1, 4001, 2)))


def continuation_flood(t):
    """CVE-2024-28182."""
    answer = t.raw(HELLO + frame(HEADERS, 0, 1, head()) + frame(CONTINUATION, 0, 1, au.literal(b"a", b"b") * 100) * 2000)
    assert goaway_of(answer) is None or goaway_of(answer)[0] != 0


def hpack_bomb(t):
    """One table entry of nearly 4 KiB, replayed thousands of times by one byte each."""
    entry = b"\x40\x01x\x7f\xbd\x1d" + b"v" * 3900
    block = head() + entry + b"\xbe" * 12000
    with t.connect() as s:
        send_all(s, HELLO + frame(HEADERS, END_HEADERS | END_STREAM, 1, block[:16384]))
        data = b""
        while 1 not in au.resets_of(data) and goaway_of(data) is None:
            data += s.recv(65536)


def trailer_bomb(t):
    entry = b"\x40\x01x\x7f\xbd\x1d" + b"v" * 3900
    with t.connect() as s:
        send_all(s, HELLO + frame(HEADERS, END_HEADERS, 1, head()) +
                 frame(HEADERS, END_HEADERS | END_STREAM, 1, (entry + b"\xbe" * 12000)[:16384]))
        data = b""
        while 1 not in au.resets_of(data) and goaway_of(data) is None:
            data += s.recv(65536)


def too_many_headers(t):
    with H2(t) as h2:
        for fields in ([("x%d" % i, "y") for i in range(80)], [("x", "y" * 17000)]):
            sid = h2.headers("POST", "/v1/metrics", [("content-type", "application/x-protobuf"), *fields])
            assert h2.wait_response(sid)[0][":status"] == "431"


def settings_flood(t):
    """CVE-2019-9515."""
    flooded(t, HELLO + frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 65535)) * 20000)


def settings_of_many_entries(t):
    answer = t.raw(HELLO + frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 65535) * 2000))
    assert goaway_of(answer) is None or goaway_of(answer)[0] != 0


def ping_flood(t):
    """CVE-2019-9512; the word that gRPC clients look for is said."""
    answer = flooded(t, HELLO + frame(PING, 0, 0, b"12345678") * 20000)
    assert goaway_of(answer) is None or goaway_of(answer)[1] in (b"too_many_pings", b"")


def ping_flood_unread(t):
    before = t.counter("floods_closed")
    with t.connect() as s:
        send_all(s, HELLO + frame(PING, 0, 0, b"12345678") * 50000)
        harness.wait_until(lambda: t.counter("floods_closed") > before, 10, "the flood being counted")


def too_many_keepalives(t):
    """Four pings without anything being answered in between are three too early."""
    answer = t.raw(HELLO + frame(PING, 0, 0, b"12345678") * 4)
    assert (ENHANCE_YOUR_CALM, b"too_many_pings") in [
        (int.from_bytes(p[4:8], "big"), p[8:]) for kind, _, _, p in au.frames(answer) if kind == au.GOAWAY]


def empty_data_flood(t):
    """CVE-2019-9518."""
    flooded(t, HELLO + frame(HEADERS, END_HEADERS, 1, head()) + frame(DATA, 0, 1) * 20000)


def padding_flood(t):
    flooded(t, HELLO + frame(HEADERS, END_HEADERS, 1, head()) + frame(DATA, 8, 1, b"\xff" + bytes(255)) * 5000)


def priority_flood(t):
    flooded(t, HELLO + frame(PRIORITY, 0, 1, struct.pack(">IB", 0, 10)) * 20000)


def unknown_frame_flood(t):
    flooded(t, HELLO + frame(0xbb, 0, 0, b"x") * 20000)


def window_update_drip(t):
    """Window by window of one byte."""
    flooded(t, HELLO + frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", 1)) * 20000)


def zero_window_reader(t):
    """CVE-2019-9517: asks, and never opens the window for the answers."""
    before = t.counter("timeouts_write")
    body = au.grpc_message(b"")
    block = head(cu.GRPC_METRICS.encode(), b"application/grpc")
    asked = b"".join(frame(HEADERS, END_HEADERS, s, block) + frame(DATA, END_STREAM, s, body) for s in range(1, 199, 2))
    t.raw(PREFACE + frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 0)) + asked)
    assert t.counter("timeouts_write") > before


def data_dribble(t):
    """CVE-2019-9511: takes its answers one byte at a time."""
    block = head(cu.GRPC_METRICS.encode(), b"application/grpc")
    asked = b"".join(frame(HEADERS, END_HEADERS, s, block) + frame(DATA, END_STREAM, s, au.grpc_message(b""))
                     for s in range(1, 199, 2))
    with t.connect() as s:
        reader = au.Reader(s)
        send_all(s, PREFACE + frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 0)) + asked)
        with contextlib.suppress(OSError):
            while reader.thread.is_alive():
                s.sendall(frame(WINDOW_UPDATE, 0, 1, struct.pack(">I", 1)))
                reader.thread.join(0.05)
        reader.end()


def too_many_streams(t):
    """Beyond the announced number each is refused, so that it may be tried elsewhere."""
    with t.connect() as s:
        send_all(s, HELLO + b"".join(frame(HEADERS, END_HEADERS, i, head()) for i in range(1, 601, 2)))
        data = b""
        while goaway_of(data) is None and len(au.resets_of(data)) < 200:
            part = s.recv(65536)
            assert part
            data += part
    codes = set(au.resets_of(data).values())
    assert goaway_of(data) is not None or codes == {REFUSED_STREAM}, codes


def too_many_connections(t):
    """Of one address; the honest client has another."""
    lone = au.Target(t.collector, "127.0.0.9")
    with contextlib.ExitStack() as stack:
        socks = [stack.enter_context(lone.connect()) for _ in range(60)]
        before = t.counter("connections_refused_ip")
        for s in socks:
            send_all(s, b"POST /v1/metrics HTTP/1.1\r\n")
        closed = 0
        for s in socks[40:]:
            with contextlib.suppress(ConnectionResetError):
                assert s.recv(10) == b""
            closed += 1
        assert closed == 20 and t.counter("connections_refused_ip") >= max(before, 20)


def many_watchers(t):
    """Health/Watch asks for no token: there is an end to it."""
    block = head(b"/grpc.health.v1.Health/Watch", b"application/grpc")
    with contextlib.ExitStack() as stack:
        refused = 0
        for _ in range(12):
            s = stack.enter_context(t.connect())
            send_all(s, HELLO + b"".join(frame(HEADERS, END_HEADERS, i, block) + frame(DATA, END_STREAM, i, bytes(5))
                                         for i in range(1, 200, 2)))
            data = b""
            while sum(1 for kind, flags, _, _ in au.frames(data)
                      if kind == DATA or (kind == HEADERS and flags & END_STREAM)) < 100:
                data += s.recv(65536)
            refused += sum(1 for kind, flags, _, _ in au.frames(data) if kind == HEADERS and flags & END_STREAM)
        assert refused == 200


def odd_settings(t):
    for what, value in ((2, 2), (4, 0x80000000), (5, 100), (5, 1 << 24)):  # push, window, frame size: not allowed
        assert goaway_of(t.raw(HELLO + frame(SETTINGS, 0, 0, struct.pack(">HI", what, value))))[0] != 0
    with t.connect() as s:  # allowed, and odd
        for what, value in ((1, 0), (1, 0xffffffff), (3, 0), (4, 0x7fffffff), (4, 0), (5, 16777215), (6, 1), (99, 1)):
            send_all(s, (HELLO if what == 1 and value == 0 else b"") + frame(SETTINGS, 0, 0, struct.pack(">HI", what, value)))
        send_all(s, frame(HEADERS, END_HEADERS | END_STREAM, 1, head()))
        data = b""
        while not any(kind == HEADERS for kind, _, _, _ in au.frames(data)):
            data += s.recv(65536)


def connection_churn(t):
    for _ in range(1500):
        with t.connect() as s:
            send_all(s, PREFACE[:9])


# ---- slowness ------------------------------------------------------------------------------------

def drip(t, first, piece, every=0.03):
    """Sends first at once, then piece again and again; the whole answer."""
    with t.connect() as s:
        reader = au.Reader(s)
        send_all(s, first)
        with contextlib.suppress(OSError):
            while reader.thread.is_alive():
                s.sendall(piece)
                reader.thread.join(every)
        return reader.end()


POST = b"POST /v1/metrics HTTP/1.1\r\nHost: a\r\nContent-Type: application/x-protobuf\r\n"


def silence(t):
    assert t.raw(b"") == b""


def slow_head(t):
    answer = drip(t, b"POST /v1/metrics HTTP/1.1\r\nHost: a\r\n", b"X: y\r\n")
    assert answer.startswith((b"HTTP/1.1 408 ", b"HTTP/1.1 431 ")), answer


def slow_preface(t):
    assert drip(t, PREFACE[:5], b"") == b""


def slow_body(t):
    assert drip(t, POST + b"Content-Length: 100000\r\n\r\n", b"x").startswith(b"HTTP/1.1 408 ")


def slow_chunks(t):
    assert drip(t, POST + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n").startswith(b"HTTP/1.1 408 ")


def slow_head_h2(t):
    answer = t.raw(HELLO + frame(HEADERS, 0, 1, head()))
    assert goaway_of(answer)[0] == ENHANCE_YOUR_CALM


def slow_body_h2(t):
    with H2(t) as h2:
        sid = h2.headers("POST", "/v1/metrics", [("content-type", "application/x-protobuf")], end=False)
        h2.conn.send_data(sid, b"x")
        h2.flush()
        assert h2.wait_response(sid)[0][":status"] == "408"
        sid = h2.grpc(cu.GRPC_METRICS, b"\0\0\0\0", end=False)
        assert h2.wait_response(sid)[0]["grpc-status"] == "4"


def pipelined_and_unread(t):
    """Requests by the ten thousand whose answers nobody reads."""
    with t.connect() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.settimeout(5)
        with contextlib.suppress(OSError):
            s.sendall((POST + b"Content-Length: 0\r\n\r\n") * 50000)


def tiny_chunks(t):
    answer = t.raw(POST + b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n" + b"1\r\n\xff\r\n" * 200000 + b"0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ")


# ---- confusion -----------------------------------------------------------------------------------

def preface_confusion(t):
    for data in (b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n", b"PRI * HTTP/1.1\r\nHost: a\r\n\r\n",
                 b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + os.urandom(32) + b"\r\n\r\n", b"\0" * 100 + b"\n", b"\xff\n"):
        answer = t.raw(data)
        assert answer.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 505 ")), (data, answer)
        assert b"connection: close" in answer
    assert goaway_of(t.raw(PREFACE + POST + b"\r\n"))[0] != 0
    # An upgrade is not spoken: the request is served as what it is.
    answer = t.raw(POST + b"Connection: Upgrade, HTTP2-Settings, close\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"
                   b"Content-Length: 0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 ")


SMUGGLED = POST + b"Connection: close\r\nContent-Length: 0\r\n\r\n"
SMUGGLE = [
    b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
    b"Content-Length: 0\r\nContent-Length: 100\r\n\r\n",
    b"Content-Length: 0, 100\r\n\r\n",
    b"Content-Length: +0\r\n\r\n",
    b"Content-Length: 18446744073709551617\r\n\r\nx",
    b"Content-Length : 0\r\n\r\n",
    b"X: a\r\n Content-Length: 100\r\n\r\n",
    b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
    b"Transfer-Encoding: chunked\r\n\r\n-1\r\n\r\n",
    b"Transfer-Encoding: chunked\r\n\r\n0x0\r\n\r\n",
    b"Transfer-Encoding: chunked\r\n\r\n10000000000000000\r\n\r\n",
    b"Transfer-Encoding: chunked\r\n\r\n1\r\nxy\r\n0\r\n\r\n",
    b"Transfer-Encoding: chunked\r\n\r\n1;" + b"x" * 400 + b"\r\nx\r\n0\r\n\r\n",
    b"Transfer-Encoding: chunked\n\n0\n\n",
    b"X: a\0b\r\nContent-Length: 0\r\n\r\n",
    b"X: a\rb\r\nContent-Length: 0\r\n\r\n",
    b"Host: b\r\nContent-Length: 0\r\n\r\n",
]


def smuggling(t):
    """One 400, then the end: what follows is not a second request."""
    for fields in SMUGGLE:
        answer = t.raw(POST + fields + SMUGGLED)
        assert answer.startswith(b"HTTP/1.1 400 ") and answer.count(b"HTTP/1.1 ") == 1, (fields, answer)
        assert b"connection: close" in answer


def content_length_lies(t):
    with t.connect() as s:
        block = head(more=au.literal(b"content-length", b"10"))
        send_all(s, HELLO + frame(HEADERS, END_HEADERS, 1, block) + frame(DATA, END_STREAM, 1, b"short") +
                 frame(HEADERS, END_HEADERS, 3, block) + frame(DATA, 0, 3, b"longer than said") +
                 frame(HEADERS, END_HEADERS | END_STREAM, 5, block))
        data = b""
        while len(au.resets_of(data)) < 3:
            data += s.recv(65536)
        assert au.resets_of(data) == {1: PROTOCOL_ERROR, 3: PROTOCOL_ERROR, 5: PROTOCOL_ERROR}


def h2_pseudo_headers(t):
    """Heads that HTTP/1 readers downstream would read differently."""
    path = b"\x44\x0b/v1/metrics"
    bad = [b"\x83\x86\x41\x01a", b"\x83\x83\x86" + path, path + b"\x86\x83" + au.literal(b"x", b"y") + b"\x41\x01a",
           b"\x83\x86\x41\x01a" + path + au.literal(b"X", b"y"), b"\x83\x86\x41\x01a" + path + au.literal(b"x", b"a\r\nb: c"),
           b"\x83\x86\x41\x01a" + path + au.literal(b"connection", b"close"),
           b"\x83\x86\x41\x01a" + path + au.literal(b"transfer-encoding", b"chunked"),
           b"\x83\x86\x41\x01a" + path + au.literal(b"content-length", b"1") + au.literal(b"content-length", b"2")]
    with t.connect() as s:
        send_all(s, HELLO + b"".join(frame(HEADERS, END_HEADERS | END_STREAM, 2 * i + 1, block)
                                     for i, block in enumerate(bad)))
        data = b""
        while len(au.resets_of(data)) < len(bad):
            part = s.recv(65536)
            assert part, au.resets_of(data)
            data += part
        assert set(au.resets_of(data).values()) == {PROTOCOL_ERROR}


def frames_after_the_end(t):
    """CVE-2026-27135: frames of bad size behind what ended the session."""
    t.raw(HELLO + frame(DATA, 0, 0, b"x") + frame(PING, 0, 0, b"x") + frame(SETTINGS, 0, 0, b"x") * 3)
    t.raw(HELLO + frame(HEADERS, END_HEADERS, 2, head()) + frame(RST_STREAM, 0, 1, b"") + frame(PING, 0, 0, b""))


def garbage(t):
    for data in (os.urandom(4096) + b"\n", HELLO + os.urandom(4096), HELLO + frame(HEADERS, END_HEADERS, 1, b"\xff" * 100),
                 HELLO + frame(5, END_HEADERS, 1, bytes(8)), HELLO + b"\xff" * 9 + bytes(100)):
        with t.connect() as s:
            reader = au.Reader(s)
            send_all(s, data)
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_WR)
            reader.end()


# ---- bombs ---------------------------------------------------------------------------------------

ZEROS = 100 << 20


def gzip_bomb(t):
    for version in ("--http1.1", "--http2-prior-knowledge"):
        assert t.post("/v1/metrics", au.zeros(ZEROS, "gzip"), {"Content-Encoding": "gzip"}, version)[0] == 413
    assert t.post("/v1/logs", au.zeros(ZEROS, "gzip") * 2, {"Content-Encoding": "gzip"})[0] == 413
    assert t.post("/v1/traces", au.zeros(0, "gzip") * 50000, {"Content-Encoding": "gzip"})[0] == 200  # empty members


def zstd_bomb(t):
    bomb = au.zeros(ZEROS, "zstd")
    for version in ("--http1.1", "--http2-prior-knowledge"):
        assert t.post("/v1/metrics", bomb, {"Content-Encoding": "zstd"}, version)[0] == 413
    far = au.zstd(os.urandom(1 << 20) + bytes(140 << 20), "--ultra", "--long=27")
    assert t.post("/v1/metrics", far, {"Content-Encoding": "zstd"})[0] == 413  # a window of 128 MiB
    lie = b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", 1 << 60) + b"\x01\x00\x00"  # a frame of 2^60 bytes, and then none
    assert t.post("/v1/metrics", lie, {"Content-Encoding": "zstd"})[0] in (400, 413)


def grpc_bomb(t):
    for coding, bomb in (("gzip", au.zeros(ZEROS, "gzip")), ("zstd", au.zeros(ZEROS, "zstd"))):
        with H2(t) as h2:
            h2.poll()  # the server's windows
            sid = h2.grpc(cu.GRPC_METRICS, au.grpc_message(bomb, 1), [("grpc-encoding", coding)])
            answer, _, _ = h2.wait_response(sid)
            assert answer["grpc-status"] == "8" and "google.rpc.retryinfo-bin" not in answer


def broken_compression(t):
    whole = au.gzip.compress(b"\x0a\x00" * 100)
    for bad in (whole[:-5], whole + b"tail", b"nonsense", whole[:12] + b"\xff\xff" + whole[14:]):
        assert t.post("/v1/metrics", bad, {"Content-Encoding": "gzip"})[0] == 400
    assert t.post("/v1/metrics", whole, {"Content-Encoding": "br"})[0] == 415
    assert t.grpc(b"") == "OK"


def nested(levels):
    """A log record whose body is arrays in arrays."""
    value = b""
    for _ in range(levels):
        value = pb(5, pb(1, value))
    return pb(1, pb(2, pb(2, pb(5, value))))


def groups(levels):
    return b"\x7b" * levels + b"\x7c" * levels


FLOOD = 2_000_000 // RSS_SCALE  # sanitizers are slow
BOMBS = {  # name: (path, body, acceptable statuses)
    "nested 150": ("/v1/logs", nested(150), (400,)),
    "nested 5000": ("/v1/logs", nested(5000), (400,)),
    "groups": ("/v1/metrics", groups(100000), (400,)),
    "empty resources": ("/v1/metrics", b"\x0a\x00" * FLOOD, (400,)),
    "empty points": ("/v1/metrics", pb(1, pb(2, pb(2, pb(1, b"m") + pb(5, b"\x0a\x00" * FLOOD)))), (200, 400)),
    "empty histograms": ("/v1/metrics", pb(1, pb(2, pb(2, pb(1, b"m") + pb(10, b"\x0a\x00" * FLOOD)))), (200, 400)),
    "unknown fields": ("/v1/metrics", b"\x98\x06\x01" * FLOOD, (200, 400)),
    "attributes": ("/v1/metrics", pb(1, pb(1, pb(1, pb(1, b"k") + pb(2, pb(1, b"v"))) * 100000)), (200, 400)),
    "long varint": ("/v1/metrics", b"\x0a" + b"\xff" * 10 + b"\x01", (400,)),
    "length beyond": ("/v1/metrics", b"\x0a\xff\xff\xff\xff\x0fabc", (400,)),
    "packed lies": ("/v1/metrics", pb(1, pb(2, pb(2, pb(9, pb(1, b"\x32\x07abcdefg"))))), (200, 400)),
    "not UTF-8": ("/v1/metrics", pb(1, pb(2, pb(2, pb(1, b"\xff\xfe\0") + pb(5, b"")))), (200, 400)),
    "tag zero": ("/v1/metrics", b"\x00\x00", (400,)),
}


def protobuf_bombs(t):
    for name, (path, body, statuses) in BOMBS.items():
        assert t.post(path, body)[0] in statuses, name
        service = cu.GRPC_LOGS if path == "/v1/logs" else cu.GRPC_METRICS
        assert t.grpc(body, service) in (["INVALID_ARGUMENT", "OK"] if 200 in statuses else ["INVALID_ARGUMENT"]), name


def hash_flooding(t):
    """Names and labels that differ in little; the seeds of the maps are not known outside."""
    q = cu.Request(time.time_ns(), cu.SECOND)
    q.resource(service__name="flood", service__instance__id="1")
    for i in range(3000):
        q.gauge("flood", "", i, **{"k" + "\x01\x00"[i & 1] * 8: f"{i:08x}" * 4})
    assert t.post("/v1/metrics", q.bytes())[0] == 200


def cardinality_bomb(t):
    for k in range(10):
        q = cu.Request(time.time_ns(), cu.SECOND)
        q.resource(service__name="bomb", service__instance__id=str(k))
        for i in range(2000):
            q.gauge("bomb" if i % 2 else f"bomb_{k}_{i}", "", i, i=i, k=k)
        assert t.post("/v1/metrics", q.bytes())[0] == 200
    _, _, text = harness.http_get(t.collector.url("/metrics"))
    exposed = [x for x in text.decode().splitlines() if x.startswith("bomb")]
    assert len([x for x in exposed if x.startswith("bomb{")]) <= 501
    assert len(exposed) <= 3000 + 5000  # all series, and one of what is beyond for each of at most 5000 names
    assert t.collector.metric("lanterne_collector_series_refused_total", reason="overflow") > 0


def too_large(t):
    """4 MiB and a byte is taken, 64 MiB and a byte is refused before it is sent, and the stream is freed."""
    big = pb(99, bytes((4 << 20) - 5))
    assert len(big) > 4 << 20 and t.grpc(big) == "OK"
    with H2(t) as h2:
        sid = h2.grpc(cu.GRPC_METRICS, b"\0" + struct.pack(">I", (64 << 20) + 1) + b"x", end=False)
        answer, _, _ = h2.wait_response(sid)
        assert answer["grpc-status"] == "8" and "google.rpc.retryinfo-bin" not in answer
        while not any(getattr(e, "error_code", None) == 0 for e in h2.events):
            assert h2.poll()
    answer = t.raw(POST + b"Content-Length: 67108865\r\n\r\n" + b"x" * 1000)
    assert answer.startswith(b"HTTP/1.1 413 ")


# ---- what was reported of other servers ----------------------------------------------------------

def empty_bodies(t):
    """fluent-bit CVE-2024-50609."""
    for path in ("/v1/metrics", "/v1/logs", "/v1/traces"):
        for version in ("--http1.1", "--http2-prior-knowledge"):
            status, headers, body = t.post(path, b"", version=version)
            headers = {k.lower(): v for k, v in headers.items()}
            assert (status, headers["content-type"], body) == (200, "application/x-protobuf", b"")
        assert t.raw(POST.replace(b"/v1/metrics", path.encode()) + b"Connection: close\r\n\r\n").startswith(b"HTTP/1.1 200 ")
        assert t.post(path, os.urandom(3000))[0] in (200, 400)
        assert t.post(path, b"\xff" * 100)[0] == 400
    for service in (cu.GRPC_METRICS, cu.GRPC_LOGS, cu.GRPC_TRACES):
        assert t.grpc(b"", service) == "OK"
        assert t.grpc(b"\xff" * 100, service) == "INVALID_ARGUMENT"


def nothing_around_the_records(t):
    """fluent-bit #10082, #10672: no resource, no scope, no body, an empty value, values in values."""
    record = {"none": b"", "empty value": pb(5, b""), "nested": pb(5, pb(6, pb(1, pb(1, b"k") + pb(2, pb(5, pb(1, b"")))))),
              "odd trace id": pb(9, b"x" * 15)}
    for name, body in record.items():
        logs = pb(1, pb(2, pb(2, body)))
        assert t.post("/v1/logs", logs)[0] == 200, name
        assert t.grpc(logs, cu.GRPC_LOGS) == "OK", name
    assert t.post("/v1/metrics", pb(1, pb(2, pb(2, pb(1, b"bare") + pb(5, pb(1, b""))))))[0] == 200


def chunked(t):
    """fluent-bit #7678: every JavaScript exporter sends so."""
    answer = t.raw(POST + b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 ")
    answer = t.raw(POST + b"Transfer-Encoding: chunked\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n"
                   b"2\r\n\x0a\x00\r\n0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 100 ") and b"HTTP/1.1 200 " in answer


def grpc_without_te(t):
    """fluent-bit #11332."""
    with t.connect() as s:
        send_all(s, HELLO + frame(HEADERS, END_HEADERS, 1, head(cu.GRPC_METRICS.encode(), b"application/grpc+proto")) +
                 frame(DATA, END_STREAM, 1, bytes(5)))
        data = b""
        while not any(kind == HEADERS and flags & END_STREAM for kind, flags, _, _ in au.frames(data)):
            data += s.recv(65536)
    assert [p for kind, _, _, p in au.frames(data) if kind == DATA] == [bytes(5)]


def wrong_types(t):
    for kind in ("application/grp", "text/plain", "application/", "x", "application/x-protobuf2"):
        for version in ("--http1.1", "--http2-prior-knowledge"):
            status, headers, _ = t.post("/v1/metrics", b"x", {"Content-Type": kind}, version)
            headers = {k.lower(): v for k, v in headers.items()}
            assert status == 415 and "application/x-protobuf" in headers["accept-post"], kind
    assert t.post("/v1/metrics", b"", {"Content-Type": "Application/X-Protobuf; charset=utf-8"})[0] == 200


JSON = {  # fluent-bit 6deeaf538 and others, collector #10546: body: statuses
    '{}': (200,),
    '{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"name":"a","gauge":{"dataPoints":[{"asInt":-1}]}}]}]}]}': (200,),
    '{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"name":"a","gauge":{"dataPoints":[{"timeUnixNano":"-1"}]}}]}]}]}': (400,),
    '{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"name":"a","gauge":{"dataPoints":[{"timeUnixNano":""}]}}]}]}]}': (400,),
    '{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"name":"a","gauge":{"dataPoints":'
    '[{"timeUnixNano":"18446744073709551616"}]}}]}]}]}': (400,),
    '{"resource_metrics":[{}]}': (200,),
    '{"resourceSpans":[{"instrumentationLibrarySpans":[]}]}': (200,),
    '[' * 100000: (400,),
    '{"a":' * 50000 + '1' + '}' * 50000: (400,),
    '{"resourceMetrics":': (400,),
    'null': (200, 400),
    '{} x': (400,),
    '{"a":"\\ud800"}': (200, 400),
}


def json_bodies(t):
    if t.post("/v1/metrics", b"{}", {"Content-Type": "application/json"})[0] == 415:
        pytest.skip("this collector does not read JSON bodies")
    for body, statuses in JSON.items():
        status, headers, answer = t.post("/v1/metrics", body.encode(), {"Content-Type": "application/json"})
        assert status in statuses, body[:200]
        assert {k.lower(): v for k, v in headers.items()}["content-type"] == "application/json" and answer.startswith(b"{")


CASES = [  # attack, MiB that it may cost while it goes on
    (rapid_reset, 16), (made_you_reset_by_window, 16), (made_you_reset_by_zero, 16), (made_you_reset_by_length, 16),
    (made_you_reset_by_end, 16),
    (continuation_flood, 16), (hpack_bomb, 16), (trailer_bomb, 16), (too_many_headers, 16), (settings_flood, 16),
    (settings_of_many_entries, 16), (ping_flood, 16), (ping_flood_unread, 16), (too_many_keepalives, 16),
    (empty_data_flood, 16), (padding_flood, 16), (priority_flood, 16), (unknown_frame_flood, 16), (window_update_drip, 16),
    (zero_window_reader, 16), (data_dribble, 16), (too_many_streams, 16), (too_many_connections, 16),
    (many_watchers, 16), (odd_settings, 16), (connection_churn, 16),
    (silence, 16), (slow_head, 16), (slow_preface, 16), (slow_body, 16), (slow_chunks, 16), (slow_head_h2, 16),
    (slow_body_h2, 16), (pipelined_and_unread, 16), (tiny_chunks, 16),
    (preface_confusion, 16), (smuggling, 16), (content_length_lies, 16), (h2_pseudo_headers, 16), (frames_after_the_end, 16),
    (garbage, 16),
    (gzip_bomb, 16), (zstd_bomb, 16), (grpc_bomb, 16), (broken_compression, 16), (protobuf_bombs, 96), (hash_flooding, 32),
    (cardinality_bomb, 48), (too_large, 32),
    (empty_bodies, 16), (nothing_around_the_records, 16), (chunked, 16), (grpc_without_te, 16), (wrong_types, 16),
    (json_bodies, 48),
]


@pytest.mark.parametrize("attack,mib", CASES, ids=[c[0].__name__ for c in CASES])
def test_abuse(scene, attack, mib):
    endure(scene, attack, mib)


# ---- scenes of their own -------------------------------------------------------------------------

@pytest.fixture
def guarded(procs, tmp_path):
    """A collector that wants a token; its attackers have none."""
    token = tmp_path / "token"
    token.write_text("s3cret\n")
    token.chmod(0o600)
    collector, honest = attacked(procs, tmp_path, "--token-file", token, headers={"Authorization": "Bearer s3cret"})
    yield collector, honest
    honest.end()


def test_without_credentials(guarded):
    """Before anything is kept, inflated or decoded (collector CVE-2024-36129, #15995)."""
    collector = guarded[0]

    def inflated():
        _, _, text = harness.http_get(collector.url("/metrics"), headers={"Authorization": "Bearer s3cret"})
        return sum(float(x.rsplit(" ", 1)[1]) for x in text.decode().splitlines() if 'kind="request_inflated_bytes"' in x)

    def attack(t):
        before = inflated()
        for kind in ("application/x-protobuf", "text/plain", "application/", "application/json"):
            for coding, bomb in (("gzip", au.zeros(ZEROS, "gzip")), ("zstd", au.zeros(ZEROS, "zstd"))):
                for version in ("--http1.1", "--http2-prior-knowledge"):
                    status, headers, _ = t.post("/v1/metrics", bomb, {"Content-Type": kind, "Content-Encoding": coding}, version)
                    headers = {k.lower(): v for k, v in headers.items()}
                    assert status == 401 and headers["www-authenticate"] == "Bearer"
        with H2(t) as h2:
            h2.poll()
            sid = h2.grpc(cu.GRPC_METRICS, au.grpc_message(au.zeros(ZEROS, "gzip"), 1), [("grpc-encoding", "gzip")])
            assert h2.wait_response(sid)[0]["grpc-status"] == "16"
        assert t.post("/v1/nothing", b"x")[0] == 401  # what exists is not told either
        assert inflated() == before
    endure(guarded, attack, 16)


def test_rate_of_a_tenant(procs, tmp_path):
    collector = cu.Collector(procs, tmp_path, "--otlp-tenant-requests", "5").start()
    statuses = [collector.post("/v1/metrics", b"") for _ in range(30)]
    assert [s for s, _, _ in statuses].count(200) < 25
    refused = [h for s, h, _ in statuses if s == 429]
    assert refused and all(1 <= int(h["retry-after"]) <= 60 for h in refused)
    other = au.Target(collector)
    assert other.post("/v1/metrics", b"")[0] == 200


def test_memory_used_up(procs, tmp_path):
    """Half bodies take all that bodies may have: refused with a hint, readers are served, nothing grows beyond."""
    collector = cu.Collector(procs, tmp_path, "--otlp-memory", "8m").start()
    memory = au.Memory(collector.process.pid)
    before = memory.reset()
    message = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
    mcp = harness.urllib.request.Request(collector.url("/mcp"), data=message, headers={
        "Content-Type": "application/json", "Accept": "application/json, text/event-stream"})
    with contextlib.ExitStack() as stack:
        socks = [stack.enter_context(au.Target(collector).connect()) for _ in range(40)]
        for s in socks:
            send_all(s, POST + b"Content-Length: 1000000\r\n\r\n" + bytes(900_000))
        harness.wait_until(lambda: au.Target(collector).counter("refused_budget") >= 30, 10, "the memory being used up")
        body = bytes(900_000)
        status, headers, _ = collector.post("/v1/metrics", body)
        assert status == 503 and int(headers["retry-after"]) >= 1
        assert au.Target(collector).grpc(body) == "UNAVAILABLE"
        with harness.urllib.request.urlopen(mcp, timeout=10) as r:
            assert r.status == 200
    assert memory.peak() - before < au.Memory.mib(32)
    harness.wait_until(lambda: collector.post("/v1/metrics", b"")[0] == 200, 10, "being served again")
    assert collector.post("/v1/metrics", pb(99, body))[0] == 200


def test_out_of_descriptors(procs, tmp_path):
    """No descriptor left: those connected are served, accepting pauses, and goes on when there are some again."""
    collector, honest = attacked(procs, tmp_path, "--otlp-max-connections-per-address", "4000")
    pid = collector.process.pid
    used = len(os.listdir(f"/proc/{pid}/fd"))
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (used + 10, used + 10))
    before = au.Memory(pid).now()
    with collector.channel() as channel, contextlib.ExitStack() as stack:
        cu.export(channel, b"")
        honest.end()
        socks = [stack.enter_context(au.Target(collector).connect()) for _ in range(50)]
        for s in socks:
            send_all(s, b"POST")
        began = time.monotonic()
        for _ in range(20):
            cu.export(channel, b"")
            time.sleep(0.02)
    harness.wait_until(lambda: collector.post("/v1/metrics", b"")[0] == 200, 10, "being served again")
    assert au.Memory(pid).now() - before < au.Memory.mib(16)
    errors = collector.metric("lanterne_collector_http_total", server="otlp", kind="accept_errors")
    assert 0 < errors < 20 + 20 * (time.monotonic() - began), errors  # it pauses, ten times a second


def test_goaway_and_drain(procs, tmp_path):
    """The notice, one round trip, the last word with the last stream, the end; a call under way is answered."""
    collector = cu.Collector(procs, tmp_path).start()
    with au.Target(collector).connect() as s:
        block = head(cu.GRPC_METRICS.encode(), b"application/grpc")
        send_all(s, HELLO + frame(HEADERS, END_HEADERS, 1, block) + frame(DATA, 0, 1, b"\0"))
        data = s.recv(65536)
        collector.process.send(signal.SIGTERM)
        while goaway_of(data) is None or not any(k == PING for k, _, _, _ in au.frames(data)):
            data += s.recv(65536)
        notice = [p for k, _, _, p in au.frames(data) if k == au.GOAWAY]
        assert notice == [struct.pack(">II", 0x7fffffff, 0)]
        echo = next(p for k, f, _, p in au.frames(data) if k == PING and f == 0)
        send_all(s, frame(HEADERS, END_HEADERS, 3, block) + frame(DATA, END_STREAM, 3, bytes(5)))  # was on its way
        send_all(s, frame(PING, 1, 0, echo))
        send_all(s, frame(DATA, END_STREAM, 1, bytes(4)))
        data += au.Reader(s).end()
    words = [struct.unpack(">II", p[:8]) for k, _, _, p in au.frames(data) if k == au.GOAWAY]
    assert words[-1] == (3, 0), words
    ended = {stream for k, f, stream, _ in au.frames(data) if k == HEADERS and f & END_STREAM}
    assert ended == {1, 3}
    assert collector.process.wait() == 0


def test_connection_age(procs, tmp_path):
    """Connections are ended in order at their age; a client that follows the rules loses no call."""
    collector = cu.Collector(procs, tmp_path, "--otlp-max-connection-age", "200ms").start()
    with collector.channel() as channel:
        calls = 0
        while (collector.metric("lanterne_collector_http_total", server="otlp", kind="connections_aged") or 0) < 3:
            cu.export(channel, b"")
            calls += 1
        assert calls > 3
    with pytest.raises(OSError):  # HTTP/1.1 is told with the last answer, or ended between requests
        with au.Target(collector).connect() as s:
            for _ in range(200):
                s.sendall(POST + b"Content-Length: 0\r\n\r\n")
                if b"connection: close" in s.recv(4096):
                    raise OSError("told to go")
                time.sleep(0.02)


def test_health(procs, tmp_path):
    """Check, List and Watch as probes and load balancers ask, without a token."""
    token = tmp_path / "token"
    token.write_text("s3cret\n")
    token.chmod(0o600)
    collector = cu.Collector(procs, tmp_path, "--token-file", token).start()
    service = cu.GRPC_METRICS.split("/")[1].encode()
    with collector.channel() as channel:
        assert cu.export(channel, b"", "/grpc.health.v1.Health/Check")[0] == b"\x08\x01"
        assert cu.export(channel, pb(1, service), "/grpc.health.v1.Health/Check")[0] == b"\x08\x01"
        assert service in cu.export(channel, b"", "/grpc.health.v1.Health/List")[0]
        with pytest.raises(grpc.RpcError) as e:
            cu.export(channel, pb(1, b"nothing"), "/grpc.health.v1.Health/Check")
        assert e.value.code() == grpc.StatusCode.NOT_FOUND
        watch = channel.unary_stream("/grpc.health.v1.Health/Watch", request_serializer=None, response_deserializer=None)
        answers = watch(b"", timeout=20)
        assert next(answers) == b"\x08\x01"
        collector.process.send(signal.SIGTERM)
        assert next(answers) == b"\x08\x02"
        with pytest.raises(grpc.RpcError):
            next(answers)
    assert collector.process.wait() == 0
