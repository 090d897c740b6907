#!/usr/bin/python3
"""Prints the build targets that the tests of some suites need.

Usage: targets_of_suites.py BUILD SUITE..."""

import json
import os
import subprocess
import sys


def introspect(build, what):
    return json.loads(subprocess.run(["meson", "introspect", build, f"--{what}"], check=True,
                                     capture_output=True, text=True).stdout)


def main():
    build, suites = os.path.abspath(sys.argv[1]), set(sys.argv[2:])
    needed = set()
    for test in introspect(build, "tests"):
        if suites & {suite.split(":")[-1] for suite in test["suite"]}:
            needed |= set(test["depends"])
    for target in introspect(build, "targets"):
        if target["id"] in needed:
            for file in target["filename"]:
                print(os.path.relpath(file, build))


if __name__ == "__main__":
    main()
