"""The command line: exit statuses, refusals, environment, places where it is installed."""

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

from harness import FabricWorld, free_port, require


def run(world, *argv, status=0, env=None):
    """uroce with these words; its exit status must be as given."""
    return world.start_raw(0, [world.stage.uroce, *argv], env or world.environment()).expect(status)


def one_line(program, *words):
    text = program.stderr()
    require(text.count("\n") == 1 and text.startswith("uroce: "), f"not one message: {text!r}")
    for word in words:
        require(word in text, f"does not name {word}: {text!r}")
    require(program.stdout() == "", f"wrote to stdout: {program.stdout()!r}")


def exit_status(world):
    run(world, "run", "--", "true")
    run(world, "run", "true")
    run(world, "run", "--", "sh", "-c", "exit 7", status=7)
    run(world, "run", "--", "sh", "-c", "kill -TERM $$", status=-signal.SIGTERM)
    one_line(run(world, "run", "--", "no-such-program", status=127), "no-such-program")
    one_line(run(world, "run", "--", "/etc/passwd", status=126), "/etc/passwd")
    one_line(run(world, "run", "--", "/etc", status=126), "/etc")
    sleeper = world.start(0, "sleep", "60")
    sleeper.kill(signal.SIGUSR1)  # not SIGINT: who runs us in the background has it ignored
    require(sleeper.wait() == -signal.SIGUSR1, "a signal does not reach the program")


def refusals(world):
    wrong = (
        (["run", "--mtu", "1500", "--", "true"], "--mtu", "1500", "4096"),
        (["run", "--fabric", "a/b", "--", "true"], "--fabric", "a/b"),
        (["run", "--devices", "a,a", "--", "true"], "--devices", "a,a"),
        (["run", "--progress", "fast", "--", "true"], "--progress", "fast", "dedicated"),
        (["run", "--log-level", "loud", "--", "true"], "--log-level", "loud", "debug"),
        (["run", "--netdev", "no-such-if", "--", "true"], "no-such-if"),
        (["run", "--colour", "--", "true"], "--colour"),
        (["run", "--mtu", "--", "true"], "--mtu"),
        (["run", "--"], "command"),
        (["run"], "command"),
        (["walk"], "walk"),
        ([], "verb"),
        (["devices", "--mtu", "7"], "--mtu", "7"),
        (["devices", "surplus"], "surplus"),
    )
    for argv, *words in wrong:
        one_line(run(world, *argv, status=2), *words)
    for key, value in (("UROCE_MTU", "9000"), ("UROCE_FABRIC", "a b"), ("UROCE_RUN_DIR", "here"),
                       ("UROCE_PROGRESS", "dedicated:9999"), ("UROCE_LOG_LEVEL", "x")):
        env = world.environment(**{key: value})
        one_line(run(world, "run", "--", "true", status=2, env=env), key, value)
    # A flag goes before its variable, and nothing was started by a refused command.
    env = world.environment(UROCE_MTU="9000")
    run(world, "run", "--mtu", "1024", "--", "true", env=env)
    marker = f"{world.run_directory}/started"
    run(world, "run", "--mtu", "7", "--", "touch", marker, status=2)
    require(not os.path.exists(marker), "the command of a refused line was started")


def help_texts(world):
    for verb in ([], ["run"], ["devices"]):
        text = run(world, *verb, "--help").stdout()
        require("Usage: uroce" in text, f"no usage: {text}")
    text = run(world, "run", "--help").stdout()
    flags = ("--fabric", "--devices", "--netdev", "--mtu", "--progress", "--log-level", "--log")
    for flag in flags:
        require(flag in text, f"{flag} is missing from the help")
    require(run(world, "--version").stdout().startswith("uroce "), "--version")


def environment_of(world, *flags, **extra):
    program = run(world, "run", *flags, "--", "env", "-0", env=world.environment(**extra))
    return dict(entry.split("=", 1) for entry in program.stdout().split("\0") if "=" in entry)


def environment(world):
    preload = str(world.stage.find("liburoce-preload.so"))
    env = environment_of(world, "--fabric", "f1", "--mtu", "512", "--log", "relative.log")
    require(env["LD_PRELOAD"] == preload, f"LD_PRELOAD {env['LD_PRELOAD']}")
    require(env["UROCE_FABRIC"] == "f1" and env["UROCE_MTU"] == "512", f"flags: {env}")
    require(env["UROCE_LOG"] == "/relative.log", f"UROCE_LOG {env['UROCE_LOG']}")
    # What was there stays in front, where a sanitizer's runtime has to be.
    other = subprocess.run(["sh", "-c", "ls /lib/*/libz.so.1 /lib/*/libm.so.6 | head -n 1"],
                           capture_output=True, text=True, check=True).stdout.strip()
    env = environment_of(world, LD_PRELOAD=other)
    require(env["LD_PRELOAD"] == f"{other}:{preload}", f"LD_PRELOAD {env['LD_PRELOAD']}")
    nested = run(world, "run", "--", world.stage.uroce, "run", "--", "env").stdout()
    require(nested.count("liburoce-preload.so") == 1, f"nested runs: {nested}")
    mode = os.stat(f"{world.run_directory}/f1").st_mode & 0o777
    require(mode == 0o700, f"the fabric's directory has mode {mode:o}")


def moved_tree(world):
    """The staged tree works from wherever it lies, also from a path with a space."""
    place = Path(world.folder) / "a place"
    shutil.copytree(world.stage.root, place, symlinks=True)
    moved = place / Path(world.stage.uroce).relative_to(world.stage.root)
    program = world.start_raw(0, [str(moved), "run", "--", "ibv_devices"]).expect(0)
    require("uroce0" in program.stdout(), f"no device: {program}")
    require("cannot be preloaded" not in program.stderr(), f"no preload: {program}")


def build_tree(world):
    """build/tools/uroce works uninstalled, for who can read the build folder."""
    uroce = world.stage.build / "tools" / "uroce"
    program = world.start_raw(0, [str(uroce), "run", "--", "ibv_devices"], user=os.getuid(),
                              env=world.environment(UROCE_RUN_DIR=world.make_folder("own", 0o700,
                                                                                    os.getuid())))
    require("uroce0" in program.expect(0).stdout(), f"no device: {program}")


def devices_verb(world):
    """`uroce devices` shows devices, and who holds slots."""
    plain = run(world, "devices").stdout()
    for word in ("uroce0", "uroce1", "ACTIVE", "4096", "fe80::", "127."):
        require(word in plain, f"uroce devices shows no {word}: {plain}")
    port = free_port()
    holder = world.start(0, "ibv_rc_pingpong", "-d", "uroce1", "-g", "1", "-p", port)
    holder.wait_listening(port)
    listed = json.loads(run(world, "devices", "--json").stdout())
    require([device["name"] for device in listed["devices"]] == ["uroce0", "uroce1"], f"{listed}")
    holders = {device["name"]: [slot["pid"] for slot in device["holders"]]
               for device in listed["devices"]}
    require(holders == {"uroce0": [], "uroce1": [holder.pid]}, f"holders: {holders}")
    require(str(holder.pid) in run(world, "devices").stdout(), "the plain list names no holder")
    holder.kill()
    listed = json.loads(run(world, "devices", "--json").stdout())
    held = [device["name"] for device in listed["devices"] if device["holders"]]
    require(not held, f"a dead process holds a slot of {held}")


def scenario(function):
    def run_it(stage):
        with FabricWorld(stage) as world:
            function(world)
    return run_it


SCENARIOS = {
    "cli exit status and signals": scenario(exit_status),
    "cli refusals": scenario(refusals),
    "cli help": scenario(help_texts),
    "cli environment": scenario(environment),
    "cli moved tree": scenario(moved_tree),
    "cli build tree": scenario(build_tree),
    "cli devices": scenario(devices_verb),
}
