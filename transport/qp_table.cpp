// Allocation of queue pair numbers.
#include "transport/qp_table.hpp"

#include <algorithm>
#include <cstdlib>
#include <new>

namespace uroce::transport {

namespace {

// Indices 0 and 1 are the special queue pairs' of slot 0, 0xffff the multicast QPN's of slot 255:
// used in no slot.
bool reserved(uint16_t index) {
  return index <= 1 || index == 0xffff;
}

// Spreads the bits of a seed (splitmix64's finaliser).
uint64_t scramble(uint64_t seed) {
  seed = (seed ^ seed >> 30) * 0xbf58476d1ce4e5b9ull;
  seed = (seed ^ seed >> 27) * 0x94d049bb133111ebull;
  return seed ^ seed >> 31;
}

}  // namespace

QpTable::QpTable(uint8_t slot, uint64_t seed)
    : entries_(static_cast<RcQueuePair**>(std::calloc(kIndices, sizeof(RcQueuePair*)))),
      next_(static_cast<uint16_t>(scramble(seed + 1))),
      slot_(slot) {
  if (entries_ == nullptr) throw std::bad_alloc();
}

void QpTable::Free::operator()(RcQueuePair** entries) const {
  std::free(entries);
}

std::optional<Qpn> QpTable::reserve(Instant now) {
  while (!resting_.empty() && resting_.front().until <= now) resting_.pop_front();
  for (size_t tries = 0; tries < kIndices; ++tries) {
    const uint16_t index = next_++;
    if (reserved(index) || entries_[index] != nullptr || resting(index)) continue;
    return Qpn::of(slot_, index);
  }
  return std::nullopt;
}

bool QpTable::resting(uint16_t index) const {
  return std::any_of(resting_.begin(), resting_.end(),
                     [index](const Resting& each) { return each.index == index; });
}

void QpTable::remove(const RcQueuePair& qp, Instant now) {
  entries_[qp.qpn().index()] = nullptr;
  --size_;
  resting_.push_back({qp.qpn().index(), now + kRestNs});
}

}  // namespace uroce::transport
