// Holds the tables of syndrome values.
#include "transport/syndrome.hpp"

#include <array>

namespace uroce::transport {

namespace {

// IBTA table 46. Code 31 means that the responder sets no limit.
constexpr std::array<uint32_t, 31> kCredits = {
    0,   1,   2,   3,   4,    6,    8,    12,   16,   24,   32,   48,    64,    96,    128,   192,
    256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768,
};

// IBTA table 45, in units of 10 us.
constexpr std::array<uint32_t, 32> kRnrTimers = {
    65536, 1,    2,    3,    4,    6,     8,     12,    16,    24,    32,
    48,    64,   96,   128,  192,  256,   384,   512,   768,   1024,  1536,
    2048,  3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
};

}  // namespace

uint32_t credits_of(uint8_t credit_code) {
  return credit_code < kCredits.size() ? kCredits[credit_code] : kCredits.back();
}

uint8_t credit_code_of(uint32_t receives) {
  uint8_t code = 0;
  while (code + 1u < kCredits.size() && kCredits[code + 1u] <= receives) ++code;
  return code;
}

int64_t rnr_timer_ns(uint8_t code) {
  return int64_t{kRnrTimers[code & 0x1f]} * 10'000;
}

}  // namespace uroce::transport
