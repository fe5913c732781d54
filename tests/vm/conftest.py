# SPDX-License-Identifier: Apache-2.0
"""The report of what was skipped is that of the end-to-end tests."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "e2e"))

from skips import pytest_sessionfinish, pytest_terminal_summary  # noqa: E402,F401
