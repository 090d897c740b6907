#!/usr/bin/python3
"""Checks the repository's own rules: layers, sizes, names that must not appear, format.

Usage: lint.py REPOSITORY [RULE]...    prints one line a violation; exit 1 if there is any.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

MAX_FILE_LINES = 500
MAX_LINE_COLUMNS = 100
MAX_FUNCTION_LINES = 70

LIBRARIES = ("icrc", "transport", "datapath", "provider")
FOLDERS = LIBRARIES + ("tools", "tests")
CPP = (".cpp", ".hpp")
CODE = CPP + (".py", ".sh")

# Which of our folders a folder may include (DESIGN: who may include whom).
MAY_INCLUDE = {
    "icrc": {"icrc"},
    "transport": {"transport"},
    "datapath": {"datapath", "transport", "icrc"},
    "provider": {"provider", "datapath", "transport"},
    "tools": {"tools", "provider", "datapath", "transport", "icrc"},
    "tests": set(FOLDERS),
}
# Which headers from elsewhere a folder may include, beside the standard library's.
MAY_USE = {
    "icrc": r"(immintrin|x86intrin|cpuid)\.h",
    "transport": r"fmt/.*",
    "datapath": None,
    "provider": None,
}
WORDS_ONLY_IN = {
    re.compile(r"\brte_\w+"): {"datapath", "tests"},
    re.compile(r"\b(ibv|verbs)_\w+\s*\("): {"provider", "tools", "tests"},
}
OUTPUT = re.compile(
    r"#include <(iostream|cstdio|stdio\.h)>|\b(f|s|sn|v|d)?printf\s*\(|std::c(out|err)\b")
MACHINE_PATH = re.compile(r"(/home/\w|/work/|/root/|\.\./shared)")
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")


def sources(root, suffixes):
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.is_file() and path.suffix in suffixes:
                yield folder, path, path.relative_to(root)


def numbered(path):
    return enumerate(path.read_text(encoding="utf-8").split("\n"), 1)


def without_comments(text):
    """The text with comments and string contents blanked, lines kept."""
    pattern = re.compile(
        r'//[^\n]*|/\*.*?\*/|R"\((.*?)\)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', re.S)

    def blank(match):
        token = match.group(0)
        if token.startswith(("//", "/*")):
            return "\n" * token.count("\n") or " "
        return '""' + "\n" * token.count("\n")

    return pattern.sub(blank, text)


def check_layers(root):
    include = re.compile(r'^\s*#include ([<"])([^>"]+)[>"]')
    for folder, path, name in sources(root, CPP):
        for number, line in numbered(path):
            match = include.match(line)
            if not match:
                continue
            kind, header = match.groups()
            top = header.split("/")[0]
            if kind == '"' or top in FOLDERS:
                if "/" not in header:
                    yield f'{name}:{number}: include "{header}" as "folder/file.hpp"'
                elif top in FOLDERS and top not in MAY_INCLUDE[folder]:
                    yield f"{name}:{number}: {folder} may not include {top}"
                continue
            allowed = MAY_USE.get(folder)
            if allowed is not None and not re.fullmatch(allowed, header):
                standard = re.fullmatch(r"[a-z_0-9]+", header)
                if not standard:
                    yield f"{name}:{number}: {folder} may not include <{header}>"


def check_words(root):
    for folder, path, name in sources(root, CPP):
        code = without_comments(path.read_text(encoding="utf-8"))
        for number, line in enumerate(code.split("\n"), 1):
            for pattern, allowed in WORDS_ONLY_IN.items():
                match = pattern.search(line)
                if match and folder not in allowed:
                    yield f"{name}:{number}: {match.group(0)} is not for {folder}"
            if folder in LIBRARIES and OUTPUT.search(line):
                yield f"{name}:{number}: no iostream or printf in {folder}: use fmt and the log"


def check_sizes(root):
    for _, path, name in sources(root, CODE + (".build",)):
        lines = path.read_text(encoding="utf-8").split("\n")
        count = len(lines) - (lines[-1] == "")
        if count > MAX_FILE_LINES:
            yield f"{name}: {count} lines, more than {MAX_FILE_LINES}"
        for number, line in enumerate(lines, 1):
            if len(line) > MAX_LINE_COLUMNS and path.suffix in CODE:
                yield f"{name}:{number}: {len(line)} columns, more than {MAX_LINE_COLUMNS}"


def check_functions(root):
    """A function is what clang-format leaves at its margin: a line that ends in `{` and is closed
    by a `}` of the same indentation; namespaces and types are looked through."""
    opener = re.compile(r"^(\s*)(.*\S)\s*\{$")
    transparent = re.compile(
        r"^(export |inline )?(namespace|struct|class|union|enum|extern|typedef)\b"
        r"|^template.*\b(struct|class)\b|[=,]$|^\{")
    for _, path, name in sources(root, CPP):
        lines = without_comments(path.read_text(encoding="utf-8")).split("\n")
        stack = []  # (indentation, first line) of candidate functions
        for number, line in enumerate(lines, 1):
            if stack:
                indent, start = stack[-1]
                if re.match(rf"^{indent}\}}", line):
                    stack.pop()
                    if number - start + 1 > MAX_FUNCTION_LINES:
                        yield (f"{name}:{start}: function of {number - start + 1} lines, "
                               f"more than {MAX_FUNCTION_LINES}")
                continue
            match = opener.match(line)
            if match and ")" in match.group(2) and not transparent.search(match.group(2)):
                if not match.group(2).startswith("TEST_CASE"):
                    stack.append((match.group(1), number))


def check_text(root):
    for _, path, name in sources(root, CODE + (".build", ".md", ".in")):
        if name.parts[:2] == ("tests", "lint"):
            continue  # it has to spell what it looks for
        lines = path.read_text(encoding="utf-8").split("\n")
        if path.suffix in CPP and not lines[0].startswith("//"):
            yield f"{name}:1: the first line says what the file is for"
        for number, line in enumerate(lines, 1):
            if MACHINE_PATH.search(line):
                found = MACHINE_PATH.search(line).group(0)
                yield f"{name}:{number}: a path of one machine: {found}"
            if UNFINISHED.search(line):
                yield f"{name}:{number}: unfinished: {UNFINISHED.search(line).group(0)}"
            if line != line.rstrip() and path.suffix != ".md":
                yield f"{name}:{number}: space at the end of the line"
        if lines[-1] != "":
            yield f"{name}: no newline at the end"


def check_format(root):
    tool = shutil.which("clang-format-14") or shutil.which("clang-format")
    files = [str(path) for _, path, _ in sources(root, CPP)]
    if not tool or not files:
        return
    run = subprocess.run([tool, "--dry-run", *files], capture_output=True, text=True, check=False)
    seen = set()
    for line in run.stderr.split("\n"):
        match = re.match(r"(.*?):(\d+):\d+: warning: code should be clang-formatted", line)
        if match and match.group(1) not in seen:
            seen.add(match.group(1))
            yield f"{Path(match.group(1)).relative_to(root)}:{match.group(2)}: run clang-format -i"


RULES = {
    "layers": check_layers,
    "words": check_words,
    "sizes": check_sizes,
    "functions": check_functions,
    "text": check_text,
    "format": check_format,
}


def violations(root, rules=tuple(RULES)):
    for rule in rules:
        yield from RULES[rule](root)


def main():
    root = Path(sys.argv[1]).resolve()
    found = list(violations(root, sys.argv[2:] or tuple(RULES)))
    for line in found:
        print(line)
    if "format" in (sys.argv[2:] or RULES) and not shutil.which("clang-format"):
        print("clang-format is not here")
        sys.exit(1 if found else 77)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
