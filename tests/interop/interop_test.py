#!/usr/bin/env python3
"""RC between uroce and the kernel's rdma_rxe, over DPDK and a virtual Ethernet. Prints TAP.

Usage: interop_test.py --image FOLDER --vecgen PROGRAM [--uroce PROGRAM] [--keep FOLDER] SCENARIO

    rxe       two guests talk to each other: shows that the peer and vecgen are right
    vecgen    uroce and a guest run vecgen in both roles, over IPv4 and IPv6, path MTU 1024 and 4096
    perftest  uroce and a guest run ib_write_bw, ib_read_bw and ib_send_bw in both roles

Each scenario ends with a look at the capture of all frames (capture.py): every ICRC is recomputed,
tshark finds no malformed packet, and both sides must really have sent RoCEv2 packets.
"""

import argparse
import ipaddress
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import capture
import peer

ETHERNET_MTU = 4200  # active MTU 4096
VECGEN_PORT = 7471
PERFTEST_PORT = 18515
PERFTEST_PROGRAMS = ("ib_write_bw", "ib_read_bw", "ib_send_bw")
FAMILIES = {"IPv4": 1, "IPv6": 0}  # GID index: v4-mapped address, link-local address
# Generous, for machines that are busy: nothing is timed here.
COMMAND_SECONDS = 240
GRACE_SECONDS = 20


class Report:
    """The lines of TAP."""

    def __init__(self):
        self.count = 0
        self.failed = 0

    def result(self, good, name, details=()):
        self.count += 1
        self.failed += not good
        print(f"{'ok' if good else 'not ok'} {self.count} - {name}", flush=True)
        self.notes(details)

    def notes(self, lines):
        for line in lines:
            if line:
                print("# " + line, flush=True)

    def finish(self):
        print(f"1..{self.count}", flush=True)
        return 1 if self.failed or self.count == 0 else 0


class Here:
    """Commands on our side, under `uroce run`."""

    def __init__(self, network, uroce):
        self.network = network
        self.uroce = uroce

    def run(self, command):
        log = tempfile.TemporaryFile(mode="w+")
        process = peer.start(
            self.network.here.command(
                [self.uroce, "run", "--netdev", peer.INTERFACE, "--", *command]),
            stdout=log, stderr=subprocess.STDOUT)
        return HereCommand(process, log)


class HereCommand:
    def __init__(self, process, log):
        self.process = process
        self.log = log

    def poll(self):
        return self.process.poll()

    def end(self):
        peer.end(self.process)

    def output(self):
        self.log.seek(0)
        return self.log.read()


def finish_both(report, name, server, client):
    """Both sides must end with status 0. Once one has failed, the other is not waited for long."""
    began = time.monotonic()
    deadline = began + COMMAND_SECONDS
    while True:
        outcomes = [client.poll(), server.poll()]
        if None not in outcomes or time.monotonic() > deadline:
            break
        if any(outcome not in (None, 0) for outcome in outcomes):
            deadline = min(deadline, time.monotonic() + GRACE_SECONDS)
        time.sleep(0.05)
    good = outcomes == [0, 0]
    details = []
    if not good:
        details.append(f"client ended with {outcomes[0]}, server with {outcomes[1]}")
        for side, command in (("client", client), ("server", server)):
            command.end()
            details += [f"{side}: {line}" for line in command.output().splitlines()[-40:]]
    report.result(good, f"{name} ({time.monotonic() - began:.1f} s)", details)


def counters(guest):
    """What the guest's rdma_rxe counted, as lines."""
    command = guest.run("rdma statistic show link rxe0/1")
    command.wait(COMMAND_SECONDS)
    return command.output().split("\n")


def judge_capture(report, name, path, sources):
    verdict = capture.Verdict(path)
    wanted = {ipaddress.ip_address(source).packed for source in sources}
    missing = wanted - set(verdict.sources)
    details = list(verdict.lines())
    details += [f"no packet from {source.hex()}" for source in missing]
    report.result(verdict.good() and not missing, name, details)


def vecgen(role, gid, mtu, parts, port, server=None):
    words = [role, "-g", gid, "-m", mtu, "-t", parts, "-p", port]
    return [str(word) for word in words + ([server] if server else [])]


def perftest(program, port, server=None):
    """Small enough for an emulated peer, large enough to be many packets."""
    words = [program, "-F", "-x", "1", "-u", "18", "-s", "65536", "-n", "100", "-p", str(port)]
    if program == "ib_read_bw":
        words += ["-o", "16"]  # perftest asks for what the peer can, rxe's 128: more than a QP has
    return words + ([server] if server else [])


def wait_guest_listens(guest, port):
    probe = guest.run(
        f"until [ -n \"$(ss -Hltn 'sport = :{port}')\" ]; do sleep 0.1; done")
    probe.wait(COMMAND_SECONDS)


def scenario_rxe(report, options, folder):
    network = peer.Network(ETHERNET_MTU)
    captures = [folder / "guest2.pcap", folder / "guest3.pcap"]
    guests = [peer.Guest(network, number, options.image, folder, path)
              for number, path in zip((2, 3), captures)]
    for guest in guests:
        report.notes(guest.wait_ready())
        guest.add_file(options.vecgen)
    port = VECGEN_PORT
    for family, gid in FAMILIES.items():
        for mtu in (1024, 4096):
            port += 1
            words = vecgen("s", gid, mtu, "rc,err", port)
            server = guests[0].run("./vecgen " + " ".join(words))
            words = vecgen("c", gid, mtu, "rc,err", port, guests[0].address)
            client = guests[1].run("./vecgen " + " ".join(words))
            finish_both(report, f"vecgen, rxe and rxe, {family}, path MTU {mtu}", server, client)
    for program in PERFTEST_PROGRAMS:
        port += 1
        server = guests[0].run(" ".join(perftest(program, port)))
        wait_guest_listens(guests[0], port)
        client = guests[1].run(" ".join(perftest(program, port, guests[0].address)))
        finish_both(report, f"{program}, rxe and rxe", server, client)
    for guest in guests:
        report.notes(counters(guest))
        guest.stop()
    judge_capture(report, "the capture is sound", captures[0],
                  [guest.address for guest in guests])
    network.close()


def start_guest(report, options, folder):
    """A network with one guest, and our side."""
    network = peer.Network(ETHERNET_MTU)
    guest = peer.Guest(network, 2, options.image, folder, folder / "guest.pcap")
    report.notes(guest.wait_ready())
    guest.add_file(options.vecgen)
    peer.wait_until(network.settled, 60, "addresses of our side")
    return network, guest, Here(network, options.uroce)


def scenario_vecgen(report, options, folder):
    network, guest, here = start_guest(report, options, folder)
    port = VECGEN_PORT
    for family, gid in FAMILIES.items():
        for mtu in (1024, 4096):
            port += 1
            words = vecgen("s", gid, mtu, "rc,err", port)
            server = guest.run("./vecgen " + " ".join(words))
            client = here.run([options.vecgen,
                               *vecgen("c", gid, mtu, "rc,err", port, guest.address)])
            finish_both(report, f"vecgen, uroce is the client, {family}, path MTU {mtu}",
                        server, client)
            port += 1
            server = here.run([options.vecgen, *vecgen("s", gid, mtu, "rc,err", port)])
            words = vecgen("c", gid, mtu, "rc,err", port, peer.HERE_ADDRESS)
            client = guest.run("./vecgen " + " ".join(words))
            finish_both(report, f"vecgen, uroce is the server, {family}, path MTU {mtu}",
                        server, client)
    report.notes(counters(guest))
    guest.stop()
    judge_capture(report, "the capture is sound", folder / "guest.pcap",
                  [guest.address, peer.HERE_ADDRESS])
    network.close()


def scenario_perftest(report, options, folder):
    network, guest, here = start_guest(report, options, folder)
    port = PERFTEST_PORT
    for program in PERFTEST_PROGRAMS:
        port += 1
        server = guest.run(" ".join(perftest(program, port)))
        wait_guest_listens(guest, port)
        client = here.run(perftest(program, port, guest.address))
        finish_both(report, f"{program}, uroce is the client", server, client)
        port += 1
        server = here.run(perftest(program, port))
        peer.wait_until(lambda: network.here.listening(port), COMMAND_SECONDS, "server of perftest")
        client = guest.run(" ".join(perftest(program, port, peer.HERE_ADDRESS)))
        finish_both(report, f"{program}, uroce is the server", server, client)
    report.notes(counters(guest))
    guest.stop()
    judge_capture(report, "the capture is sound", folder / "guest.pcap",
                  [guest.address, peer.HERE_ADDRESS])
    network.close()


SCENARIOS = {"rxe": scenario_rxe, "vecgen": scenario_vecgen, "perftest": scenario_perftest}


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    arguments.add_argument("--image", required=True, type=Path)
    arguments.add_argument("--vecgen", required=True, type=Path)
    arguments.add_argument("--uroce", type=Path)
    arguments.add_argument("--keep", type=Path, help="a folder to leave the capture in")
    arguments.add_argument("scenario", choices=SCENARIOS)
    options = arguments.parse_args()
    options.image = options.image.resolve()  # a namespace has another working directory
    options.vecgen = options.vecgen.resolve()
    options.uroce = options.uroce and options.uroce.resolve()
    reason = peer.missing()
    if reason is not None:
        print(f"1..0 # SKIP {reason}")
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the folder below is removed
    builder = Path(__file__).resolve().parent / "guest" / "build_image.sh"
    subprocess.run([str(builder), str(options.image)], check=True, stdout=sys.stderr)
    report = Report()
    with tempfile.TemporaryDirectory(prefix="uroce-interop-") as folder:
        try:
            SCENARIOS[options.scenario](report, options, Path(folder))
        except (RuntimeError, TimeoutError, subprocess.CalledProcessError) as problem:
            report.result(False, f"scenario {options.scenario}", str(problem).split("\n"))
        if options.keep is not None:
            options.keep.mkdir(parents=True, exist_ok=True)
            for path in Path(folder).glob("*.pcap"):
                shutil.copy(path, options.keep)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
