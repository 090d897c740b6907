// Timers in slots by tick, with a bit per slot that is occupied.
#include "transport/timer_wheel.hpp"

#include <algorithm>
#include <bit>

namespace uroce::transport {

namespace {

constexpr size_t kMask = TimerWheel::kSlots - 1;
// Timers that one search for the earliest deadline looks at before it settles for less than exact.
constexpr size_t kSearchLimit = 256;

size_t slot_of(int64_t tick) {
  return static_cast<size_t>(tick) & kMask;
}

}  // namespace

void TimerWheel::arm(TimerNode& node, Instant deadline) {
  cancel(node);
  const size_t slot = slot_of(std::max(tick_of(deadline), current_tick_));
  node.deadline_ = deadline;
  node.slot_ = static_cast<uint16_t>(slot);
  node.armed_ = true;
  node.previous_ = nullptr;
  node.next_ = slots_[slot];
  if (node.next_ != nullptr) node.next_->previous_ = &node;
  slots_[slot] = &node;
  occupied_[slot / 64] |= uint64_t{1} << slot % 64;
  ++armed_count_;
  earliest_ = std::min(earliest_, deadline);
}

void TimerWheel::cancel(TimerNode& node) {
  if (!node.armed_) return;
  node.armed_ = false;
  if (node.next_ != nullptr) node.next_->previous_ = node.previous_;
  if (node.previous_ != nullptr) {
    node.previous_->next_ = node.next_;
  } else {
    slots_[node.slot_] = node.next_;
    if (node.next_ == nullptr) occupied_[node.slot_ / 64] &= ~(uint64_t{1} << node.slot_ % 64);
  }
  if (--armed_count_ == 0) earliest_ = Instant::never();
}

TimerNode* TimerWheel::pop_expired(Instant now) {
  if (now < earliest_) return nullptr;
  const int64_t now_tick = tick_of(now);
  // After a jump of more than a revolution, one pass over all slots sees every timer.
  current_tick_ = std::max(current_tick_, now_tick - static_cast<int64_t>(kMask));
  while (armed_count_ != 0) {
    const int64_t tick = next_occupied_tick(current_tick_);
    if (tick > now_tick) break;
    current_tick_ = tick;
    if (TimerNode* node = take_expired_of(slot_of(tick), now); node != nullptr) return node;
    if (tick == now_tick) break;
    ++current_tick_;
  }
  current_tick_ = std::max(current_tick_, now_tick);
  earliest_ = find_earliest();
  return nullptr;
}

TimerNode* TimerWheel::take_expired_of(size_t slot, Instant now) {
  for (TimerNode* node = slots_[slot]; node != nullptr; node = node->next_) {
    if (node->deadline_ <= now) {
      cancel(*node);
      return node;
    }
  }
  return nullptr;
}

// The first tick at or after `tick` whose slot is not empty; some slot is not.
int64_t TimerWheel::next_occupied_tick(int64_t tick) const {
  const size_t start = slot_of(tick);
  size_t word = start / 64;
  uint64_t bits = occupied_[word] & ~uint64_t{0} << start % 64;
  while (bits == 0) {
    word = (word + 1) % occupied_.size();
    bits = occupied_[word];
  }
  const size_t slot = word * 64 + static_cast<size_t>(std::countr_zero(bits));
  return tick + static_cast<int64_t>((slot - start) & kMask);
}

// Exact if a timer of this revolution is found within the limit; else the start of the first slot
// that was not searched. Every armed deadline lies after the time of the last pop.
Instant TimerWheel::find_earliest() const {
  if (armed_count_ == 0) return Instant::never();
  size_t searched = 0;
  const int64_t end = current_tick_ + static_cast<int64_t>(kSlots);
  for (int64_t tick = next_occupied_tick(current_tick_); tick < end;) {
    if (searched > kSearchLimit) return start_of(tick);
    Instant earliest = Instant::never();
    for (const TimerNode* node = slots_[slot_of(tick)]; node != nullptr; node = node->next_) {
      if (tick_of(node->deadline_) <= tick) earliest = std::min(earliest, node->deadline_);
      ++searched;
    }
    if (earliest != Instant::never()) return earliest;
    tick = next_occupied_tick(tick + 1);
  }
  return start_of(end);
}

}  // namespace uroce::transport
