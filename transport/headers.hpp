// InfiniBand transport headers as plain values, with decode and encode (IBTA chapter 9; annex A17).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "transport/types.hpp"

namespace uroce::transport {

// Base Transport Header, 12 bytes (IBTA 9.2). Reserved bits are ignored on decode, zero on encode.
struct Bth {
  static constexpr size_t kSize = 12;
  uint8_t opcode = 0;
  bool solicited = false;
  bool mig_req = true;
  uint8_t pad_count = 0;  // 0..3
  uint8_t version = 0;    // TVer, must be 0
  uint16_t pkey = 0xffff;
  bool fecn = false;
  bool becn = false;
  Qpn destination_qpn;
  bool ack_request = false;
  Psn psn;
};

// RDMA Extended Transport Header, 16 bytes (9.3.3).
struct Reth {
  static constexpr size_t kSize = 16;
  uint64_t virtual_address = 0;
  Rkey rkey;
  uint32_t dma_length = 0;  // bytes
};

// Atomic Extended Transport Header, 28 bytes (9.3.4).
struct AtomicEth {
  static constexpr size_t kSize = 28;
  uint64_t virtual_address = 0;
  Rkey rkey;
  uint64_t swap_add = 0;
  uint64_t compare = 0;
};

// ACK Extended Transport Header, 4 bytes (9.3.5).
struct Aeth {
  static constexpr size_t kSize = 4;
  uint8_t syndrome = 0;
  uint32_t msn = 0;  // 24 bits
};

// Atomic ACK Extended Transport Header, 8 bytes (9.5.3).
struct AtomicAckEth {
  static constexpr size_t kSize = 8;
  uint64_t original = 0;
};

// Datagram Extended Transport Header, 8 bytes (9.3.1).
struct Deth {
  static constexpr size_t kSize = 8;
  uint32_t qkey = 0;
  Qpn source_qpn;
};

inline constexpr size_t kImmediateSize = 4;
inline constexpr size_t kIethSize = 4;

}  // namespace uroce::transport
