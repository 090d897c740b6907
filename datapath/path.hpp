// A resolved route to a peer: what stands in front of the BTH in every packet to it.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "transport/verbs.hpp"

namespace uroce {

// Made by Wire::open_path, owned by the lane, named by AddressVector::path. The template holds
// Ethernet, IP and UDP headers complete but for the IP length, IPv4 id and checksum, UDP source
// port and length, which the frame builder fills in.
class Path {
 public:
  static constexpr size_t kMaxHeaders = 14 + 40 + 8;

  Path() = default;
  virtual ~Path() = default;  // a wire may keep its own state behind the path

  transport::AddressVector address;
  std::array<std::byte, kMaxHeaders> header_template{};
  uint8_t header_bytes = 0;  // 42 for v4, 62 for v6
  bool ipv6 = false;
  bool loopback = false;                      // to this very endpoint
  uint8_t fabric_slot = 0;                    // fabric: the peer's slot, 0 unknown; else unused
  mutable std::atomic<bool> resolved{false};  // destination MAC known; written by the wire
};

}  // namespace uroce
