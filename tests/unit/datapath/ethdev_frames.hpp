// Frames for tests of the ethdev wire: RoCEv2 packets with a pattern for payload.
#pragma once

#include <arpa/inet.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "datapath/ethdev/ethdev.hpp"
#include "datapath/frame.hpp"
#include "tests/unit/datapath/ethdev_pair.hpp"

namespace uroce::test {

inline datapath::Config config_of(const Host& host) {
  datapath::Config config;
  config.wire = datapath::WireKind::kNetdev;
  config.netdev = host.interface;
  return config;
}

inline datapath::DeviceDescription describe_or_fail(const datapath::Config& config) {
  auto devices = datapath::describe_netdev(config);
  check(devices.ok(), devices.ok() ? "" : devices.refusal().why);
  return devices->front();
}

inline std::unique_ptr<datapath::Wire> open_or_fail(const Host& host) {
  const datapath::Config config = config_of(host);
  auto wire = datapath::open_ethdev_wire(config, describe_or_fail(config));
  check(wire.ok(), wire.ok() ? "" : wire.refusal().why);
  return std::move(*wire);
}

inline Gid gid_of(const std::string& text) {
  Gid gid = Gid::from_ipv4(0, 0, 0, 0);
  const bool parsed = text.find(':') == std::string::npos
                          ? inet_pton(AF_INET, text.c_str(), &gid.bytes[12]) == 1
                          : inet_pton(AF_INET6, text.c_str(), gid.bytes.data()) == 1;
  check(parsed, text + " is an address");
  return gid;
}

inline Result<std::unique_ptr<Path>> try_path(datapath::Wire& wire, const Gid& source,
                                              const Gid& destination) {
  transport::AddressVector address;
  address.source_gid = source;
  address.destination_gid = destination;
  return wire.open_path(address, Qpn{0x112233});
}

inline std::unique_ptr<Path> path_or_fail(datapath::Wire& wire, const Gid& source,
                                          const Gid& destination) {
  auto path = try_path(wire, source, destination);
  check(path.ok(), path.ok() ? "" : path.refusal().why);
  return std::move(*path);
}

// A SEND_ONLY to no queue pair in particular, `payload` bytes of `fill`.
inline transport::OutgoingPacket packet_with(const std::vector<std::byte>& payload) {
  transport::OutgoingPacket packet;
  packet.destination_qpn = Qpn{0x112233};
  packet.payload_length = static_cast<uint32_t>(payload.size());
  packet.header_length = 12;
  packet.headers.fill(std::byte{0});
  packet.headers[0] = std::byte{4};
  packet.segment_count = 1;
  packet.segments[0] = {payload.data(), packet.payload_length};
  return packet;
}

// True if the wire took a frame with that payload.
inline bool send_one(datapath::Wire& wire, const Path& path,
                     const std::vector<std::byte>& payload) {
  const auto size = static_cast<uint32_t>(payload.size());
  std::byte* const out = wire.reserve(path, Qpn{0x112233}, datapath::frame_bytes_bound(path, size));
  if (out == nullptr) return false;
  wire.commit(datapath::build_frame(out, path, packet_with(payload)));
  wire.flush();
  return true;
}

// Hands every frame that comes within `milliseconds` to `sink` until it returns true; true if it
// did.
inline bool receive_until(datapath::Wire& wire, int milliseconds,
                          const std::function<bool(const datapath::Frame&)>& sink) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
  std::array<datapath::Frame, 1> burst;  // what the sink did not ask for stays for the next call
  bool done = false;
  while (!done && std::chrono::steady_clock::now() < end) {
    const size_t count = wire.receive(burst);
    for (size_t i = 0; i < count; ++i) done |= sink(burst[i]);
    wire.release();
    if (count == 0) wire.sleep(100'000);
  }
  return done;
}

// True if a frame whose payload is exactly `payload` comes.
inline bool receive_one(datapath::Wire& wire, int milliseconds,
                        const std::vector<std::byte>& payload) {
  return receive_until(wire, milliseconds, [&](const datapath::Frame& frame) {
    const auto dissected = datapath::dissect_frame(frame);
    const auto* roce = std::get_if<datapath::RoceFrame>(&dissected);
    return roce != nullptr && roce->transport.size() == payload.size() + 12 &&
           std::memcmp(roce->transport.data() + 12, payload.data(), payload.size()) == 0;
  });
}

}  // namespace uroce::test
