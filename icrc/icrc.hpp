// The invariant CRC over a RoCEv2 packet (IBTA annex A17.3.3; PROTOCOL.md 1).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "icrc/crc32.hpp"

namespace uroce::icrc {

inline constexpr size_t kSize = 4;  // bytes at the end of the packet, little-endian

// CRC state over eight 0xff bytes and the masked IP, UDP and base transport headers: `headers`
// starts at the IP header (v4 without options, or v6 without extension headers) and ends with the
// 12-byte BTH. Continue it with update over extension headers, payload and pad; the ICRC is
// finish(state).
uint32_t begin(std::span<const std::byte> headers);
constexpr uint32_t finish(uint32_t state) {
  return ~state;
}
void store(std::byte* at, uint32_t icrc);
uint32_t load(const std::byte* at);

// `ip_packet` runs from the IP header to the end of the ICRC. The caller has checked that lengths
// are consistent.
bool verify(std::span<const std::byte> ip_packet);
void seal(std::span<std::byte> ip_packet);

}  // namespace uroce::icrc
