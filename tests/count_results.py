#!/usr/bin/python3
"""Counts meson's test logs. Usage: count_results.py TESTLOG.json...

The last line is "N passed, N failed, N skipped". Exit 1 if a test failed, if nothing ran, or if
the programs of the e2e suite could not run on the fabric, which needs no rights.
"""

import json
import sys

PASSED = {"OK", "EXPECTEDFAIL"}
SKIPPED = {"SKIP"}


def results(paths):
    for path in paths:
        with open(path, encoding="utf-8") as log:
            for line in log:
                if line.strip():
                    yield json.loads(line)


def main():
    passed, failed, skipped, e2e_fabric = [], [], [], []
    for result in results(sys.argv[1:]):
        name = result["name"]
        if result["result"] in PASSED:
            passed.append(name)
        elif result["result"] in SKIPPED:
            skipped.append(name)
        else:
            failed.append(f"{name}: {result['result']}")
        if "e2e fabric" in name:
            e2e_fabric.append(result["result"])
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
