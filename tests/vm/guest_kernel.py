# SPDX-License-Identifier: Apache-2.0
"""Asked inside the guest only: is it the kernel it should be, and does `check` tell what it can do?"""

import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "e2e"))

import harness  # noqa: E402


def test_the_kernel_is_an_old_one_and_ptrace_is_off():
    assert os.uname().release.startswith("6.1.")
    with open("/proc/sys/kernel/yama/ptrace_scope", encoding="ascii") as f:
        assert f.read().strip() == "3"


def test_check_says_what_this_kernel_lacks_and_fires_a_probe():
    done = subprocess.run([harness.program("lanterne"), "check", "--json"], capture_output=True, text=True, check=False)
    found = {f["name"]: f for f in json.loads(done.stdout)["findings"]}
    assert found["uprobe"]["level"] == "ok", found["uprobe"]
    assert found["uprobe_multi"]["level"] == "warn"
    assert "perf" in found["programs"]["value"], found["programs"]
