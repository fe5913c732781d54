# SPDX-License-Identifier: Apache-2.0
"""A webhook receiver that answers as told, and Debian's Alertmanager on a free port."""

import hashlib
import hmac
import http.server
import json
import os
import socket
import struct
import threading
import urllib.request

import harness


class Webhook:
    """Takes POSTs and keeps them. script: answers of the first requests: a status, (status, headers), "hang", "close";
    then 200."""

    def __init__(self, script=()):
        self.script = list(script)
        self.requests = []      # (headers, body bytes, answer)
        self.lock = threading.Lock()
        self.release = threading.Event()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                with outer.lock:
                    answer = outer.script.pop(0) if outer.script else 200
                    headers = {k.lower(): v for k, v in self.headers.items()}
                    outer.requests.append((headers, body, answer))
                if answer == "hang":
                    outer.release.wait(60)
                if answer in ("hang", "close"):
                    # RST, so that nobody takes it for an answer without a body.
                    self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    self.close_connection = True
                    return
                status, extra = answer if isinstance(answer, tuple) else (answer, {})
                self.send_response(status)
                for k, v in extra.items():
                    self.send_header(k, v)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *args):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def url(self, path="/hook/secret-in-path"):
        return f"http://127.0.0.1:{self.port}{path}"

    def bodies(self):
        with self.lock:
            return [json.loads(body) for _, body, _ in self.requests]

    def taken(self):
        """Bodies of the requests that were answered with 2xx."""
        with self.lock:
            return [json.loads(body) for _, body, answer in self.requests if answer == 200]

    def close(self):
        self.release.set()
        self.server.shutdown()
        self.server.server_close()


def signature(secret, headers, body):
    """What the signature header of a request must be."""
    text = headers["x-lanterne-timestamp"].encode() + b"." + body
    return "sha256=" + hmac.new(secret, text, hashlib.sha256).hexdigest()


class Alertmanager:
    def __init__(self, procs, folder, receiver_url=None, port=None):
        harness.require_command("prometheus-alertmanager")
        self.port = port or harness.free_port()
        folder = os.path.join(str(folder), f"alertmanager-{self.port}")
        os.makedirs(folder, exist_ok=True)
        config = os.path.join(folder, "config.yml")
        hook = f"\n    webhook_configs: [{{url: '{receiver_url}', send_resolved: true}}]" if receiver_url else ""
        with open(config, "w", encoding="utf-8") as f:
            f.write("route: {receiver: r, group_wait: 1s, group_interval: 1s, repeat_interval: 1h,"
                    f" group_by: [alertname, job]}}\nreceivers:\n  - name: r{hook}\n")
        self.process = procs.start(
            "prometheus-alertmanager", f"--config.file={config}", f"--storage.path={folder}/data",
            f"--web.listen-address=127.0.0.1:{self.port}", "--cluster.listen-address=")
        self.process.wait_port(self.port, timeout_s=30)
        harness.wait_until(lambda: harness.http_get(f"{self.url()}/-/ready")[0] == 200, 30, "Alertmanager ready")

    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def alerts(self, **labels):
        """Active alerts with these labels."""
        with urllib.request.urlopen(f"{self.url()}/api/v2/alerts", timeout=5) as r:
            got = json.load(r)
        return [a for a in got if all(a["labels"].get(k) == v for k, v in labels.items())]
