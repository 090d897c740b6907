// Runs scheduled actions in the order of virtual time.
#include "tools/sim/virtual_clock.hpp"

#include <algorithm>
#include <utility>

namespace uroce::sim {

void VirtualClock::schedule(Instant when, Action action) {
  queue_.push_back({std::max(when, now_), next_serial_++, std::move(action)});
  std::push_heap(queue_.begin(), queue_.end());
}

bool VirtualClock::step() {
  if (queue_.empty()) return false;
  std::pop_heap(queue_.begin(), queue_.end());
  Entry entry = std::move(queue_.back());
  queue_.pop_back();
  now_ = entry.when;
  entry.action();
  return true;
}

}  // namespace uroce::sim
