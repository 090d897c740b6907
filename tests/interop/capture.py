#!/usr/bin/env python3
"""Judges captures of RoCEv2 traffic by other means than uroce's own code: usage capture.py PCAP...

Recomputes each ICRC with zlib, and asks tshark whether any packet is malformed. Prints how many
packets of each opcode there are and how many requests were sent more than once. Exits 1 if a
packet is wrong or there is none.
"""

import collections
import struct
import subprocess
import sys
import zlib

ROCE_PORT = 4791
UDP = 17
TSHARK = ["tshark", "--disable-protocol", "rpcordma", "-o", "udp.ignore_ipv6_zero_checksum:TRUE"]
SEVERITY_WARNING = 6291456

Packet = collections.namedtuple("Packet", "source opcode destination_qp psn icrc_good")


def frames(path):
    with open(path, "rb") as file:
        data = file.read()
    order = "<" if data[:4] in (b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1") else ">"
    at = 24
    while at + 16 <= len(data):
        _, _, captured, original = struct.unpack(order + "IIII", data[at:at + 16])
        if captured != original:
            raise ValueError(f"{path}: a frame was cut short")
        yield data[at + 16:at + 16 + captured]
        at += 16 + captured


def masked_ip(frame):
    """(offset of UDP, end of packet, source, masked IP header), or None if it is not UDP."""
    kind, at = struct.unpack(">H", frame[12:14])[0], 14
    if kind == 0x0800 and frame[at + 9] == UDP:
        udp = at + (frame[at] & 15) * 4
        header = bytearray(frame[at:udp])
        header[1] = header[8] = header[10] = header[11] = 0xff
        size = struct.unpack(">H", frame[at + 2:at + 4])[0]
        return udp, at + size, frame[at + 12:at + 16], header
    if kind == 0x86dd and frame[at + 6] == UDP:
        udp = at + 40
        header = bytearray(frame[at:udp])
        header[0] |= 0x0f
        header[1:4] = b"\xff\xff\xff"
        header[7] = 0xff
        size = struct.unpack(">H", frame[at + 4:at + 6])[0]
        return udp, udp + size, frame[at + 8:at + 24], header
    return None


def packets(path):
    for frame in frames(path):
        found = masked_ip(frame)
        if found is None:
            continue
        udp_at, end, source, ip_header = found
        udp = bytearray(frame[udp_at:udp_at + 8])
        if struct.unpack(">H", udp[2:4])[0] != ROCE_PORT:
            continue
        udp[6:8] = b"\xff\xff"
        bth = bytearray(frame[udp_at + 8:udp_at + 20])
        opcode, destination_qp, psn = bth[0], bytes(bth[5:8]), bytes(bth[9:12])
        bth[4] = 0xff
        covered = b"\xff" * 8 + ip_header + udp + bth + frame[udp_at + 20:end - 4]
        good = struct.pack("<I", zlib.crc32(covered)) == frame[end - 4:end]
        yield Packet(bytes(source), opcode, destination_qp, psn, good)


class Verdict:
    """What is in a capture and what is wrong with it."""

    def __init__(self, path):
        self.opcodes = collections.Counter()
        self.sources = collections.Counter()
        self.again = collections.Counter()  # by source: requests seen before
        self.bad_icrc = 0
        seen = set()
        for packet in packets(path):
            self.opcodes[packet.opcode] += 1
            self.sources[packet.source] += 1
            self.bad_icrc += not packet.icrc_good
            is_request = packet.opcode & 0x1f not in range(0x0d, 0x13)
            key = (packet.source, packet.opcode, packet.destination_qp, packet.psn)
            if is_request and key in seen:
                self.again[packet.source] += 1
            seen.add(key)
        self.malformed = subprocess.run(
            [*TSHARK, "-r", str(path), "-Y",
             f"udp.port=={ROCE_PORT} && _ws.expert.severity>={SEVERITY_WARNING}"],
            check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout

    def total(self):
        return sum(self.opcodes.values())

    def good(self):
        return self.total() > 0 and self.bad_icrc == 0 and not self.malformed

    def lines(self):
        opcodes = ", ".join(f"{code:#04x}: {n}" for code, n in sorted(self.opcodes.items()))
        yield f"{self.total()} packets, {self.bad_icrc} with a bad ICRC; by opcode {opcodes}"
        for source, count in self.sources.items():
            yield f"from {source.hex()}: {count} packets, {self.again[source]} requests sent again"
        for line in self.malformed.splitlines()[:20]:
            yield "tshark: " + line


def main():
    good = True
    for path in sys.argv[1:]:
        verdict = Verdict(path)
        for line in verdict.lines():
            print(f"{path}: {line}")
        good = good and verdict.good()
    sys.exit(0 if good and len(sys.argv) > 1 else 1)


if __name__ == "__main__":
    main()
