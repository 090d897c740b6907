// Frames: what build_frame makes, dissect_frame and the ICRC accept; what is broken is named.
#include "datapath/frame.hpp"

#include <cstring>
#include <vector>

#include "icrc/icrc.hpp"
#include "tests/catch.hpp"

using namespace uroce;
using namespace uroce::datapath;

namespace {

constexpr std::array<uint8_t, 6> kOurMac = {2, 0, 0, 0, 0, 1};
constexpr std::array<uint8_t, 6> kPeerMac = {2, 0, 0, 0, 0, 2};

Gid ipv6(uint8_t last) {
  Gid gid;
  gid.bytes[0] = 0xfd;
  gid.bytes[15] = last;
  return gid;
}

void make_path(Path& path, bool v6) {
  path.address.source_gid = v6 ? ipv6(1) : Gid::from_ipv4(127, 1, 2, 3);
  path.address.destination_gid = v6 ? ipv6(2) : Gid::from_ipv4(127, 1, 2, 4);
  path.address.traffic_class = 0x68;
  path.address.hop_limit = 9;
  fill_header_template(path, kOurMac, kPeerMac);
}

// A SEND_ONLY of `payload` in two segments.
std::vector<std::byte> make_frame(const Path& path, std::vector<std::byte>& payload) {
  transport::OutgoingPacket packet;
  packet.path = &path;
  packet.source_qpn = {0x010203};
  packet.destination_qpn = {0x020304};
  packet.headers.fill(std::byte{0});
  packet.headers[0] = std::byte{0x04};
  packet.header_length = transport::Bth::kSize;
  packet.payload_length = static_cast<uint32_t>(payload.size());
  packet.pad_length = static_cast<uint8_t>(-payload.size() & 3);
  packet.headers[1] = static_cast<std::byte>(packet.pad_length << 4);
  const uint32_t half = packet.payload_length / 2;
  packet.segments[0] = {payload.data(), half};
  packet.segments[1] = {payload.data() + half, packet.payload_length - half};
  packet.segment_count = 2;
  std::vector<std::byte> frame(frame_bytes_bound(path, packet.payload_length));
  frame.resize(build_frame(frame.data(), path, packet));
  return frame;
}

std::vector<std::byte> counting(size_t size) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 7 + 3);
  return bytes;
}

Frame view(const std::vector<std::byte>& bytes) {
  return {bytes.data(), static_cast<uint32_t>(bytes.size())};
}

DropReason refusal_of(const std::vector<std::byte>& bytes) {
  const auto result = dissect_frame(view(bytes));
  REQUIRE(std::holds_alternative<DropReason>(result));
  return std::get<DropReason>(result);
}

}  // namespace

TEST_CASE("A built frame dissects to the same addresses and payload, and its ICRC verifies") {
  const bool v6 = GENERATE(false, true);
  const size_t size = GENERATE(0, 1, 2, 3, 4, 5, 255, 1024, 4096);
  Path path;
  make_path(path, v6);
  auto payload = counting(size);
  const auto frame = make_frame(path, payload);
  const auto result = dissect_frame(view(frame));
  REQUIRE(std::holds_alternative<RoceFrame>(result));
  const auto& roce = std::get<RoceFrame>(result);
  CHECK(roce.origin.source_gid == path.address.source_gid);
  CHECK(roce.origin.destination_gid == path.address.destination_gid);
  CHECK_FALSE(roce.origin.congestion_experienced);
  CHECK(icrc::verify(roce.ip_packet));
  const auto parsed = transport::parse(roce.transport);
  REQUIRE(std::holds_alternative<transport::PacketView>(parsed));
  const auto& packet = std::get<transport::PacketView>(parsed);
  REQUIRE(packet.payload.size() == size);
  CHECK(std::memcmp(packet.payload.data(), payload.data(), size) == 0);
}

TEST_CASE("A flipped bit of what the ICRC covers is found") {
  Path path;
  make_path(path, false);
  auto payload = counting(64);
  const auto frame = make_frame(path, payload);
  const size_t at = GENERATE(26, 30, 34, 42, 43, 50, 60, 100);
  auto broken = frame;
  broken[at] ^= std::byte{1};
  const auto result = dissect_frame(view(broken));
  const auto* roce = std::get_if<RoceFrame>(&result);
  CHECK((roce == nullptr || !icrc::verify(roce->ip_packet)));
}

TEST_CASE("Every truncation of a frame is refused or keeps its lengths") {
  const bool v6 = GENERATE(false, true);
  Path path;
  make_path(path, v6);
  auto payload = counting(33);
  const auto frame = make_frame(path, payload);
  for (size_t length = 0; length < frame.size(); ++length) {
    const std::vector<std::byte> cut(frame.begin(), frame.begin() + static_cast<long>(length));
    CHECK(std::holds_alternative<DropReason>(dissect_frame(view(cut))));
  }
}

TEST_CASE("Bytes behind the IP packet, such as Ethernet padding, are ignored") {
  Path path;
  make_path(path, false);
  std::vector<std::byte> none;
  auto frame = make_frame(path, none);
  const size_t ip_bytes = frame.size() - kEthernetBytes;
  frame.resize(frame.size() + 20);
  const auto result = dissect_frame(view(frame));
  REQUIRE(std::holds_alternative<RoceFrame>(result));
  CHECK(std::get<RoceFrame>(result).ip_packet.size() == ip_bytes);
}

TEST_CASE("What is not a sound RoCEv2 frame is named") {
  Path path;
  make_path(path, false);
  auto payload = counting(16);
  auto frame = make_frame(path, payload);
  SECTION("another ethertype") {
    frame[12] = std::byte{0x88};
    CHECK(refusal_of(frame) == DropReason::kNotRoce);
  }
  SECTION("another protocol") {
    frame[23] = std::byte{6};
    CHECK(refusal_of(frame) == DropReason::kNotRoce);
  }
  SECTION("another port") {
    frame[37] ^= std::byte{1};
    CHECK(refusal_of(frame) == DropReason::kNotRoce);
  }
  SECTION("a fragment") {
    frame[20] |= std::byte{0x20};
    CHECK(refusal_of(frame) == DropReason::kBadIpHeader);
  }
  SECTION("IP options") {
    frame[14] = std::byte{0x46};
    CHECK(refusal_of(frame) == DropReason::kBadIpHeader);
  }
  SECTION("a bad header checksum") {
    frame[24] ^= std::byte{1};
    CHECK(refusal_of(frame) == DropReason::kBadIpHeader);
  }
  SECTION("a UDP length that disagrees with IP's") {
    frame[39] ^= std::byte{4};
    CHECK(refusal_of(frame) == DropReason::kTruncatedFrame);
  }
  SECTION("a wrong UDP checksum") {
    frame[40] = std::byte{0x12};
    CHECK(refusal_of(frame) == DropReason::kBadUdpChecksum);
  }
}

TEST_CASE("An ECN mark is reported") {
  const bool v6 = GENERATE(false, true);
  Path path;
  make_path(path, v6);
  path.address.traffic_class |= 3;
  fill_header_template(path, kOurMac, kPeerMac);
  auto payload = counting(8);
  const auto result = dissect_frame(view(make_frame(path, payload)));
  REQUIRE(std::holds_alternative<RoceFrame>(result));
  CHECK(std::get<RoceFrame>(result).origin.congestion_experienced);
}

TEST_CASE("The UDP source port is stable, symmetric and in the dynamic range") {
  const uint16_t port = udp_source_port(0, {0x123456}, {0x654321});
  CHECK(port == udp_source_port(0, {0x654321}, {0x123456}));
  CHECK(port >= 0xc000);
  CHECK(port != udp_source_port(0, {0x123457}, {0x654321}));
  CHECK(udp_source_port(0x4001, {1}, {2}) == (0xc000 | (1 ^ 1)));
  CHECK(udp_source_port(0x3fff, {1}, {2}) == 0xffff);
}
