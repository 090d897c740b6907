// The ICRC of packets that the kernel's rdma_rxe sent.
#include <algorithm>

#include "icrc/icrc.hpp"
#include "tests/catch.hpp"
#include "tests/golden/pcap.hpp"

namespace uroce {
namespace {

struct Capture {
  std::string name;
  size_t ipv4;  // RoCEv2 frames in the file
  size_t ipv6;
};

const std::vector<Capture> kCaptures{
    {"rxe-verbs.pcap", 115, 0},
    {"rxe-loss.pcap", 123, 0},
    {"rxe-cm.pcap", 220, 0},
    {"rxe-cm-reject.pcap", 31, 17},
};

TEST_CASE("every packet that rdma_rxe sent verifies and is sealed again to the same bytes") {
  const Capture capture = GENERATE(from_range(kCaptures));
  INFO(capture.name);
  size_t ipv4 = 0;
  size_t ipv6 = 0;
  for (const tests::Frame& frame : tests::read_pcap(tests::kVectorsFolder + "/" + capture.name)) {
    const auto packet = tests::find_roce(frame);
    if (!packet) {
      continue;
    }
    ++(packet->family == 4 ? ipv4 : ipv6);
    REQUIRE(icrc::verify(packet->ip_packet(frame)));

    tests::Frame damaged = frame;
    const auto ip_packet = packet->ip_packet(damaged);
    for (std::byte& byte : ip_packet.last(icrc::kSize)) {
      byte ^= std::byte{0xff};
    }
    REQUIRE_FALSE(icrc::verify(ip_packet));
    icrc::seal(ip_packet);
    REQUIRE(damaged == frame);
  }
  CHECK(ipv4 == capture.ipv4);
  CHECK(ipv6 == capture.ipv6);
}

TEST_CASE("a byte of payload that changed on the way is noticed in every packet") {
  for (const Capture& capture : kCaptures) {
    for (tests::Frame& frame : tests::read_pcap(tests::kVectorsFolder + "/" + capture.name)) {
      if (const auto packet = tests::find_roce(frame)) {
        frame[packet->ip_at + packet->size - icrc::kSize - 1] ^= std::byte{1};
        REQUIRE_FALSE(icrc::verify(packet->ip_packet(frame)));
      }
    }
  }
}

TEST_CASE("a capture that is not there is an error, not an empty list") {
  CHECK_THROWS_AS(tests::read_pcap(tests::kVectorsFolder + "/none.pcap"), std::runtime_error);
}

}  // namespace
}  // namespace uroce
