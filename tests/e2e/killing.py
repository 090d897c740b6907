"""kill -9 in mid-traffic: peers get IBV_WC_RETRY_EXC_ERR, others keep working, successors are
reachable."""

import random
import time

from harness import require
from perftest import Pair, expect_failed_status, run_pair

HOG = ["sh", "-c", "while :; do :; done"]


class KillPair(Pair):
    """Endless traffic with short retries."""

    def __init__(self, world, devices=None):
        super().__init__(world, "ib_write_bw", "-D 90 -u 12", devices)


def wait_for_traffic(pair, seconds=60):
    """Until the client has spent CPU time with its TCP side channel open, that is after set-up:
    perftest prints nothing while it runs."""
    deadline = time.monotonic() + seconds
    connected_at = None
    while connected_at is None or cpu_seconds(pair.client) < connected_at + 0.3:
        require(time.monotonic() < deadline and pair.client.process.poll() is None,
                f"no traffic: {pair.client}")
        if connected_at is None and pair.client.is_connected_to(pair.port):
            connected_at = cpu_seconds(pair.client)
        time.sleep(0.02)


def cpu_seconds(program):
    with open(f"/proc/{program.pid}/stat", encoding="ascii", errors="replace") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / 100


def kill_server(world):
    """The client of a killed server ends with its completion status; another pair and a successor
    do their work."""
    hog = world.start_raw(1, HOG)
    pair = KillPair(world)
    pair.connect()
    wait_for_traffic(pair)
    pair.server.kill()
    # 8 transmissions at 4.096 us << 12, up to four times as long each, beside a hog.
    expect_failed_status(pair.client, 12, 10)
    run_pair(world, "ib_write_bw", "-b")
    hog.kill()


def kill_client(world):
    """A server whose client dies sees the TCP side channel end; the fabric is as good as before."""
    hog = world.start_raw(1, HOG)
    pair = KillPair(world)
    pair.connect()
    wait_for_traffic(pair)
    pair.client.kill()
    pair.server.kill()
    run_pair(world, "ib_read_bw", "")
    hog.kill()


def wait_line(program, line, seconds=30):
    deadline = time.monotonic() + seconds
    while True:
        for found in program.stdout().splitlines():
            if found == line or found.startswith(line + " "):
                return found
        require(program.process.poll() is None, f"ended before it said '{line}': {program}")
        require(time.monotonic() < deadline, f"never said '{line}': {program}")
        time.sleep(0.005)


def kill_victims(world, rounds):
    """kill_survivor.cpp: victims are killed one after another, a hog takes a CPU."""
    program = world.stage.build / "tests" / "e2e" / "kill_survivor"
    program = world.readable_copy(program)
    socket = f"{world.run_directory}/survivor.sock"
    survivor = world.start(0, program, "survivor", socket, rounds)
    bystander = world.start(1, program, "bystander", socket)
    hog = world.start_raw(1, HOG)
    wait_line(survivor, "bystander is here")
    slowest = 0.0
    for number in range(1, rounds + 1):
        victim = world.start(1, program, "victim", socket)
        wait_line(survivor, f"traffic {number}")
        time.sleep(random.uniform(0, 0.02))
        victim.kill()
        slowest = max(slowest, float(wait_line(survivor, f"gone {number}").split()[2]))
        require(bystander.process.poll() is None, f"the bystander ended: {bystander}")
    survivor.expect(0)
    bystander.expect(0)
    hog.kill()
    counters = world.counters(survivor)
    require(counters["rx_packets"] > 100 * rounds, f"only {counters['rx_packets']} packets")
    require(counters["local_ack_timeout_err"] >= rounds, "retries were not counted")
    print(f"{rounds} kills, the slowest error came after {slowest:.0f} ms")
