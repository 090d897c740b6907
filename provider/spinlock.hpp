// A lock for the few instructions of a post or a poll: spins briefly, then yields.
#pragma once

#include <sched.h>

#include <atomic>

namespace uroce::provider {

class Spinlock {
 public:
  void lock() {
    while (locked_.exchange(true, std::memory_order_acquire)) wait();
  }
  void unlock() { locked_.store(false, std::memory_order_release); }

 private:
  static constexpr int kSpins = 64;  // about a microsecond; the holder may have lost the CPU

  void wait() const {
    for (int i = 0; i < kSpins; ++i) {
      if (!locked_.load(std::memory_order_relaxed)) return;
      __builtin_ia32_pause();
    }
    sched_yield();
  }

  std::atomic<bool> locked_{false};
};

}  // namespace uroce::provider
