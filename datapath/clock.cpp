#include "datapath/clock.hpp"

#include <time.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <x86intrin.h>
#endif

namespace uroce::datapath {

namespace {

int64_t monotonic_ns() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<int64_t>(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
}

#if defined(__x86_64__)
bool tsc_is_invariant() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(0x80000007, &a, &b, &c, &d) != 0 && (d & (1u << 8)) != 0;
}
#endif

}  // namespace

const Clock& Clock::shared() {
  static const Clock clock;
  return clock;
}

Clock::Clock() {
#if defined(__x86_64__)
  if (!tsc_is_invariant()) return;
  const int64_t start_ns = monotonic_ns();
  tsc_origin_ = __rdtsc();
  const timespec pause{0, 1'000'000};
  nanosleep(&pause, nullptr);
  const int64_t elapsed_ns = monotonic_ns() - start_ns;
  const uint64_t ticks = __rdtsc() - tsc_origin_;
  if (elapsed_ns <= 0 || ticks == 0) return;
  ns_per_tick_q32_ = (static_cast<uint64_t>(elapsed_ns) << 32) / ticks;
  use_tsc_ = true;
#endif
}

Instant Clock::now() const {
#if defined(__x86_64__)
  if (use_tsc_) {
    const uint64_t ticks = __rdtsc() - tsc_origin_;
    __extension__ using Wide = unsigned __int128;  // the product has up to 96 bits
    const auto wide = static_cast<Wide>(ticks) * ns_per_tick_q32_;
    return {static_cast<int64_t>(wide >> 32)};
  }
#endif
  return {monotonic_ns()};
}

}  // namespace uroce::datapath
