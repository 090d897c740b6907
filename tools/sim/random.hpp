// A seeded generator of numbers that gives the same sequence on every platform and compiler.
#pragma once

#include <cstdint>

namespace uroce::sim {

inline constexpr uint32_t kMillion = 1'000'000;
inline constexpr uint32_t kPercent = kMillion / 100;

// splitmix64. The standard library's distributions differ between implementations: not used.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t next() {
    state_ += 0x9e3779b97f4a7c15;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  // In [0, bound); 0 if bound is 0. The bias of the remainder does not matter here.
  uint64_t below(uint64_t bound) { return bound == 0 ? 0 : next() % bound; }
  // In [low, high], both included.
  uint64_t between(uint64_t low, uint64_t high) { return low + below(high - low + 1); }
  bool chance(uint32_t per_million) { return below(kMillion) < per_million; }
  bool coin() { return (next() & 1) != 0; }
  // A generator of its own, so that one part's draws do not move another's.
  Random split() { return Random(next()); }

 private:
  uint64_t state_;
};

}  // namespace uroce::sim
