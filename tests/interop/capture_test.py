#!/usr/bin/env python3
"""capture.py accepts sound captures and refuses damaged and empty ones. Usage: FOLDER_OF_PCAPS"""

import shutil
import sys
import tempfile
import unittest
from pathlib import Path

import capture

VECTORS = Path(sys.argv.pop(1))
PCAP_HEADER_SIZE = 24


class CaptureTest(unittest.TestCase):
    def verdict_of(self, data):
        with tempfile.NamedTemporaryFile(suffix=".pcap") as file:
            file.write(data)
            file.flush()
            return capture.Verdict(file.name)

    def test_a_sound_capture_is_good(self):
        verdict = capture.Verdict(VECTORS / "rxe-verbs.pcap")
        self.assertTrue(verdict.good())
        self.assertEqual(verdict.total(), 115)

    def test_a_changed_byte_is_a_bad_icrc(self):
        data = bytearray((VECTORS / "rxe-cm.pcap").read_bytes())
        data[-5] ^= 1  # before the ICRC of the last packet
        verdict = self.verdict_of(bytes(data))
        self.assertEqual(verdict.bad_icrc, 1)
        self.assertFalse(verdict.good())

    def test_a_wrong_opcode_is_seen_by_tshark(self):
        data = bytearray((VECTORS / "rxe-verbs.pcap").read_bytes())
        at = data.index(b"\x12\xb7", PCAP_HEADER_SIZE)  # destination port of the first packet
        data[at + 6] = 0x1f  # reserved
        verdict = self.verdict_of(bytes(data))
        self.assertFalse(verdict.good())

    def test_a_capture_without_packets_is_not_good(self):
        data = (VECTORS / "rxe-verbs.pcap").read_bytes()[:PCAP_HEADER_SIZE]
        self.assertFalse(self.verdict_of(data).good())

    def test_requests_sent_again_are_counted(self):
        verdict = capture.Verdict(VECTORS / "rxe-loss.pcap")
        self.assertGreater(sum(verdict.again.values()), 0)


if __name__ == "__main__":
    if shutil.which("tshark") is None:
        print("tshark is not installed")
        sys.exit(77)
    unittest.main()
