# SPDX-License-Identifier: Apache-2.0
"""What hostile HTTP/2 peers do, and that it gets them nowhere while others are served."""
import gzip
import struct
import subprocess
import time

import pytest

from http_util import H2, Server, read_all, send_all

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
ENHANCE_YOUR_CALM = 11


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


SETTINGS = frame(4, 0, 0)


def goaway_of(data):
    """Error code of the last GOAWAY in a byte stream of frames."""
    code = None
    pos = 0
    while pos + 9 <= len(data):
        n = int.from_bytes(data[pos:pos + 3], "big")
        if data[pos + 3] == 7:
            code = int.from_bytes(data[pos + 13:pos + 17], "big")
        pos += 9 + n
    return code


@pytest.fixture()
def server():
    with Server() as s:
        yield s
        s.wait_stat("in_flight", 0, exact=True)
        s.wait_stat("body_bytes", 0, exact=True)
        with H2(s) as ok:  # still well
            sid = ok.grpc("/test.Echo/Unary", b"\0\0\0\0\x02hi")
            head, body, trailers = ok.wait_response(sid)
            assert body == b"\0\0\0\0\x02hi" and trailers["grpc-status"] == "0"
        assert s.peak_kib() < 80_000


@pytest.mark.parametrize("path", ["/grpc.health.v1.Health/Watch", "/big"])
def test_rapid_reset_of_what_is_answered_at_once(server, path):
    kind = [("content-type", "application/grpc"), ("te", "trailers")] if "Health" in path else []
    with H2(server) as h2:
        try:
            for _ in range(3000):
                sid = h2.conn.get_next_available_stream_id()
                h2.conn.send_headers(sid, [(":method", "POST" if kind else "GET"), (":scheme", "http"), (":path", path),
                                           (":authority", "test"), *kind], end_stream=not kind)
                if kind:
                    h2.conn.send_data(sid, b"\0\0\0\0\0", end_stream=True)
                h2.conn.reset_stream(sid)
                h2.flush()  # in one piece: nothing of the answer is out when it is taken back
                if h2.ended:
                    break
        except Exception:
            pass
        assert h2.wait_end() == ENHANCE_YOUR_CALM


def test_rapid_reset(server):
    with H2(server) as h2:
        try:
            for _ in range(5000):
                sid = h2.headers("POST", "/late", end=True)
                h2.conn.reset_stream(sid)
                h2.flush()
                if h2.ended:
                    break
        except Exception:
            pass
        assert h2.wait_end() == ENHANCE_YOUR_CALM
    stats = server.stats()
    assert stats["floods_closed"] == 1 and stats["streams_reset"] <= 250
    assert stats["in_flight"] <= 100


def test_work_is_capped_not_streams():
    """Cancelled calls count while their handlers work."""
    with Server(streams=10, late_ms=200) as server, H2(server) as h2:
        for _ in range(30):
            sid = h2.headers("POST", "/late", end=True)
            h2.conn.reset_stream(sid)
            h2.flush()
        server.wait_stat("refused_streams", 15)
        assert server.stats()["in_flight"] <= 10


@pytest.mark.parametrize("what", [
    frame(6, 0, 0, b"12345678"),                             # PING
    frame(4, 0, 0, struct.pack(">HI", 4, 65535)),            # SETTINGS
    frame(2, 0, 1, struct.pack(">IB", 0, 10)),               # PRIORITY
    frame(8, 0, 0, struct.pack(">I", 1)),                    # WINDOW_UPDATE
    frame(0xbb, 0, 0, b"x"),                                 # unknown
])
def test_frame_floods(server, what):
    answer = server.raw(PREFACE + SETTINGS + what * 20000)
    assert goaway_of(answer) in (ENHANCE_YOUR_CALM, None)  # None: the reset of the close overtook it
    server.wait_stat("floods_closed", 1)


def test_flood_without_reading(server):
    """PINGs whose answers are never read must not pile up."""
    with server.connect() as s:
        send_all(s, PREFACE + SETTINGS)
        send_all(s, frame(6, 0, 0, b"12345678") * 50000)
        server.wait_stat("floods_closed", 1)


def test_empty_data_flood(server):
    with H2(server) as h2:
        sid = h2.headers("POST", "/size", end=False)
        send_all(h2.sock, frame(0, 0, sid) * 5000)
        assert h2.wait_end() in (ENHANCE_YOUR_CALM, None)
    server.wait_stat("floods_closed", 1)


def test_padding_flood(server):
    with H2(server) as h2:
        sid = h2.headers("POST", "/size", end=False)
        send_all(h2.sock, frame(0, 8, sid, b"\xff" + bytes(255)) * 5000)
        h2.wait_end()
    server.wait_stat("floods_closed", 1)


def test_continuation_flood(server):
    block = frame(1, 0, 1, b"\x82\x86\x84\x41\x01a")
    answer = server.raw(PREFACE + SETTINGS + block + frame(9, 0, 1, b"\x00\x01a\x01b" * 100) * 1000)
    assert goaway_of(answer) not in (None, 0)
    assert server.stats()["requests"] == 0


def test_header_block_never_ends():
    with Server(headers_ms=300) as server, server.connect() as s:
        send_all(s, PREFACE + SETTINGS + frame(1, 0, 1, b"\x82\x86\x84\x41\x01a"))
        assert goaway_of(read_all(s)) == ENHANCE_YOUR_CALM
        stats = server.stats()
        assert stats["timeouts_head"] == 1 and stats["protocol_errors"] == 0


def test_header_bomb(server):
    """A large table entry replayed by one-byte references: answered, or cut; no memory, no time."""
    value = b"a" * 3900
    entry = b"\x40\x01x\x7f" + bytes([0xbd, 0x1d]) + value  # literal with indexing, length 3900
    head = b"\x82\x86\x84\x41\x01a" + entry + b"\xbe" * 8000
    began = time.monotonic()
    with server.connect() as s:
        send_all(s, PREFACE + SETTINGS + frame(1, 5, 1, head))
        s.settimeout(5)
        data = s.recv(65536)
        while frame(3, 0, 1)[3:] not in data:  # RST_STREAM
            data += s.recv(65536)
    assert time.monotonic() - began < 3
    with H2(server) as h2:
        sid = h2.headers("GET", "/echo", [("x", "y" * 17000)])
        assert h2.wait_response(sid)[0][":status"] == "431"
        sid = h2.headers("GET", "/echo", [("x%d" % i, "y") for i in range(80)])
        assert h2.wait_response(sid)[0][":status"] == "431"
        sid = h2.headers("GET", "/echo")
        assert h2.wait_response(sid)[0][":status"] == "200"
    assert server.stats()["refused_head"] >= 2


def test_window_overflow(server):
    answer = server.raw(PREFACE + SETTINGS + frame(8, 0, 0, struct.pack(">I", 0x7fffffff)) * 2)
    assert goaway_of(answer) == 3  # FLOW_CONTROL_ERROR
    answer = server.raw(PREFACE + SETTINGS + frame(8, 0, 0, struct.pack(">I", 0)))
    assert goaway_of(answer) == 1  # PROTOCOL_ERROR


def test_made_you_reset(server):
    """Faults that make the server reset its streams are counted against the peer."""
    head = b"\x83\x86\x44\x05/late\x41\x01a"
    fault = b"".join(frame(1, 4, sid, head) + frame(8, 0, sid, struct.pack(">I", 0x7fffffff)) for sid in range(1, 4001, 2))
    server.raw(PREFACE + SETTINGS + fault)
    server.wait_stat("floods_closed", 1)
    assert server.stats()["requests"] < 400


def test_more_data_than_window(server):
    """A refused body gets no credit: a peer that sends on regardless breaks the protocol."""
    with server.connect() as s:
        head = b"\x83\x86\x44\x05/nope\x41\x01a"
        send_all(s, PREFACE + SETTINGS + frame(1, 4, 1, head))
        send_all(s, frame(0, 0, 1, bytes(16384)) * 1000)
        data = s.recv(65536)
        while frame(3, 0, 1)[3:] not in data and goaway_of(data) is None:
            part = s.recv(65536)
            if not part:
                break
            data += part
    server.wait_stat("connections", 0, exact=True)


def test_garbage(server):
    for data in (b"\xff" * 100, frame(0, 0, 0, b"x"), frame(1, 4, 2, b"\x82"), frame(1, 4, 1, b"\xff\xff\xff"),
                 frame(5, 4, 1, bytes(8)), frame(3, 0, 0, bytes(4)), frame(7, 0, 0, b"x"), frame(4, 1, 0, bytes(6)),
                 frame(6, 0, 0, b"short"), frame(9, 4, 1, b""), b"\x00\x40\x01" + bytes([0, 0]) + bytes(4)):
        answer = server.raw(PREFACE + SETTINGS + data)
        assert goaway_of(answer) not in (None, 0)


def test_after_termination(server):
    """A frame of bad size behind one that ended the session (CVE-2026-27135)."""
    server.raw(PREFACE + SETTINGS + frame(0, 0, 0, b"x") + frame(6, 0, 0, b"x") + frame(4, 0, 0, b"x") * 3)
    assert server.proc.poll() is None


@pytest.mark.parametrize("message,status", [
    (b"", "13"),                                  # no message
    (b"\0\0\0", "13"),                            # prefix cut short
    (b"\0\0\0\0\x05ab", "13"),                    # message cut short
    (b"\0\xff\xff\xff\xff", "8"),                 # 4 GiB announced
    (b"\0\x04\x00\x00\x01" + b"x" * 10, "8"),     # 64 MiB + 1 announced
    (b"\x02\0\0\0\0", "13"),                      # unknown flag
    (b"\x01\0\0\0\x01x", "13"),                   # compressed without an encoding
    (b"\0\0\0\0\x01a\0\0\0\0\x01b", "12"),        # two messages
    (b"\0\0\0\0\x01ab", "12"),                    # a byte too many
    (b"\0\0\0\0\0", "0"),
])
def test_grpc_length_lies(server, message, status):
    for cut in (16384, 1):
        with H2(server) as h2:
            sid = h2.grpc("/test.Echo/Unary", message, cut=cut)
            head, body, trailers = h2.wait_response(sid)
            assert head[":status"] == "200"
            assert (head.get("grpc-status") or trailers["grpc-status"]) == status


def test_early_error_resets_with_no_error(server):
    with H2(server) as h2:
        sid = h2.grpc("/test.Echo/Small", b"\0\0\0\xff\xff" + b"x" * 100, end=False)
        head, _, end = h2.wait_response(sid)
        assert head["grpc-status"] == "8" and "google.rpc.retryinfo-bin" not in head
        while not any(getattr(e, "error_code", None) == 0 for e in h2.events):
            assert h2.poll()


def test_grpc_rules(server):
    empty = b"\0\0\0\0\0"
    with H2(server) as h2:
        sid = h2.grpc("/test.Echo/Unary", empty, extra=[("grpc-encoding", "snappy")])
        head = h2.wait_response(sid)[0]
        assert head["grpc-status"] == "12" and head["grpc-accept-encoding"] == "identity,gzip,zstd"
        for bad in ("", "1", "x", "123456789S", "-1S", "1s", "1SS"):
            sid = h2.grpc("/test.Echo/Unary", empty, extra=[("grpc-timeout", bad)])
            assert h2.wait_response(sid)[0]["grpc-status"] == "13"
        sid = h2.headers("POST", "/test.Echo/Unary", [("content-type", "application/grp")])
        assert h2.wait_response(sid)[0][":status"] == "415"
        sid = h2.headers("GET", "/test.Echo/Unary", [("content-type", "application/grpc")])
        assert h2.wait_response(sid)[0][":status"] == "405"
        body = gzip.compress(b"q" * 100)
        sid = h2.grpc("/test.Echo/Unary", b"\1" + struct.pack(">I", len(body)) + body, extra=[("grpc-encoding", "gzip")])
        assert h2.wait_response(sid)[1][5:] == b"q" * 100
        sid = h2.grpc("/test.Echo/Unary", b"\1\0\0\0\x03abc", extra=[("grpc-encoding", "gzip")])
        assert h2.wait_response(sid)[0]["grpc-status"] == "3"


def test_grpc_bomb():
    with Server(max_body=8_000_000, ratio=0) as server:
        for coding, body in (("gzip", gzip.compress(bytes(100_000_000))),
                             ("zstd", subprocess.run(["zstd", "-q", "-c"], input=bytes(100_000_000), capture_output=True,
                                                     check=True).stdout)):
            with H2(server) as h2:
                h2.poll()  # the server's window
                sid = h2.grpc("/test.Echo/Unary", b"\1" + struct.pack(">I", len(body)) + body,
                              extra=[("grpc-encoding", coding)])
                assert h2.wait_response(sid)[0]["grpc-status"] == "8"
        assert server.peak_kib() < 40_000


def test_zero_window_reader():
    """A peer that never opens its window does not hold its answers for ever."""
    with Server(write_ms=400) as server:
        with H2(server, window=0) as h2:
            for _ in range(20):
                h2.headers("GET", "/big")
            server.wait_stat("timeouts_write", 1)
            assert h2.wait_end() in (None, 0)


def test_slow_bodies():
    with Server(grace_ms=200, request_ms=3000) as server, H2(server) as h2:
        sid = h2.headers("POST", "/size", end=False)
        assert h2.wait_response(sid)[0][":status"] == "408"
        sid = h2.grpc("/test.Echo/Unary", b"\0", end=False)
        assert h2.wait_response(sid)[0]["grpc-status"] == "4"
        assert server.stats()["timeouts_body"] == 2


def test_backpressure():
    """Beyond the connection's budget credit is withheld until replies make room; nothing is lost."""
    with Server(conn_budget=600_000, late_ms=20) as server, H2(server) as h2:
        body = bytes(200_000)
        message = b"\0" + struct.pack(">I", len(body)) + body
        sids = []
        for _ in range(12):
            sid = h2.headers("POST", "/test.Echo/Late", [("content-type", "application/grpc")], end=False)
            left = message
            while left:
                n = min(len(left), h2.conn.local_flow_control_window(sid), 16384)
                if n == 0:
                    assert h2.poll()
                    continue
                h2.conn.send_data(sid, left[:n])
                left = left[n:]
                h2.flush()
            h2.conn.end_stream(sid)
            h2.flush()
            sids.append(sid)
        for sid in sids:
            assert len(h2.wait_response(sid)[1]) == len(message)
        assert server.stats()["body_bytes"] == 0


def test_age_and_drain():
    with Server(age_ms=300, idle_ms=60000) as server, H2(server) as h2:
        sid = h2.headers("GET", "/echo")
        assert h2.wait_response(sid)[0][":status"] == "200"
        assert h2.wait_end() == 0
        assert server.stats()["connections_aged"] == 1
    with Server(late_ms=400) as server:
        curl = subprocess.Popen(["curl", "-sS", "-m", "10", "--http2-prior-knowledge",
                                 "http://127.0.0.1:%d/late" % server.port], stdout=subprocess.PIPE)
        server.wait_stat("in_flight", 1)
        server.terminate()
        assert curl.communicate()[0] == b"late\n" and curl.returncode == 0
        assert server.wait() == 0


def test_h2load(server):
    out = subprocess.run(["h2load", "-n", "20000", "-c", "4", "-m", "50", "-t", "1", "http://127.0.0.1:%d/echo" % server.port],
                         capture_output=True, text=True, check=True).stdout
    assert "20000 succeeded, 0 failed" in out


def test_nghttp(server):
    out = subprocess.run(["nghttp", "-v", "-d", __file__, "http://127.0.0.1:%d/size" % server.port],
                         capture_output=True, text=True, check=True).stdout
    assert ":status: 200" in out
