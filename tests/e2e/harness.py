"""What the e2e scenarios stand on: a staged installation, the worlds in which programs run
(a fabric as an ordinary user; two network namespaces as root), programs, counters."""

import fcntl
import hashlib
import os
import pwd
import random
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

PROGRAM_SECONDS = 100  # no program of ours takes longer
ORDINARY_UID = 65534  # nobody: owns nothing, may do nothing special
SKIP = 77  # meson's exit status for a skipped test


class Failure(Exception):
    """A check that did not hold; its text says which."""


class Skipped(Exception):
    """This machine cannot run the scenario; its text says why."""


def require(condition, text):
    if not condition:
        raise Failure(text)


class Stage:
    """`meson install --destdir` into a folder in /tmp that all users can read.

    It is shared by the scenarios of one build folder, which hold a shared lock on it; it is made
    again when the build is newer, and removed by whoever holds it alone at the end."""

    def __init__(self, build):
        self.build = Path(build).resolve()
        name = hashlib.sha256(str(self.build).encode()).hexdigest()[:12]
        self.root = Path(f"/tmp/uroce-stage-{os.getuid()}-{name}")
        self.lock = self.take_lock()
        if not self.is_fresh():
            self.install()
        fcntl.flock(self.lock, fcntl.LOCK_SH)
        self.uroce = str(self.find("bin/uroce"))

    def take_lock(self):
        path = f"{self.root}.lock"
        while True:
            lock = open(path, "w", encoding="utf-8")
            fcntl.flock(lock, fcntl.LOCK_EX)
            try:
                if os.fstat(lock.fileno()).st_ino == os.stat(path).st_ino:
                    return lock
            except FileNotFoundError:
                pass
            lock.close()  # whoever held it before has removed the file

    def built_files(self):
        yield self.build / "tools" / "uroce"
        yield from (self.build / "provider").glob("*.so")

    def is_fresh(self):
        marker = self.root / "staged"
        return marker.exists() and all(
            path.stat().st_mtime <= marker.stat().st_mtime for path in self.built_files())

    def install(self):
        shutil.rmtree(self.root, ignore_errors=True)
        run = subprocess.run(
            ["meson", "install", "-C", str(self.build), "--no-rebuild", "--destdir", self.root],
            capture_output=True, text=True, check=False)
        require(run.returncode == 0, f"meson install failed: {run.stdout}{run.stderr}")
        for folder, _, files in os.walk(self.root):
            os.chmod(folder, 0o755)
            for file in files:
                path = os.path.join(folder, file)
                if not os.path.islink(path):
                    os.chmod(path, os.stat(path).st_mode | 0o444)
        (self.root / "staged").touch()

    def find(self, ending):
        found = [path for path in self.root.rglob(Path(ending).name)
                 if str(path).endswith("/" + ending)]
        require(len(found) == 1, f"{ending} is not in the staged tree: {found}")
        return found[0]

    def remove_if_alone(self):
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        shutil.rmtree(self.root, ignore_errors=True)
        os.unlink(f"{self.root}.lock")


class Program:
    """A started program, its output in files."""

    def __init__(self, argv, env, user=None, cwd="/"):
        self.argv = [str(word) for word in argv]
        self.out = tempfile.TemporaryFile("w+", errors="replace")
        self.err = tempfile.TemporaryFile("w+", errors="replace")
        extra = {} if user is None else {"user": user, "group": user, "extra_groups": []}
        self.process = subprocess.Popen(
            self.argv, env=env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=self.out,
            stderr=self.err, start_new_session=True, **extra)
        self.pid = self.process.pid

    def wait(self, seconds=PROGRAM_SECONDS):
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise Failure(f"still running after {seconds} s: {self}") from None

    def kill(self, number=signal.SIGKILL):
        if self.process.poll() is None:
            self.process.send_signal(number)
        if number == signal.SIGKILL:
            try:
                os.killpg(self.pid, number)  # and what it started
            except (ProcessLookupError, PermissionError):
                pass
            self.process.wait()

    def read(self, file):
        file.seek(0)
        return file.read()

    def stdout(self):
        return self.read(self.out)

    def stderr(self):
        return self.read(self.err)

    def expect(self, status=0, seconds=PROGRAM_SECONDS):
        found = self.wait(seconds)
        require(found == status, f"ended with {found} instead of {status}: {self}")
        return self

    def tcp_sockets(self):
        """(local port, remote port, state) of all sockets in the program's network namespace."""
        for table in ("tcp", "tcp6"):
            try:
                text = Path(f"/proc/{self.pid}/net/{table}").read_text(encoding="ascii")
            except OSError:
                continue
            for line in text.splitlines()[1:]:
                _, local, remote, state = line.split()[:4]
                yield int(local.rsplit(":", 1)[1], 16), int(remote.rsplit(":", 1)[1], 16), state

    def listens_on(self, port):
        return any(local == port and state == "0A" for local, _, state in self.tcp_sockets())

    def is_connected_to(self, port):
        return any(remote == port and state == "01" for _, remote, state in self.tcp_sockets())

    def wait_listening(self, port, seconds=20):
        deadline = time.monotonic() + seconds
        while not self.listens_on(port):
            require(self.process.poll() is None, f"ended before it listened: {self}")
            require(time.monotonic() < deadline, f"does not listen on {port}: {self}")
            time.sleep(0.01)

    def __str__(self):
        return (f"{' '.join(self.argv)}\n--- stdout\n{self.stdout()[-4000:]}"
                f"\n--- stderr\n{self.stderr()[-4000:]}")


class World:
    """Two sides that can reach each other; scenarios start programs on either."""

    name = ""
    flags = ([], [])  # of `uroce run`, for side 0 and side 1
    address = "127.0.0.1"  # of side 0, for the programs' TCP side channels
    user = None
    devices = ("uroce0",)

    def __init__(self, stage):
        self.stage = stage
        self.programs = []
        self.folder = tempfile.mkdtemp(prefix="uroce-e2e-", dir="/tmp")
        os.chmod(self.folder, 0o755)
        self.run_directory = self.make_folder("run", 0o700)
        self.stats_directory = self.make_folder("stats", 0o700)

    def make_folder(self, name, mode, user=None):
        path = os.path.join(self.folder, name)
        os.mkdir(path, mode)
        os.chmod(path, mode)
        user = self.user if user is None else user
        if user is not None:
            os.chown(path, user, user)
        return path

    def readable_copy(self, program):
        """A program of the build folder, which the world's user may not be able to enter."""
        copy = os.path.join(self.folder, Path(program).name)
        shutil.copy(program, copy)
        os.chmod(copy, 0o755)
        return copy

    def environment(self, **extra):
        env = {key: value for key, value in os.environ.items()
               if not key.startswith(("UROCE_", "LD_", "IBV_", "RDMAV_", "XDG_"))}
        env |= {"UROCE_RUN_DIR": self.run_directory, "UROCE_STATS_DIR": self.stats_directory,
                "UROCE_LOG_LEVEL": "info", "LC_ALL": "C"}
        return env | extra

    def prefix(self, _side):
        return []

    def start_raw(self, side, argv, env=None, user=None):
        program = Program(self.prefix(side) + argv, env or self.environment(),
                          self.user if user is None else user)
        self.programs.append(program)
        return program

    def start(self, side, *argv, env=None):
        return self.start_raw(
            side, [self.stage.uroce, "run", *self.flags[side], "--", *map(str, argv)], env)

    def counters(self, program):
        """Sum over the devices that the program had open, from the files written at close."""
        total = {}
        for path in Path(self.stats_directory).glob(f"{program.pid}-*"):
            latest = {}
            for line in path.read_text(encoding="ascii").splitlines():
                key, value = line.split()
                latest[key] = max(latest.get(key, 0), int(value))
            for key, value in latest.items():
                total[key] = total.get(key, 0) + value
        require(total, f"no counters were written by {program}")
        return total

    def all_counters(self):
        total = {}
        for path in Path(self.stats_directory).iterdir():
            for line in path.read_text(encoding="ascii").splitlines():
                key, value = line.split()
                total[key] = total.get(key, 0) + int(value)
        return total

    def close(self):
        for program in self.programs:
            program.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class FabricWorld(World):
    """Both sides on one fabric, as an ordinary user."""

    name = "fabric"
    devices = ("uroce0", "uroce1")

    def __init__(self, stage):
        if os.getuid() == 0:
            self.user = ORDINARY_UID
            pwd.getpwuid(ORDINARY_UID)
        super().__init__(stage)


class EthdevWorld(World):
    """Two network namespaces joined by veth, through DPDK's AF_PACKET port, as root."""

    name = "ethdev"
    address = "192.0.2.1"
    flags = (["--netdev", "veth0"], ["--netdev", "veth0"])

    def __init__(self, stage):
        if os.getuid() != 0:
            raise Skipped("network namespaces and raw sockets need root")
        self.namespaces = []
        super().__init__(stage)
        tag = os.path.basename(self.folder)
        try:
            for side in "ab":
                subprocess.run(["ip", "netns", "add", f"{tag}-{side}"], check=True,
                               capture_output=True, text=True)
                self.namespaces.append(f"{tag}-{side}")
        except subprocess.CalledProcessError as error:
            self.close()
            raise Skipped(f"no network namespaces here: {error.stderr}") from None
        self.join()

    def join(self):
        first, second = self.namespaces
        # 4300: path MTU 4096 and its headers.
        self.ip("link", "add", "name", "veth0", "mtu", "4300", "netns", first, "type", "veth",
                "peer", "name", "veth0", "mtu", "4300", "netns", second)
        for number, namespace in enumerate(self.namespaces, 1):
            self.ip("-n", namespace, "address", "add", f"192.0.2.{number}/24", "dev", "veth0")
            self.ip("-n", namespace, "address", "add", f"2001:db8::{number}/64", "dev", "veth0",
                    "nodad")
            self.ip("-n", namespace, "link", "set", "lo", "up")
            self.ip("-n", namespace, "link", "set", "veth0", "up")

    @staticmethod
    def ip(*words):
        run = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
        require(run.returncode == 0, f"ip {' '.join(words)}: {run.stderr}")

    def prefix(self, side):
        return ["ip", "netns", "exec", self.namespaces[side]]

    def close(self):
        super().close()
        for namespace in self.namespaces:
            subprocess.run(["ip", "netns", "del", namespace], capture_output=True, check=False)


def free_port():
    """A TCP port on which nobody listened just now; below the range that clients start from."""
    used = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text(encoding="ascii").splitlines()[1:]:
            used.add(int(line.split()[1].rsplit(":", 1)[1], 16))
    while True:
        port = random.randrange(12000, 30000)
        if port not in used:
            return port
