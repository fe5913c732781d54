# SPDX-License-Identifier: Apache-2.0
"""The answer matrix, row by row: HTTP/1.1 and HTTP/2 with protobuf, JSON and API bodies, and gRPC, to the byte."""
import base64
import gzip
import json
import os
import struct
import subprocess

import pytest

from http_util import BIN, H2, Server, read_all, send_all

RETRY = {"QUOTA": (5, 8), "BUSY": (5, 5), "TIMEOUT": (5, 5), "CLOSED": (5, 5), "DISK": (5, 5), "UNAVAILABLE": (5, 5)}
BAD_REQUEST = ("MALFORMED", "DEPTH", "COUNT")
# name: HTTP status, gRPC status, text, headers of HTTP, headers of gRPC
ROWS = {
    "MALFORMED": (400, 3, "malformed input", {}, {}),
    "DEPTH": (400, 3, "nesting too deep", {}, {}),
    "COUNT": (400, 3, "count limit exceeded", {}, {}),
    "FRAMING": (400, 13, "broken gRPC framing", {}, {}),
    "MESSAGES": (400, 12, "exactly one message is expected", {}, {}),
    "CONFIG": (400, 9, "wrong configuration", {}, {}),
    "UNAUTHENTICATED": (401, 16, "missing or wrong credentials", {"www-authenticate": "Bearer"}, {}),
    "FORBIDDEN": (403, 7, "not allowed", {}, {}),
    "NOT_FOUND": (404, 5, "not found", {}, {}),
    "NO_SERVICE": (404, 12, "unknown path, service or method", {}, {}),
    "METHOD": (405, 12, "method not allowed", {}, {}),
    "SLOW": (408, 4, "request came too slowly", {}, {}),
    "TOO_LARGE": (413, 8, "size limit exceeded", {}, {}),
    "TYPE": (415, 12, "content type not supported", {}, {}),
    "UNSUPPORTED": (415, 12, "not supported", {}, {}),
    "CODING": (415, 12, "content encoding not supported", {"accept-encoding": "gzip, zstd"},
               {"grpc-accept-encoding": "identity,gzip,zstd"}),
    "QUOTA": (429, 14, "rate limit exceeded, try again later", {}, {}),
    "HEAD": (431, 8, "request head too large", {}, {}),
    "CORRUPT": (500, 15, "stored data is damaged", {}, {}),
    "INTERNAL": (500, 13, "internal error", {}, {}),
    "RESPONSE": (500, 8, "response over the size limit", {}, {}),
    "CERTIFICATE": (401, 16, "a client certificate is needed, over TLS", {}, {}),
    "SCOPE": (403, 7, "the token is of one cluster, this needs one of all", {}, {}),
    "BUSY": (503, 14, "queue full, try again", {}, {}),
    "CLOSED": (503, 14, "connection closed", {}, {}),
    "DISK": (503, 14, "database cannot be written", {}, {}),
    "UNAVAILABLE": (503, 14, "service unavailable", {}, {}),
    "TIMEOUT": (504, 4, "deadline passed", {}, {}),
}
# Whatever a row does not name must not be there.
TOLD = ("retry-after", "www-authenticate", "allow", "accept-encoding", "accept-post", "grpc-accept-encoding", "grpc-status",
        "grpc-status-details-bin", "google.rpc.retryinfo-bin")
STANDARD = {"date", "server", "vary", "content-type", "content-length", "connection", ":status"}
HTTP_FORMS = [(version, kind) for version in (1, 2) for kind in ("application/x-protobuf", "application/protobuf",
                                                                 "application/json", "text/plain", "")]


@pytest.fixture(scope="module")
def server():
    with Server(max_body=1_000_000, max_response=2_000_000) as s:
        yield s


def field(number, data):
    return bytes([number << 3 | 2, len(data)]) + data


def rpc_status(code, text, detail=b""):
    return bytes([8, code]) + field(2, text.encode()) + detail


def any_detail(kind, value):
    return field(3, field(1, b"type.googleapis.com/google.rpc." + kind) + field(2, value))


def bad_request(text):
    return any_detail(b"BadRequest", field(1, field(1, b"body") + field(2, text.encode())))


def ask(server, version, method, path, headers, body=b""):
    """(status, headers, body) over HTTP/1.1 or HTTP/2."""
    if version == 2:
        with H2(server) as h2:
            sid = h2.headers(method, path, headers.items(), end=not body)
            if body:
                for i in range(0, len(body), 16384):
                    h2.conn.send_data(sid, body[i:i + 16384])
                h2.conn.end_stream(sid)
                h2.flush()
            head, answer, end = h2.wait_response(sid)
            assert end == {} or end == 0, end
            return int(head[":status"]), head, answer
    lines = ["%s %s HTTP/1.1" % (method, path), "Host: a", "Content-Length: %d" % len(body)]
    lines += ["%s: %s" % kv for kv in headers.items()]
    with server.connect() as sock:
        send_all(sock, "\r\n".join(lines).encode() + b"\r\nConnection: close\r\n\r\n" + body)
        return parse(read_all(sock))


def parse(data):
    head, _, answer = data.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    headers = {}
    for line in lines[1:]:
        name, value = line.split(": ", 1)
        assert name not in headers, "twice: " + name
        headers[name] = value
    assert int(headers["content-length"]) == len(answer)
    return int(lines[0].split()[1]), headers, answer


def check_http(answer, name, kind, form, text=None, more=None):
    status, head, body = answer
    http, grpc, standard_text, headers, _ = ROWS[name]
    text = text or standard_text
    expected = {**headers, **(more or {})}
    assert status == http
    if name in RETRY:
        assert RETRY[name][0] <= int(head["retry-after"]) <= RETRY[name][1]
        expected["retry-after"] = head["retry-after"]
    assert {k: v for k, v in head.items() if k in TOLD} == expected
    assert set(head) <= STANDARD | set(expected)
    if form == "status" and kind in ("application/x-protobuf", "application/protobuf"):
        assert head["content-type"] == kind
        assert body == rpc_status(grpc, text, bad_request(text) if name in BAD_REQUEST else b"")
        return
    assert head["content-type"] == "application/json"
    if form == "status":
        details = {"details": [{"@type": "type.googleapis.com/google.rpc.BadRequest",
                                "fieldViolations": [{"field": "body", "description": text}]}]}
        assert json.loads(body) == {"code": grpc, "message": text, **(details if name in BAD_REQUEST else {})}
    else:
        assert json.loads(body) == {"error": {"code": http, "message": text}}


def ask_grpc(server, path, message=b"\0\0\0\0\0", headers=(), **kw):
    with H2(server) as h2:
        sid = h2.grpc(path, message, extra=headers, **kw)
        return h2.wait_response(sid)


def check_grpc(answer, name, text=None):
    head, body, end = answer
    _, grpc, standard_text, _, headers = ROWS[name]
    text = text or standard_text
    assert body == b"" and end in ({}, 0), "not Trailers-Only"
    expected = {**headers, "grpc-status": str(grpc)}
    if name in RETRY:
        raw = head["google.rpc.retryinfo-bin"]
        info = base64.b64decode(raw + "=" * (-len(raw) % 4))
        assert "=" not in raw and info[:3] == b"\x0a" + bytes([len(info) - 2]) + b"\x08"
        assert RETRY[name][0] <= info[3] <= RETRY[name][1]
        expected["google.rpc.retryinfo-bin"] = raw
        details = rpc_status(grpc, text, any_detail(b"RetryInfo", info))
        expected["grpc-status-details-bin"] = base64.b64encode(details).decode().rstrip("=")
    elif name in BAD_REQUEST:
        details = rpc_status(grpc, text, bad_request(text))
        expected["grpc-status-details-bin"] = base64.b64encode(details).decode().rstrip("=")
    assert head[":status"] == "200" and head["content-type"] == "application/grpc"
    assert {k: v for k, v in head.items() if k in TOLD} == expected
    assert head["grpc-message"] == text


def test_no_row_is_missed():
    names = subprocess.run([os.path.join(BIN, "http_echo"), "answers"], capture_output=True, text=True, check=True).stdout
    assert sorted(names.split()) == sorted(ROWS)


@pytest.mark.parametrize("name", sorted(ROWS))
def test_row(server, name):
    for version, kind in HTTP_FORMS:
        headers = {"x-answer": name, **({"content-type": kind} if kind else {})}
        check_http(ask(server, version, "POST", "/v1/fail", headers, b"x"), name, kind, "status")
        check_http(ask(server, version, "POST", "/fail", headers, b"x"), name, kind, "error")
    check_grpc(ask_grpc(server, "/test.Echo/Fail", headers=[("x-answer", name)]), name)


def test_success_is_bare(server):
    for version, kind in HTTP_FORMS[:3]:
        status, head, body = ask(server, version, "POST", "/v1/metrics", {"content-type": "application/x-protobuf"})
        assert (status, body) == (200, b"") and not set(head) & set(TOLD)
    head, body, end = ask_grpc(server, "/test.Echo/Unary")
    assert body == b"\0\0\0\0\0" and end == {"grpc-status": "0"}


PB = {"content-type": "application/x-protobuf"}
# What the server itself refuses: row, request, kind of body, form, text, headers
REFUSED = [
    ("NO_SERVICE", ("POST", "/v1/nothing", PB, b"x"), "status", None, {}),
    ("METHOD", ("GET", "/v1/metrics", PB, b""), "status", None, {"allow": "POST"}),
    ("METHOD", ("DELETE", "/echo", {}, b""), "error", None, {"allow": "GET, HEAD, POST"}),
    ("TYPE", ("POST", "/v1/metrics", {"content-type": "application/grp"}, b"x"), "status", None,
     {"accept-post": "application/x-protobuf,application/json"}),
    ("TYPE", ("POST", "/v1/metrics", {"content-type": "text/plain"}, b"x"), "status", None,
     {"accept-post": "application/x-protobuf,application/json"}),
    ("TYPE", ("POST", "/v1/metrics", {"content-type": "application/"}, b"x"), "status", None,
     {"accept-post": "application/x-protobuf,application/json"}),
    ("TYPE", ("POST", "/v1/metrics", {}, b"x"), "status", None, {"accept-post": "application/x-protobuf,application/json"}),
    ("TYPE", ("POST", "/test.Echo/Unary", PB, b"x"), "status", "this path speaks gRPC only",
     {"accept-post": "application/grpc"}),
    ("CODING", ("POST", "/v1/metrics", {**PB, "content-encoding": "br"}, b"x"), "status", None, {}),
    ("CODING", ("POST", "/v1/metrics", {**PB, "content-encoding": "gzip, gzip"}, b"x"), "status", None, {}),
    ("MALFORMED", ("POST", "/v1/metrics", {**PB, "content-encoding": "gzip"}, b"nonsense"), "status",
     "body cannot be decompressed", {}),
    ("TOO_LARGE", ("POST", "/v1/metrics", PB, bytes(1_000_001)), "status", "request body too large", {}),
    ("TOO_LARGE", ("POST", "/v1/metrics", {**PB, "content-encoding": "gzip"}, gzip.compress(bytes(1_000_001))), "status",
     None, {}),
    ("RESPONSE", ("GET", "/big", {}, b""), "error", None, {}),
]


@pytest.mark.parametrize("version", (1, 2))
@pytest.mark.parametrize("case", REFUSED, ids=lambda c: c[0])
def test_refused_by_the_server(server, version, case):
    name, (method, path, headers, body), form, text, more = case
    if version == 2 and len(body) > 60000:
        with H2(server) as h2:  # announced: refused before a byte of it is sent
            sid = h2.headers(method, path, [*headers.items(), ("content-length", str(len(body)))], end=False)
            head, answer, end = h2.wait_response(sid)
            answer = (int(head[":status"]), head, answer)
    else:
        answer = ask(server, version, method, path, headers, body)
    kind = headers.get("content-type", "")
    if form == "status" and "protobuf" not in kind and (path == "/test.Echo/Unary" or "v1" not in path):
        form = "error"
    check_http(answer, name, kind, form, text, more)


def message(data, flag=0):
    return bytes([flag]) + struct.pack(">I", len(data)) + data


REFUSED_GRPC = [
    ("NO_SERVICE", "/test.Echo/Nothing", message(b""), [], None),
    ("CODING", "/test.Echo/Unary", message(b""), [("grpc-encoding", "snappy")], "compression not supported"),
    ("FRAMING", "/test.Echo/Unary", b"", [], "no message"),
    ("FRAMING", "/test.Echo/Unary", b"\0\0\0", [], "message cut short"),
    ("FRAMING", "/test.Echo/Unary", b"\2\0\0\0\0", [], None),
    ("FRAMING", "/test.Echo/Unary", message(b"x", 1), [], "compressed message without grpc-encoding"),
    ("FRAMING", "/test.Echo/Unary", message(b""), [("grpc-timeout", "soon")], "bad grpc-timeout"),
    ("MESSAGES", "/test.Echo/Unary", message(b"a") + message(b"b"), [], None),
    ("MALFORMED", "/test.Echo/Unary", message(b"abc", 1), [("grpc-encoding", "gzip")], "body cannot be decompressed"),
    ("TOO_LARGE", "/test.Echo/Small", message(bytes(1001)), [], None),
    ("TOO_LARGE", "/test.Echo/Small", message(gzip.compress(bytes(1001)), 1), [("grpc-encoding", "gzip")], None),
]


@pytest.mark.parametrize("case", REFUSED_GRPC, ids=lambda c: c[0])
def test_refused_grpc(server, case):
    name, path, data, headers, text = case
    check_grpc(ask_grpc(server, path, data, headers), name, text)


def test_grpc_content_type_in_the_wrong_place(server):
    """Not gRPC at all: an HTTP status answers."""
    for version in (1, 2):
        for kind in ("application/grp", "application/grpcx", "text/plain"):
            answer = ask(server, version, "POST", "/test.Echo/Unary", {"content-type": kind}, b"x")
            check_http(answer, "TYPE", kind, "error", "this path speaks gRPC only", {"accept-post": "application/grpc"})
    answer = ask(server, 1, "POST", "/test.Echo/Unary", {"content-type": "application/grpc"}, b"x")
    check_http(answer, "TYPE", "", "error", "this path speaks gRPC only", {"accept-post": "application/grpc"})
    answer = ask(server, 2, "GET", "/test.Echo/Unary", {"content-type": "application/grpc"})
    check_http(answer, "METHOD", "", "error", None, {"allow": "POST"})


def test_heads(server):
    answer = ask(server, 2, "POST", "/v1/fail", {**PB, "x": "y" * 17000})
    check_http(answer, "HEAD", "", "error")
    for request, status in ((b"GET /echo HTTP/1.1\r\nHost: a\r\nX: " + b"y" * 17000 + b"\r\n\r\n", 431),
                            (b"GET /" + b"y" * 17000 + b" HTTP/1.1\r\n\r\n", 414),
                            (b"GET /echo\r\n\r\n", 400), (b"GET /echo HTTP/9.9\r\n\r\n", 505)):
        code, head, body = parse(server.raw(request))
        assert code == status and head["connection"] == "close" and head["content-type"] == "application/json"
        assert json.loads(body)["message"]


def test_credentials():
    with Server(token="secret", max_body=1_000_000) as server:
        for version in (1, 2):
            for kind in ("application/x-protobuf", "application/json", "text/plain", "application/"):
                for path, form in (("/v1/metrics", "status"), ("/echo", "error")):
                    answer = ask(server, version, "POST", path, {"content-type": kind}, b"x")
                    check_http(answer, "UNAUTHENTICATED", kind, form)
        check_grpc(ask_grpc(server, "/test.Echo/Unary"), "UNAUTHENTICATED")
        # Before anything of a body is kept, inflated or even judged.
        bomb = gzip.compress(bytes(100_000_000))
        answer = ask(server, 1, "POST", "/v1/metrics", {**PB, "content-encoding": "gzip"}, bomb)
        check_http(answer, "UNAUTHENTICATED", "application/x-protobuf", "status")
        assert server.stats()["request_inflated_bytes"] == 0


def test_slow_bodies():
    with Server(grace_ms=150, request_ms=3000) as server:
        with server.connect() as s:
            s.sendall(b"POST /v1/metrics HTTP/1.1\r\nHost: a\r\nContent-Type: application/x-protobuf\r\n"
                      b"Content-Length: 10\r\n\r\nx")
            code, head, body = parse(read_all(s))
        assert code == 408 and head["connection"] == "close"
        check_http((code, head, body), "SLOW", "application/x-protobuf", "status", "request body came too slowly")
        with H2(server) as h2:
            sid = h2.headers("POST", "/v1/metrics", [("content-type", "application/json")], end=False)
            head, body, _ = h2.wait_response(sid)
            check_http((int(head[":status"]), head, body), "SLOW", "application/json", "status",
                       "request body came too slowly")
            sid = h2.grpc("/test.Echo/Unary", b"\0", end=False)
            check_grpc(h2.wait_response(sid), "SLOW", "request body came too slowly")


def test_memory_used_up():
    with Server(budget=200_000) as server:
        with server.connect() as s:
            s.sendall(b"POST /size HTTP/1.1\r\nHost: a\r\nContent-Length: 190000\r\n\r\n" + b"x" * 180000)
            server.wait_stat("body_bytes", 180000)
            for version in (1, 2):
                answer = ask(server, version, "POST", "/v1/metrics", PB, bytes(40000))
                check_http(answer, "BUSY", "application/x-protobuf", "status")
            check_grpc(ask_grpc(server, "/test.Echo/Unary", message(bytes(40000))), "BUSY")


def test_client_deadline():
    with Server(late_ms=300) as server:
        head, body, end = ask_grpc(server, "/test.Echo/Late", headers=[("grpc-timeout", "50m")])
        assert (head["grpc-status"], body, end) == ("4", b"", {}) and head["grpc-message"] == "deadline passed"


def test_rates():
    """A tenant beyond its rate is told when to come back; the health service goes on."""
    with Server(tenant_requests=1) as server:
        for _ in range(2):
            assert ask(server, 1, "POST", "/v1/metrics", PB)[0] == 200
        for version in (1, 2):
            answer = ask(server, version, "POST", "/v1/metrics", PB)
            assert answer[0] == 429 and 1 <= int(answer[1]["retry-after"]) <= 2
        head, _, _ = ask_grpc(server, "/test.Echo/Unary")
        assert head["grpc-status"] == "14" and head["google.rpc.retryinfo-bin"] and head["grpc-status-details-bin"]
        assert ask_grpc(server, "/grpc.health.v1.Health/Check")[1] == message(b"\x08\x01")
        assert server.stats()["refused_rate"] == 3
    with Server(tenant_bytes=100_000) as server:
        assert ask(server, 1, "POST", "/size", {}, bytes(4_000_000))[0] == 200  # overdrawn, for 38 s
        answer = ask(server, 1, "POST", "/size", {}, b"x")
        assert answer[0] == 429 and 30 <= int(answer[1]["retry-after"]) <= 60
