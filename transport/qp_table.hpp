// The queue pairs of an HCA by number: allocation of QPNs, and lookup per packet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>

#include "transport/rc_queue_pair.hpp"
#include "transport/types.hpp"

namespace uroce::transport {

// QPN indices start at random and cycle; a freed one rests, so that late packets of its former
// owner meet nobody (IBTA 10.3.1.2's TimeWait, held by the HCA for all queue pairs alike).
class QpTable {
 public:
  static constexpr int64_t kRestNs = 2'000'000'000;
  static constexpr size_t kIndices = 1u << 16;

  QpTable(uint8_t slot, uint64_t seed);

  RcQueuePair* find(Qpn qpn) const {
    return qpn.slot() == slot_ && qpn.value >> 24 == 0 ? entries_[qpn.index()] : nullptr;
  }

  // A number that is neither used nor resting; none if there is no such.
  std::optional<Qpn> reserve(Instant now);
  void insert(RcQueuePair& qp) {
    entries_[qp.qpn().index()] = &qp;
    ++size_;
  }
  void remove(const RcQueuePair& qp, Instant now);

  size_t size() const { return size_; }
  template <typename Visit>
  void each(Visit&& visit) const {
    for (size_t i = 0; i < kIndices && size_ != 0; ++i) {
      if (entries_[i] != nullptr) visit(*entries_[i]);
    }
  }

 private:
  struct Resting {
    uint16_t index;
    Instant until;
  };
  struct Free {
    void operator()(RcQueuePair** entries) const;
  };

  bool resting(uint16_t index) const;

  // Zero pages that nobody touches cost nothing, hence calloc.
  std::unique_ptr<RcQueuePair*[], Free> entries_;
  std::deque<Resting> resting_;  // oldest first
  size_t size_ = 0;
  uint16_t next_;  // index to try first
  uint8_t slot_;
};

}  // namespace uroce::transport
