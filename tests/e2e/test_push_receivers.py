# SPDX-License-Identifier: Apache-2.0
"""The agent's exporter against receivers that are not ours: nothing is lost, nothing is sent again that was
acknowledged, what is refused for good is counted, and who asks for a pause gets it."""

import email.utils
import time

import grpc
import pytest

import harness
import receiver_util as ru

Code = grpc.StatusCode


def check(receiver, feed, n, refused=0, partial=0):
    """All numbers of both signals were acknowledged once, but for those refused for good."""
    said = feed.drained(2 * n)
    assert (said["sent"], said["refused"], said["rejected"]) == (2 * n - refused, refused, partial), said
    got = [x for signal in ("metrics", "logs") for x in receiver.accepted(signal)]
    assert len(got) == 2 * n - refused
    for signal in ("metrics", "logs"):
        accepted = receiver.accepted(signal)
        assert len(accepted) == len(set(accepted)), f"{signal} twice"
    assert receiver.strange == []
    return said


def date_in(seconds):
    return lambda: email.utils.formatdate(time.time() + seconds, usegmt=True)


# --- HTTP --------------------------------------------------------------------------------------------

AGAIN = [("status", 429, {}), ("status", 502, {}), ("status", 503, {}), ("status", 504, {}), ("reset",), ("cut",),
         ("status", 401, {}), ("status", 403, {}), ("status", 503, {"Retry-After": "-5"}),
         ("status", 503, {"Retry-After": "soon"}), ("status", 429, {"Retry-After": "0"}),
         ("status", 503, {"Retry-After": "Fri, 31 Dec 1999 23:59:59 GMT"})]
NEVER = [("status", c, {}) for c in (400, 404, 405, 413, 415, 500, 501)]
# Others' addresses are not followed with a POST: what was meant for one receiver is not sent to another.
REDIRECTS = [("status", c, {"Location": "/v1/logs"}) for c in (301, 302, 307, 308)]


def test_http_answers(tmp_path):
    receiver = ru.HttpReceiver([*AGAIN, ("ok",), *NEVER, ("ok",), *REDIRECTS, ("partial", 1, "one too many")])
    with ru.Feed(tmp_path, receiver.endpoint, "http/protobuf") as feed:
        feed.feed(20)
        said = check(receiver, feed, 20, refused=len(NEVER) + len(REDIRECTS), partial=1)
        # A reset of a connection that was kept open is mended by the library, on a new one at once.
        assert said["retries"] in (len(AGAIN), len(AGAIN) - 1)
        assert len(receiver.calls) == 40 + len(AGAIN)
    receiver.close()


@pytest.mark.parametrize("compression", ["gzip", "none"])
def test_http_base_path_and_plain(tmp_path, compression):
    receiver = ru.HttpReceiver(prefix="/tenant/a")
    with ru.Feed(tmp_path, receiver.endpoint + "/", "http/protobuf",
                 OTEL_EXPORTER_OTLP_COMPRESSION=compression) as feed:
        feed.feed(5)
        check(receiver, feed, 5)
    receiver.close()


@pytest.mark.parametrize("hint,least", [("2", 2), (date_in(3), 1.9)], ids=["seconds", "date"])
def test_http_waits_as_told(tmp_path, hint, least):
    receiver = ru.HttpReceiver([("status", 503, {"Retry-After": hint})])
    with ru.Feed(tmp_path, receiver.endpoint, "http/protobuf") as feed:
        feed.feed(2)
        check(receiver, feed, 2)
        assert receiver.gap(0) >= least
    receiver.close()


def test_http_slow_receiver(tmp_path):
    """An answer that comes after the time limit is none; the limit holds from the first byte to the last."""
    receiver = ru.HttpReceiver([("hang", 20)])
    with ru.Feed(tmp_path, receiver.endpoint, "http/protobuf", OTEL_EXPORTER_OTLP_TIMEOUT="500") as feed:
        feed.feed(3)
        check(receiver, feed, 3)
        assert receiver.gap(0) < 20    # nobody else called
    receiver.close()


def test_http_receiver_that_comes_late(tmp_path):
    """Nobody listens at first."""
    port = harness.free_port()
    with ru.Feed(tmp_path, f"http://127.0.0.1:{port}", "http/protobuf") as feed:
        feed.feed(30)
        harness.wait_until(lambda: feed.stats()["retries"] >= 3, what="tries")
        assert feed.stats()["rows"] == 60
        receiver = ru.HttpReceiver(port=port)
        check(receiver, feed, 30)
    receiver.close()


# --- gRPC --------------------------------------------------------------------------------------------

GRPC_AGAIN = [("code", c) for c in (Code.CANCELLED, Code.DEADLINE_EXCEEDED, Code.ABORTED, Code.OUT_OF_RANGE,
                                    Code.UNAVAILABLE, Code.DATA_LOSS, Code.UNAUTHENTICATED, Code.PERMISSION_DENIED)]
GRPC_NEVER = [("code", c) for c in (Code.INVALID_ARGUMENT, Code.NOT_FOUND, Code.ALREADY_EXISTS,
                                    Code.FAILED_PRECONDITION, Code.UNIMPLEMENTED, Code.INTERNAL, Code.UNKNOWN,
                                    Code.RESOURCE_EXHAUSTED)]
SHORT = (("google.rpc.retryinfo-bin", ru.retry_info(0.1)),)


def test_grpc_answers(tmp_path):
    receiver = ru.GrpcReceiver([*GRPC_AGAIN, ("code", Code.RESOURCE_EXHAUSTED, SHORT), ("ok",), *GRPC_NEVER,
                                ("partial", 1, "one too many")])
    with ru.Feed(tmp_path, receiver.endpoint, "grpc") as feed:
        feed.feed(15)
        said = check(receiver, feed, 15, refused=len(GRPC_NEVER), partial=1)
        assert said["retries"] == len(GRPC_AGAIN) + 1
    receiver.close()


HINTS = {"retryinfo": (("google.rpc.retryinfo-bin", ru.retry_info(1.5)),),
         "details": (("grpc-status-details-bin", ru.status_details(14, 1.5)),)}


@pytest.mark.parametrize("first", [False, True], ids=["trailers-only", "trailers"])
@pytest.mark.parametrize("hint", HINTS)
def test_grpc_waits_as_told(tmp_path, hint, first):
    receiver = ru.GrpcReceiver([("code", Code.UNAVAILABLE, HINTS[hint], *([True] if first else []))])
    with ru.Feed(tmp_path, receiver.endpoint, "grpc") as feed:
        feed.feed(2)
        check(receiver, feed, 2)
        assert receiver.gap(0) >= 1.5
    receiver.close()


def test_grpc_slow_receiver(tmp_path):
    receiver = ru.GrpcReceiver([("hang", 20)])
    with ru.Feed(tmp_path, receiver.endpoint, "grpc", OTEL_EXPORTER_OTLP_TIMEOUT="500") as feed:
        feed.feed(3)
        check(receiver, feed, 3)
        assert receiver.gap(0) < 20
    receiver.close()


def test_grpc_connections_that_end(tmp_path):
    """A receiver that sends GOAWAY every moment, and one that is restarted."""
    receiver = ru.GrpcReceiver(options=(("grpc.max_connection_age_ms", 300), ("grpc.max_connection_age_grace_ms", 500)))
    with ru.Feed(tmp_path, receiver.endpoint, "grpc") as feed:
        sent = 0
        until = time.monotonic() + 2
        while time.monotonic() < until:
            feed.feed(10)
            sent += 10
            feed.drained(2 * sent)
        check(receiver, feed, sent)
        for _ in range(3):
            feed.feed(20)
            sent += 20
            receiver.close()
            receiver.listen(receiver.port)
        said = feed.drained(2 * sent)
        assert (said["sent"], said["refused"]) == (2 * sent, 0)
        for signal in ("metrics", "logs"):
            # Who was cut off before its answer asks again; nothing else comes twice.
            got = receiver.accepted(signal)
            assert set(got) == set(range(1, sent + 1)) and len(got) <= sent + 3
    receiver.close()


GRPC_HEAD = [(":status", "200"), ("content-type", "application/grpc")]
H2_AGAIN = [("rst", 7), ("rst", 8), ("rst", 2), ("rst", 11), ("goaway", 0), ("close",), ("silent",),
            ("headers", [(":status", "503")]), ("headers", [(":status", "429")]),
            ("headers", [(":status", "502"), ("content-type", "text/html")]), ("goaway", 0),
            ("headers", [(":status", "401")]),
            ("headers", [*GRPC_HEAD, ("grpc-status", "14"), ("grpc-message", "later%0a%")]),
            ("headers", [*GRPC_HEAD, ("grpc-status", "14"), ("google.rpc.retryinfo-bin", "!!!")]),
            ("headers", [*GRPC_HEAD, ("grpc-status", "14"), ("grpc-status-details-bin", "")])]
H2_NEVER = [("headers", [*GRPC_HEAD, ("grpc-status", "3")]), ("headers", [(":status", "404")]),
            ("headers", [(":status", "413")]), ("headers", [*GRPC_HEAD, ("grpc-status", "99")])]


def test_grpc_frames(tmp_path):
    """Streams reset, connections given up before and after the call, answers in other forms."""
    receiver = ru.H2Receiver([*H2_AGAIN, ("ok",), *H2_NEVER, ("split",)])
    with ru.Feed(tmp_path, receiver.endpoint, "grpc") as feed:
        feed.feed(15)
        said = feed.drained(30)
        assert (said["sent"], said["refused"]) == (26, len(H2_NEVER)), said
        # What the peer said it has not looked at is sent again at once, on a new connection.
        assert len(H2_AGAIN) - 3 <= said["retries"] <= len(H2_AGAIN)
        assert len(receiver.calls) == 30 + len(H2_AGAIN)
        done = [(s, n, todo[0]) for _, s, n, todo in receiver.calls if todo[0] in ("ok", "split")]
        assert len(done) == 26 and len({(s, *n) for s, n, _ in done}) == 26
        assert receiver.strange == []
    receiver.close()


def test_grpc_to_what_is_no_grpc(tmp_path):
    """An HTTP/1.1 server at the address: the data waits."""
    receiver = ru.HttpReceiver()
    with ru.Feed(tmp_path, receiver.endpoint, "grpc") as feed:
        feed.feed(3)
        harness.wait_until(lambda: feed.stats()["retries"] >= 3, what="tries")
        assert feed.stats()["rows"] == 6 and feed.stats()["refused"] == 0
        assert receiver.calls == []
    receiver.close()
