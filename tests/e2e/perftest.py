"""Debian's perftest and pingpong programs: how they are run, and what must hold afterwards."""

import re

from harness import Failure, free_port, require

# Options of the bandwidth tests, each with the iterations that keep it short. perftest refuses -e
# on write, -a on atomic, -b, -q and -l on latency tests, and -l unless -n is a multiple.
BANDWIDTH = {
    "": 2000, "-a": 20, "-b": 1000, "-q 16": 1600, "-e": 1000, "-l 16": 1600, "-D 2": None,
}
LATENCY = {"": 500, "-a": 10, "-e": 500, "-D 2": None}
REFUSED = {
    ("ib_write_bw", "-e"), ("ib_write_lat", "-e"), ("ib_atomic_bw", "-a"), ("ib_atomic_lat", "-a"),
}
OPERATIONS = ("send", "write", "read", "atomic")


def combinations():
    """(program, options) of everything that perftest accepts."""
    for operation in OPERATIONS:
        for kind, table in (("bw", BANDWIDTH), ("lat", LATENCY)):
            program = f"ib_{operation}_{kind}"
            for options in table:
                if (program, options) not in REFUSED:
                    yield program, options
            if operation == "atomic":
                yield program, "-A CMP_AND_SWAP"


def command(program, options, device, port):
    table = BANDWIDTH if program.endswith("_bw") else LATENCY
    iterations = None if "-D" in options.split() else table.get(options, 500)
    words = [program, "-d", device, "-p", port, "-F", *options.split()]
    return words if iterations is None else words + ["-n", iterations]


def result_rows(program):
    """The rows of perftest's table: message size and numbers."""
    rows = []
    for line in program.stdout().splitlines():
        fields = line.split()
        if len(fields) >= 4 and all(re.fullmatch(r"[0-9.]+", field) for field in fields[:4]):
            rows.append([float(field) for field in fields
                         if re.fullmatch(r"[0-9.]+", field)])
    return rows


class Pair:
    """A server and a client of one program."""

    def __init__(self, world, program, options="", devices=None):
        self.world, self.program, self.options = world, program, options
        self.devices = devices or (world.devices[0], world.devices[0])
        self.port = free_port()
        self.server = world.start(0, *command(program, options, self.devices[0], self.port))
        self.client = None

    def connect(self):
        self.server.wait_listening(self.port)
        self.client = self.world.start(
            1, *command(self.program, self.options, self.devices[1], self.port),
            self.world.address)

    def finish(self):
        for side in (self.client, self.server):
            side.expect(0)
        rows = result_rows(self.client)
        wanted = 23 if "-a" in self.options.split() else 1
        require(len(rows) == wanted, f"{len(rows)} rows instead of {wanted}: {self.client}")
        # The last column is the message rate of bandwidth tests, a time or rate of the others; the
        # rest may be rounded to 0 or, with -D, not measured.
        require(all(row[0] > 0 and row[-1] > 0 for row in rows), f"empty rows: {self.client}")
        self.check_counters()

    def least_bytes(self):
        """Payload bytes that the operation must have carried at least."""
        options = self.options.split()
        table = BANDWIDTH if self.program.endswith("_bw") else LATENCY
        iterations = table.get(self.options, 500)
        if "atomic" in self.program:
            return 0
        if iterations is None:
            return 1  # for a time: how much depends on the machine
        if "-a" in options:
            return iterations * (2 ** 24 - 2)
        return iterations * (65536 if self.program.endswith("_bw") else 2)

    def check_counters(self):
        """The packets went over the card, in the operation's own way: a false pass is
        impossible."""
        server, client = (self.world.counters(side) for side in (self.server, self.client))
        for counters, side in ((server, self.server), (client, self.client)):
            for key in ("rx_packets", "tx_packets", "wire_rx_frames", "wire_tx_frames"):
                require(counters[key] > 0, f"{key} is 0: {side}")
            require(counters["rx_icrc_errors"] == 0, f"ICRC errors: {side}")
        least = self.least_bytes()
        if "read" in self.program:
            require(client["rx_bytes"] >= least, f"client's rx_bytes {client['rx_bytes']}")
            require(server["rx_read_requests"] > 0, "the server saw no READ")
        elif "atomic" in self.program:
            least = 1 if "-D" in self.options.split() else 500
            require(server["rx_atomic_requests"] >= least, "the server saw too few ATOMICs")
        else:
            require(server["rx_bytes"] >= least, f"server's rx_bytes {server['rx_bytes']}")
        if "write" in self.program:
            require(server["rx_write_requests"] > 0, "the server saw no WRITE")
        if "-b" in self.options.split():
            require(client["rx_packets"] > 0 and server["tx_packets"] > 0, "one way only")


def run_pair(world, program, options="", devices=None):
    pair = Pair(world, program, options, devices)
    pair.connect()
    pair.finish()
    return pair


def pingpong(world, options, devices=None):
    devices = devices or (world.devices[0], world.devices[0])
    port = free_port()
    words = ["ibv_rc_pingpong", "-g", "1", "-p", port, *options.split()]
    server = world.start(0, *words, "-d", devices[0])
    server.wait_listening(port)
    client = world.start(1, *words, "-d", devices[1], world.address)
    for program in (client, server):
        program.expect(0)
        require("bytes in" in program.stdout(), f"no result: {program}")
        counters = world.counters(program)
        require(counters["rx_packets"] >= 1000 and counters["tx_packets"] >= 1000,
                f"too few packets: {program}")
    return server, client


def expect_failed_status(program, number, within):
    """perftest ends with the given completion status, e.g. 12 = retries exceeded."""
    status = program.wait(within)
    text = program.stdout() + program.stderr()
    if status == 0 or f"Failed status {number}" not in text:
        raise Failure(f"expected completion status {number}, ended with {status}: {program}")
