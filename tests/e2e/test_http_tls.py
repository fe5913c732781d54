# SPDX-License-Identifier: Apache-2.0
"""TLS of the server and of the clients in common/http: agreement, refusal, deadlines, whole bodies in both directions."""

import contextlib
import os
import socket
import ssl
import subprocess
import time

import pytest

import http_util as hu
import tls_util as tls


@pytest.fixture(scope="module", name="pki")
def make_pki(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pki")

    class Pki:
        ca = tls.Authority(folder)
        other = tls.Authority(folder, "stranger")
        server = ca.issue("server", "DNS:localhost,IP:127.0.0.1")
        elsewhere = ca.issue("elsewhere", "DNS:collector.example")
        expired = ca.issue("expired", "DNS:localhost,IP:127.0.0.1", tls.PAST)
        agent = ca.issue("agent", "DNS:node-1.agents.example,URI:spiffe://example/agent/node-1")
        guest = ca.issue("guest", "DNS:node-1.guests.example")
        nameless = ca.issue("nameless", "")
        late = ca.issue("late", "DNS:node-2.agents.example", tls.PAST)
        forged = other.issue("forged", "DNS:node-1.agents.example")
    return Pki


def serve(pki, cert=None, **options):
    cert = cert or pki.server
    return hu.Server(cert=cert[0], key=cert[1], **options)


def call(*words):
    done = subprocess.run([os.path.join(hu.BIN, "http_call"), *words], capture_output=True, text=True, timeout=30, check=False)
    return done.stdout + done.stderr


def grpc(server, pki, *words, body="hello", path="/test.Echo/Unary", host="localhost"):
    return call("grpc", f"{host}:{server.port}", path, body, "5000", f"ca={pki.ca.file}", *words)


def test_versions_and_cleartext_on_one_port(pki):
    with serve(pki) as server:
        secure = f"https://localhost:{server.port}/echo"
        for flag, version in (("--http1.1", "11"), ("--http2", "20")):
            code, text = tls.curl(flag, "--cacert", pki.ca.file, "-D", "-", "-d", "abc", secure)
            assert code == 0 and f"x-version: {version}" in text.lower() and text.endswith("abc"), text
        code, text = tls.curl("-d", "abc", f"http://127.0.0.1:{server.port}/echo")
        assert (code, text) == (0, "abc")
        code, text = tls.curl("--http2-prior-knowledge", "-d", "abc", f"http://127.0.0.1:{server.port}/echo")
        assert (code, text) == (0, "abc")
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            assert tls.ask(server.port, tls.context(pki.ca, version=version)) == "HTTP/1.1 200 OK"
        with pytest.warns(DeprecationWarning):
            old = tls.context(pki.ca, version=ssl.TLSVersion.TLSv1_1)
        old.set_ciphers("ALL:@SECLEVEL=0")
        with pytest.raises((ssl.SSLError, OSError)):
            tls.ask(server.port, old)
        stats = server.stats()
        assert stats["connections_tls"] == 4 and stats["connections_accepted"] == 7 and stats["tls_handshakes_failed"] == 1


def test_alpn(pki):
    with serve(pki) as server:
        for offer, chosen in ((["h2", "http/1.1"], "h2"), (["http/1.1"], "http/1.1"), (["http/1.1", "h2"], "h2")):
            with tls.handshake(server.port, tls.context(pki.ca, alpn=offer)) as s:
                assert s.selected_alpn_protocol() == chosen
        with pytest.raises((ssl.SSLError, OSError)):
            tls.ask(server.port, tls.context(pki.ca, alpn=["h3"]))
        # Another protocol than the one agreed on is an error, not a way around.
        with tls.handshake(server.port, tls.context(pki.ca, alpn=["h2"])) as s:
            s.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            assert hu.read_all(s) == b""
        with tls.handshake(server.port, tls.context(pki.ca, alpn=["http/1.1"])) as s:
            s.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0")
            assert hu.read_all(s) == b""
        assert server.stats()["protocol_errors"] == 2


def test_the_client_checks_whom_it_talks_to(pki):
    with serve(pki) as server:
        assert "rc=0 status=0" in grpc(server, pki)
        assert "rc=0 status=0" in grpc(server, pki, host="127.0.0.1")
        text = call("grpc", f"localhost:{server.port}", "/test.Echo/Unary", "x", "5000", f"ca={pki.other.file}")
        assert "status=14" in text and "unable to get local issuer certificate" in text, text
        text = grpc(server, pki, "name=collector.example")
        assert "status=14" in text and "ostname mismatch" in text, text
    with serve(pki, pki.elsewhere) as server:
        assert "status=14" in grpc(server, pki)
        assert "rc=0 status=0" in grpc(server, pki, "name=collector.example")
    with serve(pki, pki.expired) as server:
        text = grpc(server, pki)
        assert "status=14" in text and "certificate has expired" in text, text
    with hu.Server() as server:  # cleartext only
        text = grpc(server, pki)
        assert "status=14" in text, text


def test_client_certificates(pki):
    with serve(pki, client_ca=pki.ca.file, allow="DNS:*.agents.example") as server:
        def identity(cert):
            code, text = tls.curl("--cacert", pki.ca.file, "--cert", cert[0], "--key", cert[1], "-D", "-",
                                  f"https://localhost:{server.port}/echo")
            return text.lower() if code == 0 else None
        assert "x-identity: dns:node-1.agents.example\n" in identity(pki.agent)
        for bad in (pki.guest, pki.nameless, pki.late, pki.forged):
            assert identity(bad) is None, bad
            text = grpc(server, pki, f"cert={bad[0]}", f"key={bad[1]}")
            assert "status=14" in text, text
        assert "status=14" in grpc(server, pki)
        assert "rc=0 status=0" in grpc(server, pki, f"cert={pki.agent[0]}", f"key={pki.agent[1]}")
        assert server.stats()["tls_handshakes_failed"] == 9
    with serve(pki, client_ca=pki.ca.file, allow="URI:spiffe://example/agent/*") as server:
        code, text = tls.curl("--cacert", pki.ca.file, "--cert", pki.agent[0], "--key", pki.agent[1], "-D", "-",
                              f"https://localhost:{server.port}/echo")
        assert code == 0 and "x-identity: uri:spiffe://example/agent/node-1" in text.lower()
    with serve(pki, client_ca=pki.ca.file) as server:
        code, text = tls.curl("--cacert", pki.ca.file, "--cert", pki.nameless[0], "--key", pki.nameless[1], "-D", "-",
                              f"https://localhost:{server.port}/echo")
        assert code == 0 and "x-identity: cn:nameless" in text.lower()


def test_large_bodies_both_ways(pki):
    with serve(pki) as server:
        big = os.urandom(9 << 20)
        ctx = tls.context(pki.ca)
        with tls.handshake(server.port, ctx) as s:
            for body in (big, b"x", big[:70001]):
                s.sendall(b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body))
                s.sendall(body)
                head = b""
                while b"\r\n\r\n" not in head:
                    head += s.recv(1)
                got = b""
                while len(got) < len(body):
                    part = s.recv(1 << 20)
                    assert part
                    got += part
                assert got == body
        for words in ((), ("gzip",), ("zstd",)):
            text = grpc(server, pki, *words, body="y" * 100000)
            assert "rc=0 status=0" in text and "len=100000" in text, text[:200]
        for flag in ("--http1.1", "--http2"):  # uploads in records of odd sizes, the answer in one go
            done = subprocess.run(["curl", "-sS", flag, "--cacert", pki.ca.file, "--data-binary", "@-",
                                   f"https://localhost:{server.port}/echo"], input=big, capture_output=True, timeout=60,
                                  check=True)
            assert done.stdout == big


def test_records_of_one_byte(pki):
    with serve(pki) as server, tls.handshake(server.port, tls.context(pki.ca)) as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for c in b"POST /echo HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc":
            s.sendall(bytes([c]))
        assert hu.read_all(s).endswith(b"abc")


def test_slow_handshakes_are_cut(pki):
    with serve(pki, handshake_ms=300, first_byte_ms=300) as server:
        begun = time.monotonic()
        with server.connect() as s:
            s.sendall(b"\x16\x03\x01")  # and no more
            assert hu.read_all(s) == b""
        with server.connect() as s:
            hello = client_hello(pki)
            s.sendall(hello[:len(hello) // 2])
            assert hu.read_all(s) == b""
        assert time.monotonic() - begun < 8
        assert server.stats()["timeouts_handshake"] == 2
        with tls.handshake(server.port, tls.context(pki.ca)) as s:  # agreed, then nothing
            assert hu.read_all(s) == b""
        assert server.stats()["timeouts_first_byte"] == 1
        assert tls.ask(server.port, tls.context(pki.ca)) == "HTTP/1.1 200 OK"


@contextlib.contextmanager
def records(server, pki):
    """(session, what it has to send, socket): records go out when the test sends them."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    session = tls.context(pki.ca).wrap_bio(incoming, outgoing, server_hostname="localhost")
    with server.connect(timeout=5) as s:
        agreed = False
        while not agreed:
            try:
                session.do_handshake()
                agreed = True
            except ssl.SSLWantReadError:
                pass
            s.sendall(outgoing.read())
            if not agreed:
                incoming.write(s.recv(65536))
        yield session, outgoing, s


def client_hello(pki):
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    obj = tls.context(pki.ca).wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        obj.do_handshake()
    return outgoing.read()


def test_handshakes_are_limited(pki):
    with serve(pki, handshake_burst=3, handshake_per_s=0) as server:
        for _ in range(3):
            assert tls.ask(server.port, tls.context(pki.ca)) == "HTTP/1.1 200 OK"
        for _ in range(2):
            with pytest.raises((ssl.SSLError, OSError)):
                tls.ask(server.port, tls.context(pki.ca))
        assert server.raw(b"GET /healthz HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.1 200")
        assert server.stats()["tls_handshakes_limited"] == 2


def test_garbage_that_looks_like_tls(pki):
    with serve(pki) as server:
        for data in (b"\x16" * 100, b"\x16\x03\x01\xff\xff" + b"\0" * 70000, b"\x16\x03\x03\x00\x05hello",
                     client_hello(pki) + b"GET / HTTP/1.1\r\n\r\n"):
            reply = server.raw(data, half_close=True)
            assert b"HTTP" not in reply
        # Broken, or ended, in the middle of a session, together with what came before or behind it.
        for kind in ("broken", "ended"):
            for together in (True, False):
                with records(server, pki) as (session, out, s):
                    session.write(b"GET /healthz HTTP/1.1\r\n")
                    if not together:
                        s.sendall(out.read())
                    if kind == "ended":
                        with pytest.raises(ssl.SSLWantReadError):
                            session.unwrap()
                        s.sendall(out.read())
                    else:
                        s.sendall(out.read() + b"\x17\x03\x03\x00\x20" + os.urandom(32))
                    hu.read_all(s)  # in time
        assert tls.ask(server.port, tls.context(pki.ca)) == "HTTP/1.1 200 OK"
        assert server.stats()["tls_handshakes_failed"] == 4
