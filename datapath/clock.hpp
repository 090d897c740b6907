// The lane's clock: the invariant TSC where there is one, else CLOCK_MONOTONIC.
#pragma once

#include <cstdint>

#include "transport/types.hpp"

namespace uroce::datapath {

class Clock {
 public:
  // Calibrates once per process (about a millisecond).
  static const Clock& shared();

  Instant now() const;

  // The duration in ticks of the TSC, which all processes of the host share; in nanoseconds where
  // there is no invariant one. Not negative.
  uint64_t ticks_of(int64_t duration_ns) const;

 private:
  Clock();

  bool use_tsc_ = false;
  uint64_t tsc_origin_ = 0;
  uint64_t ns_per_tick_q32_ = 0;  // nanoseconds per tick, 32.32 fixed point
};

}  // namespace uroce::datapath
