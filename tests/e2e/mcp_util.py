# SPDX-License-Identifier: Apache-2.0
"""Clients of MCP: raw JSON-RPC over HTTP and stdio, and the official one (Node, installed with a lock)."""

import http.client
import json
import subprocess

import node_util

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


def official(transport, calls=(), prompts=()):
    """One session of the official client; skips the test, loudly, where it cannot be installed."""
    folder = node_util.require_client("mcp_client", "mcp_client.mjs")
    want = {"transport": transport, "calls": list(calls), "prompts": list(prompts)}
    got = subprocess.run(["node", "mcp_client.mjs"], cwd=folder, input=json.dumps(want),
                         capture_output=True, text=True, timeout=120, check=False)
    assert got.returncode == 0, got.stderr[-3000:]
    return json.loads(got.stdout)
