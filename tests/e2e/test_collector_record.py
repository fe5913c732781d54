# SPDX-License-Identifier: Apache-2.0
"""What was acknowledged is kept: kill -9, restart, a full disk, an orderly end."""

import os
import random
import re
import subprocess

import grpc
import pytest

import collector_util as cu
import harness


@pytest.fixture
def collector(procs, tmp_path):
    return cu.Collector(procs, tmp_path).start()


def push_until_acknowledged(collector, requests, kills, rng):
    """Sends like an agent: again until acknowledged. kills: indexes before which the collector dies."""
    for i, q in enumerate(requests):
        data = q.bytes()
        if i in kills:
            # Half of the time in the middle of a call.
            if rng.random() < 0.5:
                with collector.channel() as channel:
                    call = channel.unary_unary(cu.GRPC_METRICS).future(data, timeout=5)
                    collector.process.kill()
                    call.exception()
            else:
                collector.process.kill()
            collector.start()
        def attempt():
            try:
                with collector.channel() as channel:
                    cu.export(channel, data, timeout=5)
                return True
            except grpc.RpcError:
                return False
        harness.wait_until(attempt, 20, "acknowledgement")


def test_kill_9_loses_nothing_that_was_acknowledged(collector):
    job = cu.Job(seed=11)
    rng = random.Random(5)
    for i in range(20):
        if i == 4:
            r = job.rank(3)
            r.slow, r.part, r.preemptor = 1.5, "run_queue", "logrotate"
        requests = list(job.next_window().values())
        kills = {rng.randrange(len(requests))} if i in (3, 6, 9, 12) else set()
        push_until_acknowledged(collector, requests, kills, rng)
        # After every window the record is what the agents know: nothing lost, nothing twice.
        assert cu.op_counts(collector.db) == job.launches()
    got = collector.get("/api/v1/stragglers")["stragglers"]
    assert {s["rank"] for s in got} == {3}, cu.dumps(got)


def test_open_verdict_survives_a_restart_and_closes_later(collector):
    job = cu.Job(seed=12)

    def change(j, i):
        if i == 4:
            j.rank(3).slow = 1.5

    cu.push_grpc(collector, job, 12, change)
    before = collector.get("/api/v1/stragglers")["stragglers"]
    assert [s["state"] for s in before] == ["open"]
    harness.wait_until(lambda: _verdict_rows(collector.db), what="verdict in the database")
    collector.process.kill()
    collector.start()
    after = collector.get("/api/v1/stragglers")["stragglers"]
    assert [(s["rank"], s["state"], s["opened_at_ns"]) for s in after] == \
        [(3, "open", before[0]["opened_at_ns"])]
    job.rank(3).slow = 1.0
    cu.push_grpc(collector, job, 12)
    done = collector.get("/api/v1/stragglers")["stragglers"]
    assert [(s["rank"], s["state"], s["close_reason"]) for s in done] == [(3, "closed", "recovered")]


def _verdict_rows(db):
    import sqlite3
    with sqlite3.connect(f"file:{db}?mode=ro", uri=True) as c:
        return c.execute("SELECT count(*) FROM verdicts").fetchone()[0]


def test_a_damaged_database_is_moved_aside(collector, procs):
    cu.push_grpc(collector, cu.Job(seed=13), 1)
    assert collector.process.stop() == 0
    with open(collector.db, "r+b") as f:
        # The header says whose file it is: one without it is refused, not moved.
        f.seek(100)
        f.write(os.urandom(8192))
    collector.start()
    assert "moved to" in collector.process.log()
    assert any(".corrupt-" in n for n in os.listdir(os.path.dirname(collector.db)))
    cu.push_grpc(collector, cu.Job(seed=13), 1)


def test_orderly_end(collector):
    job = cu.Job(seed=14)
    cu.push_grpc(collector, job, 3)
    assert collector.process.stop() == 0
    assert re.search(r"shutting down", collector.process.log())
    assert cu.op_counts(collector.db) == job.launches()


def test_full_disk_is_a_state(procs, tmp_path):
    harness.require_root()
    mount = tmp_path / "small"
    mount.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(mount)],
                      capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount")
    try:
        collector = cu.Collector(procs, mount).start()
        job = cu.Job(seed=15)
        cu.push_grpc(collector, job, 2)
        filler = mount / "filler"
        with open(filler, "wb", buffering=0) as f:
            try:
                while f.write(b"x" * 65536):
                    pass
            except OSError:
                pass
        refused = None
        window = {}
        for _ in range(200):
            window = job.next_window()
            try:
                with collector.channel() as channel:
                    for q in window.values():
                        cu.export(channel, q.bytes())
            except grpc.RpcError as e:
                refused = e
                break
        assert refused is not None, "the disk never got full"
        assert refused.code() == grpc.StatusCode.UNAVAILABLE
        trailers = dict(refused.trailing_metadata())
        assert "google.rpc.retryinfo-bin" in trailers or "grpc-status-details-bin" in trailers
        status, _, body = harness.http_get(collector.url("/readyz"))
        assert status == 503 and b"database cannot be written" in body
        assert harness.http_get(collector.url("/healthz"))[0] == 200
        assert collector.metric("lanterne_collector_store_writable") == 0
        os.remove(filler)

        def delivered():
            try:
                with collector.channel() as channel:
                    for q in window.values():
                        cu.export(channel, q.bytes())
                return True
            except grpc.RpcError:
                return False
        harness.wait_until(delivered, 20, "recovery after the disk was freed")
        assert cu.op_counts(collector.db) == job.launches()
        assert harness.http_get(collector.url("/readyz"))[0] == 200
        assert collector.process.stop() == 0
    finally:
        procs.kill_all()
        subprocess.run(["umount", "-l", str(mount)], check=False)
