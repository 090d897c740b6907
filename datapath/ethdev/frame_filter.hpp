// Tells in a few loads whether a frame from the interface is RoCEv2 for this port.
#pragma once

#include <cstdint>
#include <cstring>

#include "datapath/ethdev/interface.hpp"
#include "datapath/frame.hpp"
#include "datapath/wire.hpp"

namespace uroce::datapath {

// True if `frame` is addressed to `mac` and carries an unfragmented UDP datagram to port 4791. The
// interface shows every frame, the kernel's own included; the rest is the kernel's business and is
// no drop. VLAN tags and IPv4 options fail it: the port speaks for the untagged interface only.
inline bool is_roce_for(const MacAddress& mac, const Frame& frame) {
  const std::byte* const at = frame.data;
  const auto be16 = [at](size_t offset) {
    return static_cast<unsigned>(at[offset]) << 8 | static_cast<unsigned>(at[offset + 1]);
  };
  constexpr size_t kIp = kEthernetBytes;
  if (frame.length < kIp + 20 + kUdpBytes) return false;
  if (std::memcmp(at, mac.data(), mac.size()) != 0) return false;
  constexpr std::byte kUdp{17};
  switch (be16(12)) {
    case 0x0800:
      return at[kIp] == std::byte{0x45} && at[kIp + 9] == kUdp && (be16(kIp + 6) & 0x3fff) == 0 &&
             be16(kIp + 20 + 2) == kRoceUdpPort;
    case 0x86dd:
      return frame.length >= kIp + 40 + kUdpBytes && at[kIp + 6] == kUdp &&
             be16(kIp + 40 + 2) == kRoceUdpPort;
    default:
      return false;
  }
}

}  // namespace uroce::datapath
