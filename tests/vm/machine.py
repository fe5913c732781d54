#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A virtual machine with Debian's 6.1 kernel and this machine's files, read-only.

    tests/vm/machine.py COMMAND...      boots, runs the command inside, shows what the serial line said
"""

import glob
import os
import re
import shlex
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.realpath(__file__))
SOURCE_DIR = os.path.realpath(os.path.join(HERE, "..", ".."))
BUILD_DIR = os.environ.get("LTN_BUILD_DIR", os.path.join(SOURCE_DIR, "build", "dev"))
SERIES = "6.1"
MODULES = ("virtio/virtio", "virtio/virtio_ring", "virtio/virtio_pci", "virtio/virtio_pci_modern_dev",
           "virtio/virtio_pci_legacy_dev", "netfs/netfs", "fscache/fscache", "9p/9pnet", "9p/9pnet_virtio",
           "9p/9p", "overlayfs/overlay")


class CannotRun(Exception):
    """What is missing here."""


def need(command, package):
    path = shutil.which(command)
    if path is None:
        raise CannotRun(f"needs {command} (package {package})")
    return path


def package_file(folder):
    """The kernel's package: named by the user, fetched before, or fetched now."""
    named = os.environ.get("LTN_VM_KERNEL")
    if named:
        return named
    need("apt-get", "apt")
    depends = subprocess.run(["apt-cache", "depends", "linux-image-amd64"], capture_output=True, text=True,
                             check=False).stdout
    found = re.search(rf"Depends: (linux-image-{re.escape(SERIES)}\.\S+)", depends)
    if not found:
        raise CannotRun(f"needs a package linux-image-{SERIES}.*, which apt does not offer here")
    have = glob.glob(os.path.join(folder, f"{found[1]}_*.deb"))
    if have:
        return have[0]
    got = subprocess.run(["apt-get", "download", found[1]], cwd=folder, capture_output=True, text=True, check=False,
                         timeout=300)
    have = glob.glob(os.path.join(folder, f"{found[1]}_*.deb"))
    if got.returncode != 0 or not have:
        raise CannotRun(f"cannot download {found[1]}: {got.stderr.strip()[-200:]}")
    return have[0]


def unpack(package, folder):
    """Kernel and modules; returns their folder."""
    need("dpkg-deb", "dpkg")
    out = os.path.join(folder, os.path.basename(package)[:-len(".deb")])
    if not os.path.exists(out):
        part = out + ".part"
        shutil.rmtree(part, ignore_errors=True)
        subprocess.run(["dpkg-deb", "-x", package, part], check=True)
        os.rename(part, out)
    return out


def the_one(pattern):
    found = glob.glob(pattern, recursive=True)
    if len(found) != 1:
        raise CannotRun(f"the kernel's package has {len(found)} files {os.path.basename(pattern)}")
    return found[0]


def make_initramfs(kernel, script, folder):
    """busybox, the modules for the host's files, init, and the script that init runs."""
    root = os.path.join(folder, "initramfs")
    shutil.rmtree(root, ignore_errors=True)
    for name in ("bin", "modules", "proc", "sys", "dev"):
        os.makedirs(os.path.join(root, name))
    shutil.copy(need("busybox", "busybox-static"), os.path.join(root, "bin", "busybox"))
    for module in MODULES:
        shutil.copy(the_one(os.path.join(kernel, "lib/modules/*/kernel/**", module.split("/")[0], "**",
                                         module.split("/")[1] + ".ko")), os.path.join(root, "modules"))
    shutil.copy(os.path.join(HERE, "init"), os.path.join(root, "init"))
    os.chmod(os.path.join(root, "init"), 0o755)
    with open(os.path.join(root, "run.sh"), "w", encoding="utf-8") as f:
        f.write(script)
    names = subprocess.run(["find", ".", "-print0"], cwd=root, capture_output=True, check=True).stdout
    image = os.path.join(folder, "initramfs.cpio")
    with open(image, "wb") as out:
        subprocess.run(["busybox", "cpio", "-0", "-o", "-H", "newc"], cwd=root, input=names, stdout=out,
                       stderr=subprocess.DEVNULL, check=True)
    return image


def boot(script, timeout_s=900):
    """Runs the shell script in the guest, as root; returns what the serial line said."""
    qemu = need("qemu-system-x86_64", "qemu-system-x86")
    if os.geteuid() != 0:
        raise CannotRun("needs root, to read the files that tests use")
    folder = os.path.join(BUILD_DIR, "vm")
    os.makedirs(folder, exist_ok=True)
    kernel = unpack(package_file(folder), folder)
    image = make_initramfs(kernel, script, folder)
    command = [qemu, "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", "2G", "-nic", "none", "-display", "none",
               "-monitor", "none", "-serial", "stdio", "-no-reboot", "-kernel", the_one(f"{kernel}/boot/vmlinuz-*"),
               "-initrd", image, "-append", "console=ttyS0 loglevel=3 panic=-1 mitigations=off",
               "-virtfs", "local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap"]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=timeout_s, check=False)
        said = done.stdout
    except subprocess.TimeoutExpired as e:
        said = (e.stdout or b"") + f"\nVM: still running after {timeout_s} s\n".encode()
    return said.decode("utf-8", "replace").replace("\r", "")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    try:
        print(boot(f"cd {shlex.quote(os.getcwd())}\n" + " ".join(sys.argv[1:]) + "\n"))
    except CannotRun as e:
        sys.exit(f"machine.py: {e}")
