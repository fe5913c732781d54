# SPDX-License-Identifier: Apache-2.0
"""Clients of MCP: raw JSON-RPC over HTTP and stdio, and the official one (Node, installed with a lock)."""

import fcntl
import functools
import http.client
import json
import os
import shutil
import subprocess

import pytest

import harness

CLIENT_DIR = os.path.join(harness.SOURCE_DIR, "tests", "e2e", "mcp_client")
META = {"io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {}}


def message(method, params=None, request_id=1, modern=False):
    m = {"jsonrpc": "2.0", "method": method}
    if request_id is not None:
        m["id"] = request_id
    if params is not None or modern:
        m["params"] = dict(params or {})
    if modern:
        m["params"]["_meta"] = META
    return m


def post(port, body, headers=None, method="POST", path="/mcp"):
    """(status, headers, JSON or None) of one request."""
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    h = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    h.update(headers or {})
    c.request(method, path, data if method == "POST" else None, {k: v for k, v in h.items() if v})
    r = c.getresponse()
    text = r.read()
    got = {k.lower(): v for k, v in r.getheaders()}
    c.close()
    return r.status, got, json.loads(text) if text else None


def modern(port, method, params=None, **headers):
    """A request of the stateless era with the headers it must have."""
    params = params or {}
    h = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": method, "Mcp-Name": params.get("name")}
    h.update(headers)
    return post(port, message(method, params, modern=True), h)


def call(port, tool, args=None):
    """Structured content of a call that must succeed."""
    status, _, got = modern(port, "tools/call", {"name": tool, "arguments": args or {}})
    assert status == 200 and not got["result"]["isError"], got
    return got["result"]["structuredContent"]


def rows(table):
    """Rows of a compact table as dicts by short key."""
    return [dict(zip(table["columns"], r)) for r in table["rows"]]


@functools.lru_cache(maxsize=None)
def _client_folder():
    """The build folder with the official client in it; a text instead when it cannot be had."""
    with open(os.path.join(harness.BUILD_DIR, "mcp_client.lock"), "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # files that run beside each other share it
        return _install_client()


def _install_client():
    if shutil.which("node") is None or shutil.which("npm") is None:
        return None, "needs node and npm"
    folder = os.path.join(harness.BUILD_DIR, "mcp_client")
    os.makedirs(folder, exist_ok=True)
    lock = os.path.join(CLIENT_DIR, "package-lock.json")
    stamp = os.path.join(folder, "installed-lock.json")
    shutil.copy(os.path.join(harness.SOURCE_DIR, "tests", "e2e", "mcp_client.mjs"), folder)
    with open(lock, "rb") as f:
        wanted = f.read()
    if os.path.exists(stamp):
        with open(stamp, "rb") as f:
            if f.read() == wanted:
                return folder, None
    for name in ("package.json", "package-lock.json"):
        shutil.copy(os.path.join(CLIENT_DIR, name), folder)
    try:
        got = subprocess.run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund",
                              "--fetch-retries=1", "--fetch-timeout=20000"], cwd=folder,
                             capture_output=True, text=True, timeout=240, check=False)
    except subprocess.TimeoutExpired:
        return None, "the official MCP client cannot be installed: npm does not answer"
    if got.returncode != 0:
        return None, "the official MCP client cannot be installed: " + got.stderr.strip()[-300:]
    shutil.copy(lock, stamp)
    return folder, None


def official(transport, calls=(), prompts=()):
    """One session of the official client; skips the test, loudly, where it cannot be installed."""
    folder, reason = _client_folder()
    if folder is None:
        pytest.skip(reason)
    want = {"transport": transport, "calls": list(calls), "prompts": list(prompts)}
    got = subprocess.run(["node", "mcp_client.mjs"], cwd=folder, input=json.dumps(want),
                         capture_output=True, text=True, timeout=120, check=False)
    assert got.returncode == 0, got.stderr[-3000:]
    return json.loads(got.stdout)
