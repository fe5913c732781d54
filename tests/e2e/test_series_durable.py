# SPDX-License-Identifier: Apache-2.0
"""Series of any client outlive the collector: what was acknowledged is there after kill -9, nothing is added twice."""

import os
import random
import sqlite3
import threading
import time

import grpc

import collector_util as cu
import harness


class Client:
    """Pushes a gauge, a cumulative counter and a delta counter for some keys, as SDKs do: one request at a time, tried again
    with the same bytes until it is acknowledged."""

    def __init__(self, name, keys):
        self.name = name
        self.keys = keys
        self.sequence = 0
        self.time_ns = time.time_ns() - 3_600 * cu.SECOND
        self.total = {k: 0 for k in range(keys)}    # sum of acknowledged deltas
        self.acked = {}                             # key: (gauge, counter)
        self.unsure = False                         # a request is without an answer
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

    def acknowledged(self):
        for k, (g, c, d) in self.values.items():
            self.total[k] += d
            self.acked[k] = (g, c)
        self.body = None

    def run(self, port, stop):
        with grpc.insecure_channel(f"127.0.0.1:{port}", options=[("grpc.enable_retries", 0)]) as channel:
            while not stop.is_set():
                if self.body is None:
                    self.next()
                try:
                    response, _ = cu.export(channel, self.body, timeout=5)
                except grpc.RpcError:
                    if stop.is_set():
                        return
                    time.sleep(0.02)
                    continue
                assert cu.partial(response) == (0, "")
                self.acknowledged()


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


def load(collector, clients, seconds, end):
    stop = threading.Event()
    threads = [threading.Thread(target=c.run, args=(collector.port, stop)) for c in clients]
    for t in threads:
        t.start()
    time.sleep(seconds)
    end()
    stop.set()
    for t in threads:
        t.join()


def test_acknowledged_values_survive_kill_9(procs, tmp_path):
    clients = [Client(f"client-{i}", 40 if i else 400) for i in range(4)]
    collector = cu.Collector(procs, tmp_path)
    for i in range(4):
        collector.start()
        if i > 0:
            check(collector, clients)
        load(collector, clients, 0.4 + random.random() * 0.4, lambda: collector.process.kill())
        assert all(c.acked for c in clients)
    collector.start()
    check(collector, clients)
    # The same requests again are acknowledged and change nothing.
    load(collector, clients, 0.3, lambda: None)
    with collector.channel() as channel:
        for c in clients:
            if c.body is None:
                c.next()
            cu.export(channel, c.body)
        before = exposed(collector)
        for c in clients:
            for _ in range(3):
                cu.export(channel, c.body)
            c.acknowledged()
    assert exposed(collector) == before
    check(collector, clients)


def test_a_damaged_record_costs_only_itself(procs, tmp_path):
    client = Client("one", 50)
    collector = cu.Collector(procs, tmp_path).start()
    with collector.channel() as channel:
        for _ in range(20):
            client.next()
            cu.export(channel, client.body)
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
        with collector.channel() as channel:
            response, _ = cu.export(channel, q.bytes())
        rejected, message = cu.partial(response)
        assert rejected == 5 and message
    assert collector.metric("good_total") == 1.5
    assert collector.metric("ended") == 1
    ended.gauge.data_points[0].time_unix_nano += 1
    ended.gauge.data_points[0].flags = 1
    with collector.channel() as channel:
        cu.export(channel, q.bytes())
    assert collector.metric("ended") is None
    assert os.path.getsize(collector.db) > 0
