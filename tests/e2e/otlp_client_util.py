# SPDX-License-Identifier: Apache-2.0
"""The OpenTelemetry exporters for Node.js, installed once into the build folder, and what it takes to run them."""

import functools
import json
import os
import shutil
import subprocess

import pytest

import harness

SOURCE = os.path.join(harness.SOURCE_DIR, "tests", "e2e", "otlp_clients")


@functools.lru_cache(maxsize=None)
def _folder():
    """(folder, None), or (None, why it cannot be had)."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        return None, "needs node and npm"
    folder = os.path.join(harness.BUILD_DIR, "otlp_clients")
    os.makedirs(folder, exist_ok=True)
    lock = os.path.join(SOURCE, "package-lock.json")
    stamp = os.path.join(folder, "installed-lock.json")
    for name in ("package.json", "package-lock.json", "otlp_client.mjs"):
        shutil.copy(os.path.join(SOURCE, name), folder)
    with open(lock, "rb") as f:
        wanted = f.read()
    if os.path.exists(stamp):
        with open(stamp, "rb") as f:
            if f.read() == wanted:
                return folder, None
    try:
        got = subprocess.run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries=1",
                              "--fetch-timeout=20000"], cwd=folder, capture_output=True, text=True, timeout=240,
                             check=False)
    except subprocess.TimeoutExpired:
        return None, "the OpenTelemetry exporters for Node.js cannot be installed: npm does not answer"
    if got.returncode != 0:
        return None, "the OpenTelemetry exporters for Node.js cannot be installed: " + got.stderr.strip()[-300:]
    shutil.copy(lock, stamp)
    return folder, None


def start_node(wants):
    """Starts the exports; finish_node waits for them."""
    folder, reason = _folder()
    if folder is None:
        pytest.skip(reason)
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
