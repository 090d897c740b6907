// The ICRC over whole packets: what it covers, what it masks.
#include "icrc/icrc.hpp"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "tests/catch.hpp"
#include "tests/unit/icrc/reference.hpp"

namespace uroce::icrc {
namespace {

using Bytes = std::vector<std::byte>;

// From tests/vectors/rxe-verbs.pcap and rxe-cm-reject.pcap, without the Ethernet header.
constexpr std::string_view kCapturedAcknowledgement =
    "4500003072cd40004011b3510a4d00020a4d0003c12112b7001c00001100ffff0000001100fffffa"
    "1f00000142706c66";
constexpr std::string_view kCapturedIpv6 =
    "60000000001c1140fe80000000000000505400fffe770002fe80000000000000505400fffe770003"
    "e34312b7001c00001100ffff0000001300b1ec4f1f000001fd67b38c";

const std::vector<Engine>& supported_engines() {
  static const std::vector<Engine> engines = [] {
    std::vector<Engine> found;
    for (const Engine engine : {Engine::kPortable, Engine::kPclmulqdq, Engine::kVpclmulqdq}) {
      if (supported(engine)) {
        found.push_back(engine);
      }
    }
    return found;
  }();
  return engines;
}

Bytes from_hex(std::string_view hex) {
  Bytes bytes;
  for (size_t at = 0; at + 1 < hex.size(); at += 2) {
    bytes.push_back(std::byte(std::stoi(std::string(hex.substr(at, 2)), nullptr, 16)));
  }
  return bytes;
}

Bytes packet(uint8_t version, size_t payload) {
  const size_t headers = (version == 6 ? 40 : 20) + 8 + 12;
  Bytes bytes(headers + payload + kSize);
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::byte>(i * 37 + 11);
  }
  bytes[0] = std::byte(version == 6 ? 0x60 : 0x45);
  return bytes;
}

// A bit of the packet that changes on the way and so is not covered. IBTA A17.3.3.
bool is_masked(uint8_t version, size_t bit) {
  const size_t byte = bit / 8;
  const size_t udp = version == 6 ? 40 : 20;
  if (byte == udp + 6 || byte == udp + 7 || byte == udp + 8 + 4) {
    return true;  // UDP checksum; FECN, BECN and the reserved bits beside them
  }
  if (version == 6) {
    return (byte == 0 && bit % 8 < 4) || (byte >= 1 && byte <= 3) || byte == 7;
  }
  return byte == 1 || byte == 8 || byte == 10 || byte == 11;
}

TEST_CASE("an acknowledgement captured from rdma_rxe has the ICRC that rdma_rxe gave it") {
  const Bytes captured = from_hex(kCapturedAcknowledgement);
  CHECK(verify(captured));
  Bytes sealed = captured;
  std::fill(sealed.end() - kSize, sealed.end(), std::byte{0});
  CHECK_FALSE(verify(sealed));
  seal(sealed);
  CHECK(sealed == captured);
}

TEST_CASE("a version 6 packet captured from rdma_rxe has the ICRC that rdma_rxe gave it") {
  const Bytes captured = from_hex(kCapturedIpv6);
  CHECK(verify(captured));
  Bytes sealed = captured;
  std::fill(sealed.end() - kSize, sealed.end(), std::byte{0});
  CHECK_FALSE(verify(sealed));
  seal(sealed);
  CHECK(sealed == captured);
}

TEST_CASE("a sealed packet verifies, masked bits may change, any other bit may not") {
  const auto version = GENERATE(uint8_t{4}, uint8_t{6});
  const auto payload = GENERATE(size_t{0}, size_t{4}, size_t{16}, size_t{64}, size_t{100});
  const Engine engine = GENERATE(from_range(supported_engines()));
  select(engine);
  Bytes bytes = packet(version, payload);
  seal(bytes);
  REQUIRE(verify(bytes));
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    if (bit >= 4 && bit < 8) {
      continue;  // the version itself decides what the packet is
    }
    bytes[bit / 8] ^= std::byte(1 << bit % 8);
    INFO(name_of(engine) << ", version " << int{version} << ", payload " << payload << ", bit "
                         << bit);
    REQUIRE(verify(bytes) == is_masked(version, bit));
    bytes[bit / 8] ^= std::byte(1 << bit % 8);
  }
  select(fastest_supported());
}

TEST_CASE("begin covers eight bytes of ones and the masked headers") {
  for (const uint8_t version : {uint8_t{4}, uint8_t{6}}) {
    Bytes headers = packet(version, 0);
    headers.resize(headers.size() - kSize);
    Bytes covered(8, std::byte{0xff});
    for (size_t byte = 0; byte < headers.size(); ++byte) {
      std::byte masked = headers[byte];
      for (size_t bit = 0; bit < 8; ++bit) {
        if (is_masked(version, byte * 8 + bit)) {
          masked |= std::byte(1 << bit);
        }
      }
      covered.push_back(masked);
    }
    for (const Engine engine : supported_engines()) {
      select(engine);
      INFO(name_of(engine) << ", version " << int{version});
      CHECK(icrc::begin(headers) == tests::reference_crc(~0u, covered));
    }
    select(fastest_supported());
  }
}

TEST_CASE("a packet sealed in pieces equals one sealed whole") {
  for (const uint8_t version : {uint8_t{4}, uint8_t{6}}) {
    Bytes whole = packet(version, 16 + 1000);
    seal(whole);
    const size_t headers = whole.size() - kSize - 1016;
    uint32_t state = icrc::begin(std::span(whole).first(headers));
    state = update(state, std::span(whole).subspan(headers, 16));
    Bytes copy(1000);
    state = update_copy(state, copy.data(), whole.data() + headers + 16, copy.size());
    CHECK(finish(state) == load(whole.data() + whole.size() - kSize));
  }
}

TEST_CASE("the ICRC is stored with its least significant byte first") {
  std::byte bytes[kSize];
  store(bytes, 0x12345678);
  CHECK(bytes[0] == std::byte{0x78});
  CHECK(bytes[3] == std::byte{0x12});
  CHECK(load(bytes) == 0x12345678);
}

}  // namespace
}  // namespace uroce::icrc
