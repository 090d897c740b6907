// InfiniBand transport headers as plain values, with decode and encode (IBTA chapter 9; annex A17).
//
// decode never fails: the caller's span has the header's size by its type, and every bit pattern is
// a value. Reserved bits are ignored on decode and zero on encode (PROTOCOL.md 3).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "transport/byte_order.hpp"
#include "transport/types.hpp"

namespace uroce::transport {

template <size_t kSize>
using HeaderBytes = std::span<const std::byte, kSize>;
template <size_t kSize>
using HeaderRoom = std::span<std::byte, kSize>;

// Base Transport Header, 12 bytes (IBTA 9.2).
//
//       0               1               2               3
//   0 |    opcode     |S|M|Pad| TVer  |            P_Key              |
//   4 |F|B| reserved  |             destination QPN                   |
//   8 |A|  reserved   |                   PSN                         |
//
// S solicited event, M MigReq, F FECN, B BECN, A acknowledge request.
struct Bth {
  static constexpr size_t kSize = 12;
  uint8_t opcode = 0;
  bool solicited = false;
  bool mig_req = true;    // hardware sends 1, rxe 0; either is accepted
  uint8_t pad_count = 0;  // 0..3
  uint8_t version = 0;    // TVer, must be 0
  uint16_t pkey = 0xffff;
  bool fecn = false;
  bool becn = false;
  Qpn destination_qpn;
  bool ack_request = false;
  Psn psn;

  static Bth decode(HeaderBytes<kSize> bytes);
  void encode(HeaderRoom<kSize> room) const;
  bool operator==(const Bth&) const = default;
};

// RDMA Extended Transport Header, 16 bytes (9.3.3).
//
//   0 |                       virtual address                         |
//   4 |                                                               |
//   8 |                            R_Key                              |
//  12 |                         DMA length                            |
struct Reth {
  static constexpr size_t kSize = 16;
  uint64_t virtual_address = 0;
  Rkey rkey;
  uint32_t dma_length = 0;  // bytes

  static Reth decode(HeaderBytes<kSize> bytes);
  void encode(HeaderRoom<kSize> room) const;
  bool operator==(const Reth&) const = default;
};

// Atomic Extended Transport Header, 28 bytes (9.3.4).
//
//   0 |                       virtual address                         |
//   4 |                                                               |
//   8 |                            R_Key                              |
//  12 |                    swap or add operand                        |
//  16 |                                                               |
//  20 |                      compare operand                          |
//  24 |                                                               |
struct AtomicEth {
  static constexpr size_t kSize = 28;
  uint64_t virtual_address = 0;
  Rkey rkey;
  uint64_t swap_add = 0;
  uint64_t compare = 0;

  static AtomicEth decode(HeaderBytes<kSize> bytes);
  void encode(HeaderRoom<kSize> room) const;
  bool operator==(const AtomicEth&) const = default;
};

// ACK Extended Transport Header, 4 bytes (9.3.5). transport/syndrome.hpp reads the syndrome.
//
//   0 |   syndrome    |                   MSN                         |
struct Aeth {
  static constexpr size_t kSize = 4;
  uint8_t syndrome = 0;
  uint32_t msn = 0;  // 24 bits

  static Aeth decode(HeaderBytes<kSize> bytes);
  void encode(HeaderRoom<kSize> room) const;
  bool operator==(const Aeth&) const = default;
};

// Atomic ACK Extended Transport Header, 8 bytes (9.5.3): the word's value before the operation.
struct AtomicAckEth {
  static constexpr size_t kSize = 8;
  uint64_t original = 0;

  static AtomicAckEth decode(HeaderBytes<kSize> bytes);
  void encode(HeaderRoom<kSize> room) const;
  bool operator==(const AtomicAckEth&) const = default;
};

// Datagram Extended Transport Header, 8 bytes (9.3.1).
//
//   0 |                            Q_Key                              |
//   4 |   reserved    |                source QPN                     |
struct Deth {
  static constexpr size_t kSize = 8;
  uint32_t qkey = 0;
  Qpn source_qpn;

  static Deth decode(HeaderBytes<kSize> bytes);
  void encode(HeaderRoom<kSize> room) const;
  bool operator==(const Deth&) const = default;
};

// XRC Extended Transport Header, 4 bytes (9.3.6 of annex A14).
//
//   0 |   reserved    |                 XRC SRQ                       |
struct XrcEth {
  static constexpr size_t kSize = 4;
  uint32_t xrc_srq = 0;  // 24 bits

  static XrcEth decode(HeaderBytes<kSize> bytes);
  void encode(HeaderRoom<kSize> room) const;
  bool operator==(const XrcEth&) const = default;
};

inline constexpr size_t kImmediateSize = 4;
inline constexpr size_t kIethSize = 4;
inline constexpr size_t kCnpReservedSize = 16;  // zeros after the BTH of a CNP (A17.9.3)

// Definitions. Inline: they run several times a packet.

inline Bth Bth::decode(HeaderBytes<kSize> bytes) {
  const std::byte* at = bytes.data();
  const uint8_t flags = std::to_integer<uint8_t>(at[1]);
  const uint8_t congestion = std::to_integer<uint8_t>(at[4]);
  return {
      .opcode = std::to_integer<uint8_t>(at[0]),
      .solicited = (flags & 0x80) != 0,
      .mig_req = (flags & 0x40) != 0,
      .pad_count = static_cast<uint8_t>(flags >> 4 & 3),
      .version = static_cast<uint8_t>(flags & 0xf),
      .pkey = load_be16(at + 2),
      .fecn = (congestion & 0x80) != 0,
      .becn = (congestion & 0x40) != 0,
      .destination_qpn = {load_be24(at + 5)},
      .ack_request = (std::to_integer<uint8_t>(at[8]) & 0x80) != 0,
      .psn = Psn(load_be24(at + 9)),
  };
}

inline void Bth::encode(HeaderRoom<kSize> room) const {
  const uint32_t flags =
      (solicited ? 0x80u : 0) | (mig_req ? 0x40u : 0) | (pad_count & 3u) << 4 | (version & 0xfu);
  const uint32_t congestion = (fecn ? 0x80u : 0) | (becn ? 0x40u : 0);
  std::byte* at = room.data();
  store_be32(at, static_cast<uint32_t>(opcode) << 24 | flags << 16 | pkey);
  store_be32(at + 4, congestion << 24 | (destination_qpn.value & 0xffffff));
  store_be32(at + 8, (ack_request ? 0x80000000u : 0) | psn.value());
}

inline Reth Reth::decode(HeaderBytes<kSize> bytes) {
  const std::byte* at = bytes.data();
  return {load_be64(at), {load_be32(at + 8)}, load_be32(at + 12)};
}

inline void Reth::encode(HeaderRoom<kSize> room) const {
  store_be64(room.data(), virtual_address);
  store_be32(room.data() + 8, rkey.value);
  store_be32(room.data() + 12, dma_length);
}

inline AtomicEth AtomicEth::decode(HeaderBytes<kSize> bytes) {
  const std::byte* at = bytes.data();
  return {load_be64(at), {load_be32(at + 8)}, load_be64(at + 12), load_be64(at + 20)};
}

inline void AtomicEth::encode(HeaderRoom<kSize> room) const {
  store_be64(room.data(), virtual_address);
  store_be32(room.data() + 8, rkey.value);
  store_be64(room.data() + 12, swap_add);
  store_be64(room.data() + 20, compare);
}

inline Aeth Aeth::decode(HeaderBytes<kSize> bytes) {
  return {std::to_integer<uint8_t>(bytes[0]), load_be24(bytes.data() + 1)};
}

inline void Aeth::encode(HeaderRoom<kSize> room) const {
  store_be32(room.data(), static_cast<uint32_t>(syndrome) << 24 | (msn & 0xffffff));
}

inline AtomicAckEth AtomicAckEth::decode(HeaderBytes<kSize> bytes) {
  return {load_be64(bytes.data())};
}

inline void AtomicAckEth::encode(HeaderRoom<kSize> room) const {
  store_be64(room.data(), original);
}

inline Deth Deth::decode(HeaderBytes<kSize> bytes) {
  return {load_be32(bytes.data()), {load_be24(bytes.data() + 5)}};
}

inline void Deth::encode(HeaderRoom<kSize> room) const {
  store_be32(room.data(), qkey);
  store_be32(room.data() + 4, source_qpn.value & 0xffffff);
}

inline XrcEth XrcEth::decode(HeaderBytes<kSize> bytes) {
  return {load_be24(bytes.data() + 1)};
}

inline void XrcEth::encode(HeaderRoom<kSize> room) const {
  store_be32(room.data(), xrc_srq & 0xffffff);
}

}  // namespace uroce::transport
