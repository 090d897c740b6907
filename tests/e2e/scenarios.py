"""All e2e scenarios by name. A scenario is a function of a Stage; it raises Failure or Skipped."""

import functools

import cases
import cli
import killing
import perftest
from harness import EthdevWorld, FabricWorld


def in_world(world_class, function, *arguments):
    def scenario(stage):
        with world_class(stage) as world:
            function(world, *arguments)
    return scenario


def perftest_scenarios(world_class):
    for program, options in perftest.combinations():
        name = f"{world_class.name} {program} {options}".strip()
        yield name, in_world(world_class, perftest.run_pair, program, options)
    for options in ("", "-e", "-s 65536", "-m 256", "-m 512", "-m 1024", "-m 2048", "-m 4096"):
        name = f"{world_class.name} ibv_rc_pingpong {options}".strip()
        yield name, in_world(world_class, perftest.pingpong, options)


def check_scenarios(world_class):
    for name in cases.BOTH_WORLDS + (cases.FABRIC_ONLY if world_class is FabricWorld else ()):
        yield f"{world_class.name} verbs_check {name}", in_world(world_class, cases.run, name)


def all_scenarios():
    scenarios = dict(cli.SCENARIOS)
    for world_class in (FabricWorld, EthdevWorld):
        scenarios[f"{world_class.name} devices"] = in_world(world_class, cases.device_programs)
        scenarios |= dict(perftest_scenarios(world_class))
        scenarios |= dict(check_scenarios(world_class))
    fabric = functools.partial(in_world, FabricWorld)
    for program in ("ib_write_bw", "ib_read_lat", "ib_send_bw", "ib_atomic_lat"):
        scenarios[f"fabric two devices {program}"] = fabric(
            perftest.run_pair, program, "", ("uroce0", "uroce1"))
    scenarios |= {
        "fabric eight processes at once": fabric(cases.pairs_at_once, 4),
        "fabric 64 processes": fabric(cases.many_processes, 64),
        "fabric another user cannot join": fabric(cases.another_user),
        "fabric kill -9 of a perftest server": fabric(killing.kill_server),
        "fabric kill -9 of a perftest client": fabric(killing.kill_client),
        "fabric kill-50": fabric(killing.kill_victims, 50),
        "kill-500": fabric(killing.kill_victims, 500),
        "ethdev kill -9 of a perftest server": in_world(EthdevWorld, killing.kill_server),
        "ethdev a second process is refused": in_world(EthdevWorld, cases.port_is_taken),
        "leaves nothing behind": cases.nothing_left,
    }
    return scenarios
