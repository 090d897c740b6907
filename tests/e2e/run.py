#!/usr/bin/python3
"""Runs e2e scenarios. Usage: run.py --list | run.py --build FOLDER NAME...

Exit 0: passed, 1: failed, 77: skipped (this machine cannot run it; the reason is printed)."""

import argparse
import sys

import harness
import scenarios


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", action="store_true", help="print the scenarios' names")
    parser.add_argument("--build", default="build", help="the build folder (default: build)")
    parser.add_argument("names", nargs="*", metavar="NAME", help="a name or a part of it")
    arguments = parser.parse_args()
    known = scenarios.all_scenarios()
    if arguments.list:
        print("\n".join(known))
        return 0
    chosen = [name for name in known
              if any(name == word or (word not in known and word in name)
                     for word in arguments.names)]
    if not chosen:
        print(f"no scenario is called {arguments.names}; see --list")
        return 1
    stage = harness.Stage(arguments.build)
    status = 0
    for name in chosen:
        try:
            known[name](stage)
            print(f"passed   {name}")
        except harness.Skipped as reason:
            print(f"skipped  {name}: {reason}")
            status = status or harness.SKIP
        except harness.Failure as failure:
            print(f"FAILED   {name}: {failure}")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
