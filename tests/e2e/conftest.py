# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the end-to-end tests, and the report of what was skipped."""

import os

import pytest

import harness

SKIPPED_EXIT_CODE = 77  # what CTest takes for "skipped"


@pytest.fixture
def procs(request, tmp_path):
    """Starts processes; ends them after the test, and shows their logs when it failed."""
    folder = tmp_path / "logs"
    folder.mkdir()
    processes = harness.Processes(str(folder))
    yield processes
    processes.kill_all()
    report = getattr(request.node, "call_report", None)
    if report is None or report.failed:
        print(processes.logs())


@pytest.fixture
def bin_dir():
    return harness.BIN_DIR


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    if call.when == "call":
        item.call_report = outcome.get_result()


def _reason(report):
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return text[len("Skipped: "):] if text.startswith("Skipped: ") else text


def pytest_terminal_summary(terminalreporter):
    for report in terminalreporter.stats.get("skipped", []):
        name = report.nodeid.split("::", 1)[-1]
        terminalreporter.write_line(f"SKIP: {name}: {_reason(report)}")


def pytest_sessionfinish(session, exitstatus):
    """A run in which everything was skipped is not a pass."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if exitstatus == pytest.ExitCode.OK and reporter is not None:
        ran = sum(len(reporter.stats.get(k, [])) for k in ("passed", "failed", "error", "xfailed"))
        if ran == 0 and reporter.stats.get("skipped"):
            session.exitstatus = SKIPPED_EXIT_CODE


def pytest_report_header():
    return f"programs: {os.path.relpath(harness.BIN_DIR)}"
