#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/check-src against small trees that break one rule each, and against one that breaks none."""

import os
import subprocess
import sys
import tempfile
import textwrap
import unittest

CHECK_SRC = os.path.join(os.path.dirname(__file__), "..", "..", "scripts", "check-src")
C = "/* SPDX-License-Identifier: Apache-2.0 */\n"
BPF = "/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */\n"
SH = "#!/usr/bin/env bash\n# SPDX-License-Identifier: Apache-2.0\n"
MARK = "TO" + "DO"
HOME = "/ro" + "ot/"


def header(guard, body="int ltn_x(void);\n"):
    return f"{C}#ifndef {guard}\n#define {guard}\n{body}#endif\n"


# A tree without a finding; each case changes or adds a file or two.
GOOD = {
    "README.md": "# x\n\nSee [base](common/base/README.md) and [below](#the-end).\n\n## The end\n",
    "common/base/README.md": "# base\n",
    "common/base/buf.h": header("LTN_BASE_BUF_H"),
    "common/base/buf.c": C + '#include "base/buf.h"\n\n#include <stdio.h>\n',
    "common/base/log.h": header("LTN_BASE_LOG_H"),
    "common/sql/README.md": "# sql\n",
    "common/sql/db.c": C + '#include <sqlite3.h>\n\n#include "base/buf.h"\n',
    "common/http/README.md": "# http\n",
    "common/http/h2.c": C + '#include <nghttp2/nghttp2.h>\n#include <zlib.h>\n#include "io/loop.h"\n',
    "agent/README.md": "# agent\n",
    "agent/main.c": C + '#include "cli/cli.h"\n#include "capture/drain.h"\n#include "base/log.h"\n',
    "agent/capture/README.md": "# capture\n",
    "agent/capture/drain.h": header("LTN_DRAIN_H"),
    "agent/capture/drain.c": C + '#include "capture/drain.h"\n#include "bpf/event.h"\n'
                                 '#include <bpf/libbpf.h>\n',
    "agent/cli/README.md": "# cli\n",
    "agent/cli/cli.h": header("LTN_CLI_H"),
    "agent/serve/README.md": "# serve\n",
    "agent/serve/api.h": header("LTN_AGENT_API_H"),
    "agent/serve/api.c": C + '#include "serve/api.h"\n#include "capture/drain.h"\n',
    "collector/README.md": "# collector\n",
    "collector/serve/README.md": "# serve\n",
    "collector/serve/api.c": C + '#include "serve/view.h"\n#include <jansson.h>\n',
    "collector/serve/view.h": header("LTN_VIEW_H"),
    "collector/straggler/README.md": "# straggler\n",
    "collector/straggler/detect.c": C + '#include "stats/robust.h"\n#include "base/buf.h"\n',
    "bpf/README.md": "# bpf\n",
    "bpf/event.h": BPF + "#ifndef E\n#define E\nstruct e;\n#endif\n",
    "bpf/call.bpf.c": BPF + '#include "bpf/event.h"\n',
    "tests/unit/README.md": "# unit\n",
    "tests/unit/test_x.c": C + '#include <sqlite3.h>\n#include "capture/drain.h"\n'
                               '/* the words system() and strcpy() in a comment, "sprintf(" too */\n'
                               'static const char text[] = "atoi(1)";\n'
                               'static const char path[] = "/proc/1/root/usr/lib";\n',
    "scripts/README.md": "# scripts\n",
    "scripts/run": SH + 'echo "fine"\n',
}

# (name, files that replace or add, rule that must speak, path it must name)
BAD = [
    ("no licence", {"common/base/a.c": "int x;\n"}, "spdx", "common/base/a.c"),
    ("wrong licence in bpf", {"bpf/event.h": C}, "spdx", "bpf/event.h"),
    ("dual licence elsewhere", {"common/base/a.c": BPF}, "spdx", "common/base/a.c"),
    ("script without licence", {"scripts/run": "#!/usr/bin/env bash\ntrue\n"}, "spdx", "scripts/run"),
    ("base includes http", {"common/base/a.c": C + '#include "http/h1.h"\n'}, "direction",
     "common/base/a.c"),
    ("siblings of a layer", {"common/sql/a.c": C + '#include "io/loop.h"\n'}, "direction",
     "common/sql/a.c"),
    ("common includes agent", {"common/http/a.c": C + '#include "agent/capture/drain.h"\n'},
     "direction", "common/http/a.c"),
    ("agent includes collector", {"agent/serve/a.c": C + '#include "collector/serve/view.h"\n'},
     "direction", "agent/serve/a.c"),
    ("collector includes agent", {"collector/serve/a.c": C + '#include "agent/cli/cli.h"\n'},
     "direction", "collector/serve/a.c"),
    ("collector includes bpf", {"collector/serve/a.c": C + '#include "bpf/event.h"\n'}, "direction",
     "collector/serve/a.c"),
    ("capture includes serve", {"agent/capture/a.c": C + '#include "serve/api.h"\n'}, "direction",
     "agent/capture/a.c"),
    ("serve includes cli", {"agent/serve/a.c": C + '#include "cli/cli.h"\n'}, "direction",
     "agent/serve/a.c"),
    ("room without a place", {"agent/odd/README.md": "# odd\n",
                              "agent/odd/a.c": C + '#include "capture/drain.h"\n'}, "direction",
     "agent/odd/a.c"),
    ("detector with input and output", {"collector/straggler/a.c": C + '#include "sql/db.h"\n'},
     "direction", "collector/straggler/a.c"),
    ("product includes tests", {"common/base/a.c": C + '#include "tests/unit/x.h"\n'}, "direction",
     "common/base/a.c"),
    ("simulator knows the agent", {"tests/simgpu/README.md": "# s\n", "tests/simgpu/a.c":
                                   C + '#include "agent/capture/drain.h"\n'}, "direction",
     "tests/simgpu/a.c"),
    ("bpf includes base", {"bpf/a.bpf.c": BPF + '#include "base/buf.h"\n'}, "direction",
     "bpf/a.bpf.c"),
    ("climbing include", {"agent/serve/a.c": C + '#include "../capture/drain.h"\n'}, "include",
     "agent/serve/a.c"),
    ("rooms in a ring", {"agent/probe/README.md": "# p\n",
                         "agent/probe/p.h": header("P", '#include "capture/drain.h"\n'),
                         "agent/capture/drain.h": header("D", '#include "probe/p.h"\n')}, "cycle",
     "agent/"),
    ("sqlite outside sql", {"agent/serve/a.c": C + "#include <sqlite3.h>\n"}, "header-owner",
     "agent/serve/a.c"),
    ("curl outside http", {"agent/serve/a.c": C + "#include <curl/curl.h>\n"}, "header-owner",
     "agent/serve/a.c"),
    ("libbpf outside probe", {"agent/serve/a.c": C + "#include <bpf/libbpf.h>\n"}, "header-owner",
     "agent/serve/a.c"),
    ("skeleton outside probe", {"agent/serve/a.c": C + '#include "call.skel.h"\n'}, "header-owner",
     "agent/serve/a.c"),
    ("generated protobuf", {"collector/serve/a.c": C + '#include "metrics.pb-c.h"\n'},
     "header-owner", "collector/serve/a.c"),
    ("jansson in base", {"common/base/a.c": C + "#include <jansson.h>\n"}, "header-owner",
     "common/base/a.c"),
    ("library logs", {"common/sql/a.c": C + '#include "base/log.h"\n'}, "log", "common/sql/a.c"),
    ("umbrella", {"common/base/all.h": header("ALL", '#include "base/buf.h"\n#include "base/log.h"\n')},
     "umbrella", "common/base/all.h"),
    ("long file", {"common/base/a.c": C + "int x;\n" * 1000}, "file-size", "common/base/a.c"),
    ("long function", {"common/base/a.c": C + "void f(void)\n{\n" + "    x();\n" * 101 + "}\n"},
     "function-size", "common/base/a.c"),
    ("starts a program", {"agent/discover/README.md": "# x\n",
                           "agent/discover/a.c": C + "void f(void)\n{\n    execve(p, a, e);\n}\n"}, "starts",
     "agent/discover/a.c"),
    ("loads a library", {"agent/engine/README.md": "# x\n",
                         "agent/engine/a.c": C + "void *p = dlopen(path, 2);\n"}, "starts", "agent/engine/a.c"),
    ("no readme", {"collector/ingest/a.c": C}, "readme", "collector/ingest/a.c"),
    ("mark", {"common/base/a.c": C + f"/* {MARK}: later */\n"}, "unfinished", "common/base/a.c"),
    ("mark in a document", {"README.md": f"# x\n\n{MARK}\n"}, "unfinished", "README.md"),
    ("path of a machine", {"scripts/run": SH + f"ls {HOME}x\n"}, "machine-path", "scripts/run"),
    ("path in quotes", {"common/base/a.c": C + f'char p[] = "{HOME}x";\n'}, "machine-path",
     "common/base/a.c"),
    ("broken bash", {"scripts/run": SH + "if true\n"}, "bash", "scripts/run"),
    ("careless bash", {"scripts/run": SH + 'rm -rf $1/x\n'}, "shellcheck", "scripts/run"),
    ("broken python", {"scripts/x.py": "# SPDX-License-Identifier: Apache-2.0\ndef f(:\n"}, "python",
     "scripts/x.py"),
    ("dead link", {"README.md": "[a](docs/none.md)\n"}, "link", "README.md"),
    ("dead heading", {"README.md": "# x\n[a](#nowhere)\n"}, "link", "README.md"),
    ("excuse without a reason", {"common/base/a.c": C + "/* check-src: allow banned: */\n"
                                                        "int y = atoi(s);\n"}, "banned",
     "common/base/a.c"),
    ("excuse of another rule", {"common/base/a.c": C + "/* check-src: allow spdx: because */\n"
                                                       "int y = atoi(s);\n"}, "banned",
     "common/base/a.c"),
] + [(f"banned {f}", {"common/base/a.c": C + f"int y = {f}(s);\n"}, "banned", "common/base/a.c")
     for f in ("strcpy strcat sprintf vsprintf strtok atoi atol sscanf gets alloca system "
               "popen").split()]

# Trees that look bad and are not.
FINE = [
    ("lookalikes", {"common/base/a.c": C + "my_system(x); x->system(y); x.popen(y); snprintf(a);\n"
                                           "fgets(a); strtok_r(a); fscanf(a);\n"}),
    ("excused", {"common/base/a.c": C + "/* check-src: allow banned: fixed text, see above */\n"
                                        "int y = atoi(s);\n"}),
    ("100 lines", {"common/base/a.c": C + "void f(void)\n{\n" + "    x();\n" * 100 + "}\n"}),
    ("1000 lines", {"common/base/a.c": C + "int x;\n" * 999}),
    ("code block in a document", {"README.md": "# x\n```\n[a](none.md)\n```\n`[b](none.md)`\n"}),
    ("other sites", {"README.md": "[a](https://example.org/none.md)\n"}),
    ("quote in a comment", {"common/base/a.c": C + "/* don't */\nint x;\n/* can't */\n"}),
]


class CheckSrc(unittest.TestCase):
    def findings(self, changes):
        with tempfile.TemporaryDirectory() as root:
            for path, text in {**GOOD, **changes}.items():
                full = os.path.join(root, path)
                os.makedirs(os.path.dirname(full), exist_ok=True)
                with open(full, "w", encoding="utf-8") as f:
                    f.write(text)
            got = subprocess.run([sys.executable, CHECK_SRC, "--root", root], capture_output=True,
                                 text=True, check=False)
            lines = got.stdout.splitlines()
            self.assertEqual(got.returncode, 1 if lines else 0, got.stderr)
            return lines

    def test_good_tree_has_no_finding(self):
        self.assertEqual(self.findings({}), [])

    def test_lookalikes_have_no_finding(self):
        for name, changes in FINE:
            with self.subTest(name):
                self.assertEqual(self.findings(changes), [])

    def test_each_rule_speaks_alone(self):
        for name, changes, rule, path in BAD:
            with self.subTest(name):
                lines = self.findings(changes)
                self.assertTrue(lines, "nothing was found")
                for line in lines:
                    found_path, _, found_rule, _ = textwrap.dedent(line).split(":", 3)
                    self.assertEqual(found_rule.strip(), rule, line)
                    self.assertTrue(found_path.startswith(path), line)


if __name__ == "__main__":
    unittest.main()
