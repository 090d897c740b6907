// Futex calls and the tick counter behind doorbells.
#include "datapath/fabric/doorbell.hpp"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#include "datapath/clock.hpp"

namespace uroce::datapath {

void Doorbell::arm() {
  entry_->doorbell.store(kArmed, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

// The futex is not private: the word is shared between processes.
void Doorbell::sleep(int64_t timeout_ns) {
  const timespec timeout{timeout_ns / 1'000'000'000, timeout_ns % 1'000'000'000};
  syscall(SYS_futex, &entry_->doorbell, FUTEX_WAIT, kArmed, timeout_ns < 0 ? nullptr : &timeout,
          nullptr, 0);
}

bool Doorbell::ring() {
  uint32_t expected = kArmed;
  if (!entry_->doorbell.compare_exchange_strong(expected, kUnarmed)) return false;
  syscall(SYS_futex, &entry_->doorbell, FUTEX_WAKE, 1, nullptr, nullptr, 0);
  return true;
}

void Doorbell::note_polled() {
  entry_->last_polled_tsc.store(read_ticks(), std::memory_order_relaxed);
  const int cpu = sched_getcpu();
  if (entry_->cpu.load(std::memory_order_relaxed) != cpu) {
    entry_->cpu.store(cpu, std::memory_order_relaxed);
  }
}

uint64_t read_ticks() {
#if defined(__x86_64__)
  return __rdtsc();
#else
  return static_cast<uint64_t>(Clock::shared().now().ns);
#endif
}

uint64_t ticks_of(int64_t duration_ns) {
  return Clock::shared().ticks_of(duration_ns);
}

}  // namespace uroce::datapath
