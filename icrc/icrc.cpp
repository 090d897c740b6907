// The masked headers of a RoCEv2 packet, and its ICRC checked or written.
#include "icrc/icrc.hpp"

#include "icrc/engine.hpp"

namespace uroce::icrc {
namespace {

constexpr size_t kIpv4Size = 20;
constexpr size_t kIpv6Size = 40;
constexpr size_t kUdpSize = 8;
constexpr size_t kBthSize = 12;

// The register after the eight 0xff bytes that stand for the local route header, from ~0.
constexpr uint32_t kSeed = 0xdebb20e3;

// What to set to ones in the IP, UDP and base transport headers.
struct Mask {
  alignas(kMaskedSize) uint8_t ones[kMaskedSize] = {};
};

constexpr void mask_udp_and_bth(uint8_t* udp) {
  constexpr size_t kChecksumAt = 6;
  constexpr size_t kFecnBecnReservedAt = kUdpSize + 4;
  udp[kChecksumAt] = udp[kChecksumAt + 1] = 0xff;
  udp[kFecnBecnReservedAt] = 0xff;
}

constexpr Mask ipv4_mask() {
  constexpr size_t kTypeOfServiceAt = 1;
  constexpr size_t kTimeToLiveAt = 8;
  constexpr size_t kChecksumAt = 10;
  Mask mask;
  mask.ones[kTypeOfServiceAt] = 0xff;
  mask.ones[kTimeToLiveAt] = 0xff;
  mask.ones[kChecksumAt] = mask.ones[kChecksumAt + 1] = 0xff;
  mask_udp_and_bth(mask.ones + kIpv4Size);
  return mask;
}

constexpr Mask ipv6_mask() {
  constexpr size_t kHopLimitAt = 7;
  Mask mask;
  mask.ones[0] = 0x0f;                                // traffic class, upper half
  mask.ones[1] = mask.ones[2] = mask.ones[3] = 0xff;  // its lower half, flow label
  mask.ones[kHopLimitAt] = 0xff;
  mask_udp_and_bth(mask.ones + kIpv6Size);
  return mask;
}

constexpr Mask kIpv4Mask = ipv4_mask();
constexpr Mask kIpv6Mask = ipv6_mask();

bool is_ipv6(std::byte version_byte) {
  return static_cast<uint8_t>(version_byte) >> 4 == 6;
}

size_t size_through_bth(std::byte version_byte) {
  return (is_ipv6(version_byte) ? kIpv6Size : kIpv4Size) + kUdpSize + kBthSize;
}

// The ICRC that belongs at the end of `ip_packet`.
uint32_t compute(std::span<const std::byte> ip_packet) {
  const size_t headers = size_through_bth(ip_packet.front());
  return finish(update(begin(ip_packet.first(headers)),
                       ip_packet.subspan(headers, ip_packet.size() - headers - kSize)));
}

}  // namespace

uint32_t begin(std::span<const std::byte> headers) {
  const Mask& mask = is_ipv6(headers.front()) ? kIpv6Mask : kIpv4Mask;
  return engine_in_use().update_masked(kSeed, headers.data(), mask.ones,
                                       size_through_bth(headers.front()));
}

void store(std::byte* at, uint32_t icrc) {
  for (size_t i = 0; i < kSize; ++i) {
    at[i] = static_cast<std::byte>(icrc >> (8 * i));
  }
}

uint32_t load(const std::byte* at) {
  uint32_t icrc = 0;
  for (size_t i = 0; i < kSize; ++i) {
    icrc |= static_cast<uint32_t>(at[i]) << (8 * i);
  }
  return icrc;
}

bool verify(std::span<const std::byte> ip_packet) {
  return load(ip_packet.data() + ip_packet.size() - kSize) == compute(ip_packet);
}

void seal(std::span<std::byte> ip_packet) {
  store(ip_packet.data() + ip_packet.size() - kSize, compute(ip_packet));
}

}  // namespace uroce::icrc
