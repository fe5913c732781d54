# SPDX-License-Identifier: Apache-2.0
"""Series of any client outlive the collector: what was acknowledged is there after kill -9, nothing is added twice.

Over HTTP: a process in which the gRPC module has threads cannot start others reliably."""

import gzip
import http.client
import os
import random
import sqlite3
import threading
import time

import collector_util as cu
import harness


class Client:
    """Pushes a gauge, a cumulative counter and a delta counter for some keys, as SDKs do: one request at a time, tried again
    with the same bytes until it is acknowledged."""

    def __init__(self, name, keys, compressed=False):
        self.name = name
        self.compressed = compressed
        self.keys = keys
        self.sequence = 0
        self.time_ns = time.time_ns() - 3_600 * cu.SECOND
        self.total = {k: 0 for k in range(keys)}    # sum of acknowledged deltas
        self.acked = {}                             # key: (gauge, counter)
        self.answers = 0
        self.headers = {"Content-Encoding": "gzip"} if compressed else {}
        self.body = None

    def next(self):
        self.sequence += 1
        start, self.time_ns = self.time_ns, self.time_ns + cu.SECOND
        m = cu.proto("collector.metrics.v1.metrics_service").ExportMetricsServiceRequest()
        rm = m.resource_metrics.add()
        cu.put_attrs(rm.resource.attributes, service__name=self.name, service__instance__id="1", zone="z")
        sm = rm.scope_metrics.add()
        sm.scope.name = "app"
        gauge = sm.metrics.add(name="level", unit="1").gauge
        counter = sm.metrics.add(name="seen", unit="{thing}").sum
        delta = sm.metrics.add(name="done", unit="{thing}").sum
        counter.is_monotonic = delta.is_monotonic = True
        counter.aggregation_temporality, delta.aggregation_temporality = 2, 1
        self.values = {}
        for k in range(self.keys):
            g, c, d = self.sequence * 1000 + k, self.sequence * 10 + k, random.randint(1, 9)
            self.values[k] = (g, c, d)
            for data, v in ((gauge, g), (counter, c), (delta, d)):
                p = data.data_points.add(start_time_unix_nano=start, time_unix_nano=self.time_ns, as_int=v)
                cu.put_attrs(p.attributes, key=f"k{k}", flavour="plain")
        self.body = m.SerializeToString()
        self.wire = gzip.compress(self.body, 1) if self.compressed else self.body

    def acknowledged(self):
        for k, (g, c, d) in self.values.items():
            self.total[k] += d
            self.acked[k] = (g, c)
        self.answers += 1
        self.body = None

    def run(self, collector, stop):
        while not stop.is_set():
            if self.body is None:
                self.next()
            try:
                status, _, response = collector.post("/v1/metrics", self.wire, self.headers)
            except (OSError, http.client.HTTPException):
                time.sleep(0.02)
                continue
            if status == 200:
                assert cu.partial(response) == (0, "")
                self.acknowledged()


def push(collector, body):
    """(rejected, message) of a request that is acknowledged."""
    status, _, response = collector.post("/v1/metrics", body)
    assert status == 200
    return cu.partial(response)


def exposed(collector):
    """{(metric, job, key): value} of the clients' series."""
    out = {}
    _, _, body = harness.http_get(collector.url("/metrics"))
    for line in body.decode().splitlines():
        name = line.split("{")[0]
        if name in ("level_ratio", "seen_total", "done_total"):
            labels = dict(part.split("=", 1) for part in line.split("{")[1].split("}")[0].split(","))
            out[name, labels["job"].strip('"'), int(labels["key"].strip('"k'))] = float(line.rsplit(" ", 1)[1])
    return out


def check(collector, clients):
    """Every acknowledged value is there; what was not acknowledged may be there too, but then once."""
    got = exposed(collector)
    for c in clients:
        for k, (g, n) in c.acked.items():
            pending = c.values[k] if c.body is not None else None
            ok = [(g, n, c.total[k])] + ([(pending[0], pending[1], c.total[k] + pending[2])] if pending else [])
            have = tuple(got.get((m, c.name, k)) for m in ("level_ratio", "seen_total", "done_total"))
            assert have in ok, (c.name, k, have, ok)


def load(collector, clients, end):
    """All push until each has had some answers, and a little longer, so that the end comes at any moment."""
    stop = threading.Event()
    enough = {c: c.answers + 3 for c in clients}
    threads = [threading.Thread(target=c.run, args=(collector, stop)) for c in clients]
    for t in threads:
        t.start()
    harness.wait_until(lambda: all(c.answers >= n for c, n in enough.items()), 60, "answers to all clients")
    time.sleep(random.random() * 0.3)
    end()
    stop.set()
    for t in threads:
        t.join()


def test_acknowledged_values_survive_kill_9(procs, tmp_path):
    clients = [Client(f"client-{i}", keys, compressed)
               for i, (keys, compressed) in enumerate([(400, False), (400, True), (40, False), (40, True)])]
    collector = cu.Collector(procs, tmp_path)
    for i in range(4):
        collector.start()
        if i > 0:
            check(collector, clients)
        load(collector, clients, collector.process.kill)
    collector.start()
    check(collector, clients)
    # The same requests again are acknowledged and change nothing.
    load(collector, clients, lambda: None)
    for c in clients:
        if c.body is None:
            c.next()
        push(collector, c.body)
    before = exposed(collector)
    for c in clients:
        for _ in range(3):
            push(collector, c.body)
        c.acknowledged()
    assert exposed(collector) == before
    check(collector, clients)


def test_a_damaged_record_costs_only_itself(procs, tmp_path):
    client = Client("one", 50)
    collector = cu.Collector(procs, tmp_path).start()
    for _ in range(20):
        client.next()
        push(collector, client.body)
        client.acknowledged()
    collector.process.stop()
    with sqlite3.connect(collector.db) as db:
        rows = db.execute("SELECT seq, body FROM series_log ORDER BY seq").fetchall()
        assert len(rows) == 20
        assert sum(len(b) for _, b in rows) < 20 * 150 * 40     # no more than some bytes a value
        seq, body = rows[10]
        flipped = bytearray(body)
        flipped[len(flipped) // 2] ^= 4
        db.execute("UPDATE series_log SET body = ? WHERE seq = ?", (bytes(flipped), seq))
        db.execute("UPDATE series_log SET body = ? WHERE seq = ?", (b"", rows[11][0]))
    db.close()
    collector.start()
    got = exposed(collector)
    for k, (g, n) in client.acked.items():
        assert got["level_ratio", "one", k] == g
        assert got["seen_total", "one", k] == n
        assert got["done_total", "one", k] == client.total[k]   # each record has the whole of a sum
    assert "damaged" in collector.process.log()


def test_points_that_cannot_be_taken_are_counted_exactly(procs, tmp_path):
    collector = cu.Collector(procs, tmp_path).start()
    q = cu.Request(time.time_ns(), cu.SECOND)
    q.resource(service__name="s")
    q.sum("good", "1", 1.5)
    q.sum("bad", "1", float("nan"))
    q.sum("mixed", "1", 7, a="1")
    q._point(q.scope.metrics[-1].sum.data_points, float("nan"), {"a": "2"})
    vague = q.scope.metrics.add(name="vague")
    for i in range(3):
        q._point(vague.sum.data_points, i, {"i": str(i)})
    ended = q.scope.metrics.add(name="ended")
    q._point(ended.gauge.data_points, 1, {})
    for _ in range(2):
        rejected, message = push(collector, q.bytes())
        assert rejected == 5 and message
    assert collector.metric("good_total") == 1.5
    assert collector.metric("ended") == 1
    ended.gauge.data_points[0].time_unix_nano += 1
    ended.gauge.data_points[0].flags = 1
    push(collector, q.bytes())
    assert collector.metric("ended") is None
    assert os.path.getsize(collector.db) > 0


def test_a_full_queue_is_refused_with_a_hint(procs, tmp_path):
    """While the database is held by somebody else nothing can be acknowledged: what is beyond limits.queue is refused."""
    collector = cu.Collector(procs, tmp_path, "--limits-queue", "1m").start()
    bodies = []
    for i in range(2):
        q = cu.Request(time.time_ns(), cu.SECOND)
        q.resource(service__name=f"s{i}")
        q.gauge("long", "", i, text="x" * 100)
        q.scope.metrics[-1].description = "y" * 700_000
        bodies.append(q.bytes())
    answers = []
    first = threading.Thread(target=lambda: answers.append(collector.post("/v1/metrics", bodies[0])))
    with sqlite3.connect(collector.db, isolation_level=None) as db:
        db.execute("BEGIN IMMEDIATE")
        first.start()
        harness.wait_until(lambda: collector.get("/api/v1/ingest")["ingest"]["points_received"] == 1)
        status, headers, _ = collector.post("/v1/metrics", bodies[1])
        assert status == 503 and int(headers["retry-after"]) >= 1
        ingest = collector.get("/api/v1/ingest")["ingest"]
        assert ingest["rejected_busy"] == 1 and ingest["points_received"] == 1     # not even decoded
        db.execute("ROLLBACK")
    db.close()
    first.join()
    assert answers[0][0] == 200
    assert push(collector, bodies[1]) == (0, "")
    assert collector.metric("long", job="s0") == 0 and collector.metric("long", job="s1") == 1
