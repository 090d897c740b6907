// Frames of a capture file, and the RoCEv2 packets in them, for tests.
#pragma once

#include <pcap/pcap.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace uroce::tests {

inline const std::string kVectorsFolder = UROCE_VECTORS_FOLDER;  // tests/vectors

using Frame = std::vector<std::byte>;  // from the Ethernet header on

// All frames of a capture file of Ethernet link type. Throws std::runtime_error when the file
// cannot be read, is damaged, or holds a frame that was cut short.
inline std::vector<Frame> read_pcap(const std::string& path) {
  char why[PCAP_ERRBUF_SIZE] = "";
  const std::unique_ptr<pcap_t, decltype(&pcap_close)> capture(pcap_open_offline(path.c_str(), why),
                                                               pcap_close);
  if (capture == nullptr) {
    throw std::runtime_error(why);
  }
  if (pcap_datalink(capture.get()) != DLT_EN10MB) {
    throw std::runtime_error(path + ": not a capture of Ethernet frames");
  }
  std::vector<Frame> frames;
  pcap_pkthdr* header = nullptr;
  const u_char* bytes = nullptr;
  int outcome = 0;
  while ((outcome = pcap_next_ex(capture.get(), &header, &bytes)) == 1) {
    if (header->caplen != header->len) {
      throw std::runtime_error(path + ": a frame was cut short");
    }
    const auto* begin = reinterpret_cast<const std::byte*>(bytes);
    frames.emplace_back(begin, begin + header->caplen);
  }
  if (outcome != PCAP_ERROR_BREAK) {  // the end of the file
    throw std::runtime_error(path + ": " + pcap_geterr(capture.get()));
  }
  return frames;
}

// Where the RoCEv2 packet lies in a frame: the IP packet without Ethernet padding.
struct RocePacket {
  size_t ip_at;    // offset of the IP header
  size_t bth_at;   // offset of the base transport header
  size_t size;     // bytes from the IP header to the end of the ICRC
  uint8_t family;  // 4 or 6

  std::span<std::byte> ip_packet(Frame& frame) const {
    return std::span(frame).subspan(ip_at, size);
  }
  std::span<const std::byte> ip_packet(const Frame& frame) const {
    return std::span(frame).subspan(ip_at, size);
  }
  // Base transport header to pad: what follows the UDP header, without the ICRC.
  std::span<const std::byte> transport(const Frame& frame) const {
    return std::span(frame).subspan(bth_at, ip_at + size - 4 - bth_at);
  }
};

// Nothing for a frame that is not UDP to port 4791 (or is too short for a packet) without IP
// options, extension headers or VLAN tags, which the captures do not have.
inline std::optional<RocePacket> find_roce(const Frame& frame) {
  constexpr size_t kEthernetSize = 14, kUdpSize = 8, kSmallestTransport = 12 + 4;
  constexpr uint8_t kUdp = 17;
  constexpr uint16_t kRocePort = 4791;
  const auto byte = [&](size_t at) { return static_cast<uint8_t>(frame[at]); };
  const auto word = [&](size_t at) { return static_cast<uint16_t>(byte(at) << 8 | byte(at + 1)); };
  const auto at_port = [&](size_t udp_at, uint8_t family,
                           size_t size) -> std::optional<RocePacket> {
    const size_t bth_at = udp_at + kUdpSize;
    if (kEthernetSize + size > frame.size() || bth_at + kSmallestTransport > kEthernetSize + size ||
        word(udp_at + 2) != kRocePort) {
      return std::nullopt;
    }
    return RocePacket{kEthernetSize, bth_at, size, family};
  };
  if (frame.size() < kEthernetSize + 40) {
    return std::nullopt;
  }
  constexpr size_t kIp = kEthernetSize;
  if (word(12) == 0x0800 && byte(kIp) == 0x45 && byte(kIp + 9) == kUdp) {
    return at_port(kIp + 20, 4, word(kIp + 2));
  }
  if (word(12) == 0x86dd && byte(kIp + 6) == kUdp) {
    return at_port(kIp + 40, 6, size_t{40} + word(kIp + 4));
  }
  return std::nullopt;
}

}  // namespace uroce::tests
