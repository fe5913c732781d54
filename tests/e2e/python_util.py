# SPDX-License-Identifier: Apache-2.0
"""The interpreters of this machine, and the program that watches a test function in them."""

import glob
import json
import os
import subprocess

import harness

VERSIONS = ((3, 9), (3, 10), (3, 11), (3, 12), (3, 13), (3, 14), (3, 15))
FRAMES_KEPT = 128
TARGET = os.path.join(os.path.dirname(os.path.abspath(__file__)), "python_target.py")


def library():
    path = os.path.join(harness.BIN_DIR, "libpython_tick.so")
    assert os.path.exists(path), f"{path} is not built"
    return path


def interpreters():
    """{(major, minor): [paths]} of every CPython that is found."""
    found, seen = {}, set()
    paths = ["/usr/bin/python3", *glob.glob("/usr/bin/python3.[0-9]*"), *glob.glob("/usr/local/bin/python3.[0-9]*"),
             *glob.glob(os.path.expanduser("~/.pyenv/versions/*/bin/python3")),
             *os.environ.get("LTN_TEST_PYTHONS", "").split(":")]
    for path in paths:
        real = os.path.realpath(path) if path else ""
        if not os.access(real, os.X_OK) or real in seen or path.endswith("-config"):
            continue
        seen.add(real)
        got = subprocess.run([path, "-c", "import sys; print(*sys.version_info[:2], sys.implementation.name)"],
                             capture_output=True, text=True, check=False, timeout=20)
        if got.returncode == 0 and got.stdout.split()[2:] == ["cpython"]:
            found.setdefault(tuple(int(n) for n in got.stdout.split()[:2]), []).append(path)
    return found


class Watcher:
    """python_frames, with its output in files."""

    def __init__(self, folder):
        self.out_path = os.path.join(str(folder), "events")
        self.err_path = os.path.join(str(folder), "log")
        with open(self.out_path, "wb") as out, open(self.err_path, "wb") as err:
            self.process = subprocess.Popen([harness.program("python_frames"), library()], stdin=subprocess.PIPE,
                                            stdout=out, stderr=err)
        self.wait_log("ready")

    def log(self):
        with open(self.err_path, encoding="utf-8") as f:
            return f.read()

    def wait_log(self, text):
        def look():
            assert self.process.poll() is None, self.log()
            return text in self.log()
        harness.wait_until(look, 20, f"python_frames: {text!r}")

    def say(self, line):
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def add(self, pid):
        before = len(self.log())
        self.say(f"add {pid}")
        harness.wait_until(lambda: self.log().endswith("\n") and len(self.log()) > before, 20, "an answer")
        return f"added {pid} " in self.log()[before:]

    def count(self):
        """Processes the kernel knows of."""
        before = self.log().count("count ")
        self.say("count")
        harness.wait_until(lambda: self.log().count("count ") > before, 10, "the count")
        return int(self.log().rsplit("count ", 1)[1].split()[0])

    def walk(self, pid, tid):
        """(answer, frames) of a walk from outside."""
        before = len(self.log())
        self.say(f"walk {pid} {tid}")
        harness.wait_until(lambda: self.log().endswith("\n") and len(self.log()) > before, 20, "an answer")
        line = self.log()[before:].splitlines()[0]
        assert line.startswith("walked "), line
        got = json.loads(line[len("walked "):])
        return got["answer"], got["frames"]

    def close(self):
        """Ends it; returns the events."""
        if self.process.poll() is None:
            self.say("quit")
            assert self.process.wait(60) == 0, self.log()
        with open(self.out_path, encoding="utf-8") as f:
            return [json.loads(line) for line in f]


def read_truth(path):
    """{serial: [[file, function, line], ...]}"""
    with open(path, encoding="utf-8") as f:
        return dict(json.loads(line) for line in f)


def compare(events, truth):
    """(right, with unknown frames, wrong): lists of (serial, what was seen, what the program said)."""
    right, unknown, wrong = [], [], []
    for event in events:
        want = truth.get(event["serial"])
        if want is None:
            continue
        got = event["frames"]
        kept = want[:FRAMES_KEPT]
        entry = (event["serial"], got, kept)
        fits = len(got) == len(kept) and all(
            g is None or not g[3] or g[:3] == w for g, w in zip(got, kept))
        if not fits:
            wrong.append(entry)
        elif any(g is None or not g[3] for g in got):
            unknown.append(entry)
        else:
            right.append(entry)
    return right, unknown, wrong
