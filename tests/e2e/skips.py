# SPDX-License-Identifier: Apache-2.0
"""Hooks that say what was skipped, and why, and do not let a run of skips pass for a pass."""

import pytest

SKIPPED_EXIT_CODE = 77  # what CTest takes for "skipped"


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
