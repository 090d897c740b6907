// Ethernet frames around transport packets: building one in place, and taking one apart.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>

#include "datapath/path.hpp"
#include "datapath/wire.hpp"
#include "transport/packet.hpp"

namespace uroce::datapath {

inline constexpr uint16_t kRoceUdpPort = 4791;  // annex A17.3.2
inline constexpr size_t kEthernetBytes = 14;
inline constexpr size_t kUdpBytes = 8;

// The most that a frame with this much payload takes, pad and ICRC included.
constexpr size_t frame_bytes_bound(const Path& path, uint32_t payload_length) {
  return path.header_bytes + transport::kMaxHeaderBytes + payload_length + 3 + 4;
}

// Writes the whole frame at `out`, which has frame_bytes_bound bytes: headers from the path's
// template, payload copied and checksummed in one pass, pad, ICRC. Returns the frame's length.
size_t build_frame(std::byte* out, const Path& path, const transport::OutgoingPacket& packet);

// A RoCEv2 frame whose addresses and lengths are sound. The ICRC has not been looked at.
struct RoceFrame {
  transport::PacketOrigin origin;
  std::span<const std::byte> ip_packet;  // from the IP header to the end of the ICRC
  std::span<const std::byte> transport;  // from the BTH to the end of the pad
};

std::variant<RoceFrame, DropReason> dissect_frame(const Frame& frame);

// UDP source port of a flow, 0xc000..0xffff: from the flow label, or if that is 0 from both QPNs,
// the same in both directions (as the kernel's rdma_flow_label_to_udp_sport and
// rdma_calc_flow_label).
uint16_t udp_source_port(uint32_t flow_label, Qpn local, Qpn remote);

// Fills a path's header template for `address`; see Path for what is left to build_frame.
void fill_header_template(Path& path, const std::array<uint8_t, 6>& source_mac,
                          const std::array<uint8_t, 6>& destination_mac);

}  // namespace uroce::datapath
