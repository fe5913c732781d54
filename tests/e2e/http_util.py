# SPDX-License-Identifier: Apache-2.0
"""Starts the test server and speaks raw HTTP to it."""
import os
import signal
import socket
import subprocess
import time

import h2.config
import h2.connection
import h2.events
import h2.exceptions

BIN = os.environ.get("LTN_BIN", os.path.join(os.path.dirname(__file__), "../../build/dev/bin"))


# Sanitizers keep freed memory: the limits on memory then only catch gross growth.
RSS_SCALE = 8 if os.environ.get("LTN_SANITIZE") else 1


class Server:
    """http_echo with options; a context manager that checks the exit status."""

    def __init__(self, **options):
        args = [os.path.join(BIN, "http_echo")] + ["%s=%s" % kv for kv in options.items()]
        self.proc = subprocess.Popen(args, stdout=subprocess.PIPE, text=True)
        line = self.proc.stdout.readline().split()
        assert line and line[0] == "port", "server did not start"
        self.port = int(line[1])

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if self.proc.poll() is None:
            self.terminate()
        status = self.wait()
        if kind is None:
            assert status == 0, "server ended with %d" % status

    def stats(self):
        self.proc.send_signal(signal.SIGUSR1)
        result = {}
        for line in self.proc.stdout:
            if line.strip() == "end":
                break
            name, value = line.split()
            result[name] = int(value)
        return result

    def wait_stat(self, name, value, exact=False, seconds=10):
        end = time.monotonic() + seconds
        while True:
            now = self.stats()[name]
            if now == value if exact else now >= value:
                return
            assert time.monotonic() < end, "%s is %d, not %d" % (name, now, value)
            time.sleep(0.02)

    def peak_kib(self):
        with open("/proc/%d/status" % self.proc.pid) as f:
            for line in f:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) // RSS_SCALE
        raise AssertionError("no VmHWM")

    def terminate(self):
        self.proc.send_signal(signal.SIGTERM)

    def wait(self):
        try:
            self.proc.stdout.read()
            return self.proc.wait(timeout=15)
        except subprocess.TimeoutExpired:
            self.proc.kill()
            raise

    def connect(self, timeout=10):
        sock = socket.create_connection(("127.0.0.1", self.port), timeout=timeout)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock

    def raw(self, data, timeout=10, chunk=None, half_close=False):
        """Sends bytes, reads to the end of the connection."""
        with self.connect(timeout) as s:
            send_all(s, data)
            if half_close:
                s.shutdown(socket.SHUT_WR)
            return read_all(s)


def send_all(sock, data):
    try:
        sock.sendall(data)
    except (BrokenPipeError, ConnectionResetError):
        pass


def read_all(sock):
    out = b""
    while True:
        try:
            part = sock.recv(65536)
        except ConnectionResetError:
            return out
        if not part:
            return out
        out += part


class H2:
    """A plain HTTP/2 client connection on python3-h2, without any politeness."""

    def __init__(self, server, window=None):
        self.sock = server.connect()
        self.conn = h2.connection.H2Connection(h2.config.H2Configuration(
            client_side=True, header_encoding="utf-8", validate_outbound_headers=False, normalize_outbound_headers=False))
        self.conn.initiate_connection()
        if window is not None:
            self.conn.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: window})
        self.events = []
        self.ended = False
        self.goaway = None
        self.flush()

    def __enter__(self):
        return self

    def __exit__(self, *args):
        self.sock.close()

    def flush(self):
        send_all(self.sock, self.conn.data_to_send())

    def headers(self, method, path, extra=(), end=True, authority="test"):
        sid = self.conn.get_next_available_stream_id()
        self.conn.send_headers(sid, [(":method", method), (":scheme", "http"), (":path", path),
                                     (":authority", authority), *extra], end_stream=end)
        self.flush()
        return sid

    def grpc(self, path, data, extra=(), end=True, cut=16384):
        sid = self.headers("POST", path, [("content-type", "application/grpc"), ("te", "trailers"), *extra],
                           end=False)
        for i in range(0, len(data), cut):
            self.conn.send_data(sid, data[i:i + cut])
        if end:
            self.conn.end_stream(sid)
        self.flush()
        return sid

    def poll(self, timeout=10):
        """Reads once and remembers the events; False at the end of the connection."""
        self.sock.settimeout(timeout)
        try:
            data = self.sock.recv(65536)
        except (ConnectionResetError, BrokenPipeError):
            data = b""
        if not data:
            self.ended = True
            return False
        for event in self.conn.receive_data(data):
            self.events.append(event)
            if isinstance(event, h2.events.ConnectionTerminated):
                self.goaway = event.error_code
            if isinstance(event, h2.events.DataReceived):
                try:
                    self.conn.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                except (KeyError, h2.exceptions.H2Error):
                    pass
        self.flush()
        return True

    def wait_response(self, sid, timeout=10):
        """(headers, body, trailers or reset code) of a stream. What came of others is kept: replies may be interleaved."""
        others = []
        try:
            return self._wait_response(sid, timeout, others)
        finally:
            self.events[:0] = others

    def _wait_response(self, sid, timeout, others):
        head, body, trailers = {}, b"", {}
        while True:
            while self.events:
                e = self.events.pop(0)
                if getattr(e, "stream_id", None) != sid:
                    others.append(e)
                    continue
                if isinstance(e, h2.events.ResponseReceived):
                    head = dict(e.headers)
                elif isinstance(e, h2.events.DataReceived):
                    body += e.data
                elif isinstance(e, h2.events.TrailersReceived):
                    trailers = dict(e.headers)
                elif isinstance(e, h2.events.StreamReset):
                    return head, body, e.error_code
                elif isinstance(e, h2.events.StreamEnded):
                    return head, body, trailers
            assert self.poll(timeout), "connection ended before the response"

    def wait_end(self, timeout=10):
        """Reads until the peer closes; the GOAWAY code, or None."""
        while self.poll(timeout):
            pass
        return self.goaway
