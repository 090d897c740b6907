#!/usr/bin/python3
"""Benchmarks Debian's perftest over both wires beside the raw wire and TCP of the same run.

usage: programs_bench.py --build BUILD --raw-fabric PROGRAM --raw-ethdev PROGRAM [--runs N]
                         [--wire fabric|ethdev]

Every round measures everything once, in turn, so that drift of a shared machine hits all alike; the
table shows medians over the rounds, and medians of the ratios within a round."""

import argparse
import json
import re
import statistics
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "e2e"))

from harness import (  # noqa: E402
    EthdevWorld, FabricWorld, Program, Skipped, Stage, free_port, require)

RAW_STREAM = r"raw \w+ wire[,:]\s+{size} (?:B frames|bytes):.*?([\d.]+) {unit}"
RAW_TRIP = r"raw \w+ wire[,:]\s+64 (?:B|bytes:) round trip:? ([\d.]+) us"

# name: program, options, column of perftest's row, factor to the unit, unit
PROGRAMS = {
    "ib_write_bw 64 KiB": ("ib_write_bw", "-s 65536 -n 20000", 3, 8 * 1.048576e-3, "Gbit/s"),
    "ib_write_bw 4 KiB": ("ib_write_bw", "-s 4096 -n 200000", 3, 8 * 1.048576e-3, "Gbit/s"),
    "ib_read_bw 64 KiB": ("ib_read_bw", "-s 65536 -n 20000", 3, 8 * 1.048576e-3, "Gbit/s"),
    "ib_read_bw 4 KiB": ("ib_read_bw", "-s 4096 -n 100000", 3, 8 * 1.048576e-3, "Gbit/s"),
    "ib_write_bw 8 B, list of 32": ("ib_write_bw", "-s 8 -l 32 -n 1600000", 4, 1.0, "Mmsg/s"),
    # perftest's send and write latencies are half round trips; READ's is a whole one.
    "ib_send_lat 2 B": ("ib_send_lat", "-s 2 -n 50000", 4, 1.0, "us"),
    "ib_read_lat 2 B": ("ib_read_lat", "-s 2 -n 50000", 4, 1.0, "us"),
    "ib_write_lat 2 B": ("ib_write_lat", "-s 2 -n 20000", 4, 1.0, "us"),
}
ETHDEV_SHARE = 10  # AF_PACKET is slower: fewer iterations

# row: numerator, denominator, target of the ratio (None: no target), True if more is better
RATIOS = [
    ("ib_write_bw 64 KiB", "raw 4154 B", 0.6, True),
    ("ib_read_bw 64 KiB", "raw 4154 B", None, True),
    ("ib_write_bw 64 KiB", "TCP", 1.0, True),
    ("ib_send_lat 2 B", "half raw round trip", 2.2, False),
    ("ib_read_lat 2 B", "raw round trip", 2.2, False),
]


def fewer(options, share):
    return re.sub(r"-n (\d+)", lambda found: f"-n {int(found[1]) // share}", options)


def run_perftest(world, program, options):
    port = free_port()
    words = [program, "-d", "uroce0", "-F", "-p", port, *options.split()]
    server = world.start(0, *words)
    server.wait_listening(port)
    client = world.start(1, *words, world.address).expect(0)
    server.expect(0)
    size = options.split()[options.split().index("-s") + 1]
    rows = [line.split() for line in client.stdout().splitlines() if line.split()[:1] == [size]]
    require(len(rows) == 1, f"no result: {client}")
    return [float(field) for field in rows[0]]


def run_raw(world, program):
    """Gbit/s of 4154-byte frames, Mpps of 64-byte frames and the round trip in us."""
    raw = world.start_raw(0, [world.readable_copy(program)]) if world.name == "fabric" else \
        start_here(world, [program])
    raw.expect(0, seconds=120)
    text = raw.stdout()

    def figure(pattern):
        found = re.search(pattern, text)
        require(found, f"no {pattern} in {text}")
        return float(found[1])

    trip = figure(RAW_TRIP)
    return {"raw 4154 B": figure(RAW_STREAM.format(size=4154, unit="Gbit/s")),
            "raw 64 B": figure(RAW_STREAM.format(size=64, unit="Mpps")),
            "raw round trip": trip, "half raw round trip": trip / 2}


def start_here(world, argv):
    """A program that makes its own namespaces."""
    program = Program(argv, world.environment())
    world.programs.append(program)
    return program


def run_tcp(world):
    port = free_port()
    server = world.start_raw(0, ["iperf3", "-s", "-1", "-p", str(port)])
    server.wait_listening(port)
    client = world.start_raw(1, ["iperf3", "-c", world.address, "-p", str(port), "-t", "2", "-J"])
    client.expect(0)
    server.wait()
    return json.loads(client.stdout())["end"]["sum_received"]["bits_per_second"] / 1e9


def measure_round(world, raw_program):
    values = run_raw(world, raw_program)
    values["TCP"] = run_tcp(world)
    for name, (program, options, column, factor, _) in PROGRAMS.items():
        share = 1 if world.name == "fabric" else ETHDEV_SHARE
        values[name] = run_perftest(world, program, fewer(options, share))[column] * factor
    return values


def units():
    table = {name: row[4] for name, row in PROGRAMS.items()}
    return table | {"raw 4154 B": "Gbit/s", "raw 64 B": "Mpps", "raw round trip": "us",
                    "half raw round trip": "us", "TCP": "Gbit/s"}


def print_table(wire, rounds):
    print(f"\n{wire}: medians of {len(rounds)} rounds (least … most)")
    for name, unit in units().items():
        values = [values[name] for values in rounds]
        print(f"  {name:<30}{statistics.median(values):>10.2f} {unit:<8}"
              f"({min(values):.2f} … {max(values):.2f})")
    print(f"{wire}: ratios within a round")
    for above, below, target, more in RATIOS:
        ratios = [values[above] / values[below] for values in rounds]
        median = statistics.median(ratios)
        goal = "" if target is None else f"goal {'>=' if more else '<='} {target}: " + (
            "reached" if (median >= target) == more or median == target else "missed")
        print(f"  {above + ' / ' + below:<48}{median:>6.2f}  "
              f"({min(ratios):.2f} … {max(ratios):.2f})  {goal}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--raw-fabric", required=True)
    parser.add_argument("--raw-ethdev", required=True)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--wire", choices=["fabric", "ethdev"])
    options = parser.parse_args()
    stage = Stage(options.build)
    try:
        for world_class, raw in ((FabricWorld, options.raw_fabric),
                                 (EthdevWorld, options.raw_ethdev)):
            if options.wire not in (None, world_class.name):
                continue
            try:
                with world_class(stage) as world:
                    rounds = [measure_round(world, raw) for _ in range(options.runs)]
            except Skipped as why:
                print(f"\n{world_class.name}: skipped: {why}")
                continue
            print_table(world_class.name, rounds)
    finally:
        stage.remove_if_alone()


if __name__ == "__main__":
    main()
