# SPDX-License-Identifier: Apache-2.0
"""Other people's clients for Node.js: installed by their lock file, once, into the build folder."""

import fcntl
import functools
import os
import shutil
import subprocess

import pytest

import harness

FLAGS = ("--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries=1", "--fetch-timeout=20000")


def _is_same(a, b):
    if not os.path.exists(b):
        return False
    with open(a, "rb") as f, open(b, "rb") as g:
        return f.read() == g.read()


def _install(source, program, folder):
    """None, or why it cannot be had."""
    lock, stamp = os.path.join(source, "package-lock.json"), os.path.join(folder, "installed-lock.json")
    shutil.copy(program, folder)
    if _is_same(lock, stamp):
        return None
    for name in ("package.json", "package-lock.json"):
        shutil.copy(os.path.join(source, name), folder)
    try:
        got = subprocess.run(["npm", "ci", *FLAGS], cwd=folder, capture_output=True, text=True, timeout=240, check=False)
    except subprocess.TimeoutExpired:
        return "npm does not answer"
    if got.returncode != 0:
        return got.stderr.strip()[-300:]
    shutil.copy(lock, stamp)
    return None


@functools.lru_cache(maxsize=None)
def _folder(name, program):
    """(the folder with the program and its packages, None), or (None, why not)."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        return None, "needs node and npm"
    here = os.path.join(harness.SOURCE_DIR, "tests", "e2e")
    folder = os.path.join(harness.BUILD_DIR, name)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(harness.BUILD_DIR, name + ".lock"), "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # test files that run beside each other share it
        why = _install(os.path.join(here, name), os.path.join(here, program), folder)
    return (folder, None) if why is None else (None, f"tests/e2e/{name} cannot be installed: {why}")


def require_client(name, program):
    """The folder to run the program of tests/e2e in, with the packages of tests/e2e/NAME; skips the test where they cannot be had."""
    folder, why = _folder(name, program)
    if folder is None:
        pytest.skip(why)
    return folder
