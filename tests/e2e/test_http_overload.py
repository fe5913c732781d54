# SPDX-License-Identifier: Apache-2.0
"""Routes that are protected from overload: what is let in, what waits at its head, what is refused, and what each costs the peer."""
import base64
import signal
import time

import h2.events
import h2.exceptions
import pytest

from http_util import H2, Server, read_all

ALWAYS = 32          # requests that are let in whatever the load
UNAVAILABLE = "14"
DEADLINE = "4"
PATH = "/test.Echo/Protected"
SMALL = b"\0\0\0\0\x02hi"
BIG = b"\0" + (60_000).to_bytes(4, "big") + b"x" * 60_000


def overloaded(**options):
    """A server without a rest that takes whoever has to wait for overload."""
    return Server(**{"busy": 1, "burst_ms": 0, "streams": 400, "late_ms": 5, **options})


def answers(conn, streams):
    """[(status, head and trailers in one)] in the order of the streams."""
    found = []
    for sid in streams:
        head, _, trailers = conn.wait_response(sid)
        both = {**head, **(trailers if isinstance(trailers, dict) else {"reset": trailers})}
        found.append((both.get("grpc-status"), both))
    return found


def let_big_bodies_be_known(server):
    """The server judges by the bodies that it saw."""
    with H2(server) as conn:
        for _ in range(3):
            assert answers(conn, [send(conn, BIG)])[0][0] == "0"


def begin(conn):
    """The head of a call."""
    return conn.headers("POST", PATH, [("content-type", "application/grpc"), ("te", "trailers")], end=False)


def finish(conn, sid, data):
    """Sends a body as the windows allow."""
    at = 0
    while at < len(data):
        room = min(conn.conn.local_flow_control_window(sid), conn.conn.max_outbound_frame_size, len(data) - at)
        if room <= 0:
            assert conn.poll(), "connection ended"
            continue
        conn.conn.send_data(sid, data[at:at + room], end_stream=at + room == len(data))
        conn.flush()
        at += room


def finish_as_asked(conn, streams, data):
    """Sends the bodies of many streams in the order in which their windows open; those that were refused."""
    left, refused = dict.fromkeys(streams, 0), set()
    while left:
        moved = False
        for sid in list(left):
            try:
                room = min(conn.conn.local_flow_control_window(sid), conn.conn.max_outbound_frame_size, len(data) - left[sid])
                if room > 0:
                    conn.conn.send_data(sid, data[left[sid]:left[sid] + room], end_stream=left[sid] + room == len(data))
                    left[sid] += room
                    moved = True
            except h2.exceptions.StreamClosedError:
                refused.add(sid)
                left[sid] = len(data)
            if left[sid] == len(data):
                del left[sid]
        conn.flush()
        if not moved and left:
            assert conn.poll(), "connection ended"
    return refused


def send(conn, data):
    sid = begin(conn)
    finish(conn, sid, data)
    return sid


def test_everybody_is_let_in_while_there_is_time_to_rest():
    with Server(busy=0, streams=400) as server, H2(server) as conn:
        got = answers(conn, [conn.grpc(PATH, SMALL) for _ in range(100)])
        assert [status for status, _ in got] == ["0"] * 100
        assert server.stats()["refused_load"] == 0


def test_a_burst_is_worked_off():
    """No rest either, but not for long."""
    with overloaded(burst_ms=10_000, late_ms=2) as server, H2(server) as conn:
        got = answers(conn, [conn.grpc(PATH, SMALL) for _ in range(200)])
        assert [status for status, _ in got] == ["0"] * 200
        assert server.stats()["refused_load"] == 0


def test_the_rest_is_refused_with_a_hint():
    with overloaded(late_ms=20) as server, H2(server) as conn:
        got = answers(conn, [conn.grpc(PATH, SMALL) for _ in range(200)])
        status = [s for s, _ in got]
        assert status[:ALWAYS] == ["0"] * ALWAYS
        refused = [both for s, both in got if s == UNAVAILABLE]
        assert len(refused) + status.count("0") == 200 and len(refused) > 50
        for both in refused:
            for name in ("grpc-status-details-bin", "google.rpc.retryinfo-bin"):
                text = both[name]
                assert b"\x08\x05" in base64.b64decode(text + "=" * (-len(text) % 4))  # RetryInfo of 5 s
            assert "overloaded" in both["grpc-message"]
        assert server.stats()["refused_load"] == len(refused)
        # Other routes of the same server are none the worse.
        assert answers(conn, [conn.grpc("/test.Echo/Unary", SMALL)])[0][0] == "0"


def test_http1_is_refused_with_retry_after_and_may_come_again():
    with overloaded(late_ms=30) as server:
        socks = [server.connect() for _ in range(80)]
        for s in socks:
            s.sendall(b"POST /protected HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi")
        heads = [s.recv(4096).split(b"\r\n\r\n")[0] for s in socks]
        refused = [i for i, h in enumerate(heads) if h.startswith(b"HTTP/1.1 503")]
        assert 0 < len(refused) <= 80 - ALWAYS
        assert all(heads[i].startswith(b"HTTP/1.1 200") for i in range(80) if i not in refused)
        assert all(b"\r\nretry-after: 5" in heads[i].lower() for i in refused)
        again = socks[refused[-1]]
        again.sendall(b"POST /protected HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi")
        assert b"HTTP/1.1 200" in read_all(again)
        for s in socks:
            s.close()


def test_bodies_wait_for_leave_while_refusals_must_be_cheap():
    with overloaded(late_ms=20) as server:
        let_big_bodies_be_known(server)
        with H2(server) as conn:
            assert answers(conn, [send(conn, BIG)])[0][0] == "0"  # makes the server say that bodies shall wait
            while conn.conn.remote_settings.initial_window_size != 0:
                assert conn.poll()
            before = server.stats()["request_body_bytes"]
            streams = [begin(conn) for _ in range(100)]
            refused, opened = set(), set()
            while len(refused) + len(opened) < 100:
                assert conn.poll()
                refused = {e.stream_id for e in conn.events if isinstance(e, h2.events.ResponseReceived)}
                opened = {e.stream_id for e in conn.events if isinstance(e, h2.events.WindowUpdated)} & set(streams)
            assert server.stats()["request_body_bytes"] == before  # not a byte was asked for in vain
            assert len(opened) >= ALWAYS and refused
            for sid in opened:
                finish(conn, sid, BIG)
            assert {s for s, _ in answers(conn, sorted(opened))} == {"0"}
            assert {s for s, _ in answers(conn, sorted(refused))} == {UNAVAILABLE}
            # A while later bodies come unasked again.
            end = time.monotonic() + 10
            while conn.conn.remote_settings.initial_window_size == 0:
                assert time.monotonic() < end and conn.poll()
            assert answers(conn, [send(conn, BIG)])[0][0] == "0"


def test_a_body_under_way_goes_on_when_bodies_are_told_to_wait():
    with overloaded() as server:
        let_big_bodies_be_known(server)
        with H2(server) as conn:
            slow = begin(conn)
            conn.conn.send_data(slow, BIG[:16_000])
            conn.flush()
            while conn.conn.remote_settings.initial_window_size != 0:
                conn.grpc(PATH, SMALL)
                assert conn.poll()
            finish(conn, slow, BIG[16_000:])
            assert answers(conn, [slow])[0][0] == "0"


def test_refusals_have_a_rate_and_the_others_wait_for_room():
    began = time.monotonic()
    with overloaded(refusals=1, late_ms=2) as server, H2(server) as conn:
        status = [s for s, _ in answers(conn, [conn.grpc(PATH, SMALL) for _ in range(150)])]
        assert status.count(UNAVAILABLE) <= 2 + (time.monotonic() - began)
        assert status.count(UNAVAILABLE) + status.count("0") == 150


def test_big_bodies_of_those_that_wait_are_asked_for_in_their_turn():
    with overloaded(refusals=1, late_ms=2) as server:
        let_big_bodies_be_known(server)
        with H2(server) as conn:
            assert answers(conn, [send(conn, BIG)])[0][0] == "0"
            began = time.monotonic()
            streams = [begin(conn) for _ in range(100)]
            refused = finish_as_asked(conn, streams, BIG)
            assert len(refused) <= 2 + (time.monotonic() - began)
            assert {s for s, _ in answers(conn, [s for s in streams if s not in refused])} <= {"0", UNAVAILABLE}


def test_who_stalls_does_not_keep_the_others_out():
    with overloaded(late_ms=1) as server:
        let_big_bodies_be_known(server)
        with H2(server) as stalled, H2(server) as conn:
            held = [begin(stalled) for _ in range(60)]  # more than are let in
            while not any(isinstance(e, h2.events.ResponseReceived) for e in stalled.events):
                assert stalled.poll()
            server.proc.send_signal(signal.SIGUSR2)  # the server has nothing to do
            end = time.monotonic() + 10
            while answers(conn, [send(conn, SMALL)])[0][0] != "0":
                assert time.monotonic() < end
                time.sleep(0.1)
            assert len(held) == 60


@pytest.mark.parametrize("how", ["reset", "close", "deadline"])
def test_who_waits_may_go(how):
    with overloaded(refusals=1, late_ms=30) as server:
        with H2(server) as other:
            kept = [other.grpc(PATH, SMALL) for _ in range(ALWAYS + 2)]
            with H2(server) as conn:
                extra = [("grpc-timeout", "50m")] if how == "deadline" else []
                waiting = [conn.grpc(PATH, SMALL, extra) for _ in range(50)]
                if how == "reset":
                    for sid in waiting[:40]:
                        conn.conn.reset_stream(sid)
                    conn.flush()
                    assert answers(conn, waiting[40:])[-1][0] == "0"
                elif how == "deadline":
                    assert DEADLINE in {s for s, _ in answers(conn, waiting)}
            assert [s for s, _ in answers(other, kept)].count("0") >= ALWAYS
        server.wait_stat("in_flight", 0, exact=True)
        server.wait_stat("body_bytes", 0, exact=True)
        with H2(server) as conn:  # nothing of them counts any more
            assert answers(conn, [conn.grpc(PATH, SMALL) for _ in range(ALWAYS)])[-1][0] == "0"


def test_a_reset_in_answer_to_a_refusal_is_no_attack():
    with overloaded(late_ms=20, streams=100) as server, H2(server) as conn:
        refused = 0
        end = time.monotonic() + 30
        while refused < 600 and time.monotonic() < end:
            for sid in [conn.grpc(PATH, SMALL) for _ in range(90)]:
                head, _, _ = conn.wait_response(sid)
                if head.get("grpc-status") == UNAVAILABLE:
                    refused += 1
                    conn.sock.sendall(b"\0\0\x04\x03\0" + sid.to_bytes(4, "big") + b"\0\0\0\0")
        assert refused >= 600
        assert answers(conn, [conn.grpc("/test.Echo/Unary", SMALL)])[0][0] == "0" and conn.goaway is None


def with_a_bound(late_ms, count):
    """Statuses of big calls at a server that is not overloaded but has room for the bodies of some forty only."""
    with Server(busy=0, streams=400, late_ms=late_ms, protected=2_600_000) as server:
        for _ in range(10):  # an average over sixteen
            let_big_bodies_be_known(server)
        with H2(server) as conn:
            streams = [begin(conn) for _ in range(count)]
            finish_as_asked(conn, streams, BIG)
            return [s for s, _ in answers(conn, streams)]


def test_a_burst_of_big_bodies_waits_until_there_is_room():
    assert with_a_bound(5, 120) == ["0"] * 120


def test_who_waited_for_two_seconds_is_told_so():
    status = with_a_bound(50, 120)
    assert status.count("0") >= ALWAYS and status.count(UNAVAILABLE) > 0
    assert status.count("0") + status.count(UNAVAILABLE) == 120


def test_a_drain_answers_those_that_wait():
    with overloaded(refusals=1, late_ms=10) as server:
        socks = [server.connect() for _ in range(60)]
        for s in socks:
            s.sendall(b"POST /protected HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi")
        server.wait_stat("requests", 60)
        server.terminate()
        heads = [read_all(s).split(b"\r\n")[0] for s in socks]
        assert heads.count(b"HTTP/1.1 200 OK") >= 55
        assert set(heads) <= {b"HTTP/1.1 200 OK", b"HTTP/1.1 503 Service Unavailable"}
