# SPDX-License-Identifier: Apache-2.0
"""scripts/quickstart: wrong use, missing rights, and the whole play with each fault."""

import json
import os
import subprocess

import pytest

import harness

QUICKSTART = os.path.join(harness.SOURCE_DIR, "scripts", "quickstart")
CAUSE_WORDS = {"cpu": "cpu", "dataloader": "i/o|reader|load", "gpu": "clock|throttl"}


def run(*args, timeout_s=60, **kwargs):
    return subprocess.run([QUICKSTART, *args], capture_output=True, text=True, check=False,
                          timeout=timeout_s, stdin=subprocess.DEVNULL, **kwargs)


@pytest.mark.parametrize("args", [["--fault"], ["--fault", "fire"], ["--seconds", "0"],
                                  ["--seconds", "1; id"], ["--nonsense"], ["extra"]], ids=" ".join)
def test_wrong_use_is_2(args):
    got = run(*args)
    assert got.returncode == 2
    assert got.stdout == ""
    assert "usage: scripts/quickstart" in got.stderr


def test_help_is_0():
    got = run("--help")
    assert got.returncode == 0
    for option in ("--fault", "--seconds", "--keep", "--json"):
        assert option in got.stdout


def test_without_root_it_says_so_and_exits_3():
    if os.geteuid() == 0:
        got = run(user=65534, group=65534, extra_groups=[])
    else:
        got = run()
    assert got.returncode == 3
    assert got.stdout == ""
    assert "root is needed" in got.stderr


def left_behind():
    """What is still there of ours; zombies are the reaper's."""
    out = subprocess.run("ip netns; ip -o link; ls -d /dev/shm/* /tmp/*; cat /proc/[0-9]*/cgroup;"
                         "ps -eo stat=,args= | grep -v ^Z", shell=True, capture_output=True,
                         text=True, check=False).stdout
    return [w for w in ("ltn-n0", "ltn-br", "ltn-quickstart", "lanterne-quickstart.") if w in out]


@pytest.mark.parametrize("fault", ["none", "cpu", "dataloader", "gpu"])
def test_the_play(fault):
    harness.require_btf()
    harness.require_netns()
    if not os.access(os.path.join(harness.BIN_DIR, "lanterne-collector"), os.X_OK):
        pytest.skip("the programs are not part of this build")
    if os.path.basename(harness.BUILD_DIR) != "release":
        pytest.skip("quickstart uses the release build")
    if os.cpu_count() < 2:
        pytest.skip("needs two CPU cores")
    got = run("--fault", fault, "--seconds", "45" if fault == "none" else "90", "--json",
              timeout_s=240)
    assert got.returncode == 0, got.stdout + got.stderr
    result = json.loads(got.stdout.splitlines()[-1])
    if fault == "none":
        assert result == {"verdicts": [], "truth": {"fault": "none"}}
    else:
        truth = result["truth"]
        assert truth["fault"] == fault
        (verdict,) = result["verdicts"]
        assert (verdict["node"], verdict["rank"]) == (truth["node"], truth["rank"])
        assert verdict["effect_pct"] >= 8
        assert verdict["peers"] == 7
        assert 0 < verdict["seconds_to_detect"] <= 90
        assert any(w in json.dumps(verdict).lower() for w in CAUSE_WORDS[fault].split("|")), verdict
        if fault == "cpu":
            assert verdict["explained_share"] >= 0.8
            assert "logrotate" in json.dumps(verdict)
    assert left_behind() == []
