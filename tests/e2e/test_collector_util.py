# SPDX-License-Identifier: Apache-2.0
"""The synthetic agents leave nothing behind."""

import os
import subprocess
import sys

import harness


def test_generated_modules_are_removed_at_the_end(tmp_path):
    script = "import collector_util as c; c.proto('collector.metrics.v1.metrics_service'); print(c._generated())"
    got = subprocess.run([sys.executable, "-B", "-c", script], capture_output=True, text=True, check=True,
                         cwd=os.path.join(harness.SOURCE_DIR, "tests", "e2e"), env={**os.environ, "TMPDIR": str(tmp_path)})
    assert got.stdout.startswith(str(tmp_path))
    assert os.listdir(tmp_path) == []
