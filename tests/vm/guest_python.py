# SPDX-License-Identifier: Apache-2.0
"""Asked inside the guest only: Python frames on an old kernel, where Yama forbids ptrace to everybody."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "e2e"))

import test_python_frames as frames  # noqa: E402
from test_python_frames import found, watcher  # noqa: E402,F401 # pylint: disable=unused-import

PYTHON = "/usr/bin/python3"


def test_frames_need_no_ptrace(watcher, tmp_path):  # noqa: F811
    assert frames.no_ptrace()
    truth = frames.run(watcher, tmp_path, PYTHON, "kinds")
    frames.check(watcher, truth, 250)


def test_forked_children(watcher, tmp_path):  # noqa: F811
    truth = frames.run(watcher, tmp_path, PYTHON, "fork")
    frames.check(watcher, truth, 16)
