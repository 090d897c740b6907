// The word in shared memory on which an endpoint sleeps and by which its peers wake it.
//
// Sleeper: arm (full fence), look once more for frames, sleep. Sender: publish, full fence, look at
// the word. Whichever fence is second sees the other's store, so no frame is slept through.
#pragma once

#include <atomic>
#include <cstdint>

#include "datapath/fabric/slot_table.hpp"

namespace uroce::datapath {

class Doorbell {
 public:
  static constexpr uint32_t kUnarmed = 0;
  static constexpr uint32_t kArmed = 1;

  explicit Doorbell(SlotEntry& entry) : entry_(&entry) {}

  // Holder's side.
  void arm();
  void disarm() { entry_->doorbell.store(kUnarmed, std::memory_order_relaxed); }
  // Returns when rung, when not armed, or after timeout_ns (< 0: never by itself).
  void sleep(int64_t timeout_ns);
  // "An application thread polls now, on this CPU."
  void note_polled();

  // Anybody's side.
  bool armed() const { return entry_->doorbell.load(std::memory_order_relaxed) == kArmed; }
  // Wakes the sleeper, once per arming. True if this call made the FUTEX_WAKE.
  bool ring();
  // Ticks since the holder last polled, negative if its clock seems ahead of ours.
  int64_t ticks_since_polled(uint64_t now) const {
    return static_cast<int64_t>(now - entry_->last_polled_tsc.load(std::memory_order_relaxed));
  }
  int cpu() const { return entry_->cpu.load(std::memory_order_relaxed); }

 private:
  SlotEntry* entry_;
};

// A counter that all processes of the host share, fast to read: the TSC, else CLOCK_MONOTONIC.
uint64_t read_ticks();
uint64_t ticks_of(int64_t duration_ns);

}  // namespace uroce::datapath
