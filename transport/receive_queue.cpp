// Snapshots of receive requests.
#include "transport/receive_queue.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <new>

namespace uroce::transport {

ReceiveQueue::ReceiveQueue(uint32_t capacity, uint32_t max_sges)
    : ring(capacity, static_cast<uint32_t>(sizeof(ReceiveWqe) + max_sges * sizeof(Sge))),
      max_sges_(max_sges) {}

PostError ReceiveQueue::post(const ReceiveRequest& request) {
  if (request.sges.size() > max_sges_) return PostError::kTooManySges;
  uint64_t length = 0;
  for (const Sge& sge : request.sges) length += sge.length;

  std::byte* slot = ring.reserve();
  if (slot == nullptr) return PostError::kQueueFull;
  auto* wqe = new (slot) ReceiveWqe;
  wqe->wr_id = request.wr_id;
  // More room than the longest message is as good as 2^32 - 1.
  wqe->length =
      static_cast<uint32_t>(std::min<uint64_t>(length, std::numeric_limits<uint32_t>::max()));
  wqe->sge_count = static_cast<uint32_t>(request.sges.size());
  if (!request.sges.empty()) {
    std::memcpy(slot + sizeof(ReceiveWqe), request.sges.data(), request.sges.size_bytes());
  }
  ring.publish();
  return PostError::kNone;
}

}  // namespace uroce::transport
