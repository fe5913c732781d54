#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Every command line of ours in README.md and docs/: its subcommand and its flags must be ones that the program's --help names.

Looked at are lines of fenced blocks that begin with a program of ours, also behind variables, `sudo`, `$` and pipes, and
code in running text. usage: test_doc_commands.py FOLDER_OF_PROGRAMS
"""

import functools
import glob
import os
import re
import shlex
import subprocess
import sys
import unittest

TOP = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", ".."))
BIN_DIR = os.path.join(TOP, "build", "dev", "bin")
PROGRAMS = {"lanterne": lambda: os.path.join(BIN_DIR, "lanterne"),
            "lanterne-collector": lambda: os.path.join(BIN_DIR, "lanterne-collector"),
            "scripts/quickstart": lambda: os.path.join(TOP, "scripts", "quickstart"),
            "scripts/test": lambda: os.path.join(TOP, "scripts", "test"),
            "scripts/install-deps": lambda: os.path.join(TOP, "scripts", "install-deps")}
SUBCOMMANDS = {"lanterne": r"^  ([a-z]+)  ", "lanterne-collector": r"lanterne-collector ([a-z]+)"}
WORDS = {"help", "version"}  # are subcommands everywhere
START = re.compile(r"^(?:\$ |sudo |[A-Z_]+=\S+ )*(" + "|".join(map(re.escape, PROGRAMS)) + r")(?=\s|$)")
FENCE = re.compile(r"^```[^\n]*\n(.*?)^```", re.M | re.S)
SPAN = re.compile(r"`([^`]+)`")


@functools.lru_cache(maxsize=None)
def help_of(program, subcommand):
    command = [PROGRAMS[program](), *([subcommand] if subcommand else []), "--help"]
    got = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
    assert got.returncode == 0, f"{command}: {got.stderr}"
    return got.stdout


def commands(text):
    """(line number, words) of each command of ours in the text of a page."""
    text = re.sub(r"\\\n", "  ", text)
    pieces = [(m.start(1), line) for m in FENCE.finditer(text) for line in m.group(1).splitlines()]
    plain = FENCE.sub(lambda m: "\n" * m.group(0).count("\n"), text)
    pieces += [(m.start(), re.sub(r"\s+", " ", m.group(1))) for m in SPAN.finditer(plain)]
    for at, piece in pieces:
        for part in re.split(r"&& |\| ", piece):
            m = START.match(part.strip())
            if not m:
                continue
            lexer = shlex.shlex(part.strip()[m.start(1):], posix=True, punctuation_chars="|;&<>")
            lexer.whitespace_split = True
            try:
                words = list(lexer)
            except ValueError:  # a quotation that goes on in the next line
                words = part.strip()[m.start(1):].split()
            for i, word in enumerate(words):
                if word[0] in "|;&<>":
                    words = words[:i]
                    break
            yield text.count("\n", 0, at) + 1, words


def complaint(words):
    """What is wrong with a command, or None."""
    program, args = words[0], words[1:]
    subcommand = None
    if program in SUBCOMMANDS and args and not args[0].startswith("-"):
        subcommand = args[0]
        if not re.fullmatch(r"[a-z][a-z-]*", subcommand):
            return None  # a placeholder, or the output of a program
        if subcommand not in WORDS | set(re.findall(SUBCOMMANDS[program], help_of(program, None), re.M)):
            return f"{program} has no subcommand {subcommand}"
        if subcommand in WORDS:
            return None
    known = set(re.findall(r"(?<![\w-])--?[A-Za-z][\w-]*", help_of(program, subcommand))) | {"--help"}
    for arg in args:
        flag = arg.split("=", 1)[0]
        if not re.fullmatch(r"--?[A-Za-z][\w-]*", flag):
            continue
        if flag not in known and flag.replace("--no-", "--", 1) not in known:
            return f"{program} {subcommand or ''} does not know {flag}"
    return None


class DocCommands(unittest.TestCase):
    def test_pages(self):
        found = 0
        for path in [os.path.join(TOP, "README.md"), *sorted(glob.glob(os.path.join(TOP, "docs", "**", "*.md"),
                                                                      recursive=True))]:
            with open(path, encoding="utf-8") as f:
                text = f.read()
            for line, words in commands(text):
                found += 1
                with self.subTest(f"{os.path.relpath(path, TOP)}: {' '.join(words)}"):
                    self.assertIsNone(complaint(words))
        self.assertGreater(found, 60)

    def test_the_tour_is_read(self):
        with open(os.path.join(TOP, "docs", "tour.md"), encoding="utf-8") as f:
            seen = {" ".join(w[:2]) for _, w in commands(f.read())}
        for want in ("scripts/quickstart --keep", "lanterne-collector status", "lanterne explain", "lanterne query",
                     "lanterne merge", "lanterne export", "lanterne demo"):
            self.assertIn(want, seen)

    def test_what_is_wrong_is_found(self):
        for command, wrong in (("lanterne explain --db x --nonsense", True), ("lanterne frobnicate", True),
                               ("LANTERNE_DB=x lanterne query --collector u \\\n  \"SELECT --1\" --reduse y", True),
                               ("lanterne-collector status --db x", True), ("scripts/quickstart --kep", True),
                               ("true | lanterne explain --lost 1 | less --foo", True),
                               ("lanterne explain --last 1 -p 3 | less --foo", False),
                               ("lanterne trace --no-record --duration=3s", False)):
            got = [complaint(w) for _, w in commands(f"x\n\n```\n{command}\n```\n")]
            self.assertEqual([c is not None for c in got], [wrong], (command, got))
            if "\n" not in command and "|" not in command:
                got = [complaint(w) for _, w in commands(f"Say `{command}` now.\n")]
                self.assertEqual([c is not None for c in got], [wrong], (command, got))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        BIN_DIR = os.path.realpath(sys.argv.pop(1))
    unittest.main()
