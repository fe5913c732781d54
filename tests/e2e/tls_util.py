# SPDX-License-Identifier: Apache-2.0
"""Certificates for tests, made by the openssl command, and clients that speak TLS in all their details."""

import os
import socket
import ssl
import subprocess

CONFIG = """
[ca]
default_ca = it
[it]
dir = {folder}
new_certs_dir = {folder}
database = {folder}/index
serial = {folder}/serial
default_md = sha256
policy = any
unique_subject = no
copy_extensions = copy
[any]
commonName = optional
[req]
distinguished_name = name
[name]
[authority]
basicConstraints = critical,CA:true
keyUsage = critical,keyCertSign
"""

PAST = ("20200101000000Z", "20210101000000Z")
NOW = ("20200101000000Z", "20491231000000Z")


class Authority:
    """A certificate authority in a folder. Keys are of the curve P-256: quick to make."""

    def __init__(self, folder, name="authority"):
        self.folder = os.path.join(str(folder), name)
        os.mkdir(self.folder)
        self.config = self.path("openssl.cnf")
        self.file = self.path("ca.pem")
        with open(self.config, "w", encoding="ascii") as f:
            f.write(CONFIG.format(folder=self.folder))
        with open(self.path("index"), "w", encoding="ascii"):
            pass
        with open(self.path("serial"), "w", encoding="ascii") as f:
            f.write("1000")
        self._run("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "3650",
                  "-subj", f"/CN={name}", "-keyout", self.path("ca.key"), "-out", self.file, "-extensions", "authority",
                  "-config", self.config)

    def path(self, name):
        return os.path.join(self.folder, name)

    def _run(self, *words):
        subprocess.run(["openssl", *words], check=True, capture_output=True, timeout=30)

    def issue(self, name, san, when=NOW):
        """Paths of a new certificate and its key."""
        cert, key, request = self.path(name + ".pem"), self.path(name + ".key"), self.path(name + ".csr")
        extra = ["-addext", f"subjectAltName={san}"] if san else []
        self._run("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}",
                  "-keyout", key, "-out", request, *extra, "-config", self.config)
        self._run("ca", "-batch", "-config", self.config, "-keyfile", self.path("ca.key"), "-cert", self.file, "-in", request,
                  "-out", cert, "-notext", "-startdate", when[0], "-enddate", when[1])
        return cert, key


def context(authority, cert=None, alpn=None, version=None):
    """A client's context that trusts the authority only."""
    c = ssl.create_default_context(cafile=authority.file)
    if cert:
        c.load_cert_chain(*cert)
    if alpn:
        c.set_alpn_protocols(alpn)
    if version:
        c.minimum_version = c.maximum_version = version
    return c


def handshake(port, ctx, host="127.0.0.1", name="localhost"):
    """A connected TLS socket. In TLS 1.3 a server that refuses the client says so only at the first read."""
    raw = socket.create_connection((host, port), timeout=10)
    try:
        return ctx.wrap_socket(raw, server_hostname=name)
    except BaseException:
        raw.close()
        raise


def ask(port, ctx, path="/healthz", headers="", **where):
    """First line of the answer to a GET over HTTP/1.1; raises ssl.SSLError or OSError when refused."""
    with handshake(port, ctx, **where) as s:
        s.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{headers}Connection: close\r\n\r\n".encode())
        data = b""
        while True:
            part = s.recv(65536)
            if not part:
                return data.split(b"\r\n", 1)[0].decode()
            data += part


def curl(*words):
    """(exit code, text)."""
    done = subprocess.run(["curl", "-sS", "--max-time", "10", *words], capture_output=True, text=True, timeout=20, check=False)
    return done.returncode, done.stdout + done.stderr


def own_address():
    """An address of this machine that is not loopback; None without one. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        try:
            s.connect(("192.0.2.1", 9))
            address = s.getsockname()[0]
        except OSError:
            return None
    return None if address.startswith("127.") else address
