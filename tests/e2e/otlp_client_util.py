# SPDX-License-Identifier: Apache-2.0
"""The OpenTelemetry exporters for Node.js, installed once into the build folder, and what it takes to run them."""

import json
import os
import subprocess

import node_util


def start_node(wants):
    """Starts the exports; finish_node waits for them."""
    folder = node_util.require_client("otlp_clients", os.path.join("otlp_clients", "otlp_client.mjs"))
    process = subprocess.Popen(["node", "otlp_client.mjs"], cwd=folder, stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env={k: v for k, v in os.environ.items() if not k.startswith("OTEL_")})
    process.stdin.write(json.dumps(wants))
    process.stdin.close()
    process.stdin = None
    return process


def finish_node(process, timeout_s=90):
    try:
        out, err = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    assert process.returncode == 0, err[-3000:]
    return json.loads(out)


def node(wants, timeout_s=90):
    return finish_node(start_node(wants), timeout_s)
