#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/install-deps: its groups of packages, and who asks for which."""

import os
import subprocess
import unittest

SCRIPTS = os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "..", "scripts")
INSTALL_DEPS = os.path.join(SCRIPTS, "install-deps")


def run(*args):
    return subprocess.run([INSTALL_DEPS, *args], capture_output=True, text=True, check=False)


def packages(*args):
    got = run(*args, "--list")
    assert got.returncode == 0, got.stderr
    names = got.stdout.split()
    assert len(names) == len(set(names)), "named twice"
    return set(names)


class Groups(unittest.TestCase):
    def test_each_group_holds_the_one_before(self):
        build, quickstart, test = (packages("--for", w) for w in ("build", "quickstart", "test"))
        self.assertLess(build, quickstart)
        self.assertLess(quickstart, test)
        self.assertEqual(packages(), test)
        self.assertEqual(packages("--for=quickstart"), quickstart)

    def test_what_only_tests_need_is_in_no_other_group(self):
        for name in ("chromium", "prometheus", "prometheus-alertmanager", "qemu-system-x86", "python3-pytest", "python3-grpcio",
                     "shellcheck", "clang-tidy", "g++"):
            self.assertIn(name, packages())
            self.assertNotIn(name, packages("--for", "quickstart"))

    def test_check_names_only_what_its_group_has(self):
        for what in ("build", "quickstart", "test"):
            got = run("--check", "--for", what)
            missing = set(got.stdout.split())
            self.assertEqual(got.returncode, 1 if missing else 0, got.stderr)
            self.assertLessEqual(missing, packages("--for", what))

    def test_wrong_use(self):
        for args in (["--for"], ["--for", "fun"], ["--for="], ["build"], ["--lst"]):
            got = run(*args)
            self.assertEqual((got.returncode, got.stdout), (2, ""), args)
            self.assertIn("--for WHAT", got.stderr)

    def test_the_scripts_ask_for_their_group(self):
        for script, what in (("quickstart", "quickstart"), ("test", "test")):
            with open(os.path.join(SCRIPTS, script), encoding="utf-8") as f:
                self.assertIn(f"install-deps\" --for {what}\n" if script == "quickstart" else
                              f"install-deps --for {what} ", f.read())


if __name__ == "__main__":
    unittest.main()
