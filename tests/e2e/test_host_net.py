# SPDX-License-Identifier: Apache-2.0
"""Sockets of traced processes by peer, and TCP segments that are sent again."""

import os
import socket
import subprocess
import threading

import pytest

import capture_util as cap
import harness
import host_util as host

ROUNDS, BYTES = 50, 1000
# Each way to use a socket: of the 6 calls of a round three send and three receive.
SCRIPT = f"""
def all_of(read, n):
    got = 0
    while got < n:
        got += len(read(n - got))
def use(s):
    data = b"x" * {BYTES}
    for i in range({ROUNDS}):
        for send, receive in ((s.send, s.recv),
                              (lambda d: s.sendmsg([d]), lambda n: s.recvmsg(n)[0]),
                              (lambda d: os.write(s.fileno(), d), lambda n: os.read(s.fileno(), n))):
            assert send(data) == {BYTES}
            all_of(receive, {BYTES})
for address in sys.argv[3].split(","):
    s = socket.create_connection((address, int(sys.argv[4])))
    use(s)
a, b = socket.socketpair()
a.send(b"y" * 777)
b.recv(777)
b.setblocking(False)
try:
    b.recv(1)
except BlockingIOError:
    pass
"""


class Echo:
    """A server that sends back what it gets, on 127.0.0.1 and ::1."""

    def __init__(self, given=False):
        self.socket = None
        # A port below those that the kernel gives to clients, unless such a one is asked for.
        for port in [0] if given else range(20000, 30000):
            try:
                self.socket = socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True)
                break
            except OSError:
                continue
        self.port = self.socket.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            connection, _ = self.socket.accept()
            threading.Thread(target=self._echo, args=(connection,), daemon=True).start()

    @staticmethod
    def _echo(connection):
        while True:
            data = connection.recv(65536)
            if not data:
                return
            connection.sendall(data)


def test_every_way_to_use_a_socket_is_counted_by_peer(procs, tmp_path):
    host.require()
    echo = Echo()
    sim = cap.Sim(procs, tmp_path)
    agent = cap.Agent(procs, tmp_path)
    traced, plain = host.two_loads(sim, tmp_path, SCRIPT, words=("127.0.0.1,::1", echo.port))
    before = host.sums_now(agent, traced.pid)
    traced.finish()
    plain.finish()
    agent.stop()
    rows = {(r["protocol"], r["peer"], r["port"], r["side"]): r for r in agent.rows(
        "SELECT protocol, peer, port, side, sum(sends) sends, sum(sent_bytes) sent, sum(receives) receives,"
        " sum(received_bytes) received, sum(would_block) again, sum(failed) failed FROM socket_io WHERE"
        " pid = ? GROUP BY protocol, peer, port, side", traced.pid)}
    for address in "127.0.0.1", "::1":
        r = rows[("tcp", address, echo.port, "client")]
        assert (r["sends"], r["sent"], r["received"]) == (3 * ROUNDS, 3 * ROUNDS * BYTES, 3 * ROUNDS * BYTES)
        assert r["receives"] >= 3 * ROUNDS and r["failed"] == 0
    pair = rows[("unix", None, None, None)]
    assert pair["sent"] >= 777 and pair["received"] >= 777 and pair["again"] == 1
    sums = agent.rows("SELECT sum(socket_sent_bytes) sent, sum(socket_untold) untold FROM process_host"
                      " WHERE pid = ?", traced.pid)[0]
    assert sums["sent"] - before["socket_sent_bytes"] == 2 * 3 * ROUNDS * BYTES + 777
    assert sums["untold"] == 0
    assert agent.value("SELECT count(*) FROM socket_io WHERE pid = ?", plain.pid) == 0


def test_a_server_is_named_by_its_own_port(procs, tmp_path):
    host.require()
    for port in range(30000, 32000):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                break
    sim = cap.Sim(procs, tmp_path)
    agent = cap.Agent(procs, tmp_path)
    load = host.Load(sim, tmp_path, """
server = socket.create_server(("127.0.0.1", int(sys.argv[3])))
emit(listening=1)
for i in range(3):
    connection, peer = server.accept()
    assert len(connection.recv(100)) == 5
""", words=(port,))
    load.go()
    load.process.wait_log("listening")
    for _ in range(3):
        with socket.create_connection(("127.0.0.1", port)) as s:
            s.send(b"hello")
    load.finish()
    agent.stop()
    rows = agent.rows("SELECT peer, port, side, sum(received_bytes) n FROM socket_io WHERE pid = ? AND"
                      " protocol = 'tcp' GROUP BY peer, port, side", load.pid)
    assert [tuple(r) for r in rows] == [("127.0.0.1", port, "server", 15)]


def test_between_two_given_ports_nobody_is_the_server(procs, tmp_path):
    host.require()
    with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as f:
        if int(f.read().split()[0]) < 32768:
            pytest.skip("needs the usual range of local ports")
    echo = Echo(given=True)
    sim = cap.Sim(procs, tmp_path)
    agent = cap.Agent(procs, tmp_path)
    load = host.Load(sim, tmp_path, SCRIPT, words=("127.0.0.1", echo.port))
    load.finish()
    agent.stop()
    rows = agent.rows("SELECT peer, port, side, sum(sent_bytes) n FROM socket_io WHERE pid = ? AND protocol = 'tcp'"
                      " GROUP BY peer, port, side", load.pid)
    assert [tuple(r) for r in rows] == [("127.0.0.1", echo.port, None, 3 * ROUNDS * BYTES)]


@pytest.fixture(name="lossy")
def _lossy():
    """A network namespace whose loopback drops what goes to port 9999 once it is told to."""
    harness.require_netns()
    for tool in "iptables", "ip6tables":
        harness.require_command(tool)
    name = f"ltn-loss-{os.getpid()}"

    def inside(*words, check=True):
        return subprocess.run(["ip", "netns", "exec", name, *words], check=check, capture_output=True, timeout=20)

    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        inside("ip", "link", "set", "lo", "up")
        for tool in "iptables", "ip6tables":
            if inside(tool, "-A", "INPUT", "-p", "tcp", "--dport", "1", "-j", "DROP", check=False).returncode:
                pytest.skip(f"needs {tool} that can drop packets")
        yield name, inside
    finally:
        subprocess.run(["ip", "netns", "del", name], check=True)


LOSS = """
server = socket.create_server(("::", 9999), family=socket.AF_INET6, dualstack_ipv6=True)
peers = []
clients = []
for address in "127.0.0.1", "::1":
    clients.append(socket.create_connection((address, 9999)))
    peers.append(server.accept()[0])
    clients[-1].send(b"before")
emit(connected=1)
while not os.path.exists(sys.argv[2] + "2"):
    time.sleep(0.01)
for c in clients:
    c.send(b"lost")
time.sleep(2)
emit(ports=[c.getsockname()[1] for c in clients])
"""


@pytest.mark.parametrize("option", [None, "--no-tcp"])
def test_segments_sent_again_name_both_ends(procs, tmp_path, lossy, option):
    host.require()
    name, inside = lossy
    sim = cap.Sim(procs, tmp_path)
    agent = cap.Agent(procs, tmp_path, *([option] if option else []))
    load = host.Load(sim, tmp_path, LOSS, netns=name)
    load.go()
    load.process.wait_log("connected")
    agent.wait_window(1)
    quiet = agent.value("SELECT count(*) FROM tcp_retransmits WHERE peer_port = 9999")
    for tool in "iptables", "ip6tables":
        inside(tool, "-A", "INPUT", "-p", "tcp", "--dport", "9999", "-j", "DROP")
    (tmp_path / "load.go2").write_text("")
    ports = load.finish()["ports"]
    agent.stop()
    assert quiet == 0, "nothing is sent again on a path that loses nothing"
    rows = {r["local"]: r for r in agent.rows(
        "SELECT local, local_port, peer, peer_port, pid, sum(segments) n, sum(handshake) h FROM"
        " tcp_retransmits WHERE peer_port = 9999 GROUP BY local, local_port, peer, peer_port, pid")}
    if option:
        assert not rows
        return
    for address, port in zip(("127.0.0.1", "::1"), ports):
        r = rows[address]
        assert (r["peer"], r["local_port"], r["peer_port"], r["h"]) == (address, port, 9999, 0)
        assert 2 <= r["n"] <= 12, "RTO 0.2 s, doubled each time, for 2 s"
        assert r["pid"] == load.pid


def test_switched_off(procs, tmp_path):
    host.require()
    echo = Echo()
    sim = cap.Sim(procs, tmp_path)
    agent = cap.Agent(procs, tmp_path, "--no-net")
    load = host.Load(sim, tmp_path, SCRIPT, words=("127.0.0.1", echo.port))
    load.finish()
    agent.stop()
    assert agent.value("SELECT count(*) FROM socket_io") == 0
