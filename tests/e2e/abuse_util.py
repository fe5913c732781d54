# SPDX-License-Identifier: Apache-2.0
"""What hostile clients are made of: raw frames, bombs, and an honest client that must be served beside them."""
import contextlib
import functools
import gzip
import socket
import struct
import subprocess
import threading

import grpc

import collector_util as cu
from http_util import RSS_SCALE, read_all, send_all

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
NO_ERROR, PROTOCOL_ERROR, REFUSED_STREAM, ENHANCE_YOUR_CALM = 0, 1, 7, 11
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 2, 3, 4, 6, 7, 8, 9
END_STREAM, END_HEADERS = 1, 4


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


HELLO = PREFACE + frame(SETTINGS, 0, 0)


def literal(name, value, indexed=False):
    """An HPACK field without Huffman coding; lengths below 127."""
    return (b"\x40" if indexed else b"\x00") + bytes([len(name)]) + name + bytes([len(value)]) + value


def head(path=b"/v1/metrics", kind=b"application/x-protobuf", more=b""):
    """Header block of a POST."""
    return b"\x83\x86\x41\x01a" + b"\x44" + bytes([len(path)]) + path + literal(b"content-type", kind) + more


def frames(data):
    """(kind, flags, stream, payload) of each whole frame."""
    pos = 0
    while pos + 9 <= len(data):
        n = int.from_bytes(data[pos:pos + 3], "big")
        if pos + 9 + n > len(data):
            return
        yield data[pos + 3], data[pos + 4], int.from_bytes(data[pos + 5:pos + 9], "big"), data[pos + 9:pos + 9 + n]
        pos += 9 + n


def goaway_of(data):
    """(code, debug text) of the last GOAWAY; None without one."""
    found = None
    for kind, _, _, payload in frames(data):
        if kind == GOAWAY:
            found = int.from_bytes(payload[4:8], "big"), payload[8:]
    return found


def resets_of(data):
    """{stream: code} of the RST_STREAM frames."""
    return {stream: int.from_bytes(payload, "big") for kind, _, stream, payload in frames(data) if kind == RST_STREAM}


def grpc_message(data, flag=0):
    return bytes([flag]) + struct.pack(">I", len(data)) + data


def varint(n):
    out = b""
    while n >= 128:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def pb(field, data):
    return varint(field << 3 | 2) + varint(len(data)) + data


def zstd(data, *flags):
    return subprocess.run(["zstd", "-q", "-c", *flags], input=data, capture_output=True, check=True).stdout


@functools.lru_cache(maxsize=None)
def zeros(n, coding):
    return gzip.compress(bytes(n), 1) if coding == "gzip" else zstd(bytes(n), "-1")


class Target:
    """The collector's OTLP port, seen from an attacker's address."""

    def __init__(self, collector, source="127.0.0.2"):
        self.collector = collector
        self.port = collector.port
        self.source = source

    def connect(self, timeout=10):
        sock = socket.create_connection(("127.0.0.1", self.port), timeout=timeout, source_address=(self.source, 0))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock

    def raw(self, data, timeout=15):
        """Sends bytes, reads to the end of the connection."""
        with self.connect(timeout) as s:
            reader = Reader(s)
            send_all(s, data)
            return reader.end(timeout)

    def counter(self, kind):
        return self.collector.metric("lanterne_collector_http_total", server="otlp", kind=kind) or 0

    def post(self, path, body, headers=None, version="--http1.1"):
        """(status, headers, body) by curl, which speaks both versions."""
        args = ["curl", "-sS", "-i", "-m", "20", version, "--interface", self.source, "-X", "POST", "--data-binary", "@-",
                "-H", "Expect:"]
        for name, value in {"Content-Type": "application/x-protobuf", **(headers or {})}.items():
            args += ["-H", f"{name}: {value}"]
        out = subprocess.run([*args, f"http://127.0.0.1:{self.port}{path}"], input=body, capture_output=True, check=True).stdout
        top, _, rest = out.partition(b"\r\n\r\n")
        lines = top.decode().split("\r\n")
        return int(lines[0].split()[1]), dict(x.split(": ", 1) for x in lines[1:]), rest

    def grpc(self, body, path=cu.GRPC_METRICS, metadata=None):
        """The status code's name of a call with raw bytes."""
        with grpc.insecure_channel(f"127.0.0.1:{self.port}", options=[
                ("grpc.max_send_message_length", -1), ("grpc.enable_retries", 0)]) as channel:
            try:
                cu.export(channel, body, path, metadata=metadata, timeout=20)
                return "OK"
            except grpc.RpcError as e:
                return e.code().name


class Reader:
    """Reads a socket in the background, so that a flood is not stopped by its own answers."""

    def __init__(self, sock):
        self.data = b""
        self.thread = threading.Thread(target=self._run, args=(sock,), daemon=True)
        self.thread.start()

    def _run(self, sock):
        with contextlib.suppress(OSError):
            self.data = read_all(sock)

    def end(self, timeout=15):
        self.thread.join(timeout)
        assert not self.thread.is_alive(), "the connection was not ended"
        return self.data


class Honest:
    """An agent that goes on pushing, over gRPC and over HTTP, while others misbehave."""

    def __init__(self, collector, headers=None):
        self.collector = collector
        self.headers = headers or {}
        self.metadata = [(k.lower(), v) for k, v in self.headers.items()]
        self.job = cu.Job(nodes=1, per_node=1)
        self.pushed = 0
        self.errors = []
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        with self.collector.channel() as channel:
            while not self.stop.wait(0.01):
                body = self.job.next_window()["node-0"].bytes()
                try:
                    cu.export(channel, body, metadata=self.metadata, timeout=20)
                    status = self.collector.post("/v1/metrics", body, self.headers)[0]
                    assert status == 200, status
                    self.pushed += 1
                except (grpc.RpcError, AssertionError, OSError) as e:
                    self.errors.append(str(e))

    def served(self, more=2):
        """Waits until it was served some more times; fails on any error so far."""
        want = self.pushed + more
        cu.harness.wait_until(lambda: self.pushed >= want or self.errors, 30, "an honest client being served")
        assert not self.errors, self.errors[:3]

    def end(self):
        self.stop.set()
        self.thread.join(30)


class Memory:
    """Resident memory of a process, and the peak since reset()."""

    def __init__(self, pid):
        self.pid = pid

    def _kib(self, name):
        with open(f"/proc/{self.pid}/status", encoding="ascii") as f:
            return next(int(line.split()[1]) for line in f if line.startswith(name))

    def reset(self):
        with open(f"/proc/{self.pid}/clear_refs", "w", encoding="ascii") as f:
            f.write("5")
        return self.now()

    def now(self):
        return self._kib("VmRSS:")

    def peak(self):
        return self._kib("VmHWM:")

    @staticmethod
    def mib(n):
        return n * 1024 * RSS_SCALE
