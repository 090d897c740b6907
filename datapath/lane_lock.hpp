// The lock of a lane: tried by data verbs, taken by control verbs, held for one burst at most.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstdint>

namespace uroce::datapath {

class LaneLock {
 public:
  bool try_lock() {
    return !held_.load(std::memory_order_relaxed) &&
           !held_.exchange(true, std::memory_order_acquire);
  }

  // For the background thread, which comes back by itself: gives way to anyone who waits.
  bool try_lock_politely() { return waiters_.load(std::memory_order_relaxed) == 0 && try_lock(); }

  // Yields instead of spinning for long: the holder may share this CPU.
  void lock() {
    waiters_.fetch_add(1, std::memory_order_relaxed);
    for (unsigned spins = 0; !try_lock(); ++spins) {
      if (spins >= kSpinsBeforeYield) sched_yield();
    }
    waiters_.fetch_sub(1, std::memory_order_relaxed);
  }

  void unlock() { held_.store(false, std::memory_order_release); }

 private:
  static constexpr unsigned kSpinsBeforeYield = 64;

  alignas(64) std::atomic<bool> held_{false};
  std::atomic<uint32_t> waiters_{0};
};

}  // namespace uroce::datapath
