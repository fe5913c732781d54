# SPDX-License-Identifier: Apache-2.0
"""gRPC against grpcio, an independent implementation."""
import base64
import threading
import time

import grpc
import pytest

from http_util import Server


@pytest.fixture()
def server():
    with Server() as s:
        yield s


def call(channel, path, body=b"", **kw):
    stub = channel.unary_unary(path, request_serializer=None, response_deserializer=None)
    return stub.with_call(body, timeout=kw.pop("timeout", 10), **kw)


def channel_to(server, *options):
    return grpc.insecure_channel("127.0.0.1:%d" % server.port, options=[
        ("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1), *options])


def test_unary_sizes(server):
    with channel_to(server) as ch:
        for n in (0, 1, 5, 16379, 16384, 70000, 4 * 1024 * 1024 + 1, 20_000_000):
            body = bytes(range(256)) * (n // 256) + b"x" * (n % 256)
            answer, info = call(ch, "/test.Echo/Unary", body)
            assert answer == body
            assert ("x-threshold", "42") in info.initial_metadata()


def test_gzip_request(server):
    with channel_to(server) as ch:
        body = b"abc" * 40000
        answer, _ = call(ch, "/test.Echo/Unary", body, compression=grpc.Compression.Gzip)
        assert answer == body
    assert server.stats()["request_inflated_bytes"] >= len(body)


def test_errors(server):
    with channel_to(server) as ch:
        with pytest.raises(grpc.RpcError) as e:
            call(ch, "/test.Echo/Nothing")
        assert e.value.code() == grpc.StatusCode.UNIMPLEMENTED
        with pytest.raises(grpc.RpcError) as e:
            call(ch, "/test.Echo/Bad")
        assert e.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert "google.rpc.retryinfo-bin" not in dict(e.value.trailing_metadata())
        with pytest.raises(grpc.RpcError) as e:
            call(ch, "/test.Echo/Small", b"x" * 1001)
        assert e.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "google.rpc.retryinfo-bin" not in dict(e.value.trailing_metadata())
        assert call(ch, "/test.Echo/Small", b"x" * 1000)[0] == b"x" * 1000


def test_retry_info(server):
    with channel_to(server) as ch:
        with pytest.raises(grpc.RpcError) as e:
            call(ch, "/test.Echo/Busy")
    assert e.value.code() == grpc.StatusCode.UNAVAILABLE
    assert e.value.details() == "café 100% full"
    trailers = dict(e.value.trailing_metadata())
    retry_info = bytes.fromhex("0a0808021080cab5ee01")  # Duration {2 s, 500000000 ns}
    assert trailers["google.rpc.retryinfo-bin"] == retry_info
    details = trailers["grpc-status-details-bin"]
    assert details.startswith(b"\x08\x0e\x12")
    assert b"type.googleapis.com/google.rpc.RetryInfo" in details and details.endswith(retry_info)


def test_late_and_deadline():
    with Server(late_ms=300) as server, channel_to(server) as ch:
        assert call(ch, "/test.Echo/Late", b"hello")[0] == b"hello"
        with pytest.raises(grpc.RpcError) as e:
            call(ch, "/test.Echo/Late", b"hello", timeout=0.1)
        assert e.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        server.wait_stat("replies_dropped", 1)
        assert server.stats()["body_bytes"] == 0


def test_server_deadline_alone():
    """The server ends a call by grpc-timeout even when the client would wait longer."""
    with Server(late_ms=400) as server:
        from http_util import H2
        with H2(server) as h2:
            sid = h2.grpc("/test.Echo/Late", b"\0\0\0\0\0", extra=[("grpc-timeout", "50m")])
            head, _, _ = h2.wait_response(sid)
            assert head["grpc-status"] == "4"
        server.wait_stat("grpc_deadlines", 1)
        server.wait_stat("replies_dropped", 1)


def test_health(server):
    with channel_to(server) as ch:
        path = "/grpc.health.v1.Health/Check"
        assert call(ch, path)[0] == b"\x08\x01"
        assert call(ch, path, b"\x0a\x09test.Echo")[0] == b"\x08\x01"
        with pytest.raises(grpc.RpcError) as e:
            call(ch, path, b"\x0a\x04nope")
        assert e.value.code() == grpc.StatusCode.NOT_FOUND


def test_health_list_and_watch():
    with Server(late_ms=300) as server, channel_to(server) as ch:
        entries = call(ch, "/grpc.health.v1.Health/List")[0]
        for name in (b"", b"test.Echo", b"grpc.health.v1.Health"):
            inner = b"\x0a" + bytes([len(name)]) + name + b"\x12\x02\x08\x01"
            assert entries.count(b"\x0a" + bytes([len(inner)]) + inner) == 1
        watch = ch.unary_stream("/grpc.health.v1.Health/Watch", request_serializer=None, response_deserializer=None)
        unknown = watch(b"\x0a\x04nope", timeout=10)
        assert next(unknown) == b"\x08\x03"  # SERVICE_UNKNOWN, and the call goes on
        unknown.cancel()
        known = watch(b"\x0a\x09test.Echo", timeout=10)
        assert next(known) == b"\x08\x01"
        server.terminate()
        assert next(known) == b"\x08\x02"  # NOT_SERVING before the end
        with pytest.raises(grpc.RpcError) as e:
            next(known)
        assert e.value.code() == grpc.StatusCode.UNAVAILABLE
        assert server.wait() == 0


def test_token():
    with Server(token="secret") as server, channel_to(server) as ch:
        for metadata in (None, [("authorization", "Bearer secreT")],
                         [("authorization", "Bearer secret2")], [("authorization", "Basic secret")]):
            with pytest.raises(grpc.RpcError) as e:
                call(ch, "/test.Echo/Unary", b"x" * 1000000, metadata=metadata)
            assert e.value.code() == grpc.StatusCode.UNAUTHENTICATED
        answer, _ = call(ch, "/test.Echo/Unary", b"x", metadata=[("authorization", "Bearer secret")])
        assert answer == b"x"
        assert call(ch, "/grpc.health.v1.Health/Check")[0] == b"\x08\x01"  # open to probes
        assert server.stats()["refused_auth"] == 4


def test_parallel_streams(server):
    with channel_to(server) as ch:
        stub = ch.unary_unary("/test.Echo/Unary")
        bodies = [bytes([i % 256]) * (i * 777) for i in range(300)]
        futures = [stub.future(b, timeout=20) for b in bodies]
        assert [f.result() for f in futures] == bodies


def test_keepalive_pings_are_welcome(server):
    with channel_to(server, ("grpc.keepalive_time_ms", 1000), ("grpc.http2.min_time_between_pings_ms", 1000),
                    ("grpc.keepalive_permit_without_calls", 1)) as ch:
        for _ in range(5):
            call(ch, "/test.Echo/Unary", b"x" * 100000)
            time.sleep(0.5)
    assert server.stats()["floods_closed"] == 0


def test_drain_finishes_calls():
    with Server(late_ms=500) as server, channel_to(server) as ch:
        stub = ch.unary_unary("/test.Echo/Late")
        future = stub.future(b"last", timeout=10)
        time.sleep(0.2)
        server.terminate()
        assert future.result() == b"last"
        assert server.wait() == 0


def test_peer_death_frees_bodies():
    with Server(late_ms=200) as server:
        ch = channel_to(server)
        stub = ch.unary_unary("/test.Echo/Late")
        futures = [stub.future(b"x" * 500000, timeout=10) for _ in range(8)]
        server.wait_stat("in_flight", 1)
        ch.close()
        server.wait_stat("in_flight", 0, exact=True)
        server.wait_stat("body_bytes", 0, exact=True)
        assert server.stats()["replies_dropped"] > 0
        del futures
