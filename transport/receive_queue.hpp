// The receive queue: buffers that wait for SENDs and for WRITEs with immediate data.
#pragma once

#include <cstdint>
#include <span>

#include "transport/verbs.hpp"
#include "transport/work_ring.hpp"

namespace uroce::transport {

// A receive WQE; its scatter list follows it in the ring.
struct ReceiveWqe {
  uint64_t wr_id = 0;
  uint32_t length = 0;  // bytes of all buffers together, at most 2^32 - 1
  uint32_t sge_count = 0;

  std::span<const Sge> sges() const { return {reinterpret_cast<const Sge*>(this + 1), sge_count}; }
};
static_assert(sizeof(ReceiveWqe) == 16 && alignof(ReceiveWqe) == alignof(Sge));

class ReceiveQueue {
 public:
  // `capacity` is a power of two or 0.
  ReceiveQueue(uint32_t capacity, uint32_t max_sges);

  // Application side.
  [[nodiscard]] PostError post(const ReceiveRequest& request);

  // Engine side.
  const ReceiveWqe& at(uint32_t index) const {
    return *reinterpret_cast<const ReceiveWqe*>(ring.slot(index));
  }

  WorkRing ring;

 private:
  uint32_t max_sges_;
};

}  // namespace uroce::transport
