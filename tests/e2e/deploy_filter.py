# SPDX-License-Identifier: Apache-2.0
"""Runs a command under a unit's SystemCallFilter=: deploy_filter.py "LINE" ["LINE"...] -- COMMAND...

The groups (@system-service, ...) are those of the installed systemd; the filter is made by libseccomp, as systemd
makes it. What is not allowed gets EPERM."""

import ctypes
import ctypes.util
import errno
import os
import subprocess
import sys

SCMP_ACT_ALLOW = 0x7FFF0000
SCMP_ACT_ERRNO = 0x00050000
PR_SET_NO_NEW_PRIVS = 38


def members(group):
    """Names of the system calls of a group, and of the groups in it."""
    text = subprocess.run(["systemd-analyze", "syscall-filter", "--no-pager", group], check=True,
                          capture_output=True, text=True).stdout
    names = set()
    for line in text.splitlines()[1:]:
        word = line.strip()
        if word and not word.startswith("#"):
            names |= members(word) if word.startswith("@") else {word}
    return names


def allowed(lines):
    """What is allowed by SystemCallFilter= lines of which the first is an allow list."""
    names = members("@default")
    for line in lines:
        takes_away = line.startswith("~")
        for word in line.lstrip("~").split():
            group = members(word) if word.startswith("@") else {word}
            names = names - group if takes_away else names | group
    return names


def load(names):
    lib = ctypes.CDLL("libseccomp.so.2", use_errno=True)
    lib.seccomp_init.restype = ctypes.c_void_p
    context = ctypes.c_void_p(lib.seccomp_init(ctypes.c_uint32(SCMP_ACT_ERRNO | errno.EPERM)))
    count = 0
    for name in sorted(names):
        number = lib.seccomp_syscall_resolve_name(name.encode())
        if number >= 0:
            rc = lib.seccomp_rule_add(context, ctypes.c_uint32(SCMP_ACT_ALLOW), number, 0)
            assert rc == 0, (name, rc)
            count += 1
    assert count > 100, count
    assert ctypes.CDLL(None).prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
    assert lib.seccomp_load(context) == 0


def main():
    at = sys.argv.index("--")
    load(allowed(sys.argv[1:at]))
    os.execv(sys.argv[at + 1], sys.argv[at + 1:])


if __name__ == "__main__":
    main()
