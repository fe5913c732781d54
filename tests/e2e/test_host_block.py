# SPDX-License-Identifier: Apache-2.0
"""Block I/O: whose thread issued it, how many bytes, how long, how deep the queue was."""

import os

import pytest

import capture_util as cap
import host_util as host

BLOCK = 64 * 1024
READS = 128
THREADS = 8
# Reads past the page cache by several threads at once; then one that the cache answers.
SCRIPT = f"""
path = sys.argv[3]
def read_direct(first):
    buffer = mmap.mmap(-1, {BLOCK})
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    for i in range(first, {READS}, {THREADS}):
        assert os.preadv(fd, [buffer], i * {BLOCK}) == {BLOCK}
    os.close(fd)
threads = [threading.Thread(target=read_direct, args=(i,)) for i in range({THREADS})]
for t in threads:
    t.start()
for t in threads:
    t.join()
"""


def disk_of(path):
    """Name of the whole disk under a file; skips where there is none or reads cannot pass the cache."""
    dev = os.stat(path).st_dev
    link = f"/sys/dev/block/{os.major(dev)}:{os.minor(dev)}"
    if not os.path.exists(link):
        pytest.skip("needs a file system on a block device")
    real = os.path.realpath(link)
    if os.path.exists(os.path.join(real, "partition")):
        real = os.path.dirname(real)
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_DIRECT))
    except OSError:
        pytest.skip("needs a file system that knows O_DIRECT")
    return os.path.basename(real)


@pytest.fixture(name="big_file")
def _big_file(tmp_path):
    path = str(tmp_path / "big")
    with open(path, "wb") as f:
        f.write(os.urandom(BLOCK * READS))
        f.flush()
        os.fsync(f.fileno())
    return path


def reads_of(agent, disk, where):
    return agent.rows("SELECT sum(requests) n, sum(bytes) bytes, sum(errors) errors, max(max_ns) max_ns,"
                      " max(queue_depth) depth, max(max_queue_depth) most, max(avg_service_ns) service"
                      f" FROM disk_io WHERE disk = ? AND op = 'read' AND {where}", disk)[0]


def test_reads_belong_to_the_process_that_issued_them(procs, tmp_path, big_file):
    host.require()
    disk = disk_of(big_file)
    sim = cap.Sim(procs, tmp_path)
    agent = cap.Agent(procs, tmp_path)
    traced, plain = host.two_loads(sim, tmp_path, SCRIPT, words=(big_file,))
    before = host.sums_now(agent, traced.pid)["block_read_bytes"]
    traced.finish()
    agent.wait_window(2)
    others_before = reads_of(agent, disk, "pid IS NULL")["bytes"] or 0
    plain.finish()
    agent.stop()
    mine = reads_of(agent, disk, f"pid = {traced.pid}")
    assert mine["bytes"] == READS * BLOCK + before, "every byte, once"
    assert mine["n"] >= READS and mine["errors"] == 0
    assert 1000 < mine["service"] <= mine["max_ns"] < 10e9
    assert mine["most"] >= 2 and mine["depth"] > 1, "several threads read at once"
    assert host.total(agent, "block_read_bytes", "process_host", "pid = ?", traced.pid) == mine["bytes"]
    assert reads_of(agent, disk, f"pid = {plain.pid}")["n"] is None
    others = reads_of(agent, disk, "pid IS NULL")["bytes"]
    assert others - others_before >= READS * BLOCK, "what is nobody's is in the sums of the disk"


def test_what_the_disk_gets_in_parts_has_one_owner(procs, tmp_path, big_file):
    """One read of all of it, into small pages: more than one request can hold."""
    host.require()
    disk = disk_of(big_file)
    sim = cap.Sim(procs, tmp_path)
    agent = cap.Agent(procs, tmp_path)
    load = host.Load(sim, tmp_path, f"""
buffer = mmap.mmap(-1, {BLOCK * READS})
fd = os.open(sys.argv[3], os.O_RDONLY | os.O_DIRECT)
for _ in range(5):
    assert os.preadv(fd, [buffer], 0) == {BLOCK * READS}
os.close(fd)
""", words=(big_file,))
    before = host.sums_now(agent, load.pid)["block_read_bytes"]
    load.finish()
    agent.stop()
    mine = reads_of(agent, disk, f"pid = {load.pid}")
    assert mine["bytes"] == 5 * READS * BLOCK + before, "every byte, once"
    assert mine["n"] > 5, "the disk took it whole"


def test_what_the_cache_answers_is_no_block_io(procs, tmp_path, big_file):
    host.require()
    disk = disk_of(big_file)
    sim = cap.Sim(procs, tmp_path)
    agent = cap.Agent(procs, tmp_path)
    load = host.Load(sim, tmp_path, """
with open(sys.argv[3], "rb") as f:
    emit(bytes=len(f.read()))
""", words=(big_file,))
    before = host.sums_now(agent, load.pid)["block_read_bytes"]
    assert load.finish()["bytes"] == READS * BLOCK
    agent.stop()
    assert (reads_of(agent, disk, f"pid = {load.pid}")["bytes"] or 0) == before


def test_synchronous_writes(procs, tmp_path):
    host.require()
    (tmp_path / "new").write_bytes(b"")
    disk = disk_of(str(tmp_path / "new"))
    sim = cap.Sim(procs, tmp_path)
    agent = cap.Agent(procs, tmp_path)
    load = host.Load(sim, tmp_path, f"""
buffer = mmap.mmap(-1, {BLOCK})
fd = os.open(sys.argv[3], os.O_WRONLY | os.O_DIRECT | os.O_SYNC)
for i in range(32):
    assert os.pwrite(fd, buffer, i * {BLOCK}) == {BLOCK}
""", words=(tmp_path / "new",))
    load.finish()
    agent.stop()
    written = host.total(agent, "bytes", "disk_io", "pid = ? AND disk = ? AND op = 'write'", load.pid, disk)
    assert written >= 32 * BLOCK
    assert written == host.total(agent, "block_written_bytes", "process_host", "pid = ?", load.pid)


def test_switched_off(procs, tmp_path, big_file):
    host.require()
    sim = cap.Sim(procs, tmp_path)
    agent = cap.Agent(procs, tmp_path, "--no-io")
    load = host.Load(sim, tmp_path, SCRIPT, words=(big_file,))
    load.finish()
    agent.stop()
    assert agent.value("SELECT count(*) FROM disk_io") == 0
