# SPDX-License-Identifier: Apache-2.0
"""Replies whose bodies are made while they are sent: in chunks, in frames, gzipped, cut off, and beside others."""
import gzip
import socket
import subprocess
import time

import pytest

from http_util import Server, read_all, send_all


@pytest.fixture(scope="module")
def server():
    with Server() as s:
        yield s


def url(server, path):
    return f"http://127.0.0.1:{server.port}{path}"


def body_of(n):
    return b"".join(b"%d" % (i % 10) * 10000 for i in range(n))


PROTOCOLS = ["--http1.0", "--http1.1", "--http2-prior-knowledge"]


@pytest.mark.parametrize("proto", PROTOCOLS)
def test_whole_bodies(server, proto):
    for n in (0, 1, 7, 1000):
        out = subprocess.run(["curl", "-sS", "-m", "20", proto, url(server, f"/pieces?n={n}")], capture_output=True, check=True)
        assert out.stdout == body_of(n), n
        out = subprocess.run(["curl", "-sS", "-m", "20", proto, "-H", "accept-encoding: gzip", url(server, f"/pieces?n={n}")],
                             capture_output=True, check=True)
        assert gzip.decompress(out.stdout) == body_of(n), n
    out = subprocess.run(["curl", "-sS", "-m", "20", proto, "-I", url(server, "/pieces?n=5")], capture_output=True, check=True)
    assert b" 200" in out.stdout and b"content-length" not in out.stdout.lower()


@pytest.mark.parametrize("proto", PROTOCOLS[1:])
def test_a_body_that_cannot_go_on_is_seen_as_such(server, proto):
    out = subprocess.run(["curl", "-sS", "-m", "20", proto, url(server, "/pieces?n=100&fail=50")], capture_output=True)
    assert out.returncode in (18, 56, 92), out.stderr   # partial file, receive error, HTTP/2 stream error
    assert len(out.stdout) <= 500000


def test_pipelined_behind_pieces(server):
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as s:
        one = b"GET /pieces?n=3 HTTP/1.1\r\nhost: x\r\n\r\n"
        send_all(s, one + one + b"GET /echo?z=9 HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        got = read_all(s)
    assert got.count(b"transfer-encoding: chunked") == 2 and got.count(b"\r\n0\r\n\r\n") == 2
    assert b"x-query: z=9" in got


@pytest.mark.parametrize("proto", PROTOCOLS)
def test_nobody_waits_for_a_long_one(proto):
    """While 5 GB go out to a fast reader, others are answered at once, and the body is never in memory."""
    with Server() as server:
        long = subprocess.Popen(["curl", "-sS", "-m", "60", proto, "-o", "/dev/null", url(server, "/pieces?n=500000")])
        time.sleep(0.2)
        answered = 0
        while answered < 20:
            subprocess.run(["curl", "-sS", "-m", "5", "-o", "/dev/null", url(server, "/echo")], check=True)
            answered += 1
        assert long.poll() is None, "it was over too soon to show anything"
        long.kill()
        long.wait()
        assert server.peak_kib() < 100 * 1024


def test_clients_that_leave(server):
    """Pieces of replies that nobody takes are given up."""
    for _ in range(20):
        s = socket.create_connection(("127.0.0.1", server.port), timeout=10)
        send_all(s, b"GET /pieces?n=100000 HTTP/1.1\r\nhost: x\r\n\r\n")
        s.recv(1000)
        s.close()
    server.wait_stat("connections", 0, exact=True)
