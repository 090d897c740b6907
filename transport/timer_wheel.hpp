// A hashed timing wheel: insert and cancel in O(1), no allocation after construction, no clock.
//
// A timer sits in the slot of its deadline's tick, modulo the wheel's size; timers of later
// revolutions share the slot. Expiry is exact to the nanosecond: ticks only sort. A virtual clock
// may jump any distance.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "transport/types.hpp"

namespace uroce::transport {

class TimerWheel;

// Embedded in its owner, which outlives its stay on the wheel. `deadline` is valid while armed.
class TimerNode {
 public:
  bool armed() const { return armed_; }
  Instant deadline() const { return deadline_; }

 private:
  friend class TimerWheel;
  TimerNode* next_ = nullptr;
  TimerNode* previous_ = nullptr;
  Instant deadline_;
  uint16_t slot_ = 0;
  bool armed_ = false;
};

class TimerWheel {
 public:
  static constexpr int kTickShift = 14;   // 16.384 us
  static constexpr size_t kSlots = 4096;  // 67 ms a revolution

  TimerWheel() = default;
  TimerWheel(const TimerWheel&) = delete;
  TimerWheel& operator=(const TimerWheel&) = delete;

  // Arms `node`, moving it if it was armed. A deadline in the past expires at the next pop.
  void arm(TimerNode& node, Instant deadline);
  void cancel(TimerNode& node);  // nothing if it is not armed

  // Takes one timer whose deadline is at or before `now` off the wheel; null if there is none.
  // Call until null; between calls the caller may arm and cancel any timer. `now` never decreases.
  TimerNode* pop_expired(Instant now);

  // Not later than the earliest deadline, Instant::never() when no timer is armed. It may be
  // earlier (a cancelled timer's, or the start of a crowded slot): pop_expired then finds nothing
  // and moves it on.
  Instant next_deadline() const { return earliest_; }

 private:
  static constexpr int64_t tick_of(Instant time) { return time.ns >> kTickShift; }
  static constexpr Instant start_of(int64_t tick) { return {tick << kTickShift}; }
  TimerNode* take_expired_of(size_t slot, Instant now);
  int64_t next_occupied_tick(int64_t tick) const;
  Instant find_earliest() const;

  std::array<TimerNode*, kSlots> slots_{};
  std::array<uint64_t, kSlots / 64> occupied_{};  // a bit for each slot
  int64_t current_tick_ = 0;                      // no armed timer belongs to an earlier tick
  size_t armed_count_ = 0;
  Instant earliest_ = Instant::never();
};

}  // namespace uroce::transport
