"""Scenarios around verbs_check, many processes, and who may join."""

import os
import re
import subprocess
from pathlib import Path

from harness import ORDINARY_UID, Failure, Skipped, free_port, require
from perftest import Pair, run_pair

BOTH_WORLDS = (
    "data-mtu-256", "data-mtu-512", "data-mtu-1024", "data-mtu-2048", "data-mtu-4096",
    "scatter-gather", "inline", "pipelined", "fence", "atomics", "atomic-contention",
    "placement-order", "completion-order", "request-errors", "region-rights", "queue-pair-rights",
    "receive-too-small", "receiver-not-ready", "flush-order", "peer-gone", "unmapped-memory",
    "solicited", "events-ping-pong", "async-access-error", "threads-one-queue-pair",
    "threads-own-queue-pairs", "fork-exec",
)
# Without a wire of their own to speak of, or (fork) not offered by a port that one process owns.
FABRIC_ONLY = (
    "limits", "maximum-objects", "in-use", "unsupported", "events-1000-queues",
    "async-cq-overflow", "async-destroyed", "fork",
)
WITHOUT_TRAFFIC = {"unmapped-memory", "maximum-objects", "unsupported", "events-1000-queues"}


def run(world, name):
    """verbs_check's case: on the fabric one command that forks, over ethdev one on each side."""
    program = world.readable_copy(world.stage.build / "tests" / "e2e" / "verbs_check")
    if world.name == "fabric":
        world.start(0, program, "--peer-device", "uroce1", name).expect(0)
    else:
        port = free_port()
        second = world.start(0, program, "--listen", port, name)
        second.wait_listening(port)
        first = world.start(1, program, "--connect", f"{world.address}:{port}", name)
        first.expect(0)
        second.expect(0)
    counters = world.all_counters()
    if name not in WITHOUT_TRAFFIC:
        require(counters.get("rx_packets", 0) > 0 and counters.get("tx_packets", 0) > 0,
                f"no packets in {world.stats_directory}: {counters}")
    require(counters.get("rx_icrc_errors", 0) == 0, "ICRC errors")


def device_programs(world):
    """ibv_devices and ibv_devinfo, plain and -v."""
    listed = world.start(0, "ibv_devices").expect(0).stdout()
    for device in world.devices:
        row = rf"^\s+{device}\s+[0-9a-f]{{16}}$"
        require(re.search(row, listed, re.M), f"ibv_devices: {listed}")
        info = world.start(0, "ibv_devinfo", "-d", device).expect(0).stdout()
        for wanted in ("PORT_ACTIVE", r"link_layer:\s+Ethernet", r"active_mtu:\s+4096"):
            require(re.search(wanted, info), f"ibv_devinfo has no {wanted}: {info}")
        verbose = world.start(0, "ibv_devinfo", "-v", "-d", device).expect(0).stdout()
        require("RoCE v2" in verbose, f"ibv_devinfo -v shows no RoCE v2 GID: {verbose}")
    guids = re.findall(r"\s([0-9a-f]{16})$", listed, re.M)
    require(len(set(guids)) == len(world.devices), f"GUIDs are not different: {listed}")
    failed = world.start(0, "ibv_devinfo", "-d", "uroce9")
    require(failed.wait() != 0, "a device that is not there was found")


def pairs_at_once(world, count):
    """Several servers and clients at the same time, on the same and on different devices."""
    kinds = ("ib_write_bw", "ib_send_bw", "ib_read_bw", "ib_send_lat")
    pairs = [Pair(world, kinds[i % 4], "", (world.devices[i % 2], world.devices[i // 2 % 2]))
             for i in range(count)]
    for pair in pairs:
        pair.connect()
    for pair in pairs:
        pair.finish()


def many_processes(world, count):
    """All of them have the device open at once, in pairs, and each pair speaks."""
    words = ["ibv_rc_pingpong", "-g", "1", "-d", "uroce0", "-n", "200"]
    servers = []
    for _ in range(count // 2):
        port = free_port()
        servers.append((port, world.start(0, *words, "-p", port)))
    for port, server in servers:
        server.wait_listening(port, 40)
    clients = [world.start(1, *words, "-p", port, world.address) for port, _ in servers]
    for program in clients + [server for _, server in servers]:
        program.expect(0)
        require(world.counters(program)["rx_packets"] >= 200, f"too few packets: {program}")


def another_user(world):
    """Another user gets a refusal, with and without `uroce run`, and disturbs nobody."""
    if os.getuid() != 0:
        raise Skipped("becoming another user needs root")
    stranger = ORDINARY_UID - 1
    server = Pair(world, "ib_write_bw")
    server.server.wait_listening(server.port)
    before = sorted(os.listdir(world.run_directory))
    refused = world.start_raw(0, [world.stage.uroce, "run", "--", "ibv_devinfo"], user=stranger)
    require(refused.wait() == 2, f"uroce run did not refuse: {refused}")
    require(world.run_directory in refused.stderr(), f"does not name the directory: {refused}")
    preload = world.stage.find("liburoce-preload.so")
    driver = str(world.stage.find("liburoce-rdmav34.so")).removesuffix("-rdmav34.so")
    env = world.environment(LD_PRELOAD=str(preload), IBV_DRIVERS=driver)
    direct = world.start_raw(0, ["ibv_rc_pingpong", "-d", "uroce0", "-g", "1"], env, stranger)
    require(direct.wait() != 0, f"a stranger opened the device: {direct}")
    require(sorted(os.listdir(world.run_directory)) == before, "the stranger left files")
    server.connect()
    server.finish()


def port_is_taken(world):
    """One process per port: the next gets a refusal that names the holder."""
    pair = Pair(world, "ib_write_bw")
    pair.server.wait_listening(pair.port)
    second = world.start(0, "ibv_rc_pingpong", "-d", "uroce0", "-g", "1", "-p", free_port())
    require(second.wait() != 0, f"two processes share a port: {second}")
    require(str(pair.server.pid) in second.stderr(), f"does not name the holder: {second}")
    pair.connect()
    pair.finish()


def nothing_left(stage):
    """Processes, namespaces and folders of finished scenarios are gone; then the stage goes."""
    namespaces = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True,
                                check=False).stdout
    for word in re.findall(r"uroce-e2e-\w+", namespaces):
        if not Path("/tmp", word).exists():
            raise Failure(f"a namespace of a finished scenario is left: {word}")
    for process in Path("/proc").glob("[0-9]*"):
        try:
            environment = (process / "environ").read_bytes()
        except OSError:
            continue
        match = re.search(rb"UROCE_RUN_DIR=(/tmp/uroce-e2e-[^/\0]+)", environment)
        if match and not os.path.exists(match.group(1)):
            raise Failure(f"a process of a finished scenario runs on: {process.name}")
    stage.remove_if_alone()
