#!/usr/bin/python3
"""The linter finds what it is there for: each rule gets a tree with one planted violation."""

import sys
import tempfile
from pathlib import Path

import lint

LONG_FUNCTION = "// A test.\nvoid f(int a) {\n" + "  a += 1;\n" * 80 + "}\n"
LONG_METHOD = "// A test.\nclass C {\n  int f(int a) const {\n" + "    a += 1;\n" * 80 + "  }\n};\n"
SHORT_FUNCTIONS = "// A test.\n" + "void f(int a) {\n  a += 1;\n}\n" * 40

# rule, file, text, what the message must say (None: nothing may be found)
PLANTED = [
    ("layers", "transport/a.cpp", '#include "datapath/wire.hpp"\n', "transport may not include"),
    ("layers", "transport/a.cpp", "#include <sys/socket.h>\n", "transport may not include"),
    ("layers", "icrc/a.cpp", "#include <fmt/format.h>\n", "icrc may not include"),
    ("layers", "provider/a.cpp", '#include "icrc/icrc.hpp"\n', "provider may not include icrc"),
    ("layers", "datapath/a.cpp", '#include "wire.hpp"\n', '"folder/file.hpp"'),
    ("layers", "transport/a.cpp", "#include <fmt/format.h>\n#include <array>\n", None),
    ("layers", "icrc/a.cpp", "#include <immintrin.h>\n", None),
    ("words", "transport/a.cpp", "int x = rte_eth_dev_count_avail();\n", "rte_eth_dev"),
    ("words", "datapath/a.cpp", "ibv_get_device_list(nullptr);\n", "ibv_get_device_list"),
    ("words", "provider/a.cpp", "#include <iostream>\n", "no iostream"),
    ("words", "datapath/a.cpp", 'printf("x");\n', "no iostream or printf"),
    ("words", "datapath/a.cpp", '// ibv_get_device_list() and printf("") as IBTA says\n', None),
    ("words", "transport/a.cpp", 'auto text = "ibv_post_send(x)";\n', None),
    ("sizes", "tools/a.cpp", "int a;\n" * 501, "501 lines"),
    ("sizes", "tools/a.cpp", "int a;\n" * 500, None),
    ("sizes", "tools/a.cpp", "// " + "x" * 98 + "\n", "101 columns"),
    ("functions", "tools/a.cpp", LONG_FUNCTION, "function of 82 lines"),
    ("functions", "tools/a.cpp", LONG_METHOD, "function of 82 lines"),
    ("functions", "tools/a.cpp", SHORT_FUNCTIONS, None),
    ("text", "tools/a.cpp", "int a;\n", "the first line"),
    ("text", "tools/a.cpp", "// A test.\n// see /home/me/x\n", "a path of one machine"),
    ("text", "tools/a.cpp", "// A test.\n// TO" + "DO later\n", "unfinished"),
    ("text", "tools/a.cpp", "// A test. \n", "space at the end"),
    ("text", "tools/a.cpp", "// A test.\nint a;", "no newline"),
    ("text", "tools/a.cpp", "// A test.\n", None),
    ("format", "tools/a.cpp", "int  a ;\n", "clang-format"),
    ("format", "tools/a.cpp", "int a;\n", None),
]


def check(rule, name, text, expected):
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        path = root / name
        path.parent.mkdir(parents=True)
        path.write_text(text, encoding="utf-8")
        found = list(lint.violations(root, [rule]))
    if expected is None:
        return None if not found else f"found in clean text: {found}"
    if not any(expected in line and line.startswith(name) for line in found):
        return f"expected '{expected}', found {found}"
    return None


def main():
    failures = 0
    for rule, name, text, expected in PLANTED:
        if rule == "format" and not lint.shutil.which("clang-format"):
            continue
        problem = check(rule, name, text, expected)
        if problem:
            failures += 1
            print(f"{rule}: {text[:60]!r}: {problem}")
    print(f"{len(PLANTED)} planted cases, {failures} wrong")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
