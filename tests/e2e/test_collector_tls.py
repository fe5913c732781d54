# SPDX-License-Identifier: Apache-2.0
"""The collector with certificates and tokens: who may push and read, and both changed while it runs."""

import os
import shutil
import signal
import ssl
import subprocess
import threading
import time

import grpc
import pytest

import collector_util as cu
import control_util as ctl
import harness
import tls_util as tls


@pytest.fixture(scope="module", name="pki")
def make_pki(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pki")

    class Pki:
        ca = tls.Authority(folder)
        server = ca.issue("server", "DNS:localhost,IP:127.0.0.1")
        agent = ca.issue("agent", "DNS:node-1.agents.example")
        reader = ca.issue("reader", "DNS:grafana.readers.example")
    return Pki


class Secure(cu.Collector):
    """A collector with a certificate in a folder of its own, so that it can be changed."""

    def __init__(self, procs, folder, pki, *flags):
        self.cert, self.key = os.path.join(folder, "tls.crt"), os.path.join(folder, "tls.key")
        self.pki = pki
        self.put(pki.server)
        super().__init__(procs, folder, "--tls-cert-file", self.cert, "--tls-key-file", self.key, *flags)

    def put(self, pair):
        """Changes both files at once each, as an operator's tool does."""
        for source, to in zip(pair, (self.cert, self.key)):
            shutil.copy(source, to + ".new")
            os.rename(to + ".new", to)

    def hup(self):
        self.process.send(signal.SIGHUP)

    def ctx(self, cert=None):
        return tls.context(self.pki.ca, cert)

    def channel(self, cert=None):
        def read(path):
            with open(path, "rb") as f:
                return f.read()
        pair = (read(cert[1]), read(cert[0])) if cert else (None, None)
        return grpc.secure_channel(f"localhost:{self.port}", grpc.ssl_channel_credentials(read(self.pki.ca.file), *pair))

    def push(self, body, token=None, cert=None):
        """gRPC status name of one push over TLS."""
        with self.channel(cert) as channel:
            try:
                cu.export(channel, body, metadata=[("authorization", f"Bearer {token}")] if token else None)
                return "OK"
            except grpc.RpcError as e:
                return e.code().name

    def read(self, token=None, cert=None, path="/api/v1/nodes"):
        """Status line of a read over TLS; "refused" when there was no agreement."""
        try:
            return tls.ask(self.api_port, self.ctx(cert), path, f"Authorization: Bearer {token}\r\n" if token else "")
        except OSError:
            return "refused"

    def serial(self, port):
        with tls.handshake(port, self.ctx()) as s:
            return s.getpeercert()["serialNumber"]


def window(node="n1", cluster=None, key="lanterne__cluster", agent=True):
    q = cu.Request(time.time_ns(), 10 * cu.SECOND)
    attrs = {"service__name": "lanterne-agent" if agent else "app", "host__name": node, "lanterne__window__sequence": 1}
    if cluster:
        attrs[key] = cluster
    q.resource(**attrs)
    q.gauge("hw.gpu.utilization", "1", 0.5, hw__id="u")
    return q.bytes()


def test_both_listeners_speak_tls(procs, tmp_path, pki):
    c = Secure(procs, tmp_path, pki).start()
    assert c.push(window()) == "OK"
    assert c.read() == "HTTP/1.1 200 OK"
    for port, path in ((c.port, "/v1/metrics"), (c.api_port, "/api/v1/nodes")):
        for flag, want in (("--http1.1", "1.1"), ("--http2", "2")):
            words = ["-d", "", "-H", "content-type: application/x-protobuf"] if port == c.port else []
            code, text = tls.curl(flag, "--cacert", pki.ca.file, "-o", os.devnull, "-w", "%{http_version} %{http_code}",
                                  *words, f"https://localhost:{port}{path}")
            assert (code, text) == (0, f"{want} 200")
    # Cleartext is there as long as nobody forbids it.
    assert c.get("/api/v1/nodes")["nodes"][0]["node"] == "n1"
    assert c.metric("lanterne_collector_http_total", kind="connections_tls", server="otlp") == 3
    assert c.metric("lanterne_collector_certificate_expiry_timestamp_seconds") > time.time()
    # The readers of the command line.
    url = f"https://localhost:{c.api_port}"
    for words in (["lanterne-collector", "status", "--url", url], ["lanterne", "query", "--collector", url, "SELECT 1"]):
        def run(*more, words=words):
            return subprocess.run([harness.program(words[0]), *words[1:], *more], capture_output=True, text=True, timeout=20,
                                  check=False)
        done = run("--ca-file", pki.ca.file)
        assert done.returncode == 0 or "no agent has a stream" in done.stderr, done
        done = run()
        assert done.returncode == 3 and "certificate" in done.stderr, done


def test_cleartext_refused_from_elsewhere(procs, tmp_path, pki):
    address = tls.own_address()
    if address is None:
        pytest.skip("no address beside loopback")
    port = harness.free_port(address)
    c = Secure(procs, tmp_path, pki, "--tls-required", "--insecure-no-token", "--otlp-listen", f"{address}:{port}").start()
    assert c.post("/v1/metrics", b"")[0] == 200  # this machine, by loopback
    code, text = tls.curl("-w", "%{http_code}", "-d", "", f"http://{address}:{port}/v1/metrics")
    assert code == 0 and text.endswith("400") and "TLS only" in text
    code, text = tls.curl("--http2-prior-knowledge", "-d", "", f"http://{address}:{port}/v1/metrics")
    assert code != 0
    code, text = tls.curl("--cacert", pki.ca.file, "--connect-to", f"localhost:{port}:{address}:{port}", "-o", os.devnull,
                          "-w", "%{http_code}", "-d", "", "-H", "content-type: application/x-protobuf",
                          f"https://localhost:{port}/v1/metrics")
    assert (code, text) == (0, "200")
    assert c.metric("lanterne_collector_http_total", kind="cleartext_refused", server="otlp") == 2


@pytest.mark.parametrize("who", ["otlp", "all"])
def test_client_certificates(procs, tmp_path, pki, who):
    c = Secure(procs, tmp_path, pki, "--tls-required", "--tls-client-ca-file", pki.ca.file, "--tls-require-client-cert", who,
               "--tls-allow-san", "DNS:*.agents.example", "--tls-allow-san", "DNS:*.readers.example").start()
    assert c.push(window(), cert=pki.agent) == "OK"
    assert c.push(window()) == "UNAVAILABLE"
    assert c.push(window(), cert=pki.server) == "UNAVAILABLE"  # not on the list
    assert c.post("/v1/metrics", b"")[0] == 401  # cleartext from this machine carries no certificate
    assert c.read(cert=pki.reader) == "HTTP/1.1 200 OK"
    assert c.read() == ("HTTP/1.1 200 OK" if who == "otlp" else "HTTP/1.1 401 Unauthorized")
    assert c.read(cert=pki.server) == "refused"
    # Probes and scrapers of health need none.
    assert c.read(path="/healthz") == "HTTP/1.1 200 OK"


def check(*flags):
    done = subprocess.run([harness.program("lanterne-collector"), "--check-config", *flags], capture_output=True, text=True,
                          timeout=20, check=False)
    return done.returncode, done.stderr


def test_configurations_that_make_no_sense(pki):
    pair = ["--tls-cert-file", pki.server[0], "--tls-key-file", pki.server[1]]
    ca = ["--tls-client-ca-file", pki.ca.file]
    assert check(*pair, *ca, "--tls-required", "--tls-require-client-cert", "otlp")[0] == 0
    for flags, why in ((pair[:2], "belong together"), (["--tls-required"], "need tls.cert_file"), (ca, "need tls.cert_file"),
                       ([*pair, "--tls-require-client-cert", "all"], "need tls.client_ca_file"),
                       ([*pair, *ca, "--tls-require-client-cert", "all"], "needs tls.required")):
        code, text = check(*flags)
        assert code == 2 and why in text, (flags, text)
    # Certificates are credentials: an open address needs no token then.
    everywhere = ["--otlp-listen", "0.0.0.0:4317"]
    assert check(*everywhere)[0] == 2
    assert check(*everywhere, *pair, *ca, "--tls-required", "--tls-require-client-cert", "otlp")[0] == 0
    assert check("--api-listen", ":8420", *pair, *ca, "--tls-required", "--tls-require-client-cert", "otlp")[0] == 2


def test_files_that_cannot_be_used(procs, tmp_path, pki):
    def start(cert, key):
        return subprocess.run([harness.program("lanterne-collector"), "--db", str(tmp_path / "x.db"), "--otlp-listen",
                               "127.0.0.1:0", "--api-listen", "127.0.0.1:0", "--tls-cert-file", cert, "--tls-key-file", key],
                              capture_output=True, text=True, timeout=20, check=False)
    nonsense = tmp_path / "nonsense.pem"
    nonsense.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    for cert, key, named in ((str(nonsense), pki.server[1], str(nonsense)), (pki.server[0], pki.agent[1], pki.agent[1]),
                             (str(tmp_path / "none"), pki.server[1], "none"), (pki.server[0], str(tmp_path), str(tmp_path))):
        done = start(cert, key)
        assert done.returncode == 3 and named in done.stderr, done


def test_reload_under_load(procs, tmp_path, pki):
    """New certificates come and go; nobody who pushes meanwhile loses a request."""
    second = pki.ca.issue("second", "DNS:localhost,IP:127.0.0.1")
    c = Secure(procs, tmp_path, pki).start()
    stop = threading.Event()
    bad, done = [], []

    def keep_pushing(kept):
        n = 0
        body = window(f"n{kept}")
        channel = c.channel()
        while not stop.is_set():
            try:
                cu.export(channel, body)
                n += 1
            except grpc.RpcError as e:
                bad.append(e.details())
            if not kept:  # a handshake each
                channel.close()
                channel = c.channel()
        channel.close()
        done.append(n)
    threads = [threading.Thread(target=keep_pushing, args=(k,), daemon=True) for k in (True, True, False)]
    for t in threads:
        t.start()
    serials = set()

    def taken():
        return c.metric("lanterne_collector_access_reloads_total", outcome="taken")
    try:
        for i in range(12):
            before = taken()
            c.put(second if i % 2 == 0 else pki.server)
            c.hup()
            harness.wait_until(lambda b=before: taken() > b, 10, "the new certificate")
            serials.add(c.serial(c.port))
            assert c.serial(c.api_port) in serials
    finally:
        stop.set()
    for t in threads:
        t.join()
    assert not bad, bad[:3]
    assert len(serials) == 2 and len(done) == 3 and all(n > 3 for n in done), (serials, done)


def test_a_broken_file_leaves_the_old_in_force(procs, tmp_path, pki):
    second = pki.ca.issue("third", "DNS:localhost,IP:127.0.0.1")
    tokens = tmp_path / "tokens"
    tokens.write_text("first\n")
    c = Secure(procs, tmp_path, pki, "--token-file", str(tokens)).start()

    def reloads(outcome):
        for line in harness.http_get(c.url("/metrics"), headers={"Authorization": f"Bearer {token}"})[2].decode().splitlines():
            if line.startswith(f'lanterne_collector_access_reloads_total{{outcome="{outcome}"}}'):
                return float(line.split()[1])
        return None
    token = "first"
    old = c.serial(c.port)
    with open(c.cert, "w", encoding="ascii") as f:
        f.write("broken")
    c.hup()
    harness.wait_until(lambda: reloads("failed") >= 1, 10, "the failure")
    assert "not taken over" in c.process.log() and c.cert in c.process.log()
    assert c.serial(c.port) == old and c.push(window(), "first") == "OK"
    # Seen without a signal, when the files change.
    c.put(second)
    harness.wait_until(lambda: c.serial(c.port) != old, 10, "the new certificate")
    tokens.write_text("")
    before = reloads("failed")
    harness.wait_until(lambda: reloads("failed") > before, 10, "the second failure")
    assert c.push(window(), "first") == "OK"
    tokens.write_text("# turned over\n* second\n")
    harness.wait_until(lambda: c.push(window(), "second") == "OK", 10, "the new token")
    assert c.push(window(), "first") == "UNAUTHENTICATED"


def test_tokens_of_clusters(procs, tmp_path, pki):
    tokens = tmp_path / "tokens"
    tokens.write_text("# cluster token\n\nblue   blue-token\nred red-token\n* any-token\nplain-token\r\n")
    c = Secure(procs, tmp_path, pki, "--token-file", str(tokens)).start()
    for token, cluster, want in (("blue-token", "blue", "OK"), ("red-token", "red", "OK"), ("any-token", "green", "OK"),
                                 ("plain-token", None, "OK"), ("blue-token", "red", "PERMISSION_DENIED"),
                                 ("blue-token", "blu", "PERMISSION_DENIED"), ("blue", "blue", "UNAUTHENTICATED"),
                                 ("blue blue-token", "blue", "UNAUTHENTICATED"), ("# cluster token", None, "UNAUTHENTICATED"),
                                 (None, "blue", "UNAUTHENTICATED")):
        assert c.push(window(f"node-{cluster}", cluster), token) == want, (token, cluster)
    for agent in (True, False):
        body = window("kube", "red", "k8s__cluster__name", agent)
        assert c.push(body, "blue-token") == "PERMISSION_DENIED"
        assert c.push(body, "red-token") == "OK"
    # Over HTTP it is 403, and says why.
    headers = {"Authorization": "Bearer blue-token"}
    status, _, body = c.post("/v1/metrics", window("x", "red"), headers)
    assert status == 403 and b"another cluster" in body
    # One that names no cluster is of the token's; it is not another's any more.
    assert c.push(window("unnamed"), "blue-token") == "OK"
    assert c.push(window("unnamed"), "red-token") == "PERMISSION_DENIED"
    assert c.push(window("node-red"), "blue-token") == "PERMISSION_DENIED"
    nodes = harness.http_get(c.url("/api/v1/nodes"), headers={"Authorization": "Bearer any-token"})[2].decode()
    assert '"unnamed"' in nodes and nodes.count('"red"') == 2, nodes
    # What is read is of all clusters.
    assert c.read("plain-token") == "HTTP/1.1 200 OK" and c.read("any-token") == "HTTP/1.1 200 OK"
    assert c.read("blue-token") == "HTTP/1.1 403 Forbidden" and c.read() == "HTTP/1.1 401 Unauthorized"
    # The control stream is held to it, too.
    for node, cluster, token, code in (("n-blue", "blue", "blue-token", None), ("n-none", "", "blue-token", None),
                                       ("n-red", "red", "blue-token", grpc.StatusCode.PERMISSION_DENIED),
                                       ("node-red", "", "blue-token", grpc.StatusCode.PERMISSION_DENIED),
                                       ("n-blue", "blue", "wrong", grpc.StatusCode.UNAUTHENTICATED)):
        a = ctl.Agent(c.port, node, metadata=[("authorization", f"Bearer {token}")], cluster=cluster)
        if code is None:
            harness.wait_until(lambda a=a: a.received, 10, "the welcome")
        else:
            assert a.ended.wait(10) and a.code == code, (node, a.code)
        a.close()


def test_wrong_token_files(procs, tmp_path):
    path = tmp_path / "tokens"
    for text, why in (("", "no token"), ("# only words\n\n", "no token"), ("a b c\n", "line 1"), ("ok\nx y\nz y\n", "line 3"),
                      ("t" * 2000, "line 1: too long")):
        path.write_text(text)
        done = subprocess.run([harness.program("lanterne-collector"), "--db", str(tmp_path / "x.db"), "--token-file", str(path),
                               "--otlp-listen", "127.0.0.1:0", "--api-listen", "127.0.0.1:0"], capture_output=True, text=True,
                              timeout=20, check=False)
        assert done.returncode == 3 and why in done.stderr, (text[:20], done.stderr)


def test_an_agent_by_certificates(procs, tmp_path, pki):
    """A real agent pushes and keeps its control stream over TLS with a certificate and a token of its cluster."""
    harness.require_btf()
    tokens = tmp_path / "tokens"
    tokens.write_text("blue s3cret\n* reading\n")
    mine = tmp_path / "token"
    mine.write_text("s3cret\n")
    c = Secure(procs, tmp_path, pki, "--token-file", str(tokens), "--tls-required", "--tls-client-ca-file", pki.ca.file,
               "--tls-require-client-cert", "otlp", "--tls-allow-san", "DNS:*.agents.example", "--window", "1s").start()

    def agent(node, *flags):
        words = [harness.program("lanterne"), "agent", "--db", str(tmp_path / f"{node}.db"), "--node", node, "--cluster", "blue",
                 "--window", "1s", "--collector", f"https://localhost:{c.port}", "--token-file", str(mine),
                 "--pid", str(os.getpid()), "--listen", "off", *flags]
        # The variables only name the protocol: the port would do.
        return procs.start(*words, env={**os.environ, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"})

    def get(path):
        return harness.http_get(c.url(path), headers={"Authorization": "Bearer reading"})[2].decode()
    trusted = ["--collector-ca-file", pki.ca.file]
    shown = ["--collector-cert-file", pki.agent[0], "--collector-key-file", pki.agent[1]]
    agent("good", *trusted, *shown)
    bad = agent("unshown", *trusted)
    worse = agent("distrusting", *shown)
    harness.wait_until(lambda: '"good"' in get("/api/v1/nodes"), 30, "the first window")
    harness.wait_until(lambda: "lanterne_collector_control_streams 1" in get("/metrics"), 20, "the control stream")
    done = subprocess.run([harness.program("lanterne"), "query", "--collector", f"https://localhost:{c.api_port}", "--ca-file",
                           pki.ca.file, "--api-token-file", write(tmp_path, "reading"), "--csv", "SELECT 6 * 7 AS answer"],
                          capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0 and done.stdout.splitlines() == ["node,answer", "good,42"], done
    bad.wait_log("certificate required", 20)
    worse.wait_log("certificate", 20)
    nodes = get("/api/v1/nodes")
    assert '"unshown"' not in nodes and '"distrusting"' not in nodes


def write(folder, text):
    path = os.path.join(str(folder), text)
    with open(path, "w", encoding="ascii") as f:
        f.write(text)
    return path


def test_the_local_api_of_a_node(procs, tmp_path, pki):
    db, port = str(tmp_path / "n.db"), harness.free_port()
    subprocess.run([harness.program("lanterne"), "demo", "cold-start", "--keep-db", db], check=True, capture_output=True,
                   timeout=60)
    server = procs.start(harness.program("lanterne"), "dashboard", "--db", db, "--listen", f"127.0.0.1:{port}",
                         "--api-cert-file", pki.server[0], "--api-key-file", pki.server[1])
    server.wait_port(port)
    assert tls.ask(port, tls.context(pki.ca), "/api/v1/time") == "HTTP/1.1 200 OK"
    assert harness.http_get(f"http://127.0.0.1:{port}/api/v1/time")[0] == 200  # this machine
    done = subprocess.run([harness.program("lanterne"), "query", "--nodes", f"https://localhost:{port}", "--ca-file",
                           pki.ca.file, "--csv", "SELECT 6 * 7 AS answer"], capture_output=True, text=True, timeout=30,
                          check=False)
    assert done.returncode == 0 and done.stdout.splitlines()[1].endswith(",42"), done
    done = subprocess.run([harness.program("lanterne"), "dashboard", "--db", db, "--listen", f"127.0.0.1:{port}",
                           "--api-cert-file", pki.server[0]], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 2 and "belong together" in done.stderr, done


def test_handshakes_a_second(procs, tmp_path, pki):
    c = Secure(procs, tmp_path, pki, "--tls-handshakes-per-s", "1").start()
    refused = 0
    for _ in range(8):
        try:
            c.serial(c.port)
        except OSError:
            refused += 1
    assert refused >= 3
    assert c.metric("lanterne_collector_http_total", kind="tls_handshakes_limited", server="otlp") == refused
