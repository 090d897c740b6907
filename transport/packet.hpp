// What crosses the border between transport and the wire: a parsed packet in, a described packet
// out.
#pragma once

#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <variant>

#include "transport/drop_reason.hpp"
#include "transport/headers.hpp"
#include "transport/opcode.hpp"
#include "transport/types.hpp"
#include "transport/verbs.hpp"

namespace uroce::transport {

// Where a packet came from and which network it crossed. Filled by datapath from IP and UDP.
struct PacketOrigin {
  Gid source_gid;
  Gid destination_gid;
  bool congestion_experienced = false;  // ECN CE mark
};

// A well-formed transport packet: the opcode is known, every header that the opcode asks for is
// present and decoded, the length holds headers + payload + pad. Spans point into the frame.
// Only `parse` makes one.
struct PacketView {
  const OpcodeInfo* opcode = nullptr;  // never null: a row of the opcode table
  Bth bth;
  Reth reth;  // valid if opcode->has(kReth), and so on
  AtomicEth atomic_eth;
  Aeth aeth;
  AtomicAckEth atomic_ack_eth;
  Deth deth;
  XrcEth xrc_eth;
  uint32_t immediate = 0;  // network byte order
  uint32_t invalidate_rkey = 0;
  std::span<const std::byte> payload;  // without pad
};

// Parses BTH to pad (the UDP payload without the ICRC). Does not judge lengths against a path MTU.
// Drops: kTruncatedPacket, kBadTransportVersion, kUnknownOpcode, kBadPad (the pad is longer than
// what follows the headers, or the whole is no multiple of 4 bytes), kBadLength (payload behind an
// opcode that has none).
std::variant<PacketView, DropReason> parse(std::span<const std::byte> transport_bytes);

// A piece of registered memory (or of an inline buffer of a WQE) that goes into a packet.
struct Segment {
  const std::byte* data = nullptr;
  uint32_t length = 0;
};

inline constexpr size_t kMaxSges = 32;
inline constexpr size_t kMaxHeaderBytes =
    12 + 8 + 16 + 28 + 4 + 4;  // BTH and the largest set of others

// A packet to send, described: datapath adds Ethernet, IP and UDP before it and pad and ICRC behind
// it, copying the payload in the same pass that checksums it.
struct OutgoingPacket {
  const Path* path = nullptr;  // the address vector's
  Qpn source_qpn;              // with the destination's, gives the UDP source port
  Qpn destination_qpn;
  uint8_t header_length = 0;  // bytes used in `headers`
  uint8_t pad_length = 0;     // 0..3, already set in the BTH
  uint8_t segment_count = 0;
  uint32_t payload_length = 0;                     // sum over segments
  std::array<std::byte, kMaxHeaderBytes> headers;  // BTH first
  std::array<Segment, kMaxSges> segments;
};

// Zero bytes that fill a payload up to a multiple of 4: the BTH's pad count.
constexpr uint8_t pad_for(uint32_t payload_length) {
  return static_cast<uint8_t>(-payload_length & 3);
}

// Header bytes, in wire order: begin_headers with the BTH, then append what the opcode asks for.
inline void begin_headers(OutgoingPacket& packet, const Bth& bth) {
  bth.encode(HeaderRoom<Bth::kSize>(packet.headers.data(), Bth::kSize));
  packet.header_length = Bth::kSize;
  packet.pad_length = bth.pad_count;
  packet.destination_qpn = bth.destination_qpn;
}

template <typename Header>
void append(OutgoingPacket& packet, const Header& header) {
  assert(packet.header_length + Header::kSize <= kMaxHeaderBytes);
  header.encode(
      HeaderRoom<Header::kSize>(packet.headers.data() + packet.header_length, Header::kSize));
  packet.header_length = static_cast<uint8_t>(packet.header_length + Header::kSize);
}

// `immediate` is in network byte order, as the consumer gave it.
inline void append_immediate(OutgoingPacket& packet, uint32_t immediate) {
  assert(packet.header_length + kImmediateSize <= kMaxHeaderBytes);
  std::memcpy(packet.headers.data() + packet.header_length, &immediate, kImmediateSize);
  packet.header_length = static_cast<uint8_t>(packet.header_length + kImmediateSize);
}

inline void append_invalidate(OutgoingPacket& packet, Rkey rkey) {
  assert(packet.header_length + kIethSize <= kMaxHeaderBytes);
  store_be32(packet.headers.data() + packet.header_length, rkey.value);
  packet.header_length = static_cast<uint8_t>(packet.header_length + kIethSize);
}

// Where poll_transmit puts packets: a lane's wire or the simulation's link.
class TransmitSink {
 public:
  // True if one frame of up to `payload_length` bytes of payload can be sent toward that QP now.
  // False parks the queue pair: it is asked again in a later poll_transmit. The answer holds until
  // `send`.
  virtual bool can_send(const Path* path, Qpn destination_qpn, uint32_t payload_length) = 0;
  // Consumes the packet. Called at most once after each can_send that returned true.
  virtual void send(const OutgoingPacket& packet) = 0;

 protected:
  ~TransmitSink() = default;
};

}  // namespace uroce::transport
