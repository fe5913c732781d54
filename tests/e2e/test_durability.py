# SPDX-License-Identifier: Apache-2.0
"""What was acknowledged is there, and nothing is counted twice, whatever happens to the process, its file, its
disk and its clock. Refusals meanwhile are such that the sender comes again."""

import glob
import mmap
import os
import random
import re
import shutil
import signal
import sqlite3
import struct
import threading
import time
import urllib.error
import urllib.request

import grpc
import pytest

import collector_util as cu
import harness

SECOND = cu.SECOND
RETRYABLE = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED}
# A channel of its own for each try after a failure: the library's back-off would be all that is waited for.
CHANNEL = [("grpc.enable_retries", 0), ("grpc.use_local_subchannel_pool", 1)]
DELTA, CUMULATIVE = 1, 2


class Sender(threading.Thread):
    """Sends one request after another, each until it is acknowledged; what it sent is its ledger."""

    path, http_path = cu.GRPC_LOGS, "/v1/logs"

    def __init__(self, collector, name, http=False):
        super().__init__(name=name, daemon=True)
        self.collector, self.http = collector, http
        self.stop = threading.Event()
        self.random = random.Random(name)
        self.acknowledged = 0
        self.refused = self.hints = 0
        self.last = self.channel = None
        self.wrong = []

    def request(self):
        raise NotImplementedError

    def run(self):
        try:
            while not self.stop.is_set():
                data = self.request()
                while not (self.post(data) if self.http else self.call(data)):
                    time.sleep(0.03)
                self.acknowledged += 1
        except Exception as e:  # noqa: BLE001: shown by the test
            self.wrong.append(repr(e))
        finally:
            if self.channel is not None:
                self.channel.close()

    def call(self, data):
        try:
            if self.channel is None:
                self.channel = grpc.insecure_channel(f"127.0.0.1:{self.collector.port}", options=CHANNEL)
            self.channel.unary_unary(self.path)(data, timeout=10)
            return True
        except grpc.RpcError as e:
            trailers = dict(e.trailing_metadata() or ())
            self.last = f"{e.code()} {e.details()}"
            if e.code() not in RETRYABLE:
                self.wrong.append(f"{e.code()} {e.details()}")
            # An answer of the server, not the end of the connection, says when to come again, to every client.
            hints = [k in trailers for k in ("google.rpc.retryinfo-bin", "grpc-status-details-bin")]
            self.hints += all(hints)
            if any(hints) != all(hints):
                self.wrong.append(f"half a hint: {trailers}")
            self.refused += 1
            self.channel.close()
            self.channel = None
            return False

    def post(self, data):
        request = urllib.request.Request(f"http://127.0.0.1:{self.collector.port}{self.http_path}", data=data,
                                         headers={"Content-Type": "application/x-protobuf"})
        try:
            with urllib.request.urlopen(request, timeout=10):
                return True
        except urllib.error.HTTPError as e:
            with e:
                if e.code not in (429, 502, 503, 504):
                    self.wrong.append(f"HTTP {e.code}")
                elif int(e.headers["Retry-After"]) < 1:
                    self.wrong.append("Retry-After of nothing")
                self.hints += 1
        except OSError as e:
            self.last = repr(e)
        except Exception as e:  # http.client: the answer broke off
            if type(e).__module__ != "http.client":
                raise
        self.refused += 1
        return False


class Logs(Sender):
    def __init__(self, *args, **more):
        super().__init__(*args, **more)
        self.sent = []

    def request(self):
        m = cu.proto("collector.logs.v1.logs_service").ExportLogsServiceRequest()
        rl = m.resource_logs.add()
        cu.put_attrs(rl.resource.attributes, service__name=self.name)
        records = rl.scope_logs.add().log_records
        for k in range(self.random.randrange(1, 20)):
            body = f"{self.name} {len(self.sent) - (k % 5 == 4)} " + "x" * self.random.choice((0, 50, 3000))
            for _ in range(2 if k % 7 == 0 else 1):    # equal records are two records
                records.add(time_unix_nano=1_700_000_000 * SECOND + len(self.sent) // 2).body.string_value = body
                self.sent.append(body)
        return m.SerializeToString()

    def check(self, collector):
        with sqlite3.connect(f"file:{collector.db}?mode=ro", uri=True) as c:
            got = [b for b, in c.execute("SELECT body FROM logs WHERE service = ?", (self.name,))]
        missing, extra = list(self.sent), []
        for body in got:
            if body in missing:
                missing.remove(body)
            else:
                extra.append(body)
        assert not missing and not extra, (self.name, [b[:20] for b in missing], [b[:20] for b in extra])


class Windows(Sender):
    """The agents of a job; a node's window is sent until it is acknowledged."""
    path, http_path = cu.GRPC_METRICS, "/v1/metrics"

    def __init__(self, *args, **more):
        super().__init__(*args, **more)
        self.job = cu.Job(nodes=2, per_node=2, key=self.name, seed=len(self.name))
        self.job.nodes = [f"{self.name}-{n}" for n in self.job.nodes]
        self.job.ranks = {f"{self.name}-{n}": r for n, r in self.job.ranks.items()}
        self.job.instance = {n: n for n in self.job.nodes}
        self.waiting = []
        self.windows = 0

    def request(self):
        if not self.waiting:
            if self.windows >= 90:    # later ones would lie in the future
                time.sleep(0.02)
                return b""
            self.waiting = [q.bytes() for q in self.job.next_window().values()]
            self.windows += 1
        return self.waiting.pop()

    def run(self):
        super().run()
        self.stop.clear()
        rest, self.waiting = self.waiting, []
        for data in rest:
            while not self.post(data):
                time.sleep(0.03)

    def check(self, collector):
        calls = {k: v for k, v in cu.op_counts(collector.db).items() if k[0].startswith(self.name + "-")}
        assert calls == self.job.launches()
        with sqlite3.connect(f"file:{collector.db}?mode=ro", uri=True) as c:
            n, = c.execute("SELECT count(*) FROM rank_windows WHERE job = ?", (self.name,)).fetchone()
        assert n == 4 * self.windows, (n, self.windows)


class Series(Sender):
    """A gauge, an absolute counter and a delta counter of several clients."""
    path, http_path = cu.GRPC_METRICS, "/v1/metrics"
    CLIENTS = 5

    def __init__(self, *args, **more):
        super().__init__(*args, **more)
        self.n = 0
        self.total = [0] * self.CLIENTS
        self.delta = [0] * self.CLIENTS
        self.gauge = [None] * self.CLIENTS
        self.time_ns = time.time_ns()

    def request(self):
        m = cu.proto("collector.metrics.v1.metrics_service").ExportMetricsServiceRequest()
        start, self.time_ns = self.time_ns, max(time.time_ns(), self.time_ns + 1)
        self.n += 1
        rm = m.resource_metrics.add()
        cu.put_attrs(rm.resource.attributes, service__name=self.name)
        metrics = rm.scope_metrics.add().metrics
        total, delta, gauge = (metrics.add(name=f"d.{k}") for k in ("total", "delta", "gauge"))
        total.sum.is_monotonic = delta.sum.is_monotonic = True
        total.sum.aggregation_temporality, delta.sum.aggregation_temporality = CUMULATIVE, DELTA
        for i in range(self.CLIENTS):
            step = self.random.randrange(1, 100)
            self.total[i] += step
            self.delta[i] += step
            self.gauge[i] = self.random.random()
            for points, value in ((total.sum.data_points, self.total[i]), (delta.sum.data_points, step),
                                  (gauge.gauge.data_points, self.gauge[i])):
                p = points.add(time_unix_nano=self.time_ns, start_time_unix_nano=start)
                if points is total.sum.data_points:
                    p.start_time_unix_nano = 1
                cu.put_attrs(p.attributes, client=str(i))
                if isinstance(value, int):
                    p.as_int = value
                else:
                    p.as_double = value
        return m.SerializeToString()

    def check(self, collector):
        for i in range(self.CLIENTS):
            got = [collector.metric(name, job=self.name, client=str(i))
                   for name in ("d_total", "d_gauge", "d_delta_total")]
            assert got == [self.total[i], pytest.approx(self.gauge[i], rel=1e-15), self.delta[i]], (i, self.n, got)


class Load:
    """All kinds of senders over both protocols. As a context manager it works until its end; then checks."""

    def __init__(self, collector):
        self.collector = collector
        self.senders = [Logs(collector, "logs-grpc"), Logs(collector, "logs-http", http=True),
                        Windows(collector, "windows"), Series(collector, "series-grpc"),
                        Series(collector, "series-http", http=True)]

    def start(self):
        for s in self.senders:
            s.start()
        self.progress()
        return self

    def progress(self, by=3):
        """Until every sender was acknowledged so many times more."""
        self.wait("acknowledged", by)

    def wait(self, what, by):
        goal = {s: getattr(s, what) + by for s in self.senders}
        def missing():
            return [s.name for s, n in goal.items() if getattr(s, what) < n and not s.wrong]
        try:
            harness.wait_until(lambda: not missing(), 20, what)
        except harness.WaitTimeout:
            raise AssertionError(f"not {what}: {missing()}, last {[(s.name, s.last) for s in self.senders]}") from None

    def refusals(self, by=2):
        self.wait("refused", by)

    def finish(self):
        for s in self.senders:
            s.stop.set()
        for s in self.senders:
            s.join(40)
            assert not s.is_alive(), f"{s.name} was never acknowledged"
        assert [s.wrong for s in self.senders] == [[]] * len(self.senders)

    def check(self):
        for s in self.senders:
            s.check(self.collector)


@pytest.fixture
def collector(procs, tmp_path):
    return cu.Collector(procs, tmp_path).start()


# --- the process -----------------------------------------------------------------------------------

def test_kill_9_at_random_moments(collector):
    load = Load(collector).start()
    rng = random.Random(1)
    for _ in range(6):
        time.sleep(rng.random() * 0.3)    # the moment is the point
        collector.process.kill()
        collector.start()
        load.progress(1)
    load.finish()
    load.check()
    # And when nothing more comes after the kill.
    collector.process.kill()
    collector.start()
    load.check()


def test_end_in_order_under_load(collector):
    load = Load(collector).start()
    for _ in range(2):
        load.progress(2)
        assert collector.process.stop() == 0
        collector.start()
    load.progress(2)
    load.finish()
    load.check()


# --- the file --------------------------------------------------------------------------------------

def resend(collector, bodies):
    """One request per body, each until acknowledged."""
    m = cu.proto("collector.logs.v1.logs_service").ExportLogsServiceRequest()
    rl = m.resource_logs.add()
    cu.put_attrs(rl.resource.attributes, service__name="file")
    record = rl.scope_logs.add().log_records.add(time_unix_nano=1_700_000_000 * SECOND)
    for body in bodies:
        record.body.string_value = body
        data = m.SerializeToString()
        def attempt():
            status = collector.post("/v1/logs", data)[0]
            assert status in (200, 503), status
            return status == 200
        harness.wait_until(attempt, 20, "acknowledgement")


def kept(collector, service="file"):
    with sqlite3.connect(f"file:{collector.db}?mode=ro", uri=True) as c:
        return [b for b, in c.execute("SELECT body FROM logs WHERE service = ? ORDER BY id", (service,))]


def copy_files(source, target):
    for path in glob.glob(source + "*"):
        if not path.endswith((".lock", "-shm")):
            shutil.copy(path, target + path[len(source):])


def test_a_torn_log_loses_its_end_only(collector, tmp_path):
    """The write-ahead log cut anywhere, or ending in noise: what was committed before the tear is there, and
    what is sent again is there once."""
    bodies = [f"body {i} " + "x" * 200 for i in range(60)]
    resend(collector, bodies)
    collector.process.kill()
    saved = str(tmp_path / "saved")
    copy_files(collector.db, saved)
    wal = os.path.getsize(saved + "-wal")
    assert wal > 100000
    rng = random.Random(2)
    for case in range(8):
        for path in glob.glob(collector.db + "*"):
            os.unlink(path)
        copy_files(saved, collector.db)
        at = rng.randrange(33, wal)
        with open(collector.db + "-wal", "r+b") as f:
            if case % 2:
                f.truncate(at)
            else:
                f.seek(at)
                f.write(os.urandom(min(4096, wal - at)))
        collector.start()
        got = kept(collector)
        assert got == bodies[:len(got)], case    # from the first on, without a hole
        resend(collector, bodies[::-1] if case % 4 else bodies)
        assert sorted(kept(collector)) == sorted(bodies)
        collector.process.kill()


def test_flipped_bytes_in_the_file(collector, tmp_path):
    """Damage anywhere in the file: the collector starts, with a new file when the old one is beyond use, takes
    what comes, and never ends by itself. Sent again, nothing is there twice."""
    bodies = [f"body {i} " + "x" * 200 for i in range(100)]
    resend(collector, bodies)
    assert collector.process.stop() == 0
    saved = str(tmp_path / "saved")
    copy_files(collector.db, saved)
    size = os.path.getsize(saved)
    rng = random.Random(3)
    moved = 0
    for case in range(10):
        for path in glob.glob(collector.db + "*"):
            os.unlink(path)
        copy_files(saved, collector.db)
        with open(collector.db, "r+b") as f:
            for _ in range(1 + case):
                f.seek(rng.randrange(100, size))
                f.write(os.urandom(rng.choice((1, 64, 5000))))
        collector.start()
        new = [f"new {case} {i}" for i in range(5)]
        resend(collector, new)
        resend(collector, bodies)
        assert collector.process.running()
        moved += len(glob.glob(collector.db + ".corrupt-*"))
        assert collector.get("/api/v1/logs?service=file&limit=1000")["logs"] is not None
        collector.process.kill()
        for path in glob.glob(collector.db + ".corrupt-*"):
            os.unlink(path)
        collector.start()
        again = kept(collector)
        assert set(new) <= set(again) and len(again) == len(set(again)), case
        collector.process.kill()
    assert moved > 0


def test_the_file_is_deleted_under_load(collector):
    load = Load(collector).start()
    load.progress(3)
    for path in glob.glob(collector.db + "*"):
        if not path.endswith(".lock"):
            os.unlink(path)
    log = collector.process.log
    harness.wait_until(lambda: "deleted or replaced; opened anew" in log(), 10, "a new file")
    marks = [(s, len(s.sent)) for s in load.senders if isinstance(s, Logs)]
    load.progress(5)
    load.finish()
    collector.process.kill()
    collector.start()
    for s, mark in marks:
        got = kept(collector, s.name)
        # What was acknowledged after that; before it lies what somebody deleted.
        assert set(s.sent[mark:]) <= set(got)
        assert len(got) <= len(s.sent) and all(got.count(b) <= s.sent.count(b) for b in set(got))


# --- disk and clock, by a library that is loaded first ----------------------------------------------

class Shim:
    """The control file of durability_shim.c."""

    def __init__(self, folder, below):
        self.path = os.path.join(str(folder), "shim")
        with open(self.path, "wb") as f:
            f.write(bytes(4096))
        with open(self.path, "r+b") as f:
            self.memory = mmap.mmap(f.fileno(), 4096)
        self.env = {"LD_PRELOAD": os.path.join(harness.BIN_DIR, "libdurability_shim.so"),
                    "LTN_SHIM_FILE": self.path, "LTN_SHIM_FOLDER": str(below),
                    "ASAN_OPTIONS": "verify_asan_link_order=0:" + os.environ.get("ASAN_OPTIONS", "")}

    def clock(self, offset_ns):
        struct.pack_into("=q", self.memory, 0, offset_ns)

    def error(self, number):
        struct.pack_into("=q", self.memory, 8, number)

    def failed(self):
        return struct.unpack_from("=q", self.memory, 16)[0]


@pytest.fixture
def shimmed(procs, tmp_path):
    folder = tmp_path / "db"
    folder.mkdir()
    shim = Shim(tmp_path, folder)
    c = cu.Collector(procs, folder, env=shim.env).start()
    c.shim = shim
    return c


@pytest.mark.parametrize("error", ["ENOSPC", "EROFS", "EIO"])
def test_the_disk_refuses(shimmed, error):
    """Full, read-only, broken: a state. All senders are refused so that they come again; when the disk works
    again all goes on; also after kill -9 meanwhile."""
    import errno
    load = Load(shimmed).start()
    for kill in (False, True):
        load.progress(2)
        before = shimmed.shim.failed()
        shimmed.shim.error(getattr(errno, error))
        load.refusals()
        harness.wait_until(lambda: harness.http_get(shimmed.url("/readyz"))[0] == 503, 10, "not ready")
        assert harness.http_get(shimmed.url("/healthz"))[0] == 200
        assert shimmed.get("/api/v1/logs")["logs"], "what is kept can be read"
        assert shimmed.shim.failed() > before
        if kill:
            shimmed.process.kill()
        shimmed.shim.error(0)
        if kill:
            shimmed.start()
        load.progress(2)
        harness.wait_until(lambda: harness.http_get(shimmed.url("/readyz"))[0] == 200, 10, "ready again")
        if not kill:
            shimmed.process.wait_log(r"collector\.db can be written again", 5)
    load.finish()
    assert all(s.hints > 0 for s in load.senders)
    load.check()
    assert re.search(r"collector.db cannot be written \(.+\): clients are asked to come again", shimmed.procs.logs(10**6))
    shimmed.process.kill()
    shimmed.start()
    load.check()
    assert not glob.glob(shimmed.db + ".corrupt-*")


def test_a_disk_that_is_read_only_at_start(procs, tmp_path):
    """It says so and ends; a supervisor starts it again."""
    import errno
    folder = tmp_path / "db"
    folder.mkdir()
    shim = Shim(tmp_path, folder)
    shim.error(errno.EROFS)
    p = procs.start(harness.program("lanterne-collector"), "--otlp-listen", f"127.0.0.1:{harness.free_port()}",
                    "--api-listen", f"127.0.0.1:{harness.free_port()}", "--db", str(folder / "c.db"), env=shim.env)
    assert p.wait(10) == 3
    assert "cannot start" in p.log()


def test_the_wall_clock_is_set(shimmed):
    """Forward and back by hours and years, also across restarts: nothing expires, freezes or comes twice."""
    load = Load(shimmed).start()
    hour = 3600 * SECOND
    for offset in (hour, -2 * hour, 400 * 24 * hour, -400 * 24 * hour, 0):
        shimmed.shim.clock(offset)
        load.progress(3)
        if offset < 0:
            shimmed.process.kill()
            shimmed.start()
            load.progress(1)
    load.finish()
    load.check()
    assert harness.http_get(shimmed.url("/readyz"))[0] == 200
    got = re.search(r'received_at":"(\d+)', harness.http_get(shimmed.url("/api/v1/logs"))[2].decode())
    assert got
    shimmed.process.send(signal.SIGTERM)
    assert shimmed.process.wait() == 0


def test_a_small_file_system(procs, tmp_path):
    """Really full, not only said to be."""
    import subprocess
    harness.require_root()
    mount = tmp_path / "small"
    mount.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(mount)], capture_output=True,
                      check=False).returncode:
        pytest.skip("needs the right to mount")
    try:
        collector = cu.Collector(procs, mount).start()
        load = Load(collector).start()
        load.progress(2)
        filler = mount / "filler"
        with open(filler, "wb", buffering=0) as f:
            try:
                while f.write(b"x" * 16384):
                    pass
            except OSError:
                pass
        load.refusals()
        collector.process.kill()
        os.unlink(filler)
        collector.start()
        load.progress(2)
        load.finish()
        load.check()
        assert collector.process.stop() == 0
    finally:
        procs.kill_all()
        subprocess.run(["umount", "-l", str(mount)], check=False)
