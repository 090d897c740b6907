#!/usr/bin/python3
"""Counts meson's test logs. Usage: count_results.py [--failed] TESTLOG.json...

A log X-again.json, if it stands beside X.json, holds a second try of tests that failed in it: tests
of programs that spin can fail on a machine that others load. They are named in the output.

The last line is "N passed, N failed, N skipped". Exit 1 if a test failed, if nothing ran, or if
the programs of the e2e suite could not run on the fabric, which needs no rights. With --failed only
the names of the failed tests are printed, a line each.
"""

import json
import sys
from pathlib import Path

PASSED = {"OK", "EXPECTEDFAIL"}
SKIPPED = {"SKIP"}


def read_log(path):
    """name: result, of one log."""
    with open(path, encoding="utf-8") as log:
        return {entry["name"]: entry["result"] for entry in map(json.loads, filter(str.strip, log))}


def results(paths):
    """(name, result) of all logs, the second try's where there was one."""
    for path in paths:
        first = read_log(path)
        again = Path(path).with_name(Path(path).stem + "-again.json")
        second = read_log(again) if again.exists() else {}
        for name in second:
            print(f"again    {name}: {first[name]}, then {second[name]}")
        yield from (first | second).items()


def main():
    if sys.argv[1] == "--failed":
        for name, result in results(sys.argv[2:]):
            if result not in PASSED | SKIPPED:
                print(name.split(" / ")[-1])  # meson's log says "project:suite / name"
        return
    passed, failed, skipped, e2e_fabric = [], [], [], []
    for name, result in results(sys.argv[1:]):
        if result in PASSED:
            passed.append(name)
        elif result in SKIPPED:
            skipped.append(name)
        else:
            failed.append(f"{name}: {result}")
        if "e2e fabric" in name:
            e2e_fabric.append(result)
    for name in skipped:
        print(f"skipped  {name}")
    for name in failed:
        print(f"failed   {name}")
    wrong = bool(failed) or not passed
    if not e2e_fabric or any(result in SKIPPED for result in e2e_fabric):
        print("programs of the e2e suite could not run on the fabric: that counts as failure")
        wrong = True
    print(f"{len(passed)} passed, {len(failed)} failed, {len(skipped)} skipped")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
