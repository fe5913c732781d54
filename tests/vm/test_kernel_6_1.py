# SPDX-License-Identifier: Apache-2.0
"""Load, attach and fire on Debian 12's kernel: the end-to-end tests themselves, inside a virtual machine."""

import os
import shlex
import xml.etree.ElementTree as ElementTree

import pytest

import machine

# Files that are run in the guest, and what of them.
FILES = {
    "tests/vm/guest_kernel.py": "",
    "tests/vm/guest_python.py": "",
    "tests/e2e/test_capture_counts.py": "",
    "tests/e2e/test_capture_graph.py": "::test_every_way_to_record_and_to_launch",
    "tests/e2e/test_capture_nccl.py": "",
}
BEGIN, END = "VM: results", "VM: end of results"


def script():
    words = ["/usr/bin/python3", "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--color=no", "--tb=short",
             "-o", "junit_family=xunit1", "--junitxml=/tmp/results.xml",
             *[file + what for file, what in FILES.items()]]
    lines = ["export PATH=/usr/sbin:/usr/bin:/sbin:/bin", f"cd {shlex.quote(machine.SOURCE_DIR)}"]
    for name, value in (("LTN_BUILD_DIR", machine.BUILD_DIR), ("LTN_BIN_DIR", os.path.join(machine.BUILD_DIR, "bin"))):
        lines.append(f"export {name}={shlex.quote(value)}")
    lines += [shlex.join(words), f"echo '{BEGIN}'", "cat /tmp/results.xml", f"echo; echo '{END}'"]
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def guest():
    """{file: its test cases}, from one boot."""
    try:
        said = machine.boot(script())
    except machine.CannotRun as e:
        pytest.skip(str(e))
    print(said.split(BEGIN)[0])
    assert BEGIN in said and END in said, "the guest gave no results"
    cases = {}
    for case in ElementTree.fromstring(said.split(BEGIN)[1].split(END)[0].strip()).iter("testcase"):
        cases.setdefault(case.get("file"), []).append(case)
    return cases


@pytest.mark.parametrize("file", FILES)
def test_passes_on_debian_12s_kernel(guest, file):
    cases = guest.get(file, [])
    skipped = [c for c in cases if c.find("skipped") is not None]
    failed = [c.get("name") for c in cases if c.find("failure") is not None or c.find("error") is not None]
    for case in skipped:
        reason = case.find("skipped").get("message")
        assert "links need kernel" in reason, f"{case.get('name')}: {reason}"  # nothing else may be missing
        print(f"left out in the guest: {case.get('name')}: {reason}")
    print(f"{file}: {len(cases) - len(skipped) - len(failed)} passed, {len(skipped)} for newer kernels")
    assert not failed
    assert len(cases) > len(skipped)
