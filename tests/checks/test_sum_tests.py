#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/sum-tests on result files as CTest 3.25 writes them."""

import os
import subprocess
import sys
import tempfile
import unittest

SUM_TESTS = os.path.join(os.path.dirname(__file__), "..", "..", "scripts", "sum-tests")


def case(name, status, inner="", output=""):
    return (f'<testcase name="{name}" classname="{name}" time="0.5" status="{status}">{inner}'
            f"<system-out>{output}</system-out></testcase>")


def suite(*cases):
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<testsuite name="x">{"".join(cases)}</testsuite>'


class SumTests(unittest.TestCase):
    def sum(self, files):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in files.items():
                with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
                    f.write(text)
            got = subprocess.run([sys.executable, SUM_TESTS, folder], capture_output=True, text=True,
                                 check=False)
            self.assertEqual(got.stderr, "")
            return got.returncode, got.stdout

    def expect(self, files, code, last, *words):
        got_code, out = self.sum(files)
        self.assertEqual(out.splitlines()[-1], last, out)
        self.assertEqual(got_code, code, out)
        for word in words:
            self.assertIn(word, out)

    def test_all_passed(self):
        self.expect({"dev.xml": suite(case("a", "run"), case("b", "run")),
                     "steps.tsv": "dev: build\tpass\t\n"}, 0, "3 passed, 0 failed, 0 skipped")

    def test_builds_add_up(self):
        one = suite(case("a", "run"))
        self.expect({"dev.xml": one, "asan.xml": one}, 0, "2 passed, 0 failed, 0 skipped")

    def test_failure_is_named(self):
        self.expect({"dev.xml": suite(case("a", "run"), case("b", "fail", '<failure message=""/>'))},
                    1, "1 passed, 1 failed, 0 skipped", "dev: b")

    def test_passed_again_is_a_pass_that_is_named(self):
        first = suite(case("a", "run"), case("b", "fail"), case("c", "fail"))
        self.expect({"dev.xml": first, "dev.again.xml": suite(case("b", "run"), case("c", "run"))}, 0,
                    "3 passed, 0 failed, 0 skipped", "PASSED ONLY WHEN RUN AGAIN, ALONE", "dev: b: failed after 0.5 s")
        self.expect({"dev.xml": first, "dev.again.xml": suite(case("b", "run"), case("c", "fail"))}, 1,
                    "2 passed, 1 failed, 0 skipped", "dev: c")
        # Of another build, or torn: nothing passed.
        self.expect({"dev.xml": first, "asan.again.xml": suite(case("b", "run"))}, 1, "1 passed, 2 failed, 0 skipped")
        self.expect({"dev.xml": first, "dev.again.xml": "<testsuite"}, 1, "1 passed, 2 failed, 0 skipped")

    def test_which_are_to_be_run_again(self):
        skip = '<skipped message="SKIP_RETURN_CODE=77"/>'
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "dev.xml"), "w", encoding="utf-8") as f:
                f.write(suite(case("a", "run"), case("b", "fail"), case("c", "notrun", skip), case("d", "fail")))

            def failed():
                return subprocess.run([sys.executable, SUM_TESTS, "--failed", folder, "dev"], capture_output=True,
                                      text=True, check=True).stdout.split()
            self.assertEqual(failed(), ["b", "d"])
            with open(os.path.join(folder, "dev.again.xml"), "w", encoding="utf-8") as f:
                f.write(suite(case("b", "run"), case("d", "fail")))
            self.assertEqual(failed(), ["d"])

    def test_skip_has_its_reason(self):
        skip = '<skipped message="SKIP_RETURN_CODE=77"/>'
        self.expect({"dev.xml": suite(case("a", "run"),
                                      case("b", "notrun", skip, "x\nSKIP: no root here\n"),
                                      case("c", "notrun", skip), case("d", "disabled"))},
                    0, "1 passed, 0 failed, 3 skipped", "dev: b: no root here",
                    "dev: c: no reason given", "dev: d: disabled")

    def test_only_skipped_is_a_failure(self):
        skip = '<skipped message="SKIP_RETURN_CODE=77"/>'
        self.expect({"dev.xml": suite(case("b", "notrun", skip))}, 1, "0 passed, 0 failed, 1 skipped")

    def test_not_started_is_a_failure(self):
        self.expect({"dev.xml": suite(
            case("a", "run"),
            case("b", "notrun", '<skipped message="Unable to find executable"/>'),
            case("c", "notrun", '<skipped message="Fixture dependency failed"/>'))},
            1, "1 passed, 2 failed, 0 skipped", "Unable to find executable")

    def test_skipped_parts_of_a_passed_test(self):
        cmocka = "[  SKIPPED ] part_two\n[  SKIPPED ] 1 test(s), listed below:\n[  SKIPPED ] part_two\n"
        self.expect({"dev.xml": suite(case("a", "run", "", cmocka),
                                      case("e", "run", "", "SKIP: test_net: no namespaces\n"),
                                      case("f", "run", "", "SKIPPED: mount: not root\n"))},
                    0, "3 passed, 0 failed, 3 skipped", "dev: a/part_two", "dev: f/mount: not root",
                    "dev: e/test_net: no namespaces")

    def test_failed_step(self):
        self.expect({"dev.xml": suite(case("a", "run")), "steps.tsv": "asan: build\tfail\tsee x\n"},
                    1, "1 passed, 1 failed, 0 skipped", "asan: build: see x")

    def test_nothing_ran(self):
        self.expect({"dev.xml": suite()}, 1, "0 passed, 0 failed, 0 skipped", "no test ran")
        self.expect({}, 1, "0 passed, 0 failed, 0 skipped", "no test ran")

    def test_torn_result_file(self):
        self.expect({"dev.xml": "<testsuite><testcase"}, 1, "0 passed, 1 failed, 0 skipped")


if __name__ == "__main__":
    unittest.main()
