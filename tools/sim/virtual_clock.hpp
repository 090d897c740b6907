// Virtual time: a queue of actions, run in the order of their instants in one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "transport/types.hpp"

namespace uroce::sim {

class VirtualClock {
 public:
  using Action = std::function<void()>;

  Instant now() const { return now_; }
  bool idle() const { return queue_.empty(); }
  // Actions of one instant run in the order in which they were scheduled. `when` may not lie in the
  // past: it is taken for now.
  void schedule(Instant when, Action action);
  void schedule_in(int64_t delay_ns, Action action) {
    schedule(now_ + delay_ns, std::move(action));
  }
  // Moves to the next action and runs it; false if there is none.
  bool step();

 private:
  struct Entry {
    Instant when;
    uint64_t serial = 0;
    Action action;
    // For a heap with the earliest entry in front.
    bool operator<(const Entry& other) const {
      return when == other.when ? serial > other.serial : when > other.when;
    }
  };
  std::vector<Entry> queue_;
  Instant now_{0};
  uint64_t next_serial_ = 0;
};

}  // namespace uroce::sim
