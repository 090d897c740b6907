// The masked headers of a RoCEv2 packet, and its ICRC checked or written.
#include "icrc/icrc.hpp"

#include <cstring>

namespace uroce::icrc {
namespace {

constexpr size_t kIpv4Size = 20;
constexpr size_t kIpv6Size = 40;
constexpr size_t kUdpSize = 8;
constexpr size_t kBthSize = 12;
constexpr size_t kBlock = 16;  // engines are fastest over whole blocks

// The register after the eight 0xff bytes that stand for the local route header, from ~0.
constexpr uint32_t kSeed = 0xdebb20e3;

// What to set to ones in the IP, UDP and base transport headers.
template <size_t kHeadersSize>
struct Mask {
  uint8_t bits[kHeadersSize] = {};
};

constexpr void mask_udp_and_bth(uint8_t* udp) {
  constexpr size_t kChecksumAt = 6;
  constexpr size_t kFecnBecnReservedAt = kUdpSize + 4;
  udp[kChecksumAt] = udp[kChecksumAt + 1] = 0xff;
  udp[kFecnBecnReservedAt] = 0xff;
}

constexpr auto ipv4_mask() {
  constexpr size_t kTypeOfServiceAt = 1;
  constexpr size_t kTimeToLiveAt = 8;
  constexpr size_t kChecksumAt = 10;
  Mask<kIpv4Size + kUdpSize + kBthSize> mask;
  mask.bits[kTypeOfServiceAt] = 0xff;
  mask.bits[kTimeToLiveAt] = 0xff;
  mask.bits[kChecksumAt] = mask.bits[kChecksumAt + 1] = 0xff;
  mask_udp_and_bth(mask.bits + kIpv4Size);
  return mask;
}

constexpr auto ipv6_mask() {
  constexpr size_t kHopLimitAt = 7;
  Mask<kIpv6Size + kUdpSize + kBthSize> mask;
  mask.bits[0] = 0x0f;                                // traffic class, upper half
  mask.bits[1] = mask.bits[2] = mask.bits[3] = 0xff;  // its lower half, flow label
  mask.bits[kHopLimitAt] = 0xff;
  mask_udp_and_bth(mask.bits + kIpv6Size);
  return mask;
}

bool is_ipv6(std::byte version_byte) {
  return static_cast<uint8_t>(version_byte) >> 4 == 6;
}

size_t size_through_bth(std::byte version_byte) {
  return (is_ipv6(version_byte) ? kIpv6Size : kIpv4Size) + kUdpSize + kBthSize;
}

// Zeros in front of a message do not change a register of zero, so the message can be padded at
// the front to whole blocks once the seed has been xored into its first bytes.
template <size_t kHeadersSize>
uint32_t update_masked(const Mask<kHeadersSize>& mask, const std::byte* headers) {
  constexpr size_t kZeros = (kBlock - kHeadersSize % kBlock) % kBlock;
  alignas(kBlock) uint8_t padded[kZeros + kHeadersSize] = {};
  uint8_t* message = padded + kZeros;
  std::memcpy(message, headers, kHeadersSize);
  for (size_t i = 0; i < kHeadersSize; ++i) {
    message[i] |= mask.bits[i];
  }
  for (size_t i = 0; i < sizeof(kSeed); ++i) {
    message[i] ^= static_cast<uint8_t>(kSeed >> (8 * i));
  }
  return update(0, std::as_bytes(std::span(padded)));
}

// The ICRC that belongs at the end of `ip_packet`.
uint32_t compute(std::span<const std::byte> ip_packet) {
  const size_t headers = size_through_bth(ip_packet.front());
  return finish(update(begin(ip_packet.first(headers)),
                       ip_packet.subspan(headers, ip_packet.size() - headers - kSize)));
}

}  // namespace

uint32_t begin(std::span<const std::byte> headers) {
  static constexpr auto kIpv4Mask = ipv4_mask();
  static constexpr auto kIpv6Mask = ipv6_mask();
  return is_ipv6(headers.front()) ? update_masked(kIpv6Mask, headers.data())
                                  : update_masked(kIpv4Mask, headers.data());
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
