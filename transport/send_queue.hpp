// The send queue: work requests as posted, kept until they are acknowledged and polled.
#pragma once

#include <cstdint>
#include <span>

#include "transport/types.hpp"
#include "transport/verbs.hpp"
#include "transport/work_ring.hpp"

namespace uroce::transport {

// A work queue element: a snapshot of the request (PROTOCOL.md 15). Its area follows it in the
// ring: the scatter/gather list and then the swap operand of a CMP_AND_SWP, or the inline data.
// With one SGE a WQE is one cache line.
struct SendWqe {
  uint64_t wr_id = 0;
  uint64_t remote_address = 0;
  uint64_t operand = 0;  // compare_add of an ATOMIC, the immediate (network order) of others
  Rkey rkey;
  uint32_t length = 0;  // bytes of the message
  Psn first_psn;        // set by the requester when it starts the WQE
  SendOpcode opcode = SendOpcode::kSend;
  uint8_t flags = 0;  // SendFlags; kSignaled includes the QP's signal_all
  uint8_t sge_count = 0;
  uint8_t unused = 0;

  bool has(SendFlag flag) const { return (flags & flag) != 0; }
  bool is_read() const { return opcode == SendOpcode::kRdmaRead; }
  bool is_atomic() const {
    return opcode == SendOpcode::kAtomicCmpAndSwp || opcode == SendOpcode::kAtomicFetchAndAdd;
  }
  // READs and ATOMICs: a response with data, one of max_rd_atomic, ordered by fences.
  bool is_fetch() const { return opcode >= SendOpcode::kRdmaRead; }
  bool has_immediate() const {
    return opcode == SendOpcode::kRdmaWriteWithImm || opcode == SendOpcode::kSendWithImm;
  }
  // Consumes a receive of the peer.
  bool takes_receive() const { return opcode == SendOpcode::kSend || has_immediate(); }

  std::byte* area() { return reinterpret_cast<std::byte*>(this + 1); }
  const std::byte* area() const { return reinterpret_cast<const std::byte*>(this + 1); }
  std::span<const Sge> sges() const { return {reinterpret_cast<const Sge*>(area()), sge_count}; }
  uint64_t swap() const;  // of a CMP_AND_SWP
};
static_assert(sizeof(SendWqe) == 40 && alignof(SendWqe) == alignof(Sge));

class SendQueue {
 public:
  // `capacity` is a power of two or 0.
  SendQueue(uint32_t capacity, uint32_t max_sges, uint32_t max_inline_bytes);

  // Application side. Copies the request whole; `signal_all` is the QP's sq_sig_all.
  [[nodiscard]] PostError post(const SendRequest& request, bool signal_all);

  // Engine side.
  SendWqe& at(uint32_t index) const { return *reinterpret_cast<SendWqe*>(ring.slot(index)); }

  WorkRing ring;

 private:
  uint32_t max_sges_;
  uint32_t max_inline_bytes_;
};

}  // namespace uroce::transport
