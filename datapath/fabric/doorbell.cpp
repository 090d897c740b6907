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

namespace uroce::datapath {

namespace {

int64_t monotonic_ns() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<int64_t>(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
}

double measure_ticks_per_ns() {
  constexpr int64_t kMeasuredNs = 100'000;
  const int64_t start_ns = monotonic_ns();
  const uint64_t start = read_ticks();
  int64_t elapsed_ns = 0;
  while (elapsed_ns < kMeasuredNs) elapsed_ns = monotonic_ns() - start_ns;
  return static_cast<double>(read_ticks() - start) / static_cast<double>(elapsed_ns);
}

}  // namespace

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
  return static_cast<uint64_t>(monotonic_ns());
#endif
}

uint64_t ticks_of(int64_t duration_ns) {
  static const double ticks_per_ns = measure_ticks_per_ns();
  return static_cast<uint64_t>(static_cast<double>(duration_ns) * ticks_per_ns);
}

}  // namespace uroce::datapath
