# SPDX-License-Identifier: Apache-2.0
"""Files that traced processes open: counted; by path those that fail or take long."""

import os

import pytest

import capture_util as cap
import harness
import host_util as host

FINE, MISSING, REFUSED, SLOW = 300, 150, 20, 3
SCRIPT = f"""
folder = sys.argv[3]
def try_open(path):
    try:
        os.close(os.open(path, os.O_RDONLY))
    except OSError:
        pass
def write_late(path):
    time.sleep(0.05)
    os.close(os.open(path, os.O_WRONLY))
for i in range({FINE}):
    try_open(folder + "/there")
for i in range({MISSING}):
    try_open(folder + "/missing")
for i in range({REFUSED}):
    try_open(folder + "/there/below")
for i in range({SLOW}):
    writer = os.fork()
    if writer == 0:
        write_late(folder + "/pipe")
        os._exit(0)
    try_open(folder + "/pipe")
    os.waitpid(writer, 0)
"""


@pytest.fixture(name="folder")
def _folder(tmp_path):
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "there").write_text("x")
    os.mkfifo(folder / "pipe")
    return folder


def test_failed_and_slow_opens_are_told_by_path(procs, tmp_path, folder):
    host.require()
    sim = cap.Sim(procs, tmp_path)
    # An open of a pipe waits for its writer: 50 ms, the limit is 20.
    agent = cap.Agent(procs, tmp_path, host.FILES, "--open-slow", "20ms")
    traced, plain = host.two_loads(sim, tmp_path, SCRIPT, words=(folder,))
    before = host.sums_now(agent, traced.pid)["opens"]
    plain.finish()
    traced.finish()
    agent.stop()
    rows = {os.path.basename(r["path"]): r for r in agent.rows(
        "SELECT path, sum(failed) failed, sum(missing) missing, sum(slow) slow, max(max_ns) max_ns, "
        "max(last_errno) e FROM file_opens WHERE pid = ? AND path LIKE ? GROUP BY path",
        traced.pid, f"{folder}/%")}
    assert set(rows) == {"missing", "below", "pipe"}, "an open that is fine and fast has no row"
    assert [tuple(rows["missing"][k] for k in ("failed", "missing", "slow", "e"))] == [(MISSING, MISSING, 0, 2)]
    assert [tuple(rows["below"][k] for k in ("failed", "missing", "slow", "e"))] == [(REFUSED, 0, 0, 20)]
    assert rows["pipe"]["failed"] == 0 and rows["pipe"]["slow"] == SLOW
    assert 45e6 < rows["pipe"]["max_ns"] < 1e9
    sums = agent.rows("SELECT sum(opens) opens, sum(opens_failed) failed, sum(opens_missing) missing,"
                      " sum(opens_slow) slow, sum(opens_untold) untold FROM process_host WHERE pid = ?",
                      traced.pid)[0]
    assert tuple(sums) == (before + FINE + MISSING + REFUSED + SLOW, MISSING + REFUSED, MISSING, SLOW, 0)
    # The writers are children: theirs are seen too, but under their own names.
    assert host.total(agent, "opens", "process_host", "parent_pid = ?", traced.pid) == SLOW
    assert host.total(agent, "opens", "process_host", "pid = ?", plain.pid) == 0
    assert host.total(agent, "failed", "file_opens", "pid = ?", plain.pid) == 0
    assert agent.health()["drops"]["map_host"] == 0


def test_more_paths_than_there_is_room_for_are_counted(procs, tmp_path):
    host.require()
    sim = cap.Sim(procs, tmp_path)
    paths = 20000
    agent = cap.Agent(procs, tmp_path, host.FILES, window="600s")
    load = host.Load(sim, tmp_path, f"""
for i in range({paths}):
    try:
        os.open("/nonexistent/%d" % i, os.O_RDONLY)
    except OSError:
        pass
""")
    before = host.sums_now(agent, load.pid)["opens"]
    load.finish()
    agent.stop()
    told = host.total(agent, "failed", "file_opens", "pid = ?", load.pid)
    row = agent.rows("SELECT opens, opens_failed, opens_untold FROM process_host WHERE pid = ?", load.pid)[0]
    assert row["opens"] - before == row["opens_failed"] == paths
    assert 1000 < told < paths and told + row["opens_untold"] == paths


def test_children_that_were_there_before_the_agent(procs, tmp_path, folder):
    host.require()
    sim = cap.Sim(procs, tmp_path)
    # The child is made before the agent is there, and by a thread; the parent makes its first call later.
    script = """
def child():
    while not os.path.exists(sys.argv[2] + "2"):
        time.sleep(0.01)
    for i in range(40):
        try:
            os.open(sys.argv[3] + "/missing", os.O_RDONLY)
        except OSError:
            pass
    os._exit(0)
def make():
    pid = os.fork()
    if pid == 0:
        child()
    emit(child=pid)
t = threading.Thread(target=make)
t.start()
t.join()
while not os.path.exists(sys.argv[2] + "1"):
    time.sleep(0.01)
call()
emit(called=1)
os.wait()
"""
    parent = host.Load(sim, tmp_path, script, traced=False, words=(folder,))
    parent.go()
    parent.process.wait_log("child")
    agent = cap.Agent(procs, tmp_path, host.FILES)
    (tmp_path / "load.go1").write_text("")
    parent.process.wait_log("called")
    harness.wait_until(lambda: len(agent.map_dump("host_processes")) == 2, 10, "the child to be watched")
    (tmp_path / "load.go2").write_text("")
    truth = parent.finish()
    agent.stop()
    assert host.total(agent, "missing", "file_opens", "pid = ? AND path LIKE '%/missing'", truth["child"]) == 40


def test_switched_off(procs, tmp_path, folder):
    host.require()
    sim = cap.Sim(procs, tmp_path)
    agent = cap.Agent(procs, tmp_path, host.FILES, "--no-files")
    load = host.Load(sim, tmp_path, SCRIPT, words=(folder,))
    load.finish()
    agent.stop()
    assert agent.value("SELECT count(*) FROM file_opens") == 0
    assert host.total(agent, "opens", "process_host", "1") == 0
