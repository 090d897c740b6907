// Offsets, lengths and checksums of Ethernet, IP and UDP around a transport packet.
#include "datapath/frame.hpp"

#include <bit>
#include <cstring>

#include "icrc/icrc.hpp"

namespace uroce::datapath {

namespace {

constexpr size_t kIpv4Bytes = 20;
constexpr size_t kIpv6Bytes = 40;
constexpr uint16_t kEtherTypeIpv4 = 0x0800;
constexpr uint16_t kEtherTypeIpv6 = 0x86dd;
constexpr uint8_t kProtocolUdp = 17;
constexpr uint8_t kDontFragment = 0x40;
constexpr uint8_t kEcnMask = 3;  // both bits set: congestion experienced

uint16_t load_be16(const std::byte* p) {
  return static_cast<uint16_t>(std::to_integer<unsigned>(p[0]) << 8 |
                               std::to_integer<unsigned>(p[1]));
}

void store_be16(std::byte* p, size_t value) {
  p[0] = static_cast<std::byte>(value >> 8);
  p[1] = static_cast<std::byte>(value);
}

uint8_t load_u8(const std::byte* p) {
  return std::to_integer<uint8_t>(*p);
}

// One's complement sum of big-endian words (RFC 1071); an odd last byte counts as the high one.
uint32_t sum_words(std::span<const std::byte> bytes, uint32_t sum) {
  size_t i = 0;
  for (; i + 1 < bytes.size(); i += 2) sum += load_be16(&bytes[i]);
  if (i < bytes.size()) sum += static_cast<uint32_t>(load_u8(&bytes[i])) << 8;
  return sum;
}

uint16_t fold(uint32_t sum) {
  while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<uint16_t>(sum);
}

bool udp_checksum_is_good(std::span<const std::byte> addresses, std::span<const std::byte> udp) {
  uint32_t sum = sum_words(addresses, kProtocolUdp + static_cast<uint32_t>(udp.size()));
  return fold(sum_words(udp, sum)) == 0xffff;
}

struct Network {
  size_t header_bytes = 0;
  size_t total_bytes = 0;  // IP header to the end of the ICRC
  std::span<const std::byte> addresses;
};

std::variant<Network, DropReason> dissect_ipv4(std::span<const std::byte> ip, RoceFrame& out) {
  if (ip.size() < kIpv4Bytes) return DropReason::kTruncatedFrame;
  if (load_u8(&ip[9]) != kProtocolUdp) return DropReason::kNotRoce;
  const unsigned fragment = load_be16(&ip[6]) & 0x3fffu;  // MF and offset
  // Options are not covered by the ICRC's definition, and RoCEv2 peers do not send them.
  if (load_u8(&ip[0]) != 0x45 || fragment != 0) return DropReason::kBadIpHeader;
  if (fold(sum_words(ip.first(kIpv4Bytes), 0)) != 0xffff) return DropReason::kBadIpHeader;
  out.origin.congestion_experienced = (load_u8(&ip[1]) & kEcnMask) == kEcnMask;
  out.origin.source_gid =
      Gid::from_ipv4(load_u8(&ip[12]), load_u8(&ip[13]), load_u8(&ip[14]), load_u8(&ip[15]));
  out.origin.destination_gid =
      Gid::from_ipv4(load_u8(&ip[16]), load_u8(&ip[17]), load_u8(&ip[18]), load_u8(&ip[19]));
  return Network{kIpv4Bytes, load_be16(&ip[2]), ip.subspan(12, 8)};
}

std::variant<Network, DropReason> dissect_ipv6(std::span<const std::byte> ip, RoceFrame& out) {
  if (ip.size() < kIpv6Bytes) return DropReason::kTruncatedFrame;
  if (load_u8(&ip[6]) != kProtocolUdp) return DropReason::kNotRoce;
  if (load_u8(&ip[0]) >> 4 != 6) return DropReason::kBadIpHeader;
  out.origin.congestion_experienced = (load_u8(&ip[1]) >> 4 & kEcnMask) == kEcnMask;
  std::memcpy(out.origin.source_gid.bytes.data(), &ip[8], 16);
  std::memcpy(out.origin.destination_gid.bytes.data(), &ip[24], 16);
  return Network{kIpv6Bytes, kIpv6Bytes + load_be16(&ip[4]), ip.subspan(8, 32)};
}

// The IP length, and what depends on it.
void complete_ip(std::byte* ip, bool ipv6, size_t ip_bytes) {
  if (ipv6) {
    store_be16(ip + 4, ip_bytes - kIpv6Bytes);
    return;
  }
  store_be16(ip + 2, ip_bytes);
  store_be16(ip + 10, 0);
  store_be16(ip + 10, static_cast<uint16_t>(~fold(sum_words({ip, kIpv4Bytes}, 0))));
}

}  // namespace

uint16_t udp_source_port(uint32_t flow_label, Qpn local, Qpn remote) {
  if (flow_label == 0) {
    uint64_t mix = static_cast<uint64_t>(local.value) * remote.value;
    mix ^= mix >> 20;
    mix ^= mix >> 40;
    flow_label = static_cast<uint32_t>(mix) & 0xfffff;
  }
  const uint32_t folded = (flow_label & 0x3fff) ^ (flow_label >> 14 & 0x3f);
  return static_cast<uint16_t>(0xc000 | folded);
}

size_t build_frame(std::byte* out, const Path& path, const transport::OutgoingPacket& packet) {
  std::memcpy(out, path.header_template.data(), path.header_bytes);
  std::byte* const ip = out + kEthernetBytes;
  std::byte* const udp = out + path.header_bytes - kUdpBytes;
  std::byte* at = out + path.header_bytes;
  const size_t transport_bytes =
      size_t{packet.header_length} + packet.payload_length + packet.pad_length + icrc::kSize;
  const size_t udp_bytes = kUdpBytes + transport_bytes;
  complete_ip(ip, path.ipv6, static_cast<size_t>(udp - ip) + udp_bytes);
  store_be16(udp,
             udp_source_port(path.address.flow_label, packet.source_qpn, packet.destination_qpn));
  store_be16(udp + 4, udp_bytes);
  std::memcpy(at, packet.headers.data(), packet.header_length);
  uint32_t crc = icrc::begin({ip, at + transport::Bth::kSize});
  if (packet.header_length > transport::Bth::kSize) {
    crc = icrc::update(crc, {at + transport::Bth::kSize, at + packet.header_length});
  }
  at += packet.header_length;
  for (size_t i = 0; i < packet.segment_count; ++i) {
    const transport::Segment& segment = packet.segments[i];
    crc = icrc::update_copy(crc, at, segment.data, segment.length);
    at += segment.length;
  }
  if (packet.pad_length != 0) {
    std::memset(at, 0, packet.pad_length);
    crc = icrc::update(crc, {at, packet.pad_length});
    at += packet.pad_length;
  }
  icrc::store(at, icrc::finish(crc));
  return static_cast<size_t>(at + icrc::kSize - out);
}

std::variant<RoceFrame, DropReason> dissect_frame(const Frame& frame) {
  if (frame.length < kEthernetBytes) return DropReason::kTruncatedFrame;
  const std::span<const std::byte> ip(frame.data + kEthernetBytes, frame.length - kEthernetBytes);
  const uint16_t ether_type = load_be16(frame.data + 12);
  RoceFrame out;
  std::variant<Network, DropReason> dissected = DropReason::kNotRoce;
  if (ether_type == kEtherTypeIpv4) dissected = dissect_ipv4(ip, out);
  if (ether_type == kEtherTypeIpv6) dissected = dissect_ipv6(ip, out);
  const auto* network = std::get_if<Network>(&dissected);
  if (network == nullptr) return std::get<DropReason>(dissected);
  const size_t least = network->header_bytes + kUdpBytes + transport::Bth::kSize + icrc::kSize;
  if (network->total_bytes > ip.size() ||
      network->total_bytes < network->header_bytes + kUdpBytes) {
    return DropReason::kTruncatedFrame;
  }
  const std::span<const std::byte> udp =
      ip.subspan(network->header_bytes, network->total_bytes - network->header_bytes);
  if (load_be16(&udp[2]) != kRoceUdpPort) return DropReason::kNotRoce;
  if (network->total_bytes < least || load_be16(&udp[4]) != udp.size()) {
    return DropReason::kTruncatedFrame;
  }
  if (load_be16(&udp[6]) != 0 && !udp_checksum_is_good(network->addresses, udp)) {
    return DropReason::kBadUdpChecksum;
  }
  out.ip_packet = ip.first(network->total_bytes);
  out.transport = udp.subspan(kUdpBytes, udp.size() - kUdpBytes - icrc::kSize);
  return out;
}

void fill_header_template(Path& path, const std::array<uint8_t, 6>& source_mac,
                          const std::array<uint8_t, 6>& destination_mac) {
  const transport::AddressVector& address = path.address;
  path.ipv6 = !address.destination_gid.is_ipv4_mapped();
  path.header_bytes =
      static_cast<uint8_t>(kEthernetBytes + kUdpBytes + (path.ipv6 ? kIpv6Bytes : kIpv4Bytes));
  path.header_template.fill(std::byte{0});
  std::byte* const out = path.header_template.data();
  std::byte* const ip = out + kEthernetBytes;
  std::memcpy(out, destination_mac.data(), 6);
  std::memcpy(out + 6, source_mac.data(), 6);
  store_be16(out + 12, path.ipv6 ? kEtherTypeIpv6 : kEtherTypeIpv4);
  if (path.ipv6) {
    const uint32_t first = 6u << 28 | static_cast<uint32_t>(address.traffic_class) << 20 |
                           (address.flow_label & 0xfffff);
    store_be16(ip, first >> 16);
    store_be16(ip + 2, first & 0xffff);
    ip[6] = std::byte{kProtocolUdp};
    ip[7] = static_cast<std::byte>(address.hop_limit);
    std::memcpy(ip + 8, address.source_gid.bytes.data(), 16);
    std::memcpy(ip + 24, address.destination_gid.bytes.data(), 16);
  } else {
    ip[0] = std::byte{0x45};
    ip[1] = static_cast<std::byte>(address.traffic_class);
    ip[6] = std::byte{kDontFragment};
    ip[8] = static_cast<std::byte>(address.hop_limit);
    ip[9] = std::byte{kProtocolUdp};
    std::memcpy(ip + 12, &address.source_gid.bytes[12], 4);
    std::memcpy(ip + 16, &address.destination_gid.bytes[12], 4);
  }
  store_be16(out + path.header_bytes - kUdpBytes + 2, kRoceUdpPort);
}

}  // namespace uroce::datapath
