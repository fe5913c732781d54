#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Boots Debian's kernel in an emulated machine with the agent and simgpu, and judges what they say.

    tests/vm/run_vm.py --build BUILD [--keep]

LTN_VM_KERNEL names a kernel image to boot instead of Debian's. Exit codes: 0 passed, 1 failed, 77 skipped.
"""

import argparse
import glob
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.realpath(__file__))
TOP = os.path.realpath(os.path.join(HERE, "..", ".."))
QEMU, BUSYBOX = "qemu-system-x86_64", "/bin/busybox"
SIM_LIBS = ("libcudart.so.12", "libcuda.so.1", "libnccl.so.2")
MEMORY_MIB = 1024
LIMIT_S = 330


class Skip(Exception):
    """The test cannot run here."""


class Failure(Exception):
    """The machine said something that it must not say, or nothing."""


# --- the kernel -------------------------------------------------------------------------------------


def fetch_kernel(folder):
    """Debian's kernel image, unpacked from its package: vmlinuz in the folder."""
    got = subprocess.run(["apt-cache", "depends", "linux-image-amd64"], capture_output=True, text=True,
                         check=False)
    m = re.search(r"Depends: (linux-image-6\.1\S*-amd64)\b", got.stdout)
    if not m:
        raise Skip("no Debian kernel 6.1 among the packages; name one with LTN_VM_KERNEL")
    os.makedirs(folder, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as tmp:
        os.chmod(tmp, 0o777)  # apt fetches as a user of its own
        got = subprocess.run(["apt-get", "-qq", "-o", "Acquire::Retries=2", "download", m[1]], cwd=tmp,
                             capture_output=True, text=True, check=False, timeout=200)
        packages = glob.glob(os.path.join(tmp, "*.deb"))
        if got.returncode != 0 or not packages:
            raise Skip(f"cannot fetch {m[1]}: {got.stderr.strip()[-200:]}")
        content = subprocess.Popen(["dpkg-deb", "--fsys-tarfile", packages[0]], stdout=subprocess.PIPE)
        subprocess.run(["tar", "-x", "-C", tmp, "--wildcards", "./boot/vmlinuz-*"], stdin=content.stdout,
                       check=False)
        content.stdout.close()
        content.wait()
        images = glob.glob(os.path.join(tmp, "boot", "vmlinuz-*"))
        if not images:
            raise Skip(f"{m[1]} holds no kernel image")
        path = os.path.join(folder, os.path.basename(images[0]))
        os.replace(images[0], path)
        return path


def find_kernel():
    named = os.environ.get("LTN_VM_KERNEL")
    if named:
        if not os.access(named, os.R_OK):
            raise Skip(f"LTN_VM_KERNEL: cannot read {named}")
        return named
    folder = os.path.join(TOP, "build", "vm")
    found = sorted(glob.glob(os.path.join(folder, "vmlinuz-6.1*")))
    return found[-1] if found else fetch_kernel(folder)


# --- the initramfs ----------------------------------------------------------------------------------


class Archive:
    """A cpio archive (newc) that the kernel unpacks as its first file system."""

    def __init__(self):
        self.parts, self.names = [], set()

    def add(self, name, mode, data=b""):
        for i, c in enumerate(name):
            if c == "/":
                self.add_folder(name[:i])
        if name in self.names:
            return
        self.names.add(name)
        raw = name.encode() + b"\0"
        fields = (len(self.names), mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(raw), 0)
        head = b"070701" + b"".join(b"%08x" % f for f in fields) + raw
        self.parts += [head, b"\0" * (-len(head) % 4), data, b"\0" * (-len(data) % 4)]

    def add_folder(self, name):
        if name not in self.names:
            self.add(name, stat.S_IFDIR | 0o755)

    def add_program(self, source, name):
        with tempfile.NamedTemporaryFile() as slim:
            # Debug information stays at home; symbols of programs are kept.
            done = subprocess.run(["strip", "-g", "-o", slim.name, source], capture_output=True, check=False)
            with open(slim.name if done.returncode == 0 else source, "rb") as f:
                self.add(name, stat.S_IFREG | 0o755, f.read())

    def write(self, path):
        self.add("TRAILER!!!", 0)
        with open(path, "wb") as f:
            f.writelines(self.parts)


def needed_libraries(program):
    got = subprocess.run(["ldd", program], capture_output=True, text=True, check=True)
    return set(re.findall(r"(/\S+) \(0x", got.stdout))


def make_initramfs(build, path):
    archive = Archive()
    with open(os.path.join(HERE, "guest.sh"), "rb") as f:
        archive.add("init", stat.S_IFREG | 0o755, f.read())
    archive.add_program(BUSYBOX, "bin/busybox")
    libraries = set()
    for name in ("lanterne", "simtrain"):
        program = os.path.join(build, "bin", name)
        libraries |= needed_libraries(program)
        archive.add_program(program, f"bin/{name}")
    for name in SIM_LIBS:
        archive.add_program(os.path.join(build, "simgpu", name), f"simgpu/{name}")
    for library in sorted(libraries):
        name = os.path.basename(library)
        if name not in SIM_LIBS:
            # The loader's own place is part of each program.
            archive.add_program(library, library.lstrip("/") if "ld-linux" in name else f"lib/{name}")
    archive.write(path)


# --- running and judging ----------------------------------------------------------------------------


def boot(kernel, initramfs):
    """Everything that came over the serial line."""
    command = [QEMU, "-accel", "tcg", "-cpu", "max", "-m", str(MEMORY_MIB), "-smp", "1", "-nographic", "-no-reboot",
               "-nic", "none", "-kernel", kernel, "-initrd", initramfs,
               "-append", "console=ttyS0 quiet panic=-1 random.trust_cpu=on"]
    try:
        got = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, check=False, timeout=LIMIT_S)
        return got.stdout.decode(errors="replace")
    except subprocess.TimeoutExpired as e:
        text = (e.stdout or b"").decode(errors="replace")
        raise Failure(f"not done within {LIMIT_S} s; it said last:\n{text[-3000:]}") from None


def ops_of_symbols():
    names, by_symbol = {}, {}
    with open(os.path.join(TOP, "agent", "probe", "ops.def"), encoding="utf-8") as f:
        for m in re.finditer(r'^LTN_(OP|SYMBOL)\((\w+), (?:"(\w+)"|\w+, "(\w+)")', f.read(), re.M):
            if m[1] == "OP":
                names[m[2]] = m[3]
            else:
                by_symbol[m[4]] = names[m[2]]
    return by_symbol


class Said:
    """The lines "VM ..." of the machine."""

    def __init__(self, text):
        self.lines = [m[1].rstrip("\r") for m in re.finditer(r"^.*?VM (.*)$", text, re.M)]

    def all(self, what):
        return [x[len(what) + 1:] for x in self.lines if x.startswith(what + " ")]

    def one(self, what):
        found = self.all(what)
        if len(found) != 1:
            raise Failure(f"{len(found)} lines of '{what}'")
        return found[0]


def require(ok, what):
    if not ok:
        raise Failure(what)


def rows(text):
    """Rows of `lanterne query --json`, by column."""
    got = json.loads(text)
    return [dict(zip(got["columns"], row)) for row in got["rows"]]


def check_counts(said):
    by_symbol = ops_of_symbols()
    want = {}
    for line in said.all("tally"):
        for symbol, count in json.loads(line.split(" ", 1)[1]).items():
            if symbol in by_symbol:
                want[by_symbol[symbol]] = want.get(by_symbol[symbol], 0) + count
    ops = {r["op"]: r for r in rows(said.one("ops"))}
    got = {name: r["calls"] for name, r in ops.items()}
    require(want.get("cudaLaunchKernel", 0) >= 8000, f"the programs made few launches: {want}")
    require(got == want, f"counted {got}, called {want}")
    untimed = {n: (r["calls"], r["returns"]) for n, r in ops.items() if r["calls"] != r["returns"]}
    require(not untimed, f"calls without a return: {untimed}")
    sync = ops["cudaStreamSynchronize"] if "cudaStreamSynchronize" in ops else ops["cudaDeviceSynchronize"]
    require(0 < sync["off_cpu_ns"] <= sync["duration_ns"], f"no time off the CPU: {sync}")
    return sum(want.values())


def judge(text):
    said = Said(text)
    require(said.all("result"), f"it never came to the end; it said last:\n{text[-3000:]}")
    require(said.one("result") == "done", f"result {said.one('result')}:\n" + "\n".join(said.lines[-30:]))
    require(said.one("yama") != "none" and said.one("yama_now") == "3", "Yama is not there or cannot be set")
    failed = [x for x in said.all("check") if x.startswith("FAIL")]
    require(not failed, f"check: {failed}")
    require(said.one("check_exit") == "0", f"check ended with {said.one('check_exit')}")
    require({x.split()[1] for x in said.all("exit")} == {"0"}, f"programs ended with {said.all('exit')}")
    require(said.one("links") == "perf" and sorted(said.all("refused")) == ["multi 3", "session 3"],
            f"links {said.one('links')}, refused {said.all('refused')}")
    calls = check_counts(said)
    health = rows(said.one("health"))[0]
    drops = json.loads(health["drops"])
    require(not any(drops.values()), f"drops: {drops}")
    require(health["records_emitted"] == health["records_read"], f"records: {health}")
    require(rows(said.one("procs"))[0]["n"] == len(said.all("tally")), "a process whose end was not seen")
    require(said.one("agent_exit") == "0", f"the agent ended with {said.one('agent_exit')}")
    return said, calls


def require_tools(build):
    if shutil.which(QEMU) is None:
        raise Skip(f"needs {QEMU} (package qemu-system-x86)")
    if not os.access(BUSYBOX, os.X_OK) or needed_or_none(BUSYBOX):
        raise Skip("needs a static busybox (package busybox-static)")
    for path in ("bin/lanterne", "bin/simtrain", *(f"simgpu/{n}" for n in SIM_LIBS)):
        if not os.path.exists(os.path.join(build, path)):
            raise Failure(f"{path} is not built in {build}")


def needed_or_none(program):
    got = subprocess.run(["ldd", program], capture_output=True, text=True, check=False)
    return "=>" in got.stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(TOP, "build", "dev"))
    parser.add_argument("--keep", action="store_true", help="show all that the machine said")
    options = parser.parse_args()
    from_s = time.monotonic()
    try:
        require_tools(options.build)
        kernel = find_kernel()
        with tempfile.TemporaryDirectory() as tmp:
            initramfs = os.path.join(tmp, "initramfs")
            make_initramfs(options.build, initramfs)
            size = os.path.getsize(initramfs)
            text = boot(kernel, initramfs)
        if options.keep:
            print(text)
        said, calls = judge(text)
    except Skip as e:
        print(f"SKIP: {e}")
        return 77
    except Failure as e:
        print(f"FAILED: {e}")
        return 1
    print(f"kernel {said.one('kernel')}, links {said.one('links')}, yama 3, {calls} calls counted exactly, initramfs"
          f" {size >> 20} MiB, {time.monotonic() - from_s:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
