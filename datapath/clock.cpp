// Calibrates the TSC against CLOCK_MONOTONIC, and converts.
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

// The two clocks at one moment. A thread that is preempted between the readings would pair moments
// that are milliseconds apart, so the tightest of several tries counts.
struct Pair {
  int64_t ns = 0;
  uint64_t ticks = 0;
};

Pair read_both() {
  constexpr int kTries = 16;
  Pair best;
  uint64_t tightest = ~uint64_t{0};
  for (int i = 0; i < kTries; ++i) {
    const uint64_t before = __rdtsc();
    const int64_t ns = monotonic_ns();
    const uint64_t gap = __rdtsc() - before;
    if (gap >= tightest) continue;
    tightest = gap;
    best = {ns, before + gap / 2};
  }
  return best;
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
  const Pair start = read_both();
  const timespec pause{0, 1'000'000};
  nanosleep(&pause, nullptr);
  const Pair end = read_both();
  if (end.ns <= start.ns || end.ticks <= start.ticks) return;
  tsc_origin_ = start.ticks;
  ns_per_tick_q32_ = (static_cast<uint64_t>(end.ns - start.ns) << 32) / (end.ticks - start.ticks);
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

uint64_t Clock::ticks_of(int64_t duration_ns) const {
  if (!use_tsc_) return static_cast<uint64_t>(duration_ns);
  __extension__ using Wide = unsigned __int128;
  return static_cast<uint64_t>((static_cast<Wide>(duration_ns) << 32) / ns_per_tick_q32_);
}

}  // namespace uroce::datapath
