// Snapshots of send requests: what post_send refuses and what it copies.
#include "transport/send_queue.hpp"

#include <algorithm>
#include <cstring>
#include <new>

namespace uroce::transport {

namespace {

constexpr uint64_t kMaxMessageBytes = uint64_t{1} << 31;

uint32_t stride_of(uint32_t max_sges, uint32_t max_inline_bytes) {
  const size_t list = max_sges * sizeof(Sge) + sizeof(uint64_t);  // with a swap operand
  const size_t bytes = sizeof(SendWqe) + std::max<size_t>(list, max_inline_bytes);
  return static_cast<uint32_t>((bytes + 63) / 64 * 64);
}

bool known(SendOpcode opcode) {
  return opcode <= SendOpcode::kAtomicFetchAndAdd;
}

void copy_inline(std::byte* area, std::span<const Sge> sges) {
  for (const Sge& sge : sges) {
    if (sge.length != 0) {  // the address of an empty piece may be anything
      std::memcpy(area, reinterpret_cast<const void*>(sge.address), sge.length);
    }
    area += sge.length;
  }
}

}  // namespace

uint64_t SendWqe::swap() const {
  uint64_t value;
  std::memcpy(&value, area() + sge_count * sizeof(Sge), sizeof value);
  return value;
}

SendQueue::SendQueue(uint32_t capacity, uint32_t max_sges, uint32_t max_inline_bytes)
    : ring(capacity, stride_of(max_sges, max_inline_bytes)),
      max_sges_(max_sges),
      max_inline_bytes_(max_inline_bytes) {}

PostError SendQueue::post(const SendRequest& request, bool signal_all) {
  if (!known(request.opcode)) return PostError::kBadOpcode;
  const bool is_inline = (request.flags & kInline) != 0;
  if (is_inline && request.opcode >= SendOpcode::kRdmaRead) return PostError::kBadOpcode;
  if (request.sges.size() > max_sges_) return PostError::kTooManySges;
  uint64_t length = 0;
  for (const Sge& sge : request.sges) length += sge.length;
  if (length > kMaxMessageBytes) return PostError::kMessageTooLong;
  if (is_inline && length > max_inline_bytes_) return PostError::kInlineTooLong;

  std::byte* slot = ring.reserve();
  if (slot == nullptr) return PostError::kQueueFull;
  auto* wqe = new (slot) SendWqe;
  wqe->wr_id = request.wr_id;
  wqe->remote_address = request.remote_address;
  wqe->rkey = request.rkey;
  wqe->length = static_cast<uint32_t>(length);
  wqe->opcode = request.opcode;
  wqe->operand =
      request.opcode >= SendOpcode::kAtomicCmpAndSwp ? request.compare_add : request.immediate;
  wqe->flags = static_cast<uint8_t>(request.flags | (signal_all ? kSignaled : 0u));
  if (is_inline) {
    copy_inline(wqe->area(), request.sges);
  } else if (!request.sges.empty()) {
    wqe->sge_count = static_cast<uint8_t>(request.sges.size());
    std::memcpy(wqe->area(), request.sges.data(), request.sges.size_bytes());
  }
  if (request.opcode == SendOpcode::kAtomicCmpAndSwp) {
    std::memcpy(wqe->area() + request.sges.size_bytes(), &request.swap, sizeof request.swap);
  }
  ring.publish();
  return PostError::kNone;
}

}  // namespace uroce::transport
