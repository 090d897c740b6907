"""A small network of namespaces with guests whose kernel runs rdma_rxe, for the interop tests.

    switch namespace: br0 --+-- tap -- guest 2 (10.77.0.2, rxe0)
                            +-- tap -- guest 3 (10.77.0.3, rxe0)
                            +-- veth -- namespace "here": roce0 (10.77.0.100), where we run

Namespaces have no name: each is kept by a process that dies with this one, so nothing is left
behind however the test ends, and two runs at once do not meet. Needs root.
"""

import ctypes
import os
import shutil
import signal
import subprocess
import time

HERE_ADDRESS = "10.77.0.100"
INTERFACE = "roce0"
PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None, use_errno=True)


def die_with_parent():
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def start(command, **options):
    """A process that is killed when this one dies."""
    options.setdefault("stdin", subprocess.DEVNULL)
    return subprocess.Popen([str(word) for word in command], preexec_fn=die_with_parent, **options)


def end(process):
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_until(condition, seconds, what):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {seconds} s")
        time.sleep(0.05)


class Namespace:
    """A network namespace with its own /sys, held by a sleeping process."""

    def __init__(self):
        self.holder = start(
            ["unshare", "--net", "--mount", "--propagation", "private", "sh", "-c",
             "mount -t sysfs sysfs /sys && ip link set lo up && echo up && exec sleep infinity"],
            stdout=subprocess.PIPE)
        if self.holder.stdout.readline() != b"up\n":
            raise RuntimeError("cannot make a network namespace: is this root?")

    def command(self, words):
        return ["nsenter", "-t", self.holder.pid, "-n", "-m", "--", *words]

    def ip(self, line):
        subprocess.run([str(word) for word in self.command(["ip", *line.split()])], check=True)

    def listening(self, port):
        shown = subprocess.run(
            [str(word) for word in self.command(["ss", "-Hltn", f"sport = :{port}"])],
            check=True, capture_output=True)
        return bool(shown.stdout.strip())

    def close(self):
        self.holder.kill()
        self.holder.wait()


class Network:
    """The switch and the namespace "here", joined; guests join when they start."""

    def __init__(self, mtu):
        self.mtu = mtu
        self.switch = Namespace()
        self.here = Namespace()
        self.switch.ip("link add br0 type bridge forward_delay 0 stp_state 0 mcast_snooping 0")
        self.switch.ip("link add port0 type veth peer name peer0")
        self.switch.ip(f"link set peer0 netns {self.here.holder.pid} name {INTERFACE}")
        self.switch.ip(f"link set port0 master br0 mtu {mtu} up")
        self.switch.ip(f"link set br0 mtu {mtu} up")
        self.here.ip(f"link set {INTERFACE} mtu {mtu} up")
        self.here.ip(f"addr add {HERE_ADDRESS}/24 dev {INTERFACE}")

    def settled(self):
        """No address is tentative any more: only then can it be a GID."""
        shown = subprocess.run(
            [str(word) for word in self.here.command(
                ["ip", "-6", "addr", "show", "dev", INTERFACE, "tentative"])],
            check=True, capture_output=True)
        return not shown.stdout.strip()

    def close(self):
        self.here.close()
        self.switch.close()


class GuestCommand:
    """A command that runs in a guest."""

    def __init__(self, guest, name):
        self.guest = guest
        self.name = name

    def poll(self):
        status = self.guest.share / f"{self.name}.rc"
        if status.exists():
            return int(status.read_text())
        if self.guest.process.poll() is not None:
            raise RuntimeError("the guest has ended: " + self.guest.console())
        return None

    def wait(self, seconds):
        """The exit status."""
        wait_until(lambda: self.poll() is not None, seconds, f"guest command {self.name}")
        return self.poll()

    def end(self):
        """Ends it and what it started, if it still runs."""
        if self.poll() is None:
            self.guest.run(f"kill -TERM -$(cat {self.name}.pid)").wait(60)

    def output(self):
        out = self.guest.share / f"{self.name}.out"
        return out.read_text(errors="replace") if out.exists() else ""


class Guest:
    """A booted guest. Its address is 10.77.0.NUMBER; `capture` records each frame of its NIC."""

    def __init__(self, network, number, image, folder, capture):
        self.address = f"10.77.0.{number}"
        self.share = folder / f"guest{number}"
        self.share.mkdir()
        self.commands = 0
        tap = f"tap{number}"
        network.switch.ip(f"tuntap add dev {tap} mode tap")
        network.switch.ip(f"link set {tap} master br0 mtu {network.mtu} up")
        # vnet_hdr=off: no offloads, so that frames on the tap are complete frames of the wire.
        self.process = start(network.switch.command([
            "qemu-system-x86_64", "-M", "q35", "-accel", "tcg,thread=multi", "-cpu", "max",
            "-smp", "1", "-m", "256", "-nodefaults", "-no-user-config", "-display", "none",
            "-no-reboot", "-serial", f"file:{self.share}/console",
            "-kernel", image / "vmlinux", "-initrd", image / "initrd.img",
            "-append", "console=ttyS0 quiet panic=-1 mitigations=off nokaslr net.ifnames=0 "
            f"random.trust_cpu=on uroce_ip={self.address}/24 uroce_mtu={network.mtu}",
            "-netdev", f"tap,id=n0,ifname={tap},script=no,downscript=no,vhost=off,vnet_hdr=off",
            "-device", f"virtio-net-pci,netdev=n0,romfile=,mac=52:54:00:77:00:{number:02x}",
            "-object", f"filter-dump,id=dump,netdev=n0,maxlen=65536,file={capture}",
            "-virtfs", f"local,path={self.share},mount_tag=share,security_model=none"]))

    def console(self):
        path = self.share / "console"
        return path.read_text(errors="replace")[-2000:] if path.exists() else ""

    def wait_ready(self, seconds=300):
        def ready():
            if self.process.poll() is not None:
                raise RuntimeError("the guest did not boot: " + self.console())
            return (self.share / "ready").exists()
        wait_until(ready, seconds, "guest boot")
        return (self.share / "ready").read_text().split("\n")

    def add_file(self, path):
        """Puts a program where guest commands find it as ./NAME."""
        shutil.copy(path, self.share)

    def run(self, command):
        self.commands += 1
        name = f"{self.commands:03d}"
        (self.share / f"{name}.new").write_text(f"cd /share\n{command}\n")
        (self.share / f"{name}.new").rename(self.share / f"{name}.cmd")
        return GuestCommand(self, name)

    def stop(self):
        """Powers off, so that the capture is complete."""
        if self.process.poll() is None:
            (self.share / "stop").touch()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                pass
        end(self.process)


def missing():
    """What keeps the tests from running here, or None."""
    if os.geteuid() != 0:
        return "namespaces and taps need root"
    for program in ("qemu-system-x86_64", "cpio", "tshark", "nsenter", "unshare"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    return None
