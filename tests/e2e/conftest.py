# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the end-to-end tests."""

import os

# Programs are started while channels are open: what gRPC does around a fork may stop the child before it begins.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

import pytest  # noqa: E402

import harness  # noqa: E402
from skips import pytest_sessionfinish, pytest_terminal_summary  # noqa: E402,F401


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


def pytest_report_header():
    return f"programs: {os.path.relpath(harness.BIN_DIR)}"
