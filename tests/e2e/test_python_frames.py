# SPDX-License-Identifier: Apache-2.0
"""Python frames taken in the kernel, against what the program itself reports: every version there is."""

import json
import os
import subprocess

import pytest

import harness
import python_util as py

LOST_SERIAL = 2 ** 64 - 1  # a call from a thread that has no Python on it


@pytest.fixture(scope="session")
def found():
    harness.require_btf()
    return py.interpreters()


@pytest.fixture
def watcher(tmp_path, found):
    w = py.Watcher(tmp_path)
    yield w
    if w.process.poll() is None:
        w.process.kill()
        w.process.wait()


def no_ptrace():
    """Does Yama forbid ptrace to all, root too?"""
    try:
        with open("/proc/sys/kernel/yama/ptrace_scope", encoding="ascii") as f:
            return f.read().strip() == "3"
    except FileNotFoundError:
        return False


def paths_of(found, version):
    if version not in found:
        pytest.skip(f"there is no CPython {version[0]}.{version[1]} on this machine")
    return found[version]


def run(watcher, tmp_path, python, mode, count=1, env=None):
    """Runs the target; returns its truth. Its children are never told to the watcher."""
    out = str(tmp_path / f"truth-{mode}")
    target = subprocess.Popen([python, py.TARGET, py.library(), out, mode, str(count)],
                              env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **(env or {})})
    try:
        harness.wait_until(lambda: os.path.exists(out + ".up"), 20, "the target to run")
        assert watcher.add(target.pid), watcher.log()
        with open(out + ".go", "w", encoding="ascii"):
            pass
        assert target.wait(120) == 0
    finally:
        target.kill()
        target.wait()
    return py.read_truth(out)


def show(entries):
    return "\n".join(f"{serial & 0xffffffff}:\n  seen {got[:6]}\n  said {want[:6]}" for serial, got, want in entries[:3])


def check(watcher, truth, at_least, unknown_allowed=0):
    events = watcher.close()
    right, unknown, wrong = py.compare(events, truth)
    missing = set(truth) - {e["serial"] for e in events}
    assert not wrong, f"{len(wrong)} wrong of {len(truth)}\n{show(wrong)}"
    assert len(unknown) <= unknown_allowed, f"{len(unknown)} unknown of {len(truth)}\n{show(unknown)}"
    assert not missing, f"{len(missing)} calls without an event"
    assert len(right) + len(unknown) == len(truth) >= at_least
    return events


@pytest.mark.parametrize("version", py.VERSIONS)
def test_every_kind_of_frame(watcher, tmp_path, found, version):
    for python in paths_of(found, version)[:1]:
        truth = run(watcher, tmp_path, python, "kinds")
        events = check(watcher, truth, 250)
        assert any(len(frames) > py.FRAMES_KEPT for frames in truth.values())
        assert all((e["flags"] == 1) == (len(truth[e["serial"]]) > py.FRAMES_KEPT)
                   for e in events if e["serial"] in truth)
        lost = [e for e in events if e["serial"] == LOST_SERIAL]
        assert lost and all(e["known"] and e["frames"] == [] for e in lost)


def test_distribution_build(watcher, tmp_path, found):
    """Debian's interpreter: the whole of it in one stripped program."""
    truth = run(watcher, tmp_path, "/usr/bin/python3", "kinds")
    check(watcher, truth, 250)


@pytest.mark.parametrize("version", py.VERSIONS)
def test_many_threads(watcher, tmp_path, found, version):
    truth = run(watcher, tmp_path, paths_of(found, version)[0], "threads", 20)
    check(watcher, truth, 480)


@pytest.mark.parametrize("version", py.VERSIONS)
def test_tight_loop_is_never_wrong(watcher, tmp_path, found, version):
    """Code made for one call, and gone after it, is the hardest: its memory is used again at once."""
    truth = run(watcher, tmp_path, paths_of(found, version)[0], "tight", 300)
    check(watcher, truth, 1800)


@pytest.mark.parametrize("version", py.VERSIONS)
def test_code_in_the_place_of_other_code(watcher, tmp_path, found, version):
    """The same addresses all the time, with other names, files and lines behind them."""
    truth = run(watcher, tmp_path, paths_of(found, version)[0], "reused", 2000)
    check(watcher, truth, 2000)


@pytest.mark.parametrize("version", py.VERSIONS)
def test_forked_children_without_attach(watcher, tmp_path, found, version):
    truth = run(watcher, tmp_path, paths_of(found, version)[0], "fork")
    harness.wait_until(lambda: watcher.count() == 0, 10, "entries of ended processes to go")
    assert len({serial >> 32 for serial in truth}) == 5
    check(watcher, truth, 16)


@pytest.mark.parametrize("version", py.VERSIONS)
def test_interpreters(watcher, tmp_path, found, version):
    truth = run(watcher, tmp_path, paths_of(found, version)[0], "interpreters")
    check(watcher, truth, 10)


@pytest.mark.parametrize("version", py.VERSIONS)
def test_key_of_the_second_level(watcher, tmp_path, found, version):
    truth = run(watcher, tmp_path, paths_of(found, version)[0], "plain",
                env={"LD_PRELOAD": py.library(), "PYTHON_TICK_KEYS": "40"})
    check(watcher, truth, 2)


@pytest.mark.parametrize("version", py.VERSIONS)
def test_walk_from_outside(watcher, tmp_path, found, version):
    """Threads that stay in a call, among others that do not."""
    out = str(tmp_path / "truth")
    target = subprocess.Popen([paths_of(found, version)[0], py.TARGET, py.library(), out, "nap"])
    try:
        harness.wait_until(lambda: os.path.exists(out + ".up"), 20, "the target to run")
        assert watcher.add(target.pid), watcher.log()
        with open(out + ".go", "w", encoding="ascii"):
            pass
        harness.wait_until(lambda: os.path.exists(out + ".naps"), 20, "all to sleep")
        with open(out + ".naps", encoding="utf-8") as f:
            naps = json.load(f)
        assert len(naps) == 5
        for _ in range(3):
            for tid, frames in naps:
                expected = ("Operation not permitted", []) if no_ptrace() else ("success", frames)
                assert watcher.walk(target.pid, tid) == expected
        assert watcher.walk(target.pid, os.getpid())[0] != "success"
        assert target.wait(20) == 0
    finally:
        target.kill()
        target.wait()


def test_exec_drops_the_process(watcher, found):
    target = subprocess.Popen(["/usr/bin/python3", "-c", "import os, sys; print(1, flush=True); sys.stdin.read(1);"
                               "os.execv('/bin/cat', ['cat'])"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        target.stdout.readline()
        assert watcher.add(target.pid)
        assert watcher.count() == 1
        target.stdin.write(b"xy")
        target.stdin.flush()
        harness.wait_until(lambda: watcher.count() == 0, 10, "the entry to go")
        assert not watcher.add(target.pid)
        assert "not found" in watcher.log()
    finally:
        target.kill()
        target.wait()
    watcher.close()


def test_versions_that_are_not_known_are_refused(watcher, found):
    old = [paths[0] for version, paths in found.items() if (3, 7) <= version < (3, 9)]
    if not old:
        pytest.skip("no CPython 3.7 or 3.8 on this machine")
    for python in old:
        target = subprocess.Popen([python, "-c", "import sys; print(1, flush=True); sys.stdin.read()"],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            target.stdout.readline()
            assert not watcher.add(target.pid)
            assert f"refused {target.pid}: not supported" in watcher.log()
        finally:
            target.kill()
            target.wait()
    watcher.close()
